"""The promises of README.md, tested in one second; runs first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co


def gauss(x: np.ndarray, width: float = 1.0) -> np.ndarray:
    """Bell curve of height 1."""
    return np.exp(-0.5 * (x / width) ** 2)


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.width = inputs
    ctx.save_for_backward(x, output)


def backward(ctx: Any, grad: Any) -> Any:
    x, y = ctx.saved_arrays
    return -grad * y * x / ctx.width**2, None


op = (
    co.custom_op("tiny::gauss", gauss, mutates_args=(), device_types="cpu")
    .register_fake(lambda x, width: co.fake_like(x))
    .register_autograd(backward, setup_context=keep)
    .register_vmap(lambda info, in_dims, x, width: (op(x, width), in_dims[0]))
)
X = np.array([-1.0, 0.5, 2.0])
Y = np.exp(-0.5 * X**2)


def test_call() -> None:
    """An operator computes what its function does, on both paths."""
    np.testing.assert_array_equal(op(X), Y)
    np.testing.assert_array_equal(op.dispatch(X, width=1), Y)


def test_schema() -> None:
    """Type hints become the schema."""
    assert str(op.schema) == "(Array x, float width=1.0) -> Array"


def test_wrong_argument() -> None:
    """The error names the wrong argument."""
    with pytest.raises(
        co.ArgumentError, match="tiny::gauss: argument 'x' expects Array"
    ):
        op("far")  # type: ignore[arg-type]


def test_gradients_of_every_order() -> None:
    """One formula gives the first and second derivatives."""
    np.testing.assert_allclose(co.grad(lambda x: np.sum(op(x)))(X), -X * Y)
    np.testing.assert_allclose(co.vmap(co.grad(co.grad(op)))(X), (X**2 - 1.0) * Y)


def test_forward_mode_is_derived() -> None:
    """Forward mode uses the backward formula."""
    _, tangent = co.jvp(op, (X,), (np.ones(3),))
    np.testing.assert_allclose(tangent, -X * Y)


def test_vmap_of_grad_of_vmap() -> None:
    """Transforms nest in any order."""
    inner = co.grad(lambda x: np.sum(co.vmap(op)(x)))
    rows = np.stack([X, 2.0 * X])
    np.testing.assert_allclose(co.vmap(inner)(rows), -rows * np.exp(-0.5 * rows**2))


def test_fake() -> None:
    """Shapes and dtypes need no data, also those of a gradient."""
    out = co.eval_shape(
        co.grad(lambda x: np.sum(op(x))), co.FakeArray((5,), np.float32)
    )
    assert (out.shape, out.dtype) == ((5,), np.dtype(np.float32))


def test_your_own_kind_of_rule() -> None:
    """A rule of a new kind goes into the same table; a missing rule raises."""
    kind = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")
    op.register(kind, lambda out, x, width: width * np.sqrt(-2.0 * np.log(out)))
    np.testing.assert_allclose(op.rule(kind)(Y, None, 1.0), np.abs(X))
    with pytest.raises(co.MissingRuleError, match="no 'other' rule"):
        op.rule(co.RuleKind("other"))
