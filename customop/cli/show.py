"""``customop list``, ``show``, ``explain``, ``coverage`` and ``stubs``."""

from __future__ import annotations

import inspect
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from customop.arrays.kinds import load_kind
from customop.arrays.numpy_functions import FUNCTIONS, load_all
from customop.arrays.refusals import reason_of
from customop.cli import command_pages, targets
from customop.cli.plain import Command, Plain, UsageError
from customop.cli.targets import find_operator, find_packet, import_target, matching
from customop.core.explain import (
    ORIGINS,
    Candidate,
    Explanation,
    Rule,
    explanation_card,
    hidden_rules,
    operator_card,
    rules_of,
)
from customop.core.operator import Operator
from customop.core.registry import in_namespace, load_namespace_plugin
from customop.core.samples import call_text
from customop.errors import CustomOpError, CustomOpWarning, counted
from customop.pages.html import page
from customop.plugins import GROUPS, KINDS, InstalledPlugin, plugins_of
from customop.schema.types import MISSING, Parameter
from customop.stubgen.stubs import check_stubs, write_stubs

# ---- `customop list` ----
# Lists the operators of each namespace with their rules, and plug-ins.


def _list(options: Namespace, output: Plain) -> int:
    if options.plugins:
        return _list_plugins(options, output)
    found = [(op, rules_of(op)) for op in matching(options.patterns)]
    for index, (namespace, group) in enumerate(
        groupby(found, key=lambda pair: pair[0].namespace)
    ):
        members = list(group)
        if index:
            output.line()
        output.heading(f"{namespace}: {counted(len(members), 'operator')}")
        rows = [[*_cells(op, rules), str(op.schema)] for op, rules in members]
        output.table([*_LIST_COLUMNS, "schema"], rows)
    output.document(
        {"operators": [_operator_as_json(op, rules) for op, rules in found]}
    )
    output.page(
        lambda: command_pages.list_page(
            [(op, _cells(op, rules)) for op, rules in found]
        )
    )
    return 0


# The kinds that have a column. Kernels come before them, other kinds after them.
_LISTED_KINDS = ("fake", "autograd", "jvp", "vmap")
_LIST_COLUMNS = ("operator", "kernels", *_LISTED_KINDS, "others")


def _operator_as_json(op: Operator[..., Any], rules: Sequence[Rule]) -> dict[str, Any]:
    """Return the fields of an operator for JSON."""
    return {
        "name": op.qualname,
        "schema": str(op.schema),
        "tags": sorted(tag.name for tag in op.tags),
        "module": op.definition.module,
        "place": op.definition.place,
        "rules": [rule._asdict() for rule in rules],
    }


def _cells(op: Operator[..., Any], rules: Sequence[Rule]) -> list[str]:
    """Return the _cells of an operator's row; '-' if it has no such rule."""
    kernels = [_marked(r) for r in rules if r.name == "kernel"]
    by_name = {r.name: r.origin for r in rules}
    rest = [_titled(r) for r in rules if r.name not in (*_LISTED_KINDS, "kernel")]
    return [
        op.qualname,
        ",".join(kernels) or "-",
        *[by_name.get(name, "-") for name in _LISTED_KINDS],
        ", ".join(rest) or "-",
    ]


def _marked(rule: Rule) -> str:
    return rule.target if rule.origin == "own" else f"{rule.target}({rule.origin})"


def _titled(rule: Rule) -> str:
    name = f"{rule.name}:{rule.target}" if rule.target else rule.name
    return name if rule.origin == "own" else f"{name}({rule.origin})"


def _add_list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "patterns",
        nargs="*",
        metavar="NAMESPACE|GLOB",
        help="a namespace, or a glob of names such as 'np::arg*' or '*sum*'",
    )
    parser.add_argument(
        "--plugins",
        action="store_true",
        help="load the plug-ins of all installed packages and list them instead",
    )


