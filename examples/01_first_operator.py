"""Make a first operator: from a function with type hints.

Run it with ``python examples/01_first_operator.py``. The other examples continue from
here, in the order of their numbers.
"""

import sys

import numpy as np

import customop as co

# An operator has a name, a schema and a table of rules. The function below becomes the
# first rule, the kernel that computes the result. It is ordinary NumPy code.


@co.custom_op("shop::softplus", mutates_args=())
def softplus(x: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """Compute log(1 + exp(beta x)) / beta, without overflow."""
    return np.logaddexp(0.0, beta * x) / beta


# You call it like the function, and it keeps the function's name and documentation.
x = np.array([-2.0, 0.0, 3.0])
y = softplus(x, beta=2.0)
print("softplus", y)
print(f"{softplus.__name__}: {softplus.__doc__}")

# The type hints became the schema. Calls and rules are checked against it.
print(softplus)

# A wrong call raises an error that says what was wrong, where, and what to do.
try:
    softplus("three")  # type: ignore[arg-type]
except co.ArgumentError as error:
    complaint = str(error)
    print(complaint)

# The kernel computes values. A fake kernel returns only the shape and dtype of the
# result. With it the operator runs on arrays that have no data.


@softplus.register_fake
def _(x: np.ndarray, beta: float) -> co.FakeArray:
    return co.fake_like(x, dtype=np.result_type(x.dtype, beta))


planned = softplus(co.FakeArray((1000, 1000), np.float32))
print("without computing:", planned)

# A backward formula adds derivatives. `setup_context` runs after the kernel and keeps
# what the formula needs. `backward` takes the gradient of the output and returns one
# for each input, or None for an input that has none.


def setup_context(ctx, inputs, output):
    x, ctx.beta = inputs
    ctx.save_for_backward(x)


def backward(ctx, grad):
    (x,) = ctx.saved_arrays
    return grad / (1.0 + np.exp(-ctx.beta * x)), None


softplus.register_autograd(backward, setup_context=setup_context)

# `grad` makes a function that computes the gradient. NumPy's functions are operators
# with rules too, so ordinary NumPy code can use the new operator.


def loss(x):
    return np.sum(softplus(np.sin(x)) ** 2)


gradient = co.grad(loss)(x)
print("gradient", gradient)

# Check the gradient against central differences, and the rest of the output.
step = 1e-6
unit = np.eye(3)
numeric = [(loss(x + step * e) - loss(x - step * e)) / (2 * step) for e in unit]
np.testing.assert_allclose(gradient, numeric, rtol=1e-7)
np.testing.assert_allclose(y, np.log1p(np.exp(2.0 * x)) / 2.0)
assert str(softplus.schema) == "(Array x, float beta=1.0) -> Array"
assert "argument 'x'" in complaint
assert (planned.shape, planned.dtype) == ((1000, 1000), np.float32)
print("all as promised")

# ---- a picture: python 01_first_operator.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    line = np.linspace(-3.0, 3.0, 121)
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    values, slopes = figure.subplots(1, 2)
    for beta in (1.0, 2.0, 5.0):
        values.plot(line, softplus(line, beta), label=f"beta {beta:g}")
        slopes.plot(line, co.grad(lambda x, b=beta: np.sum(softplus(x, b)))(line))
    values.set_title("softplus")
    values.legend()
    slopes.set_title("its gradient")
    figure.savefig(sys.argv[-1])
