"""A script and a worker of dask that run on their own, with modules that differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="distributed is not installed")

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("dask workers")]

ROOT = Path(__file__).parents[2]
# Seconds after which something hangs, on machines that are busy too.
LIMIT = 120

MODULE = """
import numpy as np, customop as co

@co.custom_op("apart::schema", mutates_args=(), tags=co.Tag.pointwise)
def schema(x: np.ndarray{parameter}) -> np.ndarray:
    return x * k + 5.0 if {is_new} else x

@co.custom_op("apart::code", mutates_args=(), tags=co.Tag.pointwise)
def code(x: np.ndarray) -> np.ndarray:
    return x * {factor}

def _helper(x):
    return x * {factor}

@co.custom_op("apart::helped", mutates_args=(), tags=co.Tag.pointwise)
def helped(x: np.ndarray) -> np.ndarray:
    return [_helper(v) for v in (x,)][0]

@co.custom_op("apart::replaced", mutates_args=(), tags=co.Tag.pointwise)
def replaced(x: np.ndarray) -> np.ndarray:
    return x * 2.0

@co.custom_op("apart::equal", mutates_args=(), tags=co.Tag.pointwise)
def equal(x: np.ndarray) -> np.ndarray:
    return x * 2.0

@schema.register_fake
def _(x{parameter}):
    return co.fake_like(x)

for op in (code, helped, replaced, equal):
    op.register_fake(lambda x: co.fake_like(x))
"""

# Kernels that are equal in text and reach something that may differ.
REACHING = """
import functools
import numpy as np, customop as co
import {module}_helpers as helpers
from {module}_helpers import Scale, scale

FACTOR, TABLE, WEIGHTS = {factor}, {{"k": [{factor}]}}, np.array([{factor}])
MEMORY, CALLS = {{}}, 0
OBJECT = Scale({factor})
OPERATORS = {{}}

def kernel(fn, name=""):
    name = name or fn.__name__
    op = co.custom_op(
        "{module}::" + name, fn, mutates_args=(), tags=co.Tag.pointwise,
        schema="(Array x) -> Array",
    )
    OPERATORS[name] = op.register_fake(lambda x: co.fake_like(x))
    return op

def call_inner(x):
    return inner(x)

@functools.lru_cache
def remembered(n):
    return n * {factor}

class Own:
    table = {{"k": {factor}}}

    def run(self, x):
        return x * self.table["k"]

@kernel
def memory(x):
    global CALLS
    CALLS += 1
    MEMORY[CALLS] = x
    return x * FACTOR

inner = kernel(lambda x: x * {factor}, "inner")
graded = co.custom_op(
    "{module}::graded", lambda x: x * 1.0, mutates_args=(), schema="(Array x) -> Array"
)
graded.register_fake(lambda x: co.fake_like(x))
graded.register_autograd(lambda ctx, g: g * FACTOR)

@kernel
def imported_inside(x):
    from {module}_helpers import scale

    return scale(x)

kernel(lambda x: x * FACTOR, "constant")
kernel(lambda x: x * TABLE["k"][0], "table")
kernel(lambda x: x * WEIGHTS, "array")
kernel(lambda x: scale(x), "imported")
kernel(lambda x: helpers.scale(x), "of_module")
kernel(lambda x: x * helpers.FACTOR, "constant_of_module")
kernel(lambda x: OBJECT(x), "object")
kernel(lambda x: Own().run(x), "class_of_module")
kernel(lambda x: x * remembered(1), "remembered")
kernel(Scale({factor}), "instance")
kernel(Scale({factor}).__call__, "method")
kernel(np.vectorize(lambda x: x * {factor}, otypes=[float]), "vectorized")
kernel(lambda x: inner(x) + 0.0, "operator")
kernel(lambda x: co.ops.{module}.inner(x), "operator_by_name")
kernel(lambda x: x * co.grad(lambda y: np.sum(graded(y)))(x), "rule")
"""

HELPERS = """
FACTOR = {factor}

def scale(x):
    return x * FACTOR

class Scale:
    def __init__(self, k):
        self.k = k

    def __call__(self, x):
        return x * self.k
"""

SCRIPT = """
import json, sys
import numpy as np, dask, dask.array as da, distributed
import customop as co
import customop.interop.dask
import apart, only_here, reaching, reaching_equal

X, FACTOR = np.array([0.0, 0.5, 1.0]), 2.0


@co.custom_op("script::scale", mutates_args=())
def scale(x: np.ndarray) -> np.ndarray:
    return x * FACTOR


@scale.register_fake
def _(x):
    return co.fake_like(x)


scale.register_autograd(lambda ctx, g: scale(g))


