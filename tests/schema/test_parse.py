"""Schema strings."""

from __future__ import annotations

from typing import Any

import pytest

import customop as co

pytestmark = pytest.mark.usefixtures("built_in_kinds")


# ---- the grammar ----


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("() -> ()", None),
        ("(Tensor x)->Tensor", "(Array x) -> Array"),
        (
            "  ( Array x ,\n int  y = 1 )  ->  ( Array )  ",
            "(Array x, int y=1) -> Array",
        ),
        ("(Array(a!) x, int y=1, *, float? z=None) -> (Array, Array)", None),
        ("(Array(a) x) -> Array(a)", None),
        ("(Array(a!)[] x) -> ()", None),
        ("(Array?[]? x) -> Array?", None),
        ("(Array(a!)?[]? x) -> ()", None),
        ("((Array(a!), int) x) -> ()", None),
        ("((int, Array(a!)) x) -> ()", None),
        ("(Array|Scalar x, Array(a!)|Scalar? y) -> ()", None),
        ("(Array[3] x, int[2] s=1) -> ()", "(Array[3] x, int[2] s=[1, 1]) -> ()"),
        ("(int x, /, int y, *, int z) -> ()", None),
        ("(int x, int y, /) -> ()", None),
        ("(*, Array out) -> Array", None),
        ("(Array x) -> (Array,)", None),
        ("(Array x) -> (Array, int,)", "(Array x) -> (Array, int)"),
        ("(Array x) -> ((Array, int))", None),
        ("(Array x) -> ((Array, int), Array[])", None),
        ("(Array x) -> (Array out)", None),
        ("(Array x) -> Array out", "(Array x) -> (Array out)"),
        ("(Array x) -> (Array values, Array indices)", None),
        (
            "(SymInt n, ScalarType d, Device v) -> ()",
            "(int n, dtype d, device v) -> ()",
        ),
        ("(str s='a, (b', str t=\"->\") -> ()", '(str s="a, (b", str t="->") -> ()'),
        ('(str s="a\\", (b", str t="\\\\") -> ()', None),
        ("(bool a=true, bool b=false) -> ()", "(bool a=True, bool b=False) -> ()"),
        ("(float x=inf, float y=-inf, float z=nan) -> ()", None),
        ('(dtype d="float64") -> ()', "(dtype d=float64) -> ()"),
        ("(dtype d=[('a', '<f8'), ('b', '<i4', (2,))]) -> ()", None),
        ("(Generator? g=None) -> ()", None),
    ],
)
def test_a_schema_string_is_read_and_printed(text: str, printed: str | None) -> None:
    """Torch's grammar is read; what is printed reads as the same schema."""
    schema = co.Schema.parse(text)
    assert str(schema) == (text if printed is None else printed)
    assert co.Schema.parse(str(schema)) == schema


TYPES = (
    "known: Array, Tensor, Array|Scalar, int, SymInt, float, bool, complex, str,"
    " Scalar, dtype, ScalarType, device, Device, Generator"
)

