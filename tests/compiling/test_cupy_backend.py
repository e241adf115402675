"""The code for CuPy arrays, as far as it runs without a device.

A stand-in for CuPy keeps NumPy arrays, and notes in which order work is given to streams.
The C of kernels has tests of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import customop as co
from customop.compiling import cupy_backend
from customop.compiling.backends import build


class Stream:
    """Notes what is asked of it; what it captures runs again at each launch."""

    current: ClassVar[list[Stream]] = []
    log: ClassVar[list[str]] = []

    def __init__(self, name: str = "own", non_blocking: bool = False) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.current.append(self)

    def __exit__(self, *error: object) -> None:
        self.current.pop()

    def _note(self, what: str) -> None:
        self.log.append(f"{self.name} {what}")

    def synchronize(self) -> None:
        self._note("synchronize")

    def record(self) -> str:
        self._note("record")
        return self.name

    def wait_event(self, event: str) -> None:
        self._note(f"waits for {event}")

    def begin_capture(self) -> None:
        self._note("begin")

    def end_capture(self) -> Any:
        self._note("end")
        return SimpleNamespace(launch=lambda stream: self._launch())

    def _launch(self) -> None:
        self._note("launch")
        for again in Kernels.captured:
            again()


class Kernels:
    """`ElementwiseKernel`s, which NumPy computes; they note their texts."""

    texts: ClassVar[list[tuple[str, str, str]]] = []
    captured: ClassVar[list[Callable[[], None]]] = []
    calls: ClassVar[int] = 0

    def __init__(
        self,
        inputs: str,
        outputs: str,
        code: str,
        name: str,
        options: Any,
        preamble: str,
    ) -> None:
        assert options == ("--fmad=false",)
        assert "#define NAN" in preamble
        self.texts.append((inputs, outputs, code))

    def __call__(self, x: Any, y: Any) -> Any:
        Kernels.calls += 1
        out = (x * y + x) / y

        def again() -> None:
            out[...] = (x * y + x) / y

        if Stream.log and Stream.log[-1] == "own begin":
            self.captured.append(again)
        return out


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that stands in for CuPy."""
    Stream.log, Stream.current = [], [Stream("user")]
    Kernels.texts, Kernels.captured, Kernels.calls = [], [], 0

    @contextmanager
    def using_allocator(allocator: Any) -> Iterator[None]:
        assert allocator == "pool"
        yield

    cuda = SimpleNamespace(
        MemoryPool=lambda: SimpleNamespace(malloc="pool"),
        Stream=Stream,
        get_current_stream=lambda: Stream.current[-1],
        using_allocator=using_allocator,
    )
    found = SimpleNamespace(
        cuda=cuda, ElementwiseKernel=Kernels, empty_like=np.empty_like
    )
    monkeypatch.setattr(cupy_backend, "_cupy", lambda: found)
    cupy_backend._elementwise.cache_clear()
    yield found
    cupy_backend._elementwise.cache_clear()


def traced(fn: Any, *shapes: tuple[int, ...]) -> co.GraphModule:
    """A graph of arrays on a device."""
    arrays = [co.FakeArray(shape, "f8", device="cuda") for shape in shapes]
    return co.make_fx(fn, "fake")(*arrays)


def fn(x: Any, y: Any) -> Any:
    """A group of three calls."""
    return (x * y + x) / y


X, Y = np.arange(6.0).reshape(2, 3), np.full((2, 3), 2.0)


def test_a_group_is_one_kernel(cupy: Any) -> None:
    build(traced(fn, (2, 3), (2, 3)))
    code = (
        "const double v0 = (double)(a0 * a1);\n"
        "const double v1 = (double)(v0 + a0);\n"
        "const double v2 = (double)(v1 / a1);\n"
        "result = v2;"
    )
    assert Kernels.texts == [("float64 a0, float64 a1", "float64 result", code)]


