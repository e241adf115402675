"""Operations of plain code on traced and fake arrays: calls, subscripts and writes.

Code that `traceable` adapts comes here for each of them. What stands in for a function is
looked up by the function itself, at the moment of the call, so names may mean anything.
Without traced values each operation is what it was.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, reduce, wraps
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from customop.arrays.array_methods import CONVERSIONS, first_virtual, keeping
from customop.arrays.kinds import FAKE_ARRAY, TRACED, kind_of
from customop.arrays.math_functions import math_functions
from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.arrays.scipy_functions import is_of_scipy, scipy_function
from customop.arrays.trampolines import Hook, hooked, is_hooked
from customop.errors import GENERATED

# An argument of the adapted function that runs, of which new arrays are boxes.
making_like: ContextVar[Any] = ContextVar("making_like", default=None)


def adapted(fn: FunctionType, *, is_kept: bool = False) -> FunctionType:
    """Return a copy of a function, with its globals, cells and names, that is adapted.

    Functions inside of others are made again for each call of those, so their copies are
    kept only where `is_kept` says that the function will be called again.
    """
    known: Any = _functions.get(id(fn))
    # Parts are compared by identity: defaults may be arrays.
    if (
        known is not None
        and known[0]() is fn
        and known[1] is fn.__code__
        and known[2] is fn.__defaults__
        and known[3] is fn.__kwdefaults__
    ):
        found: FunctionType = known[4]
        return found
    code, defaults, named = fn.__code__, fn.__defaults__, fn.__kwdefaults__
    new = _adapted_code(code)
    if new is code:
        return fn
    made = FunctionType(new, fn.__globals__, fn.__name__, defaults, fn.__closure__)
    made.__kwdefaults__ = named
    made.__dict__.update(fn.__dict__)
    made.__qualname__, made.__module__ = fn.__qualname__, fn.__module__
    if fn.__closure__ is None or is_kept:
        key = id(fn)
        kept = weakref.ref(fn, lambda _: _functions.pop(key, None))
        _functions[key] = kept, code, defaults, named, made
    return made


# By identity: the function, the parts of it that a user can replace, and its copy.
_functions: dict[int, Any] = {}
# By identity, since code is equal to that of other files.
_codes: dict[int, tuple[Any, CodeType]] = {}


def _adapted_code(code: CodeType) -> CodeType:
    found = _codes.get(id(code))
    if found is None or found[0]() is not code:
        key = id(code)
        kept = weakref.ref(code, lambda _: _codes.pop(key, None))
        found = _codes[key] = kept, hooked(code, *_HOOKS)
    return found[1]


# ---- calls ----


def called(f: Any) -> Any:
    """Return what is called in place of a callable."""
    handle = _by_class.get(type(f))
    return _instance(f) if handle is None else handle(f)


def _instance(f: Any) -> Any:
    """Return what is called in place of an object of another class."""
    if is_of_scipy(f):
        f = scipy_function(f)
    call = getattr(type(f), "__call__", None)  # noqa: B004  # the function itself
    if type(call) is FunctionType and _is_followed(call):
        return MethodType(adapted(call), f)
    return f


def _function(f: FunctionType) -> Any:
    if is_of_scipy(f) and (found := scipy_function(f)) is not f:
        return found
    return adapted(f) if _is_followed(f) else _table.get(f, f)


def _partial(f: partial[Any]) -> Any:
    return partial(called(f.func), *f.args, **f.keywords)


def _known(f: Any) -> Any:
    return _table.get(f, f)


def _method(method: MethodType) -> Any:
    fn = method.__func__
    if type(fn) is not FunctionType or not _is_followed(fn):
        return method
    return MethodType(adapted(fn), method.__self__)


def _builtin(f: Any) -> Any:
    """Return what is called in place of a function or method in C."""
    owner = f.__self__
    if owner is None or type(owner) is ModuleType:
        return _table.get(f, f)
    if type(owner) is np.ndarray and f.__name__ in _METHODS:
        function = getattr(np, f.__name__)
        return lambda *args, **kwargs: (
            f(*args, **kwargs)
            if first_virtual(args) is None
            else _table[function](owner, *args, **kwargs)
        )
    return f


# Methods of plain arrays that NumPy has as functions of arrays.
_METHODS = ("clip", "dot", "searchsorted")


def _class(cls: Any) -> Any:
    """Return a function that makes an instance by an adapted `__init__`, or the class."""
    if cls in _table:
        return _table[cls]
    init = cls.__init__
    if type(init) is not FunctionType or not _is_followed(init):
        return cls
    if cls.__new__ is not object.__new__:
        return cls
    start = adapted(init)

    def make(*args: Any, **kwargs: Any) -> Any:
        new = object.__new__(cls)
        start(new, *args, **kwargs)
        return new

    return make


def _is_followed(fn: FunctionType) -> bool:
    """Return whether calls of a function are those of a copy."""
    if is_hooked(fn.__code__) or fn.__code__.co_filename.startswith(GENERATED):
        return False
    module = str(fn.__globals__.get("__name__"))
    is_known = module.partition(".")[0] in _NOT_FOLLOWED
    return not is_known or module.startswith(_FOLLOWED)


_OF_NUMPY: Final = (np.ufunc, type(np.sum))
_by_class: dict[type, Callable[[Any], Any]] = {
    FunctionType: _function,
    MethodType: _method,
    BuiltinFunctionType: _builtin,
    type: _class,
    partial: _partial,
    **dict.fromkeys(_OF_NUMPY, _known),
}
# The standard library, and packages that know nothing of traced arrays by design.
_NOT_FOLLOWED: Final = frozenset(
    {
        *(sys.stdlib_module_names - {"__main__", "statistics"}),
        *("numpy", "customop", "cupy", "jax", "jaxlib", "torch", "numba", "optree"),
        *("matplotlib", "pytest", "_pytest", "pluggy", "hypothesis"),
    }
)
_FOLLOWED: Final = "numpy.polynomial"

# ---- subscripts and writes ----


def _is_virtual(value: Any) -> bool:
    kind = kind_of[type(value)]
    return kind is TRACED or kind is FAKE_ARRAY


def _get(c: Any, key: Any) -> Any:
    """Return ``c[key]``."""
    if type(c) is np.ndarray and type(key) not in _PLAIN_KEYS:
        if first_virtual(key) is not None:
            return call_numpy(INDEXING, c, key)
    elif type(c) in _GRIDS:
        return _grid(c, key)
    return c[key]


_PLAIN_KEYS: Final = frozenset((int, slice, str, np.int64, type(None), type(...)))
_GRIDS: Final = (type(np.r_), type(np.c_))


def _grid(c: Any, key: Any) -> Any:
    """Return ``np.r_[key]`` or ``np.c_[key]``, of traced values."""
    items = key if type(key) is tuple else (key,)
    if first_virtual(items) is None or any(type(i) is str for i in items):
        return c[key]
    parts, types = [], []
    for item in items:
        part = c[item] if type(item) is slice else _table[np.asarray](item)
        # A number of Python takes the type of the arrays beside it.
        types.append(item if type(item) in (bool, int, float, complex) else part.dtype)
        if part.ndim == 0:
            part = np.reshape(part, (1,))
        if part.ndim == 1 and c is np.c_:
            part = np.reshape(part, (-1, 1))
        parts.append(part)
    dtype = np.result_type(*types)
    axis = -1 if c is np.c_ else 0
    return np.concatenate([part.astype(dtype) for part in parts], axis=axis)


def _put(value: Any, c: Any, key: Any) -> Any:
    """Write ``c[key] = value``; return the new value of the variable that holds `c`.

    A plain array that nothing else refers to becomes a box at its first traced value.
    Others would see the write in NumPy, and not in the box, so they refuse it.
    """
    if type(c) is np.ndarray:
        like = first_virtual(value)
        like = first_virtual(key) if like is None else like
        if like is not None and sys.getrefcount(c) <= _put_count and _is_own(c):
            c = np.array(c, like=like)
    c[key] = value
    return c


def _grow(c: Any, value: Any, *holders: Any) -> tuple[Any, Any]:
    """Return `value` and what takes the place of `c` in ``c += value``.

    An item of an array is written back after the operator, so that of a plain array may
    be a box of a copy.
    """
    if type(c) is not np.ndarray or not _is_virtual(value):
        return value, c
    count = _held_count if holders else _grow_count
    is_item = len(holders) == 1 and type(holders[0]) is np.ndarray
    if is_item or (sys.getrefcount(c) <= count and _is_own(c)):
        return value, np.array(c, like=value)
    return value, c


def _is_own(c: Any) -> bool:
    return c.base is None and bool(c.flags.writeable)


_HOOKS = Hook(called), Hook(_get), Hook(_put), Hook(_grow)


def _counts() -> tuple[int, int, int]:
    """Return the references that the hooks see to an array of one local variable.

    Those that `_put` and `_grow` see, and `_grow` if the array is an item of a list.
    Measured, since they depend on the version of Python. 0 where references are not
    counted at once, as in builds without the global lock.
    """
    counts: list[int] = []

    def put(value: Any, c: Any, key: Any) -> Any:
        counts.append(sys.getrefcount(c))
        return c

    def grow(c: Any, value: Any, *holders: Any) -> tuple[Any, Any]:
        counts.append(sys.getrefcount(c))
        return value, c

    def write() -> None:
        out = np.zeros(1)
        out[0] = 1.0
        out += 1.0
        held = [np.zeros(1)]
        held[0] += 1.0
        other, more = out, held[0]
        out[0] = 2.0
        out += 1.0
        held[0] += 1.0
        del other, more

    itself = Hook(lambda f: f)
    code = hooked(write.__code__, itself, Hook(operator.getitem), Hook(put), Hook(grow))
    if code is write.__code__ or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return 0, 0, 0
    FunctionType(code, globals(), "write", None, write.__closure__)()
    # `held` is written by `put`, too. An alias must be seen.
    one, two, three, _, *others = counts
    are_seen = others[:3] == [one + 1, two + 1, three + 1]
    return (one, two, three) if are_seen else (0, 0, 0)


_put_count, _grow_count, _held_count = _counts()

# ---- functions of NumPy and Python that take traced values ----


def _making(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that makes arrays, as boxes if they are floats."""

    @wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        like = making_like.get()
        is_old = kwargs.get("copy", True) is not True
        if is_old or like is None or type(found) is not np.ndarray:
            return found
        return np.array(found, like=like) if found.dtype.kind in "fc" else found

    return make


