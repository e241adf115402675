"""Elements of HTML: no text of a user becomes an element, whatever is in it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from customop.pages import html
from customop.pages.html import data_text, element, html_of, in_notebook, page, visible
from tests.pages._reading import HOSTILE, read

TEXTS = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(),
    st.text("<>&\"'/=! -abs\0\n\r\u202e\ud800", max_size=30),
)
# Marks that turn the words around them, by Unicode's table.
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def is_hidden(sign: str) -> bool:
    """Whether a sign does not show, or changes what is around it."""
    if sign in "\n\t":
        return False
    is_control = unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp")
    return is_control or unicodedata.bidirectional(sign) in TURNING


@given(TEXTS)
@settings(deadline=None)
def test_what_does_not_show_is_written_out(text: str) -> None:
    """Controls, marks of direction and lone surrogates are escapes; others stay."""
    shown = visible(text)
    assert not any(map(is_hidden, shown))
    kept = [sign for sign in text if sign.isprintable()]
    rest = iter(shown)
    assert all(sign in rest for sign in kept)
    shown.encode("utf-8")


def blocks_of(a: str, b: str) -> list[object]:
    """One of each block, with texts in every place."""
    return [
        html.title(a, b, html.badge(a, "bad"), lead=b),
        html.section(a, html.prose(b), note=a),
        html.fold(a, html.code(b), note=b, is_open=True),
        html.fact_list([("x", a), (b, html.mono(b))]),
        html.grid([a, b], [[a, html.faint(b)], ["1", a]], numbers=[1]),
        html.place_of(f"/{a}/x:1"),
        element("i", b, title=a),
    ]


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS)
def test_texts_stay_texts(a: str, b: str) -> None:
    """The elements of a page do not depend on its texts, and its texts are all there."""
    a, b = f"a{a}", f"b{b}"  # empty ones are left out
    plain = read(page("t", *blocks_of("p", "q")))
    found = read(page(a, *blocks_of(a, b)))
    assert plain.structure == found.structure
    assert found.text.count(visible(a)) >= 5
    assert found.text.count(visible(b)) >= 5
    assert visible(a) in found.attributes
    notebook = read(in_notebook(*blocks_of(a, b)))
    assert (
        notebook.structure[1:] == read(in_notebook(*blocks_of("p", "q"))).structure[1:]
    )


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_data_cannot_end_its_element(number: int) -> None:
    """Data has no sign that HTML knows."""
    text = data_text({HOSTILE[number]: [HOSTILE[number]]})
    assert not set(text) & set("<>&")
    assert text.isascii()


def test_long_texts_are_shortened() -> None:
    """A megabyte of text does not make a page of a megabyte."""
    long = "x" * 1_000_000
    assert len(html_of(html.prose(long))) < 50_000
    assert len(html_of(html.grid(["a"], [[long]]))) < 5_000
    assert "..." in html_of(html.mono(long))


class _Shouting(str):
    """Text whose methods are not those of text."""

    __slots__ = ()

    def __str__(self) -> str:
        return "<script>"

    def replace(self, *args: object) -> str:
        return "<script>"

    __format__ = __iter__ = replace


def test_classes_of_text_are_read_as_text() -> None:
    """Methods of a class of the user do not run."""
    assert html_of(element("b", _Shouting("a<b"))) == "<b>a&lt;b</b>"


def test_elements_that_run_code_cannot_be_made() -> None:
    """A block cannot be a script, a link, or have a handler of events."""
    for tag in ("script", "style", "iframe", "a"):
        with pytest.raises(AssertionError):
            element(tag)
    with pytest.raises(AssertionError):
        element("b", onclick="alert(1)")
