"""Kinds of array and names of devices."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays import kinds
from customop.arrays.kinds import (
    device_kind,
    find_kind,
    is_array_class,
    kind_name,
    kind_of,
    known_kinds,
    normalize_device,
)
from customop.testing import as_kind, devices_at_hand
from tests.beside import beside

pytestmark = pytest.mark.usefixtures("built_in_kinds")

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Undo what a test registers."""
    before, hosts = dict(kinds._kinds), set(kinds.hosts)
    yield
    kinds._kinds.clear()
    kinds._kinds.update(before)
    kinds.hosts.clear()
    kinds.hosts.update(hosts)
    kind_of.clear()


class Column:
    """A class of arrays without NumPy's protocols."""

    def __init__(self, values: list[float]) -> None:
        self.values = values
        self.shape = (len(values),)
        self.dtype = np.dtype(float)
        self.ndim = 1


class LongColumn(Column):
    """A class that derives from it."""


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros(2), "cpu"),
        (np.ma.zeros(2), "cpu"),
        (np.float64(1.0), "numpy scalar"),
        (1.0, None),
        ([1.0], None),
        (None, None),
    ],
    ids=["ndarray", "subclass", "NumPy scalar", "float", "list", "None"],
)
def test_the_class_of_a_value_gives_its_kind(value: Any, kind: str | None) -> None:
    """NumPy arrays and their subclasses are of the kind cpu."""
    assert kind_name(value) == kind


def test_kinds_known_from_the_start() -> None:
    """Kernels can be registered for cpu and cuda, and fake kernels."""
    assert set(known_kinds()) >= {"cpu", "cuda", "fake"}


def test_a_registered_class_has_its_kind() -> None:
    """A class and its subclasses are of the kind that they are registered as."""
    co.register_array_type("column", Column)
    assert kind_of[Column] is kind_of[LongColumn] is find_kind("column")


def test_registering_reaches_classes_looked_up_before() -> None:
    """A class can become a class of arrays after a call has seen it."""
    assert kind_of[Column] is None
    co.register_array_type("column", Column)
    assert kind_of[Column] is find_kind("column")


def test_a_kind_may_have_several_classes() -> None:
    """A second class joins the first, and a class may be given twice."""
    other = type("Other", (), {})
    for cls in (Column, Column, other):
        co.register_array_type("column", cls)
    assert kind_of[Column] is kind_of[other] is find_kind("column")


def test_a_path_may_name_what_its_module_defines_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module that is being imported has its class later than its entry."""
    module = types.ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    co.register_array_type("column", "elsewhere.Column")
    assert kind_of[Column] is None
    module.Column = Column  # type: ignore[attr-defined]  # set now
    assert kind_of[Column] is find_kind("column")


def test_a_class_given_by_its_path_is_found_once_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A path imports nothing; its class counts once somebody has imported its module."""
    co.register_array_type("far", "far_away.Column")
    assert "far_away" not in sys.modules
    module = types.ModuleType("far_away")
    module.Column = Column  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "far_away", module)
    assert kind_of[Column] is find_kind("far")


def test_a_registered_class_is_an_annotation() -> None:
    """A parameter may be annotated with a registered class."""
    co.register_array_type("column", Column)

    def total(x: Column) -> Column: ...  # type: ignore[empty-body]

    assert is_array_class(Column)
    assert co.infer_schema(total, mutates_args=()) == "(Array x) -> Array"


def test_a_kernel_for_a_registered_kind_runs() -> None:
    """A call with an array of a registered kind runs the kernel of that kind."""
    co.register_array_type("column", Column)

    @co.custom_op("devices_test::twice", mutates_args=(), device_types="cpu")
    def twice(x: co.Array) -> co.Array:
        return x + x

    @twice.register_kernel("column")
    def _(x: Column) -> Column:
        return Column([2 * v for v in x.values])

    assert twice(Column([1.0, 2.0])).values == [2.0, 4.0]


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("cpu", "cpu"),
        ("cuda", "cuda"),
        ("cuda:1", "cuda:1"),
        (types.SimpleNamespace(id=2), "cuda:2"),
    ],
    ids=["cpu", "cuda", "numbered", "object of CuPy's form"],
)
def test_a_device_has_a_name(device: Any, name: str) -> None:
    """Names stay as they are; a device object of CuPy gives its number."""
    assert normalize_device(device) == name


@pytest.mark.parametrize(("device", "kind"), [("cpu", "cpu"), ("cuda:1", "cuda")])
def test_the_kind_of_a_device_has_no_number(device: str, kind: str) -> None:
    """All devices of a kind have the same kind of array."""
    assert device_kind(device) == kind


