"""The verbs on objects: get, list, watch, create, update, patch, delete and deletecollection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice

from pinnace.model import errors
from pinnace.model.objects import Object, new_uid
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.serving.cache.representations import WATCH_FORMATS, Representation, Representations
from pinnace.serving.long_work import decode_body, run_beside
from pinnace.serving.messages import Answer
from pinnace.serving.read.options import check_list_options, list_options
from pinnace.serving.read.reader import Body, ObjectReader
from pinnace.serving.read.selection import has_long_query, parse_beside
from pinnace.serving.request.body import is_long_body
from pinnace.serving.request.call import Call
from pinnace.serving.request.negotiation import METADATA, Accepted
from pinnace.serving.responses import Outcome
from pinnace.serving.write import edits
from pinnace.serving.write.body_decoder import (
    BodyDecoder,
    Patches,
    check_options,
    match_name,
    match_namespace,
    metadata_of,
    read_existing_patch,
)
from pinnace.serving.write.deletion import read_delete_options
from pinnace.serving.write.pipeline import Pipeline, Written
from pinnace.serving.write.preparation import OBJECT_SUBRESOURCES
from pinnace.serving.write.status_answers import deleted_status

_GENERATE_ATTEMPTS = 8
_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED = 63 - 5
_DELETED_AT_ONCE = 64
_WHOLE = (bytes, list)


class ObjectVerbs:
    """One method per verb. A server with subresources of its own, or with reviews, adds them in a subclass."""

    def __init__(
        self,
        *,
        reader: ObjectReader,
        pipeline: Pipeline,
        decoder: BodyDecoder,
        patches: Patches,
        representations: Representations,
    ) -> None:
        self._reader = reader
        self._pipeline = pipeline
        self._decoder = decoder
        self._patches = patches
        self._representations = representations
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

    def run(self, call: Call) -> Awaitable[Outcome | Answer]:
        """Run the verb of a call."""
        if call.subresource and call.subresource not in OBJECT_SUBRESOURCES:
            return self._run_subresource(call)
        return self._verbs[call.verb](call)

    def _run_subresource(self, call: Call) -> Awaitable[Outcome | Answer]:
        """Run the verb of a subresource that is not the object itself. Most servers have none."""
        raise errors.NoSuchPath

    # Reads.

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
        body = self._find(call, representation)
        return Outcome(body=body if isinstance(body, _WHOLE) else await body, accepted=accepted)

    def _find(self, call: Call, form: Representation) -> NowOrLater[Body]:
        if call.verb == "get":
            return self._reader.get(call, form)
        return self._reader.recent_list(call) or self._reader.list(call, form)

    async def _watch(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        if accepted.is_yaml:
            raise errors.NotShownSo(WATCH_FORMATS)
        if has_long_query(call):
            await parse_beside(call)
        stream = self._reader.watch(call, self._representations.choose(call, accepted))
        return Outcome(stream=stream, accepted=accepted)

    # Writes. Each refuses first, before it writes, if the client accepts no format of the answer.

    async def _show(self, call: Call, accepted: Accepted, written: Written) -> Outcome:
        """Return the object that was written as the client wants to see it."""
        form = self._representations.choose(call, accepted)
        if form.needs_preparation and (waiting := form.prepare((written.entry,))) is not None:
            await waiting
        return Outcome(201 if written.is_created else 200, form.encode_object(written.entry), accepted)

    def _create(self, call: Call) -> Awaitable[Outcome]:
        return self._create_object(call)

    async def _create_object(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        check_options(call)
        if is_long_body(call.request.body):
            obj = await run_beside(call.user.name, self._decoder.object, call)
        else:
            obj = self._decoder.object(call)
        metadata = metadata_of(obj)
        match_namespace(call, metadata)
        if metadata.get("name"):
            call.name = metadata["name"]
            return await self._show(call, accepted, await self._pipeline.write(call, edits.creation(obj)))
        return await self._create_unnamed(call, obj, accepted)

    async def _create_unnamed(self, call: Call, obj: Object, accepted: Accepted) -> Outcome:
        """Create an object under a generated name; try another name while the name is taken."""
        for attempt in range(_GENERATE_ATTEMPTS):
            if attempt:  # The write that failed has changed the object.
                obj = await decode_body(call.user.name, call.request.body, self._decoder.object, call)
                match_namespace(call, metadata_of(obj))
            metadata = metadata_of(obj)
            if prefix := metadata.get("generateName"):
                call.name = metadata["name"] = generate_name(prefix)
            elif call.resource.strategy.names_itself:
                call.name = metadata["name"] = new_uid()
            try:
                return await self._show(call, accepted, await self._pipeline.write(call, edits.creation(obj)))
            except errors.AlreadyExists:
                if attempt == _GENERATE_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _update(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        check_options(call)
        if is_long_body(call.request.body):
            ready = [await run_beside(call.user.name, self._read_replacement, call)]
        else:
            ready = [self._read_replacement(call)]
        edit = edits.replacement(call, lambda: ready.pop() if ready else self._read_replacement(call))
        return await self._show(call, accepted, await self._pipeline.write(call, edit))

    def _read_replacement(self, call: Call) -> Object:
        obj = self._decoder.object(call)
        metadata = metadata_of(obj)
        match_name(call, metadata)
        match_namespace(call, metadata)
        return obj

    async def _patch(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        if is_long_body(call.request.body):
            edit = await run_beside(call.user.name, self._read_patch, call)
        else:
            edit = self._read_patch(call)
        return await self._show(call, accepted, await self._pipeline.write(call, edit))

    def _read_patch(self, call: Call) -> edits.Edit:
        return read_existing_patch(call, self._patches.read, self._reader.cached_object)

    async def _delete(self, call: Call) -> Outcome:
        accepted = self._representations.accepted(call)
        if is_long_body(call.request.body):
            raw, options = await run_beside(call.user.name, read_delete_options, call, self._decoder)
        else:
            raw, options = read_delete_options(call, self._decoder)
        written = await self._pipeline.delete(call, options, raw_options=raw)
        if not written.is_deleted or call.resource.strategy.answers_with_deleted:
            return await self._show(call, accepted, written)
        return Outcome(body=deleted_status(call, written.uid), accepted=accepted)

    async def _delete_collection(self, call: Call) -> Outcome:
        self._representations.accepted(call)
        if has_long_query(call):
            await parse_beside(call)
        check_list_options(call)
        raw, options = await decode_body(call.user.name, call.request.body, read_delete_options, call, self._decoder)
        doomed, metadata = await self._reader.select_for_deletion(call)
        accepted = self._representations.accepted(call)
        form = self._representations.choose(call, accepted)
        listed = self._reader.encode_list(form, list(doomed.values()), metadata(form))
        if not isinstance(listed, _WHOLE):
            listed = await listed
        slices = self._reader.slices.begin()

        async def delete(key: str) -> None:
            namespace, _, name = key.rpartition("/")
            deletion = Call("delete", call.resource, namespace, name, "", "", call.request, call.user, call.warnings)
            with suppress(errors.NotFound):  # Another client was faster: the object is gone, as wanted.
                await self._pipeline.delete(deletion, options, raw_options=raw)

        # A failed precondition leaves the objects after it alone, as in Kubernetes.
        at_once = 1 if options.has_preconditions else _DELETED_AT_ONCE
        keys = iter(doomed)
        while some := list(islice(keys, at_once)):
            await asyncio.gather(*map(delete, some))
            await slices.pause()
        return Outcome(body=listed, accepted=accepted)


def generate_name(prefix: str) -> str:
    return prefix[:_MAX_GENERATED] + "".join(random.choices(_NAME_LETTERS, k=5))
