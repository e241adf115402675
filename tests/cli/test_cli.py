"""The command line: what each command prints, in its three forms, and its statuses."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import customop as co
from customop import cli
from customop.arrays.numpy_protocol import FUNCTIONS
from customop.cli import arguments, benchmarking, finding, junit, output, rules
from customop.cli.outcomes import Outcome, Report
from customop.core.operator import namespaces, operators, remove_operator
from customop.testing.opcheck import CHECKS

ROOT = Path(co.__file__).parent.parent

# ---- modules for the commands to look at ----

OPS = '''
"""Operators of many kinds."""

import numpy as np

import customop as co

print("cli_ops speaks")

inverse = co.RuleKind("cli_inverse", takes="(out, *inputs)", returns="input 0")


def save(ctx, inputs, output):
    ctx.factor = inputs[1]


def backward(ctx, grad):
    return grad * ctx.factor, None


@co.custom_op("cli_ops::scale", mutates_args=(), tags=co.Tag.pointwise)
def scale(x: np.ndarray, factor: float = 2.0) -> np.ndarray:
    """Multiply by a number.

    This line is not shown.
    """
    return np.asarray(x * float(factor))


scale.register_autograd(backward, setup_context=save)
scale.register(inverse, lambda out, x, factor: out / factor)
scale.register_autocast("cpu", np.float16)


@scale.register_sample_inputs
def _():
    return [(np.ones(3), 2.0), co.testing.Sample((np.ones(2),), {"factor": 0.5}, "a note")]


def add_(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x += y
    return x


co.custom_op(
    "cli_ops::add_", add_, mutates_args=("x",), tags=co.Tag.inplace, device_types="cpu"
)


@co.custom_op("cli_ops::over.number", mutates_args=())
def _(x: np.ndarray, y: int) -> np.ndarray:
    return x + y


@co.custom_op("cli_ops::over.text", mutates_args=())
def _(x: np.ndarray, y: str) -> np.ndarray:
    """Déjà vu."""
    return x.copy()


lib = co.Library("cli_ops", "FRAGMENT")
lib.define("twice(Array x) -> Array")


def twice(x):
    return np.multiply(x, 2.0)


lib.impl("twice", twice, "composite")

'''

# One operator that keeps all promises, one that breaks one, one that cannot be tried.
CHECKED = """
import numpy as np

import customop as co


@co.custom_op("cli_checked::right", mutates_args=(), tags=co.Tag.pointwise)
def right(x: np.ndarray) -> np.ndarray:
    print("right runs")
    return np.sin(x)


@co.custom_op("cli_checked::wrong", mutates_args=())
def wrong(x: np.ndarray) -> np.ndarray:
    return np.sin(x)


wrong.register_fake(lambda x: co.fake_like(x, shape=(7,)))


@co.custom_op("cli_checked::shy", mutates_args=())
def shy(x: np.ndarray) -> np.ndarray:
    raise RuntimeError("never runs")
"""

FILES = {
    "cli_ops.py": OPS,
    "cli_checked.py": CHECKED,
    "cli_package/__init__.py": "",
    "cli_package/inner.py": """
import numpy as np
import customop as co
from . import __name__ as outer
from cli_ops import scale

@co.custom_op("cli_package::one", mutates_args=(), tags=co.Tag.pointwise)
def one(x: np.ndarray) -> np.ndarray:
    return x + 1.0
""",
    "cli_checked_more.py": """
import numpy as np
import customop as co

@co.custom_op("cli_checked_more::one", mutates_args=())
def one(x: np.ndarray) -> np.ndarray:
    return x + 1.0
""",
    "cli_importer.py": "from cli_ops import scale\n",
    "cli_raises.py": "import numpy\n\n1 / 0\n",
    "cli_exits.py": "raise SystemExit(0)\n",
    "cli_needs.py": "import cli_nowhere\n",
    "cli_syntax.py": "def\n",
    "cli_empty.py": "",
}


def forget() -> None:
    """Take back what these modules have registered."""
    for op in list(operators.values()):
        if op.namespace.startswith("cli_"):
            remove_operator(op)
    for name in [n for n in sys.modules if n.startswith("cli_")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the modules."""
    root = tmp_path_factory.mktemp("cli")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.lstrip(), encoding="utf-8")
    yield root
    forget()


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in their folder, in an environment that says nothing of colours."""
    monkeypatch.chdir(folder)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Show the commands no operators of other tests."""
    run("list", "-m", "cli_ops", "-m", "cli_checked")
    names = ("np", "customop", "cli_ops", "cli_checked")
    known = {name: op for name, op in operators.items() if op.namespace in names}
    monkeypatch.setattr(rules, "operators", known)
    monkeypatch.setattr(finding, "operators", known)
    monkeypatch.setattr(finding, "namespaces", {n: namespaces[n] for n in names})


class Run:
    """Run commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.status = -1
        self.err = ""

    def __call__(self, *argv: str) -> str:
        """Run a command; return what it prints."""
        self._capsys.readouterr()
        self.status = cli.main(argv)
        found = self._capsys.readouterr()
        self.err = found.err
        return found.out

    def json(self, *argv: str) -> Any:
        """Run a command; return the document that it prints."""
        return json.loads(self(*argv, "--json"))

    def error(self, *argv: str) -> str:
        """Run a command that cannot be run; return what it says."""
        assert self(*argv) == ""
        assert self.status == 2
        # Modules that are imported speak before.
        return self.err.partition("customop: error: ")[2]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run commands."""
    return Run(capsys)


def at(folder: Path, text: str, module: str = "cli_ops.py") -> str:
    """Place of the first line of a module that begins with a text."""
    lines = (folder / module).read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.startswith(text))
    return f"{folder / module}:{number}"


