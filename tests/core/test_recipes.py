"""Operators of a script that cloudpickle brings to a process that does not run it."""

from __future__ import annotations

import importlib
import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core import recipes
from customop.core.recipes import recipe_of
from customop.core.registry import find_operator

cloudpickle = pytest.importorskip("cloudpickle", reason="dask is not installed")

SCRIPT = """
import pickle, sys, threading
import cloudpickle, numpy as np, customop as co

lock, x = threading.Lock(), np.array([1.0, 2.0])

@co.custom_op("script::even", mutates_args=())
def even(x: np.ndarray, n: int) -> np.ndarray:
    return x * 1.0 if n == 0 else odd(x, n - 1)

@co.custom_op("script::odd", mutates_args=())
def odd(x: np.ndarray, n: int) -> np.ndarray:
    return x * 0.0 if n == 0 else even(x, n - 1)

@co.custom_op("script::locked", mutates_args=())
def locked(x: np.ndarray) -> np.ndarray:
    with lock:
        return x * 2.0

declared = co.define("script::declared", "(Array x, float k=1.5) -> Array")
co.impl("script::declared", "default")(lambda x, k=1.5: x * k)

@co.custom_op("script::rules", mutates_args=())
def rules(x: np.ndarray) -> np.ndarray:
    return x * 3.0

rules.register_fake(lambda x: co.fake_like(x))
rules.register_kernel("cuda", lambda x: lock)  # stays here
rules.register_autograd(lambda ctx, g: rules(g))
rules.register_jvp(lambda primals, tangents: (rules(*primals), rules(*tangents)))
rules.register_vmap(lambda info, in_dims, x: (rules(x), in_dims[0]))
rules.register_autocast("cpu", np.float32)

@rules.register_array_dispatch(np.ma.MaskedArray)
def _(op, args, kwargs):
    return np.ma.MaskedArray(op(args[0].data), args[0].mask)

@co.custom_op("script::below", mutates_args=())
def below(x: np.ndarray) -> np.ndarray:
    return x + 1.0

co.Library("script", "IMPL", "CPU").impl("below", lambda b, x: 10 * b(x), with_keyset=True)

@co.custom_op("script::written", mutates_args=("x",))
def written(x: np.ndarray) -> None:
    x *= 2.0

def of_written():
    y = x.copy()
    written(y)
    return y

def under_autocast():
    with co.autocast("cpu"):
        return str(rules(x).dtype)

programs = {
    "calls each other": lambda: even(x, 4),
    "the other": lambda: odd(x, 3),
    "schema alone": lambda: declared(x),
    "its schema": lambda: str(declared.schema),
    "gradient": lambda: co.grad(lambda y: np.sum(rules(rules(y))))(x),
    "compiled": lambda: co.compile(co.grad(lambda y: np.sum(rules(y))))(x),
    "tangent": lambda: co.jvp(rules, (x,), (x,))[1],
    "batch": lambda: co.vmap(rules)(np.ones((2, 2))),
    "autocast": under_autocast,
    "class of arrays": lambda: rules(np.ma.MaskedArray(x, [0, 1])).filled(7.0),
    "below": lambda: below(x),
    "writes": of_written,
    "by name": lambda: rules is co.ops.script.rules.default,
    "locked": lambda: locked(x),
}

if __name__ == "__main__":
    assert pickle.loads(cloudpickle.dumps(rules)) is rules
    assert pickle.loads(pickle.dumps(rules)) is rules
    found = {k: (cloudpickle.dumps(fn), np.asarray(fn()).tolist()) for k, fn in programs.items()}
    with open(sys.argv[1], "wb") as file:
        pickle.dump(found, file)
"""

# Each program also goes through a process on its way, as through a scheduler.
OTHER = """
import json, pickle, sys
import cloudpickle, numpy as np

def result(text):
    try:
        return np.asarray(pickle.loads(text)()).tolist()
    except Exception as error:
        return str(error)

with open(sys.argv[1], "rb") as file:
    sent = pickle.load(file)
found = {k: [result(text), result(cloudpickle.dumps(pickle.loads(text)))] for k, (text, _) in sent.items()}
print(json.dumps({k: [*found[k], wanted] for k, (_, wanted) in sent.items()}))
"""


