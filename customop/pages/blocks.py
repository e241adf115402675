"""The parts that pages are made of: titles, facts, tables, folds, badges, code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from customop.pages.markup import Child, Element, element, visible

__all__ = [
    "badge",
    "bar",
    "card",
    "code",
    "fact_list",
    "faint",
    "fold",
    "grid",
    "mono",
    "place_of",
    "prose",
    "section",
    "title",
]

# Of a text in a line or in a cell of a table.
_LONGEST_CELL = 2_000
# The tones that badges have.
TONES = ("good", "bad", "warn", "soft", "plain")


def card(*blocks: Child) -> Element:
    """Blocks that belong together, in a frame."""
    return element("div", *blocks, class_="card")


def title(name: str, kind: str, *more: Child, lead: str = "") -> Element:
    """The head of a card: a name, what it is, badges, and a line that explains it."""
    parts: list[Child] = [
        element("strong", _short(name), class_="name", role="heading", aria_level="2"),
        *([element("span", kind, class_="kind")] if kind else []),
        *more,
    ]
    # Without the style, as in a notebook that is not trusted, only spaces part them.
    apart = [child for part in parts for child in (part, " ")][:-1]
    head = element("div", *apart, class_="head")
    below: list[Child] = [element("div", lead, class_="lead")] if lead else []
    return element("div", head, *below, class_="title")


def section(name: str, *blocks: Child, note: str = "") -> Element:
    """Blocks under a heading; nothing is folded."""
    extra: list[Child] = [" ", faint(note)] if note else []
    head = element(
        "div",
        element("strong", name),
        *extra,
        class_="heading",
        role="heading",
        aria_level="3",
    )
    return element("div", head, *blocks, class_="section")


def fold(name: Child, *blocks: Child, note: str = "", is_open: bool = False) -> Element:
    """Blocks that a click on their heading shows and hides."""
    head = element("span", name, class_="heading")
    extra: list[Child] = [" ", faint(note)] if note else []
    state = {"open": "open"} if is_open else {}
    return element("details", element("summary", head, *extra), *blocks, **state)


def fact_list(pairs: Iterable[tuple[str, Child]]) -> Element:
    """Names with their values; those with an empty text are left out."""
    entries = [
        element("div", element("dt", _short(name)), element("dd", _cell(value)))
        for name, value in pairs
        if value != ""
    ]
    return element("dl", *entries)


def grid(
    columns: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    numbers: Sequence[int] = (),
) -> Element:
    """A table; `numbers` are the columns whose texts end at the same place."""
    sides = ["number" if i in numbers else "" for i in range(len(columns))]
    heads = [
        element("th", name, class_=side, scope="col")
        for name, side in zip(columns, sides, strict=True)
    ]
    lines = [
        element(
            "tr",
            *[
                element("td", _cell(cell), class_=side, data_title=name)
                for cell, side, name in zip(row, sides, columns, strict=True)
            ],
        )
        for row in rows
    ]
    # On narrow screens each cell shows the title of its column.
    head, body = element("thead", element("tr", *heads)), element("tbody", *lines)
    has_numbers_alone = len(numbers) == len(columns) - 1 > 0
    width = "compact" if has_numbers_alone else ""
    table = element("table", head, body, class_=width)
    return element("div", table, class_="grid")


def badge(text: str, tone: str = "plain", hint: str = "") -> Element:
    """A word on a colored ground; the pointer shows a hint."""
    assert tone in TONES
    return element("span", text, class_=f"badge {tone}", title=hint)


def bar(share: float) -> Element:
    """A bar whose length is a share of its cell."""
    width = f"width: {100 * min(max(share, 0.0), 1.0):.1f}%"
    return element("span", element("span", style=width), class_="bar")


def mono(*texts: Child) -> Element:
    """Names and code within a line."""
    return element("code", *map(_cell, texts))


def code(text: str) -> Element:
    """Lines of code or of a message, as they are."""
    return element("pre", text)


def prose(text: str) -> Element:
    """Lines of a docstring, as they are."""
    return element("div", text, class_="prose")


def faint(text: str) -> Element:
    """A remark."""
    return element("span", _short(text), class_="faint")


def place_of(place: str) -> Child:
    """A file and a line, with the folder less visible."""
    text = _short(place)
    # Windows writes the other slash.
    start = max(text.rfind("/"), text.rfind("\\")) + 1
    folder = [element("span", text[:start], class_="folder")] if start else []
    return element("span", *folder, text[start:], class_="place")


def _cell(value: Child) -> Child:
    return _short(value) if isinstance(value, str) else value


def _short(text: str) -> str:
    return visible(text, _LONGEST_CELL)
