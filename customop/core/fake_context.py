"""`get_ctx`: sizes that depend on the values of arrays, for fake kernels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any

from customop.arrays.kinds import is_fake
from customop.arrays.nested import flat
from customop.core.table import RuleTable
from customop.errors import RegistrationError, caller_place, is_ours
from customop.later import later
from customop.shapes.symbols import Symbolic

__all__ = ["FakeContext", "get_ctx", "own_context"]

size_context: ModuleType = later(import_module, "customop.shapes.size_context")


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
    """The sizes of one call or mode, made when they are asked for."""
    if not found:
        found.append(size_context.SizeContext())
    return found[0]


def _context_in(values: Sequence[Any]) -> Any:
    """The sizes of the arguments of a call, or None."""
    for value in values:
        for leaf in flat(value):
            for size in (*leaf.shape, *leaf.strides) if is_fake(leaf) else (leaf,):
                if isinstance(size, Symbolic):
                    return size.context  # type: ignore[attr-defined]  # its classes have it
    return None


# Functions of this package that run a fake kernel have these variables: the operator, all
# values, and a list for the sizes that no argument gives. Finding them costs nothing in a
# call whose kernel does not ask.
_OP, _VALUES, _SIZES = "fake_op", "fake_values", "fake_sizes"


def _frame_with(name: str, frame: FrameType | None) -> FrameType | None:
    """The innermost frame of this package that has a variable."""
    while frame is not None:
        if name in frame.f_code.co_varnames and is_ours(frame.f_globals):
            return frame
        frame = frame.f_back
    return None


def _context_of(call: FrameType) -> Any:
    """The sizes that new ones belong to."""
    known = call.f_locals
    if _SIZES in known:
        return own_context(known[_SIZES])
    found = _context_in(known.get(_VALUES, ())) or size_context.captured_sizes()
    if found is not None:
        return found
    mode = _frame_with(_SIZES, call)
    if mode is not None:
        return own_context(mode.f_locals[_SIZES])
    return size_context.active_context()


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
    frame = _frame_with(_OP, sys._getframe(1))
    if frame is None:
        raise RegistrationError(
            "get_ctx() is called outside of a fake kernel",
            f"at {caller_place()}",
            do="call it in the function that is given to register_fake",
        )
    return FakeContext(frame.f_locals[_OP], _context_of(frame))
