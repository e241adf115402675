"""Contract checks on a random share of a program's calls."""

from __future__ import annotations

import gc
import linecache
import math
import random
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.config import Config
from customop.core.contract import last_write
from tests.strict_arrays import KIND, StrictArray, to_strict
from tests.tiers import exhaustive

X = np.array([1.0, 2.0, 3.0])
FOUND = "  found by a sampled check: config.sample_checks = 1.0\n"


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """Seed the choice of calls, and restore all settings."""
    co.config.sample_seed = 7
    yield
    co.config.sample_checks = 0
    co.config.sample_seed = None
    co.config.on_failure = "error"
    co.config.aliasing = "error"


@pytest.fixture
def settings() -> Config:
    return Config()


class Watched:
    """An operator that counts its checks by the calls of its fake kernel."""

    def __init__(
        self, name: str, schema: str, fn: Callable[..., Any], **kw: Any
    ) -> None:
        self.proofs = 0
        name = f"sampled::{name}"
        self.op = co.custom_op(name, fn, mutates_args=(), schema=schema, **kw)
        self.op.register_fake(self._fake(schema))

    def _fake(self, schema: str) -> Any:
        names = schema[1 : schema.index(")")].replace("*, ", "")
        names = [part.split("=")[0].split()[-1] for part in names.split(", ")]
        scope: dict[str, Any] = {"tell": self._tell}
        text = f"lambda {', '.join(names)}: tell({names[0]})"
        if "*" in schema:
            text = text.replace(", ", ", *, ", 1)
        return eval(text, scope)

    def _tell(self, first: Any) -> Any:
        self.proofs += 1
        return co.fake_like(first[0] if isinstance(first, list) else first)


def double(x: Any) -> Any:
    return x * 2.0


# Ways to call a kernel: schema, kernel, call.
PATHS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    "fast": ("(Array x) -> Array", double, lambda op: op(X), {}),
    "plain": ("(Array x) -> Array", double, lambda op: op.call(X), {}),
    "invoke": ("(Array x) -> Array", double, lambda op: op.invoke([X]), {}),
    "coerced": (
        "(Array x, float k=1.0) -> Array",
        lambda x, k: x * k,
        lambda op: op(X, 2),
        {},
    ),
    "slow": ("(Array x) -> Array", double, lambda op: op.dispatch(X), {}),
    "scalar": ("(Array x) -> Array", double, lambda op: op(np.float64(2.0)), {}),
    "list": (
        "(Array[] xs) -> Array",
        lambda xs: xs[0] + xs[1],
        lambda op: op([X, X]),
        {},
    ),
    "keyword": (
        "(Array x, *, int n) -> Array",
        lambda x, *, n: x * float(n),
        lambda op: op(X, n=2),
        {},
    ),
    "contiguous": (
        "(Array x) -> Array",
        double,
        lambda op: op(X),
        {"tags": co.Tag.needs_contiguous},
    ),
    "mode": ("(Array x) -> Array", double, lambda op: in_mode(op), {}),
    "profile": ("(Array x) -> Array", double, lambda op: in_profile(op), {}),
    "vmap": ("(Array x) -> Array", double, lambda op: co.vmap(op)(np.ones((2, 3))), {}),
    "jvp": ("(Array x) -> Array", double, lambda op: co.jvp(op, (X,), (X,)), {}),
    "grad": (
        "(Array x) -> Array",
        double,
        lambda op: co.grad(lambda x: np.sum(op(x)))(X),
        {},
    ),
}


def in_mode(op: Any) -> Any:
    with co.no_grad():
        return op(X)


def in_profile(op: Any) -> Any:
    with co.profile():
        return op(X)


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> tuple[Watched, Callable[[], Any]]:
    """Return an operator and a call that reaches its kernel once."""
    schema, fn, call, kwargs = PATHS[request.param]
    watched = Watched(request.param, schema, fn, **kwargs)
    if request.param in ("vmap", "jvp", "grad"):
        op = watched.op
        op.register_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))
        op.register_autograd(lambda ctx, g: g * 2.0)
    return watched, lambda: call(watched.op)


