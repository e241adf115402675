"""Plans: what a call of one operator does under a transform, as generated code.

A plan unpacks the arguments, runs the operator, applies a rule, checks the answer and
wraps it. The lines for the rule and its checks are those of each transform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from customop.arrays.nested import map_nested, map_outline
from customop.core.codegen import (
    NUMBERS,
    all_constants,
    generate,
    has_fast_path,
    sizes_guard,
)
from customop.core.dispatch import SCALARS
from customop.core.interpreter import Interpreter
from customop.core.observe import open_modes
from customop.core.rule_kind import RuleKind
from customop.core.rule_makers import RESULT
from customop.core.table import RuleTable
from customop.core.tracer import Tracer, connect_results
from customop.schema.types import ArrayType

# A transform and the values of all parameters -> the result.
Plan = Callable[[Any, Sequence[Any]], Any]


class PlanWriter:
    """Source text of the plan of one operator.

    Lines are written without the indentation of the function. In them the arguments are
    ``v0``, ``v1`` and so on, and the slots of their tracers such as ``node0``.

    Parameters
    ----------
    op : RuleTable
    kind : RuleKind
    tracer : type of Tracer
        It adds one slot to those of all tracers.
    names : dict
        What the lines of the transform use.

    Attributes
    ----------
    values : str
        The values of a call, as the items of a tuple.
    owns : str
        The slots of their tracers; None for what cannot be a tracer.
    """

    def __init__(
        self, op: RuleTable, kind: RuleKind, tracer: type[Tracer], names: dict[str, Any]
    ) -> None:
        self.op: RuleTable = op
        self.title: str = f"{op.qualname} {kind.name}"
        (own,) = vars(tracer)["__slots__"]
        self.own: str = own
        own_slots = (*op.array_slots, op.list_slot)
        count = range(len(op.schema.parameters))
        self.values: str = "".join([f"v{i}, " for i in count])
        self.owns: str = "".join(
            [f"{own}{i}, " if i in own_slots else "None, " for i in count]
        )
        own_names = {"Tracer": tracer, "fast": op.fast, "op": op, "run": op.run}
        self.names: dict[str, Any] = _NAMES | names | own_names

    def make(self, lines: Iterable[str]) -> Plan:
        """Return the plan that runs these lines, after those that unpack the arguments."""
        body = [f"{self.values}= args", *self._unpack(), *lines]
        text = "\n".join(["def plan(self, args):", *inside(body), ""])
        plan: Plan = generate(self.title, text, "plan", self.names)
        return plan

    # ---- unpack ----

    def _unpack(self) -> list[str]:
        """Return lines that take each value and its slot out of the tracer."""
        op, own = self.op, self.own
        if len(op.array_slots) == 1 and not op.nested_slots:
            # A single array is the tracer that brought the call here.
            (i,) = op.array_slots
            return [f"{own}{i} = v{i}.{own}", f"v{i} = v{i}.below"]
        lines = []
        for i in op.array_slots:
            lines += [f"{own}{i} = None", *self._lower(f"v{i}", f"{own}{i}")]
        for i in op.nested_slots:
            if i != op.list_slot:  # a copy, which is kept
                copied = (
                    f"if type(v{i}) is list and all_constants(v{i}): v{i} = [*v{i}]"
                )
                lines += [copied, f"else: v{i} = map_nested(v{i}, self.lower)"]
                continue
            lines += [
                f"{own}{i}, values = [], []",
                f"for value in v{i}:",
                "    own = None",
                *inside(self._lower("value", "own")),
                f"    {own}{i}.append(own)",
                "    values.append(value)",
                f"v{i} = values",
            ]
        return lines

    def _lower(self, value: str, own: str) -> list[str]:
        return [
            f"if type({value}) is Tracer and {value}.interpreter is self:",
            f"    {own} = {value}.{self.own}",
            f"    {value} = {value}.below",
        ]

    # ---- run ----

    def run(self) -> list[str]:
        """Return lines that compute `out` by the operator; of plain arrays, by its kernel.

        That takes a frame less than the operator: 100 ns. Scalars of NumPy, as ``x[0]``
        gives them, go to it as arrays without axes: 3 us less.
        """
        test, slots = self.kernel_test(), self.op.array_slots
        if not test:
            return [f"out = run({self.values})"]
        lines = [f"if {test}: out = fast.kernel({self.values})"]
        if slots:
            given = "".join(
                f"asarray(v{i}) if type(v{i}) in scalars else v{i}, "
                if i in slots
                else f"v{i}, "
                for i in range(len(self.op.schema.parameters))
            )
            test = self.kernel_test(scalars=True)
            lines.append(f"elif {test}: out = fast.kernel({given})")
        return [*lines, f"else: out = run({self.values})"]

    def kernel_test(self, *, scalars: bool = False) -> str:
        """Return the condition that the values of a call go to the kernel at once.

        Empty for an operator whose calls do more than that. With `scalars` arrays may be
        scalars of NumPy.
        """
        op, schema = self.op, self.op.schema
        does_more = schema.written or schema.has_shapes or schema.keyword_only
        listed = op.list_slot
        if does_more or not has_fast_path(op) or (op.nested_slots and listed < 0):
            return ""
        tests = [self._array_test(slot, scalars) for slot in op.array_slots]
        if listed >= 0:
            tests = [f"arrays.issuperset(map(type, v{listed}))", f"v{listed}"]
        if not tests or not all(tests):
            return ""
        if not any(test.endswith("is fast.array") for test in tests):
            # No other test shows whether the kernel may be called.
            tests.insert(0, "fast.array is ndarray")
        held = (*op.array_slots, listed)
        rest = [f"v{i}" for i in range(len(schema.parameters)) if i not in held]
        return " and ".join([*tests, *sizes_guard(rest, self._bind), "not modes"])

    def _array_test(self, slot: int, scalars: bool) -> str:
        declared = self.op.schema.parameters[slot].type
        if not isinstance(declared, ArrayType):
            return ""
        others = ["scalars"] * scalars + ["plain_numbers"] * declared.or_number
        tests = [f"type(v{slot}) in {name}" for name in others]
        test = " or ".join([f"type(v{slot}) is fast.array", *tests])
        return f"({test})" if others else test

    def _bind(self, name: str, value: Any) -> str:
        self.names[name] = value
        return name

    # ---- wrap ----

    def wrap(self, own: str) -> list[str]:
        """Return lines that return `out` in a tracer with this value of its slot."""
        lines = [
            # Made without a call of its __init__: 40 ns less.
            "tracer = new(Tracer)",
            "tracer.interpreter = self",
            "tracer.below = out",
            f"tracer.{self.own} = {own}",
        ]
        slot = self.op.view_slot
        if slot < 0:
            lines.append("tracer.box_place = tracer.box_views = None")
        else:  # what `connect` does, without the frame: 150 ns less
            lines += [
                "tracer.box_place = (op, args, 0)",
                "tracer.box_views = None",
                f"views = args[{slot}].box_views",
                f"if views is None: views = args[{slot}].box_views = {{}}",
                "views[id(tracer)] = ref(tracer)",
            ]
        return [*lines, "return tracer"]


def inside(lines: Iterable[str]) -> list[str]:
    """Return the lines of a block."""
    return [f"    {line}" for line in lines]


def value_text(need: tuple[int, bool]) -> str:
    """Return the text of what a formula takes: a value, the result, or its shape."""
    slot, of_shape = need
    name = "out" if slot == RESULT else f"v{slot}"
    return f"{name}.shape" if of_shape else name


# ---- operators that the writer does not cover ----


def general_plan(op: RuleTable) -> Plan:
    """Return the plan that calls the method ``general`` of the interpreter."""
    return lambda interpreter, args: connected(op, args, interpreter.general(op, args))


def unpacked(
    interpreter: Interpreter,
    op: RuleTable,
    args: Sequence[Any],
    own_of: Callable[[Any], Any],
) -> tuple[list[Any], list[Any]]:
    """Return the values of a call, and what `own_of` says of its tracers, nested as these."""
    values = list(args)
    owns: list[Any] = [None] * len(values)
    for slot in op.array_slots:
        owns[slot] = own_of(values[slot])
        values[slot] = interpreter.lower(values[slot])
    for slot in op.nested_slots:
        owns[slot] = map_outline(values[slot], own_of)
        values[slot] = map_nested(values[slot], interpreter.lower)
    return values, owns


def connected(op: RuleTable, args: Sequence[Any], out: Any) -> Any:
    """Return the result of a call, whose views are connected to the argument."""
    if op.view_slot >= 0:
        connect_results(op, args, args, out)
    return out


_NAMES = {
    "all_constants": all_constants,
    "arrays": frozenset((np.ndarray,)),
    "asarray": np.asarray,
    "connected": connected,
    "map_nested": map_nested,
    "modes": open_modes,
    "ndarray": np.ndarray,
    "new": object.__new__,
    "plain_numbers": NUMBERS,
    "ref": ref,
    "scalars": SCALARS,
}
