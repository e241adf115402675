"""Times of a chain of 1e7, as JSON; run in a process that is pinned to one core."""

from __future__ import annotations

import json
import sys
from functools import partial

import chains
import numpy as np
import peers
from timing import Statement, alternate


def main() -> None:
    """Print the seconds of each statement."""
    name, rounds = sys.argv[1], int(sys.argv[2])
    program = getattr(chains, name)
    x = np.random.default_rng(3).uniform(size=10**7)
    statements = chains.statements(partial(program, np), (x,))
    statements |= peers.compiled_by_jax(program, x)
    floor, what = (
        (chains.by_hand, chains.BY_HAND)
        if name == "arithmetic"
        else (chains.sines, chains.ALONE)
    )
    statements[what] = Statement("fn(x)", {"fn": floor, "x": x})
    sys.stdout.write(json.dumps(alternate(statements, rounds)))


if __name__ == "__main__":
    main()
