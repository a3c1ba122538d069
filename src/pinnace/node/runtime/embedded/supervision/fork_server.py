"""The warm parent of the supervisors, and the holder of the node's network namespace.

    python -c '…main()' DIRECTORY OPTIONS

`node_namespaces` starts it in the namespaces of the node, for the first agent. It listens on `node.sock` in the state
directory of the node, and ends when no agent is connected and no pod is left; with `ends_with_agent` it ends the pods
too if no agent comes back. It has no threads and few modules, so that a fork costs 0.4 ms and shares its memory.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_interface, ip_network

from pinnace.network.families import family_of
from pinnace.network.listeners import bind_listener
from pinnace.network.netlink import Netlink
from pinnace.node.machine import linux, messages
from pinnace.node.machine.messages import Message, MessageServer, SocketRequest
from pinnace.node.machine.poll_loop import PollLoop
from pinnace.node.machine.status_files import is_alive, read_json
from pinnace.node.runtime.embedded.launches.seccomp import default_program
from pinnace.node.runtime.embedded.start.host_directories import users_without_ids
from pinnace.node.runtime.embedded.start.pod_users import (
    PodUsers,
    can_map,
    can_overlay,
    enter_pod_namespaces,
    part_of_pods,
    probe,
    range_from,
    same_ids,
)
from pinnace.node.runtime.embedded.supervision.measuring import measure
from pinnace.node.runtime.embedded.supervision.memory import mount_memory, open_memory
from pinnace.node.runtime.embedded.supervision.pod_links import add_link, checks_sources, make_network, set_sysctls
from pinnace.node.runtime.embedded.supervision.supervisor import PodSupervisor, save_supervisor

SOCKET = "node.sock"
_FIRST_AGENT_SECONDS = 30.0
# A pod that announces itself as a router, or redirects others to itself, would get their packets.
_IPV6_POD_SYSCTLS = {
    f"ipv6/conf/{name}/{option}": "0"
    for name in ("all", "default", "eth0")
    for option in ("disable_ipv6", "accept_ra", "accept_redirects")
}
_METER_NICENESS = 19
_OOM_SCORE = -999
"""As kubelet's: a pod that takes all memory must not end the supervisors of others, which take little."""


