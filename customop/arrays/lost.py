"""Where NumPy or Python asks a traced or fake array for its value, which is refused."""

from __future__ import annotations

import dis
import re
import sys
from types import CodeType, FrameType

from customop.errors import DataDependentError, is_ours, user_frame

__all__ = [
    "SETITEM",
    "Refusal",
    "asked_by_setitem",
    "called_method",
    "installed_caller",
    "instead_of_caller",
]

# What is refused, and what to do, where a user writes into an array.
SETITEM = (
    "out[key] = value, with a plain array out, is given",
    "np.stack([...]) to join values, or make out with np.zeros_like(x) or np.zeros(n,"  # noqa: ISC004  # one text
    " like=x) of such an x",
)

# Class of NumPy whose methods convert values -> its name for users.
_CLASSES = {
    "AxisConcatenator": "np.r_ or np.c_",
    "MaskedArray": "np.ma.array",
    "matrix": "np.matrix",
    "nd_grid": "np.mgrid or np.ogrid",
    "ndenumerate": "np.ndenumerate",
    "vectorize": "np.vectorize",
}
# What to write in place of what NumPy offers, where `traceable` does not help.
_INSTEAD = {
    "np.full": "np.full(shape, x, like=x)",
    "np.lib.stride_tricks.as_strided": "slices and reshape, np.broadcast_to for strides of"
    " 0, or np.lib.stride_tricks.sliding_window_view(x, n)[::step] for windows",
    "np.ma.array": "np.where(mask, 0, x), and keep the mask in an array of its own",
    "np.matrix": "the array x itself, and @ for the product of matrices",
    "np.mgrid or np.ogrid": "np.meshgrid(np.linspace(a, b, n), indexing='ij')",
    "np.ndenumerate": "for i in np.ndindex(x.shape), and x[i]",
    "np.r_ or np.c_": "np.concatenate([...]) for np.r_, np.stack([...], axis=-1) for np.c_",
    "np.vectorize": "f(x) itself where f computes with arrays, vmap(f)(x), or map(f, x)",
}
_TRACEABLE = "customop.traceable(f) for the function f that converts its arguments"

_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_SETITEM = {dis.opmap[n] for n in ("STORE_SUBSCR", "STORE_SLICE") if n in dis.opmap}


def _position() -> tuple[CodeType, int]:
    """Code and instruction of the innermost frame outside of this package."""
    frame = user_frame()
    return frame.f_code, frame.f_lasti


def installed_caller() -> str | None:
    """The function that asks, if it is one of an installed package.

    In NumPy it is the one that the user calls, by the name that users know: 'np.full',
    which itself calls others.
    """
    frame = user_frame()
    if not _is_installed(frame):
        return None
    function = frame.f_code.co_qualname.partition(".<locals>")[0]
    name = f"{frame.f_globals.get('__name__')}.{function}"
    outer: FrameType | None = frame
    while outer is not None and (_is_numpy(outer) or is_ours(outer.f_globals)):
        name = _public_name(outer.f_code) or name
        outer = outer.f_back
    return name


def instead_of_caller(caller: str) -> str:
    """Advice for a function of an installed package that asks for a value."""
    return _INSTEAD.get(caller, _TRACEABLE)


def _is_installed(frame: FrameType) -> bool:
    # Not by pathlib, which takes 3 ms to import.
    path = re.split(r"[\\/]", frame.f_code.co_filename)
    return not _INSTALLED.isdisjoint(path)


def _is_numpy(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] == "numpy"


def _public_name(code: CodeType) -> str | None:
    """The name by which users call a function of NumPy, such as 'np.linalg.norm'."""
    cls, dot, _ = code.co_qualname.partition(".")
    if dot and cls in _CLASSES:
        return _CLASSES[cls]
    for prefix in ("np", "np.linalg", "np.fft", "np.lib.stride_tricks"):
        module = sys.modules.get(prefix.replace("np", "numpy", 1))
        found = getattr(module, code.co_name, None)
        if getattr(getattr(found, "__wrapped__", found), "__code__", None) is code:
            return f"{prefix}.{code.co_name}"
    return None


_INSTALLED = {"site-packages", "dist-packages"}


def asked_by_setitem() -> bool:
    """Whether the user's line is at ``out[key] = value``."""
    code, instruction = _position()
    return code.co_code[instruction] in _SETITEM


def called_method() -> str | None:
    """Name of the method that the user's instruction calls: 'normal' of ``rng.normal(x)``."""
    code, at = _position()
    found: tuple[int, str] | None = None
    start: tuple[int | None, int | None] | None = None
    loads = []
    for step in dis.get_instructions(code):
        where = step.positions
        if where is None or where.end_col_offset is None:
            continue
        if step.offset == at:
            start = (where.lineno, where.col_offset)
            break
        if step.opname in _LOADS:
            place = (where.lineno, where.col_offset)
            loads.append((place, where.end_col_offset, str(step.argval)))
    for place, end, name in loads:
        # The call and its function begin at the same place.
        if place == start and (found is None or end > found[0]):
            found = (end, name)
    return None if found is None else found[1]


class Refusal:
    """An error that was raised for a value, and the instruction that asked for it.

    NumPy replaces the errors of ``__float__`` by a ValueError of its own in
    ``out[0] = x``, with ours as its cause, in ``out.flat[0] = x`` without it, and those
    of ``__array__`` by a TypeError in ``np.nditer(x)`` (NumPy 2.4). Where the function of
    a transform ends, ours comes back.
    """

    __slots__ = ("at", "error")

    def __init__(self, error: DataDependentError) -> None:
        self.error: DataDependentError = error
        self.at: tuple[CodeType, int] = _position()

    def behind(self, error: ValueError | TypeError) -> DataDependentError | None:
        """The refusal, if the other error comes from the same instruction."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        is_same = trace and (trace.tb_frame.f_code, trace.tb_lasti) == self.at
        return self.error if is_same else None
