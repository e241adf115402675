"""Read the markers, the options and the kinds of `all_devices`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from customop.arrays.convert import as_kind as as_kind_at_hand
from customop.arrays.convert import devices_at_hand
from customop.arrays.kinds import is_array, known_devices
from customop.core.operator import Operator
from customop.errors import CustomOpError, did_you_mean, quoted
from customop.library.ops import OperatorPacket
from customop.pytest.known_failures import KnownFailures
from customop.testing.close import check_bounds
from customop.testing.opcheck import CHECKS, checks_in, checks_named

__all__ = [
    "Option",
    "Request",
    "as_kind",
    "is_named",
    "kinds_of_array",
    "option_of",
    "request_of",
]

CHECK_NAMES = tuple(check.name for check in CHECKS)


def is_named(qualname: str, pattern: str) -> bool:
    """Whether a pattern matches the name of an operator.

    Parameters
    ----------
    qualname : str
        ``"ns::name"`` or ``"ns::name.overload"``.
    pattern : str
        ``"ns"``, ``"ns::name"`` for all overloads, ``"ns::name.overload"``, any of
        these with ``*`` and ``?``; ``"ALL"`` for all but those of this package.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_named("mylib::f", "mylib"), is_named("mylib::f.out", "mylib::g*")
    (True, False)
    """
    namespace, _, full = qualname.partition("::")
    if pattern == "ALL":
        return namespace not in _BUILT_IN
    wanted, colons, name = pattern.partition("::")
    if not fnmatchcase(namespace, wanted):
        return False
    short = full.partition(".")[0]
    overload = full if "." in full else f"{full}.default"
    return not colons or fnmatchcase(short, name) or fnmatchcase(overload, name)


# The operators of this package have tests of their own.
_BUILT_IN = ("np", "customop")


@dataclass(frozen=True, slots=True)
class Request:
    """The operators to check in a test, and how.

    Attributes
    ----------
    patterns : tuple of str
        Patterns for `is_named`.
    checks : tuple of str
        Names of the checks to run.
    bounds : dict
        `rtol` and `atol`, or empty.
    is_own : bool
        Whether the marker is on the test itself, not on its class or module.
    """

    patterns: tuple[str, ...]
    checks: tuple[str, ...]
    bounds: Mapping[str, float] = field(default_factory=dict)
    is_own: bool = False

    def wants(self, qualname: str) -> bool:
        """Whether an operator is to be checked."""
        return any(is_named(qualname, pattern) for pattern in self.patterns)


@contextmanager
def _usage(where: str) -> Iterator[None]:
    """Show a CustomOpError as an error of usage, without a traceback."""
    try:
        yield
    except CustomOpError as error:
        raise pytest.UsageError(f"{where}: {error}") from None


# ---- markers ----


def request_of(item: pytest.Item) -> Request | None:
    """The request of the closest marker of a test, or None.

    Raises
    ------
    pytest.UsageError
        If the marker has a wrong argument.
    """
    mark = item.get_closest_marker("opcheck")
    if mark is None:
        return None
    unknown = [name for name in mark.kwargs if name not in _SETTINGS]
    if unknown:
        near = did_you_mean(unknown[0], _SETTINGS)
        raise _misused(item, f"has no argument '{unknown[0]}'{near}")
    patterns = tuple(_pattern(item, value) for value in mark.args) or ("ALL",)
    bounds = {name: value for name, value in mark.kwargs.items() if name in _BOUNDS}
    with _usage(f"{item.nodeid}: the marker opcheck"):
        check_bounds("opcheck", bounds.get("rtol"), bounds.get("atol"))
        checks = checks_named(mark.kwargs.get("test_utils", "ALL"))
    names = tuple(check.name for check in checks)
    return Request(patterns, names, bounds, mark in item.own_markers)


_BOUNDS = ("rtol", "atol")
_SETTINGS = ("test_utils", *_BOUNDS)


def _pattern(item: pytest.Item, value: Any) -> str:
    if isinstance(value, Operator):
        return f"{value.namespace}::{value.name}.{value.overload or 'default'}"
    if isinstance(value, OperatorPacket):
        return value.qualname
    if isinstance(value, str):
        return value
    raise _misused(item, f"got {value!r}, which is neither an operator nor a name")


def _misused(item: pytest.Item, reason: str) -> pytest.UsageError:
    return pytest.UsageError(
        f"{item.nodeid}: the marker opcheck {reason}\n"
        '  do: write @pytest.mark.opcheck, or @pytest.mark.opcheck(my_op, "ns::other",'
        ' test_utils="test_schema")'
    )


# ---- options ----


class Option(NamedTuple):
    """The request of the options ``--opcheck...``."""

    config: pytest.Config
    request: Request
    known: KnownFailures

    @property
    def accepts(self) -> bool:
        """Whether to update the file of known failures."""
        return bool(self.config.getoption("opcheck_accept"))


def option_of(config: pytest.Config) -> Option:
    """Read the options.

    Raises
    ------
    pytest.UsageError
        If they do not fit together, or the file of known failures cannot be read.
    """
    patterns = tuple(config.getoption("opcheck") or ())
    if not patterns:
        raise pytest.UsageError(
            "--opcheck-accept is given without --opcheck\n"
            "  do: name the operators too: --opcheck NAMESPACE --opcheck-accept"
        )
    with _usage("--opcheck-checks"):
        checks = checks_in(str(config.getoption("opcheck_checks")))
    request = Request(patterns, tuple(check.name for check in checks))
    with _usage("--opcheck-failures"):
        known = KnownFailures(_path_of(config), CHECK_NAMES)
    return Option(config, request, known)


def _path_of(config: pytest.Config) -> Path:
    given = str(config.getoption("opcheck_failures"))
    if not given:
        beside = config.rootpath if config.inipath is None else config.inipath.parent
        return beside / "opcheck_failures.json"
    path = config.invocation_params.dir / given
    if not path.exists() and not config.getoption("opcheck_accept"):
        raise pytest.UsageError(
            f"--opcheck-failures: there is no file {given}\n"
            "  do: run once with --opcheck-accept, which writes it"
        )
    return path


# ---- arrays of every kind ----


def kinds_of_array(config: pytest.Config) -> list[Any]:
    """Parameters of the fixture `all_devices`.

    Raises
    ------
    pytest.UsageError
        If the option names an unknown kind.
    """
    at_hand = devices_at_hand()
    given = str(config.getoption("opcheck_devices"))
    names = [name.strip() for name in given.split(",")] if given else at_hand
    return [_parameter(kind, at_hand) for kind in dict.fromkeys(names)]


def _parameter(kind: str, at_hand: Sequence[str]) -> Any:
    if kind in at_hand:
        return pytest.param(kind, id=kind)
    known = known_devices()
    if kind not in known:
        raise pytest.UsageError(
            f"--opcheck-devices: there is no kind of array '{kind}'"
            f"{did_you_mean(kind, known)}; known: {quoted(known)}\n"
            f'  do: register_array_type("{kind}", cls, from_numpy=...) in conftest.py'
        )
    reason = f"arrays of the kind '{kind}' cannot be made here"
    return pytest.param(kind, id=kind, marks=pytest.mark.skip(reason=reason))


def as_kind(values: Any, kind: str, dtype: Any) -> Any:
    """Convert an array or nested numbers to an array of a kind."""
    if not is_array(values) or dtype is not None:
        values = np.asarray(values, dtype)
    return as_kind_at_hand(values, kind)
