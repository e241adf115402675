"""Functions of torch for the operators of NumPy, where both mean the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.nested import flat
from customop.graph.node import CALL, ITEM, OUTPUT, Node
from customop.interop.counterparts import TABLE, Dialect
from customop.interop.torch.framework import torch
from customop.interop.torch.tensors import dtype_of_numpy, dtype_of_torch
from customop.shapes.sizes import Symbolic
from customop.transforms.trace.graph_tracer import lay_out

# ---- what torch has ----

DTYPES: dict[Any, np.dtype[Any]] = {
    dtype_of_torch(np.dtype(name)): np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8"),
        *("float32", "float64", "complex64", "complex128"),
    )
}
_KNOWN = frozenset(DTYPES.values())

# Torch has no function, none with a derivative, or other errors for singular matrices.
_LEFT_OUT = frozenset(
    ("cbrt", "heaviside", "nextafter", "float_power", "det", "solve", "cholesky")
)
_MOVES = frozenset(
    (
        *("reshape", "transpose", "broadcast_to", "expand_dims", "squeeze", "ravel"),
        *("copy", "c_copy", "packed_like", "concatenate", "stack", "where", "repeat"),
        *("slice", "unslice", "slice_set", "index", "scatter_add", "full_like"),
        *("flip", "roll", "tril", "triu", "diagonal", "astype", "pad", "sum", "trace"),
    )
)
# They are the same for complex numbers, and for integers; others are for floats alone.
_OF_COMPLEX = _MOVES | frozenset(
    (
        *("add", "subtract", "multiply", "divide", "negative", "positive", "conjugate"),
        *("real", "imag", "square", "absolute", "mean", "equal", "not_equal", "matmul"),
        *("tensordot", "outer", "einsum", "cumsum", "exp", "sin", "cos"),
    )
)
_OF_INTEGERS = _MOVES | frozenset(
    (
        *("add", "subtract", "multiply", "negative", "positive", "absolute", "sign"),
        *("square", "maximum", "minimum", "clip", "prod", "max", "min", "any", "all"),
        *("argmax", "argmin", "cumsum", "conjugate", "real", "equal", "not_equal"),
        *("less", "less_equal", "greater", "greater_equal", "logical_and"),
        *("logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or"),
        *("bitwise_xor", "invert", "isnan", "isinf", "isfinite", "signbit"),
    )
)
_NOT_EMPTY = frozenset(("max", "min", "argmax", "argmin"))
_SLICES = frozenset(("slice", "unslice", "slice_set"))


def has_function(node: Node) -> bool:
    """Return whether torch can run a node of a graph as NumPy does."""
    if node.op == OUTPUT:
        return True
    leaves = flat(node.values()) if node.op == CALL else []
    vals = [leaf.val for leaf in leaves if isinstance(leaf, Node)]
    if any(isinstance(leaf, Symbolic) for leaf in leaves) or not all(
        map(_is_known, (node.val, *vals))
    ):
        return False
    if node.op != CALL or node.target is lay_out:
        return node.op != ITEM
    op = node.target
    if op.is_factory:
        return not vals and not op.sees_seed
    if op.namespace != "np" or op.name not in TABLE:
        return False
    kinds: set[str] = {"c" for v in leaves if type(v) is complex}
    kinds |= {val.dtype.kind for val in (node.val, *vals)}
    return _fits(op.name, kinds, node.val) and _is_like_numpys(op.name, node, vals)


def _fits(name: str, kinds: set[str], val: Any) -> bool:
    """Return whether torch has a function for such dtypes."""
    if name in _LEFT_OUT or ("c" in kinds and name not in _OF_COMPLEX):
        return False
    if name == "absolute" and val.dtype.kind == "b":
        return False
    return val.dtype.kind not in "biu" or name in _OF_INTEGERS


def _is_like_numpys(name: str, node: Node, vals: Sequence[Any]) -> bool:
    """Return whether a function does the same as NumPy's for such arguments."""
    if name in _NOT_EMPTY:
        return all(vals[0].shape)
    if name in _SLICES:
        return all(len(e) < 3 or (e[2] or 1) > 0 for e in node.values()[-1])
    return name != "astype" or _is_cast_alike(vals[0].dtype, node.val.dtype)


def _is_known(val: Any) -> bool:
    return isinstance(val, FakeArray) and val.dtype in _KNOWN


def _is_cast_alike(before: np.dtype[Any], after: np.dtype[Any]) -> bool:
    if before.kind == "c":
        return after.kind in "cb"
    return before.kind != "f" or after.kind in "fcb" or after.itemsize >= 4


