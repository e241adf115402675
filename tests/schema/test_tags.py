"""What tags promise, and what follows from them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import customop as co
from customop.core.codegen import is_open

_numbers = itertools.count()
X = np.arange(24.0).reshape(2, 3, 4)
Tag = co.Tag


def define(schema: str, fn: Any, tags: Any, **kwargs: Any) -> Any:
    """Make an operator of a new name."""
    name = f"tags::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=(), schema=schema, tags=tags, **kwargs)


def fake(x: Any) -> Any:
    """The fake array of a real one."""
    return co.FakeMode().from_array(x)


# ---- pointwise: the fake kernel ----

PAIRS = [
    ((2, 3), "f8", (3,), "f8"),
    ((2, 1), "f4", (3,), "f8"),
    ((), "i4", (4, 2), "f4"),
    ((2, 3), "c8", (2, 3), "f8"),
    ((0, 3), "i2", (1, 3), "u2"),
    ((5, 1, 3), "?", (4, 1), "i8"),
]


@pytest.mark.parametrize(("a", "p", "b", "q"), PAIRS)
def test_pointwise_fake(a: Any, p: str, b: Any, q: str) -> None:
    """Shape and dtype are those of NumPy's own sum."""
    op = define("(Array x, Array y) -> Array", lambda x, y: x + y, Tag.pointwise)
    expected = np.add(np.zeros(a, p), np.zeros(b, q))
    fake = op(co.FakeArray(a, p), co.FakeArray(b, q))
    assert (fake.shape, fake.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize(("number", "dtype"), [(2, "i4"), (2.0, "i4"), (2.0, "f4")])
def test_numbers_count_by_their_kind(number: Any, dtype: str) -> None:
    """A Python number widens only the kind of the dtype, as in NumPy."""
    schema = "(Array x, Array|Scalar y) -> Array"
    op = define(schema, lambda x, y: x * y, Tag.pointwise)
    expected = np.zeros(2, dtype) * number
    assert op(co.FakeArray(2, dtype), number).dtype == expected.dtype


def test_pointwise_fake_of_several_results() -> None:
    """Each result has the same fake array."""
    schema = "(Array x, Array y) -> (Array, Array)"
    op = define(schema, lambda x, y: (x + y, x - y), Tag.pointwise)
    fake = op(co.FakeArray((2, 1)), co.FakeArray(3))
    assert [t.shape for t in fake] == [(2, 3), (2, 3)]


def test_pointwise_fake_keeps_the_device() -> None:
    """The numbered device of an array is that of the result."""
    op = define("(Array x) -> Array", lambda x: -x, Tag.pointwise)
    assert op(co.FakeArray(2, device="cuda:1")).device == "cuda:1"


def test_pointwise_fake_of_shapes_that_do_not_fit() -> None:
    """Shapes that NumPy cannot pair are an error that shows both."""
    op = define("(Array x, Array y) -> Array", lambda x, y: x + y, Tag.pointwise)
    with pytest.raises(co.ShapeError) as caught:
        op(co.FakeArray(2), co.FakeArray(3))
    assert str(caught.value) == (
        f"{op.qualname}: the shapes of f64[2], f64[3] do not fit together"
        f"\n  {op.qualname}(Array x, Array y) -> Array"
        "\n  do: pass arrays that NumPy can broadcast"
    )


def test_pointwise_fake_is_proven_by_the_first_call() -> None:
    """An operator that gives another dtype has no fake kernel, and the error says why."""
    op = define("(Array x) -> Array", lambda x: x > 0, Tag.pointwise)
    np.testing.assert_array_equal(op(X), X > 0)
    with pytest.raises(co.MissingRuleError) as caught:
        op(co.FakeArray(2))
    assert str(caught.value) == (
        f"{op.qualname} has no fake kernel: Tag.pointwise gives none, since the 'cpu'"
        " kernel returns bool[2, 3, 4] with strides (12, 4, 1) on cpu as output 0, its"
        " fake kernel f64[2, 3, 4] with strides (96, 32, 8) on cpu"
        f"\n  {op.qualname}(Array x) -> Array"
        f"\n  at {op.definition.place}"
        f"\n  do: @{op.name}.register_fake, a function that returns fake_like(...)"
    )


def test_a_fake_kernel_by_tags_must_be_right() -> None:
    """Once a fake kernel from a tag has answered, a call that disproves it is an error."""
    op = define("(Array x) -> Array", lambda x: x > 0, Tag.pointwise)
    assert op(co.FakeArray(2)).dtype == np.float64
    with pytest.raises(co.ContractError, match="they differ in dtype"):
        op(X)


def test_proof_of_a_pointwise_fake_does_not_count_as_telling() -> None:
    """A call with consistent shapes does not fix those of a later call."""
    co.config.checks = "always"
    op = define("(Array x) -> Array", lambda x: np.sqrt(x), Tag.pointwise)
    op(X)
    op(np.arange(3))
    with pytest.raises(co.MissingRuleError, match=r"Tag\.pointwise gives none"):
        op(co.FakeArray(2))


def test_order_of_axes_does_not_disprove_a_pointwise_fake() -> None:
    """The fake kernel of a tag gives shape, dtype and device."""
    op = define("(Array x) -> Array", lambda x: np.array(x, order="C"), Tag.pointwise)
    op(np.asfortranarray(X))
    assert op(fake(X)).shape == X.shape


def test_registering_a_kernel_gives_the_tag_another_chance() -> None:
    """A new kernel has disproved nothing yet."""
    op = define("(Array x) -> Array", lambda x: x > 0, Tag.pointwise)
    op(X)
    op.register_kernel("cpu", lambda x: -x)
    assert op(co.FakeArray(2)).shape == (2,)


def test_own_fake_kernel_is_the_one_that_counts() -> None:
    """A registered fake kernel replaces the derived one, also after it failed."""
    op = define("(Array x) -> Array", lambda x: x > 0, Tag.pointwise)
    op(X)
    op.register_fake(lambda x: co.fake_like(x, dtype=bool))
    assert op(co.FakeArray(2)).dtype == bool
    op(X)


def test_pointwise_fake_of_no_array() -> None:
    """If all optional arrays are missing, nothing gives the shape."""
    op = define(
        "(Array? x=None) -> Array",
        lambda x=None: np.zeros(()) if x is None else x * 1,
        Tag.pointwise,
    )
    with co.FakeMode(), pytest.raises(co.DataDependentError) as caught:
        op()
    assert str(caught.value) == (
        f"{op.qualname} has no fake kernel for a call without arrays"
        f"\n  {op.qualname}(Array? x=None) -> Array"
        f"\n  do: @{op.name}.register_fake, a function that returns a FakeArray"
    )
    assert op().shape == ()
    assert op(co.FakeArray(2)).shape == (2,)


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ("(Array x) -> Array?", (co.FakeArray(2),)),
        ("(Array x) -> Array[]", (co.FakeArray(2),)),
        ("(Array x) -> int", (co.FakeArray(2),)),
        ("(Array[] x) -> Array", ([co.FakeArray(2)],)),
    ],
)
def test_no_pointwise_fake(schema: str, args: Any) -> None:
    """Where lists, optional results or numbers are involved nothing is derived."""
    op = define(schema, lambda x: x, Tag.pointwise)
    with pytest.raises(co.MissingRuleError, match="has no fake kernel"):
        op(*args)


