"""NumPy operators called directly, not through NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.arange(1.0, 7.0).reshape(2, 1, 3) ** 1.5
NP = co.ops.np

# How a call is made: on an array, or on a fake one.
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda fn, x: fn(x),
    "fake": co.eval_shape,
}
ways = pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)

# Operator and NumPy function, with axes counted from the end.
CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "concatenate": (
        lambda x: NP.concatenate([x, 2.0 * x], -1),
        lambda x: np.concatenate([x, 2.0 * x], -1),
    ),
    "stack": (
        lambda x: NP.stack([x, 2.0 * x], -1),
        lambda x: np.stack([x, 2.0 * x], -1),
    ),
    "stack in the middle": (
        lambda x: NP.stack([x, 2.0 * x], -2),
        lambda x: np.stack([x, 2.0 * x], -2),
    ),
    "expand_dims": (
        lambda x: NP.expand_dims(x, [-1, 0]),
        lambda x: np.expand_dims(x, (-1, 0)),
    ),
    "squeeze": (lambda x: NP.squeeze(x, [-2]), lambda x: np.squeeze(x, -2)),
    "transpose": (
        lambda x: NP.transpose(x, [-1, 0, -2]),
        lambda x: np.transpose(x, (-1, 0, -2)),
    ),
    "flip": (lambda x: NP.flip(x, [-1]), lambda x: np.flip(x, -1)),
    "roll": (lambda x: NP.roll(x, [1], [-1]), lambda x: np.roll(x, 1, -1)),
    "tril": (lambda x: NP.tril(x[0, 0]), lambda x: np.tril(x[0, 0])),
    "triu": (lambda x: NP.triu(x[0, 0], 1), lambda x: np.triu(x[0, 0], 1)),
}

table = pytest.mark.parametrize(("ours", "numpys"), CALLS.values(), ids=CALLS)


@table
def test_values_are_numpys(ours: Any, numpys: Any) -> None:
    """The operator counts axes as NumPy's function does."""
    np.testing.assert_array_equal(ours(X), numpys(X))


@table
def test_fake_shapes_are_numpys(ours: Any, numpys: Any) -> None:
    """The fake kernel counts axes in the same way."""
    found, expected = co.eval_shape(ours, X), numpys(X)
    # The stride of an axis of length one does not matter.
    steps = [s for s, n in zip(found.strides, found.shape, strict=True) if n > 1]
    known = [s for s, n in zip(expected.strides, expected.shape, strict=True) if n > 1]
    assert (found.shape, steps) == (expected.shape, known)


@table
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_batches_are_rows(ours: Any, numpys: Any, dim: int) -> None:
    """The vmap rule does too, for any batch axis."""
    rows = [X, X + 0.5]
    expected = np.stack([numpys(row) for row in rows])
    batch = np.stack(rows, dim)
    np.testing.assert_array_equal(co.vmap(ours, in_dims=(dim,))(batch), expected)


@table
def test_gradients_are_differences(ours: Any, numpys: Any) -> None:
    """The backward formula and the jvp rule do too."""
    assert co.gradcheck(ours, (X,))
    tangent = np.cos(X)
    _, moved = co.jvp(ours, (X,), (tangent,))
    # All of them are linear.
    np.testing.assert_allclose(moved, numpys(tangent), atol=1e-12)


@pytest.mark.parametrize("name", ["real", "imag"])
@ways
def test_parts_of_real_numbers_are_refused(name: str, run: Any) -> None:
    """The operators refuse a real array."""
    with pytest.raises(co.ArgumentError, match=f"np::{name} takes complex arrays"):
        run(getattr(NP, name), X)


@pytest.mark.parametrize("x", [np.array([2.5]), np.array([2.5, 2.5])])
def test_deviation_of_equal_elements_has_no_slope(x: np.ndarray) -> None:
    """The gradient and the tangent of np.std are 0 there, not 0 / 0."""
    np.testing.assert_array_equal(co.grad(np.std)(x), np.zeros_like(x))
    _, tangent = co.jvp(np.std, (x,), (np.ones_like(x),))
    assert float(tangent) == 0.0


FOUR = np.arange(4.0)

