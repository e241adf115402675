"""Operations of plain code on traced and fake arrays: calls, subscripts and writes.

Code that `traceable` adapts comes here for each of them. What stands in for a function is
looked up by the function itself, at the moment of the call, so names may mean anything.
Without traced values each operation is what it was.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial, reduce, wraps
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from customop.arrays.array_methods import CONVERSIONS, first_virtual, keeping
from customop.arrays.kinds import FAKE_ARRAY, TRACED, kind_of
from customop.arrays.math_functions import math_functions
from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.arrays.refusals import is_installed_at
from customop.arrays.scipy_functions import is_of_scipy, new_stand_ins
from customop.arrays.trampolines import Hook, hooked, is_hooked, without_notes
from customop.arrays.watched_code import askers, asking
from customop.config import config
from customop.errors import GENERATED

# An argument of the adapted function that runs, of which new arrays are boxes.
making_like: ContextVar[Any] = ContextVar("making_like", default=None)


def entered(fn: Any) -> Any:
    """Return what a transform runs in the place of a function: an adapted copy.

    If `config.adapt` is off or it is not plain code, the function itself, or a copy that
    warns where it takes traced arrays for other objects.
    """
    if not _is_on:
        if type(fn) is FunctionType:
            known = askers.get(id(fn.__code__))
            if known is not None and known[0] is fn.__code__ and not known[1]:
                return fn  # the usual case
        return asking(fn)
    kind = type(fn)
    if kind is FunctionType:
        return _function(fn, is_kept=True)
    if kind is MethodType:
        return _method(fn, is_kept=True)
    return called(fn) if kind is partial else _instance(fn)


_is_on: bool = config.adapt


def _switch() -> None:
    global _is_on  # noqa: PLW0603  # read by each call of a transform
    _is_on = config.adapt


config.on_change(_switch)


def adapted(fn: FunctionType, *, is_kept: bool = False) -> FunctionType:
    """Return a copy of a function, with its globals, cells and names, that is adapted.

    Functions inside of others are made again for each call of those, so their copies are
    kept only where `is_kept` says that the function will be called again.
    """
    known = _functions.get(id(fn))
    if known is not None and known.is_of(fn):
        return known.made
    code, defaults = without_notes(fn.__code__), fn.__defaults__
    named = fn.__kwdefaults__
    new = _adapted_code(code, fn.__globals__)
    if new is code:
        return fn
    made = FunctionType(new, fn.__globals__, fn.__name__, defaults, fn.__closure__)
    made.__kwdefaults__ = named
    made.__dict__.update(fn.__dict__)
    made.__qualname__, made.__module__ = fn.__qualname__, fn.__module__
    if fn.__closure__ is None or is_kept:
        _functions[id(fn)] = _Copied(fn, made)
    return made


class _Copied:
    """A function, the parts of it that a user can replace, and its copy."""

    __slots__ = ("_code", "_defaults", "_kept", "_named", "is_user", "made")

    def __init__(self, fn: FunctionType, made: FunctionType) -> None:
        key = id(fn)
        # The copy goes with the function, so that its id means no other one.
        self._kept = weakref.ref(fn, lambda _: _functions.pop(key, None))
        self._code = without_notes(fn.__code__)
        self._defaults, self._named = fn.__defaults__, fn.__kwdefaults__
        self.made: FunctionType = made
        self.is_user: bool = _owner_of(fn) == "user"

    def is_of(self, fn: FunctionType) -> bool:
        """Return whether the copy is that of a function as it is now."""
        # By identity: defaults may be arrays.
        return (
            self._code is without_notes(fn.__code__)
            and self._defaults is fn.__defaults__
            and self._named is fn.__kwdefaults__
        )


# By identity, since code is equal to that of other files.
_functions: dict[int, _Copied] = {}
_codes: dict[int, tuple[Any, CodeType]] = {}
_owners: dict[int, tuple[Any, str]] = {}


def _adapted_code(code: CodeType, names: dict[str, Any]) -> CodeType:
    found = _codes.get(id(code))
    if found is None or found[0]() is not code:
        key = id(code)
        kept = weakref.ref(code, lambda _: _codes.pop(key, None))
        found = _codes[key] = kept, hooked(code, *_HOOKS, _kind_in(names))
    return found[1]


def _kind_in(names: dict[str, Any]) -> Callable[[str, str], str]:
    """Return a function that says what an attribute of a global name is.

    "elementwise" if it is a ufunc of one array, "numpy" if it is another function of
    NumPy. Names may mean something else later: then a call lacks its hook.
    """

    def kind(name: str, attribute: str) -> str:
        module = names.get(name)
        found = vars(module).get(attribute) if type(module) is ModuleType else None
        if type(found) not in _OF_NUMPY or found in _MADE_ANEW:
            return ""
        return "elementwise" if getattr(found, "nin", 0) == 1 else "numpy"

    return kind


# ---- calls ----


def called(f: Any) -> Any:
    """Return what is called in place of a callable."""
    handle = _by_class.get(type(f))
    return _instance(f) if handle is None else handle(f)


def _instance(f: Any) -> Any:
    """Return what is called in place of an object of another class."""
    call = getattr(type(f), "__call__", None)  # noqa: B004  # the function itself
    if type(call) is FunctionType:
        found = _function(call)
        return f if found is call else MethodType(found, f)
    if is_of_scipy(f):
        _table.update(new_stand_ins())
        return _table.get(f, f)
    return f


def _function(f: FunctionType, *, is_kept: bool = False) -> Any:
    known = _functions.get(id(f))
    if known is not None and known.is_user and known.is_of(f):
        return known.made
    owner = _owner_of(f)
    if owner == "user":
        return adapted(f, is_kept=is_kept)
    if owner == "other":
        return _table.get(f, f)
    # What is made for a traced argument takes traced values.
    if making_like.get() is None:
        return partial(_enter, f)
    return adapted(f)


def _owner_of(f: FunctionType) -> str:
    """Return whose code a function runs: "user", "installed" or "other".

    Calls of others are those of the function itself.
    """
    code = f.__code__
    known = _owners.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    if is_of_scipy(f):
        _table.update(new_stand_ins())
    found = "other"
    if f not in _table and _is_followed(f):
        found = "installed" if is_installed_at(code.co_filename) else "user"
    key = id(code)
    _owners[key] = weakref.ref(code, lambda _: _owners.pop(key, None)), found
    return found


def _enter(f: FunctionType, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function of an installed package from the user's code."""
    like = _like_in((*args, *kwargs.values()))
    if like is None:
        return f(*args, **kwargs)
    token = making_like.set(like)
    try:
        return adapted(f)(*args, **kwargs)
    finally:
        making_like.reset(token)


