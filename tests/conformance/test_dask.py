"""Every sample on lazy arrays: dask's, without a word about dask in the package.

A call gives NumPy's values, lazily, or an error of dask or of the package. It never gives
another value, and what dask lacks is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from tests.conformance import checks
from tests.conformance.samples import Sample

da = pytest.importorskip("dask.array", reason="dask is not installed")
callbacks = pytest.importorskip("dask.callbacks", reason="dask is not installed")


def to_numpy(x: Any) -> Any:
    """The elements of a dask array; other values as arrays."""
    return x.compute(scheduler="sync") if isinstance(x, da.Array) else np.asarray(x)


@pytest.fixture(scope="module", autouse=True)
def _registered(own_kinds: None) -> None:
    co.register_array_type(
        "dask",
        da.Array,
        from_numpy=da.from_array,
        to_numpy=to_numpy,
        accepts=("cpu",),
        immutable=True,
    )


# Functions of which some samples end in an error on dask 2026.8.
REFUSED = frozenset(
    {
        # Without a function of dask: NumPy's would compute.
        *("apply", "bincount", "choose", "digitize", "histogram", "histogram2d"),
        *("histogramdd", "interp", "polyfit", "polymul", "roots"),
        *("argpartition", "argsort", "convolve", "correlate", "cross", "det", "eig"),
        *("eigh", "eigvals", "eigvalsh", "isin", "lexsort", "median", "packbits"),
        *("nanmax", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile"),
        *("percentile", "quantile"),
        *("partition", "pinv", "ravel", "round", "searchsorted", "slogdet", "sort"),
        *("unpackbits", "unravel"),
        *("apply", "digitize", "histogram", "histogram2d", "histogramdd", "interp"),
        *("multigammaln", "polyfit", "polymul", "roots", "special"),
        # Functions with other parameters, or that need SciPy.
        *("choose", "cholesky", "cond", "intersect1d", "inv", "linalg", "lstsq"),
        *("matrix", "norm", "qr"),
        *("setdiff1d", "setxor1d", "solve", "svd", "svdvals", "tensorinv"),
        *("tensorsolve", "union1d", "unique"),
        # Methods of ufuncs but those of add, multiply, maximum and minimum.
        *("add.reduceat", "arctan2.accumulate", "bitwise", "divide.accumulate"),
        *("divide.reduceat", "float", "fmax.reduce", "gcd.reduce", "hypot.reduce"),
        *("logaddexp.accumulate", "logaddexp.reduce", "logaddexp.reduceat", "logical"),
        *("maximum.accumulate", "maximum.reduceat", "minimum.accumulate"),
        *("multiply.reduceat", "subtract.accumulate", "subtract.reduce"),
        "subtract.reduceat",
        # Transforms along an axis of several chunks.
        *("fft", "fft2", "fftn", "hfft", "ifft", "ifft2", "ifftn", "ihfft", "irfft"),
        *("irfft2", "irfftn", "rfft", "rfft2", "rfftn"),
        # Reshapes, empty arrays and keys that dask does not take.
        *("diff", "extract", "getitem", "gradient", "mask", "multi", "multiply", "pad"),
        *("prod", "repeat", "reshape", "resize", "roll", "set", "tile", "tril"),
    }
)
# Functions, or samples, whose shapes, branches or loops depend on values.
COMPUTES = frozenset(
    {
        *("allclose", "array", "average", "emath", "geomspace", "i0", "isclose"),
        *("nanargmax", "nanargmin"),
        "cov-weights",  # no weight may be negative
        *("linspace", "logspace", "nonzero", "sinc", "trim"),
    }
)


class Counter(callbacks.Callback):  # type: ignore[misc]  # a class of dask
    """Counts the runs of graphs."""

    def __init__(self) -> None:
        self.runs = 0
        super().__init__(start=self._count)

    def _count(self, graph: Any) -> None:
        self.runs += 1


def function_of(sample: Sample) -> str:
    """The function that a sample calls."""
    return re.split("[-_ ]", sample.name)[0]


def lazy(value: Any) -> Any:
    """An array of NumPy in two chunks along each axis; other values as they are."""
    if not isinstance(value, np.ndarray):
        return value
    chunks = tuple([max(1, (n + 1) // 2) for n in value.shape])
    return da.from_array(value, chunks=chunks)


def check(sample: Sample, run: Callable[[], Any], expected: Any) -> None:
    """Raise unless a run gives these values without computing one, or is refused."""
    function = function_of(sample)
    try:
        with Counter() as counter:
            out = run()
        found = [to_numpy(x) for x in checks.leaves(out)]
    except Exception:
        if function in REFUSED:
            return
        raise
    assert counter.runs == 0 or {function, sample.name} & (COMPUTES | REFUSED)
    for x, w in zip(found, checks.leaves(expected), strict=True):
        np.testing.assert_allclose(x, w, rtol=1e-10, atol=1e-10)


SAMPLES = [s for s in checks.all_samples() if checks.array_positions(s)]
BATCHED = [s for s in SAMPLES if s.vmap]
DIFFERENTIABLE = [s for s in SAMPLES if s.diff]

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of what it computes
    pytest.mark.filterwarnings("ignore::dask.array.PerformanceWarning"),
]


@pytest.fixture(autouse=True)
def _first() -> Iterator[None]:
    """A proof of each call would compute."""
    co.config.checks = "first"
    yield
    co.config.checks = "always"


@checks.over(SAMPLES)
def test_kernels_are_those_of_dask(sample: Sample) -> None:
    """Operators on lazy arrays give NumPy's values."""
    expected = checks.call(sample, *sample.args)

    def run() -> Any:
        with checks.Identity() as identity:
            given = [
                identity.wrap(lazy(a)) if isinstance(a, np.ndarray) else a
                for a in sample.args
            ]
            return optree.tree_map(identity.lower, checks.call(sample, *given))

    check(sample, run, expected)


