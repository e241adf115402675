"""Every sample gets every check, against NumPy and finite differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from customop.core.builtin_kinds import AUTOGRAD, VMAP
from customop.core.registry import all_operators
from tests.conformance import checks
from tests.conformance.samples import Sample
from tests.conformance.symbolic import agree

SAMPLES = checks.all_samples()
DIFFERENTIABLE = [s for s in SAMPLES if s.diff]
BATCHED = [s for s in SAMPLES if s.vmap and checks.array_positions(s)]


# What one sample worked out is of no use to the next one.
pytestmark = pytest.mark.usefixtures("always_checked", "nothing_known")


def test_names_are_unique() -> None:
    """No two samples share a name."""
    twice = [n for n, count in Counter(s.name for s in SAMPLES).items() if count > 1]
    assert twice == []


# ---- kernels and fake kernels ----


@checks.over(SAMPLES)
def test_kernel_is_numpy(sample: Sample) -> None:
    """Operators give NumPy's values and dtypes."""
    expected = checks.leaves(checks.call(sample, *sample.args))
    out, _ = checks.through_operators(sample, *sample.args)
    actual = checks.leaves(out)
    assert [np.asarray(a).dtype for a in actual] == [
        np.asarray(e).dtype for e in expected
    ]
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-13, atol=1e-13)


def _order(x: Any) -> list[int]:
    axes = sorted(range(x.ndim), key=lambda i: -abs(x.strides[i]))
    return [i for i in axes if x.shape[i] > 1] if x.size else []


@checks.over(SAMPLES)
def test_fake_is_real(sample: Sample) -> None:
    """Fake arrays have the shape, dtype and order of axes of real results."""
    out, _ = checks.through_operators(sample, *sample.args)
    real = checks.leaves(out)
    fakes = checks.leaves(co.eval_shape(sample.fn, *sample.args, **sample.kwargs))
    agree(fakes, real, {})
    if any(co.sizes.is_symbolic(x.shape) for x in fakes):  # by data
        return
    if not any(_is_broadcast(a) for a in [*sample.args, *real]):
        assert [_order(x) for x in fakes] == [_order(np.asarray(x)) for x in real]


def _is_broadcast(x: Any) -> bool:
    pairs = zip(np.shape(x), getattr(x, "strides", ()), strict=False)
    return any(stride == 0 and length > 1 for length, stride in pairs)


# ---- first derivatives ----


@checks.over(DIFFERENTIABLE)
def test_vjp_is_the_difference(sample: Sample) -> None:
    """A pulled back cotangent gives the slope in any direction."""
    fn, primals = checks.partial_of(sample), checks.primals_of(sample)
    out, pullback = co.vjp(fn, *primals)
    cotangent = checks.random_like(out, 1)
    grads = pullback(cotangent)
    assert [g.dtype for g in grads] == [x.dtype for x in primals]
    for seed in (2, 3):
        direction = checks.random_like(primals, seed)
        slope = checks.difference(fn, primals, direction)
        expected = checks.pairing(cotangent, slope)
        checks.assert_near(checks.pairing(grads, direction), expected)


@checks.over(
    [s for s in DIFFERENTIABLE if sum(a.size for a in checks.primals_of(s)) <= 6]
)
def test_vjp_is_the_difference_by_element(sample: Sample) -> None:
    """Each element of a gradient is the slope by that element."""
    fn, primals = checks.partial_of(sample), checks.primals_of(sample)
    out, pullback = co.vjp(fn, *primals)
    cotangent = checks.random_like(out, 1)
    grads = pullback(cotangent)
    for i, x in enumerate(primals):
        expected = np.zeros(x.shape, x.dtype)
        for at in np.ndindex(x.shape):
            for unit in (1.0, 1j) if x.dtype.kind == "c" else (1.0,):
                direction = [np.zeros_like(p) for p in primals]
                direction[i][at] = unit
                slope = checks.difference(fn, primals, direction)
                # The slope along i is minus the imaginary part of the gradient.
                expected[at] += np.conj(unit) * checks.pairing(cotangent, slope)
        checks.assert_near(grads[i], expected)


