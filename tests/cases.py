"""Many cases in one test: all of them run, and the error names each one that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

Case = Callable[[object], AbstractContextManager[None]]


@contextmanager
def cases() -> Iterator[Case]:
    """Return a function that opens a case; raise at the end what the cases raised.

    A case is a name, or a value that its text names. A test costs a millisecond beside
    what it does, and one that goes to a worker as much again: a case costs neither.
    """
    count, skipped = 0, []
    failed: list[tuple[str, BaseException]] = []

    @contextmanager
    def case(name: object) -> Iterator[None]:
        nonlocal count
        count += 1
        try:
            yield
        except pytest.skip.Exception as reason:
            skipped.append(f"{name}: {reason}")
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # raised below
            error.add_note(f"in the case {name}")
            failed.append((str(name), error))

    yield case
    assert count, "there are no cases"
    if failed:
        names = ", ".join(name for name, _ in failed)
        text = f"{len(failed)} of {count} cases failed: {names}"
        raise BaseExceptionGroup(text, [error for _, error in failed])
    if skipped:
        pytest.skip(
            f"the other {count - len(skipped)} cases passed; " + "; ".join(skipped)
        )


def each(check: Callable[..., None], rows: Iterable[tuple[Any, ...]]) -> None:
    """Run a check on each row of a table, as a case that the row names."""
    with cases() as case:
        for row in rows:
            with case(row):
                check(*row)
