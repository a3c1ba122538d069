"""Forwarding requests to other servers: which headers are sent, and how the body comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from pinnace.process.byte_streams import ProxyResponse
from pinnace.server.streaming.websocket import protocols_of
from pinnace.serving.messages import Request, ResponseStream, frame

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Hop-by-hop headers."""

# This server has authenticated the client: credentials and identity headers are not forwarded.
_IDENTITY = (b"x-remote-", b"impersonate-")
_PROTOCOLS = b"sec-websocket-protocol"
_NOT_FORWARDED = frozenset((b"authorization", b"expect", _PROTOCOLS, b"x-forwarded-for"))
_BUFFERED_AT_MOST = 256 * 1024


def forwarded_headers(request: Request) -> Iterator[tuple[bytes, bytes]]:
    """Yield the client's headers without hop-by-hop headers, credentials and identity."""
    named = b",".join(request.header_values(b"connection")).lower().split(b",")
    dropped = HOP_BY_HOP | _NOT_FORWARDED | {name.strip() for name in named}
    for name, value in request.head.pairs():
        if name not in dropped and not name.startswith(_IDENTITY):
            yield name, value
    if protocols := protocols_of(request):  # Without a token among them.
        yield _PROTOCOLS, ", ".join(protocols).encode("latin-1")


def forwarded_for(request: Request) -> str:
    """Return the value of X-Forwarded-For: earlier hops, then the client; empty if unknown."""
    before = [value.decode("latin-1") for value in request.header_values(b"x-forwarded-for")]
    return ", ".join(filter(None, (*before, request.peer.address)))


async def send_pieces(pieces: AsyncIterator[bytes], stream: ResponseStream) -> None:
    """Send pieces to the client, no faster than it reads, until either side leaves."""
    async for piece in pieces:
        stream.write(frame(piece))
        if stream.buffered > _BUFFERED_AT_MOST:
            await stream.drain()
        if stream.closed:
            return


async def relay(answer: ProxyResponse, stream: ResponseStream) -> None:
    """Send the body to the client, no faster than it reads, until either side leaves; then close the answer.

    Raise OSError if the other server is lost. The body then has no proper end.
    """
    try:
        await send_pieces(answer.chunks(), stream)
    finally:
        answer.close()
    stream.finish()
