"""Odd arguments: where NumPy refuses one, a transform does, and where not it has its values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.cases import each

X = np.array([[1.5, -2.0, 4.0], [0.25, 3.0, -1.0]])
LINE = np.array([1.0, 2.0, 4.0])
Call = Callable[[Any], Any]

RUNS: dict[str, Callable[[Call, Any], Any]] = {
    "grad": lambda f, x: co.grad(lambda t: (f(t), np.sum(t))[1])(x),
    "jvp": lambda f, x: co.jvp(lambda t: (f(t), np.sum(t))[1], (x,), (x,)),
    "vmap": lambda f, x: co.vmap(lambda t: (f(t), np.sum(t))[1])(np.stack([x, x])),
    "fake": lambda f, x: f(co.fake_like(x)),
}

REDUCTIONS: dict[str, Any] = {
    name: getattr(np, name)
    for name in (
        *("sum", "prod", "mean", "max", "min", "amax", "amin", "ptp", "var", "std"),
        *("nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd"),
        *("average", "any", "all", "count_nonzero"),
    )
}
KEPT: tuple[Any, ...] = (None, 1.0, 1j, "x", [], (0, 0), np.array(0.0), np.True_)
AXES: tuple[Any, ...] = (True, [0], [], 1.0, "x", (0, 1.0), np.array([0, 1]), (True,))

REFUSED: dict[str, Call] = {
    "repeat-array": lambda x: np.repeat(x, np.array(1.5)),
    "repeat-row": lambda x: np.repeat(x, np.array([1.5])),
    "repeat-complex": lambda x: np.repeat(x, 1j),
    "repeat-nan": lambda x: np.repeat(x, np.nan),
    "repeat-axis": lambda x: np.repeat(x, 2, axis=True),
    "take-axis": lambda x: np.take(x, [0], axis=True),
    "compress-scalar": lambda x: np.compress(True, x),
    "compress-rows": lambda x: np.compress([[True, False]], x),
    "compress-none": lambda x: np.compress(None, x),
    "partition": lambda x: np.partition(x, True),
    "argpartition": lambda x: np.argpartition(x, [True]),
    "vander": lambda x: np.vander(x[0], -1),
    "squeeze-list": lambda x: np.squeeze(x, []),
    "squeeze-bool": lambda x: np.squeeze(x[:, :1], True),
    "copyto-floats": lambda x: np.copyto(x * 1.0, 1.0, where=np.array(1.5)),
    "copyto-ints": lambda x: np.copyto(x * 1.0, 1.0, where=np.array([1, 0, 1])),
    "interp-left": lambda x: np.interp(x[0], LINE, LINE, left=1j),
    "interp-right": lambda x: np.interp(x[0], LINE, LINE, right=[1.0]),
    "interp-text": lambda x: np.interp(x[0], LINE, LINE, right="1"),
    "pad-none": lambda x: np.pad(x, 1, mode="linear_ramp", end_values=None),
    "piecewise-row": lambda x: np.piecewise(x, [np.arange(3) > 1], [2.0, 1.0]),
    "piecewise-column": lambda x: np.piecewise(x, [[[True], [False]]], [2.0]),
    "piecewise-one": lambda x: np.piecewise(x[0], [np.array([True])], [np.exp]),
    "piecewise-number": lambda x: np.piecewise(x[0, 0], [np.arange(3) > 1], [2.0]),
    "piecewise-ragged": lambda x: np.piecewise(x, [[True, False], [True]], [2.0, 1.0]),
    "piecewise-values": lambda x: np.piecewise(x[0], [np.arange(3) > 1], [LINE]),
    "histogram2d-none": lambda x: np.histogram2d(x[0], LINE, np.array([0, 2])),
    "histogram2d-second": lambda x: np.histogram2d(x[0], LINE, np.array([2, -1])),
    "histogramdd-none": lambda x: np.histogramdd(x.T, [np.int64(2), np.array(0)]),
    "average-weights": lambda x: np.average(x, axis=0, weights=[1.0]),
}

# NumPy's own code takes no bool as a length or an axis.
BOOLS: dict[str, Callable[[Any, Any], Any]] = {
    "zeros_like": lambda x, yes: np.zeros_like(x, shape=yes),
    "zeros_like-one": lambda x, yes: np.zeros_like(x, shape=(2, yes)),
    "full_like": lambda x, yes: np.full_like(x, x[0], shape=(yes, 3)),
    "ones": lambda x, yes: np.ones(yes, like=x),
    "full": lambda x, yes: np.full(yes, 1.0, like=x),
    "full-array": lambda x, yes: np.full(yes, x[0, 0], like=x),
    "eye": lambda x, yes: np.eye(yes, like=x),
    "eye-columns": lambda x, yes: np.eye(2, yes, like=x),
    "identity": lambda x, yes: np.identity(yes, like=x),
    "reshape": lambda x, yes: np.reshape(x[0, :1], yes),
    "reshape-rest": lambda x, yes: x.reshape(yes, -1),
    "resize": lambda x, yes: np.resize(x, (yes, 2)),
    "broadcast_to": lambda x, yes: np.broadcast_to(x[0], (yes, 3)),
    "vander": lambda x, yes: np.vander(x[0], yes),
    "fft": lambda x, yes: np.fft.fft(x, yes),
    "fft2": lambda x, yes: np.fft.fft2(x, (yes, 2)),
    "bincount": lambda x, yes: np.bincount(np.arange(3), x[0], yes),
    "windows": lambda x, yes: np.lib.stride_tricks.sliding_window_view(x[0], yes),
    "transpose": lambda x, yes: np.transpose(x, (yes, 0)),
    "concatenate": lambda x, yes: np.concatenate([x, x], yes),
    "append": lambda x, yes: np.append(x, x, yes),
    "tensordot": lambda x, yes: np.tensordot(x, x, (yes, yes)),
    "argsort": lambda x, yes: np.argsort(x, axis=yes),
    "argpartition": lambda x, yes: np.argpartition(x, 1, axis=yes),
    "trapezoid": lambda x, yes: np.trapezoid(x, axis=yes),
    "unwrap": lambda x, yes: np.unwrap(x, axis=yes),
    "cumulative_sum": lambda x, yes: np.cumulative_sum(x, axis=yes),
    "cumulative_prod": lambda x, yes: np.cumulative_prod(x, axis=(yes,)),
    "accumulate": lambda x, yes: np.add.accumulate(x, axis=yes),
    "reduceat": lambda x, yes: np.maximum.reduceat(x, [0], axis=yes),
    "norm": lambda x, yes: np.linalg.norm(x, axis=(yes,)),
    "cumsum": lambda x, yes: np.cumsum(x, axis=yes),
}


def refusal(call: Call, x: Any) -> type[Exception] | None:
    """The class of the error of a call."""
    try:
        call(x)
    except Exception as error:  # noqa: BLE001  # its class is the answer
        return type(error)
    return None


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_numpy_refuses_is_refused(call: Call) -> None:
    """The error is of the class that NumPy raises."""
    expected = refusal(call, X)
    assert expected is not None

    def check(name: str) -> None:
        with pytest.raises(expected):
            RUNS[name](call, X)

    each(check, zip(RUNS))


@pytest.mark.parametrize("call", BOOLS.values(), ids=BOOLS)
def test_a_bool_is_not_a_length_or_an_axis(call: Any) -> None:
    """Where NumPy refuses a bool, it is not read as 1."""

    def check(yes: Any, name: str) -> None:
        expected = refusal(lambda x: call(x, yes), X)
        assert expected is not None
        with pytest.raises(expected):
            RUNS[name](lambda x: call(x, yes), X)

    each(check, itertools.product([True, np.True_], RUNS))


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_bool_of_a_function_in_python_is_a_number(run: Any) -> None:
    """NumPy's functions in Python take it: so do those for traced values."""
    for call, shape in (
        (lambda x: np.tile(x, (True, 2)), (2, 6)),
        (lambda x: np.fft.rfft(x, True), (2, 1)),
        (lambda x: np.linalg.norm(x, axis=True), (2,)),
    ):
        assert call(X).shape == shape
        seen: list[Any] = []
        run(lambda x, call=call, seen=seen: seen.append(call(x).shape), X)
        assert seen == [shape]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("keyword", ["keepdims", "axis"])
