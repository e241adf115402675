"""An operator: a schema and a table of rules."""

from __future__ import annotations

import importlib
import inspect
import keyword
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
from typing_extensions import ParamSpec

from customop.annotations import (
    ARRAY,
    GENERATOR,
    OPERAND,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
    parts,
)
from customop.codegen import RESERVED, compile_call, set_fast_kernel
from customop.config import config
from customop.contracts import Proof, bump_versions, finish_fake
from customop.devices import (
    DEFAULT,
    FAKE,
    NUMPY_SCALAR,
    device_kind,
    kind_of,
    known_kinds,
)
from customop.dispatch import dispatch, flat, nested_leaves, open_modes
from customop.errors import (
    ArgumentError,
    DeviceMismatchError,
    MissingRuleError,
    RegistrationError,
    SchemaError,
    did_you_mean,
    place,
    quoted,
)
from customop.fakearray import device_of
from customop.kinds import RuleKind, Tag, check_callable, check_parameters
from customop.pointwise import derive_vmap
from customop.schema import MISSING, Schema, array_names, show, signature_of

__all__ = ["Formula", "Operator", "find_operator"]

P = ParamSpec("P")
R = TypeVar("R")
FnT = TypeVar("FnT", bound=Callable[..., Any])

_log = logging.getLogger("customop")

AUTOGRAD = RuleKind("autograd", returns="gradients of the positional inputs")
JVP = RuleKind("jvp", "(primals, tangents, **keywords)", "(output, tangent)")
VMAP = RuleKind(
    "vmap", "(info, in_dims, *inputs)", "(output, out_dims)", derive=derive_vmap
)


class Formula(NamedTuple):
    """The autograd rule of an operator.

    Attributes
    ----------
    backward : callable
        ``backward(ctx, *grads)``, gradients of the inputs.
    setup_context : callable or None
        ``setup_context(ctx, inputs, output)``, called after the forward pass.
    """

    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None


class Row(NamedTuple):
    """What stands in an operator's table under a kind."""

    fn: Any
    place: str


class Definition(NamedTuple):
    """All that a definition of an operator says."""

    qualname: str
    fn: Callable[..., Any]
    schema: Schema
    tags: frozenset[Tag]
    place: str
    module: str


