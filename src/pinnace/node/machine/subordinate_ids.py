"""The subordinate ids of an ordinary user: ranges of /etc/subuid and /etc/subgid, mapped by newuidmap and newgidmap.

The fork server imports this module: keep its imports small.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinnace.node.machine import linux

_PLACES = (("uid", "/etc/subuid", "newuidmap"), ("gid", "/etc/subgid", "newgidmap"))
_DIRECTORIES = ("/usr/bin", "/bin", "/usr/local/bin")


class IdMapper(NamedTuple):
    """A program that maps one range of ids: users or groups."""

    program: str
    own: int
    first: int
    length: int

    def arguments(self, pid: int) -> list[str]:
        numbers = (pid, 0, self.own, 1, 1, self.first, self.length)
        return [self.program, *(str(number) for number in numbers)]


def find_mappers() -> list[IdMapper]:
    """The programs that map the ids of this user; empty for root, and where a program or a range is missing."""
    if os.geteuid() == 0:
        return []
    mappers = []
    for kind, file, name in _PLACES:
        program = next((f"{place}/{name}" for place in _DIRECTORIES if os.access(f"{place}/{name}", os.X_OK)), "")
        start, count = _range_of(file)
        if not program or not count:
            return []
        mappers.append(IdMapper(program, os.geteuid() if kind == "uid" else os.getegid(), start, count))
    return mappers


def enter_user_namespace(flags: int = 0) -> int:
    """Enter a new user namespace as its root, with further namespaces. Return the number of ids that exist there.

    It is 1 for a user without subordinate ids.
    """
    uid, gid = os.geteuid(), os.getegid()
    mappers = find_mappers()
    reading, writing = os.pipe()
    child = os.fork() if mappers else 0
    if mappers and child == 0:  # It stays outside: only there the programs may write the maps.
        os.close(writing)
        os._exit(_await_and_map(reading, os.getppid(), mappers))
    os.close(reading)
    linux.unshare(linux.CLONE_NEWUSER | flags)
    if mappers:
        os.write(writing, b"!")
        os.waitpid(child, 0)
    os.close(writing)
    if count_ids("uid_map") > 1 and count_ids("gid_map") > 1:
        return min(count_ids("uid_map"), count_ids("gid_map"))
    for name, own in (("uid_map", uid), ("gid_map", gid)):
        if not count_ids(name):
            with contextlib.suppress(OSError), open("/proc/self/setgroups", "w") as file:
                file.write("deny")
            with open(f"/proc/self/{name}", "w") as file:
                file.write(f"0 {own} 1")
    return 1


def count_ids(name: str) -> int:
    """How many ids `uid_map` or `gid_map` of this process has, all of them from 0 on."""
    with open(f"/proc/self/{name}") as file:
        return sum(int(line.split()[2]) for line in file)


def _await_and_map(reading: int, pid: int, mappers: list[IdMapper]) -> int:
    if not os.read(reading, 1):
        return 1
    codes = [os.spawnv(os.P_WAIT, mapper.program, mapper.arguments(pid)) for mapper in mappers]
    return max(codes)


def _range_of(file: str) -> tuple[int, int]:
    """The largest range of this user; 0 ids if there is none."""
    names = [str(os.geteuid())]
    with contextlib.suppress(KeyError):
        names.append(pwd.getpwuid(os.geteuid()).pw_name)
    ranges = read_ranges(file)
    return max(((0, 0), *(own for name in names for own in ranges.get(name, ()))), key=lambda own: own[1])


def read_ranges(file: str | os.PathLike[str]) -> Mapping[str, Sequence[tuple[int, int]]]:
    """The first ids and numbers of the subordinate ids by user; none if there is no such file."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    with contextlib.suppress(OSError), open(file, errors="replace") as lines:
        for line in lines:
            name, _, rest = line.strip().partition(":")
            first, _, count = rest.partition(":")
            if first.isdecimal() and count.isdecimal():
                ranges.setdefault(name, []).append((int(first), int(count)))
    return ranges
