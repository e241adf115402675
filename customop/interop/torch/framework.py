"""The module `torch` itself, and all of its private names that this package uses.

Torch has no public names for the kernels of its dispatch keys, which autograd and
functional transforms are made of. Checked with torch 2.13.
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

# A context: operators called in it skip autograd.
BelowAutograd: Final = torch._C._AutoDispatchBelowAutograd
# The keys that come after autograd in a call.
AFTER_AUTOGRAD: Final = torch._C._after_autograd_keyset
any_requires_grad: Final = torch._C._any_requires_grad


def has_tangents() -> bool:
    """Whether a block that computes tangents is open."""
    level: int = torch.autograd.forward_ad._current_level
    return level >= 0


def is_forward_mode() -> bool:
    """Whether torch computes tangents of the calls that are made now."""
    return has_tangents() and bool(torch._C._is_fwd_grad_enabled())


_AUTOCAST: Final = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def no_autocast() -> Any:
    """A context: operators called in it are not cast a second time."""
    return torch._C._ExcludeDispatchKeyGuard(_AUTOCAST)


# ---- functional transforms ----

TransformType: Final = torch._C._functorch.TransformType
# The value and the axis of a batched tensor at a level; the axis is None for others.
unwrap_batched: Final = torch._C._functorch._unwrap_batched
# Those of the older vmap, which torch.autograd.grad(is_grads_batched=True) uses.
add_batch_axis: Final = torch._add_batch_dim
remove_batch_axis: Final = torch._remove_batch_dim


def batch_level() -> int:
    """The level of the older vmap that runs."""
    level: int = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return level


def transform_of_torch() -> Any:
    """The innermost functional transform that runs."""
    pyfunctorch: Any = import_module("torch._functorch.pyfunctorch")
    return pyfunctorch.retrieve_current_functorch_interpreter()


# ---- operators ----

require: Final = torch._check


OpOverload: Final = torch._ops.OpOverload
OpOverloadPacket: Final = torch._ops.OpOverloadPacket


def name_of_overload(overload: Any) -> str:
    """The name of a torch operator: ``"aten::sin"``, ``"aten::add.Tensor"``."""
    return str(overload.name())


def is_dispatched(overload: Any) -> bool:
    """Whether an operator takes part in dispatch: some are of TorchScript alone."""
    return bool(torch._C._dispatch_has_kernel(overload.name()))


def fake_tensor_module() -> Any:
    """The module of torch's fake tensors."""
    return import_module("torch._subclasses.fake_tensor")


def has_batching_rule(overload: Any) -> bool:
    """Whether a torch operator has a rule of its own for torch.vmap."""
    ask = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(ask(overload.name(), "FuncTorchBatched"))


def schema_of(overload: Any) -> Any:
    """The schema of a torch operator."""
    return overload._schema


def destroy(library: Any) -> None:
    """Take all definitions and kernels of a library out of the registry."""
    library._destroy()
