"""Rules derived from shapes: fake kernels, batching, and sums of gradients."""
# ruff: noqa: F722, UP037 - texts of jaxtyping's annotations are not code

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float

import customop as co
from customop.core.derived_rules import derive_vmap
from customop.testing import opcheck

RNG = np.random.default_rng(20240229)


def define(
    schema: str, fn: Callable[..., Any], name: str = "f", **kwargs: Any
) -> co.Operator[..., Any]:
    """Make an operator, by default with the name that messages here show."""
    return co.custom_op(f"rules::{name}", fn, mutates_args=(), schema=schema, **kwargs)


def no_warning() -> Any:
    """Show every warning: by default, the loop warns only once."""
    return warnings.catch_warnings(action="error")


# ---- compared with NumPy's gufuncs: loops, shapes and dtypes ----


class Gufunc(NamedTuple):
    """A function of NumPy with the axes of its arguments."""

    schema: str
    fn: Callable[..., Any]
    # Axes of each argument after the loop axes, by name or length.
    axes: tuple[tuple[str, ...], ...]


GUFUNCS = {
    "matmul": Gufunc(
        "(float[...,m,k] x, float[...,k,n] y) -> float[...,m,n]",
        lambda x, y: np.matmul(x, y),
        (("m", "k"), ("k", "n")),
    ),
    "vecdot": Gufunc(
        "(float[...,n] x, float[...,n] y) -> float[...]",
        lambda x, y: np.asarray(np.vecdot(x, y)),
        (("n",), ("n",)),
    ),
    "outer": Gufunc(
        "(num[...,m] x, num[...,n] y) -> num[...,m,n]",
        lambda x, y: x[..., :, None] * y[..., None, :],
        (("m",), ("n",)),
    ),
    "inv": Gufunc(
        "(float[...,n,n] x) -> float[...,n,n]",
        lambda x: np.linalg.inv(x + 9 * np.eye(x.shape[-1], dtype=x.dtype)),
        (("n", "n"),),
    ),
    "solve": Gufunc(
        "(float[...,n,n] x, float[...,n,k] y) -> float[...,n,k]",
        lambda x, y: np.linalg.solve(x + 9 * np.eye(x.shape[-1], dtype=x.dtype), y),
        (("n", "n"), ("n", "k")),
    ),
    "det": Gufunc(
        "(float[...,n,n] x) -> float[...]",
        lambda x: np.asarray(np.linalg.det(x)),
        (("n", "n"),),
    ),
    "eigh": Gufunc(
        "(float[...,n,n] x) -> (float[...,n], float[...,n,n])",
        lambda x: tuple(np.linalg.eigh(x)),
        (("n", "n"),),
    ),
    "diff": Gufunc(
        "(float[...,n+1] x) -> float[...,n]", lambda x: np.diff(x), (("n+1",),)
    ),
    "cross": Gufunc(
        "(float[...,3] x, float[...,3] y) -> float[...,3]",
        lambda x, y: np.cross(x, y),
        (("3",), ("3",)),
    ),
    "rfft": Gufunc(
        "(float[...,n] x) -> complex[...,n//2+1]", lambda x: np.fft.rfft(x), (("n",),)
    ),
    "argmax": Gufunc(
        "(float[...,n] x) -> int[...]",
        lambda x: np.asarray(np.argmax(x, -1)),
        (("n",),),
    ),
    "kron": Gufunc(
        "(float[...,m] x, float[...,n] y) -> float[...,m*n]",
        lambda x, y: (x[..., :, None] * y[..., None, :]).reshape(
            *np.broadcast_shapes(x.shape[:-1], y.shape[:-1]), -1
        ),
        (("m",), ("n",)),
    ),
}

_loops = st.lists(st.sampled_from([1, 2, 3]), max_size=2).map(tuple)


@st.composite
def _calls(draw: st.DrawFn, name: str, dtypes: tuple[str, ...] = ("f8",)) -> list[Any]:
    """Draw arguments with loop axes that NumPy can broadcast."""
    sizes = {n: draw(st.integers(1, 3)) for n in "mnk"}
    loop = draw(_loops)
    args = []
    for axes in GUFUNCS[name].axes:
        own = tuple(draw(st.sampled_from([n, 1])) for n in loop)
        own = own[draw(st.integers(0, len(own))) :]
        core = [sizes["n"] + 1 if a == "n+1" else sizes.get(a) or int(a) for a in axes]
        dtype = draw(st.sampled_from(dtypes))
        args.append(RNG.normal(size=(*own, *core)).astype(dtype))
    return args


