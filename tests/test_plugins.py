"""Kinds of array and operators of installed packages: found by entry points, on demand."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import customop as co
from customop import plugins
from customop.arrays import kinds
from customop.cli import main
from customop.core.registry import operators, remove_operator

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "plugin"

OPERATORS = """
import customop as co
@co.custom_op("{name}::twice", mutates_args=())
def twice(x: co.Array) -> co.Array:
    return x + x
"""
KIND = """
import numpy as np
import customop as co
co.register_array_type("{name}", "{name}_arrays.Box", from_numpy=lambda x: x)
"""
BOX = """
import numpy as np
class Box:
    def __init__(self, x):
        self.x = np.asarray(x)
    shape = property(lambda self: self.x.shape)
    dtype = property(lambda self: self.x.dtype)
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Write packages with entry points; forget all of them afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(kinds, "_plugins_loaded", False)
    known = dict(kinds._kinds)
    plugins._scan.cache_clear()
    plugins._warned.clear()

    def write(package: str, entries: str, **modules: str) -> None:
        folder = tmp_path / f"{package.replace('-', '_')}-1.5.dist-info"
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n"
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
        (folder / "entry_points.txt").write_text(entries, encoding="utf-8")
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()

    yield write
    for op in list(operators.values()):
        if op.namespace.startswith("plug_"):
            remove_operator(op)
    for name in [n for n in sys.modules if n.startswith("plug_")]:
        del sys.modules[name]
    for name in kinds._kinds.keys() - known.keys():
        del kinds._kinds[name]
        for module in [m for m in kinds._by_path if m.startswith(name)]:
            del kinds._by_path[module]
        for cls in [c for c, k in kinds._by_class.items() if k.name == name]:
            del kinds._by_class[cls]
    kinds.kind_of.clear()
    plugins._scan.cache_clear()
    plugins._warned.clear()


def of_operators(name: str, value: str) -> str:
    return f"[customop.operators]\n{name} = {value}\n"


def of_kinds(name: str, value: str) -> str:
    return f"[customop.kinds]\n{name} = {value}\n"


# ---- operators ----


def test_a_namespace_is_loaded_when_it_is_met(install: Install) -> None:
    """`ops.namespace` imports the module of the plug-in, and not before."""
    install(
        "plug-one",
        of_operators("plug_one", "plug_one_ops"),
        plug_one_ops=OPERATORS.format(name="plug_one"),
    )
    assert "plug_one" in dir(co.ops)
    assert "plug_one_ops" not in sys.modules
    np.testing.assert_array_equal(co.ops.plug_one.twice(np.arange(3.0)), [0, 2, 4])
    with pytest.raises(co.UnknownNameError, match="did you mean 'twice'"):
        co.ops.plug_one.twise


def test_an_operator_is_found_by_its_name(install: Install) -> None:
    """Registering by name, and unpickling, load the plug-in of the namespace."""
    text = OPERATORS.format(name="plug_two")
    install("plug-two", of_operators("plug_two", "plug_two_ops"), plug_two_ops=text)
    co.register_fake("plug_two::twice", lambda x: co.fake_like(x))
    assert "plug_two_ops" in sys.modules


def test_a_namespace_of_the_program_gets_the_rest(install: Install) -> None:
    """An operator of the program in the namespace does not hide the plug-in."""
    text = OPERATORS.format(name="plug_mine")
    install("plug-mine", of_operators("plug_mine", "plug_mine_ops"), plug_mine_ops=text)

    @co.custom_op("plug_mine::thrice", mutates_args=())
    def thrice(x: co.Array) -> co.Array:
        return 3 * x

    assert co.ops.plug_mine.twice(np.ones(1))[0] == 2
    assert co.ops.plug_mine.thrice(np.ones(1))[0] == 3


def test_a_function_registers(install: Install) -> None:
    """The value may be a function, called once; it may use its own namespace."""
    text = "import customop as co\nCALLS = []\ndef register():\n    CALLS.append(1)\n"
    text += "    assert not hasattr(co.ops, 'plug_call')\n"
    body = OPERATORS.format(name="plug_call").replace("import customop as co\n", "")
    text += "".join(f"    {line}\n" for line in body.strip().splitlines())
    text += "    co.ops.plug_call.twice(3.0 * __import__('numpy').ones(2))\n"
    value = "plug_call_ops:register"
    install("plug-call", of_operators("plug_call", value), plug_call_ops=text)
    for _ in range(2):
        assert co.ops.plug_call.twice(np.ones(1))[0] == 2
    assert sys.modules["plug_call_ops"].CALLS == [1]


def test_a_module_may_use_its_own_namespace(install: Install) -> None:
    """While it is imported, its namespace has what is defined so far."""
    text = "import customop as co\nassert not hasattr(co.ops, 'plug_self')\n"
    text += OPERATORS.format(name="plug_self") + "TWICE = co.ops.plug_self.twice\n"
    install("plug-self", of_operators("plug_self", "plug_self_ops"), plug_self_ops=text)
    assert co.ops.plug_self.twice.overloads() == ["default"]


