"""Messages about values that a transform follows, modes and fake arrays."""

# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import operator
import pickle

import numpy as np

import customop as co
from tests.transforms.errors._operators import (
    F,
    G,
    N,
    Scale,
    Steps,
    Table,
    X,
    Y,
    add_into,
    at,
    bare,
    bare_op,
    batched,
    crossed,
    graded,
    leak,
    opened_again,
    opened_twice,
    put,
    without_arrays,
    zeros,
)

# ---- values that a transform follows ----

VALUES: Table = {
    "asarray of a value under grad": (
        lambda: graded(np.asarray),
        co.DataDependentError,
        TypeError,
        "np.array(), or a NumPy kernel, is given GradTracer f64[2], a value of grad(asarray)\n"
        "  grad(asarray) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: use customop.array([...]) in place of np.array([...]), np.asarray(x, like=x) to convert, getitem(a, i) to index by a value i, custom_op for a kernel, or stop_gradient(x) for the value alone",
    ),
    "float of a value under grad": (
        lambda: co.grad(float)(1.5),
        co.DataDependentError,
        TypeError,
        "float() of GradTracer f64[], a value of grad(float)\n"
        "  grad(float) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: use np.sin in place of math.sin, and the array itself in place of a number, or stop_gradient(x) for the value alone",
    ),
    "int of a value under grad": (
        lambda: co.grad(int)(1.5),
        co.DataDependentError,
        TypeError,
        "int() of GradTracer f64[], a value of grad(int)\n"
        "  grad(int) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: use the array itself in place of a number, or stop_gradient(x) for the value alone",
    ),
    "complex of a value under grad": (
        lambda: co.grad(complex)(1.5),
        co.DataDependentError,
        TypeError,
        "complex() of GradTracer f64[], a value of grad(complex)\n"
        "  grad(complex) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: use the array itself in place of a number, or stop_gradient(x) for the value alone",
    ),
    "index by a value under grad": (
        lambda: co.grad(lambda x: [1, 2][x])(1.5),
        co.DataDependentError,
        TypeError,
        "an index, or range(), of GradTracer f64[], a value of grad(<lambda>)\n"
        "  grad(<lambda>) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: write co.getitem(np.array([1, 2]), x) in place of [1, 2][x], or stop_gradient(x) for the value alone",
    ),
    "item of a value under grad": (
        lambda: graded(lambda x: x.item()),
        co.DataDependentError,
        TypeError,
        "item() of GradTracer f64[2], a value of grad(<lambda>)\n"
        "  grad(<lambda>) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: use the array itself in place of a number, or stop_gradient(x) for the value alone",
    ),
    "tolist of a value under grad": (
        lambda: graded(lambda x: x.tolist()),
        co.DataDependentError,
        TypeError,
        "tolist() of GradTracer f64[2], a value of grad(<lambda>)\n"
        "  grad(<lambda>) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: use the array as it is, or stop_gradient(x) for the value alone",
    ),
    "pickle of a value under grad": (
        lambda: graded(pickle.dumps),
        co.DataDependentError,
        TypeError,
        "pickling GradTracer f64[2], a value of grad(dumps)\n"
        "  grad(dumps) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: use the plain array that goes in, or stop_gradient(x) for the value alone",
    ),
    "format of a value under grad": (
        lambda: graded(lambda x: f"{x:.2f}"),
        co.DataDependentError,
        TypeError,
        "format('.2f') of GradTracer f64[2], a value of grad(<lambda>)\n"
        "  grad(<lambda>) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: write f'{x}' in place of f'{x:.2f}', or stop_gradient(x) for the value alone",
    ),
    "float of a value under jvp": (
        lambda: co.jvp(float, (1.5,), (1.0,)),
        co.DataDependentError,
        TypeError,
        "float() of JvpTracer f64[], a value of jvp(float)\n"
        "  jvp(float) is called at FILE:N\n"
        "  the transform would lose track of it\n"
        "  do: use np.sin in place of math.sin, and the array itself in place of a number, or stop_gradient(x) for the value alone",
    ),
    "bool of a row": (
        lambda: batched(bool),
        co.DataDependentError,
        TypeError,
        "bool() of BatchTracer f64[2], a row of 2 of vmap(bool)\n"
        "  vmap(bool) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: use np.where(mask, a, b) in place of a branch",
    ),
    "asarray of a row": (
        lambda: batched(np.asarray),
        co.DataDependentError,
        TypeError,
        "np.array(), or a NumPy kernel, is given BatchTracer f64[2], a row of 2 of vmap(asarray)\n"
        "  vmap(asarray) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: use customop.array([...]) in place of np.array([...]), np.asarray(x, like=x) to convert, getitem(a, i) to index by a value i, custom_op for a kernel",
    ),
    "float of a row": (
        lambda: batched(float),
        co.DataDependentError,
        TypeError,
        "float() of BatchTracer f64[2], a row of 2 of vmap(float)\n"
        "  vmap(float) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: use np.sin in place of math.sin, and the array itself in place of a number",
    ),
    "int of a row": (
        lambda: batched(int),
        co.DataDependentError,
        TypeError,
        "int() of BatchTracer f64[2], a row of 2 of vmap(int)\n"
        "  vmap(int) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: use the array itself in place of a number",
    ),
    "index by a row": (
        lambda: batched(lambda i: [1, 2][i], N),
        co.DataDependentError,
        TypeError,
        "an index, or range(), of BatchTracer i64[], a row of 2 of vmap(<lambda>)\n"
        "  vmap(<lambda>) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: write co.getitem(np.array([1, 2]), i) in place of [1, 2][i]",
    ),
    "item of a row": (
        lambda: batched(lambda x: x.item()),
        co.DataDependentError,
        TypeError,
        "item() of BatchTracer f64[2], a row of 2 of vmap(<lambda>)\n"
        "  vmap(<lambda>) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: use the array itself in place of a number",
    ),
    "tolist of a row": (
        lambda: batched(lambda x: x.tolist()),
        co.DataDependentError,
        TypeError,
        "tolist() of BatchTracer f64[2], a row of 2 of vmap(<lambda>)\n"
        "  vmap(<lambda>) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: use the array as it is",
    ),
    "pickle of a row": (
        lambda: batched(pickle.dumps),
        co.DataDependentError,
        TypeError,
        "pickling BatchTracer f64[2], a row of 2 of vmap(dumps)\n"
        "  vmap(dumps) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: use the plain array that goes in",
    ),
    "format of a row": (
        lambda: batched(lambda x: f"{x:.2f}"),
        co.DataDependentError,
        TypeError,
        "format('.2f') of BatchTracer f64[2], a row of 2 of vmap(<lambda>)\n"
        "  vmap(<lambda>) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: write f'{x}' in place of f'{x:.2f}'",
    ),
    "bool of a variable with a row inside": (
        lambda: batched(lambda x: co.grad(lambda v: np.sin(v) if v else v)(x), X),
        co.DataDependentError,
        TypeError,
        "bool() of BatchTracer f64[], a row of 2 of vmap(<lambda>)\n"
        "  vmap(<lambda>) is called at FILE:N\n"
        "  each row may have another value\n"
        "  do: use np.where(mask, a, b) in place of a branch",
    ),
    "bool of a value of a user's transform": (
        lambda: bool(Steps().wrap(X)),
        co.DataDependentError,
        TypeError,
        "bool() of Step f64[2], a value of steps\n"
        "  the transform would lose track of it\n"
        "  do: use np.where(mask, a, b) in place of a branch, or stop_gradient(x) for the value alone",
    ),
    "float of a variable": (
        lambda: float(co.variable(1.5)),
        co.DataDependentError,
        TypeError,
        "float() of GradTracer f64[], a value of variable(x)\n"
        "  the transform would lose track of it\n"
        "  do: write co.variable(1.5) in place of float(co.variable(1.5)), or stop_gradient(x) for the value alone",
    ),
    "a leak from grad": (
        lambda: leak(co.grad),
        co.LeakedTracerError,
        RuntimeError,
        "np::sin gets a value of grad(store), which has ended\n"
        "  store is defined at FILE:N\n"
        "  do: return the value from the transformed function instead of storing it",
    ),
    "a leak from vmap": (
        lambda: leak(co.vmap),
        co.LeakedTracerError,
        RuntimeError,
        "np::sin gets a value of vmap(store), which has ended\n"
        "  store is defined at FILE:N\n"
        "  do: return the value from the transformed function instead of storing it",
    ),
    "a leak from jvp": (
        lambda: leak(lambda f: lambda x: co.jvp(f, (x,), (Y,))),
        co.LeakedTracerError,
        RuntimeError,
        "np::sin gets a value of jvp(store), which has ended\n"
        "  store is defined at FILE:N\n"
        "  do: return the value from the transformed function instead of storing it",
    ),
    "write into a scalar": (
        lambda: graded(lambda x: put(np.sum(x), 1.0)),
        co.ArgumentError,
        TypeError,
        "GradTracer f64[] is a scalar, which cannot be written in place\n"
        "  do: write into an array: np.zeros_like(x), or np.zeros(shape, like=x)",
    ),
    "a cast in place": (
        lambda: operator.iadd(co.FakeArray((2,), np.int64), F),
        co.ArgumentError,
        TypeError,
        "np.add: cannot cast the result of dtype float64 to the dtype int64 of the array"
        " that it is written into (casting='same_kind')\n"
        "  do: use a new array: x = np.add(...), or write x[...] = value, which casts",
    ),
    "a shape in place": (
        lambda: graded(lambda x: operator.iadd(np.sum(x, keepdims=True), x)),
        co.ShapeError,
        ValueError,
        "np.add: the result of shape (2,) cannot be broadcast to the shape (1,) of the"
        " array that it is written into\n"
        "  do: use a new array: x = np.add(...)",
    ),
    "ufunc with out": (
        lambda: graded(lambda x: np.sin(x, out=np.zeros(2))),
        co.ArgumentError,
        TypeError,
        "np.sin(out=...) would write GradTracer f64[2] into a plain array\n"
        "  do: write np.sin(x) in place of np.sin(x, out=np.zeros(2))",
    ),
    "function with out": (
        lambda: graded(lambda x: np.cumsum(x, out=np.zeros(2))),
        co.ArgumentError,
        TypeError,
        "np.cumsum(out=...) would write GradTracer f64[2] into a plain array\n"
        "  do: write np.cumsum(x) in place of np.cumsum(x, out=np.zeros(2))",
    ),
    "augmented assignment": (
        lambda: graded(add_into),
        co.ArgumentError,
        TypeError,
        "np.add(out=...) would write GradTracer f64[2] into a plain array\n"
        "  do: write a = a + x in place of a += x",
    ),
    "function without an operator": (
        lambda: graded(np.is_busday),
        co.MissingRuleError,
        NotImplementedError,
        "np.is_busday has no operator: dates have no derivative\n"
        "  do: call it outside of the transform, and pass its result as a number",
    ),
    "function of text": (
        lambda: graded(np.strings.isalpha),
        co.MissingRuleError,
        NotImplementedError,
        "np.strings.isalpha has no operator: text has no derivative\n"
        "  do: call it outside of the transform, and pass numbers that are made of the text",
    ),
    "function without an operator on a fake array": (
        lambda: np.frompyfunc(abs, 1, 1)(G),
        co.MissingRuleError,
        NotImplementedError,
        "the ufunc abs (vectorized) has no operator, so it cannot see traced or fake"
        " arrays\n"
        "  do: wrap it with custom_op, then register_numpy_function(ufunc, op); or pass"
        " stop_gradient(x) to use the value alone",
    ),
    "ufunc method without an operator": (
        lambda: graded(np.frompyfunc(max, 2, 1).accumulate),
        co.MissingRuleError,
        NotImplementedError,
        "the ufunc max (vectorized).accumulate has no operator, so it cannot see traced or"
        " fake arrays\n"
        '  do: wrap it with custom_op, then register_numpy_function((ufunc, "accumulate"), op); or pass stop_gradient(x) to use the value alone',
    ),
    "ufunc of a user": (
        lambda: graded(np.frompyfunc(abs, 1, 1)),
        co.MissingRuleError,
        NotImplementedError,
        "the ufunc abs (vectorized) has no operator, so it cannot see traced or fake arrays\n"
        "  do: wrap it with custom_op, then register_numpy_function(ufunc, op); or pass stop_gradient(x) to use the value alone",
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
        "register_numpy_function: 3 is not a function\n"
        "  do: pass a NumPy function and an operator",
    ),
    "registration of no operator": (
        lambda: co.register_numpy_function(np.sinc, 3),
        co.RegistrationError,
        RuntimeError,
        "register_numpy_function: 3 is not a function\n"
        "  do: pass a NumPy function and an operator",
    ),
}  # fmt: skip

