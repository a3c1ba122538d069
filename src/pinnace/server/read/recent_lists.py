"""The lists just answered, joined: clients that start together ask for the same, and nothing has changed in between."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnace.server.read.continue_tokens import Extent

MOST_BYTES = 8 << 20
"""What is kept altogether. One large list of many watchers' is enough to gain from."""
MOST_PAGES = 512
"""An empty list costs something, too."""

PageKey = tuple[object, ...]
"""What was asked for: everything by which the answer was chosen."""


@dataclass(slots=True)
class RecentPage:
    """The items of a page as one text."""

    items: bytes
    extent: Extent
    changed: int
    """The revision of the last change to what was listed: after another one this is out of date."""
    shown_at: int = 0
    pieces: list[bytes] = field(default_factory=list)
    """The answer at the revision that it was last shown at. Nobody changes it."""


class RecentPages:
    """Forgets what was asked for longest ago once there is too much."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[PageKey, RecentPage] = {}
        self.get = self._known.get
        """The page that was kept last, which may be out of date."""

    def keep(self, place: PageKey, page: RecentPage) -> None:
        self._forget(place)
        if len(page.items) > self._most_bytes:
            return
        self._known[place] = page
        self._bytes += len(page.items)
        while self._bytes > self._most_bytes or len(self._known) > MOST_PAGES:
            self._forget(next(iter(self._known)))

    def _forget(self, place: PageKey) -> None:
        gone = self._known.pop(place, None)
        if gone is not None:
            self._bytes -= len(gone.items)
