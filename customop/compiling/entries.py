"""Entries: what a compiled function has for one kind of arguments, captured under checks."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np

from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import flatten
from customop.arrays.watched_code import WriteWatch
from customop.compiling.call_code import (
    Call,
    CallArguments,
    CallLines,
    Original,
    own_results,
    symbolic_axes,
)
from customop.compiling.capture import Axes, CapturedCall, Finish, captured, cleaned
from customop.compiling.level_graphs import LevelGraph
from customop.compiling.outside_reads import (
    EnvironmentReads,
    FileReads,
    StatReads,
    lines_of_clocks,
    refuse_hidden,
)
from customop.compiling.surroundings import Surroundings, WatchedName
from customop.errors import GraphError, GuessError, counted, place, warn_caller
from customop.forks import free_after_fork
from customop.graph.code_parts import packer
from customop.graph.module import GraphModule
from customop.graph.node import CALL

# ---- entries: what a compiled function has for one kind of arguments ----


class Entry:
    """A graph for one kind of arguments, and its code.

    Attributes
    ----------
    original : Original
    level : LevelGraph or None
        The transform whose tracers it takes; None for plain values.
    module : GraphModule or None
        None where the function itself runs.
    call : callable
        Takes the arguments; where a guard does not hold, they go to the slow path.
    tried : callable
        As `call`, and returns MISS where a guard does not hold.
    found : CapturedCall or None
    surroundings : Surroundings
    family : object
        Equal for the arguments that it may be for.
    shapes : list
        Of the arrays that it was captured for.
    numbers : dict
        Number of a leaf -> the int or float that it was captured for.
    arguments : dict
        What it was captured for, in words.
    why : str
        Why there was no entry for them.
    skipped : str
        Why the function itself has run although there is a graph.
    number : int
        1 for the first that was compiled.
    """

    call: Call
    tried: Call
    code_of_backend: Any = None

    def __init__(
        self,
        original: Original,
        level: LevelGraph | None,
        given: CallArguments,
        surroundings: Surroundings,
    ) -> None:
        self.original: Original = original
        self.level: LevelGraph | None = level
        self.fn: Call = original.fn if level is None else level.run
        self.family: Any = given.family
        self.shapes: list[tuple[int, ...]] = given.shapes
        self.numbers: dict[int, Any] = given.numbers
        self.arguments: dict[str, str] = given.described(self.fn)
        self.surroundings: Surroundings = surroundings
        self.found: CapturedCall | None = None
        self.module: GraphModule | None = None
        self.why: str = ""
        self.skipped: str = ""
        self.number: int = 0
        self.refused: BaseException | None = None
        # What `call` runs: the function itself, as long as there is no graph.
        self._run: Call = original.fn

    # ---- reports ----

    @property
    def word(self) -> str:
        """The transform that it is for; empty for plain values."""
        return "" if self.level is None else self.level.word

    @property
    def place(self) -> Any:
        """Equal for entries of which the last one is tried first: of the same transforms."""
        return None if self.level is None else (self.word, self.level.is_nested)

    @property
    def cannot(self) -> str:
        """What is not possible where the function itself runs."""
        return "it cannot be captured" if self.level is None else self.level.cannot

    @property
    def size(self) -> str:
        """How many operators its graphs call; empty without a graph."""
        if self.module is None:
            return ""
        calls = calls_text(self.module)
        return (
            calls if self.level is None else self.level.size(calls, [*self.arguments])
        )

    @property
    def text(self) -> str:
        """The Python code of its graphs; empty without one."""
        if self.module is None:
            return ""
        more = () if self.level is None else self.level.codes
        return "\n".join([code_of(self.code_of_backend, self.module), *more])

    def refuse(self, error: BaseException) -> None:
        """Note why the function runs as it is.

        The frames of the error are let go: they hold the values of all callers.
        """
        self.refused, self.module = error, None
        found: BaseException | None = error
        while found is not None:
            found.__traceback__ = None
            found = found.__cause__ or found.__context__

    # ---- making it ----

    def capture(self, given: CallArguments, others: Sequence[Entry]) -> None:
        """Capture the function; `others` are for such arguments of other sizes."""
        original, level = self.original, self.level
        asked = (
            self.fn,
            original.title,
            given,
            self.surroundings,
            original.sizes if level is None or level.keeps_axes else None,
            free_axes(others, given.shapes),
            free_numbers(others, given.numbers),
            None if level is None else level.finish,
        )
        found = captured_alone(*asked)
        if found.has_guesses and _is_for_others(found.module, given) is not None:
            found = captured_alone(*asked, is_unusual=True)
            error = _is_for_others(found.module, given)
            if error is not None:
                raise error
        module = found.module
        if level is not None:
            if found.written:
                raise GraphError("it writes its arguments")
            if holds_traced(module):
                raise GraphError("it uses a value of a running transform")
            if level.is_nested:
                level.check_nested(module)
            module = level.forward(found, self.surroundings, given)
        if self.surroundings.contents_of_arrays():
            self.surroundings.leave_out_constants(_constants(found.module))
        self.module = module = own_results(module, self.surroundings)
        fixed = {**fixed_numbers(others), **found.fixed}
        self.found = found._replace(module=module, fixed=fixed)
        if found.numbers:
            self.family = given.kind

    def build(self) -> None:
        """Let the back end make code of the graph."""
        if self.module is None:
            return
        if self.level is None:
            self.code_of_backend, self._run = self.original.build(self.module)
        elif self.level.is_nested:
            self._run = self.original.lift(self.module)
        else:
            code = cleaned(self.module)
            self.code_of_backend, self._run = self.original.build(code)

    def write(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], below: CallArguments
    ) -> None:
        """Generate `call` for such arguments; `below` has values in place of tracers."""
        original, level = self.original, self.level
        lines = CallLines(original.parameters, original.slow)
        lines.take_apart(args, kwargs)
        leaves, text = flatten((args, kwargs))[0], None
        has_axes = [is_array(v) and bool(v.shape) for v in leaves]
        if level is not None:
            text = level.take_below(lines, has_axes)
        names: dict[str, Any] = {"_run": self._run, "_skip": self._skip}
        if self.module is None:
            free = {i: range(len(shape)) for i, shape in enumerate(self.shapes)}
            lines.check_leaves(below.leaves, free)
            lines.add(f"return _run({original.parameters.passed})")
        else:
            self._guard(lines, below)
            is_for_some = self.found is not None and self.found.has_guesses
            if is_for_some:
                names |= {"_GuessError": GuessError, "_other": self._run_for_others}
                lines.begin_try()
            if level is None or text is None:
                self._write_call(lines, self.module, names)
            else:
                if self.found is not None and self.found.has_strides:
                    lines.skip_places(level.place_tests(text.leaves, has_axes))
                count = len(self.module.graph.output_node.args[0])
                lines.add(f"_outs = _run({', '.join(text.given)})")
                lines.add(*level.result_lines(text, count, original.title, names))
            if is_for_some:
                lines.end_try(
                    "except _GuessError as error:",
                    f"    return _other(error, {original.parameters.given})",
                )
        self.call, self.tried = lines.made(names)

    def _guard(self, lines: CallLines, given: CallArguments) -> None:
        """Write the conditions for arguments and surroundings."""
        found, module = self.found, self.module
        assert found is not None
        assert module is not None
        free = symbolic_axes(module)
        lines.check_leaves(given.leaves, free, found.numbers)
        lines.check_surroundings(self.surroundings)
        lines.check_sizes(module)
        lines.check_same(found.same)
        if may_draw(module):
            lines.check_outside_of_vmap()
        if found.has_strides:
            lines.check_strides(given.leaves, free)
        if found.written:
            lines.check_writable(found.written)
            _check_apart(lines, given.leaves, found)

    def _write_call(
        self, lines: CallLines, module: GraphModule, names: dict[str, Any]
    ) -> None:
        """Write the call of the code for plain values."""
        call, spec = f"_run({', '.join(lines.leaves)})", module.out_spec
        assert spec is not None
        if spec.type is None:
            lines.add(f"_out, = {call}", "return _out")
        else:
            title = f"result of {self.original.parameters.title}"
            names["_pack"] = packer(spec, title)
            lines.add(f"return _pack({call})")

    def _run_for_others(
        self, error: GuessError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the function itself, for values of which the graph has another dtype or shape."""
        assert self.module is not None
        if _acts(self.module):
            raise error  # a second run would draw or write once more
        self.skipped = error.what
        return self.original.fn(*args, **kwargs)

    def _skip(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function itself, on tracers whose memory the graph does not know."""
        self.skipped = "an argument is a view or was written, and strides matter"
        return self.original.fn(*args, **kwargs)


def _acts(module: GraphModule) -> bool:
    """Return whether a run does more than give results."""
    return module.graph.has_effects or may_draw(module)


def _is_for_others(module: GraphModule, given: CallArguments) -> GuessError | None:
    """Return the error of a graph that is not for the values of some arguments, or None.

    It runs on copies, without warnings. Other errors are those of the call that follows.
    """
    if _acts(module):
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module.run_list(*given.copied().leaves)
        except Exception as error:  # noqa: BLE001  # others are raised again by the call
            return error if isinstance(error, GuessError) else None
    return None


class EntryStore:
    """The entries of a compiled function, for plain values or for tracers.

    Attributes
    ----------
    entries : list of Entry
        Those that are kept, in order.
    has_dropped : bool
        Whether there were more than these once.
    counts : dict
        Transform, or "" -> how many were compiled for it.
    """

    def __init__(self, limit: int) -> None:
        self.entries: list[Entry] = []
        self.counts: dict[str, int] = {}
        self.has_dropped: bool = False
        self._limit: int = limit
        # What tracers are, and a family of arguments -> its entries, the last one first.
        # Where ints and floats of Python may be any, the kind of arguments is the family.
        # The lists are replaced, not changed.
        self._families: dict[Any, list[Entry]] = {}
        # The same and a kind of arguments -> all entries for it, the last one first.
        self._kinds: dict[Any, list[Entry]] = {}

    def fitting(self, tracers: Any, given: CallArguments) -> Iterator[Entry]:
        """Yield the entries that may be for arguments, the last one first."""
        for family in dict.fromkeys((given.family, given.kind)):
            yield from self._families.get((tracers, family), ())

    def of_kind(self, tracers: Any, given: CallArguments) -> Sequence[Entry]:
        """Return the entries for arguments that differ in sizes and numbers alone."""
        return self._kinds.get((tracers, given.kind), ())

    def add(self, tracers: Any, given: CallArguments, entry: Entry) -> Entry | None:
        """Keep an entry; return the one that is not kept any more, or None."""
        self.counts[entry.word] = entry.number = self.counts.get(entry.word, 0) + 1
        self.entries = [*self.entries, entry]
        pairs = (self._families, entry.family), (self._kinds, given.kind)
        for table, key in pairs:
            table[tracers, key] = [entry, *table.get((tracers, key), ())]
        if len(self.entries) <= self._limit:
            return None
        self.has_dropped = True
        first, *self.entries = self.entries
        for table, _ in pairs:
            for key, found in [*table.items()]:
                if first in found:
                    table[key] = [e for e in found if e is not first]
        return first


def code_of(run: Any, module: GraphModule) -> str:
    """Return the Python code of a graph: that of the back end, if it shows any."""
    return str(getattr(run, "code", None) or module.code)


def calls_text(module: GraphModule) -> str:
    """Return how many operators a graph calls, in words."""
    return counted(sum(node.op == CALL for node in module.graph.nodes), "call")


def may_draw(module: GraphModule) -> bool:
    """Return whether a graph draws random numbers, or runs graphs that have effects."""
    calls = [node for node in module.graph.nodes if node.op == CALL]
    return any(
        node.target.sees_seed or any(g.has_effects for g in node.subgraphs)
        for node in calls
    )


def _constants(module: GraphModule) -> Iterator[Any]:
    """Yield the constants of a graph and of the graphs inside it."""
    yield from module.constants.values()
    for node in module.graph.nodes:
        for graph in node.subgraphs:
            yield from graph.constants.values()


def holds_traced(module: GraphModule) -> bool:
    """Return whether values of running transforms are constants of a graph."""
    return any(map(is_traced, module.constants.values()))


def _check_apart(lines: CallLines, leaves: Sequence[Any], found: CapturedCall) -> None:
    """Have the call look whether written arrays share memory with others."""
    arrays = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, np.ndarray) and i not in found.same
    ]
    pairs = {(min(i, j), max(i, j)) for i in found.written for j in arrays if i != j}
    written = [i for i in found.written if i in arrays]
    held = found.module.constants.values()
    constants = [v for v in held if isinstance(v, np.ndarray) and v.ndim]
    lines.check_apart(
        sorted(pair for pair in pairs if {*pair} <= {*arrays}),
        dict.fromkeys(written, constants),
    )


# ---- capture a function, and see that it does nothing but compute meanwhile ----


# One function is captured at a time: two locks could wait for each other.
capturing: AbstractContextManager[bool] = free_after_fork(threading.RLock())


def captured_alone(
    fn: Callable[..., Any],
    title: str,
    given: CallArguments,
    surroundings: Surroundings,
    sizes: Mapping[str, Any] | None,
    free: Axes,
    numbers: Collection[int] = (),
    finish: Finish | None = None,
    *,
    is_unusual: bool = False,
) -> CapturedCall:
    """Capture a function; raise if it has assigned or written what a graph would not.

    Parameters
    ----------
    fn : callable
    title : str
        Its name for messages.
    given : CallArguments
    surroundings : Surroundings
        What it can reach. What it has assigned is put back.
    sizes, free, numbers, finish, is_unusual
        As for `captured`.
    """
    refuse_hidden(title, place(fn), surroundings.hidden, surroundings.line_of)
    arrays = surroundings.contents_of_arrays()
    leaves = given.leaves
    written: list[str] = []

    def note(array: np.ndarray, _: Any) -> None:
        label = surroundings.label_of(array)
        if label is not None:
            written.append(label)

    functions = surroundings.functions if surroundings.has_arrays else ()
    watch = WriteWatch(functions, note)
    files = FileReads(is_on=surroundings.may_open_files)
    stats = StatReads(is_on=surroundings.may_ask_files)
    with watch, EnvironmentReads() as reads, files, stats:
        found = captured(
            fn,
            given.args,
            given.kwargs,
            leaves,
            sizes,
            free,
            numbers,
            finish,
            is_unusual,
        )
    surroundings.add_names([*reads.names, *files.names, *stats.names])
    _check_unchanged(fn, title, surroundings)
    _check_unwritten(fn, title, arrays, written)
    _warn_of_clocks(title, surroundings)
    return found


def _warn_of_clocks(title: str, surroundings: Surroundings) -> None:
    """Warn of each line that asks for the time, which a graph does not do again."""
    found = [pair for fn in surroundings.functions for pair in lines_of_clocks(fn)]
    for name, line in found:
        if line in _told:
            continue
        _told.add(line)
        warn_caller(
            f"compile: '{title}' asks {name} for the time at {line}\n"
            "it does so once, when it is compiled: its graph keeps the answer\n"
            "do: ask around the call, or pass the time as an argument"
        )


# Lines that were told of, so that each is once.
_told: set[str] = set()


def _check_unchanged(
    fn: Callable[..., Any], title: str, surroundings: Surroundings
) -> None:
    """Raise if the function has assigned what a graph would not assign."""
    changed = surroundings.changed()
    for slot, _ in changed:
        slot.restore()
    if changed:
        _refuse_assignment(fn, title, changed[0][0])
    emptied = surroundings.emptied()
    is_shorter = [contents.has_fewer for contents in emptied]
    for contents in emptied:
        contents.restore()
    if emptied:
        what, do = "replaces an item of", "return the new item"
        if is_shorter[0]:
            what, do = "takes something out of", "take it out before the call"
        raise GraphError(
            f"compile: '{title}' {what} {emptied[0].label or 'a default'}, which its graph would not do",
            f"it is at {place(fn)}",
            do=f"{do}, and pass it as an argument",
        )
    written = [buffer for buffer in surroundings.buffers if not buffer.is_same]
    for buffer in written:
        buffer.restore()
    if written:
        _refuse_write(fn, title, written[0].label)
    surroundings.note_written()


def _check_unwritten(
    fn: Callable[..., Any],
    title: str,
    arrays: Sequence[tuple[str, Any, Any]],
    written: Sequence[str],
) -> None:
    """Raise if the function has written to an array from outside of it.

    `written` are labels of arrays that were written, perhaps with the bytes that they held.
    """
    found = [*written]
    for label, array, before in arrays:
        if array.tobytes() != before.tobytes():
            array[...] = before
            found.append(label)
    if found:
        _refuse_write(fn, title, found[0])


def _refuse_write(fn: Callable[..., Any], title: str, label: str) -> NoReturn:
    raise GraphError(
        f"compile: '{title}' writes to {label} by values that do not"
        " depend on its arguments, which its graph would not do",
        f"it is at {place(fn)}",
        do="pass the array as an argument",
    )


def _refuse_assignment(
    fn: Callable[..., Any], title: str, slot: WatchedName
) -> NoReturn:
    raise GraphError(
        f"compile: '{title}' assigns {slot.label}, which its graph would not do",
        f"it is at {place(fn)}",
        do="return the new value, and pass it as an argument",
    )


# ---- which lengths and numbers differ between the calls that were compiled ----


def free_axes(entries: Sequence[Entry], shapes: Sequence[tuple[int, ...]]) -> Axes:
    """Return the axes whose lengths differ between calls."""
    found: dict[int, set[int]] = {}
    for entry in entries:
        for i, (now, before) in enumerate(zip(shapes, entry.shapes, strict=True)):
            for axis, (n, m) in enumerate(zip(now, before, strict=True)):
                if n != m and n > 1 and m > 1:
                    found.setdefault(i, set()).add(axis)
    return found


def free_numbers(entries: Sequence[Entry], numbers: Mapping[int, Any]) -> list[int]:
    """Return the ints and floats that differ between calls and whose values do not matter."""
    fixed = fixed_numbers(entries)
    return [
        i
        for i, key in numbers.items()
        if i not in fixed and any(entry.numbers[i] != key for entry in entries)
    ]


def fixed_numbers(entries: Sequence[Entry]) -> dict[int, str]:
    """Return the numbers whose values were asked for, and why."""
    known = [entry.found.fixed for entry in entries if entry.found is not None]
    return {i: why for fixed in known for i, why in fixed.items()}