def lines(text: str) -> str:
    """Text without its indentation and its first line break."""
    return textwrap.dedent(text).lstrip("\n")


# ---- list ----


@pytest.mark.usefixtures("ours")
def test_list_is_a_table_of_rules(run: Run) -> None:
    """Operators of a namespace stand in a table, own rules apart from derived ones."""
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
        (["customop"], ["customop::stop_gradient"]),
    ],
)
def test_list_takes_namespaces_and_globs(
    run: Run, patterns: list[str], names: list[str]
) -> None:
    """A pattern means a namespace, a name, or both with colons between."""
    listed = [op["name"] for op in run.json("list", *patterns)["operators"]]
    assert listed[: len(names)] == names


@pytest.mark.usefixtures("ours")
def test_list_names_all_without_a_pattern(run: Run) -> None:
    """Namespaces come by name, each with all of its operators."""
    headings = [
        line for line in run("list").splitlines() if line.endswith(" operators")
    ]
    count = sum(name.startswith("np::") for name in operators)
    assert headings[:2] == ["cli_checked: 3 operators", "cli_ops: 5 operators"]
    assert headings[2:] == [f"np: {count} operators"]


@pytest.mark.usefixtures("ours")
def test_list_as_json(run: Run, folder: Path) -> None:
    """A document has the schema, the tags, and each rule with its places."""
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


def test_words_of_rules_agree_with_calls(run: Run) -> None:
    """A rule is listed where the operator says that it has one, and only there."""
    run("list", "cli_ops", "-m", "cli_ops")
    kinds = {"fake": "fake", "autograd": rules.AUTOGRAD, "vmap": rules.VMAP}
    for op in finding.matching(["np", "cli_ops"]):
        found = {r.name: r.origin for r in rules.rules_of(op)}
        for name, kind in kinds.items():
            try:
                op.rule(kind)  # type: ignore[arg-type]  # names and kinds alike
            except co.MissingRuleError:
                assert found.get(name, "loop") in ("loop", "body"), op
            else:
                assert found[name] in ("own", "tags", "body"), op


def test_switched_off_and_covered_kernels_say_so(run: Run) -> None:
    """A disabled kernel, a fallback and a covered registration have words of their own."""
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


# ---- show ----


@pytest.mark.usefixtures("ours")
def test_show_is_all_of_an_operator(run: Run, folder: Path) -> None:
    """Schema, places, rules, samples and the generated call stand below the name."""
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
        fake                  tags      derived, by the tags or the schema
        autograd              own       {at(folder, "def backward")}, {at(folder, "def save")}
        jvp                   autograd  derived, the backward formula transposed
        vmap                  tags      derived, by the tags or the schema
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


def test_show_tells_aliases_and_overloads(run: Run) -> None:
    """What is written, what results lie on, and names beside this one are told."""
    shown = run("-m", "cli_ops", "show", "cli_ops.add_")
    assert "writes     x\naliases    the result lies on x\n" in shown
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


def test_show_as_json_tells_what_is_written(run: Run) -> None:
    """A written argument and a result on it have the name of their memory."""
    found = run.json("-m", "cli_ops", "show", "cli_ops::add_")["operator"]
    assert [(p["alias"], p["written"]) for p in found["parameters"]] == [
        ("a", True),
        (None, False),
    ]
    assert found["returns"] == [{"type": "Array", "alias": "a", "written": True}]


# ---- explain ----


def test_explain_prints_the_explanation(run: Run) -> None:
    """What is printed is what `op.explain` says of the same arguments."""
    sin = co.ops.np.sin.default
    assert run("explain", "np::sin", "f32[3, 4]") == (
        f"{sin.explain(np.zeros((3, 4), np.float32))}\n"
    )


def test_explain_takes_the_overload_that_fits(run: Run) -> None:
    """Without a name of an overload the arguments choose; with one it is taken."""
    run("list", "cli_ops", "-m", "cli_ops")
    by_text = run.json("explain", "cli_ops::over", "f64[]", "word")
    by_name = run.json("explain", "cli_ops::over.number", "f64[]", "3")
    assert by_text["call"] == "cli_ops::over.text(f64[], 'word')"
    assert by_name["call"] == "cli_ops::over.number(f64[], 3)"


def test_explain_as_json(run: Run, folder: Path) -> None:
    """A call that would raise says what; the others say why not."""
    run("list", "cli_ops", "-m", "cli_ops")
    found = run.json("explain", "cli_ops::over.text", "fake.f64[2]", "y=a")
    place = at(folder, '@co.custom_op("cli_ops::over.text"')
    assert found["taken"] is None
    assert found["error"]["type"] == "MissingRuleError"
    assert found["error"]["message"].startswith("cli_ops::over.text has no fake kernel")
    why = "'fake' has a kernel of its own"
    assert found["others"] == [{"name": "default kernel", "why": why, "place": place}]


X = np.zeros((3, 4))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("-1.5", -1.5),
        ("-inf", -np.inf),
        ("None", None),
        ("True", True),
        ("'2'", "2"),
        ("word", "word"),
        ("two words", "two words"),
        ("a-b", "a-b"),
        ("[1, -2]", [1, -2]),
        ("(1, [None, nan_])", (1, [None, "nan_"])),
        ("{'a': 1}", {"a": 1}),
        ("{[1]: 2}", "{[1]: 2}"),
        ("{**a}", "{**a}"),
        ("co.ops", "co.ops"),
        ("1j", 1j),
        ("f64[3,4]", X),
        ("float64[3, 4]", X),
        ("c64[0]", np.zeros(0, np.complex64)),
        ("i8[]", np.zeros((), np.int8)),
        ("u16[2,]", np.zeros(2, np.uint16)),
        ("bool[ ]", np.zeros((), bool)),
        ("cpu.f16[1]", np.zeros(1, np.float16)),
    ],
)
def test_arguments_are_read(text: str, value: Any) -> None:
    """Literals, words and arrays in short stand for what Python would have."""
    (found,), keywords = arguments.parse([text], arguments.zeros)
    assert type(found) is type(value)
    assert repr(found) == repr(value)
    assert keywords == {}
    assert arguments.parse([f"k={text}"], arguments.zeros)[1].keys() == {"k"}


