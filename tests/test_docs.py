"""The documents are true: their code runs, their names and links exist."""

from __future__ import annotations

import ast
import codeop
import doctest
import importlib
import importlib.util
import inspect
import itertools
import linecache
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

import customop as co
from customop.cli import COMMANDS
from customop.cli import main as command_line
from customop.pytest import plugin
from customop.testing.checks.check_jobs import CHECKS
from tests import numpy_functions
from tests.benchmarks import pages as benchmark_pages

ROOT = Path(__file__).parent.parent
FLAGS = doctest.ELLIPSIS


def modules() -> list[Any]:
    """Return the modules of the package; those of the mypy plugin import mypy."""
    # By their files: packages of bridges register kinds of array when they are imported.
    root = Path(co.__file__).parent
    files = [
        path.relative_to(root.parent).with_suffix("") for path in root.rglob("*.py")
    ]
    names = sorted(".".join(path.parts).removesuffix(".__init__") for path in files)
    names.remove("customop")
    others = []  # of libraries that come with the extra 'dev'
    for package, other in (
        ("mypy", "mypy"),
        ("scipy", "scipy"),
        ("interop.dask", "dask.array"),
        ("interop.torch", "torch"),
        ("interop.jax", "jax"),
        ("interop.xarray", "xarray"),
        ("interop.numba", "numba"),
    ):
        of_package = [n for n in names if n.startswith(f"customop.{package}")]
        names = [name for name in names if name not in of_package]
        if importlib.util.find_spec(other) is not None:
            others += of_package
    marked = [pytest.param(name, marks=pytest.mark.exhaustive) for name in others]
    return ["customop", *names, *marked]


settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(autouse=True)
def _busy_machine() -> Iterator[None]:
    """Let hypothesis take its time, where other tests run on the same machine."""
    before = settings.get_current_profile_name()
    settings.load_profile("busy")
    yield
    settings.load_profile(before)


def run_doctest(test: doctest.DocTest) -> list[str]:
    """Run one doctest; return the report of each failure."""
    said: list[str] = []
    if test.examples:
        with mock.patch.object(linecache, "checkcache", _check_one):
            doctest.DocTestRunner(optionflags=FLAGS).run(
                test, out=said.append, clear_globs=False
            )
    return said


def _check_one(filename: str | None = None) -> None:
    """Do what `linecache.checkcache` does, for one file alone.

    Its debugger lets each doctest ask for the times of all files that were ever read: 15 ms
    at the end of a run.
    """
    if filename is not None:
        _CHECK_CACHE(filename)


_CHECK_CACHE = linecache.checkcache


# ---- pages: README.md, the index of the examples, and the guide ----

# Pages that a build of the site makes of the others.
_MADE = ("api", "gallery", "guide")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md")))
    if path.parent not in [ROOT / "examples" / "site" / name for name in _MADE]
}
page = pytest.mark.parametrize("page", PAGES)
# Pages whose code needs another library, which the exhaustive tests have.
_OTHERS = {
    f"examples/guide/{name}.md": name
    for name in ("scipy", "torch", "xarray", "jax", "numba")
}
# Pages that take a second each: the exhaustive tests run them once, with their operators.
_SLOW = ("examples/site/tutorial.md", "examples/guide/checking.md")
# Blocks of the tutorial that import one of these may be left out.
TUTORIAL = "examples/site/tutorial.md"
_OPTIONAL = ("matplotlib", "numba", "torch", "jax", "dask")
# Of torch itself, where it is first imported.
torch_warns = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

# How each language of a code block is checked.
LANGUAGES = {
    "python": "runs; all blocks of a page share their names",
    "pycon": "runs, and its output is compared",
    "console": "commands run in a folder with the files of the page",
    "sh": "commands and options exist",
    "py": "a file of the page, which the commands use",
    "toml": "the same; a package of that pyproject.toml is installed",
    "ini": "the same",
}


