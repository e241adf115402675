"""A compiled function on the tape of reverse mode: one node for all of its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from customop.arrays.kinds import is_traced
from customop.compiling.calls import strict_settings
from customop.compiling.entries import code_of
from customop.core.generated import generate
from customop.core.observe import observers, open_modes
from customop.graph.module import GraphModule
from customop.graph.node import CALL
from customop.transforms.autograd.node import GradNode

if TYPE_CHECKING:
    from customop.compiling.grad_entry import GradEntry

__all__ = ["BackwardCode", "CompiledNode"]


class BackwardCode:
    """The code of a backward graph.

    Parameters
    ----------
    module : GraphModule
        As it was captured.
    code : callable
        Of its inputs; returns a list of gradients.
    count : int
        How many inputs it has.
    title : str
    has_gradient : sequence of bool
        For each argument with a gradient, whether one is returned.
    lift : callable
        The graph on values of other transforms.

    Attributes
    ----------
    run : callable
        Takes a list of the inputs in reverse order, and empties it: so an array that
        nobody else has is freed after its last use.
    """

    def __init__(
        self,
        module: GraphModule,
        code: Callable[..., list[Any]],
        count: int,
        title: str,
        has_gradient: Sequence[bool],
        lift: Callable[..., list[Any]],
    ) -> None:
        nodes = [node for node in module.graph.nodes if node.op == CALL]
        # A graph that draws must be seen by a vmap around it.
        has_effects = any(node.has_effects for node in nodes)
        self.lift: Callable[..., list[Any]] | None = None if has_effects else lift
        self.module: GraphModule = module
        self.code: Callable[..., list[Any]] = code
        # Of the arguments with a gradient, the numbers of those that get one.
        self.numbers: list[int] = [i for i, has in enumerate(has_gradient) if has]
        # Python hands arguments of a call in this form over: the caller keeps none.
        given = ", ".join(["take()"] * count)
        text = f"def pull(given):\n    take = given.pop\n    return run({given})\n"
        name = f"gradient of {title}"
        self.run: Callable[[list[Any]], list[Any]] = generate(
            name, text, "pull", {"run": code}
        )

    @property
    def text(self) -> str:
        """The Python code of the graph."""
        return code_of(self.code, self.module)


class CompiledNode(GradNode):
    """One call of a compiled function under reverse mode."""

    __slots__ = ()
    node_takes_sums = True
    node_entry: GradEntry
    # Of the arguments, where sizes are symbolic.
    node_shapes: Any = None
    # Whether it was called with values of other transforms.
    node_is_nested: bool = False

    @staticmethod
    def node_pull(
        node: CompiledNode, grads: list[Any], sums: list[Any], retain: bool
    ) -> list[tuple[Any, Any]]:
        """The origin of each tracked argument, with its gradient."""
        edges = node.node_edges or ()
        is_nested = node.node_is_nested
        is_nested = is_nested or any(map(is_traced, grads)) or any(map(is_traced, sums))
        code = node.node_entry.backward(grads, sums, node.node_shapes)
        given = [v for v in (*node.saved_arrays, *grads, *sums) if v is not None]
        grads.clear()
        sums.clear()
        if not retain:
            node.node_edges = None
            node.saved_arrays = ()
        lift = code.lift
        if open_modes or strict_settings or observers or (is_nested and lift is None):
            found = code.module.run_list(*given)
        elif is_nested and lift is not None:
            found = lift(*given)
        else:
            given.reverse()
            found = code.run(given)
        origins = [edges[i][2] for i in code.numbers]
        return [*zip(origins, found, strict=True)]
