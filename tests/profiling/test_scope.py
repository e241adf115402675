"""A profile sees threads and tasks as its options say, and nests with others."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import customop as co
from tests.profiling._profiled import (
    CLOCK,
    GRAD,
    KERNEL,
    X,
    composed,
    counts,
    define,
    loss,
    row_of,
    square,
)


def run_in_thread(fn: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(fn).result()


@pytest.mark.parametrize(("threads", "expected"), [(False, {}), (True, {KERNEL: 1})])
def test_other_threads(threads: bool, expected: Any) -> None:
    """Other threads are seen only with `threads`."""
    with co.profile(threads=threads) as p:
        run_in_thread(lambda: square(X))
    assert counts(p) == expected


def test_the_profile_of_another_thread() -> None:
    """A profile opened in another thread does not see this one."""
    with ThreadPoolExecutor(1) as pool:
        p = co.profile()
        pool.submit(p.__enter__).result()
        square(X)
        pool.submit(square, X).result()
        pool.submit(p.__exit__, None, None, None).result()
    assert counts(p) == {KERNEL: 1}


def test_threads_count_apart_and_sum_up() -> None:
    """Eight threads at once lose no call, and each has its own nesting."""

    def work(_: int) -> None:
        for _ in range(50):
            composed(X)

    with co.profile(threads=True) as p, ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert counts(p) == {("composed", "composite body"): 400, KERNEL: 800}


def test_tasks_that_are_started_inside() -> None:
    """Tasks are seen if they were started inside the profile."""

    async def call() -> None:
        await asyncio.sleep(0)
        composed(X)

    async def watch() -> Any:
        outside = asyncio.create_task(call())
        with co.profile() as p:
            await asyncio.gather(call(), asyncio.create_task(call()), outside)
        return p

    assert counts(asyncio.run(watch())) == {
        ("composed", "composite body"): 2,
        KERNEL: 4,
    }


def test_a_task_that_outlives_the_profile() -> None:
    """A context that was copied while the profile was open counts nothing afterwards."""
    with co.profile() as p:
        context = contextvars.copy_context()
        context.run(square, X)
    context.run(square, X)
    with co.profile(threads=True) as other:
        context.run(square, X)
    assert (counts(p), counts(other)) == ({KERNEL: 1}, {KERNEL: 1})


def test_nested_profiles() -> None:
    """The outer profile sees everything that the inner one sees."""
    with co.profile() as outer:
        square(X)
        with co.profile() as inner:
            co.grad(loss)(X)
        square(X)
    assert counts(inner) == GRAD
    assert counts(outer) == {**GRAD, KERNEL: 3}


def test_nested_profiles_of_all_threads() -> None:
    """A profile of all threads and one of this thread each count a call once."""
    with co.profile(threads=True) as everywhere, co.profile() as here:
        square(X)
        run_in_thread(lambda: square(X))
    assert (counts(everywhere), counts(here)) == ({KERNEL: 2}, {KERNEL: 1})


def test_profiles_that_overlap() -> None:
    """Profiles may close in any order."""
    first, second = co.profile(), co.profile()
    first.__enter__()
    square(X)
    second.__enter__()
    square(X)
    first.__exit__(None, None, None)
    square(X)
    second.__exit__(None, None, None)
    square(X)
    assert (counts(first), counts(second)) == ({KERNEL: 2}, {KERNEL: 2})


def test_generators_with_profiles_of_their_own() -> None:
    """Each sees what runs in the thread between its opening and its closing."""

    def calls() -> Iterator[Any]:
        with co.profile() as p:
            yield p
            square(X)
            yield p

    one, other = calls(), calls()
    p, q = next(one), next(other)
    next(one)
    one.close()
    next(other)
    other.close()
    square(X)
    assert (counts(p), counts(q)) == ({KERNEL: 1}, {KERNEL: 2})


def test_a_profile_opened_and_closed_inside_an_operator() -> None:
    """A call that runs at the opening is not counted; one that runs at the closing is."""
    p = co.profile(clock=CLOCK)
    open_it = define(
        "opens", lambda x: (p.__enter__(), square(x))[1], schema="(Array x) -> Array"
    )
    close_it = define(
        "closes",
        lambda x: (square(x), p.__exit__(None, None, None))[0],
        schema="(Array x) -> Array",
    )
    open_it(X)
    close_it(X)
    square(X)
    assert counts(p) == {KERNEL: 2, ("closes", "default kernel"): 1}
    assert row_of(p, "closes", "default kernel").self_ns == 0


def test_a_profile_opened_again_goes_on() -> None:
    """Two blocks of one profile add up, even if another thread closed the first."""
    p = co.profile(clock=CLOCK)
    p.__enter__()
    square(X)
    run_in_thread(lambda: p.__exit__(None, None, None))
    square(X)
    with p:
        square(X)
    assert (counts(p), p.wall_ns) == ({KERNEL: 2}, 10)


def test_it_can_be_read_while_it_is_open() -> None:
    """Calls that have ended are counted; a running call is not."""
    seen: list[Any] = []

    def look(x: Any) -> Any:
        y = square(x)
        seen.append((counts(p), [r.self_ns for r in p.rows], p.wall_ns))
        return y

    op = define("looks", look, schema="(Array x) -> Array")
    with co.profile(clock=CLOCK) as p:
        op(X)
    assert seen == [({KERNEL: 1}, [5], 5)]
    assert counts(p) == {KERNEL: 1, ("looks", "default kernel"): 1}


def test_opened_twice() -> None:
    """Opening an open profile raises, and it stays open."""
    with co.profile() as p:
        with pytest.raises(co.RegistrationError) as caught:
            p.__enter__()
        square(X)
    assert counts(p) == {KERNEL: 1}
    assert str(caught.value) == (
        "profile is opened a second time\n  do: make a new one for the inner block"
    )


def test_closed_twice() -> None:
    """Closing a closed profile raises."""
    with co.profile() as p:
        pass
    with pytest.raises(co.RegistrationError) as caught:
        p.__exit__(None, None, None)
    assert str(caught.value) == (
        "profile is closed, and was not open\n  do: open it by a with block"
    )