def test_operators_of_a_script_travel(tmp_path: Path) -> None:
    """With all rules, and with each other; one that cannot be sent says why."""
    script, other, sent = (tmp_path / name for name in ("a.py", "b.py", "sent"))
    script.write_text(SCRIPT)
    other.write_text(OTHER)
    subprocess.run([sys.executable, str(script), str(sent)], check=True)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(other), str(sent)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    first, second, _ = found.pop("locked")
    assert len(found) == 13
    for name, (once, twice, wanted) in found.items():
        assert once == twice == wanted, name
    for text in (first, second):
        assert "script::locked was defined in the main script" in text
        assert "cannot pickle '_thread.lock' object" in text


def _local(factor: float) -> Any:
    @co.custom_op("recipes::local", mutates_args=())
    def local(x: np.ndarray) -> np.ndarray:
        return x * factor

    return local


def test_what_comes_back_is_the_operator_until_it_changes() -> None:
    """What was sent before a change is what it was: another operator."""
    op = _local(2.0)
    text = cloudpickle.dumps(op)
    assert pickle.loads(text) is op
    op.register_kernel("cpu", lambda x: x * 10.0)
    old = pickle.loads(text)
    assert old is not op
    assert pickle.loads(text) is old
    assert old(np.ones(1)) == 2.0
    assert op(np.ones(1)) == 10.0
    assert pickle.loads(cloudpickle.dumps(old)) is old
    assert pickle.loads(cloudpickle.dumps(op)) is op
    assert co.ops.recipes.local.default is op


def test_the_name_of_an_absent_operator_goes_on() -> None:
    """A process that lacks it, as a scheduler may, passes on what it got."""
    absent: Any = find_operator("recipes::elsewhere", "__main__")
    text = cloudpickle.dumps(lambda x: absent(x))
    with pytest.raises(co.MissingRuleError, match="was defined in the main script"):
        pickle.loads(text)(np.ones(1))
    op = co.define("recipes::elsewhere", "(Array x) -> Array")
    op.register_kernel(None, lambda x: x + 1.0)
    assert pickle.loads(text)(np.ones(1)) == 2.0


USED = """
import numpy as np, customop as co

@co.custom_op("recipes_used::op", mutates_args=())
def op(x: np.ndarray) -> np.ndarray:
    return x * 2.0

@co.custom_op("recipes_used::other", mutates_args=())
def other(x: np.ndarray) -> np.ndarray:
    return x * 2.0
"""


def test_operators_that_a_script_takes_from_a_module_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel names the module alone, which is sent by its name."""
    (tmp_path / "recipes_used.py").write_text(USED, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("recipes_used")

    def inside(x: Any) -> Any:
        import recipes_used  # type: ignore[import-not-found]  # noqa: PLC0415

        return recipes_used.op(x)

    kernels: dict[str, Any] = {
        "outside": lambda x: module.op(x),
        "inside": inside,
        "helper": lambda x: inside(x),
    }
    schema = "(Array x) -> Array"
    sent = {}
    for name, kernel in kernels.items():
        op: Any = co.custom_op(
            f"recipes::{name}", kernel, mutates_args=(), schema=schema
        )
        sent[name] = cloudpickle.dumps(op)
        op.register_kernel("cpu", kernel)  # what comes back is another operator
        assert pickle.loads(sent[name])(np.ones(1)) == 2.0
    monkeypatch.setattr(recipes, "_latest", {})
    module.other.register_kernel("cpu", lambda x: x * 3.0)
    for text in sent.values():
        assert pickle.loads(text)(np.ones(1)) == 2.0
    monkeypatch.setattr(recipes, "_latest", {})
    module.op.register_kernel("cpu", lambda x: x * 3.0)
    for name, text in sent.items():
        with pytest.raises(co.RegistrationError, match="recipes_used::op is an") as e:
            pickle.loads(text)(np.ones(1))
        assert e.value.__notes__ == [f"  used by recipes::{name}"]


# ---- digests of kernels ----

KERNEL = """
import recipes_library, customop as co
from . import factors

TABLE = {"k": 1.0}

def kernel(x):
    from .inner.scales import scale

    return scale(x) * factors.FACTOR * TABLE["k"] + recipes_library.shift(x)

