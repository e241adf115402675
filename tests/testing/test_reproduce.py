"""Samples as text: scripts that rebuild them, and a line for each argument."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.nested import children
from customop.testing import Sample
from customop.testing.checks.check_runs import repro, show_sample
from customop.testing.inputs.input_patterns import base_samples
from customop.testing.inputs.variations import dtypes, layouts

from . import probed
from .hidden import calls, lengths, precision
from .planted import agreement, contract
from .planted import dtypes as wrong_dtypes
from .probed import CASES
from .sampling import operator

# ---- text ----


def run_script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(folder)])
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Recipe:
    taps: np.ndarray
    color: Color
    counts: tuple[int, ...] = ()


def everything(
    x: np.ndarray,
    recipe: Recipe,
    parts: list[np.ndarray],
    table: dict[str, float],
    dtype: co.DType,
    rng: np.random.Generator,
    limit: float,
    name: str | None = None,
) -> np.ndarray:
    return x * 1


EVERYTHING = Sample(
    (
        np.array([[1.5, np.nan], [-np.inf, 0.1]])[:, ::-1],
        Recipe(np.arange(3, dtype="i2"), Color.BLUE, (1, 2)),
        [np.ones(2, bool), np.array(1 + 2j)],
        {"a": float("inf"), "b b": 0.1},
        np.dtype("float32"),
        np.random.default_rng(5),
        float("nan"),
    ),
    {"name": "o'clock"},
)


def rebuilt(op: Any, sample: Sample) -> Sample:
    """Return the arguments of the call in the script of a sample."""
    text = repro(op, sample)
    head, _, call = text.rpartition("print(")
    target = f"co.ops.{op.namespace}.{op.name}.default"
    # The operator is defined here already.
    head = re.sub(r"(?ms)^op = .*?^\)\n(op\.register.*\n)*", "", head)
    names: dict[str, Any] = {"catch": lambda *a, **k: Sample(a, k)}
    exec(head + call.replace(target, "found = catch").rstrip()[:-1], names)
    return names["found"]


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same, with layout and flags."""
    if isinstance(a, np.ndarray):
        matches = a.dtype == b.dtype and a.strides == b.strides and a.shape == b.shape
        flags = [(v.flags.writeable, v.flags.aligned) for v in (a, b)]
        values = a.dtype.kind == "V" or np.array_equal(
            a, b, equal_nan=a.dtype.kind in "fc"
        )
        return matches and flags[0] == flags[1] and values
    if hasattr(a, "bit_generator"):
        return str(a.bit_generator.state) == str(b.bit_generator.state)
    items = children(a)
    if items is not None:
        pairs = zip(items, children(b), strict=True)
        return type(a) is type(b) and all(same(x, y) for x, y in pairs)
    return type(a) is type(b) and (a == b or (a != a and b != b))  # noqa: PLR0124


def test_script_rebuilds_every_type() -> None:
    """A script rebuilds arrays, config objects, generators, nan and the rest."""
    op = operator(everything)
    found = rebuilt(op, EVERYTHING)
    assert same(found.args, EVERYTHING.args)
    assert found.kwargs == EVERYTHING.kwargs


