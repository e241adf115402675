"""Operators of this package in torch, and operators of torch in this package.

``export(op)`` gives a torch operator, `from_torch` imports one, and after
`register_tensors` tensors are arrays: operators run on them. Start with `torch_export`; gradients and batches are in
`torch_kernels`. `framework` has all that is private in torch.
"""

from customop.interop.torch.tensors import register_tensors
from customop.interop.torch.torch_export import TorchOperator, export, remove_export
from customop.interop.torch.torch_import import from_torch

__all__ = ["TorchOperator", "export", "from_torch", "register_tensors", "remove_export"]
