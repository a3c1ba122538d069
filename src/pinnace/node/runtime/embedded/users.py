"""The user of a container: ids from its configuration, names and groups from the image's own /etc/passwd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from pinnace.node.runtime.embedded.messages import Message

_MAX_FILE = 1 << 20


class ContainerUser(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def find_user(wanted: Message, root: str) -> ContainerUser:
    """Resolve `uid`, `name`, `gid` and `groups`. Raise OSError if the image has no user or group of that name."""
    name, _, group = str(wanted["name"]).partition(":")
    uid, gid = wanted["uid"], wanted["gid"]
    if uid is not None:
        name = str(uid)
    name = name or "0"
    entry = next((row for row in _rows(root, "etc/passwd", 6) if name in (row[0], row[2])), None)
    if entry is None and not name.isdecimal():
        raise OSError(f"unable to find user {name}: no matching entries in passwd file")
    uid = int(entry[2]) if entry is not None else int(name)
    if gid is None and group:
        gid = _group_id(group, root)
    if gid is None:
        gid = int(entry[3]) if entry is not None else 0
    named = entry[0] if entry is not None else name
    members = [int(row[2]) for row in _rows(root, "etc/group", 4) if named in row[3].split(",") and row[2].isdecimal()]
    groups = tuple(dict.fromkeys([gid, *members, *wanted["groups"]]))
    return ContainerUser(uid, gid, groups, entry[5] if entry is not None else "/")


def _group_id(group: str, root: str) -> int:
    for row in _rows(root, "etc/group", 4):
        if group in (row[0], row[2]) and row[2].isdecimal():
            return int(row[2])
    if group.isdecimal():
        return int(group)
    raise OSError(f"unable to find group {group}: no matching entries in group file")


def _rows(root: str, path: str, width: int) -> Iterator[list[str]]:
    try:
        with open(os.path.join(root, path), errors="replace") as file:
            text = file.read(_MAX_FILE)
    except OSError:
        return
    for line in text.splitlines():
        row = line.split(":")
        if len(row) >= width and (path.endswith("group") or (row[2].isdecimal() and row[3].isdecimal())):
            yield row
