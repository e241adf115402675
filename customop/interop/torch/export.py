"""`export`: an operator of this package as one of torch."""

from __future__ import annotations

import inspect
import linecache
import threading
from collections.abc import Callable
from typing import Any

from customop.core.operator import Operator
from customop.core.registry import find_operator
from customop.errors import ArgumentError, RegistrationError, shown
from customop.interop.torch.exported import Exported
from customop.interop.torch.framework import schema_of, torch
from customop.schema.parameters import MISSING

__all__ = ["TorchOperator", "export", "remove_export"]

# Name in torch -> what was exported under it.
_exports: dict[str, Exported] = {}
_lock = threading.RLock()
_RESERVED = ("aten", "prim", "prims")


class TorchOperator:
    """A torch operator that is called with the arguments of the operator.

    Torch itself has no config objects, dicts, tuples and enums, and its operators return
    nothing that they have written. This function takes them apart, and puts results
    together again; torch.compile reads through it.

    Attributes
    ----------
    op : Operator
        The operator that was exported.
    overload : OpOverload
        The torch operator with plain arguments, for ``torch.library.opcheck``.
    call : callable
        The function itself.

    Examples
    --------
    >>> from customop.interop.torch import TorchOperator
    >>> TorchOperator.__name__
    'TorchOperator'
    """

    def __init__(self, exported: Exported) -> None:
        self.op: Operator[..., Any] = exported.op
        self.overload: Any = exported.overload
        self.call: Callable[..., Any] = _written(exported)
        self.__name__: str = exported.op.name
        self.__doc__ = exported.op.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.op)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the operator on tensors."""
        return self.call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<TorchOperator {schema_of(self.overload)}>"


def _written(exported: Exported) -> Callable[..., Any]:
    """The function with the operator's parameters, which calls torch's operator."""
    signature, op = exported.signature, exported.op
    filename = f"<customop {exported.name} for torch>"
    found: dict[str, Any] = {
        "_torch": exported.overload,
        "_joined": signature.joined,
        "_Tensor": torch.Tensor,
        "_defaults": {
            p.name: p.default for p in op.schema.parameters if p.default is not MISSING
        },
    }
    lines = signature.source.splitlines(keepends=True)
    linecache.cache[filename] = (len(signature.source), None, lines, filename)
    exec(compile(signature.source, filename, "exec"), found)  # noqa: S102  # as above
    return found[op.name]  # type: ignore[no-any-return]  # the function defined there


def export(op: Operator[..., Any] | str, name: str | None = None) -> Any:
    """Make an operator one of torch, for tensors in main memory.

    Parameters
    ----------
    op : Operator or str
        The operator, or its name.
    name : str, optional
        Its name in torch, such as ``"mylib::scale"``; by default its own.

    Returns
    -------
    OpOverload or TorchOperator
        ``torch.ops.mylib.scale.default``. If torch lacks one of its types, or the
        operator returns what it writes, a `TorchOperator` around it, which takes the
        arguments of the operator.

    Raises
    ------
    RegistrationError
        If torch has nothing for one of its types, refuses the name, or has an operator
        of that name.

    Notes
    -----
    Tensors share memory with the arrays that kernels get, and with their results. Views,
    and results that are not in C order, are copied. Gradients of any order, forward mode
    and batches come from the operator's own rules. An operator that was exported before
    is replaced if its schema has changed.
    """
    found = find_operator(op) if isinstance(op, str) else op
    if not isinstance(found, Operator):
        raise ArgumentError(
            f"export: {shown(op)} is not an operator",
            do='pass an operator, or its name such as "mylib::scale"',
        )
    where = _checked_name(found, found.qualname if name is None else name)
    with _lock:
        before = _exports.get(where)
        if before is not None:
            if before.op is found and before.schema == found.schema:
                return _public(before)
            if before.op is not found and not before.op.closed:
                raise found.error(
                    RegistrationError,
                    f"torch has {where} already, exported from {before.op.qualname}",
                    do="give one of them another name: export(op, name=...)",
                    parameter=None,
                )
            remove_export(where)
        made = _exports[where] = Exported(found, where)
    return _public(made)


def _public(exported: Exported) -> Any:
    if exported.signature.is_same:
        return exported.overload
    return TorchOperator(exported)


def _checked_name(op: Operator[..., Any], name: str) -> str:
    namespace, colons, rest = name.partition("::")
    short, dot, overload = rest.partition(".")
    parts = [namespace, short, *([overload] if dot else [])]
    if not colons or not all(p.isidentifier() and p.isascii() for p in parts):
        raise op.error(
            RegistrationError,
            f"{name!r} cannot be the name of a torch operator",
            do='give it a name of ASCII letters: export(op, name="mylib::name")',
            parameter=None,
        )
    if namespace in _RESERVED:
        raise op.error(
            RegistrationError,
            f"the namespace '{namespace}' belongs to torch",
            do=f'give it another one: export(op, name="mylib::{short}")',
            parameter=None,
        )
    return name


def remove_export(exported: Any) -> None:
    """Take an exported operator out of torch's registry.

    Parameters
    ----------
    exported : OpOverload, TorchOperator, Operator or str
        What `export` has returned, or the operator, or its name in torch.

    Raises
    ------
    ArgumentError
        If it is not exported.
    """
    with _lock:
        names = [name for name, made in _exports.items() if _is(made, name, exported)]
        if not names:
            raise ArgumentError(
                f"remove_export: {shown(exported)} is not exported to torch",
                do="pass what export(op) has returned",
            )
        for name in names:
            _exports.pop(name).close()


def _is(made: Exported, name: str, asked: Any) -> bool:
    overload = getattr(asked, "overload", None)
    return asked == name or asked is made.op or made.overload in (asked, overload)
