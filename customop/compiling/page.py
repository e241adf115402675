"""How notebooks show what a compiled function has compiled."""

from __future__ import annotations

from customop.compiling.entries import Entry
from customop.compiling.report import (
    CompileReport,
    groups_of,
    lines_of,
)
from customop.errors import counted, shown
from customop.pages.blocks import (
    badge,
    card,
    code,
    fact_list,
    fold,
    grid,
    mono,
    section,
    title,
)
from customop.pages.markup import Child, Element, element
from customop.pages.write import in_notebook

__all__ = ["report_html"]


def report_html(report: CompileReport) -> str:
    """Return the page that a notebook shows for a report."""
    count = report.count
    how_often = badge(
        f"compiled {counted(count, 'time')}", "plain" if count else "soft"
    )
    back_end = element("span", "back end ", mono(shown(report.backend)))
    blocks: list[Child] = [title(report.title, "compiled function", how_often)]
    blocks.append(element("div", back_end, class_="lead"))
    if report.forgotten:
        rows: list[list[Child]] = [
            [f"{facts.number}.", mono(facts.arguments), facts.why]
            for facts in report.forgotten
        ]
        table = grid(["compiled", "for", "why again"], rows)
        blocks.append(fold("not kept any more", table, note=str(len(rows))))
    blocks += [_entry(entry, "") for entry in report.entries]
    blocks += [_entry(entry, f"{entry.word} ") for entry in report.transforms]
    return in_notebook(card(*blocks))


def _entry(entry: Entry, what: str) -> Element:
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
    return section(f"{what}{entry.number}.", *blocks, note=note)
