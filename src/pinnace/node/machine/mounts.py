"""Mounts by open files: what a mount shows and where it is attached are descriptors, and no path is looked up twice.

A container's files may change while its mounts are made: another container of the pod writes to the same volume. The
supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

from pinnace.node.machine.linux import check, libc

RDONLY = 0x1
NOSUID = 0x2
NODEV = 0x4
NOEXEC = 0x8
SAFE = NOSUID | NODEV | NOEXEC
_IDMAP = 0x00100000

_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_EMPTY_PATHS = 0x04 | 0x40
_CLOEXEC = 1
_SET_FLAG, _SET_STRING, _CREATE = 0, 1, 6


def new_file_system(kind: str, options: Sequence[str] = (), attributes: int = 0) -> int:
    """Make a file system, and return it as a detached mount."""
    context = check(int(libc.syscall(_FSOPEN, kind.encode(), _CLOEXEC)), f"mount {kind}")
    try:
        for option in options:
            key, equals, value = option.partition("=")
            command, text = (_SET_STRING, value.encode()) if equals else (_SET_FLAG, None)
            check(int(libc.syscall(_FSCONFIG, context, command, key.encode(), text, 0)), f"mount {kind}: {option}")
        check(int(libc.syscall(_FSCONFIG, context, _CREATE, None, None, 0)), f"mount {kind}")
        return check(int(libc.syscall(_FSMOUNT, context, _CLOEXEC, attributes)), f"mount {kind}")
    finally:
        os.close(context)


def clone(source: int, *, recursive: bool) -> int:
    """Clone the mount of an open file or directory from there on, and return it as a detached mount."""
    flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    return check(int(libc.syscall(_OPEN_TREE, source, b"", flags)), "open_tree")


def clone_path(path: str, *, recursive: bool = True) -> int:
    """Clone the mount of a file or directory, whose path the caller has chosen itself."""
    source = os.open(path, os.O_PATH)
    try:
        return clone(source, recursive=recursive)
    finally:
        os.close(source)


def restrict(tree: int, attributes: int, *, recursive: bool = False) -> None:
    """Add attributes such as RDONLY to a mount, which keeps those that it has."""
    _set_attributes(tree, attributes, recursive=recursive)


def propagate(tree: int, kind: int) -> None:
    """Set the propagation of a mount and of those below it: linux.MS_PRIVATE or linux.MS_SLAVE."""
    _set_attributes(tree, 0, propagation=kind, recursive=True)


def map_ids(tree: int, users: int) -> None:
    """Show the files of a detached mount, and of those below it, with the ids of a user namespace."""
    _set_attributes(tree, _IDMAP, users=users, recursive=True)


def attach(tree: int, target: int) -> None:
    """Attach a detached mount to an open directory or file."""
    check(int(libc.syscall(_MOVE_MOUNT, tree, b"", target, b"", _MOVE_EMPTY_PATHS)), "move_mount")


def attach_at(tree: int, path: str) -> None:
    """Attach a detached mount at a path that the caller has chosen itself, and close it."""
    point = os.open(path, os.O_PATH)
    try:
        attach(tree, point)
    finally:
        os.close(point)
        os.close(tree)


def _set_attributes(tree: int, attributes: int, *, propagation: int = 0, users: int = 0, recursive: bool) -> None:
    what = struct.pack("=QQQQ", attributes, 0, propagation, users)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    check(int(libc.syscall(_MOUNT_SETATTR, tree, b"", flags, what, ctypes.c_size_t(len(what)))), "mount_setattr")
