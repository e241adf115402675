"""Overloads of a function against the schema of its operator."""

from __future__ import annotations

import importlib
import linecache
import types
import typing
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pytest

import customop as co
from customop.core.registry import remove_operator


def made(text: str, definition: str) -> co.Operator[..., Any]:
    """The operator of a function below overloads that take `text`, as in a module."""
    lines = [
        *(
            line
            for stub in text.split("; ")
            for line in ("@overload", f"def f{stub}: ...")
        ),
        "@co.custom_op('overloads::f', mutates_args=())",
        f"def f{definition}:",
        "    raise NotImplementedError",
    ]
    source = "\n".join(lines)
    module = types.ModuleType("overloaded_module")
    names = vars(module) | {"co": co, "np": np, "overload": overload} | vars(typing)
    names["__name__"] = module.__name__
    file = f"<{text} | {definition}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), names)
    op: co.Operator[..., Any] = names["f"]
    remove_operator(op)
    return op


FITTING = [
    "(x: np.ndarray, k: int) -> np.ndarray; (x: np.ndarray, k: None = None) -> np.ndarray",
    "(x: np.ndarray, /) -> np.ndarray; (y: np.ndarray, k: int, /) -> np.ndarray",
    "(x: np.ndarray) -> np.ndarray; (x: np.ndarray, *, k: bool) -> np.ndarray",
    "(x: np.ndarray, k: Any) -> object; (x: np.ndarray) -> Any",
    "(x: co.Array, k: int | None = ...) -> co.Array; (x: 'Gone') -> np.ndarray",
]


@pytest.mark.parametrize("stubs", FITTING)
def test_overloads_that_allow_less_fit(stubs: str) -> None:
    """An overload may leave out defaults, and take fewer values and by name alone."""
    op = made(stubs, "(x: np.ndarray, k: int | None = None) -> np.ndarray")
    assert str(op.schema) == "(Array x, int? k=None) -> Array"


@pytest.mark.parametrize(
    ("stub", "definition", "what"),
    [
        ("(x: np.ndarray, k: str) -> np.ndarray", "(x: np.ndarray, k: int) -> np.ndarray",
         "takes 'k' as str, the operator as int"),
        ("(x: float, k: int) -> np.ndarray", "(x: np.ndarray, k: int) -> np.ndarray",
         "takes 'x' as float, the operator as Array"),
        ("(x: np.ndarray, k: None) -> np.ndarray", "(x: np.ndarray, k: int) -> np.ndarray",
         "takes 'k' as None, the operator as int"),
        ("(x: np.ndarray, k: int | None) -> np.ndarray",
         "(x: np.ndarray, k: int = 0) -> np.ndarray",
         "takes 'k' as int?, the operator as int"),
        ("(x: np.ndarray, k: int = 1) -> np.ndarray", "(x: np.ndarray, k: int) -> np.ndarray",
         "has a default for 'k', the operator has none"),
        ("(x: np.ndarray) -> np.ndarray", "(x: np.ndarray, k: int) -> np.ndarray",
         "leaves out 'k', which has no default"),
        ("(y: np.ndarray, k: int) -> np.ndarray", "(x: np.ndarray, k: int) -> np.ndarray",
         "has the parameter 'y' where the schema has 'x'"),
        ("(x: np.ndarray, k: int, n: int) -> np.ndarray",
         "(x: np.ndarray, k: int) -> np.ndarray",
         "takes 'n', the operator has no such parameter"),
        ("(x: np.ndarray, *, n: int) -> np.ndarray", "(x: np.ndarray, k: int) -> np.ndarray",
         "takes 'n', the operator has no such parameter"),
        ("(x: np.ndarray, *, k: int) -> np.ndarray",
         "(x: np.ndarray, k: int, /) -> np.ndarray",
         "takes 'k' by name, the operator does not"),
        ("(x: np.ndarray, *k: int) -> np.ndarray", "(x: np.ndarray, k: int) -> np.ndarray",
         "takes '*k', the operator has no such parameter"),
        ("(x: np.ndarray) -> float", "(x: np.ndarray) -> np.ndarray",
         "returns float, the operator Array"),
        ("(x: np.ndarray) -> None", "(x: np.ndarray) -> np.ndarray",
         "returns (), the operator Array"),
        ("(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]",
         "(x: np.ndarray) -> np.ndarray",
         "returns (Array, Array), the operator Array"),
    ],
)  # fmt: skip
def test_an_overload_that_allows_more_is_refused(
    stub: str, definition: str, what: str
) -> None:
    """The error names the overload, by its number and its place."""
    file = f"<{definition}; {stub} | {definition}>"
    with pytest.raises(co.SchemaError) as caught:
        made(f"{definition}; {stub}", definition)
    assert caught.value.what == f"overloads::f: overload 2 of f {what}"
    assert f"at {file}:3" in str(caught.value)


