"""Inputs that are found for operators, their variations, and their text."""

from __future__ import annotations

import dataclasses
import enum
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import strategies as st

import customop as co
from customop.arrays.nested import children
from customop.core.registry import operators
from customop.testing import Sample
from customop.testing.inputs.find import base_samples
from customop.testing.inputs.memory import fresh
from customop.testing.inputs.numbers import fill
from customop.testing.inputs.places import arrays_in
from customop.testing.inputs.shrink import shrink
from customop.testing.inputs.variations import dtypes, layouts
from customop.testing.reproduce import repro, show_sample

from . import probed
from .probed import CASES

NUMPY = [name for name in operators if name.startswith("np::")]


def operator(fn: Callable[..., Any], fake: Any = None, **options: Any) -> Any:
    """Make an operator of a function, defined anew by each test."""
    given = {"mutates_args": (), **options}
    op = co.custom_op(f"probed::{fn.__name__.strip('_')}", fn, **given)
    return op if fake is None else op.register_fake(fake, override=True)


def shapes_of(op: Any, sample: Sample) -> list[tuple[int, ...]]:
    return [x.shape for _, x, _ in arrays_in(op, sample)]


def is_like(shapes: list[tuple[int, ...]], axes: str) -> bool:
    """Whether shapes are those of a text such as "ab,b3": other letters differ."""
    wanted = axes.split(",") if axes else []
    if [len(s) for s in shapes] != [len(w) for w in wanted]:
        return False
    known: dict[str, int] = {}
    pairs = [
        p for s, w in zip(shapes, wanted, strict=True) for p in zip(w, s, strict=True)
    ]
    for letter, n in pairs:
        if (int(letter) if letter.isdigit() else known.setdefault(letter, n)) != n:
            return False
    return len(set(known.values())) == len(known)


def is_finite(out: Any) -> bool:
    items = children(out)
    if items is not None:
        return all(map(is_finite, items))
    kind = getattr(out, "dtype", np.dtype("i")).kind
    return kind not in "fc" or bool(np.isfinite(out).all())


# ---- inputs that are found ----


@pytest.mark.parametrize("with_fake", [False, True], ids=["no fake", "fake"])
@pytest.mark.parametrize("name", CASES)
def test_the_function_takes_what_is_found(name: str, with_fake: bool) -> None:
    """Every sample runs on the plain function, with finite results and no warning."""
    fn, fake, axes = CASES[name]
    if with_fake and fake is None:
        fake = _no_fake
    op = operator(fn, fake if with_fake else None)
    samples = base_samples(op)
    assert samples
    for sample in samples:
        own = fresh(sample)
        assert is_finite(fn(*own.args, **own.kwargs)), show_sample(op, sample)
    assert any(is_like(shapes_of(op, s), axes) for s in samples)


def _no_fake(*_args: Any, **_keywords: Any) -> Any:
    """Stand for a fake kernel that knows nothing of shapes: it takes everything."""
    return co.FakeArray(())


@pytest.mark.parametrize("name", NUMPY)
def test_inputs_of_numpy_operators(name: str) -> None:
    """Inputs are found for every operator of NumPy, which its kernel takes quietly."""
    op = operators[name]
    samples = base_samples(op)
    assert len(samples) >= 3
    for sample in samples:
        own = fresh(sample)
        out = op.rule("cpu")(*op.bind(*own.args, **own.kwargs))
        # np.add.at reads past the end of values that it broadcasts (NumPy 2.4.6).
        assert is_finite(out) or name == "np::scatter_add"


def test_table_covers_signatures() -> None:
    """The table of functions has at least 40 rows, half of which have a fake kernel."""
    assert len(CASES) >= 60
    assert sum(fake is not None for _, fake, _ in CASES.values()) >= 20


@pytest.mark.parametrize("name", ["matmul", "attention", "layer_norm", "pad", "smooth"])
def test_samples_come_small_first(name: str) -> None:
    """Samples are ordered by the elements of their arrays."""
    op = operator(CASES[name][0])
    sizes = [sum(x.size for _, x, _ in arrays_in(op, s)) for s in base_samples(op)]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("name", CASES)
def test_samples_differ(name: str) -> None:
    """No two samples are the same call."""
    op = operator(CASES[name][0])
    shown = [show_sample(op, s) for s in base_samples(op)]
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize("name", ["matmul", "embedding", "dropout", "cholesky", "pad"])
def test_samples_are_the_same_each_time(name: str) -> None:
    """The same operator, defined again, is given the same numbers."""
    first = base_samples(operator(CASES[name][0]))
    op = operator(CASES[name][0])
    texts = [[repro(op, s) for s in found] for found in (first, base_samples(op))]
    assert texts[0] == texts[1]


