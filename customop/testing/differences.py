"""The derivatives of a function against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.arrays.convert import to_host
from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.errors import with_article
from customop.testing.fault import Fault
from customop.testing.jacobians import (
    CheckOptions,
    Linear,
    Problem,
    adjoint,
    agree,
    by_pullback,
    columns,
    compare,
    compare_along,
    conjugated,
    difference,
    distance,
    furthest,
    pushforward,
    short,
)
from customop.testing.vectors import Space, Vector, is_plain
from customop.transforms.autograd.grad import vjp
from customop.transforms.vmap import vmap

__all__ = [
    "check_batched",
    "check_derivatives",
    "random_cotangents",
    "second_problem",
]

# Directions where a matrix is not compared entry by entry.
_DIRECTIONS = 4
_SEED = 20


def check_derivatives(problem: Problem, options: CheckOptions) -> None:
    """Raise `Fault` unless the derivatives of a function are those of its values."""
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
        pairings = partial(_pulled, pull)
        _check_along(problem, problem.rule, pairings, push, options)
    else:
        expected = columns(problem.inputs, push, problem.outputs.size)
        found = columns(problem.outputs, pull, problem.inputs.size).T
        compare(problem, problem.rule, found, expected, options)
        _check_linear(problem, cotangent, pulled, found, options)
    if options.undefined and len(problem.outputs.arrays) > 1:
        _check_undefined(problem, pull, rng, options)
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
    """Unit cotangents alone cannot tell g * g from g."""
    _check_gradient(
        problem,
        f"has {with_article(problem.rule)} that is not linear in its cotangent",
        (pulled, "for a random cotangent"),
        (cotangent @ matrix, "summed over its entries"),
        options,
        do="use each incoming gradient once in each term of the backward formula",
    )


def _check_gradient(
    problem: Problem,
    what: str,
    found: tuple[Vector, str],
    expected: tuple[Vector, str],
    options: CheckOptions,
    do: str,
) -> None:
    """Raise unless two gradients agree; each comes with how it was computed."""
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


def _check_along(
    problem: Problem,
    rule: str,
    pairings: Callable[[list[Vector], list[Vector]], Vector],
    push: Linear,
    options: CheckOptions,
) -> None:
    """Compare along random directions, for each pair of an output and an input."""
    rng = np.random.default_rng(_SEED)
    for _ in range(_DIRECTIONS):
        cotangents = problem.outputs.blockwise(problem.outputs.random(rng))
        tangents = problem.inputs.blockwise(problem.inputs.random(rng))
        found = pairings(cotangents, tangents)
        expected = _pushed(push, cotangents, tangents)
        compare_along(problem, rule, found, expected, options)


def _pushed(push: Linear, cotangents: list[Vector], tangents: list[Vector]) -> Vector:
    moved = [push(t) for t in tangents]
    return np.array([[w @ y for y in moved] for w in cotangents])


def _pulled(pull: Linear, cotangents: list[Vector], tangents: list[Vector]) -> Vector:
    return np.array([[g @ t for t in tangents] for g in map(pull, cotangents)])


def _check_undefined(
    problem: Problem, pull: Linear, rng: np.random.Generator, options: CheckOptions
) -> None:
    """An output that is not used counts as one whose cotangent is zero."""
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

    `pairs` has some cotangents, each with the gradient that it has alone.
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
    # An operator takes ten times as long.
    if all(map(is_plain, arrays)):
        return np.array(arrays)
    return call_numpy(np.stack, list(arrays))


def _row(batch: Any, i: int) -> Any:
    return batch[i] if type(batch) is np.ndarray else call_numpy(INDEXING, batch, i)


def _check_forward(problem: Problem, push: Linear, options: CheckOptions) -> None:
    moved = pushforward(problem)
    if options.fast:
        _check_along(problem, "jvp", partial(_pushed, moved), push, options)
        return
    expected = columns(problem.inputs, push, problem.outputs.size)
    found = columns(problem.inputs, moved, problem.outputs.size)
    compare(problem, "jvp", found, expected, options)


# ---- the gradient as a function ----


def second_problem(
    first: Problem, cotangents: Sequence[Any], rule: str = "backward"
) -> Problem:
    """The gradient of a problem as a function of its inputs and cotangents."""
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
    """Cotangents with no element near zero, the same in each run."""
    vector = problem.outputs.random(np.random.default_rng(_SEED + 1))
    found = problem.outputs.split(vector)
    return [np.stack([g, g], -1)[..., 0] for g in found] if with_gaps else found
