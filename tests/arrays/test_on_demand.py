"""Modules of NumPy operators that are imported when a function is first needed.

Each test is a program of its own, since this process has long imported all of them.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.tiers import all_but

HEAD = """
import sys, threading
import numpy as np
import customop as co

X = np.array([0.5, 2.0, -1.0])

def loaded():
    return sorted(n.rpartition(".")[2] for n in sys.modules if n.startswith("customop.numpy."))
"""


def run(program: str, folder: Path | None = None) -> str:
    """Return what a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(program)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_table_lists_what_modules_register() -> None:
    """Each name is registered by its module, and each registered function is a name."""
    program = """
    import importlib, operator, pkgutil
    import customop.numpy

    def exists(name):
        try:
            operator.attrgetter(name)(np)
        except AttributeError:  # of another version of NumPy, or not a function of it
            return name.startswith((".", "_operator."))
        return True

    real, seen = co.register_numpy_function, {}

    def name_of(f):
        if isinstance(f, tuple):
            return f".{f[1]}"
        if isinstance(f, np.ufunc):
            return f.__name__
        return f"{f.__module__}.{f.__name__}".removeprefix("numpy.")

    def noting(function, *rest, **options):
        frame = sys._getframe(1)
        # Functions make operators for other modules, when these are imported, or later.
        while frame.f_code.co_name != "<module>" and frame.f_back.f_code.co_name != "load":
            frame = frame.f_back
        module = frame.f_globals["__name__"].rpartition(".")[2]
        seen.setdefault(module, set()).add(name_of(function))
        return real(function, *rest, **options)

    co.register_numpy_function = noting
    table = {m: {*names.split()} for m, names in customop.numpy.MODULES.items()}
    assert sum(map(len, table.values())) == len(set().union(*table.values()))
    before = {*co.ops.np.__dir__()}
    for found in pkgutil.iter_modules(customop.numpy.__path__):
        importlib.import_module(f"customop.numpy.{found.name}")
    assert {*dir(co.ops.np)} == before  # modules without functions are listed too
    for module in {*table, *seen}:
        listed, registered = table.get(module, set()), seen.get(module, set())
        there = {*filter(exists, listed)}
        assert there == registered, (module, there ^ registered)
    """
    assert run(program) == ""


def test_functions_bring_their_modules() -> None:
    """The import brings no operator; a function brings its module and what that needs."""
    program = """
    assert loaded() == []
    co.grad(lambda x: np.cumsum(x)[-1] * 2.0)(X)
    assert {"cumulative", "indexing", "ufuncs"} <= {*loaded()}
    assert not {"matrices", "einsum", "statistics", "writers"} & {*loaded()}
    """
    assert run(program) == ""


def test_functions_make_their_operators() -> None:
    """Of the ufuncs, only those that a program calls become operators."""
    program = """
    from customop.core.registry import operators
    co.grad(lambda x: np.sum(np.sin(x)))(X)
    assert "np::sin" in operators and "np::tan" not in operators
    assert "tan" in dir(co.ops.np)
    assert "np::tan" in operators
    """
    assert run(program) == ""


@pytest.mark.parametrize("use", ["co.grad(np.tan)(X[0])", "co.ops.np.tan", "pass"])
def test_ufuncs_of_users_win(use: str) -> None:
    """So does what a user registers for a ufunc that is not made yet."""
    program = f"""
    co.grad(lambda x: np.sum(np.sin(x)))(X)

    @co.register_numpy_function(np.tan)
    def tan(x):
        return x * 7.0

    {use}
    print(co.grad(np.tan)(X[0]))
    """
    assert run(program) == "7.0"


WHOLE = {
    "ops": "co.ops.np.matmul(np.eye(2), np.ones(2))",
    "dir": "assert {'matmul', 'sort'} <= {*dir(co.ops.np)}",
    "namespaces": "assert 'np' in dir(co.ops)",
    "register_fake": "co.register_fake('np::matmul', lambda x1, x2: x1, override=True)",
    "get_kernel": "co.get_kernel('np::matmul', 'CPU')",
    "impl": "co.impl('np::matmul', 'CPU', np.matmul)",
    "library": "co.Library('np', 'FRAGMENT').impl('matmul', lambda x1, x2: x1, 'CPU')",
    "explain": "from customop.core.registry import find_operator; find_operator('np::matmul').explain(X, X)",
    "define": "co.custom_op('np::mine', lambda x: x, mutates_args=(), schema='(Array x) -> Array')",
    "list": "from customop.cli import main; main(['show', 'np::matmul'])",
    "coverage": "from customop.cli import main; main(['coverage'])",
    "stubs": "from customop.stubgen.stubs import stubs_text; stubs_text(['np'])",
}


@pytest.mark.parametrize("name", all_but(WHOLE, ["ops", "impl", "list"]))
def test_names_bring_operators(name: str) -> None:
    """A name of the namespace, and a list of operators, find what is not loaded yet."""
    run(f"assert loaded() == []\n{WHOLE[name]}\nassert 'matrices' in loaded()")


@pytest.mark.exhaustive
def test_pickled_operators() -> None:
    """An operator and a packet are unpickled by a process that has not met them."""
    program = """
    import pickle, subprocess
    pickled = pickle.dumps([co.ops.np.matmul, co.ops.np.sort.default, co.ops.np.slice.default])
    again = f"import pickle; print(*pickle.loads({pickled!r}))"
    subprocess.run([sys.executable, "-c", again], check=True)
    """
    assert run(program).startswith(
        "<OperatorPacket np::matmul: default> <Operator np::sort("
    )


