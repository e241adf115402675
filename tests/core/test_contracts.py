"""What a kernel promises by its schema, and when it must prove it."""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.codegen import is_open

_numbers = itertools.count()
_PACKAGE = str(Path(co.__file__).parent)


def define(
    schema: str, fn: Callable[..., Any], written: tuple[str, ...] = (), **kwargs: Any
) -> co.Operator[..., Any]:
    """Make an operator of a new name."""
    name = f"contracts::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=written, schema=schema, **kwargs)


def fresh() -> np.ndarray:
    """A small array that nothing else holds."""
    return np.arange(6.0).reshape(2, 3)


def numbered(table: list[tuple[Any, ...]]) -> list[Any]:
    """Rows of a table as cases that have their number for a name."""
    return [pytest.param(*row, id=str(i)) for i, row in enumerate(table)]


def halves() -> tuple[np.ndarray, np.ndarray]:
    """Two disjoint views of one buffer."""
    buffer = np.zeros(4)
    return buffer[:2], buffer[2:]


def twice(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One array as two results."""
    out = x * 2
    return out, out


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
    """What fits the schema passes, on the first call and on later ones alike."""
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
    """Items of one list are held apart as well, and the message tells them apart."""
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


def test_declared_view_is_no_breach() -> None:
    """A schema that says so lets a result lie on its argument."""
    op = define("(Array(a) x) -> Array(a)", lambda x: x[0])
    x = fresh()
    for _ in range(3):
        assert np.shares_memory(op(x), x)


def test_declared_view_of_another_argument_is_a_breach() -> None:
    """The name of the alias tells of which argument."""
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


# ---- writes ----

WRITES = [
    lambda x: x.__setitem__((0, 0), 5.0),
    lambda x: x.fill(0),
    lambda x: np.multiply(x, 2, out=x),
    lambda x: np.copyto(x, 0),
    lambda x: x.sort(),
    lambda x: np.add.at(x, 0, 1),
    lambda x: np.put(x, [0], 1),
    # The values stay as they are:
    lambda x: x.__imul__(1),
    lambda x: np.multiply(x, 1, out=x),
    lambda x: x.__setitem__(Ellipsis, x.copy()),
    lambda x: x[0].sort(),
    lambda x: np.copyto(x, x.copy()),
    lambda x: np.putmask(x, x > 9, 0),
    lambda x: x[0].partition(1),
    lambda x: x.byteswap(inplace=True).byteswap(inplace=True),
    lambda x: np.random.default_rng(0).shuffle(x[:1]),
    lambda x: np.clip(x, 0, 9, out=x),
    lambda x: np.cumsum(x[:1], axis=0, out=x[:1]),
    lambda x: np.einsum("ij->ij", x, out=x),
]


@pytest.mark.parametrize("index", range(len(WRITES)))
def test_undeclared_write(index: int) -> None:
    """A write that mutates_args does not name is an error, also of equal values."""
    write = WRITES[index]

    def kernel(x: np.ndarray) -> int:
        write(x)
        return 1

    op = define("(Array x) -> int", kernel)
    x = fresh()
    with pytest.raises(co.ContractError, match=r"writes.* argument") as caught:
        op(x)
    assert "mutates_args" in str(caught.value)
    np.testing.assert_array_equal(x, fresh())


def test_undeclared_write_of_an_item() -> None:
    """A write into an item of a list names the list."""
    op = define("(Array[] many) -> int", lambda many: many[1].fill(0) or 1)
    with pytest.raises(co.ContractError, match="writes argument 'many'"):
        op([fresh(), fresh()])


def test_undeclared_write_beside_a_declared_one() -> None:
    """The declared one is written as ever, the other one is named."""

    def kernel(x: np.ndarray, y: np.ndarray) -> None:
        x += 1
        y += 1

    op = define("(Array(a!) x, Array y) -> ()", kernel, ("x",))
    y = fresh()
    with pytest.raises(co.ContractError, match="writes argument 'y'"):
        op(fresh(), y)
    np.testing.assert_array_equal(y, fresh())


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_declared_write(checks: str) -> None:
    """What mutates_args names is written, in every setting, once a call."""
    co.config.checks = checks
    op = define(
        "(Array(a!) x) -> ()", lambda x: np.add(x, 1, out=x) is None or None, ("x",)
    )
    x = fresh()
    for _ in range(3):
        op(x)
    np.testing.assert_array_equal(x, fresh() + 3)


def test_writable_flag_of_the_caller_stays() -> None:
    """The caller's array is as writable after the proof as before it."""
    x = fresh()
    define("(Array x) -> Array", lambda x: x * 1)(x)
    assert x.flags.writeable


# ---- kernels that refuse read-only arrays ----

REFUSAL = "buffer source array is read-only"


def refusing(then: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """A kernel such as Cython makes, which takes writable arrays only."""

    def kernel(x: np.ndarray) -> Any:
        if not x.flags.writeable:
            raise ValueError(REFUSAL)
        return then(x)

    return kernel


def test_kernel_that_refuses_read_only_arrays() -> None:
    """It runs, and is proven, if it writes nothing."""
    op = define("(Array x) -> Array", refusing(lambda x: x * 2))
    for _ in range(3):
        np.testing.assert_array_equal(op(fresh()), fresh() * 2)
    assert is_open(op.call)


def test_refusing_kernel_that_writes() -> None:
    """It is found out, and the caller's array keeps its values."""
    op = define("(Array x) -> int", refusing(lambda x: x.fill(9) or 1))
    x = fresh()
    with pytest.raises(co.ContractError, match="writes argument 'x'"):
        op(x)
    np.testing.assert_array_equal(x, fresh())


def test_refusing_kernel_that_returns_its_argument() -> None:
    """An alias is found out as well."""
    op = define("(Array x) -> Array", refusing(lambda x: x))
    with pytest.raises(co.ContractError, match="shares memory with argument 'x'"):
        op(fresh())


def test_refusing_kernel_with_nan() -> None:
    """A nan that stays nan is no write."""
    op = define("(Array x) -> float", refusing(lambda x: float(np.nansum(x))))
    assert op(np.array([np.nan, 1.0])) == 1.0


def test_refusing_kernel_that_writes_what_it_declares() -> None:
    """Declared writes reach the caller's array."""

    def kernel(x: np.ndarray, y: np.ndarray) -> None:
        if not y.flags.writeable:
            raise ValueError(REFUSAL)
        x += y

    op = define("(Array(a!) x, Array y) -> ()", kernel, ("x",))
    x = fresh()
    op(x, np.ones(3))
    op(x, np.ones(3))
    np.testing.assert_array_equal(x, fresh() + 2)


def test_failure_after_refusal_is_the_one_raised() -> None:
    """A kernel that fails on writable arrays too shows that failure."""

    def fail(x: np.ndarray) -> Any:
        raise KeyError("of the kernel")

    op = define("(Array x) -> Array", refusing(fail))
    with pytest.raises(KeyError, match="of the kernel"):
        op(fresh())


def test_read_only_array_of_the_caller_is_refused_on_every_call() -> None:
    """What the caller made read-only stays so: the kernel's own error comes through."""
    op = define("(Array x) -> Array", refusing(lambda x: x * 2))
    x = fresh()
    x.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ValueError, match=REFUSAL):
            op(x)
    op(fresh())
    with pytest.raises(ValueError, match=REFUSAL):
        op(x)


# ---- fake kernels ----


def with_fake(kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """An operator of one array with a fake kernel."""
    return define("(Array x) -> Array", kernel).register_fake(fake)


FAKES = [
    (lambda x: co.fake_like(x, shape=(3, 2)), "they differ in shape"),
    (lambda x: co.fake_like(x, dtype=np.float32), "they differ in dtype"),
    (lambda x: co.fake_like(x, device="cuda"), "they differ in device"),
    (lambda x: co.fake_like(x, shape=6, dtype=int), "they differ in shape and dtype"),
    (lambda x: co.FakeArray((2, 3), float, (8, 16)), "order of axes in memory"),
]


@pytest.mark.parametrize(("fake", "said"), numbered(FAKES))
def test_fake_kernel_that_disagrees(fake: Callable[..., Any], said: str) -> None:
    """A fake kernel that tells something else than the kernel does is an error."""
    op = with_fake(lambda x: x * 2, fake)
    with pytest.raises(co.ContractError, match=said):
        op(fresh())


def test_fake_kernel_that_agrees() -> None:
    """Agreement passes, also for arrays in Fortran order."""
    op = with_fake(lambda x: x * 2, lambda x: co.fake_like(x))
    for x in (fresh(), np.asfortranarray(fresh()), fresh()[::-1], fresh()[:0]):
        co.config.checks = "always"
        np.testing.assert_array_equal(op(x), x * 2)


def test_order_of_axes_is_not_compared_for_broadcast_inputs() -> None:
    """NumPy's own choice for broadcast arrays is left to it."""
    op = with_fake(lambda x: np.array(x, order="F"), lambda x: co.FakeArray(x.shape))
    assert op(np.broadcast_to(np.arange(3.0), (2, 3))).shape == (2, 3)
    with pytest.raises(co.ContractError, match="order of axes"):
        with_fake(lambda x: np.array(x, order="F"), lambda x: co.FakeArray(x.shape))(
            fresh()
        )


@pytest.mark.parametrize(
    ("kernel", "x"),
    [
        (lambda x: x.copy(), np.asfortranarray(fresh())),
        (lambda x: x * 2, np.asfortranarray(fresh())),
        (lambda x: np.sum(x, axis=0), np.ones((4, 3, 2)).T),
        (lambda x: np.sort(x), np.ones((4, 3, 2)).swapaxes(1, 2)),
    ],
    ids=["copy", "double", "sum", "sort"],
)
def test_order_of_axes_is_not_compared_for_inputs_in_other_orders(
    kernel: Any, x: Any
) -> None:
    """NumPy's functions choose for themselves: no `fake_like` can be right for all."""
    for order in ("C", "F"):

        def fake(x: Any, order: str = order) -> Any:
            shape = kernel(np.zeros(x.shape)).shape
            return co.FakeArray(shape, float, np.empty(shape, order=order).strides)

        op = with_fake(kernel, lambda x, fake=fake: fake(x))
        np.testing.assert_array_equal(op(x), kernel(x))


ADD = "(Array x, Array y) -> Array"


def turned(x: Any, y: Any) -> Any:
    """Axes in reverse order in memory."""
    return np.zeros((2, 3), order="F")


@pytest.mark.parametrize(
    ("shapes", "is_compared"),
    [
        (((2, 3), (2, 3)), True),
        (((2, 3), (3,)), False),
        (((2, 1), (1, 3)), False),
        (((2, 3), ()), True),
        (((2, 3), (4, 5)), True),
    ],
    ids=str,
)
def test_order_of_axes_for_several_inputs(shapes: Any, is_compared: bool) -> None:
    """The order is compared unless inputs of different shapes broadcast."""
    op = define(ADD, turned).register_fake(lambda x, y: co.FakeArray((2, 3)))
    given = [np.ones(shape) for shape in shapes]
    if is_compared:
        with pytest.raises(co.ContractError, match="order of axes"):
            op(*given)
    else:
        assert op(*given).shape == (2, 3)


def test_exact_strides_are_compared_for_any_inputs() -> None:
    """`Tag.needs_exact_strides` is of inputs in any order, broadcast or not."""
    op = define(ADD, turned, tags=co.Tag.needs_exact_strides)
    op.register_fake(lambda x, y: co.FakeArray((2, 3)))
    with pytest.raises(co.ContractError, match="they differ in strides"):
        op(np.ones((2, 3), order="F"), np.ones(3))


def test_axes_of_length_one_have_no_order() -> None:
    """Strides of axes of length 1 are not compared."""
    op = with_fake(lambda x: np.zeros((3, 1)).T, lambda x: co.FakeArray((1, 3)))
    assert op(np.zeros((1, 3))).shape == (1, 3)


def test_fake_kernel_that_fails() -> None:
    """A fake kernel that fails where the kernel works is an error with its cause."""

    def fake(x: Any) -> Any:
        raise IndexError("lost")

    with pytest.raises(co.ContractError, match="raises IndexError: lost") as caught:
        with_fake(lambda x: x * 2, fake)(fresh())
    assert isinstance(caught.value.__cause__, IndexError)


def test_fake_kernel_that_asks_for_data_proves_nothing() -> None:
    """What depends on data cannot be compared, and is no breach."""
    op = with_fake(lambda x: x[x > 0], lambda x: co.fake_like(x, shape=(int(x.sum()),)))
    assert op(fresh()).shape == (5,)


def test_fake_kernel_of_too_many_results() -> None:
    """A fake kernel is held to the schema as a kernel is."""
    op = with_fake(lambda x: x * 2, lambda x: (co.fake_like(x), co.fake_like(x)))
    with pytest.raises(co.ContractError, match="'fake' kernel returns"):
        op(fresh())


def test_fake_items_of_lists_are_compared() -> None:
    """Every item of a list has its shape compared."""
    op = define("(Array x) -> Array[]", lambda x: [x * 1, x[0] * 1])
    op.register_fake(lambda x: [co.fake_like(x), co.fake_like(x)])
    with pytest.raises(co.ContractError, match="shape"):
        op(fresh())


def test_fake_list_of_another_length() -> None:
    """A fake list that is longer or shorter than the real one is an error."""
    op = define("(Array x) -> Array[]", lambda x: [x * 1, x * 2])
    op.register_fake(lambda x: [co.fake_like(x)])
    with pytest.raises(co.ContractError):
        op(fresh())


def test_fake_none_for_an_array() -> None:
    """A fake kernel that tells None where the kernel returns an array is an error."""
    op = define("(Array x) -> Array?", lambda x: x * 1).register_fake(lambda x: None)
    with pytest.raises(co.ContractError):
        op(fresh())


# ---- when ----


class Views:
    """A kernel that notes whether it got read-only arrays."""

    def __init__(self) -> None:
        self.proofs: list[bool] = []

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.proofs.append(not x.flags.writeable)
        return x * 2


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ("first", [True, False, False]),
        ("always", [True, True, True]),
        ("never", [False, False, False]),
    ],
)
def test_settings(checks: str, expected: list[bool]) -> None:
    """Calls under proof: the first, all, or none."""
    co.config.checks = checks
    kernel = Views()
    op = define("(Array x) -> Array", kernel)
    for _ in range(3):
        op(fresh())
    assert kernel.proofs == expected


