"""The module `torch`, and all private names of torch that this package uses.

Autograd and the functional transforms are kernels of torch's dispatch keys, for which
torch has no public names. Checked with torch 2.13.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final


def _imported() -> Any:
    try:
        return import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            "customop.interop.torch needs torch, which is not installed\n"
            "  do: pip install 'customop[torch]'",
            name="torch",
        ) from None


torch: Any = _imported()

# ---- autograd ----

# A context manager: operators called inside it skip autograd.
BelowAutograd: Final = torch._C._AutoDispatchBelowAutograd
# The dispatch keys that come after autograd.
AFTER_AUTOGRAD: Final = torch._C._after_autograd_keyset
any_requires_grad: Final = torch._C._any_requires_grad


def has_tangents() -> bool:
    """Return whether a forward-mode block is open."""
    level: int = torch.autograd.forward_ad._current_level
    return level >= 0


def is_forward_mode() -> bool:
    """Return whether torch computes tangents for the current calls."""
    return has_tangents() and bool(torch._C._is_fwd_grad_enabled())


# The dispatch keys of tensors that are not arrays: sparse, nested, quantized ones and those of
# mkldnn. That of autograd comes before the class of nested tensors is asked.
NOT_STRIDED: Final = (
    *("SparseCPU", "SparseCUDA", "SparseCsrCPU", "SparseCsrCUDA"),
    *("NestedTensorCPU", "NestedTensorCUDA", "AutogradNestedTensor"),
    *("MkldnnCPU", "QuantizedCPU"),
)


def type_of_jagged() -> Any:
    """Return the class of nested tensors with the layout ``torch.jagged``."""
    return import_module("torch.nested._internal.nested_tensor").NestedTensor


_AUTOCAST: Final = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def no_autocast() -> Any:
    """Return a context manager in which operators are not cast a second time."""
    return torch._C._ExcludeDispatchKeyGuard(_AUTOCAST)


# ---- functional transforms ----

TransformType: Final = torch._C._functorch.TransformType
# Return the value and the axis of a tensor at a level; None if it is not batched there.
unwrap_batched: Final = torch._C._functorch._unwrap_batched
# The older vmap, which torch.autograd.grad(is_grads_batched=True) uses.
add_batch_axis: Final = torch._add_batch_dim
remove_batch_axis: Final = torch._remove_batch_dim


def batch_level() -> int:
    """Return the level of the older vmap that is running."""
    level: int = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return level


def transform_of_torch() -> Any:
    """Return the innermost functional transform that is running."""
    pyfunctorch: Any = import_module("torch._functorch.pyfunctorch")
    return pyfunctorch.retrieve_current_functorch_interpreter()


# ---- operators ----

require: Final = torch._check


OpOverload: Final = torch._ops.OpOverload
OpOverloadPacket: Final = torch._ops.OpOverloadPacket


def name_of_overload(overload: Any) -> str:
    """Return the name of a torch operator, such as ``"aten::add.Tensor"``."""
    return str(overload.name())


def is_dispatched(overload: Any) -> bool:
    """Return whether an operator takes part in dispatch; some exist only in TorchScript."""
    return bool(torch._C._dispatch_has_kernel(overload.name()))


def fake_tensor_module() -> Any:
    """Return the module of torch's fake tensors."""
    return import_module("torch._subclasses.fake_tensor")


def has_batching_rule(overload: Any) -> bool:
    """Return whether a torch operator has its own rule for torch.vmap."""
    ask = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(ask(overload.name(), "FuncTorchBatched"))


def schema_of(overload: Any) -> Any:
    """Return the schema of a torch operator."""
    return overload._schema


def destroy(library: Any) -> None:
    """Remove all definitions and kernels of a library from torch's registry."""
    library._destroy()
