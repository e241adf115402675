"""Making operators, and registering for them by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, TypeVar, overload

import numpy.typing as npt
from typing_extensions import ParamSpec

from customop.arrays.kinds import FAKE
from customop.core.checks import (
    check_autocast,
    check_device_types,
    check_factory,
    check_kind,
    check_name,
    check_names,
    checked_tags,
)
from customop.core.grad_rules import as_formula
from customop.core.kernels import kernel_for
from customop.core.kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    JVP,
    SAMPLE_INPUTS,
    VMAP,
)
from customop.core.operator import Operator, define_operator, find_operator
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
from customop.core.table import Definition, RuleKind
from customop.errors import RegistrationError, SchemaError, place
from customop.library.entry import Entry, add_entry, kind_of_key
from customop.library.library import Library, caller, declare, parsed, place_of_rule
from customop.library.ops import OperatorPacket
from customop.schema.agreement import check_agrees
from customop.schema.schema import Schema
from customop.schema.tags import Tag

__all__ = [
    "custom_op",
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

P = ParamSpec("P")
R = TypeVar("R")
FnT = TypeVar("FnT", bound=Callable[..., Any])
OpT = TypeVar("OpT", bound=Operator[..., Any])


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
    check_name("custom_op", name)
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
    check_factory(name, found, kinds)
    check_names(name, found)
    definition = Definition(
        name, fn, found, checked_tags(name, tags), _place(fn, scope), _module(fn, scope)
    )
    return define_operator(definition, kinds)


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


# ---- registering by name ----


def _resolve(op: Operator[..., Any] | OperatorPacket | str) -> Operator[..., Any]:
    if isinstance(op, Operator):
        return op
    if isinstance(op, str):
        return find_operator(op)
    if isinstance(op, OperatorPacket):
        return op.default
    raise RegistrationError(
        f"expected an operator or its name, got {op!r}", do='pass "namespace::name"'
    )


def _register(
    op: Operator[..., Any] | OperatorPacket | str,
    kinds: Iterable[str | RuleKind],
    fn: Any,
    lib: Library,
    *,
    override: bool,
) -> Any:
    """Register for the lifetime of a library; a decorator where `fn` is None."""
    found = _resolve(op)

    def enter(given: FnT) -> FnT:
        for kind in kinds:
            lib.add(found.qualname, kind, given, override=override)
        return given

    if fn is None:
        return enter
    enter(fn)
    return found


@overload
def register_kernel(
    op: OpT,
    device_types: str | Iterable[str] | None,
    fn: ShortKernelFn,
    /,
    *,
    lib: Library | None = None,
) -> OpT: ...
@overload
def register_kernel(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT,
    device_types: str | Iterable[str] | None,
    fn: KernelFn,
    /,
    *,
    lib: Library | None = None,
) -> OpT: ...
@overload
def register_kernel(
    op: OperatorPacket | str,
    device_types: str | Iterable[str] | None,
    fn: KernelFn,
    /,
    *,
    lib: Library | None = None,
) -> Operator[..., Any]: ...
@overload
def register_kernel(
    op: Operator[..., Any] | OperatorPacket | str,
    device_types: str | Iterable[str] | None,
    fn: None = None,
    /,
    *,
    lib: Library | None = None,
) -> Callable[[FnT], FnT]: ...
def register_kernel(
    op: Operator[..., Any] | OperatorPacket | str,
    device_types: str | Iterable[str] | None,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """Register a kernel for an operator given by name; see `Operator.register_kernel`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    if lib is not None:
        kinds = check_device_types(_resolve(op).qualname, device_types)
        return _register(op, kinds, fn, lib, override=True)
    return _resolve(op).register_kernel(device_types, fn)  # type: ignore[arg-type]