KNOWN = "known: 'cpu', 'cuda'\n  do: use a known one, or register_array_type first"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cdua", f"unknown device 'cdua' (did you mean 'cuda'?); {KNOWN}"),
        ("tpu", f"unknown device 'tpu' (did you mean 'cpu'?); {KNOWN}"),
        ("fake", f"unknown device 'fake'; {KNOWN}"),
        ("cuda:", f"unknown device 'cuda:'; {KNOWN}"),
        ("cuda:x", f"unknown device 'cuda:x'; {KNOWN}"),
        ("default", f"unknown device 'default'; {KNOWN}"),
        (3, f"unknown device 3; {KNOWN}"),
        (None, f"unknown device None; {KNOWN}"),
    ],
)
def test_an_unknown_device_is_refused(device: Any, message: str) -> None:
    """An unknown device is an error that lists the known ones."""
    with pytest.raises(co.ArgumentError) as caught:
        normalize_device(device)
    assert str(caught.value) == message


NO_KIND = "cannot be the name of a kind of array\n  do: use an identifier, such as 'strict' or 'tpu'"
NO_CLASS = "is not a class of arrays\n  do: pass the class that has shape and dtype"
NO_PATH = 'is not the path of a class\n  do: write "module.Class"'


@pytest.mark.parametrize(
    ("kind", "cls", "message"),
    [
        (3, Column, f"3 {NO_KIND}"),
        ("two words", Column, f"'two words' {NO_KIND}"),
        ("default", Column, f"'default' {NO_KIND}"),
        ("fake", Column, f"'fake' {NO_KIND}"),
        ("traced", Column, f"'traced' {NO_KIND}"),
        ("column", "Column", f"'Column' {NO_PATH}"),
        ("column", "a..Column", f"'a..Column' {NO_PATH}"),
        (
            "column",
            3,
            '3 is neither a class nor a path\n  do: pass the class, or "module.Class"',
        ),
        ("column", int, f"int {NO_CLASS}"),
        ("column", list, f"list {NO_CLASS}"),
        ("column", np.float64, f"float64 {NO_CLASS}"),
        (
            "column",
            np.ndarray,
            (
                "ndarray is already of the kind 'cpu'\n"
                "  do: register kernels for 'cpu', or a class of your own"
            ),
        ),
    ],
)
def test_a_refused_array_type_leaves_the_table(
    kind: Any, cls: Any, message: str
) -> None:
    """A kind or class that cannot be one is an error, and nothing is registered."""
    before = dict(kinds._kinds)
    with pytest.raises(co.RegistrationError) as caught:
        co.register_array_type(kind, cls)
    assert str(caught.value) == f"register_array_type: {message}"
    assert kinds._kinds == before


# ---- conversion between kinds ----


class Cell:
    """A class of arrays whose values only a function can read."""

    def __init__(self, values: Any) -> None:
        self.values = values

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)


def test_arrays_of_a_registered_kind_are_made_and_read() -> None:
    """The functions of `register_array_type` convert both ways."""
    co.register_array_type("cell", Cell, from_numpy=Cell, to_numpy=lambda c: c.values)
    x = np.array([1.0, 2.0], np.float32)
    cell = as_kind(x, "cell")
    assert type(cell) is Cell
    assert as_kind(cell, "cell") is cell
    back = as_kind(cell, "cpu")
    assert back.dtype == np.float32
    assert back.tolist() == [1.0, 2.0]


def test_kinds_at_hand_can_be_made() -> None:
    """A kind is listed as available once its arrays can be made from NumPy arrays."""
    co.register_array_type("cell", Cell)
    assert "cell" not in devices_at_hand()
    co.register_array_type("cell", Cell, from_numpy=Cell)
    assert devices_at_hand() == ("cpu", "cell")


def test_conversions_are_given_one_by_one() -> None:
    """A second registration adds its conversion to the first."""
    co.register_array_type("cell", Cell, to_numpy=lambda c: c.values)
    co.register_array_type("cell", Cell, from_numpy=Cell)
    assert as_kind(as_kind(np.ones(2), "cell"), "cpu").tolist() == [1.0, 1.0]


def test_closeness_reads_registered_kinds() -> None:
    """Arrays are compared by what `to_numpy` gives."""
    co.register_array_type("cell", Cell, from_numpy=Cell, to_numpy=lambda c: c.values)
    co.assert_close(Cell(np.ones(2)), Cell(np.ones(2)))
    with pytest.raises(co.OpCheckError, match="1 of 2 elements"):
        co.assert_close(Cell(np.ones(2)), Cell(np.array([1.0, 2.0])))


def test_no_conversion() -> None:
    """A kind that cannot be made here is refused."""
    with pytest.raises(co.ArgumentError) as caught:
        as_kind(np.ones(2), "cel")
    assert str(caught.value) == (
        "as_kind: no array of the kind 'cel' can be made here; at hand: 'cpu'\n"
        '  do: register_array_type("cel", cls, from_numpy=...)'
    )


