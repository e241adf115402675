"""Operators as torch's: values, torch's own checks, compilation, errors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.interop import torch_table
from tests.interop.torch_operators import (
    CASES,
    NS,
    Case,
    arguments,
    leaves,
    mapped,
)

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
bridge: Any = pytest.importorskip("customop.interop.torch")

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*has no vmap rule"),
]

over = pytest.mark.parametrize("name", CASES)
over_gradients = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.grads]
)
# Their formula says None for an argument that has a derivative.
STOPPED = {"half_known": (1,)}


@pytest.fixture(autouse=True, scope="module")
def _removed() -> Iterator[None]:
    yield
    for case in CASES.values():
        bridge.export(case.op)
        bridge.remove_export(case.op)


def overload_and_arguments(name: str, *, grads: bool = True) -> tuple[Any, Any, Any]:
    """The torch operator of a case with the plain arguments that it gets."""
    exported = bridge.export(CASES[name].op)
    args, keywords = arguments(torch, CASES[name], grads=grads)
    if isinstance(exported, torch._ops.OpOverload):
        return exported, args, keywords
    seen: list[Any] = []
    call = exported.call
    overload = call.__globals__["_torch"]

    def see(*args: Any, **keywords: Any) -> Any:
        seen.append((args, keywords))
        return overload(*args, **keywords)

    call.__globals__["_torch"] = see
    exported(*args, **keywords)
    call.__globals__["_torch"] = overload
    args, keywords = seen[0]
    fresh = lambda v: (
        v.detach().clone().requires_grad_(v.requires_grad)
        if isinstance(v, torch.Tensor)
        else v
    )
    return overload, mapped(args, fresh), mapped(keywords, fresh)


def of_tensors(name: str) -> tuple[Callable[..., Any], list[Any]]:
    """A case as a function of its tensors of floats alone, and these."""
    case = CASES[name]
    exported = bridge.export(case.op)
    given = arguments(torch, case, grads=True)
    places = [
        i
        for i, v in enumerate(leaves(given))
        if isinstance(v, torch.Tensor) and v.requires_grad
    ]
    stopped = STOPPED.get(name, ())
    places = [at for i, at in enumerate(places) if i not in stopped]

    def call(*tensors: Any) -> tuple[Any, ...]:
        found = [
            v.detach() if isinstance(v, torch.Tensor) else v for v in leaves(given)
        ]
        for place, tensor in zip(places, tensors, strict=True):
            found[place] = tensor
        values = iter(found)
        args, keywords = mapped(given, lambda _: next(values))
        out = leaves(exported(*args, **keywords))
        return tuple(v for v in out if v.is_floating_point() or v.is_complex())

    return call, [leaves(given)[place] for place in places]


# ---- values ----


def to_numpy(value: Any) -> Any:
    """Tensors and dtypes as those of NumPy, which share memory."""
    if isinstance(value, torch.dtype):
        return np.dtype(str(value).removeprefix("torch."))
    return value.numpy() if isinstance(value, torch.Tensor) else value


@over
def test_values_are_those_of_the_operator(name: str) -> None:
    """A torch operator gives what the operator gives for arrays, and writes the same."""
    case = CASES[name]
    given = arguments(torch, case)
    args, keywords = mapped(arguments(torch, case), to_numpy)
    out = bridge.export(case.op)(*given[0], **given[1])
    expected = case.op(*args, **keywords)
    assert type(out) is type(expected) or isinstance(out, torch.Tensor)
    for found, wanted in zip(leaves(out), leaves(expected), strict=True):
        if wanted is not None:
            assert to_numpy(found).dtype == wanted.dtype
            np.testing.assert_array_equal(to_numpy(found), wanted)
    for found, wanted in zip(leaves(given), leaves((args, keywords)), strict=True):
        if isinstance(wanted, np.ndarray):
            np.testing.assert_array_equal(to_numpy(found), wanted)


@over
def test_torch_finds_no_fault(name: str) -> None:
    """torch.library.opcheck passes, with and without gradients."""
    for grads in (True, False):
        overload, args, keywords = overload_and_arguments(name, grads=grads)
        found = torch.library.opcheck(overload, args, keywords)
        assert set(found.values()) == {"SUCCESS"}


# ---- derivatives ----


@over_gradients
def test_gradients_are_those_of_central_differences(name: str) -> None:
    """Gradcheck in reverse and forward mode, alone and in batches; gradgradcheck."""
    fn, tensors = of_tensors(name)
    assert torch.autograd.gradcheck(
        fn, tensors, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(fn, tensors)


@over_gradients
def test_functional_transforms(name: str) -> None:
    """torch.func: gradients equal autograd's, and batches of them the loop's."""
    fn, tensors = of_tensors(name)

    def loss(*tensors: Any) -> Any:
        return sum((v * v.conj()).real.sum() for v in fn(*tensors))

    expected = torch.autograd.grad(loss(*tensors), tensors)
    plain = tuple(x.detach() for x in tensors)
    places = tuple(range(len(plain)))
    grad = torch.func.grad(loss, argnums=places)
    for found, wanted in zip(grad(*plain), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    pairs = [torch.stack([x, 2 * x]) for x in plain]
    rows = [grad(*[x[i] for x in pairs]) for i in range(2)]
    batched = torch.vmap(grad)(*pairs)
    for found, wanted in zip(batched, zip(*rows, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(wanted))
    if not any(x.is_complex() for x in plain):
        rest = plain[1:]
        second = torch.func.hessian(loss)(*plain)
        wanted = torch.autograd.functional.hessian(lambda x: loss(x, *rest), plain[0])
        torch.testing.assert_close(second, wanted)


# ---- compilation ----


@over
def test_compiled_is_eager(name: str) -> None:
    """One graph under dynamic=True, with gradients, and the same numbers."""
    torch._dynamo.reset()
    exported = bridge.export(CASES[name].op)
    compiled = torch.compile(
        exported, backend="aot_eager", fullgraph=True, dynamic=True
    )
    assert_same_runs(compiled, exported, CASES[name])


def assert_same_runs(first: Any, second: Any, case: Case) -> None:
    """Raise unless two functions give, write and differentiate alike."""
    sides = []
    for fn in (first, second):
        args, keywords = arguments(torch, case, grads=True)
        out = [v for v in leaves(fn(*args, **keywords)) if v is not None]
        tensors = [v for v in leaves((args, keywords)) if isinstance(v, torch.Tensor)]
        if case.grads:
            moving = [v for v in out if v.requires_grad]
            loss = sum((v * v.conj()).real.sum() for v in moving)
            wanted = [v for v in tensors if v.requires_grad]
            out += torch.autograd.grad(loss, wanted, materialize_grads=True)
        sides.append((out, tensors))
    for found, wanted in zip(*sides, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["gauss", "affine", "largest", "cleared"])
def test_compiled_by_inductor(name: str) -> None:
    """Also between other operations, which become C++ code."""
    torch._dynamo.reset()
    exported = bridge.export(CASES[name].op)

    def fn(*args: Any, **keywords: Any) -> Any:
        changed = mapped(
            args,
            lambda v: (
                v * 2 + 1
                if isinstance(v, torch.Tensor) and v.is_floating_point()
                else v
            ),
        )
        out = exported(*changed, **keywords)
        return mapped(out, lambda v: None if v is None else v * 3)

    compiled = torch.compile(fn, fullgraph=True, dynamic=True)
    assert_same_runs(compiled, fn, CASES[name])


def test_one_graph_serves_all_sizes() -> None:
    """No size of a call is compiled in."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    exported = bridge.export(CASES["convolved"].op)
    compiled = torch.compile(exported, backend=counter, fullgraph=True, dynamic=True)
    for n, k in ((5, 3), (7, 2), (40, 11)):
        x, y = torch.randn(n), torch.randn(k)
        torch.testing.assert_close(compiled(x, y), exported(x, y))
    assert counter.frame_count == 1


