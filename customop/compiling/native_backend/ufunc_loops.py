"""Inner loops of NumPy's ufuncs: their addresses, and the proof that they are right."""

from __future__ import annotations

import ctypes
import threading
import warnings
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from customop.compiling.native_backend.driver import LOOP_PARAMETERS
from customop.compiling.native_backend.machine_code import MachineFunction, build
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.tables import (
    CLEARED,
    QUIET,
    WATCHED,
    InnerLoop,
)
from customop.forks import free_after_fork

# NumPy makes these loops for compilers: ``ufunc._resolve_dtypes_and_context`` and
# ``ufunc._get_strided_loop``, since NumPy 1.24. The name of the capsule is the version of
# the struct in it; a capsule of another name is refused.
_CAPSULE: Final = b"numpy_1.24_ufunc_call_info"


class NotNative(Exception):  # a reason, which is no fault
    """The reason why a call is left to NumPy's own function."""


class WholeGraph(NotNative):
    """The reason why a whole graph is left to NumPy's code."""


class _CallInfo(ctypes.Structure):
    """The struct in the capsule."""

    _fields_ = (
        ("strided_loop", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("auxdata", ctypes.c_void_p),
        ("requires_pyapi", ctypes.c_bool),
        ("no_floatingpoint_errors", ctypes.c_bool),
    )


class UfuncLoop(NamedTuple):
    """The inner loop of a ufunc for some dtypes.

    Attributes
    ----------
    function, context, auxdata : int
        Addresses: ``function(context, data, dimensions, strides, auxdata)``.
    flags : int
        What the loop does to the floating-point flags, as in `Loop`.
    needs_gil : bool
        Whether the loop uses objects of Python; never.
    owner : object
        Holds the memory behind `context` and `auxdata`.
    dtypes : tuple of dtype
        Of the operands and results that the loop takes.
    """

    function: int
    context: int
    auxdata: int
    flags: int
    needs_gil: bool
    owner: Any
    dtypes: tuple[np.dtype[Any], ...]


_pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_has_name: Any = ctypes.pythonapi.PyCapsule_IsValid
_has_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
_strided: Any = ctypes.PYFUNCTYPE(
    ctypes.c_int, *[ctypes.c_void_p] * 5
)  # context, data, dimensions, strides, auxdata

# Dtypes of which bits are compared and memory is moved without thought of Python.
DTYPES: Final = frozenset("?bBhHiIlLefdFD")

# A loop is proven once in a process, in one thread.
_proving = free_after_fork(threading.RLock())


@lru_cache(maxsize=4096)
def loop_for(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> UfuncLoop:
    """Return the loop that NumPy takes for operands.

    Parameters
    ----------
    ufunc : numpy.ufunc
    kinds : tuple
        The dtype of each operand; ``int``, ``float`` or ``complex`` for a number of Python.
        Those of arrays for the results may follow.

    Raises
    ------
    NotNative
        If the loop uses objects of Python, or its results are not those of the ufunc.
    """
    try:
        compilers: Any = ufunc  # NumPy's annotations leave out what is for compilers
        dtypes, capsule = compilers._resolve_dtypes_and_context(  # noqa: SLF001  # for compilers
            (*kinds, *(None,) * (ufunc.nargs - len(kinds)))
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise NotNative(f"{ufunc.__name__} of {kinds}: {error}") from None
    if any(dtype.char not in DTYPES or not dtype.isnative for dtype in dtypes):
        raise NotNative(f"{ufunc.__name__} of {[str(d) for d in dtypes]}")
    return _proven(ufunc, tuple(dtypes), capsule)


_known: dict[tuple[np.ufunc, tuple[np.dtype[Any], ...]], UfuncLoop | str] = {}


def _proven(
    ufunc: np.ufunc, dtypes: tuple[np.dtype[Any], ...], capsule: Any
) -> UfuncLoop:
    """Return the loop of a capsule after its results were compared with NumPy's."""
    with _proving:
        known = _known.get((ufunc, dtypes))
        if known is None:
            known = _known[ufunc, dtypes] = _read(ufunc, dtypes, capsule)
            is_plain = ufunc.signature is None
            if not isinstance(known, str) and is_plain and not is_of_numpy(ufunc):
                known = _on_copies(known)
            if not isinstance(known, str):
                check = _checked if is_plain else _checked_core
                known = _known[ufunc, dtypes] = check(ufunc, known)
    if isinstance(known, str):
        raise NotNative(known)
    return known


def _read(
    ufunc: np.ufunc, dtypes: tuple[np.dtype[Any], ...], capsule: Any
) -> UfuncLoop | str:
    if not _has_name(capsule, _CAPSULE):
        return "NumPy's loops have another form"
    compilers: Any = ufunc
    compilers._get_strided_loop(capsule)  # noqa: SLF001  # for compilers
    info = _CallInfo.from_address(_pointer(capsule, _CAPSULE))
    if info.requires_pyapi:
        return f"the loop of {ufunc.__name__} uses objects of Python"
    return UfuncLoop(
        info.strided_loop,
        info.context or 0,
        info.auxdata or 0,
        _flags(ufunc, dtypes, is_quiet=info.no_floatingpoint_errors),
        needs_gil=False,
        owner=capsule,
        dtypes=dtypes,
    )


def is_of_numpy(ufunc: np.ufunc) -> bool:
    """Return whether NumPy has a ufunc under its name."""
    return getattr(np, ufunc.__name__, None) is ufunc


def _on_copies(loop: UfuncLoop) -> UfuncLoop:
    """Return a loop that calls another one with copies of the pointers and the length.

    Loops may move the pointers that they get, as those of SciPy do, since NumPy makes new
    ones for each call. The pointers of a row are made once.
    """
    addresses = (loop.function, loop.context, loop.auxdata, len(loop.dtypes))
    record = np.array(addresses, np.uint64)
    return loop._replace(
        function=_copying(),
        context=address_of(record),
        auxdata=0,
        owner=(loop.owner, record),
    )


@cache
def _copying() -> int:
    code = MachineFunction("on_copies", LOOP_PARAMETERS)
    kinds = ("ptr", "ptr", "ptr", "i64")
    function, context, auxdata, count = code.words("%context", kinds)
    data, dims = code.room("i64", _MOST_OPERANDS), code.room("i64", 1)
    code.copy(data, "%data", code.mul(count, 8))
    code.copy(dims, "%dims", 8)
    given = f"ptr {context}, ptr {data}, ptr {dims}, ptr %strides, ptr {auxdata}"
    code.give("i32", code.call("i32", function, given))
    return build([code], quick=True)["on_copies"]


# Of a ufunc in any version of NumPy.
_MOST_OPERANDS: Final = 64

# Ufuncs of integers that raise flags: they divide, or give floating-point numbers.
_DIVIDING: Final = frozenset(
    (
        *("divide", "divmod", "float_power", "floor_divide", "fmod", "power"),
        *("reciprocal", "remainder"),
    )
)


def _flags(
    ufunc: np.ufunc, dtypes: tuple[np.dtype[Any], ...], *, is_quiet: bool
) -> int:
    """Return what a loop does to the floating-point flags."""
    if is_quiet:
        return CLEARED
    if all(d.kind in "biu" for d in dtypes) and ufunc.__name__ not in _DIVIDING:
        return QUIET
    return WATCHED


def _checked(ufunc: np.ufunc, loop: UfuncLoop) -> UfuncLoop | str:
    """Compare the results of a loop with those of the ufunc, contiguous and in steps."""
    for step in (2, 1):
        operands = [
            _samples(dtype, k)[::step]
            for k, dtype in enumerate(loop.dtypes[: ufunc.nin])
        ]
        results = [
            np.zeros(len(operands[0]), dtype) for dtype in loop.dtypes[ufunc.nin :]
        ]
        signature: Any = loop.dtypes
        with (
            np.errstate(all="ignore"),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            expected = ufunc(*operands, signature=signature)
            keeps = call_loop(loop, [*operands, *results], len(operands[0]))
        if not keeps:
            return f"the loop of {ufunc.__name__} changes its pointers"
        if warned:  # with the filter "error" it leaves errors, which only NumPy raises
            return f"the loop of {ufunc.__name__} warns by itself"
        wanted = expected if isinstance(expected, tuple) else (expected,)
        if any(
            a.tobytes() != b.tobytes() for a, b in zip(wanted, results, strict=True)
        ):
            return f"the loop of {ufunc.__name__} has other results than its call"
    return loop


def core_axes(signature: str) -> list[list[str]]:
    """Return the names of the own axes of each operand and result of a ufunc."""
    parts = signature.replace(" ", "").replace("->", ",")[1:-1].split("),(")
    return [part.split(",") if part else [] for part in parts]


def _checked_core(ufunc: np.ufunc, loop: UfuncLoop) -> UfuncLoop | str:
    """Compare the results of a loop over vectors or matrices with those of the ufunc."""
    names = core_axes(str(ufunc.signature))
    arrays = [
        _core_samples(dtype, len(own))
        for own, dtype in zip(names, loop.dtypes, strict=True)
    ]
    expected = [x.copy() for x in arrays[ufunc.nin :]]
    signature: Any = loop.dtypes
    with np.errstate(all="ignore"):
        ufunc(*arrays[: ufunc.nin], out=tuple(expected), signature=signature)
        data = np.array([x.ctypes.data for x in arrays], np.intp)
        letters = {name for own in names for name in own}
        dims = np.array([1, *[_CORE] * len(letters)], np.intp)
        cores = [step for x in arrays for step in x.strides]
        steps = np.array([*[0] * len(arrays), *cores], np.intp)
        before = [*data, *dims, *steps]
        places = [x.ctypes.data for x in (data, dims, steps)]
        _strided(loop.function)(loop.context, *places, loop.auxdata)
    if [*data, *dims, *steps] != before:
        return f"the loop of {ufunc.__name__} changes its pointers"
    results = zip(expected, arrays[ufunc.nin :], strict=True)
    if any(a.tobytes() != b.tobytes() for a, b in results):
        return f"the loop of {ufunc.__name__} has other results than its call"
    return loop


# The length of all axes.
_CORE: Final = 4


def _core_samples(dtype: np.dtype[Any], ndim: int) -> np.ndarray[Any, Any]:
    """Return a number, a vector, or a symmetric matrix with positive eigenvalues."""
    line = np.array([5.0, 1.25, -0.5, 0.375])
    places = np.arange(_CORE)
    whole = line[abs(places[:, None] - places)]
    return np.array(whole[(0,) * (2 - ndim)], dtype)


def call_loop(
    loop: UfuncLoop | InnerLoop, arrays: list[np.ndarray[Any, Any]], count: int
) -> bool:
    """Call a loop on the first `count` items of arrays of one axis.

    Returns
    -------
    bool
        Whether the loop has left its pointers, steps and length as they were.
    """
    data = np.array([a.ctypes.data for a in arrays], np.intp)
    steps = np.array([a.strides[0] for a in arrays], np.intp)
    counts = np.array([count], np.intp)
    before = [*data, *steps, *counts]
    function = _strided(loop.function)
    function(
        loop.context,
        data.ctypes.data,
        counts.ctypes.data,
        steps.ctypes.data,
        loop.auxdata,
    )
    return [*data, *steps, *counts] == before


def _samples(dtype: np.dtype[Any], number: int) -> np.ndarray[Any, Any]:
    """Return 38 values of a dtype; other ones for another number."""
    values = np.random.default_rng(number).integers(0, 9, 38) + (
        0 if number == 0 else 1
    )
    if dtype.kind == "f":
        return (values * 0.375 + 0.125).astype(dtype)
    if dtype.kind == "c":
        return (values * 0.375 + 0.125 - 0.5j * values[::-1]).astype(dtype)
    return values.astype(dtype)
