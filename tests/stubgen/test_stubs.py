"""Stubs of `ops`: their text, and the errors that mypy and pyright find with them.

``opstubs`` has a module of operators, its stub, and right and wrong calls. The expected
error of a wrong call stands beside it or below.
"""

from __future__ import annotations

import ast
import enum
import importlib.util
import inspect
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, overload

import numpy as np
import pytest

import customop as co
from customop.cli import main
from customop.library.ops import Namespaces
from customop.stubgen.stubs import check_stubs, stubs_text, write_stubs

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "opstubs"
FILES = ["right.py", "wrong.py"]
# Files of the stubs: the module of `ops`, and the packages around it.
OPS = f"{Namespaces.__module__.replace('.', '/')}.pyi"
WRITTEN = ["customop/__init__.pyi", str(Path(OPS).parent / "__init__.pyi"), OPS]

# Line -> codes, sorted.
Said = dict[int, str]


@pytest.fixture(autouse=True)
def signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the module of operators importable, as in the folder of a user."""
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder with the stubs of the module, beside it and those who call it."""
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    write_stubs(["signals"], tmp_path / "typings")
    return tmp_path / "typings"


# ---- the files ----


def test_the_stubs_are_those_that_would_be_written(stubs: Path) -> None:
    """The checked-in stub is the one that the command writes."""
    written = (stubs / OPS).read_text()
    assert written == (FOLDER / "ops.pyi").read_text()


def test_writing_again_changes_nothing(stubs: Path) -> None:
    """Stubs do not depend on imported modules or earlier stubs."""
    found = {path: path.read_text() for path in stubs.rglob("*.pyi")}
    assert {path.relative_to(stubs).as_posix() for path in found} == {*WRITTEN}
    assert check_stubs(["signals"], stubs) == ""
    write_stubs(["signals"], stubs)
    assert {
        path: path.read_text() for path in stubs.rglob("*") if path.is_file()
    } == found


@pytest.mark.exhaustive
def test_stubs_are_formatted(stubs: Path) -> None:
    """The stubs are as ruff formats them."""
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", str(stubs)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_package_keeps_all_its_names(stubs: Path) -> None:
    """In the folder of stubs, customop has every public name."""
    tree = ast.parse((stubs / "customop" / "__init__.pyi").read_text())
    imported = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(imported) == sorted(co.__all__)
    for name, module in imported.items():
        public = getattr(co, name)  # imports a module that is a name itself
        assert getattr(importlib.import_module(str(module)), name) is public


def _functions(text: str) -> dict[str, ast.FunctionDef]:
    found = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    return {node.name: node for node in found}


def test_every_operator_of_numpy_has_its_parameters() -> None:
    """Names, kinds and defaults in a stub are those of the signature, for every np op."""
    functions = _functions(stubs_text(["np"])[OPS])
    names = dir(co.ops.np)
    assert len(names) > 100
    for name in names:
        node = functions[f"_np__{name}"].args
        signature = inspect.signature(getattr(co.ops.np, name).default.call)
        parameters = signature.parameters.values()
        kinds = {kind: [p for p in parameters if p.kind is kind] for kind in KINDS}
        stub = [*node.posonlyargs, *node.args]
        of_stub = [stub[: len(node.posonlyargs)], node.args, node.kwonlyargs]
        for kind, arguments in zip(KINDS, of_stub, strict=True):
            assert [a.arg for a in arguments] == [p.name for p in kinds[kind]], name
        optional = [p.name for p in parameters if p.default is not p.empty]
        with_default = stub[len(stub) - len(node.defaults) :]
        pairs = zip(node.kwonlyargs, node.kw_defaults, strict=True)
        with_default += [a for a, default in pairs if default is not None]
        assert [a.arg for a in with_default] == optional, name


KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


# ---- the text ----


def _line(space: str, start: str) -> str:
    lines = stubs_text([space])[OPS].splitlines()
    return next(line for line in lines if line.startswith(start))


def test_narrower_numbers_come_first() -> None:
    """A checker takes the first overload that fits: int before float before Scalar."""
    for name, scalar in [("any", "Scalar"), ("real", "float"), ("int", "int")]:
        co.define(f"opstubs_order::f.{name}", f"(Array x, {scalar} k) -> Array")
    co.define("opstubs_order::f", "(Array x, Array k) -> Array")
    text = stubs_text(["opstubs_order"])[OPS]
    calls = re.findall(r"    def __call__\(self, /, x: Array, k: (\w+)\)", text)
    assert calls == ["int", "float", "Scalar", "Array"]


def test_overloads_of_a_function() -> None:
    """The call has the overloads of the function; the operator has its parameters."""

    @overload
    def f(x: np.ndarray, /, *, k: int) -> list[np.ndarray]: ...
    @overload
    def f(x: np.ndarray, k: None = ...) -> list[np.ndarray]: ...
    def f(x: np.ndarray, k: int | None = None) -> list[np.ndarray]:
        return [x]

    co.custom_op("opstubs_overloads::f", f, mutates_args=())
    text = stubs_text(["opstubs_overloads"])[OPS]
    calls = re.findall(r"    @overload\n    def __call__(.*)", text)
    result = "list[numpy.ndarray]: ..."
    assert calls == [
        f"(self, x: numpy.ndarray, /, *, k: int) -> {result}",
        f"(self, /, x: numpy.ndarray, k: None = None) -> {result}",
    ]
    taken = "x: numpy.ndarray, k: int | None = None,"
    assert f"_opstubs_overloads__f__default( {taken} )" in " ".join(text.split())


