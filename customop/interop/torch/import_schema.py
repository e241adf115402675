"""Schemas of operators of torch in the words of this package."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from customop.errors import RegistrationError
from customop.interop.torch.framework import schema_of

__all__ = ["ImportSchema", "TorchArgument"]

# Types of torch's schema -> ours.
_TYPES: Final = {
    "Tensor": "Array",
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "number": "Scalar",
    "complex": "complex",
    "ScalarType": "dtype",
    "Device": "device",
}


class TorchArgument(NamedTuple):
    """An argument of a torch operator, in our words."""

    name: str
    type: str
    is_keyword: bool
    default: str
    is_written: bool

    @property
    def is_array(self) -> bool:
        """Whether it is an array, or None or a list of them."""
        return self.type.startswith("Array")

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return "[]" in self.type


def _type_text(given: str) -> str | None:
    """A type of torch in our words, or None."""
    for outer, suffix in (("Optional", "?"), ("List", "[]")):
        match = re.fullmatch(rf"{outer}\[(.*)\]", given)
        if match:
            inner = _type_text(match[1])
            return None if inner is None else f"{inner}{suffix}"
    return _TYPES.get(given)


class ImportSchema:
    """The schema of an operator of torch in our words.

    Attributes
    ----------
    arguments : list of TorchArgument
        Those that we have types for; the others keep their defaults.
    returns : list of (str, str)
        For each result the type, and the name of the memory that it is in, if an
        argument is written there.
    aliases : dict
        Name of a written argument -> the name of its memory.
    text : str
        The schema.
    """

    def __init__(self, overload: Any) -> None:
        self._overload = overload
        schema = schema_of(overload)
        self.arguments: list[TorchArgument] = self._arguments(schema)
        self.returns: list[tuple[str, str]] = [
            self._returned(r) for r in schema.returns
        ]
        self.aliases: dict[str, str] = {
            a.name: next(iter(a.alias_info.before_set))
            for a in schema.arguments
            if a.alias_info is not None and a.alias_info.is_write
        }
        self.text: str = self._schema_text()

    def _arguments(self, schema: Any) -> list[TorchArgument]:
        found = []
        for a in schema.arguments:
            text = _type_text(str(a.real_type))
            if text is None and a.has_default_value():
                continue
            if text is None:
                raise self._untranslatable(f"'{a.name}' is {a.real_type}")
            default = _default(a, text)
            is_written = a.alias_info is not None and a.alias_info.is_write
            found.append(TorchArgument(a.name, text, a.kwarg_only, default, is_written))
        return found

    def _untranslatable(self, what: str) -> RegistrationError:
        return RegistrationError(
            f"from_torch: {schema_of(self._overload)}: {what}, which has no schema type",
            do="write an operator around it: custom_op(name, fn)",
        )

    def _returned(self, r: Any) -> tuple[str, str]:
        """The type of a result, and the name of the memory that it is in."""
        text = _type_text(str(r.real_type))
        if text is None:
            raise self._untranslatable(f"a result is {r.real_type}")
        info = r.alias_info
        if info is None or not info.is_write:
            return text, ""
        return text, next(iter(info.before_set))

    def _schema_text(self) -> str:
        texts, has_star = [], False
        for a in self.arguments:
            if a.is_keyword and not has_star:
                texts.append("*")
                has_star = True
            alias = f"Array({self.aliases[a.name]}!)" if a.is_written else "Array"
            texts.append(f"{a.type.replace('Array', alias, 1)} {a.name}{a.default}")
        results = [
            t.replace("Array", f"Array({alias}!)", 1) if alias else t
            for t, alias in self.returns
        ]
        shown_results = results[0] if len(results) == 1 else f"({', '.join(results)})"
        return f"({', '.join(texts)}) -> {shown_results}"


def _default(argument: Any, text: str) -> str:
    """The default of an argument in a schema string."""
    if not argument.has_default_value():
        return ""
    value = argument.default_value
    if value is None or isinstance(value, bool):
        return f"={value}"
    if isinstance(value, str):
        return f'="{value}"' if text.startswith("str") else ""
    if isinstance(value, list):
        return f"=[{', '.join(map(repr, value))}]"
    return f"={value!r}" if isinstance(value, int | float | complex) else ""
