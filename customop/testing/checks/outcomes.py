"""Run checks and find inputs in a forked child or another process, which may crash."""

from __future__ import annotations

import atexit
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, Self

import numpy as np

from customop.arrays.numpy_functions import call_numpy
from customop.core.observe import open_modes
from customop.core.operator import Operator
from customop.core.registry import find_operator
from customop.core.samples import Sample
from customop.errors import ArgumentError, OpCheckError, innermost
from customop.testing.checks import child_reuse
from customop.testing.checks.check_jobs import (
    CALLS,
    PATIENCE,
    Done,
    both,
    checks_of,
    clock,
    crash_fault,
    done_of,
    has_effects,
    left_out,
    names_of,
    received,
    repeat,
    run_checks,
    run_given,
    send_done,
    serve,
    telling,
    values_in,
)
from customop.testing.checks.check_runs import (
    SUCCESS,
    Check,
    at_smallest,
    outcome_of,
    reported,
)
from customop.testing.checks.child_reuse import may_be_kept
from customop.testing.checks.contract_checks import has_other_kinds
from customop.testing.checks.session import Session, note_program
from customop.testing.inputs.input_patterns import base_samples
from customop.testing.processes.child import (
    CAN_FORK,
    Child,
    ChildGoneError,
    Crash,
    Send,
    SpawnedChild,
    Worker,
    is_spawned,
    start_clock,
    travels,
)
from customop.testing.quiet import random_state_kept, watched

# ---- the outcomes of checks; those that make up inputs run in a child ----


def outcomes(session: Session, checks: Sequence[Check]) -> Generator[Done, None, None]:
    """Run checks and yield their outcomes in order.

    Checks that call the operator only with the user's own arrays run in this process.
    The others run in a child at the same time.
    """
    here = _run_here(session, checks)
    parts = [c.rest if c.name in here else c.whole for c in checks]
    others = [part for part in parts if part is not None]
    if CAN_FORK:
        warm_up(others)
    with (_Forked if CAN_FORK else _Spawned)(session, others) as apart:
        with random_state_kept():  # meanwhile the child works
            apart.begin()
            session.plan(c.cost(session.op) for c in checks if c.name in here)
            own = _done_ahead(apart, [c for c in checks if c.name in here])
        is_over = False
        for check, part in zip(checks, parts, strict=True):
            if is_over:
                yield Done(_OVERWRITTEN, 0.0)
                continue
            done = own.pop(check.name, None)
            if done is None and check.name in here:
                with random_state_kept():
                    done = done_of(check, session, apart.at_smallest)
            if part is not None:
                rest = apart.next() or apart.instead(part)
                done = rest if done is None else both(done, rest)
            assert done is not None
            is_over = done.has_overwritten
            yield done


_OVERWRITTEN: Final = (
    "SKIPPED: the kernel wrote outside of its arrays, so that nothing else is certain"
)

# The patience is divided by this for an operator that is known to hang.
SHORTER = 12


def _done_ahead(apart: _Apart, checks: Iterable[Check]) -> dict[str, Done]:
    """Return outcomes by name up to the first fault, without waiting for the child."""
    found: dict[str, Done] = {}
    for check in checks:
        done = found[check.name] = done_of(check, apart.session, apart.at_smallest)
        if not isinstance(done.outcome, str):
            break
    return found


def _run_here(session: Session, checks: Iterable[Check]) -> set[str]:
    """Return the names of the checks that run in this process."""
    # CUDA does not survive a fork, so checks on found inputs run here too.
    is_safe = session.is_given or has_other_kinds(session.op)
    return {c.name for c in checks if is_safe and c.as_given(session.op)}


