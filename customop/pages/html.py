"""Pages in HTML, for notebooks and browsers: elements, parts, and whole files."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import TypeAlias

from customop.errors import shortened
from customop.frozen import Frozen
from customop.later import later

# ---- whole pages, and parts for notebooks ----
# Whole files and the parts of notebooks, made of blocks or of a script with data.


def in_notebook(*blocks: Child) -> str:
    """Return the HTML of `_repr_html_`: blocks with their style, and no script."""
    return f"<style>{_resource('style.css')}</style>{_wrapped(*blocks)}"


def page(name: str, *blocks: Child) -> str:
    """Write a whole file with blocks; its script searches, sorts and folds.

    Parameters
    ----------
    name : str
        For the title of the window.
    *blocks : Element or str
    """
    tools = element(
        "div",
        element(
            "input",
            id="search",
            type="search",
            placeholder="search ( / )",
            aria_label="search",
            autocomplete="off",
            spellcheck="false",
        ),
        element("button", "fold all", id="fold", type="button"),
        element("button", "unfold all", id="unfold", type="button"),
        element("span", id="found", class_="faint", aria_live="polite"),
        class_="tools",
    )
    styles = _resource("style.css") + _resource("page.css")
    return _document(name, styles, _wrapped(tools, *blocks), _resource("page.js"))


def application(name: str, package: str, files: Sequence[str], data: object) -> str:
    """Write a whole file whose script draws data, for more than fits in a document.

    Parameters
    ----------
    name : str
        For the title of the window.
    package : str
        The package with the files of this application.
    files : sequence of str
        Its style, its body in HTML, and its script.
    data : object
        For JSON; the script reads it from the element ``data``.
    """
    style, body, script = (_resource(name, package) for name in files)
    styles = _resource("style.css") + _resource("application.css") + style
    held = f'<script type="application/json" id="data">{data_text(data)}</script>'
    content = f'<div class="customop application">{body}</div>{held}'
    return _document(name, styles, content, _resource("application.js") + script)


def frame(page_text: str, height: int = 480, *, instead: Sequence[Child]) -> str:
    """Put a whole file into a frame of a notebook, with its styles and scripts.

    Parameters
    ----------
    page_text : str
        The file, as `application` makes it.
    height : int, pixels
    instead : sequence of Element or str
        Blocks for notebooks that are not trusted. These take frames away, and
        also the style that hides the blocks.
    """
    text = html.escape(page_text)
    inner = (
        f'<iframe sandbox="allow-scripts" height="{height}" srcdoc="{text}"></iframe>'
    )
    note = element("div", "Trust this notebook to see the page here.")
    hidden = html_of(element("div", *instead, note, class_="instead"))
    style = f"<style>{_resource('style.css')}</style>"
    return f'{style}<div class="customop">{hidden}{inner}</div>'


def data_text(data: object) -> str:
    """Write JSON that can stand in an element: no sign in it can end that element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _wrapped(*blocks: Child) -> str:
    return html_of(element("div", *blocks, class_="customop"))


