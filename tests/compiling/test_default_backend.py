"""Which back end `compile` takes by itself, and what it says about that."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import customop as co
from customop.compiling import backends

X = np.linspace(0.5, 1.5, 4)

# What a process without llvmlite, or with one that cannot be loaded, does.
PROGRAM = """
import sys, numpy as np, customop as co
f = co.compile(lambda x: np.sum(np.sin(x) * 2.0))
x = np.linspace(0.5, 1.5, 4)
assert f(x) == f(x) == np.sum(np.sin(x) * 2.0)
assert co.grad(f)(x).tobytes() == co.grad(f.__wrapped__)(x).tobytes()
assert f.backend == "numpy"
print(str(f.explain()).splitlines()[0])
"""
ASKED = """
try:
    co.compile(np.sin, backend="native")
except co.ArgumentError as error:
    print(str(error).splitlines()[0])
"""
OLDER = SimpleNamespace(why_not_native=lambda: "NumPy is older")
REFUSED = "compile: the back end 'native' needs llvmlite, which is not installed"


@pytest.fixture
def asked_again() -> Iterator[None]:
    """Let the choice be made again, before and after a test."""
    backends.default_backend.cache_clear()
    yield
    backends.default_backend.cache_clear()


def _lines_of(lines: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", lines],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_without_llvmlite_it_is_numpy_and_says_so() -> None:
    first, second = _lines_of(
        f"import sys\nsys.modules['llvmlite'] = None{PROGRAM}{ASKED}"
    )
    why = "(llvmlite is not installed)"
    assert first == f"<lambda>, back end 'numpy' {why}, compiled once"
    assert second == REFUSED


def test_an_llvmlite_that_does_not_load_is_named() -> None:
    lines = """
import importlib.util, sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "llvmlite":
            return importlib.util.spec_from_loader(name, self)
    def create_module(self, spec): ...
    def exec_module(self, module):
        raise OSError("libLLVM.so: cannot open shared object file")
sys.meta_path.insert(0, Broken())
"""
    (line,) = _lines_of(lines + PROGRAM)
    assert "'numpy' (llvmlite cannot be imported: libLLVM.so: cannot open" in line


def test_it_is_native_where_that_is_proven() -> None:
    f = co.compile(lambda x: np.sum(np.sin(x) * 2.0))
    assert f.backend == "native"
    assert f(X) == np.sum(np.sin(X) * 2.0)
    lines = str(f.explain()).splitlines()
    assert lines[0] == "<lambda>, back end 'native', compiled once"
    assert "table of " in lines[2]


@pytest.mark.usefixtures("asked_again")
def test_another_numpy_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "object_layout", OLDER)
    f = co.compile(lambda x: -x)
    assert (f.backend, f(X).tolist()) == ("numpy", (-X).tolist())
    assert "back end 'numpy' (NumPy is older), compiled once" in str(f.explain())
    page = f.explain()._repr_html_()
    assert "(NumPy is older)" in page
    asked = co.compile(lambda x: -x, backend="numpy")
    asked(X)
    assert "NumPy is older" not in str(asked.explain())


@pytest.mark.usefixtures("asked_again")
def test_a_default_stays_one_when_it_is_pickled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process may have another default."""
    text = pickle.dumps(co.compile(np.linalg.norm))
    monkeypatch.setattr(backends, "object_layout", OLDER)
    assert pickle.loads(text).backend == "numpy"
