"""The same operators by the peers that are installed.

Each function gives statements by the names of the peers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from operators import LENGTH
from timing import Statement

__all__ = [
    "FIVE",
    "HIPS",
    "JAX",
    "PYTENSOR",
    "TORCH",
    "TORCH_COMPILE",
    "batched",
    "by_sample",
    "chained",
    "checked",
    "compiled",
    "compiled_by_jax",
    "compiled_gradient",
    "compiled_on_numpy",
    "constants",
    "dispatched",
    "faked",
    "five",
    "graded",
    "gradient",
    "looked_up",
    "missing",
    "new_chain",
    "new_gradient",
    "one",
    "overloaded",
    "registered",
    "second",
    "traced",
    "vmapped",
]

Statements = dict[str, Statement]

HIPS, JAX, PLUM, TORCH = "HIPS autograd", "jax", "plum", "torch"
PYTENSOR, TORCH_COMPILE = "PyTensor", "torch.compile"
_MODULES = {
    HIPS: "autograd",
    JAX: "jax",
    PLUM: "plum",
    PYTENSOR: "pytensor",
    TORCH: "torch",
}


def _has(peer: str) -> bool:
    return find_spec(_MODULES[peer]) is not None


def missing() -> list[str]:
    """Peers that are not installed."""
    return [peer for peer in _MODULES if not _has(peer)]


def _torch() -> Any:
    return import_module("peer_torch")


# ---- calls ----


def _single(kernel: Any) -> Any:
    """The kernel behind functools.singledispatch."""
    generic = functools.singledispatch(lambda *args, **kwargs: NotImplemented)
    generic.register(np.ndarray, kernel)
    return generic


def _by_dispatch(text: str, kernel: Any, **names: Any) -> Statements:
    found = {"singledispatch": Statement(text, {"op": _single(kernel), **names})}
    if _has(PLUM):
        # By the annotations of the kernel.
        op = import_module("plum").Dispatcher()(kernel)
        found[PLUM] = Statement(text, {"op": op, **names})
    return found


def one(kernel: Any, x: Any) -> Statements:
    """A call with one array and one default float."""
    found = _by_dispatch("op(x)", kernel, x=x)
    return found | (_torch().call("one", "op(x)", x=x) if _has(TORCH) else {})


FIVE = "op(x, y, a=2.0, b=3, c=True)"


def five(kernel: Any, x: Any, y: Any) -> Statements:
    """A call with two arrays and three keyword scalars."""
    found = _by_dispatch(FIVE, kernel, x=x, y=y)
    return found | (_torch().call("five", FIVE, x=x, y=y) if _has(TORCH) else {})


def dispatched(count: int, x: Any) -> Statements:
    """Many calls of a generic function with an empty kernel."""
    names = {"op": _single(lambda x: x), "x": x}
    return {"singledispatch": Statement(f"for _ in range({count}): op(x)", names)}


def traced(program: Program, *args: Any) -> Statements:
    """A program captured with symbolic sizes."""
    found = {TORCH: _torch().traced(program, *args)} if _has(TORCH) else {}
    if _has(JAX):
        jax, export = import_module("jax"), import_module("jax.export")
        scope = export.SymbolicScope()
        specs = []
        for x in args:
            names = ", ".join("ab"[2 - x.ndim :])  # as NumPy aligns them
            shape = export.symbolic_shape(names, scope=scope)
            specs.append(jax.ShapeDtypeStruct(shape, np.float32))
        found[JAX] = _jaxpr(program, specs)
    return found


def traced_as_given(program: Program, *args: Any) -> Statements:
    """A program captured with the sizes of its arguments."""
    return {JAX: _jaxpr(program, args)} if _has(JAX) else {}


def _jaxpr(program: Program, args: Any) -> Statement:
    """JAX keeps the trace of a function, so each run gets a new one."""
    jax = import_module("jax")
    names = {"make": jax.make_jaxpr, "fn": program(jax.numpy), "args": args}
    return Statement("make(lambda x, w: fn(x, w))(*args)", names)


# ---- gradients ----


def _hips(count: int) -> Callable[[Any], Any]:
    """Gradient of a sum of sines, by a primitive of HIPS autograd."""
    autograd = import_module("autograd")
    extend = import_module("autograd.extend")
    sine = extend.primitive(lambda x: np.sin(x))
    extend.defvjp(sine, lambda ans, x: lambda g: g * np.cos(x))
    total = import_module("autograd.numpy").sum
    gradient: Callable[[Any], Any] = autograd.grad(_repeated(sine, count, total))
    return gradient


def _repeated(
    op: Any, count: int, total: Callable[[Any], Any] = lambda x: x.sum()
) -> Callable[[Any], Any]:
    def repeated(x: Any) -> Any:
        for _ in range(count):
            x = op(x)
        return total(x)

    return repeated


def _gradients(count: int, x: Any) -> Statements:
    found: Statements = {}
    if _has(HIPS):
        found[HIPS] = Statement("fn(x)", {"fn": _hips(count), "x": x})
    if _has(TORCH):
        found[TORCH] = _torch().gradient(lambda op: _repeated(op, count), x)
    return found


def chained(x: Any) -> Statements:
    """Gradient of the sum of a chain of sines."""
    return _gradients(LENGTH, x)


def graded(x: Any) -> Statements:
    """Gradient of the sum of one sine."""
    return _gradients(1, x)


# ---- plain NumPy programs ----

# A program is made for a module: numpy, autograd.numpy or torch.
Program = Callable[[Any], Callable[[Any], Any]]


def constants(xp: Any, *arrays: Any) -> list[Any]:
    """Arrays as the module takes them."""
    return (
        [xp.asarray(array) for array in arrays] if xp.__name__ == "torch" else [*arrays]
    )


def gradient(program: Program, x: Any) -> Statements:
    """The gradient of a program, eager."""
    found: Statements = {}
    if _has(HIPS):
        fn = import_module("autograd").grad(program(import_module("autograd.numpy")))
        found[HIPS] = Statement("fn(x)", {"fn": fn, "x": x})
    if _has(TORCH):
        found[TORCH] = _torch().gradient_of(program, x)
    return found


def second(program: Callable[[Any, Any], Any], x: Any) -> dict[str, Statements]:
    """Gradient, Hessian and Hessian-vector product of a program, by HIPS autograd."""
    names = ("gradient", "Hessian", "HVP")
    if not _has(HIPS):
        return {name: {} for name in names}
    autograd = import_module("autograd")
    fn = functools.partial(program, import_module("autograd.numpy"))
    product = autograd.hessian_vector_product(fn)
    calls = (autograd.grad(fn), autograd.hessian(fn), lambda v: product(v, v))
    return {
        name: {HIPS: Statement("fn(x)", {"fn": call, "x": x})}
        for name, call in zip(names, calls, strict=True)
    }


def batched(program: Callable[[Any, Any], Any], x: Any) -> Statements:
    """A program over the rows of a batch."""
    return {TORCH: _torch().batched(program, x)} if _has(TORCH) else {}


def by_sample(
    program: Callable[..., Any], weights: Any, inputs: Any, targets: Any
) -> Statements:
    """The gradient of a loss for each sample of a batch."""
    if not _has(TORCH):
        return {}
    return {TORCH: _torch().by_sample(program, weights, inputs, targets)}


# ---- vmap, fake arrays, registering ----


def vmapped(x: Any) -> Statements:
    """A sine over the rows of a batch, by its batching rule."""
    found: Statements = {}
    if _has(TORCH):
        found[TORCH] = _torch().vmapped(x)
    if _has(JAX):
        jax = import_module("jax")
        names = {"fn": jax.vmap(jax.numpy.sin), "x": jax.numpy.asarray(x)}
        found[JAX] = Statement("fn(x)", names)
    return found


def faked(x: Any) -> Statements:
    """A sine of an array without data."""
    found: Statements = {}
    if _has(TORCH):
        found[TORCH] = _torch().faked(x)
    if _has(JAX):
        jax = import_module("jax")
        names = {"eval_shape": jax.eval_shape, "sin": jax.numpy.sin, "x": x}
        new = "eval_shape(lambda v: sin(v), x)"
        found["jax, new function"] = Statement(new, names)
        found["jax, from its cache"] = Statement("eval_shape(sin, x)", names)
    return found


def registered(*, has_rules: bool) -> Statements:
    """Registering one operator, alone or with fake, autograd and vmap rules."""
    return {TORCH: _torch().registered(has_rules=has_rules)} if _has(TORCH) else {}


def looked_up() -> Statements:
    """An operator by its dotted name."""
    return {TORCH: _torch().looked_up()} if _has(TORCH) else {}


def overloaded(x: Any, y: Any) -> Statements:
    """A packet of two overloads."""
    return {TORCH: _torch().overloaded(x, y)} if _has(TORCH) else {}


def checked(x: Any) -> Statements:
    """An operator with all rules under opcheck, on one input."""
    return {TORCH: _torch().checked(x)} if _has(TORCH) else {}


def compiled(program: Callable[[Any, Any], Any], x: Any) -> Statements:
    """A program of the module and an array, by compilers."""
    found = compiled_by_jax(program, x)
    if _has(TORCH):
        found[TORCH_COMPILE] = _torch().compiled(program, x)
    return found


def compiled_by_jax(program: Callable[[Any, Any], Any], x: Any) -> Statements:
    """A program by JAX, in 64 bits, on an array of its own."""
    if not _has(JAX):
        return {}
    jax: Any = import_module("jax")
    run = jax.jit(functools.partial(program, jax.numpy))

    def call(x: Any) -> Any:
        # Outside of this setting the same function computes in 32 bits.
        with jax.enable_x64(True):
            return run(x).block_until_ready()

    with jax.enable_x64(True):
        given = jax.numpy.asarray(x)
    assert call(given).dtype == x.dtype
    return {JAX: Statement("fn(x)", {"fn": call, "x": given})}


def compiled_gradient(program: Program, x: Any) -> Statements:
    """The gradient of a program, by HIPS autograd, torch, and compilers."""
    found = gradient(program, x)
    if _has(TORCH):
        found[TORCH_COMPILE] = _torch().compiled_gradient(program, x)
    if _has(JAX):
        found[JAX] = _jax_gradient(program, x)
    if _has(PYTENSOR):
        found[PYTENSOR] = import_module("peer_pytensor").gradient(program, x)
    return found


def _jax_gradient(program: Program, x: Any) -> Statement:
    jax: Any = import_module("jax")
    run = jax.jit(jax.grad(program(jax.numpy)))

    def call(x: Any) -> Any:
        with jax.enable_x64(True):
            return jax.block_until_ready(run(x))

    with jax.enable_x64(True):
        given = jax.tree.map(jax.numpy.asarray, x)
    call(given)
    return Statement("fn(x)", {"fn": call, "x": given})


def new_gradient(program: Program, x: Any) -> Statements:
    """Compiling the gradient of a program, and one call."""
    found: Statements = {}
    if _has(JAX):
        names = {"make": _jax_gradient, "program": program, "x": x}
        found[JAX] = Statement("make(program, x)", names)
    if _has(TORCH):
        found[TORCH_COMPILE] = _torch().new_gradient(program, x)
    if _has(PYTENSOR):
        found[PYTENSOR] = import_module("peer_pytensor").new_gradient(program, x)
    return found


def new_chain(count: int, x: Any) -> Statements:
    """Compiling the gradient of a chain of custom operators, and one call."""
    if not _has(PYTENSOR):
        return {}
    return {PYTENSOR: import_module("peer_pytensor").new_chain(count, x)}


def compiled_on_numpy(program: Callable[[Any, Any], Any], x: Any) -> Statements:
    """The same by JAX, from an array of NumPy to one."""
    jax: Any = import_module("jax")

    def call(x: Any) -> Any:
        with jax.enable_x64(True):
            return np.asarray(run(x))

    run = jax.jit(functools.partial(program, jax.numpy))
    return {JAX: Statement("fn(x)", {"fn": call, "x": x})}
