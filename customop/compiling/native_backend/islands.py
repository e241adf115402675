"""Calls of Python among the rows of a table, for what no loop does."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from customop.arrays.fake import FakeArray
from customop.compiling.native_backend.memory import address_of, span_of
from customop.compiling.native_backend.planning import (
    PLAIN,
    AnyArray,
    TablePlan,
    check_plain,
)
from customop.compiling.native_backend.ufunc_loops import WholeGraph
from customop.compiling.numpy_backend.call_text import OF_SCALARS, builtin_kernel
from customop.core.table import RuleTable
from customop.graph.module import GraphModule
from customop.graph.node import Node
from customop.graph.replay import can_be_direct, kernel_of
from customop.shapes.sizes import Symbolic


class Island:
    """A call of an operator on the memory of the plan.

    Attributes
    ----------
    why : str
        Why it is not a row.
    gave_scalar : bool
        Whether the last call gave one of NumPy's scalars.
    parts : list of Island
        What is known about each of the results.
    """

    def __init__(self, why: str) -> None:
        self.why: str = why
        self.gave_scalar: bool = False
        self.parts: list[Island] = []


class _GivenArray:
    """An argument of an island: the memory of a value, in the class that it has."""

    __slots__ = ("array", "is_copied", "is_scalar", "island")

    def __init__(
        self,
        array: AnyArray,
        island: Island | None,
        *,
        is_scalar: bool,
        is_copied: bool,
    ) -> None:
        self.array: AnyArray = array
        self.island: Island | None = island
        self.is_scalar: bool = is_scalar
        self.is_copied: bool = is_copied

    def read(self) -> Any:
        """Return the value at this moment."""
        if self.is_scalar or (self.island is not None and self.island.gave_scalar):
            return self.array[()]
        return self.array.copy("K") if self.is_copied else self.array


def _read(value: Any) -> Any:
    if isinstance(value, _GivenArray):
        return value.read()
    if isinstance(value, list):
        return [_read(v) for v in value]
    return value


class _RaisedFlags:
    """Notes where NumPy would warn; the call runs again by NumPy's code."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: bool = False

    def __call__(self, kind: str, flag: int) -> None:
        self.seen = True


def _watched(raised: _RaisedFlags) -> Any:
    """Return a context in which floating-point errors are noted, but not reported."""
    asked = np.geterr()
    how: Any = {k: "ignore" if v == "ignore" else "call" for k, v in asked.items()}
    return np.errstate(call=raised, **how)


def arrange_island(plan: TablePlan, node: Node, why: str) -> None:
    """Emit a row that calls the operator of a node."""
    op = node.target
    if _drops_imaginary_parts(node):
        raise WholeGraph(f"{node} warns, and would again in a second run")
    is_known = isinstance(op, RuleTable) and builtin_kernel(op) is not None
    args = [_given(plan, v, is_copied=not is_known) for v in node.args]
    kwargs = {
        k: _given(plan, v, is_copied=not is_known) for k, v in node.kwargs.items()
    }
    call = _callee(plan, node)
    fakes = node.val
    is_single = isinstance(fakes, FakeArray)
    island = plan.islands[node] = Island(why)
    targets, blocks = [], []
    for fake in [fakes] if is_single else _listed(node, fakes):
        check_plain(node, fake.dtype)
        shape, strides = _layout(plan, node, fake)
        block = plan.memory.take(fake.dtype.itemsize * prod(shape))
        block.uses += 1
        blocks.append(block)
        targets.append(block.array(shape, fake.dtype, strides))
        island.parts.append(Island(why))
    plan.arrays[node] = targets[0] if is_single else targets
    plan.blocks[node] = blocks[0] if is_single else blocks
    if is_single and not targets[0].ndim:
        plan.classes[node] = island
    plan.touch(targets)

    def run() -> bool:
        raised = _RaisedFlags()
        try:
            with _watched(raised):
                found = call(
                    *[_read(v) for v in args],
                    **{k: _read(v) for k, v in kwargs.items()},
                )
        except Exception:  # noqa: BLE001  # NumPy's code raises it, with its notes
            return True
        given = [found] if is_single else [*found]
        for value, target, part in zip(given, targets, island.parts, strict=True):
            if not _lies_as(value, target):
                return True
            part.gave_scalar = isinstance(value, np.generic)
            target[...] = value
        island.gave_scalar = is_single and island.parts[0].gave_scalar
        return raised.seen

    plan.table.island(run)


