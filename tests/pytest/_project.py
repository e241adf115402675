"""A small project with tests of operators, and pytest to run there."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OPERATORS = '''
import numpy as np
import customop as co


def define(name, slope=2.0, row=2.0):
    """An operator that doubles; a rule may be wrong."""

    def double(x: np.ndarray) -> np.ndarray:
        return 2.0 * x

    double.__name__ = name.rpartition("::")[2]
    op = co.custom_op(name, double, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x, dtype=np.result_type(x.dtype, 1.0)))
    op.register_autograd(lambda ctx, g: 2.0 * g)
    op.register_jvp(lambda primals, tangents: (op(*primals), slope * tangents[0]))
    op.register_vmap(lambda info, in_dims, x: (row * x, in_dims[0]))
    return op


double = define("mylib::double")
steep = define("mylib::steep", slope=3.0)
far = define("mylib::far", row=3.0)
alien = define("other::alien", row=3.0)


@co.custom_op("mylib::bump", mutates_args=("x",))
def bump(x: np.ndarray) -> None:
    x += 1


@co.custom_op("mylib::positive", mutates_args=())
def positive(x: np.ndarray) -> np.ndarray:
    if x.min() < 0:
        raise ValueError("negative")
    return x.copy()


x = np.ones(3)
'''
HEAD = "import numpy as np, pytest, customop as co\nfrom ops import *\n"


class Project:
    """A directory with operators and tests."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        pytester.makeini("[pytest]\npythonpath = .\nfilterwarnings = default\n")
        pytester.makepyfile(ops=OPERATORS)

    @property
    def path(self) -> Path:
        """The directory."""
        return self.pytester.path

    def tests(self, text: str, name: str = "test_it") -> None:
        """Write a file of tests, which imports the operators, np, pytest and co."""
        self.pytester.makepyfile(**{name: HEAD + textwrap.dedent(text)})

    def run(self, *args: str) -> pytest.RunResult:
        """Run pytest with the plugin, in this process."""
        return self.pytester.runpytest_inprocess("-p", "customop.pytest.plugin", *args)

    def known(self, operators: Any, name: str = "opcheck_failures.json") -> Path:
        """Write the file of known failures."""
        path = self.path / name
        path.write_text(json.dumps({"operators": operators}), encoding="utf-8")
        return path

    def entries(self) -> dict[str, Any]:
        """Read the file of known failures."""
        text = (self.path / "opcheck_failures.json").read_text(encoding="utf-8")
        return json.loads(text)["operators"]


def lines(result: pytest.RunResult, start: str) -> list[str]:
    """Return the lines of the output that begin with a text."""
    return [line for line in result.outlines if line.startswith(start)]


FAR = "test_it.py::test_far"
SUITE = """
def test_good():
    double(x)

def test_far():
    far(x)

class TestOthers:
    @pytest.mark.parametrize("op", [steep, alien])
    def test_other(self, op):
        op(x)
"""
