"""Add a kind of rule of your own: `inverse`, which runs functions backwards.

An operator is a schema and a table of rules. A kind of rule is a name and a signature;
what reads the rules is a transform, which is a class with one method. Nothing in the
library knows of this one, and it nests with those that the library brings.
"""

import numpy as np

import customop as co

# A rule is given the result and the inputs, with None for the one that is asked for.
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


# The formula of its gradient, for what comes below.
def keep_growth(ctx, inputs, output):
    _, rate, years = inputs
    ctx.growth = (1.0 + rate) ** years


compound.register_autograd(
    lambda ctx, grad: (grad * ctx.growth, None, None), setup_context=keep_growth
)
compound.register_fake(lambda capital, rate, years: co.fake_like(capital))

# The rule alone, read back from the table:
print(compound.rule(inverse)(np.array([121.0]), None, 0.1, 2))

# NumPy's functions are operators too, so they can be given rules by name.
co.register("np::exp", inverse, lambda out, x: np.log(out))
co.register("np::log", inverse, lambda out, x: np.exp(out))


def of_pair(for_first, for_second):
    """Make the rule of an operator with two operands."""
    return lambda out, x1, x2: for_first(out, x2) if x1 is None else for_second(out, x1)


co.register("np::add", inverse, of_pair(np.subtract, np.subtract))
co.register("np::multiply", inverse, of_pair(np.divide, np.divide))
co.register("np::subtract", inverse, of_pair(np.add, lambda out, x: x - out))
co.register("np::divide", inverse, of_pair(np.multiply, lambda out, x: x / out))


class Tape(co.Interpreter):
    """Writes down each call that depends on the input, in order."""

    kind = inverse

    def __init__(self):
        super().__init__()
        self.steps = []

    def process(self, op, args):
        out = self.wrap(op.invoke(self.unwrap(args)))
        slots = [i for i, value in enumerate(args) if self.lower(value) is not value]
        self.steps.append((op, args, slots, out))
        return out


def inverse_of(f):
    """Make the function that undoes `f`, a chain of operators that keeps the shape."""

    def undo(y):
        # Forwards on an array without data: only the order of the calls is wanted.
        with Tape() as tape:
            start = tape.wrap(co.fake_like(y))
            end = f(start)
        # Backwards by the rules, from the end of the chain to its start.
        for op, args, slots, out in reversed(tape.steps):
            if out is not end:
                raise ValueError(f"{op.qualname} is beside the way to the result")
            if len(slots) != 1:
                raise ValueError(f"{op.qualname} uses the input twice")
            (slot,) = slots
            known = [None if i == slot else value for i, value in enumerate(args)]
            y = op.rule(inverse)(y, *known)
            end = args[slot]
        assert end is start
        return y

    return undo


def savings(capital):
    """Invest, pay a fee, and look at the result on a logarithmic scale."""
    return np.log(compound(capital, 0.05, 10) - 3.0) * 2.0 + 1.0


amounts = np.array([10.0, 100.0, 1000.0])
reached = savings(amounts)
needed = inverse_of(savings)(reached)
print(needed)

# The rules call operators, so every transform goes through the inverse as well: its
# derivative is one over that of the function.
slope = co.vmap(co.grad(savings))(amounts)
slope_back = co.vmap(co.grad(inverse_of(savings)))(reached)
print(slope * slope_back)

# Even the inverse itself: what undoes the undoing is the function.
again = inverse_of(inverse_of(savings))(amounts)

# An operator without a rule is an error that says what to write, never a wrong number.
try:
    inverse_of(np.sin)(reached)
except co.MissingRuleError as error:
    missing = str(error)
    print(missing)

# A rule that does not fit the operator is refused when it is registered.
try:
    compound.register(inverse, lambda out, principal, rate, years: out, override=True)
except co.RegistrationError as error:
    refused = str(error)
    print(refused)

np.testing.assert_allclose(needed, amounts)
np.testing.assert_allclose(slope * slope_back, np.ones(3))
np.testing.assert_allclose(again, reached)
assert "np::sin has no 'inverse' rule" in missing
assert "do: @sin.register(inverse)" in missing
assert "has the parameter 'principal' where the schema has 'capital'" in refused
