"""The interpreter of vmap: it runs the rules of operators, or an exact loop over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, ClassVar
from weakref import ref

import numpy as np

from customop.arrays.array import strides_of
from customop.arrays.array_methods import ARITHMETIC, COMPARISONS, SIGNS
from customop.arrays.fake import FakeArray, fake_like
from customop.arrays.kinds import CPU, at_home, device_of, is_array, is_traced
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
from customop.core.batch_rows import (
    Uneven,
    align,
    outermost,
    run_rows,
    stack_rows,
    warn_slow,
)
from customop.core.builtin_kinds import VMAP
from customop.core.codegen import NUMBERS
from customop.core.contract import VMAP_RULE, check_returns, check_shapes
from customop.core.dispatch import find_kernel
from customop.core.interpreter import (
    Interpreter,
    Mode,
    current_mode,
    next_level,
    run_under,
)
from customop.core.observe import open_modes
from customop.core.rule_kind import RuleKind
from customop.core.rule_makers import AxisRule, constants_key, fixed
from customop.core.rule_types import BatchInfo
from customop.core.table import FastKernel, Plans, RuleTable
from customop.core.tracer import Pinned, Tracer, strides_of_box, strides_sources
from customop.errors import ContractError, DataDependentError, VmapError, place
from customop.schema.tags import Tag
from customop.schema.types import ArrayType
from customop.shapes.sizes import number_classes
from customop.transforms.generators import (
    Draws,
    DrawWatch,
    plain_generator,
    random_error,
)
from customop.transforms.plan_writer import (
    Plan,
    PlanWriter,
    general_plan,
    inside,
    unpacked,
)


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
        """The lengths of the axes of one row."""
        shape, dim = self.below.shape, self.dim
        return shape[:dim] + shape[dim + 1 :] if dim else shape[1:]

    @shape.setter
    def shape(self, value: Any) -> None:
        refuse_setting(self, "shape")

    def row_strides(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides of one row, from those of the batch."""
        return (*strides[: self.dim], *strides[self.dim + 1 :])

    def _refused(self, asked: str, do: str) -> DataDependentError:
        size = self.below.shape[self.dim]
        return DataDependentError(
            f"{asked} {describe(self)}, a row of {size} of {self.interpreter.describe()}",
            self.interpreter.where(),
            "each row may have another value",
            do=do,
        )


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

    # Whether inputs are copied where the batch axis is not the slowest in memory.
    turns = True
    # These copies, with the inputs.
    turned: Sequence[tuple[Any, Any]] = ()

    def turn(self, value: Any, dim: int) -> Any:
        """Return an input with its batch axis as the slowest in memory."""
        found = outermost(value, dim)
        if found is not value:
            self.turned = [*self.turned, (found, value)]
        return found

    def dim_of(self, value: Any) -> int | None:
        """Return the batch axis of a value, or None if it is the same for all rows."""
        if isinstance(value, BatchTracer) and value.interpreter is self:
            return value.dim
        return None

    def constant(self, value: Any) -> BatchTracer:
        """Repeat a constant for each row, so that rows can differ later."""
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
        values, dims = unpacked(self, op, args, self.dim_of)
        if op.schema.written:
            self._check_writes(op, values, dims)
            out = self._called(op, args, values, dims)
            for copy, value in self.turned:
                value[...] = copy
            return out
        return self._called(op, args, values, dims)

    def _called(
        self,
        op: RuleTable,
        args: Sequence[Any],
        values: Sequence[Any],
        dims: Sequence[Any],
    ) -> Any:
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
        """Return the rows of a call, from what its rule has returned."""
        if pair is NotImplemented:  # a rule derived from shapes that do not cover this
            return self.loop(op, values, dims)
        if type(pair) is not tuple or len(pair) != 2:
            raise _bad_rule(op, rule, f"returned {show(pair)} instead of a pair")
        rows = self._rows_of(op, rule, *pair)
        if op.schema.has_shapes and config.checks != "never":
            _prove_rows(op, rule, dims, args, rows)
        return rows

    def _rows_of(self, op: RuleTable, rule: Any, out: Any, out_dims: Any) -> Any:
        """Return the result of a rule as rows."""
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
        made = map_beside(out, out_dims, self._row_of)
        map_beside(made, rows[0], _lie_as)
        return made

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
        """Return the result for no rows, whose shapes come from the fake kernel."""
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


def _lie_as(tracer: Any, first: Any) -> None:
    """Let a result lie in memory as that of the first row, which decides what is a view."""
    if not isinstance(tracer, BatchTracer) or not tracer.shape:
        return
    own, wanted = strides_of_box(tracer), strides_of(first)
    if is_traced(first):
        wanted = strides_of_box(first)
    if own != wanted:
        tracer.box_place = Pinned(wanted, strides_sources(first))


