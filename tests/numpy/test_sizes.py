"""Graphs captured at some sizes and run at others: values and gradients are NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from tests.numpy._sized import ROWS, SizedRow

# Whose result has other axes if a size is 1, or that NumPy takes apart into a list.
NEEDS_SIZES = ("cov", "poly")
# Whose sizes must have a product that is that of others.
NEEDS_PRODUCTS = ("tensorsolve", "tensorinv")
_LEAST = {"N": 4, "M": 3, "K": 2}


def _sizes(row: SizedRow, rng: np.random.Generator, least: int) -> dict[str, int]:
    letters = sorted({*row.shapes} - {" "})
    return {c: int(rng.integers(max(least, _LEAST.get(c, 1)), 7)) for c in letters}


def _arrays(row: SizedRow, sizes: dict[str, int], rng: Any) -> list[Any]:
    shapes = [tuple(sizes[c] for c in shape) for shape in row.shapes.split()]
    return [rng.normal(size=shape) for shape in shapes]


def _gradient(row: SizedRow) -> Callable[..., Any]:
    def total(*args: Any) -> Any:
        parts = [y for y in optree.tree_leaves(row.fn(*args)) if y.dtype.kind == "f"]
        return sum(np.sum(np.sin(y)) for y in parts)

    return co.grad(total, argnums=row.slopes)


def _captured(fn: Callable[..., Any], row: SizedRow, args: Any, is_named: bool) -> Any:
    """The graph of a function, with a name for each letter or a symbol for each axis."""
    shapes = [tuple(f"size_{c}" for c in shape) for shape in row.shapes.split()]
    names = dict(zip("xyz", shapes, strict=False))
    one = {
        1: lambda x: fn(x),
        2: lambda x, y: fn(x, y),
        3: lambda x, y, z: fn(x, y, z),
    }[len(args)]
    return co.make_fx(one, "symbolic", sizes=names if is_named else None)(*args)


def _assert_same(found: Any, expected: Any) -> None:
    pairs = zip(optree.tree_leaves(found), optree.tree_leaves(expected), strict=True)
    for x, y in pairs:
        assert np.shape(x) == np.shape(y)
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-8)


def _check(name: str, seed: int, *, is_named: bool) -> Iterator[None]:
    """Run a graph at three sizes; a step for each at which its guards hold."""
    row, rng = ROWS[name], np.random.default_rng(seed)
    args = _arrays(row, _sizes(row, rng, 2), rng)
    for fn in (row.fn, *([_gradient(row)] if row.slopes else [])):
        graph = _captured(fn, row, args, is_named)
        _assert_same(graph(*args), fn(*args))
        for _ in range(3):
            other = _arrays(row, _sizes(row, rng, 1), rng)
            try:
                found = graph(*other)
            except co.GuardError:
                assert not is_named
                continue
            _assert_same(found, fn(*other))
            yield


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # such as of one element
@pytest.mark.parametrize("name", [n for n in ROWS if n not in NEEDS_SIZES])
def test_named_sizes_are_open(name: str) -> None:
    """A graph whose sizes have names runs at all others: no formula asks for one."""
    assert len([*_check(name, 3, is_named=True)]) == 3 * (1 + bool(ROWS[name].slopes))


@pytest.mark.parametrize("name", NEEDS_SIZES)
def test_named_sizes_that_must_be_known(name: str) -> None:
    """The error names the question."""
    row = ROWS[name]
    rng = np.random.default_rng(1)
    args = _arrays(row, _sizes(row, rng, 2), rng)
    with pytest.raises(co.SizeError, match=r"size_\w.* is asked, and size_\w may"):
        _captured(row.fn, row, args, True)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ROWS)
def test_guards_hold_what_a_graph_needs(name: str) -> None:
    """Where the guards of unnamed sizes hold, values and gradients are NumPy's."""
    runs = sum(1 for seed in range(4) for _ in _check(name, seed, is_named=False))
    assert runs or name == "poly"


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [n for n in ROWS if n not in NEEDS_SIZES])
def test_sizes_that_depend_on_data(name: str) -> None:
    """Rows that a mask takes are as many as it says, in each run of the graph."""
    row, rng = ROWS[name], np.random.default_rng(2)
    letters = {*row.shapes} - {" "}
    args = _arrays(row, {c: 5 + (c == row.shapes[0]) for c in letters}, rng)

    def fn(mask: Any, *args: Any) -> Any:
        return row.fn(*map(_cut(row, mask), row.shapes.split(), args))

    masks = [np.arange(6) % 3 != 1, np.arange(6) != 4, np.arange(6) > 0]
    if name in NEEDS_PRODUCTS:
        with pytest.raises(co.DataDependentError):
            co.make_fx(fn, "symbolic")(masks[0], *args)
        return
    graph = co.make_fx(fn, "symbolic")(masks[0], *args)
    for mask in masks:
        _assert_same(graph(mask, *args), fn(mask, *args))


def _cut(row: SizedRow, mask: Any) -> Callable[[str, Any], Any]:
    """A function that takes elements along the axes of the first letter of a row."""

    def cut(shape: str, x: Any) -> Any:
        for axis, letter in enumerate(shape):
            if letter == row.shapes[0]:
                x = x[(*(slice(None),) * axis, mask)]
        return x

    return cut
