"""Find the outside arrays that every run of a function writes by plain NumPy.

A write of the bytes that an array holds already leaves no trace in it. So the code is read
for stores that no branch, loop, return or handler can skip. Nothing is found after the
first ``try`` or ``with``, or on versions of Python whose code is not known here.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Sequence
from functools import cache
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.trampolines import IS_KNOWN, VERSION, place_under
from customop.core.reach import content, is_installed

# ---- what code says ----


class _NamePath(NamedTuple):
    """The kind of a name that code loads, the name, and the attributes after it."""

    kind: str
    name: str
    attributes: tuple[str, ...]


class _Use(NamedTuple):
    """A value that code stores into, or calls.

    Attributes
    ----------
    path : _NamePath
    place : int
        The step that loads it.
    is_store : bool
    is_first : bool
        Whether the code looks nothing up before. A store then writes all elements.
    """

    path: _NamePath
    place: int
    is_store: bool
    is_first: bool = True


@cache
def _certain_uses(code: CodeType) -> list[_Use]:
    """Return what every run of a code object that returns has stored into or called."""
    found: list[_Use] = []
    if not IS_KNOWN or code.co_flags & _RUNS_LATER:
        return found
    listing: Any = dis.Bytecode(code)
    guarded = [range(part.start, part.end) for part in listing.exception_entries]
    steps: list[dis.Instruction] = [*listing]
    bound, changed = _names_bound(steps)
    first_read: int | None = None  # after the last store that came first
    landing = 0  # the last place that a jump so far may lead to
    for at, step in enumerate(steps):
        # Handlers, and the code after them, are not read.
        is_guarded = any(step.offset in part for part in guarded)
        if is_guarded or step.opname.startswith("RETURN_"):
            break
        use = _use_in(steps, at) if landing <= step.offset else None
        is_read = step.opname.startswith(_READS)
        if use is not None and not _is_bound_in(use.path, bound, changed):
            begin = use.place - len(use.path.attributes)
            is_late = first_read is not None and first_read < begin
            use = use._replace(is_first=use.is_first and not is_late)
            if use.is_store and use.is_first:
                first_read, is_read = None, False
            found.append(use)
        if is_read and first_read is None:
            first_read = at
        if step.opcode in dis.hasjrel:
            landing = max(landing, step.argval)
    return found


def _use_in(steps: Sequence[dis.Instruction], at: int) -> _Use | None:
    """Return what a step stores into, or what it loads to call it."""
    step = steps[at]
    if step.opname in _STORES and not step.is_jump_target:
        found = place_under(steps[:at], _STORES[step.opname])
        path = None if found is None else _path_of(steps, found[0])
        if found is None or path is None:
            return None
        return _Use(path, found[0], True, _is_of_all(steps[:at], step.opname))
    path = _path_of(steps, at) if _loads_callee(steps, at) else None
    if path is None:
        return None
    *owner, name = (path.name, *path.attributes)
    if not owner or name not in _WRITERS:
        return _Use(path, at, False)
    path = path._replace(attributes=path.attributes[:-1])
    return _Use(path, at - 1, True, name == "fill")


def _is_of_all(before: Sequence[dis.Instruction], name: str) -> bool:
    """Return whether a store is into ``x[...]`` or ``x[:]``."""
    last = before[-1]
    if name == "STORE_SUBSCR" and last.opname == "LOAD_CONST":
        return last.argval is Ellipsis
    if last.opname == "BUILD_SLICE" and last.arg == 2:  # start and stop
        before = before[:-1]
    elif name != "STORE_SLICE":
        return False
    ends = before[-2:]
    return all(s.opname == "LOAD_CONST" and s.argval is None for s in ends)


def _loads_callee(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Return whether a step loads a method, or a function by its name, that is called."""
    step = steps[at]
    has_bit = (step.arg or 0) & 1 == 1
    if step.opname == "LOAD_ATTR":
        return has_bit and VERSION >= (3, 12)
    after = steps[at + 1 : at + 2]
    if any(other.opname == "LOAD_ATTR" for other in after):
        return False
    if step.opname == "LOAD_DEREF":
        return any(s.opname == "PUSH_NULL" for s in (*steps[at - 1 : at], *after))
    return step.opname == "LOAD_METHOD" or (step.opname == "LOAD_GLOBAL" and has_bit)


