"""Every sample gets every check, against NumPy and finite differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from customop.core.builtin_kinds import AUTOGRAD, VMAP
from customop.core.registry import all_operators
from customop.core.rule_kind import COMPOSITE
from tests.cases import cases
from tests.conformance import checks
from tests.conformance.samples import Sample
from tests.conformance.symbolic import agree

SAMPLES = checks.all_samples()

# What one sample worked out is of no use to the next one.
pytestmark = pytest.mark.usefixtures("always_checked", "nothing_known")


@checks.over(SAMPLES, afresh=True)
def test_sample(sample: Sample) -> None:
    """Operators give NumPy's values; derivatives and batches are those of NumPy's code."""
    worked = Worked(sample)
    with cases() as case:
        for check in _checks_of(sample):
            with case(check.__name__.removeprefix("_")):
                check(worked)
        for dim, size in _BATCHES if _is_batched(sample) else ():
            with case(f"vmap_is_the_loop of {size} rows along {dim}"):
                _vmap_is_the_loop(sample, dim, size)


def test_names_are_unique() -> None:
    """No two samples share a name."""
    twice = [n for n, count in Counter(s.name for s in SAMPLES).items() if count > 1]
    assert twice == []


def test_the_tiers_run_every_sample_once() -> None:
    """Each tier has its samples, and a group names those that fail."""
    seen, wrong, failed = [], set(), []

    def check(sample: Sample) -> None:
        seen.append(sample.name)
        assert sample.name not in wrong

    run = checks.over(SAMPLES, fifth=2)(check)
    groups = [row.values[0] for row in run.pytestmark[0].args[1]]
    name = next(group for group in groups if len(group) == 12)[3].name
    wrong.add(name)
    for group in groups:
        try:
            run(group)
        except ExceptionGroup as error:
            failed.append(error.message)
    assert failed == [f"1 of 12 cases failed: {name}"]
    assert sorted(seen) == sorted(sample.name for sample in SAMPLES)


def _checks_of(sample: Sample) -> Iterator[Callable[[Worked], None]]:
    """Yield the checks that a sample gets, besides those of batches alone."""
    yield from (_kernel_is_numpy, _fake_is_real)
    if sample.name != "sum-dtype":
        yield _single_precision_is_kept
    if not sample.diff:
        return
    yield from (_vjp_is_the_difference, _jvp_is_the_difference)
    yield _jvp_and_vjp_are_transposed
    if sum(x.size for x in checks.primals_of(sample)) <= 6:
        yield _vjp_is_the_difference_by_element
    if sample.second:
        yield _second_derivative_is_the_difference
        yield _forward_over_reverse_is_the_difference
    if sample.vmap:
        yield _vmap_and_vjp_nest


def _is_batched(sample: Sample) -> bool:
    return sample.vmap and bool(checks.array_positions(sample))


# Axis of a batch and number of its rows.
_BATCHES = ((0, 3), (-1, 2), (0, 1))


class Worked:
    """What the checks of a sample share, worked out when the first of them asks.

    Attributes
    ----------
    sample : Sample
        As the table has it.
    """

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.fn = checks.partial_of(sample)
        self.primals = checks.primals_of(sample)

    @cached_property
    def numpys(self) -> list[Any]:
        """The results of NumPy."""
        return checks.leaves(checks.call(self.sample, *self.sample.args))

    @cached_property
    def results(self) -> list[Any]:
        """The results of the operators."""
        out, _ = checks.through_operators(self.sample, *self.sample.args)
        return checks.leaves(out)

    @cached_property
    def vjp(self) -> tuple[Any, Callable[[Any], Any]]:
        """The results that have a derivative, and the pullback."""
        return co.vjp(self.fn, *self.primals)

    @cached_property
    def cotangent(self) -> tuple[Any, ...]:
        """One of the results."""
        return checks.random_like(self.vjp[0], 1)

    @cached_property
    def grads(self) -> Any:
        """The cotangent, pulled back."""
        return self.vjp[1](self.cotangent)

    @cached_property
    def directions(self) -> list[tuple[Any, ...]]:
        """Two directions of the primals."""
        return [checks.random_like(self.primals, seed) for seed in (2, 3)]

    @cached_property
    def slopes(self) -> list[list[Any]]:
        """Differences of NumPy's results in these directions."""
        return [checks.difference(self.fn, self.primals, d) for d in self.directions]

    @cached_property
    def jvp(self) -> Any:
        """Results and tangents in the first direction."""
        return co.jvp(self.fn, self.primals, self.directions[0])

    @cached_property
    def gradient(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The pulled back cotangent as a function of primals and cotangent, and these."""
        count = len(self.primals)

        def gradient(*values: Any) -> Any:
            _, pullback = co.vjp(self.fn, *values[:count])
            return pullback(tuple(values[count:]))

        return gradient, (*self.primals, *self.cotangent)

    @cached_property
    def gradient_slope(self) -> tuple[tuple[Any, ...], list[Any]]:
        """A direction of the arguments of the gradient, and its difference there."""
        gradient, values = self.gradient
        direction = checks.random_like(values, 9)
        return direction, checks.difference(gradient, values, direction)


# ---- kernels and fake kernels ----


def _kernel_is_numpy(worked: Worked) -> None:
    """Operators give NumPy's values and dtypes."""
    actual, expected = worked.results, worked.numpys
    assert [np.asarray(a).dtype for a in actual] == [
        np.asarray(e).dtype for e in expected
    ]
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-13, atol=1e-13)