def leaves(out: Any) -> list[Any]:
    """Return the arrays of a result as a list."""
    return list(out) if isinstance(out, tuple) else [out]


@pytest.mark.parametrize("name", GUFUNCS)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_the_fake_kernel_says_what_numpy_gives(name: str, data: st.DataObject) -> None:
    """Fake results have the shapes and dtypes of the gufunc."""
    args = data.draw(_calls(name, ("f4", "f8")))
    op = define(GUFUNCS[name].schema, GUFUNCS[name].fn)
    found = leaves(co.eval_shape(op, *args))
    real = leaves(GUFUNCS[name].fn(*args))
    assert [(t.shape, t.dtype) for t in found] == [(r.shape, r.dtype) for r in real]


@pytest.mark.parametrize("name", GUFUNCS)
@given(st.data())
@settings(max_examples=12, deadline=None)
def test_a_batch_is_one_call(name: str, data: st.DataObject) -> None:
    """A batch on any axis gives the same as its rows, in one call."""
    args = data.draw(_calls(name))
    size = data.draw(st.sampled_from([2, 4]))
    dims = [data.draw(st.sampled_from([None, *range(a.ndim + 1)])) for a in args]
    if all(d is None for d in dims):
        dims[0] = 0
    batches = [
        a if d is None else np.stack([a * (i + 1) for i in range(size)], d)
        for a, d in zip(args, dims, strict=True)
    ]
    calls = []
    fn = GUFUNCS[name].fn

    def counted(*values: Any) -> Any:
        calls.append(values)
        return fn(*values)

    op = define(GUFUNCS[name].schema, _named(GUFUNCS[name].schema, counted))
    with no_warning():
        got = leaves(co.vmap(op, in_dims=tuple(dims))(*batches))
    rows = [
        leaves(
            fn(
                *[
                    a if d is None else a * (i + 1)
                    for a, d in zip(args, dims, strict=True)
                ]
            )
        )
        for i in range(size)
    ]
    assert len(calls) == 1
    for i, out in enumerate(got):
        np.testing.assert_allclose(out, np.stack([row[i] for row in rows]), rtol=1e-9)


def _named(schema: str, fn: Callable[..., Any]) -> Any:
    """Wrap a function so that it has the parameters of a schema."""
    names = ", ".join(p.name for p in co.Schema.parse(schema).parameters)
    code = compile(f"lambda {names}: fn({names})", __file__, "eval")
    return eval(code, {"fn": fn})


@pytest.mark.parametrize("name", ["matmul", "vecdot", "inv", "diff"])
def test_nested_batches_are_one_call(name: str) -> None:
    """Two nested batches agree with np.vectorize."""
    schema, fn, axes = GUFUNCS[name]
    sizes = {"m": 2, "n": 3, "k": 4, "n+1": 4}
    args = [RNG.normal(size=(5, 2, *[sizes[a] for a in own])) for own in axes]
    inside = ",".join(f"({','.join(own)})" for own in axes).replace("n+1", "p")
    result = {"matmul": "(m,n)", "vecdot": "()", "inv": "(n,n)", "diff": "(q)"}[name]
    expected = np.vectorize(fn, signature=f"{inside}->{result}")(*args)
    calls = []

    def counted(*values: Any) -> Any:
        calls.append(values)
        return fn(*values)

    op = define(schema, _named(schema, counted))
    with no_warning():
        got = co.vmap(co.vmap(op))(*args)
        swapped = co.vmap(co.vmap(op), in_dims=1, out_dims=1)(*args)
    np.testing.assert_allclose(got, expected)
    np.testing.assert_allclose(swapped, expected)
    assert len(calls) == 2


# ---- batching: names, lists, and limits ----


def same_loop(x: Any, y: Any) -> Any:
    """Refuse different loop axes, as a kernel in C may."""
    assert x.shape[:-1] == y.shape[:-1]
    return x * y


