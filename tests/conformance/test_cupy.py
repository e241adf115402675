"""Every sample on arrays of CuPy, of which a double that needs no GPU takes the place.

A call gives NumPy's values, or an error that is listed: CuPy lacks a function, or the code
of a sample puts arrays of NumPy beside those of the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import cupy_double
from tests.cases import cases
from tests.conformance import checks
from tests.conformance.foreign import Library

pytestmark = pytest.mark.usefixtures("always_checked")

# Samples of dates, which CuPy does not have; and of elements without an order, which CuPy
# gives in another one. SciPy's functions have kernels for NumPy's arrays alone.
_LEFT_OUT = ("isnat", "unique_values")
FAMILIES = {
    name: [s for s in samples if checks.array_positions(s) and s.name not in _LEFT_OUT]
    for name, samples in checks.families().items()
    if not name.startswith("scipy")
}
CUPY = Library("cupy", cupy_double.ndarray, cupy_double.asarray, lambda x: x.get())


@pytest.fixture(scope="module", autouse=True)
def cp(own_kinds: None) -> Iterator[Any]:
    """Install the double of CuPy."""
    with cupy_double.installed() as module:
        yield module


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")  # those of NumPy, which CuPy does not give
def test_values_are_those_of_numpy_arrays(family: str) -> None:
    """Values, gradients, tangents and rows of vmap are arrays of CuPy."""
    with cases() as case:
        for sample in FAMILIES[family]:
            with case(sample.name):
                CUPY.check(sample)
