"""Derivatives against central differences: gradcheck and gradgradcheck."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.arrays.convert import to_host
from customop.arrays.numpy_protocol import INDEXING, call_numpy
from customop.arrays.pytree import flatten
from customop.errors import ArgumentError, GradientError, OpCheckError, check_function
from customop.testing.jacobians import (
    Linear,
    Options,
    Problem,
    adjoint,
    agree,
    blockwise,
    by_pullback,
    check_given,
    check_problem,
    columns,
    compare,
    compare_along,
    conjugated,
    difference,
    distance,
    furthest,
    pushforward,
    short,
)
from customop.testing.vectors import Space, Vector
from customop.transforms.autograd.grad import as_cotangent, vjp
from customop.transforms.vmap import vmap

__all__ = ["gradcheck", "gradgradcheck"]

# Directions where a matrix is not gone through entry by entry.
_DIRECTIONS = 4
_SEED = 20


# ---- the checks ----


def _check_repeats(problem: Problem, options: Options) -> None:
    """The same inputs give the same outputs."""
    again = problem.read(problem.call(*problem.inputs.arrays))
    _check_same(problem, "value", problem.value, again, problem.outputs, options)


def _check_same(
    problem: Problem,
    what: str,
    first: Vector,
    second: Vector,
    space: Space,
    options: Options,
) -> None:
    apart = distance(first, second)
    if apart.size and apart.max() > options.nondet_tol:
        worst = int(np.argmax(apart))
        raise problem.fault(
            f"is not deterministic: its {what} differs between two calls",
            f"{space.name(worst)}: {first[worst]} and then {second[worst]}, apart by"
            f" {short(apart[worst])}, allowed nondet_tol={options.nondet_tol}",
            do="fix the seed inside of the function, or pass a larger nondet_tol",
        )


def _check_backward(problem: Problem, push: Linear, options: Options) -> None:
    rng = np.random.default_rng(_SEED)
    pull, pullback = adjoint(problem)
    cotangent = problem.outputs.random(rng)
    pulled = pull(cotangent)
    for again in (pull, adjoint(problem)[0]):
        _check_same(
            problem, "gradient", pulled, again(cotangent), problem.inputs, options
        )
    if options.fast:
        pairings = partial(_pulled, pull)
        _check_along(problem, "backward", pairings, push, options)
    else:
        expected = columns(problem.inputs, push, problem.outputs.size)
        found = columns(problem.outputs, pull, problem.inputs.size).T
        compare(problem, "backward", found, expected, options)
        _check_linear(problem, cotangent, pulled, found, options)
    if options.undefined and len(problem.outputs.arrays) > 1:
        _check_undefined(problem, pull, rng, options)
    if options.batched:
        _check_batched(problem, pull, pullback, rng, options)


def _check_linear(
    problem: Problem,
    cotangent: Vector,
    pulled: Vector,
    matrix: Vector,
    options: Options,
) -> None:
    """Unit cotangents alone would not tell g * g from g."""
    if not agree(pulled, cotangent @ matrix, options):
        worst = furthest(pulled, cotangent @ matrix)
        raise problem.fault(
            "has a backward that is not linear in its cotangent",
            f"gradient by {problem.inputs.name(worst)}: {short(pulled[worst])} for a"
            f" random cotangent, {short((cotangent @ matrix)[worst])} summed over its"
            " entries",
            do="use each incoming gradient once in each term of the backward formula",
        )


def _check_along(
    problem: Problem,
    rule: str,
    pairings: Callable[[list[Vector], list[Vector]], Vector],
    push: Linear,
    options: Options,
) -> None:
    """Compare along random directions, for each pair of an output and an input."""
    rng = np.random.default_rng(_SEED)
    rows, columns = problem.outputs.blocks(), problem.inputs.blocks()
    for _ in range(_DIRECTIONS):
        cotangents = blockwise(problem.outputs.random(rng), rows)
        tangents = blockwise(problem.inputs.random(rng), columns)
        found = pairings(cotangents, tangents)
        expected = _pushed(push, cotangents, tangents)
        compare_along(problem, rule, found, expected, options)


def _pushed(push: Linear, cotangents: list[Vector], tangents: list[Vector]) -> Vector:
    moved = [push(t) for t in tangents]
    return np.array([[w @ y for y in moved] for w in cotangents])


def _pulled(pull: Linear, cotangents: list[Vector], tangents: list[Vector]) -> Vector:
    return np.array([[g @ t for t in tangents] for g in map(pull, cotangents)])


def _check_undefined(
    problem: Problem, pull: Linear, rng: np.random.Generator, options: Options
) -> None:
    """An output that nobody uses counts as one whose cotangent is zero."""
    blocks = problem.outputs.blocks()
    parts = blockwise(problem.outputs.random(rng), blocks)
    for i, (label, part) in enumerate(zip(problem.outputs.labels, parts, strict=True)):

        def one(*arrays: Any, chosen: int = i) -> tuple[Any]:
            return (problem.call(*arrays)[chosen],)

        _, pullback = vjp(one, *problem.inputs.arrays)
        cotangent = problem.outputs.split(part)[i]
        alone = by_pullback(problem, pullback, [cotangent])
        if not agree(alone, pull(part), options):
            worst = furthest(alone, pull(part))
            raise problem.fault(
                f"has a wrong backward where {label} alone is used",
                f"gradient by {problem.inputs.name(worst)}: {short(alone[worst])} with"
                " the other outputs unused, "
                f"{short(pull(part)[worst])} with zeros as their cotangents",
                do="treat None among the gradients as zero, or leave out"
                " ctx.set_materialize_grads(False)",
            )


def _check_batched(
    problem: Problem,
    pull: Linear,
    pullback: Any,
    rng: np.random.Generator,
    options: Options,
) -> None:
    """A batch of cotangents gives the batch of gradients."""
    vectors = [problem.outputs.random(rng) for _ in range(2)]
    rows = [[conjugated(w) for w in problem.outputs.split(v)] for v in vectors]
    stacked = tuple(call_numpy(np.stack, list(row)) for row in zip(*rows, strict=True))
    batch = vmap(pullback)(stacked)
    for i, vector in enumerate(vectors):
        grads = [np.conjugate(to_host(call_numpy(INDEXING, g, i))) for g in batch]
        found, expected = problem.inputs.vector(grads), pull(vector)
        if not agree(found, expected, options):
            worst = furthest(found, expected)
            raise problem.fault(
                "has a backward that vmap gets wrong",
                f"gradient by {problem.inputs.name(worst)}: {short(found[worst])} as row"
                f" {i} of a batch, {short(expected[worst])} alone",
                do="correct the vmap rules of the operators in the backward formula",
            )


def _check_forward(problem: Problem, push: Linear, options: Options) -> None:
    moved = pushforward(problem)
    if options.fast:
        _check_along(problem, "jvp", partial(_pushed, moved), push, options)
        return
    expected = columns(problem.inputs, push, problem.outputs.size)
    found = columns(problem.inputs, moved, problem.outputs.size)
    compare(problem, "jvp", found, expected, options)


def _run(problem: Problem, options: Options) -> None:
    check_problem(problem)
    _check_repeats(problem, options)
    push = difference(problem, options.eps)
    if options.backward:
        _check_backward(problem, push, options)
    if options.forward:
        _check_forward(problem, push, options)


def _check_options(what: str, modes: Mapping[str, bool], options: Options) -> None:
    if not any(modes.values()):
        raise ArgumentError(
            f"{what}: {' and '.join(modes)} are both off, so there is nothing to check",
            do=f"leave out {next(name for name in modes if 'backward' in name or 'rev' in name)}=False",
        )
    for name in ("eps", "atol", "rtol", "nondet_tol"):
        value = getattr(options, name)
        if not value >= 0 or (name == "eps" and value == 0):
            sign = ">" if name == "eps" else ">="
            raise ArgumentError(
                f"{what}: {name}={value!r} is out of range", do=f"pass {name} {sign} 0"
            )


def gradcheck(
    fn: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_batched_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Check the derivatives of a function against central differences.

    Parameters
    ----------
    fn : callable
        Takes `inputs`; returns an array or a pytree of arrays. What it returns besides
        arrays of floats is not looked at.
    inputs : tuple of pytree of array
        Arguments of `fn`. It is differentiated by the arrays of floats or complex
        numbers among them, best float64 or complex128; all else is passed as it is.
    eps : float
        Step of the differences.
    atol, rtol : float
        Derivatives agree within ``atol + rtol * abs(difference)``; for complex
        elements, by the greater of the two components.
    raise_exception : bool
        Whether a wrong derivative raises, or makes the result False.
    nondet_tol : float
        How far two calls with the same inputs may lie apart.
    check_undefined_grad : bool
        Whether to check each of several outputs with the others unused.
    check_batched_grad : bool
        Whether to check the pullback under `vmap`.
    check_forward_ad : bool
        Whether to check `jvp`.
    check_backward_ad : bool
        Whether to check `vjp`.
    fast_mode : bool
        Compare along a few random directions, the same in each run, and not entry by
        entry.

    Returns
    -------
    bool
        True, or False where something is wrong and `raise_exception` is off.

    Raises
    ------
    OpCheckError
        If a derivative is wrong, or the function is not deterministic.
    GradientError
        If no input is an array of floats, an input has elements that share memory,
        or is traced or fake.
    ArgumentError
        If a bound or step is negative, or there is nothing to check.
    MissingRuleError
        If an operator on the way has no rule.

    Warns
    -----
    CustomOpWarning
        If an input is less precise than float64.

    Notes
    -----
    Real and imaginary parts are moved one by one, so functions that are not
    holomorphic, such as abs, are checked as functions of the plane. A pullback p has
    the convention of JAX: Re(w D[v]) = Re(p(w) v) for the derivative D along v.

    Source: the parameters are those of ``torch.autograd.gradcheck``, torch 2.13. Other
    than that, it also finds a backward that is not linear in its cotangent, and values
    that differ under the transform.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.gradcheck(lambda x, y: np.sin(x) * y, (np.ones(3), np.array(2.0)))
    True
    >>> @co.custom_op("doc::cubed", mutates_args=())
    ... def cubed(x: np.ndarray) -> np.ndarray:
    ...     return x ** 3
    >>> _ = cubed.register_autograd(
    ...     lambda ctx, g: g * 2 * ctx.x ** 2,
    ...     setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]),
    ... )
    >>> co.gradcheck(cubed, (np.array([0.0, 2.0]),), raise_exception=False)
    False
    """
    options = Options(
        eps=eps,
        atol=atol,
        rtol=rtol,
        nondet_tol=nondet_tol,
        undefined=check_undefined_grad,
        batched=check_batched_grad,
        forward=check_forward_ad,
        backward=check_backward_ad,
        fast=fast_mode,
    )
    check_function("gradcheck", fn)
    modes = {
        "check_backward_ad": check_backward_ad,
        "check_forward_ad": check_forward_ad,
    }
    _check_options("gradcheck", modes, options)
    given = check_given("gradcheck", inputs)
    try:
        problem = Problem(
            "gradcheck", lambda args: fn(*args), {"inputs": given}, source=fn
        )
        _run(problem, options)
    except OpCheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    fn: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Check the second derivatives of a function against differences of the first.

    That the first derivatives are right is for `gradcheck` to say.

    Parameters
    ----------
    fn : callable
        Takes `inputs`; returns an array or a pytree of arrays.
    inputs : tuple of pytree of array
        Arguments of `fn`, as for `gradcheck`.
    grad_outputs : pytree of array, optional
        Cotangents, one for each array of floats that `fn` returns; random by default,
        the same in each run. The gradients are differentiated by them too.
    eps : float
        Step of the differences.
    atol, rtol : float
        Derivatives agree within ``atol + rtol * abs(difference)``.
    gen_non_contig_grad_outputs : bool
        Whether random cotangents have gaps in memory.
    raise_exception : bool
        Whether a wrong derivative raises, or makes the result False.
    nondet_tol : float
        How far two calls with the same inputs may lie apart.
    check_undefined_grad : bool
        Whether to check each of several gradients with the others unused.
    check_grad_dtypes : bool
        Whether to check that gradients have the dtypes of their inputs. `vjp` refuses
        others in any case, so it changes nothing here.
    check_batched_grad : bool
        Whether to check the second pullback under `vmap`.
    check_fwd_over_rev : bool
        Whether to check `jvp` of the pullback.
    check_rev_over_rev : bool
        Whether to check `vjp` of the pullback.
    fast_mode : bool
        Compare along a few random directions, and not entry by entry.

    Returns
    -------
    bool
        True, or False where something is wrong and `raise_exception` is off.

    Raises
    ------
    OpCheckError
        If a second derivative is wrong, or a gradient is not deterministic.
    GradientError
        If inputs or cotangents do not fit.
    ArgumentError
        If a bound or step is negative, or there is nothing to check.
    MissingRuleError
        If an operator on the way has no rule.

    Warns
    -----
    CustomOpWarning
        If an input is less precise than float64.

    Notes
    -----
    Source: the parameters are those of ``torch.autograd.gradgradcheck``, torch 2.13.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.gradgradcheck(lambda x: np.exp(x).sum(), (np.array([0.5, -1.0]),))
    True
    """
    options = Options(
        eps=eps,
        atol=atol,
        rtol=rtol,
        nondet_tol=nondet_tol,
        undefined=check_undefined_grad,
        batched=check_batched_grad,
        forward=check_fwd_over_rev,
        backward=check_rev_over_rev,
        fast=fast_mode,
    )
    what = "gradgradcheck"
    check_function(what, fn)
    modes = {
        "check_rev_over_rev": check_rev_over_rev,
        "check_fwd_over_rev": check_fwd_over_rev,
    }
    _check_options(what, modes, options)
    given = check_given(what, inputs)
    try:
        first = Problem(what, lambda args: fn(*args), {"inputs": given}, source=fn)
        check_problem(first, warn=False)
        if grad_outputs is None:
            cotangents = _random_cotangents(first, gen_non_contig_grad_outputs)
        else:
            cotangents = _given_cotangents(first, grad_outputs)
        _run(_second(first, cotangents), options)
    except OpCheckError:
        if raise_exception:
            raise
        return False
    return True


def _second(first: Problem, cotangents: Sequence[Any]) -> Problem:
    """The gradient of a problem as a function of its inputs and cotangents."""

    def gradients(inputs: Any, grad_outputs: Any) -> Any:
        _, pullback = vjp(first.call, *inputs)
        return pullback(tuple(grad_outputs))

    trees = {"inputs": first.inputs.arrays, "grad_outputs": tuple(cotangents)}
    labels = [f"gradient by {label}" for label in first.inputs.labels]
    second = Problem(first.what, gradients, trees, labels, first.source)
    names = (*first.inputs.labels, *second.inputs.labels[len(first.inputs.labels) :])
    second.inputs = Space(names, second.inputs.arrays)
    return second


def _random_cotangents(problem: Problem, with_gaps: bool) -> list[Any]:
    vector = problem.outputs.random(np.random.default_rng(_SEED + 1))
    found = problem.outputs.split(vector)
    return [np.stack([g, g], -1)[..., 0] for g in found] if with_gaps else found


def _given_cotangents(problem: Problem, grad_outputs: Any) -> list[Any]:
    found = flatten(grad_outputs)[0]
    if len(found) != len(problem.outputs.arrays):
        raise GradientError(
            f"{problem.what}: {len(found)} grad_outputs for"
            f" {len(problem.outputs.arrays)} outputs of floats",
            do="pass an array for each of them, or leave grad_outputs out",
        )
    return [
        as_cotangent(g, y, f"{problem.what}: grad_outputs[{i}]")
        for i, (g, y) in enumerate(zip(found, problem.outputs.arrays, strict=True))
    ]