def test_names_that_stubs_use_themselves() -> None:
    """A namespace may have a name that the stub uses itself."""
    for space in ("single", "opstubs", "opstubs__f"):
        co.define(f"{space}::f__f", "(Array x) -> Array")
    text = stubs_text(["single", "opstubs", "opstubs__f"])[OPS]
    defined = re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE)
    assert len(defined) == len(set(defined))
    assert "def single(self) -> _single_: ..." in text


def test_keywords() -> None:
    """Only names that cannot follow a dot are left out."""
    co.define("opstubs_words::f.in", "(Array x) -> Array")
    co.define("opstubs_words::f.out", "(Array x, int k) -> Array")
    text = stubs_text(["opstubs_words"])[OPS]
    rows = re.findall(r"^    (\w+): Final = ", text, re.MULTILINE)
    assert rows == ["out", "f"]
    ast.parse(text)


def test_no_such_namespace() -> None:
    """A namespace without operators is an error with a remedy."""
    with pytest.raises(co.UnknownNameError) as caught:
        stubs_text(["np", "nope", "neither"])
    assert str(caught.value) == (
        "stubs: no operators in the namespace 'neither', 'nope'\n"
        "  do: first import the module that defines them"
    )


def test_a_local_class_is_any() -> None:
    """A stub cannot name a class within a function, and writes Any."""

    class Local(enum.Enum):
        A = "a"

    def f(x: Any, mode: Any = Local.A) -> Any: ...

    f.__annotations__ = {"x": np.ndarray, "mode": Local, "return": np.ndarray}
    co.custom_op("opstubs_local::f", f, mutates_args=())
    assert _line("opstubs_local", "def _opstubs_local__f") == (
        "def _opstubs_local__f(x: numpy.ndarray, mode: Any = ...) -> numpy.ndarray: ..."
    )


