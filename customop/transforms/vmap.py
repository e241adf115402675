"""Batching: by an operator's rule, or by an exact loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from typing_extensions import ParamSpec

from customop.arrays.describe import abbreviated, describe, show
from customop.arrays.fake import FakeArray, fake_like
from customop.arrays.kinds import device_of, is_array
from customop.arrays.nested import (
    aligned,
    children,
    flat,
    like,
    map_nested,
    map_outline,
    steps,
)
from customop.arrays.numpy_protocol import INDEXING, call_numpy
from customop.arrays.pytree import flatten, spread, unflatten
from customop.config import config
from customop.core.derived.inplace import row, warn_loop
from customop.core.dispatch import Interpreter, Mode, Tracer, current_mode
from customop.core.kinds import VMAP
from customop.core.proof import VMAP_RULE, check_returns, check_shapes
from customop.core.rule_types import BatchInfo
from customop.errors import (
    ContractError,
    DataDependentError,
    VmapError,
    check_function,
    place,
)

__all__ = ["BatchInfo", "BatchTracer", "vmap"]

P = ParamSpec("P")
R = TypeVar("R")

_RANDOMNESS = ("error", "same", "different")


class BatchTracer(Tracer):
    """A row of a batch: the array without its batch axis."""

    __slots__ = ("dim",)
    is_concrete = False

    def __init__(self, interpreter: Interpreter, value: Any, dim: int) -> None:
        self.interpreter = interpreter
        self.value = value
        self.dim: int = dim

    @property
    def shape(self) -> Any:
        """Lengths of the axes of one row."""
        shape = self.value.shape
        return (*shape[: self.dim], *shape[self.dim + 1 :])

    def _lost(self, asked: str, instead: str) -> DataDependentError:
        size = self.value.shape[self.dim]
        return DataDependentError(
            f"{asked} {describe(self)}, a row of {size} inside"
            f" {self.interpreter.describe()}",
            "each row may have another value",
            do=f"use {instead}",
        )


class BatchInterpreter(Interpreter):
    """One running vmap."""

    kind = VMAP
    tracer_class: ClassVar[type[Tracer]] = BatchTracer

    def __init__(self, size: int, randomness: str, draws: Draws | None) -> None:
        super().__init__()
        self.info: BatchInfo = BatchInfo(size, randomness)
        self.draws = draws

    def dim_of(self, value: Any) -> int | None:
        """Batch axis of a value, or None where it is the same for all rows."""
        if type(value) is BatchTracer and value.interpreter is self:
            return value.dim
        return None

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run the operator once for all rows."""
        values = list(args)
        dims: list[Any] = [None] * len(values)
        for slot in op.array_slots:
            tracer = values[slot]
            if type(tracer) is BatchTracer and tracer.interpreter is self:
                values[slot] = tracer.value
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
        pair = self._by_rule(op, rule, values, dims)
        if pair is NotImplemented:  # a rule by shapes, which do not tell of these rows
            return self.loop(op, values, dims)
        if type(pair) is not tuple or len(pair) != 2:
            raise self._bad_rule(op, rule, f"returned {show(pair)}, no pair")
        rows = self._rows_of(op, rule, *pair)
        if op.schema.has_shapes and config.checks != "never":
            self._prove_rows(op, rule, dims, args, rows)
        return rows

    def _rows_of(self, op: Any, rule: Any, out: Any, out_dims: Any) -> Any:
        """What a rule returns, as rows."""
        if type(out_dims) is int and op.schema.single_return and is_array(out):
            return self._batched(op, rule, out, out_dims)
        check_returns(op, rule, out, VMAP_RULE)
        return self._wrap_result(op, rule, out, out_dims)

    def _prove_rows(
        self, op: Any, rule: Any, dims: Sequence[Any], args: Sequence[Any], out: Any
    ) -> None:
        """Hold the rows of a rule to their shapes, once for each `in_dims`."""
        plans = op.plans
        proven = tuple([d if type(d) is int else None for d in dims])
        if config.checks == "first" and proven in plans.proven_rows:
            return
        check_shapes(op, rule, VMAP_RULE, args, out)
        plans.proven_rows.add(proven)

    def _by_rule(
        self, op: Any, rule: Any, values: Sequence[Any], dims: Sequence[Any]
    ) -> Any:
        if not op.schema.keyword_only:
            return rule(self.info, tuple(dims), *values)
        positional, keywords = op.schema.split(values)
        count = len(positional)
        in_dims = dims if any(map(_some, dims[count:])) else dims[:count]
        return rule(self.info, tuple(in_dims), *positional, **keywords)

    def _wrap_result(self, op: Any, rule: Any, out: Any, dims: Any) -> Any:
        found = children(out)
        if found is not None:
            given = aligned(out, dims)
            if given is None:
                reason = f"returned out_dims={dims!r} for {len(found)} outputs"
                raise self._bad_rule(op, rule, reason)
            pairs = zip(found, given, strict=True)
            return like(out, [self._wrap_result(op, rule, o, d) for o, d in pairs])
        if dims is None:
            return out
        if type(dims) is not int or not is_array(out):
            reason = f"returned out_dims={dims!r} for the output {show(out)}"
            raise self._bad_rule(op, rule, reason)
        return self._batched(op, rule, out, dims)

    def _batched(self, op: Any, rule: Any, out: Any, dim: int) -> BatchTracer:
        shape = out.shape
        rank = len(shape)
        if not -rank <= dim < rank:
            reason = f"returned out_dims={dim} for an output of shape {tuple(shape)}"
            raise self._bad_rule(op, rule, reason)
        if dim < 0:
            dim += rank
        if shape[dim] != self.info.batch_size:
            reason = (
                f"returned an output of shape {tuple(shape)} with out_dims={dim}, but the"
                f" batch has {self.info.batch_size} rows"
            )
            raise self._bad_rule(op, rule, reason)
        return BatchTracer(self, out, dim)

    def _bad_rule(self, op: Any, rule: Any, reason: str) -> ContractError:
        return ContractError(
            f"{op.qualname}: the vmap rule {reason}",
            op.schema.show(op.qualname),
            f"rule at {place(rule)}",
            do="return (output, out_dims), with an axis or None for each output",
            op=op.qualname,
            kind="vmap",
        )

    def _check_writes(
        self, op: Any, values: Sequence[Any], dims: Sequence[Any]
    ) -> None:
        """Refuse to write what differs between rows into one array for all."""
        for p, value, dim in zip(op.schema.parameters, values, dims, strict=True):
            pairs = zip(flat(value), flat(dim), strict=True)
            if p.is_written and any(d is None and is_array(v) for v, d in pairs):
                raise VmapError(
                    f"{op.qualname} writes its argument '{p.name}' under"
                    f" {self.describe()}, which is one array for all rows",
                    op.schema.show(op.qualname, p.name),
                    do=f"batch '{p.name}' too, or use an operator that returns a new"
                    " array",
                    op=op.qualname,
                    parameter=p.name,
                    kind="vmap",
                )

    # ---- the loop ----

    def loop(self, op: Any, values: Sequence[Any], dims: Sequence[Any]) -> Any:
        """Call the operator row by row, and stack the results."""
        if not op.sees_seed:
            warn_loop(op)
        size = self.info.batch_size
        if size == 0:
            return self._empty(op, values, dims)
        rewind = self.draws.start(values) if op.sees_seed and self.draws else None
        rows = []
        for i in range(size):
            if rewind is not None:
                rewind()
            pairs = zip(values, dims, strict=True)
            rows.append(op.invoke([row(value, dim, i) for value, dim in pairs]))
        return self._stack(op, rows)

    def _stack(self, op: Any, rows: list[Any]) -> Any:
        first = rows[0]
        nested = [children(row) for row in rows]
        if all(items is not None for items in nested):
            named = {(type(row), tuple(steps(row))) for row in rows}
            if len(named) > 1:
                raise self._uneven(op, _uneven_nests(rows))
            columns = zip(*nested, strict=True)
            return like(first, [self._stack(op, list(column)) for column in columns])
        if all(is_array(row) for row in rows):
            shapes = {tuple(row.shape) for row in rows}
            if len(shapes) > 1:
                raise self._uneven(op, f"arrays of shapes {sorted(shapes)}")
            return BatchTracer(self, call_numpy(np.stack, rows), 0)
        seen = sorted({repr(row) for row in rows})
        if len(seen) == 1:
            return first
        raise self._uneven(op, f"the values {', '.join(seen[:4])}")

    def _uneven(self, op: Any, what: str) -> VmapError:
        return VmapError(
            f"{op.qualname}: under {self.describe()} the rows return {what}, which do not"
            " stack",
            op.schema.show(op.qualname),
            do="return arrays of one shape for all rows",
            op=op.qualname,
            kind="vmap",
        )

    def _empty(self, op: Any, values: Sequence[Any], dims: Sequence[Any]) -> Any:
        """The result of no rows, of the shapes that the fake kernel tells."""
        device = [device_of(v) for value in values for v in flat(value) if is_array(v)]
        pairs = zip(values, dims, strict=True)
        fakes = [_fake_row(value, dim) for value, dim in pairs]
        out = op.invoke(fakes)

        def none_of(fake: Any) -> Any:
            if not isinstance(fake, FakeArray):
                return fake
            shape = (0, *fake.shape)
            zeros = call_numpy(np.zeros, shape, fake.dtype, device=device[0])
            return BatchTracer(self, zeros, 0)

        return map_nested(out, none_of)


