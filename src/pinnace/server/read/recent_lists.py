"""Keeps recent lists: clients that start together request the same list, often without a change in between.

All of them are sent the same bytes, so that clients that read slowly need no copies of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnace.server.read.continue_tokens import Extent

MOST_BYTES = 8 << 20
"""The total size of the kept pages. One page that is larger is kept alone, for a while."""
LARGE_BYTES = 1 << 20
LARGE_SECONDS = 30.0
"""A page of more than `LARGE_BYTES` is kept for this long: as long as a client that reads nothing is served."""
MOST_PAGES = 512
"""The number of kept pages: an empty one needs memory too."""

PageKey = tuple[object, ...]
"""Everything in a request that the answer depends on."""


@dataclass(slots=True)
class RecentPage:
    """One page of a list."""

    items: list[bytes]
    """The encoded items, and the end of the list."""
    extent: Extent
    changed: int
    """The revision of the last change of the resource: a later change makes the page stale."""
    revision: int = 0
    """The revision at which `pieces` was made."""
    pieces: list[bytes] = field(default_factory=list)
    """The whole answer. It is shared: do not change it."""

    @property
    def size(self) -> int:
        return sum(map(len, self.items))


class RecentPages:
    """Pages by key. The oldest is dropped when the total is too large."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[PageKey, RecentPage] = {}
        self.get = self._known.get
        """Return the kept page, which may be stale, or None."""

    def keep(self, place: PageKey, page: RecentPage) -> None:
        self._forget(place)
        self._known[place] = page
        self._bytes += page.size
        while len(self._known) > 1 and (self._bytes > self._most_bytes or len(self._known) > MOST_PAGES):
            self._forget(next(iter(self._known)))

    def is_large(self, page: RecentPage) -> bool:
        """Whether the page must be dropped after `LARGE_SECONDS`."""
        return page.size > LARGE_BYTES

    def drop(self, place: PageKey, page: RecentPage) -> None:
        """Forget the page, unless a newer one has its place."""
        if self._known.get(place) is page:
            self._forget(place)

    def _forget(self, place: PageKey) -> None:
        gone = self._known.pop(place, None)
        if gone is not None:
            self._bytes -= gone.size
