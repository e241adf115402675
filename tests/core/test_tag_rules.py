"""Batching rules of operators that broadcast, beside a loop over the rows in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co


def loop(fn: Any, dims: tuple[Any, ...], rows: int, *args: np.ndarray) -> np.ndarray:
    """The rows one after the other, by NumPy."""
    taken = [
        [x if d is None else np.take(x, i, d) for x, d in zip(args, dims, strict=True)]
        for i in range(rows)
    ]
    return np.stack([fn(*row) for row in taken])


@pytest.mark.parametrize(
    ("shapes", "dims"),
    [
        (((5, 2, 3), (5, 3)), (0, 0)),
        (((2, 5, 3), (3, 5)), (1, 1)),
        (((2, 3), (5, 3)), (None, 0)),
        (((2, 3, 5), (3,)), (2, None)),
        (((5, 2, 3), (4, 3, 5)), (0, 2)),
        (((4, 2, 3, 5), (5, 3)), (3, 0)),
        (((4, 2, 3), (5, 3)), (None, 0)),
    ],
)
def test_rows(shapes: tuple[tuple[int, ...], ...], dims: tuple[Any, ...]) -> None:
    """Batches give what a loop gives, with the rows anywhere and ranks that differ."""

    @co.custom_op("tag_rules::shift", mutates_args=())
    def shift(matrix: np.ndarray, shift: np.ndarray, by: float = 2.0) -> np.ndarray:
        return np.asarray(matrix * by + shift[..., None, :])

    shift.register_vmap(co.broadcast_rule(shift, (2, 1)))
    random = np.random.default_rng(0)
    first, second = (random.normal(size=shape) for shape in shapes)
    found = co.vmap(shift, in_dims=dims)(first, second)
    expected = loop(lambda m, s: m * 2.0 + s[..., None, :], dims, 5, first, second)
    np.testing.assert_array_equal(found, expected)


def test_rows_of_elements() -> None:
    """Without own axes the arrays of a row are aligned as NumPy aligns them."""

    @co.custom_op("tag_rules::scaled", mutates_args=())
    def scaled(x: np.ndarray, k: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        return x * k, x + k

    scaled.register_vmap(co.broadcast_rule(scaled))
    x, k = np.arange(12.0).reshape(4, 3), np.arange(4.0)
    for found, expected in zip(
        co.vmap(scaled)(x, k), (x * k[:, None], x + k[:, None]), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(co.vmap(scaled, in_dims=(0, None))(x, 2.0)[0], 2 * x)


@pytest.mark.parametrize("core", [(1, 2), (-1,), (), -1])
def test_counts_that_do_not_fit(core: Any) -> None:
    """Each array needs a count, which is not negative."""

    @co.custom_op("tag_rules::one", mutates_args=())
    def one(x: np.ndarray, k: float) -> np.ndarray:
        return x * k

    with pytest.raises(co.RegistrationError) as caught:
        co.broadcast_rule(one, core)
    assert str(caught.value) == (
        f"tag_rules::one: broadcast_rule is given {core!r} for its arrays, and it takes"
        " 1 of them\n"
        "  tag_rules::one(Array x, float k) -> Array\n"
        "  do: give the number of own axes of each array, or write a rule of info,"
        " in_dims and the inputs for register_vmap"
    )


def test_lists_are_refused() -> None:
    """Rows of lists of arrays have no rule that serves them all."""

    @co.custom_op("tag_rules::many", mutates_args=())
    def many(xs: list[np.ndarray]) -> np.ndarray:
        return np.asarray(sum(xs))

    with pytest.raises(co.RegistrationError, match="and it takes lists of arrays"):
        co.broadcast_rule(many)