def test_each_kernel_proves_itself() -> None:
    """A kernel registered later is proven by its own first call."""
    first, second = Views(), Views()
    op = define("(Array x) -> Array", first)
    op(fresh())
    op(fresh())
    op.register_kernel("cpu", second)
    op(fresh())
    op(fresh())
    assert (first.proofs, second.proofs) == ([True, False], [True, False])


def test_disabled_and_enabled_kernels_prove_themselves_again() -> None:
    """Whatever changes which kernel runs, the one that runs next is proven."""
    origin, own = Views(), Views()
    op = define("(Array x) -> Array", origin).register_kernel("cpu", own)
    op(fresh())
    with op.set_kernel_enabled("cpu", False):
        op(fresh())
        op(fresh())
    op(fresh())
    assert origin.proofs == [True, False]
    assert own.proofs == [True, True]


def test_fake_kernel_registered_later_is_compared() -> None:
    """A fake kernel opens the proof again, since it is a promise of its own."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    op(fresh())
    op.register_fake(lambda x: co.fake_like(x, dtype=int))
    with pytest.raises(co.ContractError, match="dtype"):
        op(fresh())


def test_failing_kernel_is_not_proven() -> None:
    """A call that raises proves nothing."""
    kernel = Views()

    def sometimes(x: np.ndarray) -> np.ndarray:
        out = kernel(x)
        if x.size == 0:
            raise KeyError
        return out

    op = define("(Array x) -> Array", sometimes)
    for _ in range(2):
        with pytest.raises(KeyError):
            op(np.zeros(0))
    op(fresh())
    op(fresh())
    assert kernel.proofs == [True, True, True, False]


def test_breach_is_found_again() -> None:
    """A kernel that broke its contract is under proof at the next call too."""
    op = define("(Array x) -> Array", lambda x: x)
    for _ in range(3):
        with pytest.raises(co.ContractError):
            op(fresh())


def test_fast_path_opens_after_the_proof() -> None:
    """A proven kernel is called by the fast path, and by nothing else."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    assert not is_open(op.call)
    op(fresh())
    assert is_open(op.call)
    op.register_kernel("cpu", lambda x: x * 3)
    assert not is_open(op.call)
    op(fresh())
    assert is_open(op.call)
    np.testing.assert_array_equal(op(fresh()), fresh() * 3)


