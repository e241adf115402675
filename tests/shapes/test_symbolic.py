"""Symbolic sizes: arithmetic, questions, and fake arrays that have them."""

import copy
import gc
import io
import math
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.shapes.size_context import SizeContext


def test_arithmetic_has_one_form() -> None:
    """Equal expressions are the same expression, and constants are ints."""
    n = SizeContext().input_size(4, "x.shape[0]")
    assert str((6 * n + 5) // 3) == "2*s0 + 1"
    assert (n + 1) - n == 1
    assert type((n + 1) - n) is int
    assert str(n % 2) == "s0 % 2"
    assert (n - n % 3) % 3 == 0


def test_a_question_about_an_input_is_a_guard() -> None:
    """It is answered by the size of the call, and recorded once with its line."""
    context = SizeContext()
    n = context.input_size(4, "x.shape[0]")
    for _ in range(2):
        assert n > 2
    (guard,) = context.guards
    assert (guard.text, guard.holds({"s0": 3}), guard.holds({"s0": 2})) == (
        "s0 > 2",
        True,
        False,
    )
    assert __file__ in guard.place


def test_a_question_about_data_is_an_error() -> None:
    """Until a check has said the answer."""
    n = SizeContext().new_dynamic_size(max=9)
    with pytest.raises(co.DataDependentError, match=r"whether u0 == 3 is asked"):
        bool(n == 3)
    assert n < 10
    co.check(n > 3)
    assert n != 3


def test_a_named_size_stays_symbolic() -> None:
    """At any value, also 0, 1 and that of another size."""
    x = co.FakeMode().from_array(np.zeros((1, 3)), sizes=("batch", 3))
    y = x * 2.0 + np.ones(3)
    assert repr(y) == "FakeArray(f64[batch, 3], device='cpu')"
    with pytest.raises(co.SizeError, match="whether batch == 1 is asked"):
        bool(x.shape[0] == 1)


def test_a_fake_kernel_asks_for_sizes() -> None:
    """Real results are compared with their bounds."""

    @co.custom_op("symtest::positive", mutates_args=())
    def positive(x: np.ndarray) -> np.ndarray:
        return x[x > 0]

    @positive.register_fake
    def _(x: co.FakeArray) -> co.FakeArray:
        return co.fake_like(x, shape=(co.get_ctx().new_dynamic_size(max=2),))

    with pytest.raises(co.ContractError, match="a size 3, and the fake kernel says"):
        positive(np.ones(3))
    assert positive(np.array([1.0, -1.0, 2.0])).shape == (2,)
    out = positive(co.FakeArray((5,)))
    assert str(out.shape[0]).startswith("u")
    with pytest.raises(co.RegistrationError, match="outside of a fake kernel"):
        co.get_ctx()


def test_numpy_converts_a_size_to_a_number() -> None:
    """Never to an object; the conversion is a guard, or an error that says what works."""
    context = SizeContext()
    n = context.input_size(3, "x.shape[0]")
    assert np.array([n, 2]).dtype == np.int64
    assert np.arange(n).tolist() == [0, 1, 2]
    assert [guard.text for guard in context.guards] == ["s0 == 3"]
    assert str(context.guards[0]).startswith("s0 == 3  at ")
    batch = context.input_size(3, "y.shape[0]", "batch")
    with pytest.raises(co.SizeError) as error:
        range(batch)
    assert str(error.value) == (
        "the number batch is asked, and batch may be any size\n"
        f"  at {__file__}:{error.traceback[0].lineno + 1}\n"
        "  batch: the size of y.shape[0], at least 0, now 3\n"
        "  do: keep the size: np.arange(n, like=x) and np.zeros_like(x, shape=(n,)) with"
        " an array x of the function, math.prod(x.shape); co.sizes.broadcast_sizes(s, t)"
        " in place of np.broadcast_shapes(s, t); co.scan(f, init, x) and"
        " co.fori_loop(0, n, ...) in place of a loop"
    )


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("-8 * n <= -8", "s0 >= 1"),
        ("6 * n + 3 > 9", "2*s0 + 1 > 3"),
        ("n % 2 == 0", "s0 % 2 == 0"),
        ("n // 2 + 1 == 3", "s0//2 + 1 == 3"),
        ("n**0.5 < 3", "s0 ** 0.5 < 3"),
        ("(n > 1) & (n < 9)", "s0 > 1 and s0 < 9"),
        ("(n > 9) | (n == 4)", "s0 > 9 or s0 == 4"),
    ],
)
def test_guards_read_as_python(question: str, text: str) -> None:
    """Without common factors and needless minus signs, and they can be run."""
    context = SizeContext()
    assert eval(question, {"n": context.input_size(4, "x.shape[0]")})
    (guard,) = context.guards
    assert guard.text == text
    for n in range(12):
        holds = guard.holds({"s0": n})
        assert eval(guard.text, {}, {"s0": n}) == holds == eval(question, {"n": n})


