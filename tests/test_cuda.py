"""CuPy arrays on a CUDA device: every feature once, compared with NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling import cupy_backend
from tests import cupy_double

# A mark of a parameter of a fixture does not put a test into a tier.
pytestmark = pytest.mark.exhaustive

_numbers = itertools.count()
X = np.arange(6.0).reshape(2, 3) / 7 + 0.5


@pytest.fixture(
    scope="module",
    params=[pytest.param("device", marks=pytest.mark.cuda), "double"],
)
def cp(request: pytest.FixtureRequest, own_kinds: None) -> Iterator[Any]:
    """The module cupy, and the double of it, which needs no device."""
    if request.param == "device":
        yield _cupy()
        return
    with cupy_double.installed() as module:
        yield module
    cupy_backend._elementwise.cache_clear()


def _cupy() -> Any:
    """Return the module cupy; skip if it is missing or finds no device."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA device: {error}")
    if not count:
        pytest.skip("no CUDA device")
    return cupy


def define(
    schema: str, fn: Callable[..., Any], written: tuple[str, ...] = (), **kwargs: Any
) -> co.Operator[..., Any]:
    """Make an operator with a new name."""
    name = f"cuda_tests::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=written, schema=schema, **kwargs)


def assert_equal(cp: Any, mine: Any, expected: Any) -> None:
    """Assert that a CuPy array equals a NumPy array."""
    assert isinstance(mine, cp.ndarray)
    assert mine.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(mine.get(), expected, rtol=1e-12)


CUBE = """
extern "C" __global__ void cube(const double* x, double* y, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] * x[i];
}
"""


