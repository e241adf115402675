"""Hooks and fixtures of all tests."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import re
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest

# Before NumPy is loaded, here and in all processes of the tests. The threads of OpenBLAS
# that wait for work took half of the time of small linear algebra.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import customop as co
from customop.arrays import kinds, numpy_functions
from customop.core import redefine
from tests.browser import chromium, visit
from tests.conformance.checks import forget

__all__ = ["chromium", "visit"]


# ---- settings ----


@pytest.fixture
def unadapted() -> Iterator[None]:
    """Let transforms run functions as they are, which refuse traced values in more places."""
    before, co.config.adapt = co.config.adapt, False
    yield
    co.config.adapt = before


@pytest.fixture
def adapted() -> Iterator[None]:
    """Let transforms run adapted copies of functions of plain code."""
    before, co.config.adapt = co.config.adapt, True
    yield
    co.config.adapt = before


# ---- tiers ----


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules of the exhaustive tier before they are imported.

    They import JAX, whose threads do not like forks, and torch, which takes 2 s.
    """
    if _tier_of(config) != "not exhaustive" or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if _OF_EXHAUSTIVE_TIER.search(text) else None


_OF_EXHAUSTIVE_TIER = re.compile(
    r"^pytestmark = (?:\[\s*)?pytest\.mark\.exhaustive\b", re.MULTILINE
)


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> Any:
    """Leave out what the other tier runs before tests are made of it.

    `-m` deselects tests that are made, and most rows of the tables are exhaustive: each
    test that is made takes 0.2 ms in every worker.
    """
    tier = _tier_of(collector.config)
    if tier is None or not isfunction(obj):
        return None
    marks: list[pytest.Mark] = getattr(obj, "pytestmark", [])
    if any(m.name == "exhaustive" for m in [*collector.iter_markers(), *marks]):
        return [] if tier == "not exhaustive" else None
    tables = [m for m in marks if _has_both_tiers(m)]
    if not tables:
        return [] if tier == "exhaustive" else None
    if tier == "exhaustive" and len(tables) > 1:
        return None  # a row of one table is enough to make a test exhaustive
    kept = [_rows_of(tier, m) if m in tables else m for m in marks]
    obj.pytestmark = kept  # type: ignore[attr-defined]  # pytest's
    is_empty = any(m.name == "parametrize" and m.args[1] == [] for m in kept)
    return [] if is_empty else None


def _tier_of(config: pytest.Config) -> str | None:
    """Return the tier that is asked for; None where a test is, or both tiers are."""
    tier: str = config.getoption("markexpr")
    is_named = any("::" in arg for arg in config.args)
    return tier if tier in ("exhaustive", "not exhaustive") and not is_named else None


def _has_both_tiers(mark: pytest.Mark) -> bool:
    """Return whether a mark is a table of parameters of which some are exhaustive."""
    if mark.name != "parametrize" or not isinstance(mark.args[1], list):
        return False
    ids = mark.kwargs.get("ids")
    return (ids is None or callable(ids)) and any(map(_is_exhaustive, mark.args[1]))


_Row = type(pytest.param())


def _is_exhaustive(row: object) -> bool:
    return isinstance(row, _Row) and any(m.name == "exhaustive" for m in row.marks)


def _rows_of(tier: str, mark: pytest.Mark) -> pytest.Mark:
    """Return a table of parameters with the rows of one tier."""
    names, rows, *more = mark.args
    wanted = [row for row in rows if _is_exhaustive(row) == (tier == "exhaustive")]
    return pytest.mark.parametrize(names, wanted, *more, **mark.kwargs).mark


# ---- order and collection ----


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the promises of README.md first, then groups that share a fixture, then forks.

    Workers take tests from the end of each other's queues, so that a group at the start
    stays in one of them. A fork takes 35 ms for each GB of the process, and what JAX
    compiles makes a worker of the exhaustive tier grow to 4 GB.
    """
    items.sort(
        key=lambda item: (
            item.path.name != "test_tiny.py",
            *_group(item),
            not _forks(item),
        )
    )


def _forks(item: pytest.Item) -> bool:
    """Return whether a test calls `opcheck`, whose children are forks."""
    return item.path.parent.name == "testing" or "opcheck" in item.name


def _group(item: pytest.Item) -> tuple[bool, str]:
    mark = item.get_closest_marker("xdist_group")
    return mark is None, mark.args[0] if mark else ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, bool | None, bool | None]:
    """Keep the garbage collector away from the items.

    It took a fifth of the time to collect them, and 0.5 s in each test that calls it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# ---- fixtures ----


