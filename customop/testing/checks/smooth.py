"""An operator as a function to differentiate, at points where it is smooth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
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
from customop.testing.checks.precision_checks import (
    SINGLE,
    is_precise,
    shaken,
    size_of,
)
from customop.testing.checks.session import (
    Session,
    floats_of,
    is_floats,
    placer,
    same_bits,
)
from customop.testing.close import Space, Vector, random_vector
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import arrays_in, map_values, replaced
from customop.testing.inputs.shrink import Longer, longer
from customop.testing.inputs.variations import SMOOTH, complex_of, specials
from customop.testing.numeric_derivatives import Problem, has_ties, is_level
from customop.testing.quiet import strict_numbers
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp

# ---- an operator as a function to differentiate, at points where it is smooth ----


SEED = 20
STEP = 1e-6


@lru_cache(maxsize=64)
def fixed_random(size: int, seed: int = SEED) -> Vector:
    """Return a vector with no component near zero. Making one takes 15 us."""
    return random_vector(size, np.random.default_rng(seed))


# ---- the operator as a function of its floating-point arrays ----


def function_of(
    session: Session, values: Sequence[Any], moving: Sequence[str] | None = None
) -> tuple[Callable[..., tuple[Any, ...]], dict[str, Any]]:
    """Return the operator as a function of some float arrays, and these arrays.

    By default these are the arrays by which it has derivatives. The function returns
    the outputs that are floating-point arrays.
    """
    arrays = floats_of(session.op, values)
    if moving is None:
        chosen = session.floats(values) if session.fixed else arrays
    else:
        chosen = {name: arrays[name] for name in moving}
    return _FloatFunction(session, values, arrays, chosen).call, chosen


class _FloatFunction:
    """An operator as a function of some of its floating-point arrays.

    Transforms search the closures of functions. A method has no closure to search.
    """

    __slots__ = ("_arrays", "_check_time", "_chosen", "_is_whole", "_op", "_put")

    def __init__(
        self,
        session: Session,
        values: Sequence[Any],
        arrays: dict[str, Any],
        chosen: dict[str, Any],
    ) -> None:
        self._op: Operator[..., Any] = session.op
        self._check_time = session.check_time
        self._put = placer(values, is_floats)
        self._arrays = arrays
        self._chosen = chosen
        self._is_whole = len(chosen) == len(arrays)

    def call(self, *given: Any) -> tuple[Any, ...]:
        """Return the outputs that are floating-point arrays."""
        self._check_time()
        if not self._is_whole:
            moved = dict(zip(self._chosen, given, strict=True))
            given = tuple({**self._arrays, **moved}.values())
        out = self._op.invoke(self._put(given))
        if type(out) is np.ndarray and out.dtype.kind in "fc":
            return (out,)
        return tuple(filter(is_float_array, flat(out)))


def gradients_of(session: Session, sample: Sample) -> dict[str, Any]:
    """Return gradients of the sum of all results, by place; computed once."""
    found: dict[str, Any] = session.once(
        "gradients", sample, lambda: made_gradients(session, sample)
    )
    return found


def made_gradients(
    session: Session, sample: Sample, moving: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return gradients of the sum of all results, by all or some of the arrays.

    The operator runs once: a second call could draw other random numbers.
    """
    call, chosen = function_of(session, session.values(sample), moving)
    out, pullback = vjp(call, *chosen.values())
    gradients = pullback(tuple(map(ones_like, out)))
    return dict(zip(chosen, gradients, strict=True))


def ones_like(leaf: Any) -> Any:
    """Return the cotangent of a result that gives the gradient of its sum."""
    if type(leaf) is np.ndarray:  # the operator takes ten times as long
        return np.ones_like(leaf)
    return call_numpy(np.ones_like, leaf)


def problem_of(
    session: Session, values: Sequence[Any], moving: Sequence[str] | None = None
) -> Problem:
    """Return the operator as a function of vectors, near these parameter values."""
    call, chosen = function_of(session, values, moving)
    return Problem(call, Space(chosen, chosen.values()), rule="gradient")


def is_float_array(leaf: Any) -> bool:
    """Return whether a leaf of a result is an array that has derivatives."""
    if type(leaf) is np.ndarray:
        return leaf.dtype.kind in "fc"
    return is_array(leaf) and is_inexact(leaf.dtype)


