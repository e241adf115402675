"""A row of the conformance table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One call that every check runs on.

    Attributes
    ----------
    name : str
        Unique; test ids show it.
    fn : callable
        A plain function of arrays, in ``np.`` code.
    args, kwargs : tuple, dict
        Its arguments, with NumPy arrays.
    diff : tuple of int
        Positions of the arguments to differentiate by.
    vmap : bool
        Whether the call can be batched.
    second : bool
        Whether second derivatives are checked.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    diff: tuple[int, ...] = ()
    vmap: bool = True
    second: bool = True
