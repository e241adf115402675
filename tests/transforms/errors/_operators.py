"""Operators, rules and functions that fail in different ways; the type of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import customop as co

X = np.array([1.0, 2.0])
Y = np.array([3.0, 4.0])
Z = np.array([1.0 + 2.0j, 3.0])
N = np.array([1, 2])
M = np.array([[1.0, 2.0], [3.0, 4.0]])
# Errors that traced and fake arrays share are tested on fake ones: they are cheaper.
F, G = co.FakeArray(2, float), co.FakeArray((2, 3), float)

ONE = "(Array x) -> Array"
TWO = "(Array x, Array y) -> Array"
LIST = "(Array[] xs) -> Array"
PAIR = "(Array x) -> (Array, Array)"


def at(fn: Callable[..., Any]) -> str:
    """File and line of a function."""
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"


def inside(fn: Callable[..., Any], line: int = 1) -> str:
    """A line in the body of a function."""
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno + line}"


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
    """A user's transform whose values must not be branched on."""

    kind = co.RuleKind("steps")

    class Step(co.Tracer):
        """A value of it."""

        __slots__ = ()
        is_concrete = False

    tracer_class = Step

    def process(self, op: Any, args: Any) -> Any:
        return self.wrap(op.invoke(self.unwrap(args)))


class Scale:
    """A kernel like those of CuPy: it has a name that no ufunc has."""

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
    """Use a value after its transform has ended."""
    kept: list[Any] = []

    def store(x: Any) -> Any:
        kept.append(x)
        return np.sum(x)

    transform(store)(X)
    return np.sin(kept[0])


def write_after(setup: Any) -> None:
    """Write to an array that a call has kept, then take the gradient."""
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
