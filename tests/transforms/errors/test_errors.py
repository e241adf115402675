"""The exact messages of failing transforms and NumPy functions."""

# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

import customop as co
from customop.errors import CustomOpError
from tests.transforms.errors._batches import BATCHES, KERNELS
from tests.transforms.errors._gradients import GRADIENTS
from tests.transforms.errors._numpy import NUMPY
from tests.transforms.errors._operators import (
    M,
    Table,
    bare,
)
from tests.transforms.errors._tangents import MATRICES, TANGENTS
from tests.transforms.errors._values import FAKES, MODES, VALUES

pytestmark = [
    pytest.mark.usefixtures("built_in_kinds"),
    # Some rows run the loop over a batch, which warns.
    pytest.mark.filterwarnings("ignore:.*has no vmap rule"),
]

# ---- errors of Python's own classes ----

PLAIN: Table = {
    "len of a value without axes": (
        lambda: len(co.variable(1.5)),
        TypeError,
        TypeError,
        "len() of an array with no axes",
    ),
}  # fmt: skip

GROUPS: dict[str, Table] = {
    "value": VALUES,
    "mode": MODES,
    "fake": FAKES,
    "gradient": GRADIENTS,
    "tangent": TANGENTS,
    "matrix": MATRICES,
    "batch": BATCHES,
    "kernel": KERNELS,
    "numpy": NUMPY,
    "plain": PLAIN,
}
TABLE = {
    f"{g}: {name}": row for g, rows in GROUPS.items() for name, row in rows.items()
}


def caught(act: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as found:
        act()
    return found.value


# Where a transform is called, or its function defined.
PLACE = re.compile(r"(?<= is called at )\S+$|(?<= is defined at )\S+$", re.MULTILINE)


@pytest.mark.parametrize("name", TABLE)
def test_the_error_is(name: str) -> None:
    """Every message says what was wrong, where, and what to do, also after a pickle.

    An error of the package is also of the class that NumPy or Python would raise.
    """
    act, kind, builtin, text = TABLE[name]
    error = caught(act)
    assert PLACE.sub("FILE:N", str(error)) == text
    assert type(error) is kind
    assert isinstance(error, builtin)
    assert isinstance(error, CustomOpError) or name.startswith("plain: ")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


# ---- warnings ----


@pytest.mark.filterwarnings("default:.*has no vmap rule")
def test_the_warning_of_a_loop_is() -> None:
    """The loop over a batch warns with the operator, the cost and the remedy."""
    op = co.custom_op("texts::looped", bare, mutates_args=())
    with pytest.warns(co.CustomOpWarning) as found:
        co.vmap(op)(M)
    assert [str(warning.message) for warning in found] == [
        "texts::looped has no vmap rule: it runs once for each row, which is slow."
        " Register one with @looped.register_vmap"
    ]
    assert found[0].filename == __file__


@pytest.mark.filterwarnings("default:.*has no vmap rule")
def test_a_loop_over_an_empty_batch_warns_too() -> None:
    """A missing rule is reported by the first batch, also if it has no rows."""
    op = co.custom_op("texts::looped_over_none", bare, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    with pytest.warns(co.CustomOpWarning, match="looped_over_none has no vmap rule"):
        co.vmap(op)(M[:0])
