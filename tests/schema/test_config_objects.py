"""Arguments and results that hold arrays under names, under every transform.

One operator for each form of such an argument: ``x * weight ** 2``, with ``weight``
inside it. Its derivatives are known in closed form.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typing_extensions import TypedDict

import customop as co

X = np.array([1.0, -2.0, 3.0])
W = np.array([2.0, 0.5, -1.0])


@dataclass(frozen=True)
class Fixed:
    weight: np.ndarray
    power: int = 2


@dataclass(frozen=True, slots=True)
class Slotted:
    weight: np.ndarray
    power: int = 2


@dataclass(frozen=True)
class Checked:
    """A class with a check that fails for batches, gradients and axes."""

    weight: np.ndarray
    power: int = 2
    twice: int = field(init=False)

    def __post_init__(self) -> None:
        if self.power != 2 or self.weight.ndim != 1:
            raise ValueError("a check of the user's")
        object.__setattr__(self, "twice", 2 * self.power)


@dataclass(frozen=True)
class Derived:
    """Keeps something made of its fields: its constructor makes it again."""

    weight: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "square", self.weight**2)


class Named(NamedTuple):
    weight: np.ndarray
    power: int = 2


class Typed(TypedDict):
    weight: np.ndarray
    power: NotRequired[int]


@co.register_config_type
class Plain:
    def __init__(self, weight: np.ndarray, power: int = 2) -> None:
        self.weight, self.power = weight, power
        self.hidden = -power


@co.register_config_type
@dataclass
class Mutable:
    weight: np.ndarray
    power: int = 2


@dataclass(frozen=True)
class Outer:
    label: str
    inner: Fixed | None
    others: list[Named] = field(default_factory=list)


# Form -> annotation, how it is made around an array, how the array is found in it.
FORMS: dict[str, tuple[Any, Any, Any]] = {
    "frozen dataclass": (Fixed, Fixed, lambda c: c.weight),
    "dataclass with slots": (Slotted, Slotted, lambda c: c.weight),
    "dataclass with a check": (Checked, Checked, lambda c: c.weight),
    "dataclass that keeps more": (Derived, Derived, lambda c: c.weight),
    "NamedTuple": (Named, Named, lambda c: c.weight),
    "TypedDict": (Typed, lambda w: {"weight": w}, lambda c: c["weight"]),
    "whole TypedDict": (
        Typed,
        lambda w: {"power": 2, "weight": w},
        lambda c: c["weight"],
    ),
    "dict": (
        dict[str, co.Array],
        lambda w: {"other": w[:2], "weight": w},
        lambda c: c["weight"],
    ),
    "registered class": (Plain, Plain, lambda c: c.weight),
    "registered dataclass": (Mutable, Mutable, lambda c: c.weight),
    "optional": (Fixed | None, Fixed, lambda c: c.weight),
    "nested": (Outer, lambda w: Outer("a", Fixed(w)), lambda c: c.inner.weight),
    "nested list": (
        Outer,
        lambda w: Outer("a", None, [Named(w[:1]), Named(w)]),
        lambda c: c.others[1].weight,
    ),
    "list of objects": (
        list[Fixed],
        lambda w: [Fixed(w[:2]), Fixed(w)],
        lambda c: c[1].weight,
    ),
    "dict of lists": (
        dict[str, list[co.Array]],
        lambda w: {"a": [], "b": [w]},
        lambda c: c["b"][0],
    ),
    "tuple": (tuple[int, Named], lambda w: (3, Named(w)), lambda c: c[1].weight),
}
each_form = pytest.mark.parametrize("form", FORMS)


def names_of(value: Any) -> list[str]:
    """Names of the fields of an object; none of a list or an array."""
    if isinstance(value, Plain):
        return ["weight", "power"]
    named = getattr(value, "_fields", ()) or getattr(value, "__dataclass_fields__", ())
    return list(named)


def replaced(value: Any, target: Any, by: Any, *, as_dict: bool) -> Any:
    """`value` with the array `target` replaced, None for all else."""
    if value is target:
        return by
    again = lambda part: replaced(part, target, by, as_dict=as_dict)
    if isinstance(value, dict):
        return {key: again(part) for key, part in value.items()}
    if names := names_of(value):
        parts = {name: again(getattr(value, name)) for name in names}
        return parts if as_dict else made(type(value), parts)
    return [again(part) for part in value] if isinstance(value, list | tuple) else None


def made(cls: Any, parts: dict[str, Any]) -> Any:
    """An object of a class with anything in its fields."""
    if issubclass(cls, tuple):
        return cls(**parts)
    new = object.__new__(cls)
    for name, part in parts.items():
        object.__setattr__(new, name, part)
    return new


numbers = itertools.count()


def operator(form: str, *, as_dict: bool = True) -> Any:
    """``x * weight ** 2`` with all its rules but that of vmap."""
    annotation, _, get = FORMS[form]

    def kernel(x, c):
        return x * get(c) ** 2

    kernel.__annotations__ = {"x": co.Array, "c": annotation, "return": co.Array}
    name = f"config_test::scale{next(numbers)}"
    op: Any = co.custom_op(name, kernel, mutates_args=())

    def setup(ctx, inputs, output):
        x, c = inputs
        ctx.c = c
        ctx.save_for_backward(x, get(c))

    def backward(ctx, g):
        x, w = ctx.saved_arrays
        grad = replaced(ctx.c, get(ctx.c), 2.0 * g * x * w, as_dict=as_dict)
        return g * w * w, grad

    op.register_fake(lambda x, c: co.fake_like(x))
    return op.register_autograd(backward, setup_context=setup)


@each_form
def test_a_kernel_gets_the_object(form: str) -> None:
    """The array inside is found; checked calls and proven ones agree."""
    op, make = operator(form), FORMS[form][1]
    for _ in range(3):
        assert_array_equal(op(X, make(W)), X * W**2)


@each_form
@pytest.mark.parametrize("as_dict", [True, False], ids=["by name", "as object"])
def test_a_gradient_reaches_the_array_inside(form: str, as_dict: bool) -> None:
    """The gradient comes by the names of the fields, or as an object of the class."""
    op, make = operator(form, as_dict=as_dict), FORMS[form][1]
    found = co.grad(lambda w: op(X, make(w)).sum())(W)
    assert_allclose(found, 2.0 * X * W)
    both = co.grad(lambda x, w: op(x, make(w)).sum(), (0, 1))(X, W)
    assert_allclose(both[0], W**2)
    assert_allclose(both[1], 2.0 * X * W)


@each_form
def test_second_derivatives_pass_through(form: str) -> None:
    """A gradient of a gradient, forward over reverse and reverse over reverse."""
    op, make = operator(form), FORMS[form][1]

    def first(w):
        return co.grad(lambda v: op(X, make(v)).sum())(w)

    assert_allclose(co.grad(lambda w: first(w).sum())(W), 2.0 * X)
    assert_allclose(co.jvp(first, (W,), (np.ones(3),))[1], 2.0 * X)


@each_form
def test_a_tangent_reaches_the_array_inside(form: str) -> None:
    """Forward mode by the transposed formula, and by a rule."""
    op, (_, make, get) = operator(form), FORMS[form]
    direction = np.array([1.0, 10.0, 100.0])
    expected = 2.0 * X * W * direction
    run = lambda w: op(X, make(w))
    assert_allclose(co.jvp(run, (W,), (direction,))[1], expected)

    def rule(primals, tangents):
        (x, c), (dx, dc) = primals, tangents
        assert dx is None
        return x * get(c) ** 2, 2.0 * x * get(c) * get(dc)

    op.register_jvp(rule)
    value, tangent = co.jvp(run, (W,), (direction,))
    assert_allclose(value, X * W**2)
    assert_allclose(tangent, expected)


@each_form
def test_a_batch_inside_runs_by_rows(form: str) -> None:
    """Without a rule the operator gets a separate object for each row."""
    op, make = operator(form), FORMS[form][1]
    rows = np.stack([W, W + 1.0])
    with pytest.warns(co.CustomOpWarning, match="no vmap rule"):
        found = co.vmap(lambda w: op(X, make(w)))(rows)
    assert_allclose(found, X * rows**2)


@each_form
def test_a_vmap_rule_gets_axes_nested_as_the_object_is(form: str) -> None:
    """`in_dims` has the shape of the object: the batch axis for the array, else None."""
    op, (_, make, get) = operator(form), FORMS[form]
    seen = []

    def rule(info, in_dims, x, c):
        seen.append((in_dims[0], get(in_dims[1])))
        w = np.moveaxis(get(c), get(in_dims[1]), 0)
        return x * w**2, 0

    op.register_vmap(rule)
    rows = np.stack([W, W + 1.0])
    found = co.vmap(lambda w: op(X, make(w)), in_dims=1)(rows.T)
    assert_allclose(found, X * rows**2)
    assert seen == [(None, 1)]


@each_form
def test_fake_arrays_inside_choose_the_fake_kernel(form: str) -> None:
    """Shapes alone run the fake kernel, with or without a mode."""
    op, make = operator(form), FORMS[form][1]
    fake = co.eval_shape(lambda x, w: op(x, make(w)), X, W)
    assert isinstance(fake, co.FakeArray)
    assert (fake.shape, fake.dtype) == ((3,), np.float64)
    with co.FakeMode():
        assert op(X, make(W)).shape == (3,)


# ---- an object as the input of a transform ----

OBJECTS = ["frozen dataclass", "dataclass with slots", "registered class"]


@pytest.mark.parametrize("form", [*OBJECTS, "dataclass that keeps more", "nested"])
def test_a_gradient_by_an_object_is_such_an_object(form: str) -> None:
    """Its arrays are what is differentiated by, the rest of it is a constant."""
    op, (_, make, get) = operator(form), FORMS[form]
    found = co.grad(lambda c: op(X, c).sum())(make(W))
    assert type(found) is type(make(W))
    assert_allclose(get(found), 2.0 * X * W)


@pytest.mark.parametrize("form", OBJECTS)
def test_a_batch_of_objects_is_an_object_of_batches(form: str) -> None:
    """`vmap` takes the rows of the arrays in it."""
    op, make = operator(form), FORMS[form][1]
    rows = np.stack([W, W + 1.0])
    with pytest.warns(co.CustomOpWarning, match="no vmap rule"):
        found = co.vmap(op, in_dims=(None, 0))(X, make(rows))
    assert_allclose(found, X * rows**2)


def test_constants_of_an_object_reach_the_function() -> None:
    """Values that are not arrays pass through a transform unchanged."""
    seen = []

    def fn(c):
        seen.append(c.power)
        return np.sum(c.weight * c.weight)

    operator("frozen dataclass")
    assert_allclose(co.grad(fn)(Fixed(W, 7)).weight, 2.0 * W)
    assert seen == [7]


def test_what_an_object_keeps_is_made_again_for_each_level() -> None:
    """A kernel never sees an attribute that was made of traced arrays."""
    seen = []

    @co.custom_op("config_test::derived", mutates_args=())
    def derived(x: co.Array, c: Derived) -> co.Array:
        seen.append(type(c.square))  # type: ignore[attr-defined]  # set by __post_init__
        return x * c.square  # type: ignore[attr-defined,no-any-return]

    derived.register_autograd(
        lambda ctx, g: (None, {"weight": 2.0 * g * ctx.product}),
        setup_context=lambda ctx, inputs, output: setattr(
            ctx, "product", inputs[0] * inputs[1].weight
        ),
    )
    found = co.grad(lambda w: derived(X, Derived(w)).sum())(W)
    assert_allclose(found, 2.0 * X * W)
    assert set(seen) == {np.ndarray}


def test_an_object_without_traced_arrays_passes_as_it_is() -> None:
    """A transform keeps an object if nothing in it is traced."""
    op = operator("frozen dataclass")
    seen = []

    def rule(primals, tangents):
        seen.append(primals[1])
        return op(*primals), tangents[0]

    op.register_jvp(rule)
    given = Fixed(W)
    co.jvp(lambda x: op(x, given), (X,), (X,))
    assert seen[0] is given


def test_a_check_need_not_hold_for_a_batch() -> None:
    """The result of all rows is an object that its constructor would refuse."""
    operator("dataclass with a check")
    rows = np.stack([X, W])
    found = co.vmap(lambda w: Checked(w))(rows)
    assert type(found) is Checked
    assert_array_equal(found.weight, rows)
    assert (found.power, found.twice) == (2, 4)


@pytest.mark.parametrize(
    ("result", "fits"),
    [
        ({"weight": X}, True),
        ({"weight": X, "power": 1}, True),
        ({}, False),
        ({"weight": X, "powre": 1}, False),
        ({"weight": X, "power": 1.5}, False),
        ([X], False),
    ],
    ids=["required", "whole", "empty", "unknown key", "wrong type", "list"],
)
def test_a_typed_dict_result_has_the_keys_that_it_says(result: Any, fits: bool) -> None:
    """Missing and unknown keys are faults of the kernel."""
    fn: Any = lambda x: copy.deepcopy(result)
    fn.__annotations__ = {"x": co.Array, "return": Typed}
    op: Any = co.custom_op(f"config_test::t{next(numbers)}", fn, mutates_args=())
    if fits:
        assert op(X).keys() == result.keys()
        return
    with pytest.raises(co.ContractError, match="returns output 0"):
        op(X)


def test_rows_with_different_constants_do_not_stack() -> None:
    """A number in a result must be the same for all rows."""

    @co.custom_op("config_test::count", mutates_args=())
    def count(x: co.Array) -> Parts:
        return Parts(x * 2.0, None, int(x[0]))

    with (
        pytest.warns(co.CustomOpWarning, match="no vmap rule"),
        pytest.raises(co.VmapError, match="the values int 1, int 2"),
    ):
        co.vmap(lambda x: count(x).low)(np.array([[1.0], [2.0]]))


def test_dicts_with_different_names_do_not_stack() -> None:
    """All rows of a batch must return the same nesting."""

    @co.custom_op("config_test::names", mutates_args=())
    def names(x: co.Array) -> dict[str, co.Array]:
        return {"a" if x[0] > 1.0 else "b": x * 2.0}

    with (
        pytest.warns(co.CustomOpWarning, match="no vmap rule"),
        pytest.raises(co.VmapError, match="with other keys"),
    ):
        co.vmap(lambda x: names(x)["a"])(np.array([[1.0], [2.0]]))


NOT_ARRAYS = [
    ([1.0, 2.0], "argument 'c' at field 'weight' expects Array, got list [1.0, 2.0]"),
    (None, "argument 'c' at field 'weight' expects Array, got None"),
    (3, "argument 'c' at field 'weight' expects Array, got int 3"),
]


@pytest.mark.parametrize(("value", "message"), NOT_ARRAYS, ids=repr)
def test_a_field_without_an_array_is_refused(value: Any, message: str) -> None:
    """The field is named."""
    op = operator("frozen dataclass")
    with pytest.raises(co.ArgumentError) as caught:
        op(X, Fixed(value))
    assert caught.value.what.endswith(message)
    assert caught.value.do == "pass arrays in it, such as np.asarray(x)"


def test_a_leaked_value_inside_an_object_is_an_error() -> None:
    """A tracer that outlived its transform is found in a field."""
    op = operator("frozen dataclass")
    kept = []
    co.grad(lambda w: (kept.append(w), w.sum())[1])(W)
    with pytest.raises(co.LeakedTracerError, match="which has ended"):
        op(X, Fixed(kept[0]))


# ---- what a rule sees ----


def test_needs_input_grad_is_nested_as_the_object_is() -> None:
    """A formula can ask which arrays inside need a gradient."""
    seen = []

    @co.custom_op("config_test::needs", mutates_args=())
    def needs(x: co.Array, c: Outer) -> co.Array:
        return x * c.others[0].weight

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g, {"others": [{"weight": g * X}]}

    needs.register_autograd(backward)
    found = co.grad(lambda w: needs(X, Outer("a", Fixed(W), [Named(w)])).sum())(W)
    assert_allclose(found, X)
    (need,) = seen
    assert need[0] is False
    assert need[1].inner.weight is False
    assert need[1].others == [Named(True, False)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            [np.ones(3), None],
            "returned 2 gradients for 'c', an object of Fixed",
        ),
        (np.ones(3), "returned ndarray of shape (3,) for 'c', an object of Fixed"),
        ({"wieght": np.ones(3)}, "returned dict"),
        (Named(np.ones(3)), "for 'c', an object of Fixed"),
    ],
)
def test_a_gradient_that_is_nested_otherwise_is_refused(
    wrong: Any, message: str
) -> None:
    """The message says by which names the gradient can come."""

    @co.custom_op(f"config_test::wrong{next(numbers)}", mutates_args=())
    def wrong_op(x: co.Array, c: Fixed) -> co.Array:
        return x * c.weight

    wrong_op.register_autograd(lambda ctx, g: (g, wrong))
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda w: wrong_op(X, Fixed(w)).sum())(W)
    assert message in str(caught.value)
    assert caught.value.parameter == "c"
    assert "by the names 'weight', 'power'" in caught.value.do


def test_no_gradient_of_an_object_is_none() -> None:
    """None can be given in place of an object, as in place of an array."""

    @co.custom_op("config_test::none", mutates_args=())
    def none(x: co.Array, c: Fixed) -> co.Array:
        return x + 0.0 * c.weight

    none.register_autograd(lambda ctx, g: (g, None))
    assert_array_equal(co.grad(lambda w: none(X, Fixed(w)).sum())(W), np.zeros(3))


def test_native_differentiates_a_body_that_takes_objects() -> None:
    """The operator's own body, with the gradient brought back to its place."""

    @co.custom_op("config_test::body", mutates_args=())
    def body(x: co.Array, c: Outer) -> co.Array:
        return np.sin(x) * c.others[1].weight + c.inner.weight  # type: ignore[union-attr]

    body.register_autograd(co.native)

    def fn(v, w):
        return (body(X, Outer("a", Fixed(v), [Named(W), Named(w)])) * X).sum()

    grads = co.grad(fn, (0, 1))(W, W)
    assert_allclose(grads[0], X)
    assert_allclose(grads[1], np.sin(X) * X)


