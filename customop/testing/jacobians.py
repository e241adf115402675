"""A function to check, and its derivatives as matrices to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.convert import to_host
from customop.arrays.describe import abbreviated, describe, show
from customop.arrays.dtypes import dtype_of, is_complex, is_inexact
from customop.arrays.fake import strides_of
from customop.arrays.kinds import has_data, is_array
from customop.arrays.numpy_protocol import call_numpy
from customop.arrays.pytree import flatten, unflatten
from customop.errors import (
    ArgumentError,
    GradientError,
    OpCheckError,
    place,
    warn_caller,
)
from customop.testing.vectors import Space, Vector
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp

__all__ = [
    "Linear",
    "Options",
    "Problem",
    "adjoint",
    "agree",
    "blockwise",
    "by_pullback",
    "check_given",
    "check_problem",
    "columns",
    "compare",
    "compare_along",
    "conjugated",
    "difference",
    "distance",
    "furthest",
    "pushforward",
    "short",
]

# Rows of the table in a message.
_SHOWN = 6


# ---- the function to check ----


class Options(NamedTuple):
    """What a check was asked for."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    undefined: bool
    batched: bool
    forward: bool
    backward: bool
    fast: bool


class Problem:
    """A function of arrays of floats alone, and vectors for what goes in and out."""

    __slots__ = ("call", "inputs", "outputs", "source", "value", "what")

    def __init__(
        self,
        what: str,
        fn: Callable[..., Any],
        trees: Mapping[str, Any],
        labels: Sequence[str] | None = None,
        source: Callable[..., Any] | None = None,
    ) -> None:
        self.what: str = what
        self.source: Callable[..., Any] = fn if source is None else source
        found, structure = flatten(tuple(trees.values()))
        names = names_of(trees)
        at = [i for i, leaf in enumerate(found) if is_floats(leaf)]
        self.inputs: Space = Space(
            tuple(names[i] for i in at), tuple(found[i] for i in at)
        )

        def call(*arrays: Any) -> tuple[Any, ...]:
            """The outputs that are floats."""
            given = list(found)
            for i, array in zip(at, arrays, strict=True):
                given[i] = array
            out = flatten(fn(*unflatten(structure, given)))[0]
            return tuple(_as_array(leaf) for leaf in out if _has_derivative(leaf))

        self.call: Callable[..., tuple[Any, ...]] = call
        before = self.inputs.vector(self.inputs.arrays)
        out, shape = flatten(fn(*trees.values()))
        self._check_unwritten(before)
        if labels is None:
            labels = [path.codify("output") for path in shape.accessors()]
        pairs = list(zip(labels, out, strict=True))
        floats = [(name, _as_array(x)) for name, x in pairs if _has_derivative(x)]
        self.outputs: Space = Space(
            tuple(name for name, _ in floats), tuple(x for _, x in floats)
        )
        # Read at once: the function may write its next result to the same memory.
        self.value: Vector = self.outputs.vector(self.outputs.arrays)

    def _check_unwritten(self, before: Vector) -> None:
        after = self.inputs.vector(self.inputs.arrays)
        if not np.array_equal(before, after, equal_nan=True):
            worst = furthest(after, before)
            raise self.fault(
                "writes its input",
                f"{self.inputs.name(worst)} was {before[worst]} and is {after[worst]}",
                do="compute a new array: x = x + y instead of x += y",
            )

    def at(self, point: Vector) -> Vector:
        """The function as one of vectors."""
        return self.read(self.call(*self.inputs.split(point)))

    def read(self, arrays: Sequence[Any]) -> Vector:
        """The vector of outputs, which must be like those at the inputs given."""
        seen = [abbreviated(x) for x in arrays]
        want = [abbreviated(x) for x in self.outputs.arrays]
        if seen != want:
            raise self.fault(
                f"gave outputs {', '.join(want)} and then {', '.join(seen)}",
                do="return arrays whose shapes and dtypes do not depend on the values",
            )
        return self.outputs.vector(arrays)

    def fault(self, text: str, *where: str, do: str) -> OpCheckError:
        """An error about this function."""
        name = getattr(self.source, "__name__", type(self.source).__name__)
        return OpCheckError(
            f"{self.what}: {name} {text}",
            *where,
            f"function at {place(self.source)}",
            do=do,
        )


def names_of(trees: Mapping[str, Any]) -> list[str]:
    """How messages name each leaf: ``inputs[0]['w']``."""
    return [
        path.codify(root)
        for root, tree in trees.items()
        for path in flatten(tree)[1].accessors()
    ]


