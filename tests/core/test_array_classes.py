"""Rules for classes of arrays: masks, units, and others that carry more than numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.codegen import is_open

_numbers = itertools.count()
X = np.array([1.0, 2.0, 3.0])
Masked = np.ma.MaskedArray


def define(fn: Any = lambda x: x * 2, schema: str = "(Array x) -> Array", **more: Any):
    """Make an operator with a new name."""
    name = f"classes::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=(), schema=schema, **more)


class Tagged(np.ndarray):
    """A subclass of ndarray."""


class Deeper(Tagged):
    """A subclass of the subclass."""


class Boxed:
    """An array class that is not a registered kind of array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values


# ---- subclasses of ndarray ----


def keep_mask(op: Any, args: Any, kwargs: Any) -> Any:
    """Compute on the data and keep the mask."""
    (x,) = args
    return Masked(op(x.data, **kwargs), x.mask)


def test_masked_array_keeps_its_mask() -> None:
    """A rule for masked arrays gives the same result as numpy.ma."""
    op = define().register_array_dispatch(Masked, keep_mask)
    x = Masked(X, [False, True, False])
    for _ in range(2):
        out = op(x)
        assert type(out) is Masked
        np.testing.assert_array_equal(out.mask, (x * 2).mask)
        np.testing.assert_array_equal(out.compressed(), (x * 2).compressed())


def test_plain_arrays_go_to_the_kernel() -> None:
    """Plain arrays use the fast path, with or without a rule."""
    calls = []
    op = define().register_array_dispatch(
        Masked, lambda op, args, kwargs: calls.append(1)
    )
    for _ in range(2):
        np.testing.assert_array_equal(op(X), 2 * X)
    assert is_open(op.call)
    assert calls == []


def test_exact_class_goes_before_its_bases() -> None:
    """The rule of the class counts, otherwise that of its nearest base."""
    op = define()
    op.register_array_dispatch(Tagged, lambda op, args, kwargs: "tagged")
    assert op(X.view(Deeper)) == "tagged"
    op.register_array_dispatch(Deeper, lambda op, args, kwargs: "deeper")
    assert op(X.view(Deeper)) == "deeper"
    assert op(X.view(Tagged)) == "tagged"


def test_other_subclasses_go_to_the_kernel() -> None:
    """A subclass without a rule is treated as a NumPy array."""
    op = define().register_array_dispatch(Masked, keep_mask)
    np.testing.assert_array_equal(np.asarray(op(X.view(Tagged))), 2 * X)


def test_first_of_several_classes() -> None:
    """If several arrays have rules, the first counts, and subclasses before bases."""
    op = define(lambda x, y: x + y, "(Array x, Array y) -> Array")
    op.register_array_dispatch(Tagged, lambda op, args, kwargs: "tagged")
    op.register_array_dispatch(Deeper, lambda op, args, kwargs: "deeper")
    op.register_array_dispatch(Masked, lambda op, args, kwargs: "masked")
    assert op(X, X.view(Tagged)) == "tagged"
    assert op(Masked(X), X.view(Tagged)) == "masked"
    assert op(X.view(Tagged), Masked(X)) == "tagged"
    assert op(X.view(Tagged), X.view(Deeper)) == "deeper"


def test_what_a_rule_is_given() -> None:
    """A rule gets the operator, positional arguments with defaults, and keywords."""
    schema = "(Array x, float k=2.0, *, str mode='up') -> Array"
    op = define(lambda x, k, *, mode: x * k, schema)
    seen = []
    op.register_array_dispatch(Masked, lambda *given: seen.append(given))
    x = Masked(X)
    op(x, mode="down")
    assert seen == [(op, (x, 2.0), {"mode": "down"})]


def test_arrays_in_lists() -> None:
    """Arrays in lists count too."""
    op = define(lambda many: many[0] * 1, "(Array[] many) -> Array")
    op.register_array_dispatch(Masked, lambda op, args, kwargs: "masked")
    assert op([X, Masked(X)]) == "masked"
    np.testing.assert_array_equal(op([X, X]), X)


