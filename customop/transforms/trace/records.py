"""The work of tracing for a call of one operator, as generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray, make_fake
from customop.arrays.kinds import FAKE, is_array, is_traced
from customop.core.contract.results import finish_fake
from customop.core.dispatch import find_kernel
from customop.core.generated import generate
from customop.core.prepared import again
from customop.core.table import RuleTable
from customop.graph.node import CALL, Node
from customop.schema.parameters import MISSING, Parameter
from customop.schema.types import ListOf, Maybe
from customop.transforms.plan_lines import inputs_of
from customop.transforms.trace.places import place_here

__all__ = ["Record", "make_record"]

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
    inputs = inputs_of(op)
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
    """The text of a list of what stands in the node for each argument."""
    return f"[{', '.join(_names(op))}]"


def _names(op: RuleTable) -> list[str]:
    held = (*op.array_slots, *op.nested_slots)
    count = len(op.schema.parameters)
    return [f"n{i}" if i in held else f"v{i}" for i in range(count)]


def _list_lines(op: RuleTable) -> list[str]:
    """Lines that copy lists of constants, which the caller may change later."""
    lines = []
    for i, p in enumerate(op.schema.parameters):
        declared = p.type.item if isinstance(p.type, Maybe) else p.type
        if isinstance(declared, ListOf) and i not in op.nested_slots:
            lines.append(f"    v{i} = again(v{i})")
    return lines


def _entry_lines(op: RuleTable) -> list[str]:
    """Lines that take nodes and values out of the tracers."""
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
    """Lines that run the fake kernel without the steps of a call."""
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
    condition = " and ".join(parts)
    lines = [f"    elif {condition}:", *(f"        {line}" for line in run)]
    return [*lines, "        val = out"]


def _remembered(op: RuleTable, inputs: str, run: Sequence[str]) -> list[str]:
    """Lines that look a fake result up, which takes 1 us less than to work it out.

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
    """A fake result, with the shape of an argument in place of one that is the same."""
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
    """Whether sizes are the same, without a question that could become a guard."""
    return len(first) == len(second) and all(map(_is_same_size, first, second))


def _is_same_size(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return bool(a == b if type(a) is int else a.expr == b.expr)


def _node_lines(op: RuleTable) -> list[str]:
    """Lines that do what `Graph.call` does, without its frames."""
    lines = [
        "    graph = self.graph",
        "    node = new(Node)",
        "    node.graph = graph",
        f"    node.name = graph.name_for({op.name!r})",
        "    node.op = CALL",
        "    node.target = op",
        "    node.users = {}",
        "    node._kwargs = {}",
        "    node._is_erased = False",
        "    node._meta = None",
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
    """Lines that leave out the arguments at the end that equal their defaults."""
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
