"""The way of pods to networks outside of this machine. It is closed unless the user asks for it.

As root a veth pair joins the network namespace of the node and that of the machine, and both masquerade. An ordinary
user has no rights in the machine's network: pasta or slirp4netns copies the traffic, through sockets of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

from pinnace.network.netlink import Netlink
from pinnace.network.nftables import expressions as rule
from pinnace.network.nftables.expressions import Compare, RuleVerdict, Tracked
from pinnace.network.nftables.transactions import (
    FIRST,
    INPUT,
    LEAVING,
    POSTROUTING,
    TRACKED,
    SetShape,
    Transaction,
    commit_once,
)
from pinnace.network.sockets import HostSockets, Sockets
from pinnace.process.tasks import Tasks

INTERFACE = "egress0"
"""The interface in the node's network namespace through which packets leave."""
EVERYWHERE = IPv4Network("0.0.0.0/0")
_LINK_LOCAL = IPv4Network("169.254.0.0/16")
_SLIRP = IPv4Network("10.0.2.0/24")
"""The addresses of slirp4netns itself, and those by which it would lead to the machine."""
_ADDRESS_CHANGES = 0x10
"""The netlink group of IPv4 addresses that come and go."""
_NODE_TABLE, _PLACES = "pinnace-egress", "places"
_OWN_PORTS, _OWN_PORTS_EACH = (32768, 65535), 256
"""The ports of the node for connections to one destination, and how many of them a pod has: enough for 128 pods."""
_SHARED_PORTS = (1024, 32767)
"""The ports for the connections of a pod to one destination beyond its own."""
_LINK_PREFIX = "pinn"
_START_SECONDS = 30.0
_POLL_SECONDS = 0.05
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_DIE_WITH_PARENT = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)
_log = logging.getLogger(__name__)


class EgressUnavailable(Exception):
    """This user cannot open the way out. The message names what is missing."""


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """The veth pair between the machine and a node: its name on the machine, and the addresses of its ends."""

    name: str
    table: str
    machine: IPv4Interface
    node: IPv4Interface


def plan_link(directory: Path) -> LinkPlan:
    """A plan that is unique to the state directory of a node: several nodes of a machine may have a way out."""
    digest = hashlib.sha256(os.fsencode(directory)).digest()
    first = IPv4Address(f"169.254.{1 + digest[0] % 254}.{digest[1] & 0xFC}")
    name = digest.hex()[:8]
    return LinkPlan(
        f"{_LINK_PREFIX}{name}", f"{_NODE_TABLE}-{name}", IPv4Interface((first + 1, 30)), IPv4Interface((first + 2, 30))
    )


def plan_program(pid: int, find: Callable[[str], str | None] = shutil.which) -> list[str]:
    """The command that carries the traffic of a node for an ordinary user. Raise EgressUnavailable without one."""
    users, network = f"/proc/{pid}/ns/user", f"/proc/{pid}/ns/net"
    if pasta := find("pasta"):
        closed = ("-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw", "--ipv4-only")
        names = ("--ns-ifname", INTERFACE, "--userns", users, "--netns", network)
        return [pasta, "--foreground", "--quiet", "--config-net", *closed, *names]
    if slirp := find("slirp4netns"):
        options = ("--configure", "--mtu=65520", "--disable-host-loopback", f"--userns-path={users}")
        return [slirp, *options, "--netns-type=path", network, INTERFACE]
    raise EgressUnavailable(
        "egress needs pasta or slirp4netns for a user other than root; install one (Debian: passt or slirp4netns), "
        "or leave out --egress"
    )


