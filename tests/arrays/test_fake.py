"""Fake arrays: shapes, dtypes, strides and devices without data."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import customop as co
from customop import FakeArray

_numbers = itertools.count()
X = np.arange(6.0).reshape(2, 3)


def define(schema: str, fn: Callable[..., Any], **kwargs: Any) -> co.Operator[..., Any]:
    """Make an operator of a new name."""
    name = f"fakes::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=(), schema=schema, **kwargs)


def facts(x: Any) -> tuple[Any, ...]:
    """The facts of a fake array."""
    return tuple(x.shape), x.dtype, tuple(x.strides)


# ---- fake_like ----


@st.composite
def arrays(draw: Any) -> np.ndarray:
    """Arrays of any layout: orders of axes, steps, reversed and broadcast axes."""
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    dtype = draw(st.sampled_from(["f8", "i2", "c16", "b1"]))
    x = np.zeros(shape, dtype)
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    steps = draw(
        st.lists(st.sampled_from([1, 2, -1]), min_size=x.ndim, max_size=x.ndim)
    )
    x = x[tuple(slice(None, None, step) for step in steps)]
    if draw(st.booleans()):
        x = np.broadcast_to(x, (2, *x.shape))
        x = x.transpose(draw(st.permutations(range(x.ndim))))
    return x


@given(arrays())
@settings(deadline=None)
def test_fake_like_has_the_strides_of_empty_like(x: np.ndarray) -> None:
    """Shape, dtype and strides are those that np.empty_like gives."""
    assert facts(co.fake_like(x)) == facts(np.empty_like(x))


@given(arrays())
@settings(deadline=None)
def test_fake_like_of_a_fake_array(x: np.ndarray) -> None:
    """A fake array has the facts of the real one."""
    fake = FakeArray(x.shape, x.dtype, x.strides)
    assert facts(co.fake_like(fake)) == facts(np.empty_like(x))


@given(arrays(), st.sampled_from(["f4", "u1"]))
@settings(deadline=None)
def test_fake_like_with_dtype(x: np.ndarray, dtype: str) -> None:
    """Another dtype keeps the order of the axes."""
    assert facts(co.fake_like(x, dtype=dtype)) == facts(np.empty_like(x, dtype=dtype))


@given(arrays(), st.data())
@settings(deadline=None)
def test_fake_like_with_shape(x: np.ndarray, data: Any) -> None:
    """Another shape keeps the order where the number of axes is the same."""
    shape = tuple(data.draw(st.lists(st.integers(0, 3), max_size=4)))
    assert facts(co.fake_like(x, shape=shape)) == facts(np.empty_like(x, shape=shape))


@given(st.lists(st.integers(0, 3), max_size=4))
@settings(deadline=None)
def test_new_fake_array_is_as_np_empty(shape: list[int]) -> None:
    """Without strides a fake array is in C order."""
    assert facts(FakeArray(shape)) == facts(np.empty(shape))


@pytest.mark.parametrize("length", [3, np.int64(3), (3,), [3], (np.int64(3),)])
def test_lengths(length: Any) -> None:
    """Lengths come as ints of Python or NumPy, alone or in a sequence."""
    for fake in (FakeArray(length), co.fake_like(X, shape=length)):
        assert fake.shape == (3,)
        assert type(fake.shape[0]) is int


@pytest.mark.parametrize("shape", [(-1,), -2, (2, -3)])
def test_negative_length(shape: Any) -> None:
    """A negative length is a ShapeError."""
    for make in (FakeArray, lambda s: co.fake_like(X, shape=s)):
        with pytest.raises(co.ShapeError, match="negative"):
            make(shape)


@pytest.mark.parametrize("shape", [2.5, (2.5,), "ab", None, ("2",)])
def test_no_length(shape: Any) -> None:
    """Values that are not lengths are refused."""
    with pytest.raises((TypeError, ValueError)):
        FakeArray(shape)


@given(st.lists(st.integers(0, 3), max_size=4), st.data())
@settings(deadline=None)
def test_order_of_axes(shape: list[int], data: Any) -> None:
    """With an order a fake array is as an array of NumPy's whose axes were moved."""
    order = data.draw(st.permutations(range(len(shape))))
    real = np.empty([shape[axis] for axis in order]).transpose(np.argsort(order))
    assert facts(FakeArray(shape, order=order)) == facts(real)


@pytest.mark.parametrize("order", [(0,), (0, 0), (1, 2), (0, 1, 1), (-1, 0), ("a", 0)])
def test_no_order(order: Any) -> None:
    """An order names each axis once, counted from the first."""
    with pytest.raises(co.ShapeError, match="each axis"):
        FakeArray((2, 3), order=order)


