"""Calls on chunks that an operator declares, and checks of what it declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.nested import flat
from customop.config import config
from customop.core.recipes import Recipe
from customop.core.table import RuleTable
from customop.errors import ContractError
from customop.interop.dask.chunks import ChunkCall


class Halo(NamedTuple):
    """How far a kernel reaches along an axis, and how it continues arrays there."""

    before: int
    after: int
    kind: Any

    @property
    def depth(self) -> Any:
        """What dask takes."""
        if self.before == self.after or self.kind != "none":
            return max(self.before, self.after)
        return self.before, self.after


class Split(NamedTuple):
    """What an operator says about one axis, by which a chunk can be cut.

    Attributes
    ----------
    name : str
        The name of the axis.
    axes, outs : tuple of int
        Its number in each array and in each result; -1 where it is missing.
    reach : Halo
    combine : str
        How the results of chunks are combined, if they lack the axis.
    """

    name: str
    axes: tuple[int, ...]
    outs: tuple[int, ...]
    reach: Halo
    combine: str


# What chunks of this process have checked, of which operators.
_checked: set[tuple[str, Split]] = set()


class DeclaredCall(ChunkCall):
    """A call on chunks; the first one of a process checks what the operator declares.

    Parameters
    ----------
    op : Operator or Recipe
    args : sequence
        Values of all parameters, with whole arrays or holes for them.
    adapt : callable, optional
        The same parameter of `ChunkCall`.
    splits : tuple of Split
        What is checked.
    kernel_alone : bool
        Whether only the kernel runs, so that other rules may differ between processes.
    """

    __slots__ = ("splits",)

    def __init__(
        self,
        op: RuleTable | Recipe,
        args: Sequence[Any],
        adapt: Callable[[list[Any]], list[Any]] | None = None,
        splits: tuple[Split, ...] = (),
        kernel_alone: bool = True,
    ) -> None:
        super().__init__(op, args, adapt, kernel_alone)
        self.splits: tuple[Split, ...] = splits

    def __call__(self, *chunks: Any) -> Any:
        """Return the results for chunks in the places of the arrays."""
        out = super().__call__(*chunks)
        if self.splits and config.checks != "never":
            token = self._recipe.token
            for split in self.splits:
                key = (token, split)
                is_due = key not in _checked or config.checks == "always"
                if is_due and self._check(split, chunks, flat(out)):
                    _checked.add(key)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self._recipe, self.args, self.adapt, self.splits, self.kernel_alone)
        return DeclaredCall, own

    # ---- the check: a chunk that is cut in two gives the same ----

    def _check(self, split: Split, chunks: Sequence[Any], out: Sequence[Any]) -> bool:
        """Raise unless two parts give the same; return False for a chunk too short."""
        pairs = zip(chunks, split.axes, strict=True)
        length = max((x.shape[i] for x, i in pairs if i >= 0), default=0)
        if length < 2 * max(1, split.reach.before + split.reach.after):
            return False  # each part would be the whole chunk
        middle = length // 2
        if split.combine:
            parts = [
                self._part(_cut(chunks, split, *ends))
                for ends in ((0, middle), (middle, length))
            ]
            pairs_of_parts = zip(*parts, strict=True)
            again = [_COMBINE[split.combine](*each) for each in pairs_of_parts]
        else:
            again = self._halves(split, chunks, length, middle)
        for x, y in zip(out, again, strict=True):
            worst = _difference(np.asarray(x), np.asarray(y))
            if worst is not None:
                raise self._wrong(split, length, middle, worst)
        return True

    def _halves(
        self, split: Split, chunks: Sequence[Any], length: int, middle: int
    ) -> list[Any]:
        """Return the results of two halves with what the kernel reaches, concatenated."""
        before, after, kind = split.reach
        if kind == "none":
            ends = [(0, min(length, middle + after)), (max(0, middle - before), length)]
            kept = [slice(0, middle), slice(middle - ends[1][0], None)]
        else:
            chunks = _continued(chunks, split)
            ends = [
                (0, before + middle + after),
                (middle, before + length + after),
            ]
            kept = [
                slice(before, before + middle),
                slice(before, before + length - middle),
            ]
        parts = [self._part(_cut(chunks, split, *each)) for each in ends]
        return [
            np.concatenate(
                [
                    x[(slice(None),) * axis + (k,)]
                    for x, k in zip(pair, kept, strict=True)
                ],
                axis,
            )
            for *pair, axis in zip(*parts, split.outs, strict=True)
        ]

    def _part(self, chunks: Sequence[Any]) -> list[Any]:
        """Return the results for a part of a chunk."""
        try:
            return flat(super().__call__(*chunks))
        except Exception as error:
            error.add_note(
                "It was called on a part of a chunk, to check what register_chunks says of"
                ' it; customop.config.checks = "never" turns that off.'
            )
            raise

    def _wrong(
        self, split: Split, length: int, middle: int, worst: Any
    ) -> ContractError:
        where, there, here = worst
        if split.combine:
            what = f"is not the {split.combine} of the results of its parts"
            do = "leave the axis out of combine=, so that the kernel gets it whole"
        else:
            before, after, kind = split.reach
            what = (
                f"depends on more than {before} elements before its place and {after}"
                f" after it, with the boundary {kind!r}"
            )
            do = "say how far it reaches, and boundary='periodic' if it wraps around"
        return self.found().error(
            ContractError,
            f" says that chunks along axis '{split.name}' give its result, and the result"
            f" {what}",
            f"a chunk of {length} that is cut at {middle} gives {here!r} in place of"
            f" {there!r} at index {where}",
            do=do,
            parameter=None,
            kind="dask",
        )


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
}


def _cut(chunks: Sequence[Any], split: Split, start: int, stop: int) -> list[Any]:
    pairs = zip(chunks, split.axes, strict=True)
    return [
        x if i < 0 else x[(slice(None),) * i + (slice(start, stop),)] for x, i in pairs
    ]


# How NumPy's `pad` calls dask's kinds of boundary.
_MODES = {"periodic": "wrap", "reflect": "symmetric", "nearest": "edge"}


def _continued(chunks: Sequence[Any], split: Split) -> list[Any]:
    """Extend chunks beyond their ends, as the kernel does."""
    mode: Any = _MODES.get(split.reach.kind, "constant")
    more = {} if mode != "constant" else {"constant_values": split.reach.kind}
    found = []
    for x, axis in zip(chunks, split.axes, strict=True):
        widths = [split.reach[:2] if i == axis else (0, 0) for i in range(np.ndim(x))]
        found.append(np.pad(x, widths, mode, **more) if axis >= 0 else x)
    return found


def _difference(x: Any, y: Any) -> tuple[Any, Any, Any] | None:
    """Return index and values of the largest difference beyond rounding, or None."""
    if x.size == 0:
        return None
    if x.dtype.kind not in "fc":
        wrong = x != y
        error = wrong
    else:
        scale = np.max(np.abs(x), initial=0, where=np.isfinite(x))
        error = np.abs(x - y)
        error[(x == y) | (np.isnan(x) & np.isnan(y))] = 0
        wrong = ~(error <= np.sqrt(np.finfo(x.dtype).eps) * scale)
    if not np.any(wrong):
        return None
    where = np.unravel_index(int(np.argmax(wrong * 1)), x.shape)
    return tuple(map(int, where)), x[where].item(), y[where].item()
