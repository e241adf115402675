"""Write stubs of `ops`, so that type checkers know the operators without a plugin."""

from __future__ import annotations

import ast
import difflib
import enum
import importlib
import inspect
import json
import math
import posixpath
import sys
import types
import typing
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import starmap
from keyword import iskeyword
from pathlib import Path
from typing import Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from customop.arrays.array import ArrayT
from customop.core.operator import Operator
from customop.core.registry import all_operators, in_namespace, namespaces
from customop.errors import UnknownNameError, did_you_mean, quoted
from customop.library.ops import Namespaces
from customop.schema.agreement import overloads_of
from customop.schema.annotations import Device, Scalar, evaluated, schema_type
from customop.schema.coerce import exact_class
from customop.schema.dtype_hints import DType
from customop.schema.infer import hints_of, signature_of
from customop.schema.types import (
    DEVICE,
    DTYPE,
    GENERATOR,
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL,
    POSITIONAL_ONLY,
    SCALAR,
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

# ---- types as text in a stub, from annotations or schema types ----


# Modules whose names are imported one by one, to keep lines short.
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
    """Raised if no import can name a part of an annotation, such as a local class."""


class TypeText:
    """Writes types as text, and collects the imports and type variables that it needs.

    Parameters
    ----------
    taken : container of str
        Names that type variables must not have.

    Attributes
    ----------
    modules : set of str
        Modules to import.
    names : set of tuple
        Pairs of a module and a name to import from it.
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
        """Return the text of an annotation, or of its schema type if that says more."""
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
        if hasattr(hint, "array_type"):  # jaxtyping's class with a shape
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
        """Return the type of an array with any shape, by NumPy's alias if possible."""
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
        """Return the name of a class or alias, from its shortest public module."""
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
        """Return the text of a schema type, for an argument or for a result."""
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
            # No other file can name a class inside a function.
            return self._name("typing", "Any")


def _alias(hint: Any) -> tuple[str, str] | None:
    try:
        return _ALIASES.get(hint)
    except TypeError:  # an unhashable annotation
        return None


def _public_first(module: str) -> list[str]:
    """Return a module and the packages around it, names without an underscore first."""
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
    """Return a default or option as formatted code, or ``...`` if it is long."""
    if isinstance(value, str) and type(value) is str:
        text = json.dumps(value, ensure_ascii=False)
        return text if text.isprintable() and text.count('"') == 2 else repr(value)
    is_short = type(value) in (int, bool, type(None))
    is_finite = type(value) is float and math.isfinite(value)
    return repr(value) if is_short or is_finite else "..."


# ---- the forms in which operators are called, and their parameters ----


# An operator, and an overload of its function or None.
Form: TypeAlias = tuple[Operator[..., Any], Callable[..., Any] | None]

_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: KEYWORD_ONLY,
}
# Narrower types come first among overloads, because checkers take the first that fits.
_NUMBERS = ("bool", "int", "float", "complex")
_WIDTHS: dict[SchemaType, int] = {Base(name): i for i, name in enumerate(_NUMBERS)}
_WIDTHS[SCALAR] = len(_WIDTHS)


def forms_of(op: Operator[..., Any]) -> list[Form]:
    """Return an operator with each overload of its function, or once with None."""
    overloads = overloads_of(op.__wrapped__)
    return [(op, overload) for overload in overloads] or [(op, None)]


def parameters_of(
    op: Operator[..., Any], overload: Callable[..., Any] | None
) -> Sequence[Parameter]:
    """Return the parameters of an operator, changed to match an overload."""
    if overload is None:
        return op.schema.parameters
    by_name = {p.name: p for p in op.schema.parameters}
    places = iter(op.schema.positional)
    return [
        _as_given(by_name[p.name] if p.kind is p.KEYWORD_ONLY else next(places), p)
        for p in signature_of(overload).parameters.values()
    ]


def _as_given(p: Parameter, given: inspect.Parameter) -> Parameter:
    default = MISSING if given.default is given.empty else p.default
    return p.replaced(name=given.name, kind=_KINDS[given.kind], default=default)


def marked(
    parameters: Sequence[Parameter], text: Callable[[Parameter], str]
) -> list[str]:
    """Return parameters as text, with "/" and "*" between their kinds."""
    parts = []
    before = ""
    for p in parameters:
        if before == POSITIONAL_ONLY and p.kind != POSITIONAL_ONLY:
            parts.append("/")
        if p.kind == KEYWORD_ONLY and before != KEYWORD_ONLY:
            parts.append("*")
        parts.append(text(p))
        before = p.kind
    return [*parts, "/"] if before == POSITIONAL_ONLY else parts


