"""A program for CuPy: checkers accept it without options, with and without CuPy."""

from __future__ import annotations

from typing import Any, assert_type

import cupy as cp
import cupy.typing as cpt
import cupyx
import numpy as np
import numpy.typing as npt
from cupyx.profiler import benchmark
from cupyx.scipy import ndimage, signal, sparse, special
from cupyx.scipy.sparse import linalg as sparse_linalg

import customop as co

saxpy = cp.ElementwiseKernel("T a, T x, T y", "T z", "z = a * x + y", "saxpy")
total = cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")


@cp.fuse(kernel_name="squared")
def squared(x: cp.ndarray, y: cp.ndarray) -> cp.ndarray:
    return (x - y) ** 2


@cp.memoize(for_each_device=True)
def kernel(name: str) -> cp.RawKernel:
    return cp.RawKernel("", name)


@co.custom_op("sample::scale", mutates_args=(), device_types="cuda")
def scale(x: cp.ndarray, factor: float) -> cp.ndarray:
    return x * factor


@cupyx.jit.rawkernel()
def copy(x: Any, y: Any, size: Any) -> None:
    i = cupyx.jit.blockIdx.x * cupyx.jit.blockDim.x + cupyx.jit.threadIdx.x
    if i < size:
        y[i] = x[i]


def operators(x: cp.ndarray) -> None:
    assert_type(scale(x, 2.0), cp.ndarray)
    assert_type(co.grad(scale)(x, 2.0), cp.ndarray)


def functions(x: cp.ndarray, single: cpt.NDArray[np.float32]) -> None:
    assert_type(cp.stack([x, single]) + cp.float32(1), cp.ndarray)
    assert_type(cp.asnumpy(x), npt.NDArray[Any])
    assert_type(cp.where(x > 0, x, 0.0), cp.ndarray)
    assert_type(cp.histogram(x, bins=10), tuple[cp.ndarray, cp.ndarray])
    assert_type(cp.linalg.eigvalsh(x), cp.ndarray)
    assert_type(cp.fft.rfft(x, axis=-1), cp.ndarray)
    assert_type(cp.random.randn(2, 3), cp.ndarray)
    assert_type(cp.random.default_rng(0).integers(0, 9, size=3), cp.ndarray)
    cp.get_array_module(x).sum(x)
    cp.get_default_memory_pool().free_all_blocks()
    cupyx.scatter_add(x, ([0, 0], slice(None)), 1.0)


def as_in_scipy(x: cp.ndarray) -> None:
    matrix = sparse.csr_matrix(x)
    assert_type(matrix.sin().toarray(), cp.ndarray)
    assert_type(sparse_linalg.spsolve(matrix, x), cp.ndarray)
    assert_type(ndimage.gaussian_filter(x, sigma=(1.0, 2.0)), cp.ndarray)
    assert_type(signal.fftconvolve(x, x, mode="same"), cp.ndarray)
    assert_type(special.erf(x), cp.ndarray)


def kernels(x: cp.ndarray) -> None:
    saxpy(2.0, x, x)
    total(x, axis=0, keepdims=True)
    kernel("add")((1,), (128,), (x, x, np.int32(x.size)))
    copy((1,), (128,), (x, x, x.size))
    copy[1, 128](x, x, x.size)
    assert_type(benchmark(squared, (x, x), n_repeat=3).gpu_times, npt.NDArray[Any])


def devices() -> None:
    with cp.cuda.Device(0) as device, cp.cuda.Stream(non_blocking=True) as stream:
        assert_type(device.mem_info, tuple[int, int])
        assert_type(stream.record(), cp.cuda.Event)
    assert_type(cp.cuda.stream.get_current_stream(), cp.cuda.Stream)
