"""Back ends: functions that turn a graph into code, each with a name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from customop.core.changes import changing
from customop.core.rerun import is_newer
from customop.errors import (
    ArgumentError,
    RegistrationError,
    check_function,
    did_you_mean,
    is_ours,
    place,
    quoted,
    shown,
)
from customop.graph.module import GraphModule

__all__ = ["Backend", "find_backend", "register_backend", "returns_lists"]

Backend: TypeAlias = Callable[[GraphModule], Callable[..., Any]]


def _eager(module: GraphModule) -> Callable[..., list[Any]]:
    """Run the graph by its operators, one after the other."""
    return module.run_list


# Name -> the back end, or the module that has it as its function `build`.
_backends: dict[str, Backend | str] = {
    "eager": _eager,
    "numpy": "customop.compiling.default",
    "numba": "customop.compiling.numba_backend",
    "jax": "customop.interop.jax.backend",
}

# Those that return a list of leaves, so that nothing looks whether they do.
_returns_lists: set[Any] = {*_backends}


def returns_lists(given: str | Backend) -> bool:
    """Whether the code of a back end certainly returns a list."""
    return given in _returns_lists


def register_backend(name: str, fn: Backend, *, override: bool = False) -> None:
    """Give a back end of your own a name for ``compile(f, backend=name)``.

    Parameters
    ----------
    name : str
    fn : callable
        Takes a `GraphModule`, and returns a function. That function is called with the
        leaves of the arguments, one for each input of the graph and in their order, and
        returns a list of the leaves of the result, or the array itself for one. Several
        threads may call it at the same time.
    override : bool
        Whether it may replace a back end of this name. A cell or module that runs again
        replaces its own.

    Raises
    ------
    RegistrationError
        If the name is taken.
    ArgumentError
        If `name` is not a string, or `fn` is not a function.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def loud(module):
    ...     print(len(module.graph.nodes), "nodes")
    ...     return module.run_list
    >>> co.register_backend("loud", loud)
    >>> co.compile(lambda x: np.sin(x) + 1.0, backend="loud")(np.zeros(2))
    4 nodes
    array([1., 1.])
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"register_backend: the name is {shown(name)}", do='pass a name, as "mine"'
        )
    check_function("register_backend", fn)
    with changing:
        known = _backends.get(name)
        if known is not None and not override and not is_newer(known, fn):
            raise RegistrationError(
                f"there is a back end '{name}' already{_where(known)}",
                do="choose another name, or pass override=True",
            )
        _backends[name] = fn
        _returns_lists.discard(name)


def _where(known: Backend | str) -> str:
    """Where a back end of a user is defined."""
    names = getattr(known, "__globals__", {})
    return "" if isinstance(known, str) or is_ours(names) else f", at {place(known)}"


def find_backend(given: str | Backend) -> Backend:
    """The back end of a name; a function is taken as one.

    Raises
    ------
    ArgumentError
        If there is none of the name.
    """
    if not isinstance(given, str):
        check_function("compile: backend", given)
        return given
    found = _backends.get(given)
    if found is None:
        raise ArgumentError(
            f"compile: unknown backend '{given}'{did_you_mean(given, _backends)}",
            do=f"use one of {quoted(_backends)}, or register_backend('{given}', fn)",
        )
    if isinstance(found, str):
        found = import_module(found).build
        _backends[given] = found
    return found
