"""The network between the members of one etcd, from which a test can cut off a member that clients still reach."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.store.etcd.processes import EtcdMember, etcd_cluster
from tests.store.etcd.proxy import Proxy

_SENDER = re.compile(rb"\r\nX-Server-From: ([0-9a-f]+)\r\n", re.IGNORECASE)


class PeerNetwork:
    """Members that reach each other through proxies on loopback. Each proxy knows which member has connected."""

    def __init__(self) -> None:
        self.members: list[EtcdMember] = []
        self._proxies: list[PeerProxy] = []
        self._cut_off: EtcdMember | None = None
        self._cut_off_id = ""

    async def start(self, directory: Path, size: int = 3) -> None:
        """Start the members and the proxies between them."""
        self._proxies = [PeerProxy(self, at) for at in range(size)]
        for proxy in self._proxies:
            await proxy.start()
        self.members = etcd_cluster(directory, size, advertised=[proxy.port for proxy in self._proxies])
        for proxy, member in zip(self._proxies, self.members, strict=True):
            proxy.target = member.peer_port
            member.start()
        for member in self.members:
            await asyncio.to_thread(member.wait)

    async def stop(self) -> None:
        for member in self.members:
            await asyncio.to_thread(member.stop)
        for proxy in self._proxies:
            await proxy.stop()

    async def find_leader(self) -> EtcdMember:
        """Wait until there is a leader, and return it."""
        async with asyncio.timeout(60):
            while True:
                for member in self.members:
                    status = await _status(member)
                    if status.get("leader") == status["header"]["member_id"]:
                        return member

    async def cut_off(self, member: EtcdMember) -> None:
        """Break all connections between a member and the others, and refuse new ones. Clients still reach it."""
        self._cut_off_id = f"{(await _status(member))['header']['member_id']:x}"
        self._cut_off = member
        for proxy in self._proxies:
            proxy.break_cut_off()

    def mend(self) -> None:
        """Let all members reach each other again."""
        self._cut_off = None

    def is_cut(self, target: int, sender: str) -> bool:
        """Whether a connection of a sender to the member with a number is cut."""
        return self._cut_off is not None and (self._cut_off is self.members[target] or sender == self._cut_off_id)


class PeerProxy(Proxy):
    """Passes connections on to one member."""

    def __init__(self, network: PeerNetwork, at: int) -> None:
        super().__init__(0)
        self._network = network
        self._at = at
        self._senders: dict[asyncio.StreamWriter, str] = {}

    def break_cut_off(self) -> None:
        """Break the connections of the member that is cut off."""
        for writer, sender in self._senders.items():
            if self._network.is_cut(self._at, sender):
                writer.transport.abort()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        beginning = await reader.readuntil(b"\r\n\r\n")
        match = _SENDER.search(beginning)  # Only questions for the version have no sender.
        sender = match[1].decode() if match is not None else ""
        if self._network.is_cut(self._at, sender):
            return None
        self._senders = {sender: by for sender, by in self._senders.items() if not sender.is_closing()}
        self._senders[writer] = sender
        return beginning


async def _status(member: EtcdMember) -> dict[str, Any]:
    (status,) = json.loads(await asyncio.to_thread(member.control, "endpoint", "status", "-w", "json"))
    results: dict[str, Any] = status["Status"]
    return results


@asynccontextmanager
async def peer_network(directory: Path) -> AsyncIterator[PeerNetwork]:
    """Run three members within a block."""
    network = PeerNetwork()
    try:
        await network.start(directory)
        yield network
    finally:
        await network.stop()
