"""Fixtures for tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from customop.cli import targets
from customop.core import explain
from customop.core.registry import all_operators, namespaces
from tests.cli._commands import FILES, Run, forget


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the modules of the tests."""
    root = tmp_path_factory.mktemp("cli")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.lstrip(), encoding="utf-8")
    yield root
    forget()


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in their folder, with an environment that does not set colors."""
    monkeypatch.chdir(folder)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Hide the operators of other tests."""
    run("list", "cli_ops", "-m", "cli_ops", "-m", "cli_checked")
    names = ("np", "customop", "cli_ops", "cli_checked")
    found = [op for op in all_operators().values() if op.namespace in names]
    known = {op.qualname: op for op in found}
    monkeypatch.setattr(explain, "all_operators", lambda: known)
    monkeypatch.setattr(targets, "all_operators", lambda: known)
    shown = {n: namespaces[n] for n in names}
    monkeypatch.setattr(targets, "namespaces", shown)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run commands in this process."""
    return Run(capsys)