_ORIGINS = "\n".join(f"  {word:<9} {text}" for word, text in ORIGINS.items())

LIST = Command(
    "list",
    "operators by namespace, with their rules; plug-ins",
    "List operators by namespace, with their kernels, rules and schemas. Without a"
    f" pattern,\nlist all operators.\n\nwords in the columns:\n{_ORIGINS}\n"
    "  -         missing",
    '{"operators": [{"name": str, "schema": str, "tags": [str], "module": str,\n'
    '  "place": "FILE:LINE", "rules": [{"name": "kernel" | "fake" | "autograd" | "jvp" |\n'
    '  "vmap" | "composite" | "autocast" | "array_class" | your own kind,\n'
    '  "target": str, "origin": a word from above, "places": ["FILE:LINE"]}]}]}\n'
    'with --plugins: {"plugins": [{"group": "customop.kinds" | "customop.operators",\n'
    '  "name": str, "package": str, "version": str, "module": str, "operators": [str],\n'
    '  "is_loaded": bool, "state": str}]}',
    _add_list_arguments,
    _list,
)


# ---- `customop list --plugins` ----


def _list_plugins(options: Namespace, output: Plain) -> int:
    if options.patterns:
        raise UsageError(
            "--plugins lists all plug-ins, and takes no pattern",
            do="leave out the pattern, or --plugins",
        )
    found = [_loaded(group, name) for group in GROUPS for name in plugins_of(group)]
    plugins = [plugin for same in found for plugin in same]
    rows = [[_gives(p), p.package, p.version, p.value, _state(p)] for p in plugins]
    if plugins:
        output.table(_PLUGIN_COLUMNS, rows)
    else:
        output.line("no plug-ins are installed")
    output.document({"plugins": [_plugin_as_json(plugin) for plugin in plugins]})
    output.page(lambda: command_pages.table_page("plug-ins", _PLUGIN_COLUMNS, rows))
    return 0


_PLUGIN_COLUMNS = ("gives", "package", "version", "module", "loaded")


def _loaded(group: str, name: str) -> list[InstalledPlugin]:
    """Load the plug-in with this name; return all plug-ins with the name."""
    with warnings.catch_warnings():
        # The table shows the errors, and plug-ins that share a name.
        warnings.simplefilter("ignore", CustomOpWarning)
        (load_kind if group == KINDS else load_namespace_plugin)(name)
    return plugins_of(group)[name]


def _gives(plugin: InstalledPlugin) -> str:
    if plugin.group == KINDS:
        return f"kind {plugin.name}"
    count = len(in_namespace(plugin.name)) if plugin.error == "" else 0
    return f"{plugin.name}: {counted(count, 'operator')}" if count else plugin.name


def _state(plugin: InstalledPlugin) -> str:
    if plugin.error is None:
        return "no: another package has this name"
    return f"no: {plugin.error}" if plugin.error else "yes"


def _plugin_as_json(plugin: InstalledPlugin) -> dict[str, Any]:
    is_kind = plugin.group == KINDS
    return {
        "group": plugin.group,
        "name": plugin.name,
        "package": plugin.package,
        "version": plugin.version,
        "module": plugin.value,
        "operators": [] if is_kind else sorted(in_namespace(plugin.name)),
        "is_loaded": plugin.error == "",
        "state": _state(plugin),
    }


# ---- `customop show` ----


def _show(options: Namespace, output: Plain) -> int:
    op = find_operator(options.name)
    rules = rules_of(op)
    found = _document(op, rules)
    output.heading(op.qualname)
    if found["summary"]:
        output.line(found["summary"])
    output.line()
    output.table(["", ""], [[k, v or "-"] for k, v in _facts(op, found).items()])
    output.line()
    output.heading("rules")
    rows = [_rule_row(rule) for rule in (*rules, *hidden_rules(op))]
    output.table(["rule", "origin", "from"], rows)
    if op.waivers:
        output.line()
        output.heading("waived checks")
        output.table(["", ""], [[check, why] for check, why in op.waivers.items()])
    if found["samples"]:
        output.line()
        output.heading("sample inputs")
        output.table(["", ""], [[s["call"], s["note"]] for s in found["samples"]])
    output.line()
    output.heading("generated call")
    output.source(op.source)
    output.document({"operator": found})
    output.page(lambda: page(op.qualname, operator_card(op, with_samples=True)))
    return 0


