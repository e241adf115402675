"""Print what the installed release of CuPy exports, as the texts of stubs (JSON).

`generate.py` runs this file with each release. Signatures come from `inspect` or from the
docstrings of Cython, types from docstrings, defaults and `tables.py`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
import types
import warnings
from abc import ABCMeta
from collections.abc import Iterator, Sequence
from typing import Any

import cupy
import numpy as np
from tables import (
    ACCEPTING,
    ARRAYS,
    BY_KEYWORD,
    MODULES,
    PARAMETERS,
    PROPERTIES,
    RESULT_OF,
    RETURNS,
    SKIPPED,
    WIDER,
    WORDS,
)

_MISSING: Any = inspect.Parameter.empty

# Name, kind, default and words about the type.
Parameter = tuple[str, int, Any, str]
_ANYTHING: list[Parameter] = [("args", 2, _MISSING, ""), ("kwargs", 4, _MISSING, "")]

# An object by its id -> the module and name that define it.
Known = dict[int, tuple[str, str]]


def _matched(table: Sequence[tuple[str, str]], words: str) -> str | None:
    for pattern, text in table:
        found = re.match(pattern, words, re.IGNORECASE)
        if found:
            return found.expand(text)
    return None


# ---- docstrings, in the style of Google or NumPy ----


def _documented(doc: str, name: str) -> str:
    """Return the words about the type of a parameter."""
    google = re.search(rf"^ +\**{name} ?\((.+?)\) ?:", doc, re.MULTILINE)
    numpydoc = re.search(rf"^ *(?:\w+, )*{name}(?:, \w+)* ?: (.+)$", doc, re.MULTILINE)
    found = google or numpydoc
    noise = r":\w+:|[`~]|,? ?optional|None or | or None"
    return re.sub(noise, "", found[1]).strip() if found else ""


def _returned(doc: str) -> str:
    """Return the words about the type of the result; empty for several results or none."""
    google = re.search(
        r"^ *Returns:\s*\n +([^:\n]+(?::class:`[^`]+`)?[^:\n]*):", doc, re.MULTILINE
    )
    if google:
        return re.sub(r":\w+:|[`~]", "", google[1]).strip()
    section = re.search(
        r"^( *)Returns\n *-+\n((?:\1.*\n|\n)+?)(?=\n?\1\w.*\n *--|\Z)",
        doc + "\n",
        re.MULTILINE,
    )
    if not section:
        return ""
    entries = re.findall(rf"^{section[1]}(\S.*)$", section[2], re.MULTILINE)
    return entries[0].rpartition(" : ")[2].strip() if len(entries) == 1 else ""


# ---- signatures ----


def _signature(fn: Any, doc: str) -> tuple[list[Parameter], str] | None:
    """Return parameters and the words about the result, None if nothing is known."""
    try:
        found = inspect.signature(fn)
    except (ValueError, TypeError):
        return _cython_signature(doc)
    given = found.parameters.values()
    words = [_hint(p.annotation) or _documented(doc, p.name) for p in given]
    pairs = zip(given, words, strict=True)
    items = [(p.name, int(p.kind), p.default, w) for p, w in pairs]
    return items, _hint(found.return_annotation)


def _hint(annotation: Any) -> str:
    if annotation is _MISSING:
        return ""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _cython_signature(doc: str) -> tuple[list[Parameter], str] | None:
    """Return the signature in the first line of a docstring of Cython, which has C types."""
    first = re.match(r"[\w.]+\((.*)\)(?: -> (.+))?$", doc.strip().partition("\n")[0])
    if not first:
        return None
    items: list[Parameter] = []
    kind = 1
    for text in filter(None, re.split(r",\s*(?![^(\[]*[)\]])", first[1])):
        if text == "/":
            items = [(name, 0, *rest) for name, _, *rest in items]  # type: ignore[misc]
        elif text == "*":
            kind = 3
        elif text.startswith("*"):
            name = text.lstrip("*")
            items.append((name, 2 * (len(text) - len(name)), _MISSING, ""))
            kind = 3
        else:
            items.append(_cython_parameter(text, kind, doc))
    return items, first[2] or ""


def _cython_parameter(text: str, kind: int, doc: str) -> Parameter:
    left, _, default = text.partition("=")
    name, colon, hint = (part.strip() for part in left.partition(":"))
    *words, name = name.split()
    said = hint if colon else words[-1] if words else _documented(doc, name)
    return name, kind, _literal(default) if default else _MISSING, said


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return ...


def _written(default: object) -> str:
    """Return a default as it is written, or an ellipsis."""
    items = default if isinstance(default, tuple) else (default,)
    simple = all(type(x) in (bool, int, float, str, type(None)) for x in items)
    text = repr(default)
    finite = not re.search(r"\b(inf|nan)\b", text)
    return text if simple and finite and len(text) < 30 else "..."


def _parameter_type(name: str, default: object, words: str) -> str:
    if name == "order" and isinstance(default, str | None):
        return "_Order"
    found = PARAMETERS.get(name) or _matched(WORDS, words) or "Any"
    fixed = default is _MISSING or (name in PARAMETERS and default is not None)
    return found if fixed else _accepting(found, default)


def _accepting(found: str, default: object) -> str:
    """Return the type of a docstring, made wide enough for the default."""
    if isinstance(default, type):
        return "Any"
    kind = type(default).__name__
    if found == "Any":
        return kind if kind in ("bool", "str") else found
    if kind not in ACCEPTING or found in ACCEPTING[kind]:
        return found
    if default is None:
        return found if found.endswith("None") else f"{found} | None"
    return f"{found} | {kind}" if kind != "tuple" else "Any"


def _parameters(items: Sequence[Parameter], *, method: bool = False) -> str:
    parts: list[str] = []
    last = -1
    for number, (name, kind, default, words) in enumerate(items):
        if last == 0 and kind != 0:
            parts.append("/")
        if kind == 3 and last not in (2, 3):
            parts.append("*")
        last = kind
        if number == 0 and method:
            parts.append("cls" if name == "cls" else "self")
        elif kind in (2, 4):
            parts.append(f"{'*' * (kind // 2)}{name}: Any")
        else:
            end = "" if default is _MISSING else f" = {_written(default)}"
            parts.append(f"{name}: {_parameter_type(name, default, words)}{end}")
    return ", ".join([*parts, "/"] if last == 0 else parts)


def _function(name: str, fn: Any, module: str, *, method: bool = False) -> str:
    doc = inspect.getdoc(fn) or ""
    items, words = _signature(fn, doc) or (_ANYTHING, "")
    if method and items[0][0] == "args":
        items = [("self", 0, _MISSING, ""), *items]
    if method and len(items) == 2 and name.startswith("__") and name not in BY_KEYWORD:
        items = [(p, 0 if kind == 1 else kind, *rest) for p, kind, *rest in items]  # type: ignore[misc]
    words = words or _returned(doc)
    known = RESULT_OF.get(f"{module}.{name}") or RESULT_OF.get(name)
    result = known or _matched(RETURNS, words)
    array = module in ARRAYS and not words and not name.startswith("_")
    given = result or ("ndarray" if array else "Any")
    parameters = _parameters(items, method=method)
    for pattern, narrow, wide in WIDER:
        if re.match(pattern, module):
            parameters = re.sub(rf": {narrow}\b", f": {wide}", parameters)
    return f"def {name}({parameters}) -> {given}: ..."


# ---- classes ----


def _member(name: str, value: Any, module: str, doc: str = "") -> str:
    """Return a member of a class, whose docstring may give the type of an attribute."""
    said = re.search(rf"^ *~?(?:\w+\.)?{name} \((.+?)\):", doc, re.MULTILINE)
    known = PROPERTIES.get(name) or (said and _matched(RETURNS, said[1].lstrip("~")))
    match value:
        case staticmethod():
            return "@staticmethod\n" + _function(name, value.__func__, module)
        case classmethod():
            fn = value.__func__
            return "@classmethod\n" + _function(name, fn, module, method=True)
        case property():
            words = _returned(inspect.getdoc(value) or "")
            text = _property(name, known or _matched(RETURNS, words))
            setter = f"\n@{name}.setter\ndef {name}(self, value: Any) -> None: ..."
            return text + setter if value.fset else text
        case types.GetSetDescriptorType() | types.MemberDescriptorType():
            return _property(name, known)
    if callable(value) and not isinstance(value, type):
        return _function(name, value, module, method=True)
    plain = type(value) in (bool, int, str, float)
    return f"{name}: {type(value).__name__ if plain else 'Any'}"


def _property(name: str, known: str | None) -> str:
    return f"@property\ndef {name}(self) -> {known or 'Any'}: ..."


def _is_disjoint(cls: type) -> bool:
    """Return whether a class has a layout of C, as CPython decides before 3.12."""
    base: Any = cls.__base__
    size = cls.__basicsize__
    if cls.__dictoffset__ and not base.__dictoffset__:
        size -= 8
    if cls.__weakrefoffset__ and not base.__weakrefoffset__:
        size -= 8
    return size != base.__basicsize__ and not cls.__flags__ & (1 << 9)


def _head(name: str, cls: type, bases: Sequence[str]) -> str:
    if type(cls) is ABCMeta and not bases:
        bases = ["ABC"]
    head = f"class {name}" + (f"({', '.join(bases)})" if bases else "") + ":"
    if not cls.__flags__ & (1 << 10):  # Py_TPFLAGS_BASETYPE
        return "@final\n" + head
    return "@disjoint_base\n" + head if _is_disjoint(cls) else head


def _class(name: str, cls: type, module: str, known: Known) -> dict[str, Any]:
    """Return the head of a class, and its members with those of private bases."""
    public = [b for b in cls.__mro__[1:] if id(b) in known or _is_builtin(b)]
    bases = [b for b in public if b is not object]
    bases = [b for b in bases if not any(b in other.__mro__[1:] for other in bases)]
    inherited = {base for b in public for base in b.__mro__}
    members: dict[str, str] = {}
    for part in (p for p in cls.__mro__ if p not in inherited):
        for key, value in vars(part).items():
            private = key.startswith("_") and not key.endswith("__")
            if not private and key not in SKIPPED | members.keys():
                members[key] = _member(key, value, module, inspect.getdoc(cls) or "")
    if type(vars(cls).get("__init__")) is types.WrapperDescriptorType:
        members["__init__"] = _construction(cls)
    same = {
        _member(key, value, module)
        for base in bases
        if id(base) in known
        for key, value in vars(base).items()
    }
    names = [known[id(b)][1] if id(b) in known else b.__name__ for b in bases]
    return {
        "head": _head(name, cls, names),
        "members": {k: text for k, text in members.items() if text not in same},
        "needs": [known[id(b)] for b in bases if id(b) in known],
    }


def _is_builtin(cls: type) -> bool:
    return cls.__module__ in ("builtins", "numpy", "unittest.case")


def _construction(cls: type) -> str:
    """Return the constructor of a class of Cython, from the docstring of the class."""
    found = _cython_signature(inspect.getdoc(cls) or "")
    given = _parameters(found[0]) if found else "*args: Any, **kwargs: Any"
    return f"def __init__(self, {given}) -> None: ..."


# ---- modules ----


_OWN = ("builtins", "cupy", "cupyx", "cupy_backends")


def _public(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Public names of a module without what it imports for itself."""
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name, None)
        if isinstance(value, types.ModuleType):
            if f"{module.__name__}.{name}" == value.__name__ in MODULES:
                yield name, value
        elif not name.startswith("_") or name == "__version__":
            owner = getattr(value, "__module__", None) or type(value).__module__
            top = module.__name__ in ("cupy", "cupy.exceptions")
            if owner.partition(".")[0] in _OWN or (top and _numpy_module(name, value)):
                yield name, value


