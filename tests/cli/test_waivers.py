"""Waived checks in the commands ``check`` and ``show``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli._commands import Run, lines
from tests.cli.test_check import timeless

_MODULE = """
    import numpy as np
    import customop as co

    @co.custom_op("cli_waived::rounded", mutates_args=())
    def rounded(x: np.ndarray) -> np.ndarray:
        return np.round(x)

    rounded.register_fake(lambda x: co.fake_like(x))
    rounded.register_autograd(lambda ctx, g: g)
    rounded.register_sample_inputs(lambda: [(np.array([0.6]),)])
    rounded.waive("test_gradients", reason="a straight-through estimator")
    rounded.waive("test_jvp", reason="not needed")
    rounded.waive("test_schema", reason="not needed")
"""


@pytest.fixture(autouse=True)
def _module(folder: Path) -> None:
    (folder / "cli_waived.py").write_text(textwrap.dedent(_MODULE), encoding="utf-8")


def test_check_shows_reasons(run: Run) -> None:
    """A waived fault is not a failure; a waiver that is not needed is noted."""
    names = "test_schema,test_gradients"
    found = run("check", "cli_waived", "--test-utils", names)
    assert timeless(found) == lines("""
        passed  cli_waived::rounded  1 passed, 1 waived in T s
          test_schema     passed  the waiver is not needed: remove waive('test_schema', ...)
          test_gradients  waived  a straight-through estimator

        1 operator: 1 passed, 1 waived in T s
    """)
    assert run.status == 0


def test_check_as_json(run: Run) -> None:
    found = run.json("check", "cli_waived", "--test-utils", "test_gradients")
    (check,) = found["operators"][0]["checks"]
    assert (check["status"], check["type"]) == ("waived", "")
    assert check["text"] == "a straight-through estimator"
    assert found["operators"][0]["status"] == "waived"
    assert found["summary"]["waived"] == 1


def test_check_as_junit(run: Run, tmp_path: Path) -> None:
    """It counts as skipped, which is how JUnit shows what is expected to fail."""
    path = tmp_path / "out.xml"
    run("check", "cli_waived", "--test-utils", "test_gradients", "--junit", str(path))
    (suite,) = ET.parse(path).getroot()
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "0")
    (skipped,) = suite.iter("skipped")
    assert skipped.get("message") == "waived: a straight-through estimator"


def test_show(run: Run) -> None:
    found = run("show", "cli_waived::rounded", "-m", "cli_waived")
    assert (
        "waived checks\n"
        "test_gradients  a straight-through estimator\n"
        "test_jvp        not needed\n"
        "test_schema     not needed\n"
    ) in found
    waivers = run.json("show", "cli_waived::rounded")["operator"]["waivers"]
    assert waivers["test_gradients"] == "a straight-through estimator"