def cube_operator(cp: Any) -> co.Operator[..., Any]:
    """The cube of x by NumPy, and by a kernel in CUDA C."""
    raw = cp.RawKernel(CUBE, "cube")

    def on_device(x: Any) -> Any:
        x = cp.ascontiguousarray(x)
        y = cp.empty_like(x)
        raw(((x.size + 127) // 128,), (128,), (x, y, np.int32(x.size)))
        return y

    op = define("(Array x) -> Array", lambda x: x * x * x, device_types="cpu")
    op.register_kernel("cuda", on_device).register_fake(lambda x: co.fake_like(x))
    op.register_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))
    return op.register_autograd(
        lambda ctx, g: 3.0 * g * ctx.saved_arrays[0] * ctx.saved_arrays[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_dispatch(cp: Any, checks: str) -> None:
    """CuPy arrays use the cuda kernel, NumPy arrays the cpu kernel."""
    co.config.checks = checks
    op = cube_operator(cp)
    for _ in range(3):
        assert_equal(cp, op(cp.asarray(X)), X**3)
        assert_equal(cp, op.dispatch(cp.asarray(X)), X**3)
        np.testing.assert_allclose(op(X), X**3)


def test_gradients_of_every_order(cp: Any) -> None:
    """A formula made of operators works for both kinds of array."""
    op = cube_operator(cp)
    x = cp.asarray(X)
    assert_equal(cp, co.grad(lambda v: np.sum(op(v)))(x), 3 * X**2)
    second = co.grad(lambda v: np.sum(co.grad(lambda w: np.sum(op(w)))(v)))(x)
    assert_equal(cp, second, 6 * X)
    _, tangent = co.jvp(op, (x,), (cp.ones_like(x),))
    assert_equal(cp, tangent, 3 * X**2)


@pytest.mark.parametrize("axis", [0, 1])
def test_vmap(cp: Any, axis: int) -> None:
    """Batches stay on the device, with a rule and with the loop."""
    x = cp.asarray(X)
    ruled = cube_operator(cp)
    assert_equal(cp, co.vmap(ruled, in_dims=axis, out_dims=axis)(x), X**3)
    looped = define("(Array x) -> Array", lambda x: x * 2)
    with pytest.warns(co.CustomOpWarning):
        assert_equal(cp, co.vmap(looped, in_dims=axis, out_dims=axis)(x), X * 2)
    rows = co.vmap(co.grad(lambda v: np.sum(ruled(v) * v)))(x)
    assert_equal(cp, rows, 4 * X**3)


@pytest.mark.filterwarnings("ignore::customop.errors.CustomOpWarning")
def test_loop_writes_into_the_batch(cp: Any) -> None:
    """Rows of a CuPy batch are views, so writes reach the batch."""

    def fill(x: Any, y: Any) -> None:
        x[...] = y

    op = define("(Array(a!) x, Array y) -> ()", fill, ("x",))
    for shape in ((4,), (4, 3)):
        x, y = cp.zeros(shape), cp.ones(shape)
        co.vmap(op)(x, y)
        assert_equal(cp, x, np.ones(shape))


def test_fake(cp: Any) -> None:
    """The fake of a CuPy array has its device and layout."""
    x = cp.asarray(X)
    fake = co.fake_like(x)
    assert (fake.shape, fake.dtype, fake.device) == ((2, 3), X.dtype, "cuda:0")
    assert co.fake_like(x.T).strides == X.T.strides
    out = co.eval_shape(cube_operator(cp), x)
    assert (out.shape, out.device) == ((2, 3), "cuda:0")
    with pytest.raises(co.DeviceMismatchError):
        fake + co.FakeArray((2, 3))


def test_mixing(cp: Any) -> None:
    """A call with NumPy and CuPy arrays raises and names both devices."""
    op = define("(Array x, Array[] y) -> Array", lambda x, y: x + sum(y))
    with pytest.raises(co.DeviceMismatchError) as caught:
        op(X, [cp.asarray(X)])
    assert "'x' is on cpu, 'y' is on cuda:0" in caught.value.what
    with pytest.raises(co.DeviceMismatchError):
        co.grad(lambda v: np.sum(v * X))(cp.asarray(X))


def test_numpy_scalar_beside_a_device_array(cp: Any) -> None:
    """Under a transform, a NumPy scalar can be combined with a CuPy array."""
    out = co.grad(lambda v: np.sum(v * np.float64(3.0)))(cp.asarray(X))
    assert_equal(cp, out, np.full_like(X, 3.0))


def test_contracts(cp: Any) -> None:
    """A cuda kernel must return CuPy arrays, as many as the schema says."""
    for kernel in (lambda x: x.get(), lambda x: None, lambda x: (x * 1,)):
        op = define("(Array x) -> Array", kernel)
        with pytest.raises(co.ContractError, match="the 'cuda' kernel returns"):
            op(cp.asarray(X))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sum": lambda x: np.sum(x * x, axis=0),
    "mean": lambda x: np.mean(x, axis=1, keepdims=True),
    "max": lambda x: np.max(x, axis=1),
    "matmul": lambda x: x @ x.T,
    "where": lambda x: np.where(x > 1, x, 0.0),
    "index": lambda x: x[:, 1:] * x[:, :-1],
    "reshape": lambda x: x.reshape(3, 2).T,
    "concatenate": lambda x: np.concatenate([x, x * 2], axis=0),
    "power": lambda x: x**2.5,
    "maximum": lambda x: np.maximum(x, 1.0),
    "log1p": lambda x: np.log1p(x) / x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_code_on_traced_device_arrays(cp: Any, name: str) -> None:
    """NumPy functions of traced CuPy arrays compute the same on the device."""
    fn = FUNCTIONS[name]
    x = cp.asarray(X)
    value, pullback = co.vjp(fn, x)
    expected, reference = co.vjp(fn, X)
    assert_equal(cp, value, fn(X))
    assert_equal(
        cp, pullback(cp.ones_like(value))[0], reference(np.ones_like(expected))[0]
    )
    rows = co.vmap(fn)(cp.stack([x, 2 * x]))
    assert_equal(cp, rows, np.stack([fn(X), fn(2 * X)]))


def test_cupy_code_on_tracers(cp: Any) -> None:
    """CuPy's own ufuncs reach the operators too."""
    out = co.grad(lambda v: np.sum(cp.exp(v)))(cp.asarray(X))
    assert_equal(cp, out, np.exp(X))


def test_where_of_cupy_on_tracers(cp: Any) -> None:
    """CuPy's `where` is a ufunc, NumPy's is not."""
    x = cp.asarray(X)
    out = co.grad(lambda v: np.sum(cp.where(v > 1, v * v, 0.0)))(x)
    assert_equal(cp, out, np.where(X > 1, 2 * X, 0.0))
    assert_equal(
        cp, co.vmap(lambda v: cp.where(v > 1, v, 0.0))(x), np.where(X > 1, X, 0)
    )


SCALED: dict[str, Callable[[Any], Any]] = {
    "multiply": lambda x: x * np.float64(2.0),
    "divide": lambda x: x / np.sqrt(3.0),
    "reflected": lambda x: np.float64(2.0) * x,
    "maximum": lambda x: np.maximum(x, 1.0) * np.float64(2.0),
    "clip": lambda x: np.clip(x, 0.6, 1.1) / np.sqrt(3.0),
    "cov": np.cov,
    "corrcoef": np.corrcoef,
    "linspace": lambda x: np.linspace(x[0], x[1], 4),
    "linspace-number": lambda x: np.linspace(x[0, 0], 3.0, 4),
    "stack": lambda x: np.stack([x[0, 0], 2.0, np.float64(3.0)]),
}


@pytest.mark.parametrize("name", SCALED)
def test_numbers_of_numpy_go_to_the_device(cp: Any, name: str) -> None:
    """In eager and in compiled code, for values and for gradients."""
    fn, x = SCALED[name], cp.asarray(X)

    def loss(v: Any) -> Any:
        return np.sum(fn(v) ** 3)

    expected = co.grad(loss)(X)
    for out in (co.grad(loss)(x), co.compile(co.grad(loss))(x)):
        assert_equal(cp, out, expected)
    assert_equal(cp, co.compile(fn)(x), fn(X))


def test_what_cupy_lacks_is_named(cp: Any) -> None:
    """The error names the function and says what to register."""
    with pytest.raises(co.MissingRuleError) as caught:
        co.vmap(np.spacing)(cp.asarray(X))
    assert "np::spacing" in str(caught.value)
    assert "cannot run on 'cuda', whose library lacks what the kernel calls" in str(
        caught.value
    )
    assert '@spacing.register_kernel("cuda")' in caught.value.do
    with pytest.raises(co.MissingRuleError, match=r"cupy_hypot.reduce.* not supported"):
        co.vmap(np.hypot.reduce)(cp.asarray(X))


def test_gradients_of_indexed_elements_have_any_dtype(cp: Any) -> None:
    """CuPy has atomic additions for few dtypes."""
    places = cp.asarray(np.array([1, 0, 1]))
    for dtype in ("complex128", "complex64", "float32", "float16"):
        g = np.arange(1, 4).astype(dtype)
        _, pull = co.vjp(lambda v: v[places], cp.asarray(g))
        assert_equal(cp, pull(cp.asarray(g))[0], np.array([2, 4, 0], dtype))


def test_reflected_operators(cp: Any) -> None:
    """A CuPy array on the left of an operator lets the tracer on the right handle it."""
    x = cp.asarray(X)
    out = co.grad(lambda v: np.sum(x * v + x / v))(x)
    assert_equal(cp, out, X - X / X**2)


def test_factory(cp: Any) -> None:
    """An operator without array arguments creates arrays on its `device`."""
    op = define(
        '(int n, device device="cpu") -> Array',
        lambda n, device: np.ones(n),
        device_types="cpu",
    ).register_kernel("cuda", lambda n, device: cp.ones(n))
    assert_equal(cp, op(3, "cuda:0"), np.ones(3))
    assert isinstance(op(3), np.ndarray)


def test_hessian(cp: Any) -> None:
    """Second derivatives are computed on the device."""
    op = cube_operator(cp)
    out = co.hessian(lambda v: np.sum(op(v)))(cp.asarray(X[0]))
    assert_equal(cp, out, np.diag(6 * X[0]))


def test_a_compiled_function_gives_the_numbers_of_the_calls(cp: Any) -> None:
    def fn(x: Any, y: Any) -> Any:
        return np.sum(np.maximum(x * y + x, 0.5) / np.sqrt(y))

    x, y = cp.asarray(X), cp.asarray(X + 1.0)
    fast = co.compile(fn)
    for i in range(4):  # the first runs kernels, the second records them
        assert_equal(cp, fast(x + i, y), fn((x + i).get(), y.get()))
    gradient = co.compile(co.grad(fn))
    for i in range(4):
        assert_equal(cp, gradient(x + i, y), co.grad(fn)((x + i).get(), y.get()))
