"""`scipy.fft` on traced, fake and plain arrays.

The functions have SciPy's parameters. Plain arrays are passed to SciPy; for others,
`overwrite_x`, `workers` and `plan` have no effect. One result differs: SciPy 1.17 ignores
`orthogonalize` for complex numbers, these functions do not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.fft import fftfreq, fftshift, ifftshift, rfftfreq
from numpy.lib.array_utils import normalize_axis_index

from customop import Array, ShapeError
from customop.numpy.arguments import as_array, is_known, whole
from customop.numpy.rules import is_complex
from customop.scipy.cosine_transforms import (
    INVERSE,
    check_options,
    real_transform,
)
from customop.scipy.cosine_transforms import (
    fft as _fft,
)
from customop.scipy.ufunc_rules import is_plain

__all__ = [
    "dct",
    "dctn",
    "dst",
    "dstn",
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "idct",
    "idctn",
    "idst",
    "idstn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_Transform: TypeAlias = Callable[..., Array]

# ---- complex transforms, which are operators of NumPy's functions ----

_OF_ONE = """Compute {what} along one axis, as `scipy.fft.{name}` does.

Parameters
----------
x : array
n : int, optional
    Length of the transform; the array is cut or padded with zeros.
axis : int
norm : {{"backward", "ortho", "forward"}}, optional
overwrite_x, workers, plan
    For plain arrays only.

Returns
-------
array

Examples
--------
>>> import numpy as np, customop as co
>>> from customop.scipy import fft
>>> x = np.array([1.0, 2.0])
>>> co.grad(lambda x: np.sum(np.abs(fft.{name}(x)) ** 2))(x)
array([{slopes}])
>>> fft.{name}(np.ones((3, 2)), n=4, axis=0, norm="ortho").shape
({length}, 2)
"""


def _of_one(name: str, what: str, slopes: str) -> Callable[..., Any]:
    function, transform = getattr(_fft, name), getattr(np.fft, name)

    def call(
        x: Any,
        n: Any = None,
        axis: int = -1,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        *,
        plan: None = None,
    ) -> Any:
        x = as_array(x)
        if is_plain(x):
            return function(x, n, axis, norm, overwrite_x, workers, plan=plan)
        return transform(x, n, axis, norm)

    length = 3 if name in ("rfft", "ihfft") else 4  # of a half spectrum, or of all
    doc = _OF_ONE.format(name=name, what=what, slopes=slopes, length=length)
    return _named(call, name, doc)


def _named(call: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


fft: _Transform = _of_one("fft", "a discrete Fourier transform", "4., 8.")
ifft: _Transform = _of_one("ifft", "an inverse discrete Fourier transform", "1., 2.")
rfft: _Transform = _of_one("rfft", "a half spectrum of real numbers", "4., 8.")
irfft: _Transform = _of_one("irfft", "real numbers of a half spectrum", "1., 2.")
hfft: _Transform = _of_one(
    "hfft", "a real spectrum of half a symmetric signal", "4., 8."
)
ihfft: _Transform = _of_one("ihfft", "half of the inverse of a real spectrum", "1., 2.")

_OF_MANY = """Compute {what} over several axes, as `scipy.fft.{name}` does.

Parameters
----------
x : array
s : sequence of int, optional
    Lengths of the transform; the array is cut or padded with zeros.
axes : sequence of int, optional
    {axes}
norm : {{"backward", "ortho", "forward"}}, optional
overwrite_x, workers, plan
    For plain arrays only.

Returns
-------
array

