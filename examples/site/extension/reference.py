"""The API reference: a page for each theme, with the docstrings of its names."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sphinx.ext.autodoc.mock import mock
from sphinx.pycode import ModuleAnalyzer

import customop as co
from extension.files import write
from extension.themes import GROUPS, THEMES, Theme

__all__ = ["is_shown", "make", "names_of"]

# The names of these modules are attributes of customop, which import does not find.
for _name in ("sizes", "tree"):
    sys.modules[f"customop.{_name}"] = getattr(co, _name)

# Classes whose readers need what their base classes have, too.
_WITH_INHERITED = {"Operator", "GraphModule", "FakeArray", "Library"}
# What names mean whose objects have the docstring of their class.
_VALUES = {
    "customop.ArrayT": "Annotate arrays that are of one class: `def f(x: ArrayT) -> ArrayT`.",
    "customop.Device": "Annotate the name of a device, such as ``'cpu'`` or ``'cuda'``.",
    "customop.DType": "Annotate a dtype, or what NumPy makes one of.",
    "customop.Scalar": "Annotate a number: an int, float, bool or complex.",
    "customop.is_view": "The kind of the rules that say when a result is a view of an argument.",
    "customop.write_back": "The kind of the rules that write into an argument through its view.",
}


def make(target: Path, missing: Sequence[str]) -> None:
    """Write a page for each theme; `missing` are packages that are not installed."""
    with mock(list(missing)):
        for name, theme in THEMES.items():
            write(target / f"{name}.rst", "\n".join(_page(theme)) + "\n")
        write(target / "overview.txt", "\n".join(_overview()) + "\n")


def _overview() -> Iterator[str]:
    """Yield all pages with their names and what each name is, as Markdown."""
    for group, pages in GROUPS.items():
        yield f"\n## {group}\n"
        for page in pages.split():
            if page not in THEMES:
                yield "[Every NumPy function](api/numpy.md): how it runs on traced and fake arrays.\n"
                continue
            theme = THEMES[page]
            yield f"[{theme.title}](api/{page}.rst): {theme.about[0].lower()}{theme.about[1:]}\n"
            every = [name for names in names_of(theme).values() for name in names]
            if "*" in theme.sections.values() and len(every) > _MOST:
                continue  # the page has them
            if every:
                yield ":::{list-table}\n:class: summary\n:widths: auto\n"
            for name in every:
                yield f"* - {{py:obj}}`~{name}`\n  - {_first_line(name)}"
            yield ":::\n" if every else ""


# Names of one module of SciPy that the overview would list.
_MOST = 30


def names_of(theme: Theme) -> dict[str, list[str]]:
    """Section -> full names."""
    module = importlib.import_module(theme.module)
    found = {}
    for section, text in theme.sections.items():
        names = module.__all__ if text == "*" else text.split()
        found[section] = [n if "." in n else f"{theme.module}.{n}" for n in names]
    return found


def _page(theme: Theme) -> Iterator[str]:
    yield from _heading(theme.title, "=")
    if not theme.modules:  # whose docstring says it in other words
        yield theme.about
    links = [f":doc:`/guide/{page}`" for page in theme.guide.split()]
    yield f"The guide explains: {', '.join(links)}."
    yield ""
    if theme.modules:
        yield from (f".. automodule:: {theme.modules}", "   :no-index:", "")
    yield from (f".. currentmodule:: {theme.module}", "")
    sections = names_of(theme)
    every = [
        name
        for names in sections.values()
        for name in names
        if not isinstance(_value(name), np.ufunc)
    ]
    if len(every) > 1:
        yield from (".. list-table::", "   :class: summary", "   :widths: auto", "")
        for name in every:
            yield f"   * - :py:obj:`~{name}`"
            yield f"     - {_first_line(name)}"
        yield ""
    for section, names in sections.items():
        if section:
            yield from _heading(section, "-")
        ufuncs = [name for name in names if isinstance(_value(name), np.ufunc)]
        for name in names:
            if name not in ufuncs:
                yield from _entry(name)
        if ufuncs:
            yield from _ufuncs(ufuncs)


def _heading(text: str, line: str) -> tuple[str, ...]:
    return text, line * len(text), ""


def _entry(name: str) -> Iterator[str]:
    value = _value(name)
    if name in _VALUES:
        yield from (
            f".. py:data:: {name.rpartition('.')[2]}",
            "",
            f"   {_VALUES[name]}",
            "",
        )
        return
    if not inspect.isclass(value):
        directive = "autofunction" if inspect.isroutine(value) else "autodata"
        options = ["   :no-value:"] if directive == "autodata" else []
        yield from (f".. {directive}:: {name}", *options, "")
        return
    if issubclass(value, BaseException):
        yield from (f".. autoexception:: {name}", "   :show-inheritance:", "")
        return
    yield from (f".. autoclass:: {name}", "   :members:")
    if name.rpartition(".")[2] in _WITH_INHERITED:
        yield "   :inherited-members:"
    yield ""


def _ufuncs(names: Sequence[str]) -> Iterator[str]:
    """Yield functions of another package, whose own pages explain them."""
    yield from _heading("Its ufuncs", "-")
    signatures = [
        f"{name.rpartition('.')[2]}({', '.join(_inputs(_value(name)))})"
        for name in names
    ]
    yield f".. py:function:: {signatures[0]}"
    yield from (f"              {signature}" for signature in signatures[1:])
    yield ""
    yield "   They are SciPy's own objects. With this module imported they take traced"
    yield "   values and fake arrays, too."
    yield ""


def _inputs(ufunc: np.ufunc) -> list[str]:
    return ["x"] if ufunc.nin == 1 else [f"x{i + 1}" for i in range(ufunc.nin)]


def _first_line(name: str) -> str:
    if name in _VALUES:
        return _VALUES[name]
    module, _, last = name.rpartition(".")
    below = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", last))
    return (
        below[0] if below else (inspect.getdoc(_value(name)) or "").partition("\n")[0]
    )


def _value(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def is_shown(
    app: Any, what: str, name: str, value: Any, skip: bool, options: Any
) -> bool | None:
    """Return whether autodoc leaves a member out: what only this package calls is.

    So is a field of a named tuple without words of its own.
    """
    alias = str(getattr(value, "__doc__", "")).startswith("Alias for field number")
    return True if alias or name.startswith("box_") else None
