"""Shape and indexing of NumPy operators: keys, views and errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.numpy.index_operators import scattered
from tests.cases import each

X = np.arange(120.0).reshape(2, 3, 4, 5)


class Through(co.Interpreter):
    """Runs every call as an operator."""

    kind = co.RuleKind("through")

    def process(self, op: Any, args: Any) -> Any:
        """Run the operator below."""
        return self.wrap(op.invoke(self.unwrap(args)))


def through(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a function that runs as operators."""
    with Through() as run:
        return run.lower(fn(*[run.wrap(a) for a in args]))


def outcome(fn: Callable[[], Any]) -> Any:
    """The result of a call, or the class and text of its error."""
    try:
        found = fn()
    except (IndexError, TypeError, ValueError) as error:
        return type(error), str(error)
    return np.shape(found), np.asarray(found).tolist()


def over(calls: list[Any]) -> Any:
    """Run a test for each call; its number in the table is its name."""
    return pytest.mark.parametrize("fn", calls, ids=range(len(calls)))


# ---- keys ----

ITEMS = [
    0,
    -1,
    slice(None),
    slice(None, None, -2),
    None,
    ...,
    [0, 1],
    np.array([[1], [0]]),
    True,
    np.array([True, False]),
]
KEYS = [
    *itertools.product(ITEMS, repeat=1),
    *itertools.product(ITEMS, repeat=2),
    *itertools.product(ITEMS, repeat=3),
]


@pytest.mark.parametrize("first", range(len(ITEMS)))
def test_keys_mean_what_they_mean_to_numpy(first: int) -> None:
    """Every key of up to three items gives NumPy's elements, or NumPy's kind of error."""
    x = np.arange(36.0).reshape(2, 3, 2, 3)
    for key in (k for k in KEYS if k[0] is ITEMS[first]):
        expected = outcome(lambda key=key: x[key])
        actual = outcome(lambda key=key: through(lambda a: a[key], x))
        same = actual[0] == expected[0] if isinstance(expected[0], type) else False
        assert same or actual == expected, key


BAD_KEYS = [
    5,
    -3,
    (0, 3),
    (0, 0, 0, 0, 0),
    (..., ...),
    1.5,
    "name",
    [0.5, 1.0],
    np.array([1.0]),
    np.array([True, False, True]),
    (slice(None), np.ones((3, 3), bool)),
    ([0, 1], [0, 1, 2]),
    ([2],),
    (slice(None), [0, 3]),
]


@pytest.mark.parametrize("key", BAD_KEYS, ids=range(len(BAD_KEYS)))
def test_bad_keys_raise_the_error_of_numpy(key: Any) -> None:
    """A key that NumPy refuses raises the same error."""
    expected = outcome(lambda: X[key])
    assert outcome(lambda: through(lambda a: a[key], X)) == expected


@pytest.mark.parametrize("key", BAD_KEYS[:-2], ids=range(len(BAD_KEYS) - 2))
def test_bad_keys_of_rows_raise_the_error_of_numpy(key: Any) -> None:
    """Under vmap the axes in the message are those of the row."""
    expected = outcome(lambda: X[key])
    assert outcome(lambda: co.vmap(lambda a: a[key])(np.stack([X, X]))) == expected


@pytest.mark.parametrize("key", BAD_KEYS[:-2], ids=range(len(BAD_KEYS) - 2))
def test_bad_keys_of_fake_arrays_raise_the_error_of_numpy(key: Any) -> None:
    """A fake array raises the same error for a key as a real one."""
    expected = outcome(lambda: X[key])
    assert outcome(lambda: co.eval_shape(lambda a: a[key], X)) == expected


def test_step_of_zero_is_an_error() -> None:
    """A slice with step 0 raises NumPy's error."""
    expected = outcome(lambda: X[::0])
    assert outcome(lambda: through(lambda a: a[::0], X)) == expected


# ---- shapes that depend on data ----


@over([lambda x: x[x > 0.0], np.nonzero, np.flatnonzero])
def test_mask_of_a_row_is_refused(fn: Any) -> None:
    """A mask that differs between rows is an error that names np.where."""
    with pytest.raises(co.DataDependentError, match=r"np\.where"):
        co.vmap(fn)(np.ones((2, 3)))


