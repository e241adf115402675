"""The interpreter of reverse mode, and the arrays that it saves for backward.

A write by an operator is always seen: operators note what they write. A write by other
code, such as ``b *= 2`` on a NumPy array, is seen where the node is watched: it then has
checksums of what it keeps. The first run of each differentiated function is watched,
see `runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import abbreviated, describe, flat
from customop.core.builtin_kinds import AUTOGRAD
from customop.core.contract import checksum, last_write
from customop.core.interpreter import Interpreter, current_mode
from customop.core.reach import ValueSearch
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer, fill, frozen, origins, share
from customop.errors import (
    ContractError,
    CustomOpError,
    GradientError,
    caller_place,
    with_article,
)
from customop.transforms.autograd.reverse_plans import make_plan
from customop.transforms.autograd.tape import (
    GradNode,
    GradTracer,
    Leaf,
    Output,
    inexact,
    no_variable,
)
from customop.transforms.runs import Subject, is_watched, report

# The kind of the mode that computes without tracking.
NO_GRAD = RuleKind("no_grad")


class GradInterpreter(Interpreter):
    """One running reverse-mode transform."""

    kind: ClassVar[RuleKind] = AUTOGRAD
    tracer_class: ClassVar[type[Tracer]] = GradTracer
    guards_inputs: bool = False
    # Whether the function was searched for the first argument that is written.
    has_looked: bool = False
    has_plans: ClassVar[bool] = True
    title: str = "grad"

    def variable(self, value: Any) -> GradTracer:
        """Return a tracer whose gradient is computed."""
        plain = type(value) is np.ndarray  # 150 ns less than asking `frozen`
        tracer = GradTracer(self, value if plain else frozen(value), Leaf(value))
        tracer.box_origin = value
        return tracer

    def constant(self, value: Any) -> Any:
        """Return a constant as a tracer if it has a dtype of floats, else as it is."""
        return GradTracer(self, value, None) if inexact[value.dtype] else value

    def replace(self, box: Tracer, new: Any) -> None:
        """Put the content of another tracer into the one that the user holds."""
        assert isinstance(box, GradTracer)
        mode = current_mode.get()
        if box.node is not None and mode is not None and mode.kind is NO_GRAD:
            raise GradientError(
                f"{describe(box)} of {self.describe()} is written inside no_grad(): its"
                " gradient would not be that of its value",
                do="write it outside no_grad(), or write a copy: y = stop_gradient(x)",
            )
        fill(box, new)

    def backward(self, y: Any, gradient: Any, retain_graph: bool) -> None:
        """Raise an error, since only variables collect gradients."""
        raise no_variable(y)

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator below, and note how to go back through it."""
        try:
            plan = op.plans.by_tracer[GradTracer]
        except KeyError:
            plan = make_plan(op)
        return plan(self, args)

    def guard(self, origin: Any) -> None:
        """Note that an argument was written, if the function has it under another name."""
        if not self.has_looked:
            self.has_looked = True
            # A watched run guards each argument.
            self.guards_inputs = self.guards_inputs or self._holds(origin)
        super().guard(origin)

    def _holds(self, array: Any) -> bool:
        known = origins(array)
        search = ValueSearch(
            lambda value: any(share(value, v) for v in known), [self.fn]
        )
        return bool(search.found)

    def note_backward(self) -> None:
        """Note that backward has run through all calls."""

    def note_constant(self) -> None:
        """Note that the value is a constant, so that backward has nothing to run through."""


def interpreter_for(subject: Subject) -> GradInterpreter:
    """Return the interpreter for a run of a subject."""
    if subject.is_bare or not is_watched(subject):
        return GradInterpreter()
    return WatchingInterpreter(subject)


class WatchingInterpreter(GradInterpreter):
    """Reverse mode that notices when an array is overwritten before backward uses it."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject: Subject = subject
        self.is_sampled: bool = subject.is_sampled
        self.guards_inputs = True

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator, and keep checksums of what its node saved."""
        out = super().process(op, args)
        watch(args, out, is_sampled=self.is_sampled)
        return out

    def report(self, fault: CustomOpError) -> None:
        """Raise a fault; in a run chosen at random, do what the settings say."""
        report(fault, is_sampled=self.is_sampled)

    def note_backward(self) -> None:
        """Stop watching later runs of the subject."""
        self.subject.note_watched()

    def note_constant(self) -> None:
        """Stop watching later runs of the subject, if enough of them were constant."""
        self.subject.note_constant()


# ---- arrays that nodes keep: writes by operators ----


def check_unwritten(node: GradNode) -> None:
    """Raise for an array that an operator has written since the node kept it."""
    then = node.node_moment or node.node_number
    for name, value in _kept(node).items():
        if last_write(_real_array(value)) > then:
            raise node.node_op.error(
                GradientError,
                f"{name} saved for backward, {abbreviated(value)}, was written by an"
                " operator since",
                do="save a copy, or write after backward",
            )


