"""Files that cannot be written or read: what the message says."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.graph import test_files
from tests.graph._broken_files import broken_bytes, broken_json, parts_of, zipped
from tests.graph.test_files import ARRAYS, VALUES, loaded, normal, saved, with_constant

CHANGED = "the file is damaged or was changed: save the graph again"


def message(data: bytes, **options: Any) -> str:
    """The message of the error that loading a file raises."""
    with pytest.raises(co.GraphFileError) as caught:
        co.load_graph(io.BytesIO(data), **options)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def changed(data: bytes, change: Callable[[Any], None]) -> bytes:
    """A file with another description."""
    parts = parts_of(data)
    document = json.loads(parts["graph.json"])
    change(document)
    parts["graph.json"] = json.dumps(document).encode()
    return zipped(parts)


@pytest.fixture(scope="module")
def sine() -> bytes:
    return saved(co.make_fx(lambda x: np.sin(x) + np.arange(3.0))(np.zeros(3)))


# ---- what cannot be written ----


class Remote:
    """An array that lives elsewhere."""

    shape = (2,)
    dtype = np.dtype("f8")


co.register_array_type("filed_remote", Remote)


def test_a_constant_of_another_library_is_named() -> None:
    """The message has the constant, its place, and what to do."""
    graph = with_constant(Remote())
    node = next(iter(graph.graph.nodes))
    node.meta["place"] = "model.py:3"
    with pytest.raises(co.GraphFileError) as caught:
        saved(graph)
    assert str(caught.value) == (
        "the constant 'c' cannot be saved: it is an array of"
        " tests.graph.test_file_errors.Remote, and"
        " files hold NumPy arrays\n"
        "  traced at model.py:3\n"
        "  do: capture a function without it, or pass it as an input"
    )


DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
UNWRITABLE = {
    "function": (len, "<built-in function len> is a function or class, and files hold"),
    "object": (object(), "it is a builtins.object, for which files have no form"),
    "deep": (DEEP, "values are nested more than 100 deep"),
    "objects": (np.array([None]), "its dtype object holds Python objects"),
    "strings": (np.array(["a"], np.dtypes.StringDType()), "its dtype StringDType()"),
    "overlap": (
        np.zeros(2, {"names": ["a", "b"], "formats": ["i4"] * 2, "offsets": [0, 2]}),
        "files have no form for its dtype",
    ),
    "legacy": (np.random.RandomState(0), "it is a numpy.random"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_values_without_a_form_are_refused(name: str) -> None:
    """What files cannot hold is an error, not something else in the file."""
    value, expected = UNWRITABLE[name]
    with pytest.raises(co.GraphFileError, match=re.escape(expected)):
        saved(with_constant(value))


@co.custom_op("filed::bump", mutates_args=("x",))
def bump(x: np.ndarray) -> None:
    """Count."""
    x += 1


def test_writes_into_shared_memory_are_refused() -> None:
    """Two constants with one memory would be two memories after loading."""
    whole = np.zeros(4)
    part = whole[1:3]

    def f(x: Any) -> Any:
        bump(part)
        return x + whole

    graph = co.make_fx(f)(np.zeros(4))
    with pytest.raises(co.GraphFileError) as caught:
        saved(graph)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "the node 'bump' cannot be saved: what it writes into shares its memory with the"
        " constant 'constant_1', and files have each array apart"
    )
    assert lines[1].startswith("  traced at ")
    # An array that is written and has its memory alone is saved as it is.
    counting = co.make_fx(lambda x: (bump(whole), x + whole)[1])(np.zeros(4))
    again = loaded(saved(counting))
    assert [again(np.zeros(4))[0] for _ in range(2)] == [1.0, 2.0]


def test_a_graph_is_not_inside_itself() -> None:
    """A cycle of graphs is refused."""
    graph = with_constant(None)
    graph.graph.constants["c"] = graph
    with pytest.raises(co.GraphFileError, match="a graph is inside itself"):
        saved(graph)


def test_facts_that_cannot_be_written_are_named() -> None:
    """A pass may leave anything in `meta`; the message says how to take it out."""
    graph = with_constant(1.0)
    next(iter(graph.graph.nodes)).meta["rule"] = len
    with pytest.raises(co.GraphFileError) as caught:
        saved(graph)
    assert str(caught.value).startswith("meta['rule'] of the node 'c' cannot be saved:")
    assert str(caught.value).endswith("do: del node.meta['rule']")


def test_targets_are_paths_or_files() -> None:
    """A number is not a place to save to or to load from."""
    with pytest.raises(co.ArgumentError) as caught:
        with_constant(1).save(3)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "3 is neither a path nor a file open for writing bytes\n"
        '  do: write a path, such as "model.graph"'
    )
    with pytest.raises(co.ArgumentError, match="3 is neither a path nor a file open"):
        co.load_graph(3)  # type: ignore[arg-type]


# ---- operators and classes that are not here ----

MODULE = """
import enum, numpy as np, customop as co
class Mode(enum.Enum):
    A = 1
