"""Plain NumPy code of others that converts its arguments, on traced and fake arrays.

``np.asarray(x)`` and ``isinstance(x, np.ndarray)`` cannot be hooked, and the array that
``np.empty(n)`` makes takes no traced values. So a call with traced values runs copies of
the functions, whose global names lead to a NumPy of their own. The originals, and calls
without such values, stay as they are.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial, wraps
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import numpy as np
from typing_extensions import ParamSpec

from customop.arrays.array_methods import (
    CONVERSIONS,
    KeepingNamespace,
    first_virtual,
    keeping,
)
from customop.arrays.kinds import is_fake, is_traced
from customop.errors import ArgumentError, shown

P = ParamSpec("P")
R = TypeVar("R")


def traceable(fn: Callable[P, R]) -> Callable[P, R]:
    """Make a function of another package work on traced values.

    Many functions begin with ``x = np.asarray(x)``, which asks a traced value for its
    numbers and so is an error. In the function that is returned, and in those of the same
    package that it calls, such conversions keep traced and fake arrays,
    ``isinstance(x, np.ndarray)`` is true of them, and arrays from ``np.zeros``,
    ``np.empty``, ``np.ones`` and ``np.full`` take them.

    Parameters
    ----------
    fn : callable
        A function or method written in Python, of NumPy code, or a `functools.partial`
        of one. It is not changed.

    Returns
    -------
    callable
        Takes what `fn` takes. A call without traced or fake arrays calls `fn` itself.

    Raises
    ------
    ArgumentError
        If `fn` is not written in Python.

    Notes
    -----
    Classes of the package, and code in C, are not reached. Each call with traced values
    makes the copies again, about 10 us for each function that runs (Python 3.11).

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> polyval = co.traceable(np.polynomial.polynomial.polyval)
    >>> co.grad(lambda c: polyval(2.0, c))(np.array([1.0, 0.5, 3.0]))
    array([1., 2., 4.])
    """
    own = _function_of(fn)
    package = _package_of(own)

    @wraps(fn if isinstance(fn, partial) else own)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        like = first_virtual([*args, *kwargs.values()])
        if like is None:
            return fn(*args, **kwargs)
        found: Callable[P, R] = _AdaptedNames(package, like).adapted(fn)
        return found(*args, **kwargs)

    return call


def _function_of(fn: Any) -> FunctionType:
    """Return the Python function in a method or behind NumPy's dispatch."""
    inner = getattr(fn, "_implementation", getattr(fn, "__func__", fn))
    if isinstance(inner, partial):
        return _function_of(inner.func)
    if not isinstance(inner, FunctionType):
        raise ArgumentError(
            f"traceable: {shown(fn)} is not a function written in Python",
            do="make an operator of it, with custom_op",
        )
    return inner


def _package_of(fn: FunctionType) -> str:
    """Return the package whose functions are copied; of NumPy only that of `fn`."""
    # Functions that are made of text may be of no module.
    first, _, rest = (fn.__module__ or _NO_PACKAGE).partition(".")
    return fn.__module__.rpartition(".")[0] if first == "numpy" and rest else first


_NO_PACKAGE = "<text>"


class _AdaptedNames:
    """The objects for names of a package in one call with traced values."""

    def __init__(self, package: str, like: Any) -> None:
        self.package = package
        self.like = like
        self._numpy = _TracedNumPy(like)
        self._made: dict[int, tuple[Any, Any]] = {id(np): (np, self._numpy)}
        self._builtins = {**vars(builtins), "__import__": self._imported}

    def adapted(self, value: Any) -> Any:
        """Return a value of the package, or the one that takes its place."""
        known = self._made.get(id(value))
        if known is None:
            # A function that leads to itself finds the original until it is copied.
            self._made[id(value)] = (value, value)
            known = self._made[id(value)] = (value, self._adapted(value))
        return known[1]

    def _adapted(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            is_own = self._owns(value.__name__)
            is_kept = isinstance(value, KeepingNamespace)
            return _AdaptedModule(value, self) if is_own and not is_kept else value
        if isinstance(value, MethodType):
            return MethodType(self.adapted(value.__func__), value.__self__)
        if isinstance(value, partial):
            return partial(self.adapted(value.func), *value.args, **value.keywords)
        name = getattr(value, "__name__", "")
        if name and getattr(np, str(name), None) is value:
            return getattr(self._numpy, name)
        inner = getattr(value, "_implementation", value)
        if isinstance(inner, FunctionType) and self._owns(inner.__module__):
            return self._copied(inner)
        return value

    def _owns(self, module: str | None) -> bool:
        return f"{module or _NO_PACKAGE}.".startswith(f"{self.package}.")

    def _copied(self, fn: FunctionType) -> FunctionType:
        cells = tuple([self._cell(cell) for cell in fn.__closure__ or ()])
        names = _AdaptedGlobals(
            {**fn.__globals__, "__builtins__": self._builtins}, self
        )
        made = FunctionType(fn.__code__, names, fn.__name__, fn.__defaults__, cells)
        made.__kwdefaults__ = fn.__kwdefaults__
        made.__dict__.update(vars(fn))
        return made

    def _imported(self, *args: Any, **kwargs: Any) -> Any:
        """Return a module that a copied function imports."""
        return self.adapted(__import__(*args, **kwargs))

    def _cell(self, cell: CellType) -> CellType:
        try:
            return CellType(self.adapted(cell.cell_contents))
        except ValueError:  # not assigned yet
            return cell


class _AdaptedGlobals(dict[str, Any]):
    """The global names of a copied function."""

    def __init__(self, own: dict[str, Any], names: _AdaptedNames) -> None:
        super().__init__(own)
        self._names = names

    def __getitem__(self, name: str) -> Any:
        return self._names.adapted(super().__getitem__(name))


class _AdaptedModule(ModuleType):
    """A module of the package, with copies of its functions."""

    def __init__(self, module: ModuleType, names: _AdaptedNames) -> None:
        super().__init__(module.__name__)
        self._module = module
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return self._names.adapted(getattr(self._module, name))


# ---- NumPy for one call ----


class _AnyArray(type):
    """The class of a class whose instances are NumPy's, traced and fake arrays."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, np.ndarray) or is_traced(value) or is_fake(value)


class _ArrayOfAnyKind(metaclass=_AnyArray):
    """The class that takes the place of np.ndarray."""


# Functions whose results are new arrays; np.array is one unless it gets copy=False.
_MAKERS = (
    *("zeros", "empty", "ones", "full", "copy", "array"),
    *("zeros_like", "empty_like", "ones_like", "full_like"),
)


class _TracedNumPy(ModuleType):
    """NumPy, whose conversions and new arrays take values that are traced like one."""

    def __init__(self, like: Any) -> None:
        super().__init__("numpy")
        self._like = like

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in CONVERSIONS:
            found = keeping(name, found)
        if name in _MAKERS:
            found = self._making(found)
        elif found is np.ndarray:
            found = _ArrayOfAnyKind
        setattr(self, name, found)
        return found

    def _making(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function that makes arrays, from traced values if they are floats."""

        @wraps(function)
        def make(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            is_old = kwargs.get("copy", True) is not True
            if is_old or type(found) is not np.ndarray or found.dtype.kind not in "fc":
                return found
            return np.array(found, like=self._like)

        return make
