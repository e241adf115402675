"""Functions that register rules for an operator or for its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Unpack, overload

from customop.core.grad_rules import as_formula
from customop.core.kinds import AUTOGRAD, JVP, SAMPLE_INPUTS, VMAP
from customop.core.rule_kind import RuleKind, check_kind
from customop.core.rule_types import (
    BackwardFn,
    ContextT,
    JvpFn,
    KernelFn,
    SetupFn,
    ShortBackwardFn,
    ShortVmapFn,
    VmapFn,
)
from customop.library.by_name import (
    AnyOp,
    FnT,
    Named,
    OpT,
    RuleOptions,
    by_name,
)
from customop.library.library import Library
from customop.library.resolve import AnyOperator, resolve

__all__ = [
    "register",
    "register_autograd",
    "register_jvp",
    "register_sample_inputs",
    "register_vmap",
]


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
