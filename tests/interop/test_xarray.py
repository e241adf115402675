"""Operators and transforms on objects of xarray, beside formulas in NumPy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.errors import ArgumentError, RegistrationError, ShapeError

xr = pytest.importorskip("xarray", reason="xarray is not installed")

from customop.interop.xarray import export, vmap  # noqa: E402

pytestmark = pytest.mark.exhaustive

VALUES = np.array([[0.5, 1.0, 2.0], [3.0, -1.0, 0.25]])
WEIGHTS = np.array([1.0, -2.0, 3.0])


@co.custom_op("xarray_tests::square", mutates_args=(), tags=(co.Tag.pointwise,))
def raw_square(x: np.ndarray) -> np.ndarray:
    return x * x


raw_square.register_autograd(co.native)


@co.custom_op(
    "xarray_tests::dot",
    mutates_args=(),
    schema="(float[...,n] x, float[...,n] w) -> float[...]",
)
def raw_dot(x, w):
    return np.sum(x * w, axis=-1)


raw_dot.register_autograd(co.native)


@co.custom_op(
    "xarray_tests::blend",
    mutates_args=(),
    schema="(float[*batch,n] x, float[*batch,m] y, *, float a=1.0)"
    " -> (float[*batch,m,n], float[*batch])",
)
def raw_blend(x, y, *, a):
    return a * y[..., :, None] * x[..., None, :], np.sum(x, axis=-1)


square, dot, blend = export(raw_square), export(raw_dot), export(raw_blend)


@pytest.fixture
def x() -> Any:
    return xr.DataArray(
        VALUES.copy(),
        dims=("day", "place"),
        coords={"day": [10, 20], "height": ("place", [1.0, 5.0, 9.0])},
        attrs={"unit": "m"},
        name="rain",
    )


@pytest.fixture
def w() -> Any:
    return xr.DataArray(WEIGHTS.copy(), dims="place")


# ---- values of transforms ----


def test_traced_values_stand_on_both_sides(x: Any) -> None:
    for fn in (lambda t: (t * x).data, lambda t: (x * t).data):
        slope = co.grad(lambda t, fn=fn: np.sum(fn(t)))(np.ones((2, 3)))
        np.testing.assert_array_equal(slope, VALUES)


def test_dims_methods_run_on_traced_values(x: Any) -> None:
    slope = co.grad(
        lambda t: (x.copy(data=t).isel(day=1).transpose() ** 2).mean("place").data
    )(VALUES)
    np.testing.assert_allclose(slope, [[0.0] * 3, 2 * VALUES[1] / 3])


# ---- pytrees ----


def test_gradient_of_an_array_keeps_its_labels(x: Any) -> None:
    slope = co.grad(lambda x: (x**3).sum().data)(x)
    xr.testing.assert_identical(slope, x.copy(data=3 * VALUES**2))


def test_second_order_and_tangents(x: Any) -> None:
    def slope(x: Any) -> Any:
        return co.grad(lambda x: (x**3).sum().data)(x)

    second = co.grad(lambda x: slope(x).sum().data)(x)
    np.testing.assert_allclose(second, 6 * VALUES)
    value, tangent = co.jvp(np.sin, (x,), (x,))
    xr.testing.assert_identical(value, np.sin(x))
    xr.testing.assert_allclose(tangent, np.cos(x) * x)


def test_gradient_of_a_dataset(x: Any, w: Any) -> None:
    data = xr.Dataset({"rain": x, "weight": w}, attrs={"source": "gauge"})
    slope = co.grad(lambda d: (d.rain * d.weight).sum().data)(data)
    assert slope.attrs == {"source": "gauge"}
    assert slope.rain.dims == ("day", "place")
    np.testing.assert_array_equal(slope.rain, np.broadcast_to(WEIGHTS, (2, 3)))
    np.testing.assert_array_equal(slope.weight, VALUES.sum(0))
    assert list(slope.coords) == list(data.coords)


def test_a_loss_may_be_a_data_array_without_dims(x: Any, w: Any) -> None:
    """Its value keeps the name; other values that are not single arrays are refused."""
    value, slope = co.value_and_grad(lambda x: (x**2 * w).sum())(x)
    plain, expected = co.value_and_grad(lambda x: (x**2 * w).sum().data)(x)
    assert isinstance(value, xr.DataArray)
    assert value.item() == plain
    xr.testing.assert_identical(slope, expected)
    with pytest.raises(co.GradientError, match="the value is dict"):
        co.grad(lambda x: {"loss": (x**2).sum()})(x)


def test_trees_of_labels_are_mapped_together(x: Any) -> None:
    stepped = co.tree.map(lambda a, b: a - 0.5 * b, x, x)
    xr.testing.assert_identical(stepped, 0.5 * x)
    with pytest.raises(ValueError, match="ismatch"):
        co.tree.map(np.add, x, x.assign_coords(day=[1, 2]))


def test_other_shapes_are_refused(x: Any) -> None:
    with pytest.raises(ShapeError, match="DataArray 'rain' has dims"):
        co.vmap(lambda row: row)(x)


def test_transforms_that_change_axes_name_the_calls_that_work(x: Any) -> None:
    """Each call in the error is made, and gives what NumPy's formula gives."""
    day = x.isel(day=0, drop=True)

    def loss(row: Any) -> Any:
        return (row**3).sum().data

    for transform in (co.vmap, co.jacrev, co.jacfwd, co.hessian):
        made: Any = transform
        with pytest.raises(ShapeError) as caught:
            made(loss if transform is co.hessian else lambda row: row**2)(day)
        assert caught.value.do == (
            "for batches over a dim call customop.interop.xarray.vmap(fn, dim); for"
            " Jacobians, Hessians and co.compile pass the array:"
            " co.hessian(lambda a: f(x.copy(data=a)).data)(x.data)"
        )
    found = co.hessian(lambda a: loss(day.copy(data=a)))(day.data)
    np.testing.assert_allclose(found, np.diag(6 * VALUES[0]))
    slope = co.jacrev(lambda a: (day.copy(data=a) ** 2).data)(day.data)
    np.testing.assert_allclose(slope, np.diag(2 * VALUES[0]))
    rows = vmap(loss, "day")(x)
    np.testing.assert_allclose(rows, (VALUES**3).sum(axis=1))


