"""The process of a container, between its fork from the supervisor and its exec: mounts, user, capabilities.

Everything here runs in a child that ends with exec or with an error on the channel to its supervisor. The supervisors
import this module: keep its imports small.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import stat
import struct
import termios
from typing import NoReturn

from pinnace.node.runtime.embedded import linux, messages
from pinnace.node.runtime.embedded.users import find_user

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"))
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_ERROR = 128
_TIOCGPTN, _TIOCSPTLCK = 0x80045430, 0x40045431
_PROPAGATION = {"private": linux.MS_PRIVATE, "host-to-container": linux.MS_SLAVE, "bidirectional": 0}
"""How a volume is changed after it is mounted: one that passes mounts both ways stays a peer of its source."""
_SAFE = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC


class Launch:
    """One start of a process: its specification, its streams and the channel to the supervisor."""

    def __init__(
        self,
        spec: messages.Message,
        channel: socket.socket,
        *,
        stdio: tuple[int, int, int] | None,
        seccomp: bytes,
        id_count: int,
    ) -> None:
        """`stdio` is None for a terminal. `id_count` is the number of user ids of this user namespace, 0 for all."""
        self.spec = spec
        self.channel = channel
        self.stdio = stdio
        self.seccomp = seccomp
        self.id_count = id_count

    def has_ids(self, *ids: int) -> bool:
        """Whether this user namespace has these ids."""
        return not self.id_count or max(ids) < self.id_count


def start(launch: Launch) -> NoReturn:
    """Become the main process of a container. Never returns."""
    _finish(launch, _enter_new_root)


def start_in(launch: Launch, mounts: int, users: int) -> NoReturn:
    """Become a command in the namespaces of a running container, which are open files. Never returns."""

    def enter(launch: Launch) -> None:
        _join_cgroups(launch.spec)
        linux.setns(mounts, linux.CLONE_NEWNS)
        if launch.stdio is None:
            _open_terminal(launch, "/dev/pts")
        if launch.spec.get("own_user_namespace"):
            linux.setns(users, linux.CLONE_NEWUSER)

    _finish(launch, enter)


def _finish(launch: Launch, enter) -> NoReturn:  # type: ignore[no-untyped-def]
    try:
        _reset_signals()
        os.setsid()
        os.umask(0o022)
        enter(launch)
        _execute(launch)
    except OSError as error:
        what = error.filename or error.filename2 or ""
        _fail(launch, f"{what}: {error.strerror or error}" if what else str(error))
    except BaseException as error:  # This process must not return into the supervisor's code.
        _fail(launch, f"{type(error).__name__}: {error}")
    os._exit(START_ERROR)


def _fail(launch: Launch, message: str) -> NoReturn:
    with contextlib.suppress(OSError):
        messages.send(launch.channel, {"error": message[:4096]})
    os._exit(START_ERROR)


def _reset_signals() -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


# The root file system


def _enter_new_root(launch: Launch) -> None:
    spec = launch.spec
    _join_cgroups(spec)
    _set_oom_score(spec)
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_SLAVE)
    _mount_root(spec)
    root = os.open(spec["root"], os.O_PATH | os.O_DIRECTORY)
    _mount_kernel_file_systems(root, spec)
    _mount_devices(root, spec)
    if launch.stdio is None:
        _open_terminal(launch, _path(_inside(root, "dev/pts")))
    for number, mount in enumerate(spec["mounts"]):
        _mount_volume(root, spec, mount, spec["trees"].get(number, -1))
    if not spec["privileged"]:
        _hide_paths(root, spec)
    os.close(root)
    os.chdir(spec["root"])
    linux.pivot_root(".", ".")
    linux.unmount(".")
    os.chdir("/")
    if spec["read_only_root"]:
        linux.restrict("/", linux.MS_RDONLY)


def _join_cgroups(spec: messages.Message) -> None:
    for path in spec["cgroup_files"]:
        with open(path, "w") as file:
            file.write("0")


def _set_oom_score(spec: messages.Message) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(spec["oom_score_adjust"]))  # Lowering it needs a privilege that few have.


def _mount_root(spec: messages.Message) -> None:
    """Mount the overlays. A root that is no overlay itself becomes a mount, which pivot_root needs."""
    if not any(overlay["at"] == "" for overlay in spec["overlays"]):
        linux.bind(spec["root"], spec["root"], recursive=False)
        if not spec["privileged"]:
            linux.restrict(spec["root"], linux.MS_NODEV)
    os.chdir(spec["lower_directory"])
    # Volatile: no container outlives a crash of the machine, and without it each unmount waits for the whole disk.
    for overlay in spec["overlays"]:
        target = os.path.join(spec["root"], overlay["at"])
        options = (
            f"lowerdir={overlay['lower']},upperdir={overlay['upper']},workdir={overlay['work']},userxattr,volatile"
        )
        try:
            linux.mount("overlay", target, "overlay", 0 if spec["privileged"] else linux.MS_NODEV, options)
        except OSError as error:
            if error.errno != errno.EINVAL or not overlay["at"]:
                raise
            # A directory of this machine with mounts in it, such as /etc/hosts in a container, which the kernel refuses
            # to show a user namespace without them.
            linux.bind(f"/{overlay['at']}", target, read_only=True)
    for source, at in spec["root_binds"]:
        linux.bind(source, os.path.join(spec["root"], at), read_only=True, recursive=False)


def _mount_kernel_file_systems(root: int, spec: messages.Message) -> None:
    proc = _path(_mount_point(root, "proc", is_directory=True))
    try:
        linux.mount("proc", proc, "proc", _SAFE)
    except PermissionError:  # The node's process namespace belongs to another user namespace.
        linux.bind("/proc", proc)
    sys = _path(_mount_point(root, "sys", is_directory=True))
    try:
        linux.mount("sysfs", sys, "sysfs", _SAFE | (0 if spec["privileged"] else linux.MS_RDONLY))
    except PermissionError:  # The same, with the node's network namespace.
        linux.bind("/sys", sys, read_only=False)
    if spec["cgroup_directories"]:
        _mount_cgroups(root, spec["cgroup_directories"])


def _mount_cgroups(root: int, directories: dict[str, str]) -> None:
    """Show a container its own control group, read-only: in version 1 a directory for each controller."""
    try:
        point = _path(_inside(root, "sys/fs/cgroup"))
    except FileNotFoundError:
        return
    if "" in directories:
        linux.bind(directories[""], point)
    else:
        linux.mount("tmpfs", point, "tmpfs", _SAFE, "mode=755,size=16k")
        top = _path(_inside(root, "sys/fs/cgroup"))
        for name, source in directories.items():
            os.mkdir(f"{top}/{name}", 0o755)
            linux.bind(source, f"{top}/{name}")
            linux.restrict(f"{top}/{name}", linux.MS_RDONLY)
    linux.restrict(_path(_inside(root, "sys/fs/cgroup")), linux.MS_RDONLY)


def _mount_devices(root: int, spec: messages.Message) -> None:
    point = _mount_point(root, "dev", is_directory=True)
    linux.mount("tmpfs", _path(point), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=65536k")
    os.close(point)
    dev = _path(_inside(root, "dev"))
    for name in _DEVICES:  # Bound from the node: a device that the container makes itself is of no use on `nodev`.
        path = f"{dev}/{name}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
        linux.bind(f"/dev/{name}", path)
    for name, target in (*_LINKS, ("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx")):
        os.symlink(target, f"{dev}/{name}")
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"{dev}/{name}", 0o755)
    linux.mount(
        "devpts", f"{dev}/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"
    )
    with contextlib.suppress(PermissionError):  # With hostIPC, an ordinary user may not mount the machine's queues.
        linux.mount("mqueue", f"{dev}/mqueue", "mqueue", _SAFE)
    if spec["shm"]:
        linux.bind(spec["shm"], f"{dev}/shm")
    if spec["privileged"]:
        _bind_node_devices(dev)


def _bind_node_devices(dev: str) -> None:
    """Show a privileged container the devices of the node that it can open."""
    for name in os.listdir("/dev"):
        target = f"{dev}/{name}"
        if os.path.lexists(target) or not stat.S_ISCHR(os.lstat(f"/dev/{name}").st_mode):
            continue
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o666))
        linux.bind(f"/dev/{name}", target)


def _mount_volume(root: int, spec: messages.Message, mount: messages.Message, tree: int) -> None:
    """Bind one volume. The source is opened first, so that a link cannot change it afterwards.

    `tree` is a clone of the source by which mounts propagate, -1 for none.
    """
    if mount["lower"]:
        os.chdir(mount["lower_directory"])
        options = f"lowerdir={mount['lower']},userxattr"
        linux.mount("overlay", mount["source"], "overlay", linux.MS_RDONLY | linux.MS_NODEV, options)
    source = os.open(mount["source"], os.O_PATH)
    if mount["sub_path"]:
        source = _sub_path(source, mount["sub_path"])
    is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
    target = _mount_point(root, mount["target"], is_directory=is_directory)
    if tree >= 0:
        linux.attach_tree(tree, target)
    else:
        linux.bind(_path(source), _path(target))
    os.close(target)
    mounted = _path(_inside(root, mount["target"]))
    kind = _PROPAGATION[mount["propagation"]]
    if kind:
        linux.mount("none", mounted, "", kind | linux.MS_REC)
    if not spec["privileged"]:
        linux.restrict(mounted, linux.MS_NODEV)
    if mount["read_only"]:
        linux.restrict(mounted, linux.MS_RDONLY)
    os.close(source)


def _sub_path(volume: int, path: str) -> int:
    """Open a path below a volume, making missing directories, and never leaving the volume through a link."""
    try:
        return linux.open_inside(volume, path, os.O_PATH, resolve=linux.RESOLVE_BENEATH)
    except FileNotFoundError:
        pass
    above, _, name = path.strip("/").rpartition("/")
    parent = _sub_path(volume, above) if above else volume
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o750, dir_fd=parent)
    return linux.open_inside(volume, path, os.O_PATH, resolve=linux.RESOLVE_BENEATH)


def _mount_point(root: int, path: str, *, is_directory: bool) -> int:
    """Open a path of the new root, making it if it is missing. Links are followed inside the root only."""
    path = path.strip("/")
    try:
        return linux.open_inside(root, path or ".", os.O_PATH)
    except FileNotFoundError:
        pass
    above, _, name = path.rpartition("/")
    parent = _mount_point(root, above, is_directory=True)
    if is_directory:
        os.mkdir(name, 0o755, dir_fd=parent)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=parent))
    os.close(parent)
    return linux.open_inside(root, path, os.O_PATH)


def _inside(root: int, path: str) -> int:
    return linux.open_inside(root, path.strip("/") or ".", os.O_PATH)


def _path(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _hide_paths(root: int, spec: messages.Message) -> None:
    for path in spec["masked_paths"]:
        with contextlib.suppress(FileNotFoundError):
            fd = _inside(root, path)
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                linux.mount("tmpfs", _path(fd), "tmpfs", linux.MS_RDONLY, "size=0k")
            else:
                linux.bind("/dev/null", _path(fd))
    for path in spec["read_only_paths"]:
        with contextlib.suppress(FileNotFoundError):
            fd = _inside(root, path)
            linux.bind(_path(fd), _path(fd))
            linux.restrict(_path(_inside(root, path)), linux.MS_RDONLY)


# The terminal


def _open_terminal(launch: Launch, pts: str) -> None:
    """Open a terminal of the container, and send its controlling side to the supervisor."""
    master = os.open(f"{pts}/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    number = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, b"\0" * 4))[0]
    slave = os.open(f"{pts}/{number}", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    width, height = launch.spec.get("terminal_size") or (80, 24)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    messages.send(launch.channel, {"terminal": number}, [master])
    os.close(master)
    launch.stdio = (slave, slave, slave)


# The user and the command


def _execute(launch: Launch) -> NoReturn:
    spec = launch.spec
    user = find_user(spec["user"], "/")
    environment = [_PATH, *spec["environment"]]
    if not any(entry.startswith("HOME=") for entry in environment):
        environment.append(f"HOME={user.home}")
    values = dict(entry.partition("=")[::2] for entry in environment)
    _change_directory(spec["working_directory"])
    assert launch.stdio is not None
    _connect_streams(launch.stdio, spec, user.uid)
    _become(launch, user.uid, user.gid, user.groups)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    _exec(spec["argv"], values)


def _change_directory(path: str) -> None:
    """Enter the working directory; make it if it is missing, as containerd does."""
    try:
        os.chdir(path)
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
        os.chdir(path)


def _connect_streams(stdio: tuple[int, int, int], spec: messages.Message, uid: int) -> None:
    for number, fd in enumerate(stdio):
        os.dup2(fd, number, inheritable=True)
    if os.isatty(0) and spec["tty"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (0, 1, 2):
        with contextlib.suppress(OSError):  # Programs open /dev/stdout as their user; only pipes need it.
            os.fchown(number, uid, -1)


def _become(launch: Launch, uid: int, gid: int, groups: tuple[int, ...]) -> None:
    spec = launch.spec
    joins = spec.get("is_exec") and spec.get("own_user_namespace")
    if not joins and not launch.has_ids(uid, gid):
        _map_single_id(uid, gid)
    elif not joins and launch.id_count != 1:
        os.setgroups([group for group in groups if launch.has_ids(group)])
    if spec["no_new_privileges"]:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if spec["seccomp"] and launch.seccomp:
        linux.install_seccomp(launch.seccomp)  # After the last unshare, before the capability that it needs is gone.
    mask = spec["capabilities"]
    linux.drop_bounding(mask)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    linux.set_capabilities(mask if uid == 0 else 0)


def _map_single_id(uid: int, gid: int) -> None:
    """Show the one user that this process can be under another number: a user namespace of its own."""
    linux.unshare(linux.CLONE_NEWUSER)
    with contextlib.suppress(OSError), open("/proc/self/setgroups", "w") as file:
        file.write("deny")  # The kernel wants it before the groups; it may be so already.
    for name, text in (("uid_map", f"{uid} 0 1"), ("gid_map", f"{gid} 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _exec(argv: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process. Raise OSError with the words of runc, which kubelet's users know."""
    name = argv[0]
    paths = [name] if "/" in name else [os.path.join(place, name) for place in environment["PATH"].split(":") if place]
    seen: OSError | None = None
    for path in paths:
        try:
            os.execve(path, argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            seen = seen or error
    if seen is not None:
        raise OSError(seen.errno, (seen.strerror or "").lower(), f'exec: "{name}"')
    if "/" in name:
        raise OSError(errno.ENOENT, "no such file or directory", f'exec: "{name}": stat {name}')
    raise OSError(errno.ENOENT, "executable file not found in $PATH", f'exec: "{name}"')