def test_decorator() -> None:
    """Without a function, `register_array_dispatch` is a decorator."""
    op = define()

    @op.register_array_dispatch(Tagged)
    def rule(op: Any, args: Any, kwargs: Any) -> str:
        return "tagged"

    assert rule(op, (), {}) == "tagged"
    assert op(X.view(Tagged)) == "tagged"


def test_free_function() -> None:
    """The function `register_array_dispatch` accepts a name and returns the operator."""
    op = define()
    assert co.register_array_dispatch(op.qualname, Masked, keep_mask) is op
    assert op(Masked(X, [True, False, False])).mask.tolist() == [True, False, False]


# ---- with the transforms ----


def test_after_transforms() -> None:
    """Under grad, the rule gets the array, and the gradient is the kernel's."""
    seen = []

    def note(op: Any, args: Any, kwargs: Any) -> Any:
        seen.append(type(args[0]))
        return op(np.asarray(args[0]))

    op = define(lambda x: x**3).register_autograd(
        lambda ctx, g: g * 3 * np.asarray(ctx.saved_arrays[0]) ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    op.register_array_dispatch(Tagged, note)
    found = co.grad(lambda x: op(x).sum())(X.view(Tagged))
    assert seen == [Tagged]
    np.testing.assert_allclose(np.asarray(found), 3 * X**2)


def test_fake_arrays_are_of_no_class() -> None:
    """Fake arrays use the fake kernel, not the rule for a class."""
    op = define().register_fake(lambda x: co.fake_like(x))
    op.register_array_dispatch(Masked, keep_mask)
    assert co.eval_shape(op, Masked(X)).shape == (3,)


# ---- classes of other packages ----


def test_class_that_no_kind_knows() -> None:
    """An unknown array class is accepted only by operators with a rule for it."""
    op = define()
    with pytest.raises(co.ArgumentError, match="expects Array"):
        op(Boxed(X))
    op.register_array_dispatch(
        Boxed, lambda op, args, kwargs: Boxed(op(args[0].values))
    )
    np.testing.assert_array_equal(op(Boxed(X)).values, 2 * X)


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ("(Array x, Array|Scalar y) -> Array", (X, Boxed(X))),
        ("(Array x, Array? y) -> Array", (X, Boxed(X))),
        ("(Array x, Array[] y) -> Array", (X, [Boxed(X)])),
        ("(Array x, Array[] y) -> Array", (X, (X, Boxed(X)))),
        ("(Array x, Array?[] y) -> Array", (X, [None, Boxed(X)])),
        ("(Array x, *, Array y) -> Array", (X,)),
    ],
)
def test_places_of_such_a_class(schema: str, args: Any) -> None:
    """An array of such a class is accepted for every array parameter."""
    if "*" in schema:
        op, keywords = define(lambda x, *, y: x, schema), {"y": Boxed(X)}
    else:
        op, keywords = define(lambda x, y: x, schema), {}
    op.register_array_dispatch(Boxed, lambda op, args, kwargs: "boxed")
    assert op(*args, **keywords) == "boxed"


