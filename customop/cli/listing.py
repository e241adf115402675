"""``customop list``: the operators of each namespace with their rules, and plug-ins."""

from __future__ import annotations

import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from customop.arrays.kinds import load_kind
from customop.cli import pages
from customop.cli.command import Command, UsageError
from customop.cli.finding import matching
from customop.cli.plain import Plain
from customop.core.operator import Operator
from customop.core.registry import in_namespace, load_namespace_plugin
from customop.core.rules import ORIGINS, Rule, rules_of
from customop.errors import CustomOpWarning, counted
from customop.plugins import GROUPS, KINDS, InstalledPlugin, plugins_of

__all__ = ["COLUMNS", "COMMAND", "as_json", "cells"]

# The kinds with a column; kernels come before them, other kinds after them.
_COLUMNS = ("fake", "autograd", "jvp", "vmap")
COLUMNS = ("operator", "kernels", *_COLUMNS, "others")


def as_json(op: Operator[..., Any], rules: Sequence[Rule]) -> dict[str, Any]:
    """Return the fields of an operator in JSON."""
    return {
        "name": op.qualname,
        "schema": str(op.schema),
        "tags": sorted(tag.name for tag in op.tags),
        "module": op.definition.module,
        "place": op.definition.place,
        "rules": [rule._asdict() for rule in rules],
    }


def cells(op: Operator[..., Any], rules: Sequence[Rule]) -> list[str]:
    """Return the row of an operator in the table; '-' where a rule is missing."""
    kernels = [_marked(r) for r in rules if r.name == "kernel"]
    by_name = {r.name: r.origin for r in rules}
    rest = [_titled(r) for r in rules if r.name not in (*_COLUMNS, "kernel")]
    return [
        op.qualname,
        ",".join(kernels) or "-",
        *[by_name.get(name, "-") for name in _COLUMNS],
        ", ".join(rest) or "-",
    ]


def _marked(rule: Rule) -> str:
    return rule.target if rule.origin == "own" else f"{rule.target}({rule.origin})"


def _titled(rule: Rule) -> str:
    name = f"{rule.name}:{rule.target}" if rule.target else rule.name
    return name if rule.origin == "own" else f"{name}({rule.origin})"


def _add_arguments(parser: ArgumentParser) -> None:
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


def _run(options: Namespace, output: Plain) -> int:
    if options.plugins:
        return _run_plugins(options, output)
    found = [(op, rules_of(op)) for op in matching(options.patterns)]
    for index, (namespace, group) in enumerate(
        groupby(found, key=lambda pair: pair[0].namespace)
    ):
        members = list(group)
        if index:
            output.line()
        output.heading(f"{namespace}: {counted(len(members), 'operator')}")
        rows = [[*cells(op, rules), str(op.schema)] for op, rules in members]
        output.table([*COLUMNS, "schema"], rows)
    output.document({"operators": [as_json(op, rules) for op, rules in found]})
    output.page(
        lambda: pages.list_page([(op, cells(op, rules)) for op, rules in found])
    )
    return 0


# ---- plug-ins ----

_PLUGIN_COLUMNS = ("gives", "package", "version", "module", "loaded")


def _run_plugins(options: Namespace, output: Plain) -> int:
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
    output.page(lambda: pages.table_page("plug-ins", _PLUGIN_COLUMNS, rows))
    return 0


def _loaded(group: str, name: str) -> list[InstalledPlugin]:
    """Load the plug-in of a name; return all that have the name."""
    with warnings.catch_warnings():
        # The table has the errors, and who shares a name.
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


_ORIGINS = "\n".join(f"  {word:<9} {text}" for word, text in ORIGINS.items())

COMMAND = Command(
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
    _add_arguments,
    _run,
)