def bounds(count: int, share: float) -> tuple[int, int]:
    """Bounds of the binomial distribution with an error of 1e-9."""
    below = above = 0.0
    low, high = 0, count
    for k in range(count + 1):
        below += math.comb(count, k) * share**k * (1 - share) ** (count - k)
        if below > 0.5e-9:
            low = k
            break
    for k in range(count, -1, -1):
        above += math.comb(count, k) * share**k * (1 - share) ** (count - k)
        if above > 0.5e-9:
            high = k
            break
    return low, high


# ---- how many calls are checked ----


def test_none_by_default() -> None:
    """By default, only the first call is checked."""
    watched = Watched("default", "(Array x) -> Array", double)
    for _ in range(50):
        watched.op(X)
    assert (co.config.sample_checks, watched.proofs) == (0.0, 1)


def test_all(path: tuple[Watched, Callable[[], Any]]) -> None:
    """With a share of 1, every call is checked, however it reaches the kernel."""
    watched, call = path
    co.config.sample_checks = 1
    for _ in range(20):
        call()
    assert watched.proofs == 20


@pytest.mark.parametrize("share", [pytest.param(0.02, marks=exhaustive), 0.5])
def test_the_share_of_calls(
    path: tuple[Watched, Callable[[], Any]], share: float
) -> None:
    """The number of checked calls fits the share, however they reach the kernel."""
    watched, call = path
    call()
    co.config.sample_checks = share
    call()
    watched.proofs = 0
    for _ in range(400):
        call()
    low, high = bounds(400, share)
    assert low <= watched.proofs <= high


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.9])
def test_the_share_of_many_calls(share: float) -> None:
    """The number fits small and large shares on the fast path."""
    watched = Watched("many", "(Array x) -> Array", double)
    co.config.sample_checks = share
    watched.op(X)
    for _ in range(1000):
        watched.op(X)
    low, high = bounds(1000, share)
    assert low <= watched.proofs - 1 <= high


def test_other_kinds_of_array() -> None:
    """The share applies to kernels of registered kinds."""
    co.register_array_type(KIND, StrictArray)
    watched = Watched("kinds", "(Array x) -> Array", double)
    watched.op.register_kernel(KIND, lambda x: StrictArray(x.array * 2.0))
    x = to_strict(X)
    co.config.sample_checks = 0.5
    for _ in range(200):
        watched.op(x)
    low, high = bounds(199, 0.5)
    assert low <= watched.proofs - 1 <= high


def test_the_share_holds_with_threads() -> None:
    """The share holds with eight threads."""
    watched = Watched("threads", "(Array x) -> Array", double)
    watched.op(X)

    def work(_: int) -> None:
        for _ in range(100):
            watched.op(X)

    for share in (1.0, 0.5):
        co.config.sample_checks = share
        watched.op(X)
        watched.proofs = 0
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        low, high = bounds(800, share)
        assert low <= watched.proofs <= high


def test_a_profile_counts_sampled_calls_once() -> None:
    """A checked call counts as one call."""
    watched = Watched("profiled", "(Array x) -> Array", double)
    co.config.sample_checks = 0.5
    with co.profile() as p:
        for _ in range(100):
            watched.op(X)
    assert [(row.rule, row.count) for row in p.rows] == [("default kernel", 100)]


# ---- which calls are checked ----


def drawn(op: Any, count: int = 200) -> list[bool]:
    """Return which of several calls are checked: their kernel gets a read-only view."""
    return [not op(X)[0] for _ in range(count)]


def writeable(x: Any) -> Any:
    return np.array([float(x.flags.writeable)])


def test_a_seed_gives_the_same_calls_again() -> None:
    """The same seed chooses the same calls, another seed other calls."""
    op = co.custom_op(
        "sampled::seeded", writeable, mutates_args=(), schema="(Array x) -> Array"
    )
    op(X.copy())
    co.config.sample_checks = 0.3
    op(X)
    found = []
    for seed in (1, 1, 2):
        co.config.sample_seed = seed
        found.append(drawn(op))
    assert found[0] == found[1] != found[2]


