"""Random programs through random passes: the same bits, on fresh inputs too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.graph.walk import run_once

from ._programs import BUFFER, OPS, inputs, program

RNG = np.random.default_rng(0)


def outcome(fn: Callable[..., Any], seed: int) -> Any:
    """Bits of the results and of the arguments afterwards, and what shares memory."""
    BUFFER[...] = 0.0
    RNG.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    args = inputs(seed)
    found = [*co.tree.leaves((fn(*args, RNG), args)), BUFFER]
    shared = [[np.may_share_memory(a, b) for b in found] for a in found]
    bits = [(np.shape(v), np.asarray(v).tobytes()) for v in found]
    return bits, shared, str(RNG.bit_generator.state)


def listing(module: co.GraphModule) -> list[str]:
    """The nodes of a graph as text."""
    return [f"{n.op} {n.name} {n.target} {n.args}" for n in module.graph.nodes]


def split(module: co.GraphModule, draw: random.Random) -> co.GraphModule:
    """Two parts: before and after a node."""
    nodes = [*module.graph.nodes]
    before = {*nodes[: draw.randrange(len(nodes))]}
    return co.split_graph(module, lambda node: "a" if node in before else "b")


def fuse(module: co.GraphModule, draw: random.Random) -> co.GraphModule:
    """Some nodes as one, if they can be."""
    calls = [n for n in module.graph.nodes if n.op == "call" and draw.random() < 0.3]
    try:
        return co.fuse_nodes(module, calls)
    except co.GraphError:
        return module


def scaled_in_place(x: Any, k: float = 2.0) -> Any:
    """An operator in place, by NumPy."""
    x *= k
    return x


TABLE = {
    "passes::scale": lambda x, k=2.0: x * k,
    "passes::scale_": scaled_in_place,
    "passes::low_high": lambda x: (np.minimum(x, 0.5), np.maximum(x, 0.5)),
    "np::sin": lambda x: np.sin(x)[...],
}
# Pattern and replacement, with the same bits.
PATTERNS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x: np.sin(x) * np.sin(x), lambda x: np.square(np.sin(x))),
    (lambda x, y: x + y, lambda x, y: y + x),
    (lambda x: x[0:2] + x[0:2], lambda x: x[0:2] * 2.0),
    (OPS["low_high"], lambda x: (np.minimum(x, 0.5), np.maximum(x, 0.5))),
    (OPS["scale"], lambda x: x * 2.0),
    (np.negative, lambda x: np.negative(x)[...]),
]


def decompose(module: co.GraphModule, draw: random.Random) -> co.GraphModule:
    """Some operators by others."""
    return co.decompose(module, {k: TABLE[k] for k in draw.sample([*TABLE], 2)})


def replace(module: co.GraphModule, draw: random.Random) -> co.GraphModule:
    """One pattern."""
    return co.replace_pattern(module, *draw.choice(PATTERNS))


PASSES: dict[str, Callable[[co.GraphModule, random.Random], co.GraphModule]] = {
    "dead": lambda module, draw: co.eliminate_dead_code(module),
    "common": lambda module, draw: co.eliminate_common_subexpressions(module),
    "fold": lambda module, draw: co.fold_constants(module),
    "inline": lambda module, draw: co.inline_graphs(module),
    "split": split,
    "decompose": decompose,
    "replace": replace,
    "functionalize": lambda module, draw: co.functionalize(module),
    "reuse": lambda module, draw: co.reuse_buffers(module),
    "fuse": fuse,
}


def check_program(seed: int) -> None:
    """Check one program through a few passes."""
    draw = random.Random(seed)
    fn = program(seed, draw.randrange(3, 25))
    module = co.make_fx(fn)(*inputs(0), RNG)
    expected = [outcome(module, 1), outcome(module, 2)]
    for _ in range(draw.randrange(1, 6)):
        name = draw.choice([*PASSES])
        before = listing(module)
        changed = PASSES[name](module, draw)
        assert listing(module) == before, name
        changed.graph.lint()
        found = [outcome(changed, 1), outcome(changed, 2)]
        if name == "functionalize":  # results are fresh arrays, where some were views
            expected = [
                (bits, new[1], state)
                for (bits, _, state), new in zip(expected, found, strict=True)
            ]
        assert found == expected, name
        module = changed
    once = lambda *args: run_once(module, args)
    assert [outcome(once, 1), outcome(once, 2)] == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_few_programs(seed: int) -> None:
    """A few of them, each time."""
    check_program(seed)


@pytest.mark.exhaustive
def test_random_programs() -> None:
    """Many of them."""
    for seed in range(100, 250):
        check_program(seed)
