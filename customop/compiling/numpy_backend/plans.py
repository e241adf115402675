"""How a run goes over arrays: its blocks, and the threads that take them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from customop.compiling.numpy_backend.body import BlockBody
from customop.compiling.numpy_backend.layout import Cuts, Fold, cuts_from, strides_of
from customop.compiling.numpy_backend.limits import limits
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
        "_shares",
        "body",
        "cuts",
        "folds",
        "is_whole",
        "order",
        "out",
        "shape",
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
        shares = _shares(cuts, threads)
        self.threads: int = min(threads, len(shares))
        # First element at a line of the cache -> the ends, and what one thread takes at
        # a time.
        self._shares: dict[int, tuple[list[Cuts], list[Cuts]]] = {0: ([], shares)}
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
        are_new: bool,
    ) -> None:
        """Call the function of a body for each block.

        Parameters
        ----------
        function : callable
        values : sequence
            The operands.
        outs : sequence of numpy.ndarray
            Take the results.
        are_new : bool
            Whether these are no operands: then an element may be computed twice.
        """
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
        first = _first_at_line(outs[0]) if are_new and outs else 0
        ends, shares = self._shares_from(first)
        most = max(math.prod(cuts.shape) for cuts in (*ends, *shares))

        def begin() -> Any:
            scratch = [_empty_at_line(most, dtype) for dtype in dtypes]
            return partial(_go_over, function, views, scratch)

        if ends:  # alone: they overlap the others, which other threads may compute
            team.run_over(ends, begin, 1)
        team.run_over(shares, begin, self.threads)

    def _shares_from(self, first: int) -> tuple[list[Cuts], list[Cuts]]:
        """The ends, and what one thread takes at a time, for blocks that begin there."""
        if len(self.cuts[0].shape) > 1:
            first = 0
        found = self._shares.get(first)
        if found is None:
            length, usual = math.prod(self.shape), math.prod(self.cuts[0].shape)
            ends, cuts = cuts_from(first, length, usual)
            shares = _shares(cuts, self.threads)
            found = self._shares[first] = (ends, shares) if ends else self._shares[0]
        return found


def _first_at_line(x: np.ndarray[Any, Any]) -> int:
    """The number of the first element that begins at a line of the cache; 0 if none does.

    Large arrays of NumPy begin 16 bytes after one. A chain of ten calls takes 5 to 10 %
    less time where blocks and scratch arrays do not (NumPy 2.4, AVX-512).
    """
    at, size = x.__array_interface__["data"][0], x.itemsize
    return -at % limits.line // size if not at % size else 0


def _empty_at_line(size: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A scratch array that begins at a line of the cache."""
    bytes_ = size * dtype.itemsize
    memory = np.empty(bytes_ + limits.line, np.uint8)
    first = _first_at_line(memory)
    return memory[first : first + bytes_].view(dtype)


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


def _shares(cuts: list[Cuts], threads: int) -> list[Cuts]:
    """Blocks in parts, of which each thread takes several, so that all end at one time."""
    if threads == 1:
        return cuts
    steps = [-(-len(some.keys) // (4 * threads)) for some in cuts]
    return [
        Cuts(some.shape, some.keys[i : i + step])
        for some, step in zip(cuts, steps, strict=True)
        for i in range(0, len(some.keys), step)
    ]


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
