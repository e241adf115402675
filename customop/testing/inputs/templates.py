"""Templates of arguments, numbers that fill their arrays, and calls to try."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from customop.arrays.array import c_strides
from customop.arrays.fake import FakeArray, make_fake
from customop.core.samples import Sample
from customop.schema.coerce import examples_of
from customop.schema.schema import Schema
from customop.schema.types import (
    GENERATOR,
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL_ONLY,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    Parameter,
    SchemaType,
    TupleOf,
)
from customop.shapes.notation import Shape
from customop.testing.inputs.sample_values import Array

# ---- trials: calls to try, each with a form and the fillings of its arrays ----


@dataclass(frozen=True, slots=True)
class Trial:
    """A call to try: its form, and the fillings of its arrays."""

    form: Form
    fillings: tuple[Filling, ...]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each array."""
        return [f.shape for f in self.fillings]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Number of axes of each array."""
        return tuple(map(len, self.shapes))

    @property
    def size(self) -> int:
        """Number of elements of all arrays."""
        return sum(int(np.prod(shape, dtype=int)) for shape in self.shapes)

    @property
    def index_limit(self) -> int:
        """The bound for indices: the shortest axis of arrays that are not integers."""
        floats = [f for f in self.fillings if f.dtype.kind not in "iu"]
        return max(1, min([n for f in floats for n in f.shape if n > 0], default=2))

    def with_shapes(self, shapes: Sequence[tuple[int, ...]]) -> Trial:
        """Return a copy with other shapes of the arrays."""
        pairs = zip(self.fillings, shapes, strict=True)
        return Trial(self.form, tuple(replace(f, shape=s) for f, s in pairs))

    def arrays(self, seed: int = 0) -> list[Array]:
        """Make the arrays."""
        limit = self.index_limit
        return [
            fill(f.family, f.shape, f.dtype, seed * 16 + i, limit).copy()
            for i, f in enumerate(self.fillings)
        ]

    def fakes(self) -> list[FakeArray]:
        """Make fake arrays with the same shapes and dtypes."""
        return [_fake(f.shape, f.dtype) for f in self.fillings]

    def values(self, schema: Schema, arrays: Iterable[Any], seed: int = 0) -> list[Any]:
        """Return the values of all parameters, as a kernel takes them."""
        pairs = zip(schema.parameters, self.row(arrays, seed), strict=True)
        return [p.default if v is OMITTED else v for p, v in pairs]

    def row(self, arrays: Iterable[Any], seed: int = 0) -> list[Any]:
        """Return the value of each parameter, or OMITTED."""
        left = iter(arrays)
        return [build(template, left, seed) for template in self.form]


@dataclass(frozen=True, slots=True)
class Filling:
    """Shape, dtype and family of the numbers of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    family: str = "wide"

    def of_family(self, family: str) -> Filling:
        """Return a copy with another family of numbers, if the dtype has it."""
        is_known = family in families(self.dtype.kind)
        return replace(self, family=family) if is_known else self


@lru_cache(maxsize=1024)
def _fake(shape: tuple[int, ...], dtype: np.dtype[Any]) -> FakeArray:
    return make_fake(shape, dtype, c_strides(shape, dtype.itemsize), "cpu")


def call_of(schema: Schema, row: Sequence[Any]) -> Sample:
    """Return the call that gives parameters these values.

    OMITTED parameters are left out. Parameters after them are passed by name.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    given = [v is not OMITTED for v in row]
    for i, (p, value) in enumerate(zip(schema.parameters, row, strict=True)):
        if p.kind == POSITIONAL_ONLY and any(given[i:]) and len(args) == i:
            args.append(p.default if value is OMITTED else value)
        elif value is OMITTED:
            continue
        elif p.kind == KEYWORD_ONLY or len(args) < i:
            kwargs[p.name] = value
        else:
            args.append(value)
    return Sample(tuple(args), kwargs)


# ---- templates: values to try for a parameter, with slots for arrays ----


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for an array, with what its annotation requires."""

    name: str
    element: str = "Array"
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A value made of other templates."""

    make: Callable[[list[Any]], Any] = field(compare=False)
    items: tuple[Any, ...]


class _Marker:
    """A template that is not a value itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def __reduce__(self) -> str:
        return self._name.upper()  # the one in this module, in each process


# A parameter that is left out, and one that gets a new random Generator.
OMITTED: Final = _Marker("omitted")
_SEEDED: Final = _Marker("_seeded")

