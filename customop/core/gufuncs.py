"""Functions of ``numba.guvectorize`` as kernels, which is known from their attributes.

Such a function takes its results as its last arguments, and may have loops for some
dtypes alone, so the kernel allocates the results.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.errors import ArgumentError, RegistrationError, quoted

__all__ = ["GufuncKernel", "as_kernel"]


def as_kernel(fn: Any) -> Any:
    """The kernel that a gufunc is; another function as it is."""
    if not hasattr(fn, "gufunc_builder"):
        return fn
    if fn.gufunc_builder.writable_args:
        raise RegistrationError(
            f"{fn.__name__} is a function of guvectorize that writes its inputs",
            do="leave writable_args out, and give what it writes as a result",
        )
    return GufuncKernel(fn)


class GufuncKernel:
    """A kernel of a gufunc, which allocates the results.

    Attributes
    ----------
    gufunc : numba GUFunc
    schema : str
        The schema of an operator with this kernel: names and shapes of the gufunc.
    """

    def __init__(self, gufunc: Any) -> None:
        self.gufunc: Any = gufunc
        self.__name__: str = gufunc.__name__
        self.__doc__ = gufunc.__doc__
        self.__wrapped__: Any = gufunc.gufunc_builder.py_func
        self._inputs, self._outputs = map(_cores, gufunc.signature.split("->"))
        self._names = [*inspect.signature(self.__wrapped__).parameters][
            : len(self._inputs)
        ]
        pairs = zip(self._names, self._inputs, strict=True)
        typed = ", ".join([f"{_type(core)} {name}" for name, core in pairs])
        results = ", ".join(map(_type, self._outputs))
        is_single = len(self._outputs) == 1
        self.schema: str = f"({typed}) -> {results if is_single else f'({results})'}"

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(n, kind) for n in self._names])

    def __repr__(self) -> str:
        return f"<kernel of {self.__name__}>"

    def __call__(self, *arrays: Any) -> Any:
        """Compute the results."""
        loops: list[Any] = []
        sizes: dict[str, int] = {}
        for x, core in zip(arrays, self._inputs, strict=True):
            loops.append(x.shape[: x.ndim - len(core)])
            sizes.update(zip(core, x.shape[x.ndim - len(core) :], strict=True))
        loop = np.broadcast_shapes(*loops)
        dtypes = self.dtypes(arrays)
        shapes = [(*loop, *[sizes[axis] for axis in core]) for core in self._outputs]
        out = [np.empty(n, t) for n, t in zip(shapes, dtypes, strict=True)]
        self.gufunc(*arrays, *out)
        return out[0] if len(out) == 1 else tuple(out)

    @property
    def has_loops(self) -> bool:
        """Whether the dtypes are fixed; numba compiles for all dtypes otherwise."""
        return not self.gufunc.is_dynamic

    def dtypes(self, arrays: Sequence[Any]) -> list[np.dtype[Any]]:
        """The dtypes of the results: those of the first loop that takes the arrays."""
        given = [np.dtype(x.dtype) for x in arrays]
        if not self.has_loops:
            return [np.result_type(*given)] * len(self._outputs)
        for loop in self.gufunc.types:
            inputs, outputs = loop.split("->")
            if all(map(np.can_cast, given, inputs)):
                return [np.dtype(letter) for letter in outputs]
        raise ArgumentError(
            f"{self.__name__} has no loop for {quoted(map(str, given))}; it has"
            f" {', '.join(self.gufunc.types)}",
            do="convert the arguments: x.astype(np.float64)",
        )

    def fake(self, derived: Callable[..., Any]) -> Callable[..., Any]:
        """The fake kernel, of one that knows the shapes."""

        def kernel(*arrays: Any) -> Any:
            found = derived(*arrays)
            results = (found,) if len(self._outputs) == 1 else found
            pairs = zip(results, self.dtypes(arrays), strict=True)
            made = [FakeArray(y.shape, dtype, device=y.device) for y, dtype in pairs]
            return made[0] if len(made) == 1 else tuple(made)

        kernel.__signature__ = self.__signature__  # type: ignore[attr-defined]  # as inspect reads
        return kernel


def _cores(text: str) -> list[list[str]]:
    """The axes in each bracket of one side of a signature."""
    return [
        [axis.strip() for axis in part.split(",") if axis.strip()]
        for part in re.findall(r"\(([^)]*)\)", text)
    ]


def _type(core: Sequence[str]) -> str:
    return f"Array[{','.join(['...', *core])}]"
