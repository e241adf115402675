"""Every sample on arrays of symbolic sizes: fake results, gradients, tangents, batches.

With a symbol for each axis a sample works, perhaps with guards. Where equal lengths share
a name it must need no guard, or be in ``refused_sizes.txt``.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import customop as co
from tests.cases import cases
from tests.conformance import checks, symbolic
from tests.conformance.foreign import SAMPLES, listed, ways_of
from tests.conformance.samples import Sample
from tests.conformance.symbolic import Sized

# Sample -> what is refused: a way, for sizes with names, or `fresh_` and a way; `fixed`
# where the guards fix all sizes, so that there are no others.
REFUSED = dict(listed("sizes"))

# Results whose dtypes or shapes depend on values in a way that fake arrays do not tell.
BY_VALUE = ("eig", "eig-complex", "roots", "roots-complex")


@checks.over(SAMPLES, fifth=4)
def test_sizes_are_those_of_numpy(sample: Sample) -> None:
    """Results have NumPy's sizes at others too; so have gradients, tangents, rows."""
    refused = REFUSED.get(sample.name, ())
    with cases() as case:
        for way, form in itertools.product(ways_of(sample), symbolic.FORMS):
            name, check = _CHECKS[way]
            word = name if form == "named" else f"fresh_{name}"
            with case(word):
                _check(Sized(sample, form), check, is_refused=word in refused)


def _check(sized: Sized, check: Callable[[Sized], None], *, is_refused: bool) -> None:
    """Run a check on a form of symbolic sizes; what is refused must be listed."""
    try:
        check(sized)
    except Exception:
        if is_refused:
            return
        raise
    assert not is_refused, "it is no longer refused: take it off the list"


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


def _check_gradients(sized: Sized) -> None:
    """In reverse mode they have the sizes of inputs, with no more guards."""
    _check_like(*symbolic.gradients(sized))


def _check_tangents(sized: Sized) -> None:
    """In forward mode they have the sizes of the results."""
    _check_like(*symbolic.tangents(sized))


def _check_like(found: Sequence[Any], models: Sequence[Any]) -> None:
    for x, model in zip(found, models, strict=True):
        assert co.sizes.same_shape(x.shape, model.shape)
        assert x.dtype == model.dtype


def _check_rows(sized: Sized) -> None:
    rows = symbolic.rows(sized)
    for batch, one in zip(rows, symbolic.fake_results(sized), strict=True):
        if not isinstance(one, co.FakeArray) or symbolic.has_data_sizes(one):
            continue
        assert str(batch.shape[0]) == "rows"
        assert co.sizes.same_shape(batch.shape[1:], one.shape)


# Way -> its word in the list, and the check.
_CHECKS = {
    "kernel": ("fake", _check_fakes),
    "vjp": ("vjp", _check_gradients),
    "jvp": ("jvp", _check_tangents),
    "vmap": ("vmap", _check_rows),
}


def test_most_samples_keep_names() -> None:
    """Of a hundred samples so many need no guard on sizes with names."""
    kept = [s for s in SAMPLES if "fake" not in REFUSED.get(s.name, ())]
    assert round(100 * len(kept) / len(SAMPLES)) >= 75
