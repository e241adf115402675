"""The work of a child: checks, and the same checks again to see where they crash."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from customop.arrays.nested import children
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import OpCheckError
from customop.testing.apart.child import Send, start_clock
from customop.testing.apart.transport import packed, unpacked
from customop.testing.checks.check import (
    SUCCESS,
    Check,
    Report,
    at_smallest,
    outcome_of,
    reported,
)
from customop.testing.checks.session import Session, same_bits
from customop.testing.checks.state import is_program_as_noted, note_program
from customop.testing.checks.table import BY_NAME
from customop.testing.watch import Watcher, watched

__all__ = [
    "CALLS",
    "PATIENCE",
    "Done",
    "Effects",
    "Outline",
    "both",
    "check_all",
    "clock",
    "done_of",
    "effects_of",
    "has_effects",
    "names_of",
    "outline_of",
    "received",
    "repeat",
    "run_checks",
    "run_given",
    "send_done",
    "serve",
    "telling",
    "values_in",
]

# Seconds that a child may take for one sample; its compiler may take half a minute.
PATIENCE = 60.0
# Calls of the operator for one sample, at most: they may take so long together.
CALLS = 1000


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


def done_of(check: Check, session: Session, report: Report) -> Done:
    """Run a check; its outcome, with how long it took."""
    start = perf_counter()
    is_waived = check.name in session.op.waivers
    outcome = outcome_of(check, session, reported if is_waived else report)
    notes = [_needless(check)] * is_waived + session.notes
    note = notes[0] if outcome == SUCCESS and notes else ""
    return Done(outcome, perf_counter() - start, note)


def _needless(check: Check) -> str:
    return f"the waiver is not needed: remove waive({check.name!r}, ...)"


def both(done: Done, rest: Done) -> Done:
    """The outcome of the two parts of a check, of which the first decides."""
    seconds = done.seconds + rest.seconds
    is_fault = isinstance(rest.outcome, OpCheckError)
    worse = rest if is_fault and isinstance(done.outcome, str) else done
    note = worse.note or rest.note if worse.outcome == SUCCESS else ""
    return worse._replace(seconds=seconds, note=note)


def clock(patience: float) -> Watcher:
    """A watcher that gives each sample so much time, or 2 % less, for a child."""
    started = float("-inf")

    def restart(sample: Callable[[], Sample]) -> None:
        nonlocal started
        now = perf_counter()
        if now - started > 0.02 * patience:  # to ask the system takes 3 us
            started = now
            start_clock(patience)

    return restart


def telling(send: Send, patience: float) -> Watcher:
    """A watcher that sends each sample, for a child that may crash on it."""

    def tell(sample: Callable[[], Sample]) -> None:
        start_clock(patience)
        with suppress(Exception):  # whatever the __reduce__ of an argument raises
            send(sample())

    return tell


# ---- outcomes on their way ----


def send_done(send: Send, done: Done, *, is_last: bool) -> None:
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


def values_in(samples: Iterable[Sample]) -> list[Any]:
    """The samples and all that is in them, which a child can send without pickling."""
    found: list[Any] = list(samples)
    for sample in samples:
        left = [*sample.args, *sample.kwargs.values()]
        for value in left:
            left += children(value) or ()
        found += left
    return found


def received(done: Done, cause: tuple[BaseException, str] | None) -> Done:
    """Put together again what `send_done` has sent."""
    if cause is not None and not isinstance(done.outcome, str):
        done.outcome.__cause__ = unpacked(*cause)
    return done


def run_checks(
    send: Send, session: Session, checks: Iterable[Check], patience: float
) -> None:
    """Send the outcomes of checks; a fault first as it is, then at its smallest input."""

    def report(*found: Any) -> OpCheckError:
        send_done(send, Done(reported(*found), 0.0), is_last=False)
        return at_smallest(*found)

    note_program()
    with watched(clock(patience)):
        for check in checks:
            send_done(send, done_of(check, session, report), is_last=True)


# ---- a session for another process ----


class Outline(NamedTuple):
    """A session in a form to send, without what it remembers."""

    op: Operator[..., Any]
    samples: list[Sample]
    settings: tuple[Any, ...]

    def session(self) -> Session:
        """The session in this process."""
        rtol, atol, is_given, keeps = self.settings
        return Session(
            self.op, self.samples, rtol, atol, is_given=is_given, keeps_shapes=keeps
        )


def outline_of(session: Session) -> Outline:
    """A session in a form to send."""
    settings = (session.rtol, session.atol, session.is_given, session.keeps_shapes)
    return Outline(session.op, session.samples, settings)


def run_given(session: Session) -> float:
    """Begin, and run the user's own samples; the seconds that the slowest took."""
    session.begin()
    slowest = 0.0
    for sample in session.samples if session.is_given else ():
        start = perf_counter()
        with suppress(Exception):  # the checks report it
            session.expected(sample)
        slowest = max(slowest, perf_counter() - start)
    return slowest


