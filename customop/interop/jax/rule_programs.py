"""Derivatives and batches of operators as programs of JAX.

A rule is traced as a graph. If JAX has a function for each of its operators, XLA runs the
rule, and no callback to the host is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import flat, map_outline, part_of
from customop.compiling.numpy_backend.simplify import with_number_arrays
from customop.core.table import RuleTable
from customop.errors import CustomOpError
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.interop.jax.jax_kind import (
    has_function,
    is_wide,
    register_jax_arrays,
    run_for_all_sizes,
)
from customop.interop.jax.jax_sizes import JaxSizes, has_symbols
from customop.interop.rule_graphs import without_writes
from customop.shapes.sizes import Symbolic
from customop.transforms.trace.graph_tracer import lay_out, number
from customop.transforms.trace.make_fx import make_fx


@lru_cache(maxsize=4096)
def graph_of_rule(
    fn: Callable[..., Any], given: Sequence[tuple[Any, Any]], changes: int
) -> GraphModule | None:
    """Return the graph of a function of arrays; None if it has none that JAX can run.

    It has none if it needs the values of its arrays, draws random numbers, or has loops.

    Parameters
    ----------
    fn : callable
        Takes arrays, and returns a list of arrays.
    given : sequence of (shape, dtype)
        What the arrays are.
    changes : int
        Part of the cache key, so that new rules are taken into account.
    """
    try:
        return traced_rule(fn, [FakeArray(s, dtype) for s, dtype in given])
    except CustomOpError:  # the rule runs on the host, where an error is raised again
        return None


def traced_rule(
    fn: Callable[..., Any], arrays: Sequence[FakeArray]
) -> GraphModule | None:
    """Return the graph of a function of arrays; None if it draws or has loops.

    Raises
    ------
    CustomOpError
        If it needs the values of its arrays.
    """
    return without_writes(make_fx(fn, "fake")(*arrays))


def returned_call(
    fn: Callable[..., Any],
    op: RuleTable,
    given: Sequence[tuple[Any, Any]],
    changes: int,
) -> Sequence[Any]:
    """Return the results of the only call of an operator, if a function returns them all.

    Otherwise, return ``[None]``. The other arguments are those of `graph_of_rule`.
    """
    graph = graph_of_rule(fn, given, changes)
    if graph is None:
        return [None]
    calls = [n for n in graph.graph.nodes if n.op == CALL and n.target is op]
    if len(calls) != 1:
        return [None]
    (call,) = calls
    leaves = graph.graph.output_node.args[0]
    if not op.schema.is_tuple:
        return [call.val] if leaves == [call] else [None]
    parts = [n.args if isinstance(n, Node) and n.op == ITEM else None for n in leaves]
    is_whole = parts == [(call, i) for i in range(len(call.val))]
    return call.val if is_whole else [None]


def is_native(module: GraphModule) -> bool:
    """Return whether JAX has a function for each operator of a graph."""
    return all(n.op != CALL or _is_native(n) for n in module.graph.nodes)


def _is_native(node: Node) -> bool:
    if node.target is lay_out or "jax" in node.target.rows:
        return True
    vals = [leaf.val for leaf in flat(node.values()) if isinstance(leaf, Node)]
    return has_function(node.target, [np.dtype(v.dtype) for v in vals if is_array(v)])


def run_graph(module: GraphModule, arrays: Sequence[Any], sizes: JaxSizes) -> list[Any]:
    """Run a graph on JAX arrays, which may be traced.

    If JAX has 32 bits, values between have 64 bits where they have with NumPy. `sizes` has
    what is symbolic in the graph.
    """
    register_jax_arrays()
    shapes = [x.shape for x in arrays]
    numbers = {text: sizes.jaxs(v) for text, v in other_numbers(module).items()}
    if numbers:
        module.graph.sizes = sizes.context
        module = with_number_arrays(module, of_scalars=True)
    leaves = module.graph.output_node.args[0]
    wanted = [leaf for leaf in leaves if isinstance(leaf, Node)]
    dtypes = [v.dtype for n in module.graph.nodes for v in flat(n.val) if is_array(v)]
    with jax.enable_x64(True) if any(map(is_wide, dtypes)) else nullcontext():
        known = dict(zip(module.inputs, arrays, strict=True))
        for node in module.graph.nodes:
            if node.target is number:
                known[node] = jax.numpy.asarray(sizes.jaxs(node.args[0]), node.args[1])
        found = dict(
            zip(
                wanted,
                values_of_nodes(module, known, wanted, numbers, has_symbols(shapes)),
                strict=True,
            )
        )
        return [
            jax.numpy.asarray(found[v] if isinstance(v, Node) else v) for v in leaves
        ]


def other_numbers(module: GraphModule) -> dict[str, Any]:
    """Return, by its text, each symbolic number that is not an operand, such as a length."""
    return {
        str(leaf): leaf
        for node in module.graph.nodes
        if node.op == CALL and node.target is not number
        for value in node.values()
        for leaf in flat(value)
        if isinstance(leaf, Symbolic)
    }


def values_of_nodes(
    module: GraphModule,
    known: dict[Node, Any],
    wanted: list[Node],
    sizes: Mapping[str, Any],
    for_all_sizes: bool = False,
) -> list[Any]:
    """Compute the values of nodes from inputs, constants and symbolic numbers.

    Parameters
    ----------
    module : GraphModule
    known : dict of Node to array
        Values that are given; the others are added.
    wanted : list of Node
    sizes : mapping of str to number
        Symbolic numbers by their text.
    for_all_sizes : bool
        Whether shapes of arrays are symbolic in JAX.

    Returns
    -------
    list of array
    """

    def value(leaf: Any) -> Any:
        if isinstance(leaf, Symbolic):
            return sizes[str(leaf)]
        return known[leaf] if isinstance(leaf, Node) else leaf

    for node in module.graph.nodes:
        if node in known or node.op == OUTPUT:
            continue
        if node.op == PLACEHOLDER:
            known[node] = node.val
        elif node.op == CONSTANT:
            known[node] = module.graph.constants[node.target]
        elif node.op == ITEM:
            known[node] = part_of(known[node.args[0]], node.args[1])
        elif node.target is lay_out:  # XLA chooses the layout of its arrays
            known[node] = known[node.args[0]]
        else:
            values = [map_outline(v, value) for v in node.values()]
            known[node] = (
                run_for_all_sizes(node.target, values, node.val)
                if for_all_sizes
                else node.target.run(*values)
            )
    return [known[node] for node in wanted]
