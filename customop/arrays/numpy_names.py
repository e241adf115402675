"""Names of NumPy's functions in messages."""

from __future__ import annotations

import operator
import re
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from customop.errors import CustomOpError, MissingRuleError
from customop.later import later

reasons: ModuleType = later(import_module, "customop.arrays.numpy_reasons")

__all__ = ["missing", "name_call", "numpy_name"]


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
    module = getattr(function, "__module__", None) or "numpy"
    module = module.replace("numpy.lib.scimath", "numpy.emath")
    module = module.replace("numpy", "np", 1)
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
    if not known:
        return f"the ufunc {name}"
    module = "np.strings" if "numpy.strings" in known else min(known, key=len)
    return f"{module}.{name}"


_IN = "in the call of "


def name_call(error: CustomOpError, function: Any) -> None:
    """Say which function the user has called, if the error names one inside of it.

    The functions around it come later, so the last one to be named is the user's.
    """
    where = [line for line in error.where if not line.startswith(_IN)]
    name = getattr(function, "__name__", "")
    is_named = name in re.findall(r"\w+", error.what)
    if not is_named and not any(re.search(rf"\bnp\.{name}\b", w) for w in where):
        where.insert(0, f"{_IN}{numpy_name(function)}")
    error.where = tuple(where)


def missing(function: Any) -> MissingRuleError:
    """The error for a NumPy function that has no operator."""
    name = numpy_name(function)
    reason = reasons.reason_of(function)
    if reason is not None:
        return MissingRuleError(
            f"{name} has no operator: {reason.why}", do=reason.instead
        )
    if name.startswith("scipy.") and "customop.scipy" not in sys.modules:
        return MissingRuleError(
            f"{name} has no operator, so it cannot see traced or fake arrays",
            do="import customop.scipy, which has operators for SciPy's functions",
        )
    key = numpy_name(function[0] if isinstance(function, tuple) else function)
    key = "ufunc" if key.startswith("the ufunc ") else key
    if isinstance(function, tuple):
        key = f'({key}, "{function[1]}")'
    return MissingRuleError(
        f"{name} has no operator, so it cannot see traced or fake arrays",
        do=f"wrap it with custom_op, then register_numpy_function({key}, op);"
        " or pass stop_gradient(x) to use the value alone",
    )
