"""Neighboring rows of arithmetic as one loop, so that values between them stay in registers.

Only what IEEE 754 defines to the last bit is joined, and LLVM may not change it, so that
the bits are those of NumPy's loops. The items of one step are read before any of them is
written: memory of a group is the same for two operands, or apart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np

from customop.compiling.native_backend.driver import LOOP_PARAMETERS
from customop.compiling.native_backend.iteration import LoopAxis
from customop.compiling.native_backend.machine_code import (
    MachineFunction,
    build,
    in_each_lane,
    splat,
    vector,
)
from customop.compiling.native_backend.tables import InnerLoop, Table
from customop.compiling.native_backend.vector_functions import (
    VECTOR_DECLARATIONS,
    near_operation,
)

# Whether the value of a node is read by anything but the noted rows up to a row.
Readers = Callable[[Any, int], bool]


def fuse(table: Table, is_read_after: Readers) -> int:
    """Put one row in place of each group of neighboring rows of arithmetic.

    Parameters
    ----------
    table : Table
        Complete; its rows that are ufuncs over contiguous items are noted.
    is_read_after : callable
        Takes a node and a row, and returns whether the value of the node is read by
        anything but the noted rows up to this one. Other values are not stored.

    Returns
    -------
    int
        The number of groups.
    """
    groups = [_FusedGroup(table, rows, is_read_after) for rows in _runs(table)]
    nests = [nest for n in table.names if (nest := _nest_of(table, n)) is not None]
    functions = {group.name: group.code for group in groups}
    functions |= {nest.name: nest.code for nest in nests}
    new = [code for name, code in functions.items() if name not in _made]
    if new:
        _made.update(build(new, further=_DECLARED))
    placed = {group.rows[0]: group.row(table, _made[group.name]) for group in groups}
    placed |= {nest.number: nest.row(table, _made[nest.name]) for nest in nests}
    gone = {row for group in groups for row in group.rows[1:]}
    table.rows = [
        placed.get(i, row) for i, row in enumerate(table.rows) if i not in gone
    ]
    table.names.clear()
    return len(groups)


# Name of a fused loop, made from its text -> its address.
_made: dict[str, int] = {}

_DECLARED: Final = "".join(
    [
        f"declare {vector(kind, lanes)} @llvm.{name}.{short}({vector(kind, lanes)})\n"
        for name in ("sqrt", "fabs")
        for kind, size, width in (("double", 64, 8), ("float", 32, 16))
        for lanes, short in ((1, f"f{size}"), (width, f"v{width}f{size}"))
    ]
    + [VECTOR_DECLARATIONS]
)

# ---- which rows go together ----

# Most rows of a group: the time that LLVM takes grows with their number.
_MOST: Final = 100
_MOST_SINGLE: Final = 300
# As many as so many rows: the code of a function that is not arithmetic.
_LONG: Final = 12


def _length_of_code(name: str) -> int:
    return 1 if name in _OPERATIONS else _LONG


class _FusedRow(NamedTuple):
    """A noted row: the ufunc, its node, kind of item, length, and operands."""

    name: str
    node: Any
    kind: str
    length: int
    # Where each operand lies, and its step in bytes; the result is the last.
    operands: tuple[tuple[int, int], ...]


def _row_of(table: Table, number: int) -> _FusedRow | None:
    """Return a row that may be joined with others."""
    note = table.names.get(number)
    if note is None:
        return None
    name, node, types = note
    kind = _KINDS.get(types)
    if kind is None or _operation(name) is None or not _can_join(name, types[0]):
        return None
    row = table.rows[number]
    data, dims, steps, axes, count = row[2], row[3], row[4], row[6], row[8]
    length = table.cells[dims]
    size = _SIZES[kind]
    strides = table.cells[steps : steps + count]
    if length == 1:
        strides = [size] * count
    places = table.cells[data : data + count]
    if axes or strides[-1] != size or any(s not in {0, size} for s in strides):
        return None
    if any(place % size for place in places):
        return None
    operands = tuple(zip(places, strides, strict=True))
    return _FusedRow(name, node, kind, length, operands)


_KINDS: Final = {"d->d": "double", "dd->d": "double", "f->f": "float", "ff->f": "float"}
_SIZES: Final = {"double": 8, "float": 4}


def _runs(table: Table) -> Generator[list[tuple[int, _FusedRow]]]:
    """Find runs of rows of one length and kind whose memory is the same or apart."""
    run: list[tuple[int, _FusedRow]] = []
    memory: RunMemory | None = None
    lines = 0
    for number in range(len(table.rows)):
        row = _row_of(table, number)
        fits = False
        if row is not None and run and _is_like(row, run[0][1]):
            if memory is None:  # a run of one row so far, and most end so
                memory = _begun(run[0][1])
            most = _MOST_SINGLE if row.length == 1 else _MOST
            fits = memory is not None and lines < most and memory.takes(row.operands)
        if not fits:
            if len(run) > 1:
                yield run
            run, memory, lines = [], None, 0
        if row is not None:
            run.append((number, row))
            lines += _length_of_code(row.name)
    if len(run) > 1:
        yield run


def _is_like(row: _FusedRow, first: _FusedRow) -> bool:
    return row.length == first.length and row.kind == first.kind


def _begun(row: _FusedRow) -> RunMemory | None:
    """Return the memory of a run that begins; None if the row is to stay alone."""
    memory = RunMemory(row.length, _SIZES[row.kind])
    return memory if memory.takes(row.operands) else None


class RunMemory:
    """The memory of rows that go together: operands are the same, or apart.

    Two that are only read may overlap.

    Parameters
    ----------
    length : int
        Of the rows.
    size : int, bytes
        The most that an operand has that is one item for all.
    """

    def __init__(self, length: int, size: int) -> None:
        self._length: int = length
        self._size: int = size
        self._longest: int = size
        # Operands by where they begin, and which are written.
        self._starts: list[int] = []
        self._operands: list[tuple[int, int]] = []
        self._known: dict[tuple[int, int], bool] = {}

    def takes(self, operands: Sequence[tuple[int, int]]) -> bool:
        """Add the operands of a row, the result last, and return whether they fit.

        Parameters
        ----------
        operands : sequence of tuple
            For each where it begins, and its step in bytes.
        """
        *inputs, result = operands
        new = {operand for operand in inputs if operand not in self._known}
        fits = all(self._is_apart(o, result) for o in new)
        if not fits or not (self._known.get(result) or self._is_apart(result, result)):
            return False
        for operand in (*new, result):
            if operand not in self._known:
                place = bisect_left(self._starts, operand[0])
                self._starts.insert(place, operand[0])
                self._operands.insert(place, operand)
                low, high = self._span(operand)
                self._longest = max(self._longest, high - low)
            self._known[operand] = self._known.get(operand, False) or operand == result
        return True

    def _is_apart(self, operand: tuple[int, int], result: Any) -> bool:
        """Return whether operands that overlap this one are the same, or none is written."""
        low, high = self._span(operand)
        first = bisect_right(self._starts, low - self._longest)
        last = bisect_left(self._starts, high)
        near = self._operands[first:last]
        if operand != result and self._meet((low, high), self._span(result)):
            return False
        return not any(
            other != operand
            and (operand == result or self._known[other])
            and self._meet((low, high), self._span(other))
            for other in near
        )

    def _span(self, operand: tuple[int, int]) -> tuple[int, int]:
        return operand[0], operand[0] + (operand[1] * self._length or self._size)

    @staticmethod
    def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return a[0] < b[1] and b[0] < a[1]


# ---- a group as one function ----


class _FusedGroup:
    """The code of some rows, and the row in their place."""

    def __init__(
        self, table: Table, run: Sequence[tuple[int, _FusedRow]], is_read_after: Readers
    ) -> None:
        self.rows: list[int] = [number for number, _ in run]
        first = run[0][1]
        self._length = first.length
        self._kind = first.kind
        slots: dict[tuple[int, int], int] = {}
        steps = tuple(
            [
                (row.name, (*[slots.setdefault(o, len(slots)) for o in row.operands],))
                for _, row in run
            ]
        )
        self._slots = slots
        writers = {used[-1]: i for i, (_, used) in enumerate(steps)}
        last = self.rows[-1]
        stored = frozenset(
            [i for i in writers.values() if is_read_after(run[i][1].node, last)]
        )
        fixed = frozenset([slot for (_, step), slot in slots.items() if not step])
        code = _code_of(self._kind, steps, stored, fixed, self._length == 1)
        self.name: str = code[0]
        self.code: MachineFunction = code[1]

    def row(self, table: Table, function: int) -> tuple[int, ...]:
        """Return the row of the group."""
        places = [place for place, _ in self._slots]
        strides = [step for _, step in self._slots]
        work = self._length * len(self.rows)
        table.emit(InnerLoop(function), places, [self._length], strides, work=work)
        return table.rows.pop()


# ---- arithmetic over short lines ----

# Lines from which on NumPy's own loop takes no longer, although it is called for each.
_LINE: Final = 256


class _NestRow(NamedTuple):
    """A noted row of arithmetic that goes over short lines along one axis or more.

    Attributes
    ----------
    number : int
    name : str
        Of its code, which goes over the lines along the first axis, too.
    code : MachineFunction
    """

    number: int
    name: str
    code: MachineFunction

    def row(self, table: Table, function: int) -> tuple[int, ...]:
        """Return the row in its place."""
        _, _, data, dims, steps, *_, count, _ = table.rows[self.number]
        cells, (axis, *around) = table.cells, _axes_of(table, self.number)
        places = cells[data : data + count]
        strides = [*cells[steps : steps + count], *axis.strides]
        loop = InnerLoop(function)
        table.emit(loop, places, [cells[dims], axis.length], strides, around)
        return table.rows.pop()


def _axes_of(table: Table, number: int) -> list[LoopAxis]:
    """Return the axes around the loop of a row."""
    count, start, operands = table.rows[number][6:9]
    words = operands + 2
    axes = [
        table.cells[start + k * words : start + (k + 1) * words] for k in range(count)
    ]
    return [LoopAxis(length, tuple(strides)) for length, _, *strides in axes]


def _nest_of(table: Table, number: int) -> _NestRow | None:
    """Return how a row goes over short lines; None if NumPy's own loop does."""
    name, _, types = table.names[number]
    kind = _KINDS.get(types)
    if kind is None or name not in _OPERATIONS or not _can_join(name, types[0]):
        return None
    _, _, data, dims, steps, _, axes, _, count, _ = table.rows[number]
    size, places = _SIZES[kind], table.cells[data : data + count]
    strides = table.cells[steps : steps + count]
    if not axes or not 1 < table.cells[dims] <= _LINE or strides[-1] != size:
        return None
    around = _axes_of(table, number)
    further = [step for axis in around for step in axis.strides]
    if any(step not in {0, size} for step in strides) or places[-1] in places[:-1]:
        return None
    if any(word % size for word in (*places, *further)):
        return None
    return _NestRow(
        number, *_nest_code(kind, name, tuple([not step for step in strides]))
    )


