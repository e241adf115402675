"""The messages for wrong input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop import cli
from customop.testing.checks.check_jobs import CHECKS
from tests.cli._commands import Run

SEE = "do: import its module with -m MODULE; 'customop list' shows what is there"
ERRORS = [
    (
        ["lst"],
        (
            "there is no command 'lst' (did you mean 'list'?)\n"
            "  there are 'list', 'show', 'explain', 'check', 'coverage', 'bench',"
            " 'stubs'\n  do: see customop --help\n"
        ),
    ),
    (
        ["list", "--colour", "never"],
        "unrecognized arguments: --colour\n  do: see customop list --help\n",
    ),
    (
        ["list", "npp"],
        f"no operator matches 'npp' (did you mean 'np'?)\n  {SEE}\n",
    ),
    (
        ["show", "np::sinn"],
        f"no operator is named 'np::sinn' (did you mean 'np::sin'?)\n  {SEE}\n",
    ),
    (
        ["show", "sin"],
        f"no operator is named 'sin' (did you mean 'np::sin'?)\n  {SEE}\n",
    ),
    (
        ["show", "np::sin.out"],
        (
            "'np::sin' has no overload 'out'\n"
            "  there are 'np::sin.default'\n"
            "  do: name one of them\n"
        ),
    ),
    (
        ["explain", "mp::argmax", "f64[q]"],
        f"no operator is named 'mp::argmax' (did you mean 'np::argmax'?)\n  {SEE}\n",
    ),
    (
        ["bench", "zzz::qqqqqqq"],
        f"no operator is named 'zzz::qqqqqqq'\n  {SEE}\n",
    ),
    (
        ["show", "cli_ops::over", "-m", "cli_ops"],
        (
            "'cli_ops::over' has several overloads\n"
            "  there are 'cli_ops::over.number', 'cli_ops::over.text'\n"
            "  do: name one of them\n"
        ),
    ),
    (
        ["check", "cli_check"],
        (
            "there is no module 'cli_check' (did you mean 'cli_checked'?)\n"
            "  do: write package.module as an import does, or the path of a file.py\n"
        ),
    ),
    (
        ["check", "cli_package.iner"],
        (
            "there is no module 'cli_package.iner' (did you mean 'inner'?)\n"
            "  do: write package.module as an import does, or the path of a file.py\n"
        ),
    ),
    (
        ["list", "-m", "cli_op.py"],
        (
            "there is no file 'cli_op.py' (did you mean 'cli_ops.py'?)\n"
            "  do: write its path\n"
        ),
    ),
    (
        ["check", "not-a-module"],
        (
            "'not-a-module' is not the name of a module\n"
            "  do: write package.module, or a file.py\n"
        ),
    ),
    (
        ["check", ":name"],
        "':name' does not name a module\n  do: write MODULE, MODULE:NAME or FILE.py:NAME\n",
    ),
    (
        ["check", "cli_checked:rigt"],
        (
            "'cli_checked' does not define an operator 'rigt' (did you mean 'cli_checked::right'?)\n"
            "  do: see what it defines: customop -m cli_checked list\n"
        ),
    ),
    (
        ["check", "cli_importer"],
        (
            "'cli_importer' does not define operators\n"
            "  it imports operators of 'cli_ops'\n"
            "  do: name cli_ops\n"
        ),
    ),
    (
        ["check", "cli_empty"],
        (
            "'cli_empty' does not define operators\n"
            "  do: name the module that defines them\n"
        ),
    ),
    (
        ["check", "cli_checked", "--test-utils", "test_vmapp"],
        (
            "opcheck: no check is named 'test_vmapp' (did you mean 'test_vmap'?)\n"
            "  known: {checks}\n"
            "  do: write names with commas between them, or ALL\n"
        ),
    ),
    (
        ["check", "cli_checked", "--rtol", "1"],
        "opcheck: rtol is given without atol\n  do: pass both, as atol=0.0, or none\n",
    ),
    (
        ["check", "cli_checked", "--junit", "cli_ops.py/report.xml"],
        (
            "--junit: 'cli_ops.py/report.xml' cannot be written: File exists\n"
            "  do: name another file\n"
        ),
    ),
    (
        ["check"],
        (
            "the following arguments are required: MODULE[:NAME]\n"
            "  do: see customop check --help\n"
        ),
    ),
    (
        ["explain", "np::sin", "f65[3]"],
        (
            "'f65[3]': 'f65' is not a dtype (did you mean 'f64'?)\n"
            "  known: 'f16', 'f32', 'f64', 'i8', 'i16', 'i32', 'i64', 'u8', 'u16', 'u32',"
            " 'u64', 'c64', 'c128', 'bool'\n"
            "  do: write an array as 'f64[3, 4]', and quote text that has brackets\n"
        ),
    ),
    (
        ["explain", "np::sin", "f64[n]"],
        (
            "'f64[n]': 'n' is not a shape\n"
            "  do: write whole numbers, as in 'f64[3, 4]'; 'f64[]' has no axes\n"
        ),
    ),
    (
        ["explain", "np::sin", "f64[-1]"],
        (
            "'f64[-1]': '-1' is not a shape\n"
            "  do: write whole numbers, as in 'f64[3, 4]'; 'f64[]' has no axes\n"
        ),
    ),
    (
        ["explain", "np::sin", f"f64[{2**40},{2**40}]"],
        (
            "'f64[1099511627776,1099511627776]': {size}\n"
            "  do: make it smaller, or write fake.f64[1099511627776, 1099511627776]\n"
        ),
    ),
    (
        ["explain", "np::sin", "x=f64[1]", "x=2"],
        "'x' is given twice\n  do: leave one out\n",
    ),
    (
        ["explain", "np::sin", "far"],
        (
            "np::sin: argument 'x' expects Array, got str 'far'\n"
            "  np::sin(Array x) -> Array\n"
            "          ^^^^^^^\n"
            "  do: pass an array, such as np.asarray(x)\n"
        ),
    ),
    (
        ["explain", "np::arctan2", "f64[2]"],
        (
            "np::arctan2(x1, x2): arctan2() missing 1 required positional argument: 'x2'\n"
            "  do: see customop show np::arctan2\n"
        ),
    ),
    (
        ["bench", "np::matmul", "f64[2]", "f64[3]"],
        (
            "np::matmul(f64[2], f64[3]) raises ValueError: {matmul}\n"
            "  do: pass arguments that it takes, or fix it; --traceback shows where\n"
        ),
    ),
    (
        ["bench", "np::sin", "far"],
        (
            "np::sin: argument 'x' expects Array, got str 'far'\n"
            "  np::sin(Array x) -> Array\n"
            "          ^^^^^^^\n"
            "  do: pass an array, such as np.asarray(x)\n"
        ),
    ),
    (
        ["bench", "np::sin", "--time", "0"],
        "argument --time: 0 is not above zero\n  do: see customop bench --help\n",
    ),
    (
        ["bench", "np::sin", "--samples", "0"],
        "argument --samples: 0 is less than one\n  do: see customop bench --help\n",
    ),
]


def message_of(fn: Callable[..., Any], *args: Any) -> str:
    """The message of the ValueError that a function raises."""
    with pytest.raises(ValueError) as error:
        fn(*args)
    return str(error.value)


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    ("argv", "text"), ERRORS, ids=[" ".join(argv) for argv, _ in ERRORS]
)
def test_errors(run: Run, argv: list[str], text: str) -> None:
    """Wrong input prints a message without a traceback; the status is 2."""
    names = ", ".join(f"'{check.name}'" for check in CHECKS)
    text = text.replace("{checks}", names).replace(
        "{matmul}", message_of(np.matmul, np.ones(2), np.ones(3))
    )
    text = text.replace("{size}", message_of(np.zeros, (2**40, 2**40)))
    assert run.error(*argv) == text
    assert "Traceback" not in run.err


IMPORT_ERRORS = [
    ("cli_raises", "raises ZeroDivisionError: division by zero", "cli_raises.py:3"),
    ("cli_exits.py", "raises SystemExit: 0", "cli_exits.py:1"),
    (
        "cli_needs",
        "raises ModuleNotFoundError: No module named 'cli_nowhere'",
        "cli_needs.py:1",
    ),
]


@pytest.mark.parametrize(
    ("module", "what", "where"), IMPORT_ERRORS, ids=[row[0] for row in IMPORT_ERRORS]
)
def test_modules_that_cannot_be_imported(
    run: Run, folder: Path, module: str, what: str, where: str
) -> None:
    """An error while importing is printed with its line."""
    assert run.error("check", module) == (
        f"importing '{module}' {what}\n  at {folder / where}\n"
        "  do: fix it; --traceback shows where\n"
    )


def test_a_syntax_error(run: Run) -> None:
    """A module with a syntax error prints it."""
    message = run.error("list", "-m", "cli_syntax.py")
    assert message.startswith("importing 'cli_syntax.py' raises SyntaxError: ")
    assert "(cli_syntax.py, line 1)" in message


def test_traceback(run: Run) -> None:
    """With --traceback an error is raised with its cause."""
    with pytest.raises(co.CustomOpError) as error:
        cli.main(["check", "cli_raises", "--traceback"])
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_file_with_the_name_of_a_module(run: Run, tmp_path: Path) -> None:
    """A file is refused if its module name is taken by another file."""
    (tmp_path / "json.py").write_text("")
    message = run.error("list", "-m", str(tmp_path / "json.py"))
    assert message == (
        f"'{tmp_path / 'json.py'}' would be the module 'json', which is"
        f" {json.__file__}\n  do: give the file another name\n"
    )


def test_files_are_imported_as_parts_of_their_package(run: Run) -> None:
    """A file of a package is imported by its full name, so `from .` works."""
    run("list", "cli_package", "-m", "cli_package/inner.py")
    assert run.status == 0
    assert "cli_package.inner" in sys.modules


def test_the_path_stays(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command leaves sys.path as it was."""
    others = [path for path in sys.path if path not in ("", str(folder))]
    monkeypatch.setattr(sys, "path", others.copy())
    run("list", "cli_ops", "-m", "cli_ops")
    run.error("list", "-m", "cli_package/nothing.py")
    run.error("list", "-m", "cli_raises.py")
    assert sys.path == others
