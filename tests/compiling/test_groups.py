"""Groups of pointwise calls as functions of one element: compared with NumPy's ufuncs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.kernel_code import (
    C_TYPES,
    ElementProgram,
    Kernel,
    find_groups,
    in_c,
    program_of,
    with_kernels,
)
from customop.compiling.numpy_backend.build import build
from customop.graph.subgraphs import split_graph

INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
DTYPES = ("?", *INTEGERS, "f4", "f8")
ONE = (
    *("negative", "positive", "absolute", "sqrt", "floor", "ceil", "trunc", "rint"),
    *("square", "reciprocal", "logical_not", "invert", "isnan"),
)
TWO = (
    *("add", "subtract", "multiply", "divide", "equal", "not_equal", "less"),
    *("less_equal", "greater", "greater_equal", "logical_and", "logical_or"),
    *("logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum"),
)


def numbers(dtype: str) -> np.ndarray[Any, Any]:
    """Pairs of numbers of a dtype, also those at its ends: two rows."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        values: Any = [False, True]
    elif kind in "iu":
        info = np.iinfo(dtype)
        values = [info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max]
    else:
        info = np.finfo(dtype)
        values = [0.0, -0.0, 1.0, -1.5, 2.5, 3e7, -1e-7, np.inf, -np.inf, np.nan]
        values += [info.max, info.tiny, info.smallest_subnormal]
    column = np.array(values, dtype)
    grid = np.meshgrid(column, column)
    return np.stack([grid[0].ravel(), grid[1].ravel()])


def call_by_call(group: Any, program: ElementProgram) -> Kernel:
    """A kernel that makes the calls of its group."""
    return Kernel(group, lambda *arrays: None, lambda *arrays: False)


def calls() -> list[tuple[str, Callable[..., Any], list[np.ndarray[Any, Any]]]]:
    """Title, function and arrays for each ufunc of the table and each dtype."""
    found: list[Any] = []
    for dtype in DTYPES:
        pair = numbers(dtype)
        for name in (*ONE, *TWO):
            ufunc = getattr(np, name)
            arrays = [*pair][: ufunc.nin]
            with np.errstate(all="ignore"):
                try:
                    ufunc(*arrays)
                except TypeError:
                    continue  # NumPy has no such loop
            # In two calls, since one alone makes no group.
            found.append((f"{name}-{dtype}", _twice(ufunc), arrays))
        found += [_converted(pair, dtype, other) for other in DTYPES]
    return found


def _converted(pair: np.ndarray[Any, Any], dtype: str, other: str) -> Any:
    if "?" not in (dtype, other):
        title = f"astype-{dtype}-{other}"
        return title, lambda x: +x.astype(other), [pair[0]]
    arrays = [pair[0], pair[1], pair[0].astype(other)]
    return f"where-{dtype}-{other}", lambda c, x, y: np.where(c > 0, x, y) == y, arrays


def _twice(ufunc: Any) -> Callable[..., Any]:
    return lambda *arrays: ufunc(*arrays) * 1


CALLS = calls()


