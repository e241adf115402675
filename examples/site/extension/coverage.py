"""The page of NumPy's functions, from what ``customop coverage`` prints."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from customop.cli import main
from extension.files import write

__all__ = ["make"]

_RULES = ("fake", "autograd", "jvp", "vmap")
_HEAD = """\
# Every NumPy function

How each function of NumPy {numpy} runs on traced and fake arrays: {covered} of {functions} do.
A function has an operator of its own, or is made of such operators. Of the others the table has
the reason. [The guide](../guide/numpy_functions.md) says what differs from NumPy, and
`customop coverage` prints this page for your version.

`own` rules are registered, `tags` and `derived` ones follow from something else; `loop` is the slow
way of `vmap`.
"""
_TABLE = "| function | runs as | {} |\n| --- | --- |{}".format(
    " | ".join(_RULES), " --- |" * len(_RULES)
)


def make(target: Path) -> None:
    """Write the page."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(["coverage", "--json"])
    write(target / "numpy.md", "\n".join(_page(json.loads(out.getvalue()))) + "\n")


def _page(found: Mapping[str, Any]) -> Iterator[str]:
    modules = found["modules"]
    counts = {key: sum(m[key] for m in modules) for key in ("functions", "covered")}
    yield _HEAD.format(numpy=found["numpy"], **counts)
    operators = {op["name"]: op for op in found["operators"]}
    for module in modules:
        name = module["module"].replace("numpy", "np")
        yield f"## `{name}`: {module['covered']} of {module['functions']}\n\n{_TABLE}"
        rows = dict(_rows(module, operators))
        for function in sorted(rows):
            yield f"| `{name}.{function}` | {rows[function]} |"
        yield ""


def _rows(
    module: Mapping[str, Any], operators: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield functions, and the other cells of their rows."""
    none = " | ".join([""] * len(_RULES))
    for name in module["operators"]:
        rules = {r["name"]: r["origin"] for r in operators[f"np::{name}"]["rules"]}
        shown = [rules.get(rule, "-") for rule in _RULES]
        yield name, f"`np::{name}` | {' | '.join(shown)}"
    for name in module["composed"]:
        yield name, f"operators | {none}"
    for refused in module["refused"]:
        yield refused["name"], f"no: {refused['reason']} | {none}"
    for name in module["missing"]:
        yield name, f"no | {none}"
