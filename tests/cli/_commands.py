"""Modules with operators for the tests, and a way to run commands."""

from __future__ import annotations

import io
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import customop as co
from customop import cli
from customop.core.registry import operators, remove_operator

ROOT = Path(co.__file__).parent.parent

# ---- modules ----

OPS = '''
"""Operators of many kinds."""

import numpy as np

import customop as co

print("cli_ops speaks")

inverse = co.RuleKind("cli_inverse", takes="(out, *inputs)", returns="input 0")


def save(ctx, inputs, output):
    ctx.factor = inputs[1]


def backward(ctx, grad):
    return grad * ctx.factor, None


@co.custom_op("cli_ops::scale", mutates_args=(), tags=co.Tag.pointwise)
def scale(x: np.ndarray, factor: float = 2.0) -> np.ndarray:
    """Multiply by a number.

    This line is not shown.
    """
    return np.asarray(x * float(factor))


scale.register_autograd(backward, setup_context=save)
scale.register(inverse, lambda out, x, factor: out / factor)
scale.register_autocast("cpu", np.float16)


@scale.register_sample_inputs
def _():
    return [(np.ones(3), 2.0), co.testing.Sample((np.ones(2),), {"factor": 0.5}, "a note")]


def add_(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x += y
    return x


co.custom_op(
    "cli_ops::add_", add_, mutates_args=("x",), tags=co.Tag.inplace, device_types="cpu"
)


@co.custom_op("cli_ops::over.number", mutates_args=())
def _(x: np.ndarray, y: int) -> np.ndarray:
    return x + y


@co.custom_op("cli_ops::over.text", mutates_args=())
def _(x: np.ndarray, y: str) -> np.ndarray:
    """Déjà vu."""
    return x.copy()


lib = co.Library("cli_ops", "FRAGMENT")
lib.define("twice(Array x) -> Array")


def twice(x):
    return np.multiply(x, 2.0)


lib.impl("twice", twice, "composite")

'''

# One operator passes all checks, one fails a check, one cannot be checked.
CHECKED = """
import numpy as np

import customop as co


@co.custom_op("cli_checked::right", mutates_args=(), tags=co.Tag.pointwise)
def right(x: np.ndarray) -> np.ndarray:
    print("right runs")
    return np.sin(x)


@co.custom_op("cli_checked::wrong", mutates_args=())
def wrong(x: np.ndarray) -> np.ndarray:
    return np.sin(x)


wrong.register_fake(lambda x: co.fake_like(x, shape=(7,)))


@co.custom_op("cli_checked::shy", mutates_args=())
def shy(x: np.ndarray) -> np.ndarray:
    raise RuntimeError("never runs")
"""

FILES = {
    "cli_ops.py": OPS,
    "cli_checked.py": CHECKED,
    "cli_package/__init__.py": "",
    "cli_package/inner.py": """
import numpy as np
import customop as co
from . import __name__ as outer
from cli_ops import scale

@co.custom_op("cli_package::one", mutates_args=(), tags=co.Tag.pointwise)
def one(x: np.ndarray) -> np.ndarray:
    return x + 1.0
""",
    "cli_checked_more.py": """
import numpy as np
import customop as co

@co.custom_op("cli_checked_more::one", mutates_args=())
def one(x: np.ndarray) -> np.ndarray:
    return x + 1.0
""",
    "cli_parts/__init__.py": "",
    "cli_parts/__main__.py": "raise SystemExit(3)\n",
    "cli_parts/broken.py": "import cli_nowhere\n",
    "cli_parts/deep/__init__.py": "",
    "cli_parts/deep/one.py": """
import numpy as np
import customop as co

@co.custom_op("cli_parts::one", mutates_args=())
def one(x: np.ndarray) -> np.ndarray:
    return x + 1.0
""",
    "10_course.py": """
import numpy as np
import customop as co

@co.custom_op("cli_course::ten", mutates_args=())
def ten(x: np.ndarray) -> np.ndarray:
    return x + 10.0
""",
    "cli_importer.py": "from cli_ops import scale\n",
    "cli_raises.py": "import numpy\n\n1 / 0\n",
    "cli_exits.py": "raise SystemExit(0)\n",
    "cli_needs.py": "import cli_nowhere\n",
    "cli_syntax.py": "def\n",
    "cli_empty.py": "",
}


def forget() -> None:
    """Remove the operators of these modules."""
    for op in list(operators.values()):
        if op.namespace.startswith("cli_"):
            remove_operator(op)
    for name in [n for n in sys.modules if n.startswith(("cli_", "10_"))]:
        del sys.modules[name]


class Run:
    """Run commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.status = -1
        self.err = ""

    def __call__(self, *argv: str) -> str:
        """Run a command; return its output."""
        self._capsys.readouterr()
        self.status = cli.main(argv)
        found = self._capsys.readouterr()
        self.err = found.err
        return found.out

    def json(self, *argv: str) -> Any:
        """Run a command with --json; return its document."""
        return json.loads(self(*argv, "--json"))

    def error(self, *argv: str) -> str:
        """Run a command with wrong input; return the message."""
        assert self(*argv) == ""
        assert self.status == 2
        # Imported modules may print first.
        return self.err.partition("customop: error: ")[2]


def at(folder: Path, text: str, module: str = "cli_ops.py") -> str:
    """File and line of the first line that begins with a text."""
    lines = (folder / module).read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.startswith(text))
    return f"{folder / module}:{number}"


def lines(text: str) -> str:
    """Text without its indentation and first line break."""
    return textwrap.dedent(text).lstrip("\n")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, *argv: str) -> str:
    """The output of a command in a terminal."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    cli.main(argv)
    return stream.getvalue()
