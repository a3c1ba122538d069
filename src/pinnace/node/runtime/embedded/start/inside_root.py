"""Finds the paths and users that an image or a pod names, below the root of a container: no link leads out of it.

Magic links such as /proc/self/fd/7 are refused everywhere: they lead to open files, wherever these are.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from pinnace.node.machine import linux
from pinnace.node.machine.messages import Message
from pinnace.node.runtime.user_ids import LARGEST_ID, id_of

_MAX_FILE = 1 << 20


def open_directory(root: int, path: str) -> int:
    """Open a directory; make it, and those above it, if they are missing."""
    return open_place(root, path, is_directory=True, flags=os.O_PATH | os.O_DIRECTORY)


def open_place(root: int, path: str, *, is_directory: bool, mode: int = 0o755, flags: int = os.O_PATH) -> int:
    """Open a directory or file; make it, and the directories above it, if they are missing."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    try:
        return linux.open_inside(root, "/".join(parts) or ".", flags)
    except FileNotFoundError:
        pass
    above = linux.open_inside(root, ".", os.O_PATH)
    for count, name in enumerate(parts, start=1):
        place = "/".join(parts[:count])
        is_last = count == len(parts)
        try:
            opened = linux.open_inside(root, place, flags if is_last else os.O_PATH)
        except FileNotFoundError:
            if is_directory or not is_last:
                os.mkdir(name, mode, dir_fd=above)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644, dir_fd=above))
            opened = linux.open_inside(root, place, flags if is_last else os.O_PATH)
        os.close(above)
        above = opened
    return above


def open_mount_point(root: int, name: str) -> int:
    """Open a directory on which the runtime mounts a file system of the kernel; a link in its place is refused."""
    os.close(open_place(root, name, is_directory=True))
    try:
        return linux.open_inside(
            root, name, os.O_PATH | os.O_DIRECTORY, resolve=linux.RESOLVE_IN_ROOT | linux.RESOLVE_NO_SYMLINKS
        )
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            message = f"/{name} of the image must be a directory: the runtime mounts a file system on it"
            raise OSError(error.errno, message) from None
        raise


# The user: ids from its configuration, names and groups from the image's own /etc/passwd


class ContainerUser(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def find_user(wanted: Message, root: int) -> ContainerUser:
    """Resolve a user as `launches` states it. Raise OSError if the image has no user or group of that name.

    `root` is the open root directory of the container.
    """
    user = _find_user(wanted, root)
    if max(user.uid, user.gid, *user.groups) > LARGEST_ID:
        raise OSError(f"uids and gids must be in range 0-{LARGEST_ID}")
    return user


def _find_user(wanted: Message, root: int) -> ContainerUser:
    """A number is that user, even if the image has a user of that name: it would be root in the place of another."""
    name, _, group = str(wanted["name"]).partition(":")
    uid, gid = wanted["uid"], wanted["gid"]
    if uid is None:
        uid = id_of(name or "0")
    users = _rows(root, "etc/passwd", 6)
    entry = next((row for row in users if (row[0] == name if uid is None else id_of(row[2]) == uid)), None)
    if uid is None:
        if entry is None:
            raise OSError(f"unable to find user {name}: no matching entries in passwd file")
        uid = int(entry[2])
    if gid is None and group:
        gid = _group_id(group, root)
    if gid is None:
        gid = int(entry[3]) if entry is not None else 0
    members = _memberships(entry[0], root) if entry is not None and wanted["has_image_groups"] else ()
    groups = tuple(dict.fromkeys([gid, *members, *wanted["groups"]]))
    return ContainerUser(uid, gid, groups, entry[5] if entry is not None else "/")


def _memberships(name: str, root: int) -> list[int]:
    """The groups that list a user as a member."""
    return [int(row[2]) for row in _rows(root, "etc/group", 4) if name and name in row[3].split(",")]


def _group_id(group: str, root: int) -> int:
    number = id_of(group)
    if number is not None:
        return number
    for row in _rows(root, "etc/group", 4):
        if group == row[0]:
            return int(row[2])
    raise OSError(f"unable to find group {group}: no matching entries in group file")


def _rows(root: int, path: str, width: int) -> Iterator[list[str]]:
    """The rows of a file of users or groups, whose numbers are numbers."""
    for line in _read_text(root, path).splitlines():
        row = line.split(":")
        numbers = row[2:3] if path.endswith("group") else row[2:4]
        if len(row) >= width and all(id_of(number) is not None for number in numbers):
            yield row


def _read_text(root: int, path: str) -> str:
    """Read the beginning of a plain file; empty if there is none. A pipe in its place does not block."""
    try:
        fd = linux.open_inside(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return os.read(fd, _MAX_FILE).decode(errors="replace")
    finally:
        os.close(fd)
