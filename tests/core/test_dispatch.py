"""Which kernel runs: by the kind of the arrays, the switches, and the open modes."""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterable
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core import dispatch as dispatching

_numbers = itertools.count()
X = np.arange(6.0).reshape(2, 3)


class Column:
    """An array of another kind."""

    def __init__(self, shape: tuple[int, ...] = (3,), dtype: Any = float) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)


class Cell:
    """An array of another kind."""

    shape = (3,)
    dtype = np.dtype(float)


co.register_array_type("dispatch_column", Column)
co.register_array_type("dispatch_cell", Cell)


def define(
    schema: str,
    fn: Callable[..., Any],
    kinds: str | Iterable[str] | None = None,
    **kwargs: Any,
) -> co.Operator[..., Any]:
    """Make an operator of a new name."""
    name = f"dispatch::op{next(_numbers)}"
    return co.custom_op(
        name, fn, mutates_args=(), schema=schema, device_types=kinds, **kwargs
    )


def says(text: str) -> Callable[..., str]:
    """A kernel of one array that returns its name."""
    return lambda x: text


NAME = "(Array x) -> str"


# ---- kernels and kinds ----


def test_default_kernel_serves_every_kind() -> None:
    """A kernel for None runs for all kinds of array."""
    op = define(NAME, says("default"))
    assert [op(x) for x in (X, Column(), Cell())] == ["default"] * 3


def test_kernel_of_a_kind_beats_the_default() -> None:
    """A kind's own kernel runs for it, the default one for the others."""
    op = define(NAME, says("default")).register_kernel("dispatch_column", says("own"))
    assert [op(x) for x in (X, Column(), Cell())] == ["default", "own", "default"]


def test_several_kinds_share_a_kernel() -> None:
    """Several kinds may be named at once, in any iterable."""
    op = define(NAME, says("first"), (k for k in ("cpu", "dispatch_column")))
    assert [op(X), op(Column())] == ["first", "first"]
    op.register_kernel(["dispatch_cell", "cpu"], says("second"))
    assert [op(X), op(Column()), op(Cell())] == ["second", "first", "second"]


def test_kinds_of_a_decorator_may_come_from_a_generator() -> None:
    """A generator of kinds is read once, also by the decorator form."""
    op = define(NAME, says("default"))

    @op.register_kernel(kind for kind in ("cpu", "dispatch_cell"))
    def own(x: Any) -> str:
        return "own"

    assert [op(X), op(Column()), op(Cell())] == ["own", "default", "own"]
    assert own(None) == "own"


def test_kind_without_kernel() -> None:
    """An array of a kind without a kernel is an error that names both."""
    op = define(NAME, says("cpu"), "cpu")
    with pytest.raises(co.MissingRuleError) as caught:
        op(Column())
    assert "no kernel for 'dispatch_column'; it has 'cpu'" in str(caught.value)
    assert 'register_kernel("dispatch_column")' in caught.value.do
    assert isinstance(caught.value, NotImplementedError)


def test_later_kernel_wins() -> None:
    """Of two kernels for one kind the later one runs."""
    op = define(NAME, says("first"), "cpu")
    op.register_kernel("cpu", says("second")).register_kernel("cpu", says("third"))
    assert op(X) == "third"


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_later_kernel_wins_at_once(calls: int) -> None:
    """A kernel registered after calls, on the fast path or before it, is the next."""
    op = define(NAME, says("first"))
    assert [op(X) for _ in range(calls)] == ["first"] * calls
    op.register_kernel("cpu", says("second"))
    assert [op(X), op(X), op.call(X), op.dispatch(X)] == ["second"] * 4


def test_op_call_taken_before_sees_the_later_kernel() -> None:
    """The plain function of an operator follows its table."""
    op = define(NAME, says("first"))
    op(X)
    call = op.call
    op.register_kernel("cpu", says("second"))
    assert call(X) == "second"


def test_decorator_returns_the_function() -> None:
    """register_kernel without a function is a decorator that leaves it as it is."""
    op = define(NAME, says("default"))
    kernel = says("own")
    assert op.register_kernel("cpu")(kernel) is kernel
    assert op(X) == "own"