def test_arrays_inside_lists_and_fake_ones() -> None:
    """Lists hold arrays, and `fake.` makes one without data."""
    ((first, second), fake), _ = arguments.parse(
        ["[f64[2], i64[]]", "fake.f32[2,3]"], arguments.zeros
    )
    assert (first.shape, second.dtype) == ((2,), np.int64)
    assert isinstance(fake, co.FakeArray)
    assert (fake.shape, fake.dtype) == ((2, 3), np.float32)


def test_ramp_stays_off_the_edges() -> None:
    """Numbers to time with are between a half and three halves; whole ones are one."""
    x = arguments.ramp((2, 3), np.dtype("f4"))
    assert (x.shape, x.dtype, x.min(), x.max()) == ((2, 3), np.float32, 0.5, 1.5)
    assert arguments.ramp((2,), np.dtype("i4")).tolist() == [1, 1]
    assert arguments.ramp((0,), np.dtype("f8")).shape == (0,)


# ---- check ----


def timeless(text: str) -> str:
    """Text with its times crossed out."""
    return re.sub(r"\d+\.\d\d s", "T s", text)


def test_check_passes(run: Run) -> None:
    """An operator that keeps its promises is a table, and the status is 0."""
    found = run("check", "cli_checked:right", "--test-utils", "test_schema,test_jvp")
    assert timeless(found) == lines("""
        passed  cli_checked::right  1 passed, 1 skipped in T s
          test_schema  passed
          test_jvp     skipped  no jvp rule, and no autograd rule to transpose

        1 operator: 1 passed, 1 skipped in T s
    """)
    assert run.status == 0


def test_check_fails(run: Run) -> None:
    """A fault is shown with its input and code that repeats it; the status is 1."""
    found = run("check", "cli_checked:wrong", "--test-utils", "test_faketensor")
    with pytest.raises(co.OpCheckError) as error:
        co.testing.opcheck(
            co.ops.cli_checked.wrong.default, test_utils="test_faketensor"
        )
    first = str(error.value).splitlines()[0]
    reason = first.removeprefix("cli_checked::wrong: test_faketensor: ")
    assert timeless(found) == (
        "FAILED  cli_checked::wrong  1 failed in T s\n"
        "  test_faketensor  FAILED\n\n"
        + textwrap.indent(str(error.value), "    ")
        + f"\n\n\nFAILED  cli_checked::wrong  test_faketensor  {reason}\n"
        "1 operator: 1 failed in T s\n"
    )
    assert "test_utils='test_faketensor'" in found
    assert run.status == 1


def test_check_cannot_try(run: Run) -> None:
    """An operator without inputs is an error, which fails the run too."""
    found = run.json("check", "cli_checked.py:cli_checked::shy")
    (check,) = found["operators"][0]["checks"]
    assert (check["check"], check["status"]) == ("inputs", "error")
    assert check["type"] == "ArgumentError"
    assert "register_sample_inputs" in check["text"]
    assert found["summary"]["error"] == 1
    assert run.status == 1


def test_check_looks_at_whole_modules(run: Run) -> None:
    """All operators of a module are checked, in order; those it imports are not."""
    argv = ("cli_checked", "cli_package", "-m", "cli_package.inner")
    found = run.json("check", *argv, "--test-utils=test_schema")
    assert [(op["name"], op["status"]) for op in found["operators"]] == [
        ("cli_checked::right", "passed"),
        ("cli_checked::shy", "error"),
        ("cli_checked::wrong", "passed"),
        ("cli_package::one", "passed"),
    ]
    seconds = sum(op["seconds"] for op in found["operators"])
    counts = {"operators": 4, "passed": 3, "failed": 0, "error": 1, "skipped": 0}
    assert found["summary"] == {**counts, "seconds": pytest.approx(seconds)}


def test_check_takes_submodules_that_are_imported(run: Run) -> None:
    """A package has the operators of those of its modules that something imports."""
    run("list", "cli_package", "-m", "cli_package.inner")
    found = run.json("check", "cli_package", "--test-utils=test_schema")
    assert [op["name"] for op in found["operators"]] == ["cli_package::one"]


def test_check_takes_no_modules_of_longer_names(run: Run) -> None:
    """A module whose name begins as another's is another module."""
    run("list", "cli_checked_more", "-m", "cli_checked_more")
    assert run.status == 0
    found = run.json("check", "cli_checked", "--test-utils=test_pickle")
    assert len(found["operators"]) == 3


@pytest.mark.parametrize("name", ["right", "cli_checked::right", "r*", "*::right"])
def test_check_names_one(run: Run, name: str) -> None:
    """An operator of a module is named by attribute, name, or glob."""
    found = run.json("check", f"cli_checked:{name}", "--test-utils", "test_pickle")
    assert [op["name"] for op in found["operators"]] == ["cli_checked::right"]


@pytest.mark.parametrize("module", ["cli_importer", "cli_package.inner"])
def test_check_names_what_a_module_has_imported(run: Run, module: str) -> None:
    """The attribute of a module may be an operator of another one."""
    found = run.json("check", f"{module}:scale", "--test-utils", "test_pickle")
    assert [op["name"] for op in found["operators"]] == ["cli_ops::scale"]


