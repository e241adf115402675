"""Folders import from lower rows only, and NumPy's operators use public names."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import customop as co

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "customop"
NUMPY_LAYER = sorted((PACKAGE / "numpy").glob("*.py"))


@pytest.mark.exhaustive
def test_contracts_are_kept() -> None:
    """No folder imports from its own row or a higher one, and none has a circle."""
    linter = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert linter is not None, "import-linter is in the extra 'dev'"
    run = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


def imports(path: Path) -> dict[str, set[str]]:
    """Return module -> names that a file imports from it, for modules of the package."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            pairs = [(alias.name, "*") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            pairs = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        for module, name in pairs:
            if module.partition(".")[0] == "customop":
                found.setdefault(module, set()).add(name)
    return found


@pytest.mark.parametrize("path", NUMPY_LAYER, ids=lambda path: path.stem)
def test_law_9_numpy_operators_are_made_of_public_names(path: Path) -> None:
    """A NumPy module imports what `customop.__all__` has, and its neighbours alone.

    import-linter cannot see this: `from customop import jvp` is the function, yet
    there is a module of that name.
    """
    found = imports(path)
    private = found.pop("customop", set()) - set(co.__all__)
    if path.stem == "__init__":
        private -= {"numpy"}
    assert private == set()
    assert [name for name in found if not name.startswith("customop.numpy")] == []


@pytest.mark.parametrize("path", NUMPY_LAYER, ids=lambda path: path.stem)
def test_law_9_numpy_operators_touch_nothing_private(path: Path) -> None:
    """A NumPy module reads no attribute of an operator that starts with an underscore."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    touched = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        # NumPy's own, such as np._NoValue, are its affair.
        and ast.unparse(node.value) != "np"
    }
    assert touched == set()
