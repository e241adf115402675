"""Make operators of SciPy's ufuncs, in the same way as for NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scipy import special

from customop import (
    FakeArray,
    NoDerivativeError,
    Operator,
    Tag,
    Tracer,
    custom_op,
    register_numpy_function,
)
from customop.numpy.rules import keep_order, kind_of, register_formulas, result_dtype

# None if the derivative has no closed form.
Formula = Callable[..., Any] | None


def is_plain(*values: Any) -> bool:
    """Return whether SciPy itself can compute with these values."""
    return not any(isinstance(v, Tracer | FakeArray) for v in values)


def no_formula(function: str, parameter: str) -> Callable[[Any], Any]:
    """Return a formula that raises, for a derivative without a closed form."""

    def raising(g: Any) -> Any:
        raise NoDerivativeError(
            f"scipy.special.{function} has no derivative by '{parameter}' in closed form",
            do=f"pass stop_gradient({parameter}), or wrap the function with custom_jvp",
        )

    return raising


def ufunc_operator(name: str, fn: Any, parameters: list[str]) -> Operator[..., Any]:
    """Make an operator, with a fake kernel, of a ufunc with one result."""
    types = "Array" if len(parameters) == 1 else "Array|Scalar"
    inputs = ", ".join(f"{types} {p}" for p in parameters)
    make: Any = custom_op  # pyright misreads an `fn` of type Any
    op: Operator[..., Any] = make(
        f"scipy::{name}",
        fn,
        mutates_args=(),
        schema=f"({inputs}) -> Array",
        tags=Tag.pointwise,
        device_types="cpu",
    )

    def fake(*args: Any) -> FakeArray:
        kinds = tuple([kind_of(x) for x in args])
        return keep_order(args, result_dtype(fn, kinds))

    return op.register_fake(fake)


def register_ufunc(name: str, formulas: Mapping[str, Formula]) -> Operator[..., Any]:
    """Register a ufunc of `scipy.special`, with a formula for each parameter's name."""
    ufunc = getattr(special, name)
    parameters = list(formulas)
    op = ufunc_operator(name, ufunc, parameters)
    given = [
        no_formula(name, p) if formulas[p] is None else formulas[p] for p in parameters
    ]
    register_formulas(op, parameters, given)
    register_numpy_function(ufunc, op)
    return op
