"""What a compiled function has for reverse mode: which of its graphs fits a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.dtypes import dtype_of
from customop.arrays.kinds import CPU, device_of, is_fake, is_traced
from customop.arrays.pytree import Structure, key_orders, unflatten
from customop.compiling.backends import Backend
from customop.compiling.calls import MISS
from customop.compiling.capturing import cleaned
from customop.compiling.checked import capturing, outside_of_modes
from customop.compiling.entries import CallArguments, checked_code
from customop.compiling.grad_entry import GradEntry
from customop.compiling.joint import CONSTANT, PLAIN, Pattern
from customop.compiling.lifts import Lift
from customop.compiling.report import reason_for
from customop.compiling.surroundings import Surroundings
from customop.compiling.tape import CompiledNode
from customop.core.boxes import frozen, is_scalar
from customop.core.interpreter import highest
from customop.errors import warn_caller
from customop.graph.module import GraphModule
from customop.transforms.autograd.interpreter import GradInterpreter
from customop.transforms.functions.call import FunctionTable
from customop.transforms.trace.interpreter import fake_of

__all__ = ["Gradients"]


class Gradients:
    """What a compiled function has for reverse mode.

    Attributes
    ----------
    entries : list of GradEntry
        In the order in which they were made.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        title: str,
        backend: Backend,
        sizes: Mapping[str, Any] | None,
        limit: int,
        make: Callable[[Callable[..., Any]], Callable[..., Any]],
        *,
        is_checked: bool,
    ) -> None:
        self._make: Callable[[Callable[..., Any]], Callable[..., Any]] = make
        self.fn: Callable[..., Any] = fn
        self.title: str = title
        self.sizes: Mapping[str, Any] | None = sizes
        self.limit: int = limit
        self.entries: list[GradEntry] = []
        self._backend: Backend = backend
        self._is_checked: bool = is_checked
        # Whether the function is a graph, whose results nobody writes.
        self.is_lift: bool = False
        # Structure and pattern of arguments -> entries, the last one first.
        self._families: dict[Any, list[GradEntry]] = {}
        self._last: GradEntry | None = None
        self._count: int = 0
        self._has_warned: bool = False
        self._nodes: type[CompiledNode] | None = None

    @property
    def nodes(self) -> type[CompiledNode]:
        """The class of its nodes."""
        if self._nodes is None:
            names = {"node_op": FunctionTable("compile", self.fn), "__slots__": ()}
            self._nodes = type("compiled_node", (CompiledNode,), names)
        return self._nodes

    def code(self, module: GraphModule) -> Callable[..., list[Any]]:
        """The code of a graph as it was captured."""
        module = cleaned(module)
        run = self._backend(module)
        assert module.out_spec is not None
        return checked_code(run, module.out_spec) if self._is_checked else run

    def again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As `call`, if arguments are nested as those of the last call; else MISS.

        Generated code takes them apart in a tenth of the time that optree needs.
        """
        entry = self._last
        if entry is None:
            return MISS
        leaves = entry.unpack(args, kwargs)
        found = None if leaves is None else _taken_apart(leaves)
        if leaves is None or found is None or found.pattern != entry.pattern:
            return MISS
        if found.is_nested:
            return MISS
        outs = entry.guarded(*found.values)
        return MISS if outs is MISS else entry.record(found.top, leaves, outs)

    def lift(self, module: GraphModule) -> Lift:
        """The graph on values of other transforms, each form of it compiled."""
        return Lift.of_graph(module, self._make)

    def call(self, given: CallArguments, is_in_vmap: bool) -> Any:
        """Call the function under reverse mode; MISS to run it as it is."""
        found = _taken_apart(given.leaves)
        if found is None:
            return MISS
        is_nested = found.is_nested or is_in_vmap
        orders = tuple([tuple(keys) for keys in key_orders((given.args, given.kwargs))])
        key = (given.structure, orders, found.pattern, is_nested)
        values = found.values
        if is_nested:
            values = [_stand_in(v) if is_traced(v) else v for v in values]
        outs = self._tried(key, values)
        if outs is None:
            with capturing, outside_of_modes():
                outs = self._tried(key, values)
                if outs is None:  # no other thread has made it
                    outs = self._new(key, given.structure, values)
        if outs is MISS:
            return MISS
        entry, outs = outs
        if outs is None:
            return MISS
        if is_nested:
            outs, _ = entry.lifted(*found.values)
        else:
            self._last = entry
        return entry.record(found.top, given.leaves, outs)

    def _tried(self, key: Any, values: Sequence[Any]) -> Any:
        """An entry that fits, and its outputs; None if there is no such entry."""
        for entry in self._families.get(key, ()):
            outs = entry.guarded(*values)
            if outs is not MISS:
                return entry, outs
        return None

    def _new(self, key: Any, structure: Structure, values: list[Any]) -> Any:
        """A new entry and its outputs; MISS where the function runs as it is."""
        given = CallArguments(*unflatten(structure, values))
        around = Surroundings([(self.fn, ""), *given.objects(self.fn)])
        if not around.is_plain:
            return MISS
        kind = given.kind
        family = self._families.get(key, [])
        entries = [e for e in family if kind == e.kind]
        entry = GradEntry(self, given, key[-2], key[-1], around)
        entry.kind, entry.why = kind, reason_for(self.entries, entries, given, self.fn)
        entry.capture(given, entries)
        if entry.module and any(map(is_traced, entry.module.constants.values())):
            return MISS
        self.entries = [*self.entries, entry]
        self._families = {**self._families, key: [entry, *family]}
        self._count += 1
        entry.number = self._count
        self._forget()
        return entry, entry.guarded(*values)

    def _forget(self) -> None:
        """Keep as many entries as the limit says."""
        if len(self.entries) <= self.limit:
            return
        first, *self.entries = self.entries
        self._families = {
            key: [e for e in family if e is not first]
            for key, family in self._families.items()
        }
        if not self._has_warned:
            self._has_warned = True
            warn_caller(
                f"compile: the gradient of '{self.title}' was compiled {self._count}"
                f" times, and keeps {self.limit}; explain() says why\n  do: pass what"
                " changes as arrays, or limit=... for more"
            )


class _TakenApart(NamedTuple):
    """The leaves of arguments: who differentiates, values below, and which they are.

    `is_nested` says that there are values of other transforms among them.
    """

    top: GradInterpreter
    values: list[Any]
    pattern: Pattern
    is_nested: bool


def _taken_apart(leaves: Sequence[Any]) -> _TakenApart | None:
    """Take tracers apart; None where no reverse mode is the innermost transform."""
    top: Any = highest(None, leaves)
    if not isinstance(top, GradInterpreter) or not top.runs_plans:
        return None
    values: list[Any] = []
    pattern: list[int] = []
    origins: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        is_own = is_traced(leaf) and leaf.interpreter is top
        value = leaf.below if is_own else leaf
        if is_fake(value):
            return None
        values.append(value)
        if not is_own:
            pattern.append(PLAIN)
        elif leaf.node is None:
            pattern.append(CONSTANT)
        else:
            first = origins.setdefault(id(leaf.node), i)
            if leaf is not leaves[first]:  # two tracers of one call
                return None
            pattern.append(first)
    is_nested = any(map(is_traced, values))
    if is_nested:
        values = [frozen(v) for v in values]
    return _TakenApart(top, values, tuple(pattern), is_nested)


def _stand_in(value: Any) -> Any:
    """What a function is captured with in the place of a value of another transform."""
    if value.shape or device_of(value) != CPU.name:
        return fake_of(value)
    scalar = dtype_of(value).type(1)
    return scalar if is_scalar(value) else np.asarray(scalar)
