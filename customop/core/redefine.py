"""A second definition of a name: the same operator again, or another one."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from time import sleep
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from customop.arrays.nested import show
from customop.core.rule_kind import Definition, Site, same_place
from customop.errors import innermost

# ---- whether a definition of a known name runs again, or makes a second operator ----


def runs_again(old: Definition, new: Definition) -> bool:
    """Return whether the second definition comes from the same code, run again."""
    if old.site is None or new.site is None:
        return False
    names = (old.site.code.co_filename, new.site.code.co_filename)
    if not _same_run(old.site, new.site) and same_place(*names):
        return True
    return _was_loaded_again(_code(old.fn), _code(new.fn))


def is_newer(old: Any, new: Any) -> bool:
    """Return whether the second function is a newer version, from a cell or module run again."""
    first, second = _code(old), _code(new)
    if first is None or second is None or first is second:
        return False
    is_named = first.co_name not in ("<lambda>", "_")
    return (
        is_named
        and first.co_qualname == second.co_qualname
        and same_place(first.co_filename, second.co_filename)
    )


def _same_run(old: Site, new: Site) -> bool:
    """Return whether two sites belong to one run of one module or cell.

    Code objects are compared by identity: those of the same text are equal.
    """
    return old.code is new.code and old.namespace == new.namespace


def _was_loaded_again(old: CodeType | None, new: CodeType | None) -> bool:
    """Return whether the second function comes from a module that was loaded again."""
    if old is None or new is None or old is new:
        return False
    if old.co_filename != new.co_filename or old.co_filename.startswith("<"):
        return False
    is_named = old.co_name not in ("<lambda>", "_")
    return old == new or (is_named and old.co_qualname == new.co_qualname)


def is_doubtful(old: Definition, new: Definition) -> bool:
    """Return whether two cells may mean two operators, not one that was edited."""
    if old.site is None or new.site is None or old.site.code == new.site.code:
        return False
    names = (old.site.code.co_filename, new.site.code.co_filename)
    if names[0] == names[1] and not names[0].startswith("<"):
        return False
    first, second = _code(old.fn), _code(new.fn)
    if first is None or second is None or _is_declared(new):
        return False
    return first is second or first.co_qualname != second.co_qualname


def _code(fn: Any) -> CodeType | None:
    """Return the code of a function, or of the function inside its wrappers."""
    found = getattr(innermost(fn), "__code__", None)
    return found if isinstance(found, CodeType) else None


# ---- functions that compute the same ----


def same_definition(old: Definition, new: Definition) -> bool:
    """Return whether two definitions surely make the same operator."""
    is_declared = _is_declared(old) and _is_declared(new)
    same_types = old.schema == new.schema and old.tags == new.tags
    return same_types and (is_declared or _same(old.fn, new.fn, ()))


def _is_declared(definition: Definition) -> bool:
    """Return whether a definition has a schema and no function."""
    return getattr(definition.fn, "is_declared", False)


_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_Pairs = tuple[tuple[Any, Any], ...]


def _same(old: Any, new: Any, above: _Pairs) -> bool:
    """Return whether two values are surely equal; functions are compared by code and values."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, _PLAIN):
        return repr(old) == repr(new)
    if any(old is a and new is b for a, b in above):  # a function that calls itself
        return True
    parts, others = _parts(old), _parts(new)
    if parts is None or others is None or len(parts) != len(others):
        return False
    return all(map(_same, parts, others, repeat((*above, (old, new)))))


def _parts(value: Any) -> Sequence[Any] | None:
    """Return the values that decide what a function computes; None for other objects."""
    if isinstance(value, FunctionType):
        return _parts_of_function(value)
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, CellType):
        return contents(value)
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, tuple) else None


def _parts_of_function(fn: FunctionType) -> list[Any]:
    # By identity: the code of the same text, loaded twice, is equal.
    own = [id(fn.__code__), id(fn.__globals__), fn.__defaults__, fn.__kwdefaults__]
    return [*own, fn.__closure__, fn.__dict__]


def contents(cell: CellType) -> list[Any]:
    """Return what a cell holds, as a list of one; of none if it is filled later."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def difference(old: Any, new: Any) -> str:
    """Say which name has different values in two functions with the same code."""
    first, second = innermost(old), innermost(new)
    if not isinstance(first, FunctionType) or not isinstance(second, FunctionType):
        return ""
    cells = zip(first.__closure__ or (), second.__closure__ or (), strict=False)
    for name, (a, b) in zip(first.__code__.co_freevars, cells, strict=False):
        if not _same(a, b, ()):
            was, now = show(*contents(a)), show(*contents(b))
            return f"'{name}' is {now} in the second, and {was} in the first"
    return ""


# ---- whether anything but the registry refers to an operator ----


# Called before holders are counted: they let go of operators that they merely remember.
releases: list[Callable[[], object]] = []

# The search gives up after this many objects: a kernel may refer to any number.
_MOST = 20_000
# The registry has each operator twice: by its name, and by its namespace.
_BY_REGISTRY = 2


def is_held(operators: Mapping[str, Any], qualname: str) -> bool:
    """Return whether anything but the registry refers to the operator of a name."""
    for release in releases:
        release()
    if not _has_holder(operators, qualname):
        return False
    for generation in range(3):  # it may be garbage itself
        _collect(generation)
        if not _has_holder(operators, qualname):
            return False
    return True


def _collect(generation: int) -> None:
    """Run the collector, once that of another thread is done.

    Finalizers let other threads run. Until they are done, Python skips collections that
    these ask for, and objects that are garbage by now seem to hold the operator.
    """
    for _ in range(_TIMES):
        before = gc.get_stats()[generation]["collections"]
        gc.collect(generation)
        if gc.get_stats()[generation]["collections"] > before:
            return
        sleep(_SECONDS)


# A finalizer may itself define an operator, so that the wait has an end.
_TIMES = 100
_SECONDS = 0.01


def _has_holder(operators: Mapping[str, Any], qualname: str) -> bool:
    """Return whether anything refers to the operator that it does not itself reach.

    An operator refers to itself, so its reference count alone does not answer this. Like
    the garbage collector, this counts the references among the objects that the operator
    reaches: an object with more references is held from outside. It takes 1 ms where a
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
    """List the indices of what each object refers to; `found` grows to all that is reached.

    Return None if these are too many.
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
    """Return whether an object is a module, its namespace or a class of one.

    The namespace of a generated call has no name, an object no builtins, and a class
    that is made for an operator cannot be found by its name.
    """
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        return value.__module__ == "builtins" or hasattr(module, value.__name__)
    is_namespace = type(value) is dict and {"__name__", "__builtins__"} <= value.keys()
    return is_namespace or isinstance(value, ModuleType)


def _reaching(edges: list[list[int]]) -> set[int]:
    """Return the indices of the objects from which the first one can be reached."""
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
