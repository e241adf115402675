"""Write the lower parts of the stubs in this folder from installed releases of CuPy.

    python stubs/generate.py PYTHON...

Each PYTHON is an interpreter that can import one release of CuPy, the newest first; a GPU
is not needed. A module whose libraries of CUDA are not found is left as it is: install
those of NVIDIA with pip and set ``LD_LIBRARY_PATH``.

A stub has two parts. What stands above the marker is written by hand and stays. The names
that it lacks are written below. To type a name better, write it above the marker and run
this script again. Where releases differ, the newest decides: a comment ``# CuPy 14`` says
that a line holds for that release only. Files have the names that CuPy's own files have,
because pyright lays a partial stub package over the package.

Then compare with each release: ``pytest -m exhaustive tests/typing/test_cupy_stubs.py``.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MARKER = "# ---- written by stubs/generate.py ----\n"

# Identifiers in the texts of `survey.py` -> the module that has them.
IDENTIFIERS = {
    "ABC": "abc",
    "ModuleType": "types",
    "_FunctionT": "cupy",
    "Any": "typing",
    "Callable": "collections.abc",
    "Iterator": "collections.abc",
    "Self": "typing",
    "Sequence": "collections.abc",
    "TestCase": "unittest",
    "cuda": "cupy",
    "disjoint_base": "typing_extensions",
    "final": "typing",
    "ndarray": "cupy",
    "ufunc": "cupy",
    **dict.fromkeys(
        ("_ArrayLike", "_Axis", "_Binary", "_Casting", "_DType", "_Int"), "cupy"
    ),
    **dict.fromkeys(("_Operand", "_Order", "_Shape", "_Unary"), "cupy"),
}

# Release -> what it has for one name: a text, a class, or nothing.
Entries = dict[str, Any]


# ---- merging releases ----


def _merged(entries: Entries) -> str:
    """Return the text of the newest release, which says so if the others differ."""
    newest = next(release for release, entry in entries.items() if entry is not None)
    entry = entries[newest]
    if isinstance(entry, dict):
        return _merged_class(entries, newest)
    same = all(other == entry for other in entries.values())
    return entry if same else f"{entry}  # CuPy {newest}"


def _merged_class(entries: Entries, newest: str) -> str:
    """Return a class of the newest release, with the members of all."""
    classes = {r: e for r, e in entries.items() if isinstance(e, dict)}
    names = dict.fromkeys(n for c in classes.values() for n in c["members"])
    members = [
        _merged({release: c["members"].get(name) for release, c in classes.items()})
        for name in names
    ]
    head = classes[newest]["head"]
    if len(classes) < len(entries):
        head += f"  # CuPy {newest}"
    lines = "\n".join(members or ["..."]).splitlines()
    return "\n".join([head, *(f"    {line}" for line in lines)])


# ---- writing ----


def bound_names(text: str) -> set[str]:
    """Return names that a stub binds at its top level."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                found |= {alias.asname or alias.name for alias in names}
    return found


def _imports(texts: Iterable[str]) -> str:
    """Return statements ``from module import name``, one for each module."""
    modules: dict[str, list[str]] = {}
    for text in texts:
        found = re.fullmatch(r"from (\S+) import (.+?)(  # .*)?", text)
        assert found is not None, text
        modules.setdefault(found[1], []).append(f"{found[2]},{found[3] or ''}\n")
    return "\n".join(f"from {m} import (\n{''.join(n)})" for m, n in modules.items())


def _unshadowed(text: str, bound: set[str]) -> tuple[str, set[str]]:
    """Give Python's types an underscore where the module has a name like theirs."""
    needs = set()
    for name in ("bool", "bytes", "float", "int", "str"):
        pattern = rf"((?::|->|\||\[) ?){name}\b(?! as)"
        if name in bound and re.search(pattern, text):
            text = re.sub(pattern, rf"\1_{name}", text)
            if f"_{name}" not in bound:
                needs.add(f"from builtins import {name} as _{name}")
    return text, needs


def _needed(text: str, bound: set[str]) -> set[str]:
    """Return imports of the identifiers in a text that the module does not bind."""
    plain = re.sub(r"#.*|\"[^\"]*\"|'[^']*'", "", text)
    words = set(re.findall(r"[A-Za-z_]\w*", plain)) - bound
    return {f"from {IDENTIFIERS[n]} import {n}" for n in words & IDENTIFIERS.keys()}


def _ordered(texts: Sequence[str]) -> list[str]:
    """Return classes after their bases, and second names of objects at the end."""
    heads = {
        text: re.search(r"^class (\w+)(?:\((.*)\))?:", text, re.MULTILINE)
        for text in texts
    }
    classes = {found[1]: text for text, found in heads.items() if found}

    def rank(text: str) -> int:
        found = heads[text]
        bases = (found[2] or "").split(", ") if found else []
        return 1 + max((rank(classes[b]) for b in bases if b in classes), default=0)

    return sorted(texts, key=lambda text: (bool(re.match(r"\w+ = ", text)), rank(text)))


def _formatted(text: str) -> str:
    command = ["ruff", "format", "--isolated", "--stdin-filename=stub.pyi", "-"]
    command += ["--config", "format.skip-magic-trailing-comma=true"]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=True
    ).stdout


def _lower_part(module: str, entries: dict[str, Entries], by_hand: set[str]) -> str:
    texts = [_merged(entry) for entry in entries.values()]
    again = [text for text in texts if text.startswith("from ")]
    rest = "\n".join(_ordered([text for text in texts if not text.startswith("from ")]))
    bound = by_hand | entries.keys()
    rest, needs = _unshadowed(rest, bound)
    needs |= _needed(rest, bound)
    if "numpy." in rest and "numpy" not in bound:
        rest = f"import numpy\n{rest}"
    for entry in (e for releases in entries.values() for e in releases.values()):
        if isinstance(entry, dict):
            needs |= {f"from {m} import {n}" for m, n in entry["needs"] if m != module}
    return f"{_imports(sorted(needs))}\n{_imports(again)}\n{rest}\n"


def _write(module: str, path: Path, releases: dict[str, dict[str, Any]]) -> None:
    old = path.read_text() if path.exists() else f'"""Types of {module}."""\n'
    text = old.partition(MARKER)[0].rstrip() + "\n"
    by_hand = bound_names(text)
    names = sorted({name for found in releases.values() for name in found} - by_hand)
    entries = {n: {r: found.get(n) for r, found in releases.items()} for n in names}
    if entries:
        text += f"\n{MARKER}\n{_lower_part(module, entries, by_hand)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_formatted(text))


def _survey(python: str) -> dict[str, Any]:
    command = [python, str(FOLDER / "survey.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(pythons: Sequence[str]) -> None:
    """Write all stubs from the releases of these interpreters."""
    surveys = [_survey(python) for python in pythons]
    for module in dict.fromkeys(m for found in surveys for m in found["modules"]):
        releases = {
            found["release"]: found["modules"][module]
            for found in surveys
            if module in found["modules"]
        }
        package = any(module in found["packages"] for found in surveys)
        path = FOLDER / (module.replace(".", "/") + "/__init__" * package + ".pyi")
        _write(module, path, releases)


if __name__ == "__main__":
    main(sys.argv[1:])
