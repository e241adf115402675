"""Calls of operators: arrays of one kind, and operators found by attribute."""

from __future__ import annotations

from mypy.types import Instance, ProperType, TupleType, UnionType, get_proper_type

from customop.core.kernels import different_kinds
from customop.errors import DeviceMismatchError
from customop.mypy.arguments import Call
from customop.mypy.records import Record

__all__ = ["different_arrays"]

# Full name of a class of arrays -> name of the device that messages have.
_DEVICES = {
    "numpy.ndarray": "cpu",
    "cupy.ndarray": "cuda",
    "cupy._core.core.ndarray": "cuda",
}


def different_arrays(call: Call, record: Record) -> DeviceMismatchError | None:
    """The error for a call with arrays of NumPy and of CuPy, as their types tell."""
    assert record.schema is not None
    seen = []
    by_place = dict(enumerate(record.schema.by_position))
    for place, written in enumerate(call.names):
        name, given = written or by_place.get(place, ""), call.at(place)
        if given is not None and name in record.schema.arrays:
            seen.append((name, _device(get_proper_type(given.type))))
    known = [(name, device) for name, device in seen if device]
    several = len({device for _, device in known}) > 1
    if not several:
        return None
    return different_kinds(record, known)  # type: ignore[arg-type]  # a record has what is read


def _device(kind: ProperType) -> str:
    """Device of an array, or of all arrays of a list; nothing where it is not known."""
    if isinstance(kind, Instance):
        found = {_DEVICES.get(base.fullname, "") for base in kind.type.mro} - {""}
        if not found and kind.type.fullname in _LISTS:
            return _device(get_proper_type(kind.args[0]))
        return found.pop() if len(found) == 1 else ""
    if isinstance(kind, TupleType | UnionType):
        items = {_device(get_proper_type(item)) for item in kind.items}
        return items.pop() if len(items) == 1 else ""
    return ""


_LISTS = ("builtins.list", "builtins.tuple", "typing.Sequence")