def test_seeds_give_other_numbers() -> None:
    """Another seed gives arrays of the same shapes and other numbers."""
    op = operator(probed.matmul)
    first, other = (base_samples(op, seed=seed)[0] for seed in (0, 1))
    assert shapes_of(op, first) == shapes_of(op, other)
    assert not np.array_equal(first.args[0], other.args[0])


@pytest.mark.parametrize("name", ["arcsin", "arccosh", "log_checked"])
def test_numbers_suit_by_more_than_chance(name: str) -> None:
    """Arrays without axes have numbers that suit at every seed."""
    op = operator(CASES[name][0])
    for seed in range(5):
        assert () in [s.args[0].shape for s in base_samples(op, seed=seed)]


def test_count_limits() -> None:
    """No more samples come than are asked for."""
    assert len(base_samples(operator(probed.layer_norm), count=3)) == 3


@pytest.mark.parametrize(
    ("family", "low", "high"),
    [("wide", -2.9, 2.9), ("unit", -0.9, 0.9), ("positive", 0.1, 0.9)],
)
def test_numbers_keep_away_from_kinks(family: str, low: float, high: float) -> None:
    """Numbers differ from one another, and from zero and all multiples of a half."""
    x = fill(family, (40, 10), np.dtype("f8"), seed=1)
    assert low <= x.min() <= 0.9 * low + 0.1 * high
    assert high >= x.max() >= 0.9 * high + 0.1 * low
    assert len(np.unique(np.abs(x))) == x.size
    assert (np.abs(2 * x - np.round(2 * x)) > 0.19).all()


SPECIAL_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "sorted": lambda x: (np.diff(x) > 0).all(),
    "probabilities": lambda x: np.allclose(x.sum(-1), 1) and (x > 0).all(),
    "unit length": lambda x: np.allclose((x * x).sum(-1), 1),
    "definite": lambda x: (
        np.allclose(x, x.swapaxes(-1, -2)) and (np.linalg.eigvalsh(x) > 0.1).all()
    ),
    "orthogonal": lambda x: (
        np.allclose(x @ x.swapaxes(-1, -2), np.eye(4))
        and np.allclose(np.linalg.det(x), 1)
    ),
    "triangular": lambda x: np.allclose(x, np.tril(x)) and (np.linalg.det(x) > 0).all(),
}


@pytest.mark.parametrize("family", SPECIAL_NUMBERS)
def test_numbers_with_a_structure(family: str) -> None:
    """What some kernels ask for is there, in every matrix of an array of them."""
    for seed in range(5):
        x = fill(family, (3, 4, 4), np.dtype("f8"), seed)
        assert SPECIAL_NUMBERS[family](x)


def test_whole_numbers() -> None:
    """Indices stay below their limit; counts are positive; signed ones never zero."""
    rows = {
        name: fill(name, (50,), np.dtype("i8"), 0, 3)
        for name in ("index", "count", "signed")
    }
    assert set(rows["index"]) == {0, 1, 2}
    assert rows["count"].min() == 1
    assert set(np.sign(rows["signed"])) == {-1, 1}


def ranks_found(fn: Callable[..., Any]) -> set[tuple[int, ...]]:
    op = operator(fn)
    return {tuple(map(len, shapes_of(op, s))) for s in base_samples(op)}


def test_several_numbers_of_axes() -> None:
    """What takes any array is given arrays of none to three axes."""

    def negate(x: np.ndarray) -> np.ndarray:
        return -x

    assert ranks_found(negate) == {(0,), (1,), (2,), (3,)}


def test_broadcasting_of_equal_parts() -> None:
    """Two arrays that play equal parts are given shapes of which either is larger."""

    def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    found = ranks_found(add)
    assert {(1, 1), (2, 1), (1, 2)} <= found