@lru_cache(maxsize=2048)
def _nest_code(
    kind: str, operation: str, is_fixed: tuple[bool, ...]
) -> tuple[str, MachineFunction]:
    """Return the code of arithmetic over lines, and its name.

    Dims are the length of a line and how many there are, strides those of the items and
    then those of the lines.
    """
    slots = tuple(range(len(is_fixed)))
    name = "_".join(["nest", kind, operation, *map(str, map(int, is_fixed))])
    code = MachineFunction(name, LOOP_PARAMETERS)
    starts = [code.word("%data", slot, "ptr") for slot in slots]
    further = [code.word("%strides", len(slots) + slot) for slot in slots]
    fixed = frozenset([slot for slot in slots if is_fixed[slot]])
    with code.each(code.word("%dims", 1)) as line:
        places = [
            code.moved(start, code.mul(step, line))
            for start, step in zip(starts, further, strict=True)
        ]
        steps = ((operation, slots),)
        _write(code, kind, steps, places, frozenset([0]), set(), fixed, False)
    code.give("i32", 0)
    return name, code


# ---- the code of a group ----

# The name of each operation of a group, and the slots of its operands.
_Steps = tuple[tuple[str, tuple[int, ...]], ...]


@lru_cache(maxsize=2048)
def _code_of(
    kind: str,
    steps: _Steps,
    stored: frozenset[int],
    fixed: frozenset[int],
    is_single: bool,
) -> tuple[str, MachineFunction]:
    """Return the code of a group, and its name, which is made of its text."""
    code = MachineFunction("fused", LOOP_PARAMETERS)
    count = 1 + max(max(used) for _, used in steps)
    places = [code.word("%data", slot, "ptr") for slot in range(count)]
    unread = _unread(steps) - stored
    _write(code, kind, steps, places, stored, unread, fixed, is_single)
    code.give("i32", 0)
    name = "fused_" + sha256(code.text().encode()).hexdigest()[:20]
    code.rename(name)
    return name, code


