"""Runs pinnace on a disk that takes long for each write: `python -m tests.consistency.slow_disk SECONDS up …`."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

import apsw

from pinnace.cli.main import main

_SYSTEM = ctypes.CDLL(None)
_WRITE = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)


def slow_down(seconds: float) -> list[object]:
    """Let each write of SQLite take longer. Return the functions that SQLite calls: they must be kept."""
    calls = apsw.VFS("system-calls", "unix")
    kept: list[object] = [calls]
    for name in ("pwrite", "pwrite64"):
        if calls.xGetSystemCall(name):
            function = _WRITE(_slow(_WRITE((name, _SYSTEM)), seconds))
            calls.xSetSystemCall(name, ctypes.cast(function, ctypes.c_void_p).value or 0)
            kept.append(function)
    assert len(kept) > 1, "SQLite has no system call to replace"
    return kept


def _slow(write: Callable[..., int], seconds: float) -> Callable[..., int]:
    def slow_write(file: int, data: int, size: int, offset: int) -> int:
        time.sleep(seconds)
        return write(file, data, size, offset)

    return slow_write


if __name__ == "__main__":
    functions = slow_down(float(sys.argv.pop(1)))
    main()
