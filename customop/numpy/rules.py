"""What the tables of NumPy operators share: made of the public names alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from customop import FakeArray, Operator, fake_like

__all__ = [
    "fake_of_ufunc",
    "fit",
    "is_complex",
    "keep_order",
    "no_gradient",
    "register_formulas",
    "result_dtype",
    "shape_of",
    "wanted",
]


def shape_of(x: Any) -> tuple[int, ...]:
    """Shape of an array or number."""
    return tuple(getattr(x, "shape", ()))


def is_complex(x: Any) -> bool:
    """Whether an array or number is complex."""
    if isinstance(x, complex):
        return True
    return "complex" in str(getattr(x, "dtype", ""))


def fit(g: Any, x: Any) -> Any:
    """A gradient in the dtype of its input: the real part of it for a real input."""
    if g.dtype == x.dtype:
        return g
    if is_complex(g) and not is_complex(x):
        g = np.real(g)
    return g if g.dtype == x.dtype else g.astype(x.dtype)


def no_gradient(op: Operator[..., Any]) -> Operator[..., Any]:
    """Register that the results of an operator have no derivative."""
    count = len(op.schema.positional)

    def block(
        ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any = None
    ) -> None:
        ctx.mark_non_differentiable(
            *(output if isinstance(output, tuple) else (output,))
        )

    op.register_autograd(lambda ctx, *grads: (None,) * count, setup_context=block)
    return op.register_jvp(_still(op))


def _still(op: Operator[..., Any]) -> Callable[..., Any]:
    def rule(primals: Any, tangents: Any, **keywords: Any) -> Any:
        return op(*primals, **keywords), None

    return rule


# ---- formulas that serve both modes ----


def wanted(formula: Callable[..., Any] | None) -> tuple[str, ...]:
    """Names that a formula takes beside the gradient."""
    if formula is None:
        return ()
    code = formula.__code__
    return code.co_varnames[1 : code.co_argcount]


def register_formulas(
    op: Operator[..., Any], names: Sequence[str], formulas: Sequence[Any]
) -> None:
    """Register autograd and jvp of an elementwise operator.

    Parameters
    ----------
    op : Operator
        One array out.
    names : sequence of str
        Names of its inputs in the formulas.
    formulas : sequence of callable or None
        For each input the derivative applied to a cotangent or tangent: ``f(g, ...)``
        takes the inputs and the output (`y`) that it names. None where it is zero.
    """
    needs = [wanted(formula) for formula in formulas]
    count = len(names)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        keep = {
            n
            for need, asked in zip(needs, ctx.needs_input_grad, strict=True)
            if asked
            for n in need
        }
        values = dict(zip(names, inputs, strict=True))
        values["y"] = output
        ctx.order = [n for n in keep if hasattr(values[n], "shape")]
        ctx.numbers = {n: values[n] for n in keep if not hasattr(values[n], "shape")}
        ctx.dtypes = [getattr(v, "dtype", None) for v in inputs]
        ctx.save_for_backward(*[values[n] for n in ctx.order])

    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        values = dict(zip(ctx.order, ctx.saved_arrays, strict=True))
        values.update(ctx.numbers)
        grads: list[Any] = []
        for i in range(count):
            formula = formulas[i]
            if formula is None or not ctx.needs_input_grad[i]:
                grads.append(None)
                continue
            grad = formula(g, *[values[n] for n in needs[i]])
            grads.append(_cast(grad, ctx.dtypes[i]))
        return tuple(grads)

    def jvp(primals: Any, tangents: Any) -> Any:
        y = op(*primals)
        values = {**dict(zip(names, primals, strict=True)), "y": y}
        total = None
        for formula, need, t in zip(formulas, needs, tangents, strict=True):
            if t is None or formula is None:
                continue
            part = formula(t, *[values[n] for n in need])
            total = part if total is None else total + part
        return y, None if total is None else _widen(total, y)

    op.register_autograd(backward, setup_context=setup)
    op.register_jvp(jvp)


def _cast(g: Any, dtype: Any) -> Any:
    if g.dtype == dtype:
        return g
    if is_complex(g) and "complex" not in str(dtype):
        g = np.real(g)
    return g if g.dtype == dtype else g.astype(dtype)


def _widen(t: Any, y: Any) -> Any:
    """A tangent in the shape and dtype of its output."""
    wide = t if shape_of(t) == shape_of(y) else np.broadcast_to(t, y.shape)
    return _cast(wide, y.dtype)


# ---- fake kernels of ufuncs ----


@lru_cache(maxsize=4096)
def result_dtype(ufunc: Any, kinds: tuple[Any, ...]) -> Any:
    """Dtype that a ufunc gives for dtypes, and Python classes of numbers."""
    samples = [np.empty(0, k) if isinstance(k, np.dtype) else k(1) for k in kinds]
    return ufunc(*samples).dtype


def fake_of_ufunc(ufunc: Any) -> Callable[..., FakeArray]:
    """The fake kernel of a ufunc with one output."""

    def unary(x: Any) -> FakeArray:
        return fake_like(x, dtype=result_dtype(ufunc, (x.dtype,)))

    def binary(x1: Any, x2: Any) -> FakeArray:
        kinds = (getattr(x1, "dtype", type(x1)), getattr(x2, "dtype", type(x2)))
        return keep_order((x1, x2), result_dtype(ufunc, kinds))

    return unary if ufunc.nin == 1 else binary


def keep_order(operands: Sequence[Any], dtype: Any) -> FakeArray:
    """The fake array that an elementwise operation on these makes.

    Shape by broadcasting; the axes lie in memory in the order that suits the operands,
    as for ``order="K"`` in ``numpy.nditer``, NumPy 2.4.
    """
    arrays = [x for x in operands if hasattr(x, "shape")]
    first = next((x for x in arrays if isinstance(x, FakeArray)), arrays[0])
    shapes = [tuple(x.shape) for x in arrays]
    shape = shapes[0] if len(set(shapes)) == 1 else np.broadcast_shapes(*shapes)
    strides = tuple(_broadcast_strides(x, shape) for x in arrays)
    order = _axis_order(tuple(shape), strides)
    return FakeArray(shape, dtype, device=fake_like(first).device, order=order)


def _broadcast_strides(x: Any, shape: Sequence[int]) -> tuple[int, ...]:
    missing = len(shape) - len(x.shape)
    own = zip(x.shape, x.strides, strict=True)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in own)


@lru_cache(maxsize=4096)
def _axis_order(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[int, ...]:
    """Axes from slowest to fastest: insertion by the strides of all operands."""
    order = list(range(len(shape)))
    for i in range(len(order) - 2, -1, -1):
        to = i
        for j in range(i + 1, len(order)):
            told = _told_apart(order[i], order[j], strides)
            if told and not all(told):
                break
            # Past axes that no operand tells apart the search goes on.
            to = j if told else to
        order.insert(to, order.pop(i))
    return tuple(order)


def _told_apart(a: int, b: int, strides: Sequence[tuple[int, ...]]) -> list[bool]:
    """For each operand that tells the axes apart, whether `a` lies inside `b`."""
    return [abs(s[a]) < abs(s[b]) for s in strides if s[a] and s[b]]
