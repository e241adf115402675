"""Plans of vmap: what a call of one operator does to rows, as generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from customop.arrays.kinds import is_array
from customop.core.codegen import generate
from customop.core.derived.pointwise import align
from customop.core.kinds import VMAP
from customop.core.table import RuleTable
from customop.schema.tags import Tag
from customop.shapes.symbols import number_classes
from customop.transforms.plan_lines import inputs_of, taken, tracer_lines

__all__ = ["batch_plan"]


def batch_plan(
    op: RuleTable, rule: Any, cls: type, finish: Callable[..., Any]
) -> Callable[[Any, Sequence[Any]], Any]:
    """The plan of a plain operator.

    Parameters
    ----------
    op : RuleTable
    rule : callable
        Its batching rule.
    cls : type
        The class of tracers.
    finish : callable
        ``finish(op, rule, interpreter, args, in_dims, values, pair)``: the rows, from
        what the rule has returned, with all checks.
    """
    dims = ", ".join(
        f"dim{i}" if i in op.array_slots else "None"
        for i in range(len(op.schema.parameters))
    )
    inputs = inputs_of(op)
    given = f"({dims},)"
    own = op.rows.get(VMAP)
    lines = [
        "def plan(self, args):",
        f"    {inputs}= args",
        *taken(op, "Row", "dim"),
        "    dim = None",
        *(_elementwise(op) if own is None and Tag.pointwise in op.tags else []),
        "    if dim is not None:",
        f"        out = run({inputs})",
        "        pair = (out, dim)",
        "    else:",
        f"        pair = rule(self.info, {given}, {inputs})",
        "        if type(pair) is tuple and len(pair) == 2 and type(pair[1]) is int:",
        "            out, dim = pair",
        "        else: out = None",
        "    if type(out) is not ndarray and not is_array(out):",
        f"        return finish(op, rule, self, args, {given}, ({inputs}), pair)",
        "    shape = out.shape",
        "    if not len(shape) > dim >= 0 or shape[dim] != self.info.batch_size:",
        f"        return finish(op, rule, self, args, {given}, ({inputs}), pair)",
        *tracer_lines(op, "Row", "dim", "dim"),
    ]
    scope = {
        "Row": cls,
        "align": align,
        "finish": finish,
        "is_array": is_array,
        "ndarray": np.ndarray,
        "numbers": number_classes,
        "new": object.__new__,
        "op": op,
        "ref": ref,
        "rule": rule,
        "run": op.run,
    }
    plan: Callable[[Any, Sequence[Any]], Any] = generate(
        f"{op.qualname} vmap", "\n".join(lines), "plan", scope
    )
    return plan


def _elementwise(op: RuleTable) -> list[str]:
    """Lines for a pointwise operator whose rows lie as NumPy broadcasts them.

    They note the batch axis of the result as `dim`.
    """
    if len(op.array_slots) == 1:
        return [f"    dim = dim{op.array_slots[0]}"]
    if len(op.array_slots) != 2:
        return []
    text = _OF_TWO
    for name, slot in zip("ab", op.array_slots, strict=True):
        text = text.replace(f"v_{name}", f"v{slot}").replace(
            f"dim_{name}", f"dim{slot}"
        )
    return [f"    {line}" for line in text.splitlines()]


_OF_TWO = """\
if dim_b is None:
    if type(v_b) in numbers or dim_a == 0 and len(v_b.shape) < len(v_a.shape): dim = dim_a
elif dim_a is None:
    if type(v_a) in numbers or dim_b == 0 and len(v_a.shape) < len(v_b.shape): dim = dim_b
elif dim_a == dim_b:
    rank = len(v_a.shape) - len(v_b.shape)
    if rank == 0: dim = dim_a
    elif dim_a == 0:
        if rank > 0: v_b = align(v_b, 0, len(v_a.shape) - 1)
        else: v_a = align(v_a, 0, len(v_b.shape) - 1)
        dim = 0"""
