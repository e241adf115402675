"""The gallery: a page for each program in `examples`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from extension.files import write


def make(source: Path, target: Path) -> None:
    """Write a page for each program."""
    for path in sorted(source.glob("*.py")):
        write(target / f"{path.stem}.md", page(path))
    write(target / "plugin.md", plugin(source / "plugin"))


def page(path: Path) -> str:
    """The page of a program: what it does, and its source."""
    text = path.read_text(encoding="utf-8")
    title, _, rest = (ast.get_docstring(ast.parse(text)) or "").partition("\n")
    return f"# {title.rstrip('.')}\n\n{rest}\n\n```python\n{text}```\n"


def plugin(folder: Path) -> str:
    """The page of the package of a plug-in: its README.md, and the files that it names."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    link = r"\[[^\]]*\]\(((?!\.\.|https)[^)#]+)\)"
    files = re.findall(link, text)
    text = re.sub(link, r"[`\1`](#\1)", text)
    for name in files:
        source = (folder / name).read_text(encoding="utf-8")
        text += f"\n({name})=\n## `{name}`\n\n```{Path(name).suffix[1:]}\n{source}```\n"
    return text
