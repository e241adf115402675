"""The default back end: graphs as Python that calls NumPy, with eager's numbers to the bit."""

import numpy as np
import pytest

import customop as co
from customop.compiling.numpy_backend.build import build
from tests.compiling._array_programs import Program, bits, outcome

SMALL = ((3,), (4, 3), (2, 3, 4), (1,), (0,), (5, 1), (1, 4), ())


def built(fn, *args):
    """The code of a function of arrays, and its graph."""
    module = co.make_fx(fn, "fake")(*args)
    module = co.eliminate_common_subexpressions(co.eliminate_dead_code(module))
    return build(module), module


def check_programs(seeds, shapes, length=12) -> int:
    """Compare random programs with eager ones, and their warnings with those of the graph."""
    count = 0
    for seed in seeds:
        program = Program(seed, shapes, length)
        args = program.args
        want, _ = outcome(lambda p=program, a=args: p(*a))
        code, module = built_quietly(program, args)
        for errors in ({}, {"all": "raise"}, {"under": "warn", "divide": "ignore"}):
            got, warned = outcome(lambda c=code, a=args: code_run(c, a), **errors)
            expected, expected_warned = outcome(
                lambda m=module, a=args: m.run_list(*a), **errors
            )
            # A program goes on after what NumPy refuses, which a graph cannot.
            if "all" not in errors and not isinstance(expected, tuple):
                assert bits(got) == bits(want), (seed, errors)
            assert bits(plain(got)) == bits(plain(expected)), (seed, errors)
            assert plain(warned) == plain(expected_warned), (seed, errors)
            count += 1
    return count


def code_run(code, args):
    return code(*args)


def plain(found):
    """Texts of warnings and errors without what only says that a value was a scalar."""
    if isinstance(found, str):
        return found.replace("scalar ", "")
    return type(found)(map(plain, found)) if isinstance(found, list | tuple) else found


def built_quietly(program, args):
    return outcome(lambda: [*built(program, *args)])[0]


def test_random_programs_have_eagers_bits_and_warnings() -> None:
    assert check_programs(range(40), SMALL) == 120


@pytest.mark.exhaustive
def test_many_random_programs_have_eagers_bits_and_warnings() -> None:
    assert check_programs(range(1000, 1400), SMALL) == 1200


# ---- what is simplified ----


def test_the_seed_of_a_gradient_and_what_follows_from_it_is_computed_once() -> None:
    x = np.arange(3.0)
    code, _ = built(co.grad(lambda x: np.sum(np.sin(x) * 2.0)), x)
    assert "full_like" not in code.code
    assert "broadcast_to" not in code.code
    assert (
        code(x)[0].tobytes() == co.grad(lambda x: np.sum(np.sin(x) * 2.0))(x).tobytes()
    )


def test_a_product_with_one_is_left_out_where_no_bit_can_change() -> None:
    def f(x, y):
        return np.sum(x * y)

    x = np.array([1.0, -0.0, np.nan, np.inf])
    code, _ = built(co.grad(f), x, x)
    # 1 * x could change a nan that signals, so x is multiplied.
    assert code.code.count("*") == 1
    assert bits(code(x, x)[0]) == bits(co.grad(f)(x, x))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u8", "c8", "?"])
@pytest.mark.parametrize("number", [2, -1, 0.1, 1e300, 300, 1j, True])
def test_pythons_numbers_take_the_dtype_of_arrays(dtype, number) -> None:
    x = np.array([0, 1, 1], dtype)
    for ufunc in (np.add, np.multiply, np.divide, np.less, np.maximum, np.power):
        want, warned = outcome(lambda u=ufunc: [u(x, number), u(number, x)])
        if isinstance(want, tuple):
            continue  # NumPy refuses it
        code, _ = outcome(
            lambda u=ufunc: built(lambda x: [u(x, number), u(number, x)], x)
        )[0]
        assert bits(outcome(lambda c=code: c(x))) == bits((want, warned))


def test_constants_are_read_at_each_call() -> None:
    table = np.arange(3.0)
    code, _ = built(lambda x: x + table * co.ops.np.cos(table), np.ones(3))
    table[:] = 5.0
    assert np.array_equal(code(np.zeros(3))[0], table * np.cos(table))


# ---- operators ----