# ---- floats and NumPy ----

NAMES = {"np": np, "co": co, "math": math}


@pytest.mark.parametrize(
    "text",
    [
        "n / 2",
        "n**0.5 + 1",
        "np.sqrt(n)",
        "np.float64(2) * n",
        "np.log(n + 1) // 1",
        "-(n / 3) % 2",
        "abs(n / 3)",
        "2.0**n",
        "np.divide(n, 4)",
        "np.minimum(n / 2, 1.5)",
        "co.sizes.sym_max(n / 3, 2)",
        "co.sizes.sym_min(n / 3, n, 1.5) * 2",
    ],
)
def test_floats_have_the_value_and_the_class_that_python_gives(text: str) -> None:
    """Also as text, and beside an array: floats of NumPy are strong, as NEP 50 says."""
    n = SizeContext().input_size(4, "x.shape[0]")
    found, expected = (eval(text, {**NAMES, "n": v}) for v in (n, 4))
    assert isinstance(found, co.SymFloat)
    assert (found.hint, type(found.hint)) == (expected, type(expected))
    assert eval(str(found), {"np": np, "s0": 4}) == expected
    x = np.ones(3, np.float32)
    with co.FakeMode() as mode:
        y = mode.from_array(x) * found
    assert y.dtype == (x * expected).dtype


@pytest.mark.parametrize(
    "text",
    [
        "np.minimum(n, 3)",
        "np.maximum(n, 3) * 2",
        "np.add(n, 1) // np.int64(2)",
        "divmod(n, 3)[1] + divmod(9, n)[0]",
        "math.floor(n / 3) + math.ceil(n / 3)",
        "(-n) // 3 + (-n) % 3 + abs(1 - n)",
        "n**2 - True",
        "sum((n, 2, n))",
        "co.sizes.sym_max(n, 2, 9)",
        "round(n) + n.conjugate() + n.imag",
    ],
)
def test_integers_stay_symbolic(text: str) -> None:
    """Arithmetic that gives integers makes no guard."""
    context = SizeContext()
    n = context.input_size(5, "x.shape[0]", min=1)
    found, expected = (eval(text, {**NAMES, "n": v}) for v in (n, 5))
    assert getattr(found, "hint", found) == expected
    assert context.guards == ([] if isinstance(found, co.SymInt) else context.guards)
    again = eval(str(found), {"np": np, "s0": 5})
    assert (again, type(again)) == (expected, type(expected))


def test_conditions_are_combined_without_a_decision() -> None:
    """By & and |; a plain bool leaves one side."""
    n = SizeContext().new_dynamic_size()
    assert str((n > 2) & (n < 9)) == "u0 > 2 and u0 < 9"
    assert str(~((n > 2) | (n == 1))) == "u0 <= 2 and u0 != 1"
    assert ((n > 2) & False) is False
    assert ((n > 2) | np.True_) is True
    assert str(True & (n > 2)) == "u0 > 2"
    assert (n == None) is False  # noqa: E711  # as any number
    assert (n != "text") is True
    with pytest.raises(TypeError):
        n + "text"


# ---- sizes of one capture ----


def test_sizes_of_two_captures_do_not_mix() -> None:
    """Their names may be the same."""
    first, second = SizeContext(), SizeContext()
    n, m = first.new_dynamic_size(), second.new_dynamic_size()
    for mix in (
        lambda: n + m,
        lambda: n == m,
        lambda: n / m,
        lambda: co.sizes.is_known(n, m),
        lambda: co.sizes.broadcast_sizes((n,), (m,)),
        lambda: np.minimum(n, m),
    ):
        with pytest.raises(co.ArgumentError) as error:
            mix()
        assert str(error.value) == (
            "u0 and u0 are sizes of different captures\n"
            "  do: make both in one capture, or under one FakeMode()"
        )


