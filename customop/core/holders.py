"""Whether anything but the registry refers to an operator."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

from customop.core.registry import operators

__all__ = ["is_held", "releases"]

# Called before holders are counted: they let go of operators that they merely remember.
releases: list[Callable[[], object]] = []

# A kernel can refer to as much as its author likes.
_MOST = 20_000
# The registry has each operator twice: by its name, and by its namespace.
_BY_REGISTRY = 2


def is_held(qualname: str) -> bool:
    """Whether the operator of a name can be reached without the registry."""
    for release in releases:
        release()
    if not _has_holder(qualname):
        return False
    for generation in range(3):  # it may be garbage itself
        gc.collect(generation)
        if not _has_holder(qualname):
            return False
    return True


def _has_holder(qualname: str) -> bool:
    """Whether anything that the operator does not reach refers to it.

    An operator refers to itself, so its reference count alone does not say it. As a
    collection of garbage does, this counts the references among all that the operator
    reaches: an object with further ones is held from outside. It takes 1 ms where a
    collection takes 100.
    """
    found: list[Any] = [operators[qualname]]
    edges = _edges(found)
    if edges is None:
        return True
    counts = Counter(target for targets in edges for target in targets)
    counts[0] += _BY_REGISTRY
    found.append([])  # held by the list alone, which shows what counting adds
    references = [sys.getrefcount(value) for value in found]
    added = references.pop()
    return any(references[i] - added > counts[i] for i in _reaching(edges))


def _edges(found: list[Any]) -> list[list[int]] | None:
    """Indices of what each object refers to; `found` grows to all that can be reached.

    None where that is too much to look at.
    """
    index = {id(found[0]): 0}
    edges: list[list[int]] = []
    while len(edges) < len(found) <= _MOST:
        targets = []
        for value in gc.get_referents(found[len(edges)]):
            if id(value) not in index:
                if not gc.is_tracked(value) or _is_shared(value):
                    continue
                index[id(value)] = len(found)
                found.append(value)
            targets.append(index[id(value)])
        edges.append(targets)
    return edges if len(edges) == len(found) else None


def _is_shared(value: Any) -> bool:
    """Whether an object is a module, its namespace or a class of one.

    The namespace of a generated call has no name, an object no builtins, and a class
    that is made for an operator cannot be found by its name.
    """
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        return value.__module__ == "builtins" or hasattr(module, value.__name__)
    is_namespace = type(value) is dict and {"__name__", "__builtins__"} <= value.keys()
    return is_namespace or isinstance(value, ModuleType)


def _reaching(edges: list[list[int]]) -> set[int]:
    """Indices of the objects that the first one can be reached from."""
    sources: dict[int, list[int]] = {}
    for source, targets in enumerate(edges):
        for target in targets:
            sources.setdefault(target, []).append(source)
    reaching, todo = {0}, [0]
    while todo:
        new = {*sources.get(todo.pop(), ())} - reaching
        reaching |= new
        todo += new
    return reaching
