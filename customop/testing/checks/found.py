"""Inputs for an operator, sought in a child: its kernel refuses most that are tried."""

from __future__ import annotations

from typing import Any

from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import OpCheckError
from customop.testing.apart.child import CAN_FORK, Child, Send, start_clock
from customop.testing.apart.crash import Crash
from customop.testing.apart.transport import travels
from customop.testing.checks import kept
from customop.testing.checks.check import Check
from customop.testing.checks.elsewhere import samples_elsewhere, search_fault
from customop.testing.checks.jobs import PATIENCE, clock
from customop.testing.checks.outcomes import last_before_crash
from customop.testing.checks.state import note_program
from customop.testing.inputs.find import base_samples
from customop.testing.watch import watched

__all__ = ["found_samples"]


def found_samples(op: Operator[..., Any], check: Check) -> list[Sample]:
    """Inputs that the kernels of an operator accept, sought in a child.

    Raises
    ------
    ArgumentError
        If none are found.
    OpCheckError
        If the kernel crashes on a call that is tried. It names `check`.
    """
    if not CAN_FORK:
        return samples_elsewhere(op, check)

    found = _sought_by_kept(op) or _sought(op, check)
    samples, patterns = found
    if patterns:
        op.plans.patterns = patterns[0]
    # Where they cannot be pickled: a child has done the same, and did not crash.
    return list(samples[0]) if samples else base_samples(op)


def _search(send: Send, op: Operator[..., Any], patience: float) -> None:
    """Seek inputs in a child: the samples and their patterns, if they can be sent."""
    start_clock(patience)
    note_program()
    with watched(clock(patience)):
        samples, patterns = base_samples(op), op.plans.patterns
    send((samples,) if travels(samples) else ())
    send((patterns,) if travels(patterns) else ())


def _sought_by_kept(op: Operator[..., Any]) -> list[Any] | None:
    """Ask the kept child for inputs; None if there is none, or if it fails."""
    taken = kept.taken(op)
    if taken is None:
        return None
    child, world = taken
    try:
        child.ask(_search, op, PATIENCE)
        found = list(child.messages())
    except Exception:  # noqa: BLE001  # whatever it is, a new child has it too
        found = []
    if child.is_waiting:
        kept.give_back(child, world)
        return found
    child.close()
    return None


def _sought(op: Operator[..., Any], check: Check) -> list[Any]:
    """Ask a new child for inputs."""
    world = kept.World(op)
    child = Child(lambda send: _search(send, op, PATIENCE), PATIENCE)
    child.start()
    try:
        found = list(child.messages())
    except BaseException:
        child.close()
        raise
    if child.crash is not None:
        child.close()
        raise _crashed(op, check, child.crash)
    kept.give_back(child, world)
    return found


def _crashed(op: Operator[..., Any], check: Check, crash: Crash) -> OpCheckError:
    sample, _ = last_before_crash(lambda: base_samples(op), PATIENCE)
    return search_fault(op, check, crash, sample or Sample(()))
