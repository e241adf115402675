"""Operators and transforms on xarray: dims, coordinates and attributes are kept.

Importing it makes `DataArray`, `Variable` and `Dataset` pytrees, so that `grad` and
other transforms take and return them. `export` gives operators that take DataArrays,
and `vmap` batches over a dim. A gradient keeps the labels of its argument:

>>> import xarray as xr, customop as co
>>> import customop.interop.xarray
>>> x = xr.DataArray([1.0, 2.0], coords={"place": [10, 20]}, attrs={"unit": "m"})
>>> slope = co.grad(lambda x: (x**2).sum().data)(x)
>>> slope.values, slope.place.values, slope.attrs
(array([2., 4.]), array([10, 20]), {'unit': 'm'})
"""

from __future__ import annotations

from customop.interop.xarray.labels import export, register_trees, vmap

__all__ = ["export", "vmap"]

register_trees()
