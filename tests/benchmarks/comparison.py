"""Whole programs by customop and by its peers: first call and later calls.

``python tests/benchmarks/comparison.py`` prints a table; ``--update`` also stores the run as
`examples/guide/programs.json` and renews the pages that show it. ``--program RNN`` measures
the programs with this in their names, ``--backend NAME`` another back end of `compile` (more
than one may be given).

Each program runs in a process of its own, on one core and in one thread. All results are
compared before anything is timed. Times are processor time; the libraries take turns, and a
time is that of customop times the median of the ratios to it.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

import numpy as np
import optree
import pages
from libraries import LIBRARIES, Function, Library, installed
from programs_run import COMPILED, EAGER, ProgramRun, Times, as_json, as_text
from table import machine, today
from whole_programs import PROGRAMS, Program

__all__ = ["measured"]

ROUNDS, ROUND_SECONDS = 15, 5e-3
# Threads of BLAS, OpenMP and XLA, which are read when the libraries are imported.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

Results = dict[str, tuple[float, Any]]


class Contender:
    """A program by one library: how it is made, called, and what it has returned."""

    def __init__(self, name: str, library: Library, wrap: Function) -> None:
        self.name, self.library, self.wrap = name, library, wrap
        self.fn: Function = lambda: None
        self.args: tuple[Any, ...] = ()

    def first(self, program: Program) -> tuple[float, Any]:
        """Make the function, and call it once: its time and its result."""
        inputs = program.inputs(np.random.default_rng(3))
        self.args = self.library.constant(inputs)
        start = time.process_time()
        made = program.make(self.library)
        fn = self.library.value_and_grad(made) if program.gradient else made
        self.fn = self.wrap(fn)
        result = self.call()
        return time.process_time() - start, result

    def call(self) -> Any:
        """Call the function, and wait for its result."""
        return self.library.wait(self.fn(*self.args))

    def seconds(self, number: int) -> float:
        """The processor time of a call, of so many."""
        start = time.process_time()
        for _ in range(number):
            self.call()
        return (time.process_time() - start) / number


def contenders(backends: list[str]) -> list[Contender]:
    """Everything that is compared, each once warmed up by another program."""
    found = []
    for name in installed():
        library = LIBRARIES[name]()
        if name == "customop":
            co: Any = __import__("customop")
            found.append(Contender(EAGER, library, lambda fn: fn))
            for backend in backends:
                wrap = _compiling(co, backend)
                label = COMPILED if backend == backends[0] else f"{COMPILED}, {backend}"
                found.append(Contender(label, library, wrap))
        elif name == "jax":
            found.append(Contender(name, library, __import__("jax").jit))
        else:
            found.append(Contender(name, library, lambda fn: fn))
    for contender in found:
        contender.first(PROGRAMS["Rosenbrock, 50"])
    return found


def _compiling(co: Any, backend: str) -> Function:
    return lambda fn: co.compile(fn, backend=backend)


def one(name: str, backends: list[str], rounds: int) -> Times:
    """First and later seconds of a program, in this process."""
    program = PROGRAMS[name]
    able = [
        contender
        for contender in contenders(backends)
        if all(getattr(contender.library, need) for need in program.needs)
    ]
    firsts = {each.name: each.first(program) for each in able}
    _compare(firsts, program)
    return {
        "first": {label: seconds for label, (seconds, _) in firsts.items()},
        "later": _later(able, rounds),
    }


def _compare(firsts: Results, program: Program) -> None:
    """Raise an AssertionError where two libraries disagree."""
    expected = optree.tree_leaves(firsts[EAGER][1])
    for name, (_, result) in firsts.items():
        # NumPy has the value without the gradient, as None, which is no leaf.
        leaves = optree.tree_leaves(result)
        wanted = expected[: len(leaves)] if name == "NumPy" else expected
        for leaf, right in zip(leaves, wanted, strict=True):
            scale = float(np.max(np.abs(right)))
            np.testing.assert_allclose(
                np.asarray(leaf),
                right,
                rtol=0,
                atol=program.precision * max(scale, 1e-300),
                err_msg=name,
            )


def _turn(each: Contender, number: int) -> float:
    """The processor time of a call, with a heap that has no garbage of the one before."""
    gc.collect()
    return each.seconds(number)


def _later(able: list[Contender], rounds: int) -> dict[str, float]:
    """Seconds of later calls, by turns."""
    numbers = {}
    for each in able:
        each.seconds(2)  # gradients of compiled functions compile in the second call
        seconds = max(each.seconds(1), 1e-7)
        numbers[each.name] = max(1, math.ceil(ROUND_SECONDS / seconds))
    gc.collect()
    gc.freeze()  # nobody pays for what the libraries keep
    times = [
        {each.name: _turn(each, numbers[each.name]) for each in able}
        for _ in range(rounds)
    ]
    ours = median(each[COMPILED] for each in times)
    return {
        name: ours * median(each[name] / each[COMPILED] for each in times)
        for name in numbers
    }


def measured(name: str, backends: list[str], rounds: int) -> Times:
    """First and later seconds of a program, in a process on one core."""
    arguments = [f"--backend={backend}" for backend in backends]
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", __file__, "--one", name),
            *(*arguments, f"--rounds={rounds}"),
        ],
        env={**os.environ, **ONE_THREAD},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: Times = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure, print, and store the run where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", action="append", metavar="PART", default=[])
    parser.add_argument("--backend", action="append", metavar="NAME", default=[])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--update", action="store_true", help="renew the pages")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    backends = given.backend or ["native"]
    if given.one:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        sys.stdout.write(json.dumps(one(given.one, backends, given.rounds)))
        return
    parts = [part.lower() for part in given.program] or [""]
    names = [n for n in PROGRAMS if any(part in n.lower() for part in parts)]
    run = ProgramRun(today(), machine(), {})
    sys.stdout.write(f"{run.machine}\n")
    for name in names:
        run.rows[name] = measured(name, backends, given.rounds)
        sys.stdout.write(as_text(name, run.rows[name]))
        sys.stdout.flush()
    if given.update:
        pages.PROGRAMS.write_text(as_json(run), encoding="utf-8")
        pages.update()


if __name__ == "__main__":
    main()
