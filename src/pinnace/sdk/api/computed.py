"""APIs without objects: their answers are computed for each request, such as the values of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager
from pinnace.sdk.api.request_info import RequestInfo
from pinnace.sdk.handlers.permissions import Permission


class ComputedApi(Protocol):
    """The group versions of one such API."""

    @property
    def versions(self) -> Sequence[tuple[str, str]]:
        """The groups with their versions, the preferred version of a group first."""

    def rows(self, group: str, version: str) -> list[Object]:
        """Return the rows of the discovery page of a group version."""

    async def answer(self, asked: RequestInfo, query: Mapping[str, str]) -> Object:
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
