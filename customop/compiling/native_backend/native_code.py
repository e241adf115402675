"""The back end "native": graphs as tables, and NumPy's code for what they do not cover."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU
from customop.compiling.backends import build as build_code
from customop.compiling.capture import SettledGraph
from customop.compiling.native_backend.composed_rows import RULES_OF_STEPS
from customop.compiling.native_backend.control_rows import RULES_OF_CONTROL
from customop.compiling.native_backend.core_rows import RULES_OF_CORES
from customop.compiling.native_backend.door import (
    CHANGED,
    RUNNING,
    UNSETTLED,
    DoorInput,
    accept_errstate,
    make_door,
)
from customop.compiling.native_backend.drawn_inputs import draws_of, with_drawn_inputs
from customop.compiling.native_backend.driver import driver
from customop.compiling.native_backend.islands import arrange_island
from customop.compiling.native_backend.memory import (
    COPIED,
    MemoryPlan,
    address_of,
    span_of,
)
from customop.compiling.native_backend.object_layout import why_not_native
from customop.compiling.native_backend.operator_rows import RULES
from customop.compiling.native_backend.planning import AnyArray, TablePlan
from customop.compiling.native_backend.result_layout import Finished, ResultPlan
from customop.compiling.native_backend.tables import NativeProgram
from customop.compiling.native_backend.ufunc_loops import DTYPES, NotNative
from customop.compiling.native_backend.written_rows import (
    RULES_OF_WRITES,
    writes_input,
    written_inputs,
)
from customop.compiling.numpy_backend.call_text import builtin_kernel
from customop.compiling.report import NodeGroup
from customop.config import config
from customop.core.table import RuleTable, changing, finalized
from customop.forks import free_after_fork
from customop.graph.module import GraphModule
from customop.graph.node import CALL, OUTPUT, PLACEHOLDER, Node
from customop.graph.replay import is_plain

# The code of the fallback where a program runs already in a thread that let the GIL go.
_RUNNING_FREE: Final = -1

_RULES: Final = {
    **RULES,
    **RULES_OF_STEPS,
    **RULES_OF_CONTROL,
    **RULES_OF_CORES,
    **RULES_OF_WRITES,
    "island": arrange_island,
}
# Of the memory for an argument that nothing reads.
_UNREAD: Final = np.dtype(np.uint8)
# Numbers of Python as arguments.
_NUMBERS: Final = {float: np.dtype("f8"), int: np.dtype("i8"), bool: np.dtype("?")}
# What plans hold between calls; a single one may hold more.
MOST_BYTES: int = 1 << 30
# Plans for arguments of other classes, sizes or strides.
_PLANS: Final = 8
# Copies of a plan, for threads that call it while it runs without the GIL.
_COPIES: Final = 3
# Work in items from which on other threads go on meanwhile: 50 us.
_RELEASED: Final = 1 << 17


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """Return a function from the leaves of the inputs to a list of those of the result.

    Parameters
    ----------
    module : GraphModule

    Returns
    -------
    callable
        It does not check the guards of the graph. Its attribute `explain` gives the calls
        that run as Python.
    """
    return _build(module, is_exact=True)


def build_near(module: GraphModule) -> Callable[..., list[Any]]:
    """Do what `build` does, for ``compile(exact=False)``."""
    return _build(module, is_exact=False)


def _build(module: GraphModule, *, is_exact: bool) -> Callable[..., list[Any]]:
    if any(map(_is_elsewhere, module.graph.nodes)):
        return build_code(module)
    if draws_of(module):
        return with_drawn_inputs(module, build if is_exact else build_near)
    why = _reason_against(module)
    if why:
        run: Any = build_code(module)
        others = getattr(run, "explain", list)
        run = _named(run, lambda: [NodeGroup([], "NumPy code", why), *others()])
    else:
        run = NativeCode(module, is_exact=is_exact).function
    made: Callable[..., list[Any]] = run
    return made


def _named(run: Any, explain: Callable[[], Any]) -> Any:
    def function(*leaves: Any) -> Any:
        return run(*leaves)

    made: Any = function
    made.explain, made.code = explain, getattr(run, "code", None)
    return made


class _HeldMemory:
    """Bounds the memory that the plans of all compiled functions hold between calls.

    The oldest plans are dropped first; a function that is called again makes a new one.
    """

    def __init__(self) -> None:
        self._lock: Any = free_after_fork(threading.Lock())
        # Functions that drop a plan, and what it holds; the oldest first.
        self._drops: list[tuple[weakref.WeakMethod[Any], Any, int]] = []

    def add(self, drop: Callable[[Any], None], key: Any, nbytes: int) -> None:
        """Note a new plan, and drop old ones if all together hold too much.

        Parameters
        ----------
        drop : bound method
            Called with the key.
        key : hashable
        nbytes : int
        """
        with self._lock:
            old = [item for item in self._drops if item[0]() is not None]
            left = sum([item[2] for item in old]) + nbytes
            dropped = 0
            while dropped < len(old) and left > MOST_BYTES:
                left -= old[dropped][2]
                dropped += 1
            self._drops = [*old[dropped:], (weakref.WeakMethod(drop), key, nbytes)]
        for method, other, _ in old[:dropped]:
            drop_other = method()
            if drop_other is not None:
                drop_other(other)

    def forget(self, drop: Callable[[Any], None]) -> None:
        """Note that the plans of a function are gone."""
        with self._lock:
            self._drops = [item for item in self._drops if item[0]() != drop]


_held = _HeldMemory()


def _reason_against(module: GraphModule) -> str:
    """Return why a graph is left to NumPy's code; empty if it is not."""
    unfit = why_not_native()
    if unfit:
        return unfit
    if not all(is_plain(type(v)) for v in module.graph.constants.values()):
        return "it holds values of another library"
    return next(filter(None, map(_reason_against_node, module.graph.nodes)), "")


