"""Programs for Ray and MPI, each in processes of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases

pytestmark = pytest.mark.exhaustive

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"
# Seconds after which something hangs, on machines that are busy too.
LIMIT = 240

MODULE = """
import numpy as np, customop as co

@co.custom_op("raymodule::twice", mutates_args=(), tags=co.Tag.pointwise)
def twice(x: np.ndarray) -> np.ndarray:
    return x * {factor}

twice.register_autograd(lambda ctx, g: twice(g))
twice.register_fake(lambda x: co.fake_like(x))

@co.custom_op("raymodule::write", mutates_args=("x",))
def write(x: np.ndarray) -> None:
    x += 1.0
"""

# Three actors: one with the module of the script, one with another version, one without.
RAY = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np, ray, customop as co
from raymodule import twice, write

scale = 3.0

@co.custom_op("rayscript::local", mutates_args=())
def local(x: np.ndarray) -> np.ndarray:
    return twice(x) * scale

local.register_autograd(co.native)
local.register_vmap(lambda info, in_dims, x: (local(x), in_dims[0]))

@ray.remote
class Holder:
    def __init__(self, x):
        self.x = x
    def run(self, fn):
        return fn(self.x)
    def is_read_only(self):
        return not self.x.flags.writeable
    def die(self):
        os._exit(3)

def slope(x):
    return co.grad(lambda y: np.sum(local(y)))(x)

def tried(fn):
    try:
        return np.asarray(ray.get(fn())).tolist()
    except Exception as error:
        return [type(error).__name__, str(error)]

programs = {
    "module": twice,
    "script": local,
    "gradient": slope,
    "batch": lambda x: co.vmap(slope)(x.reshape(2, 1)),
    "compiled": lambda x: co.compile(slope)(x),
    "writes": write,
    "writes a copy": lambda x: write(x.copy()),
}
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
try:
    x = ray.put(np.array([1.0, 2.0]))
    actors = {}
    for name, path in zip(("same", "other", "none"), sys.argv[1:], strict=True):
        settings = {"env_vars": {"PYTHONPATH": path}}
        actors[name] = Holder.options(runtime_env=settings).remote(x)
    found = {
        name: {key: tried(lambda: actor.run.remote(fn)) for key, fn in programs.items()}
        for name, actor in actors.items()
    }
    found["same"]["read-only"] = tried(actors["same"].is_read_only.remote)
    found["same"]["here"] = slope(ray.get(x)).tolist()
    found["same"]["dies"] = tried(actors["same"].die.remote)
    found["same"]["is dead"] = tried(actors["same"].is_read_only.remote)
finally:
    ray.shutdown()
print("found:" + json.dumps(found))
"""


def run(*command: str, **environment: str) -> str:
    """Return what a program prints; it must end well."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- Ray ----


def test_ray_actors() -> None:
    """The actors' gradients add up to the gradient of the whole table."""
    pytest.importorskip("ray", reason="Ray is not installed")
    printed = run(sys.executable, str(CLUSTER / "ray_actors.py"))
    assert "direction: [ 0.42 -0.88  0.22]" in printed


