"""co.tree, co.array and dataclasses as trees."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import customop as co

RNG = np.random.default_rng(3)


# ---- tree ----


def test_map_of_several_trees() -> None:
    """The function gets the leaves of all trees; None is structure."""
    a = {"x": 1, "y": [2, None]}
    b = {"x": 10, "y": [20, None]}
    assert co.tree.map(lambda *v: sum(v), a, b, b) == {"x": 21, "y": [42, None]}
    with pytest.raises(ValueError, match="key"):
        co.tree.map(lambda *v: v, a, {"z": 1})


def test_flatten_and_unflatten() -> None:
    """Leaves come in order, dicts by key; a structure builds the tree again."""
    tree = {"b": (1, [2]), "a": None, "c": 3}
    leaves, structure = co.tree.flatten(tree)
    assert leaves == co.tree.leaves(tree) == [1, 2, 3]
    assert structure == co.tree.structure(tree)
    assert co.tree.unflatten(structure, leaves) == tree
    assert co.tree.reduce(lambda n, leaf: n + leaf, tree, 10) == 16


def test_ravel_and_back() -> None:
    """The vector has all elements in order; unravel restores shapes and dtypes."""
    tree = {"w": RNG.normal(size=(2, 3)), "b": [np.float32([1, 2]), 7], "n": None}
    vector, unravel = co.tree.ravel(tree)
    want = np.concatenate([[1.0, 2.0], [7.0], np.ravel(tree["w"])])
    np.testing.assert_array_equal(vector, want)
    back = unravel(vector * 2)
    np.testing.assert_array_equal(back["w"], tree["w"] * 2)  # type: ignore[operator]  # an array
    assert back["b"][0].dtype == np.float32
    assert back["b"][1] == 14
    assert back["n"] is None


def test_ravel_of_nothing() -> None:
    """A tree without leaves has an empty vector."""
    vector, unravel = co.tree.ravel({"a": []})
    assert vector.shape == (0,)
    assert unravel(vector) == {"a": []}


def test_ravel_inside_transforms() -> None:
    """A loss of a vector has the gradient of the loss of the tree; so has each row."""
    tree = {"w": RNG.normal(size=(2, 2)), "b": RNG.normal(size=3)}

    def loss(p: Any) -> Any:
        return np.sum(p["w"] ** 3) + np.sum(p["b"] ** 2)

    vector, unravel = co.tree.ravel(tree)
    want = np.concatenate([2 * tree["b"], np.ravel(3 * tree["w"] ** 2)])
    found = co.grad(lambda v: loss(unravel(v)))(vector)
    np.testing.assert_allclose(found, want)
    both = co.vmap(co.grad(lambda v: loss(unravel(v))))(np.stack([vector, -vector]))
    np.testing.assert_allclose(both[0], want)
    inner = co.grad(lambda p: np.sum(co.tree.ravel(p)[0] ** 2))(tree)
    np.testing.assert_allclose(inner["w"], 2 * tree["w"])


def test_ravel_errors() -> None:
    """Other leaves, other lengths and complex numbers for real arrays are refused."""
    with pytest.raises(co.ArgumentError) as caught:
        co.tree.ravel({"a": "text"})
    assert str(caught.value) == (
        "tree.ravel: a leaf is str 'text', must be an array or a number\n"
        "  do: take it out of the tree, or mark the field static in register_dataclass"
    )
    vector, unravel = co.tree.ravel([np.zeros(2), 1.0])
    with pytest.raises(co.ShapeError) as wrong:
        unravel(np.zeros(4))
    assert str(wrong.value) == (
        "unravel: f64[4] is not a vector of 3 elements\n"
        "  do: pass an array of shape (3,)"
    )
    with pytest.raises(co.ArgumentError, match="complex128 does not fit an array of"):
        unravel(vector * 1j)


# ---- array ----

NESTED: dict[str, Any] = {
    "list": lambda x, y: [x, y],
    "numbers": lambda x, y: [[x, 1.0], (y, x * y)],
    "int": lambda x, y: [x, 2],
    "bool": lambda x, y: [[[x]], [[True]]],
    "array": lambda x, y: x,
    "rows": lambda x, y: [np.array([1.0, 2.0]) * x, [x, y], [3, 4]],
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("kind", ["float64", "float32", "complex128"])
def test_array_is_numpys(nested: Any, kind: str) -> None:
    """Values, shapes and dtypes under transforms are those of np.array."""
    x, y = np.asarray(1.5, kind), np.asarray(-2.0, kind)
    want = np.array(nested(x, y))
    found = co.array(nested(x, y))
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)
    out, _ = co.vjp(lambda x, y: co.array(nested(x, y)), x, y)
    assert out.dtype == want.dtype
    np.testing.assert_array_equal(out, want)
    rows = co.vmap(lambda x, y: co.array(nested(x, y)))(
        np.stack([x, y]), np.stack([y, x])
    )
    np.testing.assert_array_equal(rows, [want, np.array(nested(y, x))])
    assert co.eval_shape(lambda x, y: co.array(nested(x, y)), x, y).dtype == want.dtype


def test_array_has_gradients() -> None:
    """Gradients reach the values in the list, to any order."""

    def rotated(a: Any) -> Any:
        matrix = co.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
        return matrix @ np.array([1.0, 2.0])

    a = np.array(0.3)
    c, s = np.cos(a), np.sin(a)
    np.testing.assert_allclose(co.jacfwd(rotated)(a), [-s - 2 * c, c - 2 * s])
    np.testing.assert_allclose(co.jacrev(co.jacfwd(rotated))(a), -rotated(a))


def test_array_can_be_written() -> None:
    """The result is an array of its own, also without axes."""

    def written(x: Any) -> Any:
        y = co.array([x, x], ndmin=2)
        y[0, 1] = 5 * x
        z = co.array(x)
        z += y[0, 1]
        return np.sum(y) + z  # x + 5 x + x + 5 x

    assert co.grad(written)(np.array(2.0)) == 12.0
    value = np.array([1.0, 2.0])
    co.array(value)[0] = 9.0
    assert value[0] == 1.0


def test_array_options() -> None:
    """Dtype and ndmin are NumPy's, also for traced values."""
    assert co.array([1, 2], dtype=np.float32).dtype == np.float32
    out, _ = co.vjp(lambda x: co.array([x, 1], np.float32, ndmin=2), np.array(2.0))
    assert out.dtype == np.float32
    assert out.shape == (1, 2)


