"""Every example of the course runs alone, without a warning, and prints what is shown."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "path",
    [
        # The one on typing runs mypy.
        pytest.param(p, marks=[pytest.mark.exhaustive] * ("typing" in p.stem))
        for p in COURSE
    ],
    ids=lambda path: path.stem,
)
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


@pytest.mark.parametrize("name", EXTRAS)
def test_missing_extra_is_named(name: str, tmp_path: Path) -> None:
    """An example says which extra it needs, in its docstring and where it is missing."""
    packages, extra = EXTRAS[name]
    command = f"pip install -e '.[{extra}]'"
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert command in text.split('"""')[1]
    code = (
        "import runpy, sys; sys.argv[:] = sys.argv[1:];"
        f" sys.modules.update(dict.fromkeys({packages})); runpy.run_path(sys.argv[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(FOLDER / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(command), done.stderr


@pytest.mark.parametrize(
    "path", sorted((FOLDER / "guide").glob("*.png")), ids=lambda path: path.stem
)
def test_stored_pictures_fit_dark_pages(path: Path) -> None:
    """What programs draw has no background; pages in a browser bring their own."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="reads pictures")
    if not path.stem.endswith("_page"):
        assert (pyplot.imread(path)[:2, :, 3] == 0.0).all()
