"""Types of cupyx.scipy.signal."""

# ---- written by stubs/generate.py ----

from collections.abc import Callable
from cupy import _ArrayLike, _Axis, _DType, _Int, _Order, _Shape, ndarray
from typing import Any
from cupyx.scipy.signal.windows import get_window as get_window
from cupyx.scipy.signal import windows as windows

class BadCoefficients(UserWarning): ...

class CZT:
    def __init__(self, n: Any, m: Any = None, w: Any = None, a: Any = ...) -> None: ...
    def __call__(self, x: Any, *, axis: _Axis = -1) -> ndarray: ...
    def points(self) -> Any: ...

class StateSpace:
    def __init__(self, *system: Any, **kwargs: Any) -> None: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    @property
    def A(self) -> Any: ...
    @A.setter
    def A(self, value: Any) -> None: ...
    @property
    def B(self) -> Any: ...
    @B.setter
    def B(self, value: Any) -> None: ...
    @property
    def C(self) -> Any: ...
    @C.setter
    def C(self, value: Any) -> None: ...
    @property
    def D(self) -> Any: ...
    @D.setter
    def D(self, value: Any) -> None: ...
    def to_tf(self, **kwargs: Any) -> Any: ...
    def to_zpk(self, **kwargs: Any) -> Any: ...
    def to_ss(self) -> Any: ...
    @property
    def dt(self) -> Any: ...
    @property
    def zeros(self) -> Any: ...
    @property
    def poles(self) -> Any: ...

class TransferFunction:
    def __init__(self, *system: Any, **kwargs: Any) -> None: ...
    @property
    def num(self) -> Any: ...
    @num.setter
    def num(self, value: Any) -> None: ...
    @property
    def den(self) -> Any: ...
    @den.setter
    def den(self, value: Any) -> None: ...
    def to_tf(self) -> Any: ...
    def to_zpk(self) -> Any: ...
    def to_ss(self) -> Any: ...
    @property
    def dt(self) -> Any: ...
    @property
    def zeros(self) -> Any: ...
    @property
    def poles(self) -> Any: ...

class ZerosPolesGain:
    def __init__(self, *system: Any, **kwargs: Any) -> None: ...
    @property
    def zeros(self) -> Any: ...
    @zeros.setter
    def zeros(self, value: Any) -> None: ...
    @property
    def poles(self) -> Any: ...
    @poles.setter
    def poles(self, value: Any) -> None: ...
    @property
    def gain(self) -> Any: ...
    @gain.setter
    def gain(self, value: Any) -> None: ...
    def to_tf(self) -> Any: ...
    def to_zpk(self) -> Any: ...
    def to_ss(self) -> Any: ...
    @property
    def dt(self) -> Any: ...

