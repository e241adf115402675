"""Elements of HTML. Every text in them is escaped when they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import TypeAlias

from customop.errors import shortened
from customop.frozen import Frozen
from customop.later import later

__all__ = ["Child", "Element", "element", "html_of", "visible"]

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
# Of a text in an element. A longer one has dots in its middle.
_LONGEST = 20_000


class Element(Frozen):
    """One element: its tag, its attributes, and what is in it."""

    tag: str
    attributes: Mapping[str, str]
    children: tuple[Child, ...]


Child: TypeAlias = "Element | str"


def element(tag: str, *children: Child, **attributes: str) -> Element:
    """An element with texts and elements in it.

    Parameters
    ----------
    tag : str
    *children : Element or str
    **attributes : str
        ``class_`` is ``class``, and ``data_key`` is ``data-key``. Empty ones are left
        out.

    Examples
    --------
    >>> from customop.pages.markup import element, html_of
    >>> html_of(element("b", "1 < 2", class_="wide"))
    '<b class="wide">1 &lt; 2</b>'
    """
    assert tag not in _FORBIDDEN
    named = {name.rstrip("_").replace("_", "-"): v for name, v in attributes.items()}
    # An event handler would run its text.
    assert not any(name.startswith("on") for name in named)
    return Element(tag, {name: v for name, v in named.items() if v}, children)


def html_of(child: Child) -> str:
    """The text of an element in HTML, or of a text."""
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
    r"""A text with escapes for signs that do not show; shortened if it is long.

    Examples
    --------
    >>> from customop.pages.markup import visible
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
