"""The kinds of rules that the package has, and the protocol of gradient rules.

`native` and the rule of an operator without one are in ``transforms/autograd``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from customop.arrays.kinds import FAKE_ARRAY, TRACED, is_array, kind_of
from customop.arrays.nested import map_nested
from customop.core.contract import COMPOSITE_RULE, check_returns
from customop.core.derived_rules import derive_vmap
from customop.core.rule_kind import (
    Definition,
    MergedKind,
    OwnKind,
    Row,
    RuleKind,
    check_device_types,
    check_kernel,
    fallthrough_kernel,
    same_place,
)
from customop.core.table import RuleTable
from customop.errors import RegistrationError, caller_place, did_you_mean, place, shown
from customop.frozen import Frozen
from customop.schema.agreement import (
    check_callable,
    check_parameters,
    check_returns_at_once,
    has_exactly,
    parameters_of,
)
from customop.schema.tags import Tag

# ---- the rules of reverse mode: one protocol for all of them ----


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
        """Return the value below a tracer of this gradient; other values unchanged."""
        ...

    def node(self) -> Any:
        """Make a node for the call, which its formula gets as `ctx`."""
        ...

    def set_up(self, node: Any, setup_context: Callable[..., Any], out: Any) -> None:
        """Let the user's function save what the backward formula needs."""
        ...

    def track(self, node: Any, out: Any) -> Any:
        """Track the differentiable arrays of the result to the node, and return it."""
        ...


class GradRule(ABC):
    """A rule for reverse mode: how a call of an operator is tracked."""

    __slots__ = ()
    # Whether this is a Formula: calls of most operators are then compiled.
    is_formula: ClassVar[bool] = False
    # Whether its formulas for gradients are formulas for tangents too.
    has_tangents: ClassVar[bool] = False
    # ``backward(ctx, *grads)`` returns the gradients of the inputs; None for a rule that
    # makes no nodes.
    backward: Any

    @abstractmethod
    def forward(self, call: GradCall) -> Any:
        """Run a call; its result is tracked where gradients flow."""

    @abstractmethod
    def check(self, op: Definition) -> None:
        """Raise unless this can be the rule of the operator."""

    def pushforward(self, op: RuleTable) -> Callable[..., Any] | None:
        """Return the rule of forward mode with the same formulas; None without one."""
        return None

    @property
    def backward_place(self) -> str:
        """File and line of the function that computes gradients."""
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
        """Yield both functions: ``backward, setup_context = formula``."""
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
    """First argument of a function `with_below`; it calls the operator without tracking."""

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
        """Accept every operator."""

    @property
    def places(self) -> tuple[str, ...]:
        """Nothing, since the rule has no function."""
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
    """Make a rule of a backward formula; return rules such as `native` unchanged."""
    if isinstance(backward, GradRule):
        return backward
    return Formula(backward, setup_context)


def as_rule(fn: Any, with_below: bool = False) -> GradRule:
    """Make a rule of what is registered: a function is called in place of the operator."""
    if isinstance(fn, GradRule):
        return fn
    return PassThrough() if fn is fallthrough_kernel else GradFunction(fn, with_below)


# ---- transforms ----