# A schema string, what is wrong with it, and where: place and number of carets.
FAULTS = [
    ("", "no '->' before the results", 0, 1),
    ("(Array x", "no '->' before the results", 8, 1),
    ("(Array x) Array", "no '->' before the results", 15, 1),
    ("(int[] s=[1) -> ()", "no '->' before the results", 18, 1),
    ("->", "the parameters must be in parentheses", 0, 1),
    ("Array x -> Array", "the parameters must be in parentheses", 0, 1),
    ("f(Array x) -> Array", "the parameters must be in parentheses", 0, 1),
    ("(Array x,) -> Array", "a parameter is missing here", 9, 1),
    ("(, Array x) -> Array", "a parameter is missing here", 1, 1),
    ("(Array) -> Array", "a parameter needs a type and a name", 1, 5),
    ("(Array 3) -> Array", "a parameter needs a type and a name", 1, 7),
    ("(Array(a|b) x) -> ()", "a parameter needs a type and a name", 1, 12),
    ("(Array if) -> ()", "'if' is a Python keyword, which cannot name a parameter", 7, 2),
    ("(Array x y) -> Array", "cannot read 'y'", 9, 1),
    ("(Array x, ...) -> ()", "a type is missing here", 10, 3),
    ("(Foo x) -> ()", f"unknown type 'Foo'; {TYPES}", 1, 3),
    ("(Arrai x) -> ()", "unknown type 'Arrai' (did you mean 'Array'?)", 1, 5),
    ("(double x) -> ()", "unknown type 'double': write float", 1, 6),
    ("(int64_t x) -> ()", "unknown type 'int64_t': write int", 1, 7),
    ("(Dict(int, str) x) -> ()", "unknown type 'Dict': write Dict(str, T), such as Dict(str, Array)", 1, 4),
    ("(Dict(str, ) x) -> ()", "a type is missing here", 11, 1),
    ("(Dict(str, int x) -> ()", "no '->' before the results", 23, 1),
    ("(str{} x) -> ()", "a choice needs values to choose from", 1, 5),
    ("(str{a} x) -> ()", "the choice a is not of type str", 5, 1),
    ('(str{"a", 1} x) -> ()', "the choice 1 is not of type str", 10, 1),
    ("(int{1, 1} x) -> ()", "the choice 1 appears twice", 8, 1),
    ("(int{True} x) -> ()", "the choice True is not of type int", 5, 4),
    ("(float{1.0} x) -> ()", "a choice has str, int or bool values, not float", 1, 5),
    ("(my.own.Class x) -> ()", "unknown type 'my.own.Class': import my.own first, which defines it", 1, 12),
    ('(str{"a", "b"} x="c") -> ()', 'default "c" does not fit str{"a", "b"}: expects str{"a", "b"}, got str \'c\'', 17, 3),
    ("(Any x) -> ()", "unknown type 'Any': name the type", 1, 3),
    ("(Array x, int x) -> ()", "parameter 'x' appears twice", 10, 5),
    ("(int x=1, int y) -> ()", "parameter 'y' has no default, but follows one that has", 10, 5),
    ("(*) -> ()", "no parameter follows '*'", 1, 1),
    ("(*, *, int x) -> ()", "'*' appears twice", 4, 1),
    ("(/) -> ()", "no parameter comes before '/'", 1, 1),
    ("(int x, /, /) -> ()", "'/' appears twice", 11, 1),
    ("(int x, *, int y, /) -> ()", "'/' must come before '*'", 18, 1),
    ("(int?? x) -> ()", "'?' appears twice", 5, 1),
    ("(int(a) x) -> ()", "only arrays have aliases", 1, 6),
    ("((Array, Array(a!)) x) -> ()", "write the alias of a tuple at its first array", 1, 18),
    ("(() x) -> ()", "a tuple needs a type for each place", 1, 2),
    ("((int, Array x) -> ()", "no '->' before the results", 21, 1),
    ("(int x=1.5) -> ()", "default 1.5 does not fit int: expects int, got float 1.5", 7, 3),
    ('(int y="a") -> ()', "default \"a\" does not fit int: expects int, got str 'a'", 7, 3),
    ("(int x=None) -> ()", "default None does not fit int: only an Optional parameter has the default None", 7, 4),
    ("(int x=) -> ()", "default nothing does not fit int", 7, 1),
    ("(int x=one) -> ()", "default one does not fit int", 7, 3),
    ("(int[] s=1) -> ()", "default 1 does not fit int[]: write [1]", 9, 1),
    ("(int[] s=[1,,2]) -> ()", "default [1,,2] does not fit int[]", 9, 6),
    ("(int[] s=[1,2)) -> ()", "default [1,2) does not fit int[]", 9, 5),
    ("(bool b=1) -> ()", "default 1 does not fit bool: expects bool, got int 1", 8, 1),
    ("(Array x) ->", "the results are missing", 12, 1),
    ("(Array x) -> (Array,,Array)", "an item is missing here", 20, 1),
    ("(Array x) -> (,)", "an item is missing here", 14, 1),
    ("(Array x) -> (Array a, Array a)", "result 'a' appears twice", 23, 7),
    ("(Array x) -> Array, Array", "cannot read ', Array'", 18, 7),
    ("(Array x) -> (Array", "'(' is never closed", 13, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason", "at", "width"), FAULTS, ids=[r[0] for r in FAULTS]
)
def test_a_fault_of_a_schema_string_is_shown(
    text: str, reason: str, at: int, width: int
) -> None:
    """Errors in a schema string have carets under the place."""
    with pytest.raises(co.SchemaError) as caught:
        co.Schema.parse(text)
    assert str(caught.value) == (
        f"schema string: {reason}\n"
        f"  {text}\n"
        f"  {' ' * at}{'^' * width}\n"
        '  do: write it like "(Array x, int y=1, *, float? z=None) -> Array"'
    )


def test_a_fault_in_a_later_line_shows_that_line() -> None:
    """A schema string of several lines shows the one that is wrong."""
    with pytest.raises(co.SchemaError) as caught:
        co.Schema.parse("(Array x,\n Arrai y) -> ()")
    assert str(caught.value).splitlines()[1:3] == ["   Arrai y) -> ()", "   ^^^^^"]


@pytest.mark.parametrize("text", [3, None, b"() -> ()", ["() -> ()"]])
def test_a_schema_must_be_a_string(text: Any) -> None:
    """Only strings are parsed."""
    with pytest.raises(co.SchemaError) as caught:
        co.Schema.parse(text)
    assert str(caught.value) == (
        f'a schema is a string, got {text!r}\n  do: write "(Array x) -> Array"'
    )


@pytest.mark.exhaustive
def test_a_deeply_nested_string_is_refused() -> None:
    """Nesting without end is an error as any other."""
    with pytest.raises(co.SchemaError, match="nested too deeply"):
        co.Schema.parse("(" + "(" * 10_000 + "int" + ")" * 10_000 + " x) -> ()")
