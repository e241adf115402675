"""Samples on arrays of JAX: NumPy's values, or an error that is listed.

One in a hundred of them, and those that are listed, since JAX compiles each operation for each
shape; with CUSTOMOP_ALL_SAMPLES=1 every sample, in ten minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.conformance import checks
from tests.conformance.foreign import BATCHED, DIFFERENTIABLE, SAMPLES, Library
from tests.conformance.samples import Sample

jax: Any = pytest.importorskip("jax", reason="JAX is not installed")

from customop.interop.jax import register_jax_arrays  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("default"),  # JAX has deprecations of its own
]

JAX = Library("jax", jax.Array, jax.numpy.asarray, np.asarray)


def _chosen(samples: Sequence[Sample], first: int) -> list[Sample]:
    """Those that are run, others in each way."""
    step = 1 if os.environ.get("CUSTOMOP_ALL_SAMPLES") else 100
    places = range(first % step, len(samples), step)
    return [s for i, s in enumerate(samples) if i in places or s.name in JAX.refused]


@pytest.fixture(autouse=True, scope="module")
def registered(own_kinds: None) -> Iterator[None]:
    """JAX's arrays as a kind, with numbers of 64 bits."""
    register_jax_arrays()
    with jax.enable_x64(True):
        yield


@checks.over(_chosen(SAMPLES, 0))
def test_kernels_give_numpys_values(sample: Sample) -> None:
    """Operators on arrays of JAX give NumPy's values."""
    JAX.check("kernel", sample)


@checks.over(_chosen(DIFFERENTIABLE, 25))
def test_gradients_are_those_of_numpy_arrays(sample: Sample) -> None:
    """Gradients are arrays of JAX with the values of NumPy's."""
    JAX.check("vjp", sample)


@checks.over(_chosen(DIFFERENTIABLE, 50))
def test_tangents_are_those_of_numpy_arrays(sample: Sample) -> None:
    """So are tangents."""
    JAX.check("jvp", sample)


@checks.over(_chosen(BATCHED, 75))
def test_batches_are_those_of_numpy_arrays(sample: Sample) -> None:
    """So are the rows of vmap."""
    JAX.check("vmap", sample)