@checks.over(DIFFERENTIABLE)
def test_jvp_is_the_difference(sample: Sample) -> None:
    """A tangent pushed forward is the slope of the results."""
    fn, primals = checks.partial_of(sample), checks.primals_of(sample)
    tangents = checks.random_like(primals, 4)
    out, moved = co.jvp(fn, primals, tangents)
    expected = checks.difference(fn, primals, tangents)
    assert [t.dtype for t in moved] == [y.dtype for y in out]
    for actual, slope in zip(moved, expected, strict=True):
        checks.assert_near(actual, slope)


@checks.over(DIFFERENTIABLE)
def test_jvp_and_vjp_are_transposed(sample: Sample) -> None:
    """<cotangent, J tangent> = <J^T cotangent, tangent>, to rounding."""
    fn, primals = checks.partial_of(sample), checks.primals_of(sample)
    out, pullback = co.vjp(fn, *primals)
    tangents, cotangent = checks.random_like(primals, 5), checks.random_like(out, 6)
    _, moved = co.jvp(fn, primals, tangents)
    grads = pullback(cotangent)
    left, right = checks.pairing(cotangent, moved), checks.pairing(grads, tangents)
    checks.assert_near(left, right, 1e-11)


# ---- second derivatives ----


def _gradient(sample: Sample) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The pulled back cotangent as a function of primals and cotangent."""
    fn, primals = checks.partial_of(sample), checks.primals_of(sample)
    count = len(primals)
    cotangent = checks.random_like(fn(*primals), 7)

    def gradient(*values: Any) -> Any:
        _, pullback = co.vjp(fn, *values[:count])
        return pullback(tuple(values[count:]))

    return gradient, (*primals, *cotangent)


TWICE = [s for s in DIFFERENTIABLE if s.second]


@checks.over(TWICE)
def test_second_derivative_is_the_difference(sample: Sample) -> None:
    """The gradient of a projection of the gradient gives its slope."""
    gradient, values = _gradient(sample)
    first, pullback = co.vjp(gradient, *values)
    weights = checks.random_like(first, 8)
    grads = pullback(weights)
    direction = checks.random_like(values, 9)
    slope = checks.difference(gradient, values, direction)
    actual = checks.pairing(grads, direction)
    checks.assert_near(actual, checks.pairing(weights, slope), 2e-6)


@checks.over(TWICE)
def test_forward_over_reverse_is_the_difference(sample: Sample) -> None:
    """The tangent of the gradient is its slope."""
    gradient, values = _gradient(sample)
    direction = checks.random_like(values, 10)
    _, moved = co.jvp(gradient, values, direction)
    expected = checks.difference(gradient, values, direction)
    for actual, slope in zip(moved, expected, strict=True):
        checks.assert_near(actual, slope, 2e-6)


# ---- batches ----


def _stacked(rows: list[Any]) -> list[Any]:
    columns = zip(*(checks.leaves(row) for row in rows), strict=True)
    return [np.stack([np.asarray(x) for x in column]) for column in columns]


_IDENTITY = checks.Identity()


def _seen_by_index(args: list[Any], batched: tuple[int, ...]) -> list[Any]:
    """The arguments, with plain arrays traced where batched integers index them.

    ``x[i]`` with a plain `x` would ask `i` for its value.
    """
    if not all(args[i].dtype.kind in "iub" for i in batched):
        return args
    arrays = [
        isinstance(a, np.ndarray) and i not in batched for i, a in enumerate(args)
    ]
    pairs = zip(args, arrays, strict=True)
    return [_IDENTITY.wrap(a) if is_plain else a for a, is_plain in pairs]


@pytest.mark.parametrize(("dim", "size"), [(0, 3), (-1, 2), (0, 1)])
@checks.over(BATCHED)
def test_vmap_is_the_loop(sample: Sample, dim: int, size: int) -> None:
    """Batched calls give NumPy's results row by row, for every choice of batches."""
    for batched in checks.subsets(checks.array_positions(sample)):
        args, dims = checks.batched_args(sample, batched, size, dim)
        rows = [checks.call(sample, *checks.row_of(args, dims, i)) for i in range(size)]
        given = _seen_by_index(args, batched)
        out = co.vmap(lambda *a: checks.call(sample, *a), in_dims=dims)(*given)
        out = optree.tree_map(_IDENTITY.lower, out)
        actual, expected = checks.leaves(out), _stacked(rows)
        assert [np.asarray(a).dtype for a in actual] == [e.dtype for e in expected]
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-12, atol=1e-12)


