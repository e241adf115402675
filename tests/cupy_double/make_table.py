"""Write down the names and parameters of an installed CuPy, for the double of it.

Run it with the folder of a CuPy wheel, which needs no GPU::

    pip install --no-deps --target WHEEL cupy-cuda13x cuda-pathfinder
    PYTHONPATH=WHEEL python tests/cupy_double/make_table.py
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import warnings
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("table.json")
# Modules whose names are written down. A name in the table is relative to "cupy".
MODULES = (
    "cupy",
    "cupy.fft",
    "cupy.linalg",
    "cupy.random",
    "cupy.lib.stride_tricks",
    "cupyx.scipy.special",
)


def table() -> dict[str, Any]:
    """Return the table of the CuPy that can be imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where it finds no CUDA
        cupy = importlib.import_module("cupy")
        modules = {name: importlib.import_module(name) for name in MODULES}
    return {
        "version": cupy.__version__,
        "modules": {name: _contents(module) for name, module in modules.items()},
        "ndarray": _members(cupy.ndarray),
    }


def _contents(module: Any) -> dict[str, Any]:
    names = [name for name in dir(module) if not name.startswith("_")]
    members = {name: _member(getattr(module, name)) for name in names}
    return {name: member for name, member in members.items() if member is not None}


def _member(value: Any) -> Any:
    """Return what the double needs to know: a ufunc, parameters, or only that it is there."""
    if type(value).__name__ == "ufunc":
        loops = [loop for loop in value.types if "E" not in loop]  # bfloat16
        return {"name": value.name, "loops": loops, "at": value._scatter_op}
    if inspect.ismodule(value):
        return None
    if inspect.isclass(value) or not callable(value):
        return ""
    return {"parameters": _parameters(value)}


def _members(cls: type) -> dict[str, Any]:
    names = [n for n in dir(cls) if not n.startswith("_")]
    methods = {n: getattr(cls, n) for n in names}
    return {n: _method(value) for n, value in methods.items()}


def _method(value: Any) -> Any:
    return {"parameters": _parameters(value)} if inspect.isroutine(value) else ""


def _parameters(function: Any) -> str:
    """Return the parameters as Python's source, with None for every default."""
    try:
        found = inspect.signature(function)
    except ValueError:  # functions of Cython have them in the docstring alone
        line = (function.__doc__ or "").strip().split("\n")[0]
        text = re.search(r"\((.*)\)", line)
        return "*args, **kwargs" if text is None else _without_types(text[1])
    plain = [
        p.replace(
            annotation=p.empty, default=p.default if p.default is p.empty else None
        )
        for p in found.parameters.values()
    ]
    return str(inspect.Signature([p for p in plain if p.name != "self"]))[1:-1]


def _without_types(text: str) -> str:
    """Return parameters of Cython without types, such as "Py_ssize_t axis=0"."""
    parameters = []
    depth = re.sub(r"\([^()]*\)|\[[^\[\]]*\]|'[^']*'|\"[^\"]*\"", "None", text)
    for part in depth.split(","):
        name, equals, _ = part.strip().partition("=")
        name = name.partition(":")[0].strip().rpartition(" ")[2]
        if name and name != "self":
            parameters.append(f"{name}=None" if equals else name)
    return ", ".join(parameters)


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), indent=1, sort_keys=True) + "\n", "utf-8")
