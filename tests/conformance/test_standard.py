"""Every sample on arrays of array_api_strict, which speak the array API standard alone.

A call gives NumPy's values, or an error. It never gives another value, and the functions
without a counterpart in the standard are listed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import array_api_strict as xp
import numpy as np
import optree
import pytest

import customop as co
from tests.conformance import checks
from tests.conformance.samples import Sample

StandardArray: Any = type(xp.asarray([1.0]))
KIND = "standard"


def to_numpy(x: Any) -> Any:
    """The elements of an array of the standard; other values as arrays."""
    return np.asarray(x._array) if isinstance(x, StandardArray) else np.asarray(x)


def standard(value: Any) -> Any:
    """An array of NumPy as one of the standard; other values as they are."""
    return xp.asarray(value) if isinstance(value, np.ndarray) else value


@pytest.fixture(scope="module", autouse=True)
def _registered(own_kinds: None) -> None:
    co.register_array_type(
        KIND, StandardArray, from_numpy=xp.asarray, to_numpy=to_numpy
    )


# Functions of which some samples end in an error on array_api_strict 2.6: the standard has
# no such function or option, or formulas mix arrays of both kinds.
REFUSED = frozenset(
    """
    add.reduceat any arctan2.accumulate argmax argmin argpartition asarray
    bincount bitwise cbrt choose clip concatenate convolve correlate cov cross
    deg2rad degrees diff digitize divide.accumulate divide.reduceat divmod
    divmod.outer ediff1d eig eigh eigvalsh einsum emath exp2 fft fftn float fmax
    fmax.reduce fmin fmod frexp fromfunction gcd gcd.reduce getitem heaviside
    histogram histogram2d histogramdd hypot.reduce i0 ifftn interp intersect1d inv
    irfft irfftn isclose isin isnat lcm ldexp logaddexp.accumulate
    logaddexp.reduce logaddexp.reduceat logaddexp2 logical lstsq matmul matrix max
    maximum.accumulate maximum.reduceat mean minimum.accumulate modf multi
    multiply.reduceat nan nanargmax nanargmin nanmax nanmean nanmin nanstd
    packbits pad partition pinv polyfit polymul polyval qr quantile rad2deg
    radians ravel rfft rfftn rint roll roots round searchsorted set setdiff1d
    setxor1d sinc solve sort spacing split stack std subtract.accumulate
    subtract.reduce subtract.reduceat sum svd tri tril union1d unique unpackbits
    unravel var where whole
    """.split()  # noqa: SIM905  # shorter as words
) | {"linalg", "multigammaln", "special"}  # SciPy's, with kernels for NumPy alone


def check(sample: Sample, run: Callable[[], Any], expected: Any) -> None:
    """Raise unless a run gives these values, or its function is refused."""
    function = re.split("[-_ ]", sample.name)[0]
    try:
        found = [to_numpy(x) for x in checks.leaves(run())]
    except Exception:
        if function in REFUSED:
            return
        raise
    for x, w in zip(found, checks.leaves(expected), strict=True):
        np.testing.assert_allclose(x, w, rtol=1e-10, atol=1e-10)


SAMPLES = [s for s in checks.all_samples() if checks.array_positions(s)]
BATCHED = [s for s in SAMPLES if s.vmap]
DIFFERENTIABLE = [s for s in SAMPLES if s.diff]

pytestmark = [
    # Dtypes of the standard have the hashes of NumPy's, so dictionaries compare them.
    pytest.mark.filterwarnings("ignore:You are comparing a array_api_strict dtype"),
    pytest.mark.filterwarnings(
        "ignore::RuntimeWarning"
    ),  # as NumPy's, elsewhere checked
]


@checks.over(SAMPLES)
def test_kernels_are_made_of_the_standard(sample: Sample) -> None:
    """Operators on arrays of the standard give NumPy's values."""
    expected = checks.call(sample, *sample.args)

    def run() -> Any:
        with checks.Identity() as identity:
            given = [
                identity.wrap(standard(a)) if isinstance(a, np.ndarray) else a
                for a in sample.args
            ]
            return optree.tree_map(identity.lower, checks.call(sample, *given))

    check(sample, run, expected)


def _standard(sample: Sample) -> tuple[Any, list[Any]]:
    """A sample as a function of arrays of the standard, and these."""
    args = tuple(map(standard, sample.args))
    other = Sample(sample.name, sample.fn, args, sample.kwargs, sample.diff)
    return checks.partial_of(other), checks.primals_of(other)


@checks.over(DIFFERENTIABLE)
@pytest.mark.exhaustive
def test_gradients_are_those_of_numpy_arrays(sample: Sample) -> None:
    """Gradients of arrays of the standard have the values of NumPy's."""
    out, pullback = co.vjp(checks.partial_of(sample), *checks.primals_of(sample))
    cotangent = checks.random_like(out, 1)

    def run() -> Any:
        fn, primals = _standard(sample)
        return co.vjp(fn, *primals)[1](optree.tree_map(standard, cotangent))

    check(sample, run, pullback(cotangent))


@checks.over(DIFFERENTIABLE)
@pytest.mark.exhaustive
def test_tangents_are_those_of_numpy_arrays(sample: Sample) -> None:
    """So have tangents."""
    primals = checks.primals_of(sample)
    tangents = checks.random_like(primals, 1)
    expected = co.jvp(checks.partial_of(sample), tuple(primals), tuple(tangents))

    def run() -> Any:
        fn, given = _standard(sample)
        return co.jvp(fn, tuple(given), optree.tree_map(standard, tangents))

    check(sample, run, expected)


@checks.over(BATCHED)
@pytest.mark.exhaustive
def test_batches_are_those_of_numpy_arrays(sample: Sample) -> None:
    """So have the rows of vmap."""
    args, dims = checks.batched_args(sample, checks.array_positions(sample), 2, 0)
    batched = co.vmap(lambda *a: checks.call(sample, *a), in_dims=dims)
    check(sample, lambda: batched(*map(standard, args)), batched(*args))


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
    np.testing.assert_allclose(to_numpy(co.grad(norm)(x)), [0.6, 0.8], rtol=1e-12)


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
        out = fn(standard(values), standard(weights))
        assert isinstance(out, StandardArray)
        np.testing.assert_allclose(to_numpy(out), fn(values, weights), rtol=1e-12)
