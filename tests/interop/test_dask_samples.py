"""Every sample on dask arrays with the bridge: NumPy's values, and nothing computed early.

All contracts are checked. What cannot be is listed in ``refused_dask_bridge.txt``, with the
reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import checks
from tests.conformance.foreign import (
    BATCHED,
    DIFFERENTIABLE,
    SAMPLES,
    Library,
    listed,
)
from tests.conformance.samples import Sample

da = pytest.importorskip("dask.array", reason="dask is not installed")
dask = pytest.importorskip("dask", reason="dask is not installed")

pytestmark = [
    pytest.mark.usefixtures("dask_kind"),
    pytest.mark.filterwarnings("ignore::dask.array.PerformanceWarning"),
    # dask casts its examples of complex chunks, which have no elements.
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning"),
]


def _refuse(*args: Any, **keywords: Any) -> Any:
    raise AssertionError("a graph ran while another was built")


@contextmanager
def _computes_nothing(sample: Sample) -> Iterator[None]:
    with dask.config.set(scheduler=_refuse):
        yield


def _lazy(value: Any) -> Any:
    """An array in two chunks along each axis."""
    chunks = tuple([max(1, (n + 1) // 2) for n in value.shape])
    return da.from_array(value, chunks=chunks)


def _computed(x: Any) -> Any:
    return x.compute(scheduler="sync")


def _all_computed(values: Sequence[Any]) -> Sequence[Any]:
    """Compute all in one run: each takes 5 ms, whatever it computes."""
    found: Sequence[Any] = dask.compute(*values, scheduler="sync")
    return found


NAME = "dask_bridge"
ROOT = Path(__file__).parents[2]
LIST = ROOT / f"tests/conformance/refused_{NAME}.txt"
GUIDE = ROOT / "examples/guide/larger_than_memory.md"
DASK = Library(NAME, da.Array, _lazy, _computed, _computes_nothing, _all_computed)


# SciPy's functions of numbers take one way: a few of them are enough.
_MANY = re.compile(r"special (?!erf|gammaln|sici|xlogy)")
CHOSEN = [s for s in SAMPLES if not _MANY.match(s.name)]


def _firsts(samples: list[Sample]) -> set[str]:
    """Return the names of those that are the first of their function."""
    pairs = zip(samples, checks.first_of_functions(samples), strict=True)
    return {sample.name for sample, is_first in pairs if is_first}


TANGENTS = _firsts([s for s in CHOSEN if s.diff])
BATCHES = _firsts([s for s in CHOSEN if s.vmap])


@checks.over(CHOSEN, fifth=2)
def test_values_are_those_of_numpy_arrays(sample: Sample) -> None:
    """A sample is lazy, and so are its gradients, which come with the values.

    One sample of each function gets tangents and rows of vmap too.
    """
    ways = ["vjp" if sample.diff else "kernel"]
    ways += ["jvp"] * (sample.name in TANGENTS) + ["vmap"] * (sample.name in BATCHES)
    DASK.check(sample, ways)


@pytest.mark.exhaustive
def test_the_guide_has_the_table() -> None:
    """Its tables are those of the list of what is refused."""
    pytest.importorskip("scipy", reason="samples of SciPy's functions count, too")
    refused = listed(NAME)
    pools = {"kernel": SAMPLES, "vjp": DIFFERENTIABLE, "jvp": DIFFERENTIABLE}
    names = ("the value", "the gradient", "the tangent", "the rows of `vmap`")
    rows = []
    for name, way in zip(names, ("kernel", "vjp", "jvp", "vmap"), strict=True):
        count = len(pools.get(way, BATCHED))
        failing = sum(way in ways for _, ways in refused)
        rows.append(f"| {name} | {100 * (1 - failing / count):.1f} |")
    text = LIST.read_text(encoding="utf-8")
    for group in text.split("\n# ")[1:]:
        reason, *lines = group.splitlines()
        rows.append(f"| {len(lines)} | {reason} |")
    page = GUIDE.read_text(encoding="utf-8")
    assert [row for row in rows if row not in page] == []
