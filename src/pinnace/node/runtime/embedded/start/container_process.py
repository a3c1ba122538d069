"""The process of a container, between its fork from the supervisor and its exec.

Everything here runs in a child that ends with exec or with an error on the channel to its supervisor. The order is what
keeps a pod from reaching the node:

1. close every open file but the streams and the channel, and let no other process look into this one;
2. build the root, with all its masks, and leave the node's file system for good;
3. open what the image and the pod name, inside the new root alone: the user's entry, the working directory;
4. become the user, with the capabilities and the filter of the container;
5. enter the process namespace, if processes of the pod are in it already: they see one that has no more than they.

The supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import termios
from collections.abc import Callable
from typing import NoReturn

from pinnace.node.machine import linux, messages
from pinnace.node.machine.mounts import clone_path
from pinnace.node.runtime.embedded.start.container_root import build_root, node_proc
from pinnace.node.runtime.embedded.start.inside_root import ContainerUser, find_user, open_directory
from pinnace.node.runtime.embedded.start.pod_users import PodUsers, part_of_pods

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_ERROR = 128
_MAX_ERROR = 4096
_PID_BYTES = 4
_TIOCGPTPEER, _TIOCSPTLCK = 0x5441, 0x40045431


class Launch:
    """One start of a process: its specification, its streams and the channel to the supervisor."""

    def __init__(
        self,
        spec: messages.Message,
        channel: socket.socket,
        *,
        stdio: tuple[int, int, int] | None,
        id_count: int,
        users: PodUsers | None = None,
        child: mmap.mmap | None = None,
    ) -> None:
        """`stdio` is None for a terminal. `id_count` is the number of user ids of this user namespace, 0 for all.

        `users` are those of the pod, None if it has no user namespace that this process enters. `child` is memory of
        the supervisor that takes the number of the process which goes on in place of this one.
        """
        self.spec = spec
        self.channel = channel
        self.stdio = stdio
        self.id_count = id_count if users is None else users.length
        self.users = users
        self.child = child
        self.own_entry = -1
        """The directory of this process in the node's /proc, while it is needed."""
        self.errors = -1
        """A pipe that takes an error in place of the channel, once processes of the pod see this one."""

    def has_ids(self, *ids: int) -> bool:
        """Whether this user namespace has these ids."""
        return not self.id_count or max(ids) < self.id_count


def child_of(memory: mmap.mmap) -> int:
    """The process that goes on in place of one that has ended; 0 if there is none."""
    return int.from_bytes(memory[:_PID_BYTES], "little")


def run_in_child(channel: socket.socket, run: Callable[[], None]) -> NoReturn:
    """Run the first steps of a child, up to `start` or `start_in`. Never returns, whatever they raise.

    A step may fail, since the container that the child enters may end at any moment. A child that returned into the
    code of the supervisor would be a second one, and answer the agent in its place.
    """
    try:
        run()
    except BaseException as error:
        with contextlib.suppress(OSError):
            messages.send(channel, {"error": str(error)[:_MAX_ERROR]})
    finally:
        os._exit(START_ERROR)


def start(launch: Launch, *, processes: int = -1, proc: str = "") -> NoReturn:
    """Become the main process of a container. Never returns.

    `processes` is the open process namespace of other processes that it joins, and `proc` the place where its /proc is
    mounted; otherwise it is in its process namespace already.
    """
    _guard(launch, lambda: _start(launch, processes, proc))


def start_in(launch: Launch, *, processes: int, mounts: int, users: int) -> NoReturn:
    """Become a command in the namespaces of a running container, which are open files. Never returns.

    `users` is -1 if they are not in a user namespace but that of the node.
    """
    _guard(launch, lambda: _start_in(launch, processes, mounts, users))


