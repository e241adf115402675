"""Where a nan comes from: the first call or formula whose result has one.

It is an observer of all threads, which `config.check_nans` opens. Kernels are seen inside
of transforms and rules, so the innermost call that makes a nan is the one that is named.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from customop.arrays.describe import abbreviated
from customop.arrays.kinds import is_array, is_fake, is_traced
from customop.arrays.nested import flat
from customop.core.interpreter import Interpreter
from customop.core.observe import Observer
from customop.core.table import RuleTable
from customop.errors import NanError, caller_place, runs_kernels
from customop.transforms.autograd.node import GradNode, Output

__all__ = ["switch"]


class _Nans(Observer):
    """Raises where a result has nan and nothing that it was computed from has one."""

    def __init__(self) -> None:
        super().__init__(threads=True)

    def enter(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> None:
        """Not called: see `around`."""

    def around(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
        proof: Any,
        run: Callable[..., Any],
    ) -> Callable[..., Any]:
        if by == "setup_context":
            return run
        check = _checked_backward if by == "backward" else _checked_call
        return check(op, args, run)


_nans = _Nans()


def switch(on: bool) -> None:
    """Look for nan from now on, or no more."""
    if on != _nans.is_open:
        if on:
            _nans.__enter__()
        else:
            _nans.__exit__()


# ---- calls ----


def _checked_call(
    op: RuleTable, args: Sequence[Any], run: Callable[..., Any]
) -> Callable[..., Any]:
    @runs_kernels
    def call(*values: Any, **keywords: Any) -> Any:
        # What a kernel writes may have nan before.
        had_nan = bool(op.schema.written) and _has_nan(args)
        out = run(*values, **keywords)
        results = [out, *_written(op, args)]
        if _has_nan(results) and not had_nan:
            if op.schema.written or not _has_nan(args):
                raise _error(op, args, results)
        else:
            _note_place(out)
        return out

    return call


def _written(op: RuleTable, args: Sequence[Any]) -> list[Any]:
    if not op.schema.written:
        return []
    pairs = zip(op.schema.parameters, args, strict=True)
    return [value for p, value in pairs if p.is_written]


def _note_place(out: Any) -> None:
    """Note in the node of a call where it is, for an error of its backward formula."""
    for value in flat(out):
        node = getattr(value, "node", None) if is_traced(value) else None
        owner = node.node if type(node) is Output else node
        if isinstance(owner, GradNode):
            vars(owner).setdefault("node_place", caller_place())


def _error(op: RuleTable, args: Sequence[Any], results: Sequence[Any]) -> NanError:
    values = [part for kind, part in _parts(results) if kind == "value"]
    what = "returns nan" if any(map(_is_nan, values)) else "has a tangent that is nan"
    return op.error(
        NanError,
        f" {what}, and nothing that it was given has one",
        f"called at {caller_place()}",
        *_ranges(op, args),
        do="keep the arguments where it is defined, such as by np.where(x > 0, x, 1.0)"
        " before the call",
        parameter=None,
    )


def _ranges(op: RuleTable, args: Sequence[Any]) -> Iterator[str]:
    """Lines with the least and greatest elements of each argument."""
    for p, value in zip(op.schema.parameters, args, strict=True):
        arrays = [part for kind, part in _parts([value]) if kind == "value"]
        arrays = [a for a in arrays if a.size and a.dtype.kind in "fiu"]
        if arrays:
            least = min(float(np.min(a)) for a in arrays)
            most = max(float(np.max(a)) for a in arrays)
            yield f"{p.name}: {abbreviated(arrays[0])} from {least:.6g} to {most:.6g}"


# ---- backward formulas ----


def _checked_backward(
    op: RuleTable, grads: Sequence[Any], run: Callable[..., Any]
) -> Callable[..., Any]:
    @runs_kernels
    def backward(node: Any, *given: Any) -> Any:
        # Before it runs: a node that is freed keeps nothing.
        own = [v for name, v in vars(node).items() if name != "node_edges"]
        kept = [*node.saved_arrays, *own]
        found = run(node, *given)
        if _has_nan([found]) and not _has_nan([*given, *kept]):
            raise _backward_error(op, node)
        return found

    return backward


def _backward_error(op: RuleTable, node: Any) -> NanError:
    where = getattr(node, "node_place", "")
    return op.error(
        NanError,
        "the backward formula returns nan, and neither the gradient nor what it saved has"
        " one",
        *([f"the operator was called at {where}"] if where else []),
        f"backward at {node.node_rule.backward_place}",
        do="keep the arguments where the derivative is finite, such as by"
        " np.where(x > 0, x, 1.0) before the call",
        parameter=None,
    )


# ---- arrays inside of values ----


def _has_nan(values: Any) -> bool:
    return any(_is_nan(part) for _, part in _parts(values))


def _is_nan(value: Any) -> bool:
    return value.dtype.kind in "fc" and bool(np.isnan(value).any())


def _parts(values: Any) -> Iterator[tuple[str, Any]]:
    """Arrays of NumPy inside of nested and traced values, each a value or a tangent."""
    for leaf in [leaf for value in values for leaf in flat(value)]:
        if is_traced(leaf):
            yield from _parts([leaf.below])
            tangent = getattr(leaf, "tangent", None)
            yield from (("tangent", part) for _, part in _parts([tangent]))
        elif isinstance(leaf, np.ndarray | np.generic):
            yield "value", leaf
        elif isinstance(leaf, float | complex):
            yield "value", np.asarray(leaf)
        elif is_array(leaf) and not is_fake(leaf):
            # An array of another kind, if NumPy can read it.
            with contextlib.suppress(TypeError):
                yield "value", np.asarray(leaf)
