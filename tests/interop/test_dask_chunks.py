"""Operators that say how results of chunks make the result of the whole array."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import numpy as np
import pytest

import customop as co

da = pytest.importorskip("dask.array", reason="dask is not installed")
dask = pytest.importorskip("dask", reason="dask is not installed")

pytestmark = pytest.mark.usefixtures("nothing_computed")

MATRIX = np.sin(np.arange(77.0)).reshape(7, 11)
CHUNKS = ((3, 1, 3), (4, 5, 2))
# How NumPy's `pad` calls dask's kinds of boundary.
MODES: dict[Any, Any] = {
    "none": "edge",
    "periodic": "wrap",
    "reflect": "symmetric",
    "nearest": "edge",
    3.0: "constant",
}


def computed(tree: Any) -> Any:
    return dask.compute(tree, scheduler="sync")[0]


def assert_same(found: Any, expected: Any) -> None:
    """Raise unless arrays are lazy, with NumPy's numbers."""
    assert isinstance(found, da.Array)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(computed(found), expected, rtol=1e-11, atol=1e-12)


def register_chunks(op: Any, **declared: Any) -> Any:
    """Import the bridge when a test runs: other tests have a kind of their own."""
    bridge = importlib.import_module("customop.interop.dask")
    return bridge.register_chunks(op, **declared)


def define(name: str, fn: Any, schema: str, **declared: Any) -> Any:
    """An operator whose body is differentiated, with its chunks."""
    op: Any = co.custom_op(
        f"daskchunks::{name}", fn, mutates_args=(), schema=schema, device_types="cpu"
    )
    op.register_autograd(co.native)
    return register_chunks(op, **declared)


def stencil(kind: Any, before: int, after: int) -> Any:
    """The product of the first and the last element that it reaches, along both axes."""

    def fn(x: Any) -> Any:
        more: Any = {"constant_values": kind} if MODES[kind] == "constant" else {}
        padded = np.pad(x, [(before, after)] * 2, MODES[kind], **more)
        n, m = x.shape
        return padded[:n, :m] * padded[before + after :, before + after :] + x

    return fn


# ---- overlaps ----


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("reach", [1, (0, 3)])
def test_halos_give_numpys_numbers(kind: Any, reach: Any) -> None:
    """Values and gradients of a stencil, for chunks shorter than it reaches too."""
    before, after = (reach, reach) if isinstance(reach, int) else reach
    fn = stencil(kind, before, after)
    op = define(
        f"stencil_{MODES[kind]}_{kind}_{after}".replace(".", "_"),
        fn,
        "(Array[n,m] x) -> Array[n,m]",
        overlap={"n": reach, "m": reach},
        boundary=kind,
    )
    x = da.from_array(MATRIX, chunks=CHUNKS)
    assert_same(op(x), fn(MATRIX))
    slope = co.grad(lambda x: np.sum(np.sin(op(x)) * x))
    assert_same(slope(x), slope(MATRIX))


def test_higher_derivatives_and_batches() -> None:
    """Beyond the first derivative the backward formula itself runs."""
    smooth = define(
        "smooth",
        lambda x, w: w * (np.roll(x, 1, -1) + np.roll(x, -1, -1)) ** 2,
        "(Array[...,n] x, Array[n] w) -> Array[...,n]",
        overlap={"n": 1},
        boundary="periodic",
    )
    row, w = MATRIX[0], np.linspace(1.0, 2.0, 11)
    x = da.from_array(row, chunks=4)

    def loss(x: Any) -> Any:
        return np.sum(np.sin(smooth(x, w)))

    assert_same(co.hvp(loss, (x,), (w,))[0], co.hvp(loss, (row,), (w,))[0])
    tangent = co.jvp(loss, (x,), (w,))[1]
    assert_same(tangent, np.asarray(co.jvp(loss, (row,), (w,))[1]))
    assert_same(
        co.jacrev(lambda x: smooth(x, w))(x), co.jacrev(lambda x: smooth(x, w))(row)
    )
    rows = da.from_array(MATRIX, chunks=CHUNKS)
    each = co.vmap(co.grad(loss))
    assert_same(co.vmap(smooth, in_dims=(0, None))(rows, w), smooth(MATRIX, w))
    assert_same(each(rows), each(MATRIX))


