"""Connections of a multiplexer outside the API server to its providers: where they are, and the token for them."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import NamedTuple

from pinnace.client.client import Client
from pinnace.client.credentials import Identity, NoCredentials
from pinnace.client.exchange import Retries
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object

_TOKEN_SECONDS = 600
"""The shortest time that a token can be valid."""
_ONCE = Retries(attempts=1)
"""An autoscaler asks again by itself."""


class ReaderToken:
    """A token of a service account that may read metrics and nothing else.

    Providers receive it. A token or certificate of the multiplexer itself would let each of them act in its name.
    """

    def __init__(self, client: Client, name: str) -> None:
        """`client` is allowed to request tokens of the service account `name` in its own namespace."""
        self._client = client
        self._path = f"/api/v1/namespaces/{client.namespace}/serviceaccounts/{name}/token"
        self._identity = Identity()
        self._renewed_at = 0.0
        self._renewing = asyncio.Lock()

    async def identity(self, *, afresh: bool = False) -> Identity:
        """Return the token; a new one after half of its time. Raise NoCredentials if there is none."""
        async with self._renewing:
            now = self._client.clock.monotonic()
            if afresh or not self._identity.authorization or now - self._renewed_at > _TOKEN_SECONDS / 2:
                request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
                try:
                    made = await self._client.send(
                        "POST", self._path, {**request, "spec": {"expirationSeconds": _TOKEN_SECONDS}}
                    )
                except (errors.ApiError, ConnectionLost) as error:
                    raise NoCredentials(f"there is no token for metrics providers at {self._path}: {error}") from None
                self._identity = Identity(authorization=f"Bearer {made['status']['token']}")
                self._renewed_at = now
            return self._identity


class _Known(NamedTuple):
    spec: Object
    client: Client


class ProviderClients:
    """A client for each provider, kept while its spec stays the same and it answers."""

    def __init__(self, client: Client, token: ReaderToken) -> None:
        self._client = client
        self._token = token
        self._known: dict[str, _Known] = {}

    async def client_of(self, name: str, spec: Object) -> Client:
        """Return the client of a provider. Raise ApiError if its Service or caBundle cannot be used."""
        known = self._known.get(name)
        if known is not None and known.spec == spec:
            return known.client
        await self.forget(name)
        service = spec["service"]
        host = await self._host_of(service)
        try:
            ca = base64.b64decode(spec.get("caBundle") or "", validate=True)
        except binascii.Error as error:
            raise errors.Unavailable(f"spec.caBundle of metrics provider {name} is not base64: {error}") from None
        access = Access(
            server=f"https://{f'[{host}]' if ':' in host else host}:{service.get('port') or 443}",
            ca=ca,
            server_name=f"{service['name']}.{service['namespace']}.svc",
            credentials=self._token,
        )
        made = Client(HttpTransport(access), clock=self._client.clock, retries=_ONCE, user_agent="metrics-multiplexer")
        self._known[name] = _Known(spec, made)
        return made

    async def forget(self, name: str) -> None:
        """Close the connections to a provider; its Service is looked up again for the next request."""
        known = self._known.pop(name, None)
        if known is not None:
            await known.client.close()

    async def close(self) -> None:
        for name in list(self._known):
            await self.forget(name)

    async def _host_of(self, service: Object) -> str:
        """Return the host of a Service: its external name, or its name in the cluster's DNS."""
        namespace, name = service["namespace"], service["name"]
        present = await self._client.get_or_none("v1/Service", name, namespace=namespace)
        if present is None:
            raise errors.Unavailable(f"service/{name} in {namespace!r} is not present")
        spec = present.get("spec") or {}
        return str(spec["externalName"]) if spec.get("type") == "ExternalName" else f"{name}.{namespace}.svc"
