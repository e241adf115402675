"""Make operators from a function, or from a schema alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from customop.arrays.kinds import FAKE
from customop.core.dispatch import kernel_for
from customop.core.operator import Operator
from customop.core.registration import as_kernel
from customop.core.registry import (
    Declared,
    check_name,
    check_names,
    checked_tags,
    define_operator,
)
from customop.core.rule_kind import Definition, Site, check_device_types, check_factory
from customop.errors import (
    RegistrationError,
    SchemaError,
    items_of,
    place,
    shown,
)
from customop.later import later
from customop.library.ops import check_reachable
from customop.schema.agreement import (
    check_agrees,
    check_overloads,
    check_returns_at_once,
)
from customop.schema.schema import Schema
from customop.schema.tags import Tag
from customop.schema.types import MISSING, Alias, holds_arrays

P = ParamSpec("P")
R = TypeVar("R")
FnT_co = TypeVar("FnT_co", covariant=True)

if TYPE_CHECKING:
    # mypy takes this name for True.
    MYPY = False

    class OperatorOf(Operator[P, R], Generic[P, R, FnT_co]):
        """An operator that pyright calls as a function with overloads.

        pyright solves `P` and `R` with the first overload, and ``Callable[P, R]`` with all
        of them where it is a type argument. mypy solves both with the first one.
        """

        if not MYPY:
            __call__: FnT_co  # pyright: ignore[reportIncompatibleMethodOverride]
            call: FnT_co  # pyright: ignore[reportIncompatibleMethodOverride]
            dispatch: FnT_co  # pyright: ignore[reportIncompatibleMethodOverride]


_SCHEMA = later(
    re.compile, r"\s*(?:(\w+)::)?([A-Za-z_]\w*(?:\.\w+)?)\s*(\(.*)", re.DOTALL
)


# ---- from a function ----


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
) -> OperatorOf[P, R, Callable[P, R]]: ...
def custom_op(
    name: str,
    fn: Callable[P, R] | None = None,
    /,
    *,
    mutates_args: Any = MISSING,
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Iterable[Tag] | Tag = (),
) -> Operator[P, R] | Callable[[Callable[P, R]], Operator[P, R]]:
    """Make an operator from a function with type hints.

    Parameters
    ----------
    name : str
        ``"namespace::name"``, or ``"namespace::name.overload"``.
    fn : callable, optional
        The first kernel. Without it, `custom_op` returns a decorator.
    mutates_args : iterable of str, or "unknown"
        Names of the array parameters that the kernel writes to; ``"unknown"`` if it may
        write to any of them.
    device_types : str, iterable of str, or None
        Kinds of array that `fn` works on: ``"cpu"``, ``"cuda"`` or registered ones.
        None for all.
    schema : str, optional
        For example ``"(Array x, float k=1.0) -> Array"``. By default it is inferred from
        the type hints of `fn`, or from the signature of a function of
        ``numba.guvectorize``.
    tags : Tag or iterable of Tag
        Properties that the schema cannot express.

    Returns
    -------
    Operator or decorator
        The operator is called like `fn` and has its name, docstring and signature.

    Raises
    ------
    SchemaError
        If `mutates_args` is missing, no schema can be inferred, or `schema` does not agree with `fn` or with
        `mutates_args`.
    RegistrationError
        If the name is malformed or defined in another file, or a kind is unknown.

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
    if callable(name):
        raise RegistrationError(
            f"custom_op: the function '{getattr(name, '__name__', name)}' is given in the place of a name",
            do='write @custom_op("mylib::name", mutates_args=())',
        )
    check_name("custom_op", name)
    if mutates_args is MISSING:
        raise SchemaError(
            f"{name}: custom_op needs mutates_args, the arguments that the kernel writes to",
            do="write mutates_args=() if it writes to none, else mutates_args=('x',)",
            op=name,
        )
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
    """Check everything before defining, so that a failed definition leaves no trace."""
    if isinstance(fn, Operator) or not callable(fn):
        raise RegistrationError(
            f"{name}: custom_op expects a function, got {shown(fn)}",
            do="pass the function that computes the result",
            op=name,
        )
    fn = as_kernel(fn)
    check_returns_at_once(name, "function", fn)
    listed = items_of(mutates_args)  # a generator can be read only once
    names = mutates_args if listed is None else listed
    # A kernel of guvectorize says its own schema, and the dtypes of its results.
    gufunc: Any = fn if schema is None and hasattr(fn, "gufunc") else None
    schema = schema if gufunc is None else gufunc.schema
    found = _schema(name, fn, names, schema, scope)
    kinds = check_device_types(name, device_types)
    check_factory(name, found, kinds)
    check_names(name, found)
    check_reachable(name)
    definition = Definition(
        name,
        fn,
        found,
        checked_tags(name, tags),
        _place(fn, scope),
        _module(fn, scope),
        Site.of(scope),
    )
    op = define_operator(definition, kinds)
    if gufunc is not None and gufunc.has_loops:
        op.register_fake(gufunc.fake(kernel_for(op, FAKE)))
    return op


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
            found = Schema.infer(fn, mutates_args, scope)
        else:
            found = Schema.parse(schema)
            check_agrees(fn, found, mutates_args, scope)
        check_overloads(fn, found, scope)
    except SchemaError as error:
        error.what = f"{name}: {error.what}"
        error.op = name
        raise
    return found