def test_chain_returns_the_operator() -> None:
    """register_kernel with a function returns the operator."""
    op = define(NAME, says("default"))
    assert op.register_kernel("cpu", says("own")) is op


def test_free_function_registers_by_name() -> None:
    """register_kernel takes the name of an operator as well."""
    op = define(NAME, says("default"))
    co.register_kernel(op.qualname, "cpu", says("own"))
    assert op(X) == "own"


@pytest.mark.parametrize(
    "kinds",
    [3, [], (), ["cpu", 3], "gpu", "cuda:0", "fake", "default", "", ["cpu", ""]],
)
def test_no_kind_of_array(kinds: Any) -> None:
    """Unknown kinds of array are refused, and nothing is registered."""
    op = define(NAME, says("default"))
    with pytest.raises(co.RegistrationError):
        op.register_kernel(kinds, says("own"))
    assert op(X) == "default"


def test_kernel_of_no_array_is_cpu() -> None:
    """A call without any array runs the cpu kernel."""
    op = define("(Array? x=None) -> str", says("default"))
    op.register_kernel("cpu", says("cpu"))
    assert [op(), op(None), op(X), op(Column())] == ["cpu", "cpu", "cpu", "default"]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_kind_comes_from_any_array(position: int) -> None:
    """Optional arrays, lists and keyword-only arrays decide the kind too."""
    op = define(
        "(Array? a=None, Array[] b=[], *, Array? c=None) -> str", lambda a, b, c: "cpu"
    )
    op.register_kernel("dispatch_cell", lambda a, b, c: "cell")
    args = [(Cell(), [], None), (None, [Cell()], None), (None, [], Cell())][position]
    assert op(args[0], args[1], c=args[2]) == "cell"


# ---- mixtures ----

MIXED = "(Array x, Array? y=None, Array[]? z=None) -> str"


@pytest.mark.parametrize(
    "args",
    [(X, Column()), (Column(), Cell()), (X, None, [X, Cell()]), (Cell(), X, [X])],
)
def test_mixed_kinds(args: tuple[Any, ...]) -> None:
    """Arrays of two kinds in one call are an error that names each array's place."""
    op = define(MIXED, lambda x, y, z: "ran")
    with pytest.raises(co.DeviceMismatchError, match="different kinds: 'x' is on"):
        op(*args)
    with pytest.raises(TypeError):
        op.dispatch(*args)


@pytest.mark.parametrize("scalar", [np.float64(2.0), np.int8(3), np.bool_(1)])
def test_numpy_scalar_stands_beside_any_kind(scalar: Any) -> None:
    """A NumPy scalar can be mixed with arrays of every kind."""
    op = define("(Array x, Array y) -> str", lambda x, y: "cpu")
    op.register_kernel("dispatch_cell", lambda x, y: "cell")
    assert op(Cell(), scalar) == "cell"
    assert op(scalar, Cell()) == "cell"
    assert op(scalar, scalar) == "cpu"


def test_numpy_scalar_is_an_array_to_the_kernel() -> None:
    """A kernel gets a NumPy scalar as an array without axes."""
    op = define("(Array x) -> str", lambda x: f"{type(x).__name__} {x.shape} {x.dtype}")
    assert op(np.float32(1.0)) == op(np.float32(1.0)) == "ndarray () float32"


# ---- subclasses ----


class Named(np.ndarray):
    """An array with its own class."""


def subclasses(folder: Path) -> list[np.ndarray]:
    """Arrays of four subclasses of ndarray."""
    return [
        np.zeros(3).view(Named),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.memmap(folder / "a", dtype=float, mode="w+", shape=(3,)),
        np.rec.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
    ]


@pytest.mark.parametrize("index", range(4))
def test_subclass_reaches_the_kernel_as_itself(tmp_path: Path, index: int) -> None:
    """A subclass of ndarray is a cpu array; its kernel gets that class, on every call."""
    op = define(NAME, lambda x: type(x).__name__)
    x = subclasses(tmp_path)[index]
    name = type(x).__name__
    assert [op(x), op(x), op(X), op(x)] == [name, name, "ndarray", name]