def _fake_is_real(worked: Worked) -> None:
    """Fake arrays have the shape, dtype and order of axes of real results."""
    sample, real = worked.sample, worked.results
    fakes = checks.leaves(co.eval_shape(sample.fn, *sample.args, **sample.kwargs))
    agree(fakes, real, {})
    if any(co.sizes.is_symbolic(x.shape) for x in fakes):  # by data
        return
    if not any(_is_broadcast(a) for a in [*sample.args, *real]):
        assert [_order(x) for x in fakes] == [_order(np.asarray(x)) for x in real]


def _order(x: Any) -> list[int]:
    axes = sorted(range(x.ndim), key=lambda i: -abs(x.strides[i]))
    return [i for i in axes if x.shape[i] > 1] if x.size else []


def _is_broadcast(x: Any) -> bool:
    pairs = zip(np.shape(x), getattr(x, "strides", ()), strict=False)
    return any(stride == 0 and length > 1 for length, stride in pairs)


# ---- first derivatives ----


def _vjp_is_the_difference(worked: Worked) -> None:
    """A pulled back cotangent gives the slope in any direction."""
    assert [g.dtype for g in worked.grads] == [x.dtype for x in worked.primals]
    for direction, slope in zip(worked.directions, worked.slopes, strict=True):
        expected = checks.pairing(worked.cotangent, slope)
        checks.assert_near(checks.pairing(worked.grads, direction), expected)


def _vjp_is_the_difference_by_element(worked: Worked) -> None:
    """Each element of a gradient is the slope by that element."""
    primals = worked.primals
    for i, x in enumerate(primals):
        expected = np.zeros(x.shape, x.dtype)
        for at in np.ndindex(x.shape):
            for unit in (1.0, 1j) if x.dtype.kind == "c" else (1.0,):
                direction = [np.zeros_like(p) for p in primals]
                direction[i][at] = unit
                slope = checks.difference(worked.fn, primals, direction)
                # The slope along i is minus the imaginary part of the gradient.
                expected[at] += np.conj(unit) * checks.pairing(worked.cotangent, slope)
        checks.assert_near(worked.grads[i], expected)


def _jvp_is_the_difference(worked: Worked) -> None:
    """A tangent pushed forward is the slope of the results."""
    out, moved = worked.jvp
    assert [t.dtype for t in moved] == [y.dtype for y in out]
    for actual, slope in zip(moved, worked.slopes[0], strict=True):
        checks.assert_near(actual, slope)


