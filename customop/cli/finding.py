"""What names on the command line mean: modules, files and operators."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

from customop.cli.command import UsageError
from customop.core.operator import Operator, namespaces, operators
from customop.errors import did_you_mean, quoted
from customop.library.ops import OperatorPacket, ops

__all__ = [
    "defined_in",
    "find_operator",
    "find_packet",
    "import_target",
    "matching",
    "select",
    "split_target",
]

_TARGET = re.compile(r"(?P<module>.+?\.py|[^:]+)(?::(?P<name>.+))?")

# ---- modules ----


def split_target(text: str) -> tuple[str, str]:
    """``MODULE:NAME`` as two; a module may be a file, and a name has colons too."""
    found = _TARGET.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} names no module",
            do="write MODULE, MODULE:NAME or FILE.py:NAME",
        )
    return found["module"], found["name"] or ""


def import_target(text: str) -> ModuleType:
    """Import a module by its name, or by its file.

    Raises
    ------
    UsageError
        If there is none, or importing it raises.
    """
    name = _name_of_file(text) if text.endswith(".py") else text
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"{text!r} is no name of a module", do="write package.module, or a file.py"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise _no_module(error.name) from error
        raise _broken(text, error) from error
    # A script without a guard may end the process that imports it.
    except (Exception, SystemExit) as error:
        raise _broken(text, error) from error


def _name_of_file(text: str) -> str:
    """The name by which a file is imported; its place becomes importable.

    As pytest does it: what stands above the outermost package is what is searched.
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
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if "importlib" not in f.filename and not _is_ours(f)]
    where = [f"at {theirs[-1].filename}:{theirs[-1].lineno}"] if theirs else []
    return UsageError(
        f"importing '{text}' raises {type(error).__name__}: {error}",
        *where,
        do="mend it; --traceback shows where",
    )


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(Path(__file__).parent.parent)


# ---- operators ----


def matching(patterns: Sequence[str]) -> list[Operator[..., Any]]:
    """Operators of namespaces or globs, by name; all where there is no pattern."""
    for pattern in patterns:
        if not any(_is_meant(op, pattern) for op in operators.values()):
            raise _unknown(pattern, f"no operator matches '{pattern}'", operators)
    chosen = [
        op
        for op in operators.values()
        if not patterns or any(_is_meant(op, p) for p in patterns)
    ]
    return sorted(chosen, key=lambda op: op.qualname)


def _is_meant(op: Operator[..., Any], pattern: str) -> bool:
    return any(
        fnmatchcase(name, pattern) for name in (op.qualname, op.namespace, op.name)
    )


def find_packet(name: str) -> OperatorPacket:
    """All overloads of ``"namespace::name"``; a dot may stand for the colons."""
    namespace, last = _split_name(name)
    if last not in namespaces.get(namespace, {}):
        raise _unknown(name, f"no operator is named '{name}'", operators)
    packet: OperatorPacket = getattr(getattr(ops, namespace), last)
    return packet


def _split_name(name: str) -> tuple[str, str]:
    namespace, _, last = name.partition("::" if "::" in name else ".")
    return namespace, last


def find_operator(name: str) -> Operator[..., Any]:
    """The operator of ``"namespace::name"``, or of one of its overloads.

    Raises
    ------
    UsageError
        If there is none, or several overloads and none without a name.
    """
    namespace, last = _split_name(name)
    found = operators.get(f"{namespace}::{last.removesuffix('.default')}")
    if found is not None:
        return found
    base, dot, overload = last.partition(".")
    packet = find_packet(f"{namespace}::{base}" if dot else name)
    listed = quoted(f"{packet.qualname}.{each}" for each in packet.overloads())
    what = f"has no overload '{overload}'" if dot else "has several overloads"
    raise UsageError(
        f"'{packet.qualname}' {what}", f"there are {listed}", do="name one of them"
    )


_IMPORT = "import the module that defines it: -m MODULE; 'customop list' shows the rest"


def _unknown(
    name: str, what: str, known: Iterable[str], do: str = _IMPORT
) -> UsageError:
    return UsageError(f"{what}{_near(name, list(known))}", do=do)


def _near(name: str, known: Sequence[str]) -> str:
    """The operator of a near name, also where the namespace is missing or another."""
    bare = name.rpartition("::")[2]
    by_bare = {qualname.partition("::")[2]: qualname for qualname in known}
    if bare in by_bare:
        return did_you_mean(by_bare[bare], [by_bare[bare]])
    near = get_close_matches(bare, by_bare, n=1)
    return did_you_mean(name, [*known, *namespaces]) or (
        did_you_mean(by_bare[near[0]], known) if near else ""
    )


def defined_in(module: ModuleType) -> list[Operator[..., Any]]:
    """Operators that a module or its submodules have defined, by name."""
    name = module.__name__
    mine = [
        op
        for op in operators.values()
        if f"{op.definition.module}.".startswith(f"{name}.")
    ]
    return sorted(mine, key=lambda op: op.qualname)


def select(module: ModuleType, name: str) -> list[Operator[..., Any]]:
    """Operators of a module, those alone that `name` means where it is given.

    Raises
    ------
    UsageError
        If there are none.
    """
    value = vars(module).get(name)
    if isinstance(value, Operator):  # defined elsewhere, perhaps, and imported
        return [value]
    mine = defined_in(module)
    if not mine:
        raise _nothing_defined(module)
    chosen = [op for op in mine if not name or _is_meant(op, name)]
    if not chosen:
        what = f"'{module.__name__}' defines no operator '{name}'"
        do = f"name one that it does: customop -m {module.__name__} list"
        raise _unknown(name, what, [op.qualname for op in mine], do)
    return chosen


def _nothing_defined(module: ModuleType) -> UsageError:
    owners = sorted({op.definition.module for op in _held(module)})
    where = [f"it has operators of {quoted(owners)}"] if owners else []
    do = f"name their module: {owners[0]}" if owners else "name the module that does"
    return UsageError(f"'{module.__name__}' defines no operator", *where, do=do)


def _held(module: ModuleType) -> Iterator[Operator[..., Any]]:
    return (v for v in vars(module).values() if isinstance(v, Operator))
