"""Classes in a graph file, by name: a file never imports a module or runs its code."""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from typing import Any

from customop.arrays.pytree import TreeRules, registered_nodes
from customop.errors import GraphFileError, quoted, shown
from customop.graph.files.fields import as_entries, as_list, as_text
from customop.schema.classes import ClassFields, fields_of, is_config_class
from customop.schema.types import classes

__all__ = ["KnownClass", "class_entry", "is_graph_class", "known_class", "read_class"]


class KnownClass:
    """How objects of a class are taken apart for a file, and made again.

    Attributes
    ----------
    cls : type
    form : str
        ``"enum"``, ``"tuple"`` for a NamedTuple, ``"fields"`` for config objects and
        dataclasses, ``"pytree"`` for classes that a user registered with optree.
    names : sequence of str
        Names of the fields, or of the members of an Enum; empty for a pytree.
    fields : ClassFields or None
    registered : TreeRules or None
    """

    __slots__ = ("cls", "fields", "form", "names", "registered")

    def __init__(
        self,
        cls: type,
        form: str,
        names: Sequence[str],
        fields: ClassFields | None = None,
        registered: TreeRules | None = None,
    ) -> None:
        self.cls: type = cls
        self.form: str = form
        self.names: Sequence[str] = names
        self.fields: ClassFields | None = fields
        self.registered: TreeRules | None = registered

    def parts(self, value: Any) -> tuple[list[Any], Any]:
        """The parts of an object that are written, and what else it needs."""
        if self.fields is not None:
            return self.fields.items(value), self.fields.keeps_more(value)
        if self.registered is not None:
            found, constant, *_ = self.registered.flatten_func(value)
            return list(found), constant
        return list(value), None

    def make(self, items: list[Any], rest: Any) -> Any:
        """An object of its parts."""
        if self.fields is not None:
            _check_count(self, items)
            # A constructor is called only where an object keeps more than its fields.
            made = self.fields.like if rest is True else self.fields.outline
            return made(None, items)
        if self.registered is not None:
            return self.registered.unflatten_func(rest, items)
        _check_count(self, items)
        return tuple.__new__(self.cls, items)


def _check_count(known: KnownClass, items: Sequence[Any]) -> None:
    if len(items) != len(known.names):
        raise GraphFileError(
            f"an object of {name_of(known.cls)} has {len(items)} parts in the file, and"
            f" the class has {len(known.names)}"
        )


def name_of(cls: type) -> str:
    """The qualified name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def known_class(cls: type) -> KnownClass | None:
    """How objects of a class are written; None where files have no form for them."""
    declared = classes.get(name_of(cls))
    if issubclass(cls, enum.Enum):
        return KnownClass(cls, "enum", [*cls.__members__])
    if is_graph_class(cls):
        return None
    if declared is not None and declared.cls is cls and not declared.fields.is_dict:
        return _by_fields(declared.fields)
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return KnownClass(cls, "tuple", vars(cls).get("_fields", ()))
    return _by_registration(cls)


def _by_registration(cls: type) -> KnownClass | None:
    registered = registered_nodes().get(cls)
    if registered is None:
        return None
    if is_config_class(cls):
        return _by_fields(fields_of(cls, {}))
    return KnownClass(cls, "pytree", (), registered=registered)


def _by_fields(fields: ClassFields) -> KnownClass:
    return KnownClass(fields.cls, "fields", [*fields.hints], fields)


def is_graph_class(cls: type) -> bool:
    """Whether objects of a class are graphs, which files have in a table of their own."""
    return callable(getattr(cls, "recompile", None))


def class_entry(known: KnownClass) -> dict[str, Any]:
    """The JSON of a class."""
    return {"name": name_of(known.cls), "form": known.form, "fields": [*known.names]}


def read_class(written: Any) -> KnownClass:
    """The class that an entry of the file names."""
    entry = as_entries(written, "a class", "name form fields")
    name, form = as_text(entry["name"], "the name of a class"), entry["form"]
    names = [as_text(n, "a field") for n in as_list(entry["fields"], "the fields")]
    found = find_known(name)
    if found.form != form:
        raise GraphFileError(
            f"{name} has the form {shown(form)} in the file, and here {found.form!r}"
        )
    missing = [n for n in names if n not in found.names]
    if form == "enum" and not missing:
        return found
    if names != [*found.names]:
        raise GraphFileError(
            f"{name} has other fields than when the graph was saved",
            f"in the file: {quoted(names)}",
            f"here: {quoted(found.names)}",
            do="load the graph where the class is as it was, or capture it again",
        )
    return found


def find_known(name: str) -> KnownClass:
    """A class by its qualified name, among those that are known in this process."""
    declared = classes.get(name)
    candidates: list[Any] = [] if declared is None else [declared.cls]
    candidates += [cls for cls in registered_nodes() if name_of(cls) == name]
    candidates += [_in_modules(name)]
    for cls in candidates:
        if isinstance(cls, type):
            found = known_class(cls)
            if found is not None:
                return found
    raise GraphFileError(
        f"the class {shown(name)} is not known here", do=_remedy(name, candidates)
    )


def _remedy(name: str, candidates: Sequence[Any]) -> str:
    if candidates[-1] is not None:
        return "register it, as it was where the graph was saved"
    module = name.rpartition(".")[0]
    if module == "__main__" or "<locals>" in name:
        return "define the class in a module, import that, and capture the graph again"
    return f"import {shown(module)[1:-1]} first"


def _in_modules(name: str) -> Any:
    """The object of a qualified name in the modules that are imported, if there is one.

    Names are read from dicts: the attributes of a module may run code.
    """
    module, _, rest = name.rpartition(".")
    path = [rest]
    while module and module not in sys.modules:
        module, _, outer = module.rpartition(".")
        path.insert(0, outer)
    found: Any = sys.modules.get(module)
    for part in path:
        found = getattr(found, "__dict__", {}).get(part)
        if found is None:
            return None
    return found