@overload
def register_fake(
    op: OpT,
    fn: ShortKernelFn,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> OpT: ...
@overload
def register_fake(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT,
    fn: KernelFn,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> OpT: ...
@overload
def register_fake(
    op: OperatorPacket | str,
    fn: KernelFn,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Operator[..., Any]: ...
@overload
def register_fake(
    op: Operator[..., Any] | OperatorPacket | str,
    fn: None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Callable[[FnT], FnT]: ...
def register_fake(
    op: Operator[..., Any] | OperatorPacket | str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a fake kernel for an operator given by name; see `Operator.register_fake`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    if lib is not None:
        return _register(op, (FAKE,), fn, lib, override=override)
    return _resolve(op).register_fake(fn, override=override)


@overload
def register_jvp(
    op: OpT, fn: JvpFn, /, *, lib: Library | None = None, override: bool = False
) -> OpT: ...
@overload
def register_jvp(
    op: OperatorPacket | str,
    fn: JvpFn,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Operator[..., Any]: ...
@overload
def register_jvp(
    op: Operator[..., Any] | OperatorPacket | str,
    fn: None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Callable[[FnT], FnT]: ...
def register_jvp(
    op: Operator[..., Any] | OperatorPacket | str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a forward-mode rule by name; see `Operator.register_jvp`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    if lib is not None:
        return _register(op, (JVP,), fn, lib, override=override)
    return _resolve(op).register_jvp(fn, override=override)


@overload
def register_vmap(
    op: OpT, fn: ShortVmapFn, /, *, lib: Library | None = None, override: bool = False
) -> OpT: ...
@overload
def register_vmap(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT, fn: VmapFn, /, *, lib: Library | None = None, override: bool = False
) -> OpT: ...
@overload
def register_vmap(
    op: OperatorPacket | str,
    fn: VmapFn,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Operator[..., Any]: ...
@overload
def register_vmap(
    op: Operator[..., Any] | OperatorPacket | str,
    fn: None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Callable[[FnT], FnT]: ...
def register_vmap(
    op: Operator[..., Any] | OperatorPacket | str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a batching rule by name; see `Operator.register_vmap`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    if lib is not None:
        return _register(op, (VMAP,), fn, lib, override=override)
    return _resolve(op).register_vmap(fn, override=override)


@overload
def register_sample_inputs(
    op: OpT,
    fn: Callable[[], object],
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> OpT: ...
@overload
def register_sample_inputs(
    op: OperatorPacket | str,
    fn: Callable[[], object],
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Operator[..., Any]: ...
@overload
def register_sample_inputs(
    op: Operator[..., Any] | OperatorPacket | str,
    fn: None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Callable[[FnT], FnT]: ...
def register_sample_inputs(
    op: Operator[..., Any] | OperatorPacket | str,
    fn: Callable[[], object] | None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register inputs for checks by name; see `Operator.register_sample_inputs`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    if lib is not None:
        return _register(op, (SAMPLE_INPUTS,), fn, lib, override=override)
    return _resolve(op).register_sample_inputs(fn, override=override)


@overload
def register_autograd(
    op: OpT,
    backward: ShortBackwardFn[ContextT],
    /,
    *,
    setup_context: SetupFn[ContextT] | None = None,
    lib: Library | None = None,
    override: bool = False,
) -> OpT: ...
@overload
def register_autograd(
    op: OpT,
    backward: BackwardFn[ContextT],
    /,
    *,
    setup_context: SetupFn[ContextT] | None = None,
    lib: Library | None = None,
    override: bool = False,
) -> OpT: ...
@overload
def register_autograd(
    op: OperatorPacket | str,
    backward: BackwardFn[ContextT],
    /,
    *,
    setup_context: SetupFn[ContextT] | None = None,
    lib: Library | None = None,
    override: bool = False,
) -> Operator[..., Any]: ...
def register_autograd(
    op: Operator[..., Any] | OperatorPacket | str,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
    override: bool = False,
) -> Operator[..., Any]:
    """Register a backward formula by name; see `Operator.register_autograd`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    if lib is not None:
        rule = as_formula(backward, setup_context)
        found: Operator[..., Any] = _register(
            op, (AUTOGRAD,), rule, lib, override=override
        )
        return found
    return _resolve(op).register_autograd(
        backward, setup_context=setup_context, override=override
    )


def register_autocast(
    op: Operator[..., Any] | OperatorPacket | str,
    device_type: str,
    dtype: npt.DTypeLike,
    /,
    *,
    lib: Library | None = None,
) -> Operator[..., Any]:
    """Register a dtype for `autocast` by name; see `Operator.register_autocast`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    found = _resolve(op)
    if lib is None:
        return found.register_autocast(device_type, dtype)
    rule = {device_type: check_autocast(found.definition, device_type, dtype)}
    lib.add(found.qualname, AUTOCAST, rule, override=True)
    return found


def register_array_dispatch(
    op: Operator[..., Any] | OperatorPacket | str,
    array_class: type,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a rule for a class of arrays; see `Operator.register_array_dispatch`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    found = _resolve(op)
    if lib is None:
        return found.register_array_dispatch(array_class, fn, override=override)

    def enter(given: FnT) -> FnT:
        rule = {array_class: given}
        lib.add(found.qualname, ARRAY_CLASS, rule, override=override)
        return given

    if fn is None:
        return enter
    enter(fn)
    return found


@overload
def register(
    op: OpT,
    kind: RuleKind,
    fn: KernelFn,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> OpT: ...
@overload
def register(
    op: OperatorPacket | str,
    kind: RuleKind,
    fn: KernelFn,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Operator[..., Any]: ...
@overload
def register(
    op: Operator[..., Any] | OperatorPacket | str,
    kind: RuleKind,
    fn: None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Callable[[FnT], FnT]: ...
def register(
    op: Operator[..., Any] | OperatorPacket | str,
    kind: RuleKind,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register a rule of any kind by name; see `Operator.register`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
        The operator, or its name.
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
    if lib is not None:
        check_kind(_resolve(op).qualname, kind)
        return _register(op, (kind,), fn, lib, override=override)
    return _resolve(op).register(kind, fn, override=override)


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
    def decorator(fn: FnT) -> FnT:
        name = lib.define(schema, tags=tags)
        lib.impl(name, fn)
        return fn

    return decorator


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

    def enter(given: FnT) -> FnT:
        for kind in kinds:
            _add(name, kind, given, lib, with_keyset, allow_override)
        return given

    if fn is None:
        return enter
    enter(fn)
    return None


def _add(
    name: str,
    kind: str | RuleKind,
    fn: Any,
    lib: Library | None,
    with_keyset: bool,
    allow_override: bool,
) -> None:
    if lib is not None:
        lib.add(name, kind, fn, override=allow_override, with_below=with_keyset)
        return
    where = place_of_rule(fn)
    entry = Entry(name, kind, fn, where, with_below=with_keyset)
    add_entry(entry, override=allow_override)


def _impl_in(
    lib: Library, name: Any, key: Any, with_keyset: bool, allow_override: bool
) -> Callable[[FnT], FnT]:
    def decorator(fn: FnT) -> FnT:
        lib.impl(
            name,
            fn,
            "" if key is None else key,
            with_keyset=with_keyset,
            allow_override=allow_override,
        )
        return fn

    return decorator
