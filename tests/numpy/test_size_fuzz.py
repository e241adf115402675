"""Random NumPy programs as graphs with symbolic sizes, which are run at other sizes.

A graph gives what the program gives there, or says which guard does not hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from tests.conformance.symbolic import resized
from tests.numpy._random_programs import Draw, program
from tests.numpy.test_random_programs import run

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]
SEEDS = pytest.mark.parametrize("seed", range(5))
COUNT = 120
NEAR = {"f2": 5e-3, "f4": 2e-4, "c8": 2e-4}
# Where there are no elements, NumPy's take does not look at the indices.
UNCHECKED = ("take", "compress")


def _differ(found: Any, expected: Any) -> bool:
    """Whether results differ in shapes, dtypes, or values beyond rounding."""
    pairs = zip(optree.tree_leaves(found), optree.tree_leaves(expected), strict=True)
    for one, other in pairs:
        a, b = np.asarray(one), np.asarray(other)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return True
        near = NEAR.get(a.dtype.str[1:], 1e-8)
        known = np.where(np.isfinite(b), b, 0) if b.dtype.kind in "fc" else b
        scale = max(1.0, float(np.max(np.abs(known), initial=0))) * near
        if not np.allclose(a, b, rtol=near, atol=scale, equal_nan=b.dtype.kind in "fc"):
            return True
    return False


def _pulled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The pulled back ones of a function's results."""

    def gradients(*args: Any) -> Any:
        out, pullback = co.vjp(fn, *args)
        return pullback(optree.tree_map(np.ones_like, out))

    return gradients


@SEEDS
@pytest.mark.parametrize("way", ["values", "gradients"])
@np.errstate(all="ignore")
def test_graphs_are_right_at_other_sizes(seed: int, way: str) -> None:
    """What a graph gives at any size, the program gives."""
    wrong, compared = [], 0
    for i in range(COUNT):
        draw = Draw(f"sizes-{seed}-{i}")
        name, fn, arrays = program(draw)
        is_smooth = all(a.dtype.kind in "fc" for a in arrays)
        if way == "gradients":
            if not is_smooth or any(word in name for word in ("equ", "close")):
                continue
            fn = _pulled(fn)
        graph, error = run(co.make_fx(fn, "symbolic"), *arrays)
        if error is not None or any(word in name for word in UNCHECKED):
            continue
        lengths = sorted({n for a in arrays for n in a.shape})
        for more in range(4):
            new = {n: n + 1 for n in lengths} if not more else _drawn(draw, lengths)
            other = [resized(a, tuple(new[n] for n in a.shape)) for a in arrays]
            found, refused = run(graph, *other)
            if isinstance(refused, co.GuardError):
                continue
            expected, fault = run(fn, *other)
            compared += 1
            if (refused is None) != (fault is None):
                wrong.append(f"{i} {name} {new}: {refused or fault}")
            elif fault is None and _differ(found, expected):
                wrong.append(f"{i} {name} {new}: {found} for {expected}")
    assert wrong == []
    assert compared > 30


def _drawn(draw: random.Random, lengths: list[int]) -> dict[int, int]:
    return {n: n if n == 1 else draw.choice([n, n + 2, 2, 3, 5]) for n in lengths}
