"""The check of an operator's batching rule against a loop over the rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.core.kinds import COMPOSITE, VMAP
from customop.core.samples import Sample
from customop.errors import (
    ContractError,
    CustomOpError,
    DataDependentError,
    VmapError,
)
from customop.schema.tags import Tag
from customop.testing.checks.session import (
    Run,
    Session,
    outputs_of,
    placer,
    same_bits,
)
from customop.testing.fault import Fault
from customop.transforms.vmap import vmap

__all__ = ["check_vmap"]

# Combinations of in_dims that are tried.
_MOST_COMBINATIONS = 24

_DO = (
    "the batch axis of each argument is its entry among in_dims (None for one that is"
    " the same for all rows), and that of the result is out_dims"
)


def check_vmap(session: Session, sample: Sample) -> str:
    """The batching rule does what a loop over the rows does."""
    op = session.op
    if op.find_rule(VMAP) is None:
        is_composite = COMPOSITE in op.rows
        return "made of operators" if is_composite else "no vmap rule: a loop is exact"
    arrays = _arrays(session.bound(sample))
    if not arrays:
        return "no argument is an array"
    if op.sees_seed:
        _check_randomness(session, sample)
        return ""
    for dims in _combinations([leaf.ndim for leaf in arrays]):
        _Batch(session, sample, dims, 2).check()
    first = (0,) * len(arrays)
    for size in (1, 0):
        _Batch(session, sample, first, size).check()
    if not op.schema.written and Tag.dynamic_output_shape not in op.tags:
        _check_out_dims(session, sample, first)
        _check_nested(session, sample, first)
    return ""


def _arrays(values: Sequence[Any]) -> list[Any]:
    """The arrays among the arguments, nested or not."""
    return [leaf for leaf in flat(list(values)) if is_array(leaf)]


def _combinations(ranks: Sequence[int]) -> list[tuple[int | None, ...]]:
    """Axes for the batch, by array: each of them, alone and beside others."""
    count = len(ranks)
    found: dict[tuple[int | None, ...], None] = {(0,) * count: None}
    for i, rank in enumerate(ranks):
        for axis in (*range(rank + 1), -1, None):
            for rest in (0, None):
                found[(*(rest,) * i, axis, *(rest,) * (count - i - 1))] = None
    if 1 < count < _FEW_ARRAYS:
        found.update(dict.fromkeys(itertools.product([0, -1, None], repeat=count)))
    kept = [dims for dims in found if any(d is not None for d in dims)]
    # The last axis of an array without axes is its first.
    once = {
        tuple(
            0 if d == -1 and r == 0 else d for d, r in zip(dims, ranks, strict=True)
        ): 0
        for dims in kept
    }
    return list(once)[:_MOST_COMBINATIONS]


_FEW_ARRAYS = 4


class _Batch:
    """Rows for the arrays of a call, and the same rows stacked."""

    def __init__(
        self, session: Session, sample: Sample, dims: Sequence[int | None], size: int
    ) -> None:
        self.session = session
        self.sample = sample
        self.dims = dims
        self.size = size
        values = session.values(sample)
        self.arrays = _arrays(values)
        self.put = placer(values, is_array)
        self.rows, self.runs = self._first_accepted()

    def _first_accepted(self) -> tuple[list[list[Any]], list[Run]]:
        """Rows as unlike each other as the kernel takes them, and what they give."""
        for unlike in (_shuffled, _scaled):
            self.rows = self._rows(unlike)
            try:
                return self.rows, self._run_rows()
            except Exception:  # noqa: BLE001, S112  # a matrix that must be positive
                continue
        self.rows = self._rows(lambda x, _: x.copy())
        return self.rows, self._run_rows()

    def _run_rows(self) -> list[Run]:
        return [self.session.call(self.row(i)) for i in range(self.size)]

    def _rows(self, unlike: Callable[[Any, int], Any]) -> list[list[Any]]:
        pairs = list(zip(self.arrays, self.dims, strict=True))
        return [
            [x if d is None else unlike(np.asarray(x), i) for x, d in pairs]
            for i in range(self.size)
        ]

    def row(self, i: int) -> list[Any]:
        """The arguments of a row, to be written."""
        return self.put([x.copy() for x in self.rows[i]])

    def stacked(self) -> list[Any]:
        """The arrays with the batch at its axes."""
        triples = enumerate(zip(self.arrays, self.dims, strict=True))
        return [
            x.copy() if d is None else _stack([row[k] for row in self.rows], x, d)
            for k, (x, d) in triples
        ]

    def check(self) -> None:
        """Raise unless every row comes out as it does alone."""
        op = self.session.op
        arrays = self.stacked()
        try:
            outs = vmap(_call(self.session, self.sample), tuple(self.dims))(*arrays)
        except (VmapError, DataDependentError):
            # One array for all rows cannot be written, nor uneven rows be stacked.
            if op.schema.written or Tag.dynamic_output_shape in op.tags:
                return
            raise
        except CustomOpError as error:
            if self.size == 0 and not isinstance(error, ContractError):
                return
            raise
        except Exception as error:
            if self.size == 0:  # refused without a row, as a maximum is
                return
            raise Fault(
                f"raises {type(error).__name__} under vmap with in_dims=({self.seen}),"
                f" and not for each row alone: {error}",
                do=self.do,
            ) from error
        found = [*outs, *self._written(arrays)]
        for i, run in enumerate(self.runs):
            self._compare(i, run, [leaf[i] for leaf in found])

    def _written(self, arrays: Sequence[Any]) -> list[Any]:
        """What is written, with its batch first."""
        op = self.session.op
        if not op.schema.written:
            return []
        counts = [len(_arrays([v])) for v in self.session.values(self.sample)]
        ends = list(itertools.accumulate(counts))
        slots = [
            k
            for p, end, n in zip(op.schema.parameters, ends, counts, strict=True)
            for k in range(end - n, end)
            if p.is_written
        ]
        return [np.moveaxis(arrays[k], self.dims[k] or 0, 0) for k in slots]

    def _compare(self, i: int, run: Run, found: Sequence[Any]) -> None:
        expected = [(name, leaf) for name, leaf in run.effects if is_array(leaf)]
        if len(found) == len(expected) and all(
            same_bits(a, b) for a, (_, b) in zip(found, expected, strict=True)
        ):
            return
        names = [name for name, _ in expected]
        if len(names) != len(found):
            raise Fault(
                f"gives {len(found)} results under vmap, {len(names)} without", do=_DO
            )
        self.session.compare(
            Run([], list(zip(names, map(np.asarray, found), strict=True))),
            Run([], [(name, np.asarray(leaf)) for name, leaf in expected]),
            f"between row {i} under vmap with in_dims=({self.seen}) and that row alone",
            do=self.do,
        )

    @property
    def seen(self) -> str:
        """The axes, as messages show them."""
        return ", ".join(map(str, self.dims))

    @property
    def do(self) -> str:
        """What to do about a wrong rule."""
        return f"correct the rule of @{self.session.op.name}.register_vmap: {_DO}"


def _shuffled(x: Any, i: int) -> Any:
    """The elements in another order, and other ones."""
    line = _scaled(x, i).reshape(-1)
    return np.concatenate((line[i:], line[:i])).reshape(x.shape)


def _scaled(x: Any, i: int) -> Any:
    """Floats nearer to zero: a domain around it holds them, and a cone too."""
    return (x * (1.0 - 0.125 * i)).astype(x.dtype) if x.dtype.kind in "fc" else x.copy()


def _stack(rows: Sequence[Any], like: Any, dim: int) -> Any:
    if rows:
        return np.stack(rows, axis=dim)
    return np.moveaxis(np.zeros((0, *like.shape), like.dtype), 0, dim)


def _call(session: Session, sample: Sample) -> Any:
    """The operator as a function of its arrays, to the list of its results."""
    put = placer(session.values(sample), is_array)

    def call(*given: Any) -> Any:
        out = outputs_of(session.op, session.op.invoke(put(given)))
        return [leaf for leaf in flat(out) if is_array(leaf)]

    return call


def _check_out_dims(session: Session, sample: Sample, dims: Sequence[int]) -> None:
    """The batch comes out wherever it is asked for."""
    batch = _Batch(session, sample, dims, 2)
    call = _call(session, sample)
    expected = vmap(call)(*batch.stacked())
    for axis in {-1, min((leaf.ndim - 1 for leaf in expected), default=0)}:
        found = vmap(call, 0, axis)(*batch.stacked())
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            session.compare_leaf(
                f"output {i}",
                np.asarray(a),
                np.moveaxis(b, 0, axis),
                f"between out_dims={axis} and out_dims=0",
                do=f"correct the rule of @{session.op.name}.register_vmap: {_DO}",
            )


def _check_nested(session: Session, sample: Sample, dims: Sequence[int]) -> None:
    """A batch of batches is the batches, one after the other."""
    batch = _Batch(session, sample, dims, 4)
    arrays = [x.reshape(2, 2, *x.shape[1:]) for x in batch.stacked()]
    found = vmap(vmap(_call(session, sample)))(*arrays)
    for i, run in enumerate(batch.runs):
        expected = [leaf for _, leaf in run.effects if is_array(leaf)]
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            session.compare_leaf(
                f"output {k}",
                np.asarray(a[i // 2, i % 2]),
                np.asarray(b),
                f"between row ({i // 2}, {i % 2}) under vmap of vmap and that row alone",
                do=f"correct the rule of @{session.op.name}.register_vmap: call operators"
                f" in it, and count axes from in_dims; {_DO}",
            )


def _check_randomness(session: Session, sample: Sample) -> None:
    """``"error"`` raises, ``"same"`` draws the same for all rows."""
    arrays = _arrays(session.values(sample))
    stacked = [np.stack([x, x]) for x in arrays]
    call = _call(session, sample)
    try:
        vmap(call)(*stacked)
    except VmapError:
        pass
    else:
        raise Fault(
            "draws random numbers under vmap with randomness='error'",
            do="let the rule call random operators, which raise there",
        )
    for name in ("same", "different"):
        outs = vmap(call, randomness=name)(*stacked)
        for i, leaf in enumerate(outs):
            if name == "same":
                session.compare_leaf(
                    f"output {i}",
                    np.asarray(leaf[1]),
                    np.asarray(leaf[0]),
                    "between rows of equal values with randomness='same'",
                    do="look at info.randomness in the rule",
                )
