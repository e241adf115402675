"""The back end "jax" of `customop.compile`: a whole graph through ``jax.jit``.

The numbers are NumPy's to rounding: XLA orders and fuses arithmetic as it likes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from customop.arrays.nested import map_outline
from customop.errors import ArgumentError
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.interop.jax.kind import register_jax_arrays

__all__ = ["build"]


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """A function of the leaves of the inputs, which XLA runs.

    Raises
    ------
    ArgumentError
        If the graph writes to its inputs or draws random numbers.
    """
    _check(module)
    register_jax_arrays()
    inputs = module.inputs
    constants = _constants(module)
    given = [i for i, node in enumerate(inputs) if hasattr(node.val, "dtype")]
    leaves = module.graph.output_node.args[0]
    # What is returned as it came is not copied; the rest once each.
    computed = [*dict.fromkeys(v for v in leaves if _is_computed(v))]

    def traced(outer: list[Any], *arrays: Any) -> list[Any]:
        known = dict(zip([inputs[i] for i in given], arrays, strict=True))
        known |= zip(constants, outer, strict=True)
        return _values(module, known, computed)

    run = jax.jit(traced)

    def call(*values: Any) -> list[Any]:
        outer = [module.graph.constants[node.target] for node in constants]
        with jax.enable_x64(True):
            found = run(outer, *[values[i] for i in given])
        known = dict(zip(computed, map(_to_numpy, found), strict=True))
        known |= zip(inputs, values, strict=True)
        known |= zip(constants, outer, strict=True)
        return [known[v] if isinstance(v, Node) else v for v in leaves]

    return call


def _check(module: GraphModule) -> None:
    for node in module.graph.nodes:
        if node.op == CALL and node.has_effects:
            place = node.meta.get("place")
            raise ArgumentError(
                f"compile: '{node.name}' writes, draws or gives a number, which the back"
                " end 'jax' does not do",
                *([f"at {place}"] if place else []),
                do="leave backend='jax' out, or compile the rest by itself",
            )


def _is_computed(leaf: Any) -> bool:
    return isinstance(leaf, Node) and leaf.op not in (PLACEHOLDER, CONSTANT)


def _constants(module: GraphModule) -> list[Node]:
    """The constants that are arrays."""
    found = [node for node in module.graph.nodes if node.op == CONSTANT]
    return [
        n for n in found if isinstance(module.graph.constants[n.target], np.ndarray)
    ]


def _values(
    module: GraphModule, known: dict[Node, Any], wanted: list[Node]
) -> list[Any]:
    """The values of nodes, from those of inputs and constants."""

    def value(leaf: Any) -> Any:
        return known[leaf] if isinstance(leaf, Node) else leaf

    for node in module.graph.nodes:
        if node in known or node.op == OUTPUT:
            continue
        if node.op == PLACEHOLDER:
            known[node] = node.val
        elif node.op == CONSTANT:
            known[node] = module.graph.constants[node.target]
        elif node.op == ITEM:
            known[node] = known[node.args[0]][node.args[1]]
        else:
            known[node] = node.target.run(
                *[map_outline(v, value) for v in node.values()]
            )
    return [known[node] for node in wanted]


def _to_numpy(array: Any) -> Any:
    """The memory of a result as an array that may be written: nobody else has it."""
    if not array.shape:
        return np.asarray(array)[()]  # a scalar, as NumPy's functions return
    if not array.size:
        return np.empty(array.shape, array.dtype)
    array.block_until_ready()
    memory = (ctypes.c_char * array.nbytes).from_address(array.unsafe_buffer_pointer())
    memory.owner = array  # lives as long as the memory is used
    return np.frombuffer(memory, array.dtype).reshape(array.shape)