def test_a_hint_that_cannot_be_evaluated() -> None:
    """Other hints are kept if a name in one of them no longer exists."""
    spaces: dict[str, Any] = {"co": co, "np": np}
    text = """
from __future__ import annotations
def make():
    Real = float
    @co.custom_op("opstubs_gone::f", mutates_args=())
    def f(x: np.ndarray, k: Real) -> np.ndarray: ...
make()
"""
    exec(text, spaces)
    assert _line("opstubs_gone", "def _opstubs_gone__f") == (
        "def _opstubs_gone__f(x: numpy.ndarray, k: float) -> numpy.ndarray: ..."
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax came with 3.12")
def test_type_parameters() -> None:
    """A type parameter of a function becomes a type variable of the stub."""
    names: dict[str, Any] = {"co": co}
    text = """
@co.custom_op("opstubs_695::f", mutates_args=())
def f[A: co.Array](x: A, k: float = 1.0) -> A: ...
"""
    exec(text, names)
    assert _line("opstubs_695", "def _opstubs_695__f") == (
        "def _opstubs_695__f(x: _A, k: float = 1.0) -> _A: ..."
    )
    assert _line("opstubs_695", "_A =") == '_A = TypeVar("_A", bound=Array)'


# ---- the command ----


def test_the_command_writes_and_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check shows differences and exits with 1; after writing it exits with 0."""
    command = ["stubs", "signals", "--out", str(tmp_path)]
    assert main(command) == 0
    path = tmp_path / OPS
    shown = [str(tmp_path / name) for name in WRITTEN]
    assert capsys.readouterr().out.splitlines() == shown
    path.write_text(path.read_text().replace("factor: float = 2.0", "factor: int = 2"))
    assert main([*command, "--check"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if re.match(r"[+-]\S", line)] == [
        f"--- {path}",
        f"+++ {path}, up to date",
        "-def _signals__scale(x: ArrayT, factor: int = 2) -> ArrayT: ...",
        "+def _signals__scale(x: ArrayT, factor: float = 2.0) -> ArrayT: ...",
    ]
    assert out[-1] == f"to update them: customop stubs signals --out {tmp_path}"
    main(command)
    capsys.readouterr()
    assert main([*command, "--check"]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_command_tells_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json the command prints one document, of written files or differences."""
    command = ["stubs", str(FOLDER / "signals.py"), "--out", str(tmp_path), "--json"]
    assert main([*command, "--check"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["written"] == []
    assert found["differences"].startswith(f"--- {tmp_path / 'customop'}")
    assert main(command) == 0
    written = [str(tmp_path / name) for name in WRITTEN]
    expected = {"written": written, "differences": ""}
    assert json.loads(capsys.readouterr().out) == expected


def test_a_module_without_operators_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command exits with 2 and writes nothing."""
    assert main(["stubs", "json", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(
        "customop: error: stubs: json defines no operator\n  do: name the module"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_check_of_nothing_shows_all(tmp_path: Path) -> None:
    """A check without stubs shows every line and writes nothing."""
    difference = check_stubs(["signals"], tmp_path)
    assert difference.count("\n+") > 150
    assert [*tmp_path.iterdir()] == []


def test_several_modules_share_the_stubs(stubs: Path) -> None:
    """One file has the namespaces of all modules, and names the modules."""
    found = check_stubs(["signals", "customop.numpy"], stubs)
    assert "+    def np(self) -> _np: ..." in found
    assert "+# Written by `python -m customop stubs signals customop.numpy`." in found


def test_no_such_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing module is an error; so is a missing import of a module, its own one."""
    with pytest.raises(co.UnknownNameError) as caught:
        write_stubs(["signal5"], tmp_path)
    assert str(caught.value) == (
        "stubs: there is no module 'signal5' (did you mean 'signal'?)\n"
        "  do: run the command where the module can be imported, or set PYTHONPATH"
    )
    (tmp_path / "opstubs_lacking.py").write_text("import opstubs_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="opstubs_not_there"):
        write_stubs(["opstubs_lacking"], tmp_path)


def test_no_operators(tmp_path: Path) -> None:
    """The error for a module without operators names modules that have some."""
    with pytest.raises(co.UnknownNameError) as caught:
        write_stubs(["json"], tmp_path)
    assert str(caught.value).startswith(
        "stubs: json defines no operator\n"
        "  do: name the module that calls custom_op, such as '"
    )


# ---- mypy and pyright ----


def _run(checker: str, stubs: Path, *arguments: str) -> str:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    paths = os.pathsep.join([str(stubs), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", checker, *arguments],
        cwd=stubs.parent,
        env={**os.environ, "MYPYPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


# Packages that NumPy or this one can use; mypy would take 13 s for their 2,500 files.
SKIPPED = """\
[mypy]
[mypy-torch.*,jax.*,jaxlib.*,ml_dtypes.*,scipy.*,sklearn.*,matplotlib.*,PIL.*]
follow_imports = skip
"""


def _by_mypy(stubs: Path) -> dict[str, Said]:
    settings = stubs.parent / "mypy.ini"
    settings.write_text(SKIPPED)
    options = ["--strict", "--warn-unreachable", "--no-pretty", "--no-error-summary"]
    options += [f"--config-file={settings}", f"--cache-dir={stubs.parent / 'cache'}"]
    found: dict[str, dict[int, set[str]]] = {}
    for text in _run("mypy", stubs, *options, *FILES).splitlines():
        name, line, level, rest = (part.strip() for part in text.split(":", 3))
        if level == "error":
            lines = found.setdefault(name, {})
            lines.setdefault(int(line), set()).add(rest[rest.rindex("[") + 1 : -1])
    return _sorted(found)


def _by_pyright(stubs: Path) -> dict[str, Said]:
    settings = stubs.parent / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [*FILES, "typings"],
                "typeCheckingMode": "strict",
                "extraPaths": [str(ROOT)],
                # Unknown types follow from the errors that are expected.
                "reportUnknownMemberType": "none",
            }
        )
    )
    output = _run("pyright", stubs, "--outputjson", "--pythonpath", sys.executable)
    report = json.loads(output[output.index("{") :])
    # The stubs are among the files, so they pass the strict rules too.
    assert report["summary"]["filesAnalyzed"] == len(FILES) + len(WRITTEN)
    found: dict[str, dict[int, set[str]]] = {}
    for said in report["generalDiagnostics"]:
        lines = found.setdefault(Path(said["file"]).name, {})
        line = said["range"]["start"]["line"] + 1
        lines.setdefault(line, set()).add(said.get("rule") or said["message"])
    return _sorted(found)


def _sorted(found: dict[str, dict[int, set[str]]]) -> dict[str, Said]:
    return {
        name: {line: ", ".join(sorted(codes)) for line, codes in lines.items()}
        for name, lines in found.items()
    }


def _expected(checker: str) -> dict[str, Said]:
    """The errors that comments expect, by the line of the call."""
    found: Said = {}
    for number, line in enumerate((FOLDER / "wrong.py").read_text().splitlines(), 1):
        beside = re.search(r"# mypy: (?P<mypy>.+?)  pyright: (?P<pyright>.+)$", line)
        if beside is not None:
            found[number - line.strip().startswith("#")] = beside[checker]
    return {"wrong.py": found}


@pytest.mark.exhaustive
def test_mypy_reads_the_stubs(stubs: Path) -> None:
    """Without the plugin, mypy --strict accepts right calls and no wrong one."""
    assert _by_mypy(stubs) == _expected("mypy")


@pytest.mark.exhaustive
def test_pyright_reads_the_stubs(stubs: Path) -> None:
    """In strict mode, pyright accepts right calls and no wrong one."""
    assert _by_pyright(stubs) == _expected("pyright")


def test_right_calls_run() -> None:
    """The calls that the checkers accept run."""
    runpy.run_path(str(FOLDER / "right.py"))