@co.custom_op("script::slope", mutates_args=(), tags=co.Tag.pointwise)
def slope(x: np.ndarray) -> np.ndarray:
    return co.grad(lambda y: np.sum(scale(scale(y))))(x)


@co.custom_op("script::lower", mutates_args=(), tags=co.Tag.pointwise)
def lower(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)


@co.custom_op("script::total", mutates_args=(), tags=co.Tag.pointwise)
def total(x: np.ndarray) -> np.ndarray:
    return x.sum()


@co.custom_op("script::of_module", mutates_args=(), tags=co.Tag.pointwise)
def of_module(x: np.ndarray) -> np.ndarray:
    return apart.code(x)


@co.custom_op("script::of_equal", mutates_args=(), tags=co.Tag.pointwise)
def of_equal(x: np.ndarray) -> np.ndarray:
    return apart.equal(x)


for op in (slope, lower, total, of_module, of_equal):
    op.register_fake(lambda x: co.fake_like(x))


def inside():
    @co.custom_op("script::inside", mutates_args=())
    def op(x: np.ndarray) -> np.ndarray:
        return scale(x) + 1.0

    return op


def plain(x):
    return apart.code(x)


def plain_equal(x):
    return apart.equal(x)


def through_plain(x):
    return plain(x) if x.size else through_plain(x)


def through_name(x):
    return co.ops.apart.code(x)


def nested(x):
    shift = 0.0
    return (lambda y: apart.code(y) + shift)(x)


def closing(k):
    return lambda x, *, shift=0.0: apart.code(x) * k + shift


def closing_equal(k):
    return lambda x, *, shift=0.0: apart.equal(x) * k + shift


class Model:
    def run(self, x):
        return apart.code(x)


def through_module(x):
    return reaching.call_inner(x)


def through_equal_module(x):
    return reaching_equal.call_inner(x)


def main():
    client = distributed.Client(sys.argv[1], timeout=60)
    lazy, local = da.from_array(X, chunks=2), inside()
    before = client.run(lambda: __import__("os").getpid())

    def factor_changed():
        global FACTOR
        FACTOR = 3.0
        return client.submit(scale, X).result()

    def kernel_replaced():
        scale.register_kernel("cpu", lambda x: x * 10.0)
        return client.submit(scale, X).result()

    def kernel_of_module_replaced(run):
        apart.replaced.register_kernel("cpu", lambda x: x * 100.0)
        return run()

    def constant_changed():
        reaching_equal.FACTOR = 7.0
        return reaching_equal.OPERATORS["constant"](lazy).compute()

    programs = {
        # First, before an operator is sent.
        "plain": lambda: client.submit(plain, X).result(),
        "plain_blocks": lambda: lazy.map_blocks(plain, dtype=float).compute(),
        "plain_delayed": lambda: dask.delayed(plain)(X).compute(),
        "plain_equal": lambda: client.submit(plain_equal, X).result(),
        "plain_equal_blocks": lambda: lazy.map_blocks(plain_equal, dtype=float).compute(),
        "through_plain": lambda: client.submit(through_plain, X).result(),
        "through_name": lambda: client.submit(through_name, X).result(),
        "nested": lambda: client.submit(nested, X).result(),
        "closing": lambda: client.submit(closing(1.0), X, shift=1.0).result(),
        "closing_equal": lambda: client.submit(closing_equal(1.0), X, shift=1.0).result(),
        "method": lambda: client.submit(Model().run, X).result(),
        "gradient_of_module": lambda: client.submit(
            lambda x: co.grad(lambda y: np.sum(apart.code(y)))(x), X
        ).result(),
        "through_module": lambda: client.submit(through_module, X).result(),
        "through_equal_module": lambda: client.submit(through_equal_module, X).result(),
        "chunks": lambda: slope(lazy).compute(),
        "submit": lambda: client.submit(scale, X).result(),
        "submit_inside": lambda: client.submit(local, X).result(),
        "map_blocks": lambda: lazy.map_blocks(scale, dtype=float).compute(),
        "delayed": lambda: dask.delayed(scale)(X).compute(),
        "gradient": lambda: client.submit(
            lambda x: co.grad(lambda y: np.sum(scale(y)))(x), X
        ).result(),
        "dtype": lambda: lower(lazy).compute(),
        "rank": lambda: total(lazy).compute(),
        "factor": factor_changed,
        "kernel": kernel_replaced,
        "kernel_in_chunks": lambda: slope(lazy).compute(),
        "equal": lambda: apart.equal(lazy).compute(),
        "equal_submit": lambda: client.submit(apart.equal, X).result(),
        "sent": lambda: client.submit(lambda op: op(X), apart.equal).result(),
        "np": lambda: client.submit(co.ops.np.sin.default, X * 0).result(),
        "schema": lambda: apart.schema(lazy).compute(),
        "schema_submit": lambda: client.submit(apart.schema, X).result(),
        "code": lambda: apart.code(lazy).compute(),
        "code_submit": lambda: client.submit(apart.code, X).result(),
        "of_module": lambda: of_module(lazy).compute(),
        "of_module_submit": lambda: client.submit(of_module, X).result(),
        "of_equal": lambda: of_equal(lazy).compute(),
        "of_equal_submit": lambda: client.submit(of_equal, X).result(),
        "helped": lambda: apart.helped(lazy).compute(),
        "replaced_before": lambda: client.submit(apart.replaced, X).result(),
        "replaced": lambda: kernel_of_module_replaced(
            lambda: apart.replaced(lazy).compute()
        ),
        "replaced_submit": lambda: client.submit(apart.replaced, X).result(),
        "missing": lambda: only_here.op(lazy).compute(),
        "missing_submit": lambda: client.submit(only_here.op, X).result(),
        "needs": lambda: client.submit(only_here.needed, X).result(),
    }
    for module in (reaching, reaching_equal):
        for name, op in module.OPERATORS.items():
            op(X)  # what the kernel remembers here is not on the worker
            key = f"{module.__name__} {name}"
            programs[key] = lambda op=op: op(lazy).compute()
            programs[f"{key} submit"] = lambda op=op: client.submit(op, X).result()
    programs["constant_changed"] = constant_changed
    found = {}
    for name, program in programs.items():
        try:
            found[name] = np.asarray(program()).tolist()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    found["workers"] = client.run(lambda: __import__("os").getpid()) == before
    print(json.dumps(found))