WITHOUT_THE_BRIDGE = """
import numpy as np, xarray as xr, customop as co

x = xr.DataArray([[1.0, 2.0]], dims=("day", "place"))
for transform in (co.grad, co.vmap, co.jacrev, co.hessian):
    for value in (x, x.variable, x.to_dataset(name="x")):
        try:
            transform(lambda x: x)(value)
        except co.CustomOpError as error:
            assert error.do == (
                "import customop.interop.xarray; its vmap(fn, dim) batches over a dim"
            ), error
        else:
            raise AssertionError(transform)
"""


def test_a_transform_without_the_bridge_names_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_BRIDGE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]


# ---- methods that convert to NumPy ----


PLACES = np.array([0.5, 1.25, 7.0])  # the last one is outside, where xarray gives nan


def test_interp_names_the_call_of_numpy_that_works(x: Any) -> None:
    row = x.isel(day=0, drop=True).assign_coords(place=[0, 1, 2])

    def by_xarray(row: Any) -> Any:
        return np.nansum(row.interp(place=PLACES).data ** 2)

    with pytest.raises(co.DataDependentError) as caught:
        co.grad(by_xarray)(row)
    call = "np.interp(places, row[dim].data, row.data, left=np.nan, right=np.nan)"
    assert caught.value.do == (
        f"write {call} for one dim, row by row if row has others,"
        " or stop_gradient(x) for the value alone"
    )

    def by_numpy(row: Any) -> Any:
        places, dim = PLACES, "place"
        return np.nansum(eval(call, {"np": np}, locals()) ** 2)  # the call as it stands

    assert by_numpy(row) == pytest.approx(by_xarray(row))
    slope = co.grad(by_numpy)(row).data
    steps = 1e-6 * np.eye(3)
    wanted = [(by_xarray(row + s) - by_xarray(row - s)) / 2e-6 for s in steps]
    np.testing.assert_allclose(slope, wanted, rtol=1e-6)


