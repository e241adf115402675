"""Nest transforms: in any order.

A transform takes a function and returns a function. Each running transform has a level.
A call goes to the highest level among its arguments. The rule of that transform calls
operators, which the lower levels see. So `grad` of `vmap` of `grad` needs no extra code.
"""

import sys

import numpy as np

import customop as co


@co.custom_op("shop::cube", mutates_args=(), tags=co.Tag.pointwise)
def cube(x: np.ndarray) -> np.ndarray:
    """Compute x ** 3."""
    return x * x * x


def keep_input(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


cube.register_fake(lambda x: co.fake_like(x))
cube.register_autograd(
    lambda ctx, grad: grad * 3.0 * ctx.saved_arrays[0] ** 2, setup_context=keep_input
)

# One rule gives every derivative: 3 x**2, 6 x, 6, 0.
x = np.array(2.0)
derivatives = []
fn = cube
for _ in range(4):
    fn = co.grad(fn)
    derivatives.append(float(fn(x)))
print(derivatives)

# The same derivatives at many points.
points = np.linspace(-1.0, 1.0, 5)
slopes = co.vmap(co.grad(cube))(points)
bends = co.vmap(co.grad(co.grad(cube)))(points)
print(slopes, bends)


# The other way round: the gradient of a function that calls vmap on a gradient.
# d/dp sum_i (p^2 3 x_i^2) = 6 p sum x_i^2.
def energy(p):
    inner = co.grad(lambda t, q: q * q * cube(t))
    return np.sum(co.vmap(inner, in_dims=(0, None))(points, p))


three_deep = co.grad(energy)(np.array(3.0))
print(three_deep)

# Levels keep two derivatives apart. The inner derivative of x + y with respect to y is 1,
# so the outer one is d/dx (x 1) = 1. A system that confuses the two returns 2.
confusion = co.grad(lambda x: x * co.grad(lambda y: x + y)(np.array(1.0)))(
    np.array(1.0)
)
print(confusion)


# Forward over reverse mode and reverse over forward mode give the same matrix.
def f(v):
    return np.sum(cube(v) * v[::-1])


v = np.array([1.0, 2.0, 3.0])
matrices = [
    co.hessian(f)(v),
    co.jacrev(co.jacfwd(f))(v),
    co.jacfwd(co.jacfwd(f))(v),
    co.jacrev(co.jacrev(f))(v),
]
print(matrices[0])

# A product of the matrix with a vector, without the matrix.
direction = np.array([1.0, 0.0, -1.0])
product = co.jvp(co.grad(f), (v,), (direction,))[1]

# The shape of the result, computed without data.
planned = co.eval_shape(co.hessian(f), np.zeros(1000))
print(planned)

# Under grad, Python sees the values, so loops and branches work.


def until_large(x):
    while x < 100.0:
        x = cube(x)
    return x


through_loop = co.grad(until_large)(np.array(1.5))

# A tracked value belongs to its transform. Using it after the transform has ended raises
# an error, since its number would mean nothing.
carried = []
co.grad(lambda x: (carried.append(x), cube(x))[1])(x)
try:
    cube(carried[0])
except co.LeakedTracerError as error:
    leak = str(error)
    print(leak)

assert derivatives == [12.0, 12.0, 6.0, 0.0]
np.testing.assert_allclose(slopes, 3.0 * points**2)
np.testing.assert_allclose(bends, 6.0 * points)
np.testing.assert_allclose(three_deep, 6.0 * 3.0 * np.sum(points**2))
assert confusion == 1.0
exact = np.diag(6.0 * v * v[::-1])
cross = 3.0 * v[:, None] ** 2 * np.eye(3)[::-1]
exact = exact + cross + cross.T
for matrix in matrices:
    np.testing.assert_allclose(matrix, exact)
np.testing.assert_allclose(product, exact @ direction)
assert planned.shape == (1000, 1000)
# 1.5 ** 9 = 38.4 and 1.5 ** 27 = 56815: three turns of the loop.
np.testing.assert_allclose(through_loop, 27.0 * 1.5**26)
assert "which has ended" in leak

# ---- a picture: python 07_nesting.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    line, fn = np.linspace(-2.0, 2.0, 200), lambda x: np.exp(-x * cube(x))
    figure = Figure(figsize=(6, 3.0), layout="constrained")
    axes = figure.subplots()
    for label in ("f(x) = exp(-x cube(x))", "grad(f)", "grad(grad(f))"):
        axes.plot(line, co.vmap(fn)(line), label=label)
        fn = co.grad(fn)
    axes.legend()
    figure.savefig(sys.argv[-1])
