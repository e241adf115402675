"""CuPy arrays, typed by the stub: kernels for a device, and operators on such arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import numpy as np
import numpy.typing as npt

import customop as co

if TYPE_CHECKING:
    import cupy as cp

F64 = npt.NDArray[np.float64]

SOURCE = 'extern "C" __global__ void cube(const double* x, double* y, int n) {}'


@co.custom_op("typing::cube", mutates_args=(), device_types="cpu")
def cube(x: co.ArrayT) -> co.ArrayT:
    result: Any = np.asarray(x) ** 3
    return result  # type: ignore[no-any-return]  # of the class of x


@cube.register_kernel("cuda")
def cube_by_source(x: cp.ndarray) -> cp.ndarray:
    import cupy  # noqa: PLC0415  # optional

    kernel = cupy.RawKernel(SOURCE, "cube")
    x = cupy.ascontiguousarray(x)
    y = cupy.empty_like(x)
    kernel((x.size // 256 + 1,), (256,), (x, y, np.int32(x.size)))
    return y


def arrays(x: cp.ndarray) -> list[co.Array]:
    return [x, x + 1.0, 2.0 * x, x.T, x[..., None], -x, x @ x, x.sum(axis=0)]


def stays_cupy(x: cp.ndarray) -> None:
    assert_type(cube(x), "cp.ndarray")
    assert_type(cube(cube(x)) + 1.0, "cp.ndarray")
    assert_type(co.stop_gradient(x), "cp.ndarray")
    assert_type(co.fake_like(x), co.FakeArray)
    assert_type(x.get(), npt.NDArray[Any])
    assert_type(x.shape, tuple[int, ...])
    assert_type(x == x, "cp.ndarray")  # noqa: PLR0124  # elementwise


def functions(x: cp.ndarray) -> None:
    import cupy  # noqa: PLC0415  # optional

    assert_type(cupy.exp(-0.5 * (x / 2.0) ** 2), "cp.ndarray")
    assert_type(cupy.divmod(x, 2)[0], "cp.ndarray")
    assert_type(cupy.where(x > 0, x, 0.0), "cp.ndarray")
    assert_type(cupy.asnumpy(x), npt.NDArray[Any])
    assert_type(cupy.linalg.norm(x, axis=-1), "cp.ndarray")
    assert_type(cupy.random.default_rng(0).standard_normal((2, 3)), "cp.ndarray")
    cupy.add.at(x, ([0, 0],), 1.0)
    with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
        stream.synchronize()
    assert_type(cupy.cuda.runtime.getDeviceCount(), int)


def gradients(x: cp.ndarray) -> None:
    assert_type(co.grad(cube)(x), "cp.ndarray")
    assert_type(co.vmap(cube)(x), "cp.ndarray")


assert cube(np.array([2.0])).tolist() == [8.0]
