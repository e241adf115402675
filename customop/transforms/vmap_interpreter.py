"""The interpreter of vmap: an operator's rule, its plan, or an exact loop over the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar
from weakref import ref

import numpy as np

from customop.arrays.array_methods import ARITHMETIC, COMPARISONS, SIGNS
from customop.arrays.fake import FakeArray, fake_like
from customop.arrays.kinds import CPU, at_home, device_of, is_array
from customop.arrays.nested import (
    aligned,
    children,
    describe,
    flat,
    like,
    map_beside,
    map_nested,
    map_outline,
    show,
)
from customop.arrays.numpy_functions import (
    CALLS,
    FUNCTIONS,
    call_numpy,
    find_alone,
    on_register,
)
from customop.arrays.refusals import refuse_setting
from customop.config import config
from customop.core.builtin_kinds import VMAP
from customop.core.codegen import generate
from customop.core.contract import VMAP_RULE, check_returns, check_shapes
from customop.core.derived_rules import Uneven, align, run_rows, stack_rows, warn_slow
from customop.core.dispatch import find_kernel
from customop.core.interpreter import Interpreter, current_mode, next_level
from customop.core.observe import open_modes
from customop.core.rule_kind import RuleKind
from customop.core.rule_makers import AxisRule, BatchInfo, constants_key, fixed
from customop.core.table import FastKernel, Plans, RuleTable
from customop.core.tracer import Tracer, connect_results
from customop.errors import ContractError, DataDependentError, VmapError, place
from customop.schema.tags import Tag
from customop.schema.types import ArrayType
from customop.shapes.sizes import number_classes
from customop.transforms.generators import Draws, random_error
from customop.transforms.plan_lines import (
    general_plan,
    inputs_of,
    plain_test,
    run_lines,
    run_names,
    taken,
    tracer_lines,
)

# ---- plans of vmap: what a call of one operator does to rows, as generated code ----


def batch_plan(
    op: RuleTable, plans: Plans, rule: Any, cls: type, finish: Callable[..., Any]
) -> Callable[[Any, Sequence[Any]], Any]:
    """The plan of a plain operator.

    Parameters
    ----------
    op : RuleTable
    plans : Plans
        What is kept until its table changes.
    rule : callable
        Its batching rule.
    cls : type
        The class of tracers.
    finish : callable
        ``finish(op, rule, interpreter, args, in_dims, values, pair)``: the rows, from
        what the rule has returned, with all checks.
    """
    slots, count = op.array_slots, len(op.schema.parameters)
    given = "".join(f"dim{i}, " if i in slots else "None, " for i in range(count))
    inputs = inputs_of(op)
    end = f"return finish(op, rule, self, args, ({given}), ({inputs}), "
    is_own = op.rows.get(VMAP) is not None
    moves = isinstance(rule, AxisRule) and _move_lines(op, inputs, end)
    is_elementwise = not is_own and Tag.pointwise in op.tags
    if is_elementwise:
        plans.is_elementwise = _has_ufunc(op) and _takes_numbers(op)
        if op.plans is not plans:
            plans.close()
    lines = [
        "def plan(self, args):",
        f"    {inputs}= args",
        *taken(op, "Row", "dim"),
        *(moves or []),
        *(_elementwise(op, end) if is_elementwise else []),
        f"    pair = rule(self.info, ({given}), {inputs})",
        "    if type(pair) is tuple and len(pair) == 2 and type(pair[1]) is int:",
        "        out, dim = pair",
        "    else: out = None",
        *_check_lines(end),
        *(
            ["    if key: learn(known, key, rule, dim0, v0, args, alone)"]
            if moves
            else []
        ),
        *tracer_lines(op, "Row", "dim", "dim"),
    ]
    scope = {
        "Row": cls,
        "align": align,
        "alone": plans.alone,
        "finish": finish,
        "is_array": is_array,
        "known": {},
        "learn": _learn,
        "numbers": number_classes,
        "new": object.__new__,
        "op": op,
        "ref": ref,
        "rule": rule,
        "wider": WIDER,
        **run_names(op),
    }
    plan: Callable[[Any, Sequence[Any]], Any] = generate(
        f"{op.qualname} vmap", "\n".join(lines), "plan", scope
    )
    return plan


def _check_lines(end: str) -> list[str]:
    """Lines that leave the plan unless `out` has the rows along `dim`."""
    return [
        "    if type(out) is not ndarray and not is_array(out):",
        f"        {end}pair)",
        "    shape = out.shape",
        "    if not len(shape) > dim >= 0 or shape[dim] != self.info.batch_size:",
        f"        {end}pair)",
    ]


# ---- operators of one array that have an axis rule ----

# Calls that a plan keeps, each for a shape and constants.
_MOST_KNOWN = 256


def _move_lines(op: RuleTable, inputs: str, end: str) -> list[str]:
    """Lines for a plain batch whose shape and constants were met before."""
    test, texts = plain_test(op), constants_key(op)
    if not test or texts is None:
        return []
    key = "".join(f"{text}, " for text in ["v0.shape", "dim0", *texts])
    return [
        "    key = None",
        f"    if {test}:",
        f"        key = ({key})",
        "        found = known.get(key)",
        "        if found is not None:",
        "            call, dim = found",
        "            out = call(v0)",
        "            if type(out) is not ndarray:",
        f"                {end}(out, dim))",
        *[f"        {line}" for line in tracer_lines(op, "Row", "dim", "dim")[:-1]],
    ]


def _learn(
    known: dict[Any, Any],
    key: Any,
    rule: AxisRule,
    dim: int,
    batch: Any,
    args: Sequence[Any],
    alone: dict[Any, tuple[Callable[..., Any], int]],
) -> None:
    """Keep what a call does with these constants, after it has been checked."""
    kernel = rule.op.fast.kernel
    if kernel is None:
        return
    moved = rule.move(batch.shape, dim, *args[1:])
    if moved is not None:
        constants, out_dim = moved
        if len(known) >= _MOST_KNOWN:
            known.clear()
            alone.clear()
        known[key] = found = fixed(kernel, constants), out_dim
        others = zip(rule.op.schema.parameters[1:], args[1:], strict=True)
        if rule.op.view_slot < 0 and all(p.default is v for p, v in others):
            alone[batch.shape, dim] = found


# ---- pointwise operators ----


def _elementwise(op: RuleTable, end: str) -> list[str]:
    """Lines for a pointwise operator whose rows lie as NumPy broadcasts them.

    They note the batch axis of the result as `dim`.
    """
    slots = op.array_slots
    if len(slots) > 2:
        return []
    done = tracer_lines(op, "Row", "dim", "dim")[:-1]
    run = run_lines(op)
    if len(slots) == 1:
        aligned = [f"    dim = dim{slots[0]}"]
    else:
        text = _OF_TWO
        for name, slot in zip("ab", slots, strict=True):
            text = text.replace(f"v_{name}", f"v{slot}")
            text = text.replace(f"dim_{name}", f"dim{slot}")
        aligned = ["    dim = None", *[f"    {line}" for line in text.splitlines()]]
    checks = ["    pair = out, dim", *_check_lines(end)]
    if _has_ufunc(op):
        checks = ["    if type(out) is not ndarray:", *[f"    {c}" for c in checks]]
    lines = [*run, *checks, *done]
    return [*aligned, "    if dim is not None:", *[f"    {line}" for line in lines]]


def _has_ufunc(op: RuleTable) -> bool:
    """Whether arrays with a batch axis give one with that axis, for sure."""
    return isinstance(find_kernel(op, CPU.name), np.ufunc)


def _takes_numbers(op: RuleTable) -> bool:
    """Whether a call is nothing but one array, or two of which either may be a number."""
    types = [p.type for p in op.schema.parameters]
    if not plain_test(op) or op.view_slot >= 0 or len(types) != len(op.array_slots):
        return False
    both = all(isinstance(t, ArrayType) and t.or_number for t in types)
    return len(types) == 1 or (len(types) == 2 and both)


# Batches of scalars beside those of rows with so many axes more.
WIDER: tuple[Any, ...] = tuple((slice(None), *(None,) * n) for n in range(9))

_OF_TWO = """\
if dim_b is None:
    if type(v_b) in numbers: dim = dim_a
    elif dim_a == 0 and (type(v_b) is ndarray or is_array(v_b)):
        if len(v_b.shape) < len(v_a.shape): dim = dim_a