def test_gradients_of_arrays_that_all_chunks_share_add_up() -> None:
    """An element in the halo of another chunk counts once."""
    op = define(
        "taps",
        lambda x, w: w[0] * np.roll(x, 1) + w[1] * x**2 + w[2] * np.roll(x, -2),
        "(Array[n] x, Array[k] w) -> Array[n]",
        overlap={"n": (1, 2)},
        boundary="periodic",
    )
    x, w = MATRIX[0], np.array([0.5, -1.0, 2.0])
    slope = co.grad(lambda x, w: np.sum(np.sin(op(x, w))), argnums=(0, 1))
    lazy = slope(da.from_array(x, chunks=4), w)
    for found, expected in zip(lazy, slope(x, w), strict=True):
        assert_same(found, expected)


def test_the_reach_may_depend_on_arguments() -> None:
    def mean(x: Any, radius: int) -> Any:
        padded = np.pad(x, radius)
        parts = [padded[i : i + len(x)] for i in range(2 * radius + 1)]
        return sum(parts) / len(parts)

    op = define(
        "mean",
        mean,
        "(Array[n] x, int radius) -> Array[n]",
        overlap={"n": lambda x, radius: radius},
    )
    x = da.from_array(MATRIX[0], chunks=4)
    for radius in (0, 1, 3):
        assert_same(op(x, radius), mean(MATRIX[0], radius))


def test_axes_without_names_have_numbers() -> None:
    """One reach holds along all axes of all arrays."""
    op = co.custom_op(
        "daskchunks::plain",
        lambda x, y: np.roll(x, 1, 0) * np.roll(y, -1, 1),
        mutates_args=(),
        schema="(Array x, Array y) -> Array",
        device_types="cpu",
    ).register_fake(lambda x, y: co.fake_like(x))
    x = da.from_array(MATRIX, chunks=CHUNKS)
    y = da.from_array(MATRIX + 1.0, chunks=(4, 6))
    register_chunks(op, overlap=1, boundary="periodic")
    assert_same(op(x, y), op(MATRIX, MATRIX + 1.0))
    register_chunks(op, overlap={0: 1, -1: (0, 1)}, boundary="periodic")
    assert_same(op(x, y), op(MATRIX, MATRIX + 1.0))
    register_chunks(op, overlap={0: 1}, boundary="periodic")
    with pytest.raises(co.ShapeError, match="3 chunks along axis 1, which the kernel"):
        op(x, y)


def _tasks(x: Any) -> int:
    (found,) = dask.optimize(x)
    return len(dict(found.__dask_graph__()))


def test_a_stencil_has_the_tasks_of_map_overlap() -> None:
    """In 16 chunks. Its gradient needs the halos of the array and of the cotangent."""

    def body(x: Any) -> Any:
        return np.roll(x, 1, 0) + np.roll(x, -1, 1) - 2.0 * x

    op = define(
        "counted",
        body,
        "(Array[n,m] x) -> Array[n,m]",
        overlap={"n": 1, "m": 1},
        boundary="periodic",
    )
    x = da.ones((40, 40), chunks=10)

    def by_hand(x: Any) -> Any:
        return da.map_overlap(body, x, depth=1, boundary="periodic", meta=x._meta)

    assert _tasks(op(x)) <= 1.05 * _tasks(by_hand(x))

    def gradient_by_hand(x: Any) -> Any:
        return da.map_overlap(
            lambda x, g: g * x,
            x,
            by_hand(x),
            depth=2,
            boundary="periodic",
            meta=x._meta,
        )

    slope = co.grad(lambda x: 0.5 * np.sum(op(x) ** 2))(x)
    assert _tasks(slope) <= 1.05 * _tasks(gradient_by_hand(x))
    op.register_autograd(lambda ctx, g: op(g), override=True)  # it is not the gradient
    register_chunks(
        op, overlap={"n": 1, "m": 1}, boundary="periodic", gradient="formula"
    )
    slope = co.grad(lambda x: 0.5 * np.sum(op(x) ** 2))(x)
    assert _tasks(slope) <= 1.05 * _tasks(by_hand(by_hand(x)))


# ---- results that are combined ----


