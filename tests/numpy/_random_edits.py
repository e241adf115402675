"""Random programs of the functions that edit, order, make and compare arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # it imports this module
    from tests.numpy._random_programs import Draw, Program

PAD_MODES = ["linear_ramp", "maximum", "minimum", "mean", "median", "empty"]
REFLECTED = ["reflect", "symmetric"]


def edited(draw: Draw) -> Program:
    """A function that changes how many elements there are."""
    x = draw.array()
    axis = draw.axis(x.ndim, many=False)
    length = x.size if axis is None else x.shape[axis % x.ndim] if x.ndim else 1
    at, number = draw.item(length), draw.number()
    new = draw.choice([(), 4, (2, 3), (0,), (3, 1), -1])
    width = draw.choice([1, (0, 2), (3, 1), 0])
    mode, turn = draw.choice(PAD_MODES), draw.choice(REFLECTED)
    ends = "bf" if draw.random() < 0.5 else draw.choice("bf")
    bits = draw.choice(["big", "little"])
    options: dict[str, Callable[[Any], Any]] = {
        f"insert {at} {number} {axis}": lambda x: np.insert(x, at, number, axis),
        f"insert {at} itself": lambda x: np.insert(x, at, x[..., :1], x.ndim - 1),
        f"delete {at} {axis}": lambda x: np.delete(x, at, axis),
        f"resize {new}": lambda x: np.resize(x, new),
        f"trim_zeros {ends}": lambda x: np.trim_zeros(x > 0.5, ends),
        f"pad {width} {mode}": lambda x: _padded(x, width, mode),
        f"pad odd {width} {turn}": lambda x: np.pad(x, width, turn, reflect_type="odd"),
        "block": lambda x: np.block([[x, x], [number, x]]),
        "extract": lambda x: np.extract(x > 0, x),
        f"packbits {axis} {bits}": lambda x: np.packbits(x, axis, bits),
        f"unpackbits {axis}": lambda x: np.unpackbits(x.astype("u1"), axis, None, bits),
        "tril_indices_from": lambda x: x[np.tril_indices_from(x)],
        "full_like": lambda x: np.full_like(x, np.sum(x)),
    }
    name = draw.choice(list(options))
    return name, options[name], [x]


def _padded(x: Any, width: Any, mode: Any) -> Any:
    """A padded array, without the elements that have no value."""
    found = np.pad(x, width, mode)
    return found.shape if mode == "empty" else found


def ordered(draw: Draw) -> Program:
    """A function of the order of elements, or of sets."""
    x = draw.array()
    axis = draw.axis(x.ndim, many=False)
    y = draw.array(dtype=x.dtype if draw.random() < 0.7 else None)
    flags = [draw.random() < 0.5 for _ in range(3)]
    kth, side = draw.choice([0, 1, -1, (0, -1)]), draw.choice(["left", "right"])
    options: dict[str, Callable[..., Any]] = {
        f"partition {kth} {axis}": lambda x, y: np.partition(x, kth, axis),
        f"argpartition {kth} {axis}": lambda x, y: np.argpartition(x, kth, axis),
        f"lexsort {axis}": lambda x, y: np.lexsort((x, x > 0), axis=axis),
        "sort_complex": lambda x, y: np.sort_complex(x),
        f"searchsorted {side}": lambda x, y: np.searchsorted(
            np.sort(x, axis=None), y, side
        ),
        f"unique {axis}": lambda x, y: np.unique(x, True, *flags[:2], axis=axis),
        "unique_counts": lambda x, y: tuple(np.unique_counts(x)),
        "union1d": lambda x, y: np.union1d(x, y),
        "setxor1d": lambda x, y: np.setxor1d(x, y),
        "setdiff1d": lambda x, y: np.setdiff1d(x, y),
        "intersect1d": lambda x, y: np.intersect1d(x, y, return_indices=True),
        f"isin {flags}": lambda x, y: np.isin(x, y, invert=flags[2]),
    }
    name = draw.choice(list(options))
    return name, options[name], [x, y]


def spaced(draw: Draw) -> Program:
    """Numbers between two ends."""
    x = draw.array(dtype=draw.choice(["i1", "u2", "i8", "f4", "f8", "c16"]))
    y = draw.array(draw.fitting(x.shape), dtype=draw.choice(["i4", "f4", "f8", "c16"]))
    count, ends = draw.choice([0, 1, 2, 5, -1]), draw.random() < 0.7
    axis = draw.choice([0, -1, x.ndim, 7])
    dtype = draw.choice([None, None, "f4", "i4", complex])
    options: dict[str, Callable[..., Any]] = {
        "linspace": lambda x, y: np.linspace(x, y, count, ends, count > 1, dtype, axis),
        "logspace": lambda x, y: np.logspace(x, y, count, ends, 2.0, None, axis),
        "logspace, base": lambda x, y: np.logspace(1, y, count, ends, abs(x) + 1.5),
        "geomspace": lambda x, y: np.geomspace(
            abs(x) + 1.5, abs(y) + 1.5, count, ends, None, axis
        ),
        "linspace to 1": lambda x, y: np.linspace(x, 1, count, ends, dtype=dtype),
        "arange": lambda x, y: np.arange(count, like=_array(x)) * np.ravel(x)[:1],
        "array": lambda x, y: np.array([x, x], dtype, ndmin=3, like=_array(x)),
    }
    name = draw.choice(list(options))
    return f"{name} {count} {ends} {axis} {dtype}", options[name], [x, y]


def _array(x: Any) -> Any:
    """An array that NumPy takes as `like`, also for a scalar."""
    return np.atleast_1d(x)


def compared(draw: Draw) -> Program:
    """Whether arrays or elements are equal, close, real or infinite."""
    x = draw.array()
    y = draw.array(draw.fitting(x.shape), x.dtype if draw.random() < 0.7 else None)
    y = x.copy() if draw.random() < 0.3 else y
    nan, tolerance = draw.random() < 0.5, draw.choice([1e-5, 0, 0.5])
    options: dict[str, Callable[..., Any]] = {
        f"isclose {nan} {tolerance}": lambda x, y: np.isclose(
            x, y, tolerance, equal_nan=nan
        ),
        "isclose to 1": lambda x, y: np.isclose(x, 1, atol=tolerance),
        f"allclose {nan}": lambda x, y: np.allclose(x, y, equal_nan=nan),
        f"array_equal {nan}": lambda x, y: np.array_equal(x, y, nan),
        "array_equiv": lambda x, y: np.array_equiv(x, y),
        "isreal": lambda x, y: np.isreal(x),
        "iscomplex": lambda x, y: np.iscomplex(x),
        "isposinf": lambda x, y: np.isposinf(x),
        "isneginf": lambda x, y: np.isneginf(x),
    }
    name = draw.choice(list(options))
    return name, options[name], [x, y]


KINDS = (edited, ordered, spaced, compared)
