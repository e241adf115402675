"""Checks of derivatives: registration, gradients of first and second order, tangents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import numpy as np

from customop.arrays.dtypes import is_inexact
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import flat, map_nested
from customop.arrays.numpy_protocol import call_numpy
from customop.core.kinds import AUTOGRAD, COMPOSITE, JVP
from customop.core.samples import Sample
from customop.errors import DataDependentError, MissingRuleError
from customop.testing.checks.session import Session, floats_of, is_floats, placer
from customop.testing.differences import (
    check_batched,
    check_derivatives,
    random_cotangents,
    second_problem,
)
from customop.testing.fault import Fault
from customop.testing.inputs.oracle import strict_numbers
from customop.testing.inputs.specials import SMOOTH, specials
from customop.testing.inputs.trials import call_of
from customop.testing.jacobians import (
    CheckOptions,
    Problem,
    adjoint,
    difference,
    pushforward,
)
from customop.testing.vectors import Space, Vector, random_vector
from customop.testing.watch import about_to_run
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp

__all__ = [
    "at_special_values",
    "check_autograd_registration",
    "check_gradients",
    "check_jvp",
    "check_short_floats",
]

_SEED = 20
_STEP = 1e-6


@lru_cache(maxsize=64)
def _random(size: int, seed: int = _SEED) -> Vector:
    """A vector with no component near zero. To make one takes 15 us."""
    return random_vector(size, np.random.default_rng(seed))


# ---- the operator as a function of its arrays of floats ----


def _function(
    session: Session, values: Sequence[Any], moving: Sequence[str] | None = None
) -> tuple[Callable[..., tuple[Any, ...]], dict[str, Any]]:
    """The operator as a function of some of its arrays of floats, and these arrays.

    By default of all of them. The function returns the outputs of floats.
    """
    arrays = floats_of(session.op, values)
    put = placer(values, is_floats)
    chosen = arrays if moving is None else {name: arrays[name] for name in moving}

    def call(*given: Any) -> tuple[Any, ...]:
        new = {**arrays, **dict(zip(chosen, given, strict=True))}
        out = session.op.invoke(put(list(new.values())))
        return tuple(leaf for leaf in flat(out) if _is_float_array(leaf))

    return call, chosen


def _problem(
    session: Session, values: Sequence[Any], moving: Sequence[str] | None = None
) -> Problem:
    call, chosen = _function(session, values, moving)
    return Problem(call, Space(chosen, chosen.values()), rule="gradient")


def _is_float_array(leaf: Any) -> bool:
    return is_array(leaf) and is_inexact(leaf.dtype)


def _as_double(leaf: Any) -> Any:
    """Convert short floats to the precision that differences need."""
    if not is_floats(leaf) or not isinstance(leaf, np.ndarray):
        return leaf
    return np.array(leaf, np.result_type(leaf.dtype, np.float64), order="C")


def _why_no_derivative(session: Session, sample: Sample) -> str:
    if session.op.schema.written:
        return f"it writes {', '.join(session.op.schema.written)}"
    if not floats_of(session.op, session.bound(sample)):
        return "no argument is an array of floats"
    run = session.expected(sample)
    if not any(_is_float_array(leaf) for _, leaf in run.effects):
        return "no result is an array of floats"
    return ""


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
    reason = _why_no_derivative(session, sample)
    if not reason:
        _check_each_alone(session, sample)
    return reason


def check_short_floats(session: Session, sample: Sample) -> str:
    """Gradients of short floats are as short: the engine refuses others."""
    if session.op.find_rule(AUTOGRAD) is None or _why_no_derivative(session, sample):
        return ""
    values = [map_nested(value, _as_single) for value in session.values(sample)]
    about_to_run(lambda: call_of(session.op.schema, values))
    try:
        with strict_numbers():
            call, chosen = _function(session, values)
            out, pullback = vjp(call, *chosen.values())
    except Exception:  # noqa: BLE001  # a dtype that the kernel refuses
        return ""
    if not any(map(_is_wide, out)):
        pullback(tuple(call_numpy(np.ones_like, leaf) for leaf in out))
    return ""


def _is_wide(leaf: Any) -> bool:
    return bool(np.finfo(leaf.dtype).bits > np.finfo(np.float32).bits)


def _as_single(leaf: Any) -> Any:
    if not is_floats(leaf) or not isinstance(leaf, np.ndarray):
        return leaf
    return leaf.astype(np.complex64 if leaf.dtype.kind == "c" else np.float32)


def _check_each_alone(session: Session, sample: Sample) -> None:
    """Gradients are the same whichever of the inputs ask for one."""
    together = _gradients(session, sample)
    if len(together) == 1:
        return
    for name, gradient in together.items():
        alone = _gradients(session, sample, [name])
        session.compare_leaf(
            f"the gradient by {name}",
            alone[name],
            gradient,
            "between asking for it alone and for all gradients",
            do="use ctx.needs_input_grad only to leave out gradients that are not"
            " needed",
        )


def _gradients(
    session: Session, sample: Sample, moving: Sequence[str] | None = None
) -> dict[str, Any]:
    """Gradients of the sum of all results, by place.

    The operator runs once: a second call could draw other random numbers.
    """
    call, chosen = _function(session, session.values(sample), moving)
    out, pullback = vjp(call, *chosen.values())
    gradients = pullback(tuple(call_numpy(np.ones_like, leaf) for leaf in out))
    return dict(zip(chosen, gradients, strict=True))


# ---- away from kinks ----


def _smooth(session: Session, sample: Sample) -> Problem | str:
    """The function to differentiate at a smooth point, or the reason to skip it."""
    reason = _why_no_derivative(session, sample)
    if not reason and session.op.sees_seed:
        reason = "it draws from a random state"
    if reason:
        return reason
    values = [map_nested(value, _as_double) for value in session.values(sample)]
    if not any(x.size for x in floats_of(session.op, values).values()):
        return "arrays without elements have no derivative"
    try:
        problem = _problem(session, values)
    except Exception:  # noqa: BLE001  # whatever the kernel raises for them
        return "the kernel takes no float64, which differences need"
    point = session.once("smooth", sample, lambda: _smooth_point(problem))
    if point is None:
        return "differences from both sides disagree: it has a kink or a jump there"
    if point is not problem.start:
        moved = problem.inputs.split(point)
        problem = _problem(session, placer(values, is_floats)(moved))
    return problem


_ATTEMPTS = 5
# The longer step sees a kink that is near; rounding leaves four digits of slopes over
# the shorter one.
_STEPS = (1e-4, 1e-6)


def _smooth_point(problem: Problem) -> Vector | None:
    """Inputs at which the function is smooth: the given ones, or nearby ones; or None.

    At a kink the differences ahead and behind are further apart than any curvature
    makes them: they go on to differ as the step gets shorter.
    """
    point = problem.start
    for attempt in range(_ATTEMPTS):
        if attempt:
            rng = np.random.default_rng(_SEED + attempt)
            shifts = 0.05 * attempt * rng.uniform(-1, 1, problem.inputs.size)
            point = problem.start + shifts * _reach(problem)
        try:
            if _is_smooth(problem, point):
                return point
        except Fault:  # its shapes depend on the values
            continue
        except Exception:
            if attempt == 0:
                raise
    return None


def _reach(problem: Problem) -> Vector:
    """How far to move each component: its own size, and a share of the greatest."""
    sizes = np.abs(problem.start)
    reach = sizes.copy()
    for block in problem.inputs.blocks:
        reach[block] += 0.1 * (float(sizes[block].max(initial=0.0)) or 1.0)
    return reach


def _is_smooth(problem: Problem, point: Vector) -> bool:
    """Whether differences over two steps agree, and those of both sides."""
    here, direction = problem.at(point), _random(point.size)
    slopes, bends = [], []
    for step in _STEPS:
        ahead = problem.at(point + step * direction)
        behind = problem.at(point - step * direction)
        slopes.append((ahead - behind) / (2 * step))
        bends.append((ahead - 2 * here + behind) / step)
    scale = np.abs(slopes[0]) + 1e-3 * np.abs(here) + 1e-3
    apart = np.abs(slopes[1] - slopes[0]) + np.abs(bends[1])
    return bool(np.all(apart <= 0.02 * scale))


# ---- test_gradients ----


def at_special_values(session: Session, sample: Sample) -> Iterator[Sample]:
    """The sample, and then with special values if the function is smooth near it."""
    yield sample
    has_rule = session.op.find_rule(AUTOGRAD) or session.op.find_rule(JVP)
    if has_rule and _has_derivatives(session, sample):
        yield from specials(session.op, sample, SMOOTH)


def _has_derivatives(session: Session, sample: Sample) -> bool:
    try:
        return isinstance(_smooth(session, sample), Problem)
    except Exception:  # noqa: BLE001  # the check itself reports it
        return False


def check_gradients(session: Session, sample: Sample) -> str:
    """First and second derivatives are those of the values, by differences."""
    if session.op.find_rule(AUTOGRAD) is None:
        return "no autograd rule"
    if sample.note:
        return _check_there(session, sample, _check_adjoint)
    problem = _smooth(session, sample)
    if isinstance(problem, str):
        return problem
    size = problem.inputs.size
    _check_formula(session, problem, size)
    _check_kept(session, problem)
    try:
        cotangents = random_cotangents(problem)
        second = second_problem(problem, cotangents, "second gradient")
        _check_formula(session, second, size)
        with _remedy(session, "under vmap"):
            options = _bounded(session, _EXACT)
            check_batched(problem, np.random.default_rng(_SEED), options)
    except (MissingRuleError, DataDependentError) as error:
        # A formula that cannot be traced raises and never returns a wrong number.
        session.notes.append(f"first gradients alone, their formula: {error.what}")
    return ""


# A batch runs the same formula, so that only rounding may differ.
_EXACT = CheckOptions(rtol=1e-7, atol=1e-7)


def _check_formula(session: Session, problem: Problem, size: int) -> None:
    if _are_differences(problem, size):
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
        fault.parameter = _parameter(fault.parameter)
        raise


def _parameter(place: str) -> str:
    """The name of the parameter that holds a place such as ``arrays[0]``."""
    return re.split(r"[\[.]", place)[0]


# Agreement of a derivative with its difference.
_RTOL, _ATOL = 1e-4, 1e-5
# Components that are moved one by one; a sample of them in larger arrays, and fewer
# where a call takes milliseconds.
_MOST_COMPONENTS = 24
_LARGE = 10_000


def _are_differences(problem: Problem, size: int) -> bool:
    """Whether the gradient by the first components is that of differences.

    It takes one random cotangent. The full comparison, which runs where this fails,
    takes one for each component of the outputs.
    """
    cotangent = _random(problem.outputs.size)
    gradient = adjoint(problem)[0](cotangent)
    point = problem.start.copy()
    for i in _components(size):
        values = []
        for step in (_STEP, -_STEP):
            point[i] = problem.start[i] + step
            values.append(problem.at(point))
        point[i] = problem.start[i]
        expected = float(cotangent @ (values[0] - values[1])) / (2 * _STEP)
        if not abs(gradient[i] - expected) <= _ATOL + _RTOL * abs(expected):
            return False
    return size == problem.inputs.size or _is_difference_along_the_rest(
        problem, size, gradient
    )


def _check_kept(session: Session, problem: Problem) -> None:
    """Raise unless a gradient stays the same when the operator is called again."""
    pull, cotangent = adjoint(problem)[0], _random(problem.outputs.size)
    before = pull(cotangent)
    moved = problem.start + 0.01 * _random(problem.inputs.size)
    with suppress(Exception):  # a point that the kernel refuses
        vjp(problem.call, *problem.inputs.split(moved))
    after = pull(cotangent)
    if not np.array_equal(before, after, equal_nan=True):
        raise Fault(
            "has a gradient that another call of the operator changes",
            f"{before.tolist()[:_SHOWN]} before, {after.tolist()[:_SHOWN]} after",
            do="keep in ctx all that the formula needs, and change nothing that it keeps:"
            f" in the setup_context of @{session.op.name}.register_autograd",
        )


# Components that a message shows.
_SHOWN = 4


def _is_difference_along_the_rest(
    problem: Problem, size: int, gradient: Vector
) -> bool:
    """Whether the gradient by the components from `size` on is that of differences.

    For the gradient as a function these are the cotangents, in which it is linear.
    """
    direction = _random(problem.inputs.size, _SEED + 1).copy()
    direction[:size] = 0.0
    cotangent = _random(problem.outputs.size)
    expected = float(cotangent @ difference(problem, _STEP)(direction))
    return bool(abs(gradient @ direction - expected) <= _ATOL + _RTOL * abs(expected))


def _components(size: int) -> Sequence[int]:
    if size <= _MOST_COMPONENTS:
        return range(size)
    rng = np.random.default_rng(_SEED)
    count = _MOST_COMPONENTS if size < _LARGE else _MOST_COMPONENTS // 8
    return list(rng.integers(0, size, count))


# ---- at special values ----


def _check_there(
    session: Session, sample: Sample, check: Callable[[Session, Problem, float], None]
) -> str:
    """Check derivatives at the very values of a sample, if the function is smooth there."""
    if session.op.sees_seed:
        return "it draws from a random state"
    values = [map_nested(value, _as_double) for value in session.values(sample)]
    try:
        with strict_numbers():
            if _why_no_derivative(session, sample):
                return "no derivatives there"
            problem = _problem(session, values)
    except Exception:  # noqa: BLE001  # values that the kernel does not take
        return "the kernel refuses these values"
    if not np.isfinite(problem.value).all():
        return "the kernel refuses these values"
    if not all(map(_is_wide, problem.outputs.arrays)):
        return "the results are too short for differences"
    check(session, problem, _STEP * max(1.0, float(np.abs(problem.start).max())))
    return ""


def _check_adjoint(session: Session, problem: Problem, step: float) -> None:
    """The gradient along one direction; all of it where that is wrong."""
    direction = _random(problem.inputs.size)
    cotangent = _random(problem.outputs.size, _SEED + 1)
    expected = float(cotangent @ difference(problem, step)(direction))
    found = float(adjoint(problem)[0](cotangent) @ direction)
    if _is_near(found, expected) or not _is_smooth_over(problem, step):
        return
    with _remedy(session, problem.rule):
        check_derivatives(problem, _bounded(session, CheckOptions(eps=step)))


def _is_near(found: float, expected: float) -> bool:
    return bool(abs(found - expected) <= _ATOL + _RTOL * abs(expected))


def _is_smooth_over(problem: Problem, step: float) -> bool:
    """Whether slopes of both sides and over a longer step agree: at a kink they do not."""
    direction = _random(problem.inputs.size)
    slopes = [
        (problem.at(problem.start + h * direction) - problem.value) / h
        for h in (step, -step, 10 * step)
    ]
    scale = np.abs(slopes[0]) + 1e-6 * np.abs(problem.value) + 0.1
    return all(np.all(np.abs(s - slopes[0]) <= 3e-4 * scale) for s in slopes[1:])


# ---- test_jvp ----


def check_jvp(session: Session, sample: Sample) -> str:
    """The tangent is that of the values, by differences and by the gradient."""
    op = session.op
    if sample.note and op.find_rule(JVP) is not None:
        return _check_there(session, sample, _check_pushforward)
    has_formula = op.find_rule(AUTOGRAD) is not None
    if op.find_rule(JVP) is None:
        if not has_formula:
            return "no jvp rule, and no autograd rule to transpose"
        return "no jvp rule: it follows from the autograd rule, see test_gradients"
    problem = _smooth(session, sample)
    if isinstance(problem, str):
        return problem
    direction = _random(problem.inputs.size)
    tangent = _check_tangent(session, problem, direction)
    if len(problem.inputs.arrays) > 1:
        values = [map_nested(value, _as_double) for value in session.values(sample)]
        point = placer(values, is_floats)(problem.inputs.arrays)
        for name, block in zip(
            problem.inputs.labels, problem.inputs.blocks, strict=True
        ):
            alone = _problem(session, point, [name])
            _check_tangent(session, alone, direction[block])
    if has_formula:
        _check_transposed(problem, direction, tangent)
    _check_short_tangents(session, sample)
    return ""


def _check_short_tangents(session: Session, sample: Sample) -> None:
    """Tangents of short results are as short: the engine refuses others."""
    values = [map_nested(value, _as_single) for value in session.values(sample)]
    about_to_run(lambda: call_of(session.op.schema, values))
    try:
        with strict_numbers():
            call, chosen = _function(session, values)
            primals = tuple(chosen.values())
            out = call(*primals)
    except Exception:  # noqa: BLE001  # a dtype that the kernel refuses
        return
    if not any(map(_is_wide, out)):
        jvp(call, primals, tuple(map(np.ones_like, primals)))


def _check_pushforward(session: Session, problem: Problem, step: float) -> None:
    if _is_smooth_over(problem, step):
        _check_tangent(session, problem, _random(problem.inputs.size), step)


def _check_tangent(
    session: Session, problem: Problem, direction: Vector, step: float = _STEP
) -> Vector:
    """Raise unless the tangent along a direction is the difference; the tangent."""
    found = pushforward(problem)(direction)
    expected = difference(problem, step)(direction)
    for i, block in enumerate(problem.outputs.blocks):
        a, b = found[block], expected[block]
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        if not np.all(np.abs(a - b) <= 1e-5 * scale + 1e-4 * np.abs(b)):
            names = problem.inputs.labels
            raise Fault(
                f"has a wrong tangent of output {i} along {', '.join(names)}",
                f"{a.tolist()}",
                f"by differences {b.tolist()}",
                do=f"correct the rule of @{session.op.name}.register_jvp",
                parameter=_parameter(names[0]),
            )
    return found


def _check_transposed(problem: Problem, direction: Vector, tangent: Vector) -> None:
    """A cotangent of a tangent is a gradient along the direction."""
    cotangent = _random(problem.outputs.size)
    forward = float(cotangent @ tangent)
    backward = float(adjoint(problem)[0](cotangent) @ direction)
    if not np.isclose(forward, backward, rtol=1e-6, atol=1e-8):
        raise Fault(
            "has a jvp rule that is not the transpose of its autograd formula",
            f"w . jvp(t) is {forward:.6g}, vjp(w) . t is {backward:.6g}",
            do="let both be the derivative of the kernel",
        )
