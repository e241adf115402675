"""Graphs in files: what comes back is what was saved, bit for bit."""

from __future__ import annotations

import collections
import dataclasses
import enum
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import customop as co


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"


class Bits(enum.Flag):
    X = 1
    Y = 2
    Z = 4


class Window(NamedTuple):
    taps: np.ndarray
    shift: float


@dataclasses.dataclass(frozen=True)
class Config:
    scale: np.ndarray
    mode: Mode
    bits: Bits
    count: int = 3


@co.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    tag: str = dataclasses.field(default="linear", metadata={"static": True})


@co.custom_op("filed::mix", mutates_args=())
def mix(
    x: np.ndarray,
    config: Config,
    window: Window,
    names: list[str],
    *,
    eps: float | None = None,
    large: int = 0,
) -> np.ndarray:
    """Use every argument."""
    number = config.bits.value * config.count + len(names) + large % 7 + (eps or 0)
    factor = 2.0 if config.mode is Mode.SLOW else 1.0
    return x * config.scale * factor + window.taps * window.shift + number


@co.custom_op("filed::noisy", mutates_args=())
def noisy(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add noise."""
    return x + rng.normal(size=x.shape)


@co.custom_op("filed::parts", mutates_args=())
def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split off the sign."""
    return np.abs(x), np.sign(x)


@co.custom_op("filed::scale_", mutates_args=("x",))
def scale_(x: np.ndarray, by: complex, dtype: co.DType, flag: bool) -> None:
    """Multiply in place."""
    x *= by.real if flag else 1.0


def saved(graph: co.GraphModule) -> bytes:
    file = io.BytesIO()
    graph.save(file)
    return file.getvalue()


def loaded(data: bytes) -> co.GraphModule:
    return co.load_graph(io.BytesIO(data))


def assert_same(actual: Any, expected: Any) -> None:
    """Compare pytrees: structures, and classes, dtypes, layout and bits of leaves."""
    first, structure = co.tree.flatten(actual)
    second, other = co.tree.flatten(expected)
    assert structure == other
    for a, b in zip(first, second, strict=True):
        assert type(a) is type(b)
        x, y = np.asarray(a), np.asarray(b)
        assert (x.dtype, x.shape, x.strides) == (y.dtype, y.shape, y.strides)
        assert x.tobytes() == y.tobytes()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


# ---- whole programs ----


def program(layer: Layer, x: Any, flag: str, pair: tuple[int, None]) -> Any:
    """Almost all that a graph can hold."""
    weight = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    config = Config(weight, Mode.SLOW, Bits.X | Bits.Z)
    y = mix(x, config, Window(x * 2, 1.5), ["é\ud800", "b"], eps=1e-3, large=10**30)
    size, sign = parts(y)
    scale_(size, 2j + 3, np.float32, True)
    z = size * weight + sign + np.arange(20.0)[::2][:3] + np.float32(3)
    z[0] = 7.0
    named = collections.OrderedDict(b=x[..., None].sum(axis=(0, 1)), a=[None, (y,)])
    return {"z": z @ layer.weight + layer.bias, "x": x[1:, ::-1], "n": named}, 3.5


def arguments() -> tuple[Any, ...]:
    return Layer(normal(3, 2), np.zeros(2)), normal(2, 3, seed=1), "flag", (1, None)


def test_a_loaded_graph_gives_the_same_bits() -> None:
    """Structures, dtypes, layouts and values come back as they were."""
    graph = co.make_fx(program)(*arguments())
    again = loaded(saved(graph))
    assert_same(again(*arguments()), program(*arguments()))
    assert again.code == graph.code
    for node, other in zip(graph.graph.nodes, again.graph.nodes, strict=True):
        assert (node.op, node.name) == (other.op, other.name)
        assert repr(node.meta) == repr(other.meta)
        assert [*map(str, node.users)] == [*map(str, other.users)]


def test_the_same_graph_gives_the_same_bytes() -> None:
    """A file does not depend on the time, nor on how often it is written or read."""
    data, other = [saved(co.make_fx(program)(*arguments())) for _ in range(2)]
    assert data == other
    assert data == saved(loaded(data))


def test_loaded_graphs_are_differentiated_and_batched() -> None:
    """A loaded graph is a function like others."""

    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x)

    x = normal(3)
    graph = loaded(saved(co.make_fx(f)(x)))
    np.testing.assert_allclose(co.grad(graph)(x), np.cos(x) * x + np.sin(x))
    rows = normal(4, 3)
    np.testing.assert_allclose(co.vmap(graph)(rows), np.sum(np.sin(rows) * rows, 1))