def _document(op: Operator[..., Any], rules: Sequence[Rule]) -> dict[str, Any]:
    lines = (inspect.getdoc(op) or "").strip().splitlines()
    packet = find_packet(f"{op.namespace}::{op.name}")
    samples = op.sample_inputs()
    return {
        **_operator_as_json(op, rules),
        "summary": lines[0] if lines else "",
        "overloads": [getattr(packet, o).qualname for o in packet.overloads()],
        "parameters": [_parameter(p) for p in op.schema.parameters],
        "returns": [_return(r) for r in op.schema.returns],
        "source": op.source,
        "samples": [
            {"call": call_text(op.qualname, s), "note": s.note} for s in samples
        ],
        "waivers": dict(op.waivers),
    }


def _parameter(p: Parameter) -> dict[str, Any]:
    return {
        "name": p.name,
        "type": str(p.type),
        "kind": p.kind,
        "default": None if p.default is MISSING else str(p).partition("=")[2],
        "alias": None if p.alias is None else p.alias.name,
        "written": p.is_written,
    }


def _return(r: Any) -> dict[str, Any]:
    return {
        "type": str(r.type),
        "alias": None if r.alias is None else r.alias.name,
        "written": r.alias is not None and r.alias.is_write,
    }


def _facts(op: Operator[..., Any], found: dict[str, Any]) -> dict[str, str]:
    return {
        "schema": found["schema"],
        "tags": ", ".join(found["tags"]),
        "defined": found["place"],
        "module": found["module"],
        "overloads": ", ".join(found["overloads"]),
        "writes": ", ".join(op.schema.written),
        "aliases": ", ".join(_aliases(op)),
    }


def _aliases(op: Operator[..., Any]) -> list[str]:
    """Return sentences about results that share memory with arguments."""
    texts = []
    for index, r in enumerate(op.schema.returns):
        if r.alias is None:
            continue
        names = [
            p.name
            for p in op.schema.parameters
            if p.alias is not None and p.alias.name == r.alias.name
        ]
        which = f"result {index}" if op.schema.is_tuple else "the result"
        texts.append(f"{which} shares memory with {' or '.join(names)}")
    return texts


def _rule_row(rule: Rule) -> list[str]:
    name = f"{rule.name} {rule.target}".rstrip()
    return [name, rule.origin, ", ".join(rule.places) or ORIGINS[rule.origin]]


SHOW = Command(
    "show",
    "one operator: schema, tags, rules with file and line, generated call",
    "Show one operator: its schema and tags, where it and each rule is defined, its\n"
    "waived checks, its sample inputs, and the source of its generated call.",
    '{"operator": {the fields of list, and "summary": str, "overloads": [str],\n'
    '  "parameters": [{"name": str, "type": str, "kind": "positional_only" |\n'
    '  "positional" | "keyword_only", "default": str | null, "alias": str | null,\n'
    '  "written": bool}], "returns": [{"type": str, "alias": str | null,\n'
    '  "written": bool}], "source": str, "samples": [{"call": str, "note": str}],\n'
    '  "waivers": {check: reason}}}',
    targets.add_name,
    _show,
)


# ---- `customop explain` ----


def _explain(options: Namespace, output: Plain) -> int:
    resolve = _resolver(options.name)
    args, keywords = targets.parse(options.args, targets.zeros)
    try:
        why = resolve(*args, **keywords).explain(*args, **keywords)
    except CustomOpError:
        raise
    except TypeError as error:  # an argument is missing, or there are too many
        raise UsageError(str(error), do=f"see customop show {options.name}") from error
    output.line(str(why))
    output.document(_explained(why))
    output.page(lambda: page(why.call, explanation_card(why)))
    return 0