def _document(name: str, styles: str, content: str, script: str) -> str:
    """Write a file that may load nothing and run no script but its own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            html_of(element("title", visible(name, 200))),
            f"\n<style>\n{styles}</style>\n</head>\n<body>\n{content}\n",
            f"<script>{script}</script>\n</body>\n</html>\n",
        )
    )


@cache
def _resource(name: str, package: str = "customop.pages") -> str:
    return resources.files(package).joinpath(name).read_text("utf-8")


# ---- the parts that pages are made of: titles, facts, tables, folds, badges, code ----


# The longest text in a line or in a cell of a table.
_LONGEST_CELL = 2_000
# The tones that badges have.
TONES = ("good", "bad", "warn", "soft", "plain")


def card(*blocks: Child) -> Element:
    """Put blocks that belong together into a frame."""
    return element("div", *blocks, class_="card")


def title(name: str, kind: str, *more: Child, lead: str = "") -> Element:
    """Write the head of a card: a name, what it is, badges, and an explanation."""
    parts: list[Child] = [
        element("strong", _short(name), class_="name", role="heading", aria_level="2"),
        *([element("span", kind, class_="kind")] if kind else []),
        *more,
    ]
    # Without the style, as in a notebook that is not trusted, only spaces separate them.
    apart = [child for part in parts for child in (part, " ")][:-1]
    head = element("div", *apart, class_="head")
    below: list[Child] = [element("div", lead, class_="lead")] if lead else []
    return element("div", head, *below, class_="title")


def section(name: str, *blocks: Child, note: str = "") -> Element:
    """Write blocks under a heading; nothing is folded."""
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
    """Write blocks that a click on their heading shows and hides."""
    head = element("span", name, class_="heading")
    extra: list[Child] = [" ", faint(note)] if note else []
    state = {"open": "open"} if is_open else {}
    return element("details", element("summary", head, *extra), *blocks, **state)


def fact_list(pairs: Iterable[tuple[str, Child]]) -> Element:
    """Write names with their values; those with an empty text are left out."""
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
    """Write a table; `numbers` are the columns whose texts end at the same place."""
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
    """Write a word on a colored ground; the pointer shows a hint."""
    assert tone in TONES
    return element("span", text, class_=f"badge {tone}", title=hint)


def bar(share: float) -> Element:
    """Draw a bar whose length is a share of its cell."""
    width = f"width: {100 * min(max(share, 0.0), 1.0):.1f}%"
    return element("span", element("span", style=width), class_="bar")


def mono(*texts: Child) -> Element:
    """Write names and code within a line."""
    return element("code", *map(_cell, texts))


def code(text: str) -> Element:
    """Write lines of code or of a message, as they are."""
    return element("pre", text)


def prose(text: str) -> Element:
    """Write lines of a docstring, as they are."""
    return element("div", text, class_="prose")


def faint(text: str) -> Element:
    """Write a remark."""
    return element("span", _short(text), class_="faint")


def place_of(place: str) -> Child:
    """Write a file and a line, with the folder less visible."""
    text = _short(place)
    # Windows writes the other slash.
    start = max(text.rfind("/"), text.rfind("\\")) + 1
    folder = [element("span", text[:start], class_="folder")] if start else []
    return element("span", *folder, text[start:], class_="place")


def _cell(value: Child) -> Child:
    return _short(value) if isinstance(value, str) else value


def _short(text: str) -> str:
    return visible(text, _LONGEST_CELL)


# ---- elements of HTML. Every text in them is escaped when they are written ----


# Elements without content, and those that hold code: texts of users never stand there.
_EMPTY = frozenset(("br", "input", "wbr"))
_FORBIDDEN = frozenset(("script", "style", "iframe", "a"))
# Signs that do not show, or change what is around them, and their names: controls, marks
# of direction, separators of lines, lone surrogates, tags. U+200C and U+200D join
# letters and emoji, so they stay. Source: Unicode 16, categories Cc, Cf, Zl and Zp.
_HIDDEN = later(
    re.compile,
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e007f]",
)
# The longest text in an element. A longer one has dots in its middle.
_LONGEST = 20_000


class Element(Frozen):
    """One element: its tag, its attributes, and what is in it."""

    tag: str
    attributes: Mapping[str, str]
    children: tuple[Child, ...]


Child: TypeAlias = "Element | str"


def element(tag: str, *children: Child, **attributes: str) -> Element:
    """Make an element with texts and elements in it.

    Parameters
    ----------
    tag : str
    *children : Element or str
    **attributes : str
        ``class_`` is ``class``, and ``data_key`` is ``data-key``. Empty ones are left
        out.

    Examples
    --------
    >>> from customop.pages.html import element, html_of
    >>> html_of(element("b", "1 < 2", class_="wide"))
    '<b class="wide">1 &lt; 2</b>'
    """
    assert tag not in _FORBIDDEN
    named = {name.rstrip("_").replace("_", "-"): v for name, v in attributes.items()}
    # An event handler would run its text.
    assert not any(name.startswith("on") for name in named)
    return Element(tag, {name: v for name, v in named.items() if v}, children)


def html_of(child: Child) -> str:
    """Write an element, or a text, as HTML."""
    return "".join(_parts(child))


def _parts(child: Child) -> Iterator[str]:
    if isinstance(child, str):
        yield escape(visible(child))
        return
    pairs = [f' {k}="{escape(visible(v))}"' for k, v in child.attributes.items()]
    yield f"<{child.tag}{''.join(pairs)}>"
    if child.tag not in _EMPTY:
        for inner in child.children:
            yield from _parts(inner)
        yield f"</{child.tag}>"


def visible(text: str, most: int = _LONGEST) -> str:
    r"""Escape the signs that do not show; shorten the text if it is long.

    Examples
    --------
    >>> from customop.pages.html import visible
    >>> visible("a\x00b\u202ec")
    'a\\x00b\\u202ec'
    """
    plain = str.__str__(text)  # whatever its class does
    short = shortened(plain.replace("\r\n", "\n"), most)
    return _HIDDEN.sub(_escape_of, short)


def _escape_of(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
