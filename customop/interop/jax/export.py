"""`export`: an operator, or a function of NumPy's, as a function of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, update_wrapper
from typing import Any

import jax
import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import map_outline
from customop.arrays.pytree import flatten
from customop.core.changes import changing
from customop.core.operator import Operator
from customop.errors import (
    ArgumentError,
    DataDependentError,
    check_function,
    shown,
)
from customop.interop.jax.functions import Derived, NumpyCall, OperatorCall
from customop.interop.jax.places import ArraySlot, CallPlaces
from customop.interop.jax.primitives import call

__all__ = ["JaxFunction", "export"]


def export(op: Callable[..., Any]) -> JaxFunction:
    """Make a function of JAX's arrays.

    It runs on the host, also inside ``jax.jit``, by a callback. Shapes and dtypes of its
    results are those of the fake kernel; derivatives in both modes and to any order, and
    rows for ``jax.vmap``, are those of the rules.

    Parameters
    ----------
    op : Operator or callable
        Or a function of arrays that is made of operators and NumPy's functions.

    Returns
    -------
    JaxFunction
        Takes what `op` takes, with arrays of JAX in the place of NumPy's, and returns
        arrays of JAX. Other arguments are constants of the compiled program. JAX's arrays
        never change: those that `op` writes to come back after its own results, in the
        order of ``op.schema.written``.

    Raises
    ------
    ArgumentError
        If `op` is not a function, or draws random numbers.

    Notes
    -----
    Without ``jax_enable_x64`` JAX has no 64-bit numbers: it gives 32-bit arrays in, and
    results are rounded to them. dtypes that NumPy lacks, such as bfloat16, are refused.

    Examples
    --------
    >>> import customop as co, jax, jax.numpy as jnp, numpy as np
    >>> from customop.interop.jax import export
    >>> @co.custom_op("jax_docs::cube", mutates_args=(), tags=(co.Tag.pointwise,))
    ... def cube(x: co.Array) -> co.Array:
    ...     return x * x * x
    >>> op = cube.register_autograd(co.native)  # the gradient of its own code
    >>> jax_cube = export(cube)
    >>> float(jax.jit(jax.grad(jax_cube))(2.0))
    12.0
    """
    check_function("export", op)
    if isinstance(op, Operator) and op.sees_seed:
        raise ArgumentError(
            f"export: {op.qualname} draws random numbers, and JAX calls a function as often"
            " as it likes",
            do="draw before the call, and pass the numbers as an array",
        )
    return JaxFunction(op)


class JaxFunction:
    """A function that `export` returns.

    Attributes
    ----------
    op : Operator or callable
    """

    def __init__(self, op: Callable[..., Any]) -> None:
        self.op: Callable[..., Any] = op
        update_wrapper(self, op, updated=())

    def __repr__(self) -> str:
        return f"<{self._name()} for JAX>"

    def _name(self) -> str:
        named = getattr(self.op, "__qualname__", self.op)
        return str(getattr(self.op, "qualname", named))

    def _checked(self, array: Any) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(array.dtype)
        if dtype.isbuiltin == 2:  # registered by another library
            raise ArgumentError(
                f"{self._name()}: an array of {dtype}, which NumPy does not have",
                do="convert it: x.astype(np.float32)",
            )
        return dtype

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the operator, or enter the call into the program that JAX traces."""
        arrays: list[Any] = []
        fakes: dict[int, int] = {}

        def mark(leaf: Any) -> Any:
            if not isinstance(leaf, jax.Array | np.ndarray):
                return leaf
            fake = FakeArray(leaf.shape, self._checked(leaf))
            fakes[id(fake)] = len(arrays)
            arrays.append(leaf)
            return fake

        def slot(leaf: Any) -> Any:
            return ArraySlot(fakes[id(leaf)]) if id(leaf) in fakes else leaf

        fn: OperatorCall | NumpyCall
        if isinstance(self.op, Operator):
            marked: Any = map_outline((args, kwargs), mark)
            try:
                values = self.op.bind(*marked[0], **marked[1])
            except ArgumentError as error:
                _say_jax(error)
                raise
            fn = OperatorCall(
                self.op, CallPlaces([map_outline(v, slot) for v in values])
            )
        else:
            leaves, spec = flatten((args, kwargs))
            fn = NumpyCall(self.op, CallPlaces([slot(mark(v)) for v in leaves]), spec)
        types = tuple([(x.shape, np.dtype(x.dtype)) for x in arrays])
        example = _example(fn, types, changing.count)
        return fn.rebuilt(example, call(Derived(fn, ()), arrays))


def _say_jax(error: ArgumentError) -> None:
    """Name an array of JAX as such, where the error names the fake one in its place."""
    if "FakeArray" in error.what:
        error.what = error.what.replace("FakeArray", "an array of JAX")
        error.do = (
            f"pass a number of Python, with jax.jit(f, static_argnames='{error.parameter}')"
            f" where JAX traces it; or declare {error.parameter}: Array"
        )


@lru_cache(maxsize=4096)
def _example(
    fn: OperatorCall | NumpyCall, types: Sequence[tuple[Any, Any]], changes: int
) -> Any:
    """A result without data; asked again after a rule was registered."""
    found = fn.result([FakeArray(shape, dtype) for shape, dtype in types])
    for leaf in fn.leaves(found):
        _check_result(fn, leaf)
    return found


def _check_result(fn: OperatorCall | NumpyCall, leaf: Any) -> None:
    """Raise unless JAX can have a result: an array of a known shape."""
    if not is_array(leaf):
        raise ArgumentError(
            f"{fn} returns {shown(leaf)}, JAX's functions return arrays",
            do="return np.asarray(...) of it",
        )
    if any(type(n) is not int for n in leaf.shape):
        raise DataDependentError(
            f"{fn} gives {leaf}, and JAX must know shapes before it has values",
            do="give results of a fixed length, or call it outside of JAX's programs",
        )
