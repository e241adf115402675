"""The site builds without a warning, and every link in it leads somewhere."""

from __future__ import annotations

import re
from collections import Counter
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import customop as co
from tests.site.test_reference import MODULES

# In one process with the other tests of the site, which is built once.
pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("site")]
# Attributes of elements that a browser loads, and those that it follows.
LOADS = {
    "img": "src",
    "script": "src",
    "source": "src",
    "iframe": "src",
    "link": "href",
}
FOLLOWS = {"a": "href"}


class Links(HTMLParser):
    """The anchors of a page, what it loads, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.follows: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes of an element."""
        found = dict(attrs)
        self.anchors |= {v for k, v in attrs if k in ("id", "name") and v}
        for table, kept in ((LOADS, self.loads), (FOLLOWS, self.follows)):
            value = found.get(table.get(tag, ""))
            if value:
                kept.append(value)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    """Every page, with its links."""
    return {
        path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }


def is_elsewhere(link: str) -> bool:
    """Whether a link leads to another machine."""
    return bool(urlsplit(link).netloc)


def leads_somewhere(link: str, page: Path, pages: dict[Path, Links]) -> bool:
    """Whether the file of a link exists, and has the anchor of the link."""
    parts = urlsplit(link)
    if parts.netloc or parts.scheme in ("data", "mailto"):
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    anchor = unquote(parts.fragment)
    is_there = not anchor or target not in pages or anchor in pages[target].anchors
    return target.is_file() and is_there


def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Links]) -> None:
    """Links inside the site name pages that exist, and anchors in them."""
    broken = [
        (page.relative_to(site), link)
        for page, links in pages.items()
        for link in links.follows + links.loads
        if not leads_somewhere(link, page, pages)
    ]
    assert broken == []
    assert len(pages) > 60


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Links]) -> None:
    """Pages, style sheets and scripts load nothing from another machine."""
    loads = [(p.name, x) for p, links in pages.items() for x in links.loads]
    assert [pair for pair in loads if is_elsewhere(pair[1])] == []
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert "url(http" not in text, sheet
        assert "@import" not in text, sheet


def test_every_public_name_is_documented_once(pages: dict[Path, Links]) -> None:
    """The reference has an anchor for every public name, on one page."""
    for name in {*co.__all__} - MODULES:
        full = f"customop.{name}"
        found = [path.stem for path, links in pages.items() if full in links.anchors]
        assert len(found) == 1, (name, found)


def test_pages_have_titles_of_their_own(site: Path) -> None:
    """No two pages share a title, and the sidebar calls a program as its page does."""
    text = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    found = {path: re.search(r"<h1>(.*?)<a ", page) for path, page in text.items()}
    titles = {path: unescape(h[1]) for path, h in found.items() if h}
    assert [t for t, count in Counter(titles.values()).items() if count > 1] == []
    sidebar = text[site / "gallery.html"].partition("<article")[0]
    for path in (site / "gallery").glob("*.html"):
        link = rf'href="gallery/{path.name}">(.*?)</a>'
        assert re.findall(link, sidebar)[:1] == [escape(titles[path])], path.name


def test_every_program_has_a_page_and_output(site: Path) -> None:
    """The gallery has every example, with what it prints, and no failure."""
    examples = Path(__file__).parents[2] / "examples"
    for path in examples.glob("*.py"):
        text = (site / "gallery" / f"{path.stem}.html").read_text(encoding="utf-8")
        assert "printed" in text, path.name
        assert str(site) not in text
        assert "/tmp/" not in text, path.name