def same(found: Any, expected: Any) -> bool:
    """Whether two arrays are the same to the last bit; any nan is as good as another."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if found.dtype.kind == "f":
        nan = np.isnan(expected)
        if not np.array_equal(np.isnan(found), nan):
            return False
        found, expected = np.where(nan, 0, found), np.where(nan, 0, expected)
    return bool(found.tobytes() == expected.tobytes())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is installed")
def test_c_of_an_element_has_the_bits_of_the_ufunc(tmp_path: Path) -> None:
    programs: list[ElementProgram] = []
    cases = []
    for title, fn, arrays in CALLS:
        with np.errstate(all="ignore"):
            module = co.make_fx(fn, "fake")(*arrays)
            expected = fn(*arrays)
        groups = find_groups(module.graph)
        if not groups:
            continue
        (call,) = [
            node
            for node in split_graph(module, groups).graph.nodes
            if node.name in groups.values()
        ]
        given = dict(zip([n.name for n in module.inputs], arrays, strict=True))
        inner = [node.name for node in call.target.inputs]
        cases.append((title, [given[name] for name in inner], expected))
        programs.append(program_of(call.target.graph))
    library = _compiled(programs, tmp_path)
    for i, (title, arrays, expected) in enumerate(cases):
        out = np.empty(expected.shape, programs[i].result)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
        getattr(library, f"run{i}")(ctypes.c_long(out.size), *pointers)
        assert same(out, expected), title
    assert len(cases) > 200


def _compiled(programs: list[ElementProgram], folder: Path) -> ctypes.CDLL:
    """A library with a function for each program, which takes pointers."""
    lines = ["#include <cmath>", "using namespace std;"]
    for i, program in enumerate(programs):
        given = [(C_TYPES[dtype.name], name) for name, dtype in program.inputs]
        pointers = ", ".join([f"const {cls}* all_{name}" for cls, name in given])
        reads = " ".join(
            [f"const {cls} {name} = all_{name}[i];" for cls, name in given]
        )
        lines.append(
            f'extern "C" void run{i}(long n, {pointers},'
            f" {C_TYPES[program.result.name]}* out) {{"
            f"for (long i = 0; i < n; i++) {{ {reads} {in_c(program, 'out[i]')} }} }}"
        )
    source, library = folder / "groups.cpp", folder / "groups.so"
    source.write_text("\n".join(lines))
    options = ("-O1", "-ffp-contract=off", "-shared", "-fPIC")
    command = [str(shutil.which("g++")), *options, "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


# ---- which calls are a group ----

X = np.arange(6.0).reshape(2, 3)


def groups_of(fn: Callable[..., Any], *args: Any) -> list[list[str]]:
    """The names of the calls in each group."""
    found: dict[str, list[str]] = {}
    for node, name in find_groups(co.make_fx(fn, "fake")(*args).graph).items():
        found.setdefault(name, []).insert(0, node.name)
    return [*found.values()]


def test_a_chain_is_one_group() -> None:
    assert groups_of(lambda x, y: (x * y + 1.0) / y, X, X) == [
        ["multiply", "add", "divide"]
    ]


def test_a_value_that_is_used_twice_ends_a_group() -> None:
    def fn(x: Any) -> Any:
        y = x * 2.0 + 1.0
        return np.sum(y), y - x * 3.0

    assert sorted(groups_of(fn, X)) == [["multiply", "add"], ["multiply_1", "subtract"]]


def test_calls_of_another_shape_are_outside() -> None:
    row = np.ones(3)
    assert groups_of(lambda x, y: x * (y + 1.0) - x, X, row) == [
        ["multiply", "subtract"]
    ]


def test_transcendental_functions_are_outside() -> None:
    assert groups_of(lambda x: np.sin(x * 2.0 + 1.0) * x - x, X) == [
        ["multiply", "add"],
        ["multiply_1", "subtract"],
    ]


def test_a_group_goes_on_over_what_needs_nothing_of_it() -> None:
    fn = lambda x: (x - 1.0) / np.sqrt(np.sum(x))
    assert groups_of(fn, X) == [["subtract", "divide"]]
    changed = with_kernels(co.make_fx(fn, "fake")(X), call_by_call)
    assert np.array_equal(changed(X), fn(X))


def test_complex_numbers_and_halves_are_outside() -> None:
    for dtype in ("c16", "f2"):
        assert groups_of(lambda x: x * x + x, X.astype(dtype)) == []


def test_no_group_spans_a_write() -> None:
    @co.custom_op("group_tests::double", mutates_args=("x",))
    def double(x: co.Array) -> None:
        x *= 2.0

    def fn(x: Any) -> Any:
        y = x + 1.0
        double(x)
        return y * 3.0 + x

    module = co.make_fx(fn, "fake")(X)
    names = {node.name for node in find_groups(module.graph)}
    assert "add" not in names
    changed = with_kernels(module, call_by_call)
    assert np.array_equal(changed(X.copy()), (X + 1.0) * 3.0 + X * 2.0)


def test_a_kernel_of_another_is_not_the_ufunc() -> None:
    with co.Library("np", "IMPL") as library:
        library.impl("add", lambda x1, x2: np.add(x1, x2) + 100.0, "cpu")
        assert groups_of(lambda x: x * 2.0 + 1.0, X) == []
    assert groups_of(lambda x: x * 2.0 + 1.0, X) == [["multiply", "add"]]


def test_the_back_end_numpy_runs_the_fused_function_of_a_kernel() -> None:
    runs = []

    def kernel_for(group: co.GraphModule, program: Any) -> Kernel:
        def fused(x: Any, y: Any) -> Any:
            runs.append(1)
            return (x + y) * x

        return Kernel(group, fused, lambda x, y: x[0, 0] > 0.0)

    x = np.ones((2, 3))
    module = co.make_fx(lambda x, y: np.sin((x + y) * x), "fake")(x, x)
    code = build(with_kernels(module, kernel_for))
    assert np.array_equal(code(x, x)[0], np.sin((x + x) * x))
    assert len(runs) == 1
    assert np.array_equal(code(-x, x)[0], np.sin((-x + x) * -x))
    assert len(runs) == 1
