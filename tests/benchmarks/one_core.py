"""Times of a chain as JSON; run in a process that is pinned to one core.

Of 1e7 elements, beside JAX and the least that NumPy takes.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import chains
import numpy as np
import peers
from timing import Statement, alternate


def main() -> None:
    """Print the seconds of each statement."""
    name, rounds = sys.argv[1], int(sys.argv[2])
    program = getattr(chains, name)
    random = np.random.default_rng(3)
    statements = _statements(name, program, random.uniform(size=10**7))
    sys.stdout.write(json.dumps(alternate(statements, rounds)))


def _statements(name: str, program: Any, x: Any) -> dict[str, Statement]:
    statements = chains.statements(partial(program, np), (x,))
    statements |= peers.compiled_by_jax(program, x)
    floor, what = (
        (chains.by_hand, chains.BY_HAND)
        if name == "arithmetic"
        else (chains.sines, chains.ALONE)
    )
    statements[what] = Statement("fn(x)", {"fn": floor, "x": x})
    return statements


if __name__ == "__main__":
    main()
