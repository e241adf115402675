"""Rows of NumPy's operators that are not ufuncs: views, copies, products, places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from customop.compiling.native_backend.iteration import (
    LoopAxis,
    merged_axes,
    result_strides,
    strides_within,
)
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.own_loops import (
    add_at_loop,
    take_loop,
    where_loop,
)
from customop.compiling.native_backend.planning import AnyArray, TablePlan, loop_of_cast
from customop.compiling.native_backend.reduction_rows import (
    cumulative,
    mean,
    place_of_extreme,
    reduction,
    truth,
)
from customop.compiling.native_backend.small_products import Product, near_product
from customop.compiling.native_backend.ufunc_loops import (
    NotNative,
    WholeGraph,
    loop_for,
)
from customop.compiling.numpy_backend.call_text import builtin_kernel
from customop.graph.node import Node

Rule = Callable[..., None]


# ---- views ----


def view(plan: TablePlan, node: Node, x: AnyArray, *others: Any) -> None:
    """Take a view as the value, or emit the copy where there is none."""
    kernel: Any = builtin_kernel(node.target)
    source = node.args[0]
    is_scalar = source in plan.scalars
    if source in plan.classes and not node.val.shape:
        raise NotNative("a view of what may be a scalar")
    found = kernel(x[()] if is_scalar else x, *others)
    if isinstance(found, np.generic):
        plan.scalars.add(node)
        if _is_of_written(plan, source):
            if node.target.name != "slice":
                raise WholeGraph(f"{node} reads an argument that is written")
            # A scalar of NumPy does not see what is written after it was read.
            plan.copy(
                np.asarray(x)[(*basic_key(others[0]), ...)],
                plan.result(node, (), x.dtype),
            )
            return
    if is_scalar or isinstance(found, np.generic):
        # A scalar has no memory that lasts, an array without axes has.
        by_key = node.target.name == "slice"
        found = x[(*basic_key(others[0]), ...)] if by_key else kernel(x, *others)
    if not found.size:
        plan.view(node, found, kernel, others)
        return
    if np.may_share_memory(found, x):
        plan.view(node, found, kernel, others)
        return
    # A new shape of items that are not contiguous: a copy in C order.
    new = plan.result(node, found.shape, x.dtype)
    plan.copy(x, new.reshape(x.shape))


def _is_of_written(plan: TablePlan, node: Node) -> bool:
    """Return whether a value is an argument that is written, or a view of one."""
    while node in plan.views:
        node = plan.views[node][0]
    return node in plan.written


def basic_key(key: Sequence[Any]) -> tuple[Any, ...]:
    """Return the key of Python for that of ``np::slice``."""
    return tuple([slice(*k) if len(k) > 1 else k[0] if k else None for k in key])


def placed(
    plan: TablePlan, node: Node, g: AnyArray, shape: Sequence[int], key: Sequence[Any]
) -> None:
    """Emit zeros with `g` at a slice; without axes, a scalar."""
    found = plan.result(node, tuple(shape), g.dtype)
    if not shape:
        plan.scalars.add(node)
    plan.fill(found, 0)
    plan.copy(g, found[(*basic_key(key), ...)])


def on_diagonal(
    plan: TablePlan,
    node: Node,
    g: AnyArray,
    shape: Sequence[int],
    offset: int,
    axis1: int,
    axis2: int,
) -> None:
    """Emit zeros with `g` on a diagonal."""
    found = plan.result(node, tuple(shape), g.dtype)
    plan.fill(found, 0)
    diagonal = np.diagonal(found, offset, axis1, axis2)
    plan.copy(g, np.lib.stride_tricks.as_strided(diagonal, writeable=True))


# ---- constants ----


def same_each_time(plan: TablePlan, node: Node, *values: Any) -> None:
    """Compute a value once that depends on nothing but shapes and numbers."""
    kernel: Any = builtin_kernel(node.target)
    found = _quietly(kernel, *values)
    if isinstance(found, np.generic):
        plan.scalars.add(node)
    plan.constant(node, np.asarray(found))


def _quietly(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a kernel that is not called again, unless it warns or raises each time."""
    with np.errstate(all="raise"):
        try:
            return kernel(*args, **kwargs)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise NotNative(str(error)) from None


def full_like(
    plan: TablePlan, node: Node, x: AnyArray, value: Any, dtype: Any, shape: Any
) -> None:
    """Make a constant array; nothing of `x` is read but its shape and layout."""
    if isinstance(value, np.ndarray):
        raise NotNative("an array full of another one")
    plan.constant(node, _quietly(np.full_like, x, value, dtype=dtype, shape=shape))


# ---- copies ----


