"""Names that the package does not have, beside lazy ones that it has."""

from __future__ import annotations

import customop as co
import customop.testing
from customop import assert_close, opcheck, profile
from customop import custom_oop as misspelled

# by mypy: attr-defined
# by pyright: reportAttributeAccessIssue, reportUnknownVariableType
from customop.testing import strategies

right = [assert_close, opcheck, profile, co.gradcheck, co.gradgradcheck, strategies]
wrong = [
    # by pyright: reportUnknownVariableType
    misspelled,
    co.custom_oop,
    # by mypy: attr-defined
    # by pyright: reportAttributeAccessIssue, reportUnknownMemberType
    customop.testing.opchek,
    # by mypy: attr-defined
    # by pyright: reportAttributeAccessIssue, reportUnknownMemberType
]
