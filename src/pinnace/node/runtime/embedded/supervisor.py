"""The supervisor of one pod: a small process that owns the pod's namespaces and the streams of its containers.

It is forked from the fork server, outlives the agent, and ends when the pod does. Agents connect to `supervisor.sock`
in the directory of the pod. Each container is a child with a process namespace of its own; it dies with the supervisor.

A request is a message with `op` and `n`; the reply repeats `n`. Events have `event` instead.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence

from pinnace.node.runtime.embedded import linux, messages
from pinnace.node.runtime.embedded.container_process import Launch, start, start_in
from pinnace.node.runtime.embedded.messages import Message
from pinnace.node.runtime.embedded.status_files import read_json, write_json
from pinnace.node.runtime.embedded.supervised import Attachment, SupervisedContainer

_CHUNK = 65536
SOCKET = "supervisor.sock"


class AgentPeer:
    """A connection of an agent."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        with contextlib.suppress(OSError):  # A peer that is gone, or does not read, is closed by its own event.
            messages.send(self.channel, message, fds)


class Pending:
    """A process between fork and exec, and the request that waits for it."""

    def __init__(self, peer: AgentPeer, number: int, pid: int, channel: socket.socket) -> None:
        self.peer = peer
        self.number = number
        self.pid = pid
        self.channel = channel
        self.error = ""


