"""Records of operators, libraries and rule kinds, which the plugin keeps in their types.

A record is the value of an attribute with a name that no program uses. So it follows the
type through assignments, imports and mypy's cache.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from mypy.types import Instance, LiteralType, Type, get_proper_type

from customop.core.definition import Definition
from customop.mypy.functions import stand_in
from customop.schema.parameters import MISSING, Parameter
from customop.schema.schema import Schema
from customop.schema.types import (
    ARRAY,
    ArrayType,
    Base,
    ClassOf,
    Maybe,
    SchemaType,
    holds_arrays,
    parts,
)
from customop.shapes.notation import Shape

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Record", "array_shape", "copied", "plain", "recall", "remember"]

_ATTRIBUTE = "__customop__"


@dataclass(frozen=True)
class Record:
    """The name and schema of an operator, or the arguments of a library or rule kind.

    Attributes
    ----------
    name : str
        The qualified name of an operator, the namespace of a library, or the name of a
        rule kind.
    plain : str
        Schema of an operator, without classes and values of defaults; empty for others.
    shown : str
        The schema as messages show it.
    unsure : tuple of str
        Parts of the schema that are not known: names of parameters, ``"return"``, and
        ``"mutates_args"`` for the parameters that are written.
    origin : str
        Module of the definition and its number among those of the name there, joined by
        ``#``. The number is negative if the name is not written out.
    is_sure : bool
        Whether importing the module always runs the definition.
    takes : str
        Parameters of a rule kind; empty for others.
    key : str
        Default dispatch key of a library.
    kinds : tuple of str
        Kinds of arrays for which the module of an operator registers kernels.
    """

    name: str
    plain: str = ""
    shown: str = ""
    unsure: tuple[str, ...] = ()
    origin: str = ""
    is_sure: bool = False
    takes: str = ""
    key: str = ""
    kinds: tuple[str, ...] = ()

    @property
    def has_schema(self) -> bool:
        """Whether it is of an operator with a known schema."""
        return bool(self.plain)

    @cached_property
    def definition(self) -> Definition:
        """The definition of an operator, for the checks of the run time."""
        schema = _Shown(Schema.parse(self.plain), self.shown)
        fn = stand_in(self.name, [])
        return Definition(self.name, fn, schema, frozenset(), "", "")

    @property
    def schema(self) -> Schema:
        """The schema of an operator."""
        return self.definition.schema

    @cached_property
    def arrays(self) -> frozenset[str]:
        """Names of the parameters of an operator that are arrays or hold some."""
        return frozenset(p.name for p in self.schema.parameters if holds_arrays(p.type))


class _Shown(Schema):
    """A schema with the text of another one."""

    text: str = ""

    def __init__(self, schema: Schema, text: str) -> None:
        super().__init__(schema.parameters, schema.returns, schema.is_tuple)
        vars(self)["text"] = text

    def __str__(self) -> str:
        return self.text


def plain(schema: Schema) -> str:
    """A schema that the plugin can read again: without classes and values of defaults."""
    parameters = [_plain_parameter(p) for p in schema.parameters]
    returns = [r.replaced(type=_plain_type(r.type)) for r in schema.returns]
    return str(Schema(tuple(parameters), tuple(returns), schema.is_tuple))


def _plain_parameter(p: Parameter) -> Parameter:
    declared = _plain_type(p.type)
    if p.default is MISSING:
        return Parameter(p.name, declared, MISSING, p.kind, p.alias)
    optional = declared if isinstance(declared, Maybe) else Maybe(declared)
    return Parameter(p.name, optional, None, p.kind, p.alias)


def _plain_type(declared: SchemaType) -> SchemaType:
    if not any(isinstance(part, ClassOf) for part in parts(declared)):
        return declared
    return ARRAY if holds_arrays(declared) else Base("str")


def array_shape(declared: SchemaType | None) -> Shape | None:
    """The shape of a type that is an array, or an array or None."""
    array = declared.item if isinstance(declared, Maybe) else declared
    return array.shape if isinstance(array, ArrayType) else None


@lru_cache(maxsize=4096)
def _read(text: str) -> Record:
    found: dict[str, Any] = json.loads(text)
    return Record(
        **{**found, "unsure": tuple(found["unsure"]), "kinds": tuple(found["kinds"])}
    )


def recall(mypy_type: Type | None) -> Record | None:
    """The record in a type, if it has one."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or proper.extra_attrs is None:
        return None
    kept = get_proper_type(proper.extra_attrs.attrs.get(_ATTRIBUTE))
    if not isinstance(kept, LiteralType) or not isinstance(kept.value, str):
        return None
    return _read(kept.value)


def remember(api: TypeChecker, mypy_type: Type, record: Record) -> Type:
    """A type with a record; only types of objects can have one."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance):
        return mypy_type
    text = json.dumps(asdict(record))
    kept = LiteralType(text, api.named_type("builtins.str"))
    return proper.copy_with_extra_attr(_ATTRIBUTE, kept)


def copied(source: Type, target: Type) -> Type:
    """A type with the record of another one, if that has any."""
    given, made = get_proper_type(source), get_proper_type(target)
    if not isinstance(given, Instance) or not isinstance(made, Instance):
        return target
    if given.extra_attrs is None or _ATTRIBUTE not in given.extra_attrs.attrs:
        return target
    return made.copy_with_extra_attr(_ATTRIBUTE, given.extra_attrs.attrs[_ATTRIBUTE])