def test_axes_of_a_name_are_the_same_for_all_arrays_of_a_batch() -> None:
    """``*b`` must be equal everywhere, so an array without the batch is repeated."""
    op = define("(float[*b,n] x, float[*b,n] y) -> float[*b,n]", same_loop)
    x, y = RNG.normal(size=(4, 2, 3)), RNG.normal(size=(2, 3))
    with no_warning():
        assert np.array_equal(co.vmap(op, (0, None))(x, y), x * y)
        assert np.array_equal(co.vmap(op, (None, 0))(y, x), x * y)


def test_axes_of_a_name_may_broadcast() -> None:
    """With ``*#b``, NumPy's broadcasting applies."""
    op = define("(float[*#b,n] x, float[*#b,n] y) -> float[*#b,n]", lambda x, y: x * y)
    x, y = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 1, 3))
    with no_warning():
        got = co.vmap(op, (0, None))(x, y)
    assert np.array_equal(got, np.stack([row * y for row in x]))
    assert co.eval_shape(op, x, y).shape == (5, 4, 3)


def test_arrays_without_the_loop_stay_as_they_are() -> None:
    """An unbatched array without loop axes is passed unchanged."""
    op = define("(float[...,k] x, float[k,n] w) -> float[...,n]", lambda x, w: x @ w)
    x, w = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2))
    with no_warning():
        np.testing.assert_allclose(co.vmap(op, (0, None))(x, w), x @ w)


def test_a_batch_of_an_array_without_the_loop_runs_row_by_row() -> None:
    """If weights are batched, vmap loops and warns."""
    schema = "(float[...,k] x, float[k,n] w) -> float[...,n]"
    op = define(schema, lambda x, w: x @ w, "warns_of_weights")
    x, w = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3, 2))
    with pytest.warns(co.CustomOpWarning, match="runs once for each row"):
        got = co.vmap(op, (None, 0))(x, w)
    np.testing.assert_allclose(got, np.stack([x @ row for row in w]))
    assert co.vmap(op, (None, 0))(x, w[:0]).shape == (0, 4, 2)


def test_lists_and_none_and_keywords_take_part() -> None:
    """The batch axis of each array in a list moves to the front; None stays."""

    @co.custom_op("rules::f", mutates_args=())
    def total(
        xs: list[Float[np.ndarray, "... n"]],
        b: Float[np.ndarray, "... n"] | None = None,
        *,
        scale: Float[np.ndarray, "..."],
    ) -> Float[np.ndarray, "... n"]:
        return (sum(xs) + (0 if b is None else b)) * scale[..., None]

    x, y, s = RNG.normal(size=(4, 3)), RNG.normal(size=3), RNG.normal(size=4)
    with no_warning():
        got = co.vmap(lambda v, t: total([v, y], scale=t))(x, s)
        more = co.vmap(lambda v: total([y, v], y, scale=np.asarray(2.0)))(x)
    np.testing.assert_allclose(got, (x + y) * s[:, None])
    np.testing.assert_allclose(more, (x + 2 * y) * 2)


# Schema -> kernel: none of these treats rows separately, or says that it does.
UNKNOWN: dict[str, Callable[..., Any]] = {
    "(float[...] x) -> float[...]": lambda x: x.T * 1.0,
    "(float[*b] x) -> float[*b]": lambda x: x - x.mean(),
    "(float[n,...] x) -> float[...]": lambda x: x.sum(0),
    "(float[m,n] x) -> float[n,m]": lambda x: x.T * 1.0,
    "(float[*a,n] x) -> float[*b,n]": lambda x: x * 2,
    "(float[*a,n] x) -> Array": lambda x: x.sum(-1),
}


@pytest.mark.parametrize(("schema", "kernel"), UNKNOWN.items())
def test_without_a_loop_rows_run_one_by_one(
    schema: str, kernel: Callable[..., Any]
) -> None:
    """Without loop axes in the schema, no rule is derived."""
    op = define(schema, kernel)
    x = RNG.normal(size=(3, 3, 3))
    assert derive_vmap(op) is None
    with warnings.catch_warnings(action="ignore"):
        got = co.vmap(op)(x)
    np.testing.assert_allclose(got, np.stack([kernel(row) for row in x]))


