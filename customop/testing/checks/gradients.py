"""Checks of autograd formulas: registration, gradients of first and second order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np

from customop.arrays.kinds import is_traced
from customop.core.kinds import AUTOGRAD, COMPOSITE
from customop.core.samples import Sample
from customop.errors import DataDependentError, MissingRuleError, NoDerivativeError
from customop.testing.checks.session import Session
from customop.testing.checks.smooth import (
    SEED,
    STEP,
    as_single,
    check_there,
    fixed_random,
    function_of,
    gradients_of,
    is_smooth_over,
    is_wide,
    made_gradients,
    ones_like,
    parameter_of,
    smooth_problem,
    why_no_derivative,
)
from customop.testing.differences import (
    check_batched,
    check_derivatives,
    second_problem,
)
from customop.testing.fault import Fault
from customop.testing.inputs.memory import map_values
from customop.testing.inputs.trials import call_of
from customop.testing.jacobians import (
    CheckOptions,
    Linear,
    Problem,
    adjoint,
    same_vector,
)
from customop.testing.quiet import strict_numbers
from customop.testing.vectors import Vector
from customop.testing.watch import about_to_run
from customop.transforms.autograd.grad import vjp

__all__ = ["check_autograd_registration", "check_gradients", "check_short_floats"]

# ---- test_autograd_registration ----


def check_autograd_registration(session: Session, sample: Sample) -> str:
    """The formula can be used, and the kernel itself tracks nothing."""
    op = session.op
    for name, leaf in session.expected(sample).effects:
        if is_traced(leaf):
            raise Fault(
                f"returns {name} as a value that a transform follows, from plain"
                " arrays: its kernel uses variables or tracers of others",
                do="let the kernel compute on plain arrays (stop_gradient(x)), and"
                f" put the gradient into @{op.name}.register_autograd",
            )
    if op.find_rule(AUTOGRAD) is None:
        return "no autograd rule" if COMPOSITE not in op.rows else "made of operators"
    reason = why_no_derivative(session, sample)
    if not reason:
        _check_each_alone(session, sample)
    return reason


def check_short_floats(session: Session, sample: Sample) -> str:
    """Gradients of short floats are as short: the engine refuses others."""
    if session.op.find_rule(AUTOGRAD) is None or why_no_derivative(session, sample):
        return ""
    values = map_values(as_single, session.values(sample))
    about_to_run(lambda: call_of(session.op.schema, values))
    try:
        with strict_numbers():
            call, chosen = function_of(session, values)
            out, pullback = vjp(call, *chosen.values())
    except Exception:  # noqa: BLE001  # a dtype that the kernel refuses
        return ""
    if not any(map(is_wide, out)):
        pullback(tuple(map(ones_like, out)))
    return ""


def _check_each_alone(session: Session, sample: Sample) -> None:
    """Gradients are the same whichever of the inputs ask for one."""
    together = gradients_of(session, sample)
    if len(together) == 1:
        return
    for name, gradient in together.items():
        alone = made_gradients(session, sample, [name])
        session.compare_leaf(
            f"the gradient by {name}",
            alone[name],
            gradient,
            "between asking for it alone and for all gradients",
            do="use ctx.needs_input_grad only to leave out gradients that are not"
            " needed",
        )


# ---- test_gradients ----


def check_gradients(session: Session, sample: Sample) -> str:
    """First and second derivatives are those of the values, by differences."""
    if session.op.find_rule(AUTOGRAD) is None:
        return "no autograd rule"
    if sample.note:
        return check_there(session, sample, _check_adjoint)
    problem = smooth_problem(session, sample)
    if isinstance(problem, str):
        return problem
    size = problem.inputs.size
    pull, pullback = adjoint(problem)
    before = pull(fixed_random(problem.outputs.size))
    _check_formula(session, problem, size, before)
    _check_kept(session, problem, pull, before)
    try:
        cotangents = problem.outputs.split(fixed_random(problem.outputs.size).copy())
        second = second_problem(problem, cotangents, "second gradient")
        of_second = adjoint(second)[0](fixed_random(second.outputs.size))
        _check_formula(session, second, size, of_second)
        with _remedy(session, "under vmap"):
            other = fixed_random(problem.outputs.size, SEED + 1)
            rows = [(fixed_random(problem.outputs.size), before), (other, pull(other))]
            check_batched(problem, pullback, rows, _bounded(session, _EXACT))
    except (MissingRuleError, DataDependentError, NoDerivativeError) as error:
        # A formula that cannot be traced raises and never returns a wrong number.
        session.notes.append(f"first gradients alone, their formula: {error.what}")
    return ""


# A batch runs the same formula, so that only rounding may differ.
_EXACT = CheckOptions(rtol=1e-7, atol=1e-7)


def _check_formula(
    session: Session, problem: Problem, size: int, gradient: Vector
) -> None:
    """Check a gradient, of which the one for a fixed cotangent is known."""
    if _are_differences(problem, size, gradient):
        return
    is_large = problem.inputs.size * problem.outputs.size > _MOST_ENTRIES
    with _remedy(session, problem.rule):
        check_derivatives(problem, _bounded(session, CheckOptions(fast=is_large)))


# Jacobians with more entries than this are compared along directions.
_MOST_ENTRIES = 100_000


def _bounded(session: Session, options: CheckOptions) -> CheckOptions:
    """The options with the bounds of the session, if it has any."""
    if session.rtol is None or session.atol is None:
        return options
    return options._replace(rtol=session.rtol, atol=session.atol)


_REMEDIES = {
    "gradient": "correct the formula of @{}.register_autograd",
    "second gradient": "make the formula of @{}.register_autograd of operators with"
    " right formulas of their own, on all that it depends on",
    "under vmap": "make the formula of @{}.register_autograd of operators with right"
    " vmap rules, and of axes counted from the end",
}


@contextmanager
def _remedy(session: Session, rule: str) -> Iterator[None]:
    """Add what to do about a formula to its faults, and name the parameter."""
    try:
        yield
    except Fault as fault:
        fault.do = _REMEDIES[rule].format(session.op.name)
        fault.parameter = parameter_of(fault.parameter)
        raise


# Agreement of a derivative with its difference.
_RTOL, _ATOL = 1e-4, 1e-5
# Components that are moved one by one; a sample of them in larger arrays, and fewer
# where a call takes milliseconds.
_MOST_COMPONENTS = 24
_LARGE = 10_000


def _are_differences(problem: Problem, size: int, gradient: Vector) -> bool:
    """Whether the gradient by the first components is that of differences.

    It takes one random cotangent. The full comparison, which runs where this fails,
    takes one for each component of the outputs. A difference ahead alone, in half of
    the time, is enough where it agrees: it is off by the bend over a millionth.
    """
    for i in _components(size):
        if not _is_slope(problem, problem.inputs.unit(i), float(gradient[i])):
            return False
    return size == problem.inputs.size or _is_slope_along_the_rest(
        problem, size, gradient
    )


def _is_slope(
    problem: Problem,
    direction: Vector,
    found: float,
    step: float = STEP,
    seed: int = SEED,
) -> bool:
    """Whether a number is the slope along a direction, of a random sum of outputs."""
    cotangent = fixed_random(problem.outputs.size, seed)
    ahead = problem.at(problem.start + step * direction)
    if _is_near(found, float(cotangent @ (ahead - problem.value)) / step):
        return True
    behind = problem.at(problem.start - step * direction)
    return _is_near(found, float(cotangent @ (ahead - behind)) / (2 * step))


def _check_kept(
    session: Session, problem: Problem, pull: Linear, before: Vector
) -> None:
    """Raise unless a gradient stays the same when the operator is called again."""
    moved = problem.start + 0.01 * fixed_random(problem.inputs.size)
    with suppress(Exception):  # a point that the kernel refuses
        vjp(problem.call, *problem.inputs.split(moved))
    after = pull(fixed_random(problem.outputs.size))
    if not same_vector(before, after):
        raise Fault(
            "has a gradient that another call of the operator changes",
            f"{before.tolist()[:_SHOWN]} before, {after.tolist()[:_SHOWN]} after",
            do="keep in ctx all that the formula needs, and change nothing that it keeps:"
            f" in the setup_context of @{session.op.name}.register_autograd",
        )


# Components that a message shows.
_SHOWN = 4


def _is_slope_along_the_rest(problem: Problem, size: int, gradient: Vector) -> bool:
    """Whether the gradient by the components from `size` on is that of differences.

    For the gradient as a function these are the cotangents, in which it is linear.
    """
    direction = fixed_random(problem.inputs.size, SEED + 1).copy()
    direction[:size] = 0.0
    return _is_slope(problem, direction, float(gradient @ direction))


def _components(size: int) -> Sequence[int]:
    if size <= _MOST_COMPONENTS:
        return range(size)
    rng = np.random.default_rng(SEED)
    count = _MOST_COMPONENTS if size < _LARGE else _MOST_COMPONENTS // 8
    return list(rng.integers(0, size, count))


def _check_adjoint(session: Session, problem: Problem, step: float) -> None:
    """The gradient along one direction; all of it where that is wrong."""
    direction = fixed_random(problem.inputs.size)
    cotangent = fixed_random(problem.outputs.size, SEED + 1)
    found = float(adjoint(problem)[0](cotangent) @ direction)
    is_right = _is_slope(problem, direction, found, step, SEED + 1)
    if is_right or not is_smooth_over(problem, step):
        return
    with _remedy(session, problem.rule):
        check_derivatives(problem, _bounded(session, CheckOptions(eps=step)))


def _is_near(found: float, expected: float) -> bool:
    return bool(abs(found - expected) <= _ATOL + _RTOL * abs(expected))
