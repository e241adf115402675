"""Masks that differ between rows: ``x[mask]`` has another length in each."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from customop import DataDependentError, FakeArray, Tracer

__all__ = [
    "MaskedElements",
    "is_one_value",
    "mask_of",
    "masked_elements",
    "unknown_mask",
    "where_masked",
]


def mask_of(key: Any) -> Any:
    """The mask of a key, if it takes other elements in each row; else None.

    That is a mask under vmap, alone or beside full slices.
    """
    items = key if type(key) is tuple else (key,)
    masks = [item for item in items if _is_unknown(item)]
    return masks[0] if masks else None


def _is_unknown(item: Any) -> bool:
    return isinstance(item, Tracer) and item.dtype == np.bool_ and _differs(item)


def _differs(x: Any) -> bool:
    """Whether an array may differ between the rows of a vmap."""
    while isinstance(x, Tracer):
        if x.interpreter.kind.name == "vmap":
            return True
        x = x.below
    return False


def unknown_mask(key: Any) -> Any:
    """The mask of a key, if its elements are not known; else None.

    Beside masks that differ between rows these are those without data.
    """
    items = key if type(key) is tuple else (key,)
    masks = [item for item in items if _has_no_data(item)]
    return masks[0] if masks else None


def _has_no_data(item: Any) -> bool:
    if not isinstance(item, Tracer | FakeArray) or item.dtype != np.bool_:
        return False
    return isinstance(item, FakeArray) or not item.is_concrete


def _is_full(item: Any) -> bool:
    return item is Ellipsis or (isinstance(item, slice) and item == slice(None))


def _wide(x: Any, key: Any, mask: Any) -> tuple[Any, int]:
    """The mask with axes of length one for the other axes, and how many come after."""
    items = list(key) if type(key) is tuple else [key]
    at = next(i for i, item in enumerate(items) if item is mask)
    rest = items[:at] + items[at + 1 :]
    dots = [i for i, item in enumerate(rest) if item is Ellipsis]
    if len(dots) > 1 or not all(_is_full(item) for item in rest):
        raise _unknown("beside other indices")
    if any(i < at for i in dots):
        at = len(x.shape) - len(mask.shape) - (len(items) - 1 - at)
    last = len(x.shape) - at - len(mask.shape)
    own = x.shape[at : at + len(mask.shape)]
    if any(n != m for n, m in zip(own, mask.shape, strict=True)):
        raise IndexError(f"a mask of shape {mask.shape} for an array of {x.shape}")
    return np.reshape(mask, (1,) * at + tuple(mask.shape) + (1,) * last), last


def _unknown(where: str) -> DataDependentError:
    return DataDependentError(
        f"x[mask] under vmap {where}: each row takes another number of elements",
        do="use np.where(mask, x, 0), which keeps the shape; or map(f, rows), which runs f"
        " once for each row",
    )


class MaskedElements(NDArrayOperatorsMixin):
    """``x[mask]`` of an unknown length: to be computed with, and written to ``x[mask]``.

    It holds all elements of `x`, with ones in the places that the mask leaves out.
    """

    def __init__(self, mask: Any, elements: Any) -> None:
        self.mask: Any = mask
        self.elements: Any = elements

    def __len__(self) -> int:
        raise _unknown("is used as an array")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _unknown("is used as an array")

    def __array_function__(self, *args: Any) -> NoReturn:
        raise _unknown("is used as an array")

    # `shape` too: it depends on data.
    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _unknown("is used as an array")

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        out = kwargs.pop("out", None)
        if method != "__call__" or kwargs or (out and out[0] is not self):
            raise _unknown("is used as an array")
        found = ufunc(*[_whole(self, value) for value in inputs])
        if out:
            self.elements = found
            return self
        return MaskedElements(self.mask, found)


def _whole(masked: MaskedElements, value: Any) -> Any:
    """All elements of an operand."""
    if isinstance(value, MaskedElements):
        if value.mask is not masked.mask:
            raise _unknown("meets elements of another mask")
        return value.elements
    if getattr(value, "shape", ()) or isinstance(value, list | tuple):
        raise _unknown("meets an array")
    return value


def masked_elements(x: Any, key: Any, mask: Any) -> MaskedElements:
    """``x[key]`` for a key with such a mask."""
    # Ones in the other places are safe for a logarithm or a division.
    return MaskedElements(mask, np.where(_wide(x, key, mask)[0], x, 1))


def is_one_value(x: Any, key: Any, mask: Any, value: Any) -> bool:
    """Whether ``x[key] = value`` writes the same to all elements of a mask."""
    if isinstance(value, MaskedElements):
        return True
    items = key if type(key) is tuple else (key,)
    if not all(item is mask or _is_full(item) for item in items):
        return False
    rank = len(getattr(value, "shape", ()))
    return not isinstance(value, list | tuple) and rank <= _wide(x, key, mask)[1]


def where_masked(x: Any, key: Any, mask: Any, value: Any, cast: Any) -> Any:
    """`x` with ``x[key] = value`` for a key with such a mask."""
    wide, trailing = _wide(x, key, mask)
    if isinstance(value, MaskedElements):
        if value.mask is not mask:
            raise _unknown("takes elements of another mask")
        return np.where(wide, cast(x, value.elements), x)
    new = cast(x, value)
    if len(new.shape) > trailing:
        raise _unknown("takes several values")
    return np.where(wide, new, x)
