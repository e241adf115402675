"""Dtypes of other libraries beside those of NumPy."""

import numpy as np

from customop.transforms.autograd.tape import inexact


def test_dtypes_of_numpy_are_not_compared_with_those_of_other_libraries() -> None:
    """Some have the hash of NumPy's, and warn or raise when they are compared."""

    class Foreign:
        def __hash__(self) -> int:
            return hash(np.dtype("f8"))

        def __str__(self) -> str:
            return "lib.float64"

        def __eq__(self, other: object) -> bool:
            assert not isinstance(other, np.dtype)
            return self is other

    known = type(inexact)()
    dtype = Foreign()
    assert known[dtype] is known[dtype] is True
    assert known[np.dtype("f8")] is True
    assert [*known] == [np.dtype("f8")]
    assert known[np.dtype("O")] is None
