"""Attributes that arrays have, and traced and fake ones have not or cannot set."""

from __future__ import annotations

from typing import Any, NoReturn

from customop.arrays.describe import describe
from customop.errors import UnknownNameError

__all__ = ["ABSENT", "FIXED", "AbsentAttribute", "refuse_setting"]

_MEMORY = "make an operator, with custom_op, of the code that reads the memory of x"
_FILE = "return the value from the function, and write it there"
_FIELDS = "split structured arrays into one array for each field before the transform"
_LAYOUT = "leave it out: operators choose how arrays lie in memory"
_NUMBER = "use stop_gradient(x) for the value alone, outside of vmap"

# Attribute of numpy.ndarray or a NumPy scalar -> what to use instead.
ABSENT: dict[str, str] = {
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

# Attribute of numpy.ndarray that can be set there and only be read here -> what to use.
FIXED: dict[str, str] = {
    "device": "pass arguments that are on that device",
    "dtype": "use x = x.astype(dtype)",
    "shape": "use x = np.reshape(x, shape)",
    "strides": _LAYOUT,
}


def refuse_setting(value: object, name: str) -> NoReturn:
    """Raise for an attribute that is set, which would change an array without a copy."""
    raise UnknownNameError(
        f"the {name} of {describe(value)} cannot be set", do=FIXED[name]
    )


class AbsentAttribute:
    """An attribute that arrays have and a class has not; reading it says so.

    A `__getattr__` would make the class read all its slots by a slower path.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, value: Any, owner: type) -> NoReturn:
        what = owner.__name__ if value is None else describe(value)
        raise UnknownNameError(
            f"{what} has no attribute '{self._name}'", do=ABSENT[self._name]
        )

    def __set__(self, value: Any, given: Any) -> NoReturn:
        if self._name in FIXED:
            refuse_setting(value, self._name)
        self.__get__(value, type(value))
