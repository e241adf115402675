"""Graphs of rows, batched: as NumPy row by row, or an error that says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from tests.conformance import checks
from tests.conformance.samples import Sample

BATCHED = [s for s in checks.all_samples() if s.vmap and checks.array_positions(s)]


def run(sample: Sample, mode: Any) -> None:
    """Compare the vmap of a graph of one row with NumPy's results."""
    batched = checks.array_positions(sample)
    args, dims = checks.batched_args(sample, batched, 3, 0)
    rows = [checks.row_of(args, dims, i) for i in range(3)]
    expected = [checks.leaves(checks.call(sample, *row)) for row in rows]
    graph: Any = co.make_fx(lambda *a: checks.call(sample, *a), mode)(*rows[0])
    found = checks.leaves(co.vmap(graph, in_dims=dims)(*args))
    for i, column in enumerate(zip(*expected, strict=True)):
        want = np.stack([np.asarray(x) for x in column])
        assert np.asarray(found[i]).dtype == want.dtype
        np.testing.assert_allclose(found[i], want, rtol=1e-12, atol=1e-12)


@checks.over(BATCHED[::97])
def test_a_batch_of_a_graph(sample: Sample) -> None:
    """A graph that was captured from one row runs on a batch."""
    run(sample, "fake")


@pytest.mark.exhaustive
@checks.over(BATCHED[5::13])
def test_more_batches_of_graphs(sample: Sample) -> None:
    """More samples, with symbolic sizes."""
    # NumPy's inverse of an empty array of integers has their dtype, of others floats.
    run(sample, "fake" if sample.name == "pinv-empty-integers" else "symbolic")


X = np.array([0.3, 1.2, -0.7])
ROWS = np.stack([X, -2 * X, X + 1])
SIZED = {
    "nonzero": lambda x: np.sum(x[x > 0] ** 2),
    "unique": lambda x: np.sum(np.unique(np.floor(x))),
    "repeated_places": lambda x: np.sum(np.repeat(x, (x > 0).astype(int))),
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_sizes_that_differ_between_rows(name: str, mode: Any) -> None:
    """The error names the node and the line; `map` is a way out that the error names."""
    fn = SIZED[name]
    graph = co.make_fx(fn, mode)(X)
    with pytest.raises(co.DataDependentError) as caught:
        co.vmap(graph)(ROWS)
    [note] = caught.value.__notes__
    assert note.startswith(f"in the node '{name}', traced at {__file__}:")
    assert str(caught.value).endswith("or map(f, rows), which runs f once for each row")
    symbolic = co.make_fx(fn, "symbolic")(X)
    found = co.map(symbolic, ROWS)
    np.testing.assert_allclose(found, [fn(row) for row in ROWS])
    captured = co.make_fx(lambda rows: co.map(symbolic, rows), "symbolic")(ROWS)
    np.testing.assert_allclose(captured(-ROWS), [fn(row) for row in -ROWS])
