"""The pytest plugin: what every run of pytest loads, so it imports pytest alone.

- ``@pytest.mark.opcheck`` at a test, a class or a module: every operator call of the
  test is checked, on copies of its arguments, and a fault fails the test.
- ``pytest --opcheck NAMESPACE``: the same for all tests as they are, with a report for
  each operator and check. Those that are known to fail stand in a file, which
  ``--opcheck-accept`` writes.
- The fixture `all_devices` runs a test once for each kind of array.

It is loaded twice where it is an entry point, see `pytest_entry`, and named by ``-p``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

# Not `__name__`: both modules are one plugin, which is registered once.
_NAME = "customop-opcheck"


def pytest_addoption(
    parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager
) -> None:
    """Add the options, unless the other of the two modules has."""
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
        "help": "check every call of its operators that the tests make; also ns::name,"
        " 'ns::*' and ALL (all but NumPy's own functions); may be repeated",
    },
    "-checks": {
        "default": "ALL",
        "metavar": "NAMES",
        "help": "the checks that --opcheck runs, with commas between (default: ALL)",
    },
    "-failures": {
        "default": "",
        "metavar": "PATH",
        "help": "file of known failures (default: opcheck_failures.json beside the"
        " configuration of pytest)",
    },
    "-accept": {
        "action": "store_true",
        "help": "bring the file of known failures up to date",
    },
    "-devices": {
        "default": "",
        "metavar": "KINDS",
        "help": "kinds of array that all_devices gives, with commas between"
        " (default: all that are at hand)",
    },
}
_MARKER = (
    "opcheck(*operators, test_utils=..., rtol=None, atol=None): check every call of"
    " these operators, or of all, that the test makes"
)


class _Marker(pytest.MarkDecorator):
    """The marker with one operator as its argument.

    pytest takes a single callable for the test that is to be marked.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        operator = getattr(sys.modules.get("customop"), "Operator", ())
        if len(args) == 1 and isinstance(args[0], operator):
            return self.with_args(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class Plugin:
    """What stands in every run; the rest is imported when something asks for it."""

    def __init__(self) -> None:
        self._before: object = None

    # After pytest's own, which makes the markers of this run known.
    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Make the marker known, and start what the options ask for."""
        config.addinivalue_line("markers", _MARKER)
        self._before = vars(pytest.mark).pop("opcheck", None)
        marker = pytest.mark.opcheck
        marker.__class__ = _Marker
        vars(pytest.mark)["opcheck"] = marker
        if any(config.getoption(f"opcheck{name}") for name in ("", "_accept")):
            _module().configure(config)

    def pytest_unconfigure(self) -> None:
        """Leave the markers as they were: of a run around this one, or of none."""
        vars(pytest.mark).pop("opcheck", None)
        if self._before is not None:
            vars(pytest.mark)["opcheck"] = self._before

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: Sequence[pytest.Item]
    ) -> None:
        """Start the checks of marked tests, where there are any."""
        if any(item.get_closest_marker("opcheck") for item in items):
            _module().add_marked(config, items)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test once for each kind of array, if it takes `all_devices`."""
        if "all_devices" in metafunc.fixturenames and _is_ours(metafunc):
            rows = _module().kinds_of_array(metafunc.config)
            metafunc.parametrize("all_devices", rows, indirect=True)

    @pytest.fixture
    def all_devices(self, request: pytest.FixtureRequest) -> ArraysOfKind:
        """Each kind of array in turn: `kind`, `asarray(values)`, `to_numpy(x)`."""
        return ArraysOfKind(request.param)


def _is_ours(metafunc: pytest.Metafunc) -> bool:
    """Whether `all_devices` is the fixture from here, and none of the user's."""
    (*_, fixture) = metafunc._arg2fixturedefs["all_devices"]
    return bool(fixture.func.__module__ == __name__)


def _module() -> Any:
    return importlib.import_module("customop.pytest.session")


@dataclass(frozen=True)
class ArraysOfKind:
    """Arrays of one kind, as the fixture `all_devices` gives it.

    Attributes
    ----------
    kind : str
        Such as ``"cpu"`` or ``"cuda"``.
    """

    kind: str

    def asarray(self, values: Any, dtype: Any = None) -> Any:
        """An array of this kind.

        Parameters
        ----------
        values : array, number, or nested sequences of numbers
        dtype : dtype, optional
            That of the values by default.

        Returns
        -------
        array
        """
        return _module().as_kind(values, self.kind, dtype)

    def to_numpy(self, x: Any) -> Any:
        """The NumPy array of an array of any kind.

        Parameters
        ----------
        x : array

        Returns
        -------
        ndarray
        """
        return _module().as_kind(x, "cpu", None)