def narrowest_first(ops: Sequence[Operator[..., Any]]) -> list[Operator[..., Any]]:
    """Return overloads in order, but with narrower numbers before wider ones."""
    ordered: list[Operator[..., Any]] = []
    for op in ops:
        at = next((i for i, o in enumerate(ordered) if _is_narrower(op, o)), None)
        ordered.insert(len(ordered) if at is None else at, op)
    return ordered


def _is_narrower(op: Operator[..., Any], other: Operator[..., Any]) -> bool:
    mine, its = (o.schema.parameters for o in (op, other))
    if len(mine) != len(its):
        return False
    pairs = [(p.type, q.type) for p, q in zip(mine, its, strict=True)]
    widths = [(_WIDTHS.get(p, 0), _WIDTHS.get(q, 0)) for p, q in pairs if p != q]
    known = all(p in _WIDTHS and q in _WIDTHS for p, q in pairs if p != q)
    return known and bool(widths) and all(p <= q for p, q in widths)


# ---- stubs of `ops` ----


_COMMAND = "python -m customop stubs"
_WIDTH = 88

_HEADER = """\
# Written by `{command}`.
# Run it again when operators or customop have changed; --check shows the difference.
# ruff: noqa
"""
# Overloads are in the order in which they are tried, for example `int` before `float`.
_OVERLAPS = """\
# mypy: disable-error-code="overload-overlap, overload-cannot-match"
# pyright: reportOverlappingOverload=false
"""

# The classes of customop.library.ops as type checkers see them. `_Single` is a packet
# with a single overload.
_CLASSES = """\
class OperatorPacket:
    def __init__(self, namespace: str, name: str) -> None: ...
    @property
    def qualname(self) -> str: ...
    def overloads(self) -> list[str]: ...
    def resolve(self, /, *args: Any, **kwargs: Any) -> Operator[..., Any]: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __getattr__(self, name: str) -> Operator[..., Any]: ...

class OperatorNamespace:
    def __init__(self, name: str) -> None: ...
    def __getattr__(self, name: str) -> OperatorPacket: ...

class _Single(OperatorPacket, Generic[_P, _R]):
    @property
    def default(self) -> Operator[_P, _R]: ...
    def resolve(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Operator[_P, _R]: ...
    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

def _single(fn: Callable[_P, _R]) -> _Single[_P, _R]: ...
def _overload(fn: Callable[_P, _R]) -> Operator[_P, _R]: ...
"""
_NAMESPACES = """\
class Namespaces:
{properties}    def __getattr__(self, name: str) -> OperatorNamespace: ...

ops: Namespaces
"""
# Path of the module that has `ops`, without the suffix.
_OPS = Namespaces.__module__.replace(".", "/")
_PACKAGE = Path(__file__).parents[1] / "__init__.py"
_USED = (
    ("collections.abc", "Callable"),
    ("customop", "Operator"),
    ("typing", "Any"),
    ("typing", "Final"),
    ("typing", "Generic"),
    ("typing_extensions", "ParamSpec"),
    ("typing_extensions", "TypeVar"),
)
_TAKEN = ("_P", "_R", "_Single", "_single", "_overload")


def stubs_text(
    spaces: Collection[str], *, command: str = f"{_COMMAND} MODULE"
) -> dict[str, str]:
    """Write stubs of the operators that are defined now.

    Parameters
    ----------
    spaces : collection of str
        Namespaces to include, each with all its operators. Operators of other namespaces
        are found but have no types.
    command : str
        The command that the header names.

    Returns
    -------
    dict
        Path of a file in the folder of stubs -> its text.

    Raises
    ------
    UnknownNameError
        If a namespace has no operator.

    Examples
    --------
    >>> import customop as co
    >>> from customop.stubgen.stubs import stubs_text
    >>> print(*stubs_text(["np"]))
    customop/__init__.pyi customop/library/__init__.pyi customop/library/ops.pyi
    """
    all_operators()
    unknown = sorted({*spaces} - {*namespaces})
    if unknown:
        raise UnknownNameError(
            f"stubs: no operators in the namespace {quoted(unknown)}",
            do="first import the module that defines them",
        )
    header = _HEADER.format(command=command)
    return {
        "customop/__init__.pyi": f"{header}\n{_package()}",
        # mypy treats a folder as a package only if it has this file.
        f"{posixpath.dirname(_OPS)}/__init__.pyi": header,
        f"{_OPS}.pyi": f"{header}{_Stub(sorted({*spaces})).text()}",
    }


