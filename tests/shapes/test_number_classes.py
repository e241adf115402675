"""Numbers that NumPy makes of symbolic sizes have the class that it gives them.

NumPy itself, on the size of each call, is the oracle: a number of its own classes changes
the dtype of an array beside it, and one of Python does not (NEP 50).
"""

import io
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.shapes.size_context import SizeContext

NAMES = {"np": np, "co": co, "math": math}
LENGTHS = (5, 4, 2, 8)

EXPRESSIONS = [
    "np.minimum(n, 3)",
    "np.maximum(n, 3) * 2",
    "np.add(n, 1) // 2",
    "n + np.int64(1)",
    "np.int64(9) - n",
    "n * np.int32(2)",
    "np.uint8(2) * n",
    "n + np.bool_(True)",
    "n / np.int64(2)",
    "np.float32(2) * n",
    "n * np.float32(0.5) + n",
    "np.float16(2) / n",
    "np.sqrt(n) + 1",
    "np.ceil(n / 2)",
    "n * 0.5",
    "n ** 0.5",
    "2 ** n",
    "np.power(n, 2)",
    "n ** np.int64(2)",
    "np.minimum(n, 3) ** 0.5",
    "-np.minimum(n, 3)",
    "abs(2 - np.minimum(n, 3))",
    "divmod(np.minimum(n, 3), 2)[1]",
    "np.divmod(n, 2)[0]",
    "np.gcd(n, 4)",
    "np.sign(n) + np.reciprocal(n)",
    "np.clip(np.int32(3), 1, n)",
    "np.prod(x.shape)",
    "np.sum(x.shape[1:])",
    "np.max(x.shape) - np.min(x.shape)",
    "np.cumprod(x.shape)[-1]",
    "np.minimum(n, 3).item()",
    "np.minimum(n, 3).astype(np.float32)",
    "np.sqrt(n).item()",
    "np.int64(n)",
    "np.asarray(n)",
    "np.sum([n])",
    "np.add(n, 1, dtype=np.float32)",
    "np.frexp(n)[0]",
    "x.size",
    "np.size(x)",
    "(n << 2) + (n >> 1) + (n & 3) + ~n",
    "(n | 1) + (n ^ 3) + n.numerator",
    "n * np.inf",
    "(n > 3)",
    "(n > 3) + 1",
    "np.equal(n, 5) + 1",
    "np.isfinite(n / 2)",
    "np.exp(2j * np.pi / n)",
    "round(n / 2)",
]

ways: dict[str, Callable[[Any, Any], Any]] = {
    "graph": lambda f, x: co.make_fx(f, "symbolic")(x),
    "file": lambda f, x: reloaded(co.make_fx(f, "symbolic")(x)),
    "text": lambda f, x: run_back(co.make_fx(f, "symbolic")(x)),
    "compile": lambda f, x: co.compile(f),
}


def reloaded(graph: Any) -> Any:
    """A graph after saving and loading."""
    file = io.BytesIO()
    graph.save(file)
    file.seek(0)
    return co.load_graph(file)


def run_back(graph: Any) -> Any:
    """The function of the text of a graph."""
    names: dict[str, Any] = {"constants": graph.named_constants()}
    exec(graph.print_readable(print_output=False), names)
    return names[graph.__name__ if graph.__name__.isidentifier() else "graph"]


def function_of(expression: str) -> Any:
    """A function of an array, in whose first length n there is an expression."""
    return eval(f"lambda x: (lambda n: {expression})(x.shape[0])", {**NAMES})


def array(length: int, dtype: Any) -> Any:
    """An array of small numbers, none of them 0."""
    return (np.arange(3 * length).reshape(length, 3) % 7 + 1).astype(dtype)


def check_as_numpy(f: Any, way: str, dtype: Any, lengths: Any = LENGTHS) -> int:
    """Compare values and dtypes at several lengths; how many the guards let through."""
    captured, count = ways[way](f, array(5, dtype)), 0
    with np.errstate(all="ignore"):
        for length in lengths:
            x = array(length, dtype)
            expected = np.asarray(f(x))
            try:
                found = np.asarray(captured(x))
            except (co.GuardError, co.ShapeError, AssertionError):
                continue
            count += 1
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    return count


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_array_beside_it_has_the_dtype_of_numpy(expression: str) -> None:
    """In graphs, files and text, and in compiled functions from their second size on."""
    f = function_of(f"x * ({expression})")
    for way in ways:
        assert check_as_numpy(f, way, np.float32, (5, 4)) > 0
    assert check_as_numpy(f, "graph", np.int16) > 0


@pytest.mark.parametrize(
    "expression",
    [
        "x[:np.minimum(n, 3)].shape[0] * x",
        "x.reshape(np.prod(x.shape)).shape[0] * x",
        "np.ones(np.maximum(n, 3), like=x).size * x",
        "np.tile(x, np.minimum(n, 2)).shape[-1] * x",
        "np.broadcast_to(x, (np.add(n, 1), *x.shape)).shape[0] * x",
        "co.fori_loop(0, np.minimum(n, 3), lambda i, c: c * 2, x)",
        "x[np.minimum(n - 1, 3)] * n",
        "np.full(x.shape, np.int64(300) * n, x.dtype, like=x)",
        "np.where(x > 1, np.minimum(n, 3), x)",
        "np.arange(np.minimum(n, 3), like=x).sum() * x",
        "co.cond(n > 3, lambda y: y * np.minimum(n, 3), lambda y: y * np.int64(1), x)",
    ],
)
def test_lengths_of_axes_are_numbers_of_python_again(expression: str) -> None:
    """A length that NumPy calculated is an int where it comes back in a shape."""
    for way in ways:
        assert check_as_numpy(function_of(expression), way, np.float32, (5, 4)) > 0
    assert check_as_numpy(function_of(expression), "graph", np.uint8) > 0


