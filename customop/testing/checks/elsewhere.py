"""The outcomes of checks where there is no fork: in a process that imports the operator."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Self

from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import ArgumentError, OpCheckError, innermost
from customop.testing.apart.child import ChildGoneError, Send, start_clock
from customop.testing.apart.crash import Crash
from customop.testing.apart.spawned import SpawnedChild, is_spawned
from customop.testing.apart.transport import travels
from customop.testing.checks.check import SUCCESS, Check, at_smallest, reported
from customop.testing.checks.crashes import crash_fault
from customop.testing.checks.jobs import (
    PATIENCE,
    Done,
    both,
    check_all,
    clock,
    done_of,
    has_effects,
    names_of,
    outline_of,
    received,
    repeat,
    telling,
)
from customop.testing.checks.session import Session
from customop.testing.inputs.find import base_samples
from customop.testing.watch import watched

__all__ = ["outcomes_elsewhere", "samples_elsewhere"]

_HERE: Final = (
    "in this process, which a crash would end: there is no safe fork here, and a new"
    " process {}"
)


def outcomes_elsewhere(
    session: Session, checks: Sequence[Check], parts: Sequence[Check | None]
) -> Generator[Done, None, None]:
    """Run checks; their outcomes in order.

    `parts` are what runs in another process, whole checks or what they make up. It runs
    in this one if the other cannot have the operator, and the outcome says so.
    """
    left = [part for part in parts if part is not None]
    with _Elsewhere(session, left) as elsewhere:
        for check, part in zip(checks, parts, strict=True):
            done = None
            if part is None or part.is_rest:
                done = done_of(check, session, elsewhere.at_smallest)
            if part is not None:
                rest = elsewhere.next() or _here(part, session, elsewhere.reason)
                done = rest if done is None else both(done, rest)
            assert done is not None
            yield done


def _here(check: Check, session: Session, reason: str) -> Done:
    done = done_of(check, session, at_smallest)
    is_fine = done.outcome == SUCCESS and not done.note
    return done._replace(note=_HERE.format(reason)) if is_fine else done


# ---- whether another process can have an operator ----


def _why_not(op: Operator[..., Any], samples: Sequence[Sample]) -> str:
    """Why a new process cannot run an operator on some samples, or nothing."""
    if is_spawned():
        raise ArgumentError(
            "opcheck is called as its main script is imported by a child of it: write"
            " if __name__ == '__main__': before the call",
            do="call opcheck where the script runs, not where it is imported",
        )
    if "<locals>" in getattr(innermost(op.__wrapped__), "__qualname__", ""):
        return "cannot import the operator, which is made inside of a function"
    main: Any = sys.modules["__main__"]
    if op.definition.module == "__main__" and not hasattr(main, "__file__"):
        return "cannot import the operator, which is not written in a file"
    if not travels(samples, by_name=True):
        return "cannot get the arguments, which do not pickle"
    return ""


def _table_of(op: Operator[..., Any]) -> list[str]:
    """The schema of an operator, and where its rules are registered."""
    rows = [f"{kind} at {os.path.basename(row.place)}" for kind, row in op.rows.items()]  # noqa: PTH119  # with a line
    return [str(op.schema), *sorted(rows)]


def is_same(send: Send, op: Operator[..., Any], table: list[str]) -> None:
    """Send whether an operator is the same in this process as in the other."""
    send(_table_of(op) == table)


# ---- the other process ----

_waiting: list[SpawnedChild] = []


def _child_for(op: Operator[..., Any]) -> tuple[SpawnedChild, bool]:
    """A process that has the main script if it needs it, and whether it is new."""
    with_main = op.definition.module == "__main__"
    while _waiting:
        child = _waiting.pop()
        if child.with_main == with_main and child.is_waiting:
            return child, False
        child.close()
    return SpawnedChild(with_main=with_main, patience=PATIENCE), True


@atexit.register
def close_waiting() -> None:
    """End the process that waits for more work."""
    while _waiting:
        _waiting.pop().close()


class _Elsewhere:
    """Checks that run in another process, and the others in one more after a crash."""

    def __init__(self, session: Session, checks: Sequence[Check]) -> None:
        self.session = session
        self.left = list(checks)
        # Why the other process cannot run them.
        self.reason = _why_not(session.op, session.samples) if checks else ""
        self.child: SpawnedChild | None = None
        self.is_new = False

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        child, self.child = self.child, None
        if child is None:
            return
        is_done = kind is None and not self.left and next(self.messages, None) is None
        if is_done and child.is_waiting:
            _waiting.append(child)
        else:
            child.close()

    def _start(self, *, is_new: bool = False) -> None:
        """Give the checks that are left to another process."""
        if self.child is not None:
            self.child.close()
            self.child = None
        if not self.left or self.reason:
            return
        if is_new:
            close_waiting()
        self.child, self.is_new = _child_for(self.session.op)
        try:
            self.reason = self._asked(self.child)
        except ChildGoneError:
            self.reason = f"ends as it begins: {self.child.last_words()}"
        except Exception as error:  # noqa: BLE001  # whatever an import raises
            text = str(error).partition("\n")[0]
            self.reason = f"cannot import the operator: {text or type(error).__name__}"
        if self.reason:
            self.child.close()
            self.child = None

    def _asked(self, child: SpawnedChild) -> str:
        """Ask for the checks; why they cannot run there, or nothing."""
        op = self.session.op
        child.ask(is_same, op, _table_of(op))
        if not _only(child):
            return "has other rules for it: some are registered as the program runs"
        child.ask(check_all, outline_of(self.session), names_of(self.left), PATIENCE)
        self.messages: Iterator[Any] = child.messages()
        effects = next(self.messages, None)
        if effects is None or not has_effects(self.session, *effects):
            return "gets other results from it for the given arguments"
        return ""

    def next(self) -> Done | None:
        """The outcome of the next check; None if it must run in this process."""
        if self.reason or self.child is None:
            return None
        fault: Done | None = None  # whose smallest input is still sought
        crash: Crash | None
        try:
            for is_last, *message in self.messages:
                fault = received(*message)
                if is_last:
                    return self._taken(fault)
            crash = self.child.crash
        except Exception as error:  # noqa: BLE001  # some memory was overwritten
            text = f"{type(error).__name__}: {error}"
            crash = Crash(f"broke the process it ran in ({text})")
        if not self.is_new:
            return self._again()
        check = self.left.pop(0)
        done = fault or self._crashed(check, crash or Crash("ended the process"))
        self._start(is_new=True)
        return done

    def _taken(self, done: Done) -> Done | None:
        """An outcome; a fault counts only in a process that has done nothing before."""
        if isinstance(done.outcome, OpCheckError) and not self.is_new:
            return self._again()
        self.left.pop(0)
        return done

    def _again(self) -> Done | None:
        self._start(is_new=True)
        return self.next()

    def _crashed(self, check: Check, crash: Crash) -> Done:
        """The outcome of a check that has crashed, which is repeated to see where."""
        start = perf_counter()
        op, last = self.session.op, self.session.samples[0]
        child = SpawnedChild(
            with_main=op.definition.module == "__main__", patience=PATIENCE
        )
        with child:
            child.ask(repeat, outline_of(self.session), names_of([check]), PATIENCE)
            for message in child.messages():
                last = message
        usual = self.session.samples[0]
        fault = crash_fault(op, child.crash or crash, last, usual)
        error = reported(check, self.session, last, fault)
        return Done(error, perf_counter() - start, has_crashed=True)

    def at_smallest(
        self, check: Check, session: Session, sample: Sample, error: Exception
    ) -> OpCheckError:
        """The error for a fault that was found here, on the user's own arguments."""
        return (reported if self.child is not None else at_smallest)(
            check, session, sample, error
        )


