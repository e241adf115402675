"""Walks over nested values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.nested import (
    aligned,
    flat,
    like,
    map_beside,
    map_nested,
    map_outline,
    map_paths,
    outline,
    refill,
)


@dataclass(frozen=True)
class Weights:
    """A config object with two arrays, which refuses other fields."""

    w: np.ndarray
    b: np.ndarray

    def __post_init__(self) -> None:
        assert isinstance(self.w, np.ndarray)


@co.custom_op("nested::uses", mutates_args=())
def uses(weights: Weights) -> np.ndarray:
    """Make the class known."""
    return weights.w


X, Y = np.zeros(2), np.ones(3)
NESTED: list[tuple[Any, list[Any]]] = [
    (X, [X]),
    (None, [None]),
    ([X, None, (Y,)], [X, None, Y]),
    ({"b": X, "a": [Y]}, [X, Y]),
    (Weights(X, Y), [X, Y]),
    ([], []),
]


@pytest.mark.parametrize(("value", "leaves"), NESTED)
def test_leaves_come_in_order(value: Any, leaves: list[Any]) -> None:
    """Dicts keep their order, and None is a leaf."""
    found = flat(value)
    assert len(found) == len(leaves)
    assert all(a is b for a, b in zip(found, leaves, strict=True))


def test_an_object_without_changes_stays_itself() -> None:
    """Lists and dicts are copied, since they can change; an object is not."""
    weights, items = Weights(X, Y), [X]
    assert map_nested(weights, lambda leaf: leaf) is weights
    assert map_nested(items, lambda leaf: leaf) is not items
    assert map_nested({"a": weights}, lambda leaf: leaf)["a"] is weights


def test_an_outline_calls_no_constructor() -> None:
    """Axes can be in the fields of an object that takes arrays alone."""
    axes = map_outline([Weights(X, Y), X], lambda leaf: leaf.ndim)
    assert (axes[0].w, axes[0].b, axes[1]) == (1, 1, 1)


def test_paths_are_indices_at_each_depth() -> None:
    """Fields and keys count from the first."""
    value = [X, {"b": Weights(X, Y)}]
    paths = map_paths(value, lambda _, path: path, outline)
    assert flat([paths[0], paths[1]["b"].b]) == [0, 1, 0, 1]
    assert map_paths(X, lambda _, path: path) == ()


@pytest.mark.parametrize(("value", "leaves"), NESTED)
def test_a_nesting_takes_other_leaves(value: Any, leaves: list[Any]) -> None:
    """Without a constructor, where `outline` says so."""
    numbers = [*range(len(leaves))]
    made = refill(value, numbers, outline)
    assert type(made) is type(value) or not isinstance(value, list | dict | Weights)
    assert flat(made) == numbers


def test_two_values_are_walked_side_by_side() -> None:
    """None beside a nested value is None beside each leaf."""
    pairs = map_beside([X, (Y, X)], [0, (None, 1)], lambda v, d: (v.size, d))
    assert pairs == [(2, 0), ((3, None), (2, 1))]
    assert map_beside([X, (Y,)], None, lambda _, d: d) == [None, (None,)]
    with pytest.raises(ValueError, match="shorter"):
        map_beside([X, Y], [0], lambda v, d: v)


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        ([1, 2], [1, 2]),
        ((1, 2), [1, 2]),
        ({"b": 2}, [None, 2]),
        ({"c": 1}, None),
        ([1], None),
        (3, None),
    ],
)
def test_parts_are_found_by_place_or_name(other: Any, parts: Any) -> None:
    """A dict with names of the fields goes with an object."""
    value = Weights(X, Y) if isinstance(other, dict) else [X, Y]
    found = aligned(value, other)
    assert (found if found is None else list(found)) == parts


def test_a_tuple_stays_a_tuple() -> None:
    """Results of operators are tuples where their schema says so."""
    assert like((X, Y), [1, 2]) == (1, 2)
    assert outline((X, Y), [1, 2]) == (1, 2)