ARRAYS = {
    "f8": np.array([0.1, 1e300, -0.0]),
    "f4": np.array([0.1, 3.4e38], "f4"),
    "f2": np.array([0.1, 6e4], "f2"),
    "longdouble": np.array([1, 3], "g") / 3,
    "c8": np.array([1j, 0.1], "c8"),
    "big endian": np.array([1.5, 2.5], ">f8"),
    "u8": np.array([2**64 - 1], "u8"),
    "bool": np.array([True, False]),
    "empty": np.zeros((2, 0, 3)),
    "no axes": np.array(2.5),
    "many": np.arange(500.0),
    "times": np.array(["2020-01-01"], "M8[D]"),
    "text": np.array(["a'b", "c"]),
    "fields": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_script_rebuilds_arrays(name: str) -> None:
    """Arrays of every dtype are rebuilt to the last bit."""
    op = operator(probed.fft)
    (found,) = rebuilt(op, Sample((ARRAYS[name],))).args
    assert found.tobytes() == ARRAYS[name].tobytes()
    assert same(found, ARRAYS[name])


@pytest.mark.parametrize("name", ["batched_matmul", "smooth", "stack", "weighted"])
def test_script_rebuilds_layouts(name: str) -> None:
    """Every layout is rebuilt: strides, order and flags."""
    op = operator(CASES[name][0])
    sample = base_samples(op)[-1]
    for varied in (*layouts(op, sample), *dtypes(op, sample)):
        assert same(rebuilt(op, varied).args, varied.args), varied.note


def test_script_passes_one_array_twice() -> None:
    """An array in two places is made once."""
    op = operator(probed.dot)
    x = np.ones(2)
    found = rebuilt(op, Sample((x, x)))
    assert found.args[0] is found.args[1]


PROGRAM = """
import numpy as np
import customop as co

@co.custom_op("faulty::total", mutates_args=())
def total(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frombuffer(x.tobytes("A"), x.dtype).reshape(x.shape)[0] * 1)
"""


def test_script_repeats_a_failure(tmp_path: Path) -> None:
    """The script of a failure raises the same error."""
    (tmp_path / "faulty_program.py").write_text(PROGRAM, encoding="utf-8")
    text = textwrap.dedent("""
        import faulty_program
        import customop.testing
        from customop import testing
        try:
            testing.opcheck(faulty_program.total, test_utils="test_layouts")
        except AssertionError as error:
            print(error)
            print("=====")
            print(error.repro)
    """)
    first = run_script(text, tmp_path)
    error, _, script = first.stdout.partition("=====\n")
    assert "test_layouts" in error, first.stderr
    again = run_script(script, tmp_path)
    assert again.returncode == 1
    what = error.splitlines()[0]
    assert f"customop.OpCheckError: {what}" in again.stderr


def test_script_of_a_main_program(tmp_path: Path) -> None:
    """The script runs the file of an operator that is defined in __main__."""
    program = PROGRAM + textwrap.dedent("""
        if __name__ == "__main__":
            from customop.testing.checks.check_runs import repro
            from customop.testing import Sample
            print(repro(total, Sample((np.array([4.5, 1.0]),))))
    """)
    file = tmp_path / "main_program.py"
    file.write_text(program, encoding="utf-8")
    made = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert run_script(made.stdout, tmp_path).stdout == "4.5\n"


def _made_here(k: int, table: dict[str, float]) -> Any:
    """An operator with all rules, whose functions read what is around them."""

    def helper(x: np.ndarray) -> np.ndarray:
        return x * k

    @co.custom_op("reproduce::made", mutates_args=(), tags=co.Tag.needs_contiguous)
    def made(x: np.ndarray, factor: float = -2.0) -> np.ndarray:
        # Three elements are one too many.
        return helper(x) * factor * table["a"] + (x.size > 2)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    made.register_fake(lambda x, factor: co.fake_like(x))
    made.register_autograd(
        lambda ctx, g: (g * (k * ctx.factor * table["a"]), None), setup_context=keep
    )
    made.register_vmap(
        lambda info, in_dims, x, factor: (made(x, factor), in_dims[0]),
    )
    return made


@pytest.mark.exhaustive
def test_script_of_an_operator_made_in_a_function(tmp_path: Path) -> None:
    """It defines the operator, its rules and what they read, and repeats the fault."""
    found = co.testing.opcheck(
        _made_here(3, {"a": 0.5}), (np.ones(2),), raise_exception=False
    )
    error = found["test_vmap"]
    assert isinstance(error, co.OpCheckError), found
    lines = error.repro.splitlines()
    assert {"k = 3", "table = {'a': 0.5}"} <= set(lines)
    again = run_script(error.repro, tmp_path)
    assert f"customop.OpCheckError: {str(error).splitlines()[0]}" in again.stderr
    # Without the fault the same text passes the check.
    right = error.repro.replace(" + (x.size > 2)", "")
    assert run_script(right, tmp_path).returncode == 0


@pytest.mark.exhaustive
def test_script_of_a_fault_over_all_inputs(tmp_path: Path) -> None:
    """It looks for inputs again: one of them alone does not show the fault."""
    found = co.testing.opcheck(lengths.wide_rows_are_cut(True), raise_exception=False)
    error = found["test_sizes"]
    assert isinstance(error, co.OpCheckError), found
    target = error.repro[error.repro.index("co.testing.opcheck(") :].split("\n", 2)[1]
    assert error.repro.endswith(f"(\n{target}\n    test_utils='test_sizes',\n)\n")
    again = run_script(error.repro, tmp_path)
    assert f"customop.OpCheckError: {str(error).splitlines()[0]}" in again.stderr


@pytest.mark.parametrize(
    ("build", "check", "name"),
    [
        (calls.same_array_twice, "test_layouts", "x"),
        (precision.integers_through_float64, "test_dtypes", "x"),
    ],
)
def test_argument_of_a_fault_is_underlined(build: Any, check: str, name: str) -> None:
    """The first that the note of the input names, or the only array."""
    found = co.testing.opcheck(build(True), raise_exception=False)[check]
    assert isinstance(found, co.OpCheckError)
    assert found.parameter == name
    assert "^^^" in str(found).splitlines()[2]


@pytest.mark.exhaustive
def test_script_of_a_fault_of_short_floats(tmp_path: Path) -> None:
    """The check looks at the dtype of the given arrays, too."""
    row = precision.single_through_half(True)
    found = co.testing.opcheck(row, raise_exception=False)["test_dtypes"]
    assert isinstance(found, co.OpCheckError)
    again = run_script(found.repro, tmp_path)
    assert f"customop.OpCheckError: {str(found).splitlines()[0]}" in again.stderr


@pytest.mark.exhaustive
def test_script_of_two_kernels_keeps_them_apart(tmp_path: Path) -> None:
    """The default kernel and the one for NumPy's arrays, whichever came first."""
    row = agreement.default_kernel_differs(True)
    utils = "test_kernels_agree"
    found = co.testing.opcheck(row, test_utils=utils, raise_exception=False)[utils]
    assert isinstance(found, co.OpCheckError)
    again = run_script(found.repro, tmp_path)
    assert f"customop.OpCheckError: {str(found).splitlines()[0]}" in again.stderr


def _blocks_of_registered(wrong: bool) -> Any:
    """A rule that is wrong for more than 64 rows, of an operator with inputs."""
    n = 64

    def tripled(x: np.ndarray) -> np.ndarray:
        if x.shape[-1:] != (7,):
            raise ValueError("seven columns")
        return x * 3

    op = co.custom_op("reproduce::tripled", tripled, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    op.register_sample_inputs(lambda: [(np.ones(7),)])
    return op.register_vmap(
        lambda info, dims, x: (op(x) + (wrong and info.batch_size > n), dims[0])
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("build", "check"),
    [
        (lengths.batch_of_64_in_blocks, "test_vmap"),
        (_blocks_of_registered, "test_vmap"),
        (contract.out_variant_differs, "test_out_variant"),
        (contract.out_overload_differs, "test_out_variant"),
        (contract.inplace_variant_differs, "test_out_variant"),
        (wrong_dtypes.bytes_read_in_native_order, "test_dtypes"),
        (wrong_dtypes.integers_read_in_native_order, "test_dtypes"),
    ],
)
def test_script_shows_what_its_arguments_alone_may_hide(
    build: Any, check: str, tmp_path: Path
) -> None:
    """Long batches, variants of the operator and arrays of another byte order."""
    found = co.testing.opcheck(build(True), raise_exception=False)[check]
    assert isinstance(found, co.OpCheckError)
    again = run_script(found.repro, tmp_path)
    assert f"customop.OpCheckError: {str(found).splitlines()[0]}" in again.stderr


def test_script_without_a_source_says_why() -> None:
    """Name the object that a function holds, and where the operator is made."""
    lock = threading.Lock()

    @co.custom_op("reproduce::locked", mutates_args=())
    def locked(x: np.ndarray) -> np.ndarray:
        with lock:
            return x + 1

    script = repro(locked, Sample((np.ones(2),)))
    line = locked.__wrapped__.__code__.co_firstlineno
    assert (
        f"# reproduce::locked is defined within a function at {__file__}:{line}: run"
        " that first (it reads lock, which holds lock)" in script.splitlines()
    )


def test_script_keeps_two_values_of_a_name_apart() -> None:
    """One name cannot have two values, so such functions are not written."""
    x = 2.0

    @co.custom_op("reproduce::shadowed", mutates_args=())
    def shadowed(y: np.ndarray) -> np.ndarray:
        return x * y

    def fake_of(x: str) -> Any:
        return lambda y: co.fake_like(y, dtype=x)

    op = shadowed.register_fake(fake_of("f8"))
    script = repro(op, Sample((np.ones(2),)))
    assert "(two of its functions read other values as x)" in script


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/tmp/ipykernel_12/34.py", "in a cell of a notebook"),
        ("<stdin>", "at <stdin>:1"),
    ],
)
def test_script_of_what_no_file_keeps(place: str, said: str) -> None:
    """Of operators in cells and at a prompt it says where they are defined."""
    names: dict[str, Any] = {"np": np, "__name__": "__main__"}
    exec(
        compile("def cell(x: np.ndarray) -> np.ndarray: return x + 1", place, "exec"),
        names,
    )
    op = co.custom_op("reproduce::cell", names["cell"], mutates_args=())
    script = repro(op, Sample((np.ones(2),)))
    what = f"# reproduce::cell is defined {said}: run that first"
    assert f"{what} (there is no source of cell)" in script.splitlines()
    assert "run_path" not in script


def test_script_text() -> None:
    """The text of a script."""
    op = co.ops.np.matmul.default
    x = np.array([[1.5, 2.0], [3.0, 4.0]]).T
    assert repro(op, Sample((x, np.ones(2))), "test_vmap") == textwrap.dedent("""\
        import numpy as np

        import customop as co
        import customop.testing

        x1 = np.asfortranarray(np.array([[1.5, 3.0], [2.0, 4.0]], 'float64'))
        x2 = np.array([1.0, 1.0], 'float64')

        co.testing.opcheck(
            co.ops.np.matmul.default,
            (x1, x2),
            {},
            test_utils='test_vmap',
        )
    """)


def test_a_line_for_each_argument() -> None:
    """Arrays show dtype, shape and numbers, and what is special about their layout."""
    op = operator(probed.smooth)
    x = np.array([1 / 3, 1.0, 2.0])[::-1]
    x.flags.writeable = False
    sample = Sample((x,), {"window": 3}, "upside down")
    assert show_sample(op, sample).splitlines() == [
        "x = f64[3] [2, 1, 0.3333], strides (-8,), read-only",
        "window = 3",
        "(upside down)",
    ]