def abcd_normalize(
    A: _ArrayLike | None = None,
    B: _ArrayLike | None = None,
    C: _ArrayLike | None = None,
    D: _ArrayLike | None = None,
) -> Any: ...
def argrelextrema(
    data: ndarray,
    comparator: Callable[..., Any],
    axis: _Axis = 0,
    order: _Int = 1,
    mode: str = "clip",
) -> tuple[ndarray, ...]: ...
def argrelmax(
    data: ndarray, axis: _Axis = 0, order: _Int = 1, mode: str = "clip"
) -> tuple[ndarray, ...]: ...
def argrelmin(
    data: ndarray, axis: _Axis = 0, order: _Int = 1, mode: str = "clip"
) -> tuple[ndarray, ...]: ...
def band_stop_obj(
    wp: _ArrayLike,
    ind: _Int,
    passb: ndarray,
    stopb: ndarray,
    gpass: _ArrayLike,
    gstop: _ArrayLike,
    type: str,
) -> Any: ...
def bilinear(b: _ArrayLike, a: _ArrayLike, fs: _ArrayLike = 1.0) -> Any: ...
def bilinear_zpk(z: _ArrayLike, p: Any, k: _ArrayLike, fs: _ArrayLike) -> Any: ...
def bode(system: Any, w: _ArrayLike | None = None, n: _Int = 100) -> Any: ...
def buttap(N: Any) -> Any: ...
def butter(
    N: _Int,
    Wn: _ArrayLike,
    btype: str = "low",
    analog: bool = False,
    output: str = "ba",
    fs: _ArrayLike | None = None,
) -> Any: ...
def buttord(
    wp: _ArrayLike,
    ws: _ArrayLike,
    gpass: _ArrayLike,
    gstop: _ArrayLike,
    analog: bool = False,
    fs: _ArrayLike | None = None,
) -> Any: ...
def cheb1ap(N: Any, rp: Any) -> Any: ...
def cheb1ord(
    wp: _ArrayLike,
    ws: _ArrayLike,
    gpass: _ArrayLike,
    gstop: _ArrayLike,
    analog: bool = False,
    fs: _ArrayLike | None = None,
) -> Any: ...
def cheb2ap(N: Any, rs: Any) -> Any: ...
def cheb2ord(
    wp: _ArrayLike,
    ws: _ArrayLike,
    gpass: _ArrayLike,
    gstop: _ArrayLike,
    analog: bool = False,
    fs: _ArrayLike | None = None,
) -> Any: ...
def cheby1(
    N: _Int,
    rp: _ArrayLike,
    Wn: _ArrayLike,
    btype: str = "low",
    analog: bool = False,
    output: str = "ba",
    fs: _ArrayLike | None = None,
) -> Any: ...
def cheby2(
    N: _Int,
    rs: _ArrayLike,
    Wn: _ArrayLike,
    btype: str = "low",
    analog: bool = False,
    output: str = "ba",
    fs: _ArrayLike | None = None,
) -> Any: ...
def check_COLA(
    window: Any, nperseg: _Int, noverlap: _Int, tol: _ArrayLike = 1e-10
) -> bool: ...
def check_NOLA(
    window: Any, nperseg: _Int, noverlap: _Int, tol: _ArrayLike = 1e-10
) -> bool: ...
def chirp(
    t: _ArrayLike,
    f0: _ArrayLike,
    t1: _ArrayLike,
    f1: _ArrayLike,
    method: str = "linear",
    phi: _ArrayLike = 0,
    vertex_zero: bool = True,
) -> ndarray: ...
def choose_conv_method(in1: ndarray, in2: ndarray, mode: str = "full") -> str: ...
def coherence(
    x: _ArrayLike,
    y: _ArrayLike,
    fs: _ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: _Int | None = None,
    noverlap: _Int | None = None,
    nfft: _Int | None = None,
    detrend: Callable[..., Any] | str = "constant",
    axis: _Axis = -1,
) -> tuple[ndarray, ndarray]: ...
def cont2discrete(
    system: Any, dt: _ArrayLike, method: str = "zoh", alpha: _ArrayLike | None = None
) -> tuple[Any, ...]: ...
def convolve(
    in1: ndarray, in2: ndarray, mode: str = "full", method: str = "auto"
) -> ndarray: ...
def convolve2d(
    in1: ndarray,
    in2: ndarray,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: _ArrayLike = 0,
) -> ndarray: ...
def correlate(
    in1: ndarray, in2: ndarray, mode: str = "full", method: str = "auto"
) -> ndarray: ...
def correlate2d(
    in1: ndarray,
    in2: ndarray,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: _ArrayLike = 0,
) -> ndarray: ...
def correlation_lags(in1_len: _Int, in2_len: _Int, mode: str = "full") -> Any: ...
def csd(
    x: _ArrayLike,
    y: _ArrayLike,
    fs: _ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: _Int | None = None,
    noverlap: _Int | None = None,
    nfft: _Int | None = None,
    detrend: Callable[..., Any] | str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: _Axis = -1,
    average: str = "mean",
) -> tuple[ndarray, ndarray]: ...
def cspline1d(signal: ndarray, lamb: _ArrayLike = 0.0) -> ndarray: ...
def cspline1d_eval(
    cj: ndarray, newx: ndarray, dx: _ArrayLike = 1.0, x0: _Int = 0
) -> ndarray: ...
def cspline2d(
    signal: Any, lamb: _ArrayLike = 0.0, precision: _ArrayLike = -1.0
) -> ndarray: ...
def cwt(data: ndarray, wavelet: Callable[..., Any], widths: Any) -> Any: ...
def czt(
    x: Any, m: _Int | None = None, w: Any = None, a: Any = ..., *, axis: _Axis = -1
) -> ndarray: ...
def czt_points(m: _Int, w: Any = None, a: Any = ...) -> ndarray: ...
def dbode(system: Any, w: _ArrayLike | None = None, n: _Int = 100) -> Any: ...
def decimate(
    x: _ArrayLike,
    q: _Int,
    n: _Int | None = None,
    ftype: str = "iir",
    axis: _Axis = -1,
    zero_phase: bool = True,
) -> ndarray: ...
def deconvolve(signal: Any, divisor: Any) -> Any: ...
def detrend(
    data: _ArrayLike,
    axis: _Axis = -1,
    type: str = "linear",
    bp: _ArrayLike = 0,
    overwrite_data: bool = False,
) -> ndarray: ...
def dfreqresp(
    system: Any, w: _ArrayLike | None = None, n: _Int = 10000, whole: bool = False
) -> Any: ...
def dimpulse(
    system: _ArrayLike,
    x0: _ArrayLike | None = None,
    t: _ArrayLike | None = None,
    n: _Int | None = None,
) -> Any: ...
def dlsim(
    system: _ArrayLike,
    u: _ArrayLike,
    t: _ArrayLike | None = None,
    x0: _ArrayLike | None = None,
) -> Any: ...