def test_always_keeps_the_fast_path_closed() -> None:
    """Changing the setting closes the fast path of operators that were proven."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    op(fresh())
    co.config.checks = "always"
    assert not is_open(op.call)
    op(fresh())
    assert not is_open(op.call)
    co.config.checks = "first"
    op(fresh())
    assert is_open(op.call)


def test_never_lets_a_breach_pass() -> None:
    """Without checks the result comes as the kernel gave it."""
    co.config.checks = "never"
    x = fresh()
    assert define("(Array x) -> Array", lambda x: x)(x) is x


@pytest.mark.parametrize("kind", ["cpu", "contracts_box"])
def test_every_kind_is_proven(kind: str) -> None:
    """A kernel of another kind proves its results as well."""
    op = define("(Array x) -> Array", lambda x: 3.0)
    with pytest.raises(co.ContractError, match=f"the '{kind}' kernel"):
        op(fresh() if kind == "cpu" else Box())


class Box:
    """An array of a kind of its own."""

    shape = (2,)
    dtype = np.dtype(float)


co.register_array_type("contracts_box", Box)


def test_proofs_of_kinds_are_separate() -> None:
    """Proving the cpu kernel proves no other."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    op.register_kernel("contracts_box", lambda x: 3.0)
    op(fresh())
    with pytest.raises(co.ContractError, match="'contracts_box'"):
        op(Box())


