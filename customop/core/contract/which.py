"""Which proof a call needs, and proofs of calls that were drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.config import config
from customop.core.codegen import Drawn
from customop.core.contract.proof import Proof
from customop.core.contract.proven import AfterCall, note_proof
from customop.core.derived.find import find_fake
from customop.core.table import Plans, RuleTable
from customop.errors import (
    CustomOpError,
    warn_caller,
)

__all__ = ["SampledProof", "WarningProof", "proof_of", "with_sampling"]


class SampledProof(Proof):
    """A proof of one of the calls after the first, drawn by chance."""

    __slots__ = ()

    def check(self, out: Any) -> Any:
        """The proven result; an error says that the call was drawn."""
        try:
            return super().check(out)
        except CustomOpError as error:
            raise with_sampling(error) from error.__cause__


class WarningProof(SampledProof):
    """A proof that warns: the kernel gets the same arrays as without a proof."""

    __slots__ = ()

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.values: list[Any] = list(self.args)

    def check(self, out: Any) -> Any:
        """The result as it is, after a warning where it breaks the contract."""
        try:
            return super().check(out)
        except CustomOpError as error:
            warn_caller(str(error))
        return AfterCall(self.op, self.args, copies=False).check(out)


def with_sampling(error: CustomOpError) -> CustomOpError:
    """An error that says that a sampled check has found it."""
    setting = f"config.sample_checks = {config.sample_checks}"
    error.where = (*error.where, f"found by a sampled check: {setting}")
    return error


def proof_of(
    op: RuleTable,
    plans: Plans,
    kernel: Callable[..., Any],
    kind: str,
    args: Sequence[Any],
) -> Proof | AfterCall | None:
    """The proof of a call, or what follows a call that needs none, or None."""
    if kind in op.proven:
        return _after_call(op, kind, args)
    proves: type[Proof] = Proof
    if config.checks != "always" and kind in op.sampled:
        if type(args) is not Drawn and not config.draws():
            return _after_call(op, kind, args)
        proves = SampledProof if config.on_failure == "error" else WarningProof
    elif config.checks == "never":
        note_proof(op, plans, kind, kernel, copies=False)
        return _after_call(op, kind, args)

    def done(copies: bool) -> None:
        note_proof(op, plans, kind, kernel, copies=copies)

    return proves(op, kernel, kind, args, find_fake(op), done)


def _after_call(op: RuleTable, kind: str, args: Sequence[Any]) -> AfterCall | None:
    copies = kind in op.copied
    return AfterCall(op, args, copies=copies) if copies or op.schema.written else None