def test_sizes_are_copied_as_they_are_and_not_pickled() -> None:
    """Their context is an identity."""
    n = SizeContext().new_dynamic_size()
    assert copy.deepcopy([n])[0] is n
    assert copy.copy(n) is n
    with pytest.raises(co.ArgumentError) as error:
        pickle.dumps(n)
    assert str(error.value) == (
        "the symbolic u0 cannot be pickled: it belongs to one capture\n"
        "  do: save the graph with graph.save(path)"
    )


@pytest.mark.parametrize(
    ("bounds", "error", "text"),
    [
        ({"min": -1}, co.ShapeError, "new_dynamic_size: min=-1 is negative"),
        ({"min": 3, "max": 2}, co.ShapeError, "max=2 is less than min=3"),
        ({"max": 2.0}, co.ArgumentError, "max=2.0 is not an int"),
        ({"min": None}, co.ArgumentError, "min=None is not an int"),
    ],
)
def test_bounds_are_checked(bounds: Any, error: Any, text: str) -> None:
    """A ShapeError is a ValueError."""
    assert issubclass(co.ShapeError, ValueError)
    with pytest.raises(error, match=text):
        SizeContext().new_dynamic_size(**bounds)


def test_names_are_checked() -> None:
    """A name is one size, and cannot be that of a size without a name."""
    context = SizeContext()
    n = context.input_size(4, "x.shape[0]", "n")
    assert context.input_size(4, "y.shape[1]", "n") == n
    assert context.sizes["n"].sources == ["x.shape[0]", "y.shape[1]"]
    with pytest.raises(co.ShapeError) as error:
        context.input_size(5, "z.shape[0]", "n")
    assert str(error.value) == (
        "the size 'n' is 4 in x.shape[0] and 5 in z.shape[0]\n"
        "  do: give sizes that may differ different names"
    )
    for name in ("s0", "u12", "for", "2n", ""):
        with pytest.raises(co.ArgumentError):
            context.input_size(5, "z.shape[0]", name)


def test_checks_are_known_from_then_on() -> None:
    """Those that cannot hold raise; plain ones are decided at once."""
    context = SizeContext()
    n, m = context.new_dynamic_size(max=8), context.input_size(4, "x.shape[0]")
    co.check(n * 2 == m)
    assert m % 2 == 0
    assert n < 9
    assert [guard.text for guard in context.checks] == ["2*u0 == s0"]
    with pytest.raises(co.ShapeError, match="too long"):
        co.check(n > 8, "too long")
    with pytest.raises(co.ShapeError, match="check: the condition is False"):
        co.check(condition=False)
    with pytest.raises(
        co.ArgumentError, match=r"has the shape \(2,\), and must be one"
    ):
        co.check(np.ones(2) > 0)
    co.check(np.ones(()) > 0)


