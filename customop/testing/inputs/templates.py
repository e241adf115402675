"""Forms of a call: what stands for each parameter, with places for arrays."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from customop.schema.parameters import MISSING, Parameter
from customop.schema.types import (
    GENERATOR,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
)
from customop.shapes.notation import Shape

__all__ = [
    "OMITTED",
    "Form",
    "Node",
    "Seeded",
    "Slot",
    "by_cost",
    "choices",
    "forms_of",
    "options",
    "slots",
]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for an array, and what its annotation says of it."""

    name: str
    is_written: bool = False
    element: str = "Array"
    shape: Shape | None = None


class Node(NamedTuple):
    """A value that holds others, some of them places for arrays."""

    make: Callable[[list[Any]], Any]
    items: tuple[Any, ...]


class Seeded:
    """A place for a Generator, new for each call."""


class _Omitted:
    def __repr__(self) -> str:
        return "<omitted>"


OMITTED: Final = _Omitted()

# What stands for each parameter of an operator.
Form = tuple[Any, ...]


def slots(template: Any) -> Iterator[Slot]:
    """The places for arrays in a template, in order."""
    if isinstance(template, Slot):
        yield template
    elif type(template) is Node:
        for item in template.items:
            yield from slots(item)


# ---- what a parameter may be given, the likeliest first ----

_AXES = {"axis", "axes", "dim", "dims", "perm", "permutation", "source", "destination"}
# Words in the name of a parameter -> what is tried for each type of it. The first row
# that has a word of the name counts; names are split at underscores and digits.
_BY_NAME: tuple[tuple[str, dict[str, tuple[Any, ...]]], ...] = (
    ("axis1|source", {"int": (0, -1, 1)}),
    ("axis2|destination", {"int": (1, -1, 0)}),
    ("|".join(_AXES), {"int": (-1, 0, 1, -2, 2)}),
    ("decimals|offset|diagonal|ddof", {"int": (0, 1, -1)}),
    ("size|shape|length|width|height|n|m|num|count|classes|bins|depth|segments",
     {"int": (3, 4, 2, 9, 1, 6, 8)}),
    ("stride|strides|dilation|groups|kernel|padding|pad|times|order|degree|p",
     {"int": (1, 2, 0, 3), "float": (2.0, 1.0, 0.5)}),
    ("start|begin", {"int": (0, 1, -1), "float": (0.25, 1.25)}),
    ("stop|end", {"int": (4, 3, -1), "float": (2.25, 1.75)}),
    ("eps|epsilon|tol|rtol|atol", {"float": (1e-3, 1e-6)}),
    ("lo|low|min|lower|minimum", {"float": (-0.55, 0.0, -1.05), "int": (0, -1, 1)}),
    ("hi|high|max|upper|maximum", {"float": (0.85, 2.05, 1.05), "int": (3, 4, 2)}),
    ("subscripts|equation|subs", {"str": ("i,i->i", "i->i", "ij,jk->ik", "ij->ji",
                                          "bij,bjk->bik", "i,i,i->i")}),
    ("mode|method|side|kind|reduction|padding|interpolation|order",
     {"str": ("constant", "same", "linear", "mean", "left", "C", "valid", "full",
              "nearest", "sum", "reduced", "right")}),
)  # fmt: skip
_PLAIN: dict[str, tuple[Any, ...]] = {
    "int": (1, 2, 0, 3, -1, 4),
    "float": (0.5, 2.0, -0.75, 1.0, 0.0, 3.0),
    "complex": (0.5 + 0.25j, 2.0 + 0j),
    "bool": (False, True),
    "str": ("a", "", "linear", "mean", "same"),
    "Scalar": (2.0, 0.5, 1, 3),
    "dtype": tuple(np.dtype(n) for n in ("f8", "f4", "i8", "c16", "?")),
    "device": ("cpu",),
}
# How many values stand for a type that holds others.
_MANY = 12


def _words(name: str) -> set[str]:
    return {name, *re.split(r"[_\d]+", name)}


def _plain(kind: Base, name: str) -> list[Any]:
    for words, by_type in _BY_NAME:
        if not _words(name).isdisjoint(words.split("|")):
            return [*by_type.get(kind.name, _PLAIN[kind.name])]
    return [*_PLAIN[kind.name]]


def options(kind: SchemaType, name: str, *, is_written: bool = False) -> list[Any]:
    """Templates for a value of a type, the likeliest first."""
    if kind == GENERATOR:
        return [Seeded()]
    if isinstance(kind, ArrayType):
        slot = Slot(name, is_written, kind.element, kind.shape)
        return [slot, 1.5] if kind.or_number else [slot]
    return _OPTIONS[type(kind)](kind, name, is_written)


def _of_base(kind: Base, name: str, is_written: bool) -> list[Any]:
    return _plain(kind, name)


def _of_choice(kind: Choice, name: str, is_written: bool) -> list[Any]:
    return [*kind.options]


def _of_maybe(kind: Maybe, name: str, is_written: bool) -> list[Any]:
    return [*options(kind.item, name, is_written=is_written), None]


def _of_list(kind: ListOf, name: str, is_written: bool) -> list[Any]:
    make = tuple if kind.is_tuple else list
    rows = _rows(options(kind.item, name, is_written=is_written), kind.item, name)
    if kind.length is not None:
        item = options(kind.item, name, is_written=is_written)
        rows = [[v] * kind.length for v in item]
    return [Node(make, tuple(row)) for row in rows]