def test_no_array_outgrows_the_first_by_chance() -> None:
    """An array that only happens to be broadcast stays as small as the first."""

    def shift(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return x + bias

    assert all(first >= other for first, other in ranks_found(shift))


def test_kernels_that_broadcast_are_known_by_their_results() -> None:
    """Where a result has the shape of all arrays broadcast, any of them is larger.

    A fake kernel that tells the shape of the first alone is found out by that.
    """

    def price(cost: np.ndarray, tax: np.ndarray, discount: float = 0.1) -> np.ndarray:
        return cost * (1 + tax) * (1 - discount)

    op = operator(price, lambda cost, tax, discount: co.fake_like(cost))
    shapes = [shapes_of(op, s) for s in base_samples(op)]
    assert any(len(a) < len(b) for a, b in shapes)
    assert [(1,), (3,)] in shapes
    assert [(3,), (1,)] in shapes


def test_options_are_given_and_left_out() -> None:
    """An optional array and a keyword are left out, given, and given with others."""

    def norm(
        x: np.ndarray, weight: np.ndarray | None = None, *, eps: float = 1e-5
    ) -> np.ndarray:
        return x * (1.0 if weight is None else weight) + eps

    given = {
        (len(s.args) > 1 or "weight" in s.kwargs, "eps" in s.kwargs)
        for s in base_samples(operator(norm))
    }
    assert given == {(False, False), (True, False), (False, True), (True, True)}


def test_all_choices_are_tried() -> None:
    """Each member of an Enum that is accepted is among the samples."""
    samples = base_samples(operator(probed.one_sided))
    assert {s.args[1] for s in samples} == set(probed.Side)


def test_arrays_that_are_written_can_be() -> None:
    """An operator that writes is found inputs for, and they stay as they are."""

    def rescale(x: np.ndarray, factor: float) -> None:
        x *= factor

    op = operator(rescale, mutates_args=("x",))
    first, again = base_samples(op), base_samples(op)
    for a, b in zip(first, again, strict=True):
        assert a.args[0].flags.writeable
        np.testing.assert_array_equal(a.args[0], b.args[0])


def test_out_arrays() -> None:
    """A keyword-only array that is written fits the result."""

    def double(x: np.ndarray, *, out: np.ndarray) -> np.ndarray:
        return np.multiply(x, 2, out=out)

    op = operator(double, mutates_args=("out",), tags=co.Tag.out)
    for sample in base_samples(op):
        assert sample.kwargs["out"].shape == np.broadcast_shapes(
            sample.args[0].shape, sample.kwargs["out"].shape
        )


def test_the_fake_kernel_says_what_fits() -> None:
    """Where the kernel takes everything, the fake kernel decides on the shapes."""

    def total(x: np.ndarray) -> np.ndarray:
        return np.asarray(x.sum())

    def fake(x: Any) -> Any:
        probed.need(x.ndim == 3)
        return co.fake_like(x, shape=())

    samples = base_samples(operator(total, fake))
    assert {s.args[0].ndim for s in samples} == {3}


def test_a_fake_kernel_that_refuses_all() -> None:
    """A fake kernel that takes nothing is passed over: its fault is to be found."""

    def twice(x: np.ndarray) -> np.ndarray:
        return 2 * x

    def fake(x: Any) -> Any:
        raise RuntimeError

    assert base_samples(operator(twice, fake))


def test_kernels_of_other_kinds_alone() -> None:
    """Without a kernel for NumPy arrays the fake kernel alone decides."""

    def halve(x: np.ndarray) -> np.ndarray:
        return x / 2

    op = operator(halve, device_types="cuda").register_fake(lambda x: co.fake_like(x))
    assert base_samples(op)


def test_warnings_count_against_inputs() -> None:
    """Numbers that the kernel warns of are left out where others are accepted."""

    def careful(x: np.ndarray) -> np.ndarray:
        if (x < 0).any():
            warnings.warn("negative", RuntimeWarning, stacklevel=1)
        return np.sqrt(np.abs(x))

    samples = base_samples(operator(careful))
    assert all((s.args[0] > 0).all() for s in samples)


def test_results_that_are_not_finite_count_too() -> None:
    """A kernel that gives nan in silence is given other numbers."""

    def silent(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.log(x)

    for sample in base_samples(operator(silent)):
        assert (sample.args[0] > 0).all()


def test_shapes_with_a_warning_are_left_out() -> None:
    """Shapes that the kernel takes with a warning come not, beside those without."""

    def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if x.shape != y.shape:
            warnings.warn("broadcasting", RuntimeWarning, stacklevel=1)
        return x + y

    samples = base_samples(operator(add))
    assert [s.args[0].shape for s in samples] == [s.args[1].shape for s in samples]


def test_warnings_of_the_future_do_not_count() -> None:
    """What is deprecated says nothing of the numbers: negative ones come too."""

    def old(x: np.ndarray) -> np.ndarray:
        if x.size and (x < 0).any():
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        return 1 * x

    assert any((s.args[0] < 0).any() for s in base_samples(operator(old)))


def test_inputs_that_only_come_with_a_warning() -> None:
    """Where nothing is taken without a warning, inputs come with one."""

    def noisy(x: np.ndarray) -> np.ndarray:
        warnings.warn("always", RuntimeWarning, stacklevel=1)
        return 1 * x

    assert base_samples(operator(noisy))


def test_probing_leaves_no_trace() -> None:
    """Warning filters, error state and the settings of checks stay as they were."""
    before = (list(warnings.filters), np.geterr(), co.config.checks)
    base_samples(operator(probed.arccosh))
    assert (list(warnings.filters), np.geterr(), co.config.checks) == before


def test_probing_keeps_the_random_state() -> None:
    """A kernel that draws from NumPy's global generator draws nothing for others."""

    def jitter(x: np.ndarray) -> np.ndarray:
        return x + np.random.random(x.shape)  # noqa: NPY002

    np.random.seed(7)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    base_samples(operator(jitter))
    assert np.random.random() == expected  # noqa: NPY002


def test_probing_proves_nothing() -> None:
    """The first call after the search still proves the contract of the kernel."""

    def alias(x: np.ndarray) -> np.ndarray:
        return x

    op = operator(alias)
    samples = base_samples(op)
    with pytest.raises(co.ContractError, match="shares memory"):
        op(*samples[0].args)


def test_found_inputs_are_forgotten_with_the_kernel() -> None:
    """A new kernel is asked anew."""

    def first(x: np.ndarray) -> np.ndarray:
        probed.need(x.ndim == 1)
        return x * 1

    def second(x: np.ndarray) -> np.ndarray:
        probed.need(x.ndim == 2)
        return x * 1

    op = operator(first)
    assert {s.args[0].ndim for s in base_samples(op)} == {1}
    op.register_kernel("cpu", second)
    assert {s.args[0].ndim for s in base_samples(op)} == {2}


def _impossible(x: np.ndarray) -> np.ndarray:
    text = "never"
    raise ValueError(text)


def test_nothing_is_found() -> None:
    """The error says what the kernel said last, and what to write."""
    op = operator(_impossible)
    with pytest.raises(co.ArgumentError) as caught:
        base_samples(op)
    line = _impossible.__code__.co_firstlineno
    assert str(caught.value) == (
        "probed::impossible: no inputs are found that its kernels accept; the last"
        " error was ValueError: never\n"
        "  probed::impossible(Array x) -> Array\n"
        f"  at {__file__}:{line}\n"
        "  do: @impossible.register_sample_inputs, a function that returns a list of"
        " tuples of arguments, or pass args"
    )


def test_kernels_that_need_c_order() -> None:
    """A kernel that is promised C order has it in the search too."""

    def first(x: np.ndarray) -> np.ndarray:
        probed.need(x.flags.c_contiguous)
        return x.ravel()[:1] * 1

    op = operator(first, tags=co.Tag.needs_contiguous)
    sample = Sample((np.ones((3, 4)).T,))
    found = shrink(op, sample, lambda s: not s.args[0].flags.c_contiguous)
    assert found.args[0].shape == (2,)


def test_kernels_that_change_their_arguments() -> None:
    """A kernel that writes what it must not changes no sample."""

    def clear(x: np.ndarray) -> np.ndarray:
        out = x * 1
        x[...] = 0
        return out

    for sample in base_samples(operator(clear)):
        assert (sample.args[0] != 0).all()


def _shaped(text: str, *others: str) -> Any:
    """A kernel whose annotations say these shapes, and which checks nothing."""

    def one(x: Any) -> Any:
        return np.asarray(x.sum())

    def two(x: Any, y: Any) -> Any:
        return np.asarray(x.sum() + y.sum())

    fn = two if others else one
    hints = [Annotated[co.Array, t] for t in (text, *others)]
    names = dict(zip(("x", "y"), hints, strict=False))
    fn.__annotations__ = {**names, "return": co.Array}
    return operator(fn)


@pytest.mark.parametrize(
    ("texts", "axes"),
    [
        (("n 7",), "a7"),
        (("3 4 5",), "345"),
        (("m k", "k n"), "ab,bc"),
        (("n", "n+1"), "3,4"),
        (("... n", "n"), "ab,b"),
        (("*batch 2 2", "*batch 2"), "a22,a2"),
    ],
)
def test_shapes_that_annotations_say(texts: tuple[str, ...], axes: str) -> None:
    """Arrays have the axes of their annotations, at several lengths."""
    op = _shaped(*texts)
    assert any(is_like(shapes_of(op, s), axes) for s in base_samples(op))


# ---- inputs that are registered ----


@pytest.fixture
def double() -> Any:
    def double(x: np.ndarray, k: float = 2.0) -> np.ndarray:
        return x * k

    return operator(double)


def test_registered_samples_are_used(double: Any) -> None:
    """Registered inputs come as they are, tuples as positional arguments."""
    x = np.ones(2)
    given = Sample((x,), {"k": 3.0}, "threefold")
    double.register_sample_inputs(lambda: [given, (x, 1.0)])
    first, second = base_samples(double)
    assert first is given
    assert (second.args, second.kwargs) == ((x, 1.0), {})


def test_registering_decorates_and_chains(double: Any) -> None:
    """As a method it gives the operator, as a decorator the function."""
    one = lambda: [(np.ones(1),)]
    assert double.register_sample_inputs(one) is double
    decorator = double.register_sample_inputs(override=True)
    assert decorator(one) is one
    by_name = co.register_sample_inputs("probed::double", override=True)
    assert by_name(one) is one


def test_a_generator_function_registers(double: Any) -> None:
    """A function may yield its samples."""

    def samples() -> Iterator[Any]:
        yield (np.ones(1),)
        yield (np.ones(2),)

    double.register_sample_inputs(samples)
    assert [s.args[0].size for s in double.sample_inputs()] == [1, 2]


def test_a_strategy_registers(double: Any) -> None:
    """A hypothesis strategy is drawn from, the same each time."""
    strategy = st.integers(1, 5).map(lambda n: (np.ones(n), float(n)))
    double.register_sample_inputs(lambda: strategy)
    drawn = [[s.args[1] for s in double.sample_inputs()] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) <= {1.0, 2.0, 3.0, 4.0, 5.0}


def test_a_second_registration_needs_override(double: Any) -> None:
    """Two functions for one operator are an error, as for other rules."""
    double.register_sample_inputs(list)

    def other() -> list[Any]:
        return []

    with pytest.raises(co.RegistrationError, match="'sample_inputs' rule already"):
        double.register_sample_inputs(other)


def test_a_function_with_parameters_is_refused(double: Any) -> None:
    """The function takes nothing: found at registration."""
    with pytest.raises(co.RegistrationError, match="takes \\(n\\) by position"):
        double.register_sample_inputs(lambda n: [])


def test_a_library_takes_samples_back(double: Any) -> None:
    """What a library registers ends with it."""
    with co.Library("probed", "IMPL") as lib:
        co.register_sample_inputs(double, lambda: [(np.ones(7),)], lib=lib)
        assert base_samples(double)[0].args[0].shape == (7,)
    assert double.sample_inputs() == ()


def _not_samples() -> Any:
    return {"x": 1}


def _not_tuples() -> Any:
    return [np.ones(3)]


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (_not_samples, "gives dict"),
        (_not_tuples, "gives an item of type ndarray"),
    ],
)
def test_registered_function_gives_something_else(
    double: Any, fn: Any, reason: str
) -> None:
    """The error names the function and what it must return."""
    double.register_sample_inputs(fn)
    with pytest.raises(co.ArgumentError) as caught:
        base_samples(double)
    assert str(caught.value) == (
        f"probed::double: the function of register_sample_inputs {reason}\n"
        f"  at {__file__}:{fn.__code__.co_firstlineno}\n"
        "  do: return a list of tuples of arguments, of Sample(args, kwargs), or a"
        " hypothesis strategy of these"
    )


