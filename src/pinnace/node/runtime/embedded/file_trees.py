"""Trees of files that containers have made: their disk space, and their removal.

Containers decide about these trees: neither depth nor long paths nor links may mislead a walk. Each step is relative to
an open directory, and one directory is open at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def sizes_below(top: str) -> dict[str, int]:
    """The disk space below a directory in bytes, by the first two parts of the paths, such as volumes/work."""
    sizes: dict[str, int] = {}
    for parts, size, _ in _sizes(top):
        place = "/".join(parts)
        sizes[place] = sizes.get(place, 0) + size
    return sizes


def size_of_layer(directory: str) -> int:
    """The disk space of all that a container has changed in its image since its launch file was written.

    `directory` is that of the container. Changes are in the upper directory of its overlays, and in its root where that
    is a plain directory: files that were there before the start have an older change time, which no process can set.
    """
    try:
        began = os.stat(os.path.join(directory, "launch.json")).st_mtime_ns
    except FileNotFoundError:
        return 0
    tops = (os.path.join(directory, name) for name in ("upper", "root"))
    return sum(size for top in tops for _, size, changed in _sizes(top) if changed > began)


def remove_files(top: str) -> None:
    """Remove a directory with everything in it. Raise PermissionError for files of other users."""
    try:
        place = _Place(top, opens_unreadable=True)
    except FileNotFoundError:
        return
    pending = [_unlink_files(place.fd)]
    try:
        while pending:
            if pending[-1]:
                try:
                    place.enter(pending[-1].pop())
                except FileNotFoundError:
                    continue  # Two may remove the same tree.
                pending.append(_unlink_files(place.fd))
                continue
            pending.pop()
            if pending:
                _remove_entry(place.leave(), place.fd, os.rmdir)
    finally:
        place.close()
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(top)


class _Place:
    """An open directory in a tree, and the way back to the top."""

    def __init__(self, top: str, *, opens_unreadable: bool = False) -> None:
        """`opens_unreadable`: directories that their owner may not read become readable."""
        self._opens_unreadable = opens_unreadable
        self.fd = self._open(top)
        self.path: list[str] = []
        self._above: list[tuple[int, int]] = []

    def enter(self, name: str) -> None:
        """Raise OSError if it is gone or not a directory any more; the place stays then."""
        below = self._open(name, self.fd)
        self._above.append(_identity(self.fd))
        os.close(self.fd)
        self.fd = below
        self.path.append(name)

    def leave(self) -> str:
        """Go up, and return the name of the directory. Raise OSError if it was moved meanwhile."""
        above = self._open("..", self.fd)
        os.close(self.fd)
        self.fd = above
        if _identity(above) != self._above.pop():
            raise OSError(errno.ESTALE, "a directory was moved while its files were read")
        return self.path.pop()

    def close(self) -> None:
        os.close(self.fd)

    def _open(self, name: str, above: int | None = None) -> int:
        try:
            return os.open(name, _OPEN, dir_fd=above)
        except PermissionError:
            if not self._opens_unreadable:
                raise
            os.chmod(name, 0o700, dir_fd=above)
            return os.open(name, _OPEN, dir_fd=above)


def _sizes(top: str) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """The first two parts of the path, the disk space and the change time of everything below a directory."""
    linked: set[int] = set()
    with contextlib.suppress(OSError):  # It is gone, or a container moves its directories: the sum is incomplete.
        for parts, found in _entries(top):
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                if found.st_ino in linked:
                    continue
                linked.add(found.st_ino)
            yield parts, found.st_blocks * 512, found.st_ctime_ns


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
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield (*above, entry.name)[:2], found
            if stat.S_ISDIR(found.st_mode):
                directories.append(entry.name)


def _unlink_files(directory: int) -> list[str]:
    """Remove the entries of a directory other than directories, and return the names of these."""
    names = []
    with os.scandir(directory) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
            else:
                _remove_entry(entry.name, directory, os.unlink)
    return names


def _remove_entry(name: str, directory: int, remove: Callable[..., None]) -> None:
    """Remove an entry, also from a directory that its owner may not write."""
    with contextlib.suppress(FileNotFoundError):
        try:
            remove(name, dir_fd=directory)
        except PermissionError:
            os.fchmod(directory, 0o700)
            remove(name, dir_fd=directory)


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino
