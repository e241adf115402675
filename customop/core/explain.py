"""Why a call takes a rule, which rules an operator has, and the page that shows both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from customop.arrays.kinds import DEFAULT, FAKE, kind_name
from customop.arrays.nested import show_values
from customop.core.builtin_kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    JVP,
    SAMPLE_INPUTS,
    VMAP,
)
from customop.core.call_arguments import kind_of_call
from customop.core.derived_rules import find_fake, source_of
from customop.core.dispatch import find_array_rule, find_wrapper, kernel_for
from customop.core.interpreter import Mode, leaked, nested_leaves, top_interpreter
from customop.core.operator import Operator
from customop.core.registry import all_operators
from customop.core.rule_kind import COMPOSITE, MergedKind, Row, RuleKind, rule_kind
from customop.core.samples import call_text
from customop.core.table import RuleTable, fallbacks
from customop.errors import (
    CustomOpError,
    DataDependentError,
    MissingRuleError,
    counted,
    place,
)
from customop.pages.html import (
    Child,
    Element,
    badge,
    card,
    code,
    element,
    fact_list,
    faint,
    fold,
    grid,
    in_notebook,
    mono,
    place_of,
    prose,
    section,
    title,
)
from customop.schema.schema import parameter_tables, signature
from customop.schema.tags import Tag

# ---- the rules of an operator: registered ones, derived ones and fallbacks ----


# Where rules come from.
ORIGINS = {
    "own": "registered for the operator",
    "tags": "derived from the tags or the schema",
    "autograd": "derived by transposing the backward formula",
    "body": "derived from the operators of the composite body",
    "derived": "derived by its kind",
    "fallback": "registered for all operators without their own",
    "loop": "missing: a loop over the rows, with a warning",
    "hidden": "replaced by a newer registration",
    "disabled": "disabled by set_kernel_enabled",
}
_TRANSFORMS = (AUTOGRAD, JVP, VMAP)
_FIRST = (
    "kernel",
    COMPOSITE.name,
    FAKE,
    *(k.name for k in (*_TRANSFORMS, AUTOCAST, ARRAY_CLASS)),
)


class Rule(NamedTuple):
    """A kernel or rule of an operator.

    Attributes
    ----------
    name : str
        "kernel", "fake", "autograd", "jvp", "vmap", "composite", "autocast",
        "array_class", or the name of the user's rule kind.
    target : str
        The kind of array of a kernel, that and the dtype of "autocast", the class of
        "array_class"; else empty.
    origin : str
        One of `ORIGINS`.
    places : tuple of str
        File and line of its functions; empty for a derived rule.
    """

    name: str
    target: str
    origin: str
    places: tuple[str, ...] = ()


def rules_of(op: Operator[..., Any]) -> list[Rule]:
    """Return all rules of an operator: kernels, fake, transforms, others."""
    found = [rule for key, row in op.rows.items() for rule in _registered(op, key, row)]
    kernels = [kind for kind in fallbacks if isinstance(kind, str) and kind != FAKE]
    others: list[str | RuleKind] = [*kernels, FAKE, *_TRANSFORMS, *_user_kinds()]
    for key in others:
        if key not in op.rows:
            found += _unregistered(op, key)
    return sorted(found, key=_rank)


def hidden_rules(op: Operator[..., Any]) -> list[Rule]:
    """Return the registrations that newer ones replaced."""
    return [
        Rule(*_title(key), "hidden", (row.place,))
        for key, rows in op.stacks.items()
        if not isinstance(key, MergedKind)
        for row in rows[:-1]
    ]


def _user_kinds() -> list[RuleKind]:
    known = (*_TRANSFORMS, AUTOCAST, ARRAY_CLASS, COMPOSITE, SAMPLE_INPUTS)
    seen = {kind for op in all_operators().values() for kind in op.rows} | set(
        fallbacks
    )
    return [k for k in seen if isinstance(k, RuleKind) and k not in known]


def _title(key: str | RuleKind) -> tuple[str, str]:
    """Return the name and the target of a rule."""
    if isinstance(key, RuleKind):
        return key.name, ""
    return (FAKE, "") if key == FAKE else ("kernel", key)


def _rank(rule: Rule) -> tuple[int, str]:
    """Return a key for sorting: kernels keep their order, other kinds come by name."""
    is_first = rule.name in _FIRST
    return (_FIRST.index(rule.name), "") if is_first else (len(_FIRST), rule.name)


# ---- registered rules ----


def _registered(
    op: Operator[..., Any], key: str | RuleKind, row: Row
) -> Iterator[Rule]:
    origin = "disabled" if key in op.disabled else "own"
    name, target = _title(key)
    for entry, places in rule_kind(key).entries(row):
        yield Rule(name, entry or target, origin, places)


# ---- other rules ----


def _unregistered(op: Operator[..., Any], key: str | RuleKind) -> list[Rule]:
    origin = next((word for word, is_here in _origins(op, key) if is_here), None)
    if origin is None:
        return []
    fallback = op.fallback_for(key) if origin == "fallback" else None
    return [Rule(*_title(key), origin, () if fallback is None else (place(fallback),))]


def _origins(op: Operator[..., Any], key: str | RuleKind) -> Iterator[tuple[str, bool]]:
    """Yield the origins in the order in which a call tries them, and whether each applies."""
    has_body = COMPOSITE in op.rows
    kind = rule_kind(key)
    derived = None if kind.derive is None else kind.derive(op)
    yield "tags", key == FAKE and not has_body and find_fake(op) is not None
    yield ("tags" if key in _TRANSFORMS else "derived"), derived is not None
    other = kind.instead
    yield "autograd", other in op.rows
    yield "body", has_body and key in (FAKE, *_TRANSFORMS)
    yield "fallback", op.fallback_for(key) is not None
    yield "autograd", other is not None and op.fallback_for(other) is not None
    yield "loop", bool(kind.last_resort)


# ---- why a call takes the kernel or rule that it takes ----


class Candidate(NamedTuple):
    """A kernel or rule that a call might have taken.

    Attributes
    ----------
    name : str
        Such as ``"kernel for 'cpu'"`` or ``"vmap rule"``.
    why : str
        Why it is taken, or not.
    place : str
        File and line of its registration; empty where it is derived or missing.
    fn : object
        The kernel or rule itself; None where it is missing.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> found = co.ops.np.sin.default.explain(co.FakeArray((3,)))
    >>> found.taken.name, found.taken.why
    ('fake kernel', "'x' is an array of the kind 'fake'")
    """

    name: str
    why: str
    place: str = ""
    fn: Any = None

    def __str__(self) -> str:
        where = f" from {self.place}" if self.place else ""
        return f"{self.name}{where}: {self.why}"


class Explanation(NamedTuple):
    """The kernel or rule that a call takes, and why not the others.

    Attributes
    ----------
    call : str
        The call, with its arrays in short.
    schema : str
        The operator's, with its name.
    taken : Candidate or None
        What runs; None where the call raises.
    error : CustomOpError or None
        What the call raises where nothing can run.
    others : tuple of Candidate
        What is registered and does not run.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::explained", mutates_args=(), device_types="cpu")
    ... def explained(x: np.ndarray) -> np.ndarray:
    ...     return x + 1
    >>> print(explained.explain(np.zeros(3)))
    doc::explained(f64[3])
      doc::explained(Array x) -> Array
      takes the kernel for 'cpu' from ...: 'x' is an array of the kind 'cpu'
    """

    call: str
    schema: str
    taken: Candidate | None
    error: CustomOpError | None
    others: tuple[Candidate, ...]

    def __str__(self) -> str:
        lines = [self.call, self.schema]
        lines += [f"takes the {self.taken}"] if self.taken else []
        if self.error is not None:
            lines += [f"raises {line}" for line in str(self.error).splitlines()[:1]]
            lines += [f"  {line}" for line in str(self.error).splitlines()[1:]]
        lines += [f"not the {other}" for other in self.others]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        return str(explanation_html(self))


def explain(op: RuleTable, args: Sequence[Any]) -> Explanation:
    """Explain a call with these values of all parameters."""
    taken: Candidate | None = None
    error: CustomOpError | None = None
    try:
        taken = _taken(op, args)
    except (MissingRuleError, DataDependentError) as missing:
        error = missing
    used = None if taken is None else taken.fn
    top = top_interpreter(op, args)
    is_whole = top is not None or find_wrapper(op, args) is not None
    kind = None if is_whole else kind_of_call(op, args)[0]
    return Explanation(
        f"{op.qualname}({show_values(args)})",
        op.schema.show(op.qualname),
        taken,
        error,
        tuple(c for c in _others(op, top, kind) if c.fn is not used),
    )


def _taken(op: RuleTable, args: Sequence[Any]) -> Candidate:
    if op.closed:
        raise op.closed_error()
    wrapper = find_wrapper(op, args)
    if wrapper is not None:
        why = f"an object of the class {wrapper.cls.__name__} is among the arguments"
        handle = wrapper.handle
        return Candidate(
            "handler of objects that hold arrays", why, place(handle), handle
        )
    top = top_interpreter(op, args)
    if top is not None:
        return _by_interpreter(op, args, top)
    array_rule = find_array_rule(op, args)
    if array_rule is not None:
        why = "an array of its class is among the arguments"
        return Candidate(ARRAY_CLASS.title, why, place(array_rule), array_rule)
    kind, _ = kind_of_call(op, args)
    return _by_kind(op, args, kind)


def _by_interpreter(op: RuleTable, args: Sequence[Any], top: Any) -> Candidate:
    if not top.alive:
        raise leaked(op, top)
    kind: RuleKind = top.kind
    who = _who(op, args, top)
    row = op.rows.get(kind) or op.rows.get(kind.name)
    if row is not None:
        return _candidate(kind.title, who, row)
    other = kind.instead
    if other is not None and other in op.rows:
        return _candidate(other.title, f"{who}; {kind.how_instead}", op.rows[other])
    derived = None if kind.derive is None else kind.derive(op)
    if derived is not None:
        why = f"{who}; derived by its {source_of(derived)}"
        return Candidate(kind.title, why, "", derived)
    row = op.rows.get(COMPOSITE)
    if row is not None:
        why = f"{who}, which has no rule for the operator and so sees into its body"
        return _candidate(COMPOSITE.title, why, row)
    return _without_rule(op, top, who)


def _without_rule(op: RuleTable, top: Any, who: str) -> Candidate:
    kind = top.kind
    found = op.fallback_for(kind)
    if found is not None:
        return Candidate(f"fallback for '{kind.name}'", who, place(found), found)
    if kind.last_resort:
        return Candidate(kind.last_resort, f"{who}; there is no {kind.name} rule")
    if isinstance(top, Mode):
        return Candidate(f"{kind.name} mode", who)
    raise op.missing_rule(kind, who)


def _by_kind(op: RuleTable, args: Sequence[Any], kind: str) -> Candidate:
    kernel = kernel_for(op, kind)
    why = _why_kind(op, args, kind)
    if kind in op.disabled:
        why = f"{why}, whose kernel is disabled"
        return Candidate("function that the operator was made from", why, "", kernel)
    rows = op.rows
    title = rule_kind(kind).title
    if kind in rows:
        return _candidate(title, why, rows[kind])
    if kernel is op.derived_for(kind):
        return Candidate(title, f"{why}, which derives it", "", kernel)
    return _by_default(op, kind, kernel, why)


def _by_default(
    op: RuleTable, kind: str, kernel: Callable[..., Any], why: str
) -> Candidate:
    """Describe a kernel that is not registered for this kind of array alone."""
    rows = op.rows
    if kind != FAKE and DEFAULT in rows:
        why = f"{why}, which does not have its own kernel"
        return _candidate(rule_kind(DEFAULT).title, why, rows[DEFAULT])
    if COMPOSITE in rows:
        return _candidate(
            COMPOSITE.title, f"{why}, which has no kernel", rows[COMPOSITE]
        )
    if kind == FAKE and kernel is find_fake(op):
        why = f"{why}; derived by its {source_of(kernel)}"
        return Candidate("fake kernel", why, "", kernel)
    return Candidate(f"fallback for '{kind}'", why, place(kernel), kernel)


def _candidate(name: str, why: str, row: Row) -> Candidate:
    return Candidate(name, why, row.place, row.fn)


def _who(op: RuleTable, args: Sequence[Any], top: Any) -> str:
    """Say why an interpreter handles a call."""
    named = _named(op, args)
    mine = [n for n, v in named if getattr(v, "interpreter", None) is top]
    if mine:
        return f"'{mine[0]}' is a value of {top.describe()}"
    return f"{top.describe()} is open"


def _why_kind(op: RuleTable, args: Sequence[Any], kind: str) -> str:
    named = [(n, kind_name(v)) for n, v in _named(op, args)]
    mine = [name for name, k in named if k == kind]
    if mine:
        return f"'{mine[0]}' is an array of the kind '{kind}'"
    if op.schema.device_slot is not None and args[op.schema.device_slot] is not None:
        return f"'device' names the kind '{kind}'"
    return f"no array says another kind than '{kind}'"


def _named(op: RuleTable, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a call, each with the name of its parameter."""
    for slot in op.array_slots:
        yield op.schema.parameters[slot].name, args[slot]
    for slot in op.nested_slots:
        alone = [v if i == slot else () for i, v in enumerate(args)]
        for leaf in nested_leaves(op, alone):
            yield op.schema.parameters[slot].name, leaf


