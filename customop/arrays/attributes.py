"""Attributes that arrays have and traced and fake ones have not: what to use instead."""

from __future__ import annotations

from typing import Any

from customop.arrays.describe import describe
from customop.errors import UnknownNameError

__all__ = ["no_attribute"]

_MEMORY = "make an operator, with custom_op, of the code that reads the memory of x"
_FILE = "return the value from the function, and write it there"
_FIELDS = "split structured arrays into one array for each field before the transform"
_LAYOUT = "leave it out: operators choose how arrays lie in memory"
_NUMBER = "use stop_gradient(x) for the value alone, outside of vmap"

# Attribute of numpy.ndarray or a NumPy scalar -> what to use instead.
_INSTEAD: dict[str, str] = {
    # ---- memory ----
    "__array_interface__": _MEMORY,
    "__array_struct__": _MEMORY,
    "__dlpack__": _MEMORY,
    "__dlpack_device__": _MEMORY,
    "base": _MEMORY,
    "byteswap": _MEMORY,
    "ctypes": _MEMORY,
    "data": _MEMORY,
    "flags": _LAYOUT,
    "setflags": _LAYOUT,
    "strides": _LAYOUT,
    "view": "use x.astype(dtype) for the numbers in another dtype, x.real and x.imag for the"
    " parts of complex ones, x.reshape(shape) for another shape",
    # ---- files ----
    "dump": _FILE,
    "dumps": _FILE,
    "tobytes": _FILE,
    "tofile": _FILE,
    # ---- fields ----
    "getfield": _FIELDS,
    "setfield": _FIELDS,
    # ---- elements ----
    "resize": "use np.reshape(x, shape), or np.pad(x, width)",
    # ---- scalars ----
    "as_integer_ratio": _NUMBER,
    "fromhex": _NUMBER,
    "hex": _NUMBER,
    "is_integer": "use x == np.floor(x)",
    # ---- other libraries ----
    "detach": "use stop_gradient(x)",
    "numpy": "use stop_gradient(x)",
    "value": "use stop_gradient(x), or in an interpreter x.below",
}


def no_attribute(value: Any, name: str) -> AttributeError:
    """The error for an attribute that a traced or fake array does not have."""
    if name in _INSTEAD:
        return UnknownNameError(
            f"{describe(value)} has no attribute '{name}'", do=_INSTEAD[name]
        )
    # As Python says it, with its suggestion of a near name.
    text = f"{type(value).__name__!r} object has no attribute {name!r}"
    return AttributeError(text, name=name, obj=value)
