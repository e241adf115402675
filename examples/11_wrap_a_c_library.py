"""Wrap a C library: one of its functions as an operator.

The kernel calls C through ctypes. The operator adds shapes without data, gradients and
batches. If there is a C compiler, the program compiles a small library. Otherwise it
uses the C library of the platform.
"""

import ctypes
import ctypes.util
import enum
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

import customop as co

# C's math library has Bessel functions of one number at a time, and NumPy has none. This
# library computes them for all elements of an array.
SOURCE = """
#include <math.h>
#include <stddef.h>

double jn(int, double);
double yn(int, double);

int bessel(double *out, const double *x, size_t count, int order, int kind) {
    if (kind != 1 && kind != 2) return 1;
    for (size_t i = 0; i < count; i++)
        out[i] = kind == 1 ? jn(order, x[i]) : yn(order, x[i]);
    return 0;
}
"""


def compiled(source):
    """Compile C code into a library, or return None where there is no compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        code, library = Path(folder, "bessel.c"), Path(folder, "bessel.so")
        code.write_text(source, encoding="utf-8")
        command = [compiler, "-O2", "-shared", "-fPIC", code, "-o", library, "-lm"]
        subprocess.run(command, check=True)  # noqa: S603  # our own code and compiler
        # Once it is loaded, the file is no longer needed.
        return ctypes.CDLL(str(library)).bessel


def one_by_one():
    """Find the functions for one number in the platform's own library."""
    library = ctypes.CDLL(ctypes.util.find_library("m") or ctypes.util.find_msvcrt())

    def bessel(out, x, count, order, kind):
        function = getattr(library, {1: "jn", 2: "yn"}[kind])
        function.argtypes = [ctypes.c_int, ctypes.c_double]
        function.restype = ctypes.c_double
        out.flat[:] = [function(order, value) for value in x.flat]
        return 0

    return bessel


# ctypes needs the C types of the arguments. NumPy's `ndpointer` checks that an array is
# made of contiguous doubles.
bessel_in_c = compiled(SOURCE)
if bessel_in_c is None:
    bessel_in_c = one_by_one()
else:
    doubles = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
    number = ctypes.c_int
    bessel_in_c.argtypes = [doubles, doubles, ctypes.c_size_t, number, number]
    bessel_in_c.restype = number

# The C function takes plain numbers. In Python they get names: an Enum and a NamedTuple
# can be arguments of an operator.


class Kind(enum.Enum):
    """The two solutions of Bessel's equation."""

    FIRST = 1
    SECOND = 2


class Function(NamedTuple):
    """One of the Bessel functions."""

    order: int
    kind: Kind = Kind.FIRST


@co.custom_op("special::bessel", mutates_args=(), device_types="cpu")
def bessel(x: np.ndarray, which: Function) -> np.ndarray:
    """Compute the Bessel function of an integer order for each element."""
    # C expects contiguous doubles. Its error code becomes an exception.
    given = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty(x.shape)
    if bessel_in_c(out, given, given.size, which.order, which.kind.value):
        raise ValueError(f"bessel: the library does not know {which}")
    return out


print(bessel.schema)
x = np.linspace(0.5, 12.0, 6)
print(bessel(x, Function(0)))

# ---- shapes without data: always doubles, in C order ----


@bessel.register_fake
def _(x, which):
    return co.FakeArray(x.shape, np.float64)


print(co.eval_shape(bessel, np.zeros((8, 3), np.float32), Function(1)))

# ---- gradients: J_n' = (J_(n-1) - J_(n+1)) / 2, and so for Y ----
# Source: Digital Library of Mathematical Functions, 10.6.1. The formula calls the
# operator itself, so derivatives of any order follow.


def setup_context(ctx, inputs, output):
    x, ctx.which = inputs
    ctx.save_for_backward(x)


def backward(ctx, grad):
    (x,) = ctx.saved_arrays
    order, kind = ctx.which
    below = bessel(x, Function(order - 1, kind))
    above = bessel(x, Function(order + 1, kind))
    return grad * (below - above) * 0.5, None


bessel.register_autograd(backward, setup_context=setup_context)


def total(x, which):
    """Sum over an array, to have one number to differentiate."""
    return bessel(x, which).sum()


first = co.grad(total)(x, Function(2))
second = co.grad(lambda x: co.grad(total)(x, Function(2)).sum())(x)
print("first derivative: ", first)
print("second derivative:", second)

# ---- batches: the C code computes all rows at once, and their axis does not move ----


@bessel.register_vmap
def _(info, in_dims, x, which):
    return bessel(x, which), in_dims[0]


rows = np.linspace(1.0, 4.0, 6).reshape(3, 2)
batched = co.vmap(lambda row: co.grad(total)(row, Function(1, Kind.SECOND)))(rows)
print("batch:", batched.shape)

# ---- errors for arguments that do not fit ----
messages = {}
for name, call in {
    "tuple": lambda: bessel(x, (0, 1)),
    "member": lambda: bessel(x, Function(0, 3)),
}.items():
    try:
        call()
    except co.ArgumentError as error:
        messages[name] = str(error)
        print(f"\n{error}")

# J_n is an integral. The trapezoidal rule computes it to full precision.
# Source: Digital Library of Mathematical Functions, 10.9.2.
angles = (np.arange(200) + 0.5) * np.pi / 200
for order in range(4):
    integral = np.cos(order * angles - x[:, None] * np.sin(angles)).mean(axis=1)
    np.testing.assert_allclose(bessel(x, Function(order)), integral, atol=1e-13)
# Bessel's equation, x^2 y'' + x y' + (x^2 - n^2) y = 0, with n = 2.
equation = x**2 * second + x * first + (x**2 - 4.0) * bessel(x, Function(2))
np.testing.assert_allclose(equation, 0.0, atol=1e-11)
step = 1e-6
up, down = (bessel(rows + s, Function(1, Kind.SECOND)) for s in (step, -step))
np.testing.assert_allclose(batched, (up - down) / (2 * step), rtol=1e-7)
np.testing.assert_array_equal(bessel(rows.T, Function(0)), bessel(rows, Function(0)).T)
assert "pass Function(order: int, kind: " in messages["tuple"]
assert "at field 'kind' expects" in messages["member"]

# ---- a picture: python 11_wrap_a_c_library.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    # A drum rings where a Bessel function is 0 at its edge: Newton's method finds where.
    radius, angle = np.meshgrid(np.linspace(0, 1, 60), np.linspace(0, 2 * np.pi, 120))
    figure = Figure(figsize=(6, 1.9), layout="constrained")
    modes = [(0, 2.0), (1, 4.0), (2, 5.0), (1, 7.0)]
    for axes, (order, start) in zip(figure.subplots(1, 4), modes, strict=True):
        edge, which = np.array(start), Function(order)
        for _ in range(5):
            edge -= bessel(edge, which) / co.grad(bessel)(edge, which)
        height = bessel(edge * radius, which) * np.cos(order * angle)
        across, up = radius * np.cos(angle), radius * np.sin(angle)
        levels = np.linspace(-1.0, 1.0, 32) * np.max(np.abs(height))
        axes.contourf(across, up, height, levels, cmap="RdBu")
        axes.set(aspect="equal", title=f"{edge:.3f}")
        axes.axis("off")
    figure.savefig(sys.argv[-1])