@pytest.fixture(scope="module", autouse=True)
def _garbage_is_of_the_module(request: pytest.FixtureRequest) -> None:
    """Keep what earlier modules left away from the garbage collector.

    A collection took 0.1 s near the end of a run, and a definition under a name that is
    taken asks for one, as tests of lifetimes do.
    """
    name = request.node.nodeid
    _again[:] = [name] if name in _begun else []
    _begun.add(name)
    has_grown = _resident() > _kept[0] + 300e6
    if has_grown and "jax" in sys.modules:
        sys.modules[
            "jax"
        ].clear_caches()  # its programs, which it compiles anew if asked
    gc.collect()
    gc.freeze()
    if has_grown:
        with suppress(AttributeError):  # only glibc gives free memory back
            ctypes.CDLL(None).malloc_trim(0)
        _kept[0] = _resident()


def _resident() -> int:
    """Return the bytes of this process in memory, or 0 where the system does not say.

    A fork copies the tables of all of them: 40 ms for each GB, here and in the child.
    """
    try:
        pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
    except OSError:
        return 0
    return int(pages) * mmap.PAGESIZE


# Bytes in memory when some were last given back.
_kept = [0]
# Modules whose tests have begun in this process.
_begun: set[str] = set()
# The module of this test, if it had begun before others and its garbage is still frozen.
_again: list[str] = []


def _is_held(operators: Mapping[str, Any], qualname: str) -> bool:
    """Return what `redefine.is_held` does; look for garbage that was frozen before, too.

    A worker may come back to a module, whose own operators may be in cycles by then. Few
    definitions there ask for it, and a collection of all takes 2 s for each GB.
    """
    found = _OF_PACKAGE(operators, qualname)
    if found and _again:
        _again.clear()
        gc.unfreeze()
        found = _OF_PACKAGE(operators, qualname)
    return found


_OF_PACKAGE = redefine.is_held
redefine.is_held = _is_held


@pytest.fixture(autouse=True)
def _settings_stay() -> Iterator[None]:
    """Restore the settings that a test changes."""
    before = {name: getattr(co.config, name) for name in _SETTINGS}
    yield
    for name, value in before.items():
        if getattr(co.config, name) != value:
            setattr(co.config, name, value)


_SETTINGS = (
    *("aliasing", "check_nans", "checks", "compile_threads", "on_failure"),
    "sample_checks",
)
# On a busy machine, checks of fast operators must not run out of time.
co.config.opcheck_seconds = 200.0


@pytest.fixture(scope="module")
def always_checked() -> Iterator[None]:
    """Kernels prove their contracts on every call.

    For a module: a change of the settings takes 5 us for each operator of the process.
    """
    before = co.config.checks
    co.config.checks = "always"
    yield
    co.config.checks = before


@pytest.fixture
def nothing_known() -> None:
    """Forget what operators have worked out, as a change of the settings does."""
    forget()


@pytest.fixture
def numpy_functions_stay() -> Iterator[None]:
    """Take back what a test registers for functions of NumPy, for its process."""
    numpy_functions.load_all()  # modules that are imported meanwhile would register once only
    known, alone = dict(numpy_functions.FUNCTIONS), dict(numpy_functions._ALONE)
    yield
    for function, fn in list(numpy_functions.FUNCTIONS.items()):
        if fn is known.get(function):
            continue
        if function in known:
            numpy_functions._publish(function, known[function], alone.get(function))
        elif not fn.__module__.startswith("customop."):
            numpy_functions._publish(function, fn, None)  # forgets what calls came to
            del numpy_functions.FUNCTIONS[function]


@pytest.fixture
def built_in_kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register only the kinds of array of the package, not those of other tests."""
    built_in = (kinds.SCALAR, kinds.CPU, kinds.CUDA, kinds.FAKE_ARRAY, kinds.TRACED)
    classes = {cls: k for cls, k in kinds._by_class.items() if k in built_in}
    monkeypatch.setattr(kinds, "_kinds", {kind.name: kind for kind in built_in})
    monkeypatch.setattr(kinds, "_by_class", classes)
    monkeypatch.setattr(kinds, "_by_path", {"cupy": {"ndarray": kinds.CUDA}})
    kinds.kind_of.clear()
    yield
    kinds.kind_of.clear()


def _kinds_restored() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_kinds", "_by_class", "_by_path"):
            patch.setattr(kinds, name, dict(getattr(kinds, name)))
        kinds.kind_of.clear()
        for bridge in _BRIDGES:  # it registers its kind when it is imported
            sys.modules.pop(bridge, None)
        yield
    for bridge in _BRIDGES:
        sys.modules.pop(bridge, None)
    kinds.kind_of.clear()


_BRIDGES = ("customop.interop.dask",)


@pytest.fixture(scope="module")
def own_kinds() -> Iterator[None]:
    """Forget the kinds of array that a module registers when its tests are done."""
    yield from _kinds_restored()


@pytest.fixture
def own_kinds_here() -> Iterator[None]:
    """Forget the kinds of array that a test registers."""
    yield from _kinds_restored()
