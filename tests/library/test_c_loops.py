"""Ufuncs of C functions by their addresses, as kernels and as rows of compiled programs."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.testing import opcheck

SCHEMA = "(Array x, Array y) -> Array"
LOOP = ctypes.CFUNCTYPE(None, *[ctypes.POINTER(ctypes.c_ssize_t)] * 4)


def loop_of(item: Any, compute: Any) -> Any:
    """Return a C function that computes an item of the result from items of the inputs."""

    def loop(args: Any, dims: Any, steps: Any, data: Any) -> None:
        assert not data
        count = compute.__code__.co_argcount
        for i in range(dims[0]):
            places = [args[k] + i * steps[k] for k in range(count + 1)]
            values = [item.from_address(place).value for place in places[:-1]]
            item.from_address(places[-1]).value = compute(*values)

    return LOOP(loop)


def blend(x: Any, y: Any) -> Any:
    return 0.25 * x + 0.75 * y


@pytest.fixture(scope="module")
def blended() -> np.ufunc:
    """Return a ufunc of two loops."""
    loops = {
        "ff->f": loop_of(ctypes.c_float, blend),
        "dd->d": loop_of(ctypes.c_double, blend),
    }
    return co.ufunc_from_loops("blended", loops)


def test_it_is_a_ufunc(blended: np.ufunc) -> None:
    """It broadcasts, casts and reduces as NumPy's ufuncs do."""
    x, y = np.arange(6.0).reshape(2, 3), np.array([1, 2, 3])
    np.testing.assert_array_equal(blended(x, y), 0.25 * x + 0.75 * y)
    assert blended(x.astype("f4"), x.astype("f4")).dtype == np.float32
    assert blended.types == ["ff->f", "dd->d"]
    assert blended(x.T, x.T).flags.f_contiguous


def test_kernel_of_an_operator(blended: np.ufunc) -> None:
    """An operator with this kernel passes the checks, and is a row when it is compiled."""
    op = co.custom_op("c_loops::blended", blended, mutates_args=(), schema=SCHEMA)
    op.register_fake(lambda x, y: np.add(x, y))
    x, y = np.random.default_rng(0).normal(size=(2, 3, 4))
    opcheck(op, (x, y), test_utils="test_layouts")

    def f(x: Any, y: Any) -> Any:
        return np.exp(op(x + 1.0, y)) * op(y, x)

    compiled = co.compile(f, backend="native")
    for a, b in ((x, y), (x.T, y.T), (x[::-1], y), (x, y[:1])):
        expected, found = f(a, b), compiled(a, b)
        assert found.tobytes() == expected.tobytes()
        assert found.strides == expected.strides
    assert "blended" not in str(compiled.explain())
    number = compiled(x[0, 0], y[0, 0])
    assert type(number) is type(f(x[0, 0], y[0, 0]))
    assert number == f(x[0, 0], y[0, 0])


def test_a_name_of_numpy_means_nothing() -> None:
    """A ufunc that has the name of one of NumPy's is not taken for it."""
    loops = {"dd->d": loop_of(ctypes.c_double, blend)}
    add = co.ufunc_from_loops("add", loops)

    op = co.custom_op("c_loops::add", add, mutates_args=(), schema=SCHEMA)
    op.register_fake(lambda x, y: np.add(x, y))
    x = np.arange(4.0)
    for exact in (True, False):
        compiled = co.compile(
            lambda x: op(x, x + 1.0) * 2.0, backend="native", exact=exact
        )
        np.testing.assert_array_equal(compiled(x), 2.0 * blend(x, x + 1.0))


def test_warnings_of_a_loop() -> None:
    """A loop that raises a floating-point flag warns by the name of the ufunc."""
    loops = {"d->d": loop_of(ctypes.c_double, lambda x: x * 1e200)}
    grown = co.ufunc_from_loops("grown", loops)
    assert grown(1.0) == 1e200
    op = co.custom_op(
        "c_loops::grown", grown, mutates_args=(), schema="(Array x) -> Array"
    )
    op.register_fake(lambda x: np.positive(x))
    compiled = co.compile(lambda x: op(x) + 1.0, backend="native")
    assert compiled(np.ones(3)).tolist() == [1e200 + 1.0] * 3
    with pytest.warns(RuntimeWarning, match="overflow encountered in grown"):
        compiled(np.full(3, 1e200))


def test_numba_cfunc() -> None:
    """An object with an address is taken, as numba's cfunc."""
    numba = pytest.importorskip("numba")
    types = numba.types
    whole = types.CPointer(types.intp)
    doubles = types.CPointer(types.CPointer(types.double))

    def loop(args: Any, dims: Any, steps: Any, data: Any) -> None:
        for i in range(dims[0]):
            args[1][i * (steps[1] // 8)] = 2.0 * args[0][i * (steps[0] // 8)]

    made = numba.cfunc(types.void(doubles, whole, whole, types.voidptr))(loop)
    double = co.ufunc_from_loops("double", {"d->d": made})
    assert double(np.arange(3.0)[::-1]).tolist() == [4.0, 2.0, 0.0]
    assert co.ufunc_from_loops("double", {"d->d": made.address})(2.0) == 4.0


def test_errors() -> None:
    """Loops that are not loops are refused with what to write."""
    loop = loop_of(ctypes.c_double, lambda x: x)
    for name, loops, text in (
        ("", {"d->d": loop}, "the name is ''"),
        ("f", {}, "is not a mapping of loops"),
        ("f", {"d": loop}, "'d' is not the types of a loop"),
        ("f", {"x->d": loop}, "'x->d' is not the types of a loop"),
        ("f", {"d->d": loop, "dd->d": loop}, "other numbers of operands"),
        ("f", {"d->d": "loop"}, "'loop' is not the address of a C function"),
        ("f", {"d->d": 0}, "0 is not the address of a C function"),
    ):
        given: Any = loops
        with pytest.raises(co.ArgumentError, match=text):
            co.ufunc_from_loops(name, given)
