"""The rules of reverse mode: one protocol for all of them.

`native` and the rule of an operator without one are in ``transforms/autograd``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

from customop.arrays.kinds import is_array
from customop.arrays.nested import map_nested
from customop.core.contract.results import COMPOSITE_RULE, check_returns
from customop.core.definition import Definition, fallthrough_kernel
from customop.core.rule_kind import check_kernel
from customop.core.table import RuleTable
from customop.errors import RegistrationError, did_you_mean, place
from customop.frozen import Frozen
from customop.schema.signatures import (
    check_callable,
    check_parameters,
    check_returns_at_once,
    has_exactly,
    parameters_of,
)

__all__ = [
    "Formula",
    "GradCall",
    "GradFunction",
    "GradRule",
    "PassThrough",
    "as_formula",
    "as_rule",
    "check_has_gradient",
]


class GradCall(Protocol):
    """A call of an operator under reverse mode, as its rule sees it."""

    op: RuleTable
    # The arguments as given, and the values below the tracers of this gradient.
    args: Sequence[Any]
    values: list[Any]
    # For each tracer of this gradient: number of the argument, path inside the argument,
    # and the node that made the tracer.
    edges: list[tuple[int, tuple[int, ...], Any]]

    def lower(self, value: Any) -> Any:
        """The value below a tracer of this gradient; other values as they are."""
        ...

    def node(self) -> Any:
        """A new node for the call: the `ctx` of its formula."""
        ...

    def set_up(self, node: Any, setup_context: Callable[..., Any], out: Any) -> None:
        """Let the user's function save what the backward formula needs."""
        ...

    def track(self, node: Any, out: Any) -> Any:
        """The result, with its differentiable arrays tracked to the node."""
        ...


class GradRule(ABC):
    """A rule for reverse mode: how a call of an operator is tracked."""

    __slots__ = ()
    # Whether this is a Formula: calls of most operators are then compiled.
    is_formula: ClassVar[bool] = False
    # ``backward(ctx, *grads)`` returns the gradients of the inputs; None for a rule that
    # makes no nodes.
    backward: Any

    @abstractmethod
    def forward(self, call: GradCall) -> Any:
        """Run a call; its result is tracked where gradients flow."""

    @abstractmethod
    def check(self, op: Definition) -> None:
        """Raise unless this can be the rule of the operator."""

    @property
    def backward_place(self) -> str:
        """File and line of what computes gradients."""
        return place(self.backward)

    @property
    @abstractmethod
    def places(self) -> tuple[str, ...]:
        """File and line of each function of the rule."""


class Formula(Frozen, GradRule):
    """The autograd rule of an operator.

    Attributes
    ----------
    backward : callable
        ``backward(ctx, *grads)``, gradients of the inputs.
    setup_context : callable or None
        ``setup_context(ctx, inputs, output)``, called after the forward pass.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def backward(ctx, grad):
    ...     return 2.0 * grad
    >>> with co.Library("doc_formula", "FRAGMENT") as lib:
    ...     lib.impl(lib.define("twice(Array x) -> Array"), lambda x: x * 2.0, "CPU")
    ...     lib.impl("twice", co.Formula(backward, None), "Autograd")
    ...     print(co.grad(co.ops.doc_formula.twice.default)(np.array(3.0)))
    2.0
    """

    is_formula: ClassVar[bool] = True
    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None

    def __init__(
        self, backward: Callable[..., Any], setup_context: Callable[..., Any] | None
    ) -> None:
        super().__init__(backward, setup_context)

    def __iter__(self) -> Iterator[Callable[..., Any] | None]:
        """Both functions: ``backward, setup_context = formula``."""
        return iter((self.backward, self.setup_context))

    def forward(self, call: GradCall) -> Any:
        """Run the operator below, and make a node of the call."""
        out = call.op.invoke(call.values)
        node = call.node()
        if self.setup_context is not None:
            call.set_up(node, self.setup_context, out)
        return call.track(node, out)

    def check(self, op: Definition) -> None:
        """Raise unless both functions have the right parameters."""
        check_has_gradient(op)
        check_returns_at_once(op.qualname, "backward", self.backward)
        _check_backward(op, self.backward)
        if self.setup_context is not None:
            _check_setup(op, self.setup_context)
        else:
            _check_saves(op, self.backward)

    @property
    def places(self) -> tuple[str, ...]:
        """File and line of both functions."""
        if self.setup_context is None:
            return (place(self.backward),)
        return place(self.backward), place(self.setup_context)


