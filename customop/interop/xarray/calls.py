"""Operators that are called on objects of xarray themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from customop.arrays.nested import flat
from customop.core.table import RuleTable
from customop.errors import ArgumentError
from customop.interop.xarray.export import call_on_arrays
from customop.interop.xarray.framework import xarray

__all__ = ["call_operator"]

_HOW = {
    xarray.Dataset: "call it on its variables: dataset.map(op)",
    xarray.Variable: "make a DataArray of it: xarray.DataArray(variable)",
}


def call_operator(op: RuleTable, values: Sequence[Any]) -> Any:
    """Call an operator on DataArrays: its dims follow from the shapes of the schema.

    Raises
    ------
    ArgumentError
        For a Dataset or a Variable.
    RegistrationError
        If the schema does not say which dims the results have.
    """
    for leaf in flat(list(values)):
        for cls, remedy in _HOW.items():
            if isinstance(leaf, cls):
                raise op.error(
                    ArgumentError,
                    f" takes arrays and DataArrays, got a {cls.__name__}",
                    do=remedy,
                    parameter=None,
                )
    return call_on_arrays(op, values)