def test_fake_mask_gives_a_size_that_depends_on_data() -> None:
    """One for each mask: what it takes can be computed with and written back."""

    def fn(x: Any) -> Any:
        mask = x > 0.0
        found = x[mask]
        x[mask] = found * 2.0
        x[x < 0.0] = 0.0
        return x, found, np.nonzero(mask)[0], x[:, x[0] > 1.0]

    x, found, places, columns = co.eval_shape(fn, np.ones((3, 2)))
    assert x.shape == (3, 2)
    assert str(found.shape) == str(places.shape) == "(u0,)"
    assert str(columns.shape) == "(3, u1)"
    assert found.shape[0] <= 6
    assert found.shape[0] >= 0


def test_argwhere_is_numpys() -> None:
    """np.argwhere of a traced array has a row for each place."""
    x = np.array([[1.0, 0.0], [2.0, 3.0]])
    assert through(np.argwhere, x).tolist() == [[0, 0], [1, 0], [1, 1]]


# ---- views ----

VIEWS = [
    lambda x: np.transpose(x, (2, 0, 3, 1)),
    lambda x: x[:, ::-1, 1, ::2],
    lambda x: x[None, 0, ..., -1],
    lambda x: np.flip(x, (0, 3)),
    lambda x: np.reshape(x, (6, 2, 10)),
    lambda x: np.reshape(np.transpose(x, (3, 0, 1, 2)), (5, 6, 2, 2)),
    lambda x: np.swapaxes(x, 1, 2),
    lambda x: np.broadcast_to(x[:, :1], (7, 2, 3, 4, 5)),
    lambda x: np.split(x, 2, axis=2)[1],
    lambda x: np.expand_dims(x, (0, 3)),
    lambda x: np.squeeze(x[:1]),
]


@over(VIEWS)
def test_strides_of_fake_views_are_those_of_views(fn: Any) -> None:
    """Axes longer than one have the strides of NumPy's view."""
    real = fn(X)
    fake = co.eval_shape(fn, X)
    assert real.base is not None
    found = [s for s, n in zip(fake.strides, fake.shape, strict=True) if n > 1]
    assert found == [s for s, n in zip(real.strides, real.shape, strict=True) if n > 1]


@over(VIEWS)
def test_views_share_memory(fn: Any) -> None:
    """A view made by operators shares the memory of its array."""
    assert np.may_share_memory(through(fn, X), X)


def test_reshape_copies_where_it_must() -> None:
    """A reshape that needs a copy is in C order."""
    fake = co.eval_shape(lambda x: np.reshape(x.T, (20, 6)), X)
    assert fake.strides == (48, 8)


MAKERS = [
    lambda x: np.add(x, x),
    lambda x: np.multiply(x, x[..., :1]),
    lambda x: np.where(x > 0, x, x),
    lambda x: np.concatenate([x, x], axis=1),
    lambda x: np.stack([x, x], axis=1),
    lambda x: np.pad(x, 1),
    lambda x: np.sum(x, axis=0),
    lambda x: np.sum(x, axis=1, keepdims=True),
    lambda x: np.sum(x, axis=-1),
]


@over(MAKERS)
def test_strides_of_fake_results_are_those_of_results(fn: Any) -> None:
    """New arrays have NumPy's strides for any order of the axes, also if they are empty."""

    def check(shape: Any, axes: Any) -> None:
        x = np.ones([shape[axis] for axis in axes]).transpose(np.argsort(axes))
        real, fake = fn(x), co.eval_shape(fn, x)
        pairs = zip(real.shape, real.strides, fake.strides, strict=True)
        assert [found for n, _, found in pairs if n != 1] == [
            s for n, s in zip(real.shape, real.strides, strict=True) if n != 1
        ]

    shapes = [(0, 2, 3), (2, 0, 3), (3, 2, 0), (4, 2, 3)]
    each(check, itertools.product(shapes, itertools.permutations(range(3))))


@pytest.mark.parametrize("order", ["C", "F"])
def test_copies_in_an_order(order: Any) -> None:
    """`np.copy` has the strides of the order asked for, of any array."""
    for x in (X, X.T, X[::-1, :, ::2]):
        expected = np.copy(x, order=order)
        fake = co.eval_shape(lambda x: np.copy(x, order=order), x)
        for found in (fake, through(lambda x: np.copy(x, order=order), x)):
            assert found.strides == expected.strides


def test_reshape_to_a_copy() -> None:
    """`copy=True` shares no memory with the array."""
    found = through(lambda x: np.reshape(x, (-1, 4), copy=True), X)
    assert found.tolist() == X.reshape(-1, 4).tolist()
    assert not np.shares_memory(found, X)


# ---- derivatives with exact answers ----


