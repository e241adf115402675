"""`get_ctx`: sizes that depend on the values of arrays, for fake kernels."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from customop.arrays.kinds import is_fake
from customop.arrays.nested import flat
from customop.core.table import RuleTable
from customop.errors import RegistrationError, caller_place
from customop.later import later
from customop.shapes.symbols import Symbolic

__all__ = ["FakeCall", "FakeContext", "get_ctx", "own_context", "running"]

size_context: ModuleType = later(import_module, "customop.shapes.size_context")


# The operator, the values, and None; or a list for sizes that only this call has.
FakeCall: TypeAlias = tuple[RuleTable, Sequence[Any], list[Any] | None]


class _Running(threading.local):
    """The call of a fake kernel that runs in this thread."""

    call: FakeCall | None = None
    # The list of a mode for the sizes of all its calls.
    own: list[Any] | None = None


running = _Running()


class FakeContext:
    """The sizes of a call of a fake kernel; `get_ctx` returns it."""

    __slots__ = ("_context", "_op")

    def __init__(self, call: FakeCall) -> None:
        op, values, own = call
        self._op = op
        self._context = _context_of(values) if own is None else own_context(own)

    def new_dynamic_size(self, min: int = 0, max: int | None = None) -> Any:  # noqa: A002  # names of torch.library
        """Make a size that depends on the values of the arguments.

        Parameters
        ----------
        min : int
            The least value that it can have.
        max : int, optional
            The largest value that it can have.

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


def _context_of(values: Sequence[Any]) -> Any:
    """The sizes of the arrays of a call, or those of the code that runs."""
    for value in values:
        for leaf in flat(value):
            sizes = leaf.shape if is_fake(leaf) else (leaf,)
            for size in sizes:
                if isinstance(size, Symbolic):
                    return size.context  # type: ignore[attr-defined]  # its classes have it
    own = running.own
    return size_context.active_context() if own is None else own_context(own)


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
    call = running.call
    if call is None:
        raise RegistrationError(
            "get_ctx() is called outside of a fake kernel",
            f"at {caller_place()}",
            do="call it in the function that is given to register_fake",
        )
    return FakeContext(call)
