"""Parts of the checks of a sample: calls, differences, rows."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
import tests.conformance as table
from customop.core.registry import all_operators
from tests.cases import cases
from tests.conformance.samples import Sample
from tests.tiers import is_in_fifth


def all_samples() -> list[Sample]:
    """The samples of every module ``samples_*`` of this package."""
    return [sample for samples in families().values() for sample in samples]


def families() -> dict[str, list[Sample]]:
    """Return the samples of each module ``samples_*``, by the rest of its name."""
    names = sorted(m.name for m in pkgutil.iter_modules(table.__path__))
    return {
        name.removeprefix("samples_"): importlib.import_module(
            f"{table.__name__}.{name}"
        ).SAMPLES
        for name in names
        if name.startswith("samples_")
    }


def over(
    samples: Sequence[Sample], *, fifth: int | None = None, afresh: bool = False
) -> Callable[[Callable[[Sample], None]], Any]:
    """Run a test for samples; the default tier takes the first of each function.

    The exhaustive tier runs the others of a function, up to twelve, as cases of one test.

    Parameters
    ----------
    samples : sequence of Sample
        All of them run in the two tiers together.
    fifth : int from 0 to 4, optional
        The default tier takes only this fifth of the functions. Kinds of array that run
        the same code as others take a fifth each, so that every function is in one.
    afresh : bool
        Whether each sample begins without what operators worked out for those before.
    """
    default, others = [], []
    for sample, is_first in zip(samples, first_of_functions(samples), strict=True):
        is_default = is_first and (
            fifth is None or is_in_fifth(function_of(sample), fifth)
        )
        (default if is_default else others).append(sample)
    parameters = [pytest.param([sample], id=sample.name) for sample in default]
    parameters += groups_of(others)

    def decorate(check: Callable[[Sample], None]) -> Any:
        def run(group: list[Sample]) -> None:
            if len(group) == 1:
                check(group[0])
                return
            with cases() as case:
                for sample in group:
                    if afresh:
                        forget()
                    with case(sample.name):
                        check(sample)

        run.__name__, run.__doc__ = check.__name__, check.__doc__
        run.__module__, run.__qualname__ = check.__module__, check.__qualname__
        run.pytestmark = list(getattr(check, "pytestmark", []))  # type: ignore[attr-defined]  # pytest's
        return pytest.mark.parametrize("group", parameters)(run)

    return decorate


def groups_of(samples: Sequence[Sample]) -> list[Any]:
    """Return parameters of the exhaustive tier: samples by function, twelve at most.

    A test costs 3 ms in its worker and in the process that it reports to, as much as
    many a sample.
    """
    by_function: dict[str, list[list[Sample]]] = {}
    for sample in samples:
        groups = by_function.setdefault(_full_function_of(sample), [[]])
        if len(groups[-1]) == 12:
            groups.append([])
        groups[-1].append(sample)
    found = []
    for group in itertools.chain.from_iterable(by_function.values()):
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        name = f"{group[0].name}{more}"
        found.append(pytest.param(group, id=name, marks=pytest.mark.exhaustive))
    return found


def _full_function_of(sample: Sample) -> str:
    """Return the name of a function with the module of SciPy, if it is of one."""
    return re.split("[-_]", " ".join(sample.name.split(" ")[:2]))[0]


def forget() -> None:
    """Forget what operators have worked out, as a change of the settings does.

    It asks only those that were called since the last time.
    """
    for op in all_operators().values():
        if op.proven or "plans" in vars(op):
            op.changed(is_kernel=True)


def first_of_functions(samples: Sequence[Sample]) -> list[bool]:
    """Return for each sample whether it is the first one of its function."""
    functions = [function_of(sample) for sample in samples]
    return [f not in functions[:i] for i, f in enumerate(functions)]


def function_of(sample: Sample) -> str:
    """Return the name of the function that a sample calls."""
    return re.split("[-_ ]", sample.name)[0]


# ---- calls ----


def call(sample: Sample, *args: Any) -> Any:
    """The function of a sample on other arguments."""
    return sample.fn(*args, **sample.kwargs)


def leaves(value: Any) -> list[Any]:
    """Arrays and numbers of a result."""
    return list(optree.tree_leaves(value))


def is_float(value: Any) -> bool:
    """Whether a result has a derivative."""
    return any(
        kind in str(getattr(value, "dtype", "")) for kind in ("float", "complex")
    )


class Identity(co.Interpreter):
    """Runs every call as an operator, by the fast path and by the slow one."""

    kind = co.RuleKind("identity")

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run the operator both ways and compare the results."""
        self.seen.add(op.qualname)
        values = self.unwrap(args)
        out = op.invoke(values)
        count = len(op.schema.positional)
        names = [p.name for p in op.schema.keyword_only]
        keywords = dict(zip(names, values[count:], strict=True))
        for fast, slow in zip(
            leaves(out), leaves(op.dispatch(*values[:count], **keywords)), strict=True
        ):
            if isinstance(fast, np.ndarray | np.generic):
                np.testing.assert_array_equal(fast, slow)
        return self.wrap(out)


