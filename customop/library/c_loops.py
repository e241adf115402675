"""Ufuncs made of C functions that loop over items, as kernels of operators."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from customop.errors import ArgumentError, shown


def ufunc_from_loops(name: str, loops: Mapping[str, Any]) -> np.ufunc:
    """Make a ufunc of NumPy from C functions, given by their addresses.

    The ufunc broadcasts, casts and lays out its results as NumPy's own do, and can be the
    kernel of an operator. Compiled functions then run the C function between NumPy's loops,
    without Python.

    Parameters
    ----------
    name : str
        Of the ufunc, as it stands in warnings.
    loops : mapping
        For each combination of dtypes, written as in ``np.add.types`` (``"dd->d"``), a C
        function ``void loop(char **args, npy_intp *dims, npy_intp *steps, void *data)``: its
        address, a function of ctypes, or an object with the attribute ``address``, as
        numba's ``cfunc`` returns. It computes ``dims[0]`` items, each ``steps[k]`` bytes
        after the last one for operand k; the results come after the inputs. `data` is
        NULL. It must not change its inputs, and may be called by several threads at once.

    Returns
    -------
    numpy.ufunc
        Lives as long as the process, and so do the functions.

    Raises
    ------
    ArgumentError
        If the types of a loop are not written as ``"dd->d"``, or its address is 0 or not
        an address.

    Examples
    --------
    A function of Python in place of one in C:

    >>> import ctypes, numpy as np, customop as co
    >>> @ctypes.CFUNCTYPE(None, *[ctypes.POINTER(ctypes.c_size_t)] * 4)
    ... def loop(args, dims, steps, data):
    ...     for i in range(dims[0]):
    ...         x = ctypes.c_double.from_address(args[0] + i * steps[0])
    ...         y = ctypes.c_double.from_address(args[1] + i * steps[1])
    ...         y.value = 2.0 * x.value
    >>> double = co.ufunc_from_loops("double", {"d->d": loop})
    >>> double(np.arange(3))
    array([0., 2., 4.])
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"ufunc_from_loops: the name is {shown(name)}",
            do='pass a name, as "double"',
        )
    if not isinstance(loops, Mapping) or not loops:
        raise ArgumentError(
            f"ufunc_from_loops: loops={shown(loops)} is not a mapping of loops",
            do='write {"dd->d": address}',
        )
    kinds = [_numbers(types) for types in loops]
    counts = {(len(inputs), len(results)) for inputs, results in kinds}
    if len(counts) > 1:
        raise ArgumentError(
            f"ufunc_from_loops: the loops {[*loops]} have other numbers of operands",
            do="make one ufunc of each",
        )
    ((inputs, results),) = counts
    functions = (ctypes.c_void_p * len(loops))(*map(_address, loops.values()))
    data = (ctypes.c_void_p * len(loops))()
    types = b"".join([bytes([*first, *second]) for first, second in kinds])
    texts = name.encode(), b""
    made = _make()(
        ctypes.addressof(functions),
        ctypes.addressof(data),
        types,
        len(loops),
        inputs,
        results,
        _NO_IDENTITY,
        *texts,
        0,
    )
    # The ufunc holds none of these.
    _held.append((functions, data, types, texts, {**loops}, made))
    found: np.ufunc = made
    return found


_held: list[Any] = []
_NO_IDENTITY: Final = -1
# Places in the table of NumPy's C interface for ufuncs; NumPy never changes them.
_FROM_LOOPS: Final = 1


def c_functions(capsule: object) -> Any:
    """Return the addresses of C functions in a capsule of NumPy, by their places."""
    get: Any = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.cast(get(capsule, None), ctypes.POINTER(ctypes.c_size_t))


@cache
def _make() -> Any:
    """Return PyUFunc_FromFuncAndData."""
    module = import_module("numpy._core._multiarray_umath")
    table = c_functions(module._UFUNC_API)  # noqa: SLF001  # a public capsule
    address, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    form = ctypes.PYFUNCTYPE(
        ctypes.py_object,
        *(address, address, text, *[number] * 4, text, text, number),
    )
    return form(table[_FROM_LOOPS])


def _numbers(types: object) -> tuple[list[int], list[int]]:
    """Return the numbers of the dtypes of inputs and results."""
    inputs, arrow, results = (
        types.partition("->") if isinstance(types, str) else ("", "", "")
    )
    chars = np.typecodes["All"].translate({ord(c): None for c in "SUVOMm"})
    if not arrow or not inputs or not results or set(inputs + results) - {*chars}:
        raise ArgumentError(
            f"ufunc_from_loops: {shown(types)} is not the types of a loop",
            do='write them as np.add.types does, "dd->d"',
        )
    return [_number(c) for c in inputs], [_number(c) for c in results]


def _number(char: str) -> int:
    return np.dtype(char).num


# The class of all functions of ctypes.
_CFunction: Final[Any] = ctypes.CFUNCTYPE(None).__bases__[0]


def _address(function: Any) -> int:
    """Return the address of a C function."""
    found = getattr(function, "address", function)
    if isinstance(found, _CFunction):
        found = ctypes.cast(found, ctypes.c_void_p).value
    if type(found) is not int or not found:
        raise ArgumentError(
            f"ufunc_from_loops: {shown(function)} is not the address of a C function",
            do="pass an int, a function of ctypes or a cfunc of numba",
        )
    return found
