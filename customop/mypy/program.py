"""Find the operators that a module sees: its own, and those of imported modules.

mypy checks a module again when the interface of an imported module changes. The
plugin's answers also depend on the names of operators in modules further away. So each
module gets one more symbol, an alias that changes exactly when a name visible through
the module changes. The alias is part of the interface, so a new name reaches the
modules that import it. Other changes go no further than without the plugin.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from mypy.nodes import (
    GDEF,
    Context,
    Decorator,
    ImportBase,
    MypyFile,
    SymbolTableNode,
    TypeAlias,
    TypeInfo,
    Var,
)
from mypy.server.trigger import make_trigger
from mypy.subtypes import find_member
from mypy.types import (
    CallableType,
    FunctionLike,
    Instance,
    LiteralType,
    Overloaded,
    Type,
    get_proper_type,
)

from customop.core.operator import Operator
from customop.core.registry import taken
from customop.errors import CustomOpError
from customop.library.ops import unknown_overload
from customop.mypy import records
from customop.mypy.definitions import overloads_of
from customop.mypy.hints import DEFINING, is_ours, own_name
from customop.mypy.records import Record, recall
from customop.mypy.source import Surveys, imported_names

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

# ---- program ----
# Finds the operators that the checked module sees, its own and imported ones.


class Program:
    """Finds operators by name, and names that several operators have.

    Attributes
    ----------
    imports : Imports
    """

    def __init__(self, surveys: Surveys) -> None:
        self.imports = Imports()
        self._surveys = surveys
        # Name of a module -> the operators that it imports, by name.
        self._others: dict[str, dict[str, list[FoundOperator]]] = {}
        # Name of a module -> the names of these, by their names without overloads.
        self._bases: dict[str, dict[str, list[str]]] = {}
        # Name of a module -> names that several of the modules that it sees define.
        self._shared: dict[str, dict[str, list[FoundOperator]]] = {}
        # Name of a module -> the function or module in which mypy checks its imports.
        self._meetings: dict[str, str] = {}
        # Name of a module -> functions and modules whose checks depend on what it sees.
        self._watchers: dict[str, set[str]] = defaultdict(set)

    def forget(self, module: str) -> None:
        """Forget what was found, because a module has changed."""
        self.imports.forget()
        self._others.clear()
        self._bases.clear()
        self._shared.clear()
        self._meetings.pop(module, None)

    def find(self, api: TypeChecker, qualname: str) -> tuple[Record, Type] | None:
        """Return the operator with a name, if exactly one is visible."""
        self._watch(api)
        found = self._named(api, qualname)
        if len({operator.record.origin for operator in found}) != 1:
            return None
        for operator in found:
            _depend(api, operator.module, operator.name)
        return found[0].record, found[0].type

    def signatures(self, api: TypeChecker, name: str) -> FunctionLike | None:
        """Return the signatures of all overloads of a name; None if one is unknown."""
        own = (record.name for _, record, _ in self.imports.operators(api.tree))
        names = {n for n in own if _base(n) == name}
        names.update(self._bases_of_others(api.tree).get(name, ()))
        operators = [self.find(api, qualname) for qualname in sorted(names)]
        calls = [signature_of(found[1]) for found in operators if found is not None]
        known = [call for call in calls if call is not None]
        if not known or len(known) < len(operators):
            return None
        items = [item for call in known for item in call.items]
        return items[0] if len(items) == 1 else Overloaded(items)

    def misspelled(
        self,
        api: TypeChecker,
        qualname: str,
        error: Callable[[str, Iterable[str]], CustomOpError],
    ) -> CustomOpError | None:
        """Return the error for an unknown name, if it is close to a known one.

        The program may define operators that mypy does not see, so an unknown name
        alone proves nothing. Names that differ only by digits or underscores belong to
        a series and are accepted.
        """
        self._watch(api)
        namespace, base = qualname.partition("::")[0], _base(qualname)
        bases = self._surveys.of(api.tree).bases
        others = self._bases_of_others(api.tree)
        if base in bases or base in others:  # before all names are looked at
            return None
        own = (record.name for _, record, _ in self.imports.operators(api.tree))
        known = {*bases, *others, *map(_base, own)}
        mine = [name for name in known if name.startswith(f"{namespace}::")]
        near = base not in known and get_close_matches(qualname, mine, 1, cutoff=0.85)
        if not near:
            return None
        if _SERIES.sub("", near[0]) == _SERIES.sub("", qualname):
            return None
        is_open = self._surveys.of(api.tree).mentions("Library", "import_module")
        names = [name.removeprefix(f"{namespace}::") for name in mine]
        return None if is_open else error(qualname, names)

    def wrong_overload(self, api: TypeChecker, qualname: str) -> CustomOpError | None:
        """Return the error for a missing overload, if it is close to a known one."""
        name, _, overload = qualname.rpartition(".")
        parts = [f.record.name.partition(".") for f in self._all(api)]
        known = {part[2] or "default" for part in parts if part[0] == name}
        if overload in known or not get_close_matches(overload, known, 1, cutoff=0.85):
            return None
        is_open = self._surveys.of(api.tree).mentions("Library", "import_module")
        return None if is_open else unknown_overload(qualname, sorted(known))

    def _all(self, api: TypeChecker) -> Iterator[FoundOperator]:
        self._watch(api)
        yield from self._found(api.tree)
        for operators in self._of_others(api.tree).values():
            yield from operators

    def _named(self, api: TypeChecker, qualname: str) -> list[FoundOperator]:
        module = api.tree.fullname
        own = [
            FoundOperator(record, operator_type, module, name)
            for name, record, operator_type in self.imports.operators(api.tree)
            if record.name == qualname
        ]
        return [*own, *self._of_others(api.tree).get(qualname, ())]

    def _bases_of_others(self, tree: MypyFile) -> dict[str, list[str]]:
        """Return the names of imported operators by their names without overloads."""
        name = tree.fullname
        if name not in self._bases:
            bases: dict[str, list[str]] = defaultdict(list)
            for qualname in self._of_others(tree):
                bases[_base(qualname)].append(qualname)
            self._bases[name] = bases
        return self._bases[name]

    def _of_others(self, tree: MypyFile) -> dict[str, list[FoundOperator]]:
        name = tree.fullname
        if name not in self._others:
            others: dict[str, list[FoundOperator]] = defaultdict(list)
            for module in sorted(self.imports.with_operators(tree) - {name}):
                for found in self._found(self.imports.modules[module]):
                    others[found.record.name].append(found)
            self._others[name] = others
            rivals = {n: _rivals(found) for n, found in others.items()}
            self._shared[name] = {n: found for n, found in rivals.items() if found}
        return self._others[name]

    def _found(self, module: MypyFile) -> Iterator[FoundOperator]:
        for name, record, operator_type in self.imports.operators(module):
            yield FoundOperator(record, operator_type, module.fullname, name)

    # ---- what mypy checks again ----

    def _watch(self, api: TypeChecker) -> None:
        """Have mypy check this part of a module again when the visible names change.

        Without the daemon, the digests in the interfaces of modules do that.
        """
        if not (api.options.fine_grained_incremental or api.options.cache_fine_grained):
            return
        target = api.tscope.current_full_target()
        for module in self.imports.reachable(api.tree):
            if target not in self._watchers[module.fullname]:
                self._watchers[module.fullname].add(target)
                self._add_trigger(api.tree, module, target)

    def look_again(self, module: MypyFile) -> None:
        """Update the watchers of a module for its present imports."""
        targets = self._watchers.get(module.fullname, set())
        for other in self.imports.reachable(module) if targets else ():
            new = targets - self._watchers[other.fullname]
            self._watchers[other.fullname] |= new
            for target in new:
                self._add_trigger(module, other, target)

    def _add_trigger(self, holder: MypyFile, module: MypyFile, target: str) -> None:
        trigger = make_trigger(f"{module.fullname}.{SUMMARY}")
        holder.plugin_deps.setdefault(trigger, set()).add(target)

    def places_shown(self, module: MypyFile) -> dict[str, list[str]] | None:
        """Return names whose errors in this module mention lines of other modules."""
        others = self._of_others(module)
        own = {record.name for _, record, _ in self.imports.operators(module)}
        shown = {*self._shared[module.fullname], *own.intersection(others)}
        return {"shown": sorted(shown)} if shown else None

    # ---- operators with the same name ----

    def is_sure(self, api: TypeChecker, name: str, call: Context) -> bool:
        """Return whether every import of the module runs a definition."""
        return call in self._surveys.of(api.tree).definitions.get(name, ())

    def check_alone(self, api: TypeChecker, record: Record, call: Context) -> None:
        """Report a definition of an operator whose name is already taken."""
        if not record.is_sure:
            return
        self._watch(api)
        calls = self._surveys.of(api.tree).definitions[record.name]
        earlier = calls[: calls.index(call)]  # type: ignore[arg-type]  # a call
        before = [f"{api.path}:{c.line}" for c in earlier]
        before += [
            self.imports.place(found.record)
            for found in self._of_others(api.tree).get(record.name, ())
            if found.record.is_sure and not self._sees(found.module, api.tree)
        ]
        if before:
            error = taken(record.name, before[0], f"{api.path}:{call.line}")
            records.report(api, error, call, records.DUPLICATE)

    def _sees(self, module: str, other: MypyFile) -> bool:
        return other in self.imports.reachable(self.imports.modules[module])

    def check_imports(self, api: TypeChecker) -> None:
        """Report modules that define the same name, if this module imports both.

        Only one function or module scope per module does this, so that mypy's daemon
        drops the error when it checks that scope again.
        """
        target = api.tscope.current_full_target()
        if self._meetings.setdefault(api.tree.fullname, target) != target:
            return
        self._watch(api)
        self._of_others(api.tree)
        for name, found in self._shared[api.tree.fullname].items():
            self._check_meeting(api, name, found)

    def _check_meeting(
        self, api: TypeChecker, name: str, found: list[FoundOperator]
    ) -> None:
        by_line = sorted(api.tree.imports, key=lambda node: node.line)
        brought = [(node, self._brought(api, node)) for node in by_line]
        if any(len({f.module for f in found} & seen) > 1 for _, seen in brought):
            return  # reported for an imported module that imports both
        met: dict[str, FoundOperator] = {}
        for statement, seen in brought:
            met |= {f.module: f for f in found if f.module in seen}
            if len(met) > 1:
                places = [self.imports.place(f.record) for f in [*met.values()][:2]]
                error = taken(name, *places)
                records.report(api, error, statement, records.DUPLICATE)
                return

    def _brought(self, api: TypeChecker, statement: ImportBase) -> set[str]:
        """Return the names of all modules that an import brings in, even indirectly."""
        names = imported_names(api.tree, statement)
        modules = [api.modules[name] for name in names if name in api.modules]
        found = [self.imports.reachable(m) for m in modules if not m.is_stub]
        return {module.fullname for modules in found for module in modules}


def _base(qualname: str) -> str:
    """Return the name of an operator without its overload."""
    return qualname.partition(".")[0]


# Before checking a module again, mypy's daemon deletes its symbols except those with
# this sign, which no name in a program contains.
SUMMARY = "customop@names"

# The characters in which names of a series of operators differ.
_SERIES = re.compile(r"[\d_]")


@dataclass(frozen=True)
class FoundOperator:
    """An operator, and the global name that it has in a module."""

    record: Record
    type: Type
    module: str
    name: str


def is_operator(mypy_type: Type | None) -> bool:
    """Return whether a type is `Operator`."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance):
        return False
    return own_name(proper.type.fullname) == Operator.__name__