def _drops_imaginary_parts(node: Node) -> bool:
    """Return whether a call casts complex numbers to real ones, of which NumPy warns."""
    if getattr(node.target, "qualname", "") not in _CASTING:
        return False
    kinds = [getattr(v.val, "dtype", np.dtype(bool)).kind for v in (*node.inputs, node)]
    return "c" in kinds[:-1] and kinds[-1] != "c"


def _all_true(x: AnyArray, message: str, warns: bool) -> AnyArray:
    """Do what `np::checked` does, but raise where it would warn."""
    del warns
    if not np.all(x):
        raise ValueError(message)
    return x.copy()


_CASTING: Final = frozenset(f"np::{n}" for n in ("astype", "index_set", "slice_set"))


def _callee(plan: TablePlan, node: Node) -> Callable[..., Any]:
    """Return the function that NumPy's code calls for an operator or a graph."""
    op: RuleTable | GraphModule = node.target
    if node.written:
        return OF_SCALARS[op.name]
    if not isinstance(op, RuleTable):
        run: Callable[..., Any] = plan.compiled(op).run
        return run
    if builtin_kernel(op) is not None and op.qualname == "np::checked":
        return _all_true
    kernel = kernel_of(op) if can_be_direct(op) else None
    call: Any = op if kernel is None else kernel
    made: Callable[..., Any] = call
    return made


def _given(plan: TablePlan, value: Any, *, is_copied: bool) -> Any:
    if isinstance(value, Node):
        array = plan.arrays[value]
        if not isinstance(array, np.ndarray):
            return array
        low, high = span_of(array)
        if any(a < high and low < b for a, b in plan.far_inputs):
            array = _copied_whole(plan, array)
        plan.touch([array])
        island = plan.classes.get(value)
        return _GivenArray(
            array, island, is_scalar=value in plan.scalars, is_copied=is_copied
        )
    if isinstance(value, (list, tuple)):
        return [_given(plan, v, is_copied=is_copied) for v in value]
    if isinstance(value, GraphModule):
        return plan.compiled(value)
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Symbolic):
        return plan.size(value)
    raise WholeGraph(f"an argument of type {type(value).__name__}")


def _copied_whole(plan: TablePlan, array: AnyArray) -> AnyArray:
    """Return a copy with the same strides, also where they leave gaps."""
    low, high = span_of(array)
    block = plan.memory.take(high - low)
    block.uses += 1
    plan.release_after(block)
    offset = block.offset + address_of(array) - low
    copy = np.ndarray(array.shape, array.dtype, block.chunk, offset, array.strides)
    plan.copy(array, copy)
    return copy


def _listed(node: Node, fakes: Any) -> list[FakeArray]:
    if isinstance(fakes, (list, tuple)) and all(
        isinstance(v, FakeArray) for v in fakes
    ):
        return [*fakes]
    raise WholeGraph(f"{node} does not return arrays")


def _layout(
    plan: TablePlan, node: Node, fake: FakeArray
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and strides of a value as it was captured."""
    shape = tuple([plan.size(n) for n in fake.shape])
    strides = tuple([plan.size(n) for n in fake.strides])
    if any(n < 0 for n in strides):
        raise WholeGraph(f"{node} has negative strides")
    steps = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    if prod(shape) and sum(steps) // fake.dtype.itemsize >= prod(shape):
        raise WholeGraph(f"{node} has gaps in its memory")
    return shape, strides


def _lies_as(value: Any, target: AnyArray) -> bool:
    """Return whether a result has the layout that was planned."""
    return (
        isinstance(value, (np.ndarray, np.generic))
        and value.shape == target.shape
        and value.dtype == target.dtype
        and all(
            a == b
            for a, b, n in zip(value.strides, target.strides, value.shape, strict=True)
            if n != 1
        )
    )
