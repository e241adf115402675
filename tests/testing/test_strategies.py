"""Hypothesis strategies for arguments of operators."""

from __future__ import annotations

import enum
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

import customop as co
from customop.core.registry import find_operator
from customop.testing import Sample, strategies
from customop.testing.inputs.sample_values import fresh
from tests.tiers import fifth_of

from .probed import CASES
from .test_inputs import is_finite, operator

# The same examples each time, and few: each test looks at a strategy, not at a program.
QUICK = settings(
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def check(strategy: Any, holds: Any) -> None:
    """Assert of examples of a strategy."""

    @QUICK
    @given(strategy)
    def run(value: Any) -> None:
        assert holds(value), value

    run()


def smallest(strategy: Any, holds: Any = lambda _: True) -> Any:
    return find(strategy, holds, settings=settings(QUICK, max_examples=300))


# ---- arguments ----


@pytest.mark.parametrize("name", fifth_of(CASES))
def test_arguments_are_accepted(name: str) -> None:
    """Drawn arguments run on the plain function, with finite results."""
    fn = CASES[name][0]

    def runs(sample: Sample) -> bool:
        own = fresh(sample)
        return is_finite(fn(*own.args, **own.kwargs))

    check(strategies.arguments(operator(fn)), runs)


@pytest.mark.parametrize("name", ["np::sum", "np::where", "np::matmul", "np::stack"])
def test_arguments_of_numpy_operators(name: str) -> None:
    """Arguments are found for NumPy operators too."""
    op = find_operator(name)
    check(
        strategies.arguments(op),
        lambda s: is_finite(op.rule("cpu")(*op.bind(*s.args, **s.kwargs))),
    )


def test_arguments_shrink() -> None:
    """The simplest arguments are small arrays of simple numbers, without options."""
    found = smallest(strategies.arguments(operator(CASES["layer_norm"][0])))
    assert (len(found.args), found.kwargs) == (1, {})
    assert found.args[0].size <= 3
    assert set(np.abs(found.args[0]).ravel()) <= {1.25, 1.75}


def test_arguments_shrink_to_a_failure() -> None:
    """Shrinking keeps only what a failure needs."""
    op = operator(CASES["matmul"][0])
    found = smallest(strategies.arguments(op), lambda s: s.args[0].shape[1] > 1)
    assert [x.shape for x in found.args] == [(1, 2), (2, 1)]


def test_arguments_vary() -> None:
    """Several numbers of axes, lengths and options are drawn."""
    seen = set()
    op = operator(CASES["layer_norm"][0])

    @settings(QUICK, max_examples=60)
    @given(strategies.arguments(op))
    def collect(sample: Sample) -> None:
        seen.add((sample.args[0].shape, len(sample.args) + len(sample.kwargs)))

    collect()
    assert len({shape for shape, _ in seen}) >= 5
    assert {count for _, count in seen} >= {1, 2, 3}


def test_lengths_that_differ_by_one_move_together() -> None:
    """An array that is longer by one stays longer by one at every length."""
    lengths = set()

    @settings(QUICK, max_examples=60)
    @given(strategies.arguments(operator(CASES["stairs"][0])))
    def collect(sample: Sample) -> None:
        values, edges = sample.args
        assert len(edges) == len(values) + 1
        lengths.add(len(values))

    collect()
    assert len(lengths) >= 4


def test_registered_inputs_are_drawn() -> None:
    """If inputs are registered, only those are drawn."""
    op = operator(CASES["scale"][0])
    op.register_sample_inputs(lambda: [(np.ones(7), 1.0), (np.ones(8), 2.0)])
    check(strategies.arguments(op), lambda s: s.args[0].size in (7, 8))


# ---- arrays ----


def test_arrays_are_as_asked() -> None:
    """Arrays have the given dtype and shape."""
    check(
        strategies.arrays(np.float32, (2, 3)),
        lambda x: (x.dtype.name, x.shape) == ("float32", (2, 3)),
    )
    dtypes = st.sampled_from([np.dtype("i4"), np.dtype("c8"), np.dtype("?")])
    check(strategies.arrays(dtypes), lambda x: x.dtype.str[1:] in ("i4", "c8", "b1"))


def test_numbers_are_far_from_kinks() -> None:
    """By default numbers are away from all multiples of a half."""
    check(
        strategies.arrays(),
        lambda x: bool((np.abs(2 * x - np.round(2 * x)) > 0.25).all()),
    )


def test_elements_are_as_asked() -> None:
    """Given elements replace the default ones."""
    check(strategies.arrays(elements=st.just(7.0)), lambda x: bool((x == 7).all()))


@pytest.mark.parametrize(
    ("layout", "holds"),
    [
        ("negative strides", lambda x: all(s < 0 for s in x.strides)),
        ("read-only", lambda x: not x.flags.writeable),
        ("Fortran order", lambda x: x.flags.f_contiguous),
        ("unaligned", lambda x: not x.flags.aligned),
        ("broadcast", lambda x: 0 in x.strides),
    ],
)
def test_layouts_of_arrays(layout: str, holds: Any) -> None:
    """Arrays have the given layout."""
    check(strategies.arrays(shape=(3, 4), layouts=[layout]), holds)


def test_layouts_shrink_to_the_first() -> None:
    """The first layout is the simplest."""
    found = smallest(strategies.arrays(layouts=["contiguous", "negative strides"]))
    assert found.flags.c_contiguous
    kept = smallest(
        strategies.arrays(layouts=["contiguous", "negative strides"]),
        lambda x: any(s < 0 for s in x.strides),
    )
    assert kept.size == 2


def test_unknown_layout() -> None:
    """A misspelled layout is an error when the strategy is made."""
    with pytest.raises(co.ArgumentError) as caught:
        strategies.arrays(layouts=["fortran order"])
    assert str(caught.value) == (
        "strategies.arrays: unknown layout 'fortran order' (did you mean 'Fortran"
        " order'?)\n"
        "  known: 'contiguous', 'non-contiguous', 'rows with gaps between', 'negative"
        " strides', 'Fortran order', 'last axis first in memory', 'unaligned',"
        " 'a field of packed records', 'read-only', 'broadcast'\n"
        "  do: use known ones"
    )


# ---- values of annotations ----


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


@dataclass(frozen=True)
class Window:
    taps: np.ndarray
    shift: int


class Pair(NamedTuple):
    first: float
    second: bool


class Keys(TypedDict):
    a: int
    b: NotRequired[str]


ANNOTATIONS: list[tuple[Any, Any]] = [
    (int, lambda v: type(v) is int),
    (float, lambda v: type(v) is float),
    (bool, lambda v: type(v) is bool),
    (complex, lambda v: type(v) is complex),
    (str, lambda v: type(v) is str),
    (co.DType, lambda v: isinstance(v, np.dtype)),
    (co.Device, lambda v: v == "cpu"),
    (co.Scalar, lambda v: isinstance(v, bool | int | float)),
    (Literal["a", "b"], lambda v: v in ("a", "b")),
    (Side, lambda v: isinstance(v, Side)),
    (int | None, lambda v: v is None or type(v) is int),
    (list[int], lambda v: type(v) is list and all(type(i) is int for i in v)),
    (tuple[int, str], lambda v: [type(i) for i in v] == [int, str]),
    (tuple[float, ...], lambda v: type(v) is tuple),
    (dict[str, bool], lambda v: all(type(k) is str for k in v)),
    (np.ndarray, lambda v: type(v) is np.ndarray),
    (list[np.ndarray], lambda v: all(type(i) is np.ndarray for i in v)),
    (Window, lambda v: type(v.taps) is np.ndarray and type(v.shift) is int),
    (Pair, lambda v: type(v) is Pair and type(v.second) is bool),
    (Keys, lambda v: {"a"} <= set(v) <= {"a", "b"}),
    (np.random.Generator, lambda v: isinstance(v, np.random.Generator)),
]


@pytest.mark.parametrize(
    ("annotation", "holds"), ANNOTATIONS, ids=[str(a) for a, _ in ANNOTATIONS]
)
def test_values_fit_their_annotation(annotation: Any, holds: Any) -> None:
    """Values fit their annotation."""
    check(strategies.values(annotation), holds)


def test_optional_values_are_both() -> None:
    """None and values are drawn for an optional parameter."""
    assert smallest(strategies.scalars(int | None)) is None
    assert smallest(strategies.scalars(int | None), lambda v: v is not None) == 0


def test_keys_that_may_be_missing_come_and_go() -> None:
    """A key of a TypedDict that is not required is sometimes left out."""
    strategy = strategies.values(Keys)
    assert set(smallest(strategy)) == {"a"}
    assert set(smallest(strategy, lambda v: "b" in v)) == {"a", "b"}


def test_annotation_without_type() -> None:
    """An annotation without a schema type is refused."""
    with pytest.raises(co.SchemaError, match="set\\[int\\], which has no schema type"):
        strategies.scalars(set[int])


# ---- arguments by the schema alone ----

SCHEMAS = [
    "(Array x, float k=1.0) -> Array",
    "(Array x, /, int[] shape, *, bool keep=False, Array? mask=None) -> Array",
    "(Array[] xs, str{'a', 'b'} mode, dtype dtype, device device) -> Array".replace(
        "'", '"'
    ),
    "(Array|Scalar x, (int, float) pair, Dict(str, Array) table) -> Array",
    "(Array x, int n=1, /, int m=2) -> Array",
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_arguments_of_a_schema_fit_it(schema: str) -> None:
    """Drawn arguments fit the schema."""
    op = co.define("probed::of_schema", schema)
    expected = len(op.schema.parameters)

    def fits(sample: Sample) -> bool:
        return len(op.bind(*sample.args, **sample.kwargs)) == expected

    check(strategies.from_schema(schema), fits)
    check(strategies.from_schema(op.schema), fits)


def test_defaults_are_left_out_first() -> None:
    """The simplest call leaves out all defaults."""
    found = smallest(strategies.from_schema("(Array x, int n=1, *, int m=2) -> Array"))
    assert (len(found.args), found.kwargs) == (1, {})


# ---- without hypothesis ----


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_strategies_need_hypothesis() -> None:
    """Without hypothesis the rest works, and the error says what to install."""
    done = run("""
        import sys
        sys.modules["hypothesis"] = None
        import numpy as np, customop as co
        from customop import testing
        from customop.testing.inputs.input_patterns import base_samples
        assert base_samples(co.ops.np.sin.default)
        try:
            testing.strategies
        except ImportError as error:
            print(error)
    """)
    assert done.stdout == (
        "customop.testing.strategies needs hypothesis\n"
        "  do: pip install 'customop[check]'\n"
    ), done.stderr


def test_testing_leaves_hypothesis_out() -> None:
    """Importing customop.testing does not import hypothesis."""
    done = run("""
        import sys
        import customop as co, customop.testing
        from customop.testing.inputs.input_patterns import base_samples
        base_samples(co.ops.np.matmul.default)
        assert "hypothesis" not in sys.modules
        customop.testing.strategies
        assert "hypothesis" in sys.modules
    """)
    assert done.returncode == 0, done.stderr


def test_unknown_name_of_testing() -> None:
    """Other names raise AttributeError."""
    with pytest.raises(AttributeError, match="has no attribute 'strategy'"):
        co.testing.strategy


def test_hypothesis_is_the_one_asked_for() -> None:
    """Strategies are those of hypothesis and combine with others."""
    assert isinstance(strategies.arrays(), hypothesis.strategies.SearchStrategy)
