"""Pytrees: the short way for arrays and tuples of arrays does what optree does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import optree
import pytest

import customop as co
from customop.arrays.nested import flatten, spread, unflatten

_X, _Y = np.arange(3.0), np.arange(2.0)


class _Pair(NamedTuple):
    a: Any
    b: Any


_TREES: list[Any] = [
    _X,
    (),
    (_X,),
    (_X, _Y, _X),
    (_X, None),
    (_X, (_Y,)),
    [_X, _Y],
    [],
    [_X],
    [_X, None],
    [_X] * 100,
    [[_X], _Y],
    _Pair(_X, _Y),
    {"b": _X, "a": (_Y,)},
    (1.0, _X),
    None,
    2.0,
]


@pytest.mark.parametrize("tree", _TREES, ids=repr)
def test_trees_are_those_of_optree(tree: Any) -> None:
    leaves, structure = flatten(tree)
    expected, other = optree.tree_flatten(tree, namespace="customop")
    assert structure == other
    assert hash(structure) == hash(other)
    assert [*map(id, leaves)] == [*map(id, expected)]
    again = unflatten(structure, leaves)
    assert type(again) is type(tree)
    assert repr(again) == repr(tree)
    assert flatten(again)[1] == other


@pytest.mark.parametrize("prefix", [0, None, -1])
@pytest.mark.parametrize("tree", _TREES, ids=repr)
def test_one_entry_holds_for_all_leaves(tree: Any, prefix: int | None) -> None:
    assert spread(prefix, tree) == [prefix] * len(optree.tree_leaves(tree))


def test_tracers_are_leaves() -> None:
    seen = []

    def f(x: Any) -> Any:
        found, structure = flatten((x, x))
        seen.append((found[0] is x, str(structure)))
        return (x, [x])

    co.vmap(f)(np.ones((2, 3)))
    co.vjp(f, _X)
    assert seen == [(True, "PyTreeSpec((*, *))")] * 2


@pytest.mark.parametrize("tree", [_X, (_X,), [_X], (_X, _Y), {"a": _X}], ids=repr)
@pytest.mark.parametrize("more", [-1, 1])
def test_a_structure_takes_as_many_leaves_as_it_has(tree: Any, more: int) -> None:
    found, structure = flatten(tree)
    with pytest.raises(ValueError, match="leaves"):
        co.tree.unflatten(structure, (found * 2)[: len(found) + more])