class Block(NamedTuple):
    """A block of code: its language, a file name or "", its text and its line."""

    language: str
    file: str
    text: str
    line: int


def blocks(page: str, *languages: str) -> Iterator[Block]:
    """Yield the blocks of a page in these languages, or in all."""
    text = PAGES[page]
    fences = r"^```(\w+)(?: +(\S+))?\n(.*?)^```$"
    for found in re.finditer(fences, text, re.MULTILINE | re.DOTALL):
        language, file, code = found.groups()
        if language in languages or not languages:
            line = text[: found.start(3)].count("\n")
            yield Block(language, file or "", code, line)


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a page in an empty folder, and put back the settings that it changes."""
    monkeypatch.chdir(tmp_path)
    for name in ("checks", "aliasing", "sample_checks", "sample_seed", "on_failure"):
        monkeypatch.setattr(co.config, name, getattr(co.config, name))


def is_optional(page: str, block: Block) -> bool:
    """Whether readers may leave out a block, as it needs a library that they may lack."""
    imported = re.findall(r"^(?:import|from) (\w+)", block.text, re.MULTILINE)
    return page == TUTORIAL and not {*_OPTIONAL}.isdisjoint(imported)


def run_page(page: str) -> dict[str, Any]:
    """Run the Python code of a page, compare its output, and return its names."""
    if page in _OTHERS:
        pytest.importorskip(_OTHERS[page], reason=f"{_OTHERS[page]} is not installed")
    with _bits_of(page):
        return _names_of(page)


def _bits_of(page: str) -> AbstractContextManager[Any]:
    """JAX with 32 bits, as it begins: other tests may have set more."""
    if page not in _OTHERS or _OTHERS[page] != "jax":
        return nullcontext()
    found: AbstractContextManager[Any] = importlib.import_module("jax").enable_x64(
        False
    )
    return found


def _names_of(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    path = str(ROOT / page)
    for block in blocks(page, "python", "pycon"):
        if is_optional(page, block):
            continue
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, path, "exec"), names)
        else:
            parser = doctest.DocTestParser()
            test = parser.get_doctest(block.text, names, page, path, block.line)
            assert run_doctest(test) == []
            names = test.globs
    return names


@torch_warns
@pytest.mark.parametrize("page", [p for p in PAGES if p not in {*_OTHERS, *_SLOW}])
@pytest.mark.usefixtures("_folder", "own_kinds_here")
def test_code_runs(page: str) -> None:
    """Python code runs from the top of a page to its end, and prints what is shown."""
    run_page(page)


@pytest.mark.exhaustive
def test_the_tutorial_is_a_file(tmp_path: Path) -> None:
    """Its blocks without `>>>`, one after the other, are a program, and draw its pictures."""
    for library in _OPTIONAL:
        pytest.importorskip(library, reason=f"{library} is in the extra 'dev'")
    code = "\n\n".join([block.text for block in blocks(TUTORIAL, "python")])
    (tmp_path / "photo.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "photo.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("photo::smooth(f64[96, 96], 0.05)\n")
    shown = re.findall(r"\]\(pictures/(\w+\.png)\)", PAGES[TUTORIAL])
    assert {path.name for path in tmp_path.glob("*.png")} == set(shown)


# Operators with a mistake that a page shows.
WRONG = {
    "errors::grow",
    "errors::same",
    "mylib::decay",
    "checking::price",
    "checking::head",
    "schema::forgot",
    "photo::brighten",
}


@torch_warns
@page
@pytest.mark.exhaustive
@pytest.mark.usefixtures("_folder", "own_kinds_here")
def test_operators_pass_opcheck(page: str) -> None:
    """Code runs, as above, and every operator passes opcheck, fake kernel or not."""
    for op in run_page(page).values():
        if isinstance(op, co.Operator) and op.qualname not in WRONG:
            result = co.opcheck(op, raise_exception=False)
            mistakes = [str(result[check]) for check in result.failed]
            assert [m for m in mistakes if "has no fake kernel" not in m] == []


@page
def test_sessions_can_be_pasted(page: str) -> None:
    """At Python's prompt an empty line ends a `def`, so one stands last in its block.

    The formatter takes empty lines out of sessions.
    """
    for block in blocks(page, "pycon"):
        typed = re.findall(r"^(?:>>>|\.\.\.)(?: (.*)|$)", block.text, re.MULTILINE)
        assert pasted(typed) == ""


def pasted(lines: list[str]) -> str:
    """The first line at which Python's prompt raises a SyntaxError."""
    statement: list[str] = []
    for line in lines:
        statement.append(line)
        try:
            if codeop.compile_command("\n".join(statement)) is not None:
                statement = []
        except SyntaxError:
            return line
    return ""