def test_axes_and_keepdims_are_those_that_numpy_takes(name: str, keyword: str) -> None:
    """A reduction takes what NumPy's does: no lists of axes, no floats as keepdims."""
    for value in KEPT if keyword == "keepdims" else AXES:
        given: dict[str, Any] = {"axis": 0, keyword: value}

        def call(x: Any, given: Any = given) -> Any:
            return REDUCTIONS[name](x, **given)

        expected = refusal(call, X)
        for how, run in RUNS.items():
            found = refusal(lambda x, run=run: run(call, x), X)
            assert (found is None) == (expected is None), (how, value, found, expected)
            assert expected is None or issubclass(found or object, expected | TypeError)


def shown(run: str, call: Call, x: Any) -> Any:
    """The value of a call under a transform."""
    found: list[Any] = []

    def keep(t: Any) -> Any:
        value = call(t)
        while isinstance(value, co.Tracer):
            value = value.below
        found.append(value)
        return np.sum(t)

    RUNS[run](keep, x)
    return found[0]


VALUES: dict[str, Call] = {
    "quantile-bool": lambda x: np.nanquantile(x, True),
    "quantile-bools": lambda x: np.nanquantile(x, [True, False], axis=0),
    "cov-bias-none": lambda x: np.cov(x, bias=None),
    "cov-bias-list": lambda x: np.cov(x, bias=[]),
    "pad-none": lambda x: np.pad(x, 1, constant_values=None),
    "pad-half-none": lambda x: np.pad(x, 1, constant_values=(None, 2.0)),
    "var-complex-mean": lambda x: np.var(x, mean=1j),
    "std-complex-mean": lambda x: np.std(x, axis=0, mean=0.5j),
    "var-no-mean": lambda x: np.var(x, mean=None),
    "repeat-float": lambda x: np.repeat(x, 2.0),
    "repeat-float64": lambda x: np.repeat(x, np.float64(2.0), axis=1),
    "average-axis-list": lambda x: np.average(x, axis=[0, 1]),
    "average-axis-bool": lambda x: np.average(x, axis=True),
    "keepdims-int": lambda x: np.sum(x, axis=0, keepdims=2),
    "axis-array": lambda x: np.sum(x, axis=np.array(1)),
    "interp-left": lambda x: np.interp(x[0], LINE, LINE, left=np.float32(0.1)),
    "interp-complex": lambda x: np.interp(x[0], LINE, LINE * 1j, left=2j),
}


