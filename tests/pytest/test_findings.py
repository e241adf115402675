"""Results of the checks over several recorded calls."""

from __future__ import annotations

import mmap
import random

import numpy as np
import pytest

import customop as co
from customop.pytest.findings import CheckFinding, Recorder, findings_of
from customop.pytest.options import Outcome, is_named


@co.custom_op("findings::double", mutates_args=())
def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


# The most axes that the rule has met. The memory is shared with opcheck's children.
most_axes = np.ndarray(1, np.int64, mmap.mmap(-1, 8))


@double.register_vmap
def _(info, in_dims, x):
    most_axes[0] = max(most_axes[0], x.ndim)  # the rule is wrong for matrices
    return (2 if x.ndim < 3 else 3) * x, in_dims[0]


@co.custom_op("findings::draw", mutates_args=(), tags=co.Tag.nondeterministic_seeded)
def draw(x: np.ndarray) -> np.ndarray:
    return x + random.random()  # no cryptography


@pytest.fixture
def log() -> Recorder:
    """A recorder for the operators of this file."""
    return Recorder(lambda name: is_named(name, "findings"))


def found(log: Recorder, *checks: str) -> list[CheckFinding]:
    """Return the results of some checks on the recorded calls."""
    return findings_of([*log.calls.values()], checks, {})


def test_one_finding_for_each_operator_and_check(log: Recorder) -> None:
    """All calls of an operator give one finding for each check."""
    with log:
        double(np.ones(2)), double(np.ones(3)), draw(np.ones(2))
    findings = found(log, "test_schema", "test_mutation")
    assert [(f.op, f.check, f.outcome.status, f.text) for f in findings] == [
        ("findings::double", "test_schema", "passed", ""),
        ("findings::double", "test_mutation", "passed", ""),
        ("findings::draw", "test_schema", "passed", ""),
        ("findings::draw", "test_mutation", "passed", ""),
    ]


def test_one_call_that_fails_is_enough(log: Recorder) -> None:
    """A check fails if it fails for one call, which is named; then it stops."""
    with log:
        double(np.ones(2)), double(np.ones((2, 2))), double(np.ones((2, 2, 2)))
    most_axes[0] = 0
    (finding,) = found(log, "test_vmap")
    assert finding.outcome.status == "failed"
    assert finding.text.startswith("findings::double: test_vmap: the output differs")
    assert finding.text.endswith("\n\n(call 2 of 3 different ones)")
    # The third call would add a batch axis to three axes.
    assert most_axes[0] == 3


def test_the_reason_of_a_failure(log: Recorder) -> None:
    """The reason repeats neither the operator nor the check."""
    with log:
        double(np.ones((2, 2)))
    (finding,) = found(log, "test_vmap")
    first = finding.text.partition("\n")[0]
    assert first == f"findings::double: test_vmap: {finding.outcome.reason}"
    assert not finding.text.endswith("different ones)")


def test_a_check_that_does_not_apply(log: Recorder) -> None:
    """A check that applies to none of the calls says why."""
    with log:
        draw(np.ones(2)), draw(np.ones(3))
    ((op, check, outcome, text),) = found(log, "test_out_variant")
    assert (op, check, outcome.status, text) == (
        "findings::draw",
        "test_out_variant",
        "skipped",
        "",
    )
    assert outcome.reason
    assert not outcome.reason.startswith("SKIPPED")


def test_a_check_that_applies_to_one_call(log: Recorder) -> None:
    """A check that passes for one call and does not apply to another has passed."""
    with log:
        double(np.ones(2, int))
        double(np.ones(2))
        double(np.ones(3, int))
    double.register_autograd(lambda ctx, g: 2 * g, override=True)
    (finding,) = found(log, "test_gradients")
    assert finding.outcome == Outcome("passed")


def test_an_operator_that_is_gone(log: Recorder) -> None:
    """An operator that cannot be checked is a finding without a check."""
    with co.Library("findings", "FRAGMENT") as lib:
        lib.define("passing(Array x) -> Array")
        lib.impl("passing", lambda x: x * 2, "CPU")
        with log:
            co.ops.findings.passing(np.ones(2))
    reason = "findings::passing was taken back before the test ended"
    assert found(log, "test_schema") == [
        CheckFinding(
            "findings::passing",
            "",
            Outcome("skipped", reason),
            f"{reason}\n  do: define it in a fixture, or in a module",
        )
    ]


def test_random_states_are_restored(log: Recorder) -> None:
    """Checks do not change the random states of the program."""
    with log:
        draw(np.ones(2))
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002  # the state that programs share
    found(log, "test_schema", "test_determinism")
    assert random.random() == random.Random(3).random()
    assert np.random.random() == np.random.RandomState(3).random()  # noqa: NPY002
