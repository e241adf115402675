"""One set of names over several libraries, for programs that are written once.

A program gets a `Library` and uses NumPy's names of it. `LIBRARIES` has those of customop,
NumPy without gradients, JAX, torch and HIPS autograd; each is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import optree

__all__ = ["LIBRARIES", "MODULES", "Library", "installed"]

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Library:
    """What a program may use besides the operators and methods of arrays.

    Attributes
    ----------
    np
        NumPy's functions by NumPy's names.
    array
        An array made of a list of numbers of the library.
    constant
        The library's array of a NumPy array, or of each in a pytree.
    value_and_grad
        Value and gradient for the first argument.
    scan
        ``scan(step, init, xs) -> (carry, ys)``; a Python loop where there is none.
    grad, jacfwd, jvp, vmap
        Derivatives and batches inside a program; None where there are none.
    integers
        Whole numbers as indices.
    pick
        ``x[key]`` where x is a constant and the key comes from the program.
    wait
        Returns when the values are computed.
    """

    np: Any
    array: Function
    constant: Function
    value_and_grad: Function
    scan: Function
    grad: Function | None = None
    jacfwd: Function | None = None
    jvp: Function | None = None
    vmap: Function | None = None
    integers: Function = lambda x: x.astype(int)
    pick: Function = lambda x, key: x[key]
    wait: Function = lambda values: values


def _loop(stack: Function) -> Function:
    """A scan by a loop of Python."""

    def scan(step: Function, carry: Any, xs: Any) -> Any:
        outputs = []
        for i in range(len(xs)):
            carry, out = step(carry, xs[i])
            outputs.append(out)
        return carry, stack(outputs)

    return scan


def _plain() -> Library:
    """NumPy; the value comes with no gradient."""

    def value_alone(fn: Function) -> Function:
        return lambda *args: (fn(*args), None)

    return Library(np, np.array, lambda x: x, value_alone, _loop(np.array))


def _customop() -> Library:
    co: Any = import_module("customop")
    return Library(
        np,
        co.array,
        lambda x: x,
        co.value_and_grad,
        co.scan,
        co.grad,
        co.jacfwd,
        co.jvp,
        co.vmap,
        pick=co.getitem,
    )


def _jax() -> Library:
    """JAX in 64 bits."""
    jax: Any = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return Library(
        jax.numpy,
        jax.numpy.array,
        lambda x: jax.tree.map(jax.numpy.asarray, x),
        jax.value_and_grad,
        jax.lax.scan,
        jax.grad,
        jax.jacfwd,
        jax.jvp,
        jax.vmap,
        wait=jax.block_until_ready,
    )


def _hips() -> Library:
    """HIPS autograd, whose value_and_grad takes a pytree as first argument."""
    autograd: Any = import_module("autograd")
    anp: Any = import_module("autograd.numpy")
    return Library(
        anp,
        anp.array,
        lambda x: x,
        autograd.value_and_grad,
        _loop(anp.array),
        autograd.grad,
        autograd.jacobian,  # of functions with as many outputs as inputs
    )


class _TorchNumPy:
    """Functions of torch, with those that differ as NumPy has them."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.linalg = torch.linalg
        self.fft = torch.fft
        self.pi = np.pi
        self.concatenate = torch.cat
        self.log1p = torch.log1p
        self.transpose = torch.permute

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def zeros(self, shape: Any) -> Any:
        return self._torch.zeros(shape, dtype=self._torch.float64)

    def eye(self, n: int) -> Any:
        return self._torch.eye(n, dtype=self._torch.float64)

    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return self._torch.amax(x, () if axis is None else axis, keepdim=keepdims)

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return x.mean() if axis is None else x.mean(axis, keepdim=keepdims)

    def logaddexp(self, a: float, x: Any) -> Any:
        assert a == 0.0
        return self._torch.nn.functional.softplus(x)

    def maximum(self, x: Any, y: Any) -> Any:
        return x.clamp(min=y) if np.isscalar(y) else self._torch.maximum(x, y)

    def split(self, x: Any, parts: int, axis: int = 0) -> Any:
        return self._torch.chunk(x, parts, axis)

    def take_along_axis(self, x: Any, indices: Any, axis: int) -> Any:
        return self._torch.take_along_dim(x, indices, axis)


def _torch() -> Library:
    """Torch without `torch.compile`, by its tape; `torch.func` inside programs."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    func: Any = import_module("torch.func")

    def constant(x: Any) -> Any:
        return optree.tree_map(torch.as_tensor, x)

    def array(values: Any) -> Any:
        return torch.stack([torch.as_tensor(v, dtype=torch.float64) for v in values])

    def value_and_grad(fn: Function) -> Function:
        def both(x: Any, *rest: Any) -> Any:
            leaves, tree = optree.tree_flatten(x)
            tracked = [leaf.detach().requires_grad_() for leaf in leaves]
            value = fn(optree.tree_unflatten(tree, tracked), *rest)
            return value.detach(), torch.autograd.grad(value, tracked)

        return both

    return Library(
        _TorchNumPy(torch),
        array,
        constant,
        value_and_grad,
        _loop(torch.stack),
        func.grad,
        func.jacfwd,
        func.jvp,
        func.vmap,
        integers=lambda x: x.long(),
    )


MODULES = {
    "NumPy": "numpy",
    "customop": "customop",
    "jax": "jax",
    "torch": "torch",
    "HIPS": "autograd",
}
LIBRARIES: dict[str, Callable[[], Library]] = {
    "NumPy": _plain,
    "customop": _customop,
    "jax": _jax,
    "torch": _torch,
    "HIPS": _hips,
}


def installed() -> list[str]:
    """The names of the libraries that can be imported."""
    return [name for name, module in MODULES.items() if find_spec(module)]
