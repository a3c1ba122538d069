"""One write, as admission plug-ins see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.model.users import User

OPEN_SECONDS = 10.0
"""How long what was reserved for a write is held after its client has gone: by then the store has done it, or not."""


@dataclass(slots=True, eq=False)
class Reinvocation:
    """The second round of mutating webhooks: a change makes earlier webhooks run again."""

    is_second: bool = False
    is_wanted: bool = False
    previous: set[str] = field(default_factory=set)
    """Webhooks that were called and want to be called again after changes."""
    due: set[str] = field(default_factory=set)
    """Those to call again: the object changed after their call."""
    last_seen: bytes = b""
    """The encoded object after the last webhook."""

    def require_previous(self) -> None:
        self.due |= self.previous
        self.previous.clear()


@dataclass(eq=False)
class Review:
    """One write, as the plug-ins see it. Only mutators change `new`."""

    operation: str  # CREATE, UPDATE, DELETE or CONNECT.
    resource: Resource
    subresource: str
    namespace: str
    name: str
    new: Object | None
    old: Object | None
    user: User
    verb: str = ""  # As the client asked for it: an UPDATE is an update or a patch.
    is_dry_run: bool = False
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    afterwards: list[Callable[[], None]] | None = field(default=None, init=False)
    """See `call_afterwards`."""
    inline_seconds: float = field(default=0.0, init=False)
    """The CPU time on the event loop of the expressions of policies and webhooks for this write."""
    _audit: dict[str, str] | None = field(default=None, init=False)
    _rounds: Reinvocation | None = field(default=None, init=False)

    @property
    def audit(self) -> dict[str, str]:
        """Audit annotations that the plug-ins add to the request."""
        if self._audit is None:
            self._audit = {}
        return self._audit

    def call_afterwards(self, callback: Callable[[], None]) -> None:
        """Call back once the write is stored or has come to nothing: what a plug-in has reserved ends then."""
        if self.afterwards is None:
            self.afterwards = []
        self.afterwards.append(callback)

    @property
    def reinvocation(self) -> Reinvocation:
        if self._rounds is None:
            self._rounds = Reinvocation()
        return self._rounds

    @property
    def needs_second_round(self) -> bool:
        return self._rounds is not None and self._rounds.is_wanted

    def end(self, *, is_open: bool = False) -> None:
        """Note that the write is over. `is_open`: the client has left, and the store may still commit it."""
        if is_open and self.afterwards:
            asyncio.get_running_loop().call_later(OPEN_SECONDS, self.end)
            return
        while self.afterwards:
            self.afterwards.pop()()

    def forbidden(self, why: str) -> errors.Forbidden:
        """Return the 403 error, which names the object of the request."""
        return errors.Forbidden(why, group=self.resource.group, plural=self.resource.plural, name=self.name)

    @property
    def changed(self) -> Any:
        """`new`, for plug-ins that review only creations and updates. Its type is that of the resource's kind."""
        assert self.new is not None, "only a deletion has nothing new"
        return self.new
