"""Wrong values for every argument of every function that registers."""

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.registry import namespaces, operators, registrations, remove_operator
from customop.core.table import fallbacks


class Hostile:
    """An object that fails whatever is asked of it."""

    def __repr__(self) -> str:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError


def _generator() -> Iterator[str]:
    yield "x"


def f(x: np.ndarray, n: int = 1) -> np.ndarray:
    return x * n


# Registered for by chance, and used by nobody.
OTHER = co.custom_op("hostile_other::f", f, mutates_args=())

VALUES: list[Any] = [
    *(None, True, 0, -1, 10**5000, 1.5, float("nan"), 1j, b"x", ..., NotImplemented),
    *(
        "",
        " ",
        "x",
        "cpu",
        "CPU",
        "fake",
        "default",
        "autograd",
        "composite",
        "unknown",
    ),
    *("hr::f", "hr::missing", "hr::f.default", "::", "a::b::c", "hr::__init__"),
    *("hr::\ufb01", "\ud800", "hr::\ud800", "9" * 5000, "f" * 100_000),
    *("(Array x) -> Array", "g2(Array x) -> Array", "() -> Array", "(int n) -> int"),
    *((), [], {}, set(), ("x",), ["x", "y"], {"x": 1}, ("cpu", "nope"), ("cpu", None)),
    *(np.array("x"), np.array(1), np.array([1.5, 2.0]), np.ones((2, 2)), np.float64(1)),
    *(
        np.array(["cpu"]),
        np.dtype("f4"),
        np.float32,
        np.ndarray,
        np.ma.MaskedArray,
        int,
    ),
    *(object(), Hostile(), Hostile, np.sin, len, functools.partial(np.sin), np, co),
    *(lambda: None, lambda x: x, lambda *a, **k: None, lambda ctx, g: g, _generator),
    *(co.Tag, co.Tag.pointwise, [co.Tag.inplace], co.RuleKind, co.RuleKind("k")),
    *(co.ops, co.ops.np, co.ops.hostile_other.f, OTHER, co.Library, co.native),
    *(co.fallthrough_kernel, co.FakeArray((2,)), Exception("e"), slice(1), range(3)),
]


def _calls(op: Any, lib: co.Library) -> Iterator[tuple[Callable[..., Any], Any, Any]]:
    """A function, its positional arguments and its options."""
    rule = {"lib": None, "override": True}
    yield co.custom_op, ["hr::new", f], {"mutates_args": (), "device_types": None,
                                         "schema": None, "tags": ()}  # fmt: skip
    yield co.define, ["hr::new", "(Array x) -> Array"], {"lib": None, "tags": ()}
    options = {"with_keyset": False, "allow_override": True}
    yield co.impl, ["hr::f", "CPU", f], {"lib": None, **options}
    yield co.Library, ["hr2", "FRAGMENT", ""], {}
    yield lib.define, ["g(Array x) -> Array", ""], {"tags": ()}
    yield lib.impl, ["f", f, "CPU"], options
    yield co.Library("_", "IMPL").fallback, [f, "Meta"], {}
    yield co.register_kernel, [op, "cpu", f], {"lib": None}
    yield op.register_kernel, ["cpu", f], {}
    for name in ("fake", "vmap", "jvp", "sample_inputs"):
        yield getattr(co, f"register_{name}"), [op, f], rule
        yield getattr(op, f"register_{name}"), [f], {"override": True}
    backward = {"setup_context": None, "override": True}
    yield co.register_autograd, [op, lambda ctx, g: g], {"lib": None, **backward}
    yield op.register_autograd, [lambda ctx, g: g], backward
    yield co.register_autocast, [op, "cpu", np.float32], {"lib": None}
    yield co.register_array_dispatch, [op, np.ma.MaskedArray, lambda op, a, k: 1], rule
    yield co.register, [op, co.RuleKind("kk", "(*inputs)"), f], rule
    yield op.set_kernel_enabled, ["cpu", True], {}
    yield op.rule, ["cpu"], {}
    yield co.get_kernel, ["hr::f", "cpu"], {}
    yield co.infer_schema, [f], {"mutates_args": (), "op_name": None}
    yield co.RuleKind, ["name", "(out)", "text"], {"derive": None}
    yield co.FakeArray, [(2,), "f4", None, "cpu"], {"order": None}
    yield co.fake_like, [co.FakeArray((2,))], {"shape": None, "dtype": None}


def _registered() -> Any:
    """All that is registered in the namespaces of this test."""
    mine = {n: op for n, op in operators.items() if n.startswith("hr")}
    tables = {n: (op.schema, {**op.stacks}, op.disabled) for n, op in mine.items()}
    names = {k: [*by] for k, by in namespaces.items() if k.startswith("hr")}
    waiting = {n: len(found) for n, found in registrations.items()}
    return tables, names, waiting, {**fallbacks}


def _error_of(fn: Callable[..., Any], args: Any, options: Any) -> Exception | None:
    try:
        fn(*args, **options)
    except Exception as error:  # noqa: BLE001  # it is checked
        return error
    return None


def _is_of_a_wrong_call(error: BaseException) -> bool:
    words = ("unexpected keyword", "missing", "positional argument")
    return isinstance(error, TypeError) and any(w in str(error) for w in words)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_wrong_values_are_errors_of_the_package() -> None:
    """Each says what to do, can be printed, and leaves nothing half registered."""
    rng = random.Random(3)
    before_all, waiting = {**fallbacks}, {**registrations}
    for _ in range(4000):
        op = co.custom_op("hr::f", f, mutates_args=())
        lib = co.Library("hr", "FRAGMENT")
        fn, args, options = rng.choice([*_calls(op, lib)])
        args, options = [*args], {**options}
        slots: list[Any] = [*range(len(args)), *options]
        for slot in rng.sample(slots, min(len(slots), rng.choice((1, 1, 2)))):
            value = rng.choice(VALUES)
            if isinstance(slot, int):
                args[slot] = value
            else:
                options[slot] = value
        before = _registered()
        error: Any = _error_of(fn, args, options)
        assert error is None or _registered() == before
        if isinstance(error, co.CustomOpError):
            assert error.do, error
            assert len(str(error).encode()) < 10_000
        elif error is not None:
            assert _is_of_a_wrong_call(error), (fn, error)
        lib.close()
        for name in [n for n in operators if n.startswith("hr")]:
            remove_operator(operators[name])
        fallbacks.clear()
        fallbacks.update(before_all)
        registrations.clear()
        registrations.update(waiting)
