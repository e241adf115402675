"""Functions with derivatives of their own, as operators that hold graphs of them.

Graph files have these operators in the place of calls of `custom_vjp`, `custom_jvp` and
`checkpoint`, whose Python functions another process does not have. The graphs are captured
when the file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from customop.core.boxes import frozen
from customop.core.kinds import COMPOSITE
from customop.core.operator import Operator
from customop.errors import GradientError, MissingRuleError
from customop.graph.argument import GRAPH
from customop.graph.module import GraphModule
from customop.library.define import custom_op
from customop.transforms.functions.call import Forward, FunctionTable, enter
from customop.transforms.functions.checkpoint import checkpoint
from customop.transforms.functions.one_rule import JvpCall, VjpCall
from customop.transforms.functions.parts import moves, own
from customop.transforms.values import or_zeros

__all__ = ["again_op", "checkpoint_op", "jvp_op", "vjp_op"]

Arrays = Sequence[Any]

# The calls whose graphs run: rules may call their own function again.
_running: ContextVar[dict[str, Any]] = ContextVar("customop_functions", default={})  # noqa: B039  # replaced, never changed


class _OfGraphs:
    """Base of both forms.

    Parameters
    ----------
    key : str
        How `again_op` in the graphs names this call.
    function : GraphModule
        Of the function itself.
    """

    def __init__(self, title: str, key: str, function: GraphModule) -> None:
        self.table: FunctionTable = FunctionTable(title, function)
        self.key: str = key
        self.function: GraphModule = function

    @contextmanager
    def _known(self) -> Iterator[None]:
        """Let `again_op` find this call."""
        token = _running.set({**_running.get(), self.key: self})
        try:
            yield
        finally:
            _running.reset(token)

    def run(self, inputs: Arrays) -> Arrays:
        with self._known():
            return own(self.function(*inputs), inputs)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (type(self), self.function)

    def missing(self, rule: str) -> MissingRuleError:
        """The error for a derivative that the file does not have."""
        return self.table.error(
            MissingRuleError,
            f" has no {rule}, since the function had none when its graph was saved",
            f"traced at {self.function.place}",
            do="register the rule, and save the graph again",
            parameter=None,
        )


class VjpOfGraphs(_OfGraphs, VjpCall):
    """A call whose gradient is two graphs."""

    def __init__(
        self,
        key: str,
        function: GraphModule,
        fwd: GraphModule | None,
        bwd: GraphModule | None,
        gradients: Sequence[int],
    ) -> None:
        super().__init__("custom_vjp", key, function)
        self.fwd: GraphModule | None = fwd
        self.bwd: GraphModule | None = bwd
        self.gradients: Sequence[int] = gradients

    @property
    def has_rule(self) -> bool:
        return self.fwd is not None

    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        if self.fwd is None:
            raise self.missing("gradient")
        count = len(self.function.graph.output_node.args[0])
        with self._known():
            found = [frozen(v) for v in own(self.fwd(*inputs), inputs)]
        return Forward(found[:count], found[count:], (found[:count], wanted))

    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        outputs, wanted = rest
        assert self.bwd is not None
        pairs = zip(outputs, cotangents, strict=True)
        given = [or_zeros(g, y) for y, g in pairs if moves(y)]
        with self._known():
            found = dict(zip(self.gradients, self.bwd(*saved, *given), strict=True))
        return [found.get(i) if w else None for i, w in enumerate(wanted)]


class JvpOfGraphs(_OfGraphs, JvpCall):
    """A call whose rule for tangents is a graph."""

    def __init__(
        self,
        key: str,
        function: GraphModule,
        rule: GraphModule | None,
        tangents: Sequence[int],
    ) -> None:
        super().__init__("custom_jvp", key, function)
        self.rule: GraphModule | None = rule
        self.tangents: Sequence[int] = tangents

    @property
    def has_rule(self) -> bool:
        return self.rule is not None

    def push(self, primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        if self.rule is None:
            raise self.missing("rule for tangents")
        count = len(self.function.graph.output_node.args[0])
        pairs = zip(primals, tangents, strict=True)
        given = [or_zeros(t, x) for x, t in pairs if moves(x)]
        with self._known():
            found = self.rule(*primals, *given)
        moved = dict(zip(self.tangents, found[count:], strict=True))
        return own(found[:count], primals), [moved.get(i) for i in range(count)]


# ---- the operators ----


def _run_vjp(
    arrays: Arrays,
    key: str,
    function: GraphModule,
    fwd: GraphModule | None = None,
    bwd: GraphModule | None = None,
    gradients: Sequence[int] = (),
) -> list[Any]:
    return [*enter(VjpOfGraphs(key, function, fwd, bwd, gradients), list(arrays))]


def _run_jvp(
    arrays: Arrays,
    key: str,
    function: GraphModule,
    rule: GraphModule | None = None,
    tangents: Sequence[int] = (),
) -> list[Any]:
    return [*enter(JvpOfGraphs(key, function, rule, tangents), list(arrays))]


def _run_checkpoint(arrays: Arrays, key: str, function: GraphModule) -> list[Any]:
    return [*checkpoint(function)(*arrays)]


def _run_again(arrays: Arrays, key: str) -> list[Any]:
    call = _running.get().get(key)
    if call is None:
        raise GradientError(
            f"functions::again of {key} is called outside of the graphs of that function",
            do="call the graph that was loaded, not one inside of it",
        )
    return [*enter(call, list(arrays))]


def _operator(name: str, run: Callable[..., Any], schema: str) -> Operator[..., Any]:
    """An operator whose body every transform sees."""
    op: Operator[..., Any] = custom_op(
        f"functions::{name}", run, mutates_args=(), schema=f"({schema}) -> Array[]"
    )
    op.register(COMPOSITE, run)
    return op


vjp_op: Operator[..., Any] = _operator(
    "custom_vjp",
    _run_vjp,
    f"Array[] arrays, str key, {GRAPH} function, {GRAPH}? fwd=None, {GRAPH}? bwd=None,"
    " int[] gradients=[]",
)
jvp_op: Operator[..., Any] = _operator(
    "custom_jvp",
    _run_jvp,
    f"Array[] arrays, str key, {GRAPH} function, {GRAPH}? rule=None, int[] tangents=[]",
)
checkpoint_op: Operator[..., Any] = _operator(
    "checkpoint", _run_checkpoint, f"Array[] arrays, str key, {GRAPH} function"
)
again_op: Operator[..., Any] = _operator("again", _run_again, "Array[] arrays, str key")
