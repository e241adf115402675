"""Every example of the course runs alone, without a warning, and prints what is shown."""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases

FOLDER = Path(__file__).parents[2] / "examples"
COURSE = sorted(FOLDER.glob("[0-9]*.py"))
INDEX = (FOLDER / "README.md").read_text(encoding="utf-8")
# Name of an example -> what the index shows of its output.
SHOWN = dict(
    re.findall(
        r"^```console\n\$ python (\S+)\n(.*?)^```$", INDEX, re.MULTILINE | re.DOTALL
    )
)
# Packages that an example needs beyond NumPy, and the extra that installs them.
EXTRAS = {
    "12_typing.py": (["mypy"], "typing"),
    "deblur.py": (["matplotlib", "sklearn"], "examples"),
    "digits.py": (["matplotlib", "sklearn", "tqdm"], "examples"),
    "larger_than_memory.py": (["distributed", "matplotlib"], "dask,draw"),
    "handover.py": (["matplotlib", "sklearn", "tqdm"], "examples"),
    "patterns.py": (["matplotlib"], "examples"),
    "terrain.py": (["matplotlib", "scipy"], "examples"),
    "waves.py": (["matplotlib", "scipy"], "examples"),
}
each = pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)


def prints_what_is_shown(name: str, printed: str) -> bool:
    """Whether the output of an example is as the index shows it."""
    # Paths begin differently on every machine.
    return doctest.OutputChecker().check_output(SHOWN[name], printed, doctest.ELLIPSIS)


def test_the_course_is_numbered_without_gaps() -> None:
    """The numbers of the examples are 1, 2, 3, ..."""
    assert [int(path.name[:2]) for path in COURSE] == [*range(1, len(COURSE) + 1)]


def test_the_index_shows_every_example() -> None:
    """examples/README.md links to every program, and shows some of its output."""
    programs = {path.name for path in FOLDER.glob("*.py")}
    assert set(re.findall(r"\[\S+\]\((\w+\.py)\)", INDEX)) == programs
    assert set(SHOWN) == programs


# Runs programs one after the other, each with some arguments and without some packages, and
# prints as JSON what each printed and how it ended.
RUN_ALL = """
import contextlib, io, json, runpy, sys
found = {}
for path, (arguments, without) in json.loads(sys.argv[1]).items():
    sys.argv[:] = [path, *arguments]
    sys.modules.update(dict.fromkeys(without))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            runpy.run_path(path, run_name="__main__")
            ended = None
        except SystemExit as error:
            ended = error.code
    for name in without:
        del sys.modules[name]
    found[path] = out.getvalue(), ended
print(json.dumps(found))
"""


def run_all(
    given: dict[str, tuple[list[str], list[str]]], folder: Path
) -> dict[str, tuple[str, Any]]:
    """Return what examples print, and how they end; a warning is an error.

    `given` has the arguments of each, and the packages that it does not find.
    """
    paths = {str(FOLDER / name): pair for name, pair in given.items()}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN_ALL, json.dumps(paths)],
        cwd=folder,
        env=os.environ | {"PYTHONOPTIMIZE": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout).items()
    return {Path(path).name: (out, ended) for path, (out, ended) in found}


def test_examples_run_one_after_the_other(tmp_path: Path) -> None:
    """Each prints what is shown, and the folder stays empty."""
    found = run_all(
        {path.name: ([], []) for path in COURSE if path.name not in EXTRAS}, tmp_path
    )
    with cases() as case:
        for name, (printed, ended) in found.items():
            with case(name):
                assert ended is None
                assert prints_what_is_shown(name, printed), printed
    assert [*tmp_path.iterdir()] == []


@pytest.mark.exhaustive
def test_examples_draw(tmp_path: Path) -> None:
    """Each draws a picture and prints the same; the folder stays empty.

    The build of the site runs each of them in a process of its own.
    """
    pytest.importorskip("matplotlib", reason="draws pictures")
    folder = tmp_path / "empty"
    folder.mkdir()
    pictures = {path.name: tmp_path / f"{path.stem}.png" for path in COURSE}
    for name, (packages, _) in EXTRAS.items():
        if name in pictures and not all(map(importlib.util.find_spec, packages)):
            del pictures[name]
    given = {name: (["--picture", str(at)], []) for name, at in pictures.items()}
    found = run_all(given, folder)
    with cases() as case:
        for name, (printed, ended) in found.items():
            with case(name):
                assert ended is None
                assert prints_what_is_shown(name, printed), printed
                assert pictures[name].read_bytes().startswith(b"\x89PNG")
    assert [*folder.iterdir()] == []


@each
def test_example_asserts(path: Path) -> None:
    """An example proves what it says at its end."""
    text, _, picture = path.read_text(encoding="utf-8").partition("# ---- a picture: ")
    assert f"python {path.name} --picture FILE" in picture
    lines = text.rstrip().splitlines()
    assert any(line.startswith(("assert", "np.testing.assert")) for line in lines[-25:])


@pytest.mark.exhaustive
def test_missing_extras_are_named(tmp_path: Path) -> None:
    """An example says which extra it needs, in its docstring and where it is missing."""
    found = run_all(
        {name: ([], packages) for name, (packages, _) in EXTRAS.items()}, tmp_path
    )
    with cases() as case:
        for name, (_, extra) in EXTRAS.items():
            with case(name):
                command = f"pip install -e '.[{extra}]'"
                text = (FOLDER / name).read_text(encoding="utf-8")
                assert command in text.split('"""')[1]
                assert str(found[name][1]).endswith(command)


@pytest.mark.parametrize(
    "path", sorted((FOLDER / "guide").glob("*.png")), ids=lambda path: path.stem
)
def test_stored_pictures_fit_dark_pages(path: Path) -> None:
    """What programs draw has no background; pages in a browser bring their own."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="reads pictures")
    if not path.stem.endswith("_page"):
        assert (pyplot.imread(path)[:2, :, 3] == 0.0).all()
