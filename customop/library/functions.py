"""Registering for operators that are given by name, and defining them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict, TypeVar, overload

import numpy.typing as npt
from typing_extensions import Unpack

from customop.arrays.kinds import FAKE
from customop.core.define import check_name
from customop.core.dispatch import kernel_for
from customop.core.grad_rules import as_formula
from customop.core.kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    JVP,
    SAMPLE_INPUTS,
    VMAP,
)
from customop.core.operator import Operator
from customop.core.registration import Registration, chained
from customop.core.registry import add_registration, find_operator
from customop.core.rule_kind import RuleKind, check_device_types, check_kind
from customop.core.rule_types import (
    BackwardFn,
    ContextT,
    JvpFn,
    KernelFn,
    SetupFn,
    ShortBackwardFn,
    ShortKernelFn,
    ShortVmapFn,
    VmapFn,
)
from customop.errors import RegistrationError
from customop.library.define import caller, declare, parsed
from customop.library.keys import kind_of_key
from customop.library.library import Library
from customop.library.ops import OperatorPacket
from customop.schema.tags import Tag

__all__ = [
    "define",
    "get_kernel",
    "impl",
    "register",
    "register_array_dispatch",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_jvp",
    "register_kernel",
    "register_sample_inputs",
    "register_vmap",
]

# Overloads spell out Callable[[FnT], FnT]: in an alias, mypy would not leave FnT generic.
FnT = TypeVar("FnT", bound=Callable[..., Any])
OpT = TypeVar("OpT", bound=Operator[..., Any])
Named = OperatorPacket | str
AnyOperator = Operator[..., Any] | OperatorPacket | str
AnyOp = Operator[..., Any]
DeviceTypes = str | Iterable[str] | None


class Held(TypedDict, total=False):
    """The option of all registrations by name."""

    lib: Library | None


class Options(Held, total=False):
    """Options of registrations that may be there already."""

    override: bool


def _resolve(op: AnyOperator) -> AnyOp:
    if isinstance(op, Operator):
        return op
    if isinstance(op, str):
        return find_operator(op)
    if isinstance(op, OperatorPacket):
        return op.default
    raise RegistrationError(
        f"expected an operator or its name, got {op!r}", do='pass "namespace::name"'
    )


def _by_name(
    op: AnyOperator,
    keys: Iterable[str | RuleKind],
    fn: Any,
    lib: Library | None,
    *,
    override: bool,
    of: Callable[[Any], Any] = lambda given: given,
) -> Any:
    """Register for an operator, or give a decorator; `of` makes what is registered."""
    found = _resolve(op)

    def enter(given: Any) -> None:
        for key in keys:
            if lib is None:
                found.add(key, of(given), override=override)
            else:
                lib.add(found.qualname, key, of(given), override=override)

    return chained(found, fn, enter)


@overload
def register_kernel(
    op: OpT, device_types: DeviceTypes, fn: ShortKernelFn, /, **options: Unpack[Held]
) -> OpT: ...
@overload
def register_kernel(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT, device_types: DeviceTypes, fn: KernelFn, /, **options: Unpack[Held]
) -> OpT: ...
@overload
def register_kernel(
    op: Named, device_types: DeviceTypes, fn: KernelFn, /, **options: Unpack[Held]
) -> AnyOp: ...
@overload
def register_kernel(
    op: AnyOperator,
    device_types: DeviceTypes,
    fn: None = None,
    /,
    **options: Unpack[Held],
) -> Callable[[FnT], FnT]: ...
def register_kernel(
    op: AnyOperator,
    device_types: DeviceTypes,
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """Register a kernel by name; see `Operator.register_kernel`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    device_types : str, iterable of str, or None
    fn : callable, optional
    lib : Library, optional
        Takes the registration back when it closes.

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
    kinds = check_device_types(_resolve(op).qualname, device_types)
    return _by_name(op, kinds, fn, lib, override=True)