# ---- contracts ----


def write_inside(x: co.Array, c: Fixed) -> co.Array:
    c.weight[0] = 9.0
    return x + 1.0


def add_at_inside(x: co.Array, c: Fixed) -> co.Array:
    np.add.at(c.weight, 0, 1.0)
    return x + 1.0


def give_inside(x: co.Array, c: Fixed) -> co.Array:
    return c.weight


@pytest.mark.parametrize("fn", [write_inside, add_at_inside], ids=lambda f: f.__name__)
def test_a_write_inside_an_object_is_found(fn: Any) -> None:
    """An array in a field is protected like any other argument."""
    op: Any = co.custom_op(f"config_test::w{next(numbers)}", fn, mutates_args=())
    with pytest.raises(co.ContractError, match="writes argument 'c'"):
        op(X, Fixed(W.copy()))


def test_a_result_may_not_share_memory_with_a_field() -> None:
    """A field is part of the argument."""
    op: Any = co.custom_op("config_test::gives", give_inside, mutates_args=())
    with pytest.raises(co.ContractError, match="shares memory with argument 'c'"):
        op(X, Fixed(W.copy()))


def test_an_object_may_be_named_as_written() -> None:
    """Its schema marks the class, and is read back."""
    op: Any = co.custom_op("config_test::writes", write_inside, mutates_args={"c"})
    assert str(op.schema) == f"(Array x, {__name__}.Fixed(a!) c) -> Array"
    assert co.Schema.parse(str(op.schema)) == op.schema
    weight = W.copy()
    op(X, Fixed(weight))
    assert weight[0] == 9.0


