"""Draws with traced parameters, and draws inside vmap where rows should differ."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.refusals import instead_of_draw

X = np.arange(6.0).reshape(2, 3)
RNG = np.random.default_rng(7)


@co.custom_op("draws::noise", mutates_args=(), tags=co.Tag.nondeterministic_seeded)
def noise(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw from a generator that is an argument."""
    return rng.normal(size=n)


# ---- rows that should differ ----


@pytest.mark.parametrize("source", [np.random, np.random.RandomState(1)])
def test_a_draw_from_the_older_generators_is_an_error(source: Any) -> None:
    """``np.random`` and RandomState draw once for all rows."""
    with pytest.raises(co.VmapError, match="with randomness='different'"):
        co.vmap(lambda x: x + source.normal(), randomness="different")(X)


@pytest.mark.filterwarnings("ignore:draws..noise has no vmap rule")
def test_operators_may_draw() -> None:
    """They draw for each row, from the same generator."""
    out = co.vmap(lambda x: x + noise(RNG, 3), randomness="different")(X)
    assert not np.allclose(out[0] - X[0], out[1] - X[1])


@pytest.mark.filterwarnings("ignore:draws..noise has no vmap rule")
@pytest.mark.parametrize("is_first", [True, False])
def test_a_draw_before_or_after_an_operator(is_first: bool) -> None:
    """The states are compared between the calls of operators."""

    def fn(x: Any) -> Any:
        before = RNG.normal() if is_first else 0.0
        y = x + noise(RNG, 3) + before
        return y if is_first else y + RNG.normal()

    with pytest.raises(co.VmapError, match="draws from a Generator"):
        co.vmap(fn, randomness="different")(X)


def test_chunks_of_rows_draw_the_same() -> None:
    """With randomness='same', also where the batch is run in several calls."""
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    fn = co.vmap(lambda x: x * 0.0 + rng.normal(), randomness="same", chunk_size=2)
    np.testing.assert_array_equal(fn(np.zeros(5)), np.full(5, again.normal()))
    assert rng.normal() == again.normal()


# ---- traced parameters ----

DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "normal": lambda rng, x: rng.normal(x, 2.0),
    "uniform": lambda rng, x: rng.uniform(0.0, high=x),
    "integers": lambda rng, x: rng.integers(0, x),
    "poisson": lambda rng, x: rng.poisson(np.exp(x)),
    "beta": lambda rng, x: rng.beta(x, x),
    "choice": lambda rng, x: rng.choice(x),
    "permutation": lambda rng, x: rng.permutation(x),
    "permuted": lambda rng, x: rng.permuted(x),
}


@pytest.mark.parametrize("method", DRAWS)
def test_the_error_says_what_to_write(method: str) -> None:
    """It knows the method, by the expression that the user calls."""
    fn = DRAWS[method]
    for run in (co.grad, lambda f: co.vmap(f, randomness="same")):
        with pytest.raises(co.DataDependentError) as caught:
            run(lambda x: np.sum(fn(RNG, x)))(X)
        assert str(caught.value).startswith(
            f"{method}() of a random generator is given "
        )
        assert f"do: use {instead_of_draw(method)}" in str(caught.value)


@pytest.mark.usefixtures("unadapted")
def test_other_calls_keep_their_advice() -> None:
    """A NumPy kernel, also beside a draw in one line."""
    with pytest.raises(co.DataDependentError, match="NumPy kernel, is given"):
        co.grad(lambda x: RNG.normal() + np.sum(np.asarray(x)))(X)


LOC, SCALE, A = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.3, 2.0]), np.array(1.7)
COV = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]])
# Method -> its parameters, by the names of the advice.
PARAMETERS: dict[str, dict[str, Any]] = {
    **{name: {"loc": LOC, "scale": SCALE} for name in ("normal", "laplace")},
    **{name: {"loc": LOC, "scale": SCALE} for name in ("gumbel", "logistic")},
    **{name: {"scale": SCALE} for name in ("exponential", "rayleigh")},
    **{name: {"a": A + LOC**2} for name in ("weibull", "pareto", "power")},
    "uniform": {"low": LOC, "high": LOC + SCALE},
    "lognormal": {"mean": LOC, "sigma": SCALE},
    "multivariate_normal": {"mean": LOC, "cov": COV},
}