class GradFunction(GradRule):
    """A function that is called in place of the operator, on the tracers themselves."""

    __slots__ = ("fn", "with_below")
    backward = None

    def __init__(self, fn: Callable[..., Any], with_below: bool = False) -> None:
        self.fn: Callable[..., Any] = fn
        self.with_below: bool = with_below

    def forward(self, call: GradCall) -> Any:
        """Call the function with the arguments as given."""
        op = call.op
        below = (_BelowGrad(call),) if self.with_below else ()
        positional, keywords = op.schema.split(call.args)
        out = self.fn(*below, *positional, **keywords)
        if not op.schema.single_return or not is_array(out):
            check_returns(op, self.fn, out, COMPOSITE_RULE)
        return out

    def check(self, op: Definition) -> None:
        """Raise unless the function has the parameters of the operator."""
        fn = partial(self.fn, None) if self.with_below else self.fn
        check_kernel(op, fn, "autograd function")

    @property
    def places(self) -> tuple[str, ...]:
        """File and line of the function."""
        return (place(self.fn),)


class _BelowGrad:
    """First argument of a function `with_below`: calls the operator without tracking."""

    __slots__ = ("_call",)

    def __init__(self, call: GradCall) -> None:
        self._call = call

    def redispatch(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator on the values below; the result is not tracked."""
        call = self._call
        named = {name: map_nested(v, call.lower) for name, v in kwargs.items()}
        return call.op.call(*[map_nested(v, call.lower) for v in args], **named)

    __call__ = redispatch


class PassThrough(GradRule):
    """The rule of a `fallthrough_kernel`: the operator below, not tracked."""

    __slots__ = ()
    backward = None

    def forward(self, call: GradCall) -> Any:
        """Call the operator on the values below."""
        return call.op.invoke(call.values)

    def check(self, op: Definition) -> None:
        """Fits every operator."""

    @property
    def places(self) -> tuple[str, ...]:
        """Empty: the rule has no function."""
        return ()


def check_has_gradient(definition: Definition) -> None:
    """Raise for an operator that cannot have a gradient."""
    if definition.schema.written or not definition.schema.returns:
        why = "writes its arguments" if definition.schema.written else "returns nothing"
        raise definition.error(
            RegistrationError,
            f" {why}, so it has no gradient",
            do="register autograd on an operator that returns fresh arrays",
            parameter="".join(definition.schema.written[:1]),
            kind="autograd",
        )


def _check_backward(definition: Definition, backward: Any) -> None:
    """Raise unless this has the parameters of a backward formula."""
    check_callable(definition.qualname, "backward formula", backward, kind="autograd")
    grads = [f"grad_{r.name or i}" for i, r in enumerate(definition.schema.returns)]
    check_parameters(
        f"{definition.qualname}: backward",
        backward,
        ["ctx", *grads],
        [],
        free=1 + len(grads),
        do=lambda: (
            f"write def backward(ctx, {', '.join(grads)}): one gradient for each output"
        ),
    )


def _check_saves(definition: Definition, backward: Any) -> None:
    """Raise if a formula without `setup_context` reads what only that can save."""
    code = getattr(backward, "__code__", None)
    read = {"saved_arrays", "saved_tensors"}.intersection(getattr(code, "co_names", ()))
    if read:
        raise RegistrationError(
            f"{definition.qualname}: backward reads ctx.{min(read)}, and there is no"
            " setup_context that saves any",
            f"at {place(backward)}",
            do="def setup_context(ctx, inputs, output): ctx.save_for_backward(...), and"
            " register_autograd(backward, setup_context=setup_context)",
            op=definition.qualname,
        )


def _check_setup(definition: Definition, setup_context: Any) -> None:
    """Raise unless this has the parameters of a setup function."""
    check_callable(definition.qualname, "setup_context", setup_context, kind="autograd")
    names = ["ctx", "inputs"]
    names += ["keyword_only_inputs"] if definition.schema.keyword_only else []
    names += ["output"]
    if has_exactly(setup_context, names, []):
        return
    listed = parameters_of(setup_context)
    if listed is None:
        return
    parameters = {p.name: p for p in listed}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    needed = {n for n, p in parameters.items() if p.default is p.empty}
    wrong = sorted(needed - set(names)) or [n for n in names if n not in parameters]
    if wrong:
        near = did_you_mean(wrong[0], names) if wrong[0] not in names else ""
        has = "has the parameter" if wrong[0] in parameters else "lacks the parameter"
        raise definition.error(
            RegistrationError,
            f"setup_context {has} '{wrong[0]}'{near}",
            f"at {place(setup_context)}",
            do=f"write def setup_context({', '.join(names)}): it is called by name",
            parameter=None,
            kind="autograd",
        )


def as_formula(backward: Any, setup_context: Any = None) -> GradRule:
    """A rule from a backward formula, or a rule such as `native` as it is."""
    if isinstance(backward, GradRule):
        return backward
    return Formula(backward, setup_context)


def as_rule(fn: Any, with_below: bool = False) -> GradRule:
    """A rule from a registration: a function is called in place of the operator."""
    if isinstance(fn, GradRule):
        return fn
    return PassThrough() if fn is fallthrough_kernel else GradFunction(fn, with_below)