class PodSupervisor:
    """Runs until `stop` is asked for."""

    def __init__(self, directory: str, first: socket.socket, *, seccomp: bytes, id_count: int) -> None:
        self._directory = directory
        self._seccomp = seccomp
        self._id_count = id_count
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._peers: dict[int, AgentPeer] = {}
        self._containers: dict[str, SupervisedContainer] = {}
        self._pause = 0
        self._execs: dict[int, tuple[AgentPeer, int]] = {}
        self._is_stopping = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listen()
        self._add_peer(first)

    def share_processes(self) -> None:
        """Give the pod one process namespace, whose first process only reaps orphans."""
        self._pause = linux.clone(linux.CLONE_NEWPID)
        if self._pause == 0:
            _reap_forever()

    def run(self) -> None:
        while not (self._is_stopping and not any(one.is_running for one in self._containers.values())):
            for fd, _ in self._poll.poll():
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler()
        if self._pause:
            os.kill(self._pause, signal.SIGKILL)
            os.waitpid(self._pause, 0)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, SOCKET))
        for peer in self._peers.values():
            peer.send({"event": "stopped"})

    # Connections

    def _listen(self) -> None:
        path = os.path.join(self._directory, SOCKET)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        here = os.open(self._directory, os.O_PATH | os.O_DIRECTORY)
        self._listener.bind(f"/proc/self/fd/{here}/{SOCKET}")  # The path of a socket has at most 107 bytes.
        os.close(here)
        os.chmod(path, 0o600)
        self._listener.listen(8)
        self._listener.setblocking(False)
        self._watch(self._listener.fileno(), self._accept)

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.EPOLLIN)

    def _forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            self._add_peer(self._listener.accept()[0])

    def _add_peer(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        peer = self._peers[channel.fileno()] = AgentPeer(channel)
        self._watch(channel.fileno(), lambda: self._hear(peer))

    def _hear(self, peer: AgentPeer) -> None:
        try:
            request, fds = messages.receive(peer.channel)
        except BlockingIOError:
            return
        except OSError:
            request, fds = None, []
        if request is None:
            self._drop(peer)
            return
        try:
            self._answer(peer, request, fds)
        except Exception as error:  # A bad request must not end the pod.
            peer.send({"n": request.get("n"), "error": f"{type(error).__name__}: {error}"})
        finally:
            for fd in fds:
                os.close(fd)

    def _drop(self, peer: AgentPeer) -> None:
        """Close a connection, and kill the commands that ran for it."""
        self._kill_execs(peer)
        fd = peer.channel.fileno()
        self._forget(fd)
        self._peers.pop(fd, None)
        peer.channel.close()

    def _kill_execs(self, peer: AgentPeer, number: int = 0) -> None:
        """Kill the command that runs for a request, or for all requests of a connection."""
        for pid, (owner, known) in self._execs.items():
            if owner is peer and number in (0, known):
                os.kill(pid, signal.SIGKILL)

    def _answer(self, peer: AgentPeer, request: Message, fds: list[int]) -> None:
        number = request["n"]
        match request["op"]:
            case "start":
                self._start(peer, request, fds)
            case "exec":
                self._exec(peer, request, fds)
            case "attach":
                self._attach(peer, request, fds)
            case "connect":
                self._connect(peer, request)
            case "signal":
                self._containers[request["id"]].signal(request["signal"])
                peer.send({"n": number})
            case "kill_exec":
                self._kill_execs(peer, request["exec"])
                peer.send({"n": number})
            case "forget":
                self._containers = {key: one for key, one in self._containers.items() if key != request["id"]}
                peer.send({"n": number})
            case "stop":
                self._is_stopping = True
                self._kill_all()
                peer.send({"n": number})
            case other:
                peer.send({"n": number, "error": f"the supervisor knows no request {other!r}"})

    # Containers

    def _kill_all(self) -> None:
        for container in self._containers.values():
            container.signal(signal.SIGKILL)

    def _start(self, peer: AgentPeer, request: Message, fds: list[int]) -> None:
        if self._is_stopping:
            raise RuntimeError("the pod is stopping")
        container = SupervisedContainer(os.path.join(self._directory, "containers", request["id"]), request)
        self._containers[container.id] = container
        ours, theirs = messages.pair()
        stdio = container.open_streams()
        pid = self._fork_in(self._process_namespace(request))
        if pid == 0:
            ours.close()
            spec = read_json(os.path.join(container.directory, "launch.json"))
            spec["trees"] = dict(zip(request["trees"], fds, strict=True))
            start(self._launch(spec, theirs, stdio))
        theirs.close()
        container.began(pid)
        self._watch(container.pidfd, lambda: self._reap(container))
        for fd in container.outputs:
            self._watch(fd, lambda fd=fd: self._copy(container, fd))  # type: ignore[misc]
        pending = Pending(peer, request["n"], pid, ours)
        self._watch(ours.fileno(), lambda: self._await_start(container, pending))

    def _launch(self, spec: Message, channel: socket.socket, stdio: tuple[int, int, int] | None) -> Launch:
        return Launch(spec, channel, stdio=stdio, seccomp=self._seccomp, id_count=self._id_count)

    def _process_namespace(self, request: Message) -> int:
        """The process namespace of a new container, as `_fork_in` takes it."""
        if request.get("target"):
            return os.open(f"/proc/{self._containers[request['target']].pid}/ns/pid", os.O_RDONLY)
        if request["processes"] == "node":
            return 0
        if request["processes"] == "pod" and self._pause:
            return os.open(f"/proc/{self._pause}/ns/pid", os.O_RDONLY)
        return -1

    def _fork_in(self, processes: int) -> int:
        """Fork a child into a process namespace: an open file, which is closed; 0 for this one, -1 for a new one."""
        if processes == 0:
            return os.fork()
        if processes < 0:
            return linux.clone(linux.CLONE_NEWPID)
        reading, writing = os.pipe()
        helper = os.fork()
        if helper == 0:
            try:
                linux.setns(processes, linux.CLONE_NEWPID)
                pid = linux.clone(linux.CLONE_PARENT)
            except OSError as error:
                os.write(writing, str(-(error.errno or 1)).encode())
                os._exit(1)
            if pid == 0:
                return 0
            os.write(writing, str(pid).encode())
            os._exit(0)
        for fd in (writing, processes):
            os.close(fd)
        os.waitpid(helper, 0)
        answer = int(os.read(reading, 32) or b"-1")
        os.close(reading)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer), "the process namespace of the container")
        return answer

    def _await_start(self, container: SupervisedContainer, pending: Pending) -> None:
        message, fds = messages.receive(pending.channel)
        if message is not None and "terminal" in message:
            container.set_terminal(fds[0])
            self._watch(fds[0], lambda: self._copy(container, fds[0]))
            return
        if message is not None:
            container.error = pending.error = message["error"]
            return
        self._forget(pending.channel.fileno())
        pending.channel.close()
        if pending.error:
            pending.peer.send({"n": pending.number, "error": pending.error, "is_start_error": True})
            return
        if container.is_running:
            container.save()
        pending.peer.send({"n": pending.number, "pid": pending.pid, "started_at": container.started_at})

    def _copy(self, container: SupervisedContainer, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # A terminal ends with EIO.
            data = b""
        if not data:
            self._forget(fd)
            container.end_output(fd)
            return
        if not container.write(fd, data):
            self._wait_for_readers(container, fd)

    def _wait_for_readers(self, container: SupervisedContainer, fd: int) -> None:
        """Stop reading a stream until every attached client has taken what it was sent."""
        self._forget(fd)
        for attachment in container.behind(fd):
            self._watch_writing(container, fd, attachment.target(container.outputs[fd]))

    def _watch_writing(self, container: SupervisedContainer, fd: int, target: int) -> None:
        if target not in self._handlers:
            self._handlers[target] = lambda: self._catch_up(container, fd, target)
            self._poll.register(target, select.EPOLLOUT)

    def _catch_up(self, container: SupervisedContainer, fd: int, target: int) -> None:
        if container.flush(target):
            self._forget(target)
            container.close_ended(target)
        if not container.behind(fd) and fd in container.outputs and fd not in self._handlers:
            self._watch(fd, lambda: self._copy(container, fd))

    def _reap(self, container: SupervisedContainer) -> None:
        _, status = os.waitpid(container.pid, 0)
        self._forget(container.pidfd)
        for fd in list(container.outputs):
            self._forget(fd)
        container.ended(status)
        for target in container.targets():
            self._forget(target)
            self._watch_writing(container, -1, target)
        for peer in list(self._peers.values()):
            peer.send({"event": "exited", "id": container.id})

    # Streams

    def _exec(self, peer: AgentPeer, request: Message, fds: list[int]) -> None:
        container = self._containers[request["id"]]
        if not container.is_running:
            raise RuntimeError("the container is not running")
        ours, theirs = messages.pair()
        place = f"/proc/{container.pid}/ns"
        pid = self._fork_in(os.open(f"{place}/pid", os.O_RDONLY))
        if pid == 0:
            ours.close()
            spec = read_json(os.path.join(container.directory, "launch.json"))
            owns_users = os.stat(f"{place}/user").st_ino != os.stat("/proc/self/ns/user").st_ino
            spec |= {
                "argv": request["command"],
                "tty": request["tty"],
                "is_exec": True,
                "own_user_namespace": owns_users,
                "terminal_size": request.get("terminal_size"),
            }
            stdio = None if request["tty"] else _three(fds)
            mounts, users = (os.open(f"{place}/{kind}", os.O_RDONLY) for kind in ("mnt", "user"))
            start_in(self._launch(spec, theirs, stdio), mounts, users)
        theirs.close()
        pidfd = os.pidfd_open(pid)
        self._execs[pid] = (peer, request["n"])
        pending = Pending(peer, request["n"], pid, ours)
        self._watch(ours.fileno(), lambda: self._await_exec(pending))
        self._watch(pidfd, lambda: self._reap_exec(pending, pidfd))

    def _await_exec(self, pending: Pending) -> None:
        message, fds = messages.receive(pending.channel)
        if message is not None and "terminal" in message:
            pending.peer.send({"n": pending.number, "terminal": True}, fds)
            for fd in fds:
                os.close(fd)
        elif message is not None:
            pending.error = message["error"]
        else:
            self._forget(pending.channel.fileno())
            pending.channel.close()

    def _reap_exec(self, pending: Pending, pidfd: int) -> None:
        if pending.channel.fileno() in self._handlers:
            self._await_exec(pending)  # The error, if any, was sent before the end.
            self._forget(pending.channel.fileno())
            pending.channel.close()
        _, status = os.waitpid(pending.pid, 0)
        self._forget(pidfd)
        os.close(pidfd)
        self._execs.pop(pending.pid, None)
        reply: Message = {"n": pending.number, "code": exit_code(status)}
        if pending.error:
            reply |= {"error": pending.error, "is_start_error": True}
        pending.peer.send(reply)

    def _attach(self, peer: AgentPeer, request: Message, fds: list[int]) -> None:
        container = self._containers[request["id"]]
        if not container.is_running:
            raise RuntimeError("the container is not running")
        container.attach(Attachment([os.dup(fd) for fd in fds]))
        passed = [container.stdin] if container.stdin >= 0 else []
        peer.send({"n": request["n"], "has_stdin": bool(passed)}, passed)
        if container.closes_stdin and passed:
            container.release_stdin()

    def _connect(self, peer: AgentPeer, request: Message) -> None:
        """Begin a connection in the pod's network; the agent, which receives the socket, waits for its end."""
        family = socket.AF_INET6 if ":" in request["address"] else socket.AF_INET
        kind = socket.SOCK_DGRAM if request.get("datagrams") else socket.SOCK_STREAM
        with socket.socket(family, kind) as opened:
            opened.setblocking(False)
            error = opened.connect_ex((request["address"], request["port"]))
            peer.send({"n": request["n"], "errno": error}, [opened.fileno()])


def exit_code(status: int) -> int:
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _three(fds: list[int]) -> tuple[int, int, int]:
    return fds[0], fds[1], fds[2]


def _reap_forever() -> None:
    linux.name_process("pause")
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()


def save_supervisor(directory: str) -> None:
    """Write the identity of this process, by which an agent knows whether it still lives."""
    with open("/proc/self/stat") as file:
        began = file.read().rpartition(")")[2].split()[19]
    write_json(os.path.join(directory, "supervisor.json"), {"pid": os.getpid(), "began": began, "at": time.time_ns()})
