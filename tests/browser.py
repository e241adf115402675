"""Fixtures that open pages in a headless Chromium, in which nothing may go wrong.

A test has the fixture `visit` and calls ``visit(page)``. It skips where playwright or the
browser is not installed. The browser is open for one module: as long as it is,
`asyncio.run` does not work in the process.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["chromium", "visit"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Pages on this machine; those of another one are faults.
NEAR = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "http://localhost:")
# Counts the elements that scripts make, which is their work on the document.
COUNTING = """
window.elements = 0;
const make = document.createElement.bind(document);
document.createElement = tag => { window.elements++; return make(tag); };
"""


class Visit(Protocol):
    """Opens a page; see `visit`."""

    def __call__(
        self,
        page: str | Path,
        *,
        width: int = 1200,
        height: int = 800,
        dark: bool = False,
    ) -> Page: ...


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser, open as long as the tests of a module run."""
    try:
        playwright: Any = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("playwright is not installed: pip install playwright")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    with playwright.sync_playwright() as started:
        path = found or started.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("no Chromium is installed")
        browser = started.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser, tmp_path: Path) -> Iterator[Visit]:
    """A function that opens a page, which is a path, a URL, or HTML.

    When the test ends, no page has had an error, warned in the console, opened a
    dialog, been refused something by its own policy, or asked another machine.
    """
    faults: list[str] = []
    contexts = []

    def opened(
        page: str | Path,
        *,
        width: int = 1200,
        height: int = 800,
        dark: bool = False,
    ) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        context.set_default_timeout(20_000)
        tab = context.new_page()
        tab.add_init_script(COUNTING)
        _watch(tab, faults)
        tab.goto(_address(page, tmp_path, len(contexts)))
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def _watch(tab: Page, faults: list[str]) -> None:
    """Note what goes wrong in a page."""
    tab.on("pageerror", lambda error: faults.append(f"error: {error}"))

    def hear(message: Any) -> None:
        if message.type in ("error", "warning"):
            faults.append(f"{message.type}: {message.text}")

    def ask(request: Any) -> None:
        if not request.url.startswith(NEAR):
            faults.append(f"asks for {request.url}")

    def answer(dialog: Any) -> None:
        faults.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    tab.on("console", hear)
    tab.on("request", ask)
    tab.on("dialog", answer)


def _address(page: str | Path, folder: Path, number: int) -> str:
    """The URL of a page; HTML is written to a file first."""
    if isinstance(page, Path):
        return page.resolve().as_uri()
    if page.startswith(NEAR):
        return page
    path = folder / f"page_{number}.html"
    path.write_text(page, "utf-8")
    return path.as_uri()
