"""Large elementwise calls in blocks: each block goes through all calls while it is cached.

Arithmetic in a block is one loop; between such loops run NumPy's own, as that of exp, on the
same block. A value that is read by nothing but these calls has memory for one block only.
With ``compile(exact=False)`` sums of such values are made block by block, too. Very large arrays are shared among threads, which need no GIL.
"""

from __future__ import annotations

import os
from collections.abc import Container, Generator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from customop.compiling.native_backend.fused_loops import Readers, RunMemory, fuse
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.object_layout import thread_functions
from customop.compiling.native_backend.own_loops import move_loop
from customop.compiling.native_backend.tables import (
    HEADER_WORDS,
    WORK_LIMIT,
    InnerLoop,
    Point,
    Table,
)
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
    placed: dict[int, list[tuple[int, ...]]] = {}
    gone: set[int] = set()
    for run in runs:
        mark = len(table.rows)
        sums = _sums_after(table, run)
        _emit_blocks(table, run, sums, is_read_after)
        placed[run[0].number] = table.rows[mark:]
        del table.rows[mark:]
        gone.update(row.number for row in run)
        gone.update(n for total in sums for n in (total.number - 1, total.number))
    table.sums.clear()
    if runs:
        _replace(table, placed, gone, is_read_after)
    else:
        fuse(table, is_read_after)


def _replace(
    table: Table,
    placed: dict[int, list[tuple[int, ...]]],
    gone: set[int],
    is_read_after: Readers,
) -> None:
    """Put rows in place of others, and fuse those that are left."""
    rows: list[tuple[int, ...]] = []
    old: list[int] = []
    names = {}
    for number, row in enumerate(table.rows):
        new = placed.get(number, [])
        rows += new
        old += [number] * len(new)
        if number not in gone:
            if number in table.names:
                names[len(rows)] = table.names[number]
            rows.append(row)
            old.append(number)
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


def _runs(table: Table) -> Generator[list[_BlockRow]]:
    """Find runs of neighboring rows of one length whose memory is the same or apart."""
    run: list[_BlockRow] = []
    memory: RunMemory | None = None
    for number in range(len(table.rows) + 1):
        row = _row_of(table, number)
        fits = (
            memory is not None
            and row is not None
            and row.length == run[0].length
            and memory.takes(row.operands)
        )
        if not fits:
            if _is_worth(run, _sums_after(table, run)):
                yield run
            run, memory = [], None
            if row is not None:
                begun = RunMemory(row.length, 16)
                memory = begun if begun.takes(row.operands) else None
        if row is not None and memory is not None:
            run.append(row)


class _SumRow(NamedTuple):
    """A row that sums one of the values of a run.

    Attributes
    ----------
    number : int
        The row before it sets the result to 0.
    loop : InnerLoop
    result, source : int
        Where they lie.
    size : int, bytes
        Of an item.
    last : int
        The last row of the node.
    """

    number: int
    loop: InnerLoop
    result: int
    source: int
    size: int
    last: int


def _sums_after(table: Table, run: Sequence[_BlockRow]) -> list[_SumRow]:
    """Return the sums of values of a run that follow it."""
    found: list[_SumRow] = []
    if not run:
        return found
    results = {row.operands[-1] for row in run}
    number = run[-1].number + 2
    while number in table.sums:
        function, context, data, dims, steps, auxdata, *_, last = table.rows[number]
        result, source, _ = table.cells[data : data + 3]
        size = table.cells[steps + 1]
        if table.cells[dims] != run[0].length or (source, size) not in results:
            break
        # The result is set to 0 before the run, so that nothing else may lie there.
        others = {o for row in run for o in row.operands}
        if any(_meets(result, o, run[0].length) for o in others) or any(
            result == total.result for total in found
        ):
            break
        loop = InnerLoop(function, context, auxdata, last & 3)
        total = _SumRow(number, loop, result, source, size, table.sums[number])
        found.append(total)
        if total.last != number:
            break  # other rows of its node follow
        number += 2
    return found


def _meets(place: int, operand: tuple[int, int], length: int) -> bool:
    """Return whether a number may lie in the memory of an operand."""
    start, step = operand
    return start - 8 < place < start + max(step * length, 8)


def _is_worth(run: Sequence[_BlockRow], sums: Sequence[_SumRow]) -> bool:
    """Return whether rows gain by blocks or threads."""
    if not run:
        return False
    moving = {place for row in run for place, step in row.operands if step}
    fixed = {place for row in run for place, step in row.operands if not step}
    if moving & fixed:
        return False
    length = run[0].length
    if length >= _SHARED and _threads() > 1:
        return True
    return len(run) + len(sums) > 1 and length >= _FEWEST * _block_of(run)


def _block_of(run: Sequence[_BlockRow]) -> int:
    """Return how many items a block has."""
    widths = sum(step for _, step in {o for row in run for o in row.operands})
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


