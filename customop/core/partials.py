"""Partial derivatives: rules of reverse and forward mode with a formula per argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from customop.arrays.dtypes import is_real_float
from customop.arrays.numpy_functions import call_numpy
from customop.core.definition import Definition
from customop.core.grad_rules import GradCall, GradRule, check_has_gradient
from customop.core.table import RuleTable
from customop.errors import RegistrationError, caller_place, did_you_mean, place, quoted
from customop.schema.schema import Schema
from customop.shapes.sizes import same_shape

__all__ = [
    "RESULT",
    "Partial",
    "Partials",
    "Pushforward",
    "fitted",
    "in_dtype",
    "partials",
]

# In place of the number of a parameter: the result of the call.
RESULT = -1


class Partial(NamedTuple):
    """The formula for one argument.

    Attributes
    ----------
    formula : callable
        ``formula(g, *values)``, the gradient of the argument.
    needs : tuple of (int, bool)
        For each value, the number of a parameter or `RESULT`, and whether its shape is
        wanted in place of the value.
    """

    formula: Callable[..., Any]
    needs: tuple[tuple[int, bool], ...]


class Partials(GradRule):
    """A rule of formulas, each for one argument; see `partials`."""

    __slots__ = ("formulas", "made_at", "result")
    is_formula: ClassVar[bool] = True

    def __init__(self, formulas: Mapping[str, Any], result: str) -> None:
        self.formulas: dict[str, Any] = dict(formulas)
        self.result: str = result
        self.made_at: str = caller_place()

    def __call__(self, ctx: Any, *grads: Any) -> Any:
        """As `backward`: a rule is registered like a function."""
        return self.backward(ctx, *grads)

    def of(self, schema: Schema) -> dict[int, Partial]:
        """The formulas by the numbers of their parameters, without those that are None."""
        names = [p.name for p in schema.parameters]
        found = {}
        for name, given in self.formulas.items():
            if given is not None:
                formula, wanted = _taken_apart(given)
                needs = tuple(self._need(names, each) for each in wanted)
                found[names.index(name)] = Partial(formula, needs)
        return found

    def _need(self, names: Sequence[str], wanted: str) -> tuple[int, bool]:
        if wanted in names:
            return names.index(wanted), False
        if wanted == self.result:
            return RESULT, False
        return names.index(wanted.removesuffix("_shape")), True

    @property
    def is_short(self) -> bool:
        """Whether there are few enough formulas for code for each set of arguments."""
        return len(self.formulas) - [*self.formulas.values()].count(None) <= 3

    def forward(self, call: GradCall) -> Any:
        """Run the operator below, and keep what the formulas of tracked arguments need."""
        out = call.op.invoke(call.values)
        node = call.node()
        tracked = {edge[0] for edge in call.edges}
        rows = self.of(call.op.schema)
        node.node_partials = [(slot, rows[slot]) for slot in rows if slot in tracked]
        needs = dict.fromkeys(
            need for _, row in node.node_partials for need in row.needs
        )
        node.node_needs = list(needs)
        values = [out if slot == RESULT else call.values[slot] for slot, _ in needs]
        pairs = zip(values, needs, strict=True)
        node.saved_arrays = tuple(
            v.shape if of_shape else v for v, (_, of_shape) in pairs
        )
        return call.track(node, out)

    def backward(self, ctx: Any, g: Any) -> dict[str, Any]:
        """The gradients of the tracked arguments, by name."""
        saved = dict(zip(ctx.node_needs, ctx.saved_arrays, strict=True))
        names = [p.name for p in ctx.node_op.schema.parameters]
        found = dict.fromkeys(self.formulas)
        for slot, (formula, needs) in ctx.node_partials:
            found[names[slot]] = formula(g, *[saved[need] for need in needs])
        return found

    def check(self, op: Definition) -> None:
        """Raise unless the formulas fit the operator."""
        check_has_gradient(op)
        _check_names(op, self)

    @property
    def backward_place(self) -> str:
        """File and line of the first formula."""
        return self.places[0]

    @property
    def places(self) -> tuple[str, ...]:
        """File and line of each formula; of `partials` if all are None."""
        given = [f for f in self.formulas.values() if f is not None]
        return tuple(place(_taken_apart(f)[0]) for f in given) or (self.made_at,)


class Pushforward:
    """The jvp rule of a pointwise operator, made of its partial derivatives.

    There a formula multiplies a tangent as it multiplies a gradient.
    """

    __slots__ = ("__wrapped__", "op", "rows")

    def __init__(self, op: RuleTable, rule: Partials) -> None:
        self.op: RuleTable = op
        self.rows: dict[int, Partial] = rule.of(op.schema)
        # Messages name the place of the first formula.
        formulas = [row.formula for row in self.rows.values()]
        self.__wrapped__: Any = (*formulas, rule.backward)[0]

    def __call__(self, primals: Any, tangents: Any, **keywords: Any) -> Any:
        """The result, and its tangent or None."""
        values = (*primals, *keywords.values())
        out = self.op.run(*values)
        total = None
        for slot, (formula, needs) in self.rows.items():
            if tangents[slot] is None:
                continue
            given = [out if at == RESULT else values[at] for at, _ in needs]
            pairs = zip(given, needs, strict=True)
            taken = [v.shape if of_shape else v for v, (_, of_shape) in pairs]
            part = formula(tangents[slot], *taken)
            total = part if total is None else total + part
        return out, None if total is None else fitted(total, out)


def fitted(t: Any, out: Any) -> Any:
    """A tangent in the shape and dtype of the result."""
    if not same_shape(t.shape, out.shape):
        t = call_numpy(np.broadcast_to, t, tuple(out.shape))
    return in_dtype(t, out.dtype)


def in_dtype(g: Any, dtype: Any) -> Any:
    """A gradient or tangent in another dtype; its real part for a real one."""
    if type(g) is np.ndarray and g.dtype.kind == "f":
        return g if g.dtype == dtype else g.astype(dtype)
    if is_real_float(dtype) and not is_real_float(g.dtype):
        g = call_numpy(np.real, g)
    return g if g.dtype == dtype else call_numpy(np.astype, g, dtype)


def _taken_apart(given: Any) -> tuple[Callable[..., Any], Sequence[str]]:
    """A formula, and the names of its values."""
    if isinstance(given, tuple):
        return given
    code = given.__code__
    return given, code.co_varnames[1 : code.co_argcount]


def partials(formulas: Mapping[str, Any], *, result: str = "out") -> Partials:
    """Make a rule of partial derivatives, for ``register_autograd``.

    A call saves what the formulas of the arguments with a gradient need, and nothing
    else; its code and that of backward are generated. So this is the fastest rule. For a
    pointwise operator the same rule serves ``register_jvp``.

    Parameters
    ----------
    formulas : mapping of str to callable, or to a pair, or to None
        For each array parameter of the operator, ``formula(g, ...)``: the gradient `g` of
        the result times the partial derivative. Its other parameters are names of
        parameters of the operator, whose values it gets; ``x_shape`` is the shape of
        `x`. A pair is a formula and a sequence of these names. With None the
        derivative is 0, as it must be for lists of arrays, such as indices.
    result : str
        The name by which formulas ask for the result of the call.

    Returns
    -------
    Partials

    Raises
    ------
    RegistrationError
        If `formulas` is not a dict of formulas; when it is registered, if a name does not
        fit the operator or an array parameter has no formula.

    Notes
    -----
    The operator returns one array. A gradient of another dtype than its argument is cast
    to it, the real part for a real argument, and a gradient that broadcasts is summed.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("readme::quotient", mutates_args=())
    ... def quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    ...     return x / y
    >>> _ = quotient.register_autograd(
    ...     co.partials({"x": lambda g, y: g / y, "y": lambda g, y, out: -g * out / y})
    ... )
    >>> co.grad(lambda v: quotient(np.ones(2), v).sum())(np.array([1.0, 2.0]))
    array([-1.  , -0.25])

    A pointwise operator has forward mode by the same formulas:

    >>> @co.custom_op("readme::half", mutates_args=(), tags=co.Tag.pointwise)
    ... def half(x: np.ndarray) -> np.ndarray:
    ...     return x / 2.0
    >>> rule = co.partials({"x": lambda g: g / 2.0})
    >>> _ = half.register_autograd(rule).register_jvp(rule)
    >>> co.jvp(half, (np.ones(2),), (np.ones(2),))
    (array([0.5, 0.5]), array([0.5, 0.5]))
    """
    if not isinstance(formulas, Mapping) or not all(
        map(_is_formula, formulas.values())
    ):
        raise RegistrationError(
            "partials takes a dict of formulas by the names of parameters",
            do='write partials({"x": lambda g, y: g * y, "y": lambda g, x: g * x})',
        )
    return Partials(formulas, result)


def _is_formula(given: Any) -> bool:
    if isinstance(given, tuple):
        return len(given) == 2 and callable(given[0])
    return given is None or hasattr(given, "__code__")


def _check_names(op: Definition, rule: Partials) -> None:
    """Raise for names that the operator lacks, and for an array without a formula."""
    schema = op.schema
    names = [p.name for p in schema.parameters]
    arrays = [names[slot] for slot in (*schema.array_slots, *schema.nested_slots)]
    if not schema.single_return:
        raise _wrong(op, "is for operators with one result", "")
    _check_arrays(op, rule, arrays)
    for name in arrays[len(schema.array_slots) :]:
        if rule.formulas[name] is not None:
            what = f"has a formula for '{name}', which is not a single array"
            raise _wrong(op, what, name)
    known = [*names, rule.result, *(f"{name}_shape" for name in arrays)]
    for name, given in rule.formulas.items():
        for wanted in () if given is None else _taken_apart(given)[1]:
            if wanted not in known:
                near = did_you_mean(wanted, known)
                raise _wrong(op, f"of '{name}' takes '{wanted}'{near}", name)


def _check_arrays(op: Definition, rule: Partials, arrays: Sequence[str]) -> None:
    """Raise unless the formulas are those of the array parameters."""
    for name in rule.formulas:
        if name not in arrays:
            near = did_you_mean(name, arrays)
            raise _wrong(
                op, f"names '{name}', which is not an array parameter{near}", name
            )
    for name in arrays:
        if name not in rule.formulas:
            raise _wrong(op, f"lacks '{name}'", name)


def _wrong(op: Definition, what: str, parameter: str) -> RegistrationError:
    names = [p.name for p in op.schema.parameters]
    return op.error(
        RegistrationError,
        f"partials {what}",
        do=f"give each array parameter a formula of g, {quoted(names)} and the result,"
        " or None for the derivative 0",
        parameter=parameter if parameter in names else "",
        kind="autograd",
    )
