"""Removes the control groups that killed nodes have left: a group without processes is not freed by the kernel.

The group of each node carries the node's directory as an attribute. A node is alive as long as its fork server listens
there. One that is just starting has not marked its group.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Container, Iterable
from pathlib import Path

from pinnace.node.machine.messages import connect

_ATTRIBUTES = ("trusted.pinnace.directory", "user.pinnace.directory")
"""Root's kernel takes the first everywhere, version 2 takes the second from every user."""
_MOUNTS = ".mounts"
"""Ends the name of the attribute with the mount namespace of a node: in another one its directory may not be seen."""
_LONGEST = 4096
_REMOVE_TRIES, _REMOVE_SECONDS = 100, 0.01
"""A group is busy for a moment after its last process has ended."""


def mark(group: Path, directory: Path) -> None:
    """Note in a group which node it is of. Kernels without attributes of groups leave its end to the node itself."""
    for name in _ATTRIBUTES:
        with contextlib.suppress(OSError):
            os.setxattr(group, name + _MOUNTS, _own_mounts())
            os.setxattr(group, name, os.fsencode(directory.absolute()))
            return


def remove_leftovers(own: Iterable[Path], prefix: str, socket: str, known: Container[str]) -> None:
    """Remove the groups of dead nodes beside the `own` groups, and those below them of pods that are not `known`.

    Only empty groups go: the kernel keeps one that has a process. `socket` is the name of a fork server's socket.
    """
    for group in own:
        for pod in _children(group):
            if pod.name not in known:
                _remove_empty(pod)
        for other in _children(group.parent):
            if other != group and other.name.startswith(prefix):
                directory = _directory_of(other)
                if directory is not None and not _is_alive(directory, socket):
                    _remove_empty(other)


def _directory_of(group: Path) -> Path | None:
    """Return the directory of the node of a group; None if unknown, or if it cannot be seen from here."""
    for name in _ATTRIBUTES:
        with contextlib.suppress(OSError):
            value = os.getxattr(group, name)
            is_seen = os.getxattr(group, name + _MOUNTS) == _own_mounts()
            return Path(os.fsdecode(value)) if is_seen and len(value) <= _LONGEST else None
    return None


def _own_mounts() -> bytes:
    return os.fsencode(os.readlink("/proc/self/ns/mnt"))


def _is_alive(directory: Path, socket: str) -> bool:
    """Whether the node with this state directory has a fork server. One that is another user's counts as alive."""
    try:
        connect(directory / socket).close()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return False
    except OSError:
        return True
    return True


def _children(group: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(group) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _remove_empty(group: Path) -> None:
    for below in _children(group):
        _remove_empty(below)
    for _ in range(_REMOVE_TRIES):
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or _children(group) or _has_processes(group):
                return
            time.sleep(_REMOVE_SECONDS)
        else:
            return


def _has_processes(group: Path) -> bool:
    try:
        return bool((group / "cgroup.procs").read_text())
    except OSError:
        return False
