"""The site in a browser: no errors, nothing from elsewhere, search, navigation, dark mode."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser import Visit, chromium, visit
from tests.site.conftest import ROOT

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


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, site: Path) -> str:
    """The site as a reader opens it: from a folder, or from a server."""
    found: str = (
        site.as_uri() if request.param == "file" else request.getfixturevalue("address")
    )
    return found


# What a reader types -> the page, or its section, which must come first.
ANSWERS = {
    "custom_op": "api/operators.html#customop.custom_op",
    "vmap": "api/batching.html#customop.vmap",
    "symbolic sizes": "guide/sizes.html",
    "compile slow": "guide/questions.html#why-does-compile-run-again-or-stay-slow",
    "np.array error": "guide/errors.html#",
    "how do I differentiate by a keyword": "guide/questions.html#how-do-i-differentiate-by-a",
    "why is my first call slow": "guide/questions.html#why-is-my-first-call-slow",
    "nan in my gradient": "guide/questions.html#where-does-the-nan",
    "return auxiliary values": "guide/questions.html#how-do-i-return-something-else",
    "use a dict of parameters": "guide/questions.html#can-parameters-be-a-dict",
    "for loop in compile": "guide/questions.html#how-do-i-write-a-loop",
    "if statement in compile": "guide/questions.html#how-do-i-write-an-if",
    "how fast is it": "guide/questions.html#how-fast-is-it",
    "does it work with pandas": "guide/questions.html#does-it-work-with-pandas",
    "operator with several outputs": "guide/questions.html#how-does-an-operator-return",
    "what is a fake kernel": "guide/questions.html#what-is-a-fake-kernel",
    "call a C function": "guide/questions.html#how-do-i-call-a-c",
    "use my operator in pytorch": "guide/questions.html#how-do-i-use-my-operator-in",
    "hessian vector product": "api/gradients.html#customop.hvp",
    "which numpy functions are supported": "guide/numpy_functions.html",
    "gradient of every sample": "guide/questions.html#how-do-i-get-the-gradient-of-every",
    "how do I compute per-sample gradients": "guide/questions.html#how-do-i-get-the-grad",
    "gradient is None": "guide/questions.html#why-is-a-gradient-none",
    "return more than one output from grad": "guide/questions.html#how-do-i-return-some",
    "how do I test my operator": "guide/questions.html#how-do-i-test-my-operator",
    "how do I save a compiled function": "guide/questions.html#how-do-i-save-a-function",
    "why is vmap slow": "guide/questions.html#why-is-vmap-slow",
    "random numbers in vmap": "guide/batching.html#random-numbers",
    "mypy plugin": "guide/typing.html#the-mypy-plugin",
    "save a graph": "guide/questions.html#how-do-i-save-a-function",
    "gpu kernel": "guide/gpu.html",
    "torch": "guide/torch.html",
    "customop.GradientError: grad of loss: the value is f64[3], must be a real float"
    " without axes": "guide/errors.html#the-value-is",
    "DataDependentError: float() of GradTracer f64[], a value of grad(energy)"
    "": "guide/errors.html#float-of-a-gradtracer",
    "ArgumentError: mylib::gauss: argument 'x' expects Array, got list [1.0]"
    "": "guide/errors.html#argument-x-expects-array",
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n'
    "    co.grad(f)(1.0, 2.0)\ncustomop.DataDependentError: np.array(), or a NumPy kernel,"
    " is given GradTracer f64[], a value of grad(f)\n  grad(f) is called at a.py:3\n"
    "  do: write co.array([x, y]) in place of np.array([x, y]), or stop_gradient(x)"
    "": "guide/errors.html#np-array-is-given-a-gradtracer",
    # A message of several lines, as a box of one line takes it.
    "customop.DataDependentError: float() of GradTracer f64[], a value of grad(f)  "
    " grad(f) is called at a.py:8   the transform would lose track of it   do: write x in"
    " place of float(x), or stop_gradient(x) for the value alone"
    "": "guide/errors.html#float-of-a-gradtracer",
}


def test_search_answers(place: str, visit: Visit) -> None:
    """The first result is the answer, and says so: its text has words of the question."""
    page = visit(f"{place}/search.html")
    found = {}
    for question in ANSWERS:
        page.goto(f"{place}/search.html?q={quote(question)}")
        first = page.locator("#search-results li").first
        assert first.locator("p mark").count() > 0, question
        link = first.locator("a").get_attribute("href") or ""
        found[question] = link[: len(ANSWERS[question])]
    assert found == ANSWERS


# Pages show quotes as printers do.
_STRAIGHT = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


def test_search_finds_error_messages(place: str, visit: Visit) -> None:
    """A message of the page of error messages, pasted whole, leads to its section."""
    text = (ROOT / "examples" / "guide" / "errors.md").read_text(encoding="utf-8")
    page = visit(f"{place}/search.html")
    asked = 0
    for section in re.split("^### ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        for message in re.findall(r"^customop\.\w+: .*", body, re.MULTILINE):
            page.goto(f"{place}/search.html?q={quote(message)}")
            first = page.locator("#search-results li a").first
            assert "guide/errors.html" in (first.get_attribute("href") or "")
            assert first.inner_text().translate(_STRAIGHT).endswith(title), message
            asked += 1
    assert asked > 20


def test_search_from_every_page(place: str, visit: Visit) -> None:
    """The box of a page leads to results, and a click leads to the section."""
    page = visit(f"{place}/guide/costs.html")
    box = page.get_by_role("textbox", name="Search").or_(page.get_by_label("Search"))
    box.first.fill("custom_op")
    box.first.press("Enter")
    page.locator("#search-results li a").first.click()
    page.wait_for_url("**/api/operators.html#customop.custom_op")
    assert page.locator('[id="customop.custom_op"]').is_visible()


def test_search_without_results(place: str, visit: Visit) -> None:
    """Words that no page has are said to be so, as text."""
    page = visit(f"{place}/search.html?q={quote('<qqqq>zzzz')}")
    assert page.locator("#search-results li").count() == 0
    assert "<qqqq>zzzz" in page.locator("#search-count").inner_text()


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
