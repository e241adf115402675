"""Runs: elementwise calls of one shape that go over blocks together, and from which size.

Measured on a processor with 48 KB and 2 MB of cache for each core, NumPy 2.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from customop.arrays.fake import FakeArray
from customop.compiling.numpy_backend.call_text import (
    is_builtin,
    out_of,
    resolved_dtypes,
    strong_operands,
    ufunc_of,
)
from customop.graph.graph import Graph
from customop.graph.node import CALL, CONSTANT, OUTPUT, PLACEHOLDER, Node, nodes_in
from customop.shapes.sizes import same_shape

# ---- from which size on arrays are cut into blocks, and into which ----


class Limits:
    """Numbers of elements and bytes; tests set smaller ones.

    Attributes
    ----------
    elements : int
        Smaller calls are never in a run.
    certain : int
        From so many bytes of operands and results on a run takes less time. Calls one by
        one reuse memory too, and what is less stays in the cache of a processor.
    work : int
        The same, times the calls after the first one: a run of two saves little.
    in_place : int
        From so many elements on a run that writes in place takes less time: its calls one
        by one make no temporaries.
    whole : int
        An array of so many bytes is one block: what is written stays in cache.
    alone : int
        The same for all operands and results together, where no scratch array is needed.
    most, least : int
        Bytes of an array in a block.
    line : int
        Bytes of a line of the cache. A register that crosses two of them takes longer.
    together : int
        Bytes of all arrays in a block, about half of the cache.
    multiple : int
        Blocks have a multiple of so many elements: whole registers of the processor.
    """

    def __init__(self) -> None:
        self.elements: int = 1 << 13
        self.certain: int = 1 << 22
        self.work: int = 1 << 24
        self.in_place: int = 1 << 17
        self.whole: int = 1 << 19
        self.alone: int = 1 << 21
        self.most: int = 3 << 16
        self.least: int = 1 << 14
        self.together: int = 1 << 20
        self.multiple: int = 64
        self.line: int = 64


limits: Limits = Limits()


# ---- runs ----
# Elementwise calls of one shape, one after the other, which run together over blocks.
#
# A run goes on over views of other values, and over small elementwise calls that it
# does not need first: these are computed before it. Nothing else lies within a run, so
# that errors and warnings come in the order of the calls.


# The most calls of a run: the code of each is compiled once more.
_MOST_CALLS: Final = 1000
VIEWS: Final = frozenset(
    f"np::{name}"
    for name in (
        *("broadcast_to", "reshape", "transpose", "expand_dims", "squeeze", "slice"),
    )
)


class CallRun:
    """Elementwise calls of one shape.

    Attributes
    ----------
    members : list of Node
        Of the shape of the run, in order.
    before : list of Node
        Small calls among them, which are computed first.
    calls : list of Node
        All of these, in order.
    why : str
        Why the run ends where it does.
    """

    def __init__(self, first: Node) -> None:
        self.members: list[Node] = [first]
        self.before: list[Node] = []
        self.calls: list[Node] = [first]
        self.why: str = ""
        self._own: set[Node] = {first}

    def __contains__(self, node: object) -> bool:
        return node in self._own

    def take(self, node: Node, *, is_member: bool) -> None:
        """Take one more call."""
        (self.members if is_member else self.before).append(node)
        self.calls.append(node)
        self._own.add(node)

    @property
    def shape(self) -> Sequence[Any]:
        """The shape of all results, which may be symbolic."""
        shape: Sequence[Any] = self.members[0].val.shape
        return shape

    @property
    def given(self) -> list[Node]:
        """The operands from outside, each once."""
        found = [n for call in self.calls for n in nodes_in(call.values())]
        found += [out for call in self.calls if (out := out_of(call)) is not None]
        return [*dict.fromkeys(n for n in found if n not in self._own)]

    @property
    def results(self) -> list[Node]:
        """The calls whose values are used outside, or written to arrays that there are."""
        return [c for c in self.calls if self._is_result(c)]

    def _is_result(self, call: Node) -> bool:
        is_used = any(user not in self._own for user in call.users)
        return is_used or out_of(call) is not None


def runs_of(
    graph: Graph,
    takes: Callable[[Node], bool],
    passes: Callable[[Node], bool] = lambda node: False,
) -> Iterator[CallRun]:
    """Go through all runs of a graph.

    Parameters
    ----------
    graph : Graph
    takes : callable
        Whether a back end can run a node element by element: a call that gives one array.
    passes : callable
        Whether a run may go on over another node that needs nothing of it. That node then
        comes before the run.
    """
    current: CallRun | None = None
    for node in graph.nodes:
        is_taken = takes(node)
        if current is not None:
            is_passed = _is_view(node) or passes(node)
            current.why = _extend(current, node, is_taken=is_taken, is_passed=is_passed)
            if not current.why:
                continue
            yield current
        current = CallRun(node) if is_taken else None
    if current is not None:
        yield current


def find_runs(graph: Graph) -> tuple[list[CallRun], list[tuple[Node, str]]]:
    """Return the runs of large arrays, and the large calls in none with the reasons."""
    alone: list[tuple[Node, str]] = []
    runs: list[CallRun] = []
    if not any(_is_large(n.val) for n in graph.nodes if n.op == CALL):
        return runs, alone
    for run in runs_of(graph, is_elementwise):
        if not _is_large(run.members[0].val):
            continue
        parts = [*_parts(run)]
        runs += parts
        taken = {call for part in parts for call in part.calls}
        alone += [(m, run.why) for m in run.members if m not in taken]
    return runs, alone


def _extend(run: CallRun, node: Node, *, is_taken: bool, is_passed: bool) -> str:
    """Let a run go on over a node; if it cannot, why."""
    if node.op in (CONSTANT, PLACEHOLDER):
        return ""
    inside = [n for n in nodes_in(_values(node)) if n in run]
    if not is_taken:
        return "" if is_passed and not inside else _what_it_is(node, inside)
    if len(run.calls) >= _MOST_CALLS:
        return f"it has {_MOST_CALLS} calls"
    is_member = same_shape(node.val.shape, run.shape)
    if not is_member and (inside or not _is_small(node.val, run.members[0].val)):
        return f"'{node.name}' has the shape {tuple(node.val.shape)}"
    run.take(node, is_member=is_member)
    return ""


def _is_view(node: Node) -> bool:
    is_call = node.op == CALL and is_builtin(node.target)
    return is_call and node.target.qualname in VIEWS


def _what_it_is(node: Node, inside: Sequence[Node]) -> str:
    """Return why a node is not a part of a run, of which it uses some values."""
    if _is_view(node):
        return f"'{node.name}' is a view of '{inside[0]}'"
    if node.op == OUTPUT:
        return "the graph ends"
    if node.op != CALL:
        return f"'{node.name}' is a part of a call of several results"
    return f"'{node.name}' is {node.target.qualname}, which is not elementwise"


def _values(node: Node) -> Sequence[Any]:
    return node.values() if node.op == CALL else (*node.args, *node.kwargs.values())


def _is_large(val: Any) -> bool:
    if not isinstance(val, FakeArray) or not val.shape:
        return False
    size = _size(val)
    return size is None or size >= limits.elements


def _is_small(val: FakeArray, of_run: FakeArray) -> bool:
    """Return whether a call costs next to nothing beside those of a run."""
    size, whole = _size(val), _size(of_run)
    if size is None:
        return False
    return size == 1 or (whole is not None and size * 16 <= whole)


def _size(val: FakeArray) -> int | None:
    """Return the number of elements; None if it is not known."""
    if all(type(n) is int for n in val.shape):
        return math.prod(val.shape)
    return None


# ---- which calls ----


def is_elementwise(node: Node) -> bool:
    """Return whether a call is elementwise, and never raises because of values."""
    if node.op != CALL or node.is_checked or not is_builtin(node.target):
        return False
    values = node.values()
    if node.target.qualname == "np::astype":
        return _are_known(values[:1], node.val) and not _loses_part(node)
    if not _are_known(values, node.val):
        return False
    if node.target.qualname == "np::where":
        return isinstance(values[0], Node) and _fit(values[1:], node.val.dtype)
    ufunc = ufunc_of(node.target)
    return ufunc is not None and _is_usual(ufunc, values, node.val.dtype)


def _is_usual(ufunc: np.ufunc, values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether a ufunc gives one result of this dtype, and never raises."""
    if ufunc.nout != 1 or ufunc.signature is not None:
        return False
    dtypes = resolved_dtypes(ufunc, values)
    if dtypes is None or dtypes[-1] != dtype:
        return False
    if any(type(v) in (int, float, complex) for v in strong_operands(ufunc, values)):
        return False  # a number that overflows, of which NumPy warns
    # A negative power of integers is an error.
    return ufunc is not np.power or dtype.kind not in "iu"