# ---- from a schema alone ----


def read_definition(text: Any, namespace: str) -> tuple[str, Schema]:
    """Parse ``"name(Array x) -> Array"`` into a qualified name and a schema."""
    found = _SCHEMA.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise SchemaError(
            f"{namespace}: {shown(text)} is not a name with a schema",
            do='write "name(Array x, float k=1.0) -> Array"',
        )
    prefix, name, rest = found.groups()
    if prefix not in (None, namespace):
        raise RegistrationError(
            f"library '{namespace}' cannot define '{prefix}::{name}'",
            do=f'leave the namespace out, or make Library("{prefix}", "FRAGMENT")',
            op=f"{prefix}::{name}",
        )
    return parsed(f"{namespace}::{name}", rest)


def parsed(qualname: str, text: str) -> tuple[str, Schema]:
    """Check a qualified name and parse its schema; errors name the operator."""
    check_name("define", qualname)
    if isinstance(text, str) and not text.lstrip().startswith("("):
        raise SchemaError(
            f"{qualname}: the schema {shown(text)} does not begin with its parameters",
            do='write "(Array x, float k=1.0) -> Array", without the name',
            op=qualname,
        )
    try:
        return qualname, Schema.parse(text)
    except SchemaError as error:
        error.what = f"{qualname}: {error.what}"
        error.op = qualname
        raise


def declare(
    qualname: str,
    schema: Schema,
    tags: Iterable[Tag] | Tag,
    where: FrameType,
) -> Operator[..., Any]:
    """Define an operator that has a schema and no kernel yet."""
    check_names(qualname, schema)
    check_reachable(qualname)
    return define_operator(
        Definition(
            qualname,
            Declared(qualname, schema),
            schema,
            checked_tags(qualname, tags),
            place_of(where),
            str(where.f_globals.get("__name__", "")),
            Site.of(where),
        )
    )


def conservative(schema: Schema) -> Schema:
    """Return the schema changed so that any two arrays may share memory."""
    shared = Alias("alias")
    return schema.replaced(
        parameters=tuple(
            p.replaced(alias=shared) if holds_arrays(p.type) and p.alias is None else p
            for p in schema.parameters
        ),
        returns=tuple(
            r.replaced(alias=shared) if holds_arrays(r.type) and r.alias is None else r
            for r in schema.returns
        ),
    )


def place_of(frame: FrameType) -> str:
    """Return file and line of a frame."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
