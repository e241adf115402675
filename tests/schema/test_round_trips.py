"""Random schemas, annotations and values survive printing and reading."""

from __future__ import annotations

import dataclasses
import enum
import pickle
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Optional

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import customop as co
from customop.schema.annotations import class_type
from customop.schema.coerce import coerce
from customop.schema.types import (
    ARRAY,
    DEVICE,
    DTYPE,
    KEYWORD_ONLY,
    MISSING,
    OPERAND,
    POSITIONAL,
    POSITIONAL_ONLY,
    SCALAR,
    Alias,
    Base,
    Choice,
    DictOf,
    ListOf,
    Maybe,
    Parameter,
    Return,
    SchemaType,
    TupleOf,
    holds_arrays,
)
from tests.schema._same import same_value

pytestmark = pytest.mark.usefixtures("built_in_kinds")


def inferred(fn: Any, mutates_args: Any = ()) -> str:
    return co.infer_schema(fn, mutates_args=mutates_args)


# ---- properties ----

NAMES = st.sampled_from(
    ["x", "y", "k", "out", "é", "a1", "Array", "int", "inf", "None_"]
)
Odd = enum.Enum("Odd", ["None", "a b", "RED", "lambda", 'q"t'])  # type: ignore[misc]  # names as a user may give them


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclasses.dataclass(frozen=True)
class Window:
    width: int
    taps: tuple[float, ...] = ()
    name: Literal["a", "b"] | None = None


class Range(NamedTuple):
    low: float
    high: float | None


@dataclasses.dataclass(frozen=True)
class Holder:
    x: np.ndarray
    inside: dict[str, list[co.Array]]


@dataclasses.dataclass(frozen=True)
class Empty:
    pass


WINDOWS = st.builds(
    Window,
    st.integers(),
    st.lists(st.floats()).map(tuple),
    st.sampled_from(["a", "b", None]),
)
BASES = {
    Choice("str", ("a", 'b", "c', "\\", "None")): st.sampled_from(["a", "None", "\\"]),
    Choice("int", (1, -2)): st.sampled_from([1, -2]),
    Choice("bool", (True,)): st.just(True),
    class_type(Odd): st.sampled_from(list(Odd)),
    class_type(Access): st.sampled_from(
        [Access.READ, Access.READ | Access.WRITE, Access(0)]
    ),
    class_type(Window): WINDOWS,
    class_type(Range): st.builds(Range, st.floats(), st.none() | st.floats()),
    class_type(Empty): st.just(Empty()),
    Base("int"): st.integers(),
    Base("float"): st.floats(),
    Base("bool"): st.booleans(),
    Base("complex"): st.complex_numbers(),
    Base("str"): st.text(),
    SCALAR: st.one_of(st.integers(), st.floats(), st.booleans(), st.complex_numbers()),
    DTYPE: st.sampled_from(
        [np.dtype(t) for t in ("f4", ">i8", "?", "c16", "U5", "M8[s]")]
    ),
    DEVICE: st.sampled_from(["cpu", "cuda", "cuda:3"]),
    OPERAND: st.one_of(st.integers(), st.floats()),
}


def types_of(bases: st.SearchStrategy[SchemaType]) -> st.SearchStrategy[SchemaType]:
    """Types built from some, without an optional of an optional."""

    def wider(inner: st.SearchStrategy[SchemaType]) -> st.SearchStrategy[SchemaType]:
        return st.one_of(
            inner.map(lambda item: item if isinstance(item, Maybe) else Maybe(item)),
            st.builds(ListOf, inner, st.none() | st.integers(0, 3)),
            st.builds(DictOf, inner),
            st.lists(inner, min_size=1, max_size=3).map(
                lambda items: TupleOf(tuple(items))
            ),
        )

    return st.recursive(bases, wider, max_leaves=4)


ANY_TYPE = types_of(
    st.sampled_from([ARRAY, Base("Generator"), class_type(Holder), *BASES])
)


