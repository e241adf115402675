"""Operators from functions of ``numba.guvectorize``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from customop.errors import RegistrationError, shown
from customop.library.define import custom_op
from customop.schema.tags import Tag

__all__ = ["gufunc_op"]


def gufunc_op(
    name: str, gufunc: Any = None, /, *, tags: Iterable[Tag] | Tag = ()
) -> Any:
    """Make an operator from a function of ``numba.guvectorize``.

    Parameters
    ----------
    name : str
        ``"namespace::name"``.
    gufunc : function of guvectorize, optional
        Without it, `gufunc_op` returns a decorator.
    tags : Tag or iterable of Tag
        Properties that the schema cannot express.

    Returns
    -------
    Operator
        Its schema has the names of the inputs and the shapes of the gufunc; it returns
        the outputs, with the dtype that NumPy promotes the inputs to. Batches are axes in
        front, as in NumPy.

    Raises
    ------
    RegistrationError
        If `gufunc` is of another class.

    Examples
    --------
    >>> import numba, numpy as np
    >>> from customop.interop.numba import gufunc_op
    >>> @gufunc_op("doc::inner")
    ... @numba.guvectorize(["f8[:], f8[:], f8[:]"], "(n),(n)->()")
    ... def inner(x, y, out):
    ...     out[0] = 0.0
    ...     for i in range(len(x)):
    ...         out[0] += x[i] * y[i]
    >>> inner
    <Operator doc::inner(Array[...,n] x, Array[...,n] y) -> Array[...]>
    >>> inner(np.ones((2, 3)), np.ones(3))
    array([3., 3.])
    """
    if gufunc is None:
        return lambda found: gufunc_op(name, found, tags=tags)
    if not hasattr(gufunc, "gufunc_builder"):
        raise RegistrationError(
            f"{name}: gufunc_op takes a function of numba.guvectorize, got {shown(gufunc)}",
            do="for functions of njit and vectorize call custom_op",
            op=name,
        )
    inputs, outputs = map(_cores, gufunc.signature.split("->"))
    names = [*inspect.signature(gufunc.gufunc_builder.py_func).parameters][
        : len(inputs)
    ]
    typed = [f"{_type(core)} {name}" for name, core in zip(names, inputs, strict=True)]
    results = ", ".join(map(_type, outputs))
    schema = (
        f"({', '.join(typed)}) -> {results if len(outputs) == 1 else f'({results})'}"
    )
    kernel = _kernel(gufunc, names, inputs, outputs)
    return custom_op(
        name, kernel, mutates_args=(), device_types="cpu", schema=schema, tags=tags
    )


def _cores(text: str) -> list[list[str]]:
    """The axes in each bracket of one side of a signature."""
    return [
        [axis.strip() for axis in part.split(",") if axis.strip()]
        for part in re.findall(r"\(([^)]*)\)", text)
    ]


def _type(core: Sequence[str]) -> str:
    return f"Array[{','.join(['...', *core])}]"


def _kernel(
    gufunc: Any,
    names: Sequence[str],
    inputs: Sequence[Sequence[str]],
    outputs: Sequence[Sequence[str]],
) -> Callable[..., Any]:
    """A kernel that allocates the outputs, which functions for all dtypes want."""

    def kernel(*arrays: Any) -> Any:
        loops: list[Any] = []
        sizes: dict[str, int] = {}
        for x, core in zip(arrays, inputs, strict=True):
            loops.append(x.shape[: x.ndim - len(core)])
            sizes.update(zip(core, x.shape[x.ndim - len(core) :], strict=True))
        loop = np.broadcast_shapes(*loops)
        dtype = np.result_type(*arrays)
        out = [np.empty((*loop, *[sizes[axis] for axis in c]), dtype) for c in outputs]
        gufunc(*arrays, *out)
        return out[0] if len(out) == 1 else tuple(out)

    kernel.__name__ = gufunc.gufunc_builder.py_func.__name__
    kernel.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # as inspect reads
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
    )
    return kernel
