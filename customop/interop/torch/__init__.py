"""Operators of this package in torch, and operators of torch in this package.

``export(op)`` gives a torch operator, `from_torch` imports one, and after
`register_tensors` tensors are arrays: operators run on them. Start with `export`; what a call does is in `exported`,
gradients and batches in `calls` and `derived`. `framework` has all that is private in torch.
"""

from customop.interop.torch.arrays import register_tensors
from customop.interop.torch.export import TorchOperator, export, remove_export
from customop.interop.torch.imported import from_torch

__all__ = ["TorchOperator", "export", "from_torch", "register_tensors", "remove_export"]
