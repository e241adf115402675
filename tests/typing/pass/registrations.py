"""Registrations that both checkers accept, and that run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import numpy as np
import numpy.typing as npt

import customop as co
from customop.core.rule_types import BatchInfo

if TYPE_CHECKING:
    import cupy as cp

F64 = npt.NDArray[np.float64]


@co.custom_op("typing::exp", mutates_args=(), device_types="cpu")
def exp(x: F64, k: float = 1.0) -> F64:
    return np.exp(k * x)


# A kernel may take another class of arrays than the operator declares. So kernels are not
# checked against the operator's ParamSpec.
@exp.register_kernel("cuda")
def cupy_exp(x: cp.ndarray, k: float) -> cp.ndarray:
    import cupy  # noqa: PLC0415  # optional

    result: cp.ndarray = cupy.exp(cupy.multiply(x, k))
    return result


@exp.register_kernel(None)
def any_exp(x: co.Array, k: float) -> co.Array:
    raise NotImplementedError


@exp.register_fake
def _(x: co.FakeArray, k: float) -> co.FakeArray:
    return co.fake_like(x)


def setup(ctx: Any, inputs: tuple[F64, float], output: F64) -> None:
    ctx.k = inputs[1]
    ctx.save_for_backward(output)


def backward(ctx: Any, g: F64) -> tuple[F64, None]:
    (y,) = ctx.saved_arrays
    return g * y * ctx.k, None


exp.register_autograd(backward, setup_context=setup)


@exp.register_jvp
def _(
    primals: tuple[F64, float], tangents: tuple[F64 | None, None]
) -> tuple[F64, F64 | None]:
    y = exp(*primals)
    (dx, _) = tangents
    return y, None if dx is None else dx * y * primals[1]


@exp.register_vmap
def _(
    info: BatchInfo, in_dims: tuple[int | None, ...], x: F64, k: float
) -> tuple[F64, int | None]:
    return exp(x, k), in_dims[0]


inverse = co.RuleKind("typing_inverse", takes="(out, *inputs)")


@exp.register(inverse)
def _(out: F64, x: F64, k: float) -> F64:
    return np.log(out) / k


# ---- chains: each call returns the operator, with the same type ----


def np_sin(x: co.ArrayT) -> co.ArrayT:
    result: Any = np.sin(np.asarray(x))
    return result  # type: ignore[no-any-return]  # of the class of x


def cupy_sin(x: cp.ndarray) -> cp.ndarray:
    import cupy  # noqa: PLC0415  # optional

    result: cp.ndarray = cupy.sin(x)
    return result


def save_input(ctx: Any, inputs: tuple[Any], output: object) -> None:
    ctx.save_for_backward(*inputs)


def sin_vmap(
    info: BatchInfo, in_dims: tuple[int | None], x: co.ArrayT
) -> tuple[co.ArrayT, int | None]:
    return sin(x), in_dims[0]


sin = (
    co.custom_op("typing::chain", np_sin, mutates_args=(), device_types="cpu")
    .register_kernel("cuda", cupy_sin)
    .register_fake(lambda x: co.fake_like(x))
    .register_autograd(
        lambda ctx, g: g * np.cos(ctx.saved_arrays[0]), setup_context=save_input
    )
    .register_jvp(lambda primals, tangents: (np_sin(primals[0]), tangents[0]))
    .register_vmap(lambda info, in_dims, x: (x, in_dims[0]))
    .register_vmap(sin_vmap, override=True)
)


def chain_stays_generic(x: F64, y: npt.NDArray[np.float32]) -> None:
    assert_type(sin(x), F64)
    assert_type(sin(y), npt.NDArray[np.float32])


# ---- rules of other shapes ----


@co.custom_op("typing::pair", mutates_args=())
def pair(x: F64, y: F64, *, k: float) -> tuple[F64, F64]:
    return x * k, y * k


def pair_setup(
    ctx: Any,
    inputs: tuple[F64, F64],
    output: object,
    keyword_only_inputs: dict[str, Any],
) -> None:
    ctx.k = keyword_only_inputs["k"]


def pair_backward(ctx: Any, gx: F64, gy: F64) -> tuple[F64, F64]:
    return gx * ctx.k, gy * ctx.k


def any_backward(ctx: Any, *grads: F64) -> Any:
    return grads


pair.register_autograd(pair_backward, setup_context=pair_setup)
pair.register_autograd(any_backward, override=True)
pair.register_autograd(co.native, override=True)


@pair.register_jvp
def _(
    primals: tuple[F64, F64], tangents: tuple[Any, ...], *, k: float
) -> tuple[tuple[F64, F64], tuple[Any, ...]]:
    return pair(*primals, k=k), tuple(t if t is None else t * k for t in tangents)


@pair.register_vmap
def _(
    info: BatchInfo, in_dims: tuple[int | None, ...], *xs: F64, k: float
) -> tuple[tuple[F64, F64], tuple[Any, ...]]:
    return pair(*xs, k=k), in_dims[:2]


# ---- by name, and with a decorator that returns its function ----


@co.register_kernel("typing::pair", "cpu")
def cpu_pair(x: F64, y: F64, *, k: float) -> tuple[F64, F64]:
    return x * k, y * k


@exp.register_fake(override=True)
def fake_exp(x: co.FakeArray, k: float) -> co.FakeArray:
    return co.fake_like(x)


def functions_stay(x: F64) -> None:
    assert_type(cpu_pair(x, x, k=1.0), tuple[F64, F64])
    assert_type(fake_exp(co.fake_like(x), 1.0), co.FakeArray)
    assert_type(co.register_fake(exp, fake_exp, override=True)(x), F64)


chain_stays_generic(np.ones(2), np.ones(2, np.float32))
functions_stay(np.ones(2))
