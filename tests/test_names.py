"""The names of the package itself, and words of its messages."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import customop as co
from customop.errors import with_article


def test_dir() -> None:
    """All public names, also those imported at their first use, and nothing else."""
    assert dir(co) == sorted([*co.__all__, "__version__"])
    assert {"opcheck", "profile", "gradcheck"} < set(dir(co))
    assert all(hasattr(co, name) for name in dir(co))


def test_public_classes_have_the_name_of_the_package() -> None:
    """Also those whose module another one imports, before anyone asks for them."""
    program = """
import customop as co
co.grad, co.vmap, co.register_kernel, co.eval_shape
import sys
for name in co.__all__:
    for module in list(sys.modules.values()):
        found = vars(module).get(name)
        ours = isinstance(found, type) and found.__module__.startswith("customop.")
        if ours and vars(sys.modules[found.__module__]).get(name) is found:
            print(found)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


def test_version() -> None:
    """The version is that of the distribution."""
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    assert co.__version__ == tomllib.loads(text)["project"]["version"]


@pytest.mark.parametrize(
    ("noun", "text"),
    [
        ("autograd rule", "an autograd rule"),
        ("'autograd' rule", "an 'autograd' rule"),
        ("jvp rule", "a jvp rule"),
        ("int", "an int"),
        ("uint8", "a uint8"),
        ("ufunc", "a ufunc"),
        ("ndarray", "an ndarray"),
        ("NoneType", "a NoneType"),
        ("", "a "),
    ],
)
def test_with_article(noun: str, text: str) -> None:
    """A or an, as it is spoken."""
    assert with_article(noun) == text
