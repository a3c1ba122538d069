"""The root of a container: its file systems, devices, volumes and masks, until nothing of the node is left in it.

It is built by a process that no process of the pod can see, and that has the rights of the node. Each mount is made
and attached by open files, and what the image or the pod names is opened inside the new root alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from pinnace.node.machine import linux, messages, mounts
from pinnace.node.runtime.embedded.start.host_directories import show_directory
from pinnace.node.runtime.embedded.start.inside_root import open_mount_point, open_place
from pinnace.node.runtime.embedded.start.pod_users import PodUsers, clone_mapped, map_tree

_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_LINKS = {
    **{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"},
    "ptmx": "pts/ptmx",
}
_PROPAGATION = {"private": linux.MS_PRIVATE, "host-to-container": linux.MS_SLAVE, "bidirectional": 0}
"""How a volume is changed before it is attached: one that passes mounts both ways stays a peer of its source."""
_OPTIONS = {"nodev": mounts.NODEV, "noexec": mounts.NOEXEC, "nosuid": mounts.NOSUID}
_FILES_OF_PROC = frozenset(
    f"/proc/{name}"
    for name in (
        *("cpuinfo", "diskstats", "meminfo", "stat", "swaps", "uptime", "loadavg", "slabinfo", "net/dev"),
        *("sys/kernel/ns_last_pid", "sys/crypto/fips_enabled"),
    )
)
"""The files of /proc on which a volume may be mounted, as in runc: file systems that show the limits of a container."""


def build_root(spec: messages.Message, proc: int, users: PodUsers | None) -> int:
    """Make the mounts of a container, make its root the root of this process, and return its terminals, an open file.

    `proc` is a detached mount of /proc, and `users` are those of the pod, None for the node's. Masks are in place
    before the process can leave the old root, and so before anything below them is open.
    """
    parts = _mount_root(spec, users)
    root = os.open(spec["root"], os.O_PATH | os.O_DIRECTORY)
    if users is not None:
        linux.set_file_owner(users.first)
    _mount_sys(root, spec)
    dev, devpts = _mount_devices(root, spec, users)
    null = _inside(root, "dev/null")  # The device that was checked, before a volume can hide it.
    mounts.attach(proc, open_mount_point(root, "proc"))
    for number, mount in enumerate(spec["mounts"]):
        _mount_volume(root, mount, spec, tree=spec["trees"].get(number, -1), users=users)
    if not spec["privileged"]:
        _hide_paths(root, spec, null)
    if spec["read_only_root"]:
        for part in (*parts, dev):
            mounts.restrict(part, mounts.RDONLY)
    os.fchdir(root)
    linux.pivot_root(".", ".")
    linux.unmount(".")
    os.chdir("/")
    return devpts


def node_proc() -> int:
    """The processes of the node, as a detached mount."""
    try:
        return mounts.new_file_system("proc", (), mounts.SAFE)
    except PermissionError:  # The node's process namespace belongs to another user namespace.
        tree = mounts.clone_path("/proc")
        mounts.restrict(tree, mounts.SAFE, recursive=True)
        return tree


def _mount_root(spec: messages.Message, users: PodUsers | None) -> list[int]:
    """Mount the overlays and binds, and return them as open files: volumes may hide them afterwards.

    A root that is no overlay itself becomes a mount, which pivot_root needs.
    """
    attributes = 0 if spec["privileged"] else mounts.NODEV
    parts = []
    if not any(overlay["at"] == "" for overlay in spec["overlays"]):
        _attach_at(spec["root"], clone_mapped(spec["root"], users), attributes)
        parts.append(os.open(spec["root"], os.O_PATH))
    for overlay in spec["overlays"]:
        _mount_overlay(overlay, spec, attributes, users)
        parts.append(os.open(os.path.join(spec["root"], overlay["at"]), os.O_PATH))
    for bind in spec["root_binds"]:
        target = os.path.join(spec["root"], bind["at"])
        if bind["is_host"]:
            show_directory(bind["source"], target, spec["users_without_ids"])
        else:
            _attach_at(target, clone_mapped(bind["source"], users), attributes | mounts.RDONLY)
        parts.append(os.open(target, os.O_PATH))
    return parts


def _mount_overlay(overlay: messages.Message, spec: messages.Message, attributes: int, users: PodUsers | None) -> None:
    target, lower, directory = os.path.join(spec["root"], overlay["at"]), overlay["lower"], spec["lower_directory"]
    if users is not None:
        for place, _, _ in os.walk(_unescape(overlay["upper"])):
            os.chown(place, users.first, users.first)
    if overlay["is_host"]:
        show_directory(f"/{overlay['at']}", target, spec["users_without_ids"])
        lower, directory = overlay["at"], spec["root"]
    elif users is not None:
        lower, directory = _map_layers(spec, overlay, users)
    os.chdir(directory)
    # Volatile: no container outlives a crash of the machine, and without it each unmount waits for the whole disk.
    options = f"lowerdir={lower},upperdir={overlay['upper']},workdir={overlay['work']},userxattr,volatile"
    try:
        linux.mount("overlay", target, "overlay", attributes, options)
    except OSError as error:
        # The kernel refuses to show a user namespace a directory without the mounts in it, and before Linux 5.19 one
        # without owners: it is read-only then.
        if error.errno != errno.EINVAL or not overlay["is_host"]:
            raise


def _map_layers(spec: messages.Message, overlay: messages.Message, users: PodUsers) -> tuple[str, str]:
    """Attach the lower directories with the ids of the pod, and return their names and their directory."""
    place = os.path.join(os.path.dirname(spec["root"]), "layers", overlay["at"].replace("/", "-") or "all")
    os.makedirs(place)
    is_one = overlay["lower"].startswith("/")
    source = _unescape(overlay["lower"]) if is_one else spec["lower_directory"]
    _attach_at(place, clone_mapped(source, users), 0)
    return "." if is_one else overlay["lower"], place


def _attach_at(path: str, tree: int, attributes: int) -> None:
    """Attach a detached mount at a path of the node."""
    mounts.restrict(tree, attributes)
    mounts.attach_at(tree, path)


def _unescape(path: str) -> str:
    return path.replace("\\,", ",").replace("\\:", ":").replace("\\\\", "\\")


def _mount_sys(root: int, spec: messages.Message) -> None:
    attributes = mounts.SAFE | (0 if spec["privileged"] else mounts.RDONLY)
    try:
        tree = mounts.new_file_system("sysfs", (), attributes)
    except PermissionError:  # The node's network namespace belongs to another user namespace.
        tree = mounts.clone_path("/sys")
        mounts.restrict(tree, attributes, recursive=True)
    mounts.attach(tree, open_mount_point(root, "sys"))
    if spec["cgroup_directories"]:
        _mount_cgroups(root, spec["cgroup_directories"])


def _mount_cgroups(root: int, directories: dict[str, str]) -> None:
    """Show a container its own control group, read-only: in version 1 a directory for each controller."""
    try:
        point = _inside(root, "sys/fs/cgroup")
    except FileNotFoundError:
        return
    if "" in directories:
        tree = mounts.clone_path(directories[""])
        mounts.restrict(tree, mounts.RDONLY)
        mounts.attach(tree, point)
        return
    top = mounts.new_file_system("tmpfs", ("mode=755", "size=16k"), mounts.SAFE)
    mounts.attach(top, point)
    for name, source in directories.items():
        os.mkdir(name, 0o755, dir_fd=top)
        tree = mounts.clone_path(source)
        mounts.restrict(tree, mounts.RDONLY)
        mounts.attach(tree, _inside(top, name))
    mounts.restrict(top, mounts.RDONLY)


def _mount_devices(root: int, spec: messages.Message, users: PodUsers | None) -> tuple[int, int]:
    """Mount /dev, and return it and its terminals as open files."""
    dev = mounts.new_file_system("tmpfs", ("mode=755", "size=65536k"), mounts.NOSUID | mounts.NODEV)
    mounts.attach(dev, open_mount_point(root, "dev"))
    for name in _DEVICES:  # Bound from the node: a device that the container makes itself is of no use on `nodev`.
        _bind_device(dev, name, _open_device(name))
    for name, target in _LINKS.items():
        os.symlink(target, name, dir_fd=dev)
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(name, 0o755, dir_fd=dev)
    devpts = mounts.new_file_system(
        "devpts", ("newinstance", "ptmxmode=0666", "mode=0620"), mounts.NOSUID | mounts.NOEXEC
    )
    mounts.attach(devpts, _inside(dev, "pts"))
    with contextlib.suppress(PermissionError):  # With hostIPC, an ordinary user may not mount the machine's queues.
        mounts.attach(mounts.new_file_system("mqueue", (), mounts.SAFE), _inside(dev, "mqueue"))
    if spec["shm"]:
        mounts.attach(clone_mapped(spec["shm"], users), _inside(dev, "shm"))
    if spec["privileged"]:
        _bind_node_devices(dev)
    return dev, devpts


def _open_device(name: str) -> int:
    """Open a device of the node, not for reading, and check that it is the one that its name says."""
    fd = os.open(f"/dev/{name}", os.O_PATH | os.O_NOFOLLOW)
    state = os.fstat(fd)
    if not stat.S_ISCHR(state.st_mode) or state.st_rdev != os.makedev(*_DEVICES[name]):
        raise OSError(errno.ENODEV, f"/dev/{name} of this machine is not the device of that name")
    return fd


def _bind_device(dev: int, name: str, source: int) -> None:
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666, dir_fd=dev))
    mounts.attach(mounts.clone(source, recursive=False), _inside(dev, name))
    os.close(source)


def _bind_node_devices(dev: int) -> None:
    """Show a privileged container the devices of the node that it can open."""
    present = set(os.listdir("/dev")) - {*_DEVICES, *_LINKS, "pts", "shm", "mqueue"}
    for name in sorted(present):
        source = os.open(f"/dev/{name}", os.O_PATH | os.O_NOFOLLOW)
        if stat.S_ISCHR(os.fstat(source).st_mode):
            _bind_device(dev, name, source)
        else:
            os.close(source)


def _mount_volume(
    root: int, mount: messages.Message, spec: messages.Message, *, tree: int, users: PodUsers | None
) -> None:
    """Bind one volume. `tree` is a clone of the source by which mounts propagate, -1 for none."""
    target = os.path.normpath(f"/{mount['target'].lstrip('/')}")
    is_below_proc = target == "/proc" or target.startswith("/proc/")
    if is_below_proc and target not in _FILES_OF_PROC:
        raise OSError(f'"{target}" cannot be mounted because it is inside /proc')
    if mount["lower"]:
        _enter_lower(mount, users)
        options = f"lowerdir={mount['lower']},userxattr"
        linux.mount("overlay", mount["source"], "overlay", linux.MS_RDONLY | linux.MS_NODEV, options)
    if mount["is_file_system"]:
        mounts.attach_at(tree, mount["source"])
        tree = -1
    source = os.open(mount["source"], os.O_PATH)
    if mount["sub_path"]:
        source = _make_sub_path(source, mount["sub_path"], users)
    is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
    if tree < 0:
        tree = mounts.clone(source, recursive=True)
    os.close(source)
    if users is not None and not mount["lower"]:
        map_tree(tree, users, mount["source"])
    kind = _PROPAGATION[mount["propagation"]]
    if kind:
        mounts.propagate(tree, kind)
    attributes = (0 if spec["privileged"] or mount["is_device"] else mounts.NODEV) | (
        mounts.RDONLY if mount["read_only"] else 0
    )
    for option in mount["options"]:
        attributes |= _OPTIONS[option]
    mounts.restrict(tree, attributes)
    if mount["is_recursive"]:
        mounts.restrict(tree, mounts.RDONLY, recursive=True)
    point = open_place(root, target, is_directory=is_directory)
    if not is_below_proc and linux.file_system_of(point) == linux.PROC_MAGIC:  # By a link in the image.
        raise OSError(f'"{target}" cannot be mounted because it is inside /proc')
    mounts.attach(tree, point)
    os.close(point)
    os.close(tree)


def _enter_lower(mount: messages.Message, users: PodUsers | None) -> None:
    """Enter the directory of the layers of an image volume, with the ids of the pod."""
    if users is None:
        os.chdir(mount["lower_directory"])
        return
    place = f"{mount['source']}.layers"
    os.makedirs(place, exist_ok=True)
    _attach_at(place, clone_mapped(mount["lower_directory"], users), 0)
    os.chdir(place)


def _make_sub_path(volume: int, path: str, users: PodUsers | None) -> int:
    """Open a path below a volume, where missing directories belong to root as files of the volume do."""
    if users is None:
        return _sub_path(volume, path)
    linux.set_file_owner(0)
    try:
        return _sub_path(volume, path)
    finally:
        linux.set_file_owner(users.first)


def _sub_path(volume: int, path: str) -> int:
    """Open a path below a volume, making missing directories, and never leaving the volume through a link."""
    try:
        return linux.open_inside(volume, path, os.O_PATH, resolve=linux.RESOLVE_BENEATH)
    except FileNotFoundError:
        pass
    parts = [part for part in path.split("/") if part not in ("", ".")]
    above = os.dup(volume)
    for count, name in enumerate(parts, start=1):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o750, dir_fd=above)
        try:
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        except NotADirectoryError:  # A link: it may lead up, but not out of the volume.
            below = linux.open_inside(volume, "/".join(parts[:count]), os.O_PATH, resolve=linux.RESOLVE_BENEATH)
        os.close(above)
        above = below
    return above


def _hide_paths(root: int, spec: messages.Message, null: int) -> None:
    for path in spec["masked_paths"]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            point = _inside(root, path)
            if stat.S_ISDIR(os.fstat(point).st_mode):
                tree = mounts.new_file_system("tmpfs", ("size=0k",), mounts.RDONLY)
            else:
                tree = mounts.clone(null, recursive=False)
            mounts.attach(tree, point)
            os.close(tree)
    for path in spec["read_only_paths"]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            point = _inside(root, path)
            tree = mounts.clone(point, recursive=True)
            mounts.restrict(tree, mounts.RDONLY)
            mounts.attach(tree, point)
            os.close(tree)


def _inside(root: int, path: str) -> int:
    return linux.open_inside(root, path.strip("/") or ".", os.O_PATH)
