"""vmap: the loop, batches without rows, pointwise operators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import customop as co
from customop import vmap
from tests.transforms.vmap._operators import (
    RNG,
    X,
    Y,
    copy_into,
    define,
    loops,
    rows,
)

# ---- the loop ----


def test_one_warning_per_operator() -> None:
    """The loop warns once, names the operator, and points at the caller's line."""
    op = define("(Array x) -> Array", lambda x: x * 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            vmap(lambda a: op(a) + op(a))(X)
    (only,) = caught
    assert only.category is co.CustomOpWarning
    assert op.qualname in str(only.message)
    assert "register_vmap" in str(only.message)
    assert only.filename == __file__


LOOPS: dict[str, tuple[str, Any, Any, Any, Any]] = {
    "list": (
        "(Array[] x) -> Array",
        lambda x: x[0] + x[1],
        ([0, 1],),
        ([X, Y],),
        X + Y.T,
    ),
    "mixed list": (
        "(Array[] x) -> Array",
        lambda x: x[0] + x[1],
        ([0, None],),
        ([X, X[0]],),
        X + X[0],
    ),
    "optional": (
        "(Array x, Array? y) -> Array",
        lambda x, y: x * 1 if y is None else x + y,
        (0, 1),
        (X, Y),
        X + Y.T,
    ),
    "none": (
        "(Array x, Array? y) -> Array",
        lambda x, y: x * 1 if y is None else x + y,
        (0, None),
        (X, None),
        X,
    ),
    "list with None": (
        "(Array x, Array?[] y) -> Array",
        lambda x, y: x + y[1],
        (0, [None, 0]),
        (X, [None, X]),
        2 * X,
    ),
    "numbers": (
        "(Array x, int n, float k, str s, int[] m) -> Array",
        lambda x, n, k, s, m: x * n * k * m[0],
        (0, None, None, None, None),
        (X, 2, 3, "s", (4,)),
        24 * X,
    ),
    "operand": (
        "(Array x, Array|Scalar y) -> Array",
        lambda x, y: x * y,
        (0, None),
        (X, 2),
        2 * X,
    ),
    "batched operand": (
        "(Array x, Array|Scalar y) -> Array",
        lambda x, y: x * y,
        (0, 0),
        (X, X[:, 0]),
        X * X[:, :1],
    ),
    "one axis": ("(Array x) -> Array", lambda x: x * 2, 0, (X[:, 0],), 2 * X[:, 0]),
    "int result": ("(Array x) -> int", lambda x: x.size, 0, (X,), np.full(4, 3)),
    "str dtype": (
        "(Array x) -> float",
        lambda x: float("nan"),
        0,
        (X,),
        np.full(4, np.nan),
    ),
}


@loops
@pytest.mark.parametrize("name", LOOPS)
def test_loop(name: str) -> None:
    """The loop takes every kind of argument."""
    schema, fn, in_dims, args, expected = LOOPS[name]
    op = define(schema, fn)
    for _ in range(2):
        out = vmap(op, in_dims=in_dims)(*args)
        np.testing.assert_allclose(out, expected)
        assert out.dtype == np.asarray(expected).dtype


@loops
def test_loop_with_several_results() -> None:
    """Tuples, lists, None and numbers among results are stacked one by one."""
    op = define(
        "(Array x) -> (Array, Array[], int, Array?)",
        lambda x: (x * 1, [x * 2, np.sum(x)], 3, None),
    )
    one, (two, three), four, five = vmap(op, in_dims=1)(Y)
    np.testing.assert_array_equal(one, Y.T)
    np.testing.assert_array_equal(two, 2 * Y.T)
    np.testing.assert_allclose(three, Y.sum(0))
    assert (four.tolist(), five) == ([3] * 4, None)


UNEVEN = [
    ("Array", lambda x: x[x > x[0]], r"arrays f64\[0\], f64\[1\]"),
    ("Array[]", lambda x: [x * i for i in range(1 + int(x[0] > 0))], "lists of"),
    ("int", lambda x: int(1000 * x[0]), "values"),
    ("str", lambda x: str(x[0]), "values"),
    ("Array?", lambda x: x * 1 if x[0] > 0 else None, "cannot be stacked"),
    ("Array?", lambda x: None if x[0] > 0 else x * 1, "cannot be stacked"),
]


@loops
@pytest.mark.parametrize("index", range(len(UNEVEN)))
def test_rows_that_do_not_stack(index: int) -> None:
    """Rows of different shapes or values are an error that says which."""
    returns, fn, said = UNEVEN[index]
    x = np.array([[1.0, 2.0], [-3.0, 4.0], [5.0, -6.0]])
    op = define(f"(Array x) -> {returns}", fn)
    with pytest.raises(co.VmapError, match=said):
        vmap(op)(x)


@loops
@pytest.mark.parametrize(
    ("shape", "axis"), [((4,), 0), ((4, 3), 0), ((3, 4), 1), ((2, 3, 4), -1)]
)
def test_loop_writes_into_the_batch(shape: tuple[int, ...], axis: int) -> None:
    """A write into a row changes the batch, also for rows without axes."""
    op = define("(Array(a!) x, Array y) -> ()", copy_into, ("x",))
    for _ in range(2):
        x, y = np.zeros(shape), RNG.normal(size=shape)
        assert vmap(op, in_dims=axis)(x, y) is None
        np.testing.assert_array_equal(x, y)


@loops
def test_loop_writes_into_lists() -> None:
    """The same holds for arrays in a list."""
    op = define(
        "(Array(a!)[] many, Array y) -> ()",
        lambda many, y: [copy_into(x, y) for x in many] and None,
        ("many",),
    )
    first, second = np.zeros((4, 3)), np.zeros((3, 4))
    vmap(op, in_dims=([0, 1], 0))([first, second], X)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, X.T)