def test_a_divisor_is_checked() -> None:
    """A quotient of sizes is for sizes that are not zero."""
    context = SizeContext()
    n, m = context.input_size(6, "x.shape[0]"), context.input_size(2, "x.shape[1]")
    assert str((n * m) // m) == "s0"
    assert [guard.text for guard in context.guards] == ["s1 != 0"]
    with pytest.raises(ZeroDivisionError):
        n // context.input_size(0, "x.shape[2]")


def test_contexts_live_as_long_as_their_sizes() -> None:
    """No cache keeps them."""
    mode = co.FakeMode()
    x = mode.from_array(np.zeros((4, 3)), sizes=("batch", 3))
    context = weakref.ref(x.shape[0].context)
    y = (
        np.sum(np.exp(x * 2.0) + x, axis=0)
        + np.matmul(x, np.ones((3, 3)))
        + np.zeros((1, 3))
    )
    assert context() is not None
    del mode, x, y
    gc.collect()
    assert context() is None


# ---- broadcasting ----


@pytest.mark.parametrize(
    ("hints", "expected", "guards"),
    [
        ((4, 4), "s0", ["s0 == s1"]),
        ((1, 4), "s1", ["s0 == 1"]),
        ((4, 1), "s0", ["s1 == 1"]),
        ((0, 1), "s0", ["s1 == 1"]),
        ((1, 1), "s0", ["s0 == s1"]),
    ],
)
def test_broadcasting_makes_one_guard(
    hints: tuple[int, int], expected: str, guards: list[str]
) -> None:
    """Which says what was the same, or 1."""
    context = SizeContext()
    shapes = [(context.input_size(h, f"x{i}.shape[0]"),) for i, h in enumerate(hints)]
    assert str(co.sizes.broadcast_sizes(*shapes)[0]) == expected
    assert [guard.text for guard in context.guards] == guards


def test_broadcasting_with_numbers_and_names() -> None:
    """A 1 asks nothing; a name goes with a size without a name, never with a number."""
    context = SizeContext()
    n, s = context.input_size(4, "x.shape[0]", "n"), context.input_size(4, "y.shape[0]")
    join = co.sizes.broadcast_sizes
    assert join((n, 1), (1, 3)) == (n, 3)
    assert context.guards == []
    assert join((s,), (n,)) == (n,)
    assert [guard.text for guard in context.guards] == ["s0 == n"]
    for other in (4, context.input_size(4, "z.shape[0]", "m")):
        with pytest.raises(co.SizeError):
            join((n,), (other,))
    five = context.input_size(5, "z.shape[1]")
    with pytest.raises(co.ShapeError) as error:
        join((s, 2), (five, 2))
    assert str(error.value) == (
        "the shapes (s0, 2) and (s1, 2) cannot be broadcast together\n"
        "  do: pass arrays whose sizes are equal or 1 along each axis"
    )


# ---- arrays with symbolic sizes ----


def named(shape: tuple[int, ...], *names: str | None) -> co.FakeArray:
    """Return a fake array with names for its sizes."""
    return co.FakeMode().from_array(np.zeros(shape), sizes=names)


def test_transforms_run_on_symbolic_sizes() -> None:
    """Also those that make a basis of as many rows as there are elements."""
    x, v = named((2, 3), "n", None), named((3,), "m")
    assert str(co.grad(lambda x: np.sum(np.sin(x) * x.shape[0]))(x).shape) == "(n, 3)"
    assert str(co.vmap(lambda r: r / r.shape[0] + r.sum())(x).shape) == "(n, 3)"
    assert str(co.jvp(lambda x: x @ x.T, (x,), (x,))[1].shape) == "(n, n)"
    assert str(co.jacrev(lambda v: np.sin(v) * 2.0)(v).shape) == "(m, m)"
    assert str(co.hessian(lambda v: np.sum(v**3))(v).shape) == "(m, m)"


def test_constants_beside_symbolic_sizes_become_fake() -> None:
    """Also in the fast path of an operator with a list of sizes."""
    n = named((3,), "n").shape[0]
    for call in (co.ops.np.broadcast_to.default, co.ops.np.broadcast_to.default.run):
        assert repr(call(np.ones(()), [n])) == "FakeArray(f64[n], device='cpu')"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("n",), "sizes=('n',) has 1 entry for f64[4, 3]"),
        (("n", 4), "x.shape[1] is 3, and sizes say 4"),
        (("n", "n"), "the size 'n' is 4 in x.shape[0] and 3 in x.shape[1]"),
    ],
)
def test_names_must_fit_the_shape(names: Any, text: str) -> None:
    """One for each axis; a number is the length itself."""
    with pytest.raises(co.ShapeError) as error:
        named((4, 3), *names)
    assert str(error.value).startswith(text + "\n  do: ")


def test_strides_are_those_of_an_array_that_is_not_empty() -> None:
    """The order of axes is kept, also where an axis has the length 0 or 1 now."""
    mode = co.FakeMode()
    x = mode.from_array(np.zeros((4, 3)), sizes=("n", 3))
    assert (x.strides, x.size, x.nbytes, x.ndim) == (
        (24, 8),
        3 * x.shape[0],
        24 * x.shape[0],
        2,
    )
    y = mode.from_array(np.zeros((3, 1), order="F"), sizes=(3, "k"))
    assert str(y.strides) == "(8, 24)"
    assert co.fake_like(y).strides == y.strides
    assert str(co.fake_like(y, shape=(y.shape[1], 5)).strides) == "(8, 8*k)"
    empty = mode.from_array(np.zeros((0, 2)), sizes=("e", 2))
    assert (empty * 2.0).strides == (16, 8)
    with pytest.raises(co.ShapeError, match="no negative lengths"):
        co.FakeArray((-1 - x.shape[0],))