def test_masked_array_keeps_its_mask() -> None:
    """The kernel computes with the mask, on the first call and later ones."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    x = np.ma.masked_array([1.0, 2.0], [True, False])
    for _ in range(2):
        out = op(x)
        assert (out.mask.tolist(), out.filled(-1.0).tolist()) == (
            [True, False],
            [-1, 4],
        )


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_matrix_keeps_its_product() -> None:
    """np.matrix stays a matrix: its * is a product of matrices."""
    op = define("(Array x) -> Array", lambda x: x * x)
    x = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    assert op(x).tolist() == op(x).tolist() == [[7.0, 10.0], [15.0, 22.0]]


def test_memory_map_is_written(tmp_path: Path) -> None:
    """An operator that writes its argument writes a memory map's file."""
    op = co.custom_op(
        "dispatch::fill",
        lambda x, k: x.fill(k),
        mutates_args=("x",),
        schema="(Array(a!) x, float k) -> ()",
    )
    x = np.memmap(tmp_path / "a", dtype=float, mode="w+", shape=(3,))
    for value in (5.0, 6.0):
        op(x, value)
        x.flush()
        assert np.fromfile(tmp_path / "a").tolist() == [value] * 3


def test_subclass_of_a_registered_class_is_of_its_kind() -> None:
    """Kinds are inherited."""
    op = define(NAME, says("default")).register_kernel("dispatch_cell", says("cell"))
    assert op(type("Inner", (Cell,), {})()) == "cell"


# ---- kinds by path ----


def test_class_given_by_path_is_known_once_imported() -> None:
    """A kind named "module.Class" holds as soon as somebody imports that module."""
    co.register_array_type("dispatch_late", "dispatch_late_module.Table")
    op = define(NAME, says("default")).register_kernel("dispatch_late", says("late"))

    class Table(Cell.__base__):  # type: ignore[misc]
        shape = (1,)
        dtype = np.dtype(float)

    table = Table()
    with pytest.raises(co.ArgumentError):
        op(table)
    module = types.ModuleType("dispatch_late_module")
    module.Table = Table  # type: ignore[attr-defined]
    sys.modules["dispatch_late_module"] = module
    try:
        assert [op(table), op(X)] == ["late", "default"]
        assert op.dispatch(table) == "late"
    finally:
        del sys.modules["dispatch_late_module"]


def test_registering_a_path_imports_nothing() -> None:
    """The path of a missing module is accepted: the module is never imported."""
    co.register_array_type("dispatch_absent", "dispatch_no_such_module.Table")
    op = define(NAME, says("default"))
    assert op.register_kernel("dispatch_absent", says("absent"))(X) == "default"
    assert "dispatch_no_such_module" not in sys.modules


def test_class_of_two_kinds() -> None:
    """A class is of one kind: the second one is refused and names the first."""
    with pytest.raises(co.RegistrationError, match="'dispatch_cell'"):
        co.register_array_type("dispatch_other", Cell)


class DeviceArray:
    """In place of cupy.ndarray."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype
        self.device = types.SimpleNamespace(id=0)


@pytest.fixture
def device_array(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Makes arrays of the class that sys.modules["cupy"] has while the test runs."""
    module = types.ModuleType("cupy")
    cls = type("ndarray", (DeviceArray,), {})
    module.ndarray = cls  # type: ignore[attr-defined]
    module.full = lambda *args: cls(np.full(*args))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    return cls


def test_cuda_kernel_by_class(device_array: Callable[[Any], Any]) -> None:
    """An instance of cupy.ndarray runs the cuda kernel."""
    op = define(NAME, says("cpu"), "cpu").register_kernel("cuda", says("cuda"))
    assert [op(device_array([1.0])), op(X)] == ["cuda", "cpu"]


def test_cuda_and_cpu_arrays_do_not_mix(device_array: Callable[[Any], Any]) -> None:
    """NumPy and CuPy arrays in one call are one error that says which is where."""
    op = define("(Array x, Array y) -> str", lambda x, y: "ran")
    with pytest.raises(co.DeviceMismatchError) as caught:
        op(X, device_array([1.0]))
    assert caught.value.what.endswith("'x' is on cpu, 'y' is on cuda:0")
    assert "cupy.asarray(x)" in caught.value.do


