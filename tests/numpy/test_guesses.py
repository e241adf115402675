"""Graphs of functions whose dtype or shape depends on values are right, or say so.

The oracle is NumPy on plain arrays: class, dtype, strides and every bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from customop import GuardError

_RNG = np.random.default_rng(5)
_X = _RNG.standard_normal((4, 4))
_SYMMETRIC = _X + _X.T
_LOW = np.outer(np.arange(6.0), np.ones(3))
_FULL = _RNG.standard_normal((6, 3))
_LINE = np.array([2.0, -1.0, 0.5, 3.0, -4.0])
_ZEROS_FIRST = np.array([0.0, 0.0, 1.0, 3.0, -1.0])
_PLACES = np.array([0, 1, 1, 2, 0])

# Name -> function, an array of the usual case, and one of the other.
_CASES: dict[str, tuple[Callable[[Any], Any], np.ndarray, np.ndarray]] = {
    "eig": (lambda a: tuple(np.linalg.eig(a)), _X, _SYMMETRIC),
    "eigvals": (np.linalg.eigvals, _X, _SYMMETRIC),
    "eigvals of a stack": (
        np.linalg.eigvals,
        np.stack([_X, _SYMMETRIC]),
        np.stack([_SYMMETRIC, -_SYMMETRIC]),
    ),
    "eigvals in single precision": (
        np.linalg.eigvals,
        _X.astype("f4"),
        _SYMMETRIC.astype("f4"),
    ),
    "roots": (np.roots, np.array([1.0, 0.0, 1.0]), np.array([1.0, -3.0, 2.0])),
    "roots with zeros": (np.roots, _LINE, _ZEROS_FIRST),
    "roots at zero": (
        np.roots,
        np.array([1.0, 0.0, 1.0], "f4"),
        np.array([2.0, 0.0, 0.0], "f4"),
    ),
    "poly of a matrix": (np.poly, _X, _SYMMETRIC),
    "poly": (np.poly, np.array([1j, 2.0, -2j]), np.array([1j, 2.0, -1j])),
    "polymul": (lambda a: np.polymul(a, [1.0, 2.0]), _LINE, _ZEROS_FIRST),
    "polydiv": (
        lambda a: np.polydiv(a, [1.0, 2.0, 3.0]),
        _LINE,
        np.polymul([1.0, 2.0, 3.0], [3.0, 1.0, 1.0]),
    ),
    "lstsq": (lambda a: np.linalg.lstsq(a, a[:, 0] ** 2), _FULL, _LOW),
    "lstsq of columns": (lambda a: np.linalg.lstsq(a, a[:, :2] ** 2), _FULL, _LOW),
    "bincount": (lambda a: np.bincount(a, minlength=4), _PLACES, _PLACES * 4),
    "bincount of weights": (
        lambda a: np.bincount(a, a * 0.3, minlength=4),
        _PLACES,
        _PLACES * 4,
    ),
}
names = pytest.mark.parametrize("name", _CASES)


def _assert_same(found: Any, expected: Any) -> None:
    assert optree.tree_structure(found) == optree.tree_structure(expected)
    pairs = zip(optree.tree_leaves(found), optree.tree_leaves(expected), strict=True)
    for y, wanted in pairs:
        assert type(y) is type(wanted)
        assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
        assert y.strides == wanted.strides or not y.size
        assert y.tobytes() == wanted.tobytes()


@names
@pytest.mark.parametrize("is_first", [True, False], ids=["usual first", "other first"])
def test_compiled_functions_give_what_numpy_gives(name: str, is_first: bool) -> None:
    """For both cases, whichever comes first; the report says when no graph is run."""
    fn, *arrays = _CASES[name]
    compiled = co.compile(fn)
    for array in arrays if is_first else arrays[::-1]:
        for x in (array, array):
            _assert_same(compiled(x), fn(x))
    report = str(compiled.explain())
    assert "as it is" in report
    assert "depends on whether" in report


@names
def test_a_graph_raises_for_the_other_case(name: str) -> None:
    """Traced with values it is for the case of its example, and else for the usual one."""
    fn, usual, other = _CASES[name]
    graphs = [(co.make_fx(fn, "fake")(usual), usual, other)]
    graphs += [(co.make_fx(fn)(usual), usual, other)]
    graphs += [(co.make_fx(fn)(other), other, usual)]
    for graph, given, wrong in graphs:
        _assert_same(graph(given), fn(given))
        with pytest.raises(GuardError, match="depends on whether"):
            graph(wrong)


def _real(values: Any) -> Any:
    parts = [v for v in optree.tree_leaves(values) if v.dtype.kind in "fc"]
    return sum(np.sum(np.abs(v) ** 2) for v in parts)


_SLOPES = [
    *("eigvals", "eigvals of a stack", "roots", "poly of a matrix"),
    *("polymul", "polydiv"),
]


@pytest.mark.parametrize("name", _SLOPES)
def test_compiled_gradients_are_those_of_eager(name: str) -> None:
    """Compiled outside and inside of grad, for both cases."""
    fn, *arrays = _CASES[name]
    slope = co.grad(lambda a: _real(fn(a)))
    outside = co.compile(slope)
    inside = co.grad(co.compile(lambda a: _real(fn(a))))
    for x in (*arrays, *arrays):
        np.testing.assert_allclose(outside(x), slope(x), rtol=1e-12)
        np.testing.assert_allclose(inside(x), slope(x), rtol=1e-12)


@pytest.mark.parametrize("name", ["eigvals", "roots", "poly"])
def test_rows_have_one_dtype(name: str) -> None:
    """The one that NumPy gives the stack of their results, also once compiled."""
    fn, usual, other = _CASES[name]
    for rows in (np.stack([other, other]), np.stack([other, usual])):
        expected = np.stack([fn(row) for row in rows])
        batched = co.vmap(fn)
        for found in (batched(rows), co.compile(batched)(rows), batched(rows.copy())):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_graph_that_draws_is_not_run_twice() -> None:
    """A second run would draw other numbers: the error is raised."""

    @co.compile
    def noisy(a: Any, rng: np.random.Generator) -> Any:
        return np.linalg.eigvals(a * rng.uniform(1.0, 2.0, size=()))

    rng = np.random.default_rng(3)
    assert noisy(_X, rng).dtype == np.complex128
    with pytest.raises(GuardError, match=r"np\.linalg\.eigvals: the dtype"):
        noisy(_SYMMETRIC, rng)


def test_a_graph_of_any_size() -> None:
    """Named sizes stay symbolic."""
    eigvals: Any = np.linalg.eigvals
    values: Any = co.compile(eigvals, sizes={"a": ("n", "n")})
    for n in (2, 3, 5):
        a = _RNG.standard_normal((n, n))
        for x in (a + a.T, a):
            _assert_same(values(x), np.linalg.eigvals(x))
    assert len(values.graphs) == 1


def _residual(a: Any, b: Any) -> Any:
    return np.linalg.lstsq(a, b)[1][0]


def test_residuals_have_derivatives() -> None:
    """Those of the sum of squares at the solution, by differences."""
    a, b = _FULL, _FULL[:, 0] ** 2
    slopes = co.grad(_residual, argnums=(0, 1))(a, b)
    step = 1e-6
    for k, x in enumerate((a, b)):
        expected = np.zeros_like(x)
        for place in np.ndindex(x.shape):
            ends = []
            for side in (step, -step):
                moved = [a.copy(), b.copy()]
                moved[k][place] += side
                ends.append(_residual(*moved))
            expected[place] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(slopes[k], expected, rtol=1e-6, atol=1e-7)
        direction = [np.zeros_like(v) for v in (a, b)]
        direction[k] = np.cos(x)
        moved_by = co.jvp(_residual, (a, b), (direction[0], direction[1]))[1]
        np.testing.assert_allclose(moved_by, np.sum(expected * direction[k]), rtol=1e-6)


@pytest.mark.parametrize("a", [_X, _SYMMETRIC, np.stack([_X, _SYMMETRIC])])
def test_gradients_of_complex_eigenvalues_ask_for_no_fact(a: np.ndarray) -> None:
    """Their dtype is complex for all values, and so are the eigenvectors of the formula."""

    def slope(a: Any) -> Any:
        return co.grad(lambda a: np.sum(np.absolute(co.ops.np.eigvals(a))))(a)

    graph = co.make_fx(slope, "fake")(a * 0.7 + 1.0)
    assert not [n for n in graph.graph.nodes if "guessed" in n.name]
    np.testing.assert_allclose(graph(a), slope(a), rtol=1e-12)
