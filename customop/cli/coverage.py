"""``customop coverage``: NumPy's operators with their rules, and what has no operator."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.numpy_protocol import FUNCTIONS
from customop.cli import listing
from customop.cli.command import Command
from customop.cli.finding import matching
from customop.cli.output import Output
from customop.cli.rules import Rule, rules_of
from customop.core.operator import Operator

__all__ = ["COMMAND"]

# Whose functions are looked at. numpy.char is numpy.strings by older names;
# numpy.random and numpy.ma ask none of NumPy's protocols (seen in NumPy 2.4).
_MODULES = {
    "numpy": np,
    "numpy.linalg": np.linalg,
    "numpy.fft": np.fft,
    "numpy.strings": np.strings,
    "numpy.emath": np.emath,
}
_COUNTED = ("fake", "autograd", "jvp", "vmap")

Found = tuple[Operator[..., Any], list[Rule]]


class _Module(NamedTuple):
    """Functions of a module of NumPy that traced and fake arrays can reach."""

    name: str
    functions: list[str]
    missing: list[str]


def _look_at_numpy() -> list[_Module]:
    """Each function in the first module that has it, by its first name there."""
    seen: set[int] = set()
    modules = []
    for module_name, module in _MODULES.items():
        found: dict[str, Any] = {}
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if id(value) not in seen and _asks_protocols(value):
                seen.add(id(value))
                found[_own_name(module, name, value)] = value
        missing = sorted(name for name, value in found.items() if not _is_known(value))
        modules.append(_Module(module_name, sorted(found), missing))
    return modules


def _own_name(module: Any, name: str, value: Any) -> str:
    """The name that a function calls itself, where the module knows it by that."""
    own = str(getattr(value, "__name__", name))
    return own if getattr(module, own, None) is value else name


def _asks_protocols(value: Any) -> bool:
    """Whether a function asks `__array_ufunc__` or `__array_function__`."""
    return (
        isinstance(value, np.ufunc)
        or hasattr(value, "_implementation")
        or (callable(value) and not isinstance(value, type) and _is_known(value))
    )


def _is_known(value: Any) -> bool:
    return value in FUNCTIONS


# ---- what is printed ----


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _rule_counts(found: Sequence[Found]) -> list[dict[str, Any]]:
    counts = []
    for name in _COUNTED:
        origins = [r.origin for _, rules in found for r in rules if r.name == name]
        own = origins.count("own")
        derived = sum(origin not in ("own", "loop") for origin in origins)
        missing = [op.qualname for op, rules in found if not _has(rules, name)]
        counts.append(
            {"rule": name, "own": own, "derived": derived, "missing": missing}
        )
    return counts


def _has(rules: Sequence[Rule], name: str) -> bool:
    return any(r.name == name and r.origin != "loop" for r in rules)


def _document(
    found: Sequence[Found], counts: Sequence[dict[str, Any]], modules: Sequence[_Module]
) -> dict[str, Any]:
    return {
        "numpy": np.__version__,
        "operators": [listing.as_json(op, rules) for op, rules in found],
        "rules": list(counts),
        "modules": [
            {
                "module": m.name,
                "functions": len(m.functions),
                "covered": len(m.functions) - len(m.missing),
                "missing": m.missing,
            }
            for m in modules
        ],
    }


def _module_rows(modules: Sequence[_Module]) -> list[list[str]]:
    rows = [(m.name, len(m.functions), len(m.missing)) for m in modules]
    rows.append(("all", sum(r[1] for r in rows), sum(r[2] for r in rows)))
    return [
        [name, str(total), str(total - missing), _share(total - missing, total)]
        for name, total, missing in rows
    ]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--missing",
        action="store_true",
        help="name the operators without a rule, and the functions without an operator",
    )


def _run(options: Namespace, output: Output) -> int:
    found = [(op, rules_of(op)) for op in matching(["np"])]
    counts, modules = _rule_counts(found), _look_at_numpy()
    if options.json:
        output.document(_document(found, counts, modules))
        return 0
    output.heading(f"operators of the namespace np: {len(found)}")
    output.table(listing.COLUMNS, [listing.cells(op, rules) for op, rules in found])
    output.line()
    output.heading("rules that they have")
    output.table(
        ["rule", "own", "derived", "none", "share"],
        [_count_row(c, len(found)) for c in counts],
    )
    output.line()
    output.heading(f"functions of NumPy {np.__version__} that ask its protocols")
    output.table(["module", "functions", "covered", "share"], _module_rows(modules))
    if options.missing:
        _show_missing(counts, modules, output)
    return 0


def _count_row(count: dict[str, Any], total: int) -> list[str]:
    own, derived, missing = count["own"], count["derived"], len(count["missing"])
    share = _share(total - missing, total)
    return [count["rule"], str(own), str(derived), str(missing), share]


def _show_missing(
    counts: Sequence[dict[str, Any]], modules: Sequence[_Module], output: Output
) -> None:
    rows = [[f"no {c['rule']} rule", name] for c in counts for name in c["missing"]]
    rows += [["no operator", f"{m.name}.{name}"] for m in modules for name in m.missing]
    output.line()
    output.heading("missing")
    output.table(["", ""], rows)


COMMAND = Command(
    "coverage",
    "NumPy's functions: which have an operator, and with which rules",
    "Show every operator of the namespace np with its rules, and how many of NumPy's"
    " functions\nhave one. Counted are ufuncs and functions that ask __array_function__:"
    " the others never\nlook at the class of their arrays. -m counts what a module adds.",
    '{"numpy": VERSION, "operators": [as of list], "rules": [{"rule": str, "own": int,\n'
    '  "derived": int, "missing": [str]}], "modules": [{"module": str,\n'
    '  "functions": int, "covered": int, "missing": [str]}]}',
    _add_arguments,
    _run,
)