def _unread(steps: _Steps) -> set[int]:
    """Return the steps whose results no later step reads: they run for their warnings."""
    unread: set[int] = set()
    last: dict[int, int] = {}
    for number, (_, (*inputs, result)) in enumerate(steps):
        unread -= {last[slot] for slot in inputs if slot in last}
        last[result] = number
        unread.add(number)
    return unread


def _write(
    code: MachineFunction,
    kind: str,
    steps: _Steps,
    places: Sequence[str],
    stored: frozenset[int],
    unread: set[int],
    fixed: frozenset[int],
    is_single: bool,
) -> None:
    """Write the loop: steps are names of ufuncs with the slots of their operands."""
    size = _SIZES[kind]
    lanes = 64 // size
    written: set[int] = set()
    read: set[int] = set()
    for _, (*inputs, result) in steps:
        read.update(set(inputs) - written)
        written.add(result)
    # LLVM leaves out what no memory gets, and with it the flags that it would raise.
    room = code.room(vector(kind, 1 if is_single else lanes), 1) if unread else ""
    alone = {slot: code.load(kind, places[slot]) for slot in sorted(read & fixed)}
    spread = (
        {}
        if is_single
        else {s: in_each_lane(code, kind, v, lanes) for s, v in alone.items()}
    )

    def handle(index: str | int, width: int) -> None:
        items = vector(kind, width)
        note = f", align {size}"
        at = {
            slot: code.let(f"getelementptr {kind}, ptr {places[slot]}, i64 {index}")
            for slot in sorted(read | written)
            if slot not in fixed
        }
        values = dict(alone if width == 1 else spread)
        for slot in sorted(read - fixed):
            values[slot] = code.load(items, at[slot], note)
        for number, (name, (*inputs, result)) in enumerate(steps):
            operands = [values[slot] for slot in inputs]
            write = _operation(name)
            assert write is not None
            values[result] = write(code, kind, width, operands)
            if number in stored:
                code.store(items, values[result], at[result], note)
            elif number in unread:
                code.do(f"store volatile {items} {values[result]}, ptr {room}{note}")

    if is_single:
        handle(0, 1)
    else:
        length = code.load("i64", "%dims")
        groups = code.let(f"udiv i64 {length}, {lanes}")
        with code.each(groups) as group:
            handle(code.mul(group, lanes), lanes)
        done = code.mul(groups, lanes)
        with code.each(code.sub(length, done)) as i:
            handle(code.add(done, i), 1)


