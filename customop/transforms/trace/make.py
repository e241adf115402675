"""make_fx: run a function once, and keep the operators that it calls as a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

from customop.arrays.kinds import is_array, is_traced
from customop.arrays.pytree import Structure, flatten, unflatten
from customop.core.boxes import frozen, pin
from customop.errors import ArgumentError, caller_place, check_function, shown
from customop.graph.module import GraphModule
from customop.transforms.trace.interpreter import GraphTracer, Trace, copied, fake_of
from customop.transforms.trace.operators import assign

__all__ = ["make_fx"]

P = ParamSpec("P")
R = TypeVar("R")

TracingMode = Literal["real", "fake", "symbolic"]
_MODES = ("real", "fake", "symbolic")


def make_fx(
    fn: Callable[P, R], tracing_mode: TracingMode = "real"
) -> Callable[P, GraphModule]:
    """Make a function that captures `fn` as a graph.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees.
    tracing_mode : str
        ``"real"`` computes values while it traces, ``"fake"`` only shapes and dtypes.

    Returns
    -------
    callable
        Takes what `fn` takes, and returns a `GraphModule`. Arrays are the inputs of the
        graph; other arguments are constants, and it checks that they are the same when
        it is called.

    Raises
    ------
    ArgumentError
        If `fn` is not a function, or the mode is unknown.
    DataDependentError
        From the function: if `fn` asks for the value of an array.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> graph = co.make_fx(lambda x: np.sin(x) + 1.0)(np.zeros(2))
    >>> graph(np.array([0.0, np.pi / 2]))
    array([1., 2.])
    """
    check_function("make_fx", fn)
    if tracing_mode not in _MODES:
        raise ArgumentError(
            f"make_fx: unknown tracing_mode={shown(tracing_mode)}",
            do="use 'real', 'fake' or 'symbolic'",
        )

    @wraps(fn)
    def trace(*args: P.args, **kwargs: P.kwargs) -> GraphModule:
        return _Capture(fn, tracing_mode).run(args, kwargs)

    return trace


class _Capture:
    """One run of a function for a graph."""

    def __init__(self, fn: Callable[..., Any], tracing_mode: str) -> None:
        self.fn = fn
        self.trace: Trace = Trace(tracing_mode)
        self.trace.fn = fn
        self.place: str = caller_place()
        # The tracers of inputs, with the nodes that they began as.
        self.inputs: list[tuple[GraphTracer, Any]] = []

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GraphModule:
        """Trace the function."""
        leaves, in_spec = flatten((args, kwargs))
        sources = _sources(self.fn, in_spec)
        trace = self.trace
        trace.inputs = leaves
        with trace:
            pairs = zip(leaves, sources, strict=True)
            given = [self._input(leaf, source) for leaf, source in pairs]
            positional, named = unflatten(in_spec, given)
            out = self.fn(*positional, **named)
            found, out_spec = flatten(out)
            nodes = [self._output(leaf) for leaf in found]
            self._write_inputs()
            trace.graph.output(nodes)
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return GraphModule(trace.graph, in_spec, out_spec, name=name, place=self.place)

    def _input(self, leaf: Any, source: str) -> Any:
        trace = self.trace
        is_input = is_array(leaf)
        fake = fake_of(leaf) if is_input else leaf
        node = trace.graph.placeholder(source, fake)
        node.note(fake, self.place)
        node.meta["source"] = source
        if not is_input:
            return leaf
        below = copied(leaf) if trace.is_real else fake
        tracer = GraphTracer(trace, below, node)
        tracer.box_origin = leaf
        if not leaf.shape and _is_box(leaf):
            pin(tracer)
        self.inputs.append((tracer, node))
        return tracer

    def _output(self, leaf: Any) -> Any:
        """What stands in the output for a leaf of the result."""
        for tracer, node in self.inputs:
            if leaf is tracer:
                return node  # it is written before the output
        return self.trace.node_and_value(leaf)[0]

    def _write_inputs(self) -> None:
        """Write to the inputs what the function has written to them."""
        graph = self.trace.graph
        for tracer, node in self.inputs:
            if tracer.node is not node:
                graph.call(assign, (node, tracer.node)).note(None, self.place)


def _is_box(leaf: Any) -> bool:
    """Whether an input without axes is an array, not a scalar."""
    if is_traced(leaf):
        return not frozen(leaf).box_is_scalar
    return hasattr(leaf, "__setitem__")


def _sources(fn: Callable[..., Any], spec: Structure) -> Sequence[str]:
    """Each leaf of the arguments as the user would write it, such as ``params['w']``."""
    try:
        parameters = [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    return [_source(parameters, accessor) for accessor in spec.accessors()]


def _source(parameters: Sequence[inspect.Parameter], accessor: Any) -> str:
    is_named, key = accessor[0].entry, accessor[1].entry
    if is_named:
        root = str(key)
    elif key < len(parameters) and parameters[key].kind in _ONE:
        root = parameters[key].name
    else:
        last = [p for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL]
        name, before = (last[0].name, parameters.index(last[0])) if last else ("x", 0)
        root = f"{name}[{key - before}]"
    return str(accessor[2:].codify(root))


_ONE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
