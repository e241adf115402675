"""Every sample on arrays of symbolic sizes: fake results, gradients, tangents, batches.

With a symbol for each axis a sample works, perhaps with guards. Where equal lengths share
a name it must need no guard, or be in ``refused_sizes.txt``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.conformance import checks, symbolic
from tests.conformance.foreign import (
    BATCHED,
    DIFFERENTIABLE,
    SAMPLES,
    listed,
)
from tests.conformance.samples import Sample
from tests.conformance.symbolic import Sized

# Sample -> what is refused: a way, for sizes with names, or `fresh_` and a way; `fixed`
# where the guards fix all sizes, so that there are no others.
REFUSED = dict(listed("sizes"))

# Results whose dtypes or shapes depend on values in a way that fake arrays do not tell.
BY_VALUE = ("eig", "eig-complex", "roots", "roots-complex")


def _check(sample: Sample, way: str, check: Callable[[Sized], None]) -> None:
    """Run a check on both forms of symbolic sizes; what is refused must be listed."""
    refused = REFUSED.get(sample.name, ())
    for form in symbolic.FORMS:
        word = way if form == "named" else f"fresh_{way}"
        try:
            check(Sized(sample, form))
        except Exception:
            if word in refused:
                continue
            raise
        assert word not in refused, f"{sample.name} is no longer refused: {word}"


@checks.over(SAMPLES)
def test_fake_results_at_these_and_other_sizes(sample: Sample) -> None:
    """They have the shapes of fake results at the same sizes, and of NumPy's at others."""
    _check(sample, "fake", _check_fakes)


def _check_fakes(sized: Sized) -> None:
    found = symbolic.fake_results(sized)
    if sized.given.name in BY_VALUE:
        return
    hints = symbolic.hints(sized)
    _check_strides(found, symbolic.plain_results(sized), hints)
    symbolic.agree(found, _numbers(sized.given), hints)
    others = [
        values for values in sized.assignments(8) if _agrees(sized, found, values)
    ]
    is_fixed = "fixed" in REFUSED.get(sized.given.name, ())
    free = hints.keys() - sized.context.knowledge.equal.keys()
    assert others or not free or is_fixed, sized.context.guards


def _numbers(sample: Sample) -> list[Any]:
    return checks.leaves(checks.call(sample, *sample.args))


@np.errstate(all="ignore")
def _agrees(sized: Sized, found: Sequence[Any], values: dict[str, int]) -> bool:
    """Raise unless NumPy gives these results at other sizes; False if it refuses them."""
    try:
        with warnings.catch_warnings(action="ignore"):
            expected = _numbers(sized.at(values))
    except (
        ValueError,
        IndexError,
        np.linalg.LinAlgError,
    ):  # of values and of no elements
        return False
    symbolic.agree(found, expected, values)
    return True


def _check_strides(
    found: Sequence[Any], plain: Sequence[Any], hints: dict[str, int]
) -> None:
    for fake, other in zip(found, plain, strict=True):
        is_fake = isinstance(fake, co.FakeArray) and not symbolic.has_data_sizes(fake)
        if not is_fake or 0 in other.shape:
            continue
        long = [i for i, n in enumerate(other.shape) if n > 1]
        strides = symbolic.shape_at([fake.strides[i] for i in long], hints)
        assert strides == tuple(other.strides[i] for i in long)


@checks.over(DIFFERENTIABLE)
@pytest.mark.exhaustive
def test_gradients_have_the_sizes_of_their_inputs(sample: Sample) -> None:
    """In reverse mode, with no more guards than the function needs."""
    _check(sample, "vjp", lambda sized: _check_like(*symbolic.gradients(sized)))


@checks.over(DIFFERENTIABLE)
@pytest.mark.exhaustive
def test_tangents_have_the_sizes_of_the_results(sample: Sample) -> None:
    """In forward mode too."""
    _check(sample, "jvp", lambda sized: _check_like(*symbolic.tangents(sized)))


def _check_like(found: Sequence[Any], models: Sequence[Any]) -> None:
    for x, model in zip(found, models, strict=True):
        assert co.sizes.same_shape(x.shape, model.shape)
        assert x.dtype == model.dtype


@checks.over(BATCHED)
@pytest.mark.exhaustive
def test_batches_of_a_symbolic_number_of_rows(sample: Sample) -> None:
    """Each row has the sizes of the function's result."""
    _check(sample, "vmap", _check_rows)


def _check_rows(sized: Sized) -> None:
    rows = symbolic.rows(sized)
    for batch, one in zip(rows, symbolic.fake_results(sized), strict=True):
        if not isinstance(one, co.FakeArray) or symbolic.has_data_sizes(one):
            continue
        assert str(batch.shape[0]) == "rows"
        assert co.sizes.same_shape(batch.shape[1:], one.shape)


def test_most_samples_keep_names() -> None:
    """Of a hundred samples so many need no guard on sizes with names."""
    kept = [s for s in SAMPLES if "fake" not in REFUSED.get(s.name, ())]
    assert round(100 * len(kept) / len(SAMPLES)) >= 75
