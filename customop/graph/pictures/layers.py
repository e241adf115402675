"""A layered layout: boxes in rows, each below those it depends on, with few crossings.

Source: Sugiyama, Tagawa and Toda, Methods for visual understanding of hierarchical
system structures, 1981, with the mean of neighbors for the order, and least squares with
a least distance for the places in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["Layout", "lay_out"]

_GAP = 22.0  # between boxes of a row
_ROW_GAP = 34.0
# More bends than this, and edges are drawn straight.
_MOST_BENDS = 40_000
_SWEEPS = 6


class Layout:
    """Places of boxes and edges.

    Attributes
    ----------
    width, height : float
    x, y : list of float
        The middle of the upper side of each box.
    edges : list of list of tuple
        For each edge the points that it goes through, down to the upper side of a box.
        It begins at the lower side of another box, or at a bend of the longest edge of
        that box, with which it is one line before.
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
        Of the boxes.
    height : float
        Of all boxes.
    edges : sequence of tuple
        Pairs of boxes, of which the first comes earlier in the list of boxes.
    late : sequence of bool
        Boxes without inputs that belong just above the first box that uses them.

    Returns
    -------
    Layout
        It takes a time in proportion to boxes and edges, but for sorting the rows.
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
    """The points of an edge beside the boxes of the rows between."""
    found = []
    for bend in through:
        top = rows[bend] * (height + _ROW_GAP)
        found += [(x[bend], top), (x[bend], top + height)]
    return found


def _rows_of(
    count: int, edges: Sequence[tuple[int, int]], late: Sequence[bool]
) -> list[int]:
    """The row of each box: below all that it depends on."""
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
    """Boxes, and bends of edges that cross rows: all bends of a box are one chain."""

    def __init__(
        self, rows: list[int], edges: Sequence[tuple[int, int]], widths: list[float]
    ) -> None:
        self.rows = [*rows]
        self.widths = widths
        # For each edge the bends that it goes through.
        self.through: list[list[int]] = []
        # Boxes and bends that are joined, one row apart.
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
        """For each box, over how many rows its edges go."""
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
    """The boxes and bends of each row, from left to right."""
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
    """The middle of each box: near its neighbors, and not over others of its row."""
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
    """Put the boxes of a row as near to their places as their widths allow.

    Less the widths before each box, the places must not fall: neighbors that would are
    averaged, which is the best in the sense of least squares.
    """
    offsets, offset = [], 0.0
    for left, box in zip((None, *row), row, strict=False):
        if left is not None:
            offset += (widths[left] + widths[box]) / 2 + _GAP
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []  # the sum of places, and how many
    for place, before in zip(wanted, offsets, strict=True):
        total, count = place - before, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            more, others = blocks.pop()
            total, count = total + more, count + others
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    for box, mean, before in zip(row, means, offsets, strict=True):
        x[box] = mean + before