def test_gradients_where_only_the_indices_are_traced() -> None:
    """As in a gradient of a plain array for each row of indices, batched or captured."""
    x, places = np.arange(6.0).reshape(2, 3), np.array([[0, 1], [1, 2]])

    def slope(place: Any) -> Any:
        return co.grad(lambda x: (x * x)[place[0], place[1]])(x)

    expected = np.zeros((2, 2, 3))
    expected[[0, 1], places[:, 0], places[:, 1]] = 2 * x[places[:, 0], places[:, 1]]
    np.testing.assert_array_equal(co.vmap(slope)(places), expected)
    graph = co.make_fx(slope)(places[0])
    np.testing.assert_array_equal(graph(places[1]), expected[1])


def test_gradient_of_repeated_indices_adds_up() -> None:
    """An element read twice has the sum of both gradients."""
    grad = co.grad(lambda x: (x[np.array([0, 1, 1])] * np.array([1.0, 2.0, 4.0])).sum())
    assert grad(np.zeros(3)).tolist() == [1.0, 6.0, 0.0]


@pytest.mark.parametrize("dtype", "fdFD")
def test_sums_at_places_keep_what_is_not_finite_apart(dtype: str) -> None:
    """Sums by matrix products are those of np.add.at, next to nan and infinite values."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        g = rng.normal(size=(6, 2, 2)).astype(dtype.lower())
        g[tuple(rng.integers(0, [[6], [2], [2]], (3, 3)))] = [np.nan, np.inf, -np.inf]
        given = g.view(dtype.upper())[..., 0] if dtype in "FD" else g
        places = rng.integers(0, 4, 6)
        expected = np.zeros((4, *given.shape[1:]), dtype)
        with np.errstate(invalid="ignore"):  # inf - inf
            np.add.at(expected, places, given)
            found = scattered(given, expected.shape, [places], 0)
        assert found.dtype == expected.dtype
        pairs = zip(*(x.view(dtype.lower()) for x in (found, expected)), strict=True)
        for mine, right in pairs:
            np.testing.assert_allclose(mine, right, rtol=1e-5)


def test_gradient_of_clip_is_zero_outside() -> None:
    """The gradient is 0 outside the bounds and 1 inside."""
    grad = co.grad(lambda x: np.clip(x, -1.0, 1.0).sum())
    assert grad(np.array([-2.0, 0.5, 2.0])).tolist() == [0.0, 1.0, 0.0]


def test_hessian_of_neighbors() -> None:
    """The Hessian of the sum of products of neighbors has ones beside the diagonal."""
    hessian = co.hessian(lambda x: (x[1:] * x[:-1]).sum())(np.arange(3.0))
    assert hessian.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]


# ---- errors ----

WRONG = [
    lambda x: np.reshape(x, (7, -1)),
    lambda x: np.reshape(x, (-1, -1)),
    lambda x: np.transpose(x, (0, 1)),
    lambda x: np.transpose(x, (0, 1, 1, 2)),
    lambda x: np.moveaxis(x, (0, 1), 0),
    lambda x: np.moveaxis(x, 4, 0),
    lambda x: np.expand_dims(x, 6),
    lambda x: np.squeeze(x, 0),
    lambda x: np.broadcast_to(x, (5, 5)),
    lambda x: np.concatenate([x, x[0]]),
    lambda x: np.concatenate([x, x[:, 1:]]),
    lambda x: np.concatenate([x[0, 0, 0, 0]]),
    lambda x: np.stack([x, x[:1]]),
    lambda x: np.stack([x], axis=6),
    lambda x: np.split(x, 3),
    lambda x: np.array_split(x, 0),
    lambda x: np.hsplit(x[0, 0, 0, 0], 1),
    lambda x: np.pad(x, -1),
    lambda x: np.pad(x, 1.5),
    lambda x: np.flipud(x[0, 0, 0, 0]),
    lambda x: np.roll(x, 1, axis=9),
    lambda x: np.diag(x),
    lambda x: np.take(x, 9, axis=0),
    lambda x: np.take(x, np.array([0.5]), axis=0),
    lambda x: np.take_along_axis(x, np.zeros(3, int), axis=0),
    lambda x: np.where(x, x),
    lambda x: np.select([x > 0.0], [x, x]),
]


@pytest.mark.parametrize("run", [through, co.eval_shape])
@over(WRONG)
def test_what_numpy_refuses_is_refused(fn: Any, run: Any) -> None:
    """A call that NumPy refuses raises an error of the same builtin class."""
    builtins = (TypeError, IndexError, ValueError)
    with pytest.raises(builtins) as expected:
        fn(X)
    kinds = tuple(kind for kind in builtins if isinstance(expected.value, kind))
    with pytest.raises(kinds):
        run(fn, X)


REFUSED = [
    (lambda x: np.reshape(x, -1, order="A"), "order"),
    (lambda x: np.reshape(x, -1, copy=False), "copy"),
    (lambda x: np.ravel(x, order="K"), "order"),
    (lambda x: np.broadcast_to(x, x.shape, subok=True), "subok"),
    (lambda x: np.concatenate([x, x], casting="unsafe"), "casting"),
    (lambda x: np.copy(x, order="X"), "order"),
    (lambda x: x.astype(int, casting="safe"), "casting"),
    (lambda x: np.pad(x, 1, mode=lambda *given: None), "mode"),
    (lambda x: np.partition(x, 1, kind="quicksort"), "kind"),
    (lambda x: np.require(x, None, ["F"], like=x), "requirements"),
    (lambda x: np.take(x, 0, mode="other"), "mode"),
]


@pytest.mark.parametrize(("fn", "name"), REFUSED, ids=range(len(REFUSED)))
def test_keywords_without_support_are_refused(fn: Any, name: str) -> None:
    """An unsupported keyword raises an error that names it."""
    with pytest.raises(co.ArgumentError, match=f"{name}="):
        through(fn, X)


def test_plain_answers() -> None:
    """Functions about shape and dtype return plain values."""
    asked: list[Any] = []

    def ask(x: Any) -> Any:
        asked.extend([np.ndim(x), np.shape(x), np.size(x), np.size(x, 1)])
        asked.extend(
            [np.result_type(x, np.float32), np.iscomplexobj(x), np.isrealobj(x)]
        )
        return x

    through(ask, X)
    assert asked == [4, (2, 3, 4, 5), 120, 3, np.dtype(float), False, True]


BEYOND: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: x[[0, 7]],
    "array of the second axis": lambda x: x[:, [-4]],
    "array behind a new axis and a mask": lambda x: x[[[True] * 3] * 2, None, [7]],
    "array behind a new axis": lambda x: x[:, None, [3]],
    "array and int": lambda x: x[0, [1, 3]],
    "take": lambda x: np.take(x, [[5, 1], [0, 9]]),
    "take along an axis": lambda x: np.take(x, [1, 3], 1),
    "take of no columns": lambda x: np.take(x[:, :0], [9], 0),
    "take of no rows": lambda x: np.take(x[:0], [9], 1),
    "take along": lambda x: np.take_along_axis(x, np.array([[0, 5, 0]]), 0),
    "indices into no elements": lambda x: x[[9], np.zeros((0, 1), int)],
    "wrapped": lambda x: np.take(x, [9, -8], 0, mode="wrap"),
    "written": lambda x: x.__setitem__([2], 1.0) or x,
}


@pytest.mark.parametrize("name", BEYOND)
def test_indices_beyond_the_array(name: str) -> None:
    """An index of known value that lies beyond the array is NumPy's error on fakes too."""
    fn = BEYOND[name]
    real = outcome(lambda: fn(np.zeros((2, 3))))
    fake = co.FakeArray((2, 3))
    ways: list[Callable[[], Any]] = [
        lambda: fn(fake),
        lambda: co.eval_shape(fn, np.zeros((2, 3))),
        lambda: co.eval_shape(co.vmap(fn), np.zeros((5, 2, 3))),
    ]
    for way in ways:
        if isinstance(real[0], type):
            with pytest.raises(real[0]) as caught:
                way()
            assert str(caught.value) == real[1]
        else:
            assert way().shape[-len(real[0]) :] == real[0]


@pytest.mark.parametrize("place", [1, np.intp(-1), np.array(1)])
def test_take_is_a_copy(place: Any) -> None:
    """Writing into what one index takes leaves the array as it is."""

    def fn(x: Any) -> Any:
        y = x * 1.0
        row = np.take(y, place, 0)
        row += 1.0
        return np.sum(y * y) + np.sum(row)

    x = np.arange(6.0).reshape(2, 3)
    assert co.value_and_grad(fn)(x)[0] == fn(x)
    np.testing.assert_array_equal(
        co.grad(fn)(x), 2.0 * x + np.eye(2)[place][:, np.newaxis]
    )


def test_index_arrays_without_axes_give_a_copy() -> None:
    """NumPy takes them for integers, which give a view."""
    x = np.arange(6.0).reshape(2, 3).T
    found = co.ops.np.index(x, [np.array(1)])
    np.testing.assert_array_equal(found, [1.0, 4.0])
    assert not np.shares_memory(found, x)
