"""The state directory of a node: no other user of this machine can read or replace anything in it.

It has Secrets of running pods, the key of the node's certificate, and sockets that run code. An administrator may
have made it beforehand, with any mode; the parts in it belong to this user alone, whatever the umask is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path

from pinnace.node.errors import RuntimeFailure

_PARTS = ("agent", "images", "pki", "runtime")
_FILES = ("agent.lock", "kubeconfig")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OF_OTHERS, _WRITTEN_BY_OTHERS = 0o077, 0o022
_log = logging.getLogger(__name__)


def make_private(directory: Path) -> None:
    """Make the state directory of a node, or correct the modes of one that is there.

    Raise RuntimeFailure if another user could replace parts of it.
    """
    _make(directory)
    top = os.open(directory, _DIRECTORY)
    try:
        _check_top(top, directory)
        for name in _PARTS:
            _make_part(top, name, directory / name)
        for name in _FILES:
            _correct_file(top, name, directory / name)
        keys = os.open("pki", _DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
        try:
            for name in os.listdir(keys):
                if name.endswith(".pem"):
                    _correct_file(keys, name, directory / "pki" / name)
        finally:
            os.close(keys)
    finally:
        os.close(top)


def _make(directory: Path) -> None:
    for above in reversed(directory.parents):
        if not above.exists():
            above.mkdir(mode=0o755, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _check_top(top: int, path: Path) -> None:
    """Only the owner of a directory may rename what is in it, unless its mode or the sticky bit says otherwise."""
    stats = os.fstat(top)
    if not stats.st_mode & _WRITTEN_BY_OTHERS or stats.st_mode & stat.S_ISVTX:
        return
    if stats.st_uid != os.geteuid():
        raise RuntimeFailure(f"other users may write to {path}: chmod go-w {path}, or choose another --directory")
    os.fchmod(top, stat.S_IMODE(stats.st_mode) & ~_WRITTEN_BY_OTHERS)
    _log.warning("other users could write to %s; it is mode %o no longer", path, stat.S_IMODE(stats.st_mode))


def _make_part(top: int, name: str, path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=top)
    try:
        part = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    except OSError as error:
        raise RuntimeFailure(f"{path} is no directory of its own: {error.strerror}") from error
    try:
        _correct(part, path, 0o700)
    finally:
        os.close(part)


def _correct_file(above: int, name: str, path: Path) -> None:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RuntimeFailure(f"{path} cannot be opened: {error.strerror}") from error
    try:
        _correct(file, path, 0o600)
    finally:
        os.close(file)


def _correct(opened: int, path: Path, mode: int) -> None:
    stats = os.fstat(opened)
    if stats.st_uid != os.geteuid():
        raise RuntimeFailure(f"{path} belongs to the user {stats.st_uid}: remove it, or choose another --directory")
    if stats.st_mode & _OF_OTHERS:
        os.fchmod(opened, mode)
        _log.warning("other users could open %s (mode %o); it is mode %o now", path, stats.st_mode & 0o7777, mode)
