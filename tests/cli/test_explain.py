"""The command ``explain``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import customop as co
from tests.cli._commands import Run, at


def test_explain_prints_the_explanation(run: Run) -> None:
    """The text is that of `op.explain` with the same arguments."""
    sin = co.ops.np.sin.default
    assert run("explain", "np::sin", "f32[3, 4]") == (
        f"{sin.explain(np.zeros((3, 4), np.float32))}\n"
    )


def test_explain_takes_the_overload_that_fits(run: Run) -> None:
    """The arguments choose the overload unless it is named."""
    run("list", "cli_ops", "-m", "cli_ops")
    by_text = run.json("explain", "cli_ops::over", "f64[]", "word")
    by_name = run.json("explain", "cli_ops::over.number", "f64[]", "3")
    assert by_text["call"] == "cli_ops::over.text(f64[], 'word')"
    assert by_name["call"] == "cli_ops::over.number(f64[], 3)"


def test_explain_as_json(run: Run, folder: Path) -> None:
    """A call that raises has the error; other kernels say why they do not run."""
    run("list", "cli_ops", "-m", "cli_ops")
    found = run.json("explain", "cli_ops::over.text", "fake.f64[2]", "y=a")
    place = at(folder, '@co.custom_op("cli_ops::over.text"')
    assert found["taken"] is None
    assert found["error"]["type"] == "MissingRuleError"
    assert found["error"]["message"].startswith("cli_ops::over.text has no fake kernel")
    why = "'fake' has its own kernel"
    assert found["others"] == [{"name": "default kernel", "why": why, "place": place}]
