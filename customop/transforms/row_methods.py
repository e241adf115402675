"""Methods of the rows of vmap that call a kernel at once.

What NumPy or Python calls of a row runs the function of an operator, which runs the plan of
vmap, which calls the kernel. For ufuncs and reductions of small arrays these frames take as
long as the kernel, so the methods here do without them. They ask each time whether the
operator, its kernel and the transform still allow it, and leave everything else to the
methods that every tracer has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from customop.arrays.foreign import at_home
from customop.arrays.numpy_methods import ARITHMETIC, COMPARISONS, SIGNS
from customop.arrays.on_demand import CALLS, FUNCTIONS, find_alone, on_register
from customop.core.fast_kernel import FastKernel
from customop.core.observe import open_modes
from customop.core.table import Plans, RuleTable
from customop.core.tracer import Tracer
from customop.transforms.batch_plans import WIDER

__all__ = ["add_row_methods"]

Method = Callable[[Any, Any], Any]

_MOST_AXES = len(WIDER)
_NUMBERS = frozenset((bool, int, float, complex))
_REDUCTIONS = ("sum", "mean", "prod", "max", "min", "all", "any")
_new = object.__new__
_ndarray = np.ndarray

# ---- operators of functions ----


class _Server:
    """The operator that runs for a NumPy function of arrays alone, if there is one.

    Attributes
    ----------
    plans : Plans
        Those of the operator, or closed ones: then `renew` looks for them.
    fast : FastKernel
        That of the operator.
    is_operator : bool
        Whether it is known to be one.
    """

    # An operator has a class of its own, which makes reading its attributes slow.
    __slots__ = ("_function", "fast", "is_operator", "plans")

    def __init__(self, function: Any) -> None:
        self._function = function
        self.forget()

    def forget(self) -> None:
        """Forget the operator: another function may be registered."""
        self.is_operator: bool = False
        self.fast: Any = FastKernel()  # whose `array` mypy takes for a class of objects
        self.plans: Plans = Plans()
        self.plans.close()

    def renew(self) -> None:
        """Find the operator and what is known of it now."""
        found: Any = find_alone(self._function)
        if not isinstance(found, RuleTable):
            self.plans = Plans()  # an open one: nobody looks again
            return
        self.fast, self.plans = found.fast, found.plans
        self.is_operator = True
        if find_alone(self._function) is not found:  # replaced meanwhile
            self.forget()


class _Servers(dict[Any, _Server]):
    """NumPy function -> what serves it; those that nobody has registered are not kept."""

    def __missing__(self, function: Any) -> _Server:
        return self.of(function) if function in FUNCTIONS else _unknown

    def of(self, function: Any) -> _Server:
        """Return the operator of a NumPy function, which may be registered later."""
        return self.setdefault(function, _Server(function))

    def forget(self, function: Any) -> None:
        """Forget the operator of a function."""
        if function in self:
            self[function].forget()


_unknown = _Server(None)
_unknown.plans = Plans()
_servers = _Servers()
on_register.append(_servers.forget)


# ---- ufuncs of a row and another value ----


def _beside(ufunc: np.ufunc, general: Method, *, is_second: bool) -> Method:
    """The method of a row for a ufunc of it and another value, which may come first."""
    server = _servers.of(ufunc)

    def method(self: Any, other: Any) -> Any:
        batch = self.interpreter
        x, dim, fast = self.below, self.dim, server.fast
        if (
            type(x) is fast.array
            and server.plans.is_elementwise
            and not open_modes
            and batch.runs_plans
        ):
            y = None
            if type(other) is type(self):
                if other.interpreter is batch and type(other.below) is _ndarray:
                    y = other.below
                    if other.dim != dim or x.ndim != y.ndim:
                        x, y, dim = _aligned(x, y, dim, other.dim)
            elif type(other) in _NUMBERS or (
                type(other) is _ndarray and dim == 0 and other.ndim < x.ndim
            ):
                y = other
            if y is not None:
                out = fast.kernel(y, x) if is_second else fast.kernel(x, y)
                if type(out) is _ndarray:
                    # As the lines of plans do.
                    tracer: Any = _new(type(self))
                    tracer.interpreter = batch
                    tracer.below = out
                    tracer.dim = dim
                    tracer.box_place = tracer.box_views = None
                    return tracer
        elif server.plans.is_closed:
            server.renew()
        return general(self, other)

    return method


def _aligned(x: Any, y: Any, x_dim: int, y_dim: int) -> tuple[Any, Any, int]:
    """Two batches whose rows NumPy broadcasts, and their axis; None for `y` if not so."""
    more = x.ndim - y.ndim
    if -_MOST_AXES < more < _MOST_AXES:
        if y.ndim == 1:  # a number for each row
            return x, y[WIDER[more - x_dim]], x_dim
        if x.ndim == 1:
            return x[WIDER[-more - y_dim]], y, y_dim
        if x_dim == y_dim == 0:
            if more > 0:
                return x, y[WIDER[more]], 0
            return x[WIDER[-more]], y, 0
    return x, None, x_dim


class _Ufuncs(dict[np.ufunc, Method]):
    """Ufunc -> the method of a row for calls of it with another value."""

    def __init__(self, protocol: Callable[..., Any], *, is_second: bool) -> None:
        super().__init__()
        self._protocol = protocol
        self._is_second = is_second

    def __missing__(self, ufunc: np.ufunc) -> Method:
        def general(row: Any, other: Any) -> Any:
            inputs = (other, row) if self._is_second else (row, other)
            return self._protocol(row, ufunc, "__call__", *inputs)

        if ufunc not in FUNCTIONS:
            return general
        method = _beside(ufunc, general, is_second=self._is_second)
        return self.setdefault(ufunc, method)


# ---- NumPy's protocols ----


def _ufunc_protocol(general: Callable[..., Any]) -> Callable[..., Any]:
    """The method that NumPy calls for ufuncs."""
    first = _Ufuncs(general, is_second=False)
    second = _Ufuncs(general, is_second=True)

    def array_ufunc(
        self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if kwargs or method != "__call__":
            return general(self, ufunc, method, *inputs, **kwargs)
        if len(inputs) == 2:
            x, y = inputs
            return first[ufunc](x, y) if x is self else second[ufunc](y, x)
        server, batch, value = _servers[ufunc], self.interpreter, self.below
        fast = server.fast
        if (
            type(value) is fast.array
            and len(inputs) == 1
            and server.plans.is_elementwise
            and not open_modes
            and batch.runs_plans
        ):
            out = fast.kernel(value)
            if type(out) is _ndarray:
                tracer: Any = _new(type(self))
                tracer.interpreter = batch
                tracer.below = out
                tracer.dim = self.dim
                tracer.box_place = tracer.box_views = None
                return tracer
        elif server.plans.is_closed:
            server.renew()
        return general(self, ufunc, method, *inputs)

    return array_ufunc


def _function_protocol(general: Callable[..., Any]) -> Callable[..., Any]:
    """The method that NumPy calls for its other functions."""

    def array_function(
        self: Any, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        if len(args) == len(classes) == 1 and args[0] is self:
            server = _servers[function]
            if kwargs:
                if server.plans.is_closed:
                    server.renew()
                if server.is_operator and "out" not in kwargs:
                    return CALLS[function](self, **kwargs)
                return general(self, function, classes, args, kwargs)
            batch, value, dim = self.interpreter, self.below, self.dim
            if (
                type(value) is server.fast.array
                and (found := server.plans.alone.get((value.shape, dim))) is not None
                and not open_modes
                and batch.runs_plans
            ):
                call, dim = found
                out = call(value)
                if type(out) is _ndarray:
                    tracer: Any = _new(type(self))
                    tracer.interpreter = batch
                    tracer.below = out
                    tracer.dim = dim
                    tracer.box_place = tracer.box_views = None
                    return tracer
            elif server.plans.is_closed:
                server.renew()
        return general(self, function, classes, args, kwargs)

    return array_function


# ---- the methods of a class ----


def add_row_methods(cls: Any) -> None:
    """Give the tracers of vmap their own methods for ufuncs and reductions."""
    for name, ufunc in ARITHMETIC.items():
        if ufunc.nout == 1 and ufunc.signature is None:
            _add_beside(cls, f"__{name}__", ufunc)
            _add_beside(cls, f"__r{name}__", ufunc, is_second=True)
    for name, (ufunc, _) in COMPARISONS.items():
        _add_beside(cls, f"__{name}__", ufunc)
    by_ufunc = _ufunc_protocol(cls.__array_ufunc__)
    by_function = _function_protocol(cls.__array_function__)
    for name, ufunc in SIGNS.items():
        setattr(cls, f"__{name}__", _sign(ufunc, by_ufunc))
    for name in _REDUCTIONS:
        setattr(cls, name, _reduction(getattr(cls, name), by_function))
    cls.__array_ufunc__ = by_ufunc
    cls.__array_function__ = by_function
    # A class with protocols of its own is foreign otherwise.
    at_home[cls] = at_home[cls.box_stale_class] = True


def _add_beside(
    cls: type[Tracer], name: str, ufunc: np.ufunc, *, is_second: bool = False
) -> None:
    setattr(cls, name, _beside(ufunc, getattr(cls, name), is_second=is_second))


def _sign(ufunc: np.ufunc, by_ufunc: Callable[..., Any]) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return by_ufunc(self, ufunc, "__call__", self)

    return method


def _reduction(
    general: Callable[..., Any], by_function: Callable[..., Any]
) -> Callable[..., Any]:
    function = getattr(np, general.__name__)

    @wraps(general)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return general(self, *args, **kwargs)
        return by_function(self, function, (type(self),), (self,), kwargs)

    return method
