"""opcheck: every promise of an operator, proven on inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.convert import as_kind
from customop.arrays.describe import describe
from customop.arrays.kinds import CPU, has_data, has_device, kind_of
from customop.arrays.nested import flat
from customop.core.kernels import find_kernel
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import (
    ArgumentError,
    CustomOpError,
    OpCheckError,
    did_you_mean,
    quoted,
)
from customop.library.ops import OperatorPacket
from customop.testing import reproduce as reproduction
from customop.testing.checks import (
    agreement,
    batching,
    behaviour,
    contract,
    derivatives,
)
from customop.testing.checks.session import Session
from customop.testing.close import check_bounds
from customop.testing.fault import Fault
from customop.testing.inputs import find as inputs
from customop.testing.inputs import shrink as shrinking
from customop.testing.inputs.memory import map_arrays
from customop.testing.inputs.oracle import random_state_kept

__all__ = ["CHECKS", "Check", "OpCheckResult", "checks_named", "opcheck", "status_of"]


class Check(NamedTuple):
    """One row of the table of checks.

    Attributes
    ----------
    name : str
    says : str
        What an operator that passes keeps to, in a line.
    run : callable
        ``run(session, sample)``: raises `Fault`, or gives a reason where it proves
        nothing, or "".
    vary : callable, optional
        ``vary(session, sample)`` gives the samples to run on in place of each sample.
    over_all : callable, optional
        ``over_all(session)``, after all samples.
    for_all_kinds : bool
        Whether it runs on arrays of other kinds than NumPy's too.
    """

    name: str
    says: str
    run: Callable[[Session, Sample], str]
    vary: Callable[[Session, Sample], Iterable[Sample]] | None = None
    over_all: Callable[[Session], None] | None = None
    for_all_kinds: bool = False


CHECKS = (
    Check(
        "test_schema",
        "results fit the schema, its aliases and the tags",
        contract.check_schema,
        over_all=contract.check_views,
        for_all_kinds=True,
    ),
    Check(
        "test_mutation",
        "what mutates_args names is written, and nothing else",
        contract.check_mutation,
        over_all=contract.check_never_written,
    ),
    Check(
        "test_autograd_registration",
        "the gradient is a formula, which can be called",
        derivatives.check_autograd_registration,
    ),
    Check(
        "test_faketensor",
        "the fake kernel tells what the kernel returns",
        agreement.check_faketensor,
        for_all_kinds=True,
    ),
    Check(
        "test_sizes",
        "shapes depend on shapes, or a tag says that they do not",
        agreement.check_sizes,
    ),
    Check(
        "test_kernels_agree",
        "all kernels do the same",
        agreement.check_kernels_agree,
    ),
    Check("test_vmap", "the vmap rule is a loop over the rows", batching.check_vmap),
    Check("test_jvp", "tangents are those of the values", derivatives.check_jvp),
    Check(
        "test_gradients",
        "first and second gradients are those of the values",
        derivatives.check_gradients,
    ),
    Check(
        "test_layouts",
        "arrays may lie in memory as they like",
        agreement.check_layouts,
        vary=agreement.in_layouts,
    ),
    Check(
        "test_dtypes",
        "other dtypes are refused, or give the same numbers",
        agreement.check_dtypes,
        vary=agreement.in_dtypes,
    ),
    Check(
        "test_determinism",
        "equal inputs give equal results, in memory of their own",
        behaviour.check_determinism,
    ),
    Check(
        "test_out_variant",
        "what goes into out, or in place, is what is returned",
        contract.check_out_variant,
    ),
    Check(
        "test_pickle",
        "the operator and its config objects pickle and copy",
        behaviour.check_pickle,
    ),
    Check(
        "test_threads", "calls in other threads do not meet", behaviour.check_threads
    ),
)

SUCCESS = "SUCCESS"
_BY_NAME = {check.name: check for check in CHECKS}


class OpCheckResult(dict[str, "str | Exception"]):
    """What `opcheck` found: by name of the check, in order.

    A value is ``"SUCCESS"``, ``"SKIPPED: reason"``, or the exception that tells the
    fault. Printed, it is a table.

    Attributes
    ----------
    op : str
        Qualified name of the operator.
    seconds : dict
        Name of a check -> seconds that it took.
    notes : dict
        Name of a check that succeeds -> what it leaves open, for those that do.
    """

    def __init__(self, op: str) -> None:
        super().__init__()
        self.op = op
        self.seconds: dict[str, float] = {}
        self.notes: dict[str, str] = {}

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


def status_of(found: str | Exception) -> tuple[str, str]:
    """Status and text of a result: ``"passed"``, ``"failed"`` or ``"skipped"``."""
    if isinstance(found, Exception):
        return "failed", str(found)
    state, _, reason = found.partition(": ")
    return ("passed" if state == SUCCESS else "skipped"), reason


def _cells(found: str | Exception, note: str) -> tuple[str, str]:
    """State and text of a row of the table."""
    if isinstance(found, Exception):
        return "FAILED", str(found).splitlines()[0]
    state, _, reason = found.partition(": ")
    return state, reason or note


def opcheck(
    op: Any,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = "ALL",
    raise_exception: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
) -> OpCheckResult:
    """Check that an operator keeps what its schema, tags and rules promise.

    Parameters
    ----------
    op : Operator or OperatorPacket
        A packet stands for its only overload.
    args : tuple, optional
        Arguments of a call to check with, and with variations of them. Without them
        inputs are found by the schema, or are those of ``register_sample_inputs``.
    kwargs : mapping, optional
        Its arguments by name.
    test_utils : str or sequence of str
        Names of checks; ``"ALL"`` for all of them, in their order.
    raise_exception : bool
        Whether the first fault raises; else all are in the result.
    rtol, atol : float, optional
        How close results must be, both or none; by their dtypes by default, as
        `assert_close` has it.

    Returns
    -------
    OpCheckResult
        Name of a check -> ``"SUCCESS"``, ``"SKIPPED: reason"`` or the exception.

    Raises
    ------
    OpCheckError
        If a check finds a fault. It names check, operator and argument, the smallest
        input found that shows it, and code that repeats it.
    ArgumentError
        If `op` is no operator or a packet of several, a check is unknown, `rtol` or
        `atol` is given alone or negative, or no input is found that the operator takes.
    MissingRuleError
        If the library that defined the operator is closed.

    Notes
    -----
    Names and arguments are those of ``torch.library.opcheck``, torch 2.13.

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
    """
    __tracebackhide__ = True
    chosen = checks_named(test_utils)
    check_bounds("opcheck", rtol, atol)
    operator = _operator(op)
    found = OpCheckResult(operator.qualname)
    with _quiet():
        given = _given(operator, args, kwargs)
        session = Session(operator, given, rtol, atol)
        for check in chosen:
            start = perf_counter()
            outcome = _outcome(check, session)
            found.seconds[check.name] = perf_counter() - start
            if isinstance(outcome, OpCheckError) and raise_exception:
                raise outcome.with_traceback(None) from outcome.__cause__
            found[check.name] = outcome
            if outcome == SUCCESS and session.notes:
                found.notes[check.name] = session.notes[0]
    return found


# ---- what was asked for ----


def checks_named(names: str | Sequence[str]) -> list[Check]:
    """The checks of these names, in the order of the table."""
    if names == "ALL":
        return list(CHECKS)
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in _BY_NAME:
            near = did_you_mean(str(name), _BY_NAME)
            raise ArgumentError(
                f"opcheck: no check is named {name!r}{near}",
                f"known: {quoted(_BY_NAME)}",
                do='write test_utils="test_schema", several in a tuple, or "ALL"',
            )
    return [check for check in CHECKS if check.name in wanted]


def _operator(op: Any) -> Operator[..., Any]:
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
            f"opcheck: {op!r} is no operator",
            do="pass what custom_op returns, or co.ops.namespace.name.default",
        )
    if op.closed:
        raise op.closed_error()
    return op


def _given(
    op: Any, args: tuple[Any, ...] | None, kwargs: Mapping[str, Any] | None
) -> list[Sample]:
    """The samples to check on: the call given, or those that are found."""
    if args is None and kwargs is None:
        return inputs.base_samples(op)
    if args is not None and not isinstance(args, tuple | list):
        raise ArgumentError(
            f"opcheck: args is {type(args).__name__}, must be a tuple of arguments",
            do="write opcheck(op, (x,))",
        )
    sample = Sample(tuple(args or ()), dict(kwargs or {}))
    values = op.bind(*sample.args, **sample.kwargs)
    for p, value in zip(op.schema.parameters, values, strict=True):
        for leaf in flat(value):
            if not has_data(leaf):
                raise ArgumentError(
                    f"opcheck: argument '{p.name}' is {describe(leaf)}, without data of"
                    " its own",
                    do="pass arrays with data",
                )
    return [_on_host(op, sample)]


def _on_host(op: Any, sample: Sample) -> Sample:
    """The sample with NumPy's arrays, where the operator has a kernel for them.

    That its kernels for other kinds do the same is a check of its own.
    """
    if find_kernel(op, "cpu") is None:
        return sample
    return map_arrays(lambda v: as_kind(v, "cpu") if _is_foreign(v) else v, sample)


def _is_foreign(value: Any) -> bool:
    return has_device(value) and kind_of[type(value)] is not CPU


@contextmanager
def _quiet() -> Iterator[None]:
    """Let no warning of a kernel on odd inputs come through, and keep random state."""
    with random_state_kept(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


# ---- running a check ----


def _outcome(check: Check, session: Session) -> str | Exception:
    """What a check finds: success, why it proves nothing, or the fault."""
    reasons = []
    session.notes.clear()
    if not check.for_all_kinds and find_kernel(session.op, "cpu") is None:
        return "SKIPPED: the operator has no kernel for NumPy's arrays"
    for sample in _in_time(check, session):
        reason, error = _found_by(check, session, sample)
        if error is not None:
            return _fault(check, session, sample, error)
        reasons.append(reason)
    if check.over_all is not None and session.samples:
        try:
            check.over_all(session)
        except Exception as error:  # noqa: BLE001  # told as a fault of the operator
            return _told(check, session, session.samples[0], error)
    if not all(reasons):
        return SUCCESS
    return f"SKIPPED: {reasons[0] if reasons else 'no array to vary'}"


# Seconds after which a check goes to no further sample. Only kernels that take a tenth
# of a second meet it: checks of faster ones end in 0.1 s.
_SECONDS = 5.0


def _in_time(check: Check, session: Session) -> Iterator[Sample]:
    """The samples that a check runs on, until its time is over."""
    end = perf_counter() + _SECONDS
    for count, sample in enumerate(_varied(check, session)):
        if count and perf_counter() > end:
            session.notes.append(
                f"the kernel is slow: stopped after {_SECONDS:g} s, at input {count}"
            )
            return
        yield sample


def _varied(check: Check, session: Session) -> Iterator[Sample]:
    for sample in session.samples:
        yield from [sample] if check.vary is None else check.vary(session, sample)


def _found_by(
    check: Check, session: Session, sample: Sample
) -> tuple[str, Exception | None]:
    try:
        return check.run(session, sample), None
    except Exception as error:  # noqa: BLE001  # told as a fault of the operator
        return "", error


def _fault(
    check: Check, session: Session, sample: Sample, error: Exception
) -> Exception:
    """The error for a fault, at the smallest input that shows it."""

    def found(other: Sample) -> Exception | None:
        own = Session(session.op, [other], session.rtol, session.atol)
        seen = _found_by(check, own, other)[1]
        return seen if seen is not None and _is_alike(error, seen) else None

    def fails(other: Sample) -> bool:
        return found(other) is not None

    smallest = shrinking.shrink(session.op, sample, fails)
    again = found(smallest)
    if again is None:  # as chance has it: told as it was first seen
        return _told(check, session, sample, error)
    return _told(check, session, smallest, again)


def _is_alike(error: Exception, other: Exception) -> bool:
    """Whether two faults are one: of a class, of one parameter, in one respect."""
    fields = ("parameter", "kind")
    return (
        type(other) is type(error)
        and _respect(error) == _respect(other)
        and all(
            getattr(error, name, None) == getattr(other, name, None) for name in fields
        )
    )


def _respect(error: Exception) -> str:
    """In what a result and its fake differ, as in ``"they differ in shape"``."""
    said = (getattr(error, "where", None) or ("",))[0].partition(";")[0]
    return said if said.startswith("they differ in") else ""


def _told(
    check: Check, session: Session, sample: Sample, error: Exception
) -> OpCheckError:
    """A fault in words: check, operator, argument, input, and how to repeat it."""
    op = session.op
    what, where, do, parameter = _words(op, error)
    script = reproduction.repro(op, sample, check.name)
    told = OpCheckError(
        f"{op.qualname}: {check.name}: {what}",
        op.schema.show(op.qualname, parameter),
        *where,
        "input:",
        *_indented(reproduction.show_sample(op, sample)),
        "to repeat it:",
        *_indented(script),
        do=do,
        op=op.qualname,
        parameter=parameter or None,
        kind=check.name,
    )
    told.sample = sample
    told.repro = script
    told.__cause__ = error.__cause__ if isinstance(error, Fault) else error
    return told


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" for line in text.splitlines() if line)


def _words(op: Any, error: Exception) -> tuple[str, tuple[str, ...], str, str]:
    """What, where, what to do, and the parameter, of any error."""
    if isinstance(error, Fault):
        return error.what, error.where, error.do, error.parameter
    if isinstance(error, CustomOpError):
        shown = op.schema.show(op.qualname)
        where = tuple(line for line in error.where if not line.startswith(shown))
        what = error.what.removeprefix(f"{op.qualname}: ")
        return what, where, error.do, error.parameter or ""
    return (
        f"raises {type(error).__name__}: {error}",
        (_raised_at(error),),
        "make it accept this input, or refuse it where the kernel does",
        "",
    )


def _raised_at(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    return f"at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
