"""Random programs that write in place, with views of views, against plain NumPy.

A program is a list of steps on a pool of arrays that starts with the input. Shapes alone
decide what a step does, so the same steps run on arrays and on traced values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

Pool = list[Any]
Step = Callable[[Pool], None]
SHAPES = [(4,), (2, 3), (3, 3), (2, 1, 3), (2, 2, 2)]
LENGTH, LARGEST = 12, 9


def chosen(r: np.random.Generator, items: Any) -> Any:
    return items[int(r.integers(len(items)))]


# ---- keys and values ----


def basic_key(r: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Slices, integers, new axes, and an Ellipsis for the last axes."""
    parts = [slice(None), slice(None, None, -1), slice(0, 2), slice(-1, None)]
    key = [chosen(r, [*parts, int(r.integers(n)) if n else slice(None)]) for n in shape]
    if r.integers(4) == 0:
        key[-1:] = [...]
    if r.integers(5) == 0:
        key.insert(0, None)
    return tuple(key)


def index_key(r: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Arrays of integers, with places that come twice, or a mask."""
    places = r.integers(-shape[0], shape[0], size=3)
    keys: list[Any] = [places, places.reshape(3, 1), r.random(shape[0]) > 0.5]
    if len(shape) > 1:
        columns = r.integers(0, shape[1], size=3)
        keys += [(places, columns), (slice(None), columns), (slice(1, None), columns)]
    return chosen(r, keys)


def value(r: np.random.Generator, pool: Pool, shape: tuple[int, ...]) -> Any:
    """A function of the pool that gives a value which broadcasts to a shape."""
    fitting = [i for i, a in enumerate(pool) if np.shape(a) == shape]
    if fitting and r.integers(2):
        at, factor = chosen(r, fitting), float(r.normal())
        return lambda pool: pool[at] * factor
    if r.integers(2):
        at = int(r.integers(len(pool)))
        return lambda pool: np.sum(pool[at]) * 0.3
    fixed = r.normal(size=chosen(r, [shape, shape[-1:], ()]))
    return lambda pool: fixed


# ---- steps: each function makes one, or None where it does not fit the array ----

VIEWS: list[Callable[[Any], Any]] = [
    lambda a: a,
    lambda a: a.T,
    np.ravel,
    np.squeeze,
    lambda a: np.reshape(a, (-1, 1)),
    lambda a: np.reshape(a, (2, -1)),
    lambda a: np.expand_dims(a, 0),
    lambda a: np.flip(a, 0),
    lambda a: np.swapaxes(a, 0, -1),
    lambda a: np.split(a, [1])[1],
    lambda a: np.broadcast_to(a, (2, *np.shape(a))),
    lambda a: np.diagonal(a, 1),
]
NEW: list[Callable[[Any], Any]] = [
    np.sin,
    lambda a: a * 0.7,
    np.copy,
    np.zeros_like,
    lambda a: np.zeros(np.shape(a), like=a),
    lambda a: a.flatten(),
    lambda a: np.mean(a, axis=0),
    lambda a: a[(0,) * np.ndim(a)],
    lambda a: np.take(a, [0, -1], axis=0),
    lambda a: np.concatenate([a, a]),
]
UPDATES = [operator.iadd, operator.isub, operator.imul]


def take(r: np.random.Generator, pool: Pool, at: int) -> Step:
    fn = chosen(r, VIEWS)
    return lambda pool: pool.append(fn(pool[at]))


def part(r: np.random.Generator, pool: Pool, at: int) -> Step:
    key = basic_key(r, pool[at].shape)
    return lambda pool: pool.append(pool[at][key])


def new(r: np.random.Generator, pool: Pool, at: int) -> Step:
    fn = chosen(r, NEW)
    return lambda pool: pool.append(fn(pool[at]))


def update(r: np.random.Generator, pool: Pool, at: int) -> Step:
    """``a += v`` as Python does it: the name gets what the operator returns."""
    change, v = chosen(r, UPDATES), value(r, pool, np.shape(pool[at]))
    return lambda pool: operator.setitem(pool, at, change(pool[at], v(pool)))


def assign(r: np.random.Generator, pool: Pool, at: int) -> Step:
    key = chosen(r, [basic_key, index_key])(r, pool[at].shape)
    v = value(r, pool, np.shape(pool[at][key]))
    return lambda pool: operator.setitem(pool[at], key, v(pool))


def update_item(r: np.random.Generator, pool: Pool, at: int) -> Step:
    key = chosen(r, [basic_key, index_key])(r, pool[at].shape)
    change, v = chosen(r, UPDATES), value(r, pool, np.shape(pool[at][key]))

    def step(pool: Pool) -> None:
        item = pool[at][key]
        pool[at][key] = change(item, v(pool))

    return step


def by_data(r: np.random.Generator, pool: Pool, at: int) -> Step:
    """``a[a > limit] *= v``."""
    change, limit, v = chosen(r, UPDATES), float(r.normal()) / 2, value(r, pool, ())

    def step(pool: Pool) -> None:
        mask = pool[at] > limit
        pool[at][mask] = change(pool[at][mask], v(pool))

    return step


def at_places(r: np.random.Generator, pool: Pool, at: int) -> Step | None:
    if not pool[at].flags.writeable:
        return None  # NumPy 2.4 writes it all the same
    key = index_key(r, pool[at].shape)
    # NumPy 2.4 reads beyond values that it broadcasts.
    values = r.normal(size=np.shape(pool[at][key]))
    ufunc = chosen(r, [np.add, np.subtract, np.multiply, np.maximum])
    return lambda pool: ufunc.at(pool[at], key, values * pool[0].ravel()[0])


def function(r: np.random.Generator, pool: Pool, at: int) -> Step:
    shape = pool[at].shape
    v, one, mask = value(r, pool, shape), value(r, pool, ()), r.random(shape) > 0.5
    places, axis = r.integers(-4, 4, size=3), int(r.integers(len(shape)))
    steps: list[Callable[[Any, Pool], Any]] = [
        lambda a, pool: a.fill(one(pool)),
        lambda a, pool: a.sort(axis=axis),
        lambda a, pool: np.copyto(a, v(pool), where=mask),
        lambda a, pool: np.put(a, places, v(pool), mode="wrap"),
        lambda a, pool: np.putmask(a, mask, v(pool)),
        lambda a, pool: np.place(a, mask, v(pool)),
        lambda a, pool: np.fill_diagonal(a, one(pool)),
        lambda a, pool: operator.setitem(a.flat, slice(0, 3), v(pool)),
        lambda a, pool: np.sin(a, out=a, where=mask),
        lambda a, pool: np.add(v(pool), 0.5, out=a),
        lambda a, pool: [operator.iadd(row, one(pool)) for row in a],
    ]
    step = chosen(r, steps)
    return lambda pool: step(pool[at], pool)


KINDS: list[Any] = [take, part, part, new, update, update, assign, assign, update_item]
KINDS += [by_data, at_places, function, function]


# ---- programs ----


def run(steps: list[Step], x: Any) -> Pool:
    pool = [x, x * 1.5]
    for step in steps:
        step(pool)
        if len(pool) > LARGEST:
            pool.pop(2)
    return pool


def is_good(pool: Pool) -> bool:
    """Whether all values are of a moderate size."""
    return all(np.size(a) <= 60 and np.all(np.abs(a) < 1e3) for a in pool)


def program(seed: int) -> tuple[list[Step], Any]:
    """Steps that NumPy takes, and an input for them."""
    r = np.random.default_rng(seed)
    x = r.normal(size=chosen(r, SHAPES))
    steps: list[Step] = []
    while len(steps) < LENGTH:
        pool = run(steps, x.copy())
        at = int(r.integers(len(pool)))
        kind = chosen(r, KINDS)
        is_array = isinstance(pool[at], np.ndarray) and pool[at].ndim and pool[at].size
        if kind is not update and not is_array:
            continue
        try:
            step = kind(r, pool, at)
            if step is not None and is_good(run([*steps, step], x.copy())):
                steps.append(step)
        except (ValueError, IndexError):
            continue  # NumPy refuses it
    return steps, x


def results(steps: list[Step]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda x: tuple([a * 1.0 for a in run(steps, x)])


def loss(steps: list[Step]) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        total = 0.0
        for i, a in enumerate(run(steps, x)):
            total = total + np.sum(np.sin(a)) * (1.0 + 0.3 * i)
        return total

    return fn


def slope(fn: Callable[[Any], Any], x: Any, d: Any, h: float) -> Any:
    """The derivative in a direction, by central differences."""
    return (fn(x + h * d) - fn(x - h * d)) / (2 * h)


def assert_slope(
    found: Any, fn: Callable[[Any], Any], x: Any, d: Any, h: float
) -> None:
    """Raise unless it is the slope, where the program is smooth."""
    near, far = slope(fn, x, d, h), slope(fn, x, d, 3 * h)
    size = 1.0 + np.max(np.abs(near))
    if np.allclose(near, far, rtol=1e-3, atol=1e-4 * size):
        np.testing.assert_allclose(found, near, rtol=1e-3, atol=1e-3 * size)


def check(seed: int) -> None:
    """Compare a program under all transforms with NumPy and with differences."""
    steps, x = program(seed)
    fn, every, given = loss(steps), results(steps), x.copy()
    d = np.random.default_rng(seed + 1).normal(size=x.shape)
    expected = [np.array(a) for a in every(x.copy())]

    value, gradient = co.value_and_grad(fn)(given)
    np.testing.assert_allclose(value, fn(x.copy()), rtol=1e-9, atol=1e-9)
    assert_slope(np.sum(gradient * d), fn, x, d, 1e-6)
    for found in (co.vjp(every, given)[0], co.jvp(every, (given,), (d,))[0]):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert_slope(co.jvp(fn, (given,), (d,))[1], fn, x, d, 1e-6)
    assert [a.shape for a in co.eval_shape(every, given)] == [a.shape for a in expected]

    rows = [x, 0.5 * x + 0.1, -x]
    for axis in (0, -1):
        batched = co.vmap(every, in_dims=axis)(np.stack(rows, axis))
        for i, row in enumerate(rows):
            for a, b in zip(batched, every(row.copy()), strict=True):
                np.testing.assert_allclose(a[i], b, rtol=1e-9, atol=1e-9)
    each = [co.grad(fn)(row) for row in rows]
    nested = co.vmap(co.grad(fn))(np.stack(rows))
    np.testing.assert_allclose(nested, each, rtol=1e-7, atol=1e-8)
    nested = co.grad(lambda b: np.sum(co.vmap(fn)(b)))(np.stack(rows))
    np.testing.assert_allclose(nested, each, rtol=1e-7, atol=1e-8)

    forward = co.jvp(co.grad(fn), (given,), (d,))[1]
    assert_slope(forward, co.grad(fn), x, d, 1e-5)
    backward = co.grad(lambda v: np.sum(co.grad(fn)(v) * d))(given)
    assert_slope(backward, co.grad(fn), x, d, 1e-5)
    np.testing.assert_array_equal(given, x)


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", range(0, 60, 20))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_programs(start: int) -> None:
    """Each program gives NumPy's numbers; a failure names its seed."""
    for seed in range(start, start + 20):
        try:
            check(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
