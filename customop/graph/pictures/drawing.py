"""Drawings of graphs: a box for each node, as SVG, and as PNG through matplotlib."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from customop.errors import ArgumentError, printable, shown
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.pictures.facts import graphs_in, target_text, type_of
from customop.graph.pictures.layers import Layout, lay_out
from customop.graph.pictures.page import page_html

if TYPE_CHECKING:
    from customop.graph.module import GraphModule

__all__ = ["Drawing", "draw"]

# Fill and outline of the box of each kind of node.
_COLORS = {
    PLACEHOLDER: ("#dbeafe", "#3b82f6"),
    CONSTANT: ("#f1f5f9", "#94a3b8"),
    CALL: ("#ffffff", "#64748b"),
    ITEM: ("#f8fafc", "#94a3b8"),
    OUTPUT: ("#dcfce7", "#22c55e"),
}
_WITH_GRAPHS = ("#fef3c7", "#d97706")
_LETTER, _LINE, _PAD = 6.7, 15.0, 8.0
_LONGEST = 42
_MARGIN = 20.0
_TITLE = 26.0
# The longest side of a PNG in pixels.
_MOST_PIXELS = 16_000


class Box(NamedTuple):
    """A node as it is drawn: lines of text in a rectangle, and a text to hover over."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    hover: str
    colors: tuple[str, str]