# One template for each parameter of an operator.
Form: TypeAlias = tuple[Any, ...]


def slots_of(templates: Sequence[Any]) -> list[Slot]:
    """Return the slots in these templates, in order."""
    found: list[Slot] = []
    for template in templates:
        if isinstance(template, Slot):
            found.append(template)
        elif type(template) is Holder:
            found += slots_of(template.items)
    return found


def build(template: Any, arrays: Iterator[Any], seed: int = 0) -> Any:
    """Make the value of a template, filling its slots with arrays in order."""
    if isinstance(template, Slot):
        return next(arrays)
    if type(template) is Holder:
        return template.make([build(item, arrays, seed) for item in template.items])
    return np.random.default_rng(seed) if template is _SEEDED else template


# ---- forms of an operator ----


def choices(p: Parameter) -> list[Any]:
    """Return templates for a parameter; OMITTED comes first if there is a default."""
    found = _options(p.type, p.name)
    if p.default is MISSING:
        return found
    kept = [v for v in found if type(v) is not type(p.default) or v != p.default]
    return [OMITTED, *kept]


def forms_of(columns: Sequence[Sequence[Any]], limit: int) -> list[Form]:
    """Return combinations of templates, one for each parameter, the likeliest first.

    After the first come forms whose lists have equal lengths, as strides and paddings
    do.
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
    """Yield rows with one item of each column; items near the top come first."""
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


# ---- values to try for a parameter, the likeliest first ----

_AXES = {"axis", "axes", "dim", "dims", "perm", "permutation", "source", "destination"}
# Words in the name of a parameter -> values to try, by type. The first matching row is
# used. Names are split at underscores and digits.
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
# The most values to try for a type that contains others.
_MANY = 12


def names_axes(name: str) -> bool:
    """Return whether a parameter of this name is about axes."""
    return bool(_words(name) & _AXES)


def _words(name: str) -> set[str]:
    return {name, *re.split(r"[_\d]+", name)}


def _plain(declared: Base, name: str) -> list[Any]:
    for words, by_type in _BY_NAME:
        if not _words(name).isdisjoint(words.split("|")):
            return [*by_type.get(declared.name, examples_of(declared))]
    return [*examples_of(declared)]


def _options(declared: SchemaType, name: str) -> list[Any]:
    """Return templates for a value of a type, the likeliest first."""
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
    """Return lists to try: with one item, two, none and three."""
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
    """Return the row of first items, then rows that differ from it in one place."""
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
    """Return the defaults of the fields of a class that are numbers or strings."""
    if dataclasses.is_dataclass(cls):
        found = {f.name: f.default for f in dataclasses.fields(cls)}
    else:
        found = getattr(cls, "_field_defaults", {})  # for a NamedTuple
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


# ---- arrays ----


@lru_cache(maxsize=512)
def fill(
    family: str, shape: _Shape, dtype: np.dtype[Any], seed: int, limit: int = 2
) -> _Array:
    """Make a read-only array, from which copies are made.

    Parameters
    ----------
    family : str
        One of `families` or `SHAPED`. If the shape or dtype cannot have it, the
        plainest one is used.
    shape : tuple of int
    dtype : dtype
    seed : int
        Each seed gives other numbers of the same family.
    limit : int
        Indices are below this number.

    Returns
    -------
    ndarray
    """
    rng = np.random.default_rng((seed, len(shape), prod(shape)))
    if dtype.kind in "iu":
        out = _whole_numbers(family, shape, dtype, limit, rng)
    elif dtype.kind == "b":
        out = _signs(shape, rng) > 0
    elif dtype.kind in "fc":
        make = _family(family, shape)
        out = make(shape, rng)
        if dtype.kind == "c" and make in _PLAIN.values():
            out = out + 1j * make(shape, rng)
    else:
        out = np.zeros(shape)
    out = np.array(
        out, dtype, order="C"
    )  # arithmetic turns arrays without axes into scalars
    out.flags.writeable = False
    return out


def _whole_numbers(
    family: str,
    shape: _Shape,
    dtype: np.dtype[Any],
    limit: int,
    rng: np.random.Generator,
) -> _Array:
    numbers = rng.permutation(prod(shape)).reshape(shape)
    if family not in ("count", "signed"):
        return numbers % max(limit, 1)
    numbers = 1 + numbers % 5
    is_signed = family == "signed" and dtype.kind == "i"
    return numbers * _signs(shape, rng).astype(int) if is_signed else numbers


# ---- numbers that fill arrays ----
# They are distinct, moderate, far from kinks, and the same each time.

_Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_Shape: TypeAlias = tuple[int, ...]


def _spread(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Return distinct numbers between 0 and 1, in random order."""
    count = prod(shape)
    steps = rng.permutation(count) + rng.uniform(0.25, 0.75, count)
    out: _Array = steps / max(count, 1)
    return out.reshape(shape)