# ---- modes ----

MODES: Table = {
    "a mode inside of itself": (
        opened_twice,
        co.RegistrationError,
        RuntimeError,
        "fake is opened a second time\n"
        "  do: make a new one",
    ),
    "a mode once more": (
        opened_again,
        co.RegistrationError,
        RuntimeError,
        "fake is opened a second time\n"
        "  do: make a new one",
    ),
    "modes that cross": (
        crossed,
        co.RegistrationError,
        RuntimeError,
        "fake is closed while a mode opened later is open\n"
        "  do: close modes in the reverse order, as nested with blocks do",
    ),
    "from_array of a number": (
        lambda: co.FakeMode().from_array(3),
        co.ArgumentError,
        TypeError,
        "FakeMode.from_array: int 3 is not an array with data\n"
        "  do: pass an array, such as np.asarray(x)",
    ),
    "from_array of a traced array": (
        lambda: graded(lambda x: co.FakeMode().from_array(x)),
        co.ArgumentError,
        TypeError,
        "FakeMode.from_array: GradTracer of shape (2,) is not an array with data\n"
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
        "eval_shape: 3 is not a function\n"
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
        "FakeArray: 'ab' is not a shape\n"
        "  do: give whole numbers: (2, 3)",
    ),
    "a shape of floats": (
        lambda: co.FakeArray((2.0, 3)),
        co.ShapeError,
        ValueError,
        "FakeArray: (2.0, 3) is not a shape\n"
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
        "fake_like: 2.5 is not a shape\n"
        "  do: give whole numbers: (2, 3)",
    ),
    "no array for fake_like": (
        lambda: co.fake_like([3]),
        co.ArgumentError,
        TypeError,
        "fake_like: [3] is not an array\n"
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
        "  do: write np.asarray(F, like=F) in place of np.asarray(F), or call with real arrays",
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
        "  do: write F in place of float(F), or call with real arrays",
    ),
    "int of a fake array": (
        lambda: int(F),
        co.DataDependentError,
        TypeError,
        "int() of FakeArray f64[2], which has no data\n"
        "  do: write F.astype(int) in place of int(F), or call with real arrays",
    ),
    "complex of a fake array": (
        lambda: complex(F),
        co.DataDependentError,
        TypeError,
        "complex() of FakeArray f64[2], which has no data\n"
        "  do: write F.astype(complex) in place of complex(F), or call with real arrays",
    ),
    "index by a fake array": (
        lambda: [1, 2][F],
        co.DataDependentError,
        TypeError,
        "int() of FakeArray f64[2], which has no data\n"
        "  do: write co.getitem(np.array([1, 2]), F) in place of [1, 2][F], or call with real arrays",
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
