"""Tensors of torch as arrays: the kind ``"torch"``.

Operators run on tensors in main memory by the kernels that they have for NumPy, on the
same memory. An operator may have kernels of its own for the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from customop.arrays.kinds import CPU, is_array
from customop.arrays.nested import map_nested
from customop.arrays.registering import register_array_type
from customop.core.dispatch import find_kernel
from customop.core.table import RuleTable
from customop.errors import GradientError
from customop.interop.torch.framework import torch
from customop.interop.torch.values import as_array, tensor_of

__all__ = ["register_tensors"]

KIND = "torch"


def register_tensors() -> None:
    """Make torch.Tensor a kind of array, ``"torch"``.

    Operators, and functions of NumPy under transforms, then run on tensors in main memory
    by their kernels for NumPy, on the same memory.

    Examples
    --------
    >>> import torch, customop as co
    >>> from customop.interop.torch import register_tensors
    >>> register_tensors()
    >>> @co.custom_op("doc::thirds", mutates_args=())
    ... def thirds(x: co.Array) -> co.Array:
    ...     return x / 3
    >>> thirds(torch.ones(2, dtype=torch.float64))
    tensor([0.3333, 0.3333], dtype=torch.float64)
    """
    register_array_type(
        KIND,
        torch.Tensor,
        from_numpy=tensor_of,
        to_numpy=_lowered,
        accepts=(CPU.name,),
        derive=_derived,
    )


def _derived(op: RuleTable) -> Callable[..., Any] | None:
    """The kernel for tensors, made of that for arrays of NumPy."""
    kernel = find_kernel(op, CPU.name)
    if kernel is None:
        return None
    run: Callable[..., Any] = kernel

    def on_tensors(*args: Any, **kwargs: Any) -> Any:
        given = _GivenTensors()
        arrays = [map_nested(value, given.lower) for value in args]
        named = {name: map_nested(v, given.lower) for name, v in kwargs.items()}
        out = map_nested(run(*arrays, **named), given.raised)
        if op.schema.written:
            given.note_writes()
        return out

    return on_tensors


class _GivenTensors:
    """The tensors of one call, with the arrays on their memory."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []

    def lower(self, value: Any) -> Any:
        """The array of a tensor; other values as they are."""
        if not isinstance(value, torch.Tensor):
            return value
        array = _lowered(value)
        self._pairs.append((array, value))
        return array

    def raised(self, value: Any) -> Any:
        """The tensor of an array in a result: that of the call, if it is one of these."""
        for array, tensor in self._pairs:
            if value is array:
                return tensor
        return tensor_of(value) if is_array(value) else value

    def note_writes(self) -> None:
        """Count writes, so that torch's autograd notices them."""
        for _, tensor in self._pairs:
            if not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)


def _lowered(x: Any) -> Any:
    """The array of a tensor that torch does not differentiate."""
    if x.requires_grad and torch.is_grad_enabled():
        raise GradientError(
            "an operator is called with a tensor that requires a gradient, which torch"
            " would lose",
            do="call customop.interop.torch.export(op), or pass x.detach()",
        )
    return as_array(x)