def write_stubs(modules: Sequence[str], out: Path | str = "typings") -> list[Path]:
    """Write stubs of the operators that modules define into a folder.

    Parameters
    ----------
    modules : sequence of str
        Modules or packages to import. The stubs have all operators of their namespaces.
    out : path
        Folder of stubs: mypy's `mypy_path`, and pyright's `stubPath`, which is
        ``typings`` by default.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    UnknownNameError
        If a module does not exist, or defines no operator.
    """
    paths = []
    for name, text in _texts(modules).items():
        path = Path(out) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def check_stubs(modules: Sequence[str], out: Path | str = "typings") -> str:
    """Compare the stubs in a folder with those that would be written now.

    Parameters
    ----------
    modules, out
        The same as for `write_stubs`.

    Returns
    -------
    str
        The differences as a unified diff, empty if the stubs are up to date.

    Raises
    ------
    UnknownNameError
        If a module does not exist, or defines no operator.
    """
    found: list[str] = []
    for name, text in _texts(modules).items():
        path = Path(out) / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        before, after = (part.splitlines(keepends=True) for part in (old, text))
        found += difflib.unified_diff(before, after, f"{path}", f"{path}, up to date")
    return "".join(found)


def _texts(modules: Sequence[str]) -> dict[str, str]:
    found: set[str] = set()
    for module in modules:
        found |= _spaces(module)
    return stubs_text(found, command=f"{_COMMAND} {' '.join(modules)}")


def _spaces(module: str) -> set[str]:
    """Return the namespaces of the operators that a module or its submodules define."""
    _import(module)
    known = {*all_operators().values()}
    places = {op.namespace: set[str]() for op in known}
    for op in known:
        places[op.namespace].add(op.definition.module)
    inside = {
        space
        for space, modules in places.items()
        if any(name == module or name.startswith(f"{module}.") for name in modules)
    }
    if not inside:
        everywhere = set().union(*places.values()).intersection(sys.modules)
        others = sorted(n for n in everywhere if n.partition(".")[0] != "customop")
        such = f", such as {quoted(others[:8])}" if others else ""
        raise UnknownNameError(
            f"stubs: {module} defines no operator",
            do=f"name the module that calls custom_op{such}",
        )
    return inside


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module imports another one that is missing
        near = did_you_mean(module, sys.modules)
        raise UnknownNameError(
            f"stubs: there is no module '{module}'{near}",
            do="run the command where the module can be imported, or set PYTHONPATH",
        ) from None


# ---- the module of `ops` ----


