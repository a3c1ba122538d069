"""The users of a pod: a user namespace, with a range of ids that no other pod and no user has on a node of root.

The process of a container prepares its mounts with the rights of the node, and enters the namespace afterwards. Files
of volumes and images keep the ids that they have on the disk: their mounts are mapped. The pods of an ordinary user
have the ids of its node, since it has no others; their namespaces keep them from the supervisor. The supervisors import
this module: keep its imports small.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Sequence
from typing import NamedTuple

from pinnace.node.machine import linux, mounts

RANGE = 1 << 16
"""How many ids a pod has, as with kubelet."""
_SHARED_LIMITS = (
    resource.RLIMIT_NPROC,
    resource.RLIMIT_MSGQUEUE,
    resource.RLIMIT_SIGPENDING,
    resource.RLIMIT_MEMLOCK,
)
"""The limits that the kernel keeps for a user namespace as a whole."""
_NAMESPACES = {linux.CLONE_NEWNET: "net", linux.CLONE_NEWIPC: "ipc", linux.CLONE_NEWUTS: "uts"}


IdMap = Sequence[tuple[int, int, int]]
"""The lines of a uid_map: the first id inside, the first outside, and their number."""


class PodUsers(NamedTuple):
    """An open user namespace, the id of the node that is root in it, and how many ids it has."""

    namespace: int
    first: int
    length: int


def range_from(first: int) -> IdMap:
    """The ids of a pod of root's node."""
    return [(0, first, RANGE)]


def same_ids(count: int) -> IdMap:
    """All ids of the node of an ordinary user, by the two ranges that it has: a line may not span them."""
    return [(0, 0, 1), *([(1, 1, count - 1)] if count > 1 else [])]


def enter_pod_namespaces(ids: IdMap, flags: int) -> PodUsers:
    """Make a user namespace and those of `flags`, which it owns; enter the others, but stay outside of it."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            _take_kernel_limits(ids[0][1])
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            linux.unshare(linux.CLONE_NEWUSER | flags)
            theirs.send(b"!")
            ours.close()
            theirs.recv(1)
        finally:
            os._exit(1)
    theirs.close()
    try:
        if not ours.recv(1):
            raise OSError("the user namespace of the pod cannot be made")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w") as file:
                file.write("\n".join(f"{inside} {outside} {count}" for inside, outside, count in ids))
        users = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        for flag, name in _NAMESPACES.items():
            if flags & flag:
                namespace = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
                linux.setns(namespace, flag)
                os.close(namespace)
        return PodUsers(users, first=ids[0][1], length=sum(length for _, _, length in ids))
    finally:
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def most_processes_of_pods() -> int:
    """The most processes that the pods of a node may have together: the rest is for the machine, and for the node."""
    numbers = []
    for name in ("pid_max", "threads-max"):
        with open(f"/proc/sys/kernel/{name}") as file:
            numbers.append(int(file.read()))
    return part_of_pods(min(numbers))


def _take_kernel_limits(first: int) -> None:
    """Let the kernel count what the next user namespace of this process takes, such as inotify instances.

    It counts for the user who makes the namespace, with all processes of that user on the machine. On a node of root
    that is the pod's own first id, which no other user has. An ordinary user has no other: a part of each limit is left
    to the processes outside. The kernel does not bound the processes of a namespace of root; control groups do.
    """
    if first:
        os.seteuid(first)
        linux.set_capabilities(-1)
    for limit in _SHARED_LIMITS:
        _, largest = resource.getrlimit(limit)
        mosts = [part_of_pods(largest)] if largest != resource.RLIM_INFINITY else []
        if limit == resource.RLIMIT_NPROC:
            mosts.append(most_processes_of_pods())
        if mosts:
            resource.setrlimit(limit, (min(mosts), largest))


def part_of_pods(number: int) -> int:
    """The part of a limit of the kernel that the pods of an ordinary user may take together from its processes."""
    return number * 3 // 4


def can_map(users: PodUsers, path: str) -> bool:
    """Whether the file systems at and below a path can be shown with the ids of a pod."""
    try:
        source = os.open(path, os.O_PATH)
    except OSError:
        return True  # The process of the container reports that it is missing.
    try:
        tree = mounts.clone(source, recursive=True)
        try:
            mounts.map_ids(tree, users.namespace)
        finally:
            os.close(tree)
    except OSError:
        return False
    finally:
        os.close(source)
    return True


def probe(directory: str) -> PodUsers | None:
    """A user namespace for `can_map`; None if this machine cannot give pods users of their own."""
    try:
        users = enter_pod_namespaces(range_from(RANGE), 0)
    except OSError:
        return None
    if can_map(users, directory) and _can_clone("/usr", users) and can_overlay(directory, users):
        return users
    os.close(users.namespace)
    return None


def _can_clone(path: str, users: PodUsers) -> bool:
    with contextlib.suppress(OSError):
        os.close(clone_mapped(path, users))
        return True
    return False


def can_overlay(directory: str, users: PodUsers | None = None) -> bool:
    """Whether this user may mount overlays: tried once, in a directory of the node.

    With the users of a pod, whether the lower directory may show their ids: from Linux 5.19 on.
    """
    place = os.path.join(directory, "overlay-probe")
    layer, lower, upper, work, root = paths = [os.path.join(place, str(number)) for number in range(5)]
    for path in paths:
        os.makedirs(path, exist_ok=True)
    try:
        if users is not None:
            mounts.attach_at(clone_mapped(layer, users), lower)
        linux.mount("overlay", root, "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work},userxattr")
        linux.unmount(root)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            linux.unmount(lower)
        for path in (os.path.join(work, "work"), *paths, place):
            with contextlib.suppress(OSError):
                os.rmdir(path)
    return True


def clone_mapped(path: str, users: PodUsers | None) -> int:
    """Clone a file or directory of the node with the ids of a pod, or as it is without one."""
    tree = mounts.clone_path(path, recursive=False)
    if users is not None:
        map_tree(tree, users, path)
    return tree


def map_tree(tree: int, users: PodUsers, path: str) -> None:
    """Show a detached mount of this path with the ids of a pod."""
    try:
        mounts.map_ids(tree, users.namespace)
    except OSError as error:
        message = f"failed to set MOUNT_ATTR_IDMAP on {path}: {error.strerror} (its file system cannot map ids)"
        raise OSError(error.errno, message) from None
