"""Probes over gRPC and HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import h2.config
import h2.connection
import h2.events
import pytest
from tests.node.agent.conftest import RealNode

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.model.typed_objects import Probe
from pinnace.node.agent.probes.grpc_health import check_health
from pinnace.node.agent.probes.probes import Actions, ProbeTarget
from pinnace.node.runtime.runtime import Runtime
from pinnace.process.byte_streams import Duplex

_ANSWERS = {b"": 1, b"\x0a\x04good": 1, b"\x0a\x03bad": 2}


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one call as a gRPC server with the health protocol does."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    connection.initiate_connection()
    path, body = "", b""
    while data := await reader.read(65536):
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                path = dict(event.headers)[b":path"].decode()
            elif isinstance(event, h2.events.DataReceived):
                body += event.data
            elif isinstance(event, h2.events.StreamEnded):
                _answer(connection, event.stream_id, path, body[5:])
        writer.write(connection.data_to_send())
    writer.close()


def _answer(connection: h2.connection.H2Connection, stream: int, path: str, message: bytes) -> None:
    head = [(":status", "200"), ("content-type", "application/grpc")]
    if path != "/grpc.health.v1.Health/Check" or message == b"\x0a\x04none":
        connection.send_headers(stream, [*head, ("grpc-status", "12")], end_stream=True)
        return
    connection.send_headers(stream, head)
    content = bytes([8, _ANSWERS.get(message, 3)])
    connection.send_data(stream, b"\0" + len(content).to_bytes(4) + content)
    connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)


@pytest.fixture
async def health_port() -> AsyncIterator[int]:
    """A server whose service "good" serves, and whose service "bad" does not."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _check(port: int, service: str) -> str:
    connection = Duplex(*await asyncio.open_connection("127.0.0.1", port))
    try:
        return await check_health(connection, service, f"127.0.0.1:{port}")
    finally:
        connection.writer.close()


@pytest.mark.parametrize(
    ("service", "state"),
    [
        ("", "SERVING"),
        ("good", "SERVING"),
        ("bad", "NOT_SERVING"),
        ("other", "SERVICE_UNKNOWN"),
        ("n" * 300, "SERVICE_UNKNOWN"),
    ],
    ids=["no name", "healthy", "unhealthy", "unknown", "long name"],
)
async def test_the_state_of_a_grpc_service_is_read(health_port: int, service: str, state: str) -> None:
    assert await _check(health_port, service) == state


class _Loopback:
    """The part of a runtime that probes use: the network of the pod is this machine's."""

    async def connect(self, sandbox: str, port: int, *, address: str = "") -> Duplex:
        return Duplex(*await asyncio.open_connection("127.0.0.1", port))


async def test_a_grpc_probe_uses_tls_if_it_says_so_and_verifies_no_certificate(tmp_path: Path) -> None:
    pair = issue(new_ca(), common_name="other", server_names=["other.example.com"])
    (tmp_path / "pair.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    context.set_alpn_protocols(["h2"])
    actions = Actions(cast(Runtime, _Loopback()))
    target = ProbeTarget("sandbox", "container", {"name": "main"}, "127.0.0.1")
    async with await asyncio.start_server(_serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        for mode, is_healthy in (("TLS", True), ("Plaintext", False)):
            for service in ("good", "bad"):
                probe: Probe = {"grpc": {"port": port, "service": service, "mode": mode}}
                result = await actions.run(probe, target, 10.0)
                assert result.is_success is (is_healthy and service == "good"), result


async def test_a_server_without_the_health_protocol_has_no_state(health_port: int) -> None:
    assert await _check(health_port, "none") == ""


async def test_something_else_than_http2_is_an_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        with pytest.raises((EOFError, ValueError)):
            await _check(server.sockets[0].getsockname()[1], "")


def _frame(kind: int, payload: bytes, *, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, 0]) + stream.to_bytes(4) + payload


_ENDLESS = {
    "a message that never ends": [_frame(0, b"\0\xff\xff\xff\xff", stream=1), _frame(0, b"x" * 16_000, stream=1)],
    "empty frames": [_frame(0, b"", stream=1) * 5_000],
    "pings": [_frame(6, b"12345678") * 5_000],
    "settings": [_frame(4, b"") * 5_000],
    "a frame of 16 MB": [b"\xff\xff\xff" + bytes([0, 0, 0, 0, 0, 1]), b"x" * 65_536],
}


@pytest.mark.parametrize("frames", _ENDLESS.values(), ids=_ENDLESS.keys())
async def test_an_answer_without_an_end_is_given_up(frames: list[bytes]) -> None:
    """A probe may state a long timeout: the agent neither keeps such an answer nor follows it until then."""
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with contextlib.suppress(OSError):
            for data in itertools.chain(frames, itertools.repeat(frames[-1])):
                writer.write(data)
                sent += len(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with server:
        async with asyncio.timeout(10):
            with pytest.raises(ValueError, match="longer than"):
                await _check(server.sockets[0].getsockname()[1], "")
    assert sent < 64 << 20, "what the sockets of both sides hold is much less"


_SERVER = """
import http.server, ssl
server = http.server.HTTPServer(("", 8443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tls/pair.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


async def test_https_probes_do_not_verify_the_certificate(node: RealNode, tmp_path: Path) -> None:
    pair = issue(new_ca(), common_name="other", server_names=["other.example.com"])
    (tmp_path / "pair.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    (tmp_path / "pair.pem").chmod(0o644)
    await node.create(
        "secure",
        ["/usr/bin/python3", "-c", _SERVER],
        volumes=[{"name": "tls", "hostPath": {"path": str(tmp_path)}}],
        container={
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
            "readinessProbe": {"httpGet": {"port": 8443, "scheme": "HTTPS"}, "periodSeconds": 1},
        },
    )
    await node.until_ready("secure")