Examples
--------
>>> import numpy as np, customop as co
>>> from customop.scipy import fft
>>> x = np.array([[1.0, 2.0]])
>>> co.grad(lambda x: np.sum(np.abs(fft.{name}(x)) ** 2))(x)
array([[{slopes}]])
>>> fft.{name}(np.ones((2, 3, 5)), s=(4, 4), axes=(0, 1), norm="ortho").shape
(4, {length}, 5)
"""


def _of_many(name: str, what: str, slopes: str) -> Callable[..., Any]:
    function, transform = getattr(_fft, name), getattr(np.fft, name)
    default = (-2, -1) if name.endswith("2") else None

    def call(
        x: Any,
        s: Any = None,
        axes: Any = default,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        *,
        plan: None = None,
    ) -> Any:
        x = as_array(x)
        if is_plain(x):
            return function(x, s, axes, norm, overwrite_x, workers, plan=plan)
        if s is not None and axes is None:
            axes = tuple(range(-len(s), 0))
        return transform(x, s, axes, norm)

    said = "The last two by default." if default else "All by default."
    length = 3 if name.startswith("rfft") else 4  # of a half spectrum, or of all
    words = {
        "name": name,
        "what": what,
        "slopes": slopes,
        "axes": said,
        "length": length,
    }
    doc = _OF_MANY.format(**words)
    return _named(call, name, doc)


fft2: _Transform = _of_many("fft2", "a discrete Fourier transform", "4., 8.")
ifft2: _Transform = _of_many("ifft2", "an inverse discrete Fourier transform", "1., 2.")
rfft2: _Transform = _of_many("rfft2", "a half spectrum of real numbers", "4., 8.")
irfft2: _Transform = _of_many("irfft2", "real numbers of a half spectrum", "1., 2.")
fftn: _Transform = _of_many("fftn", "a discrete Fourier transform", "4., 8.")
ifftn: _Transform = _of_many("ifftn", "an inverse discrete Fourier transform", "1., 2.")
rfftn: _Transform = _of_many("rfftn", "a half spectrum of real numbers", "4., 8.")
irfftn: _Transform = _of_many("irfftn", "real numbers of a half spectrum", "1., 2.")

# ---- cosine and sine transforms ----

# Convention of a norm -> that of the inverse transform.
_OPPOSITE = {None: "forward", "backward": "forward", "forward": "backward"}


def _real(
    function: str, is_inverse: bool, x: Any, variant: int, s: Any, axes: Any, rest: Any
) -> Any:
    norm, orthogonalize = rest
    check_options(function, variant, norm, s)
    if orthogonalize is None:
        orthogonalize = norm == "ortho"
    if is_inverse:
        variant, norm = INVERSE[variant], _OPPOSITE.get(norm, norm)
    if not axes:
        return x
    return real_transform(x, function, variant, s, axes, norm, bool(orthogonalize))


def _is_for_scipy(x: Any, orthogonalize: bool | None) -> bool:
    return is_plain(x) and (orthogonalize is None or not is_complex(x))


_REAL_OF_ONE = """Compute {what} transform along one axis, as `scipy.fft.{name}` does.

Parameters
----------
x : array
type : {{1, 2, 3, 4}}
n : int, optional
    Length of the transform; the array is cut or padded with zeros.
axis : int
norm : {{"backward", "ortho", "forward"}}, optional
overwrite_x, workers
    For plain arrays only.
orthogonalize : bool, optional
    Whether to weigh elements at the ends so that the matrix of the transform is
    orthogonal. As ``norm="ortho"`` says by default.

Returns
-------
array

Raises
------
ArgumentError
    If the type or the norm does not exist.
ShapeError
    If the length is too small.

