"""Operators of this package in torch, and operators of torch in this package.

``export(op)`` gives a torch operator, `from_torch` imports one. Start with `export`; what a
call does is in `exported`, gradients and batches in `calls` and `derived`.
"""

from customop.interop.torch.export import TorchOperator, export, remove_export
from customop.interop.torch.imported import from_torch

__all__ = ["TorchOperator", "export", "from_torch", "remove_export"]
