"""The entry point for pytest, which loads the plugin without its package.

Importing `customop.pytest.plugin` would import NumPy in every run of pytest. So the
wheel installs this file outside the package, and it loads the plugin by its path.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["plugin"]


def _load() -> ModuleType:
    # For a top-level package, find_spec does not import it.
    package = importlib.util.find_spec("customop")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).with_name("pytest") / "plugin.py"
    spec = importlib.util.spec_from_file_location("_customop_pytest_plugin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look the module up here
    spec.loader.exec_module(module)
    return module


plugin: ModuleType = _load()
