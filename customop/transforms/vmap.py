"""vmap: run a function on every row of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from customop.arrays.kinds import check_own_rules, is_array
from customop.arrays.nested import abbreviated, flatten, show, spread, unflatten
from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.arrays.stand_ins import entered
from customop.core.interpreter import current_mode, explain_read_only, given_by_name
from customop.core.table import RuleTable
from customop.core.tracer import frozen
from customop.errors import VmapError, check_function
from customop.later import later
from customop.synonyms import takes_names_of_others
from customop.transforms.generators import (
    Draws,
    draw_subject,
    restored,
    sources,
    states_of,
    subject_with,
    watched,
)
from customop.transforms.values import (
    NeedsCarrier,
    as_argument,
    carried,
    check_carried,
    read_only,
    registration_of,
)
from customop.transforms.vmap_interpreter import (
    BatchInterpreter,
    BatchTracer,
    RandomnessMode,
)

random_draws: ModuleType = later(import_module, "customop.transforms.random_draws")

P = ParamSpec("P")
R = TypeVar("R")

_RANDOMNESS = ("error", "same", "different")


@takes_names_of_others(
    in_axes="in_dims",
    out_axes="out_dims",
    batch_size="chunk_size",
    axis_name="leave it out, and write np.sum or np.mean of what vmap returns",
    axis_size="leave it out, and batch an argument of that length, such as np.arange(n)",
)
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
        axes count from the end. Arrays given by keyword are batched along axis 0;
        other keyword arguments are the same for all rows.
    out_dims : int, None, or pytree of them
        Where the axis of the batch goes in the results. None for a result that is the
        same for all rows: it is returned once.
    randomness : str
        How random numbers behave: ``"error"``, ``"same"`` for all rows, or
        ``"different"`` for each. With ``"different"`` a ``np.random.Generator`` that `fn`
        holds, as an argument with None in `in_dims`, as a default or in its closure, draws
        for each row: one draw for all rows, then the next one. Other draws of NumPy and
        Python are one for all rows. Without ``"same"`` they are an error where the first
        run of `fn` draws: from ``np.random``, from a generator that it can reach, also
        through other functions and objects, or from one that it makes without a seed. If
        it can reach a generator, its later runs are watched, too.
    chunk_size : int, optional
        Rows to run at a time, to save memory; all by default.

    Returns
    -------
    callable
        Takes what `fn` takes, with batches.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    VmapError
        From the function: if axes do not fit the arguments or results, batches differ
        in length, nothing is batched, or `fn` draws random numbers.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = np.arange(6.0).reshape(2, 3)
    >>> co.vmap(np.dot)(x, x)
    array([ 5., 50.])

    Rows on another axis, and an argument that is the same for all rows:

    >>> co.vmap(np.dot, in_dims=(1, None))(x, np.array([1.0, 10.0]))
    array([30., 41., 52.])
    >>> co.vmap(lambda p, k: p["x"] * k, in_dims=({"x": 0}, None))({"x": x}, 2.0).shape
    (2, 3)
    >>> co.vmap(np.cumsum, out_dims=1)(x).shape  # the batch last
    (3, 2)

    Two rows at a time, and random numbers of each row:

    >>> co.vmap(np.sum, chunk_size=2)(np.ones((5, 3)))
    array([3., 3., 3., 3., 3.])
    >>> rng = np.random.default_rng(0)
    >>> noisy = co.vmap(lambda row: row + rng.normal(), randomness="different")
    >>> bool(noisy(np.zeros(2))[0] == noisy(np.zeros(2))[1])
    False
    >>> rng = np.random.default_rng(0)
    >>> noisy = co.vmap(lambda row: row + rng.normal(), randomness="same")
    >>> shifted = noisy(np.zeros(2))
    >>> bool(shifted[0] == shifted[1])
    True
    """
    _check_settings(fn, randomness, chunk_size)
    name = getattr(fn, "__name__", "function")
    is_same, is_different = randomness == "same", randomness == "different"
    subject = None if is_same else draw_subject(fn, randomness)
    watch = random_draws.watched_between if is_different else watched
    is_short = type(in_dims) is type(out_dims) is int and in_dims == out_dims == 0
    is_short = is_short and chunk_size is None
    turns = not isinstance(fn, RuleTable)  # an operator gets the array itself

    @wraps(fn)
    def batched(*args: P.args, **kwargs: P.kwargs) -> R:
        plain = entered(fn)
        run: Any = random_draws.drawing_rows(plain) if is_different else plain
        draws = Draws() if is_same else None
        if is_short and len(args) == 1 and not kwargs:
            x: Any = args[0]
            if type(x) is np.ndarray and x.ndim and x.flags.c_contiguous:
                if subject is not None and not subject.is_bare:
                    run = watch(run, subject, name)
                batch = BatchInterpreter(x.shape[0], randomness, draws)
                return _run_one(run, batch, x, name)  # type: ignore[no-any-return]  # as fn
        leaves: Sequence[Any] = args
        structure = None
        dims = None if kwargs else _plain_axes(in_dims, args)
        if subject is not None:
            # A generator may be among the arguments that are not all plain arrays.
            others = (*args, *kwargs.values()) if dims is None else ()
            now = subject_with(subject, fn, randomness, others)
            run = run if now.is_bare else watch(run, now, name)
        if dims is None:
            try:
                leaves, dims, structure = _inputs(name, in_dims, args, kwargs)
            except NeedsCarrier:
                return carried(batched, args, kwargs)  # type: ignore[no-any-return]  # as fn
        size = _batch_size(name, leaves, dims)
        if chunk_size is None or size <= chunk_size:
            batch = BatchInterpreter(size, randomness, draws)
            batch.turns = turns
            return _run(run, batch, leaves, dims, structure, out_dims, name)  # type: ignore[no-any-return]  # as fn
        chunks = []
        states = states_of(sources(fn, leaves)) if is_same else ()
        for start in range(0, size, chunk_size):
            part = _chunk(leaves, dims, start, chunk_size)
            count = min(chunk_size, size - start)
            again = None if draws is None else draws.again()
            batch = BatchInterpreter(count, randomness, again)
            batch.turns = turns
            with restored(states if start else ()):
                chunks.append(_run(run, batch, part, dims, structure, out_dims, name))
        return _join(chunks, out_dims)  # type: ignore[no-any-return]  # as fn

    return batched


