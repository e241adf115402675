"""Plans: what a call of one operator does under reverse mode, as generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from customop.arrays.nested import flat, map_nested, map_outline
from customop.config import config
from customop.core.builtin_kinds import AUTOGRAD, Formula, GradCall, GradRule
from customop.core.codegen import all_constants, generate
from customop.core.contract import moments, readonly
from customop.core.kernel_proof import with_sampling
from customop.core.observe import observers
from customop.core.rule_kind import Definition
from customop.core.rule_makers import RESULT, Partial, Partials
from customop.core.table import RuleTable
from customop.core.tracer import connect_results
from customop.errors import ContractError, GradientError, caller_place, warn_caller
from customop.transforms.autograd.tape import (
    GradNode,
    GradTracer,
    TrackedCall,
    UnaryNode,
    double,
    hidden,
    inexact,
    is_in,
    observed_setup,
)
from customop.transforms.plan_lines import (
    inputs_of,
    run_lines,
    run_names,
    taken,
    tracer_lines,
    view_lines,
)

if TYPE_CHECKING:
    from customop.transforms.autograd.reverse import GradInterpreter


# ---- plans of operators with partial derivatives ----
# Code for each set of tracked arguments.


# Lines that return a result without derivatives; most have those of NumPy's floats.
DTYPE_LINES = (
    "    dtype = out.dtype",
    "    if dtype is not double:",
    "        known = inexact[dtype]",
    "        if not known:",
    "            if known is None:",
    "                raise hidden(op, out)",
    "            return out",
)

# Slots of the tracked arguments of a call.
Tracked = tuple[int, ...]
MakeNodes = Callable[
    [type[GradNode], Callable[..., Any], dict[str, Any]], type[GradNode]
]


def make_partial_plan(
    op: RuleTable, rule: Partials, make: MakeNodes
) -> tuple[str, dict[str, Any]]:
    """The source text of the plan of a plain operator, and the names in it.

    Parameters
    ----------
    op : RuleTable
    rule : Partials
    make : callable
        Makes the class of nodes from its base, its backward and its attributes.
    """
    rows = rule.of(op.schema)
    sets = [
        tuple(slot for slot, is_in in zip(rows, chosen, strict=True) if is_in)
        for chosen in product((True, False), repeat=len(rows))
    ]
    inputs = inputs_of(op)
    lines = [
        "def plan(self, args):",
        f"    {inputs}= args",
        *taken(op, "GradTracer", "node"),
        *[line for slot in op.nested_slots for line in _lowered(f"v{slot}")],
        *run_lines(op),
        *DTYPE_LINES,
        *_choices(rows, sets),
        *tracer_lines(op, "GradTracer", "node", "node"),
    ]
    scope: dict[str, Any] = {
        "GradTracer": GradTracer,
        "op": op,
        **run_names(op),
        "hidden": hidden,
        "double": double,
        "inexact": inexact,
        "all_constants": all_constants,
        "map_nested": map_nested,
        "new": object.__new__,
        "moments": moments,
    }
    for tracked in sets:
        if tracked:
            scope[_class_name(tracked)] = _nodes(op, rows, tracked, make)
    return "\n".join(lines), scope


def _lowered(v: str) -> list[str]:
    """Lines that take a nested argument out of its tracers; a copy, which is kept."""
    return [
        f"    if type({v}) is list and all_constants({v}): {v} = [*{v}]",
        f"    else: {v} = map_nested({v}, self.lower)",
    ]


def _choices(rows: dict[int, Partial], sets: Sequence[Tracked]) -> list[str]:
    """Lines that make the node for the arguments that are tracked."""
    if not rows:
        return ["    node = None"]
    lines = []
    for number, tracked in enumerate(sets):
        word = "if" if number == 0 else "elif"
        tests = [f"node{slot} is not None" for slot in tracked]
        if not tracked:
            lines += ["    else:", "        node = None"]
            continue
        # Larger sets were tried before, so the others are not tracked here.
        edges = f"node{tracked[0]}"
        if len(tracked) > 1:
            edges = "".join(f"({slot}, (), node{slot}), " for slot in tracked)
        saved = "".join(f"{_value(need)}, " for need in _needs(rows, tracked))
        lines += [
            f"    {word} {' and '.join(tests)}:",
            f"        node = new({_class_name(tracked)})",
            f"        node.node_edges = {edges}",
            f"        node.saved_arrays = ({saved})",
            "        node.node_shape = out.shape",
            "        node.node_dtype = dtype",
            "        node.node_number = next(moments)",
        ]
    return lines


def _class_name(tracked: Tracked) -> str:
    return f"Nodes{'_'.join(map(str, tracked))}"


def _needs(rows: dict[int, Partial], tracked: Tracked) -> list[tuple[int, bool]]:
    return list(dict.fromkeys(need for slot in tracked for need in rows[slot].needs))


def _value(need: tuple[int, bool]) -> str:
    slot, of_shape = need
    name = "out" if slot == RESULT else f"v{slot}"
    return f"{name}.shape" if of_shape else name


def _nodes(
    op: RuleTable, rows: dict[int, Partial], tracked: Tracked, make: MakeNodes
) -> type[GradNode]:
    """The class of nodes for a set of tracked arguments."""
    needs = {need: f"s{i}" for i, need in enumerate(_needs(rows, tracked))}
    calls = [
        f"f{slot}({', '.join(['g', *(needs[need] for need in rows[slot].needs)])})"
        for slot in tracked
    ]
    taking = (
        f"    {''.join(f'{name}, ' for name in needs.values())}= ctx.saved_arrays\n"
    )
    text = (
        "def backward(ctx, g):\n"
        f"{taking if needs else ''}"
        f"    return {', '.join(calls)}\n"
    )
    scope = {f"f{slot}": rows[slot].formula for slot in tracked}
    backward = generate(f"{op.qualname} backward", text, "backward", scope)
    flags = tuple(i in tracked for i in range(op.positional_count))
    names = {"node_slots": tracked, "needs_input_grad": flags}
    return make(UnaryNode if len(tracked) == 1 else GradNode, backward, names)


# ---- plans: what a call of one operator does under reverse mode, worked out once ----


Plan = Callable[["GradInterpreter", Sequence[Any]], Any]


def make_plan(op: RuleTable) -> Plan:
    """Make the plan of an operator, which is kept until its table changes."""
    plans = op.plans  # a changed table has new plans: a plan of the old one is dropped
    rule: GradRule = op.find_rule(AUTOGRAD) or MissingRule()
    nodes = _node_class(op, rule)
    if op.schema.written:
        plan = _write_plan(op)
    elif isinstance(rule, Partials) and rule.is_short and not op.schema.keyword_only:
        plan = _partial_plan(op, rule)
    elif (op.is_plain or op.list_slot >= 0) and type(rule) is Formula:
        plan = _plain_plan(op, rule, nodes)
    else:
        plan = _general_plan(op, rule, nodes)
    plans.by_tracer[GradTracer] = plan
    return plan


def _write_plan(op: RuleTable) -> Plan:
    """The plan of an operator that writes its arguments: raise."""

    def plan(interpreter: GradInterpreter, args: Sequence[Any]) -> Any:
        pairs = zip(op.schema.parameters, args, strict=True)
        traced = [
            p.name
            for p, value in pairs
            if p.is_written and any(interpreter.lower(v) is not v for v in flat(value))
        ]
        name = (*traced, *op.schema.written)[0]
        raise op.error(
            GradientError,
            f" writes its argument '{name}' under {interpreter.describe()}: a write has"
            " no gradient",
            interpreter.where(),
            do="call it inside no_grad(), or use an operator that returns a new array",
            parameter=name,
            kind="autograd",
        )

    return plan


def _general_plan(op: RuleTable, rule: GradRule, nodes: type[GradNode]) -> Plan:
    def plan(interpreter: GradInterpreter, args: Sequence[Any]) -> Any:
        call = TrackedCall(interpreter, op, nodes, args)
        if call.edges:
            out = rule.forward(call)
        else:  # only constants
            out = map_nested(op.invoke(call.values), interpreter.constant)
        if op.view_slot >= 0:
            connect_results(op, args, args, out)
        return out

    return plan


def _plain_plan(op: RuleTable, rule: Any, nodes: type[GradNode]) -> Plan:
    """Generate the code for a formula: 1.1 us a call, not 1.9.

    Measured on CPython 3.11.7, one array of three elements, 0.3 us of it the kernel.
    """
    inputs = inputs_of(op)
    lines = [
        "def plan(self, args):",
        f"    {inputs}= args",
        *_edge_lines(op, is_unary=issubclass(nodes, UnaryNode)),
        *run_lines(op),
        "    dtype = out.dtype",
        *DTYPE_LINES,
        *_constant_lines(op),
        "    node = new(nodes)",
        "    node.node_edges = edges",
        "    node.node_shape = out.shape",
        "    node.node_dtype = dtype",
        "    node.node_number = next(moments)",
        "    node.saved_arrays = ()",
        *_outline_lines(op),
        *_setup_lines(rule.setup_context, inputs),
        "    tracer = new(GradTracer)",
        "    tracer.interpreter = self",
        "    tracer.below = out",
        "    tracer.node = node",
        *view_lines(op),
        "    return tracer",
        "",
    ]
    scope = {
        "GradTracer": GradTracer,
        "op": op,
        **run_names(op),
        "hidden": hidden,
        "double": double,
        "inexact": inexact,
        "nodes": nodes,
        "setup": rule.setup_context,
        "observed": observed_setup(op, rule.setup_context),
        "observers": observers,
        "is_in": is_in,
        # Objects are made without a call of their __init__: 40 ns less for each.
        "new": object.__new__,
        "moments": moments,
        "ref": ref,
    }
    text = "\n".join(lines)
    plan: Plan = generate(f"{op.qualname} autograd", text, "plan", scope)
    return plan


def _constant_lines(op: RuleTable) -> list[str]:
    """Lines for a call of constants alone, such as buffers: no node."""
    return [
        "    if not edges:",
        "        tracer = GradTracer(self, out, None)",
        *[f"    {line}" for line in view_lines(op)],
        "        return tracer",
    ]


def _outline_lines(op: RuleTable) -> list[str]:
    """Lines that note the arguments without their arrays, where arrays are in a list."""
    if op.list_slot < 0:
        return []
    count = len(op.schema.parameters)
    items = ["None"] * count
    items[op.list_slot] = f"[None] * len(v{op.list_slot})"
    return [f"    node.node_inputs = [{', '.join(items)}]"]


def _list_lines(slot: int) -> list[str]:
    """Lines that take the values out of the tracers in a list."""
    return [
        "    edges, values = [], []",
        f"    for i, value in enumerate(v{slot}):",
        "        if type(value) is GradTracer and value.interpreter is self:",
        "            node = value.node",
        f"            if node is not None: edges.append(({slot}, (i,), node))",
        "            value = value.below",
        "        values.append(value)",
        f"    v{slot} = values",
    ]


def _edge_lines(op: RuleTable, *, is_unary: bool) -> list[str]:
    """Lines that take the values out of the tracers, and note what made them."""
    if op.list_slot >= 0:
        return _list_lines(op.list_slot)
    if len(op.array_slots) == 1:
        # A single array is the tracer that brought the call here.
        (slot,) = op.array_slots
        v = f"v{slot}"
        lines = [f"    edges = {v}.node"]
        if not is_unary:
            lines += [f"    if edges: edges = (({slot}, (), edges),)"]
        return [*lines, f"    {v} = {v}.below"]
    lines = ["    edges = ()"]
    for slot in op.array_slots:
        v = f"v{slot}"
        lines += [
            f"    if type({v}) is GradTracer and {v}.interpreter is self:",
            f"        node = {v}.node",
            f"        if node: edges += (({slot}, (), node),)",
            f"        {v} = {v}.below",
        ]
    return lines


def _setup_lines(setup: Any, inputs: str) -> list[str]:
    if setup is None:
        return []
    return [
        "    node.node_blocked = ()",
        "    set_up = observed if observers else setup",
        f"    set_up({_setup_arguments(setup, inputs)})",
        "    if node.node_blocked and is_in(out, node.node_blocked):",
        "        return out",
    ]


def _setup_arguments(setup: Any, inputs: str) -> str:
    """Arguments by name, as in torch; by position where the names agree: 20 ns less."""
    code = getattr(setup, "__code__", None)
    names = ("ctx", "inputs", "output")
    if code and code.co_argcount == 3 and code.co_varnames[:3] == names:
        return f"node, ({inputs}), out"
    return f"ctx=node, inputs=({inputs}), output=out"


# ---- the class of an operator's nodes ----


def _node_class(op: RuleTable, rule: GradRule) -> type[GradNode]:
    """A class for the nodes of one operator, which holds the operator and its rule."""
    is_short = op.is_plain and op.is_unary and rule.is_formula
    base: type[GradNode] = UnaryNode if is_short else GradNode
    return _nodes_of(op, rule, base, rule.backward, {})


def _nodes_of(
    op: RuleTable,
    rule: GradRule,
    base: type[GradNode],
    backward: Callable[..., Any],
    more: dict[str, Any],
) -> type[GradNode]:
    names = {
        "node_op": op,
        "node_rule": rule,
        "node_backward": staticmethod(backward),
        "__slots__": (),
        **more,
    }
    # pyright infers a class without the attributes of GradNode, hence the cast.
    nodes: type[GradNode] = cast(
        "type[GradNode]", type(f"{op.name}_node", (base,), names)
    )
    if rule.is_formula:
        proves = config.checks != "never"
        first = _proof(nodes, backward) if proves else _later(backward)
        nodes.node_backward = staticmethod(first)
    return nodes


def _partial_plan(op: RuleTable, rule: Partials) -> Plan:
    """Generate the code for an operator with a formula for each argument."""

    def make(
        base: type[GradNode], backward: Callable[..., Any], more: dict[str, Any]
    ) -> type[GradNode]:
        return _nodes_of(op, rule, base, backward, {"node_is_partial": True, **more})

    text, scope = make_partial_plan(op, rule, make)
    plan: Plan = generate(
        f"{op.qualname} autograd", text, "plan", {**scope, "ref": ref}
    )
    return plan


def _proof(nodes: type[GradNode], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Run a formula on read-only gradients, the first time or every time.

    Another formula or the caller may hold the same gradient: a write would change it
    there.
    """

    def prove(ctx: GradNode, *grads: Any) -> Any:
        try:
            found = backward(ctx, *[map_outline(g, readonly) for g in grads])
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise _writes_gradient(ctx) from error
        if config.checks == "first":
            nodes.node_backward = staticmethod(_later(backward))
        return found

    return prove