@over
def test_exported_programs_are_eager(name: str) -> None:
    """torch.export with dynamic sizes; the program is saved, loaded and runs."""
    case = CASES[name]
    exported = bridge.export(case.op)
    given = arguments(torch, case)
    tensors = [v for v in leaves(given) if isinstance(v, torch.Tensor)]

    class Program(torch.nn.Module):  # type: ignore[misc]  # of torch
        def forward(self, *tensors: Any) -> Any:
            found = iter(tensors)
            args, keywords = mapped(
                given, lambda v: next(found) if isinstance(v, torch.Tensor) else v
            )
            out = exported(*args, **keywords)
            return tuple(out) if hasattr(out, "_fields") else out

    program = Program()
    auto = torch.export.Dim.AUTO
    shapes = tuple({i: auto for i, n in enumerate(x.shape) if n > 1} for x in tensors)
    copies = lambda: [x.clone() for x in tensors]
    made = torch.export.export(
        program, tuple(copies()), dynamic_shapes=(shapes,) if tensors else None
    )
    nodes = [str(node.target) for node in made.graph.nodes]
    assert any(NS in node for node in nodes)
    file = io.BytesIO()
    torch.export.save(made, file)
    file.seek(0)
    torch.testing.assert_close(
        torch.export.load(file).module()(*copies()), program(*copies())
    )


def test_tables_of_the_guide() -> None:
    """They are made by ``python -m tests.interop.torch_table``."""
    assert torch_table.PAGE.read_text(encoding="utf-8").endswith(torch_table.text())
