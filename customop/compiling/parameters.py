"""How a compiled function takes its arguments: by the parameters of the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from customop.arrays.kinds import is_array
from customop.core.generated import generate

__all__ = ["Parameters", "identifier", "parameters_of"]

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class Parameters(NamedTuple):
    """The parameters in the text of a generated function.

    Attributes
    ----------
    text : str
        As they stand in a ``def``.
    names : tuple of str or None
        Names of the parameters, if all are positional. Else the function takes
        ``*args`` and ``**kwargs``.
    defaults : dict
        Name in the text -> default value.
    title : str
        The name of the function.
    takes_any : bool
        Whether it takes keywords of any name, and may see their order.
    """

    text: str
    names: tuple[str, ...] | None
    defaults: dict[str, Any]
    title: str
    takes_any: bool = True

    @property
    def given(self) -> str:
        """The text of the positional and keyword arguments, for a call."""
        if self.names is None:
            return "args, kwargs"
        return f"({''.join(f'{name}, ' for name in self.names)}), {{}}"

    def binder(self) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        """A function of these parameters that returns the arguments in order."""
        text = f"def {self.title}({self.text}):\n    return {self.given}\n"
        return generate(  # type: ignore[no-any-return]  # the function in the text
            f"arguments of {self.title}", text, self.title, dict(self.defaults)
        )


def identifier(name: str) -> str:
    """A name for generated code: that of the function, if it can be one."""
    return name if name.isidentifier() else "compiled"


def parameters_of(fn: Callable[..., Any]) -> Parameters:
    """The parameters of a function; ``*args, **kwargs`` if they are not just positional.

    What a wrapper says of the function in it is not read: it may look at names.
    """
    title = identifier(getattr(fn, "__name__", ""))
    general = Parameters("*args, **kwargs", None, {}, title)
    try:
        found = inspect.signature(fn, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # of a ufunc, say
        return general
    takes_any = any(p.kind is p.VAR_KEYWORD for p in found)
    general = general._replace(takes_any=takes_any)
    if any(p.kind not in _POSITIONAL or p.name.startswith("_") for p in found):
        return general
    parts: list[str] = []
    defaults: dict[str, Any] = {}
    for p in found:
        if p.default is p.empty:
            parts.append(p.name)
        elif is_array(p.default):  # it may be another one by now
            return general
        else:
            defaults[f"_default_{p.name}"] = p.default
            parts.append(f"{p.name}=_default_{p.name}")
    only = sum(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in found)
    if only:
        parts.insert(only, "/")
    return Parameters(", ".join(parts), tuple(p.name for p in found), defaults, title)
