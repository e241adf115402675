"""custom_jvp: plain functions with a forward-mode derivative written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from customop.arrays.describe import show
from customop.arrays.kinds import is_array
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.pytree import spread
from customop.errors import (
    GradientError,
    RegistrationError,
    check_function,
    place,
)
from customop.transforms.functions.call import FunctionCall
from customop.transforms.functions.custom import (
    Arrays,
    CallOfUser,
    CustomFunction,
    Given,
)
from customop.transforms.functions.one_rule import JvpCall
from customop.transforms.functions.parts import moves, sealed_inputs
from customop.transforms.values import as_tangent

__all__ = ["custom_jvp"]

P = ParamSpec("P")
R = TypeVar("R")
FnT = TypeVar("FnT", bound=Callable[..., Any])


class custom_jvp(CustomFunction[P, R]):  # noqa: N801  # JAX's name
    """Give a plain function a derivative of its own, by a rule for tangents.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees of arrays.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated, such as functions. They may
        not hold traced values, and come first among the arguments of the rule.

    Attributes
    ----------
    fn : callable
        As given.
    nondiff_argnums : tuple of int
        As given.

    Notes
    -----
    Gradients use the transpose of the rule, whose tangent must be linear in the tangents
    that it is given. What `custom_vjp` says of arguments and results holds here too. The
    names and forms are JAX's.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_jvp
    ... def log1pexp(x):
    ...     return np.log(1.0 + np.exp(x))
    >>> @log1pexp.defjvp
    ... def _(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), (1.0 - 1.0 / (1.0 + np.exp(x))) * t
    >>> co.grad(log1pexp)(np.array(0.0))
    np.float64(0.5)
    """

    title = "custom_jvp"

    def __init__(
        self, fn: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()
    ) -> None:
        super().__init__(fn, nondiff_argnums)
        self.jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: FnT) -> FnT:
        """Register the rule.

        Parameters
        ----------
        jvp : callable
            ``jvp(primals, tangents)``, two tuples; returns ``(output, tangent)``. The
            tangent of an argument is zeros where it does not move, 0.0 for a number or
            an array of integers, and None for any other value. Arguments in
            `nondiff_argnums` come first.

        Returns
        -------
        callable
            The rule, so that this can be used as a decorator.

        Raises
        ------
        ArgumentError
            If it is not a function.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_jvp
        ... def square(x):
        ...     return x * x
        >>> @square.defjvp
        ... def _(primals, tangents):
        ...     (x,), (t,) = primals, tangents
        ...     return square(x), 2.0 * x * t
        >>> co.jvp(square, (np.array([3.0]),), (np.array([1.0]),))
        (array([9.]), array([6.]))
        """
        check_function("defjvp", jvp)
        self.jvp = jvp
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Register a rule for each argument of a function with one output.

        Parameters
        ----------
        *jvps : callable or None
            ``jvp(t, out, *args)``: the tangent of the output, for the tangent `t` of this
            argument. None where the derivative is zero.

        Raises
        ------
        ArgumentError
            If one is not a function.
        RegistrationError
            If some arguments are in `nondiff_argnums`.
        """
        for fn in jvps:
            if fn is not None:
                check_function("defjvps", fn)
        if self.nondiff_argnums:
            raise RegistrationError(
                f"{self.table.qualname}: defjvps does not take nondiff_argnums",
                do="register one rule by defjvp",
            )

        call: Any = self  # with tracers, which are not of the types in P

        def jvp(primals: Any, tangents: Any) -> Any:
            out = call(*primals)
            total = call_numpy(np.zeros_like, out)
            for fn, t in zip(jvps, tangents, strict=True):
                if fn is not None and is_array(t):
                    total = total + fn(t, out, *primals)
            return out, total

        self.jvp = jvp

    def _called(self, given: Given, constants: dict[int, Any]) -> FunctionCall:
        return _JvpOfUser(self, given, constants)


class _JvpOfUser(CallOfUser[custom_jvp[..., Any]], JvpCall):
    @property
    def has_rule(self) -> bool:
        return self.custom.jvp is not None

    def push(self, primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        rule = self.custom.jvp
        if rule is None:
            raise self.custom.missing("defjvp(rule)")
        directions = self.given.parts.beside(
            [_direction(t, x) for t, x in zip(tangents, primals, strict=True)]
        )
        found = self.given.call(
            lambda *args: rule(*self.first, args, directions), primals
        )
        if not isinstance(found, tuple) or len(found) != 2:
            raise self._wrong(f"returned {show(found)}", "return (output, tangent)")
        outputs = self.given.outputs(found[0], primals)
        return outputs, self._tangents(outputs, found[1])

    def _tangents(self, outputs: Arrays, tangent: Any) -> list[Any]:
        """The tangents one by one; raise unless they fit the outputs."""
        results = self.given.results
        assert results is not None
        try:
            leaves = spread(tangent, results.tree(outputs))
        except ValueError:
            what = "returned a tangent that is not nested as the output"
            raise self._wrong(what, "return a tangent for each output") from None
        found = []
        for i, out in zip(results.at, outputs, strict=True):
            t = leaves[i]
            what = f"{self.table.qualname}: tangent of output {i}"
            found.append(
                as_tangent(t, out, what) if moves(out) and t is not None else None
            )
        return found

    def _wrong(self, what: str, do: str) -> GradientError:
        rule: Any = self.custom.jvp
        return GradientError(
            f"{self.table.qualname}: the rule {what}", f"rule at {place(rule)}", do=do
        )


def _direction(tangent: Any, primal: Any) -> Any:
    """A tangent as rules get it: zeros where an array of floats does not move."""
    if tangent is None:
        return call_numpy(np.zeros_like, primal) if moves(primal) else None
    return sealed_inputs([tangent])[0]
