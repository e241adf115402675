"""Rules that follow from an operator's tags when none is registered."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from customop.arrays.array import dtype_of
from customop.arrays.fake import FakeArray, fake_like
from customop.arrays.kinds import FAKE, device_of, is_array
from customop.arrays.nested import (
    abbreviated,
    children,
    like,
    map_beside,
    outline,
    show,
    steps,
)
from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.core.table import RuleTable
from customop.errors import (
    CustomOpError,
    DataDependentError,
    MissingRuleError,
    ShapeError,
    VmapError,
    warn_caller,
)
from customop.later import later
from customop.schema.tags import BY_DATA, Tag
from customop.schema.types import MISSING, has_shape, is_array_type
from customop.shapes.sizes import broadcast_sizes, same_shape

# Imported once a rule is asked for.
shape_rules: ModuleType = later(import_module, "customop.core.shape_rules")


# ---- batches row by row ----
# Take one row of the arguments, stack the results of all rows.


# Arguments, each with its batch axis: nested as the argument is, or None.
Pairs: TypeAlias = Sequence[tuple[Any, Any]]


def pairs_of(
    in_dims: Sequence[Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> list[tuple[Any, Any]]:
    """All arguments of a batching rule in order, each with its batch axis.

    `in_dims` leaves keyword-only arguments out where none of them has a batch.
    """
    values = (*args, *keywords.values())
    dims = (*in_dims, *(None,) * (len(values) - len(in_dims)))
    return list(zip(values, dims, strict=True))


def row(value: Any, dim: Any, index: int) -> Any:
    """One row of an argument, as a view that can be written."""
    if dim is None:
        return value

    def take(leaf: Any, axis: int | None) -> Any:
        if axis is None:
            return leaf
        key: tuple[Any, ...] = (*(slice(None),) * axis, index)
        if isinstance(leaf, np.ndarray):
            # The ellipsis makes a row without axes an array, which can be written.
            return leaf[(*key, Ellipsis)]
        return call_numpy(INDEXING, leaf, key)

    return map_beside(value, dim, take)


def run_rows(
    op: RuleTable,
    pairs: Pairs,
    size: int,
    before: Callable[[], object] | None = None,
) -> list[Any]:
    """Call an operator once for each row; `before` runs before each call."""
    warn_slow(op)
    results = []
    for i in range(size):
        if before is not None:
            before()
        results.append(op.invoke([row(value, dim, i) for value, dim in pairs]))
    return results


_warned: weakref.WeakSet[Any] = weakref.WeakSet()


def warn_slow(op: RuleTable) -> None:
    """Warn, once for each operator, that a batch runs row by row.

    Operators that draw random numbers give no warning, since they run in this loop.
    """
    if op.sees_seed or op in _warned:
        return
    _warned.add(op)
    warn_caller(
        f"{op.qualname} has no vmap rule: it runs once for each row, which is slow."
        f" Register one with @{op.name}.register_vmap",
    )


class Uneven(Exception):
    """The results of rows cannot be stacked; the text lists them."""


def stack_rows(rows: Sequence[Any]) -> tuple[Any, Any]:
    """The results of all rows as one, and the axis of the batch in each array.

    Raises
    ------
    Uneven
        If the rows differ in more than the elements of arrays.
    """
    nested = [children(r) for r in rows]
    if all(items is not None for items in nested):
        _check_nests(rows)
        pairs = [stack_rows(column) for column in zip(*nested, strict=True)]
        outs, dims = ([pair[i] for pair in pairs] for i in (0, 1))
        return like(rows[0], outs), outline(rows[0], dims)
    if all(is_array(r) for r in rows):
        if len({tuple(r.shape) for r in rows}) > 1:
            raise Uneven(f"arrays {_listed(map(abbreviated, rows))}")
        return call_numpy(np.stack, rows), 0
    if len({repr(r) for r in rows}) > 1:
        raise Uneven(f"the values {_listed(map(show, rows))}")
    return rows[0], None


def _check_nests(rows: Sequence[Any]) -> None:
    lengths = {len(steps(r)) for r in rows}
    if len(lengths) > 1:
        raise Uneven(f"lists of {sorted(lengths)} items")
    if len({(type(r), tuple(steps(r))) for r in rows}) > 1:
        raise Uneven(f"{show(rows[0])} and values with other keys")


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts))[:4])


# ---- rules from `Tag.pointwise`: batching by broadcasting, and fake kernels ----


def derive_vmap_pointwise(op: RuleTable) -> Callable[..., Any] | None:
    """The batching rule of a pointwise operator, or None for other operators."""
    if Tag.pointwise not in op.tags or op.nested_slots:
        return None
    return partial(_batch_pointwise, op)


def _batch_pointwise(
    op: RuleTable, info: Any, in_dims: Sequence[Any], *args: Any, **keywords: Any
) -> tuple[Any, Any]:
    """Put batches first and pad, so that NumPy's broadcasting pairs the rows."""
    pairs = pairs_of(in_dims, args, keywords)
    rank = rank_of_rows(pairs)
    out = op.invoke([align(v, d, rank) for v, d in pairs])
    return out, (0,) * len(op.schema.returns) if op.schema.is_tuple else 0