elif dim_a is None:
    if type(v_a) in numbers: dim = dim_b
    elif dim_b == 0 and (type(v_a) is ndarray or is_array(v_a)):
        if len(v_a.shape) < len(v_b.shape): dim = dim_b
elif dim_a == dim_b:
    rank = len(v_a.shape) - len(v_b.shape)
    if rank == 0: dim = dim_a
    elif dim_a == 0:
        if rank > 0:
            if type(v_b) is ndarray and rank < 9: v_b = v_b[wider[rank]]
            else: v_b = align(v_b, 0, len(v_a.shape) - 1)
        elif type(v_a) is ndarray and rank > -9: v_a = v_a[wider[-rank]]
        else: v_a = align(v_a, 0, len(v_b.shape) - 1)
        dim = 0"""


# ---- methods of the rows of vmap that call a kernel at once ----
# What NumPy or Python calls of a row runs the function of an operator, which runs the
# plan of vmap, which calls the kernel. For ufuncs and reductions of small arrays these
# frames take as long as the kernel, so the methods here do without them. They ask each
# time whether the operator, its kernel and the transform still allow it, and leave
# everything else to the methods that every tracer has.


Method = Callable[[Any, Any], Any]

_MOST_AXES = len(WIDER)
_NUMBERS = frozenset((bool, int, float, complex))
_REDUCTIONS = ("sum", "mean", "prod", "max", "min", "all", "any")
_new = object.__new__
_ndarray = np.ndarray

# ---- operators of functions ----


class _Server:
    """The operator that runs for a NumPy function of arrays alone, if there is one.

    Attributes
    ----------
    plans : Plans
        Those of the operator, or closed ones: then `renew` looks for them.
    fast : FastKernel
        That of the operator.
    is_operator : bool
        Whether it is known to be one.
    """

    # An operator has a class of its own, which makes reading its attributes slow.
    __slots__ = ("_function", "fast", "is_operator", "plans")

    def __init__(self, function: Any) -> None:
        self._function = function
        self.forget()

    def forget(self) -> None:
        """Forget the operator: another function may be registered."""
        self.is_operator: bool = False
        self.fast: Any = FastKernel()  # whose `array` mypy takes for a class of objects
        self.plans: Plans = Plans()
        self.plans.close()

    def renew(self) -> None:
        """Find the operator and what is known of it now."""
        found: Any = find_alone(self._function)
        if not isinstance(found, RuleTable):
            self.plans = Plans()  # an open one: nobody looks again
            return
        self.fast, self.plans = found.fast, found.plans
        self.is_operator = True
        if find_alone(self._function) is not found:  # replaced meanwhile
            self.forget()


class _Servers(dict[Any, _Server]):
    """NumPy function -> what serves it; those that nobody has registered are not kept."""

    def __missing__(self, function: Any) -> _Server:
        return self.of(function) if function in FUNCTIONS else _unknown

    def of(self, function: Any) -> _Server:
        """Return the operator of a NumPy function, which may be registered later."""
        return self.setdefault(function, _Server(function))

    def forget(self, function: Any) -> None:
        """Forget the operator of a function."""
        if function in self:
            self[function].forget()


_unknown = _Server(None)
_unknown.plans = Plans()
_servers = _Servers()
on_register.append(_servers.forget)


# ---- ufuncs of a row and another value ----


def _beside(ufunc: np.ufunc, general: Method, *, is_second: bool) -> Method:
    """The method of a row for a ufunc of it and another value, which may come first."""
    server = _servers.of(ufunc)

    def method(self: Any, other: Any) -> Any:
        batch = self.interpreter
        x, dim, fast = self.below, self.dim, server.fast
        if (
            type(x) is fast.array
            and server.plans.is_elementwise
            and not open_modes
            and batch.runs_plans
        ):
            y = None
            if type(other) is type(self):
                if other.interpreter is batch and type(other.below) is _ndarray:
                    y = other.below
                    if other.dim != dim or x.ndim != y.ndim:
                        x, y, dim = _aligned(x, y, dim, other.dim)
            elif type(other) in _NUMBERS or (
                type(other) is _ndarray and dim == 0 and other.ndim < x.ndim
            ):
                y = other
            if y is not None:
                out = fast.kernel(y, x) if is_second else fast.kernel(x, y)
                if type(out) is _ndarray:
                    # As the lines of plans do.
                    tracer: Any = _new(type(self))
                    tracer.interpreter = batch
                    tracer.below = out
                    tracer.dim = dim
                    tracer.box_place = tracer.box_views = None
                    return tracer
        elif server.plans.is_closed:
            server.renew()
        return general(self, other)

    return method


def _aligned(x: Any, y: Any, x_dim: int, y_dim: int) -> tuple[Any, Any, int]:
    """Two batches whose rows NumPy broadcasts, and their axis; None for `y` if not so."""
    more = x.ndim - y.ndim
    if -_MOST_AXES < more < _MOST_AXES:
        if y.ndim == 1:  # a number for each row
            return x, y[WIDER[more - x_dim]], x_dim
        if x.ndim == 1:
            return x[WIDER[-more - y_dim]], y, y_dim
        if x_dim == y_dim == 0:
            if more > 0:
                return x, y[WIDER[more]], 0
            return x[WIDER[-more]], y, 0
    return x, None, x_dim


class _Ufuncs(dict[np.ufunc, Method]):
    """Ufunc -> the method of a row for calls of it with another value."""

    def __init__(self, protocol: Callable[..., Any], *, is_second: bool) -> None:
        super().__init__()
        self._protocol = protocol
        self._is_second = is_second

    def __missing__(self, ufunc: np.ufunc) -> Method:
        def general(row: Any, other: Any) -> Any:
            inputs = (other, row) if self._is_second else (row, other)
            return self._protocol(row, ufunc, "__call__", *inputs)

        if ufunc not in FUNCTIONS:
            return general
        method = _beside(ufunc, general, is_second=self._is_second)
        return self.setdefault(ufunc, method)


# ---- NumPy's protocols ----


def _ufunc_protocol(general: Callable[..., Any]) -> Callable[..., Any]:
    """The method that NumPy calls for ufuncs."""
    first = _Ufuncs(general, is_second=False)
    second = _Ufuncs(general, is_second=True)

    def array_ufunc(
        self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if kwargs or method != "__call__":
            return general(self, ufunc, method, *inputs, **kwargs)
        if len(inputs) == 2:
            x, y = inputs
            return first[ufunc](x, y) if x is self else second[ufunc](y, x)
        server, batch, value = _servers[ufunc], self.interpreter, self.below
        fast = server.fast
        if (
            type(value) is fast.array
            and len(inputs) == 1
            and server.plans.is_elementwise
            and not open_modes
            and batch.runs_plans
        ):
            out = fast.kernel(value)
            if type(out) is _ndarray:
                tracer: Any = _new(type(self))
                tracer.interpreter = batch
                tracer.below = out
                tracer.dim = self.dim
                tracer.box_place = tracer.box_views = None
                return tracer
        elif server.plans.is_closed:
            server.renew()
        return general(self, ufunc, method, *inputs)

    return array_ufunc


def _function_protocol(general: Callable[..., Any]) -> Callable[..., Any]:
    """The method that NumPy calls for its other functions."""

    def array_function(
        self: Any, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        if len(args) == len(classes) == 1 and args[0] is self:
            server = _servers[function]
            if kwargs:
                if server.plans.is_closed:
                    server.renew()
                if server.is_operator and "out" not in kwargs:
                    return CALLS[function](self, **kwargs)
                return general(self, function, classes, args, kwargs)
            batch, value, dim = self.interpreter, self.below, self.dim
            if (
                type(value) is server.fast.array
                and (found := server.plans.alone.get((value.shape, dim))) is not None
                and not open_modes
                and batch.runs_plans
            ):
                call, dim = found
                out = call(value)
                if type(out) is _ndarray:
                    tracer: Any = _new(type(self))
                    tracer.interpreter = batch
                    tracer.below = out
                    tracer.dim = dim
                    tracer.box_place = tracer.box_views = None
                    return tracer
            elif server.plans.is_closed:
                server.renew()
        return general(self, function, classes, args, kwargs)

    return array_function


# ---- the methods of a class ----


def add_row_methods(cls: Any) -> None:
    """Give the tracers of vmap their own methods for ufuncs and reductions."""
    for name, ufunc in ARITHMETIC.items():
        if ufunc.nout == 1 and ufunc.signature is None:
            _add_beside(cls, f"__{name}__", ufunc)
            _add_beside(cls, f"__r{name}__", ufunc, is_second=True)
    for name, (ufunc, _) in COMPARISONS.items():
        _add_beside(cls, f"__{name}__", ufunc)
    by_ufunc = _ufunc_protocol(cls.__array_ufunc__)
    by_function = _function_protocol(cls.__array_function__)
    for name, ufunc in SIGNS.items():
        setattr(cls, f"__{name}__", _sign(ufunc, by_ufunc))
    for name in _REDUCTIONS:
        setattr(cls, name, _reduction(getattr(cls, name), by_function))
    cls.__array_ufunc__ = by_ufunc
    cls.__array_function__ = by_function
    # A class with protocols of its own is foreign otherwise.
    at_home[cls] = at_home[cls.box_stale_class] = True


def _add_beside(
    cls: type[Tracer], name: str, ufunc: np.ufunc, *, is_second: bool = False
) -> None:
    setattr(cls, name, _beside(ufunc, getattr(cls, name), is_second=is_second))


def _sign(ufunc: np.ufunc, by_ufunc: Callable[..., Any]) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return by_ufunc(self, ufunc, "__call__", self)

    return method


def _reduction(
    general: Callable[..., Any], by_function: Callable[..., Any]
) -> Callable[..., Any]:
    function = getattr(np, general.__name__)

    @wraps(general)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return general(self, *args, **kwargs)
        return by_function(self, function, (type(self),), (self,), kwargs)

    return method


# ---- the interpreter of vmap: an operator's rule, or an exact loop over the rows ----


class BatchTracer(Tracer):
    """A row of a batch: the array without its batch axis."""

    __slots__ = ("dim",)
    is_concrete = False

    def __init__(self, interpreter: Interpreter, value: Any, dim: int) -> None:
        self.interpreter = interpreter
        self.below = value
        self.box_place: Any = None
        self.box_views: Any = None
        self.dim: int = dim

    @property
    def shape(self) -> Any:
        """Lengths of the axes of one row."""
        shape, dim = self.below.shape, self.dim
        return shape[:dim] + shape[dim + 1 :] if dim else shape[1:]

    @shape.setter
    def shape(self, value: Any) -> None:
        refuse_setting(self, "shape")

    def row_strides(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Strides of one row, from those of the batch."""
        return (*strides[: self.dim], *strides[self.dim + 1 :])

    def _refused(self, asked: str, instead: str) -> DataDependentError:
        size = self.below.shape[self.dim]
        return DataDependentError(
            f"{asked} {describe(self)}, a row of {size} of {self.interpreter.describe()}",
            self.interpreter.where(),
            "each row may have another value",
            do=f"use {instead}",
        )


