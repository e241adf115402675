"""Registration: the methods of an operator, and how kernels and rules enter its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from customop.arrays.kinds import FAKE
from customop.core.builtin_kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    JVP,
    SAMPLE_INPUTS,
    VMAP,
    as_formula,
)
from customop.core.rule_kind import (
    Definition,
    Row,
    RuleKind,
    check_device_types,
    check_kind,
    fallthrough_kernel,
    rule_kind,
)
from customop.core.table import RuleTable, changing, finalized
from customop.errors import RegistrationError, check_flag, shown, warn_caller
from customop.later import later

if TYPE_CHECKING:
    import numpy.typing as npt

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
    from customop.core.samples import Sample

numba_kernels: ModuleType = later(import_module, "customop.core.numba_kernels")
samples: ModuleType = later(import_module, "customop.core.samples")


# ---- methods that register ----


FnT = TypeVar("FnT", bound=Callable[..., Any])


class RegistrationMethods:
    """Methods that register kernels and rules through `add`, which subclasses define.

    The functions of the same names in `customop` are derived from them: their
    docstrings, signatures and examples too.
    """

    qualname: str

    if TYPE_CHECKING:

        def add(self, key: RuleKind | str, fn: Any, *, override: bool) -> None:
            """Register for a kind of rule, or for the name of a kind of array."""

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

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::half", mutates_args=())
        ... def half(x: np.ndarray) -> np.ndarray:
        ...     return x / 2
        >>> @half.register_kernel("cpu")
        ... def _(x):
        ...     return 0.5 * x
        >>> half(np.array([3.0]))
        array([1.5])
        """
        kinds = check_device_types(self.qualname, device_types)
        return self._register(kinds, fn, override=True)  # type: ignore[no-any-return]  # by fn, as overloaded

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

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::half", mutates_args=())
        ... def half(x: np.ndarray) -> np.ndarray:
        ...     return x / 2
        >>> @half.register_fake
        ... def _(x):
        ...     return co.fake_like(x)
        >>> co.eval_shape(half, np.ones((2, 3)))
        FakeArray(f64[2, 3], device='cpu')
        """
        return self._register((FAKE,), fn, override=override)

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

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::half", mutates_args=())
        ... def half(x: np.ndarray) -> np.ndarray:
        ...     return x / 2
        >>> inverse = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")
        >>> @half.register(inverse)
        ... def _(out, x):
        ...     return out * 2
        >>> half.rule(inverse)(np.array([1.5]), None)
        array([3.])
        """
        check_kind(self.qualname, kind)
        return self._register((kind,), fn, override=override)

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

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::half", mutates_args=())
        ... def half(x: np.ndarray) -> np.ndarray:
        ...     return x / 2
        >>> _ = half.register_autograd(lambda ctx, g: g / 2)
        >>> co.grad(half)(np.array(3.0))
        np.float64(0.5)
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
            tangent is None where it is zero, or where an output has none.
        override : bool
            Replace one that is registered already.

        Returns
        -------
        Operator or decorator

        Raises
        ------
        RegistrationError
            If `fn` does not take these parameters, or there is a rule already.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::half", mutates_args=())
        ... def half(x: np.ndarray) -> np.ndarray:
        ...     return x / 2
        >>> @half.register_jvp
        ... def _(primals, tangents):
        ...     return half(*primals), half(*tangents)
        >>> co.jvp(half, (np.array([3.0]),), (np.array([1.0]),))
        (array([1.5]), array([0.5]))
        """
        return self._register((JVP,), fn, override=override)

    # None is left out: pyright would say that a wrong rule must be None.
    @overload
    def register_vmap(self, fn: ShortVmapFn, /, *, override: bool = False) -> Self: ...
    @overload
    def register_vmap(  # type: ignore[overload-cannot-match]  # a longer one does
        self, fn: VmapFn, /, *, override: bool = False
    ) -> Self: ...
    @overload
    def register_vmap(self, /, *, override: bool = False) -> Callable[[FnT], FnT]: ...
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

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::half", mutates_args=())
        ... def half(x: np.ndarray) -> np.ndarray:
        ...     return x / 2
        >>> @half.register_vmap
        ... def _(info, in_dims, x):
        ...     return half(x), in_dims[0]
        >>> co.vmap(half)(np.array([3.0, 5.0]))
        array([1.5, 2.5])
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
            A floating-point dtype.

        Returns
        -------
        Operator

        Raises
        ------
        RegistrationError
            If the kind is unknown, the dtype is not a floating-point dtype, or the
            operator writes its arguments or returns views of them.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::half", mutates_args=())
        ... def half(x: np.ndarray) -> np.ndarray:
        ...     return x / 2
        >>> _ = half.register_autocast("cpu", np.float16)
        >>> with co.autocast("cpu"):
        ...     half(np.ones(2, np.float32))
        array([0.5, 0.5], dtype=float16)
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
        kernels accept, by giving them arrays of all shapes. A kernel that does
        not check its arguments, as is common in C, could crash: register inputs for it,
        or a fake kernel that raises for what does not fit. It is called first.

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

    def _register(
        self, keys: Iterable[RuleKind | str], fn: Any, *, override: bool
    ) -> Any:
        def enter(given: Any) -> None:
            for key in keys:
                self.add(key, given, override=override)

        return chained(self, fn, enter)


# ---- the methods of an operator ----


class OperatorMethods(RegistrationMethods, RuleTable):
    """A table whose methods register kernels and rules, and waive checks."""

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

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::half", mutates_args=())
        ... def half(x: np.ndarray) -> np.ndarray:
        ...     return x / 2
        >>> _ = half.register_kernel("cpu", lambda x: 0.5 * x + 1.0)  # wrong
        >>> with half.set_kernel_enabled("cpu", False):
        ...     half(np.array([3.0]))
        array([1.5])
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

    def sample_inputs(self) -> tuple[Sample, ...]:
        """Return the registered sample inputs, or an empty tuple.

        Returns
        -------
        tuple of Sample

        Raises
        ------
        ArgumentError
            If the function returns something else.
        """
        fn = self.find_rule(SAMPLE_INPUTS)
        return () if fn is None else samples.as_samples(self.qualname, fn, fn())

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
        self.waivers: Mapping[str, str] = samples.with_waiver(
            self, check, reason, override=override
        )
        return self


class KernelSwitch:
    """A context manager that restores whether a kernel is enabled."""

    def __init__(self, op: RuleTable, kind: str, disabled: bool) -> None:
        self._op = op
        self._kind = kind
        self._disabled = disabled

    def __enter__(self) -> None:
        """Do nothing: the change holds already."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._op.set_disabled(self._kind, self._disabled)


