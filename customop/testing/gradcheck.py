"""Derivatives against central differences: gradcheck and gradgradcheck."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.arrays.convert import to_host
from customop.arrays.describe import abbreviated, describe, show
from customop.arrays.dtypes import dtype_of, is_complex, is_inexact
from customop.arrays.fake import strides_of
from customop.arrays.kinds import has_data, is_array
from customop.arrays.numpy_protocol import INDEXING, call_numpy
from customop.arrays.pytree import Structure, flatten, unflatten
from customop.errors import (
    ArgumentError,
    GradientError,
    OpCheckError,
    check_function,
    place,
    warn_caller,
)
from customop.testing.fault import Fault
from customop.testing.jacobians import (
    Linear,
    Options,
    Problem,
    adjoint,
    agree,
    by_pullback,
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
from customop.transforms.autograd.grad import vjp
from customop.transforms.values import as_cotangent
from customop.transforms.vmap import vmap

__all__ = [
    "check_batched",
    "check_derivatives",
    "gradcheck",
    "gradgradcheck",
    "random_cotangents",
    "second_problem",
]

# Directions where a matrix is not compared entry by entry.
_DIRECTIONS = 4
_SEED = 20


# ---- the checks ----


def check_derivatives(problem: Problem, options: Options) -> None:
    """Raise `Fault` unless the derivatives of a function are those of its values."""
    again = problem.read(problem.call(*problem.inputs.arrays))
    _check_same("value", problem.value, again, problem.outputs, options)
    push = difference(problem, options.eps)
    if options.backward:
        _check_backward(problem, push, options)
    if options.forward:
        _check_forward(problem, push, options)


def _check_same(
    what: str, first: Vector, second: Vector, space: Space, options: Options
) -> None:
    apart = distance(first, second)
    if apart.size and apart.max() > options.nondet_tol:
        worst = int(np.argmax(apart))
        raise Fault(
            f"is not deterministic: its {what} differs between two calls",
            f"{space.name(worst)}: {first[worst]} and then {second[worst]}, apart by"
            f" {short(apart[worst])}, allowed nondet_tol={options.nondet_tol}",
            do="fix the seed inside of the function, or pass a larger nondet_tol",
        )


def _check_backward(problem: Problem, push: Linear, options: Options) -> None:
    rng = np.random.default_rng(_SEED)
    pull = adjoint(problem)[0]
    cotangent = problem.outputs.random(rng)
    pulled = pull(cotangent)
    for again in (pull, adjoint(problem)[0]):
        _check_same("gradient", pulled, again(cotangent), problem.inputs, options)
    if options.fast:
        pairings = partial(_pulled, pull)
        _check_along(problem, problem.rule, pairings, push, options)
    else:
        expected = columns(problem.inputs, push, problem.outputs.size)
        found = columns(problem.outputs, pull, problem.inputs.size).T
        compare(problem, problem.rule, found, expected, options)
        _check_linear(problem, cotangent, pulled, found, options)
    if options.undefined and len(problem.outputs.arrays) > 1:
        _check_undefined(problem, pull, rng, options)
    if options.batched:
        check_batched(problem, rng, options)


def _check_linear(
    problem: Problem,
    cotangent: Vector,
    pulled: Vector,
    matrix: Vector,
    options: Options,
) -> None:
    """Unit cotangents alone cannot tell g * g from g."""
    _check_gradient(
        problem,
        f"has a {problem.rule} that is not linear in its cotangent",
        (pulled, "for a random cotangent"),
        (cotangent @ matrix, "summed over its entries"),
        options,
        do="use each incoming gradient once in each term of the backward formula",
    )


def _check_gradient(
    problem: Problem,
    what: str,
    found: tuple[Vector, str],
    expected: tuple[Vector, str],
    options: Options,
    do: str,
) -> None:
    """Raise unless two gradients agree; each comes with how it was computed."""
    if agree(found[0], expected[0], options):
        return
    worst = furthest(found[0], expected[0])
    raise Fault(
        what,
        f"gradient by {problem.inputs.name(worst)}:"
        f" {short(found[0][worst])} {found[1]},"
        f" {short(expected[0][worst])} {expected[1]}",
        do=do,
        parameter=problem.inputs.labels[problem.inputs.holder(worst)],
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
    for _ in range(_DIRECTIONS):
        cotangents = problem.outputs.blockwise(problem.outputs.random(rng))
        tangents = problem.inputs.blockwise(problem.inputs.random(rng))
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
    """An output that is not used counts as one whose cotangent is zero."""
    parts = problem.outputs.blockwise(problem.outputs.random(rng))
    for i, (label, part) in enumerate(zip(problem.outputs.labels, parts, strict=True)):

        def one(*arrays: Any, chosen: int = i) -> tuple[Any]:
            return (problem.call(*arrays)[chosen],)

        _, pullback = vjp(one, *problem.inputs.arrays)
        cotangent = problem.outputs.split(part)[i]
        _check_gradient(
            problem,
            f"has a wrong {problem.rule} where {label} alone is used",
            (
                by_pullback(problem, pullback, [cotangent]),
                "with the other outputs unused",
            ),
            (pull(part), "with zeros as their cotangents"),
            options,
            do="treat None among the gradients as zero, or leave out"
            " ctx.set_materialize_grads(False)",
        )


def check_batched(problem: Problem, rng: np.random.Generator, options: Options) -> None:
    """Raise `Fault` unless a batch of cotangents gives the batch of gradients."""
    pull, pullback = adjoint(problem)
    vectors = [problem.outputs.random(rng) for _ in range(2)]
    rows = [[conjugated(w) for w in problem.outputs.split(v)] for v in vectors]
    stacked = tuple(call_numpy(np.stack, list(row)) for row in zip(*rows, strict=True))
    batch = vmap(pullback)(stacked)
    for i, vector in enumerate(vectors):
        grads = [np.conjugate(to_host(call_numpy(INDEXING, g, i))) for g in batch]
        _check_gradient(
            problem,
            f"has a {problem.rule} that vmap gets wrong",
            (problem.inputs.vector(grads), f"as row {i} of a batch"),
            (pull(vector), "alone"),
            options,
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


# ---- functions of pytrees ----


class _Flat:
    """A function of pytrees as a function of the arrays of floats in them."""

    def __init__(self, fn: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.fn = fn
        self.leaves, self.structure = flatten(given)
        self.names = _names("inputs", self.structure)
        self.at = [i for i, leaf in enumerate(self.leaves) if _is_floats(leaf)]
        self.labels: list[str] = []

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        given = list(self.leaves)
        for i, array in zip(self.at, arrays, strict=True):
            given[i] = array
        out, structure = flatten(self.fn(*unflatten(self.structure, given)))
        pairs = zip(_names("output", structure), out, strict=True)
        floats = [(name, leaf) for name, leaf in pairs if _has_derivative(leaf)]
        self.labels = [name for name, _ in floats]
        return tuple(leaf if is_array(leaf) else np.asarray(leaf) for _, leaf in floats)

    def problem(self) -> Problem:
        """The function at the arrays that were given."""
        names = [self.names[i] for i in self.at]
        inputs = Space(names, [self.leaves[i] for i in self.at])
        return Problem(self, inputs, lambda: self.labels)


def _names(root: str, structure: Structure) -> list[str]:
    """How messages name each leaf: ``inputs[0]['w']``."""
    return [path.codify(root) for path in structure.accessors()]


def _is_floats(leaf: Any) -> bool:
    return is_array(leaf) and is_inexact(leaf.dtype)


def _has_derivative(leaf: Any) -> bool:
    return isinstance(leaf, float | complex) or _is_floats(leaf)


# ---- what is refused ----


def _check_options(what: str, modes: Mapping[str, bool], options: Options) -> None:
    if not any(modes.values()):
        default = next(name for name in modes if "backward" in name or "rev" in name)
        raise ArgumentError(
            f"{what}: {' and '.join(modes)} are both off, so there is nothing to check",
            do=f"leave out {default}=False",
        )
    for name in ("eps", "atol", "rtol", "nondet_tol"):
        value = getattr(options, name)
        if not value >= 0 or (name == "eps" and value == 0):
            sign = ">" if name == "eps" else ">="
            raise ArgumentError(
                f"{what}: {name}={value!r} is out of range", do=f"pass {name} {sign} 0"
            )


def _check_given(what: str, inputs: Any) -> tuple[Any, ...]:
    """The inputs as a tuple, of arrays whose elements can be moved one by one."""
    given = (inputs,) if is_array(inputs) else inputs
    if not isinstance(given, tuple | list):
        raise ArgumentError(
            f"{what}: inputs are a tuple, got {show(inputs)}",
            do=f"write {what}(f, (x, y))",
        )
    given = tuple(given)
    leaves, structure = flatten(given)
    for label, x in zip(_names("inputs", structure), leaves, strict=True):
        if not has_data(x):
            raise GradientError(
                f"{what}: {label} is {describe(x)}, which has no values to move",
                do=f"call {what} outside of transforms, on real arrays",
            )
        if _is_floats(x) and _overlaps(x):
            raise GradientError(
                f"{what}: elements of {label} ({abbreviated(x)}) share memory",
                f"strides {tuple(strides_of(x))}",
                do="pass x.copy(), so that each element can move alone",
            )
    return given


def _overlaps(x: Any) -> bool:
    """Whether two elements of an array lie at one address."""
    offsets = np.zeros((), np.int64)
    for length, stride in zip(x.shape, strides_of(x), strict=True):
        offsets = offsets[..., None] + np.arange(length) * stride
    return np.unique(offsets).size < offsets.size


def _check_sides(what: str, problem: Problem) -> None:
    for side, space in (("input", problem.inputs), ("output", problem.outputs)):
        if not space.arrays:
            raise GradientError(
                f"{what}: no {side} is an array of floats",
                do=f"let the {side}s have arrays of float64 or complex128 among them",
            )


def _warn_of_short_floats(what: str, space: Space) -> None:
    for label, x in zip(space.labels, space.arrays, strict=True):
        if dtype_of(x).itemsize < (16 if is_complex(dtype_of(x)) else 8):
            warn_caller(
                f"{what}: {label} is {abbreviated(x)}, in which differences are"
                " coarser than the tolerances; do: pass float64 or complex128",
            )


def _error(what: str, fn: Callable[..., Any], fault: Fault) -> OpCheckError:
    """A fault of a function as an error for the user."""
    name = getattr(fn, "__name__", type(fn).__name__)
    return OpCheckError(
        f"{what}: {name} {fault.what}",
        *fault.where,
        f"function at {place(fn)}",
        do=fault.do,
    )


# ---- what users call ----


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
    given = _check_given("gradcheck", inputs)
    try:
        problem = _Flat(fn, given).problem()
        _check_sides("gradcheck", problem)
        _warn_of_short_floats("gradcheck", problem.inputs)
        check_derivatives(problem, options)
    except Fault as fault:
        if raise_exception:
            raise _error("gradcheck", fn, fault) from None
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
    given = _check_given(what, inputs)
    try:
        first = _Flat(fn, given).problem()
        _check_sides(what, first)
        _warn_of_short_floats(what, first.inputs)
        if grad_outputs is None:
            cotangents = random_cotangents(first, with_gaps=gen_non_contig_grad_outputs)
        else:
            cotangents = _given_cotangents(what, first, grad_outputs)
        check_derivatives(second_problem(first, cotangents), options)
    except Fault as fault:
        if raise_exception:
            raise _error(what, fn, fault) from None
        return False
    return True


# ---- the gradient as a function ----


def second_problem(
    first: Problem, cotangents: Sequence[Any], rule: str = "backward"
) -> Problem:
    """The gradient of a problem as a function of its inputs and cotangents."""
    count = len(first.inputs.arrays)

    def gradients(*arrays: Any) -> tuple[Any, ...]:
        _, pullback = vjp(first.call, *arrays[:count])
        found: tuple[Any, ...] = pullback(arrays[count:])
        return found

    names = [f"grad_outputs[{i}]" for i in range(len(cotangents))]
    labels = (*first.inputs.labels, *names)
    inputs = Space(labels, (*first.inputs.arrays, *cotangents))
    outputs = [f"gradient by {label}" for label in first.inputs.labels]
    return Problem(gradients, inputs, lambda: outputs, rule)


def random_cotangents(problem: Problem, *, with_gaps: bool = False) -> list[Any]:
    """Cotangents with no element near zero, the same in each run."""
    vector = problem.outputs.random(np.random.default_rng(_SEED + 1))
    found = problem.outputs.split(vector)
    return [np.stack([g, g], -1)[..., 0] for g in found] if with_gaps else found


def _given_cotangents(what: str, problem: Problem, grad_outputs: Any) -> list[Any]:
    found = flatten(grad_outputs)[0]
    outputs = problem.outputs.arrays
    if len(found) != len(outputs):
        raise GradientError(
            f"{what}: {len(found)} grad_outputs for {len(outputs)} outputs of floats",
            do="pass an array for each of them, or leave grad_outputs out",
        )
    return [
        as_cotangent(g, y, f"{what}: grad_outputs[{i}]")
        for i, (g, y) in enumerate(zip(found, outputs, strict=True))
    ]
