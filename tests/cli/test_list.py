"""The command ``list``, and the words for where rules come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import customop as co
from customop.cli import targets
from customop.core import explain
from customop.core.registry import all_operators
from tests.cli._commands import Run, at, lines


@pytest.mark.usefixtures("ours")
def test_list_is_a_table_of_rules(run: Run) -> None:
    """The table of a namespace shows which rules are registered and which are derived."""
    assert run("list", "cli_ops") == lines("""
        cli_ops: 5 operators
        operator              kernels  fake  autograd  jvp       vmap  others                                            schema
        cli_ops::add_         cpu      tags  -         -         tags  -                                                 (Array(a!) x, Array y) -> Array(a!)
        cli_ops::over.number  default  -     -         -         loop  -                                                 (Array x, int y) -> Array
        cli_ops::over.text    default  -     -         -         loop  -                                                 (Array x, str y) -> Array
        cli_ops::scale        default  tags  own       autograd  tags  autocast:cpu:float16, cli_inverse, sample_inputs  (Array x, float factor=2.0) -> Array
        cli_ops::twice        -        body  body      body      body  composite                                         (Array x) -> Array
    """)
    assert run.status == 0


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["np::arc*"], [f"np::arc{f}" for f in ("cos", "cosh", "sin", "sinh")]),
        (["arctan?"], ["np::arctan2", "np::arctanh"]),
        (["*::over.t*"], ["cli_ops::over.text"]),
        (["scale", "np::sin"], ["cli_ops::scale", "np::sin"]),
        (
            ["customop"],
            [
                f"customop::{name}"
                for name in ("assign", "draw", "lay_out", "number", "set_slice")
            ],
        ),
    ],
    ids=["glob of full names", "glob of names", "any namespace", "two", "namespace"],
)
def test_list_takes_namespaces_and_globs(
    run: Run, patterns: list[str], names: list[str]
) -> None:
    """A pattern matches a namespace, a name or a full name."""
    listed = [op["name"] for op in run.json("list", *patterns)["operators"]]
    assert listed[: len(names)] == names


@pytest.mark.usefixtures("ours")
def test_list_without_a_pattern(run: Run) -> None:
    """All namespaces are listed in alphabetical order."""
    headings = [
        line for line in run("list").splitlines() if line.endswith(" operators")
    ]
    count = sum(name.startswith("np::") for name in all_operators())
    assert headings[:2] == ["cli_checked: 3 operators", "cli_ops: 5 operators"]
    rest = ["customop: 6 operators", f"np: {count} operators"]
    assert headings[2:] == rest


@pytest.mark.usefixtures("ours")
def test_list_as_json(run: Run, folder: Path) -> None:
    """An operator has its schema, its tags, and each rule with its places."""
    (found,) = run.json("-m", "cli_ops", "list", "cli_ops::add_")["operators"]
    place = at(folder, "def add_(")
    assert found == {
        "name": "cli_ops::add_",
        "schema": "(Array(a!) x, Array y) -> Array(a!)",
        "tags": ["inplace"],
        "module": "cli_ops",
        "place": place,
        "rules": [
            {"name": "kernel", "target": "cpu", "origin": "own", "places": [place]},
            {"name": "fake", "target": "", "origin": "tags", "places": []},
            {"name": "vmap", "target": "", "origin": "tags", "places": []},
        ],
    }


def test_rules_agree_with_calls(run: Run) -> None:
    """A rule is listed if and only if the operator has it."""
    run("list", "cli_ops", "-m", "cli_ops")
    kinds = {"fake": "fake", "autograd": explain.AUTOGRAD, "vmap": explain.VMAP}
    for op in targets.matching(["np", "cli_ops"]):
        found = {r.name: r.origin for r in explain.rules_of(op)}
        for name, kind in kinds.items():
            try:
                op.rule(kind)  # type: ignore[arg-type]  # a name or a kind
            except co.MissingRuleError:
                assert found.get(name, "loop") in ("loop", "body"), op
            else:
                assert found[name] in ("own", "tags", "body"), op


def test_disabled_and_hidden_rules(run: Run) -> None:
    """Disabled kernels, fallbacks and hidden registrations are marked."""
    run("list", "cli_ops", "-m", "cli_ops")
    add = co.ops.cli_ops.add_.default
    with (
        co.Library("cli_ops", "IMPL") as mine,
        co.Library("_", "IMPL", "Autograd") as every,
        add.set_kernel_enabled("cpu", False),
    ):
        mine.impl("twice", lambda x: x, "composite")
        every.fallback(lambda op: None)
        kind = co.RuleKind("cli_derived", derive=lambda op: len)
        mine.impl("over.text", lambda x, y: x, kind)
        add_rules = run.json("list", "cli_ops::add_")["operators"][0]["rules"]
        row = re.split("  +", run("list", "cli_ops::add_").splitlines()[-1])
        shown = run("show", "cli_ops::twice")
    assert [(r["name"], r["origin"]) for r in add_rules][:3] == [
        ("kernel", "disabled"),
        ("fake", "tags"),
        ("autograd", "fallback"),
    ]
    assert row[1] == "cpu(disabled)"
    assert "cli_derived(derived)" in row[6].split(", ")
    assert re.findall("^composite +(\\w+)", shown, re.MULTILINE) == ["own", "hidden"]
