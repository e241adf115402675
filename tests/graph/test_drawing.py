"""Drawings of graphs, and the page that shows them in browsers."""

from __future__ import annotations

import html
import json
import random
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import customop as co
from customop.graph.pictures.drawing import lay_out
from customop.graph.pictures.graph_page import bytes_of, cost_of, page_html
from customop.pages.html import visible
from tests.browser import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Page

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</script><script>alert(1)</script>\"'&<b>\0\ud800\u2028$x$]]>"


def program(x: Any, w: Any) -> Any:
    y = np.tanh(x @ w)
    return np.sum(y * y), np.linalg.slogdet(y.T @ y)


@pytest.fixture(scope="module")
def graph() -> co.GraphModule:
    return co.make_fx(program)(np.ones((4, 3)), np.eye(3))


@pytest.fixture
def hostile() -> co.GraphModule:
    """A graph whose texts would break out of a picture."""
    made = co.make_fx(lambda x: np.sin(x) * np.arange(3.0))(np.zeros(3))
    made.__name__ = HOSTILE
    for node in made.graph.nodes:
        node.meta["place"] = f"{HOSTILE}:{HOSTILE}"
    return made


# ---- layout ----


def random_edges(count: int, rng: random.Random) -> list[tuple[int, int]]:
    pairs = {
        tuple(sorted(rng.sample(range(count), 2)))
        for _ in range(rng.randrange(3 * count))
    }
    return [(first, last) for first, last in sorted(pairs)]


@pytest.mark.parametrize("seed", range(20))
def test_boxes_do_not_overlap_and_edges_go_down(seed: int) -> None:
    """Boxes of a row have a distance, and edges touch no box between."""
    rng = random.Random(seed)
    count = rng.randrange(2, 40)
    widths = [rng.uniform(20, 200) for _ in range(count)]
    edges = random_edges(count, rng)
    used = {first for first, _ in edges}
    fed = {last for _, last in edges}
    late = [i in used and i not in fed and rng.random() < 0.5 for i in range(count)]
    layout = lay_out(widths, 50, edges, late)
    rows: dict[float, list[tuple[float, float]]] = {}
    for x, y, width in zip(layout.x, layout.y, widths, strict=True):
        rows.setdefault(y, []).append((x - width / 2, x + width / 2))
    for row in rows.values():
        row.sort()
        for (_, right), (left, _) in pairwise(row):
            assert right + 10 < left
    assert min(x - w / 2 for x, w in zip(layout.x, widths, strict=True)) >= -1e-6
    assert max(x + w / 2 for x, w in zip(layout.x, widths, strict=True)) <= layout.width
    for (first, last), points in zip(edges, layout.edges, strict=True):
        if points[0] != (layout.x[first], layout.y[first] + 50):
            # It leaves another edge of the box.
            others = [
                e for (f, _), e in zip(edges, layout.edges, strict=True) if f == first
            ]
            assert any(points[0] in other for other in others if other is not points)
        assert points[-1] == (layout.x[last], layout.y[last])
        for (_, above), (_, below) in pairwise(points):
            assert above < below
        for x, y in points[1:-1]:
            for left, right in rows.get(y, []):
                assert not left < x < right


def test_long_graphs_are_drawn() -> None:
    """The layout of ten thousand boxes needs no deep recursion."""
    edges = [(i, i + 1) for i in range(9_999)] + [(0, i) for i in range(5, 9_999, 5)]
    layout = lay_out([50.0] * 10_000, 50, edges, [False] * 10_000)
    assert layout.y == sorted(layout.y)


def test_graphs_may_be_empty() -> None:
    """A graph of its output alone is a picture, too."""
    empty = co.Graph()
    empty.output([])
    assert ET.fromstring(co.GraphModule(empty).draw().svg).tag == f"{SVG}svg"


# ---- SVG and PNG ----


def test_svg_shows_each_node_with_type_and_place(graph: co.GraphModule) -> None:
    """A box has the operator, the type and the place of a node; edges join them."""
    root = ET.fromstring(graph.draw().svg)
    boxes = root.findall(f"{SVG}g")
    assert len(boxes) == graph.graph.count
    texts = [[t.text for t in box.findall(f"{SVG}text")] for box in boxes]
    lines = [text for text in texts if text[0] == "matmul"]
    assert lines[0][1] == "f64[4, 3]"
    assert re.fullmatch(r"test_drawing\.py:\d+", lines[0][2] or "")
    edges = sum(len(node.inputs) for node in graph.graph.nodes)
    assert len(root.findall(f"{SVG}path")) == edges


