"""The order of NumPy's iterator, beside the iterator itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.compiling.native_backend.iteration import (
    merged_axes,
    result_strides,
    strides_within,
)
from tests.cases import each


def _arrays(rng: np.random.Generator) -> list[np.ndarray]:
    """Return one to three arrays of random layouts that broadcast to one shape."""
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 7], size=rng.integers(1, 5)))
    found = []
    for _ in range(rng.integers(1, 4)):
        own = [1 if rng.random() < 0.2 else n for n in shape]
        order = rng.permutation(len(own))
        steps = rng.choice([1, 1, 2, -1], size=len(own))
        whole = np.zeros([own[i] * abs(int(steps[i])) for i in order])
        part = whole[tuple(slice(None, None, int(steps[i])) for i in order)]
        found.append(part.transpose(np.argsort(order)))
    return found


def test_axes_are_those_of_the_iterator() -> None:
    """Axes are sorted and merged as `numpy.nditer` does it for the same operands."""
    each(_check_axes, zip(range(300)))


def _check_axes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = _arrays(rng)
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    iterator = np.nditer(arrays, flags=["external_loop"], order="K")
    if any(step < 0 for a in arrays for step in a.strides):
        ways: Any = [*[["readonly"]] * len(arrays), ["writeonly", "allocate"]]
        operands: Any = [*arrays, None]
        iterator = np.nditer(operands, flags=["external_loop"], op_flags=ways)
        out = iterator.operands[-1]
        arrays = [*arrays, out]
    axes = merged_axes(shape, [strides_within(a, shape) for a in arrays])
    views = iterator.itviews
    assert [axis.length for axis in axes][::-1] == [n for n in views[0].shape if n != 1]
    for k, view in enumerate(views):
        steps = [s for s, n in zip(view.strides, view.shape, strict=True) if n != 1]
        assert [axis.strides[k] for axis in axes][::-1] == steps


def test_results_lie_as_those_of_a_ufunc() -> None:
    """A new result has the strides that NumPy gives it."""
    each(_check_strides, zip(range(300)))


def _check_strides(seed: int) -> None:
    arrays = _arrays(np.random.default_rng(seed))
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    expected = arrays[0]
    for a in arrays[1:]:
        expected = np.add(expected, a) if len(arrays) == 2 else expected
    if len(arrays) == 1:
        expected = np.negative(expected)
    elif len(arrays) == 3:
        expected = np.where(np.zeros_like(arrays[0], bool), *arrays[1:])
    found = np.empty(shape)
    steps = result_strides(shape, 8, arrays)
    steps = found.strides if steps is None else steps
    pairs = zip(expected.strides, steps, shape, strict=True)
    assert all(a == b for a, b, length in pairs if length != 1)
