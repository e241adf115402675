"""Guards of results: strides that have decided what is a view.

NumPy is the oracle: the function itself runs on the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co


def doubled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in C order, whatever the argument's is."""
    return np.array(x * 2.0, order="C")


# The fake kernel says "the order of the argument".
wrong = co.custom_op("result_strides::wrong", doubled, mutates_args=())
wrong.register_fake(lambda x: co.fake_like(x))
right = co.custom_op("result_strides::right", doubled, mutates_args=())
right.register_fake(lambda x: co.FakeArray(x.shape, x.dtype, device=x.device))


def both(x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """Return an array among the results."""
    return doubled(x), 3


pair = co.custom_op(
    "result_strides::pair", both, mutates_args=(), schema="(Array x) -> (Array, int)"
)
pair.register_fake(lambda x: (co.fake_like(x), 3))
right.register_vmap(lambda info, in_dims, x: (right(x), 0))
for op in (wrong, right):
    op.register_jvp(lambda primals, tangents, op=op: (op(*primals), op(*tangents)))
pair.register_jvp(
    lambda primals, tangents: (pair(*primals), (pair(*tangents)[0], None))
)


def bump(op: Any, x: Any) -> Any:
    """Write the elements of a result in a row: they are a view in C order alone."""
    y = op(x)
    row = y.reshape(-1)
    row += 1.0
    return y


def bump_later(op: Any, x: Any) -> Any:
    """Write what NumPy's operators made of the result: it lies in memory as that."""
    y = np.sqrt(op(x))
    row = y.ravel()
    y *= 2.0
    return row * 1.0


def columns() -> Any:
    """Return an array whose first axis is the fastest in memory; a new one each time."""
    return np.arange(1.0, 7.0).reshape(2, 3).T


FAKED: dict[str, Callable[[Any], Any]] = {
    "fake": lambda fn: co.make_fx(fn, "fake")(columns()),
    "compile": co.compile,
    "jvp": lambda fn: lambda x: co.jvp(co.compile(fn), (x,), (x,))[0],
}


def first_of_pair(x: Any) -> Any:
    """Return the array of a tuple."""
    return pair(x)[0]


@pytest.mark.parametrize("made", FAKED.values(), ids=FAKED)
@pytest.mark.parametrize("op", [wrong, first_of_pair])
@pytest.mark.parametrize("program", [bump, bump_later])
def test_a_result_with_other_strides_raises(program: Any, op: Any, made: Any) -> None:
    """A view was decided by the strides of the fake result, which the kernel lacks."""
    with pytest.raises(co.GuardError, match=r"f64\[3, 2\] with strides \(16, 8\)"):
        made(lambda x: program(op, x))(columns())


@pytest.mark.parametrize("made", FAKED.values(), ids=FAKED)
@pytest.mark.parametrize("program", [bump, bump_later])
def test_a_right_fake_kernel_runs(program: Any, made: Any) -> None:
    """It says C order, as the error advises."""
    found = made(lambda x: program(right, x))(columns())
    np.testing.assert_array_equal(found, program(right, columns()))


@pytest.mark.parametrize("op", [wrong, first_of_pair])
def test_a_trace_of_real_arrays_has_the_strides_of_the_kernel(op: Any) -> None:
    """No fake kernel runs."""
    graph = co.make_fx(lambda x: bump(op, x))(columns())
    np.testing.assert_array_equal(graph(columns()), bump(op, columns()))


def test_strides_that_decide_nothing_are_not_compared() -> None:
    """The values are the same in each layout."""

    def program(x: Any) -> Any:
        y = wrong(x)
        y[0] = 7.0
        return y.reshape(-1) * 2.0

    for made in FAKED.values():
        found = made(program)(columns())
        np.testing.assert_array_equal(found, program(columns()))


def test_the_error_names_the_operator_and_both_strides() -> None:
    """It says how to change the fake kernel."""
    graph = co.make_fx(lambda x: bump(wrong, x), "fake")(columns())
    with pytest.raises(co.GuardError) as caught:
        graph(columns())
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "result_strides::wrong gives ndarray f64[3, 2] with strides (16, 8)"
    )
    assert lines[1].startswith("  it was traced as f64[3, 2] with strides (8, 24) at ")
    assert lines[2] == "  strides decide whether a result that is written is a view"
    assert "\n".join(lines[3:]) == (
        "  do: register a fake kernel that gives the strides that the kernel gives:"
        " FakeArray(shape, dtype) lies in C order, as np.empty(shape) does"
    )


def test_the_code_compares_usual_strides_without_a_call() -> None:
    """Other arrays, such as traced ones, go to the guard."""
    graph = co.make_fx(lambda x: bump(right, x), "fake")(columns())
    assert "is ndarray and right.strides == (16, 8)): check(right)" in graph.code
    rows = np.stack([columns(), columns()])
    found = co.vmap(graph)(rows)
    np.testing.assert_array_equal(found, [bump(right, row) for row in rows])


def test_a_saved_graph_checks_the_strides(tmp_path: Any) -> None:
    """The guard is in the file; passes and runs node by node check it, too."""
    graph = co.make_fx(lambda x: bump(wrong, x), "fake")(columns())
    graph.save(tmp_path / "bump.graph")
    loaded = co.load_graph(tmp_path / "bump.graph")
    for module in (loaded, co.functionalize(loaded)):
        with pytest.raises(co.GuardError, match="result_strides::wrong gives"):
            module(columns())


def test_a_loop_whose_carry_changes_its_strides_raises() -> None:
    """The body was traced for the strides of the first carry."""

    def body(carry: Any, x: Any) -> Any:
        new = carry * 1.0
        row = new.reshape(-1)
        row += x
        return right(new), row

    xs = np.arange(3.0)

    def program(carry: Any, xs: Any) -> Any:
        return co.scan(body, carry, xs)[0]

    dense = np.ones((3, 2))
    for made in (co.compile(program), co.make_fx(program)(dense, xs)):
        np.testing.assert_array_equal(made(dense, xs), program(dense, xs))
    for make in (co.compile, lambda fn: co.make_fx(fn)(columns(), xs)):
        with pytest.raises(co.GuardError, match="other strides"):
            make(program)(columns(), xs)


def test_branches_with_other_strides_raise() -> None:
    """One branch gives C order, the other one F order; the trace has taken the first."""

    def program(p: Any, x: Any) -> Any:
        y = co.cond(p, lambda x: right(x.T), lambda x: right(x).T, x)
        row = y.reshape(-1)
        row += 1.0
        return y

    x, yes, no = np.arange(6.0).reshape(2, 3), np.array(True), np.array(False)
    graph = co.make_fx(program, "fake")(yes, x)
    np.testing.assert_array_equal(graph(yes, x), program(yes, x))
    with pytest.raises(co.GuardError, match="control::cond gives"):
        graph(no, x)
