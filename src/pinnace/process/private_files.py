"""Files of one user alone: written so, and refused where other users of this machine can read or change them."""

from __future__ import annotations

import errno
import logging
import os
import pwd
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

_GROUP, _GROUP_WRITE, _OTHERS = 0o070, 0o020, 0o007
_ROOT = 0
_PRIVATE_NAMES = ("state.db", "token", "kubeconfig")

log = logging.getLogger(__name__)


class UnsafeFile(PermissionError):
    """Another user can read or change a file or directory that must be ours alone. The message names the fix."""


def write_private(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file that only its owner may read. A reader sees the old content or the new, never a part.

    `durable` waits for the disk, for what could not be made anew after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        hint = "; free space on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise OSError(error.errno, f"{path} could not be written: {error.strerror}{hint}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_private(path: Path, what: str, *, is_shared: bool = False) -> None:
    """Raise UnsafeFile if a user beside its owner can read or write a file, or if another user owns it.

    The group of a file may read it if root owns it, or with `is_shared`. A missing file is for its reader to report.
    """
    try:
        status = path.stat()
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode):
        return  # A pipe of the shell, or a device.
    _check_owner(path, status, what)
    mode = stat.S_IMODE(status.st_mode)
    may_group_read = is_shared or status.st_uid == _ROOT != os.geteuid()
    exposed = mode & (_OTHERS | (_GROUP_WRITE if may_group_read else _GROUP))
    if exposed:
        raise UnsafeFile(f"{what} {path} has mode {mode:04o}, so other users can {_acts(exposed)} it: chmod 600 {path}")


def check_data_directory(directory: Path) -> None:
    """Make a data directory and its secrets ours alone, and log each change. Raise UnsafeFile where that is not enough.

    Another user who could write to the directory may have left files or links there: none of them is trusted.
    """
    for ancestor in directory.resolve().parents:
        status = ancestor.stat()
        # Not the group: that of most users' directories has this user alone.
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            log.warning("other users can replace the data directory, since they may write to %s", ancestor)
    status = directory.stat()
    _check_owner(directory, directory.lstat(), "the data directory")
    _check_owner(directory, status, "the data directory")
    if status.st_mode & (_GROUP_WRITE | stat.S_IWOTH):
        if status.st_mode & stat.S_ISVTX:
            raise UnsafeFile(f"the data directory {directory} is shared by all users; choose another --data-dir")
        _narrow(directory, stat.S_IMODE(status.st_mode) & ~(_GROUP_WRITE | stat.S_IWOTH))
    for path in _parts(directory):
        status = path.lstat()
        _check_owner(path, status, "the data directory has")
        if stat.S_ISLNK(status.st_mode):
            if not path.exists():
                raise UnsafeFile(
                    f"{path} is a link to {path.readlink()}, which is missing; restore it or remove the link"
                )
            status = path.stat()
            _check_owner(path, status, "the data directory has")
        if stat.S_ISDIR(status.st_mode):
            mode = stat.S_IMODE(status.st_mode) & ~(_GROUP_WRITE | stat.S_IWOTH)
            if mode != stat.S_IMODE(status.st_mode):
                _narrow(path, mode)
        elif _is_secret(directory, path) and status.st_mode & (_GROUP | _OTHERS):
            _narrow(path, 0o600)


def _parts(directory: Path) -> Iterator[Path]:
    """Yield what the server trusts: the entries of the directory and of its pki."""
    yield from directory.iterdir()
    pki = directory / "pki"
    if pki.is_dir():
        yield from pki.iterdir()


def _is_secret(directory: Path, path: Path) -> bool:
    return path.parent != directory or path.name.startswith(_PRIVATE_NAMES)


def _narrow(path: Path, mode: int) -> None:
    log.warning("%s had mode %04o and now has %04o", path, stat.S_IMODE(path.stat().st_mode), mode)
    path.chmod(mode)


def _check_owner(path: Path, status: os.stat_result, what: str) -> None:
    own = os.geteuid()
    if status.st_uid not in (own, _ROOT):
        fix = f"chown {_name_of(own)} {path}, or run as its owner"
        raise UnsafeFile(f"{what} {path}, which belongs to {_name_of(status.st_uid)} and not to {_name_of(own)}: {fix}")


def _acts(exposed: int) -> str:
    reads, writes = exposed & 0o044, exposed & 0o022
    return " and ".join(verb for verb, is_possible in (("read", reads), ("write", writes)) if is_possible) or "run"


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"