def is_floats(leaf: Any) -> bool:
    return is_array(leaf) and is_inexact(leaf.dtype)


def _has_derivative(leaf: Any) -> bool:
    return isinstance(leaf, float | complex) or is_floats(leaf)


def _as_array(leaf: Any) -> Any:
    return leaf if is_array(leaf) else np.asarray(leaf)


def check_problem(problem: Problem, *, warn: bool = True) -> None:
    """Refuse what has no derivative, and warn of what differences cannot tell."""
    for side, space in (("input", problem.inputs), ("output", problem.outputs)):
        if not space.arrays:
            raise GradientError(
                f"{problem.what}: no {side} is an array of floats",
                do=f"let the {side}s have arrays of float64 or complex128 among them",
            )
    for label, x in zip(problem.inputs.labels, problem.inputs.arrays, strict=True):
        if warn and dtype_of(x).itemsize < (16 if is_complex(dtype_of(x)) else 8):
            warn_caller(
                f"{problem.what}: {label} is {abbreviated(x)}, in which differences are"
                " coarser than the tolerances; do: pass float64 or complex128",
            )


def check_given(what: str, inputs: Any) -> tuple[Any, ...]:
    """The inputs as a tuple, of arrays that each element can be moved in alone."""
    given = (inputs,) if is_array(inputs) else inputs
    if not isinstance(given, tuple | list):
        raise ArgumentError(
            f"{what}: inputs are a tuple, got {show(inputs)}",
            do=f"write {what}(f, (x, y))",
        )
    given = tuple(given)
    for label, x in zip(names_of({"inputs": given}), flatten(given)[0], strict=True):
        if not has_data(x):
            raise GradientError(
                f"{what}: {label} is {describe(x)}, which has no values to move",
                do=f"call {what} outside of transforms, on real arrays",
            )
        if is_floats(x) and _overlaps(x):
            raise GradientError(
                f"{what}: elements of {label} ({abbreviated(x)}) share memory",
                f"strides {tuple(strides_of(x))}",
                do="pass x.copy(), so that each element can move alone",
            )
    return given


def _overlaps(x: Any) -> bool:
    """Whether two elements of an array lie at one address."""
    offsets = np.zeros((), np.int64)
    for length, stride in zip(x.shape, strides_of(x), strict=True):
        offsets = offsets[..., None] + np.arange(length) * stride
    return np.unique(offsets).size < offsets.size


# ---- derivatives as matrices ----

Linear = Callable[[Vector], Vector]


def difference(problem: Problem, eps: float) -> Linear:
    """The derivative along a direction, by central differences."""
    start = problem.inputs.vector(problem.inputs.arrays)

    def push(direction: Vector) -> Vector:
        step = eps * direction
        ahead, behind = problem.at(start + step), problem.at(start - step)
        with np.errstate(all="ignore"):  # what is no number is told as a derivative
            return (ahead - behind) / (2.0 * eps)

    return push


def pushforward(problem: Problem) -> Linear:
    """The derivative along a direction, by jvp."""

    def push(direction: Vector) -> Vector:
        tangents = tuple(problem.inputs.split(direction))
        out, tangent = jvp(problem.call, problem.inputs.arrays, tangents)
        _check_value(problem, "jvp", out)
        return problem.read(tangent)

    return push


def adjoint(problem: Problem) -> tuple[Linear, Callable[..., Any]]:
    """The transpose of the Jacobian in real numbers, by vjp; and the pullback."""
    out, pullback = vjp(problem.call, *problem.inputs.arrays)
    _check_value(problem, "vjp", out)

    def pull(cotangent: Vector) -> Vector:
        return by_pullback(problem, pullback, problem.outputs.split(cotangent))

    return pull, pullback


def by_pullback(problem: Problem, pullback: Any, cotangents: Sequence[Any]) -> Vector:
    """The real transpose, where a pullback is JAX's.

    That pullback p has Re(w D[v]) = Re(p(w) v), for the derivative D in any complex
    direction v, as the pairing of w and v is Re(w v). The real transpose goes by the
    pairing Re(conj(w) v) of the plane: it is conj(p(conj(w))).
    """
    grads = pullback(tuple(conjugated(w) for w in cotangents))
    return problem.inputs.vector([np.conjugate(to_host(g)) for g in grads])


def conjugated(x: Any) -> Any:
    """The conjugate of a complex array; a real one as it is."""
    return call_numpy(np.conjugate, x) if is_complex(dtype_of(x)) else x


