"""The table of checks, and the code of the child process that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

from customop.arrays.nested import children
from customop.core.builtin_kinds import AUTOGRAD, JVP, VMAP
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.core.table import RuleTable
from customop.errors import OpCheckError
from customop.schema.tags import Tag
from customop.testing.checks import (
    behavior_checks,
    contract_checks,
    derivative_checks,
    length_checks,
    memory_checks,
    precision_checks,
    smooth,
    transform_checks,
    variation_checks,
)
from customop.testing.checks.check_runs import (
    SUCCESS,
    Check,
    Effort,
    Report,
    at_smallest,
    outcome_of,
    reported,
)
from customop.testing.checks.session import (
    Session,
    is_program_as_noted,
    note_program,
    same_bits,
)
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import Array, arrays_in
from customop.testing.inputs.variations import has_large_numbers
from customop.testing.processes.child import (
    Crash,
    Send,
    begin_clock,
    is_spawned,
    packed,
    start_clock,
    unpacked,
)
from customop.testing.quiet import Clock, Watcher, watched

# ---- the table of checks ----


def _always(op: RuleTable) -> bool:
    return True


CHECKS: Final = (
    Check(
        "test_schema",
        contract_checks.check_schema,
        over_all=contract_checks.check_views,
        for_all_kinds=True,
        as_given=contract_checks.halves_nothing,
        effort=Effort(2, finds=22),
    ),
    Check(
        "test_mutation",
        contract_checks.check_mutation,
        over_all=contract_checks.check_never_written,
        as_given=_always,
        made_up=memory_checks.check_surroundings,
        effort=Effort(2, 5, finds=17),
    ),
    Check(
        "test_autograd_registration",
        transform_checks.check_autograd_registration,
        as_given=_always,
        made_up=transform_checks.check_short_floats,
        rule=AUTOGRAD,
        effort=Effort(1, 4, finds=8),
    ),
    Check(
        "test_faketensor",
        contract_checks.check_faketensor,
        for_all_kinds=True,
        as_given=_always,
        effort=Effort(1, finds=19),
    ),
    Check(
        "test_sizes",
        contract_checks.check_sizes,
        over_all=length_checks.check_long_arrays,
        effort=Effort(4, finds=8),
    ),
    Check(
        "test_kernels_agree",
        contract_checks.check_kernels_agree,
        as_given=_always,
        made_up_values=contract_checks.special_values,
        effort=Effort(0, finds=16),
    ),
    Check(
        "test_vmap",
        transform_checks.check_vmap,
        vary=transform_checks.in_lengths,
        rule=VMAP,
        effort=Effort(22, finds=20),
    ),
    Check(
        "test_jvp",
        derivative_checks.check_jvp,
        vary=partial(smooth.at_special_values, JVP),
        rule=JVP,
        effort=Effort(16, finds=11),
    ),
    Check(
        "test_gradients",
        derivative_checks.check_gradients,
        vary=partial(smooth.at_special_values, AUTOGRAD),
        rule=AUTOGRAD,
        effort=Effort(20, finds=40),
    ),
    Check(
        "test_aot_dispatch_static",
        behavior_checks.check_static,
        as_given=_always,
        effort=Effort(3, finds=4),
    ),
    Check(
        "test_aot_dispatch_dynamic",
        behavior_checks.check_dynamic,
        as_given=_always,
        effort=Effort(1, finds=5),
    ),
    Check(
        "test_layouts",
        variation_checks.check_layouts,
        vary=variation_checks.in_layouts,
        effort=Effort(10, finds=14),
    ),
    Check(
        "test_dtypes",
        variation_checks.check_dtypes,
        vary=variation_checks.in_dtypes,
        over_all=precision_checks.check_precision,
        effort=Effort(20, finds=19),
    ),
    Check(
        "test_determinism",
        behavior_checks.check_determinism,
        over_all=behavior_checks.check_generators,
        effort=Effort(4, finds=17),
    ),
    Check(
        "test_out_variant",
        contract_checks.check_out_variant,
        as_given=_always,
        effort=Effort(0, finds=7),
    ),
    Check(
        "test_pickle",
        behavior_checks.check_pickle,
        as_given=_always,
        effort=Effort(0, finds=2),
    ),
    Check(
        "test_threads",
        behavior_checks.check_threads,
        effort=Effort(5, finds=5),
    ),
)

BY_NAME: Final = {check.name: check for check in CHECKS}


# ---- work in a child process ----
# It runs checks, and runs crashed checks again to see where they crash.


# Seconds that a child may take for one sample. A compiler in it may take half a minute.
PATIENCE = 60.0
# The most calls of the operator for one sample. The patience allows for all of them.
CALLS = 1000


class Done(NamedTuple):
    """The outcome of a check.

    Attributes
    ----------
    outcome : str or OpCheckError
    seconds : float
        How long it took.
    note : str
        For a success: what it could not prove.
    has_crashed : bool
        Whether the kernel ended the process.
    has_overwritten : bool
        Whether the kernel wrote outside of its arrays, so that later checks would not
        find the same in each run.
    """

    outcome: str | OpCheckError
    seconds: float
    note: str = ""
    has_crashed: bool = False
    has_overwritten: bool = False


def done_of(check: Check, session: Session, report: Report) -> Done:
    """Run a check and return its outcome, with how long it took."""
    start = perf_counter()
    is_waived = check.name in session.op.waivers
    outcome = outcome_of(check, session, reported if is_waived else report)
    notes = [_needless(check)] * is_waived + session.notes
    note = notes[0] if outcome == SUCCESS and notes else ""
    seconds = perf_counter() - start
    return Done(outcome, seconds, note, has_overwritten=session.has_overwritten)


def _needless(check: Check) -> str:
    return f"the waiver is not needed: remove waive({check.name!r}, ...)"


def both(done: Done, rest: Done) -> Done:
    """Combine the outcomes of the two parts of a check; the first part decides."""
    seconds = done.seconds + rest.seconds
    is_fault = isinstance(rest.outcome, OpCheckError)
    worse = rest if is_fault and isinstance(done.outcome, str) else done
    note = worse.note or rest.note if worse.outcome == SUCCESS else ""
    has_overwritten = done.has_overwritten or rest.has_overwritten
    return worse._replace(seconds=seconds, note=note, has_overwritten=has_overwritten)


def clock(patience: float) -> Watcher:
    """Return a watcher that gives each call this many seconds, or less; see `Clock`."""
    return Clock(begin_clock, patience)


def telling(send: Send, patience: float) -> Watcher:
    """Return a watcher that sends each sample, because the child may crash on it."""

    def tell(sample: Callable[[], Sample]) -> None:
        start_clock(patience)
        with suppress(Exception):  # whatever the __reduce__ of an argument raises
            send(sample())

    return tell


# ---- sending outcomes ----


def send_done(send: Send, done: Done, *, is_last: bool) -> None:
    """Send an outcome, and the cause of its error, which pickle leaves out."""
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
    """Return samples and all values in them, which a child sends by address."""
    found: list[Any] = list(samples)
    for sample in samples:
        left = [*sample.args, *sample.kwargs.values()]
        for value in left:
            left += children(value) or ()
        found += left
    return found


def received(done: Done, cause: tuple[BaseException, str] | None) -> Done:
    """Rebuild an outcome that `send_done` sent."""
    if cause is not None and not isinstance(done.outcome, str):
        done.outcome.__cause__ = unpacked(*cause)
    return done


def run_checks(
    send: Send,
    session: Session,
    checks: Iterable[Check],
    patience: float,
    *,
    is_new: bool = True,
) -> None:
    """Send outcomes of checks; send a fault at once, then at its smallest input.

    A child that is not new ends at a fault, which another one will find again.
    """

    def report(*found: Any) -> OpCheckError:
        first = Done(reported(*found), 0.0, has_overwritten=session.has_overwritten)
        send_done(send, first, is_last=False)
        return at_smallest(*found)

    note_program()
    start_clock(patience)
    checks = list(checks)
    with watched(clock(patience)):
        session.plan(check.cost(session.op) for check in checks)
        for check in checks:
            done = done_of(check, session, report if is_new else reported)
            if not is_new and not isinstance(done.outcome, str):
                return
            send_done(send, done, is_last=True)


# ---- the effects on the user's samples, to compare processes ----


def run_given(session: Session) -> float:
    """Begin the session and run the user's own samples; return the slowest time."""
    session.begin()
    slowest = 0.0
    for sample in session.samples if session.is_given else ():
        start = perf_counter()
        with suppress(Exception):  # the checks report it
            session.expected(sample)
        slowest = max(slowest, perf_counter() - start)
    session.pace = max(session.pace, slowest)
    return slowest


