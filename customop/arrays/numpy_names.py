"""Names of NumPy's functions in messages, and of their keywords without an operator."""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from customop.errors import ArgumentError, MissingRuleError

__all__ = ["missing", "numpy_name", "taken_by"]


def numpy_name(function: Any) -> str:
    """``np.linalg.inv`` for that function, ``scipy.special.erf`` for that ufunc."""
    if function is operator.getitem:
        return "x[key]"
    if function is operator.setitem:
        return "x[key] = value"
    if isinstance(function, tuple):
        return f"{numpy_name(function[0])}.{function[1]}"
    if isinstance(function, np.ufunc):
        return _ufunc_name(function)
    module = (getattr(function, "__module__", None) or "numpy").replace(
        "numpy", "np", 1
    )
    return f"{module}.{getattr(function, '__name__', function)}"


def _ufunc_name(ufunc: np.ufunc) -> str:
    """The name of a ufunc with its module, which ufuncs themselves do not know."""
    name = ufunc.__name__
    if getattr(np, name, None) is ufunc:
        return f"np.{name}"
    known = [
        path
        for path, module in list(sys.modules.items())
        if "._" not in f".{path}" and vars(module).get(name) is ufunc
    ]
    return f"{min(known, key=len)}.{name}" if known else f"the ufunc {name}"


def missing(function: Any) -> MissingRuleError:
    """The error for a NumPy function that has no operator."""
    name = numpy_name(function)
    key = numpy_name(function[0] if isinstance(function, tuple) else function)
    key = "ufunc" if key.startswith("the ufunc ") else key
    if isinstance(function, tuple):
        key = f'({key}, "{function[1]}")'
    return MissingRuleError(
        f"{name} has no operator, so it cannot see traced or fake arrays",
        do=f"wrap it with custom_op, then register_numpy_function({key}, op);"
        " or pass stop_gradient(x) to use the value alone",
    )


# Keyword of ufuncs -> the value that is the same as leaving it out.
_DEFAULTS: dict[str, Any] = {
    "where": True,
    "casting": "same_kind",
    "order": "K",
    "dtype": None,
    "subok": True,
}
_CAST = "cast first: NAME(x.astype(dtype), ...)"
_INSTEAD = {
    "where": "compute everywhere, then select: np.where(mask, NAME(x, ...), other)",
    "dtype": _CAST,
    "signature": _CAST,
    "casting": _CAST,
    "order": "leave order= away: operators choose how arrays lie in memory",
    "subok": "leave subok= away: results are arrays of the plain class",
}


def taken_by(
    fn: Callable[..., Any], ufunc: np.ufunc, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """The keywords of a ufunc's call that are not at their defaults.

    Raises
    ------
    ArgumentError
        If the function that is registered for the ufunc does not take one.
    """
    given = {k: v for k, v in keywords.items() if not _is_default(k, v)}
    if not given:
        return given
    # The signature of an operator itself is that of its kernel, often the ufunc.
    parameters = inspect.signature(getattr(fn, "call", fn)).parameters
    has_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in given:
        if name in _INSTEAD and name not in parameters and not has_all:
            full = numpy_name(ufunc)
            raise ArgumentError(
                f"{full}({name}=...) has no operator for traced or fake arrays",
                do=_INSTEAD[name].replace("NAME", full),
            )
    return given


def _is_default(name: str, value: Any) -> bool:
    known = _DEFAULTS.get(name, _DEFAULTS)
    return value is known or (isinstance(value, str) and value == known)
