"""Authenticates and authorizes the callers of a node's server, with the paths and messages of kubelet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pinnace.auth.authentication.authenticators import BearerAuthenticator, CertificateAuthenticator, FirstOf
from pinnace.auth.webhooks import WebhookAuthorizer, WebhookTokens
from pinnace.model import errors
from pinnace.model.authorization import Action, Decision
from pinnace.model.objects import Object
from pinnace.model.users import ANONYMOUS, User
from pinnace.process.clock import AlarmClock
from pinnace.server.http.server import Request, Response
from pinnace.server.targets import RequestCredentials

REVIEW_SECONDS = 10.0
"""How long the API server may take to answer whether a caller is known and allowed."""
_FINE_GRAINED = 33
"""The first minor in which KubeletFineGrainedAuthz is on by default."""
_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES = {
    "/stats": "stats",
    "/metrics": "metrics",
    "/logs": "log",
    "/checkpoint": "checkpoint",
    "/statusz": "statusz",
    "/flagz": "configz",
}
"""These paths have a subresource of nodes of their own instead of proxy."""
_FINE_SUBRESOURCES = {
    "/pods": "pods",
    "/runningpods": "pods",
    "/healthz": "healthz",
    "/configz": "configz",
}
"""These paths are allowed by a subresource of their own or by proxy."""
_TEXT = [(b"Content-Type", b"text/plain; charset=utf-8")]
_UNREACHABLE = (errors.ApiError, TimeoutError, OSError, ValueError)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeApi:
    """Calls of the API server with the node's own identity. They raise ApiError or OSError."""

    create: Callable[[Object], Awaitable[Object]]
    served_minor: Callable[[], Awaitable[int]]

    async def post(self, document: Object) -> Object:
        """Return the answer to a review, as a `Reviewer`."""
        async with asyncio.timeout(REVIEW_SECONDS):
            return await self.create(document)


class NodeCallers:
    """Asks the API server about tokens and permissions. As in kubelet, its answers hold for some minutes."""

    def __init__(self, api: NodeApi, node: str, ca: bytes, clock: AlarmClock) -> None:
        """`ca` (PEM) signs the certificates of callers."""
        self._api = api
        self._node = node
        tokens = BearerAuthenticator(WebhookTokens(api, clock))
        self._authenticator = FirstOf([CertificateAuthenticator(ca, clock=clock), tokens])
        self._authorizer = WebhookAuthorizer(api, clock)
        self._minor: int | None = None

    async def check(self, request: Request) -> Response | None:
        """Return the answer to a caller that may not make this request; None for one that may."""
        try:
            identified = self._authenticator.authenticate(RequestCredentials(request))
            user = identified if isinstance(identified, User) else await identified
        except errors.Unauthorized:
            return unauthorized()
        except _UNREACHABLE as error:
            log.warning("a token could not be reviewed: %s", error or "no answer in time")
            return unauthorized()
        if user is ANONYMOUS:
            return unauthorized()
        verb = _VERBS.get(request.method, "")
        subresources = subresources_of(request.path, is_fine_grained=await self._is_fine_grained())
        for subresource in subresources:
            action = Action(verb, resource="nodes", subresource=subresource, name=self._node, version="v1")
            try:
                decided = self._authorizer.decide(user, action)
                decision = decided if isinstance(decided, Decision) else await decided
            except _UNREACHABLE as error:
                log.warning("a permission could not be reviewed: %s", error or "no answer in time")
                question = f"user={user.name}, verb={verb}, resource=nodes, subresource={subresource}"
                return Response(500, _TEXT, f"Authorization error ({question})".encode())
            if decision.is_allowed:
                return None
        question = f"user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{' '.join(subresources)}]"
        return Response(403, _TEXT, f"Forbidden ({question})\n".encode("utf-8", "replace"))

    async def _is_fine_grained(self) -> bool:
        if self._minor is None:
            try:
                async with asyncio.timeout(REVIEW_SECONDS):
                    self._minor = await self._api.served_minor()
            except _UNREACHABLE:
                return False  # The next request asks again; proxy includes all.
        return self._minor >= _FINE_GRAINED


def unauthorized() -> Response:
    return Response(401, _TEXT, b"Unauthorized")


def subresources_of(path: str, *, is_fine_grained: bool) -> Sequence[str]:
    """Return the subresources of nodes of which one must be allowed, in the order in which kubelet asks for them."""
    for prefix, subresource in _SUBRESOURCES.items():
        if _is_below(path, prefix):
            return (subresource,)
    for prefix, subresource in _FINE_SUBRESOURCES.items():
        if is_fine_grained and _is_below(path, prefix):
            return subresource, "proxy"
    return ("proxy",)


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
