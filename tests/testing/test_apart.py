"""What a kernel does to its process stays in a child of opcheck's."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.errors import OpCheckError
from customop.testing import opcheck
from customop.testing.checks import outcomes
from customop.testing.checks import outcomes as found
from customop.testing.checks.check_runs import Check
from customop.testing.checks.session import Session
from customop.testing.processes.child import Child
from tests.tiers import all_but

_MATRIX = np.arange(12.0).reshape(4, 3)


_numbers = itertools.count()


def _operator(kernel: Callable[[Any], Any], name: str = "") -> Any:
    """An operator that doubles its array, after something that a kernel should not do.

    Each has a name of its own: what failed may keep earlier ones alive.
    """

    def double(x: np.ndarray) -> np.ndarray:
        kernel(x)
        return x + x

    own = name or f"made_{next(_numbers)}"
    op = co.custom_op(f"apart::{own}", mutates_args=())(double)
    op.register_fake(lambda x: co.fake_like(x))
    return op


def _children() -> set[str]:
    """The processes that this one has started, zombies too; other tests have some."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}


_ENDINGS = {
    "read of address 0": (lambda: ctypes.string_at(0), "crashed (signal SIGSEGV)"),
    "abort": (os.abort, "crashed (signal SIGABRT)"),
    "kill": (
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        "was killed (signal SIGKILL)",
    ),
    "_exit": (lambda: os._exit(3), "ended the process (exit status 3)"),
    "_exit with 0": (lambda: os._exit(0), "ended the process (exit status 0)"),
    "sys.exit": (lambda: sys.exit(3), "tried to end the process (SystemExit: 3)"),
}


@pytest.mark.parametrize("name", all_but(_ENDINGS, ["abort", "_exit with 0"]))
def test_crash_on_an_input_that_is_made_up_is_a_fault_of_the_check(name: str) -> None:
    """The table goes on after it, and names check, shape and how the kernel ended."""
    end, how = _ENDINGS[name]
    op = _operator(lambda x: x.size or end())
    table = opcheck(op, (_MATRIX,), raise_exception=False)
    assert table.failed == ["test_layouts"]
    assert str(table["test_layouts"]).startswith(
        f"{op.qualname}: test_layouts: the kernel {how} on 'x' of shape (0, 3)\n"
    )
    assert table["test_threads"] == "SUCCESS"


def test_message_of_a_crash() -> None:
    """It says where Python was, the input, and how the schema can exclude it."""
    op = _operator(lambda x: x.size or ctypes.string_at(0), "kernel")
    with pytest.raises(OpCheckError) as caught:
        opcheck(op, (_MATRIX,), test_utils="test_layouts")
    line = test_message_of_a_crash.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        "apart::kernel: test_layouts: the kernel crashed (signal SIGSEGV) on 'x' of"
        " shape (0, 3)\n"
        "  apart::kernel(Array x) -> Array\n"
        "                ^^^^^^^\n"
        f"  at {__file__}:{line}, in <lambda>\n"
        "  input:\n"
        "    x = f64[0, 3] []\n"
        "    (no length for axes of length 4)\n"
        "  to repeat it:\n"
        "    from __future__ import annotations\n"
        "    import numpy as np\n"
        "    import customop as co\n"
        "    import customop.testing\n"
        "    import ctypes\n"
        "    x = np.zeros((0, 3), 'float64')\n"
        "    kernel = (\n"
        "        lambda x: x.size or ctypes.string_at(0)\n"
        "    )\n"
        "    def double(x: np.ndarray) -> np.ndarray:\n"
        "        kernel(x)\n"
        "        return x + x\n"
        "    fake = (\n"
        "        lambda x: co.fake_like(x)\n"
        "    )\n"
        "    op = double = co.custom_op(\n"
        "        'apart::kernel',\n"
        "        double,\n"
        "        mutates_args=(),\n"
        "        schema='(Array x) -> Array',\n"
        "    )\n"
        "    op.register_fake(fake)\n"
        "    co.testing.opcheck(\n"
        "        co.ops.apart.kernel.default,\n"
        "        (x,),\n"
        "        {},\n"
        "        test_utils='test_layouts',\n"
        "    )\n"
        "  do: raise a ValueError in the kernel for arguments that it does not take, or"
        " say in the schema what it takes: Array[n+1,m] x"
    )
    assert caught.value.sample.args[0].shape == (0, 3)


