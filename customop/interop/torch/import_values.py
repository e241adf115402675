"""Values of calls of imported operators: arrays as tensors, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.interop.torch.framework import fake_tensor_module, torch
from customop.interop.torch.own_sizes import OwnSizes
from customop.interop.torch.values import as_array, dtype_of_numpy, dtype_of_torch

__all__ = ["FakeTensors", "arrays_in", "lowered", "raised"]


def lowered(value: Any, tensor: Callable[[Any], Any]) -> Any:
    """An argument as torch takes it."""
    if isinstance(value, list | tuple):
        return [lowered(item, tensor) for item in value]
    if is_array(value):
        return tensor(value)
    if isinstance(value, np.dtype):
        return dtype_of_torch(value)
    return value


def raised(value: Any, memory: Sequence[Any]) -> Any:
    """A result as ours, in memory of its own."""
    if isinstance(value, list | tuple):
        return [raised(item, memory) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    array = np.asarray(as_array(value.detach().resolve_conj().resolve_neg()), order="C")
    shares = any(np.may_share_memory(array, x) for x in memory if x is not None)
    return array.copy() if shares else array


def arrays_in(value: Any) -> list[Any]:
    """The arrays in a list, or the value itself if it is one."""
    if isinstance(value, list | tuple):
        return [x for item in value for x in arrays_in(item)]
    return [value] if is_array(value) else []


class FakeTensors:
    """Fake tensors for fake arrays, in one call of torch."""

    def __init__(self) -> None:
        self.sizes: OwnSizes = OwnSizes()
        fakes: Any = fake_tensor_module()
        self._mode: Any = fakes.FakeTensorMode(
            shape_env=self.sizes.shapes, allow_non_fake_inputs=True
        )

    def __enter__(self) -> None:
        self._mode.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._mode.__exit__(*exc)

    def tensor(self, x: Any) -> Any:
        """The fake tensor of a fake array."""
        lent = self.sizes.lent
        size = x.dtype.itemsize
        return torch.empty_strided(
            [lent(n) for n in x.shape],
            [lent(n // size) for n in x.strides],
            dtype=dtype_of_torch(np.dtype(x.dtype)),
        )

    def returned(self, value: Any) -> Any:
        """The fake array of a fake tensor; other results as ours."""
        if isinstance(value, list | tuple):
            return [self.returned(item) for item in value]
        ours = self.sizes.ours
        if not isinstance(value, torch.Tensor):
            return ours(value)
        shape = tuple(ours(n) for n in value.shape)
        return FakeArray(shape, dtype_of_numpy(value.dtype))
