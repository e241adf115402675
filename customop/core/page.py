"""How notebooks and browsers show an operator, and why a call takes a rule."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache

from customop.core.explain import Candidate, Explanation
from customop.core.operator import Operator
from customop.core.rules import ORIGINS, Rule, hidden_rules, rules_of
from customop.core.samples import call_text
from customop.errors import counted
from customop.pages.blocks import (
    badge,
    card,
    code,
    fact_list,
    faint,
    fold,
    grid,
    mono,
    place_of,
    prose,
    section,
    title,
)
from customop.pages.markup import Child, Element, element
from customop.pages.write import in_notebook
from customop.schema.page import parameter_tables, signature
from customop.schema.tags import Tag

__all__ = [
    "TONES",
    "explanation_card",
    "explanation_html",
    "operator_card",
    "operator_html",
]

# ---- an operator ----

# Origin of a rule -> the tone of its word.
TONES = {"own": "good", "loop": "warn", "hidden": "soft", "disabled": "warn"}
# Registered for the operator itself, whether or not a call takes it.
_OWN = ("own", "disabled")


def operator_html(*operators: Operator[..., object]) -> str:
    """Operators in a notebook; no code of the user runs."""
    return in_notebook(*map(operator_card, operators))


def operator_card(op: Operator[..., object], *, with_samples: bool = False) -> Element:
    """An operator: its schema, its rules, its docstring and its generated call.

    Parameters
    ----------
    op : Operator
    with_samples : bool
        Whether its sample inputs are made, which runs the user's function.
    """
    text = inspect.getdoc(op) or ""
    summary, _, rest = text.strip().partition("\n")
    known = _meanings()
    names = sorted(tag.name for tag in op.tags)
    tags = [badge(name, hint=known.get(name, "")) for name in names]
    state = [badge("closed", "bad")] if op.closed else []
    return card(
        title(op.qualname, "operator", *state, *tags, lead=summary),
        signature(op.schema, op.qualname),
        fact_list(
            [
                ("defined at", place_of(op.definition.place)),
                ("writes", mono(", ".join(op.schema.written))),
            ][: 2 if op.schema.written else 1]
        ),
        *_rule_sections(op),
        *_waivers(op),
        *(_samples(op) if with_samples else ()),
        *_parameters(op),
        *([fold("docstring", prose(text))] if rest.strip() else []),
        fold("generated call", code(op.source)),
    )


@cache
def _meanings() -> dict[str, str]:
    """Name of a tag -> what it promises, from the docstring of `Tag`."""
    found: dict[str, list[str]] = {}
    texts: list[str] = []  # those before the first tag are for nobody
    for line in (inspect.getdoc(Tag) or "").splitlines():
        if line in Tag.__members__:
            found[line] = texts = []
        elif line.startswith("    "):
            texts.append(line.strip())
    return {name: " ".join(texts) for name, texts in found.items()}


def _rule_sections(op: Operator[..., object]) -> list[Element]:
    """Rules that are registered, those that follow from others, and replaced ones."""
    rules = rules_of(op)
    own = [rule for rule in rules if rule.origin in _OWN]
    rest = [rule for rule in rules if rule.origin not in _OWN]
    old = hidden_rules(op)
    rows = [[_rule_name(r), _places(r)] for r in own]
    blocks = [section("Rules", grid(["rule", "file and line"], rows))] if own else []
    if rest:
        how = [[_rule_name(r), _how(r)] for r in rest]
        blocks.append(section("Derived rules", grid(["rule", "how it is found"], how)))
    if old:
        replaced = [[_rule_name(r), _places(r)] for r in old]
        table = grid(["rule", "file and line"], replaced)
        blocks.append(fold("replaced rules", table, note=str(len(old))))
    return blocks


def _rule_name(rule: Rule) -> Child:
    target: list[Child] = [" ", mono(rule.target)] if rule.target else []
    is_off = rule.origin == "disabled"
    marks: list[Child] = [" ", badge("disabled", "warn")] if is_off else []
    return element("span", rule.name, *target, *marks)


def _places(rule: Rule) -> Child:
    lines = [element("div", place_of(place)) for place in dict.fromkeys(rule.places)]
    return element("div", *lines)


def _how(rule: Rule) -> Child:
    text = ORIGINS[rule.origin]
    places = [element("div", place_of(place)) for place in rule.places]
    if rule.origin == "loop":
        return element("div", badge("missing", "warn"), f" {text.partition(': ')[2]}")
    return element("div", text, *places)


def _waivers(op: Operator[..., object]) -> list[Element]:
    if not op.waivers:
        return []
    rows: list[list[Child]] = [[mono(check), why] for check, why in op.waivers.items()]
    return [section("Waived checks", grid(["check", "reason"], rows))]


def _samples(op: Operator[..., object]) -> list[Element]:
    samples = op.sample_inputs()
    if not samples:
        return []
    rows: list[list[Child]] = [
        [mono(call_text(op.qualname, s)), s.note] for s in samples
    ]
    return [fold("sample inputs", grid(["call", "note"], rows), note=str(len(rows)))]


def _parameters(op: Operator[..., object]) -> list[Element]:
    tables = parameter_tables(op.schema)
    count = counted(len(op.schema.parameters), "parameter")
    return [fold("parameters and results", *tables, note=count)] if tables else []


# ---- an explanation ----


def explanation_html(why: Explanation) -> str:
    """An explanation in a notebook."""
    return in_notebook(explanation_card(why))


def explanation_card(why: Explanation) -> Element:
    """The rule that a call takes, or its error, and the rules that it does not take."""
    blocks: list[Child] = [title(why.call, "", _verdict(why))]
    blocks.append(element("code", why.schema, class_="signature"))
    if why.taken is not None:
        facts: list[tuple[str, Child]] = [("takes", why.taken.name)]
        if why.taken.place:
            facts.append(("registered at", place_of(why.taken.place)))
        blocks.append(fact_list([*facts, ("because", why.taken.why)]))
    if why.error is not None:
        blocks.append(code(f"{type(why.error).__name__}: {why.error}"))
    if why.others:
        rows = [_candidate(other) for other in why.others]
        table = grid(["rule", "why not", "file and line"], rows)
        blocks.append(section("Not taken", table))
    return card(*blocks)


def _verdict(why: Explanation) -> Element:
    return badge("raises", "bad") if why.taken is None else badge("runs", "good")


def _candidate(found: Candidate) -> Sequence[Child]:
    where = place_of(found.place) if found.place else faint("derived")
    return [found.name, found.why, where]
