"""Lets large work take no arenas from the system, so that its memory can be given back.

Python keeps small objects in arenas of 1 MiB, and returns an arena only when it is empty. After large work a few small
objects that stay, such as entries of caches, would keep dozens of arenas. While no arena can be had, Python allocates
what does not fit into its arenas by `malloc`, whose free pages of 4 KiB can be given back. That is slower, by up to a
tenth of a request's time, so it is in force only during large work and for some seconds after it.
"""

from __future__ import annotations

import ctypes


class _Allocator(ctypes.Structure):
    """PyObjectArenaAllocator of Python's C API."""

    _fields_ = (("ctx", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p))


class PythonArenas:
    """The arenas of this process. Nothing is changed before `allow_limit`, which belongs to a server's own process."""

    def __init__(self) -> None:
        self._open: _Allocator | None = None
        self._closed = _Allocator()
        self._is_expected = False
        """Whether large work was announced since the last `check`."""
        self.is_limited = False

    def allow_limit(self) -> None:
        """Limit the arenas during large work from now on, if this is CPython."""
        api = getattr(ctypes, "pythonapi", None)
        if not hasattr(api, "PyObject_GetArenaAllocator"):
            return
        found = _Allocator()
        ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(found))
        # An array of SIZE_MAX arenas cannot be allocated: the answer is NULL, always.
        refuse = ctypes.cast(ctypes.pythonapi.PyMem_RawCalloc, ctypes.c_void_p)
        self._closed = _Allocator(ctypes.c_size_t(-1).value, refuse.value, found.free)
        self._open = found

    def expect_large_work(self) -> None:
        """Take no more arenas until `check` has found no large work for a whole interval."""
        self._is_expected = True
        if self._open is not None and not self.is_limited:
            self.is_limited = True
            ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self._closed))

    def check(self) -> None:
        """Take arenas again if no large work was announced since the last call."""
        if self._open is not None and self.is_limited and not self._is_expected:
            self.is_limited = False
            ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self._open))
        self._is_expected = False


arenas = PythonArenas()
"""The arenas are the process's, as the allocator is."""
