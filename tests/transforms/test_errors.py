"""What a user reads when a transform or a NumPy function fails, word for word."""
# ruff: noqa: ISC004 - a message stands in the table line by line

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.errors import CustomOpError

pytestmark = [
    pytest.mark.usefixtures("built_in_kinds"),
    # Some rows take the loop over a batch, to see what it says.
    pytest.mark.filterwarnings("ignore:.*has no vmap rule"),
]

X = np.array([1.0, 2.0])
Y = np.array([3.0, 4.0])
Z = np.array([1.0 + 2.0j, 3.0])
N = np.array([1, 2])
M = np.array([[1.0, 2.0], [3.0, 4.0]])
# What concerns traced and fake arrays alike is asked of fake ones, which are cheaper.
F, G = co.FakeArray(2, float), co.FakeArray((2, 3), float)

ONE = "(Array x) -> Array"
TWO = "(Array x, Array y) -> Array"
LIST = "(Array[] xs) -> Array"
PAIR = "(Array x) -> (Array, Array)"


def at(fn: Callable[..., Any]) -> str:
    """File and line of a function of this module."""
    return f"{__file__}:{fn.__code__.co_firstlineno}"


def inside(fn: Callable[..., Any], line: int = 1) -> str:
    """A line in the body of a function of this module."""
    return f"{__file__}:{fn.__code__.co_firstlineno + line}"


# ---- operators that the errors are about ----


def made(
    fn: Callable[..., Any],
    schema: str = ONE,
    *,
    backward: Any = None,
    setup: Any = None,
    **rules: Any,
) -> co.Operator[..., Any]:
    """An operator with these rules, fresh: no call has proven its kernel."""
    options = {k: rules.pop(k) for k in ("mutates_args", "tags") if k in rules}
    options = {"mutates_args": (), **options}
    op = co.custom_op("texts::op", fn, schema=schema, **options)
    if backward is not None:
        op.register_autograd(backward, setup_context=setup)
    for name, rule in rules.items():
        getattr(op, f"register_{name}")(rule)
    return op


def bare(x: np.ndarray) -> np.ndarray:
    return x + 1.0


bare_op = co.custom_op("texts::bare", bare, mutates_args=())


def draw(x: np.ndarray) -> np.ndarray:
    return x + np.random.random()  # noqa: NPY002  # what operators may use


draw_op = co.custom_op(
    "texts::draw", draw, mutates_args=(), tags=co.Tag.nondeterministic_seeded
)


def raised(x: np.ndarray) -> None:
    x += 1.0


raised_op = co.custom_op("texts::raised", raised, mutates_args=("x",))


def shifted(x: np.ndarray, *, by: np.ndarray) -> np.ndarray:
    return x + by


def same(x: Any, *rest: Any) -> Any:
    return x + 0.0


def same_list(xs: Any) -> Any:
    return xs[0] + 0.0


def twice(x: Any) -> Any:
    return x + 1.0, x + 2.0


def zeros(n: int) -> Any:
    return np.zeros(n)


def mixed(x: Any, y: Any) -> None:
    x += y


def as_many(x: Any) -> Any:
    return np.ones(int(x[0]))


def as_many_items(x: Any) -> Any:
    return [np.ones(1)] * int(x[0])


def first(x: Any) -> Any:
    return int(x[0])


# ---- rules that are wrong, each in its way ----


