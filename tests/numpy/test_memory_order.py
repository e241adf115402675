"""Results lie in memory as NumPy's: sums over them then have the same bits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import customop as co

# How an array of three axes may lie in memory.
ORDERS: dict[str, Any] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "turned": lambda x: np.ascontiguousarray(x.transpose(1, 2, 0)).transpose(2, 0, 1),
    "steps": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 2)[::2, :, ::2],
    "backward": lambda x: np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1],
}


def _strides(x: Any) -> list[int]:
    """Strides of axes that have any."""
    return [s for s, n in zip(x.strides, x.shape, strict=True) if n > 1 and x.size]


def _check(fn: Any, x: np.ndarray[Any, Any]) -> None:
    """Fake, captured and compiled results lie as those of NumPy."""
    expected = fn(x)
    fake = co.eval_shape(fn, x)
    for found in (fake, co.make_fx(fn)(x)(x), co.compile(fn)(x)):
        assert found.shape == expected.shape
        assert _strides(found) == _strides(expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [float, np.float32, np.float16, int, complex, bool])
def test_round(order: str, dtype: Any) -> None:
    """With decimals NumPy makes C order, but for arrays in Fortran's."""
    x = ORDERS[order](np.arange(24).reshape(2, 3, 4)).astype(dtype, order="K")
    _check(np.round, x)
    if dtype is not bool:
        _check(lambda x: np.round(x, 2), x)
        _check(lambda x: np.round(x, -1), x)


