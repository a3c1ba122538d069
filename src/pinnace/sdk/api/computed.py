"""APIs without objects: their answers are computed for each request, such as the values of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.client.client import Client
from pinnace.model.authorization import Action
from pinnace.model.objects import Object
from pinnace.process.byte_streams import Duplex, ProxyResponse
from pinnace.reconcile.manager import Manager
from pinnace.sdk.handlers.permissions import Permission


class ComputedApi(Protocol):
    """The group versions of one such API."""

    @property
    def versions(self) -> Sequence[tuple[str, str]]:
        """The groups with their versions, the preferred version of a group first."""

    def rows(self, group: str, version: str) -> list[Object]:
        """Return the rows of the discovery page of a group version."""

    async def answer(self, action: Action, query: Mapping[str, str]) -> Object:
        """Return the answer to an authorized request. Raise ApiError."""

    async def close(self) -> None:
        """End the calls that are under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedApiDeclaration:
    """An API of this type that an operator serves as a whole, and the objects and permissions that it needs."""

    versions: Sequence[tuple[str, str]]
    build: Callable[[Client, Manager], ComputedApi]
    """Called once per run. The client may also write where another replica leads."""
    objects: Callable[[str], list[Object]]
    """Return the objects to install beside the operator, for its namespace."""
    own_permissions: tuple[Permission, ...] = ()
    """Needed in the operator's own namespace."""


class ComputedBackend:
    """One group version of a computed API, as discovery sees an API that has no objects."""

    unavailable_reason = ""
    is_local = True
    openapi_url = ""

    def __init__(self, api: ComputedApi, group: str, version: str) -> None:
        self._api = api
        self.group = group
        self.version = version
        self.name = f"{version}.{group}"

    @property
    def resources(self) -> Sequence[Object]:
        return self._api.rows(self.group, self.version)

    async def openapi(self) -> tuple[bytes, str]:
        return b"", ""

    async def openapi_v2(self) -> tuple[bytes, str]:
        return b"", ""

    async def connect(self) -> tuple[Duplex, str]:
        raise OSError("a computed API is in this process")

    async def send(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, *, is_long: bool
    ) -> ProxyResponse:
        raise OSError("a computed API is in this process")


class ComputedBackends:
    """The group versions of a computed API. Their rows may change at any time."""

    def __init__(self, api: ComputedApi) -> None:
        self._backends = {place: ComputedBackend(api, *place) for place in api.versions}
        self._rows: list[Sequence[Object]] = []
        self._revision = 1

    @property
    def revision(self) -> int:
        rows = [backend.resources for backend in self._backends.values()]
        if rows != self._rows:
            self._rows = rows
            self._revision += 1
        return self._revision

    def find(self, group: str, version: str) -> ComputedBackend | None:
        return self._backends.get((group, version))

    def backends(self) -> Sequence[ComputedBackend]:
        return tuple(self._backends.values())

    def priorities(self, group: str, version: str) -> tuple[int, int] | None:
        return None
