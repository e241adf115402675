"""Derivatives and batches of operators of torch, by torch, with our conventions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.interop.steps import Batch, Pull, over_given
from customop.interop.torch.framework import torch

__all__ = ["batched_rows", "pulled"]


def pulled(
    inner: Callable[[Sequence[Any]], list[Any]],
    step: Pull,
    tensors: Sequence[Any],
    *,
    is_functional: bool,
) -> list[Any]:
    """Gradients of inputs, from those of outputs, which come last.

    Functional transforms of torch compute them, or torch.autograd.
    """
    count = len(tensors) - len(step.outputs)
    primals, grads = list(tensors[:count]), tensors[count:]
    # Torch's gradients are the complex conjugates of ours.
    cotangents = [g.conj() for g in grads]

    def of_wanted(*wanted: Any) -> list[Any]:
        for i, value in zip(step.wanted, wanted, strict=True):
            primals[i] = value
        results = inner(primals)
        return [results[i] for i in step.outputs]

    given = [primals[i] for i in step.wanted]
    if is_functional:
        found = torch.func.vjp(of_wanted, *given)[1](cotangents)
    else:
        found = _by_autograd(of_wanted, given, cotangents)
    return [None if g is None else g.conj() for g in found]


def _by_autograd(
    fn: Callable[..., list[Any]], given: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """The pullback by torch.autograd, which operators written in Python need."""
    is_inner = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [
            x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
            for x in given
        ]
        pairs = zip(fn(*leaves), cotangents, strict=True)
        moving = [(y, g) for y, g in pairs if y.requires_grad]
        if not moving:
            return [None] * len(leaves)
        results, grads = zip(*moving, strict=True)
        found: Sequence[Any] = torch.autograd.grad(
            results, leaves, grads, create_graph=is_inner, allow_unused=True
        )
    return found


def batched_rows(
    inner: Callable[[Sequence[Any]], list[Any]],
    step: Batch,
    tensors: Sequence[Any],
    *,
    is_functional: bool,
) -> list[Any]:
    """Results with the axis of a batch first, by torch.vmap or row by row."""

    def batch(fn: Any, axes: tuple[int | None, ...], rows: Sequence[Any]) -> Any:
        if not is_functional:
            return _looped(fn, axes, rows)
        return torch.vmap(fn, in_dims=axes, randomness=step.randomness)(*rows)

    return over_given(inner, step.axes, tensors, batch)


def _looped(
    fn: Callable[..., tuple[Any, ...]],
    axes: Sequence[int | None],
    tensors: Sequence[Any],
) -> list[Any]:
    """A batch row by row, for operators that torch has no batching rule of."""
    pairs = list(zip(tensors, axes, strict=True))
    size = next(x.shape[axis] for x, axis in pairs if axis is not None)
    rows = [
        fn(*[x if axis is None else x.select(axis, i) for x, axis in pairs])
        for i in range(size)
    ]
    return [torch.stack(column) for column in zip(*rows, strict=True)]
