"""Objects that are made when they are first used, so that the import takes less time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from customop.forks import importing

P = ParamSpec("P")
T = TypeVar("T")


class _Later:
    """Takes the place of what a call returns; calls when an attribute is first read."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        found = getattr(importing(self._make), name)
        setattr(self, name, found)  # from now on Python finds it here
        return found


def later(make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return a stand-in for the result of a call, which runs when an attribute is read.

    Use it for modules that few programs need, as
    ``difflib = later(import_module, "difflib")``, and for patterns of `re`, which take
    0.1 ms each to compile. Everything else is imported at the top of a module.

    Parameters
    ----------
    make : callable
        Called for each attribute once, so it must return the same object each time.
    *args, **kwargs
        Its arguments.

    Returns
    -------
    object
    """
    made: Any = _Later(lambda: make(*args, **kwargs))
    return made  # type: ignore[no-any-return]  # it has the attributes