def test_threads_prove_at_the_same_time() -> None:
    """First calls from many threads all give the right result."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    barrier = threading.Barrier(8)
    results: list[Any] = []

    def call(i: int) -> None:
        barrier.wait()
        results.append((i, op(np.full(3, float(i)))))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for i, out in results:
        np.testing.assert_array_equal(out, np.full(3, 2.0 * i))


# ---- exceptions of kernels ----


def frames_of_ours(error: BaseException) -> list[str]:
    """Functions of the package in a traceback, generated ones included."""
    return [
        frame.name
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith((_PACKAGE, "<customop"))
    ]


class BoomError(Exception):
    """An error of a user's own."""


def boom(x: np.ndarray, k: float = 1.0, *, c: np.ndarray | None = None) -> np.ndarray:
    if x.size == 0:
        raise BoomError("of the kernel")
    return x * k


@pytest.mark.parametrize("checks", ["first", "always", "never"])
@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("k", [1.0, 2])
def test_exception_of_a_kernel(checks: str, before: int, k: float) -> None:
    """It comes through unchanged, past one frame of the package."""
    co.config.checks = checks
    op = define("(Array x, float k=1.0, *, Array? c=None) -> Array", boom)
    for _ in range(before):
        op(fresh())
    with pytest.raises(BoomError, match=r"^of the kernel$") as caught:
        op(np.zeros(0), k)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert len(frames_of_ours(caught.value)) == 1