def test_notebooks_show_drawings(graph: co.GraphModule) -> None:
    """A drawing is an SVG in notebooks, as in files."""
    drawing = graph.draw()
    assert drawing._repr_svg_() == drawing.svg
    assert repr(drawing) == f"<Drawing of {graph.graph.count} nodes>"


def test_texts_are_escaped_in_svg(hostile: co.GraphModule) -> None:
    """Whatever a name or place holds, the SVG is well formed and has no other tags."""
    root = ET.fromstring(hostile.draw().svg)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags == {
        "svg",
        "style",
        "defs",
        "marker",
        "path",
        "rect",
        "g",
        "title",
        "text",
    }
    assert any("<script>" in (t.text or "") for t in root.iter(f"{SVG}text"))


def test_files_are_chosen_by_their_ends(
    graph: co.GraphModule, hostile: co.GraphModule, tmp_path: Path
) -> None:
    """`draw` writes SVG, PNG and HTML."""
    graph.draw(tmp_path / "g.svg")
    assert (tmp_path / "g.svg").read_text("utf-8") == graph.draw().svg
    graph.draw(str(tmp_path / "g.html"))
    assert (tmp_path / "g.html").read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(co.ArgumentError) as caught:
        graph.draw("g.pdf")
    assert str(caught.value) == (
        "draw: 'g.pdf' is neither an SVG nor a PNG file\n"
        '  do: write a path that ends in ".svg", ".png" or ".html"'
    )
    pytest.importorskip("matplotlib", reason="matplotlib is in the extra 'draw'")
    for drawn in (graph, hostile):
        drawn.draw(tmp_path / "g.png")
        assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_matplotlib_is_named(
    graph: co.GraphModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PNG needs a package, and the message names it."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        co.ArgumentError, match="draw: a PNG needs matplotlib"
    ) as caught:
        graph.draw("g.png")
    assert caught.value.do == "pip install 'customop[draw]', or write an SVG file"


def halve(x: Any) -> Any:
    return co.while_loop(
        lambda v: np.sum(v) > 1, lambda v: co.cond(v[0] > 2, np.sqrt, np.copy, v) / 2, x
    )


@pytest.fixture(scope="module")
def nested() -> co.GraphModule:
    """A graph with graphs inside, and one inside these."""
    return co.make_fx(halve)(np.array([9.0, 1.0]))


def test_graphs_inside_are_drawn_below(nested: co.GraphModule) -> None:
    """Each graph of control flow has a title that says where it is."""
    root = ET.fromstring(nested.draw().svg)
    titles = [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "t"]
    assert titles == [
        "halve",
        "halve / while_loop: cond_graph",
        "halve / while_loop: body_graph",
        "halve / while_loop: body_graph / cond: true_graph",
        "halve / while_loop: body_graph / cond: false_graph",
    ]


def test_graphs_that_are_called_are_drawn_below() -> None:
    """Nodes that were fused are in the picture of their own graph."""
    module = co.make_fx(lambda x: np.exp(np.sin(x) * 2.0))(np.ones(3))
    fused = co.fuse_nodes(module, ["sin", "multiply"])
    texts = [t.text for t in ET.fromstring(fused.draw().svg).iter(f"{SVG}text")]
    assert {"sin", "multiply", "exp"} <= {*texts}
    assert "sin" in [row[3] for row in data_of(page_html(fused))["rows"]]


# ---- costs ----


def counted_matmul(m: int, k: int, n: int) -> int:
    """Multiplications and additions of a product, one by one."""
    return sum(2 for _ in range(m) for _ in range(n) for _ in range(k))


COSTS: list[tuple[Any, tuple[Any, ...], int, bool]] = [
    (lambda x, y: x @ y, (np.ones((4, 3)), np.ones((3, 5))), 2 * 4 * 3 * 5, True),
    (lambda x, y: x @ y, (np.ones((2, 4, 3)), np.ones(3)), 2 * 8 * 3, True),
    (lambda x: np.einsum("bij,bjk->ik", x, x), (np.ones((2, 3, 3)),), 2 * 54, True),
    (lambda x: np.einsum("...ij->...", x), (np.ones((5, 2, 3)),), 30, True),
    (lambda x: np.tensordot(x, x, (0, 0)), (np.ones((3, 4)),), 2 * 48, True),
    (lambda x: np.sum(x, axis=0), (np.ones((4, 3)),), 12, True),
    (lambda x: x * x, (np.ones(5) * 1j,), 30, True),
    (lambda x: x + x, (np.ones(5),), 5, True),
    (np.exp, (np.ones(5),), 5, False),
    (np.fft.fft, (np.ones(8) * 1j,), 5 * 8 * 3, True),
    (np.linalg.inv, (np.eye(4),), 2 * 64, True),
    (np.sort, (np.ones((2, 3)),), 6, False),
]


