"""Derivatives of operators as torch operations.

The backward formula of an operator, or its rule for tangents, is traced as a graph. If torch
has a function of the same meaning for each operator of the graph, torch runs these: no
tensor is converted, and torch differentiates and batches them itself. What the
formula uses beside its arguments is watched, as in compiled functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU
from customop.arrays.nested import flat
from customop.compiling.call_code import CallArguments
from customop.compiling.entries import captured_alone, capturing
from customop.compiling.surroundings import Surroundings, WatchedContainer
from customop.core.builtin_kinds import AUTOGRAD, JVP, VMAP
from customop.core.codegen import generate
from customop.core.dispatch import find_kernel
from customop.core.interpreter import current_mode, run_under
from customop.core.operator import Operator
from customop.core.table import changing
from customop.errors import GraphError
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, PLACEHOLDER, Node
from customop.graph.passes import edit_in_place, frozen_key, merge_equal_nodes
from customop.interop.counterparts import TABLE, UFUNCS
from customop.interop.rule_graphs import without_writes
from customop.interop.torch.framework import batch_level, no_autocast, torch
from customop.interop.torch.tensors import dtype_of_numpy, dtype_of_torch
from customop.interop.torch.torch_functions import DIALECT, DTYPES, has_function
from customop.interop.torch.torch_kernels import TorchCall, plain
from customop.transforms.trace.graph_tracer import lay_out

# ---- the code of rules, by what they are called with ----


class RuleCode(NamedTuple):
    """A derivative of an operator as a function of tensors.

    Attributes
    ----------
    run : callable
        Takes tensors, and returns a list of tensors and None.
    holds : callable
        Returns whether the values that it uses beside its arguments are unchanged.
    """

    run: Callable[..., list[Any]]
    holds: Callable[[], bool]


class RuleCodes:
    """The derivatives of an operator that torch runs.

    Parameters
    ----------
    op : Operator
    """

    def __init__(self, op: Operator[..., Any]) -> None:
        self._op = op
        self.clear()

    def clear(self) -> None:
        """Forget all code."""
        self._codes: dict[Any, RuleCode | None] = {}
        self._changes: int = changing.count
        self._misses: int = 0

    def run(self, call: TorchCall, tensors: Sequence[Any]) -> list[Any] | None:
        """Run a derivative; return None where the operator's own rule must run.

        Parameters
        ----------
        call : TorchCall
        tensors : sequence of tensor or None
        """
        if self._changes != changing.count:
            self.clear()
        types = _types(tensors)
        if types is None or current_mode.get() is not None or batch_level():
            return None
        key = (call.steps, frozen_key(call.leaves), types)
        code = self._codes.get(key, self)
        if code is self or (isinstance(code, RuleCode) and not code.holds()):
            code = self._made(key, call, types)
        if not isinstance(code, RuleCode):
            return None
        given = [x for x in tensors if x is not None]
        if torch.is_autocast_enabled("cpu"):  # the rule has the dtypes of NumPy
            with no_autocast():
                return code.run(*given)
        return code.run(*given)

    def _made(
        self, key: Any, call: TorchCall, types: Sequence[_TensorType | None]
    ) -> RuleCode | None:
        """Trace a rule, or return None: some graphs are for one shape alone."""
        self._misses += 1
        if self._misses > _MOST:
            return self._codes.setdefault(key, None) if key in self._codes else None
        with capturing:
            made = run_under(None, _traced, call, types)
        self._codes[key] = made
        return made


# At most so many graphs are traced for an operator; later shapes run by its rule.
_MOST = 64


_CLASSES = (torch.Tensor, torch.nn.Parameter)


class _TensorType(NamedTuple):
    """The facts of a tensor that code depends on; its order, where a rule writes to arrays."""

    dtype: Any
    shape: tuple[int, ...]
    is_ordered: bool


def _types(tensors: Sequence[Any]) -> tuple[_TensorType | None, ...] | None:
    """Return the types of tensors; None if no graph can be made for one of them."""
    found: list[_TensorType | None] = []
    for x in tensors:
        if x is None:
            found.append(None)
            continue
        # Torch keeps compiled programs on disk by the names of operators, so they would go
        # on with an old formula (torch 2.13). Traced tensors are therefore left out.
        if type(x) not in _CLASSES:
            return None
        shape = tuple(x.shape)
        if x.dtype not in DTYPES or x.device.type != "cpu":
            return None
        found.append(_TensorType(x.dtype, shape, x.is_contiguous() or _is_ordered(x)))
    return tuple(found)


def _is_ordered(x: Any) -> bool:
    """Return whether NumPy makes arrays like this one in C order."""
    strides = [*x.stride()]
    return strides == sorted(strides, reverse=True)


# ---- from a rule to its code ----


def _traced(call: TorchCall, types: Sequence[_TensorType | None]) -> RuleCode | None:
    """Return the code of a rule; None if the rule itself must run."""
    op = call.exported.op
    around = Surroundings([*_functions(op), *[(v, "") for v in call.leaves]])
    if not around.is_plain:
        return None
    leaves = [*map(plain, call.leaves)]
    given = [i for i, t in enumerate(types) if t is not None]
    fakes = [
        FakeArray(t.shape, dtype_of_numpy(t.dtype)) for t in types if t is not None
    ]

    has_value: list[bool] = []

    def rule(*arrays: Any) -> list[Any]:
        every: list[Any] = [None] * len(types)
        for i, array in zip(given, arrays, strict=True):
            every[i] = array
        results = call.exported.evaluate(call.steps, leaves, every)
        has_value[:] = [y is not None for y in results]
        return [y for y in results if y is not None]

    try:
        found = captured_alone(
            rule,
            op.qualname,
            CallArguments(tuple(fakes), {}),
            around,
            None,
            {},
            finish=lambda module, _: _finished(module),
        )
    except Exception:  # noqa: BLE001  # the rule runs itself then, and raises its own errors
        return None
    adds = not all(isinstance(c, WatchedContainer) for c in around.contents)
    is_ordered = all(t is None or t.is_ordered for t in types)
    if adds or found.written or found.has_guesses:
        return None
    if found.has_strides and not is_ordered:
        return None
    constants = found.module.graph.constants.values()
    around.leave_out_constants(constants)
    return RuleCode(_code_of(found.module, has_value), _test_of(op, around))


def _functions(op: Operator[..., Any]) -> list[tuple[Any, str]]:
    """Return the functions that derivatives of an operator may run."""
    found: list[Any] = []
    for row in [op.rows[kind] for kind in (AUTOGRAD, JVP, VMAP) if kind in op.rows]:
        rule = row.fn
        if getattr(rule, "is_formula", False):
            found += rule.backward, getattr(rule, "setup_context", None)
        else:
            found += rule, find_kernel(op, CPU.name)  # `native` runs the kernel
    return [(fn, "") for fn in found if fn is not None]


def _finished(module: GraphModule) -> GraphModule:
    """Return the graph of a rule; raise if torch lacks one of its functions."""
    found = without_writes(module)
    if found is None or not all(map(has_function, found.graph.nodes)):
        raise GraphError("a rule calls what torch does not have", do="run the rule")
    edit_in_place(found.graph, merge_equal_nodes, Graph.eliminate_dead_code)
    return found


def _test_of(op: Operator[..., Any], around: Surroundings) -> Callable[[], bool]:
    """Return a function that tests whether the values that a rule uses are unchanged."""
    names: dict[str, Any] = {}

    def bind(name: str, value: Any) -> str:
        full = f"{name}_{len(names)}"
        names[full] = value
        return full

    tests = " and ".join(around.tests(bind)) or "True"
    lines = [
        "def holds():",
        "    try:",
        f"        return {tests}",
        "    except (KeyError, ValueError):",
        "        return False",
    ]
    made: Callable[[], bool] = generate(
        f"guards of {op.qualname} for torch", "\n".join(lines), "holds", names
    )
    return made


# ---- the code of a graph ----

# Ufuncs that take numbers of Python.
_TAKE_NUMBERS = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "power", "equal", "not_equal"),
        *("less", "less_equal", "greater", "greater_equal"),
    )
)


def _code_of(
    module: GraphModule, has_value: Sequence[bool]
) -> Callable[..., list[Any]]:
    """Return a function of tensors that runs a graph by torch's functions."""
    names: dict[str, Any] = {"_m": DIALECT, "_cast": _cast, "_constant": _constant}
    texts: dict[Node, str] = {}

    def bind(value: Any) -> str:
        name = f"_c{len(names)}"
        names[name] = value
        return name

    def text(value: Any) -> str:
        if isinstance(value, Node):
            return texts[value]
        if isinstance(value, list | tuple) and any(
            isinstance(leaf, Node) for leaf in flat(value)
        ):
            return f"[{', '.join(map(text, value))}]"
        if isinstance(value, np.ndarray | np.generic):
            return f"_constant({bind(np.asarray(value))})"
        return bind(value)

    lines = []
    for i, node in enumerate(module.graph.nodes):
        texts[node] = f"v{i}"
        if node.op == CONSTANT:
            value = text(np.asarray(module.graph.constants[node.target]))
        elif node.op == CALL:
            value = _call_text(node, text, bind)
        else:
            continue
        lines.append(f"    v{i} = {value}")
    inputs = [texts[node] for node in module.graph.nodes if node.op == PLACEHOLDER]
    results = iter(module.graph.output_node.args[0])
    outs = [_result_text(next(results), text) if has else "None" for has in has_value]
    source = "\n".join(
        [f"def run({', '.join(inputs)}):", *lines, f"    return [{', '.join(outs)}]"]
    )
    made: Callable[..., list[Any]] = generate(
        f"{module.name} for torch", source, "run", names
    )
    return made


