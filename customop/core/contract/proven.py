"""Calls of kernels that have proven their contracts, and of fake kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import (
    CPU,
    FAKE,
)
from customop.config import config
from customop.core.changes import changing
from customop.core.codegen import set_fast_kernel
from customop.core.contract.memory import (
    note_writes,
    shared_results,
    with_copies,
    written_of,
)
from customop.core.contract.results import check_shapes, finish_fake
from customop.core.derived.find import Guess
from customop.core.fake_context import runs_fake_kernels
from customop.core.table import Plans, RuleTable
from customop.errors import (
    runs_kernels,
)

__all__ = ["AfterCall", "FakeProof", "note_proof"]


class _Unproven:
    """A call of a kernel that cannot fail because of a proof."""

    __slots__ = ()

    def retries(self, error: BaseException) -> bool:
        """The kernel never runs again."""
        return False


class AfterCall(_Unproven):
    """The steps after a call of a kernel that has proven its contract.

    It notes what the operator has written. Where the kernel returned shared memory
    and `config.aliasing` is ``"copy"``, it copies such results.
    """

    __slots__ = ("copies", "op", "values")

    def __init__(self, op: RuleTable, values: Sequence[Any], *, copies: bool) -> None:
        self.op: RuleTable = op
        self.values: Sequence[Any] = values
        self.copies: bool = copies

    @runs_kernels
    def run(
        self,
        kernel: Callable[..., Any],
        values: Sequence[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        """Run the kernel, and do what follows."""
        return self.check(kernel(*values, **keywords))

    def check(self, out: Any) -> Any:
        """The result, after its writes were noted."""
        schema = self.op.schema
        if schema.written:
            note_writes(written_of(schema, self.values))
        if not self.copies:
            return out
        values = list(out) if schema.is_tuple else [out]
        found = shared_results(schema, self.values, values)
        return with_copies(out, [number for number, _, _ in found])


class FakeProof(_Unproven):
    """A call of a fake kernel, whose result becomes fake at any depth."""

    __slots__ = ("kernel", "op", "plans", "values")

    def __init__(
        self,
        op: RuleTable,
        plans: Plans,
        kernel: Callable[..., Any],
        values: Sequence[Any],
    ) -> None:
        self.op: RuleTable = op
        self.plans: Plans = plans
        self.kernel: Callable[..., Any] = kernel
        self.values: Sequence[Any] = values

    @property
    def sizes(self) -> list[Any] | None:
        """None: the sizes are those of the arguments."""
        return None

    @runs_kernels
    @runs_fake_kernels
    def run(
        self,
        kernel: Callable[..., Any],
        values: Sequence[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        """Run the kernel, and return its result with fake arrays."""
        op = self.op
        found = kernel(*values, **keywords)
        if type(found) is not FakeArray or not op.schema.single_return:
            found = finish_fake(op, self.kernel, found)
        if op.schema.has_shapes and not isinstance(self.kernel, Guess):
            is_proven = FAKE in op.proven and config.checks != "always"
            if not is_proven and config.checks != "never":
                check_shapes(op, self.kernel, FAKE, self.values, found)
                note_proof(op, self.plans, FAKE, self.kernel, copies=False)
        return found


def note_proof(
    op: RuleTable, plans: Plans, kind: str, kernel: Callable[..., Any], *, copies: bool
) -> None:
    """Note that a kernel has proven its contract, unless the table has changed since."""
    with changing:
        if op.plans is not plans:
            return
        # A drawn call may find shared memory that other calls do not show.
        copies = copies or (kind in op.sampled and kind in op.copied)
        op.copied = op.copied | {kind} if copies else op.copied - {kind}
        if config.checks == "always":
            return
        if config.sample_checks:
            op.sampled |= {kind}
        else:
            op.proven |= {kind}
        if kind == CPU.name:
            op.redraw()
            set_fast_kernel(op, None if copies else kernel)
