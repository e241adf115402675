"""opcheck checks everything an operator promises, and shows what it found."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import islice
from time import perf_counter
from typing import Any

from customop.arrays.convert import as_kind
from customop.arrays.kinds import CPU, has_data, has_device, is_array, kind_of
from customop.arrays.nested import describe, flat
from customop.config import config
from customop.core.dispatch import find_kernel
from customop.core.operator import Operator
from customop.core.samples import Sample, call_text
from customop.core.table import RuleTable
from customop.errors import ArgumentError, OpCheckError, did_you_mean, quoted
from customop.library.ops import OperatorPacket
from customop.pages.html import (
    Child,
    Element,
    badge,
    card,
    code,
    element,
    faint,
    fold,
    grid,
    in_notebook,
    mono,
    section,
    title,
)
from customop.progress import Progress, ProgressLines, check_channel, progress
from customop.testing.checks.check_jobs import BY_NAME, CHECKS, Done
from customop.testing.checks.check_runs import SUCCESS, WAIVED, Check
from customop.testing.checks.outcomes import found_samples, outcomes
from customop.testing.checks.session import KernelState, Session
from customop.testing.close import check_bounds
from customop.testing.inputs.input_patterns import registered_samples
from customop.testing.inputs.sample_values import WHOLE, map_arrays
from customop.testing.quiet import quieted, random_state_kept

# ---- opcheck: check every promise of an operator on inputs ----


def opcheck(
    op: RuleTable | OperatorPacket,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = "ALL",
    raise_exception: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    verbose: bool = False,
) -> OpCheckResult:
    """Check that an operator does what its schema, tags and rules promise.

    Parameters
    ----------
    op : Operator or OperatorPacket
        Of a packet, its only overload is checked.
    args : tuple, optional
        Arguments of a call. The checks run on them and on variations of them. Without
        `args` and `kwargs` inputs are those of ``register_sample_inputs``, or are found.
    kwargs : mapping, optional
        Arguments of the call by name.
    test_utils : str or sequence of str
        Names of checks; ``"ALL"`` for all of them, in their order.
    raise_exception : bool
        Whether the first fault raises; else the result has all of them.
    rtol, atol : float, optional
        How close results must be. Give both or none; the defaults are those of
        `assert_close`.
    verbose : bool
        Whether to show each check on standard error as it ends, and in a terminal what
        runs.

    Returns
    -------
    OpCheckResult
        Name of a check -> ``"SUCCESS"``, ``"SKIPPED: reason"``, ``"WAIVED: reason"`` for
        a fault that `Operator.waive` says is meant, or the exception.

    Raises
    ------
    OpCheckError
        If a check finds a fault. It names check, operator and argument, the smallest
        input found that shows it, and code that repeats it.
    ArgumentError
        If `op` is not an operator or is a packet of several, a check is unknown, `rtol`
        or `atol` is given alone or negative, or no input is found.
    MissingRuleError
        If the library that defined the operator is closed.

    Notes
    -----
    Names and arguments are those of ``torch.library.opcheck``, torch 2.13.

    Threads take turns, since warning filters and random states, which some checks
    compare, belong to the whole process.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::twice", mutates_args=())
    ... def twice(x: np.ndarray) -> np.ndarray:
    ...     return 2 * x
    >>> _ = twice.register_fake(lambda x: co.fake_like(x))
    >>> print(co.opcheck(twice, (np.ones(3),), test_utils=("test_schema", "test_jvp")))
    doc::twice
      test_schema  SUCCESS
      test_jvp     SKIPPED  no jvp rule, and no autograd rule to transpose

    All mistakes at once, in place of an error for the first one:

    >>> _ = twice.register_fake(lambda x: co.fake_like(x, (1,)), override=True)
    >>> result = co.opcheck(twice, (np.ones(3),), raise_exception=False)
    >>> "test_faketensor" in result.failed, result["test_mutation"]
    (True, 'SUCCESS')
    """
    __tracebackhide__ = True
    chosen = checks_named(test_utils)
    check_bounds("opcheck", rtol, atol)
    operator = _operator(op)
    found = OpCheckResult(operator.qualname)
    work = _done(operator, args, kwargs, chosen, rtol, atol, found.inputs)
    shown = _VerboseTable(found, chosen) if verbose else None
    line = shown or _line(found.op, len(chosen))
    with line, quieted(), closing(work) as all_done:
        for check, done in zip(
            chosen, _staged(all_done, found.op, chosen), strict=True
        ):
            outcome: str | OpCheckError = done.outcome
            waiver = operator.waivers.get(check.name)
            if isinstance(outcome, OpCheckError) and waiver and not done.has_crashed:
                found.waived[check.name] = outcome
                outcome = f"{WAIVED}: {waiver}"
            if shown is not None:
                shown.note(check, outcome, done)
            elif isinstance(line, Progress):
                line.advance()
            if isinstance(outcome, OpCheckError) and raise_exception:
                raise outcome.with_traceback(None) from outcome.__cause__
            found[check.name] = outcome
            found.seconds[check.name] = done.seconds
            if done.note:
                found.notes[check.name] = done.note
    return found


def _line(op: str, count: int) -> AbstractContextManager[Any]:
    """Return what shows a line in a terminal every two seconds, for slow kernels."""
    if check_channel.is_watched or not sys.stderr.isatty():
        return nullcontext()
    lines = ProgressLines(sys.stderr)
    return Progress(f"opcheck {op}", count, lines, check_channel)


def _staged(
    work: Generator[Done, None, None], op: str, checks: Sequence[Check]
) -> Iterator[Done]:
    """Yield the outcomes, and announce each check to those who watch."""
    for check in checks:
        if check_channel.is_watched:
            check_channel.stage(f"{op} {check.name}")
        yield next(work)
    # There are no more outcomes. Here the child is kept; closing would end it.
    yield from work


def _done(
    op: Operator[..., Any],
    args: tuple[Any, ...] | None,
    kwargs: Mapping[str, Any] | None,
    checks: Sequence[Check],
    rtol: float | None,
    atol: float | None,
    inputs: list[str],
) -> Generator[Done, None, None]:
    """Run the checks in order and yield their outcomes; add the calls to `inputs`."""
    began = perf_counter()
    is_call = args is not None or kwargs is not None
    start = None if is_call else KernelState(op)
    try:
        samples, is_given = (
            ([_given(op, args, kwargs)], True) if is_call else _samples(op, checks[0])
        )
    except OpCheckError as error:  # a crash during the search for inputs
        yield Done(error, 0.0)
        yield from [Done("SKIPPED: no inputs are found", 0.0)] * (len(checks) - 1)
        return
    how = {"is_given": is_given, "keeps_shapes": is_call, "begins_later": True}
    samples, note = (samples, "") if is_given else _fewer(op, samples)
    session = Session(op, samples, rtol, atol, start=start, began=began, **how)
    if not is_given and op.plans.patterns is not None:
        session.pace = op.plans.patterns.seconds_a_call
    running = outcomes(session, checks)
    for done in islice(running, 1):
        notes = [done.note, note] if done.outcome == SUCCESS else [done.note]
        yield done._replace(note="; ".join(filter(None, notes)))
    # Meanwhile the child process works.
    inputs += [call_text(op.qualname, sample) for sample in samples]
    yield from running


def _fewer(op: Operator[..., Any], samples: list[Sample]) -> tuple[list[Sample], str]:
    """Return fewer of the inputs that were found if the kernel is slow, and a note.

    A few inputs in all checks show more than many inputs in the first checks.
    """
    patterns = op.plans.patterns
    if patterns is None or not (
        patterns.was_slow or patterns.seconds_a_call * _CALLS > config.opcheck_seconds
    ):
        return samples, ""
    first = sorted(samples[:-1], key=_beside_two_axes)[:_INPUTS_OF_SLOW]
    few = [*first, samples[-1]]  # the largest shows what is done from some length on
    left_out = f"the kernel is slow: {len(few)} of {len(samples)} inputs are checked"
    return few, _FEW if patterns.was_slow else left_out


# About how many calls the checks need, and how many inputs a slow kernel keeps.
_CALLS, _INPUTS_OF_SLOW = 1000, 2
_FEW = "the kernel is slow: the search for inputs ended early, so there may be others"


def _beside_two_axes(sample: Sample) -> tuple[int, int]:
    """Return a key by which samples come first that show the most for their time."""
    values = [*sample.args, *sample.kwargs.values()]
    leaves = [leaf for value in values for leaf in flat(value)]
    more = max((leaf.ndim for leaf in leaves if is_array(leaf)), default=0) - 2
    return abs(more), more


def _samples(op: Operator[..., Any], check: Check) -> tuple[list[Sample], bool]:
    """Return inputs for an operator, and whether they were registered or found."""
    with random_state_kept():
        registered = registered_samples(op)
        return (registered, True) if registered else (found_samples(op, check), False)


class _VerboseTable:
    """Prints the table of the result line by line while the checks run."""

    def __init__(self, found: OpCheckResult, checks: Sequence[Check]) -> None:
        self._progress: Progress = progress(
            f"opcheck {found.op}", len(checks), channel=check_channel
        )
        self._width: int = max((len(check.name) for check in checks), default=0)
        self._title: str = found.op

    def __enter__(self) -> None:
        self._progress.__enter__()
        self._progress.line(self._title)

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._progress.__exit__(kind, *exc)

    def note(self, check: Check, outcome: str | OpCheckError, done: Done) -> None:
        """Write the line for a check."""
        state, text = _cells(outcome, done.note)
        line = f"  {check.name.ljust(self._width)}  {done.seconds:6.2f} s  {state}"
        self._progress.line(f"{line}  {text}".rstrip())
        self._progress.advance()


class OpCheckResult(dict[str, "str | Exception"]):
    """The outcome of `opcheck` for each check, in order.

    A value is ``"SUCCESS"``, ``"SKIPPED: reason"``, ``"WAIVED: reason"``, or an
    exception. It prints as a table.

    Attributes
    ----------
    op : str
        Qualified name of the operator.
    seconds : dict
        Name of a check -> how long it took.
    notes : dict
        Name of a check that succeeded -> what it could not prove.
    waived : dict
        Name of a check -> the fault found, which `Operator.waive` declares intended.
    inputs : list of str
        The calls that were checked, with their arrays in short. Variations of them were
        checked, too.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::halve", mutates_args=())
    ... def halve(x: np.ndarray) -> np.ndarray:
    ...     x *= 0.5
    ...     return x.copy()
    >>> _ = halve.register_fake(lambda x: co.fake_like(x))
    >>> checks = ("test_mutation", "test_faketensor")
    >>> found = co.opcheck(halve, (np.ones(3),), test_utils=checks, raise_exception=False)
    >>> found.failed, found["test_faketensor"], found.inputs
    (['test_mutation'], 'SUCCESS', ['doc::halve(f64[3])'])
    """

    def __init__(self, op: str) -> None:
        super().__init__()
        self.op = op
        self.inputs: list[str] = []
        self.seconds: dict[str, float] = {}
        self.notes: dict[str, str] = {}
        self.waived: dict[str, OpCheckError] = {}

    @property
    def failed(self) -> list[str]:
        """Names of the checks that found a fault."""
        return [name for name, found in self.items() if isinstance(found, Exception)]

    def __str__(self) -> str:
        rows = [
            (name, *_cells(found, self.notes.get(name, "")))
            for name, found in self.items()
        ]
        widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
        lines = [
            f"  {name.ljust(widths[0])}  {state.ljust(widths[1])}  {text}".rstrip()
            for name, state, text in rows
        ]
        return "\n".join([self.op, *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(result_html(self))


def _cells(found: str | Exception, note: str) -> tuple[str, str]:
    """Return the state and the text for a row of the table."""
    if isinstance(found, Exception):
        return "FAILED", str(found).splitlines()[0]
    state, _, reason = found.partition(": ")
    return state, reason or note


def status_of(found: str | Exception) -> tuple[str, str]:
    """Return status and text of a result: "passed", "failed", "skipped" or "waived"."""
    if isinstance(found, Exception):
        return "failed", str(found)
    state, _, reason = found.partition(": ")
    return _STATUSES[state], reason


_STATUSES = {SUCCESS: "passed", WAIVED: "waived", "SKIPPED": "skipped"}


# ---- what was asked for ----


def checks_in(text: str) -> list[Check]:
    """Return the checks that an option names: "a, b", or ``"ALL"``."""
    names = "ALL" if text == "ALL" else [name.strip() for name in text.split(",")]
    return checks_named(names, do="write names with commas between them, or ALL")


def checks_named(
    names: str | Sequence[str],
    do: str = 'write test_utils="test_schema", several in a tuple, or "ALL"',
) -> list[Check]:
    """Return the checks with these names, in the order of the table."""
    if names == "ALL":
        return list(CHECKS)
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in BY_NAME:
            near = did_you_mean(str(name), BY_NAME)
            raise ArgumentError(
                f"opcheck: no check is named {name!r}{near}",
                f"known: {quoted(BY_NAME)}",
                do=do,
            )
    return [check for check in CHECKS if check.name in wanted]


def _operator(op: object) -> Operator[..., Any]:
    if isinstance(op, OperatorPacket):
        names = op.overloads()
        if len(names) > 1:
            raise ArgumentError(
                f"opcheck: {op.qualname} has several overloads: {quoted(names)}",
                do="pass one of them: co.ops."
                f"{op.qualname.replace('::', '.')}.{names[0]}",
            )
        op = getattr(op, names[0])
    if not isinstance(op, Operator):
        raise ArgumentError(
            f"opcheck: {op!r} is not an operator",
            do="pass what custom_op returns, or co.ops.namespace.name.default",
        )
    if op.closed:
        raise op.closed_error()
    return op


def _given(
    op: Operator[..., Any],
    args: tuple[Any, ...] | None,
    kwargs: Mapping[str, Any] | None,
) -> Sample:
    """Return the call given to opcheck as a sample."""
    if args is not None and not isinstance(args, tuple | list):
        raise ArgumentError(
            f"opcheck: args is {type(args).__name__}, must be a tuple of arguments",
            do="write opcheck(op, (x,))",
        )
    sample = Sample(tuple(args or ()), dict(kwargs or {}))
    values = op.bind(*sample.args, **sample.kwargs)
    if WHOLE.issuperset(map(type, values)):  # the usual case: nothing to look for
        return sample
    for p, value in zip(op.schema.parameters, values, strict=True):
        for leaf in flat(value):
            if not has_data(leaf):
                raise ArgumentError(
                    f"opcheck: argument '{p.name}' is {describe(leaf)}, which has no"
                    " data",
                    do="pass arrays with data",
                )
    return _on_host(op, sample)


def _on_host(op: Operator[..., Any], sample: Sample) -> Sample:
    """Convert the sample to NumPy arrays if the operator has a kernel for them.

    test_kernels_agree then compares this kernel with those for other kinds.
    """
    if find_kernel(op, "cpu") is None:
        return sample
    return map_arrays(lambda v: as_kind(v, "cpu") if _is_foreign(v) else v, sample)


def _is_foreign(value: Any) -> bool:
    return has_device(value) and kind_of[type(value)] is not CPU


# ---- how notebooks and browsers show the result of `opcheck` ----

# Status of a check -> the tone of its badge.
TONES = {
    "passed": "good",
    "failed": "bad",
    "error": "bad",
    "skipped": "soft",
    "waived": "warn",
}


def result_html(result: OpCheckResult) -> str:
    """Return the HTML that a notebook shows for a result."""
    return in_notebook(result_card(result))


def result_card(result: OpCheckResult) -> Element:
    """Return a card with the checks of an operator, their results and inputs."""
    statuses = Counter(status_of(found)[0] for found in result.values())
    inputs = [[mono(text)] for text in result.inputs]
    blocks: list[Child] = [title(result.op, "opcheck", *counts(statuses))]
    blocks += _faults(result)
    rows = [_row(result, check) for check in result]
    table = grid(["check", "result", "remark", "time"], rows, numbers=[3])
    blocks.append(section("Checks", table))
    if inputs:
        note = f"{len(inputs)}; the checks vary them"
        blocks.append(fold("inputs", grid(["call"], inputs), note=note))
    return card(*blocks)


def counts(statuses: Counter[str]) -> list[Element]:
    """Return a badge with the count of each status that occurred."""
    return [badge(f"{statuses[s]} {s}", TONES[s]) for s in TONES if statuses[s]]


def _row(result: OpCheckResult, check: str) -> list[Child]:
    status, text = status_of(result[check])
    remark = text.partition("\n")[0] or result.notes.get(check, "")
    if status == "failed":
        remark = remark.removeprefix(f"{result.op}: ").removeprefix(f"{check}: ")
    seconds = result.seconds.get(check)
    time = "" if seconds is None else seconds_text(seconds)
    return [mono(check), badge(status, TONES[status]), remark, faint(time)]


def _faults(result: OpCheckResult) -> list[Element]:
    """Return a fold for each fault, with its whole text and code that repeats it."""
    failed = [_fault(check, result[check], "failed") for check in result.failed]
    pairs = result.waived.items()
    return failed + [_fault(check, error, "waived") for check, error in pairs]


def _fault(check: str, error: str | Exception, status: str) -> Element:
    name = element("span", mono(check), " ", badge(status, TONES[status]))
    return fold(name, code(str(error)), is_open=status == "failed")


def seconds_text(seconds: float) -> str:
    """Format a time in milliseconds or seconds."""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
