"""Choose a kernel by the kind of array.

A call looks at its arrays, finds their kind, and runs the kernel registered for it:
"cpu" for NumPy, "cuda" for CuPy, and whatever kinds a program adds.
"""

import importlib.util

import numpy as np

import customop as co

# `device_types` says what the first function is a kernel for. Without it the function
# is the default: it serves every kind that has no kernel of its own.


@co.custom_op("shop::norm", mutates_args=(), device_types="cpu")
def norm(x: co.Array) -> co.Array:
    """Compute the Euclidean length of the last axis."""
    return np.sqrt(np.einsum("...i,...i->...", x, x))


points = np.array([[3.0, 4.0], [6.0, 8.0]])
print(norm(points))

# A kind of array is a name and a class. The class can be anything with `shape` and
# `dtype`; this one keeps a log of the kernels that touched it.


class LoggedArray:
    """An array that remembers what was done with it."""

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

# Before it has a kernel, a call with such an array is an error that says so.
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

# Kinds do not mix by accident: moving data is the caller's decision.


@co.custom_op("shop::distance", mutates_args=())
def distance(x: co.Array, y: co.Array) -> co.Array:
    """Compute distances between points. A default kernel, for all kinds."""
    return norm(x - y)


try:
    distance(LoggedArray(points), points)
except co.DeviceMismatchError as error:
    mixture = str(error)
    print(mixture)

# Some arrays carry more than numbers: a mask, a unit. For such a class an operator can
# have a rule of its own, which is asked before any kernel.


@norm.register_array_dispatch(np.ma.MaskedArray)
def _(op, args, kwargs):
    (x,) = args
    return np.ma.MaskedArray(op(x.filled(0.0)), x.mask.all(axis=-1))


masked = norm(np.ma.MaskedArray(points, [[False, True], [True, True]]))
print(masked)

# A kernel can be taken out of service. Until it is back, the function that the
# operator was made from runs: handy to compare a fast kernel with a plain one.

calls = []


@norm.register_kernel("cpu")
def _(x: np.ndarray) -> np.ndarray:
    calls.append("fast")
    return np.hypot(x[..., 0], x[..., 1])


with norm.set_kernel_enabled("cpu", enabled=False):
    plain = norm(points)
fast = norm(points)
print(plain, fast, calls)

# CuPy is the same story under the name "cuda". Its class is registered already, by
# the path "cupy.ndarray", so nothing is imported until somebody else does.


@norm.register_kernel("cuda")
def _(x):
    import cupy  # noqa: PLC0415  # only where such an array turns up

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
