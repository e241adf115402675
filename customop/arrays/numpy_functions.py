"""NumPy's functions on arrays of any kind: their operators, imported when first needed."""

from __future__ import annotations

import importlib
import inspect
import operator
import sys
from _thread import (
    RLock,
    get_ident,  # `threading` takes 0.5 ms more to import
)
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np

from customop.arrays.refusals import missing, numpy_name
from customop.errors import RegistrationError
from customop.forks import free_after_fork
from customop.later import later

ufunc_keywords: ModuleType = later(import_module, "customop.arrays.ufunc_keywords")


# ---- NumPy's functions on arrays of any kind ----


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
    ufunc_keywords.check_outs(outs, name, value)
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
            ufunc_keywords.write_out(one, new, name, casting, where, widens=widens)
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


# ---- the operators of NumPy's functions, imported when a function is first needed ----
# Making the operators of all functions takes longer than the import of NumPy, and a
# program calls few of them. So a package gives a table of its modules and of the
# functions that each one registers. `find_function` imports the module of a function,
# and `load_namespace` imports all modules of a package: code that lists
# operators calls it.


# NumPy function, or (ufunc, "reduce") -> the operator that runs on traced values.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}


# Those of them that get one array and call an operator with it alone -> this operator.
_ALONE: dict[Any, Any] = {}


class _Calls(dict[Any, Callable[..., Any]]):
    """Key of `FUNCTIONS` -> the function that a call of its entry ends in.

    The class of an operator holds that function, once it is compiled. To call the
    operator takes 45 ns more (Python 3.11).
    """

    def __missing__(self, function: Any) -> Callable[..., Any]:
        fn: Callable[..., Any] = self.find(function)
        own = vars(type(fn)).get("__call__")
        if own is not None:
            call = own.__func__ if isinstance(own, staticmethod) else fn
            self[function] = call
            if self.find(function) is not fn:  # replaced meanwhile
                self.pop(function, None)
        return fn

    def find(self, function: Any) -> Any:
        """Return the operator or rule for a NumPy function."""
        return find_function(function)


class _CallsAlone(_Calls):
    """The same for calls with one array and nothing else."""

    def find(self, function: Any) -> Any:
        """Return the operator or rule for a NumPy function."""
        return find_alone(function)


CALLS: _Calls = _Calls()
ALONE: _CallsAlone = _CallsAlone()
# Called with each function that is registered, to clear caches of what ran before.
on_register: list[Callable[[Any], None]] = []

# Name of a NumPy function, such as "sin" or "linalg.norm" -> the module that registers it.
_modules: dict[str, str] = {}
# Namespace of operators -> the modules that define them, until all are imported.
_waiting: dict[str, Sequence[str]] = {}


class _Loading:
    """The imports on demand, of one thread at a time.

    Until a module is complete, its operators lack rules. Its functions are found in
    `FUNCTIONS` only afterwards, and other threads that look for them wait.
    """

    def __init__(self, lock: AbstractContextManager[bool]) -> None:
        self._lock = lock
        self._thread = 0
        self._entered: dict[Any, tuple[Callable[..., Any], Any]] = {}

    def load(self, modules: Sequence[str], name: str = "") -> None:
        """Import modules, then publish the functions that they registered.

        Of what a module makes on demand, only `name` is made, or all without a name.
        """
        with self._lock:
            before, self._thread = self._thread, get_ident()
            try:
                for module in modules:
                    waiting = _on_demand(importlib.import_module(module))
                    for each in [name] if name else [*waiting]:
                        waiting.pop(each, _nothing)()
            finally:
                self._thread = before
                self._publish()

    def _publish(self) -> None:
        for function, (fn, alone) in self._entered.items():
            module = _modules.get(_name_of(function))
            is_there = module is None or module in sys.modules  # else its import failed
            if is_there and function not in FUNCTIONS:
                _publish(function, fn, alone)
        self._entered.clear()

    def enter(self, function: Any, fn: Callable[..., Any], alone: Any) -> None:
        """Register a function: at once, unless its module is being imported here."""
        if self._thread == get_ident():
            self._entered[function] = fn, alone
        else:
            _publish(function, fn, alone)


