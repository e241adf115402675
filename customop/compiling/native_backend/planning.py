"""The walk over a graph that turns its calls into rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from customop.arrays.fake import FakeArray
from customop.compiling.native_backend.blocked_rows import join_rows
from customop.compiling.native_backend.iteration import (
    merged_axes,
    result_strides,
    strides_within,
)
from customop.compiling.native_backend.memory import (
    Block,
    MemoryPlan,
    address_of,
    span_of,
)
from customop.compiling.native_backend.own_loops import (
    cast_loop,
    copy_loop,
    move_loop,
    scalar_power_loop,
)
from customop.compiling.native_backend.row_order import with_neighbors
from customop.compiling.native_backend.tables import InnerLoop
from customop.compiling.native_backend.ufunc_loops import (
    DTYPES,
    NotNative,
    UfuncLoop,
    WholeGraph,
    is_of_numpy,
    loop_for,
)
from customop.compiling.native_backend.vector_functions import near_loop
from customop.compiling.numpy_backend.call_text import builtin_kernel, ufunc_of
from customop.core.table import RuleTable
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.replay import GivenCode, kernel_of, only_runs_kernel
from customop.shapes.expressions import names_of
from customop.shapes.expressions import value_of as expression_value
from customop.shapes.sizes import Symbolic
from customop.transforms.trace.graph_tracer import assign, lay_out

AnyArray: TypeAlias = np.ndarray[Any, Any]

# Ufuncs that have the same bits for items in whatever steps: those that compute as IEEE
# 754 defines. Others may run another code for negative steps.
_EXACT: Final = frozenset(
    [
        "absolute",
        "add",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "ceil",
        "conjugate",
        "divide",
        "equal",
        "floor",
        "greater",
        "greater_equal",
        "invert",
        "isfinite",
        "isinf",
        "isnan",
        "less",
        "less_equal",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "maximum",
        "minimum",
        "multiply",
        "negative",
        "not_equal",
        "positive",
        "rint",
        "sign",
        "signbit",
        "sqrt",
        "square",
        "subtract",
        "trunc",
    ]
)
# Operators that are only in captured graphs.
_OF_GRAPHS: Final = (assign, lay_out)
# Operators of Python on NumPy's scalars that do what the ufunc does, if they give a
# floating-point number: those of integers look for overflow, and products of complex ones
# are computed in another way. Which of two nan is the result is not promised.
_OF_SCALARS: Final = frozenset(("add", "subtract", "multiply", "divide", "negative"))


class _RowPattern(NamedTuple):
    """A row of a ufunc but for its addresses, for operands of the same kinds.

    Attributes
    ----------
    loop : UfuncLoop or InnerLoop
    numbers : list
        For each operand where it lies, if it is a number, and None for an array.
    shape, dtype, strides : object
        Of the result; the strides may be None for one axis.
    dims, steps, outer : sequence
        As `Table.emit` takes them.
    note : tuple of str or None
        The name and the types for `Table.note`.
    """

    loop: Any
    numbers: list[int | None]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    dims: list[int]
    steps: list[int]
    outer: Sequence[Any]
    note: tuple[str, str] | None


class TablePlan:
    """The rows of one graph.

    Parameters
    ----------
    program : NativeProgram
    memory : MemoryPlan
        Where the values lie.
    module : GraphModule
    inputs : sequence of array
        One for each input: the memory that its value will be in.
    table : Table
        Takes the rows.
    rules : mapping of str to callable
        For operators by qualified name: called with the plan, the node and the values of
        its parameters; it emits the rows. The one named "island" takes the node and the
        reason why there are none.
    build : callable
        Compiles graphs that islands run.

    Attributes
    ----------
    arrays : dict
        Node -> the array of its value, or a list of them.
    blocks : dict
        Node -> the block of its value.
    scalars : set of Node
        Values that are NumPy's scalars, not arrays without axes.
    constants : set of Node
        Values that are the same in each call.
    views : dict
        Node -> the node that it is a view of, the kernel that makes the view, and its
        other arguments.
    islands : dict
        Node -> the call of Python that computes it.
    classes : dict
        Value without axes -> the island that knows whether it is a scalar.
    far_inputs : list of pairs of int
        The memory that stands for inputs that lie elsewhere in a call.
    sizes : dict of str to int
        Symbolic sizes, for the arguments of the plan.
    out_nodes : list
        The nodes that the graph returns, and other values.
    """

    def __init__(
        self,
        program: Any,
        memory: MemoryPlan,
        module: GraphModule,
        inputs: Sequence[Any],
        table: Any,
        rules: Mapping[str, Callable[..., None]],
        build: Callable[[GraphModule], Callable[..., Any]],
    ) -> None:
        self.program: Any = program
        self.memory: MemoryPlan = memory
        self.table: Any = table
        self.module: GraphModule = module
        self.arrays: dict[Node, Any] = {}
        self.blocks: dict[Node, Any] = {}
        self.scalars: set[Node] = set()
        self.constants: set[Node] = set()
        self.views: dict[Node, tuple[Node, Any, Sequence[Any]]] = {}
        self.islands: dict[Node, Any] = {}
        self.classes: dict[Node, Any] = {}
        self.far_inputs: list[tuple[int, int]] = []
        self.sizes: dict[str, int] = {}
        self.out_nodes: list[Any] = []
        # For values that are several: which of them are NumPy's scalars.
        self.scalar_parts: dict[Node, list[bool]] = {}
        self._inner: list[TablePlan] = []
        # Values that are the same in each step of a loop.
        self.fixed: set[Node] = set()
        # Arguments that are written, and new values of them that nothing else needs: what
        # is written to which slices. The table of these rows.
        self.written: set[Node] = set()
        self.parts: dict[Node, list[tuple[AnyArray, Sequence[Any]]]] = {}
        self.last: Any = None
        self._ending: Sequence[Node] = ()
        self._build = build
        self._compiled: dict[int, GraphModule] = {}
        self._touched: list[tuple[int, int]] = []
        self._rules = rules
        self._inputs = inputs
        self._temporaries: list[Block] = []
        # Block -> the node whose value was made in it; node -> how many rows there were
        # when nothing had to read its value any more.
        self._maker_of: dict[Block, Node] = {}
        self._ends: dict[Node, int] = {}
        self._numbers: dict[tuple[str, str], AnyArray] = {}
        # A ufunc with the kinds of its operands -> how its row was made.
        self._rows_of: dict[Any, _RowPattern] = {}
        # Lengths, steps and outer axes of the last elementwise row.
        self._emitted: tuple[list[int], list[int], Sequence[Any]] = [], [], ()

    # ---- the walk ----

    def make(self) -> None:
        """Emit the rows of all nodes."""
        nodes = with_neighbors([*self.module.graph.nodes])
        ends = _last_uses(nodes)
        inputs = iter(self._inputs)
        for i, node in enumerate(nodes):
            self._ending = ends.after.get(i, ())
            if node.op == PLACEHOLDER:
                self._take_input(node, next(inputs))
            elif node.op == CONSTANT:
                self._take_constant(node)
            elif node.op == OUTPUT:
                self.out_nodes = [*node.args[0]]
            elif node not in ends.needed:
                continue
            elif node.op == ITEM:
                self._take_item(node)
            else:
                self._plan_call(node)
                if all(n in self.fixed for n in node.inputs):
                    self.fixed.add(node)
                for block in self._temporaries:
                    self.memory.release(block)
                self._temporaries.clear()
            for ended in self._ending:
                self._release(ended)

    def _take_input(self, node: Node, value: Any) -> None:
        self.arrays[node] = value
        if isinstance(node.val, FakeArray):
            for size, length in zip(node.val.shape, value.shape, strict=True):
                if isinstance(size, Symbolic) and str(size).isidentifier():
                    self.sizes.setdefault(str(size), length)
            if node.fact("has_strides") and any(
                self.size(step) != own and length > 1
                for step, own, length in zip(
                    node.val.strides, value.strides, value.shape, strict=True
                )
            ):
                raise WholeGraph(f"{node} lies otherwise than when it was traced")

    def _take_constant(self, node: Node) -> None:
        value = self.module.graph.constants[node.target]
        if isinstance(value, np.generic):
            self.scalars.add(node)
            value = np.asarray(value)
        if isinstance(value, np.ndarray):
            check_plain(node, value.dtype)
            if not value.flags.aligned:
                raise WholeGraph(f"the constant {node} is not aligned")
        self.arrays[node] = value
        self.constants.add(node)
        self.fixed.add(node)

    def _take_item(self, node: Node) -> None:
        source, key = node.args
        self.arrays[node] = self.arrays[source][key]
        if source in self.islands:
            part = self.islands[source].parts[key]
            if not self.arrays[node].ndim:
                self.classes[node] = part
        elif source in self.scalar_parts and self.scalar_parts[source][key]:
            self.scalars.add(node)
        if source in self.blocks:
            self.hold(node, self.blocks[source][key])

    def _plan_call(self, node: Node) -> None:
        if isinstance(node.val, FakeArray):
            check_plain(node, node.val.dtype)
        mark = self.table.mark()
        has_written = self.last is not None
        try:
            values = [self.value_of(v) for v in node.values()]
            self._plan_operator(node, values)
        except WholeGraph:
            raise
        except NotNative as reason:
            if not node.is_pure:
                raise WholeGraph(str(reason)) from None
            self.table.back_to(mark)
            self.forget(node)
            self._rules["island"](self, node, str(reason))
        if has_written and node.is_pure and self.table.mark() != mark:
            raise WholeGraph(f"{node} comes after what is written")
        self._check_fits(node)

    # ---- plans of graphs inside ----

    def inner(
        self, module: GraphModule, inputs: Sequence[Any], table: Any
    ) -> TablePlan:
        """Return the plan of a graph of control flow, on the same memory."""
        found = TablePlan(
            self.program, self.memory, module, inputs, table, self._rules, self._build
        )
        found.far_inputs = self.far_inputs
        found.sizes = self.sizes
        found._touched = self._touched  # of the same class
        self._inner.append(found)
        found._compiled = self._compiled
        return found

    def fuse_all(self) -> None:
        """Make one row of neighboring elementwise rows, also in the graphs inside."""
        join_rows(self.table, self.is_read_after)
        for plan in self._inner:
            plan.fuse_all()

    def all_islands(self) -> list[tuple[Node, Any]]:
        """Return the nodes that are calls of Python, also of the graphs inside."""
        inner = [pair for plan in self._inner for pair in plan.all_islands()]
        return [*self.islands.items(), *inner]

    def all_arrays(self) -> list[Any]:
        """Return the memory of all values that rows may point to."""
        inner = [plan.all_arrays() for plan in self._inner]
        return [*self.arrays.values(), *inner]

    def take_all(
        self,
        node: Node,
        arrays: Sequence[AnyArray],
        blocks: Sequence[Block | None],
        scalars: Sequence[bool],
    ) -> None:
        """Take several values as those of a node; `scalars` may be fewer."""
        self.arrays[node] = [*arrays]
        self.blocks[node] = [*blocks]
        self.scalar_parts[node] = [*scalars, *[False] * (len(arrays) - len(scalars))]

    def release_outputs(self) -> None:
        """Let others have the memory of the values that the graph returns."""
        self._maker_of.clear()  # what follows the rows reads them
        for node in dict.fromkeys(self.out_nodes):
            self._release(node)

    @contextmanager
    def at_the_end(self) -> Iterator[None]:
        """Emit rows that run when the others have, and write to arguments."""
        if self.last is None:
            self.last = self.program.table()
        table, self.table = self.table, self.last
        try:
            yield
        finally:
            self.table = table

    def ends_here(self, node: Node) -> bool:
        """Return whether what is being planned is the last to read the value of a node."""
        return node in self._ending

    def may_point(self, low: int, high: int) -> bool:
        """Return whether pointers to some memory may move from step to step."""
        return not self._inner and not self.touches(low, high)

    def release_after(self, block: Block) -> None:
        """Release a block when the node is planned."""
        self._temporaries.append(block)

    def touch(self, arrays: Sequence[AnyArray]) -> None:
        """Note that Python reads or writes arrays."""
        self._touched += [span_of(array) for array in arrays]

    def compiled(self, module: GraphModule) -> GraphModule:
        """Return a graph of an island with code of its own."""
        known = self._compiled.get(id(module))
        if known is None:
            run: Any = self._build(module)
            code = GivenCode(run, getattr(run, "code", ""), module.run_list)
            known = self._compiled[id(module)] = module.with_code(code)
        return known

    def _plan_operator(self, node: Node, values: list[Any]) -> None:
        op = node.target
        if not isinstance(op, RuleTable):
            raise NotNative("a graph")
        if node.written and not _is_as_ufunc(node, self.program.is_exact):
            self._plan_power(node, values)
            return
        ufunc = ufunc_of(op)
        if ufunc is not None:
            if node.kwargs or ufunc.nout != 1:
                raise NotNative("a ufunc of several results")
            if ufunc.signature is None:
                self.ufunc(node, ufunc, values)
                return
        own = _own_ufunc(op)
        if own is not None:
            self._plan_own(node, own, values)
            return
        rule: Callable[..., None] | None
        if op.namespace == "control" or op in _OF_GRAPHS:
            rule = self._rules.get(op.qualname)
        elif builtin_kernel(op) is None:
            raise NotNative("an operator that is not NumPy's")
        else:
            rule = self._rules.get(op.qualname)
        if rule is None:
            raise NotNative("no loop of NumPy")
        rule(self, node, *values)

    def _plan_power(self, node: Node, values: list[Any]) -> None:
        """Emit the row of a power of NumPy's scalars; leave their other operators."""
        dtype = node.val.dtype
        is_known = node.target.name == "power" and dtype.char in "fd"
        loop = scalar_power_loop(dtype.char) if is_known else None
        if loop is None or node.kwargs:
            raise NotNative("an operator of NumPy's scalars")
        if any(
            v.dtype != dtype if isinstance(v, np.ndarray) else type(v) is bool
            for v in values
        ):
            raise NotNative("a power of scalars that are cast")
        given = [
            v if isinstance(v, np.ndarray) else self.number(v, dtype) for v in values
        ]
        found = self.result(node, (), dtype)
        self.scalars.add(node)
        self.loop(loop, [*given, found])

    def _plan_own(self, node: Node, ufunc: np.ufunc, values: list[Any]) -> None:
        """Emit the rows of a user's operator whose kernel is a ufunc."""
        fake = node.val
        is_one = ufunc.nout == 1 and ufunc.signature is None and not node.kwargs
        if not is_one or not isinstance(fake, FakeArray) or not fake.shape:
            raise NotNative("a ufunc of several results, or of numbers")
        if not all(isinstance(v, (np.ndarray, float)) for v in values):
            raise NotNative("a ufunc of other values than arrays")
        self.ufunc(node, ufunc, values)
        found = self.arrays[node]
        if found.dtype != fake.dtype or found.shape != self.shape_of(node):
            raise NotNative("a kernel with other results than its fake")

    def _check_fits(self, node: Node) -> None:
        """Make sure that the plan and the graph agree about a value."""
        fake, found = node.val, self.arrays[node]
        if (
            isinstance(fake, FakeArray)
            and isinstance(found, np.ndarray)
            and (self.shape_of(node) != found.shape or fake.dtype != found.dtype)
        ):
            msg = f"{node}: planned {found.dtype}{found.shape}, captured {fake}"
            raise AssertionError(msg)

    # ---- values ----

    def value_of(self, value: Any) -> Any:
        """Return an argument with arrays in place of nodes."""
        if isinstance(value, Node):
            return self.arrays[value]
        if isinstance(value, (list, tuple)):
            return [self.value_of(v) for v in value]
        if isinstance(value, Symbolic):
            return self.size(value)
        if isinstance(value, (*PLAIN, GraphModule)):
            return value
        raise NotNative(f"an argument of type {type(value).__name__}")

    def size(self, value: Any) -> int:
        """Return what a symbolic size is for the arguments of the plan."""
        if type(value) is int:
            return value
        expr = getattr(value, "expr", None)
        if expr is None or not names_of(expr) <= self.sizes.keys():
            raise WholeGraph(f"the size {value} is not known")
        return expression_value(expr, self.sizes)

    def shape_of(self, node: Node) -> tuple[int, ...]:
        """Return the shape that was captured, with numbers for sizes."""
        return tuple([self.size(n) for n in node.val.shape])

    def number(self, value: Any, dtype: np.dtype[Any]) -> AnyArray:
        """Return a number as an array without axes, one for all that are equal."""
        key = repr(value), dtype.char
        found = self._numbers.get(key)
        if found is None:
            with np.errstate(all="raise"):  # else NumPy would warn in each call
                try:
                    found = self._numbers[key] = np.array(value, dtype)
                except (ArithmeticError, TypeError) as error:
                    raise NotNative(str(error)) from None
            self.program.hold(found)
        return found

    def constant(self, node: Node, value: AnyArray) -> None:
        """Take an array as the value of a node in each call."""
        self.arrays[node] = value
        self.constants.add(node)
        self.program.hold(value)

    def result(
        self,
        node: Node,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        operands: Sequence[AnyArray] = (),
        strides: tuple[int, ...] | None = None,
    ) -> AnyArray:
        """Return new memory for the value of a node, in the order of the operands."""
        if operands:
            strides = result_strides(shape, dtype.itemsize, operands)
        found, block = self.new(shape, dtype, strides)
        self.arrays[node] = found
        self.hold(node, block)
        self._maker_of[block] = node
        return found

    def new(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
    ) -> tuple[AnyArray, Block]:
        """Return an array in new memory, and its block, which nobody holds yet."""
        nbytes = dtype.itemsize
        for length in shape:
            nbytes *= length
        block = self.memory.take(nbytes)
        return block.array(shape, dtype, strides), block

    def temporary(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
    ) -> AnyArray:
        """Return memory for the rows of the node that is being planned."""
        found, block = self.new(shape, dtype, strides)
        block.uses += 1
        self._temporaries.append(block)
        return found

    def take_new(self, node: Node, value: AnyArray, block: Block) -> None:
        """Take an array in a new block as the value of a node, a scalar without axes."""
        self.arrays[node] = value
        self.hold(node, block)
        if not value.ndim:
            self.scalars.add(node)

    def view(
        self, node: Node, value: AnyArray, kernel: Any, others: Sequence[Any]
    ) -> None:
        """Take a view of the first argument as the value of a node.

        Parameters
        ----------
        node : Node
        value : array
        kernel : callable
            Makes the view of an array and the `others`.
        others : sequence
        """
        source = node.args[0]
        self.arrays[node] = value
        self.views[node] = source, kernel, others
        block = self.blocks.get(source)
        if isinstance(block, Block):
            self.hold(node, block)
        if source in self.constants:
            self.constants.add(node)
            self.program.hold(value)

    def hold(self, node: Node, block: Block | None) -> None:
        """Note that the value of a node lies in a block."""
        if block is not None:
            block.uses += 1
            self.blocks[node] = block

    def forget(self, node: Node) -> None:
        """Take back what was planned for the value of a node."""
        self.arrays.pop(node, None)
        self.scalars.discard(node)
        self.constants.discard(node)
        self.views.pop(node, None)
        self.classes.pop(node, None)
        self._release(node)

    def is_read_after(self, node: Node, row: int) -> bool:
        """Return whether a row after this one reads the value of a node, or a view of it."""
        end = self._ends.get(node)
        return end is None or end > row + 1

    def owns(self, node: Node) -> bool:
        """Return whether all that has lain in the memory of a value lay within the value."""
        block, nbytes = self.blocks.get(node), self.arrays[node].nbytes
        return isinstance(block, Block) and block.largest <= nbytes

    def touches(self, low: int, high: int) -> bool:
        """Return whether Python uses some memory, which therefore stays where it is."""
        return any(a < high and low < b for a, b in self._touched)

    def _release(self, node: Node) -> None:
        block = self.blocks.pop(node, None)
        for one in block if isinstance(block, list) else [block]:
            if one is not None:
                self.memory.release(one)
                if one.uses == 0 and one in self._maker_of:
                    self._ends[self._maker_of.pop(one)] = len(self.table)

    # ---- rows ----

    def ufunc(self, node: Node, ufunc: np.ufunc, operands: Sequence[Any]) -> None:
        """Emit the rows of a ufunc."""
        key = (
            ufunc,
            *[
                (v.dtype, v.shape, v.strides)
                if isinstance(v, np.ndarray)
                else (type(v), repr(v))
                for v in operands
            ],
        )
        known = self._rows_of.get(key)
        if known is not None:
            self._emit_again(node, operands, known)
            return
        given, pattern = self._ufunc_anew(node, ufunc, operands)
        if pattern is not None and not any(
            isinstance(v, np.ndarray) and v is not x
            for v, x in zip(operands, given, strict=False)
        ):
            self._rows_of[key] = pattern

    def _emit_again(
        self, node: Node, operands: Sequence[Any], pattern: _RowPattern
    ) -> None:
        """Emit a row that differs from an earlier one in the addresses alone."""
        found, block = self.new(pattern.shape, pattern.dtype, pattern.strides)
        self.arrays[node] = found
        self.hold(node, block)
        self._maker_of[block] = node
        if not pattern.shape:
            self.scalars.add(node)
        places = [
            address_of(v) if number is None else number
            for v, number in zip(operands, pattern.numbers, strict=False)
        ]
        places.append(address_of(found))
        row = self.table.emit(
            pattern.loop, places, pattern.dims, pattern.steps, pattern.outer
        )
        if pattern.note is not None:
            name, types = pattern.note
            self.table.note(row, name, node, types)

    def _ufunc_anew(
        self, node: Node, ufunc: np.ufunc, operands: Sequence[Any]
    ) -> tuple[list[AnyArray], _RowPattern | None]:
        """Emit the rows of a ufunc; return its operands, and the pattern of a single row."""
        kinds = tuple(
            [v.dtype if isinstance(v, np.ndarray) else _kind(v) for v in operands]
        )
        if ufunc is np.divide and _divides_exactly(kinds[0], operands[1]):
            # The same number in each bit: only the exponent changes.
            ufunc, operands = np.multiply, [operands[0], 1.0 / operands[1]]
            kinds = (kinds[0], float)
        own = loop_for(ufunc, kinds)
        dtypes = own.dtypes
        loop: UfuncLoop | InnerLoop = own
        given = [
            self.cast(v, dtype) if isinstance(v, np.ndarray) else self.number(v, dtype)
            for v, dtype in zip(operands, dtypes, strict=False)
        ]
        shape = given[0].shape
        for v in given[1:]:
            if v.shape != shape and v.ndim:
                shape = np.broadcast_shapes(*[a.shape for a in given])
                break
        # The layout is that of the operands before they are cast.
        found = self.result(node, shape, dtypes[-1], [v for v in given if v.ndim])
        if not shape:
            self.scalars.add(node)
        name = ufunc.__name__ if is_of_numpy(ufunc) else f"own {ufunc.__name__}"
        if not self.program.is_exact:
            numbers = [None if isinstance(v, np.ndarray) else v for v in operands]
            near = near_loop(name, dtypes, numbers)
            if near is not None:
                name, loop, given = near.name, near.loop, given[: near.operands]
        exact = name in _EXACT or isinstance(loop, InnerLoop)
        before = len(self.table.rows)
        row = self.loop(loop, [*given, found], exact=exact)
        note = None
        if row is not None:
            types = "".join([x.dtype.char for x in given])
            note = name, f"{types}->{dtypes[-1].char}"
            self.table.note(row, name, node, note[1])
        if len(self.table.rows) != before + 1:
            return given, None
        numbers = [
            None if isinstance(v, np.ndarray) else address_of(x)
            for v, x in zip(operands, given, strict=False)
        ]
        strides = found.strides if found.ndim > 1 else None
        dims, steps, outer = self._emitted
        return given, _RowPattern(
            loop, numbers, shape, found.dtype, strides, dims, steps, outer, note
        )

    def cast(self, x: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        """Return an array with its items cast."""
        if x.dtype == dtype:
            return x
        loop = loop_of_cast(x.dtype, dtype)
        strides = result_strides(x.shape, dtype.itemsize, [x])
        found = self.temporary(x.shape, dtype, strides)
        self.loop(loop, [x, found])
        return found

    def loop(
        self, loop: Any, operands: Sequence[AnyArray], *, exact: bool = True
    ) -> int | None:
        """Emit one elementwise row; the last operand is the result and has its shape.

        Parameters
        ----------
        loop : UfuncLoop
        operands : sequence of array
        exact : bool
            Whether the results are the same for negative steps.

        Returns
        -------
        int or None
            The row, if there are items.
        """
        out = operands[-1]
        if not out.size:
            return None
        shape = out.shape
        if all(
            (x.shape == shape and x.flags.c_contiguous) or x.size == 1 for x in operands
        ):
            steps = [x.itemsize if x.size != 1 else 0 for x in operands]
            if out.size == 1:
                steps = _steps_of_one(operands)
            self._emitted = [out.size], steps, ()
            row: int = self.table.emit(
                loop, [address_of(x) for x in operands], [out.size], steps
            )
            return row
        steps_of = [strides_within(x, shape) for x in operands]
        axes = merged_axes(shape, steps_of)
        if len(axes) > 1 and not exact and min(axes[0].strides) < 0:
            # NumPy's iterator copies the operands to its buffers, so that no step is
            # negative there.
            given = [self._forward(x, out) for x in operands[:-1]]
            return self.loop(loop, [*given, out])
        inner, *outer = axes
        self._emitted = [inner.length], [*inner.strides], outer
        places = [address_of(x) for x in operands]
        number: int = self.table.emit(loop, places, *self._emitted)
        return number

    def _forward(self, x: AnyArray, out: AnyArray) -> AnyArray:
        """Return an operand without negative strides."""
        if min(x.strides, default=0) >= 0:
            return x
        strides = out.strides if x.itemsize == out.itemsize else None
        if x.shape != out.shape:
            strides = None
        found = self.temporary(x.shape, x.dtype, strides)
        self.copy(x, found)
        return found

    def copy(self, source: AnyArray, target: AnyArray) -> None:
        """Emit the rows that copy the items of an array, cast and broadcast."""
        if source.dtype != target.dtype:
            source = self.cast(source, target.dtype)
        if not target.size:
            return
        if (
            source.shape == target.shape
            and source.flags.c_contiguous
            and target.flags.c_contiguous
        ):
            self.table.emit(
                move_loop(),
                [address_of(source), address_of(target)],
                [source.nbytes],
                [0, 0],
            )
        else:
            self.loop(copy_loop(target.itemsize), [source, target])

    def fill(self, target: AnyArray, value: Any) -> None:
        """Emit the rows that set all items to a number."""
        self.copy(self.number(value, target.dtype), target)


def check_plain(node: Node, dtype: np.dtype[Any]) -> None:
    """Raise if items are not numbers in the order of bytes of the processor."""
    if dtype.char not in DTYPES or not dtype.isnative:
        raise WholeGraph(f"{node} is an array of {dtype}")


def _steps_of_one(operands: Sequence[AnyArray]) -> list[int]:
    """Return the steps that NumPy gives a loop of one item: other ones have other bits."""
    *given, out = operands
    if any(x.ndim not in (0, out.ndim) for x in given):
        return [0] * len(operands)  # its iterator drops all axes
    steps = [(0, *x.strides)[-1] if x.ndim < 2 else x.itemsize for x in given]
    return [*steps, out.itemsize]


def _is_as_ufunc(node: Node, is_exact: bool) -> bool:
    """Return whether an operator of Python on NumPy's scalars does what the ufunc does."""
    is_float: bool = node.val.dtype.kind == "f"
    name = node.target.name
    return is_float and (name in _OF_SCALARS or (name == "power" and not is_exact))


def _own_ufunc(op: RuleTable) -> np.ufunc | None:
    """Return the ufunc that a user's operator does nothing but call; None if there is none."""
    kernel = kernel_of(op) if op.namespace != "np" and only_runs_kernel(op) else None
    return kernel if isinstance(kernel, np.ufunc) else None


def _divides_exactly(dtype: Any, number: Any) -> bool:
    """Return whether a division is a multiplication by another power of two."""
    return (
        dtype in _BINARY and type(number) in (int, float) and number in _POWERS_OF_TWO
    )


_BINARY: Final = (np.dtype("f4"), np.dtype("f8"))
_POWERS_OF_TWO: Final = frozenset(
    [sign * 2.0**n for n in range(-60, 61) for sign in (1, -1)]
)


def _kind(number: Any) -> Any:
    """Return the value by which NumPy finds the dtypes of a loop for a number."""
    return np.dtype(np.bool_) if type(number) is bool else type(number)


def loop_of_cast(source: np.dtype[Any], dtype: np.dtype[Any]) -> Any:
    """Return the loop that casts items."""
    loop = cast_loop(source, dtype)
    if loop is None:
        raise NotNative(f"a cast of {source} to {dtype}")
    return loop


# Arguments that rules read as they are.
PLAIN: Final = (int, float, complex, bool, str, type(None), np.dtype)


class _Ends:
    """Which values are needed, and after which node one is read for the last time."""

    def __init__(self) -> None:
        self.needed: set[Node] = set()
        self.after: dict[int, list[Node]] = {}


def _last_uses(nodes: Sequence[Node]) -> _Ends:
    ends = _Ends()
    needed, after = ends.needed, ends.after
    for i in range(len(nodes) - 1, -1, -1):
        node = nodes[i]
        if node.op == OUTPUT or node in needed:
            pass
        elif node.op == CALL and (node.must_run or not node.is_pure):
            needed.add(node)
            after.setdefault(i, []).append(node)
        else:
            continue
        for used in node.inputs:
            if used not in needed:
                needed.add(used)
                if node.op != OUTPUT:
                    after.setdefault(i, []).append(used)
    return ends
