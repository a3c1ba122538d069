"""The DNS servers of the machine, which answer for names outside of the cluster where pods have egress."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

_PORT = 53
_ANSWER_SECONDS = 5.0


class DnsUpstream:
    """Asks the servers in turn, from the network of this process."""

    def __init__(self, servers: Sequence[str], *, port: int = _PORT) -> None:
        self._servers = servers
        self._port = port

    async def ask(self, query: bytes) -> bytes:
        """Return the response to an encoded query; empty if no server answers in time."""
        for server in self._servers:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    return await _ask(server, self._port, query)
        return b""


def servers_of_machine(file: Path = Path("/etc/resolv.conf")) -> list[str]:
    """The addresses of the machine's own DNS servers."""
    servers = []
    with contextlib.suppress(OSError):
        for line in file.read_text(errors="replace").splitlines():
            words = line.split()
            if words[:1] == ["nameserver"] and len(words) > 1:
                with contextlib.suppress(ValueError):
                    servers.append(str(ip_address(words[1])))
    return servers


class _Exchange(asyncio.DatagramProtocol):
    def __init__(self, number: bytes) -> None:
        self._number = number
        self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if data[:2] == self._number and not self.response.done():
            self.response.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.response.done():
            self.response.set_exception(exc)


async def _ask(server: str, port: int, query: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    transport, exchange = await loop.create_datagram_endpoint(lambda: _Exchange(query[:2]), remote_addr=(server, port))
    try:
        transport.sendto(query)
        return await exchange.response
    finally:
        transport.close()