def test_a_kernel_that_is_replaced_is_called() -> None:
    x = np.arange(3.0)
    code, _ = built(lambda x: np.sinh(x) + 1.0, x)
    assert np.array_equal(code(x)[0], np.sinh(x) + 1.0)
    with co.Library("np", "FRAGMENT") as library:
        library.impl("sinh", lambda x: x * 100.0, "CPU")
        assert np.array_equal(code(x)[0], x * 100.0 + 1.0)
    assert np.array_equal(code(x)[0], np.sinh(x) + 1.0)


def test_an_error_of_a_kernel_has_the_line_of_the_user() -> None:
    @co.custom_op("compiled_blocks::picky", mutates_args=())
    def picky(x: co.Array) -> co.Array:
        if x[0] < 0:
            raise ValueError("negative")
        return x * 2.0

    picky.register_fake(co.fake_like)
    code, _ = built(lambda x: np.sin(picky(x)), np.ones(2))
    with pytest.raises(ValueError, match="negative") as error:
        code(-np.ones(2))
    assert "in the node 'picky', traced at" in error.value.__notes__[0]
    assert __file__ in error.value.__notes__[0]


def test_operators_with_effects_stay_in_order() -> None:
    def f(x):
        y = x * 2.0
        x += 1.0
        return y + x

    x, own = np.arange(3.0), np.arange(3.0)
    code, _ = built(f, np.arange(3.0))
    assert np.array_equal(code(x)[0], f(own))
    assert np.array_equal(x, own)


def test_graphs_of_control_flow_are_compiled_too() -> None:
    def f(x):
        return co.fori_loop(0, 3, lambda i, c: np.sin(c) * 2.0, x)

    x = np.arange(3.0)
    code, module = built(f, x)
    assert code(x)[0].tobytes() == f(x).tobytes() == module(x).tobytes()


_I, _J = np.array([2, -1, 0, 2]), np.array([1, 1, 0, -2])
INDEXED = {
    "one index": lambda x: x[_I],
    "two": lambda x: x[_I, _J],
    "of one length": lambda x: x[_I, _J[:1]],
    "unsigned": lambda x: x[_I[2:].astype(np.uint64)],
    "the second axis": lambda x: x[:, _J],
    "a table of places": lambda x: x[np.array([[0, 1], [2, 0]])],
    "a vector": lambda x: x[:, 0][_I] * 2.0,
    "no places": lambda x: x[_I[:0]],
    "flip": lambda x: [np.flip(x), np.flip(x, 1), np.fliplr(x[::2])],
    "concatenate": lambda x: np.concatenate([x, x[:1], x.T[:, :4].T], 0),
}


@pytest.mark.parametrize("fn", INDEXED.values(), ids=INDEXED)
def test_indexed_and_joined_arrays_have_eagers_bits_and_layout(fn) -> None:
    x = np.random.default_rng(0).normal(size=(4, 4))
    for given in (x, np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x[:3]):
        want = fn(given)
        code, _ = built(fn, given)
        assert bits(code(given)) == bits(want if type(want) is list else [want])


def test_places_out_of_bounds_have_eagers_error() -> None:
    x, places = np.ones((3, 2)), np.array([0, 1])
    code, _ = built(lambda x, i: x[i] + x[:, 0][i][:, None], x, places)
    for wrong in (np.array([0, 3]), np.array([-4, 0])):
        with pytest.raises(IndexError) as eager:
            x[wrong]
        with pytest.raises(IndexError, match=str(eager.value)):
            code(x, wrong)


def test_results_that_are_inputs_or_views_stay_so() -> None:
    x = np.arange(6.0)
    code, _ = built(lambda x: [x, np.reshape(x, (2, 3)), x[1:]], x)
    same, wide, part = code(x)
    assert same is x
    assert wide.base is x
    assert part.base is x


# ---- memory that is written again ----


def matrices(order="C"):
    random = np.random.default_rng(1)
    return [np.asarray(random.normal(size=(3, 4)), order=order) for _ in range(2)]


def test_results_take_the_memory_of_operands_that_end() -> None:
    def f(x, y):
        z = x @ x
        return np.tanh(1.0 - z * y) * 2.0

    x, y = np.ones((3, 3)), np.full(3, 0.1)
    code, _ = built(f, x, y)
    for call in ("matmul, y, matmul)", "subtract, subtract)", ", tanh)"):
        assert call in code.code
    assert bits(code(x, y)) == bits([f(x, y)])