def test_numpy_scalar_beside_a_cuda_array(device_array: Callable[[Any], Any]) -> None:
    """A NumPy scalar goes with a CuPy array: the kernel gets two arrays of CuPy."""
    op = define("(Array x, Array y) -> str", lambda x, y: "cpu")
    op.register_kernel("cuda", lambda x, y: f"{type(y) is type(x)} {y.dtype}")
    assert op(device_array([1.0]), np.float32(1.0)) == "True float32"


def test_cuda_results_must_be_cuda(device_array: Callable[[Any], Any]) -> None:
    """A cuda kernel that returns a NumPy array breaks its contract."""
    op = define("(Array x) -> Array", np.negative, "cpu")
    op.register_kernel("cuda", lambda x: np.zeros(1))
    with pytest.raises(
        co.ContractError, match="of the kind 'cpu', must be of the kind"
    ):
        op(device_array([1.0]))


def test_fake_of_a_cuda_array(device_array: Callable[[Any], Any]) -> None:
    """The fake of a CuPy array lives on its device."""
    fake = co.fake_like(device_array(X))
    assert (fake.shape, fake.dtype, fake.device) == ((2, 3), X.dtype, "cuda:0")


# ---- factories ----

FACTORY = '(int n, device device="cpu") -> str'


def test_factory_runs_by_its_device() -> None:
    """An operator without arrays picks its kernel by the argument `device`."""
    op = define(FACTORY, lambda n, device: f"cpu {device}", "cpu")
    op.register_kernel("cuda", lambda n, device: f"cuda {device}")
    assert op(3) == "cpu cpu"
    assert op(3, "cuda:1") == "cuda cuda:1"
    assert op(3, device="cuda") == op.dispatch(3, device="cuda") == "cuda cuda"
    assert [op(3, "cpu") for _ in range(3)] == ["cpu cpu"] * 3


def test_factory_without_a_kernel_for_the_device() -> None:
    """A device without a kernel is an error that names its kind."""
    op = define(FACTORY, lambda n, device: "cpu", "cpu")
    with pytest.raises(co.MissingRuleError, match="no kernel for 'cuda'"):
        op(3, "cuda:0")


def test_factory_of_an_unknown_device() -> None:
    """An unknown device is an error with the near names."""
    op = define(FACTORY, lambda n, device: "cpu", "cpu")
    with pytest.raises(co.ArgumentError, match=r"'cud'.*did you mean 'cuda'"):
        op(3, "cud")


def test_factory_with_optional_device() -> None:
    """No device is the cpu."""
    op = define("(int n, device? device=None) -> str", lambda n, device: "cpu", "cpu")
    assert [op(1), op(1, None), op(1, "cpu")] == ["cpu"] * 3


def test_factory_without_device_types_needs_no_device() -> None:
    """An operator of no array and no device runs its default kernel."""
    op = define("(int n) -> Array", lambda n: np.full(n, 2.0))
    assert op(2).tolist() == op(n=2).tolist() == [2.0, 2.0]


def test_device_of_an_operator_with_arrays_chooses_nothing() -> None:
    """If there is an array, only the array decides the kind."""
    op = define(
        '(Array x, device device="cpu") -> str', lambda x, device: device, "cpu"
    )
    assert op(X, "cuda") == "cuda"


# ---- set_kernel_enabled ----


def switched() -> co.Operator[..., Any]:
    """An operator with a cpu kernel and another function it was made of."""
    return define(NAME, says("origin")).register_kernel("cpu", says("cpu"))


def test_disabled_kernel_gives_way_to_the_first_function() -> None:
    """A call of set_kernel_enabled holds from then on."""
    op = switched()
    assert op(X) == op(X) == "cpu"
    op.set_kernel_enabled("cpu", False)
    assert op(X) == op(X) == "origin"
    op.set_kernel_enabled("cpu")
    assert op(X) == op(X) == "cpu"


