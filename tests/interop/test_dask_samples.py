"""Every sample on dask arrays with the bridge: NumPy's values, and nothing computed early.

All contracts are checked. What cannot be is listed in ``refused_dask_bridge.txt``, with the
reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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


NAME = "dask_bridge"
ROOT = Path(__file__).parents[2]
LIST = ROOT / f"tests/conformance/refused_{NAME}.txt"
GUIDE = ROOT / "examples/guide/larger_than_memory.md"
DASK = Library(NAME, da.Array, _lazy, _computed, _computes_nothing)


# SciPy's functions of numbers take one way: a few of them are enough.
_MANY = re.compile(r"special (?!erf|gammaln|sici|xlogy)")
WITHOUT_MANY = [s for s in SAMPLES if not _MANY.match(s.name)]
VALUES = [s for s in WITHOUT_MANY if not s.diff]
GRADIENTS = [s for s in DIFFERENTIABLE if s in WITHOUT_MANY]


def _of_functions(samples: list[Sample]) -> list[Sample]:
    """The first sample of each function."""
    firsts: dict[str, Sample] = {}
    for sample in samples:
        firsts.setdefault(re.split("[-_ ]", sample.name)[0], sample)
    return list(firsts.values())


@checks.over(VALUES)
def test_operators_give_numpys_values(sample: Sample) -> None:
    """Values of lazy arrays; where there is a derivative the next test has them too."""
    DASK.check("kernel", sample)


@checks.over(GRADIENTS)
def test_gradients_are_lazy(sample: Sample) -> None:
    """Gradients are arrays of dask, with NumPy's values."""
    DASK.check("vjp", sample)


@pytest.mark.exhaustive
@checks.over(_of_functions(GRADIENTS))
def test_tangents_are_lazy(sample: Sample) -> None:
    """So are tangents."""
    DASK.check("jvp", sample)


@pytest.mark.exhaustive
@checks.over(_of_functions([s for s in BATCHED if s in WITHOUT_MANY]))
def test_batches_are_lazy(sample: Sample) -> None:
    """So are the rows of vmap."""
    DASK.check("vmap", sample)


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
