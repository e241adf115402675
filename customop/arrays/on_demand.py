"""The operators of NumPy's functions, imported when a function is first needed.

Making the operators of all functions takes longer than the import of NumPy, and a program
calls few of them. So a package gives a table of its modules and of the functions that
each one registers. `find_function` imports the module of a function, and
`load_namespace` imports all modules of a package: whoever lists operators calls it.
"""

from __future__ import annotations

import importlib
import sys
from _thread import RLock, get_ident  # `threading` takes 0.5 ms more to import
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from customop.arrays.numpy_names import missing

__all__ = [
    "ALONE",
    "CALLS",
    "FUNCTIONS",
    "add_modules",
    "enter_function",
    "find_alone",
    "find_function",
    "load_all",
    "load_namespace",
    "load_operator",
    "loading_lock",
    "on_register",
]

# NumPy function, or (ufunc, "reduce") -> the operator that runs on traced values.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}


# Those of them that get one array and call an operator with it alone -> this operator.
_ALONE: dict[Any, Any] = {}


class _Calls(dict[Any, Callable[..., Any]]):
    """Key of `FUNCTIONS` -> the function that a call of what runs comes to.

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
# Called with each function that is registered, so that nobody keeps what ran before.
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

    def load(self, modules: Sequence[str]) -> None:
        """Import modules, then publish the functions that they registered."""
        with self._lock:
            before, self._thread = self._thread, get_ident()
            try:
                for module in modules:
                    importlib.import_module(module)
            finally:
                self._thread = before
                self._publish()

    def _publish(self) -> None:
        for function, (fn, alone) in self._entered.items():
            module = _module_of(function)
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


def _publish(function: Any, fn: Callable[..., Any], alone: Any) -> None:
    _ALONE.pop(function, None)
    FUNCTIONS[function] = fn
    if alone is not None:
        _ALONE[function] = alone
    for calls in (CALLS, ALONE):
        calls.pop(function, None)
    for forget in on_register:
        forget(function)


# Held while modules are imported on demand. Who forks takes it, so that no child has a
# half-imported module that it would wait for.
loading_lock: AbstractContextManager[bool] = RLock()
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
        that method of every ufunc.
    """
    names = [f"{package}.{module}" for module in functions]
    for module, listed in zip(names, functions.values(), strict=True):
        _modules.update(dict.fromkeys(listed.split(), module))
    _waiting[namespace] = names


def _module_of(function: Any) -> str | None:
    """The module that registers a NumPy function."""
    if isinstance(function, tuple):
        return _modules.get(f".{function[1]}")
    name = getattr(function, "__name__", "")
    if isinstance(function, np.ufunc):
        return _modules.get(name)
    module = getattr(function, "__module__", "")
    return _modules.get(f"{module}.{name}".removeprefix("numpy."))


def enter_function(function: Any, fn: Callable[..., Any], alone: Any = None) -> None:
    """Register what runs for a NumPy function; a later registration replaces it.

    Of one array and nothing else `fn` calls the operator `alone`, if that is given.
    """
    module = _module_of(function)
    if module is not None and module not in sys.modules:
        _loading.load((module,))  # else it would replace `fn` later
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
        module = _module_of(function)
        if module is not None:
            _loading.load((module,))
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
        _loading.load((_modules[name],))
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