def _others(op: RuleTable, top: Any, kind: str | None) -> Iterator[Candidate]:
    """Yield all rows of an operator, and why a call does not take them."""
    for key, row in op.rows.items():
        asked = rule_kind(key)
        name = asked.title
        why = asked.why_not(kind) if top is None else f"{top.describe()} comes first"
        yield _candidate(name, why, row)
        hidden = len(op.stacks.get(key, ())) - 1
        for below in op.stacks[key][:hidden]:
            yield _candidate(name, f"hidden by the one at {row.place}", below)


# ---- an operator ----

# Origin of a rule -> the tone of its word.
TONES = {"own": "good", "loop": "warn", "hidden": "soft", "disabled": "warn"}
# Registered for the operator itself, whether or not a call takes it.
_OWN = ("own", "disabled")


def operator_html(*operators: Operator[..., object]) -> str:
    """Show operators in a notebook; none of the user's code runs."""
    return in_notebook(*map(operator_card, operators))


def operator_card(op: Operator[..., object], *, with_samples: bool = False) -> Element:
    """Build the page of an operator: schema, rules, docstring and generated call.

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
    """Map the name of each tag to what it promises, as the docstring of `Tag` says."""
    found: dict[str, list[str]] = {}
    texts: list[str] = []  # lines before the first tag belong to none
    for line in (inspect.getdoc(Tag) or "").splitlines():
        if line in Tag.__members__:
            found[line] = texts = []
        elif line.startswith("    "):
            texts.append(line.strip())
    return {name: " ".join(texts) for name, texts in found.items()}


def _rule_sections(op: Operator[..., object]) -> list[Element]:
    """Yield sections: registered rules, derived rules, and replaced ones."""
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
    """Show an explanation in a notebook."""
    return in_notebook(explanation_card(why))


def explanation_card(why: Explanation) -> Element:
    """Build the page of an explanation: the rule taken or the error, and the other rules."""
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
        rows = [_candidate_page(other) for other in why.others]
        table = grid(["rule", "why not", "file and line"], rows)
        blocks.append(section("Not taken", table))
    return card(*blocks)


def _verdict(why: Explanation) -> Element:
    return badge("raises", "bad") if why.taken is None else badge("runs", "good")


def _candidate_page(found: Candidate) -> Sequence[Child]:
    where = place_of(found.place) if found.place else faint("derived")
    return [found.name, found.why, where]
