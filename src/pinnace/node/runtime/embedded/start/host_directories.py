"""Directories of this machine in containers of the image `host`: every file has an owner that no process can be.

Their files keep their modes, but belong to ids that exist in no user namespace. The kernel then grants what their mode
grants to all others, whatever the user, groups and capabilities of a container, and also when a mode changes later. The
supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import errno
import os

from pinnace.node.machine import mounts
from pinnace.node.runtime.embedded.start.pod_users import enter_pod_namespaces

_REFUSED = -2
_NO_ID = 4_294_967_290
"""The only id of the user namespace: no file has it."""


def show_directory(path: str, target: str, users: int) -> None:
    """Mount a directory of this machine, read-only, without the mounts below it.

    `users` is what `users_without_ids` has returned. Raise OSError where root cannot take the owners away. An ordinary
    user's containers have no id of root anyway, and need the mounts below: the kernel shows a user namespace nothing
    that they hide.
    """
    if users == _REFUSED:
        raise OSError(errno.EPERM, "the image host needs user namespaces, which this kernel refuses to root", path)
    tree = mounts.clone_path(path, recursive=users < 0)
    if users >= 0:
        try:
            mounts.map_ids(tree, users)
        except OSError as error:
            message = f"the image host needs idmapped mounts, which this kernel or file system lacks: {error.strerror}"
            raise OSError(error.errno, message, path) from error
    mounts.restrict(tree, mounts.RDONLY | mounts.NODEV)
    mounts.attach_at(tree, target)


def users_without_ids() -> int:
    """Make a user namespace in which no file has an owner, and return it as an open file; -1 if there is no need.

    It takes a process for a moment, which no process of a pod may see: call it before there are pods.
    """
    with open("/proc/self/uid_map") as file:
        if file.read().split() != ["0", "0", str((1 << 32) - 1)]:
            return -1
    try:
        return enter_pod_namespaces([(_NO_ID, os.geteuid(), 1)], 0).namespace
    except OSError:
        return _REFUSED
