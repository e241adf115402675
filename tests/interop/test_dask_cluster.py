"""Programs on dask's distributed engine: worker processes, one of which is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from tests.interop._dask_programs import programs, slow_square

da = pytest.importorskip("dask.array", reason="dask is not installed")
dask = pytest.importorskip("dask", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.xdist_group("dask cluster"),
    # The engine leaves sockets of processes that ended to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Seconds after which something hangs, on machines that are busy too.
LIMIT = 90
PROGRAMS = programs()


@pytest.fixture(scope="module")
def client(dask_kind: None) -> Iterator[Any]:
    """Two worker processes of one thread each."""
    settings = {
        "distributed.comm.timeouts.connect": LIMIT,
        "distributed.worker.profile.enabled": False,
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, timeout=LIMIT) as found,
    ):
        yield found


def result_of(client: Any, what: str, futures: Any) -> list[Any]:
    """The numbers of lazy arrays that are being computed; an error says what hung."""
    try:
        return [future.result(timeout=LIMIT) for future in futures]
    except distributed.TimeoutError:
        pytest.fail(f"{what} hung for {LIMIT} s with {client.processing()}")


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    """Return once a condition holds; an error says what did not happen."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"after {LIMIT} s: not {what}"
        time.sleep(0.01)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_numpys_numbers(client: Any, name: str) -> None:
    """Losses, gradients, steps and batches that worker processes compute."""
    program = PROGRAMS[name]
    pairs = zip(program.args, program.chunks, strict=True)
    given = [x if c is None else da.from_array(x, chunks=c) for x, c in pairs]
    found = result_of(
        client, name, client.compute(optree.tree_leaves(program.fn(*given)))
    )
    expected = optree.tree_leaves(program.fn(*program.args))
    for x, w in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, w, rtol=1e-12, atol=1e-12)


def test_an_operator_of_a_function_travels(client: Any) -> None:
    """Workers cannot import it by its name: its kernel goes with the tasks."""
    scale = 3.0
    op = co.custom_op(
        "daskcluster::local",
        lambda x: x * scale,
        mutates_args=(),
        schema="(Array x) -> Array",
        tags=co.Tag.pointwise,
    )
    x = np.arange(6.0)
    [found] = result_of(
        client, "local", client.compute([op(da.from_array(x, chunks=2))])
    )
    np.testing.assert_array_equal(found, 3.0 * x)


def test_a_killed_worker_loses_nothing(client: Any) -> None:
    """Its results are computed once more, on the other one and on the one that follows."""
    x = np.linspace(-1.0, 1.0, 60).reshape(30, 2)

    def loss(x: Any) -> Any:
        return np.sum(np.tanh(slow_square(x)) * slow_square(x + 1.0))

    before = client.run(os.getpid)
    futures = client.compute(
        list(co.value_and_grad(loss)(da.from_array(x, chunks=(1, 2))))
    )
    wait_until(
        "some chunks done", lambda: sum(map(len, client.has_what().values())) >= 4
    )
    address = next(a for a, tasks in client.processing().items() if tasks)
    os.kill(before[address], signal.SIGKILL)
    found = result_of(client, "the gradient", futures)
    for a, b in zip(found, co.value_and_grad(loss)(x), strict=True):
        assert np.max(np.abs(a - b)) < 1e-12
    wait_until("two workers", lambda: len(client.nthreads()) == 2)
    assert before[address] not in client.run(os.getpid).values()
