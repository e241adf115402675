"""Check that results have the precision of their dtypes, and integers all their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from customop.testing.checks.session import Run, Session, arrays_of
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import Array, map_values

# How many samples are looked at.
_SAMPLES: Final = 3
# Bits of the fraction that a number of few bits, such as 0.5 or 3, does not need.
_FEW_BITS: Final = 14


def check_precision(session: Session) -> None:
    """Check numbers whose last bits matter, in the first samples."""
    if session.op.sees_seed or session.op.schema.written:
        return
    for sample in session.samples[:_SAMPLES]:
        values = session.bound(sample)
        kinds = {x.dtype.kind for x in arrays_of(values)}
        if "f" in kinds:
            for dtype, short in ((np.float64, np.float32), (np.longdouble, np.float64)):
                if np.finfo(dtype).nmant > np.finfo(short).nmant:
                    _check_floats(session, values, np.dtype(dtype), np.dtype(short))
        elif kinds and kinds <= {"i", "u"}:
            _check_integers(session, values)


# ---- floats that went through a shorter dtype ----


def _check_floats(
    session: Session, values: Sequence[Any], dtype: np.dtype[Any], short: np.dtype[Any]
) -> None:
    """Raise if all results in a dtype are numbers of a shorter one."""

    def fine(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind != "f":
            return leaf
        third = np.ones((), dtype) / 3  # has all bits, and so have its products
        return np.asarray(leaf.astype(dtype) * (1 + third / 256), dtype)

    run = _run(session, map_values(fine, values))
    for name, out in [] if run is None else run.effects:
        if not isinstance(out, np.ndarray | np.generic) or out.dtype != dtype:
            continue
        found = np.asarray(out)
        if found.size and _has_few_bits(found, short):
            raise Fault(
                f"returns {name} of {dtype} with the precision of {short}",
                f"for arguments of {dtype} whose last bits are not zero, each of its"
                f" {found.size} elements is a number of {short}",
                do=f"compute in {dtype}, or return {short}",
            )


def _has_few_bits(found: Array, short: np.dtype[Any]) -> bool:
    """Return whether all elements are numbers of a shorter dtype, and not simple ones."""
    with np.errstate(all="ignore"):
        is_simple = _bits_are_zero(found, np.finfo(short).nmant - _FEW_BITS)
        is_short = found.astype(short) == found
    return bool(np.isfinite(found).all() and is_short.all() and not is_simple.any())


def _bits_are_zero(found: Array, kept: int) -> Array:
    """Return which numbers need only so many bits of their fraction."""
    fraction, _ = np.frexp(found)
    scaled = fraction * 2.0 ** (kept + 1)
    return np.asarray(scaled == np.floor(scaled))


# ---- integers that went through floats or short integers ----


def _check_integers(session: Session, values: Sequence[Any]) -> None:
    """Raise if integers lose bits above 2**31 or 2**53."""

    def moved(by: int) -> Callable[[Any], Any]:
        def move(leaf: Any) -> Any:
            if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "iu":
                return leaf
            even = np.arange(leaf.size).reshape(leaf.shape) * 4
            return (even + by).astype(np.int64)

        return move

    base = 1 << 53
    runs = [
        _run(session, map_values(moved(by), values))
        for by in (0, 1, base, base + 1, base + 4096)
    ]
    if any(run is None for run in runs):
        return
    effects = [run.effects for run in runs if run is not None]
    for rows in zip(*effects, strict=True):
        name = rows[0][0]
        outs = [np.asarray(v) for _, v in rows]
        is_whole = all(out.dtype.kind in "iu" and out.size for out in outs)
        if not is_whole or len({out.shape for out in outs}) > 1:
            continue
        zero, one, low, after, high = outs
        is_lost = (zero != one).all() and (low == after).all() and (low != high).all()
        if is_lost:
            raise Fault(
                f"returns {name} of {low.dtype} in which the last bit is lost",
                "for integers from 0 and from 1 on it differs, for those from 2**53 and"
                " from 2**53 + 1 on it does not: they went through float64",
                do="compute with integers: x * 2 instead of (x * 2.0).astype(x.dtype)",
            )


def _run(session: Session, values: Sequence[Any]) -> Run | None:
    try:
        return session.call(values)
    except Exception:  # noqa: BLE001  # values or a dtype that it refuses
        return None


# ---- short floats against wide ones ----


def is_precise(
    short: Array, wide: Array, size: float, nearby: Callable[[], Iterable[Any]]
) -> bool:
    """Return whether results in float32 are as precise as float32 allows.

    `size` is the greatest of the arguments. `nearby` yields the wide results for
    arguments that differ by the precision of float32: what that changes, rounding may
    change too.
    """
    with np.errstate(all="ignore"):
        apart = np.abs(np.asarray(short, wide.dtype) - wide)
        # What is left of terms that cancel is a rounding error of each dtype.
        is_left = (np.abs(short) <= _LEFT * size) & (np.abs(wide) <= _LEFT_WIDE * size)
        worst = _most(apart[~is_left])
    bound = _ROUNDING * _most(np.abs(wide)) + float(np.finfo(np.float32).tiny)
    return worst <= bound or is_explained(worst - bound, wide, nearby())


# Rounding errors of float32, relative to the greatest result: some hundred steps.
_ROUNDING: Final = 2e-5
# As many rounding errors of float32 and of float64, relative to the arguments.
_LEFT: Final = 2.0**-16
_LEFT_WIDE: Final = 2.0**-45
# How many times a result may change by the error of its arguments.
_STEPS: Final = 100


def is_explained(worst: float, wide: Array, nearby: Iterable[Any]) -> bool:
    """Return whether results for arguments nearby differ by as much, or are unknown."""
    for other in nearby:
        if other is None or np.shape(other) != wide.shape:
            return True
        with np.errstate(all="ignore"):
            moved = _most(np.abs(np.asarray(other) - wide))
        if worst <= _STEPS * moved:
            return True
    return False


def _most(sizes: Array) -> float:
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def size_of(values: Sequence[Any]) -> float:
    """Return the greatest size of a number in arrays, at least 1."""
    with np.errstate(all="ignore"):
        sizes = [_most(np.abs(x)) for x in arrays_of(values) if x.dtype.kind in "iufc"]
    return max(1.0, *sizes)


def shaken(by: float) -> Iterator[Callable[[Any], Any]]:
    """Yield functions that change floats by this share of them, up or down at random.

    Each array of a call gets other signs: equal ones cancel in x / y.
    """
    for seed in range(_SHAKES):
        yield partial(_shaken, by, np.random.default_rng(seed))


_SHAKES: Final = 3
# The greatest rounding error of float32, relative to the number.
SINGLE: Final = 2.0**-24


def _shaken(by: float, rng: np.random.Generator, leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fc":
        return leaf
    with np.errstate(all="ignore"):
        moved = leaf * (1.0 + by * rng.choice((-1.0, 1.0), leaf.shape))
    return np.asarray(moved, leaf.dtype)
