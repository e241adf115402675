"""Names of other libraries: errors name what is here, by meaning."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
import customop.library
import customop.numpy
from customop.synonyms import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    """The error for a name of another library says what to write."""
    # Not by getattr: another test may have imported customop.scipy.
    with pytest.raises(AttributeError) as caught:
        vars(co)["__getattr__"](name)
    assert str(caught.value) == (
        f"module 'customop' has no attribute '{name}'\n  do: write {NAMES[name]}"
    )


@pytest.mark.parametrize("name", ["sin", "zeros", "einsum", "diff", "float32"])
def test_names_of_numpy(name: str) -> None:
    """The error for a name of NumPy says so, and no name of ours that is near."""
    with pytest.raises(AttributeError, match=rf"'{name}'\n  do: write np\.{name}$"):
        getattr(co, name)


def test_names_of_folders_that_look_public() -> None:
    """`co.library.custom_op` as in torch, and `import customop.numpy as np` as elsewhere."""
    with pytest.raises(AttributeError, match=r"do: write co\.custom_op, after import"):
        getattr(customop.library, "custom_op")  # noqa: B009  # type checkers know the names
    with pytest.raises(AttributeError, match=r"no attribute 'qqqq'$"):
        getattr(customop.library, "qqqq")  # noqa: B009  # as above
    with pytest.raises(AttributeError, match=r"do: import numpy as np"):
        getattr(customop.numpy, "sin")  # noqa: B009  # as above


def test_advice_names_what_there_is() -> None:
    """Every `co.name` of the advice is a public name, with the attributes in the advice."""
    found = re.findall(r"\bco\.(\w+)(?:\.(\w+))?", " ".join(NAMES.values()))
    assert len(found) > 50
    for name, attribute in found:
        assert name in co.__all__
        assert not attribute or hasattr(getattr(co, name), attribute)
    assert not {*NAMES} & {*co.__all__}


def test_advice_for_other_names_is_by_spelling() -> None:
    """Names that are near to one of ours, and names that are near to none."""
    with pytest.raises(AttributeError, match=r"'grda' \(did you mean 'grad'\?\)$"):
        getattr(co, "grda")  # noqa: B009  # type checkers know the names
    with pytest.raises(AttributeError, match=r"no attribute 'qqqq'$"):
        getattr(co, "qqqq")  # noqa: B009  # as above


@pytest.mark.parametrize(
    ("make", "theirs", "ours"),
    [
        (co.grad, "argnum", "argnums"),
        (co.value_and_grad, "argnum", "argnums"),
        (co.jacrev, "argnum", "argnums"),
        (co.jacfwd, "argnum", "argnums"),
        (co.hessian, "argnum", "argnums"),
        (co.vmap, "in_axes", "in_dims"),
        (co.vmap, "out_axes", "out_dims"),
        (co.vmap, "batch_size", "chunk_size"),
    ],
)
def test_parameters(make: Callable[..., Any], theirs: str, ours: str) -> None:
    """The error for a parameter of another library names ours, with the value."""
    with pytest.raises(co.ArgumentError) as caught:
        make(np.sin, **{theirs: 1})
    assert str(caught.value) == (
        f"{make.__name__} has no parameter '{theirs}'\n  do: write {ours}=1"
    )
    assert isinstance(caught.value, TypeError)
    assert ours in inspect.signature(make).parameters


@pytest.mark.parametrize(
    ("make", "theirs", "words"),
    [
        (co.compile, "static_argnums", "leave it out: what is not an array is a const"),
        (
            co.compile,
            "static_argnames",
            "leave it out: what is not an array is a const",
        ),
        (co.compile, "donate_argnums", "leave it out"),
        (co.compile, "fullgraph", "fallback=True"),
        (co.compile, "dynamic", 'sizes={"x": ("n", None)}'),
        (co.compile, "nopython", "leave it out: what cannot be captured is an error"),
        (co.grad, "holomorphic", "differentiate the real part"),
        (co.jacrev, "create_graph", "gradients can be differentiated again"),
        (co.value_and_grad, "allow_int", "integers have no derivative"),
        (co.vmap, "axis_name", "np.sum or np.mean of what vmap returns"),
        (co.checkpoint, "use_reentrant", "write co.checkpoint(f)(x)"),
    ],
)
def test_parameters_that_have_no_counterpart(
    make: Callable[..., Any], theirs: str, words: str
) -> None:
    """The error says why they are not needed, and a call without them does it."""
    with pytest.raises(co.ArgumentError, match=re.escape(words)) as caught:
        make(np.sin, **{theirs: 1})
    assert str(caught.value).startswith(
        f"{make.__name__} has no parameter '{theirs}'\n"
    )


def test_hvp_has_no_argnums() -> None:
    """The advice does not name a parameter that `hvp` has not."""
    for theirs in ("argnum", "argnums"):
        with pytest.raises(
            co.ArgumentError, match="primals and tangents may be tuples"
        ):
            co.hvp(np.sum, 1.0, 1.0, **{theirs: 1})  # type: ignore[call-overload]


def test_other_parameters_are_pythons_error() -> None:
    """A parameter that no library has is refused as Python refuses it."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'argument'"):
        co.grad(np.sum, argument=1)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ("at", "y[i] += value"),
        ("clone", "x.copy()"),
        ("cpu", "x itself"),
        ("detach", "stop_gradient(x)"),
        ("double", "x.astype(np.float64)"),
        ("float", "x.astype(np.float32)"),
        ("norm", "np.linalg.norm(x)"),
        ("permute", "np.transpose(x, axes)"),
        ("pow", "x**n"),
        ("requires_grad_", "grad differentiates by the arguments"),
        ("unsqueeze", "np.expand_dims(x, axis)"),
    ],
)
def test_methods(theirs: str, words: str) -> None:
    """The error for a method that arrays have elsewhere says what to write."""

    def loss(x: Any) -> Any:
        assert not hasattr(x, theirs)
        return np.sum(getattr(x, theirs))

    with pytest.raises(co.UnknownNameError, match=re.escape(words)):
        co.grad(loss)(np.ones(2))
