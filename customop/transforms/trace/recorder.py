"""The interpreter that makes a node of every call of an operator."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from copy import deepcopy
from types import EllipsisType
from typing import Any, ClassVar

import numpy as np
from numpy.lib.array_utils import byte_bounds

from customop.arrays.array import dtype_of
from customop.arrays.fake import FakeArray, make_fake, to_fake
from customop.arrays.kinds import CPU, FAKE, device_of, is_array, is_traced
from customop.arrays.nested import abbreviated, children, like, map_nested, steps
from customop.core.codegen import generate
from customop.core.contract import checksum, finish_fake, owner
from customop.core.dispatch import find_kernel
from customop.core.interpreter import Interpreter, Mode, current_mode, leaked, run_under
from customop.core.operator import Operator
from customop.core.rule_kind import RuleKind
from customop.core.rule_makers import again
from customop.core.table import RuleTable
from customop.core.tracer import Tracer, frozen, strides_of_box
from customop.errors import GraphError
from customop.graph.graph import Graph
from customop.graph.guards import guard_strides
from customop.graph.node import CALL, Node, nodes_in, place_here
from customop.library.ops import ops
from customop.schema.tags import Tag
from customop.schema.types import MISSING, ListOf, Maybe, Parameter
from customop.shapes.size_context import SizeContext, captured_sizes, set_active
from customop.transforms.generators import is_generator, plain_generator
from customop.transforms.modes import FakeMode
from customop.transforms.trace.graph_tracer import (
    Chosen,
    ErrorSettings,
    GraphTracer,
    Values,
    lay_out,
    traced_generator,
)

# ---- the work of tracing for a call of one operator, as generated code ----


Record = Callable[[Any, Sequence[Any]], Any]


def make_record(op: RuleTable, tracer: type, fake_of: Callable[[Any], Any]) -> Record:
    """Generate the code for an operator that gives one result.

    Parameters
    ----------
    op : RuleTable
        It writes nothing, draws nothing, and has no keyword-only parameters.
    tracer : type
        The class of tracers.
    fake_of : callable
        Makes a fake array like an array.
    """
    inputs = "".join(f"v{i}, " for i in range(len(op.schema.parameters)))
    kernel = find_kernel(op, FAKE)
    # Other fake kernels may ask for the context of their call.
    is_short = op.namespace == "np" and not (
        op.schema.has_shapes or op.needs_contiguous or op.nested_slots
    )
    lines = [
        "def record(self, args):",
        f"    {inputs}= args",
        *_list_lines(op),
        *_entry_lines(op),
        "    if self.is_real:",
        f"        out = run({inputs})",
        "        val = fake_of(out)",
        *(_fake_lines(op, inputs) if is_short and op.array_slots else []),
        "    else:",
        f"        val = out = self.run_fake(op, [{inputs}])",
        "    if type(out) is not FakeArray and type(out) is not ndarray and not is_plain(out):",
        f"        return self.finish(op, {_given(op)}, out)",
        *_node_lines(op),
        "    tracer = new(Tracer)",
        "    tracer.interpreter = self",
        "    tracer.below = out",
        "    tracer.box_place = tracer.box_views = None",
        "    tracer.node = node",
        "    return tracer",
        "",
    ]
    scope = {
        "CALL": CALL,
        "again": again,
        "as_before": _as_before,
        "FakeArray": FakeArray,
        "Node": Node,
        "Tracer": tracer,
        "fake_of": fake_of,
        "finish_fake": finish_fake,
        "is_plain": lambda v: is_array(v) and not is_traced(v),
        "kernel": kernel,
        "ndarray": np.ndarray,
        "new": object.__new__,
        "numbers": frozenset((float, int, bool, complex, type(None))),
        "op": op,
        "place_here": place_here,
        "run": op.run,
    }
    for i, p in enumerate(op.schema.parameters):
        scope[f"d{i}"] = p.default
    text = "\n".join(lines)
    record: Record = generate(f"{op.qualname} trace", text, "record", scope)
    return record


def _given(op: RuleTable) -> str:
    """Return the text of a list of what stands in the node for each argument."""
    return f"[{', '.join(_names(op))}]"


def _names(op: RuleTable) -> list[str]:
    held = (*op.array_slots, *op.nested_slots)
    names = [f"v{i}" for i in range(len(op.schema.parameters))]
    for i in held:
        names[i] = f"n{i}"
    for i in _list_slots(op):
        names[i] = f"c{i}"
    return names


def _list_lines(op: RuleTable) -> list[str]:
    """Return lines that copy lists of constants: the caller or the kernel may change them."""
    return [f"    c{i} = again(v{i})" for i in _list_slots(op)]


def _list_slots(op: RuleTable) -> list[int]:
    """Return the places of the parameters that take lists of constants."""
    found = []
    for i, p in enumerate(op.schema.parameters):
        declared = p.type.item if isinstance(p.type, Maybe) else p.type
        if isinstance(declared, ListOf) and i not in op.nested_slots:
            found.append(i)
    return found


def _entry_lines(op: RuleTable) -> list[str]:
    """Return lines that take nodes and values out of the tracers."""
    lines = []
    for i in op.array_slots:
        lines += [
            f"    if type(v{i}) is Tracer and v{i}.interpreter is self:",
            f"        n{i}, v{i} = v{i}.node, v{i}.below",
            f"    elif type(v{i}) in numbers: n{i} = v{i}",
            f"    else: n{i}, v{i} = self.node_and_value(v{i})",
        ]
    return [*lines, *(f"    n{i}, v{i} = self.nested(v{i})" for i in op.nested_slots)]


def _fake_lines(op: RuleTable, inputs: str) -> list[str]:
    """Return lines that run the fake kernel without the steps of a call."""
    first, *rest = op.array_slots
    parts = [f"type(v{first}) is FakeArray"]
    parts += [
        f"(type(v{i}) is FakeArray and v{i}.device == v{first}.device"
        f" or type(v{i}) in numbers)"
        for i in rest
    ]
    run = [
        f"out = kernel({inputs})",
        "if type(out) is not FakeArray: out = finish_fake(op, kernel, out)",
    ]
    if len(op.array_slots) == len(op.schema.parameters):
        run = _remembered(op, inputs, run)
    else:
        run.append("if type(out) is FakeArray: out = self.of_shared_parts(out)")
    condition = " and ".join(parts)
    lines = [f"    elif {condition}:", *(f"        {line}" for line in run)]
    return [*lines, "        val = out"]


def _remembered(op: RuleTable, inputs: str, run: Sequence[str]) -> list[str]:
    """Return lines that look a fake result up, which takes 1 us less than to work it out.

    It follows from the shapes, strides and dtypes, which are compared by identity: fake
    arrays of one shape share its tuple. The arguments are kept, so that no other tuple
    has the identity of theirs.
    """
    keys = []
    for i in op.array_slots:
        of_array = f"id(v{i}.shape), id(v{i}.strides), id(v{i}.dtype)"
        keys.append(of_array if i == op.array_slots[0] else f"k{i}")
    lines = [
        f"k{i} = (id(v{i}.shape), id(v{i}.strides), id(v{i}.dtype))"
        f" if type(v{i}) is FakeArray else (type(v{i}), v{i})"
        for i in op.array_slots[1:]
    ]
    return [
        *lines,
        f"key = (op, v{op.array_slots[0]}.device, {', '.join(keys)})",
        "found = self.remembered.get(key)",
        "if found is not None: out = found[0]",
        "else:",
        *(f"    {line}" for line in run),
        f"    out = as_before(out, {inputs})",
        f"    self.remembered[key] = (out, {inputs})",
    ]


def _as_before(out: FakeArray, *values: Any) -> FakeArray:
    """Return a fake result, with the shape of an argument in place of one that is the same."""
    for value in values:
        if type(value) is FakeArray:
            is_shape = _is_same(out.shape, value.shape)
            is_strides = _is_same(out.strides, value.strides)
            if is_shape and is_strides and out.dtype is value.dtype:
                return value
            if is_shape and is_strides:
                return make_fake(value.shape, out.dtype, value.strides, out.device)
    return out


def _is_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether sizes are the same, without a question that could become a guard."""
    return len(first) == len(second) and all(map(_is_same_size, first, second))