def test_a_second_definition_is_an_error() -> None:
    """The name of an operator that is not loaded yet is taken."""
    program = """
    try:
        co.custom_op("np::sin", lambda x: x, mutates_args=(), schema="(Array x) -> Array")
    except co.RegistrationError as error:
        print(error.what)
    """
    assert run(program).startswith("np::sin is defined already, at ")


@pytest.mark.parametrize(
    "use",
    all_but(
        ["co.grad(np.median)(X)", "import customop.numpy.statistics", "co.ops.np.sin"],
        ["co.grad(np.median)(X)"],
    ),
)
def test_registrations_of_users_win(use: str) -> None:
    """What a user registers first still replaces what the package registers."""
    program = f"""
    @co.register_numpy_function(np.median)
    def median(x):
        return np.sum(x) * 7.0

    {use}
    print(co.grad(np.median)(X))
    """
    assert run(program) == "[7. 7. 7.]"


def test_a_missing_function_is_named() -> None:
    """A function that no module registers raises as ever, and loads nothing."""
    program = """
    try:
        co.grad(lambda x: np.datetime_as_string(x).sum())(X)
    except co.MissingRuleError as error:
        print(error.what, loaded())
    """
    expected = "np.datetime_as_string has no operator: dates have no derivative []"
    assert run(program) == expected


def test_threads() -> None:
    """Threads that meet functions at the same time all find them complete."""
    program = """
    from concurrent.futures import ThreadPoolExecutor

    loss = [np.sum, np.prod, np.median, np.max, np.linalg.norm, np.var]
    inner = [np.sin, np.sort, np.cumsum, np.flip, np.square, lambda x: np.outer(x, x)]
    barrier = threading.Barrier(12)

    def gradient(i):
        barrier.wait()
        if i == 5:
            import customop.numpy.writers
        return co.grad(lambda x: loss[i % 6](inner[i // 2](x)))(X)

    with ThreadPoolExecutor(12) as pool:
        found = [*pool.map(gradient, range(12))]
    for i, value in enumerate(found):
        def f(x):
            return loss[i % 6](inner[i // 2](x))
        near = [(f(X + h) - f(X - h)) / 2e-6 for h in np.eye(3) * 1e-6]
        np.testing.assert_allclose(value, near, rtol=1e-6, atol=1e-6)
    """
    assert run(program) == ""


SLOW = """
import threading
import numpy as np
import customop as co

started, go_on = threading.Event(), threading.Event()

@co.custom_op("slow::text", mutates_args=(), schema="(Array x) -> Array")
def text(x):
    return x * 2.0

co.register_numpy_function(np.datetime_as_string, text)
started.set()
go_on.wait()
text.register_autograd(lambda ctx, g: g * 3.0)
"""


def slow_package(folder: Path) -> Path:
    """Make a package whose only module is complete when another thread says so."""
    (folder / "slow").mkdir()
    (folder / "slow/__init__.py").touch()
    (folder / "slow/parts.py").write_text(SLOW)
    return folder


ASIDE = """
from customop.arrays.numpy_functions import add_modules

add_modules("slow", "slow", {"parts": "datetime_as_string"})
found = []
threads = [
    threading.Thread(target=lambda: found.append(co.grad(lambda x: np.datetime_as_string(x).sum())(X)))
    for _ in range(2)
]
for thread in threads:
    thread.start()
while "slow.parts" not in sys.modules or not hasattr(sys.modules["slow.parts"], "go_on"):
    pass
slow = sys.modules["slow.parts"]
slow.started.wait()
MAIN
slow.go_on.set()
for thread in threads:
    thread.join()
print(*found, sep="")
"""


def test_no_thread_sees_half_a_module(tmp_path: Path) -> None:
    """A function that is registered before its rules waits for them in all threads."""
    program = ASIDE.replace("MAIN", "assert np.datetime_as_string not in FUNCTIONS")
    program = f"from customop.arrays.numpy_functions import FUNCTIONS\n{program}"
    assert run(program, slow_package(tmp_path)) == "[3. 3. 3.]" * 2


def test_modules_of_the_package_never_wait(tmp_path: Path) -> None:
    """They can be imported while another thread loads: waiting would be a deadlock."""
    main = "import importlib\nfor name in co.numpy.MODULES:\n    "
    main += "importlib.import_module(f'customop.numpy.{name}')"
    program = ASIDE.replace("MAIN", main)
    assert run(program, slow_package(tmp_path)) == "[3. 3. 3.]" * 2


def test_a_failed_import_is_tried_again(tmp_path: Path) -> None:
    """The error of a module is raised, and the next call imports it again."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole/__init__.py").touch()
    (tmp_path / "whole/broken.py").write_text(
        "import customop as co, numpy as np\n"
        "factor = 3.0 if co.first else 5.0\n"
        "co.register_numpy_function(np.datetime_as_string, lambda x: x * factor)\n"
        "if co.first:\n    co.first = False\n    raise OSError('no disk')\n"
    )
    program = """
    from customop.arrays.numpy_functions import add_modules

    co.first = True
    add_modules("whole", "whole", {"broken": "datetime_as_string"})
    try:
        co.grad(lambda x: np.datetime_as_string(x).sum())(X)
    except OSError as error:
        print(error)
    print(co.grad(lambda x: np.datetime_as_string(x).sum())(X))
    """
    assert run(program, tmp_path) == "no disk\n[5. 5. 5.]"


def test_the_first_gradient_imports_little() -> None:
    """Neither optree nor the metadata of all packages, which take half of its time."""
    program = """
    x = np.linspace(0.5, 1.0, 4)
    co.grad(lambda x: np.sum(np.concatenate([np.sin(x) * x, np.exp(x)])))(x)
    print(*{"optree", "importlib.metadata"} & {*sys.modules})
    """
    assert run(program) == ""
