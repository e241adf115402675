"""Pages in a browser: they load without faults, search, fold, sort and zoom."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import customop as co
from customop.core.explain import operator_card
from customop.pages.html import card, fold, grid, in_notebook, mono, title
from customop.pages.html import page as page_of
from tests.browser import Visit
from tests.pages._reading import HOSTILE
from tests.pages.test_objects import CASES, NASTY, operator

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.exhaustive

# As a notebook shows what `_repr_html_` returns.
NOTEBOOK = '<!doctype html><meta charset="utf-8"><body style="margin: 0">{}</body>'


def milliseconds(time: int) -> str:
    return f"{time} ms" if time < 1000 else f"{time / 1000:.2f} s"


@pytest.fixture(scope="module")
def table() -> str:
    """A page with a table of 300 rows, and folds."""
    rows = [
        [mono(f"row {i}"), "odd" if i % 2 else "even", milliseconds(10 * i)]
        for i in range(300)
    ]
    inner = [fold(f"fold {i}", grid(["x"], [[f"inside {i}"]])) for i in range(3)]
    first = card(title("table", ""), grid(["name", "kind", "time"], rows, numbers=[2]))
    return page_of("t", first, card(*inner))


def visible_rows(page: Page) -> list[str]:
    return page.locator("tbody tr:visible").all_text_contents()


def test_tables_are_searched(table: str, visit: Visit) -> None:
    """Rows without the words go, folds with them open, and Escape brings all back."""
    page = visit(table)
    assert len(visible_rows(page)) == 300
    page.keyboard.press("/")
    page.keyboard.type("even 29")
    assert len(visible_rows(page)) == len(
        [i for i in range(0, 300, 2) if "29" in str(i)]
    )
    assert page.text_content("#found") == f"{len(visible_rows(page))} of 303 rows"
    page.fill("#search", "inside 2")
    assert visible_rows(page) == ["inside 2"]
    page.keyboard.press("Escape")
    assert len(visible_rows(page)) == 300
    assert page.text_content("#found") == ""


def test_folds_and_orders(table: str, visit: Visit) -> None:
    """Buttons fold all, keys fold one, and a head of a column sorts."""
    page = visit(table)
    page.click("#unfold")
    assert page.locator("details[open]").count() == 3
    page.locator("summary").first.press("Enter")
    assert page.locator("details[open]").count() == 2
    page.click("#fold")
    assert page.locator("details[open]").count() == 0
    time = page.get_by_role("columnheader", name="time")
    time.click()
    time.press("Enter")
    assert time.get_attribute("aria-sort") == "descending"
    assert visible_rows(page)[:2] == ["row 299odd2.99 s", "row 298even2.98 s"]
    assert visible_rows(page)[200] == "row 99odd990 ms"


def contrast(page: Page) -> list[str]:
    """Texts whose color is too near to what is behind them; WCAG 2.2, 1.4.3: 4.5."""
    found: list[str] = page.evaluate(CONTRAST)
    return found


CONTRAST = """() => {
const rgb = color => {
  const c = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  c.fillStyle = color; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const over = (front, back) => front.slice(0, 3).map((v, i) => v * front[3] / 255 + back[i] * (1 - front[3] / 255));
const exact = color => { // of "color(srgb r g b / a)" or "rgb(...)"
  const n = color.match(/[\\d.]+(?:e-?\\d+)?/g).map(Number), unit = color.startsWith("color") ? 255 : 1;
  return [n[0] * unit, n[1] * unit, n[2] * unit, 255 * (n[3] ?? 1)]; };
const behind = e => {
  const list = []; for (; e; e = e.parentElement) list.unshift(exact(getComputedStyle(e).backgroundColor));
  return list.reduce((back, front) => over(front, back), matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255]); };
const bad = [];
for (const e of document.querySelectorAll("body *")) {
  if (!e.offsetParent || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  const a = light(exact(getComputedStyle(e).color)), b = light(behind(e));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) bad.push(`${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
}
return bad; }"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_pages_can_be_read(width: int, dark: bool, visit: Visit) -> None:
    """Nothing is wider than the window, and colors have contrast, in both themes."""
    op = operator()
    op.register_autograd(lambda ctx, g: (3 * g, None))
    found = co.opcheck(op, (np.ones(3),), raise_exception=False)
    long = operator(where="/home/" + "directory/" * 30 + "x.py", doc="x" * 500)
    cards = (
        operator_card(op),
        operator_card(long),
        operator_card(co.ops.np.sin.default),
    )
    for text in (page_of("p", *cards), NOTEBOOK.format(found._repr_html_())):
        page = visit(text, width=width, dark=dark)
        page.evaluate(
            "document.querySelectorAll('details').forEach(d => d.open = true)"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert contrast(page) == []
        paper = page.evaluate(
            "getComputedStyle(document.querySelector('.card')).backgroundColor"
        )
        assert (int(re.findall(r"\d+", paper)[0]) < 128) == dark


# What JupyterLab says of tables in outputs. Source: its rendermime package, base.css, 4.2.
JUPYTER = """<style>
.jp-RenderedHTMLCommon { color: #444; font-size: 14px; line-height: 1.6; padding-right: 20px }
.jp-RenderedHTMLCommon table { border-collapse: collapse; border-spacing: 0; border: none;
  color: #111; font-size: 12px; table-layout: fixed; margin-left: auto; margin-bottom: 1em; margin-right: auto }
.jp-RenderedHTMLCommon thead { border-bottom: 1px solid #999; vertical-align: bottom }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr {
  vertical-align: middle; padding: 0.5em; line-height: normal; white-space: normal; max-width: none; border: none }
.jp-RenderedHTMLCommon :not(.jp-RenderedMarkdown) > table td { text-align: right }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: #f00 }
.jp-RenderedHTMLCommon tbody tr:hover { background: #0f0 }
.jp-RenderedHTMLCommon pre, .jp-RenderedHTMLCommon code { border: 1px solid; font-size: 30px; padding: 9px }
.jp-RenderedHTMLCommon dt, .jp-RenderedHTMLCommon dd { float: left; padding: 9px; font-size: 30px; font-weight: 700 }
</style><div class="jp-RenderedHTMLCommon">{}</div>"""
STYLES = """() => ["tbody tr", "tbody td", "tbody td:last-child", "code", "dt", "dd", "pre"].map(name => {
const e = document.querySelector(".customop " + name), s = getComputedStyle(e), b = e.getBoundingClientRect();
return [name, s.textAlign, s.backgroundColor, s.fontSize, s.fontWeight, s.padding, s.borderTopWidth, s.float, s.color, b.width, b.height]; })"""


def test_notebooks_do_not_change_the_look(visit: Visit) -> None:
    """The rules of a notebook for its own tables and code do not count inside."""
    op = operator()
    shown = card(operator_card(op), fold("x", grid(["a"], [["1"]]), is_open=True))
    text = in_notebook(shown, grid(["a", "b"], [["1", "2"]]))
    wide = NOTEBOOK.format(f'<div style="padding-right: 20px">{text}</div>')
    page, other = visit(wide), visit(NOTEBOOK.format(JUPYTER.replace("{}", text)))
    for seen in (page, other):
        seen.evaluate(
            "document.querySelectorAll('details').forEach(d => d.open = true)"
        )
    pairs = zip(page.evaluate(STYLES), other.evaluate(STYLES), strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


# The heads of columns that do not fit.
CUT_OFF = """() => [...document.querySelectorAll(".heads > span")].filter(e => e.offsetWidth)
.filter(e => e.getBoundingClientRect().right > e.parentNode.getBoundingClientRect().right)
.map(e => e.textContent)"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 740])
def test_applications_can_be_read(
    profile: Any, width: int, dark: bool, visit: Visit, tmp_path: Any
) -> None:
    """So with graphs and profiles, while something is searched and picked."""
    graph = tmp_path / "graph.html"
    co.make_fx(nested)(np.ones(3)).draw(graph)
    for path in (graph, saved(profile, tmp_path)):
        page = visit(path, width=width, dark=dark)
        page.fill("#search", "tanh")
        page.locator("#space .row").first.click()
        if page.locator("canvas").count():
            page.locator("#canvas").click(position={"x": 20, "y": 34})
        assert page.locator("#detail dd").first.is_visible()
        bottom = page.locator("#detail").bounding_box()
        assert bottom is not None
        assert bottom["y"] + bottom["height"] <= 801
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == []
        assert contrast(page) == []


@pytest.mark.parametrize(
    ("before", "dark"),
    [
        ('<body data-jp-theme-light="false">', True),
        ('<body class="vscode-dark">', True),
        ('<body data-jp-theme-light="true">', False),
        ('<body data-theme="light">', False),
    ],
)
def test_the_theme_of_a_notebook_decides(before: str, dark: bool, visit: Visit) -> None:
    """Where a notebook says light or dark, the system does not count."""
    shown = co.FakeArray((2,))._repr_html_()
    for system in (False, True):
        page = visit(f"<!doctype html>{before}{shown}", dark=system)
        paper = page.evaluate(
            "getComputedStyle(document.querySelector('.card')).backgroundColor"
        )
        assert (int(re.findall(r"\d+", paper)[0]) < 128) == dark


@pytest.mark.parametrize("before", ["true", "false"], ids=["light", "dark"])
def test_frames_follow_the_theme_of_a_notebook(before: str, visit: Visit) -> None:
    """So do the pages in frames, which cannot see what is around them."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="reads pictures")
    shown = co.make_fx(np.sin)(np.ones(3))._repr_html_()
    body = f'<!doctype html><body data-jp-theme-light="{before}">{shown}'
    for system in (False, True):
        page = visit(body, dark=system)
        page.frame_locator("iframe").locator(".row >> nth=1").wait_for()
        picture = io.BytesIO(page.locator("iframe").screenshot())
        light = np.median(pyplot.imread(picture)[..., :3])
        assert light > 0.9 if before == "true" else light < 0.15


def test_a_notebook_that_is_not_trusted_shows_texts(profile: Any, visit: Visit) -> None:
    """It takes styles and frames away: words stay apart, and frames leave a remark."""
    graph = co.make_fx(np.sin)(np.ones(3))
    remark = "Trust this notebook to see the page here."
    for value, text in [
        (graph, "<GraphModule sin of 3 nodes>"),
        (profile, f"profile {sum(row.count for row in profile.rows)} calls"),
    ]:
        page = visit(value._repr_html_())
        assert remark not in page.inner_text("body")
        page.evaluate(
            "document.querySelectorAll('style, iframe').forEach(e => e.remove())"
        )
        assert text in page.inner_text("body")
        assert remark in page.inner_text("body")
    page = visit(operator()._repr_html_())
    page.evaluate("document.querySelector('style').remove()")
    assert re.match(r"pages::scale_\d+ operator\s", page.inner_text("body"))


def test_nothing_of_users_runs(visit: Visit) -> None:
    """In a notebook no script, image or handler comes from a text of a user."""
    cells = [make(NASTY)._repr_html_() for make in CASES.values()]
    page = visit(NOTEBOOK.format("".join(cells)))
    assert page.locator("script, img, iframe, a, [onclick], [onerror]").count() == 0
    texts = page.locator(".customop").all_text_contents()
    assert ["alert(1)" in text for text in texts] == [True] * len(CASES)


# ---- profiles ----


def nested(x: Any) -> Any:
    return np.sum(np.tanh(x) * np.sin(x))


@pytest.fixture(scope="module")
def profile() -> Any:
    with co.profile() as p:
        for _ in range(20):
            co.grad(nested)(np.ones(100))
    return p


def saved(p: Any, tmp_path: Any) -> Any:
    path = tmp_path / "profile.html"
    p.save(path)
    return path


def width_of_view(page: Page) -> float:
    found: float = page.evaluate("view.to - view.from")
    return found


def test_a_profile_zooms(profile: Any, visit: Visit, tmp_path: Any) -> None:
    """A click on a box, the wheel, buttons and keys zoom; others bring all back."""
    page = visit(saved(profile, tmp_path))
    whole = width_of_view(page)
    assert whole == sum(r.self_ns for r in profile.rows)
    canvas = page.locator("#canvas")
    canvas.click(position={"x": 20, "y": 24 + 10})
    first = width_of_view(page)
    assert 0 < first < whole
    assert page.text_content("#detail h2") == page.evaluate("picked.branch.operator")
    page.keyboard.press("Escape")
    assert width_of_view(page) == whole
    canvas.hover(position={"x": 300, "y": 35})
    page.mouse.wheel(0, -400)
    page.wait_for_function("whole => view.to - view.from < whole / 2", arg=whole)
    page.keyboard.press("0")
    for press, factor in (("+", 0.5), ("ArrowRight", 0.5), ("-", 1.0)):
        page.keyboard.press(press)
        assert width_of_view(page) == pytest.approx(whole * factor)
    page.click("#closer")
    page.click("#closer")
    assert width_of_view(page) == pytest.approx(whole / 4)
    page.click("#all")
    assert width_of_view(page) == whole


def test_a_profile_is_searched(profile: Any, visit: Visit, tmp_path: Any) -> None:
    """Rows with the words stay, with their share of the time; other boxes fade."""
    page = visit(saved(profile, tmp_path))
    rows = page.locator("#space .row")
    assert rows.count() == len(profile.rows)
    page.keyboard.press("/")
    page.keyboard.type("np::tanh")
    mine = [r for r in profile.rows if r.operator == "np::tanh"]
    assert rows.count() == len(mine)
    share = sum(r.self_ns for r in mine) / sum(r.self_ns for r in profile.rows)
    assert str(page.text_content("#found")).endswith(f"{100 * share:.1f} % of the time")
    faded = page.evaluate(
        "laidOut().lanes.flat().filter(isFaded).map(b => b.branch.operator)"
    )
    assert faded
    assert "np::tanh" not in faded
    page.keyboard.press("Escape")
    rows.first.click()
    assert page.evaluate("over.own") == profile.rows[0].self_ns
    page.get_by_role("columnheader", name="calls").click()
    counts = page.evaluate("listed.map(r => r.count)")
    assert counts == sorted(counts, reverse=True)


def test_the_timeline_shows_calls(profile: Any, visit: Visit, tmp_path: Any) -> None:
    """Each call has a box with its arrays, which the pointer tells."""
    page = visit(saved(profile, tmp_path))
    page.click("#timeline")
    assert page.evaluate("laidOut().lanes.flat().length") == sum(
        r.count for r in profile.rows
    )
    box = page.evaluate("laidOut().lanes[0][0]")
    assert "f64[100]" in box["arrays"]
    page.evaluate("show(laidOut().lanes[0][0].from, laidOut().lanes[0][0].to)")
    page.locator("#canvas").hover(position={"x": 200, "y": 35})
    assert box["branch"]["operator"] in str(page.text_content("#tip"))
    page.locator("#canvas").click(position={"x": 200, "y": 35})
    assert "this call" in str(page.text_content("#detail"))


def test_a_long_profile_draws_what_can_be_seen(visit: Visit, tmp_path: Any) -> None:
    """The work of drawing depends on the width of the screen, not on the calls."""
    op = operator()
    x = np.ones(2)
    with co.profile() as p:
        for _ in range(20_000):
            op(x)
    page = visit(saved(p, tmp_path), width=800)
    page.click("#timeline")
    assert page.evaluate("laidOut().lanes.flat().length") == 20_000
    assert 0 < page.evaluate("view.drawn") <= 2 * 800


def test_an_empty_profile(visit: Visit, tmp_path: Any) -> None:
    """A profile without calls says so."""
    with co.profile() as p:
        pass
    page = visit(saved(p, tmp_path))
    assert "no operator has run" in str(page.text_content("#picture"))


def test_names_in_profiles_stay_texts(visit: Visit, tmp_path: Any) -> None:
    """Nothing of a kind of rule or an error runs in the page."""
    assert HOSTILE
    op = operator(fail=NASTY)
    with co.profile() as p, pytest.raises(ValueError, match="alert"):
        op(np.ones(2))
    page = visit(saved(p, tmp_path), width=400, dark=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator("script").count() == 2