def _numpy_module(name: str, value: Any) -> str | None:
    """Return the module of NumPy that has an object by the same name."""
    for module in (np, np.exceptions):
        if value is not None and getattr(module, name, None) is value:
            return module.__name__
    return None


def _entry(name: str, value: Any, module: str, known: Known) -> Any:
    again = _imported(name, value, module, known)
    if again:
        return again
    place, first = known.get(id(value), (module, name))
    if place == module and first != name:
        return f"{name} = {first}"
    if isinstance(value, type):
        return _class(name, value, module, known)
    if isinstance(value, cupy.ufunc):
        forms = {(1, 1): "_Unary", (2, 1): "_Binary"}
        return f"{name}: {forms.get((value.nin, value.nout), 'ufunc')}"
    kind = type(value)
    if inspect.isroutine(value) or kind.__name__ == "cython_function_or_method":
        return _function(name, value, module)
    return f"{name}: {kind.__name__ if kind in (bool, int, float, str) else 'Any'}"


def _imported(name: str, value: Any, module: str, known: Known) -> str:
    """Return the import of a name that another module defines; stubs export no other name."""
    origin = (
        module if isinstance(value, types.ModuleType) else _numpy_module(name, value)
    )
    if origin:
        return f"from {origin} import {name} as {name}"
    place, first = known.get(id(value), (module, name))
    again = place != module and first == name
    return f"from {place} import {name} as {name}" if again else ""


def _definitions(found: dict[str, dict[str, Any]]) -> Known:
    """Return where each public object is defined: in its own module, or the first that has it."""
    known: Known = {}
    for module, names in found.items():
        for name, value in names.items():
            if not callable(value):
                continue
            place, _ = known.setdefault(id(value), (module, name))
            same_name = place == module and getattr(value, "__name__", name) == name
            if same_name or getattr(value, "__module__", "") == module:
                known[id(value)] = (module, name)
    return known


def survey() -> dict[str, Any]:
    """Return the release, its public modules with the texts of names, and its packages."""
    found = {}
    for module in MODULES:
        try:
            found[module] = dict(_public(importlib.import_module(module)))
        except ImportError as error:
            print(f"{module} is left as it is: {error}", file=sys.stderr)
    known = _definitions(found)
    return {
        "release": cupy.__version__.partition(".")[0],
        "packages": [m for m in found if hasattr(sys.modules[m], "__path__")],
        "modules": {
            module: {n: _entry(n, v, module, known) for n, v in sorted(names.items())}
            for module, names in found.items()
        },
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(survey()))
