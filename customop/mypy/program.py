"""The operators that the module that mypy checks can see, its own and imported ones.

mypy checks a module again when the interface of a module that it imports changes. What the
plugin says of a module also depends on the names of operators in modules that these import.
So each module has one more symbol, an alias that changes exactly when a name that can be seen
through the module does. It is part of the interface, and thus passes a new name on to the
modules above; other changes of a module go no further than without the plugin.
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


# ---- which modules a module sees, and a summary of the operators there ----


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


# ---- program ----
# The operators that the module that mypy checks can see, its own and imported ones.


# What the names of a series of operators differ by.
_SERIES = re.compile(r"[\d_]")


@dataclass(frozen=True)
class Found:
    """An operator and the global name that a module gives it."""

    record: Record
    type: Type
    module: str
    name: str


def is_operator(mypy_type: Type | None) -> bool:
    """Whether a type is that of operators."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance):
        return False
    return own_name(proper.type.fullname) == Operator.__name__


class Program:
    """Finds operators by name, and operators that share one.

    Attributes
    ----------
    imports : Imports
    """

    def __init__(self, surveys: Surveys) -> None:
        self.imports = Imports()
        self._surveys = surveys
        # Name of a module -> the operators that it imports, by name.
        self._others: dict[str, dict[str, list[Found]]] = {}
        # Name of a module -> the names that several modules that it sees define.
        self._shared: dict[str, dict[str, list[Found]]] = {}
        # Name of a module -> the function, or the module, in which mypy checks its imports.
        self._meetings: dict[str, str] = {}
        # Name of a module -> functions and modules for which it matters what it sees.
        self._watchers: dict[str, set[str]] = defaultdict(set)

    def forget(self, module: str) -> None:
        """Search again: a module has changed."""
        self.imports.forget()
        self._others.clear()
        self._shared.clear()
        self._meetings.pop(module, None)

    def find(self, api: TypeChecker, qualname: str) -> tuple[Record, Type] | None:
        """The operator of a name, if exactly one is visible."""
        self._watch(api)
        found = self._named(api, qualname)
        if len({operator.record.origin for operator in found}) != 1:
            return None
        for operator in found:
            _depend(api, operator.module, operator.name)
        return found[0].record, found[0].type

    def signatures(self, api: TypeChecker, name: str) -> FunctionLike | None:
        """The types of all overloads of a name, None unless all are known."""
        names = {
            found.record.name
            for found in self._all(api)
            if found.record.name.partition(".")[0] == name
        }
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
        """The error for a name that no operator has, if it is close to a known one.

        The program may define operators that mypy does not see, so that a name that is
        not close to another one proves nothing. One that differs by a digit or an
        underscore names one of a series.
        """
        namespace = qualname.partition("::")[0]
        known = {found.record.name.partition(".")[0] for found in self._all(api)}
        known |= {name.partition(".")[0] for name in self._surveys.of(api.tree).defined}
        mine = [name for name in known if name.startswith(f"{namespace}::")]
        near = get_close_matches(qualname, mine, 1, cutoff=0.85)
        if qualname.partition(".")[0] in known or not near:
            return None
        if _SERIES.sub("", near[0]) == _SERIES.sub("", qualname):
            return None
        is_open = self._surveys.of(api.tree).mentions("Library", "import_module")
        return None if is_open else error(qualname, mine)

    def wrong_overload(self, api: TypeChecker, qualname: str) -> CustomOpError | None:
        """The error for an overload that an operator does not have, if it is close."""
        name, _, overload = qualname.rpartition(".")
        parts = [f.record.name.partition(".") for f in self._all(api)]
        known = {part[2] or "default" for part in parts if part[0] == name}
        if overload in known or not get_close_matches(overload, known, 1, cutoff=0.85):
            return None
        is_open = self._surveys.of(api.tree).mentions("Library", "import_module")
        return None if is_open else unknown_overload(qualname, sorted(known))

    def _all(self, api: TypeChecker) -> Iterator[Found]:
        self._watch(api)
        yield from self._found(api.tree)
        for operators in self._of_others(api.tree).values():
            yield from operators

    def _named(self, api: TypeChecker, qualname: str) -> list[Found]:
        own = [f for f in self._found(api.tree) if f.record.name == qualname]
        return [*own, *self._of_others(api.tree).get(qualname, ())]

    def _of_others(self, tree: MypyFile) -> dict[str, list[Found]]:
        name = tree.fullname
        if name not in self._others:
            others: dict[str, list[Found]] = defaultdict(list)
            for module in sorted(self.imports.with_operators(tree) - {name}):
                for found in self._found(self.imports.modules[module]):
                    others[found.record.name].append(found)
            self._others[name] = others
            rivals = {n: _rivals(found) for n, found in others.items()}
            self._shared[name] = {n: found for n, found in rivals.items() if found}
        return self._others[name]

    def _found(self, module: MypyFile) -> Iterator[Found]:
        for name, record, operator_type in self.imports.operators(module):
            yield Found(record, operator_type, module.fullname, name)

    # ---- what is checked again ----

    def _watch(self, api: TypeChecker) -> None:
        """Have mypy check this part of a module again when it sees other names.

        Without the daemon, the summaries in the interfaces of modules see to that.
        """
        if not (api.options.fine_grained_incremental or api.options.cache_fine_grained):
            return
        target = api.tscope.current_full_target()
        for module in self.imports.reachable(api.tree):
            if target not in self._watchers[module.fullname]:
                self._watchers[module.fullname].add(target)
                self._add_trigger(api.tree, module, target)

    def look_again(self, module: MypyFile) -> None:
        """Have the modules above a module watch what it imports now."""
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
        """Names whose errors in a module show lines of other modules."""
        others = self._of_others(module)
        own = {record.name for _, record, _ in self.imports.operators(module)}
        shown = {*self._shared[module.fullname], *own.intersection(others)}
        return {"shown": sorted(shown)} if shown else None

    # ---- operators of one name ----

    def is_sure(self, api: TypeChecker, name: str, call: Context) -> bool:
        """Whether importing the module always runs a definition."""
        return call in self._surveys.of(api.tree).definitions.get(name, ())

    def check_alone(self, api: TypeChecker, record: Record, call: Context) -> None:
        """Report a definition of an operator whose name is taken."""
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
        """Report modules that define one name, if the checked module imports both.

        One function or module of each module does it, so that mypy's daemon drops the
        error when it checks that one again.
        """
        target = api.tscope.current_full_target()
        if self._meetings.setdefault(api.tree.fullname, target) != target:
            return
        self._watch(api)
        self._of_others(api.tree)
        for name, found in self._shared[api.tree.fullname].items():
            self._check_meeting(api, name, found)

    def _check_meeting(self, api: TypeChecker, name: str, found: list[Found]) -> None:
        by_line = sorted(api.tree.imports, key=lambda node: node.line)
        brought = [(node, self._brought(api, node)) for node in by_line]
        if any(len({f.module for f in found} & seen) > 1 for _, seen in brought):
            return  # reported for a module that is imported, which imports both
        met: dict[str, Found] = {}
        for statement, seen in brought:
            met |= {f.module: f for f in found if f.module in seen}
            if len(met) > 1:
                places = [self.imports.place(f.record) for f in [*met.values()][:2]]
                error = taken(name, *places)
                records.report(api, error, statement, records.DUPLICATE)
                return

    def _brought(self, api: TypeChecker, statement: ImportBase) -> set[str]:
        """Names of all modules that an import statement brings, directly or not."""
        names = imported_names(api.tree, statement)
        modules = [api.modules[name] for name in names if name in api.modules]
        found = [self.imports.reachable(m) for m in modules if not m.is_stub]
        return {module.fullname for modules in found for module in modules}


def _rivals(found: list[Found]) -> list[Found]:
    """The definitions of a name, if imports of several modules always run one."""
    origins = {f.record.origin: f for f in found if f.record.is_sure}
    several = len({f.module for f in origins.values()}) > 1
    return [*origins.values()] if several else []


def _depend(api: TypeChecker, module: str, name: str) -> None:
    """Have mypy check the module again when a name of another one changes."""
    if module != api.tree.fullname:
        api.module_refs.add(module)
        target = api.tscope.current_full_target()
        trigger = make_trigger(f"{module}.{name}")
        api.tree.plugin_deps.setdefault(trigger, set()).add(target)


def signature_of(mypy_type: Type) -> FunctionLike | None:
    """The type of the call of an operator."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or not is_operator(proper):
        return None
    overloads = overloads_of(proper)
    if overloads is not None:
        return overloads
    found = get_proper_type(find_member("__call__", proper, proper))
    return found if isinstance(found, CallableType) else None
