"""The command line in a process: streams, statuses, signals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from customop import cli
from customop.testing.processes.child import CAN_FORK
from tests.cli._commands import ROOT, Run


def process(
    *argv: str, cwd: Path, options: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m customop` in a process."""
    return subprocess.run(
        [sys.executable, *options, "-m", "customop", *argv],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_module_runs(folder: Path) -> None:
    """Modules of the current directory are found; their output goes to stderr."""
    argv = ("-m", "cli_ops", "list", "cli_ops::twice", "--json")
    done = process(*argv, cwd=folder, options=("-W", "error"))
    assert json.loads(done.stdout)["operators"][0]["name"] == "cli_ops::twice"
    assert (done.returncode, done.stderr) == (0, "cli_ops speaks\n")


@pytest.mark.exhaustive
def test_the_status_of_a_process(folder: Path) -> None:
    """A failed check is status 1; what kernels print for made-up inputs is dropped."""
    argv = ("check", "cli_checked.py:[rw]*", "--test-utils=test_faketensor", "--json")
    done = process(*argv, cwd=folder)
    counts = json.loads(done.stdout)["summary"]
    assert (counts["passed"], counts["failed"], done.returncode) == (1, 1, 1)
    assert done.stderr == "" or not CAN_FORK


@pytest.mark.exhaustive
def test_output_of_kernels(folder: Path) -> None:
    """What a kernel prints for registered inputs goes to stderr."""
    text = """
from cli_checked import np, right
from customop.testing import Sample

right.register_sample_inputs(lambda: [Sample((np.ones(2),))])
"""
    (folder / "cli_prints.py").write_text(text)
    argv = ("check", "cli_checked::right", "-m", "cli_prints", "--json")
    done = process(*argv, "--test-utils=test_faketensor", cwd=folder)
    counts = json.loads(done.stdout)["summary"]
    assert (counts["passed"], counts["failed"], done.returncode) == (1, 0, 0)
    assert "right runs" in done.stderr


@pytest.mark.exhaustive
def test_warnings_are_shown(folder: Path) -> None:
    """A warning in a module is shown as usual."""
    text = 'import warnings\nwarnings.warn("look", stacklevel=1)\n'
    (folder / "cli_warns.py").write_text(text)
    done = process("list", "np::sin", "-m", "cli_warns", cwd=folder)
    assert "cli_warns.py:2: UserWarning: look" in done.stderr
    assert done.returncode == 0


@pytest.mark.exhaustive
def test_an_ascii_stream(folder: Path) -> None:
    """Characters that the stream cannot encode are escaped; JSON is ASCII."""
    argv = ("show", "cli_ops::over.text", "-m", "cli_ops")
    plain = process(*argv, cwd=folder, PYTHONIOENCODING="ascii")
    assert plain.stdout.splitlines()[1] == r"D\xe9j\xe0 vu."
    document = process(*argv, "--json", cwd=folder, PYTHONIOENCODING="ascii")
    assert json.loads(document.stdout)["operator"]["summary"] == "Déjà vu."


@pytest.mark.parametrize(
    "argv",
    [
        ("list",),
        pytest.param(("show", "np::sin"), marks=pytest.mark.exhaustive),
        pytest.param(("coverage", "--json"), marks=pytest.mark.exhaustive),
    ],
    ids=" ".join,
)
def test_a_closed_pipe_is_quiet(folder: Path, argv: tuple[str, ...]) -> None:
    """A reader that closes the pipe ends the program without a message."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "customop", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + 13, b"")


def test_an_interruption_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command with the status of shells."""

    def interrupt(options: Any, to: Any) -> int:
        raise KeyboardInterrupt

    command = replace(cli.COMMANDS["list"], run=interrupt)
    monkeypatch.setitem(cli.COMMANDS, "list", command)
    assert (run("list"), run.status, run.err) == ("", 130, "")


def test_the_script_is_declared() -> None:
    """The script `customop` runs the same function as `python -m customop`."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.scripts]\ncustomop = "customop.cli:main"\n' in text
