"""`compile`: a function that runs as the graph of its operators."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from customop.arrays.kinds import is_array, is_fake, is_traced
from customop.arrays.pytree import flatten, unflatten
from customop.compiling.backends import Backend, find_backend
from customop.core.interpreter import current_mode
from customop.core.observe import current_observers
from customop.errors import check_function
from customop.graph.module import GraphModule
from customop.graph.passes.common import eliminate_common_subexpressions
from customop.graph.passes.dead import eliminate_dead_code
from customop.transforms.trace.make import make_fx

__all__ = ["Compiled", "compile"]

P = ParamSpec("P")
R = TypeVar("R")

# One function is captured at a time: two locks could wait for each other.
_capturing = threading.RLock()


class Entry:
    """A graph for one kind of arguments, and its code.

    Attributes
    ----------
    module : GraphModule
    run : callable
        Takes the leaves of the arguments, and returns those of the result.
    """

    def __init__(self, module: GraphModule, backend: Backend) -> None:
        self.module: GraphModule = module
        self.run: Callable[..., Any] = backend(module)

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Run the code on the leaves of arguments."""
        out = self.run(*leaves)
        if not isinstance(out, list):
            out = [*out] if isinstance(out, tuple) else [out]
        assert self.module.out_spec is not None
        return unflatten(self.module.out_spec, out)


class Compiled(Generic[P, R]):
    """A function that `compile` returns.

    Attributes
    ----------
    backend : str or callable
    """

    def __init__(self, fn: Callable[P, R], backend: str | Backend) -> None:
        update_wrapper(self, fn)
        self._fn: Callable[P, R] = fn
        self.backend: str | Backend = backend
        self._build: Backend = find_backend(backend)
        self._entries: dict[Any, Entry] = {}

    def __repr__(self) -> str:
        return f"<compiled {getattr(self._fn, '__qualname__', self._fn)}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the code for such arguments; capture the function if there is none."""
        leaves, spec = flatten((args, kwargs))
        is_plain = not any(is_traced(v) or is_fake(v) for v in leaves)
        if not is_plain or current_mode.get() is not None or current_observers():
            return self._fn(*args, **kwargs)
        key = (spec, *map(_key_of, leaves))
        entry = self._entries.get(key)
        if entry is None:
            with _capturing:
                entry = self._entries.get(key) or self._captured(args, kwargs)
                self._entries[key] = entry
        found: R = entry(leaves)
        return found

    def _captured(self, args: Any, kwargs: Any) -> Entry:
        module = make_fx(self._fn, "fake")(*args, **kwargs)
        module = eliminate_common_subexpressions(eliminate_dead_code(module))
        return Entry(module, self._build)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @property
    def graphs(self) -> list[GraphModule]:
        """The graphs that were captured so far."""
        return [entry.module for entry in self._entries.values()]

    def clear(self) -> None:
        """Forget what was captured."""
        self._entries = {}


def _key_of(leaf: Any) -> Any:
    if is_array(leaf):
        return (type(leaf), leaf.dtype, tuple(leaf.shape))
    if isinstance(leaf, np.random.Generator):
        return np.random.Generator
    return (type(leaf), leaf)


@overload
def compile(fn: Callable[P, R], *, backend: str | Backend = ...) -> Compiled[P, R]: ...  # noqa: A001
@overload
def compile(  # noqa: A001
    *, backend: str | Backend = ...
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
def compile(  # noqa: A001  # the usual name
    fn: Callable[..., Any] | None = None, *, backend: str | Backend = "numpy"
) -> Any:
    """Make a function run as the graph of its operators, with the same results.

    The first call with arguments of new shapes and dtypes captures the function; later
    calls run the code that was made of its graph.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees. Without it, a decorator is returned.
    backend : str or callable
        ``"numpy"``, ``"eager"``, or one of `register_backend`.

    Returns
    -------
    Compiled
        Takes and returns what `fn` does.

    Raises
    ------
    ArgumentError
        If `fn` is not a function, or there is no such back end.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> f = co.compile(lambda x: np.sin(x) + 1.0)
    >>> f(np.zeros(2))
    array([1., 1.])
    """
    if fn is None:
        return lambda fn: Compiled(fn, backend)
    check_function("compile", fn)
    return Compiled(fn, backend)
