"""Calls of operators as torch's: memory, writes, dtypes, modes, errors, names."""

from __future__ import annotations

import enum
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.interop.torch_operators import CASES, Lens, Mode

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
bridge: Any = pytest.importorskip("customop.interop.torch")

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    # Few operators of these tests need a fake kernel.
    pytest.mark.filterwarnings(
        "ignore:export. torch.* has no fake kernel:customop.CustomOpWarning"
    ),
]


@pytest.fixture(autouse=True)
def _removed() -> Iterator[None]:
    """Each test takes out what it has exported."""
    made: dict[int, Any] = {}
    _made.append(made)
    yield
    _made.pop()
    for op in made.values():
        bridge.remove_export(op)


_made: list[dict[int, Any]] = []


def exported(op: Any, name: str | None = None) -> Any:
    """Export an operator for this test."""
    found = bridge.export(op, name)
    _made[-1][id(getattr(found, "overload", found))] = found
    return found


def case(name: str) -> Any:
    return exported(CASES[name].op)


def define(name: str, fn: Any, **options: Any) -> Any:
    """Make an operator of the namespace of these tests."""
    options.setdefault("mutates_args", ())
    return co.custom_op(f"torchcalls::{name}", fn, **options)


# ---- memory ----


def test_kernels_get_the_memory_of_tensors() -> None:
    """An argument and a result are shared, not copied."""
    seen: list[Any] = []

    def fn(x: np.ndarray) -> np.ndarray:
        seen.append(x)
        seen.append(x + 1)
        return seen[-1]

    op = exported(define("shared", fn))
    x = torch.zeros(3, 4)
    y = op(x)
    assert seen[-2].__array_interface__["data"][0] == x.data_ptr()
    assert seen[-1].__array_interface__["data"][0] == y.data_ptr()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor(2.0),
        lambda: torch.zeros(0, 3),
        lambda: torch.arange(12.0).reshape(3, 4).T,
        lambda: torch.arange(12.0).reshape(3, 4)[::2, 1:],
        lambda: torch.tensor([1.0, 2.0]).expand(3, 2),
        lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
        lambda: torch.tensor([1 + 2j]).conj().imag,
        lambda: torch.nn.Parameter(torch.ones(2)),
        lambda: torch.ones(2, dtype=torch.float16),
    ],
    ids=[
        *("0-d", "empty", "transposed", "sliced", "expanded", "conjugated", "negated"),
        *("parameter", "half"),
    ],
)
def test_tensors_of_all_layouts(make: Any) -> None:
    """0-d, empty, transposed, sliced, expanded, conjugated and negated lazily."""
    op = case("cube")
    x = make()
    torch.testing.assert_close(op(x), x * x * x)
    assert op(x).is_contiguous()
    if x.is_floating_point() and x.numel() and x.dtype != torch.float16:
        leaf = x.detach().clone().requires_grad_()
        op(leaf).sum().backward()
        torch.testing.assert_close(leaf.grad, 3 * leaf.detach() ** 2)


def test_views_are_copies() -> None:
    """Torch has no views of operators written in Python."""
    x = torch.arange(6.0).reshape(2, 3)
    y = case("turned")(x)
    y[0, 0] = 7.0
    assert x[0, 0] == 0.0
    assert y.is_contiguous()


# ---- writes ----


def test_writes_are_seen_by_autograd() -> None:
    """The version of a written tensor grows, so a stale saved value is an error."""
    double = case("doubled_")
    x = torch.ones(3)
    weight = torch.ones(3, requires_grad=True)
    loss = (x * weight).sum()
    version = x._version
    assert double(x, 2.0) is x
    assert x._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_write_to_what_requires_a_gradient_is_an_error() -> None:
    """It has none; under no_grad it is allowed."""
    double = case("doubled_")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(co.GradientError) as caught:
        double(x, 2.0)
    assert str(caught.value) == (
        "torchzoo::doubled_ writes 'x', so it has no gradient, and an argument requires"
        " one\n"
        "  torchzoo::doubled_(Array(a!) x, float factor) -> Array(a!)\n"
        "                     ^^^^^^^^^^^\n"
        "  do: call it under torch.no_grad(), or with x.detach()"
    )
    with torch.no_grad():
        double(x, 2.0)
    assert x.tolist() == [2.0] * 3