class Operator(Generic[P, R]):
    """A function with a schema and a table of rules; made by `custom_op`.

    Attributes
    ----------
    qualname : str
        ``"namespace::name"``, or ``"namespace::name.overload"``.
    schema : Schema
        What it takes and gives.
    tags : frozenset of Tag
        What it promises beyond its schema.
    call : callable
        The plain function behind ``op(...)``; 40 ns cheaper to call.
    source : str
        Source text of `call`, generated from the schema.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def sin(x: np.ndarray) -> np.ndarray:
    ...     return np.sin(x)
    >>> op = co.custom_op("doc::sin", sin, mutates_args=())
    >>> op(np.zeros(2))
    array([0., 0.])
    >>> op
    <Operator doc::sin(Array x) -> Array>
    """

    _definition: Definition
    _table: dict[str | RuleKind, Row]
    _disabled: frozenset[str]
    _proven: frozenset[str]

    def __init__(self, definition: Definition) -> None:
        self._define(definition)

    def _define(self, definition: Definition) -> None:
        """Become this definition, with an empty table."""
        schema = definition.schema
        fn = definition.fn
        self._definition = definition
        self._table = {}
        self._disabled = frozenset()
        self._proven = frozenset()
        # What transforms keep for calls of this operator, as long as this table holds.
        self.plans: dict[RuleKind, Any] = {}
        self.schema = schema
        self.tags = definition.tags
        self.qualname = definition.qualname
        self.namespace, _, rest = definition.qualname.partition("::")
        self.name, _, self.overload = rest.partition(".")
        self.array_slots = schema.array_slots
        self.nested_slots = schema.nested_slots
        self.positional_count = len(schema.positional)
        # Whether a call is arrays in, one array out: most calls of most programs.
        self.is_plain = (
            schema.single_return
            and not schema.nested_slots
            and not schema.written
            and not schema.keyword_only
        )
        # Whether its only array comes first, all else having defaults.
        self.is_unary = self.array_slots == (0,) and all(
            p.default is not MISSING for p in schema.parameters[1:]
        )
        self.sees_seed = Tag.nondeterministic_seeded in definition.tags or any(
            GENERATOR in parts(p.type) for p in schema.parameters
        )
        self._source = ""
        self.__name__ = getattr(fn, "__name__", self.name)
        self.__qualname__ = getattr(fn, "__qualname__", self.name)
        self.__module__ = definition.module
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn
        self._set_call(self._first_call())
        self.invoke = _invoker(self)

    @property
    def __signature__(self) -> inspect.Signature:
        try:
            return signature_of(self.__wrapped__)
        except SchemaError:
            return inspect.signature(self._compile())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the operator. The class of each operator has its own, generated."""
        return self.call(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Operator[P, R]:
        # As an attribute of a class an operator is itself, bound to nothing.
        return self

    def __repr__(self) -> str:
        return f"<Operator {self.schema.show(self.qualname)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (find_operator, (self.qualname, self._definition.module))

    def __copy__(self) -> Operator[P, R]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator[P, R]:
        return self

    # ---- the call ----

    def _first_call(self) -> Callable[..., Any]:
        def first_call(*args: Any, **kwargs: Any) -> Any:
            return self._compile()(*args, **kwargs)

        return first_call

    def _set_call(self, call: Callable[..., Any]) -> None:
        self.call = call
        type(self).__call__ = staticmethod(call)  # type: ignore[assignment,method-assign]

    def _compile(self) -> Callable[..., Any]:
        """Generate the function of a call, once."""
        if not self._source:
            call, text = compile_call(
                self.qualname,
                self.name,
                self.schema,
                dispatch,
                self,
                modes=open_modes,
                has_fast_path=not self.sees_seed and not self._is_factory,
                after_write=bump_versions,
            )
            self._set_call(call)
            self._source = text
        return self.call

    @property
    def source(self) -> str:
        """Source text of the generated call."""
        self._compile()
        return self._source

    @property
    def _is_factory(self) -> bool:
        return self.schema.device_slot is not None and not array_names(self.schema)

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the operator by the slow path, which the fast one must agree with."""
        call = self._compile()
        # The generated call with a table of its own that never opens: the guard
        # fails, coercions and defaults stay the same.
        names = {**call.__globals__, "_modes": [None]}  # type: ignore[attr-defined]
        closed = type(call)(call.__code__, names, self.name, call.__defaults__)  # type: ignore[attr-defined,call-arg]
        closed.__kwdefaults__ = call.__kwdefaults__  # type: ignore[attr-defined]
        return closed(*args, **kwargs)  # type: ignore[no-any-return]

    # ---- choosing a kernel ----

    def select(
        self, args: Sequence[Any]
    ) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any], Any]:
        """Kernel, positional and keyword values, and the proof of a call, or None."""
        kind, has_scalar = self._kind_of_call(args)
        kernel = self._kernel(kind)
        if has_scalar and kind != FAKE:
            slots = self.array_slots
            args = [_as_array(v) if i in slots else v for i, v in enumerate(args)]
        proof: Any = None
        if kind == FAKE:
            proof = FakeProof(self, kernel)
        elif kind not in self._proven or config.checks == "always":
            proof = self._proof(kernel, kind, args)
            if proof is not None:
                args = proof.values
        elif self.schema.written:
            proof = AfterWrite(args)
        count = len(self.schema.positional)
        if count == len(args):
            return kernel, args, {}, proof
        names = [p.name for p in self.schema.keyword_only]
        return kernel, args[:count], dict(zip(names, args[count:], strict=True)), proof

    def _proof(self, kernel: Callable[..., Any], kind: str, args: Sequence[Any]) -> Any:
        if config.checks == "never":
            self._proved(kind, kernel)
            return None
        fake = self._table.get(FAKE)

        def done() -> None:
            self._proved(kind, kernel)

        return Proof(self, kernel, kind, args, None if fake is None else fake.fn, done)

    def _proved(self, kind: str, kernel: Callable[..., Any]) -> None:
        # A kernel registered meanwhile has not been proven by this call.
        if self._kernel(kind) is not kernel:
            return
        self._proven |= {kind}
        if kind == "cpu" and config.checks != "always":
            set_fast_kernel(self.call, kernel)

    def _kind_of_call(self, args: Sequence[Any]) -> tuple[str, bool]:
        """Kind of the arrays of a call, and whether a NumPy scalar is among them."""
        kinds: list[str] = []
        has_scalar = False
        for slot in self.array_slots:
            value = args[slot]
            kind = kind_of[type(value)]
            if kind is None:
                self._check_no_array(slot, value)
            elif kind == NUMPY_SCALAR:
                has_scalar = True
            elif kind not in kinds:
                kinds.append(kind)
        for leaf in nested_leaves(self, args) if self.nested_slots else ():
            kind = kind_of[type(leaf)]
            if kind is None:
                self._check_nested(args)
            elif kind != NUMPY_SCALAR and kind not in kinds:
                kinds.append(kind)
        if len(kinds) == 1:
            return kinds[0], has_scalar
        return self._kind_of_mixture(args, kinds), has_scalar

    def _check_no_array(self, slot: int, value: Any) -> None:
        parameter = self.schema.parameters[slot]
        reason = misfit(value, parameter.type)
        if reason:
            name = parameter.name
            remedy = "pass an array, such as np.asarray(x)"
            if value is None:
                remedy = f"pass an array, or declare {name}: Array | None"
            raise ArgumentError(
                f"{self.qualname}: argument '{name}' {reason}",
                self.schema.show(self.qualname, name),
                do=remedy,
                op=self.qualname,
                parameter=name,
            )

    def _check_nested(self, args: Sequence[Any]) -> None:
        """Raise unless lists of arrays hold arrays, with None and numbers in place."""
        for slot in self.nested_slots:
            parameter = self.schema.parameters[slot]
            reason = misfit(args[slot], parameter.type)
            if reason:
                raise ArgumentError(
                    f"{self.qualname}: argument '{parameter.name}' {reason}",
                    self.schema.show(self.qualname, parameter.name),
                    do="pass arrays, such as [np.asarray(x), ...]",
                    op=self.qualname,
                    parameter=parameter.name,
                )

    def _kind_of_mixture(self, args: Sequence[Any], kinds: list[str]) -> str:
        """Kind of a call without arrays, or with arrays of several kinds."""
        if not kinds:
            slot = self.schema.device_slot
            if slot is None or args[slot] is None:
                return "cpu"
            return device_kind(args[slot])
        if FAKE in kinds:
            values = [args[slot] for slot in self.array_slots]
            values += nested_leaves(self, args)
            arrays = [v for v in values if kind_of[type(v)] not in (None, NUMPY_SCALAR)]
            if len({device_kind(device_of(v)) for v in arrays}) == 1:
                return FAKE
        raise self._mismatch(args)

    def _mismatch(self, args: Sequence[Any]) -> DeviceMismatchError:
        seen = []
        for slot in (*self.array_slots, *self.nested_slots):
            values = args[slot] if isinstance(args[slot], list | tuple) else [args[slot]]
            name = self.schema.parameters[slot].name
            seen += [
                f"'{name}' is on {device_of(v)}"
                for v in values
                if kind_of[type(v)] not in (None, NUMPY_SCALAR)
            ]
        return DeviceMismatchError(
            f"{self.qualname}: arrays of different kinds: {', '.join(seen)}",
            self.schema.show(self.qualname),
            do="bring them to one device: cupy.asarray(x), or x.get()",
            op=self.qualname,
        )

    def _kernel(self, kind: str) -> Callable[..., Any]:
        """The kernel for a kind of array."""
        row = self._table.get(kind)
        if kind in self._disabled:
            return self.__wrapped__
        if row is None and kind != FAKE:
            row = self._table.get(DEFAULT)
        if row is not None:
            return row.fn  # type: ignore[no-any-return]
        if kind == FAKE:
            raise MissingRuleError(
                f"{self.qualname} has no fake kernel",
                self.schema.show(self.qualname),
                f"at {self._definition.place}",
                do=f"@{self.name}.register_fake, a function that returns fake_like(...)",
                op=self.qualname,
                kind=FAKE,
            )
        has = [k for k in self._table if isinstance(k, str)]
        raise MissingRuleError(
            f"{self.qualname} has no kernel for '{kind}'; it has {quoted(has) or 'none'}",
            self.schema.show(self.qualname),
            f"at {self._definition.place}",
            do=f'@{self.name}.register_kernel("{kind}")',
            op=self.qualname,
            kind=kind,
        )

    # ---- the table ----

    def rule(self, kind: RuleKind | str) -> Any:
        """What is registered for a kind, derived where the kind can.

        Parameters
        ----------
        kind : RuleKind or str
            A kind of rule, or the name of a kind of array for its kernel.

        Returns
        -------
        object
            The rule as it was registered; a `Formula` for autograd.

        Raises
        ------
        MissingRuleError
            If the operator has none.
        """
        if isinstance(kind, str):
            return self._kernel(kind)
        found = self.find_rule(kind)
        if found is None:
            raise self.missing_rule(kind)
        return found

    def find_rule(self, kind: RuleKind) -> Any:
        """As `rule` for a kind of rule, or None."""
        row = self._table.get(kind)
        if row is not None:
            return row.fn
        return None if kind.derive is None else kind.derive(self)

    def missing_rule(self, kind: RuleKind, *where: str) -> MissingRuleError:
        """The error for a rule that the operator does not have."""
        method = f"register_{kind.name}"
        do = f"@{self.name}.{method}" if hasattr(self, method) else ""
        return MissingRuleError(
            f"{self.qualname} has no '{kind.name}' rule",
            self.schema.show(self.qualname),
            *where,
            f"at {self._definition.place}",
            do=do or f"@{self.name}.register({kind.name})",
            op=self.qualname,
            kind=kind.name,
        )

    def _enter(
        self, kind: RuleKind | str, fn: Any, where: str, *, override: bool = True
    ) -> None:
        """Put a row into the table, which is replaced whole."""
        known = self._table.get(kind)
        if known is not None and not override and not _same_place(known.place, where):
            name = kind if isinstance(kind, str) else kind.name
            raise RegistrationError(
                f"{self.qualname} has a '{name}' rule already, from {known.place}",
                f"the second is at {where}",
                do="remove one of them, or register with override=True",
                op=self.qualname,
                kind=name,
            )
        self._table = {**self._table, kind: Row(fn, where)}
        self.plans = {}
        if isinstance(kind, str):
            self._close_fast_path()

    def _close_fast_path(self) -> None:
        self._proven = frozenset()
        if self._source:
            set_fast_kernel(self.call, None)

    # ---- registration ----

    @overload
    def register_kernel(
        self, device_types: str | Iterable[str] | None, fn: Callable[..., Any], /
    ) -> Operator[P, R]: ...
    @overload
    def register_kernel(
        self, device_types: str | Iterable[str] | None, /
    ) -> Callable[[FnT], FnT]: ...
    def register_kernel(
        self,
        device_types: str | Iterable[str] | None,
        fn: Callable[..., Any] | None = None,
        /,
    ) -> Operator[P, R] | Callable[[FnT], FnT]:
        """Register a kernel for one or several kinds of array.

        A later registration for the same kind wins.

        Parameters
        ----------
        device_types : str, iterable of str, or None
            Kinds of array: ``"cpu"``, ``"cuda"``, or one from `register_array_type`.
            None is the default, for all kinds that have no kernel of their own.
        fn : callable, optional
            Takes the operator's parameters.

        Returns
        -------
        Operator or decorator
            The operator when `fn` is given; else a decorator that returns its
            function unchanged.

        Raises
        ------
        RegistrationError
            If a kind is unknown, or `fn` does not take the operator's parameters.
        """
        kinds = self.check_device_types(device_types)
        if fn is None:

            def decorator(given: FnT) -> FnT:
                self.register_kernel(device_types, given)
                return given

            return decorator
        self._check_kernel(fn, f"kernel for {quoted(kinds)}")
        for kind in kinds:
            self._enter(kind, fn, place(fn))
        return self

    def check_device_types(
        self, device_types: str | Iterable[str] | None
    ) -> tuple[str, ...]:
        """Names of kinds of array, each known."""
        return check_device_types(self.qualname, device_types)

    def _check_kernel(self, fn: Any, what: str) -> None:
        if fn is self:
            raise RegistrationError(
                f"{self.qualname}: the {what} is the operator itself, which would call"
                " itself for ever",
                do="register the function that computes the result",
                op=self.qualname,
            )
        check_callable(self.qualname, what, fn)
        check_parameters(
            f"{self.qualname}: the {what}",
            fn,
            [p.name for p in self.schema.positional],
            [p.name for p in self.schema.keyword_only],
            do=f"write the parameters of {self.schema.show(self.qualname)}",
        )

    def set_kernel_enabled(
        self, device_type: str, enabled: bool = True
    ) -> KernelSwitch:
        """Disable or enable the kernel of a kind of array.

        While it is disabled the function that the operator was made from runs.
        The change holds from the call on; as a context manager, for the block.

        Parameters
        ----------
        device_type : str
            The kind of array.
        enabled : bool
            False to disable.

        Returns
        -------
        context manager
            Restores the state before when it exits.

        Raises
        ------
        RegistrationError
            If the kind is unknown.
        """
        (kind,) = self.check_device_types(device_type)
        state = f"'{kind}' kernel of {self.qualname} is"
        if kind not in self._table:
            _log.warning("%s not registered: nothing to enable or disable", state)
        elif (kind not in self._disabled) is bool(enabled):
            _log.warning("%s already %s", state, "enabled" if enabled else "disabled")
        before = self._disabled
        self._set_disabled(before - {kind} if enabled else before | {kind})
        return KernelSwitch(self, before)

    def _set_disabled(self, kinds: frozenset[str]) -> None:
        self._disabled = frozenset(kind for kind in kinds if kind in self._table)
        self._close_fast_path()

    @overload
    def register_fake(
        self, fn: Callable[..., Any], /, *, override: bool = False
    ) -> Operator[P, R]: ...
    @overload
    def register_fake(
        self, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register_fake(
        self, fn: Any = None, /, *, override: bool = False
    ) -> Any:
        """Register the fake kernel, which computes shapes and dtypes without data.

        Parameters
        ----------
        fn : callable, optional
            Takes the operator's parameters, arrays as `FakeArray`; returns what the
            operator returns, arrays as `FakeArray`, see `fake_like`.
        override : bool
            Replace one that is registered already.

        Returns
        -------
        Operator or decorator
            The operator when `fn` is given. As a decorator, `fn` comes back unchanged.

        Raises
        ------
        RegistrationError
            If `fn` does not take the operator's parameters, or there is a fake kernel
            from another place already.
        """

        def enter(given: Any) -> None:
            self._check_kernel(given, "fake kernel")
            self._enter(FAKE, given, place(given), override=override)

        return self._chain(fn, enter)

    def _chain(self, fn: Any, enter: Callable[[Any], None]) -> Any:
        """Enter `fn` and return the operator, or a decorator that returns its `fn`.

        A function defined by the very next line, as `@op.register_fake` gives, cannot
        be told from one passed by a call; so the operator answers as a function too.
        """
        if fn is None:

            def decorator(given: FnT) -> FnT:
                enter(given)
                return given

            return decorator
        enter(fn)
        return self

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
        override: bool = False,
    ) -> Operator[P, R]:
        """Register the backward formula.

        Parameters
        ----------
        backward : callable
            ``backward(ctx, *grads)`` takes a gradient for each output and returns one
            for each positional input: a tuple, a single value where there is one
            input, or a dict by name. None stands for an input without gradient.
        setup_context : callable, optional
            ``setup_context(ctx, inputs, output)`` saves what `backward` needs:
            ``ctx.save_for_backward(...)``. It takes `keyword_only_inputs` too, a dict,
            where the operator has keyword-only parameters.
        override : bool
            Replace one that is registered already.

        Returns
        -------
        Operator

        Raises
        ------
        RegistrationError
            If a function does not take these parameters, the operator writes its
            arguments or returns nothing, or there is a formula already.
        """
        self._check_autograd(backward, setup_context)
        where = place(backward)
        rule = backward if hasattr(backward, "forward") else Formula(backward, setup_context)
        self._enter(AUTOGRAD, rule, where, override=override)
        return self

    def _check_autograd(self, backward: Any, setup_context: Any) -> None:
        if self.schema.written or not self.schema.returns:
            why = "writes its arguments" if self.schema.written else "returns nothing"
            raise RegistrationError(
                f"{self.qualname} {why}, so it has no gradient",
                self.schema.show(self.qualname, *self.schema.written[:1]),
                do="register autograd on an operator that returns fresh arrays",
                op=self.qualname,
                kind="autograd",
            )
        check_callable(self.qualname, "autograd", backward)
        if hasattr(backward, "forward"):
            return
        grads = [f"grad_{r.name or i}" for i, r in enumerate(self.schema.returns)]
        check_parameters(
            f"{self.qualname}: backward",
            backward,
            ["ctx", *grads],
            [],
            free=1 + len(grads),
            do=f"write def backward(ctx, {', '.join(grads)}): one gradient an output",
        )
        if setup_context is not None:
            self._check_setup(setup_context)

    def _check_setup(self, setup_context: Any) -> None:
        check_callable(self.qualname, "setup_context", setup_context)
        names = ["ctx", "inputs"]
        names += ["keyword_only_inputs"] if self.schema.keyword_only else []
        names += ["output"]
        try:
            parameters = inspect.signature(setup_context).parameters
        except (TypeError, ValueError):
            return
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        needed = {n for n, p in parameters.items() if p.default is p.empty}
        wrong = sorted(needed - set(names)) or [n for n in names if n not in parameters]
        if wrong:
            near = did_you_mean(wrong[0], names) if wrong[0] not in names else ""
            has = "has the parameter" if wrong[0] in parameters else "lacks the parameter"
            raise RegistrationError(
                f"{self.qualname}: setup_context {has} '{wrong[0]}'{near}",
                f"at {place(setup_context)}",
                do=f"write def setup_context({', '.join(names)}): it is called by name",
                op=self.qualname,
                kind="autograd",
            )

    @overload
    def register_jvp(
        self, fn: Callable[..., Any], /, *, override: bool = False
    ) -> Operator[P, R]: ...
    @overload
    def register_jvp(
        self, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register_jvp(
        self, fn: Any = None, /, *, override: bool = False
    ) -> Any:
        """Register the forward-mode rule.

        Parameters
        ----------
        fn : callable, optional
            ``fn(primals, tangents, **keyword_only)`` returns ``(output, tangent)``. A
            tangent is None where it is zero, and so is that of an output without.
        override : bool
            Replace one that is registered already.

        Returns
        -------
        Operator or decorator

        Raises
        ------
        RegistrationError
            If `fn` does not take these parameters, or there is a rule already.
        """
        return self._register(JVP, fn, override)

    @overload
    def register_vmap(
        self, fn: Callable[..., Any], /, *, override: bool = False
    ) -> Operator[P, R]: ...
    @overload
    def register_vmap(
        self, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register_vmap(
        self, fn: Any = None, /, *, override: bool = False
    ) -> Any:
        """Register the batching rule.

        Parameters
        ----------
        fn : callable, optional
            ``fn(info, in_dims, *inputs)`` returns ``(output, out_dims)``. `in_dims`
            has, for each parameter, the axis of its batch or None, nested as the
            argument is; `info` has `batch_size` and `randomness`.
        override : bool
            Replace one that is registered already.

        Returns
        -------
        Operator or decorator

        Raises
        ------
        RegistrationError
            If `fn` does not take these parameters, or there is a rule already.
        """
        return self._register(VMAP, fn, override)

    @overload
    def register(
        self, kind: RuleKind, fn: Callable[..., Any], /, *, override: bool = False
    ) -> Operator[P, R]: ...
    @overload
    def register(
        self, kind: RuleKind, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register(
        self, kind: RuleKind, fn: Any = None, /, *, override: bool = False
    ) -> Any:
        """Register a rule of any kind.

        Parameters
        ----------
        kind : RuleKind
            The kind; rules are read back with ``op.rule(kind)``.
        fn : callable, optional
            The rule, with the parameters that ``kind.takes`` says.
        override : bool
            Replace one that is registered already.

        Returns
        -------
        Operator or decorator

        Raises
        ------
        RegistrationError
            If `kind` is no RuleKind, `fn` does not take its parameters, or there is a
            rule already.
        """
        if not isinstance(kind, RuleKind):
            raise RegistrationError(
                f"{self.qualname}: {kind!r} is no RuleKind",
                do='make one: RuleKind("inverse", takes="(out, *inputs)")',
                op=self.qualname,
            )
        if kind is AUTOGRAD and isinstance(fn, Formula):
            return self.register_autograd(
                fn.backward, setup_context=fn.setup_context, override=override
            )
        return self._register(kind, fn, override)

    def _register(self, kind: RuleKind, fn: Any, override: bool) -> Any:
        def enter(given: Any) -> None:
            kind.check(self.qualname, self.schema, given)
            self._enter(kind, given, place(given), override=override)

        return self._chain(fn, enter)


class KernelSwitch:
    """Restores which kernels are enabled when its block ends."""

    def __init__(self, op: Operator[..., Any], before: frozenset[str]) -> None:
        self._op = op
        self._before = before

    def __enter__(self) -> None:
        """Nothing more to do: the change holds already."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._op._set_disabled(self._before)


class FakeProof:
    """Makes the result of a fake kernel fake throughout."""

    __slots__ = ("kernel", "op")

    def __init__(self, op: Any, kernel: Callable[..., Any]) -> None:
        self.op = op
        self.kernel = kernel

    def concerns(self, error: Exception) -> bool:
        """No fault of a fake kernel is mended."""
        return False

    def check(self, out: Any) -> Any:
        """The result with its arrays fake."""
        return finish_fake(self.op, self.kernel, out)


class AfterWrite:
    """Notes what an operator has written."""

    __slots__ = ("args",)

    def __init__(self, args: Sequence[Any]) -> None:
        self.args = args

    def concerns(self, error: Exception) -> bool:
        """No fault of a proven kernel is mended."""
        return False

    def check(self, out: Any) -> Any:
        """The result, with the versions of the arguments raised."""
        bump_versions(self.args)
        return out


# ---- parts of the above that need no operator ----


def _invoker(op: Operator[..., Any]) -> Callable[[Sequence[Any]], Any]:
    """A function that calls an operator with the values of all its parameters."""
    names = [p.name for p in op.schema.keyword_only]
    count = len(op.schema.positional)
    if not names:
        return lambda args: op.call(*args)
    return lambda args: op.call(
        *args[:count], **dict(zip(names, args[count:], strict=True))
    )


def _as_array(value: Any) -> Any:
    """A NumPy scalar as an array without axes, which every kernel can take."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def misfit(value: Any, kind: SchemaType) -> str:
    """Why a value that may hold arrays does not fit its type, or nothing."""
    if isinstance(kind, Maybe):
        return "" if value is None else misfit(value, kind.item)
    if isinstance(kind, ListOf | TupleOf):
        kinds = kind.items if isinstance(kind, TupleOf) else (kind.item,) * len(value)
        found = [misfit(v, k) for v, k in zip(value, kinds, strict=True)]
        wrong = [(i, reason) for i, reason in enumerate(found) if reason]
        return f"at index {wrong[0][0]} {wrong[0][1]}" if wrong else ""
    fits_number = kind == OPERAND and isinstance(value, int | float | complex)
    if kind not in (ARRAY, OPERAND) or fits_number or kind_of[type(value)] is not None:
        return ""
    return f"expects {kind}, got {show(value)}"


def _same_place(first: str, second: str) -> bool:
    """Whether two places are one, so that a second registration is a second run.

    Cells of a notebook have no file that stays: any two of them count as one place.
    """
    return first == second or (_is_interactive(first) and _is_interactive(second))


def _is_interactive(where: str) -> bool:
    return where.startswith("<") or "ipykernel_" in where


def check_device_types(
    qualname: str, device_types: str | Iterable[str] | None
) -> tuple[str, ...]:
    """Names of kinds of array, each known; the default for None."""
    if device_types is None:
        return (DEFAULT,)
    kinds = [device_types] if isinstance(device_types, str) else list(device_types)
    known = [kind for kind in known_kinds() if kind != FAKE]
    for kind in kinds:
        if kind not in known:
            hint = did_you_mean(str(kind), known)
            raise RegistrationError(
                f"{qualname}: unknown device type {kind!r}{hint}",
                f"known: {quoted(known)}",
                do="register_fake for a fake kernel"
                if kind == FAKE
                else "use a known one, or register_array_type first",
                op=qualname,
            )
    return tuple(kinds)


# ---- the registry ----

_operators: dict[str, Operator[..., Any]] = {}


def find_operator(qualname: str, module: str = "") -> Operator[..., Any]:
    """The operator of a name; imports the module that defines it where needed.

    Raises
    ------
    MissingRuleError
        If no operator has that name.
    """
    if qualname not in _operators and module and module not in sys.modules:
        importlib.import_module(module)
    found = _operators.get(qualname)
    if found is None:
        near = did_you_mean(qualname, _operators)
        raise MissingRuleError(
            f"no operator is named '{qualname}'{near}",
            do=f"import {module or 'the module that defines it'} first",
            op=qualname,
        )
    return found


def define_operator(definition: Definition) -> Operator[..., Any]:
    """Make the operator of a definition, or give an old one its new definition.

    A cell run again and a module loaded again replace the operator in place, so that
    every reference to it goes on working; two files that fight for one name do not.
    """
    known = _operators.get(definition.qualname)
    if known is not None:
        _check_redefinition(known._definition, definition)
        known._define(definition)
        return known
    cls = type(definition.qualname.partition("::")[2], (Operator,), {})
    cls.__doc__ = definition.fn.__doc__
    op: Operator[..., Any] = cls(definition)
    _operators[definition.qualname] = op
    return op


def _check_redefinition(old: Definition, new: Definition) -> None:
    old_file, new_file = (d.place.rpartition(":")[0] for d in (old, new))
    if old_file == new_file or _same_place(old.place, new.place):
        return
    raise RegistrationError(
        f"{new.qualname} is defined already, at {old.place}",
        f"the second definition is at {new.place}",
        do="give one of them another name",
        op=new.qualname,
    )


def check_names(qualname: str, schema: Schema) -> None:
    """Raise unless the generated call can be written with these names."""
    names = [qualname.partition("::")[2].partition(".")[0]]
    names += [p.name for p in schema.parameters]
    for name in names:
        if name in RESERVED or keyword.iskeyword(name) or not name.isidentifier():
            raise SchemaError(
                f"{qualname}: '{name}' cannot be a name in a call",
                schema.show(qualname),
                do="use another name",
            )


def _settings_changed() -> None:
    for op in list(_operators.values()):
        op._close_fast_path()


config.on_change(_settings_changed)