class _Stub:
    """Writes the stub of the module that has `ops`, operator by operator."""

    def __init__(self, spaces: Sequence[str]) -> None:
        # A keyword cannot follow a dot, so only `getattr` finds such a namespace.
        self.spaces = [space for space in spaces if not iskeyword(space)]
        self.names = {*_TAKEN}
        self.types = TypeText(self.names)
        # Namespace -> the name of its class.
        self.classes: dict[str, str] = {}

    def text(self) -> str:
        """Return the text of the whole file."""
        blocks = [block for space in self.spaces for block in self.namespace(space)]
        variables = [
            '_P = ParamSpec("_P")\n',
            '_R = TypeVar("_R")\n',
            *starmap(_variable, sorted(self.types.variables.items())),
        ]
        properties = "".join(
            f"    @property\n    def {space}(self) -> {self.classes[space]}: ...\n"
            for space in self.spaces
        )
        end = _NAMESPACES.format(properties=properties)
        overlaps = _OVERLAPS if ("typing", "overload") in self.types.names else ""
        parts = [self.imports(), "".join(variables), _CLASSES, *blocks, end]
        return f"{overlaps}\n{_joined(parts)}"

    def imports(self) -> str:
        """Return the import statements that the file needs."""
        plain = [f"import {name}\n" for name in sorted(self.types.modules)]
        named: dict[str, list[str]] = {}
        for module, name in sorted(self.types.names | {*_USED}):
            named.setdefault(module, []).append(name)
        texts = [_import_text(module, names) for module, names in named.items()]
        return _joined(["".join(plain), "".join(texts)] if plain else ["".join(texts)])

    def namespace(self, space: str) -> list[str]:
        """Return the packets of a namespace, and the class with them as attributes."""
        found = in_namespace(space)
        blocks = []
        self.classes[space] = self.name(space)
        rows = [f"class {self.classes[space]}:\n"]
        for name in sorted(found):
            packet = self.name(f"{space}__{name}")
            blocks += self.packet(packet, [*found[name].values()])
            rows.append(f"    {name}: Final = {packet}\n")
        return [*blocks, "".join(rows)]

    def name(self, wanted: str) -> str:
        """Return a private name that is still unused in the file."""
        found = f"_{wanted}"
        while found in self.names or found in self.types.variables:
            found += "_"
        self.names.add(found)
        return found

    def packet(self, name: str, ops: Sequence[Operator[..., Any]]) -> list[str]:
        """Return the code for all overloads of one name."""
        if [op.overload for op in ops] == [""] and not overloads_of(ops[0].__wrapped__):
            return [f"@_single\n{self.function(name, ops[0])}"]
        overloads = [op.overload or "default" for op in ops]
        named = [self.name(f"{name[1:]}__{overload}") for overload in overloads]
        blocks = [
            f"@_overload\n{self.function(n, op)}"
            for n, op in zip(named, ops, strict=True)
        ]
        # There are two classes: an overload named `int` would hide the type in calls.
        calls, cls = (self.name(f"{name[1:]}__{part}") for part in ("call", "packet"))
        pairs = zip(overloads, named, strict=True)
        rows = "".join(
            f"    {overload}: Final = {n}\n"
            for overload, n in pairs
            if not iskeyword(overload)
        )
        return [
            *blocks,
            f"class {calls}(OperatorPacket):\n{self.calls(ops)}",
            f"class {cls}({calls}):\n{rows}",
            f"{name}: {cls}\n",
        ]

    def calls(self, ops: Sequence[Operator[..., Any]]) -> str:
        """Return the `__call__` of a packet, one function for each overload."""
        forms = [form for op in narrowest_first(ops) for form in forms_of(op)]
        texts = [self.function("__call__", *form, is_method=True) for form in forms]
        if len(texts) == 1:
            return texts[0]
        self.types.names.add(("typing", "overload"))
        return "".join(f"    @overload\n{text}" for text in texts)

    def function(
        self,
        name: str,
        op: Operator[..., Any],
        overload: Callable[..., Any] | None = None,
        *,
        is_method: bool = False,
    ) -> str:
        """Return an operator, or one overload, as a function without a body."""
        hints = hints_of(overload or op.__wrapped__)
        given = parameters_of(op, overload)
        parts = [*marked(given, lambda p: self.parameter(p, hints))]
        if is_method:
            taken = any(p.name == "self" for p in op.schema.parameters)
            parts = ["_self" if taken else "self", *parts]
            if "/" not in parts:
                parts.insert(1, "/")
        indent = "    " * is_method
        end = f") -> {self.result(op, hints)}: ..."
        line = f"{indent}def {name}({', '.join(parts)}{end}"
        if len(line) <= _WIDTH:
            return f"{line}\n"
        rows = "".join(f"{indent}    {part},\n" for part in parts)
        return f"{indent}def {name}(\n{rows}{indent}{end}\n"

    def parameter(self, p: Parameter, hints: Mapping[str, Any]) -> str:
        """Return a parameter with its type and default."""
        if p.name in hints:
            text = self.types.annotation(hints[p.name], p.type)
        else:
            text = self.types.schema_type(p.type)
        default = "" if p.default is MISSING else f" = {value_text(p.default)}"
        return f"{p.name}: {text}{default}"

    def result(self, op: Operator[..., Any], hints: Mapping[str, Any]) -> str:
        """Return the type of an operator's result."""
        returns = op.schema.returns
        if "return" in hints:
            declared = returns[0].type if len(returns) == 1 else None
            return self.types.annotation(hints["return"], declared, result=True)
        texts = [self.types.schema_type(r.type, result=True) for r in returns]
        if op.schema.is_tuple:
            return f"tuple[{', '.join(texts)}]"
        return texts[0] if texts else "None"


def _variable(name: str, limits: Sequence[str]) -> str:
    arguments = ", ".join([f'"{name}"', *limits])
    return f"{name} = TypeVar({arguments})\n"


def _joined(blocks: Iterable[str]) -> str:
    """Join blocks as ruff does: with empty lines, except between stub functions."""
    text = ""
    for block in blocks:
        follows = block.startswith("@") and text.endswith(": ...\n")
        text += block if not text or follows else f"\n{block}"
    return text


# ---- customop/__init__.pyi ----


def _package() -> str:
    """Return imports of all public names; checkers look into the stub folder first.

    Without this file, mypy would not treat the folder as a package, and pyright would
    not treat it as complete. Both find all other modules in customop itself.
    """
    tree = ast.parse(_PACKAGE.read_text("utf-8"))
    public = _public(tree)
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "customop."
        ):
            names = [alias.name for alias in node.names if alias.name in public]
            if names:
                texts.append(_import_text(node.module or "", names))
    rows = "".join(f'    "{name}",\n' for name in public)
    return f"{''.join(sorted(texts))}\n__all__ = [\n{rows}]\n"


def _public(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError("customop has no __all__")


def _import_text(module: str, names: Sequence[str]) -> str:
    line = f"from {module} import {', '.join(names)}\n"
    if len(line) <= _WIDTH + 1:
        return line
    rows = "".join(f"    {name},\n" for name in names)
    return f"from {module} import (\n{rows})\n"
