"""How a run goes over arrays: its blocks, and the threads that take them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from customop.compiling.numpy_backend.body import BlockBody
from customop.compiling.numpy_backend.layout import Cuts, Fold, strides_of
from customop.compiling.team import team

__all__ = ["Plan"]


class Plan:
    """How a run goes over arrays of some sizes and strides.

    Attributes
    ----------
    folds : list of Fold or None
        For each operand; None for a number.
    out : Fold
        For each result.
    shape, order : tuple of int
        Of the results, and of their axes in memory.
    cuts : list of Cuts
    body : BlockBody
    is_whole : bool
        Whether there is one block.
    threads : int
        How many may go over the blocks.
    """

    __slots__ = (
        "body",
        "cuts",
        "folds",
        "is_whole",
        "order",
        "out",
        "shape",
        "shares",
        "threads",
    )

    def __init__(
        self,
        shape: tuple[int, ...],
        order: tuple[int, ...],
        folds: list[Fold | None],
        out: Fold,
        cuts: list[Cuts],
        body: BlockBody,
        threads: int,
    ) -> None:
        self.shape: tuple[int, ...] = shape
        self.order: tuple[int, ...] = order
        self.folds: list[Fold | None] = folds
        self.out: Fold = out
        self.cuts: list[Cuts] = cuts
        self.body: BlockBody = body
        # What one thread takes at a time.
        self.shares: list[Cuts] = cuts if threads == 1 else [*_shares(cuts, threads)]
        self.threads: int = min(threads, len(self.shares))
        self.is_whole: bool = len(cuts) == 1 and len(cuts[0].keys) == 1

    def empty(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """A new array like the results of NumPy."""
        axes = [i for i in self.order if self.shape[i] != 1]
        if axes == sorted(axes):
            return np.empty(self.shape, dtype)
        if axes == sorted(axes, reverse=True):
            return np.empty(self.shape, dtype, "F")
        sizes = [self.shape[i] for i in self.order]
        back = np.argsort(self.order)
        one = np.lib.stride_tricks.as_strided(
            np.empty(1, dtype), self.shape, strides_of(sizes, dtype.itemsize)[back]
        )
        return np.empty_like(one)  # of which no element is read

    def go(
        self,
        function: Any,
        values: Sequence[Any],
        outs: Sequence[np.ndarray[Any, Any]],
    ) -> None:
        """Call the function of a body for each block."""
        views = [
            v if fold is None else fold.of(v)
            for v, fold in zip(values, self.folds, strict=True)
        ]
        views += [self.out.of(out) for out in outs]
        dtypes = self.body.scratch
        if self.is_whole:
            shape = self.cuts[0].shape
            function(*views, *[np.empty(shape, dtype) for dtype in dtypes])
            return
        most = max(math.prod(cuts.shape) for cuts in self.cuts)

        def begin() -> Any:
            scratch = [np.empty(most, dtype) for dtype in dtypes]
            return partial(_go_over, function, views, scratch)

        team.run_over(self.shares, begin, self.threads)


def _go_over(
    function: Any,
    views: Sequence[Any],
    scratch: Sequence[np.ndarray[Any, Any]],
    cuts: Cuts,
) -> None:
    """Call the function of a body for some blocks."""
    size = math.prod(cuts.shape)
    own = [t[:size].reshape(cuts.shape) for t in scratch]
    columns = [_blocks(v, cuts) for v in views]
    blocks = zip(*columns, *map(repeat, own), strict=False)
    deque((function(*b) for b in blocks), maxlen=0)


def _shares(cuts: Sequence[Cuts], threads: int) -> Iterator[Cuts]:
    """Blocks in parts, of which each thread takes several, so that all end at one time."""
    for some in cuts:
        step = -(-len(some.keys) // (4 * threads))
        for i in range(0, len(some.keys), step):
            yield Cuts(some.shape, some.keys[i : i + step])


def _blocks(view: Any, cuts: Cuts) -> Iterable[Any]:
    """The blocks of an array, one after the other."""
    if type(view) is not np.ndarray or view.ndim == 0:
        return repeat(view)
    ones = [i for i, n in enumerate(view.shape) if n == 1]
    if len(ones) == view.ndim:
        return repeat(view)
    if not ones:
        keys: Iterable[Any] = cuts.keys
    else:
        every = slice(None)
        keys = [
            tuple([every if i in ones else k for i, k in enumerate(key)])
            for key in cuts.keys
        ]
    if view.ndim == 1:
        keys = [key[0] for key in keys]
    return map(view.__getitem__, keys)
