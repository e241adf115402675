"""The plugin in warm runs of mypy and in its daemon, which check what has changed.

Cold runs are the oracle: whatever was edited, a warm run prints what a cold one prints.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("mypy") is None:
    pytest.skip("mypy is not installed", allow_module_level=True)

from tests.mypy.program import CONFIG, Daemon, errors, run, run_and_watch, write

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("mypy")]

OPERATORS = """\
import numpy as np
import customop as co

@co.custom_op("mypy_warm::scale", mutates_args=())
def scale(x: np.ndarray, {k}: {type}) -> {result}:
    raise NotImplementedError
"""
PLAIN = {"k": "k", "type": "float", "result": "np.ndarray"}
RULES = """\
import numpy as np
import customop as co
from operators import scale

@scale.register_fake
def _(x: co.FakeArray, k: float) -> co.FakeArray:
    return x
"""
BY_NAME = """\
import numpy as np
import customop as co
import package

co.register_kernel("mypy_warm::scale", "cpu", lambda x, k: x)
result: np.ndarray = co.ops.mypy_warm.scale(np.ones(2), 2.0)
"""
OTHER = """\
import numpy as np
import customop as co

@co.custom_op("mypy_warm::{name}", mutates_args=())
def other(x: np.ndarray) -> np.ndarray:
    return x
"""
OVERLOADED = """\
from typing import overload
import numpy as np
import customop as co

@overload
def cut(x: np.ndarray, at: int) -> {result}: ...
@overload
def cut(x: np.ndarray) -> list[np.ndarray]: ...
@co.custom_op("mypy_warm::cut", mutates_args=())
def cut(x: np.ndarray, at: int = 0) -> list[np.ndarray]:
    return [x]

@cut.register_fake
def _(x: co.FakeArray, at: int) -> list[co.FakeArray]:
    return [x]
"""
MAIN = """\
import numpy as np
import operators
import other
import overloaded

