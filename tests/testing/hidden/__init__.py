"""Operators whose faults do not show in a few short arrays, each with a right twin.

Their kernels are wrong past the end of an array, in the last bits of its numbers, for
long arrays, for lengths that happen to be equal, or in calls that are rarely made.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

A = np.ndarray


class Hidden(NamedTuple):
    """A fault: a function that makes the operator, wrong or right, and why it is missed.

    A fault that opcheck finds has no reason.
    """

    build: Callable[[bool], Any]
    reason: str = ""


HIDDEN: list[Hidden] = []


def hidden(build: Callable[[bool], Any]) -> Callable[[bool], Any]:
    """Enter a fault that opcheck finds."""
    HIDDEN.append(Hidden(build))
    return build


def not_found(reason: str) -> Callable[[Callable[[bool], Any]], Callable[[bool], Any]]:
    """Enter a fault that opcheck does not find, with the reason."""

    def enter(build: Callable[[bool], Any]) -> Callable[[bool], Any]:
        HIDDEN.append(Hidden(build, reason))
        return build

    return enter


# ---- kernels in C ----

COMPILER = shutil.which("cc")


@cache
def compiled(source: str) -> Any:
    """Compile C code and load it."""
    assert COMPILER is not None
    folder = Path(tempfile.mkdtemp())
    code, library = folder / "kernel.c", folder / "kernel.so"
    code.write_text(f"#include <stddef.h>\n#include <stdint.h>\n{source}")
    command = [COMPILER, "-O1", "-shared", "-fPIC", "-o", str(library), str(code)]
    subprocess.run([*command, "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return loaded


def address(x: A) -> Any:
    """Return the address of an array for a C function."""
    return ctypes.c_void_p(x.ctypes.data)


def is_in_order(x: A) -> bool:
    """Return whether an array is aligned and in C order, as most C code needs it."""
    return x.flags.c_contiguous and x.flags.aligned


def kernel_of(source: str) -> Callable[[A], A]:
    """Make a kernel ``run(x, out, n)`` of float64 arrays in C order."""
    run = compiled(source).run
    run.restype = None

    def kernel(x: A) -> A:
        if x.dtype != np.float64 or not is_in_order(x):
            raise TypeError("float64 in C order")
        out = np.empty(x.shape)
        run(address(x), address(out), ctypes.c_long(x.size))
        return out

    return kernel
