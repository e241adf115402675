"""Python's own types as arguments: what is accepted, what a kernel gets, what is said."""

from __future__ import annotations

import collections
import copy
import enum
import importlib
import pickle
import sys
import types
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, NotRequired, Required

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import ReadOnly, TypedDict, TypeVar

import customop as co
from customop.schema.annotations import class_type, find_class, schema_type
from customop.schema.coerce import Mismatch, check_default, coerce

X = np.ones(3)
HERE = __name__


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0
    tags: tuple[str, ...] = ()
    kind: ClassVar[str] = "point"


@dataclass(frozen=True)
class Point3(Point):
    z: float = 0.0


class Pair(NamedTuple):
    first: int
    second: Point | None = None


class Settings(TypedDict):
    rate: float
    name: NotRequired[str]


class Loose(TypedDict, total=False):
    rate: Required[float]
    steps: ReadOnly[int]


@co.register_config_type
class Plain:
    def __init__(self, size: int, *, mode: Literal["a", "b"] = "a") -> None:
        self.size, self.mode = size, mode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Plain({self.size}, mode={self.mode!r})"


# ---- what a kernel gets ----

COERCED = [
    (Literal["a", "b"], "a", "a"),
    (Literal[1, 2], np.int64(2), 2),
    (Literal[True], 1, True),
    (Literal["a"] | None, None, None),
    (list[Literal["a", "b"]], ("a", "b"), ["a", "b"]),
    (Colour, Colour.RED, Colour.RED),
    (Colour, "blue", Colour.BLUE),
    (Level, 2, Level.HIGH),
    (Level, np.int64(1), Level.LOW),
    (Level, Level.LOW, Level.LOW),
    (Access, 3, Access.READ | Access.WRITE),
    (Colour | None, None, None),
    (Point, Point(1.0, 2.0), Point(1.0, 2.0)),
    (Point, Point(1, 2, ["a"]), Point(1.0, 2.0, ("a",))),  # type: ignore[arg-type]
    (Pair, Pair(np.int64(3)), Pair(3)),  # type: ignore[arg-type]
    (Pair, Pair(1, Point(1)), Pair(1, Point(1.0))),
    (Settings, {"rate": 1}, {"rate": 1.0}),
    (Settings, collections.OrderedDict(name="n", rate=2.0), {"name": "n", "rate": 2.0}),
    (Loose, {"rate": 1.0}, {"rate": 1.0}),
    (Loose, {"rate": 1.0, "steps": True}, {"rate": 1.0, "steps": 1}),
    (Plain, Plain(3), Plain(3)),
    (Plain, Plain(True, mode="b"), Plain(1, mode="b")),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[str, float], types.MappingProxyType({"a": 1}), {"a": 1.0}),
    (dict[str, list[Point]], {}, {}),
    (list[Pair], [Pair(1)], [Pair(1)]),
    (tuple[Colour, dict[str, int]], ["red", {}], (Colour.RED, {})),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), COERCED, ids=repr)
def test_a_value_reaches_the_kernel_as_its_type(
    annotation: Any, value: Any, expected: Any
) -> None:
    """Numbers, members and fields are what the annotation says, classes included."""
    found = coerce(value, schema_type(annotation))
    assert found == expected
    assert repr(found) == repr(expected) or isinstance(value, Plain)
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Point, Point(1.0)),
        (Pair, Pair(1)),
        (Settings, {"rate": 1.0}),
        (Plain, Plain(1)),
    ],
    ids=repr,
)
def test_what_fits_is_not_copied(annotation: Any, value: Any) -> None:
    """A value whose fields fit is passed on itself."""
    assert coerce(value, schema_type(annotation)) is value


