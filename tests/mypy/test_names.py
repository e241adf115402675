"""Names of this package, which the plugin knows without the modules that define them."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

if importlib.util.find_spec("mypy") is None:
    pytest.skip("mypy is not installed", allow_module_level=True)

import customop as co
import customop.mypy
from customop.mypy.hints import own_name

PACKAGE = Path(co.__file__).parent
FOLDERS = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir())
_MODULE = re.compile(rf"customop\.({FOLDERS})\.\w+")


@pytest.mark.parametrize(
    ("fullname", "expected"),
    [
        (f"{co.custom_op.__module__}.custom_op", "custom_op"),
        (f"{co.jvp.__module__}.jvp", "jvp"),
        (f"{co.Library.define.__module__}.Library.define", "Library.define"),
        ("customop", ""),
        ("customop_extras.custom_op", ""),
        ("numpy.ndarray", ""),
    ],
)
def test_a_name_has_no_module(fullname, expected):
    """What is left of a full name does not depend on the module that defines it."""
    assert own_name(fullname) == expected


def _strings(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    docstrings = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, documented)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value not in docstrings
    ]


@pytest.mark.parametrize("folder", ["mypy", "stubgen"])
def test_no_string_names_a_module(folder):
    """A definition can move to another module: no string says where it is."""
    found = {
        path.name: [text for text in _strings(path) if _MODULE.search(text)]
        for path in (PACKAGE / folder).glob("*.py")
    }
    assert {name: texts for name, texts in found.items() if texts} == {}
