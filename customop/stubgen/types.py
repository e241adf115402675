"""Types as text in a stub, from annotations or from types of a schema."""

from __future__ import annotations

import enum
import importlib
import json
import math
import types
import typing
from collections.abc import Container, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from customop.arrays.array import ArrayT
from customop.schema.annotations import Device, Scalar, evaluated, schema_type
from customop.schema.base_types import exact_class
from customop.schema.dtype_hints import DType
from customop.schema.types import (
    DEVICE,
    DTYPE,
    GENERATOR,
    SCALAR,
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

__all__ = ["TypeText", "value_text"]

# Modules whose names are imported one by one, which keeps lines short.
_SHORT = ("collections.abc", "customop", "numpy.typing", "typing")

# ---- values with a public name ----
_ALIASES: dict[Any, tuple[str, str]] = {
    None: ("builtins", "None"),
    type(None): ("builtins", "None"),
    Ellipsis: ("builtins", "..."),
    DType: ("customop", "DType"),
    Device: ("customop", "Device"),
    npt.NDArray: ("numpy.typing", "NDArray"),
    npt.DTypeLike: ("numpy.typing", "DTypeLike"),
    Scalar: ("customop", "Scalar"),
}
_ARRAY = ("customop", "Array")
_BASES: dict[SchemaType, tuple[str, str]] = {
    DTYPE: ("customop", "DType"),
    DEVICE: ("customop", "Device"),
    SCALAR: ("customop", "Scalar"),
    GENERATOR: ("numpy.random", "Generator"),
}


class _NoNameError(Exception):
    """No import can name a part of an annotation, such as a local class."""


class TypeText:
    """Writes types as text, and collects the imports and type variables of the text.

    Parameters
    ----------
    taken : container of str
        Names that a type variable must not have.

    Attributes
    ----------
    modules : set of str
        Modules to import.
    names : set of tuple
        Modules and the names to import from them.
    variables : dict
        Name of a type variable -> the texts of its constraints and bound.
    """

    def __init__(self, taken: Container[str] = ()) -> None:
        self.taken = taken
        self.modules: set[str] = set()
        self.names: set[tuple[str, str]] = set()
        self.variables: dict[str, list[str]] = {}

    def annotation(
        self, hint: Any, declared: SchemaType | None, *, result: bool = False
    ) -> str:
        """The text of an annotation, or of its schema type if that says more."""
        if declared is not None and (hint is Any or hint is object):
            return self.schema_type(declared, result=result)
        before = {*self.modules}, {*self.names}, {**self.variables}
        try:
            return self._hint(hint)
        except _NoNameError:
            self.modules, self.names, self.variables = before
            found = schema_type(hint) if declared is None else declared
            return self.schema_type(found, result=result)

    # ---- annotations ----

    def _hint(self, hint: Any) -> str:
        alias = _alias(hint)
        if alias is not None:
            return self._name(*alias)
        if hasattr(hint, "__constraints__"):
            return self._variable(hint)
        if typing.get_origin(hint) is typing.Annotated:
            return self._hint(hint.__origin__)
        if hasattr(hint, "array_type"):  # jaxtyping's pair of a class and a shape
            return self._hint(hint.array_type)
        return self._form(hint, typing.get_origin(hint), typing.get_args(hint))

    def _form(self, hint: Any, origin: Any, items: tuple[Any, ...]) -> str:
        if origin is typing.Literal:
            return f"{self._name('typing', 'Literal')}[{self._options(items)}]"
        if origin is Union or isinstance(hint, types.UnionType):
            return " | ".join(dict.fromkeys(self._hint(item) for item in items))
        if origin is None:
            return self._qualified(hint)
        if origin is np.ndarray and items[0] == tuple[Any, ...]:
            return self._numpy_array(items[1])
        inside = ", ".join(self._hint(item) for item in items) or "()"
        return f"{self._qualified(origin)}[{inside}]"

    def _numpy_array(self, dtype: Any) -> str:
        """An array of any shape, by NumPy's alias if it has one."""
        if typing.get_origin(dtype) is np.dtype:
            (element,) = typing.get_args(dtype)
            return f"{self._name('numpy.typing', 'NDArray')}[{self._hint(element)}]"
        shape = f"tuple[{self._name('typing', 'Any')}, ...]"
        return f"{self._name('numpy', 'ndarray')}[{shape}, {self._hint(dtype)}]"

    def _options(self, values: Sequence[Any]) -> str:
        return ", ".join(
            f"{self._qualified(type(v))}.{v.name}"
            if isinstance(v, enum.Enum)
            else value_text(v)
            for v in values
        )

    def _qualified(self, named: Any) -> str:
        """The name of a class or an alias, in the shortest public module that has it."""
        alias = _alias(named)
        if alias is not None:
            return self._name(*alias)
        module = getattr(named, "__module__", "")
        name = getattr(named, "__qualname__", getattr(named, "__name__", ""))
        for place in _public_first(module):
            if _found(place, name) is named:
                return self._name(place, name)
        raise _NoNameError

    def _name(self, module: str, name: str) -> str:
        if module == "builtins":
            return name
        if module in _SHORT:
            self.names.add((module, name))
            return name
        self.modules.add(module)
        return f"{module}.{name}"

    def _variable(self, variable: Any) -> str:
        if variable is ArrayT:
            return self._name("customop", "ArrayT")
        options = [evaluated(o, variable) for o in variable.__constraints__]
        bound = evaluated(variable.__bound__, variable)
        limits = [self._hint(option) for option in options]
        limits += [] if bound is None else [f"bound={self._hint(bound)}"]
        name = f"_{variable.__name__.lstrip('_')}"
        while name in self.taken or self.variables.get(name, limits) != limits:
            name += "_"
        self.variables[name] = limits
        return name

    # ---- schema types ----

    def schema_type(self, declared: SchemaType, *, result: bool = False) -> str:
        """The text of a schema type, as an argument or as a result."""
        if isinstance(declared, ArrayType):
            array = self._name(*_ARRAY)
            number = f" | {self._name(*_BASES[SCALAR])}" if declared.or_number else ""
            return f"{array}{number}"
        if isinstance(declared, Base):
            exact = exact_class(declared)
            return self._name(*_BASES.get(declared, (exact.__module__, exact.__name__)))
        if isinstance(declared, Choice):
            literal = self._name("typing", "Literal")
            return f"{literal}[{self._options(declared.options)}]"
        if isinstance(declared, Maybe):
            return f"{self.schema_type(declared.item, result=result)} | None"
        return self._nested(declared, result=result)

    def _nested(
        self, declared: ListOf | DictOf | TupleOf | ClassOf, *, result: bool
    ) -> str:
        if isinstance(declared, ClassOf):
            return self._class(declared)
        if isinstance(declared, TupleOf):
            items = [self.schema_type(item, result=result) for item in declared.items]
            return f"tuple[{', '.join(items)}]"
        item = self.schema_type(declared.item, result=result)
        if isinstance(declared, DictOf):
            return f"dict[str, {item}]"
        if not result:
            return f"{self._name('collections.abc', 'Sequence')}[{item}]"
        return f"tuple[{item}, ...]" if declared.is_tuple else f"list[{item}]"

    def _class(self, declared: ClassOf) -> str:
        try:
            return self._qualified(declared.cls)
        except _NoNameError:
            # No other file can name a class within a function.
            return self._name("typing", "Any")


def _alias(hint: Any) -> tuple[str, str] | None:
    try:
        return _ALIASES.get(hint)
    except TypeError:  # an unhashable annotation
        return None


def _public_first(module: str) -> list[str]:
    """A module and the packages around it; names without an underscore come first."""
    parts = module.split(".")
    private = next((i for i, p in enumerate(parts) if p.startswith("_")), len(parts))
    public = [".".join(parts[:i]) for i in range(private, 0, -1)]
    return [*public, module] if private < len(parts) else [module]


def _found(module: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def value_text(value: Any) -> str:
    """A default or an option as formatted code writes it; ``...`` if it is not short."""
    if isinstance(value, str) and type(value) is str:
        text = json.dumps(value, ensure_ascii=False)
        return text if text.isprintable() and text.count('"') == 2 else repr(value)
    is_short = type(value) in (int, bool, type(None))
    is_finite = type(value) is float and math.isfinite(value)
    return repr(value) if is_short or is_finite else "..."