def _is_elsewhere(node: Node) -> bool:
    """Return whether a value lies in the memory of another device."""
    return isinstance(node.val, FakeArray) and node.val.device != CPU.name


def _reason_against_node(node: Node) -> str:
    """Return why the graph of a node is left to NumPy's code; empty if it is not."""
    if isinstance(node.target, SettledGraph) and node.target.warns:
        return f"{node} warns by settings of its own, and would again in a second run"
    if node.is_checked and not _is_checked_by_island(node):
        return f"{node} is checked"
    if node.op == CALL and not node.is_pure and not writes_input(node):
        return f"{node} writes or draws"
    return ""


def _is_checked_by_island(node: Node) -> bool:
    """Return whether what the graph checks of a result is what each island looks at."""
    is_users = (
        isinstance(node.target, RuleTable) and builtin_kernel(node.target) is None
    )
    return is_users and "must_be" not in node.meta and isinstance(node.val, FakeArray)


class NativeCode:
    """The function of a graph: a table for each kind of arguments.

    Attributes
    ----------
    function : callable
        Of the leaves of the inputs.
    """

    def __init__(self, module: GraphModule, *, is_exact: bool) -> None:
        self._module: GraphModule = module
        self._is_exact: bool = is_exact
        self._numpy: Any = None
        self._plans: dict[Any, GraphProgram | str] = {}
        # Copies of plans: by the key of the plan, and their number.
        self._copies: dict[tuple[Any, int], GraphProgram] = {}
        self._lock: Any = free_after_fork(threading.RLock())
        # The count of changes of tables for which the kernels are right.
        self._seen: int = changing.count
        self._door: Callable[..., Any] = self._planned
        self.function: Any = self._made()

    def _made(self) -> Any:
        table, again = changing, self._run_again

        def forward(*leaves: Any) -> Any:
            if table.count != self._seen:
                return again(*leaves)
            return self._door(*leaves)

        made: Any = forward
        made.explain, made.release = self.explain, self.release
        return made

    def explain(self) -> list[NodeGroup]:
        """Return what runs as Python, and why, for each kind of arguments."""
        found = []
        for program in self._plans.values():
            if isinstance(program, str):
                found.append(NodeGroup([], "NumPy code", program))
            else:
                found += program.explain()
        if self._copies:
            count = sum(copy.nbytes for copy in [*self._copies.values()])
            found.append(NodeGroup([], f"copies for threads, {count} bytes"))
        return found

    # ---- plans ----

    def _planned(self, *leaves: Any) -> Any:
        """Run the plan for arguments, which is made now if there is none."""
        key = tuple([_signature(leaf) for leaf in leaves])
        program = self._plans.get(key)
        if program is None:
            with self._lock:
                program = self._plans.get(key) or self._make(key, leaves)
        if isinstance(program, str):
            return self._by_numpy(0, *leaves)
        self._door = program.run
        return program.run(*leaves)

    def _make(self, key: Any, leaves: Sequence[Any]) -> GraphProgram | str:
        if len(self._plans) >= _PLANS:
            return "there are plans for too many kinds of arguments"
        made: GraphProgram | str
        try:
            made = self._program(leaves, 0)
        except NotNative as reason:
            made = str(reason)
        self._plans[key] = made
        if isinstance(made, GraphProgram):
            _held.add(self._drop, key, made.nbytes)
        return made

    def _program(self, leaves: Sequence[Any], number: int) -> GraphProgram:
        """Return a new plan, or a copy of one by its number."""
        fallback = partial(self._fallback, number)
        return GraphProgram(self._module, leaves, fallback, is_exact=self._is_exact)

    def _run_copy(self, number: int, leaves: Sequence[Any]) -> Any:
        """Run a copy of a plan that runs in another thread."""
        key = tuple([_signature(leaf) for leaf in leaves]), number
        copy = self._copies.get(key)
        if copy is None:
            with self._lock:
                copy = self._copies.get(key)
                if copy is None:
                    copy = self._copies[key] = self._program(leaves, number)
                    _held.add(self._drop, key, copy.nbytes)
        return copy.run(*leaves)

    def _drop(self, key: Any) -> None:
        """Drop a plan, or a copy of one. A call that runs it keeps it until it ends."""
        if self._copies.pop(key, None) is None:
            self._plans.pop(key, None)
            self._door = self._planned

    def release(self) -> None:
        """Free the memory of all plans; the next call makes a new one."""
        self._plans, self._copies = {}, {}
        self._door = self._planned
        _held.forget(self._drop)

    def _fallback(self, number: int, code: int, *leaves: Any) -> Any:
        """Run a call that is not as planned."""
        if code == _RUNNING_FREE and number < _COPIES:
            return self._run_copy(number + 1, leaves)
        if code == CHANGED:
            key = tuple([_signature(leaf) for leaf in leaves])
            program = self._plans.get(key)
            if program is None:
                return self._planned(*leaves)
            if not isinstance(program, str) and program.run is not self._door:
                return self._planned(*leaves)
        return self._by_numpy(code, *leaves)

    def _by_numpy(self, code: int, *leaves: Any) -> Any:
        del code
        if self._numpy is None:
            with self._lock:
                if self._numpy is None:
                    self._numpy = build_code(self._module)
        return self._numpy(*leaves)

    def _run_again(self, *leaves: Any) -> Any:
        """Run where an operator has changed, or each call is to be checked."""
        if config.checks != "first":
            return self._module.run_list(*leaves)
        with finalized, changing:
            if self._seen != changing.count:
                self.release()
                self._seen = changing.count
        return self.function(*leaves)