add_row_methods(BatchTracer)

_new_tuple: Callable[..., Any] = tuple.__new__


class BatchInterpreter(Interpreter):
    """One running vmap."""

    kind: ClassVar[RuleKind] = VMAP
    tracer_class: ClassVar[type[Tracer]] = BatchTracer
    has_plans: ClassVar[bool] = True
    title: str = "vmap"

    def __init__(self, size: int, randomness: str, draws: Draws | None) -> None:
        # As `Interpreter.__init__`, without its frames: 150 ns less.
        self.level: int = next_level()
        self.alive = self.runs_plans = True
        mode = current_mode.get()
        if mode is not None:
            self.show_start(mode)
        # Half the time of a call of the class.
        self.info: BatchInfo = _new_tuple(BatchInfo, (size, randomness))
        self.draws = draws

    def dim_of(self, value: Any) -> int | None:
        """Batch axis of a value, or None where it is the same for all rows."""
        if isinstance(value, BatchTracer) and value.interpreter is self:
            return value.dim
        return None

    def constant(self, value: Any) -> BatchTracer:
        """A constant as a row: one for each, so that rows can differ later."""
        wide = call_numpy(np.broadcast_to, value, (self.info.batch_size, *value.shape))
        return BatchTracer(self, call_numpy(np.copy, wide), 0)

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator once for all rows."""
        try:
            plan = op.plans.by_tracer[BatchTracer]
        except KeyError:
            plan = _make_plan(op)
        return plan(self, args)

    def general(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run any operator once for all rows."""
        values = list(args)
        dims: list[Any] = [None] * len(values)
        for slot in op.array_slots:
            tracer = values[slot]
            if type(tracer) is BatchTracer and tracer.interpreter is self:
                values[slot] = tracer.below
                dims[slot] = tracer.dim
        for slot in op.nested_slots:
            dims[slot] = map_outline(values[slot], self.dim_of)
            values[slot] = map_nested(values[slot], self.lower)
        if op.schema.written:
            self._check_writes(op, values, dims)
        if op.sees_seed and self.info.randomness == "error":
            raise random_error(op, self)
        rule = op.find_rule(VMAP)
        if rule is None:
            return self.loop(op, values, dims)
        pair = self._pair(op, rule, values, dims)
        return self.finish(op, rule, args, dims, values, pair)

    def finish(
        self,
        op: RuleTable,
        rule: Any,
        args: Sequence[Any],
        dims: Sequence[Any],
        values: Sequence[Any],
        pair: Any,
    ) -> Any:
        """The rows of a call, from what its rule has returned."""
        if pair is NotImplemented:  # a rule derived from shapes that do not cover this
            return self.loop(op, values, dims)
        if type(pair) is not tuple or len(pair) != 2:
            raise _bad_rule(op, rule, f"returned {show(pair)} instead of a pair")
        rows = self._rows_of(op, rule, *pair)
        if op.schema.has_shapes and config.checks != "never":
            _prove_rows(op, rule, dims, args, rows)
        return rows

    def _rows_of(self, op: RuleTable, rule: Any, out: Any, out_dims: Any) -> Any:
        """The result of a rule as rows."""
        if type(out_dims) is int and op.schema.single_return and is_array(out):
            return self._batched(op, rule, out, out_dims)
        check_returns(op, rule, out, VMAP_RULE)
        return self._wrap_result(op, rule, out, out_dims)

    def _pair(
        self, op: RuleTable, rule: Any, values: Sequence[Any], dims: Sequence[Any]
    ) -> Any:
        if not op.schema.keyword_only:
            return rule(self.info, tuple(dims), *values)
        positional, keywords = op.schema.split(values)
        count = len(positional)
        in_dims = dims if any(map(_some, dims[count:])) else dims[:count]
        return rule(self.info, tuple(in_dims), *positional, **keywords)

    def _wrap_result(self, op: RuleTable, rule: Any, out: Any, dims: Any) -> Any:
        found = children(out)
        if found is not None:
            given = aligned(out, dims)
            if given is None:
                reason = f"returned out_dims={dims!r} for {len(found)} outputs"
                raise _bad_rule(op, rule, reason)
            pairs = zip(found, given, strict=True)
            return like(out, [self._wrap_result(op, rule, o, d) for o, d in pairs])
        if dims is None:
            return out
        if type(dims) is not int or not is_array(out):
            reason = f"returned out_dims={dims!r} for the output {show(out)}"
            raise _bad_rule(op, rule, reason)
        return self._batched(op, rule, out, dims)

    def _batched(self, op: RuleTable, rule: Any, out: Any, dim: int) -> BatchTracer:
        shape = out.shape
        rank = len(shape)
        if not -rank <= dim < rank:
            reason = f"returned out_dims={dim} for an output of shape {tuple(shape)}"
            raise _bad_rule(op, rule, reason)
        if dim < 0:
            dim += rank
        if shape[dim] != self.info.batch_size:
            reason = (
                f"returned an output of shape {tuple(shape)} with out_dims={dim}, but the"
                f" batch has {self.info.batch_size} rows"
            )
            raise _bad_rule(op, rule, reason)
        return BatchTracer(self, out, dim)

    def _check_writes(
        self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]
    ) -> None:
        """Raise where rows would be written into one array that they share."""
        for p, value, dim in zip(op.schema.parameters, values, dims, strict=True):
            pairs = zip(flat(value), flat(dim), strict=True)
            if p.is_written and any(d is None and is_array(v) for v, d in pairs):
                raise op.error(
                    VmapError,
                    f" writes its argument '{p.name}' under {self.describe()}, which is"
                    " one array for all rows",
                    self.where(),
                    do=f"batch '{p.name}' too, or use an operator that returns a new"
                    " array",
                    parameter=p.name,
                    kind="vmap",
                )

    # ---- the loop ----

    def loop(self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]) -> Any:
        """Call the operator row by row, and stack the results."""
        size = self.info.batch_size
        if size == 0:
            warn_slow(op)  # the next batch may have rows
            return self._empty(op, values, dims)
        rewind = self.draws.start(values) if op.sees_seed and self.draws else None
        pairs = list(zip(values, dims, strict=True))
        rows = run_rows(op, pairs, size, rewind)
        try:
            out, out_dims = stack_rows(rows)
        except Uneven as why:
            raise self._uneven(op, str(why)) from None
        return map_beside(out, out_dims, self._row_of)

    def _row_of(self, value: Any, dim: int | None) -> Any:
        return value if dim is None else BatchTracer(self, value, dim)

    def _uneven(self, op: RuleTable, what: str) -> VmapError:
        return op.error(
            VmapError,
            f"under {self.describe()} the rows return {what}, which cannot be stacked",
            self.where(),
            do="return arrays of one shape for all rows",
            kind="vmap",
        )

    def _empty(self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]) -> Any:
        """The result for no rows: its shapes come from the fake kernel."""
        device = [device_of(v) for value in values for v in flat(value) if is_array(v)]
        pairs = zip(values, dims, strict=True)
        fakes = [map_beside(value, dim, _fake_row) for value, dim in pairs]
        out = op.invoke(fakes)

        def none_of(fake: Any) -> Any:
            if not isinstance(fake, FakeArray):
                return fake
            shape = (0, *fake.shape)
            zeros = call_numpy(np.zeros, shape, fake.dtype, device=device[0])
            return BatchTracer(self, zeros, 0)

        return map_nested(out, none_of)


