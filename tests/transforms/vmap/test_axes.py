"""vmap: axes of arguments and results, rules, nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import customop as co
from customop import vmap
from tests.transforms.vmap._operators import (
    RNG,
    X,
    Y,
    define,
    looped,
    loops,
    rows,
)

# ---- axes of the arguments ----


@st.composite
def cases(draw: Any) -> Any:
    """Arrays with a batch axis anywhere, and where it goes in the result."""
    size, rank = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    row = [draw(st.integers(0, 3)) for _ in range(rank)]
    batches, in_dims = [], []
    for _ in range(2):
        axis = draw(st.integers(0, rank))
        x = RNG.normal(size=(size, *row))
        batches.append(np.moveaxis(x, 0, axis))
        in_dims.append(axis - (rank + 1 if draw(st.booleans()) else 0))
    return batches, tuple(in_dims), draw(st.integers(-rank - 1, rank))


ruled = define("(Array x, Array y, float k=2.0) -> Array", lambda x, y, k: x * k + y)


@ruled.register_vmap
def _(info: Any, in_dims: Any, x: Any, y: Any, k: Any) -> Any:
    x, y = (
        v if d is None else np.moveaxis(v, d, 0)
        for v, d in zip((x, y), in_dims[:2], strict=True)
    )
    return ruled(x, y, k), 0


@loops
@pytest.mark.parametrize("op", [looped, ruled], ids=["loop", "rule"])
@given(cases())
@settings(deadline=None)
def test_axes(op: Any, case: Any) -> None:
    """Any axes in and out give what a plain loop gives."""
    (x, y), in_dims, out_dim = case
    out = vmap(op, in_dims=in_dims, out_dims=out_dim)(x, y)
    a, b = (np.moveaxis(v, d, 0) for v, d in zip((x, y), in_dims, strict=True))
    expected = rows(lambda a, b: a * 2.0 + b, a, b)
    np.testing.assert_array_equal(out, np.moveaxis(expected, 0, out_dim))


TREES = {
    "dict": (lambda d: d["a"] * d["b"], ({"a": 0, "b": 1},), ({"a": X, "b": Y},)),
    "list": (lambda v: v[0] * v[1], ([0, 1],), ([X, Y],)),
    "tuple": (lambda v: v[0] * v[1], ((0, 1),), ((X, Y),)),
    "list of dims": (lambda a, b: a * b, [0, 1], (X, Y)),
    "prefix": (lambda v, b: v["p"] * v["q"][0] * b, (0, 1), ({"p": X, "q": [X]}, Y)),
    "None inside": (lambda v: v[0] * v[1], ([0, None],), ([X, Y[:, 0]],)),
    "None leaf": (lambda v, w: v * 1, 0, (X, None)),
    "negative": (lambda a, b: a * b, (-2, -1), (X, Y)),
    "constants": (lambda a, k, s: a * k, (0, None, None), (X, 2.0, "text")),
}


@pytest.mark.parametrize("name", TREES)
def test_axes_over_pytrees(name: str) -> None:
    """in_dims is a prefix of the arguments."""
    fn, in_dims, args = TREES[name]
    other = {
        "list of dims": X * Y.T,
        "dict": X * Y.T,
        "list": X * Y.T,
        "tuple": X * Y.T,
        "negative": X * Y.T,
        "prefix": X * X * Y.T,
        "None inside": X * Y[:, 0],
        "None leaf": X,
        "constants": X * 2,
    }
    np.testing.assert_allclose(vmap(fn, in_dims=in_dims)(*args), other[name])


def test_keyword_arrays_are_batched_along_axis_0() -> None:
    """Also those within a dict."""
    out = vmap(lambda a, *, b: a + b["c"])(X, b={"c": X})
    np.testing.assert_array_equal(out, 2 * X)


# Keyword argument -> what a row of it is at index i.
KEYWORDS = {
    "float": (2.0, lambda i: 2.0),
    "bool": (True, lambda i: True),
    "NumPy scalar": (np.float64(2.0), lambda i: 2.0),
    "array": (X, lambda i: X[i]),
    "numbers within": ([2.0, 3.0], lambda i: np.array([2.0, 3.0])[:, None]),
    "both within": ([X, 2.0], lambda i: np.stack([X[i], np.full(3, 2.0)])),
}


@pytest.mark.parametrize("name", KEYWORDS)
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_keyword_arguments(name: str, chunk_size: int | None) -> None:
    """Arrays are batched; values without axes are the same for all rows."""
    value, at = KEYWORDS[name]
    fn = vmap(
        lambda x, *, k: x * (sum(k) if type(k) is list else k), chunk_size=chunk_size
    )
    expected = [
        X[i] * (at(i).sum(axis=0) if type(value) is list else at(i))
        for i in range(len(X))
    ]
    np.testing.assert_allclose(fn(X, k=value), np.stack(expected))


def test_keywords_that_are_no_numbers() -> None:
    """A string or None is passed to the function, as for one row."""
    fn = vmap(
        lambda x, *, how="sum", k=None: np.sum(x) if how == "sum" and k is None else x
    )
    np.testing.assert_allclose(fn(X, how="sum", k=None), X.sum(axis=1))
    np.testing.assert_array_equal(fn(X, how="keep"), X)


@pytest.mark.exhaustive
def test_keyword_arrays_as_jax_has_them() -> None:
    """An array by keyword is batched, which jax.vmap does and torch.vmap does not."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    k = np.array([1.0, 2.0, 3.0, 4.0])
    theirs = jax.vmap(lambda x, k: x * k)(X, k=k)
    np.testing.assert_allclose(vmap(lambda x, k: x * k)(X, k=k), theirs, rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("k", [2.0, True, "twice", None])
def test_keyword_constants_as_torch_has_them(k: Any) -> None:
    """A keyword argument that is not an array is passed on, as by torch.vmap."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def fn(x: Any, k: Any) -> Any:
        return x * 2.0 if k == "twice" or k is None else x * k

    theirs = torch.vmap(fn)(torch.tensor(X), k=k).numpy()
    np.testing.assert_array_equal(vmap(fn)(X, k=k), theirs)


def test_keywords_alone_batch() -> None:
    """A keyword array gives the number of rows where nothing else is batched."""
    out = vmap(lambda x, *, k: x + k, in_dims=None)(1.0, k=X)
    np.testing.assert_array_equal(out, 1.0 + X)


BAD_AXES = [
    ((0, 2), (X, X), r"in_dims is 2 for an array of shape \(4, 3\)"),
    ((0, -3), (X, X), "in_dims is -3"),
    (
        0,
        (X, Y),
        r"batches of different lengths: f64\[4, 3\] along 0, f64\[3, 4\] along 0",
    ),
    ((None, None), (X, X), "no argument is batched"),
    (None, (X, X), "no argument is batched"),
    (0, (X, 2.0), r"in_dims is 0 for float 2.0, which has no axes"),
    (0, (X, "s"), "which has no axes"),
    (0, (X, np.float64(1)), r"array of shape \(\)"),
    (0, ([1.0, 2.0], X), "which has no axes"),
    ((0,), (X, X), "in_dims has 1 entries, the call 2"),
    (({"a": 0}, 0), ({"a": X, "b": X}, X), "do not fit"),
    (([0, 0], 0), ((X, X), X), "do not fit"),
    ("0", (X, X), "'0' in in_dims is not an axis"),
    (0.0, (X, X), "0.0 in in_dims is not an axis"),
    (True, (X, X), "True in in_dims is not an axis"),
    (0.0, (X,), "0.0 in in_dims is not an axis"),
    (False, (X,), "False in in_dims is not an axis"),
    (0, (), "no argument is batched"),
    (0, (np.array(1.0),), r"array of shape \(\)"),
]


@pytest.mark.parametrize("index", range(len(BAD_AXES)))
def test_bad_axes(index: int) -> None:
    """Axes that do not fit are a VmapError that shows what was given, in short."""
    in_dims, args, said = BAD_AXES[index]
    with pytest.raises(co.VmapError, match=said) as caught:
        vmap(lambda *args: args[0], in_dims=in_dims)(*args)
    assert "array(" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_function_must_be_callable() -> None:
    """Anything but a function is refused at once."""
    with pytest.raises((co.VmapError, TypeError)):
        vmap(3)  # type: ignore[arg-type]


# ---- axes of the results ----


def test_results_over_pytrees() -> None:
    """out_dims is a prefix of the results; a result with None is returned once."""
    out = vmap(
        lambda a: {"p": (a, np.sum(a)), "q": [a * 2], "r": 3.0},
        out_dims={"p": (1, 0), "q": -1, "r": None},
    )(X)
    np.testing.assert_array_equal(out["p"][0], X.T)
    np.testing.assert_allclose(out["p"][1], X.sum(1))
    np.testing.assert_array_equal(out["q"][0], 2 * X.T)
    assert out["r"] == 3.0


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_result_without_a_batch_is_repeated(dim: int) -> None:
    """A result that is the same for all rows is given once for each."""
    out = vmap(lambda a: Y, out_dims=dim)(X)
    np.testing.assert_array_equal(out, np.stack([Y] * 4, axis=dim))


def test_numbers_are_repeated() -> None:
    """Python numbers are allowed as results, and None stays None."""
    out = vmap(lambda a: (2.5, True, None))(X)
    assert (out[0].tolist(), out[1].tolist(), out[2]) == ([2.5] * 4, [True] * 4, None)


BAD_RESULTS = [
    (lambda a: a, None, "out_dims is None for a result that differs"),
    (lambda a: a, 2, "out_dims is 2 for a row of 1 axes"),
    (lambda a: a, -3, "out_dims is -3"),
    (lambda a: Y, 3, "out_dims is 3"),
    (lambda a: "s", 0, "returned str 's', must be arrays"),
    (lambda a: (a, a), (0, 0, 0), "do not fit"),
    (lambda a: a, (0,), "do not fit"),
    (lambda a: a, "x", "out_dims is 'x'"),
    (lambda a: a, 0.0, "out_dims is 0.0"),
    (lambda a: a, True, "out_dims is True"),
]


@pytest.mark.parametrize("index", range(len(BAD_RESULTS)))
def test_bad_results(index: int) -> None:
    """Results that out_dims does not fit are a VmapError, without their data."""
    fn, out_dims, said = BAD_RESULTS[index]
    with pytest.raises(co.VmapError, match=said) as caught:
        vmap(fn, out_dims=out_dims)(X)
    assert "array(" not in str(caught.value)


def test_failure_inside_leaves_nothing_open() -> None:
    """An exception of the function is raised, and random operators work after it."""
    op = define("(int n, Generator g) -> Array", lambda n, g: g.normal(size=n))
    with pytest.raises(ZeroDivisionError):
        vmap(lambda a: 1 / 0)(X)
    assert op(2, np.random.default_rng(0)).shape == (2,)


def test_leaked_row() -> None:
    """A row kept after its vmap has ended is an error that names it."""
    kept = []
    vmap(lambda a: kept.append(a) or a)(X)
    with pytest.raises(co.LeakedTracerError, match="vmap"):
        kept[0] + 1


# ---- rules ----


def test_rule_gets_whole_arrays_and_axes() -> None:
    """A rule sees the batch, the axes nested as the arguments are, and the size."""
    got: list[Any] = []
    op = define(
        "(Array x, Array[] y, Array? z=None, int[] n=[1]) -> Array",
        lambda x, y, z, n: x * 1,
    )

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Any, y: Any, z: Any, n: Any) -> Any:
        got.append((info.batch_size, info.randomness, in_dims[:3], x, y, z, n))
        return x, in_dims[0]

    vmap(op, in_dims=(1, [0, None], None, None))(Y, [X, X], None, (2, 3))
    ((size, randomness, dims, x, y, z, n),) = got
    assert (size, randomness, dims) == (4, "error", (1, [0, None], None))
    assert x is Y
    assert y[0] is X
    # One array for all rows may be read only.
    assert y[1].base is X
    assert not y[1].flags.writeable
    assert (z, n) == (None, [2, 3])


def test_rule_of_keyword_only_parameters() -> None:
    """They come by name, with their axes after those of the positional ones."""
    op = define(
        "(Array x, *, Array y, float k=2.0) -> Array", lambda x, *, y, k: x * y * k
    )

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Any, *, y: Any, k: Any) -> Any:
        assert in_dims[:2] == (0, 1)
        return op(x, y=np.moveaxis(y, in_dims[1], 0), k=k), 0

    out = vmap(lambda a, b: op(a, y=b), in_dims=(0, 1))(X, Y)
    np.testing.assert_array_equal(out, X * Y.T * 2)


def test_rule_is_skipped_where_nothing_is_batched() -> None:
    """An operator on constants runs its kernel, once."""
    calls = []
    op = define("(Array x) -> Array", lambda x: calls.append(1) or x * 2)
    op.register_vmap(lambda info, in_dims, x: pytest.fail("called"))
    out = vmap(lambda a: a + op(X[0]))(X)
    np.testing.assert_array_equal(out, X + 2 * X[0])
    assert calls == [1]


BAD_RULES = [
    ("Array", lambda x: x, "instead of a pair"),
    ("Array", lambda x: (x, 0, 1), "instead of a pair"),
    ("Array", lambda x: [x, 0], "instead of a pair"),
    ("Array", lambda x: (x, (0,)), r"out_dims=\(0,\)"),
    ("Array", lambda x: (x, 5), "out_dims=5"),
    ("Array", lambda x: (x, -3), "out_dims=-3"),
    ("Array", lambda x: (x, 1), "but the batch has 4 rows"),
    ("Array", lambda x: (x, "0"), "out_dims='0'"),
    ("Array", lambda x: (x, True), "out_dims=True"),
    ("Array", lambda x: (3.0, 0), "rule return"),
    ("Array", lambda x: (3.0, None), "rule return"),
    ("Array", lambda x: (None, None), "rule return"),
    ("Array", lambda x: ((x, x), (0, 0)), "rule return"),
    ("(Array, Array)", lambda x: ((x, x), (0,)), r"out_dims=\(0,\)"),
    ("(Array, Array)", lambda x: ((x, x), 0), "out_dims=0 for 2 outputs"),
    ("(Array, Array)", lambda x: ((x, x, x), (0, 0, 0)), "rule return"),
    ("(Array, Array)", lambda x: (x, 0), "rule return"),
    ("Array[]", lambda x: (x, 0), "rule return"),
    ("()", lambda x: (x, 0), "rule return"),
]


@pytest.mark.parametrize("index", range(len(BAD_RULES)))
def test_bad_rule(index: int) -> None:
    """The result of a rule is checked; the error names the place of the rule."""
    returns, answer, said = BAD_RULES[index]
    op = define(f"(Array x) -> {returns}", lambda x: None)
    op.register_vmap(lambda info, in_dims, x: answer(x))
    with pytest.raises(co.ContractError, match=said) as caught:
        vmap(op)(X)
    assert "test_axes.py" in str(caught.value)
    assert caught.value.op == op.qualname


def test_rule_with_an_unbatched_result() -> None:
    """None in out_dims marks a result that is the same for all rows."""
    op = define("(Array x) -> (Array, Array)", lambda x: (x * 1, x * 0))
    op.register_vmap(lambda info, in_dims, x: ((x.T * 1, X[0] * 0), (-1, None)))
    first, second = vmap(op)(X)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, X * 0)


def test_rule_replaces_the_loop_at_once() -> None:
    """A rule registered after the loop has run is used, and can be replaced."""
    op = define("(Array x) -> Array", lambda x: x * 1)
    with pytest.warns(co.CustomOpWarning):
        vmap(op)(X)
    op.register_vmap(lambda info, in_dims, x: (x * 2, 0))
    np.testing.assert_array_equal(vmap(op)(X), 2 * X)
    op.register_vmap(lambda info, in_dims, x: (x * 3, 0), override=True)
    np.testing.assert_array_equal(vmap(op)(X), 3 * X)


# ---- nesting ----

product = define("(Array x, Array y) -> Array", lambda x, y: x @ y)
product.register_autograd(
    lambda ctx, g: (g * ctx.saved_arrays[1], g * ctx.saved_arrays[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@loops
def test_nested_over_different_axes() -> None:
    """Three nested levels over different axes give one product of matrices."""
    a, b = RNG.normal(size=(2, 3, 5)), RNG.normal(size=(3, 7))
    inner = vmap(product, in_dims=(None, 1))
    middle = vmap(inner, in_dims=(1, None), out_dims=1)
    out = vmap(middle, in_dims=(0, None), out_dims=-1)(a, b)
    expected = np.einsum("bpi,pj->jib", a, b)
    np.testing.assert_allclose(out, expected)


@loops
def test_inner_batch_of_an_outer_constant() -> None:
    """An inner vmap may batch what the outer one does not, and the other way round."""
    out = vmap(lambda a: vmap(lambda b: product(a, b))(X))(X)
    np.testing.assert_allclose(out, X @ X.T)


@loops
def test_gradient_of_a_looped_operator_under_vmap() -> None:
    """Both grad inside vmap and vmap inside grad agree with the formula."""
    v = Y[:, 0]
    inner = vmap(co.grad(product), in_dims=(0, None))(X, v)
    np.testing.assert_allclose(inner, np.broadcast_to(v, X.shape))
    outer = co.grad(lambda x: np.sum(vmap(product, in_dims=(0, None))(x, v)))(X)
    np.testing.assert_allclose(outer, np.broadcast_to(v, X.shape))


@loops
def test_jacobian_of_a_looped_operator() -> None:
    """A batched backward pass uses loops where there is no rule."""
    square = define("(Array x) -> Array", lambda x: x * x)
    square.register_autograd(
        lambda ctx, g: 2 * g * ctx.x,
        setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]),
    )
    np.testing.assert_allclose(co.jacrev(square)(X[0]), np.diag(2 * X[0]))
