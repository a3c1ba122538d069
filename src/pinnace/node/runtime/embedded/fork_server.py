"""The warm parent of the supervisors, and the holder of the node's network namespace.

    python -c '…main()' DIRECTORY OPTIONS

It is started once by the first agent, listens on `node.sock` in the state directory of the node, and ends when no agent
is connected and no pod is left; with `ends_with_agent` it ends the pods too if no agent comes back. It has no threads
and few modules, so that a fork costs 0.4 ms and shares its memory.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from ipaddress import ip_interface, ip_network

from pinnace.network.families import family_of
from pinnace.network.listeners import bind_listener
from pinnace.network.pods.netlink import Netlink
from pinnace.node.runtime.embedded import linux, messages
from pinnace.node.runtime.embedded.file_trees import size_of_layer, sizes_below
from pinnace.node.runtime.embedded.messages import Message
from pinnace.node.runtime.embedded.seccomp import default_program
from pinnace.node.runtime.embedded.subordinate_ids import enter_user_namespace
from pinnace.node.runtime.embedded.supervisor import PodSupervisor, save_supervisor

SOCKET = "node.sock"
BRIDGE = "pods0"
_FIRST_AGENT_SECONDS = 30.0
_NODE_SYSCTLS = {
    "ipv4/ip_forward": "1",
    # Pods reach each other through the node, whose rules see their traffic: neither redirects nor the bridge go round.
    "ipv4/conf/all/send_redirects": "0",
    f"ipv4/conf/{BRIDGE}/send_redirects": "0",
    "bridge/bridge-nf-call-iptables": "0",
    "bridge/bridge-nf-call-ip6tables": "0",
}
_IPV6_NODE_SYSCTLS = {"ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/all/forwarding": "1"}
# A pod that announces itself as a router, or redirects others to itself, would get their packets.
_IPV6_POD_SYSCTLS = {
    f"ipv6/conf/{name}/{option}": "0"
    for name in ("all", "default", "eth0")
    for option in ("disable_ipv6", "accept_ra", "accept_redirects")
}
_METER_NICENESS = 19
_POD_NAMESPACES = linux.CLONE_NEWNS | linux.CLONE_NEWUTS


class ForkServer:
    """One per state directory."""

    def __init__(self, directory: str, options: Message) -> None:
        self._directory = directory
        self._options = options
        self._is_root = os.geteuid() == 0
        self._id_count = 0
        """How many user ids there are in the node's user namespace: 0 for all, 1 without subordinate ids."""
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._agents: dict[int, socket.socket] = {}
        self._children: dict[int, int] = {}
        """The supervisors: pidfd to pid."""
        self._meters: dict[int, int] = {}
        """The processes that measure files: pidfd to pid."""
        self._listeners: dict[tuple[int, str, int], socket.socket] = {}
        self._is_ending = False
        self._seccomp = b""
        self._netlink: Netlink | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def prepare(self) -> None:
        """Enter the node's namespaces, make its bridge and load everything that a supervisor needs."""
        self._enter_namespaces()
        self._netlink = Netlink()
        self._make_bridge(self._netlink)
        self._seccomp = default_program()
        here = os.open(self._directory, os.O_PATH | os.O_DIRECTORY)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=here)
        self._listener.bind(f"/proc/self/fd/{here}/{SOCKET}")
        os.close(here)
        self._listener.listen(8)
        self._listener.setblocking(False)
        self._watch(self._listener.fileno(), self._accept)
        save_supervisor(self._directory)

    def run(self) -> None:
        gc.collect()
        gc.freeze()  # A collection would touch, and thereby copy, the shared memory in every supervisor.
        gc.disable()
        idle_seconds = self._options["idle_seconds"]
        deadline = time.monotonic() + _FIRST_AGENT_SECONDS
        while self._is_needed(deadline):
            is_held = self._is_held()
            for fd, _ in self._poll.poll(None if is_held else max(0.0, deadline - time.monotonic())):
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler()
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
        return bool(self._agents or (self._children and not self._options["ends_with_agent"]))

    # The node

    def _enter_namespaces(self) -> None:
        if self._is_root:
            linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWNET)
        else:
            self._id_count = enter_user_namespace(linux.CLONE_NEWNS | linux.CLONE_NEWNET)
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_SLAVE)

    def _make_bridge(self, netlink: Netlink) -> None:
        addresses = self._options["bridge_addresses"]
        netlink.set_up("lo")
        netlink.add_bridge(BRIDGE)
        _set_sysctls(_NODE_SYSCTLS)
        if len(addresses) > 1:
            _set_sysctls(_IPV6_NODE_SYSCTLS)
        for address in addresses:
            netlink.add_address(BRIDGE, ip_interface(address))
        netlink.set_up(BRIDGE)
        if netlink.has_default_route():
            raise RuntimeError("the network namespace of the node has a default route; it must have none")

    # Requests of agents

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.EPOLLIN)

    def _forget(self, fd: int) -> None:
        self._handlers.pop(fd, None)
        self._poll.unregister(fd)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            agent, _ = self._listener.accept()
            self._agents[agent.fileno()] = agent
            self._watch(agent.fileno(), lambda: self._hear(agent))

    def _hear(self, agent: socket.socket) -> None:
        try:
            request, fds = messages.receive(agent)
        except OSError:
            request, fds = None, []
        if request is None:
            self._forget(agent.fileno())
            del self._agents[agent.fileno()]
            agent.close()
            return
        reply: Message
        opened: list[int] = []
        try:
            reply = self._answer(request, fds, opened)
        except Exception as error:  # One bad request must not end the node.
            reply = {"error": f"{type(error).__name__}: {error}"}
        finally:
            for fd in fds:
                os.close(fd)
        with contextlib.suppress(OSError):
            messages.send(agent, {"n": request.get("n"), **reply}, opened)
        for fd in opened:
            os.close(fd)

    def _answer(self, request: Message, fds: list[int], opened: list[int]) -> Message:
        """Return the reply to a request. Files that go with it are added to `opened`."""
        match request["op"]:
            case "socket":  # It stays in the network of the node, though the agent uses it.
                for _ in range(request["count"]):
                    made = socket.socket(request["family"], request["kind"], request["protocol"])
                    opened.append(made.detach())
                return {}
            case "listen":
                opened.append(os.dup(self._listener_at(request["kind"], request["address"], request["port"]).fileno()))
                return {}
            case "run":
                return {"pid": self._fork_supervisor(request, fds[0])}
            case "measure":
                self._fork_meter(request, fds[0])
                return {}
            case "end":
                self._is_ending = True
                return {}
            case "hello":
                return {
                    "is_root": self._is_root,
                    "id_count": self._id_count,
                    "has_overlay": self._try_overlay(),
                    "has_seccomp": bool(self._seccomp),
                    "pid": os.getpid(),
                }
            case other:
                raise ValueError(f"the fork server knows no request {other!r}")

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

    def _try_overlay(self) -> bool:
        """Whether this user may mount overlays: tried once, in a directory of the node."""
        place = os.path.join(self._directory, "overlay-probe")
        paths = [os.path.join(place, name) for name in ("lower", "upper", "work", "root")]
        for path in paths:
            os.makedirs(path, exist_ok=True)
        try:
            options = f"lowerdir={paths[0]},upperdir={paths[1]},workdir={paths[2]},userxattr"
            linux.mount("overlay", paths[3], "overlay", 0, options)
            linux.unmount(paths[3])
        except OSError:
            return False
        finally:
            for path in (os.path.join(paths[2], "work"), *paths, place):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        return True

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
        self._watch(pidfd, lambda: self._reap(self._children, pidfd))
        self._watch(ours.fileno(), lambda: self._connect_pod(request, pid, ours))
        return pid

    def _fork_meter(self, request: Message, output: int) -> None:
        """Measure files in a process of its own: it may take long, and may read what only the pods' root may."""
        pid = os.fork()
        if pid == 0:
            try:
                os.closerange(3, output)
                os.closerange(output + 1, os.sysconf("SC_OPEN_MAX"))
                linux.name_process("pinnace-meter")
                os.nice(_METER_NICENESS)
                _measure(request, output)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        pidfd = os.pidfd_open(pid)
        self._meters[pidfd] = pid
        self._watch(pidfd, lambda: self._reap(self._meters, pidfd))

    def _reap(self, children: dict[int, int], pidfd: int) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(children[pidfd], 0)
        self._forget(pidfd)
        del children[pidfd]
        os.close(pidfd)

    def _connect_pod(self, request: Message, pid: int, channel: socket.socket) -> None:
        """Map the users of a new supervisor's namespaces, and lead a veth pair into its network."""
        try:
            message, _ = messages.receive(channel)
            if message is not None:
                if not self._is_root:
                    for name in ("uid_map", "gid_map"):
                        _write(f"/proc/{pid}/{name}", self._pod_ids())
                if request["addresses"]:
                    assert self._netlink is not None
                    self._netlink.add_veth(request["veth"], "eth0", peer_pid=pid, bridge=BRIDGE)
                    # Link-local IPv6 addresses would lead from pod to pod past the node and its network policies.
                    self._netlink.isolate(request["veth"])
                messages.send(channel, {"error": ""})
        except OSError as error:
            with contextlib.suppress(OSError):
                messages.send(channel, {"error": str(error)})
        self._forget(channel.fileno())
        channel.close()

    def _pod_ids(self) -> str:
        """All ids of the node, by the two ranges that it has: a line may not span them."""
        return "0 0 1" + (f"\n1 1 {self._id_count - 1}" if self._id_count > 1 else "")

    # In the new supervisor

    def _supervise(self, request: Message, channel: int, node: socket.socket) -> None:
        agent = socket.socket(fileno=os.dup(channel))
        os.set_inheritable(agent.fileno(), False)
        self._leave_parent(request["directory"])
        try:
            self._enter_pod(request, node)
            supervisor = PodSupervisor(request["directory"], agent, seccomp=self._seccomp, id_count=self._id_count)
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
        self._poll.close()
        self._listener.close()
        for agent in self._agents.values():
            agent.close()
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

    def _enter_pod(self, request: Message, node: socket.socket) -> None:
        flags = _POD_NAMESPACES if self._is_root else _POD_NAMESPACES | linux.CLONE_NEWUSER
        flags |= 0 if request["host_ipc"] else linux.CLONE_NEWIPC
        flags |= 0 if request["host_network"] else linux.CLONE_NEWNET
        linux.unshare(flags)
        messages.send(node, {"op": "connect"})
        reply, _ = messages.receive(node)
        node.close()
        if reply is None or reply["error"]:
            raise RuntimeError(f"the pod's network cannot be made: {reply['error'] if reply else 'no answer'}")
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_SLAVE)
        socket.sethostname(request["hostname"])
        if not request["host_network"]:
            _configure_network(request)
        for name, value in request["sysctls"].items():
            _write("/proc/sys/" + name.replace(".", "/"), value)
        for path, size in request["temporary_file_systems"]:
            os.makedirs(path, exist_ok=True)
            linux.mount("tmpfs", path, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, f"size={size}" if size else "")


