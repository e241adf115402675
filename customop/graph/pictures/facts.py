"""Texts of pictures about a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from customop.arrays.nested import flat
from customop.core.table import RuleTable
from customop.graph.node import CALL, CONSTANT, OUTPUT, Node
from customop.graph.text import type_text

if TYPE_CHECKING:
    from customop.graph.module import GraphModule

__all__ = ["argument_text", "graphs_in", "target_text", "type_of", "val_of"]

_LONGEST = 60


def graphs_in(node: Node) -> list[tuple[str, GraphModule]]:
    """The graphs that a node calls or has among its arguments, each with a name."""
    if node.op != CALL:
        return []
    # An operator that is asked for another name seeks a near one for its message: 3 ms.
    if not isinstance(node.target, RuleTable):
        return [(str(node.target.__name__), node.target)]
    names = [p.name for p in node.target.schema.positional]
    values = [*zip(names, node.args, strict=False), *node.kwargs.items()]
    return [
        (name, leaf)
        for name, value in values
        for leaf in flat(value)
        if hasattr(leaf, "in_spec")
    ]


def target_text(node: Node) -> str:
    """The operator of a call as users know it; ``np::sin`` is ``sin``."""
    name: str = node.target.qualname
    return name.removeprefix("np::")


def type_of(node: Node) -> str:
    """The type of the value of a node, in short."""
    if node.op == OUTPUT:
        return ""
    return type_text(val_of(node))


def val_of(node: Node) -> Any:
    """Return the fake array or other value that a node has in `meta`; a constant's own."""
    found = node.meta.get("val")
    if found is None and node.op == CONSTANT:
        return node.graph.constants.get(node.target)
    return found


def argument_text(value: Any) -> str:
    """An argument of a call, with the names of nodes."""
    if isinstance(value, Node):
        return value.name
    if hasattr(value, "in_spec"):
        return f"<graph {value.__name__}>"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(argument_text, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside}{',' if len(value) == 1 else ''})"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
