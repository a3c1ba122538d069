"""The supervisor of one pod: a small process that owns the pod's namespaces and the streams of its containers.

It is forked from the fork server, outlives the agent, and ends when the pod does. Agents connect to `supervisor.sock`
in the directory of the pod. Each container is a child with a process namespace of its own; it dies with the supervisor.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import NoReturn

from pinnace.node.machine import linux, messages, mounts
from pinnace.node.machine.messages import Message, MessageServer, SocketPeer, SocketRequest
from pinnace.node.machine.poll_loop import PollLoop, has_input
from pinnace.node.machine.regular_files import open_regular_below
from pinnace.node.machine.status_files import write_json
from pinnace.node.runtime.embedded.start.container_process import Launch, child_of, run_in_child, start, start_in
from pinnace.node.runtime.embedded.start.pause import pause
from pinnace.node.runtime.embedded.start.pod_users import PodUsers
from pinnace.node.runtime.embedded.supervision.container_logs import pause_after
from pinnace.node.runtime.embedded.supervision.memory import open_memory
from pinnace.node.runtime.embedded.supervision.pod_links import ExternalRoutes
from pinnace.node.runtime.embedded.supervision.supervised_container import Attachment, SupervisedContainer, exit_code

_CHUNK = 65536
_MAX_ERROR = 4096
SOCKET = "supervisor.sock"


class Pending:
    """A process between fork and exec, and the request that waits for it."""

    def __init__(self, request: SocketRequest, container: SupervisedContainer | None = None) -> None:
        """`container` is the one that the process begins; None for a command in one."""
        self.request = request
        self.container = container
        self.pid = 0
        self.channel, self.their_channel = messages.pair()
        self.child = mmap.mmap(-1, mmap.PAGESIZE)
        """Takes the number of the process that goes on in place of this one, in the processes of the pod."""
        self.errors = -1
        """A pipe with the error of a process that the pod sees already; it has no channel any more."""
        self.error = ""
        self.is_killed = False
        self.channel.setblocking(False)

    def began(self, pid: int) -> None:
        self.pid = pid
        self.their_channel.close()

    def fail(self, error: str) -> None:
        self.error = self.error or error
        if self.container is not None:
            self.container.error = self.error

    def continues(self) -> bool:
        """Whether another process goes on in place of the one that has ended."""
        child = child_of(self.child)
        is_new = child not in (0, self.pid)
        self.pid = child or self.pid
        return is_new

    @property
    def is_open(self) -> bool:
        return self.channel.fileno() >= 0


class PodSupervisor:
    """Runs until `stop` is asked for."""

    def __init__(
        self,
        directory: str,
        first: socket.socket,
        *,
        seccomp: bytes,
        id_count: int,
        users: PodUsers | None,
        users_without_ids: int = -1,
        namespaces: Sequence[int] = (),
    ) -> None:
        """`users` are those of the pod, where its namespaces belong to a user namespace that is not this one.

        `namespaces` are the open ones of the node: they live on here when the fork server is killed.
        """
        self._namespaces = namespaces
        self._routes = ExternalRoutes()
        self._users = users
        self._directory = directory
        self._seccomp = seccomp
        self._id_count = id_count
        self._users_without_ids = users_without_ids
        self._loop = PollLoop()
        self._agents = MessageServer(self._loop, self._answer, on_close=self._kill_execs)
        self._containers: dict[str, SupervisedContainer] = {}
        self._pause = 0
        self._pod_processes = -1
        self._execs: dict[int, Pending] = {}
        self._is_stopping = False
        self._agents.listen(directory, SOCKET, users=[messages.user_of(first)])  # Later agents have the same user.
        self._agents.add(first)

    def share_processes(self) -> None:
        """Give the pod one process namespace, whose first process only reaps orphans."""
        ours, theirs = messages.pair()
        self._pause = linux.clone(linux.CLONE_NEWPID)
        if self._pause == 0:
            pause(theirs, seccomp=self._seccomp)
        theirs.close()
        with ours:
            message, fds = messages.receive(ours)
        if message is None or message.get("error"):
            raise RuntimeError(message["error"] if message else "the first process of the pod has ended")
        self._mount_proc(self._pod_proc, fds[0])
        self._pod_processes = fds[1]

    @property
    def _pod_proc(self) -> str:
        return os.path.join(self._directory, "proc")

    def _mount_proc(self, place: str, tree: int) -> None:
        """Attach a detached /proc in the mount namespace of this supervisor, where later processes clone it."""
        os.makedirs(place, exist_ok=True)
        mounts.attach_at(tree, place)

    def run(self) -> None:
        while not (self._is_stopping and not any(container.is_running for container in self._containers.values())):
            self._loop.turn()
        if self._pause:
            os.kill(self._pause, signal.SIGKILL)
            os.waitpid(self._pause, 0)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, SOCKET))
        self._report({"event": "stopped"})

    # Requests

    def _report(self, event: Message) -> None:
        for peer in list(self._agents.peers.values()):
            peer.send(event)

    def _kill_execs(self, peer: SocketPeer, number: int = 0) -> None:
        """Kill the command that runs for a request, or for all requests of a connection."""
        for pid, pending in self._execs.items():
            if pending.request.peer is peer and number in (0, pending.request.number):
                pending.is_killed = True
                os.kill(pid, signal.SIGKILL)

    def _answer(self, request: SocketRequest) -> None:
        content = request.content
        match content["op"]:
            case "start":
                self._start(request)
            case "exec":
                self._exec(request)
            case "attach":
                self._attach(request)
            case "connect" | "lead_to":
                self._use_network(request)
            case "namespaces":
                request.reply({}, self._namespaces)
            case "ping":
                request.reply({})
            case "memory" | "open":
                self._open(request)
            case "signal":
                self._containers[content["id"]].signal(content["signal"])
                request.reply({})
            case "kill_exec":
                self._kill_execs(request.peer, content["exec"])
                request.reply({})
            case "forget":
                self._containers.pop(content["id"], None)
                request.reply({})
            case "stop":
                self._is_stopping = True
                self._kill_all()
                request.reply({})
            case other:
                raise ValueError(f"the supervisor knows no request {other!r}")

    def _open(self, request: SocketRequest) -> None:
        """Send a file of a volume, or the directory in memory that the containers of this pod mount from.

        A later fork server has another one.
        """
        if request.content["op"] == "open":
            _open_file(request)
            return
        memory = open_memory(os.path.join(self._directory, "../.."))
        request.reply({}, [memory])
        os.close(memory)

    # Containers

    def _kill_all(self) -> None:
        for container in self._containers.values():
            container.signal(signal.SIGKILL)

    def _start(self, request: SocketRequest) -> None:
        if self._is_stopping:
            raise RuntimeError("the pod is stopping")
        content, fds = request.content, request.fds
        directory = os.path.join(self._directory, "containers", content["id"])
        container = SupervisedContainer(directory, content, launch=os.dup(fds[0]))
        self._containers[container.id] = container
        joined, proc = self._joined_processes(content)
        pending = Pending(request, container)
        stdio = container.open_streams()
        is_alone = content["processes"] != "node" and joined < 0
        container.shares_processes = not is_alone
        pid = linux.clone(linux.CLONE_NEWPID if is_alone else 0)
        if pid == 0:

            def become() -> None:
                spec = container.read_launch()
                spec |= {"trees": dict(zip(content["trees"], fds[1:], strict=True)), "keeps_proc": is_alone}
                spec["users_without_ids"] = self._users_without_ids
                start(self._launch(spec, pending, stdio), processes=joined, proc=proc)

            run_in_child(pending.their_channel, become)
        pending.began(pid)
        if joined >= 0:
            os.close(joined)
        container.began(pid)
        self._watch_start(container, pending)
        for fd in container.outputs:
            self._loop.add_reader(fd, lambda fd=fd: self._copy(container, fd))  # type: ignore[misc]
        self._loop.add_reader(pending.channel.fileno(), lambda: self._hear(pending))

    def _launch(self, spec: Message, pending: Pending, stdio: tuple[int, int, int] | None) -> Launch:
        return Launch(
            spec,
            pending.their_channel,
            stdio=stdio,
            id_count=self._id_count,
            users=self._users,
            child=pending.child,
        )

    def _joined_processes(self, request: Message) -> tuple[int, str]:
        """The process namespace that a new container joins, and the place of its /proc; -1 for none."""
        target = self._containers[request["target"]] if request.get("target") else None
        if target is not None:
            place = os.path.join(target.directory, "proc")
            if not target.has_started or not target.is_running:
                raise RuntimeError("the target container is not running")
            if target.proc >= 0:
                self._mount_proc(place, target.proc)
                target.proc = -1
            if os.path.isdir(place):
                return os.open(f"/proc/{target.pid}/ns/pid", os.O_RDONLY), place
        if request["processes"] == "pod" and self._pause:
            return os.dup(self._pod_processes), self._pod_proc
        return -1, ""

    def _watch_start(self, container: SupervisedContainer, pending: Pending) -> None:
        pid = pending.pid
        self._loop.add_reader(container.pidfd, lambda: self._reap(container, pending, pid))

    def _hear(self, pending: Pending) -> None:
        """Take one message of a starting process, or the end of its channel."""
        try:
            message, fds = messages.receive(pending.channel)
        except BlockingIOError:
            return
        match message:
            case None:
                self._loop.remove_reader(pending.channel.fileno())
                pending.channel.close()
                if pending.errors < 0:
                    self._answer_start(pending)
            case {"terminal": _}:
                self._pass_terminal(pending, fds[0])
            case {"proc": _} if pending.container is not None:
                pending.container.proc = fds[0]
            case {"errors": _}:
                pending.errors = fds[0]
                self._loop.add_reader(pending.errors, lambda: self._read_error(pending))
            case {"error": error}:
                pending.fail(error)

    def _pass_terminal(self, pending: Pending, terminal: int) -> None:
        container = pending.container
        if container is None:
            pending.request.reply({"terminal": True}, [terminal])
            os.close(terminal)
            return
        container.set_terminal(terminal)
        self._loop.add_reader(terminal, lambda: self._copy(container, terminal))

    def _read_error(self, pending: Pending) -> None:
        """Read the error of a process that the pod sees, or close the pipe at its end: that of the process, or exec."""
        data = os.read(pending.errors, _MAX_ERROR)
        if data:
            pending.fail(data.decode(errors="replace"))
        else:
            self._close_errors(pending)
            self._answer_start(pending)

    def _close_errors(self, pending: Pending) -> None:
        if pending.errors >= 0:
            self._loop.remove_reader(pending.errors)
            os.close(pending.errors)
            pending.errors = -1

    def _read_last_messages(self, pending: Pending) -> None:
        """Read what a process has sent before its end."""
        while pending.is_open and has_input(pending.channel.fileno()):
            self._hear(pending)
        while pending.errors >= 0 and has_input(pending.errors):
            self._read_error(pending)

    def _answer_start(self, pending: Pending) -> None:
        """Answer the start of a container. That of a command is answered when it ends."""
        container = pending.container
        if container is None:
            return
        if pending.error:
            pending.request.reply({"error": pending.error, "is_start_error": True})
            return
        if container.is_running:
            container.save()
        pending.request.reply({"pid": pending.pid, "started_at": container.started_at})

    def _copy(self, container: SupervisedContainer, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # A terminal ends with EIO.
            data = b""
        if not data:
            self._loop.remove_reader(fd)
            container.end_output(fd)
            return
        if not container.write(fd, data):
            self._wait_for_readers(container, fd)
        if pause := pause_after(data):
            time.sleep(pause)

    def _wait_for_readers(self, container: SupervisedContainer, fd: int) -> None:
        """Stop reading a stream until every attached client has taken what it was sent."""
        self._loop.remove_reader(fd)
        for attachment in container.behind(fd):
            self._watch_writing(container, fd, attachment.target(container.outputs[fd]))

    def _watch_writing(self, container: SupervisedContainer, fd: int, target: int) -> None:
        if target not in self._loop:
            self._loop.add_writer(target, lambda: self._catch_up(container, fd, target))

    def _catch_up(self, container: SupervisedContainer, fd: int, target: int) -> None:
        if container.flush(target):
            self._loop.remove_writer(target)
            container.close_ended(target)
        if not container.behind(fd) and fd in container.outputs and fd not in self._loop:
            self._loop.add_reader(fd, lambda: self._copy(container, fd))

    def _reap(self, container: SupervisedContainer, pending: Pending, pid: int) -> None:
        self._read_last_messages(pending)
        if container.pid != pid:
            return
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:  # The event was that of another file with this number, closed meanwhile.
            return
        self._loop.remove_reader(container.pidfd)
        if pending.continues():
            container.continue_as(pending.pid)
            self._watch_start(container, pending)
            return
        for fd in list(container.outputs):
            self._loop.remove_reader(fd)
        container.ended(status)
        for target in container.targets():
            self._loop.remove_writer(target)
            self._watch_writing(container, -1, target)
        self._report({"event": "exited", "id": container.id})

    # Streams

    def _exec(self, request: SocketRequest) -> None:
        container = self._containers[request.content["id"]]
        if not (container.is_running and container.has_started):
            raise RuntimeError("the container is not running")
        pending = Pending(request)
        pid = os.fork()
        if pid == 0:
            run_in_child(pending.their_channel, lambda: self._enter(container, pending))
        pending.began(pid)
        self._loop.add_reader(pending.channel.fileno(), lambda: self._hear(pending))
        self._watch_exec(pending)

    def _enter(self, container: SupervisedContainer, pending: Pending) -> NoReturn:
        """Become a command in a container, which may have ended meanwhile: then it has no namespaces any more."""
        spec, content = container.read_launch(), pending.request.content
        place = f"/proc/{container.pid}/ns"
        try:
            processes, space, users = (os.open(f"{place}/{kind}", os.O_RDONLY) for kind in ("pid", "mnt", "user"))
            signal.pidfd_send_signal(container.pidfd, 0)  # The number is still its own, and was when they were opened.
        except (FileNotFoundError, ProcessLookupError):
            raise RuntimeError("the container is not running") from None
        space_of_users = os.fstat(users).st_ino
        of_node = os.stat("/proc/self/ns/user").st_ino
        of_pod = of_node if self._users is None else os.fstat(self._users.namespace).st_ino
        spec |= {
            "argv": content["command"],
            "tty": content["tty"],
            "own_user_namespace": space_of_users != of_pod,
            "terminal_size": content.get("terminal_size"),
        }
        fds = pending.request.fds
        stdio = None if content["tty"] else (fds[0], fds[1], fds[2])
        enters = space_of_users != of_node
        start_in(self._launch(spec, pending, stdio), processes=processes, mounts=space, users=users if enters else -1)

    def _watch_exec(self, pending: Pending) -> None:
        pid = pending.pid
        pidfd = os.pidfd_open(pid)
        self._execs[pid] = pending
        self._loop.add_reader(pidfd, lambda: self._reap_exec(pending, pid, pidfd))

    def _reap_exec(self, pending: Pending, pid: int, pidfd: int) -> None:
        self._read_last_messages(pending)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:  # The event was that of another file with this number, closed meanwhile.
            return
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        self._execs.pop(pid, None)
        if pending.continues():
            self._watch_exec(pending)
            if pending.is_killed:
                os.kill(pending.pid, signal.SIGKILL)
            return
        if pending.is_open:
            self._loop.remove_reader(pending.channel.fileno())
            pending.channel.close()
        self._close_errors(pending)
        reply: Message = {"code": exit_code(status)}
        if pending.error:
            reply |= {"error": pending.error, "is_start_error": True}
        pending.request.reply(reply)

    def _attach(self, request: SocketRequest) -> None:
        container = self._containers[request.content["id"]]
        if not container.is_running:
            raise RuntimeError("the container is not running")
        container.attach(Attachment([os.dup(fd) for fd in request.fds]))
        passed = [container.stdin] if container.stdin >= 0 else []
        request.reply({"has_stdin": bool(passed)}, passed)
        if container.closes_stdin and passed:
            container.release_stdin()

    def _use_network(self, request: SocketRequest) -> None:
        """Change the routes of the pod, or begin a connection in its network.

        The agent, which receives the socket, waits until it is connected.
        """
        if request.content["op"] == "lead_to":
            self._routes.lead_to(request.content["addresses"], request.content["gateways"])
            request.reply({})
            return
        address, port = request.content["address"], request.content["port"]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as opened:
            opened.setblocking(False)
            error = opened.connect_ex((address, port))
            request.reply({"errno": error}, [opened.fileno()])


def _open_file(request: SocketRequest) -> None:
    """Send a file below a directory of the pod, as its containers see it: memory is mounted here alone."""
    try:
        file = open_regular_below(request.content["directory"], request.content["path"])
    except OSError as error:
        request.reply({"errno": error.errno or errno.EIO})
        return
    with file:
        request.reply({}, [file.fileno()])


def save_supervisor(directory: str) -> None:
    """Write the identity of this process, by which an agent knows whether it still lives."""
    with open("/proc/self/stat") as file:
        began = file.read().rpartition(")")[2].split()[19]
    write_json(os.path.join(directory, "supervisor.json"), {"pid": os.getpid(), "began": began, "at": time.time_ns()})
