"""The module `xarray` itself, or what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["xarray"]


def _imported() -> Any:
    try:
        return import_module("xarray")
    except ModuleNotFoundError as error:
        if error.name != "xarray":
            raise
        raise ModuleNotFoundError(
            "customop.interop.xarray needs xarray, which is not installed\n"
            "  do: pip install 'customop[xarray]'",
            name="xarray",
        ) from None


xarray: Any = _imported()
