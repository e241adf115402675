"""An operator: a schema and a table of rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import FunctionType, ModuleType, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    overload,
)

import numpy.typing as npt

from customop.arrays.kinds import FAKE
from customop.config import config
from customop.core.changes import changing
from customop.core.codegen import (
    GeneratedCall,
    compile_call,
    replace_code,
    set_dispatch,
    set_fast_kernel,
    set_plans,
)
from customop.core.contract.memory import note_writes
from customop.core.definition import Definition
from customop.core.dispatch import dispatch, dispatch_composite, kernel_for
from customop.core.fast_kernel import FastKernel
from customop.core.grad_rules import as_formula
from customop.core.kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    COMPOSITE,
    JVP,
    SAMPLE_INPUTS,
    VMAP,
)
from customop.core.observe import open_modes
from customop.core.registration import Registration, chained, register
from customop.core.registry import find_operator
from customop.core.rule_kind import (
    RuleKind,
    check_device_types,
    check_kind,
)
from customop.core.samples import Sample, as_samples
from customop.core.table import RuleTable
from customop.core.waivers import with_waiver
from customop.errors import (
    RegistrationError,
    SchemaError,
    UnknownNameError,
    check_flag,
    did_you_mean,
    shown,
    warn_caller,
)
from customop.later import later
from customop.schema.infer import signature_of

if TYPE_CHECKING:
    from customop.core.explain import Explanation
    from customop.core.rule_types import (
        BackwardFn,
        ContextT,
        JvpFn,
        KernelFn,
        SetupFn,
        ShortBackwardFn,
        ShortKernelFn,
        ShortVmapFn,
        VmapFn,
    )

explaining: ModuleType = later(import_module, "customop.core.explain")
page: ModuleType = later(import_module, "customop.core.page")

__all__ = ["KernelSwitch", "Operator"]

P = ParamSpec("P")
R = TypeVar("R")
FnT = TypeVar("FnT", bound=Callable[..., Any])


class _FirstCall:
    """Generates the function of a call when it is first needed, and is replaced by it.

    It is a descriptor: a function would show in the traceback of the first call.
    """

    def __init__(self, name: str = "call") -> None:
        self.name = name

    def __get__(self, op: Operator[..., Any] | None, owner: Any = None) -> Any:
        if op is None:
            return self
        op.compile()
        return op.__dict__[self.name]


class Operator(RuleTable, Generic[P, R]):
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
    run : callable
        As `call`, for the values of all parameters by position, in the order of the
        schema and in the classes that its types name: they are not coerced.
    source : str
        Source text of `call` and `run`, generated from the schema.

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

    def define(self, definition: Definition) -> None:
        """Take this definition, with an empty table."""
        super().define(definition)
        fn = definition.fn
        self._source = ""
        self.__name__: str = getattr(fn, "__name__", self.name)
        self.__qualname__ = getattr(fn, "__qualname__", self.name)
        self.__module__ = definition.module
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn
        self.__annotations__: dict[str, Any] = getattr(fn, "__annotations__", {})
        if "call" in self.__dict__:
            # Callers that hold the old function must not run the old kernel.
            set_fast_kernel(self, None)
        self.fast: FastKernel = FastKernel()
        self.__dict__.pop("call", None)
        self.__dict__.pop("run", None)
        if "__call__" in vars(type(self)):  # that of the old function
            type(self).__call__ = _FirstCall()  # type: ignore[assignment]  # a descriptor
        self.invoke: Callable[[Sequence[Any]], Any] = lambda args: self.run(*args)

    @property
    def __signature__(self) -> inspect.Signature:
        try:
            return signature_of(self.__wrapped__)
        except SchemaError:
            return inspect.signature(self.compile())

    if TYPE_CHECKING:

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
            """Call the operator: the generated function, which its class holds."""
            ...

        call: Callable[P, R]
        run: Callable[..., R]
    else:
        __call__ = _FirstCall()
        call = _FirstCall()
        run = _FirstCall("run")

        # Hidden from type checkers, which would accept every misspelled name.
        def __getattr__(self, name: str) -> Any:
            near = "" if name.startswith("__") else did_you_mean(name, dir(self))
            raise UnknownNameError(
                f"an operator has no attribute '{name}'{near}",
                do="see dir(op) for all names" if not near else "write that name",
                op=self.__dict__.get("qualname"),
            )

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        # As an attribute of a class an operator is not bound to the object.
        return self

    def __repr__(self) -> str:
        return f"<Operator {self.schema.show(self.qualname)}>"

    def _repr_html_(self) -> str:
        return str(page.operator_html(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (find_operator, (self.qualname, self.definition.module))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    # ---- the call ----

    def compile(self) -> Callable[..., Any]:
        """The function of a call, generated when it is first asked for."""
        with changing:
            return self.call if self._source else self._compile()

    def _compile(self) -> Callable[..., Any]:
        made = self._generate()
        self.call, self.run, self._source = made
        type(self).__call__ = staticmethod(made.call)  # type: ignore[method-assign]  # generated
        self.route()
        return self.call

    def _generate(self) -> GeneratedCall:
        self._share = config.sample_checks
        self.fast.draw(bool(self._share))
        return compile_call(
            self.qualname,
            self.name,
            self.schema,
            dispatch,
            self,
            modes=open_modes,
            has_fast_path=not (
                self.sees_seed or self.is_factory or self.needs_contiguous
            ),
            after_write=note_writes,
            share=self._share,
            random=config.random if self._share else None,
        )

    def redraw(self) -> None:
        """Let the generated call draw the share of calls that `config` says."""
        if self._source and self._share != config.sample_checks:
            # Kept alive, since the lines of its source go with it.
            self._drawing = self._generate()
            self._source = self._drawing.text
            replace_code(self.call, self._drawing.call)
            if self.run is not self.call:
                replace_code(self.run, self._drawing.run)

    def route(self) -> None:
        """Let transforms and modes see the body of the operator, if it has one."""
        if self._source:
            is_composite = COMPOSITE in self.rows
            set_dispatch(self.call, dispatch_composite if is_composite else dispatch)

    @property
    def source(self) -> str:
        """Source text of the generated call."""
        self.compile()
        return self._source

    def dispatch(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the operator by the slow path, which must agree with the fast one."""
        return self._copy_of_call()(*args, **kwargs)  # type: ignore[no-any-return]  # R, as the call

    def _copy_of_call(self, **names: Any) -> Callable[..., Any]:
        """The generated call with other globals and without a fast path.

        Its list of modes is never empty, so that the guard fails.
        """
        call: Any = self.compile()
        names = {**call.__globals__, "_modes": [None], **names}
        copied = FunctionType(call.__code__, names, self.name, call.__defaults__)
        copied.__kwdefaults__ = call.__kwdefaults__
        copied.__qualname__ = call.__qualname__
        return copied

    def bind(self, /, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """The values that a call with these arguments gives to all parameters."""
        plans = self.plans
        if plans.bind is None:
            plans.bind = self._copy_of_call(_dispatch=lambda op, values: values)
        return plans.bind(*args, **kwargs)

    def explain(self, /, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Say which kernel or rule a call would take, and why not the others.

        Nothing runs. Calls inside a rule are not followed.

        Parameters
        ----------
        *args, **kwargs : object
            Those of the call.

        Returns
        -------
        Explanation
            Prints readably.

        Raises
        ------
        ArgumentError
            If the arguments do not fit the schema.
        ShapeError
            If their shapes do not.
        DeviceMismatchError
            If the arrays are of different kinds.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> why = co.ops.np.sin.default.explain(np.zeros(3))
        >>> why.taken.name
        'default kernel'
        """
        return explaining.explain(self, self.bind(*args, **kwargs))  # type: ignore[no-any-return]  # an Explanation

    # ---- the table ----

    def rule(self, kind: RuleKind | str) -> Any:
        """The rule of a kind: registered, derived, or a fallback.

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
            (name,) = (
                check_device_types(self.qualname, kind) if kind != FAKE else (kind,)
            )
            return kernel_for(self, name)
        check_kind(self.qualname, kind)
        found = self.find_rule(kind)
        if found is None:
            raise self.missing_rule(kind)
        return found

    def changed(self, *, is_kernel: bool) -> None:
        """Forget what was worked out from the table before."""
        super().changed(is_kernel=is_kernel)
        if self._source:
            set_plans(self.call, self.plans)
        if is_kernel:
            self.route()

    def forget_proofs(self) -> None:
        """Have every kernel prove its contract again, on the slow path."""
        super().forget_proofs()
        if self._source:
            set_fast_kernel(self, None)

    # ---- registration ----

    @overload
    def register_kernel(
        self, device_types: str | Iterable[str] | None, fn: ShortKernelFn, /
    ) -> Self: ...
    @overload
    def register_kernel(  # type: ignore[overload-cannot-match]  # a longer one does
        self, device_types: str | Iterable[str] | None, fn: KernelFn, /
    ) -> Self: ...
    @overload
    def register_kernel(
        self, device_types: str | Iterable[str] | None, /
    ) -> Callable[[FnT], FnT]: ...
    def register_kernel(
        self,
        device_types: str | Iterable[str] | None,
        fn: Callable[..., Any] | None = None,
        /,
    ) -> Self | Callable[[FnT], FnT]:
        """Register a kernel for one or several kinds of array.

        A later registration for the same kind wins.

        Parameters
        ----------
        device_types : str, iterable of str, or None
            Kinds of array: ``"cpu"``, ``"cuda"``, or one from `register_array_type`.
            None registers the default, for all kinds without a kernel.
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
        kinds = check_device_types(self.qualname, device_types)
        return self._register(kinds, fn, override=True)  # type: ignore[no-any-return]  # by fn, as overloaded

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
        check_flag("enabled", enabled)
        if not isinstance(device_type, str):
            raise self.error(
                RegistrationError,
                f"set_kernel_enabled takes one kind of array, got {shown(device_type)}",
                do='write set_kernel_enabled("cpu", False)',
                parameter=None,
            )
        (kind,) = check_device_types(self.qualname, device_type)
        state = f"'{kind}' kernel of {self.qualname} is"
        if kind not in self.rows:
            text = f"{state} not registered: nothing to enable or disable"
            warn_caller(text)
        elif (kind not in self.disabled) is bool(enabled):
            text = f"{state} already {'enabled' if enabled else 'disabled'}"
            warn_caller(text)
        switch = KernelSwitch(self, kind, kind in self.disabled)
        self.set_disabled(kind, not enabled)
        return switch

    @overload
    def register_fake(
        self, fn: ShortKernelFn, /, *, override: bool = False
    ) -> Self: ...
    @overload
    def register_fake(  # type: ignore[overload-cannot-match]  # a longer one does
        self, fn: KernelFn, /, *, override: bool = False
    ) -> Self: ...
    @overload
    def register_fake(
        self, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register_fake(self, fn: Any = None, /, *, override: bool = False) -> Any:
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
        return self._register((FAKE,), fn, override=override)

    @overload
    def register_autograd(
        self,
        backward: ShortBackwardFn[ContextT],
        /,
        *,
        setup_context: SetupFn[ContextT] | None = None,
        override: bool = False,
    ) -> Self: ...
    @overload
    def register_autograd(
        self,
        backward: BackwardFn[ContextT],
        /,
        *,
        setup_context: SetupFn[ContextT] | None = None,
        override: bool = False,
    ) -> Self: ...
    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
        override: bool = False,
    ) -> Self:
        """Register the backward formula.

        Parameters
        ----------
        backward : callable
            ``backward(ctx, *grads)`` takes a gradient for each output and returns one
            for each positional input: a tuple, a single value where there is one
            input, or a dict by name. None means no gradient; `ctx`
            is a `Context`.
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
        rule = as_formula(backward, setup_context)
        return self._register((AUTOGRAD,), rule, override=override)  # type: ignore[no-any-return]  # self: a rule is given

    @overload
    def register_jvp(self, fn: JvpFn, /, *, override: bool = False) -> Self: ...
    @overload
    def register_jvp(
        self, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register_jvp(self, fn: Any = None, /, *, override: bool = False) -> Any:
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
        return self._register((JVP,), fn, override=override)

    @overload
    def register_vmap(self, fn: ShortVmapFn, /, *, override: bool = False) -> Self: ...
    @overload
    def register_vmap(  # type: ignore[overload-cannot-match]  # a longer one does
        self, fn: VmapFn, /, *, override: bool = False
    ) -> Self: ...
    @overload
    def register_vmap(
        self, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register_vmap(self, fn: Any = None, /, *, override: bool = False) -> Any:
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
        return self._register((VMAP,), fn, override=override)

    def register_autocast(self, device_type: str, dtype: npt.DTypeLike, /) -> Self:
        """Register the dtype that the operator computes in under `autocast`.

        A later registration for the same kind wins.

        Parameters
        ----------
        device_type : str
            Kind of array, such as ``"cpu"``. Each kind has its own dtype.
        dtype : dtype
            One of floats.

        Returns
        -------
        Operator

        Raises
        ------
        RegistrationError
            If the kind is unknown, the dtype is not one of floats, or the operator
            writes its arguments or returns views of them.
        """
        self.add(AUTOCAST, (device_type, dtype), override=True)
        return self

    @overload
    def register_array_dispatch(
        self,
        array_class: type,
        fn: Callable[..., Any],
        /,
        *,
        override: bool = False,
    ) -> Self: ...
    @overload
    def register_array_dispatch(
        self, array_class: type, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register_array_dispatch(
        self, array_class: type, fn: Any = None, /, *, override: bool = False
    ) -> Any:
        """Register what the operator does with arrays of a class.

        The rule runs in place of kernels, after all transforms, in every call with an
        array of the class or of a subclass without its own rule. The class need
        not be known by `register_array_type`.

        Parameters
        ----------
        array_class : type
            A subclass of ``np.ndarray``, or any other class of arrays.
        fn : callable, optional
            ``fn(op, args, kwargs)`` takes the operator, its positional arguments as a
            tuple and its keyword-only ones as a dict, defaults filled in, and returns
            the result, which is not checked. It may call ``op(...)`` on what the
            arrays hold.
        override : bool
            Replace a rule for the class that is registered already.

        Returns
        -------
        Operator or decorator
            The operator when `fn` is given. As a decorator, `fn` comes back unchanged.

        Raises
        ------
        RegistrationError
            If `array_class` is not a class of arrays other than plain ones, `fn`
            does not take these parameters, or the class has a rule already.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::triple", mutates_args=())
        ... def triple(x: np.ndarray) -> np.ndarray:
        ...     return x * 3
        >>> @triple.register_array_dispatch(np.ma.MaskedArray)
        ... def _(op, args, kwargs):
        ...     (x,) = args
        ...     return np.ma.MaskedArray(op(x.data), x.mask)
        >>> print(triple(np.ma.MaskedArray([1.0, 2.0], [False, True])))
        [3.0 --]
        """

        def enter(given: Any) -> None:
            self.add(ARRAY_CLASS, (array_class, given), override=override)

        return chained(self, fn, enter)

    @overload
    def register_sample_inputs(
        self, fn: Callable[[], object], /, *, override: bool = False
    ) -> Self: ...
    @overload
    def register_sample_inputs(
        self, fn: None = None, /, *, override: bool = False
    ) -> Callable[[FnT], FnT]: ...
    def register_sample_inputs(
        self, fn: Any = None, /, *, override: bool = False
    ) -> Any:
        """Register inputs that the operator is checked with.

        Where there are none, `customop.testing.opcheck` looks for inputs that the
        kernels accept, by giving them arrays of all shapes. A kernel that trusts its
        arguments blindly, as one in C may, is not for that: register inputs for it, or
        a fake kernel, which is asked first, that refuses what does not fit.

        Parameters
        ----------
        fn : callable, optional
            ``fn()`` returns an iterable of `customop.testing.Sample` or of tuples of
            positional arguments, or a hypothesis strategy of these.
        override : bool
            Replace one that is registered already.

        Returns
        -------
        Operator or decorator
            The operator when `fn` is given. As a decorator, `fn` comes back unchanged.

        Raises
        ------
        RegistrationError
            If `fn` takes parameters, or there is one already.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::quarter", mutates_args=())
        ... def quarter(x: np.ndarray) -> np.ndarray:
        ...     return x / 4
        >>> @quarter.register_sample_inputs
        ... def _():
        ...     return [(np.ones(3),), (np.ones((2, 3)),)]
        >>> [sample.args[0].shape for sample in quarter.sample_inputs()]
        [(3,), (2, 3)]
        """
        return self._register((SAMPLE_INPUTS,), fn, override=override)

    def sample_inputs(self) -> tuple[Sample, ...]:
        """The registered sample inputs, or an empty tuple.

        Returns
        -------
        tuple of Sample

        Raises
        ------
        ArgumentError
            If the function returns something else.
        """
        fn = self.find_rule(SAMPLE_INPUTS)
        return () if fn is None else as_samples(self.qualname, fn, fn())

    def waive(self, check: str, /, *, reason: str, override: bool = False) -> Self:
        """Say that the operator fails a check of `opcheck` on purpose.

        `opcheck` still runs the check. It reports a fault as waived, with the reason,
        and a waiver that is not needed. A crash of the kernel cannot be waived.

        Parameters
        ----------
        check : str
            Name of the check.
        reason : str
            Why the operator is meant to be so. Tables and reports show it.
        override : bool
            Whether to replace the reason of an earlier waiver.

        Returns
        -------
        Operator
            The operator itself.

        Raises
        ------
        ArgumentError
            If there is no such check, or the reason is empty.
        RegistrationError
            If the check is waived already.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> from customop.testing import opcheck
        >>> @co.custom_op("doc::rounded", mutates_args=())
        ... def rounded(x: np.ndarray) -> np.ndarray:
        ...     return np.round(x)
        >>> _ = rounded.register_autograd(lambda ctx, g: g)
        >>> _ = rounded.waive("test_gradients", reason="a straight-through estimator")
        >>> print(opcheck(rounded, (np.array([0.6]),), test_utils="test_gradients"))
        doc::rounded
          test_gradients  WAIVED  a straight-through estimator
        """
        self.waivers: Mapping[str, str] = with_waiver(
            self, check, reason, override=override
        )
        return self

    @overload
    def register(
        self, kind: RuleKind, fn: Callable[..., Any], /, *, override: bool = False
    ) -> Self: ...
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
            If `kind` is not a RuleKind, `fn` does not take its parameters, or there is a
            rule already.
        """
        check_kind(self.qualname, kind)
        return self._register((kind,), fn, override=override)

    def _register(
        self, keys: Iterable[RuleKind | str], fn: Any, *, override: bool
    ) -> Any:
        def enter(given: Any) -> None:
            for key in keys:
                self.add(key, given, override=override)

        return chained(self, fn, enter)

    def add(self, key: RuleKind | str, fn: Any, *, override: bool) -> None:
        """Register for a kind of rule, or for the name of a kind of array.

        Parameters
        ----------
        key : RuleKind or str
        fn : object
            What is registered, as its kind takes it.
        override : bool
            Replace a rule that is registered already.

        Raises
        ------
        RegistrationError
            If `fn` does not fit the operator, or there is a rule already.
        """
        register(self, Registration(self.qualname, key, fn), override=override)


class KernelSwitch:
    """Restores whether a kernel is enabled when its block ends."""

    def __init__(self, op: Operator[..., Any], kind: str, disabled: bool) -> None:
        self._op = op
        self._kind = kind
        self._disabled = disabled

    def __enter__(self) -> None:
        """Nothing more to do: the change holds already."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._op.set_disabled(self._kind, self._disabled)
