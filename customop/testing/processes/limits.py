"""Limit the time, memory and output of a forked child."""

from __future__ import annotations

import ctypes
import faulthandler
import io
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

_LINUX: Final = sys.platform == "linux"
# Options of prctl: end with the parent; never leave a core file.
_PDEATHSIG, _DUMPABLE = 1, 4


def apply(errors: int) -> None:
    """Set up this process, a child that was just forked.

    Parameters
    ----------
    errors : int
        The open file that receives what the child, or C code in it, writes as it
        crashes.
    """
    os.setpgid(0, 0)
    _redirect(errors)
    # Python code of the parent must not handle signals that are meant to end the child.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    faulthandler.enable(2, all_threads=False)
    faulthandler.register(signal.SIGALRM, 2, all_threads=False, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _compute_dask_here()
    _restart_numba()
    if _LINUX:
        _set_up_linux()


def _compute_dask_here() -> None:
    """Let dask arrays be computed by this thread.

    The threads of dask's pool and the connections of its clients stay with the parent,
    so that work given to them would never end.
    """
    dask = sys.modules.get("dask")
    if dask is not None:
        dask.config.set(scheduler="synchronous")


def _restart_numba() -> None:
    """Let the parallel code of numba begin anew here, with this thread alone.

    Its own threads stay with the parent. It ends a process that was forked after they
    began, unless it launches them again.
    """
    parallel: Any = sys.modules.get("numba.np.ufunc.parallel")
    if getattr(parallel, "_is_initialized", False):
        parallel._is_initialized = False  # noqa: SLF001  # there is no other way
        parallel.set_num_threads(1)


def start_clock(seconds: float) -> None:
    """Let the system end this process after some time, even inside C code."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _redirect(errors: int) -> None:
    """Keep everything that the child prints out of the files of its parent."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number, target in ((0, nowhere), (1, nowhere), (2, errors)):
        os.dup2(target, number)
    os.close(nowhere)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False))


# ---- Linux ----

_PAGE: Final = resource.getpagesize()


def _set_up_linux() -> None:
    libc = ctypes.pythonapi  # any library has the names of all that are loaded
    libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # If memory runs out, the system ends the child and not its parent.
    with suppress(OSError):
        _write("/proc/self/oom_score_adj", b"1000")
    libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(_read("/proc/self/statm").split()[0])
    most = (used + os.sysconf("SC_PHYS_PAGES") // 2) * _PAGE
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    with suppress(OSError):
        _openmp_at("libgomp.so.1").omp_set_num_threads(1)
    for library in openmp_of_packages(len(sys.modules)):
        library.omp_set_num_threads(1)


@lru_cache(maxsize=1)
def openmp_of_packages(modules: int) -> list[Any]:
    """Return the copies of GNU OpenMP that packages brought, cached by module count.

    Their threads do not survive a fork, and the next parallel region would wait for
    them forever. With one thread OpenMP needs no others.
    """
    if not _LINUX:
        return []
    lines = _read("/proc/self/maps").decode(errors="surrogateescape").splitlines()
    return [
        _openmp_at(file)
        for file in {line.split(maxsplit=5)[-1] for line in lines}
        if "/libgomp-" in file
    ]


def _openmp_at(file: str) -> Any:
    """Return a library that is already loaded; otherwise raise OSError."""
    return ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # 40 us less than Path
        return file.read()


def _write(path: str, text: bytes) -> None:
    with open(path, "wb", buffering=0) as file:  # noqa: PTH123  # as above
        file.write(text)