def test_check_stops_behind_the_first_fault(run: Run) -> None:
    """With --exitfirst what follows a failing operator is not checked."""
    found = run.json("check", "cli_checked", "-x", "--test-utils=test_schema")
    assert [op["name"] for op in found["operators"]] == [
        "cli_checked::right",
        "cli_checked::shy",
    ]


def test_check_quietly(run: Run) -> None:
    """With --quiet an operator that passes is one line."""
    found = run("check", "cli_checked:right", "-q", "--test-utils=test_schema")
    assert timeless(found) == (
        "passed  cli_checked::right  1 passed in T s\n\n1 operator: 1 passed in T s\n"
    )


def test_check_tells_what_is_left_open(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that passes has a note where it leaves something open."""

    def opcheck(op: Any, **settings: Any) -> Any:
        found = co.testing.OpCheckResult(op.qualname)
        found["test_sizes"], found.seconds["test_sizes"] = "SUCCESS", 0.0
        found.notes["test_sizes"] = "of one size"
        return found

    monkeypatch.setattr("customop.cli.checking.opcheck", opcheck)
    assert timeless(run("check", "cli_checked:right")) == lines("""
        passed  cli_checked::right  1 passed in T s
          test_sizes  passed  of one size

        1 operator: 1 passed in T s
    """)


def test_check_hands_tolerances_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tolerances and names of checks reach opcheck as they are."""
    seen: list[dict[str, Any]] = []

    def opcheck(op: Any, **settings: Any) -> Any:
        seen.append(settings)
        return co.testing.OpCheckResult(op.qualname)

    monkeypatch.setattr("customop.cli.checking.opcheck", opcheck)
    run("check", "cli_checked:right", "--rtol", "0.5", "--atol=1e-3")
    run("check", "cli_checked:right", "--test-utils", "test_vmap, ALL")
    quiet = {"raise_exception": False}
    assert seen == [
        quiet | {"rtol": 0.5, "atol": 0.001},
        quiet | {"rtol": None, "atol": None, "test_utils": "ALL"},
    ]


def test_a_kernel_that_exits_is_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that ends the process does not end it with the status of success."""

    def opcheck(op: Any, **settings: Any) -> Any:
        raise SystemExit(0)

    monkeypatch.setattr("customop.cli.checking.opcheck", opcheck)
    found = run.json("check", "cli_checked:right")
    assert found["operators"][0]["checks"][0]["text"] == "SystemExit: 0"
    assert run.status == 1


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        (["passed", "failed", "error"], "error"),
        (["skipped", "failed", "passed"], "failed"),
        (["skipped", "passed"], "passed"),
        (["skipped"], "skipped"),
        ([], "skipped"),
    ],
)
def test_an_operator_has_its_worst_status(statuses: list[str], worst: str) -> None:
    """What has failed counts more than what has passed, and that more than nothing."""
    outcomes = tuple(Outcome("one", status) for status in statuses)
    assert Report("ns::f", outcomes, 1.0).status == worst


# ---- JUnit ----


def test_junit(run: Run, tmp_path: Path) -> None:
    """The file has a suite for each operator, a case for each check, and the counts."""
    path = tmp_path / "new" / "report.xml"
    checks = "test_schema,test_faketensor,test_jvp"
    run("check", "cli_checked", "--test-utils", checks, "--junit", str(path))
    root = ET.parse(path).getroot()
    assert (root.tag, root.get("name")) == ("testsuites", "customop")
    counted = [
        [element.get(key) for key in ("tests", "failures", "errors", "skipped")]
        for element in (root, *root)
    ]
    assert counted == [
        ["7", "1", "1", "2"],
        ["3", "0", "0", "1"],
        ["1", "0", "1", "0"],
        ["3", "1", "0", "1"],
    ]
    cases = [
        (case.get("classname"), case.get("name"), [child.tag for child in case])
        for case in root.iter("testcase")
    ]
    assert cases == [
        ("cli_checked.right", "test_schema", []),
        ("cli_checked.right", "test_faketensor", []),
        ("cli_checked.right", "test_jvp", ["skipped"]),
        ("cli_checked.shy", "inputs", ["error"]),
        ("cli_checked.wrong", "test_schema", []),
        ("cli_checked.wrong", "test_faketensor", ["failure"]),
        ("cli_checked.wrong", "test_jvp", ["skipped"]),
    ]
    assert all(
        float(e.get("time") or -1) >= 0 for e in root.iter() if "time" in e.attrib
    )


def test_junit_keeps_messages(tmp_path: Path) -> None:
    """A failure has its class, its first line and its text, without control characters."""
    path = tmp_path / "report.xml"
    text = "a <b> & \x1b[1mbold\x1b[0m \ud800\nsecond"
    outcomes = (
        Outcome("one", "failed", text, "OpCheckError", 0.25),
        Outcome("two", "skipped", "no rule", seconds=0.5),
    )
    junit.write(str(path), [Report("ns::f.a", outcomes, 1.0)])
    root = ET.parse(path).getroot()
    first, second = root.iter("testcase")
    assert first.attrib == {"classname": "ns.f.a", "name": "one", "time": "0.250000"}
    (failure,) = first
    clean = r"a <b> & \x1b[1mbold\x1b[0m \ud800"
    assert failure.attrib == {"message": clean, "type": "OpCheckError"}
    assert failure.text == f"{clean}\nsecond"
    (skipped,) = second
    assert (skipped.tag, skipped.attrib) == ("skipped", {"message": "no rule"})
    assert root.get("time") == "1.000000"


# ---- coverage ----


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


# ---- bench ----


def test_bench_times_what_there_is(run: Run) -> None:
    """Each way to call is a row, where there is a rule for it; inputs are the samples."""
    found = run("-m", "cli_ops", "bench", "cli_ops::scale", "--time", "0.0001")
    words = re.sub(r"[+-]?\d+(\.\d+)? (ns|us|ms|x)", "N", found)
    rows = [re.split("  +", line) for line in words.splitlines()]
    timed = [
        ["what", "median", "over the kernel", "of the kernel"],
        ["kernel", "N"],
        *[
            [what, "N", "N", "N"]
            for what in ("op(...)", "op.call(...)", "fake", "forward and backward")
        ],
        ["jvp", "N", "N", "N"],
        ["vmap, 8 rows", "N", "N", "N"],
    ]
    assert rows[: len(timed) + 1] == [["cli_ops::scale(f64[3], 2.0)"], *timed]
    assert rows[len(timed) + 1 :][:2] == [
        [""],
        ["cli_ops::scale(f64[2], factor=0.5)", "# a note"],
    ]


def test_bench_times_no_rule_that_is_not_there(run: Run) -> None:
    """Without a fake kernel and derivatives, and with a loop for vmap, no row is theirs."""
    argv = ("bench", "cli_ops::over.text", "--samples", "1", "--time", "1e-5")
    (sample,) = run.json("-m", "cli_ops", *argv)["samples"]
    assert [m["what"] for m in sample["times"]] == ["kernel", "op(...)", "op.call(...)"]


def test_bench_as_json(run: Run) -> None:
    """Seconds are numbers; what cannot be timed has a reason in their place."""
    found = run.json("bench", "np::argmax", "i64[4]", "--time", "1e-5")
    (sample,) = found["samples"]
    assert (found["operator"], sample["call"]) == ("np::argmax", "np::argmax(i64[4])")
    times = {measure["what"]: measure for measure in sample["times"]}
    assert times["kernel"]["reason"] is None
    assert times["kernel"]["seconds"] > 0
    assert times["jvp"] == {
        "what": "jvp",
        "seconds": None,
        "reason": "no argument by position is an array of floats",
    }


def test_bench_takes_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure is the median of the runs over the calls in each."""
    calls: list[int] = []
    clock = iter([0.0, 1.0, 1.0, 1.5, *range(2, 40)])

    class Timer:
        def __init__(self, statement: str, **kwargs: Any) -> None:
            assert statement == "fn(a0, k=k0)"

        def timeit(self, number: int) -> float:
            return -next(clock) + next(clock)

        def repeat(self, runs: int, number: int) -> list[float]:
            calls.extend([runs, number])
            return [6.0, 2.0, 4.0, 100.0, 4.0, 1.0, 5.0]

    monkeypatch.setattr(benchmarking.timeit, "Timer", Timer)
    call = benchmarking._Call(len, [()], {"k": 1})
    assert benchmarking._seconds(call, 7.0) == 4.0 / 2
    assert calls == [7, 2]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.12e-8, "91.2 ns"),
        (5e-10, "0.50 ns"),
        (1.234e-6, "1.23 us"),
        (0.0123, "12.3 ms"),
        (0.9996, "1000 ms"),
        (123.4, "123 s"),
    ],
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    """A time is three digits and a unit."""
    assert benchmarking.time_text(seconds) == text


