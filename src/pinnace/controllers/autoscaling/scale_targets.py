"""The target of an autoscaler: the scale subresource of any kind, built in or custom."""

from __future__ import annotations

from typing import NamedTuple

from pinnace.client.client import Client
from pinnace.client.exchange import decode_object
from pinnace.client.mapping import NoSuchKind, ServedKind
from pinnace.model import errors
from pinnace.model.objects import Kind, Object
from pinnace.model.typed_objects import CrossVersionObjectReference

_ATTEMPTS = 5
"""An update that loses a race is repeated on the newer scale."""


class TargetUnknown(Exception):
    """The target cannot be scaled; the message is Kubernetes' own."""


class ScaleTarget(NamedTuple):
    """The scale of a target as it was read, and its path."""

    path: str
    scale: Object

    @property
    def replicas(self) -> int:
        replicas: int = (self.scale.get("spec") or {}).get("replicas", 0)
        return replicas

    @property
    def status_replicas(self) -> int:
        replicas: int = (self.scale.get("status") or {}).get("replicas", 0)
        return replicas

    @property
    def selector(self) -> str:
        selector: str = (self.scale.get("status") or {}).get("selector", "")
        return selector


class ScaleTargets:
    """Reads and sets the number of replicas of targets."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, reference: CrossVersionObjectReference, namespace: str) -> ScaleTarget:
        """Return the scale of a target. Raise TargetUnknown or ApiError."""
        served = await find_kind(self._client, reference)
        path = served.path(namespace=namespace, name=reference["name"], subresource="scale")
        try:
            return ScaleTarget(path, await read_json(self._client, path))
        except errors.NoSuchPath:
            self._client.kinds.forget(served.kind)  # A newer definition may have /scale, or another path.
            raise

    async def write(self, target: ScaleTarget, replicas: int) -> None:
        """Set the number of replicas. Raise ApiError."""
        scale = target.scale
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._client.send("PUT", target.path, {**scale, "spec": {"replicas": replicas}})
                return
            except errors.Conflict:
                if attempt == _ATTEMPTS:
                    raise
                scale = await read_json(self._client, target.path)


async def read_json(client: Client, target: str) -> Object:
    """Return the object at a path. Raise ApiError."""
    return decode_object(await read_body(client, target))


async def read_body(client: Client, target: str) -> bytes:
    """Return the object at a path, encoded. Raise ApiError."""
    try:
        return await client.read(target, accept="application/json")
    except errors.NoSuchPath as error:
        # The page of a path that is not served is plain text: Kubernetes' clients say the same for all of them.
        raise (errors.NoSuchPath() if "404 page not found" in error.message else error) from None


async def find_kind(client: Client, reference: CrossVersionObjectReference) -> ServedKind:
    """Return the kind of a reference, in any served version of its group. Raise TargetUnknown."""
    api_version = reference.get("apiVersion") or ""
    if api_version.count("/") > 1:
        raise TargetUnknown(f"unexpected GroupVersion string: {api_version}")
    kind = Kind.parse(api_version or "v1", reference["kind"])
    try:
        return await client.kinds.find(kind)
    except NoSuchKind:
        for served in await client.kinds.all():
            if (served.kind.group, served.kind.name) == (kind.group, kind.name):
                return served
    raise TargetUnknown(f'no matches for kind "{kind.name}" in group "{kind.group}"')
