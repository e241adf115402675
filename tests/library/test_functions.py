"""Making operators, and registering for them by name."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
from typing import Any, get_overloads

import numpy as np
import pytest

import customop as co
from customop.core.builtin_kinds import JVP, VMAP
from customop.core.registry import find_operator

X = np.array([1.0, 2.0])


def twice(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    """Multiply by k."""
    return x * k


def make(name: str, fn: Any = twice, **kwargs: Any) -> Any:
    return co.custom_op(f"library_test::{name}", fn, **{"mutates_args": (), **kwargs})


def exists(qualname: str) -> bool:
    try:
        find_operator(qualname)
    except co.MissingRuleError:
        return False
    return True


# ---- making an operator ----


def test_a_call_makes_an_operator() -> None:
    """With a function, `custom_op` returns the operator."""
    op = make("by_call")
    assert isinstance(op, co.Operator)
    assert op(X).tolist() == [2.0, 4.0]


def test_a_decorator_makes_an_operator() -> None:
    """Without a function, `custom_op` returns a decorator."""

    @co.custom_op("library_test::decorated", mutates_args=())
    def decorated(x: np.ndarray) -> np.ndarray:
        return -x

    assert isinstance(decorated, co.Operator)
    assert decorated(X).tolist() == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("qualname", "parts"),
    [
        ("library_test::plain", ("library_test", "plain", "")),
        ("library_test::plain.out", ("library_test", "plain", "out")),
        ("_a1::B_2", ("_a1", "B_2", "")),
    ],
)
def test_a_name_has_parts(qualname: str, parts: tuple[str, ...]) -> None:
    """The qualified name consists of namespace, name and overload."""
    op: Any = co.custom_op(qualname, twice, mutates_args=())
    assert (op.namespace, op.name, op.overload) == parts


def test_an_operator_looks_like_its_function() -> None:
    """An operator keeps the name, docstring, signature and function."""
    op = make("looks")
    assert op.__name__ == "twice"
    assert op.__doc__ == "Multiply by k."
    assert op.__wrapped__ is twice
    assert inspect.signature(op) == inspect.signature(twice)


@pytest.mark.parametrize("again", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_operator_is_copied_by_name(again: Any) -> None:
    """Copying and unpickling return the same operator."""
    op = make("copied")
    found = again(op)
    assert (pickle.loads(found) if isinstance(found, bytes) else found) is op


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ((), frozenset()),
        (co.Tag.pointwise, {co.Tag.pointwise}),
        ([co.Tag.pointwise, co.Tag.pointwise], {co.Tag.pointwise}),
    ],
    ids=["none", "one", "twice"],
)
def test_tags_are_a_set(tags: Any, expected: Any) -> None:
    """`tags` accepts one tag or several, and duplicates are dropped."""
    assert make("tagged", tags=tags).tags == expected


@pytest.mark.parametrize(
    "device_types", ["cpu", ["cpu"], ("cpu", "cuda"), iter(["cpu"])]
)
def test_device_types_name_what_a_function_serves(device_types: Any) -> None:
    """`device_types` accepts one kind or several."""
    op = make("served", device_types=device_types)
    assert op.rule("cpu") is twice


def test_without_device_types_a_function_serves_all() -> None:
    """Without `device_types`, the function serves every kind of array."""
    assert make("all_kinds").rule("cuda") is twice


def test_defining_the_same_again_replaces_in_place() -> None:
    """With the same function there is one operator, whose table is empty again."""
    old = make("again").register_fake(lambda x, k: co.fake_like(x))
    assert make("again") is old
    with pytest.raises(co.MissingRuleError):
        old(co.FakeArray((2,)))


def test_a_factory_chooses_by_its_device() -> None:
    """Without array arguments, the argument `device` picks the kernel."""

    def ones(n: int, device: co.Device = "cpu") -> np.ndarray:
        return np.ones(n)

    op = make("ones", ones, device_types="cpu")
    op.register_kernel("cuda", lambda n, device: np.full(n, 2.0))
    assert op(2).tolist() == [1.0, 1.0]
    with pytest.raises(co.ContractError, match="must be of the kind 'cuda'"):
        op(2, device="cuda")


def test_an_operator_without_arrays_runs_its_function() -> None:
    """An operator with neither arrays nor a device runs its function."""

    def add(a: int, b: int) -> int:
        return a + b

    assert make("add", add)(1, 2) == 3


# ---- registering ----


def rule(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError


KIND = co.RuleKind("library_test_kind")
# Name of the function -> its arguments before the rule, and how to read the rule.
FREE: dict[str, tuple[tuple[Any, ...], Any]] = {
    "register_kernel": (("cuda",), lambda op: op.rule("cuda")),
    "register_fake": ((), lambda op: op.rule("fake")),
    "register_jvp": ((), lambda op: op.rule(JVP)),
    "register_vmap": ((), lambda op: op.rule(VMAP)),
    "register": ((KIND,), lambda op: op.rule(KIND)),
}


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("as_name", [True, False], ids=["by name", "by operator"])
def test_registering_by_name_is_the_method(name: str, as_name: bool) -> None:
    """The functions accept an operator or its name, and do what the methods do."""
    first, read = FREE[name]
    op = make(f"free_{name}")
    target = op.qualname if as_name else op
    assert getattr(co, name)(target, *first, rule) is op
    assert read(op) is rule


@pytest.mark.parametrize("name", FREE)
def test_methods_chain_given_a_function(name: str) -> None:
    """With a function, a method returns the operator."""
    first, read = FREE[name]
    op = make(f"chained_{name}")
    assert getattr(op, name)(*first, rule) is op
    assert read(op) is rule


@pytest.mark.parametrize("name", FREE)
def test_methods_decorate_without_one(name: str) -> None:
    """Without a function, a method returns a decorator that returns it unchanged."""
    first, read = FREE[name]
    op = make(f"stacked_{name}")
    assert getattr(op, name)(*first)(rule) is rule
    assert read(op) is rule


@pytest.mark.parametrize("as_name", [True, False], ids=["by name", "by operator"])
def test_a_backward_formula_is_registered_by_name(as_name: bool) -> None:
    """`register_autograd` accepts an operator or its name."""
    op = make("free_autograd")
    target = op.qualname if as_name else op
    assert co.register_autograd(target, lambda ctx, g: (3 * g, None)) is op
    assert co.grad(lambda x: op(x).sum())(X).tolist() == [3.0, 3.0]


SIGNATURES = {
    "register_kernel": "(op, device_types, fn=None, /, *, lib=None)",
    "register_fake": "(op, fn=None, /, *, override=False, lib=None)",
    "register": "(op, kind, fn=None, /, *, override=False, lib=None)",
    "register_autograd": "(op, backward, /, *, setup_context=None, override=False, lib=None)",
    "register_jvp": "(op, fn=None, /, *, override=False, lib=None)",
    "register_vmap": "(op, fn=None, /, *, override=False, lib=None)",
    "register_autocast": "(op, device_type, dtype, /, *, lib=None)",
    "register_array_dispatch": "(op, array_class, fn=None, /, *, override=False, lib=None)",
    "register_sample_inputs": "(op, fn=None, /, *, override=False, lib=None)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_by_name_has_the_parameters_of_the_method(name: str) -> None:
    """An operator comes first, a library last; the declared types have these names too."""
    fn = getattr(co, name)
    signature = inspect.signature(fn)
    empty = inspect.Parameter.empty
    bare = [p.replace(annotation=empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == SIGNATURES[name]
    overloads = get_overloads(fn)
    assert overloads
    for typed in overloads:
        *positional, options = inspect.signature(typed).parameters.values()
        assert options.kind is inspect.Parameter.VAR_KEYWORD
        assert [p.name for p in positional] == [*signature.parameters][
            : len(positional)
        ]


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_by_name_is_a_function(name: str) -> None:
    """It is pickled by its name, and its docstring explains what the method takes."""
    fn = getattr(co, name)
    assert inspect.isfunction(fn)
    assert pickle.loads(pickle.dumps(fn)) is fn
    parameters = inspect.getdoc(fn).partition("Returns\n")[0]
    assert all(f"\n{p} : " in parameters for p in inspect.signature(fn).parameters)


# ---- failures change nothing ----

BAD: list[dict[str, Any]] = [
    {"fn": lambda x: x},
    {"mutates_args": ("q",)},
    {"mutates_args": "x"},
    {"device_types": "cdua"},
    {"device_types": ("cpu", "cdua")},
    {"device_types": ()},
    {"schema": "(Array q) -> Array"},
    {"schema": "(Arrai x, float k=2.0) -> Array"},
    {"tags": "pointwise"},
    {"tags": [3]},
    {"fn": 3},
]


@pytest.mark.parametrize(
    "wrong", BAD, ids=[next(iter(row)) + str(i) for i, row in enumerate(BAD)]
)
def test_a_failed_definition_leaves_no_operator(wrong: dict[str, Any]) -> None:
    """A definition is checked completely before the operator is created."""
    with pytest.raises(co.CustomOpError):
        make("never", **wrong)
    gc.collect()
    assert not exists("library_test::never")


@pytest.mark.parametrize(
    "wrong", BAD, ids=[next(iter(row)) + str(i) for i, row in enumerate(BAD)]
)
def test_a_failed_redefinition_leaves_the_old_operator(wrong: dict[str, Any]) -> None:
    """After a failed redefinition, the old operator still works."""
    op = make("stays")
    schema, table = op.schema, dict(op.rows)
    with pytest.raises(co.CustomOpError):
        make("stays", **wrong)
    assert (op.schema, dict(op.rows)) == (schema, table)
    assert op(X).tolist() == [2.0, 4.0]


def wrong_parameters(one: Any) -> Any: ...


WRONG = {
    "a kernel": lambda op: op.register_kernel("cpu", wrong_parameters),
    "a kind of kernel": lambda op: op.register_kernel(("cpu", "cdua"), twice),
    "the operator itself": lambda op: op.register_kernel("cpu", op),
    "no function": lambda op: op.register_kernel("cpu", 3),
    "a fake kernel": lambda op: op.register_fake(wrong_parameters),
    "a second fake kernel": lambda op: op.register_fake(lambda x, k: x),
    "a backward": lambda op: op.register_autograd(wrong_parameters),
    "a setup_context": lambda op: op.register_autograd(
        lambda ctx, g: g, setup_context=wrong_parameters
    ),
    "a jvp rule": lambda op: op.register_jvp(wrong_parameters),
    "a vmap rule": lambda op: op.register_vmap(wrong_parameters),
    "no kind": lambda op: op.register("vmap", rule),
    "a switch": lambda op: op.set_kernel_enabled("cdua", False),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_failed_registration_leaves_the_table(what: str) -> None:
    """A refused registration changes nothing."""
    op = make("table").register_fake(lambda x, k: co.fake_like(x))
    op(X)
    table, disabled = dict(op.rows), op.disabled
    with pytest.raises(co.CustomOpError):
        WRONG[what](op)
    assert (dict(op.rows), op.disabled) == (table, disabled)
    assert op(X).tolist() == [2.0, 4.0]


# ---- switching kernels ----


def test_a_disabled_kernel_gives_way_to_the_function() -> None:
    """While the kernel is disabled, the operator's function runs."""
    op = make("switched").register_kernel("cpu", lambda x, k: x * 0)
    with op.set_kernel_enabled("cpu", False):
        assert op(X).tolist() == [2.0, 4.0]
    assert op(X).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("device_type", "enabled", "text"),
    [
        ("cuda", False, "'cuda' kernel of library_test::warned is not registered: nothing to enable or disable"),
        ("cpu", True, "'cpu' kernel of library_test::warned is already enabled"),
    ],
)  # fmt: skip
def test_a_switch_without_effect_warns(
    device_type: str, enabled: bool, text: str
) -> None:
    """Switching without effect warns."""
    op = make("warned").register_kernel("cpu", twice)
    with pytest.warns(co.CustomOpWarning) as caught:
        op.set_kernel_enabled(device_type, enabled)
    assert [str(warning.message) for warning in caught] == [text]
    assert caught[0].filename == __file__