# ---- operations ----

_Operation = Callable[[MachineFunction, str, int, list[str]], str]


def _operation(name: str) -> _Operation | None:
    """Return what writes the operation of a noted row; None if it is not joined."""
    return _OPERATIONS.get(name) or near_operation(name)


def _arithmetic(instruction: str) -> _Operation:
    def write(code: MachineFunction, kind: str, lanes: int, values: list[str]) -> str:
        return code.let(f"{instruction} {vector(kind, lanes)} {', '.join(values)}")

    return write


def _square(code: MachineFunction, kind: str, lanes: int, values: list[str]) -> str:
    return code.let(f"fmul {vector(kind, lanes)} {values[0]}, {values[0]}")


def _reciprocal(code: MachineFunction, kind: str, lanes: int, values: list[str]) -> str:
    one = splat(kind, "1.0", lanes)
    return code.let(f"fdiv {vector(kind, lanes)} {one}, {values[0]}")


def _positive(code: MachineFunction, kind: str, lanes: int, values: list[str]) -> str:
    return values[0]


def _intrinsic(name: str) -> _Operation:
    def write(code: MachineFunction, kind: str, lanes: int, values: list[str]) -> str:
        short = f"f{8 * _SIZES[kind]}"
        short = short if lanes == 1 else f"v{lanes}{short}"
        items = vector(kind, lanes)
        return code.let(f"call {items} @llvm.{name}.{short}({items} {values[0]})")

    return write