def _lazily(sample: Sample) -> tuple[Any, list[Any]]:
    """A sample as a function of lazy arrays, and these."""
    args = tuple(map(lazy, sample.args))
    other = Sample(sample.name, sample.fn, args, sample.kwargs, sample.diff)
    return checks.partial_of(other), checks.primals_of(other)


@checks.over(DIFFERENTIABLE)
def test_gradients_are_those_of_numpy_arrays(sample: Sample) -> None:
    """A gradient of lazy arrays is lazy, and has the values of NumPy's."""
    out, pullback = co.vjp(checks.partial_of(sample), *checks.primals_of(sample))
    cotangent = checks.random_like(out, 1)

    def run() -> Any:
        fn, primals = _lazily(sample)
        return co.vjp(fn, *primals)[1](optree.tree_map(lazy, cotangent))

    check(sample, run, pullback(cotangent))


@checks.over(DIFFERENTIABLE)
@pytest.mark.exhaustive
def test_tangents_are_those_of_numpy_arrays(sample: Sample) -> None:
    """So is a tangent."""
    primals = checks.primals_of(sample)
    tangents = checks.random_like(primals, 1)
    expected = co.jvp(checks.partial_of(sample), tuple(primals), tuple(tangents))

    def run() -> Any:
        fn, given = _lazily(sample)
        return co.jvp(fn, tuple(given), optree.tree_map(lazy, tangents))

    check(sample, run, expected)


@checks.over(BATCHED)
@pytest.mark.exhaustive
def test_batches_are_those_of_numpy_arrays(sample: Sample) -> None:
    """So are the rows of vmap."""
    args, dims = checks.batched_args(sample, checks.array_positions(sample), 2, 0)
    batched = co.vmap(lambda *a: checks.call(sample, *a), in_dims=dims)
    check(sample, lambda: batched(*map(lazy, args)), batched(*args))


def test_nothing_is_computed_while_a_gradient_is_built() -> None:
    """A loss with a matrix product, indices, reductions and a constant of NumPy."""
    x = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    weights = np.linspace(0.2, 1.0, 6).reshape(3, 2)

    def loss(x: Any) -> Any:
        y = np.tanh(x @ weights)[[0, 2, 3]] + np.ones(2)
        return np.mean(y**2) + np.max(np.sum(x[1:] * x[:-1], axis=1))

    def hessian_product(x: Any) -> Any:
        return co.jvp(co.grad(loss), (x,), (x,))[1]

    for fn in (co.grad(loss), hessian_product, co.vmap(lambda row: row / row.sum())):
        with Counter() as counter:
            out = fn(lazy(x))
        assert isinstance(out, da.Array)
        assert counter.runs == 0
        np.testing.assert_allclose(to_numpy(out), fn(x), rtol=1e-12)


def test_variables_may_be_lazy() -> None:
    """The imperative form carries them too; `grad` is an array of dask."""
    x = np.linspace(0.1, 0.5, 4)
    v = co.variable(lazy(x))
    for _ in range(2):
        np.sum(np.sin(v) * v).backward()
    assert isinstance(v.grad, da.Array)
    np.testing.assert_allclose(
        to_numpy(v.grad), 2 * (np.cos(x) * x + np.sin(x)), rtol=1e-12
    )