def test_array_of_different_shapes() -> None:
    """Ragged lists are refused with both shapes."""
    with pytest.raises(co.ShapeError) as caught:
        co.grad(lambda x: co.array([x, [x, x]]))(np.array(1.0))
    assert str(caught.value) == (
        "array: a list has values of the shapes () and (2,)\n"
        "  do: give all values in a list the same shape"
    )


# ---- dataclasses ----


@co.register_dataclass(static=["name"])
@dataclasses.dataclass
class Model:
    w: Any
    b: Any = 0.0
    name: str = "model"
    power: int = dataclasses.field(default=2, metadata={"static": True})


@co.register_dataclass
@dataclasses.dataclass(frozen=True)
class Derived:
    """It has an attribute that is not a field."""

    w: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", self.w * 2)


def test_dataclass_under_transforms() -> None:
    """Gradients, tangents and rows are objects of the class; static fields stay."""
    model = Model(np.array([1.0, 2.0]), 3.0, "mine", 3)

    def loss(m: Model, x: Any) -> Any:
        assert (m.name, m.power) == ("mine", 3)
        return np.sum(m.w**m.power * x) + m.b**2

    found = co.grad(loss)(model, 2.0)
    np.testing.assert_allclose(found.w, 6 * model.w**2)
    assert (found.b, found.name, found.power) == (6.0, "mine", 3)
    rows = co.vmap(co.grad(loss), in_dims=(None, 0))(model, np.array([1.0, 2.0]))
    np.testing.assert_allclose(rows.w, [3 * model.w**2, 6 * model.w**2])
    _, tangent = co.jvp(lambda m: loss(m, 2.0), (model,), (model,))
    np.testing.assert_allclose(tangent, np.sum(6 * model.w**3) + 18.0)
    inner = co.jacrev(lambda m: co.tree.map(lambda v: v * 2, m))(model)
    np.testing.assert_allclose(inner.w.w, 2 * np.eye(2))


def test_dataclass_structure() -> None:
    """Objects have one structure if their static fields are equal."""
    first, other = Model(1.0), Model(1.0, name="other")
    assert co.tree.structure(first) == co.tree.structure(Model(5.0))
    assert co.tree.structure(first) != co.tree.structure(other)
    assert co.tree.leaves(first) == [1.0, 0.0]


def test_dataclass_with_other_attributes() -> None:
    """The constructor runs where an object keeps more than its fields."""
    doubled = co.tree.map(lambda w: w + 1, Derived(1.0))
    assert doubled.double == 4.0
    assert co.grad(lambda d: d.double * d.w)(Derived(3.0)).w == 12.0


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: co.register_dataclass(int), "<class 'int'> is not a dataclass"),
        (
            lambda: co.register_dataclass(Model, static=["nam"]),
            "'nam' is not a field of Model (did you mean 'name'?)",
        ),
        (lambda: co.register_dataclass(Model), "Model is a pytree already"),
    ],
)
def test_dataclass_errors(make: Any, what: str) -> None:
    """A wrong class or field is refused by name."""
    with pytest.raises(co.RegistrationError) as caught:
        make()
    assert caught.value.what == f"register_dataclass: {what}"
