"""Parameters and results of an operator, and their text in a schema string."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from customop.frozen import Frozen, cached
from customop.schema.types import (
    DTYPE,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
    holds_arrays,
    lead_of,
    text_of,
    typed_items,
)
from customop.shapes.notation import as_name

__all__ = ["Alias", "Parameter", "Return"]


class _Missing:
    def __repr__(self) -> str:
        return "<no default>"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()

POSITIONAL_ONLY: Final = "positional_only"
POSITIONAL: Final = "positional"
KEYWORD_ONLY: Final = "keyword_only"


class Alias(Frozen):
    """The name of memory that values share, and whether it is written."""

    name: str
    is_write: bool = False

    def __str__(self) -> str:
        return f"({self.name}{'!' if self.is_write else ''})"


def _typed(declared: SchemaType, alias: Alias | None) -> str:
    """A type with its alias after its first array, such as ``Array(a!)[]``."""
    if alias is None or not holds_arrays(declared):
        return str(declared)
    if isinstance(declared, TupleOf):
        texts = [str(item) for item in declared.items]
        first = next(i for i, item in enumerate(declared.items) if holds_arrays(item))
        texts[first] = _typed(declared.items[first], alias)
        return _in_parentheses(texts)
    if isinstance(declared, Maybe | ListOf | DictOf):
        start, _, end = str(declared).partition(str(declared.item))
        return f"{start}{_typed(declared.item, alias)}{end}"
    name, bar, number = str(declared).partition("|")  # an array, or a class with arrays
    return f"{name}{alias}{bar}{number}"


class Parameter(Frozen):
    """One parameter of an operator.

    Parameters are equal if their texts are, so nan equals nan, and 1 differs from 1.0.
    Python reads a name in its normal form (NFKC), and so does `name` have it.

    Attributes
    ----------
    name : str
    type : SchemaType
    default : object
        `MISSING` where the argument is required.
    kind : str
        ``"positional_only"``, ``"positional"`` or ``"keyword_only"``.
    alias : Alias or None
    """

    name: str
    type: SchemaType
    default: Any = MISSING
    kind: str = POSITIONAL
    alias: Alias | None = None

    def __post_init__(self) -> None:
        if not self.name.isascii():
            vars(self)["name"] = as_name(self.name)

    @property
    def is_written(self) -> bool:
        """Whether the operator writes into this argument."""
        return self.alias is not None and self.alias.is_write

    @cached
    def lead(self) -> int:
        """Number of axes that are always before those that broadcasting adds."""
        return lead_of(self.type)

    def __str__(self) -> str:
        text = f"{_typed(self.type, self.alias)} {self.name}"
        if self.default is MISSING:
            return text
        return f"{text}={print_value(self.default, self.type)}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameter):
            return NotImplemented
        return self.kind == other.kind and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((self.kind, str(self)))


class Return(Frozen):
    """One result of an operator."""

    type: SchemaType
    name: str = ""
    alias: Alias | None = None

    def __str__(self) -> str:
        text = _typed(self.type, self.alias)
        return f"{text} {self.name}" if self.name else text


def print_value(value: Any, declared: SchemaType) -> str:
    """The text of a default in a schema string."""
    if value is None:
        return "None"
    if isinstance(declared, Maybe):
        return print_value(value, declared.item)
    if isinstance(declared, ClassOf) and declared.is_enum:
        return _print_member(value, declared)
    if isinstance(declared, ListOf | TupleOf | ClassOf):
        texts = [print_value(v, t) for _, v, t in typed_items(value, declared)]
        is_list = isinstance(declared, ListOf)
        return f"[{', '.join(texts)}]" if is_list else _in_parentheses(texts)
    if declared == DTYPE:
        return _print_dtype(value)
    is_number = isinstance(value, int | float | complex)
    return repr(value) if is_number else text_of(str(value))


def _in_parentheses(texts: list[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _print_member(value: Any, declared: ClassOf) -> str:
    name = value.name
    if name not in declared.cls.__members__:  # type: ignore[attr-defined]  # an Enum
        return repr(int(value.value))  # several flags at once
    return name if name.isidentifier() and name != "None" else text_of(name)


def _print_dtype(dtype: np.dtype[Any]) -> str:
    if dtype.names is None:
        return str(dtype)
    return repr(np.lib.format.dtype_to_descr(dtype))
