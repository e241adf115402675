"""Random programs of operators whose results lie in memory in many ways, written in place.

NumPy is the oracle: the same program runs eagerly on the same arrays. A graph gives the
same values, or an error of the package: never other values.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co

Array = np.ndarray[Any, Any]
Program = Callable[[Any], tuple[Any, ...]]

# ---- operators: how the kernel's result lies in memory, and what the fake one says ----


def _filled(x: Any) -> Any:
    out = np.empty(x.shape)
    out[...] = x * 0.5
    return out


KERNELS: dict[str, Callable[[Any], Any]] = {
    "c": lambda x: np.array(x * 2.0, order="C"),
    "f": lambda x: np.asfortranarray(x * 2.0),
    "k": lambda x: x * 2.0,
    "copy": lambda x: x.copy(),
    "filled": _filled,
    "reversed": lambda x: np.ascontiguousarray((x * 3.0)[::-1])[::-1],
    "moved": lambda x: np.moveaxis(np.moveaxis(x * 2.0, 0, -1).copy(), -1, 0),
}
FAKES: dict[str, Callable[[Any], Any]] = {
    "like": lambda x: co.fake_like(x),
    "packed": lambda x: co.FakeArray(x.shape, x.dtype, device=x.device),
}


def _operator(kernel: str, fake: str) -> Any:
    def run(x: Any) -> Any:
        return KERNELS[kernel](x)

    schema = "(Array x) -> Array"
    name = f"random_layouts::{kernel}_{fake}"
    op: Any = co.custom_op(name, run, mutates_args=(), schema=schema)
    op.register_fake(FAKES[fake])
    op.register_jvp(lambda primals, tangents: (op(*primals), op(*tangents)))
    return op


OPERATORS = [_operator(kernel, fake) for kernel in KERNELS for fake in FAKES]

# ---- layouts of arguments ----


LAYOUTS: list[Callable[[Array], Array]] = [
    lambda x: x.copy(),
    lambda x: x.copy("F"),
    lambda x: x.T[::-1].copy()[::-1].T,
    lambda x: x[::-1].copy()[::-1],
    lambda x: np.moveaxis(np.moveaxis(x, 0, -1).copy(), -1, 0),
    lambda x: np.repeat(x, 2, axis=0)[::2],
    lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
]

# ---- programs: each step makes a value of another one, or writes it ----

STEPS: list[Callable[[Any], Any]] = [
    lambda v: v.T,
    lambda v: np.swapaxes(v, 0, -1),
    lambda v: v[::-1],
    lambda v: v[..., ::2],
    lambda v: v[:, None],
    lambda v: np.moveaxis(v, 0, -1),
    lambda v: v.reshape(-1),
    lambda v: v.ravel(),
    lambda v: v.ravel("F"),
    lambda v: v.reshape(v.shape[0], -1),
    lambda v: np.reshape(v, (-1, v.shape[0]), order="F"),
    lambda v: v.astype(float, order="C", copy=False),
    lambda v: v.astype(float, order="F", copy=False),
    lambda v: v.flatten(),
    lambda v: v.copy("K"),
    lambda v: v * 1.5,
    lambda v: np.concatenate([v, v]),
    lambda v: np.stack([v, v + 1.0]),
    lambda v: v.astype(float, order="F"),
    lambda v: v[None] * np.array([1.0, 2.0]).reshape(2, *[1] * v.ndim),
]


def _add(v: Any) -> None:
    v += 1.0


def _write_first(v: Any) -> None:
    v[0] = 7.0


def _write_last(v: Any) -> None:
    v[..., -1] = v[..., 0] * 3.0


def _double(v: Any) -> None:
    np.multiply(v, 2.0, out=v)


WRITES: list[Callable[[Any], None]] = [_add, _write_first, _write_last, _double]


def _program(draw: random.Random, operators: Sequence[Any]) -> Program:
    every: Sequence[Sequence[Any]] = (operators, STEPS, WRITES)
    groups = draw.choices(every, [3, 5, 4], k=draw.randint(4, 8))
    steps = [(draw.choice(group), draw.randrange(3)) for group in groups]

    def program(x: Any) -> tuple[Any, ...]:
        values = [x * 1.0]
        for step, back in steps:
            found = step(values[max(0, len(values) - 1 - back)])
            values += [] if found is None else [found]
        return tuple(values)

    return program


# ---- ways to run them: what was found, and what NumPy gives ----

Ran = tuple[Sequence[Any], Sequence[Any]]
Layout = Callable[[Array], Array]


def _traced(mode: Any) -> Callable[..., Ran]:
    def way(program: Program, x: Array, layout: Layout) -> Ran:
        return co.make_fx(program, mode)(x)(x), program(x)

    return way


def _compiled(program: Program, x: Array, layout: Layout) -> Ran:
    run = co.compile(program)
    found = run(x)
    again = run(np.asfortranarray(x))
    return [*found, *again], [*program(x), *program(np.asfortranarray(x))]


def _pushed(program: Program, x: Array, layout: Layout) -> Ran:
    t = layout(np.sin(x))

    def jvp(x: Any, t: Any) -> Any:
        return co.jvp(program, (x,), (t,))

    out, tangents = co.compile(jvp)(x, t)
    expected = program(x)
    moved = program(layout(x + t))  # the programs are affine
    steps = [b - a for a, b in zip(expected, moved, strict=True)]
    return [*out, *tangents], [*expected, *steps]


def _batched(program: Program, x: Array, layout: Layout) -> Ran:
    rows = np.stack([x, x + 1.0, x * 2.0])
    found = co.vmap(co.compile(program))(rows)
    wanted = [program(row) for row in rows]
    return found, [np.stack(values) for values in zip(*wanted, strict=True)]


def _batched_last(program: Program, x: Array, layout: Layout) -> Ran:
    """The rows lie next to each other in memory, element by element."""
    rows = np.stack([x, x + 1.0, x * 2.0], axis=-1)
    found = co.vmap(program, in_dims=-1)(rows)
    wanted = [program(row) for row in np.moveaxis(rows, -1, 0)]
    return found, [np.stack(values) for values in zip(*wanted, strict=True)]


def _scanned(program: Program, x: Array, layout: Layout) -> Ran:
    rows = layout(np.stack([x, x + 1.0, x * 2.0]))

    def body(carry: Any, row: Any) -> Any:
        values = program(carry)
        last = [v for v in values if v.shape == carry.shape][-1]
        return last * 0.25 + row, values

    carry, found = co.compile(lambda c, xs: co.scan(body, c, xs))(x, rows)
    wanted = []
    for row in rows:
        x, values = body(x, row)
        wanted.append(values)
    stacked = [np.stack(values) for values in zip(*wanted, strict=True)]
    return [carry, *found], [x, *stacked]


def _branched(program: Program, x: Array, layout: Layout) -> Ran:
    def either(p: Any, x: Any, cond: Any) -> Any:
        y = cond(p, lambda x: program(x)[-1], lambda x: program(x)[-1] * 1.0, x)
        row = y.reshape(-1)
        row += 1.0
        return y, row

    p = np.array(bool(x.shape[0] % 2))
    graph = co.make_fx(lambda p, x: either(p, x, co.cond), "fake")(p, x)
    return graph(p, x), either(p, x, lambda p, yes, no, x: yes(x) if p else no(x))


WAYS: dict[str, Callable[..., Ran]] = {
    "real": _traced("real"),
    "fake": _traced("fake"),
    "symbolic": _traced("symbolic"),
    "compile": _compiled,
    "jvp": _pushed,
    "vmap": _batched,
    "vmap, last axis": _batched_last,
    "scan": _scanned,
    "cond": _branched,
}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::customop.CustomOpWarning")
@pytest.mark.parametrize("way", WAYS)
def test_graphs_give_the_values_of_numpy_or_an_error(way: str) -> None:
    """Most programs run; the others say that strides are not those of the trace."""
    for op in OPERATORS:
        op(np.ones(2))  # proves the kernel, where there is only one order
    outcomes: Counter[str] = Counter()
    for seed in (*range(_COUNT), 292):
        draw = random.Random(seed)
        program = _program(draw, OPERATORS)
        shape = draw.choice([(2, 3), (3, 2), (2, 3, 2), (3, 1, 2)])
        layout = draw.choice(LAYOUTS)
        x = layout(np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape))
        try:
            program(x)
        except (ValueError, IndexError):
            continue  # it asks for an axis or a length that is not there
        try:
            found, expected = WAYS[way](program, x, layout)
        except co.CustomOpError as error:
            outcomes[type(error).__name__] += 1
            continue
        outcomes["right"] += 1
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=str(seed))
    assert {*outcomes} <= {"right", "GuardError"}
    assert outcomes["right"] > _COUNT // 2


# In a branch, the seed 292 writes a result that is reversed although its fake is not.
_COUNT = 100