def test_a_saved_object_that_is_written_is_noticed() -> None:
    """An array in an object that a formula keeps must not change before it runs."""
    op = operator("frozen dataclass")

    @co.custom_op("config_test::clear", mutates_args={"x"})
    def clear(x: np.ndarray) -> None:
        x[:] = 0.0

    weight = W.copy()
    _, pullback = co.vjp(lambda x: op(x, Fixed(weight)), X)
    clear(weight)
    with pytest.raises(co.GradientError, match="written by an operator since"):
        pullback(np.ones(3))


@each_form
def test_an_unchanged_object_reaches_a_proven_kernel_itself(form: str) -> None:
    """No copy is made where nothing in it is traced."""
    seen = []
    annotation, make, _ = FORMS[form]

    def keep(x, c):
        seen.append(c)
        return x + 1.0

    keep.__annotations__ = {"x": co.Array, "c": annotation, "return": co.Array}
    op: Any = co.custom_op(f"config_test::k{next(numbers)}", keep, mutates_args=())
    given = make(W)
    op(X, given)
    op(X, given)
    assert seen[0] is not given
    assert seen[1] is given


# ---- results ----


class Parts(NamedTuple):
    low: co.Array
    high: co.Array | None
    count: int


@dataclass(frozen=True)
class Result:
    low: np.ndarray
    many: list[co.Array]


