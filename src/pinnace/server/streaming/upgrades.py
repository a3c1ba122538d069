"""Negotiates the subprotocol of an upgrade to WebSocket or SPDY."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.model import errors
from pinnace.server.http.messages import Request
from pinnace.server.request.websocket_headers import protocols_of
from pinnace.server.streaming import websocket

_SPDY = b"SPDY/3.1"
_VERSION = b"x-stream-protocol-version"


class NoCommonProtocol(errors.ApiError):
    """The client offers no protocol that this server supports."""

    code, reason = 403, "Forbidden"


def websocket_upgrade(request: Request, supported: Sequence[str]) -> tuple[str, list[tuple[bytes, bytes]]]:
    """Return the protocol and the headers of the answer. Raise an ApiError if there is no common one."""
    err = websocket.describe_handshake_error(request)
    if err:
        raise errors.BadRequest(f"unable to upgrade: {err}")
    protocol = websocket.choose_protocol(request, supported)
    if protocol is None:
        offered = " ".join(protocols_of(request))
        raise NoCommonProtocol(
            f"requested protocol(s) are not supported: [{offered}]; supports [{' '.join(filter(None, supported))}]"
        )
    return protocol, websocket.handshake_headers(request, protocol)


def spdy_upgrade(request: Request, supported: Sequence[str], *, without: str) -> tuple[str, list[tuple[bytes, bytes]]]:
    """Return the same for SPDY. A client that names no protocol uses `without`."""
    if _SPDY.lower() not in request.headers.get(b"upgrade", b"").lower():
        raise errors.BadRequest("unable to upgrade: missing upgrade headers in request")
    offered = [one.strip() for one in b",".join(request.header_values(_VERSION)).decode("latin-1").split(",")]
    offered = [one for one in offered if one]
    headers = [(b"Connection", b"Upgrade"), (b"Upgrade", _SPDY)]
    if not offered:
        return without, headers
    protocol = next((one for one in offered if one in supported), None)
    if protocol is None:
        raise NoCommonProtocol(
            "unable to upgrade: unable to negotiate protocol: "
            f"client supports [{' '.join(offered)}], server accepts [{' '.join(supported)}]"
        )
    return protocol, [*headers, (b"X-Stream-Protocol-Version", protocol.encode())]
