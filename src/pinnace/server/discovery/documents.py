"""A page that the server writes about itself: discovery and OpenAPI."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from pinnace.server.http.compression import compress_whole


@dataclass(frozen=True)
class ServedDocument:
    """Bytes with what HTTP must know of them. An `etag` carries its quotes; it is empty where there is none."""

    body: bytes
    content_type: str = "application/json"
    etag: str = ""
    headers: tuple[tuple[str, str], ...] = (("Cache-Control", "no-cache, private"),)
    location: str = ""
    """Where the document is now: answer 301."""

    @cached_property
    def gzipped(self) -> bytes:
        """The body for clients that accept gzip, packed once."""
        return compress_whole(self.body)

    def is_held_by(self, if_none_match: str) -> bool:
        """True if the client, by its If-None-Match header, has this very document: answer 304."""
        if not self.etag or not if_none_match:
            return False
        return if_none_match.strip() == "*" or self.etag in (
            tag.strip().removeprefix("W/") for tag in if_none_match.split(",")
        )


def content_hash(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()