class ForkServer:
    """One per state directory."""

    def __init__(self, directory: str, options: Message) -> None:
        self._directory = directory
        self._options = options
        self._is_root = options["id_count"] == 0  # Every fork server is root in its own user namespace.
        self._id_count: int = options["id_count"]
        """How many user ids there are in the node's user namespace: 0 for all, 1 without subordinate ids."""
        self._loop = PollLoop()
        self._agents = MessageServer(self._loop, self._answer)
        self._children: dict[int, int] = {}
        """The supervisors: pidfd to pid."""
        self._meters: dict[int, int] = {}
        """The processes that measure files: pidfd to pid."""
        self._listeners: dict[tuple[int, str, int], socket.socket] = {}
        self._namespaces: list[int] = []
        """The open namespaces of the node. Supervisors and agents keep them for a fork server that follows this one."""
        self._is_ending = False
        self._seccomp = b""
        self._users_without_ids = -1
        self._pod_users: PodUsers | None = None
        """A user namespace like those of pods; None if this machine cannot give them their own."""
        self._netlink: Netlink | None = None

    def prepare(self) -> None:
        """Make the network of the node and its directory in memory, and load all that a supervisor needs."""
        mount_memory(self._directory)
        names = (*(() if self._is_root else ("user",)), "net", "mnt")
        self._namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
        if not self._is_root:
            _leave_watches_to_user()
        self._netlink = Netlink()
        make_network(self._netlink, self._options["node_addresses"])
        self._seccomp = default_program()
        self._users_without_ids = users_without_ids()
        self._pod_users = probe(self._directory) if self._is_root else None
        self._agents.listen(self._directory, SOCKET, users=[os.geteuid()])
        self._adopt_supervisors()
        save_supervisor(self._directory)

    def run(self) -> None:
        gc.collect()
        gc.freeze()  # A collection would touch, and thereby copy, the shared memory in every supervisor.
        gc.disable()
        idle_seconds = self._options["idle_seconds"]
        deadline = time.monotonic() + _FIRST_AGENT_SECONDS
        while self._is_needed(deadline):
            is_held = self._is_held()
            self._loop.turn(None if is_held else max(0.0, deadline - time.monotonic()))
            if is_held:
                deadline = time.monotonic() + idle_seconds
        for child in (*self._children.values(), *self._meters.values()):  # Containers end with their supervisor.
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, SOCKET))

    def _is_needed(self, deadline: float) -> bool:
        if self._is_ending:
            return bool(self._children)
        return self._is_held() or time.monotonic() < deadline

    def _is_held(self) -> bool:
        return bool(self._agents.peers or (self._children and not self._options["ends_with_agent"]))

    # Requests of agents

    def _answer(self, request: SocketRequest) -> None:
        content = request.content
        match content["op"]:
            case "socket":  # It stays in the network of the node, though the agent uses it.
                with contextlib.ExitStack() as stack:
                    kind = (content["family"], content["kind"], content["protocol"])
                    made = [stack.enter_context(socket.socket(*kind)) for _ in range(content["count"])]
                    request.reply({}, [opened.fileno() for opened in made])
            case "listen":
                kept = self._listener_at(content["kind"], content["address"], content["port"])
                request.reply({}, [kept.fileno()])
            case "run":
                request.reply({"pid": self._fork_supervisor(content, request.fds[0])})
            case "can_map":
                assert self._pod_users is not None
                request.reply({"can_map": all(can_map(self._pod_users, path) for path in content["paths"])})
            case "measure":
                self._fork_meter(content, request.fds[0])
                request.reply({})
            case "end":
                self._is_ending = True
                request.reply({})
            case "ping":
                request.reply({})
            case "hello":
                self._greet(request)
            case other:
                raise ValueError(f"the fork server knows no request {other!r}")

    def _greet(self, request: SocketRequest) -> None:
        abilities = {
            "is_root": self._is_root,
            "id_count": self._id_count,
            "has_overlay": can_overlay(self._directory),
            "has_pod_users": self._pod_users is not None,
            "has_seccomp": bool(self._seccomp),
            "pid": os.getpid(),
            "checks_sources": checks_sources(),
        }
        memory = open_memory(self._directory)
        request.reply(abilities, [memory, *self._namespaces])
        os.close(memory)

    def _listener_at(self, kind: int, address: str, port: int) -> socket.socket:
        """Return a bound socket that stays open without an agent: clients of a killed one wait for the next."""
        kept = self._listeners.get((kind, address, port))
        if kept is None:
            kept = socket.socket(socket.AF_INET, kind)
            try:
                bind_listener(kept, address, port)
            except OSError:
                kept.close()
                raise
            self._listeners[kind, address, port] = kept
        return kept

    def _fork_supervisor(self, request: Message, channel: int) -> int:
        ours, theirs = messages.pair()
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                self._supervise(request, channel, theirs)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = pid
        self._loop.add_reader(pidfd, lambda: self._reap(self._children, pidfd))
        self._loop.add_reader(ours.fileno(), lambda: self._connect_pod(request, pid, ours))
        return pid

    def _adopt_supervisors(self) -> None:
        """Watch the supervisors that a killed fork server has left. They have another parent, which reaps them."""
        pods = os.path.join(self._directory, "pods")
        for name in os.listdir(pods) if os.path.isdir(pods) else ():
            with contextlib.suppress(OSError, ValueError):
                known = read_json(os.path.join(pods, name, "supervisor.json"))
                pidfd = os.pidfd_open(known["pid"])
                if not is_alive(known["pid"], known["began"]):
                    os.close(pidfd)
                    continue
                self._children[pidfd] = known["pid"]
                self._loop.add_reader(pidfd, partial(self._reap, self._children, pidfd))

    def _fork_meter(self, request: Message, output: int) -> None:
        """Measure files in a process of its own: it may take long, and may read what only the pods' root may."""
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != own:  # It ended before the kernel knew of the wish.
                    os._exit(1)
                os.closerange(3, output)
                os.closerange(output + 1, os.sysconf("SC_OPEN_MAX"))
                linux.name_process("pinnace-meter")
                os.nice(_METER_NICENESS)
                _set_oom_score(0)
                measure(request["directory"], request["layers"], output)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        pidfd = os.pidfd_open(pid)
        self._meters[pidfd] = pid
        self._loop.add_reader(pidfd, lambda: self._reap(self._meters, pidfd))

    def _reap(self, children: dict[int, int], pidfd: int) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(children[pidfd], 0)
        self._loop.remove_reader(pidfd)
        del children[pidfd]
        os.close(pidfd)

    def _connect_pod(self, request: Message, pid: int, channel: socket.socket) -> None:
        """Lead a veth pair into the network of a new supervisor."""
        try:
            message, _ = messages.receive(channel)
            if message is not None:
                if request["addresses"]:
                    assert self._netlink is not None
                    add_link(self._netlink, request, pid)
                messages.send(channel, {"error": ""})
        except OSError as error:
            with contextlib.suppress(OSError):
                messages.send(channel, {"error": str(error)})
        self._loop.remove_reader(channel.fileno())
        channel.close()

    # In the new supervisor

    def _supervise(self, request: Message, channel: int, node: socket.socket) -> None:
        agent = socket.socket(fileno=os.dup(channel))
        os.set_inheritable(agent.fileno(), False)
        self._leave_parent(request["directory"])
        try:
            users = self._enter_pod(request, node)
            supervisor = PodSupervisor(
                request["directory"],
                agent,
                seccomp=self._seccomp,
                id_count=self._id_count,
                users_without_ids=self._users_without_ids,
                users=users,
                namespaces=self._namespaces,
            )
            if request["shares_processes"]:
                supervisor.share_processes()
            save_supervisor(request["directory"])
        except Exception as error:
            agent.setblocking(True)
            messages.send(agent, {"event": "failed", "error": f"{type(error).__name__}: {error}"})
            raise
        messages.send(agent, {"event": "ready"})
        supervisor.run()
        os._exit(0)

    def _leave_parent(self, directory: str) -> None:
        linux.name_process("pinnace-pod")
        os.setsid()
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        self._loop.close()  # First: the server would take its files out of the loop, which the parent shares.
        self._agents.close()
        for pidfd in (*self._children, *self._meters):
            os.close(pidfd)
        assert self._netlink is not None
        self._netlink.close()
        for kept in self._listeners.values():
            kept.close()
        null = os.open("/dev/null", os.O_RDWR)
        log = os.open(os.path.join(directory, "supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, fd in ((0, null), (1, null), (2, log)):
            os.dup2(fd, number)

    def _enter_pod(self, request: Message, node: socket.socket) -> PodUsers | None:
        flags = linux.CLONE_NEWUTS
        flags |= 0 if request["host_ipc"] else linux.CLONE_NEWIPC
        flags |= 0 if request["host_network"] else linux.CLONE_NEWNET
        ids = range_from(request["users"]) if self._is_root else same_ids(self._id_count)
        users = enter_pod_namespaces(ids, flags) if request["users"] or not self._is_root else None
        linux.unshare(linux.CLONE_NEWNS | (flags if users is None else 0))
        messages.send(node, {"op": "connect"})
        reply, _ = messages.receive(node)
        node.close()
        if reply is None or reply["error"]:
            raise RuntimeError(f"the pod's network cannot be made: {reply['error'] if reply else 'no answer'}")
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_SLAVE)
        socket.sethostname(request["hostname"])
        if not request["host_network"]:
            _configure_network(request)
        _set_pod_sysctls(request["sysctls"], users.first if users is not None else 0)
        for wanted in request["temporary_file_systems"]:
            _mount_memory(wanted)
        return users


def _mount_memory(wanted: Message) -> None:
    """Mount a `TemporaryFileSystem`."""
    path, group = wanted["path"], wanted["group"]
    os.makedirs(path, exist_ok=True)
    options = [f"mode={wanted['mode']:o}", *([f"size={wanted['size_bytes']}"] if wanted["size_bytes"] else [])]
    flags = linux.MS_NOSUID | linux.MS_NODEV
    if wanted["page_bytes"]:
        owner = [f"gid={group}"] if group is not None else []
        options = [f"pagesize={wanted['page_bytes']}", f"mode={wanted['mode']:o}", *owner]
        linux.mount("hugetlbfs", path, "hugetlbfs", flags, ",".join(options))
        return
    if group is not None:
        # An ordinary user may lack the group; the containers have none but their own then.
        with contextlib.suppress(OSError):
            linux.mount("tmpfs", path, "tmpfs", flags, ",".join((*options, f"gid={group}")))
            return
    linux.mount("tmpfs", path, "tmpfs", flags, ",".join(options))


def _configure_network(request: Message) -> None:
    netlink = Netlink()
    netlink.set_up("lo")
    if len(request["addresses"]) > 1:
        set_sysctls(_IPV6_POD_SYSCTLS)
    if request["addresses"]:
        netlink.set_up("eth0")
    for text, gateway in zip(request["addresses"], request["gateways"], strict=True):
        family, address = family_of(text), ip_interface(text)
        netlink.add_address("eth0", ip_interface((address.ip, address.max_prefixlen)))
        netlink.add_link_route(ip_network(gateway), name="eth0")
        for network in {str(address.network), *(route for route in request["routes"] if family_of(route) is family)}:
            netlink.add_route(ip_network(network), gateway=gateway)
    if netlink.has_default_route() and not request["has_egress"]:
        raise RuntimeError("the network namespace of the pod has a default route; it must have none")
    netlink.close()
    groups = "0 0" if os.geteuid() else "0 2147483647"
    set_sysctls({"ipv4/ip_unprivileged_port_start": "0", "ipv4/ping_group_range": groups})


def _set_pod_sysctls(values: Mapping[str, str], root: int) -> None:
    """Set sysctls of the pod's namespaces. Those of IPC are written by the user that is root there, and no other."""
    for name, value in values.items():
        os.seteuid(0 if name.startswith("net.") else root)
        try:
            _write("/proc/sys/" + name.replace(".", "/"), value)
        finally:
            os.seteuid(0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _leave_watches_to_user() -> None:
    """Bound the inotify instances of all pods of an ordinary user, which the kernel counts as those of the user."""
    with contextlib.suppress(OSError):
        with open("/proc/sys/fs/inotify/max_user_instances") as file:
            most = int(file.read())
        _write("/proc/sys/user/max_inotify_instances", str(part_of_pods(most)))


def _set_oom_score(score: int) -> None:
    """Containers set their own; the supervisors have that of the fork server."""
    with contextlib.suppress(OSError):  # Only root may lower it.
        _write("/proc/self/oom_score_adj", str(score))


def main() -> None:
    directory, options = sys.argv[1], json.loads(sys.argv[2])
    linux.name_process("pinnace-node")
    _set_oom_score(_OOM_SCORE)
    os.umask(0o077)
    server = ForkServer(directory, options)
    server.prepare()
    print("ready", flush=True)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 1)
    server.run()