class _Apart(ABC):
    """Runs checks in a child; after a crash, the rest in a new one.

    What a child finds that has done other work before counts only if it is right. A
    fault is found again by a new child.
    """

    def __init__(self, session: Session, checks: Sequence[Check]) -> None:
        self.session = session
        self.left = list(checks)
        self.patience = PATIENCE
        self.knows_hang = False
        # Why no check can run in a child, or "".
        self.reason = ""
        self.child: Worker | None = None
        self.messages: Iterator[Any] = iter(())
        self.is_new = False
        # Whether the child may serve the next call of opcheck.
        self.may_keep = True

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """Run the operator on the user's samples, and start checks in a child.

        A kernel that crashes on these samples should crash here, where a debugger sees
        it.
        """
        self.patience = PATIENCE + CALLS * run_given(self.session)
        if self.child is None:
            self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        child, self.child = self.child, None
        if child is None:
            return
        is_done = kind is None and not self.left and next(self.messages, None) is None
        if not (is_done and child.is_waiting and self.may_keep and self.keep(child)):
            child.close()

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.close()
        self.child = None

    def next(self) -> Done | None:
        """Return the outcome of the next check, or None if no child can run it."""
        if self.reason or self.child is None:
            return None
        fault: Done | None = None  # smallest input still unknown
        try:
            for is_last, *message in self.messages:
                fault = received(*message)
                is_right = isinstance(fault.outcome, str)
                if is_last and (is_right or self.is_new):
                    self.left.pop(0)
                    self.may_keep &= is_right
                    return fault
            crash = self.child.crash
        except Exception as error:  # noqa: BLE001  # raised again if it is our bug
            crash = self._broken(error) if self.is_new else None
        if not self.is_new:
            self.start()
            return self.next()
        assert crash is not None  # otherwise the child would have sent one more
        self.may_keep = False
        check = self.left.pop(0)
        done = fault or self._crashed(check, crash)
        self.start()
        return done

    def _broken(self, error: Exception) -> Crash:
        """Return the crash for an error of the check itself: memory was overwritten.

        If the exception is raised in a new child too, it is raised here.
        """
        _, crash = self._repeated(self.left[0], error)
        name = type(error).__name__
        return crash or Crash(f"broke the process it ran in ({name}: {error})")

    def _repeated(
        self, check: Check, known: Exception | None = None
    ) -> tuple[Sample | None, Crash | None]:
        """Repeat a check; return its last sample, and its crash if it crashes."""
        try:
            return self.repeat(check)
        except Exception as error:
            if type(error) is type(known) and str(error) == str(known):
                raise
            return None, None

    def _crashed(self, check: Check, crash: Crash) -> Done:
        """Repeat a crashed check to see where it crashes; return its outcome."""
        start = perf_counter()
        if crash.hangs and not self.knows_hang:
            self.knows_hang, self.patience = True, self.patience / SHORTER
        self.reason = self.why_no_child()
        if self.reason:
            return Done(self.reason, perf_counter() - start)
        sample, again = self._repeated(check)
        usual = self.session.samples[0]
        skipped = left_out(self.session.op, again or crash, sample or usual, usual)
        if skipped:
            return Done(skipped, perf_counter() - start, has_crashed=True)
        fault = crash_fault(self.session.op, again or crash, sample or usual, usual)
        if again is None:
            fault.where += (_ONCE,)
        error = reported(check, self.session, sample or usual, fault)
        return Done(error, perf_counter() - start, has_crashed=True)

    # ---- what depends on the way to make a child ----

    @abstractmethod
    def start(self) -> None:
        """Run the remaining checks in a new child."""

    @abstractmethod
    def keep(self, child: Any) -> bool:
        """Keep a child that waits for work; return False if it has to end."""

    @abstractmethod
    def repeat(self, check: Check) -> tuple[Sample | None, Crash | None]:
        """Repeat a check in a new child; return its last sample, and how it crashed."""

    def why_no_child(self) -> str:
        """Return why a crash of a child proves nothing, or ""."""
        return ""

    @abstractmethod
    def instead(self, check: Check) -> Done:
        """Return the outcome of a check that no child can run."""

    @abstractmethod
    def at_smallest(
        self, check: Check, session: Session, sample: Sample, error: Exception
    ) -> OpCheckError:
        """Return the error for a fault found here, on the user's own arguments."""


_ONCE = (
    "it did so once, and not when the check was repeated: the input is only the last"
)


