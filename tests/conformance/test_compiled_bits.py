"""Compiled gradients of every sample have the bits of the gradients themselves.

The oracle is NumPy: gradients of plain arrays run its functions, one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from tests.conformance import checks
from tests.conformance.samples import Sample

pytestmark = pytest.mark.exhaustive
_SAMPLES = [s for s in checks.all_samples() if s.diff]
_PARTS = 8


def _weighted_sum(sample: Sample, position: int, x: Any) -> Any:
    """A number that depends on every real part of the results."""
    args = list(sample.args)
    args[position] = x
    total: Any = 0.0
    for y in checks.leaves(checks.call(sample, *args)):
        if np.real(y).dtype.kind == "f":
            weights = np.cos(np.arange(y.size) + 1.0).reshape(y.shape)
            total = total + np.sum(np.real(y) * weights)
    return total


@pytest.mark.parametrize("part", range(_PARTS))
def test_compiled_gradients_have_the_bits_of_the_gradients(part: int) -> None:
    compared = 0
    for sample in _SAMPLES[part::_PARTS]:
        x = sample.args[sample.diff[0]]
        if not isinstance(x, np.ndarray):
            continue

        def loss(x: Any, sample: Sample = sample) -> Any:
            return _weighted_sum(sample, sample.diff[0], x)

        slope = co.compile(co.grad(loss), fallback=True)
        try:
            want = co.grad(loss)(x)
        except co.DataDependentError:
            continue  # the sample is of an integer, or of a value that is asked for
        found = slope(x)
        assert found.dtype == want.dtype, sample.name
        assert found.tobytes() == want.tobytes(), sample.name
        compared += bool(slope.graphs)
    assert compared > 100