def test_a_change_holds_from_the_next_call_on() -> None:
    """A stored `op.call` follows each change of the settings."""
    watched = Watched("changes", "(Array x) -> Array", double)
    call = watched.op.call
    call(X)
    seen = []
    for share in (1, 0, 1.0, 0.0):
        co.config.sample_checks = share
        # After a change, the next call is checked as a first call.
        call(X)
        watched.proofs = 0
        for _ in range(10):
            call(X)
        seen.append(watched.proofs)
    assert seen == [10, 0, 10, 0]
    assert watched.op.call is call


def test_operators_compiled_later() -> None:
    """An operator whose first call is under sampling is sampled."""
    co.config.sample_checks = 1
    watched = Watched("later", "(Array x) -> Array", double)
    for _ in range(5):
        watched.op(X)
    assert watched.proofs == 5


def test_switching_off_restores_the_code() -> None:
    """After the share is 0 again, code and source are the same as before."""
    watched = Watched("off", "(Array x) -> Array", double)
    op = watched.op
    op(X)
    before = op.source, op.call.__code__.co_code, op.call.__globals__["_array"]
    co.config.sample_checks = 0.25
    op(X)
    inside = op.source
    co.config.sample_checks = 0
    op(X)
    assert (
        op.source,
        op.call.__code__.co_code,
        op.call.__globals__["_array"],
    ) == before
    assert "< 0.25" in inside
    assert "< 0.25" not in before[0]


def test_the_lines_of_a_call_can_be_shown() -> None:
    """Tracebacks show the source of a generated call after each change."""
    watched = Watched("lines", "(Array x) -> Array", double)
    watched.op(X)
    for share in (0.5, 0.25, 0):
        co.config.sample_checks = share
        gc.collect()
        shown = linecache.getlines(watched.op.call.__code__.co_filename)
        assert "".join(shown) == watched.op.source


def test_only_operators_that_are_called_are_generated_again() -> None:
    """A change costs nothing for the operators that nobody calls after it."""
    called, other = (Watched(n, "(Array x) -> Array", double).op for n in "ab")
    before = called(X), other.call.__code__
    co.config.sample_checks = 1
    np.testing.assert_array_equal(called(X), before[0])
    assert "< 1.0" in called.source
    assert other.call.__code__ is before[1]


def test_composite_operators_stay_transparent() -> None:
    """After a change, transforms still see the body of a composite operator."""
    op = co.define("sampled::composite", "(Array x) -> Array")
    op_body = "CompositeImplicitAutograd"
    co.impl("sampled::composite", op_body)(lambda x: np.sin(x) * 2.0)
    op(X)
    co.config.sample_checks = 1
    found = co.vmap(co.grad(lambda x: np.sum(op(x))))(np.zeros((2, 3)))
    np.testing.assert_array_equal(found, np.full((2, 3), 2.0))


def test_never_skips_the_first_call() -> None:
    """With `checks` at "never", only the chosen calls are checked."""
    watched = Watched("never", "(Array x) -> Array", double)
    co.config.checks = "never"
    co.config.sample_checks = 1
    for _ in range(5):
        watched.op(X)
    assert watched.proofs == 4


def test_always_is_not_sampled() -> None:
    """With `checks` at "always", every call is checked, whatever the share."""
    watched = Watched("always", "(Array x) -> Array", double)
    co.config.checks = "always"
    co.config.sample_checks = 0.01
    for _ in range(50):
        watched.op(X)
    assert watched.proofs == 50


def test_a_new_kernel_is_proven_by_its_first_call() -> None:
    """A newly registered kernel is checked on its first call."""
    watched = Watched("renewed", "(Array x) -> Array", double)
    co.config.sample_checks = 1e-9
    watched.op(X)
    watched.op.register_kernel("cpu", lambda x: x)
    with pytest.raises(co.ContractError) as caught:
        watched.op(X)
    assert "sampled check" not in str(caught.value)


def test_global_random_numbers_are_untouched() -> None:
    """The choice does not use Python's or NumPy's global random numbers."""
    watched = Watched("own", "(Array x) -> Array", double)
    co.config.sample_checks = 0.5
    states = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    for _ in range(20):
        watched.op(X)
    assert states == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002


# ---- faults that are found ----


class Turncoat:
    """A kernel that keeps its contract until `breaks` is set."""

    def __init__(self, breaks: Callable[..., Any]) -> None:
        self.breaks = breaks
        self.turned = False

    def __call__(self, x: Any) -> Any:
        return self.breaks(x) if self.turned else x * 2.0