def test_bench_leaves_inputs_alone(run: Run) -> None:
    """An operator that writes is timed on copies, so that all times are of one input."""
    run("list", "cli_ops", "-m", "cli_ops")
    x = np.zeros(2)
    sample = co.testing.Sample((x, np.ones(2)))
    measures = [*benchmarking._measured(co.ops.cli_ops.add_.default, sample, 1e-5)]
    assert x.tolist() == [0.0, 0.0]
    assert [m["what"] for m in measures if m["seconds"] is not None][:2] == [
        "kernel",
        "op(...)",
    ]


# ---- documents have the shape that --help tells ----

DOCUMENTS = {
    "list": ["list", "cli_ops"],
    "show": ["show", "cli_ops::scale"],
    "explain": ["explain", "cli_ops::over.text", "fake.f64[2]", "y=a"],
    "check": ["check", "cli_checked", "--test-utils", "test_schema,test_faketensor"],
    "coverage": ["coverage"],
    "bench": ["bench", "np::sin", "f64[2]", "--time", "1e-5"],
    "stubs": ["stubs", "cli_ops"],
}
# Shapes that say "as of list" have these as well.
OF_LIST = ("show", "coverage")


def keys(document: Any) -> set[str]:
    """Names of the fields of a document, at any depth."""
    if isinstance(document, list):
        return set().union(*map(keys, document))
    if isinstance(document, dict):
        return set(document).union(*map(keys, document.values()))
    return set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_have_their_shape(run: Run, name: str) -> None:
    """The fields of what --json prints are those that the help text has."""
    found = keys(run.json("-m", "cli_ops", *DOCUMENTS[name]))
    told = set(re.findall(r'"(\w+)":', cli.COMMANDS[name].shape))
    if name in OF_LIST:
        told |= set(re.findall(r'"(\w+)":', cli.COMMANDS["list"].shape))
        told -= {"operators"} - found
    assert found - told == set()
    assert told - found == set()


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help(run: Run, name: str) -> None:
    """Each command says what it takes and prints; the status is 0."""
    found = run(name, "--help")
    assert run.status == 0
    assert found.startswith(f"usage: customop {name} [-h] [-m MODULE] [--json]")
    assert f"--json prints:\n{cli.COMMANDS[name].shape}" in found


def test_options_stand_before_a_command_and_behind_it(run: Run) -> None:
    """Common options may stand on both sides, and modules to import add up."""
    argv = ("--json", "-m", "cli_checked", "list", "cli_*", "-m", "cli_ops.py")
    names = [op["name"] for op in json.loads(run(*argv))["operators"]]
    assert {"cli_checked::right", "cli_ops::twice"} <= set(names)


