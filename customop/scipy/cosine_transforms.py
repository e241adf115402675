"""The operator behind the cosine and sine transforms of `customop.scipy.fft`.

With ``orthogonalize=True`` the matrix of a transform is orthogonal but for a factor, so
its transpose is the transform of the inverse type with the same factor. Without it, the
first or last elements have weights. Source: Makhoul, "A fast cosine transform in one and
two dimensions", 1980; the weights were checked on SciPy 1.17.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from scipy import fft as _fft

from customop import ArgumentError, FakeArray, ShapeError, custom_op, fake_like
from customop.numpy.arguments import counted, dtype_of, is_below
from customop.numpy.fft import resized
from customop.numpy.index_operators import numbers
from customop.numpy.rules import register_linear

# pyright infers types from SciPy's code and gets some of them wrong.
fft: Any = _fft

# Type of a transform -> type of the inverse, which is also that of the transpose.
INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}

# Function and type -> ends of an axis, and their weights in results and in arguments
# if they are not orthogonalized.
_WEIGHTS: dict[tuple[str, int], tuple[tuple[int, ...], float, float]] = {
    ("dctn", 1): ((0, -1), sqrt(2), sqrt(0.5)),
    ("dctn", 2): ((0,), sqrt(2), 1.0),
    ("dctn", 3): ((0,), 1.0, sqrt(0.5)),
    ("dstn", 2): ((-1,), sqrt(2), 1.0),
    ("dstn", 3): ((-1,), 1.0, sqrt(0.5)),
}


@custom_op(
    "scipy::real_transform",
    mutates_args=(),
    schema="(Array x, str function, int variant, int[] s, int[] axes, str? norm,"
    " bool orthogonalize) -> Array",
    device_types="cpu",
)
def real_transform(
    x: Any,
    function: str,
    variant: int,
    s: Any,
    axes: Any,
    norm: Any,
    orthogonalize: bool,
) -> Any:
    """Compute a cosine or sine transform over several axes, each at most once."""
    if x.dtype.kind == "c":  # SciPy 1.17 would not pass `orthogonalize` on
        options = function, variant, s, axes, norm, orthogonalize
        return real_transform(x.real, *options) + 1j * real_transform(x.imag, *options)
    transform = getattr(fft, function)
    found = transform(x, variant, s, axes, norm, orthogonalize=orthogonalize)
    return np.ascontiguousarray(found)


@lru_cache(maxsize=64)
def _result_dtype(dtype: Any) -> Any:
    return fft.dct(np.zeros(2, dtype)).dtype


@real_transform.register_fake
def _(
    x: Any,
    function: str,
    variant: int,
    s: Any,
    axes: Any,
    norm: Any,
    orthogonalize: bool,
) -> FakeArray:
    shape = list(x.shape)
    for length, axis in zip(s, axes, strict=True):
        shape[normalize_axis_index(axis, len(shape))] = length
    device = fake_like(x).device
    return FakeArray(tuple(shape), _result_dtype(dtype_of(x)), device=device)


@real_transform.register_sample_inputs
def _() -> list[Any]:
    x = np.array([[0.5, 1.0, -0.25], [0.75, 2.0, 1.0]])
    return [
        (x, "dctn", 2, [3], [1], None, False),
        (x, "dstn", 3, [2, 4], [0, 1], "ortho", True),
    ]


@real_transform.register_vmap
def _(
    info: Any,
    in_dims: Any,
    x: Any,
    function: str,
    variant: int,
    s: Any,
    axes: Any,
    norm: Any,
    orthogonalize: bool,
) -> Any:
    dim = in_dims[0]
    rows = [a + (a >= dim) for a in counted(axes, x.ndim - 1)]
    return real_transform(x, function, variant, s, rows, norm, orthogonalize), dim


def _pull(
    g: Any,
    shape: Any,
    function: str,
    variant: int,
    s: Any,
    axes: Any,
    norm: Any,
    orthogonalize: bool,
) -> Any:
    ends, of_result, of_argument = _WEIGHTS.get((function, variant), ((), 1.0, 1.0))
    if orthogonalize:
        of_result = of_argument = 1.0
    g = _weighted(g, axes, ends, of_result)
    found = real_transform(g, function, INVERSE[variant], s, axes, norm, True)
    return resized(_weighted(found, axes, ends, of_argument), shape)


def _weighted(x: Any, axes: Sequence[int], ends: tuple[int, ...], weight: float) -> Any:
    """Multiply the elements at the ends of each axis by a weight."""
    if weight == 1.0:
        return x
    for axis in counted(axes, x.ndim):
        places = numbers(0, x.shape[axis], x)
        is_end = [np.equal(places, end % x.shape[axis]) for end in ends]
        wide = np.where(is_end[0] | is_end[-1], weight, 1.0)
        factors = wide.astype(np.finfo(dtype_of(x)).dtype)
        x = x * np.reshape(factors, (-1, *(1,) * (x.ndim - axis - 1)))
    return x


register_linear(real_transform, _pull)


def check_options(function: str, variant: Any, norm: Any, s: Any) -> None:
    """Raise for a type, a norm or lengths that SciPy does not take."""
    if variant not in INVERSE:
        raise ArgumentError(
            f"scipy.fft.{function}: type={variant!r} does not exist",
            do="use 1, 2, 3 or 4",
        )
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentError(
            f"scipy.fft.{function}: norm={norm!r} is not known",
            do="use 'backward', 'ortho' or 'forward'",
        )
    least = 2 if (function, variant) == ("dctn", 1) else 1
    for length in s:
        if is_below(length, least):
            raise ShapeError(
                f"scipy.fft.{function} of type {variant} needs at least {least}"
                f" elements, got {length}",
                do="give a longer array, or a larger length",
            )
