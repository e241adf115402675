"""Fixtures for tests of the pytest plugin."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from _pytest.pytester import SysModulesSnapshot

from customop.core import registry
from customop.core.registry import namespaces, remove_operator
from customop.pytest import checked_tests  # noqa: F401  # once for all runs inside of this
from tests.pytest._project import Project

PLUGIN = "customop.pytest.plugin"


@pytest.fixture(autouse=True)
def _package_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the modules of the package that a run inside of this one imports.

    pytest takes them out of `sys.modules` again, but the package still refers to them:
    the next import would make their functions and classes a second time.
    """
    restore = SysModulesSnapshot.restore

    def keeping(self: SysModulesSnapshot) -> None:
        ours = {n: m for n, m in sys.modules.items() if n.startswith("customop.")}
        ours.pop(PLUGIN, None)  # pytest warns about a plugin that was imported before
        restore(self)
        sys.modules.update({**ours, **sys.modules})

    monkeypatch.setattr(SysModulesSnapshot, "restore", keeping)


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, built_in_kinds: None
) -> Iterator[Project]:
    """A project; its operators and kinds of array are removed after the test."""
    # Without other plugins: that of hypothesis takes a second to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delitem(sys.modules, PLUGIN, raising=False)  # doctests import it too
    yield Project(pytester)
    names = [n for n in namespaces if n in {"mylib", "other"}]
    ops = [op for n in names for o in namespaces[n].values() for op in o.values()]
    for op in ops:
        remove_operator(op)
    # The next project, in another file, must not revive these.
    for op in ops:
        registry._retired.pop(op.qualname, None)