def test_a_write_to_a_conjugated_view_is_an_error() -> None:
    """Its memory holds other numbers; arguments that are read may be such views."""
    double = case("doubled_")
    x = torch.tensor([1.0 + 2.0j]).conj()
    with pytest.raises(
        co.ArgumentError, match=r"is a conjugated view.*\n.*x.resolve_conj"
    ):
        double(x, 2.0)
    with pytest.raises(co.ArgumentError, match="is a negated view"):
        double(x.imag, 2.0)
    assert x.tolist() == [1.0 - 2.0j]


@pytest.mark.filterwarnings("ignore:.*has no vmap rule")
def test_a_write_to_several_elements_at_one_place_is_an_error() -> None:
    """As of torch's own operators."""
    double = case("doubled_")
    for x in (torch.ones(1).expand(3), torch.ones(2, 1).expand(2, 3)):
        with pytest.raises(co.ArgumentError, match="several elements at one place"):
            double(x, 2.0)
        assert x.unique().tolist() == [1.0]
    x = torch.ones(1).expand(2, 3)
    with pytest.raises(co.ArgumentError, match="several elements at one place"):
        torch.func.vmap(lambda row: double(row, 2.0))(x)
    assert x.unique().tolist() == [1.0]
    assert double(torch.ones(3, 1).expand(3, 1), 2.0).tolist() == [[2.0]] * 3


@pytest.mark.filterwarnings("ignore:.*has no vmap rule")
def test_writes_under_vmap() -> None:
    """Each row is written; what is the same for all rows cannot be."""
    double = case("doubled_")
    x = torch.ones(2, 3)
    torch.vmap(double, in_dims=(1, None))(x, 3.0)
    assert x.tolist() == [[3.0] * 3] * 2
    nested = torch.arange(8.0).reshape(2, 2, 2)
    torch.vmap(torch.vmap(lambda v: double(v, 2.0)))(nested)
    assert nested.flatten().tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    with pytest.raises(co.VmapError, match="which is the same for all rows"):
        torch.vmap(lambda y: case("squared_out")(y, out=x[0]))(torch.ones(2, 3))


# ---- gradients ----


def test_no_gradient_is_none() -> None:
    """Of a formula that returns None; zeros would make an optimizer move."""
    x, constant = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    case("half_known")(x, constant).sum().backward()
    assert x.grad.tolist() == [1.0] * 3
    assert constant.grad is None


def test_integer_results_and_unused_results() -> None:
    """They require no gradient, and need none."""
    x = torch.tensor([[1.0, 3.0, 2.0]], requires_grad=True)
    values, places = case("largest")(x)
    assert values.requires_grad
    assert not places.requires_grad
    _, cosine = case("sine_and_cosine")(x)
    cosine.sum().backward()
    torch.testing.assert_close(x.grad, -torch.sin(x.detach()))


def test_no_grad_tracks_nothing() -> None:
    """Nor does inference mode."""
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not case("cube")(x).requires_grad
    with torch.inference_mode():
        assert case("cube")(x).is_inference()


def test_a_missing_formula_is_an_error_of_backward() -> None:
    """As torch has it, the call itself is fine."""
    op = exported(define("plain", lambda x: x + 1, schema="(Array x) -> Array"))
    x = torch.ones(3, requires_grad=True)
    y = op(x)
    with pytest.raises(co.MissingRuleError, match="has no 'autograd' rule"):
        y.sum().backward()


