"""Classes of objects that hold arrays and are not arrays themselves, as xarray's do.

Such an object is never a leaf: a transform would take it for a constant, and what it holds
would have a gradient of zero. So a call of an operator with one is handed over whole, before
any transform or mode sees it, to a function that calls the operator on what it holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from customop.errors import RegistrationError, shown

__all__ = ["handler_of", "may_wrap", "register_array_wrapper"]

Handler: TypeAlias = Callable[[Any, Sequence[Any]], Any]

# Class -> who calls operators on its objects.
_by_class: dict[type, Handler] = {}
# Module -> class in it -> the same, or its path: ``"module:function"``.
_by_path: dict[str, dict[str, Handler | str]] = {
    "xarray": dict.fromkeys(
        ("DataArray", "Dataset", "Variable"),
        "customop.interop.xarray.calls:call_operator",
    )
}


def register_array_wrapper(cls_or_path: type | str, handler: Handler) -> None:
    """Say how operators are called on objects of a class that hold arrays.

    An operator that gets such an object calls `handler`, before transforms and modes see
    the call. What it holds may be traced: its gradient is kept, since `handler` calls the
    operator on it. A rule of the operator for the class comes first.

    Parameters
    ----------
    cls_or_path : type or str
        The class, or ``"module.Class"``, which is looked up once that module is imported.
        Subclasses are of the same kind.
    handler : callable
        ``handler(op, values)`` takes the operator and the values of all its parameters,
        in the order of the schema. It calls ``op.run(*values)`` with arrays in place of
        such objects, and returns a result for the caller.

    Raises
    ------
    RegistrationError
        If `cls_or_path` is neither a class nor a path, or `handler` is not a function.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> class Meters:
    ...     def __init__(self, values):
    ...         self.values = values
    >>> def call(op, values):
    ...     inner = [v.values if isinstance(v, Meters) else v for v in values]
    ...     return Meters(op.run(*inner))
    >>> co.register_array_wrapper(Meters, call)
    >>> co.ops.np.negative(Meters(np.ones(2))).values
    array([-1., -1.])
    """
    if not callable(handler):
        raise RegistrationError(
            f"register_array_wrapper: {shown(handler)} is not a function",
            do="pass a function of an operator and the values of its parameters",
        )
    if isinstance(cls_or_path, type):
        _by_class[cls_or_path] = handler
        return
    module, dot, name = str(cls_or_path).rpartition(".")
    if not isinstance(cls_or_path, str) or not dot or not name.isidentifier():
        raise RegistrationError(
            f"register_array_wrapper: {shown(cls_or_path)} is neither a class nor a path",
            do='pass the class, or "module.Class"',
        )
    _by_path.setdefault(module, {})[name] = handler


def may_wrap() -> bool:
    """Whether there can be such an object: its module is imported."""
    return bool(_by_class) or not sys.modules.keys().isdisjoint(_by_path)


def handler_of(cls: type) -> Handler | None:
    """Who calls operators on objects of a class; None for other classes."""
    if cls.__module__ == "builtins" or not may_wrap():
        return None
    for module in [name for name in [*_by_path] if name in sys.modules]:
        for name, handler in [*_by_path[module].items()]:
            found = getattr(sys.modules[module], name, None)
            if isinstance(found, type):  # the module may be importing still
                _by_class.setdefault(found, _loader(found, handler))
    return next((_by_class[base] for base in cls.__mro__ if base in _by_class), None)


def _loader(cls: type, handler: Handler | str) -> Handler:
    """The handler of a path, which is imported with the first call."""
    if not isinstance(handler, str):
        return handler
    module, _, name = handler.partition(":")

    def call_imported(target: Any, values: Sequence[Any]) -> Any:
        found: Handler = getattr(import_module(module), name)
        _by_class[cls] = found
        return found(target, values)

    return call_imported
