"""Registering classes of arrays, so that operators can have kernels for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from customop.arrays.kinds import (
    RESERVED,
    add_array_class,
    find_or_make_kind,
    hosts,
    known_devices,
    registered_kind,
)
from customop.errors import RegistrationError, quoted, shown

__all__ = ["register_array_type"]


def register_array_type(
    kind: str,
    cls_or_path: type | str,
    *,
    from_numpy: Callable[[Any], Any] | None = None,
    to_numpy: Callable[[Any], Any] | None = None,
    accepts: Iterable[str] = (),
    immutable: bool = False,
    lazy: bool = False,
    derive: Callable[[Any], Callable[..., Any] | None] | None = None,
    checked: bool = True,
) -> None:
    """Name a class of arrays, so that kernels can be registered for it.

    Parameters
    ----------
    kind : str
        Name of the kind: the `device_types` of its kernels. A kind may have
        several classes.
    cls_or_path : type or str
        The class, or ``"module.Class"``, which is looked up once that
        module is imported. Subclasses are of the same kind.
    from_numpy : callable, optional
        Makes an array of the kind from a NumPy array, of the same values, shape and
        dtype. With it, checks can run on arrays of the kind.
    to_numpy : callable, optional
        Makes a NumPy array from an array of the kind. It may be left out for classes
        that have ``__array__`` or ``__dlpack__``.
    accepts : iterable of str
        Kinds whose arrays may stand beside arrays of this kind in a call, such as
        ``("cpu",)`` for NumPy's. Kernels of the kind get them as they are.
    immutable : bool
        Whether arrays of the kind cannot be written. Results may then share memory.
    lazy : bool
        Whether the elements of an array are computed later, on demand. NumPy
        functions then do not look at values, and do what is right for all of them.
    derive : callable, optional
        ``derive(op)`` gives the kernel of an operator that has none registered for the
        kind, or None. It is asked before the default kernel is taken, once for each
        operator as long as its rules stay as they are.
    checked : bool
        Whether opcheck makes arrays of the kind and compares its kernels. It runs them in
        a forked process, which some libraries with threads do not survive.

    Raises
    ------
    RegistrationError
        If the kind is not an identifier, the class is not a class or belongs to
        another kind, or a conversion or `derive` is not a function.

    Examples
    --------
    >>> import customop as co
    >>> class Column:
    ...     shape = (3,)
    >>> co.register_array_type("column", Column)
    """
    if not isinstance(kind, str) or not kind.isidentifier() or kind in RESERVED:
        raise RegistrationError(
            f"register_array_type: {shown(kind)} cannot be the name of a kind of array",
            do="use an identifier, such as 'strict' or 'tpu'",
        )
    _check_class(kind, cls_or_path)
    others = _accepted(kind, accepts)
    functions: dict[str, object] = {
        "from_numpy": from_numpy,
        "to_numpy": to_numpy,
        "derive": derive,
    }
    for name, fn in functions.items():
        if fn is not None and not callable(fn):
            takes = "an operator" if name == "derive" else "one array"
            raise RegistrationError(
                f"register_array_type: {name}={shown(fn)} is not a function",
                do=f"pass a function of {takes}: {name}=convert",
            )
    known = find_or_make_kind(kind)
    add_array_class(known, cls_or_path)
    known.accepts += tuple(name for name in others if name not in known.accepts)
    if known.accepts:
        hosts.add(kind)
    known.is_lazy = known.is_lazy or lazy
    known.is_checked = known.is_checked and checked
    known.has_memory = known.has_memory and not immutable
    known.from_numpy = known.from_numpy if from_numpy is None else from_numpy
    known.to_numpy = known.to_numpy if to_numpy is None else to_numpy
    known.derive = known.derive if derive is None else derive


def _accepted(kind: str, accepts: Iterable[str]) -> tuple[str, ...]:
    """The names of other kinds; raise for others."""
    names = (accepts,) if isinstance(accepts, str) else tuple(accepts)
    for name in names:
        if name not in known_devices() or name == kind:
            raise RegistrationError(
                f"register_array_type: accepts={shown(name)} is not another kind of array;"
                f" known: {quoted(known_devices())}",
                do='write accepts=("cpu",) for NumPy arrays',
            )
    return names


def _check_class(kind: str, cls_or_path: object) -> None:
    if isinstance(cls_or_path, str):
        parts = cls_or_path.split(".")
        if len(parts) < 2 or not all(part.isidentifier() for part in parts):
            raise RegistrationError(
                f"register_array_type: {shown(cls_or_path)} is not the path of a class",
                do='write "module.Class"',
            )
        return
    if not isinstance(cls_or_path, type):
        raise RegistrationError(
            f"register_array_type: {shown(cls_or_path)} is neither a class nor a path",
            do='pass the class, or "module.Class"',
        )
    if issubclass(cls_or_path, np.generic) or cls_or_path.__module__ == "builtins":
        raise RegistrationError(
            f"register_array_type: {cls_or_path.__qualname__} is not a class of arrays",
            do="pass the class that has shape and dtype",
        )
    known = registered_kind(cls_or_path)
    if known is not None and known.name != kind:
        raise RegistrationError(
            f"register_array_type: {cls_or_path.__qualname__} is already of the kind"
            f" '{known}'",
            do=f"register kernels for '{known}', or a class of your own",
        )
