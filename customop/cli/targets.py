"""Resolve what a command line names: modules, files, operators and arguments."""

from __future__ import annotations

import ast
import importlib
import math
import pkgutil
import re
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.cli.plain import UsageError
from customop.core.operator import Operator
from customop.core.registry import (
    all_operators,
    load_namespace_plugin,
    namespaces,
    operators_of,
)
from customop.errors import did_you_mean, is_ours, quoted
from customop.library.ops import OperatorPacket, ops
from customop.testing import as_kind

# ---- modules ----

_TARGET = re.compile(r"(?P<module>.+?\.py|[^:]+)(?::(?P<name>.+))?")


def import_target(text: str) -> ModuleType:
    """Import a module by its name or file.

    Raises
    ------
    UsageError
        If it does not exist or cannot be imported.
    """
    is_file = text.endswith(".py")
    name = _name_of_file(text) if is_file else text
    if not is_file and not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"{text!r} is not the name of a module",
            do="write package.module, or a file.py",
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise _no_module(error.name) from error
        raise _broken(text, error) from error
    # Importing a script without a __main__ guard may call sys.exit.
    except (Exception, SystemExit) as error:
        raise _broken(text, error) from error


def split_target(text: str) -> tuple[str, str]:
    """Split ``MODULE:NAME``; the module may be a file, the name may contain colons."""
    found = _TARGET.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} does not name a module",
            do="write MODULE, MODULE:NAME or FILE.py:NAME",
        )
    return found["module"], found["name"] or ""


def is_operator_name(text: str) -> bool:
    """Return whether a target has the form ``namespace::name``, not ``MODULE:NAME``."""
    namespace, colons, _ = text.partition("::")
    return bool(colons) and ":" not in namespace


def import_submodules(module: ModuleType) -> dict[str, UsageError]:
    """Import all submodules of a package; return those that cannot be imported."""
    broken: dict[str, UsageError] = {}
    packages = [module]
    for package in packages:
        paths = getattr(package, "__path__", ())
        for found in pkgutil.iter_modules(paths, f"{package.__name__}."):
            if found.name.endswith(".__main__"):
                continue  # it runs a program
            try:
                inner = import_target(found.name)
            except UsageError as error:
                broken[found.name] = error
            else:
                packages += [inner] if found.ispkg else []
    return broken


