"""Trees of files that others have made, such as containers: their disk space, their owners and their removal.

Others decide about these trees: neither depth nor long paths nor links may mislead a walk. Each step is relative to an
open directory, and one directory is open at a time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
import struct
from collections.abc import Callable, Iterator

from pinnace.node.machine import linux

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SEE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BATCH = 1000
"""Entries that are removed before the next look at whether to go on."""
_GET_MARKS, _SET_MARKS = 0x80086601, 0x40086602
_UNREMOVABLE = 0x10 | 0x20
"""FS_IMMUTABLE_FL and FS_APPEND_FL."""
_GROUP_MODE = 0o2070
_STAY = linux.RESOLVE_BENEATH | linux.RESOLVE_NO_SYMLINKS | linux.RESOLVE_NO_XDEV


def sizes_below(top: str) -> dict[str, int]:
    """The disk space below a directory in bytes, by the first two parts of the paths, such as volumes/work."""
    sizes: dict[str, int] = {}
    for parts, size, _ in disk_space(top):
        place = "/".join(parts)
        sizes[place] = sizes.get(place, 0) + size
    return sizes


class RemovalStopped(Exception):
    """The caller no longer wants the tree to be removed: some of it is left."""


def remove_files(top: str, *, above: int | None = None, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """Remove a directory with everything in it; `above` is the open directory in which it is, None for a path.

    Raise PermissionError for files of other users, OSError for a mounted file system, whose files are kept, and
    RemovalStopped soon after `is_stopped` has returned true.
    """
    try:
        place = _Place(top, above, opens_unreadable=True)
    except FileNotFoundError:
        return
    pending: list[list[str]] = []
    try:
        pending.append(_unlink_files(place.fd, is_stopped))
        while pending:
            if pending[-1]:
                try:
                    place.enter(pending[-1].pop())
                except FileNotFoundError:
                    continue  # Two may remove the same tree.
                pending.append(_unlink_files(place.fd, is_stopped))
                continue
            pending.pop()
            if pending:
                _remove_entry(place.leave(), place.fd, os.rmdir)
    finally:
        place.close()
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(top, dir_fd=above)


def give_to_group(top: str, group: int, *, above: int | None = None) -> None:
    """Let a group own a directory and all that is in it, and new files in it too; once, as for every emptyDir.

    The directory itself comes last: an interrupted walk is repeated.
    """
    place = _Place(top, above)
    pending: list[list[str]] = [[]]
    try:
        if _is_given(place.fd, group):
            return
        _give_entries(place, pending[-1], group)
        while pending:
            if pending[-1]:
                with contextlib.suppress(OSError):  # It is gone, or replaced by something else.
                    place.enter(pending[-1].pop())
                    pending.append([])
                    _give_entries(place, pending[-1], group)
                continue
            _give(place.fd, group)
            pending.pop()
            if pending:
                place.leave()
    finally:
        place.close()


class _Place:
    """An open directory in a tree, and the way back to the top."""

    def __init__(self, top: str, above: int | None = None, *, opens_unreadable: bool = False) -> None:
        """`opens_unreadable`: directories that their owner may not read become readable."""
        self._opens_unreadable = opens_unreadable
        self.fd = self._open_top(top, above)
        self.path: list[str] = []
        self._above: list[tuple[int, int]] = []

    def enter(self, name: str) -> None:
        """Raise OSError if it is gone, not a directory any more, or a mounted file system; the place stays then."""
        below = self._open_below(name)
        self._above.append(_identity(self.fd))
        os.close(self.fd)
        self.fd = below
        self.path.append(name)

    def leave(self) -> str:
        """Go up, and return the name of the directory. Raise OSError if it was moved meanwhile."""
        above = os.open("..", _OPEN, dir_fd=self.fd)
        os.close(self.fd)
        self.fd = above
        if _identity(above) != self._above.pop():
            raise OSError(errno.ESTALE, "a directory was moved while its files were read")
        return self.path.pop()

    def close(self) -> None:
        os.close(self.fd)

    def _open_top(self, name: str, above: int | None) -> int:
        try:
            return os.open(name, _OPEN, dir_fd=above)
        except PermissionError:
            self._make_readable(os.open(name, _SEE, dir_fd=above))
            return os.open(name, _OPEN, dir_fd=above)

    def _open_below(self, name: str) -> int:
        try:
            return linux.open_inside(self.fd, name, _OPEN, resolve=_STAY)
        except PermissionError:
            self._make_readable(linux.open_inside(self.fd, name, _SEE, resolve=_STAY))
            return linux.open_inside(self.fd, name, _OPEN, resolve=_STAY)

    def _make_readable(self, seen: int) -> None:
        """Change the mode of this very directory: by its name another could be changed, behind a link."""
        try:
            if not self._opens_unreadable:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            os.chmod(f"/proc/self/fd/{seen}", 0o700)
        finally:
            os.close(seen)


def disk_space(top: str) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """The first two parts of the path, the disk space and the change time of everything below a directory."""
    linked: set[int] = set()
    with contextlib.suppress(OSError):  # It is gone, or a container moves its directories: the sum is incomplete.
        for parts, stats in _entries(top):
            if stats.st_nlink > 1 and not stat.S_ISDIR(stats.st_mode):
                if stats.st_ino in linked:
                    continue
                linked.add(stats.st_ino)
            yield parts, stats.st_blocks * 512, stats.st_ctime_ns


def _entries(top: str) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    place = _Place(top)
    pending: list[list[str]] = [[]]
    try:
        yield from _list(place, pending[-1])
        while pending:
            if pending[-1]:
                with contextlib.suppress(OSError):  # It is gone, or replaced by something else.
                    place.enter(pending[-1].pop())
                    pending.append([])
                    yield from _list(place, pending[-1])
                continue
            pending.pop()
            if pending:
                place.leave()
    finally:
        place.close()


def _list(place: _Place, directories: list[str]) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    """Yield the entries of a directory, and add the names of those that are directories to `directories`."""
    above = place.path[:2]
    with os.scandir(place.fd) as entries:
        for entry in entries:
            try:
                stats = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield (*above, entry.name)[:2], stats
            if stat.S_ISDIR(stats.st_mode):
                directories.append(entry.name)


def _give_entries(place: _Place, directories: list[str], group: int) -> None:
    """Change the group of all entries but directories, and add the names of these to `directories`."""
    for _ in _list(place, directories):
        pass
    for name in set(os.listdir(place.fd)) - set(directories):
        with contextlib.suppress(FileNotFoundError):
            os.chown(name, -1, group, dir_fd=place.fd, follow_symlinks=False)


def _is_given(directory: int, group: int) -> bool:
    stats = os.fstat(directory)
    return stats.st_gid == group and stats.st_mode & _GROUP_MODE == _GROUP_MODE


def _give(directory: int, group: int) -> None:
    os.fchown(directory, -1, group)
    os.fchmod(directory, stat.S_IMODE(os.fstat(directory).st_mode) | _GROUP_MODE)


def _unlink_files(directory: int, is_stopped: Callable[[], bool]) -> list[str]:
    """Remove the entries of a directory other than directories, and return the names of these."""
    names = []
    with os.scandir(directory) as entries:
        while batch := list(itertools.islice(entries, _BATCH)):
            if is_stopped():
                raise RemovalStopped
            for entry in batch:
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                else:
                    _remove_entry(entry.name, directory, os.unlink)
    return names


def _remove_entry(name: str, directory: int, remove: Callable[..., None]) -> None:
    """Remove an entry, also from a directory that its owner may not write, and one that is marked as immutable."""
    with contextlib.suppress(FileNotFoundError):
        try:
            remove(name, dir_fd=directory)
        except PermissionError:
            _clear_marks(name, directory)
            os.fchmod(directory, 0o700)
            remove(name, dir_fd=directory)


def _clear_marks(name: str, directory: int) -> None:
    """Remove the marks immutable and append-only from an entry and its directory, as far as this user may."""
    with contextlib.suppress(OSError):
        _clear_marks_of(directory)
    with contextlib.suppress(OSError):
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        try:
            _clear_marks_of(opened)
        finally:
            os.close(opened)


def _clear_marks_of(opened: int) -> None:
    (marks,) = struct.unpack("i", fcntl.ioctl(opened, _GET_MARKS, bytes(4)))
    if marks & _UNREMOVABLE:
        fcntl.ioctl(opened, _SET_MARKS, struct.pack("i", marks & ~_UNREMOVABLE))


def _identity(directory: int) -> tuple[int, int]:
    stats = os.fstat(directory)
    return stats.st_dev, stats.st_ino