def _make_plan(op: RuleTable) -> Callable[[Any, Sequence[Any]], Any]:
    """Make the plan of an operator, which is kept until its table changes."""
    plans = op.plans  # a changed table has new plans: a plan of the old one is dropped
    rule = op.find_rule(VMAP)
    if op.is_plain and rule is not None and not (op.sees_seed or op.schema.has_shapes):
        plan = batch_plan(op, plans, rule, BatchTracer, _finish)
    else:
        plan = general_plan(op)
    plans.by_tracer[BatchTracer] = plan
    return plan


def _finish(
    op: RuleTable,
    rule: Any,
    interpreter: BatchInterpreter,
    args: Sequence[Any],
    dims: tuple[Any, ...],
    values: tuple[Any, ...],
    pair: Any,
) -> Any:
    """Finish the call of a generated plan whose result is not a plain array."""
    rows = interpreter.finish(op, rule, args, dims, values, pair)
    if op.view_slot >= 0:
        connect_results(op, args, args, rows)
    return rows


def _bad_rule(op: RuleTable, rule: Any, reason: str) -> ContractError:
    return op.error(
        ContractError,
        f"the vmap rule {reason}",
        f"rule at {place(rule)}",
        do="return (output, out_dims), with an axis or None for each output",
        kind="vmap",
    )


def _prove_rows(
    op: RuleTable, rule: Any, dims: Sequence[Any], args: Sequence[Any], out: Any
) -> None:
    """Check the shapes of the rows of a rule, once for each `in_dims`."""
    proven = op.plans.proven_rows
    where = tuple([d if type(d) is int else None for d in dims])
    if config.checks == "first" and where in proven:
        return
    check_shapes(op, rule, VMAP_RULE, args, out)
    proven.add(where)


def _some(dim: Any) -> bool:
    return any(d is not None for d in flat(dim))


def _fake_row(value: Any, dim: int | None) -> Any:
    if not is_array(value):
        return value
    shape = tuple(value.shape)
    return fake_like(
        value, shape=shape if dim is None else shape[:dim] + shape[dim + 1 :]
    )
