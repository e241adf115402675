"""Operators on dask arrays: lazily, on chunks, with the fake kernel as description."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from typing import Annotated, Any

import numpy as np
import optree
import pytest

import customop as co
from tests.interop._dask_programs import energy, programs, softplus

da = pytest.importorskip("dask.array", reason="dask is not installed")
dask = pytest.importorskip("dask", reason="dask is not installed")

pytestmark = pytest.mark.usefixtures("nothing_computed")

PROGRAMS = programs()
MATRIX = np.linspace(-1.0, 1.0, 12).reshape(4, 3)


def computed(tree: Any) -> Any:
    return dask.compute(tree, scheduler="sync")[0]


def assert_same(found: Any, expected: Any) -> None:
    """Raise unless all arrays are dask's, with NumPy's numbers."""
    leaves = optree.tree_leaves(found)
    assert all(isinstance(x, da.Array) for x in leaves)
    for x, w in zip(computed(leaves), optree.tree_leaves(expected), strict=True):
        assert np.shape(x) == np.shape(w)
        np.testing.assert_allclose(x, w, rtol=1e-12, atol=1e-13)


def lazy(x: Any, chunks: Any = 2) -> Any:
    return x if chunks is None else da.from_array(x, chunks=chunks)


def through(fn: Any, x: Any) -> Any:
    """The value of NumPy code that runs as operators."""
    return co.vjp(fn, x)[0]


# ---- NumPy code ----


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_lazy_and_right(name: str) -> None:
    """Losses, gradients, steps and batches of plain NumPy code."""
    program = PROGRAMS[name]
    given = [lazy(x, c) for x, c in zip(program.args, program.chunks, strict=True)]
    assert_same(program.fn(*given), program.fn(*program.args))


def closures() -> dict[str, Any]:
    """Transforms of functions that see a lazy array from outside."""

    @co.custom_jvp
    def sine(z: Any) -> Any:
        return np.sin(z)

    sine.defjvp(lambda p, t: (np.sin(p[0]), np.cos(p[0]) * t[0]))
    w = np.ones(3)
    return {
        "linearize": lambda x: co.linearize(lambda x: np.sin(x) * x, x)[1](x),
        "linearize, closed": lambda x: co.linearize(lambda w: np.sin(x @ w), w)[1](w),
        "custom_jvp": lambda x: co.grad(lambda w: np.sum(sine(x @ w)))(w),
        "checkpoint": lambda x: co.grad(
            lambda x: np.sum(co.checkpoint(lambda x: np.sin(x) * x)(x))
        )(x),
        "operator": lambda x: co.hvp(lambda w: np.sum(softplus(x @ w)), (w,), (w,)),
        "hessian": lambda x: co.hessian(lambda w: np.sum(np.sin(x @ w)))(w),
        "jacobian": lambda x: co.jacfwd(lambda w: np.tanh(x @ w))(w),
    }


@pytest.mark.parametrize("name", closures())
def test_lazy_arrays_from_outside(name: str) -> None:
    """Every transform carries what comes from a closure, or is made of it."""
    fn = closures()[name]
    assert_same(fn(lazy(MATRIX)), fn(MATRIX))


def test_values_are_not_asked_for() -> None:
    """Functions that look at values in NumPy take the way that is right for all."""

    def steps(x: Any) -> Any:
        edges = np.linspace(x[0, 0], x[-1, -1], 4)
        return np.histogram(x, edges)[0], np.interp(0.3, x[:, 0], x[:, 1], period=2.0)

    assert_same(through(steps, lazy(MATRIX)), steps(MATRIX))


def test_a_branch_is_warned_of_once() -> None:
    """It computes an array while a transform builds tasks: the line is said once."""

    def loss(x: Any) -> Any:
        if np.any(x > 50.0):
            return np.sum(x)
        return np.sum(x * x)

    x = da.arange(6.0, chunks=2)
    with (
        warnings.catch_warnings(record=True) as found,
        dask.config.set(scheduler="sync"),
    ):
        warnings.simplefilter("always")
        for _ in range(2):
            slope = co.grad(loss)(x)
            np.testing.assert_array_equal(computed(slope), 2 * np.arange(6.0))
        loss(x)  # dask itself says nothing
    [warning] = found
    assert str(warning.message) == (
        "a branch needs the value of an array of dask, which is computed now, while a"
        " transform runs\n"
        "  do: np.where(mask, a, b) in place of the branch, or compute it before"
    )
    first = loss.__code__.co_firstlineno
    assert (warning.filename, warning.lineno) == (__file__, first + 1)


def test_gradients_that_were_written_have_their_new_numbers() -> None:
    """A note that all elements are 1 ends where one of them is written."""
    x = lazy(np.arange(4.0))
    g = co.grad(np.sum)(x)
    assert_same(softplus(g), np.logaddexp(0.0, np.ones(4)))
    g[0] = 5.0
    wanted = np.array([5.0, 1.0, 1.0, 1.0])
    assert_same(softplus(g), np.logaddexp(0.0, wanted))
    assert_same(through(np.sin, g), np.sin(wanted))
    assert_same(co.grad(lambda y: np.sum(y * g))(x), wanted)


def test_broadcast_arrays_that_were_written_have_their_new_numbers() -> None:
    rows = through(lambda x: np.broadcast_to(x, (2, 4)), lazy(np.arange(4.0)))
    rows[0, 0] = 5.0
    wanted = np.array([[5.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]])
    assert_same(softplus(rows), np.logaddexp(0.0, wanted))


def test_indices_add_up_over_chunks() -> None:
    """Rows that are read from several chunks of the indices."""
    table, places = np.arange(10.0).reshape(5, 2), np.array([0, 3, 3, 1, 4, 3])

    def loss(table: Any, places: Any) -> Any:
        return np.sum(np.sin(table[places]) ** 2)

    found = co.grad(loss)(lazy(table, (5, 1)), lazy(places, 2))
    assert_same(found, co.grad(loss)(table, places))


def test_lengths_that_depend_on_data() -> None:
    """They are unknown, as in dask; what needs them says so and never cuts wrongly."""
    x = lazy(np.array([3.0, -1.0, 2.0, -4.0, 5.0]))

    def positive(x: Any) -> Any:
        return np.sort(np.extract(x > 0, x))

    found = through(positive, x)
    assert np.isnan(found.shape[0])
    assert computed(found).tolist() == [2.0, 3.0, 5.0]
    with pytest.raises(co.DataDependentError, match="needs the length of axis 0"):
        through(lambda x: positive(x)[1:], x)


# ---- operators of a user ----


def test_pointwise_operators_run_on_chunks() -> None:
    """Also with gradients, tangents and batches; arrays of NumPy stand beside."""
    x = lazy(MATRIX)
    out = softplus(x)
    assert out.chunks == x.chunks
    assert_same(out, softplus(MATRIX))
    assert_same(
        co.jvp(softplus, (x,), (MATRIX,)), co.jvp(softplus, (MATRIX,), (MATRIX,))
    )
    slope = co.vmap(co.grad(lambda row: np.sum(softplus(row) * row)))
    assert_same(slope(x), slope(MATRIX))


def test_shapes_say_which_axes_are_cut() -> None:
    """The axes `...` stay in chunks; results have lengths from the fake kernel."""
    k = np.array([[1.0, 0.2, 0.0], [0.0, 1.0, 0.5], [0.3, 0.0, 2.0]])
    x = lazy(MATRIX, (2, -1))
    assert energy(x, k).chunks == ((2, 2),)
    assert_same(energy(x, k), energy(MATRIX, k))
    slope = co.grad(lambda x, k: np.sum(np.sin(energy(x, k))), argnums=(0, 1))
    assert_same(slope(x, k), slope(MATRIX, k))
    rows = co.vmap(energy, in_dims=(0, None))
    assert_same(rows(x, lazy(k, -1)), rows(MATRIX, k))


def test_cut_core_axes_are_refused() -> None:
    """The error names the axis, and the call that makes it whole."""
    with pytest.raises(co.ShapeError) as caught:
        energy(lazy(MATRIX), lazy(np.eye(3), 3))
    assert str(caught.value) == (
        "daskprograms::energy: argument 'x' has 2 chunks along axis 1 ('n'), which the"
        " kernel needs whole\n"
        "  daskprograms::energy(Array[...,n] x, Array[n,n] k) -> Array[...]\n"
        "                       ^^^^^^^^^^^^^^\n"
        "  do: x.rechunk({1: -1}), if a worker can hold such a chunk"
    )


def _define(name: str, fn: Any, **options: Any) -> Any:
    return co.custom_op(f"daskops::{name}", fn, mutates_args=(), **options)


def test_several_results_and_lists() -> None:
    """Each result is an array of its own, nested as the operator returns them."""

    def largest(
        x: Annotated[np.ndarray, "... n"], k: int
    ) -> tuple[Annotated[np.ndarray, "... k"], Annotated[np.ndarray, "... k"]]:
        found = np.sort(x, axis=-1)[..., ::-1][..., :k]
        return found.copy(), -found

    def total(parts: list[co.Array]) -> co.Array:
        return sum(parts[1:], parts[0] * 1.0)

    largest_op = _define("largest", largest)
    found = largest_op(lazy(MATRIX, (2, -1)), 2)
    assert isinstance(found, tuple)
    assert [x.chunks for x in found] == [((2, 2), (2,))] * 2
    assert_same(found, largest_op(MATRIX, 2))
    total_op = _define("total", total, device_types="cpu")
    total_op.register_fake(lambda parts: co.fake_like(parts[0]))
    whole = lazy(MATRIX, -1)
    assert_same(total_op([whole, MATRIX, whole]), 3 * MATRIX)
    with pytest.raises(co.ShapeError, match="'parts' at index 1 has 2 chunks along"):
        total_op([whole, lazy(MATRIX)])


def test_shapes_go_before_a_default_kernel() -> None:
    """A default kernel without shapes gets the dask array, one with shapes its chunks."""
    seen = []

    def doubled(x: co.Array) -> co.Array:
        seen.append(type(x))
        return 2.0 * x

    def tripled(x: Annotated[np.ndarray, "... n"]) -> Annotated[np.ndarray, "... n"]:
        seen.append(type(x))
        return 3.0 * x

    x = lazy(MATRIX, (2, -1))
    assert_same(_define("doubled", doubled)(x), 2.0 * MATRIX)
    assert set(seen) == {da.Array}
    seen.clear()
    assert_same(_define("tripled", tripled)(x), 3.0 * MATRIX)
    assert set(seen) == {np.ndarray}


def test_a_kernel_for_dask_goes_first() -> None:
    """A kernel that is registered for the kind goes before the derived one."""
    op = _define(
        "own", lambda x: x + 1.0, schema="(Array x) -> Array", tags=co.Tag.pointwise
    )
    x = lazy(MATRIX)
    assert "which derives it" in str(op.explain(x))
    op.register_kernel("dask", lambda x: x + 100.0)
    assert_same(op(x), MATRIX + 100.0)


REFUSED = {
    "written": (
        lambda: co.custom_op(
            "daskops::written", lambda x: None, mutates_args=("x",), schema="(Array(a!) x) -> ()"
        ),
        "writes 'x', and a dask array cannot",
    ),
    "random": (
        lambda: _define(
            "random", lambda x, g: x, schema="(Array x, Generator g) -> Array"
        ),
        "draws random numbers: each chunk would draw the same",
    ),
    "no fake kernel": (
        lambda: _define(
            "nofake", lambda x: x, schema="(Array x) -> Array", device_types="cpu"
        ),
        "has no kernel for 'dask'; it has 'cpu'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_on_chunks(name: str) -> None:
    """The error says why, and which kernel to register."""
    make, message = REFUSED[name]
    args = [lazy(MATRIX), *([np.random.default_rng(0)] if name == "random" else [])]
    with pytest.raises(co.MissingRuleError, match=message) as caught:
        make()(*args)
    assert 'register_kernel("dask")' in str(caught.value)


def test_results_that_are_not_arrays() -> None:
    """A number cannot be computed later."""
    op = _define(
        "number", lambda x: 1.0, schema="(Array x) -> float", device_types="cpu"
    )
    op.register_fake(lambda x: 1.0)
    with pytest.raises(co.MissingRuleError, match="returns more than arrays"):
        op(lazy(MATRIX, -1))


def test_joined_chunks_have_dasks_limit() -> None:
    """NumPy's functions join chunks up to ``array.chunk-size``; then they refuse."""
    x = da.ones((1000, 1000), chunks=100)
    assert co.vmap(np.sort)(x).shape == (1000, 1000)
    with dask.config.set({"array.chunk-size": "100kiB"}):
        with pytest.raises(co.ShapeError) as caught:
            co.vmap(np.sort)(x)
        assert co.vmap(np.sort)(x.rechunk((10, -1))).chunks[0] == (10,) * 100
    assert str(caught.value) == (
        "np::sort: argument 'x' has 10 chunks along axis 1, which the kernel needs whole:"
        " joined they have 781.25 kiB, and dask's array.chunk-size is 100.00 kiB\n"
        "  np::sort(Array x, int axis=-1, bool descending=False) -> Array\n"
        "           ^^^^^^^\n"
        "  do: x.rechunk({1: -1}), if a worker can hold such a chunk"
    )


