"""Functions that register for an operator or for its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

import numpy.typing as npt

from customop.arrays.kinds import FAKE
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
from customop.core.registration import chained
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
from customop.library.library import Library, check_library
from customop.library.ops import OperatorPacket
from customop.library.resolve import AnyOperator, resolve

__all__ = [
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
AnyOp = Operator[..., Any]
DeviceTypes = str | Iterable[str] | None


class LibraryOption(TypedDict, total=False):
    """The option that all functions here take."""

    lib: Library | None


class RuleOptions(LibraryOption, total=False):
    """Options of the functions that can replace a rule."""

    override: bool


class FormulaOptions(RuleOptions, Generic[ContextT], total=False):
    """Options of `register_autograd`."""

    setup_context: SetupFn[ContextT] | None


def _by_name(
    op: AnyOperator,
    keys: Iterable[str | RuleKind],
    fn: Any,
    lib: Library | None,
    *,
    override: bool,
    of: Callable[[Any], Any] = lambda given: given,
) -> Any:
    """Register `of(fn)` for each key, or return a decorator that does it."""
    found = resolve(op)
    check_library(lib)

    def enter(given: Any) -> None:
        for key in keys:
            if lib is None:
                found.add(key, of(given), override=override)
            else:
                lib.add(found.qualname, key, of(given), override=override)

    return chained(found, fn, enter)


@overload
def register_kernel(
    op: OpT,
    device_types: DeviceTypes,
    fn: ShortKernelFn,
    /,
    **options: Unpack[LibraryOption],
) -> OpT: ...
@overload
def register_kernel(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT,
    device_types: DeviceTypes,
    fn: KernelFn,
    /,
    **options: Unpack[LibraryOption],
) -> OpT: ...
@overload
def register_kernel(
    op: Named,
    device_types: DeviceTypes,
    fn: ShortKernelFn,
    /,
    **options: Unpack[LibraryOption],
) -> AnyOp: ...
@overload
def register_kernel(  # type: ignore[overload-cannot-match]  # a longer one does
    op: Named,
    device_types: DeviceTypes,
    fn: KernelFn,
    /,
    **options: Unpack[LibraryOption],
) -> AnyOp: ...
@overload
def register_kernel(
    op: AnyOperator,
    device_types: DeviceTypes,
    fn: None = None,
    /,
    **options: Unpack[LibraryOption],
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
        Removes the registration when it closes.

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
    """
    kinds = check_device_types(resolve(op).qualname, device_types)
    return _by_name(op, kinds, fn, lib, override=True)


@overload
def register_fake(
    op: OpT, fn: ShortKernelFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_fake(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_fake(
    op: Named, fn: ShortKernelFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_fake(  # type: ignore[overload-cannot-match]  # a longer one does
    op: Named, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_fake(
    op: AnyOperator, fn: None = None, /, **options: Unpack[RuleOptions]
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
        Removes the registration when it closes.
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
    """
    return _by_name(op, (FAKE,), fn, lib, override=override)


@overload
def register_jvp(op: OpT, fn: JvpFn, /, **options: Unpack[RuleOptions]) -> OpT: ...
@overload
def register_jvp(op: Named, fn: JvpFn, /, **options: Unpack[RuleOptions]) -> AnyOp: ...
@overload
def register_jvp(
    op: AnyOperator, fn: None = None, /, **options: Unpack[RuleOptions]
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
        Removes the registration when it closes.
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
    """
    return _by_name(op, (JVP,), fn, lib, override=override)


@overload
def register_vmap(
    op: OpT, fn: ShortVmapFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_vmap(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT, fn: VmapFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_vmap(
    op: Named, fn: ShortVmapFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_vmap(  # type: ignore[overload-cannot-match]  # a longer one does
    op: Named, fn: VmapFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_vmap(
    op: AnyOperator, fn: None = None, /, **options: Unpack[RuleOptions]
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
        Removes the registration when it closes.
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
    """
    return _by_name(op, (VMAP,), fn, lib, override=override)


@overload
def register_sample_inputs(
    op: OpT, fn: Callable[[], object], /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_sample_inputs(
    op: Named, fn: Callable[[], object], /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_sample_inputs(
    op: AnyOperator, fn: None = None, /, **options: Unpack[RuleOptions]
) -> Callable[[FnT], FnT]: ...
def register_sample_inputs(
    op: AnyOperator,
    fn: Any = None,
    /,
    *,
    lib: Library | None = None,
    override: bool = False,
) -> Any:
    """Register sample inputs by name; see `Operator.register_sample_inputs`.

    Parameters
    ----------
    op : Operator, OperatorPacket or str
    fn : callable, optional
    lib : Library, optional
        Removes the registration when it closes.
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
    """
    return _by_name(op, (SAMPLE_INPUTS,), fn, lib, override=override)


@overload
def register_autograd(
    op: OpT,
    backward: ShortBackwardFn[ContextT],
    /,
    **options: Unpack[FormulaOptions[ContextT]],
) -> OpT: ...
@overload
def register_autograd(
    op: OpT,
    backward: BackwardFn[ContextT],
    /,
    **options: Unpack[FormulaOptions[ContextT]],
) -> OpT: ...
@overload
def register_autograd(
    op: Named,
    backward: ShortBackwardFn[ContextT],
    /,
    **options: Unpack[FormulaOptions[ContextT]],
) -> AnyOp: ...
@overload
def register_autograd(
    op: Named,
    backward: BackwardFn[ContextT],
    /,
    **options: Unpack[FormulaOptions[ContextT]],
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
        Removes the registration when it closes.
    override : bool

    Returns
    -------
    Operator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
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
        Removes the registration when it closes.

    Returns
    -------
    Operator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
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
        Removes the registration when it closes.
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
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
    op: OpT, kind: RuleKind, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register(
    op: Named, kind: RuleKind, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register(
    op: AnyOperator, kind: RuleKind, fn: None = None, /, **options: Unpack[RuleOptions]
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
        Removes the registration when it closes.
    override : bool

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.
    """
    check_kind(resolve(op).qualname, kind)
    return _by_name(op, (kind,), fn, lib, override=override)