def test_the_prompt_asks_for_an_empty_line() -> None:
    """The check above sees what is forgotten."""
    assert pasted(["def f():", "    return 1", "", "f()"]) == ""
    assert pasted(["def f():", "    return 1", "f()"]) == "f()"
    assert pasted(["def f():", "    x = 1", "", "    return x"]) == "    return x"
    assert pasted(["x = 1", "for i in y:", "    print(i)"]) == ""


def test_every_block_is_checked() -> None:
    """Every block of code has a language that is checked; those of files have a name."""
    every = [block for name in PAGES for block in blocks(name)]
    assert {block.language for block in every} == {*LANGUAGES}
    assert all(block.file for block in every if block.language in ("py", "ini"))


@page
def test_fences_are_closed(page: str) -> None:
    """Every line that opens or closes a block belongs to one that the tests see."""
    fences = re.findall(r"^ *```", PAGES[page], re.MULTILINE)
    assert len(fences) == 2 * len(list(blocks(page)))


@page
def test_names_exist(page: str) -> None:
    """Every `co.name` is a public name, or the public module."""
    used = set(re.findall(r"\bco\.(\w+)", PAGES[page]))
    assert used - {*co.__all__, "testing"} == set()


def headings(page: str) -> set[str]:
    """Return the anchors that a code host makes of the headings of a page."""
    found = re.findall(r"^#+ (.*)$", PAGES[page], re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in found]
    return {heading.replace(" ", "-") for heading in kept}


@page
def test_links_lead_somewhere(page: str) -> None:
    """Links between files exist, down to the heading; so do pictures."""
    text = re.sub(r"`[^`\n]+`", "", PAGES[page])  # code such as `f[1](x)` is not a link
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith("https://"):
            file, _, anchor = link.partition("#")
            target = (ROOT / page).parent / file if file else ROOT / page
            assert target.exists(), link
            name = str(target.resolve().relative_to(ROOT))
            assert not anchor or anchor in headings(name), link


def test_every_page_is_linked() -> None:
    """README.md and the index of the examples lead to every page of the guide."""
    for index, folder in {
        "README.md": "examples/guide/",
        "examples/README.md": "guide/",
    }.items():
        linked = set(re.findall(rf"\]\({folder}(\w+\.md)\)", PAGES[index]))
        assert linked == {Path(name).name for name in PAGES if "/guide/" in name}, index


# ---- commands ----

PROGRAMS = {
    "customop": [sys.executable, "-m", "customop"],
    "python": [sys.executable],
    "mypy": [sys.executable, "-m", "mypy"],
    "pytest": [sys.executable, "-m", "pytest", "-p", "customop.pytest.plugin"],
}


def write_files(page: str, folder: Path) -> None:
    """Write the blocks of a page that have a file name into a folder."""
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        if block.file == "pyproject.toml":
            install(tomllib.loads(block.text)["project"], folder)


