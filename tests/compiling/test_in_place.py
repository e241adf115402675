"""Code that writes in place writes in place when it is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import observe


def _steps(x: Any, v: Any) -> Any:
    v[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
    x += v
    x[0] = 0.0
    return x


def _fresh(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:] = x[:-1]
    y[1:] = y[:-1]
    return y[::-1], y


def _old_is_read(x: Any) -> Any:
    old = x + 0.0
    first = x[:2]
    kept = first + 0.0
    x[0] = 5.0
    x[1] = first[0] + kept[1]
    return x, old, first


def _written_by_itself(x: Any) -> Any:
    x[::-1] += x
    x[1:] = x[:-1]
    return x.sum()


def _matrix(x: Any) -> Any:
    y = x.reshape(2, -1)
    y[:, 0] = 7.0
    y.T[1] *= 2.0
    return y[0], x


@pytest.mark.parametrize("n", [4, 6, 30_000])
@pytest.mark.parametrize("f", [_fresh, _old_is_read, _written_by_itself, _matrix])
def test_results_and_arguments_are_those_of_the_function(f: Any, n: int) -> None:
    fast = co.compile(f)
    for _ in range(2):
        x = np.linspace(0.0, 1.0, n)
        y = x.copy()
        found, expected = co.tree.leaves(fast(x)), co.tree.leaves(f(y))
        assert np.array_equal(x, y)
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(a, b)
            assert np.shares_memory(a, x) == np.shares_memory(b, y)


def test_parts_are_written_without_copies() -> None:
    fast = co.compile(_steps, backend="numpy")
    x, v = np.linspace(0.0, 1.0, 8) ** 2, np.zeros(8)
    y, w = x.copy(), v.copy()
    for _ in range(3):
        assert fast(x, v) is x
        _steps(y, w)
        assert np.array_equal(x, y)
        assert np.array_equal(v, w)
    assert "slice_set" not in fast.code
    assert fast.code.count("setitem(v") == 1


def test_an_old_value_that_is_read_later_is_copied() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        z = y.T
        y[0] = 1.0
        return y + z, co.stop_gradient(y)

    x = np.ones((2, 2))
    for a, b in zip(co.compile(f)(x), f(x), strict=True):
        assert np.array_equal(a, b)


def test_a_result_that_is_spread_into_an_array_can_be_written() -> None:
    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        np.negative(x[:1], out=y)
        return y

    found = _twice(co.compile(f), np.ones(3))
    found[0] = 2.0
    assert found.tolist() == [2.0, -1.0, -1.0]


def _twice(fn: Any, *args: Any) -> Any:
    fn(*args)
    return fn(*args)


def test_other_back_ends_get_a_graph_that_writes_at_its_end_alone() -> None:
    seen = []

    def look(module: Any) -> Any:
        seen.extend(n.target.name for n in module.graph.nodes if n.op == "call")
        return module.run_list

    co.compile(_steps, backend=look)(np.ones(4), np.zeros(4))
    assert seen[-2:] == ["assign", "assign"]
    assert "set_slice" not in seen


# ---- whole arguments ----


def _add(u: Any, v: Any) -> Any:
    u += v
    return u


def _chain(u: Any, v: Any) -> Any:
    u += v
    u *= 2.0
    u -= v
    return u.sum()


def _out(u: Any, v: Any) -> None:
    np.add(np.sin(v), v, out=u)


def _both(u: Any, v: Any) -> None:
    u += v
    v += u


def _old_value_is_read(u: Any, v: Any) -> Any:
    before = u * 2.0
    u += v
    return before + u


def _view_is_read(u: Any, v: Any) -> Any:
    part = u[1:]
    u += v
    return part * 2.0, u[::-1]


def _overlap(u: Any, v: Any) -> None:
    u += u[::-1]


def _views_of_the_new(u: Any, v: Any) -> Any:
    np.exp(u, out=u)  # where the steps are negative, other bits than in a new array
    return np.fmod(u[1:], 3.0), u[::-1]


def _sum_is_returned(u: Any, v: Any) -> Any:
    w = u + v
    u[...] = w
    return w


def _leads_to_another(u: Any, v: Any) -> None:
    u /= 2.0
    np.negative(u, out=v)


def _then_a_part(u: Any, v: Any) -> Any:
    u *= np.maximum(u, v)
    u[1:] = 0.5
    return u


def _of_another_dtype(u: Any, v: Any) -> Any:
    u += v.astype("f4")
    v[...] = u.astype("f4") * 1.1
    return v


WHOLE = (_add, _chain, _out, _both, _old_value_is_read, _view_is_read, _overlap)
WHOLE = (*WHOLE, _views_of_the_new, _sum_is_returned, _then_a_part, _of_another_dtype)
WHOLE = (*WHOLE, _leads_to_another)
LAYOUTS = {
    "packed": lambda x: x,
    "turned": lambda x: x.reshape(2, -1).T,
    "step": lambda x: np.repeat(x, 2)[::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize(
    "backend", ["native", pytest.param("numpy", marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fn", WHOLE)
def test_whole_arguments_are_written_as_in_the_function(
    fn: Any, layout: str, backend: str
) -> None:
    compiled = co.compile(fn, backend=backend)
    for size in (6, 1 << 18):
        for errors in ("raise", "warn"):
            x = np.linspace(-1.0, 2.0, size)
            x[size // 2] = np.inf if errors == "warn" else 0.0
            pairs = [[LAYOUTS[layout](x + k) for k in (0.0, 1.0)] for _ in "ab"]
            found, expected = (
                observe(f, arguments, errors)
                for f, arguments in zip((compiled, fn), pairs, strict=True)
            )
            assert found == expected


@pytest.mark.parametrize("fn", [_add, _chain, _out, _view_is_read, _both])
def test_nothing_is_copied_to_an_argument_that_can_take_the_result(fn: Any) -> None:
    compiled = co.compile(fn, backend="numpy")
    compiled(np.ones(4), np.ones(4))
    assert "setitem" not in compiled.code


# ---- how arrays that were written lie in memory ----

TABLE = np.linspace(0.1, 3.0, 12).reshape(4, 3)


def _own(x: Any) -> Any:
    z = np.square(x)
    z += TABLE
    return z[1:], z.sum(), z @ z.T


def _sums(x: Any) -> Any:
    x *= TABLE
    y = x @ x.T  # NumPy multiplies arrays with gaps between elements in another order
    x[0] += 1.0
    return y, np.expm1(x), x.sum(axis=0)


def _points(x: Any) -> Any:
    z = np.zeros((), like=x)
    z -= x[0, 0]
    w = np.where(x[0, 0] > 0.0, 1.0, x[0, 0])
    line = w.reshape(-1)
    line[line > 0] = 0.25
    return z.astype("f4"), line, w


LAYOUTS_2D = {
    "packed": lambda x: x,
    "turned": np.asfortranarray,
    "gaps": lambda x: np.repeat(x, 3, axis=-1)[..., 1::3],
    "reversed": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize("fn", [_own, _sums, _points])
def test_arrays_that_were_written_lie_in_memory_as_in_the_function(fn: Any) -> None:
    compiled = co.compile(fn)
    rng = np.random.default_rng(5)
    for layout in LAYOUTS_2D.values():
        x = rng.normal(size=(4, 3))
        found, expected = (observe(f, [layout(x.copy())]) for f in (compiled, fn))
        assert found == expected


def test_parts_of_complex_arrays_are_written_to_the_bit() -> None:
    def fn(z: Any, x: Any) -> Any:
        z.real[...] = x
        z.imag[1:] = -0.0
        return z

    z = np.array([complex(1, np.inf), -1j, complex(-0.0, np.nan)])
    found, expected = (
        observe(f, [z.copy(), -np.zeros(3)]) for f in (co.compile(fn), fn)
    )
    assert found == expected
