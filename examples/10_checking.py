"""Check an operator: on inputs that you did not have to write.

A schema, a fake kernel, a gradient and a vmap rule describe the same operator and can
disagree. `opcheck` makes inputs from the schema, compares every rule with the kernel, and
reports a mistake with the smallest input that shows it and code that repeats it.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import customop as co
from customop.testing import Sample, gradcheck, opcheck

# ---- an operator with a mistake in every rule ----


@co.custom_op("shop::price", mutates_args=())
def price(cost: np.ndarray, tax: np.ndarray, discount: float = 0.1) -> np.ndarray:
    """Compute prices from costs, a tax rate and a discount."""
    return cost * (1.0 + tax) * (1.0 - discount)


@price.register_fake
def _(cost, tax, discount):
    return co.fake_like(cost)  # wrong where `tax` has more axes than `cost`


def keep(ctx, inputs, output):
    cost, tax, ctx.discount = inputs
    ctx.save_for_backward(cost, tax)


def backward(ctx, grad):
    cost, tax = ctx.saved_arrays
    kept = 1.0 - ctx.discount
    return grad * (1.0 + tax) * kept, grad * cost, None  # the second forgets `kept`


price.register_autograd(backward, setup_context=keep)


@price.register_vmap
def _(info, in_dims, cost, tax, discount):
    return price(cost, tax, discount), 0  # wrong: the batch may be on another axis


# opcheck finds the inputs. Here it goes on after the first mistake.
result = opcheck(price, raise_exception=False)
print(result)
assert {"test_faketensor", "test_vmap", "test_gradients"} <= {*result.failed}

# Each mistake is an error that says what is wrong, where, and on which input.
mistake = result["test_gradients"]
print(mistake)
assert mistake.parameter == "tax"
assert mistake.sample.args[0].size == 1  # the smallest input that shows it

# ---- the same operator, corrected ----


@price.register_fake(override=True)
def _(cost, tax, discount):
    shape = np.broadcast_shapes(cost.shape, tax.shape)
    return co.fake_like(cost, shape, np.result_type(cost.dtype, tax.dtype, 1.0))


def right_backward(ctx, grad):
    cost, tax = ctx.saved_arrays
    kept = 1.0 - ctx.discount
    return grad * (1.0 + tax) * kept, grad * cost * kept, None


price.register_autograd(right_backward, setup_context=keep, override=True)


@price.register_vmap(override=True)
def _(info, in_dims, cost, tax, discount):
    ranks = [
        x.ndim - (d is not None) for x, d in zip((cost, tax), in_dims, strict=False)
    ]

    def with_batch(x, dim):
        """Move the batch to the front, and give each row as many axes as the other."""
        first = x[None] if dim is None else np.moveaxis(x, dim, 0)
        missing = max(ranks) - (first.ndim - 1)
        return first.reshape(first.shape[0], *(1,) * missing, *first.shape[1:])

    return price(with_batch(cost, in_dims[0]), with_batch(tax, in_dims[1]), discount), 0


result = opcheck(price)  # a mistake would raise
print(result)
assert not result.failed

# ---- your own inputs ----

# opcheck checks the call that you pass, and tries other layouts and dtypes of it.
opcheck(price, (np.array([10.0, 20.0]), np.array([0.19]), 0.5))


@co.custom_op("shop::quarter_of", mutates_args=())
def quarter_of(month: np.ndarray) -> np.ndarray:
    """Compute the quarter of each month, counted from 0."""
    if month.size and not (month.min() >= 1 and month.max() <= 12):
        raise ValueError("months are counted from 1 to 12")
    return (month - 1) // 3


# The schema does not say that months are 1 to 12. Register inputs that fit; opcheck, the
# pytest plugin and `customop bench` use them.
quarter_of.register_fake(lambda month: co.fake_like(month))
quarter_of.register_sample_inputs(
    lambda: [Sample((np.array([1, 6, 12]),), {}), Sample((np.array(3),), {})]
)
assert not opcheck(quarter_of).failed

# ---- parts of opcheck ----

# Compare the gradients of any function with differences:
gradcheck(lambda x: np.sum(price(x, x, 0.2)), (np.array([1.0, 2.0, 3.0]),))

# See which operators a program calls, how often, and how long they take:
with co.profile() as watched:
    co.grad(lambda x: np.sum(price(x, np.array([0.19]))))(np.arange(1000.0))
print(watched)
with tempfile.TemporaryDirectory() as folder:
    timeline = Path(folder) / "trace.json"
    watched.save(timeline)  # for Perfetto, or chrome://tracing
    assert json.loads(timeline.read_text())["traceEvents"]

# Check one call in a thousand of a running program:
co.config.sample_checks = 0.001
price(np.ones(3), np.ones(3))
co.config.sample_checks = 0.0

# On the command line, the exit status says whether all checks pass:
#
#     python -m customop check shop --junit report.xml
#     python -m pytest --opcheck shop

# ---- a picture: python 10_checking.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    costs = np.linspace(1.0, 10.0, 10)
    ahead, behind = (price(costs, np.full(10, 0.2 + step)) for step in (1e-5, -1e-5))
    figure = Figure(figsize=(6, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(costs, (ahead - behind) / 2e-5, color="gray", label="by differences")
    axes.plot(costs, costs, "x", color="C3", label="the formula with the mistake")
    by_tax = co.grad(lambda tax: np.sum(price(costs, tax)))(np.full(10, 0.2))
    axes.plot(costs, by_tax, "o", label="the corrected one")
    axes.set(xlabel="cost", ylabel="d price / d tax")
    axes.legend()
    figure.savefig(sys.argv[-1])