def _resolver(name: str) -> Callable[..., Operator[..., Any]]:
    """Return a function that finds the overload: as named, or as the arguments fit."""
    if "." not in name.rpartition("::")[2]:
        return find_packet(name).resolve
    op = find_operator(name)
    return lambda *args, **keywords: op


def _explained(why: Explanation) -> dict[str, Any]:
    error = why.error
    return {
        "call": why.call,
        "schema": why.schema,
        "taken": None if why.taken is None else _candidate(why.taken),
        "error": error and {"type": type(error).__name__, "message": str(error)},
        "others": [_candidate(other) for other in why.others],
    }


def _candidate(found: Candidate) -> dict[str, str]:
    return {"name": found.name, "why": found.why, "place": found.place}


EXPLAIN = Command(
    "explain",
    "which kernel or rule a call takes, and why not the others",
    "Say which kernel or rule a call with these arguments takes, and why not the others.\n"
    "Nothing runs. Without an overload in NAME, the arguments choose the overload.",
    '{"call": str, "schema": str, "taken": {"name": str, "why": str, "place": str} |\n'
    '  null, "error": {"type": str, "message": str} | null,\n'
    '  "others": [{"name": str, "why": str, "place": str}]}',
    targets.add_call,
    _explain,
)


# ---- `customop coverage` ----
# Shows which NumPy functions have an operator, and with which rules.


def _coverage(options: Namespace, output: Plain) -> int:
    found = [(op, rules_of(op)) for op in matching(["np"])]
    modules = _modules([op.qualname for op, _ in found])
    counts = [_rule_count(found, name) for name in _COUNTED]
    output.heading(f"operators of the namespace np: {len(found)}")
    output.table(_LIST_COLUMNS, [_cells(op, rules) for op, rules in found])
    output.line()
    output.heading("their rules")
    output.table(
        ["rule", "own", "derived", "none", "share"],
        [_rule_counts_row(count, len(found)) for count in counts],
    )
    output.line()
    output.heading(f"functions of NumPy {np.__version__} that call its protocols")
    output.table(["function", "runs as"], _function_rows(modules))
    output.line()
    output.table([*_COVERAGE_COLUMNS, "share"], _module_rows(modules))
    if options.missing:
        _show_missing(counts, modules, output)
    output.page(lambda: command_pages.coverage_page(found, counts, modules))
    output.document(
        {
            "numpy": np.__version__,
            "operators": [_operator_as_json(op, rules) for op, rules in found],
            "rules": counts,
            "modules": modules,
        }
    )
    return 0