class Drawing:
    """A drawing of a graph, which notebooks show.

    Attributes
    ----------
    width, height : float, pixels
    svg : str
        The drawing as SVG.
    """

    def __init__(self, module: GraphModule) -> None:
        self.width: float = 0.0
        self.height: float = _MARGIN
        self._boxes: list[Box] = []
        self._edges: list[list[tuple[float, float]]] = []
        self._titles: list[tuple[float, float, str]] = []
        for title, inner in _all_graphs(module):
            self._add(title, inner)
        self.width += 2 * _MARGIN

    def __repr__(self) -> str:
        return f"<Drawing of {len(self._boxes)} nodes>"

    def _add(self, title: str, module: GraphModule) -> None:
        """Add a graph below those that are there."""
        nodes = [*module.graph.nodes]
        numbers = {node: i for i, node in enumerate(nodes)}
        texts = [_lines_of(node) for node in nodes]
        widths = [max(map(len, lines)) * _LETTER + 2 * _PAD for lines in texts]
        height = 3 * _LINE + _PAD
        edges = [(numbers[n], i) for i, node in enumerate(nodes) for n in node.inputs]
        layout = lay_out(widths, height, edges, [n.op == CONSTANT for n in nodes])
        self._titles.append((_MARGIN, self.height + 14, _shortened(title, 200)))
        top = self.height + _TITLE
        for i, node in enumerate(nodes):
            left = layout.x[i] - widths[i] / 2 + _MARGIN
            self._boxes.append(
                Box(left, layout.y[i] + top, widths[i], height, texts[i], *_looks(node))
            )
        self._add_edges(layout, top)
        title_width = len(self._titles[-1][2]) * _LETTER
        self.width = max(self.width, layout.width, title_width)
        self.height = top + layout.height + _MARGIN

    def _add_edges(self, layout: Layout, top: float) -> None:
        for points in layout.edges:
            self._edges.append([(x + _MARGIN, y + top) for x, y in points])

    # ---- SVG ----

    @property
    def svg(self) -> str:
        """The drawing as the text of an SVG file."""
        return "\n".join(self._svg_lines()) + "\n"

    def _repr_svg_(self) -> str:
        return self.svg

    def _svg_lines(self) -> Iterator[str]:
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        box = f'viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box}>'
        yield _STYLE
        yield '<rect width="100%" height="100%" fill="#fff"/>'
        for points in self._edges:
            yield f'<path class="e" d="{_path(points)}" marker-end="url(#a)"/>'
        for x, y, text in self._titles:
            yield f'<text class="t" x="{x:.1f}" y="{y:.1f}">{escaped(text)}</text>'
        for drawn in self._boxes:
            yield from _svg_box(drawn)
        yield "</svg>"

    # ---- files ----

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the drawing to a file.

        Parameters
        ----------
        path : path
            It ends in ``.svg``, or in ``.png``, which needs matplotlib.

        Raises
        ------
        ArgumentError
            If it ends in something else, or matplotlib is not installed.
        """
        end = Path(path).suffix.lower()
        if end == ".svg":
            Path(path).write_text(self.svg, encoding="utf-8")
        elif end == ".png":
            self._save_png(path)
        else:
            raise ArgumentError(
                f"draw: {shown(os.fspath(path))} is neither an SVG nor a PNG file",
                do='write a path that ends in ".svg", ".png" or ".html"',
            )

    def _save_png(self, path: str | os.PathLike[str]) -> None:
        try:
            from matplotlib.figure import Figure  # noqa: PLC0415  # optional
        except ImportError as error:
            raise ArgumentError(
                f"draw: a PNG needs matplotlib: {error}",
                do="pip install 'customop[draw]', or write an SVG file",
            ) from None
        scale = min(1.0, _MOST_PIXELS / max(self.width, self.height))
        figure = Figure(figsize=(self.width / 100, self.height / 100), dpi=100 * scale)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, self.width)
        axes.set_ylim(self.height, 0)
        axes.set_axis_off()
        self._paint(axes)
        figure.savefig(path)

    def _paint(self, axes: Any) -> None:
        """Draw with matplotlib, whose units are points of 1/72 inch."""
        from matplotlib.patches import FancyBboxPatch, PathPatch  # noqa: PLC0415
        from matplotlib.path import Path as Outline  # noqa: PLC0415

        for points in self._edges:
            steps, corners = [Outline.MOVETO], [points[0]]
            for first, last in pairwise(points):
                steps += [Outline.CURVE4] * 3
                corners += _bezier(first, last)
            line = Outline(corners, steps)
            axes.add_patch(PathPatch(line, fill=False, edgecolor="#94a3b8", lw=0.8))
        for box in self._boxes:
            fill, outline = box.colors
            shape = FancyBboxPatch(
                (box.x, box.y),
                box.width,
                box.height,
                boxstyle="round,pad=0,rounding_size=5",
                facecolor=fill,
                edgecolor=outline,
                lw=0.9,
            )
            axes.add_patch(shape)
            for i, line_text in enumerate(box.lines):
                x, y = box.x + _PAD, box.y + _PAD / 2 + (i + 0.5) * _LINE
                _paint_text(axes, x, y, line_text, bold=i == 0)
        for x, y, text in self._titles:
            _paint_text(axes, x, y, text, bold=True)


def _paint_text(axes: Any, x: float, y: float, text: str, *, bold: bool) -> None:
    # Not all fonts have more.
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    axes.text(
        x,
        y,
        plain,
        size=7.6,
        family="monospace",
        weight="bold" if bold else "normal",
        va="center",
        parse_math=False,
    )


_STYLE = """<style>
text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #0f172a }
.n { font-weight: 700 } .t { font-size: 13px; font-weight: 700 } .p { fill: #64748b }
.e { fill: none; stroke: #94a3b8 }
</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" \
markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#94a3b8"/></marker></defs>"""
_CLASSES = ("n", "", "p")


def _svg_box(box: Box) -> Iterator[str]:
    fill, outline = box.colors
    yield f"<g><title>{escaped(box.hover)}</title>"
    yield (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"'
        f' height="{box.height:.1f}" rx="5" fill="{fill}" stroke="{outline}"/>'
    )
    for i, (line, name) in enumerate(zip(box.lines, _CLASSES, strict=False)):
        y = box.y + _PAD / 2 + (i + 0.5) * _LINE + 4
        kind = f' class="{name}"' if name else ""
        yield f'<text{kind} x="{box.x + _PAD:.1f}" y="{y:.1f}">{escaped(line)}</text>'
    yield "</g>"


def escaped(text: str) -> str:
    """Text as XML has it: without signs that mean something, and control characters."""
    plain = "".join(c if _is_xml(c) else "\ufffd" for c in printable(text))
    for sign, name in _ENTITIES:
        plain = plain.replace(sign, name)
    return plain


_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"))


def _is_xml(letter: str) -> bool:
    """Whether XML 1.0 can hold a character."""
    code = ord(letter)
    return code in (9, 10, 13) or 32 <= code < 0xFFFE or code > 0xFFFF


def _path(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    text, before = f"M{x:.1f} {y:.1f}", (x, y)
    for point in rest:
        corners = _bezier(before, point)
        text += "C" + " ".join(f"{a:.1f} {b:.1f}" for a, b in corners)
        before = point
    return text


def _bezier(
    first: tuple[float, float], last: tuple[float, float]
) -> list[tuple[float, float]]:
    """The corners of a curve that leaves and arrives upright."""
    middle = (first[1] + last[1]) / 2
    return [(first[0], middle), (last[0], middle), last]


# ---- nodes ----


def _all_graphs(module: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    """A graph and those inside it, each once, with titles."""
    waiting = [(module.__name__, module)]
    seen = set()
    while waiting:
        title, found = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield title, found
        for node in found.graph.nodes:
            for name, inner in graphs_in(node):
                waiting.append((f"{title} / {node.name}: {name}", inner))


def _lines_of(node: Node) -> tuple[str, ...]:
    """Name and operator, type, and place of a node."""
    first = node.name
    if node.op == CALL:
        called = target_text(node)
        first = called if node.name == called else f"{node.name} = {called}"
    elif node.op == ITEM:
        first = f"{node.name} = [{node.args[1]!r}]"
    place = str(node.meta.get("place") or "")
    lines = (first, type_of(node), place.replace("\\", "/").rpartition("/")[2])
    return tuple([_shortened(line, _LONGEST) for line in lines])


def _shortened(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _looks(node: Node) -> tuple[str, tuple[str, str]]:
    """The text to hover over, and the colors."""
    colors = _WITH_GRAPHS if graphs_in(node) else _COLORS.get(node.op, _COLORS[CALL])
    hover = [f"{node.name}: {type_of(node)}"]
    if node.op == CALL:
        hover.append(f"{node.target.qualname}{node.target.schema}")
    if node.meta.get("place"):
        hover.append(str(node.meta["place"]))
    return "\n".join(hover), colors


def draw(module: GraphModule, path: str | os.PathLike[str] | None = None) -> Drawing:
    """Draw a graph: see `GraphModule.draw`."""
    drawing = Drawing(module)
    if path is not None and Path(path).suffix.lower() == ".html":
        Path(path).write_text(page_html(module), encoding="utf-8")
    elif path is not None:
        drawing.save(path)
    return drawing
