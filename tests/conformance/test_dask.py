"""Every sample on lazy arrays: dask's, without a word about dask in the package.

A call gives NumPy's values, lazily, or an error of dask or of the package. It never gives
another value.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.conformance import checks
from tests.conformance.foreign import SAMPLES, Library
from tests.conformance.samples import Sample

dask = pytest.importorskip("dask", reason="dask is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")
callbacks = pytest.importorskip("dask.callbacks", reason="dask is not installed")

# Functions, or samples, whose shapes, branches or loops depend on values.
COMPUTES = frozenset(
    {
        *("allclose", "array", "average", "emath", "geomspace", "i0", "isclose"),
        *("nanargmax", "nanargmin"),
        "cov-weights",  # no weight may be negative
        *("pad_ramp", "pad_ramp_ints", "pad_ramp_to"),
        *("guessed", "linspace", "logspace", "nonzero", "sinc", "trim"),
    }
)


class Counter(callbacks.Callback):  # type: ignore[misc]  # a class of dask
    """Counts the runs of graphs."""

    def __init__(self) -> None:
        self.runs = 0
        super().__init__(start=self._count)

    def _count(self, graph: Any) -> None:
        self.runs += 1


@contextmanager
def _computes_nothing(sample: Sample) -> Iterator[None]:
    """Raise if a graph runs, unless the function asks for values."""
    function = checks.function_of(sample)
    with Counter() as counter:
        yield
    assert counter.runs == 0 or {function, sample.name} & COMPUTES


def _lazy(value: Any) -> Any:
    """An array in two chunks along each axis."""
    chunks = tuple([max(1, (n + 1) // 2) for n in value.shape])
    return da.from_array(value, chunks=chunks)


def _computed(x: Any) -> Any:
    return x.compute(scheduler="sync")


def _all_computed(values: Sequence[Any]) -> Sequence[Any]:
    """Compute all in one run: each takes 5 ms, whatever it computes.

    Fusing the tasks, which are dask's own, doubles the time.
    """
    found: Sequence[Any] = dask.compute(*values, scheduler="sync", optimize_graph=False)
    return found


DASK = Library("dask", da.Array, _lazy, _computed, _computes_nothing, _all_computed)


@pytest.fixture(scope="module", autouse=True)
def _registered(own_kinds: None) -> None:
    co.register_array_type(
        "dask",
        da.Array,
        from_numpy=da.from_array,
        to_numpy=_computed,
        accepts=("cpu",),
        immutable=True,
    )


_tests = itertools.count(1)


@pytest.fixture(autouse=True)
def _garbage_is_taken_out() -> Iterator[None]:
    """Free graphs of tasks, which are in cycles: the collector lets 1 GB of them gather."""
    yield
    if next(_tests) % 25 == 0:
        gc.collect()


pytestmark = [
    # Each sample proves its kernels once; a proof of each call would compute.
    pytest.mark.usefixtures("nothing_known"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of what it computes
    pytest.mark.filterwarnings("ignore::dask.array.PerformanceWarning"),
]


@checks.over(SAMPLES, fifth=1, afresh=True)
def test_values_are_those_of_numpy_arrays(sample: Sample) -> None:
    """Values, gradients, tangents and rows of vmap are lazy, with NumPy's values."""
    DASK.check(sample)


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
            out = fn(_lazy(x))
        assert isinstance(out, da.Array)
        assert counter.runs == 0
        np.testing.assert_allclose(_computed(out), fn(x), rtol=1e-12)


def test_variables_may_be_lazy() -> None:
    """The imperative form carries them too; `grad` is an array of dask."""
    x = np.linspace(0.1, 0.5, 4)
    v = co.variable(_lazy(x))
    for _ in range(2):
        np.sum(np.sin(v) * v).backward()
    assert isinstance(v.grad, da.Array)
    np.testing.assert_allclose(
        _computed(v.grad), 2 * (np.cos(x) * x + np.sin(x)), rtol=1e-12
    )


FACTORIES = {
    "zeros": lambda g, x: g * np.cos(x) + np.zeros(3, like=x),
    "full": lambda g, x: g * np.sin(np.full((3,), 2.0, like=x)),
    "arange": lambda g, x: g * np.cumsum(np.arange(3.0, like=x)),
    "eye": lambda g, x: np.eye(3, like=g) @ g,
    "array": lambda g, x: g * np.array([1.0, 2.0, 3.0], like=x),
    "zeros_like": lambda g, x: g * np.cos(np.zeros_like(x)),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_formulas_that_make_arrays_stay_lazy(name: str) -> None:
    """What a formula makes with `like=` is of the kind of its arrays."""
    formula, values = FACTORIES[name], np.array([1.0, 2.0, 3.0])

    @co.custom_op(f"dask_test::{name}", mutates_args=())
    def op(x: co.Array) -> co.Array:
        return np.sin(x)

    op.register_autograd(co.partials({"x": formula}))
    with Counter() as counter:
        found = co.grad(lambda x: np.sum(op(x)))(_lazy(values))
        by_closure = co.grad(lambda t: np.sum(np.sin(_lazy(values) * t)))(2.0)
    assert counter.runs == 0
    np.testing.assert_allclose(_computed(found), formula(np.ones(3), values))
    expected = np.sum(values * np.cos(2.0 * values))
    np.testing.assert_allclose(_computed(by_closure), expected)
