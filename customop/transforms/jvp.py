"""Forward mode: jvp, by the rules of operators or by transposing backward formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeVar, TypeVarTuple, overload

import numpy as np

from customop.arrays.array import in_byte_order, is_inexact
from customop.arrays.kinds import is_array
from customop.arrays.nested import (
    Structure,
    abbreviated,
    aligned,
    children,
    flat,
    flatten,
    like,
    map_beside,
    map_leaves,
    map_nested,
    map_outline,
    show,
    unflatten,
)
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.stand_ins import entered
from customop.core.builtin_kinds import AUTOGRAD, JVP
from customop.core.contract import JVP_RULE, check_returns
from customop.core.dispatch import SCALARS
from customop.core.interpreter import Interpreter
from customop.core.rule_kind import RuleKind
from customop.core.rule_makers import Pushforward, fitted
from customop.core.table import RuleTable
from customop.core.tracer import Tracer, frozen
from customop.errors import ContractError, GradientError, check_function, place
from customop.later import later
from customop.transforms.autograd.grad import pull_back
from customop.transforms.autograd.reverse import GradInterpreter
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tape import GradTracer, hidden, inexact
from customop.transforms.plan_writer import (
    Plan,
    PlanWriter,
    general_plan,
    unpacked,
    value_text,
)
from customop.transforms.values import (
    Carrier,
    Place,
    as_input,
    as_scalar,
    as_tangent,
    carries,
    check_nested_alike,
    check_numbers,
    check_outputs,
    inputs_of,
    or_zeros,
    position_in,
    split_aux,
)

make_fx: ModuleType = later(import_module, "customop.transforms.trace.make_fx")


R = TypeVar("R")
Aux = TypeVar("Aux")
Ts = TypeVarTuple("Ts")


@overload
def jvp(
    fn: Callable[[*Ts], R],
    primals: tuple[*Ts],
    tangents: tuple[*Ts],
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...


@overload
def jvp(
    fn: Callable[[*Ts], tuple[R, Aux]],
    primals: tuple[*Ts],
    tangents: tuple[*Ts],
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...


@overload
def jvp(
    fn: Callable[..., R],
    primals: list[Any],
    tangents: list[Any],
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...


@overload
def jvp(
    fn: Callable[..., tuple[R, Aux]],
    primals: list[Any],
    tangents: list[Any],
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...


def jvp(
    fn: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> Any:
    """Return the value of a function and its derivative in a direction.

    Parameters
    ----------
    fn : callable
        Takes `primals`; returns an array or a pytree of arrays.
    primals : tuple of pytree of array
        The point of the derivative; arrays of floats.
    tangents : tuple of pytree of array
        The direction, with the structure, shapes and dtypes of `primals`.
    has_aux : bool
        Whether `fn` returns ``(output, aux)`` with something not to differentiate.

    Returns
    -------
    output : pytree of array
    tangent : pytree of array
        Derivative of the output; zeros where it depends on no primal.
    aux : object
        Only with `has_aux`.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        If a primal is not an array of floats, or tangents do not fit the primals.
    MissingRuleError
        If an operator on the way has neither a jvp rule nor a backward formula.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.jvp(np.sin, (np.zeros(2),), (np.array([1.0, 3.0]),))
    (array([0., 0.]), array([1., 3.]))

    Several arguments, and something that is not differentiated:

    >>> co.jvp(lambda x, k: (k * x, "aux"), (3.0, 2.0), (1.0, 10.0), has_aux=True)
    (np.float64(6.0), np.float64(32.0), 'aux')

    Several tangents at once: `vmap` runs the function once, and each rule for all rows
    of tangents.

    >>> x, directions = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> along = lambda t: co.jvp(lambda x: x[0] * x, (x,), (t,))
    >>> co.vmap(along, out_dims=(None, 0))(directions)
    (array([1., 2.]), array([[2., 2.],
           [0., 1.],
           [2., 3.]]))
    """
    check_function("jvp", fn)
    check_numbers(fn, primals)
    return push_forward("jvp", fn, primals, tangents, has_aux)


@carries
def push_forward(
    title: str,
    fn: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool,
    of_users: Callable[..., Any] | None = None,
) -> Any:
    """Do what `jvp` does; messages name `title`, and arguments of the function of users."""
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise GradientError(
            f"{title}: primals and tangents must be tuples, got {show(primals)} and"
            f" {show(tangents)}",
            do=f"write {title}(f, (x,), (dx,))",
        )
    leaves, structure = flatten(tuple(primals))
    directions, other = flatten(tuple(tangents))
    if of_users is None:
        of_users, names, place = fn, _COUNTED, position_in
    else:
        names = f"{title}: argument", f"{title}: the tangent of"
        place = partial(_argument_in, of_users)
    if structure != other:
        check_nested_alike(names[1], tuple(tangents), tuple(primals), place)
    interpreter = JvpInterpreter()
    interpreter.fn = of_users
    interpreter.inputs = inputs_of(of_users, primals)
    tracers = [
        _dual(interpreter, x, t, names, i, structure, place)
        for i, (x, t) in enumerate(zip(leaves, directions, strict=True))
    ]
    with interpreter:
        result = entered(fn)(*unflatten(structure, tracers))
    out, aux = split_aux(result, has_aux, title)
    check_outputs(*flatten(out), title)
    value = map_leaves(interpreter.take_out, out)
    tangent = map_leaves(lambda leaf: _tangent_of(interpreter, leaf), out)
    if has_aux:
        return value, tangent, map_leaves(interpreter.take_out, aux)
    return value, tangent


# How messages of `jvp` call a primal and a tangent, before their numbers.
_COUNTED = "jvp: primal", "jvp: tangent"


def _argument_in(fn: Callable[..., Any], structure: Structure, number: int) -> str:
    """Return the place of a leaf, by the name of the argument: `` x['w']``."""
    return f" {make_fx.argument_path(fn, structure, number).text}"


def _dual(
    interpreter: JvpInterpreter,
    value: Any,
    tangent: Any,
    names: tuple[str, str],
    index: int,
    structure: Structure,
    place: Place,
) -> JvpTracer:
    primal = as_input(value, names[0], index, structure, place)
    direction = as_tangent(tangent, primal, names[1], index, structure, place)
    tracer = JvpTracer(interpreter, frozen(primal), frozen(direction))
    tracer.box_origin = value
    return tracer


def _tangent_of(interpreter: JvpInterpreter, leaf: Any) -> Any:
    if isinstance(leaf, JvpTracer) and leaf.interpreter is interpreter:
        leaf.below  # noqa: B018  # a view that is stale is taken again
        if leaf.tangent is not None:
            return as_scalar(frozen(leaf.tangent))
        leaf = leaf.below
    return or_zeros(None, leaf if is_array(leaf) else np.asarray(leaf))


# ---- the interpreter of forward mode ----


class JvpTracer(Tracer):
    """A value and its tangent, which is None for a constant."""

    __slots__ = ("tangent",)

    def __init__(self, interpreter: Interpreter, value: Any, tangent: Any) -> None:
        self.interpreter = interpreter
        self.below = value
        self.box_place: Any = None
        self.box_views: Any = None
        self.tangent: Any = tangent


class JvpInterpreter(Interpreter):
    """One running forward-mode transform."""

    kind: ClassVar[RuleKind] = JVP
    tracer_class: ClassVar[type[Tracer]] = JvpTracer
    has_plans: ClassVar[bool] = True
    title: str = "jvp"

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator below, and compute the tangent of its result."""
        try:
            plan = op.plans.by_tracer[JvpTracer]
        except KeyError:
            plan = _make_plan(op)
        return plan(self, args)

    def general(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run any operator, and compute the tangent of its result."""
        primals, tangents = unpacked(self, op, args, self.tangent)
        if op.schema.written:
            raise self._no_write(op, args)
        if all(t is None for t in flat(tangents)):  # only constants
            return map_nested(op.invoke(primals), self.constant)
        rule = op.find_rule(JVP)
        if rule is None:
            out, tangent = _transposed(self, op, primals, tangents)
        else:
            out, tangent = _by_rule(self, op, rule, primals, tangents)
        return self.pair(op, rule, out, tangent)

    def constant(self, value: Any) -> Any:
        """Return a constant as a tracer if it has a dtype of floats, else as it is."""
        has_tangent = is_array(value) and is_inexact(value.dtype)
        return JvpTracer(self, value, None) if has_tangent else value

    def tangent(self, value: Any) -> Any:
        """Return the tangent of one of this interpreter's tracers, None for other values."""
        if isinstance(value, JvpTracer) and value.interpreter is self:
            return value.tangent
        return None

    def pair(self, op: RuleTable, rule: Any, out: Any, tangent: Any) -> Any:
        """Return a result with its tangent as tracers; raise unless they fit."""
        found = children(out)
        if found is not None:
            if tangent is None:
                return out
            given = aligned(out, tangent)
            if given is None:
                raise _misfit(op, rule, f"{show(tangent)} for {len(found)} outputs")
            pairs = zip(found, given, strict=True)
            return like(out, [self.pair(op, rule, o, t) for o, t in pairs])
        if not is_array(out):
            return out
        if inexact[out.dtype] is None:
            raise hidden(op, out)
        if tangent is None or not inexact[out.dtype]:
            return out
        if not is_array(tangent) or tuple(tangent.shape) != tuple(out.shape):
            seen = abbreviated(tangent) if is_array(tangent) else show(tangent)
            raise _misfit(op, rule, f"{seen} for the output {abbreviated(out)}")
        tangent = in_byte_order(tangent, out.dtype)
        if tangent.dtype != out.dtype:
            raise _misfit(op, rule, f"{abbreviated(tangent)} for {abbreviated(out)}")
        return JvpTracer(self, out, tangent)

    def finish(self, op: RuleTable, rule: Any, args: Sequence[Any], pair: Any) -> Any:
        """Return what a rule has returned as tracers, after all checks."""
        out, tangent = _checked_pair(op, rule, pair)
        if tangent is None and all(t is None for t in map(self.tangent, args)):
            return map_nested(out, self.constant)
        return self.pair(op, rule, out, tangent)

    def _no_write(self, op: RuleTable, args: Sequence[Any]) -> GradientError:
        name = op.schema.written[0]
        return op.error(
            GradientError,
            f" writes its argument '{name}' under {self.describe()}: a write has no"
            " tangent",
            self.where(),
            do="use an operator that returns a new array",
            parameter=name,
            kind="jvp",
        )


# ---- rules: an operator's own, or the transpose of its backward formula ----


def _by_rule(
    interpreter: Interpreter,
    op: RuleTable,
    rule: Callable[..., Any],
    primals: Any,
    tangents: Any,
) -> tuple[Any, Any]:
    positional, keywords = op.schema.split(primals)
    moves, by_name = op.schema.split(tangents)
    moving = [
        name
        for name, value in by_name.items()
        if any(t is not None for t in flat(value))
    ]
    if moving and op.find_rule(AUTOGRAD) is None:
        raise op.missing_rule(
            JVP,
            f"that takes a tangent of the keyword-only argument '{moving[0]}', and no"
            " backward formula to transpose",
        )
    if moving:
        return _transposed(interpreter, op, primals, tangents)
    pair = rule(tuple(positional), tuple(moves), **keywords)
    return _checked_pair(op, rule, pair)


def _checked_pair(op: RuleTable, rule: Any, pair: Any) -> tuple[Any, Any]:
    """Return the result and the tangent of a rule; raise if it returned something else."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise op.error(
            ContractError,
            f"the jvp rule returned {show(pair)}",
            f"rule at {place(rule)}",
            do="return (output, tangent)",
            kind="jvp",
        )
    if not op.schema.single_return or not is_array(pair[0]):
        check_returns(op, rule, pair[0], JVP_RULE)
    return pair


def _misfit(op: RuleTable, rule: Any, what: str) -> GradientError:
    return op.error(
        GradientError,
        f"the jvp rule returned the tangent {what}",
        f"rule at {place(rule)}" if rule is not None else "rule derived from backward",
        do="return (output, tangent) of the same structure, shape and dtype; None for a"
        " zero tangent",
        kind="jvp",
    )


def _transposed(
    interpreter: Interpreter,
    op: RuleTable,
    primals: Sequence[Any],
    tangents: Sequence[Any],
) -> tuple[Any, Any]:
    """Return the output and its tangent by the backward formula alone.

    The pullback is linear in its cotangent, so the pullback of the pullback is the
    pushforward, wherever it is taken. Source: Townsend, "A new trick for calculating
    Jacobian vector products", 2017.
    """
    if op.find_rule(AUTOGRAD) is None:
        raise op.missing_rule(
            JVP,
            f"met under {interpreter.describe()}, with no backward formula to transpose",
        )
    grads = GradInterpreter()
    starts: list[Any] = []
    moving = [map_outline(t, lambda v: v is not None) for t in tangents]
    pairs = zip(primals, moving, strict=True)
    tracked = [_track(grads, p, m, starts) for p, m in pairs]
    with grads:
        out = op.invoke(tracked)
    ends = [leaf for leaf in flat(out) if _is_own(leaf, grads)]
    lowered = map_nested(out, grads.lower)
    if not ends:
        return lowered, None
    given = [t for value in tangents for t in flat(value) if t is not None]

    def pull(*cotangents: Any) -> tuple[Any, ...]:
        seeds = [(e.node, g) for e, g in zip(ends, cotangents, strict=True)]
        found = sweep(seeds, retain=True)
        pairs = zip(starts, given, strict=True)
        return tuple(
            found[s] if s in found else call_numpy(np.zeros_like, t) for s, t in pairs
        )

    zeros = [call_numpy(np.zeros_like, e.below) for e in ends]
    with Carrier() as carrier:
        carried = carrier.carry(tuple(zeros))
        _, push, _ = pull_back(GradInterpreter(), pull, carried)
        found = iter(carrier.uncarry(push(carrier.carry(tuple(given)))))
    return lowered, map_outline(
        out, lambda leaf: next(found) if _is_own(leaf, grads) else None
    )


def _is_own(leaf: Any, interpreter: Interpreter) -> bool:
    return isinstance(leaf, GradTracer) and leaf.interpreter is interpreter


def _track(grads: GradInterpreter, value: Any, moving: Any, starts: list[Any]) -> Any:
    def track(leaf: Any, moves: Any) -> Any:
        if moves is not True:
            return leaf
        tracer = grads.variable(leaf)
        starts.append(tracer.node)
        return tracer

    # False for an argument without arrays, which may be a list of numbers.
    return value if moving is False else map_beside(value, moving, track)


# ---- plans of operators with a rule, as generated code ----


def _make_plan(op: RuleTable) -> Plan:
    """Make the plan of an operator, which is kept until its table changes."""
    plans = op.plans  # a changed table has new plans: a plan of the old one is dropped
    rule = op.find_rule(JVP)
    if (op.is_plain or op.list_slot >= 0) and rule is not None:
        plan = _rule_plan(op, rule)
    else:
        plan = general_plan(op)
    plans.by_tracer[JvpTracer] = plan
    return plan


def _rule_plan(op: RuleTable, rule: Any) -> Plan:
    """Return the plan of a plain operator, or of one whose arrays are those of a list."""
    writer = PlanWriter(op, JVP, JvpTracer, _NAMES | {"rule": rule})
    values = writer.values
    still = (
        " and ".join([f"tangent{slot} is None" for slot in op.array_slots]) or "True"
    )
    if op.list_slot >= 0:
        still = f"none.issuperset(map(type, tangent{op.list_slot}))"
    if isinstance(rule, Pushforward):
        lines = _sum_lines(writer, rule)
    else:
        lines = [
            f"pair = rule(({values}), ({writer.owns}))",
            "if type(pair) is not tuple or len(pair) != 2:",
            f"    {_LEAVE.format('pair')}",
            "out, total = pair",
        ]
    return writer.make(
        [
            f"if {still}:",
            f"    {_LEAVE.format(f'(run({values}), None)')}",
            *lines,
            # A result without derivatives: 2 us less than by the errors of None.
            "if total is None and type(out) in plain and not inexact[out.dtype]:",
            "    if inexact[out.dtype] is False: return out",
            "try:",
            "    dtype = out.dtype",
            "    fits = (",
            "        (total.shape == out.shape) is True",
            "        and total.dtype == dtype and inexact[dtype]",
            "    )",
            "except AttributeError:",
            "    fits = False",
            "if not fits:",
            f"    {_LEAVE.format('(out, total)')}",
            *writer.wrap("total"),
        ]
    )


def _sum_lines(writer: PlanWriter, rule: Pushforward) -> list[str]:
    """Return lines that sum the parts of the tangent, one for each argument."""
    lines = [*writer.run(), "total = None"]
    for slot, row in rule.rows.items():
        writer.names[f"f{slot}"] = row.formula
        given = ", ".join([f"tangent{slot}", *map(value_text, row.needs)])
        lines += [
            f"if tangent{slot} is not None:",
            f"    part = f{slot}({given})",
            "    total = part if total is None else total + part",
        ]
    return [
        *lines,
        "if total is not None and (",
        "    (total.shape == out.shape) is not True or total.dtype != out.dtype",
        "): total = fitted(total, out)",
    ]


_NAMES = {
    "fitted": fitted,
    "inexact": inexact,
    "none": frozenset((type(None),)),
    # Results of these classes that have no derivative are returned as they are.
    "plain": frozenset((np.ndarray, *SCALARS)),
}


_LEAVE = "return connected(op, args, self.finish(op, rule, args, {}))"