TURNED = np.asfortranarray(np.ones((3, 4)))
READERS = {
    "a result": lambda x, y: [z := x + y, z * 2.0],
    "a view of it": lambda x, y: [(z := x + y).T, z * 2.0],
    "rows of both": lambda x, y: (z := x + y)[:2] + (z * 2.0)[:2],
    "twice": lambda x, y: (z := x + y) * z - (x - y),
    "another order": lambda x, y: (x + y) * TURNED,
    "an argument in another order": lambda x, y: (x * 2.0) + y,
    "one row": lambda x, y: (x[:1] * 2.0) + y,
    "booleans": lambda x, y: (x > y) & (x > 0.0),
    "maximum": lambda x, y: np.maximum(x + y, 0.5) * 2,
    "small integers": lambda x, y: np.power((x + y).astype(np.int8), 2) + np.int8(100),
}


@pytest.mark.parametrize("fn", READERS.values(), ids=READERS)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_memory_is_taken_only_where_no_bit_and_no_stride_changes(fn, orders) -> None:
    x, y = matrices(orders[0])[0], matrices(orders[1])[1]
    code, _ = built(fn, *matrices())
    want = fn(x, y)
    want = want if isinstance(want, list) else [want]
    assert bits(code(x, y)) == bits(want)


def test_extremes_take_the_memory_of_operands_that_end() -> None:
    x = np.array([-1.0, -0.0, 0.0, np.nan, 2.0])
    code, _ = built(lambda x: np.minimum(np.maximum(x * 2.0, 0.0), -x), x)
    assert code.code.count("out=") == 2
    assert bits(code(x)) == bits([np.minimum(np.maximum(x * 2.0, 0.0), -x)])


def test_memory_that_a_kernel_keeps_is_not_written() -> None:
    kept = []

    @co.custom_op("compiled_reuse::keeps", mutates_args=())
    def keeps(x: co.Array) -> co.Array:
        kept.append(x)
        return x + 1.0

    keeps.register_fake(co.fake_like)
    x = np.arange(3.0)
    code, _ = built(lambda x: keeps(y := x * 2.0) + y * 3.0, x)
    for _ in range(2):
        assert np.array_equal(code(x)[0], x * 8.0 + 1.0)
    assert all(np.array_equal(k, x * 2.0) for k in kept)


def test_a_number_of_a_gradient_is_computed_once() -> None:
    gradient = co.grad(lambda x: np.mean(x * x))
    x = np.arange(12.0).reshape(3, 4)
    code, _ = built(gradient, x)
    assert "/" not in code.code
    assert bits(code(x)) == bits([gradient(x)])


def test_each_call_is_checked_where_asked_also_later(monkeypatch) -> None:
    x = np.arange(3.0)
    with co.Library("np", "FRAGMENT") as library:
        library.impl("sinh", lambda x: x[:1].copy(), "CPU")
        before, _ = built(np.sinh, x)
        monkeypatch.setattr(co.config, "checks", "always")
        later, _ = built(np.sinh, x)
        for checks in ("always", "first", "always"):
            monkeypatch.setattr(co.config, "checks", checks)
            for code in (before, later):
                if checks == "first":
                    assert len(code(x)[0]) == 1
                else:
                    with pytest.raises(co.CustomOpError, match="np::sinh"):
                        code(x)


@pytest.mark.parametrize("make", [np.zeros_like, np.ones_like, lambda y: y * 0 + 1])
@pytest.mark.parametrize("shape", [(), (3,), (2, 1)])
def test_results_are_no_views_of_what_the_code_keeps(make, shape) -> None:
    def fn(y):
        v = make(y)
        w = np.zeros(4)[1:]
        return v[None], v, np.atleast_1d(v).T, w

    compiled, y = co.compile(fn), np.ones(shape)
    for out in compiled(y):
        if isinstance(out, np.ndarray):
            out[...] = 5.0
    for found, expected in zip(compiled(y), fn(y), strict=True):
        assert np.array_equal(found, expected)


def test_a_graph_inside_may_have_no_name() -> None:
    x = np.arange(3.0)
    code, module = built(lambda t: np.cos(t) * 2.0, x)
    (cos,) = [node for node in module.graph.nodes if node.name == "cos"]
    cos.target = co.make_fx(lambda t: np.sin(t))(x)
    assert bits(code(x)) == bits([np.cos(x) * 2.0])
    assert bits(build(module)(x)) == bits([np.sin(x) * 2.0])