def _path_of(steps: Sequence[dis.Instruction], at: int) -> _NamePath | None:
    """Return how a step loads its value; None if not by names alone."""
    attributes: list[str] = []
    while steps[at].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        if steps[at].is_jump_target:
            return None
        attributes.insert(0, steps[at].argval)
        at -= 1
    step = steps[at]
    if step.opname not in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_FAST"):
        return None
    return _NamePath(step.opname, step.argval, (*attributes,))


def _names_bound(
    steps: Sequence[dis.Instruction],
) -> tuple[set[tuple[str, str]], set[str]]:
    """Return the kinds and names that code gives other values, and such attributes."""
    bound: set[tuple[str, str]] = set()
    changed: set[str] = set()
    for step in steps:
        action, _, kind = step.opname.partition("_")
        name = step.argval
        if step.opname == "STORE_ATTR":
            changed.add(name)
        elif "STORE_FAST" in step.opname:
            # Two local variables, from Python 3.13 on; the other may be loaded.
            names = name if isinstance(name, tuple) else (name,)
            bound.update(("LOAD_FAST", each) for each in names)
        elif action in ("STORE", "DELETE"):
            bound.add((f"LOAD_{kind}", name))
    return bound, changed


def _is_bound_in(
    path: _NamePath, bound: set[tuple[str, str]], changed: set[str]
) -> bool:
    """Return whether the code itself gives one of the names another value."""
    return (path.kind, path.name) in bound or not changed.isdisjoint(path.attributes)


# Instructions that store into a value -> how many values are above that.
_STORES = {"STORE_SUBSCR": 1, "STORE_SLICE": 2}
# Instructions that may read an array from outside, or run code that does.
_READS = ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD", "CALL", "IMPORT_")
# Methods of arrays that write them.
_WRITERS = ("fill", "sort", "partition", "put")
_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

# ---- what a function reaches ----


def certainly_written(
    fn: Any, args: Sequence[Any] = (), *, is_first: bool = False
) -> list[np.ndarray]:
    """Return arrays that each run of a function writes by values that are not traced.

    The functions that it certainly calls count, too. Only code of the user is read.

    Parameters
    ----------
    fn : callable
    args : sequence
        Its arguments, of which the first may be an object that holds arrays.
    is_first : bool
        Whether to return only those of which it writes all elements before it looks
        anything up.

    Returns
    -------
    list of numpy.ndarray
    """
    found: list[np.ndarray] = []
    waiting: list[tuple[Any, Sequence[Any]]] = [(_called_as(fn), args[:1])]
    seen: set[int] = set()
    while waiting:
        now, first = waiting.pop()
        if isinstance(now, MethodType):
            first, now = (now.__self__,), now.__func__
        if not isinstance(now, FunctionType) or id(now) in seen:
            continue
        seen.add(id(now))
        module = now.__globals__.get("__name__")
        if not isinstance(module, str) or is_installed(module):
            continue
        for use in _certain_uses(now.__code__):
            if is_first and not use.is_first:
                continue
            value = _value_at(use.path, now, first)
            if not use.is_store:
                waiting.append((value, ()))
            elif isinstance(value, np.ndarray):
                found.append(value)
    return found


def _called_as(fn: Any) -> Any:
    """Return the method that a call of an object runs; functions as they are."""
    if isinstance(fn, FunctionType | MethodType):
        return fn
    call = inspect.getattr_static(type(fn), "__call__", None)
    return MethodType(call, fn) if isinstance(call, FunctionType) else None


def _value_at(path: _NamePath, fn: FunctionType, first: Sequence[Any]) -> Any:
    """Return what a path leads to, without running code; None if that is not known."""
    code = fn.__code__
    value: Any = None
    if path.kind == "LOAD_GLOBAL":
        value = fn.__globals__.get(path.name)
    elif path.name in code.co_freevars:
        cells = fn.__closure__ or ()
        value = content(cells[code.co_freevars.index(path.name)])
    elif first and code.co_argcount and path.name == code.co_varnames[0]:
        value = first[0]
    for name in path.attributes:
        value = _attribute(value, name)
    return value


def _attribute(owner: Any, name: str) -> Any:
    value = inspect.getattr_static(owner, name, None)
    is_own = isinstance(owner, ModuleType | type) or name in getattr(
        owner, "__dict__", ()
    )
    if isinstance(value, FunctionType) and not is_own:
        return MethodType(value, owner)
    return value
