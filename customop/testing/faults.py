"""The exception for a fault that a check has found."""

from __future__ import annotations


class Fault(Exception):
    """A fault of an operator or of a function.

    Parameters
    ----------
    what : str
        The fault, with the values seen.
    *where : str
        Lines with more about it.
    do : str
        The remedy.
    parameter : str
        Place of the argument concerned, such as ``x`` or ``arrays[0]``, or nothing.
    """

    def __init__(
        self, what: str, *where: str, do: str = "", parameter: str = ""
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do
        self.parameter = parameter
        # Whether it shows over all inputs of a check, and not on one alone.
        self.over_all: bool = False
