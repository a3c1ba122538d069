"""Opening a file that a pod names, below a directory that its containers write to.

The supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from pinnace.node.machine import linux

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STAY = linux.RESOLVE_IN_ROOT | linux.RESOLVE_NO_XDEV
"""Links are followed as if the directory were the root, and no file system that is mounted below it is entered."""


def open_regular_below(directory: str, path: str) -> BinaryIO:
    """Open a regular file to read it. Raise OSError for anything else: a FIFO would wait, a device would act."""
    above = os.open(directory, _DIRECTORY)
    try:
        seen = linux.open_inside(above, path, os.O_PATH, resolve=_STAY)
    finally:
        os.close(above)
    try:
        if not stat.S_ISREG(os.fstat(seen).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return open(os.open(f"/proc/self/fd/{seen}", _FLAGS), "rb")
    finally:
        os.close(seen)
