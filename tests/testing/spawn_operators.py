"""Operators of a module, for a process that imports it."""

from __future__ import annotations

import os

import numpy as np

import customop as co

FACTOR = 2.0


@co.custom_op("spawned::fine", mutates_args=())
def fine(x: np.ndarray) -> np.ndarray:
    """Do no wrong."""
    return x * FACTOR


@co.custom_op("spawned::ends", mutates_args=())
def ends(x: np.ndarray) -> np.ndarray:
    """End the process for arrays without elements."""
    if not x.size:
        os.abort()
    return x * FACTOR


@co.custom_op("spawned::wrong", mutates_args=())
def wrong(x: np.ndarray) -> np.ndarray:
    """Read the memory, not the array."""
    return x * (2.0 if x.flags.c_contiguous else 3.0)


@co.custom_op("spawned::picky", mutates_args=())
def picky(x: np.ndarray) -> np.ndarray:
    """End the process for arrays without axes, which a search for inputs tries."""
    if not x.ndim:
        os._exit(4)
    return x * FACTOR


@co.custom_op("spawned::hangs", mutates_args=())
def hangs(x: np.ndarray) -> np.ndarray:
    """Take for ever for arrays without elements."""
    while not x.size:
        pass
    return x * FACTOR


for op in (fine, ends, wrong, picky, hangs):
    op.register_fake(lambda x: co.fake_like(x, dtype=np.result_type(x.dtype, 1.0)))
