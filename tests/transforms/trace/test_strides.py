"""Graphs that write results of reshape and ravel, run with arrays of other strides.

NumPy is the oracle: it decides by the strides whether the result is a view.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

Function = Callable[[Any], Any]


def layouts() -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of one shape that lie in memory in several ways; new ones each time."""
    values = np.arange(1.0, 9.0).reshape(2, 2, 2)
    return {
        "C": values.copy(),
        "F": np.asfortranarray(values),
        "mixed": values.transpose(1, 0, 2).copy().transpose(1, 0, 2),
        "gaps": np.repeat(values, 2, axis=2)[:, :, ::2],
        "rows": np.repeat(values, 2, axis=0)[::2],
        "reversed": values[:, ::-1].copy()[:, ::-1],
    }


def bump(x: Any) -> Any:
    """Write the elements in a row."""
    y = x.ravel()
    y += 1.0
    return np.stack([x.reshape(-1), y])


def bump_late(x: Any) -> Any:
    """Write the array after its elements were taken in a row."""
    y = x.reshape(-1)
    x *= 2.0
    return y * 1.0


def of_result(x: Any) -> Any:
    """The result of a ufunc lies in memory as its argument."""
    e = np.sqrt(x)
    y = e.reshape(4, 2)
    y[0] = 0.0
    return e


def of_replaced(x: Any) -> Any:
    """The array has forgotten its argument, but lies as it did."""
    e = np.zeros_like(x)
    e[...] = 3.0
    y = e.reshape(2, 4)
    y[:, 1] = 5.0
    return e


def in_gradient(x: Any) -> Any:
    """A gradient inside: its values lie in memory as those of the graph."""

    def loss(w: Any) -> Any:
        w.reshape(-1)[1:] *= 2.0
        return np.sum(w**3)

    return co.grad(loss)(x + 0.0)


PROGRAMS: list[Function] = [bump, bump_late, of_result, of_replaced, in_gradient]


def as_numpy(fn: Function, x: Any) -> Any:
    """What NumPy gives; the gradient by hand, where there is one."""
    if fn is not in_gradient:
        return fn(x)
    w = x + 0.0
    scale = np.ones_like(w)
    scale.reshape(-1)[1:] *= 2.0
    return 3.0 * w**2 * scale**3


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_a_graph_runs_as_numpy_or_says_that_strides_differ(
    fn: Function, mode: Any
) -> None:
    """Each layout is traced, and the graph runs with each layout."""
    ran, reasons = [], set()
    for traced, x in layouts().items():
        graph = co.make_fx(fn, mode)(x)
        for given, value in layouts().items():
            argument, plain = value, layouts()[given]
            try:
                found = graph(argument)
            except co.GuardError as error:
                reasons.add(str(error).split(":")[0])
                continue
            expected = as_numpy(fn, plain)
            ran.append((traced, given))
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(argument, plain)
    assert reasons == {"the graph is called with other strides"}
    same = {(name, name) for name in (layouts() if mode != "symbolic" else ["C", "F"])}
    assert same <= {*ran}


def test_the_guard_is_written_in_the_graph_its_code_and_its_file(tmp_path: Any) -> None:
    """It is a condition in the code, a line of `guards`, and stays when it is saved."""
    graph = co.make_fx(bump)(np.zeros((2, 3)))
    assert [str(guard) for guard in graph.guards] == [
        "x is f64[2, 3] with strides (24, 8)"
    ]
    assert "x.shape == (2, 3) and x.strides == (24, 8)" in graph.code
    graph.save(tmp_path / "bump.graph")
    for module in (graph, co.load_graph(tmp_path / "bump.graph")):
        with pytest.raises(co.GuardError, match="other strides") as caught:
            module(np.zeros((2, 6))[:, ::2])
        assert str(caught.value).splitlines()[-2:] == [
            "  strides decide whether a result that is written is a view",
            "  do: trace the function again for such arguments",
        ]


def test_symbolic_sizes_are_for_packed_arrays_of_every_size() -> None:
    """The condition is the order of the axes, not the numbers."""
    graph = co.make_fx(bump, "symbolic")(np.zeros((2, 3)))
    x = np.arange(20.0).reshape(4, 5)
    found = graph(x)
    np.testing.assert_array_equal(found[0], np.arange(1.0, 21.0))
    np.testing.assert_array_equal(x.ravel(), found[0])
    with pytest.raises(co.GuardError, match=r"with strides \(8, 32\)"):
        graph(np.asfortranarray(x))


