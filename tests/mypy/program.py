"""Runs of mypy with the plugin over files that a test writes."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PRELUDE = """\
from __future__ import annotations
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, overload
)
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

class Plain:
    rate = 1.0

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
LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): (?P<level>\w+): (?P<text>.*)")


def run(folder: Path, cache: Path, *arguments: str) -> list[str]:
    """The lines that mypy prints for files of a folder."""
    return run_and_watch(folder, cache, *arguments)[0]


def run_and_watch(
    folder: Path, cache: Path, *arguments: str
) -> tuple[list[str], list[str]]:
    """The lines that mypy prints, and the modules of the folder that it checks."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-error-summary"),
            *(f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={cache}"),
            *("--show-traceback", "-v"),
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), (done.stdout + done.stderr)[-2000:]
    checked = re.findall(r"^LOG:  Writing (\S+) ", done.stderr, re.MULTILINE)
    mine = [name for name in checked if (folder / f"{name}.py").exists()]
    return done.stdout.splitlines(), mine


def errors(lines: list[str]) -> list[str]:
    """The lines that are errors, without notes."""
    return [line for line in lines if ": error: " in line]


# The times of files that tests write, in seconds. Clocks and rounding play no part.
_TIMES = itertools.count(1_700_000_000, 10)


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files, dedented, each at a later time than all before.

    mypy takes a file of the same second and size for the same file.
    """
    for name, text in files.items():
        path = folder / name
        path.write_text(textwrap.dedent(text))
        now = next(_TIMES)
        os.utime(path, (now, now))


_SERVER = """\
import io, json, sys
from mypy.dmypy_server import Server
from mypy.find_sources import create_source_list
from mypy.main import process_options
given = ["-i", "-v", "-v", "--no-error-summary", "--cache-dir=/dev/null", "."]
_, options = process_options(given, server_options=True)
sys.stderr = log = io.StringIO()
server = Server(options, "status.json")
for line in sys.stdin:
    log.seek(0)
    log.truncate()
    sources = create_source_list(json.loads(line), options, server.fscache)
    done = server.check(sources, export_types=False, is_tty=False, terminal_width=80)
    print(json.dumps({"said": done["out"], "log": log.getvalue()}), flush=True)
"""


class Daemon:
    """mypy's daemon over files of a folder, with what it checks again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate()

    def check(self, *files: str) -> tuple[list[str], set[str]]:
        """The lines that it prints for these files alone, and the modules that it checks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(files)}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        changed = re.findall(r"update single '(\w+)'", found["log"])
        targets = re.findall(r"process: (\w+)", found["log"])
        return found["said"].splitlines(), {*changed, *targets}
