"""Every sample on arrays of array_api_strict, which speak the array API standard alone.

A call gives NumPy's values, or an error. It never gives another value.
"""

from __future__ import annotations

from typing import Any

import array_api_strict as xp
import numpy as np
import pytest

import customop as co
from tests.conformance import checks
from tests.conformance.foreign import SAMPLES, Library
from tests.conformance.samples import Sample

StandardArray: Any = type(xp.asarray([1.0]))
STANDARD = Library("standard", StandardArray, xp.asarray, lambda x: x._array)


@pytest.fixture(scope="module", autouse=True)
def _registered(own_kinds: None) -> None:
    co.register_array_type(
        "standard", StandardArray, from_numpy=xp.asarray, to_numpy=STANDARD.numbers
    )


pytestmark = [
    # Dtypes of the standard have the hashes of NumPy's, so dictionaries compare them.
    pytest.mark.filterwarnings("ignore:You are comparing a array_api_strict dtype"),
    # As NumPy's, which other tests look at.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@checks.over(SAMPLES, fifth=0)
def test_values_are_those_of_numpy_arrays(sample: Sample) -> None:
    """Values, gradients, tangents and rows of vmap are made of the standard."""
    STANDARD.check(sample)


def test_kernels_may_be_written_in_the_standard_too() -> None:
    """The default kernel of a user gets arrays that speak both."""

    @co.custom_op("standard_test::norm", mutates_args=())
    def norm(x: co.Array) -> co.Array:
        space: Any = x.__array_namespace__()  # type: ignore[attr-defined]  # of the standard
        return space.sqrt(space.sum(space.square(x) * 1.0))

    norm.register_autograd(
        lambda ctx, g: g * ctx.saved_arrays[0] / ctx.saved_arrays[1],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(
            inputs[0], output
        ),
    )
    x = xp.asarray([3.0, 4.0])
    assert float(norm(x)) == 5.0
    np.testing.assert_allclose(
        STANDARD.numbers(co.grad(norm)(x)), [0.6, 0.8], rtol=1e-12
    )


def test_gradients_stay_in_the_standard() -> None:
    """A loss with a matrix product, indices and reductions, and its second derivative."""
    values = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    weights = np.linspace(0.2, 1.0, 6).reshape(3, 2)

    def loss(x: Any, w: Any) -> Any:
        y = np.tanh(x @ w)[[0, 2, 3]]
        return np.mean(y**2) + np.max(np.sum(x[1:] * x[:-1], axis=1))

    for fn in (
        co.grad(loss),
        lambda x, w: co.jvp(lambda v: co.grad(loss)(v, w), (x,), (x,))[1],
    ):
        out = fn(STANDARD.of(values), STANDARD.of(weights))
        assert isinstance(out, StandardArray)
        np.testing.assert_allclose(
            STANDARD.numbers(out), fn(values, weights), rtol=1e-12
        )
