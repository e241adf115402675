"""Making operators, and registering for them by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, TypeVar, overload

from typing_extensions import ParamSpec

from customop.annotations import holds_arrays
from customop.devices import DEFAULT
from customop.errors import RegistrationError, SchemaError, did_you_mean, place
from customop.kinds import RuleKind, Tag
from customop.operator import (
    BackwardFn,
    FnT,
    JvpFn,
    Operator,
    SetupFn,
    VmapFn,
    define_operator,
    find_operator,
)
from customop.registration import check_device_types, check_names
from customop.schema import Schema, check_agrees
from customop.table import Definition

__all__ = [
    "custom_op",
    "register",
    "register_autograd",
    "register_fake",
    "register_jvp",
    "register_kernel",
    "register_vmap",
]

P = ParamSpec("P")
R = TypeVar("R")
OpT = TypeVar("OpT", bound=Operator[..., Any])

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)


@overload
def custom_op(
    name: str,
    fn: None = None,
    /,
    *,
    mutates_args: Iterable[str] | str,
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Iterable[Tag] | Tag = (),
) -> Callable[[Callable[P, R]], Operator[P, R]]: ...
@overload
def custom_op(
    name: str,
    fn: Callable[P, R],
    /,
    *,
    mutates_args: Iterable[str] | str,
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Iterable[Tag] | Tag = (),
) -> Operator[P, R]: ...
def custom_op(
    name: str,
    fn: Callable[P, R] | None = None,
    /,
    *,
    mutates_args: Iterable[str] | str,
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Iterable[Tag] | Tag = (),
) -> Operator[P, R] | Callable[[Callable[P, R]], Operator[P, R]]:
    """Make an operator of a function with type hints.

    Parameters
    ----------
    name : str
        ``"namespace::name"``, by which the operator is known everywhere; an overload
        may follow behind a dot.
    fn : callable, optional
        The first kernel. Without it, a decorator is returned.
    mutates_args : iterable of str, or "unknown"
        Names of the array parameters that the kernel writes; ``"unknown"`` for all.
    device_types : str, iterable of str, or None
        Kinds of array that `fn` works on: ``"cpu"``, ``"cuda"`` or registered ones.
        None for all.
    schema : str, optional
        Such as ``"(Array x, float k=1.0) -> Array"``; inferred from the hints of `fn`
        where it is not given.
    tags : Tag or iterable of Tag
        What the operator promises beyond its schema.

    Returns
    -------
    Operator or decorator
        The operator is called as `fn` is, and has its name, docstring and signature.

    Raises
    ------
    SchemaError
        If no schema can be inferred, or the one given disagrees with `fn` or with
        `mutates_args`.
    RegistrationError
        If the name is no such name or taken by another file, or a kind is unknown.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::scale", mutates_args=())
    ... def scale(x: np.ndarray, factor: float = 2.0) -> np.ndarray:
    ...     return x * factor
    >>> scale(np.array([1.0, 2.0]))
    array([2., 4.])
    >>> print(scale.schema)
    (Array x, float factor=2.0) -> Array
    """
    _check_name(name)
    scope = sys._getframe(1)

    def make(given: Callable[P, R]) -> Operator[P, R]:
        made: Any = _make(name, given, mutates_args, device_types, schema, tags, scope)
        op: Operator[P, R] = made
        return op

    return make if fn is None else make(fn)


def _make(
    name: str,
    fn: Callable[..., Any],
    mutates_args: Iterable[str] | str,
    device_types: str | Iterable[str] | None,
    schema: str | None,
    tags: Iterable[Tag] | Tag,
    scope: FrameType,
) -> Operator[..., Any]:
    """Check everything, then define: a failed definition leaves nothing behind."""
    if isinstance(fn, Operator) or not callable(fn):
        raise RegistrationError(
            f"{name}: custom_op makes an operator of a function, got {fn!r}",
            do="pass the function that computes the result",
            op=name,
        )
    names = mutates_args if isinstance(mutates_args, str) else _listed(mutates_args)
    found = _schema(name, fn, names, schema, scope)
    kinds = check_device_types(name, device_types)
    _check_factory(name, found, kinds)
    check_names(name, found)
    definition = Definition(
        name, fn, found, _tags(name, tags), _place(fn, scope), _module(fn, scope)
    )
    op = define_operator(definition)
    for kind in kinds:
        op._enter(kind, fn, definition.place)
    return op


def _listed(names: Iterable[str]) -> Any:
    """Names that may come from a generator, to be read more than once."""
    return list(names) if hasattr(names, "__iter__") else names


def _place(fn: Callable[..., Any], scope: FrameType) -> str:
    where = place(fn)
    return where if ":" in where else f"{scope.f_code.co_filename}:{scope.f_lineno}"


def _module(fn: Callable[..., Any], scope: FrameType) -> str:
    return str(scope.f_globals.get("__name__", getattr(fn, "__module__", "")))


def _schema(
    name: str,
    fn: Callable[..., Any],
    mutates_args: Any,
    schema: str | None,
    scope: FrameType,
) -> Schema:
    try:
        if schema is None:
            return Schema.infer(fn, mutates_args, scope)
        parsed = Schema.parse(schema)
        check_agrees(fn, parsed, mutates_args)
    except SchemaError as error:
        error.what = f"{name}: {error.what}"
        error.op = name
        raise
    return parsed


def _check_name(name: object) -> None:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return
    if isinstance(name, str) and "::" not in name:
        raise RegistrationError(
            f"custom_op: the name {name!r} has no namespace",
            do=f'write "mylib::{name}", with the name of your package',
        )
    raise RegistrationError(
        f"custom_op: {name!r} is no name of an operator",
        do='write "namespace::name", or "namespace::name.overload", in ASCII letters,'
        " digits and underscores",
    )


def _check_factory(name: str, schema: Schema, kinds: tuple[str, ...]) -> None:
    has_array = any(holds_arrays(p.type) for p in schema.parameters)
    if has_array or schema.device_slot is not None or kinds == (DEFAULT,):
        return
    raise RegistrationError(
        f"{name}: has kernels for {', '.join(kinds)}, but no array and no 'device' to"
        " choose by",
        schema.show(name),
        do="add a parameter device: Device, or leave device_types out",
        op=name,
    )


def _tags(name: str, tags: Iterable[Tag] | Tag) -> frozenset[Tag]:
    given: Any = tags
    several = isinstance(given, Iterable) and not isinstance(given, str)
    found: list[Any] = list(given) if several else [given]
    for tag in found:
        if not isinstance(tag, Tag):
            near = did_you_mean(f"Tag.{tag}", [str(t) for t in Tag])
            raise RegistrationError(
                f"{name}: {tag!r} is no tag{near}",
                do=f"use one of {', '.join(str(t) for t in Tag)}",
                op=name,
            )
    return frozenset(found)


# ---- registering by name ----


def _resolve(op: Operator[..., Any] | str) -> Operator[..., Any]:
    if isinstance(op, Operator):
        return op
    if isinstance(op, str):
        return find_operator(op)
    raise RegistrationError(
        f"expected an operator or its name, got {op!r}", do='pass "namespace::name"'
    )


@overload
def register_kernel(
    op: OpT, device_types: str | Iterable[str] | None, fn: Callable[..., object], /
) -> OpT: ...
@overload
def register_kernel(
    op: str, device_types: str | Iterable[str] | None, fn: Callable[..., object], /
) -> Operator[..., Any]: ...
@overload
def register_kernel(
    op: Operator[..., Any] | str, device_types: str | Iterable[str] | None, /
) -> Callable[[FnT], FnT]: ...
def register_kernel(
    op: Operator[..., Any] | str,
    device_types: str | Iterable[str] | None,
    fn: Callable[..., Any] | None = None,
    /,
) -> Any:
    """Register a kernel for an operator given by name; see `Operator.register_kernel`.

    Parameters
    ----------
    op : Operator or str
        The operator, or its name.
    device_types : str, iterable of str, or None
    fn : callable, optional

    Returns
    -------
    Operator or decorator

    Raises
    ------
    MissingRuleError
        If there is no such operator.
    RegistrationError
        As the method does.
    """
    return _resolve(op).register_kernel(device_types, fn)  # type: ignore[arg-type]


@overload
def register_fake(
    op: OpT, fn: Callable[..., object], /, *, override: bool = False
) -> OpT: ...
@overload
def register_fake(
    op: str, fn: Callable[..., object], /, *, override: bool = False
) -> Operator[..., Any]: ...
@overload
def register_fake(
    op: Operator[..., Any] | str, fn: None = None, /, *, override: bool = False
) -> Callable[[FnT], FnT]: ...
def register_fake(
    op: Operator[..., Any] | str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    override: bool = False,
) -> Any:
    """Register a fake kernel for an operator given by name; see `Operator.register_fake`.

    Parameters
    ----------
    op : Operator or str
    fn : callable, optional
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    MissingRuleError
        If there is no such operator.
    RegistrationError
        As the method does.
    """
    return _resolve(op).register_fake(fn, override=override)


@overload
def register_autograd(
    op: OpT,
    backward: BackwardFn,
    /,
    *,
    setup_context: SetupFn | None = None,
    override: bool = False,
) -> OpT: ...
@overload
def register_autograd(
    op: str,
    backward: BackwardFn,
    /,
    *,
    setup_context: SetupFn | None = None,
    override: bool = False,
) -> Operator[..., Any]: ...
def register_autograd(
    op: Operator[..., Any] | str,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    override: bool = False,
) -> Operator[..., Any]:
    """Register a backward formula by name; see `Operator.register_autograd`.

    Parameters
    ----------
    op : Operator or str
    backward : callable
    setup_context : callable, optional
    override : bool

    Returns
    -------
    Operator

    Raises
    ------
    MissingRuleError
        If there is no such operator.
    RegistrationError
        As the method does.
    """
    return _resolve(op).register_autograd(
        backward, setup_context=setup_context, override=override
    )


@overload
def register_jvp(op: OpT, fn: JvpFn, /, *, override: bool = False) -> OpT: ...
@overload
def register_jvp(
    op: str, fn: JvpFn, /, *, override: bool = False
) -> Operator[..., Any]: ...
@overload
def register_jvp(
    op: Operator[..., Any] | str, fn: None = None, /, *, override: bool = False
) -> Callable[[FnT], FnT]: ...
def register_jvp(
    op: Operator[..., Any] | str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    override: bool = False,
) -> Any:
    """Register a forward-mode rule by name; see `Operator.register_jvp`.

    Parameters
    ----------
    op : Operator or str
    fn : callable, optional
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    MissingRuleError
        If there is no such operator.
    RegistrationError
        As the method does.
    """
    return _resolve(op).register_jvp(fn, override=override)


@overload
def register_vmap(op: OpT, fn: VmapFn, /, *, override: bool = False) -> OpT: ...
@overload
def register_vmap(
    op: str, fn: VmapFn, /, *, override: bool = False
) -> Operator[..., Any]: ...
@overload
def register_vmap(
    op: Operator[..., Any] | str, fn: None = None, /, *, override: bool = False
) -> Callable[[FnT], FnT]: ...
def register_vmap(
    op: Operator[..., Any] | str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    override: bool = False,
) -> Any:
    """Register a batching rule by name; see `Operator.register_vmap`.

    Parameters
    ----------
    op : Operator or str
    fn : callable, optional
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    MissingRuleError
        If there is no such operator.
    RegistrationError
        As the method does.
    """
    return _resolve(op).register_vmap(fn, override=override)


@overload
def register(
    op: OpT, kind: RuleKind, fn: Callable[..., object], /, *, override: bool = False
) -> OpT: ...
@overload
def register(
    op: str, kind: RuleKind, fn: Callable[..., object], /, *, override: bool = False
) -> Operator[..., Any]: ...
@overload
def register(
    op: Operator[..., Any] | str,
    kind: RuleKind,
    fn: None = None,
    /,
    *,
    override: bool = False,
) -> Callable[[FnT], FnT]: ...
def register(
    op: Operator[..., Any] | str,
    kind: RuleKind,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    override: bool = False,
) -> Any:
    """Register a rule of any kind by name; see `Operator.register`.

    Parameters
    ----------
    op : Operator or str
    kind : RuleKind
    fn : callable, optional
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    MissingRuleError
        If there is no such operator.
    RegistrationError
        As the method does.
    """
    return _resolve(op).register(kind, fn, override=override)