class dlti:
    def __init__(self, *system: Any, **kwargs: Any) -> None: ...
    @property
    def dt(self) -> Any: ...
    @dt.setter
    def dt(self, value: Any) -> None: ...
    def impulse(self, x0: Any = None, t: Any = None, n: Any = None) -> Any: ...
    def step(self, x0: Any = None, t: Any = None, n: Any = None) -> Any: ...
    def output(self, u: Any, t: Any, x0: Any = None) -> Any: ...
    def bode(self, w: Any = None, n: Any = 100) -> Any: ...
    def freqresp(self, w: Any = None, n: Any = 10000, whole: bool = False) -> Any: ...
    @property
    def zeros(self) -> Any: ...
    @property
    def poles(self) -> Any: ...

def dstep(
    system: _ArrayLike,
    x0: _ArrayLike | None = None,
    t: _ArrayLike | None = None,
    n: _Int | None = None,
) -> Any: ...
def ellip(
    N: _Int,
    rp: _ArrayLike,
    rs: _ArrayLike,
    Wn: _ArrayLike,
    btype: str = "low",
    analog: bool = False,
    output: str = "ba",
    fs: _ArrayLike | None = None,
) -> Any: ...
def ellipap(N: Any, rp: Any, rs: Any) -> Any: ...
def ellipord(
    wp: _ArrayLike,
    ws: _ArrayLike,
    gpass: _ArrayLike,
    gstop: _ArrayLike,
    analog: bool = False,
    fs: _ArrayLike | None = None,
) -> Any: ...
def fftconvolve(
    in1: ndarray, in2: ndarray, mode: str = "full", axes: _Axis = None
) -> ndarray: ...
def filtfilt(
    b: Any,
    a: Any,
    x: _ArrayLike,
    axis: _Axis = -1,
    padtype: str = "odd",
    padlen: _Int | None = None,
    method: str = "pad",
    irlen: _Int | None = None,
) -> ndarray: ...
def find_peaks(
    x: Any,
    height: _ArrayLike | None = None,
    threshold: _ArrayLike | None = None,
    distance: _ArrayLike | None = None,
    prominence: _ArrayLike | None = None,
    width: _ArrayLike | None = None,
    wlen: _Int | None = None,
    rel_height: _ArrayLike = 0.5,
    plateau_size: _ArrayLike | None = None,
) -> tuple[ndarray, dict[str, Any]]: ...
def findfreqs(
    num: _ArrayLike, den: _ArrayLike, N: _Int, kind: str = "ba"
) -> ndarray: ...
def firls(
    numtaps: _Int,
    bands: _ArrayLike,
    desired: _ArrayLike,
    weight: _ArrayLike | None = None,
    fs: _ArrayLike = 2,
) -> ndarray: ...
def firwin(
    numtaps: _Int,
    cutoff: _ArrayLike,
    width: _ArrayLike | None = None,
    window: Any = "hamming",
    pass_zero: str | bool = True,
    scale: bool = True,
    fs: _ArrayLike = 2,
) -> ndarray: ...
def firwin2(
    numtaps: _Int,
    freq: _ArrayLike,
    gain: _ArrayLike,
    nfreqs: _Int | None = None,
    window: Any = "hamming",
    nyq: Any = None,
    antisymmetric: bool = False,
    fs: _ArrayLike = 2.0,
) -> ndarray: ...
def freqresp(system: Any, w: _ArrayLike | None = None, n: _Int = 10000) -> Any: ...
def freqs(
    b: _ArrayLike,
    a: _ArrayLike,
    worN: _ArrayLike = 200,
    plot: Callable[..., Any] | None = None,
) -> tuple[ndarray, ndarray]: ...
def freqs_zpk(
    z: _ArrayLike, p: Any, k: _ArrayLike, worN: _ArrayLike = 200
) -> tuple[ndarray, ndarray]: ...
def freqz(
    b: _ArrayLike,
    a: _ArrayLike = 1,
    worN: _ArrayLike = 512,
    whole: bool = False,
    plot: Callable[..., Any] | None = None,
    fs: _ArrayLike = 6.283185307179586,
    include_nyquist: bool = False,
) -> tuple[ndarray, ndarray]: ...
def freqz_sos(
    sos: _ArrayLike,
    worN: _ArrayLike = 512,
    whole: bool = False,
    fs: _ArrayLike = 6.283185307179586,
) -> tuple[ndarray, ndarray]: ...  # CuPy 14
def freqz_zpk(
    z: _ArrayLike,
    p: Any,
    k: _ArrayLike,
    worN: _ArrayLike = 512,
    whole: bool = False,
    fs: _ArrayLike = 6.283185307179586,
) -> tuple[ndarray, ndarray]: ...
def gammatone(
    freq: _ArrayLike,
    ftype: str,
    order: _Order = None,
    numtaps: _Int | None = None,
    fs: _ArrayLike | None = None,
) -> Any: ...
def gauss_spline(x: _ArrayLike, n: _Int) -> ndarray: ...
def gausspulse(
    t: ndarray,
    fc: _Int = 1000,
    bw: _ArrayLike = 0.5,
    bwr: _ArrayLike = -6,
    tpr: _ArrayLike = -60,
    retquad: bool = False,
    retenv: bool = False,
) -> Any: ...
def group_delay(
    system: _ArrayLike,
    w: _ArrayLike = 512,
    whole: bool = False,
    fs: _ArrayLike = 6.283185307179586,
) -> Any: ...
def hilbert(x: ndarray, N: _Int | None = None, axis: _Axis = -1) -> ndarray: ...
def hilbert2(x: ndarray, N: _Shape | None = None) -> ndarray: ...
def iircomb(
    w0: _ArrayLike,
    Q: _ArrayLike,
    ftype: str = "notch",
    fs: _ArrayLike = 2.0,
    *,
    pass_zero: bool = False,
) -> Any: ...
def iirdesign(
    wp: _ArrayLike,
    ws: _ArrayLike,
    gpass: _ArrayLike,
    gstop: _ArrayLike,
    analog: bool = False,
    ftype: str = "ellip",
    output: str = "ba",
    fs: _ArrayLike | None = None,
) -> Any: ...
def iirfilter(
    N: _Int,
    Wn: _ArrayLike,
    rp: _ArrayLike | None = None,
    rs: _ArrayLike | None = None,
    btype: str = "band",
    analog: bool = False,
    ftype: str = "butter",
    output: str = "ba",
    fs: _ArrayLike | None = None,
) -> Any: ...
def iirnotch(w0: _ArrayLike, Q: _ArrayLike, fs: _ArrayLike = 2.0) -> Any: ...
def iirpeak(w0: _ArrayLike, Q: _ArrayLike, fs: _ArrayLike = 2.0) -> Any: ...
def impulse(
    system: _ArrayLike,
    X0: _ArrayLike | None = None,
    T: _ArrayLike | None = None,
    N: _Int | None = None,
) -> Any: ...
def invres(
    r: _ArrayLike, p: Any, k: _ArrayLike, tol: _ArrayLike = 0.001, rtype: str = "avg"
) -> Any: ...
def invresz(
    r: _ArrayLike, p: Any, k: _ArrayLike, tol: _ArrayLike = 0.001, rtype: str = "avg"
) -> Any: ...
def istft(
    Zxx: _ArrayLike,
    fs: _ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: _Int | None = None,
    noverlap: _Int | None = None,
    nfft: _Int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: _Int = -1,
    freq_axis: _Int = -2,
    scaling: str = "spectrum",
) -> tuple[ndarray, ndarray]: ...
def kaiser_atten(numtaps: _Int, width: _ArrayLike) -> Any: ...
def kaiser_beta(a: _ArrayLike) -> Any: ...
def kaiserord(ripple: _ArrayLike, width: _ArrayLike) -> Any: ...
def lfilter(
    b: _ArrayLike,
    a: _ArrayLike,
    x: _ArrayLike,
    axis: _Axis = -1,
    zi: _ArrayLike | None = None,
) -> Any: ...
def lfilter_zi(b: _ArrayLike, a: _ArrayLike) -> ndarray: ...
def lfiltic(
    b: _ArrayLike, a: _ArrayLike, y: _ArrayLike, x: _ArrayLike | None = None
) -> ndarray: ...
def lombscargle(
    x: _ArrayLike,
    y: _ArrayLike,
    freqs: _ArrayLike,
    precenter: bool = False,
    normalize: bool = False,
) -> Any: ...
def lp2bp(
    b: _ArrayLike, a: _ArrayLike, wo: _ArrayLike = 1.0, bw: _ArrayLike = 1.0
) -> Any: ...
def lp2bp_zpk(
    z: _ArrayLike, p: Any, k: _ArrayLike, wo: _ArrayLike = 1.0, bw: _ArrayLike = 1.0
) -> Any: ...
def lp2bs(
    b: _ArrayLike, a: _ArrayLike, wo: _ArrayLike = 1.0, bw: _ArrayLike = 1.0
) -> Any: ...
def lp2bs_zpk(
    z: _ArrayLike, p: Any, k: _ArrayLike, wo: _ArrayLike = 1.0, bw: _ArrayLike = 1.0
) -> Any: ...
def lp2hp(b: _ArrayLike, a: _ArrayLike, wo: _ArrayLike = 1.0) -> Any: ...
def lp2hp_zpk(z: _ArrayLike, p: Any, k: _ArrayLike, wo: _ArrayLike = 1.0) -> Any: ...
def lp2lp(b: _ArrayLike, a: _ArrayLike, wo: _ArrayLike = 1.0) -> Any: ...
def lp2lp_zpk(z: _ArrayLike, p: Any, k: _ArrayLike, wo: _ArrayLike = 1.0) -> Any: ...
def lsim(
    system: Any,
    U: _ArrayLike,
    T: _ArrayLike,
    X0: _ArrayLike | None = None,
    interp: bool = True,
) -> Any: ...