def _check_settings(fn: Any, randomness: Any, chunk_size: Any) -> None:
    check_function("vmap", fn)
    if randomness not in _RANDOMNESS:
        raise VmapError(
            f"vmap: unknown randomness={randomness!r}",
            do="use 'error', 'same' or 'different'",
        )
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise VmapError(
            f"vmap: chunk_size={chunk_size!r} is not a positive int",
            do="use a number of rows such as 64, or None for all at once",
        )


def other_length(name: str, entries: int, count: int) -> VmapError:
    """Return the error for `in_dims` with more or fewer entries than arguments."""
    return VmapError(
        f"vmap of {name}: in_dims has {entries} entries, the call {count} positional"
        " arguments",
        do="write one entry for each argument, None where it is not batched",
    )


def _plain_axes(in_dims: Any, args: tuple[Any, ...]) -> Sequence[int | None] | None:
    """Return the batch axis of each argument, if all are arrays of NumPy with an entry.

    None for other arguments, and for entries that do not fit them.
    """
    entries = in_dims if type(in_dims) is tuple else (in_dims,) * len(args)
    if len(entries) != len(args):
        return None
    dims: list[int | None] = []
    for x, dim in zip(args, entries, strict=True):
        if type(x) is not np.ndarray:
            return None
        rank = x.ndim
        if type(dim) is int and -rank <= dim < rank:
            dims.append(dim % rank)
        elif dim is None:
            dims.append(None)
        else:
            return None
    return dims


