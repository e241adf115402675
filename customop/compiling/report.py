"""Reports: what a compiled function has compiled, why it compiled again, and their page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import describe
from customop.compiling.call_code import CallArguments
from customop.compiling.entries import Entry
from customop.compiling.repeated_steps import SOME, repeated_steps
from customop.compiling.surroundings import WatchedName
from customop.errors import counted, shown
from customop.frozen import Frozen
from customop.later import later
from customop.pages.html import (
    Child,
    Element,
    badge,
    card,
    code,
    element,
    fact_list,
    fold,
    grid,
    in_notebook,
    mono,
    section,
    title,
)
from customop.shapes.conditions import Guard

# ---- reports: what a compiled function has compiled, and why it compiled again ----


class NodeGroup(NamedTuple):
    """The work of a back end on some nodes.

    Attributes
    ----------
    nodes : sequence of str
        Names of the nodes, in order.
    done : str
        Such as ``"block of 3 ufuncs"``.
    why : str
        Why not more; empty if there is nothing to say.
    """

    nodes: Sequence[str]
    done: str
    why: str = ""

    def __str__(self) -> str:
        names = f": {', '.join(self.nodes)}" if self.nodes else ""
        return f"{self.done}{names}{f' ({self.why})' if self.why else ''}"


class EntryFacts(NamedTuple):
    """The facts about an entry that was dropped, for reports.

    Attributes
    ----------
    number : int
        1 for the first that was compiled.
    arguments, why : str
        What it was compiled for, and why there was none for that.
    """

    number: int
    arguments: str
    why: str


def facts_of(entry: Entry) -> EntryFacts:
    """Return the facts to keep about an entry that is dropped."""
    return EntryFacts(entry.number, _arguments(entry), entry.why)


def _arguments(entry: Entry) -> str:
    texts = [f"{name} = {text}" for name, text in entry.arguments.items()]
    return ", ".join(texts) or "no arguments"


class CompileReport(Frozen):
    """The result of `Compiled.explain`; print it.

    Attributes
    ----------
    title : str
        The function.
    backend : str or callable
    why : str
        Why it is the default and not ``"native"``; empty if one was asked for.
    entries : tuple of Entry
        What was compiled and is kept, in order.
    forgotten : tuple of EntryFacts
        The last ones that are not kept any more.
    count : int
        How often it was compiled.
    transforms : tuple of Entry
        What was compiled for gradients of the function, and for `vmap` and `jvp` of it, in
        order.
    """

    title: str
    backend: Any
    why: str
    entries: tuple[Entry, ...]
    forgotten: tuple[EntryFacts, ...] = ()
    count: int = 0
    transforms: tuple[Entry, ...] = ()

    @property
    def gradients(self) -> tuple[Entry, ...]:
        """The entries for `grad` and `vjp` of the function."""
        return tuple([entry for entry in self.transforms if entry.word == "gradient"])

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return str(report_html(self))

    def _lines(self) -> Iterator[str]:
        times = {0: "not called yet", 1: "compiled once", 2: "compiled twice"}
        count = self.count
        backend = f"{shown(self.backend)}{f' ({self.why})' if self.why else ''}"
        how_often = times.get(count, f"compiled {count} times")
        yield f"{self.title}, back end {backend}, {how_often}"
        for facts in self.forgotten:
            yield f"  {facts.number}. {facts.arguments}: not kept any more"
            if facts.why:
                yield f"     compiled again: {facts.why}"
        for entry in (*self.entries, *self.transforms):
            yield f"  {_number(entry)} {_arguments(entry)}{_size(entry)}"
            for line in [*lines_of(entry), *map(str, groups_of(entry))]:
                yield f"     {line}"


def _number(entry: Entry) -> str:
    return f"{entry.word} {entry.number}.".lstrip()


def _size(entry: Entry) -> str:
    return f": {entry.size}" if entry.size else ""


def lines_of(entry: Entry) -> Iterator[str]:
    """Yield why an entry was compiled, and for which arguments it holds."""
    if entry.why:
        yield f"compiled again: {entry.why}"
    if entry.refused is not None:
        text = str(entry.refused).partition("\n")[0]
        yield f"runs as it is, since {entry.cannot}: {text}"
    if entry.skipped:
        yield f"has run as it is: {entry.skipped}"
    if entry.found is None or entry.module is None:
        return
    yield from _symbolic(entry)
    count, steps = repeated_steps(entry.module.graph, SOME)
    if steps:
        yield (
            f"{count} nodes, about {steps} times the same steps: co.scan or co.fori_loop "
            "would compile them once"
        )
    if entry.found.why_fixed:
        yield f"only for these sizes: {entry.found.why_fixed}"
    names = [*entry.arguments]
    for i, why in entry.found.fixed.items():
        yield f"only for this {names[i]}: {why}"


def groups_of(entry: Entry) -> list[NodeGroup]:
    """Return what the back end reports for an entry; empty if it reports nothing."""
    if entry.found is None or entry.module is None:
        return []
    explain = getattr(entry.code_of_backend, "explain", None)
    return [] if explain is None else list(explain())


def _symbolic(entry: Entry) -> Iterator[str]:
    """Yield lines that say which sizes and numbers may be any, and where."""
    assert entry.module is not None
    sizes = [*_inputs(entry)]
    for what in ("sizes", "numbers"):
        is_number = what == "numbers"
        found = [s.sources[0] for s in sizes if (s.kind == "number") == is_number]
        if found:
            yield f"for all {what}: {', '.join(found)}"
    if sizes:
        guards: Sequence[Guard] = entry.module.graph.sizes.guards
        for guard in guards:
            yield f"only where {_written_out(guard, entry)}, asked at {guard.place}"


def _inputs(entry: Entry) -> Iterator[Any]:
    assert entry.module is not None
    for size in entry.module.graph.sizes.sizes.values():
        if size.kind != "data":
            yield size


# ---- why ----


def reason_for(
    entries: Sequence[Entry],
    family: Sequence[Entry],
    given: CallArguments,
    fn: Callable[..., Any],
) -> str:
    """Return why no entry fits arguments.

    Parameters
    ----------
    entries : sequence of Entry
        All of them, in order.
    family : sequence of Entry
        Those for arguments that differ in the lengths of axes alone, the last one first.
    given : CallArguments
    fn : callable
    """
    if not entries:
        return ""
    nearest = family[0] if family else entries[-1]
    now = given.described(fn)
    before = nearest.arguments
    if now.keys() != before.keys():
        return f"called with {_listed(now)}, before with {_listed(before)}"
    pairs = [(name, now[name], before[name]) for name in now]
    parts = _broken_guards(nearest, given) if family else []
    differ = [pair for pair in pairs if pair[1] != pair[2]]
    if not family or _has_sizes(nearest):  # it is not for the lengths
        others = [p for p in differ if len({*map(_without_lengths, p[1:])}) > 1]
        differ = others or differ
    if not parts:
        parts = [f"{name} is {new}, was {old}" for name, new, old in differ]
    parts += [_of_slot(*pair) for pair in nearest.surroundings.differing()]
    parts += [f"{label} was written" for label in nearest.surroundings.written()]
    return (
        "; ".join(parts)
        or "arguments lie otherwise in memory, or a container, a class or the order of"
        " keys changed"
    )


def _has_sizes(entry: Entry) -> bool:
    """Return whether an entry is for all sizes that its guards allow."""
    if entry.module is None:
        return False
    return any(size.kind != "number" for size in _inputs(entry))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def _without_lengths(text: str) -> str:
    """Return the text of an array without its lengths: the dtype and the commas."""
    kind, bracket, lengths = text.partition("[")
    return f"{kind}{bracket}{lengths.count(',')}"


def _of_slot(slot: WatchedName, now: Any) -> str:
    return f"{slot.label} is {_brief(now)}, was {_brief(slot.value)}"


def _brief(value: Any) -> str:
    return describe(value) if is_array(value) else shown(value, 60)


def _broken_guards(entry: Entry, given: CallArguments) -> list[str]:
    """Return the conditions on sizes that arguments do not meet."""
    if entry.module is None or not [*_inputs(entry)]:
        return []
    shapes = zip(entry.module.inputs, given.shapes, strict=True)
    sizes = {
        str(size): length
        for node, shape in shapes
        if isinstance(node.val, FakeArray)
        for size, length in zip(node.val.shape, shape, strict=True)
    }
    guards: Sequence[Guard] = entry.module.graph.sizes.guards
    broken = [g for g in guards if g.names <= sizes.keys() and not g.holds(sizes)]
    texts = [(_written_out(g, entry), g.place) for g in broken]
    return [f"the graph needs {text}, asked at {place}" for text, place in texts]


def _written_out(guard: Guard, entry: Entry) -> str:
    """Return a condition with the lengths of arguments in place of names."""
    assert entry.module is not None
    sizes = entry.module.graph.sizes.sizes

    def source(found: Any) -> str:
        size = sizes.get(found[0])
        return size.sources[0] if size is not None and size.sources else str(found[0])

    return _NAME.sub(source, guard.text)


_NAME = later(re.compile, r"[A-Za-z_]\w*")


# ---- how notebooks show what a compiled function has compiled ----


def report_html(report: CompileReport) -> str:
    """Return the page that a notebook shows for a report."""
    count = report.count
    how_often = badge(
        f"compiled {counted(count, 'time')}", "plain" if count else "soft"
    )
    why = f" ({report.why})" if report.why else ""
    back_end = element("span", "back end ", mono(shown(report.backend)), why)
    blocks: list[Child] = [title(report.title, "compiled function", how_often)]
    blocks.append(element("div", back_end, class_="lead"))
    if report.forgotten:
        rows: list[list[Child]] = [
            [f"{facts.number}.", mono(facts.arguments), facts.why]
            for facts in report.forgotten
        ]
        table = grid(["compiled", "for", "why again"], rows)
        blocks.append(fold("not kept any more", table, note=str(len(rows))))
    blocks += [_entry(entry) for entry in (*report.entries, *report.transforms)]
    return in_notebook(card(*blocks))


def _entry(entry: Entry) -> Element:
    """Return the part of the page about one kind of arguments."""
    facts = [(name, mono(text)) for name, text in entry.arguments.items()]
    blocks: list[Child] = [fact_list(facts)] if facts else []
    blocks += [element("div", fact, class_="lead") for fact in lines_of(entry)]
    groups = groups_of(entry)
    if groups:
        lines: list[list[Child]] = [
            [mono(", ".join(g.nodes)), g.done, g.why] for g in groups
        ]
        table = grid(["nodes", "done", "why not more"], lines)
        blocks.append(fold("what the back end did", table, note=str(len(groups))))
    if entry.module is not None:
        blocks.append(fold("code", code(entry.text)))
    note = entry.size or "runs as it is"
    return section(_number(entry), *blocks, note=note)
