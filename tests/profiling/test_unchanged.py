"""A profile changes nothing but the time that calls take."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.observe import observers, open_modes
from customop.transforms.autograd import reverse
from tests.cases import each
from tests.nesting.test_words import (
    AT,
    COEFFICIENTS,
    TRANSFORMS,
    WORDS,
    Identity,
    by_numpy,
    by_operator,
)
from tests.profiling._profiled import (
    PROGRAMS,
    X,
    _raises,
    _square_setup,
    bare,
    both,
    composed,
    counts,
    define,
    named,
    square,
    total,
    value_of,
)


def twice(fn: Callable[[], Any]) -> Any:
    """The second result; the first call opens the fast path."""
    fn()
    return fn()


def test_contiguous_arrays_are_made_for_who_needs_them() -> None:
    """`Tag.needs_contiguous` holds under profile."""
    op = define(
        "ordered",
        lambda x: np.array(float(x.flags.c_contiguous)),
        schema="(Array x) -> Array",
        tags=co.Tag.needs_contiguous,
    )
    with co.profile():
        assert twice(lambda: op(np.ones((4, 6))[::2, ::3])) == 1.0


def test_a_device_names_the_kernel() -> None:
    """A call without arrays takes the kernel of its device, also after another device."""
    co.register_array_type("profiled_strip", type("Strip", (), {"shape": (3,)}))
    op = define(
        "empty",
        lambda n, device: "cpu" * n,
        schema="(int n, device device) -> str",
        device_types="cpu",
    )
    op.register_kernel("profiled_strip", lambda n, device: "strip" * n)
    with co.profile() as p:
        found = twice(lambda: (op(1, "cpu"), op(1, "profiled_strip")))
    assert found == ("cpu", "strip")
    assert counts(p) == {
        ("empty", "cpu kernel"): 2,
        ("empty", "profiled_strip kernel"): 2,
    }


def test_writes_are_noted() -> None:
    """Reverse mode refuses a formula whose array was written under profile."""

    @co.custom_op("profiled::fill", mutates_args=("x",))
    def fill(x: np.ndarray) -> None:
        x[...] = 0.0

    kept = X.copy()
    y = np.sum(square(co.variable(kept)))
    with co.profile():
        fill(np.ones(2))
        fill(kept)
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


def test_a_kernel_that_is_switched_off_and_on() -> None:
    """The switch takes effect with the next call."""
    op = define("switched", lambda x: x + 1.0, schema="(Array x) -> Array")
    op.register_kernel("cpu", lambda x: x + 2.0)
    found = []
    with co.profile() as p:
        for enabled in (True, False, True):
            if p.rows:
                op.set_kernel_enabled("cpu", enabled)
            found += [float(op(np.zeros(()))) for _ in range(3)]
    assert found == [2.0] * 3 + [1.0] * 3 + [2.0] * 3
    assert counts(p) == {
        ("switched", "cpu kernel"): 6,
        ("switched", "wrapped function"): 3,
    }


def exact(word: str) -> int:
    """The same value by integer arithmetic."""
    coefficients = list(COEFFICIENTS)
    for letter in reversed(word):
        coefficients = TRANSFORMS[letter][1](coefficients)
    return sum(c * int(AT) ** k for k, c in enumerate(coefficients))


@pytest.mark.parametrize("polynomial", [by_operator, by_numpy])
def test_words_under_profile_give_the_exact_polynomial(polynomial: Any) -> None:
    """Nested transforms give the exact result under a profile."""

    def check(word: str) -> None:
        with co.profile(threads=len(word) % 2 == 1):
            assert value_of(word, polynomial) == exact(word)

    each(check, zip([*WORDS[:40], *WORDS[40::27]]))


@pytest.mark.parametrize("word", WORDS[:40])
def test_interpreters_see_what_they_see_without(word: str) -> None:
    """A user's transform handles the same operators under a profile."""

    def seen() -> list[int]:
        found: list[int] = []

        def see(x: Any) -> Any:
            with Identity() as identity:
                y = identity.lower(by_operator(identity.wrap(x)))
            found.append(identity.seen)
            return y

        value_of(word, see)
        return found

    before = seen()
    with co.profile():
        assert seen() == before


