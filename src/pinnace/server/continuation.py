"""The token by which a client fetches the next page of a list, at the revision of the first."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import orjson

from pinnace.model import errors

LATEST = -1
"""In a token: go on with what is there now, whatever changed since."""

_VERSION = "meta.k8s.io/v1"
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Go on behind the key `after` as things were at `revision`."""

    revision: int
    after: str

    def encode(self) -> str:
        token = {"v": _VERSION, "rv": self.revision, "start": self.after + "\0"}
        return base64.urlsafe_b64encode(orjson.dumps(token)).decode().rstrip("=")

    @classmethod
    def decode(cls, token: str) -> Continuation:
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            found = orjson.loads(raw)
            version, revision, start = found["v"], found["rv"], found["start"]
        except (binascii.Error, ValueError, TypeError, KeyError) as problem:
            raise errors.BadRequest(f"invalid continue token: continue key is not valid: {problem}") from None
        if version != _VERSION:
            raise errors.BadRequest(
                "invalid continue token: continue key is not valid: server does not recognize this encoded version"
                f" {orjson.dumps(version).decode()}"
            )
        if not isinstance(revision, int) or not isinstance(start, str) or revision == 0 or revision < LATEST:
            raise errors.BadRequest(
                f"invalid continue token: continue key is not valid: incorrect encoded start resourceVersion"
                f" {orjson.dumps(revision).decode()} (version {_VERSION})"
            )
        if not start or ".." in start.split("/") or start.startswith("/"):
            raise errors.BadRequest(
                f"invalid continue token: continue key is not valid: {orjson.dumps(start).decode()}"
            )
        return cls(revision, start.rstrip("\0"))

    def expired(self) -> errors.Expired:
        """The page cannot be had any more; the answer carries a token for going on inconsistently."""
        error = errors.Expired(_TOO_OLD)
        error.list_metadata = {"continue": Continuation(LATEST, self.after).encode()}
        return error