def _kept(node: GradNode) -> dict[str, Any]:
    """Return the saved arrays of a node and the leaves of its attributes, by their names."""
    values = {f"array {i}": value for i, value in enumerate(node.saved_arrays)}
    for name, value in vars(node).items():
        if not name.startswith("node_") and name != "saved_arrays":
            values[f"ctx.{name}"] = value
    kept = {}
    for name, value in values.items():
        leaves = flat(value)
        if len(leaves) == 1 and leaves[0] is value:
            kept[name] = value
        else:
            kept |= {f"{name}, item {i}": v for i, v in enumerate(leaves)}
    return kept


def _real_array(value: Any) -> Any:
    """Return the array below all tracers."""
    while isinstance(value, Tracer):
        value = value.below
    return value


# ---- arrays that nodes keep: writes by any code ----


def watch(args: Sequence[Any], out: Any, *, is_sampled: bool) -> None:
    """Keep checksums of what the nodes of a call keep, to compare them in backward.

    In a run chosen by `config.sample_checks`, `config.on_failure` says what a fault does.
    """
    for leaf in flat(out):
        if type(leaf) is not GradTracer:
            continue
        node = leaf.node.node if type(leaf.node) is Output else leaf.node
        if not isinstance(node, GradNode) or _keeps_shapes_alone(node):
            continue
        if "node_backward" not in vars(node):
            node.node_watch = _Watch(node, args, out, is_sampled)
            # On this node, so that nodes that are not watched pay nothing.
            node.node_backward = _checked_backward


def _keeps_shapes_alone(node: GradNode) -> bool:
    """Return whether a node keeps nothing that can be overwritten, as in a capture."""
    kept = node.saved_arrays
    return not vars(node) and all(type(_real_array(v)) is FakeArray for v in kept)


class _Watch:
    """Marks of the values that a watched node keeps, and where they come from."""

    __slots__ = ("is_sampled", "marks", "names", "place")

    def __init__(
        self, node: GradNode, args: Sequence[Any], out: Any, is_sampled: bool
    ) -> None:
        self.place: str = caller_place()
        self.is_sampled: bool = is_sampled
        # Identity of an array or list -> the parameter that it was passed for.
        self.names: dict[int, str] = {id(_real_array(v)): "" for v in flat(out)}
        for p, value in zip(node.node_op.schema.parameters, args, strict=True):
            for item in (value, *flat(value)):
                if is_array(item) or type(item) is list:
                    self.names.setdefault(id(_real_array(item)), p.name)
        self.marks: Marks = _marks(node)


# Name in `_kept` -> the mark of the value.
Marks = dict[str, Any]


def _marks(node: GradNode) -> Marks:
    return {name: _mark(value) for name, value in _kept(node).items()}


def _mark(value: Any) -> Any:
    """Return a mark that differs once a value is overwritten or replaced."""
    if isinstance(value, _PLAIN):
        return repr(value)  # nan equals nan
    return checksum(_real_array(value))


_PLAIN = (bool, int, float, complex, str, type(None))


def _checked_backward(node: GradNode, *grads: Any) -> Any:
    """Compare the marks around a run of the backward formula."""
    watch = node.node_watch
    name = _changed(node, watch.marks)
    if name is not None:
        report(_overwritten(node, name), is_sampled=watch.is_sampled)
        watch.marks = _marks(node)
    found = type(node).node_backward(node, *grads)
    name = _changed(node, watch.marks)
    if name is not None:
        # A formula may keep a state of its own in ctx.
        if name.startswith("array ") or watch.names.get(id(_value(node, name))):
            report(_written_by_formula(node, name), is_sampled=watch.is_sampled)
        watch.marks = _marks(node)
    return found


def _changed(node: GradNode, before: Marks) -> str | None:
    """Return the name of the first value that has changed, or None."""
    now = _marks(node)
    if now == before:
        return None
    names = [*before, *now]
    return next(n for n in names if n not in now or now[n] != before.get(n, now))


def _value(node: GradNode, name: str) -> Any:
    """Return the array of a name in `_kept`, or the list that holds it."""
    value = _real_array(_kept(node).get(name))
    if is_array(value):
        return value
    first = name.partition(",")[0]
    if first.startswith("array "):
        return node.saved_arrays[int(first.removeprefix("array "))]
    return getattr(node, first.removeprefix("ctx."), None)


def _overwritten(node: GradNode, name: str) -> GradientError:
    watch, value = node.node_watch, _value(node, name)
    parameter = watch.names.get(id(value))
    do = "save a copy in setup_context"
    if parameter:
        name, do = f"argument '{parameter}'", f"pass {parameter}.copy()"
    elif parameter == "":
        name, do = "the result", "write to a copy of it: y = y.copy()"
    return node.node_op.error(
        GradientError,
        f"{name}, {_text(value)}, was overwritten after the call, and backward"
        " needs its old values",
        f"called at {watch.place}",
        do=f"{do}, or write after backward",
        parameter=parameter or None,
        kind="autograd",
    )


def _written_by_formula(node: GradNode, name: str) -> ContractError:
    return node.node_op.error(
        ContractError,
        f"backward writes into {name}, {_text(_value(node, name))}, which was"
        " saved for it",
        f"backward at {node.node_rule.backward_place}",
        do="compute a new array: y = y * 2.0 instead of y *= 2.0",
        parameter=None,
        kind="autograd",
    )


def _text(value: Any) -> str:
    return abbreviated(value) if is_array(value) else with_article(type(value).__name__)
