"""HTTPS on loopback to a control plane of this process: what a test says to it goes as it would to any cluster."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates
from pinnace.auth.users import User
from pinnace.client import kubeconfig as client_kubeconfig
from pinnace.client.client import Client
from pinnace.client.http import HttpTransport
from pinnace.client.transport import Answer, Stream
from pinnace.cluster.control_plane import ControlPlane
from pinnace.cluster.kubeconfig import ClusterAccess, kubeconfig_of
from pinnace.model.clock import AlarmClock
from pinnace.server.http.server import HttpServer, tls_context


@cache
def certificates() -> CertificateFiles:
    """By which clients know the clusters of a run, and servers of the test's own know who calls; made once for all."""
    directory = tempfile.TemporaryDirectory(prefix="pinnace-proxy-")
    atexit.register(directory.cleanup)
    return ensure_certificates(Path(directory.name))


class Wire:
    """An open socket, and the ways to it as any user. Closing it closes them, too."""

    def __init__(self, server: HttpServer, token: str) -> None:
        """`token` is of somebody who may act as anybody."""
        self._server = server
        self._transports: list[HttpTransport] = []
        self.sent = 0
        """How many requests have gone over it."""
        ca = certificates().ca.certificate.read_bytes()
        self.access = ClusterAccess(server=f"https://127.0.0.1:{server.port}", ca=ca, token=token)

    def transport(self, user: User | None = None) -> HttpTransport:
        """The way as a kubeconfig tells it, for the token's user or for who that one acts as."""
        told: dict[str, Any] = kubeconfig_of(self.access)
        if user is not None:
            told["users"][0]["user"] |= {"as": user.name, "as-groups": list(user.groups)}
        transport = _Counted(client_kubeconfig.access_of(told), self)
        self._transports.append(transport)
        return transport

    def client(
        self, user: User | None = None, *, clock: AlarmClock | None = None, field_manager: str = "pinnace"
    ) -> Client:
        return Client(self.transport(user), clock=clock, field_manager=field_manager)

    async def close(self) -> None:
        transports, self._transports = self._transports, []
        for transport in transports:
            await transport.close()
        await self._server.stop(0.0)


class _Counted(HttpTransport):
    def __init__(self, access: client_kubeconfig.Access, wire: Wire) -> None:
        super().__init__(access)
        self._wire = wire

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        self._wire.sent += 1
        return await super().request(method, target, body, headers)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        self._wire.sent += 1
        return await super().stream(target, headers, silence=silence)


async def open_wire(plane: ControlPlane, token: str) -> Wire:
    """Listen for a control plane that knows `token`. Close the wire when done."""
    files = certificates()
    context = tls_context(
        certificate=files.server.certificate,
        key=files.server.key,
        client_ca=files.ca.certificate,
        proxy_ca=files.front_proxy_ca.certificate,
    )
    server = HttpServer()
    await server.start("127.0.0.1", 0, context, plane.api)
    return Wire(server, token)


@asynccontextmanager
async def wired(plane: ControlPlane, token: str) -> AsyncIterator[Wire]:
    """A wire within a block."""
    wire = await open_wire(plane, token)
    try:
        yield wire
    finally:
        await wire.close()
