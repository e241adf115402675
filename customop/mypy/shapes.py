"""Shapes that a schema says, against what mypy knows of arrays and of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mypy.types import Instance, TupleType, Type, UnpackType, get_proper_type

from customop.errors import ShapeError
from customop.mypy.arguments import Call
from customop.mypy.records import Outline, Record
from customop.schema.types import ArrayType, Maybe, SchemaType
from customop.shapes.notation import Axis, Length, Loop, Shape, names_in, parse_shape
from customop.shapes.solve import AxisFault, check_rank

__all__ = ["Other", "misshapen", "other_shape"]


def misshapen(call: Call, record: Record) -> Iterator[tuple[int, ShapeError]]:
    """Place of an argument whose number of axes cannot fit, and the error of the call."""
    assert record.schema is not None
    by_place = dict(enumerate(record.schema.by_position))
    shapes = record.schema.shape_of
    for place, written in enumerate(call.names if shapes else ()):
        name, given = written or by_place.get(place, ""), call.at(place)
        if given is None or name not in shapes:
            continue
        rank = _rank(given.type)
        try:
            if rank is not None:
                check_rank(f"'{name}'", parse_shape(shapes[name]), rank)
        except AxisFault as fault:
            what = f"{record.name}: argument {fault.who} {fault.reason}"
            yield place, ShapeError(what, do=fault.do)


def _rank(kind: Type) -> int | None:
    """Number of axes of the arrays of a type; None where it does not tell."""
    proper = get_proper_type(kind)
    if not isinstance(proper, Instance) or proper.type.fullname != "numpy.ndarray":
        return None
    lengths = get_proper_type(proper.args[0]) if proper.args else None
    if not isinstance(lengths, TupleType):
        return None
    if any(isinstance(item, UnpackType) for item in lengths.items):
        return None
    return len(lengths.items)


# ---- kernels ----


class Other(NamedTuple):
    """A shape of a kernel that is not the operator's."""

    name: str
    mine: str
    theirs: str


def other_shape(schema: Outline, types: Mapping[str, SchemaType]) -> Other | None:
    """The first shape of a kernel's annotations that is not the operator's.

    A kernel may name axes as it likes, but for the names of parameters, and say less.
    """
    names = _Names({*schema.by_position, *schema.by_name})
    for name, theirs in schema.shape_of.items():
        kind = types.get(name)
        array = kind.item if isinstance(kind, Maybe) else kind
        if not isinstance(array, ArrayType) or array.shape is None:
            continue
        if not names.agree(array.shape, parse_shape(theirs)):
            return Other(name, array.shape.text, theirs)
    return None


class _Names:
    """Names of axes in a kernel, and those that the operator has for the same axes."""

    def __init__(self, parameters: set[str]) -> None:
        self._parameters = parameters
        self._known: dict[str, str] = {}

    def agree(self, mine: Shape, theirs: Shape) -> bool:
        """Whether a kernel's shape takes all that the operator's does."""
        if mine.loop is not None and not mine.axes:
            return True
        pairs = list(zip(mine.entries, theirs.entries, strict=False))
        same = len(mine.entries) == len(theirs.entries)
        return same and all(self._agree_on(*pair) for pair in pairs)

    def _agree_on(self, mine: Axis | Loop, theirs: Axis | Loop) -> bool:
        if isinstance(mine, Loop) or isinstance(theirs, Loop):
            return isinstance(mine, Loop) and isinstance(theirs, Loop)
        if mine.length is None or theirs.length is None:
            return mine.length is None
        if mine.is_broadcast is not theirs.is_broadcast:
            return False
        return self._same(mine.length, theirs.length)

    def _same(self, mine: Length, theirs: Length) -> bool:
        if isinstance(mine, str) and isinstance(theirs, str):
            if {mine, theirs} & self._parameters:
                return mine == theirs
            is_new = mine not in self._known and theirs not in self._known.values()
            if is_new:
                self._known[mine] = theirs
            return self._known.get(mine) == theirs
        if isinstance(mine, tuple) and isinstance(theirs, tuple):
            # The order of a sum is a matter of taste, so its names are compared alone.
            return len({*names_in(mine)}) == len({*names_in(theirs)})
        return mine == theirs
