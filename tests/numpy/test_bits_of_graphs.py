"""Graphs and compiled functions have the bits of NumPy, where it takes several kernels.

The oracle is NumPy on plain arrays: class, dtype, strides and every bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import customop as co

_RNG = np.random.default_rng(7)
_X = _RNG.standard_normal((9, 9))
_LINE = _RNG.standard_normal(37)
_TIMES = np.linspace(0.0, 1.0, 9)
_ZEROS = np.array([-0.0, 0.0, 1.0, -0.0, 5.0])


def _added(ufunc: Any) -> Callable[[Any], Any]:
    def add(a: Any) -> Any:
        sums = np.zeros(4, a.dtype) + a[0]
        ufunc.at(sums, np.array([0, 1, 0, 0, 2]), a[:5])
        return sums

    return add


# Name -> function, its array.
_PROGRAMS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "clip": (lambda a: np.clip(a, 0.0, 1.0), _ZEROS),
    "clip at -0.0": (lambda a: np.clip(a, -0.0, 1.0), _ZEROS),
    "clip by arrays": (lambda a: np.clip(a, _X - 1, _X[0] + 1), _X[::-1]),
    "vander": (lambda a: np.vander(a, 6), _LINE),
    "vander increasing": (lambda a: np.vander(a, 5, increasing=True), _LINE),
    "polyfit": (lambda a: np.polyfit(_TIMES, a, 3), _X[0]),
    "polyfit with all": (lambda a: np.polyfit(_TIMES, a, 2, full=True), _X[0]),
    "covariances of a fit": (lambda a: np.polyfit(_TIMES, a, 2, cov=True), _X[0]),
    "residuals": (lambda a: np.linalg.lstsq(a[:, :3], a[:, 5:7])[1], _X),
    "poly of complex": (np.poly, _X[0] + 1j * _X[1]),
    "polydiv": (lambda a: np.polydiv(a, a[3:6]), _LINE),
    "dot backward": (lambda a: np.dot(a[::-1], a), _RNG.standard_normal(501)),
    "dot both backward": (lambda a: a[::-2].dot(a[::-2]), _RNG.standard_normal(501)),
    "dot of a matrix": (lambda a: np.dot(a[::-1, ::-1], a[0, ::-1]), _X),
    "cov": (np.cov, _RNG.standard_normal((5, 50))),
    "corrcoef": (np.corrcoef, _RNG.standard_normal((5, 50))),
    "histogram": (lambda a: np.histogram(a, 4), _LINE),
    "weights in bins by edges": (
        lambda a: np.histogram(a, [-2.0, 0.0, 0.5, 3.0], weights=np.cos(_LINE)),
        _LINE,
    ),
    "weights of long doubles": (
        lambda a: np.histogram(a, 3, weights=a / 3),
        _LINE.astype("g"),
    ),
    "histogram2d of a range": (
        lambda a: np.histogram2d(a, a[::-1], 3, [[np.longdouble(1) / 3, 2], [0, 1]]),
        _LINE,
    ),
    "pad by a long double": (
        lambda a: np.pad(a, 2, constant_values=np.longdouble(1) / 3),
        _LINE.astype("g"),
    ),
    "sum initial": (lambda a: np.sum(a, initial=3.3), _LINE),
    "sum where": (lambda a: np.sum(a, where=a > 0), _LINE),
    "sum both": (lambda a: np.sum(a, 1, where=a > 0, initial=0.1), _X.T),
    "prod where": (lambda a: np.prod(a, 0, where=a > 0, keepdims=True), _X),
    "max where": (lambda a: np.max(a, 0, where=a < 0, initial=-9.0), _X),
    "mean where": (lambda a: np.mean(a, where=a > 0), _LINE),
    "std where": (lambda a: np.std(a, axis=1, where=a > 0), _X),
    "mean of complex64": (np.mean, (_LINE + 1j * _LINE[::-1]).astype("c8")),
    "means of complex64": (lambda a: np.mean(a, 0), (_X + 1j * _X.T).astype("c8")),
    "cube of a matrix": (lambda a: np.linalg.matrix_power(a, 3), _X),
    "negative power": (lambda a: np.linalg.matrix_power(a, -3), _X),
    "norm": (np.linalg.norm, _X.T[::2]),
    "norm of complex": (np.linalg.norm, _X + 1j * _X.T),
    "norm kept": (lambda a: np.linalg.norm(a, axis=None, keepdims=True), _X.T),
    "Frobenius norm": (lambda a: np.linalg.norm(a, "fro"), _X[:, ::3]),
    "cond": (lambda a: np.linalg.cond(a, "fro"), _X),
    "cond inf": (lambda a: np.linalg.cond(a, np.inf), _X),
    "cond 1": (lambda a: np.linalg.cond(a, 1), _X),
    "gradient of a step": (lambda a: np.gradient(a, 0.3, axis=0), _X),
    "gradient by number": (lambda a: np.gradient(a, np.float64(0.3), edge_order=2), _X),
    "gradient edges": (lambda a: np.gradient(a, 2, edge_order=2), _X.T),
    "gradient by float32": (lambda a: np.gradient(a, np.float32(0.3)), _LINE),
    "gradient by places": (lambda a: np.gradient(a, _TIMES**2, axis=1), _X),
    "gradient both": (
        lambda a: np.gradient(a, _TIMES**2, axis=0, edge_order=2),
        _X[:, ::2],
    ),
    "gradient by even places": (lambda a: np.gradient(a, np.arange(9), axis=0), _X),
    "nonzero": (lambda a: np.nonzero(a > 0), _X),
    "nonzero of a line": (lambda a: np.nonzero(a > 0), _LINE),
    "one of nonzero": (lambda a: np.nonzero(a)[1], _X.T),
    "argwhere": (lambda a: np.argwhere(a > 0), _X),
    "places where": (lambda a: np.where(a > 0), _X[::-1]),
    "flatnonzero": (lambda a: np.flatnonzero(a > 0), _X),
    "add.at": (_added(np.add), _LINE),
    "subtract.at": (_added(np.subtract), _LINE),
    "pad": (lambda a: np.pad(a, 3, "linear_ramp", end_values=1.7), _LINE),
    "pad sides": (lambda a: np.pad(a, 2, "linear_ramp", end_values=(0.1, 0.7)), _X),
    "quantile": (
        lambda a: np.quantile(a, 0.3, weights=abs(a), method="inverted_cdf"),
        _LINE,
    ),
}
# Name -> function whose gradient is taken, its array.
_GRADIENTS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "squares": (lambda a: np.sum(a * a), np.asfortranarray(_X[:4, :3])),
    "column by row": (lambda a: np.sum(a @ a.T), _X[:7, :1]),
    "outer": (lambda a: np.sum(np.outer(a, a)), _LINE[:7]),
    "mean of a product": (lambda a: np.mean(a.T @ a), _X[::-1]),
    "squares of sums": (lambda a: np.sum(np.sum(a, axis=0) ** 2), _X.T),
    "tan of var": (lambda a: np.sum(np.tan(np.var(a, axis=1))), _X),
    "running sums": (lambda a: np.var(np.cumsum(a, axis=1)), _X.T[:, ::-1]),
    "steps": (lambda a: np.sum(np.diff(a, axis=1) ** 2), np.asfortranarray(_X)),
    "quotient": (lambda a: np.sum(np.polydiv(a, [1.0, 2.0, 3.0])[0] ** 2), _X[0]),
    "remainder": (lambda a: np.sum(np.polydiv(a, [2.0, 3.0])[1] ** 2), _LINE),
    "least squares": (
        lambda a: np.sum(np.linalg.lstsq(a[:, :3], a[:, 3])[0]),
        _X.astype("f4"),
    ),
    "array without axes": (np.sum, np.array(2.0)),
}
_DTYPES = ("f8", "f4", "f2", "c16", "c8", "i8", "i4")


@pytest.mark.parametrize("name", _PROGRAMS)
def test_bits_are_those_of_numpy(name: str) -> None:
    program, array = _PROGRAMS[name]
    assert_same(program, array)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", _PROGRAMS)
def test_bits_of_every_dtype_and_layout(name: str) -> None:
    """What NumPy refuses is refused; what a graph refuses aloud is no wrong bit."""
    program, array = _PROGRAMS[name]
    compared = 0
    for dtype in _DTYPES:
        for scale in (1.0, 3.7, 41.0):
            scaled = (array * scale).real if dtype[0] != "c" else array * scale
            given = scaled.astype(dtype)
            for laid in (given, given[::-1], np.asfortranarray(given)):
                compared += _agrees_where_taken(program, laid)
    assert compared > 10


@pytest.mark.parametrize("name", _GRADIENTS)
def test_gradients_of_graphs_have_the_bits_of_plain_ones(name: str) -> None:
    """Class, dtype, strides and every bit, traced in each way and compiled."""
    program, array = _GRADIENTS[name]
    slope = co.grad(program)
    expected = slope(array)
    graphs = [
        co.make_fx(slope)(array),
        co.make_fx(slope, "fake")(array),
        co.make_fx(slope, "symbolic")(array),
        co.compile(slope),
        co.compile(slope, backend="numpy"),
    ]
    for graph in graphs:
        _assert_equal(graph(array), expected)


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_divided_polynomials_have_the_derivatives_of_differences(count: int) -> None:
    """Also where the divisor is longer, and of mixed and complex coefficients."""
    rng = np.random.default_rng(count)
    for dtype in (np.float64, np.complex128):
        p, q = (rng.standard_normal(n) + 1.5 for n in (count, 3))
        p = p.astype(dtype) * (1 if dtype is np.float64 else 1 + 0.5j)

        def total(p: Any, q: Any) -> Any:
            first, rest = np.polydiv(p, q)
            return np.sum(np.abs(first) ** 2) + np.sum(np.abs(rest + rest[-1]) ** 2)

        by_p, by_q = co.grad(total, (0, 1))(p, q)
        for k in range(3):
            step = np.eye(3)[k] * 1e-6
            slope = (total(p, q + step) - total(p, q - step)) / 2e-6
            np.testing.assert_allclose(by_q[k], slope, rtol=1e-6, atol=1e-6)
            _, moved = co.jvp(lambda q, p=p: total(p, q), (q,), (step,))
            np.testing.assert_allclose(moved, slope * 1e-6, rtol=1e-6, atol=1e-12)
        for k in range(count):
            step = np.eye(count)[k].astype(dtype) * 1e-6
            slope = (total(p + step, q) - total(p - step, q)) / 2e-6
            np.testing.assert_allclose(by_p[k].real, slope, rtol=1e-6, atol=1e-6)


def _agrees_where_taken(program: Callable[[Any], Any], array: np.ndarray) -> bool:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program(array.copy(order="K"))
        except (TypeError, ValueError):
            return False
        assert_same(program, array, compiles=False)
    return True


def assert_same(
    program: Callable[[Any], Any], array: np.ndarray, compiles: bool = True
) -> None:
    """Raise unless graph and compiled function give what NumPy gives."""
    expected = program(array)
    graph = co.make_fx(program)(array)
    found = [graph(array)]
    if compiles:
        found.append(co.compile(program)(array))
    for result in found:
        _assert_equal(result, expected)


def _assert_equal(result: Any, expected: Any) -> None:
    assert type(result) is type(expected)
    pairs = zip(_parts(result), _parts(expected), strict=True)
    for y, wanted in pairs:
        assert type(y) is type(wanted)
        assert y.dtype == wanted.dtype
        assert y.strides == wanted.strides
        assert _bytes(y) == _bytes(wanted)


def _bytes(array: Any) -> bytes:
    """Return the bytes; of long doubles those of two doubles, without unused ones."""
    if array.dtype.char != "g":
        return bytes(array.tobytes())
    high = array.astype(np.float64)
    return bytes(high.tobytes() + (array - high).astype(np.float64).tobytes())


def _parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


_SIZED: dict[str, Callable[[Any], Any]] = {
    "var": lambda a: np.sum(np.tan(np.var(a, axis=1))),
    "var of all": lambda a: np.var(a, ddof=1) ** 2,
    "std": lambda a: np.sum(np.std(a, axis=0) ** 3),
    "cov": lambda a: np.sum(np.cov(a) ** 2),
}


@pytest.mark.parametrize("name", _SIZED)
def test_bits_at_every_size(name: str) -> None:
    """A graph of symbolic sizes divides by them as one of numbers does."""
    fn = _SIZED[name]
    value, slope = co.compile(fn), co.compile(co.grad(fn))
    for count in (3, 5, 7, 9, 33, 50, 100):
        a = np.random.default_rng(count).standard_normal((5, count))
        assert value(a).tobytes() == fn(a).tobytes()
        assert slope(a).tobytes() == co.grad(fn)(a).tobytes()


def test_bits_of_quotients_at_every_size() -> None:
    """Their gradients are right up to rounding."""
    divided = co.compile(lambda a: np.polydiv(a, np.array([1.0, 2.0, 0.5])))
    for count in (4, 5, 9, 33):
        a = np.random.default_rng(count).standard_normal(count)
        pairs = zip(divided(a), np.polydiv(a, [1.0, 2.0, 0.5]), strict=True)
        assert all(y.tobytes() == wanted.tobytes() for y, wanted in pairs)


def test_graphs_keep_the_call_and_gradients_see_through_it() -> None:
    """Slopes against those of the formula, through a graph and without one."""

    def loss(a: Any) -> Any:
        return np.sum(np.clip(a, 0.0, 1.0) ** 2) + np.sum(a, where=a > 0)

    graph = co.make_fx(loss)(_LINE)
    names = {node.target.qualname for node in graph.graph.nodes if node.op == "call"}
    assert {"np::clip", "np::reduce_some"} <= names
    inside = (_LINE > 0) & (_LINE < 1)
    expected = 2 * _LINE * inside + (_LINE > 0)
    np.testing.assert_allclose(co.grad(loss)(_LINE), expected, rtol=1e-14)
    np.testing.assert_allclose(co.grad(graph)(_LINE), expected, rtol=1e-14)
    rows = np.stack([_LINE, -_LINE])
    np.testing.assert_allclose(co.vmap(graph)(rows), [loss(_LINE), loss(-_LINE)])


_SLOPES = {
    "grad": (co.grad, [12.0, 12.0, 0.0]),
    "jacrev": (co.jacrev, [12.0, 12.0, 0.0]),
    "jacfwd": (co.jacfwd, [12.0, 12.0, 0.0]),
    "hessian": (co.hessian, [12.0, 6.0, 0.0, 6.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", _SLOPES)
def test_derivatives_of_numbers_are_scalars(name: str) -> None:
    """Those of an argument that is not used are, too."""
    transform, expected = _SLOPES[name]

    def volume(x: Any, y: Any, z: Any) -> Any:
        return 3.0 * x * y**2 if name != "hessian" else x**3 * y**2 / 2.0

    given = (1.0, 2.0, 5.0)
    slope = transform(volume, argnums=(0, 1, 2))
    for fn in (slope, co.compile(slope), co.make_fx(slope)(*given)):
        found = optree.tree_leaves(fn(*given))
        assert {type(v) for v in found} == {np.float64}
        np.testing.assert_allclose(found, expected, rtol=1e-13)
