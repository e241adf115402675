"""Generators under ``vmap(f, randomness="different")``: each row has numbers of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.transforms.random_draws import _ONE_BY_ONE
from tests.cases import each

X = np.arange(12.0).reshape(4, 3)

# Method -> its parameters.
PARAMETERS: dict[str, tuple[Any, ...]] = {
    "beta": (2.0, 3.0),
    "binomial": (10, 0.3),
    "chisquare": (2.0,),
    "choice": (5,),
    "dirichlet": ([1.0, 2.0],),
    "exponential": (),
    "f": (3.0, 4.0),
    "gamma": (2.0,),
    "geometric": (0.3,),
    "gumbel": (),
    "hypergeometric": (5, 6, 3),
    "integers": (10,),
    "laplace": (),
    "logistic": (),
    "lognormal": (),
    "logseries": (0.5,),
    "multinomial": (5, [0.2, 0.8]),
    "multivariate_hypergeometric": ([3, 4], 2),
    "multivariate_normal": ([0.0, 1.0], np.eye(2)),
    "negative_binomial": (3, 0.4),
    "noncentral_chisquare": (3, 0.5),
    "noncentral_f": (3, 4, 0.5),
    "normal": (),
    "pareto": (2.0,),
    "poisson": (3.0,),
    "power": (2.0,),
    "random": (),
    "rayleigh": (),
    "standard_cauchy": (),
    "standard_exponential": (),
    "standard_gamma": (2.0,),
    "standard_normal": (),
    "standard_t": (3.0,),
    "triangular": (0, 1, 2),
    "uniform": (),
    "vonmises": (0.0, 1.0),
    "wald": (1.0, 1.0),
    "weibull": (2.0,),
    "zipf": (2.0,),
}


def _different(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return co.vmap(fn, (0, None), randomness="different", **options)


def _check_rows(fn: Callable[[Any, Any], Any], batch: np.ndarray = X) -> None:
    """The rows draw what a loop over them draws, and the next draw follows."""
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    out = _different(fn)(batch, rng)
    expected = np.stack([fn(row, again) for row in batch])
    assert out.dtype == expected.dtype
    np.testing.assert_array_equal(out, expected)
    assert rng.normal() == again.normal()


# ---- the numbers ----


def test_all_methods_of_arrays_are_compared() -> None:
    """Those that are left out return no array of draws, or shuffle one."""
    named = {n for n, v in vars(np.random.Generator).items() if callable(v)}
    public = {name for name in named if not name.startswith("_")}
    others = {"bytes", "permutation", "permuted", "shuffle", "spawn"}
    assert public - set(PARAMETERS) == others
    assert set(PARAMETERS) > _ONE_BY_ONE


@pytest.mark.parametrize("method", PARAMETERS)
def test_rows_draw_what_a_loop_draws(method: str) -> None:
    """Every method, for one row too; without a size, where NumPy has Python numbers."""

    def check(size: Any) -> None:
        def fn(x: Any, rng: Any) -> Any:
            return getattr(rng, method)(*PARAMETERS[method], size=size)

        _check_rows(fn)
        _check_rows(fn, X[:1])

    each(check, zip([None, (), 2, (2, 3), (0,)]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "method", ["random", "standard_exponential", "standard_normal"]
)
def test_dtypes_of_floats(method: str, dtype: Any) -> None:
    _check_rows(lambda x, rng: getattr(rng, method)(size=3, dtype=dtype))
    _check_rows(lambda x, rng: getattr(rng, method)(size=(), dtype=dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64, bool])
def test_dtypes_of_integers(dtype: Any) -> None:
    """Short ones come several at a time from one number of the generator."""
    _check_rows(lambda x, rng: rng.integers(2, size=5, dtype=dtype))


FORMS = [
    lambda x, rng: x + rng.normal([1.0, 2.0, 3.0], 2.0),
    lambda x, rng: x * rng.normal(np.zeros(3), [1.0, 2.0, 3.0], size=(2, 3)),
    lambda x, rng: x[rng.permutation(3)],
    lambda x, rng: rng.permuted([[1, 2, 3], [4, 5, 6]], axis=1),
    lambda x, rng: rng.choice(5, size=3, replace=False),
    lambda x, rng: x[rng.choice(3, size=2, p=[0.2, 0.3, 0.5])],
    lambda x, rng: rng.integers(0, [1, 10, 100]),
    lambda x, rng: rng.normal(loc=x.shape[0], size=x.shape),
]


@pytest.mark.parametrize("fn", FORMS, ids=range(len(FORMS)))
def test_parameters_of_other_forms(fn: Callable[[Any, Any], Any]) -> None:
    """Arrays, lists, draws without replacement."""
    _check_rows(fn)


def test_two_draws_of_a_row() -> None:
    """The first for all rows comes before the second, as with random operators."""
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    out = _different(lambda x, g: x + g.normal(size=3) * g.uniform(size=()))(X, rng)
    expected = X + again.normal(size=(4, 3)) * again.uniform(size=(4, 1))
    np.testing.assert_array_equal(out, expected)


def test_no_rows() -> None:
    """Shapes and dtypes are those of rows, and nothing is drawn."""
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    for draw in (
        lambda x, g: g.random(size=(2, 1), dtype=np.float32),
        lambda x, g: g.permutation(4),
        lambda x, g: g.multinomial(5, [0.2, 0.8], size=3),
    ):
        out = _different(draw)(X[:0], rng)
        expected = draw(X[0], np.random.default_rng(0))
        assert (out.shape, out.dtype) == ((0, *expected.shape), expected.dtype)
    assert rng.normal() == again.normal()


def test_chunks_draw_one_after_another() -> None:
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    out = _different(lambda x, g: x + g.normal(size=3), chunk_size=3)(X, rng)
    np.testing.assert_array_equal(out, X + again.normal(size=(4, 3)))


# ---- where the generator comes from ----


def test_generators_in_closures_defaults_and_containers() -> None:
    """Wherever the function itself holds it."""
    rng, expected = np.random.default_rng(3), np.random.default_rng(3)

    def of_default(x: Any, rng: np.random.Generator = rng) -> Any:
        return x + rng.normal(size=3)

    forms: list[Callable[[], Any]] = [
        lambda: co.vmap(lambda x: x + rng.normal(size=3), randomness="different")(X),
        lambda: co.vmap(of_default, randomness="different")(X),
        lambda: _different(lambda x, d: x + d["a"][0].normal(size=3))(X, {"a": [rng]}),
    ]
    for form in forms:
        np.testing.assert_array_equal(form(), X + expected.normal(size=(4, 3)))


def test_operators_get_the_generator_itself() -> None:
    """They may ask for its bits."""
    seen = []

    @co.custom_op("by_row::noise", mutates_args=())
    def noise(rng: np.random.Generator) -> np.ndarray:
        seen.append((type(rng), rng.bit_generator))
        return rng.normal(size=3)

    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    out = _different(lambda x, g: x + noise(g))(X, rng)
    np.testing.assert_array_equal(out, X + again.normal(size=(4, 3)))
    assert {kind for kind, _ in seen} == {np.random.Generator}
    assert seen[-1][1] is rng.bit_generator


def test_after_the_vmap_it_is_a_generator() -> None:
    kept: list[Any] = []
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    _different(lambda x, g: (kept.append(g), x)[1])(X, rng)
    assert isinstance(kept[0], np.random.Generator)
    np.testing.assert_array_equal(kept[0].normal(size=2), again.normal(size=2))


# ---- among other transforms ----


@pytest.mark.parametrize(
    ("outer", "inner", "rows", "columns"),
    [
        ("different", "different", 3, 4),
        ("different", "same", 1, 4),
        ("same", "different", 3, 1),
        ("same", "same", 1, 1),
    ],
)
def test_vmap_in_vmap(outer: Any, inner: Any, rows: int, columns: int) -> None:
    """How many numbers differ within a row and within a column."""

    def row(r: Any, rng: Any) -> Any:
        fn = co.vmap(lambda x: x * 0 + rng.normal(size=()), randomness=inner)
        return fn(r)

    out = co.vmap(row, (0, None), randomness=outer)(X, np.random.default_rng(3))
    assert [len(set(r)) for r in out] == [rows] * 4
    assert [len(set(c)) for c in out.T] == [columns] * 3


@pytest.mark.parametrize(
    ("outer", "inner"), [("different", "error"), ("error", "different")]
)
def test_a_vmap_that_allows_no_draw(outer: Any, inner: Any) -> None:
    """It counts whichever of the two it is."""

    def row(r: Any, rng: Any) -> Any:
        return co.vmap(lambda x: x + rng.normal(size=()), randomness=inner)(r)

    with pytest.raises(co.VmapError, match="randomness='error'"):
        co.vmap(row, (0, None), randomness=outer)(X, np.random.default_rng(3))


def test_gradients() -> None:
    """Of each row, and through the batch: the draws are the factors."""
    factors = np.random.default_rng(3).normal(size=(4, 3))

    def loss(x: Any, rng: Any) -> Any:
        return np.sum(x * x * rng.normal(size=3))

    inside = _different(co.grad(loss))(X, np.random.default_rng(3))
    np.testing.assert_allclose(inside, 2 * X * factors, rtol=1e-15)

    def total(x: Any, rng: Any) -> Any:
        return _different(loss)(x, rng).sum()

    outside = co.grad(total)(X, np.random.default_rng(3))
    np.testing.assert_allclose(outside, 2 * X * factors, rtol=1e-15)


@pytest.mark.parametrize("make", [co.make_fx, co.compile], ids=["make_fx", "compile"])
def test_graphs_draw_whenever_they_run(make: Any) -> None:
    """One draw for all rows."""

    def fn(x: Any, rng: Any) -> Any:
        return _different(lambda r, g: r + g.normal(size=3))(x, rng)

    run = make(fn)(X, np.random.default_rng(0)) if make is co.make_fx else make(fn)
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(2):
        np.testing.assert_array_equal(run(X, rng), X + again.normal(size=(4, 3)))
    if make is co.make_fx:
        drawn = [node for node in run.graph.nodes if "draw" in str(node.target)]
        assert [node.args[2] for node in drawn] == [(4, 3)]


def test_control_flow() -> None:
    """Each row that takes a branch, or a step, has numbers of its own."""
    factors = np.random.default_rng(3).normal(size=(4, 3))

    def chosen(x: Any, rng: Any) -> Any:
        return co.cond(x[0] > 4, lambda v: v + rng.normal(size=3), lambda v: v, x)

    out = _different(chosen)(X, np.random.default_rng(3))
    expected = np.where(X[:, :1] > 4, X + factors, X)
    np.testing.assert_array_equal(out, expected)

    def walk(x: Any, rng: Any) -> Any:
        return co.fori_loop(0, 2, lambda i, v: v + rng.normal(size=3), x)

    again = np.random.default_rng(3)
    steps = [again.normal(size=(4, 3)) for _ in range(2)]
    found = _different(walk)(X, np.random.default_rng(3))
    np.testing.assert_allclose(found, X + steps[0] + steps[1], rtol=1e-15)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("draw", "text"),
    [
        (lambda x, rng: rng.normal(x), "rng.normal() with a traced parameter"),
        (
            lambda x, rng: rng.bytes(3),
            "rng.bytes under vmap(f, randomness='different')",
        ),
        (
            lambda x, rng: rng.bit_generator,
            "rng.bit_generator under vmap(f, randomness='different'): its bits",
        ),
    ],
)
def test_what_has_no_rows_is_an_error(draw: Any, text: str) -> None:
    with pytest.raises(co.VmapError) as caught:
        _different(draw)(X, np.random.default_rng(3))
    assert str(caught.value).startswith(text)
    assert "do: " in str(caught.value)


def test_a_generator_that_the_function_does_not_hold() -> None:
    """A function that it calls has one in its closure, which is seen afterwards."""
    rng = np.random.default_rng(3)

    def noise() -> Any:
        return rng.normal(size=3)

    with pytest.raises(co.VmapError) as caught:
        co.vmap(lambda x: x + noise(), randomness="different")(X)
    assert str(caught.value) == (
        "vmap of <lambda>: the function draws from a Generator, with"
        " randomness='different'\n"
        "  NumPy draws once, so all rows get the same numbers\n"
        "  do: draw from a np.random.Generator that is an argument, with None in in_dims;"
        " or draw a batch outside and pass it"
    )
