"""Generated code that takes pytrees apart and builds them; optree is the oracle."""

from __future__ import annotations

import random
import time
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest

import customop as co
from customop.graph.code_parts import packer, unpacker


class Pair(NamedTuple):
    left: Any
    right: Any


class Twice(Pair):
    """A named tuple that is iterated in another way than it was made."""

    def __iter__(self) -> Any:
        return iter((self.left, self.right, self.left))


@co.register_dataclass(static=["name"])
@dataclass
class Layer:
    w: Any
    b: Any
    name: str = "tanh"


def structure(tree: Any) -> Any:
    return optree.tree_structure(tree, namespace="customop")


def leaves(tree: Any) -> list[Any]:
    return optree.tree_leaves(tree, namespace="customop")


TREES = {
    "leaf": 1.0,
    "none": None,
    "empty": ((), [], {}),
    "one": ([2.0],),
    "nested": {"b": [1.0, (2.0, None)], "a": {"w": np.ones(2), "b": 3}},
    "keys": {2: 1.0, "a": 2.0, None: 3.0, ("k", 1): 4.0, 1.5: 5.0, float("inf"): 6.0},
    "names": Pair([1.0, 2.0], Pair(3.0, {"x": 4.0})),
    "other iteration": [Twice(1.0, 2.0), 3.0],
    "ordered": (OrderedDict(z=1.0, a=[2.0]), 3.0),
    "default": defaultdict(list, {"q": [1.0]}),
    "deque": deque([1.0, (2.0, 3.0)]),
    "dataclass": [Layer(1.0, {"x": 2.0}), 3.0],
    "sequence of the system": (time.struct_time(range(9)), 1.0),
    "many": [float(i) for i in range(3000)],
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_there_and_back(tree: Any) -> None:
    """The leaves are those of optree, and so is what is built from others."""
    arguments = (tree, 7.0), {"key": tree}
    unpack = unpacker(structure(arguments), "test")
    found = unpack(*arguments)
    assert found is not None
    pairs = zip(found, leaves(arguments), strict=True)
    assert all(ours is theirs for ours, theirs in pairs)

    values = [object() for _ in leaves(tree)]
    ours = packer(structure(tree), "test")(values)
    theirs = optree.tree_unflatten(structure(tree), values)
    assert (repr(ours), structure(ours)) == (repr(theirs), structure(theirs))
    assert all(a is b for a, b in zip(leaves(ours), values, strict=True))


def test_deep_trees() -> None:
    """Python's parser takes fewer brackets than optree takes levels."""
    tree: Any = 1.0
    for _ in range(400):
        tree = [tree]
    arguments = (tree,), {}
    assert unpacker(structure(arguments), "test")(*arguments) == [1.0]
    assert packer(structure(tree), "test")([1.0]) == tree


X = np.ones(2)
WRONG = {
    "another class": ([{"w": X}], X),
    "another key": (({"v": X},), X),
    "one key more": (({"w": X, "b": X},), X),
    "a key less": (({},), X),
    "longer": (({"w": X}, X), X),
    "a leaf that is a list": (({"w": [X]},), X),
    "a leaf that is None": (({"w": None},), X),
    "a tree that is a leaf": (X, X),
    "one argument": (({"w": X},),),
    "a subclass": ((OrderedDict(w=X),), X),
}


@pytest.mark.parametrize("args", WRONG.values(), ids=WRONG)
def test_another_structure(args: tuple[Any, ...]) -> None:
    """The generated code leaves it to optree, which says what is wrong."""
    right = (({"w": X},), X)
    assert unpacker(structure((right, {})), "test")(args, {}) is None
    module = co.make_fx(lambda p, x: p[0]["w"] + x)(*right)
    np.testing.assert_array_equal(module(*right), X + X)
    with pytest.raises(
        co.GuardError, match="do: call it with arguments that are nested"
    ):
        module(*args)


def test_arguments_by_name() -> None:
    """Each argument by name has its own place."""
    unpack = unpacker(structure(((X,), {"b": [1.0], "a": 2.0})), "test")
    assert unpack((X,), {"a": 3.0, "b": [4.0]}) == [X, 3.0, 4.0]
    assert unpack((X,), {"a": 3.0, "c": [4.0]}) is None
    assert unpack((X,), {}) is None
    assert unpack((X, 3.0), {"a": 3.0, "b": [4.0]}) is None


def test_classes_of_leaves() -> None:
    """Traced and fake arrays are leaves; of another class optree knows whether it is."""
    unpack = unpacker(structure((([X],), {})), "test")
    seen: list[bool] = []

    def loss(x: Any) -> Any:
        seen.append(unpack(([x],), {}) is not None)
        return np.sum(x * x)

    co.grad(loss)(X)
    co.vmap(loss)(X[None])
    co.make_fx(loss, "fake")(X)
    co.eval_shape(loss, X)
    assert seen == [True] * 4
    assert unpack(([object()],), {}) is None

    module = co.make_fx(lambda x: x[0] * 2.0)([X])

    class Sub(np.ndarray):
        pass

    np.testing.assert_array_equal(np.asarray(module([X.view(Sub)])), 2.0 * X)


def random_tree(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.25:
        return rng.choice([None, 1.0, 2, X])
    parts = [random_tree(rng, depth - 1) for _ in range(rng.randrange(3))]
    makers: list[Any] = [
        list,
        tuple,
        lambda found: dict(zip(rng.sample("abc", len(found)), found, strict=True)),
        lambda found: Pair(*found) if len(found) == 2 else found,
        lambda found: OrderedDict(zip("ab", found, strict=False)),
        lambda found: (
            Layer(*found, name=rng.choice("st")) if len(found) == 2 else found
        ),
    ]
    return rng.choice(makers)(parts)


def test_random_trees() -> None:
    """Of each pair of trees the code of one takes the other if they are alike."""
    rng = random.Random(7)
    trees = [(random_tree(rng, 3),) for _ in range(150)]
    alike = 0
    for tree in trees:
        unpack = unpacker(structure((tree, {})), "test")
        for other in trees:
            found = unpack(other, {})
            if structure(other) == structure(tree):
                alike += 1
                assert found is not None
                pairs = zip(found, leaves(other), strict=True)
                assert all(ours is theirs for ours, theirs in pairs)
            else:
                assert found is None
    assert alike > 200
