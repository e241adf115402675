"""How notebooks show a schema: its text, and tables of parameters and results."""

from __future__ import annotations

from collections.abc import Iterator

from customop.pages.html import (
    Child,
    Element,
    badge,
    card,
    element,
    grid,
    in_notebook,
    mono,
    title,
)
from customop.schema.schema import Schema
from customop.schema.types import MISSING, Parameter


def schema_html(schema: Schema) -> str:
    """A schema in a notebook."""
    blocks = [title("Schema", ""), signature(schema), *parameter_tables(schema)]
    return in_notebook(card(*blocks))


def signature(schema: Schema, qualname: str = "") -> Element:
    """The text of a schema, as `Schema.show` has it, in colors."""
    by_text = {str(p): p for p in schema.parameters}
    parts: list[Child] = [element("span", qualname, class_="parameter"), "("]
    for number, text in enumerate(schema.parameter_texts()):
        parts += [", "] if number else []
        parts += _colored(by_text[text]) if text in by_text else [_mark(text)]
    parts += [") ", _mark("->"), " "]
    parts.append(element("span", schema.returns_text(), class_="type"))
    return element("code", *parts, class_="signature")


def _mark(text: str) -> Element:
    return element("span", text, class_="mark")


def _colored(p: Parameter) -> Iterator[Child]:
    """A parameter: its type, its name, and its default."""
    kind, default = _split(p)
    yield element("span", kind, class_="type")
    yield " "
    yield element("span", p.name, class_="parameter")
    if p.default is not MISSING:
        yield "="
        yield element("span", default, class_="value")


def _split(p: Parameter) -> tuple[str, str]:
    """The texts of the type, with its alias, and of the default of a parameter."""
    text = str(p)
    required = text if p.default is MISSING else str(p.replaced(default=MISSING))
    return required[: -len(p.name) - 1], text[len(required) + 1 :]


def parameter_tables(schema: Schema) -> list[Element]:
    """Tables of the parameters and of the results; empty ones are left out."""
    rows: list[list[Child]] = []
    for p in schema.parameters:
        kind, default = _split(p)
        how = p.kind.replace("_", " ").replace("positional only", "by position only")
        how = {"positional": "", "keyword only": "by name only"}.get(how, how)
        notes = [badge("written", "warn")] if p.is_written else []
        rows.append(
            [
                mono(p.name),
                mono(kind),
                mono(default) if default else "",
                _noted(how, notes),
            ]
        )
    tables = (
        [_trimmed(["parameter", "type", "default", "passed"], rows)] if rows else []
    )
    found: list[list[Child]] = [
        [mono(r.name or f"result {i}"), mono(str(r).removesuffix(f" {r.name}"))]
        for i, r in enumerate(schema.returns)
    ]
    if len(schema.returns) > 1 or any(r.name for r in schema.returns):
        tables.append(grid(["result", "type"], found))
    return tables


def _noted(text: str, notes: list[Element]) -> Child:
    return element("span", text, " ", *notes) if notes else text


def _trimmed(columns: list[str], rows: list[list[Child]]) -> Element:
    """A table without the columns in which all cells are empty."""
    empty = ("", mono(""))
    used = [i for i in range(len(columns)) if any(row[i] not in empty for row in rows)]
    return grid([columns[i] for i in used], [[row[i] for i in used] for row in rows])
