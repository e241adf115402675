"""Packages that add kinds of array and operators when a program first needs them.

A package names its modules under the entry points ``customop.kinds`` and
``customop.operators``. They are read when an unknown array, kind, namespace or operator
is met, never at import: reading those of all installed packages takes 15 ms.
"""

from __future__ import annotations

from _thread import RLock, get_ident  # `threading` takes 0.5 ms more to import
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from customop.errors import warn_caller
from customop.forks import free_after_fork
from customop.later import later

metadata: ModuleType = later(import_module, "importlib.metadata")

KINDS, OPERATORS = GROUPS = ("customop.kinds", "customop.operators")
_GIVES = {KINDS: "kind of array", OPERATORS: "operator of the namespace"}


# Held while plug-ins register; one may need another.
_registering: AbstractContextManager[bool] = free_after_fork(RLock())


class InstalledPlugin:
    """One entry point of a package.

    Attributes
    ----------
    group, name, value : str
        The entry point: name of a kind or namespace, and ``"module"`` or
        ``"module:function"``.
    package, version : str
        The package that has it.
    error : str or None
        Why it could not be loaded; empty if it was loaded, None before that.
    """

    __slots__ = (
        "_busy",
        "_lock",
        "entry",
        "error",
        "group",
        "name",
        "package",
        "value",
        "version",
    )

    def __init__(self, entry: Any) -> None:
        self.entry: Any = entry
        self.group: str = entry.group
        self.name: str = entry.name
        self.value: str = entry.value
        self.package: str = entry.dist.name
        self.version: str = entry.dist.version
        self.error: str | None = None
        self._busy: set[int] = set()

    def __str__(self) -> str:
        return f"plug-in '{self.name}' of {self.package} {self.version} ({self.value})"

    def load(self, gives: Callable[[str], bool]) -> None:
        """Import the module and call the function, once; warn if that raises.

        A thread that is loading it already returns at once: the plug-in uses its own
        name. Other threads wait until it is complete.
        """
        thread = get_ident()
        if self.error is not None or thread in self._busy:
            return
        self._busy.add(thread)
        try:
            problem = self._run(gives)
        finally:
            self._busy.discard(thread)
        if problem:
            warn_caller(f"{self} {problem}")

    def _run(self, gives: Callable[[str], bool]) -> str:
        """Load it; return what to warn of, if this is the thread that has to."""
        try:
            # Outside of the lock: imports have locks of their own, and a module that
            # another thread imports may need this plug-in.
            register = self.entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # code of others
            return self._fail(error)
        with _registering:
            if self.error is not None:
                return ""
            try:
                if callable(register):
                    register()
            except (Exception, SystemExit) as error:  # noqa: BLE001  # code of others
                return self._fail(error)
            self.error = ""
            if gives(self.name):
                return ""
            self.error = f"registered no {_GIVES[self.group]} '{self.name}'"
            return self.error

    def _fail(self, error: BaseException) -> str:
        with _registering:
            is_first = self.error is None
            self.error = f"{type(error).__name__}: {error}"
        advice = "fix or uninstall it; 'customop list --plugins' shows all"
        return f"cannot be loaded: {self.error}\n  do: {advice}" if is_first else ""


_scanning: AbstractContextManager[bool] = free_after_fork(RLock())


def plugins_of(group: str) -> dict[str, list[InstalledPlugin]]:
    """Return the plug-ins of a group by name; nothing is imported.

    Several packages may have one name: the first one, by the name of the package, is
    loaded.
    """
    with _scanning:
        return _scan()[group]


@cache
def _scan() -> dict[str, dict[str, list[InstalledPlugin]]]:
    plugins: dict[str, dict[str, list[InstalledPlugin]]] = {
        group: {} for group in GROUPS
    }
    for group, named in plugins.items():
        entries = metadata.entry_points(group=group)
        for entry in sorted(entries, key=lambda e: (e.name, e.dist.name, e.value)):
            named.setdefault(entry.name, []).append(InstalledPlugin(entry))
    return plugins


# Groups and names of which two packages have been warned of.
_warned: set[tuple[str, str]] = set()


def load(group: str, name: str, gives: Callable[[str], bool]) -> bool:
    """Load the plug-in of a name if there is one; warn if there are several.

    Parameters
    ----------
    group : str
        `KINDS` or `OPERATORS`.
    name : str
    gives : callable
        Whether something is registered under a name now.

    Returns
    -------
    bool
        Whether something is registered under `name`.
    """
    plugins = () if name.startswith("__") else plugins_of(group).get(name, ())
    if plugins:
        _warn_of_several(plugins)
        plugins[0].load(gives)
    return gives(name)


def _warn_of_several(plugins: Sequence[InstalledPlugin]) -> None:
    first, *others = plugins
    if others and (first.group, first.name) not in _warned:
        _warned.add((first.group, first.name))
        listed = ", ".join(f"{p.package} {p.version} ({p.value})" for p in others)
        warn_caller(
            f"{first} is used; others have the same name and are not: {listed}\n"
            "  do: uninstall all but one of them"
        )
