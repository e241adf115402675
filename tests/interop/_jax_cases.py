"""Operators of many shapes, with arguments, for the bridge to JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

import customop as co

X = np.linspace(0.4, 1.7, 6).reshape(2, 3)
Y = np.linspace(1.2, 2.1, 3)
A = np.array([[3.0, 0.5, 0.2], [0.1, 2.0, 0.3], [0.4, 0.2, 4.0]])
BOTH = ("fwd", "rev")


class Case(NamedTuple):
    """A function of arrays for JAX.

    Attributes
    ----------
    fn : Operator or callable
    call : callable
        Calls the first argument with arrays, and with what else it takes.
    arrays : tuple of array
    modes : tuple of str
        In which JAX may differentiate it.
    """

    fn: Callable[..., Any]
    call: Callable[..., Any]
    arrays: tuple[Any, ...]
    modes: tuple[str, ...] = BOTH


@dataclass(frozen=True)
class Layer:
    """A config object with arrays in it."""

    weight: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any]
    scale: float = 2.0


CASES: dict[str, Case] = {}


def case(
    *arrays: Any,
    call: Callable[..., Any] = lambda op, *arrays: op(*arrays),
    modes: tuple[str, ...] = BOTH,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Make an operator with the gradient of its own body, and a case of it."""

    def define(fn: Callable[..., Any]) -> Any:
        name = fn.__name__
        op = co.custom_op(f"jax_tests::{name}", mutates_args=(), **options)(fn)
        if modes == BOTH:
            op.register_autograd(co.native)
        CASES[name] = Case(op, call, arrays, modes)
        return op

    return define


def fake(op: Any) -> Callable[[Callable[..., Any]], Any]:
    """Register a fake kernel."""
    return op.register_fake


@case(X, tags=(co.Tag.pointwise,))
def cube(x: co.Array) -> co.Array:
    """One array."""
    return x * x * x


@case(X, Y, tags=(co.Tag.pointwise,))
def ratio(x: co.Array, y: co.Array) -> co.Array:
    """Two arrays that are broadcast."""
    return x / y


@case(np.float64(1.3).reshape(()), tags=(co.Tag.pointwise,))
def single(x: co.Array) -> co.Array:
    """No axes."""
    return np.sin(x)


@case(np.zeros((0, 3)), tags=(co.Tag.pointwise,))
def empty(x: co.Array) -> co.Array:
    """No elements."""
    return x * 2.0


@case(X + 1j * X[::-1], tags=(co.Tag.pointwise,))
def turned(z: co.Array) -> co.Array:
    """Complex numbers."""
    return z * z * (0.5 + 2.0j)


@case(A, Y)
def product(
    a: Annotated[co.Array, "m k"], b: Annotated[co.Array, "k"]
) -> Annotated[co.Array, "m"]:
    """Shapes in the schema."""
    return a @ b


@case(X)
def both(
    x: Annotated[co.Array, "n k"],
) -> tuple[Annotated[co.Array, "n"], Annotated[co.Array, "k"]]:
    """Two results."""
    return np.sum(x * x, axis=1), np.sum(np.sin(x), axis=0)


@case(X, Y, call=lambda op, x, y: op([x, y, x]))
def squares(xs: Sequence[co.Array]) -> list[co.Array]:
    """A list of arrays, in and out."""
    return [x * x for x in xs]


@fake(squares)
def _(xs: Any) -> Any:
    return [co.fake_like(x) for x in xs]


@case(X, call=lambda op, x: op(x, axis=0, power=3.0))
def norm(x: co.Array, *, axis: int, power: float = 2.0) -> co.Array:
    """Keyword-only parameters."""
    return np.sum(np.abs(x) ** power, axis=axis)


@fake(norm)
def _(x: Any, *, axis: int, power: float) -> Any:
    return co.FakeArray(x.shape[:axis] + x.shape[axis + 1 :], x.dtype)