@pytest.mark.parametrize("case", range(len(COSTS)))
def test_costs_are_operations_or_elements(case: int) -> None:
    """The cost of a call is by its formula, else the elements of its result."""
    fn, args, number, is_flops = COSTS[case]
    calls = [n for n in co.make_fx(fn)(*args).graph.nodes if n.op == "call"]
    assert (sum(cost_of(n).number for n in calls), cost_of(calls[-1]).is_flops) == (
        number,
        is_flops,
    )


def test_matmul_counts_every_multiplication() -> None:
    """The formula is what loops would do."""
    graph = co.make_fx(np.matmul)(np.ones((2, 3)), np.ones((3, 4)))
    (call,) = [node for node in graph.graph.nodes if node.op == "call"]
    assert cost_of(call).number == counted_matmul(2, 3, 4)
    assert bytes_of(call.meta["val"]) == np.ones((2, 4)).nbytes


# ---- the page ----


def data_of(page: str) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_has_the_facts_of_each_node(graph: co.GraphModule) -> None:
    """Name, operator, type, bytes, cost and place of every node are in its data."""
    data = data_of(page_html(graph))
    assert data["count"] == graph.graph.count
    for row, node in zip(data["rows"], graph.graph.nodes, strict=True):
        val = node.meta.get("val")
        assert row[3] == node.name
        assert data["texts"][row[11]] == (node.meta.get("place") or "")
        if node.op == "call" and not isinstance(val, tuple):
            assert row[6] == "x".join(map(str, val.shape))
            assert row[7] == int(np.prod(val.shape)) * val.dtype.itemsize
            assert row[8] == cost_of(node).number
    names = [row[3] for row in data["rows"]]
    inputs = [[names[i] for i in row[14]] for row in data["rows"]]
    assert inputs == [[n.name for n in node.inputs] for node in graph.graph.nodes]


def test_the_page_nests_graphs(nested: co.GraphModule) -> None:
    """The nodes of a graph inside are under the node and the parameter that hold it."""
    data = data_of(page_html(nested))
    rows = data["rows"]
    paths = []
    for row in rows:
        path, at = [row[3]], row
        while at[0] >= 0:
            at = rows[at[0]]
            path.insert(0, at[3])
        paths.append("/".join(path))
    assert "while_loop/body_graph/cond/true_graph/sqrt" in paths
    assert "while_loop/cond_graph/greater" in paths
    assert data["count"] == sum(row[2] != "graph" for row in rows)


def test_the_page_needs_no_network(graph: co.GraphModule) -> None:
    """The page forbids all loading, and notebooks show it in a frame of its own."""
    page = page_html(graph)
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
    frame = graph._repr_html_()
    assert '<iframe sandbox="allow-scripts"' in frame
    assert html.unescape(frame.partition('srcdoc="')[2].rpartition('"')[0]) == page


def test_texts_cannot_leave_the_data(hostile: co.GraphModule) -> None:
    """Names and places are escaped, and come back as they were."""
    page = page_html(hostile)
    assert page.count("<script") == 2
    data = data_of(page)
    assert data["title"] == visible(HOSTILE)
    assert "alert(1)</script>" not in hostile._repr_html_()
    page.encode("utf-8")


def test_notebooks_show_so_many_nodes() -> None:
    """A huge graph does not fill a notebook; the page says what is left out."""
    graph = co.make_fx(lambda x: np.sin(np.sin(np.sin(x))))(np.zeros(2))
    data = data_of(page_html(graph, most=3))
    assert len(data["rows"]) == 3
    assert data["note"] == "2 nodes are left out: draw('graph.html') has all"


# ---- in a browser ----

ROWS = "#space .row"


def texts(page: Page) -> list[str]:
    """The rows that are in the document."""
    return page.locator(ROWS).all_text_contents()


