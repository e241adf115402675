"""The table of what passes, for the guide: ``python -m tests.interop.jax_table``."""

from __future__ import annotations

from pathlib import Path

import customop as co
from tests.conformance.foreign import errors_table
from tests.interop._jax_cases import BOTH, CASES

PAGE = Path(__file__).parents[2] / "examples" / "guide" / "jax.md"
_MODES = {BOTH: "yes", ("rev",): "reverse mode", ("fwd",): "forward mode", (): ""}


def cases_table() -> str:
    """A row for each case of the tests."""
    rows = [["function", "jit", "check_grads", "vmap"], ["---"] * 4]
    for name, case in CASES.items():
        is_operator = isinstance(case.fn, co.Operator)
        title = f"`{case.fn.name}{case.fn.schema}`" if is_operator else f"NumPy: {name}"
        rows.append([title, "yes", _MODES[case.modes], "yes"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def text() -> str:
    """Both tables."""
    return f"{cases_table()}\n{errors_table('jax', 'arrays of JAX')}"


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8").partition("\n| function |")[0].rstrip()
    PAGE.write_text(f"{before}\n\n{text()}", encoding="utf-8")