def write(x: Any) -> Any:
    x += 1.0
    return x * 2.0


def write_unseen(x: Any) -> Any:
    np.add.at(x, 0, 5.0)  # which writes read-only arrays too, NumPy 2.4
    return x * 2.0


# What a kernel does, what the error says, and the result without a check.
FAULTS: dict[str, tuple[Callable[..., Any], str, Any]] = {
    "writes": (write, "writes argument 'x'", [4.0, 6.0, 8.0]),
    "writes by ufunc.at": (write_unseen, "writes argument 'x'", [12.0, 4.0, 6.0]),
    "returns its argument": (
        lambda x: x,
        "returns output 0 that shares memory with argument 'x'",
        [1.0, 2.0, 3.0],
    ),
    "returns a view": (
        lambda x: x[::-1],
        "returns output 0 that shares memory with argument 'x'",
        [3.0, 2.0, 1.0],
    ),
    "returns a list": (
        lambda x: [x * 2.0],
        "returns output 0 as list",
        [[2.0, 4.0, 6.0]],
    ),
    "returns another shape": (
        lambda x: np.zeros((3, 1)),
        "returns f64[3, 1] with strides (8, 8) on cpu as output 0",
        [[0.0], [0.0], [0.0]],
    ),
    "returns another dtype": (
        lambda x: np.zeros(3, np.float32),
        "returns f32[3] with strides (4,) on cpu as output 0",
        [0.0, 0.0, 0.0],
    ),
}


@pytest.fixture(params=FAULTS)
def turncoat(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any, str, Any]]:
    """An operator whose kernel goes wrong after its first call."""
    breaks, what, result = FAULTS[request.param]
    kernel = Turncoat(breaks)
    op = co.custom_op(
        "sampled::turncoat", kernel, mutates_args=(), schema="(Array x) -> Array"
    )
    op.register_fake(lambda x: co.fake_like(x), override=True)
    co.config.sample_checks = 1
    op(X)
    kernel.turned = True
    return op, kernel, what, result


def test_a_fault_is_an_error(turncoat: Any) -> None:
    """The error is that of a first call, and says that the call was chosen."""
    op, _, what, _ = turncoat
    x = X.copy()
    with pytest.raises(co.ContractError) as caught:
        op(x)
    text = str(caught.value)
    assert text.startswith(f"sampled::turncoat: the 'cpu' kernel {what}")
    assert FOUND in text
    assert caught.value.op == "sampled::turncoat"


def test_a_fault_is_found_each_time(turncoat: Any) -> None:
    """After a fault, the kernel is checked again on its next call."""
    op, *_ = turncoat
    for _ in range(3):
        with pytest.raises(co.ContractError, match="found by a sampled check"):
            op(X.copy())


def test_a_fault_is_a_warning(turncoat: Any) -> None:
    """With "warn", a warning with the same text names the line of the call."""
    op, _, what, _ = turncoat
    co.config.on_failure = "warn"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        op(X.copy())
    (warning,) = caught
    assert warning.category is co.CustomOpWarning
    assert warning.filename == __file__
    assert str(warning.message).startswith(
        f"sampled::turncoat: the 'cpu' kernel {what}"
    )
    assert FOUND in str(warning.message)


@pytest.mark.filterwarnings("ignore:sampled..turncoat")
def test_a_call_with_a_warning_does_what_it_does_without(turncoat: Any) -> None:
    """With "warn", results, writes and shared memory are as without a check."""
    op, kernel, _, result = turncoat
    co.config.on_failure = "warn"
    mine, theirs = X.copy(), X.copy()
    out, bare = op(mine), kernel(theirs)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(result))
    np.testing.assert_array_equal(mine, theirs)
    if isinstance(out, np.ndarray):
        assert out.flags.writeable is bare.flags.writeable
        assert np.may_share_memory(out, mine) is np.may_share_memory(bare, theirs)


