"""The plugin for mypy: messages and codes.

The files in tests/typing/plugin have errors of every code, line by line.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import customop as co

if importlib.util.find_spec("mypy") is None:
    pytest.skip("mypy is not installed", allow_module_level=True)

import customop.mypy
from tests.mypy.program import CONFIG, LINE, PRELUDE, errors, run, write

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("mypy")]

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
    "kernel, gpu": 'gauss.register_kernel("gpu", lambda x, width: x)',
    "gpu": 'co.custom_op("words::g", as_it_is, mutates_args=(), device_types="gpu")',
    "plain class": "def f(x: Plain) -> np.ndarray: ...",
    "schema, other type": (
        'co.custom_op("words::s", as_it_is, mutates_args=(), schema="(str x) -> Array")'
    ),
    "schema, result": (
        'co.custom_op("words::s", as_it_is, mutates_args=(),'
        ' schema="(Array x) -> (Array, Array)")'
    ),
    "overload, type": """\
@overload
def f(x: np.ndarray, k: int) -> np.ndarray: ...
@overload
def f(x: np.ndarray, k: str) -> np.ndarray: ...
@co.custom_op("words::f", mutates_args=())
def f(x: np.ndarray, k: int) -> np.ndarray: ...
""",
    "overload, name": """\
@overload
def f(x: np.ndarray) -> np.ndarray: ...
@overload
def f(y: np.ndarray, k: int) -> np.ndarray: ...
def f(x: np.ndarray, k: int = 0) -> np.ndarray: ...
co.custom_op("words::f", f, mutates_args=())
""",
    "argnums": "co.grad(as_it_is, 1)(np.ones(2))",
    "in_dims": "co.vmap(as_it_is, (0, 0))(np.ones(2))",
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
    write(folder, {"mypy.ini": CONFIG})
    text, starts = PRELUDE, {}
    for name, mistake in MISTAKES.items():
        starts[len(text.splitlines()) + 1] = name
        inside = textwrap.indent(_snippet(name, mistake), "    ")
        text += f"def mistake_{len(starts)}() -> None:\n{inside}\n"
    (folder / "mypy_words.py").write_text(text)
    said: dict[str, list[str]] = {name: [] for name in MISTAKES}
    for line in run(folder, cache, "mypy_words.py"):
        found = LINE.fullmatch(line)
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
    write(tmp_path, {"mypy.ini": CONFIG})
    names = {}
    for code, text in EXAMPLES.items():
        names[code.replace("-", "_") + ".py"] = code
        path = tmp_path / f"{code.replace('-', '_')}.py"
        path.write_text(PRELUDE.replace("mypy_plugin::", f"{path.stem}::") + text)
    said = {code: set() for code in EXAMPLES}
    for line in run(tmp_path, cache, *names):
        found = LINE.fullmatch(line)
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
    write(folder, files)
    return run(folder, cache, *TURNED_OFF)


@pytest.mark.parametrize("name", TURNED_OFF)
def test_a_code_can_be_turned_off(name, turned_off):
    """An option, a comment in a file and one on a line turn a code off."""
    said = [line for line in errors(turned_off) if line.startswith(name)]
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