@pytest.mark.parametrize("run", ["grad", "jvp"])
@pytest.mark.parametrize("call", VALUES.values(), ids=VALUES)
def test_what_numpy_takes_has_its_value(call: Call, run: str) -> None:
    """Odd arguments that NumPy reads in a way of its own."""
    expected = call(X)
    found = shown(run, call, X)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_none_as_padding_is_refused_for_integers() -> None:
    """NumPy reads None as nan, and has none among integers."""

    def rows(x: Any) -> Any:
        return np.pad(x, 1, constant_values=None)

    whole = np.arange(6).reshape(2, 3)
    for run in (lambda: rows(whole), lambda: co.vmap(rows)(whole[None])):
        with pytest.raises(TypeError, match=r"int\(\) argument must be"):
            run()


def test_a_complex_ddof_is_an_error_that_says_so() -> None:
    """NumPy 2.4 warns, and returns the real part of a quotient that means nothing."""
    with pytest.raises(co.ArgumentError) as caught:
        co.grad(lambda x: np.var(x, ddof=1j))(X)
    assert str(caught.value) == ("np.var: ddof=1j is complex\n  do: give a real number")


# ---- one traced argument beside plain ones ----

ROWS: list[list[float]] = X.tolist()
MEAN = np.mean(X, axis=1, keepdims=True)
ALONE: dict[str, tuple[Call, Any]] = {
    "var-mean": (lambda m: np.var(ROWS, axis=1, mean=m), MEAN),
    "std-mean": (lambda m: np.std(ROWS, axis=1, mean=m), MEAN + 0.5),
    "average-weights": (lambda w: np.average(ROWS, axis=1, weights=w), LINE),
    "quantile-q": (lambda q: np.quantile(ROWS, q), np.array(0.3)),
    "percentile-q": (lambda q: np.percentile(ROWS, q, axis=0), np.array([30.0, 55.0])),
    "interp-fp": (lambda fp: np.interp([1.5, 9.0], [1.0, 2.0, 4.0], fp), LINE),
    "interp-x": (lambda x: np.interp(x, [1.0, 2.0, 5.0], [3.0, 1.0, 2.0]), LINE + 0.2),
    "trapezoid-x": (lambda x: np.trapezoid(ROWS, x), LINE),
    "where-y": (lambda y: np.where([True, False, True], [1.0, 2.0, 3.0], y), LINE),
    "select": (lambda y: np.select([[True, False, True]], [y], 2.0), LINE),
    "clip-max": (lambda m: np.clip([1.0, 2.0, 3.0], None, m), LINE / 2 + 0.1),
    "polyval-x": (lambda x: np.polyval([1.0, 2.0], x), LINE),
    "convolve": (lambda v: np.convolve([1.0, 2.0], v), LINE),
    "gradient-step": (lambda h: np.gradient([1.0, 4.0, 9.0], h), np.array(2.0)),
    "insert": (lambda v: np.insert([1.0, 2.0], 1, v), np.array(3.0)),
    "diff-prepend": (lambda v: np.diff([1.0, 2.0], prepend=v), np.array([3.0])),
    "isclose-rtol": (lambda r: np.isclose([1.0], [1.1], rtol=r) * r, np.array(0.2)),
}