def test_the_whole_message() -> None:
    """The message says what, where and what to do, and names the share."""
    kernel = Turncoat(lambda x: x)
    op = co.custom_op(
        "sampled::message", kernel, mutates_args=(), schema="(Array x) -> Array"
    )
    op(X)
    kernel.turned = True
    co.config.sample_checks = 1.0
    co.config.checks = "never"
    op(X)
    with pytest.raises(co.ContractError) as caught:
        op(X)
    line = Turncoat.__call__.__code__.co_firstlineno
    assert str(caught.value) == (
        "sampled::message: the 'cpu' kernel returns output 0 that shares memory with"
        " argument 'x'\n"
        "  which its schema does not say\n"
        "  sampled::message(Array x) -> Array\n"
        f"  kernel at {__file__}:{line}\n"
        f"{FOUND}"
        "  do: return a copy: out.copy()"
    )


def test_a_kernel_found_sharing_is_copied_from_then_on() -> None:
    """With `aliasing` at "copy", one checked call makes all later calls copy."""
    kernel = Turncoat(lambda x: x)
    op = co.custom_op(
        "sampled::copied", kernel, mutates_args=(), schema="(Array x) -> Array"
    )
    co.config.aliasing = "copy"
    co.config.sample_checks = 0.2
    op(X)
    kernel.turned = True
    shared = [np.may_share_memory(op(X), X) for _ in range(200)]
    first = shared.index(False)
    assert True in shared[:first]
    assert True not in shared[first:]


def test_one_drawn_call_that_shares_nothing_changes_nothing() -> None:
    """A kernel that sometimes shares memory is copied once this was seen."""
    calls: list[int] = []

    def sometimes(x: Any) -> Any:
        calls.append(1)
        return x if len(calls) % 2 == 0 else x * 2.0

    op = co.custom_op(
        "sampled::sometimes", sometimes, mutates_args=(), schema="(Array x) -> Array"
    )
    co.config.aliasing = "copy"
    co.config.sample_checks = 0.3
    shared = [np.may_share_memory(op(X), X) for _ in range(400)]
    last = len(shared) - 1 - shared[::-1].index(True)
    # 3 of 10 calls are checked, and every second call shares memory.
    assert last < 100


def test_a_kernel_that_refuses_read_only_arrays() -> None:
    """A checked call of a compiled kernel runs on copies."""

    def strict(x: Any) -> Any:
        if not x.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return x * 2.0

    op = co.custom_op(
        "sampled::strict", strict, mutates_args=(), schema="(Array x) -> Array"
    )
    co.config.sample_checks = 1
    for _ in range(3):
        np.testing.assert_array_equal(op(X.copy()), 2 * X)


def test_a_declared_write_is_noted_after_a_warning() -> None:
    """Reverse mode knows about writes, even if the check only warned."""
    turned: list[int] = []

    def fill(x: np.ndarray, y: np.ndarray) -> None:
        x[...] = y
        if turned:
            y += 1.0

    op = co.custom_op("sampled::fill", fill, mutates_args=("x",))
    co.config.sample_checks = 1
    co.config.on_failure = "warn"
    x, y = np.zeros(3), X.copy()
    op(x, y)
    before = last_write(x)
    turned.append(1)
    with pytest.warns(co.CustomOpWarning, match="writes argument 'y'"):
        op(x, y)
    assert last_write(x) > before


# ---- backward formulas ----


def make_formula(name: str) -> tuple[Any, list[int]]:
    """An operator whose formula writes to its gradient once it is set to."""
    turned: list[int] = []

    def backward(ctx: Any, g: Any) -> Any:
        if turned:
            g *= 2.0
            return g
        return g * 2.0

    op = co.custom_op(
        f"sampled::{name}", double, mutates_args=(), schema="(Array x) -> Array"
    )
    op.register_autograd(backward)
    return op, turned


def gradient(op: Any) -> Any:
    return co.vjp(op, X)[1](np.ones(3))[0]


def test_a_formula_that_writes_its_gradient() -> None:
    """Backward formulas are checked too, and the error says so."""
    op, turned = make_formula("formula")
    co.config.sample_checks = 1
    gradient(op)
    turned.append(1)
    with pytest.raises(co.ContractError) as caught:
        gradient(op)
    text = str(caught.value)
    assert text.startswith(
        "sampled::formula: backward writes into a gradient that it is given\n"
    )
    assert FOUND in text