def as_double(leaf: Any) -> Any:
    """Convert short floats to the precision that differences need."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fc":
        return leaf
    if leaf.dtype.char in "dD" and leaf.dtype.isnative and leaf.flags.c_contiguous:
        return leaf
    return np.array(leaf, np.result_type(leaf.dtype, np.float64), order="C")


def why_no_derivative(session: Session, sample: Sample) -> str:
    """Return why the operator has no derivatives at a sample, or ""."""
    if session.op.schema.written:
        return f"it writes {', '.join(session.op.schema.written)}"
    if not session.floats(session.bound(sample)):
        return "no argument is an array of floats"
    run = session.expected(sample)
    if not any(is_float_array(leaf) for _, leaf in run.effects):
        return "no result is an array of floats"
    return ""


def is_wide(leaf: Any) -> bool:
    """Return whether an array has a longer dtype than float32."""
    return _is_wide(leaf.dtype)


@lru_cache(maxsize=64)
def _is_wide(dtype: Any) -> bool:
    return bool(np.finfo(dtype).bits > np.finfo(np.float32).bits)


def as_single(leaf: Any) -> Any:
    """Convert floats to the precision of float32."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fc":
        return leaf
    return leaf.astype(np.complex64 if leaf.dtype.kind == "c" else np.float32)


