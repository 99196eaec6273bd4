"""One BLAS thread while something small is computed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads")

_lock = threading.Lock()
_inside = 0
_before = 0


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """numpy's OpenBLAS computes in the calling thread alone; afterwards it does as before. Another BLAS is left alone.

    Products of few rows gain little from a second thread, and lose a hundredfold when its core is busy: the threads
    wait for each other without sleeping.
    """
    global _inside, _before
    if (controls := _controls()) is None:
        yield
        return
    read, write = controls
    with _lock:
        if _inside == 0 and (_before := read()) != 1:
            write(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _before != 1:
                write(_before)


@functools.cache
def _controls() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """(read, write) the number of threads of the OpenBLAS that stands beside numpy; None if there is none."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs", package / ".libs"):
        for path in sorted(folder.glob("*openblas*")):
            with contextlib.suppress(OSError):
                library = ctypes.CDLL(str(path))  # it is loaded already: this is another handle of the same
                for name in _NAMES:
                    read = getattr(library, name.format("get"), None)
                    write = getattr(library, name.format("set"), None)
                    if read is not None and write is not None:
                        write.restype = None
                        return read, write
    return None
