"""Schemas that no one writes by intent: errors of the package, never of Python."""

import keyword
import random
import unicodedata
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import customop as co
from customop.core.codegen import RESERVED
from customop.schema.schema import Schema

X = np.ones(2)


def define(schema: str, **kwargs: Any) -> Any:
    """Define an operator and generate its call."""
    with co.Library("hostile", "FRAGMENT") as lib:
        op = co.define("hostile::f", schema, lib=lib, **kwargs)
        assert op.source
        return op.schema


# ---- names as Python reads them ----


FI, CLASS, TYPE = "\ufb01", "\uff43lass", "_\uff54ype"
MICRO, LONG_S, BOLD_X, E_ACUTE = "\xb5", "\u017f", "\U0001d431", "e\u0301"


@pytest.mark.parametrize("name", [FI, MICRO, LONG_S, BOLD_X, "\xe9", E_ACUTE])
def test_names_have_their_normal_form(name: str) -> None:
    """Python reads both forms as one name: in signatures, calls and keywords."""
    normal = unicodedata.normalize("NFKC", name)
    op = co.define("hostile::named", f"(Array {name}, int n=2) -> Array")
    assert op.schema.parameters[0].name == normal
    names: dict[str, Any] = {"np": np}
    exec(f"def kernel({name}, n): return {name} * n", names)
    op.register_kernel("cpu", names["kernel"])
    op.register_autograd(lambda ctx, g: {name: 2 * g, "n": None})
    assert op(**{normal: X}).tolist() == [2.0, 2.0]
    assert eval(f"op({name}=X)", {"op": op, "X": X}).tolist() == [2.0, 2.0]
    assert co.grad(lambda x, op=op: op(x).sum())(X).tolist() == [2.0, 2.0]
    assert Schema.parse(str(op.schema)) == op.schema


def test_two_forms_of_one_name_are_one_name() -> None:
    """Twice one parameter, a keyword, or a name of the generated call is an error."""
    for schema, error in [
        (f"(Array fi, int {FI}) -> Array", "parameter 'fi' appears twice"),
        (f"(Array x, int {CLASS}) -> Array", "'class' is a Python keyword"),
        (f"(Array x, int {TYPE}) -> Array", "'_type' cannot be a name in a call"),
        ("(Array x, int __\uff44ebug__) -> Array", "'__debug__' cannot be a name"),
        (f"(Array x) -> (Array fi, Array {FI})", "result 'fi' appears twice"),
    ]:
        with pytest.raises(co.SchemaError, match=error):
            define(schema)


def test_axes_and_written_arguments_by_either_form() -> None:
    """The name of an int parameter is a length; `mutates_args` names a parameter."""

    def fn(fi: int, x: Annotated[np.ndarray, FI]) -> None:
        x[:] = fi

    op = co.custom_op("hostile::axes", fn, mutates_args=("x",))
    out = np.zeros(3)
    op(3, out)
    assert out.tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(co.ShapeError):
        op(4, out)

    def written(fi: np.ndarray) -> None:
        fi[:] = 1

    assert co.infer_schema(written, mutates_args=(FI,)) == "(Array(a!) fi) -> ()"


# ---- too much of something ----

MANY = "9" * 100_000
TOO_MUCH: dict[str, tuple[str, str]] = {
    "suffixes": ("(Array" + "[]" * 3000 + " x) -> Array", "nested too deeply"),
    "optional": ("(int" + "[]?" * 3000 + " x) -> Array", "nested too deeply"),
    "tuples": ("(" + "(" * 3000 + "int" + ",)" * 3000 + " x) -> Array", "too deeply"),
    "dicts": ("(" + "Dict(str, " * 999 + "int" + ")" * 999 + " x) -> ()", "too deeply"),
    "result": ("(Array x) -> Array" + "[]" * 3000, "nested too deeply"),
    "length of a list": (f"(int[{MANY}] x) -> Array", "999,999 items at most"),
    "items of a default": ("(int[10000000] x=1) -> Array", "999,999 items at most"),
    "length of an axis": (f"(Array[{MANY},] x) -> Array", "is not a length"),
    "long axis": ("(Array[9223372036854775808,] x) -> ()", "longer than any array"),
    "long product": ("(Array[9223372036854775807*9,] x) -> ()", "than any array"),
    "long sum": (f"(Array[{'n+' * 50_000}n,] x) -> ()", "is not a length"),
    "default": (f"(Array y, int x={MANY}) -> Array", "does not fit int"),
    "choice": (f"(Array y, int{{{MANY}}} x) -> Array", "the choice"),
    "name": (f"(Array x, int {'n' * 100_000}", "no '->'"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_too_much_of_something(case: str) -> None:
    """The message shows the place of the fault, and not all of the text."""
    schema, what = TOO_MUCH[case]
    with pytest.raises(co.SchemaError) as caught:
        define(schema)
    text = str(caught.value)
    assert what in text
    assert len(text) < 2000


def _long_default(x: np.ndarray, n: int = 10**5000) -> np.ndarray: ...
def _long_literal(x: np.ndarray, n: Literal[10**5000]) -> np.ndarray: ...  # type: ignore[valid-type]
def _empty(x: "") -> np.ndarray: ...  # type: ignore[syntax]  # noqa: F722
def _blank(x: np.ndarray) -> " ": ...  # type: ignore[syntax]  # noqa: F722
def _raising(x: "1 / 0") -> np.ndarray: ...  # type: ignore[valid-type]


def _deep(x: Any) -> np.ndarray: ...


def _deep_hint() -> Any:
    hint: Any = int
    for _ in range(90):
        hint = list[hint]
    return hint


_deep.__annotations__["x"] = _deep_hint()


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (_long_default, "has the default <int object>: a number in a schema must have"),
        (_long_literal, "give numbers of at most 64 bits"),
        (_empty, "parameter 'x' has an empty annotation"),
        (_blank, "the result has an empty annotation"),
        (_raising, "an annotation cannot be evaluated: division by zero"),
        (_deep, "parameter 'x' has an annotation that is nested too deeply"),
    ],
)
def test_hints_that_cannot_be(fn: Callable[..., Any], what: str) -> None:
    """The function and its parameter are named."""
    with pytest.raises(co.SchemaError) as caught:
        co.infer_schema(fn, mutates_args=())
    assert what in str(caught.value)
    assert fn.__name__ in str(caught.value)


