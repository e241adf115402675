"""Operators that write to their arguments, and operators that return views."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.codegen import is_open

_numbers = itertools.count()
X = np.arange(6.0).reshape(2, 3)
INPLACE = "(Array(a!) x, float k=2.0) -> Array(a!)"


def name() -> str:
    """Return a new name."""
    return f"mutation::op{next(_numbers)}"


def define(schema: str, fn: Callable[..., Any], written: Any, **kwargs: Any) -> Any:
    """Make an operator with a new name."""
    return co.custom_op(name(), fn, mutates_args=written, schema=schema, **kwargs)


def scale_(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    """Scale in place."""
    x *= k
    return x


def divide_into(
    x: np.ndarray, y: np.ndarray, *, quotient: np.ndarray, rest: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Divide into two arrays."""
    np.divmod(x, y, out=(quotient, rest))
    return quotient, rest


def inplace(fn: Callable[..., Any] = scale_, **kwargs: Any) -> Any:
    """Make an in-place operator with an inferred schema."""
    tags = {co.Tag.inplace, *kwargs.pop("tags", ())}
    return co.custom_op(name(), fn, mutates_args=("x",), tags=tags, **kwargs)


def out_operator(fn: Callable[..., Any] = divide_into, **kwargs: Any) -> Any:
    """Make an operator with two out arrays and an inferred schema."""
    tags = {co.Tag.out, *kwargs.pop("tags", ())}
    return co.custom_op(
        name(), fn, mutates_args=("quotient", "rest"), tags=tags, **kwargs
    )


# ---- tags change the schema ----


def test_inplace_schema() -> None:
    """In the schema of an in-place operator, the result aliases the first array."""
    assert str(inplace().schema) == INPLACE


def test_out_schema() -> None:
    """In the schema of an out operator, the results alias the out arrays in order."""
    assert str(out_operator().schema) == (
        "(Array x, Array y, *, Array(a!) quotient, Array(b!) rest)"
        " -> (Array(a!), Array(b!))"
    )


def test_single_out_schema() -> None:
    """With one out array, the result is an array, not a tuple."""

    def negate(x: np.ndarray, *, out: np.ndarray) -> np.ndarray:
        return np.negative(x, out=out)

    op = co.custom_op(name(), negate, mutates_args=("out",), tags=co.Tag.out)
    assert str(op.schema) == "(Array x, *, Array(a!) out) -> Array(a!)"
    out = np.empty_like(X)
    assert op(X, out=out) is out
    np.testing.assert_array_equal(out, -X)


def test_given_schema_may_leave_the_alias_to_the_tag() -> None:
    """The tag adds the alias of the result to a schema string."""
    tags = co.Tag.inplace
    op = define("(Array(a!) x, float k=2.0) -> Array", scale_, ("x",), tags=tags)
    assert str(op.schema) == INPLACE


def test_schema_of_a_tagged_operator_parses_back() -> None:
    """The changed schema can be printed and parsed."""
    for op in (inplace(), out_operator()):
        assert co.Schema.parse(str(op.schema)) == op.schema


def no_kernel(*args: Any) -> Any:
    """A function whose definition fails."""
    raise AssertionError


