"""Code that transforms run reads the user's own error settings of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.ones(3)
SETTINGS: dict[str, Any] = {
    "divide": "raise",
    "over": "ignore",
    "under": "print",
    "invalid": "call",
}


def _note(text: str, flag: int) -> None:
    """Take the errors that are called for."""


def _in_make_fx(body: Callable[..., Any], mode: Any) -> Any:
    return co.make_fx(body, mode)(X)(X)


def _in_control(body: Callable[..., Any], mode: Any) -> Any:
    def fn(x: Any) -> Any:
        y = co.cond(x.sum() > 0, body, body, x)
        _, z = co.scan(lambda carry, row: (carry, body(row)), 0.0, x)
        return y + z + co.map(body, x) + co.checkpoint(body)(x)

    return co.make_fx(fn, mode)(X)(X)


WAYS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    **{
        f"{way.__name__} {mode}": lambda body, way=way, mode=mode: way(body, mode)
        for way in (_in_make_fx, _in_control)
        for mode in ("real", "fake", "symbolic")
    },
    "cond": lambda body: co.cond(X.sum() > 0, body, body, X),
    "scan": lambda body: co.scan(lambda c, row: (c, body(row)), 0.0, X),
    "map": lambda body: co.map(body, X),
    "checkpoint": lambda body: co.grad(co.checkpoint(lambda x: body(x).sum()))(X),
    "grad": lambda body: co.grad(lambda x: body(x).sum())(X),
    "jvp": lambda body: co.jvp(body, (X,), (X,)),
    "vmap": lambda body: co.vmap(body)(X),
    "eval_shape": lambda body: co.eval_shape(body, X),
}


@pytest.mark.parametrize("name", WAYS)
def test_code_reads_the_settings_of_the_user(name: str) -> None:
    found: list[Any] = []

    def body(x: Any) -> Any:
        found.append((np.geterr(), np.geterrcall()))
        return x * 2.0

    with np.errstate(**SETTINGS, call=_note):
        WAYS[name](body)
        expected = np.geterr(), np.geterrcall()
    assert found
    assert all(settings == expected for settings in found)
