"""The command ``show``."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import customop as co
from tests.cli._commands import Run, at, lines


@pytest.mark.usefixtures("ours")
def test_show_as_text(run: Run, folder: Path) -> None:
    """The text has the schema, places, rules, samples and the generated call."""
    scale = co.ops.cli_ops.scale.default
    source = textwrap.indent(scale.source, "  ")
    fn = at(folder, '@co.custom_op("cli_ops::scale"')
    assert (
        run("show", "cli_ops::scale")
        == lines(f"""
        cli_ops::scale
        Multiply by a number.

        schema     (Array x, float factor=2.0) -> Array
        tags       pointwise
        defined    {fn}
        module     cli_ops
        overloads  cli_ops::scale
        writes     -
        aliases    -

        rules
        rule                  origin    from
        kernel default        own       {fn}
        fake                  tags      derived from the tags or the schema
        autograd              own       {at(folder, "def backward")}, {at(folder, "def save")}
        jvp                   autograd  derived by transposing the backward formula
        vmap                  tags      derived from the tags or the schema
        autocast cpu:float16  own       {at(folder, 'scale.register_autocast("cpu"')}
        cli_inverse           own       {at(folder, "scale.register(inverse")}
        sample_inputs         own       {at(folder, "@scale.register_sample")}

        sample inputs
        cli_ops::scale(f64[3], 2.0)
        cli_ops::scale(f64[2], factor=0.5)  a note

        generated call
    """)
        + source
    )


def test_show_aliases_and_overloads(run: Run) -> None:
    """Written arguments, shared memory and other overloads are shown."""
    shown = run("-m", "cli_ops", "show", "cli_ops.add_")
    assert "writes     x\naliases    the result shares memory with x\n" in shown
    shown = run("show", "cli_ops::over.text")
    assert "overloads  cli_ops::over.number, cli_ops::over.text\n" in shown
    assert "summary" not in shown


def test_show_as_json(run: Run) -> None:
    """Parameters, results and samples are lists; the source is the generated call."""
    found = run.json("-m", "cli_ops", "show", "cli_ops::scale")["operator"]
    x = {"name": "x", "type": "Array", "kind": "positional", "default": None}
    factor = {"name": "factor", "type": "float", "kind": "positional", "default": "2.0"}
    still = {"alias": None, "written": False}
    assert found["parameters"] == [x | still, factor | still]
    assert found["returns"] == [{"type": "Array", **still}]
    assert found["summary"] == "Multiply by a number."
    assert found["samples"][1] == {
        "call": "cli_ops::scale(f64[2], factor=0.5)",
        "note": "a note",
    }
    assert found["source"] == co.ops.cli_ops.scale.default.source


def test_show_aliases_as_json(run: Run) -> None:
    """A written argument and the result that shares its memory have the same alias."""
    found = run.json("-m", "cli_ops", "show", "cli_ops::add_")["operator"]
    assert [(p["alias"], p["written"]) for p in found["parameters"]] == [
        ("a", True),
        (None, False),
    ]
    assert found["returns"] == [{"type": "Array", "alias": "a", "written": True}]
