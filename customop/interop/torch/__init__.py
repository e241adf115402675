"""Use operators of this package in torch, and torch operators in this package.

``export(op)`` gives a torch operator, and `from_torch` imports one. After
`register_tensors`, operators also run on tensors.
"""

# Start reading with `torch_export`; gradients and batches are in `torch_kernels`. All private
# names of torch are in `framework`.

from customop.interop.torch.tensors import register_tensors
from customop.interop.torch.torch_export import TorchOperator, export, remove_export
from customop.interop.torch.torch_import import from_torch

__all__ = ["TorchOperator", "export", "from_torch", "register_tensors", "remove_export"]
