"""The HTML pages of commands, made of the same parts as those in notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from customop.cli.plain import Report
from customop.core.explain import TONES as ORIGIN_TONES
from customop.core.explain import Rule
from customop.core.operator import Operator
from customop.errors import counted
from customop.pages.html import (
    Child,
    Element,
    badge,
    bar,
    card,
    code,
    element,
    fact_list,
    faint,
    fold,
    grid,
    mono,
    page,
    section,
    title,
)
from customop.testing.opcheck import TONES, counts, result_card, seconds_text

Rows = list[list[Child]]

# ---- check ----


def check_page(reports: Sequence[Report]) -> str:
    """Return the page of all operators with their results, and details below."""
    statuses = Counter(o.status for report in reports for o in report.outcomes)
    seconds = seconds_text(sum(report.seconds for report in reports))
    head = title("customop check", "", *counts(statuses))
    lead = element(
        "div", f"{counted(len(reports), 'operator')}, {seconds}", class_="lead"
    )
    rows: Rows = [
        [
            mono(report.qualname),
            badge(report.status, TONES[report.status]),
            element(
                "span", *_spaced(counts(Counter(o.status for o in report.outcomes)))
            ),
            faint(seconds_text(report.seconds)),
        ]
        for report in reports
    ]
    table = grid(["operator", "result", "checks", "time"], rows, numbers=[3])
    # Failed operators come first and are unfolded.
    ordered = sorted(reports, key=lambda report: not report.has_failed)
    return page("customop check", card(head, lead, table), *map(_report, ordered))


def _spaced(badges: Sequence[Element]) -> list[Child]:
    return [part for found in badges for part in (found, " ")]


def _report(report: Report) -> Element:
    name = element(
        "span", mono(report.qualname), " ", badge(report.status, TONES[report.status])
    )
    if report.result is not None:
        inner = result_card(report.result)
    else:
        blocks = [
            element("div", mono(o.check), code(o.text), class_="section")
            for o in report.outcomes
        ]
        inner = card(*blocks)
    return fold(name, inner, is_open=report.has_failed)


# ---- coverage ----


def coverage_page(
    found: Sequence[tuple[Operator[..., Any], Sequence[Rule]]],
    rules: Sequence[Mapping[str, Any]],
    modules: Sequence[Mapping[str, Any]],
) -> str:
    """Return the page of NumPy functions and how they run, with operators and rules."""
    total = sum(m["functions"] for m in modules)
    covered = sum(m["covered"] for m in modules)
    facts: list[tuple[str, Child]] = [
        ("NumPy", np.__version__),
        ("functions", f"{covered} of {total} run on traced values"),
        ("operators", str(len(found))),
    ]
    kinds = ("operators", "composed", "refused", "missing")
    by_module: Rows = [
        [m["module"], str(m["functions"]), *[str(len(m[kind])) for kind in kinds]]
        for m in modules
    ]
    by_rule: Rows = [
        [r["rule"], str(r["own"]), str(r["derived"]), str(len(r["missing"]))]
        for r in rules
    ]
    numbers = [*range(1, 6)]
    functions = grid(["function", "runs as", "remark"], _functions(modules))
    operators = grid(["operator", *_RULES], [_operator(op, r) for op, r in found])
    return page(
        "customop coverage",
        card(
            title("Functions of NumPy", ""),
            fact_list(facts),
            section(
                "Modules",
                grid(["module", "functions", *kinds], by_module, numbers=numbers),
            ),
            section(
                "Rules of the operators",
                grid(["rule", "own", "derived", "none"], by_rule, numbers=[1, 2, 3]),
            ),
        ),
        card(title("Each function", ""), functions),
        card(title("Each operator", ""), operators),
    )


_RULES = ("fake", "autograd", "jvp", "vmap")


def _functions(modules: Sequence[Mapping[str, Any]]) -> Rows:
    rows: dict[str, list[Child]] = {}
    for m in modules:
        name = m["module"]
        for f in m["operators"]:
            rows[f"{name}.{f}"] = [badge("operator", "good"), mono(f"np::{f}")]
        for f in m["composed"]:
            rows[f"{name}.{f}"] = [badge("by operators", "plain"), ""]
        for r in m["refused"]:
            rows[f"{name}.{r['name']}"] = [badge("no", "soft"), r["reason"]]
        for f in m["missing"]:
            rows[f"{name}.{f}"] = [badge("no", "warn"), ""]
    return [[mono(name), *rows[name]] for name in sorted(rows)]


def _operator(op: Operator[..., Any], rules: Sequence[Rule]) -> list[Child]:
    origins = {rule.name: rule.origin for rule in rules}
    return [mono(op.qualname), *[_origin(origins.get(name, "")) for name in _RULES]]


def _origin(word: str) -> Child:
    return badge(word, ORIGIN_TONES.get(word, "plain")) if word else faint("-")


# ---- list ----


def list_page(found: Sequence[tuple[Operator[..., Any], Sequence[str]]]) -> str:
    """Return the page of operators by namespace, each with the cells of its row."""
    cards = []
    for namespace, group in groupby(found, key=lambda pair: pair[0].namespace):
        rows: Rows = [
            [mono(cells[0]), cells[1], *map(_word, cells[2:-1]), cells[-1]]
            for _, cells in group
        ]
        columns = ["operator", "kernels", *_RULES, "others"]
        count = counted(len(rows), "operator")
        cards.append(card(title(namespace, count), grid(columns, rows)))
    return page("customop list", *cards)


def _word(text: str) -> Child:
    return faint(text) if text == "-" else _origin(text)


def table_page(name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the page of one table."""
    return page(name, card(title(name, counted(len(rows), "row")), grid(columns, rows)))


# ---- bench ----

BENCH_COLUMNS = ("what", "median", "over the kernel", "of the kernel")


def bench_page(
    name: str, tables: Sequence[tuple[Mapping[str, Any], Sequence[Sequence[str]]]]
) -> str:
    """Return the page of times of an operator for each input, with bars."""
    cards = []
    for found, rows in tables:
        times = [m["seconds"] for m in found["times"]]
        longest = max((t for t in times if t), default=1.0)
        cells: Rows = [
            [what, median, bar((t or 0) / longest), over, share]
            for (what, median, over, share), t in zip(rows, times, strict=True)
        ]
        columns = ["what", "median", "", "over the kernel", "of the kernel"]
        table = grid(columns, cells, numbers=[1, 3, 4])
        cards.append(card(title(found["call"], "", lead=found["note"]), table))
    return page(f"bench {name}", *cards)
