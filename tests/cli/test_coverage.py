"""The command ``coverage``."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from customop.arrays.numpy_functions import FUNCTIONS
from customop.arrays.refusals import missing
from tests.cli._commands import Run


class Probe:
    """Answers every array protocol."""

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> str:
        return "asked"

    def __array_function__(self, *args: Any, **kwargs: Any) -> str:
        return "asked"


# Functions that do not look for arrays in each required argument.
PROBES: dict[str, tuple[Any, ...]] = {
    "numpy.apply_along_axis": (None, 0, Probe()),
    "numpy.apply_over_axes": (None, Probe(), 0),
    "numpy.choose": (Probe(), [Probe()]),
    "numpy.einsum_path": ("i", Probe()),
    "numpy.ravel_multi_index": ((Probe(), Probe()), (2, 2)),
}


def find(name: str) -> Any:
    """The function with a dotted name."""
    found: Any = np
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def asks(name: str) -> bool:
    """Whether a call with a `Probe` reaches the protocols."""
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


def names_of(module: Any) -> list[str]:
    """The functions of a module that have no operator."""
    return [*module["missing"], *[r["name"] for r in module["refused"]]]


def test_missing_functions_call_the_protocols(run: Run) -> None:
    """Every function without an operator calls the array protocols."""
    modules = run.json("coverage")["modules"]
    missing = [f"{m['module']}.{name}" for m in modules for name in names_of(m)]
    assert len(missing) > 30
    assert [name for name in missing if not asks(name)] == []


# Functions with an operator that NumPy does not ask arrays for without ``like=``.
MAKERS = (
    *(np.zeros, np.ones, np.empty, np.full, np.eye, np.arange, np.identity, np.tri),
    *(np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray),
    *(np.require, np.fromfunction),
)


def test_coverage_counts_each_function_once(run: Run) -> None:
    """A function with several names or modules counts once."""
    modules = [np, np.linalg, np.fft, np.strings, np.emath]
    named = [getattr(m, name) for m in modules for name in m.__all__]
    asking = [f for f in named if type(f) in (np.ufunc, type(np.sum))]
    others = [f for f in FUNCTIONS if f in MAKERS]
    total = sum(m["functions"] for m in run.json("coverage")["modules"])
    assert total == len({id(f) for f in [*asking, *others]})


def test_coverage_counts_new_operators(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that gets an operator is covered."""
    before = {m["module"]: m for m in run.json("coverage")["modules"]}["numpy.strings"]
    monkeypatch.setitem(FUNCTIONS, np.strings.upper, len)
    after = {m["module"]: m for m in run.json("coverage")["modules"]}["numpy.strings"]
    assert after["functions"] == before["functions"]
    assert after["covered"] == before["covered"] + 1
    assert set(names_of(before)) - set(names_of(after)) == {"upper"}
    assert after["composed"] == ["upper"]


def test_coverage_counts_rules(run: Run) -> None:
    """Own and derived rules are counted; operators without a rule are named."""
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


SAVES = "a file takes values, and a traced or fake array may not have one"


def test_the_error_of_a_function_gives_the_reason_of_the_table(run: Run) -> None:
    """Each function with a reason says it where it meets a traced or fake array."""
    reasons = {
        f"{m['module']}.{r['name']}": r["reason"]
        for m in run.json("coverage")["modules"]
        for r in m["refused"]
    }
    assert len(reasons) > 30
    for name, why in reasons.items():
        assert missing(find(name)).args[0].endswith(f" has no operator: {why}")


def test_every_function_has_an_operator_or_a_reason(run: Run) -> None:
    """None is left out, for the NumPy that the tables are made for."""
    if not np.__version__.startswith("2.4."):
        pytest.skip("other releases of NumPy have other functions")
    modules = run.json("coverage")["modules"]
    assert [f"{m['module']}.{name}" for m in modules for name in m["missing"]] == []


def test_coverage_as_text(run: Run) -> None:
    """Operators, rules and modules are tables; --missing adds what is missing."""
    found = run("coverage")
    modules = run.json("coverage")["modules"]
    total, covered = (sum(m[key] for m in modules) for key in ("functions", "covered"))
    parts = [
        sum(len(m[key]) for m in modules)
        for key in ("operators", "composed", "refused", "missing")
    ]
    assert parts[0] + parts[1] == covered
    assert sum(parts) == total
    share = f"{100 * covered / total:.0f} %"
    rows = [re.split("  +", line) for line in found.splitlines()]
    assert ["numpy.sin", "np::sin"] in rows
    assert ["numpy.vstack", "by operators"] in rows
    assert ["numpy.save", f"no: {SAVES}"] in rows
    assert found.startswith("operators of the namespace np: ")
    assert found.splitlines()[-1].split("  ")[0] == "all"
    assert re.split("  +", found.splitlines()[-1]) == [
        "all",
        str(total),
        *map(str, parts),
        share,
    ]
    more = run("coverage", "--missing")
    assert more.startswith(found)
    text = "no operator   numpy.strings.upper: text has no derivative"
    assert text in more.splitlines()
    assert "no vmap rule  np::eye" in more.splitlines()
