"""The headers of a request that asks for a WebSocket: its subprotocols, and the bearer token that may be among them."""

from __future__ import annotations

import base64

from pinnace.server.http.messages import Request

TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""Browsers cannot set headers on a WebSocket: they send their token, encoded, as one subprotocol beside a real one."""


def is_websocket(request: Request) -> bool:
    return request.upgrade and request.headers.get(b"upgrade", b"").lower() == b"websocket"


def protocols_of(request: Request) -> list[str]:
    """Return the subprotocols that the client offers, in its order, without the token: it is never sent back."""
    return [protocol for protocol in _parse_offered(request) if not protocol.startswith(TOKEN_PROTOCOL)]


def token_of_protocols(request: Request) -> str | None:
    """Return the bearer token among the subprotocols; None if there is none. Raise ValueError if it is malformed."""
    tokens = [protocol for protocol in _parse_offered(request) if protocol.startswith(TOKEN_PROTOCOL)]
    if not tokens:
        return None
    if len(tokens) > 1 or not protocols_of(request):
        raise ValueError("expected one token among the subprotocols, and another subprotocol beside it")
    encoded = tokens[0].removeprefix(TOKEN_PROTOCOL)
    return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode() or None


def _parse_offered(request: Request) -> list[str]:
    offered = b",".join(request.header_values(b"sec-websocket-protocol")).decode("latin-1")
    return [protocol.strip() for protocol in offered.split(",") if protocol.strip()]