def _jvp_and_vjp_are_transposed(worked: Worked) -> None:
    """<cotangent, J tangent> = <J^T cotangent, tangent>, to rounding."""
    left = checks.pairing(worked.cotangent, worked.jvp[1])
    right = checks.pairing(worked.grads, worked.directions[0])
    checks.assert_near(left, right, 1e-11)


# ---- second derivatives ----


def _second_derivative_is_the_difference(worked: Worked) -> None:
    """The gradient of a projection of the gradient gives its slope."""
    gradient, values = worked.gradient
    direction, slope = worked.gradient_slope
    first, pullback = co.vjp(gradient, *values)
    weights = checks.random_like(first, 8)
    actual = checks.pairing(pullback(weights), direction)
    checks.assert_near(actual, checks.pairing(weights, slope), 2e-6)


def _forward_over_reverse_is_the_difference(worked: Worked) -> None:
    """The tangent of the gradient is its slope."""
    gradient, values = worked.gradient
    direction, expected = worked.gradient_slope
    _, moved = co.jvp(gradient, values, direction)
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


def _vmap_is_the_loop(sample: Sample, dim: int, size: int) -> None:
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


def _vmap_and_vjp_nest(worked: Worked) -> None:
    """The vmap of a vjp and the vjp of a vmap give the gradients of the rows."""
    fn, primals = worked.fn, worked.primals
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


def _single_precision_is_kept(worked: Worked) -> None:
    """Single precision gives NumPy's dtypes, and gradients of single precision."""
    sample = worked.sample
    args = [_narrow(a) for a in sample.args]
    narrow = Sample(sample.name, sample.fn, tuple(args), sample.kwargs, sample.diff)
    expected = checks.leaves(checks.call(narrow, *args))
    out, _ = checks.through_operators(narrow, *args)
    fakes = checks.leaves(co.eval_shape(sample.fn, *args, **sample.kwargs))
    dtypes = [np.asarray(e).dtype for e in expected]
    assert [np.asarray(a).dtype for a in checks.leaves(out)] == dtypes
    assert [t.dtype for t in fakes] == dtypes
    if sample.diff:
        _check_single_gradients(worked, narrow)


def _check_single_gradients(worked: Worked, narrow: Sample) -> None:
    primals = checks.primals_of(narrow)
    out, pullback = co.vjp(checks.partial_of(narrow), *primals)
    exact, pull_exact = worked.vjp
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


def test_operators_have_all_rules() -> None:
    """Every operator of NumPy has fake, autograd and vmap rules, or a body of operators."""
    missing = {}
    for name in BUILT_IN:
        op = all_operators()[name]
        if COMPOSITE in op.rows:
            continue
        kinds = ["fake", AUTOGRAD, VMAP] if _takes_arrays(op) else ["fake"]
        missing[name] = [kind for kind in kinds if op.find_rule(kind) is None]
    assert len(missing) > 200
    assert {name: kinds for name, kinds in missing.items() if kinds} == {}


@pytest.mark.exhaustive
def test_every_operator_has_a_sample() -> None:
    """The samples use every operator of NumPy that takes arrays, but for those with bodies.

    The samples see the operators of their bodies.
    """
    operators = {name: all_operators()[name] for name in BUILT_IN}
    missing = {
        name
        for name, op in operators.items()
        if _takes_arrays(op) and COMPOSITE not in op.rows
    }
    is_first = checks.first_of_functions(SAMPLES)
    order = sorted(range(len(SAMPLES)), key=lambda i: not is_first[i])  # they use most
    for i in order:
        if missing:
            missing -= checks.through_operators(SAMPLES[i], *SAMPLES[i].args)[1]
    for i in order:  # what formulas alone use
        if missing:
            missing -= checks.operators_of(SAMPLES[i])
    assert sorted(missing) == []