def test_strides_are_not_asked_where_they_decide_nothing() -> None:
    """Inputs of all strides serve where no result of a reshape is written."""

    def read(x: Any) -> Any:
        return np.sum(x.ravel()[1:] * 2.0)

    def write(x: Any) -> Any:
        x[0] += x.reshape(-1)[0]
        return x * 1.0

    for fn in (read, write):
        for x in layouts().values():
            graph = co.make_fx(fn)(layouts()["C"])
            np.testing.assert_array_equal(graph(x.copy("K")), fn(x.copy("K")))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("made", [co.compile, lambda fn: co.make_fx(fn)(np.ones(4))])
def test_a_row_with_gaps_is_copied_to_an_order(made: Any, order: Any) -> None:
    """NumPy returns an array itself only if it is packed."""

    def program(x: Any) -> Any:
        y = x * 1.0
        for row in (y, y[::-1], y[::2]):
            z = row.astype(float, order=order, copy=False)
            z += 1.0
        return y

    x = np.arange(4.0)
    np.testing.assert_array_equal(made(program)(x), program(x))


def test_functions_made_functional_ask_for_strides_too() -> None:
    """An operator that writes an element of a row of another array."""
    op = co.custom_op("strides::bump", _bump_in_place, mutates_args=("x",))

    def program(x: Any) -> Any:
        y = x * 2.0
        op(y.ravel())
        return y

    graph = co.functionalize(co.make_fx(program)(layouts()["C"]))
    with pytest.raises(co.GuardError, match="other strides"):
        graph(layouts()["F"])
    np.testing.assert_array_equal(graph(layouts()["C"]), program(layouts()["C"]))


def _in_c_order(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.array(x * 2.0, order="C")


def _through_a_view(op: co.Operator[..., Any]) -> Function:
    def program(x: Any) -> Any:
        y = op(x)
        v = y.reshape(-1)
        v += 1.0
        return y.sum()

    return program


def test_strides_that_the_kernel_does_not_keep_are_never_used() -> None:
    """The order of axes is promised for arguments in C order alone; opcheck says so."""
    x = np.ones((2, 3)).T
    op = co.custom_op("strides::c_order", _in_c_order, mutates_args=())
    op.register_fake(co.fake_like)
    program = _through_a_view(op)
    assert program(x) == 18.0
    for run in (co.compile(program), lambda v: co.make_fx(program, "fake")(v)(v)):
        with pytest.raises(co.GuardError, match="strides"):
            run(x)
    exact = co.custom_op(
        "strides::exact", _in_c_order, mutates_args=(), tags=co.Tag.needs_exact_strides
    )
    exact.register_fake(co.fake_like)
    with pytest.raises(co.ContractError, match="they differ in strides"):
        exact(x)


def _bump_in_place(x: np.ndarray[Any, Any]) -> None:
    x += 1.0


STEPS: list[Callable[[Any, random.Random], Any]] = [
    lambda x, r: x.ravel(),
    lambda x, r: x.reshape(r.choice([(8,), (2, 4), (4, 2), (2, 2, 2)])),
    lambda x, r: x.T,
    lambda x, r: np.swapaxes(x, 0, -1),
    lambda x, r: x[::-1],
    lambda x, r: x * 2.0,
    lambda x, r: np.sqrt(x),
]


def _random_program(seed: int) -> Function:
    def program(x: Any) -> Any:
        draw = random.Random(seed)
        known = [x]
        for _ in range(7):
            value = draw.choice(known)
            if draw.random() < 0.45:
                value += draw.randint(1, 3)
            else:
                known.append(draw.choice(STEPS)(value, draw))
        return [value * 1.0 for value in known]

    return program


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_with_writes(seed: int) -> None:
    """Views of views that are written: the result is NumPy's, or an error says why not."""
    program = _random_program(seed)
    graph = co.make_fx(program, "fake")(layouts()["C"])
    refused: list[str] = []
    for name, x in layouts().items():
        plain = layouts()[name]
        expected = program(plain)
        try:
            found = graph(x)
        except co.GuardError:
            refused.append(name)
        else:
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-15)
            np.testing.assert_array_equal(x, plain)
    assert "C" not in refused
