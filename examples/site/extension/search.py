"""The text of all pages for the search, in a file that pages load without a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from extension.files import write

__all__ = ["make"]

# Pages without text of their own.
_LEFT_OUT = {"search", "genindex", "py-modindex", "index"}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5"}
# The reader of the search takes a list of these: page, title of the page, anchor, title, text.
Section = tuple[str, str, str, str, str]


class _Sections(HTMLParser):
    """The sections of a page and its documented names, each with its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str], list[str]]] = []
        self._inside = 0  # of <article>
        self._title = False
        self._hidden = ""  # the tag whose text is left out
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a section, a title, or what is left out."""
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        if tag == "article":
            self._inside += 1
        elif self._inside and not self._hidden:
            anchor = given.get("id") or ""
            if anchor and (tag == "section" or (tag == "dt" and "sig" in classes)):
                self.found.append((anchor, [anchor] if tag == "dt" else [], []))
            elif tag in _HEADINGS:
                self._title = True
            elif tag in ("script", "style") or "headerlink" in classes:
                self._hidden = tag

    def handle_endtag(self, tag: str) -> None:
        """End what has begun."""
        if tag == self._hidden:
            self._hidden = ""
        elif tag in _HEADINGS:
            self._title = False
        elif tag == "article":
            self._inside -= 1

    def handle_data(self, text: str) -> None:
        """Add text to the section, or to its title."""
        if self._inside and self.found and not self._hidden:
            _, title, body = self.found[-1]
            (title if self._title else body).append(text)


def make(app: Any, failure: Exception | None) -> None:
    """Write the sections of all pages beside them."""
    if failure is None and app.builder.format == "html":
        folder = Path(app.outdir)
        names = sorted(name for name in app.env.found_docs if name not in _LEFT_OUT)
        found = [section for name in names for section in _sections(folder, name)]
        lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in found)
        write(folder / "sections.js", f"window.sections = [\n{lines}\n];\n")


def _sections(folder: Path, name: str) -> Iterator[Section]:
    html = (folder / f"{name}.html").read_text(encoding="utf-8")
    found = _Sections(html).found
    page = _joined(found[0][1]) if found else name
    for place, (anchor, title, body) in enumerate(found):
        where = anchor if place else ""
        yield f"{name}.html", page, where, _joined(title), _joined(body)


def _joined(texts: list[str]) -> str:
    return re.sub(r"\s+", " ", "".join(texts)).strip()
