"""Plans of operators with partial derivatives: code for each set of tracked arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from customop.arrays.nested import map_nested
from customop.core.codegen import all_constants
from customop.core.contract.memory import moments
from customop.core.generated import generate
from customop.core.partials import RESULT, Partial, Partials
from customop.core.table import RuleTable
from customop.transforms.autograd.node import (
    GradNode,
    UnaryNode,
    double,
    hidden,
    inexact,
)
from customop.transforms.autograd.tracer import GradTracer
from customop.transforms.plan_lines import (
    inputs_of,
    run_lines,
    run_names,
    taken,
    tracer_lines,
)

__all__ = ["DTYPE_LINES", "make_partial_plan"]

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
