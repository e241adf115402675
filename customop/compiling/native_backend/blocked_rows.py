"""Large elementwise calls in blocks: each block goes through all calls while it is cached.

Arithmetic in a block is one loop; between such loops run NumPy's own, as that of exp, on the
same block. A value that is read by nothing but these calls has memory for one block only.
Sums of such values are made block by block, too. Very large arrays are shared among threads,
which need no GIL.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from customop.compiling.native_backend.fused_loops import Readers, RunMemory, fuse
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.object_layout import thread_functions
from customop.compiling.native_backend.own_loops import move_loop
from customop.compiling.native_backend.sum_loops import (
    STATE_WORDS,
    halves,
    sum_loops,
)
from customop.compiling.native_backend.tables import (
    HEADER_WORDS,
    WORK_LIMIT,
    InnerLoop,
    Point,
    Table,
)
from customop.compiling.native_backend.ufunc_loops import loop_for
from customop.config import config

# Bytes of all operands in a block: half of the cache that each processor has for itself.
_CACHED: Final = 1 << 18
_SMALLEST, _LARGEST = 512, 4096
# Blocks from which on it is worth to go over arrays in blocks.
_FEWEST: Final = 8
# Items from which on threads share the work: a thread takes 50 us to begin.
_SHARED: Final = 1 << 19


def join_rows(table: Table, is_read_after: Readers) -> None:
    """Have neighboring elementwise rows go over large arrays together, and fuse the rest.

    Parameters
    ----------
    table : Table
        Complete; its rows that are ufuncs over contiguous items are noted.
    is_read_after : callable
        Takes a node and a row, and returns whether the value of the node is read by
        anything but the noted rows up to this one.
    """
    runs = [*_runs(table)]
    placed: dict[int, list[_Placed]] = {}
    gone: set[int] = set()
    for run in runs:
        mark = len(table.rows)
        _emit_blocks(table, run, is_read_after)
        new = [_Placed(row, None, run.last) for row in table.rows[mark:]]
        del table.rows[mark:]
        # What comes before the run is read by rows of it.
        before = [_Placed(table.rows[n], n, run.first - 1) for n in run.hastened]
        after = [_Placed(table.rows[n], n, n) for n in run.deferred]
        placed[run.first] = [*before, *new, *after]
        gone.update(range(run.first, run.last + 1))
    table.sums.clear()
    if runs:
        _replace(table, placed, gone, is_read_after)
    else:
        fuse(table, is_read_after)


class _Placed(NamedTuple):
    """A row in a new place.

    Attributes
    ----------
    row : tuple of int
    number : int or None
        Its old number.
    last : int
        The last of the old rows that come before the next row.
    """

    row: tuple[int, ...]
    number: int | None
    last: int


def _replace(
    table: Table,
    placed: dict[int, list[_Placed]],
    gone: set[int],
    is_read_after: Readers,
) -> None:
    """Put rows in place of others, and fuse those that are left."""
    rows: list[tuple[int, ...]] = []
    old: list[int] = []
    names = {}
    for number, own in enumerate(table.rows):
        kept = [] if number in gone else [_Placed(own, number, number)]
        for row, source, last in [*placed.get(number, []), *kept]:
            if source is not None and source in table.names:
                names[len(rows)] = table.names[source]
            rows.append(row)
            old.append(last)
    table.rows, table.names = rows, names
    fuse(table, lambda node, row: is_read_after(node, old[row]))


# ---- which rows go together ----


class _BlockRow(NamedTuple):
    """A noted row over contiguous items."""

    number: int
    note: tuple[str, Any, str]
    loop: InnerLoop
    length: int
    # Where each operand lies, and its step in bytes; the result is the last.
    operands: tuple[tuple[int, int], ...]


def _row_of(table: Table, number: int) -> _BlockRow | None:
    note = table.names.get(number)
    if note is None or not note[2]:
        return None
    function, context, data, dims, steps, auxdata, axes, _, count, last = table.rows[
        number
    ]
    if table.cells[dims] < _FEWEST * _SMALLEST or set(note[2]) - _FLOATS:
        return None
    strides = table.cells[steps : steps + count]
    places = table.cells[data : data + count]
    length = table.cells[dims]
    types = note[2].replace("->", "")
    if axes or len(types) != count:
        return None
    sizes = [np.dtype(char).itemsize for char in types]
    if strides[-1] != sizes[-1]:
        return None
    if any(s not in {0, size} for s, size in zip(strides, sizes, strict=True)):
        return None
    loop = InnerLoop(function, context, auxdata, last & 3)
    operands = tuple(zip(places, strides, strict=True))
    return _BlockRow(number, note, loop, length, operands)


# Loops of these never need the GIL: those of integers may raise exceptions.
_FLOATS: Final = frozenset("fd?->")


class _SumRow(NamedTuple):
    """A row that adds the sum of an operand of a run to a number.

    Attributes
    ----------
    number : int
        The row before it sets the result to 0.
    last : int
        The last row of the node, whose other rows come after the run.
    result, source : int
        Where they lie.
    size : int, bytes
        Of an item.
    loops : pair of InnerLoop
        As `sum_loops` gives them.
    """

    number: int
    last: int
    result: int
    source: int
    size: int
    loops: tuple[InnerLoop, InnerLoop]


class _RowRun:
    """Rows that go over arrays together.

    Sums of what they compute go along. Rows of single numbers between them come before the
    run, or after it.

    Attributes
    ----------
    rows : list of _BlockRow
    sums : list of _SumRow
    hastened, deferred : list of int
        The rows that come before the run, and after it.
    memory : RunMemory
        Of the rows.
    """

    def __init__(self, row: _BlockRow, memory: RunMemory) -> None:
        self.rows: list[_BlockRow] = [row]
        self.sums: list[_SumRow] = []
        self.hastened: list[int] = []
        self.deferred: list[int] = []
        self.memory: RunMemory = memory
        # Numbers that rows read and write that come after the run.
        self._read: set[int] = set()
        self._set: set[int] = set()

    @property
    def first(self) -> int:
        """The first row."""
        return self.rows[0].number

    @property
    def last(self) -> int:
        """The last row."""
        last = self.deferred[-1] if self.deferred else 0
        return max(self.rows[-1].number, last, *[total.last for total in self.sums])

    @property
    def length(self) -> int:
        """The number of items."""
        return self.rows[0].length

    def operands(self) -> set[tuple[int, int]]:
        """Return where the operands of the rows lie, and their steps."""
        return {operand for row in self.rows for operand in row.operands}

    def takes(self, row: _BlockRow) -> bool:
        """Return whether a row goes with those before it, and add it."""
        later = self._set | {total.result for total in self.sums}
        for operand in row.operands:
            places = later | self._read if operand[1] else later
            if any(_meets(place, operand, row.length) for place in places):
                return False
        if row.length != self.length or not self.memory.takes(row.operands):
            return False
        self.rows.append(row)
        return True

    def takes_sum(self, total: _SumRow) -> bool:
        """Return whether a sum goes along, and add it."""
        # The result is set to 0 before the run, so that nothing else may lie there.
        known = self.operands()
        if (total.source, total.size) not in known or self._is_used(total.result):
            return False
        self.sums.append(total)
        if total.last != total.number:
            self._defer(range(total.number + 1, total.last + 1), (), total.result)
        return True

    def _is_used(self, place: int) -> bool:
        """Return whether the run, or what comes after it, uses the memory of a number."""
        used = {total.result for total in self.sums} | self._read | self._set
        return any(abs(place - other) < _NUMBER for other in used) or any(
            _meets(place, operand, self.length) for operand in self.operands()
        )

    def moves(self, number: int, read: Sequence[int], result: int) -> bool:
        """Return whether a row of single numbers can come before or after the run."""
        moving = [operand for operand in self.operands() if operand[1]]
        if any(
            _meets(place, operand, self.length)
            for place in (*read, result)
            for operand in moving
        ):
            return False
        made = self._set | {total.result for total in self.sums}
        waits = any(abs(place - other) < _NUMBER for place in read for other in made)
        if waits or self._is_used(result):
            self._defer([number], read, result)
        else:
            self.hastened.append(number)
        return True

    def _defer(self, rows: Iterable[int], read: Sequence[int], result: int) -> None:
        self.deferred += rows
        self._read |= {*read}
        self._set.add(result)

    def without_end(self) -> _RowRun:
        """Return the run without rows that come after all others anyway."""
        last = max(
            self.rows[-1].number, *[total.last for total in self.sums], self.first
        )
        self.hastened = [number for number in self.hastened if number <= last]
        self.deferred = [number for number in self.deferred if number <= last]
        return self


# Bytes of the largest number.
_NUMBER: Final = 16


def _meets(place: int, operand: tuple[int, int], length: int) -> bool:
    """Return whether a number may lie in the memory of an operand."""
    start, step = operand
    return start - _NUMBER < place < start + max(step * length, _NUMBER)


def _runs(table: Table) -> Generator[_RowRun]:
    """Find runs of rows of one length whose memory is the same or apart."""
    run: _RowRun | None = None
    number = 0
    while number <= len(table.rows):
        row = _row_of(table, number)
        if run is not None:
            if row is not None and run.takes(row):
                number += 1
                continue
            total = _sum_of(table, number + 1) if row is None else None
            if total is not None and run.takes_sum(total):
                number = total.last + 1
                continue
            if row is None and _moves(table, number, run):
                number += 1
                continue
            if _is_worth(run):
                yield run.without_end()
            run = None
        if row is not None:
            memory = RunMemory(row.length, _NUMBER)
            run = _RowRun(row, memory) if memory.takes(row.operands) else None
        number += 1


def _sum_of(table: Table, number: int) -> _SumRow | None:
    """Return the sum that a row computes."""
    last = table.sums.get(number)
    if last is None:
        return None
    data, steps = table.rows[number][2], table.rows[number][4]
    result, source, _ = table.cells[data : data + 3]
    size = table.cells[steps + 1]
    loops = sum_loops("f" if size == np.dtype("f").itemsize else "d")
    return loops and _SumRow(number, last, result, source, size, loops)


def _moves(table: Table, number: int, run: _RowRun) -> bool:
    """Have a row of single numbers come before or after a run, if it can."""
    if number not in table.names:
        return False
    _, _, data, dims, *_, axes, _, count, _ = table.rows[number]
    *read, result = table.cells[data : data + count]
    return not axes and table.cells[dims] == 1 and run.moves(number, read, result)


def _is_worth(run: _RowRun) -> bool:
    """Return whether rows gain by blocks or threads."""
    moving = {place for place, step in run.operands() if step}
    fixed = {place for place, step in run.operands() if not step}
    if moving & fixed:
        return False
    if run.length >= _SHARED and _threads() > 1:
        return True
    count = len(run.rows) + len(run.sums)
    return count > 1 and run.length >= _FEWEST * _block_of(run)


def _block_of(run: _RowRun) -> int:
    """Return how many items a block has."""
    widths = sum(step for _, step in run.operands())
    return min(max(_CACHED // max(widths, 1) // 64 * 64, _SMALLEST), _LARGEST)


def _threads() -> int:
    """Return how many threads may run, with the one that calls."""
    if thread_functions() is None:
        return 1
    if config.compile_threads is not None:
        return config.compile_threads
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ---- rows over blocks ----


def _emit_blocks(table: Table, run: _RowRun, is_read_after: Readers) -> None:
    """Add rows that do the work of a run block by block."""
    block = _block_of(run)
    local = _local_operands(run, is_read_after)
    shares = _shares(run, block)
    parts: list[Table] = []
    table.rows += [table.rows[total.number - 1] for total in run.sums]
    totals: list[list[int]] = []
    for number, (first, length) in enumerate(shares):
        if len(shares) == 1:
            part = table
        elif number == 0:
            part = table.program.table()
        else:
            header = np.zeros(HEADER_WORDS, np.int64)
            header[WORK_LIMIT] = 1 << 62  # only the first thread looks for Ctrl-C
            table.program.hold(header)
            part = table.program.table(address_of(header))
        memory = {} if number == 0 else _memory_of(table, local, block)
        results = [total.result for total in run.sums]
        if len(shares) > 1:
            results = [_zero_of_thread(part, total) for total in run.sums]
            totals.append(results)
        body = _RunBody(
            run, is_read_after, memory, local, _begun(part, run, length), results
        )
        whole, rest = divmod(length, block)
        rows = table.program.table(part.header)
        body.emit(rows, block, None)
        points = [
            Point(rows, place, 1, place + first * step, block * step)
            for place, step in _moving(run) - local
        ]
        part.repeat(rows, whole, points=points)
        if rest:
            tail = table.program.table(part.header)
            body.emit(tail, rest, first + whole * block)
            part.repeat(tail, 1)
        if len(shares) > 1:
            parts.append(part)
    if parts:
        table.share(parts)
        _add_totals(table, run, totals)


def _shares(run: _RowRun, block: int) -> list[tuple[int, int]]:
    """Return where the items of each thread begin, and how many they are."""
    threads = _threads() if run.length >= _SHARED else 1
    if run.sums:
        return halves(run.length, 1 << (threads.bit_length() - 1))
    whole = run.length // block
    ends = [whole * k // threads * block for k in range(threads)] + [run.length]
    return [(a, b - a) for a, b in pairwise(ends)]


def _zero_of_thread(part: Table, total: _SumRow) -> int:
    """Emit the row that sets the result of a sum in one thread to zero."""
    zeros = np.zeros(16, np.int64)  # what is read, and 64 bytes further the sum
    part.program.hold(zeros)
    own = address_of(zeros) + 64
    part.emit(move_loop(), [address_of(zeros), own], [total.size], [0, 0])
    return own


def _add_totals(table: Table, run: _RowRun, totals: list[list[int]]) -> None:
    """Add rows that add the sums of threads, of two halves at a time."""
    for number, total in enumerate(run.sums):
        loop: Any = loop_for(np.add, (np.dtype(f"f{total.size}"),) * 2)
        places = [results[number] for results in totals]
        while len(places) > 1:
            for a, b in zip(places[::2], places[1::2], strict=True):
                table.emit(loop, [a, b, a], [1], [0, total.size, 0])
            places = places[::2]
        operands = [total.result, places[0], total.result]
        table.emit(loop, operands, [1], [0, total.size, 0])


def _begun(part: Table, run: _RowRun, length: int) -> list[int]:
    """Emit rows that begin the sums of a thread; return where their states lie."""
    states = []
    for total in run.sums:
        room = np.zeros(STATE_WORDS + 8, np.int64)
        part.program.hold(room)
        states.append(address_of(room) + (-address_of(room) % 64))
        part.emit(total.loops[0], [states[-1]], [length], [0], work=1)
    return states


class _RunBody(NamedTuple):
    """The rows of a run for one thread.

    Attributes
    ----------
    run : _RowRun
    is_read_after : callable
    memory : dict
        Memory of its own for the values of a block: place -> its own place.
    local : set
        Operands that have memory for one block.
    states, results : list of int
        Of the sums.
    """

    run: _RowRun
    is_read_after: Readers
    memory: dict[int, int]
    local: set[tuple[int, int]]
    states: list[int]
    results: list[int]

    def emit(self, table: Table, count: int, start: int | None) -> None:
        """Add the rows over some items.

        Parameters
        ----------
        table : Table
        count : int
        start : int or None
            The first item; None where the pointers follow the steps of a loop.
        """
        # Row -> the old row that it is. Nodes whose values sums read, and the last such row.
        old: dict[int, int] = {}
        summed: dict[Any, int] = {}
        nodes: dict[int, Any] = {}
        waiting = [*zip(self.run.sums, self.states, self.results, strict=True)]
        for row in self.run.rows:
            result = row.operands[-1][0]
            for entry in [*waiting]:
                if entry[0].number < row.number and entry[0].source == result:
                    waiting.remove(entry)
                    self._emit_sum(table, count, start, entry)
                    summed[nodes.get(result)] = len(table.rows)
            places = [self._place(operand, start) for operand in row.operands]
            strides = [step for _, step in row.operands]
            number = table.emit(row.loop, places, [count], strides)
            table.note(number, *row.note)
            old[number] = row.number
            nodes[result] = row.note[1]
        for entry in waiting:
            self._emit_sum(table, count, start, entry)
            summed[nodes.get(entry[0].source)] = len(table.rows)

        def is_read_after(node: Any, row: int) -> bool:
            return summed.get(node, 0) > row + 1 or self.is_read_after(node, old[row])

        fuse(table, is_read_after)

    def _emit_sum(
        self,
        table: Table,
        count: int,
        start: int | None,
        entry: tuple[_SumRow, int, int],
    ) -> None:
        total, state, result = entry
        source = self._place((total.source, total.size), start)
        places = [result, source, state]
        table.emit(total.loops[1], places, [count], [0, total.size, 0])

    def _place(self, operand: tuple[int, int], start: int | None) -> int:
        """Return where the items of an operand begin."""
        place, step = operand
        if operand in self.local or start is None:
            return self.memory.get(place, place)
        return place + start * step


def _moving(run: _RowRun) -> set[tuple[int, int]]:
    return {operand for operand in run.operands() if operand[1]}


def _local_operands(run: _RowRun, is_read_after: Readers) -> set[tuple[int, int]]:
    """Return the operands that are written before they are read, and only read here."""
    local: set[tuple[int, int]] = set()
    read: set[tuple[int, int]] = set()
    for row in run.rows:
        *inputs, result = row.operands
        read.update(set(inputs) - local)
        if result not in read:
            local.add(result)
    kept = {
        row.operands[-1] for row in run.rows if is_read_after(row.note[1], run.last)
    }
    return local - kept


def _memory_of(table: Table, local: set[tuple[int, int]], block: int) -> dict[int, int]:
    """Return memory for the blocks of another thread: place -> its own place."""
    found = {}
    for place, step in local:
        room = np.empty(block * step + 128, np.uint8)
        table.program.hold(room)
        found[place] = address_of(room) + (-address_of(room) % 64)
    return found