def test_registered_sample_does_not_fit(double: Any) -> None:
    """A sample that lacks an argument is told before anything runs."""
    double.register_sample_inputs(lambda: [()])
    with pytest.raises(co.ArgumentError) as caught:
        base_samples(double)
    assert str(caught.value) == (
        "probed::double: a sample of register_sample_inputs does not fit:"
        " probed::double()"
        " missing 1 required positional argument: 'x'\n"
        "  probed::double(Array x, float k=2.0) -> Array\n"
        "  do: give it the arguments of a call"
    )


# ---- layouts ----

SPECIAL = ("no axes", "no length", "broadcast")


def notes(found: list[Sample]) -> set[str]:
    return {s.note.partition(" of ")[0].partition(" in ")[0] for s in found}


@pytest.fixture
def pair() -> tuple[Any, Sample]:
    op = operator(probed.batched_matmul)
    return op, base_samples(op)[-1]


def test_layouts_have_equal_values(pair: tuple[Any, Sample]) -> None:
    """A layout changes nothing but strides and flags."""
    op, sample = pair
    kept = [s for s in layouts(op, sample) if not s.note.startswith(SPECIAL)]
    assert len(kept) > 15
    for varied in kept:
        for a, b in zip(varied.args, sample.args, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


@pytest.mark.parametrize(
    ("note", "holds"),
    [
        ("non-contiguous", lambda x: not x.flags.forc),
        ("rows with gaps between", lambda x: not x.flags.forc),
        ("negative strides", lambda x: all(s < 0 for s in x.strides)),
        ("Fortran order", lambda x: x.flags.f_contiguous and not x.flags.c_contiguous),
        ("last axis first in memory", lambda x: x.strides[-1] == max(x.strides)),
        ("unaligned", lambda x: not x.flags.aligned),
        ("read-only", lambda x: not x.flags.writeable),
        ("broadcast", lambda x: 0 in x.strides),
    ],
)
def test_layouts_are_what_they_say(
    pair: tuple[Any, Sample], note: str, holds: Callable[[Any], bool]
) -> None:
    """Each layout comes for each array by itself and for all, as its note says."""
    op, sample = pair
    found = {s.note: s for s in layouts(op, sample) if s.note.startswith(note)}
    assert set(found) == {f"{note} of {w}" for w in ("'a'", "'b'", "all arrays")}
    assert holds(found[f"{note} of 'a'"].args[0])
    assert found[f"{note} of 'a'"].args[1] is sample.args[1]
    assert holds(found[f"{note} of 'b'"].args[1])
    assert all(map(holds, found[f"{note} of all arrays"].args))


def test_other_shapes_are_those_that_are_accepted(pair: tuple[Any, Sample]) -> None:
    """Empty axes come together where the operator wants them equal; no axes, not."""
    op, sample = pair
    found = [s for s in layouts(op, sample) if s.note.startswith(("no length", "no a"))]
    shapes = [shapes_of(op, s) for s in found]
    (n, i, j), (_, _, k) = shapes_of(op, sample)
    assert sorted(shapes) == sorted(
        [
            [(0, i, j), (0, j, k)],
            [(n, 0, j), (n, j, k)],
            [(n, i, 0), (n, 0, k)],
            [(n, i, j), (n, j, 0)],
            *[[(n, 0, j), (n, j, k)], [(n, i, j), (n, j, 0)]],
        ]
    )


def test_arrays_without_axes() -> None:
    """What takes arrays without axes is given one with a value of the sample."""
    op = operator(probed.arcsin)
    sample = base_samples(op)[-1]
    (found,) = (s for s in layouts(op, sample) if s.note.startswith("no axes"))
    assert found.args[0].shape == ()
    assert found.args[0] == sample.args[0].flat[0]


def test_written_arrays_are_never_read_only() -> None:
    """An array that is written is never read-only nor broadcast."""

    def add_to(x: np.ndarray, y: np.ndarray) -> None:
        x += y

    op = operator(add_to, mutates_args=("x",))
    for sample in base_samples(op):
        for varied in layouts(op, sample):
            assert varied.args[0].flags.writeable
            assert 0 not in varied.args[0].strides or not varied.args[0].size


def test_layouts_reach_into_config_objects() -> None:
    """Arrays of lists and of config objects take layouts too."""
    op = operator(probed.smooth)
    sample = base_samples(op)[0]
    found = {s.note: s for s in layouts(op, sample)}
    varied = found["negative strides of 'window.taps'"]
    assert varied.args[1].taps.strides == (-8,)
    assert varied.args[1].shift == sample.args[1].shift
    lists = operator(probed.stack)
    names = {s.note for s in layouts(lists, base_samples(lists)[-1])}
    assert "Fortran order of 'arrays[1]'" in names


def test_layouts_leave_the_sample_alone(pair: tuple[Any, Sample]) -> None:
    """The arrays of the user are never changed."""
    op, sample = pair
    before = [x.copy() for x in sample.args]
    for varied in (*layouts(op, sample), *dtypes(op, sample)):
        for x in varied.args:
            if x.flags.writeable and not any(x is y for y in sample.args):
                x[...] = 0
    for x, y in zip(sample.args, before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_memory_around_a_layout_is_other() -> None:
    """A kernel that takes an array for contiguous reads other numbers, and its own."""
    op = operator(probed.arcsin)
    sample = Sample((np.array([0.1, 0.2, 0.3]),))
    for varied in layouts(op, sample):
        x = fresh(varied).args[0]
        if x.flags.c_contiguous or x.size < 3 or not x.flags.aligned:
            continue
        start = x.ctypes.data
        read = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_double * 3).from_address(start)
        )
        assert read[0] == 0.1
        assert not np.array_equal(read, sample.args[0])
        assert read[1] > 1e100 or read[1] in sample.args[0]


