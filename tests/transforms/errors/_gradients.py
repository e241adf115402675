"""Messages about gradients."""

# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import numpy as np

import customop as co
from tests.transforms.errors._operators import (
    LIST,
    TWO,
    M,
    N,
    Table,
    X,
    at,
    backward_twice,
    bare,
    complex_loss,
    graded,
    gradient_of_scalar,
    half_named,
    inside,
    keep_field,
    keep_saved,
    keep_text,
    list_back,
    long_back,
    loss,
    made,
    number_back,
    overwrite,
    pass_on,
    raised_op,
    same,
    same_list,
    set_grad,
    shifted,
    single_back,
    summed,
    three_back,
    through_bare,
    through_bare_below,
    through_both,
    two_back,
    unknown_named,
    values,
    whole_loss,
    words,
    write_after,
)

# ---- gradients ----

GRADIENTS: Table = {
    "no formula": (
        lambda: graded(through_bare),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no 'autograd' rule\n"
        "  texts::bare(Array x) -> Array\n"
        f"  a gradient is needed through the call at {inside(through_bare)}\n"
        f"  at {at(bare)}\n"
        "  do: @bare.register_autograd, or bare.register_autograd(co.native) if the kernel is"
        " made of NumPy functions",
    ),
    "no formula for the second of two calls": (
        lambda: graded(through_both),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no 'autograd' rule\n"
        "  texts::bare(Array x) -> Array\n"
        f"  a gradient is needed through the call at {inside(through_bare_below)}\n"
        f"  at {at(bare)}\n"
        "  do: @bare.register_autograd, or bare.register_autograd(co.native) if the kernel is"
        " made of NumPy functions",
    ),
    "grad of no function": (
        lambda: co.grad(3),
        co.ArgumentError,
        TypeError,
        "grad: 3 is not a function\n"
        "  do: write grad(f) with a function f",
    ),
    "value_and_grad of no function": (
        lambda: co.value_and_grad(3),
        co.ArgumentError,
        TypeError,
        "grad: 3 is not a function\n"
        "  do: write grad(f) with a function f",
    ),
    "vjp of no function": (
        lambda: co.vjp(3, X),
        co.ArgumentError,
        TypeError,
        "vjp: 3 is not a function\n"
        "  do: write vjp(f) with a function f",
    ),
    "argnums of a fraction": (
        lambda: co.grad(loss, 1.5),
        co.GradientError,
        ValueError,
        "grad of loss: argnums=1.5 must be an int or a sequence of ints\n"
        "  do: write argnums=0, or argnums=(0, 1)",
    ),
    "argnums by name": (
        lambda: co.grad(loss, "x"),
        co.GradientError,
        ValueError,
        "grad of loss: argnums='x' must be an int or a sequence of ints\n"
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
        "  do: pass a float, and bind other arguments: lambda x: f(x, n)",
    ),
    "grad by a string": (
        lambda: co.grad(loss)("x"),
        co.GradientError,
        ValueError,
        "grad of loss: argument 0 must be an array of floats, got str 'x'\n"
        "  do: pass an array of floats, and bind other arguments: lambda x: f(x, n)",
    ),
    "grad by integers": (
        lambda: co.grad(loss)(N),
        co.GradientError,
        ValueError,
        "grad of loss: argument 0 has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "grad by integers in a dict": (
        lambda: co.grad(lambda p: np.sum(p["w"]))({"w": X, "step": N}),
        co.GradientError,
        ValueError,
        "grad of <lambda>: argument 0['step'] has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "grad by times": (
        lambda: co.grad(loss)(np.zeros(2, "M8[s]")),
        co.GradientError,
        ValueError,
        "grad of loss: argument 0 has dtype datetime64[s], which has no derivative\n"
        "  do: pass the time from a start as floats: (x - x[0]) / np.timedelta64(1, 's')",
    ),
    "grad by fields": (
        lambda: co.grad(loss)(np.zeros(2, [("a", float)])),
        co.GradientError,
        ValueError,
        "grad of loss: argument 0 has dtype [('a', '<f8')], which has no derivative\n"
        "  do: pass the fields that are floats as arrays of their own, such as x['name']",
    ),
    "jacrev by a string": (
        lambda: co.jacrev(values)("x"),
        co.GradientError,
        ValueError,
        "jacrev of values: the argument must be an array of floats, got str 'x'\n"
        "  do: pass an array of floats, and bind other arguments: lambda x: f(x, n)",
    ),
    "grad of an array": (
        lambda: graded(values),
        co.GradientError,
        ValueError,
        "grad of values: the value is f64[2], must be a real float without axes\n"
        "  do: return np.sum(x * x) in place of x * x, or take vjp or jacrev",
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
        "  do: leave out what makes it an integer or a bool, such as argmax, astype(int) or"
        " x > 0",
    ),
    "grad of a string": (
        lambda: graded(words),
        co.GradientError,
        ValueError,
        "grad of words: the value is str 'words', must be an array without axes\n"
        "  do: return one array: sum the losses, or use has_aux=True for the rest",
    ),
    "grad of a result that is not a pair": (
        lambda: co.grad(loss, has_aux=True)(X),
        co.GradientError,
        ValueError,
        "grad: with has_aux=True the function must return (output, aux), got GradTracer of shape ()\n"
        "  do: return a pair, or leave has_aux out",
    ),
    "vjp of a result that is not a pair": (
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
        "vjp: the output is str 'words', must be an array\n"
        "  do: return arrays, and other values as aux with has_aux=True",
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
        "  do: pass an array of floats, and bind other arguments: lambda x: f(x, n)",
    ),
    "pullback of another structure": (
        lambda: co.vjp(values, X)[1]((X, X)),
        co.GradientError,
        ValueError,
        "pullback: the cotangent is nested as (*, *), must be as * like the output, where * is an array\n"
        "  do: pass a cotangent for each array of the output",
    ),
    "pullback of another shape": (
        lambda: co.vjp(values, X)[1](M),
        co.GradientError,
        ValueError,
        "pullback: the cotangent is f64[2, 2], must be f64[2] like the output\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
    "pullback of another dtype": (
        lambda: co.vjp(values, X)[1](N),
        co.GradientError,
        ValueError,
        "pullback: the cotangent is i64[2], must be f64[2] like the output\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
    "pullback of a string": (
        lambda: co.vjp(values, X)[1]("x"),
        co.GradientError,
        ValueError,
        "pullback: the cotangent is str 'x', must be f64[2] like the output\n"
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
        "backward: f64[2] is not a real float without axes, so it needs a gradient\n"
        "  do: call backward(np.sum(np.real(y))), or backward(y, gradient)",
    ),
    "backward of a complex value": (
        lambda: complex_loss(co.variable(X)).backward(),
        co.GradientError,
        ValueError,
        "backward: c128[] is not a real float without axes, so it needs a gradient\n"
        "  do: call backward(np.sum(np.real(y))), or backward(y, gradient)",
    ),
    "backward of another shape": (
        lambda: values(co.variable(X)).backward(M),
        co.GradientError,
        ValueError,
        "backward: the gradient is f64[2, 2], must be f64[2] like the output\n"
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
        "  do: pass an array of floats, and bind other arguments: lambda x: f(x, n)",
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
        "variable: GradTracer of shape (2,) already is a variable or depends on one\n"
        "  do: use it as it is, or variable(stop_gradient(x)) for a new start",
    ),
    "gradient of no variable": (
        lambda: set_grad(values(co.variable(X)), X),
        co.GradientError,
        ValueError,
        "x.grad: GradTracer f64[2] is not a variable, so its gradient cannot be set\n"
        "  do: set it on x = variable(a)",
    ),
    "gradient of no array": (
        lambda: set_grad(co.variable(X), "x"),
        co.GradientError,
        ValueError,
        "x.grad must be an array or None, got str 'x'\n"
        "  do: set an array of the shape of the variable, or None",
    ),
    "write under grad": (
        lambda: graded(raised_op),
        co.GradientError,
        ValueError,
        "texts::raised writes its argument 'x' under grad(raised): a write has no gradient\n"
        "  texts::raised(Array(a!) x) -> ()\n"
        "                ^^^^^^^^^^^\n"
        "  grad(raised) is called at FILE:N\n"
        "  do: call it inside no_grad(), or use an operator that returns a new array",
    ),
    "write to a variable": (
        lambda: raised_op(co.variable(X)),
        co.GradientError,
        ValueError,
        "texts::raised writes its argument 'x' under variable(x): a write has no gradient\n"
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
        "texts::op: backward writes into a gradient that it is given\n"
        "  texts::op(Array x) -> Array\n"
        f"  backward at {at(overwrite)}\n"
        "  do: compute a new array: g = g * 2.0 instead of g *= 2.0",
    ),
    "list for a tuple": (
        lambda: summed(made(same, backward=list_back)),
        co.GradientError,
        ValueError,
        "texts::op: backward returned a list of 1, must return a tuple with a gradient for each of x\n"
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
        "texts::op: backward returned a gradient for 'z', which is not a parameter\n"
        "  texts::op(Array x, Array y) -> Array\n"
        f"  backward at {at(unknown_named)}\n"
        "  do: use the names x, y",
    ),
    "name left out": (
        lambda: summed(made(same, TWO, backward=half_named), 2),
        co.GradientError,
        ValueError,
        "texts::op: backward returned no gradient for 'y', which needs one\n"
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
