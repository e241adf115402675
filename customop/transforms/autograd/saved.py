"""Arrays that nodes keep for backward, and whether somebody wrote to them since.

A write by an operator is always seen: operators note what they write. A write by other
code, such as ``b *= 2`` on a NumPy array, is seen where the node is watched: it then has
checksums of what it keeps. The first run of each differentiated function is watched,
see `runs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from customop.arrays.describe import abbreviated
from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.config import config
from customop.core.contract.memory import checksum, last_write
from customop.core.contract.proof import with_sampling
from customop.core.tracer import Tracer
from customop.errors import (
    ContractError,
    CustomOpError,
    GradientError,
    caller_place,
    place,
    warn_caller,
)
from customop.transforms.autograd.node import Node, Output
from customop.transforms.autograd.tracer import GradTracer

__all__ = ["check_unwritten", "watch"]


def _kept(node: Node) -> Iterator[tuple[str, Any]]:
    """Arrays that a node keeps, and what messages call them."""
    for i, value in enumerate(node.saved_arrays):
        yield f"array {i}", value
    for name, value in vars(node).items():
        if not name.startswith("node_") and name != "saved_arrays":
            for leaf in flat(value):
                yield f"ctx.{name}", leaf


def _real_array(value: Any) -> Any:
    """The array below all tracers."""
    while isinstance(value, Tracer):
        value = value.below
    return value


# ---- writes by operators ----


def check_unwritten(node: Node) -> None:
    """Raise for an array that an operator has written since the node kept it."""
    then = node.node_moment or node.node_number
    for name, value in _kept(node):
        if last_write(_real_array(value)) > then:
            raise node.node_op.error(
                GradientError,
                f"{name} saved for backward, {abbreviated(value)}, was written by an"
                " operator since",
                do="save a copy, or write after backward",
            )


# ---- writes by any code ----


class _Watch:
    """What a watched node keeps: checksums, the place of the call, and its arguments."""

    __slots__ = ("is_sampled", "names", "place", "sums")

    def __init__(
        self, node: Node, args: Sequence[Any], out: Any, is_sampled: bool
    ) -> None:
        self.place: str = caller_place()
        self.is_sampled: bool = is_sampled
        # Identity of an array -> the parameter that it was passed for.
        self.names: dict[int, str] = {id(_real_array(v)): "" for v in flat(out)}
        for p, value in zip(node.node_op.schema.parameters, args, strict=True):
            for leaf in flat(value):
                if is_array(leaf):
                    self.names.setdefault(id(_real_array(leaf)), p.name)
        self.sums: list[int | None] = _checksums(node)


def watch(args: Sequence[Any], out: Any, *, is_sampled: bool) -> None:
    """Keep checksums of what the nodes of a call keep, to compare them in backward.

    In a run chosen by `config.sample_checks`, `config.on_breach` says what a fault does.
    """
    for leaf in flat(out):
        if type(leaf) is not GradTracer:
            continue
        node = leaf.node.node if type(leaf.node) is Output else leaf.node
        if isinstance(node, Node) and "node_backward" not in vars(node):
            node.node_watch = _Watch(node, args, out, is_sampled)
            # On this node, so that nodes that are not watched pay nothing.
            node.node_backward = _checked_backward


def _checksums(node: Node) -> list[int | None]:
    return [checksum(_real_array(value)) for _, value in _kept(node)]


def _checked_backward(node: Node, *grads: Any) -> Any:
    """Compare the checksums around a run of the backward formula."""
    watch = node.node_watch
    changed = _changed(node, watch.sums)
    if changed is not None:
        _raise_or_warn(watch, _overwritten(node, *changed))
        watch.sums = _checksums(node)
    found = type(node).node_backward(node, *grads)
    changed = _changed(node, watch.sums)
    if changed is not None:
        name, array = changed
        if name.startswith("array ") or id(array) in watch.names:
            _raise_or_warn(watch, _written_by_formula(node, name, array))
        watch.sums = _checksums(node)  # a formula may keep a state of its own in ctx
    return found


def _raise_or_warn(watch: _Watch, fault: CustomOpError) -> None:
    if not watch.is_sampled:
        raise fault
    fault = with_sampling(fault)
    if config.on_breach == "error":
        raise fault
    warn_caller(str(fault))


def _changed(node: Node, before: Sequence[int | None]) -> tuple[str, Any] | None:
    """Name and value of the first array whose checksum has changed, or None."""
    if _checksums(node) == before:
        return None
    for (name, value), checksum_before in zip(_kept(node), before, strict=False):
        array = _real_array(value)
        if checksum(array) != checksum_before:
            return name, array
    return "ctx", None  # the formula set or deleted an attribute


def _overwritten(node: Node, name: str, array: Any) -> GradientError:
    watch = node.node_watch
    parameter = watch.names.get(id(array))
    do = "save a copy in setup_context"
    if parameter:
        name, do = f"argument '{parameter}'", f"pass {parameter}.copy()"
    elif parameter == "":
        name, do = "the result", "write to a copy of it: y = y.copy()"
    return node.node_op.error(
        GradientError,
        f"{name}, {abbreviated(array)}, was overwritten after the call, and backward"
        " needs its old values",
        f"called at {watch.place}",
        do=f"{do}, or write after backward",
        parameter=parameter or None,
        kind="autograd",
    )


def _written_by_formula(node: Node, name: str, array: Any) -> ContractError:
    return node.node_op.error(
        ContractError,
        f"backward writes into {name}, {abbreviated(array)}, which was saved for it",
        f"backward at {place(node.node_rule.backward)}",
        do="compute a new array: y = y * 2.0 instead of y *= 2.0",
        parameter=None,
        kind="autograd",
    )