AT = "\n  m::f"
REFUSED = [
    (
        "(int n) -> Array",
        (),
        co.Tag.inplace,
        (
            "m::f: Tag.inplace, but the first array that it takes by position is missing"
            f"{AT}(int n) -> Array"
            "\n  do: write the array that it returns as its first parameter: x: Array"
        ),
    ),
    (
        "(Array[] many, Array(a!) x) -> Array",
        ("x",),
        co.Tag.inplace,
        (
            "m::f: Tag.inplace, but the first array that it takes by position is Array[]"
            f"{AT}(Array[] many, Array(a!) x) -> Array"
            "\n       ^^^^^^^^^^^^"
            "\n  do: write the array that it returns as its first parameter: x: Array"
        ),
    ),
    (
        "(Array x, Array(a!) y) -> Array",
        ("y",),
        co.Tag.inplace,
        (
            "m::f: Tag.inplace, but mutates_args names 'y', must name its first array 'x'"
            f" alone{AT}(Array x, Array(a!) y) -> Array"
            "\n       ^^^^^^^"
            "\n  do: write mutates_args=('x',), or leave the tag out"
        ),
    ),
    (
        "(Array x) -> Array",
        (),
        co.Tag.inplace,
        (
            "m::f: Tag.inplace, but mutates_args names nothing, must name its first array"
            f" 'x' alone{AT}(Array x) -> Array"
            "\n       ^^^^^^^"
            "\n  do: write mutates_args=('x',), or leave the tag out"
        ),
    ),
    (
        "(Array(a!) x) -> ()",
        ("x",),
        co.Tag.inplace,
        (
            "m::f: must return what it writes, 'x', and nothing else"
            f"{AT}(Array(a!) x) -> ()"
            "\n  do: return x, and annotate the result as Array"
        ),
    ),
    (
        "(Array(a!) x, Array(b) y) -> Array(b)",
        ("x",),
        co.Tag.inplace,
        (
            "m::f: must return what it writes, 'x', and nothing else"
            f"{AT}(Array(a!) x, Array(b) y) -> Array(b)"
            "\n  do: return x, and annotate the result as Array"
        ),
    ),
    (
        "(Array x, *, Array out) -> Array",
        (),
        co.Tag.out,
        (
            "m::f: Tag.out, but mutates_args names nothing"
            f"{AT}(Array x, *, Array out) -> Array"
            "\n  do: name the keyword-only arrays that it writes: mutates_args=('out',)"
        ),
    ),
    (
        "(Array x, Array(a!) out) -> Array",
        ("out",),
        co.Tag.out,
        (
            "m::f: Tag.out, but the argument 'out' that it writes can come by position"
            f"{AT}(Array x, Array(a!) out) -> Array"
            "\n                ^^^^^^^^^^^^^"
            "\n  do: take it by keyword only: *, out: Array"
        ),
    ),
    (
        "(Array x, *, Array(a!)[] out) -> Array[]",
        ("out",),
        co.Tag.out,
        (
            "m::f: Tag.out, but the argument 'out' that it writes is not a single array"
            f"{AT}(Array x, *, Array(a!)[] out) -> Array[]"
            "\n                   ^^^^^^^^^^^^^^^"
            "\n  do: take it by keyword only: *, out: Array"
        ),
    ),
    (
        "(Array x, *, Array(a!) p, Array(b!) q) -> Array",
        ("p", "q"),
        co.Tag.out,
        (
            "m::f: must return what it writes, 'p', 'q', and nothing else"
            f"{AT}(Array x, *, Array(a!) p, Array(b!) q) -> Array"
            "\n  do: return p, q, and annotate the result as tuple of 2 arrays"
        ),
    ),
    (
        "(Array x, *, Array(a!)? out=None) -> Array",
        ("out",),
        co.Tag.out,
        (
            "m::f: returns 'out' where it is given, and a fresh array where it is None"
            f"{AT}(Array x, *, Array(a!)? out=None) -> Array"
            "\n                   ^^^^^^^^^^^^^^^^^^^"
            "\n  do: split it: m::f without 'out' returns a fresh array, and m::f_out with"
            " tags=Tag.out takes *, out: Array"
        ),
    ),
    (
        "(Array x, *, Array(a!)? out=None) -> Array(a!)",
        ("out",),
        (),
        (
            "m::f: returns 'out' where it is given, and a fresh array where it is None"
            f"{AT}(Array x, *, Array(a!)? out=None) -> Array(a!)"
            "\n                   ^^^^^^^^^^^^^^^^^^^"
            "\n  do: split it: m::f without 'out' returns a fresh array, and m::f_out with"
            " tags=Tag.out takes *, out: Array"
        ),
    ),
    (
        "(Array x) -> Array(a)",
        (),
        (),
        (
            "m::f: the result Array(a) is marked (a), but no argument is"
            f"{AT}(Array x) -> Array(a)"
            "\n  do: mark the argument: Array(a) x"
        ),
    ),
    (
        "(Array(a!) x) -> Array",
        ("x",),
        (co.Tag.inplace, co.Tag.out),
        (
            "m::f: Tag.inplace and Tag.out exclude each other"
            f"{AT}(Array(a!) x) -> Array"
            "\n  do: keep one of them"
        ),
    ),
]


