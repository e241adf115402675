"""What calls can pass for each type."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.schema.annotations import NAMES
from customop.schema.coerce import Mismatch, coerce, examples_of
from customop.schema.types import (
    Base,
    ListOf,
    print_value,
)
from tests.schema._same import same_value

pytestmark = pytest.mark.usefixtures("built_in_kinds")


# ---- coercion ----


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    """A string that prints something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("float", 2, 2.0),
        ("float", np.float32(0.5), 0.5),
        ("float", np.array(2), 2.0),
        ("float", True, 1.0),
        ("int", True, 1),
        ("int", np.int8(3), 3),
        ("int", np.array(3), 3),
        ("int", Level.HIGH, 3),
        ("bool", 1, True),
        ("bool", 0, False),
        ("bool", np.True_, True),
        ("bool", np.array(1), True),
        ("complex", 1, 1 + 0j),
        ("complex", np.complex64(1j), 1j),
        ("Scalar", np.float64(2.0), 2.0),
        ("Scalar", np.array(3), 3),
        ("Scalar", 1j, 1j),
        ("Scalar", True, True),
        ("str", Name("text"), "text"),
        ("dtype", np.float32, np.dtype("float32")),
        ("dtype", "i8", np.dtype("int64")),
        ("dtype", float, np.dtype("float64")),
        ("device", "cuda:0", "cuda:0"),
        ("int?", None, None),
        ("int[]", (1, 2), [1, 2]),
        ("int[]", range(3), [0, 1, 2]),
        ("int[]", np.array([1, 2]), [1, 2]),
        ("int[]", [np.int64(1)], [1]),
        ("int[2]", 3, [3, 3]),
        ("float[]", (1, 2), [1.0, 2.0]),
        ("int[][]", ((1,), [2]), [[1], [2]]),
        ("(int, float)", [1, 2], (1, 2.0)),
    ],
    ids=repr,
)
def test_a_value_is_coerced(declared: str, value: Any, expected: Any) -> None:
    """A value that fits reaches the kernel as a plain Python value."""
    found = coerce(value, co.Schema.parse(f"({declared} x) -> ()").parameters[0].type)
    assert same_value(found, expected)


def test_a_tuple_annotation_gives_the_kernel_a_tuple() -> None:
    """`tuple[int, ...]` and `list[int]` are one schema type, and keep their class."""
    seen: list[Any] = []

    @co.custom_op("schema_test::both", mutates_args=())
    def both(x: co.Array, a: list[int], b: tuple[int, ...] = (1,)) -> None:
        seen.append((a, b))

    both(np.zeros(1), (1, 2), [3])
    both(np.zeros(1), [1])
    assert seen == [([1, 2], (3,)), ([1], (1,))]


def test_a_list_of_arrays_keeps_its_class_too() -> None:
    """Arrays come in a tuple where the annotation says so, whatever was passed."""
    seen: list[type] = []

    @co.custom_op("schema_test::arrays", mutates_args=())
    def arrays(xs: tuple[co.Array, ...], ys: list[co.Array]) -> None:
        seen.extend([type(xs), type(ys)])

    for _ in range(2):
        arrays([np.zeros(1)], (np.zeros(1),))
    assert seen == [tuple, list] * 2


def test_a_list_that_fits_stays_itself() -> None:
    """A list whose items need no change is not copied."""
    value = [1, 2]
    assert coerce(value, ListOf(Base("int"))) is value


@pytest.mark.parametrize(
    ("declared", "value", "why"),
    [
        ("int", 2.0, "expects int, got float 2.0"),
        ("int", np.float64(2.0), "expects int, got float64 of shape ()"),
        ("int", "1", "expects int, got str '1'"),
        ("int", None, "expects int, got None"),
        ("int", np.array([1]), "expects int, got ndarray of shape (1,)"),
        ("float", "1", "expects float, got str '1'"),
        ("float", 1j, "expects float, got complex 1j"),
        ("float", np.zeros(2), "expects float, got ndarray of shape (2,)"),
        ("float", 10**400, "expects float, got a number out of its range"),
        ("bool", 2, "expects bool, got int 2"),
        ("bool", 1.0, "expects bool, got float 1.0"),
        ("bool", np.float32(1), "expects bool, got float32 of shape ()"),
        ("str", b"a", "expects str, got bytes b'a'"),
        ("Scalar", "1", "expects Scalar, got str '1'"),
        ("dtype", "flot", "expects dtype, got str 'flot'"),
        ("dtype", 3, "expects dtype, got int 3"),
        ("dtype", None, "expects dtype, got None"),
        ("dtype", np.zeros(1), "expects dtype, got ndarray of shape (1,)"),
        ("device", 3, "is an unknown device 3; known: 'cpu', 'cuda'"),
        ("Generator", 3, "expects Generator, got int 3"),
        ("int[]", 3, "expects int[], a list, got int 3"),
        ("int[]", "12", "expects int[], a list, got str '12'"),
        ("int[]", {1}, "expects int[], a list, got set {1}"),
        ("int[]", [1, 2.5], "at index 1 expects int, got float 2.5"),
        ("int[][]", [[1], ["a"]], "at index 1 at index 0 expects int, got str 'a'"),
        ("int[2]", [1], "expects int[2], got 1 items"),
        ("(int, int)", [1], "expects (int, int), got 1 items"),
        ("(int, int)", 1, "expects (int, int), a tuple, got int 1"),
        (
            "Array[]",
            np.zeros((2, 2)),
            "expects Array[], a list, got ndarray of shape (2, 2)",
        ),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused(
    declared: str, value: Any, why: str
) -> None:
    """A value that does not fit is refused, and the error shows it."""
    typed = co.Schema.parse(f"({declared} x) -> ()").parameters[0].type
    with pytest.raises(Mismatch) as caught:
        coerce(value, typed)
    assert str(caught.value) == why


CALLS = [
    ("int", 2),
    ("float", 2),
    ("complex", 1.0),
    ("bool", 1),
    ("Scalar", np.float32(1.0)),
    ("str", "a"),
    ("dtype", "f4"),
    ("int[]", (1, 2)),
]


@pytest.mark.parametrize(
    ("declared", "value"), CALLS, ids=[declared for declared, _ in CALLS]
)
def test_both_paths_of_a_call_coerce_the_same_way(declared: str, value: Any) -> None:
    """The generated call gives a kernel what coercion gives, on its fast path too."""
    seen: list[Any] = []
    schema = co.Schema.parse(f"(Array x, {declared} k) -> ()")
    op = co.custom_op(
        "schema_test::coerced",
        lambda x, k: seen.append(k),
        mutates_args=(),
        schema=str(schema),
    )
    for _ in range(2):
        op(np.zeros(1), value)
    op.dispatch(np.zeros(1), value)
    expected = coerce(value, schema.parameters[1].type)
    assert all(same_value(found, expected) for found in seen)


_WITH_EXAMPLES = [
    name
    for name, found in NAMES.items()
    if isinstance(found, Base) and examples_of(found)
]


@pytest.mark.parametrize("name", _WITH_EXAMPLES)
def test_examples_of_a_type_fit_it_and_can_be_defaults(name):
    """The text of an example in a schema can be read back."""
    declared: Any = NAMES[name]
    for example in examples_of(declared):
        assert same_value(coerce(example, declared), example)
        schema = co.Schema.parse(
            f"({name} a={print_value(example, declared)}) -> Array"
        )
        assert same_value(schema.parameters[0].default, example)