def copy(plan: TablePlan, node: Node, x: AnyArray) -> None:
    """Emit a copy in the order of the original."""
    plan.copy(x, plan.result(node, x.shape, x.dtype, strides=np.empty_like(x).strides))


def copy_in_c_order(plan: TablePlan, node: Node, x: AnyArray) -> None:
    """Emit a copy in C order."""
    plan.copy(x, plan.result(node, x.shape, x.dtype))


def cast(plan: TablePlan, node: Node, x: AnyArray, dtype: Any) -> None:
    """Emit a copy of another dtype."""
    like = np.empty_like(x, dtype=dtype)
    found = plan.result(node, x.shape, like.dtype, strides=like.strides)
    source = node.args[0]
    if source in plan.scalars:
        plan.scalars.add(node)
    elif source in plan.classes:
        plan.classes[node] = plan.classes[source]
    if x.dtype == found.dtype:
        plan.copy(x, found)
    else:
        plan.loop(loop_of_cast(x.dtype, found.dtype), [x, found])


def joined(
    plan: TablePlan, node: Node, parts: Sequence[AnyArray], axis: int = 0
) -> None:
    """Emit the copies of arrays into one, for `concatenate` and `stack`."""
    fake = node.val
    if any(x.ndim > 1 and not x.flags.c_contiguous for x in parts):
        raise NotNative("parts that are not in C order")
    found = plan.result(node, plan.shape_of(node), fake.dtype)
    is_stack = node.target.name == "stack"
    axis %= found.ndim
    before, at = (slice(None),) * axis, 0
    for x in parts:
        count = 1 if is_stack else x.shape[axis]
        place: Any = at if is_stack else slice(at, at + count)
        plan.copy(x, found[(*before, place, ...)])
        at += count


def chosen(plan: TablePlan, node: Node, condition: AnyArray, x: Any, y: Any) -> None:
    """Emit `where`."""
    if not isinstance(condition, np.ndarray) or condition.dtype != np.bool_:
        raise NotNative("a condition that is not of bools")
    fake = node.val
    given = [
        plan.cast(v, fake.dtype)
        if isinstance(v, np.ndarray)
        else plan.number(v, fake.dtype)
        for v in (x, y)
    ]
    operands = [condition, *given]
    found = plan.result(
        node, plan.shape_of(node), fake.dtype, [v for v in operands if v.ndim]
    )
    plan.loop(_where(found.itemsize), [*operands, found])


def _where(itemsize: int) -> Any:
    loop = where_loop(itemsize)
    if loop is None:
        raise NotNative("items of an unusual size")
    return loop


def triangle(keep: Callable[..., Any]) -> Rule:
    """Return the rule of `tril` or `triu`."""

    def rule(plan: TablePlan, node: Node, x: AnyArray, k: int = 0) -> None:
        if x.ndim < 2:
            raise NotNative("a triangle of a line")
        mask = keep(np.ones(x.shape[-2:], bool), k)
        plan.program.hold(mask)
        found = plan.result(node, x.shape, x.dtype, [mask, x])
        zero = plan.number(0, x.dtype)
        plan.loop(_where(found.itemsize), [mask, x, zero, found])

    return rule


# ---- products ----


def matmul(plan: TablePlan, node: Node, a: AnyArray, b: AnyArray) -> None:
    """Emit one row for each product of two matrices, with NumPy's own loop."""
    loop = loop_for(np.matmul, (a.dtype, b.dtype))
    dtype = loop.dtypes[-1]
    if dtype.char not in "fdFD" or not a.size or not b.size:
        raise NotNative(f"a product of {dtype}")
    for x in (a, b):
        if x.dtype != dtype and not x.flags.c_contiguous:
            raise NotNative("a product of operands that are cast, not in C order")
    a, b = plan.cast(a, dtype), plan.cast(b, dtype)
    rows = a if a.ndim > 1 else a[None, :]
    columns = b if b.ndim > 1 else b[:, None]
    shape = plan.shape_of(node)
    count = len(shape) - (a.ndim > 1) - (b.ndim > 1)
    plan.take_new(
        node, *plan.new(shape, dtype, _product_strides(shape, count, rows, columns))
    )
    found = plan.arrays[node]
    n, k = rows.shape[-2:]
    m = columns.shape[-1]
    steps = [
        rows.strides[-2] if a.ndim > 1 else 0,
        rows.strides[-1],
        columns.strides[-2],
        columns.strides[-1] if b.ndim > 1 else 0,
    ]
    own = [*found.strides[found.ndim - (a.ndim > 1) - (b.ndim > 1) :]]
    if a.ndim == 1:
        own.insert(0, 0)
    if b.ndim == 1:
        own.append(0)
    lead = found.shape[: found.ndim - (a.ndim > 1) - (b.ndim > 1)]
    outer = (
        merged_axes(
            lead,
            [
                strides_within(rows, (*lead, *rows.shape[-2:]))[: len(lead)],
                strides_within(columns, (*lead, *columns.shape[-2:]))[: len(lead)],
                found.strides[: len(lead)],
            ],
        )
        if lead
        else ()
    )
    # The loop moves `args` where it goes over several matrices, so each row has one.
    of_a, of_b = (steps[0], steps[1]), (steps[2], steps[3])
    product = Product(n, k, m, of_a, of_b, (own[0], own[1]), (*outer,))
    inner: Any = loop
    places = [address_of(a), address_of(b), address_of(found)]
    if not plan.program.is_exact:
        inner, places, product = near_product(inner, product, dtype.char, places)
    plan.table.emit(inner, places, product.dims, product.strides, product.outer)