# ---- torch's functions, under NumPy's names ----


def _asarray(x: Any, dtype: np.dtype[Any]) -> Any:
    wanted = dtype_of_torch(np.dtype(dtype))
    if isinstance(x, torch.Tensor):
        return x if x.dtype is wanted else x.to(wanted)
    return torch.tensor(x, dtype=wanted, device="cpu")


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _over(name: str) -> Callable[..., Any]:
    """Return a reduction over some axes; for torch no axes are all of them."""
    function = getattr(torch, name)

    def run(x: Any, axis: Any, keepdims: bool) -> Any:
        axes = _axes(x, axis)
        return function(x, axes, keepdims) if axes else x.clone()

    return run


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    is_inexact = x.is_floating_point() or x.is_complex()
    return _over("mean")(x if is_inexact else x.double(), axis, keepdims)


def _truth(name: str) -> Callable[..., Any]:
    function = _over(name)
    return lambda x, axis, keepdims: function(x.bool(), axis, keepdims)


def _prod(x: Any, axis: Any, keepdims: bool) -> Any:
    for i in sorted([i % x.ndim for i in _axes(x, axis)], reverse=True):
        x = torch.prod(x, i, keepdims)
    return x


def _arg(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def run(x: Any, axis: Any, keepdims: bool) -> Any:
        found = function(x if axis is not None else x.reshape(-1), axis or 0)
        if not keepdims:
            return found
        return found.reshape([1] * x.ndim) if axis is None else found.unsqueeze(axis)

    return run


def _moments(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def run(x: Any, axis: Any, keepdims: bool, ddof: float) -> Any:
        return function(x, _axes(x, axis), correction=ddof, keepdim=keepdims)

    return run


def _sign(x: Any) -> Any:
    found = torch.sign(x)
    return torch.where(x.isnan(), x, found) if x.is_floating_point() else found


def _conjugate(x: Any) -> Any:
    # torch.conj_physical has no batching rule, and torch.conj gives no array (torch 2.13).
    return torch.complex(x.real, -x.imag) if x.is_complex() else x


def _put(x: Any, key: Any, value: Any) -> Any:
    # Under torch.vmap only a tensor with rows can take rows.
    one = value.new_ones((), dtype=torch.bool)
    found = torch.where(one, x, x)
    found[key] = value
    return found


def _expand_dims(x: Any, axis: Sequence[int]) -> Any:
    count = x.ndim + len(axis)
    for i in sorted([i % count for i in axis]):
        x = x.unsqueeze(i)
    return x


def _pad(x: Any, widths: Any, constant_values: Any) -> Any:
    flat_widths = [n for pair in reversed(widths) for n in pair]
    return torch.nn.functional.pad(x, flat_widths, value=constant_values)


def _diagonal(x: Any, offset: int, axis1: int, axis2: int) -> Any:
    return torch.diagonal(x, offset, axis1, axis2)


_aten = torch.ops.aten

DIALECT: Dialect = Dialect(
    torch,
    asarray=_asarray,
    dtype_of=lambda x: (
        dtype_of_numpy(x.dtype) if isinstance(x, torch.Tensor) else np.dtype(x.dtype)
    ),
    put=_put,
    zeros=lambda g, shape: g.new_zeros(tuple(shape)),
    add_at=lambda x, indices, g: _aten.index_put(x, _longs(indices), g, True),
    take_at=lambda x, indices: _aten.index(x, _longs(indices)),
    conjugate=_conjugate,
    power=torch.pow,
    fabs=torch.abs,
    rint=torch.round,
    equal=torch.eq,
    invert=torch.bitwise_not,
    positive=lambda x: x,
    copy=torch.clone,
    transpose=torch.permute,
    concatenate=torch.cat,
    expand_dims=_expand_dims,
    repeat=torch.repeat_interleave,
    pad=_pad,
    diagonal=_diagonal,
    trace=lambda x, *axes: _diagonal(x, *axes).sum(-1),
    imag=lambda x: x.imag if x.is_complex() else torch.zeros_like(x),
    outer=lambda a, b: torch.outer(a.reshape(-1), b.reshape(-1)),
    sign=_sign,
    sum=_over("sum"),
    max=_over("amax"),
    min=_over("amin"),
    mean=_mean,
    any=_truth("any"),
    all=_truth("all"),
    prod=_prod,
    argmax=_arg("argmax"),
    argmin=_arg("argmin"),
    var=_moments("var"),
    std=_moments("std"),
)


def _longs(indices: Sequence[Any]) -> list[Any]:
    """Return index tensors; those of uint8 would be masks."""
    return [None if i is None else i.long() for i in indices]
