"""Messages about tangents and matrices of derivatives."""

# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co
from tests.transforms.errors._operators import (
    PAIR,
    M,
    N,
    Table,
    X,
    Y,
    Z,
    at,
    bare,
    bare_op,
    jvp_alone,
    jvp_keyword,
    jvp_number,
    jvp_short,
    jvp_single,
    jvp_text,
    jvp_three,
    loss,
    made,
    pushed,
    raised_op,
    real_part,
    same,
    shifted,
    twice,
    whole_loss,
    words,
)


def named(x: Any, scale: Any) -> Any:
    """A function whose arguments have names."""
    return np.sum(x)


# ---- tangents ----

TANGENTS: Table = {
    "no rule and no formula": (
        lambda: pushed(bare_op),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no 'jvp' rule\n"
        "  texts::bare(Array x) -> Array\n"
        "  met under jvp(bare), with no backward formula to transpose\n"
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
        "  do: return (output, tangent) of the same structure, shape and dtype; None for a zero tangent",
    ),
    "tangent of another dtype": (
        lambda: pushed(made(same, jvp=jvp_single)),
        co.GradientError,
        ValueError,
        "texts::op: the jvp rule returned the tangent f32[2] for f64[2]\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(jvp_single)}\n"
        "  do: return (output, tangent) of the same structure, shape and dtype; None for a zero tangent",
    ),
    "tangent of text": (
        lambda: pushed(made(same, jvp=jvp_text)),
        co.GradientError,
        ValueError,
        "texts::op: the jvp rule returned the tangent str 't' for the output f64[2]\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(jvp_text)}\n"
        "  do: return (output, tangent) of the same structure, shape and dtype; None for a zero tangent",
    ),
    "one tangent for two outputs": (
        lambda: pushed(made(twice, PAIR, jvp=jvp_three)),
        co.GradientError,
        ValueError,
        "texts::op: the jvp rule returned the tangent ndarray of shape (2,) for 2 outputs\n"
        "  texts::op(Array x) -> (Array, Array)\n"
        f"  rule at {at(jvp_three)}\n"
        "  do: return (output, tangent) of the same structure, shape and dtype; None for a zero tangent",
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
        "texts::raised writes its argument 'x' under jvp(raised): a write has no tangent\n"
        "  texts::raised(Array(a!) x) -> ()\n"
        "                ^^^^^^^^^^^\n"
        "  jvp(raised) is called at FILE:N\n"
        "  do: use an operator that returns a new array",
    ),
    "jvp of no function": (
        lambda: co.jvp(3, (X,), (Y,)),
        co.ArgumentError,
        TypeError,
        "jvp: 3 is not a function\n"
        "  do: write jvp(f) with a function f",
    ),
    "primal alone": (
        lambda: co.jvp(loss, X, Y),
        co.GradientError,
        ValueError,
        "jvp: primals and tangents must be tuples, got ndarray of shape (2,) and ndarray of shape (2,)\n"
        "  do: write jvp(f, (x,), (dx,))",
    ),
    "tangents of another structure": (
        lambda: co.jvp(loss, (X,), (X, Y)),
        co.GradientError,
        ValueError,
        "jvp: 2 tangents for 1 primal\n"
        "  do: pass a tangent for each primal: np.zeros_like(x) for one that stays",
    ),
    "tangent of a part": (
        lambda: co.jvp(named, (X, {"w": X, "b": [X, X]}), (X, {"w": X, "b": [X, N]})),
        co.GradientError,
        ValueError,
        "jvp: tangent 1['b'][1] is i64[2], must be f64[2] like the primal\n"
        "  do: pass an array of the shape and dtype of the primal",
    ),
    "tangent nested in another way": (
        lambda: co.jvp(named, (X, {"w": X, "b": [X, X]}), (X, {"w": X})),
        co.GradientError,
        ValueError,
        "jvp: tangent 1 is nested as {'w': *}, must be as {'b': [*, *], 'w': *} like the"
        " primal, where * is an array\n"
        "  do: pass a tangent for each array of the primal",
    ),
    "primal of a part": (
        lambda: co.vjp(named, X, {"w": X, "b": [X, N]}),
        co.GradientError,
        ValueError,
        "vjp: primal 1['b'][1] has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "cotangent of a part": (
        lambda: co.vjp(lambda x: {"a": x, "b": (x, x)}, X)[1]({"a": X, "b": (X, N)}),
        co.GradientError,
        ValueError,
        "pullback: the cotangent['b'][1] is i64[2], must be f64[2] like the output\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
    "complex cotangent": (
        lambda: co.vjp(loss, X)[1](1j),
        co.GradientError,
        ValueError,
        "pullback: the cotangent is complex 1j, must be f64[] like the output\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
    "product: tangent of an argument": (
        lambda: co.hvp(named, (X, {"w": X}), (X, {"w": N})),
        co.GradientError,
        ValueError,
        "hvp: the tangent of scale['w'] is i64[2], must be f64[2] like the primal\n"
        "  do: pass an array of the shape and dtype of the primal",
    ),
    "product: tangent nested in another way": (
        lambda: co.hvp(named, (X, X), (X, [X])),
        co.GradientError,
        ValueError,
        "hvp: the tangent of scale is nested as [*], must be as * like the primal, where *"
        " is an array\n"
        "  do: pass a tangent for each array of the primal",
    ),
    "product: argument of integers": (
        lambda: co.hvp(named, (X, N), (X, N)),
        co.GradientError,
        ValueError,
        "hvp: argument scale has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "integers as a primal": (
        lambda: co.jvp(loss, (N,), (N,)),
        co.GradientError,
        ValueError,
        "jvp: primal 0 has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "text as a primal": (
        lambda: co.jvp(loss, ("x",), ("y",)),
        co.GradientError,
        ValueError,
        "jvp: primal 0 must be an array of floats, got str 'x'\n"
        "  do: pass an array of floats, and bind other arguments: lambda x: f(x, n)",
    ),
    "another shape than the primal": (
        lambda: co.jvp(loss, (X,), (M,)),
        co.GradientError,
        ValueError,
        "jvp: tangent 0 is f64[2, 2], must be f64[2] like the primal\n"
        "  do: pass an array of the shape and dtype of the primal",
    ),
    "another dtype than the primal": (
        lambda: co.jvp(loss, (X,), (N,)),
        co.GradientError,
        ValueError,
        "jvp: tangent 0 is i64[2], must be f64[2] like the primal\n"
        "  do: pass an array of the shape and dtype of the primal",
    ),
    "text as a tangent": (
        lambda: co.jvp(loss, (X,), ("y",)),
        co.GradientError,
        ValueError,
        "jvp: tangent 0 is str 'y', must be f64[2] like the primal\n"
        "  do: pass an array of the shape and dtype of the primal",
    ),
    "jvp of a result that is not a pair": (
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
        "jvp: the output is str 'words', must be an array\n"
        "  do: return arrays, and other values as aux with has_aux=True",
    ),
}  # fmt: skip

# ---- matrices of derivatives ----

MATRICES: Table = {
    "jacrev of no function": (
        lambda: co.jacrev(3),
        co.ArgumentError,
        TypeError,
        "jacrev: 3 is not a function\n"
        "  do: write jacrev(f) with a function f",
    ),
    "jacfwd of no function": (
        lambda: co.jacfwd(3),
        co.ArgumentError,
        TypeError,
        "jacfwd: 3 is not a function\n"
        "  do: write jacfwd(f) with a function f",
    ),
    "hessian of no function": (
        lambda: co.hessian(3),
        co.ArgumentError,
        TypeError,
        "hessian: 3 is not a function\n"
        "  do: write hessian(f) with a function f",
    ),
    "jacrev of a string": (
        lambda: co.jacrev(words)(X),
        co.GradientError,
        ValueError,
        "vjp: the output is str 'words', must be an array\n"
        "  do: return arrays, and other values as aux with has_aux=True",
    ),
    "jacfwd of a string": (
        lambda: co.jacfwd(words)(X),
        co.GradientError,
        ValueError,
        "jvp: the output is str 'words', must be an array\n"
        "  do: return arrays, and other values as aux with has_aux=True",
    ),
    "jacrev of integers": (
        lambda: co.jacrev(whole_loss)(X),
        co.GradientError,
        ValueError,
        "jacrev of whole_loss: the output is i64[], must be an array of floats\n"
        "  do: leave out what makes it an integer or a bool, such as argmax, astype(int) or"
        " x > 0, or use has_aux=True for other results",
    ),
    "jacfwd of integers": (
        lambda: co.jacfwd(whole_loss)(X),
        co.GradientError,
        ValueError,
        "jacfwd of whole_loss: the output is i64[], must be an array of floats\n"
        "  do: leave out what makes it an integer or a bool, such as argmax, astype(int) or"
        " x > 0, or use has_aux=True for other results",
    ),
    "jacrev by integers": (
        lambda: co.jacrev(loss)(N),
        co.GradientError,
        ValueError,
        "jacrev of loss: the argument has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "jacfwd by integers": (
        lambda: co.jacfwd(loss)(N),
        co.GradientError,
        ValueError,
        "jacfwd of loss: the argument has dtype int64, which has no derivative\n"
        "  do: pass x.astype(float)",
    ),
    "jacfwd by text": (
        lambda: co.jacfwd(loss)("x"),
        co.GradientError,
        ValueError,
        "jacfwd of loss: the argument must be an array of floats, got str 'x'\n"
        "  do: pass an array of floats, and bind other arguments: lambda x: f(x, n)",
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
        "jacrev of loss: argnums='x' must be an int or a sequence of ints\n"
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