def test_functions_of_cuda_join_groups_on_a_device(cupy: Any) -> None:
    build(traced(lambda x: np.arcsin(np.maximum(x, 0.5)), (3,)))
    ((_, _, code),) = Kernels.texts
    assert code == (
        "const double v0 = (double)((a0 != a0 | ((double)0.5) != ((double)0.5) ?"
        " NAN : fmax(a0, ((double)0.5))));\n"
        "const double v1 = (double)(asin(v0));\n"
        "result = v1;"
    )


def test_work_is_recorded_at_the_second_call(cupy: Any) -> None:
    run = build(traced(fn, (2, 3), (2, 3)))
    assert np.array_equal(run(X, Y)[0], fn(X, Y))
    assert Stream.log == []  # the first call runs the kernels
    assert Kernels.calls == 1
    first = run(X + 1.0, Y)[0]
    assert np.array_equal(first, fn(X + 1.0, Y))
    assert Stream.log == [
        *("user synchronize", "own synchronize", "own begin", "own end"),
        *("user record", "own waits for user", "own launch"),
        *("own record", "user waits for own"),
    ]
    Stream.log.clear()
    second = run(X + 2.0, Y)[0]
    assert np.array_equal(second, fn(X + 2.0, Y))
    assert np.array_equal(first, fn(X + 1.0, Y))  # not the memory of the recording
    assert Stream.log == [
        *("user record", "own waits for user", "own launch"),
        *("own record", "user waits for own"),
    ]


@co.custom_op("cupy_backend_tests::halve", mutates_args=(), tags=(co.Tag.pointwise,))
def halve(x: co.Array) -> co.Array:
    """An operator whose kernel may do anything, and whose shape is that of `x`."""
    return x / 2.0


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: halve(x) * y,  # its kernel may read numbers of the host
        lambda x, y: x[0],
        lambda x, y: x,
    ],
    ids=["another operator", "a view of an input", "an input"],
)
def test_other_work_is_not_recorded(cupy: Any, other: Any) -> None:
    run = build(traced(other, (2, 3), (2, 3)))
    for _ in range(3):
        assert np.array_equal(run(X, Y)[0], other(X, Y))
    assert Stream.log == []


def test_large_arrays_are_not_copied_to_be_recorded(cupy: Any) -> None:
    module = traced(fn, (3000, 3000), (3000, 3000))
    build(module)
    assert cupy_backend._reason_not_to_record(module) == "copies would take longer"


def test_arrays_in_another_order_run_call_by_call(cupy: Any) -> None:
    run = build(traced(lambda x, y: fn(x, y)[0], (3, 3), (3, 3)))
    x = np.asfortranarray(np.arange(9.0).reshape(3, 3))
    for _ in range(3):
        assert np.array_equal(run(x, x + 1.0)[0], fn(x, x + 1.0)[0])
    assert Kernels.calls == 0
    assert Stream.log == []


def test_a_kernel_that_is_registered_later_is_recorded_anew(cupy: Any) -> None:
    run = build(traced(lambda x, y: np.sum(fn(x, y)), (2, 3), (2, 3)))
    for _ in range(2):
        run(X, Y)
    Stream.log.clear()
    with co.Library("np", "IMPL") as library:
        library.impl("sum", lambda x, axis, keepdims: x[0, 0] * 0.0, "cpu")
        run(X, Y)
    assert "own begin" in Stream.log


def test_explain_says_what_is_recorded(cupy: Any) -> None:
    rows = build(traced(fn, (2, 3), (2, 3))).explain()
    assert [*map(str, rows)] == [
        "one kernel of 3 calls: multiply, add, divide",
        "recorded at the second call: fused_divide",
    ]
    (row,) = build(traced(lambda x: x[0], (2, 3))).explain()
    assert str(row) == (
        "started one by one: slice (a result is an input, or a view of one)"
    )


def test_numbers_of_numpy_are_not_recorded(cupy: Any) -> None:
    """A kernel gets them by value, and they may differ at each call."""
    arrays = [co.FakeArray((2, 3), "f8", device="cuda"), co.FakeArray((), "f8")]
    module = co.make_fx(lambda x, y: co.ops.np.multiply(x, 2.0), "fake")(*arrays)
    assert "'y' is a number of NumPy" in cupy_backend._reason_not_to_record(module)
