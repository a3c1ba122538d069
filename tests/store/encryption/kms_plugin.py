"""A KMS plug-in for tests: gRPC over a Unix socket. Its keys are hashes of their IDs; tests change how it behaves."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import h2.config
import h2.connection
import h2.events
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pinnace.process.varint import encode_varint
from pinnace.store.etcd.wire import decode

_FAILED_PRECONDITION = 9


@dataclass
class Plugin:
    socket: Path
    key_id: str = "key-1"
    healthz: str = "ok"
    forgotten: set[str] = field(default_factory=set)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether it answers; otherwise it hangs."""
    calls: Counter[str] = field(default_factory=Counter)

    def configuration(self, *, name: str = "vault", timeout: str = "3s") -> str:
        return f"{{kms: {{apiVersion: v2, name: {name}, endpoint: 'unix://{self.socket}', timeout: {timeout}}}}}"

    def answer(self, method: str, request: bytes) -> tuple[int, bytes]:
        """Return the gRPC status and the answer, or the error."""
        self.calls[method] += 1
        fields = decode(request, frozenset((4,)))
        if method == "Status":
            return 0, _field(1, b"v2") + _field(2, self.healthz.encode()) + _field(3, self.key_id.encode())
        if method == "Encrypt":
            nonce = os.urandom(12)
            source = nonce + _cipher(self.key_id).encrypt(nonce, fields[1], b"")
            annotation = _field(3, _field(1, b"version.example.com") + _field(2, b"1"))
            return 0, _field(1, source) + _field(2, self.key_id.encode()) + annotation
        key_id, source = fields[3].decode(), fields[1]
        assert [decode(entry) for entry in fields[4]] == [{1: b"version.example.com", 2: b"1"}]
        if key_id in self.forgotten:
            return _FAILED_PRECONDITION, f"key {key_id} is unknown".encode()
        return 0, _field(1, _cipher(key_id).decrypt(source[:12], source[12:], b""))


@asynccontextmanager
async def running_plugin(directory: Path) -> AsyncIterator[Plugin]:
    plugin = Plugin(directory / "kms.sock")
    plugin.answers.set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _serve(plugin, reader, writer)

    server = await asyncio.start_unix_server(serve, plugin.socket)
    try:
        yield plugin
    finally:
        plugin.answers.set()
        server.close()


async def _serve(plugin: Plugin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    connection.initiate_connection()
    writer.write(connection.data_to_send())
    methods: dict[int, str] = {}
    bodies: dict[int, bytes] = {}
    while data := await reader.read(65536):
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                path = dict(event.headers)[b":path"].decode()
                methods[event.stream_id] = path.removeprefix("/v2.KeyManagementService/")
                bodies[event.stream_id] = b""
            elif isinstance(event, h2.events.DataReceived):
                bodies[event.stream_id] += event.data
            elif isinstance(event, h2.events.StreamEnded):
                await plugin.answers.wait()
                status, answer = plugin.answer(methods[event.stream_id], bodies[event.stream_id][5:])
                _answer(connection, event.stream_id, status, answer)
        writer.write(connection.data_to_send())
    writer.close()


def _answer(connection: h2.connection.H2Connection, stream: int, status: int, content: bytes) -> None:
    head = [(":status", "200"), ("content-type", "application/grpc")]
    if stream not in connection.streams or connection.streams[stream].closed:
        return  # The caller has given up.
    if status:
        trailers = [("grpc-status", str(status)), ("grpc-message", content.decode())]
        connection.send_headers(stream, [*head, *trailers], end_stream=True)
        return
    connection.send_headers(stream, head)
    connection.send_data(stream, b"\0" + len(content).to_bytes(4) + content)
    connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)


def _cipher(key_id: str) -> AESGCM:
    return AESGCM(hashlib.sha256(key_id.encode()).digest())


def _field(number: int, value: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value