def test_help_lists_the_commands(run: Run) -> None:
    """The program says what commands there are; without one that is an error."""
    found = run("--help")
    assert run.status == 0
    for command in cli.COMMANDS.values():
        assert f"  {command.name:<10} {command.summary}\n" in found
    assert run() == ""
    assert (run.status, run.err) == (2, found)


def test_version(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is the distribution's."""
    monkeypatch.setattr(cli.metadata, "version", lambda name: f"1.2.3 of {name}")
    assert run("--version") == "customop 1.2.3 of customop\n"


# ---- what is told of mistakes ----

SEE = "do: import the module that defines it: -m MODULE; 'customop list' shows the rest"
ERRORS = [
    (
        ["lst"],
        (
            "there is no command 'lst' (did you mean 'list'?)\n"
            "  there are 'list', 'show', 'explain', 'check', 'coverage', 'bench',"
            " 'stubs'\n  do: see customop --help\n"
        ),
    ),
    (
        ["list", "--colour", "never"],
        "unrecognized arguments: --colour\n  do: see customop list --help\n",
    ),
    (
        ["list", "npp"],
        f"no operator matches 'npp' (did you mean 'np'?)\n  {SEE}\n",
    ),
    (
        ["show", "np::sinn"],
        f"no operator is named 'np::sinn' (did you mean 'np::sin'?)\n  {SEE}\n",
    ),
    (
        ["show", "sin"],
        f"no operator is named 'sin' (did you mean 'np::sin'?)\n  {SEE}\n",
    ),
    (
        ["show", "np::sin.out"],
        (
            "'np::sin' has no overload 'out'\n"
            "  there are 'np::sin.default'\n"
            "  do: name one of them\n"
        ),
    ),
    (
        ["explain", "mp::argmax", "f64[q]"],
        f"no operator is named 'mp::argmax' (did you mean 'np::argmax'?)\n  {SEE}\n",
    ),
    (
        ["bench", "zzz::qqqqqqq"],
        f"no operator is named 'zzz::qqqqqqq'\n  {SEE}\n",
    ),
    (
        ["show", "cli_ops::over", "-m", "cli_ops"],
        (
            "'cli_ops::over' has several overloads\n"
            "  there are 'cli_ops::over.number', 'cli_ops::over.text'\n"
            "  do: name one of them\n"
        ),
    ),
    (
        ["check", "cli_check"],
        (
            "there is no module 'cli_check' (did you mean 'cli_checked'?)\n"
            "  do: write package.module as an import does, or the path of a file.py\n"
        ),
    ),
    (
        ["check", "cli_package.iner"],
        (
            "there is no module 'cli_package.iner' (did you mean 'inner'?)\n"
            "  do: write package.module as an import does, or the path of a file.py\n"
        ),
    ),
    (
        ["list", "-m", "cli_op.py"],
        (
            "there is no file 'cli_op.py' (did you mean 'cli_ops.py'?)\n"
            "  do: write its path\n"
        ),
    ),
    (
        ["check", "not-a-module"],
        (
            "'not-a-module' is no name of a module\n"
            "  do: write package.module, or a file.py\n"
        ),
    ),
    (
        ["check", ":name"],
        "':name' names no module\n  do: write MODULE, MODULE:NAME or FILE.py:NAME\n",
    ),
    (
        ["check", "cli_checked:rigt"],
        (
            "'cli_checked' defines no operator 'rigt' (did you mean 'cli_checked::right'?)\n"
            "  do: name one that it does: customop -m cli_checked list\n"
        ),
    ),
    (
        ["check", "cli_importer"],
        (
            "'cli_importer' defines no operator\n"
            "  it has operators of 'cli_ops'\n"
            "  do: name their module: cli_ops\n"
        ),
    ),
    (
        ["check", "cli_empty"],
        "'cli_empty' defines no operator\n  do: name the module that does\n",
    ),
    (
        ["check", "cli_checked", "--test-utils", "test_vmapp"],
        (
            "--test-utils: there is no check 'test_vmapp' (did you mean 'test_vmap'?)\n"
            "  known: {checks}\n"
            "  do: name known ones, with commas between\n"
        ),
    ),
    (
        ["check", "cli_checked", "--rtol", "1"],
        "--rtol and --atol go together\n  do: give both of them, or none\n",
    ),
    (
        ["check", "cli_checked", "--junit", "cli_ops.py/report.xml"],
        (
            "--junit: 'cli_ops.py/report.xml' cannot be written: File exists\n"
            "  do: name a file in a folder that can be written\n"
        ),
    ),
    (
        ["check"],
        (
            "the following arguments are required: MODULE[:NAME]\n"
            "  do: see customop check --help\n"
        ),
    ),
    (
        ["explain", "np::sin", "f65[3]"],
        (
            "'f65[3]': no dtype is named 'f65' (did you mean 'f64'?)\n"
            "  known: 'f16', 'f32', 'f64', 'i8', 'i16', 'i32', 'i64', 'u8', 'u16', 'u32',"
            " 'u64', 'c64', 'c128', 'bool'\n"
            "  do: write an array as 'f64[3, 4]', and text with brackets in quotes\n"
        ),
    ),
    (
        ["explain", "np::sin", "f64[n]"],
        (
            "'f64[n]': 'n' is no shape\n"
            "  do: write whole numbers: 'f64[3, 4]', 'f64[]' for an array without axes\n"
        ),
    ),
    (
        ["explain", "np::sin", "f64[-1]"],
        (
            "'f64[-1]': '-1' is no shape\n"
            "  do: write whole numbers: 'f64[3, 4]', 'f64[]' for an array without axes\n"
        ),
    ),
    (
        ["explain", "np::sin", f"f64[{2**40},{2**40}]"],
        (
            "'f64[1099511627776,1099511627776]': {size}\n"
            "  do: write smaller lengths, or fake.f64[1099511627776, 1099511627776]\n"
        ),
    ),
    (
        ["explain", "np::sin", "x=f64[1]", "x=2"],
        "'x' is given twice\n  do: leave one out\n",
    ),
    (
        ["explain", "np::sin", "far"],
        (
            "np::sin: argument 'x' expects Array, got str 'far'\n"
            "  np::sin(Array x) -> Array\n"
            "          ^^^^^^^\n"
            "  do: pass an array, such as np.asarray(x)\n"
        ),
    ),
    (
        ["bench", "np::matmul", "f64[2]", "f64[3]"],
        (
            "np::matmul(f64[2], f64[3]) raises ValueError: {matmul}\n"
            "  do: give arguments on which it runs, or mend it; --traceback shows where\n"
        ),
    ),
    (
        ["bench", "np::sin", "--time", "0"],
        "argument --time: 0 is not above zero\n  do: see customop bench --help\n",
    ),
    (
        ["bench", "np::sin", "--samples", "0"],
        "argument --samples: 0 is less than one\n  do: see customop bench --help\n",
    ),
]


def said(fn: Callable[..., Any], *args: Any) -> str:
    """What NumPy says of arguments that do not fit."""
    with pytest.raises(ValueError) as error:
        fn(*args)
    return str(error.value)


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    ("argv", "text"),
    ERRORS,
    ids=lambda v: v if isinstance(v, str) else " ".join(v)[:40],
)
def test_errors(run: Run, argv: list[str], text: str) -> None:
    """A mistake is told in words, without a traceback, and the status is 2."""
    names = ", ".join(f"'{check.name}'" for check in CHECKS)
    text = text.replace("{checks}", names).replace(
        "{matmul}", said(np.matmul, np.ones(2), np.ones(3))
    )
    text = text.replace("{size}", said(np.zeros, (2**40, 2**40)))
    assert run.error(*argv) == text
    assert "Traceback" not in run.err