def _is_same_size(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return bool(a == b if type(a) is int else a.expr == b.expr)


def _node_lines(op: RuleTable) -> list[str]:
    """Return lines that do what `Graph.call` does, without its frames."""
    lines = [
        "    graph = self.graph",
        "    node = new(Node)",
        "    node.graph = graph",
        f"    node._name = graph.name_for({op.name!r})",
        "    node.op = CALL",
        "    node.target = op",
        "    node.users = {}",
        "    node._kwargs = {}",
        "    node._is_erased = False",
        "    node._meta = None",
        "    node._must_run = False",
        "    node._val = val",
        "    node._at = place_here()",
        *_args_lines(op.schema.parameters, _names(op)),
    ]
    lines += [
        f"    if type(n{i}) is Node: n{i}.users[node] = None" for i in op.array_slots
    ]
    lines += [f"    self.note_users(node, n{i})" for i in op.nested_slots]
    settings = "    if self.settings is not None: self.note_settings(node)"
    return [*lines, "    graph.enter(node)", settings]


def _args_lines(parameters: Sequence[Parameter], names: Sequence[str]) -> list[str]:
    """Return lines that leave out the arguments at the end that equal their defaults."""
    lines: list[str] = []
    for count in range(len(parameters), 0, -1):
        p, name = parameters[count - 1], names[count - 1]
        args = f"({''.join(f'{n}, ' for n in names[:count])})"
        if p.default is MISSING:
            return [*lines, f"    {'else: ' if lines else ''}node._args = {args}"]
        default = f"d{count - 1}"
        test = f"{name} is {default}"
        if not (p.default is None or isinstance(p.default, bool)):
            test += f" or type({name}) is type({default}) and {name} == {default}"
        lines.append(f"    {'el' if lines else ''}if not ({test}): node._args = {args}")
    return [*lines, f"    {'else: ' if lines else ''}node._args = ()"]


# ---- the interpreter that makes a node of every call of an operator ----


class _Constant:
    """An array or object from outside of a graph, as it was when it was used.

    Attributes
    ----------
    node : Node
    below : object
        What is below tracers of the node.
    held : object
        A copy of the array, if code that no graph sees could write the array.
    mark : object
        Differs once somebody has written the array; None for what is not compared.
    is_own : bool
        Whether the function has written it before it used it. Each run would do so, thus
        the graph keeps what it held.
    is_written : bool
        Whether an operator writes it, in each run of the graph.
    writes : int
        How often plain code had written the whole array when it was used.
    """

    __slots__ = ("below", "held", "is_own", "is_written", "mark", "node", "writes")

    def __init__(
        self, node: Node, below: Any, held: Any = None, mark: Any = None
    ) -> None:
        self.node: Node = node
        self.below: Any = below
        self.held: Any = held
        self.mark: Any = mark
        self.is_own: bool = False
        self.is_written: bool = False
        self.writes: int = 0

    def keep_if_changed(self, trace: Trace) -> bool:
        """Return whether the array was written since; the graph then keeps what it held.

        Arrays that nobody writes stay the graph's by reference: when their owner writes
        them later, the graph sees it.
        """
        if self.mark is None or self.node.is_erased:
            return False
        is_changed: bool = _mark(trace.graph.constants[self.node.target]) != self.mark
        if is_changed:
            self._keep(trace)
        return is_changed

    def end(self, trace: Trace) -> None:
        """Keep what it held if the function wrote it, also before it used it."""
        if not self.keep_if_changed(trace) and self.is_own and not self.node.is_erased:
            self._keep(trace)

    def _keep(self, trace: Trace) -> None:
        constants, name = trace.graph.constants, self.node.target
        if self.is_written:
            raise GraphError(
                f"{trace.title}: the constant '{name}',"
                f" {abbreviated(constants[name])}, is written by an operator, and by other"
                " code, which its graph would not do",
                do="write it by operators alone, or pass it as an argument",
            )
        constants[name], self.mark = self.held, None


def _mark(value: Any) -> Any:
    """Return what differs once somebody has written an array; None if nobody can."""
    if not is_array(value) or is_traced(value) or isinstance(value, np.generic):
        return None
    if isinstance(value, np.ndarray):
        if not _is_writeable(value):
            return None
        if value.dtype.hasobject:
            return value.shape, value.strides, zlib.crc32(value.tobytes())
        return value.shape, value.strides, value.dtype, checksum(value)
    return checksum(value)


def _is_basic(key: Any) -> bool:
    """Return whether a subscript is of integers and slices alone."""
    items = key if type(key) is tuple else (key,)
    return all(isinstance(k, int | np.integer | slice | EllipsisType) for k in items)


def _is_writeable(value: Any) -> bool:
    """Return whether code that has the array, or an array below it, can write it."""
    while isinstance(value, np.ndarray):
        if value.flags.writeable:
            return True
        value = value.base
    return value is not None and not isinstance(value, bytes)


TRACE = RuleKind("trace")


class Trace(Mode):
    """Runs a function once, and makes a graph of the operators that it calls.

    Parameters
    ----------
    tracing_mode : str
        What is below the tracers: ``"real"`` values, or ``"fake"`` ones.
    graph : Graph, optional
        A graph that gets more nodes.

    Attributes
    ----------
    kept : callable or None
        Says of an operator with a body of operators whether it stays a node.
    opened : dict
        Operator -> the function that runs in its place.
    """

    kind: ClassVar[RuleKind] = TRACE
    tracer_class: ClassVar[type[Tracer]] = GraphTracer
    title: str = "make_fx"
    is_capture: ClassVar[bool] = True

    def __init__(self, tracing_mode: str, graph: Graph | None = None) -> None:
        super().__init__()
        self.graph: Graph = Graph() if graph is None else graph
        self.kept: Chosen | None = None
        self.opened: dict[RuleTable, Callable[..., Any]] = {}
        self.is_real: bool = tracing_mode == "real"
        # Whether an array was written in place.
        self.has_writes: bool = False
        self.sizes: SizeContext = self.graph.sizes or SizeContext()
        if not self.is_real:
            self.graph.sizes = self.sizes
        # Nodes whose strides have decided whether a result is a view that is written.
        self._deciding: dict[Node, None] = {}
        # Whether this is a branch, whose results are those of `cond` as they lie in memory.
        self.is_branch: bool = False
        self._fake_mode: FakeMode = FakeMode()
        self._fake_mode.contexts.append(self.sizes)
        # Of NumPy's global generator, before an operator drew from it.
        self._state: Any = None
        # Of NumPy, about floating-point errors; None where nobody asks.
        self.settings: ErrorSettings | None = None
        # Transforms that began while it was open, and the calls that they made.
        self._transforms: list[Interpreter] = []
        self.derived: set[Node] = set()
        self._sizes_outside: SizeContext | None = None
        self._has_begun: bool = False
        # Fake results of operators, by what they follow from.
        self.remembered: dict[Any, tuple[Any, ...]] = {}
        # Shapes and strides of numbers -> the tuple that fake arrays share.
        self._tuples: dict[Any, tuple[int, ...]] = {}
        self._values: Values = Values()
        # Identity of an array or object -> the constant of the graph that it is now.
        self._constants: dict[Any, _Constant] = {}
        # Identity of an array from outside -> itself, and what it held at the start.
        self._marks_before: dict[int, tuple[np.ndarray, Any]] = {}
        # Identity of an array -> how often plain code has written all its elements.
        self._plain_writes: dict[int, int] = {}
        # Which elements of others were written, in arrays of their shapes.
        self._parts: dict[int, np.ndarray] = {}
        # Those that were used before a write of the bytes that they held.
        self._earlier: list[_Constant] = []

    def _on_open(self) -> None:
        """Make its sizes the active ones."""
        self._sizes_outside = captured_sizes()
        self._has_begun = True
        if self._sizes_outside is not None:
            self.sizes.guesses = self._sizes_outside.guesses
        set_active(self.sizes)
        self.sizes.has_ended = False

    def _on_close(self) -> None:
        """Make the sizes of the trace outside the active ones."""
        if self._has_begun:
            set_active(self._sizes_outside)
            self.sizes.has_ended = self._sizes_outside is not self.sizes

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if exc[0] is None:
            for known in (*self._earlier, *self._constants.values()):
                known.end(self)

    # ---- values ----

    def constant(self, value: Any) -> Any:
        """Return a constant as a tracer, which can be written."""
        node, below = self.constant_of(value)
        return GraphTracer(self, below, node)

    def constant_of(self, value: Any) -> tuple[Node, Any]:
        """Return the node of a constant, and what is below it.

        An array whose content has changed since its last use is another constant.
        """
        known = self._known(value)
        return known.node, known.below

    def _known(self, value: Any) -> _Constant:
        key = _identity(value)
        known = self._constants.get(key)
        if known is not None and not known.keep_if_changed(self):
            if not self._plain_writes or known.writes == self._plain_writes_of(value):
                return known
            self._earlier.append(known)
        known = self._constants[key] = self._new_constant(value)
        return known

    def _new_constant(self, value: Any) -> _Constant:
        node = self.graph.constant(value)
        fake = fake_of(value)
        node.note(fake, place_here())
        if is_generator(value):
            return _Constant(node, deepcopy(value))  # tracing draws from a copy
        mark = _mark(value)
        held = value if mark is None else copied(value)
        below = held if self.is_real and is_array(value) else fake
        known = _Constant(node, below, held, mark)
        known.writes = self._plain_writes_of(value) if self._plain_writes else 0
        known.is_own = mark is not None and self._was_changed(value)
        return known

    def note_arrays(self, arrays: Sequence[np.ndarray]) -> None:
        """Note what arrays from outside hold before the function runs."""
        owners = {id(own): own for own in map(owner, arrays)}
        self._marks_before = {key: (own, _mark(own)) for key, own in owners.items()}

    def note_plain_write(self, array: np.ndarray, key: Any) -> None:
        """Note that plain code writes an array, perhaps with the bytes that it holds.

        It counts once all elements were written: the others stay those of its owner.
        """
        own = owner(array)
        if id(own) not in self._marks_before or own.nbytes != array.nbytes:
            return
        if not _is_basic(key):
            return
        if array[key].size != array.size:
            parts = self._parts.get(id(own))
            if parts is None or parts.shape != array.shape:
                parts = self._parts[id(own)] = np.zeros(array.shape, bool)
            parts[key] = True
            if not parts.all():
                return
            del self._parts[id(own)]
        self._plain_writes[id(own)] = self._plain_writes.get(id(own), 0) + 1

    def has_changed_arrays(self) -> bool:
        """Return whether one of these arrays has changed or was written since."""
        marks = self._marks_before.values()
        return bool(self._plain_writes) or any(
            _mark(own) != mark for own, mark in marks
        )

    def _plain_writes_of(self, value: Any) -> int:
        is_plain = isinstance(value, np.ndarray)
        return self._plain_writes.get(id(owner(value)), 0) if is_plain else 0

    def _was_changed(self, value: Any) -> bool:
        """Return whether the function has written an array from outside."""
        if not self._marks_before or not isinstance(value, np.ndarray):
            return False
        own, mark = self._marks_before.get(id(owner(value)), (None, None))
        return own is not None and (id(own) in self._plain_writes or _mark(own) != mark)

    def generator_of(self, value: Any) -> Any:
        """Return a generator from outside as one whose draws are calls in the graph."""
        node, below = self.constant_of(plain_generator(value))
        return traced_generator(self, node, below)

    def below_constant(self, value: Any) -> Any:
        """Return a copy of a constant that an operator writes: tracing changes no array."""
        known = self._known(value)
        if not known.is_written:
            known.is_written = True
            if known.below is value or known.below is known.held:
                known.below = copied(value)
        return known.below

    def written_constants(self) -> list[np.ndarray]:
        """List the arrays of numbers from outside that operators write."""
        constants = self.graph.constants
        found = [
            constants[known.node.target]
            for known in self._constants.values()
            if known.is_written and not known.node.is_erased
        ]
        return [
            array
            for array in found
            if isinstance(array, np.ndarray)
            and isinstance(owner(array), np.ndarray)
            and owner(array).flags.writeable
            and owner(array).dtype.kind in "biufc"
        ]

    def node_and_value(self, value: Any) -> tuple[Any, Any]:
        """Return the entry of a node for a value, and the value below it."""
        if isinstance(value, GraphTracer) and value.interpreter is self:
            return value.node, value.below
        if is_array(value):
            if self.tapes and is_traced(value) and value.interpreter in self.tapes:
                return self.node_and_value(frozen(value.below))
            return self.constant_of(value)
        if is_generator(value):
            made: Any = value  # of `traced_generator`, or plain
            own = getattr(value, "trace", None) is self
            return (made.node, made.source) if own else self.constant_of(value)
        return value, value

    def nested(self, value: Any) -> tuple[Any, Any]:
        """As `node_and_value`, for a value that may hold others."""
        return map_nested(value, self._node_of), map_nested(value, self._below)

    def _node_of(self, value: Any) -> Any:
        return self.node_and_value(value)[0]

    def _below(self, value: Any) -> Any:
        return self.node_and_value(value)[1]

    def see_write(self, box: Tracer) -> None:
        """Note that an array was written."""
        self.has_writes = True

    def strides_sources(self, box: Tracer) -> tuple[Any, ...]:
        """Return the node of a value, whose strides depend on those of inputs."""
        return ((self, box.node),) if isinstance(box, GraphTracer) else ()

    def see_strides(self, node: Node) -> None:
        """Note that the strides of a node have decided what is a view."""
        self._deciding[node] = None

    def replace(self, box: Tracer, new: Any) -> None:
        """Put the content of another tracer in one: an array, as NumPy's is.

        Calls give scalars in the place of arrays without axes. Of others the graph keeps
        the strides, on which depend views and the bits of sums. What lies outside of a
        branch sees only its results, so the strides of what it writes must be those seen.
        """
        if self.is_branch:
            for _, node in self.strides_sources(box):
                self.see_strides(node)
        if not box.shape:
            if new.node.op == CALL and new.node.target is not ops.np.copy.default:
                new = ops.np.copy(new)
        else:
            wanted = strides_of_box(box)
            if _lies_otherwise(box.shape, new.below.strides, wanted):
                new = lay_out(new, [*wanted])
        super().replace(box, new)

    # ---- calls ----

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator below, and make a node of the call."""
        if not self.alive:
            raise leaked(op, self)
        if op in self.opened:
            return self._run_opened(op, args)
        record = op.plans.by_tracer.get(GraphTracer)
        return (_record_of(op) if record is None else record)(self, args)

    def opens(self, op: RuleTable) -> bool:
        """Return whether an operator with a body of operators runs by its body.

        One with a kernel of its own for NumPy arrays stays one call, which runs it.
        """
        if op in self.opened or CPU.name in op.rows:
            return False
        return self.kept is None or not self.kept(op)

    def _run_opened(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the function for an operator, in which the operator itself stays."""
        before, kept = self.opened, self.kept
        self.opened = {key: fn for key, fn in before.items() if key is not op}
        self.kept = _or_same(kept, op)
        try:
            positional, keywords = op.schema.split(args)
            return run_under(self, before[op], *positional, **keywords)
        finally:
            self.opened, self.kept = before, kept

    def of_shared_parts(self, fake: FakeArray) -> FakeArray:
        """Return a fake array with the tuples of earlier ones for its shape and strides.

        What is remembered of calls is found by the identity of these tuples.
        """
        if not _INTS.issuperset(map(type, (*fake.shape, *fake.strides))):
            return fake
        shape = self._tuples.setdefault(fake.shape, fake.shape)
        strides = self._tuples.setdefault(fake.strides, fake.strides)
        if shape is fake.shape and strides is fake.strides:
            return fake
        return make_fake(shape, fake.dtype, strides, fake.device)

    def general(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """As `process`, for any operator."""
        entries, values = self.nested([*args])
        if op.schema.written:
            self._copy_written(op, args, values)
            self._values.see_write()
        if Tag.dynamic_output_shape in op.tags and not self.is_real:
            values = list(map(self._values.fake, entries, values))
        if op.sees_seed and self.is_real and self._state is None:
            self._state = np.random.get_state()  # noqa: NPY002  # operators may use it
        out = op.invoke(values) if self.is_real else self.run_fake(op, values)
        return self.finish(op, entries, out)

    def finish(self, op: RuleTable, entries: Sequence[Any], out: Any) -> Any:
        """Make the node of a call, and the tracers of its results."""
        node = self._call(op, entries)
        node.note(map_nested(out, fake_of), place_here())
        if self.settings is not None:
            self.note_settings(node)
        if self.is_real and Tag.dynamic_output_shape in op.tags and is_array(out):
            node.meta["must_be"] = node.val
        return self._wrapped(op, node, out)

    def run_fake(self, op: RuleTable, values: Sequence[Any]) -> Any:
        """Return the result of an operator for fake arrays; traces outside do not see the call."""
        mode = current_mode.get()
        if not isinstance(mode, Trace):
            return self._fake_mode.process(op, values)
        while isinstance(mode, Trace):
            mode = mode.outer
        return run_under(mode, self._fake_mode.process, op, values)

    def note_users(self, node: Node, value: Any) -> None:
        """Note that a node has others inside one of its arguments."""
        for used in nodes_in([value]):
            used.users[node] = None

    def _copy_written(
        self, op: RuleTable, args: Sequence[Any], values: list[Any]
    ) -> None:
        """Let an operator write copies of constants."""

        def copy(value: Any) -> Any:
            own = isinstance(value, GraphTracer) and value.interpreter is self
            if own or not is_array(value):
                return self._below(value)
            return self.below_constant(value)

        for slot, p in enumerate(op.schema.parameters):
            if p.is_written:
                values[slot] = map_nested(args[slot], copy)

    def see_start(self, interpreter: Interpreter) -> None:
        """Note that a transform begins."""
        if interpreter.is_lasting or isinstance(interpreter, Mode):
            return
        running = [other for other in self._transforms if other.alive]
        self._transforms = [*running, interpreter]

    def note_settings(self, node: Node) -> None:
        """Note in ``meta["errstate"]`` what the function has set by np.errstate.

        Also note whether a transform inside of the function makes the call.
        """
        assert self.settings is not None  # else nobody calls this
        found = self.settings.changed()
        if found:
            node.meta["errstate"] = found
        if any(other.alive for other in self._transforms):
            self.derived.add(node)

    def _call(self, op: RuleTable, entries: Sequence[Any]) -> Node:
        """Make the node, without the arguments at the end that equal their defaults."""
        count = op.positional_count
        parameters = op.schema.parameters
        named = {
            p.name: value
            for p, value in zip(parameters[count:], entries[count:], strict=True)
            if not _is_default(value, p.default)
        }
        while count and _is_default(entries[count - 1], parameters[count - 1].default):
            count -= 1
        return self.graph.call(op, tuple(entries[:count]), named)

    def _wrapped(self, op: RuleTable, node: Node, out: Any) -> Any:
        """Return a result as tracers, with a node for each part."""
        if is_array(out):
            if is_traced(out) and out.interpreter.level >= self.level:
                raise self._open(op, out)
            return GraphTracer(self, out, node)
        found = children(out)
        if found is None:
            if out is not None:
                node.meta["must_be"] = out
            return out
        parts: list[Any] = []
        place = node.meta.get("place")
        names: Any = range(len(found)) if isinstance(out, tuple | list) else steps(out)
        for step, part in zip(names, found, strict=True):
            item = self.graph.item(node, step)
            item.note(map_nested(part, fake_of), place)
            if is_array(part) and self.is_real and Tag.dynamic_output_shape in op.tags:
                item.meta["must_be"] = item.val
            parts.append(self._wrapped(op, item, part))
        return like(out, parts)

    def _open(self, op: RuleTable, value: Any) -> GraphError:
        return op.error(
            GraphError,
            f" uses a value of {value.interpreter.describe()} that is not among its"
            " arguments, so the graph would lose track of it",
            value.interpreter.where(),
            do="pass the value as an argument",
            parameter=None,
        )

    def end(self) -> None:
        """End the trace: its tracers die, and random states are as they were."""
        super().end()
        guard_strides(self._deciding)
        if self._state is not None:
            np.random.set_state(self._state)  # noqa: NPY002  # see above
            self._state = None


_INTS = frozenset((int,))


def _record_of(op: RuleTable) -> Record:
    """Return the record for calls of an operator, kept until its table changes."""
    plans = op.plans
    is_usual = op.schema.single_return and not (
        op.schema.written or op.sees_seed or op.schema.keyword_only
    )
    is_usual = is_usual and Tag.dynamic_output_shape not in op.tags
    if is_usual and isinstance(op, Operator):
        record = make_record(op, GraphTracer, fake_of)
    else:

        def general(trace: Trace, args: Sequence[Any]) -> Any:
            return trace.general(op, args)

        record = general
    plans.by_tracer[GraphTracer] = record
    return record


def _or_same(kept: Chosen | None, op: RuleTable) -> Chosen:
    """Return a test for operators that are kept, to which one is added."""
    return lambda other: other is op or (kept is not None and kept(other))


# ---- values ----


def _lies_otherwise(
    shape: Sequence[Any], strides: Sequence[Any], wanted: Sequence[Any]
) -> bool:
    """Return whether elements lie otherwise in memory; symbolic sizes are those of C order."""
    if not all(type(n) is int for n in (*shape, *strides, *wanted)) or 0 in shape:
        return False
    triples = zip(shape, strides, wanted, strict=True)
    return any(n > 1 and a != b for n, a, b in triples)


def _identity(value: Any) -> Any:
    if isinstance(value, Tracer):
        # Snapshots of one value are one constant.
        return (type(value), *(id(getattr(value, name)) for name in value.content))
    return id(value)


def _is_default(value: Any, default: Any) -> bool:
    if default is MISSING or isinstance(value, Node):
        return False
    return value is default or (type(value) is type(default) and value == default)


def fake_of(value: Any) -> Any:
    """Return a fake array like an array, traced ones too; other values as they are."""
    if is_traced(value):
        strides = strides_of_box(value)
        return make_fake(value.shape, dtype_of(value), strides, device_of(value))
    return to_fake(value)


def copied(value: Any) -> Any:
    """Return a copy of an array, which tracing may write.

    It lies in memory as the array: strides decide what is a view.
    """
    if is_traced(value):
        return frozen(value)
    if not isinstance(value, np.ndarray):
        return value.copy()
    if value.flags.forc or value.dtype.hasobject:
        return value.copy("K")
    low, high = byte_bounds(value)
    memory, start = np.empty(high - low, np.uint8), value.ctypes.data - low
    out = np.ndarray(value.shape, value.dtype, memory, start, value.strides)
    out[...] = value
    return out
