"""The table of what passes, for the guide: ``python -m tests.interop.jax_table``."""

from __future__ import annotations

import re
from pathlib import Path

import customop as co
from tests.conformance.foreign import errors_table
from tests.interop._jax_cases import BOTH, CASES

PAGE = Path(__file__).parents[2] / "examples" / "guide" / "jax.md"
_MODES = {BOTH: "yes", ("rev",): "reverse mode", ("fwd",): "forward mode", (): ""}


def cases_table() -> str:
    """Return a row for each function of the tests and what passes with it."""
    rows = [["function", "jit", "check_grads", "vmap"], ["---"] * 4]
    for name, case in CASES.items():
        is_operator = isinstance(case.fn, co.Operator)
        if is_operator:
            # A class by its name alone; the module is that of the tests.
            schema = re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", str(case.fn.schema))
            title = f"`{case.fn.name}{schema}`"
        else:
            title = f"NumPy: {name.replace('_', ' ')}"
        row = [title, "yes", _MODES[case.modes], "yes"]
        if row not in rows:  # an operator may have several cases
            rows.append(row)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def text() -> str:
    """Return both tables."""
    return f"{cases_table()}\n{errors_table('jax', 'arrays of JAX')}"


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8").partition("\n| function |")[0].rstrip()
    PAGE.write_text(f"{before}\n\n{text()}", encoding="utf-8")
