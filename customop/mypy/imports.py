"""Which modules a module sees, and a summary of the operators there.

mypy checks a module again when the interface of a module that it imports changes. What the
plugin says of a module also depends on the names of operators in modules that these import.
So each module has one more symbol, an alias that changes exactly when a name that can be seen
through the module does. It is part of the interface, and thus passes a new name on to the
modules above; other changes of a module go no further than without the plugin.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from mypy.nodes import (
    GDEF,
    Decorator,
    MypyFile,
    SymbolTableNode,
    TypeAlias,
    TypeInfo,
    Var,
)
from mypy.types import Instance, LiteralType, Type

from customop.mypy.names import DEFINING, is_ours
from customop.mypy.records import Record, recall

__all__ = ["SUMMARY", "Imports", "Named", "may_define"]

# mypy's daemon deletes the symbols of a module before it checks it again, but for those
# with this sign, which no name of a program has.
SUMMARY = "customop@names"


# A global name of an operator, its record and its type.
Named = tuple[str, Record, Type]


def _operators_of(module: MypyFile) -> Iterator[Named]:
    for name, symbol in module.names.items():
        operator_type = _type_of(symbol, module)
        record = recall(operator_type)
        if operator_type is not None and record is not None and record.has_schema:
            yield name, record, operator_type


def _type_of(symbol: SymbolTableNode, module: MypyFile) -> Type | None:
    node = symbol.node
    node = node.var if isinstance(node, Decorator) else node
    if not isinstance(node, Var) or node.fullname.rpartition(".")[0] != module.fullname:
        return None
    return node.type


class Imports:
    """The modules of a program and what they import.

    Attributes
    ----------
    modules : dict
        Name -> module, of the whole program; mypy fills it.
    """

    def __init__(self) -> None:
        self.modules: dict[str, MypyFile] = {}
        self._direct: dict[str, list[MypyFile]] = {}
        # Name of a module that is checked -> the modules with operators that it sees.
        self._sealed: dict[str, frozenset[str]] = {}
        self._digests: dict[str, str] = {}
        self._operators: dict[str, list[Named]] = {}

    def forget(self) -> None:
        """Search again: a module has changed."""
        self._direct.clear()
        self._sealed.clear()
        self._digests.clear()
        self._operators.clear()

    def operators(self, module: MypyFile) -> list[Named]:
        """The operators that a module defines, by their global names there."""
        found = self._operators.get(module.fullname)
        return [*_operators_of(module)] if found is None else found

    def direct(self, module: MypyFile) -> list[MypyFile]:
        """Modules that define the names of a module, without stubs and this package.

        Neither of those two defines operators that the plugin knows.
        """
        found = self._direct.get(module.fullname)
        if found is None:
            found = [*dict.fromkeys(self._owners(module))]
            self._direct[module.fullname] = found
        return found

    def _owners(self, module: MypyFile) -> Iterator[MypyFile]:
        for symbol in module.names.values():
            owner = symbol.node
            if not isinstance(owner, MypyFile):
                name = (symbol.fullname or "").rpartition(".")[0]
                owner = self.modules.get(name)
            if owner is not None and owner is not module and may_define(owner):
                yield owner

    def reachable(self, module: MypyFile) -> list[MypyFile]:
        """A module and everything that it imports, directly or not."""
        found = {module.fullname: module}
        waiting = [module]
        while waiting:
            for other in self.direct(waiting.pop()):
                if other.fullname not in found:
                    found[other.fullname] = other
                    waiting.append(other)
        return [*found.values()]

    def with_operators(self, module: MypyFile) -> set[str]:
        """Names of the modules with operators that a module sees, perhaps its own."""
        found: set[str] = set()
        seen, waiting = {module.fullname}, [module]
        while waiting:
            current = waiting.pop()
            if self._digest(current):
                found.add(current.fullname)
            for other in self.direct(current):
                if other.fullname in self._sealed:
                    found |= self._sealed[other.fullname]
                elif other.fullname not in seen:
                    seen.add(other.fullname)
                    waiting.append(other)
        return found

    def _digest(self, module: MypyFile) -> str:
        """A summary of the operators of a module itself, empty if it has none."""
        if module.fullname in self._digests:
            return self._digests[module.fullname]
        return _hash(
            f"{name} {record.name} {record.origin} {record.is_sure}"
            for name, record, _ in self.operators(module)
        )

    # ---- the symbol ----

    def seal(self, module: MypyFile) -> None:
        """Give a module that is checked the symbol that sums up what it sees."""
        self._operators[module.fullname] = [*_operators_of(module)]
        seen = frozenset(self.with_operators(module))
        self._sealed[module.fullname] = seen
        self._digests[module.fullname] = self._digest(module)
        module.names.pop(SUMMARY, None)
        text = self._type_of_text()
        if seen and text is not None:
            digest = _hash(f"{n} {self._digest(self.modules[n])}" for n in seen)
            name, line = f"{module.fullname}.{SUMMARY}", -1
            alias = TypeAlias(LiteralType(digest, text), name, module.fullname, line, 0)
            module.names[SUMMARY] = SymbolTableNode(GDEF, alias, module_public=False)

    def _type_of_text(self) -> Instance | None:
        builtins = self.modules.get("builtins")
        node = None if builtins is None else builtins.names["str"].node
        return Instance(node, []) if isinstance(node, TypeInfo) else None

    # ---- where a definition stands ----

    def place(self, record: Record) -> str:
        """File and line of a definition, or the file alone if no line shows it.

        A record has no line, since every edit above an operator would change its type.
        """
        module, _, count = record.origin.rpartition("#")
        tree = self.modules.get(module)
        if tree is None:
            return module
        lines = dict(enumerate(_lines_of(Path(tree.path), record.name)))
        line = lines.get(int(count))
        return tree.path if line is None else f"{tree.path}:{line}"


def may_define(module: MypyFile) -> bool:
    """Whether a module can have operators that the plugin knows."""
    return not (module.is_stub or is_ours(module.fullname))


def _hash(texts: Iterable[str]) -> str:
    joined = "\n".join(sorted(texts))
    return blake2b(joined.encode(), digest_size=8).hexdigest() if joined else ""


def _lines_of(path: Path, qualname: str) -> list[int]:
    """Lines of the calls in a file that define an operator of a name."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError):  # mypy reads newer syntax than this Python
        return []
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node.func) in DEFINING
    ]
    return sorted(
        call.lineno
        for call in calls
        for name in call.args[:1]
        if isinstance(name, ast.Constant) and name.value == qualname
    )


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
