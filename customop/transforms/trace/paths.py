"""How the user reaches each array among the arguments of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from customop.arrays.kinds import is_array
from customop.arrays.pytree import Structure
from customop.errors import ArgumentError, did_you_mean, shown

__all__ = ["Path", "argument_path", "names_for", "paths_of"]


class Path(NamedTuple):
    """The path of a leaf of the arguments.

    Attributes
    ----------
    parameter : str
    steps : tuple
        Keys, positions and names of attributes inside of the argument.
    text : str
        As the user would write it, such as ``params['w']``.
    """

    parameter: str
    steps: tuple[Any, ...]
    text: str


def paths_of(fn: Callable[..., Any], spec: Structure) -> list[Path]:
    """The paths of the leaves of positional and keyword arguments."""
    parameters = _parameters(fn)
    return [
        _path(parameters, accessor[1:], is_named=bool(accessor[0].entry))
        for accessor in spec.accessors()
    ]


def argument_path(fn: Callable[..., Any], structure: Structure, number: int) -> Path:
    """The path of a leaf of a tuple of positional arguments."""
    accessor = structure.accessors()[number]
    return _path(_parameters(fn), accessor, is_named=False)


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):  # of a ufunc, say
        return []


def _path(
    parameters: Sequence[inspect.Parameter], accessor: Any, *, is_named: bool
) -> Path:
    key = accessor[0].entry
    steps = tuple([entry.entry for entry in accessor[1:]])
    if is_named:
        name = root = str(key)
    elif key < len(parameters) and parameters[key].kind in _ONE:
        name = root = parameters[key].name
    else:
        last = [p for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL]
        before = parameters.index(last[0]) if last else 0
        name = last[0].name if last else "args"
        root = f"{name}[{key - before}]"
        steps = (key - before, *steps)
    return Path(name, steps, str(accessor[1:].codify(root)))


_ONE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


# ---- names of sizes ----


def names_for(
    title: str, sizes: Mapping[str, Any], paths: Sequence[Path], leaves: Sequence[Any]
) -> list[Sequence[Any] | None]:
    """For each leaf the names of its axes, or None where none are given.

    `title` is the function of this package that was given `sizes`.
    """
    if not sizes:
        return [None] * len(paths)
    known = [*dict.fromkeys(path.parameter for path in paths)]
    for name in sizes:
        if name not in known:
            raise ArgumentError(
                f"{title}: sizes has '{name}', which is not an argument"
                f"{did_you_mean(str(name), known)}",
                do=f"use names of arguments: {', '.join(known)}",
            )
    pairs = zip(paths, leaves, strict=True)
    return [
        _names(title, sizes[path.parameter], path, leaf)
        if path.parameter in sizes
        else None
        for path, leaf in pairs
    ]


def _names(title: str, given: Any, path: Path, leaf: Any) -> Sequence[Any] | None:
    for step in path.steps:
        if given is None:
            return None
        given = _step(title, given, step, path)
    if given is None or not is_array(leaf):
        return None
    if not isinstance(given, tuple | list):
        raise ArgumentError(
            f"{title}: sizes has {shown(given)} for {path.text}, which is not a tuple",
            do=f"name each axis, or None: {('name',) * len(leaf.shape)}",
        )
    return given


def _step(title: str, given: Any, step: Any, path: Path) -> Any:
    """The entry given for one part of an argument; None for nothing."""
    if isinstance(given, Mapping):
        return given.get(step)
    if isinstance(step, int) and isinstance(given, tuple | list) and step < len(given):
        return given[step]
    if isinstance(step, str) and hasattr(given, step):
        return getattr(given, step)
    raise ArgumentError(
        f"{title}: sizes has {shown(given)} on the way to {path.text}",
        do="nest dicts and tuples of names as the argument is nested",
    )