REFUSED = [
    (Literal["left", "right"], "lift", "expects str{\"left\", \"right\"}, got str 'lift' (did you mean 'left'?)"),
    (Literal["left"], 3, 'expects str{"left"}, got int 3'),
    (Literal[1, 2], 1.0, "expects int{1, 2}, got float 1.0"),
    (Literal[1, 2], [1], "expects int{1, 2}, got list [1]"),
    (Colour, "rde", f"expects {HERE}.Colour, got str 'rde' (did you mean 'red'?)"),
    (Colour, "RED", f"expects {HERE}.Colour, got str 'RED'"),
    (Colour, None, f"expects {HERE}.Colour, got None"),
    (Level, True, f"expects {HERE}.Level, got bool True"),
    (Level, np.array([1]), f"expects {HERE}.Level, got ndarray of shape (1,)"),
    (Level, [1], f"expects {HERE}.Level, got list [1]"),
    (Point, {"x": 1.0}, f"expects {HERE}.Point, got dict {{'x': 1.0}}"),
    (Point, Point("a"), "at field 'x' expects float, got str 'a'"),
    (Point, Point(1.0, tags=(1,)), "at field 'tags' at index 0 expects str, got int 1"),
    (Point, Point3(1.0), f"expects {HERE}.Point, got Point3 Point3(x=1.0, y=0.0, tags=(), z=0.0), of a derived class, whose other fields transforms would not see"),
    (Pair, (1, None), f"expects {HERE}.Pair, got tuple (1, None)"),
    (Pair, Pair(1, Point("a")), "at field 'second' at field 'x' expects float, got str 'a'"),
    (Settings, {}, f"expects {HERE}.Settings, got no key 'rate'"),
    (Settings, {"rate": 1.0, "nmae": "a"}, f"expects {HERE}.Settings, got the key str 'nmae' (did you mean 'name'?)"),
    (Settings, {"rate": "a"}, "at key 'rate' expects float, got str 'a'"),
    (Settings, [("rate", 1.0)], f"expects {HERE}.Settings, a dict, got list [('rate', 1.0)]"),
    (Loose, {"steps": 1}, f"expects {HERE}.Loose, got no key 'rate'"),
    (dict[str, int], {1: 1}, "expects Dict(str, int), got the key int 1"),
    (dict[str, int], {"a": "b"}, "at key 'a' expects int, got str 'b'"),
    (dict[str, int], [1], "expects Dict(str, int), a dict, got list [1]"),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value", "reason"), REFUSED, ids=repr)
def test_a_value_that_does_not_fit_is_refused(
    annotation: Any, value: Any, reason: str
) -> None:
    """The reason says where inside the value, and what is near."""
    with pytest.raises(Mismatch) as caught:
        coerce(value, schema_type(annotation))
    assert str(caught.value) == reason


REMEDIES = [
    (Literal["a", "b"], 3, "pass one of 'a', 'b'"),
    (Colour, 3, "pass Colour.RED or Colour.BLUE"),
    (Pair, 3, f"pass Pair(first: int, second: {HERE}.Point?)"),
    (Settings, 3, 'pass {"rate": float, "name": str}'),
    (dict[str, int], 3, 'pass a dict such as {"name": int}'),
    (Colour | None, 3, "pass Colour.RED or Colour.BLUE"),
]


@pytest.mark.parametrize(("annotation", "value", "do"), REMEDIES, ids=repr)
def test_a_call_says_what_to_pass(annotation: Any, value: Any, do: str) -> None:
    """The error of a call names operator, parameter and a value that would fit."""

    def takes(x, y):
        raise AssertionError("not reached")

    takes.__annotations__ = {"x": np.ndarray, "y": annotation, "return": np.ndarray}
    op: Any = co.custom_op("types_test::takes", takes, mutates_args=())
    with pytest.raises(co.ArgumentError, match="types_test::takes: argument 'y'") as c:
        op(X, value)
    assert (c.value.parameter, c.value.do) == ("y", do)


def test_an_object_of_a_class_defined_again_is_refused() -> None:
    """The names are one, the classes two: the message says so."""

    def define() -> Any:
        @dataclass(frozen=True)
        class Again:
            x: int

        return Again

    old, new = define(), define()
    declared = schema_type(old)
    assert coerce(old(1), declared) == old(1)
    with pytest.raises(Mismatch, match="whose class has since been defined again"):
        coerce(new(1), declared)
    assert coerce(new(1), schema_type(new)) == new(1)


def test_an_object_that_lost_a_field_is_refused() -> None:
    """A registered class must keep what its constructor takes."""

    @co.register_config_type
    class Forgets:
        def __init__(self, size: int) -> None:
            self.length = size

    with pytest.raises(Mismatch, match="got an object without 'size'"):
        coerce(Forgets(3), schema_type(Forgets))


# ---- defaults ----

DEFAULTS = [
    (Literal["a", "b"], "b", '"b"'),
    (Literal[1, 2], 2, "2"),
    (Literal["a"] | None, None, "None"),
    (Colour, Colour.BLUE, "BLUE"),
    (Colour, "blue", "BLUE"),
    (Level, Level.HIGH, "HIGH"),
    (Access, Access.READ | Access.WRITE, "3"),
    (Point, Point(1.0, np.inf, ("a",)), '(1.0, inf, ["a"])'),
    (Pair, Pair(1, Point(2.0)), "(1, (2.0, 0.0, []))"),
    (Pair, Pair(1), "(1, None)"),
    (list[Colour], (Colour.RED, Colour.BLUE), "[RED, BLUE]"),
]


@pytest.mark.parametrize(("annotation", "value", "text"), DEFAULTS, ids=repr)
def test_a_default_prints_and_reads_back(
    annotation: Any, value: Any, text: str
) -> None:
    """A default is kept as the value that a kernel gets when it is left out."""
    seen = []

    def takes(x, y=value):
        seen.append(y)

    takes.__annotations__ = {"x": np.ndarray, "y": annotation, "return": None}
    op: Any = co.custom_op("types_test::defaults", takes, mutates_args=())
    assert str(op.schema.parameters[1]) == f"{schema_type(annotation)} y={text}"
    again = co.Schema.parse(str(op.schema))
    assert again == op.schema
    assert again.parameters[1].default == op.schema.parameters[1].default
    op(X)
    assert seen == [coerce(value, schema_type(annotation))]


@dataclass(frozen=True)
class Held:
    array: np.ndarray | None
    table: dict[str, int]


NO_DEFAULTS = [
    (Literal["a"], "b", "expects str{\"a\"}, got str 'b'"),
    (Colour, "green", f"expects {HERE}.Colour, got str 'green'"),
    (Colour, None, "only an Optional parameter has the default None"),
    (Settings, {"rate": 1.0}, "a default must be immutable: write a tuple or a number"),
    (dict[str, int], {}, "a default must be immutable: write a tuple or a number"),
    (Plain, Plain(1), "a default must be immutable: write a tuple or a number"),
    (Held, Held(X, {}), "at field 'array' an array can only have the default None"),
    (
        Held,
        Held(None, {}),
        "at field 'table' a default must be immutable: write a tuple or a number",
    ),
]


@pytest.mark.parametrize(("annotation", "value", "reason"), NO_DEFAULTS, ids=repr)
def test_a_default_that_cannot_be_kept_is_refused(
    annotation: Any, value: Any, reason: str
) -> None:
    """A default fits its type and never changes."""
    with pytest.raises(Mismatch) as caught:
        check_default(value, schema_type(annotation))
    assert str(caught.value) == reason


# ---- classes that cannot be arguments ----


@dataclass
class Changing:
    x: int


@dataclass(frozen=True)
class HasAny:
    x: int
    extra: Any


@dataclass(frozen=True)
class HasInitVar:
    x: int
    seed: InitVar[int] = 0


@dataclass(frozen=True)
class Itself:
    x: int
    next: Itself | None = None


@dataclass(frozen=True)
class Unknown:
    x: Missing  # type: ignore[name-defined]  # noqa: F821 - it is what is tested


T = TypeVar("T")


@dataclass(frozen=True)
class Box(Generic[T]):
    item: T


A = TypeVar("A", bound=co.Array)


@dataclass(frozen=True)
class ArrayBox(Generic[A]):
    item: A


class Bare:
    def __init__(self, x) -> None:
        self.x = x


class Starred:
    def __init__(self, *x: int) -> None:
        self.x = x


class Hidden:
    def __init__(self, x: int) -> None:
        self._x = x

    @property
    def x(self) -> int:
        return self._x


CLASSES = [
    (Changing, "annotation Changing, which has no schema type", "make it @dataclass(frozen=True), or call register_config_type(Changing)"),
    (HasAny, "annotation Any, which has no schema type", "name the type: Array, or one of the others"),
    (HasInitVar, "annotation HasInitVar, which has no schema type", "change the class: 'seed' is an InitVar, which objects do not keep: make it a field"),
    (Itself, "annotation Itself, which has no schema type", "remove the field that holds an object of the class itself"),
    (Unknown, "annotation Unknown, which has no schema type", f"define Missing in {HERE} before the operator"),
    (Box[int], "annotation ~T, which has no schema type", 'give it a bound: TypeVar("T", bound=Array)'),
    (Bare, "annotation Bare, which has no schema type", "use a supported type, or pass each value as a separate parameter"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "what", "do"), CLASSES, ids=lambda v: getattr(v, "__name__", "")[:20]
)
def test_a_class_that_cannot_be_taken_apart_is_refused(
    cls: Any, what: str, do: str
) -> None:
    """Inference says which class, which field, and what to do."""
    with pytest.raises(co.SchemaError) as caught:
        schema_type(cls)
    assert (caught.value.what, caught.value.do) == (what, do)


def test_the_field_at_fault_is_named() -> None:
    """The error of a function shows parameter, class and field."""

    def takes(x: co.Array, c: HasAny) -> None: ...

    with pytest.raises(co.SchemaError) as caught:
        co.infer_schema(takes, mutates_args=())
    text = str(caught.value)
    assert "parameter 'c' has annotation Any" in text
    assert "in field 'extra' of HasAny" in text


@pytest.mark.parametrize(
    ("cls", "do"),
    [
        (Bare, "change the class: parameter 'x' of its constructor has no annotation"),
        (Starred, "change the class: its constructor cannot take 'x' by name"),
        (Hidden, "change the class: 'x' is a property, must be a plain attribute"),
    ],
    ids=["Bare", "Starred", "Hidden"],
)
def test_a_class_is_registered_only_if_it_can_be_made_again(cls: Any, do: str) -> None:
    """The fields of a registered class are the parameters of its constructor."""
    with pytest.raises(co.SchemaError) as caught:
        co.register_config_type(cls)
    assert caught.value.do == do
    assert find_class(f"{HERE}.{cls.__name__}") is None
    with pytest.raises(co.SchemaError, match="use a supported type"):
        schema_type(cls)


@pytest.mark.parametrize("cls", [3, int, dict, np.ndarray, "Plain"], ids=repr)
def test_only_classes_of_users_are_registered(cls: Any) -> None:
    """Python's own classes and arrays are not config objects."""
    with pytest.raises(co.RegistrationError, match="is not a class of config objects"):
        co.register_config_type(cls)


def test_a_class_may_be_registered_twice() -> None:
    """It stays what it is, and is returned."""
    assert co.register_config_type(Plain) is Plain
    assert co.register_config_type(Colour) is Colour


def test_a_generic_class_counts_as_its_bound() -> None:
    """A class over a type variable bound to arrays holds arrays."""
    declared = schema_type(ArrayBox[np.ndarray])
    assert str(declared) == f"{HERE}.ArrayBox"
    assert str(class_type(ArrayBox).items["item"]) == "Array"


# ---- names ----


def test_a_string_names_what_is_local_to_a_function() -> None:
    """Annotations of functions and of classes may name local classes."""

    class Mode(enum.Enum):
        ON = 1

    @dataclass(frozen=True)
    class Inner:
        mode: Mode

    @dataclass(frozen=True)
    class Config:
        inner: Inner
        flags: dict[str, Mode]

    def takes(x: np.ndarray, c: Config, m: Mode = Mode.ON) -> None: ...

    schema = co.infer_schema(takes, mutates_args=())
    start = f"{HERE}.test_a_string_names_what_is_local_to_a_function.<locals>"
    assert schema == f"(Array x, {start}.Config c, {start}.Mode m=ON) -> ()"
    assert str(co.Schema.parse(schema)) == schema
    assert str(class_type(Config).items["flags"]) == f"Dict(str, {start}.Mode)"


def test_a_registered_class_may_name_what_is_local() -> None:
    """The names around the registration are known too."""

    class Mode(enum.Enum):
        ON = 1

    @co.register_config_type
    class Config:
        def __init__(self, mode: Mode) -> None:
            self.mode = mode

    assert str(class_type(Config).items["mode"]).endswith(".Mode")


def test_a_class_of_an_imported_module_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema string may name any class that can be an argument, once imported."""
    text = "import enum\nclass Outer:\n    class Kind(enum.Enum):\n        A = 1\n"
    (tmp_path / "types_far.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    string = "(types_far.Outer.Kind k=A) -> ()"
    with pytest.raises(co.SchemaError, match=r"import types_far\.Outer first"):
        co.Schema.parse(string)
    module = importlib.import_module("types_far")
    try:
        schema = co.Schema.parse(string)
        assert schema.parameters[0].default is module.Outer.Kind.A
        assert str(schema) == string
    finally:
        del sys.modules["types_far"]


def test_a_name_of_something_else_is_unknown() -> None:
    """A name with a dot that leads to something else is refused."""
    assert find_class("numpy.pi") is None
    assert find_class("numpy.ndarray") is None
    assert find_class(f"{HERE}.Changing") is None
    with pytest.raises(co.SchemaError, match=r"unknown type 'numpy\.pi'"):
        co.Schema.parse("(numpy.pi x) -> ()")


def test_a_class_needs_a_name_to_be_found_by() -> None:
    """A class that a schema string cannot name is refused."""
    odd = enum.Enum("odd name", ["A"], module=HERE)
    with pytest.raises(co.SchemaError, match="define it where it can be found by name"):
        schema_type(odd)


def test_methods_and_decorated_functions_take_these_types() -> None:
    """A bound method, a static method, and a function behind a decorator."""

    class Holder:
        def bound(self, x: np.ndarray, c: Colour = Colour.RED) -> np.ndarray:
            return x * 2.0 if c is Colour.RED else x

        @staticmethod
        def static(x: np.ndarray, mode: Literal["a", "b"] = "a") -> np.ndarray:
            return x if mode == "a" else -x

    bound: Any = co.custom_op("types_test::bound", Holder().bound, mutates_args=())
    static: Any = co.custom_op("types_test::static", Holder.static, mutates_args=())
    assert str(bound.schema) == f"(Array x, {HERE}.Colour c=RED) -> Array"
    assert bound(X, "red").tolist() == [2.0] * 3
    assert static(X, mode="b").tolist() == [-1.0] * 3


# ---- properties ----

VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Literal[1, -5] | None, st.sampled_from([1, -5, None])),
    (Colour, st.sampled_from([*Colour, "red"])),
    (Access, st.integers(0, 3).map(Access)),
    (Point, st.builds(Point, st.floats(allow_nan=False), st.integers(-5, 5))),
    (Pair, st.builds(Pair, st.integers(), st.none() | st.just(Point(1.0)))),
    (Settings, st.fixed_dictionaries({"rate": st.integers(-5, 5)})),
    (Plain, st.builds(Plain, st.integers())),
    (dict[str, list[int]], st.dictionaries(st.text(), st.lists(st.integers()))),
    (list[Pair], st.lists(st.builds(Pair, st.integers()))),
]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_a_call_hands_over_what_coercion_gives(data: st.DataObject) -> None:
    """On the fast and the slow path; the schema prints, parses and pickles."""
    rows = data.draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3))
    given_values = [data.draw(strategy) for _, strategy in rows]
    names = [f"v{i}" for i in range(len(rows))]
    seen: list[Any] = []

    scope: dict[str, Any] = {"seen": seen}
    exec(f"def takes(x, {', '.join(names)}): seen.append([{', '.join(names)}])", scope)
    takes = scope["takes"]
    hints = {
        name: annotation for name, (annotation, _) in zip(names, rows, strict=True)
    }
    takes.__annotations__ = {"x": np.ndarray, **hints, "return": None}
    op: Any = co.custom_op("types_test::random", takes, mutates_args=())
    assert co.Schema.parse(str(op.schema)) == op.schema
    assert pickle.loads(pickle.dumps(op.schema)) == op.schema
    types = [p.type for p in op.schema.parameters[1:]]
    expected = [coerce(v, k) for v, k in zip(given_values, types, strict=True)]
    op(X, *given_values)
    op(X, *given_values)
    op.dispatch(X, *given_values)
    assert seen == [expected] * 3


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(VALUES), st.data())
def test_a_coerced_value_is_coerced_to_itself(
    row: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    """Coercion is done once."""
    declared = schema_type(row[0])
    once = coerce(data.draw(row[1]), declared)
    assert coerce(once, declared) is once


def test_a_class_is_pickled_by_its_name() -> None:
    """A schema with classes is read back with the same classes."""
    schema = co.Schema.parse(f"({HERE}.Point p, {HERE}.Colour c=RED) -> ()")
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert again.parameters[0].type.cls is Point
    assert again.parameters[1].default is Colour.RED
    assert copy.copy(again) == schema
