"""Ints and floats of Python that differ between calls: inputs of the graph, weak as ever."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import observe

X = np.linspace(-1.0, 2.0, 6).reshape(2, 3)
FLOATS = (0.1, 0.25, -0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, 1e300, 0.5)
INTS = (1, 2, 0, -3, 10**6, 2**40, 7)


def check(fn: Any, calls: Any, most: int = 2, backend: str = "numpy") -> Any:
    """Call a function and its compiled form, which may have so many graphs."""
    compiled = co.compile(fn, backend=backend)
    for arguments in calls:
        seen = [observe(f, list(arguments)) for f in (fn, compiled)]
        assert seen[0] == seen[1], arguments
    assert len(compiled.graphs) <= most, compiled.explain()
    return compiled


STEPS = {
    "step": lambda x, r: x - r * np.sin(x),
    "both sides": lambda x, r: (r - x) / (1.0 + r),
    "square": lambda x, r: x * (r * r) + r,
    "negated": lambda x, r: x + -r + abs(r),
    "returned": lambda x, r: [x + r, r, r * 2.0, -r],
    "a row": lambda x, r: x[0] * r + x.sum() * r,
    "scalars": lambda x, r: (r * np.float32(3) + np.int8(2) * r, x),
    "with NumPy": lambda x, r: x * np.sqrt(r) + np.maximum(r, 0.5),
    "compared": lambda x, r: np.where(x > r, x, 0.0),
    "small floats": lambda x, r: x.astype("f4") * r + np.exp(x.astype("f2")) * r,
    "complex": lambda x, r: (x + 1j) * r,
    "gradient": lambda x, r: co.grad(lambda z: np.sum(np.tanh(z * r)))(x),
    "batched": lambda x, r: co.vmap(lambda row: np.sum(row) * r)(x),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
def test_a_float_is_an_input_from_its_second_value_on(name: str, dtype: str) -> None:
    check(STEPS[name], [(X.astype(dtype), rate) for rate in FLOATS])


def test_adam_has_two_graphs_for_all_steps() -> None:
    def adam(p, m, v, g, t, rate):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        scale = rate / (1 - 0.9**t)
        return p - scale * m / (np.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v

    rng = np.random.default_rng(0)
    arrays = [abs(rng.normal(size=4)).astype("f4") for _ in range(4)]
    found = check(adam, [(*arrays, t, 0.1 / t) for t in range(1, 20)])
    assert "for all numbers: t, rate" in str(found.explain())


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i1"])
def test_an_int_stays_a_weak_int(dtype: str) -> None:
    def fn(x, n):
        return x * n + (2 * n + 1), x / (n * n + 1), n - 1, n * 0.5

    check(fn, [(X.astype(dtype), n) for n in INTS])


def test_errors_of_python_are_those_of_python() -> None:
    def fn(x, n):
        return x * (1 / n)

    compiled = check(fn, [(X, 1.0), (X, 2.0), (X, 0.0)])
    with pytest.raises(ZeroDivisionError, match="float division by zero"):
        compiled(X, 0.0)
    check(lambda x, n: x.astype("i1") + n, [(X, 1), (X, 2), (X, 300)])


def test_a_value_that_is_read_is_a_guard_and_the_report_has_the_line() -> None:
    def fn(x, rate, scale):
        if rate > 0.5:
            return x * rate * scale
        return x / rate * scale

    calls = [(X, r, r + 1.0) for r in (0.1, 0.2, 0.7)]
    calls += [(X, 0.7, 9.0), (X, 0.2, 8.0)]
    compiled = check(fn, calls, most=3)
    line = fn.__code__.co_firstlineno + 1
    text = str(compiled.explain())
    assert f"only for this rate: its value is asked at {__file__}:{line}" in text
    assert "for all numbers: scale" in text


READERS = {
    "math": lambda x, r: x * math.exp(r),
    "float()": lambda x, r: x * float(r),
    "text": lambda x, r: x * len(f"{float(r):.3f}"),
    "loop": lambda x, r: sum([x for _ in range(int(r * 10))], x),
    "min": lambda x, r: x * min(r, 0.3),
    "power": lambda x, r: x * (r - 0.5) ** 0.5,
    "class": lambda x, r: x * 2 if isinstance(r, float) else x,
    "dict": lambda x, r: x * {0.1: 2.0}.get(r, 3.0),
    "caught": lambda x, r: x * _caught(r),
    "shape": lambda x, r: np.full_like(x, r),
    "nan": lambda x, r: x if r == r else -x,  # noqa: PLR0124
    "remainder": lambda x, r: x * (r % 0.3) + r // 0.2,
    "written to integers": lambda x, r: _written(x.astype("i4"), r * 1e10),
    "rounded": lambda x, r: x * round(r, 1),
}


def _written(x: Any, value: float) -> Any:
    x[0] = value
    return x


def _caught(value: float) -> float:
    try:
        return 1.0 if value > 0.2 else 2.0
    except Exception:  # noqa: BLE001  # as users write
        return 3.0


@pytest.mark.parametrize("name", READERS)
def test_what_reads_a_value_gets_it(name: str) -> None:
    check(READERS[name], [(X, r) for r in (0.1, 0.2, 0.7, 0.1, math.nan)][:4], most=4)


def test_many_operations_on_a_number_become_a_guard() -> None:
    def fn(x, r):
        for _ in range(200):
            r = r * 0.99 + 0.001
        return x * r

    check(fn, [(X, r) for r in (0.1, 0.2, 0.3)], most=3)


def test_numbers_in_containers_and_defaults_are_inputs() -> None:
    def fn(options, x, scale=2.0):
        return {"out": x * options["rate"] * scale, "rate": options["rate"]}

    check(
        fn,
        [
            ({"rate": r, "name": "a"}, X, s)
            for r, s in ((0.1, 1.0), (0.2, 3.0), (0.3, 4.0))
        ],
    )


def test_a_graph_that_takes_a_number_is_not_saved(tmp_path: Any) -> None:
    compiled = check(lambda x, r: x * r, [(X, 0.1), (X, 0.2)])
    with pytest.raises(co.GraphFileError, match="'r' is a number that differs between"):
        compiled.graphs[1].save(tmp_path / "graph")


def test_control_flow_operators_have_graphs_for_each_number() -> None:
    def fn(x, r):
        return co.cond(x.sum() > 0, lambda z: z * r, lambda z: z - r, x)

    check(fn, [(X, r) for r in (0.1, 0.2, 0.3)], most=3)


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_other_back_ends_take_numbers(backend: str) -> None:
    calls = [(X.astype("f4"), r) for r in FLOATS if abs(r) < 1e30]
    check(lambda x, r: (x * r + 1.0) * r - x, calls, backend=backend)


def test_numbers_and_sizes_beside_operators_are_in_brackets() -> None:
    """-2.0 ** x is not (-2.0) ** x, and g / 3 * n is not g / (3 * n)."""
    power = co.compile(lambda x: (-2.0) ** np.sum(x))
    pull = co.compile(lambda x, g: co.vjp(np.mean, x)[1](g)[0])
    for n in (2, 2, 3, 4, 5):
        assert power(np.ones(n)) == (-2.0) ** n
        found = pull(np.ones((n, 3)), np.float64(6 * n))
        assert np.array_equal(found, np.full((n, 3), 2.0))


def test_numbers_that_are_equal_and_not_the_same_stay_apart() -> None:
    """Calls share the array of a number: 0.0, -0.0, 0 and a number of another dtype."""

    def fn(x, y):
        signs = [np.copysign(x, v) for v in (0.0, -0.0, 0, 1.0)]
        return signs, [x * 2, x * 2.0, y * 2, y * 2.0, np.hypot(y, 2)]

    x, y = np.arange(-1.0, 2.0), np.arange(-1.0, 2.0, dtype="f4")
    compiled = co.compile(fn, backend="numpy")
    found, expected = observe(compiled, [x, y]), observe(fn, [x, y])
    assert repr(found) == repr(expected)