def test_without_a_driver_the_remedy_is_not_to_register(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds, "_cuda_answers", lambda: False)
    with pytest.raises(
        co.ArgumentError, match=r"'cuda' can be made.*\n.*cupy\.show_config"
    ):
        as_kind(np.ones(2), "cuda")


def test_a_conversion_must_be_a_function() -> None:
    """A conversion is a function."""
    with pytest.raises(co.RegistrationError) as caught:
        co.register_array_type("cell", Cell, from_numpy="Cell")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "register_array_type: from_numpy='Cell' is not a function\n"
        "  do: pass a function of one array: from_numpy=convert"
    )


# ---- what a kind says of itself ----


class Lazy:
    """An array that takes NumPy arrays as operands."""

    shape = (2,)
    dtype = np.dtype(float)

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)


def _product() -> Any:
    @co.custom_op(f"devices_test::product{next(_numbers)}", mutates_args=())
    def product(x: co.Array, y: co.Array) -> co.Array:
        return Lazy(getattr(x, "values", x) * getattr(y, "values", y))

    return product


def test_a_kind_may_accept_arrays_of_another() -> None:
    """A call with both is one of the kind that accepts, whatever their order."""
    co.register_array_type("lazy", Lazy, accepts=("cpu",), immutable=True)
    product = _product()
    for args in ((Lazy([1.0, 2.0]), np.ones(2)), (np.ones(2), Lazy([1.0, 2.0]))):
        np.testing.assert_array_equal(product(*args).values, [1.0, 2.0])
    fake = co.ops.np.multiply(co.FakeArray((2,)), co.FakeArray((2,), device="lazy"))
    assert fake.device == "lazy"
    assert co.array_kind("lazy").accepts == ("cpu",)
    assert not co.array_kind(Lazy([1.0])).has_memory
    co.register_array_type("column", Column)
    with pytest.raises(co.DeviceMismatchError, match="different kinds"):
        product(Column([1.0]), Lazy([1.0]))


@pytest.mark.parametrize("accepts", ["gpu", ("lazy",), ("fake",), (3,)])
def test_accepted_kinds_are_known_ones(accepts: Any) -> None:
    """The error lists them, and nothing is registered."""
    before = known_kinds()
    with pytest.raises(co.RegistrationError, match="is not another kind of array"):
        co.register_array_type("lazy", Lazy, accepts=accepts)
    assert known_kinds() == before
    assert kind_of[Lazy] is None


def test_array_kind_takes_arrays_and_names() -> None:
    """Also traced and fake arrays, by the device that they stand for."""
    seen: list[str] = []
    co.grad(lambda x: (seen.append(co.array_kind(x).name), x.sum())[1])(np.ones(2))
    assert seen == ["cpu"]
    assert co.array_kind(co.FakeArray((2,), device="cuda:1")).name == "cuda"
    with pytest.raises(co.ArgumentError, match="is not an array"):
        co.array_kind(3.0)
    with pytest.raises(co.ArgumentError, match="unknown device"):
        co.array_kind("gpu")


def test_a_kind_derives_kernels() -> None:
    """Before the default kernel, after one that is registered, and once for a table."""
    asked: list[str] = []

    def derive(op: Any) -> Any:
        asked.append(op.name)
        return None if op.name == "plain" else lambda x: Column([-1.0])

    co.register_array_type("column", Column, derive=derive)
    ops = {
        name: co.custom_op(
            f"kinds_test::{name}",
            lambda x: Column([1.0]),
            mutates_args=(),
            schema="(Array x) -> Array",
        )
        for name in ("plain", "derived", "own")
    }
    ops["own"].register_kernel("column", lambda x: Column([2.0]))
    x = Column([0.0])
    assert [op(x).values for op in ops.values()] == [[1.0], [-1.0], [2.0]]
    assert [op(x).values for op in ops.values()] == [[1.0], [-1.0], [2.0]]
    assert asked == ["plain", "derived"]
    assert "'x' is an array of the kind 'column', which derives it" in str(
        ops["derived"].explain(x)
    )
    assert not co.array_kind("column").is_lazy
    co.register_array_type("column", Column, lazy=True)
    assert co.array_kind("column").is_lazy


def test_derive_must_be_a_function() -> None:
    """The error says what to pass."""
    with pytest.raises(co.RegistrationError) as caught:
        co.register_array_type("column", Column, derive="no")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "register_array_type: derive='no' is not a function\n"
        "  do: pass a function of an operator: derive=convert"
    )


def test_other_threads_register_classes_meanwhile() -> None:
    """By paths, which every class that was never seen before is compared with."""
    with beside(lambda i: co.register_array_type(f"kind{i}", f"module{i}.Array")):
        found = {is_array_class(type(f"Class{i}", (), {})) for i in range(300)}
    assert found == {False}
