"""Whole files and the parts of notebooks, made of blocks or of a script with data."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources

from customop.pages.markup import Child, element, html_of, visible

__all__ = ["application", "data_text", "frame", "in_notebook", "page"]


def in_notebook(*blocks: Child) -> str:
    """Return the HTML of `_repr_html_`: blocks with their style, and no script."""
    return f"<style>{_resource('style.css')}</style>{_wrapped(*blocks)}"


def page(name: str, *blocks: Child) -> str:
    """A whole file with blocks; its script searches, sorts and folds.

    Parameters
    ----------
    name : str
        For the title of the window.
    *blocks : Element or str
    """
    tools = element(
        "div",
        element(
            "input",
            id="search",
            type="search",
            placeholder="search ( / )",
            aria_label="search",
            autocomplete="off",
            spellcheck="false",
        ),
        element("button", "fold all", id="fold", type="button"),
        element("button", "unfold all", id="unfold", type="button"),
        element("span", id="found", class_="faint", aria_live="polite"),
        class_="tools",
    )
    styles = _resource("style.css") + _resource("page.css")
    return _document(name, styles, _wrapped(tools, *blocks), _resource("page.js"))


def application(name: str, package: str, files: Sequence[str], data: object) -> str:
    """A whole file whose script draws data, for more than fits in a document.

    Parameters
    ----------
    name : str
        For the title of the window.
    package : str
        The package with the files of this application.
    files : sequence of str
        Its style, its body in HTML, and its script.
    data : object
        For JSON; the script reads it from the element ``data``.
    """
    style, body, script = (_resource(name, package) for name in files)
    styles = _resource("style.css") + _resource("application.css") + style
    held = f'<script type="application/json" id="data">{data_text(data)}</script>'
    content = f'<div class="customop application">{body}</div>{held}'
    return _document(name, styles, content, _resource("application.js") + script)


def frame(page_text: str, height: int = 480, *, instead: Sequence[Child]) -> str:
    """A whole file in a frame of a notebook, whose styles and scripts stay in it.

    Parameters
    ----------
    page_text : str
        The file, as `application` makes it.
    height : int, pixels
    instead : sequence of Element or str
        Blocks that a notebook shows which is not trusted. It takes frames away, and
        also the style that hides these blocks.
    """
    text = html.escape(page_text)
    inner = (
        f'<iframe sandbox="allow-scripts" height="{height}" srcdoc="{text}"></iframe>'
    )
    note = element("div", "Trust this notebook to see the page here.")
    hidden = html_of(element("div", *instead, note, class_="instead"))
    style = f"<style>{_resource('style.css')}</style>"
    return f'{style}<div class="customop">{hidden}{inner}</div>'


def data_text(data: object) -> str:
    """JSON that can stand in an element: no sign in it can end that element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _wrapped(*blocks: Child) -> str:
    return html_of(element("div", *blocks, class_="customop"))


def _document(name: str, styles: str, content: str, script: str) -> str:
    """A file that may load nothing and run no script but its own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            html_of(element("title", visible(name, 200))),
            f"\n<style>\n{styles}</style>\n</head>\n<body>\n{content}\n",
            f"<script>{script}</script>\n</body>\n</html>\n",
        )
    )


@cache
def _resource(name: str, package: str = "customop.pages") -> str:
    return resources.files(package).joinpath(name).read_text("utf-8")
