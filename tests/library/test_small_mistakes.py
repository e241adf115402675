"""Mistakes at definitions and registrations that used to show late or elsewhere."""

import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.registry import find_operator, operators

X = np.ones(3)


def test_a_kernel_by_kind_needs_something_to_choose_by() -> None:
    """As `device_types` does: no call could ever take the kernel."""

    def count(n: int) -> int:
        return n

    op = co.custom_op("mistakes::count", count, mutates_args=())
    for kind in ("cuda", "cpu"):
        with pytest.raises(co.RegistrationError) as caught:
            op.register_kernel(kind, lambda n: n + 1)
        assert str(caught.value) == (
            f"mistakes::count: has kernels for {kind}, but no array and no 'device' to"
            " choose by\n"
            "  mistakes::count(int n) -> int\n"
            "  do: add a parameter device: Device, or name no kinds of array"
        )
    assert op.register_kernel(None, lambda n: n + 2)(1) == 3


def test_the_name_in_front_of_an_inferred_schema() -> None:
    """As `Library.define` takes it."""

    def scale(x: np.ndarray, k: float = 2.0) -> np.ndarray:
        return x * k

    text = co.infer_schema(scale, mutates_args=(), op_name="scale")
    assert text == "scale(Array x, float k=2.0) -> Array"
    with co.Library("mistakes", "FRAGMENT") as lib:
        assert lib.define(text) == "scale"
    with pytest.raises(co.SchemaError, match="op_name=3 is not a name"):
        co.infer_schema(scale, mutates_args=(), op_name=3)  # type: ignore[arg-type]


async def _async(x: np.ndarray) -> np.ndarray:
    return x


def _yields(x: np.ndarray) -> Iterator[np.ndarray]:
    yield x


async def _both(x: np.ndarray) -> AsyncIterator[np.ndarray]:
    yield x


@pytest.mark.parametrize("fn", [_async, _yields, _both])
def test_functions_that_return_before_they_compute(fn: Any) -> None:
    """A coroutine or generator is not a result, for kernels and rules."""
    schema = "(Array x) -> Array"
    with pytest.raises(co.RegistrationError, match="its call computes nothing yet"):
        co.custom_op("mistakes::late", fn, mutates_args=(), schema=schema)
    op = co.define("mistakes::late", schema)
    for register in (
        lambda: op.register_kernel("cpu", fn),
        lambda: op.register_fake(fn),
        lambda: op.register_autograd(fn),
    ):
        with pytest.raises(co.RegistrationError, match="its call computes nothing yet"):
            register()


@pytest.mark.parametrize(
    "name", ["__init__", "__class__", "_name", "f.resolve", "f.default"]
)
def test_names_that_ops_cannot_find(name: str) -> None:
    """`ops.ns.__init__` is something else."""
    for define in (
        lambda: co.define(f"mistakes::{name}", "(Array x) -> Array"),
        lambda: co.custom_op(f"mistakes::{name}", co.fake_like, mutates_args=(),
                             schema="(Array x, int[]? shape=None, dtype? dtype=None,"
                                    " device? device=None) -> Array"),
    ):  # fmt: skip
        with pytest.raises(co.RegistrationError, match="ops could not find it"):
            define()


def test_misspelled_attributes() -> None:
    """Of operators and of the package."""
    op = co.ops.np.sin.default
    with pytest.raises(co.UnknownNameError) as caught:
        op.register_fakee
    assert str(caught.value) == (
        "an operator has no attribute 'register_fakee' (did you mean 'register_fake'?)\n"
        "  do: write that name"
    )
    assert not hasattr(op, "__array_interface__")
    with pytest.raises(
        AttributeError, match=r"'custom_oop' \(did you mean 'custom_op'\?\)"
    ):
        co.custom_oop


def test_a_write_of_the_same_values_names_its_argument() -> None:
    """The kernel writes what the array holds already, so that no copy shows it."""

    def wrong(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        y[:] = y
        return x + z

    op = co.custom_op("mistakes::same", wrong, mutates_args=())
    with pytest.raises(co.ContractError) as caught:
        op(X, X.copy(), X.copy())
    assert caught.value.parameter == "y"
    assert "writes argument 'y'" in str(caught.value)


def test_a_list_of_gradients_for_a_list() -> None:
    """The only input is a list, so its gradient is one."""

    def total(xs: list[np.ndarray]) -> np.ndarray:
        return xs[0] * 2 + xs[1] * 3

    op = co.custom_op("mistakes::total", total, mutates_args=())
    op.register_autograd(lambda ctx, g: [g * 2, g * 3])
    first, second = co.grad(lambda a, b: op([a, b]).sum(), argnums=(0, 1))(X, X)
    assert (first.tolist(), second.tolist()) == ([2.0] * 3, [3.0] * 3)


def test_advice_that_loses_gradients() -> None:
    """A cast of an integer to floats would give zeros without a word."""
    for call in (lambda: co.grad(np.argmax)(X), lambda: co.jacrev(np.argmax)(X)):
        with pytest.raises(co.GradientError) as caught:
            call()
        assert "leave out what makes it an integer" in caught.value.do


# ---- other processes ----

SCRIPT = """
import numpy as np, customop as co
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

@co.custom_op("mistakes::of_main", mutates_args=())
def of_main(x: np.ndarray) -> np.ndarray:
    return x * 2

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with ProcessPoolExecutor(1, mp_context=get_context(method)) as pool:
            print(method, list(pool.map(of_main, [np.ones(2)])))
"""


@pytest.mark.exhaustive
def test_operators_of_the_main_script_in_other_processes(tmp_path: Path) -> None:
    """Every way in which Python starts a process runs the script there."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=True
    )
    said = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [text for _, text in said] == ["[array([2., 2.])]"] * 3


def test_an_operator_of_a_script_that_does_not_run_here() -> None:
    """Loky's workers do not run the script. The task fails, and the worker goes on."""
    absent: Any = find_operator("mistakes::absent", "__main__")
    with pytest.raises(co.MissingRuleError) as caught:
        absent(X)
    assert caught.value.what == (
        "mistakes::absent was defined in the main script, which this process does not run"
    )
    assert caught.value.do == (
        "define the operator in a module, which every process can import"
    )
    with pytest.raises(co.MissingRuleError):
        absent.schema
    text = pickle.dumps(absent)
    op = co.define("mistakes::absent", "(Array x) -> Array")
    assert pickle.loads(text) is op
    assert operators["mistakes::absent"] is op


def _call(op: Any) -> Any:
    return op(X)


@pytest.mark.exhaustive
def test_a_worker_says_what_is_missing() -> None:
    """The error reaches the caller, and the pool can be used again."""
    absent: Any = find_operator("mistakes::lost", "__main__")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for _ in range(2):
            with pytest.raises(co.MissingRuleError, match="in the main script"):
                pool.submit(_call, absent).result()