def _on_demand(module: ModuleType | None) -> dict[str, Callable[[], object]]:
    """Return what a module makes when it is needed: makers of operators, by name."""
    return getattr(module, "ON_DEMAND", {})


def _nothing() -> None:
    """Make nothing: the name is made already."""


def _publish(function: Any, fn: Callable[..., Any], alone: Any) -> None:
    _ALONE.pop(function, None)
    FUNCTIONS[function] = fn
    if alone is not None:
        _ALONE[function] = alone
    for calls in (CALLS, ALONE):
        calls.pop(function, None)
    for forget in on_register:
        forget(function)


# Held while modules are imported on demand. No child has a half-imported
# module that it would wait for.
loading_lock: AbstractContextManager[bool] = free_after_fork(RLock())
_loading = _Loading(loading_lock)


def add_modules(namespace: str, package: str, functions: Mapping[str, str]) -> None:
    """Have the modules of a package imported when their operators are needed.

    Parameters
    ----------
    namespace : str
        The namespace of all operators that the modules define.
    package : str
    functions : mapping
        Name of each module in the package -> names of the NumPy functions that it
        registers, separated by spaces: ``"sin"``, ``"linalg.norm"``, and ``".at"`` for
        that method of every ufunc. A module may have a dict ``ON_DEMAND`` of names and
        functions that make their operators; each is called once, when it is needed.
    """
    names = [f"{package}.{module}" for module in functions]
    for module, listed in zip(names, functions.values(), strict=True):
        _modules.update(dict.fromkeys(listed.split(), module))
    _waiting[namespace] = names


def _name_of(function: Any) -> str:
    """Return the name that a NumPy function has in `_modules`."""
    if isinstance(function, tuple):
        return f".{function[1]}"
    name: str = getattr(function, "__name__", "")
    if isinstance(function, np.ufunc):
        return name
    module = getattr(function, "__module__", "")
    return f"{module}.{name}".removeprefix("numpy.")


def enter_function(function: Any, fn: Callable[..., Any], alone: Any = None) -> None:
    """Register what runs for a NumPy function; a later registration replaces it.

    Of one array and nothing else `fn` calls the operator `alone`, if that is given.
    """
    name = _name_of(function)
    module = _modules.get(name)
    known = sys.modules.get(module or "")
    if module is not None and (known is None or name in _on_demand(known)):
        _loading.load((module,), name)  # else it would replace `fn` later
    _loading.enter(function, fn, alone)


def find_function(function: Any) -> Callable[..., Any]:
    """Return what to call for a NumPy function, and import its module if needed.

    Raises
    ------
    MissingRuleError
        If the function has no operator.
    """
    found = FUNCTIONS.get(function)
    if found is None:
        name = _name_of(function)
        if name in _modules:
            _loading.load((_modules[name],), name)
            found = FUNCTIONS.get(function)
    if found is None:
        raise missing(function) from None
    return found


def find_alone(function: Any) -> Callable[..., Any]:
    """Return what to call for a NumPy function of one array and nothing else.

    The operator itself, where it is known which one `find_function` would call.
    """
    found = find_function(function)
    alone: Callable[..., Any] = _ALONE.get(function, found)
    return alone


def load_operator(qualname: str) -> None:
    """Import what defines the operator of a NumPy function of that name.

    If the table has no such function, import everything in its namespace.
    """
    namespace, _, name = qualname.partition("::")
    if namespace in _waiting and name in _modules:
        _loading.load((_modules[name],), name)
    else:
        load_namespace(namespace)


def load_namespace(namespace: str, asked_by: str = "") -> None:
    """Import all modules that define operators of a namespace.

    This does nothing when a module of the same package asks: it is being imported, and
    another thread may load what waits for it.
    """
    modules = _waiting.get(namespace)
    if modules is None or asked_by.partition(".")[0] == modules[0].partition(".")[0]:
        return
    _loading.load(modules)
    _waiting.pop(namespace, None)


def load_all() -> None:
    """Import all modules that define operators."""
    for namespace in tuple(_waiting):
        load_namespace(namespace)