def test_disabled_for_a_block() -> None:
    """As a context manager it holds for the block, also when that fails."""
    op = switched()
    with op.set_kernel_enabled("cpu", False):
        assert op(X) == "origin"
    assert op(X) == "cpu"
    with pytest.raises(ZeroDivisionError), op.set_kernel_enabled("cpu", False):
        raise ZeroDivisionError
    assert op(X) == "cpu"


def test_switches_nest() -> None:
    """Each block restores what was before it."""
    op = switched()
    with op.set_kernel_enabled("cpu", False):
        with op.set_kernel_enabled("cpu", True):
            assert op(X) == "cpu"
        assert op(X) == "origin"
    assert op(X) == "cpu"


def test_switches_of_two_kinds_are_independent() -> None:
    """A block of one kind leaves what was done to another kind inside it."""
    op = switched().register_kernel("dispatch_cell", says("cell"))
    with op.set_kernel_enabled("cpu", False):
        op.set_kernel_enabled("dispatch_cell", False)
    assert [op(X), op(Cell())] == ["cpu", "origin"]


def test_kernel_registered_while_disabled_stays_disabled() -> None:
    """A later kernel does not turn its kind on."""
    op = switched()
    op.set_kernel_enabled("cpu", False)
    op.register_kernel("cpu", says("later"))
    assert op(X) == "origin"
    op.set_kernel_enabled("cpu")
    assert op(X) == "later"


@pytest.mark.parametrize(
    ("kind", "enabled", "said"),
    [
        ("cpu", True, "already enabled"),
        ("dispatch_cell", False, "not registered"),
        ("dispatch_cell", True, "not registered"),
    ],
)
def test_switch_without_effect_warns(kind: str, enabled: bool, said: str) -> None:
    """Switching to the present state gives a warning."""
    op = switched()
    with pytest.warns(co.CustomOpWarning, match=f"{op.qualname} is {said}"):
        op.set_kernel_enabled(kind, enabled)
    assert op(X) == "cpu"


def test_disabling_twice_warns() -> None:
    """The second time is said to be without effect; the first says nothing."""
    op = switched()
    op.set_kernel_enabled("cpu", False)
    with pytest.warns(co.CustomOpWarning, match="already disabled"):
        op.set_kernel_enabled("cpu", False)


def test_switch_of_an_unknown_kind() -> None:
    """An unknown kind is an error."""
    with pytest.raises(co.RegistrationError, match="'cuda'"):
        switched().set_kernel_enabled("cudda", False)


# ---- modes and interpreters ----


class Seen(co.Mode):
    """Notes the operators that it sees."""

    kind = co.RuleKind("seen")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def process(self, op: Any, args: Any) -> Any:
        self.names.append(op.qualname)
        return op.invoke(args)


def test_mode_sees_calls_on_constants() -> None:
    """A mode sees every operator while it is open, also on the fast path."""
    op = define(NAME, says("cpu"))
    op(X)
    with Seen() as mode:
        assert op(X) == "cpu"
    op(X)
    assert mode.names == [op.qualname]


def test_mode_sees_operators_without_arrays() -> None:
    """Also those with no array at all."""
    op = define("(int n) -> int", lambda n: n + 1)
    op(1)
    with Seen() as mode:
        assert op(1) == 2
    assert mode.names == [op.qualname]


def test_modes_nest_inside_out() -> None:
    """The inner mode handles a call, and what it calls goes to the outer one."""
    op = define(NAME, says("cpu"))
    with Seen() as outer, Seen() as inner:
        op(X)
    assert inner.level > outer.level
    assert (inner.names, outer.names) == ([op.qualname], [op.qualname])


def test_mode_ends_when_its_block_fails() -> None:
    """An exception leaves no mode open."""
    op = define(NAME, says("cpu"))
    op(X)
    with pytest.raises(KeyError), Seen() as mode:
        raise KeyError
    op(X)
    assert mode.names == []
    assert not mode.alive


def test_failing_call_leaves_the_mode_current() -> None:
    """A mode goes on after a call that fails."""

    def fail(x: Any) -> str:
        raise KeyError(1)

    bad, good = define(NAME, fail), define(NAME, says("good"))
    with Seen() as mode:
        with pytest.raises(KeyError):
            bad(X)
        good(X)
    assert mode.names == [bad.qualname, good.qualname]


