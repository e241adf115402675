"""The guide of the site: the pages of `examples/guide`, with links that hold here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from extension import costs
from extension.files import write, write_bytes

# Files beside the guide -> pages of the site.
_ELSEWHERE = {
    r"\.\./(\w+)\.py": r"../gallery/\1.md",
    r"\.\./plugin/README\.md": "../gallery/plugin.md",
    r"\.\./\.\./customop/mypy/__init__\.py": "../api.md",
}
_PICTURES = (".png", ".svg")


def make(source: Path, target: Path) -> None:
    """Copy pages and pictures."""
    for path in sorted(source.iterdir()):
        if path.suffix == ".md":
            text = with_links_of_site(path.read_text("utf-8"))
            if path.name == "costs.md":
                text = with_plot(text, path.with_name("benchmarks.json"), target)
            write(target / path.name, text)
        elif path.suffix in _PICTURES:
            write_bytes(target / path.name, path.read_bytes())
    for page in target.glob("*.md"):
        if not (source / page.name).exists():
            page.unlink()


def with_links_of_site(text: str) -> str:
    """Return the text with links to files outside of the guide turned into links to pages."""
    for file, page in _ELSEWHERE.items():
        text = re.sub(rf"\]\({file}(#[\w-]+)?\)", rf"]({page})", text)
    return text


# Files of the project -> pages of the site, for the pages that are written here.
_FROM_HERE = {
    r"\.\./guide/": "guide/",
    r"\.\./plugin/README\.md": "gallery/plugin.md",
    r"\.\./README\.md": "gallery.md",
    r"\.\./(\w+)\.py": r"gallery/\1.md",
}


def read_own_page(app: Any, name: str, source: list[str]) -> None:
    """Turn links of pages in this folder, which hold in the project, into those of the site."""
    if "/" not in name:
        for file, page in _FROM_HERE.items():
            source[0] = re.sub(rf"\]\({file}", f"]({page}", source[0])


# Names in code and in cells, and places after which a narrow screen may break them.
_CODE = re.compile(
    r'(?<=<span class="pre">)[^<]{9,}(?=</span>)|(?<=<td><p>)[^<]{9,}(?=</p></td>)'
)
_BREAK = re.compile(r"(?<=[\w)\]])([_.(\[,=/]|::)(?=\w)")


def break_names(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Allow breaks of long names between their words, and not inside them."""
    if "body" in context:
        context["body"] = _CODE.sub(
            lambda name: _BREAK.sub(r"\1<wbr>", name[0]), context["body"]
        )


def with_plot(text: str, stored: Path, target: Path) -> str:
    """Return the page on costs with a plot before the table of single calls."""
    before, mark, after = text.partition("<!-- benchmarks -->\n")
    return f"{before}{costs.make(stored, target)}\n{mark}{after}"
