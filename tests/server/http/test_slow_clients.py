"""Clients that send a byte now and then are disconnected, and others are served."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable

import pytest
from tests.server.raw_http import Client, Served, client_context, hello, server_context, serving, until

from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates
from pinnace.server.http.server import Limits

EACH = 12
"""So many of each sort."""
BETWEEN = 0.1
"""Seconds from byte to byte: a tenth of every limit, so that each byte would come in time for one more."""
LIMITS = Limits(head_time=1.0, body_time=1.0, idle_time=1.0, stall_time=2.5, linger_time=0.25)
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"

DRIPS: dict[str, tuple[bytes, bytes, bytes]] = {
    "a head": (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"a", b"HTTP/1.1 408 "),
    "headers": (b"GET / HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n", b"HTTP/1.1 408 "),
    "a body": (POST + b"Content-Length: 1000000\r\n\r\n", b"a", b"HTTP/1.1 408 "),
    "chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", b"HTTP/1.1 408 "),
    "empty lines": (b"", b"\r\n", b""),
}
"""How each begins, what it then sends again and again, byte by byte, and how the answer to that begins."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"))


async def drip(client: Client, begin: bytes, rest: Iterable[bytes]) -> tuple[int, bytes]:
    """Send byte by byte until the server has had enough; how many bytes that took, and what it said."""
    sent = 0
    reply = asyncio.create_task(client.reader.read(64))
    with contextlib.suppress(ConnectionError):
        await client.send(begin)
        for byte in rest:
            if reply.done():
                break
            await client.send(byte)
            sent += 1
            await asyncio.sleep(BETWEEN)  # The attack itself, nothing that is waited for.
    try:
        return sent, await reply
    except ConnectionError:
        return sent, b""


async def attacked(served: Served, drips: list[tuple[bytes, bytes, bytes]]) -> None:
    """All slow clients send at once; meanwhile another client is served; then all slow ones are disconnected."""

    door = asyncio.Lock()  # Sixty handshakes at once take longer than the limits on a busy machine.

    async def send_slowly(begin: bytes, rest: bytes) -> tuple[int, bytes]:
        async with door:
            client = await served.connect()
        return await drip(client, begin, (bytes([byte]) for byte in itertools.cycle(rest)))

    async with asyncio.timeout(60), asyncio.TaskGroup() as attack:
        dripping = [attack.create_task(send_slowly(begin, rest)) for begin, rest, _ in drips]
        answered = unlucky = 0
        while not all(task.done() for task in dripping):
            try:
                honest = await served.connect()
                await honest.send(b"GET /honest HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert (await honest.reply()).body == b"hello /honest"
                answered += 1
            except (ConnectionError, asyncio.IncompleteReadError):
                unlucky += 1  # The machine was suspended for longer than the limits.
    assert answered > 10 * unlucky
    outcomes: dict[bytes, list[tuple[int, bytes]]] = {}
    for task, (_, rest, expected) in zip(dripping, drips, strict=True):
        sent, reply = task.result()
        assert not reply or (expected and reply.startswith(expected))
        outcomes.setdefault(rest, []).append((sent, reply))
    for _, rest, expected in drips:  # Most got an error, of those that began before the machine was suspended.
        answers = [reply for sent, reply in outcomes[rest] if sent > 1]
        as_expected = [reply for reply in answers if bool(reply) == bool(expected)]
        assert len(as_expected) > len(answers) / 2
    await until(lambda: served.server.connections == 0)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_a_client_that_sends_too_slowly_is_cut_off(files: CertificateFiles, secure: bool) -> None:
    server_tls, client_tls = (server_context(files), client_context(files)) if secure else (None, None)
    async with serving(hello, limits=LIMITS, server_tls=server_tls, client_tls=client_tls) as served:
        await attacked(served, list(DRIPS.values()) * EACH)


async def test_a_handshake_that_drips_is_cut_off(files: CertificateFiles) -> None:
    async with serving(
        hello, limits=LIMITS, server_tls=server_context(files), client_tls=client_context(files)
    ) as served:
        hello_record = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500
        dripping = []
        for _ in range(EACH):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
            dripping.append(drip(Client(reader, writer), b"", (bytes([byte]) for byte in hello_record)))
        async with asyncio.timeout(60):
            outcomes = await asyncio.gather(*dripping)
        assert max(sent for sent, _ in outcomes) < len(hello_record)
        honest = await served.connect()
        await honest.send(b"GET /honest HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await honest.reply()).status == 200
