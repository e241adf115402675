"""Ufuncs of `scipy.special` with two results: integrals of sine, cosine and their kin.

Source: NIST Digital Library of Mathematical Functions, sections 6.2 and 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from customop import FakeArray, custom_op, register_numpy_function
from customop.numpy.fakes import device_of
from customop.numpy.sizes import typical

__all__ = ["PAIRS"]

Slopes = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _register(name: str, slopes: Slopes) -> None:
    """Register a ufunc with the derivatives of both results."""
    ufunc = getattr(special, name)

    def kernel(x: Any) -> tuple[Any, Any]:
        first, second = ufunc(x)
        return first, second

    op = custom_op(
        f"scipy::{name}",
        kernel,
        mutates_args=(),
        schema="(Array x) -> (Array, Array)",
        device_types="cpu",
    )

    @op.register_fake
    def _(x: Any) -> tuple[Any, Any]:
        made = ufunc(np.ones(1, x.dtype))[0].dtype
        strides = typical(x.strides)
        axes = sorted(range(len(x.shape)), key=lambda i: -abs(strides[i]))
        first, second = (
            FakeArray(x.shape, made, order=axes, device=device_of(x)) for _ in range(2)
        )
        return first, second

    def backward(ctx: Any, *grads: Any) -> Any:
        # A slope may be infinite where the other result alone has a gradient.
        pairs = [(g, s) for g, s in zip(grads, slopes, strict=True) if g is not None]
        parts = [g * slope(ctx.saved_arrays[0]) for g, slope in pairs]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def jvp(primals: Any, tangents: Any) -> Any:
        moved = [tangents[0] * slope(primals[0]) for slope in slopes]
        return op(*primals), tuple(moved)

    op.register_autograd(backward, setup_context=_keep)
    op.register_jvp(jvp)
    op.register_vmap(lambda info, in_dims, x: (op(x), (in_dims[0], in_dims[0])))
    register_numpy_function(ufunc, op)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.set_materialize_grads(False)


def _over(x: Any, y: Any, at_zero: float) -> Any:
    """Y / x, and its limit at 0."""
    is_zero = np.equal(x, 0)
    return np.where(is_zero, at_zero, y / np.where(is_zero, 1.0, x))


PAIRS: dict[str, Slopes] = {
    "sici": (lambda x: _over(x, np.sin(x), 1.0), lambda x: np.cos(x) / x),
    "shichi": (lambda x: _over(x, np.sinh(x), 1.0), lambda x: np.cosh(x) / x),
    "fresnel": (
        lambda x: np.sin((0.5 * math.pi) * x * x),
        lambda x: np.cos((0.5 * math.pi) * x * x),
    ),
}
for _name, _slopes in PAIRS.items():
    _register(_name, _slopes)
