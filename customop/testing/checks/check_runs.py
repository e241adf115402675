"""Run a check over its samples, and report a fault at the smallest input."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from customop.arrays.nested import abbreviated
from customop.arrays.python_text import PythonText
from customop.core.dispatch import find_kernel
from customop.core.operator import Operator
from customop.core.rule_kind import RuleKind, is_interactive
from customop.core.samples import Sample
from customop.errors import CustomOpError, NoDerivativeError, OpCheckError
from customop.testing.checks.contract_checks import variants_of
from customop.testing.checks.definition_text import NoTextError, definition_text
from customop.testing.checks.session import CheckCost, Session
from customop.testing.checks.smooth import parameter_of, without_derivative
from customop.testing.faults import Fault
from customop.testing.inputs.shrink import shrink
from customop.testing.quiet import Allowance, OutOfTimeError, about_to_run

# ---- a check and its outcome ----

SUCCESS = "SUCCESS"
WAIVED = "WAIVED"


class Effort(NamedTuple):
    """About how many calls of the operator a check makes for one array, and its worth.

    Attributes
    ----------
    calls, made_up : int
        Calls of the check, and more of its made-up part.
    finds : int
        How many faults it finds of those in the tests, about: slow kernels have time
        for the checks first that find most in their calls.
    """

    calls: int
    made_up: int = 0
    finds: int = 0


class Check(NamedTuple):
    """One row of the table of checks.

    Attributes
    ----------
    name : str
    run : callable
        ``run(session, sample)`` raises for a fault. It returns "", or a reason if it
        could prove nothing.
    vary : callable, optional
        ``vary(session, sample)`` gives the samples that replace each sample.
    over_all : callable, optional
        ``over_all(session)`` runs after all samples.
    for_all_kinds : bool
        Whether it also runs on arrays of other kinds than NumPy's.
    as_given : callable
        ``as_given(op)`` says whether the check calls the operator only with the arrays
        of the samples, or equal ones, and makes up no other values, shapes, layouts or
        dtypes. Then it runs in this process if the samples are the user's. Everything
        else runs in a child.
    made_up : callable, optional
        ``made_up(session, sample)`` runs after `run`, always in a child. It does the
        part of the check that makes up inputs.
    made_up_values : callable, optional
        ``made_up_values(session, sample)`` gives more samples for `run`, always in a
        child.
    is_rest : bool
        Whether this is only the made-up part of another check.
    effort : Effort
    rule : str, optional
        The kind of rule without which the check makes no calls.
    """

    name: str
    run: Callable[[Session, Sample], str]
    vary: Callable[[Session, Sample], Iterable[Sample]] | None = None
    over_all: Callable[[Session], None] | None = None
    for_all_kinds: bool = False
    as_given: Callable[[Operator[..., Any]], bool] = lambda op: False
    made_up: Callable[[Session, Sample], str] | None = None
    made_up_values: Callable[[Session, Sample], Iterable[Sample]] | None = None
    is_rest: bool = False
    effort: Effort = Effort(1)
    rule: RuleKind | None = None

    def __hash__(self) -> int:
        return hash(self.name)  # hashing all fields takes as long as a call

    def cost(self, op: Operator[..., Any]) -> CheckCost:
        """Return how many calls it makes for one input of an operator, about."""
        is_needed = self.rule is None or op.find_rule(self.rule) is not None
        calls = self.effort.calls if is_needed else 0
        return CheckCost(calls, self.effort.finds / max(calls, 1))

    @property
    def whole(self) -> Check:
        """The check, including the part on made-up inputs."""
        return _whole(self)

    @property
    def rest(self) -> Check | None:
        """The part of the check on made-up inputs, or None."""
        return _rest(self)


@cache
def _whole(check: Check) -> Check:
    run, made_up, values = check.run, check.made_up, check.made_up_values
    calls, more, finds = check.effort
    effort = Effort(calls + more, finds=finds)
    found = check._replace(made_up=None, made_up_values=None, effort=effort)
    if made_up is not None:
        return found._replace(run=lambda s, x: run(s, x) or made_up(s, x))
    if values is not None:
        return found._replace(vary=lambda s, x: chain([x], values(s, x)))
    return check


@cache
def _rest(check: Check) -> Check | None:
    if check.made_up is None and check.made_up_values is None:
        return None
    return check._replace(
        run=check.made_up or check.run,
        vary=check.made_up_values,
        over_all=None,
        made_up=None,
        made_up_values=None,
        is_rest=True,
        effort=Effort(check.effort.made_up, finds=check.effort.finds),
    )


# Makes the error for a fault on a sample, at a smaller sample if there is one.
Report: TypeAlias = Callable[[Check, Session, Sample, Exception], OpCheckError]


def outcome_of(check: Check, session: Session, report: Report) -> str | OpCheckError:
    """Run a check; return success, the reason why it proves nothing, or the fault."""
    reasons = []
    session.notes[:] = [session.left_out] * bool(session.left_out)
    if not check.for_all_kinds and find_kernel(session.op, "cpu") is None:
        return "SKIPPED: the operator has no kernel for NumPy's arrays"
    try:
        with session.timed(check.cost(session.op)):
            for sample in _samples_of(check, session):
                reason, error = _found_by(check, session, sample)
                if error is not None:
                    break
                reasons.append(reason)
            else:
                sample, error = session.samples[0], _found_over_all(check, session)
    except OutOfTimeError as error:
        stopped = f"the kernel is slow: {str(error) or _stopped(len(reasons))}"
        if not reasons:
            return f"SKIPPED: {stopped}"
        session.notes.insert(0, stopped)  # says more than that inputs are left out
    else:
        if error is not None:
            return report(check, session, sample, error)
    if not all(reasons):
        return SUCCESS
    return f"SKIPPED: {reasons[0] if reasons else 'no array to vary'}"


def _samples_of(check: Check, session: Session) -> Iterator[Sample]:
    """Yield the samples that a check runs on."""
    for given in session.samples:
        session.check_time()
        if check.vary is None or not session.has_room(given):
            yield given
            continue
        for sample in check.vary(session, given):
            if sample is not given:
                session.check_time()
            yield sample
            if sample is not given:
                session.forget(sample)


def _stopped(count: int) -> str:
    """Say where a check has stopped, and what it has left out."""
    return (
        f"stopped within input {count + 1} of its inputs; those after it are left out"
    )


def _found_over_all(check: Check, session: Session) -> Exception | None:
    """Run the part of a check that comes after all samples."""
    if check.over_all is None or not session.samples:
        return None
    try:
        check.over_all(session)
    except Exception as error:  # noqa: BLE001  # reported as a fault
        if isinstance(error, Fault):
            error.over_all = True
        return error
    return None


def _found_by(
    check: Check, session: Session, sample: Sample
) -> tuple[str, Exception | None]:
    about_to_run(lambda: sample)
    try:
        return check.run(session, sample), None
    except NoDerivativeError as error:
        return _found_without(check, session, sample, error)
    except Exception as error:  # noqa: BLE001  # reported as a fault
        return "", error


def _found_without(
    check: Check, session: Session, sample: Sample, error: NoDerivativeError
) -> tuple[str, Exception | None]:
    """Run a check again without the arguments by which there is no derivative."""
    try:
        fixed = without_derivative(session, sample)
        if not fixed:
            return "", error
        names = " and ".join(f"'{place}'" for place in fixed)
        reason = f"no derivative by {names}: {next(iter(fixed.values()))}"
        if fixed.keys() >= session.floats(session.bound(sample)).keys():
            return reason, None
        with session.without(fixed):
            found = check.run(session, sample)
    except Exception as other:  # noqa: BLE001  # reported as a fault
        return "", other
    session.notes.append(reason)
    return found, None


# ---- the smallest input ----

# How many seconds of work the search for it may take.
_TO_SHRINK = 2.5


def at_smallest(
    check: Check, session: Session, sample: Sample, error: Exception
) -> OpCheckError:
    """Return the error for a fault at the smallest input that shows it."""
    if isinstance(error, Fault) and error.over_all:  # no sample alone shows it
        return reported(check, session, sample, error)
    is_taken = session.accepts(sample)
    allowed = Allowance(_TO_SHRINK)

    def found(other: Sample) -> Exception | None:
        own = Session(
            session.op, [other], session.rtol, session.atol, start=session.start
        )
        own.allowed = allowed
        try:
            return seen_by(own, other)
        except OutOfTimeError:
            return None

    def seen_by(own: Session, other: Sample) -> Exception | None:
        if is_taken and not own.accepts(other):
            return None  # the operator refuses this input, which would be another fault
        seen = _found_by(check, own, other)[1]
        return seen if seen is not None and _is_same_fault(error, seen) else None

    smallest = shrink(
        session.op,
        sample,
        lambda other: found(other) is not None,
        allowed=allowed,
    )
    was_slow, allowed = allowed.was_over, Allowance(_TO_SHRINK)
    again = found(smallest)
    if again is None:  # the fault comes and goes: report it as first seen
        smallest, again = sample, error
    if was_slow and isinstance(again, Fault):
        again.where += (_SLOW,)
    in_call = _shows_in_call(check, session, smallest, allowed)
    return reported(check, session, smallest, again, in_call=in_call)


def _shows_in_call(
    check: Check, session: Session, sample: Sample, allowed: Allowance
) -> bool:
    """Return whether the check finds a fault where this call alone is given to it."""
    own = Session(
        session.op,
        [sample],
        session.rtol,
        session.atol,
        keeps_shapes=True,
        start=session.start,
    )
    own.allowed = allowed
    try:
        return any(
            _found_by(check, own, other)[1] is not None
            for other in _samples_of(check, own)
        )
    except OutOfTimeError:
        return True
    except Exception:  # noqa: BLE001  # a sample that it refuses: the script raises it
        return True


_SLOW = (
    f"the kernel is slow: a smaller input was sought for {_TO_SHRINK:g} s, and there"
    " may be one"
)


def _is_same_fault(error: Exception, other: Exception) -> bool:
    return type(other) is type(error) and _identity(error) == _identity(other)


def _identity(error: Exception) -> tuple[Any, ...]:
    """Return the parts of an error that tell whether two faults are the same."""
    first = (getattr(error, "where", None) or ("",))[0].partition(";")[0]
    return (
        getattr(error, "parameter", None),
        getattr(error, "kind", None),
        first if first.startswith("they differ in") else "",
    )


# ---- the report ----


def reported(
    check: Check,
    session: Session,
    sample: Sample,
    error: Exception,
    *,
    in_call: bool = True,
) -> OpCheckError:
    """Return the error for a fault, with its input and a script to repeat it.

    If the check of this call alone does not show the fault, the script has the inputs
    that opcheck began with.
    """
    op = session.op
    fault = _as_fault(op, error)
    given = sample if in_call and not fault.over_all else None
    if given is None and session.keeps_shapes:
        given = session.samples[0]
    script = repro(op, given, check.name)
    made = op.error(
        OpCheckError,
        f"{check.name}: {fault.what}",
        *fault.where,
        "input:",
        *_indented(show_sample(op, sample)),
        "to repeat it:",
        *_indented(script),
        do=fault.do,
        parameter=fault.parameter or _concerned(check, op, sample),
        kind=check.name,
    )
    made.sample = sample
    made.repro = script
    made.__cause__ = error.__cause__ if isinstance(error, Fault) else error
    return made


# Checks of what an operator does with its arguments.
_OF_ARGUMENTS = {
    "test_faketensor",
    "test_kernels_agree",
    "test_vmap",
    "test_layouts",
    "test_dtypes",
    "test_determinism",
}


def _concerned(check: Check, op: Operator[..., Any], sample: Sample) -> str:
    """Return the argument that a fault is about: the one varied, or the only array."""
    if check.name not in _OF_ARGUMENTS:
        return ""
    named = re.findall(r"'([^']+)'", sample.note)
    if named:
        return parameter_of(named[0])
    slots = op.array_slots
    return op.schema.parameters[slots[0]].name if len(slots) == 1 else ""


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines() if line]


def _as_fault(op: Operator[..., Any], error: Exception) -> Fault:
    if isinstance(error, Fault):
        return error
    if isinstance(error, CustomOpError):
        shown = op.schema.show(op.qualname)
        where = [line for line in error.where if not line.startswith(shown)]
        what = error.what.removeprefix(f"{op.qualname}: ")
        return Fault(what, *where, do=error.do, parameter=error.parameter or "")
    return Fault(
        f"raises {type(error).__name__}: {error}",
        _raised_at(error),
        do="make it accept this input, or refuse it where the kernel does",
    )


def _raised_at(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    return f"at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


# ---- a sample as text: a line for each argument, or a script that repeats a check ----


def repro(op: Operator[..., Any], sample: Sample | None, check: str = "") -> str:
    """Return a script that repeats a check of an operator on a sample.

    Parameters
    ----------
    op : Operator
    sample : Sample or None
        None for the inputs that opcheck takes by itself.
    check : str
        Name of the check, for `test_utils`. Without it the script calls the operator.

    Returns
    -------
    str
        A script that runs where the operator's module can be imported. Arrays keep
        dtype, strides, order and the writeable flag.
    """
    script = PythonText()
    call = f"co.testing.opcheck(\n    {_target(op)},\n    test_utils={check!r},\n)"
    if sample is not None:
        args = tuple(
            script.value(value, name)
            for value, name in zip(sample.args, _names(op, sample), strict=True)
        )
        named = {
            name: script.value(value, name) for name, value in sample.kwargs.items()
        }
        call = _call_text(op, args, named, check)
    if check:
        script.needs("import customop.testing")
    # Without arguments opcheck takes the registered inputs, if there are any.
    first = _definition(op, script, check, with_samples=sample is None)
    parts = [*_import_blocks(script), "\n".join(script.lines), first, call]
    return "\n\n".join(part for part in parts if part) + "\n"


_FUTURE = "from __future__ import annotations"
_STANDARD = (_FUTURE, "import base64", "import enum", "import runpy", "import zlib")


def _import_blocks(script: PythonText) -> list[str]:
    """Group imports in the usual order: standard library, NumPy, customop."""
    special = ["from numpy import inf, nan"] if script.uses_special else []
    standard = [line for line in _STANDARD if line in script.imports]
    own = [line for line in script.imports if line not in _STANDARD]
    blocks = [
        standard,
        ["import numpy as np", *special],
        ["import customop as co", *own],
    ]
    return ["\n".join(block) for block in blocks]


def _names(op: Operator[..., Any], sample: Sample) -> list[str]:
    return [p.name for p in op.schema.positional][: len(sample.args)]


def _target(op: Operator[..., Any]) -> str:
    return f"co.ops.{op.namespace}.{op.name}.{op.overload or 'default'}"


def _call_text(
    op: Operator[..., Any], args: Sequence[str], named: dict[str, str], check: str
) -> str:
    target = _target(op)
    if not check:
        keywords = [f"{name}={text}" for name, text in named.items()]
        return f"print({target}({', '.join([*args, *keywords])}))"
    positional = f"({', '.join(args)}{',' if len(args) == 1 else ''})"
    keywords = [f"{name!r}: {text}" for name, text in named.items()]
    return (
        f"co.testing.opcheck(\n    {target},\n    {positional},\n"
        f"    {{{', '.join(keywords)}}},\n    test_utils={check!r},\n)"
    )


def _definition(
    op: Operator[..., Any], script: PythonText, check: str, *, with_samples: bool
) -> str:
    """Return code that defines the operator, or imports the module that does."""
    module, where = op.definition.module, op.definition.place
    is_inside = "<locals>" in getattr(op.__wrapped__, "__qualname__", "")
    is_apart = is_inside or is_interactive(where)
    if is_apart or not _is_in(module, op):
        own = deepcopy(script)
        try:
            variants = [*variants_of(op)] if check == "test_out_variant" else []
            text = definition_text(op, own, variants, with_samples=with_samples)
        except NoTextError as error:
            if is_apart:
                place = _where(where)
                return f"# {op.qualname} is defined {place}: run that first ({error})"
        else:
            vars(script).update(vars(own))
            script.needs(_FUTURE)
            return text
    if module == "__main__":
        script.needs("import runpy")
        file = where.rpartition(":")[0]
        return f"runpy.run_path({file!r})  # defines {op.qualname}"
    if module.partition(".")[0] != "customop":
        script.needs(f"import {module}  # defines {op.qualname}")
    return ""


def _is_in(module: str, op: Operator[..., Any]) -> bool:
    """Return whether the import of a module makes an operator, as far as one can see."""
    if module.partition(".")[0] == "customop":
        return True
    found = sys.modules.get(module)
    return found is not None and any(value is op for value in vars(found).values())


def _where(place: str) -> str:
    """Return where an operator is defined that no import makes."""
    if "ipykernel_" in place:
        return "in a cell of a notebook"
    return f"at {place}" if is_interactive(place) else f"within a function at {place}"


# ---- a line for each argument ----


def show_sample(op: Operator[..., Any], sample: Sample) -> str:
    """Return a sample in a few lines: each argument, and the note of the sample.

    Parameters
    ----------
    op : Operator
    sample : Sample

    Returns
    -------
    str
    """
    pairs = [*zip(_names(op, sample), sample.args, strict=True), *sample.kwargs.items()]
    lines = [f"{name} = {_shown(value)}" for name, value in pairs]
    return "\n".join([*lines, *([f"({sample.note})"] if sample.note else [])])


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _shown_array(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        inside = ", ".join(map(_shown, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_shown(v)}' for k, v in value.items())}}}"
    return repr(value)


def _short(value: Any) -> str:
    return f"{value:.4g}"


def _shown_array(x: np.ndarray[Any, Any]) -> str:
    short = {"float_kind": _short, "complex_kind": _short}
    text = np.array2string(x, threshold=12, separator=", ", formatter=short)  # type: ignore[arg-type]  # NumPy's own stubs lag behind
    text = " ".join(text.split())
    layout = [
        word
        for word, holds in (
            (f"strides {x.strides}", not x.flags.c_contiguous),
            ("read-only", not x.flags.writeable),
            ("unaligned", not x.flags.aligned),
        )
        if holds
    ]
    return ", ".join([f"{abbreviated(x)} {text}", *layout])
