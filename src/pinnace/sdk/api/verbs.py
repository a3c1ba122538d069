"""The verbs over collections: each read of a client reads the backend first."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypedDict, Unpack

from pinnace.model.authorization import Authorizer
from pinnace.process.clock import Clock
from pinnace.sdk.api.collection import CollectionStore
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.messages import Answer
from pinnace.serving.request.call import Call
from pinnace.serving.responses import Outcome
from pinnace.serving.verbs import ObjectVerbs
from pinnace.serving.write.admission import Admission
from pinnace.serving.write.allocation import NoReservations
from pinnace.serving.write.edits import Ownerships
from pinnace.serving.write.pipeline import Pipeline


class PipelineParts(TypedDict):
    """The parts of a pipeline that do not follow from its store."""

    clock: Clock
    admission: Admission
    authorizer: Authorizer
    ownerships: Ownerships


class CollectionPipeline(Pipeline):
    """The steps of a write, which begin with a read of the backend."""

    def __init__(self, store: CollectionStore, *, fanout: Fanout, **parts: Unpack[PipelineParts]) -> None:
        super().__init__(fanout=fanout, store=store, reservations=NoReservations(), **parts)
        self._collections = store

    def _refresh(self, call: Call) -> Awaitable[None]:
        return self._collections.read(call)


class CollectionVerbs:
    """Runs `ObjectVerbs` after a read of the backend. Writes read it in the pipeline, when it is their turn."""

    def __init__(self, verbs: ObjectVerbs, store: CollectionStore) -> None:
        self._verbs = verbs
        self._store = store

    async def run(self, call: Call) -> Outcome | Answer:
        """Run the verb of a call."""
        if call.verb == "get":
            await self._store.read(call)
        elif _begins_with_a_list(call):
            await self._store.collection(call.resource).refresh(call.namespace)
        return await self._verbs.run(call)


def _begins_with_a_list(call: Call) -> bool:
    """Whether the answer has all objects. A page that continues, or a watch that resumes, is of a known revision."""
    if call.verb == "watch":
        return call.text("resourceVersion") in ("", "0") or call.flag("sendInitialEvents")
    return call.verb in ("list", "deletecollection") and not call.text("continue")
