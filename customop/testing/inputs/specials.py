"""Special values for the arrays of a sample: zeros, nan, large, equal and complex ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import CustomOpError
from customop.testing.inputs.places import Array, arrays_in, replaced
from customop.testing.inputs.variations import complex_of

__all__ = ["SMOOTH", "SPECIAL", "specials"]

# Makes special values for an array, or None where it has none.
_Make: TypeAlias = Callable[[Array], Array | None]

# Added to the size of large numbers: exp overflows, and squares are still exact enough.
_LARGE = 1000.0


def _of_floats(make: Callable[[Array], Any]) -> _Make:
    def made(x: Array) -> Array | None:
        is_meant = x.dtype.kind in "fc" and x.size > 0
        return np.asarray(make(x), x.dtype) if is_meant else None

    return made


def _with_first(value: float) -> _Make:
    def put(x: Array) -> Array:
        out = x.copy()
        out.reshape(-1)[:1] = value
        return out

    return _of_floats(put)


def _large(x: Array) -> Array:
    out: Array = x + _LARGE * np.where(np.real(x) < 0, -1, 1)
    return out


def _equal(x: Array) -> Array | None:
    """The first two numbers are equal, in order the largest: ties, repeated indices."""
    if x.size < 2 or x.dtype.kind not in "iufc":
        return None
    out = x.copy()
    order = out.reshape(-1)
    order[:2] = order.max() if x.dtype.kind != "c" else order[0]
    return out


def _complex(x: Array) -> Array | None:
    is_real = x.dtype.kind == "f" and x.dtype.itemsize <= np.dtype(float).itemsize
    return complex_of(x).astype(np.complex128) if is_real and x.size else None


def _negative(x: Array) -> Array | None:
    return -x if x.dtype.kind == "i" and (x > 0).any() else None


# Note -> special values at which a function still has derivatives.
SMOOTH: dict[str, _Make] = {
    "zeros": _of_floats(np.zeros_like),
    "large numbers": _of_floats(_large),
    "complex numbers": _complex,
    "equal numbers": _equal,
}
# Note -> special values of which results must be the same in every way to compute them.
SPECIAL: dict[str, _Make] = {
    "zeros": SMOOTH["zeros"],
    "large numbers": SMOOTH["large numbers"],
    "equal numbers": _equal,
    "negative integers": _negative,
    "nan": _with_first(np.nan),
    "infinity": _with_first(np.inf),
    "negative infinity": _with_first(-np.inf),
}


def specials(
    op: Operator[..., Any], sample: Sample, table: dict[str, _Make]
) -> Iterator[Sample]:
    """The sample with special values in all arrays that have them.

    Parameters
    ----------
    op : Operator
    sample : Sample
    table : dict
        `SMOOTH` or `SPECIAL`.

    Yields
    ------
    Sample
        Of the same shapes, and as the annotations declare. The kernel may refuse it.
    """
    arrays = [(p, x) for p, x, _ in arrays_in(op, sample)]
    for note, make in table.items():
        made = {p: make(x) for p, x in arrays}
        new = {p: x for p, x in made.items() if x is not None}
        if op.schema.has_shapes:
            new = {p: x for p, x in new.items() if _is_declared(op, sample, p, x)}
        if new:
            yield replaced(op, sample, new, f"{note} in all arrays")


def _is_declared(op: Operator[..., Any], sample: Sample, place: str, x: Array) -> bool:
    """Whether the annotations admit an array: not complex numbers where they say floats."""
    varied = replaced(op, sample, {place: x})
    try:
        op.bind(*varied.args, **varied.kwargs)
    except CustomOpError:
        return False
    return True
