"""Types of cupyx.scipy.special."""

# ---- written by stubs/generate.py ----

from cupy import _ArrayLike, _Axis, _Binary, _Int, _Unary, ndarray, ufunc
from typing import Any
from cupy import round as round, sinc as sinc

bdtr: ufunc
bdtrc: ufunc
bdtri: ufunc
beta: _Binary
betainc: ufunc
betaincinv: ufunc
betaln: _Binary
binom: _Binary
boxcox: _Binary
boxcox1p: _Binary

def btdtr(a: Any, b: Any, x: Any, out: ndarray | None = None) -> ndarray: ...  # CuPy 14
def btdtri(
    a: Any, b: Any, p: Any, out: ndarray | None = None
) -> ndarray: ...  # CuPy 14

cbrt: _Unary
chdtr: _Binary
chdtrc: _Binary
chdtri: _Binary
cosdg: _Unary
cosm1: _Unary
cotdg: _Unary
digamma: _Unary
ellipeinc: _Binary  # CuPy 14
ellipj: ufunc
ellipk: _Unary
ellipkinc: _Binary  # CuPy 14
ellipkm1: _Unary
entr: _Unary
erf: _Unary
erfc: _Unary
erfcinv: _Unary
erfcx: _Unary
erfinv: _Unary
exp1: _Unary
exp10: _Unary
exp2: _Unary
expi: _Unary
expit: _Unary
expm1: _Unary
expn: _Binary
exprel: _Unary
fdtr: ufunc
fdtrc: ufunc
fdtri: ufunc
gamma: _Unary
gammainc: _Binary
gammaincc: _Binary
gammainccinv: _Binary
gammaincinv: _Binary
gammaln: _Unary
gammasgn: _Unary
gdtr: ufunc
gdtrc: ufunc
huber: _Binary
i0: _Unary
i0e: _Unary
i1: _Unary
i1e: _Unary
inv_boxcox: _Binary
inv_boxcox1p: _Binary
j0: _Unary
j1: _Unary
k0: _Unary
k0e: _Unary
k1: _Unary
k1e: _Unary
kl_div: _Binary

def lambertw(z: Any, k: Any = 0, tol: Any = 1e-08) -> ndarray: ...  # CuPy 14

log1p: _Unary
log_expit: _Unary
log_ndtr: _Unary

def log_softmax(x: _ArrayLike, axis: _Axis = None) -> ndarray: ...

loggamma: _Unary
logit: _Unary

def logsumexp(
    a: ndarray,
    axis: _Axis = None,
    b: ndarray | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
) -> Any: ...

lpmv: ufunc

def multigammaln(a: ndarray, d: _Int) -> ndarray: ...

nbdtr: ufunc
nbdtrc: ufunc
nbdtri: ufunc
ndtr: _Unary
ndtri: _Unary
pdtr: _Binary
pdtrc: _Binary
pdtri: _Binary
poch: _Binary

def polygamma(n: ndarray, x: ndarray) -> ndarray: ...

pseudo_huber: _Binary
radian: ufunc
rel_entr: _Binary
rgamma: _Unary
shichi: ufunc  # CuPy 14
sici: ufunc  # CuPy 14
sindg: _Unary

def softmax(x: _ArrayLike, axis: _Axis = None) -> ndarray: ...
def sph_harm(
    m: Any, n: Any, theta: Any, phi: Any, out: ndarray | None = None
) -> ndarray: ...  # CuPy 14
def sph_harm_y(
    n: Any, m: Any, theta: Any, phi: Any, *, diff_n: Any = 0
) -> ndarray: ...  # CuPy 14
def spherical_yn(n: ndarray, z: ndarray, derivative: bool = False) -> ndarray: ...

tandg: _Unary
wright_bessel: ufunc  # CuPy 14
xlog1py: _Binary
xlogy: _Binary
y0: _Unary
y1: _Unary
yn: _Binary
zeta: _Binary
zetac: _Unary
psi = digamma