# ---- dtypes ----


def test_dtypes_of_any_number() -> None:
    """What takes any number is given each dtype, and the other byte order."""

    def negate(x: np.ndarray) -> np.ndarray:
        return 0 - x

    op = operator(negate)
    found = {s.args[0].dtype.str for s in dtypes(op, Sample((np.array([1.5, -2.5]),)))}
    own = {"f4", "f2", "f16", "c8", "c16", "i8", "i4", "i2", "u8", "u4", "u2"}
    assert {name[1:] for name in found} >= own | {"i1", "u1", "b1"}
    swapped = np.dtype("f8").newbyteorder("S").str
    assert swapped in found


def test_dtypes_keep_values() -> None:
    """Values are the same as far as the dtype has them."""
    op = operator(probed.scale)
    values = [1.5, -2.25]
    expected = {"f": values, "c": values, "i": [2, -3], "u": [2, 3], "b": [1, 0]}
    for varied in dtypes(op, Sample((np.array(values), 2.0))):
        x, factor = varied.args
        np.testing.assert_array_equal(x, expected.pop(x.dtype.kind, x))
        assert factor == 2.0
    assert expected == {}


def test_indices_and_masks_keep_their_dtype() -> None:
    """Indices are given other whole numbers, masks stay masks."""
    op = operator(probed.embedding)
    found = {s.args[1].dtype.kind for s in dtypes(op, base_samples(op)[0])}
    assert found == {"i"}

    def keep(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.where(mask, x, 0)

    masked = operator(keep)
    kinds = {s.args[1].dtype.kind for s in dtypes(masked, base_samples(masked)[0])}
    assert kinds == {"b"}


def test_dtypes_that_an_operator_is_not_meant_for() -> None:
    """Other kinds of numbers are left out where the fake kernel says another dtype."""

    def root(x: np.ndarray) -> np.ndarray:
        return np.sqrt(x)

    sample = Sample((np.array([1.5, 2.5]),))
    kinds = {s.args[0].dtype.kind for s in dtypes(operator(root), sample)}
    assert kinds >= {"f", "c", "i"}
    op = operator(root, lambda x: co.fake_like(x))
    assert {s.args[0].dtype.kind for s in dtypes(op, sample)} == {"f", "c"}
    # A fake kernel that is wrong for floats is not believed.
    op = operator(root, lambda x: co.fake_like(x, dtype=np.float64))
    assert "f4" in {s.args[0].dtype.str[1:] for s in dtypes(op, sample)}


# ---- copies ----


def test_fresh_keeps_layout_and_identity() -> None:
    """A copy has the strides and flags of its original, and nothing of its memory."""
    op = operator(probed.batched_matmul)
    sample = base_samples(op)[-1]
    for varied in layouts(op, sample):
        own = fresh(varied)
        for a, b in zip(own.args, varied.args, strict=True):
            assert a.strides == b.strides
            assert a.flags == b.flags or a.flags.owndata != b.flags.owndata
            assert a.flags.aligned == b.flags.aligned
            assert a.flags.writeable == b.flags.writeable
            np.testing.assert_array_equal(a, b)
            assert not np.shares_memory(a, b)


def test_fresh_keeps_one_array_one() -> None:
    """An array that is passed twice is passed twice in the copy too."""
    x = np.ones(2)
    own = fresh(Sample((x, x)))
    assert own.args[0] is own.args[1]
    assert own.args[0] is not x


def test_fresh_generators_draw_alike() -> None:
    """A Generator is copied with its state: drawing from one moves no other."""
    sample = Sample((np.random.default_rng(3),))
    first, second = (fresh(sample).args[0].random() for _ in range(2))
    assert first == second == sample.args[0].random()


# ---- shrinking ----


def shrunk(op: Any, sample: Sample, fails: Callable[..., bool]) -> Sample:
    return shrink(op, sample, lambda s: fails(*s.args, **s.kwargs))


def big() -> Sample:
    rng = np.random.default_rng(0)
    return Sample((rng.uniform(1, 2, (7, 5, 6)), rng.uniform(1, 2, (7, 6, 8))))


@pytest.mark.parametrize(
    ("fails", "shapes"),
    [
        (lambda a, b: True, [(1, 1, 1), (1, 1, 1)]),
        (lambda a, b: a.shape[1] > 2, [(1, 3, 1), (1, 1, 1)]),
        (lambda a, b: b.shape[2] > 1 and a.shape[0] > 1, [(2, 1, 1), (2, 1, 2)]),
        (lambda a, b: a.size + b.size > 20, [(1, 1, 1), (1, 1, 20)]),
    ],
)
def test_shrinks_to_the_smallest_arrays(
    fails: Callable[..., bool], shapes: list[Any]
) -> None:
    """Axes become as short as the failure and the kernel let them."""
    op = operator(probed.batched_matmul)
    found = shrunk(op, big(), fails)
    assert fails(*found.args)
    sizes = [x.size for x in found.args]
    assert sum(sizes) <= sum(int(np.prod(s)) for s in shapes)


def test_shrinking_drops_axes() -> None:
    """Axes that the operator can do without go."""
    op = operator(probed.scale)
    found = shrunk(op, Sample((np.ones((3, 4, 5)) * 1.5, 2.5)), lambda x, k: k > 1)
    assert found.args[0].shape == ()


def test_shrinking_keeps_the_layout_that_fails() -> None:
    """A failure that needs negative strides keeps them, in fewer elements."""
    op = operator(probed.arcsin)
    x = np.linspace(0.1, 0.9, 9)[::-1]
    found = shrunk(op, Sample((x,)), lambda x: x.ndim == 1 and x.strides[0] < 0)
    assert found.args[0].strides == (-8,)
    assert found.args[0].size <= 2


@pytest.mark.parametrize(
    ("fails", "note"),
    [
        (lambda x, k: x.dtype == np.float16, "float16 in all arrays"),
        (lambda x, k: x.size > 0, ""),
    ],
    ids=["it matters", "it does not"],
)
def test_shrinking_keeps_a_note_that_is_true(fails: Any, note: str) -> None:
    """What is special about a sample is told as long as it is true."""
    x = np.array([1.0, 2.0, 3.0], np.float16)
    sample = Sample((x, 2.5), note="float16 in all arrays")
    found = shrunk(operator(probed.scale), sample, fails)
    assert found.note == note


def test_shrinking_plains_what_does_not_matter() -> None:
    """Layout, dtype, options and long numbers go where they do not matter."""
    op = operator(probed.layer_norm)
    x = np.asfortranarray(np.linspace(0.1234, 0.9876, 12).reshape(3, 4).astype("f4"))
    given = Sample((x,), {"weight": np.ones(4, "f4"), "bias": None})
    found = shrunk(op, given, lambda x, **_: x.ndim == 2 and x.shape[1] > 1)
    assert found.kwargs == {}
    (x,) = found.args
    assert (x.shape, x.dtype.name, x.flags.c_contiguous) == ((1, 2), "float64", True)
    assert [len(str(v)) <= 4 for v in x.ravel()] == [True, True]


def test_shrinking_makes_scalars_simple() -> None:
    """Numbers, lists and config objects become simple."""
    op = operator(probed.polynomial)
    given = Sample((np.array([0.5]), [3.5, -2.25, 7.125]))
    found = shrunk(op, given, lambda x, coefficients: len(coefficients) > 1)
    assert found.args[1] == [0.0, 0.0]
    smooth = operator(probed.smooth)
    window = probed.Window(np.ones(3), 12, 7.5)
    found = shrunk(
        smooth, Sample((np.ones(4), window)), lambda x, window: window.shift > 4
    )
    assert (found.args[1].shift, found.args[1].gain) == (5, 0.0)


def test_shrinking_gives_only_what_the_kernel_takes() -> None:
    """A smaller sample that the kernel refuses is none, though `fails` says so."""
    op = operator(probed.quaternion_multiply)
    sample = base_samples(op)[-1]
    found = shrunk(op, sample, lambda p, q: True)
    assert shapes_of(op, found) == [(4,), (4,)]


def test_shrinking_keeps_numbers_apart() -> None:
    """Distinct numbers stay distinct, and none becomes zero: no kink is made."""
    op = operator(probed.arcsin)
    x = np.array([0.1234, 0.1267, 0.0123])
    found = shrunk(op, Sample((x,)), lambda x: x.size > 2)
    assert len(np.unique(found.args[0])) == 3
    assert (found.args[0] != 0).all()


def test_shrinking_ends() -> None:
    """It ends in the time that it is given, with a sample that fails."""
    op = operator(probed.scale)
    asked = []

    def fails(s: Sample) -> bool:
        asked.append(s)
        return True

    sample = Sample((np.ones((4, 5)), 2.5))
    assert shrink(op, sample, fails, tries=0) is sample
    assert asked == []


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
    """What the script of a sample calls its operator with."""
    text = repro(op, sample)
    head, _, call = text.rpartition("print(")
    target = f"co.ops.{op.namespace}.{op.name}.default"
    names: dict[str, Any] = {"catch": lambda *a, **k: Sample(a, k)}
    exec(head + call.replace(target, "found = catch").rstrip()[:-1], names)
    return names["found"]


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same in all that a call can see."""
    if isinstance(a, np.ndarray):
        alike = a.dtype == b.dtype and a.strides == b.strides and a.shape == b.shape
        flags = [(v.flags.writeable, v.flags.aligned) for v in (a, b)]
        values = a.dtype.kind == "V" or np.array_equal(
            a, b, equal_nan=a.dtype.kind in "fc"
        )
        return alike and flags[0] == flags[1] and values
    if hasattr(a, "bit_generator"):
        return str(a.bit_generator.state) == str(b.bit_generator.state)
    items = children(a)
    if items is not None:
        pairs = zip(items, children(b), strict=True)
        return type(a) is type(b) and all(same(x, y) for x, y in pairs)
    return type(a) is type(b) and (a == b or (a != a and b != b))  # noqa: PLR0124


def test_script_rebuilds_every_type() -> None:
    """Arrays, config objects, generators, nan and the rest come back as they were."""
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
    """Arrays of every dtype come back to the last bit."""
    op = operator(probed.fft)
    (found,) = rebuilt(op, Sample((ARRAYS[name],))).args
    assert found.tobytes() == ARRAYS[name].tobytes()
    assert same(found, ARRAYS[name])


@pytest.mark.parametrize("name", ["batched_matmul", "smooth", "stack", "weighted"])
def test_script_rebuilds_layouts(name: str) -> None:
    """Every layout comes back: strides, order and flags."""
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
    """The script of a found failure fails with the very error that was found."""
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
    """An operator of a program that was run itself comes by running its file."""
    program = PROGRAM + textwrap.dedent("""
        if __name__ == "__main__":
            from customop.testing.reproduce import repro
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


def test_script_text() -> None:
    """The script as it is read."""
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