def _inputs(
    name: str, in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], list[int | None], Any]:
    """Return the leaves of the arguments, the batch axis of each, and the structure."""
    if isinstance(in_dims, list):
        in_dims = tuple(in_dims)
    if isinstance(in_dims, tuple) and len(in_dims) != len(args):
        raise other_length(name, len(in_dims), len(args))
    leaves, structure = flatten((args, kwargs))
    for leaf in leaves:
        check_carried(leaf)
    dims = _spread(name, in_dims, args)
    # Keyword arguments have no entry in in_dims: arrays are batched as by jax.vmap,
    # numbers are passed on as by torch.vmap (checked with jax 0.10.2, torch 2.13).
    dims += [0 if _is_batch(leaf) else None for leaf in leaves[len(dims) :]]
    pairs = zip(dims, leaves, strict=True)
    return leaves, [_axis(name, dim, leaf) for dim, leaf in pairs], structure


def _is_batch(leaf: Any) -> bool:
    return is_array(leaf) and not isinstance(leaf, np.generic)


def _spread(name: str, dims: Any, tree: Any) -> list[Any]:
    """Return the entry of `dims` for each leaf of a tree; one may stand for a branch."""
    try:
        return spread(dims, tree)
    except ValueError:
        raise VmapError(
            f"vmap of {name}: the axes {dims!r} do not fit the structure"
            f" {flatten(tree)[1]}",
            do="write one axis, or axes nested as the value is",
        ) from None


def _axis(name: str, dim: Any, leaf: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise VmapError(
            f"vmap of {name}: {dim!r} in in_dims is not an axis",
            do="use an int or None",
        )
    if not is_array(leaf):
        raise VmapError(
            f"vmap of {name}: in_dims is {dim} for {show(leaf)}, which has no axes",
            do=as_argument(leaf) or "use None in in_dims for it",
        )
    check_own_rules(leaf, f"vmap of {name}: an argument", VmapError)
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
            do="give at least one argument an axis in in_dims",
        )
    if len(sizes) > 1 and any(size != sizes[0] for size in set(sizes)):
        seen = ", ".join(
            f"{abbreviated(leaf)} along {dim}"
            for leaf, dim in zip(leaves, dims, strict=True)
            if dim is not None
        )
        raise VmapError(
            f"vmap of {name}: batches of different lengths: {seen}",
            do="batch all arguments by the same number of rows",
        )
    size: int = sizes[0]  # or a symbolic one
    return size


def _run(
    fn: Callable[..., Any],
    batch: BatchInterpreter,
    leaves: Sequence[Any],
    dims: Sequence[int | None],
    structure: Any,
    out_dims: Any,
    name: str,
) -> Any:
    batch.fn = fn
    if structure is None and len(leaves) == 1 and dims[0] is not None:
        rows = [_row_of(batch, leaves[0], dims[0])]
    else:
        pairs = zip(leaves, dims, strict=True)
        rows = [read_only(v) if d is None else _row_of(batch, v, d) for v, d in pairs]
        batch.inputs = leaves
    # The same as `with batch, RandomnessMode(batch)` without four frames: 1.3 us of 6.
    mode = RandomnessMode(batch)
    token = None
    try:
        token = current_mode.set(mode)
        if structure is None:
            out = fn(*rows)
        else:
            args, kwargs = unflatten(structure, rows)
            out = fn(*args, **kwargs)
        # The results are unwrapped while the transform is alive.
        found = _outputs(batch, name, out, out_dims)
    except Exception as error:
        batch.raise_refused(error)
        plain = [v if d is None else d for v, d in zip(leaves, dims, strict=True)]
        given = (plain, {}) if structure is None else unflatten(structure, plain)
        _explain_read_only(error, batch, *given)
        raise
    else:
        if mode.written:
            out = rows = args = kwargs = None  # type: ignore[assignment]  # what was made inside dies
            mode.check_writes()
        return found
    finally:
        if token is None:  # an interrupt came in between
            current_mode.set(mode.outer)
        else:  # a third less
            current_mode.reset(token)
        batch.end()


