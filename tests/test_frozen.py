"""Immutable values, and objects that are made when they are first used."""

from __future__ import annotations

import copy
import pickle
from typing import ClassVar

import pytest

from customop.frozen import Frozen, cached
from customop.later import later


class Point(Frozen):
    """Two fields, one with a default, and a constant of the class."""

    name: str
    x: float = 0.5
    limit: ClassVar[int] = 3


class Named(Frozen, compare=("name",)):
    """A field that does not count."""

    name: str
    note: str = ""


def test_fields_are_given_by_position_and_by_name() -> None:
    """Defaults fill the rest."""
    assert repr(Point("a")) == "Point(name='a', x=0.5)"
    assert Point("a", 0.5) == Point("a") == Point(x=0.5, name="a")
    assert Point("a", 2.0) != Point("a")
    assert hash(Point("a", 0.5)) == hash(Point("a"))


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), (("a", 1.0, 2.0), {}), (("a",), {"y": 1.0})]
)
def test_wrong_fields_are_refused(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """A missing one, one too many and an unknown one."""
    with pytest.raises(TypeError, match="Point"):
        Point(*args, **kwargs)  # type: ignore[arg-type]  # wrong


def test_values_never_change() -> None:
    """Fields cannot be set or deleted; a changed copy is another value."""
    point = Point("a")
    with pytest.raises(AttributeError, match=r"Point\.x cannot be set"):
        point.x = 1.0  # type: ignore[misc]  # wrong
    with pytest.raises(AttributeError, match=r"Point\.x cannot be deleted"):
        del point.x  # pyright: ignore[reportAttributeAccessIssue]  # wrong
    assert (point.replaced(x=1.0), point) == (Point("a", 1.0), Point("a"))


def test_only_some_fields_count() -> None:
    """Values of different classes are never equal."""
    assert Named("a", "b") == Named("a")
    assert repr(Named("a", "b")) == "Named(name='a')"
    assert Named("a") != Point("a")


class Single(Frozen, compare=()):
    """An object that equals itself alone."""

    values: list[int]


def test_identity() -> None:
    """Fields may then be of any type."""
    one, other = Single([1]), Single([1])
    assert one == one  # noqa: PLR0124
    assert len({one, other}) == 2
    assert repr(one) == "Single(values=[1])"


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_copies_are_equal(again: object) -> None:
    """Also those of pickle."""
    assert again(Point("a", 2.0)) == Point("a", 2.0)  # type: ignore[operator]


def test_later_calls_when_an_attribute_is_read() -> None:
    """Not before, and not again for the same attribute."""
    calls = []

    def make(text: str) -> str:
        calls.append(text)
        return text

    made = later(make, "abc")
    assert calls == []
    assert made.upper() == made.upper() == "ABC"
    assert calls == ["abc"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = made.nothing  # type: ignore[attr-defined]  # wrong


class Place(Point):
    """Has the fields of its base before its own."""

    y: float = 1.0


class Origin(Point):
    """Has no field of its own."""


def test_a_class_has_the_fields_of_its_base() -> None:
    """They are given, shown and compared as its own."""
    assert repr(Place("a", 2.0, 3.0)) == "Place(name='a', x=2.0, y=3.0)"
    assert Place("a", 2.0) != Place("a", 3.0)
    assert Origin("o").replaced(x=0.0) == Origin("o", 0.0)


class Circle(Frozen):
    """A property that is worked out once."""

    radius: float

    @cached
    def area(self) -> float:
        """Three times the square of the radius."""
        seen.append(self.radius)
        return 3 * self.radius**2


seen: list[float] = []


def test_cached() -> None:
    """It does not count as a field, and has the text of its function."""
    circle = Circle(2.0)
    assert [circle.area, circle.area, seen] == [12.0, 12.0, [2.0]]
    assert circle == Circle(2.0)
    assert Circle.area.__doc__ == "Three times the square of the radius."
