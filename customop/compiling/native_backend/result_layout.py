"""Results of a table as arrays, which may be views of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from customop.compiling.native_backend.door import DoorResult
from customop.compiling.native_backend.memory import COPIED, span_of
from customop.compiling.native_backend.planning import TablePlan
from customop.compiling.native_backend.ufunc_loops import NotNative
from customop.graph.node import CONSTANT, PLACEHOLDER, Node
from customop.shapes.sizes import Symbolic


class Finished(list[Any]):
    """The results of NumPy's code, of which nothing is to be made."""


class ResultPlan:
    """The results of a table.

    A result that is a view is made in Python, by the call that makes it in NumPy, of an
    array that the door gives.

    Attributes
    ----------
    of_door : list of DoorResult
    is_finished_in_python : bool
        Whether the results are not those of the door.
    """

    def __init__(self, plan: TablePlan, placeholders: Sequence[Node]) -> None:
        self.of_door: list[DoorResult] = []
        self._plan: TablePlan = plan
        self._placeholders: Sequence[Node] = placeholders
        # A value of which results are made -> its place among those that a call makes:
        # first those of the door, then the views.
        self._place_of: dict[Node, int] = {}
        # Views: the place of the value that it is a view of, the kernel, its arguments.
        self._views: list[tuple[int, Any, Sequence[Any]]] = []
        self._islands: list[tuple[int, Any]] = []
        others = [self._root(node) for node in plan.out_nodes]
        self._places: list[int] = [
            place if isinstance(place, int) else self._view_place(node)
            for place, node in zip(others, plan.out_nodes, strict=True)
        ]
        count = len(self.of_door)
        self.is_finished_in_python: bool = bool(
            self._islands or self._places != [*range(count)]
        )

    def finishing(self, door: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls the door, and makes the other results."""
        views, islands, places = self._views, self._islands, self._places

        def run(*leaves: Any) -> list[Any]:
            found = door(*leaves)
            if type(found) is Finished:
                return [*found]
            for place, island in islands:
                if island.gave_scalar:
                    found[place] = found[place][()]
            for place, kernel, others in views:
                found.append(kernel(found[place], *others))
            return [found[place] for place in places]

        return run

    def _root(self, node: Any) -> int | None:
        """Have the door give what a result is made of; return its place if it is that."""
        plan = self._plan
        if not isinstance(node, Node):
            value = plan.size(node) if isinstance(node, Symbolic) else node
            self.of_door.append(DoorResult("object", _NO_DTYPE, value=value))
            return len(self.of_door) - 1
        root = node
        while root in plan.views:
            root = plan.views[root][0]
        place = self._place_of.get(root)
        if place is None:
            place = self._place_of[root] = len(self.of_door)
            self.of_door.append(self._of_root(root))
            island = plan.classes.get(root)
            if island is not None:
                self._islands.append((place, island))
        return place if root is node else None

    def _view_place(self, node: Node) -> int:
        """Return the place of a view, which is made once in a call."""
        place = self._place_of.get(node)
        if place is None:
            source, kernel, others = self._plan.views[node]
            below = self._view_place(source)
            place = self._place_of[node] = len(self.of_door) + len(self._views)
            self._views.append((below, kernel, others))
        return place

    def _of_root(self, node: Node) -> DoorResult:
        """Return the result of the door for a value that is not a view."""
        plan = self._plan
        if node.op == PLACEHOLDER:
            number = self._placeholders.index(node)
            return DoorResult("input", _NO_DTYPE, number=number)
        if node.op == CONSTANT:
            constant = plan.module.graph.constants[node.target]
            return DoorResult("object", _NO_DTYPE, value=constant)
        value = plan.arrays[node]
        if not isinstance(value, np.ndarray):
            raise NotNative(f"the result {node} is not an array")
        low, high = span_of(value)
        if high - low != value.nbytes:
            raise NotNative(f"the result {node} has gaps in its memory")
        # Not `flags.c_contiguous`, which does not look at axes of one item.
        in_c_order = np.empty(value.shape, value.dtype).strides
        points = (
            value.nbytes > COPIED and plan.owns(node) and not plan.touches(low, high)
        )
        return DoorResult(
            "scalar" if node in plan.scalars else "new",
            value.dtype,
            value.shape,
            None if value.strides == in_c_order else value.strides,
            low,
            low,
            high,
            is_copied=not points,
        )


# For results that are given as they are.
_NO_DTYPE: Final = np.dtype(np.uint8)