def _extreme(how: str) -> _Operation:
    """Return the operation of maximum or minimum; of equal items it takes the second.

    NaN is not compared, for that would raise a flag.
    """

    def write(code: MachineFunction, kind: str, lanes: int, values: list[str]) -> str:
        items, bits = vector(kind, lanes), vector("i1", lanes)
        zero = "zeroinitializer"
        odd = [code.let(f"fcmp uno {items} {v}, {zero}") for v in values]
        a, b = (
            code.let(f"select {bits} {o}, {items} {zero}, {items} {v}")
            for o, v in zip(odd, values, strict=True)
        )
        wins = code.let(f"fcmp {how} {items} {a}, {b}")
        number = code.let(f"xor {bits} {odd[1]}, {splat('i1', 'true', lanes)}")
        wins = code.let(f"and {bits} {wins}, {number}")
        wins = code.let(f"or {bits} {wins}, {odd[0]}")
        return code.let(
            f"select {bits} {wins}, {items} {values[0]}, {items} {values[1]}"
        )

    return write


_OPERATIONS: Final[dict[str, _Operation]] = {
    "absolute": _intrinsic("fabs"),
    "add": _arithmetic("fadd"),
    "divide": _arithmetic("fdiv"),
    "maximum": _extreme("ogt"),
    "minimum": _extreme("olt"),
    "multiply": _arithmetic("fmul"),
    "negative": _arithmetic("fneg"),
    "positive": _positive,
    "reciprocal": _reciprocal,
    "sqrt": _intrinsic("sqrt"),
    "square": _square,
    "subtract": _arithmetic("fsub"),
}

# The names of ufuncs whose rows are joined.
JOINED: Final = frozenset(_OPERATIONS)


@cache
def _can_join(name: str, char: str) -> bool:
    """Return whether NumPy's loop is known to have the bits of the operation.

    IEEE 754 defines all but which of two zeros is the larger one.
    """
    if name not in {"maximum", "minimum"}:
        return True
    zeros = np.zeros(33, char)
    ufunc: Any = getattr(np, name)
    return all(
        np.signbit(ufunc(a[:count], b[:count])).tolist()
        == np.signbit(b[:count]).tolist()
        for a, b in ((zeros, -zeros), (-zeros, zeros))
        for count in (1, 2, 3, 4, 8, 33)
    )
