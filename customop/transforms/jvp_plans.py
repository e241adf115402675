"""Plans of forward mode: what a call of one operator does, as generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from customop.core.dispatch import SCALARS
from customop.core.generated import generate
from customop.core.partials import RESULT, Pushforward, fitted
from customop.core.table import RuleTable
from customop.transforms.autograd.node import inexact
from customop.transforms.plan_lines import (
    inputs_of,
    run_lines,
    run_names,
    taken,
    tracer_lines,
)

__all__ = ["jvp_plan"]


# A result of these classes that has no derivative is returned as it is.
_PLAIN = frozenset((np.ndarray, *SCALARS))


def jvp_plan(
    op: RuleTable, rule: Any, cls: type, finish: Callable[..., Any]
) -> Callable[[Any, Sequence[Any]], Any]:
    """The plan of a plain operator, or of one whose only arrays are those of a list.

    Parameters
    ----------
    op : RuleTable
    rule : callable
        Its rule of forward mode.
    cls : type
        The class of tracers.
    finish : callable
        ``finish(op, rule, interpreter, args, pair)``: the result, from what the rule has
        returned, with all checks.
    """
    count = len(op.schema.parameters)
    slots = op.array_slots
    listed = op.list_slot
    moving = (*slots, listed)
    moves = ", ".join(f"tangent{i}" if i in moving else "None" for i in range(count))
    inputs = inputs_of(op)
    still = " and ".join(f"tangent{slot} is None" for slot in slots) or "True"
    if listed >= 0:
        still = "not moves"
    scope = {
        "Dual": cls,
        "finish": finish,
        "fitted": fitted,
        "inexact": inexact,
        "new": object.__new__,
        "op": op,
        "plain": _PLAIN,
        "ref": ref,
        "rule": rule,
        **run_names(op),
    }
    if isinstance(rule, Pushforward):
        body = _by_formulas(op, rule)
        scope |= {f"f{slot}": row.formula for slot, row in rule.rows.items()}
    else:
        body = [
            f"    pair = rule(({inputs}), ({moves},))",
            "    if type(pair) is not tuple or len(pair) != 2:",
            "        return finish(op, rule, self, args, pair)",
            "    out, total = pair",
        ]
    lines = [
        "def plan(self, args):",
        f"    {inputs}= args",
        *(taken(op, "Dual", "tangent") if listed < 0 else _list_lines(listed)),
        f"    if {still}:",
        f"        return finish(op, rule, self, args, (run({inputs}), None))",
        *body,
        # A result without derivatives: 2 us less than by the errors of None.
        "    if total is None and type(out) in plain and not inexact[out.dtype]:",
        "        if inexact[out.dtype] is False: return out",
        "    try:",
        "        dtype = out.dtype",
        "        fits = (",
        "            (total.shape == out.shape) is True",
        "            and total.dtype == dtype and inexact[dtype]",
        "        )",
        "    except AttributeError:",
        "        fits = False",
        "    if not fits:",
        "        return finish(op, rule, self, args, (out, total))",
        *tracer_lines(op, "Dual", "tangent", "total"),
    ]
    plan: Callable[[Any, Sequence[Any]], Any] = generate(
        f"{op.qualname} jvp", "\n".join(lines), "plan", scope
    )
    return plan


def _list_lines(slot: int) -> list[str]:
    """Lines that take the values and the tangents out of the tracers in a list."""
    return [
        f"    moves, values, tangent{slot} = False, [], []",
        f"    for value in v{slot}:",
        "        move = None",
        "        if type(value) is Dual and value.interpreter is self:",
        "            move = value.tangent",
        "            value = value.below",
        "            if move is not None: moves = True",
        "        values.append(value)",
        f"        tangent{slot}.append(move)",
        f"    v{slot} = values",
    ]


def _by_formulas(op: RuleTable, rule: Pushforward) -> list[str]:
    """Lines that sum the parts of the tangent."""
    lines = [*run_lines(op), "    total = None"]
    for slot, row in rule.rows.items():
        given = [f"tangent{slot}"]
        for at, of_shape in row.needs:
            name = "out" if at == RESULT else f"v{at}"
            given.append(f"{name}.shape" if of_shape else name)
        lines += [
            f"    if tangent{slot} is not None:",
            f"        part = f{slot}({', '.join(given)})",
            "        total = part if total is None else total + part",
        ]
    return [
        *lines,
        "    if total is not None and (",
        "        (total.shape == out.shape) is not True or total.dtype != out.dtype",
        "    ): total = fitted(total, out)",
    ]
