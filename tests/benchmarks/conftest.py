"""Benchmarks of the budgets, next to peers in the same run.

Run with ``python tests/benchmarks``, or, with any options of pytest-benchmark,
``python -m pytest tests/benchmarks -n 0 -p benchmark --benchmark-table table.md``.
``python tests/benchmarks --update`` stores the run and renews every figure in the pages.
Without ``-p benchmark`` nothing here is collected, so the ordinary suite needs none
of the packages. No test asserts a time; the table says which budgets are met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import peers
import pytest
from table import Limit, Row, as_json, as_markdown, as_text, machine, this_run
from timing import ROUNDS, Statement, alternate

import customop as co

_FORMS = {"--benchmark-table": "Markdown", "--benchmark-json-table": "JSON"}
_rows = pytest.StashKey[list[Row]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that write the table to a file."""
    for name, form in _FORMS.items():
        parser.addoption(name, metavar="PATH", help=f"write the budgets as {form}")


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Collect nothing here unless pytest-benchmark is asked for."""
    return None if config.pluginmanager.hasplugin("benchmark") else True


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Ignore warnings of the peers."""
    if not config.pluginmanager.hasplugin("benchmark"):
        return  # none is from here, and to ask each takes seconds
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(autouse=True)
def bare_calls() -> Iterator[None]:
    """Measure calls with the default checks: each kernel is proven by its first call."""
    before = co.config.checks
    co.config.checks = "first"
    yield
    co.config.checks = before


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[Row], None]:
    """Put a row into the table."""
    return request.config.stash.setdefault(_rows, []).append


@pytest.fixture
def compare(note: Callable[[Row], None], benchmark: Any) -> Callable[..., None]:
    """Time statements in turn, and note a row for each limit.

    pytest-benchmark measures the statement "ours" too, for its own table. The limits
    name other statements; the rest go to the last column.
    """

    def run(
        what: str,
        statements: Mapping[str, Statement],
        *limits: Limit,
        per: int = 1,
        rounds: int = ROUNDS,
    ) -> None:
        best = alternate(statements, rounds)
        seconds = {name: value / per for name, value in best.items()}
        ours = seconds.pop("ours")
        named = {limit.against for limit in limits}
        others = {name: t for name, t in seconds.items() if name not in named}
        for limit in limits:
            note(Row(what, limit, ours, seconds.get(limit.against), others))
            # Only the first limit shows the other timings.
            others = {}
        _repeat(benchmark, statements["ours"], best["ours"])

    return run


def _repeat(benchmark: Any, statement: Statement, seconds: float) -> None:
    call = eval(f"lambda: {statement.text}", dict(statement.names))
    benchmark.pedantic(call, rounds=20, iterations=max(1, int(1e-3 / seconds)))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table, and write it to the files that are asked for."""
    rows = config.stash.get(_rows, [])
    if not rows:
        return
    terminalreporter.section("budgets")
    left_out = [f"left out, not installed: {peer}" for peer in peers.missing()]
    for line in [*as_text(rows), "", machine(), *left_out]:
        terminalreporter.write_line(line)
    for name, form in zip(_FORMS, (as_markdown, as_json), strict=True):
        path = config.getoption(name, None)
        if path:
            Path(path).write_text(form(this_run(rows)), encoding="utf-8")