class Egress:
    """Open it once the node's network namespace exists; `close` it with the agent."""

    def __init__(
        self, sockets: Sockets, *, pid: int, directory: Path, find: Callable[[str], str | None] = shutil.which
    ) -> None:
        """`sockets` are those of the node's network namespace, which the process `pid` is in; `find` finds programs."""
        self._find = find
        self._sockets = sockets
        self._pid = pid
        self._directory = directory
        self._program: asyncio.subprocess.Process | None = None
        self._changes: socket.socket | None = None
        """Announces that the addresses of the machine have changed."""
        self._tasks = Tasks()

    async def open(self) -> None:
        """Raise EgressUnavailable, or OSError."""
        await remove_link(self._sockets)  # An earlier agent may have left it.
        await self._apply_rules()  # Before there is a way out.
        if os.geteuid() == 0:
            await self._open_link(plan_link(self._directory))
        else:
            self._follow_addresses()
            await self._start_program(plan_program(self._pid, self._find))

    async def close(self) -> None:
        """Close the way out. Pods that run on lose it until the next agent opens it again."""
        if self._changes is not None:
            asyncio.get_running_loop().remove_reader(self._changes.fileno())
            self._changes.close()
            self._changes = None
        await self._tasks.close()
        if self._program is not None and self._program.returncode is None:
            self._program.terminate()
            await self._program.wait()
        with contextlib.suppress(OSError):
            await remove_link(self._sockets)
            if os.geteuid() == 0:
                await _remove_table(plan_link(self._directory).table)

    async def _open_link(self, plan: LinkPlan) -> None:
        await commit_once(HostSockets(), _machine_rules(plan))
        machine = Netlink()
        try:
            with contextlib.suppress(OSError):
                machine.delete_link(plan.name)
            machine.add_veth(plan.name, INTERFACE, peer_pid=self._pid)
            machine.add_address(plan.name, plan.machine)
        finally:
            machine.close()
        node = Netlink(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
        try:
            node.add_address(INTERFACE, plan.node)
            node.set_up(INTERFACE)
            node.add_route(EVERYWHERE, gateway=str(plan.machine.ip))
        finally:
            node.close()
        _start_forwarding()

    def _follow_addresses(self) -> None:
        """Apply the rules again when the machine gets or loses an address. As root the kernel knows its own."""
        self._changes = changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK)
        changes.bind((0, _ADDRESS_CHANGES))

        def on_change() -> None:
            with contextlib.suppress(OSError):  # Nothing more to read, or more changes than the buffer holds.
                while changes.recv(1 << 16):
                    pass
            self._tasks.start(self._apply_rules())

        asyncio.get_running_loop().add_reader(changes.fileno(), on_change)

    async def _apply_rules(self) -> None:
        await commit_once(self._sockets, _node_rules(self._closed_networks()))

    def _closed_networks(self) -> list[IPv4Network]:
        """The networks that pods do not reach: clouds serve credentials on link-local addresses."""
        if os.geteuid() == 0:
            return [_LINK_LOCAL]
        machine = Netlink()
        try:
            return [_LINK_LOCAL, _SLIRP, *map(IPv4Network, machine.ipv4_addresses())]
        finally:
            machine.close()

    async def _start_program(self, command: list[str]) -> None:
        self._program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-S", "-E", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not await self._has_way_out():
                    if self._program.returncode is not None:
                        assert self._program.stderr is not None
                        text = (await self._program.stderr.read()).decode(errors="replace").strip()
                        raise EgressUnavailable(f"{command[0]} has ended: {text or self._program.returncode}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise EgressUnavailable(f"{command[0]} has made no way out within {_START_SECONDS:.0f} s") from None

    async def _has_way_out(self) -> bool:
        netlink = Netlink(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
        try:
            return netlink.has_default_route()
        finally:
            netlink.close()


async def remove_link(sockets: Sockets) -> None:
    """Close the way out of a node, which an earlier agent may have left open. Raise OSError."""
    netlink = Netlink(await sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
    try:
        netlink.delete_link(INTERFACE)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
    finally:
        netlink.close()
    if os.geteuid() == 0:
        _stop_forwarding()


def _forwarding_mark() -> Path:
    """A file that exists while this machine forwards packets only for egress. It ends with the machine, as the setting.

    Each network namespace has a setting of its own.
    """
    return Path("/run") / f"pinnace-forwarding-{os.stat('/proc/self/ns/net').st_ino}"


def _start_forwarding() -> None:
    if _FORWARDING.read_text().strip() == "0":
        _forwarding_mark().touch()
        _FORWARDING.write_text("1")
        _log.warning("%s is 1 now: this machine forwards packets, which egress needs", _FORWARDING)


def _stop_forwarding() -> None:
    """Undo an earlier `_start_forwarding`, unless another node of this machine needs the setting."""
    mark = _forwarding_mark()
    if mark.exists() and not any(name.startswith(_LINK_PREFIX) for _, name in socket.if_nameindex()):
        _FORWARDING.write_text("0")
        mark.unlink(missing_ok=True)
        _log.info("%s is 0 again", _FORWARDING)


def _node_rules(closed: Sequence[IPv4Network]) -> Transaction:
    """The rules of the node's network: no packet to a closed network, and no connection from outside."""
    transaction = Transaction(_NODE_TABLE)
    transaction.replace_table()
    out, drop = rule.leaves_through(INTERFACE), rule.end(RuleVerdict.DROP)
    transaction.add_set(_PLACES, SetShape(key=16, counts_connections=True))
    transaction.add_chain("postrouting", POSTROUTING)
    # All pods share the ports of one address: those of one destination are divided.
    flow = [rule.load_source(0), rule.load_destination(1), rule.load_protocol(2), rule.load_port(3)]
    over = [*out, *flow, rule.has_more_connections(_PLACES, 0, _OWN_PORTS_EACH)]
    transaction.add_rule("postrouting", [*over, *rule.masquerade_to_ports(0, *_SHARED_PORTS)])
    transaction.add_rule("postrouting", [*out, *rule.masquerade_to_ports(0, *_OWN_PORTS)])
    # It sees packets of pods, of pods with the node's network, and of proxies in the agent, to their last destination.
    transaction.add_chain("leaving", LEAVING)
    for network in closed:
        transaction.add_rule("leaving", [*out, *rule.is_within(rule.load_destination(0), network), drop])
    transaction.add_chain("arrival", TRACKED)
    is_first = rule.has_flags(0, Tracked.STATE, rule.NEW)
    transaction.add_rule("arrival", [*rule.arrives_through(INTERFACE), *is_first, drop])
    return transaction


def _machine_rules(plan: LinkPlan) -> Transaction:
    """The rules of the machine: forward packets from the address of the node alone, and accept none for the machine."""
    transaction = Transaction(plan.table)
    transaction.replace_table()
    here, drop = rule.arrives_through(plan.name), rule.end(RuleVerdict.DROP)
    is_node = [rule.load_source(0), rule.compare(0, Compare.EQUAL, plan.node.ip.packed)]
    is_other = [rule.load_source(0), rule.compare(0, Compare.NOT_EQUAL, plan.node.ip.packed)]
    transaction.add_chain("sources", FIRST)
    transaction.add_rule("sources", [*here, *is_other, drop])
    transaction.add_chain("input", INPUT)
    transaction.add_rule("input", [*here, drop])
    transaction.add_chain("postrouting", POSTROUTING)
    transaction.add_rule("postrouting", [*is_node, rule.masquerade()])
    return transaction


async def _remove_table(table: str) -> None:
    transaction = Transaction(table)
    transaction.delete_table()
    await commit_once(HostSockets(), transaction)