def as_single_complex(leaf: Any) -> Any:
    """Convert floats to complex numbers of the precision of float32."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fc":
        return leaf
    return complex_of(leaf).astype(np.complex64)


def check_single(
    values: Sequence[Any],
    what: str,
    places: Sequence[str],
    found: Sequence[Any],
    wide: Callable[[Callable[[Any], Any]], Sequence[Any]],
) -> None:
    """Check derivatives in float32 against those of the same numbers in float64.

    ``wide(change)`` returns the latter for changed arguments and directions.
    """

    def nearby(index: int) -> Iterator[Any]:
        for shake in shaken(SINGLE):
            try:
                with strict_numbers():
                    yield wide(lambda leaf, f=shake: f(as_double(leaf)))[index]  # type: ignore[misc]  # called at once
            except Exception:  # noqa: BLE001  # numbers that the kernel refuses
                yield None

    try:
        with strict_numbers():
            expected = wide(as_double)
    except Exception:  # noqa: BLE001  # float64 that the kernel refuses
        return
    size = size_of(values)
    for i, (place, a, b) in enumerate(zip(places, found, expected, strict=True)):
        short, long = np.asarray(a), np.asarray(b)
        if short.shape == long.shape and not is_precise(
            short, long, size, partial(nearby, i)
        ):
            raise Fault(
                f"has another {what} for float32 than for the same numbers in float64,"
                f" at '{place}'",
                f"{short.tolist()} and {long.tolist()}" if short.size < _SHOWN else "",
                do="compute it alike for all dtypes, and in the dtype of the arguments",
                parameter=parameter_of(place),
            )


# How many numbers a message shows.
_SHOWN = 10


# ---- away from kinks ----


def smooth_problem(session: Session, sample: Sample) -> Problem | str:
    """Return the function to differentiate at a smooth point, or why to skip it."""
    found = _smooth_problem(session, sample)
    session.once(_POINT, sample, lambda: _point_of(found))
    return found


# The floating-point arrays at a smooth point of a sample, or None.
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
        return "differences from both sides disagree: it has a kink, a jump or an edge there"
    if point is not problem.start:
        values = at_point(session, values, problem, problem.inputs.split(point))
        problem = problem_of(session, values)
    return problem


def at_point(
    session: Session, values: Sequence[Any], problem: Problem, moved: Sequence[Any]
) -> list[Any]:
    """Return the values of all parameters, with other arrays for a problem."""
    arrays = floats_of(session.op, values)
    arrays.update(zip(problem.inputs.labels, moved, strict=True))
    return placer(values, is_floats)([*arrays.values()])


_ATTEMPTS = 5
# The longer step detects a kink nearby. Over the shorter one, rounding leaves four
# digits of a slope.
_STEPS = (1e-4, 1e-6)


def _smooth_point(problem: Problem) -> Vector | None:
    """Return inputs at which the function is smooth, the given ones or nearby, or None.

    At a kink, forward and backward differences differ more than curvature explains:
    they still differ when the step gets shorter.
    """
    point = problem.start
    for point in _points_near(problem):
        try:
            if _is_smooth(problem, point):
                return point
        except Exception:  # noqa: BLE001, S112  # another shape, or out of the domain
            continue
    return None


def _points_near(problem: Problem) -> Iterator[Vector]:
    """Yield the inputs themselves, then others: at random, and further inside."""
    start = problem.start
    yield start
    reach = _reach(problem)
    for attempt in range(1, _ATTEMPTS):
        rng = np.random.default_rng(SEED + attempt)
        yield start + 0.05 * attempt * rng.uniform(-1, 1, start.size) * reach
    # At the edge of the domain, such as 0 for a square root, a random shift may lead out
    # of it. Numbers between the others are in it more often.
    inside = fixed_random(start.size) * 0.03 + 0.1
    yield start + inside * (start.mean() - start)
    for sign in (1.0, -1.0):
        yield start + sign * inside * reach


def _reach(problem: Problem) -> Vector:
    """Return how far to move each component: its size plus a share of the greatest."""
    sizes = np.abs(problem.start)
    reach = sizes.copy()
    for block in problem.inputs.blocks:
        reach[block] += 0.1 * (float(sizes[block].max(initial=0.0)) or 1.0)
    return reach


def _is_smooth(problem: Problem, point: Vector) -> bool:
    """Return whether slopes agree over two steps and on both sides."""
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
    if not np.all(apart <= 0.02 * scale):
        return False
    if point is not problem.start or not has_ties(problem):
        return True
    return is_level(problem, direction, STEP, slopes[0])


# ---- at special values ----


def at_special_values(
    kind: RuleKind, session: Session, sample: Sample
) -> Iterator[Sample]:
    """Yield the sample, then variations of it if the operator is smooth near it.

    The variations check the rule of this kind. Without a rule there are none.
    """
    yield sample
    if session.op.find_rule(kind) is None:
        return
    point = _smooth_near(session, sample)
    if point is not None:
        for special in specials(session.op, sample, SMOOTH):
            # If the point is the sample itself, everything was checked there already.
            if not _is_same(session, special, sample, point):
                yield special
        yield from _with_one_number(session, sample)
        yield from with_longer_axes(session, sample)


def _with_one_number(session: Session, sample: Sample) -> Iterator[Longer]:
    """Yield the sample with one number for several axes of its last array, if it fits.

    The gradient is summed over all of these axes.
    """
    arrays = [(p, x) for p, x, _ in arrays_in(session.op, sample)]
    place, x = arrays[-1] if len(arrays) > 1 else ("", np.zeros(()))
    if sum(n > 1 for n in x.shape) > 1 and not session.keeps_shapes:
        one = {place: x[(slice(0, 1),) * x.ndim]}
        made = replaced(session.op, sample, one, f"axes of length one in '{place}'")
        if session.oracle(sample).takes_as_announced(made):
            yield Longer(made, is_declared=False)


def _smooth_near(session: Session, sample: Sample) -> tuple[Any, ...] | None:
    """Return the floating-point arrays at the smooth point of a sample, or None."""

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
    """Return whether special values equal the sample and its smooth point."""
    values, given = session.bound(special), session.bound(sample)
    if not all(map(same_bits, flat([*values]), flat([*given]))):
        return False
    floats = session.floats(map_values(as_double, given)).values()
    return all(map(same_bits, floats, point))


def with_longer_axes(session: Session, sample: Sample) -> Iterator[Longer]:
    """Yield the sample with longer axes, unless another sample has them."""
    found = session.once(
        "longer",
        sample,
        lambda: longer(session.op, sample, session.samples, session.oracle(sample)),
    )
    if found is not None:
        yield found


def at_other_lengths(session: Session, sample: Sample, work: Callable[[], str]) -> str:
    """Run a check at other lengths; an error may become a note.

    A kernel for three columns often accepts four and reads three. Its rules may refuse
    such lengths, but what they return must be right.
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
    """Check derivatives exactly at a sample, if the function is smooth there."""

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


def parameter_of(place: str) -> str:
    """Return the parameter of a place, such as ``arrays`` for ``arrays[0]``."""
    return re.split(r"[\[.]", place)[0]


# ---- arguments by which an operator declares that it has no derivative ----


def without_derivative(session: Session, sample: Sample) -> dict[str, str]:
    """Return for each place without a derivative the reason, at these values.

    Each derivative is requested alone; its formula raises `NoDerivativeError`.
    """
    found = {}
    for name in floats_of(session.op, session.bound(sample)):
        try:
            _derive(session, sample, name)
        except NoDerivativeError as error:
            found[name] = error.what
    return found


def _derive(session: Session, sample: Sample, name: str) -> Any:
    """Return the derivative of all results by one argument."""
    call, chosen = function_of(session, session.values(sample), [name])
    if session.op.find_rule(AUTOGRAD) is None:
        primals = (*chosen.values(),)
        return jvp(call, primals, tuple(map(np.ones_like, primals)))
    out, pullback = vjp(call, *chosen.values())
    return pullback(tuple(map(ones_like, out)))
