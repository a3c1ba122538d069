"""Mounts that the agent makes for a container: those that pass to it or to the node, and file systems of devices.

The agent of root lives in the mount namespace of the machine. It clones the source of such a volume there, and the
process of the container attaches the clone, which is a peer of the original: no namespace in between is involved.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pinnace.node.errors import ConfigRefused
from pinnace.node.machine import linux
from pinnace.node.machine.mounts import clone, clone_path, new_file_system
from pinnace.node.runtime.runtime import Mount, Propagation, TemporaryFileSystem


def check_propagation(mounts: Sequence[Mount]) -> None:
    """Raise ConfigRefused if mounts of a container cannot reach the node."""
    for mount in mounts:
        if mount.propagation is not Propagation.BIDIRECTIONAL:
            continue
        if os.geteuid() != 0:
            raise ConfigRefused(
                f"the mount propagation of {mount.container_path} is Bidirectional, "
                "which needs an agent that runs as root"
            )
        point, is_shared = _mount_of(mount.host_path)
        if not is_shared:
            raise ConfigRefused(f'path "{mount.host_path}" is mounted on "{point}" but it is not a shared mount')


@contextlib.contextmanager
def cloned_sources(mounts: Sequence[Mount], memory: Sequence[TemporaryFileSystem]) -> Iterator[dict[int, int]]:
    """Yield open files of the cloned sources by the number of their mount, and close them. Only root can make them.

    Directories in `memory` exist in the pod's own mount namespace alone.
    """
    descriptors: dict[int, int] = {}
    inside = {mount.path for mount in memory}
    try:
        for number, mount in enumerate(mounts if os.geteuid() == 0 else ()):
            if mount.file_system is not None:
                descriptors[number] = new_file_system(mount.file_system.kind, mount.file_system.mount_options)
            elif mount.propagation is not Propagation.PRIVATE and not mount.image and mount.host_path not in inside:
                with contextlib.suppress(OSError):  # It is missing: the process of the container reports it.
                    descriptors[number] = _clone(mount)
        yield descriptors
    finally:
        for tree in descriptors.values():
            os.close(tree)


def _clone(mount: Mount) -> int:
    if not mount.sub_path:
        return clone_path(mount.host_path)
    with contextlib.ExitStack() as stack:
        volume = os.open(mount.host_path, os.O_PATH)
        stack.callback(os.close, volume)
        source = linux.open_inside(volume, mount.sub_path, os.O_PATH, resolve=linux.RESOLVE_BENEATH)
        stack.callback(os.close, source)
        return clone(source, recursive=True)


def _mount_of(path: str) -> tuple[str, bool]:
    """The mount point that holds a path, and whether mounts below it are shared with other namespaces."""
    fd = os.open(path, os.O_PATH)
    try:
        lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    finally:
        os.close(fd)
    identity = next(line.split()[1] for line in lines if line.startswith("mnt_id:"))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.partition(" - ")[0].split()
        if fields[0] == identity:
            return fields[4], any(field.startswith("shared:") for field in fields[6:])
    return "/", False
