"""Draw graphs as SVG and PNG: boxes in layers, each below the boxes it depends on.

Source: Sugiyama, Tagawa and Toda, Methods for visual understanding of hierarchical
system structures, 1981. The order in a row comes from the mean of the neighbors. The
places in a row come from least squares with a least distance.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from customop.errors import ArgumentError, printable, shown
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.pictures.graph_page import (
    graphs_in,
    page_html,
    target_text,
    type_of,
)

if TYPE_CHECKING:
    from customop.graph.module import GraphModule


# ---- a layered layout ----
# Boxes are in rows, each box below those it depends on, with few crossings.


_GAP = 22.0  # between boxes of a row
_ROW_GAP = 34.0
# With more bends than this, edges are drawn straight.
_MOST_BENDS = 40_000
_SWEEPS = 6


class Layout:
    """The places of boxes and edges.

    Attributes
    ----------
    width, height : float
    x, y : list of float
        The middle of the upper side of each box.
    edges : list of list of tuple
        The points of each edge, down to the upper side of a box. An edge begins at the
        lower side of another box. It may also begin at a bend of that box's longest
        edge, with which it shares a line up to there.
    """

    def __init__(self) -> None:
        self.width: float = 0.0
        self.height: float = 0.0
        self.x: list[float] = []
        self.y: list[float] = []
        self.edges: list[list[tuple[float, float]]] = []


def lay_out(
    widths: Sequence[float],
    height: float,
    edges: Sequence[tuple[int, int]],
    late: Sequence[bool],
) -> Layout:
    """Give each box a place.

    Parameters
    ----------
    widths : sequence of float
        The widths of the boxes.
    height : float
        The height of each box.
    edges : sequence of tuple
        Pairs of boxes; the first comes earlier in the list of boxes.
    late : sequence of bool
        For each box: whether it has no inputs and belongs just above its first user.

    Returns
    -------
    Layout
        It takes time in proportion to the boxes and edges, apart from sorting the rows.
    """
    rows = _rows_of(len(widths), edges, late)
    chains = _Chains(rows, edges, list(widths))
    order = _ordered(chains)
    x = _placed(order, chains)
    least = min((x[i] - chains.widths[i] / 2 for i in range(len(x))), default=0.0)
    found = Layout()
    found.x = [place - least for place in x[: len(widths)]]
    found.y = [row * (height + _ROW_GAP) for row in rows]
    bends = [place - least for place in x]
    for (first, last), through in zip(edges, chains.through, strict=True):
        start = (found.x[first], found.y[first] + height)
        points = _points(through, bends, chains.rows, height)
        is_branch = bool(through) and chains.rows[through[0]] > rows[first] + 1
        upper = points[1:] if is_branch else [start, *points]
        found.edges.append([*upper, (found.x[last], found.y[last])])
    found.width = max(
        (p + w / 2 for p, w in zip(found.x, widths, strict=True)), default=0
    )
    found.width = max([found.width, *(x for edge in found.edges for x, _ in edge)])
    found.height = max(found.y, default=0.0) + height
    return found


def _points(
    through: Sequence[int], x: Sequence[float], rows: Sequence[int], height: float
) -> list[tuple[float, float]]:
    """Return the points where an edge passes the rows between its boxes."""
    found = []
    for bend in through:
        top = rows[bend] * (height + _ROW_GAP)
        found += [(x[bend], top), (x[bend], top + height)]
    return found


def _rows_of(
    count: int, edges: Sequence[tuple[int, int]], late: Sequence[bool]
) -> list[int]:
    """Return the row of each box, below all boxes that it depends on."""
    rows = [0] * count
    first_use = [0] * count
    for first, last in sorted(edges, key=lambda edge: edge[1]):
        rows[last] = max(rows[last], rows[first] + 1)
    for first, last in edges:
        used = first_use[first]
        first_use[first] = min(used, rows[last]) if used else rows[last]
    return [
        first_use[i] - 1 if late[i] and first_use[i] else rows[i] for i in range(count)
    ]


class _Chains:
    """Boxes, and bends where edges cross rows; all bends of a box form one chain."""

    def __init__(
        self, rows: list[int], edges: Sequence[tuple[int, int]], widths: list[float]
    ) -> None:
        self.rows = [*rows]
        self.widths = widths
        # For each edge the bends that it passes.
        self.through: list[list[int]] = []
        # Pairs of boxes or bends that are joined, one row apart.
        self.pairs: list[tuple[int, int]] = []
        reach = self._reach(rows, edges)
        has_bends = sum(reach) <= _MOST_BENDS
        made: dict[int, list[int]] = {}
        drawn: set[int] = set()
        joined: set[tuple[int, int]] = set()
        for first, last in edges:
            count = rows[last] - rows[first] - 1 if has_bends else 0
            chain = made.get(first)
            if chain is None:
                bends = reach[first] if has_bends else 0
                chain = [self._bend(rows[first] + i + 1) for i in range(bends)]
                made[first] = chain
                joined.update(pairwise((first, *chain)))
            joined.add((chain[count - 1] if count else first, last))
            # The longest edge has all bends, the others only their last one.
            is_whole = count == reach[first] and first not in drawn
            if is_whole:
                drawn.add(first)
            self.through.append(chain[0 if is_whole else max(count - 1, 0) : count])
        self.pairs = sorted(joined)

    @staticmethod
    def _reach(rows: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[int]:
        """Return for each box over how many rows its edges go."""
        found = [0] * len(rows)
        for first, last in edges:
            found[first] = max(found[first], rows[last] - rows[first] - 1)
        return found

    def _bend(self, row: int) -> int:
        self.rows.append(row)
        self.widths.append(2.0)
        return len(self.rows) - 1


def _neighbors(chains: _Chains) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in chains.rows]
    below: list[list[int]] = [[] for _ in chains.rows]
    for first, last in chains.pairs:
        above[last].append(first)
        below[first].append(last)
    return above, below


def _ordered(chains: _Chains) -> list[list[int]]:
    """Return the boxes and bends of each row from left to right."""
    order: list[list[int]] = [[] for _ in range(max(chains.rows, default=-1) + 1)]
    for box, number in enumerate(chains.rows):
        order[number].append(box)
    above, below = _neighbors(chains)
    place = [0.0] * len(chains.rows)
    for row in order:
        _number(row, place)
    for sweep in range(_SWEEPS):
        neighbors = below if sweep % 2 else above
        for row in reversed(order) if sweep % 2 else order:
            row.sort(key=lambda box: _mean(box, neighbors[box], place))
            _number(row, place)
    return order


def _number(row: Sequence[int], place: list[float]) -> None:
    for i, box in enumerate(row):
        place[box] = float(i)


def _mean(box: int, neighbors: Sequence[int], place: Sequence[float]) -> float:
    if not neighbors:
        return place[box]
    return sum(place[other] for other in neighbors) / len(neighbors)


def _placed(order: Sequence[Sequence[int]], chains: _Chains) -> list[float]:
    """Return the middle of each box: near its neighbors, without overlaps in a row."""
    above, below = _neighbors(chains)
    x = [0.0] * len(chains.rows)
    for row in order:
        _spread(row, [0.0] * len(row), chains.widths, x)
    for sweep in range(_SWEEPS):
        neighbors = below if sweep % 2 else above
        for row in reversed(order) if sweep % 2 else order:
            wanted = [_mean(box, neighbors[box], x) for box in row]
            _spread(row, wanted, chains.widths, x)
    return x


def _spread(
    row: Sequence[int],
    wanted: Sequence[float],
    widths: Sequence[float],
    x: list[float],
) -> None:
    """Put the boxes of a row as close to their wanted places as their widths allow.

    After subtracting the widths before each box, the places must not decrease.
    Neighbors that would decrease are averaged, which is the least-squares solution.
    """
    offsets, offset = [], 0.0
    for left, box in zip((None, *row), row, strict=False):
        if left is not None:
            offset += (widths[left] + widths[box]) / 2 + _GAP
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []  # sum of places, number of places
    for place, before in zip(wanted, offsets, strict=True):
        total, count = place - before, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            more, others = blocks.pop()
            total, count = total + more, count + others
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    for box, mean, before in zip(row, means, offsets, strict=True):
        x[box] = mean + before


# ---- drawings of graphs ----
# Each node is a box. PNG files are drawn by matplotlib.


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
# Length of the longest side of a PNG in pixels.
_MOST_PIXELS = 16_000


class Box(NamedTuple):
    """A node as drawn: a rectangle with lines of text, and a text shown on hover."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    hover: str
    colors: tuple[str, str]


class Drawing:
    """A drawing of a graph, which notebooks can show.

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
        """Add a graph below those already drawn."""
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
        """Draw with matplotlib, whose unit is the point, 1/72 inch."""
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
    # Not all fonts have other characters.
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
    """Return a text for XML: markup escaped, characters that XML forbids replaced."""
    plain = "".join(c if _is_xml(c) else "\ufffd" for c in printable(text))
    for sign, name in _ENTITIES:
        plain = plain.replace(sign, name)
    return plain


_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"))


def _is_xml(letter: str) -> bool:
    """Return whether XML 1.0 allows a character."""
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
    """Return the control points of a curve that leaves and arrives vertically."""
    middle = (first[1] + last[1]) / 2
    return [(first[0], middle), (last[0], middle), last]


# ---- nodes ----


def _all_graphs(module: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    """Yield a graph and the graphs inside it, each once, with titles."""
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
    """Return the lines of a node: name and operator, type, and place."""
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
    """Return the hover text and the colors of a node."""
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