def test_a_kernel_with_other_axes_than_it_says_runs_row_by_row() -> None:
    """If a kernel's result lacks the loop axes, vmap loops and warns."""
    schema = "(float[...,n] x) -> float[...,n]"
    op = define(schema, lambda x: x.reshape(-1, x.shape[-1])[0] * 1, "warns_of_axes")
    x = RNG.normal(size=(4, 5, 3))
    with pytest.warns(co.CustomOpWarning, match="runs once for each row"):
        got = co.vmap(op)(x)
    assert np.array_equal(got, x[:, 0])


def test_a_random_operator_has_no_rule_by_shapes() -> None:
    """For random operators, no rule is derived: `randomness` decides."""
    op = define(
        "(float[...,n] x) -> float[...,n]",
        lambda x: x + np.random.normal(size=x.shape),  # noqa: NPY002
        tags=co.Tag.nondeterministic_seeded,
    )
    with pytest.raises(co.errors.VmapError, match="is random under"):
        co.vmap(op)(np.zeros((2, 3)))
    same = co.vmap(op, randomness="same")(np.zeros((2, 3)))
    assert np.array_equal(same[0], same[1])


def test_an_operator_that_writes_has_no_rule_by_shapes() -> None:
    """For operators that write, no rule is derived: rows may share an array."""

    def fill(x: Any, y: Any) -> Any:
        x[...] = y
        return y * 2

    schema = "(float[...,n](a!) x, float[...,n] y) -> float[...,n]"
    op = co.custom_op("rules::fill", fill, mutates_args=("x",), schema=schema)
    assert derive_vmap(op) is None
    x, y = np.zeros((4, 3)), RNG.normal(size=(4, 3))
    with pytest.warns(co.CustomOpWarning, match="runs once for each row"):
        got = co.vmap(op)(x, y)
    assert np.array_equal(got, y * 2)
    assert np.array_equal(x, y)


def test_a_body_made_of_operators_is_batched_as_it_is() -> None:
    """A composite operator needs no rule."""
    with co.Library("rules_body", "DEF") as lib:
        lib.define("lin(float[...,k] x, float[k,n] w) -> float[...,n]")
        lib.impl("lin", lambda x, w: np.matmul(x, w), "CompositeImplicitAutograd")
        x, w = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3, 2))
        with no_warning():
            got = co.vmap(co.ops.rules_body.lin, (None, 0))(x, w)
    np.testing.assert_allclose(got, np.stack([x @ row for row in w]))


def test_a_registered_rule_comes_first() -> None:
    """A registered rule is used instead of a derived one."""
    op = define("(float[...,n] x) -> float[...,n]", lambda x: x * 2)
    op.register_vmap(lambda info, dims, x: (x * 5, dims[0]))
    op.register_fake(lambda x: co.FakeArray(x.shape, np.float32))
    assert co.vmap(op)(np.ones((2, 3))).tolist() == [[5.0] * 3] * 2
    assert co.eval_shape(op, np.ones(2)).dtype == np.float32


WRONG_ROWS: dict[str, Any] = {
    "returns output 0 that has 2 for axis 'n', which is 3 by 'x'": (
        lambda info, in_dims, x: (x[:, :2], 0)
    ),
    "returns output 0 that has 4 for axis 'n', which is 3 by 'x'": (
        lambda info, in_dims, x: (np.zeros((4, 4)), 1)
    ),
    "returns output 0 that has 2 axes, must have 1: n": (
        lambda info, in_dims, x: (x[:, None], 0)
    ),
    "returns output 0 of int64, must be float[n]": (
        lambda info, in_dims, x: (np.zeros((4, 3), np.int64), 0)
    ),
}


@pytest.mark.parametrize(("reason", "rule"), WRONG_ROWS.items())
def test_rows_of_a_registered_rule_are_held_to_their_shapes(
    reason: str, rule: Callable[..., Any]
) -> None:
    """A wrong row raises the error for a wrong result of a kernel."""
    op = define("(float[n] x) -> float[n]", lambda x: x * 2)
    op.register_vmap(rule)
    with pytest.raises(co.errors.ContractError) as caught:
        co.vmap(op)(RNG.normal(size=(4, 3)))
    assert caught.value.what == f"rules::f: the vmap rule {reason}"


