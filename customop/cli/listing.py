"""``customop list``: the operators of each namespace with their rules."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from customop.cli.command import Command
from customop.cli.finding import matching
from customop.cli.plain import Plain
from customop.cli.rules import ORIGINS, Rule, rules_of
from customop.core.operator import Operator
from customop.errors import counted

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


def _run(options: Namespace, output: Plain) -> int:
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
    return 0


_ORIGINS = "\n".join(f"  {word:<9} {text}" for word, text in ORIGINS.items())

COMMAND = Command(
    "list",
    "operators by namespace, with their rules",
    "List operators by namespace, with their kernels, rules and schemas. Without a"
    f" pattern,\nlist all operators.\n\nwords in the columns:\n{_ORIGINS}\n"
    "  -         missing",
    '{"operators": [{"name": str, "schema": str, "tags": [str], "module": str,\n'
    '  "place": "FILE:LINE", "rules": [{"name": "kernel" | "fake" | "autograd" | "jvp" |\n'
    '  "vmap" | "composite" | "autocast" | "array_class" | your own kind,\n'
    '  "target": str, "origin": a word from above, "places": ["FILE:LINE"]}]}]}',
    _add_arguments,
    _run,
)
