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


# Runs programs one after the other, each without some packages, and prints as JSON what each
# printed and how it ended.
RUN_ALL = """
import contextlib, io, json, runpy, sys
found = {}
for path, without in json.loads(sys.argv[1]).items():
    sys.argv[:] = [path]
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


def run_all(without: dict[str, list[str]], folder: Path) -> dict[str, tuple[str, Any]]:
    """Return what examples print, and how they end; a warning is an error."""
    given = {str(FOLDER / name): packages for name, packages in without.items()}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN_ALL, json.dumps(given)],
        cwd=folder,
        env=os.environ | {"PYTHONOPTIMIZE": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout).items()
    return {Path(path).name: (out, ended) for path, (out, ended) in found}


def test_examples_run_one_after_the_other(tmp_path: Path) -> None:
    """Each prints what is shown, and the folder stays empty."""
    found = run_all(
        {path.name: [] for path in COURSE if path.name not in EXTRAS}, tmp_path
    )
    with cases() as case:
        for name, (printed, ended) in found.items():
            with case(name):
                assert ended is None
                assert prints_what_is_shown(name, printed), printed
    assert [*tmp_path.iterdir()] == []


@pytest.mark.exhaustive
@each
def test_example_runs(path: Path, tmp_path: Path) -> None:
    """An example ends well in an empty folder, which stays empty, and draws a picture."""
    packages, _ = EXTRAS.get(path.name, ([], ""))
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    folder, picture = tmp_path / "empty", tmp_path / "picture.png"
    folder.mkdir()
    draws = importlib.util.find_spec("matplotlib") is not None
    done = subprocess.run(
        [
            *[sys.executable, "-W", "error", str(path)],
            *["--picture", str(picture)] * draws,
        ],
        cwd=folder,
        env=os.environ | {"PYTHONOPTIMIZE": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert prints_what_is_shown(path.name, done.stdout), done.stdout
    assert [*folder.iterdir()] == []
    assert not draws or picture.read_bytes().startswith(b"\x89PNG")


@each
def test_example_asserts(path: Path) -> None:
    """An example proves what it says at its end."""
    text, _, picture = path.read_text(encoding="utf-8").partition("# ---- a picture: ")
    assert f"python {path.name} --picture FILE" in picture
    lines = text.rstrip().splitlines()
    assert any(line.startswith(("assert", "np.testing.assert")) for line in lines[-25:])


def test_missing_extras_are_named(tmp_path: Path) -> None:
    """An example says which extra it needs, in its docstring and where it is missing."""
    found = run_all(
        {name: packages for name, (packages, _) in EXTRAS.items()}, tmp_path
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