class AutogradKind(RuleKind):
    """Rules of reverse mode: a `GradRule`, or a function in place of the operator."""

    shorter: ClassVar[str] = (
        ", or {name}.register_autograd(co.native) if the kernel is made of NumPy functions"
    )

    __slots__ = ()
    falls_through: ClassVar[bool] = True
    call_title: ClassVar[str] = "autograd forward"

    def check_given(self, qualname: str, fn: Any) -> None:
        """Raise unless `fn` can be registered for some operator."""
        if not isinstance(fn, GradRule):
            super().check_given(qualname, fn)

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless `fn` can be the rule of the operator."""
        as_rule(fn).check(definition)

    def place_of(self, fn: Any) -> str:
        """Return file and line of the first function."""
        return fn.places[0] if isinstance(fn, GradRule) else place(fn)

    def entries(self, row: Row) -> list[tuple[str, tuple[str, ...]]]:
        """List the rule, with the places of all its functions."""
        return [("", row.fn.places)]

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """Return the rule that enters the table; a function becomes a `GradFunction`."""
        return as_rule(fn, with_below)


class JvpKind(RuleKind):
    """Rules of forward mode."""

    __slots__ = ()

    returns_pair: ClassVar[bool] = True
    how_instead: ClassVar[str] = "it is transposed for jvp"

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless `fn` can be the rule of the operator."""
        if not _has_tangents(fn):
            super().check(definition, fn)
            return
        fn.check(definition)
        if Tag.pointwise not in definition.tags:
            raise definition.error(
                RegistrationError,
                "register_jvp takes partials for pointwise operators only: elsewhere a"
                " formula for gradients is not one for tangents",
                do="say tags=Tag.pointwise, or register def jvp(primals, tangents)",
                parameter=None,
                kind=self.name,
            )

    def place_of(self, fn: Any) -> str:
        """Return file and line of the rule, or of the first formula."""
        return fn.places[0] if _has_tangents(fn) else place(fn)

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """Return the rule that enters the table; partials become the rule for tangents."""
        if _has_tangents(fn):
            return fn.pushforward(op)
        return super().accept(op, fn, with_below=with_below)

    @property
    def instead(self) -> RuleKind | None:
        """The kind of backward formulas."""
        return AUTOGRAD


def _has_tangents(fn: Any) -> bool:
    """Return whether a rule for gradients serves forward mode too, as partials do."""
    # By name: isinstance takes 0.4 us for an abstract class (CPython 3.11).
    return getattr(fn, "has_tangents", False) is True


class VmapKind(RuleKind):
    """Batching rules."""

    __slots__ = ()
    last_resort: ClassVar[str] = "loop over the rows"
    returns_pair: ClassVar[bool] = True


AUTOGRAD = AutogradKind("autograd", returns="gradients of the positional inputs")
JVP = JvpKind("jvp", "(primals, tangents, **keywords)", "(output, tangent)")
VMAP = VmapKind(
    "vmap", "(info, in_dims, *inputs)", "(output, out_dims)", derive=derive_vmap
)


# ---- dtypes by kind of array ----


