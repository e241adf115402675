"""The plugin for mypy: messages, codes, and runs with a warm cache or the daemon.

The files in tests/typing/plugin have errors of every code, line by line.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import customop as co

if importlib.util.find_spec("mypy") is None:
    pytest.skip("mypy is not installed", allow_module_level=True)

import customop.mypy

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("mypy")]

ROOT = Path(__file__).parents[2]
PRELUDE = """\
from __future__ import annotations
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar
import numpy as np
import numpy.typing as npt
import customop as co
if TYPE_CHECKING:
    import cupy as cp

T = TypeVar("T")

@dataclass
class Loose:
    rate: float

@dataclass(frozen=True)
class Holder:
    names: set[str]

class Pair(NamedTuple):
    left: np.ndarray
    right: np.ndarray

def as_it_is(x: np.ndarray) -> np.ndarray:
    return x

Misshapen = Annotated[np.ndarray, "m (k"]

def of_floats(x: Annotated[npt.NDArray[np.float64], "m n"]) -> np.ndarray:
    return x

def with_number(x: np.ndarray, k: float) -> None:
    x[...] = k

@co.custom_op("mypy_plugin::gauss", mutates_args=(), device_types="cpu")
def gauss(x: co.Array, width: float) -> co.Array:
    return x

@co.custom_op("mypy_plugin::shifted", mutates_args=())
def shifted(x: co.Array, *, by: float) -> tuple[co.Array, co.Array]:
    return x, x

@co.custom_op("mypy_plugin::add", mutates_args=())
def add(x: co.Array, y: co.Array) -> co.Array:
    return x

@co.custom_op("mypy_plugin::fill", mutates_args=("x",))
def fill(x: co.Array) -> None:
    return None

kind = co.RuleKind("kind", takes="(out, *inputs)")

"""
if sys.version_info >= (3, 12):  # the syntax is one of that version
    PRELUDE += """\
type Table = dict[int, float]
type Row = Annotated[np.ndarray, "n,"]