other.other(np.ones(2))
first: list[np.ndarray] = overloaded.cut(np.ones(2), 1)
second: int = overloaded.cut(np.ones(2))
overloaded.cut(np.ones(2), at="")
"""
START = {
    "operators.py": OPERATORS.format(**PLAIN),
    "rules.py": RULES,
    "package.py": "import operators as operators\n",
    "by_name.py": BY_NAME,
    # The text gets another length later: the daemon compares sizes and seconds.
    "other.py": OTHER.format(name="another"),
    "overloaded.py": OVERLOADED.format(result="list[np.ndarray]"),
    "main.py": MAIN,
}
# Name of an edit, the files, and the number of errors that follow.
EDITS: list[tuple[str, dict[str, str], int]] = [
    ("nothing", {}, 2),
    ("a name", {"operators.py": OPERATORS.format(**{**PLAIN, "k": "factor"})}, 4),
    ("back", {"operators.py": START["operators.py"]}, 2),
    ("types", {"operators.py": OPERATORS.format(k="k", type="int", result="float")}, 5),
    ("a taken name", {"other.py": OTHER.format(name="scale")}, 6),
    ("an overload", {"overloaded.py": OVERLOADED.format(result="tuple[float]")}, 9),
    ("comments", {"by_name.py": BY_NAME + "# more\n", "main.py": MAIN + "#\n"}, 9),
    ("all back", START, 2),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests: it takes 7 s to read NumPy and this package."""
    folder = tmp_path_factory.mktemp("daemon")
    write(folder, {"mypy.ini": CONFIG})
    with Daemon(folder) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def cold(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The lines that mypy prints after each edit if it sees all files the first time."""
    said = []
    known: dict[str, list[str]] = {}
    folder = tmp_path_factory.mktemp("cold")
    write(folder, {"mypy.ini": CONFIG, **START})
    for _, files, _ in EDITS:
        write(folder, files)
        state = "".join((folder / name).read_text() for name in START)
        if state not in known:
            new = tmp_path_factory.mktemp("new") / "cache"
            shutil.copytree(cache, new)
            known[state] = sorted(run(folder, new, *START))
        said.append(known[state])
    return said


def test_cold_runs_see_the_edits(cold):
    """The edits make mistakes that the plugin finds, and repair them."""
    assert [len(errors(said)) for said in cold] == [count for _, _, count in EDITS]


def test_warm_runs_say_what_cold_runs_say(folder, cold):
    """A run with a warm cache prints the same after each edit as a cold run."""
    write(folder, START)
    for (what, files, _), expected in zip(EDITS, cold, strict=True):
        write(folder, files)
        said = sorted(run(folder, folder / "cache", *START))
        assert (what, said) == (what, expected)


def test_the_daemon_says_what_cold_runs_say(daemon, cold):
    """The daemon, which checks changed modules only, prints the same as a cold run."""
    write(daemon.folder, START)
    for (what, files, _), expected in zip(EDITS, cold, strict=True):
        write(daemon.folder, files)
        said, _ = daemon.check(*START)
        assert (what, sorted(said)) == (what, expected)


# ---- modules that are checked again ----

COUNT = 6
_OPERATOR = """\
import numpy as np
import customop as co

@co.custom_op("warm{i}::scale", mutates_args=())
def scale(x: np.ndarray, k: int) -> np.ndarray:
    return x * k

@scale.register_fake
def _(x: co.FakeArray, k: int) -> co.FakeArray:
    return co.fake_like(x)
"""
_USER = """\
import numpy as np
import customop as co
import all_of_them
import op_{i}

def use(x: np.ndarray) -> np.ndarray:
    return op_{i}.scale(x, 2)

def by_name(x: np.ndarray) -> np.ndarray:
    return co.ops.warm{j}.scale(x, 2)
"""
PROGRAM = {
    **{f"op_{i}.py": _OPERATOR.format(i=i) for i in range(COUNT)},
    **{f"user_{i}.py": _USER.format(i=i, j=(i + 1) % COUNT) for i in range(COUNT)},
    "all_of_them.py": "".join(f"import op_{i} as op_{i}\n" for i in range(COUNT))
    + "import numpy as np\nop_1.scale(np.ones(2), 2)\n",
}
FIRST = PROGRAM["op_0.py"]
ABOVE = {"all_of_them", *(f"user_{i}" for i in range(COUNT))}
# What changes in `op_0`, its text, the modules that are checked again, and the errors.
CHANGES: list[tuple[str, str, set[str], int]] = [
    ("a body", FIRST.replace("x * k", "x / k"), set(), 0),
    ("lines", "# a comment\n" + FIRST, set(), 0),
    (
        "a signature",
        FIRST.replace("k: int", "k: str"),
        {"all_of_them", "user_0", f"user_{COUNT - 1}"},
        2,
    ),
    ("the name", FIRST.replace("warm0::", "other::"), ABOVE, 0),
    ("a taken name", FIRST.replace("warm0::", "warm3::"), ABOVE, 1),
    (
        "a line above a taken name",
        "# a comment\n" + FIRST.replace("warm0::", "warm3::"),
        ABOVE,
        1,
    ),
    ("nothing any more", FIRST, ABOVE, 0),
]


def test_a_warm_run_checks_what_depends_on_an_edit(folder):
    """A body or a line costs one module; a type its users; a name those who see it."""
    write(folder, PROGRAM)
    run(folder, folder / "cache", *PROGRAM)
    for what, text, again, count in CHANGES:
        write(folder, {"op_0.py": text})
        said, checked = run_and_watch(folder, folder / "cache", *PROGRAM)
        assert (what, {*checked}) == (what, {"op_0", *again})
        assert (what, len(errors(said))) == (what, count)


def test_the_daemon_checks_what_depends_on_an_edit(daemon):
    """The daemon checks no more modules than a warm run, and reports the same."""
    write(daemon.folder, PROGRAM)
    daemon.check(*PROGRAM)
    for what, text, again, count in CHANGES:
        write(daemon.folder, {"op_0.py": text})
        said, checked = daemon.check(*PROGRAM)
        assert (what, checked - {"op_0", *again}) == (what, set())
        assert (what, len(errors(said))) == (what, count)


# ---- edits at random ----


def _module(number: int, rng: random.Random) -> str:
    """A module that imports others, defines operators and uses them by name."""
    lines = ["import numpy as np", "import customop as co"]
    seen = [other for other in range(number) if rng.random() < 0.5]
    lines += [f"import m{i}{rng.choice(['', f' as other{i}'])}" for i in seen]
    for k in range(rng.randrange(3)):
        name, taken = rng.choice(["a", "b", "c.x", "c.y"]), rng.choice(["k", "n"])
        lines += [
            f'@co.custom_op("random::{name}", mutates_args=())',
            f"def op_{k}(x: np.ndarray, {taken}: {rng.choice(['int', 'str'])}) -> float:",
            "    raise NotImplementedError",
        ]
    for k in range(rng.randrange(3)):
        name = rng.choice(["a", "b", "c", "c.x"])
        use = rng.choice(
            [
                f"reveal_type(co.ops.random.{name}(np.ones(2), 2))",
                f'co.register_fake("random::{name}", lambda x, k: x)',
            ]
        )
        lines += [f"def use_{k}() -> None:", f"    {use}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(2))
def test_edits_at_random_leave_nothing_stale(folder, cache, daemon, seed):
    """After many edits, warm runs and the daemon print what a cold run prints."""
    rng = random.Random(seed)
    names = [f"m{i}.py" for i in range(6)]
    files = {name: _module(i, rng) for i, name in enumerate(names)}
    shutil.copytree(cache, folder / "cold")
    for _ in range(4):
        write(folder, files)
        write(daemon.folder, files)
        run(folder, folder / "cache", *names)
        daemon.check(*names)
        number = rng.randrange(len(names))
        files = {names[number]: _module(number, rng)}
    write(folder, files)
    write(daemon.folder, files)
    warm = run(folder, folder / "cache", *names)
    live, _ = daemon.check(*names)
    expected = sorted(run(folder, folder / "cold", *names))
    assert sorted(warm) == expected
    assert sorted(live) == expected
