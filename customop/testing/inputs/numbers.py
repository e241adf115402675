"""Numbers to fill arrays with: distinct, moderate, far from kinks, the same each time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

__all__ = ["FAMILIES", "SHAPED", "Values", "families", "fill"]

Values: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def _spread(count: int, rng: Any) -> Values:
    """Distinct numbers between 0 and 1, in any order."""
    steps = rng.permutation(count) + rng.uniform(0.25, 0.75, count)
    out: Values = steps / max(count, 1)
    return out


def _magnitudes(spread: Values, bins: int) -> Values:
    """Distinct positive numbers that keep away from all multiples of a half.

    There lie the kinks of what rounds, clips and compares.
    """
    scaled = spread * bins
    which = np.floor(scaled)
    out: Values = 0.5 * which + 0.1 + 0.3 * (scaled - which)
    return out


def _signs(count: int, rng: Any) -> Values:
    """Both signs, the positive one first."""
    signs: Values = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
    return (
        signs[np.concatenate([[0], 1 + rng.permutation(count - 1)])] if count else signs
    )


def _wide(shape: Any, count: int, rng: Any) -> Values:
    return _signs(count, rng) * _magnitudes(_spread(count, rng), 6)


def _unit(shape: Any, count: int, rng: Any) -> Values:
    return _signs(count, rng) * _magnitudes(_spread(count, rng), 2)


def _positive(shape: Any, count: int, rng: Any) -> Values:
    return _magnitudes(_spread(count, rng), 2)


def _above(shape: Any, count: int, rng: Any) -> Values:
    return 1.0 + _magnitudes(_spread(count, rng), 4)


def _sorted(shape: Any, count: int, rng: Any) -> Values:
    return np.sort(_above(shape, count, rng).reshape(shape), -1)


def _probabilities(shape: Any, count: int, rng: Any) -> Values:
    x = _positive(shape, count, rng).reshape(shape)
    out: Values = x / x.sum(-1, keepdims=True)
    return out


def _unit_length(shape: Any, count: int, rng: Any) -> Values:
    x = _wide(shape, count, rng).reshape(shape)
    out: Values = x / np.sqrt((x * x).sum(-1, keepdims=True))
    return out


def _definite(shape: Any, count: int, rng: Any) -> Values:
    """Symmetric matrices whose eigenvalues are positive and apart."""
    x = _unit(shape, count, rng).reshape(shape)
    mixed = 0.2 * (x + np.swapaxes(x, -1, -2))
    out: Values = mixed + np.diag(1.5 + np.arange(shape[-1]))
    return out


def _orthogonal(shape: Any, count: int, rng: Any) -> Values:
    """Rotations, of determinant 1."""
    q: Values = np.linalg.qr(_wide(shape, count, rng).reshape(shape))[0]
    if shape[-1]:
        q[..., 0] *= np.linalg.det(q)[..., None].round()
    return q


def _triangular(shape: Any, count: int, rng: Any) -> Values:
    """Lower triangular matrices with a positive diagonal."""
    out: Values = np.tril(_definite(shape, count, rng))
    return out


# Name -> numbers for a shape, as a vector or in that shape. The first that a kernel
# takes without a complaint is used: from the least special to the most.
_PLAIN: dict[str, Callable[[Any, int, Any], Values]] = {
    "wide": _wide,
    "unit": _unit,
    "positive": _positive,
    "above one": _above,
}
# What some kernels ask for, and the axes that it needs.
SHAPED: dict[str, int] = {
    "sorted": 1,
    "probabilities": 1,
    "unit length": 1,
    "definite": 2,
    "orthogonal": 2,
    "triangular": 2,
}
_SHAPED: dict[str, Callable[[Any, int, Any], Values]] = {
    "sorted": _sorted,
    "probabilities": _probabilities,
    "unit length": _unit_length,
    "definite": _definite,
    "orthogonal": _orthogonal,
    "triangular": _triangular,
}
FAMILIES = {**_PLAIN, **_SHAPED}
_WHOLE = ("index", "count", "signed")


def families(letter: str) -> tuple[str, ...]:
    """Names of the plain families of a kind of dtype."""
    if letter in "iu":
        return _WHOLE
    return tuple(_PLAIN) if letter in "fc" else ("mixed",)


def _whole_numbers(family: str, count: int, limit: int, rng: Any) -> Values:
    if family == "index":
        out: Values = rng.permutation(count) % max(limit, 1)
        return out
    spread: Values = 1 + rng.permutation(count) % 5
    spread *= 1 if family == "count" else _signs(count, rng).astype(int)
    return spread


def _applies(family: str, shape: tuple[int, ...]) -> bool:
    needed = SHAPED.get(family, 0)
    if len(shape) < needed:
        return False
    return needed < 2 or shape[-1] == shape[-2]


@lru_cache(maxsize=512)
def fill(
    family: str, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int, limit: int = 2
) -> Values:
    """An array to copy: read-only.

    Parameters
    ----------
    family : str
        One of `families`, or of those that need a shape; where it is of no use for the
        shape or dtype, the plainest stands in.
    shape : tuple of int
    dtype : dtype
    seed : int
        Other numbers of the same family for each.
    limit : int
        Indices are below it.

    Returns
    -------
    ndarray
    """
    count = int(np.prod(shape, dtype=int))
    rng = np.random.default_rng((seed, len(shape), count))
    out: Values
    if dtype.kind in "iu":
        name = family if family in _WHOLE else "index"
        name = "count" if name == "signed" and dtype.kind == "u" else name
        out = _whole_numbers(name, count, limit, rng)
    elif dtype.kind == "b":
        out = _signs(count, rng) > 0
    elif dtype.kind in "fc":
        name = family if family in FAMILIES and _applies(family, shape) else "wide"
        out = FAMILIES[name](shape, count, rng)
        if dtype.kind == "c" and name in _PLAIN:
            out = out + 1j * FAMILIES[name](shape, count, rng)
    else:
        out = np.zeros(count)
    out = out.reshape(shape).astype(dtype, order="C")
    out.flags.writeable = False
    return out
