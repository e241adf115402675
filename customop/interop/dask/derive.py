"""Which kernel an operator has for dask arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.kinds import DEFAULT
from customop.core.derived.find import find_fake
from customop.core.derived.shape_fake import loop_name, result_types
from customop.core.rule_kind import COMPOSITE
from customop.core.table import RuleTable
from customop.errors import MissingRuleError
from customop.interop.dask.broadcasts import on_sources
from customop.interop.dask.chunks import Labels
from customop.interop.dask.numpy_kernels import KERNELS
from customop.interop.dask.plans import OURS, PLANS, Plan, by_rows, joined, typed
from customop.schema.tags import Tag
from customop.schema.types import holds_arrays

__all__ = ["derive"]


def derive(op: RuleTable) -> Callable[..., Any] | None:
    """The kernel of an operator for dask arrays; None if its default kernel serves."""
    takes_arrays = any(holds_arrays(p.type) for p in op.schema.parameters)
    if COMPOSITE in op.rows or not takes_arrays:
        return None
    if op.qualname in KERNELS:
        return KERNELS[op.qualname](op)
    if op.schema.written:
        return _refused(
            op, f" writes '{op.schema.written[0]}', and a dask array cannot"
        )
    if op.sees_seed:
        return _refused(op, " draws random numbers: each chunk would draw the same")
    plan = _plan_of(op)
    if plan is None:
        return None
    kernel = joined(op, plan)
    return on_sources(op, kernel) if Tag.pointwise in op.tags else kernel


def _plan_of(op: RuleTable) -> Plan | None:
    """How the chunks of the arrays are brought together; None to leave it to dask."""
    if op.qualname in PLANS:
        return PLANS[op.qualname]
    if Tag.pointwise in op.tags:
        return by_rows(0)
    if op.schema.has_shapes and result_types(op.schema):
        return _by_shapes
    if op.namespace not in OURS and (DEFAULT in op.rows or find_fake(op) is None):
        return None
    return by_rows(None)


def _by_shapes(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Sequence[Any]
) -> tuple[Labels, list[tuple[int, ...]]]:
    """Chunks of the axes that begin every shape, ``...`` or ``*batch``."""
    name = loop_name(op.schema)
    core: list[int | None] = []
    for _, _, shape in typed(op, values):
        loop = shape.loop if shape is not None and shape.leads else None
        is_own = loop is not None and loop.name == name
        core.append(len(shape.after) if is_own and shape is not None else None)
    return by_rows(*core)(op, values, arrays, fakes)


def _refused(op: RuleTable, what: str) -> Callable[..., Any]:
    """A kernel that raises."""

    def kernel(*args: Any, **keywords: Any) -> Any:
        raise op.error(
            MissingRuleError,
            what,
            do=f'@{op.name}.register_kernel("dask"), or pass x.compute()',
            kind="dask",
        )

    return kernel