def _call_text(
    node: Node, text: Callable[[Any], str], bind: Callable[[Any], str]
) -> str:
    """Return the text of a call."""
    op, values = node.target, node.values()
    if op is lay_out:  # a tensor may lie as it likes
        return text(node.args[0])
    if op.is_factory:
        return text(np.asarray(op.run(*values)))
    given = ", ".join(map(text, values))
    if op.name in UFUNCS and _is_direct(node):
        return f"{bind(getattr(DIALECT, op.name))}({given})"
    wanted = dtype_of_torch(node.val.dtype)
    return f"_cast({bind(TABLE[op.name])}(_m, {given}), {bind(wanted)})"


def _result_text(leaf: Any, text: Callable[[Any], str]) -> str:
    if not isinstance(leaf, Node):
        return text(np.asarray(leaf))
    # A result that is an argument would be one tensor in two places.
    return f"{text(leaf)}.clone()" if leaf.op == PLACEHOLDER else text(leaf)


def _is_direct(node: Node) -> bool:
    """Return whether all operands of a ufunc have the dtype of its loop."""
    values = node.values()
    vals = [v.val for v in values if isinstance(v, Node)]
    numbers = [v for v in values if not isinstance(v, Node)]
    if numbers and not (
        node.target.name in _TAKE_NUMBERS
        and all(type(v) in (int, float) for v in numbers)
    ):
        return False
    dtypes = [v.val.dtype if isinstance(v, Node) else type(v) for v in values]
    loop = getattr(np, node.target.name).resolve_dtypes((*dtypes, None))
    return all(val.dtype == t for val in vals for t in loop[: len(values)])


def _cast(x: Any, dtype: Any) -> Any:
    return x if x.dtype is dtype else x.to(dtype)


def _constant(array: np.ndarray[Any, Any]) -> Any:
    return torch.tensor(array, device="cpu")  # whatever the default device is