# ---- operators with shapes ----


def test_shapes_in_annotations_take_symbolic_sizes() -> None:
    """One arithmetic for both: sums are solved, and what must hold is checked."""
    schema = "(float[m,k] x, float[k,n+1] y, int r) -> float[m,n//2,r]"
    op = co.custom_op("symtest::s", lambda x, y, r: x, mutates_args=(), schema=schema)
    mode = co.FakeMode()
    x = mode.from_array(np.zeros((4, 3)), sizes=("m", "k"))
    y = mode.from_array(np.zeros((3, 6)), sizes=("k", "c"))
    out = op(x, y, x.shape[0])
    assert repr(out) == "FakeArray(f64[m, (c + 1)//2 - 1, m], device='cpu')"
    context = x.shape[0].context
    assert [guard.text for guard in context.guards] == ["c - 1 >= 0"]
    with pytest.raises(co.SizeError, match="whether k == q is asked"):
        op(x, mode.from_array(np.zeros((3, 6)), sizes=("q", "c")), 1)
    half = co.custom_op(
        "symtest::half",
        lambda x: x,
        mutates_args=(),
        schema="(float[...,2*n] x) -> float[...,n]",
    )
    assert str(half(y).shape) == "(k, c//2)"
    assert context.guards[-1].text == "c % 2 == 0"
    assert str(co.vmap(half)(y).shape) == "(k, c//2)"


def test_an_axis_that_may_be_one_keeps_its_name() -> None:
    """An axis '#n' with a name is as long as the others; without a name 1 is a guard."""
    schema = "(float[#n] x, float[#n] y) -> float[n]"
    op = co.custom_op("symtest::b", lambda x, y: x, mutates_args=(), schema=schema)
    x = named((1,), "n")
    assert op(x, x).shape == x.shape
    assert op(x, co.FakeArray((1,))).shape == x.shape
    context = SizeContext()
    one, six = context.input_size(1, "a.shape[0]"), context.input_size(6, "b.shape[0]")
    assert str(op(co.FakeArray((one,)), co.FakeArray((six,))).shape) == "(s1,)"
    assert [guard.text for guard in context.guards] == ["s0 == 1"]


@pytest.mark.parametrize(
    ("step", "most", "why"),
    [
        (lambda m, n, i: np.sqrt(m), 148, "more than 150 operations inside"),
        (lambda m, n, i: m * 0.5 + i, 40, "more than 150 operations inside"),
        (lambda m, n, i: 2 * m + m // 2, 10, "a text of more than 50000 char"),
        (lambda m, n, i: m * m, 7, "a product of more than 200 sizes"),
        (
            lambda m, n, i: (np.minimum, np.maximum)[i % 2](m, n * (i + 2) - i * i),
            50,
            "more than 150 operations inside",
        ),
    ],
    ids=["roots", "floats", "doubled", "squares", "minima"],
)
def test_sizes_with_too_many_parts_are_refused(step: Any, most: int, why: str) -> None:
    """And those that are not, run from the graph, from its text, and from a file."""

    def scaled(x: Any, count: int) -> Any:
        n = m = x.shape[0]
        for i in range(count):
            m = step(m, n, i)
        return x * m

    graph = co.make_fx(lambda x: scaled(x, most), "symbolic")(np.ones(5))
    names: dict[str, Any] = {"constants": graph.named_constants()}
    exec(graph.print_readable(print_output=False), names)
    file = io.BytesIO()
    graph.save(file)
    file.seek(0)
    x = np.ones(3)
    for fn in (graph, names["graph"], co.load_graph(file)):
        np.testing.assert_array_equal(fn(x), scaled(x, most))
    with pytest.raises(co.SizeError, match=f"a size has {why}"):
        co.make_fx(lambda x: scaled(x, 400), "symbolic")(np.ones(5))
