"""The outcomes of checks, of which those that make up inputs run in a child."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from time import perf_counter
from typing import Any, Self

from customop.core.samples import Sample
from customop.errors import OpCheckError
from customop.testing.apart.child import CAN_FORK, Child, ChildGoneError, Send
from customop.testing.apart.crash import Crash
from customop.testing.checks import kept
from customop.testing.checks.agreement import has_other_kinds
from customop.testing.checks.check import Check, at_smallest, reported
from customop.testing.checks.crashes import crash_fault
from customop.testing.checks.elsewhere import outcomes_elsewhere
from customop.testing.checks.jobs import (
    CALLS,
    PATIENCE,
    Done,
    both,
    clock,
    done_of,
    has_effects,
    names_of,
    outline_of,
    received,
    run_checks,
    run_given,
    send_done,
    serve,
    telling,
    values_in,
)
from customop.testing.checks.kept import may_be_kept
from customop.testing.checks.session import Session
from customop.testing.checks.warm import warm_up
from customop.testing.quiet import random_state_kept
from customop.testing.watch import watched

__all__ = ["last_before_crash", "outcomes"]

# The patience with an operator that is known to hang is so much less.
SHORTER = 12


def outcomes(session: Session, checks: Sequence[Check]) -> Generator[Done, None, None]:
    """Run checks; their outcomes in order.

    Those that call the operator with the user's own arrays alone run in this process,
    the others in a child of it at the same time.
    """
    here = _run_here(session, checks)
    parts = [c.rest if c.name in here else c.whole for c in checks]
    if not CAN_FORK:
        with random_state_kept():
            run_given(session)
            yield from outcomes_elsewhere(session, checks, parts)
        return
    others = [part for part in parts if part is not None]
    warm_up(others)
    with _Apart(session, others) as apart:
        with random_state_kept():  # the child works meanwhile
            apart.begin()
            own = _done_ahead(session, [c for c in checks if c.name in here])
        for check, part in zip(checks, parts, strict=True):
            if check.name not in here:
                yield apart.next()
            else:
                done = own.pop(check.name, None) or _done_late(check, session)
                yield done if part is None else both(done, apart.next())


def _done_late(check: Check, session: Session) -> Done:
    with random_state_kept():
        return _done_here(check, session)


def _done_ahead(session: Session, checks: Iterable[Check]) -> dict[str, Done]:
    """Outcomes up to the first fault, by name: work that needs no wait for the child."""
    found: dict[str, Done] = {}
    for check in checks:
        done = found[check.name] = _done_here(check, session)
        if not isinstance(done.outcome, str):
            break
    return found


def _done_here(check: Check, session: Session) -> Done:
    return done_of(check, session, _at_smallest_apart)


def _run_here(session: Session, checks: Iterable[Check]) -> set[str]:
    """Names of the checks that run in this process."""
    # CUDA does not survive a fork: inputs that were found run here too.
    is_safe = session.is_given or has_other_kinds(session.op)
    return {c.name for c in checks if is_safe and c.as_given(session.op)}


def _at_smallest_apart(
    check: Check, session: Session, sample: Sample, error: Exception
) -> OpCheckError:
    """The error for a fault that was found here, at an input that a child has found."""

    def search(send: Send) -> None:
        with watched(clock(PATIENCE)):
            found = at_smallest(check, session, sample, error)
        if found.sample is not sample:
            send_done(send, Done(found, 0.0), is_last=True)

    with Child(search, PATIENCE, values_in([sample])) as child:
        for _, *message in child.messages():
            found = received(*message).outcome
            assert isinstance(found, OpCheckError)
            return found
    # There is no smaller one, or the search for it has crashed.
    return reported(check, session, sample, error)


class _Apart:
    """Checks that run in a child, and the others in another one after a crash."""

    def __init__(self, session: Session, checks: Sequence[Check]) -> None:
        self.session = session
        self.left = list(checks)
        self.patience = PATIENCE
        self.knows_hang = False
        # Why no check can run in a child.
        self.reason = ""
        self.child: Child | None = None
        # What the child has copied, if it may be kept; whether it was kept before.
        self.world: kept.World | None = None
        self.is_kept = False
        self.may_keep = may_be_kept(session)

    def __enter__(self) -> Self:
        self.is_kept = bool(self.left) and self._ask_kept()
        return self

    def begin(self) -> None:
        """Run the operator on the user's own samples, and the checks in a new child.

        A kernel that crashes on these shall do it here, where a debugger sees it.
        """
        self.patience = PATIENCE + CALLS * run_given(self.session)
        if not self.is_kept:
            self._start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        child, world = self.child, self.world
        self.child = None
        if child is None:
            return
        is_done = kind is None and not self.left and next(self.messages, None) is None
        is_fine = is_done and child.is_waiting and self.may_keep
        if is_fine and world is not None:
            kept.give_back(child, world)
        else:
            child.close()

    def _ask_kept(self) -> bool:
        """Give the checks to the child that is kept, if it knows the operator."""
        found = kept.taken(self.session.op) if self.may_keep else None
        if found is None:
            return False
        self.child, self.world = found
        try:
            self.child.ask(serve, outline_of(self.session), names_of(self.left))
        except ChildGoneError:
            self._close()
            return False
        self.messages = self.child.messages()
        self.found: list[Done] | None = None
        return True

    def _close(self) -> None:
        if self.child is not None:
            self.child.close()
        self.child = self.world = None
        self.is_kept = False

    def _start(self) -> None:
        """Run the checks that are left in a new child."""
        self._close()
        if self.left and not self.reason:
            if self.may_keep:
                self.world = kept.World(self.session.op)
            values = values_in(self.session.samples)
            checks = list(self.left)
            child = Child(
                lambda send: run_checks(send, self.session, checks, self.patience),
                self.patience,
                values,
            )
            child.start()
            self.child, self.messages = child, child.messages()

    def next(self) -> Done:
        """The outcome of the next check."""
        if self.reason:
            return Done(self.reason, 0.0)
        if self.is_kept:
            done = self._next_of_kept()
            if done is not None:
                self.left.pop(0)
                return done
            self._start()
        fault: Done | None = None  # whose smallest input is still sought
        try:
            for is_last, *message in self.messages:
                fault = received(*message)
                if is_last:
                    self.left.pop(0)
                    self.may_keep &= isinstance(fault.outcome, str)
                    return fault
            crash = None if self.child is None else self.child.crash
        except Exception as error:  # noqa: BLE001  # raised again if it is ours
            crash = self._broken(error)
        assert crash is not None  # else the child would have sent one more
        self.may_keep = False
        check = self.left.pop(0)
        done = fault or self._crashed(check, crash)
        self._start()
        return done

    def _broken(self, error: Exception) -> Crash:
        """The crash for an exception of the check itself: some memory was overwritten.

        Raises it where a new child raises it too.
        """
        _, crash = self._repeated(self.left[0], error)
        name = type(error).__name__
        return crash or Crash(f"broke the process it ran in ({name}: {error})")

    def _repeated(
        self, check: Check, known: Exception | None = None
    ) -> tuple[Sample | None, Crash | None]:
        """The last sample of a check that is repeated, and its crash if it crashes."""
        try:
            return last_before_crash(
                lambda: done_of(check, self.session, reported), self.patience
            )
        except Exception as error:
            if type(error) is type(known) and str(error) == str(known):
                raise
            return None, None

    def _next_of_kept(self) -> Done | None:
        """The outcome of the next check, if it is not a fault and not a crash."""
        if self.found is None:
            try:
                effects, found = next(self.messages, (None, ()))
            except Exception:  # noqa: BLE001  # whatever it is, a new child has it too
                return None
            is_same = has_effects(self.session, effects)
            self.found = [Done(*done) for done in found][::-1] if is_same else []
        return self.found.pop() if self.found else None

    def _crashed(self, check: Check, crash: Crash) -> Done:
        """The outcome of a check that has crashed, which is repeated to see where."""
        start = perf_counter()
        if crash.hangs and not self.knows_hang:
            self.knows_hang, self.patience = True, self.patience / SHORTER
        self.reason = self._why_no_child()
        if self.reason:
            return Done(self.reason, perf_counter() - start)
        sample, again = self._repeated(check)
        usual = self.session.samples[0]
        fault = crash_fault(self.session.op, again or crash, sample or usual, usual)
        if again is None:
            fault.where += (_ONCE,)
        error = reported(check, self.session, sample or usual, fault)
        return Done(error, perf_counter() - start, has_crashed=True)

    def _why_no_child(self) -> str:
        """Why a child proves nothing: the user's own arrays crash the kernel there too.

        They do not in this process. Threads of OpenMP do not survive a fork.
        """
        if not self.session.is_given:
            return ""
        first = self.session.samples[0]
        _, crash = last_before_crash(
            lambda: self.session.call(self.session.values(first)), self.patience
        )
        return "" if crash is None else _NO_CHILD.format(crash.how)


_NO_CHILD = (
    "SKIPPED: its inputs run in a forked child, where the kernel {} on the given"
    " arguments too: a library in it does not survive a fork"
)
_ONCE = (
    "it did so once, and not when the check was repeated: the input is only the last"
)


def last_before_crash(
    work: Callable[[], Any], patience: float
) -> tuple[Sample | None, Crash | None]:
    """Do what has crashed again: the last sample, and the crash unless it was the only."""
    last: Sample | None = None

    def watch(send: Send) -> None:
        with watched(telling(send, patience)):
            work()

    with Child(watch, patience) as child:
        for message in child.messages():
            last = message
    return last, child.crash