class _Forked(_Apart):
    """Runs checks in a forked child."""

    # What the child has copied, if it may be kept.
    world: child_reuse.World | None = None

    def __enter__(self) -> Self:
        self.may_keep = may_be_kept(self.session)
        if self.left and self.may_keep:
            self._ask_kept()
        return self

    def _ask_kept(self) -> None:
        """Give the checks to the kept child, if it knows the operator."""
        found = child_reuse.taken(self.session.op)
        if found is None:
            return
        child, self.world = found
        try:
            child.ask(serve, self.session, names_of(self.left), 0.0, False)
        except ChildGoneError:
            child.close()
            return
        self.child, self.messages = child, self._served(child)

    def _served(self, child: Child) -> Iterator[Any]:
        """Yield the outcomes that a kept child sends, if it is like this process."""
        messages = child.messages()
        if has_effects(self.session, *next(messages, (None,))):
            yield from messages

    def start(self) -> None:
        """Run the remaining checks in a new child."""
        self.close()
        self.world = None
        if not self.left or self.reason:
            return
        if self.may_keep:
            self.world = child_reuse.World(self.session.op)
        checks = list(self.left)
        child = Child(
            lambda send: run_checks(send, self.session, checks, self.patience),
            self.patience,
            values_in(self.session.samples),
        )
        child.start()
        self.child, self.messages, self.is_new = child, child.messages(), True

    def keep(self, child: Child) -> bool:
        """Keep a child that waits for work; return False if it has to end."""
        return self.world is not None and child_reuse.give_back(child, self.world)

    def repeat(self, check: Check) -> tuple[Sample | None, Crash | None]:
        """Repeat a check in a new child; return its last sample, and how it crashed."""
        return last_before_crash(
            lambda: done_of(check, self.session, reported), self.patience
        )

    def why_no_child(self) -> str:
        """Return why a child proves nothing: the user's own arrays crash it too.

        They do not crash this process. For example, OpenMP threads do not survive a
        fork.
        """
        if not self.session.is_given:
            return ""
        first = self.session.samples[0]
        _, crash = last_before_crash(
            lambda: self.session.call(self.session.values(first)), self.patience
        )
        return "" if crash is None else _NO_CHILD.format(crash.how)

    def instead(self, check: Check) -> Done:
        """Return the outcome of a check that no child can run."""
        return Done(self.reason, 0.0)

    def at_smallest(
        self, check: Check, session: Session, sample: Sample, error: Exception
    ) -> OpCheckError:
        """Let a child find the smallest input for a fault that was found here."""

        def search(send: Send) -> None:
            with watched(clock(PATIENCE)):
                found = at_smallest(check, session, sample, error)
            if found.sample is not sample:
                send_done(send, Done(found, 0.0), is_last=True)

        with Child(search, PATIENCE, values_in([sample])) as child:
            for _, *message in child.messages():
                found = received(*message).outcome
                assert isinstance(found, OpCheckError)
                return found
        # No smaller input shows it, or the search for one crashed.
        return reported(check, session, sample, error)


_NO_CHILD = (
    "SKIPPED: its inputs run in a forked child, where the kernel {} on the given"
    " arguments too: a library in it does not survive a fork"
)


def last_before_crash(
    work: Callable[[], Any], patience: float
) -> tuple[Sample | None, Crash | None]:
    """Repeat work that crashed; return the last sample, and the crash or None."""

    def watch(send: Send) -> None:
        with watched(telling(send, patience)):
            work()

    with Child(watch, patience) as child:
        return child.last(), child.crash


# ---- inputs for an operator, found in a child ----
# The kernel refuses most of the inputs that are tried.


def found_samples(op: Operator[..., Any], check: Check) -> list[Sample]:
    """Find inputs that the kernels of an operator accept, in a child.

    Raises
    ------
    ArgumentError
        If no inputs are found.
    OpCheckError
        If the kernel crashes on a call that is tried. The error names `check`.
    """
    if CAN_FORK:
        found = _sought_by_kept(op) or _sought(op, check)
    else:
        found = _sought_elsewhere(op, check)
    samples, patterns = found
    if patterns:
        op.plans.patterns = patterns[0]
    # If inputs cannot be pickled, search here: a child did the same and did not crash.
    return list(samples[0]) if samples else base_samples(op)


