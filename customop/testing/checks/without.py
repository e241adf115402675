"""The arguments by which an operator says that it has no derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.core.kinds import AUTOGRAD
from customop.core.samples import Sample
from customop.errors import NoDerivativeError
from customop.testing.checks.session import Session, floats_of
from customop.testing.checks.smooth import function_of, ones_like
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp

__all__ = ["without_derivative"]


def without_derivative(session: Session, sample: Sample) -> dict[str, str]:
    """Place of an argument -> why the call has no derivative by it at these values.

    Each is asked for alone: its formula raises `NoDerivativeError`.
    """
    found = {}
    for name in floats_of(session.op, session.bound(sample)):
        try:
            _derive(session, sample, name)
        except NoDerivativeError as error:
            found[name] = error.what
    return found


def _derive(session: Session, sample: Sample, name: str) -> Any:
    """The derivative of all results by one argument."""
    call, chosen = function_of(session, session.values(sample), [name])
    if session.op.find_rule(AUTOGRAD) is None:
        primals = (*chosen.values(),)
        return jvp(call, primals, tuple(map(np.ones_like, primals)))
    out, pullback = vjp(call, *chosen.values())
    return pullback(tuple(map(ones_like, out)))
