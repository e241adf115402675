"""Random programs for passes: every kind of operator, views, writes and shared values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import customop as co

Array = np.ndarray


def scale(x: Array, k: float = 2.0) -> Array:
    """A product."""
    return x * k


def scale_(x: Array, k: float = 2.0) -> Array:
    """The same in place."""
    x *= k
    return x


def shift_out(x: Array, k: float, *, out: Array) -> Array:
    """A sum in an array."""
    np.add(x, k, out=out)
    return out


def bump(x: Array, y: Array) -> None:
    """Add without a result."""
    x += y


def bump_sum(x: Array, y: Array) -> Array:
    """Subtract, with a result of its own."""
    x -= y
    return np.sum(x, axis=0)


def rows(x: Array, start: int) -> Array:
    """A view."""
    return x[start:]


def low_high(x: Array) -> tuple[Array, Array]:
    """Two results."""
    return np.minimum(x, 0.5), np.maximum(x, 0.5)


def pieces(x: Array) -> list[Array]:
    """A list of results."""
    return [x[i].copy() for i in range(len(x))]


def noise(x: Array, rng: np.random.Generator) -> Array:
    """A draw."""
    return x + rng.standard_normal(x.shape)


def total(x: Array) -> float:
    """A number."""
    return float(np.sum(x))


define = co.custom_op
OPS: dict[str, Any] = {
    "scale": define("passes::scale", scale, mutates_args=()),
    "scale_": define(
        "passes::scale_", scale_, mutates_args=("x",), tags=co.Tag.inplace
    ),
    "shift": define(
        "passes::shift",
        lambda x, k: x + k,
        mutates_args=(),
        schema="(Array x, float k) -> Array",
    ),
    "shift_out": define(
        "passes::shift.out", shift_out, mutates_args=("out",), tags=co.Tag.out
    ),
    "bump": define("passes::bump", bump, mutates_args=("x",)),
    "bump_sum": define("passes::bump_sum", bump_sum, mutates_args=("x",)),
    "rows": define(
        "passes::rows",
        rows,
        mutates_args=(),
        schema="(Array(a) x, int start) -> Array(a)",
    ),
    "low_high": define("passes::low_high", low_high, mutates_args=()),
    "pieces": define("passes::pieces", pieces, mutates_args=()),
    "noise": define("passes::noise", noise, mutates_args=()),
    "total": define("passes::total", total, mutates_args=()),
}

for _name in ("scale", "shift"):
    OPS[_name].register_fake(lambda x, k=2.0: co.fake_like(x))
OPS["low_high"].register_autograd(co.native)
OPS["noise"].register_fake(lambda x, rng: co.fake_like(x))
OPS["bump"].register_fake(lambda x, y: None)
OPS["bump_sum"].register_fake(lambda x, y: co.FakeArray(x.shape[1:], x.dtype))
OPS["low_high"].register_fake(lambda x: (co.fake_like(x), co.fake_like(x)))
OPS["pieces"].register_fake(
    lambda x: [co.FakeArray(x.shape[1:], x.dtype) for _ in range(x.shape[0])]
)


@OPS["rows"].register_fake
def _(x: Any, start: int) -> Any:
    return co.FakeArray((x.shape[0] - start, *x.shape[1:]), x.dtype, x.strides)


@OPS["rows"].register(co.write_back)
def _(new: Any, x: Any, start: int) -> Any:
    return np.concatenate([x[:start], new])


TABLE = np.linspace(-1.0, 1.0, 9).reshape(3, 3)
# A constant that programs write: set it to zeros before each run.
BUFFER = np.zeros((3, 3))
SIZE = 3
Step = Callable[[list[Any], Any, random.Random], None]


def _pick(values: list[Any], draw: random.Random) -> Any:
    return values[draw.randrange(len(values))]


def _square(values: list[Any], draw: random.Random) -> Any:
    """A value of three rows and columns."""
    return _pick([v for v in values if v.shape == (SIZE, SIZE)], draw)


def _unary(values: list[Any], rng: Any, draw: random.Random) -> None:
    fn = draw.choice([np.sin, np.cos, np.tanh, OPS["scale"], np.negative])
    values.append(fn(_pick(values, draw)))


def _binary(values: list[Any], rng: Any, draw: random.Random) -> None:
    fn = draw.choice([np.add, np.multiply, np.maximum, np.subtract])
    values.append(fn(_square(values, draw), _square(values, draw)))


def _constant(values: list[Any], rng: Any, draw: random.Random) -> None:
    table = draw.choice([TABLE, OPS["scale"](TABLE, 0.5), np.sin(TABLE)])
    values.append(_square(values, draw) + OPS["shift"](OPS["scale"](table), 1.0))


def _view(values: list[Any], rng: Any, draw: random.Random) -> None:
    x = _square(values, draw)
    values.append(
        draw.choice(
            [
                lambda: x[0:2],
                lambda: x.T,
                lambda: x[1],
                lambda: np.reshape(x, (9,)),
                lambda: OPS["rows"](x, 1),
                lambda: x[:, 1:],
            ]
        )()
    )


def _in_place(values: list[Any], rng: Any, draw: random.Random) -> None:
    x = _pick(values, draw)
    if not x.shape:
        return
    which = draw.randrange(5)
    if which == 0:
        values.append(OPS["scale_"](x, 0.75))
    elif which == 1:
        x += 0.25
    elif which == 2:
        x[0] = 0.5
    elif which == 3:
        OPS["bump"](x, np.cos(x))
    elif len(x.shape) == 2 and len(x):
        values.append(OPS["bump_sum"](x, np.sin(x)))


def _out(values: list[Any], rng: Any, draw: random.Random) -> None:
    x = _square(values, draw)
    out = np.zeros_like(x) if draw.random() < 0.5 else _square(values, draw)
    if out is not x:
        values.append(OPS["shift"].call(x, 0.5))
        values.append(OPS["shift_out"](np.tanh(x), 1.5, out=out))


def _random(values: list[Any], rng: Any, draw: random.Random) -> None:
    values.append(OPS["noise"](_pick(values, draw), rng))


def _several(values: list[Any], rng: Any, draw: random.Random) -> None:
    x = _square(values, draw)
    found = OPS["low_high"](x) if draw.random() < 0.5 else OPS["pieces"](x)
    values.extend(v for v in found if draw.random() < 0.7)


def _buffer(values: list[Any], rng: Any, draw: random.Random) -> None:
    OPS["bump"](BUFFER, np.tanh(_square(values, draw)))
    values.append(OPS["scale"](BUFFER))


def _linear(values: list[Any], rng: Any, draw: random.Random) -> None:
    x = _square(values, draw)
    values.append(
        draw.choice([lambda: x @ x, lambda: np.sum(x, axis=0), lambda: x.T @ x])()
    )


def _twice(values: list[Any], rng: Any, draw: random.Random) -> None:
    x = _square(values, draw)
    values.append(np.sin(x) * np.sin(x))
    values.append(x[0:2] + x[0:2])


STEPS: list[Step] = [
    _unary, _binary, _constant, _view, _in_place, _out, _random, _several, _linear,
    _twice, _buffer,
]  # fmt: skip


def program(seed: int, length: int) -> Callable[..., Any]:
    """A random function of three matrices and a generator."""

    def run(x: Any, y: Any, z: Any, rng: Any) -> Any:
        draw = random.Random(seed)
        values = [x, y, z]
        for _ in range(length):
            draw.choice(STEPS)(values, rng, draw)
        results = [_pick(values, draw) for _ in range(draw.randrange(1, 4))]
        return {"last": values[-1], "some": results}

    run.__name__ = f"program_{seed}"
    return run


def inputs(seed: int) -> list[Array]:
    """Fresh arguments."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((SIZE, SIZE)) for _ in range(3)]
