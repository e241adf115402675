"""From which size on arrays are cut into blocks, and into which.

Measured on a processor with 48 KB and 2 MB of cache for each core, NumPy 2.4.
"""

from __future__ import annotations

__all__ = ["Limits", "limits"]


class Limits:
    """Numbers of elements and bytes; tests set smaller ones.

    Attributes
    ----------
    elements : int
        Smaller calls are never in a run.
    certain : int
        From so many bytes of operands and results on a run takes less time. Calls one by
        one reuse memory too, and what is less stays in the cache of a processor.
    work : int
        The same, times the calls after the first one: a run of two saves little.
    in_place : int
        From so many elements on a run that writes in place takes less time: its calls one
        by one make no temporaries.
    whole : int
        An array of so many bytes is one block: what is written stays in cache.
    alone : int
        The same for all operands and results together, where no scratch array is needed.
    most, least : int
        Bytes of an array in a block.
    line : int
        Bytes of a line of the cache. A register that crosses two of them takes longer.
    together : int
        Bytes of all arrays in a block, about half of the cache.
    share : int
        What a thread should do at least: the elements of all calls of a run. To wake one
        takes about 50 us.
    share_of_one : int
        The same, of the elements of one call, which are read and written in memory.
    most_shared, together_shared : int
        Bytes of an array, and of all arrays, in a block where several threads run: only
        one of them can begin a call of NumPy at a time, so these must take some 10 us.
    multiple : int
        Blocks have a multiple of so many elements: whole registers of the processor.
    """

    def __init__(self) -> None:
        self.elements: int = 1 << 13
        self.certain: int = 1 << 22
        self.work: int = 1 << 24
        self.in_place: int = 1 << 17
        self.whole: int = 1 << 19
        self.alone: int = 1 << 21
        self.most: int = 3 << 16
        self.least: int = 1 << 14
        self.together: int = 1 << 20
        self.share: int = 1 << 21
        self.share_of_one: int = 1 << 18
        self.most_shared: int = 1 << 20
        self.together_shared: int = 1 << 21
        self.multiple: int = 64
        self.line: int = 64


limits: Limits = Limits()
