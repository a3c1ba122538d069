"""The file system in memory for Secrets, tokens and other data of the API: it never reaches a disk.

The fork server mounts it in its own mount namespace, of which the pods have copies. Other processes see an empty
directory; the agent works in it through an open file. The supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import os

from pinnace.node.machine import linux

MEMORY = "memory"
"""Its place below the state directory of the runtime."""
_SHARE = 4
"""It may take one part in this many of the machine's memory."""


def mount_memory(directory: str) -> None:
    """Mount it, unless an earlier fork server has done so in the mount namespace that this one has joined."""
    path = os.path.join(directory, MEMORY)
    os.makedirs(path, mode=0o700, exist_ok=True)
    if os.path.ismount(path):
        return
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _SHARE
    # Not noexec: pods run scripts from ConfigMaps.
    flags, options = linux.MS_NOSUID | linux.MS_NODEV, f"mode=700,size={size}"
    try:
        linux.mount("tmpfs", path, "tmpfs", flags, f"{options},noswap")
    except OSError:  # An ordinary user may not keep memory from being swapped, and old kernels cannot.
        linux.mount("tmpfs", path, "tmpfs", flags, options)


def open_memory(directory: str) -> int:
    """Open it as this process sees it. Close it soon: a process that is forked meanwhile would inherit it."""
    return os.open(os.path.join(directory, MEMORY), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