"""
# Without site packages, for which mypy would take 13 s: 2,500 files.
CONFIG = """\
[mypy]
plugins = customop.mypy
check_untyped_defs = true
no_site_packages = true
ignore_missing_imports = true
[mypy-numpy.*,customop.*]
ignore_errors = true
"""
_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): (?P<level>\w+): (?P<text>.*)")


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Paths on which mypy finds this package and its stubs, and NumPy."""
    packages = tmp_path_factory.mktemp("packages")
    (packages / "numpy").symlink_to(Path(np.__file__).parent)
    paths = [str(ROOT), str(ROOT / "stubs"), str(packages)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", os.pathsep.join(paths))
        patch.setenv("PYTHONPATH", str(ROOT))
        yield


def _run(folder: Path, cache: Path, *arguments: str) -> list[str]:
    """The lines that mypy prints for files of a folder."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-error-summary"),
            *(f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={cache}"),
            "--show-traceback",
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), (done.stdout + done.stderr)[-2000:]
    return done.stdout.splitlines()


def _errors(lines: list[str]) -> list[str]:
    return [line for line in lines if ": error: " in line]


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(textwrap.dedent(text))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, environment: None) -> Path:
    """A cache of mypy with NumPy and this package, but no files of tests."""
    folder = tmp_path_factory.mktemp("base")
    _write(folder, {"mypy.ini": CONFIG, "base.py": PRELUDE})
    _run(folder, folder / "cache", "base.py")
    return folder / "cache"


@pytest.fixture
def folder(tmp_path: Path, cache: Path) -> Path:
    _write(tmp_path, {"mypy.ini": CONFIG})
    shutil.copytree(cache, tmp_path / "cache")
    return tmp_path


# ---- messages ----

# Each of them raises when it runs.
MISTAKES = {
    "no namespace": 'co.custom_op("scale", as_it_is, mutates_args=())',
    "no name": 'co.custom_op("my-lib::scale", as_it_is, mutates_args=())',
    "define, no namespace": 'co.define("scale", "(Array x) -> Array")',
    "impl, no namespace": 'co.impl("gauss", "CPU", as_it_is)',
    "keyword": 'co.custom_op("words::if", as_it_is, mutates_args=())',
    "Any": "def f(x: Any) -> np.ndarray: ...",
    "object": "def f(x: object) -> np.ndarray: ...",
    "list": "def f(x: list) -> np.ndarray: ...",
    "set": "def f(x: set[int]) -> np.ndarray: ...",
    "dict": "def f(x: dict) -> np.ndarray: ...",
    "dict of ints": "def f(x: dict[int, float]) -> np.ndarray: ...",
    "tuple": "def f(x: tuple) -> np.ndarray: ...",
    "function": "def f(x: Callable[[float], float]) -> np.ndarray: ...",
    "bytes": "def f(x: bytes) -> np.ndarray: ...",
    "slice": "def f(x: slice) -> np.ndarray: ...",
    "range": "def f(x: range) -> np.ndarray: ...",
    "type": "def f(x: type) -> np.ndarray: ...",
    "float32": "def f(x: np.float32) -> np.ndarray: ...",
    "complex64": "def f(x: np.complex64) -> np.ndarray: ...",
    "ArrayLike": "def f(x: npt.ArrayLike) -> np.ndarray: ...",
    "variable": "def f(x: T) -> np.ndarray: ...",
    "loose": "def f(x: Loose) -> np.ndarray: ...",
    "field": "def f(x: Holder) -> np.ndarray: ...",
    "within": "def f(x: Sequence[dict[str, bytes]]) -> np.ndarray: ...",
    "optional": "def f(x: bytes | None) -> np.ndarray: ...",
    "union": "def f(x: int | str) -> np.ndarray: ...",
    "choices": 'def f(x: Literal["a", 1]) -> np.ndarray: ...',
    "result": "def f(x: np.ndarray) -> object: ...",
    "no annotation": "def f(x: np.ndarray, k) -> np.ndarray: ...",
    "no annotations": "def f(x, k): ...",
    "no result": "def f(x: np.ndarray): ...",
    "star": "def f(*x: np.ndarray) -> np.ndarray: ...",
    "stars": "def f(x: np.ndarray, **k: float) -> np.ndarray: ...",
    "default": "def f(x: np.ndarray, k: int = 2.5) -> np.ndarray: ...",
    "default None": "def f(x: np.ndarray, k: int = None) -> np.ndarray: ...",
    "default choice": 'def f(x: np.ndarray, k: Literal["a"] = "b") -> np.ndarray: ...',
    "default list": "def f(x: np.ndarray, k: list[int] = [1.5]) -> np.ndarray: ...",
    "writes no parameter": ('co.custom_op("words::w", as_it_is, mutates_args=("xs",))'),
    "writes no array": ('co.custom_op("words::w", with_number, mutates_args=("k",))'),
    "writes a string": 'co.custom_op("words::w", as_it_is, mutates_args="x")',
    "schema, type": (
        'co.custom_op("words::s", as_it_is, mutates_args=(), schema="(Arry x) -> Array")'
    ),
    "schema, arrow": (
        'co.custom_op("words::s", as_it_is, mutates_args=(), schema="(Array x)")'
    ),
    "schema, name": (
        'co.custom_op("words::s", as_it_is, mutates_args=(), schema="(Array y) -> Array")'
    ),
    "schema, written": (
        'co.custom_op("words::s", as_it_is, mutates_args=(),'
        ' schema="(Array(a!) x) -> Array")'
    ),
    "shape": 'def f(x: Annotated[co.Array, "m,k"]) -> np.ndarray: ...',
    "shape of items": (
        'def f(x: list[Annotated[np.ndarray, "m k-"] | None]) -> np.ndarray: ...'
    ),
    "shape of a result": 'def f(x: np.ndarray) -> Annotated[np.ndarray, "... *b"]: ...',
    "shape, twice": (
        'def f(x: Annotated[Annotated[np.ndarray, "m"], "k"]) -> np.ndarray: ...'
    ),
    "shape of an alias": "def f(x: Misshapen) -> np.ndarray: ...",
    "shape, sum": 'def f(x: Annotated[np.ndarray, "m+k"]) -> np.ndarray: ...',
    "shape, elements": (
        'co.custom_op("words::s", of_floats, mutates_args=(),'
        ' schema="(float32[m,n] x) -> Array")'
    ),
    "shape, schema": (
        'co.custom_op("words::s", of_floats, mutates_args=(),'
        ' schema="(float64[m,k] x) -> Array")'
    ),
    "shape, tag": (
        'co.custom_op("words::s", of_floats, mutates_args=(), tags=co.Tag.pointwise)'
    ),
    "define, shape": 'co.define("words::d", "(Array[m+k] x) -> Array")',
    "define, type": 'co.define("words::d", "(Array x, flot k) -> Array")',
    "define, name": 'co.define("words::d", "d(Array x) -> Array")',
    "library": 'co.Library("words", "FRAGMENT").define("d(Array x) -> ")',
    "library, name": 'co.Library("words", "FRAGMENT").define("ns::d(Array x) -> Array")',
    "tags": (
        'co.custom_op("words::t", as_it_is, mutates_args=(),'
        " tags=[co.Tag.inplace, co.Tag.out])"
    ),
    "inplace": (
        'co.custom_op("words::t", as_it_is, mutates_args=(), tags=co.Tag.inplace)'
    ),
    "factory": (
        'co.custom_op("words::z", lambda n: np.zeros(n), mutates_args=(),'
        ' device_types="cpu", schema="(int n) -> Array")'
    ),
    "kernel, name": 'gauss.register_kernel("cuda", lambda x, widht: x)',
    "kernel, number": 'gauss.register_kernel(("cpu", "cuda"), lambda x: x)',
    "kernel, default": "gauss.register_kernel(None, lambda x: x)",
    "kernel, keyword": 'shifted.register_kernel("cpu", lambda x: x)',
    "kernel, other keyword": 'shifted.register_kernel("cpu", lambda x, *, yb: x)',
    "kernel, fake": 'gauss.register_kernel("fake", lambda x, width: x)',
    "kernel, by name": (
        'co.register_kernel("mypy_plugin::gauss", "cpu", lambda x, y: x)'
    ),
    "fake": "gauss.register_fake(lambda x: x)",
    "fake, too many": "gauss.register_fake(lambda x, width, k: x)",
    "impl": 'co.impl("mypy_plugin::gauss", "Meta", lambda x: x)',
    "library impl": (
        'co.Library("mypy_plugin", "IMPL", "CUDA").impl("gauss", lambda x: x)'
    ),
    "backward": "shifted.register_autograd(lambda ctx, g: g)",
    "backward of one that writes": "fill.register_autograd(lambda ctx, g: g)",
    "setup": (
        "gauss.register_autograd(lambda ctx, g: g,"
        " setup_context=lambda ctx, input, output: None)"
    ),
    "setup with keywords": (
        "shifted.register_autograd(lambda ctx, g, h: g,"
        " setup_context=lambda ctx, inputs, output: None)"
    ),
    "vmap": "gauss.register_vmap(lambda info, in_dims, x, k: (x, 0))",
    "vmap, number": "gauss.register_vmap(lambda info, x, width: (x, 0))",
    "jvp": "gauss.register_jvp(lambda primals, tangents, *, by: primals)",
    "jvp, keyword": "shifted.register_jvp(lambda primals, tangents: primals)",
    "rule": "gauss.register(kind, lambda out, x, k: out)",
    "rule, keyword": "shifted.register(kind, lambda out, x: out)",
}
if sys.version_info >= (3, 12):  # the syntax is one of that version
    MISTAKES |= {
        "variable, in brackets": "def f[T](x: T) -> np.ndarray: ...",
        "variable, of options": "def f[T: (int, str)](x: T) -> np.ndarray: ...",
        "alias": "def f(x: Table) -> np.ndarray: ...",
        "alias with a shape": "def f(x: np.ndarray) -> Row: ...",
    }


def _snippet(name: str, text: str) -> str:
    """The statements of a mistake, with a decorator above a bare function."""
    if text.startswith("def "):
        return f'@co.custom_op("words::f", mutates_args=())\n{text}\n'
    return f"{text}\n"


def _at_run_time(name: str, text: str) -> tuple[str, str]:
    """The message and the remedy of the error that a mistake raises."""
    module = ModuleType("mypy_words")
    sys.modules["mypy_words"] = module
    exec(compile(PRELUDE, "mypy_words.py", "exec"), vars(module))
    with pytest.raises(co.CustomOpError) as caught:
        exec(compile(_snippet(name, text), "mypy_words.py", "exec"), vars(module))
    return caught.value.what, caught.value.do


@pytest.fixture(scope="module")
def words(
    tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> dict[str, list[str]]:
    """The lines that mypy prints for each mistake, each in a function of its own."""
    folder = tmp_path_factory.mktemp("words")
    _write(folder, {"mypy.ini": CONFIG})
    text, starts = PRELUDE, {}
    for name, mistake in MISTAKES.items():
        starts[len(text.splitlines()) + 1] = name
        inside = textwrap.indent(_snippet(name, mistake), "    ")
        text += f"def mistake_{len(starts)}() -> None:\n{inside}\n"
    (folder / "mypy_words.py").write_text(text)
    said: dict[str, list[str]] = {name: [] for name in MISTAKES}
    for line in _run(folder, cache, "mypy_words.py"):
        found = _LINE.fullmatch(line)
        assert found is not None, line
        start = max(start for start in starts if start <= int(found["line"]))
        said[starts[start]].append(found["text"])
    return said


@pytest.mark.parametrize("name", MISTAKES)
def test_mypy_says_what_the_program_says(name, words):
    """The plugin reports the message and the remedy of the run-time error."""
    what, do = _at_run_time(name, MISTAKES[name])
    texts = [re.sub(r"  \[customop-\w+\]$", "", text) for text in words[name]]
    assert [text for text in texts if text in (what, f"do: {do}")] == [
        what,
        f"do: {do}",
    ]
    others = [text for text in words[name] if "customop-" in text]
    assert len(others) == 1


# ---- codes ----


def _documented() -> dict[str, str]:
    """Code -> its example, from the docstring of the plugin."""
    found = {}
    parts = re.split(
        r"^(customop-\w+)\n", customop.mypy.__doc__ or "", flags=re.MULTILINE
    )
    for code, text in zip(parts[1::2], parts[2::2], strict=True):
        example = text.partition("::\n\n")[2].partition("\n\nTypes\n")[0]
        found[code] = textwrap.dedent(example)
    return found


EXAMPLES = _documented()


def test_all_codes_are_documented():
    """The docstring of the plugin has its codes, and no others."""
    from mypy.errorcodes import error_codes  # noqa: PLC0415  # optional

    registered = {code for code in error_codes if code.startswith("customop-")}
    assert set(EXAMPLES) == registered


def test_documented_examples_are_refused(tmp_path, cache):
    """The plugin reports the code of each example in its docstring, and nothing else."""
    _write(tmp_path, {"mypy.ini": CONFIG})
    names = {}
    for code, text in EXAMPLES.items():
        names[code.replace("-", "_") + ".py"] = code
        path = tmp_path / f"{code.replace('-', '_')}.py"
        path.write_text(PRELUDE.replace("mypy_plugin::", f"{path.stem}::") + text)
    said = {code: set() for code in EXAMPLES}
    for line in _run(tmp_path, cache, *names):
        found = _LINE.fullmatch(line)
        assert found is not None, line
        if found["level"] == "error":
            said[names[found["file"]]].add(found["text"].rpartition("[")[2].strip("]"))
    assert said == {code: {code} for code in EXAMPLES}


WRONG = """\
import numpy as np
import customop as co
@co.custom_op("mypy_codes::{name}", mutates_args=())
def f(x: np.ndarray, k: bytes) -> np.ndarray:{comment}
    return x
"""


# File -> start of its text, and how often mypy reports the code.
TURNED_OFF = {
    "as_it_is.py": ("", 1),
    "by_config.py": ("", 0),
    "by_comment.py": ('# mypy: disable-error-code="customop-schema"\n', 0),
    "by_line.py": ("# mypy: warn-unused-ignores\n", 0),
}


@pytest.fixture(scope="module")
def turned_off(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> list[str]:
    """The lines that mypy prints for a mistake whose code is turned off in each way.

    The options are those of one module; global ones would make mypy read NumPy again.
    """
    folder = tmp_path_factory.mktemp("off")
    by_config = "[mypy-by_config]\ndisable_error_code = customop-schema\n"
    files = {"mypy.ini": CONFIG + by_config}
    for name, (start, _) in TURNED_OFF.items():
        is_here = name == "by_line.py"
        comment = "  # type: ignore[customop-schema]" if is_here else ""
        text = WRONG.format(comment=comment, name=name.removesuffix(".py"))
        files[name] = start + text
    _write(folder, files)
    return _run(folder, cache, *TURNED_OFF)


@pytest.mark.parametrize("name", TURNED_OFF)
def test_a_code_can_be_turned_off(name, turned_off):
    """An option, a comment in a file and one on a line turn a code off."""
    said = [line for line in _errors(turned_off) if line.startswith(name)]
    assert len(said) == TURNED_OFF[name][1]
    assert all(line.endswith("[customop-schema]") for line in said)


@pytest.mark.parametrize("code", EXAMPLES)
def test_options_of_all_modules_know_the_codes(code):
    """The global ``disable_error_code`` knows each code once the plugin is loaded."""
    from mypy.options import Options  # noqa: PLC0415  # optional

    options = Options()
    options.disable_error_code = [code]
    refused: list[str] = []
    options.process_error_codes(error_callback=refused.append)
    assert (refused, [found.code for found in options.disabled_error_codes]) == (
        [],
        [code],
    )


# ---- warm runs ----

OPERATORS = """\
import numpy as np
import customop as co

@co.custom_op("mypy_warm::scale", mutates_args=())
def scale(x: np.ndarray, {k}: {type}) -> {result}:
    raise NotImplementedError
"""
PLAIN = {"k": "k", "type": "float", "result": "np.ndarray"}
RULES = """\
import numpy as np
import customop as co
from operators import scale

@scale.register_fake
def _(x: co.FakeArray, k: float) -> co.FakeArray:
    return x
"""
BY_NAME = """\
import numpy as np
import customop as co
import package

co.register_kernel("mypy_warm::scale", "cpu", lambda x, k: x)
result: np.ndarray = co.ops.mypy_warm.scale(np.ones(2), 2.0)
"""
OTHER = """\
import numpy as np
import customop as co

@co.custom_op("mypy_warm::{name}", mutates_args=())
def other(x: np.ndarray) -> np.ndarray:
    return x
"""
MAIN = """\
import numpy as np
import operators
import other

other.other(np.ones(2))
"""
START = {
    "operators.py": OPERATORS.format(**PLAIN),
    "rules.py": RULES,
    "package.py": "import operators as operators\n",
    "by_name.py": BY_NAME,
    # The text gets another length later: the daemon compares sizes and seconds.
    "other.py": OTHER.format(name="another"),
    "main.py": MAIN,
}
# Name of an edit, the files, and the number of errors that follow.
EDITS: list[tuple[str, dict[str, str], int]] = [
    ("nothing", {}, 0),
    ("a name", {"operators.py": OPERATORS.format(**{**PLAIN, "k": "factor"})}, 2),
    ("back", {"operators.py": START["operators.py"]}, 0),
    ("types", {"operators.py": OPERATORS.format(k="k", type="int", result="float")}, 3),
    ("a taken name", {"other.py": OTHER.format(name="scale")}, 4),
    ("comments", {"by_name.py": BY_NAME + "# more\n", "main.py": MAIN + "#\n"}, 4),
    ("all back", START, 0),
]


@pytest.fixture(scope="module")
def cold(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The lines that mypy prints after each edit if it sees all files the first time."""
    said = []
    known: dict[str, list[str]] = {}
    folder = tmp_path_factory.mktemp("cold")
    _write(folder, {"mypy.ini": CONFIG, **START})
    for _, files, _ in EDITS:
        _write(folder, files)
        state = "".join((folder / name).read_text() for name in START)
        if state not in known:
            new = tmp_path_factory.mktemp("new") / "cache"
            shutil.copytree(cache, new)
            known[state] = sorted(_run(folder, new, *START))
        said.append(known[state])
    return said


def test_cold_runs_see_the_edits(cold):
    """The edits make mistakes that the plugin finds, and repair them."""
    assert [len(_errors(said)) for said in cold] == [count for _, _, count in EDITS]


def test_warm_runs_say_what_cold_runs_say(folder, cold):
    """A run with a warm cache prints the same after each edit as a cold run."""
    _write(folder, START)
    for (what, files, _), expected in zip(EDITS, cold, strict=True):
        _write(folder, files)
        said = sorted(_run(folder, folder / "cache", *START))
        assert (what, said) == (what, expected)


def test_the_daemon_says_what_cold_runs_say(folder, cold):
    """The daemon, which checks changed modules only, prints the same as a cold run."""
    _write(folder, START)
    status = f"--status-file={folder / 'status.json'}"
    options = (
        f"--config-file={folder / 'mypy.ini'}",
        f"--cache-dir={folder / 'cache'}",
        "--no-error-summary",
    )

    def run(*arguments: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "mypy.dmypy", status, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )

    try:
        for (what, files, _), expected in zip(EDITS, cold, strict=True):
            _write(folder, files)
            done = run("run", "--", *options, *START)
            said = [line for line in done.stdout.splitlines() if _LINE.match(line)]
            assert (what, sorted(said)) == (what, expected), done.stdout + done.stderr
    finally:
        run("stop")