def test_crash_on_a_dtype_or_layout_says_how_to_declare_it() -> None:
    op = _operator(lambda x: x.dtype == np.float64 or os.abort())
    table = opcheck(op, (_MATRIX,), raise_exception=False)
    assert "say in the schema what it takes: float64[...] x" in str(
        table["test_dtypes"]
    )
    op = _operator(lambda x: x.flags.c_contiguous or os.abort(), "in_c_order")
    table = opcheck(op, (_MATRIX,), raise_exception=False)
    assert "do: tag the operator with Tag.needs_contiguous, or" in str(
        table["test_layouts"]
    )


@pytest.mark.exhaustive
def test_kernel_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, and the line that it was in is named."""
    monkeypatch.setattr(outcomes, "PATIENCE", 2.0)
    monkeypatch.setattr(outcomes, "SHORTER", 1.0)
    # Python's code, which has a line, and rests, so that it takes no time of others.
    op = _operator(lambda x: [time.sleep(0.01) for _ in iter(int, x.size == 0)])
    table = opcheck(op, (_MATRIX,), raise_exception=False)
    assert table.failed == ["test_layouts"]
    text = str(table["test_layouts"])
    # Patience grows with the slowest call, which may wait for the processor.
    assert re.search(r"test_layouts: the kernel did not end within [\d.]+ s", text)
    assert " s on 'x' of shape (0, 3)\n" in text
    assert f"at {__file__}:" in text


def test_crash_while_inputs_are_sought() -> None:
    """Without arguments no check can run, and the first one says why."""
    op = _operator(lambda x: x.ndim or os._exit(4))
    table = opcheck(op, raise_exception=False)
    assert table.failed == ["test_schema"]
    assert str(table["test_schema"]).splitlines()[0] == (
        f"{op.qualname}: test_schema: the kernel ended the process (exit status 4) on"
        " 'x' of shape (), one of the calls that opcheck tries to find inputs"
    )
    assert table["test_threads"] == "SKIPPED: no inputs are found"


def test_inputs_that_are_registered_run_in_this_process() -> None:
    """So a debugger sees them, and coverage counts them."""
    seen = []
    op = _operator(lambda x: seen.append((os.getpid(), x.shape)))
    op.register_sample_inputs(lambda: [(_MATRIX,)])
    assert opcheck(op).failed == []
    assert {pid for pid, _ in seen} == {os.getpid()}
    assert {shape for _, shape in seen} == {(4, 3)}


@pytest.mark.exhaustive
def test_check_of_given_arrays_makes_up_others_in_a_child() -> None:
    """The gradient of the given array is taken here, that of its short floats not."""
    op = _operator(lambda x: x.dtype == np.float64 or os.abort())
    op.register_autograd(lambda ctx, g: g * 2)
    table = opcheck(op, (_MATRIX,), raise_exception=False)
    assert "test_autograd_registration" in table.failed
    assert "(signal SIGABRT)" in str(table["test_autograd_registration"])


def test_memory_that_is_overwritten_may_break_the_check_itself() -> None:
    """Then it is a fault of the kernel; an error that comes again is one of ours."""
    seen = []

    def vary(session: Any, sample: Any) -> Any:
        yield sample
        if os.path.exists(marker):  # noqa: PTH110  # as it was not in the first child
            return
        Path(marker).touch()
        raise ValueError("array is too big")

    op = _operator(seen.append)
    check = Check("test_layouts", lambda session, sample: "", vary=vary)
    session = Session(op, [co.testing.Sample((_MATRIX,))])
    with tempfile.TemporaryDirectory() as folder:
        marker = f"{folder}/been_here"
        (done,) = outcomes.outcomes(session, [check])
    assert "the kernel broke the process it ran in (ValueError: array is too big)" in (
        str(done.outcome)
    )
    always = check._replace(vary=lambda session, sample: iter(sample))
    with pytest.raises(TypeError):
        list(outcomes.outcomes(session, [always]))


def test_nothing_is_checked_after_a_write_outside_of_the_arrays() -> None:
    """It may have changed anything, so that later checks would differ between runs."""

    def kernel(x: np.ndarray) -> np.ndarray:
        after = ctypes.c_uint64.from_address(x.ctypes.data + x.nbytes)
        if after.value == 2**64 - 1:  # as after no other array of this test
            after.value = 0
        return x * 2

    op = _operator(kernel)
    table = opcheck(op, (_MATRIX,), raise_exception=False)
    assert table.failed == ["test_mutation"]
    assert "writes outside of argument 'x'" in str(table["test_mutation"])
    names = [*table]
    later = names[names.index("test_mutation") + 1 :]
    assert {table[name] for name in later} == {
        "SKIPPED: the kernel wrote outside of its arrays, so that nothing else is certain"
    }
    assert table["test_schema"] == "SUCCESS"


def test_fault_survives_a_crash_on_smaller_inputs() -> None:
    """The search for the smallest input ends there, and the fault is as first seen."""

    def kernel(x: np.ndarray) -> np.ndarray:
        if 0 < x.size < 12:
            os.abort()
        return x * (2 if x.flags.c_contiguous else 3)

    op = co.custom_op("apart::wrong", mutates_args=())(kernel)
    op.register_fake(lambda x: co.fake_like(x))
    table = opcheck(op, (_MATRIX,), raise_exception=False)
    fault = table["test_layouts"]
    assert isinstance(fault, OpCheckError)
    assert "the output differs between non-contiguous of 'x' and C order" in str(fault)
    assert fault.sample.args[0].strides == (48, 16)


# ---- what comes back from the child ----


def test_exception_of_a_child_arrives_with_its_traceback() -> None:
    class OwnError(Exception):
        pass

    class HeldError(Exception):
        """Cannot be pickled."""

        def __init__(self, x: Any, y: Any) -> None:
            super().__init__(f"no {x} of {y}")
            self.held = lambda: x

    class LostError(Exception):
        """Loses what its text is made of, as NumPy's AxisError where tblib pickles."""

        def __init__(self) -> None:
            self.axis = 3

        def __str__(self) -> str:
            return f"axis {self.axis}"

        def __reduce__(self) -> Any:
            return LostError.__new__, (LostError,)

    for error, expected in (
        (OwnError("odd"), "OwnError"),
        (HeldError("view", 2), "ChildError"),
        (LostError(), "ChildError"),
    ):

        def work(send: Any, error: Exception = error) -> None:
            raise error

        with pytest.raises(Exception) as caught, Child(work, 5.0) as child:
            list(child.messages())
        assert type(caught.value).__name__ == expected
        assert str(error) in str(caught.value)
        assert f'File "{__file__}", line' in str(caught.value.__cause__)


