"""Templates of arguments: values to try for a parameter, with slots for arrays."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np

from customop.schema.base_types import examples_of
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
    "Holder",
    "Slot",
    "build",
    "by_cost",
    "choices",
    "forms_of",
    "slots_of",
]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for an array, with what its annotation says."""

    name: str
    element: str = "Array"
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A value made of other templates."""

    make: Callable[[list[Any]], Any] = field(compare=False)
    items: tuple[Any, ...]


class _Marker:
    """A template that is not a value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}>"


# A parameter that is left out, and one that gets a new random Generator.
OMITTED: Final = _Marker("omitted")
_SEEDED: Final = _Marker("seeded")

# A template for each parameter of an operator.
Form: TypeAlias = tuple[Any, ...]


def slots_of(templates: Sequence[Any]) -> list[Slot]:
    """The slots of several templates, in order."""
    found: list[Slot] = []
    for template in templates:
        if isinstance(template, Slot):
            found.append(template)
        elif type(template) is Holder:
            found += slots_of(template.items)
    return found


def build(template: Any, arrays: Iterator[Any], seed: int = 0) -> Any:
    """Make the value of a template, with arrays in its slots one after the other."""
    if isinstance(template, Slot):
        return next(arrays)
    if type(template) is Holder:
        return template.make([build(item, arrays, seed) for item in template.items])
    return np.random.default_rng(seed) if template is _SEEDED else template


# ---- values to try for a parameter, the likeliest first ----

