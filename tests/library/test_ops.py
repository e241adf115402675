"""The namespace `ops`: packets, overloads, and errors for unknown names."""
# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0])


@pytest.fixture
def lib() -> Iterator[co.Library]:
    """Open a library with overloads, and close it."""
    with co.Library("opstest", "DEF") as made:
        made.define("scale.int(Array x, int k) -> Array")
        made.define("scale.float(Array x, float k) -> Array")
        made.define("scale.list(Array[] x, float k) -> Array")
        made.define("scale.named(Array x, *, float by) -> Array")
        made.impl("scale.int", lambda x, k: x * k, "CPU")
        made.impl("scale.float", lambda x, k: x * k + 100, "CPU")
        made.impl("scale.list", lambda x, k: x[0] * k + 200, "CPU")
        made.impl("scale.named", lambda x, by: x * by + 300, "CPU")
        made.define("single(Array x) -> Array")
        made.impl("single", lambda x: x + 1, "CPU")
        yield made


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((X, 3), {}, X * 3),
        ((X, 3.0), {}, X * 3 + 100),
        ((X, np.float64(3.0)), {}, X * 3 + 100),
        ((X,), {"k": 3}, X * 3),
        ((X,), {"k": 3.5}, X * 3.5 + 100),
        (([X, X], 3.0), {}, X * 3 + 200),
        (([X, X], 3), {}, X * 3 + 200),
        ((X,), {"by": 3.0}, X * 3 + 300),
        ((X,), {"by": 3}, X * 3 + 300),
    ],
)
def test_arguments_choose_the_overload(
    lib: co.Library, args: Any, kwargs: Any, expected: Any
) -> None:
    """An overload that fits without conversion is preferred."""
    np.testing.assert_array_equal(co.ops.opstest.scale(*args, **kwargs), expected)


def test_the_order_of_definition_breaks_ties(lib: co.Library) -> None:
    """If two overloads fit equally well, the one defined first is used."""
    lib.define("tie.b(Array x) -> Array")
    lib.define("tie.a(Array y) -> Array")
    assert co.ops.opstest.tie.resolve(X).overload == "b"
    assert co.ops.opstest.tie.resolve(y=X).overload == "a"


def test_an_exact_fit_comes_before_a_conversion(lib: co.Library) -> None:
    """An int uses the overload for ints even if the one for floats is defined first."""
    lib.define("exact.float(Array x, float k) -> Array")
    lib.define("exact.int(Array x, int k) -> Array")
    assert co.ops.opstest.exact.resolve(X, 3).overload == "int"
    assert co.ops.opstest.exact.resolve(X, k=3).overload == "int"
    assert co.ops.opstest.exact.resolve(X, np.float32(3)).overload == "float"


def test_tracers_choose_as_arrays_do(lib: co.Library) -> None:
    """A traced value fits an array parameter."""
    seen = co.vmap(lambda x: co.ops.opstest.scale.resolve(x, 3).overload and x)(X)
    np.testing.assert_array_equal(seen, X)


def test_resolving_runs_nothing(lib: co.Library) -> None:
    """`resolve` does not call a kernel."""
    lib.define("boom.a(Array x) -> Array")
    lib.define("boom.b(Array x, int k) -> Array")
    assert co.ops.opstest.boom.resolve(X).overload == "a"


def test_an_overload_is_an_attribute(lib: co.Library) -> None:
    """Each overload is an operator; the one without a name is `default`."""
    packet = co.ops.opstest.scale
    assert packet.int.qualname == "opstest::scale.int"
    assert (packet.int.name, packet.int.overload) == ("scale", "int")
    assert co.ops.opstest.single.default.qualname == "opstest::single"
    assert packet.overloads() == ["int", "float", "list", "named"]


def test_custom_op_makes_overloads(lib: co.Library) -> None:
    """An operator made by `custom_op` is in `ops`, with its overload."""
    name = "opstest_custom::f"
    plain = co.custom_op(
        name, lambda x: x, mutates_args=(), schema="(Array x) -> Array"
    )
    other = co.custom_op(
        f"{name}.pair",
        lambda x, y: x + y,
        mutates_args=(),
        schema="(Array x, Array y) -> Array",
    )
    packet = co.ops.opstest_custom.f
    assert packet.default is plain
    assert packet.pair is other
    assert packet.resolve(X, X) is other


def test_dir_lists_all_that_is_defined(lib: co.Library) -> None:
    """`dir` lists names before their first use, and not after they are closed."""
    assert "opstest" in dir(co.ops)
    assert dir(co.ops.opstest) == ["scale", "single"]
    assert {"int", "float", "list", "named"} <= set(dir(co.ops.opstest.scale))
    lib.close()
    assert "opstest" not in dir(co.ops)


