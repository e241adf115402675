"""An operator as a function to differentiate, where it is smooth and has derivatives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from customop.arrays.array import is_inexact
from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.arrays.numpy_functions import call_numpy
from customop.core.builtin_kinds import AUTOGRAD
from customop.core.operator import Operator
from customop.core.rule_kind import RuleKind
from customop.core.samples import Sample, call_text
from customop.errors import NoDerivativeError
from customop.testing.checks.session import (
    Session,
    floats_of,
    is_floats,
    placer,
    same_bits,
)
from customop.testing.close import Space, Vector, random_vector
from customop.testing.inputs.sample_values import map_values
from customop.testing.inputs.shrink import Longer, longer
from customop.testing.inputs.variations import SMOOTH, specials
from customop.testing.numeric_derivatives import Problem
from customop.testing.quiet import Fault, strict_numbers
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp

# ---- an operator as a function to differentiate, at points where it is smooth ----


SEED = 20
STEP = 1e-6


@lru_cache(maxsize=64)
def fixed_random(size: int, seed: int = SEED) -> Vector:
    """A vector with no component near zero. To make one takes 15 us."""
    return random_vector(size, np.random.default_rng(seed))


# ---- the operator as a function of its arrays of floats ----


def function_of(
    session: Session, values: Sequence[Any], moving: Sequence[str] | None = None
) -> tuple[Callable[..., tuple[Any, ...]], dict[str, Any]]:
    """The operator as a function of some of its arrays of floats, and these arrays.

    By default of those by which it has derivatives. The function returns the outputs of floats.
    """
    arrays = floats_of(session.op, values)
    if moving is None:
        chosen = session.floats(values) if session.fixed else arrays
    else:
        chosen = {name: arrays[name] for name in moving}
    return _FloatFunction(session.op, values, arrays, chosen).call, chosen


class _FloatFunction:
    """An operator as a function of some of its arrays of floats.

    A method holds no functions, for which transforms search the closures of functions.
    """

    __slots__ = ("_arrays", "_chosen", "_is_whole", "_op", "_put")

    def __init__(
        self,
        op: Operator[..., Any],
        values: Sequence[Any],
        arrays: dict[str, Any],
        chosen: dict[str, Any],
    ) -> None:
        self._op = op
        self._put = placer(values, is_floats)
        self._arrays = arrays
        self._chosen = chosen
        self._is_whole = len(chosen) == len(arrays)

    def call(self, *given: Any) -> tuple[Any, ...]:
        """The outputs of floats."""
        if not self._is_whole:
            moved = dict(zip(self._chosen, given, strict=True))
            given = tuple({**self._arrays, **moved}.values())
        out = self._op.invoke(self._put(given))
        if type(out) is np.ndarray and out.dtype.kind in "fc":
            return (out,)
        return tuple(filter(is_float_array, flat(out)))


def gradients_of(session: Session, sample: Sample) -> dict[str, Any]:
    """Gradients of the sum of all results, by place; done once."""
    found: dict[str, Any] = session.once(
        "gradients", sample, lambda: made_gradients(session, sample)
    )
    return found


def made_gradients(
    session: Session, sample: Sample, moving: Sequence[str] | None = None
) -> dict[str, Any]:
    """The same, by some of the arrays.

    The operator runs once: a second call could draw other random numbers.
    """
    call, chosen = function_of(session, session.values(sample), moving)
    out, pullback = vjp(call, *chosen.values())
    gradients = pullback(tuple(map(ones_like, out)))
    return dict(zip(chosen, gradients, strict=True))


def ones_like(leaf: Any) -> Any:
    """The cotangent of a result for the gradient of its sum."""
    if type(leaf) is np.ndarray:  # the operator takes ten times as long
        return np.ones_like(leaf)
    return call_numpy(np.ones_like, leaf)


def problem_of(
    session: Session, values: Sequence[Any], moving: Sequence[str] | None = None
) -> Problem:
    """The operator as a function of vectors, near these values of its parameters."""
    call, chosen = function_of(session, values, moving)
    return Problem(call, Space(chosen, chosen.values()), rule="gradient")


def is_float_array(leaf: Any) -> bool:
    """Whether a leaf of a result is an array that has derivatives."""
    if type(leaf) is np.ndarray:
        return leaf.dtype.kind in "fc"
    return is_array(leaf) and is_inexact(leaf.dtype)


def as_double(leaf: Any) -> Any:
    """Convert short floats, of a copy, to the precision that differences need."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fc":
        return leaf
    if leaf.dtype.char in "dD" and leaf.dtype.isnative and leaf.flags.c_contiguous:
        return leaf
    return np.array(leaf, np.result_type(leaf.dtype, np.float64), order="C")