def _rows(items: list[Any], kind: SchemaType, name: str) -> list[list[Any]]:
    """Lists to try: of one item, of two, of none, of three."""
    first = items[0]
    if any(True for _ in slots(first)):
        nothing: list[list[Any]] = [[]]
        mixed = [[first, None], [None, first]] if isinstance(kind, Maybe) else []
        return [[first, first], [first], [first] * 3, *mixed, *nothing]
    ones = [[item] for item in items]
    axes = [[0, 1], [1, 0]] if kind == Base("int") else []
    twos = [[a, b] for a in items[:3] for b in items[:3] if [a, b] not in axes]
    twos = [*axes, *twos] if _words(name) & _AXES else [*twos, *axes]
    threes = [[first] * 3, items[:3]]
    return [*ones[:3], *twos[:3], [], *ones[3:], *twos[3:], *threes]


def _of_tuple(kind: TupleOf, name: str, is_written: bool) -> list[Any]:
    columns = [options(k, name, is_written=is_written) for k in kind.items]
    return [Node(tuple, row) for row in _varied(columns)]


def _varied(columns: Sequence[list[Any]]) -> list[tuple[Any, ...]]:
    """Rows of the first items, then rows that differ from it in one place."""
    first = tuple(column[0] for column in columns)
    rows = [first]
    for depth in range(1, 4):
        for i, column in enumerate(columns):
            if depth < len(column):
                rows.append((*first[:i], column[depth], *first[i + 1 :]))
    return rows[:_MANY]


def _of_dict(kind: DictOf, name: str, is_written: bool) -> list[Any]:
    item = options(kind.item, name, is_written=is_written)
    pairs = zip(item, [*item[1:], item[0]], strict=True)
    rows: list[tuple[Any, ...]] = [*pairs, *[(a,) for a in item], ()]
    return [_keyed(("a", "b"), row) for row in rows[:_MANY]]


def _keyed(names: Sequence[str], items: Sequence[Any]) -> Node:
    keys = tuple(names[: len(items)])
    return Node(lambda values: dict(zip(keys, values, strict=True)), tuple(items))


def _of_class(kind: ClassOf, name: str, is_written: bool) -> list[Any]:
    if kind.is_enum:
        members: Any = kind.cls
        return list(members)
    fields = kind.fields
    known = _field_defaults(kind.cls)
    columns = [
        [*known.get(n, ()), *options(k, n, is_written=is_written)]
        for n, k in kind.items.items()
    ]
    rows = _varied(columns)
    if fields.is_dict:
        names = list(kind.items)
        whole: list[Any] = [_keyed(names, row) for row in rows]
        if len(fields.required) < len(names):
            given = dict(zip(names, rows[0], strict=True))
            needed = [n for n in names if n in fields.required]
            whole.insert(1, _keyed(needed, [given[n] for n in needed]))
        return whole

    def make(items: list[Any]) -> Any:
        return fields.like(None, items)

    return [Node(make, row) for row in rows]


def _field_defaults(cls: type) -> dict[str, tuple[Any]]:
    """What fields hold where nothing is said, if it is no array."""
    if hasattr(cls, "_field_defaults"):
        found = dict(cls._field_defaults)
    else:
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        found = {f.name: f.default for f in fields}
    plain = (bool, int, float, complex, str)
    return {name: (v,) for name, v in found.items() if isinstance(v, plain)}


_OPTIONS: dict[type, Callable[[Any, str, bool], list[Any]]] = {
    Base: _of_base,
    Choice: _of_choice,
    Maybe: _of_maybe,
    ListOf: _of_list,
    TupleOf: _of_tuple,
    DictOf: _of_dict,
    ClassOf: _of_class,
}


# ---- forms of an operator ----


def choices(p: Parameter) -> list[Any]:
    """What a parameter may be given: nothing at all first where it has a default."""
    found = options(p.type, p.name, is_written=p.is_written)
    if p.default is MISSING:
        return found
    kept = [v for v in found if not _is_same(v, p.default)]
    return [OMITTED, *kept]


def _is_same(template: Any, default: Any) -> bool:
    if isinstance(template, Slot | Node | Seeded):
        return False
    return type(template) is type(default) and template == default


def forms_of(columns: Sequence[Sequence[Any]], limit: int) -> list[Form]:
    """Forms of the options of each parameter, the likeliest first.

    Behind the first come those whose lists have one length all together, as the
    strides, paddings and sizes of one operator have.
    """
    plain = by_cost(columns, limit)
    first = next(plain, ())
    return [first, *_of_one_length(columns), *plain]


def _of_one_length(columns: Sequence[Sequence[Any]]) -> Iterator[Form]:
    lists = [[v for v in c if isinstance(v, Node) and v.make is list] for c in columns]
    if sum(map(bool, lists)) < 2:
        return
    for length in (2, 1, 3):
        fitting = [[v for v in c if len(v.items) == length] for c in lists]
        yield tuple(f[0] if f else c[0] for f, c in zip(fitting, columns, strict=True))


def by_cost(columns: Sequence[Sequence[Any]], limit: int) -> Iterator[tuple[Any, ...]]:
    """Rows of one item of each column; those near the tops of the columns first."""
    lengths = [len(column) for column in columns]
    total = sum(lengths) - len(lengths)
    places = (at for cost in range(total + 1) for at in _places(lengths, cost))
    for at in islice(places, limit):
        yield tuple(column[i] for column, i in zip(columns, at, strict=True))


def _places(lengths: Sequence[int], cost: int) -> Iterator[tuple[int, ...]]:
    if not lengths:
        if cost == 0:
            yield ()
        return
    rest = sum(lengths[1:]) - len(lengths) + 1
    for i in range(max(0, cost - rest), min(cost, lengths[0] - 1) + 1):
        for others in _places(lengths[1:], cost - i):
            yield (i, *others)