def _moved(method: str, given: dict[str, Any]) -> Any:
    """Run what the advice says, with a seed."""
    rng = np.random.default_rng(5)
    values = {"np": np, "rng": rng, "shape": (3,), **given}
    return eval(str(instead_of_draw(method)), values)  # our own text


@pytest.mark.parametrize("method", PARAMETERS)
def test_what_the_error_says_draws_the_same(method: str) -> None:
    """The formula of the advice gives the numbers of the method, and derivatives."""
    given = PARAMETERS[method]
    extra = {"method": "cholesky"} if method == "multivariate_normal" else {}
    expected = getattr(np.random.default_rng(5), method)(**given, **extra)
    np.testing.assert_allclose(_moved(method, given), expected, rtol=1e-12)


@pytest.mark.parametrize("method", [m for m in PARAMETERS if m[0] != "m"])
def test_what_the_error_says_has_derivatives(method: str) -> None:
    """By each parameter, as central differences of NumPy's own draws."""
    given = PARAMETERS[method]
    for name, value in given.items():
        slopes = co.jvp(
            lambda v, name=name: _moved(method, {**given, name: v}),
            (value,),
            (np.ones_like(value),),
        )[1]
        ends = [
            getattr(np.random.default_rng(5), method)(**{**given, name: value + step})
            for step in (1e-6, -1e-6)
        ]
        np.testing.assert_allclose(slopes, (ends[0] - ends[1]) / 2e-6, rtol=1e-5)


# ---- shuffling ----


@pytest.mark.filterwarnings("ignore:you are shuffling a")
def test_rows_of_a_traced_array_are_not_shuffled() -> None:
    """NumPy swaps them as views, which would lose some."""

    def fn(x: Any) -> Any:
        y = x * 1.0
        RNG.shuffle(y)
        return np.sum(y)

    with pytest.raises(co.ArgumentError) as caught:
        co.grad(fn)(X)
    assert str(caught.value) == (
        "shuffle() of a random generator swaps rows of GradTracer f64[2, 3], which are"
        " views of it\n"
        "  do: use x[...] = x[rng.permutation(len(x))]"
    )


@pytest.mark.filterwarnings("ignore:you are shuffling a")
def test_a_line_is_shuffled_in_place() -> None:
    """Its elements are numbers, so NumPy's swaps are right."""
    weights = np.array([1.0, 10.0, 100.0, 1000.0])

    def fn(x: Any, seed: int) -> Any:
        y = x * 1.0
        np.random.default_rng(seed).shuffle(y)
        return np.sum(y * weights)

    for seed in range(3):
        x = np.arange(4.0)
        gradient = co.grad(lambda v, seed=seed: fn(v, seed))(x)
        assert gradient @ x == pytest.approx(fn(x, seed))


def test_rows_may_be_swapped_by_hand() -> None:
    """As NumPy does it: the second name is a view, too."""

    def fn(x: Any) -> Any:
        y = x * 1.0
        y[0], y[1] = y[1], y[0]
        return y

    np.testing.assert_array_equal(co.vjp(fn, X)[0], fn(X))


IMPORTS = """
import random
import sys
import numpy as np
import customop as co

rows = np.arange(3.0)
assert "numpy.random" not in sys.modules
name = "".join(["ran", "dom"])  # which the walk to the generators does not see
found = co.vmap(lambda x: x * len(getattr(np, name).__name__))(rows)
assert "numpy.random" in sys.modules
assert (found == rows * 12).all(), found
"""
IMPORTS_AND_DRAWS = """
import random
import sys
import numpy as np
import customop as co

assert "numpy.random" not in sys.modules
try:
    co.vmap(lambda x: x + np.random.default_rng().normal())(np.arange(3.0))
except co.VmapError as error:
    assert "draws from" in str(error), error
else:
    raise AssertionError("a draw is not noticed")
"""


@pytest.mark.parametrize("code", [IMPORTS, IMPORTS_AND_DRAWS])
def test_the_import_of_the_generators_is_no_draw(code: str) -> None:
    """NumPy imports them at their first use, and its global one takes a seed then."""
    subprocess.run([sys.executable, "-c", code], check=True)