def why_no_derivative(session: Session, sample: Sample) -> str:
    """Why the operator has no derivatives at a sample, or nothing."""
    if session.op.schema.written:
        return f"it writes {', '.join(session.op.schema.written)}"
    if not session.floats(session.bound(sample)):
        return "no argument is an array of floats"
    run = session.expected(sample)
    if not any(is_float_array(leaf) for _, leaf in run.effects):
        return "no result is an array of floats"
    return ""


def is_wide(leaf: Any) -> bool:
    """Whether an array holds longer floats than float32."""
    return _is_wide(leaf.dtype)


@lru_cache(maxsize=64)
def _is_wide(dtype: Any) -> bool:
    return bool(np.finfo(dtype).bits > np.finfo(np.float32).bits)


def as_single(leaf: Any) -> Any:
    """Convert floats to the precision of float32."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fc":
        return leaf
    return leaf.astype(np.complex64 if leaf.dtype.kind == "c" else np.float32)


# ---- away from kinks ----


def smooth_problem(session: Session, sample: Sample) -> Problem | str:
    """The function to differentiate at a smooth point, or the reason to skip it."""
    found = _smooth_problem(session, sample)
    session.once(_POINT, sample, lambda: _point_of(found))
    return found


# The arrays of floats at a smooth point of a sample; None where it has none.
_POINT = "point"


def _point_of(found: Problem | str) -> tuple[Any, ...] | None:
    return None if isinstance(found, str) else found.inputs.arrays


def _smooth_problem(session: Session, sample: Sample) -> Problem | str:
    reason = why_no_derivative(session, sample)
    if not reason and session.op.sees_seed:
        reason = "it draws from a random state"
    if reason:
        return reason
    values = map_values(as_double, session.values(sample))
    if not any(x.size for x in session.floats(values).values()):
        return "arrays without elements have no derivative"
    try:
        problem = problem_of(session, values)
    except Exception:  # noqa: BLE001  # whatever the kernel raises for them
        return "the kernel takes no float64, which differences need"
    point = session.once("smooth", sample, lambda: _smooth_point(problem))
    if point is None:
        return "differences from both sides disagree: it has a kink or a jump there"
    if point is not problem.start:
        values = at_point(session, values, problem, problem.inputs.split(point))
        problem = problem_of(session, values)
    return problem


def at_point(
    session: Session, values: Sequence[Any], problem: Problem, moved: Sequence[Any]
) -> list[Any]:
    """The values of all parameters with other arrays for the inputs of a problem."""
    arrays = floats_of(session.op, values)
    arrays.update(zip(problem.inputs.labels, moved, strict=True))
    return placer(values, is_floats)([*arrays.values()])


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
            rng = np.random.default_rng(SEED + attempt)
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
    here = problem.value if point is problem.start else problem.at(point)
    direction = fixed_random(point.size)
    slopes, bends = [], []
    for step in _STEPS:
        ahead = problem.at(point + step * direction)
        behind = problem.at(point - step * direction)
        slopes.append((ahead - behind) / (2 * step))
        bends.append((ahead - 2 * here + behind) / step)
    scale = np.abs(slopes[0]) + 1e-3 * np.abs(here) + 1e-3
    apart = np.abs(slopes[1] - slopes[0]) + np.abs(bends[1])
    return bool(np.all(apart <= 0.02 * scale))


# ---- at special values ----


def at_special_values(
    kind: RuleKind, session: Session, sample: Sample
) -> Iterator[Sample]:
    """The sample; then with special values and longer axes if it is smooth near it.

    They are for a check of the rule of this kind: without it there is nothing to check.
    """
    yield sample
    if session.op.find_rule(kind) is None:
        return
    point = _smooth_near(session, sample)
    if point is not None:
        for special in specials(session.op, sample, SMOOTH):
            # Where the point is the sample itself, all is checked there already.
            if not _is_same(session, special, sample, point):
                yield special
        yield from with_longer_axes(session, sample)


def _smooth_near(session: Session, sample: Sample) -> tuple[Any, ...] | None:
    """The arrays of floats at the smooth point of a sample, if it has one."""

    def point() -> tuple[Any, ...] | None:
        return _point_of(_smooth_problem(session, sample))

    try:
        found: tuple[Any, ...] | None = session.once(_POINT, sample, point)
    except Exception:  # noqa: BLE001  # the check itself reports it
        return None
    return found


def _is_same(
    session: Session, special: Sample, sample: Sample, point: Sequence[Any]
) -> bool:
    """Whether special values are those of a sample, which is smooth at these."""
    values, given = session.bound(special), session.bound(sample)
    if not all(map(same_bits, flat([*values]), flat([*given]))):
        return False
    floats = session.floats(map_values(as_double, given)).values()
    return all(map(same_bits, floats, point))


def with_longer_axes(session: Session, sample: Sample) -> Iterator[Longer]:
    """The sample with longer axes, unless another sample has them."""
    found = session.once(
        "longer",
        sample,
        lambda: longer(session.op, sample, session.samples, session.oracle(sample)),
    )
    if found is not None:
        yield found


def at_other_lengths(session: Session, sample: Sample, work: Callable[[], str]) -> str:
    """Run a check; an error is a note where only the kernel says that a length is meant.

    A kernel for three columns often takes four, of which it reads three. Its rules may
    refuse them, but what they give must be right.
    """
    try:
        return work()
    except Exception as error:
        is_wrong = isinstance(error, Fault) and error.__cause__ is None
        if is_wrong or not isinstance(sample, Longer) or sample.is_declared:
            raise
        cause = error.__cause__ if isinstance(error, Fault) else error
        shown = call_text(session.op.name, sample)
        session.notes.append(f"at {shown} a rule raises {type(cause).__name__}")
        return ""


def check_there(
    session: Session, sample: Sample, check: Callable[[Session, Problem, float], None]
) -> str:
    """Check derivatives at the very values of a sample, if the function is smooth there."""

    def work() -> str:
        return _check_there(session, sample, check)

    is_longer = isinstance(sample, Longer)
    return at_other_lengths(session, sample, work) if is_longer else work()


def _check_there(
    session: Session, sample: Sample, check: Callable[[Session, Problem, float], None]
) -> str:
    if session.op.sees_seed or session.op.schema.written:
        return "it draws from a random state, or writes"
    values = map_values(as_double, session.values(sample))
    try:
        with strict_numbers():
            problem = problem_of(session, values)
    except Exception:  # noqa: BLE001  # values that the kernel does not take
        return "the kernel refuses these values"
    if not (problem.inputs.arrays and problem.outputs.arrays):
        return "no derivatives there"
    if not np.isfinite(problem.value).all():
        return "the kernel refuses these values"
    if not all(map(is_wide, problem.outputs.arrays)):
        return "the results are too short for differences"
    check(session, problem, STEP * max(1.0, float(np.abs(problem.start).max())))
    return ""


def is_smooth_over(problem: Problem, step: float) -> bool:
    """Whether slopes of both sides and over a longer step agree: at a kink they do not."""
    direction = fixed_random(problem.inputs.size)
    slopes = [
        (problem.at(problem.start + h * direction) - problem.value) / h
        for h in (step, -step, 10 * step)
    ]
    scale = np.abs(slopes[0]) + 1e-6 * np.abs(problem.value) + 0.1
    return all(np.all(np.abs(s - slopes[0]) <= 3e-4 * scale) for s in slopes[1:])


def parameter_of(place: str) -> str:
    """The name of the parameter that holds a place such as ``arrays[0]``."""
    return re.split(r"[\[.]", place)[0]


# ---- the arguments by which an operator says that it has no derivative ----


def without_derivative(session: Session, sample: Sample) -> dict[str, str]:
    """Place of an argument -> why the call has no derivative by it at these values.

    Each is asked for alone: its formula raises `NoDerivativeError`.
    """
    found = {}
    for name in floats_of(session.op, session.bound(sample)):
        try:
            _derive(session, sample, name)
        except NoDerivativeError as error:
            found[name] = error.what
    return found


def _derive(session: Session, sample: Sample, name: str) -> Any:
    """The derivative of all results by one argument."""
    call, chosen = function_of(session, session.values(sample), [name])
    if session.op.find_rule(AUTOGRAD) is None:
        primals = (*chosen.values(),)
        return jvp(call, primals, tuple(map(np.ones_like, primals)))
    out, pullback = vjp(call, *chosen.values())
    return pullback(tuple(map(ones_like, out)))