@overload
def register_fake(op: OpT, fn: ShortKernelFn, /, **options: Unpack[Options]) -> OpT: ...
@overload
def register_fake(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT, fn: KernelFn, /, **options: Unpack[Options]
) -> OpT: ...
@overload
def register_fake(op: Named, fn: KernelFn, /, **options: Unpack[Options]) -> AnyOp: ...
@overload
def register_fake(
    op: AnyOperator, fn: None = None, /, **options: Unpack[Options]
) -> Callable[[FnT], FnT]: ...
def register_fake(
    op: AnyOperator,
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a fake kernel by name; see `Operator.register_fake`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    fn : callable, optional
    lib : Library, optional
        Takes the registration back when it closes.
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
    return _by_name(op, (FAKE,), fn, lib, override=override)


@overload
def register_jvp(op: OpT, fn: JvpFn, /, **options: Unpack[Options]) -> OpT: ...
@overload
def register_jvp(op: Named, fn: JvpFn, /, **options: Unpack[Options]) -> AnyOp: ...
@overload
def register_jvp(
    op: AnyOperator, fn: None = None, /, **options: Unpack[Options]
) -> Callable[[FnT], FnT]: ...
def register_jvp(
    op: AnyOperator,
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a forward-mode rule by name; see `Operator.register_jvp`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    fn : callable, optional
    lib : Library, optional
        Takes the registration back when it closes.
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
    return _by_name(op, (JVP,), fn, lib, override=override)


@overload
def register_vmap(op: OpT, fn: ShortVmapFn, /, **options: Unpack[Options]) -> OpT: ...
@overload
def register_vmap(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT, fn: VmapFn, /, **options: Unpack[Options]
) -> OpT: ...
@overload
def register_vmap(op: Named, fn: VmapFn, /, **options: Unpack[Options]) -> AnyOp: ...
@overload
def register_vmap(
    op: AnyOperator, fn: None = None, /, **options: Unpack[Options]
) -> Callable[[FnT], FnT]: ...
def register_vmap(
    op: AnyOperator,
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a batching rule by name; see `Operator.register_vmap`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    fn : callable, optional
    lib : Library, optional
        Takes the registration back when it closes.
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
    return _by_name(op, (VMAP,), fn, lib, override=override)


@overload
def register_sample_inputs(
    op: OpT, fn: Callable[[], object], /, **options: Unpack[Options]
) -> OpT: ...
@overload
def register_sample_inputs(
    op: Named, fn: Callable[[], object], /, **options: Unpack[Options]
) -> AnyOp: ...
@overload
def register_sample_inputs(
    op: AnyOperator, fn: None = None, /, **options: Unpack[Options]
) -> Callable[[FnT], FnT]: ...
def register_sample_inputs(
    op: AnyOperator,
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register inputs for checks by name; see `Operator.register_sample_inputs`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    fn : callable, optional
    lib : Library, optional
        Takes the registration back when it closes.
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
    return _by_name(op, (SAMPLE_INPUTS,), fn, lib, override=override)


@overload
def register_autograd(
    op: OpT,
    backward: ShortBackwardFn[ContextT],
    /,
    *,
    setup_context: SetupFn[ContextT] | None = None,
    **options: Unpack[Options],
) -> OpT: ...
@overload
def register_autograd(
    op: OpT,
    backward: BackwardFn[ContextT],
    /,
    *,
    setup_context: SetupFn[ContextT] | None = None,
    **options: Unpack[Options],
) -> OpT: ...
@overload
def register_autograd(
    op: Named,
    backward: BackwardFn[ContextT],
    /,
    *,
    setup_context: SetupFn[ContextT] | None = None,
    **options: Unpack[Options],
) -> AnyOp: ...
def register_autograd(
    op: AnyOperator,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a backward formula by name; see `Operator.register_autograd`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    backward : callable
    setup_context : callable, optional
    lib : Library, optional
        Takes the registration back when it closes.
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
    rule = as_formula(backward, setup_context)
    return _by_name(op, (AUTOGRAD,), rule, lib, override=override)


def register_autocast(
    op: AnyOperator,
    device_type: str,
    dtype: npt.DTypeLike,
    /,
    *,
    lib: Library | None = None,
) -> AnyOp:
    """Register a dtype for `autocast` by name; see `Operator.register_autocast`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    device_type : str
    dtype : dtype
    lib : Library, optional
        Takes the registration back when it closes.

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
    found: AnyOp = _by_name(op, (AUTOCAST,), (device_type, dtype), lib, override=True)
    return found


def register_array_dispatch(
    op: AnyOperator,
    array_class: type,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a rule for a class of arrays by name; see `Operator.register_array_dispatch`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    array_class : type
    fn : callable, optional
    lib : Library, optional
        Takes the registration back when it closes.
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
    return _by_name(
        op,
        (ARRAY_CLASS,),
        fn,
        lib,
        override=override,
        of=lambda rule: (array_class, rule),
    )


@overload
def register(
    op: OpT, kind: RuleKind, fn: KernelFn, /, **options: Unpack[Options]
) -> OpT: ...
@overload
def register(
    op: Named, kind: RuleKind, fn: KernelFn, /, **options: Unpack[Options]
) -> AnyOp: ...
@overload
def register(
    op: AnyOperator, kind: RuleKind, fn: None = None, /, **options: Unpack[Options]
) -> Callable[[FnT], FnT]: ...
def register(
    op: AnyOperator,
    kind: RuleKind,
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a rule of any kind by name; see `Operator.register`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    kind : RuleKind
    fn : callable, optional
    lib : Library, optional
        Takes the registration back when it closes.
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
    check_kind(_resolve(op).qualname, kind)
    return _by_name(op, (kind,), fn, lib, override=override)


def get_kernel(
    op: Operator[..., Any] | OperatorPacket | str, device_type: str | RuleKind
) -> Any:
    """Fetch what is registered for a kind, to wrap it.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
    device_type : str or RuleKind
        A kind of array, a dispatch key such as ``"CPU"`` or ``"Meta"``, or a kind of
        rule.

    Returns
    -------
    callable
        The kernel that a call would take now: the function itself, which works on
        after other registrations, and after the library that registered it closes.

    Raises
    ------
    MissingRuleError
        If there is no such operator, or it has none.
    RegistrationError
        If there is no such kind.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> sin = co.get_kernel("np::sin", "cpu")
    >>> sin is np.sin
    True
    """
    found = _resolve(op)
    kind = kind_of_key(found.qualname, device_type)
    if isinstance(kind, RuleKind):
        return found.rule(kind)
    return kernel_for(found, kind)


# ---- defining by a schema ----


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
        ``"namespace::name"``. With a library the call is a decorator instead: `schema`
        has the name, and the function becomes the operator's body.
    schema : str
        Such as ``"(Array x, float k=1.0) -> Array"``.
    lib : Library, optional
        Takes the definition back when it closes.
    tags : Tag or iterable of Tag
        What the operator promises beyond its schema.

    Returns
    -------
    Operator or decorator
        The operator. A decorator, with a library, returns its function unchanged.

    Raises
    ------
    SchemaError
        If the schema cannot be read.
    RegistrationError
        If the name is no such name, or defined already.

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
    if isinstance(qualname, Library):
        return _define_in(qualname, schema, tags)
    check_name("define", qualname)
    name, found = parsed(qualname, schema)
    if lib is None:
        return declare(name, found, tags, caller())
    return lib.declare(name, found, tags)


def _define_in(
    lib: Library, schema: str, tags: Iterable[Tag] | Tag
) -> Callable[[FnT], FnT]:
    def enter(fn: Any) -> None:
        lib.impl(lib.define(schema, tags=tags), fn)

    return chained(None, None, enter)  # type: ignore[no-any-return]


def impl(
    qualname: str | Operator[..., Any] | OperatorPacket | Library,
    types: str | RuleKind | Iterable[str | RuleKind],
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
    with_keyset: bool = False,
    allow_override: bool = True,
) -> Any:
    """Register a kernel or rule for an operator, which may be defined later.

    Parameters
    ----------
    qualname : str, Operator, OperatorPacket or Library
        ``"namespace::name"``. With a library, `types` is a name in its namespace and
        `fn` a dispatch key, or nothing; the call is a decorator.
    types : str, RuleKind, or iterable of them
        Kinds of array, dispatch keys or kinds of rules; see `Library`.
    fn : callable or Formula, optional
        Takes what its kind says. Without it, a decorator is returned.
    lib : Library, optional
        Takes the registration back when it closes; without it, it stays.
    with_keyset : bool
        Give `fn` a first argument to call what is below it: ``below(x)``.
    allow_override : bool
        Whether there may be a registration of that kind already.

    Returns
    -------
    decorator or None
        A decorator returns its function unchanged.

    Raises
    ------
    RegistrationError
        If `fn` does not fit the operator, a kind is unknown, or there is a
        registration that `allow_override` protects.

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
    if isinstance(qualname, Library):
        return _impl_in(qualname, types, fn, with_keyset, allow_override)
    name = _resolve(qualname).qualname if not isinstance(qualname, str) else qualname
    check_name("impl", name)
    single = isinstance(types, str | RuleKind)
    keys: Any = [types] if single else types
    kinds = [kind_of_key(f"impl of '{name}'", key) for key in keys]

    def enter(given: Any) -> None:
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

    return chained(None, None, enter)  # type: ignore[no-any-return]