@pytest.mark.parametrize(("checks", "raises"), [("first", 0), ("always", 1)])
def test_rows_are_proven_as_the_settings_say(
    checks: Any, raises: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vmap rule is checked on the first call for each `in_dims`."""
    cut = [None, 2, 2]
    op = define("(float[n] x) -> float[n]", lambda x: x * 2)
    op.register_vmap(lambda info, in_dims, x: (x[:, : cut.pop(0)], 0))
    monkeypatch.setattr(co.config, "checks", checks)
    x = RNG.normal(size=(4, 3))
    co.vmap(op)(x)
    seen = []
    try:
        co.vmap(op)(x)
    except co.errors.ContractError as error:
        seen.append(error)
    assert len(seen) == raises
    with pytest.raises(co.errors.ContractError):
        co.vmap(op, 1)(x[:, :4])


@pytest.mark.parametrize(("loop", "shape"), [("...", (2, 3)), ("*b", (2, 2, 3))])
def test_a_loop_inside_a_tuple_runs_row_by_row(loop: str, shape: Any) -> None:
    """An axis of the same length is not mistaken for the batch."""
    schema = f"(float[{loop},n] x, (float[{loop},n], int) gain) -> float[{loop},n]"
    op = define(schema, lambda x, gain: x * gain[0], f"gain{len(loop)}")
    x, gain = RNG.normal(size=shape), RNG.normal(size=(2, 3))
    with warnings.catch_warnings(action="ignore"):
        got = co.vmap(op, (0, None))(x, (gain, 1))
    assert np.array_equal(got, np.stack([row * gain for row in x]))


def test_a_pointwise_operator_with_loops_broadcasts() -> None:
    """Rules from tags and from shapes agree."""
    op = define(
        "(float[...] x, float[...] y) -> float[...]",
        lambda x, y: x + y,
        tags=co.Tag.pointwise,
    )
    x, y = RNG.normal(size=(4, 3)), RNG.normal(size=(2, 1))
    with no_warning():
        got = co.vmap(op, (0, None))(x, y)
    assert np.array_equal(got, np.stack([row + y for row in x]))
    assert co.eval_shape(op, x, y[..., None]).shape == (2, 4, 3)


# ---- dtypes of fake results ----

DTYPES: list[tuple[str, tuple[Any, ...], str]] = [
    ("(float[n] x, float[n] y) -> float[n]", (np.zeros(2, "f4"), np.zeros(2)), "float64"),
    ("(float[n] x, int[k] y) -> float[k]", (np.zeros(2, "f4"), np.zeros(3, int)), "float32"),
    ("(Array[n] x, int[k] y) -> Array[k]", (np.zeros(2, "f2"), np.zeros(3, int)), "float16"),
    ("(int[n] x) -> float[n]", (np.zeros(2, "i1"),), "float64"),
    ("(float[n] x) -> complex[n]", (np.zeros(2, "f4"),), "complex64"),
    ("(int[n] x) -> complex[n]", (np.zeros(2, "i4"),), "complex128"),
    ("(complex[n] x) -> float[n]", (np.zeros(2, "c8"),), "float32"),
    ("(float[n] x) -> int[n]", (np.zeros(2, "f4"),), "int64"),
    ("(float[n] x) -> bool[n]", (np.zeros(2, "f4"),), "bool"),
    ("(float[n] x) -> uint8[n]", (np.zeros(2, "f4"),), "uint8"),
    ("(float[n] x, float[n]|Scalar y) -> float[n]", (np.zeros(2, "f4"), 2.0), "float32"),
    ("(uint8[n] x, float32[n] y) -> Array[n]", (np.zeros(2, "u1"), np.zeros(2, "f4")),
     "float32"),
    ("(float[n][] xs) -> float[n]", ([np.zeros(2, "f4"), np.zeros(2, "f2")],), "float32"),
    ("(int n) -> float[n]", (2,), "float64"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "args", "dtype"), DTYPES, ids=map(str, range(len(DTYPES)))
)
def test_the_dtype_of_a_fake_result(
    schema: str, args: tuple[Any, ...], dtype: str
) -> None:
    """The dtype of a fake result follows NumPy's promotion."""
    op = define(schema, _named(schema, lambda *_: None))
    with co.FakeMode():
        assert str(op(*args).dtype) == dtype


def test_arrays_in_tuples_and_dicts_count_for_the_dtype() -> None:
    """Arrays in tuples and dicts count."""
    schema = "((Array[n], int) p, Dict(str, Array[n]) d) -> Array[n]"
    op = define(schema, lambda p, d: p[0] + d["a"])
    x = np.ones(3, np.float32)
    assert co.eval_shape(op, (x, 1), {"a": x}).dtype == np.float32
    assert co.eval_shape(op, (x, 1), {"a": np.ones(3)}).dtype == np.float64


def test_a_fake_result_keeps_device_and_order() -> None:
    """Fake results keep the device, and the memory order if the shape is the same."""
    op = define("(float[m,n] x) -> float[m,n]", lambda x: x)
    x = co.FakeArray((2, 3), np.float32, strides=(4, 8), device="cuda:1")
    got = op(x)
    assert (got.strides, got.device) == ((4, 8), "cuda:1")


def test_calls_that_differ_have_different_fake_results() -> None:
    """Cached results are not reused for calls that differ."""
    op = define(
        "(Array[k]|Scalar x, int n, Array[k][] ys, bool flip) -> Array[n]",
        lambda x, n, ys, flip: x,
    )

    def described(x: Any, n: int, *ys: Any) -> str:
        return repr(op(x, n, list(ys), True))

    single, double = co.FakeArray((2,), np.float32), co.FakeArray((2,))
    far = co.FakeArray((2,), np.float32, device="cuda:1")
    for _ in range(2):
        assert described(single, 1, single) == "FakeArray(f32[1], device='cpu')"
        assert described(single, 3, single) == "FakeArray(f32[3], device='cpu')"
        assert described(single, 3, single, double) == "FakeArray(f64[3], device='cpu')"
        assert described(double, 3) == "FakeArray(f64[3], device='cpu')"
        assert described(far, 3, far) == "FakeArray(f32[3], device='cuda:1')"
        assert described(2, 3, single) == "FakeArray(f32[3], device='cpu')"
        assert described(2j, 3, single) == "FakeArray(c64[3], device='cpu')"
    for n in range(600):
        assert described(single, n).startswith(f"FakeArray(f32[{n}]")


def test_a_broadcast_axis_that_is_1_everywhere_is_1() -> None:
    """Two axes of length 1 broadcast to 1."""
    op = define("(float[#n] x, float[#n] y) -> float[n]", lambda x, y: x + y)
    assert co.eval_shape(op, np.zeros(1), np.zeros(1)).shape == (1,)
    assert co.eval_shape(op, np.zeros(1), np.zeros(4)).shape == (4,)


# ---- fake kernels that cannot be derived ----

MISSING = [
    ("(float[n] x) -> float[k]", "'k' of its result is not a length of any argument"),
    ("(float[n] x) -> float[n+k]", "'k' of its result is not a length of any argument"),
    ("(float[n] x) -> float[_]", "an axis of its result has no name"),
    ("(float[n] x) -> float[*b]", "'*b' of its result are not axes of any argument"),
    ("(float[...] x) -> float[...]", "'...' of its result is any shape"),
    ("(float[n] x) -> float[n][]", "not all its results are single arrays"),
    ("(float[n] x) -> (float[n], int)", "not all its results are single arrays"),
    ("(float[n] x) -> (float[n], Array)", "they do not say the shape of every result"),
]


@pytest.mark.parametrize(("schema", "why"), MISSING)
def test_a_fake_kernel_that_cannot_be_derived(schema: str, why: str) -> None:
    """The error says why the shapes do not give a fake kernel."""
    op = define(schema, lambda x: x)
    with pytest.raises(co.errors.MissingRuleError) as caught:
        co.eval_shape(op, np.zeros(2))
    lines = str(caught.value).splitlines()
    assert (
        lines[0] == f"rules::f has no fake kernel: its schema gives none, since {why}"
    )
    assert lines[-1] == "  do: @f.register_fake, a function that returns fake_like(...)"


def test_a_length_of_a_missing_argument() -> None:
    """The error says that only this call has no fake result."""
    op = define("(float[n] x, float[k]? y=None) -> float[n,k]", lambda x, y=None: x)
    assert co.eval_shape(op, np.zeros(2), np.zeros(3)).shape == (2, 3)
    with pytest.raises(co.errors.MissingRuleError) as caught:
        co.eval_shape(op, np.zeros(2))
    assert str(caught.value) == (
        "rules::f has no fake kernel for a call in which no argument gives 'k'\n"
        "  rules::f(float[n] x, float[k]? y=None) -> float[n,k]\n"
        "  do: @f.register_fake, a function that returns fake_like(...)"
    )


def test_loops_that_do_not_fit_have_no_fake_result() -> None:
    """Fake arrays that NumPy cannot broadcast raise."""
    op = define("(float[...,n] x, float[...,n] y) -> float[...]", lambda x, y: x)
    with pytest.raises(co.errors.ShapeError) as caught:
        co.eval_shape(op, np.zeros((2, 3)), np.zeros((4, 3)))
    assert str(caught.value) == (
        "rules::f: the axes '...' of f64[2, 3], f64[4, 3] do not fit together\n"
        "  rules::f(float[...,n] x, float[...,n] y) -> float[...]\n"
        "  do: pass arrays whose axes '...' NumPy can broadcast"
    )


def test_a_derived_fake_kernel_says_which_axis_does_not_fit() -> None:
    """A derived fake kernel also checks axes if it is called directly."""
    op = define("(float[n] x, float[n] y) -> float[n]", lambda x, y: x + y)
    with pytest.raises(co.errors.ShapeError, match="argument 'y' has 3 for axis 'n'"):
        op.rule("fake")(co.FakeArray((2,)), co.FakeArray((3,)))


def test_a_dtype_that_a_call_disproves_is_dropped() -> None:
    """After a call disproves the derived dtype, there is no fake kernel."""
    op = define("(float[n] x) -> float[n]", lambda x: x.astype(np.float32))
    op(np.zeros(2))
    with pytest.raises(
        co.errors.MissingRuleError, match="its schema gives none, since"
    ):
        co.eval_shape(op, np.zeros(2))


def test_a_dtype_that_was_used_must_hold() -> None:
    """A derived dtype that was already used and is wrong is an error."""
    op = define("(float[n] x) -> float[n]", lambda x: x.astype(np.float32))
    assert co.eval_shape(op, np.zeros(2)).dtype == np.float64
    with pytest.raises(co.errors.ContractError, match="differ in dtype"):
        op(np.zeros(2))


def test_explain_says_that_shapes_gave_a_rule() -> None:
    """The explanation names rules derived from shapes."""
    op = define("(float[...,n] x) -> float[...,n]", lambda x: x * 2)
    assert "derived by its shapes" in str(op.explain(co.FakeArray((2,))))
    said = []
    co.vmap(lambda x: said.append(str(op.explain(x))) or op(x))(np.zeros((2, 3)))
    assert "vmap rule" in said[0]
    assert "derived by its shapes" in said[0]


# ---- gradients are summed back ----


def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def swap(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


mm = co.custom_op(
    "rules::mm",
    lambda x, y: x @ y,
    mutates_args=(),
    schema="(float[...,m,k] x, float[...,k,n] y) -> float[...,m,n]",
)
mm.register_autograd(
    lambda ctx, g: (
        mm(g, swap(ctx.saved_arrays[1])),
        mm(swap(ctx.saved_arrays[0]), g),
    ),
    setup_context=keep,
)

LOOPS = [((), ()), ((2,), ()), ((), (2,)), ((2, 1), (3,)), ((1,), (4,)), ((0,), (1,))]


@pytest.mark.parametrize(("left", "right"), LOOPS)
def test_gradients_of_loops_that_broadcast(left: Any, right: Any) -> None:
    """A formula without broadcasting is right by finite differences."""
    x, y = RNG.normal(size=(*left, 2, 3)), RNG.normal(size=(*right, 3, 4))
    assert co.gradcheck(mm, (x, y))


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0)])
def test_gradients_of_batches(dims: Any) -> None:
    """Second derivatives through the derived rule are right."""
    x = RNG.normal(size=(2, 2, 3) if dims[0] == 0 else (2, 3))
    y = RNG.normal(size=(2, 3, 1) if dims[1] == 0 else (3, 1))
    with no_warning():
        assert co.gradcheck(co.vmap(mm, dims), (x, y))
        assert co.gradgradcheck(co.vmap(mm, dims), (x, y))


