"""Who converts custom objects between versions, if that takes more than to say another version."""

from __future__ import annotations

from typing import Protocol

from pinnace.model.objects import Object


class Converter(Protocol):
    async def convert(self, objects: list[Object], api_version: str) -> list[Object]:
        """The objects in this version, in the same order. Raises ApiError if any of them cannot be converted."""