@pytest.mark.parametrize(("schema", "written", "tags", "text"), REFUSED)
def test_refused_definition(schema: str, written: Any, tags: Any, text: str) -> None:
    """A tag that contradicts the schema is an error at definition."""
    kernel: Any = eval(f"lambda {_parameters(schema)}: None")
    with pytest.raises(co.SchemaError) as caught:
        co.custom_op("m::f", kernel, mutates_args=written, schema=schema, tags=tags)
    assert str(caught.value) == text


def _parameters(schema: str) -> str:
    parsed = co.Schema.parse(schema)
    names = [p.name for p in parsed.positional]
    by_name = [p.name for p in parsed.keyword_only]
    return ", ".join([*names, *(["*", *by_name] if by_name else [])])


# ---- calls ----


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_inplace_call(checks: str) -> None:
    """An in-place operator writes to its first array and returns it."""
    co.config.checks = checks
    op = inplace()
    x = X.copy()
    for _ in range(3):
        assert op(x, 2.0) is x
    np.testing.assert_array_equal(x, 8 * X)


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_out_call(checks: str) -> None:
    """An out operator writes to its keyword-only arrays and returns them in order."""
    co.config.checks = checks
    op = out_operator()
    q, r = np.empty_like(X), np.empty_like(X)
    for _ in range(3):
        first, second = op(X, np.full(3, 2.0), quotient=q, rest=r)
        assert first is q
        assert second is r
    np.testing.assert_array_equal(q, X // 2)
    np.testing.assert_array_equal(r, X % 2)


def test_fast_path_of_an_inplace_operator_opens() -> None:
    """After the first call, an in-place operator uses the fast path."""
    op = inplace()
    op(X.copy())
    assert is_open(op.call)


def scaled(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    """Return a fresh array."""
    return x * k


def viewed(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    """Return a view of the argument."""
    x *= k
    return x[:]


def swapped(
    x: np.ndarray, y: np.ndarray, *, quotient: np.ndarray, rest: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the results in the wrong order."""
    np.divmod(x, y, out=(quotient, rest))
    return rest, quotient


@pytest.mark.parametrize(
    "kernel", [pytest.param(scaled, id="fresh"), pytest.param(viewed, id="view")]
)
def test_inplace_operator_must_return_its_argument(kernel: Any) -> None:
    """An in-place kernel must return the argument, not a new array or a view."""
    op = define(INPLACE, kernel, ("x",), tags=co.Tag.inplace)
    with pytest.raises(co.ContractError) as caught:
        op(X.copy())
    assert "output 0 that is not its argument 'x' itself" in caught.value.what


def test_out_operator_must_return_in_order() -> None:
    """If out arrays are returned in another order, the error says which is wrong."""
    op = out_operator(swapped)
    q, r = np.empty_like(X), np.empty_like(X)
    with pytest.raises(co.ContractError) as caught:
        op(X, np.full(3, 2.0), quotient=q, rest=r)
    where = f"{swapped.__code__.co_filename}:{swapped.__code__.co_firstlineno}"
    caret = " " * (len(op.qualname) + len("(Array x, Array y, *, "))
    assert str(caught.value) == (
        f"{op.qualname}: the 'cpu' kernel returns output 0 that is not its argument"
        " 'quotient' itself"
        "\n  as Tag.out says"
        f"\n  {op.schema.show(op.qualname)}"
        f"\n  {caret}{'^' * len('Array(a!) quotient')}"
        f"\n  kernel at {where}"
        "\n  do: write into quotient, then return quotient, rest"
    )


def test_same_array_twice() -> None:
    """``op(x, x)`` is allowed, like ``x += x``."""

    def add_(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x += y
        return x

    co.config.checks = "always"
    op = inplace(add_)
    x = X.copy()
    for _ in range(2):
        assert op(x, x) is x
    np.testing.assert_array_equal(x, 4 * X)


def test_view_of_a_written_argument_without_a_tag() -> None:
    """If a kernel writes to an argument and returns it, the error suggests the tags."""

    def kernel(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    op = define("(Array(a!) x) -> Array", kernel, ("x",))
    with pytest.raises(co.ContractError, match=r"shares memory") as caught:
        op(X.copy())
    assert caught.value.do == (
        "return None, or say tags=Tag.inplace or tags=Tag.out for 'x'"
    )


def maybe_out(x: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """Return `out` if it is given."""
    return np.negative(x, out=out)


def test_maybe_out_is_refused_at_the_call() -> None:
    """Returning an optional array only if it is given is an error."""
    op = co.custom_op(name(), maybe_out, mutates_args=("out",))
    with pytest.raises(co.ContractError) as caught:
        op(X, out=np.empty_like(X))
    assert caught.value.what.endswith(
        "returns output 0 that shares memory with argument 'out'"
    )
    assert caught.value.do == (
        "split it: an operator without 'out' returns a fresh array, one with"
        " tags=Tag.out takes *, out: Array"
    )


def test_optional_written_argument() -> None:
    """A kernel may write to an optional array if it is given."""

    def total(x: np.ndarray, *, squares: np.ndarray | None = None) -> np.ndarray:
        if squares is not None:
            np.square(x, out=squares)
        return x.sum(0)

    co.config.checks = "always"
    op = co.custom_op(name(), total, mutates_args=("squares",))
    squares = np.zeros_like(X)
    np.testing.assert_array_equal(op(X), X.sum(0))
    np.testing.assert_array_equal(op(X, squares=squares), X.sum(0))
    np.testing.assert_array_equal(squares, X**2)


def test_list_of_written_arrays() -> None:
    """A kernel may write to every array of a list."""

    def clear(many: list[np.ndarray], value: float = 0.0) -> None:
        for x in many:
            x[...] = value

    op = co.custom_op(name(), clear, mutates_args=("many",))
    assert str(op.schema) == "(Array(a!)[] many, float value=0.0) -> ()"
    many = [X.copy(), X[0].copy()]
    for value in (1.0, 2.0):
        assert op(many, value) is None
    for x in many:
        np.testing.assert_array_equal(x, np.full_like(x, 2.0))


def test_unknown_writes() -> None:
    """With "unknown", a kernel may write to any array."""

    def mix(x: np.ndarray, y: np.ndarray, n: int = 1) -> None:
        x += n
        y -= n

    op = co.custom_op(name(), mix, mutates_args="unknown")
    assert op.schema.written == ("x", "y")
    x, y = X.copy(), X.copy()
    op(x, y)
    op(x, y)
    np.testing.assert_array_equal(x, X + 2)
    np.testing.assert_array_equal(y, X - 2)


def test_numpy_scalar_cannot_be_written() -> None:
    """Writing to a NumPy scalar is an error, because the write would be lost."""
    op = inplace()
    with pytest.raises(co.ArgumentError) as caught:
        op(np.float64(1.0))
    assert str(caught.value) == (
        f"{op.qualname}: argument 'x' is written, got the NumPy scalar np.float64(1.0),"
        " which cannot be"
        f"\n  {op.qualname}{INPLACE}"
        f"\n  {' ' * (len(op.qualname) + 1)}{'^' * len('Array(a!) x')}"
        "\n  do: pass an array without axes: np.asarray(x)"
    )


def test_read_only_array_of_the_caller() -> None:
    """A read-only array raises NumPy's own error."""

    def add_(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x += y
        return x

    op = inplace(add_)
    x = X.copy()
    x.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            op(x, np.ones(3))
    np.testing.assert_array_equal(x, X)


def test_proof_of_a_kernel_that_refuses_read_only_arrays_writes_once() -> None:
    """A kernel that refuses read-only arrays after a write is retried on the old values."""

    def add_(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x += y
        if not y.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return x

    op = inplace(add_)
    x = X.copy()
    assert op(x, np.ones(3)) is x
    np.testing.assert_array_equal(x, X + 1)


# ---- versions of written arrays ----


def save_input(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


cube = co.custom_op(
    "mutation::cube", lambda x: x**3, mutates_args=(), schema="(Array x) -> Array"
).register_autograd(
    lambda ctx, g: g * 3 * ctx.saved_arrays[0] ** 2, setup_context=save_input
)


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_write_after_save_is_an_error(checks: str) -> None:
    """Overwriting an array that was saved for backward is an error."""
    co.config.checks = checks
    op = inplace()
    for _ in range(3):
        x = X.copy()
        _, pullback = co.vjp(cube, x)
        op(x)
        with pytest.raises(co.GradientError, match="written by an operator since"):
            pullback(np.ones_like(x))


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_argument_that_is_only_read_keeps_its_version(checks: str) -> None:
    """Saving an array that an operator only reads is allowed."""

    def add_(x: np.ndarray, y: np.ndarray, *, n: int = 1) -> np.ndarray:
        x += n * y
        return x

    co.config.checks = checks
    op = inplace(add_)
    for _ in range(3):
        y = X.copy()
        _, pullback = co.vjp(cube, y)
        op(np.zeros_like(X), y)
        (found,) = pullback(np.ones_like(y))
        np.testing.assert_allclose(found, 3 * X**2)


def test_write_through_a_list_is_noted() -> None:
    """Overwriting a saved item of a list is an error."""

    def clear(many: list[np.ndarray]) -> None:
        many[0][...] = 0

    op = co.custom_op(name(), clear, mutates_args=("many",))
    for _ in range(2):
        x = X.copy()
        _, pullback = co.vjp(cube, x)
        op([x])
        with pytest.raises(co.GradientError, match="written by an operator since"):
            pullback(np.ones_like(x))


def test_write_through_a_list_on_the_slow_path_is_noted() -> None:
    """Overwriting a saved array through a subclass of ndarray is an error."""
    op = inplace()
    op(X.copy())
    x = X.copy()
    _, pullback = co.vjp(cube, x)
    op(x.view(np.ma.MaskedArray))
    with pytest.raises(co.GradientError, match="written by an operator since"):
        pullback(np.ones_like(x))


def test_write_of_a_tracked_value_is_refused() -> None:
    """Writing to a value that grad follows is an error."""
    op = inplace()
    with pytest.raises(co.GradientError, match="writes its argument 'x'"):
        co.grad(lambda x: op(x).sum())(X)


# ---- fake kernels ----


def test_fake_of_an_inplace_operator() -> None:
    """An in-place operator needs no fake kernel: the result is the argument."""
    x = co.FakeArray((2, 3), np.float32, (4, 8))
    assert inplace()(x) is x


def test_fake_of_an_out_operator() -> None:
    """An out operator needs no fake kernel: the results are the out arrays."""
    q, r = co.FakeArray(3), co.FakeArray(3, np.float32)
    found = out_operator()(co.FakeArray(3), co.FakeArray(3), quotient=q, rest=r)
    assert found[0] is q
    assert found[1] is r


def test_fake_of_an_operator_that_returns_nothing() -> None:
    """An operator without results needs no fake kernel."""

    def clear(x: np.ndarray) -> None:
        x[...] = 0

    op = co.custom_op(name(), clear, mutates_args=("x",))
    with co.FakeMode():
        assert op(np.ones(3)) is None
    assert op(co.FakeArray(3)) is None


def test_fake_of_a_view_is_not_derived() -> None:
    """An alias in the schema does not replace a fake kernel."""
    op = define("(Array(a) x) -> Array(a)", lambda x: x[0], ())
    with pytest.raises(co.MissingRuleError, match="has no fake kernel"):
        op(co.FakeArray((2, 3)))


def test_own_fake_kernel_goes_before_the_derived_one() -> None:
    """A registered fake kernel is used."""
    op = inplace().register_fake(lambda x, k: co.fake_like(x, dtype=np.int8))
    assert op(co.FakeArray(3)).dtype == np.int8


# ---- batching ----


def test_vmap_of_an_inplace_operator() -> None:
    """A pointwise in-place operator writes to a whole batch at once."""
    op = inplace(tags=[co.Tag.pointwise])
    x = X.copy()
    out = co.vmap(op)(x)
    assert out is x
    np.testing.assert_array_equal(x, 2 * X)


@pytest.mark.parametrize("dim", [0, 1])
def test_vmap_of_an_inplace_operator_by_rows(dim: int) -> None:
    """Without a rule, each row is written by a separate call, with a warning."""

    def sort_(x: np.ndarray) -> np.ndarray:
        x.sort()
        return x

    op = inplace(sort_)
    x = np.array([[3.0, 1.0, 2.0], [9.0, 8.0, 0.0]])
    expected = np.sort(x, axis=1 - dim)
    with pytest.warns(co.CustomOpWarning, match="no vmap rule"):
        out = co.vmap(op, in_dims=dim, out_dims=dim)(x)
    assert out is x
    np.testing.assert_array_equal(x, expected)


def test_vmap_of_a_pointwise_inplace_operator_broadcasts() -> None:
    """Rows with fewer axes are broadcast like in NumPy, and written in place."""

    def add_(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x += y
        return x

    op = inplace(add_, tags=[co.Tag.pointwise])
    x, y = np.zeros((2, 4, 3)), X.copy()
    out = co.vmap(op)(x, y)
    assert out is x
    np.testing.assert_array_equal(x, np.broadcast_to(X[:, None], x.shape))


def test_what_an_inplace_operator_returns_under_vmap_can_be_written_on() -> None:
    """Under vmap, the result is the array itself, so later writes reach it."""
    op = inplace(tags=[co.Tag.pointwise])
    x = X.copy()
    co.vmap(lambda row: op(op(row)))(x)
    np.testing.assert_array_equal(x, 4 * X)


def test_nested_vmap_of_an_inplace_operator() -> None:
    """Under nested vmap, rows of both batches are written in place."""

    def sort_(x: np.ndarray) -> np.ndarray:
        x.sort()
        return x

    op = inplace(sort_).register_fake(lambda x: x)
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    expected = np.sort(x, axis=-1)
    with pytest.warns(co.CustomOpWarning, match="no vmap rule"):
        co.vmap(co.vmap(op))(x)
    np.testing.assert_array_equal(x, expected)


def test_vmap_of_an_out_operator() -> None:
    """Batched out arrays are written and returned in order."""
    op = out_operator(tags=[co.Tag.pointwise])
    q, r = np.empty_like(X), np.empty_like(X)

    def divide(x: Any, q: Any, r: Any) -> Any:
        return op(x, np.full(3, 2.0), quotient=q, rest=r)

    first, second = co.vmap(divide)(X, q, r)
    assert first is q
    assert second is r
    np.testing.assert_array_equal(q, X // 2)
    np.testing.assert_array_equal(r, X % 2)


def test_vmap_does_not_write_one_array_for_all_rows() -> None:
    """Writing to an argument that all rows share is an error."""

    def add_(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x += y
        return x

    op = inplace(add_, tags=[co.Tag.pointwise])
    x = np.zeros(3)
    with pytest.raises(co.VmapError, match="one array for all rows"):
        co.vmap(lambda row: op(x, row))(X)
    np.testing.assert_array_equal(x, np.zeros(3))


# ---- views ----


def test_view() -> None:
    """A schema can say that the result is a view of an argument."""
    op = define("(Array(a) x, int i=0) -> Array(a)", lambda x, i=0: x[i], ())
    x = X.copy()
    for _ in range(2):
        assert np.shares_memory(op(x, 1), x)
    assert op(x, 1).flags.writeable