def rank_of_rows(pairs: Sequence[tuple[Any, int | None]]) -> int:
    """Number of axes of the rows, given arrays and their batch axes."""
    ranks = [v.ndim - (d is not None) for v, d in pairs if is_array(v)]
    return max(ranks, default=0)


def align(value: Any, dim: int | None, rank: int) -> Any:
    """A view of the array with its batch axis in front of `rank` others."""
    if dim is None:
        return value
    first = move_batch_first(value, dim)
    missing = rank - (first.ndim - 1)
    if not missing:
        return first
    shape = (first.shape[0], *(1,) * missing, *first.shape[1:])
    if type(first) is np.ndarray:
        return first.reshape(shape)
    return call_numpy(np.reshape, first, shape)


def move_batch_first(value: Any, dim: int) -> Any:
    """The array with its batch axis at the front."""
    return value if dim == 0 else call_numpy(np.moveaxis, value, dim, 0)


# ---- shapes ----


def derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    """A fake kernel of a pointwise operator that returns arrays, or None."""
    if Tag.pointwise not in op.tags or op.nested_slots:
        return None
    if not all(is_array_type(r.type) for r in op.schema.returns):
        return None
    return partial(_broadcast, op)


def _broadcast(op: RuleTable, *args: Any, **keywords: Any) -> Any:
    """Fake results with the shape and dtype of a sum of the arguments in NumPy."""
    values = (*args, *keywords.values())
    # As in NumPy, only the kind of a Python number affects the dtype.
    numbers = [v for v in values if type(v) in (int, float, complex)]
    arrays = [v for v in values if is_array(v)]
    if not arrays and not numbers:
        raise op.error(
            DataDependentError,
            " has no fake kernel for a call without arrays",
            do=f"@{op.name}.register_fake, a function that returns a FakeArray",
            kind=FAKE,
        )
    dtype = np.result_type(*[dtype_of(v) for v in arrays], *numbers)
    shape = _shape(op, arrays)
    like = next((v for v in arrays if same_shape(v.shape, shape)), None)
    if like is not None:
        out = fake_like(like, dtype=dtype, device=_device(arrays))
    else:
        out = FakeArray(shape, dtype, device=_device(arrays))
    return (out,) * len(op.schema.returns) if op.schema.is_tuple else out


def _shape(op: RuleTable, arrays: Sequence[Any]) -> tuple[int, ...]:
    try:
        return broadcast_sizes(*[v.shape for v in arrays])
    except ValueError:
        seen = ", ".join(abbreviated(v) for v in arrays)
        raise op.error(
            ShapeError,
            f"the shapes of {seen} do not fit together",
            do="pass arrays that NumPy can broadcast",
        ) from None


def _device(arrays: Sequence[Any]) -> str:
    """The device of a call; ``cuda:0`` is preferred to ``cuda``."""
    names = [device_of(v) for v in arrays]
    return max(names, key=lambda name: ":" in name, default="cpu")


# ---- fake kernels ----