def test_wrong_number_of_strides() -> None:
    """Strides and shape have one length."""
    with pytest.raises(co.ShapeError, match="strides"):
        FakeArray((2, 3), float, (8,))


def test_unknown_device() -> None:
    """A device that is not registered is refused."""
    with pytest.raises(co.ArgumentError, match="unknown device 'gpu'"):
        FakeArray((2,), device="gpu")


@pytest.mark.parametrize("value", [True, 3, 1.5, 2j])
def test_fake_like_of_a_number(value: Any) -> None:
    """It is that of an array without axes, as for numpy.empty_like."""
    expected = np.empty_like(value)
    assert co.fake_like(value).dtype == expected.dtype
    assert co.fake_like(value).shape == ()
    assert co.fake_like(value, (2,), np.float32).strides == (4,)


@pytest.mark.parametrize("value", [[1.0], None, "a"])
def test_fake_like_of_no_array(value: Any) -> None:
    """fake_like takes arrays."""
    with pytest.raises(co.ArgumentError, match="is not an array"):
        co.fake_like(value)


def test_fake_like_of_a_numpy_scalar() -> None:
    """A NumPy scalar is an array without axes."""
    assert facts(co.fake_like(np.float32(1))) == ((), np.dtype("f4"), ())


def test_fake_like_inside_transforms() -> None:
    """Traced arrays are checked by their own shape: that of one row under vmap."""
    shapes = []

    def note(x: Any) -> Any:
        shapes.append(co.fake_like(x).shape)
        return np.sum(x)

    co.grad(note)(X)
    co.vmap(note, in_dims=1)(X)
    co.vmap(co.grad(note))(X)
    assert shapes == [(2, 3), (2,), (3,)]


# ---- FakeArray ----

F = FakeArray((2, 3))
ASKED = {
    "bool": lambda: bool(F),
    "if": lambda: 1 if F.shape and F == F else 0,  # noqa: PLR0124
    "and": lambda: 0 < F < 1,
    "float": lambda: float(F),
    "int": lambda: int(F),
    "complex": lambda: complex(F),
    "index": lambda: [1, 2][FakeArray((), int)],
    "range": lambda: range(FakeArray((), int)),
    "item": lambda: F.item(),
    "tolist": lambda: F.tolist(),
    "asarray": lambda: np.asarray(F),
    "array of": lambda: np.array([F[0], F[0]]),
    "in": lambda: 1.0 in F,
    "math": lambda: math.sin(FakeArray(())),
}


@pytest.mark.parametrize("way", ASKED)
def test_no_data(way: str) -> None:
    """Every way to a value is refused, and the message says what there is."""
    with pytest.raises(co.DataDependentError, match=r"FakeArray .*, which has no data"):
        ASKED[way]()


def test_storing_into_a_real_array() -> None:
    """A fake element does not fit into a real array; the cause says why."""
    with pytest.raises((ValueError, co.DataDependentError)) as caught:
        np.zeros(3)[0] = FakeArray(())
    causes = (caught.value, caught.value.__cause__)
    assert any(isinstance(c, co.DataDependentError) for c in causes)


def test_writing_into_a_fake_array() -> None:
    """A write checks shapes and dtypes; fake values are not written into real arrays."""
    fake = co.FakeArray((2, 3))
    fake[0] = 1.0
    fake += fake
    np.add(fake, fake, out=fake)
    assert facts(fake) == facts(co.FakeArray((2, 3)))
    with pytest.raises(ValueError, match="broadcast"):
        fake[0] = np.zeros(2)
    with pytest.raises(co.ArgumentError, match=r"np\.add\(out"):
        np.add(F, F, out=np.zeros((2, 3)))
    real = np.zeros((2, 3))
    with pytest.raises(co.ArgumentError, match="into a plain array"):
        real += F


def test_structure() -> None:
    """Lengths, axes, iteration and unpacking work without data."""
    assert (F.ndim, F.size, F.nbytes, F.itemsize, len(F)) == (2, 6, 48, 8, 2)
    assert (F.T.shape, F.mT.shape, F[0].shape) == ((3, 2), (3, 2), (3,))
    first, second = F
    assert first.shape == second.shape == (3,)
    assert [row.shape for row in F] == [(3,), (3,)]
    with pytest.raises(TypeError, match="no axes"):
        len(FakeArray(()))
    with pytest.raises(TypeError):
        hash(F)


