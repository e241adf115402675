"""Where there is no fork, opcheck runs what it makes up in a process that it starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.errors import OpCheckError
from customop.testing import opcheck
from customop.testing.checks import outcomes
from customop.testing.checks import outcomes as elsewhere
from customop.testing.checks import outcomes as found
from customop.testing.processes.child import CAN_FORK, SpawnedChild, crash_of
from tests.testing import spawn_operators as ops

_X = np.arange(1.0, 4.0)
_CHECKS = ("test_layouts", "test_determinism", "test_pickle")
_HERE = (
    "in this process, which a crash would end: there is no safe fork here, and a new"
    " process "
)


@pytest.fixture(autouse=True)
def _no_fork(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (outcomes, found):
        monkeypatch.setattr(module, "CAN_FORK", False)
    yield
    elsewhere.close_waiting()


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One item for each process that is started."""
    seen: list[Any] = []
    start = SpawnedChild.__init__

    def counted(self: Any, **how: Any) -> None:
        seen.append(how)
        start(self, **how)

    monkeypatch.setattr(SpawnedChild, "__init__", counted)
    return seen


def _check(op: Any) -> Any:
    return opcheck(op, (_X,), test_utils=_CHECKS, raise_exception=False)


def test_operators_share_a_process_until_there_is_a_fault(starts: list[Any]) -> None:
    """It names the input of a crash, and this process is well."""
    table = _check(ops.fine)
    assert (table.failed, table.notes) == ([], {})
    assert _check(ops.fine).failed == []
    assert len(starts) == 1
    table = _check(ops.ends)
    assert table.failed == ["test_layouts"]
    fault = table["test_layouts"]
    assert isinstance(fault, OpCheckError)
    assert "the kernel crashed (signal SIGABRT) on 'x' of shape (0,)" in str(fault)
    assert fault.sample.args[0].shape == (0,)
    assert table["test_determinism"] == "SUCCESS"


@pytest.mark.skipif(not CAN_FORK, reason="it compares with a forked child")
def test_fault_is_that_of_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the same smallest input, in the same words."""
    spawned = _check(ops.wrong)
    for module in (outcomes, found):
        monkeypatch.setattr(module, "CAN_FORK", True)
    forked = _check(ops.wrong)
    assert {k: str(v) for k, v in spawned.items()} == {
        k: str(v) for k, v in forked.items()
    }
    assert spawned.failed == ["test_layouts"]


def test_inputs_are_sought_there() -> None:
    assert opcheck(ops.fine, test_utils=_CHECKS).failed == []
    table = opcheck(ops.picky, test_utils=_CHECKS, raise_exception=False)
    assert (
        "test_layouts: the kernel ended the process (exit status 4) on 'x' of shape"
        in (str(table["test_layouts"]))
    )


def test_operator_that_is_another_one_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it runs here, and the table says why."""
    with monkeypatch.context() as changed:
        changed.setattr(ops, "FACTOR", 3.0)
        table = _check(ops.fine)
    assert table.notes["test_layouts"] == (
        f"{_HERE}gets other results from it for the given arguments"
    )
    with co.Library("spawned", "IMPL") as library:
        library.impl("fine", lambda x: x * 2.0, "cpu")
        table = _check(ops.fine)
    assert table.notes["test_layouts"] == (
        f"{_HERE}has other rules for it: some are registered as the program runs"
    )


_SCRIPT = """
import numpy as np
import customop as co
from customop.testing.checks import outcomes as found; from customop.testing.checks import outcomes

found.CAN_FORK = outcomes.CAN_FORK = False

@co.custom_op("script::double", mutates_args=())
def double(x: np.ndarray) -> np.ndarray:
    return x + x

double.register_fake(lambda x: co.fake_like(x))
"""
_CALL = "print(co.opcheck(double, (np.ones(3),)).notes.get('test_layouts'))\n"


def _output(script: Path) -> str:
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_operator_of_the_main_script(tmp_path: Path) -> None:
    """It is imported as by multiprocessing, so the call must not be part of that."""
    script = tmp_path / "script.py"
    script.write_text(f"{_SCRIPT}\nif __name__ == '__main__':\n    {_CALL}")
    assert _output(script) == "None"
    script.write_text(f"{_SCRIPT}\n{_CALL}")
    assert _output(script) == (
        f"{_HERE}cannot import the operator: opcheck is called as its main script is"
        " imported by a child of it: write if __name__ == '__main__': before the call"
    )


def test_exit_codes_of_windows() -> None:
    assert crash_of(0xC0000005, "", 1.0).how == "crashed (access violation)"
    assert crash_of(1, "Timeout (0:01:00)!\n", 60.0).how == "did not end within 60 s"


@pytest.mark.exhaustive
def test_kernel_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "PATIENCE", 1.0)
    table = _check(ops.hangs)
    assert table.failed == ["test_layouts"]
    assert "the kernel did not end within 1 s on 'x' of shape (0,)" in str(
        table["test_layouts"]
    )