class AutocastKind(MergedKind):
    """Dtypes that `autocast` casts floats to. A row is a dict: kind of array -> dtype.

    Registered as a pair of both.
    """

    __slots__ = ()

    def check_given(self, qualname: str, fn: Any) -> None:
        """Accept anything: a pair is checked with the operator."""

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless the operator can run on floats that were cast to the dtype."""
        device_type, dtype = fn
        if not isinstance(device_type, str):
            raise _refused(
                definition,
                f"takes one kind of array, got {shown(device_type)}",
                'write register_autocast("cpu", np.float32)',
            )
        check_device_types(definition.qualname, device_type)
        schema = definition.schema
        bound = [p.name for p in schema.parameters if p.alias is not None]
        if bound:
            why = "writes" if schema.written else "returns a view of"
            name = (schema.written or bound)[0]
            raise definition.error(
                RegistrationError,
                f"register_autocast: it {why} its argument '{name}', in place of which"
                " a cast would hand over a copy",
                do="register autocast on an operator that returns fresh arrays",
                parameter=name,
                kind=self.name,
            )
        if not _is_float(dtype):
            raise _refused(
                definition,
                f": {shown(dtype)} is not a floating-point dtype",
                "pass one, such as np.float16 or np.float32",
            )

    def place_of(self, fn: Any) -> str:
        """Return file and line of the call that registers."""
        return caller_place()

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """Return the pair as a dict."""
        device_type, dtype = fn
        return {device_type: np.dtype(dtype)}

    def entries(self, row: Row) -> list[tuple[str, tuple[str, ...]]]:
        """List each kind of array with its dtype."""
        return [(f"{name}:{dtype}", (row.place,)) for name, dtype in row.fn.items()]


def _refused(definition: Definition, what: str, do: str) -> RegistrationError:
    joint = "" if what.startswith(":") else " "
    return definition.error(
        RegistrationError,
        f"register_autocast{joint}{what}",
        do=do,
        parameter=None,
        kind="autocast",
    )


def _is_float(dtype: Any) -> bool:
    """Return whether a value names a floating-point dtype.

    By name: the floats of other packages, such as bfloat16, are of kind "V".
    """
    try:
        return dtype is not None and "float" in np.dtype(dtype).name
    except Exception:  # noqa: BLE001  # NumPy evaluates text, and asks the object
        return False


# ---- classes of arrays ----


class ArrayClassKind(MergedKind):
    """Rules for classes of arrays. A row is a dict: class -> row of a rule.

    Registered as a pair of both.
    """

    __slots__ = ()

    @property
    def title(self) -> str:
        """The name of a rule in messages."""
        return "array rule"

    def why_not(self, array_kind: str | None) -> str:
        """Explain why a call does not take this row, given the kind of array of its kernel."""
        return "no argument is of its classes"

    def check_given(self, qualname: str, fn: Any) -> None:
        """Accept anything: a pair is checked with the operator."""

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless a call can tell the class, and the rule takes what it is given."""
        array_class, rule = fn
        _check_class(definition, array_class)
        check_callable(definition.qualname, self.title, rule, kind=self.name)
        check_parameters(
            f"{definition.qualname}: the {self.title}",
            rule,
            ["op", "args", "kwargs"],
            [],
            free=3,
            do=lambda: "write def rule(op, args, kwargs): ...",
        )

    def place_of(self, fn: Any) -> str:
        """Return file and line of the rule."""
        return place(fn[1])

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """Return the pair as a dict."""
        array_class, rule = fn
        return {array_class: Row(rule, place(rule))}

    def entries(self, row: Row) -> list[tuple[str, tuple[str, ...]]]:
        """List each class with the place of its rule."""
        return [(_named(cls), (rule.place,)) for cls, rule in row.fn.items()]

    def check_new(self, op: RuleTable, new: Row) -> None:
        """Raise for a second rule of a class from another place."""
        row = op.rows.get(self)
        for array_class, rule in new.fn.items():
            known = None if row is None else row.fn.get(array_class)
            if known is not None and not same_place(known.place, rule.place):
                raise self.second(op, f"a rule for {_named(array_class)}", known, rule)


def _named(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _check_class(definition: Definition, cls: Any) -> None:
    if not isinstance(cls, type):
        what = f"{shown(cls)} is not a class"
        do = "pass the class of the arrays: np.ma.MaskedArray"
    elif issubclass(np.ndarray, cls):
        what = f"{_named(cls)} is the class of plain arrays, or above it"
        do = f'use @{definition.name}.register_kernel("cpu")'
    elif kind_of[cls] in (TRACED, FAKE_ARRAY):
        what = f"{_named(cls)} is not a class of arrays with data"
        do = "register a rule for the transform, or register_fake"
    elif issubclass(cls, np.generic) or cls.__module__ == "builtins":
        what = f"{_named(cls)} is not a class of arrays"
        do = "pass the class of the arrays: np.ma.MaskedArray"
    else:
        return
    raise definition.error(
        RegistrationError,
        f"register_array_dispatch: {what}",
        do=do,
        parameter=None,
        kind="array_class",
    )


AUTOCAST = AutocastKind("autocast", returns="dtypes by kind of array")
ARRAY_CLASS = ArrayClassKind(
    "array_class", "(op, args, kwargs)", "what the operator returns"
)
# Inputs to check the operator with.
SAMPLE_INPUTS = OwnKind("sample_inputs", "()", "samples, or a strategy of them")