def _fake_row(value: Any, dim: int | None) -> Any:
    if not is_array(value):
        return value
    shape = tuple(value.shape)
    return fake_like(
        value, shape=shape if dim is None else shape[:dim] + shape[dim + 1 :]
    )


# ---- random operators ----


class RandomnessMode(Mode):
    """Handles random operators whose arguments are the same for all rows."""

    kind: ClassVar[RuleKind] = VMAP
    sees_all = False
    # Of the class, since most runs of vmap set none of these: that takes 200 ns.
    alive = True
    runs_plans = False
    # Arrays of transforms outside that were written for all rows at once.
    written: Sequence[ref[Tracer]] = ()
    # Looks for draws outside of random operators, if this run is watched.
    watch: DrawWatch | None = None

    def __init__(self, batch: BatchInterpreter) -> None:
        self.level: int = next_level()
        self.batch = batch
        self.outer: Mode | None = current_mode.get()

    def describe(self) -> str:
        """Return the words for it in messages: those of its vmap."""
        return self.batch.describe()

    def where(self) -> str:
        """Return the place of the call of that vmap."""
        return self.batch.where()

    def see_write(self, box: Tracer) -> None:
        """Note a write to an array that may come from outside."""
        if box.interpreter.level < self.batch.level:
            self.written = [*self.written, ref(box)]

    def check_writes(self) -> None:
        """Raise if such an array is still there: it was not made inside."""
        if any(box() is not None for box in self.written):
            raise VmapError(
                "an array from outside is written in place inside"
                f" {self.describe()}, where each row would write it",
                do="return the value from the function, and write it outside",
            )

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run a random operator as `randomness` says."""
        args = [plain_generator(value) for value in args]
        if not op.sees_seed:
            return self._run(op, args)
        return self._unwatched(lambda: self._run(op, args))

    def draw_rows(self, draw: Callable[[], Any]) -> Any:
        """Draw for all rows along axis 0, outside of the vmap."""
        found = run_under(self.outer, self._unwatched, draw)
        return self.batch.wrap(found, 0)

    def _unwatched(self, draw: Callable[[], Any]) -> Any:
        """Draw so that the watches of this vmap, and of those around it, allow it."""
        with ExitStack() as stack:
            for mode in self._modes():
                if mode.watch is not None:
                    stack.enter_context(mode.watch.allowed())
            return draw()

    def _modes(self) -> Iterator[RandomnessMode]:
        mode: Mode | None = self
        while mode is not None:
            if isinstance(mode, RandomnessMode):
                yield mode
            mode = mode.outer

    def _run(self, op: RuleTable, args: Sequence[Any]) -> Any:
        batch = self.batch
        if not op.sees_seed or any(
            batch.dim_of(v) is not None for v in flat(list(args))
        ):
            return op.invoke(args)
        if batch.draws is not None:
            batch.draws.start(args)()
            return op.invoke(args)
        if batch.info.randomness == "error":
            raise random_error(op, batch)
        dims = [map_outline(value, lambda _: None) for value in args]
        return batch.loop(op, args, dims)


# ---- plans of operators with a rule, as generated code ----


_LEAVE = "return connected(op, args, self.finish(op, rule, args, ({}), ({}), {{}}))"


def _make_plan(op: RuleTable) -> Plan:
    """Make the plan of an operator, which is kept until its table changes."""
    plans = op.plans  # a changed table has new plans: a plan of the old one is dropped
    rule = op.find_rule(VMAP)
    if op.is_plain and rule is not None and not (op.sees_seed or op.schema.has_shapes):
        plan = _rule_plan(op, plans, rule)
    else:
        plan = general_plan(op)
    plans.by_tracer[BatchTracer] = plan
    return plan


def _rule_plan(op: RuleTable, plans: Plans, rule: Any) -> Plan:
    """Return the plan of a plain operator."""
    writer = PlanWriter(op, VMAP, BatchTracer, _NAMES | {"rule": rule})
    leave = _LEAVE.format(writer.owns, writer.values)
    short = []
    if op.rows.get(VMAP) is None and Tag.pointwise in op.tags:
        plans.is_elementwise = _is_ufunc(op) and _takes_numbers(writer)
        if op.plans is not plans:
            plans.close()
        short = _pointwise_lines(writer, leave)
    elif isinstance(rule, AxisRule):
        short = _axis_lines(writer, rule, plans, leave)
    return writer.make(
        [
            *short,
            f"pair = rule(self.info, ({writer.owns}), {writer.values})",
            "if type(pair) is tuple and len(pair) == 2 and type(pair[1]) is int:",
            "    out, dim = pair",
            "else: out = None",
            *_check_lines(leave.format("pair")),
            *["if key: learn(key, args)"] * ("learn" in writer.names),
            *writer.wrap("dim"),
        ]
    )


def _check_lines(leave: str) -> list[str]:
    """Return lines that leave the plan unless `out` has the rows along `dim`."""
    return [
        "if (",
        "    type(out) is not ndarray and not is_array(out)",
        "    or not len(shape := out.shape) > dim >= 0",
        "    or shape[dim] != self.info.batch_size",
        f"): {leave}",
    ]


# ---- operators of one array that have an axis rule ----

# Calls that a plan keeps, each for a shape and constants.
_MOST_KNOWN = 256


def _axis_lines(
    writer: PlanWriter, rule: AxisRule, plans: Plans, leave: str
) -> list[str]:
    """Return lines for a plain batch whose shape and constants were met before."""
    test, texts = writer.kernel_test(), constants_key(writer.op)
    if not test or texts is None:
        return []
    known: dict[Any, Any] = {}
    writer.names |= {"known": known, "learn": partial(_learn, rule, known, plans.alone)}
    return [
        "key = None",
        f"if {test}:",
        f"    key = ({', '.join(['v0.shape', 'dim0', *texts])})",
        "    found = known.get(key)",
        "    if found is not None:",
        "        call, dim = found",
        "        out = call(v0)",
        f"        if type(out) is not ndarray: {leave.format('(out, dim)')}",
        *inside(inside(writer.wrap("dim"))),
    ]


def _learn(
    rule: AxisRule,
    known: dict[Any, Any],
    alone: dict[Any, tuple[Callable[..., Any], int]],
    key: tuple[Any, ...],
    args: Sequence[Any],
) -> None:
    """Keep what a call does with these constants, after it has been checked."""
    kernel = rule.op.fast.kernel
    if kernel is None:
        return
    moved = rule.move(*key[:2], *args[1:])
    if moved is not None:
        constants, out_dim = moved
        if len(known) >= _MOST_KNOWN:
            known.clear()
            alone.clear()
        known[key] = found = fixed(kernel, constants), out_dim
        others = zip(rule.op.schema.parameters[1:], args[1:], strict=True)
        if rule.op.view_slot < 0 and all(p.default is v for p, v in others):
            alone[key[:2]] = found


# ---- pointwise operators, whose rows lie as NumPy broadcasts them ----


def _pointwise_lines(writer: PlanWriter, leave: str) -> list[str]:
    """Return lines that run the operator on batches that fit without the rule."""
    slots = writer.op.array_slots
    if not 0 < len(slots) <= 2:
        return []
    first: int = next(iter(slots))
    aligned = [f"dim = dim{first}"]
    if len(slots) == 2:
        a, b = slots
        aligned = [
            f"if dim{b} is None: dim = dim{a} if {_inner_test(b, a)} else None",
            f"elif dim{a} is None: dim = dim{b} if {_inner_test(a, b)} else None",
            f"elif dim{a} == dim{b} and len(v{a}.shape) == len(v{b}.shape): dim = dim{a}",
            f"else: v{a}, v{b}, dim = aligned(v{a}, v{b}, dim{a}, dim{b})",
        ]
    checks = _check_lines(leave.format("(out, dim)"))
    if _is_ufunc(writer.op):
        checks = ["if type(out) is not ndarray:", *inside(checks)]
    lines = [*writer.run(), *checks, *writer.wrap("dim")]
    return [*aligned, "if dim is not None:", *inside(lines)]


def _is_ufunc(op: RuleTable) -> bool:
    """Return whether arrays with a batch axis give one with that axis, for sure."""
    return isinstance(find_kernel(op, CPU.name), np.ufunc)


def _takes_numbers(writer: PlanWriter) -> bool:
    """Return whether a call has one array alone, or two of which either may be a number."""
    op = writer.op
    types = [p.type for p in op.schema.parameters]
    if (
        not writer.kernel_test()
        or op.view_slot >= 0
        or len(types) != len(op.array_slots)
    ):
        return False
    both = all(isinstance(t, ArrayType) and t.or_number for t in types)
    return len(types) == 1 or (len(types) == 2 and both)


# Indices for batches of scalars beside those of rows with so many axes more.
_WIDER: tuple[Any, ...] = tuple((slice(None), *(None,) * n) for n in range(9))
_MOST_AXES = len(_WIDER)


def _inner_test(constant: int, batch: int) -> str:
    """Return the condition that NumPy broadcasts a constant to the rows of a batch."""
    c, x = f"v{constant}", f"v{batch}"
    is_array = f"(type({c}) is ndarray or is_array({c}))"
    is_inner = f"dim{batch} == 0 and {is_array} and len({c}.shape) < len({x}.shape)"
    return f"type({c}) in numbers or {is_inner}"


def _aligned(x: Any, y: Any, x_dim: int, y_dim: int) -> tuple[Any, Any, int | None]:
    """Return two batches whose rows NumPy broadcasts, and their axis; None if it cannot.

    Their axes or their numbers of axes differ.
    """
    more = x.ndim - y.ndim
    if type(x) is type(y) is _ndarray and -_MOST_AXES < more < _MOST_AXES:
        if y.ndim == 1:  # a number for each row
            return x, y[_WIDER[more - x_dim]], x_dim
        if x.ndim == 1:
            return x[_WIDER[-more - y_dim]], y, y_dim
    if x_dim == y_dim == 0:
        rank = max(x.ndim, y.ndim) - 1
        return align(x, 0, rank), align(y, 0, rank), 0
    return x, y, None


_NAMES = {"aligned": _aligned, "is_array": is_array, "numbers": number_classes}


# ---- methods of the rows of vmap that call a kernel at once ----
# What NumPy or Python calls of a row runs the function of an operator, which runs the
# plan of vmap, which calls the kernel. For ufuncs and reductions of small arrays these
# frames take as long as the kernel, so the methods here do without them. They ask each
# time whether the operator, its kernel and the transform still allow it, and leave
# everything else to the methods that every tracer has. They make tracers as plans do.


_Method = Callable[[Any, Any], Any]

_REDUCTIONS = ("sum", "mean", "prod", "max", "min", "all", "any")
_new = object.__new__
_ndarray = np.ndarray


def _add_row_methods(cls: Any) -> None:
    """Give the tracers of vmap their own methods for ufuncs and reductions."""
    by_ufunc = _ufunc_protocol(cls.__array_ufunc__)
    by_function = _function_protocol(cls.__array_function__)
    pairs = [(f"__{name}__", ufunc, False) for name, (ufunc, _) in COMPARISONS.items()]
    for name, ufunc in ARITHMETIC.items():
        if ufunc.nout == 1 and ufunc.signature is None:
            pairs += [(f"__{name}__", ufunc, False), (f"__r{name}__", ufunc, True)]
    for name, ufunc, is_second in pairs:
        setattr(cls, name, _beside(ufunc, getattr(cls, name), is_second=is_second))
    for name, ufunc in SIGNS.items():
        setattr(cls, f"__{name}__", _sign(ufunc, by_ufunc))
    for name in _REDUCTIONS:
        setattr(cls, name, _reduction(getattr(cls, name), by_function))
    cls.__array_ufunc__ = by_ufunc
    cls.__array_function__ = by_function
    # A class with protocols of its own is foreign otherwise.
    at_home[cls] = at_home[cls.box_stale_class] = True


def _sign(ufunc: np.ufunc, by_ufunc: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda row: by_ufunc(row, ufunc, "__call__", row)


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


def _beside(ufunc: np.ufunc, general: _Method, *, is_second: bool) -> _Method:
    """Return the method for a ufunc of a row and another value, which may come first."""
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
            y = other
            if type(other) is type(self):
                y = other.below
                if other.interpreter is not batch or type(y) is not _ndarray:
                    dim = None
                elif other.dim != dim or x.ndim != y.ndim:
                    x, y, dim = _aligned(x, y, dim, other.dim)
            elif type(other) not in NUMBERS and (
                type(other) is not _ndarray or dim != 0 or other.ndim >= x.ndim
            ):
                dim = None
            if dim is not None:
                out = fast.kernel(y, x) if is_second else fast.kernel(x, y)
                if type(out) is _ndarray:
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


# ---- NumPy's protocols ----


def _ufunc_protocol(general: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that NumPy calls for ufuncs."""
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


class _Ufuncs(dict[np.ufunc, _Method]):
    """Ufunc -> the method of a row for calls of it with another value."""

    def __init__(self, protocol: Callable[..., Any], *, is_second: bool) -> None:
        super().__init__()
        self._protocol = protocol
        self._is_second = is_second

    def __missing__(self, ufunc: np.ufunc) -> _Method:
        def general(row: Any, other: Any) -> Any:
            inputs = (other, row) if self._is_second else (row, other)
            return self._protocol(row, ufunc, "__call__", *inputs)

        if ufunc not in FUNCTIONS:
            return general
        method = _beside(ufunc, general, is_second=self._is_second)
        return self.setdefault(ufunc, method)


def _function_protocol(general: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that NumPy calls for its other functions."""

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
    """NumPy function -> what serves it; functions that are not registered are not kept."""

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
_add_row_methods(BatchTracer)