# Arguments that only NumPy's functions convert.
REFUSED: dict[str, Callable[[Any], Any]] = {
    "a mask as an index array": lambda x: NP.index(x, [np.array([True] * 4)]),
    "floats as an index array": lambda x: NP.index(x, [np.array([0.0])]),
    "no index array": lambda x: NP.index(x, [None]),
    "an empty list": lambda x: NP.index(x, []),
    "more index arrays than axes": lambda x: NP.index(x, [None, np.array([0])]),
    "values that broadcast": lambda x: NP.scatter_add(x, [3], [np.array([[0], [1]])]),
    "a gradient that broadcasts": lambda x: NP.unslice(x[:1], [4], [[0, 4, 1]]),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
@ways
def test_index_operators_take_what_they_mean(call: Any, run: Any) -> None:
    """Kernel and fake kernel refuse arguments that only NumPy's functions convert."""
    with pytest.raises((co.ArgumentError, co.ShapeError)):
        run(call, FOUR)


OUTSIDE: dict[str, Callable[[Any], Any]] = {
    "stack": lambda x: NP.stack([x], 5),
    "concatenate": lambda x: NP.concatenate([x], -4),
    "expand_dims": lambda x: NP.expand_dims(x, [5]),
    "squeeze": lambda x: NP.squeeze(x, [-4]),
    "flip": lambda x: NP.flip(x, [3]),
    "roll": lambda x: NP.roll(x, [1], [3]),
    "transpose": lambda x: NP.transpose(x, [0, 0, 1]),
}


@pytest.mark.parametrize("call", OUTSIDE.values(), ids=OUTSIDE)
@ways
def test_axes_outside_are_refused(call: Any, run: Any) -> None:
    """A missing axis is refused, by fake kernels too."""
    with pytest.raises(ValueError, match="axis"):
        run(call, X)


MASKED = np.ma.masked_array(
    [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]], [[False, True, False], [False, False, True]]
)

# Operators of masked arrays, and NumPy's functions.
OF_MASKED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tile": (lambda m: NP.tile(m, [2, 1]), lambda m: np.tile(m, (2, 1))),
    "mean": (lambda m: NP.mean(m, [0]), lambda m: np.mean(m, axis=0)),
    "mean of all": (NP.mean, np.mean),
    "sum": (lambda m: NP.sum(m, [1]), lambda m: np.sum(m, axis=1)),
    "prod": (lambda m: NP.prod(m, [1]), lambda m: np.prod(m, axis=1)),
    "std": (lambda m: NP.std(m, [0]), lambda m: np.std(m, axis=0)),
    "max": (NP.max, np.max),
    "argmax": (NP.argmax, np.argmax),
    "cumsum": (lambda m: NP.cumsum(m, 1), lambda m: np.cumsum(m, axis=1)),
    "diff": (lambda m: NP.diff(m, 1, 1), np.diff),
    "flip": (lambda m: NP.flip(m, [1]), lambda m: np.flip(m, 1)),
    "roll": (lambda m: NP.roll(m, [1], [0]), lambda m: np.roll(m, 1, 0)),
    "repeat": (lambda m: NP.repeat(m, 2, 0), lambda m: np.repeat(m, 2, 0)),
    "round": (NP.round, np.round),
    "sort": (NP.sort, np.sort),
    "sinc": (NP.sinc, np.sinc),
    "unique": (
        lambda m: NP.unique(m, None, True, True)[2],
        lambda m: np.unique(m, return_counts=True)[1],
    ),
}


@pytest.mark.parametrize(("ours", "numpys"), OF_MASKED.values(), ids=OF_MASKED)
def test_a_mask_is_kept_as_numpy_keeps_it(ours: Any, numpys: Any) -> None:
    """What is masked does not count, and is masked in the result."""
    found, expected = ours(MASKED), numpys(MASKED)
    assert type(found) is type(expected)
    np.testing.assert_array_equal(
        np.ma.getmaskarray(found), np.ma.getmaskarray(expected)
    )
    np.testing.assert_array_equal(
        np.ma.filled(found, -1.0), np.ma.filled(expected, -1.0)
    )
