"""Read pages as a browser does, for tests."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple


class ReadPage(NamedTuple):
    """A page: its elements with the names of their attributes, and its texts."""

    structure: list[str]
    text: str
    attributes: list[str]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.structure: list[str] = []
        self.texts: list[str] = []
        self.values: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.structure.append(f"<{tag} {' '.join(name for name, _ in attrs)}>")
        self.values += [value or "" for _, value in attrs]
        if tag not in ("br", "input", "meta", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.structure.append(f"</{tag}>")

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def read(page: str) -> ReadPage:
    """Read HTML; each element must be closed in its place."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return ReadPage(reader.structure, "".join(reader.texts), reader.values)


# Texts that would break out of a page, hide in it, or turn its words around.
HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\"' onclick='alert(1)' x=\"",
    "javascript:alert(1)",
    "]]>--><!-- &lt;b&gt; &#60; &amp",
    "a\0b\x07c\x1b[31md\x7f\x85",
    "abc\u202edcba\u2066\u2069\u200f",
    "lone \ud800 and \udfff, \u2028 \u2029 \ufeff \uffff",
    "\u05d0\u05d1\u05d2 \u0627\u0644 \U0001f600\u200d\U0001f525",
    "{{7*7}} ${x} {% raw %} `x` \\u003c",
    "  \t  \n\n  ",
    "",
]