def as_named(x: co.Array) -> Parts:
    return Parts(x * 2.0, x**2, 3)


def as_object(x: co.Array) -> Result:
    return Result(x * 2.0, [x**2])


def as_dict(x: co.Array) -> dict[str, co.Array]:
    return {"low": x * 2.0, "high": x**2}


def as_nested(x: co.Array) -> tuple[co.Array, Parts]:
    return x * 2.0, Parts(x**2, None, 1)


# Function -> its two arrays in the result; how a result is made of two arrays.
RESULTS: dict[str, tuple[Any, Any, Any]] = {
    "NamedTuple": (as_named, lambda r: (r.low, r.high), lambda a, b: Parts(a, b, 3)),
    "dataclass": (as_object, lambda r: (r.low, r.many[0]), lambda a, b: Result(a, [b])),
    "dict": (
        as_dict,
        lambda r: (r["low"], r["high"]),
        lambda a, b: {"low": a, "high": b},
    ),
    "tuple": (
        as_nested,
        lambda r: (r[0], r[1].low),
        lambda a, b: (a, Parts(b, None, 1)),
    ),
}
# The same for axes, where a number has none.
AXES: dict[str, Any] = {
    "NamedTuple": lambda d: Parts(d, d, None),  # type: ignore[arg-type]
    "dataclass": lambda d: {"low": d, "many": [d]},
    "dict": lambda d: {"low": d, "high": d},
    "tuple": lambda d: (d, (d, None, None)),
}
each_result = pytest.mark.parametrize("form", RESULTS)


