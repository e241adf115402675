"""What mypy remembers of an operator, a library or a kind of rule: within its type.

An attribute that no program can name goes with the type wherever that goes: through
assignments, imports and mypy's cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mypy.types import Instance, LiteralType, Type, get_proper_type

from customop.schema.parameters import MISSING
from customop.schema.schema import Schema
from customop.schema.types import ArrayType, Maybe, holds_arrays

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Outline", "Record", "copied", "outline_of", "recall", "remember"]

_ATTRIBUTE = "__customop__"


class _Named(NamedTuple):
    """A parameter or a result, as checks of registrations read it."""

    name: str


@dataclass(frozen=True)
class Outline:
    """As much of a schema as checks of registrations read.

    Attributes
    ----------
    text : str
        The schema.
    by_position, by_name : tuple of str
        Names of the parameters, those that are keyword-only apart.
    results : tuple of str
        Names of the results, empty where they have none.
    written, arrays, optional : tuple of str
        Names of the parameters that are written, of those that hold arrays, and of
        those that have a default.
    shapes : tuple of str
        ``name=axes`` of the arrays that have a shape; `return` is the name of a result.
    """

    text: str
    by_position: tuple[str, ...]
    by_name: tuple[str, ...]
    results: tuple[str, ...]
    written: tuple[str, ...]
    arrays: tuple[str, ...]
    optional: tuple[str, ...]
    shapes: tuple[str, ...] = ()

    @property
    def shape_of(self) -> dict[str, str]:
        """Name of a parameter or ``"return"`` -> its shape, as annotations write it."""
        pairs = (text.partition("=") for text in self.shapes)
        return {name: axes for name, _, axes in pairs}

    @property
    def positional(self) -> list[_Named]:
        """Parameters that can be passed by position."""
        return [_Named(name) for name in self.by_position]

    @property
    def keyword_only(self) -> list[_Named]:
        """Parameters that can only be passed by name."""
        return [_Named(name) for name in self.by_name]

    @property
    def returns(self) -> list[_Named]:
        """Results."""
        return [_Named(name) for name in self.results]

    def show(self, qualname: str, parameter: str = "") -> str:
        """The schema in a line."""
        return f"{qualname}{self.text}"


def outline_of(schema: Schema, text: str) -> Outline:
    """The outline of a schema, with a text for it."""
    return Outline(
        text,
        tuple(p.name for p in schema.positional),
        tuple(p.name for p in schema.keyword_only),
        tuple(r.name for r in schema.returns),
        schema.written,
        tuple(p.name for p in schema.parameters if holds_arrays(p.type)),
        tuple(p.name for p in schema.parameters if p.default is not MISSING),
        tuple(_shapes(schema)),
    )


def _shapes(schema: Schema) -> Iterator[str]:
    kinds = [(p.name, p.type) for p in schema.parameters]
    if len(schema.returns) == 1:
        kinds.append(("return", schema.returns[0].type))
    for name, kind in kinds:
        array = kind.item if isinstance(kind, Maybe) else kind
        if isinstance(array, ArrayType) and array.shape is not None:
            yield f"{name}={array.shape.text}"


@dataclass(frozen=True)
class Record:
    """What is remembered of one object.

    Attributes
    ----------
    name : str
        Of an operator its qualified name, of a library its namespace, of a kind of
        rule what `RuleKind` calls it.
    schema : Outline or None
        Of an operator.
    unsure : tuple of str
        What of the schema is not known: names of parameters, ``"return"``, and
        ``"mutates_args"`` for what is written.
    place : str
        File and line of the definition.
    is_sure : bool
        Whether the definition takes place whenever its module is imported.
    words : dict
        What else there is: `takes` of a kind of rule, `key` of a library.
    """

    name: str
    schema: Outline | None = None
    unsure: tuple[str, ...] = ()
    place: str = ""
    is_sure: bool = False
    words: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def qualname(self) -> str:
        """The name of an operator, as its run-time checks ask for it."""
        return self.name


@lru_cache(maxsize=4096)
def _read(text: str) -> Record:
    found: dict[str, Any] = json.loads(text)
    found["unsure"] = tuple(found["unsure"])
    if found["schema"] is not None:
        text, *names = found["schema"].values()
        found["schema"] = Outline(text, *map(tuple, names))
    return Record(**found)


def recall(kind: Type | None) -> Record | None:
    """What is remembered of an object of a type."""
    proper = get_proper_type(kind)
    if not isinstance(proper, Instance) or proper.extra_attrs is None:
        return None
    kept = get_proper_type(proper.extra_attrs.attrs.get(_ATTRIBUTE))
    if not isinstance(kept, LiteralType) or not isinstance(kept.value, str):
        return None
    return _read(kept.value)


def remember(api: TypeChecker, kind: Type, record: Record) -> Type:
    """A type that remembers; any type but that of an object stays as it is."""
    proper = get_proper_type(kind)
    if not isinstance(proper, Instance):
        return kind
    text = json.dumps(asdict(record))
    kept = LiteralType(text, api.named_type("builtins.str"))
    return proper.copy_with_extra_attr(_ATTRIBUTE, kept)


def copied(source: Type, target: Type) -> Type:
    """A type that remembers what another one does."""
    given, made = get_proper_type(source), get_proper_type(target)
    if not isinstance(given, Instance) or not isinstance(made, Instance):
        return target
    if given.extra_attrs is None or _ATTRIBUTE not in given.extra_attrs.attrs:
        return target
    return made.copy_with_extra_attr(_ATTRIBUTE, given.extra_attrs.attrs[_ATTRIBUTE])
