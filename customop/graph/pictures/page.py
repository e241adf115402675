"""A page that shows the nodes of a graph: it folds, searches, and needs no network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from customop.arrays.kinds import is_array
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, Node
from customop.graph.pictures.costs import bytes_of, cost_of, is_estimate, shape_of
from customop.graph.pictures.facts import (
    argument_text,
    graphs_in,
    target_text,
    type_of,
    val_of,
)
from customop.pages.blocks import mono
from customop.pages.markup import visible
from customop.pages.write import application, frame

if TYPE_CHECKING:
    from customop.graph.module import GraphModule

__all__ = ["notebook_html", "page_html"]

# Nodes that a notebook shows: its file keeps all that it shows.
_MOST_IN_NOTEBOOK = 20_000


def page_html(module: GraphModule, most: int | None = None) -> str:
    """A whole page in HTML.

    Parameters
    ----------
    module : GraphModule
    most : int, optional
        The largest number of nodes to show.
    """
    files = ("graph.css", "graph.html", "graph.js")
    name = str(module.__name__)
    return application(
        name, "customop.graph.pictures", files, _Page(module, most).as_json()
    )


def notebook_html(module: GraphModule) -> str:
    """The page in a frame of a notebook."""
    text = page_html(module, _MOST_IN_NOTEBOOK)
    return frame(text, instead=[mono(repr(module))])


class _Page:
    """The data of a page."""

    def __init__(self, module: GraphModule, most: int | None) -> None:
        self._module = module
        self._most = most
        self._rows: list[list[Any]] = []
        self._texts: dict[str, int] = {}
        # Graphs around the one that is being added.
        self._open: list[GraphModule] = []
        self._left_out = 0
        self._constants: dict[int, Any] = {}

    def as_json(self) -> dict[str, Any]:
        """The graph as data for the script of the page."""
        self._add(self._module, -1, 0)
        calls = [row for row in self._rows if row[9]]
        note = f"{self._left_out} nodes are left out: draw('graph.html') has all"
        return {
            "title": visible(str(self._module.__name__)),
            "count": sum(row[2] != "graph" for row in self._rows),
            "flops": sum(row[8] for row in calls),
            "bytes": sum(row[7] for row in self._rows if row[2] != CONSTANT),
            "constants": sum(map(bytes_of, self._constants.values())),
            "note": note if self._left_out else "",
            "texts": [*self._texts],
            "rows": self._rows,
        }

    def _add(self, module: GraphModule, parent: int, level: int) -> None:
        if any(module is outer for outer in self._open):
            return
        self._open.append(module)
        self._constants.update((id(c), c) for c in module.constants.values())
        numbers: dict[Node, int] = {}
        depths: dict[Node, int] = {}
        for node in module.graph.nodes:
            if self._most is not None and len(self._rows) >= self._most:
                self._left_out += 1
                continue
            inputs = [n for n in node.inputs if n in numbers]
            depths[node] = 1 + max((depths[n] for n in inputs), default=-1)
            numbers[node] = len(self._rows)
            row = self._row(node, depths[node])
            self._rows.append([parent, level, *row])
            self._rows[-1][14] = [numbers[n] for n in inputs]
            for name, inner in graphs_in(node):
                self._add_part(name, inner, numbers[node], level + 1)
        self._open.pop()

    def _add_part(
        self, name: str, module: GraphModule, parent: int, level: int
    ) -> None:
        """A graph among the arguments of a node, under a row of its own."""
        title = self._text(f"graph of {module.graph.count} nodes")
        none = self._text("")
        row = [parent, level, "graph", visible(name), title, none, "", 0, 0, 0, 0, none]
        self._rows.append([*row, 0, "", [], none])
        self._add(module, len(self._rows) - 1, level + 1)

    def _row(self, node: Node, depth: int) -> list[Any]:
        val = val_of(node)
        cost = cost_of(node)
        has_bytes = node.op not in (OUTPUT, ITEM)
        schema = (
            f"{node.target.qualname}{node.target.schema}" if node.op == CALL else ""
        )
        return [
            node.op,
            visible(node.name),
            self._text(_label(node)),
            self._text(type_of(node)),
            "x".join(map(str, shape_of(val))) if is_array(val) else "",
            bytes_of(val) if has_bytes else 0,
            cost.number,
            int(cost.is_flops),
            int(is_estimate(val)),
            self._text(str(node.meta.get("place") or "")),
            depth,
            visible(_arguments(node)),
            [],
            self._text(schema),
        ]

    def _text(self, text: str) -> int:
        """The number of a text, which many rows have."""
        return self._texts.setdefault(visible(text), len(self._texts))


def _label(node: Node) -> str:
    if node.op == CALL:
        return target_text(node)
    return f"[{node.args[1]!r}]" if node.op == ITEM else str(node.op)


def _arguments(node: Node) -> str:
    if node.op not in (CALL, OUTPUT):
        return ""
    if node.op == OUTPUT:
        return argument_text(node.args[0])
    names = [p.name for p in node.target.schema.positional]
    pairs = [*zip(names, node.args, strict=False), *node.kwargs.items()]
    return "\n".join(f"{name} = {argument_text(value)}" for name, value in pairs)