# ---- lone surrogates ----


def test_lone_surrogates_can_be_printed_and_read_back() -> None:
    """As escapes: files and terminals cannot hold them."""
    for text in ["\ud800", "a\udfff", "\ud83d\ude00", "'\"\\\udc00\n"]:
        schema = Schema.parse(f"(Array x, str{{{text!r}, 'b'}} s={text!r}) -> Array")
        assert schema.parameters[1].default == text
        str(schema).encode()
        assert Schema.parse(str(schema)) == schema
    for schema_text in ["(Array x\ud800) -> Array", "(\udfff x) -> Array"]:
        with pytest.raises(co.SchemaError) as caught:
            define(schema_text)
        str(caught.value).encode()


# ---- random texts ----

WORDS = [
    *"()[]{},=?*/!#.:'\"\\ -><+|_0123\n\t\0",
    *(
        "Array",
        "Tensor",
        "int",
        "float",
        "str",
        "Scalar",
        "dtype",
        "device",
        "Generator",
    ),
    *(
        "->",
        "a!",
        "(a!)",
        "...",
        "*batch",
        "Dict(str,",
        "|Scalar",
        "None",
        "True",
        "nan",
    ),
    *("[]", "[3]", "[m,k]", "{1, 2}", "=1", "='a'", "x", "y", "n", FI, MICRO, CLASS),
    *("\ud800", "\u200b", "\u202e", "é", "e\u0301", "²", "\uff11", "…", "\x85", "😀"),
    *("np.x", "os.path", "<locals>", "__init__", "lambda", "9" * 30, "1e999", "0x1F"),
    *(random.Random(0).sample(keyword.kwlist, 5)),
    *RESERVED,
]
VALID = [
    "(Array x) -> Array",
    "(Array(a!) x, int y=1, *, float? z=None) -> ()",
    '(Array[] x, str{"a", "b"} mode="a", /) -> (Array, Array)',
    "(float[m,k] x, int[2] s=1, dtype d=float32) -> float[m]",
    "(Dict(str, Array) d, (int, float)? p=None) -> Array",
    "(Array|Scalar x, device? device=None, bool b=True) -> (Array out, int n)",
]


def _mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.randrange(4)):
        i = rng.randrange(len(text) + 1)
        j = i + rng.choice((0, 0, 1, 2, 9))
        text = text[:i] + rng.choice([*WORDS, "", "", text[:i][-7:]]) + text[j:]
    return text


def _text(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return _mutated(rng, rng.choice(VALID))
    inside = "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 12)))
    return rng.choice(["({}) -> Array", "(Array x) -> {}", "{}"]).format(inside)


@pytest.mark.exhaustive
def test_random_texts() -> None:
    """Each is an error that can be printed, or a schema that can be read back and called."""
    rng = random.Random(5)
    read = 0
    for _ in range(8000):
        text = _text(rng)
        try:
            schema = define(text)
        except (co.SchemaError, co.RegistrationError) as error:
            str(error).encode()
            continue
        read += 1
        str(schema).encode()
        assert Schema.parse(str(schema)) == schema, text
        assert all(unicodedata.is_normalized("NFKC", p.name) for p in schema.parameters)
    assert read > 500
