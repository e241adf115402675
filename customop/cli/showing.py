"""``customop show`` and ``customop explain``: one operator, and one call of it."""

from __future__ import annotations

import inspect
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.describe import abbreviated
from customop.arrays.kinds import is_array
from customop.cli import arguments, listing
from customop.cli.command import Command
from customop.cli.finding import find_operator, find_packet
from customop.cli.output import Output
from customop.cli.rules import ORIGINS, Rule, hidden_rules, rules_of
from customop.core.explain import Candidate, Explanation
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.schema.parameters import MISSING, Parameter

__all__ = ["EXPLAIN", "SHOW", "call_text"]

# ---- show ----


def _document(op: Operator[..., Any], rules: Sequence[Rule]) -> dict[str, Any]:
    return {
        **listing.as_json(op, rules),
        "summary": _summary(op),
        "overloads": _overloads(op),
        "parameters": [_parameter(p) for p in op.schema.parameters],
        "returns": [_return(r) for r in op.schema.returns],
        "source": op.source,
        "samples": _samples(op),
    }


def _parameter(p: Parameter) -> dict[str, Any]:
    return {
        "name": p.name,
        "type": str(p.type),
        "kind": p.kind,
        "default": None if p.default is MISSING else _default(p),
        "alias": None if p.alias is None else p.alias.name,
        "written": p.is_written,
    }


def _default(p: Parameter) -> str:
    return str(p).partition("=")[2]


def _return(r: Any) -> dict[str, Any]:
    alias = None if r.alias is None else r.alias.name
    written = r.alias is not None and r.alias.is_write
    return {"type": str(r.type), "alias": alias, "written": written}


def _summary(op: Operator[..., Any]) -> str:
    """The first line of the docstring, or nothing."""
    lines = (inspect.getdoc(op) or "").strip().splitlines()
    return lines[0] if lines else ""


def _overloads(op: Operator[..., Any]) -> list[str]:
    packet = find_packet(f"{op.namespace}::{op.name}")
    return [getattr(packet, name).qualname for name in packet.overloads()]


def _samples(op: Operator[..., Any]) -> list[dict[str, Any]]:
    return [{"call": call_text(op, s), "note": s.note} for s in op.sample_inputs()]


def call_text(op: Operator[..., Any], sample: Sample) -> str:
    """Return a call in short: ``mylib::scale(f64[3], k=2.0)``."""
    named = [f"{name}={_short(value)}" for name, value in sample.kwargs.items()]
    return f"{op.qualname}({', '.join([*map(_short, sample.args), *named])})"


def _short(value: Any) -> str:
    """A value with its arrays by dtype and shape."""
    if is_array(value):
        return abbreviated(value)
    if type(value) is list:
        return f"[{', '.join(map(_short, value))}]"
    return repr(value)


def _facts(op: Operator[..., Any]) -> list[tuple[str, str]]:
    written = ", ".join(op.schema.written)
    return [
        ("schema", str(op.schema)),
        ("tags", ", ".join(sorted(tag.name for tag in op.tags)) or "-"),
        ("defined", op.definition.place),
        ("module", op.definition.module),
        ("overloads", ", ".join(_overloads(op))),
        ("writes", written or "-"),
        ("aliases", ", ".join(_aliases(op)) or "-"),
    ]


def _aliases(op: Operator[..., Any]) -> list[str]:
    """Results that lie on the memory of arguments, in words."""
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
        texts.append(f"{which} lies on {' or '.join(names)}")
    return texts


def _rule_rows(op: Operator[..., Any], rules: Sequence[Rule]) -> list[list[str]]:
    found = [*rules, *hidden_rules(op)]
    return [
        [
            f"{rule.name} {rule.target}".rstrip(),
            rule.origin,
            ", ".join(rule.places) or ORIGINS[rule.origin],
        ]
        for rule in found
    ]


def _show(options: Namespace, output: Output) -> int:
    op = find_operator(options.name)
    rules = rules_of(op)
    if options.json:
        output.document({"operator": _document(op, rules)})
        return 0
    output.heading(op.qualname)
    if _summary(op):
        output.line(_summary(op))
    output.line()
    output.table(["", ""], _facts(op))
    output.line()
    output.heading("rules")
    output.table(["rule", "origin", "from"], _rule_rows(op, rules))
    _show_samples(op, output)
    output.line()
    output.heading("generated call")
    output.source(op.source)
    return 0


def _show_samples(op: Operator[..., Any], output: Output) -> None:
    samples = _samples(op)
    if samples:
        output.line()
        output.heading("sample inputs")
        output.table(["", ""], [[s["call"], s["note"]] for s in samples])


def _add_name(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="namespace::name, or namespace::name.overload"
    )


SHOW = Command(
    "show",
    "one operator: schema, tags, rules and where they stand, generated call",
    "Show all of an operator: its schema and tags, where it and each of its rules is"
    " defined, its sample inputs, and the source of its generated call.",
    '{"operator": {as of list, and "summary": str, "overloads": [str],\n'
    '  "parameters": [{"name": str, "type": str, "kind": "positional_only" |\n'
    '  "positional" | "keyword_only", "default": str | null, "alias": str | null,\n'
    '  "written": bool}], "returns": [{"type": str, "alias": str | null,\n'
    '  "written": bool}], "source": str, "samples": [{"call": str, "note": str}]}}',
    _add_name,
    _show,
)

# ---- explain ----


def _explain(options: Namespace, output: Output) -> int:
    resolve = _resolver(options.name)
    args, keywords = arguments.parse(options.args, arguments.zeros)
    why = resolve(*args, **keywords).explain(*args, **keywords)
    if options.json:
        output.document(_explained(why))
    else:
        output.line(str(why))
    return 0


def _resolver(name: str) -> Callable[..., Operator[..., Any]]:
    """What gives the overload that is named, or else that the arguments fit."""
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


def _add_call(parser: ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("args", nargs="*", metavar="ARG", help=arguments.HELP)


EXPLAIN = Command(
    "explain",
    "which kernel or rule a call takes, and why not the others",
    "Say which kernel or rule a call with these arguments would take, and why not the"
    " others.\nNothing runs: arrays are zeros. Of several overloads the one is explained"
    " that\nthe arguments fit.",
    '{"call": str, "schema": str, "taken": {"name": str, "why": str, "place": str} |\n'
    '  null, "error": {"type": str, "message": str} | null,\n'
    '  "others": [{"name": str, "why": str, "place": str}]}',
    _add_call,
    _explain,
)