def _guard(launch: Launch, run: Callable[[], None]) -> NoReturn:
    try:
        _reset_signals()
        os.umask(0o022)
        sys.meta_path.clear()  # No import from here on: it would find the files of the container.
        run()
    except OSError as error:
        what = error.filename or error.filename2 or ""
        _fail(launch, f"{what}: {error.strerror or error}" if what else str(error))
    except BaseException as error:  # This process must not return into the supervisor's code.
        _fail(launch, f"{type(error).__name__}: {error}")
    os._exit(START_ERROR)


def _fail(launch: Launch, message: str) -> NoReturn:
    with contextlib.suppress(OSError):
        if launch.errors >= 0:
            os.write(launch.errors, message.encode(errors="replace")[:_MAX_ERROR])
        else:
            messages.send(launch.channel, {"error": message[:_MAX_ERROR]})
    os._exit(START_ERROR)


def _reset_signals() -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


# The order of a start


def _start(launch: Launch, processes: int, proc: str) -> None:
    spec = launch.spec
    _join_cgroups(spec)
    _set_oom_score(spec)
    users = launch.users
    own = users.namespace if users is not None else -1
    _seal(launch, processes, spec["users_without_ids"], own, *spec["trees"].values())
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_SLAVE)
    if processes >= 0:
        tree = clone_path(proc)
        linux.setns(processes, linux.CLONE_NEWPID)  # Only a child is in it.
    else:
        tree = node_proc()
        if spec["keeps_proc"]:
            messages.send(launch.channel, {"proc": True}, [node_proc()])
    terminals = build_root(spec, tree, users if users is not None and users.first else None)
    if launch.stdio is not None:
        terminals = -1
    linux.close_all_but(launch.channel.fileno(), launch.own_entry, own, terminals)
    user, environment = _prepare_user(launch, own, owns_mounts=True, terminals=terminals)
    _become(launch, user)
    if processes >= 0:
        _continue_in_child(launch)
    _execute(launch, environment)


def _start_in(launch: Launch, processes: int, mounts: int, users: int) -> None:
    spec = launch.spec
    _join_cgroups(spec)
    _set_oom_score(spec)
    _seal(launch, processes, mounts, users)
    linux.setns(processes, linux.CLONE_NEWPID)
    linux.setns(mounts, linux.CLONE_NEWNS)
    if launch.stdio is None:
        _open_terminal(launch, _open_container_terminal())
    linux.close_all_but(launch.channel.fileno(), launch.own_entry, users)
    user, environment = _prepare_user(launch, users)
    _become(launch, user)
    _continue_in_child(launch)
    _execute(launch, environment)


def _join_cgroups(spec: messages.Message) -> None:
    for path in spec["cgroup_files"]:
        with open(path, "w") as file:
            file.write("0")


def _set_oom_score(spec: messages.Message) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        if linux.file_system_of(file.fileno()) == linux.PROC_MAGIC:
            file.write(str(spec["oom_score_adjust"]))  # Lowering it needs a privilege that few have.


def _seal(launch: Launch, *kept: int) -> None:
    """Connect the streams, close the files of the supervisor, and refuse every other process a look into this one."""
    if launch.stdio is not None:
        for number, fd in enumerate(launch.stdio):
            os.dup2(fd, number, inheritable=True)
    launch.own_entry = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)
    linux.close_all_but(launch.channel.fileno(), launch.own_entry, *kept)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)


def _continue_in_child(launch: Launch) -> None:
    """Go on in a child of the supervisor, which is in the process namespace that this process has joined; end this.

    The child never has a file that leads to the supervisor but a pipe for its error: the number of the child is left in
    memory that the child does not inherit.
    """
    assert launch.child is not None
    reading, launch.errors = os.pipe()
    messages.send(launch.channel, {"errors": True}, [reading])
    ready, go = os.pipe()
    linux.close_all_but(launch.errors, ready, go)
    launch.child.madvise(mmap.MADV_DONTFORK)
    try:
        pid = linux.clone(linux.CLONE_PARENT)
    except OSError as error:
        if error.errno == errno.ENOMEM:  # A process namespace whose first process has ended takes no others.
            raise OSError(f"the container is not running: {error}") from None
        raise
    if pid:
        launch.child[:_PID_BYTES] = pid.to_bytes(_PID_BYTES, "little")
        os.write(go, b"!")
        os._exit(0)
    os.close(go)
    if not os.read(ready, 1):  # The supervisor does not know this process: its parent was killed.
        os._exit(START_ERROR)
    os.close(ready)