@case(X, call=lambda op, x: op(x, None))
def shifted(x: co.Array, by: co.Array | None) -> co.Array:
    """An array that may be missing."""
    return x * 3.0 if by is None else x * 3.0 + by


@fake(shifted)
def _(x: Any, by: Any) -> Any:
    return co.fake_like(x)


CASES["shifted_by"] = Case(shifted, lambda op, x, y: op(x, y), (X, Y))


@case(Y, A, Y, call=lambda op, x, w, b: op(x, Layer(w, b, 1.5)))
def dense(x: co.Array, layer: Layer) -> co.Array:
    """A config object that holds arrays."""
    return np.tanh(layer.weight @ x + layer.bias) * layer.scale


@fake(dense)
def _(x: Any, layer: Any) -> Any:
    return co.fake_like(layer.bias)


@case(X, call=lambda op, x: op(x, "twice", [1, 2], (0.5, 1.5)))
def chosen(
    x: co.Array, how: str, places: Sequence[int], weights: tuple[float, float]
) -> co.Array:
    """Texts, lists and tuples of numbers."""
    factor = 2.0 if how == "twice" else 1.0
    return x * factor * sum(places) * weights[0] + weights[1]


@fake(chosen)
def _(x: Any, how: Any, places: Any, weights: Any) -> Any:
    return co.fake_like(x)


@case(X)
def sorted_with_places(x: co.Array) -> tuple[co.Array, co.Array]:
    """An inexact result and whole numbers."""
    return np.sort(x, axis=1), np.argsort(x, axis=1)


@fake(sorted_with_places)
def _(x: Any) -> Any:
    return co.fake_like(x), co.fake_like(x, dtype="int64")


@case(X, np.array([2, 0]))
def taken(x: co.Array, places: co.Array) -> co.Array:
    """Whole numbers among the arguments."""
    return np.take(x, places, axis=1)


@fake(taken)
def _(x: Any, places: Any) -> Any:
    return co.FakeArray((x.shape[0], *places.shape), x.dtype)


@case(X, modes=("rev",), tags=(co.Tag.pointwise,))
def reverse_only(x: co.Array) -> co.Array:
    """A rule for reverse mode alone."""
    return np.exp(x)


reverse_only.register_autograd(
    lambda ctx, g: g * np.exp(ctx.saved_arrays[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@case(X, modes=("fwd",), tags=(co.Tag.pointwise,))
def forward_only(x: co.Array) -> co.Array:
    """A rule for forward mode alone."""
    return np.exp(x)


forward_only.register_jvp(lambda p, t: (np.exp(p[0]), np.exp(p[0]) * t[0]))


@case(X, modes=(), tags=(co.Tag.pointwise,))
def no_rules(x: co.Array) -> co.Array:
    """No derivative at all."""
    return np.floor(x)


@case(X.astype(np.float32), tags=(co.Tag.pointwise,), modes=())
def compared(x: co.Array) -> co.Array:
    """A result of another dtype."""
    return x > 0.9


compared.register_fake(lambda x: co.fake_like(x, dtype="bool"))


def _plain(name: str, fn: Callable[..., Any], *arrays: Any, **options: Any) -> None:
    """A case of NumPy code without an operator."""
    CASES[name] = Case(fn, lambda op, *xs: op(*xs, **options), arrays)


_plain("solve", lambda a, b: np.linalg.solve(a, b), A, Y)
_plain("eigh", lambda a: np.linalg.eigh(a + a.T)[0], A)
_plain("fft", lambda x: np.abs(np.fft.rfft(x)) ** 2, Y)
_plain("einsum", lambda a, x: np.einsum("ij,kj->ik", a, x), A, X)
_plain("power", lambda x, n=2: x**n, X, n=3)
_plain("a_dict", lambda x, y: {"sum": np.sum(x * y), "rest": [y**2]}, X, Y)


def _in_place(x: Any) -> Any:
    found = np.zeros_like(x)
    for i in range(len(x)):
        found[i] = x[i] * np.sum(x[: i + 1])
    return found


_plain("in_place", _in_place, Y)