@co.custom_op("elsewhere::shift", mutates_args=())
def shift(x: np.ndarray, mode: Mode, by: float = 1.0) -> np.ndarray:
    return x + by
"""
SAVING = """
import numpy as np, customop as co, elsewhere
f = lambda x: elsewhere.shift(x, elsewhere.Mode.A, 2.0)
co.make_fx(f)(np.zeros(2)).save("f.graph")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a graph that calls an operator of a module in it."""
    (tmp_path / "elsewhere.py").write_text(MODULE)
    run(tmp_path, SAVING)
    return tmp_path


def run(folder: Path, code: str) -> str:
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADING = """
import numpy as np, customop as co
try:
    print(co.load_graph("f.graph")(np.zeros(2)))
except co.GraphFileError as error:
    print(error)
"""


@pytest.mark.exhaustive
def test_missing_imports_are_named(folder: Path) -> None:
    """The file names the module of an operator; it never imports it."""
    assert run(folder, LOADING) == (
        "the graph calls elsewhere::shift, which is not defined here\n"
        "  it was saved with elsewhere::shift(Array x, elsewhere.Mode mode,"
        " float by=1.0) -> Array\n"
        "  in the file 'f.graph'\n"
        "  do: import elsewhere first\n"
    )
    assert run(folder, "import elsewhere\n" + LOADING) == "[2. 2.]\n"


def test_changed_schemas_are_shown(folder: Path) -> None:
    """Both schemas are in the message; new parameters with defaults are no change."""
    longer = MODULE.replace("by: float = 1.0", "by: float = 1.0, k: int = 3")
    (folder / "elsewhere.py").write_text(longer)
    assert run(folder, "import elsewhere\n" + LOADING) == "[2. 2.]\n"
    (folder / "elsewhere.py").write_text(
        MODULE.replace("by: float = 1.0", "by: int = 1")
    )
    assert run(folder, "import elsewhere\n" + LOADING) == (
        "the schema of elsewhere::shift has changed since the graph was saved\n"
        "  in the file: elsewhere::shift(Array x, elsewhere.Mode mode, float by=1.0)"
        " -> Array\n"
        "  here:        elsewhere::shift(Array x, elsewhere.Mode mode, int by=1)"
        " -> Array\n"
        "  in the file 'f.graph'\n"
        "  do: load it with the operator as it was, or capture the function again\n"
    )


def test_classes_are_known_by_import_only() -> None:
    """A class in a module that is not imported is named, and the module stays out."""
    data = changed(
        saved(with_constant(test_files.Mode.FAST)),
        lambda d: d["classes"][0].update(name="antigravity.Mode"),
    )
    assert message(data) == (
        "the class 'antigravity.Mode' is not known here\n  do: import antigravity first"
    )
    assert "antigravity" not in sys.modules


def test_changed_classes_are_shown() -> None:
    """Fields that a class has no more are in the message."""
    data = changed(
        saved(with_constant(test_files.Window(1, 2.0))),  # type: ignore[arg-type]
        lambda d: d["classes"][0].update(fields=["taps", "offset"]),
    )
    assert message(data) == (
        "tests.graph.test_files.Window has other fields than when the graph was saved\n"
        "  in the file: 'taps', 'offset'\n"
        "  here: 'taps', 'shift'\n"
        "  do: load the graph where the class is as it was, or capture it again"
    )


# ---- damaged and hostile files ----


def test_damaged_files_say_so(sine: bytes) -> None:
    """A file that is cut off, or has other bytes, is an error with a remedy."""
    assert message(sine[:100]) == (
        f"the file is not a graph file: 'File is not a zip file'\n  do: {CHANGED}"
    )
    at = sine.index(b"np::sin")
    assert message(sine[:at] + b"np::cos" + sine[at + 7 :]) == (
        "the part 'graph.json' cannot be read: \"Bad CRC-32 for file 'graph.json'\"\n"
        f"  do: {CHANGED}"
    )
    assert message(b"") == (
        f"the file is not a graph file: 'File is not a zip file'\n  do: {CHANGED}"
    )


def test_missing_files_are_not_graph_errors(tmp_path: Path) -> None:
    """A path with no file is the error that Python users know."""
    with pytest.raises(FileNotFoundError):
        co.load_graph(tmp_path / "none.graph")


def test_zip_bombs_are_refused(sine: bytes) -> None:
    """Compressed parts have a limit, which is checked before they are unpacked."""
    parts = parts_of(sine) | {"arrays/0.npy": bytes(10**7)}
    bomb = zipped(parts, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 10**5
    size = len(parts["graph.json"]) + 10**7
    assert message(bomb, limit=10**6) == (
        f"the compressed parts have {size} bytes, more than the limit of {10**6}\n"
        f"  do: if you trust the file: load_graph(path, limit={size})"
    )
    packed = zipped(parts_of(sine), zipfile.ZIP_DEFLATED)
    assert loaded(packed)(np.zeros(3)).tolist() == [0.0, 1.0, 2.0]
    assert message(sine, limit=10).startswith("graph.json has ")


def test_sizes_that_lie_are_refused(sine: bytes) -> None:
    """The size of a part in the zip is checked against the size of the file."""
    found = bytearray(sine)
    at = found.rindex(b"PK\x01\x02")
    found[at + 20 : at + 28] = struct.pack("<II", 2**31, 2**31)
    assert "bytes, and the file has" in message(bytes(found))


def test_repeated_parts_are_refused(sine: bytes) -> None:
    """Two parts of one name could be read in two ways."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.writestr("graph.json", b"{}")
        made.writestr("graph.json", parts_of(sine)["graph.json"])
    assert message(file.getvalue()) == (
        f"two parts have the name 'graph.json'\n  do: {CHANGED}"
    )