def test_generators_may_be_inputs() -> None:
    """A generator that is passed in is used, whatever its state."""
    given = np.zeros(3), np.random.default_rng(1)
    graph = loaded(saved(co.make_fx(noisy)(*given)))
    rng, other = (np.random.default_rng(2) for _ in range(2))
    assert graph(np.zeros(3), rng).tolist() == other.normal(size=3).tolist()


def test_graphs_inside_are_written_once() -> None:
    """The graphs of control flow are saved; one that is used twice is one afterwards."""

    def f(x: Any) -> Any:
        return co.cond(x[0] > 0, np.sin, np.cos, x)

    inner = co.make_fx(f)(np.ones(2))
    (call,) = [n for n in inner.graph.nodes if n.name == "cond"]
    call.args = (*call.args[:3], call.args[2])
    again = loaded(saved(inner))
    (call,) = [n for n in again.graph.nodes if n.name == "cond"]
    assert call.args[2] is call.args[3]
    x = -np.ones(2)
    np.testing.assert_array_equal(again(x), np.sin(x))


def test_changes_of_inputs_are_saved() -> None:
    """A graph that writes into an input does so after loading."""

    def f(x: Any) -> None:
        x[0] = 9.0

    graph = loaded(saved(co.make_fx(f)(np.zeros(2))))
    x = np.zeros(2)
    assert graph(x) is None
    assert x.tolist() == [9.0, 0.0]


def test_another_process_gives_the_same_bits(tmp_path: Path) -> None:
    """A process that imports no code of the program computes the same numbers."""

    def f(params: dict[str, Any], x: Any) -> Any:
        y = np.tanh(x @ params["w"] + params["b"])
        last, ys = co.scan(lambda c, row: (np.sin(c + row), c * row), y[0], y)
        z = co.while_loop(lambda v: np.sum(v) < 9, lambda v: v * 2 + params["b"], ys**2)
        return np.fft.rfft(y), np.linalg.inv(y.T @ y + np.eye(3)), np.sort(z, 0), last

    params = {"w": normal(4, 3), "b": normal(3)}
    x = normal(5, 4, seed=2)
    co.make_fx(f)(params, x).save(tmp_path / "f.graph")
    np.savez(tmp_path / "in.npz", x=x, **params)
    code = (
        "import numpy as np, customop as co\n"
        "given = dict(np.load('in.npz'))\n"
        "x = given.pop('x')\n"
        "found = co.load_graph('f.graph')(given, x)\n"
        "np.savez('out.npz', *found)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    for part, expected in zip(
        np.load(tmp_path / "out.npz").values(), f(params, x), strict=True
    ):
        assert part.tobytes() == expected.tobytes()


# ---- constants ----

