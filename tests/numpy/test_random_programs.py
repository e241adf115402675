"""Random NumPy programs give NumPy's numbers or errors under every transform.

The oracles are NumPy itself, differences, and that jvp and vjp are transposes.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from tests.numpy._random_programs import Draw, program

pytestmark = [
    pytest.mark.exhaustive,
    # What NumPy warns of depends on the order of the operations.
    pytest.mark.filterwarnings("ignore"),
]
SEEDS = pytest.mark.parametrize("seed", range(12))
COUNT = 200
# Relative errors by dtype: of values, and of derivatives.
NEAR = {"f2": 5e-3, "f4": 2e-5, "f8": 1e-11, "c8": 2e-5, "c16": 1e-11}
SLOPES = {"f2": 3e-2, "f4": 2e-4, "f8": 1e-9, "c8": 2e-4, "c16": 1e-9}


def run(fn: Callable[..., Any], *args: Any) -> tuple[Any, Exception | None]:
    """The result of a call, or its error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return fn(*args), None
        except Exception as error:  # noqa: BLE001  # any error is compared with NumPy's
            return None, error


def leaves(value: Any) -> list[Any]:
    """The arrays and numbers of a result."""
    return list(optree.tree_leaves(value))


def is_refused(error: Exception) -> bool:
    """Whether an error says that something has no operator."""
    text = str(error)
    return isinstance(error, co.MissingRuleError | co.DataDependentError) or any(
        words in text for words in ("has no operator", "is not supported for traced")
    )


# ---- values, shapes and errors ----


class Boxes(co.Interpreter):
    """Passes every call on to the values below."""

    kind = co.RuleKind("boxes")

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        return self.wrap(op.invoke(self.unwrap(args)))


def traced(fn: Callable[..., Any], arrays: list[Any], place: random.Random) -> Any:
    """The result for traced values of any dtype."""
    with Boxes() as boxes:
        return optree.tree_map(boxes.lower, fn(*boxes.wrap(list(arrays))))


def batched(fn: Callable[..., Any], arrays: list[Any], place: random.Random) -> Any:
    """The result for one of two equal rows, along any axis."""
    dims = tuple([place.randint(0, x.ndim) for x in arrays])
    batches = [np.stack([x, x], dim) for x, dim in zip(arrays, dims, strict=True)]
    rows = co.vmap(fn, in_dims=dims)(*batches)
    return optree.tree_map(lambda v: v[1], rows)


def faked(fn: Callable[..., Any], arrays: list[Any], place: random.Random) -> Any:
    """The shapes and dtypes of the result."""
    return co.eval_shape(fn, *arrays)


@SEEDS
@pytest.mark.parametrize("way", [traced, batched, faked])
def test_results_are_numpys(way: Callable[..., Any], seed: int) -> None:
    """Numbers, dtypes, shapes and errors are NumPy's, or a program is refused by name."""
    for i in range(COUNT):
        draw = Draw(f"{seed}-{i}")
        name, fn, arrays = program(draw)
        told = f"{seed}-{i}: {name} of {[f'{x.dtype}{x.shape}' for x in arrays]}"
        expected, error = run(fn, *arrays)
        found, mine = run(way, fn, arrays, draw)
        if error is not None:
            # Without data an index or an exponent cannot be wrong, nor a set empty.
            depends = isinstance(error, IndexError | ZeroDivisionError | OverflowError)
            said = ("negative integer", "All-NaN slice", "zero-size array to reduction")
            depends = depends or any(words in str(error) for words in said)
            is_blind = way is faked and depends
            assert mine is not None or is_blind or _is_lenient(name), (told, error)
        elif mine is not None:
            assert is_refused(mine), (told, mine)
        else:
            assert differences(found, expected) == [], told


def _is_lenient(name: str) -> bool:
    """Where NumPy's error is an accident.

    The first two have a result for empty arrays; the others give a bool that has axes where
    it is not known.
    """
    names = ("np.median(", "np.average(", "allclose", "array_equal", "array_equiv")
    return any(n in name for n in names)