def _module_rows(modules: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [
        [m["functions"], *[len(m[key]) for key in _COVERAGE_COLUMNS[2:]]]
        for m in modules
    ]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    names = [*[m["module"] for m in modules], "all"]
    return [
        [name, *map(str, row), _share(row[1] + row[2], row[0])]
        for name, row in zip(names, [*rows, sums], strict=True)
    ]


def _function_rows(modules: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each function: how it runs, or why it does not."""
    rows = []
    for m in modules:
        rows += [[m["module"], name, f"np::{name}"] for name in m["operators"]]
        rows += [[m["module"], name, "by operators"] for name in m["composed"]]
        rows += [[m["module"], r["name"], f"no: {r['reason']}"] for r in m["refused"]]
        rows += [[m["module"], name, "no"] for name in m["missing"]]
    return [[f"{module}.{name}", how] for module, name, how in sorted(rows)]


def _rule_counts_row(count: dict[str, Any], total: int) -> list[str]:
    own, derived, missing = count["own"], count["derived"], len(count["missing"])
    share = _share(total - missing, total)
    return [count["rule"], str(own), str(derived), str(missing), share]


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.0f} %" if total else "-"


_COVERAGE_COLUMNS = (
    "module",
    "functions",
    "operators",
    "composed",
    "refused",
    "missing",
)


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


def _rule_count(found: Sequence[Found], name: str) -> dict[str, Any]:
    origins = {
        op.qualname: next((r.origin for r in rules if r.name == name), "loop")
        for op, rules in found
    }
    own = sum(origin == "own" for origin in origins.values())
    missing = [qualname for qualname, origin in origins.items() if origin == "loop"]
    derived = len(origins) - own - len(missing)
    return {"rule": name, "own": own, "derived": derived, "missing": missing}


_COUNTED = ("fake", "autograd", "jvp", "vmap")

Found = tuple[Operator[..., Any], list[Rule]]


def _modules(operators: Sequence[str]) -> list[dict[str, Any]]:
    """Return the functions of each module; each counts in the first that has it."""
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
        # Names in numpy.emath repeat those of numpy, which has the operators.
        own = operators if module is not np.emath else ()
        modules.append({"module": module_name, **_sorted_out(found, own)})
    return modules


# numpy.char has the functions of numpy.strings under older names; numpy.random and
# numpy.ma do not call the array protocols (NumPy 2.4).
_MODULES = {
    "numpy": np,
    "numpy.linalg": np.linalg,
    "numpy.fft": np.fft,
    "numpy.strings": np.strings,
    "numpy.emath": np.emath,
}


def _sorted_out(functions: dict[str, Any], operators: Sequence[str]) -> dict[str, Any]:
    """Sort functions by how they run on traced values: as, by or without operators."""
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
    """Return the `__name__` of a function if the module has it, else `name`."""
    own = str(getattr(value, "__name__", name))
    return own if getattr(module, own, None) is value else name


def _calls_protocols(value: Any) -> bool:
    """Return whether a function calls `__array_ufunc__` or `__array_function__`."""
    return (
        isinstance(value, np.ufunc)
        or hasattr(value, "_implementation")
        or (callable(value) and not isinstance(value, type) and _is_known(value))
    )


def _is_known(value: Any) -> bool:
    return value in FUNCTIONS


def _add_coverage_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--missing",
        action="store_true",
        help="list the operators without a rule and the functions without an operator",
    )


COVERAGE = Command(
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
    _add_coverage_arguments,
    _coverage,
)


# ---- `customop stubs`: stubs of operators for type checkers without a plugin ----


def _stubs(options: Namespace, output: Plain) -> int:
    modules = [import_target(target).__name__ for target in options.modules]
    if options.check:
        return _compare(options, output, modules)
    written = [str(path) for path in write_stubs(modules, options.out)]
    for path in written:
        output.line(path)
    output.document({"written": written, "differences": ""})
    return 0


def _compare(options: Namespace, output: Plain, modules: list[str]) -> int:
    differences = check_stubs(modules, options.out)
    for line in differences.splitlines():
        output.line(line)
    if differences:
        names = " ".join(options.modules)
        output.line()
        output.line(f"to update them: customop stubs {names} --out {options.out}")
    output.document({"written": [], "differences": differences})
    return int(bool(differences))


def _add_stubs_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "modules",
        nargs="+",
        metavar="MODULE",
        help="a module, a package or a file.py that defines operators",
    )
    parser.add_argument(
        "--out",
        default="typings",
        metavar="DIR",
        help="the folder of stubs (typings, where pyright looks)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="print how the stubs differ and write nothing; status 1 if they differ",
    )


STUBS = Command(
    "stubs",
    "write stubs of operators for type checkers",
    "Write stubs for the operators that modules define. pyright, and mypy without the\n"
    "plugin, then know `customop.ops` with its names, types and overloads. pyright looks\n"
    "in `typings`; mypy needs `mypy_path = typings`.",
    '{"written": [str], "differences": a unified diff as str}',
    _add_stubs_arguments,
    _stubs,
    has_page=False,
)