def test_other_calls_that_convert_name_the_array(x: Any) -> None:
    calls: list[Any] = [
        lambda x: x.interpolate_na("day").sum().data,
        lambda x: x.to_pandas().sum().sum(),
        lambda x: xr.where(x > 0, x, 0).values.sum(),
    ]
    for call in calls:
        with pytest.raises(co.DataDependentError) as caught:
            co.grad(call)(x)
        assert caught.value.do.startswith("compute with the array x.data, by functions")


# ---- operators ----


def test_pointwise(x: Any, w: Any) -> None:
    xr.testing.assert_identical(square(x), x.copy(data=VALUES**2))
    slope = co.grad(lambda x: (square(x) * w).sum().data)(x)
    np.testing.assert_array_equal(slope, 2 * VALUES * WEIGHTS)
    np.testing.assert_array_equal(square(VALUES), VALUES**2)  # no DataArray at all


@pytest.mark.parametrize("named", [False, True], ids=["last dims", "by name"])
def test_dims_from_shapes(x: Any, w: Any, *, named: bool) -> None:
    if named:
        x, w = x.rename(place="n").transpose("n", "day"), w.rename(place="n")
    found = dot(x, w)
    assert found.dims == ("day",)
    assert found.attrs == {"unit": "m"}
    np.testing.assert_array_equal(found.day, [10, 20])
    np.testing.assert_array_equal(found, VALUES @ WEIGHTS)
    slope, of_w = co.grad(lambda x, w: dot(x, w).sum().data, argnums=(0, 1))(x, w)
    assert slope.dims == x.dims
    np.testing.assert_array_equal(
        slope.transpose("day", ...), np.broadcast_to(WEIGHTS, (2, 3))
    )
    np.testing.assert_array_equal(of_w, VALUES.sum(0))


def test_plain_and_traced_arrays_beside(x: Any) -> None:
    np.testing.assert_array_equal(dot(x, WEIGHTS), VALUES @ WEIGHTS)
    slope = co.grad(lambda t: dot(x, t).sum().data)(WEIGHTS)
    np.testing.assert_array_equal(slope, VALUES.sum(0))


def test_operators_take_data_arrays_themselves(x: Any, w: Any) -> None:
    xr.testing.assert_identical(raw_square(x), square(x))
    xr.testing.assert_identical(raw_dot(x, w), dot(x, w))
    slopes = co.grad(lambda x, w: (raw_dot(x, w) ** 2).sum().data, (0, 1))(x, w)
    inner = VALUES @ WEIGHTS
    np.testing.assert_allclose(slopes[0].values, 2 * np.outer(inner, WEIGHTS))
    np.testing.assert_allclose(slopes[1].values, 2 * inner @ VALUES)
    beside = co.grad(lambda t: raw_dot(x, 2.0 * t).sum().data)(WEIGHTS)
    np.testing.assert_allclose(beside, 2.0 * VALUES.sum(axis=0))
    found = xr.Dataset({"a": x, "b": x + 1}).map(raw_square)
    np.testing.assert_array_equal(found["b"].values, (VALUES + 1) ** 2)


def test_what_operators_refuse_of_xarray(x: Any) -> None:
    for given, name, remedy in (
        (x.to_dataset(), "Dataset", "call it on its variables: dataset.map(op)"),
        (
            xr.DataTree(x.to_dataset()),
            "DataTree",
            (
                "call it on its variables:"
                " tree.map_over_datasets(lambda dataset: dataset.map(op))"
            ),
        ),
        (x.variable, "Variable", "make a DataArray of it: xarray.DataArray(variable)"),
    ):
        with pytest.raises(ArgumentError) as caught:
            raw_square(given)
        assert f"takes arrays and DataArrays, got a {name}" in str(caught.value)
        assert str(caught.value).endswith(f"  do: {remedy}")


