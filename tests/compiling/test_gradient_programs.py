"""Random NumPy programs: gradients of compiled functions against those of the functions."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import (
    BINARY,
    COPIES,
    REDUCTIONS,
    UNARY,
    VIEWS,
    WRITES,
    Program,
)

KINDS = ((UNARY, 5), (BINARY, 6), (REDUCTIONS, 2), (VIEWS, 3), (COPIES, 2), (WRITES, 1))
# How a program is used: what comes before and after it, and which results count.
USES = ("alone", "first", "twice", "before", "after", "around", "inside", "backward")


def moves(value: Any) -> bool:
    """Whether a value is an array of floats."""
    return hasattr(value, "dtype") and value.dtype.kind in "fc"


def used(program: Program, how: str, fn: Callable[..., Any], xs: Any, args: Any) -> Any:
    """Arrays of floats that depend on a program, and on its arguments in other ways."""
    first = [np.sum(x * x) for x in xs if how in ("before", "around")]
    given = [x * 1.5 for x in xs] if how == "inside" else [*xs]
    rest = iter(given)
    all_args = [next(rest) if moves(a) else a for a in args]
    found = [v for v in co.tree.leaves(fn(*all_args)) if moves(v)]
    if how == "first":
        found = found[:1]
    elif how == "twice":
        again = co.tree.leaves(fn(*all_args))
        found += [v * 2 for v in again if moves(v)]
    last = [np.sum(x * x * x) for x in xs if how in ("after", "around", "inside")]
    return [v for v in (*first, *found, *last) if moves(v)]


def gradients(program: Program, how: str, fn: Callable[..., Any], args: Any) -> Any:
    """Values and gradients, as bits."""
    primals = [a for a in args if moves(a)]
    rng = np.random.default_rng(program.seed)
    if how == "backward":
        variables = [co.variable(x) for x in primals]
        for y in used(program, how, fn, variables, args):
            if isinstance(y, type(variables[0])) and y.node is not None:
                co.backward(y, np.full(y.shape, 0.75, y.dtype), retain_graph=True)
        return [seen(v.grad) for v in variables]
    out, pull = co.vjp(lambda *xs: used(program, how, fn, xs, args), *primals)
    given = [np.asarray(rng.normal(size=y.shape)).astype(y.dtype) for y in out]
    return [seen(v) for v in (*out, *pull(given), *pull(given))]


def seen(value: Any) -> Any:
    """The bits of an array. All values that are not a number are the same one."""
    array = np.zeros(0) if value is None else np.array(value, order="C")
    is_nan = np.isnan(array)
    array[is_nan] = 0
    return array.shape, array.dtype.str, array.tobytes(), is_nan.tobytes()


def wrong(seed: int) -> tuple[str, bool]:
    """A program whose gradients differ, empty if none does; whether it was compiled."""
    program = Program(seed, kinds=KINDS)
    how = random.Random(seed).choice(USES)
    compiled = co.compile(program.fn)
    if not any(map(moves, program.arguments())):
        return "", True
    for offset, lengths in ((0, None), (1, None), (1, {4: 5}), (2, {4: 6})):
        both = []
        for fn in (program.fn, compiled):
            args = program.arguments(offset, lengths)
            try:
                both.append(gradients(program, how, fn, args))
            except Exception as error:  # noqa: BLE001  # NumPy's, of many classes
                both.append(type(error).__name__)
        if both[0] != both[1] and not isinstance(both[0], str):
            return f"{seed} {how} {lengths}\n{program.text}", False
    entries = compiled.explain().gradients
    return "", any(entry.refused is None for entry in entries)


def check(
    seeds: Sequence[int], faults: Callable[[int], tuple[str, bool]] = wrong
) -> None:
    """Nothing differs, and most programs are compiled."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = [faults(seed) for seed in seeds]
    assert [text for text, _ in found if text] == []
    assert sum(is_compiled for _, is_compiled in found) > 0.55 * len(found)


# ---- gradients inside of other transforms ----


def total(fn: Callable[..., Any], args: Any, xs: Any) -> Any:
    """A real number of a program, which depends on all its results."""
    rest = iter(xs)
    found = fn(*[next(rest) if moves(a) else a for a in args])
    values = [v for v in co.tree.leaves(found) if moves(v)]
    return sum([np.sum(np.real(v) * 1.5) for v in values], 0.0)


