"""Random command lines: each ends with a status and, if it is wrong, with a message."""

from __future__ import annotations

import random

import pytest

from tests.cli._commands import Run

COMMANDS = ["list", "show", "explain", "check", "coverage", "bench", "stubs", "lst", ""]
NAMES = [
    *(
        "np::sin",
        "np::add.default",
        "np::sin.x",
        "sin",
        "np.sin",
        "::sin",
        "np::",
        "np::*",
    ),
    *("cli_ops::scale", "cli_ops::over", "cli_checked:right", "cli_checked::right"),
    *("cli_checked.py", "10_course.py", "cli_raises", "cli_syntax.py", "cli_parts:"),
    *("::", ":", "*", "np::\xe9", "\ud800", "\0", "-", "a b", "a::b::c"),
]
ARGUMENTS = [
    *("f64[3]", "f64[", "f64[-1]", "f64[1e3]", "f64[x]", "f64[3 4]", "f64[3][2]"),
    *("fake.f64[3]", "cuda.f64[2]", "zz.f64[2]", "f64[99999999999999]", "f64[True]"),
    *("u128[1]", "str[2]", "i32[]", "f64[...]", "f64[:3]", "(f64[2],)", "{f64[2]: 1}"),
    *("1", "-1", "None", "n=2", "n=", "=2", "x=f64[2]", "x:=3", "*a", "**k", "1/0"),
    *("lambda: 0", "yield", "{**{}}", "f'{x}'", "nan", "0x", "1_0", "\xe9", "\ud800"),
    *("[" * 300, "9" * 5000, "n\u0301=3"),
]
OPTIONS = [
    *(
        "--json",
        "--color",
        "--color=no",
        "--color=never",
        "-m",
        "-mcli_ops",
        "--import=x",
    ),
    *("--help", "--version", "--samples", "--samples=0", "--samples=x", "--time=nan"),
    *(
        "--rtol=1",
        "--rtol=x",
        "--atol=-1",
        "--junit",
        "--junit=.",
        "--junit=",
        "-x",
        "-q",
    ),
    *(
        "--test-utils=",
        "--test-utils=test_schema",
        "--test-utils=no",
        "--",
        "-z",
        "--o",
    ),
]


def random_line(choose: random.Random) -> list[str]:
    """A command with names, arguments and options, of which most are wrong."""
    line = [choose.choice(COMMANDS)]
    line += choose.choices(NAMES, k=choose.randint(0, 2))
    line += choose.choices(ARGUMENTS, k=choose.choice([0, 0, 1, 1, 2, 3]))
    for _ in range(choose.choice([0, 0, 1, 2])):
        line.insert(choose.randint(0, len(line)), choose.choice(OPTIONS))
    if line[0] == "bench":
        line.append("--time=0.0005")
    if line[0] == "check":
        line.append("--test-utils=test_schema")
    return line


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_random_lines(run: Run, seed: int) -> None:
    """Nothing but a status of 0, 1 or 2 comes out; wrong input has a message."""
    choose = random.Random(seed)
    counts = {0: 0, 1: 0, 2: 0}
    for _ in range(120):
        line = random_line(choose)
        run(*line)
        counts[run.status] += 1
        if run.status == 2 and line != [""]:
            assert "customop: error: " in run.err or "usage: " in run.err, line
    assert counts[0] > 1
    assert counts[2] > 60
