"""Types of rules as far as they can be written, and the first arguments that rules get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, Protocol, TypeAlias, TypeVar

# ---- first arguments of rules ----


class Context(Protocol):
    """First argument of `setup_context` and `backward`: what one call keeps.

    Rules may set attributes of any other name that does not begin with ``node_``. A
    class that inherits from this and `typing.Protocol` can declare their types.

    Attributes
    ----------
    saved_arrays : tuple of array
        The arguments of `save_for_backward`; `saved_tensors` is the same.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def keep(ctx: co.Context, inputs: tuple[np.ndarray, float], output: np.ndarray):
    ...     ctx.factor = inputs[1]
    >>> def backward(ctx: co.Context, grad: np.ndarray):
    ...     return grad * ctx.factor, None
    >>> @co.custom_op("doc::times", mutates_args=())
    ... def times(x: np.ndarray, factor: float) -> np.ndarray:
    ...     return x * factor
    >>> op = times.register_autograd(backward, setup_context=keep)
    >>> co.grad(op)(np.array(1.0), 3.0)
    np.float64(3.0)
    """

    @property
    def needs_input_grad(self) -> tuple[Any, ...]:
        """Flags for the positional inputs: True where the gradient is needed."""
        ...

    @property
    def saved_arrays(self) -> tuple[Any, ...]:
        """The arguments of `save_for_backward`."""
        ...

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """Torch's name for `saved_arrays`."""
        ...

    def save_for_backward(self, *arrays: Any) -> None:
        """Keep arrays, or None in their places, until the backward formula runs.

        Parameters
        ----------
        *arrays : array or None

        Raises
        ------
        GradientError
            If a value is neither an array nor None.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::saved_exp", mutates_args=())
        ... def saved_exp(x: np.ndarray) -> np.ndarray:
        ...     return np.exp(x)
        >>> def keep(ctx, inputs, output):
        ...     ctx.save_for_backward(output)
        >>> def backward(ctx, grad):
        ...     (y,) = ctx.saved_arrays
        ...     return grad * y
        >>> op = saved_exp.register_autograd(backward, setup_context=keep)
        >>> co.grad(op)(np.array(0.0))
        np.float64(1.0)
        """

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Say that no gradient flows through these outputs.

        Parameters
        ----------
        *outputs : array

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::top", mutates_args=())
        ... def top(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ...     return np.max(x), np.argmax(x)
        >>> def keep(ctx, inputs, output):
        ...     ctx.mark_non_differentiable(output[1])  # a position
        ...     ctx.shape, ctx.at = inputs[0].shape, output[1]
        >>> def backward(ctx, grad, _):
        ...     return np.where(np.arange(ctx.shape[0]) == ctx.at, grad, 0.0)
        >>> op = top.register_autograd(backward, setup_context=keep)
        >>> co.grad(lambda x: op(x)[0])(np.array([1.0, 3.0, 2.0]))
        array([0., 1., 0.])
        """

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether missing gradients of outputs come as zeros or as None.

        Parameters
        ----------
        value : bool
            True, the default, for zeros.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::ends", mutates_args=())
        ... def ends(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ...     return x - 1.0, x + 1.0
        >>> def keep(ctx, inputs, output):
        ...     ctx.set_materialize_grads(False)
        >>> def backward(ctx, low, high):
        ...     found = [grad for grad in (low, high) if grad is not None]
        ...     return sum(found[1:], found[0])
        >>> op = ends.register_autograd(backward, setup_context=keep)
        >>> co.grad(lambda x: op(x)[0])(np.array(0.0))  # `high` is None
        np.float64(1.0)
        """

    # Rules set attributes that no type can know.
    def __getattr__(self, name: str, /) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...


ContextT = TypeVar("ContextT", bound=Context)


class BatchInfo(NamedTuple):
    """First argument of a batching rule.

    Attributes
    ----------
    batch_size : int
        Number of rows.
    randomness : str
        ``"error"``, ``"same"`` or ``"different"``, the argument of `vmap`.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::outline", mutates_args=())
    ... def outline(x: np.ndarray) -> np.ndarray:
    ...     return np.zeros(x.shape)
    >>> @outline.register_vmap
    ... def _(info: co.BatchInfo, in_dims: tuple[int | None, ...], x: np.ndarray):
    ...     print(info)
    ...     return outline(x), in_dims[0]
    >>> co.vmap(outline)(np.ones((3, 2))).shape
    BatchInfo(batch_size=3, randomness='error')
    (3, 2)
    """

    batch_size: int
    randomness: str


# ---- rules ----


# Only the first parameters of a rule are typed. The others are those of the operator, but
# for arrays of other classes too, so registration checks them. With the ParamSpec of the
# operator, pyright (1.1.414) gives a chain of registrations the arrays of the rule.
#
# The short forms are for lambdas: pyright infers their parameters by number, unless the
# union has a form with an ellipsis; mypy (2.4) infers none from `Concatenate` with an
# ellipsis. So the short forms are separate overloads.
ShortKernelFn: TypeAlias = (
    Callable[[Any], object]
    | Callable[[Any, Any], object]
    | Callable[[Any, Any, Any], object]
    | Callable[[Any, Any, Any, Any], object]
)
KernelFn: TypeAlias = Callable[..., object]
ShortBackwardFn: TypeAlias = (
    Callable[[ContextT, Any], Any]
    | Callable[[ContextT, Any, Any], Any]
    | Callable[[ContextT, Any, Any, Any], Any]
)
BackwardFn: TypeAlias = Callable[Concatenate[ContextT, ...], Any]
SetupFn: TypeAlias = (
    Callable[[ContextT, tuple[Any, ...], Any], object]
    | Callable[Concatenate[ContextT, tuple[Any, ...], Any, ...], object]
)
JvpFn: TypeAlias = (
    Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
    | Callable[Concatenate[tuple[Any, ...], tuple[Any, ...], ...], tuple[Any, ...]]
)
ShortVmapFn: TypeAlias = (
    Callable[[BatchInfo, tuple[Any, ...], Any], tuple[Any, ...]]
    | Callable[[BatchInfo, tuple[Any, ...], Any, Any], tuple[Any, ...]]
    | Callable[[BatchInfo, tuple[Any, ...], Any, Any, Any], tuple[Any, ...]]
)
VmapFn: TypeAlias = Callable[
    Concatenate[BatchInfo, tuple[Any, ...], ...], tuple[Any, ...]
]
