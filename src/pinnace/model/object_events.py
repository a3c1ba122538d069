"""Changes of watched objects for callers in the server's process: the cached bytes, neither framed nor copied."""

from __future__ import annotations

from typing import NamedTuple


class ObjectEvent(NamedTuple):
    """One event of a watch."""

    type: str
    """ADDED, MODIFIED or DELETED."""
    key: str
    """namespace/name, or the name of an object without a namespace."""
    revision: int
    body: bytes
    """The encoded object, shared with the server's cache."""