def _emit_blocks(
    table: Table,
    run: Sequence[_BlockRow],
    sums: Sequence[_SumRow],
    is_read_after: Readers,
) -> None:
    """Add rows that do the work of a run block by block."""
    length, block = run[0].length, _block_of(run)
    threads = _threads() if length >= _SHARED else 1
    whole = length // block
    last = sums[-1].last if sums else run[-1].number
    local = _local_operands(run, last, is_read_after)
    parts: list[Table] = []
    table.rows += [table.rows[total.number - 1] for total in sums]
    added: list[tuple[_SumRow, int]] = []
    for number in range(threads):
        first, end = (whole * k // threads for k in (number, number + 1))
        if number == 0:
            part = table if threads == 1 else table.program.table()
        else:
            header = np.zeros(HEADER_WORDS, np.int64)
            header[WORK_LIMIT] = 1 << 62  # only the first thread looks for Ctrl-C
            table.program.hold(header)
            part = table.program.table(address_of(header))
        memory = {} if number == 0 else _memory_of(table, local, block)
        if number > 0:
            totals = _totals_of_thread(part, sums)
            added += zip(sums, totals.values(), strict=True)
            memory |= totals
        body = table.program.table(part.header)
        _emit_rows(body, run, block, 0, memory)
        _emit_sums(body, sums, block, 0, memory)
        fuse(body, _readers_of(run, is_read_after))
        points = [
            Point(body, place, 1, place + first * block * step, block * step)
            for place, step in _moving(run) - local
        ]
        part.repeat(body, end - first, points=points)
        rest = length - whole * block
        if number == threads - 1 and rest:
            tail = table.program.table(part.header)
            _emit_rows(tail, run, rest, whole * block, memory, local)
            places = {place for place, _ in local}
            _emit_sums(tail, sums, rest, whole * block, memory, places)
            fuse(tail, _readers_of(run, is_read_after))
            part.repeat(tail, 1)
        if threads > 1:
            parts.append(part)
    if parts:
        table.share(parts)
    for total, own in added:
        operands = [total.result, own, total.result]
        table.emit(total.loop, operands, [1], [0, total.size, 0])


def _totals_of_thread(part: Table, sums: Sequence[_SumRow]) -> dict[int, int]:
    """Emit zeros for the sums of another thread: result -> its own result."""
    found = {}
    for total in sums:
        zeros = np.zeros(16, np.int64)  # what is read, and 64 bytes further the sum
        part.program.hold(zeros)
        own = address_of(zeros) + 64
        part.emit(move_loop(), [address_of(zeros), own], [total.size], [0, 0])
        found[total.result] = own
    return found


def _emit_sums(
    body: Table,
    sums: Sequence[_SumRow],
    count: int,
    start: int,
    memory: dict[int, int],
    local: Container[int] = (),
) -> None:
    """Add the rows of sums over some items, as `_emit_rows` those of the run."""
    for total in sums:
        result = memory.get(total.result, total.result)
        source = memory.get(total.source, total.source)
        if total.source not in local:
            source += start * total.size
        body.emit(total.loop, [result, source, result], [count], [0, total.size, 0])


def _readers_of(run: Sequence[_BlockRow], is_read_after: Readers) -> Readers:
    return lambda node, row: is_read_after(node, run[row].number)


def _moving(run: Sequence[_BlockRow]) -> set[tuple[int, int]]:
    return {o for row in run for o in row.operands if o[1]}


def _local_operands(
    run: Sequence[_BlockRow], last: int, is_read_after: Readers
) -> set[tuple[int, int]]:
    """Return the operands that are written before they are read, and only read here.

    `last` is the last of the rows that read them.
    """
    local: set[tuple[int, int]] = set()
    read: set[tuple[int, int]] = set()
    for row in run:
        *inputs, result = row.operands
        read.update(set(inputs) - local)
        if result not in read:
            local.add(result)
    kept = {row.operands[-1] for row in run if is_read_after(row.note[1], last)}
    return local - kept


def _memory_of(table: Table, local: set[tuple[int, int]], block: int) -> dict[int, int]:
    """Return memory for the blocks of another thread: place -> its own place."""
    found = {}
    for place, step in local:
        room = np.empty(block * step + 128, np.uint8)
        table.program.hold(room)
        found[place] = address_of(room) + (-address_of(room) % 64)
    return found


def _emit_rows(
    body: Table,
    run: Sequence[_BlockRow],
    count: int,
    start: int,
    memory: dict[int, int],
    local: set[tuple[int, int]] | frozenset[tuple[int, int]] = frozenset(),
) -> None:
    """Add the rows of a run over some items, from a first one on."""
    for row in run:
        places = [
            memory.get(place, place) + (0 if (place, step) in local else start * step)
            for place, step in row.operands
        ]
        strides = [step for _, step in row.operands]
        number = body.emit(row.loop, places, [count], strides)
        body.note(number, *row.note)
