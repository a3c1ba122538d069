"""Makes a fault of the schedule happen to a cluster, and ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.chaos.cluster import ChaosCluster
from tests.chaos.invariants import Outage
from tests.chaos.schedule import NODES, Fault, Kind
from tests.node.census import children
from tests.node.leftovers import processes_of

_DELAY_SECONDS = 0.5
_BLOCK = bytes(1 << 20)


class Outages:
    """When nodes could not work, and when the whole cluster was disturbed."""

    def __init__(self) -> None:
        self.of_nodes: list[Outage] = []
        self.of_cluster: list[Outage] = []

    def add(self, fault: Fault, begin: float, end: float) -> None:
        """Record a fault. One that stops an agent is an outage of its node; any other one disturbs the cluster."""
        stops_agent = fault.target in NODES and fault.kind in _STOP_AGENTS
        (self.of_nodes if stops_agent else self.of_cluster).append(Outage(fault.target, begin, end))


_STOP_AGENTS = {Kind.KILL, Kind.PAUSE, Kind.CUT, Kind.HOLD}


async def inflict(cluster: ChaosCluster, fault: Fault) -> None:
    """Let a fault happen, last, and end."""
    match fault.kind:
        case Kind.KILL:
            await _kill(cluster, fault)
        case Kind.PAUSE:
            pid = cluster.parts[fault.target].pid
            agents = children(pid) if fault.target in NODES else []  # Its parent only watches it.
            await _pause(agents[0] if agents else pid, fault.seconds)
        case Kind.KILL_FORK_SERVER:
            for pid in fork_servers(cluster, fault.target):
                _signal(pid, signal.SIGKILL)
        case Kind.PAUSE_FORK_SERVER:
            await asyncio.gather(*(_pause(pid, fault.seconds) for pid in fork_servers(cluster, fault.target)))
        case Kind.KILL_BELOW:
            if below := processes_below(cluster, fault.target):
                _signal(below[fault.amount % len(below)], signal.SIGKILL)
        case Kind.FILL:
            await _fill(cluster.place_of(fault.target), fault.seconds)
        case Kind.JUMP:
            clock = cluster.parts[fault.target].clock
            clock.shift(fault.amount)
            await asyncio.sleep(fault.seconds)
            clock.shift(0)
        case Kind.CUT | Kind.HALF_CLOSE | Kind.HOLD | Kind.DELAY:
            await _disturb(cluster, fault)


async def _kill(cluster: ChaosCluster, fault: Fault) -> None:
    part = cluster.parts[fault.target]
    part.signal(signal.SIGKILL)
    await part.wait(30)
    await asyncio.sleep(fault.seconds)
    await part.start()


async def _pause(pid: int, seconds: float) -> None:
    _signal(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        _signal(pid, signal.SIGCONT)


async def _fill(place: Path, seconds: float) -> None:
    """Leave no byte free, then remove what takes the space."""
    ballast = place / ".ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            for block in (_BLOCK, _BLOCK[:4096]):
                try:
                    while file.write(block) == len(block):
                        await asyncio.sleep(0)
                except OSError:
                    continue
        await asyncio.sleep(seconds)
    finally:
        ballast.unlink(missing_ok=True)


async def _disturb(cluster: ChaosCluster, fault: Fault) -> None:
    relay = cluster.relays[fault.target]
    match fault.kind:
        case Kind.CUT:
            relay.cut()
            await asyncio.sleep(fault.seconds)
            relay.mend()
        case Kind.HALF_CLOSE:
            relay.half_close()
        case Kind.HOLD:
            relay.hold()
            await asyncio.sleep(fault.seconds)
            relay.release()
        case _:
            relay.delay = _DELAY_SECONDS
            await asyncio.sleep(fault.seconds)
            relay.delay = 0.0


def fork_servers(cluster: ChaosCluster, node: str) -> list[int]:
    """Find the fork server of a node: the process below no other that names the runtime's directory."""
    named = processes_of(cluster.place_of(node) / "runtime")
    return [pid for pid, command in named.items() if "fork_server" in command and _parent(pid) not in named]


def processes_below(cluster: ChaosCluster, node: str) -> list[int]:
    """Return the processes that fork servers of a node have started, oldest first."""
    first = set(fork_servers(cluster, node))
    return sorted(set(processes_of(cluster.place_of(node) / "runtime")) - first)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
