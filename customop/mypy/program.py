"""The operators that the module that mypy checks can see, its own and imported ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mypy.nodes import (
    Context,
    Decorator,
    ImportBase,
    MypyFile,
    SymbolTableNode,
    Var,
)
from mypy.server.trigger import make_trigger, make_wildcard_trigger
from mypy.subtypes import find_member
from mypy.types import (
    CallableType,
    FunctionLike,
    Instance,
    Overloaded,
    Type,
    get_proper_type,
)

from customop.core.operator import Operator
from customop.core.registry import taken
from customop.mypy import codes
from customop.mypy.names import is_ours, own_name
from customop.mypy.records import Record, recall
from customop.mypy.trees import Surveys, imported_names

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Found", "Program", "is_operator"]


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


def _imported(module: MypyFile, modules: dict[str, MypyFile]) -> Iterator[MypyFile]:
    """Modules that define the names of a module, without stubs and this package.

    Neither of those two defines operators that the plugin knows.
    """
    for symbol in module.names.values():
        owner = symbol.node
        if not isinstance(owner, MypyFile):
            name = (symbol.fullname or "").rpartition(".")[0]
            owner = modules.get(name)
        if owner is None or owner is module or owner.is_stub:
            continue
        if not is_ours(owner.fullname):
            yield owner


def _reachable(module: MypyFile, modules: dict[str, MypyFile]) -> list[MypyFile]:
    """A module and everything that it imports, directly or not."""
    found = {module.fullname: module}
    waiting = [module]
    while waiting:
        for other in _imported(waiting.pop(), modules):
            if other.fullname not in found:
                found[other.fullname] = other
                waiting.append(other)
    return [*found.values()]


def _operators_of(module: MypyFile) -> Iterator[Found]:
    for name, symbol in module.names.items():
        operator_type = _type_of(symbol, module)
        record = recall(operator_type)
        if operator_type is not None and record is not None and record.has_schema:
            yield Found(record, operator_type, module.fullname, name)


def _type_of(symbol: SymbolTableNode, module: MypyFile) -> Type | None:
    node = symbol.node
    node = node.var if isinstance(node, Decorator) else node
    if not isinstance(node, Var) or node.fullname.rpartition(".")[0] != module.fullname:
        return None
    return node.type


class Program:
    """Finds operators by name, and operators that share one."""

    def __init__(self, surveys: Surveys) -> None:
        self._surveys = surveys
        # Name of a module -> the modules that it can see, and their operators.
        self._visible: dict[str, list[MypyFile]] = {}
        self._others: dict[str, dict[str, list[Found]]] = {}
        # Name of a module -> the names that several modules that it sees define.
        self._shared: dict[str, dict[str, list[Found]]] = {}

    def forget(self) -> None:
        """Search again: a module has changed."""
        self._visible.clear()
        self._others.clear()
        self._shared.clear()

    def find(self, api: TypeChecker, qualname: str) -> tuple[Record, Type] | None:
        """The operator of a name, if exactly one is visible."""
        found = self._named(api, qualname)
        if len({operator.record.place for operator in found}) != 1:
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
        items = [_signature(found[1]) for found in operators if found is not None]
        known = [item for item in items if item is not None]
        if not known or len(known) < len(operators):
            return None
        return known[0] if len(known) == 1 else Overloaded(known)

    def _all(self, api: TypeChecker) -> Iterator[Found]:
        yield from _operators_of(api.tree)
        for operators in self._of_others(api).values():
            yield from operators

    def _named(self, api: TypeChecker, qualname: str) -> list[Found]:
        own = [f for f in _operators_of(api.tree) if f.record.name == qualname]
        return [*own, *self._of_others(api).get(qualname, ())]

    def _of_others(self, api: TypeChecker) -> dict[str, list[Found]]:
        name = api.tree.fullname
        if name not in self._others:
            others: dict[str, list[Found]] = {}
            for module in self._seen_from(api)[1:]:
                for found in _operators_of(module):
                    others.setdefault(found.record.name, []).append(found)
                    _depend(api, found.module, found.name)
            self._others[name] = others
            rivals = {n: _rivals(found) for n, found in others.items()}
            self._shared[name] = {n: found for n, found in rivals.items() if found}
        return self._others[name]

    def _seen_from(self, api: TypeChecker) -> list[MypyFile]:
        name = api.tree.fullname
        if name not in self._visible:
            self._visible[name] = _reachable(api.tree, api.modules)
        return self._visible[name]

    # ---- operators of one name ----

    def is_sure(self, api: TypeChecker, name: str, call: Context) -> bool:
        """Whether importing the module always runs a definition."""
        return call in self._surveys.of(api.tree).definitions.get(name, ())

    def check_alone(self, api: TypeChecker, record: Record, call: Context) -> None:
        """Report a definition of an operator whose name is taken."""
        if not record.is_sure:
            return
        calls = self._surveys.of(api.tree).definitions[record.name]
        earlier = calls[: calls.index(call)]  # type: ignore[arg-type]  # a call
        before = [f"{api.path}:{c.line}" for c in earlier]
        before += [
            found.record.place
            for found in self._of_others(api).get(record.name, ())
            if found.record.is_sure and not self._sees(api, found.module, api.tree)
        ]
        if before:
            error = taken(record.name, before[0], record.place)
            codes.report(api, error, call, codes.DUPLICATE)

    def _sees(self, api: TypeChecker, module: str, other: MypyFile) -> bool:
        return other in _reachable(api.modules[module], api.modules)

    def check_imports(self, api: TypeChecker) -> None:
        """Report modules that define one name, if the checked module imports both."""
        self._of_others(api)
        for name, found in self._shared.get(api.tree.fullname, {}).items():
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
                first, second = list(met.values())[:2]
                error = taken(name, first.record.place, second.record.place)
                codes.report(api, error, statement, codes.DUPLICATE)
                return

    def _brought(self, api: TypeChecker, statement: ImportBase) -> set[str]:
        """Names of all modules that an import statement brings, directly or not."""
        names = imported_names(api.tree, statement)
        modules = [api.modules[name] for name in names if name in api.modules]
        found = [_reachable(m, api.modules) for m in modules if not m.is_stub]
        return {module.fullname for modules in found for module in modules}


def _rivals(found: list[Found]) -> list[Found]:
    """The definitions of a name, if imports of several modules always run one."""
    places = {f.record.place: f for f in found if f.record.is_sure}
    several = len({f.module for f in places.values()}) > 1
    return [*places.values()] if several else []


def _depend(api: TypeChecker, module: str, name: str) -> None:
    """Have mypy check the module again when a name of another one changes."""
    if module != api.tree.fullname:
        api.module_refs.add(module)
        target = api.tscope.current_full_target()
        for trigger in (
            make_trigger(f"{module}.{name}"),
            make_wildcard_trigger(module),
        ):
            api.tree.plugin_deps.setdefault(trigger, set()).add(target)


def _signature(mypy_type: Type) -> CallableType | None:
    """The type of the call of an operator."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or not is_operator(proper):
        return None
    found = get_proper_type(find_member("__call__", proper, proper))
    return found if isinstance(found, CallableType) else None
