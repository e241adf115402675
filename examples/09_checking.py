"""Check operators: every promise that they make, on inputs that nobody wrote.

A schema, a fake kernel, a gradient and a vmap rule say the same thing in four ways, and
four ways can disagree. `opcheck` makes inputs from the schema, runs every rule against
the kernel, and shrinks what fails to the smallest input, with code that repeats it.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

import customop as co
from customop.testing import Sample, gradcheck, opcheck

# ---- an operator with a fault in every rule ----


@co.custom_op("shop::price", mutates_args=())
def price(cost: np.ndarray, tax: np.ndarray, discount: float = 0.1) -> np.ndarray:
    """What customers pay for goods of some cost, at the tax of their country."""
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
    return price(cost, tax, discount), 0  # wherever the batch axis is


# Without inputs, and without an end at the first fault:
result = opcheck(price, raise_exception=False)
print(result)
assert {"test_faketensor", "test_vmap", "test_gradients"} <= {*result.failed}

# A fault says what, where, on which input, and how to see it again.
fault = result["test_gradients"]
print(fault)
assert fault.parameter == "tax"
assert fault.sample.args[0].size == 1  # the smallest input that shows it

# ---- the same operator, put right ----


@price.register_fake(override=True)
def _(cost, tax, discount):
    shape = np.broadcast_shapes(cost.shape, tax.shape)
    return co.fake_like(cost, shape, np.result_type(cost.dtype, tax.dtype))


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
        """Move the batch to the front, before as many axes as the other has."""
        first = x[None] if dim is None else np.moveaxis(x, dim, 0)
        missing = max(ranks) - (first.ndim - 1)
        return first.reshape(first.shape[0], *(1,) * missing, *first.shape[1:])

    return price(with_batch(cost, in_dims[0]), with_batch(tax, in_dims[1]), discount), 0


result = opcheck(price)  # the first fault would raise
print(result)
assert not result.failed

# ---- inputs of one's own ----

# Of a call that means something, opcheck takes variations: other layouts and dtypes.
opcheck(price, (np.array([10.0, 20.0]), np.array([0.19]), 0.5))


@co.custom_op("shop::quarter_of", mutates_args=())
def quarter_of(month: np.ndarray) -> np.ndarray:
    """The quarter that a month belongs to, counted from 0."""
    if month.size and not (month.min() >= 1 and month.max() <= 12):
        raise ValueError("months are counted from 1 to 12")
    return (month - 1) // 3


# What no schema tells, the operator can be given: samples for opcheck, tests and bench.
quarter_of.register_fake(lambda month: co.fake_like(month))
quarter_of.register_sample_inputs(
    lambda: [Sample((np.array([1, 6, 12]),), {}), Sample((np.array(3),), {})]
)
assert not opcheck(quarter_of).failed

# ---- the parts, one by one ----

# Gradients alone, against differences, of any function:
gradcheck(lambda x: np.sum(price(x, x, 0.2)), (np.array([1.0, 2.0, 3.0]),))

# What a program calls, how often, and how long it takes:
with co.profile() as watched:
    co.grad(lambda x: np.sum(price(x, np.array([0.19]))))(np.arange(1000.0))
print(watched)
with tempfile.TemporaryDirectory() as folder:
    timeline = Path(folder) / "trace.json"
    watched.save(timeline)  # for Perfetto, or chrome://tracing
    assert json.loads(timeline.read_text())["traceEvents"]

# A share of all calls, in production, is held to its contract:
co.config.sample_checks = 0.001
price(np.ones(3), np.ones(3))
co.config.sample_checks = 0.0

# And on the command line, where the exit status serves CI:
#
#     python -m customop check shop --junit report.xml
#     python -m pytest --opcheck shop
