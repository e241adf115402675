"""Arrays of one kind made from arrays of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.arrays.describe import describe
from customop.arrays.kinds import find_kind, kind_name, kind_of, known_devices
from customop.arrays.numpy_functions import call_numpy
from customop.errors import ArgumentError, did_you_mean, quoted

__all__ = ["as_kind", "devices_at_hand", "from_host", "to_host"]


def to_host(value: Any) -> np.ndarray[Any, Any]:
    """The values of an array of any kind, as a NumPy array to read."""
    kind = kind_of[type(value)]
    if kind is not None and kind.to_numpy is not None:
        return np.asarray(kind.to_numpy(value))
    if kind is None or hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.asarray(np.from_dlpack(value))
    raise ArgumentError(
        f"{describe(value)} cannot be converted to NumPy",
        do="give the class a method __array__ or __dlpack__",
    )


def from_host(values: np.ndarray[Any, Any], like: Any) -> Any:
    """An array of the kind, dtype and layout of `like`."""
    if isinstance(like, np.ndarray | np.generic):
        out = np.empty_like(like)
        out[...] = values
        return out
    kind = kind_of[type(like)]
    if kind is not None and kind.from_numpy is not None:
        return kind.from_numpy(values)
    # Only the operators of the kind can make an array: one number at a time.
    items = [call_numpy(np.full_like, like, number, shape=[]) for number in values.flat]
    if not items:
        return call_numpy(np.zeros_like, like)
    return call_numpy(np.reshape, call_numpy(np.stack, items), values.shape)


def as_kind(x: Any, kind: str) -> Any:
    """Convert an array to another kind.

    Parameters
    ----------
    x : array
        Of any kind with data.
    kind : str
        One of `devices_at_hand`.

    Returns
    -------
    array
        Of the same values; `x` itself if it is of that kind already.

    Raises
    ------
    ArgumentError
        If arrays of that kind cannot be made here.

    Examples
    --------
    >>> import numpy as np
    >>> from customop.testing import as_kind
    >>> as_kind(np.ones(2), "cpu")
    array([1., 1.])
    """
    if kind_name(x) == kind:
        return x
    make = find_kind(kind).from_numpy if kind in devices_at_hand() else None
    if make is None:
        near = did_you_mean(kind, devices_at_hand())
        raise ArgumentError(
            f"as_kind: no array of the kind '{kind}' can be made here{near}; at hand:"
            f" {quoted(devices_at_hand())}",
            do=f'register_array_type("{kind}", cls, from_numpy=...)',
        )
    return make(to_host(x))


def devices_at_hand() -> tuple[str, ...]:
    """Name the kinds of array that can be made here.

    Returns
    -------
    tuple of str
        ``"cpu"``; ``"cuda"`` where CuPy is installed and a device answers; and the
        kinds that were registered with ``from_numpy``.

    Examples
    --------
    >>> from customop.testing import devices_at_hand
    >>> "cpu" in devices_at_hand()
    True
    """
    return tuple(name for name in known_devices() if find_kind(name).can_be_made())