def _run_one(
    fn: Callable[..., Any], batch: BatchInterpreter, x: np.ndarray, name: str
) -> Any:
    """Do what `_run` does for one NumPy batch along axis 0, in two thirds of the time."""
    batch.fn = fn
    row = BatchTracer(batch, x, 0)
    row.box_origin = x
    mode = RandomnessMode(batch)
    token = None
    try:
        token = current_mode.set(mode)
        out = fn(row)
        if type(out) is BatchTracer and out.interpreter is batch and out.dim == 0:
            found = out.below
            found = found if type(found) is np.ndarray else frozen(found)
        else:
            found = _outputs(batch, name, out, 0)
    except Exception as error:
        batch.raise_refused(error)
        _explain_read_only(error, batch, (0,), {})
        raise
    else:
        if mode.written:
            out = row = None  # type: ignore[assignment]  # what was made inside dies
            mode.check_writes()
        return found
    finally:
        if token is None:  # an interrupt came in between
            current_mode.set(mode.outer)
        else:  # a third less
            current_mode.reset(token)
        batch.alive = batch.runs_plans = False
        if batch.written_inputs:
            batch.end()


def _explain_read_only(
    error: Exception, batch: BatchInterpreter, args: Any, kwargs: Any
) -> None:
    """Add to NumPy's error for a write which arguments are the same for all rows."""
    if type(error) is not ValueError:
        return
    given = given_by_name(batch.fn, args, kwargs).items()
    names = [n for n, value in given if any(map(is_array, flatten(value)[0]))]
    explain_read_only(error, batch.describe(), names, "batch it too, with in_dims")


def _row_of(batch: BatchInterpreter, value: Any, dim: int) -> BatchTracer:
    is_plain = type(value) is np.ndarray  # 150 ns less than asking `frozen`
    below = value if is_plain else frozen(value)
    # Plain arrays in C order lie as they should: to find that out takes 1.4 us.
    if batch.turns and (dim or not is_plain or not value.flags.c_contiguous):
        below = batch.turn(below, dim)
    tracer = BatchTracer(batch, below, dim)
    tracer.box_origin = value
    return tracer


def _outputs(batch: BatchInterpreter, name: str, out: Any, out_dims: Any) -> Any:
    if (
        isinstance(out, BatchTracer)
        and out.interpreter is batch
        and type(out_dims) is int
    ):
        if out.dim == out_dims:
            return frozen(out.below)
        return _take_out(batch, name, out, out_dims)
    leaves, structure = flatten(out)
    dims = _spread(name, out_dims, out)
    pairs = zip(leaves, dims, strict=True)
    found = [_take_out(batch, name, leaf, dim) for leaf, dim in pairs]
    return unflatten(structure, found)


def _take_out(batch: BatchInterpreter, name: str, leaf: Any, dim: Any) -> Any:
    """Return a result with its batch axis where `out_dims` says."""
    is_batched = batch.dim_of(leaf) is not None
    if dim is None:
        if is_batched:
            raise VmapError(
                f"vmap of {name}: out_dims is None for a result that differs between rows",
                do="write the axis for the batch, such as 0",
            )
        return frozen(leaf)
    if not is_array(leaf) and not isinstance(leaf, int | float | complex):
        raise VmapError(
            f"vmap of {name}: returned {show(leaf)}, must be arrays",
            do=registration_of(leaf)
            or "return arrays, or out_dims=None for that result",
        )
    rank = len(getattr(leaf, "shape", ())) + 1
    if type(dim) is not int or not -rank <= dim < rank:
        raise VmapError(
            f"vmap of {name}: out_dims is {dim!r} for a row of {rank - 1} axes",
            do=f"use an axis from {-rank} to {rank - 1}",
        )
    dim %= rank
    if not is_batched:
        check_own_rules(leaf, f"vmap of {name}: a result", VmapError)
        return _repeat(batch.info.batch_size, frozen(leaf), dim)
    tracer: Any = leaf
    value, at = frozen(tracer.below), tracer.dim
    if at == dim:
        return value
    if type(value) is np.ndarray:  # an eighth of the time
        order = [*range(rank)]
        order.insert(dim, order.pop(at))
        return value.transpose(order)
    return call_numpy(np.moveaxis, value, at, dim)


def _repeat(size: int, leaf: Any, dim: int) -> Any:
    """Repeat a result that is the same for all rows."""
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
