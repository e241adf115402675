"""Convert torch tensors to arrays and back, sharing memory where possible."""

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

# ---- the array kind "torch" ----
# On CPU tensors, operators run their NumPy kernels on the same memory. An operator may
# also have its own kernel for the kind.

KIND = "torch"


def register_tensors() -> None:
    """Register torch.Tensor as the kind of array ``"torch"``.

    Operators, and NumPy functions under transforms, then accept tensors on the CPU.
    They run their NumPy kernels on the same memory.

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
    """Return the kernel for tensors, which runs the kernel for NumPy arrays."""
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
    """The tensors of one call, and the arrays that share their memory."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []

    def lower(self, value: Any) -> Any:
        """Return the array for a tensor; return other values unchanged."""
        if not isinstance(value, torch.Tensor):
            return value
        array = _lowered(value)
        self._pairs.append((array, value))
        return array

    def raised(self, value: Any) -> Any:
        """Return the tensor for an array: the argument itself, if it is one of these."""
        for array, tensor in self._pairs:
            if value is array:
                return tensor
        return tensor_of(value) if is_array(value) else value

    def note_writes(self) -> None:
        """Count a write to each tensor, so that torch's autograd notices it."""
        for _, tensor in self._pairs:
            if not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)


def _lowered(x: Any) -> Any:
    """Return the array for a tensor; raise if torch would lose its gradient."""
    if x.requires_grad and torch.is_grad_enabled():
        raise GradientError(
            "an operator is called with a tensor that requires a gradient, which torch"
            " would lose",
            do="call customop.interop.torch.export(op), or pass x.detach()",
        )
    return as_array(x)


# ---- conversion of values ----
# Tensors and NumPy arrays share memory where that is possible.

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
    """Return the torch dtype for a NumPy dtype.

    Raises
    ------
    ContractError
        If torch does not have it.
    """
    found = _TO_TORCH.get(dtype if dtype.isnative else dtype.newbyteorder("="))
    if found is None:
        raise ContractError(
            f"a result has dtype {dtype}, which torch does not have",
            do="return an array of a dtype that both have: out.astype(np.float64)",
        )
    return found


def dtype_of_numpy(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype for a torch dtype.

    Raises
    ------
    ArgumentError
        If NumPy does not have it.
    """
    found = _TO_NUMPY.get(dtype)
    if found is None:
        raise ArgumentError(
            f"a tensor has dtype {dtype}, which NumPy does not have",
            do="convert it before the call: x.float(), and the result back",
        )
    return found


def as_array(x: Any) -> Any:
    """Return an array that shares the memory of a tensor on the CPU."""
    try:
        return x.detach().numpy() if x.requires_grad else x.numpy()
    except (TypeError, RuntimeError) as error:
        return _explained(x, error)


def as_written_array(x: Any) -> Any:
    """Return an array that shares the memory of a tensor that will be written to."""
    check_written(x)
    return as_array(x)


def check_layout(x: Any) -> None:
    """Raise for a sparse, nested or quantized tensor."""
    if x.is_nested:
        raise ArgumentError(
            "a tensor is nested, so its rows may have several lengths, and an array has one",
            do="call the operator on each: [op(row) for row in x.unbind()]",
        ) from None
    if x.is_quantized:
        raise ArgumentError(
            f"a tensor is quantized, to {x.dtype}", do="pass x.dequantize()"
        ) from None
    if x.layout is not torch.strided:
        raise ArgumentError(
            f"a tensor has the layout {x.layout}, which is not that of an array",
            do="pass x.to_dense()",
        ) from None


def check_written(x: Any) -> None:
    """Raise if writing to an array of a tensor would not write to the tensor."""
    if x.layout is not torch.strided:
        return  # `as_array` raises for it
    if x.is_conj() or x.is_neg():
        what, do = ("conjugated", "conj") if x.is_conj() else ("negated", "neg")
        raise ArgumentError(
            f"a tensor of shape {tuple(x.shape)} that is written is a {what} view, whose"
            " memory has other numbers",
            do=f"y = x.resolve_{do}(), pass y, and copy it back: x.copy_(y)",
        )
    if any(n > 1 and not step for n, step in zip(x.shape, x.stride(), strict=True)):
        raise ArgumentError(  # as torch's own operators do
            f"a tensor of shape {tuple(x.shape)} that is written has several elements at"
            " one place in memory",
            do="pass x.clone()",
        )


def _explained(x: Any, error: Exception) -> Any:
    """Return an array for a lazily conjugated or negated tensor; explain other failures."""
    check_layout(x)
    dtype_of_numpy(x.dtype)
    if x.is_conj() or x.is_neg():
        return x.detach().resolve_conj().resolve_neg().numpy()
    raise ArgumentError(
        f"a tensor on {x.device} has no array: {error}", do="pass x.cpu()"
    ) from error


def as_tensor(out: Any, *, keeps_strides: bool = False) -> Any:
    """Return a tensor for a result; share its memory if it is in C order and writable.

    Parameters
    ----------
    out : array or number
    keeps_strides : bool
        Whether to keep other orders; torch does not support negative strides.
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
    """Return a tensor for an array, sharing its memory if torch supports the layout."""
    array = np.asarray(x)
    if not shares_memory(array):
        dtype_of_torch(array.dtype)
        array = np.array(array, dtype_native(array))
    if array.flags.writeable:
        return torch.from_numpy(array)
    return torch.from_dlpack(array)  # does not warn about read-only memory


def shares_memory(x: Any) -> bool:
    """Return whether `tensor_of` gives a tensor on the memory of an array."""
    size = x.dtype.itemsize
    is_odd = any(step < 0 or step % size for step in x.strides)
    return not is_odd and x.dtype.isnative and x.dtype in _TO_TORCH


def dtype_native(x: Any) -> np.dtype[Any]:
    """Return the dtype of an array, in the machine's byte order."""
    dtype: np.dtype[Any] = x.dtype
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def fresh_tensors(found: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Return tensors for results that share memory neither with inputs nor each other.

    None becomes an empty tensor of bools, because torch does not allow None in a list
    of results.
    """
    taken = [x for x in inputs if type(x) is np.ndarray]
    tensors = []
    for value in found:
        if value is None:
            tensors.append(torch.empty(0, dtype=torch.bool))
            continue
        out = np.asarray(value)
        # An array that owns its memory shares it only with its views, which come later.
        is_own = out.base is None and not any(out is x for x in taken)
        if not is_own and any(np.may_share_memory(out, x) for x in taken):
            out = out.copy()
        taken.append(out)
        tensors.append(as_tensor(out))
    return tensors
