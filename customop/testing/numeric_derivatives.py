"""Compare derivatives of a function, as matrices, with central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.array import dtype_of, is_complex
from customop.arrays.convert import to_host
from customop.arrays.nested import abbreviated
from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.errors import with_article
from customop.testing.close import Space, Vector, is_plain
from customop.testing.faults import Fault
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp
from customop.transforms.vmap import vmap

# ---- the derivatives of a function against central differences ----

# Number of directions, if a matrix is not compared entry by entry.
_DIRECTIONS = 4
_SEED = 20


def check_derivatives(problem: Problem, options: CheckOptions) -> None:
    """Raise `Fault` unless the derivatives of a function match its values."""
    again = problem.read(problem.call(*problem.inputs.arrays))
    _check_same("value", problem.value, again, problem.outputs, options)
    push = difference(problem, options.eps)
    if options.backward:
        _check_backward(problem, push, options)
    if options.forward:
        _check_forward(problem, push, options)


def _check_same(
    what: str, first: Vector, second: Vector, space: Space, options: CheckOptions
) -> None:
    apart = distance(first, second)
    if apart.size and apart.max() > options.nondet_tol:
        worst = int(np.argmax(apart))
        raise Fault(
            f"is not deterministic: its {what} differs between two calls",
            f"{space.name(worst)}: {first[worst]} and then {second[worst]}, apart by"
            f" {short(apart[worst])}, allowed nondet_tol={options.nondet_tol}",
            do="fix the seed inside of the function, or pass a larger nondet_tol",
        )


def _check_backward(problem: Problem, push: Linear, options: CheckOptions) -> None:
    rng = np.random.default_rng(_SEED)
    pull = adjoint(problem)[0]
    cotangent = problem.outputs.random(rng)
    pulled = pull(cotangent)
    for again in (pull, adjoint(problem)[0]):
        _check_same("gradient", pulled, again(cotangent), problem.inputs, options)
    if options.fast:
        _check_pulled(problem, pull, push, options)
    else:
        expected = columns(problem.inputs, push, problem.outputs.size)
        found = columns(problem.outputs, pull, problem.inputs.size).T
        compare(problem, problem.rule, found, expected, options)
        _check_linear(problem, cotangent, pulled, found, options)
    if options.undefined and len(problem.outputs.arrays) > 1:
        check_unused(problem, pull, rng, options)
    if options.batched:
        pull, pullback = adjoint(problem)
        rows = [problem.outputs.random(rng) for _ in range(2)]
        check_batched(problem, pullback, [(row, pull(row)) for row in rows], options)


def _check_linear(
    problem: Problem,
    cotangent: Vector,
    pulled: Vector,
    matrix: Vector,
    options: CheckOptions,
) -> None:
    """Check a random cotangent too: unit cotangents cannot tell g * g from g."""
    _check_gradient(
        problem,
        _not_linear(problem),
        (pulled, "for a random cotangent"),
        (cotangent @ matrix, "summed over its entries"),
        options,
        do="use each incoming gradient once in each term of the backward formula",
    )


def _not_linear(problem: Problem) -> str:
    return f"has {with_article(problem.rule)} that is not linear in its cotangent"


def _check_gradient(
    problem: Problem,
    what: str,
    found: tuple[Vector, str],
    expected: tuple[Vector, str],
    options: CheckOptions,
    do: str,
) -> None:
    """Raise unless two gradients agree. Each comes with the way it was computed."""
    if agree(found[0], expected[0], options):
        return
    worst = furthest(found[0], expected[0])
    raise Fault(
        what,
        f"gradient by {problem.inputs.name(worst)}:"
        f" {short(found[0][worst])} {found[1]},"
        f" {short(expected[0][worst])} {expected[1]}",
        do=do,
        parameter=problem.inputs.labels[problem.inputs.holder(worst)],
    )


def _check_pulled(
    problem: Problem, pull: Linear, push: Linear, options: CheckOptions
) -> None:
    """Compare along random directions, for each pair of an output and an input."""
    rng = np.random.default_rng(_SEED)
    for _ in range(_DIRECTIONS):
        cotangents = problem.outputs.blockwise(problem.outputs.random(rng))
        pairs = [(w, pull(w)) for w in cotangents]
        for direction in problem.inputs.blockwise(problem.inputs.random(rng)):
            slopes = push(direction)
            for cotangent, gradient in pairs:
                found = float(gradient @ direction)
                expected = float(cotangent @ slopes)
                if not is_near(found, expected, options):
                    way = cotangent, gradient, direction
                    fault = wrong_along(problem, pull, way, found, expected)
                    fault.where += (_ENTRY,)
                    raise fault


_ENTRY = "fast_mode=False names the entry"


def is_near(found: float, expected: float, options: CheckOptions) -> bool:
    """Return whether a slope agrees with a difference within the bounds."""
    return bool(abs(found - expected) <= options.atol + options.rtol * abs(expected))


def wrong_along(
    problem: Problem,
    pull: Linear,
    way: tuple[Vector, Vector, Vector],
    found: float,
    expected: float,
) -> Fault:
    """Return the fault of a slope; its `way` is a cotangent, a gradient, a direction."""
    cotangent, gradient, direction = way
    moved = np.flatnonzero(direction)
    at = problem.inputs.holder(int(moved[0]))
    fault = Fault(
        f"has a wrong {problem.rule}",
        do=f"correct the {problem.rule} formula of an operator in the function",
        parameter=problem.inputs.labels[at],
    )
    for factor in (-1.0, 0.5):
        other = pull(factor * cotangent)
        if not np.allclose(other, factor * gradient, 1e-6, 1e-9, equal_nan=True):
            worst = furthest(other, factor * gradient)
            seen = f"{short(gradient[worst])}, and {short(other[worst])}"
            where = f"gradient by {problem.inputs.name(worst)}"
            fault.what = _not_linear(problem)
            fault.where = (f"{where}: {seen} for {factor:g} times the cotangent",)
            return fault
    by, where = problem.inputs.name(int(moved[0])), ""
    if moved.size > 1:
        by = _span(problem.inputs, direction)
        where = f", along a random direction of {moved.size} numbers"
    what = f"d {_span(problem.outputs, cotangent)} / d {by} is {short(found)}"
    what += f", by differences {short(expected)}: the sum with random weights{where}"
    fault.where = (what,)
    return fault


def _span(space: Space, vector: Vector) -> str:
    """Return the labels of the first and last array where a vector is not zero."""
    moved = np.flatnonzero(vector)
    holders = [space.holder(int(i)) for i in (*moved[:1], *moved[-1:])]
    return " to ".join(dict.fromkeys(space.labels[i] for i in holders))


def check_unused(
    problem: Problem, pull: Linear, rng: np.random.Generator, options: CheckOptions
) -> None:
    """Check that leaving an output unused gives the same as a cotangent of zero."""
    parts = problem.outputs.blockwise(problem.outputs.random(rng))
    for i, (label, part) in enumerate(zip(problem.outputs.labels, parts, strict=True)):

        def one(*arrays: Any, chosen: int = i) -> tuple[Any]:
            return (problem.call(*arrays)[chosen],)

        _, pullback = vjp(one, *problem.inputs.arrays)
        cotangent = problem.outputs.split(part)[i]
        _check_gradient(
            problem,
            f"has a wrong {problem.rule} where {label} alone is used",
            (
                by_pullback(problem, pullback, [cotangent]),
                "with the other outputs unused",
            ),
            (pull(part), "with zeros as their cotangents"),
            options,
            do="treat None among the gradients as zero, or leave out"
            " ctx.set_materialize_grads(False)",
        )


def check_batched(
    problem: Problem,
    pullback: Callable[..., Any],
    pairs: Sequence[tuple[Vector, Vector]],
    options: CheckOptions,
) -> None:
    """Raise `Fault` unless a batch of cotangents gives the batch of gradients.

    `pairs` has some cotangents, each with the gradient that it gives alone.
    """
    rows = [[conjugated(w) for w in problem.outputs.split(v)] for v, _ in pairs]
    stacked = tuple(map(_stacked, zip(*rows, strict=True)))
    batch = vmap(lambda *given: pullback(given))(*stacked)
    for i, (_, alone) in enumerate(pairs):
        grads = [np.conjugate(to_host(_row(g, i))) for g in batch]
        _check_gradient(
            problem,
            f"has {with_article(problem.rule)} that vmap gets wrong",
            (problem.inputs.vector(grads), f"as row {i} of a batch"),
            (alone, "alone"),
            options,
            do="correct the vmap rules of the operators in the backward formula",
        )


def _stacked(arrays: Sequence[Any]) -> Any:
    # This takes a tenth of the time of an operator.
    if all(map(is_plain, arrays)):
        return np.array(arrays)
    return call_numpy(np.stack, list(arrays))


def _row(batch: Any, i: int) -> Any:
    return batch[i] if type(batch) is np.ndarray else call_numpy(INDEXING, batch, i)


def _check_forward(problem: Problem, push: Linear, options: CheckOptions) -> None:
    moved = pushforward(problem)
    if options.fast:
        rng = np.random.default_rng(_SEED)
        for _ in range(_DIRECTIONS):
            for direction in problem.inputs.blockwise(problem.inputs.random(rng)):
                found, expected = moved(direction), push(direction)
                allowed = options.atol + options.rtol * np.abs(expected)
                compare_tangent(problem, direction, found, expected, allowed, options)
        return
    expected = columns(problem.inputs, push, problem.outputs.size)
    found = columns(problem.inputs, moved, problem.outputs.size)
    compare(problem, "jvp", found, expected, options)


# ---- the gradient as a function ----


def second_problem(
    first: Problem, cotangents: Sequence[Any], rule: str = "backward"
) -> Problem:
    """Return the gradient of a problem as a problem of its inputs and cotangents."""
    count = len(first.inputs.arrays)

    def gradients(*arrays: Any) -> tuple[Any, ...]:
        _, pullback = vjp(first.call, *arrays[:count])
        found: tuple[Any, ...] = pullback(arrays[count:])
        return found

    names = [f"grad_outputs[{i}]" for i in range(len(cotangents))]
    labels = (*first.inputs.labels, *names)
    inputs = Space(labels, (*first.inputs.arrays, *cotangents))
    outputs = [f"gradient by {label}" for label in first.inputs.labels]
    return Problem(gradients, inputs, lambda: outputs, rule)


def random_cotangents(problem: Problem, *, with_gaps: bool = False) -> list[Any]:
    """Return random cotangents without elements near zero, the same in each run."""
    vector = problem.outputs.random(np.random.default_rng(_SEED + 1))
    found = problem.outputs.split(vector)
    return [np.stack([g, g], -1)[..., 0] for g in found] if with_gaps else found


# ---- the function to check ----


class CheckOptions(NamedTuple):
    """The settings of a check."""

    eps: float = 1e-6
    atol: float = 1e-5
    rtol: float = 1e-3
    nondet_tol: float = 0.0
    undefined: bool = True
    batched: bool = False
    forward: bool = False
    backward: bool = True
    fast: bool = False


class Problem:
    """A function of floating-point arrays that can also be called with a vector.

    Parameters
    ----------
    call : callable
        Takes the arrays of `inputs`; returns a tuple of arrays of floats.
    inputs : Space
    labels : callable, optional
        Gives the names of the outputs; called after the first call of the function.
    rule : str
        The name of the checked derivative in messages.
    """

    __slots__ = (
        "_outline",
        "_shape",
        "call",
        "inputs",
        "outputs",
        "rule",
        "start",
        "value",
    )

    def __init__(
        self,
        call: Callable[..., tuple[Any, ...]],
        inputs: Space,
        labels: Callable[[], Sequence[str]] | None = None,
        rule: str = "backward",
    ) -> None:
        self.call: Callable[..., tuple[Any, ...]] = call
        self.inputs: Space = inputs
        self.rule: str = rule
        self.start: Vector = inputs.vector(inputs.arrays)
        out = call(*inputs.arrays)
        self._check_unwritten()
        names = (
            [f"output[{i}]" for i in range(len(out))] if labels is None else labels()
        )
        self.outputs: Space = Space(names, out)
        self._outline: list[Any] = _outline(out)
        is_one = len(out) == 1 and self.outputs.is_plain
        self._shape: Any = out[0].shape if is_one else None
        # Read at once: the function may write its next result to the same memory.
        self.value: Vector = self.outputs.vector(out)

    def _check_unwritten(self) -> None:
        after = self.inputs.vector(self.inputs.arrays)
        if not same_vector(self.start, after):
            worst = furthest(after, self.start)
            name = self.inputs.name(worst)
            raise Fault(
                "writes its input",
                f"{name} was {self.start[worst]} and is {after[worst]}",
                do="compute a new array: x = x + y instead of x += y",
            )

    def at(self, point: Vector) -> Vector:
        """Return the vector of outputs at a point."""
        return self.read(self.call(*self.inputs.split(point)))

    def read(self, arrays: Sequence[Any]) -> Vector:
        """Return outputs as a vector; their shapes and dtypes must not have changed."""
        first: Any = arrays[0] if len(arrays) == 1 else None
        if is_plain(first) and first.shape == self._shape:
            return first.flatten()  # type: ignore[no-any-return]  # a vector
        is_same = len(arrays) == len(self._outline)
        if not is_same or not all(map(_is_like, arrays, self._outline)):
            seen = ", ".join(map(abbreviated, arrays))
            want = ", ".join(map(abbreviated, self.outputs.arrays))
            raise Fault(
                f"gave outputs {want} and then {seen}",
                do="return arrays whose shapes and dtypes do not depend on the values",
            )
        return self.outputs.vector(arrays)


def _outline(arrays: Sequence[Any]) -> list[Any]:
    return [(tuple(x.shape), dtype_of(x)) for x in arrays]


def _is_like(x: Any, outline: tuple[Any, Any]) -> bool:
    return bool(tuple(x.shape) == outline[0] and dtype_of(x) == outline[1])


# ---- derivatives as matrices ----

Linear = Callable[[Vector], Vector]


def difference(problem: Problem, eps: float) -> Linear:
    """Return a function that takes directional derivatives by central differences."""

    def push(direction: Vector) -> Vector:
        with np.errstate(all="ignore"):  # a nan is reported as a derivative
            return _central(problem, problem.start, eps * direction) / (2.0 * eps)

    return push


def _central(problem: Problem, point: Vector, step: Vector) -> Vector:
    """Return how far the outputs move from a step behind a point to one ahead."""
    ahead = problem.at(point + step)
    return ahead - problem.at(point - step)


# Slopes from both sides agree up to this share of them; curvature causes the rest.
_SMOOTH = 1e-3


def slopes_along(
    problem: Problem, direction: Vector, step: float, at: Vector | None = None
) -> Vector:
    """Return the slope of each output along a direction, nan where there is none.

    At the edge of its domain, a function has values on one side only. Then the slope is
    that of this side.
    """
    start = problem.start if at is None else at
    value = problem.value if at is None else problem.at(at)
    with np.errstate(all="ignore"):
        ahead, behind, far, far_behind = (
            _slope(problem, start, value, direction, length)
            for length in (step, -step, 10 * step, -10 * step)
        )
        scale = np.fmax(np.abs(ahead), np.abs(behind)) + 1e-6 * np.abs(value) + 1e-3
        one, one_far = _first_finite(ahead, behind), _first_finite(far, far_behind)
        # A jump, or a slope without bound, has another slope over a longer step.
        is_steady = np.abs(one - one_far) <= 10 * _SMOOTH * scale
        is_smooth = is_steady & (np.abs(ahead - behind) <= _SMOOTH * scale)
        is_smooth &= np.isfinite(scale)
        is_edge = is_steady & (np.isfinite(ahead) ^ np.isfinite(behind))
        found = np.where(is_smooth, (ahead + behind) / 2, np.nan)
    return np.where(is_edge, one, found)


def _first_finite(a: Vector, b: Vector) -> Vector:
    return np.where(np.isfinite(a), a, b)


def _slope(
    problem: Problem, start: Vector, value: Vector, direction: Vector, step: float
) -> Vector:
    """Return the slope over a step, or nan if the function refuses to be there."""
    try:
        there = problem.at(start + step * direction)
    except Fault:
        raise
    except Exception:  # noqa: BLE001  # outside of its domain
        return np.full_like(value, np.nan)
    return (there - value) / step


# How many points nearby must have the same slope.
_NEARBY = 6


def is_level(problem: Problem, direction: Vector, step: float, slopes: Vector) -> bool:
    """Return whether points nearby have the same slopes along a direction.

    Where numbers are equal, a line does not show that a median jumps from one of them to
    another.
    """
    rng = np.random.default_rng(_SEED)
    for _ in range(_NEARBY):
        there = problem.start + 20 * step * problem.inputs.random(rng)
        try:  # the usual case, in two calls of the five
            moved = _central(problem, there, step * direction)
            if _is_about(moved / (2 * step), slopes).all():
                continue
        except Exception:  # noqa: BLE001, S110  # an edge, or another shape: see below
            pass
        try:
            found = slopes_along(problem, direction, step, there)
        except Fault:  # another shape
            return False
        except Exception:  # noqa: BLE001, S112  # outside of the domain
            continue
        if not np.all(_is_about(found, slopes) | np.isnan(slopes)):
            return False
    return True


def _is_about(found: Vector, slopes: Vector) -> Vector:
    with np.errstate(all="ignore"):
        apart: Vector = np.abs(found - slopes)
        is_about: Vector = apart <= 0.02 * (np.abs(slopes) + 1e-3)
    return is_about


def has_ties(problem: Problem) -> bool:
    """Return whether inputs are equal to each other or to zero, where kinks are likely."""
    sizes = np.abs(problem.start[:_LOOKED_AT])
    sizes.sort()
    return bool(sizes.size and (sizes[0] == 0 or (sizes[1:] == sizes[:-1]).any()))


# How many numbers are compared with each other: sorting a million takes 0.1 s.
_LOOKED_AT = 10_000


def pushforward(problem: Problem) -> Linear:
    """Return a function that takes directional derivatives by jvp."""

    def push(direction: Vector) -> Vector:
        tangents = tuple(problem.inputs.split(direction))
        before = problem.inputs.vector(tangents).copy()
        out, tangent = jvp(problem.call, problem.inputs.arrays, tangents)
        _check_kept(problem, before, tangents)
        _check_value(problem, "jvp", out)
        return problem.read(tangent)

    return push


def _check_kept(problem: Problem, before: Vector, tangents: Sequence[Any]) -> None:
    after = problem.inputs.vector(tangents)
    if not same_vector(before, after):
        worst = furthest(after, before)
        raise Fault(
            "has a jvp rule that writes into a tangent that it is given",
            f"the tangent of {problem.inputs.name(worst)} was {before[worst]} and is"
            f" {after[worst]}",
            do="compute a new array: t = t * slope instead of t *= slope",
        )


def adjoint(problem: Problem) -> tuple[Linear, Callable[..., Any]]:
    """Return a function that applies the transposed real Jacobian, and the pullback."""
    out, pullback = vjp(problem.call, *problem.inputs.arrays)
    _check_value(problem, "vjp", out)

    def pull(cotangent: Vector) -> Vector:
        return by_pullback(problem, pullback, problem.outputs.split(cotangent))

    return pull, pullback


def by_pullback(problem: Problem, pullback: Any, cotangents: Sequence[Any]) -> Vector:
    """Apply the transposed real Jacobian through a pullback in JAX's convention.

    JAX pairs w and v as Re(w v): its pullback p has Re(w D[v]) = Re(p(w) v) for the
    derivative D in any complex direction v. The real transpose pairs them as
    Re(conj(w) v), as in the plane, so it is conj(p(conj(w))).
    """
    if problem.inputs.is_plain and problem.outputs.is_plain:  # real: no conjugates
        return problem.inputs.vector(pullback((*cotangents,)))
    grads = pullback(tuple([conjugated(w) for w in cotangents]))
    return problem.inputs.vector([np.conjugate(to_host(g)) for g in grads])


def conjugated(x: Any) -> Any:
    """Return the conjugate of an array; a real array is returned as it is."""
    return call_numpy(np.conjugate, x) if is_complex(dtype_of(x)) else x


# Tolerances for values that a transform may compute in another order.
_ROUNDING = CheckOptions(rtol=1e-5, atol=1e-8)


def _check_value(problem: Problem, transform: str, out: Sequence[Any]) -> None:
    """Raise unless the value under a transform is the value without it."""
    value = problem.read(out)
    if not agree(value, problem.value, _ROUNDING):
        worst = furthest(value, problem.value)
        raise Fault(
            f"gives another value under {transform}",
            f"{problem.outputs.name(worst)} is {value[worst]}, without {transform} it"
            f" is {problem.value[worst]}",
            do="return the operator's own output from its rule, and use no state",
        )


def columns(space: Space, push: Linear, height: int) -> Vector:
    """Return the matrix of a linear map, by applying it to each unit vector."""
    found = [push(unit) for unit in space.units()]
    return np.stack(found, axis=1) if found else np.zeros((height, 0))


# ---- comparing matrices ----

# How many rows the table in a message has.
_SHOWN = 6


def compare(
    problem: Problem, rule: str, found: Vector, expected: Vector, options: CheckOptions
) -> None:
    """Raise unless two Jacobians agree entry by entry."""
    scale = np.abs(expected)
    for axis, space in enumerate((problem.outputs, problem.inputs)):
        scale = _over_elements(scale, space, axis)
    worst = _report(
        rule,
        (found, expected, options.atol + options.rtol * scale),
        (problem.outputs.name, problem.inputs.name),
        options,
    )
    if worst is not None:
        fault, column = worst
        name, value = problem.inputs.name(column), short(problem.start[column])
        fault.where += (f"evaluated at {name} = {value}",)
        fault.parameter = problem.inputs.labels[problem.inputs.holder(column)]
        raise fault


def compare_tangent(
    problem: Problem,
    direction: Vector,
    found: Vector,
    expected: Vector,
    allowed: Vector,
    options: CheckOptions,
) -> None:
    """Raise unless a tangent along a direction agrees with differences, entry by entry."""
    worst = _report(
        "jvp",
        (found[:, None], expected[:, None], allowed[:, None]),
        (problem.outputs.name, lambda column: _span(problem.inputs, direction)),
        options,
    )
    if worst is not None:
        fault = worst[0]
        fault.where += ("along a random direction",)
        fault.parameter = _span(problem.inputs, direction).partition(" to ")[0]
        raise fault


def _over_elements(scale: Vector, space: Space, axis: int) -> Vector:
    """Replace each component of an element by the greatest component of that element.

    A small imaginary part of a complex derivative is not known more precisely.
    """
    if not space.size or max(space.widths) == 1:
        return scale
    starts = space.starts()
    counts = np.diff([*starts, space.size])
    return np.repeat(np.maximum.reduceat(scale, starts, axis), counts, axis)


def _report(
    rule: str,
    matrices: tuple[Vector, Vector, Vector],
    names: tuple[Callable[[int], str], Callable[[int], str]],
    options: CheckOptions,
) -> tuple[Fault, int] | None:
    """Return the fault of a matrix and the column of its worst entry, or None.

    The matrices are the derivatives found, those expected, and the distance allowed.
    """
    found, expected, allowed = matrices
    with np.errstate(all="ignore"):
        off = np.abs(found - expected)
        excess = np.where(np.isfinite(off), off - allowed, np.inf)
    wrong = np.argwhere(~(excess <= 0.0))
    if not wrong.size:
        return None
    order = np.argsort([-excess[tuple(index)] for index in wrong], kind="stable")
    ranked = [tuple(map(int, wrong[i])) for i in order]
    rows = [
        (
            f"d {names[0](index[0])} / d {names[1](index[1])}",
            short(found[index]),
            short(expected[index]),
            short(off[index]),
        )
        for index in ranked[:_SHOWN]
    ]
    fault = Fault(
        f"has a wrong {rule}, in {len(ranked)} of {off.size} derivatives",
        f"worst: {rows[0][0]} is {rows[0][1]}, by differences {rows[0][2]}: off by"
        f" {rows[0][3]}, allowed {short(allowed[ranked[0]])}"
        f" (atol={options.atol}, rtol={options.rtol})",
        *(_table(rows, len(ranked)) if len(ranked) > 1 else ()),
        do=f"correct the {rule} formula of an operator in the function; where it has"
        " a kink or a jump near the inputs, move them away",
    )
    return fault, ranked[0][1]


def _table(rows: Sequence[tuple[str, ...]], count: int) -> list[str]:
    lines = [("derivative", "is", "by differences", "off by"), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    texts = [
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return [*texts, f"and {count - len(rows)} more"] if count > len(rows) else texts


# ---- comparing vectors ----


def distance(a: Vector, b: Vector) -> Vector:
    """Return the distance of each pair of elements: 0 for two nans, inf for one."""
    with np.errstate(all="ignore"):
        apart: Vector = np.abs(a - b)
    apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    apart[np.isnan(apart)] = np.inf
    return apart


def furthest(a: Vector, b: Vector) -> int:
    """Return the position at which two vectors differ most."""
    return int(np.argmax(distance(a, b)))


def same_vector(a: Vector, b: Vector) -> bool:
    """Return whether two vectors of equal length are equal; nan equals nan."""
    # Equal bits are the usual case; comparing them first saves 3 us.
    return a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=True)


def agree(a: Vector, b: Vector, options: CheckOptions) -> bool:
    """Return whether two vectors agree within the bounds."""
    if a.tobytes() == b.tobytes():  # saves 25 us
        return True
    return bool(np.allclose(a, b, options.rtol, options.atol, equal_nan=True))


def short(number: Any) -> str:
    """Format a number for messages."""
    return f"{float(number):.6g}"
