"""Help texts, options for all commands, and the fields of JSON."""

from __future__ import annotations

import json
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from customop import cli, plugins
from tests.cli._commands import Run

DOCUMENTS = {
    "list": ["list", "cli_ops"],
    "show": ["show", "cli_ops::scale"],
    "explain": ["explain", "cli_ops::over.text", "fake.f64[2]", "y=a"],
    "check": ["check", "cli_checked", "--test-utils", "test_schema,test_faketensor"],
    "coverage": ["coverage"],
    "bench": ["bench", "np::sin", "f64[2]", "--time", "1e-5"],
    "stubs": ["stubs", "cli_ops"],
}
# Their help texts refer to the fields of list.
OF_LIST = ("show", "coverage")


def keys(document: Any) -> set[str]:
    """The names of all fields of a document, at any depth."""
    if isinstance(document, list):
        return set().union(*map(keys, document))
    if isinstance(document, dict):
        return set(document).union(*map(keys, document.values()))
    return set()


def plugin_document(run: Run) -> Any:
    """The document of `list --plugins` with one plug-in, which does not exist."""
    about = Path("cli_absent-1.dist-info")
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: cli_absent\nVersion: 1\n"
    )
    (about / "entry_points.txt").write_text(
        "[customop.operators]\ncli_absent = cli_absent\n"
    )
    plugins._scan.cache_clear()
    try:
        return run.json("list", "--plugins")
    finally:
        plugins._scan.cache_clear()
        shutil.rmtree(about)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_have_their_shape(run: Run, name: str) -> None:
    """--json prints the fields that the help text names."""
    found = keys(run.json("-m", "cli_ops", *DOCUMENTS[name]))
    if name == "list":
        found |= keys(plugin_document(run))
    named = set(re.findall(r'"(\w+)":', cli.COMMANDS[name].shape))
    if name in OF_LIST:
        shape = cli.COMMANDS["list"].shape.partition("with --plugins")[0]
        named |= set(re.findall(r'"(\w+)":', shape))
        named -= {"operators"} - found
    assert found - named == set()
    assert named - found == set()


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help(run: Run, name: str) -> None:
    """Each command has a help text with its arguments and its JSON."""
    found = run(name, "--help")
    assert run.status == 0
    assert found.startswith(f"usage: customop {name} [-h] [-m MODULE] [--json]")
    assert f"--json prints:\n{cli.COMMANDS[name].shape}" in found


def test_common_options_before_and_after_a_command(run: Run) -> None:
    """Common options may come before or after the command; -m adds up."""
    argv = ("--json", "-m", "cli_checked", "list", "cli_*", "-m", "cli_ops.py")
    names = [op["name"] for op in json.loads(run(*argv))["operators"]]
    assert {"cli_checked::right", "cli_ops::twice"} <= set(names)


def test_help_lists_the_commands(run: Run) -> None:
    """--help lists the commands; a missing command prints it to stderr."""
    found = run("--help")
    assert run.status == 0
    for command in cli.COMMANDS.values():
        assert f"  {command.name:<10} {command.summary}\n" in found
    assert run() == ""
    assert (run.status, run.err) == (2, found)


def test_version(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is that of the installed distribution."""
    monkeypatch.setattr(cli.metadata, "version", lambda name: f"1.2.3 of {name}")
    assert run("--version") == "customop 1.2.3 of customop\n"


def test_version_of_a_checkout(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that is not installed does not have a version."""

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(cli.metadata, "version", version)
    assert run.error("--version") == (
        "customop is not installed, so it has no version\n"
        "  do: install it: pip install -e .\n"
    )
