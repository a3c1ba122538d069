"""APIs without objects: their answers are computed for each request, such as the values of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pinnace.model.objects import Object
from pinnace.sdk.api.callers import RequestInfo


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