def test_exception_of_a_kernel_that_speaks_of_read_only() -> None:
    """An error of the user's about something read-only is left as it is."""

    def kernel(x: np.ndarray) -> Any:
        raise OSError("the disk is read-only")

    op = define("(Array x) -> Array", kernel)
    with pytest.raises(OSError, match="the disk is read-only") as caught:
        op(fresh())
    assert len(frames_of_ours(caught.value)) == 1


@pytest.mark.parametrize(
    "wrong",
    [("a",), (None,), (fresh(), "k"), (co.FakeArray((2,)),)],
    ids=["no array", "none", "no number", "no fake kernel"],
)
def test_fault_of_a_call(wrong: tuple[Any, ...]) -> None:
    """A fault of the arguments is told past one frame of the package."""
    op = define("(Array x, float k=1.0) -> Array", lambda x, k=1.0: x * k)
    with pytest.raises(co.CustomOpError) as caught:
        op(*wrong)
    assert len(frames_of_ours(caught.value)) == 1


def test_exception_of_a_fake_kernel() -> None:
    """The error of a fake kernel comes through past one frame too."""

    def fake(x: Any) -> Any:
        raise BoomError("of the fake")

    op = define("(Array x) -> Array", lambda x: x * 1).register_fake(fake)
    with pytest.raises(BoomError) as caught:
        op(co.FakeArray((2,)))
    assert len(frames_of_ours(caught.value)) == 1


def test_exception_of_a_kernel_in_c() -> None:
    """It comes through past one frame, also where the call is under proof."""
    op = define("(Array x, Array y) -> Array", np.add)
    for _ in range(3):
        with pytest.raises(ValueError, match="could not be broadcast") as caught:
            op(np.zeros(2), np.zeros(3))
        assert len(frames_of_ours(caught.value)) == 1
        op(np.zeros(2), np.zeros(2))


def test_interrupt_passes() -> None:
    """KeyboardInterrupt is nobody's to catch."""

    def kernel(x: np.ndarray) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        define("(Array x) -> Array", kernel)(fresh())


# ---- what is done about aliases ----


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
    """A kernel that replaces one that was copied is proven anew."""
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
        f"contracts::op{next(_numbers)}",
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