# ---- tasks ----


def _tasks(*arrays: Any) -> int:
    """How many functions a computation of all of them calls in tasks of their own."""
    graph: dict[Any, Any] = {}
    for x in dask.optimize(*arrays):
        graph |= dict(x.__dask_graph__())
    return sum(hasattr(task, "func") for task in graph.values())


def test_a_gradient_has_no_more_tasks_than_one_by_hand() -> None:
    """Of a logistic regression, where dask cuts products with vectors into more of them."""
    x, y = lazy(np.ones((8, 3)), (2, 3)), lazy(np.ones(8))
    w = np.zeros(3)

    def loss(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        return np.mean(np.logaddexp(0.0, z) - y * z)

    z = x @ w
    hand = x.T @ ((1.0 / (1.0 + da.exp(-z)) - y) / 8)
    value = da.mean(da.logaddexp(0.0, z) - y * z)
    most = _tasks(value, hand)
    assert _tasks(*co.value_and_grad(loss)(w, x, y)) <= most
    assert _tasks(*co.value_and_grad(lambda w: loss(w, x, y))(w)) <= most
    by_vjp, pullback = co.vjp(lambda w: loss(w, x, y), w)
    assert _tasks(by_vjp, *pullback(da.ones(()))) <= most + 2


@pytest.mark.parametrize("dtype", [float, int, bool, complex])
@pytest.mark.parametrize("chunks", [(4, 3), (2, 3), (2, 2), ((1, 3), (2, 1))])
def test_products_with_vectors(chunks: Any, dtype: type) -> None:
    """On either side, of chunks that are cut along both axes, or of NumPy's arrays."""
    x = (MATRIX * 3).astype(dtype)
    column, row = x[:, 1], x[1]
    pairs = [
        (lazy(x, chunks), row),
        (lazy(x, chunks), lazy(row)),
        (column, lazy(x, chunks)),
        (lazy(column, 3), lazy(x, chunks)),
        (lazy(column, chunks[0]), lazy(column, 3)),
    ]
    for a, b in pairs:
        expected = np.matmul(*[np.asarray(computed(v)) for v in (a, b)])
        found = co.ops.np.matmul(a, b)
        assert found.dtype == expected.dtype
        assert_same(found, expected)


def test_a_chunk_that_is_alone_is_not_copied() -> None:
    """Where a kernel needs an axis whole, one chunk along it comes as it is."""
    made, seen = [], []

    def make(x: Any) -> Any:
        made.append(x + 1.0)
        return made[-1]

    def total(x: Any) -> Any:
        seen.append(x)
        return x.sum(-1)

    make_op = _define("made", make, schema="(Array x) -> Array", tags=co.Tag.pointwise)
    total_op = _define("total_of", total, schema="(Array[...,n] x) -> Array[...]")
    found = total_op(make_op(lazy(MATRIX, (2, -1))))
    assert_same(found, (MATRIX + 1.0).sum(-1))
    assert {id(x) for x in seen} & {id(x) for x in made}


def test_an_error_names_the_operator_and_the_chunk() -> None:
    """In a note, which keeps its class and goes with it between processes."""

    def picky(x: Any) -> Any:
        if x.max() > 0.5:
            raise ValueError("too large")
        return x

    op = _define("picky", picky, schema="(Array x) -> Array", tags=co.Tag.pointwise)
    values = np.zeros((4, 6))
    values[3, 4] = 1.0
    for found in (op(lazy(values, (2, 3))), op(lazy(values, (2, 3)) + 0.0) * 2.0):
        with pytest.raises(ValueError, match="too large") as caught:
            computed(found)
        error = pickle.loads(pickle.dumps(caught.value))
        assert error.__notes__ == [
            "in daskops::picky on chunk (1, 1): an array of shape (2, 3)"
        ]
        assert not any("_task_spec" in str(entry.path) for entry in caught.traceback)


def test_equal_calls_have_equal_keys() -> None:
    """A graph of the same call is the same; another kernel or number makes another."""
    x = lazy(MATRIX)
    op = _define(
        "keyed", lambda x, k=1.0: x * k, schema="(Array x, float k=1.0) -> Array",
        tags=co.Tag.pointwise,
    )  # fmt: skip
    first = op(x).name
    assert op(x).name == first
    assert op(x, 2.0).name != first
    op.register_kernel("cpu", lambda x, k: x + k)
    assert op(x).name != first


def test_tasks_of_local_operators_travel() -> None:
    """An operator that another process cannot import takes its kernel along."""
    factor = 3.0
    op = _define(
        "local",
        lambda x: x * factor,
        schema="(Array x) -> Array",
        tags=co.Tag.pointwise,
    )
    graph = pickle.loads(pickle.dumps(dict(op(lazy(MATRIX)).__dask_graph__())))
    assert len(graph) >= 4
    for value in (op, softplus):
        [task] = [
            t for k, t in value(lazy(MATRIX, -1)).__dask_graph__().items()
            if k[0].startswith(value.name)
        ]  # fmt: skip
        assert pickle.loads(pickle.dumps(task)).key == task.key


def test_dask_is_not_imported_until_it_is_needed() -> None:
    """Neither by customop nor by the bridge itself."""
    program = (
        "import sys, customop, customop.interop.dask; assert 'dask' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
