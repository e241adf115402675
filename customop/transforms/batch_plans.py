"""Plans of vmap: what a call of one operator does to rows, as generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from customop.arrays.kinds import CPU, is_array
from customop.core.axis_rules import AxisRule
from customop.core.derived.pointwise import align
from customop.core.dispatch import find_kernel
from customop.core.generated import generate
from customop.core.kinds import VMAP
from customop.core.prepared import constants_key, fixed
from customop.core.table import Plans, RuleTable
from customop.schema.tags import Tag
from customop.schema.types import ArrayType
from customop.shapes.symbols import number_classes
from customop.transforms.plan_lines import (
    inputs_of,
    plain_test,
    run_lines,
    run_names,
    taken,
    tracer_lines,
)

__all__ = ["WIDER", "batch_plan"]


def batch_plan(
    op: RuleTable, plans: Plans, rule: Any, cls: type, finish: Callable[..., Any]
) -> Callable[[Any, Sequence[Any]], Any]:
    """The plan of a plain operator.

    Parameters
    ----------
    op : RuleTable
    plans : Plans
        What is kept until its table changes.
    rule : callable
        Its batching rule.
    cls : type
        The class of tracers.
    finish : callable
        ``finish(op, rule, interpreter, args, in_dims, values, pair)``: the rows, from
        what the rule has returned, with all checks.
    """
    slots, count = op.array_slots, len(op.schema.parameters)
    given = "".join(f"dim{i}, " if i in slots else "None, " for i in range(count))
    inputs = inputs_of(op)
    end = f"return finish(op, rule, self, args, ({given}), ({inputs}), "
    is_own = op.rows.get(VMAP) is not None
    moves = isinstance(rule, AxisRule) and _move_lines(op, inputs, end)
    is_elementwise = not is_own and Tag.pointwise in op.tags
    if is_elementwise:
        plans.is_elementwise = _has_ufunc(op) and _takes_numbers(op)
        if op.plans is not plans:
            plans.close()
    lines = [
        "def plan(self, args):",
        f"    {inputs}= args",
        *taken(op, "Row", "dim"),
        *(moves or []),
        *(_elementwise(op, end) if is_elementwise else []),
        f"    pair = rule(self.info, ({given}), {inputs})",
        "    if type(pair) is tuple and len(pair) == 2 and type(pair[1]) is int:",
        "        out, dim = pair",
        "    else: out = None",
        *_check_lines(end),
        *(
            ["    if key: learn(known, key, rule, dim0, v0, args, alone)"]
            if moves
            else []
        ),
        *tracer_lines(op, "Row", "dim", "dim"),
    ]
    scope = {
        "Row": cls,
        "align": align,
        "alone": plans.alone,
        "finish": finish,
        "is_array": is_array,
        "known": {},
        "learn": _learn,
        "numbers": number_classes,
        "new": object.__new__,
        "op": op,
        "ref": ref,
        "rule": rule,
        "wider": WIDER,
        **run_names(op),
    }
    plan: Callable[[Any, Sequence[Any]], Any] = generate(
        f"{op.qualname} vmap", "\n".join(lines), "plan", scope
    )
    return plan


def _check_lines(end: str) -> list[str]:
    """Lines that leave the plan unless `out` has the rows along `dim`."""
    return [
        "    if type(out) is not ndarray and not is_array(out):",
        f"        {end}pair)",
        "    shape = out.shape",
        "    if not len(shape) > dim >= 0 or shape[dim] != self.info.batch_size:",
        f"        {end}pair)",
    ]


# ---- operators of one array that have an axis rule ----

# Calls that a plan keeps, each for a shape and constants.
_MOST_KNOWN = 256


def _move_lines(op: RuleTable, inputs: str, end: str) -> list[str]:
    """Lines for a plain batch whose shape and constants were met before."""
    test, texts = plain_test(op), constants_key(op)
    if not test or texts is None:
        return []
    key = "".join(f"{text}, " for text in ["v0.shape", "dim0", *texts])
    return [
        "    key = None",
        f"    if {test}:",
        f"        key = ({key})",
        "        found = known.get(key)",
        "        if found is not None:",
        "            call, dim = found",
        "            out = call(v0)",
        "            if type(out) is not ndarray:",
        f"                {end}(out, dim))",
        *[f"        {line}" for line in tracer_lines(op, "Row", "dim", "dim")[:-1]],
    ]


def _learn(
    known: dict[Any, Any],
    key: Any,
    rule: AxisRule,
    dim: int,
    batch: Any,
    args: Sequence[Any],
    alone: dict[Any, tuple[Callable[..., Any], int]],
) -> None:
    """Keep what a call does with these constants, after it has been checked."""
    kernel = rule.op.fast.kernel
    if kernel is None:
        return
    moved = rule.move(batch.shape, dim, *args[1:])
    if moved is not None:
        constants, out_dim = moved
        if len(known) >= _MOST_KNOWN:
            known.clear()
            alone.clear()
        known[key] = found = fixed(kernel, constants), out_dim
        others = zip(rule.op.schema.parameters[1:], args[1:], strict=True)
        if rule.op.view_slot < 0 and all(p.default is v for p, v in others):
            alone[batch.shape, dim] = found


# ---- pointwise operators ----


def _elementwise(op: RuleTable, end: str) -> list[str]:
    """Lines for a pointwise operator whose rows lie as NumPy broadcasts them.

    They note the batch axis of the result as `dim`.
    """
    slots = op.array_slots
    if len(slots) > 2:
        return []
    done = tracer_lines(op, "Row", "dim", "dim")[:-1]
    run = run_lines(op)
    if len(slots) == 1:
        aligned = [f"    dim = dim{slots[0]}"]
    else:
        text = _OF_TWO
        for name, slot in zip("ab", slots, strict=True):
            text = text.replace(f"v_{name}", f"v{slot}")
            text = text.replace(f"dim_{name}", f"dim{slot}")
        aligned = ["    dim = None", *[f"    {line}" for line in text.splitlines()]]
    checks = ["    pair = out, dim", *_check_lines(end)]
    if _has_ufunc(op):
        checks = ["    if type(out) is not ndarray:", *[f"    {c}" for c in checks]]
    lines = [*run, *checks, *done]
    return [*aligned, "    if dim is not None:", *[f"    {line}" for line in lines]]


def _has_ufunc(op: RuleTable) -> bool:
    """Whether arrays with a batch axis give one with that axis, for sure."""
    return isinstance(find_kernel(op, CPU.name), np.ufunc)


def _takes_numbers(op: RuleTable) -> bool:
    """Whether a call is nothing but one array, or two of which either may be a number."""
    types = [p.type for p in op.schema.parameters]
    if not plain_test(op) or op.view_slot >= 0 or len(types) != len(op.array_slots):
        return False
    both = all(isinstance(t, ArrayType) and t.or_number for t in types)
    return len(types) == 1 or (len(types) == 2 and both)


# Batches of scalars beside those of rows with so many axes more.
WIDER: tuple[Any, ...] = tuple((slice(None), *(None,) * n) for n in range(9))

_OF_TWO = """\
if dim_b is None:
    if type(v_b) in numbers: dim = dim_a
    elif dim_a == 0 and (type(v_b) is ndarray or is_array(v_b)):
        if len(v_b.shape) < len(v_a.shape): dim = dim_a
elif dim_a is None:
    if type(v_a) in numbers: dim = dim_b
    elif dim_b == 0 and (type(v_a) is ndarray or is_array(v_a)):
        if len(v_a.shape) < len(v_b.shape): dim = dim_b
elif dim_a == dim_b:
    rank = len(v_a.shape) - len(v_b.shape)
    if rank == 0: dim = dim_a
    elif dim_a == 0:
        if rank > 0:
            if type(v_b) is ndarray and rank < 9: v_b = v_b[wider[rank]]
            else: v_b = align(v_b, 0, len(v_a.shape) - 1)
        elif type(v_a) is ndarray and rank > -9: v_a = v_a[wider[-rank]]
        else: v_a = align(v_a, 0, len(v_b.shape) - 1)
        dim = 0"""
