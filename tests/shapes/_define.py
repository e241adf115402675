"""Operators made of a schema alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import customop as co


def definer(qualname: str) -> Callable[..., co.Operator[..., Any]]:
    """Make a function that defines one name again and again, each module its own."""

    def define(
        schema: str, fn: Callable[..., Any], **kwargs: Any
    ) -> co.Operator[..., Any]:
        return co.custom_op(qualname, fn, mutates_args=(), schema=schema, **kwargs)

    return define


def taking(schema: str) -> Any:
    """Make a function with the parameters of a schema, which returns None."""
    parameters = co.Schema.parse(schema).parameters
    names = [("*, " if p.kind == "keyword_only" else "") + p.name for p in parameters]
    # Written in the module that asks, where alone a name may be defined again.
    file = sys._getframe(1).f_code.co_filename
    fn: Any = eval(compile(f"lambda {', '.join(names)}: None", file, "eval"))
    fn.__kwdefaults__ = {p.name: None for p in parameters if p.default is None}
    return fn