@pytest.fixture(scope="module")
def gram(dask_kind: None) -> Any:
    return define(
        "gram",
        lambda x, w: (x * w).T @ x,
        "(Array[n,d] x, Array[d] w) -> Array[d,d]",
        combine={"n": "sum"},
    )


def test_sums_over_chunks(gram: Any) -> None:
    """Their gradient too, also that of arrays that every chunk has."""
    x, w = da.from_array(MATRIX, chunks=((3, 1, 3), -1)), np.linspace(-1.0, 1.0, 11)
    assert_same(gram(x, w), gram(MATRIX, w))
    slope = co.grad(lambda x, w: np.sum(np.sin(gram(x, w))), argnums=(0, 1))
    for found, expected in zip(slope(x, w), slope(MATRIX, w), strict=True):
        assert_same(found, expected)
    with pytest.raises(co.ShapeError, match="along axis 1 \\('d'\\)"):
        gram(x.rechunk((-1, 4)), w)


def test_sums_are_trees(gram: Any) -> None:
    """No task has more than a few parts, so that they never lie on one worker."""
    x = da.ones((64, 2), chunks=(1, 2))
    graph = dict(dask.optimize(gram(x, np.ones(2)))[0].__dask_graph__())
    assert max(len(task.dependencies) for task in graph.values()) <= 16


@pytest.mark.parametrize("how", ["max", "min"])
def test_largest_results(how: str) -> None:
    """The gradient is the formula's own, which knows of equal results in other chunks."""
    np_fn = getattr(np, how)
    op = co.custom_op(
        f"daskchunks::{how}",
        lambda x: np_fn(x, axis=0),
        mutates_args=(),
        schema="(Array[n,d] x) -> Array[d]",
        device_types="cpu",
    )

    def backward(ctx: Any, g: Any) -> Any:
        x, out = ctx.saved_arrays
        hit = x == out
        return g * hit / np.sum(hit, axis=0)

    op.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, output)
    )  # fmt: skip
    register_chunks(op, combine={"n": how})
    values = np.round(3.0 * MATRIX)
    x = da.from_array(values, chunks=CHUNKS).rechunk({1: -1})
    assert_same(op(x), op(values))
    slope = co.grad(lambda x: np.sum(np.sin(op(x))))
    assert_same(slope(x), slope(values))


def test_several_results_and_independent_chunks() -> None:
    """A reach of 0: results are concatenated along that axis, and summed along another."""
    op = define(
        "both",
        lambda x, w: (np.sin(x @ w).sum(0), (x @ w**2).sum(0)),
        "(Array[n,d] x, Array[d,k] w) -> (Array[k], Array[k])",
        overlap={"k": 0},
        combine={"n": "sum"},
    )
    x, w = MATRIX, np.cos(np.arange(33.0)).reshape(11, 3)
    lazy = da.from_array(x, chunks=(3, -1)), da.from_array(w, chunks=(-1, 2))
    for found, expected in zip(op(*lazy), op(x, w), strict=True):
        assert_same(found, expected)

    def loss(x: Any, w: Any) -> Any:
        first, second = op(x, w)
        return np.sum(first * second)

    slope = co.grad(loss, argnums=(0, 1))
    for found, expected in zip(slope(*lazy), slope(x, w), strict=True):
        assert_same(found, expected)


# ---- wrong declarations ----


