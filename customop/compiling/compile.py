"""`compile`: make a function that runs as the graph of its operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from customop.compiling.backends import Backend
from customop.compiling.compiled import Compiled
from customop.errors import ArgumentError, check_flag, check_function, shown

__all__ = ["compile"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def compile(  # noqa: A001  # the usual name
    fn: Callable[P, R],
    *,
    backend: str | Backend = ...,
    sizes: Mapping[str, Any] | None = ...,
    fallback: bool = ...,
    limit: int = ...,
    verbose: bool = ...,
) -> Compiled[P, R]: ...
@overload
def compile(  # noqa: A001  # the usual name
    *,
    backend: str | Backend = ...,
    sizes: Mapping[str, Any] | None = ...,
    fallback: bool = ...,
    limit: int = ...,
    verbose: bool = ...,
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
def compile(  # noqa: A001  # the usual name
    fn: Callable[..., Any] | None = None,
    *,
    backend: str | Backend = "numpy",
    sizes: Mapping[str, Any] | None = None,
    fallback: bool = False,
    limit: int = 64,
    verbose: bool = False,
) -> Any:
    """Make a function run as the graph of its operators, with the same results.

    The first call with arguments of new shapes and dtypes captures the function; later
    calls run the code that was made of its graph. A length that differs between calls is
    symbolic from its second value on. Under `grad`, `vmap`, `jvp` and their nestings it
    runs compiled graphs, too. Under a mode or an observer the function itself runs.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees. Without it, a decorator is returned.
    backend : str or callable
        ``"numpy"``, ``"eager"``, or one of `register_backend`.
    sizes : mapping, optional
        Names for sizes that are symbolic from the first call on, as for `make_fx`:
        ``{"x": ("batch", None)}``.
    fallback : bool
        Whether a function that cannot be captured runs as it is.
    limit : int
        How many graphs are kept. One more, and a warning says why.
    verbose : bool
        Whether to show on standard error how far it is while it compiles, for functions
        of many operators.

    Returns
    -------
    Compiled
        Takes and returns what `fn` does, and has `explain`.

    Raises
    ------
    ArgumentError
        If `fn` is not a function, the back end is unknown, or an option is wrong.
    DataDependentError, GraphError
        From the function, if it cannot be captured.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> f = co.compile(lambda x: np.sin(x) + 1.0)
    >>> f(np.zeros(2))
    array([1., 1.])
    """
    check_flag("compile: fallback", fallback)
    check_flag("compile: verbose", verbose)
    if sizes is not None and not isinstance(sizes, Mapping):
        raise ArgumentError(
            f"compile: sizes={shown(sizes)} is not a mapping",
            do='write sizes={"x": ("n",)}, by the names of parameters',
        )
    if type(limit) is not int or limit < 1:
        raise ArgumentError(
            f"compile: limit={shown(limit)} is not a number of graphs",
            do="write limit=64",
        )

    def make(fn: Callable[..., Any]) -> Any:
        check_function("compile", fn)
        return Compiled(fn, backend, sizes, fallback, limit, verbose)

    return make if fn is None else make(fn)
