"""Make in this process what every child would make again."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from customop.arrays.numpy_functions import call_numpy
from customop.core.observe import open_modes
from customop.core.registry import find_operator
from customop.core.samples import Sample
from customop.testing.checks.check import Check, outcome_of, reported
from customop.testing.checks.session import Session
from customop.testing.quiet import random_state_kept

__all__ = ["warm_up"]

_warm: set[str] = set()


def warm_up(checks: Iterable[Check]) -> None:
    """Run checks once on an operator of ours, which is known to be right.

    The checks call NumPy's functions, whose operators and rules are compiled when they
    are first called: 9 ms of a child, which are lost as it ends.
    """
    cold = [check for check in checks if check.name not in _warm]
    if not cold or open_modes:  # which would see these calls
        return
    # Gradients that vanish, which those of a product never do.
    call_numpy(np.zeros_like, np.ones(3))
    op = find_operator("np::multiply")
    with random_state_kept():
        for check in cold:
            _warm.add(check.name)
            session = Session(op, [Sample((np.ones(3), np.ones(3)))])
            outcome_of(check, session, reported)
