"""Operators of many shapes, with arguments as torch calls them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

import customop as co

NS = "torchzoo"


class Case(NamedTuple):
    """An operator and a call of it.

    Attributes
    ----------
    op : Operator
    make : callable
        Makes the arguments, of a function that gives new tensors of a shape.
    grads : bool
        Whether it has a gradient.
    numbers : dict
        Keyword arguments.
    """

    op: Any
    make: Callable[[Callable[..., Any]], tuple[Any, ...]]
    grads: bool = True
    keywords: Callable[[Callable[..., Any]], dict[str, Any]] = lambda t: {}


CASES: dict[str, Case] = {}


def _case(
    make: Any, grads: bool = True, keywords: Any = lambda t: {}, **options: Any
) -> Callable[[Any], Any]:
    def add(fn: Any) -> Any:
        options.setdefault("mutates_args", ())
        op = co.custom_op(f"{NS}::{fn.__name__}", fn, **options)
        CASES[fn.__name__] = Case(op, make, grads, keywords)
        return op

    return add


# ---- one array and numbers ----


@_case(lambda t: (t(3, 2), 2.0), tags=co.Tag.pointwise)
def gauss(x: np.ndarray, width: float = 1.0) -> np.ndarray:
    return np.exp(-0.5 * (x / width) ** 2)


gauss.register_autograd(
    co.partials({"x": lambda g, out, x, width: -g * out * x / width**2})
)


@_case(lambda t: (t(3, 2),))
def cube(x: np.ndarray) -> np.ndarray:
    return x * x * x


cube.register_fake(lambda x: co.fake_like(x))
cube.register_autograd(
    lambda ctx, g: 3 * ctx.saved_arrays[0] ** 2 * g,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
cube.register_vmap(lambda info, in_dims, x: (cube(x), in_dims[0]))


@_case(lambda t: (t(4, 3),))
def total(x: np.ndarray) -> np.ndarray:
    return np.sum(x * x)


total.register_fake(lambda x: co.FakeArray((), x.dtype, device=x.device))
total.register_autograd(co.native)


@_case(lambda t: (t(4, 3), [0, 1], 0.5))
def shifted(
    x: np.ndarray, axes: list[int], by: float, twice: bool = False
) -> np.ndarray:
    return np.flip(x, tuple(axes)) + (2 * by if twice else by)


shifted.register_fake(lambda x, axes, by, twice: co.fake_like(x))
shifted.register_autograd(
    lambda ctx, g: (np.flip(g, tuple(ctx.axes)), None, None, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "axes", inputs[1]),
)


# ---- several arrays ----


@_case(lambda t: (t(3, 2), t(2, 4), t(4)))
def affine(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    return x @ w if b is None else x @ w + b


@affine.register_fake
def _(x: Any, w: Any, b: Any) -> Any:
    co.check(x.shape[1] == w.shape[0], "x and w do not fit")
    return co.fake_like(x, shape=(x.shape[0], w.shape[1]))


affine.register_autograd(co.native)


@_case(lambda t: (t(5), t(3)), schema="(float[n] x, float[k] y) -> float[n-k+1]")
def convolved(x: Any, y: Any) -> Any:
    return np.convolve(x, y, "valid")


convolved.register_autograd(co.native)


@_case(lambda t: (t(4, 3), np.array([2, 0])))
def taken(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return x[rows]


taken.register_fake(lambda x, rows: co.fake_like(x, shape=(*rows.shape, *x.shape[1:])))
taken.register_autograd(co.native)


@_case(lambda t: ([t(2, 3), t(1, 3)], 0))
def joined(xs: list[np.ndarray], axis: int = 0) -> np.ndarray:
    return np.concatenate(xs, axis)


joined.register_fake(lambda xs, axis: np.concatenate(xs, axis))
joined.register_autograd(co.native)


@_case(lambda t: ([t(3), None, t(3)],))
def summed(xs: list[np.ndarray | None]) -> np.ndarray:
    return sum(x * x for x in xs if x is not None)


summed.register_fake(lambda xs: co.fake_like(xs[0]))
summed.register_autograd(co.native)


# ---- several results ----


@_case(lambda t: (t(3),))
def sine_and_cosine(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.sin(x), np.cos(x)


sine_and_cosine.register_fake(lambda x: (co.fake_like(x), co.fake_like(x)))


def _sine_and_cosine_back(ctx: Any, g: Any, h: Any) -> Any:
    sine, cosine = ctx.saved_arrays
    return g * cosine - h * sine


sine_and_cosine.register_autograd(
    _sine_and_cosine_back,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*output),
)


@_case(lambda t: (t(4, 3),))
def largest(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    at = np.argmax(x, axis=-1)
    return np.take_along_axis(x, at[..., None], -1)[..., 0], at


largest.register_fake(
    lambda x: (
        co.fake_like(x, shape=x.shape[:-1]),
        co.FakeArray(x.shape[:-1], np.intp, device=x.device),
    )
)


def _largest_back(ctx: Any, g: Any, _: Any) -> Any:
    x, at = ctx.saved_arrays
    place = np.arange(x.shape[-1]) == at[..., None]
    return np.where(place, g[..., None], 0.0)


largest.register_autograd(
    _largest_back,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(
        inputs[0], output[1]
    ),
)


@_case(lambda t: (t(6), 3))
def parts(x: np.ndarray, count: int) -> list[np.ndarray]:
    return [part * 2 for part in np.split(x, count)]


parts.register_fake(
    lambda x, count: [
        co.fake_like(x, shape=(x.shape[0] // count,)) for _ in range(count)
    ]
)
parts.register_autograd(co.native)


class Moments(NamedTuple):
    mean: np.ndarray
    variance: np.ndarray


@_case(lambda t: (t(4, 3),))
def moments(x: np.ndarray) -> Moments:
    return Moments(np.mean(x, axis=0), np.var(x, axis=0))


moments.register_fake(
    lambda x: Moments(*[co.fake_like(x, shape=x.shape[1:]) for _ in range(2)])
)
moments.register_autograd(co.native)


# ---- objects, dicts, enums, keywords ----


@dataclass(frozen=True)
class Lens:
    matrix: np.ndarray
    focal: float = 1.0


class Mode(enum.Enum):
    plain = 1
    square = 2


@_case(lambda t: (t(4, 3), Lens(t(3, 2), 2.0)))
def pinhole(points: np.ndarray, lens: Lens) -> np.ndarray:
    return lens.focal * np.tanh(points @ lens.matrix)


pinhole.register_fake(
    lambda points, lens: co.fake_like(
        points, shape=(points.shape[0], lens.matrix.shape[1])
    )
)
pinhole.register_autograd(co.native)


@_case(lambda t: ({"a": t(3), "b": t(3)}, (2.0, t(3))))
def weighted(
    named: dict[str, np.ndarray], pair: tuple[float, np.ndarray]
) -> np.ndarray:
    return pair[0] * (named["a"] * named["b"]) + pair[1] ** 2


weighted.register_fake(lambda named, pair: co.fake_like(pair[1]))
weighted.register_autograd(co.native)


@_case(lambda t: (t(3), Mode.square), keywords=lambda t: {"how": "mean"})
def reduced(
    x: np.ndarray, mode: Mode, *, how: Literal["sum", "mean"] = "sum"
) -> np.ndarray:
    y = x * x if mode is Mode.square else x
    return y.sum() if how == "sum" else y.mean()


reduced.register_fake(lambda x, mode, *, how: co.FakeArray((), x.dtype))
reduced.register_autograd(co.native)


@_case(lambda t: (t(3),), keywords=lambda t: {"factor": 3.0, "bias": t(3)})
def scaled(
    x: np.ndarray, *, factor: float, bias: np.ndarray | None = None
) -> np.ndarray:
    y = np.sin(x) * factor
    return y if bias is None else y + bias**2


scaled.register_fake(lambda x, *, factor, bias: co.fake_like(x))
scaled.register_autograd(co.native)


@_case(lambda t: ([[t(2), t(2)], [t(2)]],))
def grid(rows: list[list[np.ndarray]]) -> np.ndarray:
    return sum(i * x * x for i, row in enumerate(rows, 1) for x in row)


grid.register_fake(lambda rows: co.fake_like(rows[0][0]))
grid.register_autograd(co.native)


# ---- complex numbers, views, missing gradients ----


@_case(lambda t: (t(3, kind="complex"), t(3)))
def rotated(z: np.ndarray, angle: np.ndarray) -> np.ndarray:
    return z * z * np.exp(1j * angle)


rotated.register_fake(lambda z, angle: co.fake_like(z))
rotated.register_autograd(co.native)


@_case(lambda t: (t(3, kind="complex"),))
def power(z: np.ndarray) -> np.ndarray:
    return np.abs(z) ** 2


power.register_fake(lambda z: co.fake_like(z, dtype=np.real(z).dtype))
power.register_autograd(co.native)


@_case(lambda t: (t(2, 3),), schema="(Array(a) x) -> Array(a)")
def turned(x: Any) -> Any:
    return x.T


turned.register_fake(lambda x: x.T)
turned.register_autograd(lambda ctx, g: g.T)


@_case(lambda t: (t(3), t(3)))
def half_known(x: np.ndarray, constant: np.ndarray) -> np.ndarray:
    return x * constant


half_known.register_fake(lambda x, constant: co.fake_like(x))
half_known.register_autograd(
    lambda ctx, g: (g * ctx.saved_arrays[0], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
)


# ---- without gradients ----


@_case(lambda t: (t(6),), grads=False)
def positive(x: np.ndarray) -> np.ndarray:
    return x[x > 0]


@positive.register_fake
def _(x: Any) -> Any:
    size = co.get_ctx().new_dynamic_size(max=x.shape[0])
    return co.fake_like(x, shape=(size,))


@_case(lambda t: (3, "cpu"), grads=False)
def counted(n: int, device: co.Device) -> np.ndarray:
    return np.arange(n) * 2.0


counted.register_fake(lambda n, device: co.FakeArray((n,), np.float64))


@_case(lambda t: (t(3), np.dtype(np.float32)), grads=False)
def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return (x * 1).astype(dtype)


cast.register_fake(lambda x, dtype: co.fake_like(x, dtype=dtype))


# ---- writes ----


@_case(lambda t: (t(3), 2.0), grads=False, mutates_args=("x",), tags=co.Tag.inplace)
def doubled_(x: np.ndarray, factor: float) -> np.ndarray:
    x *= factor
    return x


@_case(
    lambda t: (t(3),),
    grads=False,
    keywords=lambda t: {"out": t(3)},
    mutates_args=("out",),
    tags=co.Tag.out,
)
def squared_out(x: np.ndarray, *, out: np.ndarray) -> np.ndarray:
    np.multiply(x, x, out=out)
    return out


@_case(lambda t: ([t(3), t(2)], t(2)), grads=False, mutates_args=("xs", "y"))
def cleared(xs: list[np.ndarray], y: np.ndarray | None = None) -> None:
    for x in xs:
        x[...] = 0
    if y is not None:
        y += 1


cleared.register_fake(lambda xs, y: None)


# ---- arguments ----


def new_tensors(torch: Any, *, grads: bool = False, seed: int = 0) -> Any:
    """A function that makes tensors of a shape, the same ones for a seed."""
    rng = np.random.default_rng(seed)

    def make(*shape: int, kind: str = "float") -> Any:
        value = rng.standard_normal(shape)
        if kind == "complex":
            value = value + 1j * rng.standard_normal(shape)
        return torch.tensor(value, requires_grad=grads)

    return make


def arguments(
    torch: Any, case: Case, *, grads: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call with tensors."""
    make = new_tensors(torch, grads=grads and case.grads)

    def of_torch(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return torch.from_numpy(value)
        return getattr(torch, value.name) if isinstance(value, np.dtype) else value

    args = tuple(map(of_torch, case.make(make)))
    return args, {n: of_torch(v) for n, v in case.keywords(make).items()}


def mapped(tree: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply a function to each leaf of lists, tuples, dicts and lenses."""
    if isinstance(tree, Lens):
        return Lens(fn(tree.matrix), tree.focal)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[mapped(v, fn) for v in tree])
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(v, fn) for v in tree)
    if isinstance(tree, dict):
        return {name: mapped(v, fn) for name, v in tree.items()}
    return fn(tree)


def leaves(tree: Any) -> list[Any]:
    """The leaves, in order."""
    found: list[Any] = []
    mapped(tree, found.append)
    return found
