"""Results of kernels: their type, and the memory that they share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core import contract, kernel_proof
from customop.core.codegen import is_open
from customop.core.contract import share_memory, shared_results
from tests.core._contracts import define, fresh, halves, numbered, twice

# ---- number, type and kind of results ----


WRONG_RETURNS = [
    ("Array", lambda x: 1.0, "output 0 as float 1.0, must be an array"),
    ("Array", lambda x: None, "output 0 as None, must be an array"),
    ("Array", lambda x: [x * 1], "must be an array"),
    ("Array", lambda x: (x * 1,), "must be an array"),
    ("Array", lambda x: co.fake_like(x), "of the kind 'fake', must be of the kind"),
    ("Array?", lambda x: 3, "output 0 as int 3, must be an array"),
    ("Array[]", lambda x: x * 1, "must be Array[]"),
    ("Array[]", lambda x: [x * 1, 2.0], "at index 1 as float 2.0, must be an array"),
    ("Array[2]", lambda x: [x * 1], "must be Array[2]"),
    ("(Array, Array)", lambda x: (x * 1,), "returns 1 items, must return a tuple of 2"),
    ("(Array, Array)", lambda x: [x * 1, x * 2], "must return a tuple of 2"),
    ("(Array, int)", lambda x: (x * 1, 2.0), "output 1 as float 2.0, must be int"),
    ("()", lambda x: x * 1, "must return None"),
    ("int", lambda x: 1.0, "output 0 as float 1.0, must be int"),
    ("int", lambda x: True, "output 0 as bool True, must be int"),
    ("float", lambda x: 1, "output 0 as int 1, must be float"),
    ("float", lambda x: np.float32(1), "must be float"),
    ("bool", lambda x: 1, "output 0 as int 1, must be bool"),
    ("str", lambda x: b"a", "must be str"),
    ("dtype", lambda x: np.float32, "must be dtype"),
    ("int", lambda x: x * 1, "must be int"),
]


@pytest.mark.parametrize(("returns", "kernel", "said"), numbered(WRONG_RETURNS))
def test_wrong_result(returns: str, kernel: Callable[..., Any], said: str) -> None:
    """A result of another number, type or kind is an error that says both."""
    op = define(f"(Array x) -> {returns}", kernel)
    with pytest.raises(co.ContractError) as caught:
        op(fresh())
    assert said in caught.value.what
    assert __file__ in str(caught.value)
    assert caught.value.op == op.qualname


RIGHT_RETURNS = [
    ("Array", lambda x: x * 1),
    ("Array", lambda x: np.sum(x)),
    ("Array?", lambda x: None),
    ("Array?", lambda x: x * 1),
    ("Array[]", lambda x: []),
    ("Array[]", lambda x: [x * 1, x * 2]),
    ("(Array?, int)", lambda x: (None, 3)),
    ("(Array, Array)", lambda x: (x * 1, x * 2)),
    ("()", lambda x: None),
    ("int", lambda x: np.int64(1)),
    ("float", lambda x: np.float64(1)),
    ("bool", lambda x: np.bool_(1)),
    ("Scalar", lambda x: 1j),
    ("str", lambda x: "a"),
    ("dtype", lambda x: x.dtype),
]


@pytest.mark.parametrize(("returns", "kernel"), numbered(RIGHT_RETURNS))
def test_right_result(returns: str, kernel: Callable[..., Any]) -> None:
    """Results that fit the schema pass, on the first call and on later ones."""
    op = define(f"(Array x) -> {returns}", kernel)
    x = fresh()
    for _ in range(3):
        assert repr(op(x)) == repr(kernel(x))


def test_bool_and_int_results_agree_with_numpy_and_python() -> None:
    """A NumPy value is held to the same rule as the Python one of its type."""
    for returns, python, numpy in [
        ("int", True, np.True_),
        ("bool", 1, np.int64(1)),
        ("float", 1, np.int64(1)),
    ]:
        for value in (python, numpy):
            op = define(f"(Array x) -> {returns}", lambda x, value=value: value)
            with pytest.raises(co.ContractError, match=f"must be {returns}"):
                op(fresh())


# ---- aliases ----


ALIASES = [
    ("Array", lambda x: x, "output 0 that shares memory with argument 'x'"),
    ("Array", lambda x: x[1:], "shares memory with argument 'x'"),
    ("Array", lambda x: x.T, "shares memory with argument 'x'"),
    ("Array", lambda x: np.broadcast_to(x, (4, 2, 3)), "with argument 'x'"),
    ("Array?", lambda x: x.ravel(), "shares memory with argument 'x'"),
    ("(Array, Array)", lambda x: (x * 1, x[0]), "output 1 that shares memory"),
    ("(Array, Array)", lambda x: halves(), "output 1 that shares memory with output 0"),
    ("(Array, Array)", twice, "output 1 that shares memory with output 0"),
    ("Array[]", lambda x: [x * 1, x], "shares memory with argument 'x'"),
]


@pytest.mark.parametrize(("returns", "kernel", "said"), numbered(ALIASES))
def test_alias(returns: str, kernel: Callable[..., Any], said: str) -> None:
    """A result on the memory of an argument or of another result is an error."""
    op = define(f"(Array x) -> {returns}", kernel)
    with pytest.raises(co.ContractError) as caught:
        op(fresh())
    assert said in caught.value.what


def test_alias_between_items_of_a_list() -> None:
    """Items of one list must not share memory; the message names the item."""
    op = define("(Array x) -> Array[]", lambda x: [x * 1, *halves()])
    with pytest.raises(co.ContractError) as caught:
        op(fresh())
    assert "shares memory" in caught.value.what
    assert "output 0 that shares memory with output 0" not in caught.value.what


def test_alias_of_an_array_in_a_list() -> None:
    """A result that is an item of a list argument names that argument."""
    op = define("(Array x, Array[] many) -> Array", lambda x, many: many[1])
    with pytest.raises(co.ContractError, match="with argument 'many'"):
        op(fresh(), [fresh(), fresh()])


def test_disjoint_views_of_one_argument_buffer() -> None:
    """A view beside the argument in one buffer counts as sharing."""
    left, right = halves()
    op = define("(Array x) -> Array", lambda x: right)
    with pytest.raises(co.ContractError, match="shares memory"):
        op(left)


@pytest.mark.parametrize(
    "kernel", numbered([(lambda x: x[:0],), (lambda x: x[:, 3:],)])
)
def test_array_without_elements_shares_nothing(kernel: Callable[..., Any]) -> None:
    """A view with no element lies on no memory."""
    op = define("(Array x) -> Array", kernel)
    assert op(fresh()).size == 0


def test_declared_view_is_right() -> None:
    """A schema that says so lets a result lie on its argument."""
    op = define("(Array(a) x) -> Array(a)", lambda x: x[0])
    x = fresh()
    for _ in range(3):
        assert np.shares_memory(op(x), x)


def test_declared_view_of_another_argument_breaks_the_contract() -> None:
    """The name of the alias says which argument may be shared."""
    op = define("(Array(a) x, Array(b) y) -> Array(a)", lambda x, y: y)
    with pytest.raises(co.ContractError, match="shares memory with argument 'y'"):
        op(fresh(), fresh())


def test_written_argument_may_be_returned_where_the_schema_says() -> None:
    """An in-place operator that returns its argument says Array(a!) twice."""

    def add_one(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    op = define("(Array(a!) x) -> Array(a!)", add_one, ("x",))
    x = fresh()
    assert op(x) is x
    assert op(x) is x
    np.testing.assert_array_equal(x, fresh() + 2)


# ---- config.aliasing ----


@pytest.fixture
def aliasing() -> Iterator[None]:
    """Put the policy back."""
    yield
    co.config.aliasing = "error"


def test_aliases_are_errors_by_default() -> None:
    """Nothing else is set than that a kernel must not return its argument."""
    assert co.config.aliasing == "error"


@pytest.mark.usefixtures("aliasing")
def test_unknown_policy() -> None:
    """Another policy is an error, with the near name."""
    with pytest.raises(co.ArgumentError) as caught:
        co.config.aliasing = "warning"
    assert str(caught.value) == (
        "config.aliasing is 'warning' (did you mean 'warn'?)"
        "\n  do: set it to one of 'error', 'warn', 'copy'"
    )
    assert co.config.aliasing == "error"


@pytest.mark.usefixtures("aliasing")
def test_alias_with_a_warning() -> None:
    """Under "warn" the result stays, and the first call warns at the caller's line."""
    co.config.aliasing = "warn"
    op = define("(Array x) -> Array", lambda x: x[0])
    x = fresh()
    with pytest.warns(co.CustomOpWarning, match="shares memory with argument") as seen:
        assert np.shares_memory(op(x), x)
    assert [w.filename for w in seen] == [__file__]
    assert np.shares_memory(op(x), x)
    assert is_open(op.call)


