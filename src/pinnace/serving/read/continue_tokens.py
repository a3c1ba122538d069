"""The continue token, with which a client fetches the next page of a list at the revision of the first."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import orjson

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.serving.request.body import GO_FORMS, MalformedBody, parse_json

LATEST = -1
"""The revision in a token that continues with the newest objects, which may be inconsistent with earlier pages."""

_VERSION = "meta.k8s.io/v1"
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9_-]")
_LEAST, _MOST = -(2**63), 2**63 - 1
_Value = TypeVar("_Value", str, int)
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Continuation:
    """The next page begins after the key `after`, at `revision`."""

    revision: int
    after: str

    def encode(self) -> str:
        token = {"v": _VERSION, "rv": self.revision, "start": self.after + "\0"}
        return base64.urlsafe_b64encode(orjson.dumps(token)).decode().rstrip("=")

    @classmethod
    def decode(cls, token: str) -> Continuation:
        try:
            decoded = parse_json(_unpack(token))
        except MalformedBody as error:
            raise _invalid(str(error)) from None
        if decoded is None:
            decoded = {}
        if not isinstance(decoded, dict):
            raise _invalid(
                f"json: cannot unmarshal {GO_FORMS[type(decoded)]} into Go value of type storage.continueToken"
            )
        version = _field(decoded, "v", str, "string") or ""
        revision = _field(decoded, "rv", int, "int64") or 0
        start = _field(decoded, "start", str, "string") or ""
        if version != _VERSION:
            raise _invalid(f"server does not recognize this encoded version {version}")
        if revision == 0:
            raise _invalid(f"incorrect encoded start resourceVersion (version {_VERSION})")
        if not start:
            raise _invalid(f"encoded start key empty (version {_VERSION})")
        path = start.removeprefix("/")
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise _invalid(start)
        return cls(max(revision, LATEST), path.rstrip("\0"))

    def expired(self) -> errors.Expired:
        """Return the error for a revision that was compacted. It carries a token that continues inconsistently."""
        error = errors.Expired(_TOO_OLD)
        error.list_metadata = {"continue": Continuation(LATEST, self.after).encode()}
        return error


class Extent(NamedTuple):
    """How far a page goes. `last` is the key of its last object if more objects follow."""

    last: str = ""
    remaining: int | None = None
    shards: str = ""
    """The shard selector, which the metadata repeat."""

    def metadata(self, revision: int) -> Object:
        """Return the metadata of the list."""
        metadata: Object = {"resourceVersion": str(revision)}
        if self.last:
            metadata["continue"] = Continuation(revision, self.last).encode()
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        if self.shards:
            metadata["shardInfo"] = {"selector": self.shards}
        return metadata


def cut(keys: list[str], limit: int, *, is_all: bool) -> tuple[list[str], Extent]:
    """Return the first page of these keys and its extent, which counts the rest only if no selector is used."""
    if not limit or len(keys) <= limit:
        return keys, Extent()
    return keys[:limit], Extent(keys[limit - 1], len(keys) - limit if is_all else None)


def _unpack(token: str) -> bytes:
    stray = _NOT_BASE64.search(token)
    if stray is not None or len(token) % 4 == 1:
        raise _invalid(f"illegal base64 data at input byte {stray.start() if stray is not None else len(token) - 1}")
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def _field(token: Object, name: str, kind: type[_Value], go: str) -> _Value | None:
    value = token.get(name)
    if value is None:
        return None
    if type(value) is not kind or (isinstance(value, int) and not _LEAST <= value <= _MOST):
        actual_type = f"number {value}" if type(value) in (int, float) and kind is int else GO_FORMS[type(value)]
        raise _invalid(f"json: cannot unmarshal {actual_type} into Go struct field continueToken.{name} of type {go}")
    return value


def _invalid(why: str) -> errors.BadRequest:
    return errors.BadRequest(f"invalid continue token: continue key is not valid: {why}")
