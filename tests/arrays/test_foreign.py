"""Traced and fake arrays beside objects of other libraries, which may have a say."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.arrays.test_numpy_protocol import Boxes

X = np.array([1.0, 2.0, 4.0])


class Meters:
    """A unit library that works through the operators of Python alone."""

    __array_ufunc__ = None

    def __init__(self, value: Any) -> None:
        self.value = value

    def __add__(self, other: Any) -> Any:
        return Meters(self.value + other)

    def __radd__(self, other: Any) -> Any:
        return Meters(other + self.value)

    def __matmul__(self, other: Any) -> Any:
        return Meters(self.value @ other)

    def __rmatmul__(self, other: Any) -> Any:
        return Meters(other @ self.value)

    def __lt__(self, other: Any) -> Any:
        return Meters(self.value < other)

    def __gt__(self, other: Any) -> Any:
        return Meters(self.value > other)

    def __eq__(self, other: object) -> Any:
        return Meters(self.value == other)

    __hash__ = None  # type: ignore[assignment]


class Column:
    """A labelled array that works through the protocols of NumPy alone."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if "out" in kwargs:
            return "written"
        return Column(getattr(ufunc, method)(*map(_bare, inputs), **kwargs))

    def __array_function__(
        self, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        return Column(function(*_bare(args), **kwargs))


class Quantity(np.ndarray):
    """A subclass of ndarray that keeps its class through ufuncs."""

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        plain = [v.view(np.ndarray) if type(v) is Quantity else v for v in inputs]
        return Column(getattr(ufunc, method)(*plain, **kwargs))


class Whole(float):
    """A subclass of float that asks to be left out of ufuncs."""

    __array_ufunc__ = None

    def __radd__(self, other: Any) -> Any:
        return Column(other + 10 * float(self))


class Unit(np.ndarray):
    """A subclass of ndarray that looks for a plain array in `value`, as astropy does."""

    @property
    def value(self) -> Any:
        return self.view(np.ndarray)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        plain = [getattr(v, "value", v) for v in inputs]
        found = super().__array_ufunc__(ufunc, method, *plain, **kwargs)
        return found if found is NotImplemented else found.view(Unit)


class Silent:
    """Takes part in ufuncs, and knows nothing."""

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented

    def __array_function__(self, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented


class Shift:
    """Has a reflected operator and no protocol."""

    def __radd__(self, other: Any) -> Any:
        return other + 1.0


def _bare(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_bare, value))
    return value.value if isinstance(value, Meters | Column) else value


def grads(fn: Callable[[Any], Any]) -> Any:
    """Value and gradient of the sum of a result, found inside its wrapping."""
    return co.value_and_grad(lambda x: np.sum(_bare(fn(x))))(X)


def rows(fn: Callable[[Any], Any]) -> Any:
    """The result for each of two equal rows, found inside its wrapping."""
    return co.vmap(lambda x: _bare(fn(x)))(np.stack([X, X]))


BESIDE: dict[str, Callable[[Any], Any]] = {
    "x + none": lambda x: x + Meters(3.0),
    "none + x": lambda x: Meters(3.0) + x,
    "x @ none": lambda x: x @ Meters(X),
    "none @ x": lambda x: Meters(X) @ x,
    "x + own": lambda x: x + Column(3.0),
    "own + x": lambda x: Column(3.0) + x,
    "x * own": lambda x: x * Column(X),
    "x ** own": lambda x: x ** Column(2.0),
    "ufunc, x first": lambda x: np.multiply(x, Column(X)),
    "ufunc, own first": lambda x: np.arctan2(Column(X), x),
    "outer": lambda x: np.add.reduce(Column(X) * x),
    "function, x first": lambda x: np.concatenate([x, Column(X)]),
    "function, own first": lambda x: np.stack([Column(X), x]),
    "x + subclass": lambda x: x + X.view(Quantity),
    "subclass + x": lambda x: X.view(Quantity) + x,
    "x + float": lambda x: x + Whole(2.0),
    "x + reflected": lambda x: x + Shift(),
}


@pytest.mark.parametrize("name", BESIDE)
def test_the_other_side_decides(name: str) -> None:
    """The value is that of a plain array, and the transform sees what was computed."""
    fn = BESIDE[name]
    expected = _bare(fn(X))
    if name == "x + reflected":
        expected = expected.astype(float)  # NumPy adds objects one by one
    value, gradient = grads(fn)
    np.testing.assert_allclose(value, np.sum(expected))
    for i, slope in enumerate(gradient):
        step = np.eye(3)[i] * 1e-6
        up, down = (float(np.sum(_bare(fn(X + d)))) for d in (step, -step))
        np.testing.assert_allclose(slope, (up - down) / 2e-6, rtol=1e-6)
    np.testing.assert_allclose(rows(fn), [expected, expected])


@pytest.mark.parametrize("name", ["lt", "gt", "eq"])
def test_comparisons(name: str) -> None:
    """Comparisons with an object of its own say are the object's, from both sides."""
    compare = getattr(operator, name)
    for other in (Meters(2.0), Column(2.0)):
        for fn in (lambda x, o=other: compare(x, o), lambda x, o=other: compare(o, x)):
            if isinstance(other, Column) and fn(X) is False:
                continue
            np.testing.assert_array_equal(rows(fn), [_bare(fn(X))] * 2)


def test_the_protocols_answer_not_implemented() -> None:
    """As NEP 13 and NEP 18 ask of an array beside classes that it does not know."""
    with Boxes() as boxes:
        for x in (boxes.wrap(X), co.fake_like(X)):
            assert x.__add__(Meters(1.0)) is NotImplemented
            for other in (Column(1.0), Silent(), X.view(Quantity)):
                assert x.__array_ufunc__(np.add, "__call__", x, other) is NotImplemented
                assert x.__array_ufunc__(np.add, "__call__", other, x) is NotImplemented
            out = x.__array_ufunc__(np.add, "__call__", x, x, out=(Column(1.0),))
            assert out is NotImplemented
            out = x.__array_ufunc__(np.add, "__call__", x, x, where=Column(True))
            assert out is NotImplemented
            classes = [type(x), Column]
            assert x.__array_function__(np.sum, classes, (x,), {}) is NotImplemented


NOBODY: dict[str, Callable[[Any], Any]] = {
    "x + o": lambda x: x + Silent(),
    "o + x": lambda x: Silent() + x,
    "ufunc": lambda x: np.add(x, Silent()),
    "ufunc from the right": lambda x: np.add(Silent(), x),
    "function": lambda x: np.concatenate([x, Silent()]),
    "none, ufunc": lambda x: np.add(x, Meters(1.0)),
    "none, no method": lambda x: x - Meters(1.0),
    "none on the left, no method": lambda x: Meters(1.0) - x,
}


@pytest.mark.parametrize("name", NOBODY)
def test_nobody_decides(name: str) -> None:
    """Python or NumPy raises a TypeError that names the other class."""
    for run in (grads, rows):
        with pytest.raises(TypeError, match=r"Silent|Meters"):
            run(NOBODY[name])


def test_a_unit_library_does_not_find_the_value() -> None:
    """A subclass of ndarray cannot hold a traced value, and finds no plain one."""
    unit = X.view(Unit)
    for fn in (lambda x: x * unit, lambda x: unit * x, lambda x: np.add(unit, x)):
        assert type(fn(X)) is Unit
        for run in (grads, rows):
            with pytest.raises(TypeError, match="Unit"):
                run(fn)


class Negated(np.ndarray):
    """Computes the negative of what NumPy does."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kw: Any) -> Any:
        plain = [v.view(np.ndarray) if isinstance(v, Negated) else v for v in inputs]
        return -getattr(ufunc, method)(*plain, **kw)


@pytest.mark.parametrize(
    "way",
    [
        lambda x: co.grad(np.sum)(x),
        lambda x: co.jvp(np.sin, (x,), (X,)),
        lambda x: co.vjp(np.sin, x),
        lambda x: co.linearize(np.sin, x),
        co.variable,
    ],
    ids=["grad", "jvp", "vjp", "linearize", "variable"],
)
def test_primals_with_ufuncs_of_their_own_are_refused(
    way: Callable[[Any], Any],
) -> None:
    """The value would be theirs, and the gradient NumPy's."""
    with pytest.raises(
        co.GradientError, match="Negated, whose __array_ufunc__"
    ) as caught:
        way(X.view(Negated))
    assert "np.asarray(x)" in str(caught.value)


@pytest.mark.parametrize("other", [Fraction(1, 2), object(), None, "a"])
def test_values_without_a_say(other: Any) -> None:
    """For values that decide nothing the error of the operator says what it takes."""
    for fn in (lambda x: x + other, lambda x: other + x, lambda x: np.add(x, other)):
        with pytest.raises(co.ArgumentError, match=r"expects Array\|Scalar") as caught:
            grads(fn)
        assert caught.value.do


def test_registered_classes_stay_ours() -> None:
    """A class that has a kind, and subclasses without a say, go to the operator."""

    class Plain(np.ndarray):
        pass

    value, gradient = co.value_and_grad(lambda x: np.sum(x * X.view(Plain)))(X)
    assert float(value) == 21.0
    np.testing.assert_array_equal(np.asarray(gradient), X)


# ---- subclasses of NumPy's arrays with arithmetic of their own ----

SQUARE = np.array([[1.0, 2.0], [3.0, 4.0]])
OWN_RULES = {
    "matrix": SQUARE.view(np.matrix),
    "MaskedArray": np.ma.masked_array(SQUARE, SQUARE > 3.0),
}
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x * m": operator.mul,
    "m * x": lambda x, m: m * x,
    "x @ m": operator.matmul,
    "m < x": lambda x, m: m < x,
    "ufunc": lambda x, m: np.add(x, m),
    "ufunc, left": lambda x, m: np.add(m, x),
    "function": lambda x, m: np.where(m > 2.0, x, 0.0),
    "list": lambda x, m: np.stack([x, m]),
    "method": lambda x, m: x.dot(m),
    "keyword": lambda x, m: x.clip(min=m),
}