def values_of(declared: SchemaType) -> st.SearchStrategy[Any]:
    """Values that fit a type and can be defaults; none for arrays."""
    if isinstance(declared, Maybe):
        return st.none() | values_of(declared.item)
    if isinstance(declared, ListOf):
        low, high = (
            (0, 2) if declared.length is None else (declared.length, declared.length)
        )
        if values_of(declared.item).is_empty:
            return st.just(()) if low == 0 else st.nothing()
        return st.lists(values_of(declared.item), min_size=low, max_size=high).map(
            tuple
        )
    if isinstance(declared, TupleOf):
        return st.tuples(*map(values_of, declared.items))
    return BASES.get(declared, st.nothing())


def aliases(declared: SchemaType) -> st.SearchStrategy[Alias | None]:
    made = st.builds(Alias, st.sampled_from("abc"), st.booleans())
    return st.none() | made if holds_arrays(declared) else st.none()


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Parameter, ...]:
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    parameter_kinds = sorted(
        draw(st.sampled_from([POSITIONAL_ONLY, POSITIONAL, KEYWORD_ONLY]))
        for _ in names
    )
    parameter_kinds.sort(key=[POSITIONAL_ONLY, POSITIONAL, KEYWORD_ONLY].index)
    found: list[Parameter] = []
    for name, parameter_kind in zip(names, parameter_kinds, strict=True):
        typed = draw(ANY_TYPE)
        follows = parameter_kind != KEYWORD_ONLY and any(
            p.default is not MISSING for p in found
        )
        values = values_of(typed)
        default = MISSING
        if follows and values.is_empty:
            typed, values = Base("int"), st.integers()
        if follows or (not values.is_empty and draw(st.booleans())):
            default = draw(values)
        found.append(
            Parameter(name, typed, default, parameter_kind, draw(aliases(typed)))
        )
    return tuple(found)


@st.composite
def schemas(draw: st.DrawFn) -> co.Schema:
    types = draw(st.lists(ANY_TYPE, max_size=3))
    names = draw(st.lists(NAMES, unique=True, min_size=3, max_size=3))
    named = draw(st.booleans())
    returns = tuple(
        Return(declared, name if named else "", draw(aliases(declared)))
        for declared, name in zip(types, names, strict=False)
    )
    is_tuple = len(returns) > 1 or (len(returns) == 1 and draw(st.booleans()))
    return co.Schema(draw(parameters()), returns, is_tuple)


SOME = settings(max_examples=150, deadline=None, derandomize=True)


@SOME
@given(schemas())
def test_what_is_printed_reads_as_the_same_schema(schema: co.Schema) -> None:
    """Parsing what was printed gives the same schema back, always."""
    again = co.Schema.parse(str(schema))
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.returns == schema.returns
    assert again.is_tuple == schema.is_tuple
    for p, q in zip(again.parameters, schema.parameters, strict=True):
        assert (p.name, p.type, p.kind, p.alias) == (q.name, q.type, q.kind, q.alias)
        assert same_value(p.default, q.default)


ANNOTATIONS: list[tuple[Any, st.SearchStrategy[Any] | None]] = [
    (co.Array, None),
    (np.ndarray, None),
    (co.Array | None, st.none()),
    (list[co.Array], None),
    (list[co.Array | None] | None, st.none()),
    (tuple[co.Array, int], None),
    (int, st.integers()),
    (float, st.floats() | st.integers(-9, 9)),
    (bool, st.booleans()),
    (complex, st.complex_numbers()),
    (str, st.text()),
    (co.Scalar, st.integers() | st.floats() | st.booleans()),
    (co.DType, st.sampled_from([np.float32, "i8", np.dtype(">c8")])),
    (co.Device, st.sampled_from(["cpu", "cuda:1"])),
    (Optional[int], st.none() | st.integers()),  # noqa: UP045
    (list[int], st.lists(st.integers()).map(tuple)),
    (Sequence[str], st.lists(st.text()).map(tuple)),
    (tuple[float, ...], st.lists(st.floats()).map(tuple)),
    (tuple[int, str], st.tuples(st.integers(), st.text())),
    (list[list[bool]], st.just(((True,), ()))),
    (Literal["a", "None"] | None, st.sampled_from(["a", "None", None])),
    (Literal[3, 4], st.sampled_from([3, 4])),
    (Odd, st.sampled_from(list(Odd))),
    (Access | None, st.none() | st.just(Access.READ)),
    (Window, WINDOWS),
    (Range, st.builds(Range, st.floats(), st.none())),
    (list[Window], st.lists(WINDOWS).map(tuple)),
    (Holder, None),
    (Holder | None, st.none()),
    (dict[str, co.Array], None),
    (dict[str, int] | None, st.none()),
]
RESULTS = [
    None,
    co.Array,
    list[co.Array],
    tuple[co.Array, int],
    tuple[co.Array],
    float,
    Range,
    tuple[Holder, Odd],
    dict[str, co.Array],
    co.Array | None,
]


