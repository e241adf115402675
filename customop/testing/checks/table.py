"""The table of checks."""

from __future__ import annotations

from functools import partial
from typing import Final

from customop.core.kinds import AUTOGRAD, JVP
from customop.core.table import RuleTable
from customop.testing.checks import (
    agreement,
    batching,
    behavior,
    capture,
    contract,
    gradients,
    smooth,
    tangents,
    variations,
)
from customop.testing.checks.check import Check

__all__ = ["BY_NAME", "CHECKS"]


def _always(op: RuleTable) -> bool:
    return True


CHECKS: Final = (
    Check(
        "test_schema",
        contract.check_schema,
        over_all=contract.check_views,
        for_all_kinds=True,
        as_given=contract.halves_nothing,
    ),
    Check(
        "test_mutation",
        contract.check_mutation,
        over_all=contract.check_never_written,
        as_given=_always,
    ),
    Check(
        "test_autograd_registration",
        gradients.check_autograd_registration,
        as_given=_always,
        made_up=gradients.check_short_floats,
    ),
    Check(
        "test_faketensor",
        agreement.check_faketensor,
        for_all_kinds=True,
        as_given=_always,
    ),
    Check("test_sizes", agreement.check_sizes),
    Check(
        "test_kernels_agree",
        agreement.check_kernels_agree,
        as_given=_always,
        made_up_values=agreement.special_values,
    ),
    Check("test_vmap", batching.check_vmap, vary=batching.in_lengths),
    Check(
        "test_jvp",
        tangents.check_jvp,
        vary=partial(smooth.at_special_values, JVP),
    ),
    Check(
        "test_gradients",
        gradients.check_gradients,
        vary=partial(smooth.at_special_values, AUTOGRAD),
    ),
    Check("test_aot_dispatch_static", capture.check_static, as_given=_always),
    Check("test_aot_dispatch_dynamic", capture.check_dynamic, as_given=_always),
    Check(
        "test_layouts",
        variations.check_layouts,
        vary=variations.in_layouts,
    ),
    Check(
        "test_dtypes",
        variations.check_dtypes,
        vary=variations.in_dtypes,
    ),
    Check("test_determinism", behavior.check_determinism),
    Check("test_out_variant", contract.check_out_variant, as_given=_always),
    Check("test_pickle", behavior.check_pickle, as_given=_always),
    Check("test_threads", behavior.check_threads),
)

BY_NAME: Final = {check.name: check for check in CHECKS}
