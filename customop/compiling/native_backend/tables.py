"""Tables of rows that the driver runs, and the program that they belong to.

A row calls one inner loop: a C function of the form that NumPy's own loops have,
``int loop(context, data, dimensions, strides, auxdata)``. It returns 0 to go on, -1 if an
exception is set, and another number if NumPy has to do the whole call again. Loops over
tables, branches and calls of Python are rows, too; their `auxdata` is a record in cells.

A program holds its tables, their memory and whatever their rows point to. Nothing in a
table is an object of Python that the table holds itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from customop.compiling.native_backend.memory import address_of

# ---- loops ----

# What a row does to the floating-point flags: none is raised; those raised count; those
# raised do not count, and are cleared.
QUIET: Final = 0
WATCHED: Final = 1
CLEARED: Final = 2


class InnerLoop(NamedTuple):
    """An inner loop in machine code.

    Attributes
    ----------
    function, context, auxdata : int
        Addresses, 0 for none.
    flags : int
        `QUIET`, `WATCHED` or `CLEARED`.
    needs_gil : bool
        Whether it uses objects of Python.
    owner : object
        Holds the memory behind the addresses.
    """

    function: int
    context: int = 0
    auxdata: int = 0
    flags: int = WATCHED
    needs_gil: bool = False
    owner: object = None


class OuterAxis(Protocol):
    """An axis around the inner loop: its length, and the step of each pointer."""

    @property
    def length(self) -> int:
        """The number of places."""
        ...

    @property
    def strides(self) -> tuple[int, ...]:
        """The step of each pointer, in bytes."""
        ...


class Move(NamedTuple):
    """A copy in each step of a loop: to ``target + i * target_step``, and so on."""

    target: int
    source: int
    nbytes: int
    target_step: int = 0
    source_step: int = 0


class Point(NamedTuple):
    """Pointers of a table that follow the steps of a loop.

    Those that point to ``address <= p < address + extent`` go on to
    ``base + i * step + (p - address)`` in step i.
    """

    table: Table
    address: int
    extent: int
    base: int
    step: int


# ---- rows ----

# Words of a row: function, context, data, dimensions, strides, auxdata, number of axes
# around the loop, these axes, number of pointers, flags and work.
WORDS: Final = 10
# Those that are places in the cells.
_IN_CELLS: Final = (2, 3, 4, 7)
# The work of a row in items is not needed exactly: only how often to look for Ctrl-C.
_MOST_WORK: Final = 1 << 40


class Table:
    """Rows that run one after the other, and the cells that they point to.

    Attributes
    ----------
    program : NativeProgram
    header : int
        The address of the header with the state of a run of this table.
    cells : list of int
        Pointers, lengths, strides and records.
    rows : list of tuple
        With places in the cells instead of addresses.
    names : dict
        Row -> the ufunc, the node that it computes, and the dtypes.
    sums : dict
        Row that adds all items of contiguous memory to a number, which the row before it
        sets to 0 -> the last row of the same node. They may be added in any order.
    needs_gil : bool
        Whether a row uses objects of Python.
    """

    def __init__(self, program: NativeProgram, header: int) -> None:
        self.program: NativeProgram = program
        self.header: int = header
        self.cells: list[int] = []
        self.rows: list[tuple[int, ...]] = []
        self.names: dict[int, tuple[str, Any, str]] = {}
        self.sums: dict[int, int] = {}
        self.needs_gil: bool = False
        # Tables that rows run, and how often; also those of rows that were taken back.
        self._bodies: list[tuple[Table, int]] = []
        # Parts of the cells that are pointers: where they begin and how many there are.
        self._pointers: list[tuple[int, int]] = []
        # Cells that get the place of a table (and, before it, its length) or of a cell.
        self._links: list[tuple[int, Table | _Cell | int]] = []
        # Cells that get the number of pointers that move, and their place.
        self._points: list[tuple[int, Sequence[Point]]] = []
        self._held: list[object] = []
        self._cells: np.ndarray[Any, Any] | None = None
        self._rows: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def emit(
        self,
        loop: InnerLoop,
        pointers: Sequence[int],
        dims: Sequence[int],
        strides: Sequence[int],
        outer: Sequence[OuterAxis] = (),
        *,
        work: int | None = None,
    ) -> int:
        """Add a row; return its number.

        Parameters
        ----------
        loop : InnerLoop
        pointers : sequence of int
            Addresses of the operands.
        dims, strides : sequence of int
            As the loop takes them.
        outer : sequence of OuterAxis
            The axes around the loop, the innermost first. All pointers move along them.
        work : int, optional
            Items that the row computes, if not the product of all lengths.
        """
        cells = self.cells
        data = len(cells)
        cells += pointers
        self._pointers.append((data, len(pointers)))
        lengths = len(cells)
        cells += dims
        steps = len(cells)
        cells += strides
        axes = len(cells)
        if work is None:
            work = math.prod(dims)
        for axis in outer:
            cells += (axis.length, 0, *axis.strides)
            work *= axis.length
        self.rows.append(
            (
                loop.function,
                loop.context,
                data,
                lengths,
                steps,
                loop.auxdata,
                len(outer),
                axes,
                len(pointers),
                loop.flags | min(abs(work), _MOST_WORK) << 2,
            )
        )
        if loop.owner is not None:
            self._held.append(loop.owner)
        if loop.needs_gil:
            self.needs_gil = True
        return len(self.rows) - 1

    @property
    def work(self) -> int:
        """Return roughly how many items all rows compute."""
        own = sum([row[_WORK_WORD] >> 2 for row in self.rows])
        return own + sum([body.work * count for body, count in self._bodies])

    def note(self, row: int, name: str, node: Any, types: str = "") -> None:
        """Note that a row is a ufunc over contiguous items, with types as "dd->d"."""
        self.names[row] = name, node, types

    def mark(self) -> tuple[int, ...]:
        """Return where the table ends, for `back_to`."""
        parts: Iterable[Sequence[Any]] = (
            self.rows, self.cells, self._pointers, self._links, self._points, self._held
        )  # fmt: skip
        return tuple([len(part) for part in parts])

    def back_to(self, mark: tuple[int, ...]) -> None:
        """Remove what was added since a mark."""
        parts: Iterable[list[Any]] = (
            self.rows, self.cells, self._pointers, self._links, self._points, self._held
        )  # fmt: skip
        for part, length in zip(parts, mark, strict=True):
            del part[length:]
        noted: Iterable[dict[int, Any]] = (self.names, self.sums)
        for notes in noted:
            for row in [row for row in notes if row >= mark[0]]:
                del notes[row]

    # ---- rows over other tables, and calls of Python ----

    def island(self, call: Callable[[], object]) -> int:
        """Add a row that calls a function of Python.

        If that returns True, the whole call is left to NumPy.
        """
        function = self.program.driver.island
        loop = InnerLoop(function, self.header, id(call), CLEARED, True, call)
        return self.emit(loop, (), (), (), work=0)

    def repeat(
        self,
        body: Table,
        count: int | None,
        *,
        count_at: int = 0,
        reverse: bool = False,
        condition: tuple[Table, int] | None = None,
        moves_in: Sequence[Move] = (),
        points: Sequence[Point] = (),
        index: tuple[int, int, int] = (0, 0, 0),
        moves_out: Sequence[Move] = (),
        carry: Sequence[Move] = (),
    ) -> int:
        """Add a row that runs a table again and again.

        Parameters
        ----------
        body : Table
        count : int or None
            The most steps; None for as long as the condition holds.
        count_at : int, optional
            The address of an int64 with the most steps, instead.
        reverse : bool, optional
            Whether the number of the step, in moves, points and index, counts down.
        condition : tuple, optional
            A table that runs before each step, and the address of its bool: the loop ends
            where that is false.
        moves_in, points, index : optional
            What is set before each step. `index` is the address of an int64, the number
            that it gets in step 0, and how much it grows.
        moves_out, carry : sequence of Move, optional
            Copies after each step, in this order. Steps do not matter to `carry`.
        """
        test, byte = condition or (None, 0)
        moved = [self._moves(moves) for moves in (moves_in, moves_out, carry)]
        start = len(self.cells)
        self._add((1 << 62) if count is None else count)
        self._add_pointer(count_at)
        self._add(int(reverse))
        self._add_table(test)
        self._add_pointer(byte)
        self._add(len(moves_in))
        self._add_place(moved[0])
        self._points.append((len(self.cells), points))
        self._add(0, 0)
        self._add_pointer(index[0])
        self._add(*index[1:])
        self._add_table(body)
        self._bodies.append((body, count or 1))
        for moves, place in zip((moves_out, carry), moved[1:], strict=True):
            self._add(len(moves))
            self._add_place(place)
        return self._emit_record(self.program.driver.repeat, start)

    def choose(self, address: int, kind: str, tables: Sequence[Table]) -> int:
        """Add a row that runs one of some tables.

        Parameters
        ----------
        address : int
            Where the number of the table lies.
        kind : str
            "?" for a bool, "l" for an int64. Numbers that are too small or too large are
            those of the first and of the last table.
        tables : sequence of Table
        """
        start = len(self.cells)
        self._add_pointer(address)
        self._add(int(kind == "l"), len(tables))
        for table in tables:
            self._add_table(table)
            self._bodies.append((table, 1))
        return self._emit_record(self.program.driver.choose, start)

    def share(self, parts: Sequence[Table]) -> int:
        """Add a row that runs tables at the same time, each in a thread but the first.

        Parameters
        ----------
        parts : sequence of Table
            All but the first have headers of their own, which count the flags that they
            raise, and no row that needs the GIL.
        """
        first = len(self.cells)
        for part in parts:
            self._add_table(part)
            self._bodies.append((part, 1))
            self._add(part.header, 0, 0)
        start = len(self.cells)
        self._add(len(parts))
        self._add_place(first)
        return self._emit_record(self.program.driver.share, start)

    def _emit_record(self, function: int, start: int) -> int:
        """Add the row of a record; its address goes where an operand's pointers would."""
        loop = InnerLoop(function, self.header, 0, QUIET)
        row = self.emit(loop, (), (), (), work=0)
        self.rows[row] = (*self.rows[row][:_DATA_WORD], start, *self.rows[row][3:])
        return row

    def _add(self, *words: int) -> None:
        self.cells += words

    def _add_pointer(self, address: int) -> None:
        self._pointers.append((len(self.cells), 1))
        self.cells.append(address)

    def _add_place(self, place: int) -> None:
        self._links.append((len(self.cells), place))
        self.cells.append(0)

    def _add_table(self, table: Table | None) -> None:
        """Add the number of rows of a table, and where they lie."""
        if table is not None:
            self._links.append((len(self.cells), table))
            self.needs_gil = self.needs_gil or table.needs_gil
        self._add(0, 0)

    def _moves(self, moves: Sequence[Move]) -> int:
        start = len(self.cells)
        for target, source, *rest in moves:
            self._pointers.append((len(self.cells), 2))
            self._add(target, source, *rest)
        return start

    # ---- the memory that the driver reads ----

    def lay_points(self) -> None:
        """Write down the pointers of other tables that move in the steps of a loop."""
        for cell, points in self._points:
            start = len(self.cells)
            for outermost, address, extent, base, step in points:
                for table in outermost.with_bodies():
                    for place in table.pointers_within(address, address + extent):
                        self._links.append((len(self.cells), _Cell(table, place)))
                        self._add(0)
                        self._add_pointer(base + table.cells[place] - address)
                        self._add(step)
            self.cells[cell] = (len(self.cells) - start) // 3
            self._links.append((cell + 1, start))

    def with_bodies(self) -> list[Table]:
        """Return the table and all that run in it."""
        return [
            self,
            *[table for body, _ in self._bodies for table in body.with_bodies()],
        ]

    def pointers_within(self, low: int, high: int) -> list[int]:
        """Return the places of cells that point into some memory."""
        cells = self.cells
        return [
            place
            for start, count in self._pointers
            for place in range(start, start + count)
            if low <= cells[place] < high
        ]

    def lay(self) -> None:
        """Turn rows and cells into memory; places in the cells become addresses."""
        self._cells = np.array(self.cells or [0], np.int64)
        rows = np.array(self.rows, np.int64).reshape(-1, WORDS)
        for word in _IN_CELLS:
            rows[:, word] = rows[:, word] * 8 + address_of(self._cells)
        self._rows = rows

    def link(self) -> None:
        """Write the places of tables and cells into the cells that refer to them."""
        cells = self._cells
        assert cells is not None
        for cell, target in self._links:
            if isinstance(target, Table):
                cells[cell], cells[cell + 1] = len(target.rows), target.address
            elif isinstance(target, _Cell):
                cells[cell] = target.table.cell_address(target.place)
            else:
                cells[cell] = self.cell_address(target)

    @property
    def address(self) -> int:
        """Where the rows lie, after `lay`."""
        assert self._rows is not None
        return address_of(self._rows)

    def cell_address(self, place: int) -> int:
        """Return where a cell lies, after `lay`."""
        assert self._cells is not None
        return address_of(self._cells) + 8 * place

    def memory(self) -> tuple[list[object], int]:
        """Return what rows point to and their own memory, after `lay`; and how large that is."""
        assert self._cells is not None
        assert self._rows is not None
        held = [*self._held, self._cells, self._rows]
        return held, self._cells.nbytes + self._rows.nbytes

    def pointers(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the addresses of all cells that are pointers, and what they point to."""
        cells = self._cells
        assert cells is not None
        if not self._pointers:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        starts, counts = np.array(self._pointers, np.int64).T
        before = np.cumsum(counts) - counts
        places = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
        return address_of(cells) + 8 * places, cells[places]


_DATA_WORD: Final = 2
_WORK_WORD: Final = 9


class _Cell(NamedTuple):
    """A cell of a table."""

    table: Table
    place: int


# ---- programs ----


class NativeProgram:
    """The tables of one graph, and a header in memory with the state of a run.

    Parameters
    ----------
    driver : DriverCode
        The functions that run tables.
    is_exact : bool, optional
        Whether the results must have NumPy's bits.

    Attributes
    ----------
    tables : list of Table
        Until `seal`.
    address : int
        Where the header lies.
    always_counted : int
        Flags that count whatever the settings for errors are.
    nbytes : int
        The memory of the tables, after `seal`.
    """

    def __init__(self, driver: DriverCode, *, is_exact: bool = True) -> None:
        self.driver: DriverCode = driver
        self.is_exact: bool = is_exact
        self.tables: list[Table] = []
        self.header: np.ndarray[Any, Any] = np.zeros(HEADER_WORDS, np.int64)
        self.address: int = address_of(self.header)
        self.always_counted: int = 0
        self.nbytes: int = 0
        self._held: list[object] = []
        self._settings: object = None
        self._sorted: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None

    def table(self, header: int = 0) -> Table:
        """Return a new table, with another header if another thread runs it."""
        made = Table(self, header or self.address)
        self.tables.append(made)
        return made

    def hold(self, value: object) -> None:
        """Keep an object alive as long as the program."""
        self._held.append(value)

    def hold_errstate(self, settings: object) -> None:
        """Keep the settings for errors alive, of which the header has the address."""
        self._settings = settings

    def seal(self) -> None:
        """Lay out all tables. Nothing may be added to them any more."""
        if self._sorted is not None:
            return
        for table in self.tables[::-1]:  # those that run in others come later
            table.lay_points()
        for table in self.tables:
            table.lay()
        for table in self.tables:
            table.link()
        found = [table.pointers() for table in self.tables]
        places = np.concatenate(
            [np.empty(0, np.int64), *[places for places, _ in found]]
        )
        values = np.concatenate(
            [np.empty(0, np.int64), *[values for _, values in found]]
        )
        order = np.argsort(values, kind="stable")
        self._sorted = places[order], values[order]
        # From now on the driver reads their memory. They point back to the program.
        for table in self.tables:
            held, nbytes = table.memory()
            self._held += held
            self.nbytes += nbytes
        self.tables = []

    def pointer_cells(self, low: int, high: int) -> np.ndarray[Any, Any]:
        """Return the cells that point into some memory, after `seal`.

        Parameters
        ----------
        low, high : int
            Addresses; `high` is outside.

        Returns
        -------
        array of int64, shape (n, 2)
            The address of the cell, and how far from `low` it points.
        """
        assert self._sorted is not None
        places, values = self._sorted
        first, last = np.searchsorted(values, [low, high])
        return np.stack([places[first:last], values[first:last] - low], 1)


class DriverCode(Protocol):
    """The addresses of the functions that run tables."""

    @property
    def island(self) -> int:
        """Calls a function of Python."""
        ...

    @property
    def repeat(self) -> int:
        """Runs a table again and again."""
        ...

    @property
    def choose(self) -> int:
        """Runs one of some tables."""
        ...

    @property
    def share(self) -> int:
        """Runs some tables at the same time."""
        ...


# ---- the header ----

# Words of the header: whether the program runs; the floating-point flags that were raised;
# those that count; the settings for errors under which that is so; the state of the thread
# while the GIL is released; work since the last look for Ctrl-C, and how much may be done
# between two; whether to release the GIL; inputs, rows, results and last rows, each their
# number and place; what is called when the program cannot run; room for the results.
(
    BUSY,
    RAISED,
    COUNTED,
    ERRSTATE,
    THREAD,
    WORK,
    WORK_LIMIT,
    RELEASES,
    N_INPUTS,
    INPUTS,
    N_ROWS,
    ROWS,
    N_RESULTS,
    RESULTS,
    N_LAST_ROWS,
    LAST_ROWS,
    FALLBACK,
    MADE,
) = range(18)
HEADER_WORDS: Final = 18