WRONG = {
    "reach": ({"overlap": {"n": 1}, "boundary": "periodic"}, 2, "more than 1 elements"),
    "wraps": ({"overlap": {"n": 2}}, 2, "with the boundary 'none'"),
    "edge": ({"overlap": {"n": 2}, "boundary": "nearest"}, 2, "boundary 'nearest'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_chunk_checks_what_is_declared(name: str) -> None:
    """A kernel that reaches further, or treats its ends in another way, is an error."""
    declared, reach, message = WRONG[name]
    op = define(
        f"wrong_{name}",
        lambda x: np.roll(x, reach) + x,
        "(Array[n] x) -> Array[n]",
        **declared,
    )
    with pytest.raises(co.ContractError, match=message):
        computed(op(da.from_array(np.arange(24.0), chunks=8)))


def test_a_result_that_is_not_a_sum_is_found() -> None:
    op = define(
        "mean_of", lambda x: x.mean(0), "(Array[n,d] x) -> Array[d]", combine={"n": "sum"}
    )  # fmt: skip
    with pytest.raises(co.ContractError, match="is not the sum of the results"):
        computed(op(da.from_array(MATRIX, chunks=(3, -1))))


def test_errors_of_a_check_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel may not run on the parts of a chunk."""

    def picky(x: Any) -> Any:
        if len(x) < 6:
            raise ValueError("too short")
        return 2.0 * x

    op = define("picky", picky, "(Array[n] x) -> Array[n]", overlap={"n": 0})
    x = da.from_array(np.arange(16.0), chunks=8)
    with pytest.raises(ValueError, match="too short") as caught:
        computed(op(x))
    assert "to check what register_chunks says" in caught.value.__notes__[-1]
    monkeypatch.setattr(co.config, "checks", "never")
    assert_same(op(x), 2.0 * np.arange(16.0))


REFUSED = {
    "nothing": ({}, "says nothing"),
    "axis": ({"overlap": {"k": 1}}, "has no axis 'k'"),
    "number": ({"overlap": {0: 1}}, "has no axis 0"),
    "all": ({"overlap": 1}, "has names for its axes"),
    "reach": ({"overlap": {"n": -1}}, "reaches -1 elements"),
    "word": (
        {"overlap": {"n": 1}, "boundary": "reflects"},
        "'reflects' \\(did you mean 'reflect'\\?\\)",
    ),
    "boundary": (
        {"overlap": {"n": 1}, "boundary": {"d": "none"}},
        "boundary along 'd'",
    ),
    "lacking": ({"overlap": {"d": 0}}, "a result without the axis 'd'"),
    "having": ({"combine": {"n": "sum"}}, "a result with the axis 'n'"),
    "how": ({"combine": {"d": "mean"}}, "combines chunks by 'mean'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_declared(name: str) -> None:
    """The error comes at once, and says what to write."""
    declared, message = REFUSED[name]
    with pytest.raises(co.RegistrationError, match=message):
        define(
            f"refused_{name}",
            lambda x: x.sum(1),
            "(Array[n,d] x) -> Array[n]",
            **declared,
        )


def test_the_backward_formula_comes_first() -> None:
    """One that is registered later would not run on chunks: that is an error."""
    op = co.custom_op(
        "daskchunks::late", lambda x: 2.0 * x, mutates_args=(),
        schema="(Array[n] x) -> Array[n]", device_types="cpu",
    )  # fmt: skip
    register_chunks(op, overlap={"n": 0})
    op.register_autograd(lambda ctx, g: 2.0 * g)
    x = da.from_array(MATRIX[0], chunks=4)
    with pytest.raises(co.RegistrationError, match="registered after its chunks"):
        op(x)
    register_chunks(op, overlap={"n": 0})
    assert_same(co.grad(lambda x: np.sum(op(x)))(x), np.full(11, 2.0))


def test_results_of_other_lengths_are_refused() -> None:
    op = co.custom_op(
        "daskchunks::shorter", lambda x: x[1:], mutates_args=(),
        schema="(Array x) -> Array", device_types="cpu",
    ).register_fake(lambda x: co.fake_like(x, shape=(x.shape[0] - 1,)))  # fmt: skip
    register_chunks(op, overlap=1)
    with pytest.raises(co.ShapeError, match="a result of length 10 along axis 0"):
        op(da.from_array(MATRIX[0], chunks=4))


def annotated(x: Annotated[np.ndarray, "n"]) -> Annotated[np.ndarray, "n"]:
    return np.roll(x, 1)


def test_opcheck_knows_nothing_of_chunks() -> None:
    """On NumPy's arrays such an operator is one like any other."""
    op = co.custom_op("daskchunks::annotated", annotated, mutates_args=())
    op.register_autograd(lambda ctx, g: np.roll(g, -1))
    register_chunks(op, overlap={"n": (1, 0)}, boundary="periodic")
    with dask.config.set(scheduler="sync"):
        co.opcheck(op, (MATRIX[0],))
    assert_same(op(da.from_array(MATRIX[0], chunks=4)), np.roll(MATRIX[0], 1))
