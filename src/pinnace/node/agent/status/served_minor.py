"""The minor version of the Kubernetes that an API server serves."""

from __future__ import annotations

import re

import orjson

from pinnace.client.client import Client

NEWEST_MINOR = 37
_DIGITS = re.compile(r"[0-9]{1,6}")


async def served_minor(client: Client) -> int:
    """Return the 1.x minor that the API server says it serves; the newest known if it does not say. Raise ApiError."""
    version = orjson.loads(await client.read("/version"))
    if not isinstance(version, dict) or version.get("major") != "1":
        return NEWEST_MINOR
    number = _DIGITS.match(str(version.get("minor") or ""))  # Some distributions write 36+.
    return int(number[0]) if number is not None else NEWEST_MINOR
