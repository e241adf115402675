"""Tensors of torch as arrays, on the same memory where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from customop.arrays.convert import register_array_type
from customop.arrays.kinds import CPU, is_array
from customop.arrays.nested import map_nested
from customop.core.dispatch import find_kernel
from customop.core.table import RuleTable
from customop.errors import ArgumentError, ContractError, GradientError
from customop.interop.torch.framework import torch

# ---- values ----
# Tensors as arrays of NumPy and back, on the same memory where that is possible.


_NAMES: Final = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_TO_NUMPY: Final = {getattr(torch, name): np.dtype(name) for name in _NAMES}
_TO_TORCH: Final = {np.dtype(name): getattr(torch, name) for name in _NAMES}


def dtype_of_torch(dtype: np.dtype[Any]) -> Any:
    """Torch's dtype for one of NumPy.

    Raises
    ------
    ContractError
        If torch has none.
    """
    found = _TO_TORCH.get(dtype if dtype.isnative else dtype.newbyteorder("="))
    if found is None:
        raise ContractError(
            f"a result has dtype {dtype}, which torch does not have",
            do="return an array of a dtype that both have: out.astype(np.float64)",
        )
    return found


def dtype_of_numpy(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype for one of torch.

    Raises
    ------
    ArgumentError
        If NumPy has none.
    """
    found = _TO_NUMPY.get(dtype)
    if found is None:
        raise ArgumentError(
            f"a tensor has dtype {dtype}, which NumPy does not have",
            do="convert it before the call: x.float(), and the result back",
        )
    return found


def as_array(x: Any) -> Any:
    """The array of a tensor in main memory, which shares its memory."""
    try:
        return x.detach().numpy() if x.requires_grad else x.numpy()
    except (TypeError, RuntimeError) as error:
        return _explained(x, error)


def as_written_array(x: Any) -> Any:
    """The array of a tensor that is written, which shares its memory."""
    check_written(x)
    return as_array(x)


def check_written(x: Any) -> None:
    """Raise for a tensor that has no array of its own, which could be written."""
    if x.layout is not torch.strided:
        return  # it has no array at all
    if x.is_conj() or x.is_neg():
        what, do = ("conjugated", "conj") if x.is_conj() else ("negated", "neg")
        raise ArgumentError(
            f"a tensor of shape {tuple(x.shape)} that is written is a {what} view, whose"
            " memory has other numbers",
            do=f"y = x.resolve_{do}(), pass y, and copy it back: x.copy_(y)",
        )
    if any(n > 1 and not step for n, step in zip(x.shape, x.stride(), strict=True)):
        raise ArgumentError(  # as torch's own operators
            f"a tensor of shape {tuple(x.shape)} that is written has several elements at"
            " one place in memory",
            do="pass x.clone()",
        )


def _explained(x: Any, error: Exception) -> Any:
    """The array of a tensor that is conjugated or negated lazily; raise for others."""
    if x.layout is not torch.strided:
        raise ArgumentError(
            f"a tensor has the layout {x.layout}, which is not that of an array",
            do="pass x.to_dense()",
        ) from None
    dtype_of_numpy(x.dtype)
    if x.is_conj() or x.is_neg():
        return x.detach().resolve_conj().resolve_neg().numpy()
    raise ArgumentError(
        f"a tensor on {x.device} has no array: {error}", do="pass x.cpu()"
    ) from error


def as_tensor(out: Any, *, keeps_strides: bool = False) -> Any:
    """The tensor of a result, on its memory if it is in C order and may be written.

    Parameters
    ----------
    out : array or number
    keeps_strides : bool
        Whether other orders stay; torch has no negative strides.
    """
    if type(out) is not np.ndarray:
        out = np.asarray(out)
    if not out.size:
        return torch.empty(out.shape, dtype=dtype_of_torch(out.dtype))
    flags = out.flags
    fits = flags.writeable and flags.aligned and out.dtype.isnative
    is_ordered = flags.c_contiguous or (keeps_strides and min(out.strides) > 0)
    if not (fits and is_ordered):
        out = np.array(out, dtype_native(out), order="K" if keeps_strides else "C")
    try:
        return torch.from_numpy(out)
    except TypeError:
        dtype_of_torch(out.dtype)
        raise


def tensor_of(x: Any) -> Any:
    """The tensor of an array, on its memory where torch can read that."""
    array = np.asarray(x)
    is_odd = not array.dtype.isnative or min(array.strides, default=0) < 0
    if is_odd or array.dtype not in _TO_TORCH:
        dtype_of_torch(array.dtype)
        array = np.array(array, dtype_native(array))
    if array.flags.writeable:
        return torch.from_numpy(array)
    return torch.from_dlpack(array)  # which does not warn that it cannot be written


def dtype_native(x: Any) -> np.dtype[Any]:
    """The dtype of an array in the byte order of the machine."""
    dtype: np.dtype[Any] = x.dtype
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def fresh_tensors(found: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Tensors of results that share no memory with inputs, nor with each other.

    None becomes an empty tensor of bools: torch has no lists of results with None.
    """
    taken = [x for x in inputs if type(x) is np.ndarray]
    tensors = []
    for value in found:
        if value is None:
            tensors.append(torch.empty(0, dtype=torch.bool))
            continue
        out = np.asarray(value)
        # An array that owns its memory shares it with views alone, which come later.
        is_own = out.base is None and not any(out is x for x in taken)
        if not is_own and any(np.may_share_memory(out, x) for x in taken):
            out = out.copy()
        taken.append(out)
        tensors.append(as_tensor(out))
    return tensors


# ---- tensors of torch as arrays: the kind `"torch"` ----
# Operators run on tensors in main memory by the kernels that they have for NumPy, on
# the same memory. An operator may have kernels of its own for the kind.


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