Examples
--------
>>> import numpy as np, customop as co
>>> from customop.scipy import fft
>>> x = np.array([1.0, 2.0])
>>> co.grad(lambda x: np.sum(fft.{name}(x, norm="ortho") ** 2))(x)
array([2., 4.])
>>> fft.{name}(np.ones((3, 2)), type=1, n=4, axis=0).shape
(4, 2)
"""


def _real_of_one(name: str, what: str) -> Callable[..., Any]:
    function = getattr(_fft, name)
    is_inverse = name.startswith("i")

    def call(
        x: Any,
        type: int = 2,  # noqa: A002  # SciPy's name
        n: Any = None,
        axis: int = -1,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        orthogonalize: bool | None = None,
    ) -> Any:
        x = as_array(x)
        if _is_for_scipy(x, orthogonalize):
            options = axis, norm, overwrite_x, workers, orthogonalize
            return function(x, type, n, *options)
        place = normalize_axis_index(operator.index(axis), x.ndim)
        s = [x.shape[place] if n is None else whole(n)]
        rest = norm, orthogonalize
        return _real(
            f"{name.removeprefix('i')}n", is_inverse, x, type, s, [place], rest
        )

    return _named(call, name, _REAL_OF_ONE.format(name=name, what=what))


dct: _Transform = _real_of_one("dct", "a cosine")
idct: _Transform = _real_of_one("idct", "an inverse cosine")
dst: _Transform = _real_of_one("dst", "a sine")
idst: _Transform = _real_of_one("idst", "an inverse sine")

_REAL_OF_MANY = """Compute {what} transform over several axes, as `scipy.fft.{name}` does.

Parameters
----------
x : array
type : {{1, 2, 3, 4}}
s : sequence of int, optional
    Lengths of the transform; the array is cut or padded with zeros.
axes : sequence of int, optional
    All by default.
norm : {{"backward", "ortho", "forward"}}, optional
overwrite_x, workers
    For plain arrays only.
orthogonalize : bool, optional
    Whether to weigh elements at the ends so that the matrix of the transform is
    orthogonal. As ``norm="ortho"`` says by default.

Returns
-------
array

Raises
------
ArgumentError
    If the type or the norm does not exist.
ShapeError
    If there are not as many lengths as axes, an axis is repeated, or a length is too
    small.

Examples
--------
>>> import numpy as np, customop as co
>>> from customop.scipy import fft
>>> x = np.array([[1.0, 2.0]])
>>> co.grad(lambda x: np.sum(fft.{name}(x, norm="ortho") ** 2))(x)
array([[2., 4.]])
>>> fft.{name}(np.ones((2, 3, 5)), type=1, s=(4, 4), axes=(0, 1)).shape
(4, 4, 5)
"""


def _real_of_many(name: str, what: str) -> Callable[..., Any]:
    function = getattr(_fft, name)
    is_inverse = name.startswith("i")

    def call(
        x: Any,
        type: int = 2,  # noqa: A002  # SciPy's name
        s: Any = None,
        axes: Any = None,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        orthogonalize: bool | None = None,
    ) -> Any:
        x = as_array(x)
        if _is_for_scipy(x, orthogonalize):
            options = norm, overwrite_x, workers
            return function(x, type, s, axes, *options, orthogonalize=orthogonalize)
        lengths, places = _lengths_and_axes(name, x, s, axes)
        rest = norm, orthogonalize
        own = name.removeprefix("i")
        return _real(own, is_inverse, x, type, lengths, places, rest)

    return _named(call, name, _REAL_OF_MANY.format(name=name, what=what))


def _lengths_and_axes(name: str, x: Any, s: Any, axes: Any) -> tuple[Any, Any]:
    if axes is None:
        axes = range(x.ndim) if s is None else range(-len(_several(s)), 0)
    places = [normalize_axis_index(operator.index(i), x.ndim) for i in _several(axes)]
    own = [x.shape[i] for i in places]
    lengths = own if s is None else [whole(n) for n in _several(s)]
    if len(lengths) != len(own) or len({*places}) != len(places):
        raise ShapeError(
            f"scipy.fft.{name}: s={s!r} and axes={axes!r} do not fit",
            do="give one length for each axis, and each axis once",
        )
    pairs = zip(lengths, own, strict=True)
    return [n if is_known(length, -1) else length for length, n in pairs], places


def _several(value: Any) -> Any:
    return value if hasattr(value, "__len__") else [value]


dctn: _Transform = _real_of_many("dctn", "a cosine")
idctn: _Transform = _real_of_many("idctn", "an inverse cosine")
dstn: _Transform = _real_of_many("dstn", "a sine")
idstn: _Transform = _real_of_many("idstn", "an inverse sine")
