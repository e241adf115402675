"""What mypy and pyright say of the public names, without a plugin.

The files below tests/typing are read by both checkers, in their strict modes. What they
say of a line stands beside it, ``# mypy: arg-type  pyright: reportArgumentType``, or
below it, ``# by mypy: arg-type``; of other lines they say nothing. Files in ``pass`` have no
such comments, and run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "typing"
FILES = sorted(FOLDER.glob("*/*.py"))
NAMES = [f"{path.parent.name}/{path.name}" for path in FILES]
RIGHT = [name for name in NAMES if name.startswith("pass/")]

MYPY = (
    "--config-file=",
    "--strict",
    "--warn-unreachable",
    "--follow-imports=silent",
    "--no-error-summary",
    "--no-pretty",
)

_MYPY_LINE = re.compile(r"(.+?):(\d+): (\w+): (.*)")
_CODE = re.compile(r"\[([\w-]+)\]$")
_BESIDE = re.compile(r"# mypy: (?P<mypy>.+?)  pyright: (?P<pyright>.+)$")
_BELOW = re.compile(r"# by (mypy|pyright): (.+)$")
_MODULE = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")

# File -> line -> codes of errors, sorted, or the type revealed.
Said = dict[str, dict[int, str]]


def _run(checker: str, *arguments: str) -> str:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    done = subprocess.run(
        [sys.executable, "-m", checker, *arguments],
        cwd=FOLDER,
        env={
            **os.environ,
            "MYPYPATH": os.pathsep.join([str(ROOT), str(ROOT / "stubs")]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def _sorted(pairs: list[tuple[str, int, str]]) -> Said:
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, line, text in pairs:
        found[name][line].add(text)
    return {
        name: {line: ", ".join(sorted(texts)) for line, texts in lines.items()}
        for name, lines in found.items()
    }


@pytest.fixture(scope="session")
def by_mypy(tmp_path_factory: pytest.TempPathFactory) -> Said:
    cache = tmp_path_factory.mktemp("mypy")
    pairs = []
    for text in _run("mypy", *MYPY, f"--cache-dir={cache}", *NAMES).splitlines():
        found = _MYPY_LINE.match(text)
        assert found is not None, text
        name, line, level, message = found.groups()
        if level == "error":
            code = _CODE.search(message)
            assert code is not None, text
            pairs.append((name, int(line), code[1]))
        elif message.startswith("Revealed type is "):
            shown = message.removeprefix('Revealed type is "').removesuffix('"')
            pairs.append((name, int(line), _MODULE.sub("", shown)))
    return _sorted(pairs)


@pytest.fixture(scope="session")
def by_pyright() -> Said:
    output = _run("pyright", "--outputjson", "--pythonpath", sys.executable)
    report = json.loads(output[output.index("{") :])
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    pairs = []
    for said in report["generalDiagnostics"]:
        path = Path(said["file"])
        name = f"{path.parent.name}/{path.name}"
        line = said["range"]["start"]["line"] + 1
        if said["severity"] == "information":
            text = said["message"].partition(" is ")[2].strip('"')
        else:
            text = said.get("rule") or said["message"]
        pairs.append((name, line, text))
    return _sorted(pairs)


def _expected(name: str, checker: str) -> dict[int, str]:
    """What the comments of a file say that a checker says, by line."""
    found = {}
    last = 0
    for number, line in enumerate((FOLDER / name).read_text().splitlines(), 1):
        below = _BELOW.match(line.strip())
        beside = _BESIDE.search(line)
        if below is None:
            last = number
        if below is not None and below[1] == checker:
            found[last] = below[2]
        if beside is not None:
            found[number] = beside[checker]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_mypy_says_what_the_file_says(name, by_mypy):
    """Each line that mypy --strict reports is marked, with its very code or type."""
    assert by_mypy.get(name, {}) == _expected(name, "mypy")


@pytest.mark.parametrize("name", NAMES)
def test_pyright_says_what_the_file_says(name, by_pyright):
    """Each line that pyright reports in strict mode is marked, with its rule or type."""
    assert by_pyright.get(name, {}) == _expected(name, "pyright")


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_checkers_accept_runs(name):
    """A file without complaints runs too, so that the types do not promise too much."""
    runpy.run_path(str(FOLDER / name))


@pytest.mark.parametrize("name", RIGHT)
def test_right_files_expect_nothing(name):
    """No complaint is expected of a file of right code."""
    assert _expected(name, "mypy") == _expected(name, "pyright") == {}