def test_arrays_arrive_with_their_layout() -> None:
    plain = np.arange(12.0).reshape(4, 3)
    unaligned = np.zeros(33, np.uint8)[1:].view(np.float64)
    frozen = plain.copy()
    frozen.flags.writeable = False
    given = [plain, plain.T, plain[::-2], unaligned, frozen, plain.astype(">f8")]
    given.append(np.broadcast_to(np.arange(3.0), (4, 3)))
    with Child(lambda send: send(given), 5.0) as child:
        (found,) = child.messages()
    for a, b in zip(found, given, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a.dtype, a.strides) == (b.dtype, b.strides)
        assert a.flags.writeable == b.flags.writeable
        assert a.flags.aligned == b.flags.aligned


# ---- what does not come back ----


def test_texts_and_numbers_among_the_arguments_do_not_keep_outcomes_back() -> None:
    """An outcome refers to arguments by their addresses, which hold an empty text."""

    def labeled(x: np.ndarray, label: str, count: int) -> np.ndarray:
        return x + count

    op = co.custom_op("apart::labeled", mutates_args=())(labeled)
    op.register_fake(lambda x, label, count: co.fake_like(x, dtype=(x + count).dtype))
    wrong = co.custom_op("apart::mislabeled", mutates_args=())(labeled)
    wrong.register_fake(lambda x, label, count: co.fake_like(x, dtype=np.int8))
    x, utils = np.arange(3.0), ("test_layouts", "test_threads")
    assert opcheck(op, (x, "", 0), test_utils=utils).failed == []
    table = opcheck(wrong, (x, "", 0), test_utils="test_layouts", raise_exception=False)
    error = table["test_layouts"]
    assert isinstance(error, OpCheckError)
    assert "ended the process" not in error.what
    assert error.sample is not None
    assert error.sample.args[1:] == ("", 0)