# The terminal


def _open_terminal(launch: Launch, master: int) -> None:
    """Use the terminal of this controlling side, which the supervisor gets."""
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    slave = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    width, height = launch.spec.get("terminal_size") or (80, 24)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    messages.send(launch.channel, {"terminal": True}, [master])
    for number in (0, 1, 2):
        os.dup2(slave, number, inheritable=True)


def _open_new_terminal(root: int, terminals: int) -> int:
    """Open a new terminal of these, by its path where no volume hides it: the program asks for its name."""
    with contextlib.suppress(OSError):
        place = linux.open_inside(root, "dev/pts", os.O_PATH | os.O_DIRECTORY)
        if os.fstat(place).st_dev == os.fstat(terminals).st_dev:
            os.close(terminals)
            terminals = place
    master = os.open("ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=terminals)
    os.close(terminals)
    return master


def _open_container_terminal() -> int:
    """Open a new terminal of a running container, which may have put anything in its place."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK
    probe = linux.open_inside(root, "dev/pts/ptmx", os.O_PATH)
    if linux.file_system_of(probe) != linux.DEVPTS_MAGIC:
        raise OSError(errno.ENODEV, "/dev/pts of the container has no terminals")
    master = linux.open_inside(root, "dev/pts/ptmx", flags)
    if linux.file_system_of(master) != linux.DEVPTS_MAGIC:
        raise OSError(errno.ENODEV, "/dev/pts of the container has no terminals")
    os.set_blocking(master, True)
    return master


# The user and the command


def _prepare_user(
    launch: Launch, users: int, *, owns_mounts: bool = False, terminals: int = -1
) -> tuple[ContainerUser, dict[str, str]]:
    """Find the user, enter the user namespace and the working directory; return the user and the environment.

    `owns_mounts`: the mounts become those of the user namespace, in which nothing can take a mask away. `terminals` are
    those of the container, an open file, for a process that gets a new one.
    """
    spec = launch.spec
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    user = find_user(spec["user"], root)
    environment = [_PATH, *spec["environment"]]
    if not any(entry.startswith("HOME=") for entry in environment):
        environment.append(f"HOME={user.home}")
    _own_streams(user.uid + (launch.users.first if launch.users is not None else 0))
    if users >= 0:
        linux.setns(users, linux.CLONE_NEWUSER)
        os.close(users)
        if not spec.get("own_user_namespace"):
            if launch.id_count > 1:
                os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        if owns_mounts:
            linux.unshare(linux.CLONE_NEWNS)
            os.close(root)
            root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    if terminals >= 0:
        _open_terminal(launch, _open_new_terminal(root, terminals))
        _own_streams(user.uid)
    _enter_working_directory(root, spec["working_directory"])
    os.close(root)
    return user, dict(entry.partition("=")[::2] for entry in environment)


def _enter_working_directory(root: int, path: str) -> None:
    """Enter the working directory; make it if it is missing, as containerd does."""
    try:
        directory = open_directory(root, path)
    except OSError as error:
        message = f"chdir to the working directory failed: {(error.strerror or str(error)).lower()}"
        raise OSError(error.errno, message, path) from None
    os.fchdir(directory)
    os.close(directory)
    try:
        is_inside = os.getcwd().startswith("/")
    except FileNotFoundError:  # The kernel has no path to it from this root.
        is_inside = False
    if not is_inside:
        raise OSError(errno.EACCES, "the working directory is outside of the container", path)


def _own_streams(uid: int) -> None:
    """Let the user open its streams by name, such as /dev/stdout: pipes and terminals, never a device of the node."""
    for number in (0, 1, 2):
        if stat.S_ISFIFO(os.fstat(number).st_mode) or os.isatty(number):
            with contextlib.suppress(OSError):
                os.fchown(number, uid, -1)


def _become(launch: Launch, user: ContainerUser) -> None:
    spec, (uid, gid, groups, _) = launch.spec, user
    joins = spec.get("own_user_namespace")
    if launch.users is not None and launch.users.first and not launch.has_ids(uid, gid):
        last = launch.users.length - 1
        raise OSError(errno.EINVAL, f"the user namespace of the pod has ids up to {last}", f"user {uid}:{gid}")
    if launch.id_count:
        _bound(resource.RLIMIT_NPROC, spec["most_processes"])  # 0 where a control group bounds them.
    if not joins and not launch.has_ids(uid, gid):
        _map_single_id(launch, uid, gid)
    elif not joins and launch.id_count != 1:
        os.setgroups([group for group in groups if launch.has_ids(group)])
    if spec["apparmor"]:
        _confine(launch, spec["apparmor"])
    if spec["no_new_privileges"]:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if spec["seccomp"]:
        # After the last unshare, before the capability that it needs is gone.
        linux.install_seccomp(bytes.fromhex(spec["seccomp"]))
    linux.close_all_but(launch.channel.fileno())
    mask = spec["capabilities"]
    linux.drop_bounding(mask)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    linux.set_capabilities(mask if uid == 0 else 0)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)  # A change of the user may have set it.


def _leave_messages_to_user() -> None:
    """Leave messages with open files to the processes of the ordinary user that are no containers.

    The kernel refuses to send one if more open files are on their way for this user than the sender may have open. This
    process has sent its own.
    """
    _bound(resource.RLIMIT_NOFILE, part_of_pods(resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _bound(limit: int, most: int) -> None:
    _, largest = resource.getrlimit(limit)
    if most and (largest == resource.RLIM_INFINITY or largest > most):
        resource.setrlimit(limit, (most, most))


def _confine(launch: Launch, profile: str) -> None:
    """Let AppArmor confine the program from exec on."""
    fd = os.open("attr/apparmor/exec", os.O_WRONLY, dir_fd=launch.own_entry)
    try:
        if linux.file_system_of(fd) != linux.PROC_MAGIC:
            raise OSError(errno.EACCES, "the attributes of this process are not those of the kernel")
        os.write(fd, f"exec {profile}".encode())
    finally:
        os.close(fd)


def _map_single_id(launch: Launch, uid: int, gid: int) -> None:
    """Show the one user that this process can be under another number: a user namespace of its own.

    No process of the pod sees this one yet, so that it may be looked into while it writes its own maps.
    """
    linux.prctl(linux.PR_SET_DUMPABLE, 1)
    linux.unshare(linux.CLONE_NEWUSER)
    with contextlib.suppress(OSError):  # The kernel wants it before the groups; it may be so already.
        _write_own(launch, "setgroups", "deny")
    _write_own(launch, "uid_map", f"{uid} 0 1")
    _write_own(launch, "gid_map", f"{gid} 0 1")


def _write_own(launch: Launch, name: str, text: str) -> None:
    fd = os.open(name, os.O_WRONLY, dir_fd=launch.own_entry)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _execute(launch: Launch, environment: dict[str, str]) -> NoReturn:
    """Replace this process. Raise OSError with the words of runc, which kubelet's users know."""
    os.setsid()
    if launch.id_count and (launch.users is None or not launch.users.first):
        _leave_messages_to_user()
    if launch.spec["tty"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _die_with_supervisor(launch)
    argv = launch.spec["argv"]
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


def _die_with_supervisor(launch: Launch) -> None:
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    ended = select.poll()
    ended.register(launch.errors if launch.errors >= 0 else launch.channel, 0)
    if ended.poll(0):  # It ended before the kernel knew of the wish.
        os._exit(START_ERROR)