IMPORT_ERRORS = [
    ("cli_raises", "raises ZeroDivisionError: division by zero", "cli_raises.py:3"),
    ("cli_exits.py", "raises SystemExit: 0", "cli_exits.py:1"),
    (
        "cli_needs",
        "raises ModuleNotFoundError: No module named 'cli_nowhere'",
        "cli_needs.py:1",
    ),
]


@pytest.mark.parametrize(("module", "what", "where"), IMPORT_ERRORS)
def test_modules_that_cannot_be_imported(
    run: Run, folder: Path, module: str, what: str, where: str
) -> None:
    """What importing raises is told with its line."""
    assert run.error("check", module) == (
        f"importing '{module}' {what}\n  at {folder / where}\n"
        "  do: mend it; --traceback shows where\n"
    )


def test_a_syntax_error_is_told(run: Run) -> None:
    """A module that is no Python says so."""
    said = run.error("list", "-m", "cli_syntax.py")
    assert said.startswith("importing 'cli_syntax.py' raises SyntaxError: ")
    assert "(cli_syntax.py, line 1)" in said


def test_traceback(run: Run) -> None:
    """With --traceback an error comes with all that led to it."""
    with pytest.raises(co.CustomOpError) as error:
        cli.main(["check", "cli_raises", "--traceback"])
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_file_beside_a_module_of_its_name(run: Run, tmp_path: Path) -> None:
    """A file whose module is another file is refused, not taken for it."""
    (tmp_path / "json.py").write_text("")
    said = run.error("list", "-m", str(tmp_path / "json.py"))
    assert said == (
        f"'{tmp_path / 'json.py'}' would be the module 'json', which is"
        f" {json.__file__}\n  do: give the file another name\n"
    )


def test_files_are_imported_as_parts_of_their_package(run: Run) -> None:
    """A file of a package is imported by its full name, so that `from .` works."""
    run("list", "cli_package", "-m", "cli_package/inner.py")
    assert run.status == 0
    assert "cli_package.inner" in sys.modules