# For each sample, the effects of the operator; None if it refuses the sample.
Effects: TypeAlias = list[list[Any] | None]


def effects_of(session: Session) -> Effects | None:
    """Return the effects of the operator on the user's own samples, if comparable."""
    if not session.is_given or session.op.sees_seed:
        return None
    return [_effects(session, sample) for sample in session.samples]


def _effects(session: Session, sample: Sample) -> list[Any] | None:
    try:
        return [leaf for _, leaf in session.expected(sample).effects]
    except Exception:  # noqa: BLE001  # the checks report it
        return None


def has_effects(session: Session, found: Effects | None) -> bool:
    """Return whether the operator has the same effects here as in another process."""
    return all(map(_agree, effects_of(session) or (), found or ()))


def _agree(first: list[Any] | None, second: list[Any] | None) -> bool:
    if first is None or second is None or len(first) != len(second):
        return False
    return all(map(same_bits, first, second))


def names_of(checks: Iterable[Check]) -> list[tuple[str, bool]]:
    """Return the names of checks to send, each with whether it is only the rest."""
    return [(check.name, check.is_rest) for check in checks]


def checks_of(names: Iterable[tuple[str, bool]]) -> list[Check]:
    """Return the checks of the table that `names_of` has named."""
    parts = [
        BY_NAME[name].rest if is_rest else BY_NAME[name].whole
        for name, is_rest in names
    ]
    return [part for part in parts if part is not None]