def _check_value(problem: Problem, transform: str, out: Sequence[Any]) -> None:
    """The value under a transform is the value without."""
    value = problem.read(out)
    if not np.allclose(value, problem.value, equal_nan=True):
        worst = furthest(value, problem.value)
        raise problem.fault(
            f"gives another value under {transform}",
            f"{problem.outputs.name(worst)} is {value[worst]}, without {transform} it"
            f" is {problem.value[worst]}",
            do="return the operator's own output from its rule, and use no state",
        )


def columns(space: Space, push: Linear, height: int) -> Vector:
    """The matrix of a linear map, by what it does to each unit vector."""
    found = [push(unit) for unit in space.units()]
    return np.stack(found, axis=1) if found else np.zeros((height, 0))


# ---- comparing matrices ----


def compare(
    problem: Problem, rule: str, found: Vector, expected: Vector, options: Options
) -> None:
    """Raise unless two Jacobians agree entry by entry."""
    sides = (problem.outputs, problem.inputs)
    scale = np.abs(expected)
    for axis, space in enumerate(sides):
        scale = _over_elements(scale, space, axis)
    allowed = options.atol + options.rtol * scale

    def name(row: int, column: int) -> str:
        return f"d {problem.outputs.name(row)} / d {problem.inputs.name(column)}"

    _report(problem, rule, found, expected, allowed, name, options)


def _over_elements(scale: Vector, space: Space, axis: int) -> Vector:
    """The greatest of the components of an element, for each of them.

    A complex derivative with a small imaginary part is no better known there.
    """
    if not space.size or max(space.widths) == 1:
        return scale
    starts = space.starts()
    counts = np.diff([*starts, space.size])
    return np.repeat(np.maximum.reduceat(scale, starts, axis), counts, axis)


def _report(
    problem: Problem,
    rule: str,
    found: Vector,
    expected: Vector,
    allowed: Vector,
    name: Callable[[int, int], str],
    options: Options,
) -> None:
    with np.errstate(all="ignore"):
        off = np.abs(found - expected)
        # What is no number is far off.
        excess = np.where(np.isfinite(off), off - allowed, np.inf)
    wrong = np.argwhere(~(excess <= 0.0))
    if not wrong.size:
        return
    order = np.argsort([-excess[tuple(index)] for index in wrong], kind="stable")
    ranked = [tuple(map(int, wrong[i])) for i in order]
    worst = ranked[0]
    rows = [
        (name(*index), short(found[index]), short(expected[index]), short(off[index]))
        for index in ranked[:_SHOWN]
    ]
    raise problem.fault(
        f"has a wrong {rule}, in {len(ranked)} of {off.size} derivatives",
        f"worst: {rows[0][0]} is {rows[0][1]}, by differences {rows[0][2]}: off by"
        f" {rows[0][3]}, allowed {short(allowed[worst])}"
        f" (atol={options.atol}, rtol={options.rtol})",
        *(_table(rows, len(ranked)) if len(ranked) > 1 else ()),
        *_evaluated_at(problem, worst[1], fast=options.fast),
        do=f"correct the {rule} formula of an operator in the function; where it has"
        " a kink or a jump near the inputs, move them away",
    )


def short(number: Any) -> str:
    """A number as messages show it."""
    return f"{float(number):.6g}"


def _table(rows: Sequence[tuple[str, ...]], count: int) -> list[str]:
    lines = [("derivative", "is", "by differences", "off by"), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    texts = [
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return [*texts, f"and {count - len(rows)} more"] if count > len(rows) else texts


def _evaluated_at(problem: Problem, column: int, *, fast: bool) -> list[str]:
    if fast:
        return ["along random directions; fast_mode=False names the entry"]
    value = problem.inputs.vector(problem.inputs.arrays)[column]
    return [f"evaluated at {problem.inputs.name(column)} = {short(value)}"]


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


def agree(a: Vector, b: Vector, options: Options) -> bool:
    """Whether two gradients are the same within the bounds."""
    return bool(np.allclose(a, b, options.rtol, options.atol, equal_nan=True))


def compare_along(
    problem: Problem, rule: str, found: Vector, expected: Vector, options: Options
) -> None:
    """Raise unless derivatives along directions agree, by outputs and inputs."""

    def name(row: int, column: int) -> str:
        return f"d {problem.outputs.labels[row]} / d {problem.inputs.labels[column]}"

    allowed = options.atol + options.rtol * np.abs(expected)
    _report(problem, rule, found, expected, allowed, name, options)


def blockwise(vector: Vector, blocks: Sequence[slice]) -> list[Vector]:
    """The part of a vector that belongs to each block, with zeros around it."""
    found = []
    for block in blocks:
        part = np.zeros_like(vector)
        part[block] = vector[block]
        found.append(part)
    return found