def test_repr() -> None:
    """Texts by repr and format show dtype, shape and device."""
    assert repr(F) == f"{F}" == "FakeArray(f64[2, 3], device='cpu')"
    assert (
        repr(FakeArray((), "b1", device="cuda:1"))
        == "FakeArray(bool[], device='cuda:1')"
    )


def test_copies_and_pickles() -> None:
    """Fake arrays copy and pickle as values."""
    fake = co.fake_like(X.T, dtype="f4")
    for other in (
        copy.copy(fake),
        copy.deepcopy(fake),
        pickle.loads(pickle.dumps(fake)),
    ):
        assert (facts(other), other.device) == (facts(fake), fake.device)


PROMOTIONS = [
    ("f4", 2.0),
    ("f4", 2),
    ("i1", 1.5),
    ("i1", 1),
    ("f4", np.float64(1)),
    ("i4", np.ones(3, "f4")),
    ("f4", 1j),
    ("b1", True),
]


@pytest.mark.parametrize("index", range(len(PROMOTIONS)))
def test_promotion_is_that_of_numpy(index: int) -> None:
    """Fake arrays mixed with other values give NumPy's dtype and shape."""
    dtype, other = PROMOTIONS[index]
    real = np.ones((2, 3), dtype)
    fake = co.fake_like(real)
    for function in (np.add, np.multiply, np.true_divide, np.less):
        for a, b, expected in [
            (fake, other, function(real, other)),
            (other, fake, function(other, real)),
        ]:
            out = function(a, b)
            assert (out.shape, out.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("other", [np.ones(4), FakeArray((3, 3)), np.ones((2, 2))])
def test_shapes_that_do_not_broadcast(other: Any) -> None:
    """Shapes are checked as NumPy does."""
    with pytest.raises(ValueError, match=r"broadcast|shape"):
        F + other


def test_devices_do_not_mix() -> None:
    """Fake arrays of different kinds of device do not meet."""
    there = FakeArray((3,), device="cuda:1")
    for other in (np.ones(3), FakeArray((3,))):
        with pytest.raises(co.DeviceMismatchError, match="different kinds"):
            there + other
    out = there + 1.0
    assert out.device == "cuda:1"


def test_numbers_of_devices_do_not_mix() -> None:
    """Nor do those of two CUDA devices."""
    with pytest.raises(co.DeviceMismatchError):
        FakeArray((3,), device="cuda:1") + FakeArray((3,), device="cuda:0")


def test_function_without_operator() -> None:
    """A NumPy function that has no operator is named."""
    with pytest.raises(co.MissingRuleError, match=r"np\.busday_count has no operator"):
        np.busday_count(F, F)


# ---- fake kernels ----


def scale() -> co.Operator[..., Any]:
    """An operator with a fake kernel."""
    op = define("(Array x, float k=1.0) -> Array", lambda x, k: x * k)
    return op.register_fake(lambda x, k: co.fake_like(x))


def test_fake_kernel_runs_for_fake_arrays() -> None:
    """Real arrays beside fake ones are taken for fake, by both paths."""
    op = define("(Array x, Array y) -> Array", lambda x, y: x @ y)
    op.register_fake(lambda x, y: co.fake_like(x, shape=(x.shape[0], y.shape[1])))
    for call in (op, op, op.dispatch):
        assert call(FakeArray((2, 3)), np.ones((3, 4))).shape == (2, 4)
        assert call(np.ones((2, 3)), FakeArray((3, 4))).shape == (2, 4)


def test_missing_fake_kernel() -> None:
    """Without one the error says what to write."""
    op = define("(Array x) -> Array", lambda x: x * 1)
    with pytest.raises(co.MissingRuleError, match="no fake kernel") as caught:
        op(F)
    assert "register_fake" in caught.value.do
    assert isinstance(caught.value, NotImplementedError)


def test_fake_kernel_gets_coerced_arguments() -> None:
    """Numbers are coerced and defaults filled in for a fake kernel too."""
    got = []
    op = define("(Array x, float k=1.0, int[] n=[1]) -> Array", lambda x, k, n: x * 1)
    op.register_fake(lambda x, k, n: got.append((k, n)) or co.fake_like(x))
    op(F, 2)
    op(F, n=(3,))
    assert [(type(k), k, n) for k, n in got] == [(float, 2.0, [1]), (float, 1.0, [3])]
    with pytest.raises(co.ArgumentError):
        op(F, "a")


def test_real_result_of_a_fake_kernel_becomes_fake() -> None:
    """A fake kernel may build a real array where that is easier."""
    op = define("(Array x) -> (Array, Array[])", lambda x: (x * 1, [x * 2]))
    op.register_fake(lambda x: (np.zeros(3), [np.zeros((2, 2), "i4")]))
    first, (second,) = op(F)
    assert (type(first), first.shape) == (FakeArray, (3,))
    assert (type(second), second.dtype) == (FakeArray, np.dtype("i4"))


WRONG = [
    ("Array", lambda x: 3),
    ("Array", lambda x: None),
    ("Array", lambda x: (co.fake_like(x),)),
    ("(Array, Array)", lambda x: co.fake_like(x)),
    ("(Array, Array)", lambda x: (co.fake_like(x),)),
    ("Array[]", lambda x: co.fake_like(x)),
    ("int", lambda x: "a"),
    ("()", lambda x: co.fake_like(x)),
]


@pytest.mark.parametrize("index", range(len(WRONG)))
def test_wrong_result_of_a_fake_kernel(index: int) -> None:
    """Results of fake kernels are checked against the schema."""
    returns, fake = WRONG[index]
    op = define(f"(Array x) -> {returns}", lambda x: None).register_fake(fake)
    with pytest.raises(co.ContractError, match="the 'fake' kernel returns"):
        op(F)


def test_fake_kernel_is_never_handed_data() -> None:
    """In a proof of a real call the fake kernel sees fake arrays alone."""
    seen = []
    op = define("(Array x, Array[] y) -> Array", lambda x, y: x * 1)
    op.register_fake(lambda x, y: seen.append((x, y)) or co.fake_like(x))
    op(X, [X, X])
    ((x, (y, z)),) = seen
    assert {type(v) for v in (x, y, z)} == {FakeArray}


# ---- FakeMode ----


def test_mode_makes_real_calls_fake() -> None:
    """Inside it real arrays are taken for fake, after it they are computed again."""
    op = scale()
    op(X)
    with co.FakeMode():
        out = op(X, 2)
    assert (type(out), out.shape) == (FakeArray, (2, 3))
    np.testing.assert_array_equal(op(X, 2), 2 * X)


def test_mode_and_factories() -> None:
    """Operators without arrays make fake arrays inside it, on their device."""
    op = define('(int n, device device="cpu") -> Array', lambda n, device: np.zeros(n))
    op.register_fake(lambda n, device: FakeArray((n,), device=device))
    with co.FakeMode():
        assert facts(op(3)) == facts(np.zeros(3))
        assert op(3, "cuda:1").device == "cuda:1"
        assert op(n=2).shape == (2,)
    assert op(3).tolist() == [0.0, 0.0, 0.0]


def test_mode_and_keyword_only_factories() -> None:
    """Keyword-only parameters reach the fake kernel by name."""
    op = define("(int n, *, int m=2) -> Array", lambda n, m: np.zeros((n, m)))
    op.register_fake(lambda n, *, m: FakeArray((n, m)))
    with co.FakeMode():
        assert op(3).shape == (3, 2)
        assert op(3, m=1).shape == (3, 1)


def test_mode_without_fake_kernel() -> None:
    """A missing fake kernel is an error inside it, and the mode ends well."""
    op = define("(Array x) -> Array", lambda x: x * 1)
    with co.FakeMode(), pytest.raises(co.MissingRuleError, match="no fake kernel"):
        op(X)
    np.testing.assert_array_equal(op(X), X)


def test_from_array() -> None:
    """A fake array of a real one has its layout, and another device if one is given."""
    mode = co.FakeMode()
    fake = mode.from_array(X.T)
    assert (facts(fake), fake.device) == (facts(X.T), "cpu")
    assert mode.from_array(X, "cuda:0").device == "cuda:0"
    assert facts(mode.from_array(fake)) == facts(X.T)
    with pytest.raises(co.ArgumentError, match="not an array with data"):
        mode.from_array([1.0])
    with pytest.raises(co.ArgumentError, match="unknown device"):
        mode.from_array(X, "gpu")


@pytest.mark.parametrize("real", [False, True])
def test_mode_around_transforms(real: bool) -> None:
    """grad, vmap and jvp run over fake arrays with the shapes of real ones."""
    op = scale().register_autograd(lambda ctx, g: (g, None))
    op.register_vmap(lambda info, in_dims, x, k: (op(x, k), in_dims[0]))

    def loss(x: Any) -> Any:
        return np.sum(op(x) * op(x))

    with co.FakeMode() as mode:
        x = X if real else mode.from_array(X)
        grad, rows, both = co.grad(loss)(x), co.vmap(loss)(x), co.vmap(co.grad(loss))(x)
        value, tangent = co.jvp(loss, (x,), (x,))
    assert (grad.shape, rows.shape, both.shape) == ((2, 3), (2,), (2, 3))
    assert (value.shape, tangent.shape) == ((), ())
    assert {type(v) for v in (grad, rows, both, value, tangent)} == {FakeArray}


def test_fake_arrays_under_vmap_by_rule_and_loop() -> None:
    """A batching rule and the loop give the same shapes for fake rows."""
    for rule in (False, True):
        op = define("(Array x) -> (Array, Array)", lambda x: (x * 1, np.sum(x)))
        op.register_fake(lambda x: (co.fake_like(x), co.fake_like(x, shape=())))
        if rule:
            op.register_vmap(
                lambda info, in_dims, x: (
                    (co.fake_like(x), co.fake_like(x, shape=info.batch_size)),
                    (in_dims[0], 0),
                )
            )
            first, second = co.vmap(op, in_dims=1)(FakeArray((4, 5)))
        else:
            with pytest.warns(co.CustomOpWarning):
                first, second = co.vmap(op, in_dims=1)(FakeArray((4, 5)))
        assert (first.shape, second.shape) == ((5, 4), (5,))


# ---- eval_shape ----


def test_eval_shape_over_pytrees() -> None:
    """Arrays anywhere in the arguments are fake; the result keeps its structure."""
    op = scale()
    seen = []

    def fn(tree: Any, *, scale: float) -> Any:
        seen.append(tree["x"])
        return {
            "a": tree["x"] @ tree["y"][0],
            "n": 3,
            "b": (op(tree["x"], scale), None),
        }

    out = co.eval_shape(fn, {"x": X, "y": [X.T]}, scale=2)
    assert type(seen[0]) is FakeArray
    assert facts(out["a"]) == facts(X @ X.T)
    assert (out["n"], out["b"][1]) == (3, None)
    assert facts(out["b"][0]) == facts(X)


def test_eval_shape_of_constants() -> None:
    """A result made of constants alone is fake too."""
    out = co.eval_shape(lambda x: (np.ones(3), 2.0), X)
    assert (type(out[0]), out[0].shape, out[1]) == (FakeArray, (3,), 2.0)


def test_eval_shape_of_a_branch_on_data() -> None:
    """A branch on a value is refused, and leaves no mode open."""
    op = scale()
    with pytest.raises(co.DataDependentError, match="bool"):
        co.eval_shape(lambda x: x if np.sum(x) > 0 else -x, X)
    np.testing.assert_array_equal(op(X), X)
    np.testing.assert_array_equal(op(X), X)


def test_eval_shape_computes_nothing() -> None:
    """No kernel runs."""

    def kernel(x: np.ndarray, k: float) -> np.ndarray:
        raise AssertionError

    op = define("(Array x, float k=1.0) -> Array", kernel)
    op.register_fake(lambda x, k: co.fake_like(x))
    assert co.eval_shape(lambda x: op(op(x)), FakeArray((10**9, 10**6))).size == 10**15


@pytest.mark.parametrize("fn", [np.matmul, np.add, np.sum, np.transpose, np.exp])
def test_eval_shape_of_numpy_functions(fn: Callable[..., Any]) -> None:
    """NumPy's functions give NumPy's shapes and dtypes."""
    x = np.ones((3, 3), np.float32)
    args = (x, x) if fn in (np.matmul, np.add) else (x,)
    out, expected = co.eval_shape(fn, *args), fn(*args)
    assert (out.shape, out.dtype) == (expected.shape, expected.dtype)


def test_a_fake_array_without_axes_counts_as_a_scalar() -> None:
    """As `eval_shape` says: with an axis the dtype is that of NumPy's array."""

    def add(x: Any) -> Any:
        x += np.float64(1.5)
        return x

    for x in (np.float32(2.0), np.ones(1, np.float32)):
        assert co.eval_shape(add, x).dtype == add(x.copy()).dtype
    assert co.eval_shape(add, np.array(2.0, np.float32)).dtype == np.float64
    assert add(np.array(2.0, np.float32)).dtype == np.float32


def test_a_fake_array_has_no_digits_to_print() -> None:
    fake = FakeArray((), np.float64)
    assert f"{fake}" == repr(fake)
    with pytest.raises(
        co.DataDependentError, match=r"format\('.2f'\) of FakeArray f64"
    ):
        format(fake, ".2f")