if __name__ == "__main__":
    main()
"""

ONLY_HERE = """
import numpy as np, customop as co

@co.custom_op("onlyhere::op", mutates_args=(), tags=co.Tag.pointwise)
def op(x: np.ndarray) -> np.ndarray:
    return x

op.register_fake(lambda x: co.fake_like(x))

def _make():
    @co.custom_op("onlyhere::needed", mutates_args=())
    def needed(x: np.ndarray) -> np.ndarray:
        return op(x)

    return needed

needed = _make()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the script printed: a result, or the text of an error, for each program."""
    here, there = (tmp_path_factory.mktemp(name) for name in ("here", "there"))
    (here / "script.py").write_text(SCRIPT)
    (here / "only_here.py").write_text(ONLY_HERE)
    texts = (", k: float = 2.0", True, 2.0), ("", False, 3.0)
    for folder, (parameter, is_new, factor) in zip((there, here), texts, strict=True):
        (folder / "apart.py").write_text(
            MODULE.format(parameter=parameter, is_new=is_new, factor=factor)
        )
        for module, k in (("reaching", factor), ("reaching_equal", 2.0)):
            for suffix, text in (("", REACHING), ("_helpers", HELPERS)):
                path = folder / f"{module}{suffix}.py"
                path.write_text(text.format(module=module, factor=k))
    address = there / "scheduler.json"
    with ExitStack() as stack:
        scheduler = (
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
        )
        _started(stack, there, *scheduler, "--scheduler-file", str(address))
        _wait_for(address)
        _started(
            stack, there, "worker", "--scheduler-file", str(address), "--no-dashboard",
            *("--nthreads", "1", "--no-nanny", "--host", "127.0.0.1"),
        )  # fmt: skip
        url = json.loads(address.read_text())["address"]
        done = subprocess.run(
            [sys.executable, str(here / "script.py"), url],
            env=_environment(here),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout.splitlines()[-1])


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def _started(stack: ExitStack, folder: Path, *args: str) -> None:
    """Start a process of dask, which ends with the tests."""
    log = stack.enter_context((folder / f"{args[0]}.log").open("w"))
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "dask", *args],
            cwd=folder,
            env=_environment(folder),
            stdout=log,
            stderr=log,
        )
    )
    stack.callback(process.terminate)


def _wait_for(path: Path) -> None:
    end = time.monotonic() + LIMIT
    while not path.exists() or not path.read_text().endswith("}"):
        assert time.monotonic() < end, "the scheduler did not start"
        time.sleep(0.05)


X = [0.0, 0.5, 1.0]
RESULTS = {
    "chunks": [4.0, 4.0, 4.0],
    "submit": [0.0, 1.0, 2.0],
    "submit_inside": [1.0, 2.0, 3.0],
    "map_blocks": [0.0, 1.0, 2.0],
    "delayed": [0.0, 1.0, 2.0],
    "gradient": [2.0, 2.0, 2.0],
    "factor": [0.0, 1.5, 3.0],
    "kernel": [0.0, 5.0, 10.0],
    "kernel_in_chunks": [100.0, 100.0, 100.0],
    "equal": [0.0, 1.0, 2.0],
    "equal_submit": [0.0, 1.0, 2.0],
    "of_equal": [0.0, 1.0, 2.0],
    "of_equal_submit": [0.0, 1.0, 2.0],
    "sent": [0.0, 1.0, 2.0],
    "np": [0.0, 0.0, 0.0],
    "replaced_before": [0.0, 1.0, 2.0],
    "plain_equal": [0.0, 1.0, 2.0],
    "plain_equal_blocks": [0.0, 1.0, 2.0],
    "closing_equal": [1.0, 2.0, 3.0],
    "through_equal_module": [0.0, 1.0, 2.0],
}


@pytest.mark.parametrize("name", RESULTS)
def test_operators_travel(found: dict[str, Any], name: str) -> None:
    """Those of the script, with the operators that they call, and equal ones of modules."""
    assert found[name] == RESULTS[name]


@pytest.mark.parametrize("name", ["dtype", "rank"])
def test_chunks_of_a_script_are_checked(found: dict[str, Any], name: str) -> None:
    """A kernel that breaks its contract on a worker is an error there too."""
    assert found[name].startswith("ContractError: script::"), found[name]


DIFFERS = {
    "schema": ("its schema differs", "sent: apart::schema(Array x)"),
    "schema_submit": ("its schema differs", "k=2.0"),
    "code": ("its kernel differs", "apart::code"),
    "code_submit": ("its kernel differs", "apart::code"),
    "of_module": ("its kernel differs", "apart::code"),
    "of_module_submit": ("its kernel differs", "apart::code"),
    "helped": ("its kernel differs", "apart::helped"),
    "replaced": ("its kernel differs", "apart::replaced"),
    "replaced_submit": ("its kernel differs", "apart::replaced"),
}


@pytest.mark.parametrize("name", DIFFERS)
def test_another_operator_on_a_worker_is_an_error(
    found: dict[str, Any], name: str
) -> None:
    """Its schema or its kernel is another one; the error says what differs, and where."""
    for text in (*DIFFERS[name], "in process", "the same version of 'apart'"):
        assert text in found[name]


PLAIN = (
    *("plain", "plain_blocks", "plain_delayed", "through_plain", "through_name"),
    *("nested", "closing", "method", "gradient_of_module"),
)


@pytest.mark.parametrize("name", PLAIN)
def test_functions_of_a_script_compare_the_operators_that_they_call(
    found: dict[str, Any], name: str
) -> None:
    """Functions that are sent whole, in every way of dask."""
    error = found[name]
    assert isinstance(error, str), error
    assert error.startswith("RegistrationError: apart::code"), error
    assert "its kernel differs" in error


def test_operators_that_functions_of_modules_call_are_compared(
    found: dict[str, Any],
) -> None:
    """The function of the script calls one of a module, which calls the operator."""
    assert "reaching::inner" in str(found["through_module"])
    assert "its kernel differs" in found["through_module"]


REACHED = (
    *("memory", "inner", "constant", "table", "array", "imported", "imported_inside"),
    *("of_module", "constant_of_module", "object", "class_of_module", "remembered"),
    *("instance", "method", "vectorized", "operator", "operator_by_name", "rule"),
)


@pytest.mark.parametrize("way", ["", " submit"])
@pytest.mark.parametrize("name", REACHED)
def test_what_a_kernel_reaches_is_compared(
    found: dict[str, Any], name: str, way: str
) -> None:
    """Constants, helpers, classes and operators; equal ones run, whatever ran before."""
    qualname = f"reaching::{name}"
    differs = found[f"reaching {name}{way}"]
    assert differs.startswith(f"RegistrationError: {qualname}"), differs
    assert "its kernel differs" in differs
    assert found[f"reaching_equal {name}{way}"] == [0.0, 1.0, 2.0]


def test_a_constant_that_changed_here_is_an_error(found: dict[str, Any]) -> None:
    """The operator was sent before, with another value of the constant."""
    assert "its kernel differs" in found["constant_changed"]


@pytest.mark.parametrize("name", ["missing", "missing_submit", "needs"])
def test_a_module_that_a_worker_lacks_is_an_error_of_the_task(
    found: dict[str, Any], name: str
) -> None:
    """The worker lives on."""
    assert found[name].startswith("MissingRuleError: onlyhere::"), found[name]
    assert "No module named 'only_here'" in found[name]
    assert found["workers"] is True
