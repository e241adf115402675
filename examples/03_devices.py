"""Choose a kernel: by the kind of array.

A call looks at its arrays and runs the kernel registered for their kind: "cpu" for
NumPy, "cuda" for CuPy, and the kinds that a program adds.
"""

import importlib.util
import sys

import numpy as np

import customop as co

# `device_types` says which kind the function is a kernel for. Without it the function
# is the default kernel, for all kinds that have no other.


@co.custom_op("shop::norm", mutates_args=(), device_types="cpu")
def norm(x: co.Array) -> co.Array:
    """Compute the Euclidean length of the last axis."""
    return np.sqrt(np.einsum("...i,...i->...", x, x))


points = np.array([[3.0, 4.0], [6.0, 8.0]])
print(norm(points))

# A kind of array is a name and a class. The class needs a `shape` and a `dtype`. This
# one keeps a log of the kernels that it went through.


class LoggedArray:
    """An array that remembers which kernels made it."""

    def __init__(self, values, log=()):
        self.values = np.asarray(values)
        self.log = log

    @property
    def shape(self):
        return self.values.shape

    @property
    def dtype(self):
        return self.values.dtype


co.register_array_type("logged", LoggedArray)

# Without a kernel for its kind, a call with such an array raises an error.
try:
    norm(LoggedArray(points))
except co.MissingRuleError as error:
    complaint = str(error)
    print(complaint)


@norm.register_kernel("logged")
def _(x: LoggedArray) -> LoggedArray:
    return LoggedArray(np.linalg.norm(x.values, axis=-1), (*x.log, "norm"))


logged = norm(LoggedArray(points))
print(logged.values, logged.log)

# Arrays of two kinds in one call are an error. The caller decides where data moves.


@co.custom_op("shop::distance", mutates_args=())
def distance(x: co.Array, y: co.Array) -> co.Array:
    """Compute distances between points. A default kernel, for all kinds."""
    return norm(x - y)


try:
    distance(LoggedArray(points), points)
except co.DeviceMismatchError as error:
    mixture = str(error)
    print(mixture)

# Some arrays carry more than numbers, such as a mask or a unit. An operator can have a
# rule for such a class. It runs instead of the kernels.


@norm.register_array_dispatch(np.ma.MaskedArray)
def _(op, args, kwargs):
    (x,) = args
    return np.ma.MaskedArray(op(x.filled(0.0)), x.mask.all(axis=-1))


masked = norm(np.ma.MaskedArray(points, [[False, True], [True, True]]))
print(masked)

# A kernel can be disabled. Meanwhile the function that the operator was made from runs.
# This way you can compare a fast kernel with a plain one.

calls = []


@norm.register_kernel("cpu")
def _(x: np.ndarray) -> np.ndarray:
    calls.append("fast")
    return np.hypot(x[..., 0], x[..., 1])


with norm.set_kernel_enabled("cpu", enabled=False):
    plain = norm(points)
fast = norm(points)
print(plain, fast, calls)

# For CuPy the kind is "cuda". Its class is already registered by the path
# "cupy.ndarray", so CuPy is used only where your program imports it.


@norm.register_kernel("cuda")
def _(x):
    import cupy  # noqa: PLC0415  # runs only for CuPy arrays

    return cupy.linalg.norm(x, axis=-1)


def has_cuda() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy  # noqa: PLC0415  # only where it is installed

    return bool(cupy.cuda.is_available())


if has_cuda():
    import cupy

    np.testing.assert_allclose(norm(cupy.asarray(points)).get(), [5.0, 10.0])

np.testing.assert_allclose(logged.values, [5.0, 10.0])
np.testing.assert_allclose(plain, fast)
assert masked.tolist() == [3.0, None]
assert logged.log == ("norm",)
assert "logged" in complaint
assert "'x' is on logged" in mixture
assert calls == ["fast"]

# ---- a picture: python 03_devices.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    given = {
        "np.ndarray": points,
        "LoggedArray": LoggedArray(points),
        "MaskedArray": np.ma.MaskedArray(points),
    }
    taken = [str(norm.explain(x).taken.name) for x in given.values()]
    figure = Figure(figsize=(6, 2.0), layout="constrained")
    axes = figure.subplots()
    axes.scatter(taken, list(given), s=200)
    axes.set(title="which kernel a call takes", ylim=(-0.6, 2.6))
    axes.grid(alpha=0.3)
    figure.savefig(sys.argv[-1])
