"""Calls under proof, calls of proven kernels, and which of the two a call is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.array import dtype_of, strides_of
from customop.arrays.fake import FakeArray, all_known, to_fake, with_numbers
from customop.arrays.kinds import CPU, FAKE, device_of, hosts, is_array
from customop.arrays.nested import abbreviated, flat, map_nested
from customop.config import config
from customop.core.call_arguments import on_one_device
from customop.core.codegen import Drawn, set_fast_kernel
from customop.core.contract import (
    WRITE_ERRORS,
    check_returns,
    check_shapes,
    checksum,
    copied,
    differ_in_order,
    differ_in_strides,
    equal,
    finish_fake,
    has_certain_order,
    is_broadcast,
    memory_groups,
    note_writes,
    readonly,
    share_memory,
    shared_results,
    with_copies,
    written_of,
)
from customop.core.derived_rules import Guess, find_fake
from customop.core.fake_context import FakeCall, runs_fake_kernels
from customop.core.table import Plans, RuleTable, changing, finalized
from customop.errors import (
    ContractError,
    CustomOpError,
    DataDependentError,
    place,
    runs_kernels,
    warn_caller,
)
from customop.schema.schema import Schema
from customop.schema.tags import Tag
from customop.schema.types import Maybe, holds_arrays

# ---- which proof a call needs ----


def proof_of(
    op: RuleTable,
    plans: Plans,
    kernel: Callable[..., Any],
    kind: str,
    args: Sequence[Any],
) -> Proof | AfterCall | None:
    """Return the proof of a call, the steps after a call that needs none, or None."""
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


# ---- calls under proof ----
# Read-only views, checksums, and a comparison with the fake kernel.


class Proof:
    """One call of a kernel under proof.

    The kernel gets read-only views of the arrays that it must not write. Its results
    are compared with the schema, with the memory of the arguments, and with the results
    of the fake kernel.
    """

    __slots__ = (
        "args",
        "before",
        "done",
        "error",
        "fake",
        "kernel",
        "kind",
        "op",
        "sums",
        "values",
        "views",
    )

    def __init__(
        self,
        op: RuleTable,
        kernel: Callable[..., Any],
        kind: str,
        args: Sequence[Any],
        fake: Callable[..., Any] | None,
        done: Callable[[bool], None],
    ) -> None:
        self.op: RuleTable = op
        self.kernel: Callable[..., Any] = kernel
        self.kind: str = kind
        self.args: Sequence[Any] = args
        self.fake: Callable[..., Any] | None = fake
        self.done: Callable[[bool], None] = done
        self.error: Exception | None = None
        self.sums: list[tuple[str, int | None]] = self._checksums()
        self.views: Sequence[Any] = args
        # Copies of what may be written, in case the kernel runs a second time.
        self.before: list[Any] = [map_nested(v, copied) for v in self._written()]
        # A result may be a view of an argument: the caller must be able to write it.
        free = {r.alias.name for r in op.schema.returns if r.alias}
        given = zip(op.schema.parameters, args, strict=True)
        self.values: list[Any] = [
            v
            if p.is_written or (p.alias and p.alias.name in free)
            else map_nested(v, readonly)
            for p, v in given
        ]

    def _checksums(self) -> list[tuple[str, int | None]]:
        """Return checksums of the arrays that must not be written, by parameter.

        Read-only views are not enough: `np.add.at` writes them (NumPy 2.4), and so may
        code in C.
        """
        pairs = zip(self.op.schema.parameters, self.args, strict=True)
        # An array that is passed twice may change if one of its parameters is written.
        written = [v for v in flat(self._written()) if isinstance(v, np.ndarray)]
        given = [
            (p.name, leaf)
            for p, value in pairs
            if not p.is_written
            for leaf in flat(value)
            if isinstance(leaf, np.ndarray)
        ]
        if not written:
            return [(name, checksum(leaf)) for name, leaf in given]
        groups = memory_groups([*(leaf for _, leaf in given), *written])
        near: dict[int, list[Any]] = {}
        for group, value in zip(groups[len(given) :], written, strict=True):
            near.setdefault(group, []).append(value)
        return [
            (name, checksum(leaf))
            for group, (name, leaf) in zip(groups, given, strict=False)
            if not any(share_memory(leaf, v) for v in near.get(group, ()))
        ]

    def _written(self) -> list[Any]:
        """Return the arguments that the schema lets the kernel write."""
        return written_of(self.op.schema, self.args)

    def check_writes(self) -> None:
        """Raise if the kernel wrote what it must not."""
        if self.error is None:
            self._check_unwritten()
        else:
            self._check_copies()

    def _check_unwritten(self) -> None:
        for (name, before), (_, after) in zip(
            self.sums, self._checksums(), strict=True
        ):
            if before != after:
                raise self._undeclared_write(name)

    def _undeclared_write(self, name: str) -> ContractError:
        return self._error(
            f"writes argument '{name}'" if name else "writes an argument",
            f"that mutates_args={self.op.schema.written!r} does not name",
            do=f"name it in mutates_args, or write into {name or 'x'}.copy()",
            parameter=name,
        )

    # ---- running ----

    def run(
        self,
        kernel: Callable[..., Any],
        values: Sequence[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        """Run the kernel, and return its result once it is proven."""
        return self.check(self.attempt(kernel, values, keywords))

    @runs_kernels
    def attempt(
        self,
        kernel: Callable[..., Any],
        values: Sequence[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        """Run the kernel, once more on copies where it refuses read-only arrays.

        Compiled kernels may refuse them though they write none. Whether they do write
        shows on the copies.
        """
        try:
            return kernel(*values, **keywords)
        except Exception as error:
            if not self.retries(error):
                raise
            self._use_copies(error)
        values, keywords = self.op.schema.split(self.args)
        return kernel(*values, **keywords)

    def retries(self, error: BaseException) -> bool:
        """Return whether a kernel runs again, since it failed on read-only arrays."""
        text = str(error).lower()
        if not any(word in text for word in ("read-only", "readonly", "writeable")):
            return False
        pairs = zip(flat(list(self.args)), flat(list(self.values)), strict=True)
        return any(mine is not view for mine, view in pairs)

    def _use_copies(self, error: Exception) -> None:
        self.error = error
        self.views = self.args
        pairs = zip(flat(self._written()), flat(self.before), strict=True)
        for mine, earlier in pairs:
            if isinstance(mine, np.ndarray) and mine.flags.writeable:
                mine[...] = earlier
        named = zip(self.op.schema.parameters, self.args, strict=True)
        self.args = [v if p.is_written else map_nested(v, copied) for p, v in named]

    def _check_copies(self) -> None:
        """Raise if the kernel wrote what it must not."""
        changed = self._changed(self.args)
        if changed or str(self.error) in WRITE_ERRORS:
            name = changed or self._refused()
            raise self._undeclared_write(name) from self.error

    def _refused(self) -> str:
        """Find an argument to which the kernel writes the values that it already has.

        The kernel runs again for each of them, on copies of all others.
        """
        schema = self.op.schema
        unwritten = [p for p in schema.parameters if not p.is_written]
        names = [p.name for p in unwritten if holds_arrays(p.type)]
        for name in names[:-1]:
            given = zip(schema.parameters, self.args, strict=True)
            values = [
                map_nested(v, readonly if p.name == name else copied) for p, v in given
            ]
            positional, keywords = schema.split(values)
            try:
                self.kernel(*positional, **keywords)
            except Exception as error:  # noqa: BLE001  # the kernel has failed before
                if str(error) == str(self.error):
                    return name
        return names[-1] if names else ""

    def _changed(self, copies: Sequence[Any]) -> str:
        for p, mine, theirs in zip(
            self.op.schema.parameters, self.views, copies, strict=True
        ):
            if p.is_written:
                continue
            pairs = zip(flat(mine), flat(theirs), strict=True)
            if not all(equal(a, b) for a, b in pairs):
                return str(p.name)
        return ""

    # ---- results ----

    def check(self, out: Any) -> Any:
        """Check the result, and return it."""
        schema = self.op.schema
        self.check_writes()
        values = check_returns(self.op, self.kernel, out, self.kind)
        if schema.has_shapes:
            check_shapes(self.op, self.kernel, self.kind, self.args, out)
        self.check_identity(values)
        shared = self._shared(schema, values)
        if self.fake is not None:
            self._check_fake(values)
        if schema.written:
            note_writes(written_of(schema, self.views))
        self.done(bool(shared) and config.aliasing == "copy")
        return with_copies(out, shared) if config.aliasing == "copy" else out

    def check_identity(self, values: Sequence[Any]) -> None:
        """Raise unless an operator with Tag.inplace or Tag.out returns what it writes."""
        if Tag.inplace not in self.op.tags and Tag.out not in self.op.tags:
            return
        tag = Tag.inplace if Tag.inplace in self.op.tags else Tag.out
        names = self.op.schema.written
        written = zip(names, self._written(), values, strict=True)
        for i, (name, mine, value) in enumerate(written):
            if value is not mine:
                raise self._error(
                    f"returns output {i} that is not its argument '{name}' itself",
                    f"as {tag} says",
                    do=f"write into {name}, then return {', '.join(names)}",
                    parameter=name,
                )

    def _shared(self, schema: Schema, values: Sequence[Any]) -> list[int]:
        """Return the numbers of results that share memory; raise or warn as `config` says."""
        found = list(shared_results(schema, self.args, values))
        for _, name, other in found:
            error = self._shares(name, other)
            if config.aliasing == "error":
                raise error
            if config.aliasing == "warn":
                warn_caller(str(error))
        return [number for number, _, _ in found]

    def _shares(self, name: str, other: str) -> ContractError:
        return self._error(
            f"returns {name} that shares memory with {other}",
            "which its schema does not say",
            do=self._apart(other),
        )

    def _apart(self, other: str) -> str:
        """Return the advice for a result that shares memory with an argument."""
        for p in self.op.schema.parameters:
            if other == f"argument '{p.name}'" and p.is_written:
                if isinstance(p.type, Maybe):
                    return (
                        f"split it: an operator without '{p.name}' returns a fresh"
                        f" array, one with tags=Tag.out takes *, {p.name}: Array"
                    )
                return f"return None, or say tags=Tag.inplace or tags=Tag.out for '{p.name}'"
        return "return a copy: out.copy()"

    def _check_fake(self, values: Sequence[Any]) -> None:
        """Compare with the fake kernel; withdraw a wrong guess that was never used."""
        guess = self.fake if isinstance(self.fake, Guess) else None
        was_used = guess is not None and guess.has_answered
        try:
            self.compare_fake(values)
        except CustomOpError as error:
            if guess is None or was_used:
                raise
            guess.fault = error.what.partition(": ")[2]
        if guess is not None:
            guess.has_answered = was_used

    def compare_fake(self, values: Sequence[Any]) -> None:
        """Raise unless results have the shapes, dtypes and layout of the fake kernel."""
        assert self.fake is not None
        if any(map(_is_open, flat(list(self.args)))):
            return
        fakes: Sequence[Any] = [map_nested(v, to_fake) for v in self.args]
        if hosts:
            fakes = on_one_device(fakes)
        sizes: list[Any] = []  # of this call alone
        try:
            announced = FakeCall(self.op, fakes, sizes).run(self.fake)
        except DataDependentError:
            return
        except CustomOpError:
            raise
        except Exception as error:
            raise self._error(
                f"succeeds where the fake kernel raises {type(error).__name__}: {error}",
                f"fake kernel at {place(self.fake)}",
                do="make the fake kernel accept what the kernel accepts",
            ) from error
        expected = check_returns(self.op, self.fake, announced, FAKE)
        if sizes:
            expected = self._with_numbers(values, expected, sizes[0])
        exact = Tag.needs_exact_strides in self.op.tags
        ordered = exact or not (
            isinstance(self.fake, Guess)
            or Tag.flexible_layout in self.op.tags
            or not has_certain_order(flat(list(self.args)))
        )
        for i, (real, fake) in enumerate(zip(values, expected, strict=True)):
            reals, fakes = flat(real), flat(fake)
            if list(map(is_array, reals)) != list(map(is_array, fakes)):
                raise self._error(
                    f"returns {_outline(reals)} as output {i}, its fake kernel"
                    f" {_outline(fakes)}",
                    f"fake kernel at {place(self.fake)}",
                    do="return as many arrays, and None in the same places",
                )
            for r, f in zip(reals, fakes, strict=True):
                self._compare(i, r, f, ordered)

    def _with_numbers(
        self, values: Sequence[Any], expected: Sequence[Any], context: Any
    ) -> list[Any]:
        """Replace numbers in fake results by the real ones, where these are dynamic sizes."""
        numbered: list[Any]
        numbered, fault = with_numbers(flat(list(values)), list(expected), context)
        if fault:
            raise self._error(
                f"returns {fault}",
                f"fake kernel at {place(self.fake) if self.fake else ''}",
                do="give new_dynamic_size(min=..., max=...) the bounds that results have",
            )
        return numbered

    def _compare(self, index: int, real: Any, fake: Any, ordered: bool) -> None:
        if not is_array(real) or not is_array(fake) or not all_known(real):
            return
        is_scalar = isinstance(real, np.generic)  # it has the machine's byte order
        dtype = fake.dtype.newbyteorder("=") if is_scalar else fake.dtype
        announced = (tuple(fake.shape), dtype, device_of(fake))
        seen = (tuple(real.shape), dtype_of(real), device_of(real))
        exact = Tag.needs_exact_strides in self.op.tags
        # Some libraries have no strides, and copy where NumPy returns a view.
        has_strides = hasattr(real, "strides") and (exact or not is_broadcast(fake))
        differ = differ_in_strides if exact else differ_in_order
        if announced == seen and not (ordered and has_strides and differ(real, fake)):
            return
        names = ("shape", "dtype", "device")
        wrong = [n for n, a, b in zip(names, announced, seen, strict=True) if a != b]
        layout = "strides" if exact else "order of axes in memory"
        what = " and ".join(wrong) or layout
        raise self._error(
            f"returns {abbreviated(real)} with strides {strides_of(real)} on"
            f" {device_of(real)} as output {index}, its fake kernel"
            f" {abbreviated(fake)} with strides {strides_of(fake)} on {device_of(fake)}",
            f"they differ in {what}; fake kernel at"
            f" {place(self.fake) if self.fake else ''}",
            do="return fake_like(x, shape=..., dtype=...) with what the kernel returns"
            if wrong
            else 'let the kernel return np.asarray(out, order="C"), or the fake kernel the'
            " order that the kernel has: FakeArray(shape, dtype, strides)",
        )

    def _error(
        self, what: str, *where: str, do: str, parameter: str = ""
    ) -> ContractError:
        return ContractError(
            f"{self.op.qualname}: the '{self.kind}' kernel {what}",
            *where,
            self.op.schema.show(self.op.qualname, parameter),
            f"kernel at {place(self.kernel)}",
            do=do,
            op=self.op.qualname,
            parameter=parameter or None,
            kind=self.kind,
        )


def _is_open(value: Any) -> bool:
    """Return whether an array has an axis of unknown length: nan, as in dask."""
    return is_array(value) and any(type(n) is float for n in value.shape)


def _outline(values: Sequence[Any]) -> str:
    return f"[{', '.join('array' if is_array(v) else repr(v) for v in values)}]"


# ---- calls of kernels that have proven their contracts, and of fake kernels ----


class _Unproven:
    """A call of a kernel that cannot fail because of a proof."""

    __slots__ = ()

    def retries(self, error: BaseException) -> bool:
        """Return False: the kernel never runs again."""
        return False


class AfterCall(_Unproven):
    """What follows a call of a kernel that has proven its contract.

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
        """Note what the kernel wrote, and return its result."""
        schema = self.op.schema
        if schema.written:
            note_writes(written_of(schema, self.values))
        if not self.copies:
            return out
        values = list(out) if schema.is_tuple else [out]
        found = shared_results(schema, self.values, values)
        return with_copies(out, [number for number, _, _ in found])


class FakeProof(_Unproven):
    """A call of a fake kernel; all arrays in its result become fake."""

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
        """None, since the sizes are those of the arguments."""
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
    with finalized, changing:
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


# ---- proofs of calls that were drawn at random ----


class SampledProof(Proof):
    """A proof of one of the calls after the first, drawn by chance."""

    __slots__ = ()

    def check(self, out: Any) -> Any:
        """Check the result and return it; an error says that the call was drawn by chance."""
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
        """Return the result unchanged; warn if it does not keep the contract."""
        try:
            return super().check(out)
        except CustomOpError as error:
            warn_caller(str(error))
        return AfterCall(self.op, self.args, copies=False).check(out)


def with_sampling(error: CustomOpError) -> CustomOpError:
    """Add to an error that a sampled check found it."""
    setting = f"config.sample_checks = {config.sample_checks}"
    error.where = (*error.where, f"found by a sampled check: {setting}")
    return error
