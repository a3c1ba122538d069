"""Probes over gRPC and HTTPS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
from tests.node.agent.conftest import RealNode

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.model.byte_streams import Duplex
from pinnace.node.agent.grpc_health import check_health

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
