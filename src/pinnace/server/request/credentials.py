"""The credentials of a request: a certificate, a token, or a proxy's headers."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.model import errors
from pinnace.server.http.header_cache import RequestHead
from pinnace.server.http.messages import Request
from pinnace.server.request.websocket_headers import is_websocket, token_of_protocols


class RequestCredentials:
    """The credentials of an ordinary request, with the token in a header."""

    __slots__ = ("_head", "certificate", "chain", "token")

    def __init__(self, request: Request) -> None:
        head, peer = request.head, request.peer
        self._head = head
        self.certificate: bytes | None = peer.certificate
        self.chain: Sequence[bytes] = peer.chain
        self.token: str | None = head.bearer

    @property
    def remote_headers(self) -> Sequence[tuple[bytes, bytes]]:
        return _remote_headers(self._head)


class UpgradeCredentials:
    """The credentials of an upgrade request. Browsers cannot set headers there and send the token as a subprotocol."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.certificate: bytes | None = request.peer.certificate
        self.chain: Sequence[bytes] = request.peer.chain

    @property
    def token(self) -> str | None:
        request = self._request
        if b"authorization" not in request.headers and is_websocket(request):
            try:
                return token_of_protocols(request)
            except ValueError:
                raise errors.Unauthorized() from None
        return request.head.bearer

    @property
    def remote_headers(self) -> Sequence[tuple[bytes, bytes]]:
        return _remote_headers(self._request.head)


def _remote_headers(head: RequestHead) -> Sequence[tuple[bytes, bytes]]:
    return [(name, value) for name, value in head.pairs() if name.startswith(b"x-remote-")]