def _name_of_file(text: str) -> str:
    """Return the module name of a file.

    As pytest does, add the folder of the file's outermost package to `sys.path`.
    """
    path = Path(text).resolve()
    if not path.is_file():
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.py")])
        raise UsageError(f"there is no file {text!r}{near}", do="write its path")
    parts = [] if path.stem == "__init__" else [path.stem]
    root = path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    name = ".".join(parts)
    known = getattr(sys.modules.get(name), "__file__", None)
    if name in sys.modules and (known is None or Path(known).resolve() != path):
        raise UsageError(
            f"{text!r} would be the module '{name}', which is {known or 'built in'}",
            do="give the file another name",
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return name


def _no_module(name: str) -> UsageError:
    parent, _, last = name.rpartition(".")
    paths = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    known = [] if parent and paths is None else pkgutil.iter_modules(paths)
    near = did_you_mean(last, [module.name for module in known])
    return UsageError(
        f"there is no module '{name}'{near}",
        do="write package.module as an import does, or the path of a file.py",
    )


def _broken(text: str, error: BaseException) -> UsageError:
    where = [
        f"at {frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_ours(frame.f_globals) and "importlib" not in frame.f_code.co_filename
    ]
    return UsageError(
        f"importing '{text}' raises {type(error).__name__}: {error}",
        *where[-1:],
        do="fix it; --traceback shows where",
    )


# ---- operators ----


def select(module: ModuleType, name: str) -> list[Operator[..., Any]]:
    """Return the operators of a module, or those that match `name` if it is given.

    Raises
    ------
    UsageError
        If no operator is found.
    """
    value = vars(module).get(name)
    if isinstance(value, Operator):  # perhaps imported from another module
        return [value]
    mine = _defined_in(module)
    if not mine:
        raise _nothing_defined(module)
    chosen = [op for op in mine if not name or _matches(op, name)]
    if not chosen:
        what = f"'{module.__name__}' does not define an operator '{name}'"
        do = f"see what it defines: customop -m {module.__name__} list"
        raise _unknown(name, what, [op.qualname for op in mine], do)
    return chosen


def matching(patterns: Sequence[str]) -> list[Operator[..., Any]]:
    """Return the operators that match any pattern, or all, sorted by name."""
    chosen: dict[str, Operator[..., Any]] = {}
    for pattern in patterns or ["*"]:
        load_namespace_plugin(pattern.partition("::")[0])
        found = {
            op.qualname: op for op in all_operators().values() if _matches(op, pattern)
        }
        if not found:
            raise _unknown(pattern, f"no operator matches '{pattern}'", all_operators())
        chosen |= found
    return [chosen[name] for name in sorted(chosen)]


def find_operator(name: str) -> Operator[..., Any]:
    """Return the operator ``"namespace::name"`` or ``"namespace::name.overload"``.

    Raises
    ------
    UsageError
        If it does not exist, or `name` has several overloads.
    """
    namespace, last = _split_name(name)
    operators_of(namespace, last.partition(".")[0])
    found = all_operators().get(f"{namespace}::{last.removesuffix('.default')}")
    if found is not None:
        return found
    base, dot, overload = last.partition(".")
    packet = find_packet(f"{namespace}::{base}" if dot else name)
    listed = quoted(f"{packet.qualname}.{each}" for each in packet.overloads())
    what = f"has no overload '{overload}'" if dot else "has several overloads"
    raise UsageError(
        f"'{packet.qualname}' {what}", f"there are {listed}", do="name one of them"
    )


def find_packet(name: str) -> OperatorPacket:
    """Return the packet of all overloads of ``"namespace::name"``."""
    namespace, last = _split_name(name)
    if last not in operators_of(namespace, last):
        raise _unknown(name, f"no operator is named '{name}'", all_operators())
    packet: OperatorPacket = getattr(getattr(ops, namespace), last)
    return packet


def _matches(op: Operator[..., Any], pattern: str) -> bool:
    return any(
        fnmatchcase(name, pattern) for name in (op.qualname, op.namespace, op.name)
    )


def _split_name(name: str) -> tuple[str, str]:
    namespace, _, last = name.partition("::" if "::" in name else ".")
    return namespace, last


_IMPORT = "import its module with -m MODULE; 'customop list' shows what is there"


def _unknown(
    name: str, what: str, known: Iterable[str], do: str = _IMPORT
) -> UsageError:
    return UsageError(f"{what}{_near(name, list(known))}", do=do)


def _near(name: str, known: Sequence[str]) -> str:
    """Return a suggestion for a name, even if its namespace is missing or wrong."""
    bare = name.rpartition("::")[2]
    by_bare = {qualname.partition("::")[2]: qualname for qualname in known}
    if bare in by_bare:
        return did_you_mean(by_bare[bare], [by_bare[bare]])
    near = get_close_matches(bare, by_bare, n=1)
    return did_you_mean(name, [*known, *namespaces]) or (
        did_you_mean(by_bare[near[0]], known) if near else ""
    )


def _defined_in(module: ModuleType) -> list[Operator[..., Any]]:
    """Return operators that a module and its submodules define, sorted by name."""
    name = module.__name__
    mine = [
        op
        for op in all_operators().values()
        if f"{op.definition.module}.".startswith(f"{name}.")
    ]
    return sorted(mine, key=lambda op: op.qualname)


def _nothing_defined(module: ModuleType) -> UsageError:
    held = (v for v in vars(module).values() if isinstance(v, Operator))
    owners = sorted({op.definition.module for op in held})
    where = [f"it imports operators of {quoted(owners)}"] if owners else []
    do = f"name {owners[0]}" if owners else "name the module that defines them"
    return UsageError(f"'{module.__name__}' does not define operators", *where, do=do)


# ---- read arguments: Python literals, and arrays such as `f64[3, 4]` ----


def parse(texts: Sequence[str], fill: Fill) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments that the texts describe.

    Raises
    ------
    UsageError
        If the dtype or shape of an array cannot be read, or a name is given twice.
    """
    args: list[Any] = []
    keywords: dict[str, Any] = {}
    for text in texts:
        found = _KEYWORD.fullmatch(text)
        if found is None:
            args.append(_value(text, fill))
        elif found["name"] in keywords:
            raise UsageError(f"'{found['name']}' is given twice", do="leave one out")
        else:
            keywords[found["name"]] = _value(found["value"], fill)
    return args, keywords


_HELP = (
    "a Python literal (2.0, None, '[1, 2]', text) or an array by dtype and shape"
    " ('f64[3, 4]', 'i32[]', 'bool[2]', 'fake.f64[3]'); name=VALUE passes by name; write"
    " -- before a first ARG that starts with '-'"
)
# Short names of dtypes, as in messages.
_DTYPES = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"c{bits}": f"complex{bits}" for bits in (64, 128)},
    "bool": "bool",
}
_KNOWN = {**_DTYPES, **{name: name for name in _DTYPES.values()}}
_CONSTANTS = {text: float(text) for text in ("inf", "+inf", "-inf", "nan")}
_KEYWORD = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[^=].*)", re.DOTALL)

# Makes an array from its shape and dtype.
Fill = Callable[[tuple[int, ...], Any], Any]


def add_name(parser: ArgumentParser) -> None:
    """Add the name of an operator to a parser."""
    parser.add_argument(
        "name", metavar="NAME", help="namespace::name, or namespace::name.overload"
    )


def add_call(parser: ArgumentParser) -> None:
    """Add the name of an operator and its arguments to a parser."""
    add_name(parser)
    parser.add_argument("args", nargs="*", metavar="ARG", help=_HELP)


def zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of zeros."""
    return np.zeros(shape, dtype)


def ramp(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of numbers from 0.5 to 1.5, where most functions are smooth."""
    size = math.prod(shape)
    values = np.linspace(0.5, 1.5, size) if np.dtype(dtype).kind in "fc" else 1
    return np.broadcast_to(values, (size,)).reshape(shape).astype(dtype)


def _value(text: str, fill: Fill) -> Any:
    """Return the value of a text; a word that is not a literal is a string."""
    # Python does not allow empty brackets after a name.
    source = re.sub(r"(\w)\[\s*\]", r"\1[()]", text.strip())
    try:
        tree = ast.parse(source, mode="eval")
    # Null bytes, lone surrogates and hundreds of brackets are text too.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    return _read(tree.body, source, fill)


def _read(node: ast.expr, source: str, fill: Fill) -> Any:
    if isinstance(node, ast.Subscript):
        return _array(node, source, fill)
    if isinstance(node, ast.List | ast.Tuple):
        items = [_read(item, source, fill) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict):
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        if len(keys) == len(node.keys):
            values = [_read(value, source, fill) for value in node.values]
            return dict(zip(keys, values, strict=True))
    return _literal(node, source)


def _literal(node: ast.expr, source: str) -> Any:
    """Return a number, string or constant; anything else becomes its own text."""
    text = ast.get_source_segment(source, node)
    try:
        return _CONSTANTS[text] if text in _CONSTANTS else ast.literal_eval(node)
    except (ValueError, TypeError):
        return text


def _array(node: ast.Subscript, text: str, fill: Fill) -> Any:
    kind, _, name = ast.unparse(node.value).rpartition(".")
    shape = _shape(node.slice, text)
    if name not in _KNOWN:
        raise UsageError(
            f"{text!r}: '{name}' is not a dtype{did_you_mean(name, _KNOWN)}",
            f"known: {quoted(_DTYPES)}",
            do="write an array as 'f64[3, 4]', and quote text that has brackets",
        )
    if kind == "fake":
        return FakeArray(shape, _KNOWN[name])
    try:
        x = fill(shape, np.dtype(_KNOWN[name]))
    except (MemoryError, ValueError) as error:
        lengths = ", ".join(map(str, shape))
        raise UsageError(
            f"{text!r}: {error}",
            do=f"make it smaller, or write fake.{name}[{lengths}]",
        ) from error
    return as_kind(x, kind) if kind else x


def _shape(node: ast.expr, text: str) -> tuple[int, ...]:
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    lengths = [getattr(item, "value", None) for item in items]
    if all(type(length) is int for length in lengths):
        return tuple(lengths)  # type: ignore[arg-type]  # checked above
    raise UsageError(
        f"{text!r}: '{ast.unparse(node)}' is not a shape",
        do="write whole numbers, as in 'f64[3, 4]'; 'f64[]' has no axes",
    )