def test_the_path_stays(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is searched for modules is as it was once a command has ended."""
    others = [path for path in sys.path if path not in ("", str(folder))]
    monkeypatch.setattr(sys, "path", others.copy())
    run("list", "cli_ops", "-m", "cli_ops")
    run.error("list", "-m", "cli_package/nothing.py")
    run.error("list", "-m", "cli_raises.py")
    assert sys.path == others


# ---- how it looks ----


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, *argv: str) -> str:
    """What a command prints in a terminal."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    cli.main(argv)
    return stream.getvalue()


ESCAPE = "\x1b["


@pytest.mark.parametrize(
    ("environment", "option", "is_terminal", "colored"),
    [
        ({}, "auto", True, True),
        ({}, "auto", False, False),
        ({}, "always", False, True),
        ({}, "never", True, False),
        ({"NO_COLOR": "1"}, "auto", True, False),
        ({"NO_COLOR": ""}, "auto", True, True),
        ({"NO_COLOR": "1"}, "always", True, True),
        ({"FORCE_COLOR": "1"}, "auto", False, True),
        ({"FORCE_COLOR": "1"}, "never", False, False),
    ],
)
def test_colours(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    option: str,
    is_terminal: bool,
    colored: bool,
) -> None:
    """The option counts first, then the environment, then what is printed to."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal() if is_terminal else io.StringIO()
    output.make_output(option, stream).table(["a"], [["own"]])
    assert (ESCAPE in stream.getvalue()) is colored


@pytest.mark.usefixtures("ours")
def test_a_terminal_without_colours_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS is the width that tables are wrapped to, and no text is lost."""
    monkeypatch.setenv("COLUMNS", "100")
    found = shown(monkeypatch, "list", "np::eye", "np::full", "--color", "never")
    assert max(map(len, found.splitlines())) <= 100
    for name in ("eye", "full"):
        schema = str(getattr(co.ops.np, name).default.schema)
        assert "".join(schema.split()) in "".join(found.split())


def test_a_narrow_terminal_breaks_lines_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a table cannot be wrapped, its rows stay whole."""
    monkeypatch.setenv("COLUMNS", "30")
    found = shown(monkeypatch, "list", "np::logaddexp2", "--color", "never")
    (row,) = [line for line in found.splitlines() if line.startswith("np::logaddexp2")]
    assert row.rstrip().endswith("(Array|Scalar x1, Array|Scalar x2) -> Array")


def test_text_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets in text are text, also where they look like what rich reads."""
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    to = output.make_output("never", stream)
    to.heading("[bold]f64[3][/bold]")
    to.line("[red]a[/red]", "passed")
    to.table(["x", "y"], [["[i]b[/i]", ":smile:"]])
    assert [line.rstrip() for line in stream.getvalue().splitlines()] == [
        "[bold]f64[3][/bold]",
        "[red]a[/red]",
        "x         y",
        "[i]b[/i]  :smile:",
    ]


def test_plain_tables() -> None:
    """Columns are two spaces apart and nothing stands behind the last one."""
    stream = io.StringIO()
    plain = output.make_output("auto", stream)
    plain.table(["name", "b"], [["x", "long text"], ["longer", ""]])
    plain.table(["", ""], [["x", "y"]])
    plain.table(["a"], [])
    plain.source("if x:\n    y\n")
    assert stream.getvalue() == (
        "name    b\nx       long text\nlonger\nx  y\na\n  if x:\n      y\n"
    )


def test_json_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document in a terminal is the document in a pipe."""
    found = shown(monkeypatch, "--json", "--color", "always", "list", "np::sin")
    assert json.loads(found)["operators"][0]["name"] == "np::sin"


def test_source_in_colours_is_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is coloured reads as it did."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm-256color")
    found = shown(monkeypatch, "show", "np::sin")
    assert ESCAPE in found
    bare = re.sub(r"\x1b\[[0-9;]*m", "", found)
    source = [line.strip() for line in co.ops.np.sin.default.source.splitlines()]
    assert [line.strip() for line in bare.splitlines()][-len(source) :] == source


def test_colours_without_rich(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rich a terminal gets plain text, and colours that are demanded an error."""
    plain = run("list", "np::sin")
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    said = run.error("list", "np::sin", "--color", "always")
    assert said == (
        "--color always needs rich, which is not installed\n"
        "  do: pip install 'customop[terminal]', or leave the option out\n"
    )
    assert shown(monkeypatch, "list", "np::sin") == plain


# ---- as a process ----


def process(
    *argv: str, cwd: Path, options: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the program as a user does."""
    return subprocess.run(
        [sys.executable, *options, "-m", "customop", *argv],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_module_runs(folder: Path) -> None:
    """Modules of the current directory are found; what they print is no report."""
    argv = ("-m", "cli_ops", "list", "cli_ops::twice", "--json")
    done = process(*argv, cwd=folder, options=("-W", "error"))
    assert json.loads(done.stdout)["operators"][0]["name"] == "cli_ops::twice"
    assert (done.returncode, done.stderr) == (0, "cli_ops speaks\n")


def test_the_status_of_a_process(folder: Path) -> None:
    """A failed check is status 1, and kernels that print do not mix with the report."""
    argv = ("check", "cli_checked.py:[rw]*", "--test-utils=test_faketensor", "--json")
    done = process(*argv, cwd=folder)
    counts = json.loads(done.stdout)["summary"]
    assert (counts["passed"], counts["failed"], done.returncode) == (1, 1, 1)
    assert "right runs" in done.stderr


def test_warnings_come_through(folder: Path) -> None:
    """A warning of a module is shown as Python shows it."""
    text = 'import warnings\nwarnings.warn("look", stacklevel=1)\n'
    (folder / "cli_warns.py").write_text(text)
    done = process("list", "np::sin", "-m", "cli_warns", cwd=folder)
    assert "cli_warns.py:2: UserWarning: look" in done.stderr
    assert done.returncode == 0


def test_a_poor_encoding_is_no_error(folder: Path) -> None:
    """What the stream cannot encode is escaped; a document is ASCII anyway."""
    argv = ("show", "cli_ops::over.text", "-m", "cli_ops")
    plain = process(*argv, cwd=folder, PYTHONIOENCODING="ascii")
    assert plain.stdout.splitlines()[1] == r"D\xe9j\xe0 vu."
    document = process(*argv, "--json", cwd=folder, PYTHONIOENCODING="ascii")
    assert json.loads(document.stdout)["operator"]["summary"] == "Déjà vu."


@pytest.mark.parametrize(
    "argv", [("list",), ("show", "np::sin"), ("coverage", "--json")]
)
def test_a_closed_pipe_is_quiet(folder: Path, argv: tuple[str, ...]) -> None:
    """A reader that has seen enough ends the program without a word."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "customop", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + 13, b"")


def test_an_interruption_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command with the status that shells have for it."""

    def interrupt(options: Any, to: Any) -> int:
        raise KeyboardInterrupt

    command = replace(cli.COMMANDS["list"], run=interrupt)
    monkeypatch.setitem(cli.COMMANDS, "list", command)
    assert (run("list"), run.status, run.err) == ("", 130, "")


def test_the_script_is_declared() -> None:
    """The program `customop` is the function that `python -m customop` runs."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.scripts]\ncustomop = "customop.cli:main"\n' in text