op = co.custom_op(NAME, kernel, mutates_args=(), schema="(Array x) -> Array")
"""
INSTALLED = {
    "recipes_library.py": "def shift(x):\n    return 0.0\n",
    "recipes_package/__init__.py": "",
    "recipes_package/factors.py": "FACTOR = 2.0\n",
    "recipes_package/kernels.py": KERNEL,
    "recipes_package/inner/__init__.py": "",
    "recipes_package/inner/scales.py": "from ..factors import FACTOR\n"
    "def scale(x):\n    return x * FACTOR\n",
}

_numbers = itertools.count()


@pytest.fixture
def digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, str]]:
    """A function that imports the package with a changed file; it digests the kernel."""

    def found(changed: str = "", old: str = "", new: str = "") -> tuple[str, str]:
        number = next(_numbers)
        folder = tmp_path / str(number) / "site-packages"
        for name, text in INSTALLED.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            given = text.replace("NAME", f"'recipes::digest{number}'")
            assert name != changed or old in given
            path.write_text(given.replace(old, new) if name == changed else given)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder))
            module = importlib.import_module("recipes_package.kernels")
            before = recipe_of(module.op).rows[0]
            module.TABLE["more"] = 7.0
            assert recipe_of(module.op).rows[0] == before
            for name in [n for n in sys.modules if n.startswith("recipes_")]:
                del sys.modules[name]
        return before

    return found


@pytest.mark.parametrize(
    ("changed", "old", "new"),
    [
        ("recipes_package/factors.py", "2.0", "3.0"),
        ("recipes_package/inner/scales.py", "x * FACTOR", "x + FACTOR"),
        ("recipes_package/kernels.py", '"k": 1.0', '"k": 4.0'),
        ("recipes_package/kernels.py", "scale(x) *", "scale(x) /"),
    ],
)
def test_a_digest_covers_the_package_of_the_operator(
    digest: Callable[..., tuple[str, str]], changed: str, old: str, new: str
) -> None:
    """It follows imports inside of functions; the package may be installed."""
    assert digest() == digest() != digest(changed, old, new)


@pytest.mark.parametrize(
    ("changed", "old", "new"),
    [
        ("recipes_library.py", "0.0", "1.0"),
        ("recipes_package/kernels.py", "TABLE =", "# A comment.\n\nTABLE ="),
        ("recipes_package/factors.py", "FACTOR", "OTHER = 1.0\nFACTOR"),
    ],
)
def test_a_digest_leaves_out_what_says_nothing_about_the_kernel(
    digest: Callable[..., tuple[str, str]], changed: str, old: str, new: str
) -> None:
    """Other installed libraries, comments, places in files, names that it does not use."""
    assert digest() == digest(changed, old, new)


COMPARED = """
import numpy as np, customop as co

FACTOR, ARRAY = 2.0, np.ones(2)

def scaled(x):
    return x * FACTOR

@co.custom_op("recipes_compared::fixed", mutates_args=())
def fixed(x: np.ndarray) -> np.ndarray:
    return scaled(x)

@co.custom_op("recipes_compared::changing", mutates_args=())
def changing(x: np.ndarray) -> np.ndarray:
    return x * ARRAY
"""


def test_a_recipe_is_compared_again_if_something_may_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task brings one: names that are rebound and arrays that are written count."""
    (tmp_path / "recipes_compared.py").write_text(COMPARED, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("recipes_compared")
    count: list[str] = []
    original = recipes._proof

    def proof(op: Any) -> Any:
        count.append(op.name)
        return original(op)

    monkeypatch.setattr(recipes, "_proof", proof)
    for op in (module.fixed, module.changing):
        sent = recipe_of(op)
        count.clear()
        assert sent.find() is sent.find() is sent.find() is op
        assert len(count) == (1 if op is module.fixed else 3)
    sent = recipe_of(module.fixed), recipe_of(module.changing)
    monkeypatch.setattr(module, "FACTOR", 3.0)
    module.ARRAY[0] = 5.0
    for each in sent:
        with pytest.raises(co.RegistrationError, match="its kernel differs"):
            each.find()
    monkeypatch.setattr(module, "FACTOR", 2.0)
    assert sent[0].find() is module.fixed
    module.fixed.register_kernel("cpu", lambda x: x)
    with pytest.raises(co.RegistrationError, match="its kernel differs"):
        sent[0].find()
