"""Pages of commands: ``--html``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import customop as co
from tests.cli._commands import Run
from tests.pages._reading import ReadPage, read

CHECKS = "test_schema,test_faketensor,test_vmap"
COMMANDS = {
    "list": ["list", "cli_ops", "-m", "cli_ops"],
    "plug-ins": ["list", "--plugins"],
    "show": ["show", "cli_ops::scale", "-m", "cli_ops"],
    "explain": ["explain", "cli_ops::scale", "f64[3]", "-m", "cli_ops"],
    "check": ["check", "cli_checked", "cli_parts", "--test-utils", CHECKS],
    "coverage": ["coverage"],
    "bench": ["bench", "cli_ops::scale", "f64[3]", "-m", "cli_ops", "--time", "1e-6"],
}
# Words that each page has.
WORDS = {
    "list": ["cli_ops", "5 operators", "cli_ops::over.number"],
    "plug-ins": ["plug-ins"],
    "show": ["cli_ops::scale", "Multiply by a number.", "autocast", "a note"],
    "explain": ["cli_ops::scale(f64[3], 2.0)", "why not"],
    "check": ["5 operators", "1 failed", "never runs", "cli_nowhere", "fake kernel"],
    "coverage": ["numpy.linalg", "np::sin", "numpy.array_str", "vmap"],
    "bench": ["op.call(...)", "of the kernel"],
}


def page_of(run: Run, name: str) -> ReadPage:
    found = run(*COMMANDS[name], "--html")
    assert found.startswith("<!doctype html>\n")
    return read(found)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_a_page(run: Run, name: str) -> None:
    """The page is all that is printed, and has what the text has."""
    page = page_of(run, name)
    assert [word for word in WORDS[name] if word not in page.text] == []


def test_a_file_gets_the_page(run: Run, tmp_path: Path) -> None:
    """With a file, text or JSON is printed as without the option."""
    path = tmp_path / "new" / "page.html"
    command = COMMANDS["show"]
    assert run(*command, "--html", str(path)) == run(*command)
    assert path.read_text("utf-8") == run(*command, "--html")
    assert json.loads(run(*command, "--json", "--html", str(path))) == run.json(
        *command
    )


def test_the_page_of_a_check(run: Run) -> None:
    """Operators that failed are open, and have the whole message."""
    page = page_of(run, "check")
    assert run.status == 1
    assert "cli_checked::wrong" in page.text
    assert "cli_parts.broken" in page.text
    with pytest.raises(co.OpCheckError) as caught:
        co.opcheck(co.ops.cli_checked.wrong.default, test_utils="test_faketensor")
    assert str(caught.value).partition("\n")[0] in page.text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["show", "--html", "np::sin"],
            (
                "--html: 'np::sin' does not end in .html\n"
                "  do: name such a file, or write --html last to print the page\n"
            ),
        ),
        (
            ["show", "np::sin", "--html", "--json"],
            (
                "--html and --json would both print to standard output\n"
                "  do: name a file for the page: --html page.html\n"
            ),
        ),
        (
            ["stubs", "cli_ops", "--html"],
            "customop stubs has no page\n  do: leave out --html\n",
        ),
        (
            ["show", "np::sin", "--html", "cli_ops.py/page.html"],
            (
                "--html: 'cli_ops.py/page.html' cannot be written: File exists\n"
                "  do: name another file\n"
            ),
        ),
    ],
    ids=["name", "json", "stubs", "folder"],
)
def test_mistakes(run: Run, argv: list[str], message: str) -> None:
    """Wrong input is an error before anything runs."""
    assert run(*argv) == ""
    assert (run.status, run.err) == (2, f"customop: error: {message}")