_AXES = {"axis", "axes", "dim", "dims", "perm", "permutation", "source", "destination"}
# Words in the name of a parameter -> values to try, by type. The first row with a word
# of the name counts; names are split at underscores and digits.
_BY_NAME: tuple[tuple[str, dict[str, tuple[Any, ...]]], ...] = (
    ("axis1|source", {"int": (0, -1, 1)}),
    ("axis2|destination", {"int": (1, -1, 0)}),
    ("|".join(_AXES), {"int": (-1, 0, 1, -2, 2)}),
    ("decimals|offset|diagonal|ddof", {"int": (0, 1, -1)}),
    ("size|shape|length|width|height|n|m|num|count|classes|bins|depth|segments",
     {"int": (3, 4, 2, 0, 9, 1, 6, 8)}),
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
# Values to try for a type that holds others, at most.
_MANY = 12


def _words(name: str) -> set[str]:
    return {name, *re.split(r"[_\d]+", name)}


def _plain(declared: Base, name: str) -> list[Any]:
    for words, by_type in _BY_NAME:
        if not _words(name).isdisjoint(words.split("|")):
            return [*by_type.get(declared.name, examples_of(declared))]
    return [*examples_of(declared)]


def _options(declared: SchemaType, name: str) -> list[Any]:
    """Templates for a value of a type, the likeliest first."""
    if declared == GENERATOR:
        return [_SEEDED]
    if isinstance(declared, ArrayType):
        slot = Slot(name, declared.element, declared.shape)
        return [slot, 1.5] if declared.or_number else [slot]
    return _OPTIONS[type(declared)](declared, name)


def _of_list(declared: ListOf, name: str) -> list[Any]:
    items = _options(declared.item, name)
    if declared.length is None:
        rows = _rows(items, declared.item, name)
    else:
        rows = [[item] * declared.length for item in items]
    return [Holder(tuple if declared.is_tuple else list, tuple(row)) for row in rows]


def _rows(items: list[Any], declared: SchemaType, name: str) -> list[list[Any]]:
    """Lists to try: of one item, of two, of none, of three."""
    first = items[0]
    if slots_of([first]):
        mixed = [[first, None], [None, first]] if isinstance(declared, Maybe) else []
        return [[first, first], [first], [first] * 3, *mixed, []]
    ones = [[item] for item in items]
    axes = [[0, 1], [1, 0]] if declared == Base("int") else []
    twos = [[a, b] for a in items[:3] for b in items[:3] if [a, b] not in axes]
    twos = [*axes, *twos] if _words(name) & _AXES else [*twos, *axes]
    threes = [[first] * 3, items[:3]]
    return [*ones[:3], *twos[:3], [], *ones[3:], *twos[3:], *threes]


def _of_tuple(declared: TupleOf, name: str) -> list[Any]:
    columns = [_options(item, name) for item in declared.items]
    return [Holder(tuple, row) for row in _varied(columns)]


def _varied(columns: Sequence[list[Any]]) -> list[tuple[Any, ...]]:
    """The row of the first items, then rows that differ from it in one place."""
    first = tuple(column[0] for column in columns)
    rows = [first]
    for depth in range(1, 4):
        for i, column in enumerate(columns):
            if depth < len(column):
                rows.append((*first[:i], column[depth], *first[i + 1 :]))
    return rows[:_MANY]


def _of_dict(declared: DictOf, name: str) -> list[Any]:
    item = _options(declared.item, name)
    pairs = zip(item, [*item[1:], item[0]], strict=True)
    rows: list[tuple[Any, ...]] = [*pairs, *[(a,) for a in item], ()]
    return [_keyed(("a", "b"), row) for row in rows[:_MANY]]


def _keyed(names: Sequence[str], items: Sequence[Any]) -> Holder:
    keys = tuple(names[: len(items)])
    return Holder(lambda values: dict(zip(keys, values, strict=True)), tuple(items))


def _of_class(declared: ClassOf, name: str) -> list[Any]:
    if declared.is_enum:
        members: Any = declared.cls
        return list(members)
    known = _field_defaults(declared.cls)
    columns = [[*known.get(n, ()), *_options(t, n)] for n, t in declared.items.items()]
    rows = _varied(columns)
    fields = declared.fields
    if not fields.is_dict:
        return [Holder(lambda items: fields.like(None, items), row) for row in rows]
    made: list[Any] = [_keyed(list(declared.items), row) for row in rows]
    if len(fields.required) < len(declared.items):
        first = zip(declared.items, rows[0], strict=True)
        needed = {n: v for n, v in first if n in fields.required}
        made.insert(1, _keyed(list(needed), list(needed.values())))
    return made


def _field_defaults(cls: type) -> dict[str, tuple[Any]]:
    """Defaults of the fields of a class, where they are numbers or strings."""
    if dataclasses.is_dataclass(cls):
        found = {f.name: f.default for f in dataclasses.fields(cls)}
    else:
        found = getattr(cls, "_field_defaults", {})  # of a NamedTuple
    plain = (bool, int, float, complex, str)
    return {name: (v,) for name, v in found.items() if isinstance(v, plain)}


_OPTIONS: dict[type, Callable[[Any, str], list[Any]]] = {
    Base: _plain,
    Choice: lambda declared, name: [*declared.options],
    Maybe: lambda declared, name: [*_options(declared.item, name), None],
    ListOf: _of_list,
    TupleOf: _of_tuple,
    DictOf: _of_dict,
    ClassOf: _of_class,
}


# ---- forms of an operator ----


def choices(p: Parameter) -> list[Any]:
    """Templates for a parameter; OMITTED comes first where there is a default."""
    found = _options(p.type, p.name)
    if p.default is MISSING:
        return found
    kept = [v for v in found if type(v) is not type(p.default) or v != p.default]
    return [OMITTED, *kept]


def forms_of(columns: Sequence[Sequence[Any]], limit: int) -> list[Form]:
    """Forms of the templates of each parameter, the likeliest first.

    The second ones have lists of one length, as strides, paddings and sizes have.
    """
    plain = by_cost(columns, limit)
    first = next(plain, ())
    return [first, *_of_one_length(columns), *plain]


def _of_one_length(columns: Sequence[Sequence[Any]]) -> Iterator[Form]:
    lists = [
        [v for v in c if isinstance(v, Holder) and v.make is list] for c in columns
    ]
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