def test_operators_in_ray_actors(tmp_path: Path) -> None:
    """Actors run operators of modules and scripts on read-only arrays, and no other version."""
    pytest.importorskip("ray", reason="Ray is not installed")
    for name, factor in (("same", 2.0), ("other", 5.0)):
        (tmp_path / name).mkdir()
        text = MODULE.format(factor=factor)
        (tmp_path / name / "raymodule.py").write_text(text)
    (tmp_path / "script.py").write_text(RAY)
    paths = [str(tmp_path / name) for name in ("same", "other", "none")]
    printed = run(sys.executable, str(tmp_path / "script.py"), *paths)
    found: Any = json.loads(printed.partition("found:")[2])
    with cases() as case:
        with case("same"):
            same = found["same"]
            kind, text = same.pop("writes")
            assert (kind, "read-only" in text) == ("RayTaskError(ValueError)", True)
            for name in ("dies", "is dead"):
                assert same.pop(name)[0] == "ActorDiedError"
            assert same == {
                "module": [2.0, 4.0],
                "script": [6.0, 12.0],
                "gradient": [6.0, 6.0],
                "batch": [[6.0], [6.0]],
                "compiled": [6.0, 6.0],
                "writes a copy": None,
                "read-only": True,
                "here": [6.0, 6.0],
            }
        for name in ("module", "script", "gradient"):
            with case(f"other version, {name}"):
                kind, text = found["other"][name]
                assert kind == "RayTaskError(RegistrationError)"
                assert "raymodule::twice is another operator in this process" in text
            with case(f"no module, {name}"):
                kind, text = found["none"][name]
                assert kind == "RayTaskError(MissingRuleError)"
                assert "raymodule::twice is defined in the module 'raymodule'" in text
                assert 'ray.init(runtime_env={"py_modules": [raymodule]})' in text


# ---- MPI ----

MPI = """
import sys
import numpy as np, customop as co

sys.path.insert(0, sys.argv[1])
from mpi_allreduce import RANKS, allreduce

own = RANKS.rank + 1.0  # 1 and 2, so the sum of all is 3
x = np.array([1.0, -2.0])

def loss(x):
    return np.sum(allreduce(own * x) ** 2)

# The loss of all ranks is 2 * sum((3 * x) ** 2): what each adds to its slope sums to 36 * x.
assert loss(x) == 9 * 5
for slope in (co.grad(loss), co.compile(co.grad(loss))):
    np.testing.assert_array_equal(slope(x), 12 * own * x)
    np.testing.assert_array_equal(allreduce(slope(x)), 36 * x)
np.testing.assert_array_equal(allreduce(co.hessian(loss)(x)), 36 * np.eye(2))
np.testing.assert_array_equal(co.jvp(loss, (x,), (x,))[1], 18 * 5)
rows = co.vmap(co.grad(loss), in_dims=1)(np.stack([x, 2 * x], 1))
np.testing.assert_array_equal(rows, np.stack([12 * own * x, 24 * own * x]))
strided = np.asfortranarray(np.ones((3, 4)))[:, ::2]
np.testing.assert_array_equal(allreduce(strided), np.full((3, 2), 2.0))
assert allreduce(np.ones((0, 3), "float32")).shape == (0, 3)
assert allreduce(np.float32(own)).dtype == np.float32
assert co.eval_shape(allreduce, co.FakeArray((2, 3), "int64")).dtype == np.int64
sys.stdout.write(f"right on {RANKS.rank}\\n")
"""


@pytest.fixture
def mpirun() -> str:
    """The program that starts processes, of this environment or of the machine."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    here = str(Path(sys.executable).parent)
    found = shutil.which("mpirun", path=here + os.pathsep + os.environ["PATH"])
    if found is None:
        pytest.skip("there is no mpirun")
    return found


@pytest.mark.parametrize("count", ["1", "2", "3"])
def test_mpi_allreduce(mpirun: str, count: str) -> None:
    """The gradient over all ranks is the one of a single process."""
    program = str(CLUSTER / "mpi_allreduce.py")
    printed = run(mpirun, "-n", count, sys.executable, program)
    assert f"ranks: {count}, spread: 21.509, slope: [17.906 -9.613 11.771]" in printed


def test_rules_of_allreduce(mpirun: str, tmp_path: Path) -> None:
    """Gradients, Hessians, tangents and batches cross from rank to rank."""
    (tmp_path / "rules.py").write_text(MPI)
    program = [sys.executable, "-m", "mpi4py", str(tmp_path / "rules.py"), str(CLUSTER)]
    printed = run(mpirun, "-n", "2", *program)
    assert sorted(printed.split("\n")) == ["", "right on 0", "right on 1"]
