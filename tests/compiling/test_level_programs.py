"""Random NumPy programs: compiled functions under vmap and jvp, against loops and complex steps.

What a compiled function gives has the bits of what the function gives, and is right: vmap is
a loop over the rows, and jvp the derivative by a complex step.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import BINARY, COPIES, REDUCTIONS, UNARY, VIEWS, Program
from tests.compiling.test_gradient_programs import moves, seen

KINDS = ((UNARY, 5), (BINARY, 6), (REDUCTIONS, 2), (VIEWS, 3), (COPIES, 2))
# Functions of complex numbers that have a derivative.
ANALYTIC = (
    (("np.sin({a})", "np.tanh({a})", "{a} ** 2", "1.5 * {a}", "{a} / 3", "2 - {a}"), 5),
    (("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} * {b} + {a}", "{a} / ({b} + 9)"), 6),
    (("np.sum({a})", "{a}.sum(axis=0)", "{a}.mean()", "np.cumsum({a}, axis=0)"), 2),
    (("np.prod({a})", "{a} @ {a}.T", "{a}.sum(axis=-1, keepdims=True)"), 1),
    (("{a}.T", "{a}[None]", "{a}[..., ::-1]", "{a}[0]", "np.ravel({a})"), 3),
    (("{a}.copy()", "np.stack([{a}, {a}])", "np.roll({a}, 1)", "{a}[[0, -1]]"), 2),
)
SHAPES = ((4, 3), (4, 3), (3,), (4, 1), (1, 3), (3, 3))


def outcome(fn: Callable[..., Any], args: Any) -> Any:
    """The arrays and numbers that a function gives, or the class of its error."""
    try:
        return [np.asarray(v) for v in co.tree.leaves(fn(*args))]
    except Exception as error:  # noqa: BLE001  # NumPy's, of many classes
        return type(error).__name__


def noted(found: Any) -> Any:
    """What can be compared of an outcome."""
    return found if isinstance(found, str) else [*map(seen, found)]


def batched(program: Program, rng: random.Random) -> tuple[list[Any], list[Any]]:
    """The arguments with rows where they are batched, and the axis of each batch."""
    samples = [program.arguments(offset) for offset in range(3)]
    columns = [*zip(*samples, strict=True)]
    arrays = [i for i, c in enumerate(columns) if isinstance(c[0], np.ndarray)]
    chosen = [i for i in arrays if rng.random() < 0.7] or arrays[:1]
    dims = [
        rng.randint(0, c[0].ndim) if i in chosen else None
        for i, c in enumerate(columns)
    ]
    pairs = zip(columns, dims, strict=True)
    return [c[0] if d is None else np.stack(c, axis=d) for c, d in pairs], dims


def row(args: Any, dims: Any, number: int) -> list[Any]:
    """The arguments of one row."""
    pairs = zip(args, dims, strict=True)
    return [v if d is None else np.take(v, number, axis=d) for v, d in pairs]


def is_near(found: Any, expected: Any) -> bool:
    """Whether arrays are equal up to rounding; short floats are not compared."""
    if found.dtype.kind not in "fc" or found.dtype.itemsize < 8:
        return bool(found.shape == expected.shape)
    return bool(np.allclose(found, expected, rtol=1e-6, atol=1e-9, equal_nan=True))


def wrong_rows(seed: int) -> tuple[str, bool]:
    """A program whose rows differ, empty if none do; whether it was compiled."""
    program = Program(seed, kinds=KINDS)
    fn, compiled = program.fn, co.compile(program.fn)
    args, dims = batched(program, random.Random(seed))
    if dims == [None] * len(dims):
        return "", True
    in_dims = tuple(dims)
    for _ in range(2):
        found = outcome(co.vmap(compiled, in_dims=in_dims), args)
        plain = outcome(co.vmap(fn, in_dims=in_dims), args)
        if noted(found) != noted(plain):
            return f"{seed} {dims}\n{program.text}", False
        if isinstance(found, str):
            continue
        loop = [outcome(fn, row(args, dims, k)) for k in range(3)]
        if not any(isinstance(v, str) for v in loop):
            expected = [np.stack(column) for column in zip(*loop, strict=True)]
            if not all(map(is_near, found, expected)):
                return f"{seed} {dims} differs from the loop\n{program.text}", False
    return "", any(e.refused is None for e in compiled.explain().transforms)


def floats_of(fn: Callable[..., Any], args: Any) -> Callable[..., Any]:
    """The results of floats of a program, as a function of its arguments of floats."""

    def run(*xs: Any) -> Any:
        rest = iter(xs)
        found = fn(*[next(rest) if moves(v) else v for v in args])
        return [v for v in co.tree.leaves(found) if moves(v)]

    return run


def wrong_tangents(seed: int) -> tuple[str, bool]:
    """A program whose tangents differ, empty if none do; whether it was compiled."""
    program = Program(
        seed, kinds=ANALYTIC, shapes=SHAPES, dtypes=("f8",), others=("weights", "2.5")
    )
    compiled = co.compile(program.fn)
    for offset in (0, 0, 1):
        args = program.arguments(offset)
        xs = tuple([v * 0.5 for v in args if moves(v)])
        ts = tuple([np.cos(np.arange(x.size)).reshape(x.shape) for x in xs])
        both = [
            outcome(co.jvp, (floats_of(f, args), xs, ts))
            for f in (compiled, program.fn)
        ]
        if noted(both[0]) != noted(both[1]):
            return f"{seed}\n{program.text}", False
        if isinstance(both[0], str):
            continue
        steps = [x + 1e-30j * t for x, t in zip(xs, ts, strict=True)]
        ends = outcome(floats_of(program.fn, args), steps)
        expected = [np.imag(v) / 1e-30 for v in ends]
        slopes = both[0][len(both[0]) // 2 :]
        is_finite = all(v.dtype.kind == "f" and np.isfinite(v).all() for v in both[0])
        if is_finite and not all(map(is_near, slopes, expected)):
            return f"{seed} differs from the complex step\n{program.text}", False
    return "", any(e.refused is None for e in compiled.explain().transforms)


def check(seeds: range, faults: Callable[[int], tuple[str, bool]]) -> None:
    """Nothing differs, and most programs are compiled."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = [faults(seed) for seed in seeds]
    assert [text for text, _ in found if text] == []
    assert sum(is_compiled for _, is_compiled in found) > 0.55 * len(found)


@pytest.mark.parametrize("faults", [wrong_rows, wrong_tangents])
def test_random_programs(faults: Any) -> None:
    check(range(12), faults)


@pytest.mark.exhaustive
@pytest.mark.parametrize("faults", [wrong_rows, wrong_tangents])
@pytest.mark.parametrize("part", range(2))
def test_many_random_programs(faults: Any, part: int) -> None:
    check(range(1000 + 80 * part, 1080 + 80 * part), faults)