def _only(child: SpawnedChild) -> Any:
    """The only message about some work."""
    found = list(child.messages())
    if child.crash is not None:
        raise ChildGoneError
    return found[0]


# ---- inputs that are sought ----


def search(send: Send, op: Operator[..., Any], tells: bool) -> None:
    """Send the inputs that are found for an operator, or each one before it is tried."""
    start_clock(PATIENCE)
    with watched(telling(send, PATIENCE) if tells else clock(PATIENCE)):
        samples = base_samples(op)
    if not tells:
        send(samples)


def samples_elsewhere(op: Operator[..., Any], check: Check) -> list[Sample]:
    """Inputs that are sought in another process, or in this one if it has the operator.

    Raises
    ------
    ArgumentError
        If none are found.
    OpCheckError
        If the kernel crashes on a call that is tried. It names `check`.
    """
    if _why_not(op, []):
        return base_samples(op)
    child, _ = _child_for(op)
    with child:
        try:
            child.ask(is_same, op, _table_of(op))
            is_there = _only(child)
        except Exception:  # noqa: BLE001  # the checks say why, in the table
            is_there = False
        if not is_there:
            return base_samples(op)
        child.ask(search, op, False)
        found = list(child.messages())
    if child.crash is None:
        samples: list[Sample] = found[0]
        return samples
    with SpawnedChild(with_main=child.with_main, patience=PATIENCE) as again:
        again.ask(search, op, True)
        found = list(again.messages())
    last = found[-1] if found else Sample(())
    raise search_fault(op, check, again.crash or child.crash, last)


def search_fault(
    op: Operator[..., Any], check: Check, crash: Crash, sample: Sample
) -> OpCheckError:
    """The error for a crash while inputs are sought."""
    fault = crash_fault(op, crash, sample, None)
    fault.what += ", one of the calls that opcheck tries to find inputs"
    fault.do += f"; or name inputs: @{op.name}.register_sample_inputs"
    return reported(check, Session(op, []), sample, fault)
