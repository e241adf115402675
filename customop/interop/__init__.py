"""Bridges to other frameworks, one folder for each. Import a bridge by its name.

``import customop.interop.dask`` makes operators run on dask arrays, and so on. A bridge may
import its framework and all folders below; nothing in customop imports a bridge, and this
file imports none, so that none of the frameworks is needed. Each has an extra:
``pip install customop[dask]``.
"""

__all__: list[str] = []
