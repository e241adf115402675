"""Arguments under another name, and those that a transform does not follow."""

from __future__ import annotations

from collections.abc import Callable
from logging import LoggerAdapter, getLogger
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0, 3.0])
ROWS = np.arange(6.0).reshape(2, 3)


def program(buf: Any) -> Callable[[Any], Any]:
    """Write an argument, and use `buf`."""

    def fn(t: Any) -> Any:
        t[0] = 5.0
        return np.sum(buf * t)

    return fn


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, x: co.grad(f)(x),
    "vjp": lambda f, x: co.vjp(f, x),
    "jvp": lambda f, x: co.jvp(f, (x,), (x,)),
    "jacfwd": lambda f, x: co.jacfwd(f)(x),
    "hessian": lambda f, x: co.hessian(f)(x),
    "second argument": lambda f, x: co.grad(lambda k, t: k * f(t), 1)(2.0, x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_written_argument_under_another_name(name: str) -> None:
    """NumPy's number needs the write, which only reaches the argument: an error."""
    run = TRANSFORMS[name]
    for buf in (X, X[::-1], X[:1], X.reshape(3, 1)[:, 0]):
        x = X.copy()
        with pytest.raises(co.ArgumentError, match="under another name"):
            run(program(np.ndarray(buf.shape, buf.dtype, x, 0)), x)
    run(program(X.copy()), X)


def test_message_names_both() -> None:
    with pytest.raises(co.ArgumentError) as caught:
        co.grad(program(X))(X)
    assert str(caught.value) == (
        "np::multiply: argument 'x1', ndarray f64[3], is argument 't' of grad(fn) under"
        " another name, and has the values from before that was written\n"
        "  np::multiply(Array|Scalar x1, Array|Scalar x2) -> Array\n"
        "               ^^^^^^^^^^^^^^^\n"
        "  do: use t itself, or write to a copy: t = t.copy()"
    )


def test_write_through_a_view_and_rows_of_a_batch() -> None:
    def of_view(t: Any) -> Any:
        part = t[1:]
        part *= 2.0
        return np.sum(X * t)

    with pytest.raises(co.ArgumentError, match="argument 't' of grad"):
        co.grad(of_view)(X)
    for dims, rows in ((0, (ROWS,)), ((0, None), (ROWS, 2.0))):
        with pytest.raises(co.ArgumentError, match="of vmap"):
            co.vmap(lambda t, k=1.0: program(ROWS[0])(t) * k, dims)(*rows)  # type: ignore[arg-type]


def test_argument_of_an_outer_transform() -> None:
    """The inner function writes its own, which is the outer one's array."""

    def outer(s: Any) -> Any:
        def inner(t: Any) -> Any:
            t[0] = 5.0
            return np.sum(t * s)

        return np.sum(co.grad(inner)(s))

    with pytest.raises(co.ArgumentError, match="argument 't' of grad"):
        co.grad(outer)(X)


def test_reading_before_the_write_or_another_array_is_right() -> None:
    def before(t: Any) -> Any:
        y = np.sum(X * t)
        t[0] = 5.0
        return y + np.sum(t * ROWS[0])

    np.testing.assert_allclose(co.grad(before)(X), X + np.array([0.0, 1.0, 2.0]))


def test_settings_decide_which_runs_are_watched() -> None:
    """Where it is not seen that the function holds the array, the first run is."""
    writes, held = [False], LoggerAdapter(getLogger(), {"x": X})

    def fn(t: Any) -> Any:
        if writes[0]:
            t[0] = 5.0
        return np.sum(held.extra["x"] * t)  # type: ignore[index]  # it is a dict

    co.grad(fn)(X)
    writes[0] = True
    co.grad(fn)(X)
    co.config.checks = "always"
    with pytest.raises(co.ArgumentError, match="under another name"):
        co.grad(fn)(X)
    co.config.checks = "never"
    for run in TRANSFORMS.values():
        run(program(X), X)


def test_variables_are_not_the_arrays_they_begin_with() -> None:
    """A step of an optimizer leaves the first value to whoever has it."""
    x = co.variable(X)
    with co.no_grad():
        x -= 1.0
    y = np.sum(x * X)
    y.backward()
    np.testing.assert_array_equal(x.grad, X)
    np.testing.assert_array_equal(X, [1.0, 2.0, 3.0])


# ---- arguments that are not followed ----


def write_item(t: Any, items: Any) -> Any:
    """Write an array inside of an argument."""
    items[0][...] = 7.0
    return np.sum(t)


NESTED: dict[str, Callable[[Any], Any]] = {
    "list": lambda b: [b],
    "dict": lambda b: {0: b},
    "tuple": lambda b: (b,),
    "list in dict": lambda b: {0: [b][0], 1: [b]},
    "dict in list": lambda b: [b, {0: b}],
}


WAYS: dict[str, Callable[..., Any]] = {
    "grad": lambda items: co.grad(write_item)(X, items),
    "value_and_grad by name": lambda items: co.value_and_grad(write_item)(
        X, items=items
    ),
    "jacrev": lambda items: co.jacrev(write_item)(X, items),
    "jacfwd by name": lambda items: co.jacfwd(write_item)(X, items=items),
    "hessian": lambda items: co.hessian(write_item)(X, items),
}


@pytest.mark.parametrize("name", NESTED)
def test_arrays_in_containers_do_not_change(name: str) -> None:
    b = np.ones(3)
    items = NESTED[name](b)
    for way in WAYS.values():
        with pytest.raises(ValueError, match="read-only") as caught:
            way(items)
        assert "'items' is read-only" in caught.value.__notes__[0]
        np.testing.assert_array_equal(b, np.ones(3))
        assert items[0] is b
        assert b.flags.writeable


def test_containers_change_as_the_function_says() -> None:
    """It may add to lists and dicts, and reorder them; the arrays are the same ones."""
    a, b = np.ones(3), np.full(3, 2.0)

    def fn(t: Any, items: list[Any], table: dict[str, Any]) -> Any:
        items.append(items.pop(0))
        table["sum"] = 3.0
        table["b"] = table.pop("a")
        items.append("new")
        return np.sum(t * items[0] * table["b"])

    items, table = [a, b], {"a": a}
    np.testing.assert_array_equal(co.grad(fn)(X, items, table), b)
    assert [id(v) for v in items[:2]] == [id(b), id(a)]
    assert items[2] == "new"
    assert list(table) == ["sum", "b"]
    assert table["b"] is a
    assert a.flags.writeable
    assert b.flags.writeable


def test_nested_transforms_and_one_list_twice() -> None:
    a = np.ones(3)

    def inner(t: Any, items: Any, same: Any) -> Any:
        assert items is same
        return np.sum(t * items[0])

    def outer(t: Any, items: Any) -> Any:
        return np.sum(co.grad(inner)(t, items, items) * t)

    items = [a]
    np.testing.assert_array_equal(co.grad(outer)(X, items), a)
    assert items[0] is a


def _write(t: Any, b: Any, k: float = 1.0) -> Any:
    b[0] = 3.0
    return np.sum(t * b) * k


def _add(t: Any, b: Any) -> Any:
    b += 1.0
    return np.sum(t * b)


_IN_PLACE = "write b = b + 1.0 in place of b += 1.0"
NOTES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "grad": (
        lambda: co.grad(_write)(X, np.ones(3)),
        "inside grad(_write) 'b'",
        "write to a copy, b = b.copy(); or differentiate by it too, with argnums",
    ),
    "by name": (
        lambda: co.grad(_add)(X, b=np.ones(3)),
        "inside grad(_add) 'b'",
        f"{_IN_PLACE}; or differentiate by it too, with argnums",
    ),
    "vmap": (
        lambda: co.vmap(_add, (0, None))(ROWS, np.ones(3)),
        "inside vmap(_add) 'b'",
        f"{_IN_PLACE}; or batch it too, with in_dims",
    ),
}


@pytest.mark.parametrize("name", NOTES)
def test_note_on_the_error_of_numpy(name: str) -> None:
    run, what, way = NOTES[name]
    with pytest.raises(ValueError, match="read-only") as caught:
        run()
    (note,) = caught.value.__notes__
    assert note == (
        f"{what} is read-only, as a write would change it outside\n  do: {way}"
    )


def test_other_errors_have_no_note() -> None:
    def fn(t: Any, b: Any) -> Any:
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing") as caught:
        co.grad(fn)(X, X)
    assert not hasattr(caught.value, "__notes__")