KEYS: dict[str, Any] = {
    "first": lambda i: i,
    "middle": lambda i: np.s_[:, i],
    "last": lambda i: np.s_[..., i],
    "two": lambda i: np.s_[:, i, i],
    "apart": lambda i: np.s_[i, :, i],
    "all": lambda i: np.s_[i, i, i],
    "sliced": lambda i: np.s_[::-1, i, 1:],
    "number": lambda i: np.s_[1, :, i],
    "new axis": lambda i: np.s_[:, None, i],
    "mask": lambda i: np.s_[:, np.array([True, False, True])],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", KEYS)
def test_index_arrays(order: str, key: str) -> None:
    """The axes of index arrays are the slowest ones, wherever they are in the shape."""
    x = ORDERS[order](np.random.default_rng(0).normal(size=(2, 3, 4)))
    for indices in (np.array([1, 0]), np.array([[1, 0, 1]]), np.array([], int)):
        entry = KEYS[key](indices)
        _check(lambda x, entry=entry: x[entry], x)
    if key == "middle":
        _check(lambda x: np.take(x, [1, 0], axis=1), x)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
def test_random_index_arrays(seed: int) -> None:
    """Any axes, any shapes that broadcast, arrays in any order."""
    rng = random.Random(seed)
    for _ in range(60):
        ndim = rng.randint(1, 4)
        turn = rng.sample(range(ndim), ndim)
        shape = [rng.choice([1, 2, 3, 5]) for _ in range(ndim)]
        x = np.arange(np.prod(shape)).reshape(shape).transpose(turn)
        x = x[tuple([slice(None, None, rng.choice([1, -1])) for _ in shape])]
        wide = [rng.choice([0, 1, 2, 3]) for _ in range(rng.randint(1, 2))]
        key: list[Any] = [slice(None)] * ndim
        for axis in rng.sample(range(ndim), rng.randint(1, ndim)):
            own = [n if rng.random() < 0.7 else 1 for n in wide]
            found = np.array(
                [rng.randrange(x.shape[axis]) for _ in range(np.prod(own))]
            )
            order: Any = rng.choice("CF")
            key[axis] = found.reshape(own).astype(int, order=order)
        _check(lambda x, key=tuple(key): x[key], x)


def test_sums_have_the_same_bits() -> None:
    """NumPy adds in the order of memory."""
    x = np.random.default_rng(1).normal(size=(37, 53)) * 1e3
    columns = np.arange(0, 53, 2)
    for fn in (
        lambda x: np.sum(x[:, columns]),
        lambda x: np.mean(x.T[columns]),
        lambda x: np.sum(np.round(x.T, 3)),
        lambda x: np.ravel(x[:, columns] * 2.0),
    ):
        np.testing.assert_array_equal(co.compile(fn)(x), fn(x), strict=True)


def test_clip_of_repeated_rows() -> None:
    for x in (np.broadcast_to([True, False, True], (4, 3)), np.ones((3, 1, 2), "i2")):
        _check(lambda x: np.clip(x, -1, 1), x)
        _check(lambda x: np.clip(x, np.int32(-1), 1), np.broadcast_to(x, (2, *x.shape)))


def test_tile_of_nothing_is_a_view() -> None:
    x = np.broadcast_to(np.zeros((0, 1)), (0, 3))
    found, expected = co.compile(lambda x: np.tile(x, 2))(x), np.tile(x, 2)
    assert found.flags.writeable == expected.flags.writeable
    assert found.shape == expected.shape


@pytest.mark.parametrize("dtype", [bool, int, float, complex])
def test_an_array_with_axes_as_an_element_is_an_error_where_numpy_has_one(
    dtype: Any,
) -> None:
    def fn(x: Any, y: Any) -> Any:
        x[0] = y
        return x * 1

    for other in (bool, float):
        seen = []
        for f in (fn, co.compile(fn)):
            try:
                seen.append(str(f(np.zeros(2, dtype), np.ones(1, other))))
            except (ValueError, TypeError) as error:
                seen.append(str(error))
        assert seen[0] == seen[1]


EINSUMS = ("ijk,ikl->ijl", "ijk,ikl->lj", "ijk,jk->ijk", "ijk,k->ji", "ijk,kl,lm->mij")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("text", EINSUMS)
def test_einsum(order: str, text: str) -> None:
    x = ORDERS[order](np.arange(24.0).reshape(2, 3, 4))
    lengths = dict(zip("ijklm", (2, 3, 4, 2, 3), strict=True))
    terms = text.partition("->")[0].split(",")[1:]
    others = [np.ones([lengths[c] for c in term], order="F") for term in terms]
    _check(lambda x: np.einsum(text, x, *others), x)


@pytest.mark.parametrize("order", ORDERS)
def test_functions_that_give_c_order(order: str) -> None:
    x = ORDERS[order](np.arange(24.0).reshape(2, 3, 4))
    _check(np.iscomplex, x)
    _check(lambda x: np.dot(np.float64(2.0), x), x)
    ways = {"axis": 1, "weights": np.arange(1.0, 4.0), "method": "inverted_cdf"}
    _check(lambda x: np.quantile(x, [0.2, 0.7], **ways), x)


# ---- results of several operators ----

NEW = np.arange(8.0).reshape(2, 1, 4)
STEPS = np.arange(24.0).reshape(2, 3, 4)
LAID: dict[str, Any] = {
    "delete": lambda x: np.delete(x, slice(0, 1), 1),
    "insert": lambda x: np.insert(x, 1, NEW[:, 0], axis=1),
    "gradient": lambda x: np.gradient(x, axis=1),
    "unwrap": lambda x: np.unwrap(x, axis=0),
    "select": lambda x: np.select([x > 3.0, x > 9.0], [x, -x], 1.0),
    "linspace": lambda x: np.linspace(x, x + 1.0, 3),
    "imag": np.imag,
    "correlate": lambda x: np.correlate(x[0, :2, 0], x[1, :, 1], "full"),
    "histogramdd": lambda x: np.histogramdd(x[:, :, 0].T, 2)[0],
    "number": lambda x: x[..., np.array(1)],
    **{
        f"pad {mode}": lambda x, mode=mode: np.pad(x, 1, mode=mode)
        for mode in ("edge", "reflect", "wrap", "mean", "maximum", "linear_ramp")
    },
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LAID)
def test_functions_of_several_operators(order: str, name: str) -> None:
    """NumPy makes one array, with an order of its own."""
    _check(LAID[name], ORDERS[order](STEPS))


# Functions that return an array as it is, or a copy in another order.
CONVERTED: dict[str, Any] = {
    "ascontiguousarray": lambda x: np.ascontiguousarray(x, like=x),
    "asfortranarray": lambda x: np.asfortranarray(x, like=x),
    "asarray C": lambda x: np.asarray(x, order="C", like=x),
    "asarray A": lambda x: np.asarray(x, order="a", like=x),
    "array A": lambda x: np.array(x, order="a", like=x),
    "require": lambda x: np.require(x.T, requirements="C", like=x),
    "reshape": lambda x: x.reshape(-1),
    "of one axis": lambda x: np.ascontiguousarray(x[0, :, 1], like=x),
    "number": lambda x: x[np.array(1)],
    "number last": lambda x: x[:, :, np.array(-1)],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CONVERTED)
def test_what_is_written_into_a_copy_does_not_reach_the_array(
    order: str, name: str
) -> None:
    """Strides decide whether it is a copy, also while values are traced."""

    def fn(x: Any) -> Any:
        y = CONVERTED[name](x)
        y += 100.0
        return x + 0.0, y + 0.0

    def new() -> Any:
        return ORDERS[order](STEPS.copy())

    expected = fn(new())
    graphs = [co.make_fx(fn, mode)(new()) for mode in ("real", "fake")]
    for run in (*graphs, co.compile(fn), lambda x: co.vjp(fn, x)[0]):
        for found, value in zip(run(new()), expected, strict=True):
            np.testing.assert_array_equal(found, value, strict=True)
            assert _strides(found) == _strides(value)
    rows = co.vmap(fn)(np.stack([STEPS, 2.0 * STEPS]))
    for row, value in zip(rows, fn(STEPS.copy()), strict=True):
        np.testing.assert_array_equal(row[0], value)


PLACES = np.random.default_rng(3).integers(0, 2, (2, 3, 4))


@pytest.mark.parametrize("order", ORDERS)
def test_index_arrays_of_all_axes(order: str) -> None:
    """The elements lie as the index arrays do, if no axis of the array stays."""
    places = ORDERS[order](PLACES)
    line, square = np.arange(5.0), np.arange(9.0).reshape(3, 3)
    _check(lambda x: x[places], line)
    _check(lambda x: x[places.astype(np.int32)], line)
    _check(lambda x: x[places, 1], square)
    _check(lambda x: x[places, places[:, :1]], square)
    _check(lambda x: x[PLACES[0], places], square)
    _check(lambda x: x[places], square)
    for axis in range(3):
        _check(lambda x, axis=axis: np.take_along_axis(x, places, axis), STEPS)
        _check(lambda x, axis=axis: np.take_along_axis(x, PLACES, axis), places)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(order: str, mode: Any) -> None:
    """R is a part of a copy of the matrices, Q a result of LAPACK."""
    x = ORDERS[order](np.random.default_rng(1).normal(size=(2, 3, 4)))
    for matrices in (x, x.swapaxes(1, 2), x[:, :, :1], x[0]):
        _check(lambda a: np.linalg.qr(a, mode)[0], matrices)
        _check(lambda a: np.linalg.qr(a, mode)[1], matrices)
        _check(lambda a: np.linalg.qr(a, "r"), matrices)


def test_edges_that_are_given_come_back() -> None:
    """NumPy gives the array of edges itself, with its strides."""
    edges = np.arange(8.0)[::2]
    _check(lambda e: np.histogram(STEPS, e)[1], edges)
    _check(lambda e: np.histogram_bin_edges(STEPS, e), edges)
    _check(lambda e: np.histogram2d(STEPS[0, 0], STEPS[0, 1], [e, 3])[1], edges)


def test_a_write_into_edges_reaches_the_array_that_was_given() -> None:
    """As NumPy's edges, those of traced values are the given array."""

    def fn(e: Any) -> Any:
        mine = e + 0.0
        edges = np.histogram(STEPS, mine)[1]
        edges[0] = -5.0
        return mine

    given = np.arange(4.0)
    expected = fn(given)
    assert expected[0] == -5.0
    runs = (co.make_fx(fn, "fake")(given), co.compile(fn), lambda e: co.vjp(fn, e)[0])
    for run in runs:
        np.testing.assert_array_equal(run(given), expected)
    np.testing.assert_array_equal(co.vmap(fn)(given[None]), [expected])


# Functions whose results have other lengths.
OTHER_LENGTHS: dict[str, Any] = {
    "delete": lambda x: np.delete(x, 0, axis=1),
    "delete two": lambda x: np.delete(x, [0, 2], axis=1),
    "take": lambda x: x[:, np.array([[1, 2], [0, 0]])],
    "take last": lambda x: x[..., np.array([1, 2, 0])],
    "delete part": lambda x: np.delete(x, np.s_[:1], axis=0),
    "delete in steps": lambda x: np.delete(x, np.s_[::2], axis=1),
    "insert": lambda x: np.insert(x, 1, 7.0, axis=0),
    "insert two": lambda x: np.insert(x, [0, 1], 7.0, axis=1),
    "insert in steps": lambda x: np.insert(x, np.s_[::2], 7.0, axis=1),
    "edge": lambda x: np.pad(x, 1, mode="edge"),
    "wrap": lambda x: np.pad(x, 1, mode="wrap"),
    "mean": lambda x: np.pad(x, 1, mode="mean"),
    "odd": lambda x: np.pad(x, 1, mode="reflect", reflect_type="odd"),
    "ramp": lambda x: np.pad(x, 1, mode="linear_ramp"),
}


@pytest.mark.parametrize("has_sizes", [False, True])
@pytest.mark.parametrize("name", OTHER_LENGTHS)
def test_the_order_is_that_of_each_call(name: str, has_sizes: bool) -> None:
    """A graph that saw one order lays results of another order as NumPy does."""
    fn = OTHER_LENGTHS[name]
    x = np.random.default_rng(0).standard_normal((4, 5, 3))
    for first in ORDERS.values():
        shown = first(x)
        compiled = co.compile(fn)
        graph = co.make_fx(fn, "symbolic" if has_sizes else "real")(shown)
        if has_sizes:
            compiled(shown[1:, 1:])
            compiled(shown[:, 2:])
        compiled(shown)
        for later in ORDERS.values():
            given = later(x)
            expected = fn(given)
            for found in (graph(given), compiled(given)):
                assert _strides(found) == _strides(expected)
                np.testing.assert_array_equal(found, expected)


def test_gradients_do_not_follow_the_order_that_was_traced() -> None:
    """The gradient of a call in another order has the bits that it has alone."""
    x = np.random.default_rng(0).standard_normal((7, 12))
    fn = co.grad(lambda a: np.sum(np.sum(np.pad(a, 1, mode="edge") ** 2, axis=0) ** 2))
    compiled = co.compile(fn)
    for given in (x, np.asfortranarray(x), x[::-1]):
        expected, found = fn(given), compiled(given)
        assert found.tobytes() == expected.tobytes()
        assert found.strides == expected.strides