def _product_strides(
    shape: tuple[int, ...], count: int, rows: AnyArray, columns: AnyArray
) -> tuple[int, ...] | None:
    """Return the strides of products, whose first axes lie as those of the operands."""
    core = prod(shape[count:]) * rows.itemsize
    stacks = [x[..., 0, 0] for x in (rows, columns) if x.ndim > 2]
    lead = result_strides(shape[:count], core, stacks) if stacks else None
    if lead is None:
        return None
    ends = [prod(shape[i + 1 :]) * rows.itemsize for i in range(count, len(shape))]
    return (*lead, *ends)


def outer_product(plan: TablePlan, node: Node, a: AnyArray, b: AnyArray) -> None:
    """Emit the products of all pairs."""
    plan.ufunc(node, np.multiply, [a.reshape(-1, 1), b.reshape(1, -1)])


# ---- places ----


def gathered(
    plan: TablePlan,
    node: Node,
    x: AnyArray,
    indices: Sequence[Any],
    packed: bool = False,
) -> None:
    """Emit the rows of an array at index arrays for its first axes, or one for another."""
    slots = [j for j, i in enumerate(indices) if i is not None]
    if len(slots) == 1 and slots[0]:
        (place,) = index_arrays(plan, [indices[slots[0]]])
        if not x.size:
            raise NotNative("places in an array without items")
        strides = None if packed else _strides_at(x, slots[0], place.shape)
        found, block = plan.new(plan.shape_of(node), x.dtype, strides)
        plan.arrays[node] = found
        plan.hold(node, block)
        _at_axis(plan, partial(take_loop, 1), x, found, slots[0], place)
        return
    places = index_arrays(plan, indices)
    count = len(places)
    rest = x.shape[count:]
    line = x[(0,) * count] if x.size else x
    if not x.size or not np.asarray(line).flags.c_contiguous:
        raise NotNative("places in what is not contiguous")
    if not rest and not packed and not all(i.flags.c_contiguous for i in places):
        raise NotNative("a result in the order of index arrays")
    if not node.val.shape:
        raise NotNative("one item, which may be a scalar")
    found = plan.result(node, plan.shape_of(node), x.dtype)
    shape = np.broadcast_shapes(*[i.shape for i in places])
    lines, steps = index_steps(plan, places, shape)
    row = x.itemsize * prod(rest)
    plan.table.emit(
        take_loop(count, row),
        [*map(address_of, lines), address_of(x), address_of(found)],
        [
            prod(shape),
            *[v for j in range(count) for v in (x.shape[j], x.strides[j])],
            row,
        ],
        [*steps, 0, row],
    )