def _full(shape: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``np.full(shape, value)``, of a traced value."""
    if first_virtual(value) is None or "like" in kwargs:
        return np.full(shape, value, *args, **kwargs)
    return np.full(shape, value, *args, **kwargs, like=value)


def _of_lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that takes lists of traced values for arrays."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = {name: _as_array(value) for name, value in kwargs.items()}
        return function(*map(_as_array, args), **named)

    return call


def _as_array(value: Any) -> Any:
    if type(value) not in (list, tuple):
        return value
    like = first_virtual(value)
    return value if like is None else np.array(value, like=like)


def _of_sequence(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that takes lists of traced values among its arrays."""

    @wraps(function)
    def call(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        if type(arrays) in (list, tuple):
            arrays = [*map(_as_array, arrays)]
        return function(arrays, *args, **kwargs)

    return call


def _of_functions(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that calls its first argument, adapted."""
    return lambda f, *args, **kwargs: function(called(f), *args, **kwargs)


def _by_key(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that calls its argument `key`, adapted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("key") is not None:
            kwargs["key"] = called(kwargs["key"])
        return function(*args, **kwargs)

    return call


def _isinstance(value: Any, classes: Any) -> bool:
    """Return whether a value, or NumPy's in its place, is of a class."""
    if isinstance(value, classes) or not _is_virtual(value):
        return isinstance(value, classes)
    if value.box_is_scalar:
        return issubclass(value.dtype.type, classes)
    return issubclass(np.ndarray, classes)


def _float(*args: Any) -> Any:
    """Return ``float(x)``, which keeps a traced `x` of one element."""
    x: Any = args[0] if args else None
    if not _is_virtual(x) or x.size != 1 or x.dtype.kind not in "biuf":
        return float(*args)
    return x.reshape(()).astype(np.float64)[()]


def _finite(a: Any, dtype: Any = None, order: Any = None) -> Any:
    """Return ``np.asarray_chkfinite(a)``, which cannot look at traced values."""
    if first_virtual(a) is None:
        return np.asarray_chkfinite(a, dtype=dtype, order=order)
    return _table[np.asarray](a, dtype=dtype, order=order)


_MAKERS = (
    *("zeros", "empty", "ones", "full", "copy", "array"),
    *("zeros_like", "empty_like", "ones_like", "full_like"),
)
# Functions of sequences of arrays: first those that join them along an axis.
_JOINS = ("concatenate", "stack", "hstack", "vstack", "column_stack", "dstack")
_SEQUENCES = (
    *("block", "broadcast_arrays", "choose", "einsum", "gradient", "histogramdd"),
    *("lexsort", "meshgrid", "multi_dot", "piecewise", "select"),
)


def _stand_ins() -> dict[Any, Any]:
    found: dict[Any, Any] = {
        isinstance: _isinstance,
        float: _float,
        **{f: _of_functions(f) for f in (map, filter, reduce)},
        **{f: _by_key(f) for f in (sorted, max, min)},
        np.asarray_chkfinite: _finite,
        **math_functions(),
    }
    for module in (np, np.linalg, np.fft):
        for name, function in vars(module).items():
            if name in _JOINS:
                found[function] = _of_sequence(function)
            elif type(function) in _OF_NUMPY and name not in _SEQUENCES:
                found[function] = _of_lists(function)
    for name in {*CONVERSIONS, *_MAKERS}:
        function = getattr(np, name)
        kept = keeping(name, function) if name in CONVERSIONS else function
        found[function] = _making(kept) if name in _MAKERS else kept
    found[np.full] = _making(_full)
    return found


# By the function itself.
_table: dict[Any, Any] = _stand_ins()
