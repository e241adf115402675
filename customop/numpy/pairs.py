"""Ufuncs with two results: divmod, modf, frexp."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from customop import FakeArray, Operator, Tag, register_numpy_function
from customop.numpy.arguments import cast
from customop.numpy.fakes import check_range, keep_order, kind_of
from customop.numpy.rules import fit, numpy_operator

__all__: list[str] = []


@lru_cache(maxsize=1024)
def _dtypes(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """Dtypes of the results for dtypes, and Python classes of numbers."""
    samples = [np.empty(0, k) if isinstance(k, np.dtype) else k(1) for k in kinds]
    first, second = ufunc(*samples)
    return first.dtype, second.dtype


def _pair(ufunc: np.ufunc, schema: str) -> Operator[..., Any]:
    """Make the operator of a ufunc with two results."""
    kernel: Callable[..., Any] = ufunc
    op = numpy_operator(
        ufunc.__name__, f"{schema} -> (Array, Array)", kernel, tags=Tag.pointwise
    )

    def fake(*inputs: Any) -> tuple[FakeArray, ...]:
        kinds = tuple([kind_of(x) for x in inputs])
        if int in kinds:
            check_range(ufunc, *inputs)
        dtypes = _dtypes(ufunc, kinds)
        return tuple([keep_order(inputs, dtype) for dtype in dtypes])

    op.register_fake(fake)
    register_numpy_function(ufunc, op)
    return op


modf: Operator[..., Any] = _pair(np.modf, "(Array x)")
frexp: Operator[..., Any] = _pair(np.frexp, "(Array x)")
divmod_: Operator[..., Any] = _pair(np.divmod, "(Array|Scalar x1, Array|Scalar x2)")

# ---- parts of one number ----


def _note_whole(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(output[1])


# The fractional part moves as x does; the whole one is a step.
modf.register_autograd(lambda ctx, g, _: g, setup_context=_note_whole)
modf.register_jvp(lambda primals, tangents: (modf(*primals), (tangents[0], None)))


def _note_exponent(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _frexp_backward(ctx: Any, g: Any, _: Any) -> Any:
    (exponent,) = ctx.saved_arrays
    return np.ldexp(g, -exponent)


frexp.register_autograd(_frexp_backward, setup_context=_note_exponent)


@frexp.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    mantissa, exponent = frexp(*primals)
    return (mantissa, exponent), (np.ldexp(tangents[0], -exponent), None)


# ---- quotient and remainder ----


def _note_division(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[0])
    ctx.mark_non_differentiable(output[0])
    ctx.dtypes = [getattr(x, "dtype", None) for x in inputs]


def _divmod_backward(ctx: Any, _: Any, g: Any) -> Any:
    (quotient,) = ctx.saved_arrays
    first, second = ctx.dtypes
    return cast(g, first), cast(-g * quotient, second)


divmod_.register_autograd(_divmod_backward, setup_context=_note_division)


@divmod_.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (t1, t2), (quotient, rest) = tangents, divmod_(*primals)
    moved = -quotient * t2 if t2 is not None else 0
    total = moved if t1 is None else t1 + moved
    wide = np.broadcast_to(total, rest.shape)
    return (quotient, rest), (None, fit(wide, rest))
