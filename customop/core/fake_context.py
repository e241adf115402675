"""`get_ctx`: sizes that depend on the values of arrays, for fake kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from customop.arrays.kinds import is_fake
from customop.arrays.nested import flat
from customop.core.table import RuleTable
from customop.errors import RegistrationError, caller_place
from customop.later import later
from customop.shapes.sizes import Symbolic

size_context: ModuleType = later(import_module, "customop.shapes.size_context")

# ---- for users ----


def get_ctx() -> FakeContext:
    """Return the context of the fake kernel that runs, to ask for new sizes.

    Returns
    -------
    FakeContext
        Its method ``new_dynamic_size(min=0, max=None)`` makes a size that depends on
        the values of the arguments.

    Raises
    ------
    RegistrationError
        Outside of a fake kernel.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::distinct", mutates_args=())
    ... def distinct(x: np.ndarray) -> np.ndarray:
    ...     return np.unique(x)
    >>> @distinct.register_fake
    ... def _(x):
    ...     return co.fake_like(x, shape=(co.get_ctx().new_dynamic_size(),))
    >>> co.eval_shape(distinct, np.zeros(5)).shape[0] + 1
    u0 + 1
    """
    frame = _frame_of(_calls, sys._getframe(1))
    if frame is None:
        raise RegistrationError(
            "get_ctx() is called outside of a fake kernel",
            f"at {caller_place()}",
            do="call it in the function that is given to register_fake",
        )
    return FakeContext(_first(frame).op, _context_of(frame))


# ---- the sizes of a call ----


class FakeContext:
    """The sizes of a call of a fake kernel; `get_ctx` returns it."""

    __slots__ = ("_context", "_op")

    def __init__(self, op: RuleTable, context: Any) -> None:
        self._op = op
        self._context = context

    def new_dynamic_size(self, min: Any = 0, max: Any = None) -> Any:  # noqa: A002  # names of torch.library
        """Make a size that depends on the values of the arguments.

        Parameters
        ----------
        min : int or SymInt
            The least value that it can have.
        max : int or SymInt, optional
            The largest value that it can have, such as ``x.size``.

        Returns
        -------
        SymInt
            For the shape of a result. A real result is compared with the bounds.

        Raises
        ------
        ShapeError
            If `min` is negative, or `max` is less than `min`.
        ArgumentError
            If one of them is not an int.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::positive", mutates_args=())
        ... def positive(x: np.ndarray) -> np.ndarray:
        ...     return x[x > 0]
        >>> @positive.register_fake
        ... def _(x):
        ...     size = co.get_ctx().new_dynamic_size(max=x.shape[0])
        ...     return co.fake_like(x, shape=(size,))
        >>> co.eval_shape(positive, np.zeros(5))
        FakeArray(f64[u0], device='cpu')
        """
        origin = f"a result of {self._op.qualname} at {caller_place()}"
        return self._context.new_dynamic_size(min, max, origin)


def own_context(found: list[Any]) -> Any:
    """Return the sizes of one call or mode, made at the first request."""
    if not found:
        found.append(size_context.SizeContext())
    return found[0]


def _context_in(values: Sequence[Any]) -> Any:
    """Return the sizes of the arguments of a call, or None."""
    for value in values:
        for leaf in flat(value):
            for size in (*leaf.shape, *leaf.strides) if is_fake(leaf) else (leaf,):
                if isinstance(size, Symbolic):
                    return size.context
    return None


# ---- the call that asks ----


if TYPE_CHECKING:

    class _FakeKernelCall(Protocol):
        """A call of a fake kernel."""

        @property
        def op(self) -> RuleTable:
            """The operator."""
            ...

        @property
        def values(self) -> Sequence[Any]:
            """The values of all parameters."""
            ...

        @property
        def sizes(self) -> list[Any] | None:
            """The list that gets the sizes of this call alone; None to use those of the arguments."""
            ...

    class _HasContexts(Protocol):
        """A mode whose fake kernels run."""

        contexts: list[Any]


CallT = TypeVar("CallT", bound="_FakeKernelCall")
ModeT = TypeVar("ModeT", bound="_HasContexts")
P = ParamSpec("P")
R = TypeVar("R")

# Code of functions that run fake kernels, and that of modes. Their first parameters say
# what get_ctx() must know: it looks for their frames, so that a call whose kernel does
# not ask pays nothing.
_calls: set[CodeType] = set()
_modes: set[CodeType] = set()


def runs_fake_kernels(
    method: Callable[Concatenate[CallT, P], R],
) -> Callable[Concatenate[CallT, P], R]:
    """Mark a method of a call of a fake kernel: kernels that it runs may ask for sizes."""
    _calls.add(method.__code__)
    return method


def has_sizes(
    method: Callable[Concatenate[ModeT, P], R],
) -> Callable[Concatenate[ModeT, P], R]:
    """Mark a method of a mode: its sizes are those of calls without others."""
    _modes.add(method.__code__)
    return method


class FakeCall:
    """A call of a fake kernel; with `sizes`, its results get new sizes there."""

    __slots__ = ("op", "sizes", "values")

    def __init__(
        self, op: RuleTable, values: Sequence[Any], sizes: list[Any] | None = None
    ) -> None:
        self.op: RuleTable = op
        self.values: Sequence[Any] = values
        self.sizes: list[Any] | None = sizes

    @runs_fake_kernels
    def run(self, kernel: Callable[..., Any]) -> Any:
        """Run the fake kernel."""
        positional, keywords = self.op.schema.split(self.values)
        return kernel(*positional, **keywords)


def _frame_of(codes: set[CodeType], frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame that runs one of these codes."""
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame


def _first(frame: FrameType) -> Any:
    """Return the first argument of a function that runs."""
    return frame.f_locals[frame.f_code.co_varnames[0]]


def _context_of(frame: FrameType) -> Any:
    """Return the sizes to which new sizes of a call are added."""
    call: _FakeKernelCall = _first(frame)
    if call.sizes is None:
        found = _context_in(call.values) or size_context.captured_sizes()
        if found is not None:
            return found
    return _context_around(frame)


def _context_around(start: FrameType) -> Any:
    """Return the sizes of the innermost call or mode that has some."""
    frame: FrameType | None = start
    while frame is not None:
        if frame.f_code in _modes:
            return own_context(_first(frame).contexts)
        if frame.f_code in _calls and _first(frame).sizes is not None:
            return own_context(_first(frame).sizes)
        frame = frame.f_back
    return size_context.active_context()


def new_size(origin: str, values: Sequence[Any]) -> Any:
    """Make a size that depends on the data of values, inside or outside of a fake kernel."""
    frame = _frame_of(_calls, sys._getframe(1))
    if frame is not None:
        context = _context_of(frame)
    else:
        context = _context_in(values) or size_context.captured_sizes()
    return (context or size_context.active_context()).new_dynamic_size(origin=origin)