def test_a_gradient_is_summed_where_the_axes_are_added() -> None:
    """Gradients are summed over the right axes, even if they are in the middle."""

    @co.custom_op("rules::f", mutates_args=())
    def scale(
        x: Annotated[np.ndarray, "n ..."], y: Annotated[np.ndarray, "n ..."]
    ) -> Annotated[np.ndarray, "n ..."]:
        shape = (*x.shape[:1], *(1,) * (y.ndim - x.ndim), *x.shape[1:])
        return x.reshape(shape) * y

    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_arrays
        lead = np.reshape(x, (*x.shape[:1], *(1,) * (y.ndim - x.ndim), *x.shape[1:]))
        return g * y, g * lead

    scale.register_autograd(backward, setup_context=keep)
    x, y = RNG.normal(size=(3,)), RNG.normal(size=(3, 3))
    assert co.gradcheck(scale, (x, y))
    x, y = RNG.normal(size=(2, 1)), RNG.normal(size=(2, 3, 4))
    assert co.gradcheck(scale, (x, y))


def test_gradients_of_lists_are_summed_too() -> None:
    """Gradients of list items are summed to the shapes of the items."""
    op = define("(float[n,...][] xs) -> float[n,...]", lambda xs: sum_of(xs))
    op.register_autograd(lambda ctx, g: ([g, g],))
    x, y = RNG.normal(size=(2,)), RNG.normal(size=(2, 2))
    assert co.gradcheck(lambda a, b: op([a, b]), (x, y))


