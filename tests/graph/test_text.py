"""The text of graphs: what it shows, and that it runs with the same numbers."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pytest

import customop as co
from customop.arrays.nested import children


class Color(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


class Flags(enum.Flag):
    """Choices that go together."""

    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Camera:
    """A config object with an array in it."""

    matrix: np.ndarray
    focal: float
    color: Color = Color.RED


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """A config object without arrays, and without a dict."""

    counts: tuple[int, ...]
    name: str = "o'clock"


class Pair(NamedTuple):
    """A tuple with names."""

    left: np.ndarray
    right: np.ndarray


class Options(TypedDict):
    """A dict with fixed keys."""

    gain: float
    shift: np.ndarray


def bits(value: Any) -> Any:
    """A value with the bytes of its arrays and numbers, which can be compared."""
    if isinstance(value, np.ndarray | np.generic):
        return (type(value), value.dtype, value.shape, value.tobytes())
    found = children(value)
    if found is not None:
        return (type(value), [bits(part) for part in found])
    return (type(value), repr(value))


def back(module: co.GraphModule) -> Any:
    """The function that the text of a module makes."""
    names: dict[str, Any] = {"constants": module.named_constants()}
    before = set(names)
    exec(module.print_readable(print_output=False), names)
    made = [v for k, v in names.items() if k not in before and callable(v)]
    return made[-1]


def check_text(fn: Any, *args: Any, **kwargs: Any) -> str:
    """Check that the text of a captured function computes the same; return the text."""
    module = co.make_fx(fn)(*args, **kwargs)
    run = back(module)
    expected = co.tree.map(np.copy, (args, kwargs))
    found = co.tree.map(np.copy, (args, kwargs))
    state = [generator_state(value) for value in module.constants.values()]
    out = run(*found[0], **found[1])
    assert state == [generator_state(value) for value in module.constants.values()]
    assert bits(out) == bits(module(*expected[0], **expected[1]))
    assert bits(found) == bits(expected)  # what was written to the inputs
    return module.print_readable(print_output=False)


def generator_state(value: Any) -> str:
    """The state of a generator; nothing for other values."""
    return str(value.bit_generator.state) if hasattr(value, "bit_generator") else ""


x2 = np.array([1.0, 2.0])


def everything(
    x: np.ndarray,
    camera: Camera,
    steps: Steps,
    pair: Pair,
    options: Options,
    parts: list[np.ndarray],
    table: dict[str, float],
    sizes: list[list[int | None]],
    dtype: co.DType,
    flags: Flags,
    limit: float,
    number: complex,
    rng: np.random.Generator,
    text: str,
    *,
    maybe: np.ndarray | None = None,
    scale: float = 1.0,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """An operator with a parameter of each type."""
    out = x * scale + camera.matrix * camera.focal + pair.left - pair.right
    out = out + options["gain"] * options["shift"] + sum(table.values())
    out = out + len(sizes) + len(text) + flags.value + np.minimum(limit, 3.0)
    out = out + (number.real if np.isfinite(number.real) else 7.0) + len(steps.counts)
    if maybe is not None:
        out = out + maybe
    return (out + rng.standard_normal(2)).astype(dtype), [p * 2 for p in parts]


EVERYTHING = co.custom_op("text::everything", everything, mutates_args=())


@EVERYTHING.register_fake
def _(x: Any, *args: Any, maybe: Any = None, scale: float = 1.0) -> Any:
    return co.fake_like(x, dtype=args[7]), [co.fake_like(p) for p in args[4]]


@pytest.mark.parametrize("limit", [np.inf, -np.inf, np.nan, 0.1, -0.0])
@pytest.mark.parametrize("keyword", [{}, {"scale": 2.5}, {"maybe": x2}])
def test_an_operator_with_every_type(limit: float, keyword: dict[str, Any]) -> None:
    """Nested nodes, config objects, generators, dtypes and odd numbers are kept."""
    rng = np.random.default_rng(4)

    def f(x: Any, y: Any) -> Any:
        return EVERYTHING(
            x,
            Camera(y * 2, 3.5, Color.BLUE),
            Steps((1, 2)),
            Pair(x, y),
            {"gain": -0.0, "shift": y},
            [x, y, x2],
            {"it's": limit if limit == limit else 1.0, '"b"': 2.0},  # noqa: PLR0124
            [[1, None], []],
            np.dtype("float32"),
            Flags.A | Flags.B,
            limit,
            complex(limit, -0.0),
            rng,
            "a \"quote\", a 'second' one,\n\\ and \u00e9 \U0001f600",
            **keyword,
        )

    text = check_text(f, np.array([0.5, -2.0]), np.array([3.0, 4.0]))
    assert "co.ops.text.everything.default(" in text


def test_the_whole_text() -> None:
    """Types, names of overloads, places and what is freed."""

    def f(params: Any, x: Any) -> Any:
        h = np.tanh(x @ params["w"] + params["b"])
        return {"out": h, "parts": (np.sum(h, axis=0), None)}

    params = {"w": np.ones((3, 2)), "b": np.zeros(2)}
    module = co.make_fx(f)(params, np.ones((4, 3)))
    text = module.print_readable(print_output=False)
    line = f.__code__.co_firstlineno + 1
    first, second = f"  # {line}", f"  # {line + 1}"
    here = f"# {__file__}:"
    lines = text.replace(here, "# ").splitlines()
    assert lines[:7] == [
        "import numpy as np",
        "",
        "import customop as co",
        "",
        "",
        f"def f(params, x):  # {line + 4}",
        "    params_b, params_w, x, = co.tree.leaves(((params, x,), {}))",
    ]
    kept = [
        "    # params_b: f64[2]",
        "    # params_w: f64[3, 2]",
        "    # x: f64[4, 3]",
        f'    matmul: "f64[4, 2]" = @matmul.default(x, params_w); del x, params_w{first}',
        f'    add: "f64[4, 2]" = @add.default(matmul, params_b); del matmul, params_b{first}',
        f'    tanh: "f64[4, 2]" = @tanh.default(add); del add{first}',
        f'    sum: "f64[2]" = @sum.default(tanh, [0]){second}',
        "    return {'out': tanh, 'parts': (sum, None)}",
    ]
    assert [line.replace("co.ops.np.", "@") for line in lines[7:]] == kept


def test_print_readable_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what it returns, unless told otherwise."""
    module = co.make_fx(np.sin)(np.ones(2))
    text = module.print_readable()
    assert capsys.readouterr().out == text + "\n"
    assert module.print_readable(print_output=False) == text
    assert capsys.readouterr().out == ""


