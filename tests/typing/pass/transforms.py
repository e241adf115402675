"""Transforms keep the signature of their function, and its result type if they can."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


def square(x: F64, k: float = 1.0) -> F64:
    return k * x * x


def loss(x: F64, y: float = 1.0, *, power: int = 2) -> F64:
    result: Any = np.sum(y * x**power)
    return result  # type: ignore[no-any-return]  # without axes


def loss_and_name(x: F64, y: F64) -> tuple[F64, str]:
    return loss(x * y), "sum"


def loss_of_tree(weights: dict[str, F64], x: F64) -> F64:
    return loss(weights["w"] * x)


def twice(x: co.ArrayT) -> co.ArrayT:
    result: Any = x + x
    return result  # type: ignore[no-any-return]  # of the class of x


def halves(x: F64) -> tuple[F64, F64]:
    return x[:1], x[1:]


def gradients(x: F64) -> None:
    assert_type(co.grad(loss)(x), F64)
    assert_type(co.grad(loss)(x, 2.0, power=3), F64)
    assert_type(co.grad(loss)(x, y=2.0), F64)
    assert_type(co.grad(loss, 0)(x), F64)
    assert_type(co.grad(loss_of_tree)({"w": x}, x), dict[str, F64])
    assert_type(co.grad(loss_and_name, has_aux=True)(x, x), tuple[F64, str])
    assert_type(co.grad(loss_and_name, 1, has_aux=True)(x, x), tuple[F64, str])
    assert_type(co.grad(loss_of_tree, (0, 1))({"w": x}, x), tuple[dict[str, F64], F64])
    assert_type(co.value_and_grad(loss)(x, power=2), tuple[F64, F64])
    assert_type(
        co.value_and_grad(loss_and_name, has_aux=True)(x, x),
        tuple[tuple[F64, str], F64],
    )


def pullbacks(x: F64) -> None:
    value, pullback = co.vjp(loss, x)
    assert_type(value, F64)
    assert_type(pullback(value), tuple[F64])
    value, pullback_of_both, name = co.vjp(loss_and_name, x, x, has_aux=True)
    assert_type(pullback_of_both(value), tuple[F64, F64])
    assert_type(name, str)
    assert_type(co.vjp(twice, x), tuple[F64, Callable[[F64], tuple[F64]]])


def directions(x: F64) -> None:
    assert_type(co.jvp(square, (x,), (x,)), tuple[F64, F64])
    assert_type(co.jvp(twice, (x,), (x,)), tuple[F64, F64])
    assert_type(
        co.jvp(loss_and_name, (x, x), (x, x), has_aux=True), tuple[F64, F64, str]
    )
    assert_type(co.jvp(halves, [x], [x]), tuple[tuple[F64, F64], tuple[F64, F64]])


def matrices(x: F64) -> None:
    jacobian: F64 = co.jacrev(square)(x, k=2.0)
    jacobian = co.jacfwd(square, chunk_size=1)(x, 2.0)
    jacobian = co.hessian(loss)(x, y=2.0, power=3)
    of_second: tuple[F64, str] = co.jacrev(loss_and_name, 1, has_aux=True)(x, x)
    of_first: tuple[F64, str] = co.jacfwd(loss_and_name, has_aux=True)(x, x)
    assert of_second[1] == of_first[1] == "sum"
    assert jacobian.shape == (2, 2)


def batches(x: F64) -> None:
    assert_type(co.vmap(square)(x), F64)
    assert_type(co.vmap(square, (0, None))(x, 2.0), F64)
    assert_type(co.vmap(twice, 0, 0, "same")(x), F64)
    assert_type(co.vmap(co.vmap(twice), in_dims=0)(np.stack([x, x])), F64)


def shapes(x: F64) -> None:
    assert_type(co.eval_shape(square, x, k=2.0), co.FakeArray)
    assert_type(co.eval_shape(twice, x), co.FakeArray)
    # The function gets a fake array though its hint asks for a real one.
    assert_type(co.eval_shape(square, co.fake_like(x), 2.0), co.FakeArray)
    assert_type(co.eval_shape(twice, co.fake_like(x)), co.FakeArray)
    assert_type(co.eval_shape(halves, x), Any)


def by_hand(x: F64) -> None:
    v = co.variable(x)
    co.backward(co.variable(2.0), 1.0)
    v.backward(x)
    assert_type(v.grad, co.Array | None)
    v.grad = None
    assert_type(co.stop_gradient(x), F64)
    assert_type(co.stop_gradient({"w": x}), dict[str, F64])
    with co.no_grad(), co.enable_grad(), co.FakeMode() as mode:
        assert_type(mode.from_array(x), co.FakeArray)


@co.no_grad()
def untracked(x: F64, k: float = 1.0) -> F64:
    return x * k


@co.enable_grad()
def tracked(x: F64, k: float = 1.0) -> F64:
    return x * k


def decorated(x: F64) -> None:
    assert_type(untracked(x, k=2.0), F64)
    assert_type(tracked(x), F64)


def fake_arrays(x: F64) -> None:
    assert_type(co.fake_like(x, shape=(2, 3), dtype=np.float32), co.FakeArray)
    assert_type(co.FakeArray((2, 3)).shape, tuple[int, ...])
    assert_type(co.fake_like(x, 3, "f4", "cuda:0").device, str)


for check in (gradients, pullbacks, directions, matrices, decorated, fake_arrays):
    check(np.ones(2))
for check in (batches, shapes, by_hand):
    check(np.ones(2))


def linear(x: F64, weights: dict[str, F64]) -> None:
    value, push = co.linearize(loss_of_tree, weights, x)
    assert_type(value, F64)
    assert_type(push(weights, x), F64)
    assert_type(co.hvp(loss, x, x), F64)
    assert_type(
        co.hvp(loss_of_tree, (weights, x), (weights, x)), tuple[dict[str, F64], F64]
    )
    assert_type(
        co.hvp(loss_and_name, (x, x), (x, x), True), tuple[tuple[F64, F64], str]
    )


@co.register_dataclass(static=["count"])
@dataclasses.dataclass
class Layer:
    weight: F64
    count: int = 1


def loss_of_layer(layer: Layer) -> F64:
    return loss(layer.weight)


def trees(x: F64) -> None:
    assert_type(co.grad(loss_of_layer)(Layer(x)), Layer)
    assert_type(co.tree.leaves([x]), list[Any])
    vector, unravel = co.tree.ravel(Layer(x, count=2))
    unravel(vector)
    co.array([x, 1.0], np.float32)


@co.custom_vjp
def scaled(x: F64, k: float = 2.0) -> F64:
    return x * k


def scaled_fwd(x: F64, k: float = 2.0) -> tuple[F64, float]:
    return x * k, k


def scaled_bwd(k: float, g: F64) -> tuple[F64, None]:
    return g * k, None


scaled.defvjp(scaled_fwd, scaled_bwd)


@co.custom_jvp
def same(x: F64) -> F64:
    return x


@same.defjvp
def same_rule(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[0]


def equation(x: F64, a: float) -> F64:
    return x * x - a


def closer(g: Callable[[F64], F64], guess: F64) -> F64:
    return guess - g(guess)


def roots(x: F64) -> None:
    root = co.custom_root(equation, closer)
    assert_type(root(x, 2.0), F64)
    assert_type(root(x, a=2.0), F64)
    by_products = co.custom_root(equation, closer, lambda product, b: product(b))
    assert_type(by_products(x, 2.0), F64)
    assert_type(co.custom_fixed_point(equation, closer)(x, 2.0), F64)


@co.checkpoint
def layer(x: F64, *, k: int) -> dict[str, F64]:
    return {"a": x * k}


def functions(x: F64) -> None:
    assert_type(scaled(x, k=3.0), F64)
    assert_type(same(x), F64)
    assert_type(layer(x, k=3), dict[str, F64])
    assert_type(co.grad(scaled)(x), F64)


def doubled(x: F64) -> F64:
    return x * 2


def positive(x: F64) -> bool:
    return bool(x[0] > 0)


def control_flow(x: F64) -> None:
    def step(total: F64, row: F64) -> tuple[F64, dict[str, F64]]:
        return total + row, {"row": row}

    def counted(i: int, pair: tuple[F64, int]) -> tuple[F64, int]:
        return pair[0] * i, pair[1]

    assert_type(co.cond(positive(x), doubled, doubled, x), F64)
    assert_type(co.while_loop(positive, doubled, x), F64)
    assert_type(co.fori_loop(0, 3, counted, (x, 1)), tuple[F64, int])
    assert_type(co.scan(step, x, x, reverse=True), tuple[F64, dict[str, F64]])
    assert_type(co.map(doubled, x), F64)
    assert_type(co.associative_scan(lambda a, b: a * b, x, axis=-1), F64)
    last, _ = co.scan(lambda c, _: (c + 1, None), 0, None, length=3)
    assert_type(last, int)
