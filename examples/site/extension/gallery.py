"""The gallery: a page for each program in `examples`, with its output and its picture."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import customop
from extension.files import write, write_bytes
from extension.programs import Block, about, blocks
from extension.thumbnails import thumbnail

__all__ = ["STORED", "make"]

# Programs that a build does not run: they take seconds to minutes, and the tests run them anyway.
# Their output lies in the index of the examples, and their pictures in the guide. The gallery shows
# them in this order. To draw one:
# MATPLOTLIBRC=examples/site/matplotlibrc python examples/terrain.py --picture examples/guide/terrain.png
STORED = (
    "waves",
    "deblur",
    "terrain",
    "patterns",
    "digits",
    "handover",
    "larger_than_memory",
)
_RUNNER = Path(__file__).with_name("programs.py")
# Colors of matplotlib for light and dark pages.
_STYLE = Path(__file__).parents[1] / "matplotlibrc"


class Done(NamedTuple):
    """What a program has printed after each block, and its picture."""

    printed: list[str]
    picture: bytes | None


def make(source: Path, target: Path, cache: Path) -> None:
    """Write a page for each program, and the cards that lead to them."""
    paths = sorted(source.glob("*.py"))
    # Threads only wait for programs: in CPython 3.11 two of them must not parse at once.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        kept = [path for path in paths if path.stem not in STORED]
        ran = dict(zip(kept, pool.map(lambda p: _ran(p, cache), kept), strict=True))
    done = {path: ran.get(path) or _stored(path) for path in paths}
    for path, result in done.items():
        name = ""
        if result.picture:
            name = f"{path.stem}{'.svg' if b'<svg' in result.picture[:500] else '.png'}"
            write_bytes(target / name, result.picture)
            small = thumbnail(path.stem, result.picture)
            write_bytes(target / f"{path.stem}_small.png", small)
        write(target / f"{path.stem}.md", "\n".join(_page(path, result, name)))
    write(target / "plugin.md", _plugin(source / "plugin"))
    pages = {"tutorial": "site/pictures/clean.png", "plugin": "guide/operator_page.png"}
    for name, picture in pages.items():
        small = thumbnail(name, (source / picture).read_bytes())
        write_bytes(target / f"{name}_small.png", small)
    for group, names in _groups(paths).items():
        write(target / f"{group}.txt", "".join([_card(path) for path in names]))


# ---- run ----


def _ran(path: Path, cache: Path) -> Done:
    kept = cache / f"{path.stem}-{_key(path)}"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        for old in cache.glob(f"{path.stem}-*"):
            old.unlink()
        _run(path, kept)
    picture = kept.with_suffix(".picture")
    printed = json.loads(kept.read_text(encoding="utf-8"))
    return Done(printed, picture.read_bytes() if picture.exists() else None)


def _key(path: Path) -> str:
    """Return a digest of all that the output of a program depends on."""
    digest = hashlib.sha256(sys.version.encode())
    package = Path(customop.__file__).parent
    for each in (path, _RUNNER, _STYLE, *sorted(package.rglob("*.py"))):
        digest.update(each.read_bytes())
    return digest.hexdigest()[:16]


def _run(path: Path, kept: Path) -> None:
    """Run a program in an empty folder; store what it prints and what it draws."""
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        output, picture = Path(folder, "printed.json"), Path(folder, "picture.png")
        draws = "--picture" in text
        command = [sys.executable, str(_RUNNER), str(path), str(output)]
        command += ["--picture", str(picture)] if draws else []
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"MATPLOTLIBRC": str(_STYLE)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{path.name} failed:\n{done.stderr}")
        if draws:
            kept.with_suffix(".picture").write_bytes(picture.read_bytes())
        printed = output.read_text("utf-8").replace(str(picture), "picture.png")
    for folder in (path.parent, Path(customop.__file__).parents[1]):
        printed = printed.replace(f"{folder}/", "")
    kept.write_text(printed, encoding="utf-8")


def _stored(path: Path) -> Done:
    """Return the output in the index of the examples, and the picture in the guide."""
    index = (path.parent / "README.md").read_text(encoding="utf-8")
    shown = rf"^```console\n\$ python {path.name}\n(.*?)^```$"
    found = re.search(shown, index, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"examples/README.md shows no output of {path.name}")
    count = len(blocks(path.read_text(encoding="utf-8")))
    picture = path.parent / "guide" / f"{path.stem}.png"
    return Done(
        [*[""] * (count - 1), found[1]],
        picture.read_bytes() if picture.exists() else None,
    )


# ---- pages ----


def _page(path: Path, done: Done, picture: str) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    title, sentence, rest = about(text)
    yield f"# {title}\n\n{sentence}\n\n{rest}\n"
    if picture:
        yield f"![What {path.name} draws]({picture}){{.drawn}}\n"
    for block, printed in zip(blocks(text), done.printed, strict=True):
        yield f"{block.prose}\n"
        code = block.code.strip("\n")
        if code.strip():
            folded = _folded(block)
            listing = f"````python\n{code}\n````\n"
            yield f":::::{{dropdown}} {folded}\n{listing}:::::\n" if folded else listing
        if printed:
            yield f":::{{code-block}} none\n:class: printed\n\n{printed.rstrip()}\n:::\n"
    yield f"The whole program is {{download}}`{path.name} <../../{path.name}>`.\n"


# Beginnings of code around the model -> the title of the fold that holds it.
_AROUND = {
    r"(from __future__ |import |\"\"\")": "Imports",
    r"(.*\n)*.*argparse\.ArgumentParser\(": "Options and the main program",
    r"if \"--picture\" in sys\.argv": "The code of the picture",
}


def _folded(block: Block) -> str:
    """Return the title of the fold for code that is not what the program is about, or ""."""
    code = block.code.strip()
    found = (title for start, title in _AROUND.items() if re.match(start, code))
    return next(found, "")


def _groups(paths: list[Path]) -> Mapping[str, list[Path]]:
    course = [path for path in paths if path.stem[0].isdigit()]
    programs = {path.stem: path for path in paths}
    return {"course": course, "programs": [programs[name] for name in STORED]}


def _card(path: Path) -> str:
    title, sentence, _ = about(path.read_text(encoding="utf-8"))
    return f"""::::{{grid-item-card}} {title}
:link: gallery/{path.stem}
:link-type: doc
:img-top: gallery/{path.stem}_small.png

{sentence}
::::

"""


def _plugin(folder: Path) -> str:
    """Return the page of the package of a plug-in: its README.md, and the files that it names."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    link = r"\[[^\]]*\]\(((?!\.\.|https)[^)#]+)\)"
    files = re.findall(link, text)
    text = re.sub(link, r"[`\1`](#\1)", text)
    for name in files:
        source = (folder / name).read_text(encoding="utf-8")
        lines = f"```{Path(name).suffix[1:]}\n{source}```\n"
        text += f"\n({name})=\n## `{name}`\n\n{lines}"
    return text