def giver(form: str) -> Any:
    """An operator with the results ``2 x`` and ``x ** 2`` and their formula."""
    fn, arrays, make = RESULTS[form]
    op: Any = co.custom_op(f"config_test::r{next(numbers)}", fn, mutates_args=())
    op.register_fake(lambda x: make(co.fake_like(x), co.fake_like(x)))

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, *grads):
        (x,) = ctx.saved_arrays
        low, high = arrays(grads[0] if len(grads) == 1 else grads)
        return 2.0 * low + 2.0 * x * high

    return op.register_autograd(backward, setup_context=setup)


@each_result
def test_a_result_keeps_its_class(form: str) -> None:
    """Through kernels, fake arrays, gradients, tangents and batches."""
    op, (fn, arrays, _) = giver(form), RESULTS[form]
    cls = type(fn(X))
    for _ in range(3):
        out = op(X)
        assert type(out) is cls
        assert_array_equal(arrays(out)[0], X * 2.0)
        assert_array_equal(arrays(out)[1], X**2)
    fake = co.eval_shape(op, X)
    assert type(fake) is cls
    assert [a.shape for a in arrays(fake)] == [(3,), (3,)]


@each_result
def test_a_gradient_flows_from_each_part_of_a_result(form: str) -> None:
    """Gradients of the outputs are nested as the result is."""
    op, arrays = giver(form), RESULTS[form][1]
    first = co.grad(lambda x: arrays(op(x))[0].sum())(X)
    assert_allclose(first, np.full(3, 2.0))
    second = co.grad(lambda x: arrays(op(x))[1].sum())(X)
    assert_allclose(second, 2.0 * X)
    tangents = co.jvp(lambda x: arrays(op(x)), (X,), (W,))[1]
    assert_allclose(tangents[0], 2.0 * W)
    assert_allclose(tangents[1], 2.0 * X * W)