def test_a_remedy_for_other_arrays_that_transforms_refuse() -> None:
    """Of pandas, which xarray needs; and of a dtype of another library."""
    pandas: Any = pytest.importorskip("pandas")
    for transform in (co.grad, co.jacfwd, co.vmap):
        for fits in (pandas.Series([1.0, 2.0]), pandas.Index([1.0, 2.0])):
            with pytest.raises(co.CustomOpError, match=r"do: pass np\.asarray"):
                transform(np.sum)(fits)
    short = pytest.importorskip("ml_dtypes").bfloat16
    for transform in (co.grad, co.jacfwd):
        with pytest.raises(co.GradientError, match=r"bfloat16.*\n.*np\.float32"):
            transform(np.sum)(np.ones(2, short))


def _named_steps(rng: Any) -> Any:
    """A random loss of DataArrays, and the same with formulas for the operators."""
    names = rng.choice(["square", "dot", "plus", "turn", "sum", "first"], size=4)
    places = rng.integers(0, 9, (4, 2))

    def loss(own: bool, *given: Any) -> Any:
        values = list(given)
        for name, (i, j) in zip(names, places, strict=True):
            u, v = values[i % len(values)], values[j % len(values)]
            shared = [d for d in u.dims if d in v.dims]
            if name == "square":
                values.append(raw_square(u) if own else u * u)
            elif name == "dot" and shared:
                u, v = u.transpose(..., shared[0]), v.transpose(..., shared[0])
                values.append(raw_dot(u, v) if own else (u * v).sum(shared[0]))
            elif name == "plus":
                values.append(u + 0.5 * v)
            elif name == "turn":
                values.append(u.transpose(*u.dims[::-1]))
            elif name == "sum" and u.dims:
                values.append(u.sum(u.dims[0]))
            elif name == "first" and u.dims:
                values.append(u.isel({u.dims[-1]: 0}))
        total: Any = sum(np.sin(v).sum() for v in values)
        return total.data

    return loss


@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_random_programs_are_those_of_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = {"a": ("x", "y"), "b": ("y",), "c": ("y", "x")}
    sizes = {"x": 2, "y": 3}
    given = {
        name: xr.DataArray(rng.normal(size=[sizes[d] for d in dims]), dims=dims)
        for name, dims in shapes.items()
    }
    loss, step = _named_steps(rng), 1e-6
    whole = co.grad(lambda s: loss(True, *[s[n] for n in "abc"]))(xr.Dataset(given))
    single = co.grad(lambda *s: loss(True, *s), (0, 1, 2))(*given.values())
    for place, name in enumerate("abc"):
        for index in np.ndindex(given[name].shape):
            ends = []
            for change in (step, -step):
                moved = {n: v.copy(deep=True) for n, v in given.items()}
                moved[name].values[index] += change
                ends.append(loss(False, *moved.values()))
            slope = (ends[0] - ends[1]) / (2 * step)
            for found in (whole[name], single[place]):
                assert found.values[index] == pytest.approx(slope, rel=1e-5, abs=1e-5)


def test_several_results_new_dims_and_loops_that_must_be_equal(x: Any) -> None:
    y = xr.DataArray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dims=("run", "m"))
    outer, total = blend(x, y, a=2.0)
    assert outer.dims == ("day", "run", "m", "place")
    expected = 2.0 * np.einsum("dp,rm->drmp", VALUES, y.values)
    np.testing.assert_allclose(outer, expected)
    np.testing.assert_array_equal(outer.height, [1.0, 5.0, 9.0])
    np.testing.assert_allclose(total.isel(run=0), VALUES.sum(1))