def test_the_operator_runs_once() -> None:
    """Backward takes the result of forward."""
    calls: list[int] = []

    def fn(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return np.exp(x)

    op = define("once", fn)
    op.register_autograd(
        lambda ctx, g: g * ctx.saved_arrays[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    x = torch.ones(2, requires_grad=True)
    exported(op)(x).sum().backward()
    assert calls == [1]
    torch.testing.assert_close(x.grad, torch.exp(x.detach()))


def test_threads() -> None:
    """Calls and gradients in several threads at once."""
    op = case("cube")
    faults: list[Exception] = []

    def run(seed: int) -> None:
        try:
            for _ in range(20):
                x = torch.full((4,), float(seed), requires_grad=True)
                op(x).sum().backward()
                torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)
        except Exception as error:  # noqa: BLE001  # shown below
            faults.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


# ---- modes ----


def test_autocast() -> None:
    """Floats are cast to the dtype that is registered; gradients come back as given."""
    seen: list[Any] = []

    def fn(x: np.ndarray, xs: list[np.ndarray], *, y: np.ndarray) -> np.ndarray:
        seen[:] = [x.dtype, xs[0].dtype, y.dtype]
        return x * xs[0] * y

    op = define("cast", fn)
    op.register_autograd(co.native)
    op.register_autocast("cpu", np.float16)
    call = exported(op)
    x = torch.ones(3, requires_grad=True)
    wide = torch.ones(3, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = call(x, [x], y=x)
    assert seen == [np.float16] * 3
    assert out.dtype == torch.float16
    out.sum().backward()
    assert x.grad.dtype == torch.float32
    assert x.grad.tolist() == [3.0] * 3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call(wide, [wide], y=wide).dtype == torch.float64
    assert call(x, [x], y=x).dtype == torch.float32


def test_batches_take_the_rule() -> None:
    """And the loop warns, as the operator does under vmap."""
    seen: list[Any] = []
    op = define("batched", lambda x: x * 2, schema="(Array x) -> Array")

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Any) -> Any:
        seen.append((info, in_dims))
        return op(x), in_dims[0]

    call = exported(op)
    x = torch.arange(6.0).reshape(2, 3)
    out = torch.vmap(call, in_dims=1, randomness="same")(x)
    torch.testing.assert_close(out, 2 * x.T)
    assert seen == [((3, "same"), (1,))]


# ---- values ----


def test_numbers_as_results() -> None:
    """They are Python's."""

    def fn(x: np.ndarray) -> tuple[float, int, bool]:
        return float(x.sum()), len(x), bool(x.any())

    found = exported(define("numbers", fn))(torch.ones(3))
    assert found == (3.0, 3, True)
    assert [type(v) for v in found] == [float, int, bool]


def test_optional_results() -> None:
    """None stays None."""

    def fn(x: np.ndarray, want: bool) -> tuple[np.ndarray, np.ndarray | None]:
        return x + 1, (x * 2 if want else None)

    op = exported(define("optional", fn).register_autograd(co.native))
    x = torch.ones(2, requires_grad=True)
    first, second = op(x, False)
    assert second is None
    first.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    assert op(x, True)[1].tolist() == [2.0, 2.0]


def test_defaults_and_values_that_torch_lacks() -> None:
    """Infinite defaults, tuples, enums, dicts, flags, numbers in place of arrays."""

    class Parts(enum.Flag):
        low = 1
        high = 2

    def fn(
        x: np.ndarray,
        most: float = float("inf"),
        pair: tuple[int, float] = (1, 0.5),
        parts: Parts = Parts.low,
        weights: dict[str, float] | None = None,
    ) -> np.ndarray:
        total = sum((weights or {"a": 1.0}).values())
        return np.minimum(x * pair[0] + pair[1], most) * total * parts.value

    op = define("rich", fn)
    call = exported(op)
    x = torch.ones(2)
    assert call(x).tolist() == [1.5, 1.5]
    assert call(x, 1.0).tolist() == [1.0, 1.0]
    assert call(x, pair=(2, 1.0), parts=Parts.low | Parts.high).tolist() == [9.0, 9.0]
    assert call(x, weights={"a": 1.0, "b": 2.0}).tolist() == [4.5, 4.5]
    assert str(call.overload._schema).startswith(
        "torchcalls::rich(Tensor x, float most,"
    )


def test_operands_may_be_numbers() -> None:
    """A number takes its dtype from the arrays, as NumPy has it."""
    op = define(
        "operands",
        lambda x, y: x * y,
        schema="(Array|Scalar x, Array|Scalar y) -> Array",
    )
    op.register_autograd(co.native)
    call = exported(op)
    x = torch.ones(2, dtype=torch.float32, requires_grad=True)
    out = call(x, 2.5)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert x.grad.tolist() == [2.5, 2.5]
    assert call(2, x).tolist() == [2.0, 2.0]


def test_generators() -> None:
    """A generator of torch gives the seed of one of NumPy."""

    def fn(n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal(n)

    call = exported(define("noise", fn))
    first, second = (call(3, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    torch.testing.assert_close(call(3, torch.Generator().manual_seed(1)), first)
    assert not torch.equal(first, second)


def test_objects_are_taken_apart() -> None:
    """An object is its fields, for torch; an optional one says whether it is there."""

    def fn(
        x: np.ndarray, lens: Lens | None = None, mode: Mode = Mode.plain
    ) -> np.ndarray:
        y = x if lens is None else x @ lens.matrix * lens.focal
        return y * mode.value

    call = exported(define("objects", fn).register_autograd(co.native))
    assert str(call.overload._schema) == (
        "torchcalls::objects(Tensor x, bool lens_given, Tensor? lens_matrix, float?"
        " lens_focal, str mode) -> Tensor"
    )
    matrix = torch.eye(2, requires_grad=True)
    out = call(torch.ones(1, 2), Lens(matrix, 3.0), Mode.square)
    out.sum().backward()
    assert matrix.grad.tolist() == [[6.0, 6.0]] * 2
    assert call(torch.ones(1, 2)).tolist() == [[1.0, 1.0]]


# ---- errors ----


def test_tensors_of_a_gpu_are_refused() -> None:
    """Torch finds the kernel for its key CUDA, which says what to do."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    with pytest.raises(co.DeviceMismatchError) as caught:
        case("cube").redispatch(keys, torch.ones(2))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("::cube runs on tensors in main memory, got one on a GPU")
    assert lines[-1] == "  do: pass x.cpu(), and move the result: out.to(x.device)"


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_dtypes_that_numpy_lacks(dtype: str) -> None:
    """They are refused by name, also while torch traces."""
    op = case("cube")
    x = torch.ones(2).to(getattr(torch, dtype))
    message = (
        f"a tensor has dtype torch.{dtype}, which NumPy does not have\n"
        "  do: convert it before the call: x.float(), and the result back"
    )
    for given in (x, x.to("meta")):
        with pytest.raises(co.ArgumentError) as caught:
            op(given)
        assert str(caught.value) == message


@pytest.mark.filterwarnings("ignore:Sparse CSC tensor support:UserWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_tensors_that_are_not_arrays() -> None:
    """Sparse ones, in batches too; results of other dtypes."""
    op = case("cube")
    sparse = torch.eye(2).to_sparse()
    for x in (sparse, sparse.clone().requires_grad_(), torch.eye(2).to_sparse_csc()):
        with pytest.raises(
            co.ArgumentError, match=r"layout torch\.sparse_.*\n.*to_dense"
        ):
            op(x)
    with pytest.raises(co.ArgumentError, match=r"layout torch\.sparse_coo"):
        torch.vmap(op)(sparse)
    with pytest.raises(co.ArgumentError, match=r"layout torch\._mkldnn.*\n.*to_dense"):
        op(torch.ones(2, 3).to_mkldnn())
    with pytest.raises(co.ArgumentError, match=r"is quantized(.|\n)*dequantize"):
        op(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
    text = define("text", lambda x: x.astype(str), schema="(Array x) -> Array")
    with pytest.raises(co.ContractError, match="which torch does not have"):
        exported(text)(torch.ones(2))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_are_refused(layout: Any) -> None:
    """By this package, with a gradient or without; also by operators that write."""
    fill = define(
        "fill", lambda x: None, schema="(Array(a!) x) -> ()", mutates_args=("x",)
    )
    op, raw = case("cube"), CASES["cube"].op
    for follows in (False, True):
        rows = [torch.ones(2), torch.ones(3)]
        x = torch.nested.nested_tensor(rows, layout=layout, requires_grad=follows)
        with pytest.raises(co.ArgumentError, match=r"is nested.*\n.*unbind"):
            op(x)
        with pytest.raises(co.ArgumentError, match=r"is nested"):
            exported(fill)(x)
        with torch.inference_mode(), pytest.raises(co.ArgumentError, match="is nested"):
            op(x)
        with pytest.raises(co.ArgumentError, match="Tensor"):
            raw(x)


def test_a_missing_fake_kernel_is_said_at_once() -> None:
    """With the remedy and the line of the caller, and not a second time."""
    op = define("unshaped", lambda x: x + 1, schema="(Array x) -> Array")
    with pytest.warns(co.CustomOpWarning, match="no fake kernel") as found:
        exported(op)
    assert found[0].filename == __file__
    assert "@unshaped.register_fake" in str(found[0].message)
    with warnings.catch_warnings(action="error"):
        exported(op)
    shaped = define("shaped", lambda x: x + 1, schema="(Array x) -> Array")
    shaped.register_fake(co.fake_like)
    with warnings.catch_warnings(action="error"):
        exported(shaped)


def test_errors_of_the_operator_arrive() -> None:
    """With the classes that Python users expect."""
    with pytest.raises(ValueError, match="x and w do not fit"):
        case("affine")(torch.ones(2, 3, device="meta"), torch.ones(2, 3, device="meta"))
    with pytest.raises(co.ArgumentError, match="'how'"):
        case("reduced")(torch.ones(3), Mode.plain, how="median")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.b::c", "'a.b::c' cannot be the name of a torch operator"),
        ("plain", "'plain' cannot be the name of a torch operator"),
        ("é::c", "'é::c' cannot be the name of a torch operator"),
        ("aten::sin", "the namespace 'aten' belongs to torch"),
    ],
)
def test_names_that_torch_refuses(name: str, what: str) -> None:
    with pytest.raises(co.RegistrationError) as caught:
        bridge.export(CASES["cube"].op, name)
    assert str(caught.value).splitlines()[0] == f"torchzoo::cube: {what}"


def test_names_of_others() -> None:
    """An operator that torch has already is not replaced."""
    first, second = CASES["cube"].op, CASES["total"].op
    exported(first, "torchcalls::mine")
    with pytest.raises(co.RegistrationError, match="exported from torchzoo::cube"):
        bridge.export(second, "torchcalls::mine")
    with torch.library._scoped_library("torchcalls", "FRAGMENT") as library:
        library.define("theirs(Tensor x) -> Tensor")
        with pytest.raises(co.RegistrationError, match="torch refuses the operator"):
            bridge.export(first, "torchcalls::theirs")


def test_overloads_have_their_names() -> None:
    """``mylib::f.of_list`` is an overload of torch's too."""
    op = define("many.of_list", lambda xs: xs[0] * 2, schema="(Array[] xs) -> Array")
    call = exported(op)
    assert call is torch.ops.torchcalls.many.of_list
    assert call([torch.ones(1)]).tolist() == [2.0]


# ---- the registry ----


def test_export_twice_is_the_same() -> None:
    op = CASES["cube"].op
    assert exported(op) is bridge.export("torchzoo::cube")


def test_redefinition_is_exported_anew() -> None:
    """With the new schema; the old one is gone."""
    with co.Library("torchagain", "DEF") as library:
        library.define("f(Array x) -> Array")
        library.impl("f", lambda x: x * 2, "CPU")
        first = bridge.export(co.ops.torchagain.f.default)
        assert first(torch.ones(1)).tolist() == [2.0]
    with pytest.raises(
        co.MissingRuleError, match="the library that defined it is closed"
    ):
        first(torch.ones(1))
    with co.Library("torchagain", "DEF") as library:
        library.define("f(Array x, float y) -> Array")
        library.impl("f", lambda x, y: x * y, "CPU")
        second = exported(co.ops.torchagain.f.default)
        assert second(torch.ones(1), 3.0).tolist() == [3.0]


def test_nothing_is_left_after_removal() -> None:
    """No definition, no kernel and no attribute."""
    op = CASES["cube"].op
    bridge.export(op)
    names = ("torchzoo::cube", "torchzoo::_cube_derived")
    has = torch._C._dispatch_has_kernel
    assert all(map(has, names))
    before = len(
        torch._library.simple_registry.singleton.find(names[0]).fake_impl.kernels
    )
    assert before == 1
    bridge.remove_export(op)
    assert not any(map(has, names))
    assert not hasattr(torch.ops.torchzoo, "cube")
    assert (
        torch._library.simple_registry.singleton.find(names[0]).fake_impl.kernels == []
    )
    with pytest.raises(co.ArgumentError, match="is not exported to torch"):
        bridge.remove_export(op)


def test_a_failed_export_leaves_nothing() -> None:
    schema = "(Array x, Dict(str, Array?[]?) y) -> Array"
    op = define("odd", lambda x, y: x, schema=schema)
    with pytest.raises(co.RegistrationError) as caught:
        bridge.export(op)
    assert (
        str(caught.value)
        .splitlines()[0]
        .startswith(
            "torchcalls::odd: export to torch: 'y' is Dict(str, Array?[]?): torch has no list"
        )
    )
    assert not torch._C._dispatch_has_kernel("torchcalls::odd")


def test_programs_run_in_other_processes(tmp_path: Any) -> None:
    """A saved program needs the export and nothing else."""
    path = tmp_path / "program.pt2"
    case("cube")
    torch.export.save(torch.export.export(Cubes(), (torch.ones(3),)), path)
    code = (
        "import torch\n"
        "from customop.interop.torch import export\n"
        "from tests.interop.torch_operators import cube\n"
        "export(cube)\n"
        f"program = torch.export.load({str(path)!r})\n"
        "print(program.module()(torch.full((3,), 2.0)).tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[8.0, 8.0, 8.0]\n"


class Cubes(torch.nn.Module):  # type: ignore[misc]  # of torch
    def forward(self, x: Any) -> Any:
        return torch.ops.torchzoo.cube(x)
