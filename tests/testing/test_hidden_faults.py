"""opcheck finds faults that short arrays do not show, and passes their twins."""

from __future__ import annotations

import pytest

from customop.testing import opcheck

from .hidden import (
    COMPILER,
    HIDDEN,
    Hidden,
    calls,
    idioms,
    lengths,
    memory,
    precision,
    values,
)

# The rows that importing these modules has entered.
MODULES = (calls, idioms, lengths, memory, precision, values)

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler"),
]

each = pytest.mark.parametrize("row", HIDDEN, ids=lambda row: row.build.__name__)


@each
def test_fault_is_found(row: Hidden) -> None:
    """Some check finds the fault; a miss has a reason, and is still missed."""
    found = opcheck(row.build(True), raise_exception=False)
    assert bool(found.failed) == (not row.reason), found


@each
def test_twin_passes(row: Hidden) -> None:
    """An operator without the fault passes every check."""
    found = opcheck(row.build(False), raise_exception=False)
    assert found.failed == [], "\n".join(str(found[name]) for name in found.failed)


def test_table_is_long() -> None:
    """There are as many faults as the project promises."""
    assert len(HIDDEN) >= 60
