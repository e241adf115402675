"""Samples on arrays of JAX: NumPy's values, or an error that is listed.

One in a hundred of them, and those that are listed, since JAX compiles each operation for each
shape; with CUSTOMOP_ALL_SAMPLES=1 every sample, in ten minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.conformance import checks
from tests.conformance.foreign import SAMPLES, WAYS, Library, ways_of
from tests.conformance.samples import Sample

jax: Any = pytest.importorskip("jax", reason="JAX is not installed")

from customop.interop.jax import register_jax_arrays  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("default"),  # JAX has deprecations of its own
]

JAX = Library("jax", jax.Array, jax.numpy.asarray, np.asarray)


def _chosen() -> dict[str, list[str]]:
    """Return the names of those that are run, with the ways, others in each way."""
    step = 1 if os.environ.get("CUSTOMOP_ALL_SAMPLES") else 100
    chosen: dict[str, list[str]] = {}
    for i, way in enumerate(WAYS):
        samples = [s for s in SAMPLES if way in ways_of(s)]
        places = range(25 * i % step, len(samples), step)
        for place, sample in enumerate(samples):
            if place in places or sample.name in JAX.refused:
                chosen.setdefault(sample.name, []).append(way)
    return chosen


CHOSEN = _chosen()


@pytest.fixture(autouse=True, scope="module")
def registered(own_kinds: None) -> Iterator[None]:
    """JAX's arrays as a kind, with numbers of 64 bits."""
    register_jax_arrays()
    with jax.enable_x64(True):
        yield


@checks.over([s for s in SAMPLES if s.name in CHOSEN])
def test_values_are_those_of_numpy_arrays(sample: Sample) -> None:
    """Values, gradients, tangents and rows of vmap are JAX's arrays with NumPy's values."""
    JAX.check(sample, CHOSEN[sample.name])
