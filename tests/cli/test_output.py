"""Plain text, colors, and the width of the terminal."""

from __future__ import annotations

import io
import json
import re

import pytest

import customop as co
from customop.cli import output
from tests.cli._commands import Run, Terminal, shown

ESCAPE = "\x1b["


# The environment, --color, whether it is a terminal, and whether there are colors.
COLORED = {
    "terminal": ({}, "auto", True, True),
    "pipe": ({}, "auto", False, False),
    "pipe, always": ({}, "always", False, True),
    "terminal, never": ({}, "never", True, False),
    "terminal, NO_COLOR": ({"NO_COLOR": "1"}, "auto", True, False),
    "terminal, NO_COLOR empty": ({"NO_COLOR": ""}, "auto", True, True),
    "terminal, NO_COLOR, always": ({"NO_COLOR": "1"}, "always", True, True),
    "pipe, FORCE_COLOR": ({"FORCE_COLOR": "1"}, "auto", False, True),
    "pipe, FORCE_COLOR, never": ({"FORCE_COLOR": "1"}, "never", False, False),
}


@pytest.mark.parametrize("name", COLORED)
def test_colors(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """--color goes before the environment, and that before the kind of stream."""
    environment, option, is_terminal, colored = COLORED[name]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal() if is_terminal else io.StringIO()
    output.make_output(stream, color=option).table(["a"], [["own"]])
    assert (ESCAPE in stream.getvalue()) is colored


@pytest.mark.usefixtures("ours")
def test_wide_tables_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are wrapped to COLUMNS without losing text."""
    monkeypatch.setenv("COLUMNS", "100")
    found = shown(monkeypatch, "list", "np::eye", "np::full", "--color", "never")
    assert max(map(len, found.splitlines())) <= 100
    for name in ("eye", "full"):
        schema = str(getattr(co.ops.np, name).default.schema)
        assert "".join(schema.split()) in "".join(found.split())


def test_a_very_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a table that cannot be wrapped stay in one piece."""
    monkeypatch.setenv("COLUMNS", "30")
    found = shown(monkeypatch, "list", "np::logaddexp2", "--color", "never")
    (row,) = [line for line in found.splitlines() if line.startswith("np::logaddexp2")]
    assert row.rstrip().endswith("(Array|Scalar x1, Array|Scalar x2) -> Array")


def test_markup_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that looks like the markup of rich is printed as it is."""
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    to = output.make_output(stream, color="never")
    to.heading("[bold]f64[3][/bold]")
    to.line("[red]a[/red]", "passed")
    to.table(["x", "y"], [["[i]b[/i]", ":smile:"]])
    assert [line.rstrip() for line in stream.getvalue().splitlines()] == [
        "[bold]f64[3][/bold]",
        "[red]a[/red]",
        "x         y",
        "[i]b[/i]  :smile:",
    ]


def test_plain_tables() -> None:
    """Columns are two spaces apart, without trailing spaces."""
    stream = io.StringIO()
    plain = output.make_output(stream)
    plain.table(["name", "b"], [["x", "long text"], ["longer", ""]])
    plain.table(["", ""], [["x", "y"]])
    plain.table(["a"], [])
    plain.source("if x:\n    y\n")
    assert stream.getvalue() == (
        "name    b\nx       long text\nlonger\nx  y\na\n  if x:\n      y\n"
    )


def test_json_has_no_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON in a terminal does not have colors."""
    found = shown(monkeypatch, "--json", "--color", "always", "list", "np::sin")
    assert json.loads(found)["operators"][0]["name"] == "np::sin"


def test_source_in_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colors do not change the text of source code."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm-256color")
    found = shown(monkeypatch, "show", "np::sin")
    assert ESCAPE in found
    bare = re.sub(r"\x1b\[[0-9;]*m", "", found)
    source = [line.strip() for line in co.ops.np.sin.default.source.splitlines()]
    assert [line.strip() for line in bare.splitlines()][-len(source) :] == source


def test_colors_without_rich(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rich a terminal gets plain text, and --color always is an error."""
    plain = run("list", "np::sin")
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    message = run.error("list", "np::sin", "--color", "always")
    assert message == (
        "--color always needs rich, which is not installed\n"
        "  do: pip install 'customop[terminal]', or leave the option out\n"
    )
    assert shown(monkeypatch, "list", "np::sin") == plain