def work(page: Page, text: str) -> int:
    """How many elements the page makes when a text is searched."""
    before = page.evaluate("elements")
    page.fill("#search", text)
    made: int = page.evaluate("elements") - before
    return made


@pytest.mark.exhaustive
def test_the_page_folds(graph: co.GraphModule, visit: Visit) -> None:
    """Groups fold and open, by the mouse."""
    page = visit(page_html(graph))
    count = graph.graph.count
    assert len(texts(page)) == count
    assert texts(page)[0].startswith("x placeholderf64[4, 3]4x396 B")
    page.select_option("#mode", "place")
    page.click("#fold")
    folded = texts(page)
    page.locator(f"{ROWS} .fold").nth(1).click()
    assert 0 < len(folded) < len(texts(page)) < count
    assert any("nodes" in text for text in folded)
    page.click("#unfold")
    assert len(texts(page)) > count


COLUMNS = """() => [...document.querySelectorAll(".row:not(.group-row)")].map(row =>
  [...row.children].map(cell => Math.round(cell.getBoundingClientRect().left)))"""


@pytest.mark.exhaustive
def test_columns_are_aligned(graph: co.GraphModule, visit: Visit) -> None:
    """The cells of each row stand below the heads, also where some are empty."""
    for width in (400, 1200):
        heads, *rows = visit(page_html(graph), width=width).evaluate(COLUMNS)
        # The list may have a bar to scroll, which the heads do not have.
        assert rows
        assert all(row == rows[0] for row in rows)
        assert max(abs(a - b) for a, b in zip(heads, rows[0], strict=True)) <= 20


@pytest.mark.exhaustive
def test_the_page_sorts(graph: co.GraphModule, visit: Visit) -> None:
    """Nodes are in the order that was chosen."""
    page = visit(page_html(graph))
    page.select_option("#mode", "depth")
    assert "depth 0 2 nodes" in texts(page)[0]
    page.select_option("#mode", "cost")
    assert "matmul" in texts(page)[0]


@pytest.mark.exhaustive
def test_the_page_searches(graph: co.GraphModule, visit: Visit) -> None:
    """Words are found and marked, and links lead to other nodes."""
    page = visit(page_html(graph))
    page.keyboard.press("/")
    page.keyboard.type("matmul")
    assert len(texts(page)) == 2
    found = page.locator("#found")
    assert found.text_content() == f"2 of {graph.graph.count} nodes"
    assert page.locator("mark").count() >= 2
    page.fill("#search", "f64[] slogdet")
    assert str(found.text_content()).startswith("3 of ")
    page.keyboard.press("Escape")
    page.locator(ROWS).nth(2).click()
    detail = str(page.text_content("#detail"))
    assert detail.startswith("matmulkindcalloperatornp::matmul(Array x1,")
    page.locator("#detail dd:last-of-type button").first.click()
    assert page.text_content("#detail h2") == "tanh"


@pytest.mark.exhaustive
def test_texts_of_users_stay_texts(hostile: co.GraphModule, visit: Visit) -> None:
    """No script, tag or link comes from a name or a place."""
    page = visit(page_html(hostile))
    page.locator(ROWS).nth(1).click()
    assert page.locator("script").count() == 2
    assert page.locator("main b").count() == 0
    assert page.title().startswith("</script><script>alert(1)")


@pytest.mark.exhaustive
def test_ten_thousand_nodes_are_usable(visit: Visit) -> None:
    """Only rows on the screen are in the document, also while a word is typed."""

    def chain(x: Any) -> Any:
        for _ in range(5000):
            x = np.sin(x) * 2.0
        return x

    page = visit(page_html(co.make_fx(chain)(np.zeros(3))))
    assert str(page.text_content("#total")).startswith("10002 nodes")
    assert len(texts(page)) < 100
    # Elements that were made: some for each row on the screen, not for each node found.
    narrow = work(page, "sin_4321")
    assert len(texts(page)) == 1
    assert 0 < narrow < 20
    wide = work(page, "multiply")
    drawn = len(texts(page))
    assert page.text_content("#found") == "5000 of 10002 nodes"
    assert drawn < 100
    assert narrow < wide < 20 * drawn
    page.fill("#search", "")
    page.evaluate("at('scroll').scrollTop = 1e7; render()")
    assert texts(page)[-1].startswith("output")
    page.evaluate("reveal(5000)")
    assert "multiply_2499" in str(page.text_content(".picked"))
