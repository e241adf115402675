"""Kernels: groups of pointwise calls that run as one piece of machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CONSTANT

__all__ = ["Kernel", "is_in_c_order"]


class Kernel(GraphModule):
    """The graph of a group, and a function that computes the same at once.

    Parameters
    ----------
    group : GraphModule
    fused : callable
        Takes the inputs of the group, then its constants, and returns its only result.
    can_run : callable
        Of the same: whether `fused` gives what the calls give, one after the other; if
        not, those are made.
    """

    def __init__(
        self,
        group: GraphModule,
        fused: Callable[..., Any],
        can_run: Callable[..., bool],
    ) -> None:
        super().__init__(group.graph, name=group.name, place=group.place)
        self.fused: Callable[..., Any] = fused
        self._can_run = can_run
        self._constants = tuple(
            group.graph.constants[n.target]
            for n in group.graph.nodes
            if n.op == CONSTANT
        )

    def with_graph(self, graph: Graph) -> GraphModule:
        """The kernel itself: passes that simplify its graph change no result of it."""
        return self

    def run(self, *leaves: Any) -> Any:
        """Compute the result of the group."""
        given = (*leaves, *self._constants)
        if not self._can_run(*given):
            return super().run(*leaves)
        try:
            return self.fused(*given)
        except FloatingPointError:
            # The calls themselves warn or raise, each by its own name.
            return super().run(*leaves)


def is_in_c_order(arrays: Iterable[Any]) -> bool:
    """Whether ufuncs of these give results in C order, in whatever steps.

    A ufunc lays out its result as its operands are laid out. Axes of stride 0 have no
    say. Source: NumPy's ``order="K"``. Numbers of Python are left to the calls.
    """
    return all(
        type(a) not in (int, float) and (a.flags.c_contiguous or _descends(a.strides))
        for a in arrays
    )


def _descends(strides: tuple[int, ...]) -> bool:
    steps = [step for step in strides if step]
    return all(step > 0 for step in steps) and steps == sorted(steps, reverse=True)
