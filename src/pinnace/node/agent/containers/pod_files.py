"""Opening and writing the files that the agent shares with containers: /etc/hosts, messages, logs.

Their directories belong to the agent, their content and owners to the pod. A link, a FIFO or a device in their place
is refused, never followed or waited for.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from pinnace.node.machine import linux

_INSIDE = linux.RESOLVE_BENEATH | linux.RESOLVE_NO_SYMLINKS
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(directory: Path, name: str) -> BinaryIO:
    """Open a file below a directory to read it. Raise OSError if it is missing or no regular file."""
    above = os.open(directory, _DIRECTORY)
    try:
        opened = linux.open_inside(above, name, os.O_RDONLY | _SAFELY, resolve=_INSIDE)
    finally:
        os.close(above)
    return open(_checked(opened, name), "rb")


def write_regular(directory: Path, name: str, content: bytes, mode: int) -> Path:
    """Write a file in a directory of the agent, which is made if it is missing, and return its path.

    Containers that mount the file see the new content, unless one has taken the file from the agent: the next
    containers get another file then. Raise OSError.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    above = os.open(directory, _DIRECTORY)
    try:
        try:
            opened = _open_to_write(above, name, mode)
        except OSError:
            os.unlink(name, dir_fd=above)
            opened = _open_to_write(above, name, mode)
    finally:
        os.close(above)
    with open(opened, "wb") as file:
        file.write(content)
    return directory / name


def _open_to_write(above: int, name: str, mode: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFELY
    opened = _checked(os.open(name, flags, 0o600, dir_fd=above), name)
    if stat.S_IMODE(os.fstat(opened).st_mode) != mode:
        try:
            os.fchmod(opened, mode)
        except OSError:
            os.close(opened)
            raise
    return opened


def _checked(opened: int, name: str) -> int:
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise OSError(errno.EINVAL, "it is no regular file", name)
