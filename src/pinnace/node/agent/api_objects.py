"""The objects that pods refer to, read from the API: ConfigMaps, Secrets, pull secrets and service account tokens."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pinnace.client.client import Client
from pinnace.client.typed import Stored
from pinnace.model import errors
from pinnace.model.typed_objects import (
    BoundObjectReference,
    ConfigMap,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    ResourceClaim,
    RuntimeClass,
    Secret,
    ServiceAccount,
    ServiceAccountTokenProjection,
    TokenRequestSpec,
)
from pinnace.node.image_service import RegistryCredentials
from pinnace.node.images.references import parse_reference

_DOCKER_CONFIG = ".dockerconfigjson"


class ApiObjects:
    """A `VolumeObjects` and `ConfigSource` over the API. Tokens are kept until a fifth of their time is left."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.clock = client.clock
        self._tokens: dict[tuple[str, str, int, str], tuple[str, datetime]] = {}

    async def config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        stored = await self._get(ConfigMap, namespace, name)
        if stored is None:
            return None
        data = {key: text.encode() for key, text in (stored.get("data") or {}).items()}
        return data | {key: _decode(text) for key, text in (stored.get("binaryData") or {}).items()}

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        stored = await self._get(Secret, namespace, name)
        return None if stored is None else {key: _decode(text) for key, text in (stored.get("data") or {}).items()}

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return await self._get(PersistentVolumeClaim, namespace, name)

    async def volume(self, name: str) -> PersistentVolume | None:
        return await self._get(PersistentVolume, "", name)

    async def runtime_class(self, name: str) -> RuntimeClass | None:
        return await self._get(RuntimeClass, "", name)

    async def resource_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return await self._get(ResourceClaim, namespace, name)

    async def token(self, namespace: str, account: str, pod: Pod, request: ServiceAccountTokenProjection) -> str:
        seconds = request.get("expirationSeconds", 3600)
        audience = request.get("audience", "")
        key = (pod["metadata"]["uid"], account, seconds, audience)
        known = self._tokens.get(key)
        if known is not None and self._client.clock.now() < known[1]:
            return known[0]
        bound: BoundObjectReference = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        spec: TokenRequestSpec = {
            "expirationSeconds": seconds,
            "boundObjectRef": bound,
            "audiences": [audience] if audience else [],
        }
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self._client.create_below(ServiceAccount, account, "token", wanted, namespace=namespace)
        token: str = answer["status"]["token"]
        self._tokens[key] = (token, self._client.clock.now() + timedelta(seconds=seconds * 0.8))
        return token

    def forget(self, uid: str) -> None:
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]

    async def pull_credentials(self, pod: Pod, image: str) -> Sequence[RegistryCredentials]:
        """The credentials of the pod's imagePullSecrets for the registry of an image."""
        registry = parse_reference(image).registry
        credentials = []
        for reference in pod["spec"].get("imagePullSecrets") or ():
            secret = await self.secret(pod["metadata"]["namespace"], reference.get("name", ""))
            credentials += _credentials((secret or {}).get(_DOCKER_CONFIG, b""), registry)
        return credentials

    async def _get(self, kind: type[Stored], namespace: str, name: str) -> Stored | None:
        try:
            return await self._client.get_or_none(kind, name, namespace=namespace)
        except errors.Forbidden:
            return None


def _credentials(config: bytes, registry: str) -> list[RegistryCredentials]:
    try:
        entries = json.loads(config or b"{}").get("auths", {})
    except (ValueError, AttributeError):
        return []
    credentials = []
    for server, entry in entries.items():
        host = server.removeprefix("https://").removeprefix("http://").partition("/")[0]
        if {host, registry} <= {"docker.io", "index.docker.io"} or host == registry:
            username, password = entry.get("username", ""), entry.get("password", "")
            if not username and entry.get("auth"):
                username, _, password = _decode(entry["auth"]).decode(errors="replace").partition(":")
            credentials.append(RegistryCredentials(username, password))
    return credentials


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""
