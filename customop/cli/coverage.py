"""``customop coverage``: which NumPy functions have an operator, with which rules."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np

from customop.arrays.numpy_reasons import reason_of
from customop.arrays.on_demand import FUNCTIONS, load_all
from customop.cli import listing, pages
from customop.cli.command import Command
from customop.cli.finding import matching
from customop.cli.plain import Plain
from customop.core.operator import Operator
from customop.core.rules import Rule, rules_of

__all__ = ["COMMAND"]

# numpy.char has the functions of numpy.strings under older names; numpy.random and
# numpy.ma do not call the array protocols (NumPy 2.4).
_MODULES = {
    "numpy": np,
    "numpy.linalg": np.linalg,
    "numpy.fft": np.fft,
    "numpy.strings": np.strings,
    "numpy.emath": np.emath,
}
_COUNTED = ("fake", "autograd", "jvp", "vmap")

Found = tuple[Operator[..., Any], list[Rule]]


def _modules(operators: Sequence[str]) -> list[dict[str, Any]]:
    """Count each function once, in the first module that has it."""
    load_all()
    seen: set[int] = set()
    modules = []
    for module_name, module in _MODULES.items():
        found: dict[str, Any] = {}
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if id(value) not in seen and _calls_protocols(value):
                seen.add(id(value))
                found[_own_name(module, name, value)] = value
        # The operators are those of numpy, whose names numpy.emath has again.
        own = operators if module is not np.emath else ()
        modules.append({"module": module_name, **_sorted_out(found, own)})
    return modules


def _sorted_out(functions: dict[str, Any], operators: Sequence[str]) -> dict[str, Any]:
    """Functions by how they run on traced values: as an operator, by some, or not."""
    known = [name for name, value in functions.items() if _is_known(value)]
    rest = {name: v for name, v in sorted(functions.items()) if name not in known}
    reasons = {name: reason_of(value) for name, value in rest.items()}
    return {
        "functions": len(functions),
        "covered": len(known),
        "operators": [name for name in known if f"np::{name}" in operators],
        "composed": [name for name in known if f"np::{name}" not in operators],
        "refused": [
            {"name": name, "reason": r.why} for name, r in reasons.items() if r
        ],
        "missing": [name for name, r in reasons.items() if not r],
    }


def _own_name(module: Any, name: str, value: Any) -> str:
    """The `__name__` of a function if the module has it, else `name`."""
    own = str(getattr(value, "__name__", name))
    return own if getattr(module, own, None) is value else name


def _calls_protocols(value: Any) -> bool:
    """Whether a function calls `__array_ufunc__` or `__array_function__`."""
    return (
        isinstance(value, np.ufunc)
        or hasattr(value, "_implementation")
        or (callable(value) and not isinstance(value, type) and _is_known(value))
    )


def _is_known(value: Any) -> bool:
    return value in FUNCTIONS


# ---- rules ----


def _rule_count(found: Sequence[Found], name: str) -> dict[str, Any]:
    origins = {
        op.qualname: next((r.origin for r in rules if r.name == name), "loop")
        for op, rules in found
    }
    own = sum(origin == "own" for origin in origins.values())
    missing = [qualname for qualname, origin in origins.items() if origin == "loop"]
    derived = len(origins) - own - len(missing)
    return {"rule": name, "own": own, "derived": derived, "missing": missing}


# ---- the command ----


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.0f} %" if total else "-"


_COLUMNS = ("module", "functions", "operators", "composed", "refused", "missing")


def _module_rows(modules: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [[m["functions"], *[len(m[key]) for key in _COLUMNS[2:]]] for m in modules]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    names = [*[m["module"] for m in modules], "all"]
    return [
        [name, *map(str, row), _share(row[1] + row[2], row[0])]
        for name, row in zip(names, [*rows, sums], strict=True)
    ]


def _function_rows(modules: Sequence[dict[str, Any]]) -> list[list[str]]:
    """How each function runs, or why it does not."""
    rows = []
    for m in modules:
        rows += [[m["module"], name, f"np::{name}"] for name in m["operators"]]
        rows += [[m["module"], name, "by operators"] for name in m["composed"]]
        rows += [[m["module"], r["name"], f"no: {r['reason']}"] for r in m["refused"]]
        rows += [[m["module"], name, "no"] for name in m["missing"]]
    return [[f"{module}.{name}", how] for module, name, how in sorted(rows)]


def _rule_row(count: dict[str, Any], total: int) -> list[str]:
    own, derived, missing = count["own"], count["derived"], len(count["missing"])
    share = _share(total - missing, total)
    return [count["rule"], str(own), str(derived), str(missing), share]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--missing",
        action="store_true",
        help="list the operators without a rule and the functions without an operator",
    )


def _run(options: Namespace, output: Plain) -> int:
    found = [(op, rules_of(op)) for op in matching(["np"])]
    modules = _modules([op.qualname for op, _ in found])
    counts = [_rule_count(found, name) for name in _COUNTED]
    output.heading(f"operators of the namespace np: {len(found)}")
    output.table(listing.COLUMNS, [listing.cells(op, rules) for op, rules in found])
    output.line()
    output.heading("their rules")
    output.table(
        ["rule", "own", "derived", "none", "share"],
        [_rule_row(count, len(found)) for count in counts],
    )
    output.line()
    output.heading(f"functions of NumPy {np.__version__} that call its protocols")
    output.table(["function", "runs as"], _function_rows(modules))
    output.line()
    output.table([*_COLUMNS, "share"], _module_rows(modules))
    if options.missing:
        _show_missing(counts, modules, output)
    output.page(lambda: pages.coverage_page(found, counts, modules))
    output.document(
        {
            "numpy": np.__version__,
            "operators": [listing.as_json(op, rules) for op, rules in found],
            "rules": counts,
            "modules": modules,
        }
    )
    return 0


def _show_missing(
    counts: Sequence[dict[str, Any]], modules: Sequence[dict[str, Any]], output: Plain
) -> None:
    rows = [[f"no {c['rule']} rule", name] for c in counts for name in c["missing"]]
    for m in modules:
        module = m["module"]
        rows += [
            ["no operator", f"{module}.{r['name']}: {r['reason']}"]
            for r in m["refused"]
        ]
        rows += [["no operator", f"{module}.{name}"] for name in m["missing"]]
    output.line()
    output.heading("missing")
    output.table(["", ""], rows)


COMMAND = Command(
    "coverage",
    "which NumPy functions have an operator, with which rules",
    "Show the operators of the namespace np with their rules, and how many functions of\n"
    "NumPy have one. Only ufuncs and functions that call __array_function__ count: the\n"
    "others ignore the class of their arrays. A function runs as its own operator, by other\n"
    "operators, or not, with the reason where it has one. With -m, operators that a module\n"
    "adds count too.",
    '{"numpy": VERSION, "operators": [the fields of list], "rules": [{"rule": str, "own": int,\n'
    '  "derived": int, "missing": [str]}], "modules": [{"module": str,\n'
    '  "functions": int, "covered": int, "operators": [str], "composed": [str],\n'
    '  "refused": [{"name": str, "reason": str}],\n'
    '  "missing": [str]}]}',
    _add_arguments,
    _run,
)