def _signature(leaf: Any) -> Any:
    """Return what a plan depends on in an argument."""
    if type(leaf) is np.ndarray:
        return leaf.dtype, leaf.shape, leaf.strides, leaf.flags.aligned
    return type(leaf)


# ---- the table of a graph ----


class GraphProgram:
    """The table of a graph for arguments of one kind, and how it is called.

    Attributes
    ----------
    run : callable
        Of the leaves of the inputs; the fallback where a call is not as planned.
    nbytes : int
        The size of the memory that it holds.
    """

    def __init__(
        self,
        module: GraphModule,
        leaves: Sequence[Any],
        fallback: Callable[..., Any],
        *,
        is_exact: bool,
    ) -> None:
        program = NativeProgram(driver(), is_exact=is_exact)
        self._memory: MemoryPlan = MemoryPlan()
        table = program.table()
        placeholders = [n for n in module.graph.nodes if n.op == PLACEHOLDER]
        written = written_inputs(module.graph.nodes)
        read = {
            n for node in module.graph.nodes if node.op != OUTPUT for n in node.inputs
        }
        pairs = [
            self._stand_in(leaf, node, is_written=node in written)
            if isinstance(node.val, FakeArray) or type(leaf) in _NUMBERS or node in read
            else ("unread", self._memory.new(1).array((), _UNREAD))
            for leaf, node in zip(leaves, placeholders, strict=True)
        ]
        arrays = [array for _, array in pairs]
        scalars = [
            node
            for node, (kind, _) in zip(placeholders, pairs, strict=True)
            if kind == "scalar"
        ]
        inner = build if is_exact else build_near
        plan = TablePlan(program, self._memory, module, arrays, table, _RULES, inner)
        plan.scalars.update(scalars)
        plan.written = written
        inputs = [
            self._input(kind, array, type(leaf), is_written=node in written)
            for node, leaf, (kind, array) in zip(
                placeholders, leaves, pairs, strict=True
            )
        ]
        plan.far_inputs += [(i.low, i.high) for i in inputs if not i.is_copied]
        plan.make()
        plan.fuse_all()
        self._count: int = len(table)
        islands = plan.all_islands()
        self._islands: list[tuple[str, str]] = [(n.name, i.why) for n, i in islands]
        program.hold((self._memory.chunks, plan.all_arrays()))
        results = ResultPlan(plan, placeholders)
        finishes = results.is_finished_in_python

        releases = not table.needs_gil and table.work >= _RELEASED
        # The program holds this function; the call of the door, all of them.
        of_program: Any = weakref.ref(program)

        def fall(code: int, *leaves: Any) -> Any:
            if code == UNSETTLED and accept_errstate(of_program()):
                return of_door()(*leaves)
            free = code == RUNNING and releases
            found = fallback(_RUNNING_FREE if free else code, *leaves)
            return Finished(found) if finishes else found

        door = make_door(
            program,
            table,
            inputs,
            results.of_door,
            fall,
            last=plan.last,
            releases_gil=releases,
        )
        of_door: Any = weakref.ref(door)
        self.nbytes: int = self._memory.nbytes + program.nbytes
        self.run: Callable[..., Any] = results.finishing(door) if finishes else door

    def _stand_in(
        self, leaf: Any, node: Node, *, is_written: bool
    ) -> tuple[str, AnyArray]:
        """Return how an argument is given, and the memory that stands for it."""
        if type(leaf) in _NUMBERS:  # where it is not fixed, what reads it says so
            dtype = _NUMBERS[type(leaf)]
            return type(leaf).__name__, self._memory.new(8).array((), dtype)
        kind = "array" if type(leaf) is np.ndarray else "scalar"
        if not isinstance(node.val, FakeArray) or not isinstance(
            leaf, (np.ndarray, np.generic)
        ):
            raise NotNative(f"the argument {node} is a {type(leaf).__name__}")
        if leaf.dtype.char not in DTYPES or not leaf.dtype.isnative:
            raise NotNative(f"the argument {node} is an array of {leaf.dtype}")
        if not leaf.flags.aligned:
            raise NotNative(f"the argument {node} is not aligned")
        if kind == "scalar":
            return kind, self._memory.new(leaf.itemsize).array((), leaf.dtype)
        if type(leaf) is not np.ndarray:
            raise NotNative(f"the argument {node} is a {type(leaf).__name__}")
        if is_written and min(leaf.strides, default=0) < 0:
            raise NotNative(f"the argument {node} goes backward, and is written")
        low, high = span_of(leaf)
        block = self._memory.new(high - low)
        offset = block.offset + address_of(leaf) - low
        return kind, np.ndarray(
            leaf.shape, leaf.dtype, block.chunk, offset, leaf.strides
        )

    def _input(
        self, kind: str, array: AnyArray, cls: type, *, is_written: bool
    ) -> DoorInput:
        low, high = span_of(array)
        start = address_of(array)
        is_dense = low == start and high - low == array.nbytes
        return DoorInput(
            kind,
            array.dtype,
            array.shape,
            array.strides,
            start,
            low,
            high,
            is_copied=is_dense and array.nbytes <= COPIED and not is_written,
            is_written=is_written,
            unread_class=cls if kind == "unread" else None,
        )

    def explain(self) -> list[NodeGroup]:
        """Return the rows, and the calls that run as Python."""
        done = f"table of {self._count} rows, {self.nbytes} bytes"
        calls = [NodeGroup([name], "call", why) for name, why in self._islands]
        return [NodeGroup([], done), *calls]