def differences(found: Any, expected: Any) -> list[str]:
    """What differs between two results."""
    said = []
    for mine, numpys in zip(leaves(found), leaves(expected), strict=True):
        known = np.asarray(numpys)
        if not hasattr(mine, "shape"):
            said += [] if mine == numpys else [f"{mine} for {numpys}"]
        elif not _may_be(mine.shape, known.shape):
            said.append(f"shape {mine.shape} for {known.shape}")
        elif hasattr(numpys, "dtype") and mine.dtype != known.dtype:
            said.append(f"dtype {mine.dtype} for {known.dtype}")
        elif not isinstance(mine, co.FakeArray) and not is_near(mine, known):
            said.append(f"{mine} for {known}")
    return said


def _may_be(shape: Any, known: tuple[int, ...]) -> bool:
    """Whether a shape is the known one; sizes that depend on data need only allow it."""
    pairs = zip(shape, known, strict=False)
    return len(shape) == len(known) and all((a == b) is not False for a, b in pairs)


def is_near(mine: Any, known: Any) -> bool:
    """Whether numbers agree; nan in one part of a complex number hides the other."""
    error = NEAR.get(known.dtype.str[1:], 0.0)
    if known.dtype.kind != "c":
        return np.allclose(mine, known, rtol=error, atol=error, equal_nan=True)
    finite = np.isfinite(known)
    same = bool(np.all(finite == np.isfinite(mine)))
    near = np.allclose(
        np.where(finite, mine, 0), np.where(finite, known, 0), rtol=error, atol=error
    )
    return same and near


# ---- derivatives ----


class Smooth:
    """A program as a function of its inexact arrays, at a point where it has values."""

    def __init__(self, draw: Draw) -> None:
        self.name, self.fn, self.arrays = program(draw)
        self.places = [i for i, x in enumerate(self.arrays) if x.dtype.kind in "fc"]
        self.primals = [self.arrays[i] for i in self.places]
        self.expected, self.error = run(self.fn, *self.arrays)
        self._numbers = np.random.default_rng(draw.randrange(10**6))

    @property
    def is_regular(self) -> bool:
        """Whether it has an inexact result, and no value is nan or infinite."""
        values = [np.asarray(v) for v in leaves(self.expected)]
        inexact = [v for v in (*values, *self.primals) if v.dtype.kind in "fc"]
        has_result = any(v.dtype.kind in "fc" for v in values)
        return has_result and all(np.isfinite(v).all() for v in inexact)

    def __call__(self, *primals: Any) -> list[Any]:
        args = list(self.arrays)
        for i, x in zip(self.places, primals, strict=True):
            args[i] = x
        found = leaves(self.fn(*args))
        return [v for v in found if getattr(v, "dtype", np.dtype(int)).kind in "fc"]

    def like(self, x: Any) -> Any:
        """Random numbers of the shape and dtype of an array."""
        parts = self._numbers.uniform(-1, 1, (2, *np.shape(x)))
        both = parts[0] + 1j * parts[1]
        return np.asarray(both if x.dtype.kind == "c" else parts[0], x.dtype)


def pulled_back(fn: Callable[..., Any], primals: Any, cotangents: Any) -> Any:
    """The gradients of a function for these cotangents."""
    return co.vjp(fn, *primals)[1](cotangents)


def regular(seed: int) -> Any:
    """Programs with derivatives."""
    for i in range(COUNT):
        draw = Draw(f"{seed}-{i}")
        smooth = Smooth(draw)
        if smooth.error is None and smooth.primals and smooth.is_regular:
            yield f"{seed}-{i}: {smooth.name}", smooth


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> tuple[float, float]:
    """The real part of the sum of products, and the sum of their sizes."""
    products = [
        np.asarray(x, complex) * np.asarray(y, complex)
        for x, y in zip(xs, ys, strict=True)
    ]
    return (
        float(sum(np.sum(p).real for p in products)),
        float(sum(np.sum(abs(p)) for p in products)),
    )


