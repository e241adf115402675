"""Random generators in a captured function: their draws are calls in the graph.

A generator is an input or a constant of the graph, and each draw the call of an operator.
So the graph draws again whenever it runs, in the same order. Tracing draws from a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from customop.errors import GraphError
from customop.transforms.drawing import drawing_class, refused
from customop.transforms.generators import DrawWatch, name_of, sources

if TYPE_CHECKING:
    from customop.transforms.trace.interpreter import Trace

__all__ = ["check_undrawn", "traced_generator", "watch_of"]


@cache
def _class() -> type[Any]:
    class TracedGenerator(drawing_class()):  # type: ignore[misc]  # made at run time
        """A generator whose draws are calls in a graph."""

        when = "while a graph is traced"
        state = "its bits and its state would be constants of the graph"
        error_class = GraphError
        trace: Trace
        node: Any

        def begin(self, name: str) -> None:
            if not self.trace.alive:
                raise refused(
                    self, name, "after the trace has ended", "use the generator itself"
                )

    return TracedGenerator


def traced_generator(trace: Trace, node: Any, copy: np.random.Generator) -> Any:
    """A generator of a trace.

    Parameters
    ----------
    trace : Trace
    node : Node
        The input or constant.
    copy : Generator
        Draws what tracing needs.
    """
    made = _class()(copy.bit_generator)
    made.trace, made.node, made.source = trace, node, copy
    return made


# ---- other draws ----


def watch_of(fn: Callable[..., Any], leaves: Sequence[Any]) -> DrawWatch:
    """Notes generators that are drawn from so that no operator sees it."""
    return DrawWatch(sources(fn, leaves))


def check_undrawn(watch: DrawWatch, what_runs: str) -> None:
    """Raise for draws that would be constants of the graph.

    `what_runs` is such as ``make_fx of loss``.
    """
    watch.look()
    if watch.drawn:
        what = name_of(watch.drawn[0])
        raise GraphError(
            f"{what_runs}: the function draws from {what}, whose numbers would be"
            " constants of the graph",
            do="pass a np.random.Generator as an argument, and draw from it",
        )
