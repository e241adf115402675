"""Attributes of `ctx` that a backward formula reads and that nothing sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from typing import NamedTuple

from mypy.nodes import LambdaExpr

from customop.core.rule_types import Context
from customop.mypy.functions import Function
from customop.mypy.trees import SourceOfFunction, Survey
from customop.transforms.autograd.node import GradNode

__all__ = ["Unset", "known_attribute", "unset_attributes"]

_KNOWN = {*dir(Context), *dir(GradNode)}


class Unset(NamedTuple):
    """A read of an attribute by `backward` or `setup_context`, and its place."""

    by: str
    name: str
    line: int
    column: int


class _Uses(NamedTuple):
    """The uses that a function makes of its first parameter."""

    reads: list[ast.Attribute]
    sets: set[str]


def unset_attributes(
    backward: Function, setup_context: Function | None, survey: Survey
) -> Iterator[Unset]:
    """Reads of attributes that neither function sets, if all uses of `ctx` are plain."""
    mine = _uses(backward, survey)
    theirs = _uses(setup_context, survey) if setup_context else _Uses([], set())
    if mine is None or theirs is None:
        return
    known = {*_KNOWN, *mine.sets, *theirs.sets}
    for by, uses in (("setup_context", theirs), ("backward", mine)):
        for read in uses.reads:
            if read.attr not in known:
                yield Unset(by, read.attr, read.lineno, read.col_offset)


def known_attribute(name: str) -> str:
    """The attribute of a context whose name is close to another one, or nothing."""
    return "".join(get_close_matches(name, vars(Context), 1, cutoff=0.85))


def _uses(function: Function, survey: Survey) -> _Uses | None:
    """How a function uses its context; None if the context goes elsewhere."""
    source = _source(function, survey)
    given = [*source.args.posonlyargs, *source.args.args] if source else []
    if source is None or not given:
        return None
    name, found = given[0].arg, _Uses([], set())
    seen: set[ast.AST] = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and _is_name(node.value, name):
            seen.add(node.value)
            if isinstance(node.ctx, ast.Load):
                found.reads.append(node)
            else:
                found.sets.add(node.attr)
        elif isinstance(node, ast.Call) and _is_name(node.func, "setattr"):
            target, *rest = node.args
            if _is_name(target, name) and rest and isinstance(rest[0], ast.Constant):
                seen.add(target)
                found.sets.add(str(rest[0].value))
    names = [node for node in ast.walk(source) if _is_name(node, name)]
    return found if all(node in seen for node in names) else None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _source(function: Function, survey: Survey) -> SourceOfFunction | None:
    node = function.node
    if node is None:
        return None
    kinds = ast.Lambda if isinstance(node, LambdaExpr) else ast.FunctionDef
    found = [f for f in survey.functions.get(node.line, []) if isinstance(f, kinds)]
    return found[0] if len(found) == 1 else None
