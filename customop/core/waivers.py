"""Waivers: checks of opcheck that an operator fails on purpose, each with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from customop.core.table import RuleTable
from customop.errors import ArgumentError, RegistrationError, did_you_mean, quoted

__all__ = ["CHECK_NAMES", "with_waiver"]

# The checks of `customop.testing.opcheck`, in their order. They are here so that a name
# is checked where it is waived, without an import of what checks it.
CHECK_NAMES: Final = (
    "test_schema",
    "test_mutation",
    "test_autograd_registration",
    "test_faketensor",
    "test_sizes",
    "test_kernels_agree",
    "test_vmap",
    "test_jvp",
    "test_gradients",
    "test_aot_dispatch_static",
    "test_aot_dispatch_dynamic",
    "test_layouts",
    "test_dtypes",
    "test_determinism",
    "test_out_variant",
    "test_pickle",
    "test_threads",
)


def with_waiver(
    op: RuleTable, check: str, reason: str, *, override: bool
) -> Mapping[str, str]:
    """The waivers of an operator and another one, after a look at its arguments.

    Raises
    ------
    ArgumentError
        If there is no such check, or `reason` is not a text with something in it.
    RegistrationError
        If the check is waived already.
    """
    if check not in CHECK_NAMES:
        raise op.error(
            ArgumentError,
            f"there is no check {check!r} to waive"
            f"{did_you_mean(str(check), CHECK_NAMES)}",
            f"known: {quoted(CHECK_NAMES)}",
            do=f'{op.name}.waive("test_gradients", reason="...")',
        )
    if not isinstance(reason, str) or not reason.strip():
        raise op.error(
            ArgumentError,
            f"the waiver of {check} has reason={reason!r}",
            do=f"say why it is meant to fail: {op.name}.waive({check!r},"
            ' reason="a straight-through estimator")',
        )
    if check in op.waivers and not override:
        raise op.error(
            RegistrationError,
            f"{check} is waived already: {op.waivers[check]!r}",
            do="remove one of the waivers, or pass override=True",
        )
    return {**op.waivers, check: " ".join(reason.split())}