def _strides_at(x: AnyArray, axis: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return NumPy's strides of what an index array of this shape takes along an axis.

    The axes of the index array are the slowest; the others lie as in the array.
    """
    first: tuple[Any, ...] = (*(slice(None),) * axis, 0)
    rest: AnyArray = x[first]
    inner = np.empty_like(rest).strides
    outer = [x.itemsize * rest.size * prod(shape[i + 1 :]) for i in range(len(shape))]
    return (*inner[:axis], *outer, *inner[axis:])


def added_at(
    plan: TablePlan,
    node: Node,
    g: AnyArray,
    shape: Sequence[int],
    indices: Sequence[Any],
) -> None:
    """Emit zeros with `g` added at index arrays, one item after the other."""
    slots = [j for j, i in enumerate(indices) if i is not None]
    places = index_arrays(plan, [indices[j] for j in slots])
    if slots != [*range(len(slots))] and len(slots) > 1:
        raise NotNative("index arrays for axes that are not the first")
    count = len(places)
    loop = add_at_loop(g.dtype, count)
    if loop is None:
        raise NotNative(f"sums of {g.dtype} at places")
    found = plan.result(node, tuple(shape), g.dtype)
    plan.fill(found, 0)
    if slots[0] and found.size and g.size:
        new = plan.temporary(g.shape, g.dtype)
        plan.copy(g, new)
        _at_axis(plan, lambda _: loop, found, new, slots[0], places[0])
        return
    at = np.broadcast_shapes(*[i.shape for i in places])
    if not g.size:
        return
    if not g.flags.c_contiguous:
        new = plan.temporary(g.shape, g.dtype)
        plan.copy(g, new)
        g = new
    lines, steps = index_steps(plan, places, at)
    row = g.itemsize * prod(shape[count:])
    plan.table.emit(
        loop,
        [*map(address_of, lines), address_of(found), address_of(g)],
        [
            prod(at),
            *[v for j in range(count) for v in (shape[j], found.strides[j])],
            row,
        ],
        [*steps, 0, row],
    )


def _at_axis(
    plan: TablePlan,
    loop_for_rows: Callable[[int], Any],
    table: AnyArray,
    values: AnyArray,
    axis: int,
    place: AnyArray,
) -> None:
    """Emit the rows that move items between an array at places of one axis, and values.

    The loop is that for rows of so many bytes.
    """
    among = range(axis, axis + place.ndim)
    given = np.moveaxis(values, among, range(place.ndim))
    lines = np.moveaxis(table, axis, 0)
    ends = merged_axes(given.shape[: place.ndim], [given.strides[: place.ndim]])
    if not place.ndim or len(ends) > 1:
        raise NotNative("places that are not evenly spaced")
    (index,), (step,) = index_steps(plan, [place], place.shape)
    rest = merged_axes(
        lines.shape[1:], [lines.strides[1:], given.strides[place.ndim :]]
    )
    row = table.itemsize
    if rest and rest[0].strides == (row, row):
        row *= rest.pop(0).length
    plan.table.emit(
        loop_for_rows(row),
        [address_of(index), address_of(table), address_of(values)],
        [place.size, table.shape[axis], table.strides[axis], row],
        [step, 0, ends[0].strides[0] if ends else 0],
        [LoopAxis(n, (0, *steps)) for n, steps in rest],
    )


def index_arrays(plan: TablePlan, indices: Sequence[Any]) -> list[AnyArray]:
    """Return index arrays; raise if a loop cannot take them."""
    if any(
        not isinstance(i, np.ndarray) or i.dtype != np.int64 or not i.size
        for i in indices
    ):
        raise NotNative("other index arrays than of int64 for the first axes")
    return [*indices]


def index_steps(
    plan: TablePlan, places: Sequence[AnyArray], shape: tuple[int, ...]
) -> tuple[list[AnyArray], list[int]]:
    """Return index arrays that are read in one step each, and the steps."""
    lines, steps = [], []
    for place in places:
        line = place
        if (place.shape != shape and place.size != 1) or (
            place.ndim > 1 and not place.flags.c_contiguous
        ):
            line = plan.temporary(shape, place.dtype)
            plan.copy(place, line)
        lines.append(line)
        steps.append(
            0
            if line.size == 1
            else line.strides[0]
            if line.ndim == 1
            else line.itemsize
        )
    return lines, steps


# Views that look at no element: a plan makes them of memory that holds anything.
_VIEWS = (
    *("broadcast_to", "diagonal", "expand_dims", "flip", "imag", "ravel", "real"),
    *("reshape", "slice", "sliding_window_view", "squeeze", "transpose"),
    "writable_diagonal",
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{f"np::{name}": view for name in _VIEWS},
        "np::any": truth(np.logical_or),
        "np::all": truth(np.logical_and),
        "np::arange": same_each_time,
        "np::argmax": place_of_extreme(is_least=False),
        "np::argmin": place_of_extreme(is_least=True),
        "np::astype": cast,
        "np::c_copy": copy_in_c_order,
        "np::concatenate": joined,
        "np::copy": copy,
        "np::cumprod": cumulative(np.multiply),
        "np::cumsum": cumulative(np.add),
        "np::eye": same_each_time,
        "np::full": same_each_time,
        "np::full_like": full_like,
        "np::index": gathered,
        "np::matmul": matmul,
        "np::max": reduction(np.maximum, None),
        "np::mean": mean,
        "np::min": reduction(np.minimum, None),
        "np::outer": outer_product,
        "np::prod": reduction(np.multiply, 1.0),
        "np::scatter_add": added_at,
        "np::stack": joined,
        "np::sum": reduction(np.add, 0.0),
        "np::tril": triangle(np.tril),
        "np::triu": triangle(np.triu),
        "np::undiagonal": on_diagonal,
        "np::unslice": placed,
        "np::where": chosen,
    }
)
