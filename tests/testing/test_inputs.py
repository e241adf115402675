"""Inputs that are found for operators, and inputs that are registered."""

from __future__ import annotations

import itertools
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import strategies as st

import customop as co
from customop.arrays.nested import children
from customop.core.registry import all_operators
from customop.testing import Sample
from customop.testing.checks.check_runs import repro, show_sample
from customop.testing.inputs import search, templates
from customop.testing.inputs.input_patterns import base_samples
from customop.testing.inputs.sample_values import arrays_in, fresh
from customop.testing.inputs.shrink import shrink
from customop.testing.inputs.templates import fill
from tests.tiers import fifth_of

from . import probed
from .probed import CASES
from .sampling import operator, shapes_of

NUMPY = [name for name in all_operators() if name.startswith("np::")]


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
@pytest.mark.parametrize("name", fifth_of(CASES))
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
    """A fake kernel that accepts everything."""
    return co.FakeArray(())


@pytest.mark.parametrize("name", fifth_of(NUMPY))
def test_inputs_of_numpy_operators(name: str) -> None:
    """Inputs are found for every NumPy operator, and its kernel takes them silently."""
    op = all_operators()[name]
    samples = base_samples(op)
    assert len(samples) >= 3
    for sample in samples:
        own = fresh(sample)
        out = op.rule("cpu")(*op.bind(*own.args, **own.kwargs))
        # np.add.at reads past the end of values that it broadcasts (NumPy 2.4.6).
        assert is_finite(out) or name == "np::scatter_add"


def test_table_covers_signatures() -> None:
    """The table has at least 60 functions, 20 of them with a fake kernel."""
    assert len(CASES) >= 60
    assert sum(fake is not None for _, fake, _ in CASES.values()) >= 20


@pytest.mark.parametrize("name", ["matmul", "attention", "layer_norm", "pad", "smooth"])
def test_samples_come_small_first(name: str) -> None:
    """Samples are ordered by their number of elements."""
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
    """Arrays without axes get accepted numbers at every seed."""
    op = operator(CASES[name][0])
    for seed in range(5):
        assert () in [s.args[0].shape for s in base_samples(op, seed=seed)]


def test_count_limits() -> None:
    """`count` limits the number of samples."""
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
    """The special families have their property, in every matrix of a stack."""
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
    """An operator that takes any array gets arrays of zero to three axes."""

    def negate(x: np.ndarray) -> np.ndarray:
        return -x

    assert ranks_found(negate) == {(0,), (1,), (2,), (3,)}


def test_broadcasting_of_equal_parts() -> None:
    """Of two arrays that play equal parts, either is larger in some sample."""

    def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    found = ranks_found(add)
    assert {(1, 1), (2, 1), (1, 2)} <= found


