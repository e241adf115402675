"""Rules that many NumPy operators share, made of public names of the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop import Operator, custom_op, partials
from customop.numpy.sizes import wide_to

__all__ = [
    "batch_first",
    "dtype_kind",
    "fit",
    "in_dtype",
    "is_complex",
    "no_gradient",
    "numpy_operator",
    "padded_rows",
    "register_formulas",
    "register_linear",
    "register_linear_jvp",
    "sum_of",
]


def numpy_operator(
    name: str, schema: str, kernel: Callable[..., Any], **options: Any
) -> Operator[..., Any]:
    """An operator of the namespace ``np`` that writes no argument."""
    return custom_op(f"np::{name}", kernel, mutates_args=(), schema=schema, **options)


def is_complex(x: Any) -> bool:
    """Whether an array or number is complex."""
    if isinstance(x, complex):
        return True
    return dtype_kind(getattr(x, "dtype", None)) == "c"


def dtype_kind(dtype: Any) -> str:
    """NumPy's letter for the kind of a dtype; of other libraries' dtypes by their names.

    The name of a dtype in another byte order is only letters and digits: ``>f8``.
    """
    kind = getattr(dtype, "kind", None)
    if kind is not None:
        return str(kind)
    name = str(dtype)
    return next((letter for word, letter in _KINDS.items() if word in name), "")


_KINDS = {"complex": "c", "float": "f", "uint": "u", "int": "i", "bool": "b"}


def fit(g: Any, x: Any) -> Any:
    """A gradient in the dtype of its input; its real part for a real input."""
    own = getattr(
        g, "dtype", None
    )  # none of a product of objects, which is refused later
    return g if own is None or own == x.dtype else in_dtype(g, x.dtype)


def in_dtype(g: Any, dtype: Any) -> Any:
    """A gradient in a dtype; its real part for a real one."""
    if g.dtype == dtype:
        return g
    if is_complex(g) and dtype_kind(dtype) != "c":
        g = np.real(g)
    return g if g.dtype == dtype else g.astype(dtype)


def sum_of(parts: Sequence[Any], y: Any) -> Any:
    """The sum of tangents, in the dtype of the output."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return fit(total, y)


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
    return op.register_jvp(
        lambda primals, tangents, **keywords: (op(*primals, **keywords), None)
    )


# ---- linear operators ----


def register_linear(op: Operator[..., Any], pull: Callable[..., Any]) -> None:
    """Register autograd and jvp of an operator that is linear in its first array.

    Parameters
    ----------
    op : Operator
        One array out; the other parameters are constants.
    pull : callable
        ``pull(g, shape, *constants)``: the gradient of an input of that shape.
    """
    first, *others = [p.name for p in op.schema.parameters]
    formulas = {first: (pull, [f"{first}_shape", *others])}
    arrays = [op.schema.parameters[slot].name for slot in op.schema.array_slots]
    op.register_autograd(partials({**dict.fromkeys(arrays), **formulas}))
    register_linear_jvp(op)


def register_linear_jvp(op: Operator[..., Any]) -> None:
    """Register jvp of an operator that is linear in its first array."""

    def jvp(primals: Any, tangents: Any) -> Any:
        t = tangents[0]
        return op.run(*primals), None if t is None else op.run(t, *primals[1:])

    op.register_jvp(jvp)


# ---- formulas that serve autograd and jvp ----


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
        For each input, the derivative times a cotangent or tangent: ``f(g, ...)``, whose
        other parameters are names of inputs, or `y` for the output. None for zero.
    """
    rule = partials(dict(zip(names, formulas, strict=True)), result="y")
    op.register_autograd(rule).register_jvp(rule)


# ---- batches ----


def batch_first(x: Any, dim: int | None, size: int | None = None) -> Any:
    """The array with its batch axis at the front.

    An array without one gets an axis of length `size`, or of length one.
    """
    if dim is not None:
        return x if dim == 0 else np.moveaxis(x, dim, 0)
    wide = np.expand_dims(x, 0)
    if size is None:
        return wide
    return wide_to(wide, (size, *x.shape))


def padded_rows(batch: Any, rank: int) -> Any:
    """A batch whose rows have `rank` axes; new ones have length 1 and come first."""
    missing = rank - (batch.ndim - 1)
    if not missing:
        return batch
    return np.reshape(batch, (batch.shape[0], *(1,) * missing, *batch.shape[1:]))