def test_a_formula_with_a_warning() -> None:
    """With "warn", the gradient is as without a check."""
    op, turned = make_formula("warned_formula")
    co.config.sample_checks = 1
    co.config.on_failure = "warn"
    gradient(op)
    turned.append(1)
    with pytest.warns(co.CustomOpWarning, match="found by a sampled check"):
        found = gradient(op)
    np.testing.assert_array_equal(found, [2.0, 2.0, 2.0])


def test_the_share_of_formulas() -> None:
    """The share also applies to backward formulas."""
    op = co.custom_op(
        "sampled::formulas", double, mutates_args=(), schema="(Array x) -> Array"
    )
    seen: list[bool] = []
    op.register_autograd(lambda ctx, g: (seen.append(g.flags.writeable), g * 2.0)[1])
    co.config.sample_checks = 0.3
    for _ in range(401):
        gradient(op)
    low, high = bounds(400, 0.3)
    assert seen[0] is False
    assert low <= seen[1:].count(False) <= high


def test_formulas_are_not_checked_without_sampling() -> None:
    """With 0, the second call of a formula is not checked."""
    op = co.custom_op(
        "sampled::bare", double, mutates_args=(), schema="(Array x) -> Array"
    )
    seen: list[bool] = []
    op.register_autograd(lambda ctx, g: (seen.append(g.flags.writeable), g * 2.0)[1])
    for _ in range(3):
        gradient(op)
    assert seen == [False, True, True]


# ---- the settings ----


@pytest.mark.parametrize("value", [0, 1, 0.001, 1.0, np.float32(0.5), np.int64(1)])
def test_shares(settings: Config, value: Any) -> None:
    """The share can be any real number from 0 to 1, and reads as a float."""
    settings.sample_checks = value
    assert (type(settings.sample_checks), settings.sample_checks) == (
        float,
        float(value),
    )


@pytest.mark.parametrize(
    "value", [-0.1, 1.5, float("nan"), True, "0.5", None, 1j, [0.5]]
)
def test_wrong_shares(settings: Config, value: Any) -> None:
    """Other values raise and leave the setting unchanged."""
    settings.sample_checks = 0.25
    with pytest.raises(co.ArgumentError) as caught:
        settings.sample_checks = value
    assert settings.sample_checks == 0.25
    assert str(caught.value) == (
        f"config.sample_checks is {value!r}, must be a number from 0 to 1\n"
        "  do: set it to 0.001 for one call in a thousand, 0 for none, 1 for all"
    )


@pytest.mark.parametrize("value", [1.5, "seed", True])
def test_wrong_seeds(settings: Config, value: Any) -> None:
    """A seed is an int or None."""
    settings.sample_seed = 3
    with pytest.raises(co.ArgumentError) as caught:
        settings.sample_seed = value
    assert settings.sample_seed == 3
    assert str(caught.value) == (
        f"config.sample_seed is {value!r}, must be an int or None\n"
        "  do: set an int, or None for a choice that differs in every process"
    )


def test_wrong_on_failure(settings: Config) -> None:
    """The error for a misspelt value suggests a similar one."""
    with pytest.raises(co.ArgumentError) as caught:
        settings.on_failure = "warning"
    assert settings.on_failure == "error"
    assert str(caught.value) == (
        "config.on_failure is 'warning' (did you mean 'warn'?)\n"
        "  do: set it to one of 'error', 'warn'"
    )


def test_listeners_hear_of_a_new_share(settings: Config) -> None:
    """Listeners are called for each change of the share."""
    seen: list[float] = []
    settings.on_change(lambda: seen.append(settings.sample_checks))
    settings.sample_checks = 0.5
    settings.sample_checks = 0
    assert seen == [0.5, 0.0]


def test_repr_shows_all_settings(settings: Config) -> None:
    """The repr shows the settings."""
    settings.sample_checks, settings.sample_seed = 0.5, 3
    settings.on_failure = "warn"
    assert repr(settings) == (
        "config(checks='first', aliasing='error', sample_checks=0.5, sample_seed=3,"
        " on_failure='warn', check_nans=False,"
        " compile_threads=None, opcheck_seconds=10.0, opcheck_memory=1073741824,"
        " adapt=False)"
    )
