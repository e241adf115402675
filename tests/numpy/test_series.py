"""Functions of numpy.polynomial that NumPy hands over to operators."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import polynomial

import customop as co

X, Y = np.array([0.5, -1.5, 2.0]), np.array([1.0, 0.25, -0.5])
C = np.arange(1.0, 7.0).reshape(2, 3)
NAMES = [
    name
    for name in ("polyval2d", "polygrid2d", "polyvalnd")
    if not isinstance(getattr(polynomial, name, len), FunctionType | type(len))
]


@pytest.mark.parametrize("name", NAMES or ["none"])
def test_series_of_two_variables(name: str) -> None:
    """Values, gradients by points and coefficients, and batches are NumPy's."""
    if name == "none":
        pytest.skip("NumPy before 2.2 does not hand them over")
    function = getattr(polynomial, name)

    def fn(x: Any, y: Any, c: Any) -> Any:
        return function([x, y], c) if name == "polyvalnd" else function(x, y, c)

    def total(*args: Any) -> Any:
        return np.sum(np.sin(fn(*args)))

    args = [X, Y, C]
    found = co.grad(total, (0, 1, 2))(*args)
    for i, (slope, x) in enumerate(zip(found, args, strict=True)):
        for place in np.ndindex(x.shape):
            ends = [np.array(x), np.array(x)]
            ends[0][place] += 1e-6
            ends[1][place] -= 1e-6
            high, low = (total(*args[:i], end, *args[i + 1 :]) for end in ends)
            np.testing.assert_allclose(slope[place], (high - low) / 2e-6, atol=1e-6)
    rows = co.vmap(fn, (0, None, 0))(np.stack([X, Y]), Y, np.stack([C, -C]))
    np.testing.assert_array_equal(rows, [fn(X, Y, C), fn(Y, Y, -C)])