@pytest.mark.parametrize(("call", "x"), ALONE.values(), ids=ALONE)
def test_one_traced_argument_beside_lists(call: Call, x: Any) -> None:
    """The value is NumPy's, and the gradient that of a central difference."""

    def total(t: Any) -> Any:
        value = call(t)
        weights = np.cos(np.arange(np.size(np.asarray(call(x))))).reshape(
            np.shape(call(x))
        )
        return np.sum(value * weights)

    value, slope = co.value_and_grad(total)(x)
    np.testing.assert_allclose(value, total(x), rtol=1e-14)
    flat = x.astype(float).reshape(-1)
    step = 1e-6
    expected = [
        (
            total((flat + step * e).reshape(x.shape))
            - total((flat - step * e).reshape(x.shape))
        )
        / (2 * step)
        for e in np.eye(flat.size)
    ]
    np.testing.assert_allclose(np.ravel(slope), expected, rtol=1e-6, atol=1e-8)
    rows = co.vmap(call)(np.stack([x, x * 1.1]))
    np.testing.assert_allclose(rows[1], call(x * 1.1), rtol=1e-13)


def test_a_traced_mask_beside_a_list() -> None:
    """The rows of where= select elements of the list."""
    masks = np.array(
        [[[True, False, True], [True, True, True]], [[False, True, True]] * 2]
    )
    for reduce in (np.mean, np.var, np.std, np.sum):
        found = co.vmap(lambda m, reduce=reduce: reduce(ROWS, where=m))(masks)
        expected = [reduce(ROWS, where=mask) for mask in masks]
        np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("odd", [None, "x", {}], ids=repr)
def test_rows_beside_what_is_not_an_array(odd: Any) -> None:
    """The error names the parameter, as under the other transforms."""
    for call in (lambda x: x + odd, lambda x: np.multiply(odd, x)):
        with pytest.raises(TypeError, match=r"Array\|Scalar|unsupported operand"):
            co.vmap(call)(X)


SHOWN: dict[str, tuple[Call, str]] = {
    "diff": (lambda x: np.diff(x, -1), "np.diff(float64[3], -1)"),
    "diag": (lambda x: np.diag(x[None, None]), "np.diag(float64[1, 1, 3])"),
    "block": (lambda x: np.block([x, [x]]), "np.block([float64[3], [float64[3]]])"),
    "interp": (
        lambda x: np.interp(x, LINE, x[:2]),
        "np.interp(0.0, float64[3], float64[2])",
    ),
    "gradient": (
        lambda x: np.gradient(x, edge_order=3),
        "np.gradient(float64[3], edge_order=3)",
    ),
    "minimum": (
        lambda x: np.min(x, where=x > 0),
        "np.minimum.reduce(float64[1], where=False)",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_errors_have_numpys_words_and_show_the_call(name: str) -> None:
    """The first line is NumPy's; the second one has dtypes and shapes, also symbolic ones."""
    call, shown = SHOWN[name]
    with pytest.raises((TypeError, ValueError)) as expected:
        call(LINE)
    first = str(expected.value).splitlines()[0]
    runs: dict[str, Callable[[], Any]] = {
        "grad": lambda: co.grad(lambda x: (call(x), np.sum(x))[1])(LINE),
        "fake": lambda: co.eval_shape(call, LINE),
        "symbolic": lambda: co.make_fx(call, tracing_mode="symbolic")(LINE),
    }
    for run in runs.values():
        with pytest.raises(type(expected.value)) as found:
            run()
        assert str(found.value).splitlines()[0] == first
        assert shown in str(found.value)
