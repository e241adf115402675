"""The API reference of the site has every public name, once."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import customop as co
import customop.testing

SITE = Path(__file__).parents[2] / "examples" / "site"


def load_table() -> Any:
    """Import the module with the table of pages, which needs no Sphinx."""
    path = SITE / "extension" / "themes.py"
    spec = importlib.util.spec_from_file_location("themes_of_site", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TABLE = load_table()
THEMES = TABLE.THEMES
# Modules that are public names have pages of their own.
MODULES = {"sizes", "tree"}
# They are in customop.testing as well.
TWICE = {"assert_close", "gradcheck", "gradgradcheck", "opcheck"}


def names(module: str) -> list[str]:
    """The names of a module that the table writes out."""
    found = []
    for theme in THEMES.values():
        for name in " ".join(theme.sections.values()).replace("*", "").split():
            full = name if "." in name else f"{theme.module}.{name}"
            if full.rpartition(".")[0] == module:
                found.append(full.rpartition(".")[2])
    return found


def test_every_public_name_has_one_place() -> None:
    """The pages have what `customop.__all__` has, and the modules in it."""
    assert Counter(names("customop")) == Counter({*co.__all__} - MODULES)


def test_names_of_testing() -> None:
    """What `customop.testing` has alone is in the reference; strategies have a page."""
    left = {*customop.testing.__all__} - TWICE - {"strategies"}
    assert Counter(names("customop.testing")) == Counter(left)
    assert {*co.__all__} >= TWICE


def test_every_public_module_has_a_page() -> None:
    """Pages of modules take all their names: trees, sizes, and the bridges."""
    package = Path(co.__file__).parent
    bridges = [path.parent.name for path in package.glob("interop/*/__init__.py")]
    wanted = {f"customop.interop.{name}" for name in bridges}
    wanted |= {f"customop.{name}" for name in MODULES} | {"customop.testing.strategies"}
    of_scipy = ("fft", "linalg", "signal", "sparse", "special", "stats")
    wanted |= {f"customop.scipy.{name}" for name in of_scipy}
    whole = {t.module for t in THEMES.values() if "*" in t.sections.values()}
    assert whole == wanted == {t.modules for t in THEMES.values() if t.modules}


@pytest.mark.parametrize("name", THEMES)
def test_pages_of_the_guide_exist(name: str) -> None:
    """A page of the reference leads to pages of the guide."""
    for page in THEMES[name].guide.split():
        assert (SITE.parent / "guide" / f"{page}.md").exists(), page
    index = (SITE / "api.md").read_text(encoding="utf-8")
    assert f"\napi/{name}\n" in index


def test_every_page_is_in_the_sidebar() -> None:
    """The lists of pages have every page of the guide, and every program."""
    lists = [(SITE / name).read_text("utf-8") for name in ("index.md", "guide.md")]
    gallery = (SITE / "gallery.md").read_text(encoding="utf-8")
    for page in (SITE.parent / "guide").glob("*.md"):
        listed = rf"^(.* <)?guide/{page.stem}>?$"
        assert any(re.search(listed, text, re.MULTILINE) for text in lists), page.stem
    for program in SITE.parent.glob("*.py"):
        assert f"\ngallery/{program.stem}\n" in gallery, program.stem


def test_every_page_is_in_a_group() -> None:
    """The index of the reference has every page, once."""
    pages = [name for names in TABLE.GROUPS.values() for name in names.split()]
    assert sorted(pages) == sorted([*THEMES, "numpy"])


def test_scipy_pages_are_its_public_modules() -> None:
    """`customop.scipy` has no other public names."""
    scipy = pytest.importorskip("scipy", reason="scipy is not installed")
    assert scipy.__version__
    public = importlib.import_module("customop.scipy").__all__
    pages = {
        t.module.rpartition(".")[2]
        for t in THEMES.values()
        if t.module.startswith("customop.scipy.")
    }
    assert pages == {*public}
