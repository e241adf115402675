"""Parameters and results of an operator, and their text in a schema string."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from customop.annotations import DTYPE, ListOf, Maybe, SchemaType, TupleOf

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


@dataclass(frozen=True, slots=True)
class Alias:
    """The name of a memory that values share, and whether it is written."""

    name: str
    is_write: bool = False

    def __str__(self) -> str:
        return f"({self.name}{'!' if self.is_write else ''})"


def _typed(kind: SchemaType, alias: Alias | None) -> str:
    """A type with its alias behind the word `Array`, as in ``Array(a!)[]``."""
    text = str(kind)
    return text if alias is None else text.replace("Array", f"Array{alias}", 1)


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One parameter of an operator.

    Parameters are equal when their text is: a default of nan equals itself, and 1 is
    not 1.0.

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

    @property
    def is_written(self) -> bool:
        """Whether the operator writes into this argument."""
        return self.alias is not None and self.alias.is_write

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


@dataclass(frozen=True, slots=True)
class Return:
    """One result of an operator."""

    type: SchemaType
    name: str = ""
    alias: Alias | None = None

    def __str__(self) -> str:
        text = _typed(self.type, self.alias)
        return f"{text} {self.name}" if self.name else text


def print_value(value: Any, kind: SchemaType) -> str:
    """A default as a schema string writes it."""
    if value is None:
        return "None"
    if isinstance(kind, Maybe):
        return print_value(value, kind.item)
    if isinstance(kind, TupleOf):
        texts = [print_value(v, k) for v, k in zip(value, kind.items, strict=True)]
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if isinstance(kind, ListOf):
        return f"[{', '.join(print_value(v, kind.item) for v in value)}]"
    if kind == DTYPE:
        return _print_dtype(value)
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    )


def _print_dtype(dtype: np.dtype[Any]) -> str:
    if dtype.names is None:
        return str(dtype)
    return repr(np.lib.format.dtype_to_descr(dtype))
