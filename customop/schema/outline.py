"""Signatures of functions, read fast, and the names around them.

Reading a signature by `inspect` and evaluating three hints by `typing` takes 30 us. Most
functions are plain, and their hints are classes: those are read from the code in 5 us.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import lru_cache
from inspect import Parameter
from typing import Any

from customop.frozen import Frozen

__all__ = ["PlainParameter", "PlainSignature", "names_around", "outline_of"]


class PlainParameter:
    """A parameter of a function, as an `inspect.Parameter` names its attributes."""

    __slots__ = ("default", "kind", "name")

    def __init__(self, name: str, kind: Any, default: Any) -> None:
        self.name: str = name
        self.kind: Any = kind
        self.default: Any = default


class PlainSignature(Frozen):
    """The parameters of a function, and the hints by their names and ``"return"``."""

    parameters: list[PlainParameter]
    hints: dict[str, type | None]


_VARIADIC = 0x04 | 0x08


def outline_of(
    fn: Callable[..., Any], scope: types.FrameType | None = None
) -> PlainSignature | None:
    """The parameters and hints of a plain function whose hints are classes; else None.

    Hints that are text may use the names of the frames from `scope` outwards.
    """
    # `__wrapped__` and the like, in `__dict__`, can change the signature.
    if type(fn) is not types.FunctionType or fn.__dict__:
        return None
    code = fn.__code__
    if code.co_flags & _VARIADIC:
        return None
    hints = _hints(fn, scope)
    if hints is None:
        return None
    count, by_place = code.co_argcount, code.co_posonlyargcount
    end = count + code.co_kwonlyargcount
    defaults: dict[str, Any] = dict(fn.__kwdefaults__ or ())
    own = fn.__defaults__ or ()
    defaults.update(zip(code.co_varnames[count - len(own) : count], own, strict=True))
    kinds = (
        *(Parameter.POSITIONAL_ONLY,) * by_place,
        *(Parameter.POSITIONAL_OR_KEYWORD,) * (count - by_place),
        *(Parameter.KEYWORD_ONLY,) * (end - count),
    )
    pairs = zip(code.co_varnames, kinds, strict=False)
    found = [
        PlainParameter(name, kind, defaults.get(name, _EMPTY)) for name, kind in pairs
    ]
    return PlainSignature(found, hints)


_EMPTY = Parameter.empty


def _hints(
    fn: types.FunctionType, scope: types.FrameType | None
) -> dict[str, type | None] | None:
    """The classes that the annotations of a function are; None if one is not a class."""
    found: dict[str, type | None] = {}
    names: dict[str, Any] | None = None
    for name, hint in fn.__annotations__.items():
        value = hint
        if type(hint) is str:
            if names is None:
                names = names_around(fn, scope)
            try:
                value = eval(_compiled(hint), fn.__globals__, names)  # noqa: S307  # text of the user's program
            except Exception:  # noqa: BLE001  # it says nothing, or raises an error there
                return None
        # `list[int]` is an instance of type, but its class is not.
        if value is not None and not issubclass(type(value), type):
            return None
        found[name] = value
    return found


@lru_cache(maxsize=512)
def _compiled(text: str) -> types.CodeType:
    return compile(text.lstrip(), "<annotation>", "eval")


# ---- names around a function ----


def names_around(fn: Any, scope: types.FrameType | None) -> dict[str, Any]:
    """Names around a function that are not in its module, from outside to inside."""
    names: dict[str, Any] = {}
    for frame in reversed(list(_enclosing(fn, scope))):
        names.update(frame.f_locals)
    names.update(_closure(fn))
    names.update({p.__name__: p for p in getattr(fn, "__type_params__", ())})
    return names


def _enclosing(fn: Any, scope: types.FrameType | None) -> Iterator[types.FrameType]:
    """Running frames that contain the code of a function, from inside to outside."""
    code = getattr(fn, "__code__", None)
    file = getattr(code, "co_filename", None)
    while scope is not None:
        outer = scope.f_code
        # Code of another file is ruled out first: `f_locals` is made again each time.
        is_near = outer.co_filename == file and scope.f_locals is not scope.f_globals
        if is_near and _holds(outer, code):
            yield scope
        scope = scope.f_back


def _holds(outer: types.CodeType, inner: object) -> bool:
    """Whether code contains other code, at any depth."""
    nested = [c for c in outer.co_consts if isinstance(c, types.CodeType)]
    return any(c is inner or _holds(c, inner) for c in nested)


def _closure(fn: Any) -> dict[str, Any]:
    """Names that a function takes from the functions around it."""
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    filled = {}
    for name, cell in zip(names, getattr(fn, "__closure__", None) or (), strict=True):
        try:
            filled[name] = cell.cell_contents
        except ValueError:  # a cell that is filled later
            continue
    return filled