@pytest.mark.parametrize("call", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("m", OWN_RULES.values(), ids=OWN_RULES)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_arithmetic_of_its_own_is_refused(call: Any, m: Any) -> None:
    """A matrix or masked array beside a traced or fake one never gives other numbers."""
    ways = (
        lambda fn: co.vjp(fn, SQUARE),
        lambda fn: co.vmap(fn)(np.stack([SQUARE, SQUARE])),
        lambda fn: co.eval_shape(fn, SQUARE),
    )
    for way in ways:
        # The left operand may ask for a NumPy array first, which is refused, too.
        with pytest.raises((co.ArgumentError, co.DataDependentError)):
            way(lambda x: call(x, m))


INPUTS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda m: co.grad(np.sum)(m),
    "jvp": lambda m: co.jvp(np.sum, (m,), (m,)),
    "variable": co.variable,
    "vmap": lambda m: co.vmap(np.sum)(m),
    "tangent": lambda m: co.jvp(np.sin, (SQUARE,), (m,)),
    "cotangent": lambda m: co.vjp(np.sin, SQUARE)[1](m),
    "result of vmap": lambda m: co.vmap(lambda x: m)(SQUARE),
    "make_fx": lambda m: co.make_fx(np.mean)(m),
    "graph": lambda m: co.make_fx(np.mean)(SQUARE)(m),
    "scan": lambda m: co.scan(lambda c, row: (c + row, row), np.zeros(2), m),
    "map": lambda m: co.map(np.sum, m),
    "tree.ravel": lambda m: co.tree.ravel({"m": m}),
}


@pytest.mark.parametrize("way", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("name", OWN_RULES)
def test_inputs_with_arithmetic_of_their_own_are_refused(way: Any, name: str) -> None:
    """So are inputs and results of transforms; the message says what to pass."""
    with pytest.raises(co.CustomOpError, match=name) as caught:
        way(OWN_RULES[name])
    assert "np.asarray(x)" in str(caught.value)


def test_shapes_of_a_matrix_are_refused() -> None:
    """Results of a matrix have two axes; masked arrays have the shapes of arrays."""
    with pytest.raises(co.ArgumentError, match="a fake array of a matrix"):
        co.eval_shape(np.sum, OWN_RULES["matrix"])
    assert co.eval_shape(np.sum, OWN_RULES["MaskedArray"]).shape == ()


def test_other_subclasses_are_arrays() -> None:
    """A subclass with NumPy's arithmetic is an array as any other."""

    class Named(np.ndarray):
        pass

    named = SQUARE.view(Named)
    _, pullback = co.vjp(lambda x: x * named, SQUARE)
    np.testing.assert_array_equal(pullback(np.ones((2, 2)))[0], SQUARE)