# ---- work for a reused or spawned child ----


def serve(
    send: Send,
    session: Session,
    names: Sequence[tuple[str, bool]],
    patience: float,
    is_new: bool,
) -> None:
    """Run checks; before that, send the effects on the user's own samples.

    Without a patience, it follows from the time of these samples.
    """
    if not (is_new or is_spawned() or is_program_as_noted()):
        return
    start_clock(patience or PATIENCE)
    with watched(clock(patience or PATIENCE)):
        patience = patience or PATIENCE + CALLS * run_given(session)
        send((effects_of(session),))
    run_checks(send, session, checks_of(names), patience, is_new=is_new)


def repeat(
    send: Send, session: Session, names: Sequence[tuple[str, bool]], patience: float
) -> None:
    """Run crashed checks again, and send each sample before it is used."""
    with watched(telling(send, patience)):
        for check in checks_of(names):
            done_of(check, session, reported)


# ---- the fault of an operator that ends its process ----


def crash_fault(
    op: Operator[..., Any], crash: Crash, sample: Sample, usual: Sample | None
) -> Fault:
    """Return the fault for a crash, with advice on how to refuse such arguments.

    Parameters
    ----------
    op : Operator
    crash : Crash
    sample : Sample
        The last sample before the crash.
    usual : Sample or None
        A sample that the operator takes.
    """
    new = {p: x for p, x, _ in arrays_in(op, sample)}
    old = {} if usual is None else {p: x for p, x, _ in arrays_in(op, usual)}
    on = ", ".join(f"'{place}' of shape {x.shape}" for place, x in new.items())
    changed = [p for p in new if p in old and _outline(new[p]) != _outline(old[p])]
    remedy = memory_checks.REMEDIES.get(sample.note)
    if remedy is not None:
        on, changed = f"{on} {sample.note}", list(new)
    return Fault(
        f"the kernel {crash.how}{on and f' on {on}'}",
        *crash.lines,
        do=remedy or _advice(op, new, old),
        parameter=changed[0] if len(changed) == 1 else "",
    )


def left_out(
    op: Operator[..., Any], crash: Crash, sample: Sample, usual: Sample
) -> str:
    """Return the outcome where a kernel is too slow for a check; empty elsewhere.

    The check has made the arrays long, or the numbers large: that the kernel did not end
    shows nothing but how its time grows.
    """
    is_large = has_large_numbers(op, sample)
    if not crash.hangs or not (is_large or length_checks.is_long(op, sample, usual)):
        return ""
    what = crash_fault(op, crash, sample, None).what
    return f"SKIPPED: {what}: it is too slow for {'large numbers' if is_large else 'long arrays'}"


_REFUSE = "raise a ValueError in the kernel for arguments that it does not take"


def _advice(
    op: Operator[..., Any], new: Mapping[str, Array], old: Mapping[str, Array]
) -> str:
    """Return advice on how to keep such arrays from the kernel."""
    names = {p.name for p in op.schema.parameters}
    shared = [place for place in new if place in old and place in names]
    changed = [p for p in shared if _outline(new[p]) != _outline(old[p])]
    if changed:
        letters = _letters([old[p] for p in shared])
        types = [f"{_type(new[p], old[p], letters)} {p}" for p in changed]
        return f"{_REFUSE}, or say in the schema what it takes: {', '.join(types)}"
    if any(new[p].strides != old[p].strides for p in shared):
        return f"tag the operator with {Tag.needs_contiguous}, or use the strides"
    return f"{_REFUSE}, and keep to the memory of its arrays"


def _outline(x: Array) -> tuple[Any, ...]:
    return x.shape, x.dtype


def _letters(arrays: Sequence[Array]) -> dict[int, str]:
    """Return a letter for each length that occurs."""
    lengths = dict.fromkeys(n for x in arrays for n in x.shape)
    return dict(zip(lengths, "nmkpqrst", strict=False))


def _type(new: Array, old: Array, letters: Mapping[int, str]) -> str:
    """Return a schema type that fits the old array only, such as ``float64[n+1,m]``."""
    element = "Array" if new.dtype == old.dtype else old.dtype.name
    if new.shape == old.shape:
        return f"{element}[...]"
    if 0 in new.shape and len(new.shape) != len(old.shape):
        named = zip(new.shape, "nmkpqrst", strict=False)
        text = ",".join(name if length else f"{name}+1" for length, name in named)
        return f"{element}[{text}]"
    axes = [letters.get(n, str(n)) for n in old.shape]
    if len(new.shape) == len(axes):
        pairs = enumerate(zip(new.shape, old.shape, strict=True))
        for i, (length, usual) in pairs:
            if length != usual:
                axes[i] = str(usual) if length else f"{axes[i]}+1"
    text = ",".join(axes)
    # A single number would mean the length of a list.
    return (
        f"{element}[{text}{',' if text.isdigit() else ''}]"
        if text
        else f"{element}[()]"
    )