def _writes(x: np.ndarray) -> np.ndarray:
    x += 1.0
    return x + 0.0


FAULTS: dict[str, Callable[[], Any]] = {
    "argument": lambda: square("text"),
    "kernel": lambda: define("raises", _raises)(X),
    "kernel, keywords": lambda: named(X, y=np.ones(7), n=1),
    "contract": lambda: define("writes", _writes)(X.copy()),
    "no kernel": lambda: co.define("profiled::none", "(Array x) -> Array")(X),
    "no formula": lambda: co.grad(lambda x: np.sum(bare(x)))(X),
    "no jvp": lambda: co.jvp(bare, (X,), (X,)),
    "formula": lambda: co.grad(lambda x: np.sum(broken(x)))(X),
    "lost": lambda: co.grad(lambda x: float(square(x)))(X),
    "leaked": lambda: square(escaped()),
    "vmap": lambda: co.vmap(lambda x: x if square(x) > 0 else -x)(X),
    "vmap rule": lambda: co.vmap(broken)(X),
}
broken = define("broken", lambda x: x + 0.0, schema="(Array x) -> Array")
broken.register_autograd(lambda ctx, g: [g, g])
broken.register_vmap(lambda info, in_dims, x: x)


def escaped() -> Any:
    found: list[Any] = []
    co.grad(lambda x: found.append(x) or np.sum(x))(X)
    return found[0]


def fault(program: Callable[[], Any]) -> tuple[type, str, int]:
    """Class and text of an error, without digits, and the number of its frames."""
    with pytest.raises(Exception) as caught:  # any error is compared
        program()
    text = "".join(c for c in str(caught.value) if not c.isdigit())
    return caught.type, text, len(traceback.extract_tb(caught.tb))


@pytest.mark.parametrize("name", FAULTS)
def test_errors_are_those_without(name: str) -> None:
    """An error has the same class and text; the slow path adds one frame."""
    cls, text, frames = fault(FAULTS[name])
    with co.profile():
        found = fault(FAULTS[name])
    assert found[:2] == (cls, text)
    assert frames <= found[2] <= frames + 1


def test_the_traceback_of_a_kernel_is_as_long_as_without() -> None:
    """A profile adds no frame between the caller and a kernel that fails."""
    op = define("raises_late", _raises)
    frames = fault(lambda: op(X))[2]
    with co.profile():
        assert fault(lambda: op(X))[2] == frames


def snapshot() -> dict[str, Any]:
    """The names, code and plans that calls use."""
    names = {
        op.qualname: {k: id(v) for k, v in op.call.__globals__.items()}
        for op in (square, both, composed, named, total)
    }
    codes = {op.qualname: op.call.__code__ for op in (square, composed)}
    plans = {
        op.qualname: op.plans.by_tracer[reverse.GradTracer].__globals__.get("setup")
        for op in (square,)
    }
    return {"names": names, "codes": codes, "plans": plans}


@pytest.mark.parametrize("error", [None, KeyError])
def test_nothing_is_left_behind(error: type[Exception] | None) -> None:
    """A profile replaces nothing, whether it ends normally or by an error."""
    programs = ("call", "cpu", "composite", "grad", "grad, keywords", "list")
    for name in programs:
        PROGRAMS[name][0]()
    before = snapshot()
    with pytest.raises(error) if error else nullcontext(), co.profile():
        assert snapshot() == before
        for name in programs:
            PROGRAMS[name][0]()
        if error is not None:
            raise error
    assert snapshot() == before
    assert observers == []
    assert open_modes == []


def test_a_setup_function_with_decorators_stays_what_it_is() -> None:
    """A decorated setup function runs with its decorator, during a profile and after."""
    said: list[str] = []

    @functools.wraps(_square_setup)
    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        said.append("wrapper")
        ctx.save_for_backward(inputs[0])

    op = define("wrapped", lambda x: x * x, schema="(Array x) -> Array")
    op.register_autograd(
        lambda ctx, g: g * ctx.saved_arrays[0] * 2.0, setup_context=setup
    )
    f = co.grad(lambda x: np.sum(op(x)))
    for _ in range(2):
        with co.profile():
            f(X)
        f(X)
    assert said == ["wrapper"] * 4