def test_sizes_that_numpy_calculates_stay_symbolic() -> None:
    """They are for all sizes, also named ones: no value is asked."""
    names = {"x": ("batch", None)}
    for text in ("np.minimum(n, 3)", "np.prod(x.shape)", "(n > 3)", "np.gcd(n, 2)"):
        graph = co.make_fx(function_of(f"x * {text}"), sizes=names)(array(5, "f4"))
        assert graph.graph.sizes.guards == []


@co.custom_op("test_number_classes::scaled", mutates_args=())
def scaled(
    x: np.ndarray, a: int = 1, b: float = 1.0, c: complex = 1.0, d: co.Scalar = 1
) -> np.ndarray:
    """The classes of the numbers, and what they are."""
    codes = [("int", "float", "complex").index(type(v).__name__) for v in (a, b, c, d)]
    return np.array([*codes, a, b, c.real, d], np.float64)


@scaled.register_fake
def _(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return co.FakeArray((8,), np.float64)


def test_operators_get_numbers_of_the_classes_that_they_declare() -> None:
    """A float parameter gets a float, also where the argument is a size."""

    def f(x: Any) -> Any:
        n = x.shape[0]
        strong = np.minimum(n, 3)
        return np.stack(
            [
                scaled(x, strong, n, n, n),
                scaled(x, n, strong, np.sqrt(n), strong),
                scaled(x, n, np.sqrt(n), n / 2, np.sqrt(n)),
            ]
        )

    for way in ways:
        assert check_as_numpy(f, way, np.float32) == len(LENGTHS)


def test_a_number_of_numpy_has_its_methods() -> None:
    """Those of Python do not."""
    n = SizeContext().input_size(5, "x.shape[0]")
    assert (
        str(np.minimum(n, 3).astype(np.float32)) == "np.float32(np.int64(min(3, s0)))"
    )
    assert (str(np.minimum(n, 3).item()), str((n / 2 * np.float64(1)).item())) == (
        "min(3, s0)",
        "float((s0 / 2) * np.float64(1.0))",
    )
    with pytest.raises(AttributeError) as error:
        n.item()
    assert str(error.value) == (
        "the symbolic s0 is of the class int, which has no attribute 'item'"
    )


# ---- random expressions ----

ATOMS = [
    "n",
    "m",
    "x.size",
    "2",
    "0.5",
    "np.int64(2)",
    "np.float64(0.5)",
    "np.float32(1.5)",
    "np.int32(3)",
    "np.uint8(2)",
    "np.bool_(True)",
    "np.float16(2)",
    "np.prod(x.shape)",
    "len(x.shape)",
]
UNARY = [
    "np.sqrt(abs({}))",
    "np.ceil({})",
    "np.square({})",
    "-({})",
    "abs({})",
    "np.sign({})",
    "np.rint({})",
    "np.sin({})",
    "np.positive({})",
    "int({})",
    "np.float32({})",
    "np.array({})",
    "np.max([{},2])",
]
BINARY = [
    "({}+{})",
    "({}-{})",
    "({}*{})",
    "({}/({}+7))",
    "({}//({}+7))",
    "({}%({}+7))",
    "np.minimum({},{})",
    "np.maximum({},{})",
    "np.add({},{})",
    "np.divide({},{}+7)",
    "np.hypot({},{})",
    "min({},{})",
    "np.remainder({},{}+7)",
    "divmod({},{}+7)[0]",
    "({})**2",
    "np.where({}>{},1,2)",
]
USES = [
    "x*{}",
    "x+{}",
    "{}-x",
    "np.maximum(x,{})",
    "x/({}+9)",
    "np.where(x>1,x,{})",
    "np.stack([x,x*{}])",
    "np.clip(x,0,{})",
    "x.sum()+{}",
    "np.zeros_like(x)+{}",
]


def random_expression(rng: random.Random, depth: int) -> str:
    """An expression of sizes and of numbers of all classes."""
    if depth == 0:
        return rng.choice(ATOMS)
    form = rng.choice(UNARY if rng.random() < 0.4 else BINARY)
    parts = [random_expression(rng, depth - 1) for _ in range(form.count("{}"))]
    return form.format(*parts)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ways)
def test_random_expressions(way: str) -> None:
    """As NumPy at all sizes, or an error of NumPy for numbers out of range."""
    rng, compared = random.Random(7), 0
    for _ in range(60):
        text = random_expression(rng, rng.choice((1, 2, 3)))
        body = rng.choice(USES).format(f"({text})")
        f = function_of(f"(lambda m: {body})(x.shape[1])")
        try:
            with np.errstate(all="ignore"):
                for length in LENGTHS:
                    f(array(length, np.float32))
        except (OverflowError, TypeError):
            continue
        compared += check_as_numpy(f, way, rng.choice((np.float32, np.complex64)))
    assert compared > 100
