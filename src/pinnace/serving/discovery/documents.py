"""A page of discovery or OpenAPI, with its HTTP headers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from pinnace.serving.compression import compress_whole


@dataclass(frozen=True)
class ServedDocument:
    """A body with its HTTP headers. `etag` includes its quotes; it is empty if there is none."""

    body: bytes
    content_type: str = "application/json"
    etag: str = ""
    headers: tuple[tuple[str, str], ...] = (("Cache-Control", "no-cache, private"),)
    location: str = ""
    """Where the document has moved: answer 301."""

    @cached_property
    def gzipped(self) -> bytes:
        """The body for clients that accept gzip, compressed once."""
        return compress_whole(self.body)

    def is_held_by(self, if_none_match: str) -> bool:
        """Whether the If-None-Match header names this document: answer 304."""
        if not self.etag or not if_none_match:
            return False
        return if_none_match.strip() == "*" or self.etag in (
            tag.strip().removeprefix("W/") for tag in if_none_match.split(",")
        )


def content_hash(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()