def test_parts_outside_the_file_are_refused(sine: bytes) -> None:
    """No part is written to disk, and none but those of the graph are read."""
    data = zipped(parts_of(sine) | {"../../evil.py": b"1"})
    assert message(data) == (
        f"no constant is in the part '../../evil.py'\n  do: {CHANGED}"
    )


def _array(**changes: Any) -> Callable[[Any], None]:
    return lambda d: d["constants"][0]["array"].update(changes)


def _node(number: int, **changes: Any) -> Callable[[Any], None]:
    return lambda d: d["graphs"][0]["nodes"][number].update(changes)


LATER = {"tuple": [{"node": 3}]}
HOSTILE: dict[str, tuple[Callable[[Any], None], str]] = {
    "10^12 elements": (
        _array(shape=[10**12]),
        "an array of the shape (1000000000000,) and dtype float64 has 152 bytes",
    ),
    "huge strides": (
        _array(strides=[2**50]),
        f"the strides ({2**50},) are too large for (3,)",
    ),
    "negative length": (
        _array(shape=[-1]),
        f"a length of a shape is -1, must be from 0 to {2**63 - 1}",
    ),
    "objects": (_array(dtype="|O"), "'|O' is not a dtype that files have"),
    "other header": (
        _array(dtype="<i8"),
        "the header of an npy part differs from graph.json",
    ),
    "other part": (
        _array(part="../0.npy"),
        "the part '../0.npy' is missing",
    ),
    "later node": (_node(1, args=[{"node": 1}]), "there is no earlier node 1"),
    "later node inside": (_node(1, args=[LATER]), "there is no earlier node 3"),
    "no operator": (_node(1, target=9), "there is no operator 9"),
    "text for an array": (
        _node(1, args=["x"]),
        "a call of np::sin has a wrong 'x': it expects Array, got str 'x'\n  np::sin(",
    ),
    "code for a name": (
        _node(0, name="x = exit()"),
        "'x = exit()' is not a name for a node",
    ),
    "keyword for a name": (
        _node(0, name="import"),
        "'import' is not a name for a node",
    ),
    "same name twice": (_node(1, name="x"), "two nodes have the name 'x'"),
    "no output": (
        lambda d: d["graphs"][0]["nodes"].pop(),
        "the graph is not well made: the last node of the graph is not its output",
    ),
    "two outputs": (
        lambda d: d["graphs"][0]["nodes"].append(
            {"op": "output", "name": "output_1", "args": [[]]}
        ),
        "the graph is not well made: the node 'output' is the output and not the",
    ),
    "version": (
        lambda d: d.update(version=2),
        "the file has version 2 of the format, and this is a customop of version 1",
    ),
    "unknown entry": (
        lambda d: d.update(code="1"),
        "graph.json has an unknown entry 'code'",
    ),
    "other leaves": (
        lambda d: d["graphs"][0].update(outputs={"tree": []}),
        "a structure has 0 leaves for 1 nodes",
    ),
    "value for a leaf": (
        lambda d: d["graphs"][0].update(outputs={"tree": 3}),
        "a structure has values in the places of leaves",
    ),
    "inputs of no call": (
        lambda d: d["graphs"][0].update(inputs={"tree": {"tuple": [{"leaf": None}]}}),
        "the structure of the inputs is not one of arguments",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_descriptions_are_checked(name: str, sine: bytes) -> None:
    """What a description says is checked before it is used."""
    change, expected = HOSTILE[name]
    assert message(changed(sine, change)).startswith(expected)


TEXTS = {
    "deep": ("[" * 10**6, "graph.json is not JSON:"),
    "long number": (
        '{"version": ' + "9" * 5000 + "}",
        "graph.json has a number of 5000 digits",
    ),
    "nan": ('{"version": NaN}', "graph.json has the number NaN"),
    "twice": ('{"a": 1, "a": 2}', "graph.json has an object with the same entry twice"),
    "not ASCII": ('{"é": 1}', "graph.json is not JSON:"),
    "other": ("[]", "the file is a zip, but not one of a graph"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_json_is_checked(name: str) -> None:
    """JSON that is too deep, too long or ambiguous is refused."""
    text, expected = TEXTS[name]
    assert message(zipped({"graph.json": text.encode()})).startswith(expected)


STATES = [
    ("MT19937", ("state", "pos"), 10**6, "'pos' of a generator is 1000000"),
    ("Philox", ("buffer_pos",), 5, "'buffer_pos' of a generator is 5"),
    ("PCG64", ("state", "inc"), "-0x1", "'inc' of a generator is -1"),
    ("SFC64", ("state", "state"), [1], "state has 1 items, must have 4"),
]


@pytest.mark.parametrize(("bits", "path", "value", "expected"), STATES)
def test_states_of_generators_are_checked(
    bits: str, path: tuple[str, ...], value: Any, expected: str
) -> None:
    """NumPy would read outside of its memory for some states."""

    def change(document: Any) -> None:
        holder = document["constants"][0]["generator"]["state"]
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value

    rng = np.random.Generator(getattr(np.random, bits)(0))
    assert message(changed(saved(with_constant(rng)), change)).startswith(expected)


# ---- weights ----


@pytest.fixture
def weighted(tmp_path: Path) -> Path:
    """A folder with a graph whose array lies in a file of its own."""
    graph = co.make_fx(lambda x: x + np.arange(3.0))(np.zeros(3))
    graph.save(tmp_path / "f.graph", weights=tmp_path / "f.safetensors")
    return tmp_path


def weights_message(folder: Path, header: Any, data: bytes = bytes(24)) -> str:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    content = struct.pack("<Q", len(text)) + text + data
    (folder / "f.safetensors").write_bytes(content)
    with pytest.raises(co.GraphFileError) as caught:
        co.load_graph(folder / "f.graph")
    return str(caught.value).splitlines()[0].partition(": ")[2]


ENTRY = {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}


def test_weights_are_checked(weighted: Path) -> None:
    """Names, dtypes and shapes must be those of the graph."""
    for header, expected in [
        ({}, "they lack 'constant'"),
        ({"constant": ENTRY, "more": ENTRY}, "the graph has no 'more'"),
        (
            {"constant": ENTRY | {"dtype": "I64"}},
            "'constant' is I64 [3] there, and F64 [3] in the graph",
        ),
        (
            {"constant": ENTRY | {"shape": [3, 1]}},
            "'constant' is F64 [3, 1] there, and F64 [3] in the graph",
        ),
        ({"constant": ENTRY | {"data_offsets": [0, 8]}}, "'constant' has 8 bytes"),
        (
            {"constant": ENTRY | {"data_offsets": [0, 10**12]}},
            "an offset is 1000000000000, must be from 0 to 24",
        ),
        (b"[" * 10**5, "its header is not JSON"),
        (b"[]", "its header is not an object of JSON"),
    ]:
        assert weights_message(weighted, header) == expected
    (weighted / "f.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(co.GraphFileError, match="it is not a safetensors file"):
        co.load_graph(weighted / "f.graph")


def test_missing_weights_are_named(weighted: Path) -> None:
    """A file of weights is looked for beside the graph, and nowhere else."""
    (weighted / "f.safetensors").unlink()
    with pytest.raises(co.GraphFileError) as caught:
        co.load_graph(weighted / "f.graph")
    assert str(caught.value).splitlines()[-1] == (
        '  do: give their path: load_graph(path, weights="model.safetensors")'
    )
    data = (weighted / "f.graph").read_bytes()
    assert message(data) == (
        "the arrays of the graph are in another file, 'f.safetensors'\n"
        "  do: give its path: load_graph(file, weights='f.safetensors')"
    )
    moved = changed(data, lambda d: d.update(weights="../f.safetensors"))
    (weighted / "f.graph").write_bytes(moved)
    with pytest.raises(co.GraphFileError, match="which is not a name"):
        co.load_graph(weighted / "f.graph")


def test_weights_are_not_given_in_vain(sine: bytes) -> None:
    """A graph that has all its arrays does not take others."""
    assert message(sine, weights="f.safetensors") == (
        "the graph has all its arrays in its own file\n  do: leave weights= out"
    )


# ---- at random ----


def _with_all_values() -> bytes:
    graph = co.Graph()
    small = [x for x in ARRAYS.values() if x.nbytes < 10**4]
    graph.output([graph.constant(value) for value in [*VALUES, *small]])
    return saved(co.GraphModule(graph))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_broken_files_are_graph_errors_or_graphs(seed: int) -> None:
    """Whatever a file holds, loading it is one error or a graph that is well made."""
    rng = random.Random(seed)
    program = co.make_fx(test_files.program)(*test_files.arguments())
    files = [saved(program), _with_all_values(), saved(with_constant(normal(2)))]
    outcomes = set()
    for _ in range(600):
        breaking = broken_bytes if rng.random() < 0.3 else broken_json
        try:
            graph = loaded(breaking(rng.choice(files), rng))
        except co.GraphFileError:
            outcomes.add("error")
        else:
            graph.graph.lint()
            assert graph.code
            outcomes.add("graph")
    assert outcomes == {"error", "graph"}


# ---- draws, and types of arguments ----


def _draw_file(place: int, index: int, value: Any) -> bytes:
    """A file of ``x * rng.normal(size=2) + np.sum(x, axis=0)`` with another argument."""
    x, rng = np.ones(2), np.random.default_rng(0)
    module = co.make_fx(lambda x, g: x * g.normal(size=2) + np.sum(x, axis=0))(x, rng)
    parts = parts_of(saved(module))
    document = json.loads(parts["graph.json"])
    document["graphs"][0]["nodes"][place]["args"][index] = value
    return zipped({**parts, "graph.json": json.dumps(document).encode()})


@pytest.mark.parametrize(
    ("index", "value"),
    [
        *[(1, name) for name in ("bit_generator", "__class__", "spawn", "bytes", "no")],
        (1, "integers"),
        (2, [-1]),
        (3, {"dtype": "<f4"}),
        *[(4, text) for text in ("{'k': 1}", "[1]", "f()", "(" * 300, "{'out': None}")],
        *[(i, {"node": 0}) for i in (0, 1, 3, 4)],
        (0, "a"),
    ],
)
def test_draws_of_files_are_draws_of_generators(index: int, value: Any) -> None:
    with pytest.raises(co.GraphFileError):
        loaded(_draw_file(2, index, value))


@pytest.mark.parametrize(
    ("place", "index", "value"),
    [(3, 0, {"node": 1}), (4, 1, [{"node": 0}]), (4, 1, {"node": 0})],
)
def test_nodes_of_files_stand_in_the_places_of_their_types(
    place: int, index: int, value: Any
) -> None:
    with pytest.raises(co.GraphFileError, match="has a wrong"):
        loaded(_draw_file(place, index, value))


def test_the_operators_of_the_package_load_by_themselves(tmp_path: Path) -> None:
    x = np.ones(2)
    co.make_fx(lambda x: x * co.stop_gradient(x))(x).save(tmp_path / "stopped")
    rng = np.random.default_rng(0)
    co.make_fx(lambda x, g: x * g.random(2))(x, rng).save(tmp_path / "drawn")
    for name in ("stopped", "drawn"):
        text = f"import customop; customop.load_graph({str(tmp_path / name)!r})"
        subprocess.run([sys.executable, "-c", text], check=True, timeout=60)
