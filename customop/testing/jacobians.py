"""A function of arrays to check, and its derivatives as matrices to compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.convert import to_host
from customop.arrays.describe import abbreviated
from customop.arrays.dtypes import dtype_of, is_complex
from customop.arrays.numpy_functions import call_numpy
from customop.testing.fault import Fault
from customop.testing.vectors import Space, Vector, is_plain
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp

__all__ = [
    "CheckOptions",
    "Linear",
    "Problem",
    "adjoint",
    "agree",
    "by_pullback",
    "columns",
    "compare",
    "compare_along",
    "conjugated",
    "difference",
    "distance",
    "furthest",
    "pushforward",
    "same_vector",
    "short",
]

# Rows of the table in a message.
_SHOWN = 6


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
    """A function of arrays of floats, also as a function of vectors.

    Parameters
    ----------
    call : callable
        Takes the arrays of `inputs`; returns a tuple of arrays of floats.
    inputs : Space
    labels : callable, optional
        Asked for the names of the outputs after the first call.
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
        """The function of vectors."""
        return self.read(self.call(*self.inputs.split(point)))

    def read(self, arrays: Sequence[Any]) -> Vector:
        """The vector of outputs, which must have the shapes and dtypes of the first."""
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
    """The derivative along a direction, by central differences."""

    def push(direction: Vector) -> Vector:
        step = eps * direction
        ahead = problem.at(problem.start + step)
        behind = problem.at(problem.start - step)
        with np.errstate(all="ignore"):  # a nan is reported as a derivative
            return (ahead - behind) / (2.0 * eps)

    return push


def pushforward(problem: Problem) -> Linear:
    """The derivative along a direction, by jvp."""

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
    """The transpose of the Jacobian in real numbers, by vjp; and the pullback."""
    out, pullback = vjp(problem.call, *problem.inputs.arrays)
    _check_value(problem, "vjp", out)

    def pull(cotangent: Vector) -> Vector:
        return by_pullback(problem, pullback, problem.outputs.split(cotangent))

    return pull, pullback


def by_pullback(problem: Problem, pullback: Any, cotangents: Sequence[Any]) -> Vector:
    """The real transpose, from a pullback in JAX's convention.

    JAX pairs w and v as Re(w v): its pullback p has Re(w D[v]) = Re(p(w) v) for the
    derivative D in any complex direction v. The real transpose pairs them as
    Re(conj(w) v), as in the plane, so it is conj(p(conj(w))).
    """
    if problem.inputs.is_plain and problem.outputs.is_plain:  # real: no conjugates
        return problem.inputs.vector(pullback((*cotangents,)))
    grads = pullback(tuple([conjugated(w) for w in cotangents]))
    return problem.inputs.vector([np.conjugate(to_host(g)) for g in grads])


def conjugated(x: Any) -> Any:
    """The conjugate of a complex array; a real one as it is."""
    return call_numpy(np.conjugate, x) if is_complex(dtype_of(x)) else x


# Of values that a transform may compute in another order.
_ROUNDING = CheckOptions(rtol=1e-5, atol=1e-8)


def _check_value(problem: Problem, transform: str, out: Sequence[Any]) -> None:
    """The value under a transform is the value without."""
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
    """The matrix of a linear map, from what it does to each unit vector."""
    found = [push(unit) for unit in space.units()]
    return np.stack(found, axis=1) if found else np.zeros((height, 0))


# ---- comparing vectors ----


def distance(a: Vector, b: Vector) -> Vector:
    """How far vectors lie apart: 0 where both are nan, inf where one is."""
    with np.errstate(all="ignore"):
        apart: Vector = np.abs(a - b)
    apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    apart[np.isnan(apart)] = np.inf
    return apart


def furthest(a: Vector, b: Vector) -> int:
    """Where two vectors lie furthest apart."""
    return int(np.argmax(distance(a, b)))


def same_vector(a: Vector, b: Vector) -> bool:
    """Whether two vectors of equal length are equal, where nan equals nan."""
    # Saves 3 us where they have the same bits.
    return a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=True)


def agree(a: Vector, b: Vector, options: CheckOptions) -> bool:
    """Whether two vectors are the same within the bounds."""
    if a.tobytes() == b.tobytes():  # saves 25 us
        return True
    return bool(np.allclose(a, b, options.rtol, options.atol, equal_nan=True))


def short(number: Any) -> str:
    """A number as messages show it."""
    return f"{float(number):.6g}"


# ---- comparing matrices ----


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


def compare_along(
    problem: Problem, rule: str, found: Vector, expected: Vector, options: CheckOptions
) -> None:
    """Raise unless derivatives along directions agree, by outputs and inputs."""
    worst = _report(
        rule,
        (found, expected, options.atol + options.rtol * np.abs(expected)),
        (problem.outputs.labels.__getitem__, problem.inputs.labels.__getitem__),
        options,
    )
    if worst is not None:
        fault, column = worst
        fault.where += ("along random directions; fast_mode=False names the entry",)
        fault.parameter = problem.inputs.labels[column]
        raise fault


def _over_elements(scale: Vector, space: Space, axis: int) -> Vector:
    """The greatest of the components of an element, for each of them.

    A complex derivative with a small imaginary part is not known better there.
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
    """The fault in a matrix and the column of its worst entry; None if there is none.

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