@pytest.mark.usefixtures("aliasing")
@pytest.mark.parametrize("checks", ["first", "always"])
def test_alias_copied_on_every_call(checks: str) -> None:
    """Under "copy" no result of such a kernel ever shares memory with its arguments."""
    co.config.checks = checks
    co.config.aliasing = "copy"
    op = define("(Array x) -> Array", lambda x: x[0])
    x = fresh()
    for _ in range(4):
        out = op(x)
        assert not np.shares_memory(out, x)
        np.testing.assert_array_equal(out, x[0])
        out[...] = 9
    np.testing.assert_array_equal(x, fresh())
    assert not is_open(op.call)


@pytest.mark.usefixtures("aliasing")
def test_only_results_that_share_memory_are_copied() -> None:
    """Fresh results are handed out as they are; of two on one memory one is copied."""
    made = []

    def kernel(x: np.ndarray) -> Any:
        out = x * 2
        made.append(out)
        return [x[1:], out, out[:1]], out

    co.config.aliasing = "copy"
    op = define("(Array x) -> (Array[], Array)", kernel)
    x = fresh()
    for i in range(3):
        (view, own, part), again = op(x)
        assert own is made[i]
        found = [view, own, part, again, x]
        for a, b in itertools.combinations(found, 2):
            assert not np.shares_memory(a, b)
        np.testing.assert_array_equal(again, 2 * x)
        np.testing.assert_array_equal(part, 2 * x[:1])