def install(project: dict[str, Any], folder: Path) -> None:
    """Write what pip writes about a package, so that its entry points are found."""
    name, version = project["name"], project["version"]
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    fields = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (about / "METADATA").write_text(fields, encoding="utf-8")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *[f"{key} = {value}" for key, value in entries.items()]]
    (about / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def run_command(command: str, folder: Path) -> str:
    """Run a command of a `console` block; return what it prints."""
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [*PROGRAMS[program], *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "MYPYPATH": str(ROOT),
            "COLUMNS": "88",
            "NO_COLOR": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


# The index of the examples shows their output: tests/examples runs them.
WITH_CONSOLE = [
    p for p in PAGES if p != "examples/README.md" and any(blocks(p, "console"))
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", WITH_CONSOLE)
def test_commands_print_what_is_shown(page: str, tmp_path: Path) -> None:
    """The commands of `console` blocks run in order, and print what follows them."""
    write_files(page, tmp_path)
    checker = doctest.OutputChecker()
    for block in blocks(page, "console"):
        for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, wanted = shown.partition("\n")
            program = command.partition(" ")[0]
            if program == "mypy" and importlib.util.find_spec("mypy") is None:
                pytest.skip("mypy is not installed")
            printed = run_command(command, tmp_path)
            assert checker.check_output(wanted, printed, FLAGS), (command, printed)


@page
def test_commands_exist(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`customop` in `sh` and `console` blocks knows the commands and options."""
    for block in blocks(page, "sh", "console"):
        for line in block.text.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["customop"]:
                options = set(re.findall(r"--?[a-z][\w-]*", " ".join(words[1:])))
                command = next(w for w in words[1:] if w in COMMANDS)
                assert options <= known_options(command, capsys), line


def known_options(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the options that the help of a command names."""
    command_line([command, "--help"])
    return set(re.findall(r"(?<!\w)--?[a-z][\w-]*", capsys.readouterr().out))


@page
def test_extras_exist(page: str) -> None:
    """Every extra that a page installs is one of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    known = set(project["project"]["optional-dependencies"])
    used = re.findall(r"pip install (?:-e )?'(?:\.|customop)\[([\w,]+)\]'", PAGES[page])
    assert {name for names in used for name in names.split(",")} <= known


def test_extras_are_explained() -> None:
    """The page on the installation has every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    table = PAGES["examples/guide/install.md"].partition("## Extras")[2]
    cells = re.findall(r"^\| (`[\w`, ]+) \|", table, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"\w+", cell)}
    assert named == set(project["project"]["optional-dependencies"])


def test_first_commands_are_those_of_the_gate() -> None:
    """The commands that README.md gives first are run by .ci/run, as they stand."""
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = next(blocks("README.md", "sh")).text
    run = re.findall(r'^command_of_readme "(.*)"$', gate, re.MULTILINE)
    assert commands.splitlines() == run
    assert run == [
        "pip install -e . && python examples/01_first_operator.py",
        "pip install -e '.[test]' && python -m pytest",
    ]


def test_places_to_add_something_exist() -> None:
    """The table in Contributing names files and folders that exist."""
    table = PAGES["README.md"].partition("| to add | edit |")[2].partition("\n## ")[0]
    places = re.findall(r"`([\w/*.]+[/.][\w/*.]*)`", table)
    assert len(places) > 7
    missing = [p for p in places if not [*ROOT.glob(p), *ROOT.glob(f"customop/{p}")]]
    assert missing == []


# ---- tables with a row for each name ----


def error_codes() -> list[str]:
    """Return the error codes of the mypy plugin; to import it needs mypy."""
    text = (ROOT / "customop/mypy/records.py").read_text(encoding="utf-8")
    return [f"customop-{name}" for name in re.findall(r'= _code\("(\w+)"', text)]


def options_of_pytest() -> list[str]:
    """Return the options that the pytest plugin adds."""
    recorder = mock.Mock()
    plugin.pytest_addoption(recorder, mock.Mock(**{"has_plugin.return_value": False}))
    return [call.args[0] for call in recorder.getgroup().addoption.call_args_list]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("typing.md", error_codes()),
        ("checking.md", [check.name for check in CHECKS]),
        ("schema.md", [tag.name for tag in co.Tag]),
        ("command_line.md", options_of_pytest()),
    ],
)
def test_tables_have_every_name(name: str, expected: list[str]) -> None:
    """Tables of error codes, checks, tags and options have no gaps."""
    cells = re.findall(r"^\| (`.*?) \| ", PAGES[f"examples/guide/{name}"], re.MULTILINE)
    named = set(re.findall(r"`([\w-]+)", " ".join(cells)))
    assert len(expected) > 3
    assert set(expected) <= named


def test_every_option_of_a_command_is_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page on the command line names every command and option."""
    text = PAGES["examples/guide/command_line.md"]
    for command in COMMANDS:
        assert f"### `{command}`" in text
        for option in known_options(command, capsys):
            assert option in text, option


# ---- pages made by a program ----


NUMPY = PAGES["examples/guide/numpy_functions.md"]


def test_every_numpy_function_with_an_operator_is_listed() -> None:
    """The page has the functions that the package serves, of those in this NumPy."""
    covered = {name for names in numpy_functions.covered().values() for name in names}
    listed = numpy_functions.listed(NUMPY)
    assert {name for name in listed if numpy_functions.exists(name)} == covered


def test_page_of_numpy_functions_is_as_generated() -> None:
    """Under the release of NumPy that the page was made with, nothing differs."""
    if f"of NumPy {numpy_functions.release()} have" not in NUMPY:
        pytest.skip("the page was made with another release of NumPy")
    assert numpy_functions.page() == NUMPY


@pytest.mark.parametrize("name", benchmark_pages.PAGES)
def test_figures_are_those_of_the_stored_run(name: str) -> None:
    """The figures in a page are those of benchmarks.json and programs.json."""
    runs = benchmark_pages.stored()
    assert benchmark_pages.PAGES[name](runs, PAGES[name]) == PAGES[name]


# ---- docstrings that run ----

# Modules that load parts of SciPy when they are looked at.
_LOADS_SCIPY = ("customop.arrays.math_functions", "customop.arrays.scipy_functions")


def of_values(module: Any) -> Iterator[doctest.DocTest]:
    """Yield the texts below assignments, which pages and editors show as docstrings."""
    source = inspect.getsource(module)
    if not re.search(r'^"""\S', source[1:], re.MULTILINE):
        return  # to parse all modules takes 3 s
    statements = ast.parse(source).body
    for value, text in itertools.pairwise(statements):
        match value, text:
            case ast.AnnAssign(), ast.Expr(ast.Constant(str(words))):
                name = f"{module.__name__}.{ast.unparse(value.target)}"
                parser = doctest.DocTestParser()
                yield parser.get_doctest(words, {}, name, module.__file__, text.lineno)


def test_examples_of_values_are_run() -> None:
    """A wrong number in the text below an assignment is seen."""
    stats = pytest.importorskip("customop.scipy.stats", reason="scipy is not installed")
    found = {test.name.rpartition(".")[2]: test for test in of_values(stats)}
    assert {name for name, test in found.items() if len(test.examples) > 2} == {
        name for name in stats.__all__ if name.islower()
    }
    test = found["uniform"]
    test.examples[-1].want = "np.float64(-0.5)\n"
    assert "np.float64(-0.25)" in "".join(run_doctest(test))


@pytest.mark.usefixtures("own_kinds_here")
@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name: str) -> None:
    """Examples in the docstrings of a module give what they show."""
    if name in _LOADS_SCIPY:  # doctest looks at all that a module holds
        pytest.importorskip("scipy", reason="scipy is not installed")
    module = importlib.import_module(name)
    failures = [
        "".join(said)
        for test in (*doctest.DocTestFinder().find(module), *of_values(module))
        if (said := run_doctest(test))
    ]
    assert failures == []