def _magnitudes(spread: _Array, bins: int) -> _Array:
    """Return distinct positive numbers away from all multiples of a half.

    Functions that round, clip or compare have their kinks at these multiples.
    """
    scaled = spread * bins
    which = np.floor(scaled)
    out: _Array = 0.5 * which + 0.1 + 0.3 * (scaled - which)
    return out


def _signs(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Return random signs, the first one positive, half of them negative."""
    count = prod(shape)
    signs = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
    if count:
        signs[1:] = rng.permutation(signs[1:])
    return signs.reshape(shape)


# ---- families of floats ----


def families(letter: str) -> tuple[str, ...]:
    """Return the families that fit every shape, for a kind of dtype."""
    if letter in "iu":
        return _WHOLE
    return tuple(_PLAIN) if letter in "fc" else ("mixed",)


def _family(name: str, shape: _Shape) -> _Family:
    """Return a family's function, or the plainest if the shape cannot have it."""
    fitting = dict(_PLAIN)
    if shape:
        fitting |= _OF_VECTORS
    if len(shape) > 1 and shape[-1] == shape[-2]:
        fitting |= _OF_MATRICES
    return fitting.get(name, _wide)


def _wide(shape: _Shape, rng: np.random.Generator) -> _Array:
    return _signs(shape, rng) * _magnitudes(_spread(shape, rng), 6)


def _unit(shape: _Shape, rng: np.random.Generator) -> _Array:
    return _signs(shape, rng) * _magnitudes(_spread(shape, rng), 2)


def _positive(shape: _Shape, rng: np.random.Generator) -> _Array:
    return _magnitudes(_spread(shape, rng), 2)


def _above(shape: _Shape, rng: np.random.Generator) -> _Array:
    return 1.0 + _magnitudes(_spread(shape, rng), 4)


def _sorted(shape: _Shape, rng: np.random.Generator) -> _Array:
    return np.sort(_above(shape, rng), -1)


def _probabilities(shape: _Shape, rng: np.random.Generator) -> _Array:
    x = _positive(shape, rng)
    out: _Array = x / x.sum(-1, keepdims=True)
    return out


def _unit_length(shape: _Shape, rng: np.random.Generator) -> _Array:
    x = _wide(shape, rng)
    out: _Array = x / np.sqrt((x * x).sum(-1, keepdims=True))
    return out


def _definite(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Return symmetric matrices with distinct positive eigenvalues."""
    x = _unit(shape, rng)
    mixed = 0.2 * (x + np.swapaxes(x, -1, -2))
    out: _Array = mixed + np.diag(1.5 + np.arange(shape[-1]))
    return out


def _orthogonal(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Return rotations, which have determinant 1."""
    q: _Array = np.linalg.qr(_wide(shape, rng))[0]
    if shape[-1]:
        q[..., 0] *= np.linalg.det(q)[..., None].round()
    return q


def _triangular(shape: _Shape, rng: np.random.Generator) -> _Array:
    """Return lower triangular matrices with a positive diagonal."""
    out: _Array = np.tril(_definite(shape, rng))
    return out


_Family: TypeAlias = Callable[[_Shape, np.random.Generator], _Array]

# The search uses the first family that a kernel takes without warnings.
_PLAIN: dict[str, _Family] = {
    "wide": _wide,
    "unit": _unit,
    "positive": _positive,
    "above one": _above,
}
# Some kernels need numbers like these.
_OF_VECTORS: dict[str, _Family] = {
    "sorted": _sorted,
    "probabilities": _probabilities,
    "unit length": _unit_length,
}
_OF_MATRICES: dict[str, _Family] = {
    "definite": _definite,
    "orthogonal": _orthogonal,
    "triangular": _triangular,
}
SHAPED = (*_OF_VECTORS, *_OF_MATRICES)
_WHOLE = ("index", "count", "signed")