# What the operator does with the samples, by sample; None for one that it refuses.
Effects: TypeAlias = list[list[Any] | None]


def effects_of(session: Session) -> Effects | None:
    """Effects of the operator on the user's own samples, if they can be compared."""
    if not session.is_given or session.op.sees_seed:
        return None
    return [_effects(session, sample) for sample in session.samples]


def _effects(session: Session, sample: Sample) -> list[Any] | None:
    try:
        return [leaf for _, leaf in session.expected(sample).effects]
    except Exception:  # noqa: BLE001  # the checks report it
        return None


def has_effects(session: Session, found: Effects | None) -> bool:
    """Whether the operator has these effects, of another process, in this one too."""
    return all(map(_agree, effects_of(session) or (), found or ()))


def _agree(first: list[Any] | None, second: list[Any] | None) -> bool:
    if first is None or second is None or len(first) != len(second):
        return False
    return all(map(same_bits, first, second))


def names_of(checks: Iterable[Check]) -> list[tuple[str, bool]]:
    """Checks in a form to send: names, and whether it is what they make up alone."""
    return [(check.name, check.is_rest) for check in checks]


def _checks_of(names: Iterable[tuple[str, bool]]) -> list[Check]:
    parts = [
        BY_NAME[name].rest if is_rest else BY_NAME[name].whole
        for name, is_rest in names
    ]
    return [part for part in parts if part is not None]


# ---- work for a child that was kept or spawned ----


def serve(send: Send, outline: Outline, names: Sequence[tuple[str, bool]]) -> None:
    """Run checks in a child that was kept, as long as they find nothing.

    All is sent at once, which takes a tenth of the time: `effects_of` the session, and the
    outcomes as plain tuples.
    """
    if not is_program_as_noted():
        return
    start_clock(PATIENCE)
    session = outline.session()
    found: list[tuple[Any, ...]] = []
    with watched(clock(PATIENCE)):
        patience = PATIENCE + CALLS * run_given(session)
        effects = effects_of(session)
    start_clock(patience)
    with watched(clock(patience)):
        for check in _checks_of(names):
            done = done_of(check, session, reported)
            if not isinstance(done.outcome, str):
                break
            found.append((*done,))
    send((effects, found))


def check_all(
    send: Send, outline: Outline, names: Sequence[tuple[str, bool]], patience: float
) -> None:
    """Run checks; send first the effects on the user's own samples, to compare them."""
    start_clock(patience)
    session = outline.session()
    with watched(clock(patience)):
        effects = effects_of(session)
    send((effects,))
    run_checks(send, session, _checks_of(names), patience)


def repeat(
    send: Send, outline: Outline, names: Sequence[tuple[str, bool]], patience: float
) -> None:
    """Run checks that have crashed again, and send each sample before it is used."""
    session = outline.session()
    with watched(telling(send, patience)):
        for check in _checks_of(names):
            done_of(check, session, reported)
