"""Every sample on arrays of another class, array_api_strict."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from customop.core.registry import all_operators
from tests import strict_arrays as arrays
from tests.cases import cases
from tests.conformance import checks
from tests.conformance.samples import Sample
from tests.strict_arrays import StrictArray, to_numpy, to_strict

arrays.register_kernels(dict(all_operators()))

# Strict dtypes have the hashes of NumPy's, so dictionaries compare them. The result is
# right, but array_api_strict warns of the comparison.
pytestmark = pytest.mark.filterwarnings(
    "ignore:You are comparing a array_api_strict dtype:UserWarning"
)

# Samples whose code adds NumPy arrays, which do not mix with other kinds.
_NUMPY_INSIDE = (
    "concatenate_constant",
    "concatenate_dtype",
    "stack_number",
    "where_ints",
    "where_list",
    "asarray_like",
    "fromfunction",
    "insert_mask",
    "isclose_nan",
    "pad_by_each",
    # Masks, weights and means that are constants.
    "any-where",
    "cov-counts",
    "logaddexp.reduce-where",
    "max-selected",
    "mean-where",
    "nanmean-where",
    "nanstd-where",
    "quantile-weights",
    "std-where",
    "subtract.reduce-selected",
    "sum-where",
    "var-selected",
)
# Samples that return a Python bool, or read values as Python ints.
_NUMBERS = ("allclose", "array_equal", "array_equiv", "trim_zeros")
# Samples of SciPy, whose operators have kernels for NumPy's arrays alone.
_SCIPY = ("linalg ", "special ", "multigammaln", "scipyfft ", "signal ", "stats ")
SAMPLES = [
    s
    for s in checks.all_samples()
    if checks.array_positions(s)
    and s.name not in (*_NUMPY_INSIDE, "isnat")
    and not s.name.startswith((*_NUMBERS, *_SCIPY))
]


@checks.over(SAMPLES, fifth=3)
def test_values_are_those_of_numpy_arrays(sample: Sample) -> None:
    """Values, gradients and rows of vmap are strict arrays with NumPy's values."""
    with cases() as case:
        with case("kernel"):
            _check_kernel(sample)
        if sample.diff:
            with case("vjp"):
                _check_vjp(sample)
        if sample.vmap:
            with case("vmap"):
                _check_vmap(sample)


def assert_strict(actual: Any, expected: Any, tolerance: float) -> None:
    """Raise unless the leaves are strict arrays of these values and dtypes."""
    found, wanted = checks.leaves(actual), checks.leaves(expected)
    assert {type(x) for x in found} <= {StrictArray}
    assert [arrays.name_of(x.dtype) for x in found] == [str(w.dtype) for w in wanted]
    for x, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(to_numpy(x), w, rtol=tolerance, atol=tolerance)


def _check_kernel(sample: Sample) -> None:
    expected = checks.call(sample, *sample.args)
    with checks.Identity() as identity:
        given = [
            identity.wrap(to_strict(a)) if isinstance(a, np.ndarray) else a
            for a in sample.args
        ]
        out = optree.tree_map(identity.lower, checks.call(sample, *given))
    assert_strict(out, optree.tree_map(np.asarray, expected), 1e-13)


def _check_vjp(sample: Sample) -> None:
    primals = checks.primals_of(sample)
    out, pullback = co.vjp(checks.partial_of(sample), *primals)
    cotangent = checks.random_like(out, 1)
    expected = pullback(cotangent)
    strict_args = tuple(
        to_strict(a) if isinstance(a, np.ndarray) else a for a in sample.args
    )
    strict = Sample(sample.name, sample.fn, strict_args, sample.kwargs, sample.diff)
    _, pull_strict = co.vjp(checks.partial_of(strict), *checks.primals_of(strict))
    assert_strict(pull_strict(to_strict(cotangent)), expected, 1e-12)


def _check_vmap(sample: Sample) -> None:
    positions = checks.array_positions(sample)
    args, dims = checks.batched_args(sample, positions, 2, 0)
    rows = [checks.call(sample, *checks.row_of(args, dims, i)) for i in range(2)]
    columns = zip(*(checks.leaves(row) for row in rows), strict=True)
    expected = [np.stack([np.asarray(x) for x in column]) for column in columns]
    given = [to_strict(a) if isinstance(a, np.ndarray) else a for a in args]
    out = co.vmap(lambda *a: checks.call(sample, *a), in_dims=dims)(*given)
    assert_strict(out, expected, 1e-12)