@pytest.mark.usefixtures("aliasing")
def test_copying_leaves_other_kernels_fast() -> None:
    """A kernel that returns fresh arrays keeps its fast path."""
    co.config.aliasing = "copy"
    op = define("(Array x) -> Array", lambda x: x * 2)
    op(fresh())
    assert is_open(op.call)


@pytest.mark.usefixtures("aliasing")
def test_policy_holds_from_its_setting_on() -> None:
    """A change of the policy is a new proof for every kernel."""
    co.config.aliasing = "copy"
    op = define("(Array x) -> Array", lambda x: x[0])
    op(fresh())
    co.config.aliasing = "error"
    with pytest.raises(co.ContractError, match="shares memory"):
        op(fresh())


@pytest.mark.usefixtures("aliasing")
def test_new_kernel_is_not_copied_for_the_old_one() -> None:
    """A kernel that replaces one that was copied must prove itself again."""
    co.config.aliasing = "copy"
    op = define("(Array x) -> Array", lambda x: x[0])
    op(fresh())
    op.register_kernel("cpu", lambda x: x[0] * 1)
    op(fresh())
    assert is_open(op.call)


@pytest.mark.usefixtures("aliasing")
def test_declared_views_are_not_copied() -> None:
    """What the schema says to be a view stays one."""
    co.config.aliasing = "copy"
    op = define("(Array(a) x) -> Array(a)", lambda x: x[0])
    x = fresh()
    for _ in range(3):
        assert np.shares_memory(op(x), x)


