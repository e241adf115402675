"""How the chunks of the arrays of NumPy's and SciPy's operators are brought together.

An operator that is not here, not pointwise and not in ``numpy_kernels.py`` gets whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import prod
from typing import Any, TypeAlias

from dask import config
from dask.utils import format_bytes, parse_bytes

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.core.table import RuleTable
from customop.errors import MissingRuleError, ShapeError
from customop.interop.dask.chunks import (
    Labels,
    arrays_of,
    fakes_of,
    is_chunked,
    on_chunks,
    rows,
)
from customop.schema.fit import typed_arrays

__all__ = ["OURS", "PLANS", "Plan", "by_rows", "joined", "typed"]

# Their operators may join chunks, as long as they get no larger than dask likes them.
OURS = ("np", "scipy", "customop")

# plan(op, values, arrays, fakes) -> labels of the arrays, labels of each result.
Plan: TypeAlias = Callable[
    [RuleTable, Sequence[Any], Sequence[Any], Sequence[Any]],
    tuple[Labels, list[tuple[int, ...]]],
]


def by_rows(*core: int | None) -> Plan:
    """Rows that a kernel treats separately.

    Parameters
    ----------
    *core : int or None
        How many of the last axes of each array make a row; None for all axes. The last
        number counts for all arrays that follow.
    """

    def plan(
        op: RuleTable, values: Any, arrays: Sequence[Any], fakes: Sequence[Any]
    ) -> tuple[Labels, list[tuple[int, ...]]]:
        given = (*core, *core[-1:] * len(arrays))
        axes = [
            x.ndim if n is None else min(n, x.ndim)
            for x, n in zip(arrays, given, strict=False)
        ]
        labels = rows(arrays, axes)
        fresh = count(max([*labels.loop, *sum(labels.arrays, ())], default=-1) + 1)
        outs = [
            (*labels.loop, *[next(fresh) for _ in range(f.ndim - len(labels.loop))])
            for f in fakes
        ]
        return labels, outs

    return plan


def by_axis(name: str) -> Plan:
    """One array, and the axis or axes that a parameter names; the others stay in chunks.

    The axes are in the result, with other lengths perhaps, or they are left out.
    """

    def plan(
        op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Any
    ) -> tuple[Labels, list[tuple[int, ...]]]:
        (x,) = arrays
        position = [p.name for p in op.schema.parameters].index(name)
        axis = values[position]
        given = range(x.ndim) if axis is None else [axis] if type(axis) is int else axis
        core = {i % x.ndim for i in given} if x.ndim else set()
        own = tuple(range(x.ndim))
        loop = tuple(i for i in own if i not in core)
        outs = [_kept(own, core) if f.ndim == x.ndim else loop for f in fakes]
        return Labels([own], loop), outs

    return plan


def _kept(own: Sequence[int], core: set[int]) -> tuple[int, ...]:
    return tuple(i + len(own) if i in core else i for i in own)


def _solve(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Sequence[Any]
) -> tuple[Labels, list[tuple[int, ...]]]:
    """Matrices, and vectors or matrices."""
    plan = by_rows(2, 1 if arrays[1].ndim == 1 else 2)
    return plan(op, values, arrays, fakes)


# ---- NumPy and SciPy ----


def _polyval(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Sequence[Any]
) -> tuple[Labels, list[tuple[int, ...]]]:
    """Coefficients of one polynomial, and places; or of several beside places."""
    plan = by_rows(None, 0 if arrays[0].ndim == 1 else None)
    return plan(op, values, arrays, fakes)


def _digitize(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Sequence[Any]
) -> tuple[Labels, list[tuple[int, ...]]]:
    """Places in one sequence of edges, or rows of both."""
    x, bins = arrays
    plan = by_rows(0, None) if bins.ndim == 1 else by_rows(x.ndim - bins.ndim + 1, 1)
    return plan(op, values, arrays, fakes)


_MATRICES = by_rows(2)
_NUMBERS = by_rows(0)
_AXIS = by_axis("axis")
_AXES = by_axis("axes")

PLANS: dict[str, Plan] = {
    **{
        f"np::{name}": _MATRICES
        for name in (
            *("det", "slogdet", "cofactors", "moved_cofactors", "inv", "cholesky"),
            *("qr", "svd", "svdvals", "eig", "eigvals", "eigh", "eigvalsh"),
        )
    },
    "np::pinv": by_rows(2, 0),
    "np::solve": _solve,
    "np::cross": by_rows(1),
    "np::require": by_rows(0, None),
    "np::interp": by_rows(0, None),
    "np::digitize": _digitize,
    "np::isin": by_rows(0, None),
    "np::searchsorted": by_rows(None, 0, None),
    "np::polyval": _polyval,
    "np::unravel_index": _NUMBERS,
    "np::ravel_multi_index": _NUMBERS,
    **{
        f"np::{name}": _AXIS
        for name in (
            *("sort", "argsort", "partition", "argpartition", "packbits", "unpackbits"),
            *("diff", "reduce", "accumulate", "reduceat"),
        )
    },
    **{f"np::{name}": _AXES for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    "scipy::solve_triangular": _MATRICES,
    "scipy::expm": _MATRICES,
    "scipy::lu_factor": _MATRICES,
    "scipy::sici": _NUMBERS,
    "scipy::shichi": _NUMBERS,
    "scipy::fresnel": _NUMBERS,
}

# ---- kernels ----


def joined(op: RuleTable, plan: Plan) -> Callable[..., Any]:
    """A kernel that runs on joined chunks, as a plan says."""

    def kernel(*args: Any, **keywords: Any) -> Any:
        values = [*args, *keywords.values()]
        nested = fakes_of(op, values)
        fakes = flat(nested)
        if not fakes or not all(map(is_array, fakes)):
            raise op.error(
                MissingRuleError,
                " returns more than arrays, which cannot be computed later",
                do=f'@{op.name}.register_kernel("dask")',
                kind="dask",
            )
        arrays = arrays_of(values)
        labels, outs = plan(op, values, arrays, fakes)
        _check_whole(op, values, arrays, labels)
        return on_chunks(op, values, labels, outs, nested)

    return kernel


# ---- axes that must be whole ----


def _check_whole(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], labels: Labels
) -> None:
    """Raise for an axis in several chunks that the kernel needs whole."""
    for number, (x, own) in enumerate(zip(arrays, labels.arrays, strict=True)):
        core = [i for i, label in enumerate(own) if label not in labels.loop]
        cut = [i for i in core if x.numblocks[i] > 1]
        if cut and not (op.namespace in OURS and _is_small(x, core)):
            raise _cut(op, typed(op, values)[number], x, core, cut)


def _limit() -> int:
    return int(parse_bytes(config.get("array.chunk-size")))


def _joined(x: Any, core: Sequence[int]) -> float:
    """Bytes of the largest chunk once some axes are in one chunk."""
    lengths = [
        x.shape[i] if i in core else max(x.chunks[i], default=0) for i in range(x.ndim)
    ]
    return float(prod(lengths) * x.dtype.itemsize)


def _is_small(x: Any, core: Sequence[int]) -> bool:
    """Whether joined chunks are at most as large as dask makes chunks by itself."""
    return not _joined(x, core) > _limit()  # an unknown length is not larger


def _cut(
    op: RuleTable,
    typed: tuple[str, str, Any],
    x: Any,
    core: Sequence[int],
    cut: Sequence[int],
) -> ShapeError:
    name, place, shape = typed
    axis = cut[0]
    entry = "" if shape is None else f" ('{shape.entries[axis - x.ndim]}')"
    chunks = ", ".join(f"{i}: -1" for i in cut)
    what = (
        f"{place} has {x.numblocks[axis]} chunks along axis {axis}{entry}, which the"
        " kernel needs whole"
    )
    if op.namespace in OURS:
        what += (
            f": joined they have {format_bytes(int(_joined(x, core)))}, and dask's"
            f" array.chunk-size is {format_bytes(_limit())}"
        )
    return op.error(
        ShapeError,
        what,
        do=f"{name}.rechunk({{{chunks}}}), if a worker can hold such a chunk",
        parameter=name,
    )


def typed(op: RuleTable, values: Sequence[Any]) -> list[tuple[str, Any, Any]]:
    """The arrays of a call: their parameter, their place in words, and their shape."""
    pairs = zip(op.schema.parameters, values, strict=True)
    return [
        (p.name, f"argument '{p.name}'{where}", t.shape)
        for p, value in pairs
        for where, x, t in typed_arrays(value, p.type)
        if is_chunked(x)
    ]