def _like_in(values: Iterable[Any]) -> Any:
    """Return a traced value among arguments, or in an object or function of them."""
    for value in values:
        like = first_virtual(value)
        if like is None:
            like = first_virtual([*_held_by(value)])
        if like is not None:
            return like
    return None


def _held_by(value: Any) -> Iterator[Any]:
    """Yield what a dict, an object, a function or a partial holds itself."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, partial):
        yield from (*value.args, *value.keywords.values(), *_held_by(value.func))
    elif isinstance(value, MethodType):
        yield from _held_by(value.__self__)
    elif isinstance(value, FunctionType):
        yield from value.__defaults__ or ()
        for cell in value.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            yield content
            if not isinstance(content, type | ModuleType):
                yield from getattr(content, "__dict__", {}).values()
    elif not isinstance(value, type | ModuleType):
        yield from getattr(value, "__dict__", {}).values()


def _partial(f: partial[Any]) -> Any:
    return partial(called(f.func), *f.args, **f.keywords)


def _known(f: Any) -> Any:
    return _table.get(f, f)


def _method(method: MethodType, *, is_kept: bool = False) -> Any:
    fn = method.__func__
    if type(fn) is not FunctionType:
        return method
    found = _function(fn, is_kept=is_kept)
    if method in _table:  # of a distribution of SciPy
        return _table[method]
    return method if found is fn else MethodType(found, method.__self__)


def _builtin(f: Any) -> Any:
    """Return what is called in place of a function or method in C."""
    owner = f.__self__
    if owner is None or type(owner) is ModuleType:
        # Called in the user's frame, where a symbolic size sees that there is a `like`.
        is_plain = f in _PLAIN_MAKERS and making_like.get() is None
        return f if is_plain else _table.get(f, f)
    if type(owner) is np.ndarray and f.__name__ in _METHODS:
        function = getattr(np, f.__name__)
        return lambda *args, **kwargs: (
            f(*args, **kwargs)
            if first_virtual(args) is None
            else _table[function](owner, *args, **kwargs)
        )
    return f


# They are in C, and what stands in for them is for code of installed packages.
_PLAIN_MAKERS = (np.zeros, np.empty)
# Methods of plain arrays that NumPy has as functions of arrays.
_METHODS = ("clip", "dot", "searchsorted")


def _class(cls: Any) -> Any:
    """Return a function that makes an instance by an adapted `__init__`, or the class."""
    if cls in _table:
        return _table[cls]
    init = cls.__init__
    if type(init) is not FunctionType or cls.__new__ is not object.__new__:
        return cls
    start = _function(init)
    if start is init:
        return cls

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


class _CallHook(Hook):
    """The hook of calls, in one frame for most of them."""

    __slots__ = ()

    def __matmul__(self, arg: Any) -> Any:
        if type(arg) is FunctionType:
            known = _functions.get(id(arg))
            if known is not None and known.is_user and known.is_of(arg):
                return known.made
            return _function(arg)
        if type(arg) in _OF_NUMPY:
            return _table.get(arg, arg)
        handle = _by_class.get(type(arg))
        return _instance(arg) if handle is None else handle(arg)


class _Gets(Hook):
    """The hook of subscripts, likewise."""

    __slots__ = ()

    def __rmatmul__(self, args: tuple[Any, ...]) -> Any:
        c, key = args
        if type(c) is np.ndarray or type(c) in _GRIDS:
            return _get(c, key)
        return c[key]


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
        # A Python number takes the dtype of the arrays beside it.
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
    is_item = is_item and c.dtype.kind in "biufc"
    if is_item or (sys.getrefcount(c) <= count and _is_own(c)):
        return value, np.array(c, like=value)
    return value, c


def _is_own(c: Any) -> bool:
    is_writeable = c.base is None and bool(c.flags.writeable)
    return is_writeable and c.dtype.kind in "biufc"


_HOOKS = _CallHook(called), _Gets(_get), Hook(_put), Hook(_grow)


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
        for value in args:
            if type(value) in _SEQUENCE:
                args = (*map(_as_array, args),)
                break
        if kwargs:
            kwargs = {k: v if k == "out" else _as_array(v) for k, v in kwargs.items()}
        return function(*args, **kwargs)

    return call


_SEQUENCE: Final = frozenset((list, tuple))


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


# Their stand-ins do more than take lists.
_MADE_ANEW: Final = frozenset(
    (np.copy, np.zeros_like, np.ones_like, np.empty_like, np.full_like)
)
_MAKERS = (
    *("zeros", "empty", "ones", "full", "copy", "array"),
    *("zeros_like", "empty_like", "ones_like", "full_like"),
)
# Functions of sequences of arrays: first those that join them along an axis.
_JOINS = ("concatenate", "stack", "hstack", "vstack", "column_stack", "dstack")
_SEQUENCES = (
    *("block", "broadcast_arrays", "choose", "einsum", "gradient", "histogram2d"),
    "histogramdd",
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
