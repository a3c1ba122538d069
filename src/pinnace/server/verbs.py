"""What each verb does with a call: read the body, choose the edit, have it written, show what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import orjson

from pinnace.kinds import empty_fields, go_fields, workload_columns
from pinnace.kinds.rows import scale_resource
from pinnace.model import causes, errors, quantity
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.metadata import manager_faults
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Column, Registry, Resource
from pinnace.model.strategic import unmerged
from pinnace.schema import gotext
from pinnace.schema.decode import DecodeError, Decoder, Decoders
from pinnace.schema.shape import Schema
from pinnace.server import actions, bodies, custom_scales, edits
from pinnace.server.bodies import Body, FieldValidation
from pinnace.server.calls import Call
from pinnace.server.continuation import cut
from pinnace.server.deletion import DeleteOptions
from pinnace.server.facets import FACETS
from pinnace.server.fanout import Fanout
from pinnace.server.messages import Answer, Sink
from pinnace.server.negotiation import METADATA, METADATA_LIST, OFFERED, negotiate
from pinnace.server.negotiation import Answer as Accepted
from pinnace.server.ownership import Ownerships
from pinnace.server.patch_bodies import patch_type, read_patch
from pinnace.server.pipeline import Pipeline, Written, generated_name, manager_name
from pinnace.server.presentation import prepare, shown_object
from pinnace.server.reads import Reader, list_options
from pinnace.server.renditions import Form, MetadataOnly, Plain, Rows
from pinnace.server.reviews import Reviews
from pinnace.server.selection import selection_of
from pinnace.server.shelves import Entry

_SCALE = Kind("autoscaling", "v1", "Scale")
_GENERATE_ATTEMPTS = 8
_DELETED_AT_ONCE = 64
_JSON = b"application/json"
_WHOLE = (bytes, list)
_DELETE_OPTIONS = Kind("", "v1", "DeleteOptions")
_SCHEME = "pkg/api/legacyscheme/scheme.go:30"
_META_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


class Outcome(NamedTuple):
    """What to answer: a whole body, or a stream that goes on."""

    status: int = 200
    body: bytes | list[bytes] = b""
    """In pieces where it is large, so that they need not be joined to be sent."""
    content_type: bytes = _JSON
    wants_yaml: bool = False
    stream: Callable[[Sink], Awaitable[None] | None] | None = None


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
        reader: Reader,
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
        self._decoders = Decoders(
            quantity=quantity.canonical, empty_fields=empty_fields.of_type, go_fields=go_fields.of_type
        )
        self._scales: dict[tuple[Column, ...], Resource] = {}
        self._compiled: dict[int, tuple[Resource, Decoder]] = {}
        self._forms: dict[tuple[int, Accepted, str, bool], tuple[Resource, Form]] = {}
        self._writers: dict[str, Callable[[Call], Awaitable[Outcome]]] = {
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def answer(self, call: Call) -> Outcome | Awaitable[Outcome | Answer]:
        verb = call.verb
        if call.subresource and call.subresource not in FACETS:
            return self._action(call)
        if verb == "get":
            accepted = self._accepted(call)
            found = self._reader.get(call, self._form(call, accepted))
            if isinstance(found, _WHOLE):
                return Outcome(body=found, wants_yaml=accepted.is_yaml)
            return self._listed(found, accepted)
        if verb == "list":
            return self._list(call)
        if verb == "watch":
            return self._watch(call)
        return self._writers[verb](call)

    # Reads.

    def _list(self, call: Call) -> Outcome | Awaitable[Outcome]:
        accepted = self._accepted(call)
        found = self._reader.list(call, self._form(call, accepted))
        if isinstance(found, _WHOLE):
            return Outcome(body=found, wants_yaml=accepted.is_yaml)
        return self._listed(found, accepted)

    async def _listed(self, found: Awaitable[bytes | list[bytes]], accepted: Accepted) -> Outcome:
        return Outcome(body=await found, wants_yaml=accepted.is_yaml)

    def _watch(self, call: Call) -> Outcome:
        accepted = negotiate(call.request.headers.get(b"accept", b"").decode("latin-1"))
        start = self._reader.watch(call, self._form(call, accepted))
        return Outcome(stream=start)

    def _accepted(self, call: Call) -> Accepted:
        return negotiate(call.request.headers.get(b"accept", b"").decode("latin-1"))

    def _form(self, call: Call, accepted: Accepted) -> Form:
        resource = call.resource
        include = call.text("includeObject") if accepted.view == "Table" else ""
        is_list = call.verb in ("list", "deletecollection")
        place = (id(resource), accepted, include, is_list)
        known = self._forms.get(place)
        if known is not None and known[0] is resource:
            return known[1]
        _check_view(call, accepted, include)
        form: Form
        if accepted.view == "Table":
            form = Rows(resource, version=accepted.version, include=include, clock=self._clock)
        elif accepted.view:
            form = MetadataOnly(resource, accepted.version)
        else:
            form = Plain(resource)
        self._registry.shed(self._forms)
        self._forms[place] = (resource, form)
        return form

    # Writes.

    async def _create(self, call: Call) -> Outcome:
        review = self._reviews.of(call)
        if review is not None:
            return await self._ask(call, review)
        _check_manager(call, "CreateOptions")
        obj = self._object(call)
        if call.resource.plural == "bindings" and not call.resource.group:
            return await self._bind(_on_pod(call, obj, self._registry), obj)
        metadata = _metadata_of(obj)
        _match_namespace(call, metadata)
        if metadata.get("name"):
            call.name = metadata["name"]
            return await self._show(call, await self._pipeline.write(call, edits.creation(obj)), 201)
        prefix = metadata.get("generateName")
        for attempt in range(_GENERATE_ATTEMPTS):
            if attempt:  # The write that failed has changed the object.
                obj = self._object(call)
                metadata = _metadata_of(obj)
                _match_namespace(call, metadata)
            if prefix:
                call.name = metadata["name"] = generated_name(prefix)
            try:
                return await self._show(call, await self._pipeline.write(call, edits.creation(obj)), 201)
            except errors.AlreadyExists:
                if attempt == _GENERATE_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _update(self, call: Call) -> Outcome:
        _check_manager(call, "UpdateOptions")
        ready = [self._replacing(call)]
        edit = edits.replacement(call, lambda: ready.pop() if ready else self._replacing(call))
        written = await self._pipeline.write(call, edit)
        return await self._show(call, written, 201 if written.is_created else 200)

    def _replacing(self, call: Call) -> Object:
        obj = self._object(call)
        metadata = _metadata_of(obj)
        _match_name(call, metadata)
        _match_namespace(call, metadata)
        return obj

    async def _patch(self, call: Call) -> Outcome:
        written = await self._pipeline.write(call, self._patch_edit(call))
        return await self._show(call, written, 201 if written.is_created else 200)

    def _patch_edit(self, call: Call) -> edits.Edit:
        content_type = patch_type(call.request.headers.get(b"content-type", b"").decode("latin-1"))
        _check_manager(call, "PatchOptions", is_apply=content_type in edits.APPLY_PATCHES)
        if content_type in edits.APPLY_PATCHES:
            patch = read_patch(call.request.body, content_type)
            applied = patch.document or {}
            self._check_applied(call, applied)
            self._modernize(call, applied)
            return self._application(call, applied, patch.oddities)
        if call.text("force"):
            fault = causes.forbidden("force", "may not be specified for non-apply patch")
            raise errors.Invalid([fault], group="meta.k8s.io", kind="PatchOptions", name="")
        document, oddities = read_patch(call.request.body, content_type)
        if content_type == edits.STRATEGIC_PATCH and not call.resource.strategy.takes_strategic_patches:
            raise errors.UnsupportedMediaType([edits.JSON_PATCH, edits.MERGE_PATCH, edits.APPLY_YAML])

        def decode(wanted: Object) -> Object:
            quoted = document if content_type == edits.STRATEGIC_PATCH else None
            decoded = self._patched(call, wanted, quoted, oddities=oddities)
            metadata = _metadata_of(decoded)
            _match_name(call, metadata)
            _match_namespace(call, metadata)
            return decoded

        return edits.patch(call, content_type, document, decode)

    def _application(self, call: Call, applied: Object, oddities: tuple[str, ...] = ()) -> edits.Application:
        def decode(merged: Object) -> Object:
            if oddities:
                _tell_of_keys(call, oddities)
            return self._patched(call, merged, None, call.resource.kind)

        return edits.Application(
            call=call,
            applied=applied,
            manager=manager_name(call),
            force=call.flag("force"),
            now=to_rfc3339(self._clock.now()),
            ownership=self._ownerships.of(call),
            decode=decode,
        )

    def _check_applied(self, call: Call, applied: Any) -> None:
        _check_kind(applied, call.resource.kind)
        metadata = _metadata_of(applied)
        if not metadata.get("name"):
            metadata["name"] = call.name
        _match_name(call, metadata)
        _match_namespace(call, dict(metadata))

    async def _delete(self, call: Call) -> Outcome:
        raw, options = self._delete_options(call)
        written = await self._pipeline.delete(call, options, raw_options=raw)
        if not written.is_deleted or call.resource.strategy.answers_with_deleted:
            return await self._show(call, written, 200)
        return Outcome(body=_success(call, written.entry))

    async def _delete_collection(self, call: Call) -> Outcome:
        raw, options = self._delete_options(call)
        chosen, page = selection_of(call), list_options(call)
        shelf = self._fanout.shelf(call.resource.prefix)
        await chosen.prepare_all(shelf)
        after = page.continuation.after if page.continuation else ""
        found = [
            key
            for key in shelf.keys_of(chosen.namespace, after=after)
            if chosen.matches is None or chosen.matches(key, shelf.entries[key])
        ]
        keys, extent = cut(found, page.limit, is_all=chosen.matches is None)
        accepted = self._accepted(call)
        form = self._form(call, accepted)
        entries = [shelf.entries[key] for key in keys]
        if form.waits and (waiting := form.prepare(entries)) is not None:
            await waiting
        listed = form.many(entries, metadata=extent.metadata(self._fanout.revision))
        room = asyncio.Semaphore(_DELETED_AT_ONCE)

        async def delete(key: str) -> None:
            namespace, _, name = key.rpartition("/")
            one = Call("delete", call.resource, namespace, name, "", "", call.request, call.user, call.warnings)
            async with room:
                with suppress(errors.NotFound):  # Someone else was faster: it is gone, which is what was wanted.
                    await self._pipeline.delete(one, options, raw_options=raw)

        await asyncio.gather(*(delete(key) for key in keys))
        return Outcome(body=listed, wants_yaml=accepted.is_yaml)

    def _delete_options(self, call: Call) -> tuple[Object, DeleteOptions]:
        """As they came, and as they are meant."""
        raw = self._read_delete_options(call) if call.request.body else _delete_options_of_query(call)
        return raw, _meant(call, raw)

    def _read_delete_options(self, call: Call) -> Object:
        """DeleteOptions may be of any version, and say no kind at all."""
        content_type = call.request.headers.get(b"content-type", b"").decode("latin-1")
        options = bodies.read_untyped(call.request.body, content_type)
        kind = options.get("kind") or _DELETE_OPTIONS.name
        if kind != _DELETE_OPTIONS.name:
            version = options.get("apiVersion", "")
            raise errors.BadRequest(
                f'no kind "{kind}" is registered for version "{version}" in scheme "{_META_SCHEME}"'
            )
        try:
            self._decoder_of(_DELETE_OPTIONS)(options)
        except DecodeError as problem:
            raise errors.BadRequest(str(problem)) from None
        return options

    # Subresources that are not the object.

    def _action(self, call: Call) -> Outcome | Awaitable[Outcome | Answer]:
        match call.subresource, call.verb:
            case "scale", "get":
                return self._show_scale(call, self._reader.entry(call))
            case "scale", "update" | "patch":
                return self._rescale(call)
            case "binding", "create":
                return self._bind(call, self._message(call))
            case "eviction", "create":
                return self._evict(call)
            case _, "create" if (review := self._reviews.of(call)) is not None:
                return self._ask(call, review)
            case _:
                return self._streams().answer(call)

    async def _ask(self, call: Call, review: Callable[[Call, Object], Awaitable[Object]]) -> Outcome:
        accepted = self._accepted(call)
        if accepted.view:
            raise errors.NotShownSo(OFFERED)
        return Outcome(201, orjson.dumps(await review(call, self._message(call))), wants_yaml=accepted.is_yaml)

    async def _show_scale(self, call: Call, entry: Entry) -> Outcome:
        waiting = prepare((entry,), call.resource)
        if waiting is not None:
            await waiting
        scale = actions.scale_of(shown_object(entry, call.resource), call.resource)
        accepted = self._accepted(call)
        seen = Call("get", self._scale_resource(call), call.namespace, call.name, "", "", call.request, call.user)
        form = self._form(seen, accepted)
        return Outcome(body=form.one(Entry(orjson.dumps(scale), entry.revision)), wants_yaml=accepted.is_yaml)

    def _scale_resource(self, call: Call) -> Resource:
        columns = workload_columns.SCALE if call.resource.custom is None else workload_columns.CUSTOM_SCALE
        known = self._scales.get(columns)
        if known is None:
            schema = self._schema_of(_SCALE)
            assert schema is not None, "every minor has a Scale"
            known = self._scales[columns] = scale_resource(schema, columns)
        return known

    async def _rescale(self, call: Call) -> Outcome:
        if call.verb == "update":
            wanted = self._message(call)
            _match_namespace(call, dict(_metadata_of(wanted)))
            edit = actions.rescaled(call, lambda scale: wanted)
        else:
            content_type = patch_type(call.request.headers.get(b"content-type", b"").decode("latin-1"))
            document, _ = read_patch(call.request.body, content_type)
            if content_type in edits.APPLY_PATCHES:
                return await self._apply_scale(call, document or {})

            def patched(scale: Object) -> Object:
                return self._patched(call, edits.patched(scale, content_type, document), None)

            edit = actions.rescaled(call, patched)
        written = await self._pipeline.write(call, edit)
        return await self._show_scale(call, written.entry)

    async def _apply_scale(self, call: Call, scale: Object) -> Outcome:
        """Who applies a scale has an opinion on one field of the workload."""
        _check_manager(call, "PatchOptions", is_apply=True)
        _check_kind(scale, _SCALE)
        kind, spec = call.resource.kind, scale.get("spec") or {}
        workload = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": _metadata_of(scale)}
        paths = call.resource.custom.scale if call.resource.custom is not None else None
        if paths is not None:
            workload |= custom_scales.opinion(scale, paths.spec)
        else:
            workload["spec"] = {"replicas": spec["replicas"]} if "replicas" in spec else {}
        self._check_applied(call, workload)
        written = await self._pipeline.write(call, self._application(call, workload))
        return await self._show_scale(call, written.entry)

    async def _bind(self, call: Call, binding: Object) -> Outcome:
        if _metadata_of(binding).get("name", "") != call.name:
            raise errors.BadRequest("name in URL does not match name in Binding object")
        _match_namespace(call, _metadata_of(binding))
        await self._pipeline.admit(call, binding)
        edit = actions.bound(call, binding, to_rfc3339(self._clock.now()))
        await self._pipeline.unguarded().write(call, edit)
        return Outcome(201, orjson.dumps({**_success_status(), "code": 201}))

    async def _evict(self, call: Call) -> Outcome:
        eviction = self._message(call)
        metadata = _metadata_of(eviction)
        if metadata.get("name", "") != call.name:
            raise errors.BadRequest("name in URL does not match name in Eviction object")
        _match_namespace(call, metadata)
        raw = eviction.get("deleteOptions") or {}
        options = _meant(call, raw)
        await self._pipeline.admit(call, eviction)
        unguarded = self._pipeline.unguarded()
        pod = self._reader.entry(call).decode()
        phase = (pod.get("status") or {}).get("phase")
        if phase not in ("Succeeded", "Failed", "Pending") and "deletionTimestamp" not in pod["metadata"]:
            await self._spend_budget(call, pod)
        if not call.is_dry_run:
            marking = Call("update", call.resource, call.namespace, call.name, "status", "", call.request, call.user)
            await unguarded.write(marking, actions.marked_for_eviction(call, to_rfc3339(self._clock.now())))
        one = Call("delete", call.resource, call.namespace, call.name, "", "", call.request, call.user, call.warnings)
        await unguarded.delete(one, options, raw_options=raw)
        return Outcome(201, orjson.dumps({**_success_status(), "code": 201}))

    async def _spend_budget(self, call: Call, pod: Object) -> None:
        """Take one disruption from the budget that covers the pod, atomically with others who do."""
        budgets = self._registry.find("policy", "v1", "poddisruptionbudgets")
        if budgets is None:
            return
        shelf = self._fanout.shelf(budgets.prefix)
        found = [shelf.entries[key].decode() for key in shelf.keys_of(call.namespace)]
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

        await self._pipeline.unguarded().write(one, edit)

    # Bodies.

    def _read(self, call: Call) -> Body:
        content_type = call.request.headers.get(b"content-type", b"").decode("latin-1")
        return bodies.read(
            call.request.body,
            content_type,
            kind=_kind_of(call),
            is_known=lambda kind: self._registry.of_kind(kind) is not None,
            is_custom=call.resource.custom is not None and _kind_of(call) == call.resource.kind,
            look_for_repeats=_strictness(call) != "Ignore",
        )

    def _object(self, call: Call) -> Object:
        """The object that a create or update brings: wrong types are refused, unknown fields told of and dropped."""
        body = self._read(call)
        self._modernize(call, body.obj)
        decoder = self._decoder(call.resource)
        warnings = bodies.decode(body, decoder, kind=call.resource.kind, validation=_strictness(call))
        call.warnings.extend(warnings)
        return body.obj

    def _modernize(self, call: Call, obj: Object) -> None:
        """Read an old form of the object's version as what it means, and say so."""
        if call.resource.modernize is not None and not call.subresource:
            call.warnings.extend(call.resource.modernize(obj))

    def _message(self, call: Call) -> Object:
        """What travels through a subresource of its own kind, or is asked and answered without being stored."""
        body = self._read(call)
        kind = _kind_of(call)
        call.warnings.extend(bodies.decode(body, self._decoder_of(kind), kind=kind, validation=_strictness(call)))
        return body.obj

    def _patched(
        self, call: Call, wanted: Object, shown: Any, kind: Kind | None = None, oddities: tuple[str, ...] = ()
    ) -> Object:
        """What a patch leaves, read as its kind; `shown` is what an error quotes, if not the same."""
        kind = kind or _kind_of(call)
        is_custom = call.resource.custom is not None and kind == call.resource.kind
        strictness = _strictness(call)
        # Reading it drops what the error is about.
        whole = orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS) if is_custom and strictness == "Strict" else b""
        try:
            if shown is None and not is_custom:
                self._check_still(kind, wanted)
            self._modernize(call, wanted)
            unknown = self._decoder_of(kind)(wanted)
            if unknown or oddities:
                faults = [*oddities, *(f'unknown field "{path}"' for path in unknown)]
                if strictness == "Strict":
                    raise DecodeError(f"strict decoding error: {', '.join(faults)}")
                if strictness == "Warn":
                    call.warnings.extend(faults)
        except DecodeError as problem:
            order = orjson.OPT_SORT_KEYS if is_custom else None
            said = whole or orjson.dumps(wanted, option=order)
            text = said.decode() if shown is None else gotext.shown(unmerged(shown))
            fault = causes.invalid("patch", text, str(problem) if shown is None else problem.conversion)
            raise errors.Invalid([fault], group="", kind="", name="") from None
        if not is_custom:  # Those are told that they may not be another kind when they are validated.
            wanted["kind"], wanted["apiVersion"] = kind.name, kind.api_version
        return wanted

    def _check_still(self, kind: Kind, wanted: Object) -> None:
        """A patch may not make another kind of an object, though another version of its own is read as this one."""
        name, api_version = wanted.get("kind"), wanted.get("apiVersion")
        if name == kind.name and api_version == kind.api_version:
            return
        found = Kind.parse(str(api_version or kind.api_version), str(name or kind.name))
        if self._schema_of(found) is None and self._registry.of_kind(found) is None:
            raise DecodeError(f'no kind "{name}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
        if found.name != kind.name:
            package = kind.group.partition(".")[0] or "core"
            raise DecodeError(f"converting ({found.version}.{name}) to ({package}.{kind.name}): unknown conversion")

    def _decoder_of(self, kind: Kind) -> Decoder:
        """For a kind that is served as a resource, or that only travels."""
        resource = self._registry.of_kind(kind)
        if resource is not None:
            return self._decoder(resource)
        schema = self._schema_of(kind)
        assert schema is not None, f"{kind} is served, so its schema is known"
        return self._decoders.of(schema)

    def _decoder(self, resource: Resource) -> Decoder:
        known = self._compiled.get(id(resource))
        if known is None or known[0] is not resource:
            decoder = self._decoders.of(resource.schema) if resource.custom is None else resource.custom.decode
            self._registry.shed(self._compiled)
            known = self._compiled[id(resource)] = (resource, decoder)
        return known[1]

    # Answers.

    async def _show(self, call: Call, written: Written, status: int) -> Outcome:
        accepted = self._accepted(call)
        form = self._form(call, accepted)
        if form.waits and (waiting := form.prepare((written.entry,))) is not None:
            await waiting
        body = form.one(written.entry)
        return Outcome(status, body, wants_yaml=accepted.is_yaml)


def _success_status() -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _success(call: Call, entry: Entry) -> bytes:
    details = {"name": call.name, "group": call.resource.group, "kind": call.resource.plural}
    details["uid"] = entry.decode()["metadata"].get("uid", "")
    kept = {name: value for name, value in details.items() if value}
    return orjson.dumps({**_success_status(), "details": kept}, option=orjson.OPT_APPEND_NEWLINE)


def _metadata_of(obj: Object) -> Object:
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise errors.BadRequest("metadata must be an object")
    return metadata


def _check_kind(applied: Object, kind: Kind) -> None:
    found = Kind.parse(str(applied.get("apiVersion", "")), str(applied.get("kind", "")))
    if found != kind:
        raise errors.BadRequest(f"invalid object type: {found.group}/{found.version}, Kind={found.name}")


def _match_namespace(call: Call, metadata: Object) -> None:
    if not call.resource.namespaced:
        metadata.pop("namespace", None)
        return
    if not metadata.get("namespace"):
        metadata["namespace"] = call.namespace
    elif metadata["namespace"] != call.namespace:
        raise errors.BadRequest("the namespace of the provided object does not match the namespace sent on the request")


def _match_name(call: Call, metadata: Object) -> None:
    if not metadata.get("name"):
        raise errors.BadRequest(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        )
    if metadata["name"] != call.name:
        raise errors.BadRequest(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
        )


def _strictness(call: Call) -> FieldValidation:
    if not call.request.has_query:
        return "Warn"
    asked = call.text("fieldValidation")
    if asked == "Strict":
        return "Strict"
    if asked == "Ignore":
        return "Ignore"
    if asked and asked != "Warn":
        options = {"create": "CreateOptions", "update": "UpdateOptions"}.get(call.verb, "PatchOptions")
        fault = causes.not_supported("fieldValidation", asked, ["", "Ignore", "Strict", "Warn"])
        raise errors.Invalid([fault], group="meta.k8s.io", kind=options, name="")
    return "Warn"


def _tell_of_keys(call: Call, repeated: tuple[str, ...]) -> None:
    strictness = _strictness(call)
    if strictness == "Strict":
        faults = "\n  ".join(("yaml: unmarshal errors:", *repeated))
        raise errors.BadRequest(f"error strict decoding YAML: error converting YAML to JSON: {faults}")
    if strictness == "Warn":
        call.warnings.extend(repeated)


def _check_manager(call: Call, options: str, *, is_apply: bool = False) -> None:
    if not is_apply and not call.request.has_query:
        return
    manager = call.text("fieldManager")
    faults = list(manager_faults(manager, "fieldManager")) if manager else []
    if is_apply and not manager:
        faults.append(causes.required("fieldManager", "is required for apply patch"))
    if faults:
        raise errors.Invalid(faults, group="meta.k8s.io", kind=options, name="")
    _strictness(call)
    _ = call.is_dry_run


def _delete_options_of_query(call: Call) -> Object:
    options: Object = {}
    grace = call.number("gracePeriodSeconds")
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if call.text("propagationPolicy"):
        options["propagationPolicy"] = call.text("propagationPolicy")
    if call.request.parameter("orphanDependents") is not None:
        options["orphanDependents"] = call.flag("orphanDependents")
    if "dryRun" in call.request.query:
        options["dryRun"] = call.request.query["dryRun"]
    return options


def _meant(call: Call, raw: Object) -> DeleteOptions:
    """The options of a deletion; a dry run is one whether the query asked for it or the options do."""
    options = DeleteOptions.of(raw)
    if options.is_dry_run:
        call.request.query["dryRun"] = ["All"]
    return options


def _check_view(call: Call, accepted: Accepted, include: str) -> None:
    """Refuse a view of one object for many, of many for one, and rows with what no row can have."""
    package, name = call.resource.group.partition(".")[0] or "core", call.resource.kind.name
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
        fault = causes.invalid("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
        raise errors.BadRequest(f"Unable to convert to Table as requested: {fault}")


def _kind_of(call: Call) -> Kind:
    """The kind that travels through a call's URL."""
    sub = call.resource.subresource(call.subresource) if call.subresource else None
    return sub.kind if sub is not None else call.resource.kind


def _on_pod(call: Call, binding: Object, registry: Registry) -> Call:
    """The old way to bind: a Binding posted to its own collection, named after the pod."""
    pods = registry.find("", "v1", "pods")
    assert pods is not None, "every cluster serves pods"
    name = _metadata_of(binding).get("name", "")
    return Call("create", pods, call.namespace, name, "binding", "", call.request, call.user, call.warnings)