def test_what_is_not_clear_is_refused(x: Any, w: Any) -> None:
    with pytest.raises(ShapeError, match="'n' is 'place' of another argument"):
        dot(x, w.rename(place="spot"))
    with pytest.raises(ArgumentError, match=r"'w' has shape \(2, 3\) and no dims"):
        dot(x, VALUES)
    with pytest.raises(ValueError, match="exact"):
        square_of_two(x, x.assign_coords(day=[10, 21]))
    y = x.rename(place="run").assign_coords(day=[10, 21]).expand_dims(more=2)
    with pytest.raises(ValueError, match="exact"):
        blend(x, y.transpose("more", ...))
    with pytest.raises(RegistrationError, match="does not say which dims"):
        export(no_shapes)


@co.custom_op("xarray_tests::no_shapes", mutates_args=())
def no_shapes(x: np.ndarray) -> np.ndarray:
    return x + 0.0


@co.custom_op("xarray_tests::product", mutates_args=(), tags=(co.Tag.pointwise,))
def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x * y


square_of_two = export(product)


# ---- apply_ufunc and dask ----


def test_apply_ufunc(x: Any, w: Any) -> None:
    core = [["place"], ["place"]]
    plain = xr.apply_ufunc(raw_dot, x, w, input_core_dims=core)
    np.testing.assert_array_equal(plain, VALUES @ WEIGHTS)
    slope = co.grad(
        lambda x: xr.apply_ufunc(raw_dot, x, w, input_core_dims=core).sum().data
    )(x)
    np.testing.assert_array_equal(slope, np.broadcast_to(WEIGHTS, (2, 3)))


def test_chunks(x: Any, w: Any, dask_kind: Any) -> None:
    chunked = x.chunk(day=1)
    core = [["place"], ["place"]]
    lazy = xr.apply_ufunc(
        raw_dot,
        chunked,
        w,
        input_core_dims=core,
        dask="parallelized",
        output_dtypes=[float],
    )
    for found in (lazy, dot(chunked, w)):
        assert found.chunks == ((1, 1),)
        np.testing.assert_array_equal(found.compute(), VALUES @ WEIGHTS)
    slope = co.grad(lambda x: dot(x, w).sum().data)(chunked)
    assert slope.chunks is not None
    np.testing.assert_array_equal(slope.compute(), np.broadcast_to(WEIGHTS, (2, 3)))


# ---- batches ----


def test_batches_over_a_dim(x: Any, w: Any) -> None:
    found = vmap(lambda row, w: (row * w).sum(), "day")(x, w)
    np.testing.assert_array_equal(found.day, [10, 20])
    np.testing.assert_array_equal(found, VALUES @ WEIGHTS)
    column = vmap(lambda column: column - column.max("day"), "place")(x)
    assert column.dims == ("place", "day")
    np.testing.assert_array_equal(column.height, [1.0, 5.0, 9.0])
    np.testing.assert_array_equal(column, (VALUES - VALUES.max(0)).T)


def test_batches_of_datasets_gradients_and_plain_results(x: Any, w: Any) -> None:
    data = xr.Dataset({"rain": x, "weight": w})
    slope = vmap(co.grad(lambda d: (d.rain**2 * d.weight).sum().data), "day")(data)
    assert slope.rain.dims == ("day", "place")
    np.testing.assert_array_equal(slope.rain, 2 * VALUES * WEIGHTS)
    np.testing.assert_array_equal(slope.weight, VALUES**2)
    plain = vmap(lambda row: {"sum": row.data.sum()}, "day")(x)
    np.testing.assert_array_equal(plain["sum"], VALUES.sum(1))


def test_batches_that_do_not_fit(x: Any, w: Any) -> None:
    with pytest.raises(ArgumentError, match="no argument has the dim 'time'"):
        vmap(lambda a: a, "time")(x)
    with pytest.raises(ShapeError, match="has the length 2 and 3"):
        vmap(lambda a, b: a, "day")(x, w.rename(place="day"))
    with pytest.raises(ShapeError, match="different coordinates along 'day'"):
        vmap(lambda a, b: a, "day")(x, x.assign_coords(day=[1, 2]))
    with pytest.raises(ShapeError, match="'day' of its own"):
        vmap(lambda a: x, "day")(x)