STRUCTURED = np.dtype([("a", "i4"), ("é", "f8", (2, 2)), (("title", "c"), ">u2")])
ARRAYS = {
    "0-d": np.array(2.5),
    "empty": np.zeros((0, 3), np.int8),
    "fortran": np.asfortranarray(normal(2, 3)),
    "transposed": normal(2, 3, 4).transpose(1, 0, 2),
    "reversed": normal(2, 3)[:, ::-1],
    "with gaps": normal(10)[::2],
    "with large gaps": normal(5000)[::1000],
    "repeated": np.broadcast_to(np.arange(3.0), (4, 3)),
    "repeated far": np.broadcast_to(1.5, (10**7, 10**7)),
    "windows": np.lib.stride_tricks.sliding_window_view(normal(9), 4),
    "big endian": normal(3).astype(">f8"),
    "half": normal(3).astype("f2"),
    "complex": (normal(3) + 1j).astype("c8"),
    "long double": np.arange(3, dtype=np.longdouble),
    "bool": np.array([True, False]),
    "text": np.array(["a", "bcé"]),
    "bytes": np.array([b"xx", b""]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "times": np.array([3], "m8[25s]"),
    "structured": np.zeros(3, STRUCTURED),
    "padded": np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "nan": np.array([np.nan, -np.inf, -0.0]),
    "noted": np.zeros(2, np.dtype("f8", metadata={"unit": "m"})),
}


def with_constant(value: Any) -> co.GraphModule:
    graph = co.Graph()
    graph.output(graph.constant(value, "c"))
    return co.GraphModule(graph)


@pytest.mark.parametrize("name", ARRAYS)
def test_constants_keep_their_bits_and_layout(name: str) -> None:
    """An array comes back with its dtype, shape, strides and elements."""
    x = ARRAYS[name]
    found = loaded(saved(with_constant(x)))()
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    if name == "with large gaps":
        assert found.flags.c_contiguous
    elif x.size:
        assert found.strides == x.strides
    if x.nbytes < 10**6:
        assert found.tobytes() == x.tobytes()


def test_parts_are_npy_files() -> None:
    """NumPy reads the arrays of a graph file."""
    with zipfile.ZipFile(io.BytesIO(saved(with_constant(STRUCTURED_ROWS)))) as file:
        with file.open("arrays/0.npy") as part:
            assert np.load(part).tobytes() == STRUCTURED_ROWS.tobytes()
        assert json.loads(file.read("graph.json"))["version"] == 1


STRUCTURED_ROWS = np.array([(1, np.eye(2), 3)], STRUCTURED)


def test_one_object_is_written_once() -> None:
    """A constant of two names comes back as one array."""
    x = normal(1000)
    graph = co.Graph()
    graph.output([graph.constant(x, "a"), graph.constant(x, "b")])
    data = saved(co.GraphModule(graph))
    assert len(data) < 1.5 * x.nbytes
    a, b = loaded(data)()
    assert a is b


@pytest.mark.parametrize("bits", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_generators_go_on_where_they_were(bits: str) -> None:
    """A generator in a graph draws the numbers that it would have drawn."""
    rng = np.random.Generator(getattr(np.random, bits)(7))
    rng.integers(2**32, size=3, dtype=np.uint32)
    rng.spawn(1)
    graph = co.Graph()
    call = graph.call(noisy, (graph.constant(np.zeros(3)), graph.constant(rng, "rng")))
    graph.output(call)
    again = loaded(saved(co.GraphModule(graph)))
    child = again.graph.constants["rng"].spawn(1)[0]
    assert again().tobytes() == rng.normal(size=3).tobytes()
    assert child.random() == rng.spawn(1)[0].random()


# Values of arguments, from JSON's own to those that it has no form for.
VALUES: list[Any] = [
    *(None, True, 0, -(2**60), 2**200, 1.5, -0.0, 1e-320, float("inf"), "é\ud800\0"),
    *(-1j + 2, complex("nan"), b"\0\xff", ..., slice(None, -1, 2), range(3, 9, 2)),
    *([], (), {}, [[1], (2, {3: {"a": None}})], {(1, 2): [3]}, {1, 2}, frozenset("ab")),
    *(np.dtype("f4"), np.dtype(">c16"), STRUCTURED, np.float32, float, bool),
    *(np.float32(1.25), np.int64(-3), np.datetime64("2020-01-02", "D"), np.True_),
    *(Mode.FAST, Bits.X, Bits.X | Bits.Z, Bits(0)),
    Window(1, 2.0),
    Config(1.0, Mode.FAST, Bits.Y),  # type: ignore[arg-type]  # a number for an array
    Layer(1, 2, "tag"),
    collections.deque([1, 2], maxlen=3),
    collections.defaultdict(list, a=[1]),
    co.FakeArray((2, 3), np.float32, order=(1, 0)),
]


def _id(value: Any) -> str:
    # The order of a set of strings differs from process to process.
    is_open = isinstance(value, frozenset)
    return f"frozenset {sorted(value)}" if is_open else repr(value)


@pytest.mark.parametrize("value", VALUES, ids=_id)
def test_values_come_back(value: Any) -> None:
    """A value of any class that graphs hold is written and read."""
    found = loaded(saved(with_constant(value))).graph.constants["c"]
    assert type(found) is type(value)
    assert repr(found) == repr(value)
    if isinstance(value, co.FakeArray):
        assert (found.strides, found.device) == (value.strides, value.device)


def test_a_nan_keeps_its_bits() -> None:
    """Also the sign and the payload of a nan are written."""
    value = np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0].item()
    found = loaded(saved(with_constant(value))).graph.constants["c"]
    assert np.float64(found).tobytes() == np.float64(value).tobytes()


# ---- targets ----


def test_files_are_replaced_at_the_end(tmp_path: Path) -> None:
    """A graph that cannot be written leaves the file that was there, and no other."""
    path = tmp_path / "f.graph"
    graph = co.make_fx(np.sin)(np.zeros(2))
    graph.save(path)
    before = path.read_bytes()
    with pytest.raises(co.GraphFileError):
        with_constant(lambda x: x).save(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_links_and_modes_stay(tmp_path: Path) -> None:
    """Saving through a link writes the file behind it, with its mode."""
    path, link = tmp_path / "f.graph", tmp_path / "link"
    path.write_bytes(b"")
    path.chmod(0o600)
    link.symlink_to(path)
    co.make_fx(np.sin)(np.zeros(2)).save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    assert co.load_graph(str(link))(np.zeros(2)).tolist() == [0.0, 0.0]


def test_files_need_not_be_seekable_to_be_written() -> None:
    """A graph can go into a pipe."""

    class Pipe:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: bytes) -> None:
            self.data += data

    pipe = Pipe()
    graph = co.make_fx(np.sin)(np.zeros(2))
    graph.save(pipe)  # type: ignore[arg-type]  # it has all that is needed
    assert pipe.data == saved(graph)


# ---- weights outside ----


def network(params: dict[str, Any]) -> co.GraphModule:
    return co.make_fx(lambda x: np.tanh(x @ params["w"]) + params["b"] * params["r"])(
        np.zeros((2, 3))
    )


PARAMS = {
    "w": np.asfortranarray(normal(3, 4)),
    "b": np.float32(normal(4)),
    "r": np.broadcast_to(2.0, (4,)),
}


def test_weights_stay_outside(tmp_path: Path) -> None:
    """Arrays can lie in a safetensors file, from which they are read when used."""
    graph = network(PARAMS)
    graph.save(tmp_path / "f.graph", weights=tmp_path / "f.safetensors")
    again = co.load_graph(tmp_path / "f.graph")
    assert_same(again(np.ones((2, 3))), graph(np.ones((2, 3))))
    (tmp_path / "f.safetensors").rename(tmp_path / "g.safetensors")
    again = co.load_graph(tmp_path / "f.graph", weights=tmp_path / "g.safetensors")
    assert_same(again(np.ones((2, 3))), graph(np.ones((2, 3))))
    # What a program does to the arrays stays in memory.
    before = (tmp_path / "g.safetensors").read_bytes()
    for value in again.graph.constants.values():
        if value.flags.writeable:
            value[...] = 0
    assert (tmp_path / "g.safetensors").read_bytes() == before


def test_weights_are_a_safetensors_file(tmp_path: Path) -> None:
    """The library of the format reads what is written, and writes what is read."""
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is missing")
    graph = network(PARAMS)
    path = tmp_path / "f.safetensors"
    graph.save(tmp_path / "f.graph", weights=path)
    found = library.load_file(path)
    outside = {k: v for k, v in graph.constants.items() if 0 not in v.strides}
    assert found.keys() == outside.keys()
    for name, value in outside.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)
    library.save_file({k: v * 2 for k, v in found.items()}, path)
    again = co.load_graph(tmp_path / "f.graph")
    for name, value in outside.items():
        np.testing.assert_array_equal(again.constants[name], value * 2)