def search(send: Send, op: Operator[..., Any], tells: bool) -> None:
    """Find inputs in a child; send those that can be sent, or each before it is tried."""
    start_clock(PATIENCE)
    note_program()
    with watched(telling(send, PATIENCE) if tells else clock(PATIENCE)):
        samples, patterns = base_samples(op), op.plans.patterns
    for found in () if tells else (samples, patterns):
        send((found,) if travels(found) else ())


def _sought_by_kept(op: Operator[..., Any]) -> list[Any]:
    """Ask the kept child for inputs; return nothing if there is none or it fails."""
    child, world = child_reuse.taken(op) or (None, None)
    if child is None or world is None:
        return []
    found = []
    with suppress(Exception):  # a new child will see it too
        child.ask(search, op, False)
        found = list(child.messages())
    if child_reuse.give_back(child, world):
        return found
    return []


def _sought(op: Operator[..., Any], check: Check) -> list[Any]:
    """Start a new child and ask it for inputs."""
    world = child_reuse.World(op)
    child = Child(lambda send: search(send, op, False), PATIENCE)
    child.start()
    try:
        found = list(child.messages())
    finally:
        is_well = child_reuse.give_back(child, world)
    if not is_well and child.crash is not None:
        last, _ = last_before_crash(lambda: base_samples(op), PATIENCE)
        raise _search_fault(op, check, child.crash, last)
    return found


def _sought_elsewhere(op: Operator[..., Any], check: Check) -> list[Any]:
    """Ask another process for inputs; return no samples if it lacks the operator."""
    if _why_not(op, []):
        return [(), ()]
    child, _ = _child_for(op)
    with child:
        try:
            child.ask(is_same, op, _table_of(op))
            is_there = child.last()
        except Exception:  # noqa: BLE001  # the checks will say why, in the table
            is_there = False
        if not is_there:
            return [(), ()]
        child.ask(search, op, False)
        found = list(child.messages())
    if child.crash is None:
        return found
    with SpawnedChild(with_main=child.with_main, patience=PATIENCE) as again:
        again.ask(search, op, True, at_once=True)
        last = again.last()
    raise _search_fault(op, check, again.crash or child.crash, last)


def _search_fault(
    op: Operator[..., Any], check: Check, crash: Crash, last: Sample | None
) -> OpCheckError:
    """Return the error for a crash during the search for inputs."""
    sample = Sample(()) if last is None else last
    fault = crash_fault(op, crash, sample, None)
    fault.what += ", one of the calls that opcheck tries to find inputs"
    fault.do += f"; or name inputs: @{op.name}.register_sample_inputs"
    return reported(check, Session(op, []), sample, fault)


# ---- compute in this process what every child would compute again ----

_warm: set[str] = set()


def warm_up(checks: Iterable[Check]) -> None:
    """Run checks once on one of our own operators, which is known to be right.

    The checks call NumPy functions, whose operators and rules are compiled on first
    use. That takes 9 ms, and a child would lose the compiled code when it ends. What
    runs here, without a child, are those of the table, whatever has their names.
    """
    cold = checks_of(names_of(c for c in checks if c.name not in _warm))
    if not cold or open_modes:  # open modes would see these calls
        return
    # Compile zeros_like too: gradients that vanish use it, and a product has none.
    call_numpy(np.zeros_like, np.ones(3))
    op = find_operator("np::multiply")
    with random_state_kept():
        for check in cold:
            _warm.add(check.name)
            session = Session(op, [Sample((np.ones(3), np.ones(3)))])
            outcome_of(check, session, reported)


# ---- the other process ----

_waiting: list[SpawnedChild] = []


def _child_for(op: Operator[..., Any]) -> tuple[SpawnedChild, bool]:
    """Return a process for an operator, and whether the process is new."""
    with_main = op.definition.module == "__main__"
    while _waiting:
        child = _waiting.pop()
        if child.with_main == with_main and child.is_waiting:
            return child, False
        child.close()
    return SpawnedChild(with_main=with_main, patience=PATIENCE), True


@atexit.register
def close_waiting() -> None:
    """End the process that waits for more work."""
    while _waiting:
        _waiting.pop().close()


