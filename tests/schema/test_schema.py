"""Schemas: equality, text, and agreement with functions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.schema.types import MISSING

pytestmark = pytest.mark.usefixtures("built_in_kinds")


# ---- equality ----


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("(Scalar x=1) -> ()", "(Scalar x=1.0) -> ()"),
        ("(Scalar x=1) -> ()", "(Scalar x=True) -> ()"),
        ("(float x=0.0) -> ()", "(float x=-0.0) -> ()"),
        ("(int x, /) -> ()", "(int x) -> ()"),
        ("(*, int x) -> ()", "(int x) -> ()"),
        ("(Array x) -> (Array,)", "(Array x) -> Array"),
        ("(Array(a) x) -> Array(a)", "(Array x) -> Array"),
        ("(Array x) -> (Array y)", "(Array x) -> Array"),
    ],
)
def test_schemas_that_print_differently_differ(one: str, two: str) -> None:
    """The defaults 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    assert co.Schema.parse(one) != co.Schema.parse(two)


@pytest.mark.parametrize("text", ["(float x=nan) -> ()", "(complex x=(nan+0j)) -> ()"])
def test_a_default_of_nan_equals_itself(text: str) -> None:
    """Schemas are compared by their text, which nan does not spoil."""
    one, two = co.Schema.parse(text), pickle.loads(pickle.dumps(co.Schema.parse(text)))
    assert one == two
    assert hash(one) == hash(two)


def test_a_schema_pickles() -> None:
    """The mark of a missing default is pickled as itself."""
    schema = co.Schema.parse("(Array x, int k=1) -> Array")
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert again.parameters[0].default is MISSING


@pytest.mark.parametrize(
    ("text", "name", "at"),
    [
        ("(Array xs, Array x) -> ()", "x", 17),
        ("(int? y, int x) -> ()", "x", 15),
        ('(str s="Array x", Array x=None) -> ()', None, 0),
        ('(str s="int x", int x=1) -> ()', "x", 22),
    ],
)
def test_carets_stand_under_the_parameter(text: str, name: str | None, at: int) -> None:
    """A name within another one, or in a default, does not mislead them."""
    if name is None:
        with pytest.raises(co.SchemaError):
            co.Schema.parse(text)
        return
    mark = co.Schema.parse(text).show("ns::op", name).splitlines()[1]
    assert mark.index("^") == at


# ---- agreement of a schema string with a function ----


def scaled(x: Any, k: Any = 2) -> Any:
    return x * k


@pytest.mark.parametrize(
    "schema",
    ["(Array x, int k=2) -> Array", "(Array x, float k=2.0) -> Array"],
)
def test_a_schema_string_that_agrees_is_taken(schema: str) -> None:
    """The schema says the types of a function without hints."""
    op = co.custom_op("schema_test::scaled", scaled, mutates_args=(), schema=schema)
    assert str(op.schema) == schema
    assert op(np.ones(1)).tolist() == [2.0]


def test_a_builtin_takes_any_schema_string() -> None:
    """A ufunc has no parameter names: its first call shows whether it fits."""
    op = co.custom_op(
        "schema_test::sin", np.sin, mutates_args=(), schema="(Array angle) -> Array"
    )
    assert op(angle=np.zeros(1)).tolist() == [0.0]