def _uneven_nests(rows: Sequence[Any]) -> str:
    lengths = {len(steps(row)) for row in rows}
    if len(lengths) > 1:
        return f"lists of {sorted(lengths)} items"
    return f"{show(rows[0])} and others with other names"


def _some(dim: Any) -> bool:
    return any(d is not None for d in flat(dim))


def _fake_row(value: Any, dim: Any) -> Any:
    found = children(value)
    if found is not None and dim is not None:
        pairs = zip(found, children(dim) or (), strict=True)
        return like(value, [_fake_row(v, d) for v, d in pairs])
    if not is_array(value):
        return value
    shape = tuple(value.shape)
    return fake_like(
        value, shape=shape if dim is None else shape[:dim] + shape[dim + 1 :]
    )


# ---- randomness ----


def random_error(op: Any, interpreter: Interpreter) -> VmapError:
    """The error for a random operator where `randomness` does not allow one."""
    return VmapError(
        f"{op.qualname} is random under {interpreter.describe()} with randomness='error'",
        op.schema.show(op.qualname),
        do="vmap(f, randomness='same') or vmap(f, randomness='different')",
        op=op.qualname,
        kind="vmap",
    )


class RandomnessMode(Mode):
    """Sees random operators on arguments that are the same for all rows."""

    kind = VMAP
    sees_all = False

    def __init__(self, batch: BatchInterpreter) -> None:
        super().__init__()
        self.batch = batch
        self.outer: Mode | None = current_mode.get()

    def describe(self) -> str:
        """How messages name it: by the vmap it belongs to."""
        return self.batch.describe()

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run a random operator as `randomness` says."""
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


class Draws:
    """The random states that calls started from, for ``randomness="same"``.

    Every row of a call draws from the state of the first, and every chunk of a batch
    from the states of the first chunk. The state is that of the generators among the
    arguments, or NumPy's global one where there are none.
    """

    def __init__(self) -> None:
        self._states: list[Any] = []
        self._calls = 0

    def again(self) -> Draws:
        """These states for another chunk, from the first call on."""
        self._calls = 0
        return self

    def start(self, values: Sequence[Any]) -> Callable[[], None]:
        """Note or find the state of a call; a function that goes back to it."""
        leaves = flat(list(values))
        bits = [v.bit_generator for v in leaves if hasattr(v, "bit_generator")]
        if self._calls == len(self._states):
            self._states.append(_states(bits))
        states = self._states[self._calls]
        self._calls += 1

        def rewind() -> None:
            if not bits:
                np.random.set_state(states)  # noqa: NPY002  # what operators may use
            for bit, state in zip(bits, states, strict=False):
                bit.state = copy.deepcopy(state)

        return rewind


def _states(bits: Sequence[Any]) -> Any:
    if not bits:
        return np.random.get_state()  # noqa: NPY002  # what operators may use
    return [copy.deepcopy(bit.state) for bit in bits]


# ---- the transform ----


def vmap(
    fn: Callable[P, R],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: Literal["error", "same", "different"] = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[P, R]:
    """Make a function that runs `fn` on every row of a batch at once.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees of arrays.
    in_dims : int, None, or pytree of them
        For each positional argument the axis of the batch, or None where it is the
        same for all rows. An entry for a pytree holds for all its arrays. Negative
        axes count from the end. Of keyword arguments, arrays are batched along axis 0,
        and all else is the same for all rows.
    out_dims : int, None, or pytree of them
        Where the axis of the batch goes in the results; None for a result that is the
        same for all rows, which then comes once.
    randomness : str
        What random operators do: ``"error"``, ``"same"`` for all rows, or
        ``"different"`` for each.
    chunk_size : int, optional
        Rows to run at a time, to save memory; all by default.

    Returns
    -------
    callable
        Takes what `fn` takes, with batches.

    Raises
    ------
    ArgumentError
        If `fn` is no function.
    VmapError
        From the function: if axes do not fit the arguments or results, batches differ
        in length, or nothing is batched.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = np.arange(6.0).reshape(2, 3)
    >>> co.vmap(np.dot)(x, x)
    array([ 5., 50.])
    """
    _check_settings(fn, randomness, chunk_size)
    name = getattr(fn, "__name__", "function")
    is_short = type(in_dims) is type(out_dims) is int and in_dims == out_dims == 0

    @wraps(fn)
    def batched(*args: P.args, **kwargs: P.kwargs) -> R:
        draws = Draws() if randomness == "same" else None
        if is_short and chunk_size is None and len(args) == 1 and not kwargs:
            x: Any = args[0]
            if type(x) is np.ndarray and x.ndim:
                batch = BatchInterpreter(x.shape[0], randomness, draws)
                return _run(fn, batch, args, (0,), None, 0, name)  # type: ignore[no-any-return]
        leaves, dims, structure = _inputs(name, in_dims, args, kwargs)
        size = _batch_size(name, leaves, dims)
        if chunk_size is None or size <= chunk_size:
            batch = BatchInterpreter(size, randomness, draws)
            return _run(fn, batch, leaves, dims, structure, out_dims, name)  # type: ignore[no-any-return]
        chunks = []
        for start in range(0, size, chunk_size):
            part = _chunk(leaves, dims, start, chunk_size)
            count = min(chunk_size, size - start)
            again = None if draws is None else draws.again()
            batch = BatchInterpreter(count, randomness, again)
            chunks.append(_run(fn, batch, part, dims, structure, out_dims, name))
        return _join(chunks, out_dims)  # type: ignore[no-any-return]

    return batched


def _check_settings(fn: Any, randomness: Any, chunk_size: Any) -> None:
    check_function("vmap", fn)
    if randomness not in _RANDOMNESS:
        raise VmapError(
            f"vmap: randomness={randomness!r} is none of its values",
            do="use 'error', 'same' or 'different'",
        )
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise VmapError(
            f"vmap: chunk_size={chunk_size!r} is no number of rows",
            do="use a positive number of rows, or None",
        )


def _inputs(
    name: str, in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], list[int | None], Any]:
    """Leaves of the arguments, the batch axis of each, and the structure."""
    if isinstance(in_dims, list):
        in_dims = tuple(in_dims)
    if isinstance(in_dims, tuple) and len(in_dims) != len(args):
        raise VmapError(
            f"vmap of {name}: in_dims has {len(in_dims)} entries, the call"
            f" {len(args)} positional arguments",
            do="give an entry for each argument, None where it is not batched",
        )
    leaves, structure = flatten((args, kwargs))
    dims = _spread(name, in_dims, args)
    # What comes by keyword has no entry: arrays go as jax.vmap batches them, numbers as
    # torch.vmap passes them on (seen in jax 0.10.2, torch 2.13).
    dims += [0 if _is_batch(leaf) else None for leaf in leaves[len(dims) :]]
    pairs = zip(dims, leaves, strict=True)
    return leaves, [_axis(name, dim, leaf) for dim, leaf in pairs], structure


def _is_batch(leaf: Any) -> bool:
    return is_array(leaf) and not isinstance(leaf, np.generic)


def _spread(name: str, dims: Any, tree: Any) -> list[Any]:
    """One entry of `dims` for each leaf of a tree that they are a prefix of."""
    try:
        return spread(dims, tree)
    except ValueError:
        raise VmapError(
            f"vmap of {name}: the axes {dims!r} do not fit the structure"
            f" {flatten(tree)[1]}",
            do="give one axis, or axes nested as the value is",
        ) from None


def _axis(name: str, dim: Any, leaf: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise VmapError(
            f"vmap of {name}: {dim!r} among in_dims is no axis", do="use an int or None"
        )
    if not is_array(leaf):
        raise VmapError(
            f"vmap of {name}: in_dims is {dim} for {show(leaf)}, which has no axes",
            do="use None among in_dims for it",
        )
    rank = len(leaf.shape)
    if not -rank <= dim < rank:
        raise VmapError(
            f"vmap of {name}: in_dims is {dim} for an array of shape {tuple(leaf.shape)}",
            do=f"use an axis from {-rank} to {rank - 1}"
            if rank
            else "use None for an array without axes",
        )
    return dim % rank


def _batch_size(name: str, leaves: Sequence[Any], dims: Sequence[int | None]) -> int:
    pairs = zip(leaves, dims, strict=True)
    sizes = [leaf.shape[dim] for leaf, dim in pairs if dim is not None]
    if not sizes:
        raise VmapError(
            f"vmap of {name}: no argument is batched",
            do="give at least one argument an axis among in_dims",
        )
    if len(set(sizes)) > 1:
        seen = ", ".join(
            f"{abbreviated(leaf)} along {dim}"
            for leaf, dim in zip(leaves, dims, strict=True)
            if dim is not None
        )
        raise VmapError(
            f"vmap of {name}: batches of different lengths: {seen}",
            do="batch all arguments by the same number of rows",
        )
    return int(sizes[0])


def _run(
    fn: Callable[..., Any],
    batch: BatchInterpreter,
    leaves: Sequence[Any],
    dims: Sequence[int | None],
    structure: Any,
    out_dims: Any,
    name: str,
) -> Any:
    pairs = zip(leaves, dims, strict=True)
    rows = [v if d is None else BatchTracer(batch, v, d) for v, d in pairs]
    # As `with batch, RandomnessMode(batch)` would, four frames cheaper: 1.3 us of 6.
    token = current_mode.set(RandomnessMode(batch))
    try:
        if structure is None:
            out = fn(*rows)
        else:
            args, kwargs = unflatten(structure, rows)
            out = fn(*args, **kwargs)
        # Taken out while the transform lives: what is returned has no tracer left.
        return _outputs(batch, name, out, out_dims)
    finally:
        current_mode.reset(token)
        batch.end()


def _outputs(batch: BatchInterpreter, name: str, out: Any, out_dims: Any) -> Any:
    if type(out) is BatchTracer and out.interpreter is batch and type(out_dims) is int:
        if out.dim == out_dims:
            return out.value
        return _take_out(batch, name, out, out_dims)
    leaves, structure = flatten(out)
    dims = _spread(name, out_dims, out)
    pairs = zip(leaves, dims, strict=True)
    found = [_take_out(batch, name, leaf, dim) for leaf, dim in pairs]
    return unflatten(structure, found)


def _take_out(batch: BatchInterpreter, name: str, leaf: Any, dim: Any) -> Any:
    """A result with its batch axis where `out_dims` says."""
    is_batched = batch.dim_of(leaf) is not None
    if dim is None:
        if is_batched:
            raise VmapError(
                f"vmap of {name}: out_dims is None for a result that differs between rows",
                do="give the axis for the batch, such as 0",
            )
        return leaf
    if not is_array(leaf) and not isinstance(leaf, int | float | complex):
        raise VmapError(
            f"vmap of {name}: returned {show(leaf)}, must be arrays",
            do="return arrays, or out_dims=None for that result",
        )
    rank = len(getattr(leaf, "shape", ())) + 1
    if type(dim) is not int or not -rank <= dim < rank:
        raise VmapError(
            f"vmap of {name}: out_dims is {dim!r} for a row of {rank - 1} axes",
            do=f"use an axis from {-rank} to {rank - 1}",
        )
    dim %= rank
    if not is_batched:
        return _repeat(batch.info.batch_size, leaf, dim)
    tracer: Any = leaf
    value, at = tracer.value, tracer.dim
    return value if at == dim else call_numpy(np.moveaxis, value, at, dim)


def _repeat(size: int, leaf: Any, dim: int) -> Any:
    """A result that is the same for all rows, once for each."""
    value = leaf if is_array(leaf) else np.asarray(leaf)
    wide = call_numpy(np.expand_dims, value, dim)
    shape = (*wide.shape[:dim], size, *wide.shape[dim + 1 :])
    return call_numpy(np.broadcast_to, wide, shape)


def _chunk(
    leaves: Sequence[Any], dims: Sequence[int | None], start: int, length: int
) -> list[Any]:
    part = slice(start, start + length)
    return [
        leaf
        if dim is None
        else call_numpy(INDEXING, leaf, (slice(None),) * dim + (part,))
        for leaf, dim in zip(leaves, dims, strict=True)
    ]


def _join(chunks: list[Any], out_dims: Any) -> Any:
    leaves, structures = zip(*(flatten(chunk) for chunk in chunks), strict=True)
    dims = _spread("function", out_dims, chunks[0])
    joined = [
        column[0] if dim is None else call_numpy(np.concatenate, list(column), axis=dim)
        for dim, column in zip(dims, zip(*leaves, strict=True), strict=True)
    ]
    return unflatten(structures[0], joined)