def test_all_operators_of_numpy_are_there() -> None:
    """The namespace `np` has all operators of the NumPy layer."""
    assert {"sin", "matmul", "sum"} <= set(dir(co.ops.np))
    np.testing.assert_array_equal(co.ops.np.matmul(np.eye(2), X), X)


def test_a_packet_is_equal_and_pickled_by_name(lib: co.Library) -> None:
    """Packets of the same name are equal."""
    packet = co.ops.opstest.scale
    assert packet == co.ops.opstest.scale
    assert packet != co.ops.opstest.single
    assert packet != "opstest::scale"
    assert len({packet, co.ops.opstest.scale}) == 1
    assert pickle.loads(pickle.dumps(packet)) == packet


def test_packets_show_themselves(lib: co.Library) -> None:
    """The repr of a namespace is its path; that of a packet lists overloads."""
    assert repr(co.ops) == "ops"
    assert repr(co.ops.opstest) == "ops.opstest"
    shown = "<OperatorPacket opstest::scale: int, float, list, named>"
    assert repr(co.ops.opstest.scale) == shown


def test_a_packet_registers_by_the_free_functions(lib: co.Library) -> None:
    """The register functions accept a packet and use its default overload."""
    co.register_kernel(co.ops.opstest.single, "cpu", lambda x: x + 9)
    np.testing.assert_array_equal(co.ops.opstest.single(X), X + 9)


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (
            lambda: co.ops.opstset,
            "ops.opstset: there is no such namespace (did you mean 'opstest'?)\n"
            "  do: import the module that defines it first",
        ),
        (
            lambda: co.ops.opstest.singel,
            "ops.opstest.singel: there is no such operator (did you mean 'single'?)\n"
            "  do: import the module that defines it first",
        ),
        (
            lambda: co.ops.opstest.zzz,
            "ops.opstest.zzz: there is no such operator\n"
            "  there are 'scale', 'single'\n"
            "  do: import the module that defines it first",
        ),
        (
            lambda: co.ops.opstest.scale.flaot,
            "ops.opstest.scale.flaot: there is no such overload (did you mean 'float'?)"
            "\n  do: import the module that defines it first",
        ),
        (
            lambda: co.ops.opstest.scale.default,
            "ops.opstest.scale.default: there is no such overload\n"
            "  there are 'float', 'int', 'list', 'named'\n"
            "  do: import the module that defines it first",
        ),
    ],
)
def test_message_of_a_name_that_is_not_there(
    lib: co.Library, look: Any, text: str
) -> None:
    """An unknown name raises an AttributeError that suggests similar ones."""
    with pytest.raises(AttributeError) as caught:
        look()
    assert isinstance(caught.value, co.UnknownNameError)
    assert str(caught.value) == text


def test_message_of_no_fitting_overload(lib: co.Library) -> None:
    """If no overload fits, the error says why for each one."""
    with pytest.raises(co.ArgumentError) as caught:
        co.ops.opstest.scale(X, "a")
    assert str(caught.value) == (
        "no overload of opstest::scale fits (f64[2], 'a')\n"
        "  opstest::scale.int(Array x, int k) -> Array: argument 'k' expects int, got"
        " str 'a'\n"
        "  opstest::scale.float(Array x, float k) -> Array: argument 'k' expects float,"
        " got str 'a'\n"
        "  opstest::scale.list(Array[] x, float k) -> Array: argument 'x' expects"
        " Array[], a list, got ndarray of shape (2,)\n"
        "  opstest::scale.named(Array x, *, float by) -> Array:"
        " scale() takes 1 positional argument but 2 were given\n"
        "  do: change the arguments, or call one: ops.opstest.scale.int(...)"
    )


def test_message_of_arrays_that_are_none(lib: co.Library) -> None:
    """The error shows values that are not arrays."""
    with pytest.raises(co.ArgumentError) as caught:
        co.ops.opstest.scale("x", k=3)
    assert str(caught.value).splitlines()[:2] == [
        "no overload of opstest::scale fits ('x', k=3)",
        "  opstest::scale.int(Array x, int k) -> Array: argument 'x' expects Array, got"
        " str 'x'",
    ]


def test_a_packet_of_a_closed_library_says_so(lib: co.Library) -> None:
    """A kept packet raises after its library closes."""
    packet = co.ops.opstest.scale
    lib.close()
    for look in (lambda: packet(X, 1), lambda: packet.int):
        with pytest.raises(co.UnknownNameError) as caught:
            look()
        assert str(caught.value) == (
            "ops.opstest.scale: there is no such operator\n"
            "  do: import the module that defines it first"
        )


def test_a_packet_cannot_be_written(lib: co.Library) -> None:
    """An overload is defined, not assigned."""
    with pytest.raises(co.ArgumentError) as caught:
        co.ops.opstest.scale.third = X
    assert str(caught.value) == (
        "opstest::scale.third cannot be set\n"
        '  do: define it: custom_op("opstest::scale.third", ...)'
    )
