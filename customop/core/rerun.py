"""Whether a definition of a known name runs again, or makes a second operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from customop.arrays.describe import show
from customop.core.declared import Declared
from customop.core.definition import Definition, Site, same_place
from customop.errors import innermost

__all__ = ["difference", "is_doubtful", "is_newer", "runs_again", "same_definition"]


def runs_again(old: Definition, new: Definition) -> bool:
    """Whether the code that made the first definition has run again for the second."""
    if old.site is None or new.site is None:
        return False
    names = (old.site.code.co_filename, new.site.code.co_filename)
    if not _same_run(old.site, new.site) and same_place(*names):
        return True
    return _was_loaded_again(_code(old.fn), _code(new.fn))


def is_newer(old: Any, new: Any) -> bool:
    """Whether a function is another by code that ran again: of a cell, or of a module."""
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
    """Whether two sites are one run of one module or cell.

    Code objects are compared by identity: those of the same text are equal.
    """
    return old.code is new.code and old.namespace == new.namespace


def _was_loaded_again(old: CodeType | None, new: CodeType | None) -> bool:
    """Whether a function is a newer version of another, of a module loaded again."""
    if old is None or new is None or old is new:
        return False
    if old.co_filename != new.co_filename or old.co_filename.startswith("<"):
        return False
    is_named = old.co_name not in ("<lambda>", "_")
    return old == new or (is_named and old.co_qualname == new.co_qualname)


def is_doubtful(old: Definition, new: Definition) -> bool:
    """Whether two cells may define two operators, rather than one that was edited."""
    if old.site is None or new.site is None or old.site.code == new.site.code:
        return False
    names = (old.site.code.co_filename, new.site.code.co_filename)
    if names[0] == names[1] and not names[0].startswith("<"):
        return False
    first, second = _code(old.fn), _code(new.fn)
    if first is None or second is None or isinstance(new.fn, Declared):
        return False
    return first is second or first.co_qualname != second.co_qualname


def _code(fn: Any) -> CodeType | None:
    """The code of a function, or of the function inside wrappers."""
    found = getattr(innermost(fn), "__code__", None)
    return found if isinstance(found, CodeType) else None


# ---- functions that compute the same ----


def same_definition(old: Definition, new: Definition) -> bool:
    """Whether two definitions surely make the same operator."""
    is_declared = isinstance(old.fn, Declared) and isinstance(new.fn, Declared)
    same_types = old.schema == new.schema and old.tags == new.tags
    return same_types and (is_declared or _same(old.fn, new.fn, ()))


_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_Pairs = tuple[tuple[Any, Any], ...]


def _same(old: Any, new: Any, above: _Pairs) -> bool:
    """Whether two values are surely equal: functions by their code and values."""
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
    """The values that say what a function computes; None for other objects."""
    if isinstance(value, FunctionType):
        return _parts_of_function(value)
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, CellType):
        return _contents(value)
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, tuple) else None


def _parts_of_function(fn: FunctionType) -> list[Any]:
    # By identity: the code of the same text, loaded twice, is equal.
    own = [id(fn.__code__), id(fn.__globals__), fn.__defaults__, fn.__kwdefaults__]
    return [*own, fn.__closure__, fn.__dict__]


def _contents(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # a cell that is filled later
        return []


def difference(old: Any, new: Any) -> str:
    """A name that has other values in two functions of one code, and both values."""
    first, second = innermost(old), innermost(new)
    if not isinstance(first, FunctionType) or not isinstance(second, FunctionType):
        return ""
    cells = zip(first.__closure__ or (), second.__closure__ or (), strict=False)
    for name, (a, b) in zip(first.__code__.co_freevars, cells, strict=False):
        if not _same(a, b, ()):
            was, now = show(*_contents(a)), show(*_contents(b))
            return f"'{name}' is {now} in the second, and {was} in the first"
    return ""