@checks.over([s for s in DIFFERENTIABLE if s.vmap])
def test_vmap_and_vjp_nest(sample: Sample) -> None:
    """The vmap of a vjp and the vjp of a vmap give the gradients of the rows."""
    fn, primals = checks.partial_of(sample), checks.primals_of(sample)
    batches = [checks.batch_of(x, 2, 0) for x in primals]
    rows = [[b[i] for b in batches] for i in range(2)]
    cotangents = [checks.random_like(fn(*row), 11 + i) for i, row in enumerate(rows)]
    wide = tuple(np.stack(column) for column in zip(*cotangents, strict=True))

    def gradient(*values: Any) -> Any:
        return co.vjp(fn, *values[: len(primals)])[1](tuple(values[len(primals) :]))

    expected = _stacked(
        [gradient(*row, *g) for row, g in zip(rows, cotangents, strict=True)]
    )
    inside = co.vmap(gradient)(*batches, *wide)
    outside = co.vjp(co.vmap(fn), *batches)[1](wide)
    for a, b, e in zip(inside, outside, expected, strict=True):
        checks.assert_near(a, e, 1e-11)
        checks.assert_near(b, e, 1e-11)


# ---- dtypes ----


def _narrow(value: Any) -> Any:
    known = {"float64": np.float32, "complex128": np.complex64}
    if not isinstance(value, np.ndarray) or str(value.dtype) not in known:
        return value
    return value.astype(known[str(value.dtype)])


@checks.over([s for s in SAMPLES if s.name != "sum-dtype"])
def test_single_precision_is_kept(sample: Sample) -> None:
    """Single precision gives NumPy's dtypes, and gradients of single precision."""
    args = [_narrow(a) for a in sample.args]
    narrow = Sample(sample.name, sample.fn, tuple(args), sample.kwargs, sample.diff)
    expected = checks.leaves(checks.call(narrow, *args))
    out, _ = checks.through_operators(narrow, *args)
    fakes = checks.leaves(co.eval_shape(sample.fn, *args, **sample.kwargs))
    dtypes = [np.asarray(e).dtype for e in expected]
    assert [np.asarray(a).dtype for a in checks.leaves(out)] == dtypes
    assert [t.dtype for t in fakes] == dtypes
    if sample.diff:
        _check_single_gradients(sample, narrow)


def _check_single_gradients(sample: Sample, narrow: Sample) -> None:
    primals, wide = checks.primals_of(narrow), checks.primals_of(sample)
    out, pullback = co.vjp(checks.partial_of(narrow), *primals)
    exact, pull_exact = co.vjp(checks.partial_of(sample), *wide)
    cotangent = checks.random_like(out, 12)
    grads = pullback(cotangent)
    wider = tuple(g.astype(y.dtype) for g, y in zip(cotangent, exact, strict=True))
    assert [g.dtype for g in grads] == [x.dtype for x in primals]
    for g, e in zip(grads, pull_exact(wider), strict=True):
        checks.assert_near(g, e, 2e-4)


# ---- completeness ----

BUILT_IN = sorted(name for name in all_operators() if name.startswith("np::"))


def _takes_arrays(op: Any) -> bool:
    return bool(op.array_slots or op.nested_slots)


@pytest.mark.parametrize("name", BUILT_IN)
def test_operator_has_all_rules(name: str) -> None:
    """Every operator of NumPy has fake, autograd and vmap rules."""
    op = all_operators()[name]
    kinds = ["fake", AUTOGRAD, VMAP] if _takes_arrays(op) else ["fake"]
    assert [kind for kind in kinds if op.find_rule(kind) is None] == []


def test_every_operator_has_a_sample() -> None:
    """The samples use every operator of NumPy that takes arrays."""
    missing = {name for name in BUILT_IN if _takes_arrays(all_operators()[name])}
    for sample in SAMPLES:
        missing -= checks.through_operators(sample, *sample.args)[1]
    for sample in SAMPLES:  # what formulas alone use
        if missing:
            missing -= checks.operators_of(sample)
    assert sorted(missing) == []