def _later(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The formula after its first proof; with sample checks, some calls prove it again."""
    if not config.sample_checks:
        return backward

    def sampled(ctx: GradNode, *grads: Any) -> Any:
        if not config.draws():
            return backward(ctx, *grads)
        try:
            return backward(ctx, *[map_outline(g, readonly) for g in grads])
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            fault = with_sampling(_writes_gradient(ctx))
            if config.on_failure == "error":
                raise fault from error
        warn_caller(str(fault))
        return backward(ctx, *grads)

    return sampled


def _writes_gradient(node: GradNode) -> ContractError:
    return node.node_op.error(
        ContractError,
        "backward writes into a gradient that it is given",
        f"backward at {node.node_rule.backward_place}",
        do="compute a new array: g = g * 2.0 instead of g *= 2.0",
        kind="autograd",
    )


# ---- operators without a rule ----


class MissingRule(GradRule):
    """The rule of an operator without one: an error once a gradient needs it."""

    __slots__ = ("where",)

    def __init__(self, where: str = "") -> None:
        self.where: str = where

    def forward(self, call: GradCall) -> Any:
        """Run the operator; the node remembers the place of the call."""
        out = call.op.invoke(call.values)
        node = call.node()
        node.node_rule = missing = MissingRule(caller_place())
        # On this node, not on the class: the error names the place of this call.
        node.node_backward = missing.backward
        return call.track(node, out)

    def backward(self, ctx: GradNode, *grads: Any) -> Any:
        """Raise, because zeros would be wrong without a sign of it."""
        raise ctx.node_op.missing_rule(
            AUTOGRAD, f"a gradient is needed through the call at {self.where}"
        )

    def check(self, op: Definition) -> None:
        """Fits every operator."""

    @property
    def places(self) -> tuple[str, ...]:
        """Empty: the rule has no function."""
        return ()
