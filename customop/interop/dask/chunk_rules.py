"""Registration of chunks, and gradients on chunks.

dask is not imported here, so that packages can declare their operators without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, TypeVar

from customop.arrays.kinds import is_traced
from customop.arrays.nested import flat, map_nested
from customop.core.builtin_kinds import AUTOGRAD, GradCall, GradRule
from customop.core.operator import Operator
from customop.core.rule_kind import Definition
from customop.core.table import RuleTable
from customop.errors import RegistrationError, shown
from customop.interop.dask.declarations import Declaration, Reach, declaration
from customop.later import later
from customop.transforms.autograd.grad import native, vjp
from customop.transforms.values import uncarried

# It imports dask.
graphs: ModuleType = later(import_module, "customop.interop.dask.chunk_graphs")

OpT = TypeVar("OpT", bound=Operator[..., Any])


def register_chunks(
    op: OpT,
    /,
    *,
    overlap: Reach | Mapping[Any, Reach | Callable[..., Reach]] | None = None,
    boundary: float | str | Mapping[Any, float | str] = "none",
    combine: Mapping[Any, str] | None = None,
    gradient: Literal["chunks", "formula"] = "chunks",
) -> OpT:
    """Say how the results of chunks of dask arrays make the result of whole arrays.

    The kernel then runs on chunks, and so does the backward formula: register it first.
    The first chunk of each process checks what is said here: it is cut in two, and the
    parts must give the result of the chunk.

    Parameters
    ----------
    op : Operator
        Its fake kernel, or the shapes in its schema, says the shapes of the results.
    overlap : int, tuple of int, or mapping, optional
        For each axis how far the kernel reaches: how many elements before and after its
        own place an element of the result depends on. Two numbers are those before and
        after; a function takes the operator's arguments and returns the reach. 0 is for
        axes whose chunks are independent: their results are concatenated. Axes are named
        as in the shapes of the schema, and numbered if it has none. A single reach holds
        along all axes.
    boundary : str or number, or mapping, optional
        How the kernel continues an array beyond its ends, in dask's words: "none" if it
        does so by itself, which always gives the right numbers where the kernel does not
        wrap around; "periodic" if it does; "reflect", "nearest", or the number there. A
        mapping says it by axis.
    combine : mapping, optional
        For each axis that the results do not have: "sum", "max" or "min" of the results
        of its chunks, which are combined in a tree.
    gradient : "chunks" or "formula"
        Whether the backward formula runs on each chunk, for which it is extended by twice
        the reach, or once on the lazy arrays. The second is faster for a formula that is
        itself made of an operator with chunks, and it is what gradients of "max" and "min"
        do, and all higher derivatives.

    Returns
    -------
    Operator
        The operator itself.

    Raises
    ------
    RegistrationError
        If the operator has no such axis, or a word is unknown.

    Examples
    --------
    >>> from typing import Annotated
    >>> import numpy as np, dask.array as da, customop as co
    >>> from customop.interop.dask import register_chunks
    >>> @co.custom_op("doc::second", mutates_args=())
    ... def second(x: Annotated[np.ndarray, "n"]) -> Annotated[np.ndarray, "n"]:
    ...     return np.roll(x, 1) + np.roll(x, -1) - 2 * x
    >>> _ = second.register_autograd(lambda ctx, g: second(g))
    >>> _ = register_chunks(
    ...     second, overlap={"n": 1}, boundary="periodic", gradient="formula"
    ... )
    >>> x = da.arange(9.0, chunks=3)
    >>> second(x).compute()
    array([ 9.,  0.,  0.,  0.,  0.,  0.,  0.,  0., -9.])

    >>> @co.custom_op("doc::gram", mutates_args=())
    ... def gram(x: Annotated[np.ndarray, "n d"]) -> Annotated[np.ndarray, "d d"]:
    ...     return x.T @ x
    >>> _ = register_chunks(gram, combine={"n": "sum"})
    >>> gram(da.ones((6, 2), chunks=(2, 2))).compute()
    array([[6., 6.],
           [6., 6.]])
    """
    if not isinstance(op, Operator):
        raise RegistrationError(
            f"register_chunks takes an operator, got {shown(op)}",
            do="pass what custom_op returns, or co.ops.namespace.name.default",
        )
    declared = declaration(op, overlap, boundary, combine, gradient)

    def kernel(*args: Any, **keywords: Any) -> Any:
        _check_order(op, declared)
        values = [*args, *keywords.values()]
        return graphs.on_declared_chunks(op, declared, values)

    op.add("dask", kernel, override=True)
    row = op.rows.get(AUTOGRAD)
    inner = None if row is None else getattr(row.fn, "inner", row.fn)
    if inner is native or getattr(inner, "is_formula", False):
        rule = ChunkRule(inner, declared) if declared.has_gradient else inner
        op.add(AUTOGRAD, rule, override=True)
    return op


def _check_order(op: RuleTable, declared: Declaration) -> None:
    """Raise if the backward formula came later: it does not know of the chunks."""
    row = op.rows.get(AUTOGRAD)
    if row is None or isinstance(row.fn, ChunkRule) or not declared.has_gradient:
        return
    if row.fn is native or getattr(row.fn, "is_formula", False):
        raise op.error(
            RegistrationError,
            " has a backward formula that was registered after its chunks",
            f"at {row.place}",
            do="call register_chunks after register_autograd",
            parameter=None,
            kind="autograd",
        )


# ---- the gradient ----


class ChunkRule(GradRule):
    """A backward formula that runs on chunks where all arrays of a call are lazy.

    Elsewhere the formula itself runs: on arrays of NumPy, and in higher derivatives.

    Attributes
    ----------
    inner : GradRule
        The rule that was registered.
    declared : Declaration
    """

    __slots__ = ("declared", "inner")

    def __init__(self, inner: Any, declared: Declaration) -> None:
        self.inner: Any = inner
        self.declared: Declaration = declared

    @property
    def __wrapped__(self) -> Any:
        """What the digest of the operator and messages are about."""
        return self.inner

    @property
    def is_formula(self) -> bool:  # type: ignore[override]  # that of the rule inside
        """Whether the rule inside is a formula."""
        return bool(self.inner.is_formula)

    def __call__(self, ctx: Any, *grads: Any) -> Any:
        """Call `backward`, since a rule is registered like a function."""
        return self.backward(ctx, *grads)

    def forward(self, call: GradCall) -> Any:
        """Run a call; one on lazy arrays keeps its arguments for the gradient."""
        values = [map_nested(value, uncarried) for value in call.values]
        if not graphs.is_lazy_call(values):
            return self.inner.forward(call)
        if self.inner is native:
            node = call.node()
            node.chunk_values = values
            return call.track(node, call.op.invoke(call.values))
        made: list[Any] = []
        out = self.inner.forward(_Noting(call, made))
        for node in made:
            node.chunk_values = values
        return out

    def backward(self, ctx: Any, *grads: Any) -> Any:
        """Return the gradients of the inputs."""
        values = getattr(ctx, "chunk_values", None)
        if values is None:
            return self.inner.backward(ctx, *grads)
        op = ctx.node_op
        given = [uncarried(g) for g in flat(list(grads))]
        if not any(map(is_traced, given)) and graphs.is_smooth(op, values):
            found = graphs.gradient(
                op, self.declared, values, given, ctx.needs_input_grad
            )
            carrier = next(
                (g.interpreter for g in flat(list(grads)) if is_traced(g)), None
            )
            if carrier is None:
                return found
            # NumPy's code, which gets them, reaches operators by carriers.
            return {name: map_nested(g, carrier.carry) for name, g in found.items()}
        if self.inner is not native:
            return self.inner.backward(ctx, *grads)
        return _by_body(op, values, grads, ctx.needs_input_grad)

    def pushforward(self, op: RuleTable) -> Callable[..., Any] | None:
        """Return the rule of forward mode with the same formulas; None without one."""
        found: Callable[..., Any] | None = self.inner.pushforward(op)
        return found

    def check(self, op: Definition) -> None:
        """Raise unless the rule inside can be that of the operator."""
        self.inner.check(op)

    @property
    def places(self) -> tuple[str, ...]:
        """The places of the rule inside."""
        found: tuple[str, ...] = self.inner.places
        return found


class _Noting:
    """A call that notes the nodes that are made for it."""

    def __init__(self, call: GradCall, made: list[Any]) -> None:
        self._call, self._made = call, made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def node(self) -> Any:
        self._made.append(self._call.node())
        return self._made[-1]


def _by_body(
    op: RuleTable, values: Sequence[Any], grads: Sequence[Any], needed: Sequence[Any]
) -> dict[str, Any]:
    """Differentiate the body of an operator on lazy arrays: a cotangent is traced."""
    names = [p.name for p in op.schema.parameters]
    slots = [i for i, need in enumerate(needed) if any(flat(need))]

    def body(*moving: Any) -> Any:
        given = list(values)
        for slot, value in zip(slots, moving, strict=True):
            given[slot] = value
        positional, keywords = op.schema.split(given)
        return op.definition.fn(*positional, **keywords)

    _, pullback = vjp(body, *[values[i] for i in slots])
    out = pullback(grads if op.schema.is_tuple else grads[0])
    return {names[slot]: g for slot, g in zip(slots, out, strict=True)}
