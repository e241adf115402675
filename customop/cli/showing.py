"""``customop show`` and ``customop explain``: one operator, and one of its calls."""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from customop.cli import arguments, listing
from customop.cli.command import Command, UsageError
from customop.cli.finding import find_operator, find_packet
from customop.cli.plain import Plain
from customop.core.explain import Candidate, Explanation
from customop.core.operator import Operator
from customop.core.page import explanation_card, operator_card
from customop.core.rules import ORIGINS, Rule, hidden_rules, rules_of
from customop.core.samples import call_text
from customop.errors import CustomOpError
from customop.pages.write import page
from customop.schema.parameters import MISSING, Parameter

__all__ = ["EXPLAIN", "SHOW"]

# ---- show ----


def _document(op: Operator[..., Any], rules: Sequence[Rule]) -> dict[str, Any]:
    lines = (inspect.getdoc(op) or "").strip().splitlines()
    packet = find_packet(f"{op.namespace}::{op.name}")
    samples = op.sample_inputs()
    return {
        **listing.as_json(op, rules),
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
    """Sentences about the results that share memory with arguments."""
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
    arguments.add_name,
    _show,
)

# ---- explain ----


def _explain(options: Namespace, output: Plain) -> int:
    resolve = _resolver(options.name)
    args, keywords = arguments.parse(options.args, arguments.zeros)
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
    """Find the overload: the one that is named, or the one that fits the arguments."""
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
    arguments.add_call,
    _explain,
)