def through_operators(sample: Sample, *args: Any) -> tuple[Any, set[str]]:
    """The result of a sample that runs as operators, and the operators it used."""
    with Identity() as identity:
        given = [identity.wrap(a) if isinstance(a, np.ndarray) else a for a in args]
        out = call(sample, *given)
        return optree.tree_map(identity.lower, out), identity.seen


def operators_of(sample: Sample) -> set[str]:
    """The operators that a sample uses, in its backward formulas too."""
    _, seen = through_operators(sample, *sample.args)
    if sample.diff:
        with Identity() as identity:
            primals = [identity.wrap(sample.args[i]) for i in sample.diff]
            out, pullback = co.vjp(partial_of(sample), *primals)
            pullback(optree.tree_map(np.ones_like, out))
        seen |= identity.seen
    return seen


def partial_of(sample: Sample) -> Callable[..., Any]:
    """A sample as a function of the arguments to differentiate by; it returns floats only."""

    def fn(*primals: Any) -> tuple[Any, ...]:
        args = list(sample.args)
        for position, value in zip(sample.diff, primals, strict=True):
            args[position] = value
        return tuple(leaf for leaf in leaves(call(sample, *args)) if is_float(leaf))

    return fn


def primals_of(sample: Sample) -> list[Any]:
    """The arguments of a sample to differentiate by."""
    return [sample.args[i] for i in sample.diff]


# ---- directions and differences ----


def random_like(values: Sequence[Any], seed: int) -> tuple[Any, ...]:
    """Random arrays of the shapes and dtypes of others."""
    rng = np.random.default_rng(seed)
    found = []
    for value in map(np.asarray, values):
        x = rng.standard_normal(value.shape)
        if value.dtype.kind == "c":
            x = x + 1j * rng.standard_normal(value.shape)
        found.append(np.asarray(x).astype(value.dtype))
    return tuple(found)


def pairing(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Real part of the bilinear product of two lists of arrays."""
    pairs = zip(first, second, strict=True)
    return float(sum(np.real(np.sum(np.multiply(a, b))) for a, b in pairs))


def moved(values: Sequence[Any], direction: Sequence[Any], step: float) -> list[Any]:
    """The arrays after a step in a direction."""
    pairs = zip(values, direction, strict=True)
    return [x + step * d for x, d in pairs]


STEP = 1e-5


def difference(
    fn: Callable[..., Any], values: Sequence[Any], direction: Sequence[Any]
) -> list[Any]:
    """Derivatives of the results in a direction, by central differences.

    Two steps are combined so that the error falls with the fourth power of the step.
    """

    def slope(step: float) -> list[Any]:
        ahead = fn(*moved(values, direction, step))
        behind = fn(*moved(values, direction, -step))
        pairs = zip(ahead, behind, strict=True)
        return [(np.asarray(a) - np.asarray(b)) / (2 * step) for a, b in pairs]

    step = STEP * 20
    pairs = zip(slope(step), slope(2 * step), strict=True)
    return [(4 * near - far) / 3 for near, far in pairs]


def assert_near(actual: Any, expected: Any, tolerance: float = 1e-6) -> None:
    """Raise unless all values are close, relative to the largest one."""
    a, b = np.asarray(actual), np.asarray(expected)
    assert a.shape == b.shape
    scale = max(1.0, float(np.max(np.abs(b), initial=0.0)))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


# ---- rows of a batch ----


def batch_of(value: Any, size: int, dim: int) -> Any:
    """A batch whose rows are variations of an array, along the first or last axis."""
    if value.dtype.kind in "fc":
        rows = [value * (1.0 - 0.06 * i) for i in range(size)]
    else:
        rows = [np.roll(value, i) for i in range(size)]
    return np.stack([np.asarray(row, value.dtype) for row in rows], axis=dim)


def array_positions(sample: Sample) -> list[int]:
    """Positions of the arguments that are arrays."""
    return [i for i, a in enumerate(sample.args) if isinstance(a, np.ndarray)]


def subsets(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All nonempty choices of positions."""
    for count in range(1, len(positions) + 1):
        yield from itertools.combinations(positions, count)


def batched_args(
    sample: Sample, batched: Sequence[int], size: int, dim: int
) -> tuple[list[Any], tuple[int | None, ...]]:
    """Arguments with batches at some positions, and their in_dims."""
    args = list(sample.args)
    for i in batched:
        args[i] = batch_of(args[i], size, dim)
    dims = tuple(dim if i in batched else None for i in range(len(args)))
    return args, dims


def row_of(args: Sequence[Any], dims: Sequence[int | None], index: int) -> list[Any]:
    """One row of the arguments."""
    pairs = zip(args, dims, strict=True)
    return [a if d is None else np.take(a, index, axis=d) for a, d in pairs]
