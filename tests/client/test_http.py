"""The same client over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.server.in_process import config_map

from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.credentials import Fixed, Identity
from pinnace.client.following import Event, Synced
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access
from pinnace.client.transport import Answer, ConnectionLost, Untrusted
from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.settings import Settings
from pinnace.model import errors


@pytest.fixture
async def cluster() -> AsyncIterator[RunningCluster]:
    async with running(Settings(controllers=False)) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: RunningCluster, tmp_path: Path) -> AsyncIterator[Client]:
    """Reads the kubeconfig that the cluster writes: it has a certificate."""
    kubeconfig.write(tmp_path / "config", cluster.access)
    async with connect(kubeconfig=tmp_path / "config") as client:
        yield client


async def test_an_object_created_over_http_can_be_read_and_followed(client: Client) -> None:
    async with asyncio.timeout(60), aclosing(client.follow("v1/ConfigMap", namespace="default")) as events:
        async for event in events:
            if isinstance(event, Synced):
                await client.create(config_map("settings", {"colour": "blue"}))
            if isinstance(event, Event) and event.snapshot.key.name == "settings":
                assert event.snapshot.object == await client.get("v1/ConfigMap", "settings")
                break


async def test_a_server_that_does_not_know_us_says_so(cluster: RunningCluster) -> None:
    stranger = Access(
        server=cluster.url, ca=cluster.access.ca, credentials=Fixed(Identity(authorization="Bearer wrong"))
    )
    async with connect(stranger) as client:
        with pytest.raises(errors.Unauthorized):
            await client.list("v1/ConfigMap")


async def test_a_token_that_was_refused_is_asked_for_again(cluster: RunningCluster) -> None:
    class Renewing:
        token = "expired"

        async def identity(self, *, afresh: bool = False) -> Identity:
            if afresh:
                self.token = cluster.access.token
            return Identity(authorization=f"Bearer {self.token}")

    async with connect(Access(server=cluster.url, ca=cluster.access.ca, credentials=Renewing())) as client:
        assert await client.list("v1/Namespace")


async def test_a_certificate_of_another_authority_is_not_trusted(cluster: RunningCluster) -> None:
    async with connect(Access(server=cluster.url)) as client:
        with pytest.raises(Untrusted, match="certificate verify failed"):
            await client.read("/version")
    async with connect(Access(server=cluster.url, insecure=True)) as client:
        assert b'"major"' in await client.read("/version")


async def test_a_server_that_is_gone_was_sent_nothing(cluster: RunningCluster) -> None:
    await cluster.server.stop(1)
    transport = HttpTransport(Access(server=cluster.url, insecure=True))
    with pytest.raises(ConnectionLost, match="cannot be reached") as loss:
        await transport.request("GET", "/version", b"", {})
    assert not loss.value.was_sent
    await transport.close()


async def test_a_connection_that_has_fallen_silent_is_given_up() -> None:
    """Half-open: the server is gone, and has sent no FIN or RST."""
    requested = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await requested.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport(Access(server=f"http://127.0.0.1:{port}"))
    stream = await transport.stream("/watch", {}, silence=1.0)
    assert not isinstance(stream, Answer)
    chunks = aiter(stream)
    assert await anext(chunks) == b"one"
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(anext(chunks), 60)
    requested.set()
    await stream.close()
    await transport.close()
    server.close()
