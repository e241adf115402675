"""Makers of rules: partial derivatives, prepared kernels, and rules along an axis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from customop.arrays.array import is_real_float
from customop.arrays.numpy_functions import call_numpy
from customop.core.builtin_kinds import GradCall, GradRule, check_has_gradient
from customop.core.rule_kind import Definition
from customop.core.table import RuleTable
from customop.errors import RegistrationError, caller_place, did_you_mean, place, quoted
from customop.schema.agreement import check_parameters
from customop.schema.schema import Schema
from customop.schema.types import Base, ListOf, Maybe, SchemaType
from customop.shapes.sizes import same_shape

# ---- partial derivatives ----
# Rules of reverse and forward mode with a formula per argument.


# The number of the result of the call, where parameters have theirs.
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
    has_tangents: ClassVar[bool] = True

    def __init__(self, formulas: Mapping[str, Any], result: str) -> None:
        self.formulas: dict[str, Any] = dict(formulas)
        self.result: str = result
        self.made_at: str = caller_place()

    def __call__(self, ctx: Any, *grads: Any) -> Any:
        """Call `backward`, since a rule is registered like a function."""
        return self.backward(ctx, *grads)

    def of(self, schema: Schema) -> dict[int, Partial]:
        """Return the formulas by the number of their parameter, without those that are None."""
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
        """True if generated code for each set of tracked arguments is worth it."""
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
        """Return the gradients of the tracked arguments, by name."""
        saved = dict(zip(ctx.node_needs, ctx.saved_arrays, strict=True))
        names = [p.name for p in ctx.node_op.schema.parameters]
        found = dict.fromkeys(self.formulas)
        for slot, (formula, needs) in ctx.node_partials:
            found[names[slot]] = formula(g, *[saved[need] for need in needs])
        return found

    def pushforward(self, op: RuleTable) -> Pushforward:
        """Return the rule of forward mode with the same formulas."""
        return Pushforward(op, self)

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
        """Return the result, and its tangent or None."""
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
    """Convert a tangent to the shape and dtype of the result."""
    if not same_shape(t.shape, out.shape):
        t = call_numpy(np.broadcast_to, t, tuple(out.shape))
    return in_dtype(t, out.dtype)


def in_dtype(g: Any, dtype: Any) -> Any:
    """Convert a gradient or tangent to another dtype; a real dtype gets its real part."""
    if type(g) is np.ndarray and g.dtype.kind == "f":
        return g if g.dtype == dtype else g.astype(dtype)
    if is_real_float(dtype) and not is_real_float(g.dtype):
        g = call_numpy(np.real, g)
    return g if g.dtype == dtype else call_numpy(np.astype, g, dtype)


def _taken_apart(given: Any) -> tuple[Callable[..., Any], Sequence[str]]:
    """Return a formula, and the names of its values."""
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


# ---- prepared ----
# Kernels with a second form for calls whose lists and numbers are known in advance.


KernelT = TypeVar("KernelT", bound=Callable[..., Any])
# Takes the values of all parameters after the arrays.
Prepare = Callable[..., Callable[..., Any]]

_prepares: WeakKeyDictionary[Any, Prepare] = WeakKeyDictionary()


def prepared(kernel: KernelT, prepare: Prepare, /) -> KernelT:
    """Give a kernel a form for many calls with the same numbers and lists.

    Captured graphs and `vmap` know these values before a call. They use the form where
    the kernel is registered for NumPy's arrays, and the arrays come before all other
    parameters.

    Parameters
    ----------
    kernel : function
        The kernel, to be registered as it is.
    prepare : callable
        Takes the values of all parameters but the arrays. Returns a function of the
        arrays that does what the kernel does with these values.

    Returns
    -------
    function
        The kernel.

    Raises
    ------
    RegistrationError
        If one of them is not a function.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from functools import partial
    >>> def power(x: np.ndarray, exponent: int) -> np.ndarray:
    ...     return x**exponent
    >>> def prepare(exponent: int):
    ...     return np.square if exponent == 2 else lambda x: x**exponent
    >>> op = co.custom_op("doc::power", co.prepared(power, prepare), mutates_args=())
    >>> graph = co.make_fx(lambda x: op(x, 2))(np.ones(2))
    >>> graph(np.array([2.0, 3.0]))  # calls np.square
    array([4., 9.])
    """
    if type(kernel) is not FunctionType or not callable(prepare):
        raise RegistrationError(
            "prepared takes a function for the kernel, and one that makes functions",
            do="write prepared(kernel, lambda axis: lambda x: ...)",
        )
    _prepares[kernel] = prepare
    return kernel


def find_prepare(kernel: Any) -> Prepare | None:
    """Return the function that makes the second form of a kernel, or None."""
    return _prepares.get(kernel) if type(kernel) is FunctionType else None


def fixed(kernel: Callable[..., Any], constants: Sequence[Any]) -> Callable[..., Any]:
    """Make a function of the arrays alone, which come first, with the other values fixed."""
    own = [again(value) for value in constants]  # the caller may change its lists
    prepare = find_prepare(kernel)
    if prepare is not None:
        return prepare(*own)
    if list not in map(type, own):
        return lambda *arrays: kernel(*arrays, *own)
    return lambda *arrays: kernel(*arrays, *map(again, own))  # so may the kernel


def again(value: Any) -> Any:
    """Copy the lists of a constant."""
    if type(value) is not list:
        return value
    return [again(item) if type(item) is list else item for item in value]


def has_arrays_first(op: RuleTable) -> bool:
    """Return whether arrays come first among the parameters, and none is keyword-only."""
    count = len(op.array_slots)
    is_first = op.array_slots == (*range(count),)
    return bool(count and is_first and not (op.nested_slots or op.schema.keyword_only))


def constants_key(op: RuleTable) -> list[str] | None:
    """Write hashable values of the other parameters, which are called ``v1`` and so on.

    None where a parameter may have values that are equal but not the same, or none that
    can be hashed.
    """
    first = len(op.array_slots)
    texts = []
    for slot, parameter in enumerate(op.schema.parameters[first:], first):
        text = _key_text(f"v{slot}", parameter.type)
        if text is None:
            return None
        texts.append(text)
    return texts


def _key_text(name: str, declared: SchemaType) -> str | None:
    if isinstance(declared, Maybe):
        text = _key_text(name, declared.item)
        return None if text is None else f"{name} if {name} is None else {text}"
    if isinstance(declared, ListOf):
        item = declared.item
        if isinstance(item, ListOf) and _is_exact(item.item):
            return f"tuple(map(tuple, {name}))"
        return f"tuple({name})" if _is_exact(item) else None
    return name if _is_exact(declared) else None


def _is_exact(declared: SchemaType) -> bool:
    """Return whether values of a type that compare equal are the same."""
    item = declared.item if isinstance(declared, Maybe) else declared
    return isinstance(item, Base) and item.name in ("int", "bool", "str")


# ---- batching rules of operators of one array ----
# Other axes or lengths on the whole batch.


# move(shape, dim, *constants): the constants for the batch, and the axis of the rows in
# the result; None if the rows must come first.
Move = Callable[..., tuple[Sequence[Any], int] | None]


class AxisRule:
    """The batching rule of an operator of one array; see `axis_rule`."""

    __slots__ = ("__signature__", "__wrapped__", "move", "op")

    def __init__(self, op: RuleTable, move: Move) -> None:
        self.op: RuleTable = op
        self.move: Move = move
        # Messages name the place of the function.
        self.__wrapped__: Any = move
        self.__signature__: inspect.Signature = _SIGNATURE

    def __call__(self, info: Any, in_dims: Any, x: Any, /, *constants: Any) -> Any:
        """Run the operator on the whole batch."""
        found = self.move(x.shape, in_dims[0], *constants)
        if found is None:
            x = call_numpy(np.moveaxis, x, in_dims[0], 0)
            found = self.move(x.shape, 0, *constants)
        assert found is not None, "an axis rule wants the rows first, where they are"
        moved, dim = found
        return self.op.run(x, *moved), dim


_SIGNATURE = inspect.signature(lambda info, in_dims, x, /, *constants: None)


def axis_rule(op: RuleTable, move: Move, /) -> AxisRule:
    """Make a batching rule that runs the same operator with other axes or lengths.

    `vmap` asks it once for each shape and each set of constants, and then calls the
    kernel. So this is the fastest rule for an operator of one array.

    Parameters
    ----------
    op : Operator
        Its first parameter is its only array.
    move : callable
        ``move(shape, dim, *constants)``: the shape of the batch, the axis of the rows in
        it, and the values of all other parameters. Returns a sequence of these values for
        the batch, and the axis of the rows in the result. Where it returns None, the rows
        are put first and it is asked again, with `dim` 0. It is a pure function.

    Returns
    -------
    AxisRule
        For `register_vmap`.

    Raises
    ------
    RegistrationError
        If the operator has other arrays, or parameters by name only, or `move` does not
        take these parameters.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::flip", mutates_args=())
    ... def flip(x: np.ndarray, axis: int) -> np.ndarray:
    ...     return np.flip(x, axis).copy()
    >>> def move(shape, dim, axis):
    ...     axis %= len(shape) - 1
    ...     return [axis + (axis >= dim)], dim
    >>> _ = flip.register_vmap(co.axis_rule(flip, move))
    >>> co.vmap(lambda row: flip(row, 0))(np.arange(4.0).reshape(2, 2))
    array([[1., 0.],
           [3., 2.]])
    """
    if not callable(move) or op.array_slots != (0,) or not has_arrays_first(op):
        raise RegistrationError(
            f"{op.qualname}: axis_rule is for operators whose only array comes first",
            op.schema.show(op.qualname),
            do="write a rule of info, in_dims and the inputs for register_vmap",
        )
    names = ["shape", "dim", *[p.name for p in op.schema.parameters[1:]]]
    check_parameters(
        f"{op.qualname}: the function of axis_rule",
        move,
        names,
        [],
        free=2,
        do=lambda: f"write def move({', '.join(names)}): ...",
    )
    return AxisRule(op, move)