def kinetic(m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Kinetic energy."""
    return 0.5 * m * v * v


def test_unyt_units() -> None:
    """A rule for unyt arrays computes on numbers and adds the unit."""
    unyt = pytest.importorskip("unyt", reason="unyt is not installed")
    op = define(kinetic, "(Array m, Array v) -> Array")

    @op.register_array_dispatch(unyt.unyt_array)
    def _(op: Any, args: Any, kwargs: Any) -> Any:
        m, v = args
        value = op(m.to_value("kg"), v.to_value("m/s"))
        return unyt.unyt_array(value, "J")

    m = unyt.unyt_array([1000.0, 2000.0], "g")
    v = unyt.unyt_array([3.6, 7.2], "km/hr")
    out = op(m, v)
    np.testing.assert_allclose(out.to_value("J"), (0.5 * m * v * v).to_value("J"))
    assert out.units.dimensions == unyt.J.dimensions


def test_pint_quantities() -> None:
    """A rule for pint quantities, which are not ndarrays, keeps their units."""
    pint = pytest.importorskip("pint", reason="pint is not installed")
    units = pint.UnitRegistry()
    op = define(kinetic, "(Array m, Array v) -> Array")

    @op.register_array_dispatch(pint.Quantity)
    def _(op: Any, args: Any, kwargs: Any) -> Any:
        m, v = args
        return units.Quantity(op(m.m_as("kg"), v.m_as("m/s")), "joule")

    m = np.array([1000.0, 2000.0]) * units.gram
    v = np.array([3.6, 7.2]) * units.kilometer / units.hour
    expected = (0.5 * m * v * v).to("joule")
    for _ in range(2):
        out = op(m, v)
        np.testing.assert_allclose(out.magnitude, expected.magnitude)
        assert out.units == expected.units
    np.testing.assert_allclose(op(np.ones(2), np.ones(2)), [0.5, 0.5])


# ---- errors ----


def rule(op: Any, args: Any, kwargs: Any) -> Any:
    """A rule that does nothing."""


ERRORS = [
    (
        "MaskedArray",
        "'MaskedArray' is not a class",
        "pass the class of the arrays: np.ma.MaskedArray",
    ),
    (
        np.ndarray,
        "numpy.ndarray is the class of plain arrays, or above it",
        'use @f.register_kernel("cpu")',
    ),
    (
        object,
        "builtins.object is the class of plain arrays, or above it",
        'use @f.register_kernel("cpu")',
    ),
    (
        co.Tracer,
        "customop.Tracer is not a class of arrays with data",
        "register a rule for the transform, or register_fake",
    ),
    (
        co.FakeArray,
        "customop.FakeArray is not a class of arrays with data",
        "register a rule for the transform, or register_fake",
    ),
    (
        np.float64,
        "numpy.float64 is not a class of arrays",
        "pass the class of the arrays: np.ma.MaskedArray",
    ),
    (
        list,
        "builtins.list is not a class of arrays",
        "pass the class of the arrays: np.ma.MaskedArray",
    ),
]


def plain() -> Any:
    """Make an operator with the name that messages show."""
    schema = "(Array x) -> Array"
    return co.custom_op("classes::f", lambda x: x * 1, mutates_args=(), schema=schema)


@pytest.mark.parametrize(("cls", "what", "do"), ERRORS)
def test_refused_class(cls: Any, what: str, do: str) -> None:
    """A class that includes plain arrays is refused."""
    with pytest.raises(co.RegistrationError) as caught:
        plain().register_array_dispatch(cls, rule)
    assert str(caught.value) == (
        f"classes::f: register_array_dispatch: {what}\n  do: {do}"
    )


def test_second_rule_for_a_class() -> None:
    """A second rule for a class is an error that names both places."""
    op = plain().register_array_dispatch(Masked, rule)
    with pytest.raises(co.RegistrationError) as caught:
        op.register_array_dispatch(Masked, keep_mask)
    first, second = (
        f"{f.__code__.co_filename}:{f.__code__.co_firstlineno}"
        for f in (rule, keep_mask)
    )
    assert str(caught.value) == (
        f"classes::f has a rule for {Masked.__module__}.MaskedArray already, from"
        f" {first}"
        f"\n  the second is at {second}"
        "\n  do: remove one of them, or register with override=True"
    )


def test_override() -> None:
    """With override=True, the second rule counts."""
    op = define().register_array_dispatch(Masked, rule)
    op.register_array_dispatch(Masked, keep_mask, override=True)
    assert op(Masked(X)) is not None


def test_rule_of_other_parameters() -> None:
    """A rule with the wrong parameters is refused when it is registered."""

    def wrong(args: Any, kwargs: Any) -> Any:
        raise AssertionError

    with pytest.raises(co.RegistrationError) as caught:
        plain().register_array_dispatch(Masked, wrong)
    where = f"{wrong.__code__.co_filename}:{wrong.__code__.co_firstlineno}"
    assert str(caught.value) == (
        "classes::f: the array rule takes (args, kwargs) by position, but is called with"
        f" (op, args, kwargs)\n  at {where}"
        "\n  do: write def rule(op, args, kwargs): ..."
    )