class Guess:
    """A fake kernel derived from tags or shapes, which a call of a kernel may disprove.

    Attributes
    ----------
    fault : str
        How a call disproved it, or nothing.
    has_answered : bool
        Whether an answer was used: then a disproof is an error.
    """

    __slots__ = ("__wrapped__", "fault", "has_answered")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.__wrapped__: Callable[..., Any] = fn
        self.fault: str = ""
        self.has_answered: bool = False

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Run the derived fake kernel."""
        out = self.__wrapped__(*args, **keywords)
        self.has_answered = True
        return out


def find_fake(op: RuleTable) -> Callable[..., Any] | None:
    """The fake kernel of an operator: its own, one by tags or shapes, or None."""
    row = op.rows.get(FAKE)
    if row is not None:
        kernel: Callable[..., Any] = row.fn
        return kernel
    plans = op.plans
    if plans.fake is MISSING:
        plans.fake = _derive_fake(op)
    found: Callable[..., Any] | None = plans.fake
    return None if isinstance(found, Guess) and found.fault else found


def _derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    exact: Callable[..., Any] | None = shape_rules.derive_fake_inplace(op)
    if exact is not None or op.tags.intersection(BY_DATA):
        return exact
    guess = (
        shape_rules.derive_fake_reduction(op)
        or shape_rules.derive_fake(op)
        or derive_fake(op)
    )
    return None if guess is None else Guess(guess)


def missing_fake(op: RuleTable) -> CustomOpError | None:
    """Why tags and shapes of an operator give no fake kernel, where they might."""
    shown = op.schema.show(op.qualname)
    fields = {"op": op.qualname, "kind": FAKE}
    by_data = [tag for tag in BY_DATA if tag in op.tags]
    if by_data:
        return DataDependentError(
            f"{op.qualname} has no fake kernel: {_reason(op)}",
            shown,
            f"at {op.definition.place}",
            do=f"@{op.name}.register_fake, a function that says how large the result is",
            **fields,
        )
    why = _why_no_guess(op)
    if why:
        return MissingRuleError(
            f"{op.qualname} has no fake kernel: {why}",
            shown,
            f"at {op.definition.place}",
            do=f"@{op.name}.register_fake, a function that returns fake_like(...)",
            **fields,
        )
    return None


def _why_no_guess(op: RuleTable) -> str:
    """Why there is no guess, or how a call disproved it; empty without tags and shapes."""
    guess = op.plans.fake
    if isinstance(guess, Guess):
        tags = [str(t) for t in (Tag.pointwise, Tag.reduction) if t in op.tags]
        source = tags[0] if tags else "its schema"
        return f"{source} gives none, since {guess.fault}"
    if any(has_shape(r.type) for r in op.schema.returns):
        return f"its schema gives none, since {shape_rules.why_no_fake(op.schema)}"
    return ""


def source_of(rule: Any) -> str:
    """The source of a derived rule in messages: "tags" or "shapes"."""
    inside = rule.__wrapped__ if isinstance(rule, Guess) else rule
    module = getattr(getattr(inside, "func", None), "__module__", "")
    by_shapes = (shape_rules.__name__, shape_rules.__name__)
    return "shapes" if module in by_shapes else "tags"


def _reason(op: RuleTable) -> str:
    """The part of the result that depends on data, according to the tags."""
    if Tag.dynamic_output_shape in op.tags:
        return f"the shape of its result depends on data ({Tag.dynamic_output_shape})"
    return f"its result depends on data ({Tag.data_dependent_output})"


# ---- batching ----


def derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    """The batching rule that tags or shapes of an operator give, or None."""
    plans = op.plans  # kept as long as the operator's table: every batched call asks
    if plans.vmap is MISSING:
        plans.vmap = _derive_vmap(op)
    found: Callable[..., Any] | None = plans.vmap
    return found


def _derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    found = (
        shape_rules.derive_vmap_inplace(op)
        or shape_rules.derive_vmap_reduction(op)
        or shape_rules.derive_vmap(op)
        or derive_vmap_pointwise(op)
    )
    if found is None and op.tags.intersection(BY_DATA) and not op.sees_seed:
        return partial(_batch_by_data, op)
    return found


def _batch_by_data(
    op: RuleTable, info: Any, in_dims: Sequence[Any], *args: Any, **keywords: Any
) -> tuple[Any, Any]:
    """Row by row: the results stack if their shapes are equal."""
    if not info.batch_size:
        raise _unstackable(op, "no row says what")
    rows = run_rows(op, pairs_of(in_dims, args, keywords), info.batch_size)
    try:
        return stack_rows(rows)
    except Uneven as why:
        raise _unstackable(op, f"the rows give {why}") from None


def _unstackable(op: RuleTable, seen: str) -> VmapError:
    return VmapError(
        f"{op.qualname} under vmap: {_reason(op)}, and {seen}",
        op.schema.show(op.qualname),
        do=f"pad to a fixed shape in another operator, or @{op.name}.register_vmap",
        op=op.qualname,
        kind="vmap",
    )
