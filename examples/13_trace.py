"""Capture a graph: read it, run it, change it, save it.

`make_fx` runs a function once and writes down which operators it calls. The graph is a
function again, without the Python code that made it.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import customop as co

# A thermometer follows the temperature of the air slowly, and its readings are noisy.


@co.custom_op("thermo::calibrate", mutates_args=())
def calibrate(volts: np.ndarray, gain: float = 40.0) -> np.ndarray:
    return gain * volts - 10.0


calibrate.register_fake(
    lambda volts, gain: co.fake_like(volts, dtype=np.result_type(volts.dtype, 1.0))
)


def misfit(speed, volts, air):
    """Compare what is read with a thermometer that follows the air with this speed."""
    read = calibrate(volts)

    def follow(now, air):
        now = now + speed * (air - now)
        return now, now

    _, expected = co.scan(follow, read[0], air)
    return np.mean((read - expected) ** 2)


air = np.array([20.0, 21.0, 25.0, 24.0, 23.0])
volts = np.array([0.75, 0.76, 0.79, 0.81, 0.82])
speed = np.array(0.3)

# ---- capture ----

# Each call of an operator is a node, with the type of its result and your line. The
# custom operator is one node, and so is the loop, which holds a graph of its own.
graph = co.make_fx(misfit)(speed, volts, air)
print(graph.print_readable(print_output=False))
assert graph(speed, volts, air) == misfit(speed, volts, air)

# ---- sizes ----

# A graph is for the shapes that it was captured with. A size with a name stays open: this
# graph is for records of any length.
record = {"volts": ("time",), "air": ("time",)}
any_length = co.make_fx(misfit, sizes=record)(speed, volts, air)
longer = [np.concatenate([x, x]) for x in (volts, air)]
assert any_length(speed, *longer) == misfit(speed, *longer)
try:
    any_length(speed, volts, air[:3])
except co.GuardError as error:
    print(error)

# ---- transforms ----

# A transform can be captured, and a graph can be transformed.
slope = co.make_fx(co.grad(misfit), sizes=record)(speed, volts, air)
assert np.allclose(slope(speed, volts, air), co.grad(graph)(speed, volts, air))
speeds = np.linspace(0.1, 0.9, 5)
misfits = co.vmap(any_length, in_dims=(0, None, None))(speeds, volts, air)

# ---- change ----

# Here the mean of squares becomes the mean of absolute values. Whoever edits a graph
# erases what is not used any more, and lets `lint` look for mistakes.
robust = co.make_fx(misfit)(speed, volts, air)
for node in robust.graph.nodes:
    if node.op == "call" and node.target.name == "square":
        with robust.graph.inserting_after(node):
            new = robust.graph.call(co.ops.np.absolute.default, node.args)
        node.replace_all_uses_with(new)
robust.graph.eliminate_dead_code()
robust.graph.lint()
robust.recompile()

# ---- save, load, draw ----

# Another process needs the operators, and none of the code above: see `handover.py`.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "slope.graph")
    slope.save(path)
    again = co.load_graph(path)
    slope.draw(Path(folder, "slope.svg"))
    picture = Path(folder, "slope.svg").read_text(encoding="utf-8")

assert again(speed, *longer) == slope(speed, *longer)
assert "control::scan" in picture
assert misfits.argmin() > 0
assert robust(speed, volts, air) < np.sqrt(graph(speed, volts, air))
assert any(node.target is calibrate for node in again.graph.nodes)

# ---- a picture: python 13_trace.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    line = np.linspace(0.02, 0.98, 97)
    errors = co.vmap(any_length, in_dims=(0, None, None))(line, volts, air)
    best = float(line[errors.argmin()])
    follow = [calibrate(volts)[0]]
    for now in air:
        follow.append(follow[-1] + best * (now - follow[-1]))
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(air, "o-", label="air")
    left.plot(calibrate(volts), "o", label="read")
    left.plot(follow[1:], label=f"speed {best:.2f}")
    left.set(xlabel="time", ylabel="degrees")
    left.legend(loc="lower right")
    right.plot(line, errors, color="C2")
    right.set(xlabel="speed", title="misfit, by the graph")
    figure.savefig(sys.argv[-1])