def keep_text(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward("axis")


def keep_field(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.x = inputs[0]


def keep_saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def pass_on(ctx: Any, g: Any) -> Any:
    return g


def overwrite(ctx: Any, g: Any) -> Any:
    g *= 2.0
    return g


def three_back(ctx: Any, g: Any) -> Any:
    return ([g, g, g],)


def number_back(ctx: Any, g: Any) -> Any:
    return (1.5,)


def half_named(ctx: Any, g: Any) -> Any:
    return {"x": g}


def unknown_named(ctx: Any, g: Any) -> Any:
    return {"z": g}


def two_back(ctx: Any, g: Any) -> Any:
    return g, g


def list_back(ctx: Any, g: Any) -> Any:
    return [g]


def long_back(ctx: Any, g: Any) -> Any:
    return np.ones(3)


def single_back(ctx: Any, g: Any) -> Any:
    return g.astype(np.float32)


def gradient_of_scalar(ctx: Any, g: Any) -> Any:
    return g, 1.5


def jvp_alone(primals: Any, tangents: Any) -> Any:
    return primals[0]


def jvp_short(primals: Any, tangents: Any) -> Any:
    return primals[0], np.ones(3)


def jvp_single(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[0].astype(np.float32)


def jvp_text(primals: Any, tangents: Any) -> Any:
    return primals[0], "t"


def jvp_three(primals: Any, tangents: Any) -> Any:
    return (primals[0], primals[0]), tangents[0]


def jvp_number(primals: Any, tangents: Any) -> Any:
    return 3, None


def jvp_keyword(primals: Any, tangents: Any, *, by: Any) -> Any:
    return primals[0] + by, tangents[0]


def vmap_alone(info: Any, in_dims: Any, x: Any) -> Any:
    return x


def vmap_far(info: Any, in_dims: Any, x: Any) -> Any:
    return x, 3


def vmap_short(info: Any, in_dims: Any, x: Any) -> Any:
    return x[:1], 0


def vmap_word(info: Any, in_dims: Any, x: Any) -> Any:
    return x, "0"


def vmap_one_dim(info: Any, in_dims: Any, x: Any) -> Any:
    return (x, x), 0


def vmap_number(info: Any, in_dims: Any, x: Any) -> Any:
    return 3, None


# ---- kernels that are wrong, each in its way ----


def gives_number(x: Any) -> Any:
    return 3


def gives_numbers(x: Any) -> Any:
    return [x + 0.0, 3]


def gives_short_tuple(x: Any) -> Any:
    return (x + 1.0,), x + 2.0


def gives_few(x: Any) -> Any:
    return [x + 0.0]


def gives_fake(x: Any) -> Any:
    return co.fake_like(x)


def gives_none(x: Any) -> Any:
    return None


def gives_text(x: Any) -> Any:
    return "1"


def refuses(x: Any) -> Any:
    if not x.flags.writeable:
        raise ValueError("output array is read-only")
    return x + 0.0


def turned(x: Any) -> Any:
    return np.asfortranarray(x + 0.0)


def fake_none(x: Any) -> Any:
    return None


def fake_single(x: Any) -> Any:
    return co.fake_like(x, dtype=np.float32)


def fake_there(x: Any) -> Any:
    return co.fake_like(x, device="cuda:0")


def fake_same(x: Any) -> Any:
    return co.fake_like(x)


def fake_word(x: Any) -> Any:
    return "shape"


# ---- functions that are transformed ----


def through_bare(x: Any) -> Any:
    return np.sum(bare_op(x))


def through_bare_below(x: Any) -> Any:
    return np.sum(bare_op(x))


def through_both(x: Any) -> Any:
    """The first call of an operator is not the one that a gradient goes through."""
    through_bare(x)
    return through_bare_below(x)


def without_arrays() -> Any:
    op = made(zeros, "(int n) -> Array")
    with co.FakeMode():
        return op(2)


def loss(x: Any) -> Any:
    return np.sum(x * x)


def values(x: Any) -> Any:
    return x * x


def words(x: Any) -> Any:
    return "words"


def complex_loss(x: Any) -> Any:
    return np.sum(x * 1j)


def whole_loss(x: Any) -> Any:
    return np.argmax(x)


def real_part(z: Any) -> Any:
    return np.real(z)


class Steps(co.Interpreter):
    """A transform of one's own whose values no branch may ask for."""

    kind = co.RuleKind("steps")

    class Step(co.Tracer):
        """A value of it."""

        __slots__ = ()
        is_concrete = False

    tracer_class = Step

    def process(self, op: Any, args: Any) -> Any:
        return self.wrap(op.invoke(self.unwrap(args)))


class Scale:
    """A kernel as CuPy hands it over: it has a name, and no ufunc is called so."""

    __module__ = "cupy"
    name = __name__ = "scale"


def opened_twice() -> None:
    mode = co.FakeMode()
    with mode, mode:
        pass


def opened_again() -> None:
    mode = co.FakeMode()
    with mode:
        pass
    with mode:
        pass


def crossed() -> None:
    outer, inner = co.FakeMode(), co.FakeMode()
    with outer:
        inner.__enter__()
        try:
            outer.__exit__()
        finally:
            inner.__exit__()


def leak(transform: Any) -> Any:
    """What a function stores of its argument is used after its transform."""
    kept: list[Any] = []

    def store(x: Any) -> Any:
        kept.append(x)
        return np.sum(x)

    transform(store)(X)
    return np.sin(kept[0])


def write_after(setup: Any) -> None:
    """Write what a call has kept, then ask for its gradient."""
    op = made(same, backward=lambda ctx, g: g, setup=setup)
    a = X.copy()
    y = np.sum(op(co.variable(a)))
    raised_op(a)
    y.backward()


def backward_twice(fn: Any) -> None:
    y = fn(co.variable(X))
    for _ in range(2):
        y.backward(np.ones(y.shape))


def set_grad(x: Any, value: Any) -> None:
    x.grad = value


def put(x: Any, value: Any) -> None:
    x[0] = value


def add_into(x: Any) -> None:
    a = X.copy()
    a += x


def graded(fn: Callable[[Any], Any]) -> Any:
    """The gradient of a function."""
    return co.grad(fn)(X)


def summed(op: Any, count: int = 1) -> Any:
    """The gradient of the sum of an operator's result, of one argument or more."""
    return co.grad(lambda x: np.sum(op(*[x] * count)))(X)


def pushed(op: Any) -> Any:
    """The tangent of a function."""
    return co.jvp(op, (X,), (Y,))


def batched(op: Any, x: Any = M) -> Any:
    """The results of a function of each row."""
    return co.vmap(op)(x)


Table = dict[str, tuple[Callable[[], Any], type, type, str]]

# ---- values that a transform follows ----

VALUES: Table = {
    "asarray of a value under grad": (
        lambda: graded(np.asarray),
        co.DataDependentError,
        TypeError,
        "np.array(), or a NumPy kernel, is given GradTracer f64[2], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use np.stack to join values, getitem(a, i) to index by one, custom_op for a kernel, or stop_gradient(x) for the value alone",
    ),
    "float of a value under grad": (
        lambda: co.grad(float)(1.5),
        co.DataDependentError,
        TypeError,
        "float() of GradTracer f64[], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use np.sin for math.sin, and arrays as they are, or stop_gradient(x) for the value alone",
    ),
    "int of a value under grad": (
        lambda: co.grad(int)(1.5),
        co.DataDependentError,
        TypeError,
        "int() of GradTracer f64[], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use arrays as they are, or stop_gradient(x) for the value alone",
    ),
    "complex of a value under grad": (
        lambda: co.grad(complex)(1.5),
        co.DataDependentError,
        TypeError,
        "complex() of GradTracer f64[], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use arrays as they are, or stop_gradient(x) for the value alone",
    ),
    "index by a value under grad": (
        lambda: co.grad(lambda x: [1, 2][x])(1.5),
        co.DataDependentError,
        TypeError,
        "an index, or range(), of GradTracer f64[], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use getitem(x, key) in place of x[key], or stop_gradient(x) for the value alone",
    ),
    "item of a value under grad": (
        lambda: graded(lambda x: x.item()),
        co.DataDependentError,
        TypeError,
        "item() of GradTracer f64[2], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use arrays as they are, or stop_gradient(x) for the value alone",
    ),
    "tolist of a value under grad": (
        lambda: graded(lambda x: x.tolist()),
        co.DataDependentError,
        TypeError,
        "tolist() of GradTracer f64[2], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use the array as it is, or stop_gradient(x) for the value alone",
    ),
    "pickle of a value under grad": (
        lambda: graded(pickle.dumps),
        co.DataDependentError,
        TypeError,
        "pickling GradTracer f64[2], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use the plain array that goes in, or stop_gradient(x) for the value alone",
    ),
    "format of a value under grad": (
        lambda: graded(lambda x: f"{x:.2f}"),
        co.DataDependentError,
        TypeError,
        "format('.2f') of GradTracer f64[2], a value inside autograd (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use print(x), or stop_gradient(x) for the value alone",
    ),
    "float of a value under jvp": (
        lambda: co.jvp(float, (1.5,), (1.0,)),
        co.DataDependentError,
        TypeError,
        "float() of JvpTracer f64[], a value inside jvp (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use np.sin for math.sin, and arrays as they are, or stop_gradient(x) for the value alone",
    ),
    "bool of a row": (
        lambda: batched(bool),
        co.DataDependentError,
        TypeError,
        "bool() of BatchTracer f64[2], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use np.where(mask, a, b) in place of a branch",
    ),
    "asarray of a row": (
        lambda: batched(np.asarray),
        co.DataDependentError,
        TypeError,
        "np.array(), or a NumPy kernel, is given BatchTracer f64[2], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use np.stack to join values, getitem(a, i) to index by one, custom_op for a kernel",
    ),
    "float of a row": (
        lambda: batched(float),
        co.DataDependentError,
        TypeError,
        "float() of BatchTracer f64[2], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use np.sin for math.sin, and arrays as they are",
    ),
    "int of a row": (
        lambda: batched(int),
        co.DataDependentError,
        TypeError,
        "int() of BatchTracer f64[2], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use arrays as they are",
    ),
    "index by a row": (
        lambda: batched(lambda i: [1, 2][i], N),
        co.DataDependentError,
        TypeError,
        "an index, or range(), of BatchTracer i64[], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use getitem(x, key) in place of x[key]",
    ),
    "item of a row": (
        lambda: batched(lambda x: x.item()),
        co.DataDependentError,
        TypeError,
        "item() of BatchTracer f64[2], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use arrays as they are",
    ),
    "tolist of a row": (
        lambda: batched(lambda x: x.tolist()),
        co.DataDependentError,
        TypeError,
        "tolist() of BatchTracer f64[2], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use the array as it is",
    ),
    "pickle of a row": (
        lambda: batched(pickle.dumps),
        co.DataDependentError,
        TypeError,
        "pickling BatchTracer f64[2], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use the plain array that goes in",
    ),
    "format of a row": (
        lambda: batched(lambda x: f"{x:.2f}"),
        co.DataDependentError,
        TypeError,
        "format('.2f') of BatchTracer f64[2], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use print(x)",
    ),
    "bool of a variable with a row inside": (
        lambda: batched(lambda x: co.grad(lambda v: np.sin(v) if v else v)(x), X),
        co.DataDependentError,
        TypeError,
        "bool() of BatchTracer f64[], a row of 2 inside vmap (level N)\n"
        "  each row may have another value\n"
        "  do: use np.where(mask, a, b) in place of a branch",
    ),
    "bool of a value of one's own transform": (
        lambda: bool(Steps().wrap(X)),
        co.DataDependentError,
        TypeError,
        "bool() of Step f64[2], a value inside steps (level N)\n"
        "  the transform would lose track of it\n"
        "  do: use np.where(mask, a, b) in place of a branch, or stop_gradient(x) for the value alone",
    ),
    "float of a variable": (
        lambda: float(co.variable(1.5)),
        co.DataDependentError,
        TypeError,
        "float() of GradTracer f64[], a value inside variables (level 0)\n"
        "  the transform would lose track of it\n"
        "  do: use np.sin for math.sin, and arrays as they are, or stop_gradient(x) for the value alone",
    ),
    "a leak from grad": (
        lambda: leak(co.grad),
        co.LeakedTracerError,
        RuntimeError,
        "np::sin gets a value of autograd (level N), which has ended\n"
        "  do: return the value from the transformed function instead of storing it",
    ),
    "a leak from vmap": (
        lambda: leak(co.vmap),
        co.LeakedTracerError,
        RuntimeError,
        "np::sin gets a value of vmap (level N), which has ended\n"
        "  do: return the value from the transformed function instead of storing it",
    ),
    "a leak from jvp": (
        lambda: leak(lambda f: lambda x: co.jvp(f, (x,), (Y,))),
        co.LeakedTracerError,
        RuntimeError,
        "np::sin gets a value of jvp (level N), which has ended\n"
        "  do: return the value from the transformed function instead of storing it",
    ),
    "write into a value": (
        lambda: graded(lambda x: put(x, 1.0)),
        co.ArgumentError,
        TypeError,
        "GradTracer f64[2] cannot be written in place\n"
        "  do: build the new array: np.where(mask, a, b), np.concatenate or np.stack",
    ),
    "write into a fake array": (
        lambda: put(F, 1.0),
        co.ArgumentError,
        TypeError,
        "FakeArray f64[2] cannot be written in place\n"
        "  do: build the new array: np.where(mask, a, b), np.concatenate or np.stack",
    ),
    "sort in place": (
        lambda: graded(lambda x: x.sort()),
        co.ArgumentError,
        TypeError,
        "GradTracer f64[2] cannot be sorted in place\n"
        "  do: write np.sort(x)",
    ),
    "ufunc with out": (
        lambda: graded(lambda x: np.sin(x, out=np.zeros(2))),
        co.ArgumentError,
        TypeError,
        "np.sin(out=...) would write GradTracer f64[2] into an array in place\n"
        "  do: use the result: x = x + y instead of x += y or out=x",
    ),
    "function with out": (
        lambda: graded(lambda x: np.cumsum(x, out=np.zeros(2))),
        co.ArgumentError,
        TypeError,
        "np.cumsum(out=...) would write GradTracer f64[2] into an array in place\n"
        "  do: use the result: x = x + y instead of x += y or out=x",
    ),
    "augmented assignment": (
        lambda: graded(add_into),
        co.ArgumentError,
        TypeError,
        "np.add(out=...) would write GradTracer f64[2] into an array in place\n"
        "  do: use the result: x = x + y instead of x += y or out=x",
    ),
    "function without an operator": (
        lambda: graded(np.fft.fft),
        co.MissingRuleError,
        NotImplementedError,
        "np.fft.fft has no operator, so it cannot see traced or fake arrays\n"
        "  do: wrap it with custom_op, then register_numpy_function(np.fft.fft, op); or pass stop_gradient(x) to use the value alone",
    ),
    "function without an operator on a fake array": (
        lambda: np.linalg.svd(G),
        co.MissingRuleError,
        NotImplementedError,
        "np.linalg.svd has no operator, so it cannot see traced or fake arrays\n"
        "  do: wrap it with custom_op, then register_numpy_function(np.linalg.svd, op); or pass stop_gradient(x) to use the value alone",
    ),
    "ufunc method without an operator": (
        lambda: graded(np.add.accumulate),
        co.MissingRuleError,
        NotImplementedError,
        "np.add.accumulate has no operator, so it cannot see traced or fake arrays\n"
        '  do: wrap it with custom_op, then register_numpy_function((np.add, "accumulate"), op); or pass stop_gradient(x) to use the value alone',
    ),
    "ufunc of one's own": (
        lambda: graded(np.frompyfunc(abs, 1, 1)),
        co.MissingRuleError,
        NotImplementedError,
        "np.abs (vectorized) has no operator, so it cannot see traced or fake arrays\n"
        "  do: wrap it with custom_op, then register_numpy_function(np.abs (vectorized), op); or pass stop_gradient(x) to use the value alone",
    ),
    "CuPy kernel without a ufunc": (
        lambda: graded(lambda x: x.__cupy_override_elementwise_kernel__(Scale(), x)),
        co.MissingRuleError,
        NotImplementedError,
        "cupy.scale has no operator, so it cannot see traced or fake arrays\n"
        "  do: wrap it with custom_op, then register_numpy_function(cupy.scale, op); or pass stop_gradient(x) to use the value alone",
    ),
    "registration of no NumPy function": (
        lambda: co.register_numpy_function(3, bare_op),
        co.RegistrationError,
        RuntimeError,
        "register_numpy_function: 3 is no function\n"
        "  do: pass a NumPy function and an operator",
    ),
    "registration of no operator": (
        lambda: co.register_numpy_function(np.sinc, 3),
        co.RegistrationError,
        RuntimeError,
        "register_numpy_function: 3 is no function\n"
        "  do: pass a NumPy function and an operator",
    ),
}  # fmt: skip

# ---- modes ----

MODES: Table = {
    "a mode inside of itself": (
        opened_twice,
        co.RegistrationError,
        RuntimeError,
        "fake (level N) is opened a second time\n"
        "  do: make a new one",
    ),
    "a mode once more": (
        opened_again,
        co.RegistrationError,
        RuntimeError,
        "fake (level N) is opened a second time\n"
        "  do: make a new one",
    ),
    "modes that cross": (
        crossed,
        co.RegistrationError,
        RuntimeError,
        "fake (level N) is closed while a mode opened later is open\n"
        "  do: close modes in the reverse order, as nested with blocks do",
    ),
    "from_array of a number": (
        lambda: co.FakeMode().from_array(3),
        co.ArgumentError,
        TypeError,
        "FakeMode.from_array: int 3 is no array with data\n"
        "  do: pass an array, such as np.asarray(x)",
    ),
    "from_array of a traced array": (
        lambda: graded(lambda x: co.FakeMode().from_array(x)),
        co.ArgumentError,
        TypeError,
        "FakeMode.from_array: GradTracer of shape (2,) is no array with data\n"
        "  do: pass an array, such as np.asarray(x)",
    ),
    "from_array on an unknown device": (
        lambda: co.FakeMode().from_array(X, "cdua"),
        co.ArgumentError,
        TypeError,
        "unknown device 'cdua' (did you mean 'cuda'?); known: 'cpu', 'cuda'\n"
        "  do: use a known one, or register_array_type first",
    ),
    "an operator without a fake kernel": (
        lambda: co.eval_shape(bare_op, X),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no fake kernel\n"
        "  texts::bare(Array x) -> Array\n"
        f"  at {at(bare)}\n"
        "  do: @bare.register_fake, a function that returns fake_like(...)",
    ),
    "an operator without arrays and without a fake kernel": (
        without_arrays,
        co.MissingRuleError,
        NotImplementedError,
        "texts::op has no fake kernel\n"
        "  texts::op(int n) -> Array\n"
        f"  at {at(zeros)}\n"
        "  do: @op.register_fake, a function that returns fake_like(...)",
    ),
    "setting": (
        lambda: setattr(co.config, "checks", 3),
        co.ArgumentError,
        TypeError,
        "config.checks is 3\n"
        "  do: set it to one of 'first', 'always', 'never'",
    ),
}  # fmt: skip

# ---- fake arrays ----

FAKES: Table = {
    "eval_shape of no function": (
        lambda: co.eval_shape(3, X),
        co.ArgumentError,
        TypeError,
        "eval_shape: 3 is no function\n"
        "  do: write eval_shape(f) with a function f",
    ),
    "strides of another number": (
        lambda: co.FakeArray((2, 3), float, (8,)),
        co.ShapeError,
        ValueError,
        "1 strides do not fit the shape (2, 3)\n"
        "  do: give a stride for each axis",
    ),
    "an order without an axis": (
        lambda: co.FakeArray((2, 3), float, order=(0, 0)),
        co.ShapeError,
        ValueError,
        "the order (0, 0) does not name each axis of the shape (2, 3) once\n"
        "  do: give the axes from the slowest in memory to the fastest: order=(1, 0)",
    ),
    "strides and an order": (
        lambda: co.FakeArray((2, 3), float, (24, 8), order=(0, 1)),
        co.ArgumentError,
        TypeError,
        "FakeArray: both strides and order are given\n"
        "  do: leave one out: strides may have gaps, an order makes a dense array",
    ),
    "no shape": (
        lambda: co.FakeArray("ab"),
        co.ShapeError,
        ValueError,
        "FakeArray: 'ab' is no shape\n"
        "  do: give whole numbers: (2, 3)",
    ),
    "a shape of floats": (
        lambda: co.FakeArray((2.0, 3)),
        co.ShapeError,
        ValueError,
        "FakeArray: (2.0, 3) is no shape\n"
        "  do: give whole numbers: (2, 3)",
    ),
    "a negative length": (
        lambda: co.FakeArray((2, -3)),
        co.ShapeError,
        ValueError,
        "FakeArray: a shape has no negative lengths, got (2, -3)\n"
        "  do: give the length of each axis",
    ),
    "a negative length for fake_like": (
        lambda: co.fake_like(X, shape=-1),
        co.ShapeError,
        ValueError,
        "fake_like: a shape has no negative lengths, got (-1,)\n"
        "  do: give the length of each axis",
    ),
    "no shape for fake_like": (
        lambda: co.fake_like(X, shape=2.5),
        co.ShapeError,
        ValueError,
        "fake_like: 2.5 is no shape\n"
        "  do: give whole numbers: (2, 3)",
    ),
    "no array for fake_like": (
        lambda: co.fake_like(3),
        co.ArgumentError,
        TypeError,
        "fake_like: 3 is no array\n"
        "  do: pass an array: fake_like(x, shape=...)",
    ),
    "unknown device for fake_like": (
        lambda: co.fake_like(X, device="cdua"),
        co.ArgumentError,
        TypeError,
        "unknown device 'cdua' (did you mean 'cuda'?); known: 'cpu', 'cuda'\n"
        "  do: use a known one, or register_array_type first",
    ),
    "asarray of a fake array": (
        lambda: np.asarray(F),
        co.DataDependentError,
        TypeError,
        "np.asarray() or a NumPy kernel of FakeArray f64[2], which has no data\n"
        "  do: compute with shapes and dtypes only, or call with real arrays",
    ),
    "bool of a fake array": (
        lambda: bool(F),
        co.DataDependentError,
        TypeError,
        "bool() of FakeArray f64[2], which has no data\n"
        "  do: compute with shapes and dtypes only, or call with real arrays",
    ),
    "float of a fake array": (
        lambda: float(F),
        co.DataDependentError,
        TypeError,
        "float() of FakeArray f64[2], which has no data\n"
        "  do: compute with shapes and dtypes only, or call with real arrays",
    ),
    "int of a fake array": (
        lambda: int(F),
        co.DataDependentError,
        TypeError,
        "int() of FakeArray f64[2], which has no data\n"
        "  do: compute with shapes and dtypes only, or call with real arrays",
    ),
    "complex of a fake array": (
        lambda: complex(F),
        co.DataDependentError,
        TypeError,
        "complex() of FakeArray f64[2], which has no data\n"
        "  do: compute with shapes and dtypes only, or call with real arrays",
    ),
    "index by a fake array": (
        lambda: [1, 2][F],
        co.DataDependentError,
        TypeError,
        "int() of FakeArray f64[2], which has no data\n"
        "  do: compute with shapes and dtypes only, or call with real arrays",
    ),
    "item of a fake array": (
        lambda: F.item(),
        co.DataDependentError,
        TypeError,
        "item() of FakeArray f64[2], which has no data\n"
        "  do: compute with shapes and dtypes only, or call with real arrays",
    ),
    "tolist of a fake array": (
        lambda: F.tolist(),
        co.DataDependentError,
        TypeError,
        "tolist() of FakeArray f64[2], which has no data\n"
        "  do: compute with shapes and dtypes only, or call with real arrays",
    ),
}  # fmt: skip

# ---- gradients ----

GRADIENTS: Table = {
    "no formula": (
        lambda: graded(through_bare),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no 'autograd' rule\n"
        "  texts::bare(Array x) -> Array\n"
        f"  a gradient is asked through the call at {inside(through_bare)}\n"
        f"  at {at(bare)}\n"
        "  do: @bare.register_autograd",
    ),
    "no formula for the second of two calls": (
        lambda: graded(through_both),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no 'autograd' rule\n"
        "  texts::bare(Array x) -> Array\n"
        f"  a gradient is asked through the call at {inside(through_bare_below)}\n"
        f"  at {at(bare)}\n"
        "  do: @bare.register_autograd",
    ),
    "grad of no function": (
        lambda: co.grad(3),
        co.ArgumentError,
        TypeError,
        "grad: 3 is no function\n"
        "  do: write grad(f) with a function f",
    ),
    "value_and_grad of no function": (
        lambda: co.value_and_grad(3),
        co.ArgumentError,
        TypeError,
        "grad: 3 is no function\n"
        "  do: write grad(f) with a function f",
    ),
    "vjp of no function": (
        lambda: co.vjp(3, X),
        co.ArgumentError,
        TypeError,
        "vjp: 3 is no function\n"
        "  do: write vjp(f) with a function f",
    ),
    "argnums of a fraction": (
        lambda: co.grad(loss, 1.5),
        co.GradientError,
        ValueError,
        "grad of loss: argnums=1.5 is neither a position nor several\n"
        "  do: write argnums=0, or argnums=(0, 1)",
    ),
    "argnums by name": (
        lambda: co.grad(loss, "x"),
        co.GradientError,
        ValueError,
        "grad of loss: argnums='x' is neither a position nor several\n"
        "  do: write argnums=0, or argnums=(0, 1)",
    ),
    "argument out of reach": (
        lambda: co.grad(loss, 1)(X),
        co.GradientError,
        ValueError,
        "grad of loss: argnums names argument 1, the call has 1 positional arguments\n"
        "  do: pass that argument by position, or change argnums",
    ),
    "argument twice": (
        lambda: co.grad(loss, (0, -1))(X),
        co.GradientError,
        ValueError,
        "grad of loss: argnums=(0, -1) names an argument twice\n"
        "  do: name each argument once",
    ),
    "grad by a whole number": (
        lambda: co.grad(loss)(3),
        co.GradientError,
        ValueError,
        "grad of loss: argument 0 must be an array of floats, got int 3\n"
        "  do: pass an array of floats; bind what is none: lambda x: f(x, n)",
    ),
    "grad by a string": (
        lambda: co.grad(loss)("x"),
        co.GradientError,
        ValueError,
        "grad of loss: argument 0 must be an array of floats, got str 'x'\n"
        "  do: pass an array of floats; bind what is none: lambda x: f(x, n)",
    ),
    "grad by integers": (
        lambda: co.grad(loss)(N),
        co.GradientError,
        ValueError,
        "grad of loss: argument 0 has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "grad of an array": (
        lambda: graded(values),
        co.GradientError,
        ValueError,
        "grad of values: the value is f64[2], must be a real float without axes\n"
        "  do: return x.sum(), or take vjp or jacrev",
    ),
    "grad of a complex value": (
        lambda: graded(complex_loss),
        co.GradientError,
        ValueError,
        "grad of complex_loss: the value is c128[], must be a real float without axes\n"
        "  do: use real(x) or abs(x), or take vjp or jacrev",
    ),
    "grad of an integer": (
        lambda: graded(whole_loss),
        co.GradientError,
        ValueError,
        "grad of whole_loss: the value is i64[], must be a real float without axes\n"
        "  do: return x.astype(float), or take vjp or jacrev",
    ),
    "grad of a string": (
        lambda: graded(words),
        co.GradientError,
        ValueError,
        "grad of words: the value is str 'words', must be an array without axes\n"
        "  do: return one array: sum the losses, or use has_aux=True for the rest",
    ),
    "grad of no pair": (
        lambda: co.grad(loss, has_aux=True)(X),
        co.GradientError,
        ValueError,
        "grad: with has_aux=True the function must return (output, aux), got GradTracer of shape ()\n"
        "  do: return a pair, or leave has_aux out",
    ),
    "vjp of no pair": (
        lambda: co.vjp(loss, X, has_aux=True),
        co.GradientError,
        ValueError,
        "vjp: with has_aux=True the function must return (output, aux), got GradTracer of shape ()\n"
        "  do: return a pair, or leave has_aux out",
    ),
    "vjp of a string": (
        lambda: co.vjp(words, X),
        co.GradientError,
        ValueError,
        "vjp: output 0 is str 'words', must be an array\n"
        "  do: return arrays, or other things as aux with has_aux=True",
    ),
    "vjp by integers": (
        lambda: co.vjp(loss, X, N),
        co.GradientError,
        ValueError,
        "vjp: primal 1 has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "vjp by a string": (
        lambda: co.vjp(loss, "x"),
        co.GradientError,
        ValueError,
        "vjp: primal 0 must be an array of floats, got str 'x'\n"
        "  do: pass an array of floats; bind what is none: lambda x: f(x, n)",
    ),
    "pullback of another structure": (
        lambda: co.vjp(values, X)[1]((X, X)),
        co.GradientError,
        ValueError,
        "pullback: a cotangent of structure PyTreeSpec((*, *)) does not fit the output, PyTreeSpec(*)\n"
        "  do: pass a cotangent for each array of the output",
    ),
    "pullback of another shape": (
        lambda: co.vjp(values, X)[1](M),
        co.GradientError,
        ValueError,
        "pullback: cotangent 0 is f64[2, 2], must be f64[2] as the output is\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
    "pullback of another dtype": (
        lambda: co.vjp(values, X)[1](N),
        co.GradientError,
        ValueError,
        "pullback: cotangent 0 is i64[2], must be f64[2] as the output is\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
    "pullback of a string": (
        lambda: co.vjp(values, X)[1]("x"),
        co.GradientError,
        ValueError,
        "pullback: cotangent 0 is str 'x', must be f64[2] as the output is\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
    "backward under grad": (
        lambda: graded(lambda x: x.backward()),
        co.GradientError,
        ValueError,
        "backward: GradTracer of shape (2,) depends on no variable\n"
        "  do: compute it from x = variable(a), outside no_grad()",
    ),
    "backward of an array": (
        lambda: co.backward(X),
        co.GradientError,
        ValueError,
        "backward: ndarray of shape (2,) depends on no variable\n"
        "  do: compute it from x = variable(a), outside no_grad()",
    ),
    "backward of nothing": (
        lambda: co.backward(None),
        co.GradientError,
        ValueError,
        "backward: None depends on no variable\n"
        "  do: compute it from x = variable(a), outside no_grad()",
    ),
    "backward without a gradient": (
        lambda: values(co.variable(X)).backward(),
        co.GradientError,
        ValueError,
        "backward: f64[2] is no real float without axes, so it needs a gradient\n"
        "  do: call backward(np.sum(np.real(y))), or backward(y, gradient)",
    ),
    "backward of a complex value": (
        lambda: complex_loss(co.variable(X)).backward(),
        co.GradientError,
        ValueError,
        "backward: c128[] is no real float without axes, so it needs a gradient\n"
        "  do: call backward(np.sum(np.real(y))), or backward(y, gradient)",
    ),
    "backward of another shape": (
        lambda: values(co.variable(X)).backward(M),
        co.GradientError,
        ValueError,
        "backward: the gradient is f64[2, 2], must be f64[2] as the output is\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
    "backward a second time": (
        lambda: backward_twice(loss),
        co.GradientError,
        ValueError,
        "np::sum: backward runs a second time through a call whose saved arrays are freed\n"
        "  np::sum(Array x, int[]? axis=None, bool keepdims=False) -> Array\n"
        "  do: call backward(y, retain_graph=True) the first time",
    ),
    "backward a second time through two arguments": (
        lambda: backward_twice(values),
        co.GradientError,
        ValueError,
        "np::multiply: backward runs a second time through a call whose saved arrays are freed\n"
        "  np::multiply(Array|Scalar x1, Array|Scalar x2) -> Array\n"
        "  do: call backward(y, retain_graph=True) the first time",
    ),
    "variable of a string": (
        lambda: co.variable("x"),
        co.GradientError,
        ValueError,
        "variable: x must be an array of floats, got str 'x'\n"
        "  do: pass an array of floats; bind what is none: lambda x: f(x, n)",
    ),
    "variable of integers": (
        lambda: co.variable(N),
        co.GradientError,
        ValueError,
        "variable: x has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "variable of a variable": (
        lambda: co.variable(co.variable(X)),
        co.GradientError,
        ValueError,
        "variable: GradTracer of shape (2,) is or depends on a variable already\n"
        "  do: use it as it is, or variable(stop_gradient(x)) for a new beginning",
    ),
    "gradient of no variable": (
        lambda: set_grad(values(co.variable(X)), X),
        co.GradientError,
        ValueError,
        "x.grad: GradTracer f64[2] is no variable, so it has no gradient to set\n"
        "  do: set it on x = variable(a)",
    ),
    "gradient of no array": (
        lambda: set_grad(co.variable(X), "x"),
        co.GradientError,
        ValueError,
        "x.grad is an array or None, got str 'x'\n"
        "  do: set an array of the shape of the variable, or None",
    ),
    "write under grad": (
        lambda: graded(raised_op),
        co.GradientError,
        ValueError,
        "texts::raised writes its argument 'x' under autograd (level N): a write has no gradient\n"
        "  texts::raised(Array(a!) x) -> ()\n"
        "                ^^^^^^^^^^^\n"
        "  do: call it inside no_grad(), or use an operator that returns a new array",
    ),
    "write to a variable": (
        lambda: raised_op(co.variable(X)),
        co.GradientError,
        ValueError,
        "texts::raised writes its argument 'x' under variables (level 0): a write has no gradient\n"
        "  texts::raised(Array(a!) x) -> ()\n"
        "                ^^^^^^^^^^^\n"
        "  do: call it inside no_grad(), or use an operator that returns a new array",
    ),
    "saved array written": (
        lambda: write_after(keep_saved),
        co.GradientError,
        ValueError,
        "texts::op: array 0 saved for backward, f64[2], was written by an operator since\n"
        "  texts::op(Array x) -> Array\n"
        "  do: save a copy, or write after backward",
    ),
    "kept array written": (
        lambda: write_after(keep_field),
        co.GradientError,
        ValueError,
        "texts::op: ctx.x saved for backward, f64[2], was written by an operator since\n"
        "  texts::op(Array x) -> Array\n"
        "  do: save a copy, or write after backward",
    ),
    "saved text": (
        lambda: summed(made(same, backward=pass_on, setup=keep_text)),
        co.GradientError,
        ValueError,
        "texts::op: save_for_backward takes arrays, got str 'axis'\n"
        "  do: set other values as attributes: ctx.axis = axis",
    ),
    "backward that writes": (
        lambda: summed(made(same, backward=overwrite)),
        co.ContractError,
        RuntimeError,
        "texts::op: backward writes a gradient that it is given\n"
        "  texts::op(Array x) -> Array\n"
        f"  backward at {at(overwrite)}\n"
        "  do: compute a new array: g = g * 2.0 instead of g *= 2.0",
    ),
    "list for a tuple": (
        lambda: summed(made(same, backward=list_back)),
        co.GradientError,
        ValueError,
        "texts::op: backward returned a list of 1, must return a tuple, a gradient for each of x\n"
        "  texts::op(Array x) -> Array\n"
        f"  backward at {at(list_back)}\n"
        "  do: return (g_x,)",
    ),
    "two for one": (
        lambda: summed(made(same, backward=two_back)),
        co.GradientError,
        ValueError,
        "texts::op: backward returned 2 gradients, must return 1: x\n"
        "  texts::op(Array x) -> Array\n"
        f"  backward at {at(two_back)}\n"
        "  do: return one gradient for each positional input, None for no gradient",
    ),
    "one for two": (
        lambda: summed(made(same, TWO, backward=pass_on), 2),
        co.GradientError,
        ValueError,
        "texts::op: backward returned one gradient, must return 2: x, y\n"
        "  texts::op(Array x, Array y) -> Array\n"
        f"  backward at {at(pass_on)}\n"
        "  do: return (g_x, g_y), None for no gradient",
    ),
    "number for a gradient": (
        lambda: summed(made(same, backward=number_back)),
        co.GradientError,
        ValueError,
        "texts::op: backward returned float 1.5 for 'x', must be an array of shape (2,)\n"
        "  texts::op(Array x) -> Array\n"
        "            ^^^^^^^\n"
        f"  backward at {at(number_back)}\n"
        "  do: return an array, or None for no gradient",
    ),
    "another shape": (
        lambda: summed(made(same, backward=long_back)),
        co.GradientError,
        ValueError,
        "texts::op: backward returned a gradient of shape (3,) for 'x' of shape (2,)\n"
        "  texts::op(Array x) -> Array\n"
        "            ^^^^^^^\n"
        f"  backward at {at(long_back)}\n"
        "  do: return a gradient of the shape of 'x'",
    ),
    "another dtype": (
        lambda: summed(made(same, backward=single_back)),
        co.GradientError,
        ValueError,
        "texts::op: backward returned a gradient of dtype float32 for 'x' of dtype float64\n"
        "  texts::op(Array x) -> Array\n"
        "            ^^^^^^^\n"
        f"  backward at {at(single_back)}\n"
        "  do: return g.astype(x.dtype) for 'x'",
    ),
    "unknown name": (
        lambda: summed(made(same, TWO, backward=unknown_named), 2),
        co.GradientError,
        ValueError,
        "texts::op: backward returned a gradient for 'z', which is no parameter\n"
        "  texts::op(Array x, Array y) -> Array\n"
        f"  backward at {at(unknown_named)}\n"
        "  do: use the names x, y",
    ),
    "name left out": (
        lambda: summed(made(same, TWO, backward=half_named), 2),
        co.GradientError,
        ValueError,
        "texts::op: backward returned no gradient for 'y', which one is asked for\n"
        "  texts::op(Array x, Array y) -> Array\n"
        "                     ^^^^^^^\n"
        f"  backward at {at(half_named)}\n"
        "  do: return {'y': ...} too, None for no gradient",
    ),
    "gradient of a number": (
        lambda: graded(lambda x: np.sum(made(same, "(Array x, float k) -> Array", backward=gradient_of_scalar)(x, 2.0))),
        co.GradientError,
        ValueError,
        "texts::op: backward returned float 1.5 for 'k' of type float, which has no gradient\n"
        "  texts::op(Array x, float k) -> Array\n"
        "                     ^^^^^^^\n"
        f"  backward at {at(gradient_of_scalar)}\n"
        "  do: return None for 'k'",
    ),
    "keyword left out": (
        lambda: graded(lambda x: np.sum(made(shifted, "(Array x, *, Array by) -> Array", backward=pass_on)(X, by=x))),
        co.GradientError,
        ValueError,
        "texts::op: backward returned no gradient for the keyword-only argument 'by'\n"
        "  texts::op(Array x, *, Array by) -> Array\n"
        "                        ^^^^^^^^\n"
        f"  backward at {at(pass_on)}\n"
        "  do: return gradients as a dict: {'by': ...}, None for no gradient",
    ),
    "three for a list of two": (
        lambda: graded(lambda x: np.sum(made(same_list, LIST, backward=three_back)([x, x]))),
        co.GradientError,
        ValueError,
        "texts::op: backward returned 3 gradients for the 2 items of 'xs'\n"
        "  texts::op(Array[] xs) -> Array\n"
        "            ^^^^^^^^^^\n"
        f"  backward at {at(three_back)}\n"
        "  do: return a list with a gradient for each item of 'xs'",
    ),
    "number for a list": (
        lambda: graded(lambda x: np.sum(made(same_list, LIST, backward=number_back)([x, x]))),
        co.GradientError,
        ValueError,
        "texts::op: backward returned float 1.5 for the 2 items of 'xs'\n"
        "  texts::op(Array[] xs) -> Array\n"
        "            ^^^^^^^^^^\n"
        f"  backward at {at(number_back)}\n"
        "  do: return a list with a gradient for each item of 'xs'",
    ),
}  # fmt: skip

# ---- tangents ----

TANGENTS: Table = {
    "no rule and no formula": (
        lambda: pushed(bare_op),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no 'jvp' rule\n"
        "  texts::bare(Array x) -> Array\n"
        "  met under jvp (level N), with no backward formula to transpose\n"
        f"  at {at(bare)}\n"
        "  do: @bare.register_jvp",
    ),
    "no rule for a keyword": (
        lambda: co.jvp(lambda v: made(shifted, "(Array x, *, Array by) -> Array", jvp=jvp_keyword)(X, by=v), (X,), (Y,)),
        co.MissingRuleError,
        NotImplementedError,
        "texts::op has no 'jvp' rule\n"
        "  texts::op(Array x, *, Array by) -> Array\n"
        "  that takes a tangent of the keyword-only argument 'by', and no backward formula to transpose\n"
        f"  at {at(shifted)}\n"
        "  do: @op.register_jvp",
    ),
    "output alone": (
        lambda: pushed(made(same, jvp=jvp_alone)),
        co.ContractError,
        RuntimeError,
        "texts::op: the jvp rule returned ndarray of shape (2,)\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(jvp_alone)}\n"
        "  do: return (output, tangent)",
    ),
    "tangent of another shape": (
        lambda: pushed(made(same, jvp=jvp_short)),
        co.GradientError,
        ValueError,
        "texts::op: the jvp rule returned the tangent f64[3] for the output f64[2]\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(jvp_short)}\n"
        "  do: return (output, tangent), of one structure, shape and dtype; None for zero",
    ),
    "tangent of another dtype": (
        lambda: pushed(made(same, jvp=jvp_single)),
        co.GradientError,
        ValueError,
        "texts::op: the jvp rule returned the tangent f32[2] for f64[2]\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(jvp_single)}\n"
        "  do: return (output, tangent), of one structure, shape and dtype; None for zero",
    ),
    "tangent of text": (
        lambda: pushed(made(same, jvp=jvp_text)),
        co.GradientError,
        ValueError,
        "texts::op: the jvp rule returned the tangent str 't' for the output f64[2]\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(jvp_text)}\n"
        "  do: return (output, tangent), of one structure, shape and dtype; None for zero",
    ),
    "one tangent for two outputs": (
        lambda: pushed(made(twice, PAIR, jvp=jvp_three)),
        co.GradientError,
        ValueError,
        "texts::op: the jvp rule returned the tangent ndarray of shape (2,) for 2 outputs\n"
        "  texts::op(Array x) -> (Array, Array)\n"
        f"  rule at {at(jvp_three)}\n"
        "  do: return (output, tangent), of one structure, shape and dtype; None for zero",
    ),
    "output of another type": (
        lambda: pushed(made(same, jvp=jvp_number)),
        co.ContractError,
        RuntimeError,
        "texts::op: the jvp rule returns output 0 as int 3, must be an array\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(jvp_number)}\n"
        "  do: return what the schema says",
    ),
    "write under jvp": (
        lambda: pushed(raised_op),
        co.GradientError,
        ValueError,
        "texts::raised writes its argument 'x' under jvp (level N): a write has no tangent\n"
        "  texts::raised(Array(a!) x) -> ()\n"
        "                ^^^^^^^^^^^\n"
        "  do: use an operator that returns a new array",
    ),
    "jvp of no function": (
        lambda: co.jvp(3, (X,), (Y,)),
        co.ArgumentError,
        TypeError,
        "jvp: 3 is no function\n"
        "  do: write jvp(f) with a function f",
    ),
    "primal alone": (
        lambda: co.jvp(loss, X, Y),
        co.GradientError,
        ValueError,
        "jvp: primals and tangents are tuples, got ndarray of shape (2,) and ndarray of shape (2,)\n"
        "  do: write jvp(f, (x,), (dx,))",
    ),
    "tangents of another structure": (
        lambda: co.jvp(loss, (X,), (X, Y)),
        co.GradientError,
        ValueError,
        "jvp: tangents of structure PyTreeSpec((*, *)) do not fit primals of PyTreeSpec((*,))\n"
        "  do: give a tangent for each primal array",
    ),
    "integers as a primal": (
        lambda: co.jvp(loss, (N,), (N,)),
        co.GradientError,
        ValueError,
        "jvp: primal 0 is i64[2], must be an array of floats\n"
        "  do: pass x.astype(float)",
    ),
    "text as a primal": (
        lambda: co.jvp(loss, ("x",), ("y",)),
        co.GradientError,
        ValueError,
        "jvp: primal 0 is str 'x', must be an array of floats\n"
        "  do: pass x.astype(float)",
    ),
    "another shape than the primal": (
        lambda: co.jvp(loss, (X,), (M,)),
        co.GradientError,
        ValueError,
        "jvp: tangent 0 is f64[2, 2], must be f64[2] as its primal\n"
        "  do: pass a tangent of the shape and dtype of the primal",
    ),
    "another dtype than the primal": (
        lambda: co.jvp(loss, (X,), (N,)),
        co.GradientError,
        ValueError,
        "jvp: tangent 0 is i64[2], must be f64[2] as its primal\n"
        "  do: pass a tangent of the shape and dtype of the primal",
    ),
    "text as a tangent": (
        lambda: co.jvp(loss, (X,), ("y",)),
        co.GradientError,
        ValueError,
        "jvp: tangent 0 is str 'y', must be f64[2] as its primal\n"
        "  do: pass a tangent of the shape and dtype of the primal",
    ),
    "jvp of no pair": (
        lambda: co.jvp(loss, (X,), (Y,), has_aux=True),
        co.GradientError,
        ValueError,
        "jvp: with has_aux=True the function must return (output, aux), got JvpTracer of shape ()\n"
        "  do: return a pair, or leave has_aux out",
    ),
    "jvp of a string": (
        lambda: pushed(words),
        co.GradientError,
        ValueError,
        "jvp: output 0 is str 'words', must be an array\n"
        "  do: return arrays, or other things as aux with has_aux=True",
    ),
}  # fmt: skip

# ---- matrices of derivatives ----

MATRICES: Table = {
    "jacrev of no function": (
        lambda: co.jacrev(3),
        co.ArgumentError,
        TypeError,
        "jacrev: 3 is no function\n"
        "  do: write jacrev(f) with a function f",
    ),
    "jacfwd of no function": (
        lambda: co.jacfwd(3),
        co.ArgumentError,
        TypeError,
        "jacfwd: 3 is no function\n"
        "  do: write jacfwd(f) with a function f",
    ),
    "hessian of no function": (
        lambda: co.hessian(3),
        co.ArgumentError,
        TypeError,
        "hessian: 3 is no function\n"
        "  do: write hessian(f) with a function f",
    ),
    "jacrev of a string": (
        lambda: co.jacrev(words)(X),
        co.GradientError,
        ValueError,
        "vjp: output 0 is str 'words', must be an array\n"
        "  do: return arrays, or other things as aux with has_aux=True",
    ),
    "jacfwd of a string": (
        lambda: co.jacfwd(words)(X),
        co.GradientError,
        ValueError,
        "jvp: output 0 is str 'words', must be an array\n"
        "  do: return arrays, or other things as aux with has_aux=True",
    ),
    "jacrev of integers": (
        lambda: co.jacrev(whole_loss)(X),
        co.GradientError,
        ValueError,
        "jacrev of whole_loss: the output is i64[], must be an array of floats\n"
        "  do: return x.astype(float), or use has_aux=True for the rest",
    ),
    "jacfwd of integers": (
        lambda: co.jacfwd(whole_loss)(X),
        co.GradientError,
        ValueError,
        "jacfwd of whole_loss: the output is i64[], must be an array of floats\n"
        "  do: return x.astype(float), or use has_aux=True for the rest",
    ),
    "jacrev by integers": (
        lambda: co.jacrev(loss)(N),
        co.GradientError,
        ValueError,
        "vjp: primal 0 has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "jacfwd by integers": (
        lambda: co.jacfwd(loss)(N),
        co.GradientError,
        ValueError,
        "jacfwd of loss: the argument is i64[2], must be an array of floats\n"
        "  do: return x.astype(float), or use has_aux=True for the rest",
    ),
    "jacfwd by text": (
        lambda: co.jacfwd(loss)("x"),
        co.GradientError,
        ValueError,
        "jacfwd of loss: the argument is str 'x', must be an array of floats\n"
        "  do: return x.astype(float), or use has_aux=True for the rest",
    ),
    "jacrev out of reach": (
        lambda: co.jacrev(loss, 1)(X),
        co.GradientError,
        ValueError,
        "jacrev of loss: argnums names argument 1, the call has 1 positional arguments\n"
        "  do: pass that argument by position, or change argnums",
    ),
    "jacrev twice": (
        lambda: co.jacrev(loss, (0, 0))(X),
        co.GradientError,
        ValueError,
        "jacrev of loss: argnums=(0, 0) names an argument twice\n"
        "  do: name each argument once",
    ),
    "hessian by text": (
        lambda: co.hessian(loss, "x"),
        co.GradientError,
        ValueError,
        "jacrev of loss: argnums='x' is neither a position nor several\n"
        "  do: write argnums=0, or argnums=(0, 1)",
    ),
    "jacrev of a complex function": (
        lambda: co.jacrev(lambda x: x * 1j)(X),
        co.GradientError,
        ValueError,
        "jacrev: complex derivatives of real arrays have no such matrix\n"
        "  do: take jacfwd, or the real and imaginary parts one by one",
    ),
    "jacfwd of a real function": (
        lambda: co.jacfwd(real_part)(Z),
        co.GradientError,
        ValueError,
        "jacfwd: complex derivatives of real arrays have no such matrix\n"
        "  do: take jacrev, or the real and imaginary parts one by one",
    ),
}  # fmt: skip

# ---- batches ----

BATCHES: Table = {
    "vmap of no function": (
        lambda: co.vmap(3),
        co.ArgumentError,
        TypeError,
        "vmap: 3 is no function\n"
        "  do: write vmap(f) with a function f",
    ),
    "unknown randomness": (
        lambda: co.vmap(loss, randomness="equal"),
        co.VmapError,
        ValueError,
        "vmap: randomness='equal' is none of its values\n"
        "  do: use 'error', 'same' or 'different'",
    ),
    "chunks of no rows": (
        lambda: co.vmap(loss, chunk_size=0),
        co.VmapError,
        ValueError,
        "vmap: chunk_size=0 is no number of rows\n"
        "  do: use a positive number of rows, or None",
    ),
    "chunks by text": (
        lambda: co.vmap(loss, chunk_size="2"),
        co.VmapError,
        ValueError,
        "vmap: chunk_size='2' is no number of rows\n"
        "  do: use a positive number of rows, or None",
    ),
    "axes for other arguments": (
        lambda: co.vmap(loss, (0, 0))(M),
        co.VmapError,
        ValueError,
        "vmap of loss: in_dims has 2 entries, the call 1 positional arguments\n"
        "  do: give an entry for each argument, None where it is not batched",
    ),
    "axes of another structure": (
        lambda: co.vmap(loss, ({"a": 0},))(M),
        co.VmapError,
        ValueError,
        "vmap of loss: the axes ({'a': 0},) do not fit the structure PyTreeSpec((*,))\n"
        "  do: give one axis, or axes nested as the value is",
    ),
    "text for an axis": (
        lambda: co.vmap(loss, "0")(M),
        co.VmapError,
        ValueError,
        "vmap of loss: '0' among in_dims is no axis\n"
        "  do: use an int or None",
    ),
    "bool for an axis": (
        lambda: co.vmap(loss, True)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: True among in_dims is no axis\n"
        "  do: use an int or None",
    ),
    "axis out of reach": (
        lambda: co.vmap(loss, 2)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: in_dims is 2 for an array of shape (2, 2)\n"
        "  do: use an axis from -2 to 1",
    ),
    "axis of a number": (
        lambda: co.vmap(loss)(3.0),
        co.VmapError,
        ValueError,
        "vmap of loss: in_dims is 0 for float 3.0, which has no axes\n"
        "  do: use None among in_dims for it",
    ),
    "keyword array without axes under vmap": (
        lambda: co.vmap(lambda x, k: x)(M, k=np.array(3.0)),
        co.VmapError,
        ValueError,
        "vmap of <lambda>: in_dims is 0 for an array of shape ()\n"
        "  do: use None for an array without axes",
    ),
    "axis of an array without axes": (
        lambda: co.vmap(loss)(np.array(3.0)),
        co.VmapError,
        ValueError,
        "vmap of loss: in_dims is 0 for an array of shape ()\n"
        "  do: use None for an array without axes",
    ),
    "nothing is batched": (
        lambda: co.vmap(loss, None)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: no argument is batched\n"
        "  do: give at least one argument an axis among in_dims",
    ),
    "no argument at all": (
        lambda: co.vmap(loss)(),
        co.VmapError,
        ValueError,
        "vmap of loss: no argument is batched\n"
        "  do: give at least one argument an axis among in_dims",
    ),
    "batches of different lengths": (
        lambda: co.vmap(np.dot)(M, np.ones((3, 2))),
        co.VmapError,
        ValueError,
        "vmap of dot: batches of different lengths: f64[2, 2] along 0, f64[3, 2] along 0\n"
        "  do: batch all arguments by the same number of rows",
    ),
    "text as a result": (
        lambda: batched(words),
        co.VmapError,
        ValueError,
        "vmap of words: returned str 'words', must be arrays\n"
        "  do: return arrays, or out_dims=None for that result",
    ),
    "no axis for a batch": (
        lambda: co.vmap(loss, out_dims=None)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: out_dims is None for a result that differs between rows\n"
        "  do: give the axis for the batch, such as 0",
    ),
    "axis of the result out of reach": (
        lambda: co.vmap(loss, out_dims=1)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: out_dims is 1 for a row of 0 axes\n"
        "  do: use an axis from -1 to 0",
    ),
    "text for an axis of the result": (
        lambda: co.vmap(loss, out_dims="0")(M),
        co.VmapError,
        ValueError,
        "vmap of loss: out_dims is '0' for a row of 0 axes\n"
        "  do: use an axis from -1 to 0",
    ),
    "axes of another structure for the result": (
        lambda: co.vmap(loss, out_dims=(0, 0))(M),
        co.VmapError,
        ValueError,
        "vmap of loss: the axes (0, 0) do not fit the structure PyTreeSpec(*)\n"
        "  do: give one axis, or axes nested as the value is",
    ),
    "random operator": (
        lambda: batched(draw_op),
        co.VmapError,
        ValueError,
        "texts::draw is random under vmap (level N) with randomness='error'\n"
        "  texts::draw(Array x) -> Array\n"
        "  do: vmap(f, randomness='same') or vmap(f, randomness='different')",
    ),
    "random operator on the same for all rows": (
        lambda: batched(lambda x: draw_op(X)),
        co.VmapError,
        ValueError,
        "texts::draw is random under vmap (level N) with randomness='error'\n"
        "  texts::draw(Array x) -> Array\n"
        "  do: vmap(f, randomness='same') or vmap(f, randomness='different')",
    ),
    "write to one array for all rows": (
        lambda: co.vmap(made(mixed, "(Array(a!) x, Array y) -> ()", mutates_args=("x",)), (None, 0))(X, M),
        co.VmapError,
        ValueError,
        "texts::op writes its argument 'x' under vmap (level N), which is one array for all rows\n"
        "  texts::op(Array(a!) x, Array y) -> ()\n"
        "            ^^^^^^^^^^^\n"
        "  do: batch 'x' too, or use an operator that returns a new array",
    ),
    "rows of different shapes": (
        lambda: batched(made(as_many)),
        co.VmapError,
        ValueError,
        "texts::op: under vmap (level N) the rows return arrays of shapes [(1,), (3,)], which do not stack\n"
        "  texts::op(Array x) -> Array\n"
        "  do: return arrays of one shape for all rows",
    ),
    "rows of different lengths": (
        lambda: batched(made(as_many_items, "(Array x) -> Array[]")),
        co.VmapError,
        ValueError,
        "texts::op: under vmap (level N) the rows return lists of [1, 3] items, which do not stack\n"
        "  texts::op(Array x) -> Array[]\n"
        "  do: return arrays of one shape for all rows",
    ),
    "rows of different numbers": (
        lambda: batched(made(first, "(Array x) -> int")),
        co.VmapError,
        ValueError,
        "texts::op: under vmap (level N) the rows return the values 1, 3, which do not stack\n"
        "  texts::op(Array x) -> int\n"
        "  do: return arrays of one shape for all rows",
    ),
    "rule that returns no pair": (
        lambda: batched(made(same, vmap=vmap_alone)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned ndarray of shape (2, 2), no pair\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_alone)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule with an axis out of reach": (
        lambda: batched(made(same, vmap=vmap_far)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned out_dims=3 for an output of shape (2, 2)\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_far)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule that loses a row": (
        lambda: batched(made(same, vmap=vmap_short)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned an output of shape (1, 2) with out_dims=0, but the batch has 2 rows\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_short)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule with text for an axis": (
        lambda: batched(made(same, vmap=vmap_word)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned out_dims='0' for the output ndarray of shape (2, 2)\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_word)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule with one axis for two outputs": (
        lambda: batched(made(twice, PAIR, vmap=vmap_one_dim)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned out_dims=0 for 2 outputs\n"
        "  texts::op(Array x) -> (Array, Array)\n"
        f"  rule at {at(vmap_one_dim)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule that returns a number": (
        lambda: batched(made(same, vmap=vmap_number)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returns output 0 as int 3, must be an array\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_number)}\n"
        "  do: return what the schema says",
    ),
    "no rows and no fake kernel": (
        lambda: batched(bare_op, np.ones((0, 2))),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no fake kernel\n"
        "  texts::bare(Array x) -> Array\n"
        f"  at {at(bare)}\n"
        "  do: @bare.register_fake, a function that returns fake_like(...)",
    ),
}  # fmt: skip

# ---- kernels ----

KERNELS: Table = {
    "number for an optional array": (
        lambda: made(gives_number, "(Array x) -> Array?")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as int 3, must be an array\n"
        "  texts::op(Array x) -> Array?\n"
        f"  kernel at {at(gives_number)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "number among arrays": (
        lambda: made(gives_numbers, "(Array x) -> Array[]")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 with item 1 as int 3, must be an array\n"
        "  texts::op(Array x) -> Array[]\n"
        f"  kernel at {at(gives_numbers)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "array for a list": (
        lambda: made(same, "(Array x) -> Array[]")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as ndarray of shape (2,), must be Array[]\n"
        "  texts::op(Array x) -> Array[]\n"
        f"  kernel at {at(same)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "one for a list of two": (
        lambda: made(gives_few, "(Array x) -> Array[2]")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 with 1 items, must be Array[2]\n"
        "  texts::op(Array x) -> Array[2]\n"
        f"  kernel at {at(gives_few)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "one for a pair": (
        lambda: made(gives_short_tuple, "(Array x) -> ((Array, Array), Array)")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 with 1 items, must be (Array, Array)\n"
        "  texts::op(Array x) -> ((Array, Array), Array)\n"
        f"  kernel at {at(gives_short_tuple)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "fake array of a kernel": (
        lambda: made(gives_fake)(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as FakeArray f64[2] of the kind 'fake', must be of the kind 'cpu'\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(gives_fake)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "None for a number": (
        lambda: made(gives_none, "(Array x) -> float")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as None, must be float\n"
        "  texts::op(Array x) -> float\n"
        f"  kernel at {at(gives_none)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "text for a number": (
        lambda: made(gives_text, "(Array x) -> Scalar")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as str '1', must be Scalar\n"
        "  texts::op(Array x) -> Scalar\n"
        f"  kernel at {at(gives_text)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "write that NumPy refuses": (
        lambda: made(refuses)(X.copy()),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel writes an argument\n"
        "  that mutates_args=() does not name\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(refuses)}\n"
        "  do: name it in mutates_args, or write into x.copy()",
    ),
    "fake kernel of another dtype": (
        lambda: made(same, fake=fake_single)(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns f64[2] with strides (8,) on cpu as output 0, its fake kernel f32[2] with strides (4,) on cpu\n"
        f"  they differ in dtype; fake kernel at {at(fake_single)}\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(same)}\n"
        "  do: return fake_like(x, shape=..., dtype=...) with what the kernel returns",
    ),
    "fake kernel on another device": (
        lambda: made(same, fake=fake_there)(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns f64[2] with strides (8,) on cpu as output 0, its fake kernel f64[2] with strides (8,) on cuda:0\n"
        f"  they differ in device; fake kernel at {at(fake_there)}\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(same)}\n"
        "  do: return fake_like(x, shape=..., dtype=...) with what the kernel returns",
    ),
    "fake kernel with the axes in another order": (
        lambda: made(turned, fake=fake_same)(M),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns f64[2, 2] with strides (8, 16) on cpu as output 0, its fake kernel f64[2, 2] with strides (16, 8) on cpu\n"
        f"  they differ in order of axes in memory; fake kernel at {at(fake_same)}\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(turned)}\n"
        '  do: let the kernel return np.asarray(out, order="C"), or the fake kernel the order that the kernel has: FakeArray(shape, dtype, strides)',
    ),
    "fake kernel without an array": (
        lambda: made(same, "(Array x) -> Array?", fake=fake_none)(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns [array] as output 0, its fake kernel [None]\n"
        f"  fake kernel at {at(fake_none)}\n"
        "  texts::op(Array x) -> Array?\n"
        f"  kernel at {at(same)}\n"
        "  do: return as many arrays, and None in the same places",
    ),
    "fake kernel of text": (
        lambda: made(same, fake=fake_word)(F),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'fake' kernel returns output 0 as str 'shape', must be an array\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(fake_word)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "text for an array or number": (
        lambda: made(same, "(Array|Scalar x) -> Array")("x"),
        co.ArgumentError,
        TypeError,
        "texts::op: argument 'x' expects Array|Scalar, got str 'x'\n"
        "  texts::op(Array|Scalar x) -> Array\n"
        "            ^^^^^^^^^^^^^^\n"
        "  do: pass an array, such as np.asarray(x)",
    ),
    "text in a tuple": (
        lambda: made(same_list, "((Array, Array) xs) -> Array")((X, "x")),
        co.ArgumentError,
        TypeError,
        "texts::op: argument 'xs' at index 1 expects Array, got str 'x'\n"
        "  texts::op((Array, Array) xs) -> Array\n"
        "            ^^^^^^^^^^^^^^^^^\n"
        "  do: pass arrays, such as [np.asarray(x), ...]",
    ),
}  # fmt: skip

# ---- NumPy's functions on traced and fake arrays ----

NUMPY: Table = {
    "flipud": (
        lambda: graded(lambda x: np.flipud(x.sum())),
        co.ShapeError,
        ValueError,
        "Input must be >= 1-d.\n"
        "  np.flipud of an array of shape ()\n"
        "  do: use np.flip",
    ),
    "fliplr": (
        lambda: graded(np.fliplr),
        co.ShapeError,
        ValueError,
        "Input must be >= 2-d.\n"
        "  np.fliplr of an array of shape (2,)\n"
        "  do: use np.flip",
    ),
    "roll": (
        lambda: np.roll(F, [[1]], 0),
        co.ShapeError,
        ValueError,
        "'shift' and 'axis' should be scalars or 1D sequences\n"
        "  do: give ints or lists",
    ),
    "round into an array": (
        lambda: graded(lambda x: x.round(out=X)),
        co.ArgumentError,
        TypeError,
        "np.round(out=...) writes in place\n"
        "  do: use the result: y = np.round(x)",
    ),
    "nonzero of a fake array": (
        lambda: np.nonzero(F),
        co.DataDependentError,
        TypeError,
        "np.nonzero, or a mask as an index, of a fake array: the shape of the result depends on data\n"
        "  do: use np.where(mask, x, 0), which keeps the shape",
    ),
    "a mask of a fake array": (
        lambda: F[F > 0],
        co.DataDependentError,
        TypeError,
        "np.nonzero, or a mask as an index, of a fake array: the shape of the result depends on data\n"
        "  do: use np.where(mask, x, 0), which keeps the shape",
    ),
    "a mask under vmap": (
        lambda: batched(lambda x: x[x > 1.0]),
        co.DataDependentError,
        TypeError,
        "np.nonzero, or a mask as an index, under vmap of 2 rows: the shape of the result depends on data\n"
        "  do: use np.where(mask, x, 0), which keeps the shape",
    ),
    "take by floats": (
        lambda: np.take(F, [0.5]),
        co.ArgumentError,
        TypeError,
        "np.take: indices of dtype float64, must be integers\n"
        "  do: use indices.astype(int), or np.where(mask, x, 0) for a mask",
    ),
    "take by a mask": (
        lambda: np.take(F, F > 0),
        co.ArgumentError,
        TypeError,
        "np.take: indices of dtype bool, must be integers\n"
        "  do: use indices.astype(int), or np.where(mask, x, 0) for a mask",
    ),
    "take in another mode": (
        lambda: np.take(F, [0], mode="nearest"),
        co.ArgumentError,
        TypeError,
        "np.take: mode='nearest' is not supported for traced or fake arrays\n"
        "  do: use mode='raise' or 'wrap' or 'clip'",
    ),
    "take_along_axis": (
        lambda: np.take_along_axis(G, N, 1),
        co.ShapeError,
        ValueError,
        "`indices` and `arr` must have the same number of dimensions\n"
        "  np.take_along_axis: (2,) for (2, 3)\n"
        "  do: give indices with the axes of the array",
    ),
    "diag": (
        lambda: np.diag(np.sum(F)),
        co.ShapeError,
        ValueError,
        "Input must be 1- or 2-d.\n"
        "  np.diag of an array of shape ()\n"
        "  do: use np.atleast_1d(x) first",
    ),
    "where": (
        lambda: np.where(F > 0, F),
        co.ShapeError,
        ValueError,
        "either both or neither of x and y should be given\n"
        "  do: write np.where(condition, x, y)",
    ),
    "select": (
        lambda: np.select([F > 0], [F, F]),
        co.ShapeError,
        ValueError,
        "list of cases must be same length as list of conditions, and not empty\n"
        "  np.select: 1 conditions, 2 choices\n"
        "  do: give a choice for each condition",
    ),
    "select of nothing": (
        lambda: co.vmap(lambda x: np.select([], [x]))(M),
        co.ShapeError,
        ValueError,
        "list of cases must be same length as list of conditions, and not empty\n"
        "  np.select: 0 conditions, 1 choices\n"
        "  do: give a choice for each condition",
    ),
    "concatenate": (
        lambda: np.concatenate([G, co.FakeArray((2, 2, 2), float)]),
        co.ShapeError,
        ValueError,
        "np.concatenate: arrays of the shapes (2, 3), (2, 2, 2) do not fit\n"
        "  do: join arrays that agree in all axes, but for the one they are joined along",
    ),
    "concatenate of other shapes": (
        lambda: np.concatenate([G, F.reshape(1, 2)]),
        co.ShapeError,
        ValueError,
        "np.concatenate: arrays of the shapes (2, 3), (1, 2) do not fit\n"
        "  do: join arrays that agree in all axes, but for the one they are joined along",
    ),
    "concatenate of no axes": (
        lambda: np.concatenate([F, np.sum(F)]),
        co.ShapeError,
        ValueError,
        "zero-dimensional arrays cannot be concatenated\n"
        "  do: use np.stack, or np.atleast_1d on each",
    ),
    "concatenate with a cast": (
        lambda: np.concatenate([F, F], dtype=int, casting="unsafe"),
        co.ArgumentError,
        TypeError,
        "np.concatenate: casting='unsafe' is not supported for traced or fake arrays\n"
        "  do: use casting='same_kind'",
    ),
    "stack of other shapes": (
        lambda: np.stack([F, G]),
        co.ShapeError,
        ValueError,
        "np.stack: arrays of the shapes (2,), (2, 3) do not fit\n"
        "  do: join arrays that agree in all axes, but for the one they are joined along",
    ),
    "split in unequal parts": (
        lambda: np.split(G, 2, axis=1),
        co.ShapeError,
        ValueError,
        "array split does not result in an equal division\n"
        "  axis 1 of length 3 in 2 parts\n"
        "  do: use np.array_split, or give the places to cut",
    ),
    "split in no parts": (
        lambda: np.array_split(G, 0),
        co.ShapeError,
        ValueError,
        "number sections must be larger than 0\n"
        "  axis 0 of length 2 in 0 parts\n"
        "  do: give a positive number of parts, or the places to cut",
    ),
    "hsplit": (
        lambda: np.hsplit(np.sum(F), 1),
        co.ShapeError,
        ValueError,
        "hsplit only works on arrays of 1 or more dimensions\n"
        "  got an array of shape ()\n"
        "  do: use np.atleast_1d(x) first",
    ),
    "vsplit": (
        lambda: np.vsplit(F, 2),
        co.ShapeError,
        ValueError,
        "vsplit only works on arrays of 2 or more dimensions\n"
        "  got an array of shape (2,)\n"
        "  do: use np.split",
    ),
    "dsplit": (
        lambda: np.dsplit(G, 2),
        co.ShapeError,
        ValueError,
        "dsplit only works on arrays of 3 or more dimensions\n"
        "  got an array of shape (2, 3)\n"
        "  do: use np.split",
    ),
    "pad in a mode": (
        lambda: np.pad(F, 1, mode="mean"),
        co.ArgumentError,
        TypeError,
        "np.pad: mode='mean' is not supported for traced or fake arrays\n"
        "  do: use 'constant' or one of 'edge', 'reflect', 'symmetric', 'wrap'",
    ),
    "pad with an end value": (
        lambda: np.pad(F, 1, mode="edge", end_values=1),
        co.ArgumentError,
        TypeError,
        "np.pad: end_values=1 is not supported for traced or fake arrays\n"
        "  do: use end_values=",
    ),
    "pad by an odd reflection": (
        lambda: np.pad(F, 1, mode="reflect", reflect_type="odd"),
        co.ArgumentError,
        TypeError,
        "np.pad: reflect_type='odd' is not supported for traced or fake arrays\n"
        "  do: use reflect_type='even'",
    ),
    "pad by floats": (
        lambda: np.pad(F, 1.5),
        co.ArgumentError,
        TypeError,
        "np.pad: `pad_width` must be of integral type, got 1.5\n"
        "  do: give ints: ((before, after), ...)",
    ),
    "pad by less": (
        lambda: np.pad(F, -1),
        co.ShapeError,
        ValueError,
        "index can't contain negative values\n"
        "  np.pad: pad_width=-1\n"
        "  do: slice the array to make it shorter",
    ),
    "reshape": (
        lambda: G.reshape(4),
        co.ShapeError,
        ValueError,
        "cannot reshape array of size 6 into shape (4,)\n"
        "  do: give lengths whose product is the number of elements",
    ),
    "reshape by two unknowns": (
        lambda: G.reshape(-1, -1),
        co.ShapeError,
        ValueError,
        "cannot reshape array of size 6 into shape (-1, -1)\n"
        "  do: give lengths whose product is the number of elements",
    ),
    "reshape in an order": (
        lambda: np.reshape(G, 6, order="A"),
        co.ArgumentError,
        TypeError,
        "np.reshape: order='A' is not supported for traced or fake arrays\n"
        "  do: use order='C' or 'F'",
    ),
    "ravel in an order": (
        lambda: np.ravel(G, order="K"),
        co.ArgumentError,
        TypeError,
        "np.ravel: order='K' is not supported for traced or fake arrays\n"
        "  do: use order='C' or 'F'",
    ),
    "transpose": (
        lambda: np.transpose(G, (0,)),
        co.ShapeError,
        ValueError,
        "axes don't match array: (0,) for an array of 2 axes\n"
        "  do: name each axis once",
    ),
    "moveaxis": (
        lambda: np.moveaxis(G, (0, 1), 0),
        co.ShapeError,
        ValueError,
        "`source` and `destination` arguments must have the same number of elements\n"
        "  got (0, 1) and (0,)\n"
        "  do: give a destination for each axis",
    ),
    "squeeze": (
        lambda: np.squeeze(G, 0),
        co.ShapeError,
        ValueError,
        "cannot select an axis to squeeze out which has size not equal to one\n"
        "  axis 0 of an array of shape (2, 3)\n"
        "  do: name axes of length one",
    ),
    "broadcast_to": (
        lambda: np.broadcast_to(G, (2, 2)),
        co.ShapeError,
        ValueError,
        "operands could not be broadcast together: an array of shape (2, 3) into the shape (2, 2)\n"
        "  do: give lengths that are equal, or one in the array",
    ),
    "broadcast_to a subclass": (
        lambda: np.broadcast_to(F, (2, 2), subok=True),
        co.ArgumentError,
        TypeError,
        "np.broadcast_to: subok=True is not supported for traced or fake arrays\n"
        "  do: use subok=False",
    ),
    "broadcast_arrays of a subclass": (
        lambda: np.broadcast_arrays(F, F, subok=True),
        co.ArgumentError,
        TypeError,
        "np.broadcast_arrays: subok=True is not supported for traced or fake arrays\n"
        "  do: use subok=False",
    ),
    "meshgrid": (
        lambda: np.meshgrid(F, F, indexing="ab"),
        co.ArgumentError,
        TypeError,
        "np.meshgrid: indexing='ab' is not supported for traced or fake arrays\n"
        "  do: use indexing='xy' or 'ij'",
    ),
    "copy in an order": (
        lambda: np.copy(F, order="F"),
        co.ArgumentError,
        TypeError,
        "np.copy: order='F' is not supported for traced or fake arrays\n"
        "  do: use order='K' or 'C' or 'A'",
    ),
    "astype in an order": (
        lambda: F.astype(int, order="F"),
        co.ArgumentError,
        TypeError,
        "astype: order='F' is not supported for traced or fake arrays\n"
        "  do: use order='K'",
    ),
    "astype with a cast": (
        lambda: F.astype(int, casting="safe"),
        co.ArgumentError,
        TypeError,
        "astype: casting='safe' is not supported for traced or fake arrays\n"
        "  do: use casting='unsafe'",
    ),
    "astype to a subclass": (
        lambda: F.astype(int, subok=None),
        co.ArgumentError,
        TypeError,
        "astype: subok=None is not supported for traced or fake arrays\n"
        "  do: use subok=True or False",
    ),
    "sum into an array": (
        lambda: graded(lambda x: x.sum(out=X)),
        co.ArgumentError,
        TypeError,
        "np.sum(out=ndarray of shape (2,)) has no operator for traced or fake arrays\n"
        "  do: use the result: y = np.sum(x)",
    ),
    "sum from a start": (
        lambda: np.sum(F, initial=1.0),
        co.ArgumentError,
        TypeError,
        "np.sum(initial=1.0) has no operator for traced or fake arrays\n"
        "  do: combine afterwards: np.sum(x) with the value",
    ),
    "sum of a mask": (
        lambda: np.sum(F, where=F > 0),
        co.ArgumentError,
        TypeError,
        "np.sum(where=FakeArray of shape (2,)) has no operator for traced or fake arrays\n"
        "  do: select with np.where(mask, x, value) first",
    ),
    "max from a start": (
        lambda: np.max(F, initial=1.0),
        co.ArgumentError,
        TypeError,
        "np.max(initial=1.0) has no operator for traced or fake arrays\n"
        "  do: combine afterwards: np.max(x) with the value",
    ),
    "reduce from a start": (
        lambda: np.add.reduce(F, initial=1.0),
        co.ArgumentError,
        TypeError,
        "np.add.reduce(initial=1.0) has no operator for traced or fake arrays\n"
        "  do: combine afterwards: np.add.reduce(x) with the value",
    ),
    "var with a mean": (
        lambda: np.var(F, mean=X),
        co.ArgumentError,
        TypeError,
        "np.var(mean=ndarray of shape (2,)) has no operator for traced or fake arrays\n"
        "  do: leave mean= away",
    ),
    "argmax into an array": (
        lambda: graded(lambda x: x.argmax(out=X)),
        co.ArgumentError,
        TypeError,
        "np.argmax(out=ndarray of shape (2,)) has no operator for traced or fake arrays\n"
        "  do: use the result: y = np.argmax(x)",
    ),
    "cumsum into an array": (
        lambda: graded(lambda x: x.cumsum(out=X)),
        co.ArgumentError,
        TypeError,
        "np.cumsum(out=ndarray of shape (2,)) has no operator for traced or fake arrays\n"
        "  do: use the result: y = np.cumsum(x)",
    ),
    "sort by fields": (
        lambda: np.sort(F, order="a"),
        co.ArgumentError,
        TypeError,
        "np.sort(order='a') has no operator for traced or fake arrays\n"
        "  do: leave order= away",
    ),
    "sort by heaps": (
        lambda: np.sort(F, kind="heapsort"),
        co.ArgumentError,
        TypeError,
        "np.sort(kind='heapsort') has no operator for traced or fake arrays\n"
        "  do: leave kind out, or use kind='stable'",
    ),
    "argsort by heaps": (
        lambda: np.argsort(F, kind="heapsort"),
        co.ArgumentError,
        TypeError,
        "np.argsort(kind='heapsort') has no operator for traced or fake arrays\n"
        "  do: leave kind out, or use kind='stable'",
    ),
    "average by other weights": (
        lambda: np.average(G, 0, np.ones(3)),
        co.ArgumentError,
        TypeError,
        "np.average: weights of shape (3,) do not fit an array of shape (2, 3) along axis 0\n"
        "  do: give weights of the shape of the array, or of the axes averaged over",
    ),
    "average by weights without an axis": (
        lambda: np.average(G, None, np.ones(3)),
        co.ArgumentError,
        TypeError,
        "np.average: weights of shape (3,) do not fit an array of shape (2, 3) along axis None\n"
        "  do: give weights of the shape of the array, or of the axes averaged over",
    ),
    "nansum from a start": (
        lambda: np.nansum(F, initial=1.0),
        co.ArgumentError,
        TypeError,
        "np.nansum(initial=1.0) has no operator for traced or fake arrays\n"
        "  do: combine afterwards: np.nansum(x) with the value",
    ),
    "nanmean of a mask": (
        lambda: np.nanmean(F, where=F > 0),
        co.ArgumentError,
        TypeError,
        "np.nanmean(where=FakeArray of shape (2,)) has no operator for traced or fake arrays\n"
        "  do: select with np.where(mask, x, value) first",
    ),
    "dot into an array": (
        lambda: graded(lambda x: x.dot(x, out=X)),
        co.ArgumentError,
        TypeError,
        "np.dot(out=ndarray of shape (2,)) has no operator for traced or fake arrays\n"
        "  do: use the result: y = np.dot(x)",
    ),
    "einsum to a dtype": (
        lambda: np.einsum("i->", F, dtype=float),
        co.ArgumentError,
        TypeError,
        "np.einsum(dtype=<class 'float'>) has no operator for traced or fake arrays\n"
        "  do: leave dtype= away",
    ),
    "einsum in an order": (
        lambda: np.einsum("i->", F, order="F"),
        co.ArgumentError,
        TypeError,
        "np.einsum(order='F') has no operator for traced or fake arrays\n"
        "  do: leave order= away",
    ),
    "einsum by lists": (
        lambda: np.einsum(F, [0]),
        co.ArgumentError,
        TypeError,
        "np.einsum with lists of axes has no operator for traced or fake arrays\n"
        '  do: write the subscripts as text: np.einsum("ij,jk->ik", x, y)',
    ),
    "matrix norm": (
        lambda: np.linalg.norm(G, 2),
        co.ArgumentError,
        TypeError,
        "np.linalg.norm(ord=2) has no operator for traced or fake arrays of 2 axes\n"
        "  do: use ord=None, 'fro', 1, -1, inf or -inf",
    ),
    "norm of a number": (
        lambda: np.linalg.norm(np.sum(F), 1),
        co.ArgumentError,
        TypeError,
        "np.linalg.norm(ord=1) has no operator for traced or fake arrays of 0 axes\n"
        "  do: use ord=None, 'fro', 1, -1, inf or -inf",
    ),
    "nuclear norm": (
        lambda: np.linalg.norm(G, "nuc"),
        co.ArgumentError,
        TypeError,
        "np.linalg.norm(ord='nuc') has no operator for traced or fake arrays of 2 axes\n"
        "  do: use ord=None, 'fro', 1, -1, inf or -inf",
    ),
    "norm of a stack": (
        lambda: np.linalg.norm(co.FakeArray((2, 2, 2), float), 1),
        co.ArgumentError,
        TypeError,
        "np.linalg.norm(ord=1) has no operator for traced or fake arrays of 3 axes\n"
        "  do: use ord=None, 'fro', 1, -1, inf or -inf",
    ),
    "matmul of no axes": (
        lambda: np.matmul(np.sum(F), F),
        co.ShapeError,
        ValueError,
        "np.matmul: an array without axes has no matrix product\n"
        "  do: use x * y",
    ),
    "matmul of other lengths": (
        lambda: np.matmul(G, F),
        co.ShapeError,
        ValueError,
        "np.matmul: shapes (2, 3) and (2,) differ in the summed axis\n"
        "  do: transpose or reshape one of them",
    ),
    "tensordot of other lengths": (
        lambda: np.tensordot(G, G, 1),
        co.ShapeError,
        ValueError,
        "np.tensordot: shapes (2, 3) and (2, 3) differ along the summed axes (1,) and (0,)\n"
        "  do: name pairs of axes of one length",
    ),
    "einsum of other operands": (
        lambda: np.einsum("i,i->", F),
        co.ShapeError,
        ValueError,
        "np.einsum: 'i,i->' names 2 operands, got 1\n"
        "  do: give a term for each operand",
    ),
    "einsum of other axes": (
        lambda: np.einsum("ij->", F),
        co.ShapeError,
        ValueError,
        "np.einsum: 'ij' in 'ij->' does not fit an operand of 1 axes\n"
        "  do: name each axis once, or write '...' for the rest",
    ),
    "einsum of other lengths": (
        lambda: np.einsum("i,i->", F, np.ones(3)),
        co.ShapeError,
        ValueError,
        "np.einsum: 'i' in 'i,i->' is 2 and 3 long\n"
        "  do: name axes of one length alike",
    ),
}  # fmt: skip

# ---- errors of Python's own classes ----

PLAIN: Table = {
    "len of a value without axes": (
        lambda: len(co.variable(1.5)),
        TypeError,
        TypeError,
        "len() of an array with no axes",
    ),
}  # fmt: skip

GROUPS: dict[str, Table] = {
    "value": VALUES,
    "mode": MODES,
    "fake": FAKES,
    "gradient": GRADIENTS,
    "tangent": TANGENTS,
    "matrix": MATRICES,
    "batch": BATCHES,
    "kernel": KERNELS,
    "numpy": NUMPY,
    "plain": PLAIN,
}
TABLE = {
    f"{g}: {name}": row for g, rows in GROUPS.items() for name, row in rows.items()
}
OURS = [name for name in TABLE if not name.startswith("plain: ")]


def caught(act: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as found:
        act()
    return found.value


# Levels come from one counter that all tests share.
LEVEL = re.compile(r"\(level [1-9]\d*\)")


@pytest.mark.parametrize("name", TABLE)
def test_the_message_is(name: str) -> None:
    """Every message says what was wrong, where, and what to do."""
    act, kind, _, text = TABLE[name]
    error = caught(act)
    assert LEVEL.sub("(level N)", str(error)) == text
    assert type(error) is kind


@pytest.mark.parametrize("name", OURS)
def test_an_error_is_the_builtin_that_is_expected(name: str) -> None:
    """What fails is a CustomOpError, and what NumPy or Python would have raised."""
    act, _, builtin, _ = TABLE[name]
    error = caught(act)
    assert isinstance(error, CustomOpError)
    assert isinstance(error, builtin)


@pytest.mark.parametrize("name", TABLE)
def test_an_error_pickles(name: str) -> None:
    """An error goes to another process and back with all that it says."""
    error = caught(TABLE[name][0])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


# ---- warnings ----


@pytest.mark.filterwarnings("default:.*has no vmap rule")
def test_the_warning_of_a_loop_is() -> None:
    """A batch without a rule warns with the operator, what it costs, and the remedy."""
    op = co.custom_op("texts::looped", bare, mutates_args=())
    with pytest.warns(co.CustomOpWarning) as found:
        co.vmap(op)(M)
    assert [str(warning.message) for warning in found] == [
        "texts::looped has no vmap rule: it runs once for each row, which is slow."
        " Register one with @looped.register_vmap"
    ]
    assert found[0].filename == __file__
