"""Samples on tensors of torch: NumPy's values, or an error that is listed.

One in eight of them, and those that are listed; with CUSTOMOP_ALL_SAMPLES=1 every sample.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

import customop as co
from tests.conformance import checks
from tests.conformance.foreign import SAMPLES, Library
from tests.conformance.samples import Sample

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
arrays: Any = pytest.importorskip("customop.interop.torch.tensors")
values: Any = pytest.importorskip("customop.interop.torch.tensors")

TORCH = Library("torch", torch.Tensor, values.tensor_of, values.as_array)


@pytest.fixture(scope="module", autouse=True)
def _registered(own_kinds: None) -> None:
    arrays.register_tensors()


pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]


# Kernels are NumPy's, so a share of the samples shows faults.
STEP = 1 if os.environ.get("CUSTOMOP_ALL_SAMPLES") else 8
CHOSEN = [s for i, s in enumerate(SAMPLES) if i % STEP == 0 or s.name in TORCH.refused]


@checks.over(CHOSEN)
def test_values_are_those_of_numpy_arrays(sample: Sample) -> None:
    """Values, gradients, tangents and rows of vmap are tensors with NumPy's values."""
    TORCH.check(sample)


def test_writes_and_results_share_memory() -> None:
    """Kernels of users get the memory of tensors, and views stay views."""

    @co.custom_op("torch_kind::doubled_", mutates_args=("x",), tags=co.Tag.inplace)
    def doubled_(x: co.Array) -> co.Array:
        x *= 2
        return x

    x = torch.ones(3)
    version = x._version
    assert doubled_(x) is x
    assert x.tolist() == [2.0] * 3
    assert x._version > version


def test_lost_gradients_of_torch_are_an_error() -> None:
    """Torch cannot differentiate what it does not see."""

    @co.custom_op("torch_kind::tripled", mutates_args=())
    def tripled(x: co.Array) -> co.Array:
        return x * 3

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(co.GradientError, match="which torch would lose"):
        tripled(x)
    with torch.no_grad():
        assert tripled(x).tolist() == [3.0] * 3


def test_kernels_of_their_own_come_first() -> None:
    """An operator may use torch's functions for tensors."""

    @co.custom_op("torch_kind::gelu", mutates_args=())
    def gelu(x: co.Array) -> co.Array:
        raise AssertionError

    gelu.register_kernel("torch", torch.nn.functional.gelu)
    x = torch.ones(3)
    torch.testing.assert_close(gelu(x), torch.nn.functional.gelu(x))