def _measure(request: Message, output: int) -> None:
    began = time.process_time()
    found = {
        "files": sizes_below(request["directory"]),
        "layers": [size_of_layer(layer) for layer in request["layers"]],
    }
    with os.fdopen(output, "w") as file:
        json.dump({**found, "cpu_seconds": time.process_time() - began}, file)


def _configure_network(request: Message) -> None:
    netlink = Netlink()
    netlink.set_up("lo")
    if len(request["addresses"]) > 1:
        _set_sysctls(_IPV6_POD_SYSCTLS)
    if request["addresses"]:
        netlink.set_up("eth0")
    for text, gateway in zip(request["addresses"], request["gateways"], strict=True):
        family, address = family_of(text), ip_interface(text)
        netlink.add_address("eth0", ip_interface((address.ip, address.max_prefixlen)))
        netlink.add_link_route(ip_network(gateway), name="eth0")
        for network in {str(address.network), *(one for one in request["routes"] if family_of(one) is family)}:
            netlink.add_route(ip_network(network), gateway=gateway)
    if netlink.has_default_route() and not request["has_egress"]:
        raise RuntimeError("the network namespace of the pod has a default route; it must have none")
    netlink.close()
    groups = "0 0" if os.geteuid() else "0 2147483647"
    _set_sysctls({"ipv4/ip_unprivileged_port_start": "0", "ipv4/ping_group_range": groups})


def _set_sysctls(values: dict[str, str]) -> None:
    """Set what this machine allows and has."""
    for name, value in values.items():
        with contextlib.suppress(OSError):
            _write(f"/proc/sys/net/{name}", value)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def main() -> None:
    directory, options = sys.argv[1], json.loads(sys.argv[2])
    if os.fork():
        os._exit(0)  # No agent is its parent, since it outlives them.
    linux.name_process("pinnace-node")
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    server = ForkServer(directory, options)
    server.prepare()
    print("ready", flush=True)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 1)
    server.run()
