"""Checks of derivatives: gradients of first and second order, tangents."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat, map_nested
from customop.core.kinds import AUTOGRAD, JVP
from customop.core.samples import Sample
from customop.errors import DataDependentError, MissingRuleError, OpCheckError
from customop.testing.checks.trial import (
    Fault,
    Trial,
    floats_of,
    is_floats,
    named_floats,
    placer,
)
from customop.testing.gradcheck import gradcheck, gradgradcheck
from customop.testing.vectors import Vector
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp
from customop.transforms.vmap import vmap

__all__ = ["check_gradients", "check_jvp"]


# ---- the operator as a function of its arrays of floats ----


class _Function(NamedTuple):
    """An operator as a function of its arrays of floats, all else held fast."""

    call: Callable[..., tuple[Any, ...]]
    inputs: list[Any]
    names: list[str]


def _function(trial: Trial, sample: Sample) -> _Function:
    op = trial.op
    values = [map_nested(value, _as_double) for value in trial.values(sample)]
    named = named_floats(op, values)
    put = placer(values, is_floats)

    def call(*arrays: Any) -> tuple[Any, ...]:
        out = op.invoke(put(arrays))
        return tuple(leaf for leaf in flat(out) if is_array(leaf) and _is_inexact(leaf))

    return _Function(call, [leaf for _, leaf in named], [name for name, _ in named])


def _as_double(leaf: Any) -> Any:
    """Arrays of floats with the precision that differences need, free to be moved."""
    if not is_floats(leaf) or not isinstance(leaf, np.ndarray):
        return leaf
    return np.array(leaf, np.result_type(leaf.dtype, np.float64), order="C")


def _is_inexact(leaf: Any) -> bool:
    return bool(leaf.dtype.kind in "fc")


def _why_no_derivative(trial: Trial, sample: Sample) -> str:
    if trial.op.schema.written:
        return f"it writes {', '.join(trial.op.schema.written)}"
    if not floats_of(trial.bound(sample)):
        return "no argument is an array of floats"
    run = trial.expected(sample)
    if not any(is_array(v) and _is_inexact(v) for _, v in run.effects):
        return "no result is an array of floats"
    if trial.op.sees_seed:
        return "it draws from a random state"
    return ""


def _why_not_here(fn: _Function) -> str:
    if not any(x.size for x in fn.inputs):
        return "arrays without elements have no derivative"
    try:
        fn.call(*fn.inputs)
    except Exception:  # noqa: BLE001  # whatever the kernel raises for them
        return "the kernel takes no float64, which differences need"
    return ""


_KINK = "differences from both sides disagree: it has a kink or a jump there"


def _smooth(trial: Trial, sample: Sample) -> _Function | str:
    """The function to differentiate, where it is smooth, or why there is none."""
    reason = _why_no_derivative(trial, sample)
    if reason:
        return reason
    fn = _function(trial, sample)
    reason = _why_not_here(fn)
    if reason:
        return reason
    smooth: _Function | None = trial.once(
        "smooth", sample, lambda: _away_from_kinks(fn)
    )
    return _KINK if smooth is None else smooth


# ---- test_gradients ----

_SEED = 20
_STEP = 1e-6
# Agreement of a sum of derivatives with its difference.
_RTOL, _ATOL = 1e-4, 1e-5


def check_gradients(trial: Trial, sample: Sample) -> str:
    """First and second derivatives are those of the values, by differences."""
    op = trial.op
    if op.find_rule(AUTOGRAD) is None:
        return "no autograd rule"
    fn = _smooth(trial, sample)
    if isinstance(fn, str):
        return fn
    _check_first(trial, fn)
    try:
        _check_second(trial, fn)
        _check_batch(trial, fn)
    except (MissingRuleError, DataDependentError) as error:
        # A formula that calls what no transform sees into gives no wrong number.
        trial.notes.append(f"first gradients alone, their formula: {error.what}")
    return ""


def _random(arrays: Sequence[Any], rng: np.random.Generator) -> list[Any]:
    """Arrays like these with no element near zero."""
    return [_random_like(x, rng) for x in arrays]


def _random_like(x: Any, rng: np.random.Generator) -> Any:
    def draw() -> Any:
        return rng.uniform(0.5, 1.5, x.shape) * rng.choice([-1.0, 1.0], x.shape)

    values = draw() + 1j * draw() if x.dtype.kind == "c" else draw()
    return np.asarray(values, x.dtype)


def _paired(left: Sequence[Any], right: Sequence[Any]) -> float:
    """The pairing of cotangents and tangents, real part of the sum of products."""
    pairs = zip(left, right, strict=True)
    return float(sum(np.sum(np.multiply(a, b)).real for a, b in pairs))


def _moved(arrays: Sequence[Any], tangents: Sequence[Any], step: float) -> list[Any]:
    return [x + step * t for x, t in zip(arrays, tangents, strict=True)]


def _away_from_kinks(fn: _Function) -> _Function | None:
    """The function where it is smooth: there, or at points near; None if nowhere.

    At a kink the differences ahead and behind are apart by more than a curvature of
    any size can make them: they go on to differ as the step gets shorter.
    """
    rng = np.random.default_rng(_SEED)
    for attempt in range(_ATTEMPTS):
        inputs = [_beside(x, 0.05 * attempt, rng) for x in fn.inputs]
        try:
            if _is_smooth(fn, inputs, rng):
                return fn._replace(inputs=inputs)
        except Exception:
            if attempt == 0:
                raise
    return None


_ATTEMPTS = 5


def _beside(x: Vector, spread: float, rng: np.random.Generator) -> Vector:
    """An array near `x`, by a share of each element and of the greatest."""
    sizes = np.abs(x)
    reach = sizes + 0.1 * (float(sizes.max(initial=0.0)) or 1.0)
    moved: Vector = np.asarray(
        x + spread * reach * rng.uniform(-1, 1, x.shape), x.dtype
    )
    return moved


def _is_smooth(fn: _Function, inputs: Sequence[Any], rng: np.random.Generator) -> bool:
    """Whether differences over a short and a shorter step agree.

    Those of both sides too: at a kink they are apart however short the step.
    """
    here = fn.call(*inputs)
    tangents = _random(inputs, rng)
    near, nearer = (_sides(fn, inputs, tangents, step) for step in _STEPS)
    columns = list(zip(here, *near, *nearer, strict=True))
    if any(len({np.shape(v) for v in column}) > 1 for column in columns):
        return False
    return all(_settles(*map(np.asarray, column)) for column in columns)


# A kink as near as the longer of these is seen; rounding leaves four digits of slopes
# over the shorter.
_STEPS = (1e-4, 1e-6)


def _sides(
    fn: _Function, inputs: Sequence[Any], tangents: Sequence[Any], step: float
) -> tuple[Any, Any]:
    """The values ahead and behind."""
    ahead = fn.call(*_moved(inputs, tangents, step))
    return ahead, fn.call(*_moved(inputs, tangents, -step))


def _settles(here: Any, ahead: Any, behind: Any, ahead2: Any, behind2: Any) -> bool:
    """Whether slopes of an output, over both steps, are one number at each element."""
    slope, slope2 = (
        (a - b) / (2 * step)
        for a, b, step in zip((ahead, ahead2), (behind, behind2), _STEPS, strict=True)
    )
    bend = (ahead2 - 2 * here + behind2) / _STEPS[1]
    scale = np.abs(slope) + 1e-3 * np.abs(here) + 1e-3
    apart = np.abs(slope2 - slope) + np.abs(bend)
    return bool(np.all(apart <= 0.02 * scale))


def _check_first(trial: Trial, fn: _Function) -> None:
    rng = np.random.default_rng(_SEED)
    out, pullback = vjp(fn.call, *fn.inputs)
    cotangents = _random(out, rng)
    grads = pullback(tuple(cotangents))

    def paired(arrays: Sequence[Any]) -> float:
        return _paired(cotangents, fn.call(*arrays))

    if not _are_differences(fn.inputs, grads, paired):
        _confirm(gradcheck, fn, "gradient", trial)


def _check_second(trial: Trial, fn: _Function) -> None:
    rng = np.random.default_rng(_SEED)
    weights: list[Any] = []

    def slope(*arrays: Any) -> Any:
        out, pullback = vjp(fn.call, *arrays)
        if not weights:
            weights.extend(_random(out, rng))
        return pullback(tuple(weights))

    first, pullback = vjp(slope, *fn.inputs)
    cotangents = _random(first, rng)
    grads = pullback(tuple(cotangents))

    def paired(arrays: Sequence[Any]) -> float:
        return _paired(cotangents, slope(*arrays))

    if not _are_differences(fn.inputs, grads, paired):
        _confirm(gradgradcheck, fn, "second gradient", trial)


# Elements whose derivatives are taken one by one; of larger arrays, these many.
_MOST_ELEMENTS = 24
# Of what takes milliseconds to compute, fewer.
_LARGE = 10_000


def _are_differences(
    inputs: Sequence[Any], grads: Sequence[Any], value: Callable[[Sequence[Any]], float]
) -> bool:
    """Whether gradients of a number are its differences, element by element."""
    moved = [x.copy() for x in inputs]
    for i, (x, g) in enumerate(zip(inputs, grads, strict=True)):
        line = moved[i].reshape(-1)
        slopes = np.asarray(g).reshape(-1)
        for place in _places(x.size):
            for unit in (1.0, 1j) if x.dtype.kind == "c" else (1.0,):
                expected = _difference(line, place, unit, lambda: value(moved))
                found = float(np.real(slopes[place] * unit))
                if not abs(found - expected) <= _ATOL + _RTOL * abs(expected):
                    return False
    return True


def _places(size: int) -> Sequence[int]:
    if size <= _MOST_ELEMENTS:
        return range(size)
    rng = np.random.default_rng(_SEED)
    count = _MOST_ELEMENTS if size < _LARGE else _MOST_ELEMENTS // 8
    return list(rng.integers(0, size, count))


def _difference(
    line: Vector, place: int, unit: complex, value: Callable[[], float]
) -> float:
    """Central difference of a number that depends on an element of `line`."""
    kept = line[place]
    line[place] = kept + _STEP * unit
    ahead = value()
    line[place] = kept - _STEP * unit
    behind = value()
    line[place] = kept
    return (ahead - behind) / (2 * _STEP)


def _confirm(
    check: Callable[..., bool], fn: _Function, what: str, trial: Trial
) -> None:
    """Say in full what is wrong, by the check that compares all entries."""
    given = {} if trial.rtol is None else {"rtol": trial.rtol, "atol": trial.atol}
    try:
        check(fn.call, tuple(fn.inputs), **given)
    except OpCheckError as error:
        names = {f"inputs[{i}]": name for i, name in enumerate(fn.names)}
        first, *lines = [_renamed(line, names) for line in (error.what, *error.where)]
        wrong = [name for name in fn.names if name in (lines or [""])[0]]
        raise Fault(
            f"has a{first.partition(' has a')[2]}".replace("backward", what),
            *_aligned([line for line in lines if not line.startswith("function at")]),
            do=_REMEDIES[what].format(trial.op.name),
            parameter=wrong[0].partition("[")[0] if wrong else "",
        ) from None


_REMEDIES = {
    "gradient": "correct the formula of @{}.register_autograd",
    "second gradient": "make the formula of @{}.register_autograd of operators with"
    " right formulas of their own, on all that it depends on",
}


def _aligned(lines: list[str]) -> list[str]:
    """Lines with the columns of the table among them as wide as their names now are."""
    rows = {i: cells for i, cells in enumerate(map(_cells, lines)) if len(cells) == 4}
    widths = [max((len(row[k]) for row in rows.values()), default=0) for k in range(4)]
    for i, row in rows.items():
        texts = [cell.ljust(w) for cell, w in zip(row, widths, strict=True)]
        lines[i] = "  ".join(texts).rstrip()
    return lines


def _cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line)


def _renamed(line: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        line = line.replace(old, new)
    return line


def _check_batch(trial: Trial, fn: _Function) -> None:
    """The formula is right for a batch of cotangents too."""
    rng = np.random.default_rng(_SEED)
    out, pullback = vjp(fn.call, *fn.inputs)
    rows = [_random(out, rng) for _ in range(2)]
    stacked = tuple(np.stack(column) for column in zip(*rows, strict=True))
    found = vmap(pullback)(stacked)
    for i, row in enumerate(rows):
        expected = pullback(tuple(row))
        for name, a, b in zip(fn.names, found, expected, strict=True):
            trial.compare_leaf(
                f"the gradient by {name}",
                a[i],
                b,
                "between a row of a batch, under vmap, and that row alone",
                do="make the backward formula of operators with right vmap rules, and"
                " of axes counted from the end",
            )


# ---- test_jvp ----


def check_jvp(trial: Trial, sample: Sample) -> str:
    """The tangent is that of the values, by differences and by the gradient."""
    op = trial.op
    formula = op.find_rule(AUTOGRAD)
    if op.find_rule(JVP) is None:
        if formula is None:
            return "no jvp rule, and no autograd rule to transpose"
        return "no jvp rule: it follows from the autograd rule, see test_gradients"
    fn = _smooth(trial, sample)
    if isinstance(fn, str):
        return fn
    rng = np.random.default_rng(_SEED)
    tangents = _random(fn.inputs, rng)
    found = _check_tangent(trial, fn, range(len(fn.inputs)), tangents)
    if len(fn.inputs) > 1:
        for i in range(len(fn.inputs)):
            _check_tangent(trial, fn, [i], tangents)
    if formula is not None:
        _check_transposed(trial, fn, tangents, found, rng)
    return ""


def _check_tangent(
    trial: Trial, fn: _Function, which: Sequence[int], tangents: Sequence[Any]
) -> Sequence[Any]:
    """Tangents of the results where some of the inputs move, by jvp."""

    def call(*moving: Any) -> Any:
        given = list(fn.inputs)
        for i, array in zip(which, moving, strict=True):
            given[i] = array
        return fn.call(*given)

    chosen = [fn.inputs[i] for i in which]
    moves = [tangents[i] for i in which]
    _, found = jvp(call, tuple(chosen), tuple(moves))
    ahead = call(*_moved(chosen, moves, _STEP))
    behind = call(*_moved(chosen, moves, -_STEP))
    moving = ", ".join(fn.names[i] for i in which)
    for i, (t, a, b) in enumerate(zip(found, ahead, behind, strict=True)):
        expected = (np.asarray(a) - np.asarray(b)) / (2 * _STEP)
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        if not np.all(np.abs(t - expected) <= 1e-5 * scale + 1e-4 * np.abs(expected)):
            raise Fault(
                f"has a wrong tangent of output {i} along {moving}",
                f"{np.asarray(t).tolist()}",
                f"by differences {expected.tolist()}",
                do=f"correct the rule of @{trial.op.name}.register_jvp",
                parameter=fn.names[which[0]].partition("[")[0],
            )
    return found  # type: ignore[no-any-return]


def _check_transposed(
    trial: Trial,
    fn: _Function,
    tangents: Sequence[Any],
    found: Sequence[Any],
    rng: np.random.Generator,
) -> None:
    """A cotangent of a tangent is a gradient along the direction."""
    out, pullback = vjp(fn.call, *fn.inputs)
    cotangents = _random(out, rng)
    forward = _paired(cotangents, found)
    backward = _paired(pullback(tuple(cotangents)), tangents)
    if not np.isclose(forward, backward, rtol=1e-6, atol=1e-8):
        raise Fault(
            "has a jvp rule that is not the transpose of its autograd formula",
            f"w . jvp(t) is {forward:.6g}, vjp(w) . t is {backward:.6g}",
            do="let both be the derivative of the kernel",
        )