def _rivals(found: list[FoundOperator]) -> list[FoundOperator]:
    """Return the definitions of a name that imports of several modules always run."""
    origins = {f.record.origin: f for f in found if f.record.is_sure}
    several = len({f.module for f in origins.values()}) > 1
    return [*origins.values()] if several else []


def _depend(api: TypeChecker, module: str, name: str) -> None:
    """Have mypy check this module again when a name in another one changes."""
    if module != api.tree.fullname:
        api.module_refs.add(module)
        target = api.tscope.current_full_target()
        trigger = make_trigger(f"{module}.{name}")
        api.tree.plugin_deps.setdefault(trigger, set()).add(target)


def signature_of(mypy_type: Type) -> FunctionLike | None:
    """Return the call signature of an operator type, or None."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or not is_operator(proper):
        return None
    overloads = overloads_of(proper)
    if overloads is not None:
        return overloads
    found = get_proper_type(find_member("__call__", proper, proper))
    return found if isinstance(found, CallableType) else None


# ---- which modules a module sees, and a digest of their operators ----

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
    """The modules of a program, and what they import.

    Attributes
    ----------
    modules : dict
        Name -> module, for the whole program; filled by mypy.
    """

    def __init__(self) -> None:
        self.modules: dict[str, MypyFile] = {}
        self._direct: dict[str, list[MypyFile]] = {}
        # Name of a checked module -> the modules with operators that it sees.
        self._sealed: dict[str, frozenset[str]] = {}
        self._digests: dict[str, str] = {}
        self._operators: dict[str, list[Named]] = {}

    def forget(self) -> None:
        """Forget everything, because a module has changed."""
        self._direct.clear()
        self._sealed.clear()
        self._digests.clear()
        self._operators.clear()

    def operators(self, module: MypyFile) -> list[Named]:
        """Return the operators that a module defines, with their global names."""
        found = self._operators.get(module.fullname)
        return [*_operators_of(module)] if found is None else found

    def direct(self, module: MypyFile) -> list[MypyFile]:
        """Return the modules that a module imports from; no stubs, not this package.

        Neither stubs nor this package define operators that the plugin knows.
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
        """Return a module and everything it imports, directly or indirectly."""
        found = {module.fullname: module}
        waiting = [module]
        while waiting:
            for other in self.direct(waiting.pop()):
                if other.fullname not in found:
                    found[other.fullname] = other
                    waiting.append(other)
        return [*found.values()]

    def with_operators(self, module: MypyFile) -> set[str]:
        """Return names of the modules with operators that a module sees."""
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
        """Return a digest of the operators that a module defines, "" if it has none."""
        if module.fullname in self._digests:
            return self._digests[module.fullname]
        return _hash(
            f"{name} {record.name} {record.origin} {record.is_sure}"
            for name, record, _ in self.operators(module)
        )

    # ---- the symbol ----

    def seal(self, module: MypyFile) -> None:
        """Give a checked module the symbol that summarizes what it sees."""
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

    # ---- the place of a definition ----

    def place(self, record: Record) -> str:
        """Return file and line of a definition, or only the file.

        Records contain no lines, because every edit above an operator would change its
        type.
        """
        module, _, count = record.origin.rpartition("#")
        tree = self.modules.get(module)
        if tree is None:
            return module
        lines = dict(enumerate(_lines_of(Path(tree.path), record.name)))
        line = lines.get(int(count))
        return tree.path if line is None else f"{tree.path}:{line}"


def may_define(module: MypyFile) -> bool:
    """Return whether a module can define operators that the plugin knows."""
    return not (module.is_stub or is_ours(module.fullname))


def _hash(texts: Iterable[str]) -> str:
    joined = "\n".join(sorted(texts))
    return blake2b(joined.encode(), digest_size=8).hexdigest() if joined else ""


def _lines_of(path: Path, qualname: str) -> list[int]:
    """Return the lines of calls in a file that define an operator with this name."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError):  # mypy may read newer syntax than this Python
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
