"""The verbs: get, list, watch, create, update, patch, delete and deletecollection, and the subresources of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from pinnace.model import errors
from pinnace.model.eager_coroutines import run_together
from pinnace.model.objects import Object, new_uid
from pinnace.server.cache.representations import Representation
from pinnace.server.http.messages import Answer
from pinnace.server.long_work import decode_body, is_long_body, run_beside
from pinnace.server.outcome import WATCH_FORMATS, Outcome, Representations
from pinnace.server.read.options import check_list_options, list_options
from pinnace.server.read.reader import Body, ObjectReader
from pinnace.server.read.selection import has_long_query, parse_beside
from pinnace.server.request.call import Call
from pinnace.server.request.negotiation import ALL_OFFERED, METADATA, Accepted
from pinnace.server.reviews import Reviews
from pinnace.server.write import edits
from pinnace.server.write.binding import PodBinder
from pinnace.server.write.body_decoder import (
    BodyDecoder,
    check_options,
    match_name,
    match_namespace,
    metadata_of,
    read_existing_patch,
)
from pinnace.server.write.delete_options import read_delete_options
from pinnace.server.write.deletion import DeleteOptions
from pinnace.server.write.eviction import Evictions
from pinnace.server.write.names import generate_name
from pinnace.server.write.patches import Patches
from pinnace.server.write.pipeline import Pipeline
from pinnace.server.write.scales import Scales
from pinnace.server.write.status_answers import created_status, deleted_status
from pinnace.server.write.subresources import OBJECT_SUBRESOURCES
from pinnace.store import store as stores

_GENERATE_ATTEMPTS = 8
_DELETED_AT_ONCE = 64
_WHOLE = (bytes, list)


class Streams(Protocol):
    """Subresources that go on: a log that is followed, a command in a container."""

    def answer(self, call: Call) -> Awaitable[Answer]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresources:
    """The subresources that are not the object itself."""

    scales: Scales
    binder: PodBinder
    evictions: Evictions
    streams: Callable[[], Streams]


class Verbs:
    """The API of objects: one method per verb."""

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
        self._reader = reader
        self._pipeline = pipeline
        self._decoder = decoder
        self._patches = patches
        self._representations = representations
        self._reviews = reviews
        self._subresources = subresources
        self._verbs: dict[str, Callable[[Call], Awaitable[Outcome]]] = {
            "get": self._read,
            "list": self._read,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        self._writes: dict[str, Callable[[Call, Object], Coroutine[Any, Any, None]]] = {
            "create": self._create_one,
            "update": self._update_one,
            "patch": self._patch_one,
            "delete": self._delete_one,
        }

    def run(self, call: Call) -> Awaitable[Outcome | Answer]:
        """Run the verb of a call."""
        if call.subresource and call.subresource not in OBJECT_SUBRESOURCES:
            return self._run_subresource(call)
        return self._verbs[call.verb](call)

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
        found = self._find(call, form)
        return Outcome(body=found, accepted=accepted) if isinstance(found, _WHOLE) else None

    async def _read(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        if call.verb == "list" and accepted.view == METADATA:
            list_options(call)  # Errors of options come before that of the representation.
            check_list_options(call)
        representation = self._representations.choose(call, accepted)
        if call.resource.strategy.is_computed:
            return Outcome(body=await self._reader.computed(call, representation), accepted=accepted)
        if has_long_query(call) and call.verb == "list":
            await parse_beside(call)
        found = self._find(call, representation)
        return Outcome(body=found if isinstance(found, _WHOLE) else await found, accepted=accepted)

    def _find(self, call: Call, form: Representation) -> Body | Awaitable[Body]:
        if call.verb == "get":
            return self._reader.get(call, form)
        return self._reader.recent_list(call) or self._reader.list(call, form)

    async def _watch(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        if accepted.is_yaml:
            raise errors.NotShownSo(WATCH_FORMATS)
        if has_long_query(call):
            await parse_beside(call)
        return Outcome(stream=self._reader.watch(call, self._representations.choose(call, accepted)))

    # Writes. Each refuses first, before it writes, if the client accepts no format of the answer.

    async def _create(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        if (review := self._reviews.find(call)) is not None:
            return await self._reviews.run(call, review)
        check_options(call)
        if is_long_body(call.request.body):
            obj = await run_beside(self._decoder.object, call)
        else:
            obj = self._decoder.object(call)
        if call.resource.plural == "bindings" and not call.resource.group:
            return await self._bind(self._subresources.binder.on_pod(call, obj), obj)
        metadata = metadata_of(obj)
        match_namespace(call, metadata)
        if metadata.get("name"):
            call.name = metadata["name"]
            written = await self._pipeline.write(call, edits.creation(obj))
            shown = self._representations.show(call, accepted, written.entry, 201)
            return shown if isinstance(shown, Outcome) else await shown
        return await self._create_unnamed(call, obj, accepted)

    async def _create_unnamed(self, call: Call, obj: Object, accepted: Accepted) -> Outcome:
        """Create an object under a generated name; try another name while the name is taken."""
        for attempt in range(_GENERATE_ATTEMPTS):
            if attempt:  # The write that failed has changed the object.
                obj = await decode_body(call.request.body, self._decoder.object, call)
                match_namespace(call, metadata_of(obj))
            metadata = metadata_of(obj)
            if prefix := metadata.get("generateName"):
                call.name = metadata["name"] = generate_name(prefix)
            elif call.resource.strategy.names_itself:
                call.name = metadata["name"] = new_uid()
            try:
                written = await self._pipeline.write(call, edits.creation(obj))
                shown = self._representations.show(call, accepted, written.entry, 201)
                return shown if isinstance(shown, Outcome) else await shown
            except errors.AlreadyExists:
                if attempt == _GENERATE_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

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

    async def _update(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        check_options(call)
        if is_long_body(call.request.body):
            ready = [await run_beside(self._read_replacement, call)]
        else:
            ready = [self._read_replacement(call)]
        edit = edits.replacement(call, lambda: ready.pop() if ready else self._read_replacement(call))
        written = await self._pipeline.write(call, edit)
        shown = self._representations.show(call, accepted, written.entry, 201 if written.is_created else 200)
        return shown if isinstance(shown, Outcome) else await shown

    def _read_replacement(self, call: Call) -> Object:
        obj = self._decoder.object(call)
        metadata = metadata_of(obj)
        match_name(call, metadata)
        match_namespace(call, metadata)
        return obj

    async def _patch(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        if is_long_body(call.request.body):
            edit = await run_beside(read_existing_patch, call, self._patches.read, self._reader.cached_object)
        else:
            edit = read_existing_patch(call, self._patches.read, self._reader.cached_object)
        written = await self._pipeline.write(call, edit)
        shown = self._representations.show(call, accepted, written.entry, 201 if written.is_created else 200)
        return shown if isinstance(shown, Outcome) else await shown

    async def _delete(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        if is_long_body(call.request.body):
            raw, options = await run_beside(read_delete_options, call, self._decoder)
        else:
            raw, options = read_delete_options(call, self._decoder)
        written = await self._pipeline.delete(call, options, raw_options=raw)
        if not written.is_deleted or call.resource.strategy.answers_with_deleted:
            shown = self._representations.show(call, accepted, written.entry, 200)
            return shown if isinstance(shown, Outcome) else await shown
        return Outcome(body=deleted_status(call, written.uid), accepted=accepted)

    async def _delete_collection(self, call: Call) -> Outcome:
        self._representations.accepted(call)
        if has_long_query(call):
            await parse_beside(call)
        check_list_options(call)
        raw, options = await decode_body(call.request.body, read_delete_options, call, self._decoder)
        doomed, extent, revision = await self._reader.select_for_deletion(call)
        accepted = self._representations.accepted(call)
        form = self._representations.choose(call, accepted)
        listed = self._reader.encode_list(form, list(doomed.values()), extent.metadata(revision))
        if not isinstance(listed, _WHOLE):
            listed = await listed
        slices = self._reader.slices.begin()

        async def delete(key: str) -> None:
            namespace, _, name = key.rpartition("/")
            one = Call("delete", call.resource, namespace, name, "", "", call.request, call.user, call.warnings)
            with suppress(errors.NotFound):  # Another client was faster: the object is gone, as wanted.
                await self._pipeline.delete(one, options, raw_options=raw)

        # A failed precondition leaves the objects after it alone, as in Kubernetes.
        at_once = 1 if options.has_preconditions else _DELETED_AT_ONCE
        keys = iter(doomed)
        while some := list(islice(keys, at_once)):
            await asyncio.gather(*map(delete, some))
            await slices.pause()
        return Outcome(body=listed, accepted=accepted)

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
                return await self._bind(call, await decode_body(call.request.body, self._decoder.message, call))
            case "eviction", "create":
                accepted = self._accept_status(call)
                check_options(call)
                eviction = await decode_body(call.request.body, self._decoder.message, call)
                await self._subresources.evictions.evict(call, eviction)
                return Outcome(201, created_status(), accepted)
            case _, "create" if (review := self._reviews.find(call)) is not None:
                return await self._reviews.run(call, review)
            case _:
                return await self._subresources.streams().answer(call)

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