def sum_of(xs: list[Any]) -> Any:
    """Add arrays along their first axis."""
    x, y = xs
    return x.reshape(*x.shape[:1], *(1,) * (y.ndim - x.ndim), *x.shape[1:]) + y


def test_a_gradient_that_no_broadcasting_explains_is_an_error() -> None:
    """A gradient whose shape broadcasting does not explain is an error."""
    op = define("(float[n,...] x) -> float[n,...]", lambda x: x * 2)
    op.register_autograd(lambda ctx, g: np.zeros((5, 3)))
    with pytest.raises(
        co.errors.GradientError, match=r"returned a gradient of shape \(5, 3\)"
    ):
        co.grad(lambda x: np.sum(op(x)))(np.zeros(3))


def test_forward_mode_transposes_through_shapes() -> None:
    """The directional derivative is right."""
    x, y = RNG.normal(size=(5, 2, 3)), RNG.normal(size=(3, 4))
    dx, dy = RNG.normal(size=x.shape), RNG.normal(size=y.shape)
    _, tangent = co.jvp(mm, (x, y), (dx, dy))
    np.testing.assert_allclose(tangent, dx @ y + x @ dy)


# ---- inputs that opcheck finds ----

CHECKED: dict[str, Callable[..., Any]] = {
    "(float[...,m,k] x, float[...,k,n] y) -> float[...,m,n]": lambda x, y: x @ y,
    "(float[n] x, float[n+1] y) -> float[n]": lambda x, y: x * (y[1:] + y[:-1]),
    "(float[*b,2*n] x) -> float[*b,n]": lambda x: x[..., ::2] * 2,
    "(float[3,4] x) -> float[()]": lambda x: np.asarray(x.sum()),
    "(float[*#b,n] x, float[*#b,n] y) -> float[*#b,n]": lambda x, y: x * y,
    "(float[n,c,*s] x, float[c] w) -> float[n,c,*s]": lambda x, w: (
        x * w[(slice(None), *(None,) * (x.ndim - 2))]
    ),
    "(uint8[h,w,3] x) -> int[h,w]": lambda x: x.sum(-1, dtype=np.int64),
}


@pytest.mark.parametrize(("schema", "kernel"), CHECKED.items())
def test_opcheck_finds_inputs_of_the_shapes(
    schema: str, kernel: Callable[..., Any]
) -> None:
    """Checks use only inputs that the annotations accept."""
    found = opcheck(define(schema, kernel, "checked"))  # it runs long before the others
    assert {found[name] for name in ("test_schema", "test_faketensor")} == {"SUCCESS"}
    assert found["test_layouts"] == "SUCCESS"
