"""Fixtures for tests of the pytest plugin."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from customop.core import define
from customop.core.define import remove_operator
from customop.core.registry import namespaces
from customop.pytest import session  # noqa: F401  # once for all runs inside of this
from tests.pytest._project import Project


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    """A project; its operators are removed after the test."""
    # Without other plugins: that of hypothesis takes a second to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # pytest warns about a plugin that was imported before, as by doctests.
    monkeypatch.delitem(sys.modules, "customop.pytest.plugin", raising=False)
    yield Project(pytester)
    names = [n for n in namespaces if n in {"mylib", "other"}]
    ops = [op for n in names for o in namespaces[n].values() for op in o.values()]
    for op in ops:
        remove_operator(op)
    # The next project, in another file, must not revive these.
    for op in ops:
        define._retired.pop(op.qualname, None)
