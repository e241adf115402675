"""Plain NumPy code on tracers: operators, methods, functions, and what is refused."""

from __future__ import annotations

import math
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.numpy_functions import find_function

X = np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]])
I = np.array([[1, 2, 3], [4, 5, 6]])  # noqa: E741
B = X > 2


class Boxes(co.Interpreter):
    """Passes every call on to the values below."""

    kind = co.RuleKind("boxes")

    def process(self, op: Any, args: Any) -> Any:
        return self.wrap(op.invoke(self.unwrap(args)))


def boxed(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a function for tracers of these arrays, unwrapped."""
    with Boxes() as boxes:
        out = fn(*boxes.wrap(args))
        leaves = out if isinstance(out, tuple) else (out,)
        assert all(type(leaf) is co.Tracer for leaf in leaves), "the tracing was lost"
        values = tuple(leaf.below for leaf in leaves)
        return values if isinstance(out, tuple) else values[0]


def faked(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a function for fake arrays of these arrays."""
    return fn(*(co.fake_like(x) for x in args))


def batched(fn: Callable[..., Any], *args: Any) -> Any:
    """The results of a function for three equal rows."""
    return co.vmap(fn)(*(np.stack([x] * 3) for x in args))


def assert_same(fn: Callable[..., Any], *args: Any) -> None:
    """Tracers, rows and fake arrays all agree with NumPy."""
    expected = fn(*args)
    np.testing.assert_allclose(boxed(fn, *args), expected)
    for row in batched(fn, *args):
        np.testing.assert_allclose(row, expected)
    fake = faked(fn, *args)
    assert (fake.shape, fake.dtype) == (expected.shape, expected.dtype)


# ---- operators ----

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
COMPARE = ["lt", "le", "gt", "ge", "eq", "ne"]


@pytest.mark.parametrize("name", BINARY + COMPARE)
def test_binary_operator(name: str) -> None:
    """Every operator of Python works between tracers, arrays and numbers."""
    fn = getattr(operator, name)
    assert_same(lambda x: fn(x, x + 1.0), X)
    assert_same(lambda x: fn(x, 2.0), X)
    assert_same(lambda x: fn(x, X[0]), X)


@pytest.mark.parametrize("name", BINARY + COMPARE)
def test_reflected_operator(name: str) -> None:
    """An array or a number on the left lets the tracer decide."""
    fn = getattr(operator, name)
    assert_same(lambda x: fn(X[0], x), X)
    assert_same(lambda x: fn(2.0, x), X)
    assert_same(lambda x: fn(np.float64(2.0), x), X)
    assert_same(lambda x: fn(np.array(2.0), x), X)


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
@pytest.mark.parametrize("kind", ["int", "bool"])
def test_bit_operator(name: str, kind: str) -> None:
    """Bits of integers and booleans, from both sides."""
    fn, x = getattr(operator, name), I if kind == "int" else B
    assert_same(lambda v: fn(v, x), x)
    assert_same(lambda v: fn(x, v), x)


def test_shifts() -> None:
    """Shifts of integers, from both sides."""
    assert_same(lambda x: x << 1, I)
    assert_same(lambda x: x >> 1, I)
    assert_same(lambda x: 1 << x, I)


def test_matmul() -> None:
    """@ from both sides."""
    assert_same(lambda x: x @ X.T, X)
    assert_same(lambda x: X.T @ x, X)


def test_divmod() -> None:
    """A divmod gives both results, from both sides."""
    for fn in (lambda x: divmod(x, 2.0), lambda x: divmod(7.0, x)):
        for mine, expected in zip(boxed(fn, X), fn(X), strict=True):
            np.testing.assert_allclose(mine, expected)


@pytest.mark.parametrize("name", ["neg", "pos", "abs"])
def test_unary_operator(name: str) -> None:
    """One operand."""
    assert_same(getattr(operator, name), X - 3)


def test_invert() -> None:
    """~ of integers and booleans."""
    assert_same(operator.invert, I)
    assert_same(operator.invert, B)


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv"])
def test_augmented_assignment_makes_a_new_value(name: str) -> None:
    """An augmented x += y on a tracer binds a new value and writes nothing."""
    before = X.copy()
    assert_same(lambda x: getattr(operator, name)(x * 1, 2.0), X)
    boxed(lambda x: getattr(operator, name)(x, 2.0), X)
    np.testing.assert_array_equal(X, before)


# ---- structure ----


def test_attributes() -> None:
    """Shape, dtype and counts are those of the value, of one row under vmap."""
    seen = []

    def note(x: Any) -> Any:
        seen.append((x.shape, x.ndim, x.size, x.nbytes, x.itemsize, x.dtype, len(x)))
        return x * 1

    boxed(note, X)
    batched(note, X)
    assert seen == [((2, 3), 2, 6, 48, 8, X.dtype, 2)] * 2


METHODS: dict[str, Callable[[Any], Any]] = {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "sum": lambda x: x.sum(),
    "sum axis": lambda x: x.sum(axis=0),
    "mean": lambda x: x.mean(1),
    "prod": lambda x: x.prod(),
    "max": lambda x: x.max(axis=1),
    "min": lambda x: x.min(),
    "std": lambda x: x.std(),
    "var": lambda x: x.var(axis=0),
    "argmax": lambda x: x.argmax(axis=1),
    "argmin": lambda x: x.argmin(axis=0),
    "argsort": lambda x: x.argsort(),
    "cumsum": lambda x: x.cumsum(axis=1),
    "all": lambda x: (x > 1).all(axis=0),
    "any": lambda x: (x > 1).any(axis=1),
    "clip": lambda x: x.clip(1.0, 2.0),
    "take": lambda x: x.take(np.array([0, 1]), axis=1),
    "repeat": lambda x: x.repeat(2, axis=0),
    "conj": lambda x: x.conj(),
    "conjugate": lambda x: x.conjugate(),
    "cumprod": lambda x: x.cumprod(axis=0),
    "compress": lambda x: x.compress([True, False, True], axis=1),
    "round": lambda x: x.round(),
    "dot": lambda x: x.dot(X.T),
    "ravel": lambda x: x.ravel(),
    "flatten": lambda x: x.flatten(),
    "reshape": lambda x: x.reshape(3, 2),
    "reshape tuple": lambda x: x.reshape((3, -1)),
    "transpose": lambda x: x.transpose(),
    "transpose axes": lambda x: x.transpose(1, 0),
    "transpose tuple": lambda x: x.transpose((1, 0)),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "diagonal": lambda x: x.diagonal(),
    "trace": lambda x: x.trace(),
    "copy": lambda x: x.copy(),
    "astype": lambda x: x.astype(np.float32),
}


@pytest.mark.parametrize("name", METHODS)
def test_method(name: str) -> None:
    """Methods of arrays are there, and mean what NumPy means."""
    assert_same(METHODS[name], X)


def test_indexing() -> None:
    """Indices of NumPy: ints, slices, lists, masks, None, ellipsis."""
    for fn in (
        lambda x: x[0],
        lambda x: x[-1, ::2],
        lambda x: x[..., None],
        lambda x: x[:, [0, 2]],
        lambda x: x[np.array([0, 1]), np.array([2, 0])],
    ):
        assert_same(fn, X)


def test_iteration_and_unpacking() -> None:
    """Rows come one by one and unpack."""
    assert_same(lambda x: sum(row * 2 for row in x), X)

    def unpack(x: Any) -> Any:
        first, (a, b, c) = x
        return first * a + b * c

    assert_same(unpack, X)
    assert_same(lambda x: np.stack(list(reversed([*x]))), X)


def test_array_namespace() -> None:
    """Code of the array API standard finds NumPy's namespace."""
    assert_same(lambda x: x.__array_namespace__().sqrt(x), X)


# ---- NumPy's functions ----

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "ufunc": np.sin,
    "two": lambda x: np.maximum(x, 2.0),
    "left array": lambda x: np.arctan2(X, x),
    "reduce": lambda x: np.add.reduce(x),
    "where": lambda x: np.where(x > 2, x, 0.0),
    "concatenate": lambda x: np.concatenate([x, X], axis=1),
    "stack": lambda x: np.stack([X, x]),
    "einsum or dot": lambda x: np.dot(X, np.transpose(x)),
    "zeros_like": np.zeros_like,
    "broadcast_to": lambda x: np.broadcast_to(x, (4, 2, 3)),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "keywords": lambda x: np.sum(a=x, axis=1, keepdims=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_function(name: str) -> None:
    """NumPy functions on tracers are operators, with NumPy's results."""
    assert_same(FUNCTIONS[name], X)


def half(x: Any, *_: Any) -> Any:
    """Make a ufunc of this."""
    return x / 2


UNKNOWN: dict[str, Callable[..., Any]] = {
    "the ufunc half (vectorized)": np.frompyfunc(half, 1, 1),
    "the ufunc half (vectorized).outer": np.frompyfunc(half, 2, 1).outer,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_function_without_operator(name: str) -> None:
    """It is named, for tracers and fake arrays, and never runs on the values."""
    for run in (boxed, batched, faked):
        with pytest.raises(co.MissingRuleError) as caught:
            run(lambda x: UNKNOWN[name](*[x] * (1 + name.endswith("outer"))), X)
        assert f"{name} has no operator" in str(caught.value)
        assert "register_numpy_function" in caught.value.do


OUTS = {
    "ufunc": lambda x: np.add(x, x, out=np.zeros((2, 3))),
    "tuple": lambda x: np.add(x, x, out=(np.zeros((2, 3)),)),
    "sum": lambda x: np.sum(x, axis=0, out=np.zeros(3)),
    "reduce": lambda x: np.add.reduce(x, out=np.zeros(3)),
    "augmented": lambda x: operator.iadd(np.zeros((2, 3)), x),
}
INSTEAD = {
    "ufunc": "write np.add(x, x) in place of np.add(x, x, out=np.zeros((2, 3)))",
    "tuple": "write np.add(x, x) in place of np.add(x, x, out=(np.zeros((2, 3)),))",
    "sum": "write np.sum(x, axis=0) in place of np.sum(x, axis=0, out=np.zeros(3))",
}


@pytest.mark.parametrize("way", OUTS)
def test_out(way: str) -> None:
    """out= would write a traced value into an array: refused, with what to write."""
    for run in (boxed, batched, faked):
        with pytest.raises(co.ArgumentError, match=r"out=.* would write") as caught:
            run(OUTS[way], X)
        assert caught.value.do == INSTEAD.get(
            way,
            "make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
            " like=x); or use the result: x = x + y instead of x += y or out=x",
        )


KEYWORDS = {
    "where": (B, "pass out= too, an array with the other elements"),
    "order": ("A", "use order='C', 'F' or 'K'"),
    "axis": (0, "leave axis= away"),
}


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_keyword_that_ufuncs_do_not_take(keyword: str) -> None:
    """Elements without a value, and other keywords, are refused by name."""
    value, do = KEYWORDS[keyword]
    ufunc = np.matmul if keyword == "axis" else np.add
    for run in (boxed, batched, faked):
        with pytest.raises(co.ArgumentError) as caught:
            run(lambda x: ufunc(x, x.T, **{keyword: value}), X[:, :2])
        assert caught.value.what == (
            f"np.{ufunc.__name__}({keyword}=...) has no operator for traced or fake"
            " arrays"
        )
        assert do in caught.value.do


def test_keyword_that_a_registered_function_takes() -> None:
    """What is registered for a ufunc gets the keywords that it names."""
    seen = []

    def fmod(x1: Any, x2: Any, dtype: Any = None) -> Any:
        seen.append(dtype)
        return x1 * x2

    before = find_function(np.fmod)
    co.register_numpy_function(np.fmod, fmod)
    try:
        boxed(lambda x: np.fmod(x, 2.0, dtype="f4"), X)
        boxed(lambda x: np.fmod(x, 2.0, dtype=None), X)
    finally:
        co.register_numpy_function(np.fmod, before)
    assert seen == ["f4", None]


def test_names_of_ufuncs() -> None:
    """A ufunc is named with its own module, or by itself."""
    made = np.frompyfunc(abs, 1, 1)
    module = types.ModuleType("special_of_test")
    inverse = np.frompyfunc(lambda x: 1 / x, 1, 1)
    setattr(module, inverse.__name__, inverse)
    sys.modules[module.__name__] = module
    try:
        for ufunc, name in (
            (made, f"the ufunc {made.__name__}"),
            (inverse, f"special_of_test.{inverse.__name__}"),
        ):
            with pytest.raises(co.MissingRuleError) as caught:
                boxed(lambda x, f=ufunc: f(*[x] * f.nin), X)
            assert caught.value.what.startswith(f"{name} has no operator")
    finally:
        del sys.modules[module.__name__]


def test_first_argument_may_be_a_real_array() -> None:
    """NumPy hands the call over for a tracer in any place, even in a list."""
    assert_same(lambda x: np.concatenate([X, x]), X)
    assert_same(lambda x: np.where(B, X, x), X)


# ---- what is refused ----

LOST = {
    "float": lambda x: float(x[0, 0]),
    "int": lambda x: int(x[0, 0]),
    "complex": lambda x: complex(x[0, 0]),
    "index": lambda x: [1, 2, 3][x[0, 0]],
    "item": lambda x: x[0, 0].item(),
    "tolist": lambda x: x.tolist(),
    "asarray": np.asarray,
    "array": np.array,
    "array of": lambda x: np.array([x[0, 0], 1.0]),
    "math": lambda x: math.sin(x[0, 0]),
    "format": lambda x: f"{x[0]:.2f}",
}


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize("way", LOST)
def test_losing_a_value(way: str) -> None:
    """Where a value would be lost to the transform, the error names it and it."""
    for run in (boxed, batched):
        with pytest.raises(
            co.DataDependentError, match=r"(of|given) \w*Tracer f64\["
        ) as caught:
            run(LOST[way], X)
        assert isinstance(caught.value, TypeError)
        assert caught.value.do


@pytest.mark.usefixtures("unadapted")
def test_storing_a_tracer_into_an_array() -> None:
    """An element of an array cannot be a tracer; the cause says why."""

    def store(x: Any) -> Any:
        y = np.zeros(3)
        y[0] = x[0, 0]
        return y

    for run in (boxed, batched):
        with pytest.raises((ValueError, co.DataDependentError)) as caught:
            run(store, X)
        chain = (caught.value, caught.value.__cause__)
        assert any(isinstance(c, co.DataDependentError) for c in chain)


def test_branches() -> None:
    """A concrete value can be branched on; a row cannot, and the error names np.where."""
    assert_same(lambda x: np.where(x > 2, x, -x), X)
    np.testing.assert_array_equal(
        boxed(lambda x: x * 2 if x[0, 0] > 0 else x, X), 2 * X
    )
    np.testing.assert_array_equal(boxed(lambda x: x if 0 < x[0, 0] < 1 else -x, X), X)
    for fn in (
        lambda x: x if x[0, 0] > 0 else -x,
        lambda x: x * (0 < x < 1),
        lambda x: x * (1.0 in x),
        lambda x: max(x[0, 0], x[0, 1]),
    ):
        with pytest.raises(
            co.DataDependentError, match=r"bool\(\) of BatchTracer.*a row of"
        ):
            batched(fn, X)


def test_truth_of_several_elements() -> None:
    """bool() of several elements is NumPy's error, as for arrays."""
    with pytest.raises(ValueError, match="ambiguous"):
        boxed(lambda x: x if x > 1 else -x, X)


WRITES: dict[str, Callable[[Any], Any]] = {
    "by index": lambda x: operator.setitem(x, 0, 1.0),
    "sort": lambda x: x.sort(),
    "out=": lambda x: np.add(X, X, out=x),
    "out= of a function": lambda x: np.sum(X, axis=0, out=x[0]),
    "augmented": lambda x: operator.imul(x, 3.0),
}


@pytest.mark.parametrize("way", WRITES)
def test_writing_into_a_tracer(way: str) -> None:
    """A write by index, by a method or by out= reaches every name of the array."""

    def written(x: Any) -> Any:
        other = x
        WRITES[way](x)
        return other

    expected = written(X.copy())
    np.testing.assert_array_equal(boxed(written, X), expected)
    np.testing.assert_array_equal(batched(written, X), [expected] * 3)
    assert faked(written, X).shape == X.shape


def test_no_hash() -> None:
    """Values cannot be hashed, since == is elementwise, as for arrays."""
    for run in (boxed, batched, faked):
        with pytest.raises(TypeError, match="unhashable"):
            run(hash, X)


def test_repr_of_tracers() -> None:
    """A tracer shows its class, its level and its value; str and format too."""
    seen = []
    boxed(lambda x: seen.extend([repr(x), str(x), f"{x}"]) or x * 1, X)
    assert len(set(seen)) == 1
    assert seen[0].startswith("Tracer(level=")


# ---- register_numpy_function ----


def test_register_numpy_function() -> None:
    """An operator registered for a NumPy function runs where np. meets a tracer."""
    over = np.frompyfunc(lambda x, y: x / y, 2, 1)

    @co.custom_op("protocols::over", mutates_args=())
    def divided(x: np.ndarray, y: co.Array | float) -> np.ndarray:
        return x / y

    assert co.register_numpy_function(over, divided) is divided
    np.testing.assert_array_equal(boxed(lambda x: over(x, 2.0), X), X / 2)
    assert over(4, 2) == 2

    @co.register_numpy_function((over, "reduce"))
    def reduce(x: Any, axis: int = 0) -> Any:
        return x[0]

    np.testing.assert_array_equal(boxed(over.reduce, X), X[0])
    assert reduce(X) is not None


@pytest.mark.parametrize("pair", [(3, np.sin), (np.sin, 3), ("sin", np.sin)])
def test_register_no_function(pair: Any) -> None:
    """Anything but a function is refused."""
    with pytest.raises(co.RegistrationError, match="is not a function"):
        co.register_numpy_function(*pair)


def test_later_registration_of_a_ufunc_takes_its_place() -> None:
    """Also after calls, which keep what they found."""
    ufunc = np.frompyfunc(lambda x: x, 1, 1)
    twice = co.custom_op("later::twice", mutates_args=(), schema="(Array x) -> Array")(
        lambda x: 2.0 * x
    )
    twice.register_autograd(co.native)
    gradient = co.grad(lambda x: np.sum(ufunc(x) + 0.0))
    for fn, expected in ((lambda x: 3.0 * x, 3.0), (twice, 2.0), (lambda x: -x, -1.0)):
        co.register_numpy_function(ufunc, fn)
        for _ in range(3):
            assert gradient(np.ones(2)).tolist() == [expected] * 2
