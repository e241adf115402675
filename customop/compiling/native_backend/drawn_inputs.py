"""Random draws of a graph as arguments of a graph without draws.

What is drawn depends on no array, so that all draws of a call are made before the rest,
in their order. A call that runs again by NumPy's code then has the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from customop.graph.module import GraphModule
from customop.graph.node import CALL, PLACEHOLDER, Node
from customop.transforms.random_draws import draw

Run = Callable[..., Any]


def draws_of(module: GraphModule) -> list[Node]:
    """Return the draws of a graph if they can be made before the rest, else none."""
    found = [n for n in module.graph.nodes if n.op == CALL and n.target is draw]
    is_apart = all(
        n.args[0].op == PLACEHOLDER and all(_is_fixed(v) for v in n.args[1:])
        for n in found
    )
    return found if is_apart else []


def _is_fixed(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(type(n) is int for n in value)
    return not isinstance(value, Node)


def with_drawn_inputs(module: GraphModule, build: Callable[[GraphModule], Run]) -> Run:
    """Return the function of a graph that draws; `build` compiles it without the draws.

    Parameters
    ----------
    module : GraphModule
        `draws_of` gives its draws.
    build : callable
    """
    graph = module.graph.copy()
    inputs = [n for n in graph.nodes if n.op == PLACEHOLDER]
    draws = [n for n in graph.nodes if n.op == CALL and n.target is draw]
    calls = [(inputs.index(n.args[0]), n.args[1:]) for n in draws]
    first = next(n for n in graph.nodes if n.op != PLACEHOLDER)
    with graph.inserting_before(first):
        new = [graph.placeholder(n.name, n.val) for n in draws]
    for node, other in zip(draws, new, strict=True):
        node.replace_all_uses_with(other)
        graph.erase_node(node)
    sources = {i for i, _ in calls if not inputs[i].users}
    kept = [i for i in range(len(inputs)) if i not in sources]
    for i in sources:
        graph.erase_node(inputs[i])
    run: Any = build(GraphModule(graph, name=module.__name__, place=module.place))

    def forward(*leaves: Any) -> Any:
        drawn = [draw(leaves[i], *given) for i, given in calls]
        return run(*[leaves[i] for i in kept], *drawn)

    made: Any = forward
    made.explain, made.code = getattr(run, "explain", list), getattr(run, "code", None)
    made.release = getattr(run, "release", None)
    return made  # type: ignore[no-any-return]  # a function
