"""The back end "jax" of `customop.compile`: it compiles a whole graph with ``jax.jit``.

Results equal those of NumPy up to rounding, because XLA reorders and fuses arithmetic.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from customop.compiling.numpy_backend.simplify import with_number_arrays
from customop.errors import ArgumentError
from customop.graph.code_parts import SizeValues
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, PLACEHOLDER, Node
from customop.graph.passes import frozen_key
from customop.interop.jax.jax_kind import register_jax_arrays
from customop.interop.jax.rule_programs import other_numbers, values_of_nodes
from customop.shapes.size_context import SizeContext
from customop.shapes.sizes import Symbolic
from customop.transforms.trace.graph_tracer import number


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """Return a function of the input leaves that runs the graph in XLA.

    Raises
    ------
    ArgumentError
        If the graph writes to its inputs or draws random numbers.
    """
    _check(module)
    module = with_number_arrays(module, of_scalars=True)
    register_jax_arrays()
    inputs = module.inputs
    constants = _constants(module)
    given = [i for i, node in enumerate(inputs) if hasattr(node.val, "dtype")]
    leaves = module.graph.output_node.args[0]
    # Inputs and constants are returned without a copy; the rest is computed once each.
    computed = [*dict.fromkeys(v for v in leaves if _is_computed(v))]

    numbers = [node for node in module.graph.nodes if node.target is number]
    # XLA compiles a separate program for each value of the others.
    others = other_numbers(module)

    def traced(
        fixed: Sequence[_ProgramNumber],
        free: Sequence[Any],
        outer: Sequence[Any],
        *arrays: Any,
    ) -> list[Any]:
        known = dict(zip([inputs[i] for i in given], arrays, strict=True))
        known |= zip([*constants, *numbers], [*outer, *free], strict=True)
        sizes = dict(zip(others, [v.value for v in fixed], strict=True))
        return values_of_nodes(module, known, computed, sizes)

    run = jax.jit(traced, static_argnums=0)

    def call(*values: Any) -> list[Any]:
        outer = [module.graph.constants[node.target] for node in constants]
        sizes = SizeValues(module.graph.sizes or SizeContext())
        sizes.read_inputs([*zip(inputs, values, strict=True)])
        fixed = [_ProgramNumber(sizes.of(v)) for v in others.values()]
        free = [np.array(sizes.of(n.args[0]), n.args[1]) for n in numbers]
        with jax.enable_x64(True):
            found = run((*fixed,), free, outer, *[values[i] for i in given])
        known = dict(zip(computed, map(_to_numpy, found), strict=True))
        known |= zip(inputs, values, strict=True)
        known |= zip(constants, outer, strict=True)
        return [_returned(leaf, known, sizes) for leaf in leaves]

    return call


def _returned(leaf: Any, known: Mapping[Node, Any], sizes: SizeValues) -> Any:
    if isinstance(leaf, Symbolic):
        return sizes.of(leaf)
    return known[leaf] if isinstance(leaf, Node) else leaf


# ---- symbolic numbers ----


class _ProgramNumber:
    """A number that is part of the program. nan equals nan, and 0.0 differs from -0.0."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value
        self._key = frozen_key(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ProgramNumber) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


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
    """Return the nodes of constants that are arrays."""
    found = [node for node in module.graph.nodes if node.op == CONSTANT]
    return [
        n for n in found if isinstance(module.graph.constants[n.target], np.ndarray)
    ]


def _to_numpy(array: Any) -> Any:
    """Return a result as a NumPy array over the same memory.

    The array may be written to, since nothing else uses the memory.
    """
    if not array.shape:
        return np.asarray(array)[()]  # a scalar, as NumPy's functions return it
    if not array.size:
        return np.empty(array.shape, array.dtype)
    array.block_until_ready()
    memory = (ctypes.c_char * array.nbytes).from_address(array.unsafe_buffer_pointer())
    memory.owner = array  # keeps the memory alive
    return np.frombuffer(memory, array.dtype).reshape(array.shape)
