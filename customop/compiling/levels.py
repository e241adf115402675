"""Calls of a compiled function with tracers: one graph for each level of transforms.

A call with tracers is taken apart at the highest level. What is below goes to the code of the
graph that the function has inside of that transform, and tracers are made of the results.
Where there are tracers of further transforms below, that graph is a compiled function itself,
which takes the next level apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.array import dtype_of
from customop.arrays.kinds import CPU, device_of, is_fake, is_traced
from customop.arrays.nested import flatten, key_orders, unflatten
from customop.compiling.backends import Backend
from customop.compiling.call_code import MISS, Call, Parameters
from customop.compiling.capture import cleaned
from customop.compiling.entries import (
    CallArguments,
    capturing,
    checked_code,
    outside_of_modes,
)
from customop.compiling.joint_graphs import CONSTANT, MOVING, PLAIN
from customop.compiling.level_entries import (
    CompiledNode,
    GradEntry,
    JvpEntry,
    LevelEntry,
    TakenApart,
    VmapEntry,
)
from customop.compiling.report import reason_for
from customop.compiling.surroundings import Surroundings
from customop.core.interpreter import current_mode, highest
from customop.core.tracer import is_scalar
from customop.errors import warn_caller
from customop.graph.module import GraphModule
from customop.transforms.autograd.reverse import GradInterpreter
from customop.transforms.functions.function_calls import FunctionTable
from customop.transforms.jvp import JvpInterpreter
from customop.transforms.trace.recorder import fake_of
from customop.transforms.vmap_interpreter import BatchInterpreter


class Levels:
    """The graphs that a compiled function has for calls with tracers.

    Attributes
    ----------
    entries : list of LevelEntry
        In the order in which they were made.
    is_lift : bool
        Whether the function is a graph without draws, whose results nobody writes.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        title: str,
        backend: Backend,
        sizes: Mapping[str, Any] | None,
        limit: int,
        parameters: Parameters,
        slow: Call,
        make: Callable[[Callable[..., Any]], Callable[..., Any]],
        *,
        is_checked: bool,
        is_lift: bool,
    ) -> None:
        self._make: Callable[[Callable[..., Any]], Callable[..., Any]] = make
        self.fn: Callable[..., Any] = fn
        self.title: str = title
        self.sizes: Mapping[str, Any] | None = sizes
        self.limit: int = limit
        self.parameters: Parameters = parameters
        # The slow path of calls of the function.
        self.slow: Call = slow
        self.is_lift: bool = is_lift
        self.entries: list[LevelEntry[Any]] = []
        self._backend: Backend = backend
        self._is_checked: bool = is_checked
        # What arguments and tracers are -> entries, the last one first.
        self._families: dict[Any, list[LevelEntry[Any]]] = {}
        self._counts: dict[str, int] = {}
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

    def lift(self, module: GraphModule) -> Callable[..., list[Any]]:
        """The graph as a compiled function, for values of other transforms."""
        return self._make(lambda *values: module.run_list(*values))

    def call(self, given: CallArguments) -> tuple[Any, LevelEntry[Any] | None]:
        """The result of a call with tracers, and the entry to try for the next one.

        MISS where the function runs as it is.
        """
        taken = _taken_apart(given)
        if taken is None:
            return MISS, None
        cls = _ENTRIES[type_of(taken.top)]
        # A mode is that of a vmap, which must know of draws.
        taken.is_nested = taken.is_nested or _is_in_other_vmap(taken.top)
        below = _below(given, taken, cls)
        orders = tuple([tuple(keys) for keys in key_orders((given.args, given.kwargs))])
        tracers = (taken.pattern, taken.pinned, taken.is_nested)
        key = (cls, below.structure, orders, *tracers)
        found = self._tried(key, below.leaves)
        if found is None:
            with capturing, outside_of_modes():
                found = self._tried(key, below.leaves)
                if found is None:  # no other thread has made it
                    found = self._new(cls, key, given, below, taken)
        if found is None:
            return MISS, None
        entry, outs = found
        if entry.module is None:
            return MISS, None if entry.is_nested else entry
        if entry.found.has_strides and taken.has_places:
            entry.skipped = "an argument is a view or was written, and strides matter"
            return MISS, None
        if entry.is_nested:
            outs = entry.lifted(*_values(taken, given))
        out = entry.record(taken.top, outs, *given.leaves)
        return out, None if entry.is_nested else entry

    def _tried(self, key: Any, values: Sequence[Any]) -> Any:
        """An entry that fits, and its outputs; None if there is no such entry."""
        for entry in self._families.get(key, ()):
            outs = entry.guarded(*values)
            if outs is not MISS:
                return entry, outs
        return None

    def _new(
        self,
        cls: type[Any],
        key: Any,
        given: CallArguments,
        below: CallArguments,
        taken: TakenApart,
    ) -> Any:
        """A new entry and its outputs; None where the function runs as it is."""
        around = Surroundings([(self.fn, ""), *below.objects(self.fn)])
        if not around.is_plain:
            return None
        kind = below.kind
        family = self._families.get(key, [])
        entries = [e for e in family if kind == e.kind]
        entry: LevelEntry[Any] = cls(self, below, taken, around)
        same = [e for e in self.entries if type(e) is cls]
        entry.kind = kind
        entry.why = reason_for(same, entries, below, entry.within.run)
        entry.capture(below, entries)
        if not entry.is_nested:
            entry.make_call(given.args, given.kwargs, below)
        self.entries = [*self.entries, entry]
        self._families = {**self._families, key: [entry, *family]}
        count = self._counts.get(cls.word, 0) + 1
        self._counts[cls.word] = entry.number = count
        self._forget(entry)
        return entry, entry.guarded(*below.leaves)

    def _forget(self, last: LevelEntry[Any]) -> None:
        """Keep as many entries as the limit says."""
        if len(self.entries) <= self.limit:
            return
        first, *self.entries = self.entries
        families = {
            key: [e for e in family if e is not first]
            for key, family in self._families.items()
        }
        self._families = {key: family for key, family in families.items() if family}
        if not self._has_warned:
            self._has_warned = True
            warn_caller(
                f"compile: the {last.word} of '{self.title}' was compiled {last.number}"
                f" times, and keeps {self.limit}; explain() says why\n  do: pass what"
                " changes as arrays, or limit=... for more"
            )


