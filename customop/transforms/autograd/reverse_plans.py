"""Plans of reverse mode: they make a node of a call, and know how to go back through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, cast

from customop.arrays.nested import flat, map_nested, map_outline
from customop.config import config
from customop.core.builtin_kinds import AUTOGRAD, Formula, GradCall, GradRule
from customop.core.codegen import generate
from customop.core.contract import moments, readonly
from customop.core.interpreter import Interpreter
from customop.core.kernel_proof import with_sampling
from customop.core.observe import observers
from customop.core.rule_kind import Definition
from customop.core.rule_makers import Partial, Partials
from customop.core.table import RuleTable
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
from customop.transforms.plan_writer import (
    Plan,
    PlanWriter,
    connected,
    inside,
    value_text,
)


def make_plan(op: RuleTable) -> Plan:
    """Make the plan of an operator, which is kept until its table changes."""
    plans = op.plans  # a changed table has new plans: a plan of the old one is dropped
    rule: GradRule = op.find_rule(AUTOGRAD) or MissingRule()
    if op.schema.written:
        plan = _write_plan(op)
    elif isinstance(rule, Partials) and rule.is_short and not op.schema.keyword_only:
        plan = _partial_plan(op, rule)
    elif (op.is_plain or op.list_slot >= 0) and type(rule) is Formula:
        plan = _formula_plan(op, rule)
    else:
        plan = _general_plan(op, rule)
    plans.by_tracer[GradTracer] = plan
    return plan


def _write_plan(op: RuleTable) -> Plan:
    """Return the plan of an operator that writes its arguments: it raises."""

    def plan(interpreter: Interpreter, args: Sequence[Any]) -> Any:
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


def _general_plan(op: RuleTable, rule: GradRule) -> Plan:
    """Return the plan that leaves a call to the rule."""
    nodes = _node_class(op, rule)

    def plan(interpreter: Interpreter, args: Sequence[Any]) -> Any:
        call = TrackedCall(interpreter, op, nodes, args)
        if call.edges:
            out = rule.forward(call)
        else:  # only constants
            out = map_nested(op.invoke(call.values), interpreter.constant)
        return connected(op, args, out)

    return plan


# ---- generated plans: 1.1 us a call, not 1.9 ----
# Measured on CPython 3.11.7, one array of three elements, 0.3 us of it the kernel.


_NAMES = {
    "double": double,
    "hidden": hidden,
    "inexact": inexact,
    "is_in": is_in,
    "moments": moments,
    "observers": observers,
}

# Lines that return a result without derivatives; most have the dtype of NumPy's floats.
_CHECKS = (
    "dtype = out.dtype",
    "if dtype is not double:",
    "    known = inexact[dtype]",
    "    if not known:",
    "        if known is None:",
    "            raise hidden(op, out)",
    "        return out",
)


def _formula_plan(op: RuleTable, rule: Formula) -> Plan:
    """Return the plan of an operator with one formula for all arguments."""
    writer = PlanWriter(op, AUTOGRAD, GradTracer, _NAMES)
    nodes, setup = _node_class(op, rule), rule.setup_context
    writer.names |= {"nodes": nodes, "setup": setup}
    slots, listed, more = op.array_slots, op.list_slot, []
    if listed >= 0:
        items = f"enumerate(node{listed}) if node is not None"
        edges = [f"edges = [({listed}, (i,), node) for i, node in {items}]"]
        # The arguments without their arrays.
        empty = ["None"] * len(op.schema.parameters)
        empty[listed] = f"[None] * len(v{listed})"
        more = [f"node.node_inputs = [{', '.join(empty)}]"]
    elif issubclass(nodes, UnaryNode):
        edges = [f"edges = node{slots[0]}"]
    else:
        first, *rest = [f"(({slot}, (), node{slot}),)" for slot in slots]
        edges = [f"edges = {first} if node{slots[0]} is not None else ()"]
        pairs = zip(slots[1:], rest, strict=True)
        edges += [f"if node{i} is not None: edges += {edge}" for i, edge in pairs]
    if setup is not None:
        writer.names["observed"] = observed_setup(op, setup)
        more += [
            "node.node_blocked = ()",
            "set_up = observed if observers else setup",
            f"set_up({_setup_arguments(setup, writer.values)})",
            "if node.node_blocked and is_in(out, node.node_blocked):",
            "    return out",
        ]
    node = _node_lines("nodes", "edges", "", more)
    lines = [*edges, *writer.run(), *_CHECKS, "if edges:", *node, "else: node = None"]
    return writer.make([*lines, *writer.wrap("node")])


def _setup_arguments(setup: Any, values: str) -> str:
    """Return arguments by name, as in torch; by position where the names agree: 20 ns less."""
    code = getattr(setup, "__code__", None)
    names = ("ctx", "inputs", "output")
    if code and code.co_argcount == 3 and code.co_varnames[:3] == names:
        return f"node, ({values}), out"
    return f"ctx=node, inputs=({values}), output=out"


def _partial_plan(op: RuleTable, rule: Partials) -> Plan:
    """Return the plan of an operator with a formula for each argument.

    It has code, and a class of nodes, for each set of arguments that may be tracked.
    """
    writer = PlanWriter(op, AUTOGRAD, GradTracer, _NAMES)
    rows = rule.of(op.schema)
    lines: list[str] = []
    for chosen in product((True, False), repeat=len(rows)):
        tracked = [slot for slot, is_in in zip(rows, chosen, strict=True) if is_in]
        if not tracked:
            lines.append("else: node = None" if lines else "node = None")
            break
        name = f"Nodes{'_'.join(map(str, tracked))}"
        parts = {slot: rows[slot] for slot in tracked}
        needs = list(
            dict.fromkeys(need for row in parts.values() for need in row.needs)
        )
        writer.names[name] = _partial_nodes(op, rule, parts, needs)
        # Larger sets were tried before, so the others are not tracked here.
        tests = " and ".join([f"node{slot} is not None" for slot in tracked])
        edges = "".join([f"({slot}, (), node{slot}), " for slot in tracked])
        edges = f"node{tracked[0]}" if len(tracked) == 1 else edges
        saved = "".join([f"{value_text(need)}, " for need in needs])
        word = "elif" if lines else "if"
        lines += [f"{word} {tests}:", *_node_lines(name, edges, saved)]
    return writer.make([*writer.run(), *_CHECKS, *lines, *writer.wrap("node")])


def _node_lines(
    nodes: str, edges: str, saved: str, more: Sequence[str] = ()
) -> list[str]:
    """Return a block that makes the node of a call."""
    return inside(
        [
            f"node = new({nodes})",
            f"node.node_edges = {edges}",
            f"node.saved_arrays = ({saved})",
            "node.node_shape = out.shape",
            "node.node_dtype = dtype",
            "node.node_number = next(moments)",
            *more,
        ]
    )


# ---- classes of nodes ----


def _node_class(op: RuleTable, rule: GradRule) -> type[GradNode]:
    """Return a class for the nodes of one operator, which holds it and its rule."""
    is_short = op.is_plain and op.is_unary and type(rule) is Formula
    base: type[GradNode] = UnaryNode if is_short else GradNode
    return _nodes_of(op, rule, base, rule.backward, {})


def _partial_nodes(
    op: RuleTable,
    rule: Partials,
    rows: dict[int, Partial],
    needs: Sequence[tuple[int, bool]],
) -> type[GradNode]:
    """Return the class of nodes for a set of tracked arguments."""
    names = {need: f"s{i}" for i, need in enumerate(needs)}
    calls = [
        f"f{slot}({', '.join(['g', *(names[need] for need in row.needs)])})"
        for slot, row in rows.items()
    ]
    taking = (
        f"    {''.join(f'{name}, ' for name in names.values())}= ctx.saved_arrays\n"
    )
    text = f"def backward(ctx, g):\n{taking if needs else ''}    return {', '.join(calls)}\n"
    scope = {f"f{slot}": row.formula for slot, row in rows.items()}
    backward = generate(f"{op.qualname} backward", text, "backward", scope)
    more = {
        "node_is_partial": True,
        "node_slots": tuple(rows),
        "needs_input_grad": tuple(i in rows for i in range(op.positional_count)),
    }
    return _nodes_of(
        op, rule, UnaryNode if len(rows) == 1 else GradNode, backward, more
    )


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
        first = _proof(nodes, backward) if proves else _after_proof(backward)
        nodes.node_backward = staticmethod(first)
    return nodes


# ---- proofs that a formula does not write into gradients ----


def _proof(nodes: type[GradNode], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Run a formula on read-only gradients, the first time or every time.

    Another formula or the caller may hold the same gradient: a write would change it
    there.
    """

    def prove(ctx: GradNode, *grads: Any) -> Any:
        found = _run_proven(ctx, backward, grads)
        if config.checks == "first":
            nodes.node_backward = staticmethod(_after_proof(backward))
        return found

    return prove


def _after_proof(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the formula; with sample checks, one that some calls prove again."""
    if not config.sample_checks:
        return backward

    def sampled(ctx: GradNode, *grads: Any) -> Any:
        if config.draws():
            return _run_proven(ctx, backward, grads, is_sampled=True)
        return backward(ctx, *grads)

    return sampled


def _run_proven(
    ctx: GradNode,
    backward: Callable[..., Any],
    grads: Sequence[Any],
    *,
    is_sampled: bool = False,
) -> Any:
    try:
        return backward(ctx, *[map_outline(g, readonly) for g in grads])
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        fault = ctx.node_op.error(
            ContractError,
            "backward writes into a gradient that it is given",
            f"backward at {ctx.node_rule.backward_place}",
            do="compute a new array: g = g * 2.0 instead of g *= 2.0",
            kind="autograd",
        )
        if is_sampled:
            with_sampling(fault)
        if not is_sampled or config.on_failure == "error":
            raise fault from error
    warn_caller(str(fault))
    return backward(ctx, *grads)


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
        """Accept every operator."""

    @property
    def places(self) -> tuple[str, ...]:
        """Empty: the rule has no function."""
        return ()
