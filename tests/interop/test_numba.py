"""Functions of numba as kernels, and operators in code that numba compiles."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.errors import RegistrationError

numba = pytest.importorskip("numba", reason="numba is not installed")

import customop.interop.numba  # noqa: E402
from tests.interop import numba_table  # noqa: E402
from tests.interop.numba_table import CASES, W, X, product, scaled  # noqa: E402

pytestmark = pytest.mark.exhaustive


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


@pytest.mark.parametrize("name", CASES)
def test_kernels_give_numpys_numbers_and_dtypes(name: str) -> None:
    case = CASES[name]
    for dtype in case.dtypes:
        args = [a.astype(dtype) if isinstance(a, np.ndarray) else a for a in case.args]
        results, wanted = case.op(*args), case.expected(*args)
        if not isinstance(wanted, tuple):
            results, wanted = (results,), (wanted,)
        for found, expected in zip(results, wanted, strict=True):
            assert found.dtype == np.dtype(dtype)
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_opcheck() -> None:
    co.opcheck(CASES["`guvectorize`"].op, (X, W))


def _unaligned(x: np.ndarray) -> np.ndarray:
    """A copy at an odd address."""
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    raw[...] = x
    return raw


def test_arrays_in_another_byte_order() -> None:
    """Once it has seen others numba reads them wrongly, so that kernels get converted ones."""

    @co.custom_op("numba_tests::mixed", mutates_args=(), device_types="cpu")
    @numba.njit
    def mixed(x: np.ndarray, k: float, y: np.ndarray) -> np.ndarray:
        return x * k + y

    mixed.register_fake(lambda x, k, y: co.fake_like(x))
    for element in ("f8", "i4"):
        x = np.arange(6).astype(element)
        native = [x, _unaligned(x), x.copy()[::2].repeat(2)]
        swapped = [v.astype(v.dtype.newbyteorder()) for v in native]
        swapped.append(_unaligned(swapped[0]))
        for a in (*native, *swapped, *native):
            for b in (x, *swapped):
                np.testing.assert_array_equal(mixed(a, 2.0, b), np.asarray(a) * 2.0 + b)


def test_opcheck_tries_another_byte_order() -> None:
    """Before and after arrays that are not aligned, which numba takes for the same."""

    @co.custom_op("numba_tests::doubled", mutates_args=(), device_types="cpu")
    @numba.njit
    def doubled(x: np.ndarray) -> np.ndarray:
        return x + x

    doubled.register_fake(lambda x: co.fake_like(x))
    co.opcheck(doubled, (np.ones(3),), test_utils=("test_layouts", "test_dtypes"))


def test_arrays_in_another_byte_order_are_not_written() -> None:
    @co.custom_op("numba_tests::shift_", mutates_args=("x",), device_types="cpu")
    @numba.njit
    def shift_(x: np.ndarray, by: np.ndarray) -> None:
        x[:] = x + by

    x = np.arange(3.0)
    shift_(x, np.ones(3, ">f8"))
    np.testing.assert_array_equal(x, [1.0, 2.0, 3.0])
    swapped = x.astype(">f8")
    with pytest.raises(co.ArgumentError) as caught:
        shift_(swapped, x)
    assert str(caught.value) == (
        "numba_tests::shift_: numba cannot write to an array of >f8, which is not in the"
        " machine's byte order\n"
        "  numba_tests::shift_(Array(a!) x, Array by) -> ()\n"
        "                      ^^^^^^^^^^^\n"
        "  do: pass x.astype(x.dtype.newbyteorder('='))"
    )
    np.testing.assert_array_equal(swapped, x)
    assert shift_(x, swapped) is None


def test_read_only_arrays_are_not_written() -> None:
    """By ``x.flat`` numba writes to them."""

    @co.custom_op("numba_tests::clip_", mutates_args=("x",), device_types="cpu")
    @numba.njit
    def clip_(x: np.ndarray, low: float) -> None:
        for i in range(x.size):
            x.flat[i] = max(x.flat[i], low)

    x = np.zeros(3)
    x.setflags(write=False)
    with pytest.raises(co.ArgumentError, match="numba cannot write to a read-only"):
        clip_(x, 1.0)
    np.testing.assert_array_equal(x, np.zeros(3))
    clip_(y := x.copy(), 1.0)
    np.testing.assert_array_equal(y, np.ones(3))


@pytest.mark.usefixtures("own_kinds_here")
def test_kernels_of_njit_travel_to_other_processes() -> None:
    """With dask's tasks, also those that cannot be imported there."""
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    cloudpickle = pytest.importorskip("cloudpickle", reason="dask is not installed")
    importlib.import_module("customop.interop.dask")
    fn = numba.njit(lambda x: x * 2.0)
    op = co.custom_op(
        "numba_tests::sent", fn, mutates_args=(), schema="(Array x) -> Array",
        tags=co.Tag.pointwise,
    )  # fmt: skip
    lazy = op(da.from_array(np.arange(4.0), 2))
    sent = cloudpickle.dumps(dict(lazy.__dask_graph__()))
    assert b"find_operator" not in sent
    found = da.Array(cloudpickle.loads(sent), lazy.name, lazy.chunks, lazy.dtype)
    assert found.compute(scheduler="sync").tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_kernel_of_njit_that_is_registered_later() -> None:
    """Also of a keyword-only parameter, and where arrays may be missing or in lists."""

    @co.custom_op("numba_tests::later", mutates_args=())
    def later(x: co.Array, y: co.Array | None = None, *, k: float = 1.0) -> co.Array:
        return x * k

    @later.register_kernel("cpu")
    @numba.njit
    def _(x: Any, y: Any, k: float) -> Any:
        return x * k

    later.register_fake(lambda x, y, k: co.fake_like(x))
    for x in (np.ones(3), np.ones(3, ">f8"), np.ones(3, ">f4")):
        np.testing.assert_array_equal(later(x, x, k=3.0), 3.0 * np.ones(3))
        np.testing.assert_array_equal(later(x), np.ones(3))