def _loses_part(node: Node) -> bool:
    """Return whether a conversion warns that it discards imaginary parts."""
    (x, *_), own = node.values(), node.val.dtype.kind
    return isinstance(x, Node) and x.val.dtype.kind == "c" and own not in "cb"


def _are_known(values: Sequence[Any], val: Any) -> bool:
    """Return whether operands and result have numbers in native byte order."""
    arrays = [val, *[v.val for v in values if isinstance(v, Node)]]
    numbers = [v for v in values if not isinstance(v, Node)]
    return all(_is_known(a) for a in arrays) and all(
        type(v) in (bool, int, float, complex) for v in numbers
    )


def _fit(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether the numbers among values have a value in a dtype."""
    numbers = [v for v in values if not isinstance(v, Node)]
    try:
        with np.errstate(all="raise"):
            return all(np.array(v, dtype) is not None for v in numbers)
    except (ArithmeticError, TypeError):
        return False


def _is_known(val: Any) -> bool:
    if not isinstance(val, FakeArray) or isinstance(val.dtype, str):
        return False
    return val.dtype.kind in "biufc" and val.dtype.isnative


# ---- memory ----


def _parts(run: CallRun) -> Iterator[CallRun]:
    """Split a run where it would need more memory than its calls one by one."""
    size = _size(run.members[0].val)
    if size is not None and not is_worth_it(_bytes_of(run), len(run.members)):
        run.why = "it is small"
    elif len(run.members) == 1:
        if any(is_reusable(n, run) for n in run.given):
            yield run
    elif _needs_more(run):
        half = len(run.calls) // 2
        for calls in (run.calls[:half], run.calls[half:]):
            members = [c for c in calls if same_shape(c.val.shape, run.shape)]
            if members:
                part = CallRun(members[0])
                for call in calls:
                    if call is not members[0]:
                        is_member = same_shape(call.val.shape, run.shape)
                        part.take(call, is_member=is_member)
                part.calls = calls
                part.why = run.why if calls[-1] is run.calls[-1] else "memory"
                yield from _parts(part)
    else:
        yield run


def is_worth_it(bytes_: int, count: int) -> bool:
    """Return whether so many calls over so many bytes take less time in a run."""
    return bytes_ >= limits.certain and bytes_ * max(count - 1, 1) >= limits.work


def _bytes_of(run: CallRun) -> int:
    """Return the operands and results of a run whose sizes are known."""
    new = [n for n in run.results if out_of(n) is None]
    return sum(map(_bytes, (*run.given, *new)))


def _needs_more(run: CallRun) -> bool:
    """Return whether the results of a run are more than what lives at one time.

    Operands that something else keeps alive do not count.
    """
    position = {call: i for i, call in enumerate(run.calls)}
    own = set(run.results)
    dying = [n for n in run.given if n.op == CALL and ends_in(n, run)]
    # Change of the living bytes at each call, one by one.
    change = [0] * (len(run.calls) + 1)
    for call in run.calls:
        change[position[call]] += _bytes(call)
        if call not in own:
            change[_last(call, position) + 1] -= _bytes(call)
    for node in dying:
        change[_last(node, position) + 1] -= _bytes(node)
    living = most = 0
    for step in change:
        living += step
        most = max(most, living)
    return sum(_bytes(n) for n in own if out_of(n) is None) > most


def ends_in(node: Node, run: CallRun) -> bool:
    """Return whether a run is the last that uses a value."""
    return all(user in run for user in node.users)


def is_reusable(node: Node, run: CallRun) -> bool:
    """Return whether a run may write to an operand: a fresh array that ends there.

    Its class, its memory and who else holds it, are looked at when the run is called.
    """
    is_fresh = node.op == CALL and is_builtin(node.target)
    return is_fresh and ends_in(node, run) and node.target.view_slot < 0


def _last(node: Node, position: dict[Node, int]) -> int:
    own = position.get(node, 0)  # of a call that runs though nothing uses it
    return max([position.get(user, 0) for user in node.users], default=own)


def _bytes(node: Node) -> int:
    val = node.val
    if not isinstance(val, FakeArray):
        return 0
    size = _size(val)
    # Symbolic sizes of a run are all the same.
    itemsize: int = val.dtype.itemsize
    return itemsize if size is None else size * itemsize
