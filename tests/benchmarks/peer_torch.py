"""The operators by torch.library; imported only where torch is installed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from timing import Statement
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

__all__ = [
    "batched",
    "by_sample",
    "call",
    "checked",
    "compiled",
    "compiled_gradient",
    "faked",
    "gradient",
    "gradient_of",
    "looked_up",
    "new_gradient",
    "overloaded",
    "registered",
    "traced",
    "vmapped",
]

_numbers = itertools.count()


def scale(x: Tensor, k: float = 1.0) -> Tensor:
    """One array and a default float."""
    return x * k


def mix(x: Tensor, y: Tensor, *, a: float, b: int, c: bool) -> Tensor:
    """Two arrays and three keyword scalars."""
    return x * y


@torch.library.custom_op("bench::sine", mutates_args=())
def sine(x: Tensor) -> Tensor:
    """Sine, with every rule."""
    return torch.sin(x)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, g: Any) -> Any:
    return g * torch.cos(ctx.saved_tensors[0])


def _batch(info: Any, in_dims: Any, x: Any) -> Any:
    return sine(x), in_dims[0]


sine.register_autograd(_backward, setup_context=_setup)
sine.register_fake(torch.empty_like)
sine.register_vmap(_batch)

_calls = {
    "one": (torch.library.custom_op("bench::one", mutates_args=())(scale), scale),
    "five": (torch.library.custom_op("bench::five", mutates_args=())(mix), mix),
}


def call(which: str, text: str, **arrays: Any) -> dict[str, Statement]:
    """An operator, and the plain function for comparison."""
    op, kernel = _calls[which]
    names = {name: torch.asarray(array) for name, array in arrays.items()}
    return {
        "torch": Statement(text, {"op": op, **names}),
        "torch without operator": Statement(text, {"op": kernel, **names}),
    }


def gradient(repeated: Callable[[Any], Callable[[Any], Any]], x: Any) -> Statement:
    """Gradient of a sum of sines."""
    leaf = torch.asarray(x.copy()).requires_grad_()
    names = {"grad": torch.autograd.grad, "fn": repeated(sine), "x": leaf}
    return Statement("grad(fn(x), x)", names)


def gradient_of(program: Callable[[Any], Callable[[Any], Any]], x: Any) -> Statement:
    """Gradient of a program by one array or a list of them, eager."""
    items = x if isinstance(x, list) else [x]
    leaves = [torch.asarray(item.copy()).requires_grad_() for item in items]
    fn = program(torch)
    value = (lambda v: fn(v)) if isinstance(x, list) else (lambda v: fn(v[0]))
    names = {"grad": torch.autograd.grad, "fn": value, "x": leaves}
    return Statement("grad(fn(x), x)", names)


def batched(program: Callable[[Any, Any], Any], x: Any) -> Statement:
    """A program over the rows of a batch."""
    fn = torch.vmap(functools.partial(program, torch))
    return Statement("fn(x)", {"fn": fn, "x": torch.asarray(x)})


def by_sample(
    program: Callable[..., Any], weights: Any, inputs: Any, targets: Any
) -> Statement:
    """The gradient of a loss for each sample of a batch."""

    def loss(w: Any, a: Any, b: Any) -> Any:
        return program(torch, a[None], b[None], w)

    names = {
        "fn": torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0)),
        "w": [torch.asarray(w) for w in weights],
        "a": torch.asarray(inputs),
        "b": torch.asarray(targets),
    }
    return Statement("fn(w, a, b)", names)


def vmapped(x: Any) -> Statement:
    """A sine over the rows of a batch."""
    return Statement("fn(x)", {"fn": torch.vmap(sine), "x": torch.asarray(x)})


def faked(x: Any) -> Statement:
    """A sine of a fake tensor."""
    fake = FakeTensorMode().from_tensor(torch.asarray(x))
    return Statement("op(x)", {"op": sine, "x": fake})


def traced(program: Callable[[Any], Callable[..., Any]], *args: Any) -> Statement:
    """A program captured by make_fx, with symbolic sizes."""
    trace = make_fx(program(torch), tracing_mode="symbolic")
    return Statement(
        "trace(*args)", {"trace": trace, "args": [torch.asarray(x) for x in args]}
    )


def registered(*, has_rules: bool) -> Statement:
    """Registering one operator, alone or with three rules."""
    register = _register_with_rules if has_rules else _register
    return Statement("register()", {"register": register})


def _register() -> Any:
    name = f"bench_many::op{next(_numbers)}"
    return torch.library.custom_op(name, mutates_args=())(scale)


def _register_with_rules() -> None:
    op = _register()
    op.register_fake(lambda x, k=1.0: torch.empty_like(x))
    op.register_autograd(lambda ctx, g: (g, None))
    op.register_vmap(lambda info, in_dims, x, k: (x, in_dims[0]))


def looked_up() -> Statement:
    """An overload by its dotted name."""
    return Statement("ops.aten.sin.default", {"ops": torch.ops})


def overloaded(x: Any, y: Any) -> Statement:
    """A packet of two overloads that Python defines."""
    library = _overloads()
    second = y if isinstance(y, float) else torch.asarray(y)
    names = {"op": torch.ops.bench_overloads.plus, "x": torch.asarray(x), "y": second}
    return Statement("op(x, y)", {**names, "library": library})


@functools.cache
def _overloads() -> torch.library.Library:
    library = torch.library.Library("bench_overloads", "DEF")
    library.define("plus.Tensor(Tensor x, Tensor y) -> Tensor")
    library.define("plus.Scalar(Tensor x, float y) -> Tensor")
    library.impl("plus.Tensor", lambda x, y: x + y, "CPU")
    library.impl("plus.Scalar", lambda x, y: x + y, "CPU")
    return library


def checked(x: Any) -> Statement:
    """The sine under opcheck, its default checks."""
    names = {
        "opcheck": torch.library.opcheck,
        "op": sine,
        "x": torch.asarray(x.copy()).requires_grad_(),
    }
    return Statement("opcheck(op, (x,))", names)


def compiled(program: Callable[[Any, Any], Any], x: Any) -> Statement:
    """A program of the module and a tensor, by torch's compiler."""
    run = torch.compile(functools.partial(program, torch))
    given = torch.from_numpy(x)
    run(given)
    return Statement("fn(x)", {"fn": run, "x": given})


def compiled_gradient(program: Any, x: Any) -> Statement:
    """The gradient of a program, by torch's compiler."""
    run = torch.compile(torch.func.grad(program(torch)))
    given = _tensors(x)
    run(given)
    return Statement("fn(x)", {"fn": run, "x": given})


def new_gradient(program: Any, x: Any) -> Statement:
    """Compiling the gradient of a program, and one call."""
    names = {"make": compiled_gradient, "program": program, "x": x}
    return Statement("make(program, x)", names)


def _tensors(x: Any) -> Any:
    return [*map(torch.from_numpy, x)] if isinstance(x, list) else torch.from_numpy(x)