@loops
def test_loop_returns_what_it_wrote() -> None:
    """An in-place operator gives the new values."""

    def add_one(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    op = define("(Array(a!) x) -> Array(a!)", add_one, ("x",))
    x = X.copy()
    np.testing.assert_array_equal(vmap(op)(x), X + 1)
    np.testing.assert_array_equal(x, X + 1)


@pytest.mark.parametrize("in_dims", [(None, 0), ([None], 0)])
def test_write_into_one_array_for_all_rows(in_dims: Any) -> None:
    """It is refused, and nothing is written."""
    in_list = isinstance(in_dims[0], list)
    op = define(
        f"(Array(a!){'[]' if in_list else ''} x, Array y) -> ()",
        lambda x, y: copy_into(x[0] if in_list else x, y),
        ("x",),
    )
    x = np.zeros(3)
    with pytest.raises(co.VmapError, match="one array for all rows") as caught:
        vmap(op, in_dims=in_dims)([x] if in_list else x, X)
    assert caught.value.parameter == "x"
    assert not x.any()


@loops
def test_optional_written_argument_left_out() -> None:
    """None in place of a written array is allowed: nothing is written."""
    op = define(
        "(Array x, Array(a!)? out=None) -> Array", lambda x, out: x * 2, ("out",)
    )
    np.testing.assert_array_equal(vmap(op)(X), 2 * X)


# ---- no rows ----


@loops
def test_empty_batch() -> None:
    """For no rows the fake kernel gives the shapes and dtypes."""
    op = define(
        "(Array x, float k) -> (Array, Array[])", lambda x, k: (x * k, [x.sum()])
    )
    op.register_fake(lambda x, k: (co.fake_like(x), [co.fake_like(x, shape=())]))
    first, (second,) = vmap(op, in_dims=(1, None))(np.zeros((3, 0), np.float32), 2.0)
    assert (first.shape, first.dtype) == ((0, 3), np.float32)
    assert (second.shape, second.dtype) == ((0,), np.float32)


@loops
def test_empty_batch_without_fake_kernel() -> None:
    """Without a fake kernel it is an error that says what is missing."""
    op = define("(Array x) -> Array", lambda x: x * 1)
    with pytest.raises(co.MissingRuleError, match="no fake kernel"):
        vmap(op)(np.zeros((0, 3)))


# ---- Tag.pointwise ----

pointwise = define(
    "(Array x, Array|Scalar y, *, Array? z=None) -> Array",
    lambda x, y, z: x * y if z is None else x * y + z,
    tags=co.Tag.pointwise,
)


@given(st.integers(0, 2), st.integers(0, 2), st.data())
@settings(deadline=None)
def test_pointwise_pairs_rows_of_mixed_ranks(a: int, b: int, data: Any) -> None:
    """Rows broadcast against each other as NumPy does, wherever the batches are."""
    row = (2, 3)
    x, y = RNG.normal(size=(4, *row[2 - a :])), RNG.normal(size=(4, *row[2 - b :]))
    i, j = data.draw(st.integers(0, a)), data.draw(st.integers(0, b))
    out = vmap(pointwise, in_dims=(i, j))(np.moveaxis(x, 0, i), np.moveaxis(y, 0, j))
    np.testing.assert_array_equal(out, rows(np.multiply, x, y))


def test_pointwise_with_constants() -> None:
    """Numbers and arrays that are not batched broadcast to every row."""
    np.testing.assert_array_equal(vmap(pointwise, in_dims=(0, None))(X, 2), 2 * X)
    out = vmap(pointwise, in_dims=(0, None))(X[:, 0], Y)
    np.testing.assert_array_equal(out, X[:, 0, None, None] * Y)
    out = vmap(lambda x, z: pointwise(x, 2.0, z=z), in_dims=(0, 1))(X[:, 0], Y)
    np.testing.assert_array_equal(out, X[:, :1] * 2 + Y.T)


# ---- how rows lie in memory ----


def _stacked_and_written(x: Any) -> Any:
    y = np.stack([x, x + 1.0])
    same = y.astype(float, order="C", copy=False)
    y *= 2.0
    return y, same


def _outer_and_written(x: Any) -> Any:
    y = x[None] * np.array([1.0, 2.0])[:, None]
    flat = y.reshape(-1)
    flat += 1.0
    return y, flat


@pytest.mark.parametrize("fn", [_stacked_and_written, _outer_and_written])
@pytest.mark.parametrize("around", [lambda run: run, co.compile, co.vmap])
@pytest.mark.parametrize("in_dims", [0, 1])
@pytest.mark.parametrize("order", ["C", "F"])
def test_views_are_those_of_a_row_wherever_the_batch_axis_lies(
    fn: Any, around: Any, in_dims: int, order: Any
) -> None:
    rows = np.array(X, order=order)
    run = around(co.vmap(fn, in_dims))
    found = run(rows[None]) if around is co.vmap else run(rows)
    wanted = [fn(row.copy()) for row in np.moveaxis(rows, in_dims, 0)]
    for a, b in zip(found, zip(*wanted, strict=True), strict=True):
        np.testing.assert_array_equal(a[0] if around is co.vmap else a, np.stack(b))


@pytest.mark.parametrize("in_dims", [0, 1])
def test_operators_inside_of_a_function_write_into_the_batch(in_dims: int) -> None:
    """Also where the function computes on a copy in another layout."""
    op = define("(Array(a!) x, float v) -> ()", lambda x, v: x.fill(v), ("x",))
    op.register_vmap(lambda info, dims, x, v: (x.fill(v), None))

    def fn(x: Any) -> Any:
        op(x[1:], 3.0)
        return x * 2.0

    batch, wanted = np.zeros((3, 3)), np.zeros((3, 3))
    np.moveaxis(wanted, in_dims, 0)[:, 1:] = 3.0
    found = vmap(fn, in_dims=in_dims)(batch)
    np.testing.assert_array_equal(batch, wanted)
    np.testing.assert_array_equal(found, np.moveaxis(wanted, in_dims, 0) * 2.0)


@loops
def test_the_result_of_a_loop_lies_as_that_of_the_kernel() -> None:
    """A reversed result is not packed: its raveled form is a copy."""
    op = define(
        "(Array x) -> Array", lambda x: np.ascontiguousarray((x * 3.0)[::-1])[::-1]
    )

    def fn(x: Any) -> Any:
        y = op(x)
        flat = y.ravel()
        y *= 2.0
        return y, flat

    batch = np.arange(12.0).reshape(2, 2, 3)
    for a, b in zip(vmap(fn)(batch), zip(*map(fn, batch), strict=True), strict=True):
        np.testing.assert_array_equal(a, np.stack(b))