@each_result
def test_rules_return_the_nesting_of_the_results(form: str) -> None:
    """Tangents and batch axes have the nesting of the result."""
    op, (fn, arrays, make) = giver(form), RESULTS[form]
    axes = AXES[form]
    op.register_jvp(
        lambda primals, tangents: (
            fn(*primals),
            make(2.0 * tangents[0], 2.0 * primals[0] * tangents[0]),
        )
    )
    tangents = co.jvp(lambda x: arrays(op(x)), (X,), (W,))[1]
    assert_allclose(tangents[1], 2.0 * X * W)
    op.register_vmap(lambda info, in_dims, x: (fn(x), axes(in_dims[0])))
    rows = np.stack([X, W], axis=1)
    found = co.vmap(lambda x: arrays(op(x)), in_dims=1)(rows)
    assert_allclose(found[1], rows.T**2)


@each_result
def test_rows_of_results_stack(form: str) -> None:
    """Without a rule the results of the rows become one of batches."""
    op, arrays = giver(form), RESULTS[form][1]
    rows = np.stack([X, W])
    with pytest.warns(co.CustomOpWarning, match="no vmap rule"):
        found = co.vmap(lambda x: arrays(op(x)))(rows)
    assert_allclose(found[0], rows * 2.0)
    assert_allclose(found[1], rows**2)


