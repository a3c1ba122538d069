"""The verbs of the cluster's API server: those on objects, and on reviews, bindings and other subresources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.eager_coroutines import run_together
from pinnace.server.nodes.connections import LateStreams
from pinnace.server.reviews import Reviews
from pinnace.server.write.binding import PodBinder
from pinnace.server.write.eviction import Evictions
from pinnace.server.write.scales import Scales
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.representations import Representations
from pinnace.serving.long_work import decode_body
from pinnace.serving.messages import Answer
from pinnace.serving.read.reader import ObjectReader
from pinnace.serving.read.selection import has_long_query
from pinnace.serving.request.call import Call
from pinnace.serving.request.negotiation import ALL_OFFERED, METADATA, Accepted
from pinnace.serving.responses import Outcome
from pinnace.serving.verbs import ObjectVerbs
from pinnace.serving.write import edits
from pinnace.serving.write.body_decoder import (
    BodyDecoder,
    Patches,
    check_options,
    match_namespace,
    metadata_of,
)
from pinnace.serving.write.deletion import DeleteOptions
from pinnace.serving.write.pipeline import Pipeline
from pinnace.serving.write.status_answers import created_status
from pinnace.store import store as stores
from pinnace.store.store import Store

_WHOLE = (bytes, list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresources:
    """The subresources that are not the object itself."""

    scales: Scales
    binder: PodBinder
    evictions: Evictions
    streams: LateStreams


class Verbs(ObjectVerbs):
    """The verbs on objects, with the reviews, bindings and subresources of the cluster's own API server."""

    def __init__(
        self,
        *,
        reader: ObjectReader,
        pipeline: Pipeline,
        decoder: BodyDecoder,
        patches: Patches,
        representations: Representations,
        reviews: Reviews,
        subresources: Subresources,
    ) -> None:
        super().__init__(
            reader=reader, pipeline=pipeline, decoder=decoder, patches=patches, representations=representations
        )
        self._reviews = reviews
        self._subresources = subresources
        self._writes: dict[str, Callable[[Call, Object], Coroutine[Any, Any, None]]] = {
            "create": self._create_one,
            "update": self._update_one,
            "patch": self._patch_one,
            "delete": self._delete_one,
        }

    # Reads.

    def read_at_once(self, call: Call) -> Outcome | None:
        """Get or list if nothing has to be awaited: no other revision, and no conversion by a webhook."""
        raw_query = call.request.raw_query
        if raw_query and ("resourceVersion" in raw_query or "continue" in raw_query or has_long_query(call)):
            return None
        if call.subresource:  # A scale: the routes of other subresources are not known to reads.
            return self._subresources.scales.show_at_once(call, self._reader.cached_object(call))
        accepted = self._representations.accepted(call)
        if call.verb == "list" and accepted.view == METADATA:
            return None
        form = self._representations.choose(call, accepted)
        if form.needs_preparation:
            return None
        body = self._find(call, form)
        return Outcome(body=body, accepted=accepted) if isinstance(body, _WHOLE) else None

    # Writes. Each refuses first, before it writes, if the client accepts no format of the answer.

    def _create(self, call: Call) -> Awaitable[Outcome]:
        if (review := self._reviews.find(call)) is not None:
            self._representations.accepted(call)
            return self._reviews.run(call, review)
        if call.resource.plural == "bindings" and not call.resource.group:
            return self._create_binding(call)
        return self._create_object(call)

    async def _create_binding(self, call: Call) -> Outcome:
        """Bind a pod by a POST to the collection of bindings."""
        self._representations.accepted(call)
        check_options(call)
        obj = await decode_body(call.user.name, call.request.body, self._decoder.object, call)
        return await self._bind(self._subresources.binder.on_pod(call, obj), obj)

    async def write_many(self, call: Call, objects: list[Object]) -> list[errors.ApiError | None]:
        """Create, replace, patch or delete several objects as one call would one; return their errors.

        The store commits them together. They come from this process, are not decoded by a schema, and each has a name.
        A call to pods/binding binds pods. Patches are strategic merge patches, in which parts of this process send no
        field of a wrong type. An object that replaces another has its resourceVersion. To delete an object, its name
        and uid are enough.
        """
        write = self._writes[call.verb]
        outcomes = await run_together(
            write(
                Call(call.verb, call.resource, call.namespace, name, call.subresource, "", call.request, call.user), obj
            )
            for obj in objects
            for name in (metadata_of(obj).get("name", ""),)
        )
        return [_error_of(outcome) for outcome in outcomes]

    async def _create_one(self, call: Call, obj: Object) -> None:
        if call.subresource:
            await self._subresources.binder.bind(call, obj)
        else:
            match_namespace(call, obj["metadata"])
            await self._pipeline.write(call, edits.creation(obj))

    async def _update_one(self, call: Call, obj: Object) -> None:
        match_namespace(call, obj["metadata"])
        # A second attempt, after a lost race, ends with a conflict: it reads no more than the resourceVersion.
        await self._pipeline.write(call, edits.replacement(call, lambda: obj))

    async def _patch_one(self, call: Call, patch: Object) -> None:
        edit = edits.CopyingEdit(edits.patch(call, edits.STRATEGIC_PATCH, patch, edits.separate))
        await self._pipeline.write(call, edit)

    async def _delete_one(self, call: Call, obj: Object) -> None:
        options: Object = {"preconditions": {"uid": obj["metadata"]["uid"]}}
        await self._pipeline.delete(call, DeleteOptions.of(options), raw_options=options)

    # Subresources that are not the object.

    async def _run_subresource(self, call: Call) -> Outcome | Answer:
        match call.subresource, call.verb:
            case "scale", "get":
                return await self._subresources.scales.show(call, await self._reader.fresh_object(call))
            case "scale", "update" | "patch":
                self._representations.accepted(call)
                return await self._subresources.scales.write(call, self._reader.cached_object)
            case "binding", "create":
                self._accept_status(call)
                check_options(call)
                return await self._bind(call, await self._decode_message(call))
            case "eviction", "create":
                accepted = self._accept_status(call)
                check_options(call)
                await self._subresources.evictions.evict(call, await self._decode_message(call))
                return Outcome(201, created_status(), accepted)
            case _, "create" if (review := self._reviews.find(call)) is not None:
                return await self._reviews.run(call, review)
            case _:
                return await self._subresources.streams().answer(call)

    async def _decode_message(self, call: Call) -> Object:
        return await decode_body(call.user.name, call.request.body, self._decoder.message, call)

    def _accept_status(self, call: Call) -> Accepted:
        """Return the format of a Status. Raise NotShownSo for a table, which no Status has."""
        accepted = self._representations.accepted(call)
        if accepted.view == "Table":
            raise errors.NotShownSo(ALL_OFFERED)
        return accepted

    async def _bind(self, call: Call, binding: Object) -> Outcome:
        await self._subresources.binder.bind(call, binding)
        return Outcome(201, created_status(), self._representations.accepted(call))


def _error_of(outcome: Exception | None) -> errors.ApiError | None:
    """Return the error of one write of a batch; raise what is not an answer to it."""
    if outcome is None or isinstance(outcome, errors.ApiError):
        return outcome
    if isinstance(outcome, stores.StoreError):
        return errors.InternalError(str(outcome))
    raise outcome


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
