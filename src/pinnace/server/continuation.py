"""The token by which a client fetches the next page of a list, at the revision of the first."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.server.bodies import Malformed, parse_json

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
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _invalid("illegal base64 data") from None
        try:
            found = parse_json(raw)
        except Malformed as problem:
            raise _invalid(str(problem)) from None
        if not isinstance(found, dict):
            raise _invalid("json: cannot unmarshal into Go value of type storage.continueToken")
        version, revision, start = found.get("v", ""), found.get("rv"), found.get("start")
        if version != _VERSION:
            raise _invalid(f"server does not recognize this encoded version {version}")
        if type(revision) is not int or revision == 0 or revision < LATEST or revision.bit_length() > 63:
            raise _invalid(f"incorrect encoded start resourceVersion (version {_VERSION})")
        if not isinstance(start, str) or not start:
            raise _invalid(f"missing start key (version {_VERSION})")
        if ".." in start.split("/") or start.startswith("/"):
            raise _invalid(orjson.dumps(start).decode())
        return cls(revision, start.rstrip("\0"))

    def expired(self) -> errors.Expired:
        """The page cannot be had any more; the answer carries a token for going on inconsistently."""
        error = errors.Expired(_TOO_OLD)
        error.list_metadata = {"continue": Continuation(LATEST, self.after).encode()}
        return error


class Extent(NamedTuple):
    """How far a page goes. `last` is the key of its last object where more follow."""

    last: str = ""
    remaining: int | None = None

    def metadata(self, revision: int) -> Object:
        """The metadata of a list that ends there."""
        metadata: Object = {"resourceVersion": str(revision)}
        if self.last:
            metadata["continue"] = Continuation(revision, self.last).encode()
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


def cut(keys: list[str], limit: int, *, is_all: bool) -> tuple[list[str], Extent]:
    """The first page of these keys, and how far it goes. How many remain is told only of all objects."""
    if not limit or len(keys) <= limit:
        return keys, Extent()
    return keys[:limit], Extent(keys[limit - 1], len(keys) - limit if is_all else None)


def _invalid(why: str) -> errors.BadRequest:
    return errors.BadRequest(f"invalid continue token: continue key is not valid: {why}")
