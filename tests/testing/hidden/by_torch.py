"""Count which hidden faults torch's opcheck finds, beside this package's.

``python -m tests.testing.hidden.by_torch`` prints a table. Each operator is exported to
torch and checked on the largest of the inputs that opcheck finds for it, with gradients
where it has a formula. A fault counts as found if torch reports the wrong operator and
passes its twin. Each pair runs in a process of its own, since some write where they must
not.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import Counter
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

import customop as co
from customop.arrays.nested import map_nested
from customop.core.builtin_kinds import AUTOGRAD
from customop.testing import opcheck
from customop.testing.inputs.input_patterns import base_samples, registered_samples

from . import HIDDEN, Hidden, calls, idioms, lengths, memory, precision, values

# The rows that importing these modules has entered.
MODULES = (calls, idioms, lengths, memory, precision, values)
_SECONDS = 120.0


def _says(op: co.Operator[..., Any]) -> str:
    """Return what torch's opcheck reports for an operator, "" if nothing."""
    torch: Any = import_module("torch")
    export: Any = import_module("customop.interop.torch").export
    has_formula = op.find_rule(AUTOGRAD) is not None

    def tensor(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        made = torch.from_numpy(leaf.copy())
        return (
            made.requires_grad_() if has_formula and made.is_floating_point() else made
        )

    sample = (registered_samples(op) or base_samples(op))[-1]
    args = tuple(map_nested(value, tensor) for value in sample.args)
    named = {name: map_nested(v, tensor) for name, v in sample.kwargs.items()}
    found = torch.library.opcheck(export(op), args, named, raise_exception=False)
    return ", ".join(name for name, said in found.items() if said != "SUCCESS")


def _compare(send: Any, row: Hidden) -> None:
    """Send what torch finds: of the wrong operator, and of the right one."""
    try:
        send.send((_says(row.build(True)), _says(row.build(False))))
    except Exception as error:  # noqa: BLE001  # torch cannot have such an operator
        send.send(("", f"does not translate: {str(error).splitlines()[0][:60]}"))


def by_torch(row: Hidden) -> str:
    """Return ``found``, ``missed``, or why torch's word says nothing."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_compare, args=(send, row))
    child.start()
    send.close()
    wrong, right = "", "ends the process"
    if receive.poll(_SECONDS):
        with suppress(EOFError):
            wrong, right = receive.recv()
    child.terminate()
    child.join()
    if right.startswith(("does not", "ends the")):
        return right
    if right:
        return f"says so of the twin too: {right}"
    return f"found: {wrong}" if wrong else "missed"


def main() -> None:
    """Print the table and the sums of each module."""
    _says(
        HIDDEN[0].build(False)
    )  # torch imports for ten seconds, once for all children
    sums: Counter[tuple[str, str]] = Counter()
    for row in HIDDEN:
        torch_says = by_torch(row)
        own = opcheck(row.build(True), raise_exception=False).failed
        ours = f"found: {', '.join(own)}" if own else "missed"
        module = row.build.__module__.rpartition(".")[2]
        sums[module, f"torch: {torch_says.partition(':')[0]}"] += 1
        sums[module, f"ours: {ours.partition(':')[0]}"] += 1
        _write(f"{module:10} {row.build.__name__:45} {torch_says:40} {ours}")
    for (module, what), count in sorted(sums.items()):
        _write(f"{module:10} {what:45} {count}")


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
