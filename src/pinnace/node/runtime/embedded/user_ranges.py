"""The ranges of user ids that pods have on a node of root. A range belongs to one sandbox until it is removed.

The sandboxes keep their ranges in the state of the node, so that a restarted agent never gives one away twice. All
nodes of a machine share the record of `RangeClaims`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pinnace.node.errors import SandboxFailed
from pinnace.node.machine.subordinate_ids import read_ranges
from pinnace.node.runtime.embedded.connections.fork_server_client import ForkServerClient
from pinnace.node.runtime.embedded.start.pod_users import RANGE
from pinnace.node.runtime.runtime import SandboxConfig

PLACE = Path("/run/pinnace/user-ranges")
"""The record, in memory: no pod lives on after a restart of the machine."""
_LOCK = "lock"
_USER = "kubelet"
_LARGEST = 1 << 31
_MOST = 1024
"""How many ranges there are without an entry in /etc/subuid: a node takes fewer pods."""


class RangeClaims:
    """The ranges that the nodes of this machine have given to their pods: one symbolic link for each.

    Its name is the first id of the range, and its target names the mount namespace and the directory of the pod. To
    make a link is to claim the range: the kernel lets one node succeed. The claim of a killed node is removed by the
    next one that looks, once the directory of the pod is gone. A claim is made after that directory, and released
    before it is removed.
    """

    def __init__(self, place: Path = PLACE) -> None:
        self._place = place
        self._mounts = os.readlink("/proc/self/ns/mnt")

    def claim(self, first: int, owner: Path) -> bool:
        """Take a range for a pod, by its directory. Return False if another pod has it.

        Where root cannot write the record, in a container for example, each node goes by its own pods alone.
        """
        try:
            self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.symlink(self._target(owner), self._place / str(first))
        except FileExistsError:
            return self._owner(first) == self._target(owner)
        except OSError:
            return True
        return True

    def release(self, first: int, owner: Path) -> None:
        """Give a range back, while the directory of its pod exists: until then no other node can have the range."""
        if self._owner(first) == self._target(owner):
            with contextlib.suppress(OSError):
                os.unlink(self._place / str(first))

    def remove_leftovers(self, pods: Path, known: Collection[Path]) -> None:
        """Remove the claims of pods whose directories are gone, and those below `pods` that are not `known`.

        It does nothing while another node does the same.
        """
        try:
            lock = os.open(self._place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(self._place):
                if name != _LOCK and self._is_left(name, pods, known):
                    os.unlink(self._place / name)
        except OSError:
            return
        finally:
            os.close(lock)

    def _is_left(self, name: str, pods: Path, known: Collection[Path]) -> bool:
        mounts, _, directory = os.readlink(self._place / name).partition(" ")
        if mounts != self._mounts:  # A node that sees other directories.
            return False
        owner = Path(directory)
        return owner not in known if owner.parent == pods else not owner.exists()

    def _target(self, owner: Path) -> str:
        return f"{self._mounts} {owner}"

    def _owner(self, first: int) -> str:
        try:
            return os.readlink(self._place / str(first))
        except OSError:
            return ""


class UserRanges:
    """The ranges of one node."""

    def __init__(
        self,
        pods: Path,
        taken: Mapping[Path, int],
        *,
        files: tuple[Path, Path] = (Path("/etc/subuid"), Path("/etc/subgid")),
        claims: RangeClaims | None = None,
    ) -> None:
        """`taken` are the ranges of the sandboxes in the directory `pods`, by their directories."""
        self._pods = pods.absolute()
        self._taken = {directory.absolute(): first for directory, first in taken.items() if first}
        self._claims = claims or RangeClaims()
        self._ranges = _free_ranges(*files)
        self._claims.remove_leftovers(self._pods, self._taken)
        for directory, first in self._taken.items():  # After a restart of the machine there is no record.
            self._claims.claim(first, directory)

    async def choose(self, directory: Path, config: SandboxConfig, node: ForkServerClient) -> int:
        """Return the first user id of a new sandbox, 0 for the node's own users. Raise SandboxFailed.

        `directory` is that of the sandbox, which exists already.
        """
        abilities = await node.abilities()
        if config.host_users is True or not abilities.is_root:  # An ordinary user's pods never have the node's users.
            return 0
        can_map = abilities.has_pod_users
        if can_map and config.shared_paths:
            reply, _ = await node.request({"op": "can_map", "paths": list(config.shared_paths)})
            can_map = reply["can_map"]
        if can_map:
            return self.allocate(directory)
        if config.host_users is False:
            raise SandboxFailed("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
        return 0

    def allocate(self, directory: Path) -> int:
        """Return the first id of a free range. Raise SandboxFailed."""
        owner = directory.absolute()
        for first in self._unclaimed(owner):
            self._taken[owner] = first
            return first
        raise SandboxFailed("can't allocate user namespace: could not find an empty slot to allocate a user namespace")

    def release(self, directory: Path) -> None:
        """Give back the range of a sandbox, if it has one, before its directory is removed."""
        owner = directory.absolute()
        first = self._taken.pop(owner, 0)
        if first:
            self._claims.release(first, owner)

    def _unclaimed(self, owner: Path) -> Iterator[int]:
        """Claim and yield free ranges; when there are none, look once more without those of killed nodes."""
        for _ in range(2):
            own = set(self._taken.values())
            for first in self._ranges:
                if first not in own and self._claims.claim(first, owner):
                    yield first
            self._claims.remove_leftovers(self._pods, [*self._taken, owner])


def _free_ranges(users: Path, groups: Path) -> Sequence[int]:
    """The first ids of the ranges for pods, as for kubelet: the same for users and groups.

    Without an entry for kubelet, those that no user of the machine has as subordinate ids.
    """
    of_users, of_groups = read_ranges(users), read_ranges(groups)
    own = [of[_USER][0] for of in (of_users, of_groups) if _USER in of]
    if len(own) == len((users, groups)) and own[0] == own[1]:
        first, count = own[0]
        start = -(-max(first, RANGE) // RANGE) * RANGE
        return range(start, min(first + count, _LARGEST) - RANGE + 1, RANGE)
    others = [entry for of in (of_users, of_groups) for entries in of.values() for entry in entries]
    return [
        first
        for first in range(RANGE, RANGE * (_MOST + 1), RANGE)
        if not any(first < start + count and start < first + RANGE for start, count in others)
    ]