class _Spawned(_Apart):
    """Runs checks in a process that imports the operator, where there is no safe fork.

    If that process cannot have the operator, they run here, and the outcome says so.
    """

    def begin(self) -> None:
        """Run the operator on the user's samples, and start checks in a child."""
        if self.left:
            self.reason = _why_not(self.session.op, self.session.samples)
        super().begin()

    def start(self) -> None:
        """Give the remaining checks to another process, a new one after the first."""
        if self.child is not None or self.is_new:
            self.close()
            close_waiting()
        if not self.left or self.reason:
            return
        child, self.is_new = _child_for(self.session.op)
        try:
            self.reason = self._asked(child)
        except ChildGoneError:
            self.reason = f"ends as it begins: {child.last_words()}"
        except Exception as error:  # noqa: BLE001  # whatever an import raises
            text = str(error).partition("\n")[0]
            self.reason = f"cannot import the operator: {text or type(error).__name__}"
        if self.reason:
            child.close()
        else:
            self.child = child

    def _asked(self, child: SpawnedChild) -> str:
        """Ask the child to run the checks; return why it cannot, or ""."""
        op = self.session.op
        child.ask(is_same, op, _table_of(op))
        is_same_there = child.last()
        if child.crash is not None:
            raise ChildGoneError
        if not is_same_there:
            return "has other rules for it: some are registered as the program runs"
        names = names_of(self.left)
        child.ask(
            *(serve, self.session, names, self.patience, self.is_new), at_once=True
        )
        self.messages = child.messages()
        effects = next(self.messages, None)
        if effects is None or not has_effects(self.session, *effects):
            return "gets other results from it for the given arguments"
        return ""

    def keep(self, child: SpawnedChild) -> bool:
        """Keep a child that waits for work."""
        _waiting.append(child)
        return True

    def repeat(self, check: Check) -> tuple[Sample | None, Crash | None]:
        """Repeat a check in a new child; return its last sample, and how it crashed."""
        close_waiting()
        child, _ = _child_for(self.session.op)
        with child:
            names = names_of([check])
            child.ask(repeat, self.session, names, self.patience, at_once=True)
            return child.last(), child.crash

    def instead(self, check: Check) -> Done:
        """Run a check here, and say why."""
        done = done_of(check, self.session, at_smallest)
        is_fine = done.outcome == SUCCESS and not done.note
        return done._replace(note=_HERE.format(self.reason)) if is_fine else done

    def at_smallest(
        self, check: Check, session: Session, sample: Sample, error: Exception
    ) -> OpCheckError:
        """Return the error for a fault found here; no search where it may crash."""
        return (reported if self.child is not None else at_smallest)(
            check, session, sample, error
        )


_HERE: Final = (
    "in this process, which a crash would end: there is no safe fork here, and a new"
    " process {}"
)


# ---- whether another process can have an operator ----


def _why_not(op: Operator[..., Any], samples: Sequence[Sample]) -> str:
    """Return why a new process cannot run an operator on some samples, or ""."""
    if is_spawned():
        raise ArgumentError(
            "opcheck is called as its main script is imported by a child of it: write"
            " if __name__ == '__main__': before the call",
            do="call opcheck where the script runs, not where it is imported",
        )
    if "<locals>" in getattr(innermost(op.__wrapped__), "__qualname__", ""):
        return "cannot import the operator, which is made inside of a function"
    main: Any = sys.modules["__main__"]
    if op.definition.module == "__main__" and not hasattr(main, "__file__"):
        return "cannot import the operator, which is not written in a file"
    if not travels(samples, by_name=True):
        return "cannot get the arguments, which do not pickle"
    return ""


def _table_of(op: Operator[..., Any]) -> list[str]:
    """Return the schema of an operator, and where its rules are registered."""
    rows = [f"{kind} at {os.path.basename(row.place)}" for kind, row in op.rows.items()]  # noqa: PTH119  # with a line
    return [str(op.schema), *sorted(rows)]


def is_same(send: Send, op: Operator[..., Any], table: list[str]) -> None:
    """Send whether an operator has the same rules here as in the other process."""
    send(_table_of(op) == table)