def assert_transposed(told: str, first: Any, second: Any, error: float) -> None:
    """Two pairings agree; where one is not finite, neither is the other."""
    (a, size_a), (b, size_b) = first, second
    if np.isfinite(a) and np.isfinite(b):
        assert abs(a - b) <= error * (1 + size_a + size_b), told


@SEEDS
def test_jvp_and_vjp_are_transposes(seed: int) -> None:
    """Re(g J t) is the same by jvp and by vjp, and gradients are like their inputs."""
    for told, smooth in regular(seed):
        tangents = [smooth.like(x) for x in smooth.primals]
        found, error = run(co.jvp, smooth, tuple(smooth.primals), tuple(tangents))
        if error is not None:
            assert is_refused(error), (told, error)
            continue
        outputs, moved = found
        assert [t.shape for t in moved] == [y.shape for y in outputs], told
        cotangents = [smooth.like(y) for y in outputs]
        pulled, error = run(pulled_back, smooth, smooth.primals, cotangents)
        assert error is None, (told, error)
        pairs = list(zip(pulled, smooth.primals, strict=True))
        assert all((g.shape, g.dtype) == (x.shape, x.dtype) for g, x in pairs), told
        error = max(SLOPES[v.dtype.str[1:]] for v in (*outputs, *smooth.primals))
        assert_transposed(told, dot(cotangents, moved), dot(pulled, tangents), error)


def slope(
    fn: Callable[..., Any], xs: Sequence[Any], ts: Sequence[Any], h: float
) -> Any:
    """Central differences of the arrays that a function returns."""
    there, far = run(fn, *[x + h * t for x, t in zip(xs, ts, strict=True)])
    back, near = run(fn, *[x - h * t for x, t in zip(xs, ts, strict=True)])
    if far is not None or near is not None:
        return None
    with np.errstate(all="ignore"):
        return [(a - b) / (2 * h) for a, b in zip(there, back, strict=True)]


def assert_slope(told: str, found: Any, fn: Any, xs: Any, ts: Any) -> None:
    """Tangents are differences, wherever two steps give the same difference."""
    coarse, fine = slope(fn, xs, ts, 1e-5), slope(fn, xs, ts, 1e-6)
    if coarse is None or fine is None:
        return
    for mine, a, b in zip(found, coarse, fine, strict=True):
        with np.errstate(all="ignore"):
            is_stable = (abs(a - b) < 1e-4 * (1 + abs(a))) & (abs(mine) < 1e6)
            is_near = abs(mine - b) < 1e-3 * (1 + abs(b))
        assert np.all(is_near | ~is_stable), (told, mine, b)


def is_double(smooth: Smooth) -> bool:
    """Whether numbers have 64 bits, and none is so large that it hides a small step."""
    values = [np.asarray(v) for v in (*leaves(smooth.expected), *smooth.arrays)]
    numbers = [v for v in values if v.dtype.kind in "fc"]
    has_bits = all(v.dtype.str[1:] in ("f8", "c16") for v in numbers)
    return has_bits and all(np.all(abs(v.astype(complex)) < 1e4) for v in values)


@SEEDS
def test_derivatives_are_differences(seed: int) -> None:
    """First and second derivatives are differences of values and of gradients."""
    for told, smooth in regular(seed):
        if not is_double(smooth):
            continue
        primals = tuple(smooth.primals)
        tangents = tuple(smooth.like(x) for x in primals)
        found, error = run(co.jvp, smooth, primals, tangents)
        if error is not None:
            assert is_refused(error), (told, error)
            continue
        assert_slope(told, found[1], smooth, primals, tangents)
        cotangents = [smooth.like(y) for y in found[0]]

        def gradient(*xs: Any, s: Any = smooth, g: Any = cotangents) -> Any:
            return list(pulled_back(s, xs, g))

        second, error = run(co.jvp, gradient, primals, tangents)
        assert error is None, (told, error)
        assert_slope(f"second, {told}", second[1], gradient, primals, tangents)
        probes = [smooth.like(x) for x in primals]
        back, error = run(pulled_back, gradient, primals, probes)
        assert error is None, (told, error)
        assert_transposed(told, dot(probes, second[1]), dot(back, tangents), 1e-8)
