"""NumPy's functions on arrays of any kind: which operator runs, and where results go."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np

from customop.arrays.numpy_names import numpy_name
from customop.arrays.on_demand import CALLS, enter_function, find_function
from customop.errors import RegistrationError
from customop.later import later

fit: ModuleType = later(import_module, "customop.arrays.fit")
ufunc_keywords: ModuleType = later(import_module, "customop.arrays.ufunc_keywords")

__all__ = [
    "INDEXING",
    "SETTING",
    "call_numpy",
    "getitem",
    "place_of_out",
    "register_numpy_function",
    "run",
]

FnT = TypeVar("FnT", bound=Callable[..., Any])
NumPyFunction: TypeAlias = Callable[..., Any] | tuple[Callable[..., Any], str]


@overload
def register_numpy_function(
    function: NumPyFunction, fn: FnT, /, *, alone: Callable[..., Any] | None = None
) -> FnT: ...
@overload
def register_numpy_function(
    function: NumPyFunction,
    fn: None = None,
    /,
    *,
    alone: Callable[..., Any] | None = None,
) -> Callable[[FnT], FnT]: ...
def register_numpy_function(
    function: NumPyFunction,
    fn: FnT | None = None,
    /,
    *,
    alone: Callable[..., Any] | None = None,
) -> FnT | Callable[[FnT], FnT]:
    """Choose the operator that runs for a NumPy function on traced or fake arrays.

    Parameters
    ----------
    function : callable or tuple
        A NumPy function or ufunc, or a pair such as ``(np.add, "reduce")``.
        For ``x[key]``, pass ``operator.getitem`` of the standard library; for
        ``x[key] = value``, ``operator.setitem``.
    fn : callable, optional
        An operator, or a function that calls operators; it takes what users pass to
        the NumPy function. For ``operator.setitem`` it returns the whole array with
        that part replaced. Without it, a decorator is returned.
    alone : Operator, optional
        The operator that `fn` calls when it gets one array and nothing else, with that
        array alone. Such calls then go straight to it.

    Returns
    -------
    callable
        `fn` itself, or a decorator that returns its function unchanged.

    Raises
    ------
    RegistrationError
        If either is not a function.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> half = np.frompyfunc(lambda v: v / 2, 1, 1)  # a ufunc of your own
    >>> @co.custom_op("doc::halved", mutates_args=())
    ... def halved(x: np.ndarray) -> np.ndarray:
    ...     return half(x).astype(float)
    >>> co.register_numpy_function(half, halved) is halved
    True
    """
    if fn is None:

        def decorator(given: FnT) -> FnT:
            return register_numpy_function(function, given, alone=alone)

        return decorator
    known = function[0] if isinstance(function, tuple) else function
    if not callable(known) or not callable(fn):
        raise RegistrationError(
            f"register_numpy_function: {known if callable(fn) else fn!r} is not a function",
            do="pass a NumPy function and an operator",
        )
    enter_function(function, fn, alone)
    place_of_out.clear()
    return fn


def call_numpy(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the operator of a NumPy function on arrays of any kind."""
    return CALLS[function](*args, **kwargs)


def getitem(x: Any, key: Any) -> Any:
    """Index an array, also a plain one by traced indices: ``x[key]``.

    Parameters
    ----------
    x : array
    key : index, slice, None, Ellipsis, array of ints or bools, or tuple of them
        Arrays in it may be traced, where ``x[key]`` of a plain array cannot see them.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> table = np.arange(6.0).reshape(3, 2)
    >>> co.vmap(lambda i: co.getitem(table, i))(np.array([2, 0]))
    array([[4., 5.],
           [0., 1.]])
    """
    return call_numpy(INDEXING, x, key)


# The keys for x[key] and x[key] = value in `FUNCTIONS`.
INDEXING = operator.getitem
SETTING = operator.setitem


# ---- results written into arrays ----


def run(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any
) -> Any:
    """Call the operator of a NumPy function; its result goes to `out`, if that is given.

    Every call of a ufunc, function or method with more than the array `value` passes here.
    """
    keywords = {**kwargs}
    out = keywords.pop("out", None)
    if out is None and len(args) > 1:
        at = place_of_out[function]
        if 0 <= at < len(args):
            out = args[at]
            args = (*args[:at], None, *args[at + 1 :])
    if out is None or (isinstance(out, tuple) and all(o is None for o in out)):
        return _computed(function, args, keywords)
    outs = out if isinstance(out, tuple) else (out,)
    name = numpy_name(function)
    fit.check_outs(outs, name, value)
    is_ufunc = isinstance(function, np.ufunc)
    where = keywords.pop("where", True) if is_ufunc else True
    casting = keywords.get("casting", "same_kind")
    if where is not True and isinstance(function, np.ufunc):
        args = ufunc_keywords.hide(function, args, where, outs)
    elif ufunc_keywords.is_reduction(function):
        args, casting = (
            ufunc_keywords.for_out(outs[0], function, args, keywords),
            "unsafe",
        )
    found = _computed(function, args, keywords)
    news = found if isinstance(found, tuple) else (found,)
    for one, new in zip(outs, news, strict=True):
        if one is not None:
            widens = is_ufunc and function is not np.matmul
            fit.write_out(one, new, name, casting, where, widens=widens)
    if len(outs) == 1:
        return outs[0]
    pairs = zip(outs, news, strict=True)
    return tuple([new if one is None else one for one, new in pairs])


def _computed(function: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
    if isinstance(function, np.ufunc) and _PLAIN.issuperset(map(type, args)):
        return function(*args, **keywords)  # only `out` is not plain
    if not keywords or not isinstance(function, np.ufunc):
        return call_numpy(function, *args, **keywords)
    return ufunc_keywords.call_with(find_function(function), function, args, keywords)


_PLAIN = {bool, int, float, complex, list, tuple}


class _Places(dict[Any, int]):
    """NumPy function -> position of `out` among its arguments, or -1."""

    def __missing__(self, function: Any) -> int:
        self[function] = found = _find_out(function)
        return found


place_of_out: dict[Any, int] = _Places()


def _find_out(function: Any) -> int:
    # NumPy hands over the `out` of ufuncs by name. C functions have a signature from
    # NumPy 2.4 on; what is registered for them takes `out` at the same place.
    for known in (function, find_function(function)):
        if callable(known) and not isinstance(known, np.ufunc):
            try:
                parameters = inspect.signature(known).parameters.values()
            except ValueError:
                continue
            names = [p.name for p in parameters if p.kind in _BY_POSITION]
            return names.index("out") if "out" in names else -1
    return -1


_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