def test_no_array_outgrows_the_first_by_chance() -> None:
    """An array that happens to broadcast does not get more axes than the first."""

    def shift(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return x + bias

    assert all(first >= other for first, other in ranks_found(shift))


def test_kernels_that_broadcast_are_known_by_their_results() -> None:
    """If the result has the broadcast shape, any array may be larger.

    This shows the fault of a fake kernel that returns the shape of the first.
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
    """Inputs for an operator that writes are writable, and are not changed."""

    def rescale(x: np.ndarray, factor: float) -> None:
        x *= factor

    op = operator(rescale, mutates_args=("x",))
    first, again = base_samples(op), base_samples(op)
    for a, b in zip(first, again, strict=True):
        assert a.args[0].flags.writeable
        np.testing.assert_array_equal(a.args[0], b.args[0])


def test_out_arrays() -> None:
    """A keyword-only `out` array fits the result."""

    def double(x: np.ndarray, *, out: np.ndarray) -> np.ndarray:
        return np.multiply(x, 2, out=out)

    op = operator(double, mutates_args=("out",), tags=co.Tag.out)
    for sample in base_samples(op):
        assert sample.kwargs["out"].shape == np.broadcast_shapes(
            sample.args[0].shape, sample.kwargs["out"].shape
        )


def test_the_fake_kernel_says_what_fits() -> None:
    """If the kernel accepts every shape, the fake kernel decides."""

    def total(x: np.ndarray) -> np.ndarray:
        return np.asarray(x.sum())

    def fake(x: Any) -> Any:
        probed.need(x.ndim == 3)
        return co.fake_like(x, shape=())

    samples = base_samples(operator(total, fake))
    assert {s.args[0].ndim for s in samples} == {3}


def test_a_fake_kernel_that_refuses_all() -> None:
    """A fake kernel that refuses everything is not asked, so that opcheck reports it."""

    def twice(x: np.ndarray) -> np.ndarray:
        return 2 * x

    def fake(x: Any) -> Any:
        raise RuntimeError

    assert base_samples(operator(twice, fake))


def test_kernels_of_other_kinds_alone() -> None:
    """Without a kernel for NumPy arrays only the fake kernel decides."""

    def halve(x: np.ndarray) -> np.ndarray:
        return x / 2

    op = operator(halve, device_types="cuda").register_fake(lambda x: co.fake_like(x))
    assert base_samples(op)


def test_warnings_count_against_inputs() -> None:
    """Numbers that make the kernel warn are avoided."""

    def careful(x: np.ndarray) -> np.ndarray:
        if (x < 0).any():
            warnings.warn("negative", RuntimeWarning, stacklevel=1)
        return np.sqrt(np.abs(x))

    samples = base_samples(operator(careful))
    assert all((s.args[0] > 0).all() for s in samples)


def test_results_that_are_not_finite_count_too() -> None:
    """Numbers that give nan silently are avoided."""

    def silent(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.log(x)

    for sample in base_samples(operator(silent)):
        assert (sample.args[0] > 0).all()


def test_shapes_with_a_warning_are_left_out() -> None:
    """Shapes that make the kernel warn are left out if others do not."""

    def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if x.shape != y.shape:
            warnings.warn("broadcasting", RuntimeWarning, stacklevel=1)
        return x + y

    samples = base_samples(operator(add))
    assert [s.args[0].shape for s in samples] == [s.args[1].shape for s in samples]


def test_warnings_of_the_future_do_not_count() -> None:
    """Deprecation warnings do not count against numbers."""

    def old(x: np.ndarray) -> np.ndarray:
        if x.size and (x < 0).any():
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        return 1 * x

    assert any((s.args[0] < 0).any() for s in base_samples(operator(old)))


def test_inputs_that_only_come_with_a_warning() -> None:
    """If everything makes the kernel warn, such inputs are used."""

    def noisy(x: np.ndarray) -> np.ndarray:
        warnings.warn("always", RuntimeWarning, stacklevel=1)
        return 1 * x

    assert base_samples(operator(noisy))


def test_probing_leaves_no_trace() -> None:
    """Warning filters, error state and settings are restored."""
    before = (list(warnings.filters), np.geterr(), co.config.checks)
    base_samples(operator(probed.arccosh))
    assert (list(warnings.filters), np.geterr(), co.config.checks) == before


def test_probing_keeps_the_random_state() -> None:
    """The global random state is restored after kernels have drawn from it."""

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
    """Inputs are found again for a new kernel."""

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
    """The error has the last error of the kernel, and the call to write."""
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


def test_slow_answers_of_kernels_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search counts calls, so a busy machine finds the same inputs."""
    expected = [
        repro(op, s) for op in [operator(probed.interp)] for s in base_samples(op)
    ]
    clock = itertools.count(step=0.002)  # seconds that each answer seems to take
    monkeypatch.setattr(search, "perf_counter", lambda: next(clock))
    op = operator(probed.interp)
    assert [repro(op, s) for s in base_samples(op)] == expected


def test_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends after a number of calls even if nothing is accepted."""
    monkeypatch.setattr(search, "_CALLS", 50)
    asked: list[Any] = []

    def refuses(x: np.ndarray) -> np.ndarray:
        asked.append(x)
        raise ValueError

    with pytest.raises(co.ArgumentError, match="no inputs are found"):
        base_samples(operator(refuses))
    assert len(asked) <= 52


def test_kernels_that_need_c_order() -> None:
    """A kernel that needs C order gets it in the search too."""

    def first(x: np.ndarray) -> np.ndarray:
        probed.need(x.flags.c_contiguous)
        return x.ravel()[:1] * 1

    op = operator(first, tags=co.Tag.needs_contiguous)
    sample = Sample((np.ones((3, 4)).T,))
    found = shrink(op, sample, lambda s: not s.args[0].flags.c_contiguous)
    assert found.args[0].shape == (2,)


def test_kernels_that_change_their_arguments() -> None:
    """A kernel that writes an input does not change the samples."""

    def clear(x: np.ndarray) -> np.ndarray:
        out = x * 1
        x[...] = 0
        return out

    for sample in base_samples(operator(clear)):
        assert (sample.args[0] != 0).all()


def _shaped(text: str, *others: str) -> Any:
    """Make an operator whose annotations have these shapes and whose kernel has no checks."""

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


def test_markers_of_a_child_are_those_here() -> None:
    """Forms that a child finds are sent here, where markers are known by identity."""
    for marker in (templates.OMITTED, templates._SEEDED):
        assert pickle.loads(pickle.dumps(marker)) is marker


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
    """The method returns the operator, the decorator returns the function."""
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

    with pytest.raises(co.RegistrationError, match="rule for 'sample_inputs' already"):
        double.register_sample_inputs(other)


def test_a_function_with_parameters_is_refused(double: Any) -> None:
    """A function with parameters is refused at registration."""
    with pytest.raises(co.RegistrationError, match="takes \\(n\\) by position"):
        double.register_sample_inputs(lambda n: [])


def test_a_library_takes_samples_back(double: Any) -> None:
    """Closing a library takes its registration back."""
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
    """A sample that lacks an argument is an error before anything runs."""
    double.register_sample_inputs(lambda: [()])
    with pytest.raises(co.ArgumentError) as caught:
        base_samples(double)
    assert str(caught.value) == (
        "probed::double: a sample of register_sample_inputs does not fit:"
        " double() missing 1 required positional argument: 'x'\n"
        "  probed::double(Array x, float k=2.0) -> Array\n"
        "  do: give it the arguments of a call"
    )
