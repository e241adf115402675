"""The pytest plugin. Every run of pytest loads this file, so it imports only pytest.

- ``@pytest.mark.opcheck`` on a test, class or module: check every operator call of the
  test on copies of its arguments; a check that fails makes the test fail.
- ``pytest --opcheck NAMESPACE``: check the calls of all tests, with one report for each
  operator and check. ``--opcheck-accept`` writes a file of known failures.
- The fixture `all_devices` runs a test once for each kind of array.

Loaded as an entry point (see `entry`) and with ``-p``, this file becomes two modules.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

# Both modules use this name, so that the plugin is registered only once.
_NAME = "customop-opcheck"


def pytest_addoption(
    parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager
) -> None:
    """Add the options, unless the other module has added them."""
    if pluginmanager.has_plugin(_NAME):
        return
    pluginmanager.register(Plugin(), _NAME)
    group = parser.getgroup("customop", "operators of customop")
    for name, settings in _OPTIONS.items():
        group.addoption(f"--opcheck{name}", **settings)


_OPTIONS: dict[str, dict[str, Any]] = {
    "": {
        "action": "append",
        "default": [],
        "metavar": "NAMESPACE",
        "help": "check the operators of a namespace in every test that calls them; also"
        " ns::name, 'ns::*' and ALL (all but those of customop); may be repeated",
    },
    "-checks": {
        "default": "ALL",
        "metavar": "NAMES",
        "help": "checks for --opcheck, with commas between them (default: ALL)",
    },
    "-failures": {
        "default": "",
        "metavar": "PATH",
        "help": "file of known failures (default: opcheck_failures.json next to the"
        " configuration of pytest)",
    },
    "-accept": {
        "action": "store_true",
        "help": "update the file of known failures",
    },
    "-devices": {
        "default": "",
        "metavar": "KINDS",
        "help": "kinds of array for all_devices, with commas between them (default: all"
        " that can be made here)",
    },
}
_MARKER = (
    "opcheck(*operators, test_utils=..., rtol=None, atol=None): check every call that"
    " the test makes of these operators, or of all operators"
)


class _OpcheckMark(pytest.MarkDecorator):
    """A marker that accepts a single operator as its argument.

    pytest would otherwise mark the operator, as it does with any single callable.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        operator = getattr(sys.modules.get("customop"), "Operator", ())
        if len(args) == 1 and isinstance(args[0], operator):
            return self.with_args(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class Plugin:
    """The hooks that every run needs. They import everything else on demand."""

    def __init__(self) -> None:
        self._before: object = None

    # Run after pytest's own hook, which reads the markers of this run.
    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Declare the marker, and start the checks if an option requests them."""
        config.addinivalue_line("markers", _MARKER)
        self._before = vars(pytest.mark).pop("opcheck", None)
        marker = pytest.mark.opcheck
        marker.__class__ = _OpcheckMark
        vars(pytest.mark)["opcheck"] = marker
        if any(config.getoption(f"opcheck{name}") for name in ("", "_accept")):
            _module().configure(config)

    def pytest_unconfigure(self) -> None:
        """Restore the markers of an outer pytest run."""
        vars(pytest.mark).pop("opcheck", None)
        if self._before is not None:
            vars(pytest.mark)["opcheck"] = self._before

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: Sequence[pytest.Item]
    ) -> None:
        """Start the checks if any test is marked."""
        if any(item.get_closest_marker("opcheck") for item in items):
            _module().add_marked(config, items)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test with the fixture `all_devices` once for each kind of array."""
        if "all_devices" in metafunc.fixturenames and _is_ours(metafunc):
            rows = _module().kinds_of_array(metafunc.config)
            metafunc.parametrize("all_devices", rows, indirect=True)

    @pytest.fixture
    def all_devices(self, request: pytest.FixtureRequest) -> ArraysOfKind:
        """One kind of array: `kind`, `asarray(values)`, `to_numpy(x)`."""
        return ArraysOfKind(request.param)


def _is_ours(metafunc: pytest.Metafunc) -> bool:
    """Return whether `all_devices` is this plugin's fixture."""
    (*_, fixture) = metafunc._arg2fixturedefs["all_devices"]
    return bool(fixture.func.__module__ == __name__)


def _module() -> Any:
    return importlib.import_module("customop.pytest.checked_tests")


@dataclass(frozen=True)
class ArraysOfKind:
    """Arrays of one kind, from the fixture `all_devices`.

    Attributes
    ----------
    kind : str
        Such as ``"cpu"`` or ``"cuda"``.
    """

    kind: str

    def asarray(self, values: Any, dtype: Any = None) -> Any:
        """Make an array of this kind.

        Parameters
        ----------
        values : array, number, or nested sequences of numbers
        dtype : dtype, optional
            By default the dtype of the values.

        Returns
        -------
        array
        """
        return _module().as_kind(values, self.kind, dtype)

    def to_numpy(self, x: Any) -> Any:
        """Convert an array of any kind to NumPy.

        Parameters
        ----------
        x : array

        Returns
        -------
        ndarray
        """
        return _module().as_kind(x, "cpu", None)
