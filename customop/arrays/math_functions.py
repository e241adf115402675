"""Functions of Python's `math` on traced and fake arrays.

Those that NumPy has are its ufuncs, by another name or none. Where the value is known, as
under `grad`, Python's own function says first whether it raises, as ``math.log(-1.0)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce, wraps
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.array_methods import first_virtual
from customop.arrays.kinds import is_traced
from customop.later import later

# It registers the operators of SciPy's ufuncs.
special: ModuleType = later(import_module, "customop.scipy.special")

_NAMES = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "pow": "power",
}
# Those that are other functions than the ufuncs of their names, or give whole numbers.
_OTHERS = ("ceil", "floor", "trunc", "remainder", "hypot", "log", "gcd", "lcm")
# math's name -> that of `customop.scipy.special`.
_SPECIAL = {"erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln"}


def math_functions() -> dict[Any, Callable[..., Any]]:
    """Return what stands in for functions of `math`, by the functions themselves."""
    found: dict[Any, Callable[..., Any]] = {}
    found[math.dist] = _of_arrays(math.dist, _dist)
    for name, function in vars(math).items():
        ufunc = getattr(np, _NAMES.get(name, name), None)
        if isinstance(ufunc, np.ufunc) and name not in _OTHERS:
            found[function] = _of_numbers(function, ufunc)
        elif name in _OWN:
            found[function] = _of_numbers(function, _OWN[name])
        elif name in _SPECIAL and find_spec("scipy") is not None:
            found[function] = _of_numbers(function, _from_special(_SPECIAL[name]))
    return found


def _of_numbers(
    function: Callable[..., Any], traced: Callable[..., Any]
) -> Callable[..., Any]:
    """Make a function of `math` that computes traced values by another one."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Of an array with axes Python's own function says what it lacks.
        if first_virtual(args) is None or any(getattr(a, "shape", ()) for a in args):
            return function(*args, **kwargs)
        known = [_known(arg) for arg in args]
        if not any(value is None for value in known):
            found = function(*known, **kwargs)
            if type(found) is int:  # it has no slope
                return found
        return traced(*args, **kwargs)

    return call


def _of_arrays(
    function: Callable[..., Any], traced: Callable[..., Any]
) -> Callable[..., Any]:
    """Make a function of points, which may be traced arrays or lists of values."""
    return lambda *args: (function if first_virtual(args) is None else traced)(*args)


def _known(value: Any) -> Any:
    """Return the number of a value, or numbers of a list; None where nothing is known."""
    if type(value) in (list, tuple):
        found = [*map(_known, value)]
        return None if any(one is None for one in found) else found
    while is_traced(value):
        if not value.is_concrete:
            return None
        value = value.below
    return None if first_virtual(value) is not None else value


def _from_special(name: str) -> Callable[..., Any]:
    return lambda x: getattr(special, name)(x)


def _log(x: Any, *base: Any) -> Any:
    return np.log(x) / np.log(*base) if base else np.log(x)


def _hypot(*coordinates: Any) -> Any:
    first, *others = coordinates
    return reduce(np.hypot, others, first if others else np.abs(first))


def _remainder(x: Any, y: Any) -> Any:
    """Return IEEE's remainder: by the nearest whole quotient, the even one of two."""
    size, step = np.abs(x), np.abs(y)
    rest = np.fmod(size, step)
    other = step - rest
    at_half = rest - 2.0 * np.fmod(0.5 * (size - rest), step)
    rest = np.where(rest < other, rest, np.where(rest > other, -other, at_half))
    # For an infinite y the rest is x itself.
    return np.where(np.isinf(y), x, np.copysign(1.0, x) * rest)[()]


def _joined(values: Any) -> Any:
    values = [*values]
    return np.array(values, like=first_virtual(values))


def _dist(p: Any, q: Any) -> Any:
    return np.linalg.norm(np.subtract(_as_one(p), _as_one(q)))


def _as_one(values: Any) -> Any:
    is_list = type(values) in (list, tuple)
    return _joined(values) if is_list and first_virtual(values) is not None else values


def _isclose(a: Any, b: Any, *, rel_tol: float = 1e-09, abs_tol: float = 0.0) -> Any:
    largest = np.maximum(rel_tol * np.maximum(np.abs(a), np.abs(b)), abs_tol)
    is_finite = np.logical_and(np.isfinite(a), np.isfinite(b))
    is_near = np.logical_and(is_finite, np.abs(np.subtract(a, b)) <= largest)
    return np.logical_or(np.equal(a, b), is_near)


def _whole(ufunc: Any) -> Callable[..., Any]:
    return lambda x: ufunc(x).astype(np.int64)[()]


_OWN: dict[str, Callable[..., Any]] = {
    "ceil": _whole(np.ceil),
    "floor": _whole(np.floor),
    "trunc": _whole(np.trunc),
    "fsum": lambda values: np.sum(_joined(values)),
    "gcd": lambda *values: reduce(np.gcd, values),
    "hypot": _hypot,
    "isclose": _isclose,
    "lcm": lambda *values: reduce(np.lcm, values),
    "log": _log,
    "remainder": _remainder,
    "ulp": lambda x: np.spacing(np.abs(x)),
}
