"""Graphs as arguments of operators: constants, of which no transform sees a part."""

from __future__ import annotations

from customop.graph.module import GraphModule
from customop.schema.classes import ClassFields, declare
from customop.schema.types import ClassOf, classes

__all__ = ["GRAPH"]

# Its name in schemas.
GRAPH = "customop.GraphModule"


def _allow_graphs() -> None:
    GraphModule.__module__ = "customop"
    declare(GraphModule)
    fields = ClassFields(GraphModule, {}, frozenset(), None, False)
    classes[GRAPH] = ClassOf(GRAPH, fields, {})


_allow_graphs()
