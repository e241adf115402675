"""Ask for shapes: without computing anything.

A fake array has a shape, a dtype, strides and a device, but no data. Operators and NumPy
functions run on it and return fake arrays. Use it to plan memory, to find a shape error
before a long run, or to check a kernel against its fake kernel.
"""

import sys

import numpy as np

import customop as co


@co.custom_op("shop::histogram", mutates_args=())
def histogram(x: np.ndarray, bins: int, low: float, high: float) -> np.ndarray:
    """Count the values of each row in bins of equal width."""
    rows = x.reshape(-1, x.shape[-1])
    counts = [np.histogram(row, bins, (low, high))[0] for row in rows]
    return np.array(counts, dtype=np.int64).reshape(*x.shape[:-1], bins)


# The fake kernel takes the same parameters and returns a fake array. `fake_like` starts
# from an input and changes what is different.


@histogram.register_fake
def _(x, bins, low, high):
    return co.fake_like(x, shape=(*x.shape[:-1], bins), dtype=np.int64)


# A fake array can be far larger than memory. A real one of this shape takes 8 TB.
huge = co.FakeArray((1_000_000, 1_000_000), np.float64)
counts = histogram(huge, 16, 0.0, 1.0)
print(counts, f"{counts.nbytes / 1e6:.0f} MB")

# `eval_shape` runs any function on fake arrays. It takes the shapes and dtypes from the
# arrays that you pass, and computes nothing.


def features(images, bins):
    centered = images - np.mean(images, axis=-1, keepdims=True)
    return {"counts": histogram(centered, bins, -1.0, 1.0), "power": centered**2}


images = np.zeros((10, 8, 64), np.float32)
shapes = co.eval_shape(features, images, 4)
print(shapes)

# Shapes that do not fit raise an error at once.
try:
    co.eval_shape(np.matmul, np.zeros((2, 3)), np.zeros((4, 5)))
except ValueError as error:
    mismatch = str(error)
    print(mismatch)

# `FakeMode` does the same for a block of code.
with co.FakeMode() as mode:
    x = mode.from_array(images)
    y = histogram(np.exp(x), 32, 0.0, 1.0)
print(y)

# The order in memory is part of the result. Strides are those that NumPy would choose.
turned = co.FakeArray((2, 3), strides=(8, 16))
print(co.fake_like(turned).strides)

# Asking a fake array for data raises an error.
try:
    if counts[0, 0] > 0:
        print("never reached")
except co.DataDependentError as error:
    refusal = str(error)
    print(refusal)

# The first real call is compared with the fake kernel.


@co.custom_op("shop::halves", mutates_args=())
def halves(x: np.ndarray) -> np.ndarray:
    return x * 0.5


halves.register_fake(lambda x: co.fake_like(x, dtype=np.float32))
try:
    halves(np.ones(3))
except co.ContractError as error:
    broken = str(error)
    print(broken)

# A length may be unknown. Give it a name, and it stays symbolic.
rows = co.FakeMode().from_array(images, sizes=("batch", 8, 64))
pairs = np.concatenate([rows, rows]).reshape(-1, 2, 8, 64)
print(pairs)
batch = rows.shape[0]
print((6 * batch + 5) // 3, batch + 1 > batch)

# Its value is not known, so a branch on it is an error that names the question and the
# line. `co.check` says what always holds.
try:
    if batch > 1:
        print("never reached")
except co.SizeError as error:
    open_question = str(error)
    print(open_question)
co.check(batch > 1)
assert batch != 1

# A fake kernel asks for a new size where the result depends on the data.


@co.custom_op("shop::nonzero", mutates_args=())
def nonzero(x: np.ndarray) -> np.ndarray:
    """Return the indices of the elements that are not zero, one row each."""
    return np.stack(np.nonzero(x), axis=1)


@nonzero.register_fake
def _(x):
    count = co.get_ctx().new_dynamic_size(max=x.size)
    return co.FakeArray((count, x.ndim), np.int64)


found = co.eval_shape(nonzero, np.zeros((4, 3)))
print(found, found.shape[0] <= 12)

real = features(images, 4)
for name, fake in shapes.items():
    assert (fake.shape, fake.dtype) == (real[name].shape, real[name].dtype)
assert counts.shape == (1_000_000, 16)
assert y.shape == (10, 8, 32)
assert co.fake_like(turned).strides == np.empty_like(np.ones((3, 2)).T).strides
assert "shapes (2, 3) and (4, 5) differ" in mismatch
assert "no data" in refusal
assert "they differ in dtype" in broken
assert str(pairs.shape[0]) == "batch"
assert "whether batch > 1 is asked" in open_question
assert found.shape[0] <= 12
assert nonzero(np.eye(3)).shape == (3, 2)

# ---- a picture: python 04_fake_and_sizes.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    numbers = 10 ** np.arange(9)
    figure = Figure(figsize=(6, 2.8), layout="constrained")
    axes = figure.subplots()
    for bins in (16, 128, 1024):
        # 52 TB at the end, and none of it is allocated.
        many = [co.FakeArray((int(n), 64, 64), np.float32) for n in numbers]
        sizes = [histogram(x, bins, 0.0, 1.0).nbytes / 1e9 for x in many]
        axes.loglog(numbers, sizes, "o-", label=f"{bins} bins")
    axes.axhline(16.0, color="gray", linewidth=1)
    axes.text(1.0, 25.0, "16 GB")
    axes.set(xlabel="images", ylabel="GB", title="memory, planned without data")
    axes.legend()
    figure.savefig(sys.argv[-1])
