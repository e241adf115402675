"""The outcomes of checks, of which those that make up inputs run in a child."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple, Self

from customop.arrays.nested import children
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import OpCheckError
from customop.testing.apart.child import (
    CAN_FORK,
    Child,
    ChildGoneError,
    Send,
    start_clock,
)
from customop.testing.apart.crash import Crash
from customop.testing.apart.transport import packed, unpacked
from customop.testing.checks import kept
from customop.testing.checks.agreement import has_other_kinds
from customop.testing.checks.check import (
    SUCCESS,
    Check,
    Report,
    at_smallest,
    outcome_of,
    reported,
)
from customop.testing.checks.crashes import crash_fault
from customop.testing.checks.session import Session, same_bits
from customop.testing.checks.state import program_state
from customop.testing.checks.table import BY_NAME
from customop.testing.checks.warm import warm_up
from customop.testing.watch import Watcher, watched

__all__ = ["PATIENCE", "Done", "clock", "last_before_crash", "outcomes"]

# Seconds that a child may take for one sample; its compiler may take half a minute.
PATIENCE = 60.0
# Calls of the operator for one sample, at most: they may take so long together.
_CALLS = 1000
# The patience with an operator that is known to hang is so much less.
SHORTER = 12


class Done(NamedTuple):
    """The outcome of a check.

    Attributes
    ----------
    outcome : str or OpCheckError
    seconds : float
        How long it took.
    note : str
        What a success leaves open.
    has_crashed : bool
        Whether the fault is that the kernel ends the process.
    """

    outcome: str | OpCheckError
    seconds: float
    note: str = ""
    has_crashed: bool = False


def outcomes(session: Session, checks: Sequence[Check]) -> Generator[Done, None, None]:
    """Run checks; their outcomes in order.

    Those that call the operator with the user's own arrays alone run in this process,
    the others in a child of it at the same time.
    """
    patience = PATIENCE + _CALLS * _run_given(session)
    parts = [c.rest if _runs_here(session, c) else c.whole for c in checks]
    others = [part for part in parts if part is not None and CAN_FORK]
    warm_up(others)
    with _Apart(session, others, patience) as apart:
        for check, part in zip(checks, parts, strict=True):
            if not CAN_FORK:
                yield _done(check.whole, session, at_smallest)
            elif not _runs_here(session, check):
                yield apart.next()
            else:
                done = _done(check, session, _at_smallest_apart)
                yield done if part is None else _both(done, apart.next())


def _both(done: Done, rest: Done) -> Done:
    """The outcome of the two parts of a check, of which the first decides."""
    seconds = done.seconds + rest.seconds
    is_fault = isinstance(rest.outcome, OpCheckError)
    worse = rest if is_fault and done.outcome == SUCCESS else done
    return worse._replace(seconds=seconds)


def _runs_here(session: Session, check: Check) -> bool:
    # CUDA does not survive a fork: inputs that were found run here too.
    is_safe = session.is_given or has_other_kinds(session.op)
    return is_safe and check.as_given(session.op)


def _run_given(session: Session) -> float:
    """Run the operator on the user's own samples; the seconds that the slowest took.

    A kernel that crashes on them shall do it here, where a debugger can see it.
    """
    slowest = 0.0
    for sample in session.samples if session.is_given else ():
        start = perf_counter()
        with suppress(Exception):  # the checks report it
            session.expected(sample)
        slowest = max(slowest, perf_counter() - start)
    return slowest


def _done(check: Check, session: Session, report: Report) -> Done:
    start = perf_counter()
    is_waived = check.name in session.op.waivers
    is_safe = CAN_FORK or check.as_given(session.op)
    outcome = outcome_of(check, session, reported if is_waived else report)
    notes = [_needless(check)] * is_waived + session.notes + [_NO_FORK] * (not is_safe)
    note = notes[0] if outcome == SUCCESS and notes else ""
    return Done(outcome, perf_counter() - start, note)


_NO_FORK = "in this process, which a crash would end: there is no safe fork here"


def _needless(check: Check) -> str:
    return f"the waiver is not needed: remove waive({check.name!r}, ...)"


def _at_smallest_apart(
    check: Check, session: Session, sample: Sample, error: Exception
) -> OpCheckError:
    """The error for a fault that was found here, at an input that a child has found."""

    def search(send: Send) -> None:
        with watched(clock(PATIENCE)):
            found = at_smallest(check, session, sample, error)
        if found.sample is not sample:
            _send_done(send, Done(found, 0.0), is_last=True)

    with Child(search, PATIENCE, _values_in([sample])) as child:
        for _, *message in child.messages():
            found = _received(*message).outcome
            assert isinstance(found, OpCheckError)
            return found
    # There is no smaller one, or the search for it has crashed.
    return reported(check, session, sample, error)


def clock(patience: float) -> Watcher:
    """A watcher that gives each sample so much time, for a child."""
    return lambda sample: start_clock(patience)


# ---- in a child ----


class _Apart:
    """Checks that run in a child, and the others in another one after a crash."""

    def __init__(
        self, session: Session, checks: Sequence[Check], patience: float
    ) -> None:
        self.session = session
        self.left = list(checks)
        self.patience = patience
        self.knows_hang = False
        # Why no check can run in a child.
        self.reason = ""
        self.child: Child | None = None
        # What the child has copied, if it may be kept; whether it was kept before.
        self.world: kept.World | None = None
        self.is_kept = False
        self.may_keep = _may_be_kept(session)

    def __enter__(self) -> Self:
        if self.left and not self._ask_kept():
            self._start()
        return self

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
        names = [(c.name, c.is_rest) for c in self.left]
        try:
            self.child.ask(_serve, *_outline(self.session), names, self.patience)
        except ChildGoneError:
            self._close()
            return False
        self.is_kept = True
        self.messages = self.child.messages()
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
            values = _values_in(self.session.samples)
            child = Child(self._run, self.patience, values)
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
                fault = _received(*message)
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
                lambda: _done(check, self.session, reported), self.patience
            )
        except Exception as error:
            if type(error) is type(known) and str(error) == str(known):
                raise
            return None, None

    def _next_of_kept(self) -> Done | None:
        """The outcome of the next check, if it is not a fault and not a crash."""
        try:
            found = next(self.messages, None)
        except Exception:  # noqa: BLE001  # whatever it is, a new child has it too
            return None
        return found if isinstance(found, Done) else None

    def _run(self, send: Send) -> None:
        def report(*found: Any) -> OpCheckError:
            _send_done(send, Done(reported(*found), 0.0), is_last=False)
            return at_smallest(*found)

        with watched(clock(self.patience)):
            for check in self.left:
                _send_done(send, _done(check, self.session, report), is_last=True)

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
        def tell(sample: Callable[[], Sample]) -> None:
            start_clock(patience)
            with suppress(Exception):  # whatever the __reduce__ of an argument raises
                send(sample())

        with watched(tell):
            work()

    with Child(watch, patience) as child:
        for message in child.messages():
            last = message
    return last, child.crash


# ---- in a child that was kept ----


def _may_be_kept(session: Session) -> bool:
    """Whether the samples and results of a session mean the same in another process."""
    return not session.op.waivers and all(map(kept.is_plain, session.samples))


def _outline(session: Session) -> tuple[Any, ...]:
    """A session as arguments of `_serve`."""
    op = session.op
    is_safe = session.is_given and not op.sees_seed
    given = [_effects(session, s) for s in session.samples] if is_safe else None
    settings = (session.rtol, session.atol, session.is_given, session.keeps_shapes)
    return op, session.samples, given, settings, program_state()


def _effects(session: Session, sample: Sample) -> list[Any] | None:
    try:
        return [leaf for _, leaf in session.expected(sample).effects]
    except Exception:  # noqa: BLE001  # the checks report it
        return None


def _serve(
    send: Send,
    op: Operator[..., Any],
    samples: list[Sample],
    given: list[list[Any] | None] | None,
    settings: tuple[Any, ...],
    program: dict[str, Any],
    checks: list[tuple[str, bool]],
    patience: float,
) -> None:
    """Run checks in a child, as long as they find nothing."""
    if program != program_state():  # something has run here that changes it
        return
    start_clock(patience)
    rtol, atol, is_given, keeps_shapes = settings
    session = Session(
        op, samples, rtol, atol, is_given=is_given, keeps_shapes=keeps_shapes
    )
    with watched(clock(patience)):
        for sample, effects in zip(samples, given or (), strict=False):
            if not _agree(effects, _effects(session, sample)):
                return
        for name, is_rest in checks:
            check = BY_NAME[name]
            part = check.rest if is_rest else check.whole
            assert part is not None
            done = _done(part, session, reported)
            if not isinstance(done.outcome, str):
                return
            send(done)


def _agree(first: list[Any] | None, second: list[Any] | None) -> bool:
    """Whether the operator does in this process what it has done in another one."""
    if first is None or second is None or len(first) != len(second):
        return False
    return all(map(same_bits, first, second))


def _send_done(send: Send, done: Done, *, is_last: bool) -> None:
    """Send an outcome with the cause of its error, which pickle leaves out."""
    error = done.outcome
    if isinstance(error, str):
        send((is_last, done, None))
        return
    cause = None if error.__cause__ is None else packed(error.__cause__)
    try:
        send((is_last, done, cause))
    except Exception:  # noqa: BLE001  # whatever the __reduce__ of an argument raises
        error.sample = None
        send((is_last, done, cause))


def _values_in(samples: Iterable[Sample]) -> list[Any]:
    """The samples and all that is in them, which a child can send without pickling."""
    found: list[Any] = list(samples)
    for sample in samples:
        left = [*sample.args, *sample.kwargs.values()]
        for value in left:
            left += children(value) or ()
        found += left
    return found


def _received(done: Done, cause: tuple[BaseException, str] | None) -> Done:
    if cause is not None and not isinstance(done.outcome, str):
        done.outcome.__cause__ = unpacked(*cause)
    return done
