"""Back ends: functions that turn a graph into code, and the choice of the default one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeAlias

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import device_kind
from customop.core.redefine import is_newer
from customop.core.table import changing, finalized
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
from customop.forks import importing
from customop.graph.module import GraphModule
from customop.later import later

cupy_backend: ModuleType = later(import_module, "customop.compiling.cupy_backend")
object_layout: ModuleType = later(
    import_module, "customop.compiling.native_backend.object_layout"
)
numpy_backend: ModuleType = later(
    import_module, "customop.compiling.numpy_backend.build"
)


# ---- back ends: functions that turn a graph into code, each with a name ----


Backend: TypeAlias = Callable[[GraphModule], Callable[..., Any]]


def _eager(module: GraphModule) -> Callable[..., list[Any]]:
    """Run the graph by its operators, one after the other."""
    return module.run_list


# Name -> the back end, or the module that has it as its function `build`.
_backends: dict[str, Backend | str] = {
    "eager": _eager,
    "numpy": "customop.compiling.backends",
    "native": "customop.compiling.native_backend.native_code",
    "jax": "customop.interop.jax.jax_backend",
}

# Module of a back end -> its function for results that may differ in their last bits.
_near: dict[str, str] = {"customop.compiling.native_backend.native_code": "build_near"}

# Those that return a list of leaves, so that nothing looks whether they do.
_returns_lists: set[Any] = {*_backends}


def returns_lists(given: str | Backend | None) -> bool:
    """Return whether the code of a back end certainly returns a list."""
    return given is None or given in _returns_lists


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
    with finalized, changing:
        known = _backends.get(name)
        if known is not None and not override and not is_newer(known, fn):
            raise RegistrationError(
                f"there is a back end '{name}' already{_where(known)}",
                do="choose another name, or pass override=True",
            )
        _backends[name] = fn
        _returns_lists.discard(name)


def _where(known: Backend | str) -> str:
    """Return where a back end of a user is defined."""
    names = getattr(known, "__globals__", {})
    return "" if isinstance(known, str) or is_ours(names) else f", at {place(known)}"


def find_backend(given: str | Backend | None, *, is_exact: bool = True) -> Backend:
    """Return the back end of a name; a function is taken as one, None is the default.

    Parameters
    ----------
    given : str, callable or None
    is_exact : bool, optional
        Whether results must have NumPy's bits. If not, the back end "native" has faster
        code; others are the same.

    Raises
    ------
    ArgumentError
        If there is none of the name.
    """
    if given is None:
        return _build_default if is_exact else _build_default_near
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
        found = importing(import_module, found).build
        _backends[given] = found
    near = None if is_exact else _near.get(getattr(found, "__module__", ""))
    return found if near is None else getattr(import_module(found.__module__), near)


# ---- the default: "native" where it runs, else "numpy" ----


@cache
def default_backend() -> tuple[str, str]:
    """Return the name of the back end of `compile`, and why it is not the native one."""
    why = _why_not_native()
    return ("numpy", why) if why else ("native", "")


def _why_not_native() -> str:
    """Return why graphs cannot run as tables in this process; empty if they can."""
    if find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    why: str | None = object_layout.why_not_native()
    if why:
        return why
    try:
        find_backend("native")
    except (ArgumentError, OSError) as error:  # it is there, but does not load
        return f"llvmlite cannot be imported: {error.__cause__ or error}"
    return ""


def _build_default(module: GraphModule) -> Callable[..., Any]:
    """Return code of the default back end, which is chosen when the first is made."""
    return find_backend(default_backend()[0])(module)


def _build_default_near(module: GraphModule) -> Callable[..., Any]:
    """Do what `_build_default` does, where results may differ in their last bits."""
    return find_backend(default_backend()[0], is_exact=False)(module)


# ---- the back end "numpy": code for the arrays of a graph, wherever they are ----


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """Return a function from the leaves of the inputs to a list of those of the result."""
    vals = [node.val for node in module.inputs]
    kinds = {device_kind(val.device) for val in vals if isinstance(val, FakeArray)}
    backend = cupy_backend if "cuda" in kinds else numpy_backend
    run: Callable[..., list[Any]] = backend.build(module)
    return run
