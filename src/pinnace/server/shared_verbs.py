"""The verbs over a store that other servers write to as well: reads are fresh, and no write fails for stale objects."""

from __future__ import annotations

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.server.cache.fanout import Fanout
from pinnace.server.http.messages import Answer
from pinnace.server.outcome import Outcome
from pinnace.server.request.call import Call
from pinnace.server.verbs import Verbs
from pinnace.store.store import Store

_READS = frozenset(("get", "list", "watch"))


class SharedVerbs:
    """Runs `Verbs` after or before `Store.sync`, where a client could otherwise see an older state than it knows of."""

    def __init__(self, verbs: Verbs, store: Store, fanout: Fanout) -> None:
        self._verbs = verbs
        self._store = store
        self._fanout = fanout

    def read_at_once(self, call: Call) -> Outcome | None:
        """Return None: a read has to wait for the store."""
        return None

    async def write_many(self, call: Call, objects: list[Object]) -> list[errors.ApiError | None] | None:
        """Return None: each write may have to be repeated after a sync."""
        return None

    async def run(self, call: Call) -> Outcome | Answer:
        """Run the verb of a call. A read without a revision sees every write that was acknowledged before it."""
        if call.verb in _READS:
            query = call.request.raw_query
            if not query or not (call.text("resourceVersion") or call.text("continue")):
                await self._store.sync()
            return await self._verbs.run(call)
        before, name, warnings = self._fanout.revision, call.name, len(call.warnings)
        try:
            return await self._verbs.run(call)
        except errors.ApiError:
            # Refused because of cached objects: they may be older than what the client knows from another server.
            await self._store.sync()
            if self._fanout.revision == before:
                raise
        call.name = name
        del call.warnings[warnings:]
        return await self._verbs.run(call)
