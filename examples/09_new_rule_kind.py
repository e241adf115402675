"""Add a kind of rule: `inverse`, which runs functions backwards.

An operator is a schema and a table of rules. A kind of rule is a name and a signature. A
transform that reads such rules walks over the graph of a function. The one below is not
part of the library, and nests with those that are.
"""

import sys

import numpy as np

import customop as co

# A rule gets the result and the inputs, with None for the input that it must find.
inverse = co.RuleKind(
    "inverse", takes="(out, *inputs)", returns="the input that is None"
)


@co.custom_op("bank::compound", mutates_args=(), tags=co.Tag.pointwise)
def compound(capital: np.ndarray, rate: float, years: int = 1) -> np.ndarray:
    """Let a capital grow for some years."""
    return capital * (1.0 + rate) ** years


@compound.register(inverse)
def _(out, capital, rate, years):
    return out / (1.0 + rate) ** years


# A gradient, which is used below.
def keep_growth(ctx, inputs, output):
    _, rate, years = inputs
    ctx.growth = (1.0 + rate) ** years


compound.register_autograd(
    lambda ctx, grad: (grad * ctx.growth, None, None), setup_context=keep_growth
)
compound.register_fake(
    lambda capital, rate, years: co.fake_like(
        capital, dtype=np.result_type(capital.dtype, rate)
    )
)

# Read the rule back from the table and call it.
print(compound.rule(inverse)(np.array([121.0]), None, 0.1, 2))

# NumPy's functions are operators too, so you can register rules for them by name.
co.register("np::exp", inverse, lambda out, x: np.log(out))
co.register("np::log", inverse, lambda out, x: np.exp(out))


def of_pair(for_first, for_second):
    """Make the rule of an operator with two operands."""
    return lambda out, x1, x2: for_first(out, x2) if x1 is None else for_second(out, x1)


co.register("np::add", inverse, of_pair(np.subtract, np.subtract))
co.register("np::multiply", inverse, of_pair(np.divide, np.divide))
co.register("np::subtract", inverse, of_pair(np.add, lambda out, x: x - out))
co.register("np::divide", inverse, of_pair(np.multiply, lambda out, x: x / out))


def undo(node, out, inputs):
    """Find the input of one call, by the rule of its operator."""
    if sum(value is None for value in inputs) != 1:
        raise ValueError(f"{node.target.qualname} uses the input twice")
    return node.target.rule(inverse)(out, *inputs)


def inverse_of(f):
    """Make the function that undoes `f`, which keeps the shapes of its arrays."""

    def run(y):
        # Forward, on arrays without data: only the calls of operators are needed.
        graph = co.make_fx(f, "fake")(co.tree.map(co.fake_like, y))
        # Backward by the rules, from the result to the argument.
        return co.walk_graph_back(graph, undo, y)

    return run


def savings(capital):
    """Invest, pay a fee, and look at the result on a logarithmic scale."""
    return np.log(compound(capital, 0.05, 10) - 3.0) * 2.0 + 1.0


amounts = np.array([10.0, 100.0, 1000.0])
reached = savings(amounts)
needed = inverse_of(savings)(reached)
print(needed)

# The rules call operators, so every transform works on the inverse too. Its derivative is
# one over the derivative of the function.
slope = co.vmap(co.grad(savings))(amounts)
slope_back = co.vmap(co.grad(inverse_of(savings)))(reached)
print(slope * slope_back)

# The inverse of the inverse is the function.
again = inverse_of(inverse_of(savings))(amounts)


# The walk goes through whole functions: several arrays in, several out.
def account(state):
    """Return a step of an account, with its rate of interest on a logarithmic scale."""
    return {"sum": savings(state["sum"]), "rate": np.log(state["rate"] * 100.0)}


state = {"sum": amounts, "rate": np.array([0.01, 0.02, 0.05])}
before = inverse_of(account)(account(state))
print(before)

# An operator without a rule raises an error that says what to write.
try:
    inverse_of(np.sin)(reached)
except co.MissingRuleError as error:
    missing = str(error)
    print(missing)

# Registering a rule that does not fit the operator raises an error.
try:
    compound.register(inverse, lambda out, principal, rate, years: out, override=True)
except co.RegistrationError as error:
    refused = str(error)
    print(refused)

np.testing.assert_allclose(needed, amounts)
np.testing.assert_allclose(slope * slope_back, np.ones(3))
np.testing.assert_allclose(again, reached)
for name, value in state.items():
    np.testing.assert_allclose(before[name], value)
assert "np::sin has no 'inverse' rule" in missing
assert "do: @sin.register(inverse)" in missing
assert "has the parameter 'principal' where the schema has 'capital'" in refused

# ---- a picture: python 09_new_rule_kind.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    capital, goals = np.geomspace(3.0, 3e3, 100), np.linspace(4.0, 16.0, 9)
    found = inverse_of(savings)(goals)
    tangent = co.vmap(co.grad(inverse_of(savings)))(goals)
    figure = Figure(figsize=(6, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.semilogy(savings(capital), capital, color="gray", label="savings")
    for start, goal, slope in zip(found, goals, tangent, strict=True):
        near = np.array([-0.5, 0.5])
        axes.plot(goal + near, start + slope * near, color="C1")
    axes.plot(goals, found, "o", label="its inverse, with its slope")
    axes.set(xlabel="reached, logarithmic", ylabel="needed at the start")
    axes.legend()
    figure.savefig(sys.argv[-1])
