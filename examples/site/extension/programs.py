"""A program as blocks of prose and code, and what each block prints when it runs.

As a script it runs a program: ``python programs.py PROGRAM OUTPUT.json ARGUMENT ...``.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Block", "about", "blocks"]


class Block(NamedTuple):
    """Prose, and the code after it, which starts at a line (the first is 1)."""

    prose: str
    code: str
    line: int


def about(text: str) -> tuple[str, str, str]:
    """Return the title of a program, its sentence, and the rest of its docstring.

    The first line has both: ``Title: what it does.``
    """
    first, _, rest = (ast.get_docstring(ast.parse(text)) or "").partition("\n")
    title, _, sentence = first.partition(": ")
    sentence = sentence[:1].upper() + sentence[1:]
    return title.rstrip("."), sentence, rest.strip().replace("::\n", ":\n")


def blocks(text: str) -> list[Block]:
    """Return the program after its docstring: comments at the margin are the prose."""
    lines = text.splitlines()
    starts = [*_prose_starts(text, lines)]
    first = ast.parse(text).body[0].end_lineno or 0
    ends = [*starts[1:], len(lines)] if starts else []
    found = [Block("", _code(lines, first, [*starts, len(lines)][0]), first + 1)]
    for start, end in zip(starts, ends, strict=True):
        below = start
        while below < end and lines[below].startswith("#"):
            below += 1
        prose = "\n".join(line[2:] for line in lines[start:below])
        prose = re.sub(r"^---- (.*) ----", _heading, prose, flags=re.MULTILINE)
        found.append(Block(prose, _code(lines, below, end), below + 1))
    return [block for block in found if block.prose or block.code.strip()]


def _heading(found: re.Match[str]) -> str:
    title, _, rest = found[1].partition(": python ")
    heading = f"## {title[0].upper()}{title[1:]}\n"
    command, _, needs = rest.partition(", ")
    return f"{heading}\n`python {command}` draws it, {needs}.\n" if rest else heading


def _code(lines: list[str], start: int, end: int) -> str:
    return "\n".join(lines[start:end]).rstrip() + "\n"


def _prose_starts(text: str, lines: list[str]) -> Iterator[int]:
    """Yield indices of lines where a block of comments begins, after an empty line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        is_first = row > 1 and not lines[row - 2].strip()
        if token.type == tokenize.COMMENT and column == 0 and is_first:
            yield row - 1


# ---- run a program ----


def run(path: Path) -> list[str]:
    """Run a program block by block; return what each prints."""
    text = path.read_text(encoding="utf-8")
    main: dict[str, Any] = sys.modules["__main__"].__dict__
    main |= {"__file__": str(path), "__doc__": ast.get_docstring(ast.parse(text))}
    future = "from __future__ import annotations\n" in text
    head = "from __future__ import annotations\n" if future else ""
    printed = []
    for block in blocks(text):
        gap = "\n" * (block.line - 1 - bool(head))
        # Its lines are those of the file, which tracebacks and inspect read.
        code = compile(head + gap + block.code, str(path), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, main)
        printed.append(out.getvalue())
    return printed


if __name__ == "__main__":
    program, output, *arguments = sys.argv[1:]
    sys.argv[:] = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    Path(output).write_text(json.dumps(run(Path(program))), encoding="utf-8")