def test_threads_wait_for_a_plugin(install: Install) -> None:
    """Threads that meet a namespace together all find it, and it is loaded once."""
    text = "import time\nCALLS = []\ndef register():\n    CALLS.append(1)\n"
    text += "    time.sleep(0.05)\n    import plug_threads_rest\n    time.sleep(0.05)\n"
    install(
        "plug-threads",
        of_operators("plug_threads", "plug_threads_ops:register"),
        plug_threads_ops=text,
        plug_threads_rest=OPERATORS.format(name="plug_threads"),
    )
    answers: list[float] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        answers.append(float(co.ops.plug_threads.twice(np.ones(1))[0]))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [2.0] * 8
    assert sys.modules["plug_threads_ops"].CALLS == [1]


# ---- faults ----

FAULTS = {
    "raises": ("raise ValueError('no licence')", "", "ValueError: no licence"),
    "exits": ("import sys; sys.exit(3)", "", "SystemExit: 3"),
    "lacks a module": (
        "import plug_absent",
        "",
        "ModuleNotFoundError: No module named 'plug_absent'",
    ),
    "function raises": (
        "def register(): raise KeyError('x')",
        ":register",
        "KeyError: 'x'",
    ),
    "lacks the function": (
        "",
        ":register",
        "AttributeError: module 'plug_bad_ops' has no attribute 'register'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_plugin_is_one_warning(install: Install, fault: str) -> None:
    """It names the plug-in, its package and the error; then it is as if it were absent."""
    text, function, error = FAULTS[fault]
    value = f"plug_bad_ops{function}"
    install("plug-bad", of_operators("plug_bad", value), plug_bad_ops=text)
    unknown = pytest.raises(
        co.UnknownNameError, match=r"ops.plug_bad: there is no such"
    )
    with pytest.warns(co.CustomOpWarning) as caught, unknown:
        co.ops.plug_bad
    (message,) = [str(w.message) for w in caught]
    assert message == (
        f"plug-in 'plug_bad' of plug-bad 1.5 ({value}) cannot be loaded: {error}\n"
        "  do: fix or uninstall it; 'customop list --plugins' shows all"
    )
    assert caught[0].filename == __file__
    assert not hasattr(co.ops, "plug_bad")  # without a second warning


def test_a_plugin_that_registers_nothing(install: Install) -> None:
    """A module without operators of its name is a warning too."""
    text = OPERATORS.format(name="plug_other")
    install("plug-void", of_operators("plug_void", "plug_void_ops"), plug_void_ops=text)
    said = (
        r"^plug-in 'plug_void' of plug-void 1.5 \(plug_void_ops\) registered no operator"
        r" of the namespace 'plug_void'$"
    )
    with pytest.warns(co.CustomOpWarning, match=said):
        assert not hasattr(co.ops, "plug_void")


def test_two_plugins_of_one_name(install: Install) -> None:
    """The first package by name is used; a warning names both, once."""
    for package in ("plug-b", "plug-a"):
        module = f"{package.replace('-', '_')}_ops"
        text = OPERATORS.format(name="plug_ab")
        install(package, of_operators("plug_ab", module), **{module: text})
    with pytest.warns(co.CustomOpWarning) as caught:
        assert co.ops.plug_ab.twice.default.definition.module == "plug_a_ops"
    (message,) = [str(w.message) for w in caught]
    assert message == (
        "plug-in 'plug_ab' of plug-a 1.5 (plug_a_ops) is used; others have the same name"
        " and are not: plug-b 1.5 (plug_b_ops)\n  do: uninstall all but one of them"
    )
    assert not hasattr(co.ops.plug_ab, "thrice")
    assert "plug_b_ops" not in sys.modules


# ---- kinds ----


def test_a_kind_is_loaded_when_an_array_is_met(install: Install) -> None:
    """An unknown class with `shape` asks the plug-ins; a plug-in that fails is skipped."""
    install("plug-a", of_kinds("plug_a", "plug_a_kind"), plug_a_kind="1 / 0")
    install(
        "plug-box",
        of_kinds("plug_box", "plug_box_kind"),
        plug_box_kind=KIND.format(name="plug_box"),
        plug_box_arrays=BOX,
    )
    box = importlib.import_module("plug_box_arrays").Box([1.0, 2.0])

    class Plain:
        """Nothing about it is an array."""

    assert not kinds.is_array(Plain())
    assert "plug_box_kind" not in sys.modules
    with pytest.warns(co.CustomOpWarning, match="'plug_a' of plug-a .*: division by"):
        assert co.array_kind(box).name == "plug_box"
    assert kinds.is_array(box)

    @co.custom_op("plug_box::f", mutates_args=(), device_types="plug_box")
    def f(x: co.Array) -> co.Array:
        return type(x)(x.x + 1)

    np.testing.assert_array_equal(f(box).x, [2, 3])


@pytest.mark.parametrize(
    "ask",
    [
        lambda: co.array_kind("plug_named").name,
        lambda: (
            co.custom_op(
                "plug_n::f",
                lambda x: x,
                device_types="plug_named",
                schema="(Array x) -> Array",
                mutates_args=(),
            )
            and "plug_named"
        ),
    ],
    ids=["array_kind", "device_types"],
)
def test_a_kind_is_loaded_by_its_name(install: Install, ask: Callable[[], str]) -> None:
    """The name of a kind loads its plug-in alone."""
    install("plug-z", of_kinds("plug_z", "plug_z_kind"), plug_z_kind="1 / 0")
    text = KIND.format(name="plug_named")
    install("plug-n", of_kinds("plug_named", "plug_named_kind"), plug_named_kind=text)
    assert ask() == "plug_named"


def test_import_and_known_arrays_read_no_entry_points() -> None:
    """Only what is unknown reads the entry points, not ordinary programs."""
    program = """if True:
        import numpy as np, customop as co
        from customop import plugins
        @co.custom_op("mine::f", mutates_args=(), tags=co.Tag.pointwise)
        def f(x: co.Array, y: float) -> co.Array:
            return x * y
        f.register_autograd(lambda ctx, g: (g, None))
        class Setting: scale = 2.0
        lib = co.Library("lib", "DEF")
        lib.define("g(Array x) -> Array")
        lib.impl("g", lambda x: x.copy(), "CPU")
        co.vmap(co.grad(lambda x, s: np.sum(f(x, s.scale))), in_dims=(0, None))(
            np.ones((3, 2)), Setting()
        )
        co.ops.lib.g(np.ones(3)), co.ops.np.cos(np.ones(3))
        assert plugins._scan.cache_info().misses == 0
    """
    subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


# ---- the command, and the example ----


def test_list_plugins(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """`customop list --plugins` loads all, and says what each one gives or why not."""
    assert main(["list", "--plugins"]) == 0
    plugins._scan.cache_clear()
    text = OPERATORS.format(name="plug_ok")
    install("plug-ok", of_operators("plug_ok", "plug_ok_ops"), plug_ok_ops=text)
    install("plug-pk", of_operators("plug_ok", "plug_ok_ops"))
    text = KIND.format(name="plug_k")
    install("plug-k", of_kinds("plug_k", "plug_k_kind"), plug_k_kind=text)
    install("plug-x", of_kinds("plug_x", "plug_x_kind"), plug_x_kind="1 / 0")
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["list", "--plugins"]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "gives                package  version  module       loaded",
        "kind plug_k          plug-k   1.5      plug_k_kind  yes",
        "kind plug_x          plug-x   1.5      plug_x_kind  no: ZeroDivisionError: division by zero",
        "plug_ok: 1 operator  plug-ok  1.5      plug_ok_ops  yes",
        "plug_ok              plug-pk  1.5      plug_ok_ops  no: another package has this name",
    ]
    assert main(["list", "--plugins", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["plugins"]
    assert [p["is_loaded"] for p in found] == [True, False, True, False]
    assert found[2]["operators"] == ["twice"]
    assert main(["list", "plug_ok"]) == 0


@pytest.mark.exhaustive
def test_the_example_is_installed_from_a_wheel(tmp_path: Path) -> None:
    """The wheel of examples/plugin gives its kind and operators to a new process."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d"]
    subprocess.run(
        [*build, str(tmp_path)], cwd=EXAMPLE, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    program = """if True:
        import sys
        import numpy as np, customop as co
        assert "customop_angles" not in sys.modules
        x = np.array([3.0, -4.0])
        wanted = np.angle(np.exp(2j * x))
        np.testing.assert_allclose(co.ops.angles.wrap(2 * x), wanted)
        slope = co.grad(lambda x: np.sum(co.ops.angles.wrap(2 * x)))(x)
        np.testing.assert_allclose(slope, [2, 2])
        for op in (co.ops.angles.wrap.default, co.ops.angles.turn.default):
            co.opcheck(op)  # raises if a check fails
        from customop_angles import Degrees
        assert co.ops.angles.turn(Degrees([30.0])).values.tolist() == [390.0]
        assert co.array_kind(Degrees([1.0])).name == "degrees"
    """
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
    command = [sys.executable, "-W", "error", "-c", program]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    listed = subprocess.run(
        [sys.executable, "-m", "customop", "list", "--plugins", "--json"],
        check=True,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
    )
    found = json.loads(listed.stdout)["plugins"]
    assert [(p["name"], p["is_loaded"]) for p in found] == [
        ("degrees", True),
        ("angles", True),
    ]
