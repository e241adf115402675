"""Numbers to fill arrays with: distinct, moderate, far from kinks, the same each time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np

__all__ = ["SHAPED", "families", "fill"]

_Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_Shape: TypeAlias = tuple[int, ...]


def _spread(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Distinct numbers between 0 and 1, in any order."""
    count = prod(shape)
    steps = rng.permutation(count) + rng.uniform(0.25, 0.75, count)
    out: _Array = steps / max(count, 1)
    return out.reshape(shape)


def _magnitudes(spread: _Array, bins: int) -> _Array:
    """Distinct positive numbers away from all multiples of a half.

    Functions that round, clip or compare have their kinks there.
    """
    scaled = spread * bins
    which = np.floor(scaled)
    out: _Array = 0.5 * which + 0.1 + 0.3 * (scaled - which)
    return out


def _signs(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Both signs, the positive one first."""
    count = prod(shape)
    signs = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
    if count:
        signs[1:] = rng.permutation(signs[1:])
    return signs.reshape(shape)


# ---- families of floats ----


def _wide(shape: _Shape, rng: np.random.Generator) -> _Array:
    return _signs(shape, rng) * _magnitudes(_spread(shape, rng), 6)


def _unit(shape: _Shape, rng: np.random.Generator) -> _Array:
    return _signs(shape, rng) * _magnitudes(_spread(shape, rng), 2)


def _positive(shape: _Shape, rng: np.random.Generator) -> _Array:
    return _magnitudes(_spread(shape, rng), 2)


def _above(shape: _Shape, rng: np.random.Generator) -> _Array:
    return 1.0 + _magnitudes(_spread(shape, rng), 4)


def _sorted(shape: _Shape, rng: np.random.Generator) -> _Array:
    return np.sort(_above(shape, rng), -1)


def _probabilities(shape: _Shape, rng: np.random.Generator) -> _Array:
    x = _positive(shape, rng)
    out: _Array = x / x.sum(-1, keepdims=True)
    return out


def _unit_length(shape: _Shape, rng: np.random.Generator) -> _Array:
    x = _wide(shape, rng)
    out: _Array = x / np.sqrt((x * x).sum(-1, keepdims=True))
    return out


def _definite(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Symmetric matrices whose eigenvalues are positive and distinct."""
    x = _unit(shape, rng)
    mixed = 0.2 * (x + np.swapaxes(x, -1, -2))
    out: _Array = mixed + np.diag(1.5 + np.arange(shape[-1]))
    return out


def _orthogonal(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Rotations, of determinant 1."""
    q: _Array = np.linalg.qr(_wide(shape, rng))[0]
    if shape[-1]:
        q[..., 0] *= np.linalg.det(q)[..., None].round()
    return q


def _triangular(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Lower triangular matrices with a positive diagonal."""
    out: _Array = np.tril(_definite(shape, rng))
    return out


_Family: TypeAlias = Callable[[_Shape, np.random.Generator], _Array]

# The search uses the first family that a kernel takes silently.
_PLAIN: dict[str, _Family] = {
    "wide": _wide,
    "unit": _unit,
    "positive": _positive,
    "above one": _above,
}
# Some kernels ask for these.
_OF_VECTORS: dict[str, _Family] = {
    "sorted": _sorted,
    "probabilities": _probabilities,
    "unit length": _unit_length,
}
_OF_MATRICES: dict[str, _Family] = {
    "definite": _definite,
    "orthogonal": _orthogonal,
    "triangular": _triangular,
}
SHAPED = (*_OF_VECTORS, *_OF_MATRICES)
_WHOLE = ("index", "count", "signed")


def families(letter: str) -> tuple[str, ...]:
    """Names of the families for every shape, by the kind of a dtype."""
    if letter in "iu":
        return _WHOLE
    return tuple(_PLAIN) if letter in "fc" else ("mixed",)


def _family(name: str, shape: _Shape) -> _Family:
    """The numbers of a family, or the plainest where the shape cannot have it."""
    fitting = dict(_PLAIN)
    if shape:
        fitting |= _OF_VECTORS
    if len(shape) > 1 and shape[-1] == shape[-2]:
        fitting |= _OF_MATRICES
    return fitting.get(name, _wide)


# ---- arrays ----


@lru_cache(maxsize=512)
def fill(
    family: str, shape: _Shape, dtype: np.dtype[Any], seed: int, limit: int = 2
) -> _Array:
    """Make an array to copy: read-only.

    Parameters
    ----------
    family : str
        One of `families` or `SHAPED`. Where the shape or dtype cannot have it, the
        plainest one is used.
    shape : tuple of int
    dtype : dtype
    seed : int
        Each seed gives other numbers of the same family.
    limit : int
        Indices are below it.

    Returns
    -------
    ndarray
    """
    rng = np.random.default_rng((seed, len(shape), prod(shape)))
    if dtype.kind in "iu":
        out = _whole_numbers(family, shape, dtype, limit, rng)
    elif dtype.kind == "b":
        out = _signs(shape, rng) > 0
    elif dtype.kind in "fc":
        make = _family(family, shape)
        out = make(shape, rng)
        if dtype.kind == "c" and make in _PLAIN.values():
            out = out + 1j * make(shape, rng)
    else:
        out = np.zeros(shape)
    out = np.array(
        out, dtype, order="C"
    )  # arithmetic makes scalars of arrays without axes
    out.flags.writeable = False
    return out


def _whole_numbers(
    family: str,
    shape: _Shape,
    dtype: np.dtype[Any],
    limit: int,
    rng: np.random.Generator,
) -> _Array:
    numbers = rng.permutation(prod(shape)).reshape(shape)
    if family not in ("count", "signed"):
        return numbers % max(limit, 1)
    numbers = 1 + numbers % 5
    is_signed = family == "signed" and dtype.kind == "i"
    return numbers * _signs(shape, rng).astype(int) if is_signed else numbers
