"""Lines of the generated plans of all transforms, and the plan without such lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.core.dispatch import SCALARS
from customop.core.observe import open_modes
from customop.core.table import RuleTable
from customop.core.tracer import connect_results
from customop.schema.types import ArrayType
from customop.shapes.sizes import has_sizes, made


def general_plan(op: RuleTable) -> Callable[[Any, Sequence[Any]], Any]:
    """The plan for an operator that a generated one does not fit."""

    def plan(interpreter: Any, args: Sequence[Any]) -> Any:
        out = interpreter.general(op, args)
        if op.view_slot >= 0:
            connect_results(op, args, args, out)
        return out

    return plan


_ARRAYS = frozenset((np.ndarray,))
# Symbolic sizes are not among them.
_PLAIN_NUMBERS = frozenset((bool, int, float, complex))


def inputs_of(op: RuleTable) -> str:
    """The names of the values of a call, as the items of a tuple."""
    return "".join(f"v{i}, " for i in range(len(op.schema.parameters)))


def taken(op: RuleTable, cls: str, own: str) -> list[str]:
    """Lines that take each array out of its tracer.

    Parameters
    ----------
    op : RuleTable
    cls : str
        The name of the class of tracers.
    own : str
        The slot that they have beside the value. ``own0`` is that of argument 0, or
        None for a constant.
    """
    if len(op.array_slots) == 1 and not op.nested_slots:
        # A single array is the tracer that brought the call here.
        (slot,) = op.array_slots
        return [f"    {own}{slot} = v{slot}.{own}", f"    v{slot} = v{slot}.below"]
    lines = []
    for slot in op.array_slots:
        v, x = f"v{slot}", f"{own}{slot}"
        lines += [
            f"    {x} = None",
            f"    if type({v}) is {cls} and {v}.interpreter is self:",
            f"        {x} = {v}.{own}",
            f"        {v} = {v}.below",
        ]
    return lines


def plain_test(op: RuleTable, *, scalars: bool = False) -> str:
    """The condition that the values of a call go to the kernel for plain arrays at once.

    Empty for an operator whose calls do more than that. With `scalars` they may be
    scalars of NumPy, of which the kernel takes arrays.
    """
    schema = op.schema
    types = [schema.parameters[slot].type for slot in op.array_slots]
    does_more = (
        *(schema.written, schema.has_shapes, schema.keyword_only, op.nested_slots),
        *(op.sees_seed, op.is_factory, op.needs_contiguous),
    )
    if any(does_more) or not types:
        return ""
    tests = []
    for slot, declared in zip(op.array_slots, types, strict=True):
        if not isinstance(declared, ArrayType):
            return ""
        others = ["scalars"] * scalars + ["plain_numbers"] * declared.or_number
        is_array = [f"type(v{slot}) is fast.array"]
        is_array += [f"type(v{slot}) in {name}" for name in others]
        tests.append(is_array[0] if not others else f"({' or '.join(is_array)})")
    if scalars or all(declared.or_number for declared in types):  # type: ignore[union-attr]  # array types
        # Numbers alone do not show whether the kernel may be called.
        tests.insert(0, "fast.array is ndarray")
    rest = [i for i in range(len(schema.parameters)) if i not in op.array_slots]
    if rest:  # of symbolic sizes kernels of real arrays know nothing
        found = " or ".join([f"has_sizes(v{i})" for i in rest])
        tests.append(f"not (made and ({found}))")
    return " and ".join([*tests, "not modes"])


def _list_test(op: RuleTable) -> str:
    """As `plain_test`, for an operator whose only arrays are those of a list."""
    schema = op.schema
    does_more = (
        *(schema.written, schema.has_shapes, schema.keyword_only, op.array_slots),
        *(op.sees_seed, op.is_factory, op.needs_contiguous),
    )
    if any(does_more) or len(op.nested_slots) > 1:
        return ""
    tests = ["fast.array is ndarray", f"arrays.issuperset(map(type, v{op.list_slot}))"]
    rest = [i for i in range(len(schema.parameters)) if i != op.list_slot]
    if rest:
        found = " or ".join([f"has_sizes(v{i})" for i in rest])
        tests.append(f"not (made and ({found}))")
    return " and ".join([*tests, f"v{op.list_slot}", "not modes"])


def run_lines(op: RuleTable) -> list[str]:
    """Lines that compute `out` by the operator; of plain arrays, by its kernel.

    That takes a frame less than the operator: 100 ns. Scalars of NumPy, as ``x[0]``
    gives them, go to it as arrays without axes: 3 us less.
    """
    inputs, test = inputs_of(op), plain_test(op)
    if op.list_slot >= 0 and (listed := _list_test(op)):
        return [
            f"    if {listed}: out = fast.kernel({inputs})",
            f"    else: out = run({inputs})",
        ]
    if not test:
        return [f"    out = run({inputs})"]
    slots = op.array_slots
    given = [
        f"asarray(v{i}) if type(v{i}) in scalars else v{i}" if i in slots else f"v{i}"
        for i in range(len(op.schema.parameters))
    ]
    return [
        f"    if {test}: out = fast.kernel({inputs})",
        f"    elif {plain_test(op, scalars=True)}: out = fast.kernel({', '.join(given)})",
        f"    else: out = run({inputs})",
    ]


def run_names(op: RuleTable) -> dict[str, Any]:
    """The names in the lines of `plain_test` and `run_lines`."""
    return {
        "arrays": _ARRAYS,
        "asarray": np.asarray,
        "fast": op.fast,
        "has_sizes": has_sizes,
        "made": made,
        "modes": open_modes,
        "ndarray": np.ndarray,
        "plain_numbers": _PLAIN_NUMBERS,
        "run": op.run,
        "scalars": SCALARS,
    }


def tracer_lines(op: RuleTable, cls: str, own: str, value: str) -> list[str]:
    """Lines that make the tracer of the result `out` and return it."""
    return [
        # Made without a call of its __init__: 40 ns less.
        f"    tracer = new({cls})",
        "    tracer.interpreter = self",
        "    tracer.below = out",
        f"    tracer.{own} = {value}",
        *view_lines(op),
        "    return tracer",
        "",
    ]


def view_lines(op: RuleTable) -> Sequence[str]:
    """Lines that do what `connect` does, without the frame: 150 ns less."""
    if op.view_slot < 0:
        return ["    tracer.box_place = tracer.box_views = None"]
    parent = f"args[{op.view_slot}]"
    return [
        "    tracer.box_place = (op, args, 0)",
        "    tracer.box_views = None",
        f"    views = {parent}.box_views",
        f"    if views is None: views = {parent}.box_views = {{}}",
        "    views[id(tracer)] = ref(tracer)",
    ]
