"""The command ``coverage``."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from customop.arrays.numpy_protocol import FUNCTIONS
from tests.cli._commands import Run


class Probe:
    """Answers all that asks the class of its arrays."""

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> str:
        return "asked"

    def __array_function__(self, *args: Any, **kwargs: Any) -> str:
        return "asked"


# Functions that look at something else than each required argument for arrays.
PROBES: dict[str, tuple[Any, ...]] = {
    "numpy.apply_along_axis": (None, 0, Probe()),
    "numpy.apply_over_axes": (None, Probe(), 0),
    "numpy.choose": (Probe(), [Probe()]),
    "numpy.einsum_path": ("i", Probe()),
    "numpy.ravel_multi_index": ((Probe(), Probe()), (2, 2)),
}


def find(name: str) -> Any:
    """The function of a name."""
    found: Any = np
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def asks(name: str) -> bool:
    """Whether a call with arrays of a class of one's own reaches that class."""
    fn = find(name)
    if isinstance(fn, np.ufunc):
        return fn(*[Probe()] * fn.nin) == "asked"
    for count in range(1, 6):
        for args in (PROBES.get(name, (Probe(),) * count), ([Probe()],)):
            try:
                return fn(*args) == "asked"
            except (TypeError, ValueError, AttributeError):
                continue
    return False


def test_coverage_counts_functions_that_ask(run: Run) -> None:
    """What is said to lack an operator does ask the protocols by which it could have one."""
    modules = run.json("coverage")["modules"]
    missing = [f"{m['module']}.{name}" for m in modules for name in m["missing"]]
    assert len(missing) > 100
    assert [name for name in missing if not asks(name)] == []


def test_coverage_counts_each_function_once(run: Run) -> None:
    """A function of several names or modules is one function."""
    modules = [np, np.linalg, np.fft, np.strings, np.emath]
    named = [getattr(m, name) for m in modules for name in m.__all__]
    asking = [f for f in named if type(f) in (np.ufunc, type(np.sum))]
    others = [f for f in FUNCTIONS if f in (np.zeros, np.ones, np.full, np.eye)]
    total = sum(m["functions"] for m in run.json("coverage")["modules"])
    assert total == len({id(f) for f in [*asking, *others]})


def test_coverage_counts_what_is_there(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that gets an operator is missing no more."""
    before = {m["module"]: m for m in run.json("coverage")["modules"]}["numpy.strings"]
    monkeypatch.setitem(FUNCTIONS, np.strings.upper, len)
    after = {m["module"]: m for m in run.json("coverage")["modules"]}["numpy.strings"]
    assert after["functions"] == before["functions"]
    assert after["covered"] == before["covered"] + 1
    assert set(before["missing"]) - set(after["missing"]) == {"upper"}


def test_coverage_counts_rules(run: Run) -> None:
    """Counts of rules are those of the operators, and name those without."""
    found = run.json("coverage")
    listed = run.json("list", "np")["operators"]
    assert found["operators"] == listed
    for count in found["rules"]:
        origins = {
            op["name"]: [r["origin"] for r in op["rules"] if r["name"] == count["rule"]]
            for op in listed
        }
        flat = [origin for each in origins.values() for origin in each]
        assert count["own"] == flat.count("own")
        assert count["derived"] == len(flat) - flat.count("own") - flat.count("loop")
        none = [name for name, each in origins.items() if each in ([], ["loop"])]
        assert count["missing"] == none


def test_coverage_in_plain(run: Run) -> None:
    """Tables of operators, rules and modules follow; --missing names what is not there."""
    found = run("coverage")
    modules = run.json("coverage")["modules"]
    total, covered = (sum(m[key] for m in modules) for key in ("functions", "covered"))
    share = f"{100 * covered / total:.0f} %"
    assert found.startswith("operators of the namespace np: ")
    assert found.splitlines()[-1].split("  ")[0] == "all"
    assert re.split("  +", found.splitlines()[-1]) == [
        "all",
        str(total),
        str(covered),
        share,
    ]
    more = run("coverage", "--missing")
    assert more.startswith(found)
    assert "no operator   numpy.strings.upper" in more.splitlines()
    assert "no vmap rule  np::eye" in more.splitlines()
