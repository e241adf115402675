"""Folders import from lower rows only, and NumPy's operators use public names."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import customop as co

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "customop"
NUMPY_LAYER = sorted((PACKAGE / "numpy").glob("*.py"))


def test_a_class_name_is_used_once() -> None:
    """No two classes of the package share a name; leading underscores do not count."""
    seen: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                seen.setdefault(node.name.lstrip("_"), []).append(str(path))
    assert {name: paths for name, paths in seen.items() if len(paths) > 1} == {}


@pytest.mark.exhaustive
def test_contracts_are_kept() -> None:
    """No folder imports from its own row or a higher one, and there is no cycle."""
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
    """A NumPy module imports only from `customop.__all__` and its own folder.

    import-linter cannot see this: `from customop import jvp` is the function, yet
    there is a module of that name.
    """
    found = imports(path)
    private = found.pop("customop", set()) - set(co.__all__)
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
        # Private names of NumPy, such as np._NoValue, are allowed.
        and ast.unparse(node.value) != "np"
    }
    assert touched == set()


# Attributes of other packages. Python and NumPy document theirs; mypy and pytest have
# no public name for these two.
FOREIGN = {"_asdict", "_exit", "_fields", "_getframe", "_replace", "_NoValue"} | {
    "_watchers",
    "_arg2fixturedefs",
}


def untyped_operators(tree: ast.AST) -> list[str]:
    """Return parameters and attributes that are annotated `op: Any`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name, annotation = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign):
            name, annotation = ast.unparse(node.target), node.annotation
        else:
            continue
        if name.rpartition(".")[2] in ("op", "_op") and annotation is not None:
            found += [f"line {node.lineno}"] if ast.unparse(annotation) == "Any" else []
    return found


def own_names(tree: ast.AST) -> set[str]:
    """Return names that a module defines: functions, classes, attributes, slots."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= (
                {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
            )
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            found |= set(ast.literal_eval(node.value))
    return found


def foreign_private(tree: ast.AST) -> list[str]:
    """Return the private names of other modules that a file uses."""
    known = own_names(tree) | FOREIGN
    imported = [
        f"line {node.lineno}: {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    return imported + [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in known
        and ast.unparse(node.value) not in ("self", "cls")
    ]


def breaking(check: Callable[[ast.AST], list[str]]) -> dict[str, list[str]]:
    """Return the files of the package in which a check finds something."""
    trees = {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in PACKAGE.rglob("*.py")
    }
    found = {name: check(tree) for name, tree in trees.items()}
    return {name: lines for name, lines in found.items() if lines}


def test_operators_are_typed() -> None:
    """No module says `op: Any`; it says RuleTable or Operator."""
    found = breaking(untyped_operators)
    assert found == {}


def test_private_attributes_stay_in_their_module() -> None:
    """No module reads a private attribute that another one defines.

    Torch has no public names for what a bridge needs. One file lists those that it uses.
    """
    found = breaking(foreign_private)
    assert found.keys() <= {"interop/torch/framework.py"}
