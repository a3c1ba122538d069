"""What each verb does with a call: read the body, choose the edit, have it written, show what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import orjson

from pinnace.auth.authentication.service_accounts import default_lifetime
from pinnace.model import errors, field_errors
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Kind, Object, new_uid
from pinnace.model.resources import Registry, Resource
from pinnace.schema.golang.decode import DecodeError
from pinnace.schema.shape import Schema
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.representations import (
    MetadataRepresentation,
    ObjectRepresentation,
    Representation,
    TableRepresentation,
    partial_metadata,
)
from pinnace.server.cache.served_versions import decode_served, prepare
from pinnace.server.cache.watch_cache import CachedObject
from pinnace.server.http.messages import Answer, ResponseStream
from pinnace.server.read.reader import ObjectReader
from pinnace.server.request import body as bodies
from pinnace.server.request.call import Call
from pinnace.server.request.negotiation import (
    ALL_OFFERED,
    METADATA,
    METADATA_LIST,
    PLAIN,
    WITHOUT_ROWS,
    is_named,
    negotiate,
)
from pinnace.server.request.negotiation import Answer as Accepted
from pinnace.server.reviews import Reviews
from pinnace.server.write import actions, edits
from pinnace.server.write.body_decoder import (
    Intake,
    check_applied,
    check_manager,
    match_name,
    match_namespace,
    metadata_of,
    patch_type_of,
    refuse_force,
    tell_of_keys,
)
from pinnace.server.write.deletion import DeleteOptions
from pinnace.server.write.field_ownership import Ownerships
from pinnace.server.write.names import generate_name, manager_of
from pinnace.server.write.patch_body import read_patch
from pinnace.server.write.pipeline import Pipeline, Written
from pinnace.server.write.scale_edits import scale_of
from pinnace.server.write.scales import Scales
from pinnace.server.write.subresources import OBJECT_SUBRESOURCES

_STREAMS = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
"""What a watch can be answered in; the second is named, as Kubernetes names it, and clients take the first."""
_GENERATE_ATTEMPTS = 8
_DELETED_AT_ONCE = 64
_WHOLE = (bytes, list)
_DELETE_OPTIONS = Kind("", "v1", "DeleteOptions")
_Read = TypeVar("_Read")
_META_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


@dataclass(slots=True, eq=False)
class Outcome:
    """What to answer: a whole body, or a stream that goes on."""

    status: int = 200
    body: bytes | list[bytes] = b""
    """In pieces where it is large, so that they need not be joined to be sent."""
    accepted: Accepted = PLAIN
    stream: Callable[[ResponseStream], Awaitable[None] | None] | None = None


class Streams(Protocol):
    """Subresources that go on: a log that is followed, a command in a container."""

    def answer(self, call: Call) -> Awaitable[Answer]: ...


class Verbs:
    """The objects API. Reads are answered at once where they can be; writes are awaited."""

    def __init__(
        self,
        *,
        registry: Registry,
        fanout: Fanout,
        reader: ObjectReader,
        pipeline: Pipeline,
        ownerships: Ownerships,
        reviews: Reviews,
        schema_of: Callable[[Kind], Schema | None],
        clock: Clock,
        streams: Callable[[], Streams],
    ) -> None:
        self._registry = registry
        self._fanout = fanout
        self._reader = reader
        self._pipeline = pipeline
        self._ownerships = ownerships
        self._reviews = reviews
        self._schema_of = schema_of
        self._clock = clock
        self._streams = streams
        self._intake = Intake(registry, schema_of)
        self._scales = Scales(registry, self._intake, schema_of, clock)
        self._forms: dict[tuple[int, Accepted, str, bool], tuple[Resource, Representation]] = {}
        self._writers: dict[str, Callable[[Call], Awaitable[Outcome]]] = {
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def answer(self, call: Call) -> Outcome | Awaitable[Outcome | Answer]:
        verb = call.verb
        if call.subresource and call.subresource not in OBJECT_SUBRESOURCES:
            return self._action(call)
        if verb == "get":
            accepted = self._accepted(call)
            found = self._reader.get(call, self._form(call, accepted))
            if isinstance(found, _WHOLE):
                return Outcome(body=found, accepted=accepted)
            return self._listed(found, accepted)
        if verb == "list":
            return self._list(call)
        if verb == "watch":
            return self._watch(call)
        self._accepted(call)  # Nothing is written whose answer could not be read.
        return self._writers[verb](call)

    # Reads.

    def _list(self, call: Call) -> Outcome | Awaitable[Outcome]:
        accepted = self._accepted(call)
        found = self._reader.recent_list(call) or self._reader.list(call, self._form(call, accepted))
        if isinstance(found, _WHOLE):
            return Outcome(body=found, accepted=accepted)
        return self._listed(found, accepted)

    async def _listed(self, found: Awaitable[bytes | list[bytes]], accepted: Accepted) -> Outcome:
        return Outcome(body=await found, accepted=accepted)

    def _watch(self, call: Call) -> Outcome:
        accepted = self._accepted(call)
        if accepted.is_yaml:
            raise errors.NotShownSo(_STREAMS)
        start = self._reader.watch(call, self._form(call, accepted))
        return Outcome(stream=start)

    def _accepted(self, call: Call) -> Accepted:
        accept = call.request.head.accept
        try:
            accepted = negotiate(accept)
        except errors.NotShownSo:
            if call.resource.custom is not None or is_named(accept):
                raise
            raise _no_route(call) from None
        if not accepted.is_named and call.resource.custom is None:
            raise _no_route(call)
        return accepted

    def _form(self, call: Call, accepted: Accepted) -> Representation:
        resource = call.resource
        include = call.text("includeObject") if accepted.view == "Table" else ""
        is_list = call.verb in ("list", "deletecollection")
        place = (id(resource), accepted, include, is_list)
        known = self._forms.get(place)
        if known is not None and known[0] is resource:
            return known[1]
        _check_view(call, accepted, include)
        form: Representation
        if accepted.view == "Table":
            form = TableRepresentation(resource, version=accepted.version, include=include, clock=self._clock)
        elif accepted.view:
            form = MetadataRepresentation(resource, accepted.version)
        else:
            form = ObjectRepresentation(resource)
        self._registry.shed(self._forms)
        self._forms[place] = (resource, form)
        return form

    # Writes.

    async def _create(self, call: Call) -> Outcome:
        review = self._reviews.of(call)
        if review is not None:
            return await self._ask(call, review)
        check_manager(call, "CreateOptions")
        obj = self._intake.object(call)
        if call.resource.plural == "bindings" and not call.resource.group:
            return await self._bind(_on_pod(call, obj, self._registry), obj)
        metadata = metadata_of(obj)
        match_namespace(call, metadata)
        if metadata.get("name"):
            call.name = metadata["name"]
            return await self._show(call, await self._pipeline.write(call, edits.creation(obj)), 201)
        prefix = metadata.get("generateName")
        for attempt in range(_GENERATE_ATTEMPTS):
            if attempt:  # The write that failed has changed the object.
                obj = self._intake.object(call)
                metadata = metadata_of(obj)
                match_namespace(call, metadata)
            if prefix:
                call.name = metadata["name"] = generate_name(prefix)
            elif call.resource.strategy.names_itself:
                call.name = metadata["name"] = new_uid()
            try:
                return await self._show(call, await self._pipeline.write(call, edits.creation(obj)), 201)
            except errors.AlreadyExists:
                if attempt == _GENERATE_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _update(self, call: Call) -> Outcome:
        check_manager(call, "UpdateOptions")
        ready = [self._replacing(call)]
        edit = edits.replacement(call, lambda: ready.pop() if ready else self._replacing(call))
        written = await self._pipeline.write(call, edit)
        return await self._show(call, written, 201 if written.is_created else 200)

    def _replacing(self, call: Call) -> Object:
        obj = self._intake.object(call)
        metadata = metadata_of(obj)
        match_name(call, metadata)
        match_namespace(call, metadata)
        return obj

    async def _patch(self, call: Call) -> Outcome:
        written = await self._pipeline.write(call, self._read_patch(call, self._patch_edit))
        return await self._show(call, written, 201 if written.is_created else 200)

    def _read_patch(self, call: Call, read: Callable[[Call], _Read]) -> _Read:
        """That there is nothing to be patched is told before what is wrong with the patch, unless it could make it."""
        try:
            return read(call)
        except errors.BadRequest:
            if call.subresource or "apply-patch" not in call.request.head.content_type:
                self._reader.cached_object(call)
            raise

    def _patch_edit(self, call: Call) -> edits.Edit:
        content_type = patch_type_of(call)
        check_manager(call, "PatchOptions", is_apply=content_type in edits.APPLY_PATCHES)
        if content_type in edits.APPLY_PATCHES:
            patch = read_patch(call.request.body, content_type)
            applied = patch.document or {}
            check_applied(call, applied, call.resource.kind)
            self._intake.modernize(call, applied)
            return self._application(call, applied, patch.oddities)
        refuse_force(call)
        document, oddities = read_patch(call.request.body, content_type)

        def decode(wanted: Object) -> Object:
            quoted = document if content_type == edits.STRATEGIC_PATCH else None
            decoded = self._intake.patched(call, wanted, quoted, oddities=oddities)
            metadata = metadata_of(decoded)
            match_name(call, metadata)
            match_namespace(call, metadata)
            return decoded

        return edits.patch(call, content_type, document, decode)

    def _application(self, call: Call, applied: Object, oddities: tuple[str, ...] = ()) -> edits.Application:
        def decode(merged: Object) -> Object:
            if oddities:
                tell_of_keys(call, oddities)
            entries = merged["metadata"].pop("managedFields", None)  # Of our own making: nothing to be read there.
            decoded = self._intake.patched(call, merged, None, call.resource.kind)
            metadata = metadata_of(decoded)
            match_name(call, metadata)  # What is there has a name; what is made must bring one.
            if entries is not None:
                metadata["managedFields"] = entries
            return decoded

        return edits.Application(
            call=call,
            applied=applied,
            manager=manager_of(call),
            force=call.flag("force"),
            now=to_rfc3339(self._clock.now()),
            ownership=self._ownerships.of(call),
            decode=decode,
        )

    async def _delete(self, call: Call) -> Outcome:
        raw, options = self._delete_options(call)
        written = await self._pipeline.delete(call, options, raw_options=raw)
        if not written.is_deleted or call.resource.strategy.answers_with_deleted:
            return await self._show(call, written, 200)
        return Outcome(body=_success(call, written.uid), accepted=self._accepted(call))

    async def _delete_collection(self, call: Call) -> Outcome:
        raw, options = self._delete_options(call)
        doomed, extent, revision = await self._reader.select_for_deletion(call)
        accepted = self._accepted(call)
        form = self._form(call, accepted)
        entries = list(doomed.values())
        if form.needs_preparation and (waiting := form.prepare(entries)) is not None:
            await waiting
        listed = form.encode_list(entries, metadata=extent.metadata(revision))
        room = asyncio.Semaphore(_DELETED_AT_ONCE)

        async def delete(key: str) -> None:
            namespace, _, name = key.rpartition("/")
            one = Call("delete", call.resource, namespace, name, "", "", call.request, call.user, call.warnings)
            async with room:
                with suppress(errors.NotFound):  # Someone else was faster: it is gone, which is what was wanted.
                    await self._pipeline.delete(one, options, raw_options=raw)

        if options.has_preconditions:  # Those behind one that is refused are left alone, as by Kubernetes.
            for key in doomed:
                await delete(key)
        else:
            await asyncio.gather(*(delete(key) for key in doomed))
        return Outcome(body=listed, accepted=accepted)

    def _delete_options(self, call: Call) -> tuple[Object, DeleteOptions]:
        """As they came, and as they are meant."""
        raw = self._read_delete_options(call) if call.request.body else _delete_options_of_query(call)
        return raw, _meant(call, raw)

    def _read_delete_options(self, call: Call) -> Object:
        """DeleteOptions may be of any version, and say no kind at all."""
        content_type = call.request.head.content_type
        options = bodies.read_untyped(call.request.body, content_type)
        kind = options.get("kind") or _DELETE_OPTIONS.name
        if kind != _DELETE_OPTIONS.name:
            version = options.get("apiVersion", "")
            raise errors.BadRequest(
                f'no kind "{kind}" is registered for version "{version}" in scheme "{_META_SCHEME}"'
            )
        try:
            self._intake.decoder_of(_DELETE_OPTIONS)(options)
        except DecodeError as error:
            raise errors.BadRequest(str(error)) from None
        return options

    # Subresources that are not the object.

    def _action(self, call: Call) -> Outcome | Awaitable[Outcome | Answer]:
        match call.subresource, call.verb:
            case "scale", "get":
                return self._show_scale(call, self._reader.cached_object(call))
            case "scale", "update" | "patch":
                self._accepted(call)
                return self._rescale(call)
            case "binding", "create":
                self._accepted(call)
                return self._bind(call, self._intake.message(call))
            case "eviction", "create":
                self._accepted(call)
                return self._evict(call)
            case _, "create" if (review := self._reviews.of(call)) is not None:
                return self._ask(call, review)
            case _:
                return self._streams().answer(call)

    async def _ask(self, call: Call, review: Callable[[Call, Object], Awaitable[Object]]) -> Outcome:
        check_manager(call, "CreateOptions")
        self._accepted(call)
        accepted = negotiate(call.request.head.accept, views=WITHOUT_ROWS)
        _check_view(call, accepted, "")
        asked = self._intake.message(call)
        if call.resource.namespaced:
            match_namespace(call, metadata_of(asked))
        if call.subresource:
            default_lifetime(asked)
        self._reviews.own(call, asked, manager=manager_of(call))
        check = partial(self._reviews.check, call)
        # A token is given away: that is a write, whatever is stored.
        if call.subresource or self._pipeline.asks_about(call.resource):
            await self._pipeline.admit(call, asked, check=check)
        else:
            check(asked)
        answer = await review(call, asked)
        if accepted.view:
            answer = partial_metadata(answer, accepted.version)
        return Outcome(201, orjson.dumps(answer), accepted=accepted)

    async def _show_scale(self, call: Call, entry: CachedObject) -> Outcome:
        waiting = prepare((entry,), call.resource)
        if waiting is not None:
            await waiting
        scale = scale_of(decode_served(entry, call.resource), call.resource)
        accepted = self._accepted(call)
        seen = Call("get", self._scales.resource(call), call.namespace, call.name, "", "", call.request, call.user)
        form = self._form(seen, accepted)
        return Outcome(body=form.encode_object(CachedObject(orjson.dumps(scale), entry.revision)), accepted=accepted)

    async def _rescale(self, call: Call) -> Outcome:
        edit = self._scales.replaced(call) if call.verb == "update" else self._read_patch(call, self._scales.patched)
        written = await self._pipeline.write(call, edit)
        return await self._show_scale(call, written.entry)

    async def _bind(self, call: Call, binding: Object) -> Outcome:
        if metadata_of(binding).get("name", "") != call.name:
            raise errors.BadRequest("name in URL does not match name in Binding object")
        match_namespace(call, metadata_of(binding))
        await self._pipeline.admit(call, binding)
        edit = actions.bound(call, binding, to_rfc3339(self._clock.now()))
        await self._pipeline.without_admission().write(call, edit)
        return Outcome(201, orjson.dumps({**_success_status(), "code": 201}), self._accepted(call))

    async def _evict(self, call: Call) -> Outcome:
        eviction = self._intake.message(call)
        metadata = metadata_of(eviction)
        if metadata.get("name", "") != call.name:
            raise errors.BadRequest("name in URL does not match name in Eviction object")
        match_namespace(call, metadata)
        raw = eviction.get("deleteOptions") or {}
        options = _meant(call, raw)
        await self._pipeline.admit(call, eviction)
        without_admission = self._pipeline.without_admission()
        pod = self._reader.cached_object(call).decode()
        phase = (pod.get("status") or {}).get("phase")
        if phase not in ("Succeeded", "Failed", "Pending") and "deletionTimestamp" not in pod["metadata"]:
            await self._spend_budget(call, pod)
        if not call.is_dry_run:
            marking = Call("update", call.resource, call.namespace, call.name, "status", "", call.request, call.user)
            await without_admission.write(marking, actions.marked_for_eviction(call, to_rfc3339(self._clock.now())))
        one = Call("delete", call.resource, call.namespace, call.name, "", "", call.request, call.user, call.warnings)
        await without_admission.delete(one, options, raw_options=raw)
        return Outcome(201, orjson.dumps({**_success_status(), "code": 201}), self._accepted(call))

    async def _spend_budget(self, call: Call, pod: Object) -> None:
        """Take one disruption from the budget that covers the pod, atomically with others who do."""
        budgets = self._registry.find("policy", "v1", "poddisruptionbudgets")
        if budgets is None:
            return
        cache = self._fanout.cache(budgets.prefix)
        found = [cache.entries[key].decode() for key in cache.keys_of(call.namespace)]
        spent = actions.refuse_if_budget_is_spent(pod, found)
        if spent is None:
            return
        name = spent["metadata"]["name"]
        one = Call("update", budgets, call.namespace, name, "status", "", call.request, call.user)

        def edit(live: Object | None) -> Object:
            again = actions.refuse_if_budget_is_spent(pod, [live] if live is not None else [])
            if again is None:
                raise call.conflict("the disruption budget has changed; try again")
            now = to_rfc3339(self._clock.now())
            again["status"]["disruptedPods"] = {**(again["status"].get("disruptedPods") or {}), call.name: now}
            actions.note_spent_budget(again, now)
            return {**again, "metadata": dict(again["metadata"])}

        await self._pipeline.without_admission().write(one, edit)

    # Answers.

    async def _show(self, call: Call, written: Written, status: int) -> Outcome:
        accepted = self._accepted(call)
        form = self._form(call, accepted)
        if form.needs_preparation and (waiting := form.prepare((written.entry,))) is not None:
            await waiting
        body = form.encode_object(written.entry)
        return Outcome(status, body, accepted=accepted)


def _no_route(call: Call) -> errors.NotAcceptable:
    return errors.NotAcceptable((*ALL_OFFERED, *(_STREAMS if call.verb in ("list", "watch") else ())))


def _success_status() -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _success(call: Call, uid: str) -> bytes:
    details = {"name": call.name, "group": call.resource.group, "kind": call.resource.plural, "uid": uid}
    kept = {name: value for name, value in details.items() if value}
    return orjson.dumps({**_success_status(), "details": kept})


def _delete_options_of_query(call: Call) -> Object:
    options: Object = {}
    if not call.request.raw_query:
        return options
    grace = call.number("gracePeriodSeconds")
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if call.text("propagationPolicy"):
        options["propagationPolicy"] = call.text("propagationPolicy")
    if call.request.parameter("orphanDependents") is not None:
        options["orphanDependents"] = call.flag("orphanDependents")
    if "dryRun" in call.request.query:
        options["dryRun"] = call.request.query["dryRun"]
    preconditions = {name: said for name in ("uid", "resourceVersion") if (said := call.text(name))}
    if preconditions:
        options["preconditions"] = preconditions
    return options


def _meant(call: Call, raw: Object) -> DeleteOptions:
    """The options of a deletion; a dry run is one whether the query asked for it or the options do."""
    options = DeleteOptions.of(raw)
    if options.is_dry_run:
        call.request.body_says_dry_run = True
    return options


def _check_view(call: Call, accepted: Accepted, include: str) -> None:
    """Refuse a view of one object for many, of many for one, and rows with what no row can have."""
    package, name = call.resource.stored.group.partition(".")[0] or "core", call.resource.kind.name
    if call.resource.custom is not None:
        package, name = "unstructured", "Unstructured"
    is_list = call.verb in ("list", "deletecollection")
    if accepted.view == METADATA and is_list:
        raise errors.WrongView(
            f"you requested PartialObjectMetadata, but the requested object is a list (*{package}.{name}List)"
        )
    if accepted.view == METADATA_LIST and not is_list:
        raise errors.WrongView(
            f"you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.{name})"
        )
    if include not in ("", "Metadata", "Object", "None"):
        err = field_errors.invalid("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
        raise errors.BadRequest(f"Unable to convert to Table as requested: {err}")


def _on_pod(call: Call, binding: Object, registry: Registry) -> Call:
    """The old way to bind: a Binding posted to its own collection, named after the pod."""
    pods = registry.find("", "v1", "pods")
    assert pods is not None, "every cluster serves pods"
    name = metadata_of(binding).get("name", "")
    return Call("create", pods, call.namespace, name, "binding", "", call.request, call.user, call.warnings)
