"""`custom_root` and `custom_fixed_point`: derivatives of what a solver finds.

Where ``f(x, a) = 0`` defines x as a function of a, the implicit function theorem gives
its derivative: with A = df/dx at the root, A dx = -(df/da) da. The steps of the solver
do not matter, so they are not differentiated. Source: Blondel and others, "Efficient and
Modular Implicit Differentiation", NeurIPS 2022, section 2.1.

The rules find the root by calling the same function again on values of lower levels, so
they can be differentiated themselves, to any order. Where the user solves the linear
equations, their solution is the root of ``A v - b`` in its turn, with rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from customop.arrays.array import is_real_float
from customop.arrays.kinds import is_array
from customop.arrays.nested import (
    Structure,
    abbreviated,
    flatten,
    map_leaves,
    placed,
    show,
    unflatten,
)
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.tree import ravel
from customop.errors import GradientError, check_function, place
from customop.transforms.autograd.grad import vjp
from customop.transforms.derivatives import jacfwd
from customop.transforms.functions.custom import custom_vjp
from customop.transforms.functions.function_calls import check_no_others, moves
from customop.transforms.jvp import jvp

P = ParamSpec("P")
X = TypeVar("X")
Fn = Callable[..., Any]


def custom_root(
    f: Callable[Concatenate[X, P], Any],
    solve: Callable[[Callable[[X], Any], Any], X],
    tangent_solve: Callable[[Callable[[X], X], X], X] | None = None,
) -> Callable[Concatenate[Any, P], X]:
    """Make a function that finds a root by any solver, and has derivatives.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` is zero at the root. It returns what is nested as `x`, with the
        same shapes: as many equations as unknowns.
    solve : callable
        ``solve(g, guess)`` returns an `x` at which ``g(x)``, which is ``f(x, *args)``,
        is zero: a pytree of arrays of real floats. Its steps are not differentiated, so
        it may be a solver of SciPy. It must raise if it finds no root: derivatives at
        another point are wrong.
    tangent_solve : callable, optional
        ``tangent_solve(product, b)`` returns the `v` at which the linear function
        ``product(v)`` is `b`. Reverse mode calls it with the transpose. Without it, the
        matrix of the derivative is made and passed to ``np.linalg.solve``, which is
        right for up to some hundred unknowns.

    Returns
    -------
    callable
        ``root(guess, *args)`` returns what `solve` returned. The guess has no gradient,
        and may be anything that `solve` takes, such as a bracket.

    Raises
    ------
    ArgumentError
        If an argument is not a function.
    GradientError
        From the function: if the root is not made of real floats, or `f` does not
        return one equation for each unknown, or its derivative by `x` is singular.

    See Also
    --------
    custom_fixed_point : The same for ``f(x) = x``.

    Notes
    -----
    Forward and reverse mode, to any order. `solve` and `tangent_solve` get the values
    themselves there. Under `vmap` and in graphs they get traced arrays, so write them
    of NumPy's functions and loops of customop, or call an operator.

    `f` takes what it depends on as arguments. A traced value that it gets in another way
    is not differentiated by these rules: it is an error, or goes through the solver.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def newton(g, x):
    ...     for _ in range(20):
    ...         x = x - g(x) / co.grad(g)(x)
    ...     return x
    >>> cube_root = co.custom_root(lambda x, a: x**3 - a, newton)
    >>> co.value_and_grad(lambda a: cube_root(1.0, a))(8.0)
    (np.float64(2.0), np.float64(0.08333333333333333))

    Two unknowns by another solver:

    >>> def by_hand(g, guess):
    ...     x = {"sum": guess, "product": guess}
    ...     return {key: x[key] - value for key, value in g(x).items()}
    >>> both = co.custom_root(
    ...     lambda x, a: {"sum": x["sum"] - a - 1.0, "product": x["product"] - 3.0 * a},
    ...     by_hand,
    ... )
    >>> co.jvp(lambda a: both(0.0, a), (2.0,), (1.0,))[1]
    {'sum': np.float64(1.0), 'product': np.float64(3.0)}
    """
    check_function("custom_root", f)
    check_function("custom_root", solve)

    return _Root("custom_root", f, _solving(f, solve), tangent_solve)


def custom_fixed_point(
    f: Callable[Concatenate[X, P], X],
    solve: Callable[[Callable[[X], X], Any], X],
    tangent_solve: Callable[[Callable[[X], X], X], X] | None = None,
) -> Callable[Concatenate[Any, P], X]:
    """Make a function that finds a fixed point by any solver, and has derivatives.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` is `x` at the fixed point.
    solve : callable
        ``solve(g, guess)`` returns an `x` that ``g(x)``, which is ``f(x, *args)``, does
        not change. It must raise if it finds none.
    tangent_solve : callable, optional
        As for `custom_root`; its linear function is ``df/dx v - v``.

    Returns
    -------
    callable
        ``fixed(guess, *args)`` returns what `solve` returned.

    Raises
    ------
    ArgumentError
        If an argument is not a function.
    GradientError
        From the function: as for `custom_root`.

    See Also
    --------
    custom_root : The same for ``f(x) = 0``; its notes apply here too.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def repeat(g, x):
    ...     for _ in range(60):
    ...         x = g(x)
    ...     return x
    >>> babylon = co.custom_fixed_point(lambda x, a: (x + a / x) / 2, repeat)
    >>> co.value_and_grad(lambda a: babylon(1.0, a))(4.0)
    (np.float64(2.0), np.float64(0.25))
    """
    check_function("custom_fixed_point", f)
    check_function("custom_fixed_point", solve)

    step: Fn = f  # called with traced arrays, which do not have the types in P

    def residual(x: Any, *args: Any) -> Any:
        return _minus("custom_fixed_point", step, step(x, *args), x)

    return _Root("custom_fixed_point", residual, _solving(f, solve), tangent_solve)


def _solving(f: Fn, solve: Fn) -> Fn:
    """Return a function that solves for the first argument of `f`."""

    @wraps(f)
    def run(guess: Any, *args: Any, **kwargs: Any) -> Any:
        return solve(lambda x: f(x, *args, **kwargs), guess)

    return run


# ---- the function and its rules ----


class _Root(custom_vjp[..., Any]):
    """A function whose result is a root of another.

    Parameters
    ----------
    title : str
        For messages.
    residual : callable
        ``residual(x, *args)`` is zero at the root `x`.
    run : callable
        ``run(guess, *args)`` returns the root.
    tangent_solve : callable or None
    """

    def __init__(
        self, title: str, residual: Fn, run: Fn, tangent_solve: Fn | None
    ) -> None:
        self.title: str = title
        if tangent_solve is not None:
            check_function(title, tangent_solve)

        @wraps(run)
        def found(*args: Any, **kwargs: Any) -> Any:
            x = self._checked(run(*args, **kwargs))
            # A solver that only compares values would lose those that `f` closes over.
            equations = flatten(self.residual(x, *args[1:], **kwargs))[0]
            check_no_others(self.table, flatten((x, args, kwargs))[0], equations)
            return x

        super().__init__(found)
        self.residual: Fn = residual
        self.tangent_solve: Fn | None = tangent_solve
        self.defvjp(self._forward, self._backward)
        self.defjvp(self._push)

    def _checked(self, x: Any) -> Any:
        """Return a root with arrays for its numbers; raise unless all are real floats."""
        found = map_leaves(_as_array, x)
        for leaf in flatten(found)[0] or [x]:  # None has no leaves
            if not is_array(leaf) or not is_real_float(leaf.dtype):
                seen = abbreviated(leaf) if is_array(leaf) else show(leaf)
                raise self._error(
                    f"the solver returned {seen}, must be real floats",
                    do="start from floats; solve for real and imaginary parts",
                )
        return found

    # ---- the rules ----

    def _forward(self, guess: Any, *args: Any) -> Any:
        x = self(guess, *args)
        return x, (x, args)

    def _backward(self, residuals: Any, g: Any) -> tuple[Any, ...]:
        x, args = residuals
        moving = _Moving.of(args)
        if not moving.values:
            return (None,) * (1 + len(args))
        g = _filled(g, x)
        out, pullback = vjp(lambda *a: self.residual(x, *moving.all(a)), *moving.values)
        self._check_equations(out, x)
        grads = pullback(map_leaves(_negative, self._solved(True, out, x, args, g)))
        return (None, *moving.beside(grads))

    def _push(self, primals: Any, tangents: Any) -> tuple[Any, Any]:
        x, args = self(*primals), primals[1:]
        moving = _Moving.of(args)
        if not moving.values:
            return x, map_leaves(_zeros, x)
        moved = moving.taken(tangents[1:])
        out, t = jvp(
            lambda *a: self.residual(x, *moving.all(a)), tuple(moving.values), moved
        )
        self._check_equations(out, x)
        return x, map_leaves(_negative, self._solved(False, out, x, args, t))

    def _check_equations(self, out: Any, x: Any) -> None:
        outs, structure = flatten(out)
        unknowns, other = flatten(x)
        shapes = [_shape(v) for v in outs], [_shape(v) for v in unknowns]
        if structure != other or shapes[0] != shapes[1]:
            raise self._error(
                f"f returned {_outline(out)} for the unknowns {_outline(x)}",
                do="return one equation for each unknown, nested alike",
            )

    # ---- linear equations ----

    def _solved(self, transpose: bool, out: Any, x: Any, args: Any, b: Any) -> Any:
        """Return the v at which df/dx v, or its transpose, is `b`."""
        if self.tangent_solve is not None:
            return self._products[transpose](b, b, x, *args)
        vector, unravel = ravel(x)
        matrix = jacfwd(lambda v: ravel(self.residual(unravel(v), *args))[0])(vector)
        if transpose:
            matrix, unravel = matrix.T, ravel(out)[1]
        try:
            return unravel(call_numpy(np.linalg.solve, matrix, ravel(b)[0]))
        except np.linalg.LinAlgError as error:
            raise self._error(
                "the derivative of f by the unknowns is singular at the root",
                do="the root is not a differentiable function of the arguments there",
            ) from error

    @cached_property
    def _products(self) -> tuple[_LinearRoot, _LinearRoot]:
        """The functions that solve with df/dx and with its transpose."""

        def product(v: Any, x: Any, args: Any) -> Any:
            return jvp(lambda x: self.residual(x, *args), (x,), (v,))[1]

        def transposed(v: Any, x: Any, args: Any) -> Any:
            return vjp(lambda x: self.residual(x, *args), x)[1](v)[0]

        solve = self.tangent_solve
        assert solve is not None
        pair = tuple(_LinearRoot(self, p, solve) for p in (product, transposed))
        pair[0].transpose, pair[1].transpose = pair[1], pair[0]
        return pair[0], pair[1]

    def _error(self, what: str, do: str) -> GradientError:
        return _wrong(self.title, self.fn, what, do)


class _LinearRoot(_Root):
    """The solution of linear equations by the user's solver: the root of ``A v - b``.

    Its own derivatives need solutions with the same A and with the transpose, so two of
    these functions are enough for every order.
    """

    transpose: _LinearRoot

    def __init__(self, of: _Root, product: Fn, solve: Fn) -> None:
        title = of.title

        def residual(v: Any, b: Any, x: Any, *args: Any) -> Any:
            return _minus(title, solve, product(v, x, args), b)

        def run(_: Any, b: Any, x: Any, *args: Any) -> Any:
            return solve(lambda v: product(v, x, args), b)

        run.__name__ = of.table.name
        super().__init__(title, residual, run, solve)

    def _solved(self, transpose: bool, out: Any, x: Any, args: Any, b: Any) -> Any:
        linear = self.transpose if transpose else self
        return linear(b, b, *args[1:])


def _wrong(title: str, fn: Fn, what: str, do: str) -> GradientError:
    name = getattr(fn, "__name__", type(fn).__name__)
    return GradientError(f"{title} of {name}: {what}", f"at {place(fn)}", do=do)


# ---- arguments ----


class _Moving(NamedTuple):
    """The arrays of floats among arguments."""

    leaves: Sequence[Any]
    structure: Structure
    at: Sequence[int]

    @classmethod
    def of(cls, args: Any) -> _Moving:
        """Find them."""
        leaves, structure = flatten(tuple(args))
        at = [i for i, v in enumerate(leaves) if is_array(v) and moves(v)]
        return cls(leaves, structure, at)

    @property
    def values(self) -> list[Any]:
        """The arrays themselves."""
        return [self.leaves[i] for i in self.at]

    def all(self, values: Sequence[Any]) -> Any:
        """Return the arguments with other arrays in their places."""
        return unflatten(self.structure, placed(self.leaves, self.at, values))

    def beside(self, values: Sequence[Any]) -> Any:
        """Return a tree like the arguments with these values, and None elsewhere."""
        return self._replace(leaves=[None] * len(self.leaves)).all(values)

    def taken(self, tree: Any) -> tuple[Any, ...]:
        """Return the leaves of another tree that stand beside the arrays."""
        leaves = flatten(tuple(tree))[0]
        return tuple([leaves[i] for i in self.at])


# ---- trees ----


def _as_array(leaf: Any) -> Any:
    return np.asarray(leaf)[()] if isinstance(leaf, float) else leaf


def _negative(leaf: Any) -> Any:
    return call_numpy(np.negative, leaf)


def _zeros(leaf: Any) -> Any:
    return call_numpy(np.zeros_like, leaf)


def _shape(leaf: Any) -> tuple[Any, ...]:
    return tuple(getattr(leaf, "shape", ()))


def _outline(tree: Any) -> Any:
    leaves = flatten(tree)[0]
    return ", ".join(abbreviated(v) if is_array(v) else show(v) for v in leaves)


def _filled(g: Any, x: Any) -> Any:
    """Return cotangents with arrays of zeros where there is none."""
    leaves, structure = flatten(x)
    pairs = zip(flatten(g)[0], leaves, strict=True)
    return unflatten(structure, [v if is_array(v) else _zeros(y) for v, y in pairs])


def _minus(title: str, fn: Fn, a: Any, b: Any) -> Any:
    """Return the difference of two trees; raise unless they are nested alike."""
    found, structure = flatten(a)
    others, other = flatten(b)
    shapes = [_shape(v) for v in found], [_shape(v) for v in others]
    if structure != other or shapes[0] != shapes[1]:
        raise _wrong(
            title,
            fn,
            f"it returned {_outline(a)} for {_outline(b)}",
            do="return what is nested alike, with the same shapes",
        )
    pairs = zip(found, others, strict=True)
    return unflatten(structure, [call_numpy(np.subtract, v, w) for v, w in pairs])
