"""A compiled function warns and raises as often as the function, in the same words."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.capture import is_quiet
from tests.compiling.programs import observe

X = np.array([0.0, 1.0, -1.0])


def _unused(x: Any) -> Any:
    np.log(x)
    return x + 1.0


def _unused_in_place(x: Any) -> Any:
    y = x.copy()
    y /= x
    y[...] = 1j * x
    return x * 2.0


def _under(**settings: Any) -> Any:
    def fn(x: Any) -> Any:
        with np.errstate(**settings):
            y = np.log(x)
        return y + 1.0 / x

    return fn


def _set_back(x: Any) -> Any:
    old = np.seterr(divide="ignore")
    y = np.log(x)
    np.seterr(**old)
    return y + np.log(x)


@co.custom_op("compilewarn::positive", mutates_args=())
def positive(x: co.Array) -> co.Array:
    if (x < 0).any():
        raise ValueError("not positive")
    return x.copy()


@positive.register_fake
def _(x):
    return co.fake_like(x)


def _checked(x: Any) -> Any:
    positive(x)
    return x * 2.0


BACKENDS = ("numpy", "native")
PROGRAMS = {
    "unused": _unused,
    "unused in place": _unused_in_place,
    "unused custom operator": _checked,
    "twice": lambda x: np.log(x) + np.log(x),
    "inner as outer": _under(all="warn"),
    "inner quiet": _under(divide="ignore"),
    "inner raises": _under(invalid="raise"),
    "set back": _set_back,
    "scalars": lambda x: (x[0] / x[0], x[1] // x[0], x[2] % x[0], x[0] ** x[2]),
    "functions of scalars": lambda x: (
        np.divide(x[0], x[0]) + np.floor_divide(x[1], x[0])
    ),
    "integers": lambda x: (
        x[1].astype("i1") + np.int8(127),
        x.astype("i1") * np.int8(100),
    ),
    "cast": lambda x: (x * 1e300).astype("f4") + np.multiply(x, 1j).astype("f8"),
    "large": lambda x: np.sin(np.resize(X, 100_000) / np.broadcast_to(x[:1], 100_000)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("first", ["warn", "raise", "ignore"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_warnings_are_those_of_the_function_under_all_settings(
    name: str, first: str, backend: str
) -> None:
    fn = PROGRAMS[name]
    compiled = co.compile(fn, backend=backend)
    for errors in (first, "warn", "raise", "ignore", "warn"):
        for x in (X, abs(X) + 1.0):
            assert observe(compiled, [x.copy()], errors) == observe(
                fn, [x.copy()], errors
            )
    assert len(compiled.graphs) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_of_the_user_is_called_for_errors(backend: str) -> None:
    seen = []

    def fn(x: Any) -> Any:
        with np.errstate(all="call", call=lambda *found: seen.append(found)):
            return np.log(x)

    compiled = co.compile(fn, backend=backend)
    compiled(X)
    again = [*seen]
    compiled(X)
    fn(X)
    assert again == seen[: len(again)]
    assert seen == again * 3


def test_settings_that_stay_are_refused() -> None:
    def fn(x: Any) -> Any:
        np.seterr(divide="ignore")
        return np.log(x)

    with pytest.raises(co.GraphError, match="fn changes what NumPy does about"):
        co.compile(fn)(X)
    assert np.geterr()["divide"] != "call"


def test_gradients_leave_out_what_they_do_not_need() -> None:
    fn = co.compile(co.grad(lambda x: np.sum(x * 2.0)))
    fn(X)
    assert "x *" not in fn.code


@pytest.mark.parametrize("backend", BACKENDS)
def test_powers_of_scalars_have_the_bits_of_scalars(backend: str) -> None:
    def fn(x: Any, y: Any) -> Any:
        return [x**y, x**2, x**0.37, 2.5**y, x // y, x % y, np.power(x, y)]

    compiled, rng = co.compile(fn, backend=backend), np.random.default_rng(0)
    for x, y in rng.uniform(0.1, 3.0, (200, 2)):
        for cls in (np.float64, np.float32):
            found, expected = compiled(cls(x), cls(y)), fn(cls(x), cls(y))
            assert [v.tobytes() for v in found] == [v.tobytes() for v in expected]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: -x,
        abs,
        lambda x: (x < 0, x <= 0, x == 1, x != 1, x > 2, x >= 0),
        lambda x: np.std(x[None][1:]),
    ],
    ids=["negative", "abs", "comparisons", "deviation of nothing"],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_of_scalars_warn_as_those(fn: Any, backend: str) -> None:
    numbers = (np.int8(-128), np.complex128(complex("nan")), np.float32("nan"))
    for number in numbers:
        compiled = co.compile(fn, backend=backend)
        pair = [observe(f, [number], "warn") for f in (fn, compiled)]
        assert pair[0] == pair[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_that_raises_warns_once(backend: str) -> None:
    def fn(x: Any) -> Any:
        y = np.log(x)
        y[0] = y
        return y

    compiled = co.compile(fn, backend=backend)
    pair = [observe(f, [X], "warn") for f in (fn, compiled)]
    assert pair[0] == pair[1]
    assert len(pair[0].warned) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_powers_of_arrays_without_axes_that_were_written_are_those_of_arrays(
    backend: str,
) -> None:
    def fn(x: Any) -> Any:
        x *= 1.1
        return [x**1.3, 2.5**x, x / (x - x)]

    compiled, rng = co.compile(fn, backend=backend), np.random.default_rng(0)
    for value in rng.uniform(0.1, 3.0, 200):
        pair = [observe(f, [np.array(value)], "warn") for f in (fn, compiled)]
        assert pair[0] == pair[1]


NUMBERS = (0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e300, 1e-310, 3e38, 100.0)


def _elements(dtype: str, count: int) -> Any:
    values = np.resize(NUMBERS, count)
    if dtype[0] in "iu?":
        values = np.resize((0, 1, 2, 100, -1, -128, 127), count)
    return values.astype(dtype)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "dtypes", [*itertools.product(("f2", "f4", "f8", "i1", "u8"), repeat=2)]
)
def test_quiet_calls_raise_no_flags(dtypes: tuple[str, str]) -> None:
    """The operators that passes leave out: on arrays of all kinds of numbers."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        x, y = _elements(dtypes[0], 11 * 16), _elements(dtypes[1], 11 * 16)
    seen = 0
    for name in dir(co.ops.np):
        ufunc = getattr(np, name, None)
        if not isinstance(ufunc, np.ufunc) or ufunc.nin > 2 or ufunc.signature:
            continue
        arrays = (x, y)[: ufunc.nin]
        try:
            module = co.make_fx(lambda *v, f=ufunc: f(*v), "fake")(*arrays)
        except Exception:  # noqa: BLE001  # NumPy has no loop for these dtypes
            continue
        calls = [node for node in module.graph.nodes if node.op == "call"]
        if not all(map(is_quiet, calls)):
            continue
        seen += 1
        with np.errstate(all="raise"):
            for shift in range(11):
                ufunc(*[np.roll(v, i * shift) for i, v in enumerate(arrays)])
    assert seen > 20


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_cast_where_nothing_is_written(backend: str) -> None:
    """An array of one item fits into no items."""

    def fn(x: Any, v: Any) -> Any:
        x[1:] = np.sqrt(v)
        return x

    compiled = co.compile(fn, backend=backend)
    for _ in range(2):
        found, expected = (
            observe(f, [np.array([-1]), np.array([-1.0])], "warn")
            for f in (compiled, fn)
        )
        assert found == expected


def test_the_fake_of_round_does_not_warn() -> None:
    """The power of ten is too large for the dtype; the kernel says so once in a call."""
    fn = lambda x: np.round(x, 5)
    compiled = co.compile(fn)
    for _ in range(2):
        x = np.ones(3, np.float16)
        assert observe(compiled, [x], "warn") == observe(fn, [x], "warn")
