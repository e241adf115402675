"""Checks of the rules of transforms: vmap, autograd and jvp."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import lru_cache
from typing import Any, Self

import numpy as np

from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import flat
from customop.core.builtin_kinds import AUTOGRAD, JVP, VMAP
from customop.core.rule_kind import COMPOSITE
from customop.core.samples import Sample
from customop.errors import (
    ContractError,
    CustomOpError,
    DataDependentError,
    MissingRuleError,
    NoDerivativeError,
    VmapError,
)
from customop.schema.tags import Tag
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    outputs_of,
    placer,
    same_bits,
)
from customop.testing.checks.smooth import (
    SEED,
    STEP,
    as_double,
    as_single,
    at_other_lengths,
    at_point,
    check_there,
    fixed_random,
    function_of,
    gradients_of,
    is_smooth_over,
    is_wide,
    made_gradients,
    ones_like,
    parameter_of,
    problem_of,
    smooth_problem,
    why_no_derivative,
    with_longer_axes,
)
from customop.testing.close import Vector
from customop.testing.inputs.sample_values import map_values
from customop.testing.inputs.shrink import Longer
from customop.testing.inputs.templates import call_of
from customop.testing.numeric_derivatives import (
    CheckOptions,
    Linear,
    Problem,
    adjoint,
    check_batched,
    check_derivatives,
    difference,
    pushforward,
    same_vector,
    second_problem,
)
from customop.testing.quiet import Fault, about_to_run, strict_numbers
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp
from customop.transforms.vmap import vmap

# ---- the check of an operator's vmap rule against a loop over the rows ----


# The most combinations of in_dims that are tried.
_MOST_COMBINATIONS = 24
# Up to so many arrays, all combinations of first axis, last axis and None are tried.
_FEW_ARRAYS = 3

_DO = (
    "the batch axis of each argument is its entry among in_dims (None for one that is"
    " the same for all rows), and that of the result is out_dims"
)


def in_lengths(session: Session, sample: Sample) -> Iterator[Sample]:
    """Yield the sample, and with a vmap rule also the sample with longer axes."""
    yield sample
    op = session.op
    if op.find_rule(VMAP) is not None and not op.sees_seed:
        yield from with_longer_axes(session, sample)


def check_vmap(session: Session, sample: Sample) -> str:
    """Check that the vmap rule gives what a loop over the rows gives."""
    if isinstance(sample, Longer):
        return _check_longer(session, sample)
    op = session.op
    if op.find_rule(VMAP) is None:
        is_composite = COMPOSITE in op.rows
        return "made of operators" if is_composite else "no vmap rule: a loop is exact"
    arrays = arrays_of(session.bound(sample))
    if not arrays:
        return "no argument is an array"
    function = _RowFunction(session, sample)
    if op.sees_seed:
        _check_randomness(function)
        return ""
    # Rows and results depend on which arrays are batched, but not along which axis.
    known: dict[tuple[bool, ...], _BatchRows] = {}
    for dims in _combinations(tuple([leaf.ndim for leaf in arrays])):
        batched = tuple(d is not None for d in dims)
        if batched not in known:
            known[batched] = _BatchRows(function, batched, 2)
        _check_dims(known[batched], dims)
    first = (0,) * len(arrays)
    every = (True,) * len(arrays)
    for size in (1, 0):
        _check_dims(known[every].first(size), first)
    for unlike in (_with_nan, _short):
        _check_unlike(function, unlike)
    if not op.schema.written and Tag.dynamic_output_shape not in op.tags:
        _check_out_dims(known[every])
        _check_nested(_BatchRows(function, every, 4))
    return ""


def _check_longer(session: Session, sample: Longer) -> str:
    """Batch all arrays along their first axes; usual lengths check the others."""
    count = len(arrays_of(session.bound(sample)))
    rows = _BatchRows(_RowFunction(session, sample), (True,) * count, 2)

    def work() -> str:
        _check_dims(rows, (0,) * count)
        return ""

    return at_other_lengths(session, sample, work)


@lru_cache(maxsize=64)
def _combinations(ranks: tuple[int, ...]) -> list[tuple[int | None, ...]]:
    """List batch axes to try: each axis of one array, 0 or None for the others."""
    count = len(ranks)
    found: list[tuple[int | None, ...]] = [(0,) * count]
    if count > 1:  # each array along another axis
        found += [
            tuple((i + k) % (rank + 1) for i, rank in enumerate(ranks)) for k in (1, 2)
        ]
    found += (
        (*(rest,) * i, axis, *(rest,) * (count - i - 1))
        for i, rank in enumerate(ranks)
        for axis in (*range(rank + 1), -1, None)
        for rest in (0, None)
    )
    if 1 < count <= _FEW_ARRAYS:
        found += itertools.product([0, -1, None], repeat=count)
    # Rules get axes counted from the start, so -1 only repeats the last axis.
    kept: dict[tuple[int | None, ...], tuple[int | None, ...]] = {}
    for dims in found:
        pairs = zip(dims, ranks, strict=True)
        key = tuple([d if d is None else d % (rank + 1) for d, rank in pairs])
        kept.setdefault(key, dims)
    kept.pop((None,) * count, None)
    return [*kept.values()][:_MOST_COMBINATIONS]


class _RowFunction:
    """The operator as a function from its arrays to the arrays among its results."""

    def __init__(self, session: Session, sample: Sample) -> None:
        self.session = session
        self.sample = sample
        values = session.values(sample)
        self.arrays = arrays_of(values)
        self.put = placer(values, is_array)
        self._made: dict[tuple[Any, int], Callable[..., Any]] = {}

    def call(self, *arrays: Any) -> Any:
        """Return the results for one row."""
        out = self.session.op.invoke(self.put(arrays))
        if is_array(out):  # an array alone takes two thirds of the time of a tuple
            return out
        leaves = flat(outputs_of(self.session.op, out))
        return tuple([leaf for leaf in leaves if is_array(leaf)])

    def batched(self, dims: Any, out_dims: int = 0) -> Callable[..., Any]:
        """Return the function under vmap. It is made once for the same axes."""
        key = dims, out_dims
        if key not in self._made:
            self._made[key] = vmap(self.call, dims, out_dims)
        return self._made[key]

    def remedy(self, more: str = "") -> str:
        """Return the advice for a wrong rule."""
        return f"correct the rule of @{self.session.op.name}.register_vmap: {more}{_DO}"


class _BatchRows:
    """Rows for the arrays of a call, and what the operator returns for each row.

    Arrays that are not batched are the same in all rows. The others differ as much as
    the kernel allows.
    """

    def __init__(
        self,
        function: _RowFunction,
        batched: Sequence[bool],
        size: int,
        unlike: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self.function = function
        self.session: Session = function.session
        self.size = size
        self.rows: list[list[Any]] = []
        # The results under vmap along the first axis of all arrays, once known.
        self.outs: list[Any] | None = None
        self.runs: list[Run] = (
            self._run(batched) if unlike is None else self._run_rows(batched, unlike)
        )

    def _run(self, batched: Sequence[bool]) -> list[Run]:
        for unlike in (_shuffled, _scaled):
            try:
                return self._run_rows(batched, unlike)
            except Exception:  # noqa: BLE001, S112  # a matrix must be positive, say
                continue
        return self._run_rows(batched, lambda x, _: x.copy())

    def _run_rows(
        self, batched: Sequence[bool], unlike: Callable[[Any, int], Any]
    ) -> list[Run]:
        pairs = list(zip(self.function.arrays, batched, strict=True))
        self.rows = [
            [unlike(np.asarray(x), i) if is_batched else x for x, is_batched in pairs]
            for i in range(self.size)
        ]
        copies = ([x.copy() for x in row] for row in self.rows)
        return [self.session.call(self.function.put(row)) for row in copies]

    def first(self, size: int) -> Self:
        """Return a copy with only the first of these rows."""
        made = copy(self)
        made.size, made.outs = size, None
        made.rows, made.runs = self.rows[:size], self.runs[:size]
        return made

    def stacked(self, dims: Sequence[int | None]) -> list[Any]:
        """Return the arrays of all rows, stacked along these axes."""
        return [
            x.copy() if d is None else _stack([row[k] for row in self.rows], x, d)
            for k, (x, d) in enumerate(zip(self.function.arrays, dims, strict=True))
        ]


def _shuffled(x: Any, i: int) -> Any:
    """Return row `i`: the elements scaled and in another order."""
    line = _scaled(x, i).reshape(-1)
    return np.concatenate((line[i:], line[:i])).reshape(x.shape)


def _scaled(x: Any, i: int) -> Any:
    """Scale floats toward zero, which keeps them in a ball around zero or in a cone."""
    return (x * (1.0 - 0.125 * i)).astype(x.dtype) if x.dtype.kind in "fc" else x.copy()


def _with_nan(x: Any, i: int) -> Any:
    """Return row `i`; the second row contains nan."""
    out = _shuffled(x, i)
    if i and x.dtype.kind in "fc":
        out.reshape(-1)[:1] = np.nan
    return out


def _short(x: Any, i: int) -> Any:
    """Return row `i` as float32, if the array is of floats."""
    out = _shuffled(x, i)
    return out.astype(np.float32) if x.dtype.kind == "f" else out


def _check_unlike(function: _RowFunction, unlike: Callable[[Any, int], Any]) -> None:
    """Check rows with other values or dtypes: each gives what it gives alone."""
    if not any(x.dtype.kind in "fc" for x in function.arrays):
        return
    count = len(function.arrays)
    try:
        rows = _BatchRows(function, (True,) * count, 2, unlike)
    except Exception:  # noqa: BLE001  # values that the kernel does not take
        return
    _check_dims(rows, (0,) * count)


def _stack(rows: Sequence[Any], like: Any, dim: int) -> Any:
    axis = dim % (like.ndim + 1)
    if rows:
        at = (*(slice(None),) * axis, None)
        return np.concatenate([x[at] for x in rows], axis)  # np.stack takes four times
    return np.zeros((*like.shape[:axis], 0, *like.shape[axis:]), like.dtype)


# ---- along which axes ----


def _check_dims(rows: _BatchRows, dims: Sequence[int | None]) -> None:
    """Check that every row gives what it gives alone."""
    arrays = rows.stacked(dims)
    outs = _batched(rows, dims, arrays)
    if outs is None:
        return
    if not any(dims):
        rows.outs = outs
    found = [*outs, *_written(rows, dims, arrays)]
    for i, run in enumerate(rows.runs):
        _compare_row(rows, dims, run, [leaf[i] for leaf in found], i)


def _batched(
    rows: _BatchRows, dims: Sequence[int | None], arrays: Sequence[Any]
) -> list[Any] | None:
    """Return the results under vmap, or None if it may refuse these arguments."""
    op = rows.session.op
    try:
        # A single array along its first axis takes a shorter path.
        outs = rows.function.batched(0 if dims == (0,) else tuple(dims))(*arrays)
    except (VmapError, DataDependentError):
        # An array shared by all rows cannot be written. Uneven rows cannot be stacked.
        if op.schema.written or Tag.dynamic_output_shape in op.tags:
            return None
        raise
    except CustomOpError as error:
        if rows.size == 0 and not isinstance(error, ContractError):
            return None
        raise
    except Exception as error:
        if rows.size == 0:  # a maximum, say, needs at least one row
            return None
        raise Fault(
            f"raises {type(error).__name__} under vmap with in_dims=({_text(dims)}),"
            f" and not for each row alone: {error}",
            do=rows.function.remedy(),
        ) from error
    return _each(outs)


def _each(outs: Any) -> list[Any]:
    """List the results of a `_RowFunction` under vmap."""
    return [outs] if is_array(outs) else [*outs]


def _text(dims: Sequence[int | None]) -> str:
    return ", ".join(map(str, dims))


def _written(
    rows: _BatchRows, dims: Sequence[int | None], arrays: Sequence[Any]
) -> list[Any]:
    """Return the written arrays with the batch axis first."""
    if not rows.session.op.schema.written:
        return []
    values = rows.session.bound(rows.function.sample)
    pairs = zip(rows.session.op.schema.parameters, values, strict=True)
    flags = [p.is_written for p, value in pairs for _ in arrays_of([value])]
    return [
        np.moveaxis(x, dim or 0, 0)
        for x, dim, is_written in zip(arrays, dims, flags, strict=True)
        if is_written
    ]


def _compare_row(
    rows: _BatchRows, dims: Sequence[int | None], run: Run, found: Sequence[Any], i: int
) -> None:
    expected = [pair for pair in run.effects if is_array(pair[1])]
    if len(found) != len(expected):
        raise Fault(
            f"gives {len(found)} results under vmap, {len(expected)} without", do=_DO
        )
    for a, (name, b) in zip(found, expected, strict=True):
        if not same_bits(a, b):
            rows.session.compare_leaf(
                name,
                np.asarray(a),
                np.asarray(b),
                f"between row {i} under vmap with in_dims=({_text(dims)}) and that row"
                " alone",
                do=rows.function.remedy(),
            )


def _check_out_dims(rows: _BatchRows) -> None:
    """Check that `out_dims` moves the batch axis of the results."""
    arrays = rows.stacked((0,) * len(rows.function.arrays))
    outs = rows.outs
    expected = _each(rows.function.batched(0)(*arrays)) if outs is None else outs
    ranks = {leaf.ndim for leaf in expected}
    for axis in (-1, min(ranks) - 1) if len(ranks) > 1 else (-1,):
        found = _each(rows.function.batched(0, axis)(*arrays))
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            moved = np.moveaxis(b, 0, axis)
            if not same_bits(a, moved):
                rows.session.compare_leaf(
                    f"output {i}",
                    np.asarray(a),
                    moved,
                    f"between out_dims={axis} and out_dims=0",
                    do=rows.function.remedy(),
                )


def _check_nested(rows: _BatchRows) -> None:
    """Check that vmap of vmap gives the same rows."""
    arrays = rows.stacked((0,) * len(rows.function.arrays))
    squares = [x.reshape(2, 2, *x.shape[1:]) for x in arrays]
    found = _each(vmap(rows.function.batched(0))(*squares))
    for i, run in enumerate(rows.runs):
        expected = [leaf for _, leaf in run.effects if is_array(leaf)]
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            row = np.asarray(a[i // 2, i % 2])
            if not same_bits(row, b):
                rows.session.compare_leaf(
                    f"output {k}",
                    row,
                    np.asarray(b),
                    f"between row ({i // 2}, {i % 2}) under vmap of vmap and that row"
                    " alone",
                    do=rows.function.remedy(
                        "call operators in it, and count axes from in_dims; "
                    ),
                )


# ---- random operators ----


def _check_randomness(function: _RowFunction) -> None:
    """Check that ``"error"`` raises, and ``"same"`` draws the same in all rows."""
    stacked = [np.stack([x, x]) for x in function.arrays]
    try:
        vmap(function.call)(*stacked)
    except VmapError:
        pass
    else:
        raise Fault(
            "draws random numbers under vmap with randomness='error'",
            do="let the rule call random operators, which raise there",
        )
    vmap(function.call, randomness="different")(*stacked)
    same = _each(vmap(function.call, randomness="same")(*stacked))
    for i, leaf in enumerate(same):
        function.session.compare_leaf(
            f"output {i}",
            np.asarray(leaf[1]),
            np.asarray(leaf[0]),
            "between rows of equal values with randomness='same'",
            do="look at info.randomness in the rule",
        )


# Registration, gradients of first and second order.


# ---- test_autograd_registration ----


def check_autograd_registration(session: Session, sample: Sample) -> str:
    """Check that the gradient formula works and the kernel itself tracks nothing."""
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
    """Check that gradients of short floats are short too: the engine refuses others."""
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
    """Check that a gradient does not depend on which other gradients are requested."""
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


# A batch runs the same formula, so that only rounding may differ.
_EXACT = CheckOptions(rtol=1e-7, atol=1e-7)


def _check_formula(
    session: Session, problem: Problem, size: int, gradient: Vector
) -> None:
    """Check a gradient; its value for one fixed cotangent is known already."""
    if _are_differences(problem, size, gradient):
        return
    is_large = problem.inputs.size * problem.outputs.size > _MOST_ENTRIES
    with _remedy(session, problem.rule):
        check_derivatives(problem, _bounded(session, CheckOptions(fast=is_large)))


# Jacobians with more entries than this are compared along directions.
_MOST_ENTRIES = 100_000


def _bounded(session: Session, options: CheckOptions) -> CheckOptions:
    """Return the options with the bounds of the session, if it has any."""
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
    """Complete the faults of a formula: add advice, and name the parameter."""
    try:
        yield
    except Fault as fault:
        fault.do = _REMEDIES[rule].format(session.op.name)
        fault.parameter = parameter_of(fault.parameter)
        raise


# Tolerances for a derivative against its difference.
_RTOL, _ATOL = 1e-4, 1e-5
# How many components are moved one by one. Larger arrays use a sample of them, and very
# large arrays a smaller sample.
_MOST_COMPONENTS = 24
_LARGE = 10_000


def _are_differences(problem: Problem, size: int, gradient: Vector) -> bool:
    """Return whether the gradient matches differences in the first `size` components.

    This takes one random cotangent. The full comparison, which runs if this one fails,
    takes one for each component of the outputs. If a one-sided difference agrees, that
    is enough and saves half of the time: its error is the curvature times a millionth.
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
    """Return whether `found` is the slope along a direction of a sum of outputs."""
    cotangent = fixed_random(problem.outputs.size, seed)
    ahead = problem.at(problem.start + step * direction)
    if _is_near(found, float(cotangent @ (ahead - problem.value)) / step):
        return True
    behind = problem.at(problem.start - step * direction)
    return _is_near(found, float(cotangent @ (ahead - behind)) / (2 * step))


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


def _is_slope_along_the_rest(problem: Problem, size: int, gradient: Vector) -> bool:
    """Return whether the gradient matches differences from component `size` on.

    In a second-order problem these are the cotangents, in which it is linear.
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
    """Check the gradient along one direction; if that is wrong, check all of it."""
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
    if not any(map(is_wide, out)):
        jvp(call, primals, tuple(map(np.ones_like, primals)))


def _check_pushforward(session: Session, problem: Problem, step: float) -> None:
    if is_smooth_over(problem, step):
        _check_tangent(session, problem, fixed_random(problem.inputs.size), step)


def _check_tangent(
    session: Session, problem: Problem, direction: Vector, step: float = STEP
) -> Vector:
    """Return the tangent along a direction; raise if it differs from the difference."""
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
                parameter=parameter_of(names[0]),
            )
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
