"""Errors and types that mypy, with and without the plugin, and pyright report.

Both checkers read the files below tests/typing in their strict modes. An expected error
stands beside its line, ``# mypy: arg-type  pyright: reportArgumentType``, or below it,
``# by mypy: arg-type``; the other lines have none. ``# plugin: customop-schema`` has all
errors of mypy with the plugin, if they differ. Files in ``pass`` have no such comments,
and run.
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

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("typing")]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "typing"
FILES = sorted(FOLDER.glob("*/**/*.py"))
NAMES = [path.relative_to(FOLDER).as_posix() for path in FILES]
RIGHT = [name for name in NAMES if "pass/" in name]

MYPY = (
    "--strict",
    "--warn-unreachable",
    "--follow-imports=silent",
    "--no-error-summary",
    "--no-pretty",
)

# Packages that this one can use; mypy would take 13 s for their 2,500 files.
SKIPPED = """\
[mypy-torch.*,jax.*,jaxlib.*,ml_dtypes.*,scipy.*,sklearn.*,matplotlib.*,PIL.*]
follow_imports = skip
"""

_MYPY_LINE = re.compile(r"(.+?):(\d+): (\w+): (.*)")
_CODE = re.compile(r"\[([\w-]+)\]$")
_BESIDE = re.compile(r"(?:# |  )(mypy|pyright|plugin): ([^ ].*?)(?=$|  \w+: )")
_BELOW = re.compile(r"# by (mypy|pyright|plugin): (.+)$")
_MODULE = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")

# File -> line -> sorted codes of errors, or the revealed type.
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
            "PYTHONPATH": str(ROOT),
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


def _mypy_says(folder: Path, config: str) -> Said:
    (folder / "mypy.ini").write_text(f"[mypy]\n{config}\n{SKIPPED}")
    where = (f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={folder / 'cache'}")
    pairs = []
    for text in _run("mypy", *where, *MYPY, *NAMES).splitlines():
        found = _MYPY_LINE.match(text)
        assert found is not None, text
        name, line, level, message = found.groups()
        if level == "error":
            code = _CODE.search(message)
            assert code is not None, text
            pairs.append((name, int(line), code[1]))
        elif message.startswith("Revealed type is "):
            shown = message.removeprefix('Revealed type is "').removesuffix('"')
            # mypy prints an ellipsis differently if it comes from the cache.
            shown = _MODULE.sub("", shown).replace("[*Any, **Any]", "...")
            pairs.append((name, int(line), shown))
    return _sorted(pairs)


@pytest.fixture(scope="session")
def by_mypy(tmp_path_factory: pytest.TempPathFactory) -> Said:
    return _mypy_says(tmp_path_factory.mktemp("mypy"), "")


@pytest.fixture(scope="session")
def by_plugin(tmp_path_factory: pytest.TempPathFactory) -> Said:
    return _mypy_says(tmp_path_factory.mktemp("plugin"), "plugins = customop.mypy")


@pytest.fixture(scope="session")
def by_pyright() -> Said:
    output = _run("pyright", "--outputjson", "--pythonpath", sys.executable)
    report = json.loads(output[output.index("{") :])
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    pairs = []
    for said in report["generalDiagnostics"]:
        name = Path(said["file"]).relative_to(FOLDER).as_posix()
        line = said["range"]["start"]["line"] + 1
        if said["severity"] == "information":
            text = said["message"].partition(" is ")[2].strip('"')
        else:
            text = said.get("rule") or said["message"]
        pairs.append((name, line, text))
    return _sorted(pairs)


def _comments(name: str) -> dict[int, dict[str, str]]:
    """The errors that the comments of a file expect: line -> checker -> codes."""
    found: dict[int, dict[str, str]] = defaultdict(dict)
    last = 0
    for number, line in enumerate((FOLDER / name).read_text().splitlines(), 1):
        below = _BELOW.match(line.strip())
        if below is None:
            last = number if line.strip() else last
            found[number].update(_BESIDE.findall(line))
        else:
            found[last][below[1]] = below[2]
    return found


def _expected(name: str, *checkers: str) -> dict[int, str]:
    """The errors of the first of these checkers that the comments of a line name."""
    said = {
        line: [comments[checker] for checker in checkers if checker in comments]
        for line, comments in _comments(name).items()
    }
    return {line: texts[0] for line, texts in said.items() if texts}


@pytest.mark.parametrize("name", NAMES)
def test_mypy_says_what_the_file_says(name, by_mypy):
    """The comments name all errors and types that mypy --strict reports."""
    assert by_mypy.get(name, {}) == _expected(name, "mypy")


@pytest.mark.parametrize("name", NAMES)
def test_mypy_with_the_plugin_says_what_the_file_says(name, by_plugin):
    """The comments name all errors and types of mypy --strict with the plugin."""
    assert by_plugin.get(name, {}) == _expected(name, "plugin", "mypy")


@pytest.mark.parametrize("name", NAMES)
def test_pyright_says_what_the_file_says(name, by_pyright):
    """The comments name all errors and types of pyright in strict mode."""
    assert by_pyright.get(name, {}) == _expected(name, "pyright")


@pytest.mark.usefixtures("numpy_functions_stay")
@pytest.mark.parametrize("name", RIGHT)
def test_what_the_checkers_accept_runs(name):
    """Files without errors run."""
    runpy.run_path(str(FOLDER / name), run_name="typing_example")


@pytest.mark.parametrize("name", RIGHT)
def test_right_files_expect_nothing(name):
    """Files of right code have no comments that expect an error."""
    assert _expected(name, "plugin", "mypy", "pyright") == {}
