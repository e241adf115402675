"""Names of this package, without the modules that define them.

mypy knows a function as ``customop.library.define.custom_op``. The plugin compares the
last part alone, ``custom_op``, so that a definition can move to another module.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

__all__ = ["DEFINING", "HIDDEN", "PACKAGE", "is_ours", "own_name"]

# Functions that define an operator by its name.
DEFINING = ("custom_op", "define")

# What the plugin adds to the name of a function that the program cannot name.
HIDDEN = "-overloaded"

PACKAGE = __name__.partition(".")[0]
_FOLDER = Path(__file__).parents[1]


def is_ours(fullname: str) -> bool:
    """Whether a module, or a name of one, belongs to this package."""
    return fullname == PACKAGE or fullname.startswith(f"{PACKAGE}.")


def _module_of(fullname: str) -> str:
    module = fullname
    while not _is_module(module):
        module = module.rpartition(".")[0]
    return module


@cache
def _is_module(name: str) -> bool:
    """Whether a module of the package has this name; it need not be imported yet."""
    if name in sys.modules:
        return True
    path = _FOLDER.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_name(f"{path.name}.py").exists()


@cache
def own_name(fullname: str) -> str:
    """A name of this package such as ``Operator.register``, or nothing.

    Parameters
    ----------
    fullname : str
        The name with the module that defines it, as mypy knows it.

    Examples
    --------
    >>> own_name("customop.core.operator.Operator.register")
    'Operator.register'
    >>> own_name("numpy.ndarray")
    ''
    """
    if not is_ours(fullname):
        return ""
    return fullname.removeprefix(_module_of(fullname)).removeprefix(".")
