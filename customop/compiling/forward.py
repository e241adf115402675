"""Functions captured inside `vmap` and `jvp`, which need no backward graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NoReturn

from customop.compiling.within import PLAIN, Within
from customop.core.table import RuleTable
from customop.errors import GraphError
from customop.graph.module import GraphModule
from customop.graph.node import CALL, Node
from customop.transforms.batch import BatchInterpreter, BatchTracer
from customop.transforms.jvp import JvpInterpreter, JvpTracer

__all__ = ["CONSTANT", "MOVING", "WithinJvp", "WithinVmap"]

# In a pattern of forward mode: a tracer without a tangent, and one with a tangent.
CONSTANT, MOVING = -2, 0


class _WholeBatch(BatchInterpreter):
    """A vmap around the whole function: its calls are the function's own."""

    is_lasting = True

    def loop(
        self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]
    ) -> NoReturn:
        """Refuse: a graph would have a call for each row."""
        raise GraphError(f"{op.qualname} has no vmap rule and runs row by row")


class WithinVmap(Within):
    """Captures a function inside `vmap`; a pattern has the axis of each batch."""

    followed: ClassVar[str] = "that is batched"

    def _begin(self, leaves: Sequence[Any]) -> BatchInterpreter:
        pairs = zip(leaves, self.pattern, strict=True)
        first, *others = [v.shape[dim] for v, dim in pairs if dim != PLAIN]
        if not all(size == first for size in others):
            raise GraphError("batches differ in length")
        return _WholeBatch(first, "error", None)

    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> BatchTracer:
        return BatchTracer(interpreter, leaf, self.pattern[number])

    def _take(self, leaf: Any, values: list[Any]) -> int:
        return int(leaf.dim)

    def finish(self, module: GraphModule, derived: Collection[Node]) -> GraphModule:
        """As for other transforms; raise if the graph draws, of which vmap must know."""
        module = super().finish(module, derived)
        if any(n.op == CALL and n.has_effects for n in module.graph.nodes):
            raise GraphError("it draws random numbers, or calls what has effects")
        return module


class _WholePush(JvpInterpreter):
    """Forward mode around the whole function: its calls are the function's own."""

    is_lasting = True


class WithinJvp(Within):
    """Captures a function inside `jvp`; the last argument is the list of tangents."""

    followed: ClassVar[str] = "that has a tangent"
    _tangents: Sequence[Any] = ()

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        self._tangents = args[-1]
        return super()._run(args[:-1], kwargs)

    def _begin(self, leaves: Sequence[Any]) -> JvpInterpreter:
        moving = [
            v for v, code in zip(leaves, self.pattern, strict=True) if code == MOVING
        ]
        for value, tangent in zip(moving, self._tangents, strict=True):
            if tuple(value.shape) != tuple(tangent.shape):  # symbolic sizes are noted
                raise GraphError("a tangent has another shape than its value")
        return _WholePush()

    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> JvpTracer:
        if self.pattern[number] == CONSTANT:
            return JvpTracer(interpreter, leaf, None)
        moving = [i for i, code in enumerate(self.pattern) if code == MOVING]
        return JvpTracer(interpreter, leaf, self._tangents[moving.index(number)])

    def _take(self, leaf: Any, values: list[Any]) -> int:
        if leaf.tangent is None:
            return -1
        values.append(leaf.tangent)
        return len(values) - 1
