"""Checks of the derivatives of an operator against differences of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import numpy as np

from customop.core.builtin_kinds import AUTOGRAD, JVP
from customop.core.samples import Sample
from customop.errors import (
    DataDependentError,
    MissingRuleError,
    NoDerivativeError,
)
from customop.testing.checks.session import (
    Session,
)
from customop.testing.checks.smooth import (
    SEED,
    STEP,
    as_double,
    as_single,
    at_point,
    check_single,
    check_there,
    fixed_random,
    function_of,
    is_wide,
    ones_like,
    parameter_of,
    problem_of,
    smooth_problem,
)
from customop.testing.close import Vector
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import map_values
from customop.testing.inputs.templates import call_of
from customop.testing.numeric_derivatives import (
    CheckOptions,
    Linear,
    Problem,
    adjoint,
    check_batched,
    check_derivatives,
    check_unused,
    compare_tangent,
    has_ties,
    is_level,
    is_near,
    pushforward,
    same_vector,
    second_problem,
    slopes_along,
    wrong_along,
)
from customop.testing.quiet import about_to_run, strict_numbers
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp

# ---- test_gradients ----


def check_gradients(session: Session, sample: Sample) -> str:
    """Check first and second derivatives against differences of the values."""
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
    if len(problem.outputs.arrays) > 1:
        with _remedy(session, problem.rule):
            check_unused(
                problem, pull, np.random.default_rng(SEED), _bounded(session, _EXACT)
            )
    _check_twice(session, problem)
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
        # A formula that cannot be traced raises; it never returns a wrong number.
        session.notes.append(f"first gradients alone, their formula: {error.what}")
    return ""


def _check_twice(session: Session, problem: Problem) -> None:
    """Check that the gradient by an array that is passed twice is the sum of both."""
    arrays = problem.inputs.arrays
    pairs = [
        (i, k)
        for k in range(1, len(arrays))
        for i in range(k)
        if arrays[i].shape == arrays[k].shape and arrays[i].dtype == arrays[k].dtype
    ]
    for i, k in pairs[:1]:
        equal = [*arrays]
        equal[k] = arrays[i].copy()

        def once(x: Any, i: int = i, k: int = k) -> tuple[Any, ...]:
            given = [*arrays]
            given[i] = given[k] = x
            return problem.call(*given)

        try:
            apart, pullback = vjp(problem.call, *equal)
            _, of_one = vjp(once, arrays[i])
        except Exception:  # noqa: BLE001, S112  # equal arrays that the kernel refuses
            continue
        cotangents = tuple(map(ones_like, apart))
        both = pullback(cotangents)
        session.compare_leaf(
            f"the gradient by '{problem.inputs.labels[i]}'",
            np.asarray(of_one(cotangents)[0]),
            np.asarray(both[i] + both[k]),
            f"between one array passed also as '{problem.inputs.labels[k]}', and the sum"
            " for two equal arrays",
            do=f"return a gradient for each argument in the formula of"
            f" @{session.op.name}.register_autograd",
        )


# A batch runs the same formula, so that only rounding may differ.
_EXACT = CheckOptions(rtol=1e-7, atol=1e-7)


def _check_formula(
    session: Session, problem: Problem, size: int, gradient: Vector
) -> None:
    """Check a gradient; its value for one fixed cotangent is known already.

    This takes one random cotangent and some directions: single components, and all of
    them at once. A full comparison, which names the entries, takes one cotangent for
    each output. It runs if something is wrong and the arrays are short.
    """
    cotangent = fixed_random(problem.outputs.size)
    for direction in _directions(problem, size):
        wrong = _wrong_slope(problem, direction, cotangent, gradient, STEP)
        if wrong is not None:
            with _remedy(session, problem.rule):
                if problem.inputs.size * problem.outputs.size <= _MOST_ENTRIES:
                    check_derivatives(problem, _bounded(session, CheckOptions()))
                _raise_along(problem, direction, cotangent, gradient, wrong)


# Jacobians with more entries than this are compared along directions only: each entry
# takes a call of the kernel.
_MOST_ENTRIES = 100_000


def _directions(problem: Problem, size: int) -> Iterator[Vector]:
    """Yield directions in which to compare a gradient.

    In a second-order problem, the components from `size` on are the cotangents, in
    which it is linear.
    """
    for i in _components(size):
        yield problem.inputs.unit(i)
    everything = fixed_random(problem.inputs.size, SEED + 1)
    if size < problem.inputs.size:
        rest = everything.copy()
        rest[:size] = 0.0
        yield rest
    elif size > _MOST_COMPONENTS:
        yield everything


# The slope found, the right one, and the size of the parts that it is a sum of.
_Wrong: TypeAlias = tuple[float, float, float]


def _wrong_slope(
    problem: Problem,
    direction: Vector,
    cotangent: Vector,
    gradient: Vector,
    step: float,
) -> _Wrong | None:
    """Return how a gradient is wrong along a direction, or None.

    If a one-sided difference agrees, that is enough and saves most of the time: its
    error is the curvature times a millionth.
    """
    found = float(gradient @ direction)
    with suppress(Exception):  # outside of the domain: the other side decides
        ahead = problem.at(problem.start + step * direction)
        if is_near(found, float(cotangent @ (ahead - problem.value)) / step, _ALONG):
            return None
    slopes = slopes_along(problem, direction, step)
    expected = float(cotangent @ slopes)
    if np.isnan(expected) or is_near(found, expected, _ALONG):  # nan: a kink or a jump
        return None
    if has_ties(problem) and not is_level(problem, direction, step, slopes):
        return None
    return found, expected, float(np.abs(cotangent) @ np.abs(slopes))


def _raise_along(
    problem: Problem,
    direction: Vector,
    cotangent: Vector,
    gradient: Vector,
    wrong: _Wrong,
) -> None:
    """Raise the fault for a gradient that is wrong along a direction."""
    found, expected, scale = wrong
    if abs(found - expected) <= 1e-5 + 1e-7 * scale + 3e-4 * abs(expected):
        return  # rounding may explain it
    way = cotangent, gradient, direction
    raise wrong_along(problem, adjoint(problem)[0], way, found, expected)


def _bounded(session: Session, options: CheckOptions) -> CheckOptions:
    """Return the options with the bounds of the session, if it has any."""
    if session.rtol is None or session.atol is None:
        return options
    return options._replace(rtol=session.rtol, atol=session.atol)


_REMEDIES = {
    "jvp": "correct the rule of @{}.register_jvp",
    "gradient": "correct the formula of @{}.register_autograd",
    "second gradient": "make the formula of @{}.register_autograd of operators with"
    " right formulas of their own, on all that it depends on",
    "under vmap": "make the formula of @{}.register_autograd of operators with right"
    " vmap rules, and of axes counted from the end",
}


@contextmanager
def _remedy(session: Session, rule: str) -> Iterator[None]:
    """Complete the faults of a formula: add advice, and name the parameter."""
    try:
        yield
    except Fault as fault:
        fault.do = _REMEDIES[rule].format(session.op.name)
        fault.parameter = parameter_of(fault.parameter)
        raise


# Bounds for a derivative along a direction against its difference.
_ALONG = CheckOptions(rtol=1e-4, atol=1e-5)
# How many components are moved one by one. Larger arrays use a sample of them, and very
# large arrays a smaller sample.
_MOST_COMPONENTS = 24
_LARGE = 10_000
_VERY_LARGE = 100_000


def _check_kept(
    session: Session, problem: Problem, pull: Linear, before: Vector
) -> None:
    """Raise if another call of the operator changes a gradient."""
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


# How many components a message shows.
_SHOWN = 4


def _components(size: int) -> Sequence[int]:
    if size <= _MOST_COMPONENTS:
        return range(size)
    if size > _VERY_LARGE:
        return ()
    rng = np.random.default_rng(SEED)
    count = _MOST_COMPONENTS if size < _LARGE else _MOST_COMPONENTS // 8
    return list(rng.integers(0, size, count))


def _check_adjoint(session: Session, problem: Problem, step: float) -> None:
    """Check the gradient along two directions; if one is wrong, check all of it.

    A direction that keeps equal numbers equal shows whether each of them gets the whole
    gradient of the largest.
    """
    cotangent = fixed_random(problem.outputs.size, SEED + 1)
    gradient = adjoint(problem)[0](cotangent)
    directions = [fixed_random(problem.inputs.size)]
    is_tied = has_ties(problem)
    if is_tied:
        directions.append(_keeping_ties(problem.start))
    for direction in directions:
        wrong = _wrong_slope(problem, direction, cotangent, gradient, step)
        if wrong is None:
            continue
        entries = problem.inputs.size * problem.outputs.size
        with _remedy(session, problem.rule):
            if direction is directions[0] and entries <= _MOST_ENTRIES:
                check_derivatives(problem, _bounded(session, CheckOptions(eps=step)))
            _raise_along(problem, direction, cotangent, gradient, wrong)


def _keeping_ties(start: Vector) -> Vector:
    """Return a direction in which equal numbers stay equal."""
    values, places = np.unique(start, return_inverse=True)
    return np.abs(fixed_random(values.size))[places]


# ---- the check of an operator's jvp rule ----


def check_jvp(session: Session, sample: Sample) -> str:
    """Check the tangent against differences and against the gradient."""
    op = session.op
    if sample.note and op.find_rule(JVP) is not None:
        return check_there(session, sample, _check_pushforward)
    has_formula = op.find_rule(AUTOGRAD) is not None
    if op.find_rule(JVP) is None:
        if not has_formula:
            return "no jvp rule, and no autograd rule to transpose"
        return "no jvp rule: it follows from the autograd rule, see test_gradients"
    problem = smooth_problem(session, sample)
    if isinstance(problem, str):
        return problem
    direction = fixed_random(problem.inputs.size)
    tangent = _check_tangent(session, problem, direction)
    if len(problem.inputs.arrays) > 1:
        values = map_values(as_double, session.values(sample))
        point = at_point(session, values, problem, problem.inputs.arrays)
        for name, block in zip(
            problem.inputs.labels, problem.inputs.blocks, strict=True
        ):
            alone = problem_of(session, point, [name])
            _check_tangent(session, alone, direction[block])
    if has_formula:
        _check_transposed(problem, direction, tangent)
    _check_short_tangents(session, sample)
    return ""


def _check_short_tangents(session: Session, sample: Sample) -> None:
    """Check that tangents of short results are short too: the engine refuses others."""
    values = map_values(as_single, session.values(sample))
    about_to_run(lambda: call_of(session.op.schema, values))
    try:
        with strict_numbers():
            call, chosen = function_of(session, values)
            primals = tuple(chosen.values())
            out = call(*primals)
    except Exception:  # noqa: BLE001  # a dtype that the kernel refuses
        return
    if any(map(is_wide, out)):
        return
    found = jvp(call, primals, tuple(map(_uneven_like, primals)))[1]

    def wide(change: Callable[[Any], Any]) -> Sequence[Any]:
        call, chosen = function_of(session, map_values(change, values))
        primals = tuple(chosen.values())
        tangents = tuple(change(_uneven_like(x)) for x in primals)
        return jvp(call, primals, tangents)[1]

    check_single(
        values, "tangent", [f"output {i}" for i in range(len(found))], found, wide
    )


def _uneven_like(leaf: Any) -> Any:
    """Return a direction that dtypes hold exactly; equal ones cancel in a variance."""
    ones = np.ones_like(leaf)
    if type(ones) is not np.ndarray:
        return ones
    return np.asarray(
        ones - np.arange(ones.size).reshape(ones.shape) % 3 / 4, ones.dtype
    )


def _check_pushforward(session: Session, problem: Problem, step: float) -> None:
    direction = fixed_random(problem.inputs.size)
    if has_ties(problem):
        slopes = slopes_along(problem, direction, step)
        if not is_level(problem, direction, step, slopes):
            return
    _check_tangent(session, problem, direction, step)


def _check_tangent(
    session: Session, problem: Problem, direction: Vector, step: float = STEP
) -> Vector:
    """Return the tangent along a direction; raise if it differs from the difference."""
    found = pushforward(problem)(direction)
    slopes = slopes_along(problem, direction, step)
    scale = np.ones(slopes.size)
    for block in problem.outputs.blocks:
        sizes = np.abs(slopes[block])
        scale[block] = max(1.0, float(sizes[np.isfinite(sizes)].max(initial=0.0)))
    # Neither is compared at a kink or a jump, nor outside of the domain.
    seen, expected = (np.where(np.isnan(slopes), 0.0, v) for v in (found, slopes))
    allowed = _ALONG.atol * scale + _ALONG.rtol * np.abs(expected)
    with _remedy(session, "jvp"):
        compare_tangent(problem, direction, seen, expected, allowed, _ALONG)
    return found


def _check_transposed(problem: Problem, direction: Vector, tangent: Vector) -> None:
    """Check that the jvp rule is the transpose of the gradient."""
    cotangent = fixed_random(problem.outputs.size)
    forward = float(cotangent @ tangent)
    backward = float(adjoint(problem)[0](cotangent) @ direction)
    if not np.isclose(forward, backward, rtol=1e-6, atol=1e-8):
        raise Fault(
            "has a jvp rule that is not the transpose of its autograd formula",
            f"w . jvp(t) is {forward:.6g}, vjp(w) . t is {backward:.6g}",
            do="let both be the derivative of the kernel",
        )
