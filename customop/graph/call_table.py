"""The calls of a large graph as rows of a table, which a loop runs.

Python's compiler takes 10 us and 1 KB of memory for a line: more than NumPy takes for the
call in it, if the arrays are small. A row takes 3 us to make, and 0.1 us more than its
line to run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from customop.arrays.nested import flat, has_field, refill
from customop.graph.graph import Graph
from customop.graph.guards import result_guards
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    Node,
    nodes_in,
)
from customop.progress import node_channel

# Takes the values of a run, and returns some of them.
Take = Callable[[list[Any]], Any]
# Returns the global name of what a call calls, and the arguments.
Called = Callable[[Node], tuple[str, Sequence[Any]]]


class CallTable:
    """The calls of a graph: the functions that they call, what they take and give.

    Each value has a place in a list. When nothing needs it any more, another value gets
    its place, or None.

    Parameters
    ----------
    graph : Graph
    called : callable
        Returns the global name of what a call calls, and the arguments.
    bind : callable
        Returns a global name for a function.

    Attributes
    ----------
    given : list of Node
        The inputs that are used. Their values have the first places.
    rest : list
        What is in the other places before the first row: constants, and None.
    callees : list of str
        For each row the global name of what it calls.
    firsts : list
        For each row the place of the first argument, or a function that takes all
        arguments from the values.
    seconds : list of int
        For each row the place of the second argument, `_ONE` or `_ANY`.
    gives : list of int
        For each row the place of the result.
    nodes : list of Node
        For each row the node that it runs.
    result : callable
        Takes the leaves of the result from the values.
    """

    def __init__(
        self, graph: Graph, called: Called, bind: Callable[[str, Any], str]
    ) -> None:
        self.given: list[Node] = [node for node in graph.inputs if node.users]
        self.callees: list[str] = []
        self.firsts: list[Any] = []
        self.seconds: list[int] = []
        self.gives: list[int] = []
        self.nodes: list[Node] = []
        self.result: Take = _none
        self._called = called
        self._bind = bind
        self._start: list[Any] = [None] * len(self.given)
        self._place: dict[Node, int] = {n: i for i, n in enumerate(self.given)}
        # How many nodes that are not in the table yet use a value.
        self._waits: dict[Node, int] = {n: len(n.users) for n in self.given}
        self._free: list[int] = []
        self._constants: dict[int, int] = {}
        self._takers: dict[tuple[int, ...], Take] = {}
        self._dropped: int = self._new(None)
        for node in node_channel.each(graph.nodes, "writing code", graph.count):
            self._add(node)
        self.rest: list[Any] = self._start[len(self.given) :]
        del self._place, self._waits, self._free, self._constants, self._takers

    def _add(self, node: Node) -> None:
        if node.op == CALL:
            self._add_row(node, *self._called(node))
        elif node.op == ITEM:
            whole, step = node.args
            part = getattr if has_field(whole.val, step) else operator.getitem
            self._add_row(node, self._bind(part.__name__, part), node.args)
        elif node.op == CONSTANT:
            self._place[node] = self._constant(node.graph.constants[node.target])
        elif node.op == OUTPUT:
            self.result = self._all(node.args[0])

    def _add_row(self, node: Node, callee: str, arguments: Sequence[Any]) -> None:
        how = self._how_to_take(arguments)
        ended = self._ended(node.inputs)
        self._free += ended
        place = self._free.pop() if self._free else self._new(None)
        self._append(node, callee, how, place)
        if node.is_checked:
            for guard in result_guards(node).values():
                check = self._bind("check", guard.check)
                self._append(node, check, (place, _ONE), self._dropped)
        if node.users:
            self._place[node] = place
            self._waits[node] = len(node.users)
        else:
            self._free.append(place)
            self._append(node, callee, (None, _FORGET), place)
        for other in ended:
            if other != place:
                self._append(node, callee, (None, _FORGET), other)

    def _append(
        self, node: Node, callee: str, how: tuple[Any, int], place: int
    ) -> None:
        first, second = how
        self.callees.append(callee)
        self.firsts.append(first)
        self.seconds.append(second)
        self.gives.append(place)
        self.nodes.append(node)

    # ---- places ----

    def _new(self, value: Any) -> int:
        self._start.append(value)
        return len(self._start) - 1

    def _constant(self, value: Any) -> int:
        """Return the place of a value that stays; that of one object is the same."""
        place = self._constants.get(id(value))
        if place is None:
            place = self._constants[id(value)] = self._new(value)
        return place

    def _ended(self, inputs: Sequence[Node]) -> list[int]:
        """Return the places of the values that nothing needs after a node of these inputs."""
        ended = []
        for used in inputs:
            waits = self._waits.get(used)
            if waits is None:  # a constant
                continue
            if waits == 1:
                del self._waits[used]
                ended.append(self._place.pop(used))
            else:
                self._waits[used] = waits - 1
        return ended

    # ---- arguments ----

    def _how_to_take(self, values: Sequence[Any]) -> tuple[Any, int]:
        """Return the first and second entry of a row with such arguments."""
        places = self._places(values)
        if places is None or not 0 < len(places) < 3:
            return self._taker(values, places), _ANY
        return places[0], places[1] if len(places) == 2 else _ONE

    def _places(self, values: Sequence[Any]) -> list[int] | None:
        """Return the places of arguments; None if one has to be made for each call."""
        places = []
        for value in values:
            if type(value) is Node:
                place = self._place[value]
            else:
                known = self._constants.get(id(value))
                if known is None and (type(value) in _MADE_AGAIN or nodes_in([value])):
                    return None
                place = self._constant(value) if known is None else known
            places.append(place)
        return places

    def _taker(self, values: Sequence[Any], places: list[int] | None) -> Take:
        """Return the function that takes all arguments."""
        if places is None:
            return self._one_list(values) or _all_of([self._part(v) for v in values])
        if len(places) < 2:  # of one place `itemgetter` takes the value itself
            return _all_of([itemgetter(place) for place in places])
        key = (*places,)
        if key not in self._takers:
            self._takers[key] = itemgetter(*key)
        return self._takers[key]

    def _all(self, values: Sequence[Any]) -> Take:
        return self._taker(values, self._places(values))

    def _one_list(self, values: Sequence[Any]) -> Take | None:
        """Return the same where one argument is a list, and no other one has parts."""
        at = [i for i, value in enumerate(values) if type(value) is list]
        if len(at) != 1:
            return None
        before, inside, after = values[: at[0]], values[at[0]], values[at[0] + 1 :]
        places = self._places([*before, *inside, *after])
        if places is None or len(places) < 2:
            return None
        return _with_list(self._taker((), places), at[0], at[0] + len(inside))

    def _part(self, value: Any) -> Take:
        """Return the function that takes one argument."""
        if type(value) is Node:
            return itemgetter(self._place[value])
        if type(value) is list:
            return _list_of(self._all(value))
        if type(value) is tuple:
            return _tuple_of(self._all(value))
        if nodes_in([value]):
            return _like(value, self._all(flat(value)))
        return itemgetter(self._constant(value))


# A kernel may write to a list that it gets, so each call gets a new one.
_MADE_AGAIN: Final = frozenset((list, tuple))
# In the place of a second argument: there is one argument, or a function takes all.
_ONE: Final = -1
_ANY: Final = -2
# Nothing is called: the place gets None.
_FORGET: Final = -3


def _none(_: list[Any]) -> tuple[()]:
    """Take no argument."""
    return ()


def _all_of(parts: Iterable[Take]) -> Take:
    return lambda values: [part(values) for part in parts]


def _with_list(take: Take, first: int, end: int) -> Take:
    """Return a function that takes all arguments, of which some are in a list."""

    def taken(values: list[Any]) -> Any:
        found = take(values)
        return *found[:first], [*found[first:end]], *found[end:]

    return taken


def _tuple_of(take: Take) -> Take:
    return lambda values: (*take(values),)


def _list_of(take: Take) -> Take:
    return lambda values: [*take(values)]


def _like(value: Any, take: Take) -> Take:
    return lambda values: refill(value, take(values))


class TableRun:
    """A table with the functions that its rows call.

    Parameters
    ----------
    table : CallTable
    names : mapping
        Global name -> function.
    """

    __slots__ = ("_calls", "_names", "_table")

    def __init__(self, table: CallTable, names: Mapping[str, Any]) -> None:
        self._table: CallTable = table
        self._names: Mapping[str, Any] = names
        self._calls: list[Any] = []

    def __call__(self, given: list[Any]) -> list[Any]:
        """Run the rows.

        Parameters
        ----------
        given : list
            The values of the inputs that are used. It is emptied.

        Returns
        -------
        list
            The leaves of the result.
        """
        table = self._table
        if not self._calls:
            self._calls = [*map(self._names.__getitem__, table.callees)]
        values = [*given, *table.rest]
        given.clear()
        places = iter(table.gives)
        rows = zip(self._calls, table.firsts, table.seconds, places, strict=True)
        try:
            for call, first, second, place in rows:
                if second >= 0:
                    values[place] = call(values[first], values[second])
                elif second == _ONE:
                    values[place] = call(values[first])
                elif second == _FORGET:
                    values[place] = None
                else:
                    values[place] = call(*first(values))
        except Exception as error:
            node = table.nodes[-1 - operator.length_hint(places)]
            at = node.meta.get("place", "an unknown place")
            error.add_note(f"in the node '{node.name}', traced at {at}")
            raise
        return [*table.result(values)]
