"""Plain NumPy code, of the user or of others, on traced and fake arrays.

``np.asarray(x)``, ``table[x]`` and ``math.sin(x)`` cannot be hooked, and the array that
``np.empty(n)`` makes takes no traced values. So a call with traced values runs copies of
the functions, in which calls, subscripts and writes are hooked. The originals, and calls
without such values, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import FunctionType, MethodType
from typing import Any, TypeVar

from typing_extensions import ParamSpec

from customop.arrays.array_methods import first_virtual
from customop.arrays.stand_ins import adapted, making_like
from customop.errors import ArgumentError, shown

P = ParamSpec("P")
R = TypeVar("R")


def traceable(fn: Callable[P, R]) -> Callable[P, R]:
    """Make a function of another package work on traced values.

    Many functions begin with ``x = np.asarray(x)``, which asks a traced value for its
    numbers and so is an error. In the function that is returned, and in those that it
    calls, such conversions keep traced and fake arrays, and ``isinstance(x, np.ndarray)``
    is true of them. ``np.sum([x, y])``, ``math.sin(x)``, ``float(x)``, ``A.dot(x)``,
    ``table[i]`` and ``np.r_[x, y]`` work on them. Arrays from ``np.zeros``, ``np.empty``,
    ``np.ones`` and ``np.full`` take them, as does any array of a local variable that
    nothing else refers to: ``out[i] = x`` and ``out += x``. SciPy's ``linalg.norm``,
    ``linalg.solve``, ``fft.fft``, ``spatial.distance.cdist`` and their like, which run
    code in C, compute by operators instead.

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
    A call with traced values runs copies of the functions, made once for each (about
    1 ms), whose calls and subscripts look at their values. The globals, cells and names
    are those of the functions themselves. Code in C, operators and properties of classes,
    the standard library, and Python other than CPython 3.11 to 3.13 are not reached.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> polyval = co.traceable(np.polynomial.polynomial.polyval)
    >>> co.grad(lambda c: polyval(2.0, c))(np.array([1.0, 0.5, 3.0]))
    array([1., 2., 4.])
    """
    own = _function_of(fn)

    @wraps(fn if isinstance(fn, partial) else own)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        like = first_virtual([*args, *kwargs.values()])
        if like is None:
            return fn(*args, **kwargs)
        token = making_like.set(like)
        try:
            found: Callable[P, R] = _adapted(fn)
            return found(*args, **kwargs)
        finally:
            making_like.reset(token)

    return call


def _adapted(fn: Any) -> Any:
    """Return the adapted copy of a function, method or partial."""
    inner = getattr(fn, "_implementation", fn)
    if isinstance(inner, MethodType):
        return MethodType(_adapted(inner.__func__), inner.__self__)
    if isinstance(inner, partial):
        return partial(_adapted(inner.func), *inner.args, **inner.keywords)
    return adapted(inner)


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