@st.composite
def functions(draw: st.DrawFn) -> Any:
    """Functions with hints and defaults, of all kinds of parameter."""
    names = draw(st.lists(st.sampled_from("abcdefg"), unique=True, max_size=6))
    only = draw(st.integers(0, len(names)))
    keyword = draw(st.integers(only, len(names)))
    hints: dict[str, Any] = {"return": draw(st.sampled_from(RESULTS))}
    values: dict[str, Any] = {}
    texts: list[str] = []
    for index, name in enumerate(names):
        texts += ["*"] if index == keyword else []
        hints[name], strategy = draw(st.sampled_from(ANNOTATIONS))
        follows = index < keyword and bool(values)
        if follows and strategy is None:
            hints[name], strategy = int, st.integers()
        if strategy is not None and (follows or draw(st.booleans())):
            values[f"_{name}"] = draw(strategy)
            texts.append(f"{name}=_{name}")
        else:
            texts.append(name)
        texts += ["/"] if index == only - 1 else []
    exec(f"def f({', '.join(texts)}): ...", values)
    values["f"].__annotations__ = hints
    return values["f"]


@SOME
@given(functions(), st.booleans())
def test_an_inferred_schema_reads_as_the_same(fn: Any, is_unknown: bool) -> None:
    """An inferred schema is printed and read back unchanged."""
    schema = co.Schema.infer(fn, "unknown" if is_unknown else ())
    again = co.Schema.parse(str(schema))
    assert again == schema
    assert [p.type for p in again.parameters] == [p.type for p in schema.parameters]
    assert again.returns == schema.returns
    assert pickle.loads(pickle.dumps(schema)) == schema


@SOME
@given(st.data())
def test_coercion_is_done_once(data: st.DataObject) -> None:
    """Coercing a coerced value changes nothing."""
    declared = data.draw(ANY_TYPE)
    values = values_of(declared)
    assume(not values.is_empty)
    once = coerce(data.draw(values), declared)
    assert same_value(coerce(once, declared), once)


# NumPy has deprecated some texts of dtypes, Python some escapes in strings.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.one_of(
        st.text(max_size=40),
        st.text(alphabet="()[]{}?!,*/->=|'\"\\. \nAray intxbs123eEjf_", max_size=40),
        st.lists(
            st.sampled_from(
                ["(", ")", "[", "]", "?", ",", " ", "->", "Array", "int", "x", "y", "=",
                 "1", "None", "(a!)", "*", "/", "dtype", "f8", '"', "'", "str", "nan", "-"]
            ),
            max_size=16,
        ).map("".join),
    )
)  # fmt: skip
def test_any_string_is_read_or_refused(text: str) -> None:
    """No string makes the parser fail but by a SchemaError."""
    for candidate in (
        text,
        f"({text}) -> Array",
        f"(dtype d={text}, str s={text}) -> ()",
    ):
        try:
            schema = co.Schema.parse(candidate)
        except co.SchemaError:
            continue
        assert co.Schema.parse(str(schema)) == schema
