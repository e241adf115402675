"""opcheck finds planted faults without being given inputs, and passes their twins."""

from __future__ import annotations

import re

import pytest

import customop as co
from customop.testing import opcheck
from tests.tiers import fifth_of

from .planted import (
    MISSES,
    ROWS,
    Miss,
    Row,
    agreement,
    batching,
    behavior,
    contract,
    derivatives,
    dtypes,
    effects,
    formulas,
    kernels,
    programs,
    values,
)

# The rows that importing these modules has entered.
PLANTED = (
    *(agreement, batching, behavior, contract),
    *(derivatives, dtypes, effects, formulas),
    *(kernels, programs, values),
)
NAMES = [row.build.__name__ for row in ROWS]
MISSED = [row.build.__name__ for row in MISSES]


@pytest.fixture
def toy(built_in_kinds: None) -> None:
    """Register the kind of array `toy`."""
    toys = agreement.Toy
    co.register_array_type("toy", toys, from_numpy=toys, to_numpy=lambda x: x.values)


each = pytest.mark.parametrize("row", fifth_of(ROWS, lambda row: row.build.__name__))


@pytest.mark.usefixtures("toy")
@each
def test_fault_is_found(row: Row) -> None:
    """The check for it finds a planted fault, and says what it is."""
    found = opcheck(row.build(True), raise_exception=False)
    assert set(row.says) <= set(found.failed), found
    for check, says in row.says.items():
        seen = found[check].what.partition(f": {check}: ")[2]  # type: ignore[union-attr]
        assert not says or re.sub(r"planted::([a-z]+)\d+", r"planted::\1", seen) == says


@pytest.mark.usefixtures("toy")
@pytest.mark.exhaustive
@each
def test_twin_passes(row: Row) -> None:
    """An operator without the fault passes every check."""
    found = opcheck(row.build(False), raise_exception=False)
    assert found.failed == [], "\n".join(str(found[name]) for name in found.failed)


@pytest.mark.parametrize("row", MISSES, ids=MISSED)
def test_known_miss(row: Miss) -> None:
    """A known miss is still missed: where it is found, it belongs to the others."""
    found = opcheck(row.build(True), raise_exception=False)
    assert found.failed == [], f"found by now: {found}"
    assert opcheck(row.build(False), raise_exception=False).failed == []


def test_table_is_long() -> None:
    """There are as many faults as the project promises."""
    assert len(ROWS) >= 150
    assert len({*NAMES, *MISSED}) == len(NAMES) + len(MISSED)
