"""Where objects of CPython and NumPy have their parts in memory, and the functions in C.

The layouts are those of the C interfaces of CPython and NumPy 2 on machines of 64 bits.
They are compared with real objects at the first use, and nothing native runs if one
differs.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import sysconfig
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from customop.library.c_loops import c_functions

# ---- layouts ----

# Offsets in bytes, in any object of Python: its type.
TYPE: Final = 8
# In an array: its memory, number of axes (an int), lengths, steps, dtype, flags (an int).
DATA, NDIM, LENGTHS, STEPS, DTYPE, FLAGS = 16, 24, 32, 40, 56, 64
# Flags of an array.
ALIGNED: Final = 0x0100
WRITEABLE: Final = 0x0400
# In a dtype: the order of its bytes (a char), its number (an int), and its metadata.
BYTE_ORDER, NUMBER, METADATA = 26, 28, 56

# Versions of NumPy whose iterator goes over axes and buffers in the order of `iteration`
# and `reduction_rows`: random programs show it. That of 2.1 buffers other rows: sums have
# other last bits.
_ORDERS: Final = (["2", "3"], ["2", "4"], ["2", "5"])


@cache
def why_not_native() -> str | None:
    """Return why machine code cannot read the objects of this process; None if it can."""
    return _other_machine() or _other_numpy()


def _other_machine() -> str | None:
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "the machine does not have 64 bits and little-endian numbers"
    if sys.implementation.name != "cpython":
        return f"Python is {sys.implementation.name}, not CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no global lock"
    if floating_point_flags() is None:
        return f"the floating-point flags of {platform.machine()} are not known"
    return None


def _other_numpy() -> str | None:
    if np.__version__.split(".")[:2] not in _ORDERS:
        return f"the order in which NumPy {np.__version__} adds is not known"
    wrong = [
        f"{name} of {sample.dtype} {sample.shape}"
        for sample in _samples()
        for name, found, wanted in _parts(sample)
        if found != wanted
    ]
    if wrong:
        return f"NumPy {np.__version__} has another layout of {wrong[0]}"
    return None


def _samples() -> list[np.ndarray[Any, Any]]:
    """Return arrays that differ in all that is read of them."""
    base = np.zeros((4, 3), np.float64)
    locked = base[1:, ::2]
    locked.flags.writeable = False
    odd = np.zeros(17, np.uint8)[1:].view(np.float64)
    marked = np.zeros(2, np.dtype(np.int32, metadata={"a": 1}))
    return [base, locked, odd, marked, base.T, np.zeros((), "?"), np.zeros(3, ">f4")]


def _parts(sample: np.ndarray[Any, Any]) -> list[tuple[str, Any, Any]]:
    """Return parts of an array: name, the value in memory, and the value for Python."""
    at = id(sample)
    n = sample.ndim
    lengths = _word(at + LENGTHS) if n else 0
    steps = _word(at + STEPS) if n else 0
    flags = _int(at + FLAGS)
    dtype = id(sample.dtype)
    order = chr(_char(dtype + BYTE_ORDER))
    wanted = sample.__array_interface__["data"][0]
    return [
        ("type", _word(at + TYPE), id(type(sample))),
        ("data", _word(at + DATA), wanted),
        ("ndim", _int(at + NDIM), n),
        ("shape", tuple([_word(lengths + 8 * i) for i in range(n)]), sample.shape),
        ("strides", tuple([_word(steps + 8 * i) for i in range(n)]), sample.strides),
        ("dtype", _word(at + DTYPE), dtype),
        ("aligned", bool(flags & ALIGNED), sample.flags.aligned),
        ("writeable", bool(flags & WRITEABLE), sample.flags.writeable),
        ("byteorder", order, sample.dtype.byteorder),
        ("num", _int(dtype + NUMBER), sample.dtype.num),
        ("metadata", bool(_word(dtype + METADATA)), sample.dtype.metadata is not None),
    ]


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _int(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


def _char(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


# ---- floating-point flags ----


def floating_point_flags() -> dict[str, int] | None:
    """Return the bit of each flag that NumPy looks at, in the register of the processor."""
    return _FLAGS.get(platform.machine().lower())


# MXCSR, and FPSR of ARM, of which nothing was tried yet.
_X86: Final = {"invalid": 1, "divide": 4, "over": 8, "under": 16}
_ARM: Final = {"invalid": 1, "divide": 2, "over": 4, "under": 8}
_FLAGS: Final = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}


def is_arm() -> bool:
    """Return whether the processor is one of ARM."""
    return floating_point_flags() is _ARM


# ---- functions in C ----


@cache
def python_function(name: str) -> str:
    """Return the address of a function of Python's C interface, as LLVM writes it."""
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    return pointer(found or 0)


@cache
def numpy_function(place: int) -> str:
    """Return an address in the table of NumPy's C interface, as LLVM writes it.

    Parameters
    ----------
    place : int
        As in ``__multiarray_api.h``; NumPy never changes it.
    """
    return pointer(_table()[place])


@cache
def _table() -> Any:
    module = import_module("numpy._core._multiarray_umath")
    return c_functions(module._ARRAY_API)  # noqa: SLF001  # a public capsule


@cache
def error_settings() -> Any:
    """Return the context variable with NumPy's settings for errors and buffers."""
    module = import_module("numpy._core.umath")
    return module._extobj_contextvar  # noqa: SLF001  # errstate shows only its values


@cache
def thread_functions() -> tuple[str, str] | None:
    """Return the functions that begin a thread of POSIX and wait for it; None elsewhere."""
    if sys.platform == "win32":
        return None
    own = ctypes.CDLL(None)
    found = [
        ctypes.cast(getattr(own, name), ctypes.c_void_p).value or 0
        for name in ("pthread_create", "pthread_join")
    ]
    return pointer(found[0]), pointer(found[1])


def pointer(address: int) -> str:
    """Return an address as an operand of LLVM."""
    return f"inttoptr (i64 {address} to ptr)"