def test_mode_holds_in_its_own_thread() -> None:
    """A mode of one thread does not see what another calls."""
    op = define(NAME, says("cpu"))
    with Seen() as mode:
        other = threading.Thread(target=op, args=(X,))
        other.start()
        other.join()
    assert mode.names == []


def test_mode_in_a_copied_context() -> None:
    """A context copied inside a mode and run after it has ended raises no wrong result."""
    op = define(NAME, says("cpu"))
    with Seen():
        context = copy_context()
    assert context.run(op, X) == "cpu"
    # Nor does another mode, open elsewhere, bring the ended one back.
    with co.enable_grad():
        assert context.run(op, X) == "cpu"


def test_mode_opens_once() -> None:
    """A mode that has been opened is refused the second time."""
    mode = Seen()
    with mode, pytest.raises(co.RegistrationError, match="second time"), mode:
        pass
    with pytest.raises(co.RegistrationError, match="second time"), mode:
        pass
    op = define(NAME, says("cpu"))
    op(X)
    op(X)
    assert mode.names == []


def test_kernel_registered_while_a_mode_is_open() -> None:
    """It runs inside the mode and after it."""
    op = define(NAME, says("first"))
    op(X)
    with Seen() as mode:
        op.register_kernel("cpu", says("second"))
        assert op(X) == "second"
    assert op(X) == op(X) == "second"
    assert mode.names == [op.qualname]


class Boxes(co.Interpreter):
    """Doubles what passes through it."""

    kind = co.RuleKind("boxes")

    def process(self, op: Any, args: Any) -> Any:
        return self.wrap(op.invoke(self.unwrap(args)))


def test_leaked_tracer() -> None:
    """A tracer that outlives its interpreter is an error that names both."""
    with Boxes() as boxes:
        tracer = boxes.wrap(X)
    with pytest.raises(
        co.LeakedTracerError, match=r"np::sin gets a value of boxes, which has"
    ) as caught:
        np.sin(tracer)
    assert caught.value.op == "np::sin"


@pytest.mark.parametrize("shape", ["list", "optional", "keyword"])
def test_tracer_anywhere_picks_its_interpreter(shape: str) -> None:
    """A tracer in a list, an optional or a keyword argument is seen."""
    op = define(
        "(Array x, Array[] y=[], *, Array? z=None) -> Array",
        lambda x, y, z: x + sum(y) + (0.0 if z is None else z),
    )
    with Boxes() as boxes:
        t = boxes.wrap(X)
        calls = {
            "list": lambda: op(X, [X, t]),
            "optional": lambda: op(t),
            "keyword": lambda: op(X, z=t),
        }
        out = calls[shape]()
        assert type(out) is co.Tracer
        expected = {"list": 3 * X, "optional": X, "keyword": 2 * X}[shape]
        np.testing.assert_array_equal(out.below, expected)


def test_highest_level_wins() -> None:
    """Of two interpreters among the arguments the later one handles the call."""
    with Boxes() as first, Boxes() as second:
        out = np.add(first.wrap(X), second.wrap(X))
        assert out.interpreter is second
        assert out.below.interpreter is first
        np.testing.assert_array_equal(out.below.below, 2 * X)


def test_tracer_does_not_pickle_as_data() -> None:
    """Tracers refuse to become plain NumPy arrays on any way into NumPy."""
    with Boxes() as boxes:
        tracer = boxes.wrap(X)
        for refused in (
            np.asarray,
            np.array,
            lambda t: np.zeros((2, 3)) + np.array([t]),
        ):
            with pytest.raises(co.DataDependentError, match="stop_gradient"):
                refused(tracer)


def test_error_of_dispatch_pickles() -> None:
    """Errors cross processes with their text and fields."""
    op = define(NAME, says("cpu"), "cpu")
    with pytest.raises(co.MissingRuleError) as caught:
        op(Cell())
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.op, copied.kind) == (
        str(caught.value),
        op.qualname,
        "dispatch_cell",
    )


