"""Lines of the generated plans of all transforms."""

from __future__ import annotations

from collections.abc import Sequence

from customop.core.table import RuleTable

__all__ = ["inputs_of", "taken", "tracer_lines", "view_lines"]


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
