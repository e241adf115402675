"""The back end "numba": groups of pointwise calls become ufuncs of machine code.

The numbers are those of NumPy to the last bit: only what IEEE 754 defines is compiled.
NumPy runs the new ufuncs as its own, with broadcasting, and looks at the processor's
flags: where a group divides by zero or overflows, its calls run one after the other and
warn as they do without a compiler.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from customop.compiling.backends import Kernel, is_in_c_order
from customop.compiling.kernel_code import (
    ElementProgram,
    in_python,
    kernels_of,
    with_kernels,
)
from customop.compiling.numpy_backend.build import build as build_numpy
from customop.compiling.numpy_backend.elementwise_runs import limits
from customop.compiling.numpy_backend.simplify import with_number_arrays
from customop.compiling.team import team
from customop.core.codegen import generate
from customop.errors import ArgumentError
from customop.forks import free_after_fork
from customop.graph.module import GraphModule

try:
    import numba
except ImportError as _error:  # pragma: no cover  # tried where it is not installed
    raise ArgumentError(
        "compile: the back end 'numba' needs numba, which is not installed",
        do="pip install 'customop[numba]'",
    ) from _error


# numba compiles in one thread at a time.
_compiling = free_after_fork(threading.RLock())


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """Return a function of the input leaves; numba compiles groups of pointwise calls."""
    fused = with_kernels(with_number_arrays(module), _kernel)
    run: Any = build_numpy(fused)
    others = run.explain
    run.explain = lambda: [*kernels_of(fused, "ufunc"), *others()]
    made: Callable[..., list[Any]] = run
    return made


def _kernel(group: GraphModule, program: ElementProgram) -> Kernel:
    ufunc = partial(_call, _ufunc(program), program.result)

    def fused(*arrays: Any) -> Any:
        asked = np.geterr()
        if all(how == "ignore" for how in asked.values()):
            return ufunc(*arrays)
        wanted: Any = {
            k: "ignore" if v == "ignore" else "raise" for k, v in asked.items()
        }
        with np.errstate(**wanted):
            return ufunc(*arrays)

    return Kernel(group, fused, lambda *arrays: is_in_c_order(arrays))


def _call(ufunc: Any, dtype: np.dtype[Any], *arrays: Any) -> Any:
    """Return the result of a ufunc; large ones are written by several threads."""
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    threads = min(team.size, math.prod(shape) // limits.share_of_one)
    if threads < 2:
        return ufunc(*arrays)
    inner = math.prod(shape[1:])
    unit = limits.multiple // math.gcd(inner, limits.multiple)
    step = -(-shape[0] // (4 * threads * unit)) * unit
    out = np.empty(shape, dtype)
    ndim = len(shape)

    def run_part(part: slice) -> None:
        given = [a[part] if a.ndim == ndim and len(a) > 1 else a for a in arrays]
        ufunc(*given, out[part])

    parts = [slice(i, i + step) for i in range(0, shape[0], step)]
    team.run_over(parts, lambda: run_part, threads)
    return out


@lru_cache(maxsize=1024)
def _ufunc(program: ElementProgram) -> Callable[..., Any]:
    """Return the ufunc of a program; compiling it takes some tenths of a second."""
    text, names = in_python(program)
    function = generate("fused ufunc", text, "fused", names)
    types = [numba.from_dtype(dtype) for _, dtype in program.inputs]
    signature = numba.from_dtype(program.result)(*types)
    vectorize: Any = numba.vectorize  # without annotations
    with _compiling:
        made: Callable[..., Any] = vectorize([signature], nopython=True)(function)
    return made
