"""The tables of what passes, for the guide: ``python -m tests.interop.torch_table``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tests.conformance.foreign import errors_table
from tests.interop.torch_operators import CASES

PAGE = Path(__file__).parents[2] / "examples" / "guide" / "torch.md"
# Each has a test of this name for every operator.
CHECKS = ("opcheck", "gradcheck", "gradgradcheck", "func", "compile", "export")
_OF_GRADIENTS = ("gradcheck", "gradgradcheck", "func")


def operators_table() -> str:
    """A row for each operator of the tests."""
    bridge: Any = import_module("customop.interop.torch")
    lines = ["operator", *CHECKS], ["---"] * (1 + len(CHECKS))
    rows = [*map(list, lines)]
    for case in CASES.values():
        exported = bridge.export(case.op)
        schema = str(getattr(exported, "overload", exported)._schema)
        bridge.remove_export(case.op)
        marks = [
            "yes" if case.grads or check not in _OF_GRADIENTS else ""
            for check in CHECKS
        ]
        rows.append([f"`{schema.partition('::')[2]}`", *marks])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def text() -> str:
    """Both tables."""
    return f"{operators_table()}\n{errors_table('torch', 'tensors')}"


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8").partition("\n| operator |")[0].rstrip()
    PAGE.write_text(f"{before}\n\n{text()}", encoding="utf-8")
