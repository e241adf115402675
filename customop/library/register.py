"""Functions that register kernels and rules for an operator or for its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

from customop.arrays.kinds import FAKE
from customop.core.builtin_kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    JVP,
    SAMPLE_INPUTS,
    VMAP,
    as_formula,
)
from customop.core.operator import Operator
from customop.core.registry import chained, find_operator
from customop.core.rule_kind import RuleKind, check_device_types, check_kind
from customop.core.rule_makers import (
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
from customop.errors import RegistrationError, shown
from customop.library.library import Library, check_library
from customop.library.ops import OperatorPacket

if TYPE_CHECKING:
    import numpy.typing as npt


# ---- find the operator that an operator, a packet or a name refers to ----


AnyOperator = Operator[..., Any] | OperatorPacket | str


def resolve(op: AnyOperator) -> Operator[..., Any]:
    """Return an operator, the default overload of a packet, or the operator of a name."""
    if isinstance(op, Operator):
        return op
    if isinstance(op, str):
        return find_operator(op)
    if isinstance(op, OperatorPacket):
        return op.default
    raise RegistrationError(
        f"expected an operator or its name, got {shown(op)}",
        do='pass "namespace::name"',
    )


# ---- shared code of the functions that register for an operator or for its name ----


# Overloads spell out Callable[[FnT], FnT]: in an alias, mypy would not leave FnT generic.
FnT = TypeVar("FnT", bound=Callable[..., Any])
OpT = TypeVar("OpT", bound=Operator[..., Any])
Named = OperatorPacket | str
AnyOp = Operator[..., Any]


class LibraryOption(TypedDict, total=False):
    """The option that all functions here take."""

    lib: Library | None


class RuleOptions(LibraryOption, total=False):
    """Options of the functions that can replace a rule."""

    override: bool


def by_name(
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


# ---- functions that register kernels for an operator or for its name ----


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


# ---- functions that register rules for an operator or for its name ----


class FormulaOptions(RuleOptions, Generic[ContextT], total=False):
    """Options of `register_autograd`."""

    setup_context: SetupFn[ContextT] | None


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    backward : callable
        ``backward(ctx, *grads)`` returns the gradients of the inputs.
    setup_context : callable, optional
        ``setup_context(ctx, inputs, output)`` saves what `backward` needs.
    lib : Library, optional
        Removes the registration when it closes.
    override : bool
        Replace one that is registered already.

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
    >>> _ = co.register_autograd("doc::half", lambda ctx, g: g / 2)
    >>> co.grad(half)(np.array(3.0))
    np.float64(0.5)
    """
    rule = as_formula(backward, setup_context)
    return by_name(op, (AUTOGRAD,), rule, lib, override=override)


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    fn : callable, optional
        ``fn(primals, tangents)`` returns ``(output, tangent)``. Without it, a decorator is
        returned.
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
    >>> @co.register_jvp("doc::half")
    ... def _(primals, tangents):
    ...     return half(*primals), half(*tangents)
    >>> co.jvp(half, (np.array([3.0]),), (np.array([1.0]),))
    (array([1.5]), array([0.5]))
    """
    return by_name(op, (JVP,), fn, lib, override=override)


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    fn : callable, optional
        ``fn(info, in_dims, *inputs)`` returns ``(output, out_dims)``. Without it, a
        decorator is returned.
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
    >>> @co.register_vmap("doc::half")
    ... def _(info, in_dims, x):
    ...     return half(x), in_dims[0]
    >>> co.vmap(half)(np.array([3.0, 5.0]))
    array([1.5, 2.5])
    """
    return by_name(op, (VMAP,), fn, lib, override=override)


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    fn : callable, optional
        ``fn()`` returns samples, or tuples of positional arguments. Without it, a decorator
        is returned.
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
    >>> _ = co.register_sample_inputs("doc::half", lambda: [(np.ones(3),)])
    >>> [sample.args[0].shape for sample in half.sample_inputs()]
    [(3,)]
    """
    return by_name(op, (SAMPLE_INPUTS,), fn, lib, override=override)


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
        The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
        has one.
    kind : RuleKind
        The kind; rules are read back with ``op.rule(kind)``.
    fn : callable, optional
        The rule, with the parameters that ``kind.takes`` says. Without it, a decorator
        is returned.
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
    >>> inverse = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")
    >>> _ = co.register("doc::half", inverse, lambda out, x: out * 2)
    >>> half.rule(inverse)(np.array([1.5]), None)
    array([3.])
    """
    check_kind(resolve(op).qualname, kind)
    return by_name(op, (kind,), fn, lib, override=override)