def halved(x: Any) -> Any:
    """A batch of two rows."""
    return np.stack([x, x * 0.5])


def nested(how: str, fn: Callable[..., Any], args: Any) -> Any:
    """Gradients of a program in another transform, as bits."""
    primals = [a for a in args if moves(a)]
    at = tuple(range(len(primals)))

    def number(*xs: Any) -> Any:
        return total(fn, args, xs)

    gradient: Any = co.grad(number, at)
    found: Any
    if how == "twice":
        squares = lambda *xs: sum(
            np.sum(np.real(v * v)) for v in gradient(*xs)
        )  # short
        found = co.grad(squares, at)(*primals)
    elif how == "rows":
        found = co.vmap(gradient)(*map(halved, primals))
    elif how == "over rows":
        batch = lambda *xs: np.sum(co.vmap(number)(*map(halved, xs)))  # short
        found = co.grad(batch, at)(*primals)
    elif how == "tangents":
        found = co.jvp(gradient, tuple(primals), tuple(map(np.ones_like, primals)))
    else:
        found = co.jacfwd(gradient, at)(*primals)
    return [seen(v) for v in co.tree.leaves(found)]


def wrong_nested(seed: int) -> tuple[str, bool]:
    """As `wrong`, for gradients in other transforms."""
    program = Program(seed, kinds=KINDS, lines=5)
    how = random.Random(seed).choice(
        ("twice", "rows", "over rows", "tangents", "matrix")
    )
    compiled = co.compile(program.fn)
    if not any(map(moves, program.arguments())):
        return "", True
    for offset, lengths in ((0, None), (1, None), (1, {4: 5}), (2, {4: 6})):
        both = []
        for fn in (program.fn, compiled):
            try:
                both.append(nested(how, fn, program.arguments(offset, lengths)))
            except Exception as error:  # noqa: BLE001  # NumPy's, of many classes
                both.append(type(error).__name__)
        if both[0] != both[1] and not isinstance(both[0], str):
            return f"{seed} {how} {lengths}\n{program.text}", False
    entries = compiled.explain().gradients
    return "", any(entry.refused is None for entry in entries)


# ---- gradients that are compiled ----


def laid_out(value: Any) -> Any:
    """The bits of an array, its class, and how it lies in memory."""
    return seen(value), type(value), value.strides


def wrong_captured(seed: int) -> tuple[str, bool]:
    """As `wrong`, for a gradient that is compiled, in class and memory, too."""
    program = Program(seed, kinds=KINDS)
    args = program.arguments()
    primals = [a for a in args if moves(a)]
    if not primals:
        return "", True
    at = tuple(range(len(primals)))
    plain = program.fn  # the program itself reads any name

    def fn(*xs: Any) -> Any:
        return co.grad(lambda *ys: total(plain, args, ys), at)(*xs)

    compiled = co.compile(fn)
    for offset in (0, 1):
        both: list[Any] = []
        for gradient in (fn, compiled):
            given = [a for a in program.arguments(offset) if moves(a)]
            try:
                both.append([laid_out(v) for v in co.tree.leaves(gradient(*given))])
            except Exception as error:  # noqa: BLE001  # NumPy's, of many classes
                both.append(type(error).__name__)
        if isinstance(both[1], str):
            return "", False
        if isinstance(both[0], str):  # of values that a write destroys, said once
            return "", True
        if both[0] != both[1]:
            return f"{seed} compiled\n{program.text}", False
    return "", True


def test_random_programs() -> None:
    check(range(20))


def test_compiled_gradients() -> None:
    # Each of these seeds has found a fault.
    found = (741051, 741204, 741576, 741864, 750409, 750620, 750695, 801228, 801879)
    check([*range(3000, 3010), *found], wrong_captured)


@pytest.mark.exhaustive
def test_many_compiled_gradients() -> None:
    check(range(3010, 3400), wrong_captured)


@pytest.mark.exhaustive
def test_many_random_programs() -> None:
    check(range(1000, 1300))


@pytest.mark.exhaustive
def test_random_programs_in_other_transforms() -> None:
    check(range(2000, 2100), wrong_nested)