@overload
def cut(x: np.ndarray, at: int, mode: Literal["left"]) -> list[np.ndarray]: ...
@overload
def cut(x: np.ndarray, at: list[int]) -> list[np.ndarray]: ...
def cut(x: np.ndarray, at: Any, mode: str = "left") -> list[np.ndarray]:
    return np.split(x, at)


def test_the_whole_message() -> None:
    """The error shows the schema with the parameter, and what to do."""
    with pytest.raises(co.SchemaError) as caught:
        co.custom_op(
            "overloads::cut",
            cut,
            mutates_args=(),
            schema='(Array x, int[] at, str mode="left") -> Array[]',
        )
    line = typing.get_overloads(cut)[0].__code__.co_firstlineno
    assert str(caught.value) == (
        "overloads::cut: overload 1 of cut takes 'at' as int, the operator as int[]\n"
        '  (Array x, int[] at, str mode="left") -> Array[]\n'
        "            ^^^^^^^^\n"
        f"  at {__file__}:{line}\n"
        "  do: allow only calls that the operator takes, or change its schema"
    )


def test_python_knows_the_overloads_of_an_operator() -> None:
    """`typing.get_overloads` gives the same for the operator as for the function."""
    op = made(FITTING[0], "(x: np.ndarray, k: int | None = None) -> np.ndarray")
    assert [stub.__name__ for stub in typing.get_overloads(op)] == ["f", "f"]


def test_kernels_have_the_parameters_of_the_implementation() -> None:
    """Overloads change nothing about what is registered, or about the call."""

    @overload
    def scale(x: np.ndarray, k: int) -> np.ndarray: ...
    @overload
    def scale(x: np.ndarray) -> np.ndarray: ...
    @co.custom_op("overloads::scale", mutates_args=(), device_types="cpu")
    def scale(x: np.ndarray, k: int = 2) -> np.ndarray:
        return x * k

    op: Any = scale
    op.register_kernel("cuda", lambda x, k: x * k)
    with pytest.raises(co.RegistrationError, match="takes"):
        op.register_fake(lambda x: x)
    op.register_autograd(lambda ctx, g: g)
    np.testing.assert_array_equal(op(np.ones(2)), [2.0, 2.0])
    np.testing.assert_array_equal(op(np.ones(2), k=3), [3.0, 3.0])


MODULE = """\
from typing import overload
import numpy as np
import customop as co
{more}
@overload
def f(x: np.ndarray, k: {type}) -> np.ndarray: ...
@overload
def f(x: np.ndarray) -> np.ndarray: ...
@co.custom_op("overloads_reload::f", mutates_args=())
def f(x: np.ndarray, k: {type} = {default}) -> np.ndarray:
    return x
"""


def test_overloads_of_a_module_before_it_was_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python keeps the old overloads, at lines where now something else stands."""
    path = tmp_path / "reloaded_overloads.py"
    path.write_text(MODULE.format(more="", type="str", default="''"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module: Any = importlib.import_module("reloaded_overloads")
    path.write_text(MODULE.format(more="\n" * 4, type="int", default="0"))
    linecache.checkcache()
    importlib.reload(module)
    assert str(module.f.schema) == "(Array x, int k=0) -> Array"
    assert len(typing.get_overloads(module.f)) == 4
