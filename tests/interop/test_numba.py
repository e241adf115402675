"""Functions of numba as kernels, and operators in code that numba compiles."""

from __future__ import annotations

import numpy as np
import pytest

import customop as co
from customop.errors import RegistrationError

numba = pytest.importorskip("numba", reason="numba is not installed")

import customop.interop.numba  # noqa: E402

pytestmark = pytest.mark.exhaustive

X = np.linspace(-1.0, 2.0, 6).reshape(2, 3)
W = np.array([1.0, -2.0, 3.0])


@co.custom_op(
    "numba_tests::scaled", mutates_args=(), schema="(Array x, float k=2.0) -> Array"
)
@numba.njit
def scaled(x, k):
    return x * k


@co.custom_op("numba_tests::hinted", mutates_args=())
@numba.njit
def hinted(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    return x * k


@co.custom_op(
    "numba_tests::product",
    mutates_args=(),
    schema="(Array x, Array y) -> Array",
    tags=(co.Tag.pointwise,),
)
@numba.vectorize
def product(x, y):
    return x * y


@co.custom_op("numba_tests::moments", mutates_args=())
@numba.guvectorize("(n),(n)->(),(n)")
def moments(x, w, total, part):
    total[0] = 0
    for i in range(len(x)):
        part[i] = x[i] * w[i]
        total[0] += part[i]


@co.custom_op(
    "numba_tests::halved",
    mutates_args=(),
    device_types="cpu",
    schema="(Array x) -> Array",
)
@numba.njit
def halved(x):
    return x / 2.0


@co.custom_op("numba_tests::plain", mutates_args=())
def plain(x: np.ndarray) -> np.ndarray:
    return x + 1.0


def test_kernels_are_compiled_for_each_dtype() -> None:
    for op in (scaled, hinted):
        for dtype in (np.float64, np.complex128):
            found = op(X.astype(dtype), 3.0)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, 3.0 * X)
    for dtype in (np.float32, np.int64):
        found = product(X.astype(dtype), W.astype(dtype))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, X.astype(dtype) * W.astype(dtype))


def test_gufuncs() -> None:
    assert "Array[...,n] x, Array[...,n] w) -> (Array[...], Array[...,n])" in str(
        moments
    )
    for dtype in (np.float32, np.float64):
        total, part = moments(X.astype(dtype), W.astype(dtype))
        assert total.dtype == part.dtype == dtype
        np.testing.assert_allclose(total, X.astype(dtype) @ W, rtol=1e-6)
        np.testing.assert_allclose(part, X.astype(dtype) * W, rtol=1e-6)
    rows, _ = co.vmap(moments, in_dims=(1, None))(np.stack([X, 2 * X], axis=1), W)
    np.testing.assert_allclose(rows, np.stack([X @ W, 2 * X @ W]))
    co.opcheck(moments, (X, W))


def test_loops_of_gufuncs_say_the_dtypes() -> None:
    @co.custom_op("numba_tests::root_sum", mutates_args=())
    @numba.guvectorize(["f4[:], f4[:]", "f8[:], f8[:]"], "(n)->()")
    def root_sum(x, out):
        out[0] = np.sqrt(np.sum(x))

    for dtype, wanted in (("f4", "f4"), ("i2", "f4"), ("i8", "f8"), ("f8", "f8")):
        found = root_sum(np.arange(6).reshape(2, 3).astype(dtype))
        assert found.dtype == np.dtype(wanted)
        np.testing.assert_allclose(found, np.sqrt([3.0, 12.0]), rtol=1e-6)
        fake = root_sum(co.FakeArray((5, 3), dtype))
        assert (fake.shape, fake.dtype) == ((5,), found.dtype)
    co.opcheck(root_sum, (np.arange(6.0).reshape(2, 3),))
    with pytest.raises(co.ArgumentError) as caught:
        root_sum(np.ones(3, complex))
    assert str(caught.value) == (
        "root_sum has no loop for 'complex128'; it has f->f, d->d\n"
        "  do: convert the arguments: x.astype(np.float64)"
    )


def test_gufuncs_as_kernels_of_a_kind() -> None:
    @co.custom_op("numba_tests::last", mutates_args=(), device_types="cuda")
    def last(x: co.Array) -> co.Array:
        raise AssertionError

    @last.register_kernel("cpu")
    @numba.guvectorize("(n)->()")
    def kernel(x, out):
        out[0] = x[-1]

    np.testing.assert_array_equal(last(X), X[:, -1])
    assert kernel.signature == "(n)->()"  # the decorated function stays


def test_gufuncs_that_write_their_inputs_are_refused() -> None:
    @numba.guvectorize("(n)->()", writable_args=(0,))
    def cleared(x, out):
        x[:] = 0
        out[0] = 0

    with pytest.raises(RegistrationError) as caught:
        co.custom_op("numba_tests::cleared", mutates_args=())(cleared)
    assert str(caught.value) == (
        "cleared is a function of guvectorize that writes its inputs\n"
        "  do: leave writable_args out, and give what it writes as a result"
    )


def test_operators_in_compiled_code() -> None:
    @numba.njit
    def both(x, w):
        return scaled(x, 3.0) + product(x, w) + halved(x)

    np.testing.assert_array_equal(both(X, W), 3.5 * X + X * W)


def test_operators_that_numba_cannot_call() -> None:
    @numba.njit
    def fn(x):
        return plain(x)

    with pytest.raises(Exception, match="has no kernel that numba can call"):
        fn(X)
