"""Registration of kernels, and of rules of any kind, as methods of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from customop.arrays.kinds import FAKE
from customop.core.definition import check_device_types
from customop.core.registration import Registration, chained, register
from customop.core.rule_kind import RuleKind, check_kind
from customop.core.table import RuleTable
from customop.errors import RegistrationError, check_flag, shown, warn_caller

if TYPE_CHECKING:
    from customop.core.rule_types import KernelFn, ShortKernelFn

__all__ = ["KernelSwitch", "OperatorKernels"]

FnT = TypeVar("FnT", bound=Callable[..., Any])


class OperatorKernels(RuleTable):
    """A table whose methods register kernels, and rules of any kind."""

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

    def __init__(self, op: RuleTable, kind: str, disabled: bool) -> None:
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
