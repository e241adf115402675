"""Names that other libraries have for what is here; errors name ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from customop.errors import ArgumentError, shown

__all__ = ["NAMES", "takes_names_of_others", "written_here"]

F = TypeVar("F", bound=Callable[..., Any])

# A name in JAX, torch or autograd -> what to write here; the guide says more in
# "Coming from torch, JAX or autograd".
NAMES: dict[str, str] = {
    "Function": "co.custom_vjp(f), or co.custom_op",
    "ShapeDtypeStruct": "co.FakeArray(shape, dtype)",
    "check_grads": "co.gradcheck(f, x)",
    "custom_gradient": "co.custom_vjp(f)",
    "defjvp": "op.register_jvp(rule)",
    "defvjp": "op.register_autograd(backward)",
    "detach": "co.stop_gradient(x)",
    "elementwise_grad": "co.vmap(co.grad(f))",
    "export": "co.make_fx(f)(x), and graph.save(path)",
    "getval": "co.stop_gradient(x)",
    "grad_and_value": "co.value_and_grad(f)",
    "hessian_vector_product": "co.hvp(f, x, v)",
    "jacobian": "co.jacrev(f), or co.jacfwd(f) for few inputs",
    "jit": "co.compile(f)",
    "jnp": "import numpy as np: its functions work in transforms",
    "lax": "co.cond, co.scan, co.while_loop, co.fori_loop or co.map",
    "make_hvp": "co.hvp(f, x, v)",
    "make_jaxpr": "co.make_fx(f)(x)",
    "make_jvp": "co.jvp(f, primals, tangents)",
    "make_vjp": "co.vjp(f, x)",
    "odeint": "a step in NumPy, repeated by co.scan(step, start, times)",
    "primitive": "co.custom_op(name, mutates_args=())",
    "pure_callback": "co.custom_op(name, mutates_args=())",
    "random": "np.random, and co.vmap(f, randomness='different') in batches",
    "remat": "co.checkpoint(f)",
    "solve_ivp": "a step in NumPy, repeated by co.scan(step, start, times)",
    "tensor": "np.array(x), or co.array(x) for a list of traced values",
    "tree_flatten": "co.tree.flatten(x)",
    "tree_leaves": "co.tree.leaves(x)",
    "tree_map": "co.tree.map(f, x)",
    "tree_unflatten": "co.tree.unflatten(structure, leaves)",
    "vectorize": "co.vmap(f)",
}


def written_here(name: str) -> str:
    """Return what to write for a name of another library, as the end of a message."""
    return f"\n  do: write {NAMES[name]}" if name in NAMES else ""


def takes_names_of_others(**ours: str) -> Callable[[F], F]:
    """Make a decorator for a function; its errors name our parameters for those of others.

    For a parameter that has none here, `ours` has the whole advice.
    """
    pairs = tuple(ours.items())  # compiled functions watch a dict

    def decorate(fn: F) -> F:
        @wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name, advice in pairs if kwargs else ():
                if name in kwargs:
                    do = advice
                    if advice.isidentifier():
                        do = f"write {advice}={shown(kwargs[name])}"
                    raise ArgumentError(
                        f"{fn.__name__} has no parameter '{name}'",
                        do=do,
                        parameter=name,
                    )
            return fn(*args, **kwargs)

        return call  # type: ignore[return-value]  # it is called as fn is

    return decorate
