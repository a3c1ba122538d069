"""Volumes of the kind hostPath: files and directories of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from pinnace.model.typed_objects import HostPathVolumeSource
from pinnace.node.errors import RuntimeFailure

_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_LINKS = 40


class MountFailed(RuntimeFailure):
    """A volume cannot be set up: the pod waits in ContainerCreating, and an Event FailedMount gives the reason."""

    reason = "FailedMount"


def check_host_path(name: str, stated: HostPathVolumeSource, *, mode: int = 0o755) -> str:
    """Check the type of a hostPath, and make what it allows to make."""
    path, kind = Path(stated["path"]), stated.get("type") or ""
    if "\0" in stated["path"]:
        raise mount_failed(name, f"the path has a NUL byte: {stated['path']!r}")
    if kind == "DirectoryOrCreate" and not path.exists():
        _make_directory(path, mode)
    elif kind == "FileOrCreate" and not path.exists():
        _make_file(path)
    checks = {
        "": path.exists,
        "DirectoryOrCreate": path.is_dir,
        "Directory": path.is_dir,
        "FileOrCreate": path.is_file,
        "File": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    if not checks[kind]():
        if not kind:  # As container engines do.
            _make_directory(path, 0o755)
        else:
            words = {"Directory": "a directory", "File": "a file", "Socket": "a socket file"}
            raise mount_failed(name, f"hostPath type check failed: {path} is not {words.get(kind, kind)}")
    return str(path)


def _make_directory(path: Path, mode: int) -> None:
    """Make a directory and the missing ones above it, as `_open_trusted` reaches them."""
    above = _open_trusted(path.parent, make_missing=True)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, mode, dir_fd=above)
        made = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        try:
            os.fchmod(made, mode)
        finally:
            os.close(made)
    finally:
        os.close(above)


def _make_file(path: Path) -> None:
    above = _open_trusted(path.parent, make_missing=False)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        os.close(os.open(path.name, flags, 0o644, dir_fd=above))
    finally:
        os.close(above)


def _open_trusted(path: Path, *, make_missing: bool) -> int:
    """Open a directory in which something is to be made. Raise OSError for a link that other users may have put there.

    A pod can put a link into a volume that it may write to: a hostPath below it must not make directories elsewhere.
    Links in directories that only their owner may write to, such as /var/run, are followed.
    """
    pending, links = list(reversed(path.absolute().parts[1:])), 0
    opened = [os.open("/", _PLACE)]
    try:
        while pending:
            name = pending.pop()
            if name == ".." and len(opened) > 1:
                os.close(opened.pop())
                continue
            target = _trusted_link(opened[-1], name, path)
            if target:
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                pending += reversed([part for part in target.split("/") if part not in ("", ".")])
                while target.startswith("/") and len(opened) > 1:
                    os.close(opened.pop())
                continue
            if make_missing:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=opened[-1])
            opened.append(os.open(name, _PLACE | os.O_NOFOLLOW, dir_fd=opened[-1]))
        return opened.pop()
    finally:
        for fd in opened:
            os.close(fd)


def _trusted_link(above: int, name: str, path: Path) -> str:
    """Return the target of a link that no other user can have made; empty for anything but a link."""
    try:
        target = os.readlink(name, dir_fd=above)
    except OSError:
        return ""
    stats = os.fstat(above)
    if stats.st_mode & 0o022 or stats.st_uid not in (0, os.geteuid()):
        raise OSError(errno.ELOOP, f"{name} is a link that other users may have made", str(path))
    return target


def mount_failed(name: str, message: str) -> MountFailed:
    return MountFailed(f'MountVolume.SetUp failed for volume "{name}" : {message}')
