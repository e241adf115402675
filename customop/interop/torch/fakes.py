"""Fake kernels of operators for torch's fake and meta tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray, make_fake
from customop.arrays.kinds import is_array
from customop.interop.torch.codec import TorchLeaf
from customop.interop.torch.framework import torch
from customop.interop.torch.sizes import TorchSizes
from customop.interop.torch.values import dtype_of_numpy, dtype_of_torch

__all__ = ["TorchFakeCall"]


class TorchFakeCall:
    """One call of a fake kernel: its arguments from torch's, and its results as torch's."""

    def __init__(self, keeps_strides: bool = False) -> None:
        self.sizes: TorchSizes = TorchSizes()
        self._keeps_strides = keeps_strides
        self._device: Any = None

    # ---- arguments ----

    def argument(self, leaf: TorchLeaf, value: Any) -> Any:
        """A value of a leaf as our fake kernel gets it."""
        if isinstance(value, list | tuple):
            return [self.argument(leaf, item) for item in value]
        if isinstance(value, torch.Tensor):
            return self.fake(value)
        if isinstance(value, torch.SymInt):
            return self.sizes.ours(value)
        if isinstance(value, torch.SymFloat):
            return float(value)
        return bool(value) if isinstance(value, torch.SymBool) else plain(value)

    @property
    def device(self) -> Any:
        """The device of the first tensor, for results."""
        return self._device or "cpu"

    def fake(self, x: Any) -> FakeArray:
        """The fake array of a tensor."""
        if self._device is None:
            self._device = x.device
        dtype = dtype_of_numpy(x.dtype)
        ours = self.sizes.ours
        shape = tuple([ours(n) for n in x.shape])
        strides = tuple([ours(n) * dtype.itemsize for n in x.stride()])
        kind = "cpu" if x.device.type == "meta" else str(x.device)
        return make_fake(shape, dtype, strides, kind)

    # ---- results ----

    def result(self, value: Any) -> Any:
        """A result of our fake kernel as one of torch's."""
        if isinstance(value, list | tuple):
            return [self.result(item) for item in value]
        if not is_array(value):
            return self.sizes.torchs(value)
        torchs = self.sizes.torchs
        dtype = dtype_of_torch(np.dtype(value.dtype))
        shape = [torchs(n) for n in value.shape]
        if not self._keeps_strides:
            return torch.empty(shape, dtype=dtype, device=self.device)
        size = value.dtype.itemsize
        strides = [torchs(n // size) for n in value.strides]
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)

    def finish(self) -> None:
        """Tell torch what was assumed of its sizes."""
        self.sizes.tell()


def plain(value: Any) -> Any:
    """Dtypes and devices of torch as those of this package; other values as they are."""
    if isinstance(value, torch.dtype):
        return dtype_of_numpy(value)
    if isinstance(value, torch.device):
        return "cpu" if value.type in ("cpu", "meta") else str(value)
    return value
