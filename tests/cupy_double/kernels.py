"""Kernels in CUDA C for the double of CuPy, which the C++ compiler of the host runs."""

from __future__ import annotations

import ctypes
import functools
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
_HEAD = "#include <cmath>\n#include <cstdint>\nusing namespace std;\n"
# A thread is a call, and these say which one.
_THREADS = """
#define __global__
struct Place { int x, y, z; };
extern "C" { Place gridDim, blockDim, blockIdx, threadIdx; }
"""


@functools.cache
def _library(source: str) -> ctypes.CDLL:
    """Compile C++; each operation rounds once, as with CuPy's options here."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    with tempfile.TemporaryDirectory() as folder:
        text, made = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        text.write_text(source, "utf-8")
        options = ("-O1", "-ffp-contract=off", "-shared", "-fPIC", "-w")
        subprocess.run([compiler, *options, "-o", made, text], check=True)  # our text
        return ctypes.CDLL(str(made))


def run_elements(
    inputs: Sequence[tuple[str, str]],
    output: tuple[str, str],
    operation: str,
    preamble: str,
    values: Sequence[Any],
) -> Any:
    """Run an operation for each element of arrays and numbers of NumPy."""
    shape = np.broadcast_shapes(*[np.shape(v) for v in values])
    arrays = [
        np.ascontiguousarray(np.broadcast_to(v, shape), dtype)
        for (dtype, _), v in zip(inputs, values, strict=True)
    ]
    out = np.empty(shape, output[0])
    reads = "".join(
        f"const {_TYPES[dtype]} {name} = ((const {_TYPES[dtype]}*)p[{i}])[i];\n"
        for i, (dtype, name) in enumerate(inputs)
    )
    dtype, name = _TYPES[output[0]], output[1]
    source = (
        f'{_HEAD}{preamble}\nextern "C" void run(long long n, void** p) {{\n'
        f"for (long long i = 0; i < n; i++) {{\n{reads}{dtype} {name};\n"
        f"{{ {operation}; }}\n(({dtype}*)p[{len(inputs)}])[i] = {name};\n}} }}\n"
    )
    places = [a.ctypes.data for a in (*arrays, out)]
    pointers = (ctypes.c_void_p * len(places))(*places)
    _library(source).run(ctypes.c_longlong(out.size), pointers)
    return out


def run_threads(
    source: str, name: str, grid: Sequence[int], block: Sequence[int], args: Any
) -> None:
    """Run a kernel for each thread of each block, one after the other."""
    library = _library(_HEAD + _THREADS + source)
    given = [
        ctypes.c_void_p(a.ctypes.data)
        if isinstance(a, np.ndarray)
        else np.ctypeslib.as_ctypes_type(a.dtype)(a.item())
        for a in args
    ]

    def put(where: str, place: Sequence[int]) -> None:
        parts = (*place, 0, 0)[:3]
        (ctypes.c_int * 3).in_dll(library, where)[:] = parts

    put("gridDim", grid)
    put("blockDim", block)
    for at in itertools.product(*map(range, grid)):
        put("blockIdx", at)
        for thread in itertools.product(*map(range, block)):
            put("threadIdx", thread)
            getattr(library, name)(*given)
