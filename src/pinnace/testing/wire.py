"""HTTPS on loopback to a control plane in this process: a test's requests are sent as to any cluster."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates
from pinnace.client import kubeconfig as client_kubeconfig
from pinnace.client.client import Client
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig_files import ClusterAccess, kubeconfig_of
from pinnace.client.transport import Answer, Stream
from pinnace.cluster.cluster import CannotListen, url_of
from pinnace.cluster.control_plane import ControlPlane
from pinnace.model.users import User
from pinnace.process.clock import AlarmClock
from pinnace.server.http.server import HttpServer, RequestHandler, tls_context
from pinnace.testing.faulty_api import BOOKKEEPING, is_bookkeeping


@cache
def certificates() -> CertificateFiles:
    """Return the certificates of all clusters of a test run, which are created once."""
    directory = tempfile.TemporaryDirectory(prefix="pinnace-proxy-")
    atexit.register(directory.cleanup)
    return ensure_certificates(Path(directory.name))


class Wire:
    """An open socket, and transports to it for any user. Closing it closes them too."""

    def __init__(self, server: HttpServer, token: str, *, host: str = "127.0.0.1") -> None:
        """`token` is of a user who may impersonate every user."""
        self._server = server
        self._transports: list[HttpTransport] = []
        self.sent = 0
        """The number of requests so far."""
        ca = certificates().ca.certificate.read_bytes()
        self.access = ClusterAccess(server=url_of(host, server.port), ca=ca, token=token)

    def transport(self, user: User | None = None) -> HttpTransport:
        """Return a transport for the token's user, or for a user that it impersonates."""
        config: dict[str, Any] = kubeconfig_of(self.access)
        if user is not None:
            config["users"][0]["user"] |= {"as": user.name, "as-groups": list(user.groups)}
        transport = _CountingTransport(client_kubeconfig.access_of(config), self)
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


class _CountingTransport(HttpTransport):
    def __init__(self, access: client_kubeconfig.Access, wire: Wire) -> None:
        super().__init__(access)
        self._wire = wire

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        self._wire.sent += 1
        return await super().request(method, target, body, _mark(headers))

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        self._wire.sent += 1
        return await super().stream(target, _mark(headers), silence=silence)


def _mark(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {**headers, BOOKKEEPING.decode(): "true"} if is_bookkeeping.get() else headers


async def open_wire(
    plane: ControlPlane,
    token: str,
    *,
    handler: RequestHandler | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> Wire:
    """Listen for a control plane that knows `token`. Close the wire when done. Raise CannotListen.

    `handler` answers the requests instead of the control plane's API.
    """
    files = certificates()
    context = tls_context(
        certificate=files.server.certificate,
        key=files.server.key,
        client_ca=files.ca.certificate,
        proxy_ca=files.front_proxy_ca.certificate,
    )
    server = HttpServer()
    try:
        await server.start(host, port, context, handler or plane.api)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    return Wire(server, token, host=host)


@asynccontextmanager
async def wired(plane: ControlPlane, token: str) -> AsyncIterator[Wire]:
    """Open a wire within a block."""
    wire = await open_wire(plane, token)
    try:
        yield wire
    finally:
        await wire.close()