def test_gradient_through_pointwise_fake_arrays() -> None:
    """Shapes of gradients follow without a registered fake kernel."""
    op = define("(Array x, Array y) -> Array", lambda x, y: x * y, Tag.pointwise)
    op.register_autograd(
        lambda ctx, g: (g * ctx.saved_arrays[1], g * ctx.saved_arrays[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    found = co.eval_shape(
        co.grad(lambda x, y: op(x, y).sum(), (0, 1)), np.ones((2, 1)), np.ones(3)
    )
    assert [g.shape for g in found] == [(2, 1), (3,)]


# ---- reductions ----

ONE = "(Array x, int? axis=None, bool keepdims=False) -> Array"
MANY = "(Array x, int[]? axis=None, *, bool keepdims=False) -> Array"


def reduction(schema: str = ONE, fn: Any = np.sum) -> Any:
    """A reduction without a fake kernel or a batching rule."""
    if "*" in schema:
        return define(
            schema,
            lambda x, axis=None, *, keepdims=False: fn(
                x, axis if axis is None else tuple(axis), keepdims=keepdims
            ),
            Tag.reduction,
        )
    return define(
        schema,
        lambda x, axis=None, keepdims=False: fn(x, axis=axis, keepdims=keepdims),
        Tag.reduction,
    )


AXES = [(ONE, None), (ONE, 0), (ONE, 2), (ONE, -1), (ONE, -3)]
AXES += [(MANY, axis) for axis in (None, [0], [0, 2], [-1, 0], [])]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("schema", "axis"), AXES)
def test_reduction_fake(schema: str, axis: Any, keepdims: bool) -> None:
    """The fake kernel drops or keeps the axes that NumPy does."""
    op = reduction(schema)
    fake = op(co.FakeArray((2, 3, 4), "f4"), axis, keepdims=keepdims)
    where = tuple(axis) if isinstance(axis, list) else axis
    expected = np.sum(X.astype("f4"), axis=where, keepdims=keepdims)
    assert (fake.shape, fake.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("schema", "axis"), [*AXES[:3], (ONE, -2), *AXES[5:8], (MANY, [-1])]
)
def test_reduction_vmap(schema: str, axis: Any, keepdims: bool, dim: int) -> None:
    """Batching gives what NumPy gives row by row, without a warning."""
    op = reduction(schema)
    axis = 1 if axis == 2 else [1] if axis == [0, 2] else axis
    where = tuple(axis) if isinstance(axis, list) else axis
    rows = np.moveaxis(X, dim, 0)
    expected = np.stack([np.sum(row, where, keepdims=keepdims) for row in rows])
    out = co.vmap(lambda row: op(row, axis, keepdims=keepdims), in_dims=dim)(X)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("fn", [np.argmax, np.ptp, np.median])
def test_reduction_vmap_of_order_and_place(fn: Any) -> None:
    """Rows are flattened in C order, as NumPy flattens them for axis=None."""
    op = reduction(ONE, fn)
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    out = co.vmap(op)(np.asfortranarray(x))
    np.testing.assert_array_equal(out, [fn(row) for row in x])


def test_reduction_vmap_of_rows_without_axes() -> None:
    """A row without axes is reduced to itself."""
    np.testing.assert_array_equal(co.vmap(reduction())(X[0, 0]), X[0, 0])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.booleans())
@settings(deadline=None)
def test_reduction_vmap_of_any_shape(shape: list[int], keep: bool) -> None:
    """Empty batches and empty rows are reduced too."""
    x = np.arange(math.prod(shape), dtype=float).reshape(shape)
    out = co.vmap(lambda row: _sum(row, None, keep))(x)
    expected = x.sum(tuple(range(1, x.ndim)), keepdims=keep)
    np.testing.assert_array_equal(out, expected.reshape(out.shape))
    assert out.shape == ((shape[0], *(1,) * (len(shape) - 1)) if keep else (shape[0],))


_sum = reduction()


def test_nested_vmap_of_a_reduction() -> None:
    """The derived rule calls operators, so it nests."""
    out = co.vmap(co.vmap(lambda row: _sum(row, -1)))(X[:, :, :, None] * 1.0)
    np.testing.assert_array_equal(out, X)


def test_reduction_of_several_results() -> None:
    """Each result is batched, and has the same fake array."""
    schema = "(Array x, int? axis=None) -> (Array, Array)"
    op = define(schema, lambda x, axis=None: (x.min(axis), x.max(axis)), Tag.reduction)
    low, high = co.vmap(op)(X)
    np.testing.assert_array_equal(low, X.min((1, 2)))
    np.testing.assert_array_equal(high, X.max((1, 2)))
    assert [t.shape for t in op(fake(X), 1)] == [(2, 4), (2, 4)]


def test_reduction_fake_is_proven() -> None:
    """A reduction of another dtype than its input has no derived fake kernel."""
    op = reduction(ONE, np.argmax)
    op(X)
    with pytest.raises(co.MissingRuleError, match=r"Tag\.reduction gives none, since"):
        op(fake(X))


def test_reduction_of_an_axis_out_of_range() -> None:
    """An axis that does not exist is an error that lists the valid ones."""
    op = reduction()
    with pytest.raises(co.ShapeError) as caught:
        op(fake(X), 3)
    assert str(caught.value) == (
        f"{op.qualname}: axis 3 of an array of 3 axes"
        f"\n  {op.qualname}{ONE}"
        f"\n  {' ' * (len(op.qualname) + len('(Array x, '))}{'^' * len('int? axis=None')}"
        "\n  do: use an axis from -3 to 2"
    )
    with pytest.raises(co.ShapeError, match="axis 2 of an array of 2 axes"):
        co.vmap(lambda row: op(row, 2))(X)


NO_REDUCTION = [
    ("(int axis, Array x) -> Array", "its first parameter is not an array"),
    ("(Array x) -> Array", "its parameter 'axis' is missing"),
    ("(Array x, float axis) -> Array", "its parameter 'axis' is float"),
    (
        "(Array x, int axis, int keepdims) -> Array",
        "its parameter 'keepdims' is not a bool",
    ),
]


@pytest.mark.parametrize(("schema", "what"), NO_REDUCTION)
def test_no_reduction(schema: str, what: str) -> None:
    """A reduction that does not say its axes as NumPy does is an error."""
    names = ", ".join(p.name for p in co.Schema.parse(schema).parameters)
    with pytest.raises(co.SchemaError) as caught:
        co.custom_op(
            "tags::f",
            eval(f"lambda {names}: None"),
            mutates_args=(),
            schema=schema,
            tags=Tag.reduction,
        )
    assert str(caught.value) == (
        f"tags::f: Tag.reduction, but {what}\n  tags::f{schema}"
        "\n  do: write (x: Array, axis: int | None = None, keepdims: bool = False), or"
        " leave the tag out"
    )


# ---- what depends on data ----

nonzero = define(
    "(Array x) -> Array", lambda x: np.flatnonzero(x), Tag.dynamic_output_shape
)
largest = define(
    "(Array x) -> float", lambda x: float(x.max()), Tag.data_dependent_output
)


def test_fake_of_a_dynamic_shape() -> None:
    """A fake call says that the shape depends on data, and what to do."""
    with pytest.raises(co.DataDependentError) as caught:
        nonzero(fake(X))
    assert str(caught.value) == (
        f"{nonzero.qualname} has no fake kernel: the shape of its result depends on data"
        " (Tag.dynamic_output_shape)"
        f"\n  {nonzero.qualname}(Array x) -> Array"
        f"\n  at {nonzero.definition.place}"
        f"\n  do: @{nonzero.name}.register_fake, a function that says how large the"
        " result is"
    )


def test_fake_of_a_number_from_data() -> None:
    """A fake call of an operator that reads values says so."""
    with pytest.raises(co.DataDependentError, match="its result depends on data"):
        co.eval_shape(largest, X)


def test_own_fake_kernel_of_a_dynamic_shape() -> None:
    """A registered fake kernel is used as always."""
    op = define("(Array x) -> Array", lambda x: x[x > 0], Tag.dynamic_output_shape)
    op.register_fake(lambda x: co.FakeArray(math.prod(x.shape)))
    assert op(fake(X)).shape == (24,)


def test_real_calls_of_a_dynamic_shape() -> None:
    """The tags change nothing for real arrays."""
    for _ in range(2):
        np.testing.assert_array_equal(nonzero(X), np.arange(1, 24))
        assert largest(X) == 23.0


def test_vmap_of_a_dynamic_shape_that_stacks() -> None:
    """Rows of equal shapes are stacked, with the warning of any loop."""
    op = define("(Array x) -> Array", nonzero.__wrapped__, Tag.dynamic_output_shape)
    with pytest.warns(co.CustomOpWarning, match="no vmap rule"):
        out = co.vmap(op)(np.array([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(out, [[0], [1]])


@pytest.mark.filterwarnings("ignore::customop.CustomOpWarning")
def test_vmap_of_a_dynamic_shape_that_does_not_stack() -> None:
    """The error of the loop says that the shape depends on data."""
    with pytest.raises(co.VmapError) as caught:
        co.vmap(nonzero)(np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert str(caught.value) == (
        f"{nonzero.qualname} under vmap: the shape of its result depends on data"
        " (Tag.dynamic_output_shape), and the rows give arrays i64[1], i64[2]"
        f"\n  {nonzero.qualname}(Array x) -> Array"
        "\n  do: pad to a fixed shape in another operator, or"
        f" @{nonzero.name}.register_vmap"
    )


@pytest.mark.filterwarnings("ignore::customop.CustomOpWarning")
def test_vmap_of_a_number_from_data() -> None:
    """So does that of numbers that differ between rows; equal ones are one number."""
    out = co.vmap(lambda row: row * largest(row))(np.ones((2, 2)))
    np.testing.assert_array_equal(out, np.ones((2, 2)))
    with pytest.raises(co.VmapError, match=r"Tag\.data_dependent_output"):
        co.vmap(lambda row: row * largest(row))(X)


@pytest.mark.filterwarnings("ignore::customop.CustomOpWarning")
def test_vmap_of_several_results_that_depend_on_data() -> None:
    """Results are stacked one by one, as are the items of lists."""
    op = define(
        "(Array x) -> (Array[], Array)",
        lambda x: ([x[:1] * 1, x[1:] * 1], x * 2),
        Tag.dynamic_output_shape,
    )
    (head, tail), twice = co.vmap(op)(X[0])
    np.testing.assert_array_equal(head, X[0, :, :1])
    np.testing.assert_array_equal(tail, X[0, :, 1:])
    np.testing.assert_array_equal(twice, 2 * X[0])


def test_vmap_of_no_rows_that_depend_on_data() -> None:
    """Without a row the shape of the results is unknown."""
    with pytest.raises(co.VmapError, match="no row says what"):
        co.vmap(nonzero)(np.zeros((0, 3)))


# ---- layouts ----


def probe(**kwargs: Any) -> tuple[Any, list[bool]]:
    """An operator that notes whether its arrays are in C order."""
    seen: list[bool] = []

    def kernel(x: np.ndarray, many: Any = None, *, y: Any = None) -> np.ndarray:
        arrays = [x, *(many or ()), *([] if y is None else [y])]
        seen.extend(a.flags.c_contiguous for a in arrays)
        return x * 2

    schema = "(Array x, Array[]? many=None, *, Array? y=None) -> Array"
    return define(schema, kernel, Tag.needs_contiguous, **kwargs), seen


ORDERS = {
    "fortran": np.asfortranarray(X),
    "step": np.arange(24.0)[::2],
    "reverse": np.arange(5.0)[::-1],
    "transposed": X.T,
    "broadcast": np.broadcast_to(np.arange(3.0), (2, 3)),
    "no axes": np.array(3.0),
    "C": X,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_contiguous(order: str, checks: str) -> None:
    """Kernels get arrays in C order on every call, inside other values too."""
    co.config.checks = checks
    op, seen = probe()
    x = ORDERS[order]
    for _ in range(3):
        out = op(x, [x, X], y=x)
        np.testing.assert_array_equal(out, x * 2)
        assert out.shape == x.shape
    assert seen == [True] * 12


def test_contiguous_arrays_are_not_copied() -> None:
    """Arrays in C order are passed on as they are."""
    seen: list[Any] = []
    op = define(
        "(Array x) -> Array", lambda x: seen.append(x) or x * 2, Tag.needs_contiguous
    )
    op(X)
    op(X)
    assert seen[1] is X


@pytest.mark.parametrize("checks", ["first", "never"])
@pytest.mark.parametrize("case", ["other byte order", "unaligned"])
def test_contiguous_arrays_are_as_code_in_c_reads_them(case: str, checks: str) -> None:
    """Kernels get arrays that are aligned, and in the byte order of the machine."""
    co.config.checks = checks
    swapped = X.astype(X.dtype.newbyteorder("S"))
    shifted = np.frombuffer(b"." + X.tobytes(), np.uint8)[1:].view(X.dtype)
    given = {"other byte order": swapped, "unaligned": shifted.reshape(X.shape)}[case]
    assert not (given.flags.aligned and given.dtype.isnative)
    seen: list[Any] = []
    op = define(
        "(Array x) -> Array", lambda x: seen.append(x) or x * 2, Tag.needs_contiguous
    )
    for _ in range(2):
        np.testing.assert_array_equal(op(given), X * 2)
    assert all(x.flags.aligned and x.dtype.isnative for x in seen)


def test_contiguous_is_what_c_code_reads() -> None:
    """Arrays are aligned and in the machine's byte order too, and their fakes say so."""
    unaligned = np.zeros(8 * 3 + 1, np.uint8)[1:].view(np.float64)
    unaligned[...] = 1.5
    seen: list[Any] = []
    op = define(
        "(Array x) -> Array", lambda x: seen.append(x) or x * 2, Tag.needs_contiguous
    )
    op.register_fake(lambda x: co.fake_like(x))
    for x in (unaligned, np.arange(3.0).astype(">f8"), np.arange(3).astype(">i2")):
        out = op(x)
        np.testing.assert_array_equal(out, x * 2)
        assert seen[-1].flags.aligned
        assert seen[-1].dtype.isnative
        assert op(co.fake_like(x)).dtype == out.dtype


@pytest.mark.parametrize(
    ("x", "lacking", "do"),
    [
        (np.asfortranarray(X), "in C order", "np.ascontiguousarray(x)"),
        (np.zeros(9, np.uint8)[1:].view(np.float64), "aligned", "x.copy()"),
        (
            np.zeros(2, ">f8"),
            "in the machine's byte order",
            "x.astype(x.dtype.newbyteorder('='))",
        ),
    ],
)
def test_contiguous_refuses_a_copy_of_what_is_written(
    x: Any, lacking: str, do: str
) -> None:
    def fill(x: np.ndarray) -> None:
        x[...] = 1

    tags = Tag.needs_contiguous
    op = co.custom_op("tags::fill", fill, mutates_args=("x",), tags=tags)
    with pytest.raises(co.ArgumentError) as caught:
        op(x)
    first, *_, last = str(caught.value).splitlines()
    assert first.endswith(
        f"argument 'x' is not {lacking}, and is written: the kernel would get a copy"
        f" {lacking}"
    )
    assert last == f"  do: pass {do} and use that array"


def test_contiguous_leaves_no_fast_path() -> None:
    """Plain arrays in another order would slip through it."""
    op, _ = probe()
    op(X)
    assert "_kernel(" not in op.source


def test_contiguous_keeps_subclasses() -> None:
    """The copy is of the class of the array."""
    seen: list[type] = []
    op = define(
        "(Array x) -> Array",
        lambda x: seen.append(type(x)) or np.asarray(x) * 2,
        Tag.needs_contiguous,
    )
    op(np.asfortranarray(X).view(np.recarray))
    assert seen == [np.recarray]


def test_contiguous_fake() -> None:
    """A fake kernel gets the same arguments as the kernel."""
    op = define("(Array x) -> Array", lambda x: np.empty_like(x), Tag.needs_contiguous)
    op.register_fake(lambda x: co.fake_like(x))
    x = np.asfortranarray(X)
    assert op(x).flags.c_contiguous
    assert op(fake(x)).strides == (96, 32, 8)


def test_contiguous_under_grad_and_vmap() -> None:
    """The kernel below a transform sees C order too."""
    op = define("(Array x) -> Array", order_of, [Tag.needs_contiguous, Tag.pointwise])
    op.register_autograd(lambda ctx, g: g)
    assert co.grad(lambda x: op(x).sum())(X.T).shape == (4, 3, 2)
    assert co.vmap(op, in_dims=2)(X).shape == (4, 2, 3)


def order_of(x: np.ndarray) -> np.ndarray:
    """A kernel that refuses other orders."""
    assert x.flags.c_contiguous
    return x * 2.0


def test_contiguous_other_kind() -> None:
    """Arrays without strides are passed on unchanged."""

    class Ranged:
        shape, dtype = (3,), np.dtype(float)

    co.register_array_type("ranged", Ranged)
    op = define("(Array x) -> Array", lambda x: Ranged(), Tag.needs_contiguous)
    assert type(op(Ranged())) is Ranged


def test_contiguous_and_written() -> None:
    """An array in another order is an error, since only a copy would be written."""
    op = co.custom_op(
        "tags::clear",
        lambda x: x.fill(0),
        mutates_args=("x",),
        schema="(Array(a!) x) -> ()",
        tags=Tag.needs_contiguous,
    )
    x = X.copy()
    op(x)
    np.testing.assert_array_equal(x, np.zeros_like(X))
    with pytest.raises(co.ArgumentError) as caught:
        op(X.copy().T)
    assert str(caught.value) == (
        "tags::clear: argument 'x' is not in C order, and is written: the kernel would"
        " get a copy in C order"
        "\n  tags::clear(Array(a!) x) -> ()"
        "\n              ^^^^^^^^^^^"
        "\n  do: pass np.ascontiguousarray(x) and use that array"
    )


def layout(tag: Any, kernel: Any, fake: Any) -> Any:
    """An operator with a fake kernel, and a tag on its layout."""
    return define("(Array x) -> Array", kernel, tag).register_fake(fake)


def padded(x: np.ndarray) -> np.ndarray:
    """A result in C order with a gap after each row."""
    out = np.zeros((*x.shape[:-1], x.shape[-1] + 1))
    return out[..., :-1]


def test_strides_are_compared_in_order_alone() -> None:
    """Without a tag a gap between rows makes no difference."""
    op = layout((), padded, lambda x: co.FakeArray(x.shape))
    assert op(X).shape == X.shape


def test_needs_exact_strides() -> None:
    """With the tag a gap between rows is an error."""
    op = layout(Tag.needs_exact_strides, padded, lambda x: co.FakeArray(x.shape))
    with pytest.raises(co.ContractError, match="they differ in strides"):
        op(X)
    right = layout(
        Tag.needs_exact_strides,
        padded,
        lambda x: co.FakeArray(x.shape, float, (120, 40, 8)),
    )
    assert right(X).shape == X.shape


def test_exact_strides_of_broadcast_inputs() -> None:
    """Strides are compared for broadcast inputs as well."""
    op = layout(
        Tag.needs_exact_strides,
        lambda x: np.array(x, order="F"),
        lambda x: co.FakeArray(x.shape),
    )
    with pytest.raises(co.ContractError, match="they differ in strides"):
        op(np.broadcast_to(np.arange(3.0), (2, 3)))


def test_exact_strides_of_axes_of_length_one() -> None:
    """An axis of one element has no stride that matters."""
    op = layout(
        Tag.needs_exact_strides,
        lambda x: np.zeros((3, 1)).T,
        lambda x: co.FakeArray((1, 3)),
    )
    assert op(X).shape == (1, 3)


def test_flexible_layout() -> None:
    """With the tag the order of axes is not compared."""
    given = (lambda x: np.asfortranarray(x * 2), lambda x: co.FakeArray(x.shape))
    assert layout(Tag.flexible_layout, *given)(X).shape == X.shape
    with pytest.raises(co.ContractError, match="order of axes in memory"):
        layout((), *given)(X)


# ---- tags together ----

EXCLUSIVE = [
    (Tag.needs_exact_strides, Tag.flexible_layout),
    (Tag.pointwise, Tag.reduction),
    (Tag.pointwise, Tag.dynamic_output_shape),
    (Tag.reduction, Tag.dynamic_output_shape),
]


@pytest.mark.parametrize(("first", "second"), EXCLUSIVE)
def test_tags_that_exclude_each_other(first: Any, second: Any) -> None:
    """Two tags that cannot both hold are an error that names them."""
    with pytest.raises(co.SchemaError) as caught:
        co.custom_op(
            "tags::f",
            lambda x, axis=None: x,
            mutates_args=(),
            schema="(Array x, int? axis=None) -> Array",
            tags=[first, second],
        )
    assert str(caught.value) == (
        f"tags::f: {first} and {second} exclude each other"
        "\n  tags::f(Array x, int? axis=None) -> Array"
        "\n  do: keep one of them"
    )


def test_tags_without_a_promise_for_calls() -> None:
    """`nondeterministic_bitwise` changes nothing about a call."""
    op = define("(Array x) -> Array", lambda x: x * 2, Tag.nondeterministic_bitwise)
    for _ in range(2):
        np.testing.assert_array_equal(op(X), 2 * X)
    assert is_open(op.call)
    assert op.tags == {Tag.nondeterministic_bitwise}


def test_failed_definition_leaves_the_old_one() -> None:
    """A definition that a tag refuses does not replace the existing one."""
    op = co.custom_op(
        "tags::kept", lambda x: x * 2, mutates_args=(), schema="(Array x) -> Array"
    )
    with pytest.raises(co.SchemaError):
        co.custom_op(
            "tags::kept",
            lambda x: x * 3,
            mutates_args=(),
            schema="(Array x) -> Array",
            tags=Tag.reduction,
        )
    np.testing.assert_array_equal(op(X), 2 * X)
    assert op.tags == frozenset()