# ---- what is registered, and how it enters a table ----


class Registration:
    """A kernel or rule for the operator of a name, which may not be defined yet.

    Attributes
    ----------
    qualname : str
        Name of the operator.
    key : RuleKind or str
        A kind of rule, or the name of a kind of array.
    fn : object
        What is registered, as its kind takes it.
    owner : object
        Whose closing takes it back; None where it stays.
    with_below : bool
        Whether `fn` takes the function below as its first argument.
    kind : RuleKind
        The kind of rule.
    place : str
        File and line that messages name.
    """

    __slots__ = ("fn", "key", "kind", "owner", "place", "qualname", "with_below")

    def __init__(
        self,
        qualname: str,
        key: RuleKind | str,
        fn: Any,
        owner: object = None,
        *,
        with_below: bool = False,
    ) -> None:
        self.qualname: str = qualname
        self.key: RuleKind | str = key
        self.fn: Any = as_kernel(fn) if isinstance(key, str) else fn
        self.owner: object = owner
        self.with_below: bool = with_below
        self.kind: RuleKind = rule_kind(key)
        self.place: str = self.kind.place_of(fn)

    def check(self, definition: Definition) -> None:
        """Raise unless it fits a definition of the operator."""
        fn = self.fn
        if fn is fallthrough_kernel:
            return
        takes_below = self.with_below and callable(fn)
        self.kind.check(definition, partial(fn, None) if takes_below else fn)

    def row(self, op: RuleTable) -> Row:
        """Make the row for the table of an operator."""
        fn = table_kernel(op, self.fn) if isinstance(self.key, str) else self.fn
        rule = self.kind.accept(op, fn, with_below=self.with_below)
        return Row(rule, self.place, self.owner)

    def enter(self, op: RuleTable, *, override: bool = True) -> None:
        """Put it on top of the operator's rows of its kind."""
        row = self.row(op)
        op.enter(
            self.key,
            row,
            override=override,
            keeps_below=self.with_below or row.fn is fallthrough_kernel,
        )


def table_kernel(op: RuleTable, fn: Any) -> Any:
    """Return a kernel as the table holds it."""
    # A function of njit.
    if hasattr(fn, "typeof_pyval") and hasattr(fn, "targetoptions"):
        return numba_kernels.in_native_order(op, fn)
    return fn


def register(op: RuleTable, registration: Registration, *, override: bool) -> None:
    """Check a registration against an operator, and put it into the table."""
    check_flag("override", override)
    with finalized, changing:
        registration.kind.check_given(op.qualname, registration.fn)
        registration.check(op.definition)
        registration.enter(op, override=override)


def chained(answer: object, fn: Any, enter: Callable[[Any], object]) -> Any:
    """Enter `fn` and return the answer; without `fn` return a decorator.

    `@op.register_fake` without brackets looks like a call with a function, so the
    decorated name becomes the operator.
    """
    if fn is not None:
        enter(fn)
        return answer

    def decorator(given: Any) -> Any:
        enter(given)
        return given

    return decorator


def as_kernel(fn: Any) -> Any:
    """Return the kernel that a function of guvectorize is; another function as it is."""
    # numba is not imported to ask for its class.
    return numba_kernels.of_gufunc(fn) if hasattr(fn, "gufunc_builder") else fn
