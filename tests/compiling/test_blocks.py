"""Elementwise calls over blocks: eager's bits, layouts, warnings and memory."""

import gc
import itertools
import threading
import tracemalloc
import warnings

import numpy as np
import pytest

import customop as co
from customop.compiling.numpy_backend.elementwise_runs import limits
from customop.compiling.numpy_backend.run_plans import cuts_from
from tests.compiling._array_programs import bits, outcome
from tests.compiling.test_numpy_backend import built, check_programs

# Around the borders of blocks, in one, two and three axes; some broadcast to others.
SHAPES = (
    *((400,), (20, 23), (3, 165), (2, 3, 70), (164, 2), (1, 200), (257,), (200, 1)),
    *((64,), (65,), (63,), (128,), (129,), (2, 129), (30, 5, 4)),
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 64 elements, for arrays of any size."""
    small = {
        "elements": 2,
        "work": 2,
        "certain": 2,
        "whole": 512,
        "alone": 512,
        "most": 512,
        "least": 512,
    }
    for name, value in small.items():
        monkeypatch.setattr(limits, name, value)


@pytest.fixture
def usual_blocks(small_blocks, monkeypatch):
    """Blocks as they are for users."""
    for name, value in vars(type(limits)()).items():
        monkeypatch.setattr(limits, name, value)


def chain(x, y):
    return np.sqrt(np.square(x * 2.0 + y) + 1.0) - y


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# ---- bits ----


def test_random_programs_over_blocks_have_eagers_bits_and_warnings() -> None:
    assert check_programs(range(60), SHAPES) == 180


@pytest.mark.exhaustive
def test_many_random_programs_over_blocks_have_eagers_bits_and_warnings() -> None:
    assert check_programs(range(2000, 2250), SHAPES, 16) == 750


@pytest.mark.parametrize("name", ["sin", "exp", "log", "tanh", "power", "arctan2"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_no_bit_depends_on_where_a_block_begins(name, dtype) -> None:
    ufunc = getattr(np, name)
    if name == "arctan2" and dtype == "c16":
        pytest.skip("np.arctan2 is for real numbers")
    x = np.abs(normal(5001)).astype(dtype) * 3
    args = (x, x[::-1])[: ufunc.nin]
    code, _ = built(lambda *a: ufunc(*a) * 1.0 + 0.0, *args)
    want = ufunc(*args) * 1.0 + 0.0
    assert bits(code(*args)) == bits([want])
    for length in (2, 63, 64, 65, 129, 1000):
        part = [a[:length] for a in args]
        assert bits(code(*part)) == bits([ufunc(*part) * 1.0 + 0.0])


def test_signs_of_nan_are_those_of_registers_and_of_what_is_left_over() -> None:
    # Of two nan in one register NumPy returns the first, in what is left over the second.
    x, y = np.full(131, np.nan), np.full(131, -np.nan)
    code, _ = built(lambda x, y: (x + y) * 1.5 + 0.5, x, y)
    assert bits(code(x, y)) == bits([(x + y) * 1.5 + 0.5])
    wide, row = np.full((40, 7), np.nan), np.full(7, -np.nan)
    code, _ = built(lambda x, y: (x + y) * (x - x * y), wide, row)
    assert bits(code(wide, row)) == bits([(wide + row) * (wide - wide * row)])


@pytest.mark.parametrize("line", [64, 512, 4096])
def test_blocks_begin_at_lines_of_the_cache_with_eagers_bits(line, monkeypatch) -> None:
    """New arrays begin anywhere, so that many lines give many first blocks."""
    monkeypatch.setattr(limits, "line", line)
    for length in (127, 131, 200, 259, 514, 1000):
        x, y = normal(length), normal(length, seed=1)
        x[length // 2 :], y[length // 2 :] = np.nan, -np.nan
        code, _ = built(lambda x, y: ((x + y) * y + 1.0, x * y), x, y)
        assert bits(code(x, y)) == bits([(x + y) * y + 1.0, x * y])


def test_ends_overlap_other_blocks_where_registers_would_be_broken() -> None:
    for first, length in itertools.product(range(64), (127, 191, 192, 193, 300)):
        ends, cuts = cuts_from(first, length, 128)
        left_over = np.full(length, -1)
        for some in [*ends, *cuts]:
            for (key,) in some.keys:
                count = np.arange(key.stop - key.start)
                left_over[key] = count >= count.size // 8 * 8
        if ends:
            count = np.arange(length)
            assert (left_over == (count >= length // 8 * 8)).all()
            assert {k.start % 64 for some in cuts for (k,) in some.keys} == {first}


def test_elements_that_are_written_over_operands_are_computed_once(monkeypatch) -> None:
    monkeypatch.setattr(limits, "in_place", 2)
    x = normal(1000)
    expected = x * 2.0 + 1.0

    def twice(x):
        x *= 2.0
        x += 1.0

    co.compile(twice)(x)
    assert (x == expected).all()
    # The product of matrices ends in the run, which writes over it.
    weights = normal(20, 20)
    fast = co.compile(lambda x: (x @ weights).ravel() * 2.0 + 1.0)
    given = normal(30, 20)
    assert (fast(given) == (given @ weights).ravel() * 2.0 + 1.0).all()


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u2", "f2", "f4", "i8", "f8", "c8", "c16"]
)
def test_elements_that_masks_select_have_eagers_bits(dtype) -> None:
    random = np.random.default_rng(0)
    x, y = (random.integers(0, 255, (30, 16 * 7), "u1") for _ in range(2))
    x, y = (v.view(dtype) if dtype != "?" else v > 99 for v in (x, y))
    masks = random.random(x.shape) < 0.5, np.arange(x.size).reshape(x.shape) < 50
    for mask in (*masks, masks[0][:, :1], masks[0][0], masks[0].astype(np.int16)):

        def f(mask, x, y):
            chosen = np.where(mask, x, y)
            return chosen, np.where(mask, chosen, 0), np.where(mask, y[0, 0], chosen)

        code, _ = built(f, mask, x, y)
        assert "blocks" in str(code.explain()[0])
        with np.errstate(all="ignore"):
            assert bits(code(mask, x, y)) == bits([*f(mask, x, y)])


# ---- layouts ----


LAYOUTS = {
    "c": lambda: (normal(13, 15), normal(13, 15)),
    "fortran": lambda: (np.asfortranarray(normal(13, 15)), normal(15, 13).T),
    "mixed": lambda: (np.asfortranarray(normal(13, 15)), normal(13, 15)),
    "steps and rows": lambda: (normal(13, 30)[:, ::2], normal(15)),
    "columns": lambda: (normal(13, 15), normal(13, 1)),
    "outer": lambda: (normal(13, 1), normal(1, 15)),
    "reversed": lambda: (normal(200)[::-1], normal(400)[::2]),
    "turned": lambda: (normal(6, 5, 7).transpose(1, 2, 0), normal(7, 6)),
    "repeated": lambda: (np.broadcast_to(normal(15), (13, 15)), normal(1)),
    "long rows": lambda: (normal(4, 200), normal(4, 1)),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_results_are_laid_out_as_eagers(make) -> None:
    args = make()
    code, _ = built(chain, *args)
    assert "run(given)" in code.code
    assert bits(code(*args)) == bits([chain(*args)])


def test_other_strides_than_those_of_the_capture_are_seen_at_each_call() -> None:
    code, _ = built(chain, normal(13, 15), normal(13, 15))
    for x in (normal(13, 15), normal(15, 13).T, normal(26, 15)[::2]):
        for y in (normal(13, 15, seed=1), normal(15, 13, seed=1).T):
            assert bits(code(x, y)) == bits([chain(x, y)])


def test_operands_may_overlap_and_are_never_written() -> None:
    x = normal(401)
    before = x.tobytes()
    code, _ = built(chain, x[1:], x[:-1])
    assert bits(code(x[1:], x[:-1])) == bits([chain(x[1:], x[:-1])])
    assert x.tobytes() == before


def test_small_calls_within_a_run_come_first() -> None:
    def f(x, a):
        y = x * 2.0
        scale = np.exp(a) + 1.0
        return np.sin(y) * scale

    args = normal(200), np.float64(0.3)
    code, _ = built(f, *args)
    assert code.code.count("run(given)") == 1
    assert bits(code(*args)) == bits([f(*args)])


def test_a_symbolic_size_is_looked_at_when_called() -> None:
    module = co.make_fx(chain, sizes={"x": ("n",), "y": ("n",)})(normal(4), normal(4))
    code = co.compiling.numpy_backend.build.build(module)
    for n in (1, 2, 63, 64, 65, 200, 401):
        x, y = normal(n), normal(n, seed=1)
        assert bits(code(x, y)) == bits([chain(x, y)])


# ---- warnings and errors ----


def noisy(x):
    y = x * 2.0
    z = np.log(y) + 1.0 / y
    return np.exp(z * 1e6) - np.sqrt(y)


@pytest.mark.parametrize("mode", ["ignore", "warn", "raise", "call", "print", "log"])
def test_flags_are_reported_as_if_the_calls_ran_one_by_one(mode, capfd) -> None:
    x = normal(700)
    x[600] = 0.0
    code, module = built(noisy, x)

    def heard(run):
        told = []
        log = type("Log", (), {"write": lambda _, text: told.append(text)})()
        with np.errstate(call=log if mode == "log" else lambda *a: told.append(a)):
            found = outcome(run, all=mode)
        return bits(found), told, capfd.readouterr()

    assert heard(lambda: code(x)) == heard(lambda: module.run_list(x))


def test_warnings_that_are_errors_come_from_the_first_call_that_warns() -> None:
    x = np.zeros(200)
    code, _ = built(noisy, x)
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(RuntimeWarning) as error,
    ):
        code(x)
    assert str(error.value) == "divide by zero encountered in log"


def test_an_error_names_the_node_and_the_users_line() -> None:
    code, _ = built(noisy, np.ones(200))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError) as error:
        code(np.zeros(200))
    assert str(error.value) == "divide by zero encountered in log"
    assert [note[:24] for note in error.value.__notes__] == ["in the node 'log', trace"]


# ---- memory ----


def peak(run):
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def spread(x):
    y = x * 2.0
    return [np.sin(y), np.cos(y), y + 1.0]


PROGRAMS = {
    "chain": lambda x: chain(x, x),
    "several results": spread,
    "gradient": co.grad(lambda x: np.sum(np.tanh(np.sin(x) * x))),
    "value": co.value_and_grad(lambda x: np.sum(np.exp(np.sin(x) * x))),
    "where": lambda x: np.where(x > 0, x * 2.0, np.cumsum(x) + 1.0),
}


@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.usefixtures("usual_blocks")
def test_peak_memory_is_at_most_eagers(fn) -> None:
    x = normal(1_100_000)
    code, _ = built(fn, x)
    code(x)
    # Names, frames and lists of Python take some hundred bytes.
    assert peak(lambda: code(x)) <= peak(lambda: fn(x)) + 4000


@pytest.mark.usefixtures("usual_blocks")
def test_memory_that_ends_in_a_run_is_taken_over() -> None:
    def f(x):
        y = np.cumsum(x)
        return np.sin(y) * 2.0

    x = normal(1_100_000)
    code, _ = built(f, x)
    code(x)
    assert peak(lambda: code(x)) < 1.2 * x.nbytes
    assert bits(code(x)) == bits([f(x)])


def test_memory_that_a_kernel_keeps_is_not_written() -> None:
    kept = []

    @co.custom_op("compiled_blocks::keeps", mutates_args=())
    def keeps(x: co.Array) -> co.Array:
        kept.append(np.copy(x))
        return kept[-1]

    keeps.register_fake(co.fake_like)
    x = normal(200)
    code, _ = built(lambda x: np.sin(keeps(x)) * 2.0, x)
    for _ in range(3):
        assert bits(code(x)) == bits([np.sin(x) * 2.0])
    assert all(np.array_equal(k, x) for k in kept)


# ---- threads, and what is said ----


def test_threads_share_a_function() -> None:
    inputs = [normal(3000, seed=i) for i in range(4)]
    code, _ = built(lambda x: chain(np.cumsum(x), x), inputs[0])
    wants = [bits([chain(np.cumsum(x), x)]) for x in inputs]
    wrong = []

    def work(i):
        wrong.extend(i for _ in range(30) if bits(code(inputs[i])) != wants[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_explain_names_the_runs_and_why_they_end() -> None:
    def f(x):
        y = np.cumsum(np.sin(x) * 2.0)
        return y + np.ones(200)[::-1] @ y

    code, _ = built(f, normal(200))
    first = "sin, multiply (ends where 'reshape' is a view of 'multiply')"
    assert [*map(str, code.explain())] == [
        f"blocks of 2 elementwise calls: {first}",
        "blocks of 1 elementwise call: add (ends where the graph ends)",
    ]
