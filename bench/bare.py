"""A server that only encrypts and sends: what is left of a large answer if the rest costs nothing.

    python -m bench.bare BYTES

Answers whatever it is sent with so many bytes, through the same TLS as the API server, and prints its port.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import uvloop

from pinnace.auth.certificates.authority import ensure_certificates
from pinnace.server.http.server import Listener, listening_sockets
from pinnace.server.http.tls_transport import tls_context


class _Sender(asyncio.Protocol):
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._answer)


async def main(size: int) -> None:
    body = os.urandom(size // 2 + 1).hex().encode()[:size]
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, body)
    with tempfile.TemporaryDirectory() as directory:
        files = ensure_certificates(Path(directory), server_names=("127.0.0.1",))
        own = files.server
        context = tls_context(certificate=own.certificate, key=own.key, client_ca=files.ca.certificate)
    sockets = await listening_sockets("127.0.0.1", 0, backlog=1024)
    listener = Listener(sockets, context, lambda: _Sender(answer), handshake_time=10, closing_time=10)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
