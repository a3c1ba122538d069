"""TLS on the server's sockets: plain HTTP, slow and vanished clients, and the negotiated parameters."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl

import pytest
from OpenSSL import SSL
from tests.server.raw_http import (
    GET,
    QUICK,
    Client,
    client_context,
    echo,
    event_loop_policy,
    files,
    hello,
    pytestmark,
    server_context,
    serving,
)

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.server.http.server import HttpServer, Limits, Request, Response
from pinnace.server.http.tls_transport import tls_context

__all__ = ["event_loop_policy", "files", "pytestmark"]

LARGE = os.urandom(1 << 20) * 6
SECONDS = 60


def large(request: Request) -> Response:
    return Response(200, [], LARGE)


async def test_aes_of_128_bits_is_chosen_over_what_the_client_would_rather_have(files: CertificateFiles) -> None:
    async with serving(hello, server_tls=server_context(files), client_tls=client_context(files)) as served:
        client = await served.connect()
        tls = client.writer.get_extra_info("ssl_object")
        assert tls.cipher()[0] == "TLS_AES_128_GCM_SHA256"
        assert tls.selected_alpn_protocol() == "http/1.1"


async def test_the_request_for_a_certificate_names_the_cas_of_clients_and_of_proxies(files: CertificateFiles) -> None:
    def names(port: int) -> list[str | None]:
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.settimeout(None)
            tls = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), connection)
            tls.set_connect_state()
            tls.do_handshake()
            return [name.CN for name in tls.get_client_ca_list()]

    context = tls_context(
        certificate=files.server.certificate,
        key=files.server.key,
        client_ca=files.ca.certificate,
        proxy_ca=files.front_proxy_ca.certificate,
    )
    async with serving(hello, server_tls=context, client_tls=client_context(files)) as served:
        assert await asyncio.to_thread(names, served.server.port) == ["pinnace", "front-proxy-ca"]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
async def test_versions_before_tls_1_2_are_refused(files: CertificateFiles) -> None:
    context = client_context(files)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with serving(hello, server_tls=server_context(files), client_tls=context) as served:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await served.connect()
        assert served.server.connections == 0


async def test_tls_1_2_is_spoken(files: CertificateFiles) -> None:
    context = client_context(files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(hello, server_tls=server_context(files), client_tls=context) as served:
        client = await served.connect()
        await client.send(GET)
        assert (await client.reply()).body == b"hello /"


@pytest.mark.parametrize("garbage", [GET, b"\x16\x03\x01\x00\x05hello", b"\x00" * 5000, b"\x80" + os.urandom(300)])
async def test_a_client_without_tls_is_cut_off_and_others_are_served(files: CertificateFiles, garbage: bytes) -> None:
    async with serving(hello, server_tls=server_context(files), client_tls=client_context(files)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(garbage)
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(ConnectionError):
                while await reader.read(1024):
                    pass
        writer.close()
        client = await served.connect()
        await client.send(GET)
        assert (await client.reply()).body == b"hello /"


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a hello"])
async def test_a_handshake_that_does_not_go_on_is_cut_off(files: CertificateFiles, begun: bytes) -> None:
    async with serving(hello, limits=QUICK, server_tls=server_context(files)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(begun)
        async with asyncio.timeout(SECONDS):
            assert await reader.read() == b""
        writer.close()


async def test_a_server_that_stops_waits_for_no_handshake(files: CertificateFiles) -> None:
    async with serving(hello, server_tls=server_context(files), client_tls=client_context(files)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(b"\x16")
        client = await served.connect()  # By now the first has been accepted, too.
        async with asyncio.timeout(SECONDS):
            await served.server.stop(60.0)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            assert await client.rest() == b""
        writer.close()


async def test_a_client_that_reads_late_gets_every_byte(files: CertificateFiles) -> None:
    async with serving(large, server_tls=server_context(files), client_tls=client_context(files)) as served:
        slow, quick = await served.connect(limit=1 << 14), await served.connect()
        await slow.send(GET * 3)
        await quick.send(GET)
        assert (await quick.reply()).body == LARGE  # While the first has taken next to nothing.
        for _ in range(3):
            assert (await slow.reply()).body == LARGE


async def test_large_bodies_of_many_pieces_arrive_whole(files: CertificateFiles) -> None:
    pieces = [LARGE[at : at + 1500] for at in range(0, len(LARGE), 1500)]

    def handler(request: Request) -> Response:
        return Response(200, [], list(pieces))

    async with serving(handler, server_tls=server_context(files), client_tls=client_context(files)) as served:
        client = await served.connect()
        await client.send(GET)
        assert (await client.reply()).body == LARGE


async def test_large_requests_are_read_whole(files: CertificateFiles) -> None:
    body = LARGE[: 3 << 20]
    async with serving(echo, server_tls=server_context(files), client_tls=client_context(files)) as served:
        client = await served.connect()
        for _ in range(2):
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert (await client.reply()).body == body


async def test_one_byte_at_a_time_is_a_request_too(files: CertificateFiles) -> None:
    async with serving(hello, server_tls=server_context(files), client_tls=client_context(files)) as served:
        client = await served.connect()
        for byte in GET:
            await client.send(bytes([byte]))
        assert (await client.reply()).body == b"hello /"


async def test_a_client_that_takes_nothing_is_cut_off(files: CertificateFiles) -> None:
    limits = Limits(stall_time=0.1)
    async with serving(large, limits=limits, server_tls=server_context(files), client_tls=client_context(files)) as it:
        client = await it.connect(limit=1 << 12)
        await client.send(GET * 8)
        await _until_alone(it.server)


async def test_a_client_that_vanishes_leaves_nothing_behind(files: CertificateFiles) -> None:
    async with serving(large, server_tls=server_context(files), client_tls=client_context(files)) as served:
        client = await served.connect(limit=1 << 12)
        await client.send(GET)
        await client.reader.read(1)
        _reset(client)
        await _until_alone(served.server)
        other = await served.connect()
        await other.send(GET)
        assert (await other.reply()).body == LARGE


async def test_the_last_answer_arrives_before_the_goodbye(files: CertificateFiles) -> None:
    async with serving(large, server_tls=server_context(files), client_tls=client_context(files)) as served:
        client = await served.connect()
        await client.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await client.reply()).body == LARGE
        assert await client.rest() == b""
        client.writer.close()
        await _until_alone(served.server)


async def test_a_client_that_says_goodbye_is_disconnected(files: CertificateFiles) -> None:
    async with serving(hello, server_tls=server_context(files), client_tls=client_context(files)) as served:
        client = await served.connect()
        await client.send(GET)
        await client.reply()
        assert served.server.connections == 1
        client.writer.close()
        await _until_alone(served.server)


def _reset(client: Client) -> None:
    """End a connection as a crash does: no goodbye, and what is unread is lost."""
    raw: socket.socket = client.writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.writer.transport.abort()


async def _until_alone(server: HttpServer) -> None:
    async with asyncio.timeout(SECONDS):
        while server.connections:
            await asyncio.sleep(0.005)