TABLE = np.arange(300.0)
SMALL = np.array([np.nan, -0.0, np.inf])


def test_constants() -> None:
    """Small constants are written as numbers, large ones are taken by name."""
    text = check_text(lambda x: x * TABLE[:3] + TABLE[-1] + SMALL, np.ones(3))
    assert "nan, -0.0, inf" in text
    text = check_text(lambda x: np.sum(x * TABLE, dtype="f4"), np.ones(300))
    assert "constant = constants['constant']  # f64[300]" in text
    words = np.array(["a", None], dtype=object)
    module = co.make_fx(lambda x: (x, words))(np.ones(3))
    assert back(module)(np.ones(3))[1] is words


def test_a_class_that_cannot_be_imported() -> None:
    """A config object of a class in a function takes the class by name."""

    @dataclasses.dataclass(frozen=True)
    class Local:
        matrix: np.ndarray
        gain: float

    def kernel(x: np.ndarray, local: Local) -> np.ndarray:
        return x * local.gain + local.matrix

    op = co.custom_op("text::local", kernel, mutates_args=())
    text = check_text(lambda x: op(x, Local(x * 2, 3.0)), np.ones(3))
    assert "Local = constants['Local']" in text


def test_names_that_the_text_needs() -> None:
    """Parameters that are called as modules or constants are renamed."""

    def f(np: Any, co: Any, constants: Any, inf: Any, f: Any, constant: Any) -> Any:
        return (np * co + constants - inf) / f + TABLE[:2] * constant + TABLE[5]

    check_text(f, *[np.array([1.5, 2.0]) + i for i in range(6)])


def test_writes_views_and_several_results() -> None:
    """In-place code, views, operators of several results, keyword inputs."""

    def f(x: Any, *rest: Any, k: Any, **more: Any) -> Any:
        q, r = np.linalg.qr(x)
        x[0] = 5.0
        view = x[1:].T
        view += 1.0
        k["a"][...] = r[0]
        return q, [v * 2 for v in rest], np.split(r, 2), more["last"] + k["b"]

    matrix = np.array([[1.0, 2.0], [3.0, 5.0]])
    check_text(
        f, matrix, x2, x2 + 1, k={"b": x2 * 3, "a": np.zeros(2)}, last=np.array(2.0)
    )


def test_inputs_that_are_not_arrays() -> None:
    """They are shown, with the value that they must have."""
    module = co.make_fx(lambda x, n, mode: x * n)(np.ones(2), 3, "fast")
    text = module.print_readable(print_output=False)
    assert "# n must be 3\n    # mode must be 'fast'" in text
    assert back(module)(np.ones(2), 3, "fast").tolist() == [3.0, 3.0]


def test_an_unread_input_and_a_constant_result() -> None:
    """Graphs without a call."""
    check_text(lambda x, y: (y, 2.5, "text"), x2, x2)
    check_text(lambda: TABLE[:3] * 2)
    check_text(lambda x: None, x2)
