"""How notebooks and browsers show what `opcheck` has found."""

from __future__ import annotations

from collections import Counter

from customop.pages.blocks import (
    badge,
    card,
    code,
    faint,
    fold,
    grid,
    mono,
    section,
    title,
)
from customop.pages.markup import Child, Element, element
from customop.pages.write import in_notebook
from customop.testing.opcheck import OpCheckResult, status_of

__all__ = ["TONES", "counts", "result_card", "result_html", "seconds_text"]

# Status of a check -> the tone of its word.
TONES = {
    "passed": "good",
    "failed": "bad",
    "error": "bad",
    "skipped": "soft",
    "waived": "warn",
}


def result_html(result: OpCheckResult) -> str:
    """Return the HTML that a notebook shows for a result."""
    return in_notebook(result_card(result))


def result_card(result: OpCheckResult) -> Element:
    """The checks of an operator, what they found, and their inputs."""
    statuses = Counter(status_of(found)[0] for found in result.values())
    inputs = [[mono(text)] for text in result.inputs]
    blocks: list[Child] = [title(result.op, "opcheck", *counts(statuses))]
    blocks += _faults(result)
    rows = [_row(result, check) for check in result]
    table = grid(["check", "result", "remark", "time"], rows, numbers=[3])
    blocks.append(section("Checks", table))
    if inputs:
        note = f"{len(inputs)}; the checks vary them"
        blocks.append(fold("inputs", grid(["call"], inputs), note=note))
    return card(*blocks)


def counts(statuses: Counter[str]) -> list[Element]:
    """A badge for each status that was met, with how often."""
    return [badge(f"{statuses[s]} {s}", TONES[s]) for s in TONES if statuses[s]]


def _row(result: OpCheckResult, check: str) -> list[Child]:
    status, text = status_of(result[check])
    remark = text.partition("\n")[0] or result.notes.get(check, "")
    if status == "failed":
        remark = remark.removeprefix(f"{result.op}: ").removeprefix(f"{check}: ")
    seconds = result.seconds.get(check)
    time = "" if seconds is None else seconds_text(seconds)
    return [mono(check), badge(status, TONES[status]), remark, faint(time)]


def _faults(result: OpCheckResult) -> list[Element]:
    """Each fault with its whole text, and code that shows it again."""
    failed = [_fault(check, result[check], "failed") for check in result.failed]
    pairs = result.waived.items()
    return failed + [_fault(check, error, "waived") for check, error in pairs]


def _fault(check: str, error: str | Exception, status: str) -> Element:
    name = element("span", mono(check), " ", badge(status, TONES[status]))
    return fold(name, code(str(error)), is_open=status == "failed")


def seconds_text(seconds: float) -> str:
    """A time in milliseconds or seconds."""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