@pytest.mark.parametrize("name", CASES)
def test_programs_of_jax_call_no_python(name: str) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    exported = importlib.import_module("customop.interop.jax").export(CASES[name].op)
    arrays = [a for a in CASES[name].args if isinstance(a, np.ndarray)]
    rest = CASES[name].args[len(arrays) :]
    fn = jax.jit(lambda *given: exported(*given, *rest))
    with jax.enable_x64(True):
        assert "callback" not in fn.lower(*arrays).as_text()


def test_the_guide_has_the_table() -> None:
    """It is made by ``python -m tests.interop.numba_table``."""
    assert numba_table.PAGE.read_text(encoding="utf-8").endswith(numba_table.table())


def test_loops_of_gufuncs_say_the_dtypes() -> None:
    @co.custom_op("numba_tests::root", mutates_args=())
    @numba.guvectorize(["f4[:], f4[:]", "f8[:], f8[:]"], "(n)->()")
    def root(x, out):
        out[0] = np.sqrt(np.sum(x))

    for dtype, wanted in (("f4", "f4"), ("i2", "f4"), ("i8", "f8"), ("f8", "f8")):
        found = root(np.arange(6).reshape(2, 3).astype(dtype))
        assert found.dtype == np.dtype(wanted)
        np.testing.assert_allclose(found, np.sqrt([3.0, 12.0]), rtol=1e-6)
        fake = root(co.FakeArray((5, 3), dtype))
        assert (fake.shape, fake.dtype) == ((5,), found.dtype)
    co.opcheck(root, (np.arange(6.0).reshape(2, 3),))
    with pytest.raises(co.ArgumentError) as caught:
        root(np.ones(3, complex))
    assert str(caught.value) == (
        "root has no loop for 'complex128'; it has f->f, d->d\n"
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
