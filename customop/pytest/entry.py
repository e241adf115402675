"""The entry point for pytest: the plugin without the package around it.

To import a module of a package is to import the package: NumPy and all, in every run of
pytest where customop is installed. So the wheel has this file outside of the package,
and the plugin is loaded from its place.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["plugin"]


def _load() -> ModuleType:
    # Of a package, other than of what is in it, this looks for the file alone.
    package = importlib.util.find_spec("customop")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).with_name("pytest") / "plugin.py"
    spec = importlib.util.spec_from_file_location("_customop_pytest_plugin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as dataclasses want it
    spec.loader.exec_module(module)
    return module


plugin: ModuleType = _load()
