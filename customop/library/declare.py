"""Definition by a schema, and registration as in torch.library: `define`, `impl`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, ParamSpec, TypeVar, Unpack, overload

from customop.core.builtin_kinds import Formula
from customop.core.dispatch import kernel_for
from customop.core.operator import Operator
from customop.core.registration import Registration, chained
from customop.core.registry import add_registration, check_name, check_registration
from customop.core.rule_kind import RuleKind
from customop.core.rule_types import KernelFn, ShortKernelFn
from customop.errors import check_flag, items_of, user_frame
from customop.library.define import declare, parsed
from customop.library.library import KeysetOptions, Library, check_library, kind_of_key
from customop.library.ops import OperatorPacket
from customop.library.register import AnyOperator, resolve
from customop.schema.tags import Tag

FnT = TypeVar("FnT", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
Keys = str | RuleKind | Iterable[str | RuleKind]


class ImplOptions(KeysetOptions, total=False):
    """Options of `impl`."""

    lib: Library | None


@overload
def define(
    qualname: str,
    schema: str,
    *,
    lib: Library | None = None,
    tags: Iterable[Tag] | Tag = (),
) -> Operator[..., Any]: ...
@overload
def define(
    qualname: Library, schema: str, *, tags: Iterable[Tag] | Tag = ()
) -> Callable[[FnT], FnT]: ...
def define(
    qualname: str | Library,
    schema: str,
    *,
    lib: Library | None = None,
    tags: Iterable[Tag] | Tag = (),
) -> Any:
    """Define an operator by its schema alone; kernels follow with `impl`.

    Parameters
    ----------
    qualname : str or Library
        ``"namespace::name"``. With a library, `define` is a decorator: `schema` contains
        the name, and the decorated function becomes the operator's body.
    schema : str
        For example ``"(Array x, float k=1.0) -> Array"``.
    lib : Library, optional
        Removes the operator when it closes.
    tags : Tag or iterable of Tag
        Properties that the schema cannot express.

    Returns
    -------
    Operator or decorator
        The operator; with a library, a decorator that returns its function unchanged.

    Raises
    ------
    SchemaError
        If the schema cannot be parsed.
    RegistrationError
        If the name is malformed or already defined.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> op = co.define("doc::thrice", "(Array x) -> Array")
    >>> @co.impl("doc::thrice", "CPU")
    ... def _(x):
    ...     return 3 * x
    >>> op(np.ones(2))
    array([3., 3.])
    """
    check_library(lib)
    if isinstance(qualname, Library):
        return _define_in(qualname, schema, tags)
    check_name("define", qualname)
    name, found = parsed(qualname, schema)
    if lib is None:
        return declare(name, found, tags, user_frame())
    return lib.declare(name, found, tags)


def _define_in(
    lib: Library, schema: str, tags: Iterable[Tag] | Tag
) -> Callable[[FnT], FnT]:
    def enter(fn: Any) -> None:
        lib.impl(lib.define(schema, tags=tags), fn)

    decorator: Callable[[FnT], FnT] = chained(None, None, enter)
    return decorator


@overload
def impl(
    qualname: AnyOperator,
    types: Keys,
    fn: ShortKernelFn,
    /,
    **options: Unpack[ImplOptions],
) -> None: ...
@overload
def impl(
    qualname: AnyOperator,
    types: Keys,
    fn: KernelFn | Formula,
    /,
    **options: Unpack[ImplOptions],
) -> None: ...
@overload
def impl(
    qualname: AnyOperator,
    types: Keys,
    fn: None = None,
    /,
    **options: Unpack[ImplOptions],
) -> Callable[[FnT], FnT]: ...
@overload
def impl(
    qualname: Library,
    types: str | Operator[..., Any],
    fn: str | RuleKind | None = None,
    /,
    *,
    with_keyset: bool = False,
    allow_override: bool = True,
) -> Callable[[FnT], FnT]: ...
def impl(
    qualname: str | Operator[..., Any] | OperatorPacket | Library,
    types: Keys | Operator[..., Any],
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
    with_keyset: bool = False,
    allow_override: bool = True,
) -> Any:
    """Register a kernel or rule for an operator, even before its definition.

    Parameters
    ----------
    qualname : str, Operator, OperatorPacket or Library
        ``"namespace::name"``. With a library, `impl` is a decorator: `types` is a name in
        its namespace, and `fn` a dispatch key or None.
    types : str, RuleKind, or iterable of them
        Kinds of array, dispatch keys or rule kinds; see `Library`.
    fn : callable or Formula, optional
        The kernel or rule. Without it, `impl` returns a decorator.
    lib : Library, optional
        Removes the registration when it closes.
    with_keyset : bool
        Pass `fn` the kernel or rule below it as its first argument: ``below(x)``.
    allow_override : bool
        Whether `fn` may cover an earlier registration of the same kind.

    Returns
    -------
    decorator or None
        The decorator returns its function unchanged.

    Raises
    ------
    RegistrationError
        If `fn` does not fit the operator, a kind is unknown, or `allow_override` is
        False and `fn` would cover an earlier registration.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> with co.Library("np", "IMPL") as lib:
    ...     @co.impl("np::cos", "CPU", lib=lib, with_keyset=True)
    ...     def _(below, x):
    ...         return 10 * below(x)
    ...     print(co.ops.np.cos(np.zeros(1)))
    [10.]
    """
    check_library(lib)
    check_flag("with_keyset", with_keyset)
    check_flag("allow_override", allow_override)
    if isinstance(qualname, Library):
        return _impl_in(qualname, types, fn, with_keyset, allow_override)
    name = resolve(qualname).qualname if not isinstance(qualname, str) else qualname
    check_name("impl", name)
    listed = items_of(types)
    keys: list[Any] = [types] if listed is None else listed
    kinds = [kind_of_key(f"impl of '{name}'", key) for key in keys]

    def enter(given: Any) -> None:
        for kind in kinds:  # all or none
            new = Registration(name, kind, given, with_below=with_keyset)
            check_registration(new, override=allow_override)
        for kind in kinds:
            if lib is None:
                new = Registration(name, kind, given, with_below=with_keyset)
                add_registration(new, override=allow_override)
            else:
                lib.add(
                    name, kind, given, override=allow_override, with_below=with_keyset
                )

    return chained(None, fn, enter)


def _impl_in(
    lib: Library, name: Any, key: Any, with_keyset: bool, allow_override: bool
) -> Callable[[FnT], FnT]:
    def enter(fn: Any) -> None:
        lib.impl(
            name,
            fn,
            "" if key is None else key,
            with_keyset=with_keyset,
            allow_override=allow_override,
        )

    decorator: Callable[[FnT], FnT] = chained(None, None, enter)
    return decorator


@overload
def get_kernel(
    op: Operator[P, R], device_type: Literal["cpu", "CPU"]
) -> Callable[P, R]: ...
@overload
def get_kernel(op: AnyOperator, device_type: str | RuleKind) -> Callable[..., Any]: ...
def get_kernel(
    op: Operator[Any, Any] | AnyOperator, device_type: str | RuleKind
) -> Callable[..., Any]:
    """Return the kernel or rule of a kind, for example to wrap it.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
    device_type : str or RuleKind
        A kind of array, a dispatch key such as ``"CPU"`` or ``"Meta"``, or a rule kind.

    Returns
    -------
    callable
        The function that a call would use now. It stays usable after other
        registrations, and after the library that registered it closes.

    Raises
    ------
    MissingRuleError
        If the operator does not exist, or has no kernel or rule of this kind.
    RegistrationError
        If the kind is unknown.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> sin = co.get_kernel("np::sin", "cpu")
    >>> sin is np.sin
    True
    """
    found = resolve(op)
    kind = kind_of_key(found.qualname, device_type)
    if isinstance(kind, RuleKind):
        rule: Callable[..., Any] = found.rule(kind)
        return rule
    return kernel_for(found, kind)
