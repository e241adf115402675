"""The site in a browser: no errors, nothing from elsewhere, search, navigation, dark mode."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Visit, chromium, visit

__all__ = ["chromium", "visit"]

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("site")]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on this machine by HTTP, as search reads the pages that it finds."""
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


PAGES = ("index", "tutorial", "api/gradients", "gallery", "guide/costs", "inside")


@pytest.mark.parametrize("name", PAGES)
def test_pages_load(name: str, address: str, visit: Visit) -> None:
    """A page has its heading and all its pictures; `visit` fails for errors."""
    page = visit(f"{address}/{name}.html")
    assert page.locator("h1").first.inner_text()
    page.wait_for_load_state("networkidle")
    # Pictures for the other mode are hidden, and not loaded.
    empty = "i => i.offsetParent && i.complete && !i.naturalWidth"
    assert page.evaluate(f"[...document.images].filter({empty}).length") == 0


def test_pages_load_from_files(site: Path, visit: Visit) -> None:
    """The pages work without a server, too."""
    page = visit(site / "index.html")
    page.get_by_role("link", name="API reference").first.click()
    page.wait_for_url("**/api.html")


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("custom_op", "api/operators.html#customop.custom_op"),
        ("vmap", "api/batching.html#customop.vmap"),
        ("symbolic sizes", "guide/sizes.html"),
    ],
)
def test_search_finds(word: str, target: str, address: str, visit: Visit) -> None:
    """The box of every page finds names and words, and a click leads there."""
    page = visit(f"{address}/guide.html")
    box = page.get_by_role("textbox", name="Search").or_(page.get_by_label("Search"))
    box.first.fill(word)
    box.first.press("Enter")
    page.wait_for_selector("#search-results li a")
    links = page.eval_on_selector_all("#search-results li a", "e => e.map(a => a.href)")
    first = [link.removeprefix(address + "/").split("?")[0] for link in links[:5]]
    assert any(target.startswith(link) or link.startswith(target) for link in first), (
        first
    )
    page.goto(f"{address}/{target}")
    if "#" in target:
        name = target.partition("#")[2]
        assert page.locator(f'[id="{name}"]').is_visible()


def test_navigation_on_a_narrow_screen(address: str, visit: Visit) -> None:
    """The list of pages is behind a button, and no page is wider than the screen."""
    page = visit(f"{address}/index.html", width=390, height=800)
    link = page.locator(".sidebar-drawer").get_by_role("link", name="Gallery").first
    page.locator("label.mobile-header, header.mobile-header label").first.click()
    page.wait_for_timeout(400)
    link.click()
    page.wait_for_url("**/gallery.html")
    for name in (*PAGES, "api/operators", "guide/rules", "guide/numpy_functions"):
        page.goto(f"{address}/{name}.html")
        widths = "[document.documentElement.scrollWidth, window.innerWidth]"
        content, screen = page.evaluate(widths)
        assert content <= screen, name


@pytest.mark.parametrize("dark", [False, True])
def test_dark_mode(dark: bool, address: str, visit: Visit) -> None:
    """Pages follow the browser, with text that stands out, and pictures of that mode."""
    page = visit(f"{address}/guide/costs.html", dark=dark)
    style = "getComputedStyle(document.body)"
    back, text = (
        sum(map(int, page.evaluate(f"{style}.{what}.match(/\\d+/g).slice(0, 3)")))
        for what in ("backgroundColor", "color")
    )
    assert (back < 150 and text > 450) if dark else (back > 700 and text < 150)
    shown = page.locator("img:visible").evaluate_all("e => e.map(i => i.src)")
    mode, other = ("dark", "light") if dark else ("light", "dark")
    assert any(mode in name for name in shown)
    assert not any(other in name for name in shown)
