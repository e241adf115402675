"""Names that other libraries have for what is here; errors name ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from customop.errors import ArgumentError, shown

__all__ = ["NAMES", "OF_DERIVATIVES", "takes_names_of_others", "written_here"]

F = TypeVar("F", bound=Callable[..., Any])

# A name in JAX, torch or autograd -> what to write here; the guide says more in
# "Coming from torch, JAX or autograd".
NAMES: dict[str, str] = {
    "Dual": "co.jvp(f, primals, tangents)",
    "Function": "co.custom_vjp(f), or co.custom_op",
    "Module": "a function of its parameters, which may be a dict",
    "PRNGKey": "rng = np.random.default_rng(seed)",
    "ShapeDtypeStruct": "co.FakeArray(shape, dtype)",
    "Tensor": "np.ndarray, or co.Array for arrays of any kind",
    "autograd": "co.grad(f), or co.custom_vjp(f) for a formula of your own",
    "block_until_ready": "nothing: a call returns when it has computed",
    "check_grads": "co.gradcheck(f, x)",
    "clone": "x.copy()",
    "custom_gradient": "co.custom_vjp(f)",
    "custom_vmap": "op.register_vmap(rule)",
    "debug": "print(x): functions run as Python code",
    "defjvp": "op.register_jvp(rule)",
    "defvjp": "op.register_autograd(backward)",
    "derivative": "co.grad(f)",
    "detach": "co.stop_gradient(x)",
    "device_put": "cupy.asarray(x) for a GPU",
    "elementwise_grad": "co.vmap(co.grad(f))",
    "enable_x64": "nothing: dtypes are NumPy's, float64 by default",
    "export": "co.make_fx(f)(x), and graph.save(path)",
    "from_numpy": "x itself: arrays stay NumPy's",
    "func": "co.grad, co.vmap and the others, without func",
    "functional_call": "f(parameters, x), where parameters may be a dict",
    "getval": "co.stop_gradient(x)",
    "grad_and_aux": "co.grad(f, has_aux=True)",
    "grad_and_value": "co.value_and_grad(f)",
    "gradient": "co.grad(f), or np.gradient(y) for differences",
    "guvectorize": "co.vmap(f), or co.custom_op(name, mutates_args=())",
    "hessian_vector_product": "co.hvp(f, x, v)",
    "holomorphic_grad": "co.grad(lambda z: f(z).real)",
    "inference_mode": "co.no_grad()",
    "interop": "import customop.interop.torch, or another of its modules, first",
    "io_callback": "co.custom_op(name, mutates_args=())",
    "jacobian": "co.jacrev(f), or co.jacfwd(f) for few inputs",
    "jacobian_vector_product": "co.jvp(f, primals, tangents)",
    "jit": "co.compile(f)",
    "jnp": "import numpy as np: its functions work in transforms",
    "lax": "co.cond, co.scan, co.while_loop, co.fori_loop or co.map",
    "linear_transpose": "co.vjp(f, x)",
    "load": "co.load_graph(path)",
    "logsumexp": "customop.scipy.special.logsumexp(x)",
    "make_hvp": "co.hvp(f, x, v)",
    "make_jaxpr": "co.make_fx(f)(x)",
    "make_jvp": "co.jvp(f, primals, tangents)",
    "make_vjp": "co.vjp(f, x)",
    "manual_seed": "rng = np.random.default_rng(seed)",
    "minimize": "scipy.optimize.minimize(co.value_and_grad(f), x, jac=True)",
    "multigrad": "co.grad(f, argnums=(0, 1))",
    "multigrad_dict": "co.grad(f), where the argument of f is a dict",
    "njit": "co.compile(f)",
    "nn": "layers as NumPy code, with their parameters in a dict",
    "odeint": "a step in NumPy, repeated by co.scan(step, start, times)",
    "optim": "x -= rate * co.grad(f)(x), or an optimizer of SciPy",
    "pmap": "co.vmap(f), or f on dask arrays for many machines",
    "primitive": "co.custom_op(name, mutates_args=())",
    "pure_callback": "co.custom_op(name, mutates_args=())",
    "random": "np.random, and co.vmap(f, randomness='different') in batches",
    "relu": "np.maximum(x, 0.0)",
    "remat": "co.checkpoint(f)",
    "requires_grad": "co.grad(f)(x), or co.variable(x)",
    "save": "co.make_fx(f)(x), and graph.save(path)",
    "scipy": "import customop.scipy first",
    "script": "co.compile(f)",
    "set_grad_enabled": "co.no_grad() or co.enable_grad()",
    "sigmoid": "scipy.special.expit(x), after import customop.scipy",
    "softmax": "customop.scipy.special.softmax(x)",
    "solve_ivp": "a step in NumPy, repeated by co.scan(step, start, times)",
    "switch": "co.cond inside co.cond",
    "tensor": "np.array(x), or co.array(x) for a list of traced values",
    "testing": "import customop.testing first",
    "trace": "co.make_fx(f)(x)",
    "tree_flatten": "co.tree.flatten(x)",
    "tree_leaves": "co.tree.leaves(x)",
    "tree_map": "co.tree.map(f, x)",
    "tree_unflatten": "co.tree.unflatten(structure, leaves)",
    "tree_util": "co.tree",
    "vector_jacobian_product": "co.vjp(f, x)",
    "vectorize": "co.vmap(f)",
}

# Parameters of functions that give derivatives, in these libraries -> ours, or the advice.
OF_DERIVATIVES: dict[str, str] = {
    "allow_int": "leave it out, and pass floats: integers have no derivative",
    "allow_unused": "leave it out: what a value does not depend on has a gradient of zeros",
    "argnum": "argnums",
    "create_graph": "leave it out: gradients can be differentiated again",
    "holomorphic": "leave it out, and differentiate the real part: lambda z: f(z).real",
    "retain_graph": "leave it out: each call of the result computes the function again",
}


def written_here(name: str) -> str:
    """Return what to write for a name of another library, as the end of a message."""
    advice = NAMES.get(name)
    if advice is None and name in np.__all__ and not name.startswith("_"):
        advice = f"np.{name}"
    return f"\n  do: write {advice}" if advice else ""


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