@pytest.mark.usefixtures("aliasing")
def test_copies_of_an_operator_that_writes() -> None:
    """Copying and noting writes go together."""

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x += 1
        return y[:1]

    co.config.aliasing = "copy"
    op = define("(Array(a!) x, Array y) -> Array", kernel, ("x",))
    keep = co.custom_op(
        "contracts::keep",
        lambda x: x**2,
        mutates_args=(),
        schema="(Array x) -> Array",
    ).register_autograd(
        lambda ctx, g: 2 * g * ctx.saved_arrays[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    y = fresh()
    for _ in range(3):
        x = fresh()
        _, pullback = co.vjp(keep, x)
        assert not np.shares_memory(op(x, y), y)
        with pytest.raises(co.GradientError, match="written by an operator since"):
            pullback(np.ones_like(x))


# ---- many results ----


def test_few_of_many_arrays_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of different memory are told apart without comparing every pair."""
    compared = []

    def counted(a: Any, b: Any) -> bool:
        compared.append(1)
        return share_memory(a, b)

    monkeypatch.setattr(contract, "share_memory", counted)
    monkeypatch.setattr(kernel_proof, "share_memory", counted)

    def kernel(x: list[np.ndarray], y: list[np.ndarray]) -> list[np.ndarray]:
        y[0] += 1
        return [a + 1 for a in x]

    op = define("(Array[] x, Array(a!)[] y) -> Array[]", kernel, ("y",))
    given = [np.ones(2) for _ in range(400)]
    assert len(op(given[:200], given[200:])) == 200
    assert len(compared) < 800


def test_shared_results_are_those_of_all_pairs() -> None:
    """Groups of memory leave out only pairs that share none."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        buffers = [np.zeros(12) for _ in range(3)]
        # Views of raw bytes have owners of their own in one memory.
        raw = bytearray(96)

        def view(buffers: list[np.ndarray] = buffers, raw: bytearray = raw) -> Any:
            start, length = rng.integers(0, 9), rng.integers(0, 4)
            if rng.random() < 0.3:
                return np.frombuffer(raw, np.float64, length or 1, 8 * int(start))
            buffer = buffers[rng.integers(3)]
            step = -1 if rng.random() < 0.5 else 1
            return buffer[start : start + length][::step]

        x, y = view(), [view() for _ in range(3)]
        out = [view() if rng.random() < 0.5 else np.zeros(2) for _ in range(5)]
        for schema in SCHEMAS_OF_LISTS:
            parsed = co.Schema.parse(schema)
            found = [i for i, _, _ in shared_results(parsed, [x, y], [out])]
            assert found == _shared_pairwise(parsed, x, y, out)


SCHEMAS_OF_LISTS = [
    "(Array x, Array[] y) -> Array[]",
    "(Array(a) x, Array[] y) -> Array(a)[]",
    "(Array x, Array(a)[] y) -> Array(a)[]",
    "(Array(b) x, Array(a)[] y) -> Array(a)[]",
]


def _shared_pairwise(
    schema: co.Schema, x: np.ndarray, y: list[np.ndarray], out: list[np.ndarray]
) -> list[int]:
    """Compare each result with everything before it."""
    p, q = schema.parameters
    mine = schema.returns[0].alias
    seen = [(p.alias, x), *((q.alias, v) for v in y)]
    free = [v for alias, v in seen if mine and alias == mine]
    found = []
    for i, value in enumerate(out):
        if any(
            share_memory(value, earlier)
            and not any(share_memory(earlier, v) for v in free)
            for alias, earlier in seen
            if mine is None or alias != mine
        ):
            found.append(i)
        seen.append((mine, value))
    return found
