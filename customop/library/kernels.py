"""Functions that register kernels for an operator or for its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Unpack, overload

from customop.arrays.kinds import FAKE
from customop.core.definition import check_device_types
from customop.core.kinds import ARRAY_CLASS, AUTOCAST
from customop.core.rule_types import KernelFn, ShortKernelFn
from customop.library.by_name import (
    AnyOp,
    FnT,
    LibraryOption,
    Named,
    OpT,
    RuleOptions,
    by_name,
)
from customop.library.library import Library
from customop.library.resolve import AnyOperator, resolve

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "register_array_dispatch",
    "register_autocast",
    "register_fake",
    "register_kernel",
]

DeviceTypes = str | Iterable[str] | None


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    device_types : str, iterable of str, or None
        Kinds of array, such as ``"cpu"``; None for all kinds without a kernel.
    fn : callable, optional
        Takes the operator's parameters. Without it, a decorator is returned.
    lib : Library, optional
        Removes the registration when it closes.

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::half", mutates_args=())
    ... def half(x: np.ndarray) -> np.ndarray:
    ...     return x / 2
    >>> _ = co.register_kernel("doc::half", "cpu", lambda x: 0.5 * x)
    >>> half(np.array([3.0]))
    array([1.5])
    """
    kinds = check_device_types(resolve(op).qualname, device_types)
    return by_name(op, kinds, fn, lib, override=True)


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    fn : callable, optional
        Makes fake results of fake arguments. Without it, a decorator is returned.
    lib : Library, optional
        Removes the registration when it closes.
    override : bool
        Replace one that is registered already.

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::half", mutates_args=())
    ... def half(x: np.ndarray) -> np.ndarray:
    ...     return x / 2
    >>> _ = co.register_fake("doc::half", co.fake_like)
    >>> co.eval_shape(half, np.ones((2, 3)))
    FakeArray(f64[2, 3], device='cpu')
    """
    return by_name(op, (FAKE,), fn, lib, override=override)


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    array_class : type
        A class of arrays, such as a subclass of ``np.ndarray``.
    fn : callable, optional
        ``fn(op, args, kwargs)`` returns the result. Without it, a decorator is returned.
    lib : Library, optional
        Removes the registration when it closes.
    override : bool
        Replace one that is registered already.

    Returns
    -------
    Operator or decorator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::half", mutates_args=())
    ... def half(x: np.ndarray) -> np.ndarray:
    ...     return x / 2
    >>> @co.register_array_dispatch("doc::half", np.ma.MaskedArray)
    ... def _(op, args, kwargs):
    ...     (x,) = args
    ...     return np.ma.MaskedArray(op(x.data), x.mask)
    >>> print(half(np.ma.MaskedArray([1.0, 2.0], [False, True])))
    [0.5 --]
    """
    return by_name(
        op,
        (ARRAY_CLASS,),
        fn,
        lib,
        override=override,
        of=lambda rule: (array_class, rule),
    )


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    device_type : str
        Kind of array, such as ``"cpu"``.
    dtype : dtype
        The floating-point dtype to compute in.
    lib : Library, optional
        Removes the registration when it closes.

    Returns
    -------
    Operator

    Raises
    ------
    RegistrationError, MissingRuleError
        As the method does, or if no operator has this name.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::half", mutates_args=())
    ... def half(x: np.ndarray) -> np.ndarray:
    ...     return x / 2
    >>> _ = co.register_autocast("doc::half", "cpu", np.float16)
    >>> with co.autocast("cpu"):
    ...     half(np.ones(2, np.float32))
    array([0.5, 0.5], dtype=float16)
    """
    found: AnyOp = by_name(op, (AUTOCAST,), (device_type, dtype), lib, override=True)
    return found
