"""gradcheck and gradgradcheck compare derivatives of a function with differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from customop.arrays.array import dtype_of, is_complex, is_inexact, strides_of
from customop.arrays.kinds import has_data, is_array
from customop.arrays.nested import (
    Structure,
    abbreviated,
    describe,
    flatten,
    show,
    unflatten,
)
from customop.errors import (
    ArgumentError,
    GradientError,
    OpCheckError,
    check_function,
    place,
    warn_caller,
)
from customop.testing.close import Space
from customop.testing.faults import Fault
from customop.testing.numeric_derivatives import (
    CheckOptions,
    Problem,
    check_derivatives,
    random_cotangents,
    second_problem,
)
from customop.transforms.values import as_cotangent


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
        Takes `inputs`; returns an array or a pytree of arrays. Only the arrays of
        floats that it returns are checked.
    inputs : tuple of pytree of array
        Arguments of `fn`. It is differentiated by the arrays of floats or complex
        numbers among them, which should be float64 or complex128.
    eps : float
        Step of the differences.
    atol, rtol : float
        Derivatives agree within ``atol + rtol * abs(difference)``; for complex
        elements, by the greater of the two components.
    raise_exception : bool
        Whether a wrong derivative raises, or makes the result False.
    nondet_tol : float
        How far the results of two calls with the same inputs may lie apart.
    check_undefined_grad : bool
        Whether to check each of several outputs with the others unused.
    check_batched_grad : bool
        Whether to check the pullback under `vmap`.
    check_forward_ad : bool
        Whether to check `jvp`.
    check_backward_ad : bool
        Whether to check `vjp`.
    fast_mode : bool
        Compare along a few random directions instead of entry by entry. The directions
        are the same in each run.

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

    Source: the parameters are those of ``torch.autograd.gradcheck``, torch 2.13. It
    also finds a backward that is not linear in its cotangent, and values that differ
    under the transform.

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

    In forward mode, in random directions, for a function of many numbers:

    >>> many = (np.linspace(0.0, 1.0, 1000),)
    >>> co.gradcheck(np.cumsum, many, check_forward_ad=True, fast_mode=True)
    True
    """
    options = CheckOptions(
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
    modes = {
        "check_backward_ad": check_backward_ad,
        "check_forward_ad": check_forward_ad,
    }
    _check_options("gradcheck", modes, options)

    def check(problem: Problem) -> None:
        check_derivatives(problem, options)

    return _passes("gradcheck", fn, inputs, check, raise_exception=raise_exception)


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

    It takes the first derivatives as right; `gradcheck` checks them.

    Parameters
    ----------
    fn : callable
        Takes `inputs`; returns an array or a pytree of arrays.
    inputs : tuple of pytree of array
        Arguments of `fn`, as for `gradcheck`.
    grad_outputs : pytree of array, optional
        Cotangents, one for each array of floats that `fn` returns. The default is
        random, and the same in each run. Gradients are differentiated by them too.
    eps : float
        Step of the differences.
    atol, rtol : float
        Derivatives agree within ``atol + rtol * abs(difference)``.
    gen_non_contig_grad_outputs : bool
        Whether random cotangents have gaps in memory.
    raise_exception : bool
        Whether a wrong derivative raises, or makes the result False.
    nondet_tol : float
        How far the results of two calls with the same inputs may lie apart.
    check_undefined_grad : bool
        Whether to check each of several gradients with the others unused.
    check_grad_dtypes : bool
        Accepted because torch has it. `vjp` always refuses gradients of other dtypes.
    check_batched_grad : bool
        Whether to check the second pullback under `vmap`.
    check_fwd_over_rev : bool
        Whether to check `jvp` of the pullback.
    check_rev_over_rev : bool
        Whether to check `vjp` of the pullback.
    fast_mode : bool
        Compare along a few random directions instead of entry by entry.

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
    >>> co.gradgradcheck(np.sin, (np.ones(2),), np.array([1.0, 2.0]), check_fwd_over_rev=True)
    True
    """
    options = CheckOptions(
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
    modes = {
        "check_rev_over_rev": check_rev_over_rev,
        "check_fwd_over_rev": check_fwd_over_rev,
    }
    _check_options("gradgradcheck", modes, options)

    def check(first: Problem) -> None:
        if grad_outputs is None:
            cotangents = random_cotangents(first, with_gaps=gen_non_contig_grad_outputs)
        else:
            cotangents = _given_cotangents("gradgradcheck", first, grad_outputs)
        check_derivatives(second_problem(first, cotangents), options)

    return _passes("gradgradcheck", fn, inputs, check, raise_exception=raise_exception)


def _passes(
    what: str,
    fn: Callable[..., Any],
    inputs: Any,
    check: Callable[[Problem], None],
    *,
    raise_exception: bool,
) -> bool:
    """Run a check on a function; on a fault raise, or return False."""
    check_function(what, fn)
    given = _check_given(what, inputs)
    try:
        problem = _Flat(fn, given).problem()
        _check_sides(what, problem)
        _warn_of_short_floats(what, problem.inputs)
        check(problem)
    except Fault as fault:
        if not raise_exception:
            return False
        name = getattr(fn, "__name__", type(fn).__name__)
        raise OpCheckError(
            f"{what}: {name} {fault.what}",
            *fault.where,
            f"function at {place(fn)}",
            do=fault.do,
        ) from None
    return True


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


# ---- functions of pytrees ----


class _Flat:
    """Turns a function of pytrees into a function of their floating-point arrays."""

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
        """Return the problem of this function at the given arrays."""
        names = [self.names[i] for i in self.at]
        inputs = Space(names, [self.leaves[i] for i in self.at])
        return Problem(self, inputs, lambda: self.labels)


def _names(root: str, structure: Structure) -> list[str]:
    """Return the name of each leaf for messages, such as ``inputs[0]['w']``."""
    return [path.codify(root) for path in structure.accessors()]


def _is_floats(leaf: Any) -> bool:
    return is_array(leaf) and is_inexact(leaf.dtype)


def _has_derivative(leaf: Any) -> bool:
    return isinstance(leaf, float | complex) or _is_floats(leaf)


# ---- refused inputs ----


def _check_options(what: str, modes: Mapping[str, bool], options: CheckOptions) -> None:
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
    """Return the inputs as a tuple, after a check that their elements can be moved."""
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
    """Return whether two elements of an array share an address."""
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
