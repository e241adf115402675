"""Public names have types that checkers know, and objects keep to them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop import vmap as vmap_function
from customop.core.rule_types import Context

ROOT = Path(__file__).parents[2]


@pytest.mark.exhaustive
def test_every_type_is_known() -> None:
    """Every exported name has a type that all checkers read the same way.

    The modules of the plugin are left out: only mypy calls them, and pyright cannot read
    all types of mypy.
    """
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    command = ["--verifytypes", "customop", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(
        [sys.executable, "-m", "pyright", *command, "--pythonpath", sys.executable],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout[done.stdout.index("{") :])["typeCompleteness"]
    assert Path(report["packageRootDirectory"]) == ROOT / "customop"
    exported = [symbol for symbol in report["symbols"] if symbol["isExported"]]
    assert len(exported) > 1000
    unknown = [
        symbol["name"]
        for symbol in exported
        if not symbol["isTypeKnown"] and not symbol["name"].startswith("customop.mypy")
    ]
    assert unknown == [], "\n".join(unknown)


# ---- contexts ----


def _public(names: list[str]) -> set[str]:
    # Names that begin with node_ belong to this package, as Context documents.
    return {name for name in names if not name.startswith(("_", "node_"))}


@pytest.mark.parametrize("parameters", ["Array x", "Array x, Array y", "Array[] xs"])
def test_a_context_is_what_its_type_says(parameters: str) -> None:
    """The object that `setup_context` and `backward` get has the members of `Context`."""
    seen: list[Any] = []

    def keep(ctx: co.Context, inputs: Any, output: Any) -> None:
        seen.append(ctx)
        ctx.mine = 1

    def backward(ctx: co.Context, grad: Any) -> Any:
        seen.append(ctx)
        return tuple(grad for _ in ctx.needs_input_grad)

    count = parameters.count(",") + 1
    name = f"public_types::f{count}{parameters.count('[')}"
    schema = f"({parameters}) -> Array"
    op = co.custom_op(
        name,
        (lambda x: x * 1) if parameters == "Array x" else _first_of(parameters),
        mutates_args=(),
        schema=schema,
    ).register_autograd(backward, setup_context=keep)
    x = np.array(2.0)
    if "[]" in parameters:
        op.register_autograd(
            lambda ctx, grad: (seen.append(ctx), [grad])[1:],
            setup_context=keep,
            override=True,
        )
        co.grad(lambda v: op([v]))(x)
    else:
        co.grad(lambda v: op(*[v] * count))(x)
    first, second = seen
    assert first is second
    assert _public(dir(first)) - {"mine"} == _public(dir(Context))


def _first_of(parameters: str) -> Any:
    if "[]" in parameters:
        return lambda xs: xs[0] * 1
    return lambda x, y: x * y


def test_batch_info_is_the_one_that_rules_get() -> None:
    """The first argument of a batching rule is a `BatchInfo`."""
    seen = []

    def rule(info: co.BatchInfo, in_dims: Any, x: Any) -> Any:
        seen.append(info)
        return x * 1, in_dims[0]

    op = co.custom_op(
        "public_types::batched",
        lambda x: x * 1,
        mutates_args=(),
        schema="(Array x) -> Array",
    ).register_vmap(rule)
    vmap_function(op, randomness="same")(np.ones((3, 2)))
    assert [type(info) for info in seen] == [co.BatchInfo]
    assert seen == [co.BatchInfo(batch_size=3, randomness="same")]


# ---- packets ----


def test_a_packet_takes_any_keyword() -> None:
    """A parameter may have the name of a parameter of the packet itself."""
    co.define("public_types::turn", "(Array self, float by) -> Array")
    co.impl("public_types::turn", "default", lambda self, by: self * by)
    packet = co.ops.public_types.turn
    assert packet(self=np.ones(1), by=2.0).tolist() == [2.0]
    assert packet.resolve(self=np.ones(1), by=2.0) is packet.default


@pytest.mark.usefixtures("numpy_functions_stay")
def test_register_numpy_function_decorates() -> None:
    """Used as a decorator, it returns the function."""

    def sinc(x: Any) -> Any:
        return x

    assert co.register_numpy_function(np.is_busday)(sinc) is sinc