class _OnceError(Exception):
    """An exception that can be pickled once."""

    is_pickled = False

    def __reduce__(self) -> Any:
        if self.is_pickled:
            raise TypeError("pickled once already")
        self.is_pickled = True
        return _OnceError, ()


def test_child_that_cannot_send_its_outcome_says_why() -> None:
    """It does not look like a kernel that has left with a status of success."""

    def work(send: Any) -> None:
        raise _OnceError

    with Child(work, 60.0) as child:
        assert list(child.messages()) == []
    assert child.crash is not None
    assert child.crash.how == "ended the process (exit status 1)"
    assert "it wrote: TypeError: pickled once already" in child.crash.lines


def test_nothing_leaks(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process, open file, random number, setting or text is left of a child."""
    monkeypatch.chdir(tmp_path)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    states = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    files = set(Path("/proc/self/fd").iterdir())
    settings = np.geterr()
    shapes = []

    def kernel(x: Any) -> None:
        if x.size:
            return
        shapes.append(x.shape)
        print("out")  # noqa: T201
        print("err", file=sys.stderr)  # noqa: T201
        os.write(1, b"out")
        os.write(2, b"err")
        random.random()
        np.random.random()  # noqa: NPY002
        np.seterr(all="raise")
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        if os.fork() == 0:  # a process of its own
            time.sleep(60)
        ctypes.string_at(0)

    before = _children()
    opcheck(_operator(kernel), (_MATRIX,), raise_exception=False)
    assert capfd.readouterr() == ("", "")
    assert states == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    assert (settings, shapes) == (np.geterr(), [])
    assert set(Path("/proc/self/fd").iterdir()) == files
    assert list(tmp_path.iterdir()) == []
    assert _children() <= before  # others may end meanwhile


def test_child_ends_with_the_first_fault_that_raises() -> None:
    op = _operator(lambda x: time.sleep(60) if x.size == 0 else None)
    op.register_fake(lambda x: co.fake_like(x, shape=(7,)), override=True)
    before, start = _children(), time.perf_counter()
    with pytest.raises(OpCheckError, match="test_faketensor"):
        opcheck(op, (_MATRIX,))
    assert time.perf_counter() - start < 30
    assert _children() <= before  # others may end meanwhile


@pytest.mark.filterwarnings("error")
@pytest.mark.exhaustive
def test_opcheck_in_threads_while_others_run() -> None:
    """Threads take turns, and their children do not hold up each other."""

    def check(number: int) -> co.testing.OpCheckResult:
        op = _operator(lambda x: x.size or os.abort(), f"kernel_{number}")
        return opcheck(op, (_MATRIX,), raise_exception=False)

    # Not in the threads: it changes the filters of all, which opcheck would notice.
    with warnings.catch_warnings(), ThreadPoolExecutor(3) as pool:
        tables = list(pool.map(check, range(3)))
    assert [table.failed for table in tables] == [["test_layouts"]] * 3, tables


def test_kernel_that_does_not_survive_a_fork() -> None:
    """Where the given arguments crash it too in a child, its other inputs are not run."""
    here = os.getpid()
    op = _operator(lambda x: os.getpid() == here or os.abort())
    table = opcheck(op, (_MATRIX,))
    assert table["test_schema"] == "SUCCESS"
    skipped = [name for name, text in table.items() if text == _NO_CHILD]
    assert {"test_layouts", "test_dtypes", "test_threads"} <= set(skipped)


def test_without_fork_an_operator_of_a_function_runs_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on Windows and macOS; the table says so, and finds the same faults."""
    for module in (outcomes, found):
        monkeypatch.setattr(module, "CAN_FORK", False)
    pids = set()
    op = _operator(lambda x: pids.add(os.getpid()))
    result = opcheck(op, (_MATRIX,))
    assert pids == {os.getpid()}
    assert result.notes["test_layouts"] == (
        "in this process, which a crash would end: there is no safe fork here, and a new"
        " process cannot import the operator, which is made inside of a function"
    )
    assert "test_schema" not in result.notes
    op.register_fake(lambda x: co.fake_like(x, shape=(7,)), override=True)
    assert "test_faketensor" in opcheck(op, (_MATRIX,), raise_exception=False).failed


def test_special_values_for_several_kernels_run_in_a_child() -> None:
    """The kernel of a plain call and the one it was made from should agree on nan."""
    op = _operator(lambda x: None)

    @op.register_kernel("cpu")
    def _(x: np.ndarray) -> np.ndarray:
        if np.isnan(x).any():
            os.abort()
        return x + x

    table = opcheck(op, (_MATRIX,), raise_exception=False)
    assert table.failed == ["test_kernels_agree"]
    assert "crashed (signal SIGABRT)" in str(table["test_kernels_agree"])


_NO_CHILD = (
    "SKIPPED: its inputs run in a forked child, where the kernel crashed (signal SIGABRT)"
    " on the given arguments too: a library in it does not survive a fork"
)


# ---- real C ----

_SOURCE = """
#include <omp.h>
void twice_in_parallel(const double *x, double *out, long rows) {
    #pragma omp parallel for
    for (long i = 0; i < 3 * rows; i++) out[i] = 2 * x[i];
}
void twice(const double *x, double *out, long rows) {
    for (long i = 0; i < 3 * rows; i++) out[i] = 2 * x[i];
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Functions in C that take three columns for granted."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    folder = tmp_path_factory.mktemp("c")
    source, made = folder / "twice.c", folder / "twice.so"
    source.write_text(_SOURCE)
    command = [compiler, "-fopenmp", "-shared", "-fPIC", source, "-o", made]
    subprocess.run(command, check=True)
    found = ctypes.CDLL(str(made))
    for function in (found.twice, found.twice_in_parallel):
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        function.restype = None
    return found


_DECLARED: dict[str, Any] = {
    "schema": "(float64[n,3] x) -> float64[n,3]",
    "tags": co.Tag.needs_contiguous,
}


def _in_c(function: Any, **options: Any) -> Any:
    def twice(x: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        function(x.ctypes.data, out.ctypes.data, len(x))
        return out

    op = co.custom_op("apart::in_c", mutates_args=(), **options)(twice)
    op.register_fake(lambda x: co.fake_like(x))
    return op


@pytest.mark.exhaustive
def test_c_code_that_corrupts_the_heap(library: Any) -> None:
    """Five megabytes are written into an array without columns, in the child."""
    op = _in_c(library.twice)
    for _ in range(3):
        table = opcheck(op, (np.ones((200_000, 3)),), raise_exception=False)
        assert "test_layouts" in table.failed


def test_c_code_that_declares_what_it_takes(library: Any) -> None:
    """With shape, dtype and layout in the definition no call breaks it."""
    op = _in_c(library.twice, **_DECLARED)
    assert opcheck(op, (_MATRIX,)).failed == []
    assert opcheck(op).failed == []


def test_threads_of_openmp_survive(library: Any) -> None:
    """They run in this process first; a forked child would wait for them for ever."""
    op = _in_c(library.twice_in_parallel, **_DECLARED)
    table = opcheck(op, (np.ones((10_000, 3)),))
    assert table["test_layouts"] == table["test_threads"] == "SUCCESS"


@pytest.mark.exhaustive
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_threads_of_numba_survive(layer: str) -> None:
    """Its parallel code ran in this process; a child of it would be ended."""
    pytest.importorskip("numba")
    code = _WITH_NUMBA.replace("LAYER", layer)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


_WITH_NUMBA = """
import numba
import numpy as np
import customop as co
from customop.testing import opcheck

numba.config.THREADING_LAYER = "LAYER"

@co.custom_op("apart::of_numba", mutates_args=(), schema="(Array x) -> Array")
@numba.njit("float64[:](float64[:])", parallel=True)
def double(x):
    out = np.empty_like(x)
    for i in numba.prange(x.size):
        out[i] = 2.0 * x[i]
    return out

double.register_fake(lambda x: co.fake_like(x))
double(np.ones(1000))  # its threads begin
for _ in range(2):
    table = opcheck(double, (np.ones(3),), test_utils=["test_layouts", "test_sizes"])
    assert set(table.values()) == {"SUCCESS"}, table
"""

_WITH_DASK = """
import dask.array as da
import numpy as np
import customop as co
import customop.interop.dask
from customop.testing import opcheck

assert da.ones((4, 4), chunks=2).sum().compute(scheduler="threads") == 16.0

@co.custom_op("apart::of_dask", mutates_args=())
def double(x: np.ndarray) -> np.ndarray:
    return x + x

double.register_fake(lambda x: co.fake_like(x))
double.register_kernel("cpu")(lambda x: 2.0 * x)  # a child compares two kernels
double.register_kernel("dask")(lambda x: x + x)
print(opcheck(double, raise_exception=False)["test_kernels_agree"])
"""


@pytest.mark.exhaustive
def test_threads_of_dask_are_not_waited_for() -> None:
    """They stay with the parent; a forked child computes without them."""
    pytest.importorskip("dask.array", reason="dask is not installed")
    command = [sys.executable, "-c", _WITH_DASK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "SUCCESS\n", done.stderr


# ---- shapes that belong together ----


def test_arguments_of_a_call_keep_axes_and_equal_lengths() -> None:
    """A kernel that relies on them gets no call that breaks it."""
    seen = np.ndarray(1, np.int64, mmap.mmap(-1, 8))

    def scale_rows(x: np.ndarray, factors: np.ndarray) -> np.ndarray:
        seen[0] += x.ndim != 2 or factors.shape != x.shape[:1]
        return x * factors.reshape(-1, 1)

    op = co.custom_op("apart::scale_rows", mutates_args=())(scale_rows)
    op.register_fake(lambda x, factors: co.fake_like(x))
    assert opcheck(op, (_MATRIX, np.arange(4.0))).failed == []
    assert seen[0] == 0


# ---- what children have at hand ----

_FIRST_RUN = """
import os, sys
import numpy as np
import customop as co

@co.custom_op("apart::scale", mutates_args=())
def scale(x: np.ndarray, factor: float) -> np.ndarray:
    return x * factor

scale.register_fake(
    lambda x, factor: co.fake_like(x, dtype=np.result_type(x.dtype, 1.0))
)
scale.register_autograd(
    lambda ctx, g: (g * ctx.factor, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)
scale.register_vmap(lambda info, in_dims, x, factor: (scale(x, factor), in_dims[0]))

parent, (log, end) = os.getpid(), os.pipe()

def note(event, args):
    if event == "compile" and os.getpid() != parent:
        os.write(end, f"{args[1]}; ".encode())

sys.addaudithook(note)
co.opcheck(scale, (np.ones(3), 2.0))
os.close(end)
print(os.read(log, 1 << 16).decode(), end="")
"""


@pytest.mark.exhaustive
def test_children_compile_no_operators_of_numpy_anew() -> None:
    """What one of them compiles ends with it, so this process does it before."""
    command = [sys.executable, "-c", _FIRST_RUN]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "np::" not in run.stdout


# ---- random kernels ----

_MEETS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no elements": ("test_layouts", lambda x: x.size == 0),
    "strides": ("test_layouts", lambda x: x.size > 1 and not x.flags.c_contiguous),
    "negative": ("test_layouts", lambda x: min(x.strides, default=0) < 0),
    "unaligned": ("test_layouts", lambda x: not x.flags.aligned),
    "float32": ("test_dtypes", lambda x: x.dtype == np.float32),
    "int8": ("test_dtypes", lambda x: x.dtype == np.int8),
    "complex": ("test_dtypes", lambda x: x.dtype.kind == "c"),
    "swapped": ("test_dtypes", lambda x: not x.dtype.isnative),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
def test_random_kernel_that_ends_at_random_inputs(seed: int) -> None:
    """The process survives; the check and an input that ends the kernel are named."""
    rng = random.Random(seed)
    check, meets = _MEETS[rng.choice(list(_MEETS))]
    end, how = rng.choice(list(_ENDINGS.values()))
    shape = rng.choice([(3,), (4, 3), (2, 2, 3)])
    op = _operator(lambda x: end() if meets(x) else None)
    if rng.random() < 0.5:
        op.register_autograd(lambda ctx, g: g * 2)
    before = _children()
    table = opcheck(op, (np.ones(shape),), raise_exception=False)
    assert check in table.failed
    for name in table.failed:
        fault = table[name]
        assert isinstance(fault, OpCheckError)
        (x,) = fault.sample.args
        assert meets(x)
        assert f"the kernel {how} on 'x' of shape {x.shape}" in str(fault)
    assert _children() <= before  # others may end meanwhile