def test_registrations_during_calls_from_threads() -> None:
    """Calls in other threads see the old kernel or the new, never a half of either."""
    op = define("(Array x) -> int", lambda x: 0)
    seen: list[int] = []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            seen.append(op(X))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(1, 200):
        op.register_kernel("cpu", lambda x, i=i: i)
        assert op(X) == i
    stop.set()
    for thread in threads:
        thread.join()
    assert set(seen) <= set(range(200))
    assert op(X) == 199


@pytest.mark.parametrize("mode", [co.enable_grad, co.FakeMode])
def test_a_mode_of_another_thread_changes_no_rule(mode: Any) -> None:
    """Inside of vmap an untraced call takes its kernel, whatever modes others have open."""
    op = co.define(f"dispatch::op{next(_numbers)}", "(Array x) -> Array")
    said: list[str] = []
    op.register_kernel("cpu", lambda x: (said.append("kernel"), x * 2)[1])
    with co.Library("dispatch", "IMPL") as lib:
        lib.impl(op, lambda x: x * 2, "CompositeImplicitAutograd")
        stop, is_open = threading.Event(), threading.Event()

        def hold() -> None:
            with mode():
                is_open.set()
                stop.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        is_open.wait()
        co.vmap(lambda x: x + op(np.ones(3)))(X)
        stop.set()
        thread.join()
    assert said == ["kernel"]


# ---- a kernel that is registered while another one runs ----


@pytest.mark.parametrize("checks", ["first", "never"])
def test_a_kernel_registered_during_a_call_runs_in_the_next_one(
    checks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that has found the old kernel does not put it on the fast path."""
    co.config.checks = checks
    op = co.custom_op(
        f"dispatched::replaced_{checks}",
        lambda x: x * 1,
        mutates_args=(),
        schema="(Array x) -> Array",
        device_types="cpu",
    )
    find = dispatching.find_kernel

    def find_then_replace(table: Any, kind: str) -> Any:
        found = find(table, kind)
        monkeypatch.undo()
        op.register_kernel("cpu", lambda x: x * 2)
        return found

    monkeypatch.setattr(dispatching, "find_kernel", find_then_replace)
    assert [op(np.ones(1)).tolist() for _ in range(3)] == [[1.0], [2.0], [2.0]]


def test_a_fake_kernel_registered_during_a_fake_call_is_checked() -> None:
    """The shapes of a fake kernel are not proven by a call of the one before."""

    def wrong(x: Any) -> Any:
        return co.fake_like(x, shape=(7,))

    def replaces_itself(x: Any) -> Any:
        op.register_fake(wrong, override=True)
        return co.fake_like(x)

    op = co.custom_op(
        "dispatched::fake_replaced",
        lambda x: x * 1,
        mutates_args=(),
        schema="(float[n] x) -> float[n]",
    )
    op.register_fake(replaces_itself)
    assert op(co.FakeArray((3,))).shape == (3,)
    with pytest.raises(co.ContractError, match="7"):
        op(co.FakeArray((3,)))


def test_slow_path_takes_the_kernel_of_now() -> None:
    """What it keeps of earlier calls ends with every change of the table."""

    @co.custom_op("settled::f", mutates_args=())
    def f(x: np.ndarray) -> np.ndarray:
        return x + 1.0

    f.register_fake(lambda x: co.fake_like(x))
    x = np.zeros(2)
    for _ in range(3):
        assert f.dispatch(x).tolist() == [1.0, 1.0]
    assert f.dispatch(np.float64(1.0)).shape == ()
    assert f.dispatch(co.FakeArray((2,))).shape == (2,)
    f.register_kernel("cpu", lambda x: x + 2.0)
    for _ in range(3):
        assert f.dispatch(x).tolist() == [2.0, 2.0]
    with f.set_kernel_enabled("cpu", enabled=False):
        assert f.dispatch(x).tolist() == [1.0, 1.0]
    assert f.dispatch(x).tolist() == [2.0, 2.0]
    f.add("cpu", lambda x: x[:0].copy(), override=True)
    with pytest.raises(co.ContractError):  # it is proven anew, against the fake kernel
        f.dispatch(x)
