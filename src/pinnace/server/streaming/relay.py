"""What all share who pass requests on to other servers: which headers go along, and how the answer comes back."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.model.byte_streams import ProxyResponse
from pinnace.server.http.messages import Request, ResponseStream, frame
from pinnace.server.request.websocket_headers import protocols_of

OF_THE_CONNECTION = frozenset(
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
"""Headers between two neighbours, which say nothing to those behind them."""

# Who is calling is settled here: what was shown for it, and what claims to be settled already, goes no further.
_SETTLED = (b"x-remote-", b"impersonate-")
_PROTOCOLS = b"sec-websocket-protocol"
_OF_THE_CALLER = frozenset((b"authorization", b"expect", _PROTOCOLS, b"x-forwarded-for"))
_BUFFERED_AT_MOST = 1 << 20


def forwarded_headers(request: Request) -> Iterator[tuple[bytes, bytes]]:
    """The caller's headers, less what concerns this connection and the caller's identity."""
    named = b",".join(request.header_values(b"connection")).lower().split(b",")
    dropped = OF_THE_CONNECTION | _OF_THE_CALLER | {name.strip() for name in named}
    for name, value in request.head.pairs():
        if name not in dropped and not name.startswith(_SETTLED):
            yield name, value
    if protocols := protocols_of(request):  # One of them may have been a token.
        yield _PROTOCOLS, ", ".join(protocols).encode("latin-1")


def forwarded_for(request: Request) -> str:
    """Whom the request came from, one after the other, the caller last; empty if nobody knows."""
    before = [value.decode("latin-1") for value in request.header_values(b"x-forwarded-for")]
    return ", ".join(filter(None, (*before, request.peer.address)))


async def relay(answer: ProxyResponse, stream: ResponseStream) -> None:
    """Pass the body to the client, no faster than it takes it, until either side leaves; then close the answer.

    Raises OSError if the other server is lost. The client is not told then that this was all.
    """
    try:
        async for piece in answer.chunks():
            stream.write(frame(piece))
            if stream.buffered > _BUFFERED_AT_MOST:
                await stream.drain()
            if stream.closed:
                return
    finally:
        answer.close()
    stream.finish()