class lti:
    def __init__(self, *system: Any) -> None: ...
    def impulse(self, X0: Any = None, T: Any = None, N: Any = None) -> Any: ...
    def step(self, X0: Any = None, T: Any = None, N: Any = None) -> Any: ...
    def output(self, U: Any, T: Any, X0: Any = None) -> Any: ...
    def bode(self, w: Any = None, n: Any = 100) -> Any: ...
    def freqresp(self, w: Any = None, n: Any = 10000) -> Any: ...
    def to_discrete(self, dt: Any, method: str = "zoh", alpha: Any = None) -> Any: ...
    @property
    def dt(self) -> Any: ...
    @property
    def zeros(self) -> Any: ...
    @property
    def poles(self) -> Any: ...

def max_len_seq(
    nbits: _Int,
    state: _ArrayLike | None = None,
    length: _Int | None = None,
    taps: _ArrayLike | None = None,
) -> Any: ...
def medfilt(volume: ndarray, kernel_size: Any = None) -> ndarray: ...
def medfilt2d(input: ndarray, kernel_size: Any = 3) -> ndarray: ...
def minimum_phase(
    h: Any, method: str = "homomorphic", n_fft: _Int | None = None, half: bool = True
) -> Any: ...  # CuPy 14
def morlet(
    M: _Int, w: _ArrayLike = 5.0, s: _ArrayLike = 1.0, complete: bool = True
) -> ndarray: ...
def morlet2(M: _Int, s: _ArrayLike, w: _ArrayLike = 5) -> ndarray: ...
def normalize(b: _ArrayLike, a: _ArrayLike) -> Any: ...
def oaconvolve(
    in1: ndarray, in2: ndarray, mode: str = "full", axes: _Axis = None
) -> ndarray: ...
def order_filter(a: ndarray, domain: ndarray, rank: _Int) -> ndarray: ...
def peak_prominences(x: Any, peaks: Any, wlen: _Int | None = None) -> Any: ...
def peak_widths(
    x: Any,
    peaks: Any,
    rel_height: _ArrayLike = 0.5,
    prominence_data: Any = None,
    wlen: _Int | None = None,
) -> Any: ...
def periodogram(
    x: _ArrayLike,
    fs: _ArrayLike = 1.0,
    window: Any = "boxcar",
    nfft: _Int | None = None,
    detrend: Callable[..., Any] | str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: _Axis = -1,
) -> tuple[ndarray, ndarray]: ...
def place_poles(
    A: ndarray,
    B: ndarray,
    poles: _ArrayLike,
    method: str = "YT",
    rtol: _ArrayLike = 0.001,
    maxiter: _Int = 30,
) -> Any: ...
def qmf(hk: _ArrayLike) -> Any: ...
def qspline1d(signal: ndarray, lamb: _ArrayLike = 0.0) -> ndarray: ...
def qspline1d_eval(
    cj: ndarray, newx: ndarray, dx: _ArrayLike = 1.0, x0: _Int = 0
) -> ndarray: ...
def qspline2d(
    signal: Any, lamb: _ArrayLike = 0.0, precision: _ArrayLike = -1.0
) -> ndarray: ...
def resample(
    x: _ArrayLike,
    num: _Int,
    t: _ArrayLike | None = None,
    axis: _Axis = 0,
    window: Any = None,
    domain: str = "time",
) -> Any: ...
def resample_poly(
    x: _ArrayLike,
    up: _Int,
    down: _Int,
    axis: _Axis = 0,
    window: Any = ("kaiser", 5.0),
    padtype: str = "constant",
    cval: _ArrayLike | None = None,
) -> Any: ...
def residue(
    b: _ArrayLike, a: _ArrayLike, tol: _ArrayLike = 0.001, rtype: str = "avg"
) -> Any: ...
def residuez(
    b: _ArrayLike, a: _ArrayLike, tol: _ArrayLike = 0.001, rtype: str = "avg"
) -> Any: ...
def ricker(points: _Int, a: _ArrayLike) -> ndarray: ...
def savgol_coeffs(
    window_length: _Int,
    polyorder: _Int,
    deriv: _Int = 0,
    delta: _ArrayLike = 1.0,
    pos: _Int | None = None,
    use: str = "conv",
) -> ndarray: ...
def savgol_filter(
    x: _ArrayLike,
    window_length: _Int,
    polyorder: _Int,
    deriv: _Int = 0,
    delta: _ArrayLike = 1.0,
    axis: _Axis = -1,
    mode: str = "interp",
    cval: _ArrayLike = 0.0,
) -> ndarray: ...
def sawtooth(t: _ArrayLike, width: _ArrayLike = 1.0) -> ndarray: ...
def sepfir2d(input: ndarray, hrow: ndarray, hcol: ndarray) -> ndarray: ...
def sos2tf(sos: _ArrayLike) -> Any: ...
def sos2zpk(sos: _ArrayLike) -> Any: ...
def sosfilt(
    sos: _ArrayLike, x: _ArrayLike, axis: _Axis = -1, zi: _ArrayLike | None = None
) -> Any: ...
def sosfilt_zi(sos: _ArrayLike) -> ndarray: ...
def sosfiltfilt(
    sos: _ArrayLike,
    x: _ArrayLike,
    axis: _Axis = -1,
    padtype: str = "odd",
    padlen: _Int | None = None,
) -> ndarray: ...
def sosfreqz(
    sos: Any, worN: Any = 512, whole: bool = False, fs: Any = 6.283185307179586
) -> Any: ...  # CuPy 14
def spectrogram(
    x: _ArrayLike,
    fs: _ArrayLike = 1.0,
    window: Any = ("tukey", 0.25),
    nperseg: _Int | None = None,
    noverlap: _Int | None = None,
    nfft: _Int | None = None,
    detrend: Callable[..., Any] | str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: _Axis = -1,
    mode: str = "psd",
) -> tuple[ndarray, ndarray, ndarray]: ...
def spline_filter(Iin: _ArrayLike, lmbda: _ArrayLike = 5.0) -> ndarray: ...
def square(t: _ArrayLike, duty: _ArrayLike = 0.5) -> ndarray: ...
def ss2tf(
    A: _ArrayLike, B: _ArrayLike, C: _ArrayLike, D: _ArrayLike, input: _Int = 0
) -> Any: ...
def ss2zpk(
    A: _ArrayLike, B: _ArrayLike, C: _ArrayLike, D: _ArrayLike, input: _Int = 0
) -> Any: ...
def step(
    system: _ArrayLike,
    X0: _ArrayLike | None = None,
    T: _ArrayLike | None = None,
    N: _Int | None = None,
) -> Any: ...
def stft(
    x: _ArrayLike,
    fs: _ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: _Int = 256,
    noverlap: _Int | None = None,
    nfft: _Int | None = None,
    detrend: Callable[..., Any] | bool = False,
    return_onesided: bool = True,
    boundary: str = "zeros",
    padded: bool = True,
    axis: _Axis = -1,
    scaling: str = "spectrum",
) -> tuple[ndarray, ndarray, ndarray]: ...
def sweep_poly(t: ndarray, poly: Any, phi: _ArrayLike = 0) -> ndarray: ...  # CuPy 14
def symiirorder1(
    input: ndarray, c0: _ArrayLike, z1: _ArrayLike, precision: Any = -1.0
) -> ndarray: ...
def symiirorder2(
    input: ndarray, r: _ArrayLike, omega: _ArrayLike, precision: _ArrayLike = -1.0
) -> ndarray: ...
def tf2sos(
    b: _ArrayLike, a: _ArrayLike, pairing: str | None = None, *, analog: bool = False
) -> ndarray: ...
def tf2ss(
    num: _ArrayLike, den: _ArrayLike
) -> tuple[ndarray, ndarray, ndarray, ndarray]: ...
def tf2zpk(b: _ArrayLike, a: _ArrayLike) -> Any: ...
def unique_roots(p: Any, tol: _ArrayLike = 0.001, rtype: str = "min") -> Any: ...
def unit_impulse(
    shape: _Shape, idx: Any = None, dtype: _DType | None = ...
) -> ndarray: ...
def upfirdn(
    h: _ArrayLike,
    x: _ArrayLike,
    up: _Int = 1,
    down: _Int = 1,
    axis: _Axis = -1,
    mode: str = "constant",
    cval: _ArrayLike = 0,
) -> ndarray: ...
def vectorstrength(events: Any, period: _ArrayLike) -> Any: ...
def welch(
    x: _ArrayLike,
    fs: _ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: _Int | None = None,
    noverlap: _Int | None = None,
    nfft: _Int | None = None,
    detrend: Callable[..., Any] | str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: _Axis = -1,
    average: str = "mean",
) -> tuple[ndarray, ndarray]: ...
def wiener(
    im: ndarray, mysize: _ArrayLike | None = None, noise: _ArrayLike | None = None
) -> ndarray: ...
def zoom_fft(
    x: Any,
    fn: _ArrayLike,
    m: _Int | None = None,
    *,
    fs: _ArrayLike = 2,
    endpoint: bool = False,
    axis: _Axis = -1,
) -> ndarray: ...
def zpk2sos(
    z: _ArrayLike,
    p: Any,
    k: _ArrayLike,
    pairing: str | None = None,
    *,
    analog: bool = False,
) -> ndarray: ...
def zpk2ss(z: Any, p: Any, k: _ArrayLike) -> ndarray: ...
def zpk2tf(z: _ArrayLike, p: Any, k: _ArrayLike) -> Any: ...

class ZoomFFT(CZT):
    def __init__(
        self, n: Any, fn: Any, m: Any = None, *, fs: Any = 2, endpoint: bool = False
    ) -> None: ...
