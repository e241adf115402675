"""Find mistakes early: types, shapes, and what mypy reports before the program runs.

The second half needs mypy: ``pip install -e '.[typing]'``.

An operator has the type of the function that it was made from, also without a plugin.
Annotations can give the shapes of arrays too. The plugin for mypy reports what a
registration would raise when the program runs, in the same words.
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

import customop as co
from customop.testing import opcheck

# ---- shapes in annotations ----

Points = Annotated[NDArray[np.floating], "... n 3"]  # n points in space
Pixels = Annotated[NDArray[np.floating], "... n 2"]


@co.custom_op("camera::project", mutates_args=())
def project(points: Points, focal: float) -> Pixels:
    """Project points in front of a camera to its image."""
    return focal * points[..., :2] / points[..., 2:]


print(project)

# Calls are checked against the shapes, and errors name the axis:
try:
    project(np.ones((5, 4)), 100.0)
except co.ShapeError as error:
    print(error)

# The shapes replace some registrations. The fake kernel follows from them:
cloud = co.FakeArray((1000, 3), np.float64)
assert co.eval_shape(lambda p: project(p, 100.0), cloud).shape == (1000, 2)

# So does the vmap rule, since a batch is one more axis of `...`:
views = np.random.default_rng(0).uniform(1.0, 2.0, size=(4, 5, 3))
batched = co.vmap(lambda p: project(p, 100.0))(views)
np.testing.assert_allclose(batched, 100.0 * views[..., :2] / views[..., 2:])

# opcheck uses them too: it knows that the last axis has three elements.
assert not opcheck(project).failed

# A name has the same length everywhere in a call. A length can be a sum.


@co.custom_op("camera::gaps", mutates_args=())
def gaps(
    edges: Annotated[NDArray[np.floating], "n+1"], weights: Annotated[np.ndarray, "n"]
) -> Annotated[np.ndarray, "n"]:
    """Compute weighted distances between neighbors."""
    return np.diff(edges) * weights


try:
    gaps(np.arange(5.0), np.ones(5))
except co.ShapeError as error:
    print(error)

# ---- what mypy reports ----

MODULE = """
import numpy as np
import customop as co

@co.custom_op("camera::dim", mutates_args=())
def dim(pixels: np.ndarray, factor: float) -> np.ndarray:
    return pixels * factor

@dim.register_fake
def _(pixels, facotr):
    return co.fake_like(pixels)

dim.register_autograd(lambda ctx, grad: (grad * ctx.factor,))

dim(np.ones(3), "dark")

@co.custom_op("camera::crop", mutates_args=("pixel",))
def crop(pixels: np.ndarray, corner: slice) -> np.ndarray:
    return pixels[corner].copy()
"""

REPORTED = [
    "the fake kernel has the parameter 'facotr' where the schema has 'factor'",
    "backward returned 1 gradients, must return 2: pixels, factor",
    'incompatible type "str"; expected "float"',
    "parameter 'corner' has annotation slice, which has no schema type",
]

if find_spec("mypy") is None:
    raise SystemExit("the second half needs mypy\n  do: pip install -e '.[typing]'")

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "dimmer.py").write_text(MODULE, encoding="utf-8")
    Path(folder, "mypy.ini").write_text("[mypy]\nplugins = customop.mypy\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "dimmer.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)

assert done.returncode == 1
for text in REPORTED:
    assert text in done.stdout, text

# pyright has no plugins. This command writes stubs of a module's operators for it:
#
#     python -m customop stubs camera

# ---- a picture: python 12_typing.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    turn = np.linspace(0.0, 12.0 * np.pi, 600)
    spring = np.stack([np.cos(turn), np.sin(turn), 0.15 * turn], axis=-1)
    cameras = np.array([[0.0, 0.0, 2.0], [0.6, 0.2, 3.0], [1.5, 0.5, 4.0]])
    seen = co.vmap(lambda camera: project(spring + camera, 100.0))(cameras)
    figure = Figure(figsize=(6, 2.2), layout="constrained")
    for axes, pixels in zip(figure.subplots(1, 3), seen, strict=True):
        axes.plot(*pixels.T, linewidth=1)
        axes.set_aspect("equal")
        axes.axis("off")
    figure.suptitle("a spring in front of three cameras", fontsize=10)
    figure.savefig(sys.argv[-1])