# ---- arguments ----

_ENTRIES: dict[type[Any], type[Any]] = {
    GradInterpreter: GradEntry,
    BatchInterpreter: VmapEntry,
    JvpInterpreter: JvpEntry,
}


def type_of(interpreter: Any) -> type[Any]:
    """Which of the three it is."""
    return next(cls for cls in _ENTRIES if isinstance(interpreter, cls))


def _is_in_other_vmap(top: Any) -> bool:
    """Whether a vmap runs besides the transform itself."""
    mode = current_mode.get()
    while mode is not None:
        if mode.alive and getattr(mode, "batch", None) is not top:
            return True
        mode = mode.outer
    return False


def _taken_apart(given: CallArguments) -> TakenApart | None:
    """Take tracers apart; None where no such transform is the innermost one."""
    leaves = given.leaves
    top: Any = highest(None, leaves)
    if top is None or not top.runs_plans or not isinstance(top, tuple(_ENTRIES)):
        return None
    own = [is_traced(v) and v.interpreter is top for v in leaves]
    if any(
        is_fake(v.below if is_own else v) for v, is_own in zip(leaves, own, strict=True)
    ):
        return None
    if isinstance(top, GradInterpreter):
        tracked = _tracked(leaves, own)
        return None if tracked is None else TakenApart(top, leaves, tracked)
    pairs = [*zip(leaves, own, strict=True)]
    if isinstance(top, BatchInterpreter):
        dims = [v.dim if is_own else PLAIN for v, is_own in pairs]
        return TakenApart(top, leaves, tuple(dims))
    tangents = [v.tangent for v, is_own in pairs if is_own and v.tangent is not None]
    pattern = [_moves(v) if is_own else PLAIN for v, is_own in pairs]
    return TakenApart(top, leaves, tuple(pattern), tangents)


def _moves(leaf: Any) -> int:
    return CONSTANT if leaf.tangent is None else MOVING


def _tracked(leaves: Sequence[Any], own: Sequence[bool]) -> tuple[int, ...] | None:
    """Which tracers have gradients; None for two tracers of one call."""
    pattern: list[int] = []
    origins: dict[int, int] = {}
    for i, (leaf, is_own) in enumerate(zip(leaves, own, strict=True)):
        if not is_own:
            pattern.append(PLAIN)
        elif leaf.node is None:
            pattern.append(CONSTANT)
        else:
            first = origins.setdefault(id(leaf.node), i)
            if leaf is not leaves[first]:
                return None
            pattern.append(first)
    return tuple(pattern)


def _values(taken: TakenApart, given: CallArguments) -> list[Any]:
    """The values below, in the order in which the graph takes them."""
    at = len(flatten(given.args)[0]) if taken.more else 0
    return [*taken.values[:at], *taken.more, *taken.values[at:]]


def _below(given: CallArguments, taken: TakenApart, cls: type[Any]) -> CallArguments:
    """The arguments with values in the place of tracers, as a function is captured."""
    values, more = taken.values, taken.more
    if taken.is_nested:
        values = [_stand_in(v) if is_traced(v) else v for v in values]
        more = [_stand_in(v) if is_traced(v) else v for v in more]
    args, kwargs = unflatten(given.structure, values)
    if cls is JvpEntry:
        args = (*args, [*more])
    return CallArguments(args, kwargs)


def _stand_in(value: Any) -> Any:
    """Return a value like one of another transform, to capture a function with."""
    if value.shape or device_of(value) != CPU.name:
        return fake_of(value)
    scalar = dtype_of(value).type(1)
    return scalar if is_scalar(value) else np.asarray(scalar)