def test_a_plain_tuple_is_not_a_named_tuple() -> None:
    """A kernel that returns another class than in its schema is an error."""
    fn: Any = lambda x: (x * 2.0, None, 3)
    fn.__annotations__ = {"x": co.Array, "return": Parts}
    op: Any = co.custom_op("config_test::plain", fn, mutates_args=())
    with pytest.raises(co.ContractError, match=f"must be {__name__}.Parts"):
        op(X)


@pytest.mark.parametrize("gives", [True, False])
def test_a_result_may_be_none(gives: bool) -> None:
    """An optional result is an array with a gradient, or None."""

    @co.custom_op(f"config_test::maybe{next(numbers)}", mutates_args=())
    def maybe(x: co.Array, gives: bool) -> co.Array | None:
        return x * 2.0 if gives else None

    maybe.register_fake(lambda x, gives: co.fake_like(x) if gives else None)
    maybe.register_autograd(lambda ctx, g: (2.0 * g, None))
    maybe.register_vmap(lambda info, in_dims, x, gives: (maybe(x, gives), in_dims[0]))
    for _ in range(2):
        out = maybe(X, gives)
        assert (out is None) is not gives
    assert (co.eval_shape(maybe, X, gives) is None) is not gives
    if gives:
        assert_array_equal(co.grad(lambda x: maybe(x, gives).sum())(X), np.full(3, 2.0))
        assert_array_equal(co.jvp(lambda x: maybe(x, gives), (X,), (W,))[1], 2.0 * W)
        assert_array_equal(
            co.vmap(lambda x: maybe(x, gives))(np.stack([X, W])),
            np.stack([X, W]) * 2.0,
        )


def test_generators_inside_objects_make_an_operator_random() -> None:
    """Rows of a batch draw the same numbers under ``randomness="same"``."""

    @dataclass(frozen=True)
    class Source:
        generator: np.random.Generator
        scale: co.Array

    @co.custom_op("config_test::draw", mutates_args=())
    def draw(x: co.Array, source: Source) -> co.Array:
        return x + source.scale * source.generator.normal(size=3)

    rows = np.zeros((2, 3))
    run = lambda randomness: co.vmap(
        lambda x: draw(x, Source(np.random.default_rng(0), np.ones(3))),
        randomness=randomness,
    )(rows)
    with pytest.raises(co.VmapError, match="is random"):
        run("error")
    same, different = run("same"), run("different")
    assert_array_equal(same[0], same[1])
    assert (different[0] != different[1]).all()
